"""Malformed files: what we say, beside what the C library's own dynamic linker does with them.

Each case is a real plugin with a few bytes changed. A child process opens it with ``dlopen``: what the
dynamic linker loads must give facts, and what it refuses or dies on must give a clear error or an anomaly.
"""

from __future__ import annotations

import os
import struct
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from aoti_abi.errors import AotiError, InvalidProgram
from aoti_inspect.elf.format import layout
from aoti_inspect.elf.image import ElfImage
from aoti_inspect.elf.read import open_elf
from aoti_inspect.elf.records import ElfFacts
from aoti_inspect.elf.strings import StringTable
from aoti_inspect.elf.versions import MAX_RECORDS, read_needs

from .damage import (
    DT_GNU_HASH,
    DT_HASH,
    DT_NEEDED,
    DT_STRSZ,
    DT_STRTAB,
    DT_SYMENT,
    DT_SYMTAB,
    DT_VERNEED,
    Patch,
    chain_without_end,
    empty_filter,
    many_dynamic_entries,
    name_outside,
    needed_in_control,
    no_dynamic_end,
    no_hash,
    no_hash_values,
    no_sections,
)

SHIMS = """
int aoti_torch_dtype_float32(void) { return 6; }
int aoti_torch_get_data_ptr(void *tensor, void **data) { return 0; }
"""
OPEN = """
import ctypes, os, sys
ctypes.CDLL(sys.argv[1], mode=ctypes.RTLD_GLOBAL)
try:
    plugin = ctypes.CDLL(sys.argv[2], mode=os.RTLD_NOW)
except OSError as error:
    print("refused:", error)
    sys.exit()
try:
    plugin.AOTInductorModelContainerRun
except AttributeError:
    print("loaded, but nothing is found in it")
    sys.exit()
print("loaded")
"""


class Case(NamedTuple):
    """One malformed file: how it is made, what dlopen does, and what ours says."""

    name: str
    change: Callable[[Patch], object]
    linker: str
    error: str | None = None
    anomaly: str | None = None


