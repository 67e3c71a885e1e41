"""Files that cost a careless reader far more than their size, each a few megabytes at most.

Every builder takes a scale: how many entries its table has. `benchmarks/bench_cost.py` measures them at full
scale; the tests count the work over a small one.
"""

from __future__ import annotations

import io
import json
import struct
import zipfile
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

BASE = 0x400000
PT_LOAD, PT_DYNAMIC, PT_NOTE = 1, 2, 4
DT_NEEDED, DT_STRTAB, DT_SYMTAB, DT_STRSZ, DT_SYMENT, DT_RPATH, DT_RUNPATH, DT_HASH = (
    1,
    5,
    6,
    10,
    11,
    15,
    29,
    4,
)
DT_RELA, DT_RELASZ, DT_RELAENT = 7, 8, 9
DT_VERSYM, DT_VERNEED, DT_VERNEEDNUM = 0x6FFFFFF0, 0x6FFFFFFE, 0x6FFFFFFF
DT_VERDEF, DT_VERDEFNUM = 0x6FFFFFFC, 0x6FFFFFFD
ENTRY_POINTS = tuple(
    b"AOTInductorModelContainer" + name
    for name in (b"Create", b"Delete", b"Run", b"GetNumInputs", b"GetNumOutputs")
)


class Library:
    """A shared library for x86-64 in the making; one PT_LOAD maps all of it."""

    def __init__(self) -> None:
        self.strings = bytearray(b"\0")
        self.symbols = [bytes(24)]
        self.versions: list[int] = [0]
        self.dynamic: list[tuple[int, int]] = []
        self.tables: list[tuple[int, bytes]] = []
        self.segments: list[tuple[int, int, int, int, int]] = []
        self.sections: list[tuple[bytes, int, int, int]] = []
        self.blob = b""
        for name in ENTRY_POINTS:
            self.define(name)

    def string(self, text: bytes) -> int:
        """Put a name into the string table; return its offset."""
        self.strings += text + b"\0"
        return len(self.strings) - len(text) - 1

    def define(self, name: bytes, *, info: int = 0x12) -> None:
        """Add a defined symbol."""
        self.symbols.append(struct.pack("<IBBHQQ", self.string(name), info, 0, 1, BASE, 8))
        self.versions.append(1)

    def undefine(self, name: bytes, version: int = 1) -> None:
        """Add an undefined symbol."""
        self.symbols.append(struct.pack("<IBBHQQ", self.string(name), 0x12, 0, 0, 0, 0))
        self.versions.append(version)

    def needs(self, library: bytes, names: list[bytes]) -> None:
        """Write DT_VERNEED: versions of one library."""
        out = bytearray(struct.pack("<HHIII", 1, len(names) & 0xFFFF, self.string(library), 16, 0))
        for number, name in enumerate(names):
            step = 16 if number + 1 < len(names) else 0
            out += struct.pack("<IHHII", 0, 0, (number + 2) & 0x7FFF, self.string(name), step)
        self.tables.append((DT_VERNEED, bytes(out)))
        self.dynamic.append((DT_VERNEEDNUM, 1))

    def build(self) -> bytes:
        """Lay the file out: header, program headers, blob, tables, PT_DYNAMIC, sections."""
        count = 2 + len(self.segments)
        at = 64 + 56 * count
        body = bytearray()

        def put(data: bytes) -> int:
            body.extend(bytes(-(at + len(body)) % 16))
            body.extend(data)
            return at + len(body) - len(data)

        blob = put(self.blob)
        # One bucket for each symbol, and chains of one.
        names = [bytes(self.strings[n : self.strings.index(b"\0", n)]) for n in self._offsets()]
        buckets, chain = [0] * len(names), [0] * len(names)
        for index, name in enumerate(names):
            if index:
                bucket = sysv_hash(name) % len(buckets)
                chain[index], buckets[bucket] = buckets[bucket], index
        tables = [*self.tables, (DT_SYMTAB, b"".join(self.symbols))]
        tables.append(
            (DT_HASH, struct.pack(f"<{2 + 2 * len(names)}I", len(names), len(names), *buckets, *chain))
        )
        tables.append((DT_VERSYM, struct.pack(f"<{len(self.versions)}H", *self.versions)))
        tables.append((DT_STRTAB, bytes(self.strings)))
        entries = [*self.dynamic, (DT_STRSZ, len(self.strings)), (DT_SYMENT, 24)]
        entries += [(tag, BASE + put(table)) for tag, table in tables]
        dynamic = b"".join(struct.pack("<QQ", *entry) for entry in (*entries, (0, 0)))
        dynamic_at = put(dynamic)
        end = at + len(body)
        section_at, section_names = 0, b"\0.shstrtab\0"
        if self.sections:
            headers, places = [bytes(64)], {}
            for name, kind, offset, size in self.sections:
                if name not in places:
                    places[name] = len(section_names)
                    section_names += name + b"\0"
                where = blob if offset < 0 else offset
                headers.append(struct.pack("<IIQQQQIIQQ", places[name], kind, 2, 0, where, size, 0, 0, 1, 0))
            names_at = put(section_names)
            headers.append(struct.pack("<IIQQQQIIQQ", 1, 3, 0, 0, names_at, len(section_names), 0, 0, 1, 0))
            section_at = put(b"".join(headers))
        program = [struct.pack("<IIQQQQQQ", PT_LOAD, 5, 0, BASE, BASE, end, end, 0x1000)]
        program.append(
            struct.pack(
                "<IIQQQQQQ", PT_DYNAMIC, 6, dynamic_at, *(BASE + dynamic_at,) * 2, *(len(dynamic),) * 2, 8
            )
        )
        for kind, flags, offset, address, size in self.segments:
            where = blob if offset < 0 else offset
            program.append(struct.pack("<IIQQQQQQ", kind, flags, where, address, address, size, size, 4))
        sections = len(self.sections) + 2 if self.sections else 0
        header = b"\x7fELF\2\1\1" + bytes(9)
        header += struct.pack(
            "<HHIQQQIHHHHHH",
            3,
            62,
            1,
            0,
            64,
            section_at,
            0,
            64,
            56,
            count,
            64,
            sections,
            max(sections - 1, 0),
        )
        return b"".join((header, *program, body))

    def _offsets(self) -> list[int]:
        return [struct.unpack_from("<I", symbol)[0] for symbol in self.symbols]


