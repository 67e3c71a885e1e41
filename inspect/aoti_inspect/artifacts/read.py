"""Opening an artifact: what it is follows from its content, never from its name alone."""

from __future__ import annotations

import os

from aoti_abi.errors import InvalidProgram, NotSupported
from aoti_abi.records import TYPE_CHECKING
from aoti_inspect.artifacts.formats import MAGIC_BYTES, ZIP, find_format
from aoti_inspect.artifacts.sidecars import Beside, FilesOnDisk, NoFiles
from aoti_inspect.budget import Budget
from aoti_inspect.source import BufferSource, open_file

if TYPE_CHECKING:
    from typing import NoReturn

    from aoti_inspect.artifacts.artifact import Artifact
    from aoti_inspect.source import Source

_KNOWN = "pass a .so, .pt2, .pte, a folder or a zip archive with them"
#: What people confuse with packages, beside what is no ELF file (`aoti_inspect.file_kind`): offset and bytes.
_OTHERS: tuple[tuple[int, bytes, str], ...] = (
    (0, b"\x1f\x8b", "a gzip archive"),
    (0, b"BZh", "a bzip2 archive"),
    (0, b"\xfd7zXZ", "an xz archive"),
    (0, b"\x28\xb5\x2f\xfd", "a Zstandard archive"),
    (0, b"7z\xbc\xaf", "a 7z archive"),
    (0, b"\x80", "a pickle; it is not opened, as that would run it"),
    (0, b"\x93NUMPY", "a numpy array"),
    (4, b"BP08", "a bundled program (a .pte with test inputs), not a program; pass the .pte itself"),
    (4, b"ED00", "an ETDump trace, not a program; pass the .pte itself"),
    (4, b"NPTG", "a native program graph, not a program; pass the .pte itself"),
)


def open_artifact(
    path: str,
    *,
    data: tuple[str, ...] | None = None,
    content: bytes | None = None,
    audited: bool = False,
) -> Artifact:
    """Open a plugin, package, program, folder or archive for reading.

    Nothing is extracted, executed or written, and no link or name leads out of the artifact. The result is a
    context manager.

    Args:
        path: a file or a folder; with ``content``, just what to call it.
        data: ``.ptd`` files that belong to a ``.pte``; by default those beside it that carry its name, or the
            backend's (``aoti_cuda_blob.ptd``).
        content: the artifact's bytes, if they are in memory already.
        audited: whether nobody trusts it yet: then what it may cost is bounded by its size.

    Raises:
        NotFound: there is no such file.
        AccessFailed: the system refuses to open or read it.
        InvalidArgument: it is a pipe, a device or a socket.
        InvalidProgram: it is damaged.
        NotSupported: it is something else, or of a version that is not known; the message says what.
        TooComplex: it costs more than a file of its size may.
    """
    if content is None and os.path.isdir(path):
        return _open_folder(path, audited=audited)
    source = open_file(path) if content is None else BufferSource(content, path)
    if audited:
        source.budget = Budget(source.size)
    neighbours = FilesOnDisk() if content is None else NoFiles()
    artifact = read_artifact(source, Beside(neighbours, path, data))
    artifact.budget = source.budget
    return artifact


def read_artifact(source: Source, beside: Beside) -> Artifact:
    """Read an artifact from its bytes, which are closed with it, or at once if it can't be read.

    Raises:
        AotiError: as `open_artifact`.
    """
    try:
        known = find_format(source.read(0, MAGIC_BYTES))
        if known is None:
            from aoti_inspect.artifacts.zip_directory import has_end_record

            if not has_end_record(source):
                _refuse(source)
            known = ZIP  # after something else: a program that unpacks itself
        return known.read(source, beside)
    except BaseException:
        source.close()
        raise


def _refuse(source: Source) -> NoReturn:
    from aoti_inspect.file_kind import HEAD, describe

    head, name = source.read(0, HEAD), source.name
    for offset, magic, what in _OTHERS:
        if head.startswith(magic, offset):
            raise NotSupported(f"this is {what}", path=name, hint=_KNOWN)
    kind = describe(head, source.size)
    error = InvalidProgram if kind.kind == "empty" else NotSupported
    raise error(f"this is {kind.what}", path=name, hint=kind.hint or _KNOWN)


def _open_folder(path: str, *, audited: bool) -> Artifact:
    from aoti_inspect.artifacts.members import FolderMembers
    from aoti_inspect.artifacts.pt2 import is_package, read_package

    members = FolderMembers(path)
    if audited:
        members.budget = Budget(sum(map(members.size, members.names())))
    if is_package(members.names()):
        artifact = read_package(members, unpacked=True)
    else:
        from aoti_inspect.artifacts.bundle import read_bundle

        artifact = read_bundle(members, folder=True)
    artifact.budget = members.budget
    return artifact
