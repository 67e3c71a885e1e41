"""What follows from a plugin's facts, for one target or any: each question is decided here, once."""

from __future__ import annotations

from aoti_abi.records import TYPE_CHECKING
from aoti_abi.versions import parse_version
from aoti_inspect.facts.target import ISA_FLAGS, ISA_IMPLIES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aoti_inspect.elf.records import ElfFacts
    from aoti_inspect.facts.records import PluginFacts
    from aoti_inspect.facts.target import Target

#: The first glibc that refuses to make stacks executable on behalf of a library that is opened.
_REFUSES_EXECSTACK = (2, 41)

#: Machines whose stacks are executable unless a library says otherwise (glibc's DEFAULT_STACK_PERMS).
_EXECUTABLE_BY_DEFAULT = frozenset({"x86_64", "i386", "i686", "arm", "ppc64", "ppc", "s390", "s390x", "mips"})

#: What Inductor writes for "compiled without vector instructions".
INVALID_ISA = "INVALID_VEC_ISA"


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


def sleef_isa(names: Sequence[str]) -> str | None:
    """Return the x86 instruction set that Sleef's names prove: ``expf16`` and ``expd8`` are AVX-512's.

    The number is the count of lanes: 16 floats or 8 doubles fill 512 bits, 8 floats or 4 doubles 256.
    """
    found = None
    for name in names:
        stem = name.removeprefix("Sleef_").partition("_")[0]
        if stem.endswith(("f16", "d8")):
            return "AVX512"
        if stem.endswith(("f8", "d4")):
            found = "AVX2"
    return found


def used_isa(plugin: PluginFacts) -> list[str]:
    """Return the instruction sets that a plugin surely uses: from its metadata, else from its Sleef calls.

    Names that are not known, and ASIMD, which also stands for SVE, are left out.
    """
    recorded = (plugin.metadata or {}).get("AOTI_CPU_ISA", "").upper().split()
    if recorded and recorded != [INVALID_ISA]:
        return [name for name in recorded if name in ISA_FLAGS]
    if plugin.elf.header.machine_name != "x86_64":
        return []
    proven = sleef_isa(plugin.imports.names("sleef"))
    return [proven] if proven else []


def missing_isa(needed: Sequence[str], available: frozenset[str]) -> list[str]:
    """Return those of ``needed`` that a processor with ``available`` lacks, implied ones counted in."""
    have = available.union(*(ISA_IMPLIES.get(name, ()) for name in available))
    return [name for name in needed if name not in have]


def cubin_runs_on(architecture: int, sm: int) -> bool:
    """Whether machine code for ``architecture`` runs on a GPU of compute capability ``sm``.

    Machine code runs on GPUs of the same major version and the same or a later minor version (CUDA C++
    Programming Guide, "Binary Compatibility"). 86 is major 8, minor 6; 120 is major 12, minor 0.
    """
    return architecture // 10 == sm // 10 and architecture <= sm
