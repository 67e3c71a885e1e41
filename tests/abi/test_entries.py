"""The decoder of entry arrays on hostile memory: real pages, guard pages, arrays of every wrong kind."""

from __future__ import annotations

import ctypes
import mmap
import os
import re
import struct
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from aoti_abi import memory
from aoti_abi.entries import MAX_ENTRIES, Entry, extract_entries, read_entries
from aoti_abi.errors import AotiError, InvalidProgram, NotSupported
from aoti_abi.structs import AOTInductorConstantMapEntry, EntryPointer

if TYPE_CHECKING:
    from collections.abc import Iterator

PAGE = mmap.PAGESIZE
_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = (
    ctypes.c_void_p,
    ctypes.c_size_t,
    ctypes.c_int,
    ctypes.c_int,
    ctypes.c_int,
    ctypes.c_long,
)
_libc.mprotect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
_libc.munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)


class Guarded:
    """Two pages of memory between two that nobody may touch."""

    def __init__(self) -> None:
        self.base = _libc.mmap(None, 4 * PAGE, 3, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1, 0)
        for offset in (0, 3 * PAGE):
            assert _libc.mprotect(self.base + offset, PAGE, 0) == 0
        self.start, self.end = self.base + PAGE, self.base + 3 * PAGE

    def write(self, address: int, data: bytes) -> int:
        assert self.start <= address <= address + len(data) <= self.end
        ctypes.memmove(address, data, len(data))
        return address

    def at_end(self, data: bytes) -> int:
        """Place bytes so that the next one is guarded."""
        return self.write(self.end - len(data), data)

    def close(self) -> None:
        _libc.munmap(self.base, 4 * PAGE)


@pytest.fixture(scope="module")
def guarded() -> Iterator[Guarded]:
    region = Guarded()
    yield region
    region.close()


def entry(name: int, handle: int = 0x1000) -> bytes:
    return struct.pack("=QQ", name, handle)


def array_of(region: Guarded, names: list[bytes], handles: list[int] | None = None) -> int:
    """Write names and, at the very end of readable memory, their array; return the array's address."""
    cursor, addresses = region.start, []
    for name in names:
        addresses.append(region.write(cursor, name + b"\0"))
        cursor += len(name) + 1
    handles = handles or [0x1000 + 16 * index for index in range(len(names))]
    return region.at_end(b"".join(map(entry, addresses, handles)))


def test_L5_entries_are_copied(guarded: Guarded) -> None:
    address = array_of(guarded, [b"layers.0.weight", "größe".encode()])
    entries = read_entries(address, 2)
    ctypes.memset(guarded.start, 0xFF, 2 * PAGE)
    assert entries == (Entry("layers.0.weight", 0x1000), Entry("größe", 0x1010))


@pytest.mark.parametrize("address", [0, 1, 1 << 63, (1 << 64) - 1])
def test_L6_a_count_of_zero_is_an_empty_result(address: int) -> None:
    assert read_entries(address, 0) == ()


def test_L6_null_array_with_a_count_is_rejected() -> None:
    with pytest.raises(InvalidProgram, match="answers 3 constant entries with a null array"):
        read_entries(0, 3)


def test_L6_null_name_is_rejected(guarded: Guarded) -> None:
    address = guarded.at_end(entry(0))
    with pytest.raises(InvalidProgram, match="name of constant entry 0 is null"):
        read_entries(address, 1)


def test_L6_null_handle_is_rejected(guarded: Guarded) -> None:
    address = array_of(guarded, [b"a", b"b"], [0x1000, 0])
    with pytest.raises(InvalidProgram, match=r"entry 1 \('b'\) has a null handle"):
        read_entries(address, 2)


@pytest.mark.parametrize("count", [-1, MAX_ENTRIES + 1, 1 << 31, (1 << 64) - 1])
def test_L6_absurd_count_is_rejected_before_any_read(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "read_prefix", lambda *_: pytest.fail("memory was read"))
    with pytest.raises(InvalidProgram, match=f"claims {count} constant entries"):
        read_entries(0x1000, count)


def test_L6_the_number_of_constants_bounds_the_count(guarded: Guarded) -> None:
    address = array_of(guarded, [b"a", b"b"])
    assert len(read_entries(address, 2, limit=2)) == 2
    with pytest.raises(InvalidProgram, match="claims 2 constant entries, of at most 1"):
        read_entries(address, 2, limit=1)


