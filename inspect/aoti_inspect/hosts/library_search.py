"""Where the dynamic linker would find a library, without running it.

The order is that of ``ld.so(8)``: DT_RPATH of the library that asks and of those that loaded it (unless it
has a DT_RUNPATH), LD_LIBRARY_PATH, DT_RUNPATH of the library that asks, /etc/ld.so.cache, the default
folders. A candidate of another class or machine is passed over, as the linker does.
"""

from __future__ import annotations

import errno
import os
import stat
import struct

from aoti_abi.errors import AccessFailed
from aoti_abi.records import NamedTuple
from aoti_inspect.budget import Budget
from aoti_inspect.elf.header import identify

#: Folders that glibc searches last; multiarch ones first, as Debian's glibc has them.
_DEFAULT_FOLDERS = {
    "x86_64": (
        "/lib/x86_64-linux-gnu",
        "/usr/lib/x86_64-linux-gnu",
        "/lib64",
        "/usr/lib64",
        "/lib",
        "/usr/lib",
    ),
    "aarch64": (
        "/lib/aarch64-linux-gnu",
        "/usr/lib/aarch64-linux-gnu",
        "/lib64",
        "/usr/lib64",
        "/lib",
        "/usr/lib",
    ),
}
_CACHE = "/etc/ld.so.cache"
_CACHE_MAGIC = b"glibc-ld.so.cache1.1"
_OLD_CACHE_MAGIC = b"ld.so-1.7.0"
_CACHE_LIMIT = 64 << 20
_WHAT = "the search for libraries"
#: What it costs to ask the system for a path, steps.
_STEPS_PER_LOOK = 8
_RAISE_LIMIT = "raise the limit of open files (ulimit -n)"


class Found(NamedTuple):
    """A library that was found: where, and by which rule ("DT_RUNPATH", "LD_LIBRARY_PATH", ...)."""

    path: str
    via: str


class Folder(NamedTuple):
    """A folder to search, and by which rule."""

    path: str
    via: str


