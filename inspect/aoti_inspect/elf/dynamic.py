"""PT_DYNAMIC, as the dynamic linker takes it in."""

from __future__ import annotations

from aoti_abi.records import TYPE_CHECKING, NamedTuple
from aoti_inspect.elf import format as elf

if TYPE_CHECKING:
    from collections.abc import Iterator

#: A linker writes some thirty entries; the dynamic linker stops at the first DT_NULL.
MAX_ENTRIES = 1 << 14


class Dynamic(NamedTuple):
    """The entries up to DT_NULL.

    Attributes:
        values: the last value of each tag: later entries win, as in glibc's ``elf_get_dynamic_info``.
        needed: DT_NEEDED values in the file's order.
        entries: all of them, tag and value, in the file's order.
        terminated: whether a DT_NULL was found.
    """

    values: dict[int, int]
    needed: tuple[int, ...]
    entries: tuple[tuple[int, int], ...]
    terminated: bool

    def flags(self) -> tuple[str, ...]:
        """Return the names of everything that DT_FLAGS, DT_FLAGS_1 and the older tags switch on, sorted."""
        names = {name for bit, name in elf.DF_NAMES.items() if self.values.get(elf.DT_FLAGS, 0) & bit}
        names |= {name for bit, name in elf.DF_1_NAMES.items() if self.values.get(elf.DT_FLAGS_1, 0) & bit}
        for tag, name in (
            (elf.DT_SYMBOLIC, "SYMBOLIC"),
            (elf.DT_TEXTREL, "TEXTREL"),
            (elf.DT_BIND_NOW, "BIND_NOW"),
        ):
            if tag in self.values:
                names.add(name)
        return tuple(sorted(names))

    def tables_above(self, address: int) -> Iterator[int]:
        """Yield the addresses of known tables above ``address``."""
        for tag, value in self.values.items():
            if tag in elf.DT_TABLES and value > address:
                yield value


def parse_dynamic(raw: bytes, layout: elf.Layout) -> Dynamic:
    """Decode the bytes of PT_DYNAMIC; a partial last entry is left out."""
    values: dict[int, int] = {}
    needed: list[int] = []
    entries: list[tuple[int, int]] = []
    record = layout.dynamic
    usable = len(raw) - len(raw) % record.size
    for tag, value in record.iter_unpack(raw[:usable]):
        if tag == elf.DT_NULL:
            return Dynamic(values, tuple(needed), tuple(entries), terminated=True)
        if tag == elf.DT_NEEDED:
            needed.append(value)
        values[tag] = value
        entries.append((tag, value))
    return Dynamic(values, tuple(needed), tuple(entries), terminated=False)
