"""Where the bytes come from: a buffer in memory, or an open file.

A file is read with ``pread`` and not mapped: pages of a mapping that were touched count as the process's own
memory, and a file that shrinks while it is mapped kills the process with SIGBUS.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod

from aoti_abi.errors import AccessFailed

#: How much of a range `find` holds in memory at once, bytes.
_WINDOW = 1 << 20


class Source(ABC):
    """Random access to ``size`` bytes. Reading outside of them gives fewer bytes, never an exception."""

    size: int

    @abstractmethod
    def read(self, offset: int, size: int) -> bytes:
        """Return up to ``size`` bytes at ``offset``."""

    def find(self, pattern: bytes, start: int, end: int) -> int:
        """Return the offset of the first ``pattern`` that lies within [start, end), or -1."""
        end = min(end, self.size)
        overlap = len(pattern) - 1
        while start + len(pattern) <= end:
            window = self.read(start, min(_WINDOW + overlap, end - start))
            found = window.find(pattern)
            if found >= 0:
                return start + found
            start += _WINDOW
        return -1


class BufferSource(Source):
    """Bytes in memory."""

    def __init__(self, data: bytes | bytearray | memoryview) -> None:
        self._view = memoryview(data).cast("B")
        self.size = self._view.nbytes

    def read(self, offset: int, size: int) -> bytes:
        """Return a copy of up to ``size`` bytes at ``offset``."""
        if offset < 0 or size <= 0:
            return b""
        return bytes(self._view[offset : offset + size])


class FileSource(Source):
    """A range of an open file; whoever opened it closes it.

    Args:
        descriptor: an open file descriptor of something seekable.
        size: bytes of the range.
        start: where the range begins in the file: a stored member of an archive is read in place.
        name: what to call the file in errors.
    """

    def __init__(self, descriptor: int, size: int, *, start: int = 0, name: str) -> None:
        self._descriptor = descriptor
        self._start = start
        self._name = name
        self.size = size

    def read(self, offset: int, size: int) -> bytes:
        """Return up to ``size`` bytes at ``offset``.

        Raises:
            AccessFailed: the system reports an error, or the file became shorter since it was opened.
        """
        wanted = min(size, self.size - offset)
        if offset < 0 or wanted <= 0:
            return b""
        try:
            data = os.pread(self._descriptor, wanted, self._start + offset)
            while len(data) < wanted:
                more = os.pread(self._descriptor, wanted - len(data), self._start + offset + len(data))
                if not more:
                    break
                data += more
        except OSError as error:
            raise AccessFailed("cannot read", path=self._name, cause=error.strerror) from error
        if len(data) < wanted:
            raise AccessFailed(
                "the file became shorter while it was read",
                path=self._name,
                hint="wait until whatever writes it is done",
            )
        return data
