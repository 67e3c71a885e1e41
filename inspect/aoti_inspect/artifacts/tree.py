"""A package's members by name, whether they lie in a zip archive or in a folder that one was unpacked to."""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING, Protocol

from aoti_abi.errors import AccessFailed, AotiError, InvalidState, NotFound, NotSupported
from aoti_inspect.artifacts.anomaly import Anomaly
from aoti_inspect.artifacts.mapped import MappedFile
from aoti_inspect.artifacts.weights import Location
from aoti_inspect.artifacts.zip_archive import ZipArchive

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aoti_inspect.artifacts.mapped import Source

#: A folder with more files, or nested more deeply, is not an unpacked package.
_MAX_FILES = 20_000
_MAX_DEPTH = 8


class Tree(Protocol):
    """Members by their name relative to the package, with ``/`` between folders."""

    name: str
    anomalies: tuple[Anomaly, ...]

    def names(self) -> list[str]:
        """Return the members' names."""
        ...

    def size(self, member: str) -> int:
        """Return a member's declared size."""
        ...

    def read(self, member: str, limit: int | None = None, *, verify: bool | None = None) -> memoryview:
        """Return a member's bytes, refusing more than ``limit``; ``verify`` as `ZipArchive.read`."""
        ...

    def pieces(self, member: str, size: int) -> Iterator[memoryview | bytes]:
        """Yield a member's bytes, ``size`` at a time, holding no more of them."""
        ...

    def location(self, member: str) -> Location | None:
        """Return where a member's bytes lie in a file, or None."""
        ...

    def label(self, member: str) -> str:
        """Return what reports call a member."""
        ...


class ZipTree:
    """The members of a zip archive.

    Args:
        view: the archive.
        name: what to call it.
        path: the file that it lies in, at ``base``, so that members can be located there; None if in none.
        base: where the archive starts in that file, bytes.
    """

    def __init__(self, view: memoryview, name: str, *, path: str | None, base: int = 0) -> None:
        self.name = name
        self._archive = ZipArchive(view, name)
        self._path = path
        self._base = base
        self.anomalies = self._archive.directory.anomalies

    def names(self) -> list[str]:
        """Return the members' names in the archive's order."""
        return self._archive.names()

    def size(self, member: str) -> int:
        """Return a member's declared size."""
        return self._archive.member(member).size

    def read(self, member: str, limit: int | None = None, *, verify: bool | None = None) -> memoryview:
        """Return a member's bytes; see `ZipArchive.read` for the errors."""
        return self._archive.read(member, limit=limit, verify=verify)

    def pieces(self, member: str, size: int) -> Iterator[memoryview | bytes]:
        """Yield a member's bytes, ``size`` at a time; see `ZipArchive.pieces`."""
        return self._archive.pieces(member, size)

    def location(self, member: str) -> Location | None:
        """Return where a stored member lies in the file; None if it is compressed or can't be read."""
        if self._path is None:
            return None
        try:
            offset = self._archive.offset(member)
        except AotiError:
            return None
        return None if offset is None else Location(self._path, self._base + offset, self.size(member))

    def label(self, member: str) -> str:
        """Return what reports call a member."""
        return f"{self.name}!{member}"


class FolderTree:
    """The files below a folder. Links are not followed, whatever they lead to.

    Raises:
        AccessFailed: the folder can't be listed.
        NotSupported: it holds far more than a package does.
    """

    def __init__(self, path: str) -> None:
        self.name = path
        # A folder has no bytes of its own.
        self.view: memoryview = memoryview(b"")
        self.place: Location | None = None
        self._sizes: dict[str, int] = {}
        self._links: list[str] = []
        self._open: dict[str, Source] = {}
        self._closed = False
        self._walk(path, "", 0)
        self.anomalies: tuple[Anomaly, ...] = ()
        if self._links:
            message = f"{len(self._links)} symbolic links are not followed: {', '.join(self._links[:3])}"
            self.anomalies = (Anomaly("link-in-folder", message, tuple(self._links)),)

    def _walk(self, folder: str, prefix: str, depth: int) -> None:
        if depth > _MAX_DEPTH:
            return
        try:
            with os.scandir(folder) as entries:
                listed = sorted(entries, key=lambda entry: entry.name)
            for entry in listed:
                name = f"{prefix}{entry.name}"
                if entry.is_symlink():
                    self._links.append(name)
                elif entry.is_dir(follow_symlinks=False):
                    self._walk(entry.path, f"{name}/", depth + 1)
                elif stat.S_ISREG((status := entry.stat(follow_symlinks=False)).st_mode):
                    self._sizes[name] = status.st_size
                if len(self._sizes) + len(self._links) > _MAX_FILES:
                    raise NotSupported(
                        f"the folder holds over {_MAX_FILES} files",
                        path=self.name,
                        hint="name the package in it",
                    )
        except OSError as error:
            raise AccessFailed("the folder can't be listed", path=folder, cause=error.strerror) from None

    def names(self) -> list[str]:
        """Return the files' names relative to the folder, sorted."""
        return list(self._sizes)

    def size(self, member: str) -> int:
        """Return a file's size."""
        if member not in self._sizes:
            raise NotFound(f"there is no file {member!r}", path=self.name)
        return self._sizes[member]

    def read(self, member: str, limit: int | None = None, *, verify: bool | None = None) -> memoryview:  # noqa: ARG002 - as the protocol has it
        """Return a file's bytes, mapped; there is no checksum to verify.

        Raises:
            NotSupported: it is larger than ``limit``.
            InvalidState: the artifact was closed.
        """
        if limit is not None and self.size(member) > limit:
            raise NotSupported(
                f"it has {self.size(member)} bytes; the limit for this kind of file is {limit}",
                path=self.label(member),
            )
        if self._closed:
            raise InvalidState("the artifact was closed", hint="read from it before it is closed")
        if member not in self._open:
            self._open[member] = MappedFile(self.label(member))
        return self._open[member].view[:]

    def pieces(self, member: str, size: int) -> Iterator[memoryview | bytes]:
        """Yield a file's bytes, ``size`` at a time; the errors are those of `read`."""
        view = self.read(member)
        return (view[start : start + size] for start in range(0, len(view), size))

    def location(self, member: str) -> Location | None:
        """Return the file itself."""
        return Location(self.label(member), 0, self.size(member))

    def label(self, member: str) -> str:
        """Return the file's path."""
        return os.path.join(self.name, *member.split("/"))

    def close(self) -> None:
        """Give the mappings back."""
        for source in self._open.values():
            source.close()
        self._open.clear()
        self._closed = True
