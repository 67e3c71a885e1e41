"""Damage for tests: a plugin's bytes, changed in place by what the dynamic linker reads them for."""

from __future__ import annotations

import struct
from collections.abc import Iterator

from aoti_inspect.elf.image import ElfImage

DT_NEEDED, DT_HASH, DT_STRTAB, DT_SYMTAB, DT_STRSZ, DT_SYMENT = 1, 4, 5, 6, 10, 11
DT_VERNEED, DT_VERSYM, DT_GNU_HASH = 0x6FFFFFFE, 0x6FFFFFF0, 0x6FFFFEF5


class Patch:
    """A 64-bit little-endian file to change in place."""

    def __init__(self, data: bytes) -> None:
        self.data = bytearray(data)
        self.image = ElfImage(data, "original")

    def program(self, kind: int) -> int:
        """Offset of the first program header of a kind."""
        for index in range(self.u16(56)):
            at = self.u64(32) + 56 * index
            if self.u32(at) == kind:
                return at
        raise AssertionError(kind)

    def dynamic(self) -> Iterator[int]:
        at = self.u64(self.program(2) + 8)
        while self.u64(at):
            yield at
            at += 16

    def entry(self, tag: int) -> int:
        """Offset of PT_DYNAMIC's first entry with a tag."""
        return next(at for at in self.dynamic() if self.u64(at) == tag)

    def table(self, tag: int) -> int:
        """Offset of the table whose address a tag gives."""
        offset = self.image.space.offset_of(self.u64(self.entry(tag) + 8))
        assert offset is not None
        return offset

    def u16(self, at: int) -> int:
        return struct.unpack_from("<H", self.data, at)[0]

    def u32(self, at: int) -> int:
        return struct.unpack_from("<I", self.data, at)[0]

    def u64(self, at: int) -> int:
        return struct.unpack_from("<Q", self.data, at)[0]

    def put(self, at: int, fields: str, *values: int) -> None:
        struct.pack_into("<" + fields, self.data, at, *values)

    def set(self, tag: int, value: int) -> None:
        self.put(self.entry(tag) + 8, "Q", value)

    def drop(self, tag: int) -> None:
        """Turn an entry into one that means nothing to anybody."""
        self.put(self.entry(tag), "Q", 0x6FFFF000)


def no_sections(patch: Patch) -> None:
    patch.put(40, "Q", 0)
    patch.put(58, "HHH", 0, 0, 0)


def no_hash(patch: Patch) -> None:
    patch.drop(DT_GNU_HASH)
    no_sections(patch)


def no_dynamic_end(patch: Patch) -> None:
    patch.put(patch.program(2) + 32, "Q", 16 * len(list(patch.dynamic())))


def many_dynamic_entries(patch: Patch) -> None:
    start, count = len(patch.data), 20_000
    patch.data += struct.pack("<QQ", 0x6FFFF000, 0) * count
    patch.put(patch.program(1), "IIQQQQQQ", 1, 4, 0, 0, 0, len(patch.data), len(patch.data), 4096)
    patch.put(patch.program(2), "IIQQQQQQ", 2, 4, start, start, start, 16 * count, 16 * count, 8)


def needed_in_control(patch: Patch) -> None:
    at = patch.table(DT_STRTAB) + patch.u64(patch.entry(DT_NEEDED) + 8)
    patch.data[at : at + 6] = b"\x1b[31m\n"


def chain_without_end(patch: Patch) -> None:
    at = patch.table(DT_GNU_HASH)
    buckets, first, words, _ = struct.unpack_from("<IIII", patch.data, at)
    chains = at + 16 + 8 * words + 4 * buckets
    for index in range(patch.image.symbol_table.count - first):
        patch.put(chains + 4 * index, "I", patch.u32(chains + 4 * index) & ~1)


def no_hash_values(patch: Patch) -> None:
    at = patch.table(DT_GNU_HASH)
    buckets, first, words, _ = struct.unpack_from("<IIII", patch.data, at)
    chains = at + 16 + 8 * words + 4 * buckets
    for index in range(patch.image.symbol_table.count - first):
        patch.put(chains + 4 * index, "I", patch.u32(chains + 4 * index) ^ 0x5A5A5A00)


def empty_filter(patch: Patch) -> None:
    at = patch.table(DT_GNU_HASH)
    patch.put(at + 16, f"{patch.u32(at + 8)}Q", *[0] * patch.u32(at + 8))


def name_outside(patch: Patch) -> None:
    patch.put(patch.table(DT_SYMTAB) + 24 * (patch.image.symbol_table.count - 1), "I", 0x7FFFFFF0)
