"""Reading FlatBuffers from untrusted bytes.

The ``flatbuffers`` package for Python has accessors but no verifier: a damaged offset makes it read
elsewhere, raise ``struct.error``, or follow the same bytes forever. `CheckedTable` checks each offset
before the package follows it, and a budget, shared by all tables of one buffer and proportional to its
size, ends any structure that refers to the same bytes again and again.

Layout (FlatBuffers "Internals"): a table starts with the signed distance back to its vtable; a vtable is its
own size and the table's (u16 each), then one u16 per field, the field's place in the table or 0. Tables,
vectors and strings are referred to by an unsigned distance from the reference itself; vectors and strings
start with their length.
"""

from __future__ import annotations

import struct

from aoti_abi.errors import InvalidProgram, NotSupported
from aoti_abi.records import TYPE_CHECKING
from aoti_inspect.text import decode

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

#: A name or an identifier that is longer is not one.
MAX_STRING = 1 << 20
#: Bytes that may be visited per byte of the buffer: strings and tables may be shared, but not that often.
_VISITS = 4
_VISITS_AT_LEAST = 1 << 16
#: Offsets between tables and their vtables are signed 32 bit numbers.
_LARGEST = (1 << 31) - 1


class Buffer:
    """One FlatBuffers buffer.

    Attributes:
        name: what to call it in messages.
        view: its bytes.
    """

    def __init__(self, view: memoryview, name: str) -> None:
        self.name = name
        self.view = view[:_LARGEST]
        self.size = len(self.view)
        self._left = self.size * _VISITS + _VISITS_AT_LEAST
        self._table, self._flags = _accessors()

    def root(self) -> CheckedTable:
        """Return the table that the buffer is about.

        Raises:
            InvalidProgram: the buffer is too short, or the table lies outside of it.
        """
        self.check(0, 8, "root")
        return self.table_at(int.from_bytes(self.view[:4], "little"), "root")

    def table_at(self, position: int, what: str) -> CheckedTable:
        """Return the table at a position, after checking it and its vtable."""
        self.check(position, 4, what)
        vtable = position - int.from_bytes(self.view[position : position + 4], "little", signed=True)
        self.check(vtable, 4, f"vtable of {what}")
        vtable_size, table_size = struct.unpack_from("<HH", self.view, vtable)
        if vtable_size < 4 or vtable_size % 2 or table_size < 4:
            raise self.damaged(f"the vtable of {what} has impossible sizes {vtable_size} and {table_size}")
        self.check(vtable, vtable_size, f"vtable of {what}")
        self.check(position, table_size, what)
        return CheckedTable(self, self._table(self.view, position), table_size, what)

    def check(self, position: int, length: int, what: str) -> None:
        """Raise unless the range lies in the buffer; count it as visited."""
        if position < 0 or position + length > self.size:
            raise self.damaged(f"{what} would be at bytes {position} to {position + length} of {self.size}")
        self._left -= length
        if self._left < 0:
            raise self.damaged("it refers to the same bytes over and over")

    def damaged(self, why: str) -> InvalidProgram:
        """Return the error for a structure that can't be."""
        return InvalidProgram(
            f"the file's structure is damaged: {why}", path=self.name, hint="copy or export the file again"
        )


