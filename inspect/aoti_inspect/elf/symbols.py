"""The dynamic symbol table, in columns.

A table of 75,000 symbols is worked on by slices and comprehensions over whole columns; a record is made only
for a symbol that somebody asks for.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, NamedTuple

from aoti_inspect.elf import format as elf

if TYPE_CHECKING:
    from aoti_inspect.facts import Binding

#: STB_* by number; every other number is "other".
BINDINGS: dict[int, Binding] = {0: "local", 1: "global", 2: "weak", elf.STB_UNIQUE: "unique"}


class Columns(NamedTuple):
    """The table's columns, all of the same length; entry 0 is the null symbol.

    Attributes:
        names: st_name, offsets into DT_STRTAB.
        info: st_info; the upper four bits bind, the lower four are the type.
        sections: st_shndx; 0 is undefined.
    """

    names: list[int]
    info: bytes
    sections: list[int]


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


def read_columns(raw: bytes, layout: elf.Layout) -> Columns:
    """Split the bytes of a symbol table, whole entries, into columns."""
    if layout.bits == 64:
        info, word_step, name_at, half_step, section_at = raw[4::24], 6, 0, 12, 3
    else:
        info, word_step, name_at, half_step, section_at = raw[12::16], 4, 0, 8, 7
    if layout.byte_order == sys.byteorder:
        view = memoryview(raw)
        names = view.cast("I")[name_at::word_step].tolist()
        sections = view.cast("H")[section_at::half_step].tolist()
    elif layout.bits == 64:
        rows = list(layout.symbol.iter_unpack(raw))
        names = [row[0] for row in rows]
        sections = [row[3] for row in rows]
    else:
        rows = list(layout.symbol.iter_unpack(raw))
        names = [row[0] for row in rows]
        sections = [row[5] for row in rows]
    return Columns(names, info, sections)


def read_symbol(raw: bytes, layout: elf.Layout) -> tuple[int, int, int, int, int]:
    """Decode one entry into st_name, st_info, st_shndx, st_value, st_size, whatever the class's order is."""
    if layout.bits == 64:
        name, info, _, section, value, size = layout.symbol.unpack(raw)
    else:
        name, value, size, info, _, section = layout.symbol.unpack(raw)
    return name, info, section, value, size
