"""What is not ELF is named for what it is."""

from __future__ import annotations

import os
import socket
import struct
import zipfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aoti_abi.errors import AotiError, InvalidArgument, InvalidProgram, NotSupported
from aoti_inspect.elf.image import ElfImage
from aoti_inspect.elf.read import open_elf
from aoti_inspect.file_kind import describe, describe_mode, refusal


def pe(characteristics: int) -> bytes:
    head = bytearray(b"MZ" + bytes(62))
    struct.pack_into("<I", head, 60, 64)
    return bytes(head) + b"PE\0\0" + bytes(18) + struct.pack("<H", characteristics) + bytes(200)


KINDS = [
    ("empty", b"", InvalidProgram, "an empty file"),
    (
        "git-lfs-pointer",
        b"version https://git-lfs.github.com/spec/v1\noid sha256:0000\nsize 1234\n",
        InvalidProgram,
        "Git LFS pointer",
    ),
    ("linker-script", b"/* GNU ld script */\nINPUT(libfoo.so.1)\n", InvalidProgram, "linker script"),
    (
        "linker-script",
        b"/* comment */ GROUP ( libc.so.6 AS_NEEDED ( x ) )\n",
        InvalidProgram,
        "linker script",
    ),
    ("pe", pe(0x2022), NotSupported, "a Windows DLL"),
    ("pe", pe(0x0022), NotSupported, "a Windows PE file"),
    ("pe", b"MZ" + bytes(10), NotSupported, "DOS or Windows"),
    ("mach-o", b"\xcf\xfa\xed\xfe" + bytes(28), NotSupported, "Mach-O"),
    ("mach-o", b"\xfe\xed\xfa\xce" + bytes(28), NotSupported, "Mach-O"),
    ("fat-mach-o", b"\xca\xfe\xba\xbe\0\0\0\x02" + bytes(40), NotSupported, "fat Mach-O"),
    ("unknown", b"\xca\xfe\xba\xbe\0\0\0\x41" + bytes(40), InvalidProgram, "Java class"),
    ("archive", b"!<arch>\n/               0 ", InvalidProgram, "static library"),
    ("archive", b"!<thin>\n", InvalidProgram, "static library"),
    ("executorch-program", b"\x1c\0\0\0ET12" + bytes(40), InvalidArgument, "ExecuTorch program"),
    ("executorch-data", b"\x1c\0\0\0FT01" + bytes(40), InvalidArgument, "ExecuTorch data"),
    ("elf-truncated", b"\x7fELF", InvalidProgram, "cut off after 4 bytes"),
    ("elf-truncated", b"\x7fELF\x02\x01\x01" + bytes(56), InvalidProgram, "cut off after 63 bytes"),
    ("elf-truncated", b"\x7fELF\x01\x01\x01" + bytes(44), InvalidProgram, "cut off after 51 bytes"),
    ("text", b"hello\n", InvalidProgram, "a text file"),
    ("text", "naïve \u4e2d\u6587".encode() * 2000, InvalidProgram, "a text file"),
    ("text", b"#!/bin/sh\necho INPUT\n", InvalidProgram, "a text file"),
    ("unknown", bytes(5000), InvalidProgram, "begins with zeros"),
    ("unknown", b"\x89PNG\r\n\x1a\n" + bytes(9), InvalidProgram, "89 50 4e 47"),
    ("unknown", b"abc\0def", InvalidProgram, "unknown kind"),
]


@pytest.mark.parametrize(("kind", "data", "error", "what"), KINDS)
def test_P11_what_is_not_elf_is_named(
    kind: str, data: bytes, error: type[AotiError], what: str, tmp_path: Path
):
    """Each gets its own words, and is never an empty, clean result."""
    found = describe(data)
    assert found.kind == kind
    assert what in found.what
    with pytest.raises(error) as caught:
        ElfImage(data, "given.so")
    assert what in str(caught.value)
    assert str(caught.value).startswith("given.so: not a shared library for Linux: this is ")
    path = tmp_path / "file.so"
    path.write_bytes(data)
    with pytest.raises(error, match="this is") as caught, open_elf(str(path)):
        pass
    assert caught.value.path == str(path)


@pytest.mark.parametrize(
    ("member", "what"),
    [
        ("model/archive_format", "PyTorch archive"),
        ("model/byteorder", "PyTorch archive"),
        ("a/b.txt", "a zip archive"),
    ],
)
def test_zip_archives(member: str, what: str, tmp_path: Path):
    path = tmp_path / "x.so"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(member, "pt2")
    found = describe(path.read_bytes())
    assert (found.kind, what in found.what) == ("zip", True)
    with pytest.raises(InvalidArgument, match=what), open_elf(str(path)):
        pass


def test_an_empty_zip_archive():
    assert describe(b"PK\x05\x06" + bytes(18)).kind == "zip"


def test_elf_is_elf(small_plugin: Path):
    data = small_plugin.read_bytes()
    assert describe(data[:64], len(data)) == ("elf", "an ELF file", None)


def test_what_is_no_regular_file(tmp_path: Path):
    regular = tmp_path / "regular"
    regular.touch()
    assert describe_mode(os.stat(regular).st_mode) is None
    os.mkfifo(tmp_path / "pipe")
    with socket.socket(socket.AF_UNIX) as server:
        here = os.getcwd()
        os.chdir(tmp_path)  # the path of a socket has a hundred bytes at most
        try:
            server.bind("s")
        finally:
            os.chdir(here)
        kinds = {
            name: describe_mode(os.stat(path).st_mode).kind  # type: ignore[union-attr]
            for name, path in (
                ("directory", tmp_path),
                ("fifo", tmp_path / "pipe"),
                ("device", Path("/dev/null")),
                ("socket", tmp_path / "s"),
            )
        }
    assert kinds == {name: name for name in kinds}


def test_every_kind_has_a_sentence_that_reads_well():
    for _, data, _, _ in KINDS:
        kind = describe(data)
        error = refusal(kind, "x.so")
        assert error.path == "x.so"
        assert error.hint == kind.hint
        assert kind.what.startswith(("a ", "an "))


@given(st.binary(max_size=200))
def test_any_bytes_have_a_kind(data: bytes):
    kind = describe(data)
    assert kind.kind
    assert kind.what.isprintable()
