"""Opening an artifact: what it is follows from its content, never from its name alone."""

from __future__ import annotations

import os

from aoti_abi.errors import AccessFailed, InvalidProgram, NotFound, NotSupported
from aoti_abi.records import TYPE_CHECKING
from aoti_inspect.artifacts.artifact import Artifact
from aoti_inspect.artifacts.mapped import MappedFile, MemorySource
from aoti_inspect.wording import counted, sized

if TYPE_CHECKING:
    from aoti_abi.errors import AotiError
    from aoti_inspect.artifacts.mapped import Source

_ELF_MAGIC = b"\x7fELF"
_KNOWN = "pass a .so, .pt2, .pte, a folder or a zip archive with them"
#: What ExecuTorch's exporter calls a backend's data: ``aoti_<device>_blob``.
_SHARED_NAMES = ("aoti_cuda_blob.ptd", "aoti_metal_blob.ptd", "aoti_cpu_blob.ptd")
#: What people confuse with packages, beside what is no ELF file (`aoti_inspect.file_kind`).
_OTHERS: tuple[tuple[bytes, str], ...] = (
    (b"\x1f\x8b", "a gzip archive"),
    (b"BZh", "a bzip2 archive"),
    (b"\xfd7zXZ", "an xz archive"),
    (b"\x28\xb5\x2f\xfd", "a Zstandard archive"),
    (b"7z\xbc\xaf", "a 7z archive"),
    (b"\x80", "a pickle; it is not opened, as that would run it"),
    (b"\x93NUMPY", "a numpy array"),
)


def open_artifact(
    path: str, *, data: tuple[str, ...] | None = None, content: bytes | None = None
) -> Artifact:
    """Open a plugin, package, program, folder or archive for reading.

    Nothing is extracted, executed or written, and no link or name leads out of the artifact. The result is a
    context manager.

    Args:
        path: a file or a folder; with ``content``, just what to call it.
        data: ``.ptd`` files that belong to a ``.pte``; by default those beside it that carry its name, or the
            backend's (``aoti_cuda_blob.ptd``).
        content: the artifact's bytes, if they are in memory already.

    Raises:
        NotFound: there is no such file.
        AccessFailed: it can't be read.
        InvalidProgram: it is damaged.
        NotSupported: it is something else, or of a version that is not known; the message says what.
    """
    if content is None and os.path.isdir(path):
        return _open_folder(path)
    source: Source = MappedFile(path) if content is None else MemorySource(path, content)
    opened: list[Source] = [source]
    try:
        return _dispatch(source, opened, data, in_file=content is None)
    except BaseException:
        for entry in opened:
            entry.close()
        raise


def _dispatch(
    source: Source, opened: list[Source], data: tuple[str, ...] | None, *, in_file: bool
) -> Artifact:
    view, name = source.view, source.name
    if view[:4] == _ELF_MAGIC:
        from aoti_inspect.artifacts.plain import read_plain_plugin

        return read_plain_plugin(source)
    from aoti_inspect.artifacts.zip_directory import has_end_record, looks_like_zip

    if looks_like_zip(view):
        return _open_zip(source, in_file=in_file)
    if len(view) >= 8:
        from aoti_inspect.artifacts.segments import (
            is_program,
            is_tensor_file,
            relative_of_program,
        )

        if is_program(view):
            from aoti_inspect.artifacts.pte import read_program

            own = _own_tensor_files(name, in_file=in_file) if data is None else data
            opened.extend(MappedFile(file) for file in own)
            artifact = read_program(source, tuple(opened[1:]))
            if data is not None or own or not in_file or not _lacks_data(artifact):
                return artifact
            opened.extend(MappedFile(file) for file in _shared_tensor_files(name))
            return read_program(source, tuple(opened[1:]))
        if is_tensor_file(view):
            return _open_tensor_file(source)
        relative = relative_of_program(view)
        if relative:
            raise NotSupported(f"this is {relative}, not a program", path=name, hint="pass the .pte itself")
    if has_end_record(view):
        return _open_zip(source, in_file=in_file)
    raise _unknown(view, name)


