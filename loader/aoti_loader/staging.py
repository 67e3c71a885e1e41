"""A private copy of a plugin: what is really loaded (behaviour L9).

The dynamic linker knows libraries by name and by inode, so a file that was rebuilt, or replaced while it is
loaded, may be answered with the old one, or be pulled away under a running process. A copy that nobody else
can name has neither trouble, can be mended, and works from a folder that is mounted noexec.

Small files go to memory (``memfd_create``: nothing on disk, nothing to clean up). Large ones go to a file in
a private folder of mode 0700, whose name is made from the process id and a counter, never from anything that
the artifact says.
"""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import os
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

from aoti_abi.errors import AccessFailed
from aoti_loader.process import PROCESS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from aoti_inspect.source import Source
    from aoti_loader.mending import Patch

#: Larger files are copied to disk, whose pages the system can drop and read again, bytes.
MEMORY_LIMIT = 256 << 20

_MFD_CLOEXEC, _MFD_EXEC = 1, 0x10
_CHUNK = 4 << 20  # a write takes at most 2 GiB at once
_counter = itertools.count()


class Descriptor(ctypes.c_int):
    """A file descriptor that is closed with this object, unless somebody takes it.

    It is what the C library's function itself returns: a signal's handler may raise before the result has a
    name.
    """

    taken = False

    def fileno(self) -> int:
        """Return its number."""
        return self.value

    def take(self) -> None:
        """Leave it open when this object goes."""
        self.taken = True

    def close(self) -> None:
        """Close it now."""
        number, self.value = self.value, -1
        if number >= 0:
            os.close(number)

    def __del__(self) -> None:
        if not self.taken:
            with contextlib.suppress(OSError):
                self.close()


@lru_cache(maxsize=1)
def _libc() -> tuple[Any, Any]:
    process = ctypes.CDLL(None, use_errno=True)
    create, open_ = process["memfd_create"], process["open"]
    create.restype = open_.restype = Descriptor
    return create, open_


class Staged(NamedTuple):
    """A copy on hold.

    Attributes:
        path: what to open; valid while the copy is not released.
        kind: "memory" or "file".
        descriptor: closed with this record, unless it is taken. It keeps ``path`` unique: the kernel hands
            its number out again once it is closed, and the dynamic linker takes a library that is loaded
            under the same name for the same library.
    """

    path: str
    kind: str
    descriptor: Descriptor


def stage(source: Source, patches: Iterable[Patch] = (), *, name: str, in_memory: bool = True) -> Staged:
    """Copy a plugin and mend the copy.

    Args:
        source: the plugin's bytes.
        patches: what to overwrite in the copy.
        name: what to call the plugin in errors.
        in_memory: whether a copy in memory may be made, if the file is small enough for it.

    Raises:
        AccessFailed: the system refused, or not every byte could be copied.
    """
    staged = (_in_memory() if in_memory and source.size <= MEMORY_LIMIT else None) or _on_disk(name)
    try:
        _copy(source, staged.descriptor.value, name)
        _patch(staged.descriptor.value, patches, name)
        if staged.kind == "file":
            # A file that is open for writing cannot be mapped for execution everywhere.
            os.fchmod(staged.descriptor.value, 0o500)
            reopened = _open(staged.path, os.O_RDONLY)
            staged.descriptor.close()
            staged = staged._replace(descriptor=reopened)
    except OSError as error:
        release(staged)
        raise AccessFailed(
            "the plugin could not be copied to a private place",
            path=name,
            cause=error.strerror,
            hint="TMPDIR names the folder for copies of large plugins",
        ) from error
    except BaseException:
        release(staged)
        raise
    return staged


def release(staged: Staged) -> None:
    """Let go of a copy, and remove it if it is a file; a mapping of it stays valid."""
    with contextlib.suppress(OSError):
        staged.descriptor.close()
    if staged.kind == "file":
        with contextlib.suppress(OSError):
            os.unlink(staged.path)


def _in_memory() -> Staged | None:
    """Make an empty file in memory; None where the system has none that code may run from."""
    # Without MFD_EXEC a hardened system makes it noexec; kernels before 6.3 don't know the flag.
    for flags in (_MFD_CLOEXEC | _MFD_EXEC, _MFD_CLOEXEC):
        with contextlib.suppress(AttributeError):
            descriptor = _libc()[0](b"aoti-plugin", ctypes.c_uint(flags))
            if descriptor.value >= 0:
                return Staged(f"/proc/self/fd/{descriptor.value}", "memory", descriptor)
    return None


def _open(path: str, flags: int) -> Descriptor:
    descriptor: Descriptor = _libc()[1](os.fsencode(path), flags | os.O_CLOEXEC, 0o600)
    if descriptor.value < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), path)
    return descriptor


def _on_disk(name: str) -> Staged:
    try:
        path = os.path.join(_private_folder(), f"{os.getpid()}-{next(_counter)}.so")
        descriptor = _open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW)
    except OSError as error:
        raise AccessFailed(
            "no private place for a copy of the plugin",
            path=name,
            cause=error.strerror,
            hint="TMPDIR names the folder for copies",
        ) from error
    return Staged(path, "file", descriptor)


def _copy(source: Source, target: int, name: str) -> None:
    written = 0
    while written < source.size:
        data = source.read(written, _CHUNK)
        count = os.write(target, data) if data else 0
        if count != len(data) or not count:
            raise AccessFailed(
                f"only {written + count} of {source.size} bytes could be copied to a private place",
                path=name,
                hint="is there room in memory, or in the folder that TMPDIR names?",
            )
        written += count


def _patch(target: int, patches: Iterable[Patch], name: str) -> None:
    for patch in patches:
        if os.pwrite(target, patch.data, patch.offset) != len(patch.data):
            raise AccessFailed("the private copy could not be mended", path=name)


def _private_folder() -> str:
    """Return this process's folder for copies, made on first use and removed at exit."""
    with PROCESS.lock:
        if PROCESS.staging_folder is None or PROCESS.staging_folder[1] != os.getpid():
            import atexit
            import tempfile

            # mkdtemp makes it with mode 0700, under a name that nobody can guess.
            PROCESS.staging_folder = tempfile.mkdtemp(prefix="aoti-loader-"), os.getpid()
            atexit.register(_remove_folder, *PROCESS.staging_folder)
        return PROCESS.staging_folder[0]


def _remove_folder(folder: str, owner: int) -> None:
    """Remove the folder and what is left in it; a child of fork leaves its parent's alone."""
    if os.getpid() != owner:
        return
    with contextlib.suppress(OSError):
        for entry in os.listdir(folder):
            with contextlib.suppress(OSError):
                os.unlink(os.path.join(folder, entry))
        os.rmdir(folder)
