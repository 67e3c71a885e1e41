"""What a file is when it is not a plugin, told from its first bytes."""

from __future__ import annotations

import stat

from aoti_abi.errors import InvalidArgument, InvalidProgram, NotSupported
from aoti_abi.records import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from aoti_abi.errors import AotiError

#: Bytes that `describe` wants to see; fewer are all right.
HEAD = 4096

_MACH_O = (b"\xfe\xed\xfa\xce", b"\xfe\xed\xfa\xcf", b"\xce\xfa\xed\xfe", b"\xcf\xfa\xed\xfe")
_FAT_MACH_O = (b"\xca\xfe\xba\xbe", b"\xca\xfe\xba\xbf")
_REBUILD = "the file is cut off or damaged: build or copy it again"


class FileKind(NamedTuple):
    """What a file is.

    Attributes:
        kind: a stable identifier: "elf", "empty", "git-lfs-pointer", "linker-script", "pe", "mach-o",
            "fat-mach-o", "archive", "zip", "executorch-program", "executorch-data", "elf-truncated", "text",
            "directory", "device", "fifo", "socket", "unknown".
        what: one clause that says what it is, to follow "this is" ("an empty file").
        hint: what to do; None if there is nothing useful to say.
    """

    kind: str
    what: str
    hint: str | None = None


def describe(data: bytes | bytearray | memoryview, size: int | None = None) -> FileKind:
    """Say what the bytes are.

    Args:
        data: the beginning of the file, `HEAD` bytes of it or whatever there is.
        size: bytes of the whole file; those of ``data`` if it is left out.
    """
    head = bytes(data[:HEAD])
    size = len(head) if size is None else size
    if size == 0:
        return FileKind("empty", "an empty file", "the build or the copy that should have filled it failed")
    if head.startswith(b"\x7fELF"):
        return _describe_elf(head, size)
    if head.startswith(b"version https://git-lfs.github.com/spec/"):
        return FileKind("git-lfs-pointer", "a Git LFS pointer, not the file itself", "run: git lfs pull")
    if head.startswith(b"MZ"):
        return _describe_pe(head)
    if head.startswith(_MACH_O):
        return FileKind("mach-o", "a Mach-O file, for macOS", "compile the model on Linux for Linux")
    # A Java class file begins with the same four bytes; its version number is larger than any slice count.
    if head.startswith(_FAT_MACH_O) and len(head) >= 8:
        if int.from_bytes(head[4:8], "big") < 40:
            return FileKind(
                "fat-mach-o", "a fat Mach-O file, for macOS", "compile the model on Linux for Linux"
            )
        return FileKind("unknown", "a Java class file")
    if head.startswith((b"!<arch>\n", b"!<thin>\n")):
        return FileKind("archive", "a static library (ar archive)", "link it into a shared library")
    if head.startswith((b"PK\x03\x04", b"PK\x05\x06", b"PK\x07\x08")):
        return _describe_zip(head)
    if head[4:8] == b"ET12":
        return FileKind(
            "executorch-program", "an ExecuTorch program (.pte)", "aoti-inspect audits the plugins in it"
        )
    if head[4:8] == b"FT01":
        return FileKind(
            "executorch-data", "an ExecuTorch data file (.ptd)", "name the .pte that it belongs to"
        )
    return _describe_rest(head)


def describe_mode(mode: int) -> FileKind | None:
    """Say what a path is from ``st_mode`` if it can't be read like a file; None for a regular file."""
    if stat.S_ISREG(mode):
        return None
    if stat.S_ISDIR(mode):
        return FileKind("directory", "a directory", "name the file in it")
    if stat.S_ISFIFO(mode):
        return FileKind("fifo", "a pipe (FIFO)", "write its contents to a file first")
    if stat.S_ISSOCK(mode):
        return FileKind("socket", "a socket")
    return FileKind("device", "a device")


def refusal(kind: FileKind, path: str | None = None) -> AotiError:
    """Return the error to raise when an ELF file was expected and this came.

    NotSupported for libraries of other systems, InvalidArgument for another kind of artifact, InvalidProgram
    for the rest.
    """
    error: type[AotiError] = InvalidProgram
    if kind.kind in ("pe", "mach-o", "fat-mach-o"):
        error = NotSupported
    elif kind.kind in ("zip", "executorch-program", "executorch-data"):
        error = InvalidArgument
    return error(f"not a shared library for Linux: this is {kind.what}", path=path, hint=kind.hint)


def _describe_elf(head: bytes, size: int) -> FileKind:
    needed = 52 if len(head) > 4 and head[4] == 1 else 64
    if size < needed:
        return FileKind(
            "elf-truncated", f"an ELF file cut off after {size} bytes, before its header ends", _REBUILD
        )
    return FileKind("elf", "an ELF file")


def _describe_pe(head: bytes) -> FileKind:
    what = "a DOS or Windows program"
    if len(head) >= 64:
        at = int.from_bytes(head[60:64], "little")
        if head[at : at + 4] == b"PE\0\0":
            is_dll = int.from_bytes(head[at + 22 : at + 24], "little") & 0x2000
            what = "a Windows DLL (PE)" if is_dll else "a Windows PE file (a DLL or program)"
    return FileKind("pe", what, "it cannot be loaded on Linux: compile the model on, or for, Linux")


def _describe_zip(head: bytes) -> FileKind:
    length = int.from_bytes(head[26:28], "little") if len(head) >= 30 else 0
    first = head[30 : 30 + length]
    if first.endswith((b"/archive_format", b"/byteorder", b"/.data/serialization_id", b"/data.pkl")):
        return FileKind("zip", "a PyTorch archive (.pt2 or .pt)", "aoti-inspect audits the plugins in it")
    return FileKind("zip", "a zip archive (.whl, .pt2, .zip)", "aoti-inspect audits the plugins in it")


def _describe_rest(head: bytes) -> FileKind:
    if not head.strip(b"\0"):
        return FileKind(
            "unknown", "a file that begins with zeros", "the copy or download may not be complete"
        )
    try:
        text = head.decode("utf-8")
    except UnicodeDecodeError as error:
        # The head may end within a character.
        if len(head) < HEAD or error.start < len(head) - 4:
            return FileKind("unknown", f"a file of an unknown kind that begins with {head[:8].hex(' ')}")
        text = head[: error.start].decode("utf-8")
    if any(char < " " and char not in "\t\n\r\f\x1b" for char in text):
        return FileKind("unknown", f"a file of an unknown kind that begins with {head[:8].hex(' ')}")
    stripped = text.lstrip()
    if stripped.startswith(("/* GNU ld script", "INPUT", "GROUP", "OUTPUT_FORMAT")) or (
        "INPUT(" in text.replace(" ", "") or "GROUP(" in text.replace(" ", "")
    ):
        return FileKind(
            "linker-script", "a linker script, text for ld", "name the shared library that it refers to"
        )
    return FileKind("text", "a text file")