def _unknown(view: memoryview, name: str) -> AotiError:
    from aoti_inspect.file_kind import HEAD, describe

    head = bytes(view[:HEAD])
    for magic, what in _OTHERS:
        if head.startswith(magic):
            return NotSupported(f"this is {what}", path=name, hint=_KNOWN)
    kind = describe(head, len(view))
    error = InvalidProgram if kind.kind == "empty" else NotSupported
    return error(f"this is {kind.what}", path=name, hint=kind.hint or _KNOWN)


def _open_zip(source: Source, *, in_file: bool) -> Artifact:
    from aoti_inspect.artifacts.pt2 import is_package, read_package
    from aoti_inspect.artifacts.tree import ZipTree

    tree = ZipTree(source.view, source.name, path=source.name if in_file else None)
    names = tree.names()
    if is_package(names):
        return read_package(tree, (source,))
    if any(name.count("/") == 1 and name.endswith("/data.pkl") for name in names):
        scripted = any(name.count("/") == 1 and name.endswith("/constants.pkl") for name in names)
        what = "a TorchScript archive" if scripted else "a checkpoint of torch.save"
        raise NotSupported(
            f"this is {what}, not a compiled model",
            path=source.name,
            hint="compile it with torch._inductor.aoti_compile_and_package",
        )
    from aoti_inspect.artifacts.holder import read_holder

    return read_holder(tree, (source,), folder=False)


def _open_folder(path: str) -> Artifact:
    from aoti_inspect.artifacts.pt2 import is_package, read_package
    from aoti_inspect.artifacts.tree import FolderTree

    tree = FolderTree(path)
    if is_package(tree.names()):
        return read_package(tree, (tree,), unpacked=True)
    from aoti_inspect.artifacts.holder import read_holder

    return read_holder(tree, (tree,), folder=True)


def _open_tensor_file(source: Source) -> Artifact:
    from aoti_inspect.artifacts.ptd import read_tensor_file
    from aoti_inspect.artifacts.pte import merge_named_data

    content = read_tensor_file(source.view, source.name)
    anomalies = list(content.anomalies)
    named = merge_named_data(list(content.blobs), anomalies)
    total = sum(blob.size for blob in named.values())
    return Artifact(
        source.name,
        "ptd",
        {},
        anomalies=tuple(anomalies),
        summary=(("named data", f"{counted(len(named), 'key')}, {sized(total)}"),),
        named_data=named,
        sources=(source,),
    )


def _own_tensor_files(path: str, *, in_file: bool) -> list[str]:
    """Return the ``.ptd`` files beside a program that carry its name, sorted."""
    stem = os.path.splitext(os.path.basename(path))[0]
    return [
        file
        for file in (_tensor_files(path) if in_file else [])
        if os.path.basename(file) == f"{stem}.ptd" or os.path.basename(file).startswith(f"{stem}.")
    ]


def _shared_tensor_files(path: str) -> list[str]:
    """Return those with the name that a backend's exporter gives: ``aoti_cuda_blob.ptd``."""
    return [file for file in _tensor_files(path) if os.path.basename(file) in _SHARED_NAMES]


def _tensor_files(path: str) -> list[str]:
    folder = os.path.dirname(path)
    try:
        names = sorted(name for name in os.listdir(folder or ".") if name.endswith(".ptd"))
    except OSError as error:
        raise AccessFailed(
            "the folder of the program can't be listed", path=folder, cause=error.strerror
        ) from None
    return [os.path.join(folder, name) for name in names]


def _lacks_data(artifact: Artifact) -> bool:
    """Return whether a program names data that is not in it, so that it pays to look for a shared file."""
    missing = any(plugin.weights.kind == "missing" for plugin in artifact.plugins)
    return missing or any(
        isinstance(error, NotFound) for model in artifact.models.values() for error in model.problems
    )
