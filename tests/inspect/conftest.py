"""What the tests of the inspector share: a writer of small ELF files, and a plugin to take apart."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
BASE = 0x40000


class ElfWriter:
    """Writes a shared library of any class and byte order, with the tables that a dynamic linker reads.

    One PT_LOAD maps the file at ``BASE``, so that addresses and offsets differ. There are no sections.

    Args:
        bits, order, machine: of the header.
        undefined: names, or (name, version number) pairs; version numbers are those of ``versions``.
        defined: names, or (name, binding, value, size) tuples.
        versions: {library: [(version, number), ...]}.
        needed, soname, runpath: of PT_DYNAMIC.
        tags: further entries of PT_DYNAMIC.
        hashes: which tables to write, of "gnu" and "sysv".
        stack: flags of PT_GNU_STACK, None for no such header.
        blob: bytes put at the end and mapped; their address is `blob_address`.
    """

    def __init__(self, bits: int = 64, order: str = "little", machine: int = 62, **parts: Any) -> None:
        self.bits, self.order, self.machine = bits, order, machine
        self.mark = "<" if order == "little" else ">"
        self.undefined = [
            item if isinstance(item, tuple) else (item, 1) for item in parts.pop("undefined", ())
        ]
        self.defined = [
            item if isinstance(item, tuple) else (item, 1, BASE, 4) for item in parts.pop("defined", ())
        ]
        self.versions = parts.pop("versions", {})
        self.needed = parts.pop("needed", ())
        self.soname, self.runpath = parts.pop("soname", None), parts.pop("runpath", None)
        self.tags = parts.pop("tags", ())
        self.hashes = parts.pop("hashes", ("gnu",))
        self.stack = parts.pop("stack", 6)
        self.blob = parts.pop("blob", b"")
        assert not parts, parts
        self.strings = bytearray(b"\0")

    def pack(self, fields: str, *values: int) -> bytes:
        return struct.pack(self.mark + fields, *values)

    def string(self, text: str | bytes) -> int:
        raw = text.encode() if isinstance(text, str) else text
        at = len(self.strings)
        self.strings += raw + b"\0"
        return at

    def symbol(self, name: int, info: int, section: int, value: int, size: int) -> bytes:
        if self.bits == 64:
            return self.pack("IBBHQQ", name, info, 0, section, value, size)
        return self.pack("IIIBBH", name, value, size, info, 0, section)

    def gnu_table(self, names: list[bytes], first: int) -> tuple[bytes, list[bytes]]:
        def value_of(name: bytes) -> int:
            value = 5381
            for byte in name:
                value = (value * 33 + byte) & 0xFFFFFFFF
            return value

        buckets, shift, width = max(1, len(names) // 2), 6, self.bits
        names = sorted(names, key=lambda name: value_of(name) % buckets)
        bloom, starts, chains = 0, [0] * buckets, []
        for index, name in enumerate(names):
            value = value_of(name)
            bloom |= 1 << value % width | 1 << (value >> shift) % width
            bucket = value % buckets
            starts[bucket] = starts[bucket] or first + index
            last = index + 1 == len(names) or value_of(names[index + 1]) % buckets != bucket
            chains.append(value & ~1 | last)
        word = "Q" if width == 64 else "I"
        table = self.pack("IIII" + word, buckets, first, 1, shift, bloom)
        table += b"".join(self.pack("I", item) for item in (*starts, *chains))
        return table, names

    def sysv_table(self, names: list[bytes]) -> bytes:
        def value_of(name: bytes) -> int:
            value = 0
            for byte in name:
                value = (value << 4) + byte
                high = value & 0xF0000000
                value = (value ^ high >> 24) & ~high & 0xFFFFFFFF
            return value

        width = "Q" if self.bits == 64 and self.machine in (22, 0x9026) else "I"
        buckets = [0] * max(1, len(names) // 2)
        chain = [0] * len(names)
        for index, name in enumerate(names):
            if index and name:
                bucket = value_of(name) % len(buckets)
                chain[index], buckets[bucket] = buckets[bucket], index
        return b"".join(self.pack(width, item) for item in (len(buckets), len(names), *buckets, *chain))

    def build(self) -> bytes:
        defined = {(item[0].encode() if isinstance(item[0], str) else item[0]): item for item in self.defined}
        first = 1 + len(self.undefined)
        gnu, order = self.gnu_table(list(defined), first)
        symbols, versym, names = self.symbol(0, 0, 0, 0, 0), self.pack("H", 0), [b""]
        for name, number in self.undefined:
            symbols += self.symbol(self.string(name), 0x10, 0, 0, 0)
            versym += self.pack("H", number)
            names.append(b"")
        for raw in order:
            _, binding, value, size = defined[raw]
            kind = 2 if raw.startswith(b"AOTInductor") else 1
            symbols += self.symbol(self.string(raw), binding << 4 | kind, 1, value, size)
            versym += self.pack("H", 1)
            names.append(raw)
        verneed = self.version_needs()
        entries = [(1, self.string(name)) for name in self.needed]
        if self.soname:
            entries.append((14, self.string(self.soname)))
        if self.runpath:
            entries.append((29, self.string(self.runpath)))
        entries += self.tags
        tables = {6: symbols, 5: bytes(self.strings)}
        if self.versions:
            tables |= {0x6FFFFFF0: versym, 0x6FFFFFFE: verneed}
            entries.append((0x6FFFFFFF, len(self.versions)))
        tables |= {0x6FFFFEF5: gnu} if "gnu" in self.hashes else {}
        tables |= {4: self.sysv_table(names)} if "sysv" in self.hashes else {}
        return self.lay_out(tables, entries)

    def version_needs(self) -> bytes:
        out = b""
        for position, (library, versions) in enumerate(self.versions.items(), start=1):
            last = position == len(self.versions)
            size = 16 + 16 * len(versions)
            out += self.pack("HHIII", 1, len(versions), self.string(library), 16, 0 if last else size)
            for index, (version, number) in enumerate(versions, start=1):
                step = 0 if index == len(versions) else 16
                out += self.pack("IHHII", 0, 0, number, self.string(version), step)
        return out

    def lay_out(self, tables: dict[int, bytes], entries: list[tuple[int, int]]) -> bytes:
        wide = self.bits == 64
        header_size, program_size = (64, 56) if wide else (52, 32)
        count = 2 + (self.stack is not None)
        at = header_size + count * program_size
        body = b""
        for tag, table in tables.items():
            body += bytes(-(at + len(body)) % 8)
            entries.append((tag, BASE + at + len(body)))
            body += table
        entries += [(10, len(self.strings)), (11, 24 if wide else 16), (0, 0)]
        body += bytes(-(at + len(body)) % 8)
        dynamic_at = at + len(body)
        dynamic = b"".join(self.pack("qQ" if wide else "iI", *entry) for entry in entries)
        body += dynamic
        self.blob_address = BASE + at + len(body)
        body += self.blob
        total = at + len(body)

        def program(kind: int, flags: int, offset: int, size: int, align: int) -> bytes:
            address = BASE + offset
            if wide:
                return self.pack("IIQQQQQQ", kind, flags, offset, address, address, size, size, align)
            return self.pack("IIIIIIII", kind, offset, address, address, size, size, flags, align)

        programs = program(1, 7, 0, total, 0x1000) + program(2, 6, dynamic_at, len(dynamic), 8)
        if self.stack is not None:
            programs += program(0x6474E551, self.stack, 0, 0, 16)
        head = b"\x7fELF" + bytes([2 if wide else 1, 1 if self.order == "little" else 2, 1]) + bytes(9)
        head += self.pack(
            "HHIQQQIHHHHHH" if wide else "HHIIIIIHHHHHH",
            *(3, self.machine, 1, 0, header_size, 0, 0, header_size, program_size, count, 0, 0, 0),
        )
        return head + programs + body


@pytest.fixture(scope="session")
def elf_writer() -> type[ElfWriter]:
    return ElfWriter


@pytest.fixture(scope="session")
def plugins() -> Path:
    """The folder of real plugins."""
    return ROOT / "fixtures" / "plugins"


@pytest.fixture(scope="session")
def small_plugin(compile_library: Callable[..., str]) -> Path:
    """A small plugin, compiled from fixtures/elf/plugin.cpp, with a read-write stack and one hash table."""
    source = (ROOT / "fixtures" / "elf" / "plugin.cpp").read_text()
    flags = ("-O1", "-Wl,--hash-style=gnu", "-Wl,--build-id=sha1", "-Wl,-z,noexecstack", "-Wl,-z,lazy")
    return Path(compile_library(source, *flags, name="small_plugin.so", cxx=True))
