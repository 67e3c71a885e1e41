"""What a plugin asks of others: its undefined symbols, by family, and the libraries that it names."""

from __future__ import annotations

from aoti_abi.hosts.torch import is_cuda_libtorch, is_libtorch
from aoti_abi.records import TYPE_CHECKING
from aoti_abi.symbols import PROXY_EXECUTOR as PROXY_EXECUTOR  # noqa: PLC0414 - re-exported
from aoti_inspect.facts.symbol_families import LIBC_OWN, family

if TYPE_CHECKING:
    from aoti_inspect.elf.records import ElfFacts, Symbol
    from aoti_inspect.facts.records import PluginFacts
    from aoti_inspect.facts.symbol_families import Family

_CUDA_LIBRARIES = ("libcuda.so", "libcudart.so", "libnvrtc.so")
#: Functions that the wrapper of a model calls only if it was compiled for CUDA.
_CUDA_PROOF = ("cuLaunchKernel", "cudaMalloc", "aoti_torch_create_cuda_stream_guard")
#: Every plugin, also one for the CPU, asks for this one: it only returns an integer.
_CUDA_CODE = "aoti_torch_device_type_cuda"


class Imports:
    """A plugin's undefined symbols and needed libraries, sorted once.

    The dynamic linker leaves a weak symbol at zero if nothing defines it, so most questions are about the
    others, the strong ones; only `uses_cuda` and `has` count weak symbols in.

    Args:
        elf: the file.

    Attributes:
        needed: the DT_NEEDED entries.
        libtorch: those of them that are LibTorch's libraries, whatever folder they name.
        required: the strong symbols in the file's order, without those that every library has (``_DYNAMIC``).
        uses_cuda: whether the file names a CUDA library or any of CUDA's functions.
    """

    __slots__ = ("_families", "_names", "libtorch", "needed", "required", "uses_cuda")

    def __init__(self, elf: ElfFacts) -> None:
        self.needed = elf.needed
        self.libtorch = tuple(filter(is_libtorch, elf.needed))
        families: dict[Family, list[Symbol]] = {}
        weak: set[Family] = set()
        required: list[Symbol] = []
        for symbol in elf.undefined:
            kind = family(symbol.name)
            if symbol.binding != "weak":
                families.setdefault(kind, []).append(symbol)
                if kind != "toolchain":
                    required.append(symbol)
            else:
                weak.add(kind)
        self.required = tuple(required)
        self._families = families
        self._names = frozenset(symbol.name for symbol in elf.undefined)
        self.uses_cuda = (
            bool(self.needs_library(*_CUDA_LIBRARIES))
            or not weak.isdisjoint(("cuda-runtime", "cuda-driver"))
            or "cuda-runtime" in families
            or "cuda-driver" in families
        )

    def by_family(self) -> dict[Family, list[Symbol]]:
        """Return the strong symbols of each family that has any, in the file's order."""
        return self._families

    def of(self, *families: Family) -> list[Symbol]:
        """Return the strong symbols of some families, in the file's order within each."""
        return [symbol for kind in families for symbol in self._families.get(kind, ())]

    def names(self, *families: Family) -> list[str]:
        """Return the names of the strong symbols of some families, sorted, each once."""
        return sorted({symbol.name for symbol in self.of(*families)})

    def unversioned(self, *families: Family) -> list[str]:
        """Return the names of `of` that carry no version, so that no library is bound to provide them.

        A symbol with a version comes from the library that DT_VERNEED names; one without comes from
        the host, or from whatever library has it.
        """
        return [symbol.name for symbol in self.of(*families) if symbol.version is None]

    def has(self, name: str) -> bool:
        """Whether the file has this undefined symbol, weak or not."""
        return name in self._names

    def needs_library(self, *prefixes: str) -> list[str]:
        """Return the DT_NEEDED entries whose file name, in any folder, starts with one of ``prefixes``."""
        return [entry for entry in self.needed if _base_name(entry).startswith(prefixes)]

    @property
    def needs_libtorch(self) -> bool:
        """Whether DT_NEEDED names one of LibTorch's libraries."""
        return bool(self.libtorch)

    @property
    def proxy_executor(self) -> bool:
        """Whether the plugin runs operators through the host's dispatcher."""
        return PROXY_EXECUTOR in self._names

    @property
    def cuda_shims(self) -> list[str]:
        """The strong shims that only a host for CUDA has; what every plugin asks for is none of them."""
        names = self.unversioned("shim")
        return [name for name in names if "cuda" in name and name != _CUDA_CODE]

    @property
    def cuda_libtorch(self) -> list[str]:
        """The DT_NEEDED entries that only LibTorch's builds for CUDA have."""
        return list(filter(is_cuda_libtorch, self.needed))

    @property
    def cuda_calls(self) -> list[str]:
        """The functions that a plugin calls only if it was compiled for CUDA, sorted."""
        return sorted(name for name in _CUDA_PROOF if name in self._names)

    @property
    def cxx_runtime(self) -> list[str]:
        """What the plugin needs of a C++ runtime, sorted: not the unwinder's, not the C library's."""
        return sorted(
            {
                symbol.name
                for symbol in self.of("c++", "libc++")
                if not symbol.name.startswith("_Unwind_")
                and symbol.name not in LIBC_OWN
                and (symbol.library is None or symbol.library.startswith(("libstdc++", "libc++")))
            }
        )


def _base_name(entry: str) -> str:
    return entry.rpartition("/")[2]


def by_family(plugin: PluginFacts) -> dict[Family, list[Symbol]]:
    """Return `Imports.by_family` of a plugin."""
    return plugin.imports.by_family()


def names(plugin: PluginFacts, which: Family) -> list[str]:
    """Return `Imports.names` of one family."""
    return plugin.imports.names(which)


def cxx_runtime_imports(plugin: PluginFacts) -> list[str]:
    """Return `Imports.cxx_runtime` of a plugin."""
    return plugin.imports.cxx_runtime


def needs_library(plugin: PluginFacts, *prefixes: str) -> list[str]:
    """Return `Imports.needs_library` of a plugin."""
    return plugin.imports.needs_library(*prefixes)


def is_plugin(plugin: PluginFacts) -> bool:
    """Whether the file exports any function of the container API."""
    return bool(plugin.elf.exports.container)
