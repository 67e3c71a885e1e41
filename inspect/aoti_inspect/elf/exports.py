"""What a file defines for others, counted by family.

A name is told by its first bytes (Itanium C++ ABI, "Mangling"). Four of them decide which prefixes to try, so
that the tens of thousands of names of a large library cost one dictionary look-up each.
"""

from __future__ import annotations

from itertools import islice

from aoti_abi.records import TYPE_CHECKING
from aoti_abi.symbols import SHIM_PREFIXES
from aoti_inspect.elf import format as elf
from aoti_inspect.elf.records import ExportSummary
from aoti_inspect.elf.symbols import NOT_LOCAL, both
from aoti_inspect.text import decode

if TYPE_CHECKING:
    from collections.abc import Iterable

    from aoti_inspect.budget import Budget
    from aoti_inspect.elf.strings import StringTable
    from aoti_inspect.elf.symbols import Columns

_CONTAINER = (b"AOTInductor",)
_SHIMS = tuple(map(str.encode, SHIM_PREFIXES))
#: Vtables, VTT, typeinfo and its name, guard variables, construction vtables, transaction clones.
_SPECIAL = (b"", b"TV", b"TT", b"TI", b"TS", b"GV", b"TC", b"GTt", b"GR", b"Z", b"GVZ")
#: ``std`` and its abbreviations (allocator, string, basic_string, iostreams).
_STD_NAMES = (b"St", b"Sa", b"Ss", b"Sb", b"Si", b"So", b"Sd")
#: Those, and libstdc++'s and libc++abi's own namespaces.
_STD_SCOPES = (
    *_STD_NAMES,
    b"9__gnu_cxx",
    b"10__cxxabiv1",
    b"10__gnu_norm",
    b"11__gnu_debug",
    b"14__gnu_internal",
    b"14__gnu_parallel",
)
#: Functions may have cv- and ref-qualifiers behind the N of a nested name; nothing else has.
_QUALIFIERS = (b"N", b"NK", b"NV", b"NVK", b"NR", b"NKR", b"NO", b"NKO")
_STD = (
    *(b"_Z" + special + b"N" + scope for special in _SPECIAL for scope in _STD_SCOPES),
    *(b"_Z" + special + scope for special in _SPECIAL for scope in _STD_NAMES),
    *(
        b"_Z" + local + cv + scope
        for local in (b"", b"Z", b"GVZ")
        for cv in _QUALIFIERS[1:]
        for scope in _STD_SCOPES
    ),
    *(b"_Znw", b"_Zna", b"_Zdl", b"_Zda", b"__cxa_", b"__gxx_", b"__dynamic_cast"),
)
_RUNTIME = tuple(
    b"_Z" + special + nested + b"5torch12aot_inductor" for special in _SPECIAL for nested in (b"N", b"NK")
)
_KEY = 4
#: Thunks carry offsets between their marker and the name: ``_ZTv0_n24_NSt...``, ``_ZThn16_NSi...``.
_THUNKS = (b"_ZTv", b"_ZTh", b"_ZTc")
_OF_CONTAINER, _OF_HOST, _OF_STD, _OF_RUNTIME, _OF_THUNKS = range(5)


def _by_key() -> dict[bytes, tuple[tuple[int, tuple[bytes, ...]], ...]]:
    """Group the prefixes of each family by their first four bytes."""
    families = {
        _OF_CONTAINER: _CONTAINER,
        _OF_HOST: _SHIMS,
        _OF_RUNTIME: _RUNTIME,
        _OF_STD: _STD,
        _OF_THUNKS: _THUNKS,
    }
    grouped: dict[bytes, dict[int, list[bytes]]] = {}
    for kind, prefixes in families.items():
        for prefix in prefixes:
            grouped.setdefault(prefix[:_KEY], {}).setdefault(kind, []).append(prefix)
    return {
        key: tuple((kind, tuple(prefixes)) for kind, prefixes in kinds.items())
        for key, kinds in grouped.items()
    }