@pytest.mark.parametrize("extra", [1, 2, 1000])
def test_L6_an_array_that_runs_into_a_guard_page_is_rejected(guarded: Guarded, extra: int) -> None:
    address = array_of(guarded, [b"a", b"b"])
    with pytest.raises(InvalidProgram, match="runs out of readable memory after 32 bytes"):
        read_entries(address, 2 + extra)


@pytest.mark.parametrize(
    "address", [1, 8, 0xDEAD0000, 1 << 47, 1 << 63, (1 << 64) - 16, 1 << 64, 1 << 70, -16]
)
def test_L6_P8_an_array_at_a_wild_address_is_rejected(address: int) -> None:
    with pytest.raises(InvalidProgram):
        read_entries(address, 1)


def test_L6_a_guarded_array_is_rejected_though_the_kernel_could_read_it(guarded: Guarded) -> None:
    with pytest.raises(InvalidProgram, match="after 0 bytes"):
        read_entries(guarded.end, 1)


def test_L6_a_name_that_runs_into_a_guard_page_is_rejected(guarded: Guarded) -> None:
    address = guarded.write(guarded.start, entry(guarded.at_end(b"weight")))
    with pytest.raises(
        InvalidProgram, match=r"name of constant entry 0 .* runs out of readable memory after 6"
    ):
        read_entries(address, 1)


def test_L6_a_name_right_before_a_guard_page_is_read(guarded: Guarded) -> None:
    address = guarded.write(guarded.start, entry(guarded.at_end(b"weight\0")))
    assert read_entries(address, 1) == (Entry("weight", 0x1000),)


def test_L6_a_name_across_two_pages_is_read(guarded: Guarded) -> None:
    name = b"n" * 1000
    address = guarded.at_end(entry(guarded.write(guarded.start + PAGE - 300, name + b"\0")))
    assert read_entries(address, 1)[0].name == name.decode()


def test_L6_an_unterminated_name_is_rejected(guarded: Guarded) -> None:
    ctypes.memset(guarded.start, ord("x"), 2 * PAGE)
    address = guarded.at_end(entry(guarded.start))
    with pytest.raises(InvalidProgram, match="not NUL-terminated within 5000 bytes"):
        read_entries(address, 1, name_bound=5000)


def test_L6_a_name_that_is_not_utf8_is_rejected(guarded: Guarded) -> None:
    address = array_of(guarded, [b"ok", b"\xff\xfe"])
    with pytest.raises(InvalidProgram, match="constant entry 1 is not UTF-8"):
        read_entries(address, 2)


@pytest.mark.parametrize("handles", [[0x1000, 0x1000], [0x1000, 0x2000]])
def test_L6_duplicate_name_is_rejected(guarded: Guarded, handles: list[int]) -> None:
    address = array_of(guarded, [b"constant3", b"constant3"], handles)
    with pytest.raises(InvalidProgram, match="entry 1 repeats the name 'constant3'") as caught:
        read_entries(address, 2)
    assert "constant table" in (caught.value.hint or "")


