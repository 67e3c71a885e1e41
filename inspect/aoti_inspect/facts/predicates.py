"""What follows from a plugin's facts, for one target or any: each question is decided here, once."""

from __future__ import annotations

from aoti_abi.records import TYPE_CHECKING
from aoti_abi.versions import parse_version

if TYPE_CHECKING:
    from aoti_inspect.elf.records import ElfFacts
    from aoti_inspect.facts.records import PluginFacts
    from aoti_inspect.facts.target import Target

#: The first glibc that refuses to make stacks executable on behalf of a library that is opened.
_REFUSES_EXECSTACK = (2, 41)

#: Machines whose stacks are executable unless a library says otherwise (glibc's DEFAULT_STACK_PERMS).
_EXECUTABLE_BY_DEFAULT = frozenset({"x86_64", "i386", "i686", "arm", "ppc64", "ppc", "s390", "s390x", "mips"})


def not_a_library(elf: ElfFacts) -> str | None:
    """Return what kind of ELF file it is if ``dlopen`` takes it for no library, as the end of a sentence."""
    if elf.header.type != "DYN":
        what = {"REL": "an object file", "EXEC": "an executable", "CORE": "a core dump"}.get(
            elf.header.type, f"an ELF file of type {elf.header.type}"
        )
        return f"is {what}, not a shared library"
    if "PIE" in elf.flags:
        return "is a position-independent executable, not a shared library"
    if not elf.is_dynamic:
        return "has no dynamic section (PT_DYNAMIC) in the file, so that no loader can take it"
    return None


#: CUDA's libraries whose SONAME has the major version of their CUDA release.
_CUDA_SONAMES = (
    "libcudart.so.",
    "libcublas.so.",
    "libcublasLt.so.",
    "libnvrtc.so.",
    "libnvJitLink.so.",
    "libcupti.so.",
)


def cuda_needs(plugin: PluginFacts) -> dict[str, int]:
    """Return the needed libraries that are of one major release of CUDA, with that."""
    found = {}
    for entry in plugin.imports.needs_library(*_CUDA_SONAMES):
        major = entry.rpartition(".so.")[2].partition(".")[0]
        if major.isascii() and major.isdigit() and len(major) <= 3:
            found[entry] = int(major)
    return found


def cuda_calls(plugin: PluginFacts) -> list[str]:
    """Return `Imports.cuda_calls` of a plugin."""
    return plugin.imports.cuda_calls


def compiled_for(plugin: PluginFacts) -> str:
    """Return the device that a plugin was compiled for: as its metadata say, else told from what it calls."""
    key = (plugin.metadata or {}).get("AOTI_DEVICE_KEY")
    if key:
        return key
    # A library in DT_NEEDED alone proves nothing: a CPU model may be linked against a CUDA build of PyTorch.
    shims = ("aoti_torch_cuda_", "aoti_torch_create_cuda")
    calls = plugin.imports.of("cuda-runtime", "cuda-driver") or any(
        symbol.name.startswith(shims) for symbol in plugin.imports.of("shim")
    )
    return "cuda" if calls or plugin.gpu else "cpu"


def wants_executable_stack(elf: ElfFacts) -> bool:
    """Whether loading a library makes stacks executable: it asks for it, or leaves it to such a default."""
    if elf.executable_stack is None:
        return elf.is_dynamic and elf.header.machine_name in _EXECUTABLE_BY_DEFAULT
    return elf.executable_stack


def refuses_its_stack(target: Target, elf: ElfFacts) -> bool:
    """Whether the target's glibc refuses to open a library for the executable stack that it wants."""
    glibc = target.glibc
    return wants_executable_stack(elf) and glibc is not None and parse_version(glibc) >= _REFUSES_EXECSTACK
