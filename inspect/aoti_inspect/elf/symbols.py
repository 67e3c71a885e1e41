"""The dynamic symbol table, in columns.

A table of 75,000 symbols is worked on by slices and comprehensions over whole columns; a record is made only
for a symbol that somebody asks for.
"""

from __future__ import annotations

import sys
from itertools import compress

from aoti_abi.records import TYPE_CHECKING, NamedTuple
from aoti_inspect.elf import format as elf

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aoti_inspect.elf.records import Binding

#: STB_* by number; every other number is "other".
BINDINGS: dict[int, Binding] = {0: "local", 1: "global", 2: "weak", elf.STB_UNIQUE: "unique"}


class Columns(NamedTuple):
    """The table's columns, all of the same length; entry 0 is the null symbol.

    Attributes:
        names: st_name, offsets into DT_STRTAB.
        info: st_info; the upper four bits bind, the lower four are the type.
        defined: 1 for each symbol with a section (st_shndx), 0 for each undefined one.
    """

    names: list[int]
    info: bytes
    defined: bytes

    def exported(self, bindings: bytes) -> Iterator[int]:
        """Yield st_name of the defined symbols whose ``st_info`` has a 1 in ``bindings`` (256 bytes)."""
        return compress(self.names, both(self.defined, self.info.translate(bindings)))

    def undefined(self) -> list[int]:
        """Return the indices of the undefined symbols, the null entry left out."""
        return positions(self.defined, 0)[1:]


#: For `Columns.exported`: everything that is not local.
NOT_LOCAL = bytes(value > 15 for value in range(256))


def both(left: bytes, right: bytes) -> bytes:
    """Return the positions that are 1 in both masks, as a mask."""
    common = int.from_bytes(left, "little") & int.from_bytes(right, "little")
    return common.to_bytes(len(left), "little")


def positions(mask: bytes, value: int) -> list[int]:
    """Return where ``value`` is in a mask."""
    found = []
    at = mask.find(value)
    while at >= 0:
        found.append(at)
        at = mask.find(value, at + 1)
    return found


class DynamicSymbol(NamedTuple):
    """One entry of the dynamic symbol table, with everything that it says.

    Attributes:
        position: its place in the table.
        name: its name.
        binding: how it binds.
        type: STT_* by number: 0 untyped, 1 object, 2 function, 6 thread-local, 10 indirect function.
        defined: whether this file defines it.
        value: its address in the file, or its alignment or offset for special kinds.
        size: bytes; 0 if it isn't known.
    """

    position: int
    name: str
    binding: Binding
    type: int
    defined: bool
    value: int
    size: int


def binding_name(info: int) -> Binding:
    """Name the binding in an ``st_info``."""
    return BINDINGS.get(info >> 4, "other")


def info_offset(layout: elf.Layout) -> int:
    """Return where st_info is in an entry; st_name is at its beginning."""
    return 4 if layout.bits == 64 else 12


_NOT_ZERO = bytes(value > 0 for value in range(256))


def read_columns(raw: bytes, layout: elf.Layout) -> Columns:
    """Split the bytes of a symbol table, whole entries, into columns."""
    step = layout.symbol.size
    info_at = info_offset(layout)
    section_at = info_at + 2
    # A section number is not zero if one of its two bytes isn't.
    low, high = raw[section_at::step], raw[section_at + 1 :: step]
    either = int.from_bytes(low, "little") | int.from_bytes(high, "little")
    defined = either.to_bytes(len(low), "little").translate(_NOT_ZERO)
    if layout.byte_order == sys.byteorder:
        names = memoryview(raw).cast("I")[:: step // 4].tolist()
    else:
        names = [row[0] for row in layout.symbol.iter_unpack(raw)]
    return Columns(names, raw[info_at::step], defined)


def read_symbol(raw: bytes, layout: elf.Layout) -> tuple[int, int, int, int, int]:
    """Decode one entry into st_name, st_info, st_shndx, st_value, st_size, whatever the class's order is."""
    if layout.bits == 64:
        name, info, _, section, value, size = layout.symbol.unpack(raw)
    else:
        name, value, size, info, _, section = layout.symbol.unpack(raw)
    return name, info, section, value, size