def test_L6_a_name_may_repeat_as_often_as_the_containers_own_table_has_it(guarded: Guarded) -> None:
    address = array_of(guarded, [b"constant3", b"w", b"constant3"])
    entries = read_entries(address, 3, expected=["constant3", "constant3", "w"])
    assert [item.name for item in entries] == ["constant3", "w", "constant3"]
    assert entries[0].handle != entries[2].handle
    with pytest.raises(InvalidProgram, match="entry 2 repeats the name 'constant3'"):
        read_entries(address, 3, expected=["constant3", "w"])


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_L6_any_memory_gives_entries_or_one_error(guarded: Guarded, data: st.DataObject) -> None:
    ctypes.memmove(guarded.start, data.draw(st.binary(min_size=64, max_size=64)) * (2 * PAGE // 64), 2 * PAGE)
    wild = st.one_of(
        st.integers(0, (1 << 64) - 1),
        st.integers(guarded.base - 64, guarded.base + 4 * PAGE + 64),
        st.sampled_from([0, 1, guarded.end - 1, guarded.end, guarded.start]),
    )
    rows = data.draw(st.lists(st.tuples(wild, wild), max_size=8))
    raw = b"".join(entry(*row) for row in rows)
    address = data.draw(st.one_of(wild, st.just(guarded.at_end(raw))))
    count = data.draw(st.one_of(st.just(len(rows)), st.integers(-4, 1 << 64)))
    try:
        entries = read_entries(address, count)
    except InvalidProgram as error:
        assert str(error)
    else:
        assert len(entries) == count
        assert len({item.name for item in entries}) == count
        assert all(item.handle for item in entries)


@pytest.mark.parametrize("reader", [memory._read_by_call, memory._read_by_file])
def test_both_ways_of_reading_memory_work(reader: object, guarded: Guarded) -> None:
    guarded.at_end(b"tail")
    assert reader(guarded.end - 4, 4) == b"tail"  # type: ignore[operator]
    assert reader(8, 4) == b""  # type: ignore[operator]
    assert reader((1 << 63) + 8, 4) == b""  # type: ignore[operator]


def test_the_second_way_is_taken_where_the_first_is_forbidden(monkeypatch: pytest.MonkeyPatch) -> None:
    text = ctypes.create_string_buffer(b"hello")
    monkeypatch.setattr(memory, "_process_vm_readv", lambda: None)
    memory._reader.cache_clear()
    try:
        assert memory.read_string(ctypes.addressof(text), "it") == b"hello"
        monkeypatch.setattr(memory, "_read_by_file", lambda *_: b"")
        memory._reader.cache_clear()
        with pytest.raises(NotSupported, match="may not read its own memory"):
            memory.read_string(ctypes.addressof(text), "it")
    finally:
        memory._reader.cache_clear()


def test_memory_past_the_end_of_a_truncated_file_is_not_touched(tmp_path: object) -> None:
    """A plain read there would be a bus error."""
    path = os.path.join(str(tmp_path), "short")
    with open(path, "w+b") as stream:
        stream.truncate(2 * PAGE)
        address = _libc.mmap(None, 2 * PAGE, 1, mmap.MAP_SHARED, stream.fileno(), 0)
        stream.truncate(PAGE)
    try:
        assert memory.read_prefix(address, PAGE) == bytes(PAGE)
        assert memory.read_prefix(address + PAGE, 8) == b""
        with pytest.raises(InvalidProgram, match="runs out of readable memory"):
            memory.read_string(address + PAGE, "a name")
    finally:
        _libc.munmap(address, 2 * PAGE)


Array = AOTInductorConstantMapEntry * 2


def test_L3_P1_extraction_returns_what_the_container_lists() -> None:
    text = ctypes.create_string_buffer(b"weight")
    array = Array()
    array[0].name, array[0].handle = ctypes.addressof(text), 0x10

    @ctypes.CFUNCTYPE(
        ctypes.c_int32,
        ctypes.c_void_p,
        ctypes.POINTER(EntryPointer),
        ctypes.POINTER(ctypes.c_size_t),
        ctypes.c_bool,
    )
    def extract(container: int, entries: object, count: object, use_inactive: bool) -> int:
        assert container == 7
        entries[0] = ctypes.cast(array, EntryPointer)  # type: ignore[index]
        count[0] = 0 if use_inactive else 1  # type: ignore[index]
        return 0

    assert extract_entries(extract, 7) == (Entry("weight", 0x10),)
    assert extract_entries(extract, 7, use_inactive=True) == ()


@pytest.mark.parametrize("words", ["no such map", None])
def test_L6_R14_an_extraction_error_keeps_the_plugins_words(words: str | None) -> None:
    with pytest.raises(InvalidProgram, match="could not list its constants: error 1") as caught:
        extract_entries(lambda *_: 1, 7, last_error=lambda: words)
    assert caught.value.cause == words
    assert isinstance(caught.value, AotiError)


def test_R6_nothing_else_decodes_the_entries() -> None:
    """Other modules get their entries from `extract_entries`, which validates them."""
    root = Path(__file__).resolve().parents[2]
    sources = {
        path: path.read_text()
        for folder in ("abi", "inspect", "loader", "executor")
        for path in (root / folder).rglob("*.py")
    }
    decoding = {
        path.stem for path, text in sources.items() if re.search(r"\b(read_entries\(|EntryPointer\b)", text)
    }
    assert decoding <= {"entries", "structs", "prototypes"}
    asking = [text for text in sources.values() if '.function("ExtractConstantsMapEntries")' in text]
    assert asking
    assert all("extract_entries(" in text for text in asking)
