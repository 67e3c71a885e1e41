"""ELF files on disk."""

from __future__ import annotations

import os
from contextlib import contextmanager

from aoti_abi.errors import AccessFailed, NotFound
from aoti_abi.records import TYPE_CHECKING
from aoti_inspect.elf.image import ElfImage
from aoti_inspect.elf.source import FileSource
from aoti_inspect.file_kind import describe_mode, refusal

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def open_elf(path: str) -> Iterator[ElfImage]:
    """Open an ELF file for as long as the ``with`` block lasts.

    Args:
        path: a regular file, or a symbolic link to one.

    Raises:
        NotFound: there is no such file.
        AccessFailed: the system refuses to open or read it.
        InvalidProgram, NotSupported, InvalidArgument: it is no ELF file, or a broken one; the message says
            what it is.
    """
    descriptor = open_regular(path)
    try:
        size = os.fstat(descriptor).st_size
        yield ElfImage(FileSource(descriptor, size, name=path), path)
    finally:
        os.close(descriptor)


def open_regular(path: str) -> int:
    """Open a regular file for reading; return its descriptor, which the caller closes.

    Raises:
        NotFound, AccessFailed: as `open_elf`.
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
    kind = describe_mode(os.fstat(descriptor).st_mode)
    if kind is not None:
        os.close(descriptor)
        raise refusal(kind, path)
    return descriptor
