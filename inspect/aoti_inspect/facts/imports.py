"""A plugin's undefined symbols by family, computed once for all rules."""

from __future__ import annotations

from aoti_abi.records import TYPE_CHECKING
from aoti_inspect.facts.symbol_families import LIBC_OWN, family

if TYPE_CHECKING:
    from aoti_inspect.elf.records import Symbol
    from aoti_inspect.facts.records import PluginFacts
    from aoti_inspect.facts.symbol_families import Family

#: The host's function that runs operators which have no C function of their own.
PROXY_EXECUTOR = "aoti_torch_proxy_executor_call_function"

_last: tuple[tuple[Symbol, ...] | None, dict[Family, list[Symbol]]] = (None, {})


def by_family(plugin: PluginFacts) -> dict[Family, list[Symbol]]:
    """Return the undefined symbols that something must define: weak ones may stay open and are left out."""
    global _last  # noqa: PLW0603 - every rule asks about the same plugin; the last answer is enough
    undefined = plugin.elf.undefined
    if _last[0] is not undefined:
        families: dict[Family, list[Symbol]] = {}
        for symbol in undefined:
            if symbol.binding != "weak":
                families.setdefault(family(symbol.name), []).append(symbol)
        _last = (undefined, families)
    return _last[1]


def names(plugin: PluginFacts, which: Family) -> list[str]:
    """Return the names of one family, sorted."""
    return sorted({symbol.name for symbol in by_family(plugin).get(which, ())})


def cxx_runtime_imports(plugin: PluginFacts) -> list[str]:
    """Return what a plugin needs of a C++ runtime, sorted: not the unwinder's, not the C library's."""
    families = by_family(plugin)
    found = set()
    for symbol in (*families.get("c++", ()), *families.get("libc++", ())):
        if symbol.name.startswith("_Unwind_") or symbol.name in LIBC_OWN:
            continue
        if symbol.library is not None and not symbol.library.startswith(("libstdc++", "libc++")):
            continue
        found.add(symbol.name)
    return sorted(found)


def needs_library(plugin: PluginFacts, *prefixes: str) -> list[str]:
    """Return the DT_NEEDED entries that start with one of ``prefixes``, whatever folder they name."""
    return [entry for entry in plugin.elf.needed if entry.rpartition("/")[2].startswith(prefixes)]


def is_plugin(plugin: PluginFacts) -> bool:
    """Whether the file exports any function of the container API."""
    return bool(plugin.elf.exports.container)