def sysv_hash(name: bytes) -> int:
    """The hash of DT_HASH."""
    value = 0
    for byte in name:
        value = (value << 4) + byte
        high = value & 0xF0000000
        value = (value ^ (high >> 24)) & ~high & 0xFFFFFFFF
    return value


def needed_and_runpath(scale: int) -> bytes:
    """Every needed library is searched for in every folder."""
    library = Library()
    library.dynamic += [(DT_NEEDED, library.string(b"lib%d.so" % number)) for number in range(scale // 32)]
    path = b":".join(b"/n/%d" % number for number in range(min(scale // 2, 6000)))
    library.dynamic.append((DT_RUNPATH, library.string(path)))
    return library.build()


def needed_and_same_folder(scale: int) -> bytes:
    """As before, but each folder is there: one folder under many names."""
    library = Library()
    library.dynamic += [(DT_NEEDED, library.string(b"lib%d.so" % number)) for number in range(scale // 32)]
    path = b":".join(b"/" + b"./" * number + b"etc" for number in range(min(scale // 2, 220)))
    library.dynamic.append((DT_RPATH, library.string(path)))
    return library.build()


def version_needs(scale: int) -> bytes:
    """Versions that the C library lacks."""
    library = Library()
    library.dynamic.append((DT_NEEDED, library.string(b"libc.so.6")))
    library.needs(b"libc.so.6", [b"GLIBC_9.%d" % number for number in range(scale // 2)])
    return library.build()


def version_needs_of_nobody(scale: int) -> bytes:
    """A library for each version, none of them needed."""
    library = Library()
    parts = []
    for number in range(scale // 2):
        following = 32 if number + 1 < scale // 2 else 0
        parts.append(struct.pack("<HHIII", 1, 1, library.string(b"lib%d.so" % number), 16, following))
        parts.append(struct.pack("<IHHII", 0, 0, 2, library.string(b"V_%d" % number), 0))
    library.tables.append((DT_VERNEED, b"".join(parts)))
    library.dynamic.append((DT_VERNEEDNUM, scale // 2))
    return library.build()


def version_definitions(scale: int) -> bytes:
    """Versions that it defines, with long names over each other."""
    library = Library()
    name = library.string(b"V" * 2000)
    parts = []
    for number in range(scale // 2):
        following = 28 if number + 1 < scale // 2 else 0
        parts.append(struct.pack("<HHHHIII", 1, 0, number & 0x7FFF, 1, 0, 20, following))
        parts.append(struct.pack("<II", name + number % 1900, 0))
    library.tables.append((DT_VERDEF, b"".join(parts)))
    library.dynamic.append((DT_VERDEFNUM, scale // 2))
    return library.build()


def notes(scale: int) -> bytes:
    """PT_NOTE after PT_NOTE over the same notes."""
    library = Library()
    library.blob = struct.pack("<III", 0, 0, 1) * (min(scale, 5400))
    library.segments = [
        (PT_NOTE, 4, -1, BASE, len(library.blob) - number % 4096) for number in range(scale - 3)
    ]
    return library.build()


def loads_and_needs(scale: int) -> bytes:
    """PT_LOAD over PT_LOAD, and a table whose every entry is looked up by address."""
    library = Library()
    library.needs(b"libc.so.6", [b"GLIBC_2.%d" % number for number in range(scale // 2)])
    library.segments = [(PT_LOAD, 4, 0, 0x10000000 + 16 * number, 64) for number in range(scale - 3)]
    return library.build()


def loads_over_cubins(scale: int) -> bytes:
    """PT_LOAD over PT_LOAD over names of cubins."""
    library = Library()
    library.undefine(b"cuModuleLoad")
    library.blob = b"".join(b"/%06d.cubin\0" % number for number in range(scale))
    library.segments = [
        (PT_LOAD, 4, -1, 0x10000000 + (number << 20), len(library.blob)) for number in range(scale - 3)
    ]
    return library.build()


def fatbin_sections(scale: int) -> bytes:
    """Section after section over one fatbin whose entries are of no known kind."""
    library = Library()
    entry = struct.pack("<HHIQIIHHI", 9, 0, 64, 0, 0, 0, 0, 0, 0) + bytes(32)
    entries = entry * min(scale, 16384)
    library.blob = struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(entries)) + entries
    size = len(library.blob)
    library.sections = [(b".nv_fatbin", 1, -1, size - number % 4096) for number in range(scale - 3)]
    return library.build()


def section_names(scale: int) -> bytes:
    """Sections whose names overlap."""
    library = Library()
    library.sections = [(b"n" * 4000, 1, 0, 1) for _ in range(scale - 3)]
    return library.build()


def magics(scale: int) -> bytes:
    """Read-only bytes full of what begins like GPU code."""
    library = Library()
    library.undefine(b"cuLaunchKernel")
    library.blob = (b"\x7fELF" + bytes(12)) * scale
    library.segments = [
        (PT_LOAD, 4, -1, 0x10000000 + (number << 24), len(library.blob)) for number in range(scale // 8)
    ]
    return library.build()


def undefined_symbols(scale: int) -> bytes:
    """Symbols that somebody should define."""
    library = Library()
    for number in range(16 * scale):
        library.undefine(b"aoti_torch_%d" % number)
    return library.build()


def undefined_std(scale: int) -> bytes:
    """The same, mangled."""
    library = Library()
    for number in range(8 * scale):
        library.undefine(b"_ZN2at4_ops%dE" % number)
    return library.build()


def exported_container(scale: int) -> bytes:
    """A million functions of a container."""
    library = Library()
    for number in range(8 * scale):
        library.define(b"AOTInductorModel%d" % number)
    return library.build()


def exported_others(scale: int) -> bytes:
    """Symbols of all kinds, most of them the C++ library's, STB_GNU_UNIQUE."""
    library = Library()
    for number in range(8 * scale):
        library.define(b"_ZNSt%d" % number, info=0xA1)
    library.define(b"other")
    return library.build()


def kernels(scale: int) -> bytes:
    """Names of kernels, all of them in one chain of the hash table."""
    library = Library()
    library.undefine(b"cuLaunchKernel")
    for number in range(scale):
        library.define(b"__%d_start" % number)
        library.define(b"__%d_end" % number)
    return library.build()


def relocations(scale: int) -> bytes:
    """Relocations, all of the same symbol."""
    library = Library()
    table = struct.pack("<QQq", BASE, 1 << 32 | 6, 0) * (16 * scale)
    library.tables.append((DT_RELA, table))
    library.dynamic += [(DT_RELASZ, len(table)), (DT_RELAENT, 24)]
    return library.build()


def headers_of(kind: int) -> Callable[[int], bytes]:
    """Program headers of one type."""

    def build(scale: int) -> bytes:
        library = Library()
        library.segments = [(kind, 4, 0, BASE, 512)] * (scale - 3)
        return library.build()

    return build


def archive(members: dict[str, bytes], *, deflated: bool = False) -> bytes:
    """A zip archive; members with the same bytes are compressed once."""
    out = io.BytesIO()
    method = zipfile.ZIP_DEFLATED if deflated else zipfile.ZIP_STORED
    with zipfile.ZipFile(out, "w", method, compresslevel=9 if deflated else None) as file:
        for name, data in members.items():
            file.writestr(zipfile.ZipInfo(name), data, method, 9 if deflated else None)
    return out.getvalue()


def package(models: dict[str, dict[str, bytes]], *, deflated: bool = False) -> bytes:
    """A PyTorch package."""
    members = {"p/archive_format": b"pt2", "p/archive_version": b"0", "p/byteorder": b"little"}
    for model, files in models.items():
        members |= {f"p/data/aotinductor/{model}/{name}": data for name, data in files.items()}
    return archive(members, deflated=deflated)


METADATA = b'{"AOTI_DEVICE_KEY": "cpu"}'


def symbols_four_times(scale: int) -> bytes:
    """Four models with a million symbols each, which deflate well."""
    files = {"m.wrapper.so": undefined_std(scale), "m.wrapper_metadata.json": METADATA}
    return package({f"m{number}": files for number in range(4)}, deflated=True)


def tiny_libraries(scale: int) -> bytes:
    """A zip archive of libraries that hold nothing."""
    plugin = Library().build()
    return archive({f"d/{number}.so": plugin for number in range(scale * 2 // 3)}, deflated=True)


def headers_only(scale: int) -> bytes:
    """Libraries of 64 bytes."""
    header = Library().build()[:64]
    return archive({f"d/{number}.so": header for number in range(scale)})


def no_libraries(scale: int) -> bytes:
    """A zip archive of files that are called libraries and are none."""
    return archive({f"d/{number}.so": b"no" for number in range(scale)})


def sidecars(scale: int) -> bytes:
    """Plugins with everything that may lie beside them."""
    plugin = Library().build()
    members = {}
    for number in range(scale // 16):
        members |= {
            f"{number}.so": plugin,
            f"{number}_metadata.json": METADATA,
            f"{number}_weights.blob": b"12345678",
            f"{number}.json": b'{"nodes": []}',
        }
    return archive(members)


def models(scale: int) -> bytes:
    """A package of models that hold nothing but their name."""
    return package({f"m{number}": {"x.txt": b""} for number in range(scale)})


def nested_packages(scale: int) -> bytes:
    """Packages in a package's place, each with plugins."""
    inner = package({"m": {"m.wrapper.so": Library().build(), "m.wrapper_metadata.json": METADATA}})
    return archive({f"{number}.pt2": inner for number in range(scale // 16)}, deflated=True)


def zeros(scale: int) -> bytes:
    """Libraries of a quarter of a gigabyte, all zeros, which deflate a thousandfold."""
    plugin = Library().build()
    data = plugin + bytes(4096 * scale - len(plugin) % 4096)
    files = {"m.wrapper.so": data, "m.wrapper_metadata.json": METADATA}
    return package({f"m{number}": files for number in range(8)}, deflated=True)


def zeros_in_zip(scale: int) -> bytes:
    """The same, in any archive."""
    data = Library().build() + bytes(4096 * scale)
    return archive({f"m{number}.so": data for number in range(8)}, deflated=True)


def json_nodes(scale: int) -> bytes:
    """Lists of operators, which deflate well, and of which each byte costs memory."""
    node = {"node": {"target": "aten::add.Tensor", "inputs": [], "outputs": []}, "name": "x"}
    text = json.dumps({"nodes": [node] * scale}).encode()
    plugin = Library().build()
    files = {"m.wrapper.so": plugin, "m.wrapper_metadata.json": METADATA, "m.wrapper.json": text}
    return package({f"m{number}": files for number in range(50)}, deflated=True)


def json_metadata(scale: int) -> bytes:
    """Metadata of a megabyte for each of many models."""
    text = json.dumps({f"k{number}": [[]] for number in range(scale)}).encode()
    files = {"m.wrapper.so": Library().build(), "m.wrapper_metadata.json": text}
    return package({f"m{number}": files for number in range(200)}, deflated=True)


def long_names(scale: int) -> bytes:
    """Members with names of 60,000 bytes."""
    return archive({f"{number:04}" + "n" * 60_000 + ".so": b"" for number in range(scale // 64)})


def deep_json(scale: int) -> bytes:
    """Lists in lists."""
    text = b"[" * scale + b"]" * scale
    files = {"m.wrapper.so": Library().build(), "m.wrapper_metadata.json": text, "m.wrapper.json": text}
    return package({"m": files})


class Cost(NamedTuple):
    """One file: its name, how it is built, what it is called."""

    name: str
    build: Callable[[int], bytes]
    suffix: str = ".so"


CASES = (
    Cost("needed x runpath", needed_and_runpath),
    Cost("needed x one folder", needed_and_same_folder),
    Cost("version needs", version_needs),
    Cost("version needs of nobody", version_needs_of_nobody),
    Cost("version definitions", version_definitions),
    Cost("notes", notes),
    Cost("loads and version needs", loads_and_needs),
    Cost("loads over cubin names", loads_over_cubins),
    Cost("fatbin sections", fatbin_sections),
    Cost("section names", section_names),
    Cost("magic numbers", magics),
    Cost("undefined shims", undefined_symbols),
    Cost("undefined C++", undefined_std),
    Cost("exported container", exported_container),
    Cost("exported unique", exported_others),
    Cost("kernels", kernels),
    Cost("relocations", relocations),
    *(
        Cost(f"program headers {kind:#x}", headers_of(kind))
        for kind in (0, 1, 2, 3, 4, 6, 7, 0x6474E550, 0x6474E551, 0x6474E552, 0x6474E553, 0x70000000)
    ),
    Cost("4 x symbols, deflated", symbols_four_times, ".pt2"),
    Cost("tiny libraries", tiny_libraries, ".zip"),
    Cost("libraries of 64 bytes", headers_only, ".zip"),
    Cost("no libraries", no_libraries, ".whl"),
    Cost("sidecars", sidecars, ".zip"),
    Cost("models", models, ".pt2"),
    Cost("nested packages", nested_packages, ".zip"),
    Cost("zeros, deflated", zeros, ".pt2"),
    Cost("zeros in a zip", zeros_in_zip, ".zip"),
    Cost("operator lists", json_nodes, ".pt2"),
    Cost("metadata", json_metadata, ".pt2"),
    Cost("long names", long_names, ".zip"),
    Cost("deep JSON", deep_json, ".pt2"),
)
