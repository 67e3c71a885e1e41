"""Where bytes come from: an open file, a range of one, or memory.

A file is read with ``pread``: pages of a mapping that were touched count as the process's own memory, and a
file that shrinks while it is mapped kills the process with SIGBUS. It is mapped only for who asks for a view:
large weights must not be copied.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod

from aoti_abi.errors import AccessFailed, InvalidArgument, InvalidState, NotFound
from aoti_abi.records import TYPE_CHECKING, NamedTuple
from aoti_inspect.file_kind import describe_mode

if TYPE_CHECKING:
    import mmap
    from types import TracebackType

    from typing_extensions import Self

    from aoti_inspect.budget import Budget

#: How much of a range `Source.find` holds in memory at once, bytes.
_WINDOW = 1 << 20
_SHRUNK = "the file became shorter while it was read"
_WAIT = "wait until whatever writes it is done"


class Location(NamedTuple):
    """Where bytes lie unchanged in a file.

    Attributes:
        path: the file.
        offset, size: bytes.
    """

    path: str
    offset: int
    size: int


class Source(ABC):
    """Random access to bytes; a context manager.

    Attributes:
        name: what to call them in errors: a path, or ``package!member``.
        size: how many there are.
        budget: what reading them may cost, for an audit; None for who reads them whatever it costs. Ranges of
            them, and what is inflated from them, draw on the same.
    """

    name: str
    size: int
    budget: Budget | None = None

    @property
    @abstractmethod
    def location(self) -> Location | None:
        """Where a file has the same bytes; None if none does."""

    @abstractmethod
    def read(self, offset: int, size: int) -> bytes:
        """Return up to ``size`` bytes at ``offset``; outside of the bytes there are fewer.

        Raises:
            AccessFailed: the system reports an error, or the file became shorter since it was opened.
            InvalidState: it was closed.
        """

    @abstractmethod
    def view(self) -> memoryview:
        """Return all bytes without a copy; the view stays valid after `close`.

        A file is mapped for it: one that shrinks while the view is read kills the process.

        Raises:
            AccessFailed, InvalidState: as `read`.
        """

    @abstractmethod
    def part(self, offset: int, size: int, name: str) -> Source:
        """Return a range, which lies within the bytes, as a source; it is closed together with this one."""

    @abstractmethod
    def close(self) -> None:
        """Give the file back. May be called twice."""

    def verify_unchanged(self) -> None:  # noqa: B027 - what is in memory does not change
        """Raise AccessFailed if the file of this name is not the one that was opened, or was written to."""

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

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class BufferSource(Source):
    """Bytes in memory."""

    def __init__(
        self, data: bytes | bytearray | memoryview, name: str = "", location: Location | None = None
    ) -> None:
        self.name = name
        self._view: memoryview | None = memoryview(data).toreadonly().cast("B")
        self._location = location
        self.size = self._view.nbytes

    @property
    def location(self) -> Location | None:
        """Where a file has the same bytes, as the maker of this source said."""
        return self._location

    def read(self, offset: int, size: int) -> bytes:
        """Return a copy of up to ``size`` bytes at ``offset``."""
        if offset < 0 or size <= 0:
            return b""
        return bytes(self.view()[offset : offset + size])

    def view(self) -> memoryview:
        """Return the bytes themselves."""
        if self._view is None:
            raise _closed(self.name)
        return self._view

    def part(self, offset: int, size: int, name: str) -> BufferSource:
        """Return a range of the bytes."""
        place = self._location
        found = BufferSource(
            self.view()[offset : offset + size],
            name,
            None if place is None else Location(place.path, place.offset + offset, size),
        )
        found.budget = self.budget
        return found

    def close(self) -> None:
        """Let go of the bytes."""
        self._view = None


class _OpenFile:
    """A descriptor, and the mapping of its file once somebody wanted a view."""

    def __init__(self, path: str, descriptor: int, status: os.stat_result) -> None:
        self.path = path
        self.descriptor = descriptor
        self.size = status.st_size
        self.identity = _identity(status)
        self._map: mmap.mmap | None = None

    def view(self) -> memoryview:
        if not self.size:
            return memoryview(b"")
        if self._map is None:
            import mmap

            try:
                self._map = mmap.mmap(self.descriptor, self.size, access=mmap.ACCESS_READ)
            except ValueError:  # its length is more than the file's
                raise AccessFailed(_SHRUNK, path=self.path, hint=_WAIT) from None
            except OSError as error:
                raise AccessFailed("cannot map", path=self.path, cause=error.strerror) from error
        return memoryview(self._map)

    def close(self) -> None:
        if self.descriptor >= 0:
            os.close(self.descriptor)
        self.descriptor = -1
        # The mapping goes when the last view of it does.
        self._map = None


class FileSource(Source):
    """An open file, or a range of one: a stored member of an archive is read in place.

    `open_file` makes the one of a whole file, which owns the descriptor; `part` those of ranges.
    """

    def __init__(self, file: _OpenFile, start: int, size: int, name: str) -> None:
        self.name = name
        self.size = size
        self._file = file
        self._start = start

    @property
    def location(self) -> Location:
        """The range of the file."""
        return Location(self._file.path, self._start, self.size)

    def read(self, offset: int, size: int) -> bytes:
        """Return up to ``size`` bytes at ``offset``; see `Source.read`."""
        descriptor = self._descriptor()
        wanted = min(size, self.size - offset)
        if offset < 0 or wanted <= 0:
            return b""
        try:
            data = os.pread(descriptor, wanted, self._start + offset)
            while len(data) < wanted:
                more = os.pread(descriptor, wanted - len(data), self._start + offset + len(data))
                if not more:
                    break
                data += more
        except OSError as error:
            raise AccessFailed("cannot read", path=self.name, cause=error.strerror) from error
        if len(data) < wanted:
            raise AccessFailed(_SHRUNK, path=self.name, hint=_WAIT)
        return data

    def view(self) -> memoryview:
        """Map the file, if it is not yet, and return this range of it."""
        self._descriptor()
        return self._file.view()[self._start : self._start + self.size]

    def part(self, offset: int, size: int, name: str) -> FileSource:
        """Return a range of the same open file."""
        self._descriptor()
        found = _Range(self._file, self._start + offset, size, name)
        found.budget = self.budget
        return found

    def verify_unchanged(self) -> None:
        """Compare the file of this name with the one that was opened: device, inode, size, time."""
        path = self._file.path
        try:
            now = _identity(os.stat(path))
        except OSError as error:
            raise AccessFailed(
                "the file was removed while it was read", path=path, cause=error.strerror
            ) from error
        if now != self._file.identity:
            raise AccessFailed("the file was replaced while it was read", path=path, hint=_WAIT)

    def close(self) -> None:
        """Close the file; what was read of it and views stay valid."""
        self._file.close()

    def _descriptor(self) -> int:
        if self._file.descriptor < 0:
            raise _closed(self.name)
        return self._file.descriptor


class _Range(FileSource):
    """A range of a file that someone else closes."""

    def close(self) -> None:
        """Do nothing: the file is not this source's own."""


def open_file(path: str) -> FileSource:
    """Open a regular file for reading, as everything that the toolkit reads is opened.

    Raises:
        NotFound: there is no such file.
        AccessFailed: the system refuses to open it.
        InvalidArgument: it is a directory, a pipe, a device or a socket.
    """
    try:
        # O_NONBLOCK: a pipe without a writer must not hang us before its kind is known.
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise NotFound("no such file", path=path, cause=error.strerror) from error
    except OSError as error:
        raise AccessFailed("cannot open", path=path, cause=error.strerror) from error
    except ValueError as error:
        raise NotFound("no file can have this name", path=path, cause=str(error)) from error
    status = os.fstat(descriptor)
    kind = describe_mode(status.st_mode)
    if kind is not None:
        os.close(descriptor)
        raise InvalidArgument(f"not a regular file: this is {kind.what}", path=path, hint=kind.hint)
    return FileSource(_OpenFile(path, descriptor, status), 0, status.st_size, path)


def _closed(name: str) -> InvalidState:
    return InvalidState("the artifact was closed", path=name or None, hint="read from it before it is closed")


def _identity(status: os.stat_result) -> tuple[int, int, int, int]:
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns
