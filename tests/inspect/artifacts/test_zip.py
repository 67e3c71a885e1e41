"""The reader of zip archives against the standard library's, and against archives that lie."""

from __future__ import annotations

import io
import stat
import struct
import zipfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aoti_abi.errors import AotiError, InvalidProgram, NotFound, NotSupported
from aoti_inspect.artifacts import zip_archive
from aoti_inspect.artifacts.zip_archive import CHECKED_WHEN_READ, ZipArchive
from aoti_inspect.artifacts.zip_names import safe_file_name, unsafe_reason
from aoti_inspect.source import BufferSource

STORED, DEFLATED = zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED


def make(members, compression=STORED, comment=b"") -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", compression) as archive:
        for name, content in members:
            archive.writestr(name, content)
        archive.comment = comment
    return buffer.getvalue()


def opened(data: bytes) -> ZipArchive:
    return ZipArchive(BufferSource(data, "a.zip"))


def kinds(archive: ZipArchive) -> list[str]:
    return [fact.kind for fact in archive.directory.facts]


@pytest.mark.parametrize("compression", [STORED, DEFLATED])
def test_members_are_those_of_the_standard_library(compression):
    members = [("a/b.txt", b"hello" * 100), ("empty", b""), ("\u00fc/\u4f60", b"\0\1\2" * 50)]
    data = make(members, compression, b"a comment")
    archive = opened(data)
    assert archive.names() == [name for name, _ in members]
    for name, content in members:
        assert archive.read(name) == content
    assert kinds(archive) == []


def test_stored_members_are_parts_of_the_file_and_not_copies():
    data = make([("x", b"0123456789" * (1 << 19))])
    archive = opened(data)
    view = archive.read("x")
    assert len(view) > CHECKED_WHEN_READ
    assert view.obj is data
    assert archive.open("x").read(0, 10) == b"0123456789"
    assert opened(make([("x", b"a" * 50)], DEFLATED)).open("x").location is None


def test_sizes_in_data_descriptors():
    buffer = io.BytesIO()

    class Unseekable(io.RawIOBase):
        def writable(self):
            return True

        def write(self, data):
            return buffer.write(data)

    with zipfile.ZipFile(Unseekable(), "w") as archive:
        archive.writestr("a", b"first")
        archive.writestr("b", b"second" * 9, DEFLATED)
    archive = opened(buffer.getvalue())
    assert archive.member("a").flags & 8
    assert (archive.read("a"), archive.read("b")) == (b"first", b"second" * 9)


def test_zip64_records_of_the_standard_library():
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive, archive.open("big", "w", force_zip64=True) as member:
        member.write(b"content")
    data = buffer.getvalue()
    # The directory of a small archive has no zip64 record of its own: move its values there.
    position = data.rindex(b"PK\x01\x02")
    entry = bytearray(data[position : data.rindex(b"PK\x05\x06")])
    name_length, extra_length = struct.unpack_from("<HH", entry, 28)
    struct.pack_into("<II", entry, 20, 0xFFFFFFFF, 0xFFFFFFFF)
    struct.pack_into("<H", entry, 30, 20)
    entry = (
        entry[: 46 + name_length]
        + struct.pack("<HHQQ", 1, 16, 7, 7)
        + entry[46 + name_length + extra_length :]
    )
    end64 = struct.pack("<4sQ2H2I4Q", b"PK\x06\x06", 44, 45, 45, 0, 0, 1, 1, len(entry), position)
    locator = struct.pack("<4sIQI", b"PK\x06\x07", 0, position + len(entry), 1)
    end = struct.pack("<4s4H2IH", b"PK\x05\x06", 0, 0, 0xFFFF, 0xFFFF, 0xFFFFFFFF, 0xFFFFFFFF, 0)
    zip64 = data[:position] + bytes(entry) + end64 + locator + end
    assert zipfile.ZipFile(io.BytesIO(zip64)).read("big") == b"content"
    assert opened(zip64).read("big") == b"content"
    with pytest.raises(InvalidProgram, match="zip64 end record"):
        opened(zip64.replace(b"PK\x06\x06", b"PK\x06\x00"))
    contradiction = zip64[:-22] + struct.pack(
        "<4s4H2IH", b"PK\x05\x06", 0, 0, 2, 2, 0xFFFFFFFF, 0xFFFFFFFF, 0
    )
    with pytest.raises(InvalidProgram, match="contradict"):
        opened(contradiction)


def test_data_before_and_after_is_reported():
    data = make([("x", b"content")])
    archive = opened(b"#!/bin/sh\n" + data + b"signature")
    assert archive.read("x") == b"content"
    assert sorted(kinds(archive)) == ["bytes-after", "bytes-before"]


def test_a_comment_that_looks_like_an_end_record_is_not_one():
    inner = make([("evil", b"evil")])[-22:]
    data = make([("good", b"good")], comment=inner + b"x")
    assert opened(data).names() == ["good"]


@pytest.mark.parametrize(
    "name", ["../up", "a/../../b", "/absolute", "\\share", "C:\\windows", "a\\b", "nul\0byte", "..", "a/.."]
)
def test_unsafe_names_are_refused_and_reported(name):
    data = make([("fine", b"1"), ("placeholder" + "x" * max(0, len(name) - 11), b"2")])
    if "\0" in name or len(name) < 11:
        data = raw_zip(name.encode(), b"2")
    else:
        data = data.replace(b"placeholder" + b"x" * max(0, len(name) - 11), name.encode())
    archive = opened(data)
    assert name not in archive.names()
    assert "refused-names" in kinds(archive)
    assert unsafe_reason(name)
    with pytest.raises(NotFound):
        archive.read(name)


def raw_zip(
    name: bytes, content: bytes, *, method=0, flags=0, crc=None, size=None, local_name=None, external=0
) -> bytes:
    """Write one member by hand, so that its headers can say anything."""
    import zlib

    crc = zlib.crc32(content) if crc is None else crc
    size = len(content) if size is None else size
    shown = name if local_name is None else local_name
    local = struct.pack(
        "<4s5H3I2H", b"PK\x03\x04", 20, flags, method, 0, 0, crc, len(content), size, len(shown), 0
    )
    body = local + shown + content
    entry = struct.pack(
        "<4s6H3I5H2I",
        *(b"PK\x01\x02", 0x314, 20, flags, method, 0, 0, crc, len(content), size),
        *(len(name), 0, 0, 0, 0, external, 0),
    )
    end = struct.pack("<4s4H2IH", b"PK\x05\x06", 0, 0, 1, 1, len(entry) + len(name), len(body), 0)
    return body + entry + name + end


def test_links_are_refused():
    archive = opened(raw_zip(b"link", b"/etc/passwd", external=(stat.S_IFLNK | 0o777) << 16))
    assert archive.names() == []
    (fact,) = archive.directory.facts
    assert (fact.kind, fact.names) == ("refused-names", ("link",))


def test_the_last_of_two_members_with_one_name_wins_and_is_reported():
    with pytest.warns(UserWarning, match="Duplicate name"):
        data = make([("x", b"first"), ("x", b"second")])
    archive = opened(data)
    assert archive.read("x") == b"second"
    assert kinds(archive) == ["repeated-names"]


def test_local_name_must_be_the_directorys():
    with pytest.raises(InvalidProgram, match="'other'"):
        opened(raw_zip(b"shown", b"1", local_name=b"other")).read("shown")


def test_a_wrong_checksum_is_reported():
    with pytest.raises(InvalidProgram, match="checksum"):
        opened(raw_zip(b"x", b"content", crc=1)).read("x")


def test_a_large_stored_member_is_only_checked_when_asked(monkeypatch):
    monkeypatch.setattr(zip_archive, "CHECKED_WHEN_READ", 3)
    archive = opened(raw_zip(b"x", b"content", crc=1))
    assert archive.read("x") == b"content"
    with pytest.raises(InvalidProgram, match="checksum"):
        archive.read("x", verify=True)


@pytest.mark.parametrize(
    ("flags", "method", "words"), [(1, 0, "encrypted"), (0, 12, "bzip2"), (0, 77, "method 77")]
)
def test_what_cannot_be_read_is_named(flags, method, words):
    with pytest.raises(NotSupported, match=words):
        opened(raw_zip(b"x", b"content", flags=flags, method=method)).read("x")


def test_a_stored_member_with_two_sizes_is_damaged():
    with pytest.raises(InvalidProgram, match="two sizes differ"):
        opened(raw_zip(b"x", b"content", size=3)).read("x")


def deflate(content: bytes) -> bytes:
    import zlib

    engine = zlib.compressobj(9, zlib.DEFLATED, -15)
    return engine.compress(content) + engine.flush()


@pytest.mark.parametrize(("claimed", "words"), [(10, "inflates to more"), (60000, "inflates to 50000")])
def test_an_inflated_member_must_have_its_declared_size(claimed, words):
    with pytest.raises(InvalidProgram, match=words):
        opened(raw_zip(b"x", deflate(b"\0" * 50000), method=8, size=claimed)).read("x")


def test_an_impossible_ratio_is_refused_before_inflating():
    with pytest.raises(InvalidProgram, match="can't inflate"):
        opened(raw_zip(b"x", deflate(b"abc"), method=8, size=1 << 30)).read("x")


def test_inflating_is_bounded(monkeypatch):
    data = make([("a", b"\0" * 5000), ("b", b"\0" * 5000)], DEFLATED)
    monkeypatch.setattr(zip_archive, "MAX_INFLATED", 4000)
    with pytest.raises(NotSupported, match="4000 are allowed"):
        opened(data).read("a")
    monkeypatch.setattr(zip_archive, "MAX_INFLATED", 6000)
    monkeypatch.setattr(zip_archive, "MAX_INFLATED_IN_ALL", 6000)
    archive = opened(data)
    archive.read("a")
    with pytest.raises(NotSupported, match="1000 are allowed"):
        archive.read("b")


def test_damaged_deflate_data():
    with pytest.raises(InvalidProgram, match="damaged"):
        opened(raw_zip(b"x", b"\xff" * 20, method=8, size=20)).read("x")


def test_overlapping_members_are_reported_and_not_read():
    data = bytearray(make([("a", b"1" * 100), ("b", b"2" * 100)]))
    second = data.rindex(b"PK\x01\x02")
    struct.pack_into("<I", data, second + 42, 0)
    data[second + 46] = ord("a")
    archive = opened(bytes(data))
    assert "shared-bytes" in kinds(archive)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda data: data[:-30], "no end record"),
        (lambda data: data[:-10] + b"\xff\xff\0\0" + data[-6:], "claims 65535 bytes"),
        (lambda data: data[40:], "cut or joined"),
        (lambda data: data.replace(b"PK\x01\x02", b"PK\x01\x03"), "wrong signature"),
    ],
)
def test_damaged_directories(change, words):
    with pytest.raises(InvalidProgram, match=words):
        opened(change(make([("a", b"1" * 100)])))


def test_split_archives_are_refused():
    data = bytearray(make([("a", b"1")]))
    struct.pack_into("<H", data, len(data) - 18, 1)
    with pytest.raises(NotSupported, match="split"):
        opened(bytes(data))


def test_a_directory_of_millions_is_refused():
    end = struct.pack("<4s4H2IH", b"PK\x05\x06", 0, 0, 0xFFFF, 0xFFFF, 0, 0, 0)
    with pytest.raises(InvalidProgram, match="65535 members"):
        opened(b"PK\x03\x04" + end)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("model", "model"),
        ("../../etc/passwd", "_.._etc_passwd"),
        ("", "fallback"),
        ("...", "fallback"),
        ("con", "fallback"),
        ("\u4f60\u597d", "fallback"),
        ("a b", "a_b"),
    ],
)
def test_safe_file_names(text, expected):
    assert safe_file_name(text, "fallback") == expected


@given(st.text(max_size=200))
def test_safe_file_names_are_always_plain(text):
    name = safe_file_name(text, "fallback")
    assert name
    assert name == Path(name).name
    assert unsafe_reason(name) is None
    assert len(name) <= 80


BASE = make([("a/b.txt", b"hello" * 30), ("empty", b"")]) + b""
DEFLATED_BASE = make([("a/b.txt", b"hello" * 30), ("c", bytes(range(256)))], DEFLATED, b"comment")


@settings(max_examples=300)
@given(
    st.sampled_from([BASE, DEFLATED_BASE]),
    st.lists(st.tuples(st.integers(0, 1 << 16), st.integers(0, 255)), min_size=1, max_size=6),
    st.integers(0, 400),
)
def test_mutated_archives_are_read_or_refused(base, changes, cut):
    data = bytearray(base)
    for position, value in changes:
        data[position % len(data)] = value
    data = bytes(data[: len(data) - cut % 40]) if cut % 3 == 0 else bytes(data)
    try:
        archive = opened(data)
        for name in archive.names():
            try:
                archive.read(name)
            except AotiError as error:
                assert error.path
    except AotiError as error:
        assert str(error)
