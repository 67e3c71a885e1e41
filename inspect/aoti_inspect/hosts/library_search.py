"""Where the dynamic linker would find a library, without running it.

The order is that of ``ld.so(8)``: DT_RPATH of the library that asks and of those that loaded it (unless it
has a DT_RUNPATH), LD_LIBRARY_PATH, DT_RUNPATH of the library that asks, /etc/ld.so.cache, the default
folders. A candidate of another class or machine is passed over, as the linker does.
"""

from __future__ import annotations

import os
import struct

from aoti_abi.records import NamedTuple
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


class Found(NamedTuple):
    """A library that was found: where, and by which rule ("DT_RUNPATH", "LD_LIBRARY_PATH", ...)."""

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
    """

    def __init__(
        self, machine: int, bits: int, machine_name: str, *, library_path: str = "", cache: str = _CACHE
    ) -> None:
        self._identity = (bits, machine)
        self._library_path = tuple(part or "." for part in library_path.split(":")) if library_path else ()
        self._cache_path = cache
        self._cache: bytes | None = None
        self._defaults = _DEFAULT_FOLDERS.get(machine_name, ("/lib64", "/usr/lib64", "/lib", "/usr/lib"))

    def find(
        self,
        name: str,
        *,
        origin: str,
        rpaths: tuple[tuple[str, str], ...] = (),
        runpath: tuple[str, ...] = (),
    ) -> Found | None:
        """Return where ``name`` (a DT_NEEDED entry) would be loaded from, or None.

        Args:
            name: the entry; one with a slash is a path, not searched for.
            origin: the folder of the library that asks, for ``$ORIGIN`` in its DT_RUNPATH.
            rpaths: ``(folder of the owner, entry)`` of the DT_RPATHs that apply, nearest first.
            runpath: entries of the asking library's DT_RUNPATH.
        """
        if not name:
            return None
        if "/" in name:
            return Found(name, "its own path") if self._fits(name) else None
        steps: list[tuple[str, str]] = []
        if not runpath:
            steps += [(_expand(entry, owner), "DT_RPATH") for owner, entry in rpaths]
        steps += [(folder, "LD_LIBRARY_PATH") for folder in self._library_path]
        steps += [(_expand(entry, origin), "DT_RUNPATH") for entry in runpath]
        for folder, via in steps:
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

    def _fits(self, path: str) -> bool:
        try:
            # O_NONBLOCK: the dynamic linker would wait for the writer of a pipe; an audit need not.
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
            with open(descriptor, "rb") as stream:
                head = stream.read(20)
        except (OSError, ValueError):
            return False
        found = identify(head)
        return found is not None and (found.bits, found.machine) == self._identity

    def _in_cache(self, name: str) -> str | None:
        """Look ``name`` up in ld.so.cache (the format of glibc 2.2 and later, alone or after the old one)."""
        if self._cache is None:
            self._cache = _read_cache(self._cache_path)
        data = self._cache
        if not data:
            return None
        count = struct.unpack_from("<I", data, 20)[0]
        end_of_entries = 48 + 24 * count
        if end_of_entries > len(data):
            return None
        wanted = os.fsencode(name) + b"\0"
        for _flags, key, value, _os_version, _hwcap in struct.iter_unpack("<iIIIQ", data[48:end_of_entries]):
            if data.startswith(wanted, key):
                end = data.find(b"\0", value)
                path = os.fsdecode(data[value:end]) if 0 < value < end else ""
                if path and self._fits(path):
                    return path
        return None


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


def _expand(entry: str, origin: str) -> str:
    """Replace ``$ORIGIN`` in a path entry; an empty entry is the current folder (ld.so(8))."""
    if "$" in entry:
        entry = entry.replace("${ORIGIN}", origin).replace("$ORIGIN", origin)
    return entry or "."