CASES = [
    Case("ok", lambda patch: None, "loaded"),
    Case("no_sections", no_sections, "loaded"),
    Case("section_offset_huge", lambda patch: patch.put(40, "Q", 0xFFFFFFFFFFFFF000), "loaded"),
    Case("section_count_huge", lambda patch: patch.put(60, "H", 0xFFFF), "loaded"),
    Case("section_names_outside", lambda patch: patch.put(62, "H", 0x1234), "loaded"),
    Case("no_stack_header", lambda patch: patch.put(patch.program(0x6474E551), "I", 0), "loaded"),
    Case("no_hash", no_hash, "loaded, but nothing is found in it", anomaly="no hash table that works"),
    Case(
        "gnu_hash_without_buckets",
        lambda patch: patch.put(patch.table(DT_GNU_HASH), "I", 0),
        "loaded, but nothing is found in it",
        anomaly="no buckets",
    ),
    Case(
        "gnu_hash_empty_filter",
        empty_filter,
        "loaded, but nothing is found in it",
        anomaly="does not lead to",
    ),
    Case(
        "gnu_hash_wrong_values",
        no_hash_values,
        "loaded, but nothing is found in it",
        anomaly="does not lead to",
    ),
    Case(
        "gnu_hash_outside",
        lambda patch: patch.set(DT_GNU_HASH, 0x7FFFFFFFF000),
        "crash",
        anomaly="lies outside",
    ),
    Case("gnu_hash_endless", chain_without_end, "any", anomaly="another table begins"),
    Case(
        "gnu_hash_many_buckets",
        lambda patch: patch.put(patch.table(DT_GNU_HASH), "I", 0xFFFFFFFF),
        "any",
        anomaly="more than the file holds",
    ),
    Case(
        "version_count_65535",
        lambda patch: patch.put(patch.table(DT_VERNEED) + 2, "H", 0xFFFF),
        "loaded",
        anomaly="vn_cnt",
    ),
    Case(
        "version_format",
        lambda patch: patch.put(patch.table(DT_VERNEED), "H", 7),
        "refused",
        anomaly="format 7",
    ),
    Case(
        "versions_outside",
        lambda patch: patch.set(DT_VERNEED, 0x7FFFFFFFF000),
        "crash",
        anomaly="outside of the file",
    ),
    Case(
        "version_overlap",
        lambda patch: patch.put(patch.table(DT_VERNEED) + 12, "I", 1),
        "any",
        anomaly="overlap",
    ),
    Case("needed_control_characters", needed_in_control, "refused"),
    Case(
        "needed_outside", lambda patch: patch.set(DT_NEEDED, 0x7FFFFFF0), "crash", error="DT_NEEDED entry 1"
    ),
    Case("strings_outside", lambda patch: patch.set(DT_STRTAB, 0x7FFFFFFFF000), "crash", error="DT_STRTAB"),
    Case("symbols_outside", lambda patch: patch.set(DT_SYMTAB, 0x7FFFFFFFF000), "crash", error="DT_SYMTAB"),
    Case("strings_too_long", lambda patch: patch.set(DT_STRSZ, 1 << 40), "loaded", anomaly="claims"),
    Case("strings_without_size", lambda patch: patch.drop(DT_STRSZ), "loaded", anomaly="not given"),
    Case("symbol_size", lambda patch: patch.set(DT_SYMENT, 999), "loaded", anomaly="DT_SYMENT"),
    Case("symbol_name_outside", name_outside, "any", anomaly="name outside"),
    Case(
        "dynamic_empty",
        lambda patch: patch.put(patch.program(2) + 32, "Q", 0),
        "refused",
        anomaly="object file has no dynamic section",
    ),
    Case(
        "dynamic_outside",
        lambda patch: patch.put(patch.program(2) + 16, "Q", 1 << 45),
        "crash",
        error="no PT_LOAD maps",
    ),
    Case(
        "dynamic_offset",
        lambda patch: patch.put(patch.program(2) + 8, "Q", 64),
        "loaded",
        anomaly="different bytes",
    ),
    Case("dynamic_without_end", no_dynamic_end, "loaded", anomaly="DT_NULL"),
    Case("dynamic_endless", many_dynamic_entries, "any", error="does not end within"),
    Case("program_header_size", lambda patch: patch.put(54, "H", 57), "refused", error="57 bytes each"),
    Case(
        "program_headers_outside",
        lambda patch: patch.put(32, "Q", 1 << 50),
        "refused",
        error="not inside the file",
    ),
    Case(
        "half",
        lambda patch: patch.data.__delitem__(slice(len(patch.data) // 2, None)),
        "crash",
        error="truncated",
    ),
    Case(
        "header_only",
        lambda patch: patch.data.__delitem__(slice(64, None)),
        "refused",
        error="not inside the file",
    ),
    Case(
        "forty_bytes",
        lambda patch: patch.data.__delitem__(slice(40, None)),
        "refused",
        error="cut off after 40 bytes",
    ),
    Case(
        "magic_only",
        lambda patch: patch.data.__delitem__(slice(4, None)),
        "refused",
        error="cut off after 4 bytes",
    ),
    Case("class", lambda patch: patch.put(4, "B", 7), "refused", error="class 7"),
    Case("byte_order", lambda patch: patch.put(5, "B", 0), "refused", error="byte order 0"),
    Case("empty", lambda patch: patch.data.clear(), "refused", error="an empty file"),
]


@pytest.fixture(scope="module")
def shims(compile_library: Callable[..., str]) -> str:
    return compile_library(SHIMS, name="shims.so")


def linker_verdict(path: Path, shims: str) -> str:
    """Return "loaded", "loaded, but ...", "refused: ..." or "crash"."""
    done = subprocess.run([sys.executable, "-S", "-c", OPEN, shims, path], capture_output=True, text=True)
    return done.stdout.strip() if done.returncode == 0 else "crash"


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_ours_agrees_with_the_dynamic_linker(case: Case, small_plugin: Path, shims: str, tmp_path: Path):
    patch = Patch(small_plugin.read_bytes())
    original = patch.image.facts()
    case.change(patch)
    path = tmp_path / f"{case.name}.so"
    path.write_bytes(patch.data)
    if case.linker != "any":
        verdict = linker_verdict(path, shims)
        assert verdict.partition(":")[0] == case.linker, verdict
    if case.error is not None:
        with pytest.raises(InvalidProgram, match=case.error) as caught, open_elf(str(path)) as image:
            image.facts()
        assert caught.value.path == str(path)
        return
    with open_elf(str(path)) as image:
        facts = image.facts()
        names = set(image.defined_names())
        found = {name for name in original.exports.container if image.defines(name)}
    if case.linker != "any":
        # What the dynamic linker can't use must not be forecast to load. (The name with control characters is
        # well-formed: there is just no such library.)
        works = case.linker == "loaded" or case.name == "needed_control_characters"
        assert (facts.unusable == ()) is works, facts.unusable
    if case.anomaly is None:
        assert facts.anomalies == ()
    else:
        assert any(case.anomaly in sentence for sentence in facts.anomalies), facts.anomalies
    if facts.is_dynamic and case.name != "symbol_name_outside":
        # Whatever the hash tables say, the symbol table decides what the file defines.
        assert facts.symbol_count == original.symbol_count
        assert facts.exports.container == original.exports.container
        assert [symbol.name for symbol in facts.undefined] == [symbol.name for symbol in original.undefined]
        assert set(original.exports.container) <= names
        assert found == set(original.exports.container)


def facts_of(data: bytes) -> ElfFacts:
    return ElfImage(data, "test.so").facts()


@pytest.mark.parametrize("claimed", [3, 1000, 0xFFFFFFFF])
def test_a_sysv_hash_table_that_lies_about_the_count(elf_writer, claimed: int):
    names = [f"function_{number}" for number in range(20)]
    data = bytearray(elf_writer(defined=names, undefined=["u"], hashes=("sysv",)).build())
    image = ElfImage(bytes(data), "test.so")
    address = image.dynamic.values[DT_HASH]  # type: ignore[union-attr]
    struct.pack_into("<I", data, image.space.offset_of(address) + 4, claimed)
    image = ElfImage(bytes(data), "test.so")
    facts = image.facts()
    assert facts.symbol_count == 22
    assert facts.anomalies
    assert {name for name in names if image.defines(name)} == set(names)


def test_a_sysv_chain_in_a_circle_ends(elf_writer):
    writer = elf_writer(defined=["aa", "bb", "cc"], hashes=("sysv",))
    data = bytearray(writer.build())
    image = ElfImage(bytes(data), "test.so")
    at = image.space.offset_of(image.dynamic.values[DT_HASH])  # type: ignore[union-attr]
    buckets, symbols = struct.unpack_from("<II", data, at)
    for index in range(buckets + symbols):
        struct.pack_into("<I", data, at + 8 + 4 * index, 1)
    image = ElfImage(bytes(data), "test.so")
    assert image.defines("absent") is None
    assert image.defines("cc") is not None, "the symbol table decides"


def test_names_that_overlap_without_end_are_refused(elf_writer):
    """Every symbol's name is almost the whole string table: reading them all would take hours."""
    writer = elf_writer(undefined=[(b"n" * 60_000, 1)], hashes=())
    writer.undefined += [(b"", 1)] * 30_000
    data = bytearray(writer.build())
    image = ElfImage(bytes(data), "test.so")
    table = image.space.offset_of(image.dynamic.values[DT_SYMTAB])  # type: ignore[union-attr]
    for index in range(2, 30_001):
        struct.pack_into("<I", data, table + 24 * index, 1 + index % 100)
    with pytest.raises(InvalidProgram, match="overlap each other without end"):
        facts_of(bytes(data))


def one_long_chain(data: bytes, address_of: int) -> bytes:
    """Put every symbol into one chain, which each bucket leads to; a Bloom filter lets all through."""
    changed = bytearray(data)
    image = ElfImage(data, "test.so")
    at = image.space.offset_of(image.dynamic.values[address_of])  # type: ignore[union-attr]
    if address_of == DT_HASH:
        buckets, symbols = struct.unpack_from("<II", changed, at)
        struct.pack_into(f"<{buckets}I", changed, at + 8, *[1] * buckets)
        chain = [0, *range(2, symbols), 0]
        struct.pack_into(f"<{symbols}I", changed, at + 8 + 4 * buckets, *chain)
        return bytes(changed)
    buckets, first, words, _ = struct.unpack_from("<IIII", changed, at)
    changed[at + 16 : at + 16 + 8 * words] = b"\xff" * (8 * words)
    table = at + 16 + 8 * words
    struct.pack_into(f"<{buckets}I", changed, table, *[first] * buckets)
    count = image.symbol_table.count - first
    hashes = struct.unpack_from(f"<{count}I", changed, table + 4 * buckets)
    ends = [value & ~1 for value in hashes[:-1]] + [hashes[-1] | 1]
    struct.pack_into(f"<{count}I", changed, table + 4 * buckets, *ends)
    return bytes(changed)


@pytest.mark.parametrize(("style", "tag"), [("sysv", DT_HASH), ("gnu", DT_GNU_HASH)])
def test_lookups_in_a_chain_without_end_are_bounded(elf_writer, style: str, tag: int):
    """A thousand lookups along a chain of thousands of symbols would take a minute."""
    names = [f"AOTInductorModelContainer{number}" for number in range(3000)]
    writer = elf_writer(defined=names, undefined=["u"], hashes=(style,))
    data = one_long_chain(writer.build(), tag)
    start = time.monotonic()
    with pytest.raises(InvalidProgram, match="chains of the hash table are too long"):
        facts_of(data)
    assert time.monotonic() - start < 20


def test_a_chain_of_versions_without_end_is_bounded(elf_writer):
    writer = elf_writer(
        versions={"liba.so": [(f"V{number}", 2) for number in range(40_000)]}, needed=["liba.so"]
    )
    facts = facts_of(writer.build())
    assert any("more than" in sentence for sentence in facts.anomalies)


def test_version_needs_that_share_one_long_chain_are_bounded():
    """Each of many libraries leads to one chain of many records without a name: a billion in all."""
    libraries = records = MAX_RECORDS - 2
    chain = 16 * libraries
    data = (
        b"".join(
            struct.pack("<HHIII", 1, 1, 0, chain - 16 * index, 16 if index + 1 < libraries else 0)
            for index in range(libraries)
        )
        + struct.pack("<IHHII", 0, 0, 2, 99, 16) * records
    )
    reads = 0

    def read(address: int, size: int) -> bytes:
        nonlocal reads
        reads += 1
        return data[address : address + size]

    notes: list[str] = []
    needs = read_needs(
        0,
        libraries,
        layout(64, "little"),
        strings=StringTable(b"liba\0"),
        read=read,
        note=lambda sentence, **_kind: notes.append(sentence),
    )
    assert needs == []
    assert "the rest was not read" in notes[-1]
    assert reads < 4 * MAX_RECORDS


def test_versions_of_a_library_that_is_not_needed(elf_writer):
    facts = facts_of(elf_writer(undefined=[("f", 2)], versions={"libgone.so": [("V1", 2)]}).build())
    assert any("libgone.so is not in DT_NEEDED" in sentence for sentence in facts.anomalies)


def test_a_version_number_without_a_version(elf_writer):
    facts = facts_of(
        elf_writer(undefined=[("f", 77)], versions={"liba.so": [("V1", 2)]}, needed=["liba.so"]).build()
    )
    assert facts.undefined[0].version is None
    assert any("version number 77" in sentence for sentence in facts.anomalies)


def test_every_truncation_of_a_plugin_is_a_result_or_our_error(small_plugin: Path):
    data = small_plugin.read_bytes()
    for size in [*range(200), *range(200, len(data), 61)]:
        try:
            facts_of(data[:size])
        except AotiError as error:
            assert str(error)


def test_a_huge_sparse_string_table_is_refused_at_once(elf_writer, tmp_path: Path):
    data = bytearray(elf_writer(defined=["f"], needed=["liba.so"]).build())
    load = struct.unpack_from("<Q", data, 32)[0]
    size = 4 << 30
    struct.pack_into("<QQ", data, load + 32, size, size)
    for at in range(0, len(data) - 16, 8):
        if struct.unpack_from("<Q", data, at)[0] == DT_STRSZ:
            struct.pack_into("<Q", data, at + 8, 3 << 30)
    path = tmp_path / "sparse.so"
    path.write_bytes(data)
    os.truncate(path, size)
    with pytest.raises(InvalidProgram, match="string table has"), open_elf(str(path)) as opened:
        opened.facts()