class LibrarySearch:
    """The search of one process: an environment, a cache, a machine.

    Args:
        machine: the ``e_machine`` that a library must have.
        bits: its class, 32 or 64.
        machine_name: as ``uname -m`` has it; chooses the default folders.
        library_path: the value of LD_LIBRARY_PATH.
        cache: the path of ``ld.so.cache``.
        budget: what the search may cost; by default that of a small file.
    """

    def __init__(
        self,
        machine: int,
        bits: int,
        machine_name: str,
        *,
        library_path: str = "",
        cache: str = _CACHE,
        budget: Budget | None = None,
    ) -> None:
        self._identity = (bits, machine)
        self._library_path = tuple(part or "." for part in library_path.split(":")) if library_path else ()
        self._cache_path = cache
        self._cache: dict[bytes, list[str]] | None = None
        self._budget = budget or Budget(0)
        self._identities: dict[str, tuple[int, int] | None] = {}
        self._defaults = _DEFAULT_FOLDERS.get(machine_name, ("/lib64", "/usr/lib64", "/lib", "/usr/lib"))

    def folders(
        self, *, origin: str, rpaths: tuple[tuple[str, str], ...] = (), runpath: tuple[str, ...] = ()
    ) -> tuple[Folder, ...]:
        """Return the folders in which what one library needs is searched for first, those that are there.

        A folder that is named again has nothing new, and one that is not there has nothing: the dynamic
        linker asks each of them once, too.

        Args:
            origin: the folder of the library that asks, for ``$ORIGIN`` in its DT_RUNPATH.
            rpaths: ``(folder of the owner, entry)`` of the DT_RPATHs that apply, nearest first.
            runpath: entries of the asking library's DT_RUNPATH.

        Raises:
            TooComplex: looking at all of them would cost too much.
        """
        self._budget.spend(len(rpaths) + len(runpath), _WHAT)
        steps: list[tuple[str, str]] = []
        if not runpath:
            steps += [(_expand(entry, owner), "DT_RPATH") for owner, entry in rpaths]
        steps += [(folder, "LD_LIBRARY_PATH") for folder in self._library_path]
        steps += [(_expand(entry, origin), "DT_RUNPATH") for entry in runpath]
        found: dict[tuple[int, int], Folder] = {}
        for folder, via in steps:
            identity = self._identify(folder)
            if identity is not None:
                found.setdefault(identity, Folder(folder, via))
        return tuple(found.values())

    def find(self, name: str, folders: tuple[Folder, ...] = ()) -> Found | None:
        """Return where ``name`` (a DT_NEEDED entry) would be loaded from, or None.

        Args:
            name: the entry; one with a slash is a path, not searched for.
            folders: what `folders` returned for the library that asks.

        Raises:
            TooComplex: the search would cost too much.
            AccessFailed: this process has no file descriptor left to look with.
        """
        if not name:
            return None
        if "/" in name:
            return Found(name, "its own path") if self._fits(name) else None
        for folder, via in folders:
            path = os.path.join(folder, name)
            if self._fits(path):
                return Found(path, via)
        cached = self._in_cache(name)
        if cached is not None:
            return Found(cached, _CACHE)
        for folder in self._defaults:
            path = f"{folder}/{name}"
            if self._fits(path):
                return Found(path, "default folder")
        return None

    def _identify(self, folder: str) -> tuple[int, int] | None:
        """Return device and inode of a folder; None if it is not there."""
        if folder not in self._identities:
            self._budget.spend(_STEPS_PER_LOOK, _WHAT)
            try:
                status = os.stat(folder)
            except (OSError, ValueError):
                self._identities[folder] = None
            else:
                is_folder = stat.S_ISDIR(status.st_mode)
                self._identities[folder] = (status.st_dev, status.st_ino) if is_folder else None
        return self._identities[folder]

    def _fits(self, path: str) -> bool:
        self._budget.spend(_STEPS_PER_LOOK, _WHAT)
        try:
            # O_NONBLOCK: the dynamic linker would wait for the writer of a pipe; an audit need not.
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
            with open(descriptor, "rb") as stream:
                head = stream.read(20)
        except OSError as error:
            if error.errno in (errno.EMFILE, errno.ENFILE):
                raise AccessFailed(
                    "libraries cannot be searched for", path=path, cause=error.strerror, hint=_RAISE_LIMIT
                ) from error
            return False
        except ValueError:
            return False
        found = identify(head)
        return found is not None and (found.bits, found.machine) == self._identity

    def _in_cache(self, name: str) -> str | None:
        """Look ``name`` up in ld.so.cache (the format of glibc 2.2 and later, alone or after the old one)."""
        if self._cache is None:
            self._cache = _index_cache(_read_cache(self._cache_path))
        return next((path for path in self._cache.get(os.fsencode(name), ()) if self._fits(path)), None)


def _read_cache(path: str) -> bytes:
    """Return the new-format part of the cache, or nothing if there is none."""
    try:
        with open(path, "rb") as stream:
            data = stream.read(_CACHE_LIMIT)
    except OSError:
        return b""
    if data.startswith(_OLD_CACHE_MAGIC):
        start = data.find(_CACHE_MAGIC)
        data = data[start:] if start >= 0 else b""
    return data if data.startswith(_CACHE_MAGIC) and len(data) >= 48 else b""


def _index_cache(data: bytes) -> dict[bytes, list[str]]:
    """Return the paths in the cache by the name that they are for, in the cache's order."""
    found: dict[bytes, list[str]] = {}
    count = struct.unpack_from("<I", data, 20)[0] if data else 0
    end_of_entries = 48 + 24 * count
    if end_of_entries > len(data):
        return found
    for _flags, key, value, _os_version, _hwcap in struct.iter_unpack("<iIIIQ", data[48:end_of_entries]):
        end_of_key, end = data.find(b"\0", key), data.find(b"\0", value)
        if 0 < key < end_of_key and 0 < value < end:
            found.setdefault(data[key:end_of_key], []).append(os.fsdecode(data[value:end]))
    return found


def _expand(entry: str, origin: str) -> str:
    """Replace ``$ORIGIN`` in a path entry; an empty entry is the current folder (ld.so(8))."""
    if "$" in entry:
        entry = entry.replace("${ORIGIN}", origin).replace("$ORIGIN", origin)
    return entry or "."