class CheckedTable:
    """One table whose own bytes and vtable are known to lie in the buffer.

    Fields are named by their slot, counted from 0 in the order of the schema; absent ones give the default.
    """

    __slots__ = ("_buffer", "_size", "_table", "_what")

    def __init__(self, buffer: Buffer, table: Any, size: int, what: str) -> None:
        self._buffer = buffer
        self._table = table
        self._size = size
        self._what = what

    def has(self, slot: int) -> bool:
        """Return whether the field is present."""
        return bool(self._table.Offset(4 + 2 * slot))

    def integer(self, slot: int, kind: str, default: int = 0) -> int:
        """Return an integer field; ``kind`` is "u8", "i8", "u32", "i32", "u64" or "i64"."""
        flags = self._buffer._flags[kind]  # noqa: SLF001 - one class in two parts
        position = self._field(slot, flags.bytewidth)
        return default if position is None else int(self._table.Get(flags, position))

    def table(self, slot: int, what: str) -> CheckedTable | None:
        """Return the table that a field refers to, or None."""
        position = self._reference(slot, what)
        return None if position is None else self._buffer.table_at(position, what)

    def text(self, slot: int, what: str) -> str | None:
        """Return a string field, or None; bytes that are not UTF-8 become lone surrogates."""
        position = self._reference(slot, what)
        if position is None:
            return None
        start, length = self._vector_at(position, 1, what)
        if length > MAX_STRING:
            raise self._buffer.damaged(f"{what} has {length} bytes, more than a name has")
        return decode(bytes(self._buffer.view[start : start + length]))

    def length(self, slot: int, what: str) -> int:
        """Return how many elements a vector field has, 0 if it is absent."""
        position = self._reference(slot, what)
        return 0 if position is None else self._vector_at(position, 0, what)[1]

    def octets(self, slot: int, what: str) -> memoryview | None:
        """Return a vector of bytes without copying it, or None; large ones don't count as visited."""
        position = self._reference(slot, what)
        if position is None:
            return None
        start, length = self._vector_at(position, 0, what)
        if start + length > self._buffer.size:
            raise self._buffer.damaged(f"{what} would end at byte {start + length} of {self._buffer.size}")
        return self._buffer.view[start : start + length]

    def integers(self, slot: int, kind: str, what: str) -> tuple[int, ...]:
        """Return a vector of integers; ``kind`` is "u8", "i32", "i64" or "u64"."""
        position = self._reference(slot, what)
        if position is None:
            return ()
        code = {"u8": "B", "i32": "i", "i64": "q", "u64": "Q"}[kind]
        start, length = self._vector_at(position, struct.calcsize(f"<{code}"), what)
        return struct.unpack_from(f"<{length}{code}", self._buffer.view, start)

    def tables(self, slot: int, what: str) -> Iterator[CheckedTable]:
        """Yield the tables of a vector of tables, each checked when it is reached."""
        position = self._reference(slot, what)
        if position is None:
            return
        start, length = self._vector_at(position, 4, what)
        for index in range(length):
            yield self._element(start + 4 * index, f"{what}[{index}]")

    def table_in(self, slot: int, index: int, what: str) -> CheckedTable | None:
        """Return one table of a vector of tables, or None if there are not that many."""
        position = self._reference(slot, what)
        if position is None:
            return None
        start, length = self._vector_at(position, 0, what)
        if not 0 <= index < length:
            return None
        self._buffer.check(start + 4 * index, 4, f"{what}[{index}]")
        return self._element(start + 4 * index, f"{what}[{index}]")

    def _element(self, position: int, what: str) -> CheckedTable:
        return self._buffer.table_at(self._table.Indirect(position), what)

    def _field(self, slot: int, width: int) -> int | None:
        offset = self._table.Offset(4 + 2 * slot)
        if not offset:
            return None
        if offset + width > self._size:
            raise self._buffer.damaged(f"field {slot} of {self._what} lies past the end of its table")
        return int(self._table.Pos) + int(offset)

    def _reference(self, slot: int, what: str) -> int | None:
        position = self._field(slot, 4)
        if position is None:
            return None
        target = int(self._table.Indirect(position))
        if target == position:
            raise self._buffer.damaged(f"{what} refers to itself")
        return target

    def _vector_at(self, position: int, width: int, what: str) -> tuple[int, int]:
        self._buffer.check(position, 4, what)
        length = int.from_bytes(self._buffer.view[position : position + 4], "little")
        self._buffer.check(position + 4, length * width, what)
        return position + 4, length


def _accessors() -> tuple[Any, dict[str, Any]]:
    """Return the package's ``Table`` and its integer types, without the numpy that the package imports.

    ``flatbuffers`` imports numpy wherever that is installed, for functions that are not used here: 95 ms and
    17 MB, and the inspector has to work beside a broken numpy too. So its modules are loaded a second time
    under another name, in which there is no numpy; the real ``flatbuffers`` of the process stays as it is.
    """
    import sys
    from importlib import import_module
    from importlib.util import find_spec
    from types import ModuleType

    private = "aoti_inspect.artifacts._flatbuffers"
    if private not in sys.modules:
        found = find_spec("flatbuffers")
        if found is None or found.submodule_search_locations is None:
            raise NotSupported(
                "reading .pte and .ptd files takes the flatbuffers package, which is not installed",
                hint="pip install flatbuffers",
            )
        package = ModuleType(private)
        package.__path__ = list(found.submodule_search_locations)
        sys.modules[private] = package
        compat: Any = import_module(f"{private}.compat")
        compat.import_numpy = lambda: None
    types: Any = import_module(f"{private}.number_types")
    names = ("Uint8", "Int8", "Uint16", "Uint32", "Int32", "Uint64", "Int64")
    kinds = ("u8", "i8", "u16", "u32", "i32", "u64", "i64")
    flags = {kind: getattr(types, f"{name}Flags") for kind, name in zip(kinds, names, strict=True)}
    return import_module(f"{private}.table").Table, flags
