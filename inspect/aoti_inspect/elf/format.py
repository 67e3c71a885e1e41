"""ELF's numbers and record layouts, for both classes and both byte orders.

Source: System V gABI, the GNU extensions in glibc's ``elf.h``, and the x86-64 and CUDA supplements.
"""

from __future__ import annotations

import struct

from aoti_abi.records import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from typing import Literal

    ByteOrder = Literal["little", "big"]


MAGIC = b"\x7fELF"

ET_NAMES = {1: "REL", 2: "EXEC", 3: "DYN", 4: "CORE"}

EM_X86_64 = 62
EM_CUDA = 190
_EM_NAMES = {
    2: "sparc",
    3: "i386",
    4: "m68k",
    8: "mips",
    15: "parisc",
    20: "ppc",
    40: "arm",
    42: "sh",
    43: "sparc64",
    50: "ia64",
    EM_X86_64: "x86_64",
    183: "aarch64",
    EM_CUDA: "cuda",
    224: "amdgpu",
    247: "bpf",
    0x9026: "alpha",
}

PT_LOAD, PT_DYNAMIC, PT_INTERP, PT_NOTE = 1, 2, 3, 4
PT_GNU_STACK = 0x6474E551
PT_NAMES = {
    0: "NULL",
    PT_LOAD: "LOAD",
    PT_DYNAMIC: "DYNAMIC",
    PT_INTERP: "INTERP",
    PT_NOTE: "NOTE",
    5: "SHLIB",
    6: "PHDR",
    7: "TLS",
    0x6474E550: "GNU_EH_FRAME",
    PT_GNU_STACK: "GNU_STACK",
    0x6474E552: "GNU_RELRO",
    0x6474E553: "GNU_PROPERTY",
}
PF_X, PF_W, PF_R = 1, 2, 4
#: e_phnum when the real count is in the first section header.
PN_XNUM = 0xFFFF

DT_NULL, DT_NEEDED, DT_HASH, DT_STRTAB, DT_SYMTAB = 0, 1, 4, 5, 6
DT_STRSZ, DT_SYMENT, DT_SONAME, DT_RPATH, DT_SYMBOLIC = 10, 11, 14, 15, 16
DT_TEXTREL, DT_BIND_NOW, DT_RUNPATH, DT_FLAGS = 22, 24, 29, 30
DT_GNU_HASH, DT_FLAGS_1 = 0x6FFFFEF5, 0x6FFFFFFB
DT_VERSYM, DT_VERDEF, DT_VERDEFNUM = 0x6FFFFFF0, 0x6FFFFFFC, 0x6FFFFFFD
DT_VERNEED, DT_VERNEEDNUM = 0x6FFFFFFE, 0x6FFFFFFF
#: Tags whose value is the address of a table that linkers place near the symbol table. The nearest of them
#: above DT_SYMTAB bounds it; tags that hold sizes, flags or counts must not be mistaken for addresses.
DT_TABLES = frozenset(
    (
        3,  # PLTGOT
        DT_HASH,
        DT_STRTAB,
        7,  # RELA
        12,  # INIT
        13,  # FINI
        17,  # REL
        23,  # JMPREL
        25,  # INIT_ARRAY
        26,  # FINI_ARRAY
        32,  # PREINIT_ARRAY
        36,  # RELR
        DT_GNU_HASH,
        DT_VERSYM,
        DT_VERDEF,
        DT_VERNEED,
    )
)
DF_NAMES = {1: "ORIGIN", 2: "SYMBOLIC", 4: "TEXTREL", 8: "BIND_NOW", 16: "STATIC_TLS"}
DF_TEXTREL = 4
DF_1_NAMES = {
    0x1: "NOW",
    0x2: "GLOBAL",
    0x4: "GROUP",
    0x8: "NODELETE",
    0x10: "LOADFLTR",
    0x20: "INITFIRST",
    0x40: "NOOPEN",
    0x80: "ORIGIN",
    0x100: "DIRECT",
    0x400: "INTERPOSE",
    0x800: "NODEFLIB",
    0x1000: "NODUMP",
    0x2000: "CONFALT",
    0x4000: "ENDFILTEE",
    0x8000: "DISPRELDNE",
    0x10000: "DISPRELPND",
    0x20000: "NODIRECT",
    0x40000: "IGNMULDEF",
    0x80000: "NOKSYMS",
    0x100000: "NOHDR",
    0x200000: "EDITED",
    0x400000: "NORELOC",
    0x800000: "SYMINTPOSE",
    0x1000000: "GLOBAUDIT",
    0x2000000: "SINGLETON",
    0x4000000: "STUB",
    0x8000000: "PIE",
}

SHN_UNDEF, SHN_XINDEX = 0, 0xFFFF
SHT_SYMTAB, SHT_NOBITS = 2, 8
STT_OBJECT = 1
STB_GLOBAL, STB_UNIQUE = 1, 10
#: The version index of a symbol that is global and has no version.
VER_NDX_GLOBAL = 1
VER_FLG_BASE, VER_FLG_WEAK = 1, 2
#: Bit of a version index that hides a definition from references without a version.
VERSYM_HIDDEN = 0x8000


class Layout(NamedTuple):
    """How one class and byte order lays out its records.

    Attributes:
        bits: 32 or 64.
        byte_order: as `int.from_bytes` takes it.
        mark: as `struct` takes it.
        header: e_type ... e_shstrndx, from byte 16 on.
        program, section, symbol, dynamic: one record of each table.
        word: one address-sized integer (a word of the GNU hash's Bloom filter).
    """

    bits: int
    byte_order: ByteOrder
    mark: str
    header: struct.Struct
    program: struct.Struct
    section: struct.Struct
    symbol: struct.Struct
    dynamic: struct.Struct
    word: struct.Struct


def layout(bits: int, byte_order: ByteOrder) -> Layout:
    """Return the record layouts for a class (32 or 64) and a byte order ("little" or "big")."""
    mark = "<" if byte_order == "little" else ">"
    if bits == 64:
        formats = ("HHIQQQIHHHHHH", "IIQQQQQQ", "IIQQQQIIQQ", "IBBHQQ", "qQ", "Q")
    else:
        formats = ("HHIIIIIHHHHHH", "IIIIIIII", "IIIIIIIIII", "IIIBBH", "iI", "I")
    header, program, section, symbol, dynamic, word = (struct.Struct(mark + text) for text in formats)
    return Layout(bits, byte_order, mark, header, program, section, symbol, dynamic, word)


def machine_name(machine: int, bits: int, byte_order: str) -> str:
    """Name a machine as ``uname -m`` does; ``machine(N)`` if it is not known."""
    if machine == 21:
        return "ppc64le" if byte_order == "little" else "ppc64"
    if machine == 22:
        return "s390x" if bits == 64 else "s390"
    if machine == 243:
        return f"riscv{bits}"
    if machine == 258:
        return f"loongarch{bits}"
    return _EM_NAMES.get(machine, f"machine({machine})")


def machine_names() -> frozenset[str]:
    """Return every name that `machine_name` has for a machine."""
    split = ("ppc64", "ppc64le", "s390", "s390x", "riscv32", "riscv64", "loongarch32", "loongarch64")
    return frozenset((*_EM_NAMES.values(), *split))
