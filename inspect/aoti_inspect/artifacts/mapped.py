"""Files as read-only memory: mapped, never copied, never extracted."""

from __future__ import annotations

import contextlib
import mmap
import os
import stat
from typing import Protocol

from aoti_abi.errors import AccessFailed, NotFound
from aoti_inspect.artifacts.weights import Location


class Source(Protocol):
    """Bytes that stay valid until `close`."""

    name: str
    view: memoryview
    place: Location | None

    def close(self) -> None:
        """Give the bytes back; may be called twice."""


class MappedFile:
    """A regular file, mapped read-only.

    Nothing is read before it is looked at, so a file of any size costs only the pages that are touched. Views
    may outlive `close`: the mapping then goes away with the last of them.

    Attributes:
        name: the path, as given.
        view: the file's bytes.
        place: the whole file.
    """

    def __init__(self, path: str) -> None:
        self.name = path
        self._map: mmap.mmap | None = None
        # O_NONBLOCK: opening a FIFO without a writer would wait for one.
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except (FileNotFoundError, NotADirectoryError):
            raise NotFound("there is no such file", path=path) from None
        except (OSError, ValueError) as error:
            raise AccessFailed("the file can't be opened", path=path, cause=str(error)) from None
        try:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                raise AccessFailed(
                    "this is not a regular file", path=path, hint="copy its content to a file first"
                )
            if status.st_size:
                self._map = mmap.mmap(descriptor, status.st_size, access=mmap.ACCESS_READ)
        except (OSError, ValueError) as error:
            raise AccessFailed("the file can't be mapped", path=path, cause=str(error)) from None
        finally:
            os.close(descriptor)
        self.view = memoryview(self._map) if self._map is not None else memoryview(b"")
        self.place: Location | None = Location(path, 0, len(self.view))

    def close(self) -> None:
        """Give the mapping back, now or when the last view of it goes. May be called twice."""
        self.view.release()
        if self._map is not None:
            with contextlib.suppress(BufferError):  # views are still out
                self._map.close()
            self._map = None


class MemorySource:
    """Bytes that are already in memory: what a caller read, or a member of an archive.

    Attributes:
        name: what to call them.
        view: the bytes.
        place: where a file has the same bytes; None if none does.
    """

    def __init__(
        self, name: str, data: bytes | bytearray | memoryview, place: Location | None = None
    ) -> None:
        self.name = name
        self.view = memoryview(data).toreadonly().cast("B")
        self.place = place

    def close(self) -> None:
        """Drop the view; views handed out stay valid."""
        self.view.release()
