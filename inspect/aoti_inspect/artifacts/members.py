"""The members of a package by name, in a zip archive or in a folder that one was unpacked to.

Both are `aoti_inspect.artifacts.sidecars.Neighbours`, and can list what they hold.
"""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING, Protocol

from aoti_abi.errors import AccessFailed, AotiError, InvalidState, NotFound, NotSupported
from aoti_inspect.artifacts.package_fact import PackageFact
from aoti_inspect.artifacts.sidecars import read_file
from aoti_inspect.artifacts.zip_archive import ZipArchive
from aoti_inspect.source import Location, open_file

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aoti_inspect.artifacts.sidecars import Neighbours
    from aoti_inspect.budget import Budget
    from aoti_inspect.source import Source

    class Members(Neighbours, Protocol):
        """Members by their name relative to the package, with ``/`` between folders."""

        name: str
        facts: tuple[PackageFact, ...]
        budget: Budget | None

        def names(self) -> list[str]:
            """Return the members' names."""
            ...

        def pieces(self, name: str, size: int) -> Iterator[bytes]:
            """Yield a member's bytes, ``size`` at a time, holding no more of them."""
            ...

        def close(self) -> None:
            """Give the files back."""
            ...


#: A folder with more files, or nested more deeply, is not an unpacked package.
_MAX_FILES = 20_000
_MAX_DEPTH = 8
#: What it costs to look at a member at all, steps.
_STEPS_PER_MEMBER = 25
#: Bytes of JSON that are parsed in one step.
_PARSED_IN_A_STEP = 20


def charge_parsing(budget: Budget, size: int) -> None:
    """Charge what is about to be parsed.

    Raises:
        TooComplex: the allowance is used up.
    """
    budget.spend(size // _PARSED_IN_A_STEP, "parsing the JSON beside its plugins")


def _in_folder_of(name: str, names: list[str]) -> list[str]:
    """Return those of the names that are in the same folder, sorted."""
    folder = name.rpartition("/")[0]
    return sorted(other for other in names if other.rpartition("/")[0] == folder)


class ZipMembers:
    """The members of a zip archive, which is closed with them."""

    def __init__(self, source: Source) -> None:
        self.name = source.name
        self.budget = source.budget
        self._source = source
        self._archive = ZipArchive(source)
        self.facts = self._archive.directory.facts

    def names(self) -> list[str]:
        """Return the members' names in the archive's order."""
        return self._archive.names()

    def has(self, name: str) -> bool:
        """Whether there is a member of this name."""
        return name in self._archive

    def beside(self, name: str) -> list[str]:
        """Return the members in the same folder, sorted."""
        return _in_folder_of(name, self.names())

    def size(self, name: str) -> int:
        """Return a member's declared size."""
        return self._archive.member(name).size

    def read(self, name: str, limit: int | None = None, *, verify: bool | None = None) -> memoryview:
        """Return a member's bytes; see `ZipArchive.read` for the errors."""
        if limit is not None and self.budget is not None and name in self._archive:
            charge_parsing(self.budget, min(self.size(name), limit))
        return self._archive.read(name, limit=limit, verify=verify)

    def open(self, name: str, *, verify: bool = False) -> Source:
        """Return a member's bytes as a source; see `ZipArchive.open` for the errors."""
        if self.budget is not None:
            self.budget.spend(_STEPS_PER_MEMBER, "opening its members")
        return self._archive.open(name, verify=verify)

    def pieces(self, name: str, size: int) -> Iterator[bytes]:
        """Yield a member's bytes, ``size`` at a time; see `ZipArchive.pieces`."""
        if self.budget is not None:
            self.budget.spend(_STEPS_PER_MEMBER, "looking at its members")
        return self._archive.pieces(name, size)

    def location(self, name: str) -> Location | None:
        """Return where a stored member lies in the file; None if it is compressed or can't be read."""
        try:
            return self._archive.location(name)
        except AotiError:
            return None

    def label(self, name: str) -> str:
        """Return what reports call a member."""
        return f"{self.name}!{name}"

    def close(self) -> None:
        """Give the archive back."""
        self._source.close()


class FolderMembers:
    """The files below a folder. Links are not followed, whatever they lead to.

    Raises:
        AccessFailed: the folder can't be listed.
        NotSupported: it holds far more than a package does.
    """

    def __init__(self, path: str, budget: Budget | None = None) -> None:
        self.name = path
        self.budget = budget
        self._sizes: dict[str, int] = {}
        self._links: list[str] = []
        self._closed = False
        self._walk(path, "", 0)
        self.facts: tuple[PackageFact, ...] = ()
        if self._links:
            self.facts = (PackageFact("links", tuple(self._links)),)

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

    def has(self, name: str) -> bool:
        """Whether there is a file of this name."""
        return name in self._sizes

    def beside(self, name: str) -> list[str]:
        """Return the files in the same folder, sorted."""
        return _in_folder_of(name, self.names())

    def size(self, name: str) -> int:
        """Return a file's size."""
        if name not in self._sizes:
            raise NotFound("no such file", path=self.label(name))
        return self._sizes[name]

    def read(self, name: str, limit: int | None = None, *, verify: bool | None = None) -> memoryview:  # noqa: ARG002 - as the protocol has it
        """Return a file's bytes; there is no checksum to verify. See `read_file` for the errors.

        Raises:
            InvalidState: the artifact was closed.
        """
        self._check(name)
        if limit is not None and self.budget is not None:
            charge_parsing(self.budget, min(self.size(name), limit))
        return read_file(self.label(name), limit)

    def open(self, name: str, *, verify: bool = False) -> Source:  # noqa: ARG002 - as the protocol has it
        """Open a file; see `open_file` for the errors.

        Raises:
            InvalidState: the artifact was closed.
        """
        self._check(name)
        source = open_file(self.label(name))
        source.budget = self.budget
        return source

    def pieces(self, name: str, size: int) -> Iterator[bytes]:
        """Yield a file's bytes, ``size`` at a time; the errors are those of `open`."""
        with self.open(name) as source:
            for start in range(0, source.size, size):
                if self.budget is not None:
                    self.budget.spend_bytes(min(size, source.size - start), "searching its members")
                yield source.read(start, size)

    def location(self, name: str) -> Location | None:
        """Return the file itself."""
        return Location(self.label(name), 0, self.size(name))

    def label(self, name: str) -> str:
        """Return the file's path."""
        return os.path.join(self.name, *name.split("/"))

    def close(self) -> None:
        """Refuse to open more."""
        self._closed = True

    def _check(self, name: str) -> None:
        if self._closed:
            raise InvalidState("the artifact was closed", hint="read from it before it is closed")
        self.size(name)
