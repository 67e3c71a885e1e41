"""The dynamic string table."""

from __future__ import annotations

from aoti_abi.errors import InvalidProgram
from aoti_inspect.text import decode

#: The largest string table that is read, bytes. PyTorch's own, among the largest there are, has 5 MB.
MAX_TABLE = 1 << 26
#: The longest string. Mangled names of deeply nested templates reach some 10 kB.
MAX_STRING = 1 << 16


class StringTable:
    """DT_STRTAB's bytes, whole: names are read from it by offset.

    A linker stores each name once, so all the names of a file together are about as long as the table. A file
    whose entries all point at overlapping long strings would make a reader work for hours; reading stops with
    InvalidProgram when it has gone over the table sixteen times.
    """

    def __init__(self, data: bytes) -> None:
        self.data = data
        self._budget = 16 * len(data) + (1 << 20)

    def raw(self, offset: int) -> bytes | None:
        """Return the string at ``offset`` without its NUL; None if it isn't inside the table, or too long.

        Raises:
            InvalidProgram: strings overlap so much that reading them does not end in reasonable time.
        """
        data = self.data
        if not 0 <= offset < len(data):
            return None
        end = data.find(b"\0", offset, offset + MAX_STRING)
        self._budget -= end - offset if end >= 0 else MAX_STRING
        if self._budget < 0:
            raise InvalidProgram(
                "the names in the dynamic string table overlap each other without end",
                hint="no linker writes this; the file was made to keep a reader busy",
            )
        return None if end < 0 else data[offset:end]

    def text(self, offset: int) -> str | None:
        """Return the string at ``offset`` as text; None and errors as in `raw`."""
        raw = self.raw(offset)
        return None if raw is None else decode(raw)
