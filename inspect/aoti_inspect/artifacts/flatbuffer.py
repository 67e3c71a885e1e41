"""Reading FlatBuffers from untrusted bytes.

FlatBuffers for Python has accessors but no verifier: a damaged offset makes it read elsewhere, raise
``struct.error``, or follow the same bytes forever. Here each offset is checked before it is followed, and a
budget, shared by all tables of one buffer and proportional to its size, ends any structure that refers to the
same bytes again and again.

Layout (FlatBuffers "Internals"): a table starts with the signed distance back to its vtable; a vtable is its
own size and the table's (u16 each), then one u16 per field, the field's place in the table or 0. Tables,
vectors and strings are referred to by an unsigned distance from the reference itself; vectors and strings
start with their length. All numbers are little-endian.
"""

from __future__ import annotations

import struct

from aoti_abi.errors import InvalidProgram
from aoti_abi.records import TYPE_CHECKING
from aoti_inspect.text import decode

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Literal

    Kind = Literal["u8", "i8", "u32", "i32", "u64", "i64"]

#: A name or an identifier that is longer is not one.
MAX_STRING = 1 << 20
#: Bytes that may be visited per byte of the buffer: strings and tables may be shared, but not that often.
_VISITS = 4
_VISITS_AT_LEAST = 1 << 16
#: Offsets between tables and their vtables are signed 32 bit numbers.
_LARGEST = (1 << 31) - 1
#: How `struct` spells the integers of a schema.
_CODES = {"u8": "B", "i8": "b", "u32": "I", "i32": "i", "u64": "Q", "i64": "q"}


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

    def root(self) -> CheckedTable:
        """Return the table that the buffer is about.

        Raises:
            InvalidProgram: the buffer is too short, or the table lies outside of it.
        """
        self.check(0, 8, "root")
        return self.table_at(self.distance(0), "root")

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
        return CheckedTable(self, position, table_size, self.view[vtable : vtable + vtable_size], what)

    def distance(self, position: int) -> int:
        """Return the unsigned distance, or the length, that stands at a position that was checked."""
        return int.from_bytes(self.view[position : position + 4], "little")

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

    __slots__ = ("_buffer", "_position", "_size", "_vtable", "_what")

    def __init__(self, buffer: Buffer, position: int, size: int, vtable: memoryview, what: str) -> None:
        self._buffer = buffer
        self._position = position
        self._size = size
        self._vtable = vtable
        self._what = what

    def has(self, slot: int) -> bool:
        """Return whether the field is present."""
        return self._offset(slot) != 0

    def integer(self, slot: int, kind: Kind, default: int = 0) -> int:
        """Return an integer field."""
        layout = f"<{_CODES[kind]}"
        position = self._field(slot, struct.calcsize(layout))
        if position is None:
            return default
        (value,) = struct.unpack_from(layout, self._buffer.view, position)
        return int(value)

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

    def integers(self, slot: int, kind: Kind, what: str) -> tuple[int, ...]:
        """Return a vector of integers, empty if it is absent."""
        position = self._reference(slot, what)
        if position is None:
            return ()
        code = _CODES[kind]
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
        return self._buffer.table_at(position + self._buffer.distance(position), what)

    def _offset(self, slot: int) -> int:
        """Return the field's place in the table; 0 if it is absent: a vtable may end before its slot."""
        entry = 4 + 2 * slot
        return int.from_bytes(self._vtable[entry : entry + 2], "little")

    def _field(self, slot: int, width: int) -> int | None:
        offset = self._offset(slot)
        if not offset:
            return None
        if offset + width > self._size:
            raise self._buffer.damaged(f"field {slot} of {self._what} lies past the end of its table")
        return self._position + offset

    def _reference(self, slot: int, what: str) -> int | None:
        position = self._field(slot, 4)
        if position is None:
            return None
        distance = self._buffer.distance(position)
        if not distance:
            raise self._buffer.damaged(f"{what} refers to itself")
        return position + distance

    def _vector_at(self, position: int, width: int, what: str) -> tuple[int, int]:
        self._buffer.check(position, 4, what)
        length = self._buffer.distance(position)
        self._buffer.check(position + 4, length * width, what)
        return position + 4, length