_PREFIXES = _by_key()
#: The fourth byte of a name rules most names out before anything is compared.
_FOURTH = frozenset(key[3] for key in _PREFIXES)
_GLOBAL = bytes(value >> 4 == 1 for value in range(256))
_NOT_GLOBAL = bytes(value > 15 and value >> 4 != 1 for value in range(256))
_UNIQUE = bytes(value >> 4 == elf.STB_UNIQUE for value in range(256))
_EXAMPLES = 5
#: Names of one family that are listed. PyTorch has 3,000 host functions, and some thousand unique symbols.
MAX_NAMES = 1 << 14


def summarize(columns: Columns, strings: StringTable, budget: Budget) -> ExportSummary:
    """Count and name the symbols that are defined and not local.

    Args:
        columns: the symbol table.
        strings: DT_STRTAB.
        budget: told if there are more names than are listed.
    """
    data = strings.data
    strong = _sort(data, columns.exported(_GLOBAL))
    weak = _sort(data, columns.exported(_NOT_GLOBAL))
    total = both(columns.defined, columns.info.translate(NOT_LOCAL)).count(1)
    known = sum(map(len, strong)) + sum(map(len, weak))
    sorted_out = {name for names in (*strong, *weak) for name in names} if total > known else set()
    others = (name for name in columns.exported(NOT_LOCAL) if name not in sorted_out)
    return ExportSummary(
        total=total,
        container=_listed(
            "container functions", strong[_OF_CONTAINER] + weak[_OF_CONTAINER], strings, budget
        ),
        shims=_listed("host functions", strong[_OF_HOST] + weak[_OF_HOST], strings, budget),
        std=len(strong[_OF_STD]) + len(weak[_OF_STD]),
        std_strong=len(strong[_OF_STD]),
        std_examples=_texts((strong[_OF_STD] or weak[_OF_STD])[:_EXAMPLES], strings),
        runtime=len(strong[_OF_RUNTIME]) + len(weak[_OF_RUNTIME]),
        unique=_listed("unique symbols", list(columns.exported(_UNIQUE)), strings, budget),
        others=total - known,
        other_examples=_texts(list(islice(others, _EXAMPLES)) if total > known else [], strings),
    )


def _sort(data: bytes, names: Iterable[int]) -> tuple[list[int], ...]:
    """Sort names, given by their offsets, into the four families that are named; drop the others."""
    found: tuple[list[int], ...] = ([], [], [], [], [])
    offsets = list(names)
    if max(offsets, default=0) + _KEY > len(data):
        # No name but a hostile one begins in the last bytes of the table.
        offsets = [name for name in offsets if name + _KEY <= len(data)]
    starts, families = data.startswith, _PREFIXES.get
    for name in [name for name in offsets if data[name + 3] in _FOURTH]:
        for kind, prefixes in families(data[name : name + _KEY], ()):
            if starts(prefixes, name):
                found[kind].append(name)
                break
    found[_OF_STD].extend(name for name in found[_OF_THUNKS] if _is_std_thunk(data, name))
    return found[:_OF_THUNKS]


def _is_std_thunk(data: bytes, name: int) -> bool:
    head = data[name : name + 40].partition(b"\0")[0]
    return b"_NS" in head or b"_NKS" in head


def _listed(what: str, names: list[int], strings: StringTable, budget: Budget) -> tuple[str, ...]:
    if len(names) > MAX_NAMES:
        budget.give_up(f"the exported {what}: {len(names)}, of which {MAX_NAMES} were read")
    budget.spend(2 * min(len(names), MAX_NAMES), f"the exported {what}")
    return _texts(names[:MAX_NAMES], strings)


def _texts(names: list[int], strings: StringTable) -> tuple[str, ...]:
    """Return the names at these offsets, sorted and each once, those outside of the table left out."""
    found = {raw for raw in (strings.raw(name) for name in names) if raw}
    return tuple(sorted(map(decode, found)))
