"""ELF files on disk."""

from __future__ import annotations

from contextlib import contextmanager

from aoti_abi.records import TYPE_CHECKING
from aoti_inspect.elf.image import ElfImage
from aoti_inspect.source import open_file

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def open_elf(path: str) -> Iterator[ElfImage]:
    """Open an ELF file for as long as the ``with`` block lasts.

    Args:
        path: a regular file, or a symbolic link to one.

    Raises:
        NotFound, AccessFailed, InvalidArgument: as `aoti_inspect.source.open_file`.
        InvalidProgram, NotSupported, InvalidArgument: it is no ELF file, or a broken one; the message says
            what it is.
    """
    with open_file(path) as source:
        yield ElfImage(source, path)
