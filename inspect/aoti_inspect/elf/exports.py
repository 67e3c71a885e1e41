"""What a file defines for others, counted by family.

A name is told by its first bytes (Itanium C++ ABI, "Mangling"). Four of them decide which prefixes to try, so
that the tens of thousands of names of a large library cost one dictionary look-up each.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

from aoti_inspect.elf import format as elf
from aoti_inspect.facts import ExportSummary
from aoti_inspect.text import decode

if TYPE_CHECKING:
    from aoti_inspect.elf.strings import StringTable
    from aoti_inspect.elf.symbols import Columns

_CONTAINER = (b"AOTInductor",)
_SHIMS = (b"aoti_torch_", b"torch_")
#: Vtables, VTT, typeinfo and its name, guard variables, construction vtables, transaction clones.
_SPECIAL = (b"", b"TV", b"TT", b"TI", b"TS", b"GV", b"TC", b"GTt", b"GR", b"Z", b"GVZ")
#: ``std``, its abbreviations (Sa, Ss, Sb, Si, So, Sd), and libstdc++'s and libc++abi's own namespaces.
_STD_SCOPES = (
    b"S",
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
    *(b"_Z" + special + b"S" for special in _SPECIAL),
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


def _by_key() -> dict[bytes, tuple[tuple[bytes, ...], ...]]:
    """Group the prefixes of each family by their first four bytes; shorter ones stand under every key."""
    families = (_CONTAINER, _SHIMS, _RUNTIME, _STD)
    keys = {prefix[:_KEY] for prefixes in families for prefix in prefixes if len(prefix) >= _KEY}
    keys |= {prefix + bytes((last,)) for prefix in (b"_ZS",) for last in range(33, 127)}
    return {
        key: tuple(
            tuple(prefix for prefix in prefixes if prefix.startswith(key) or key.startswith(prefix))
            for prefixes in families
        )
        for key in keys
    }


_PREFIXES = _by_key()
#: Thunks carry offsets between their marker and the name: ``_ZTv0_n24_NSt...``, ``_ZThn16_NSi...``.
_THUNKS = frozenset((b"_ZTv", b"_ZTh", b"_ZTc"))
_KEYS = frozenset(_PREFIXES) | _THUNKS
_LOCAL_MARK = bytes(1 if value < 16 else 0 for value in range(256))
_UNIQUE_MARK = bytes(1 if value >> 4 == elf.STB_UNIQUE else 0 for value in range(256))
_EXAMPLES = 5


def summarize(columns: Columns, strings: StringTable) -> ExportSummary:
    """Count and name the symbols that are defined and not local."""
    names, info, sections = columns
    data = strings.data
    starts = data.startswith
    candidates = [
        (name, bind)
        for name, bind, section in zip(names, info, sections, strict=True)
        if section and bind > 15 and data[name : name + _KEY] in _KEYS
    ]
    container: list[int] = []
    shims: list[int] = []
    runtime = 0
    std: list[int] = []
    std_strong: list[int] = []
    for name, bind in candidates:
        key = data[name : name + _KEY]
        if key in _THUNKS:
            is_container, is_shim, is_runtime, is_std = False, False, False, _is_std_thunk(data, name)
        else:
            of_container, of_shims, of_runtime, of_std = _PREFIXES[key]
            is_std = starts(of_std, name)
            is_runtime = not is_std and starts(of_runtime, name)
            is_container = starts(of_container, name)
            is_shim = starts(of_shims, name)
        if is_std:
            std.append(name)
            if bind >> 4 == 1:
                std_strong.append(name)
        elif is_runtime:
            runtime += 1
        elif is_container:
            container.append(name)
        elif is_shim:
            shims.append(name)
    total = len(names) - sections.count(elf.SHN_UNDEF)
    total -= sum(1 for index in _positions(info.translate(_LOCAL_MARK)) if sections[index])
    unique = [names[index] for index in _positions(info.translate(_UNIQUE_MARK)) if sections[index]]
    known = len(container) + len(shims) + len(std) + runtime
    others = (
        name
        for name, bind, section in zip(names, info, sections, strict=True)
        if section and bind > 15 and not _known(data, name)
    )
    return ExportSummary(
        total=total,
        container=_texts(container, strings),
        shims=_texts(shims, strings),
        std=len(std),
        std_strong=len(std_strong),
        std_examples=_texts((std_strong or std)[:_EXAMPLES], strings),
        runtime=runtime,
        unique=_texts(unique, strings),
        others=total - known,
        other_examples=_texts(list(islice(others, _EXAMPLES)) if total > known else [], strings),
    )


def _positions(marks: bytes) -> list[int]:
    found = []
    at = marks.find(1)
    while at >= 0:
        found.append(at)
        at = marks.find(1, at + 1)
    return found


def _is_std_thunk(data: bytes, name: int) -> bool:
    head = data[name : name + 40].partition(b"\0")[0]
    return b"_NS" in head or b"_NKS" in head


def _known(data: bytes, name: int) -> bool:
    key = data[name : name + _KEY]
    if key in _THUNKS:
        return _is_std_thunk(data, name)
    return key in _PREFIXES and any(data.startswith(prefixes, name) for prefixes in _PREFIXES[key])


def _texts(names: list[int], strings: StringTable) -> tuple[str, ...]:
    """Return the names at these offsets, sorted and each once, those outside of the table left out."""
    found = {raw for raw in (strings.raw(name) for name in names) if raw}
    return tuple(sorted(map(decode, found)))
