"""What the dynamic linker sees of an ELF file, as immutable records.

These are named tuples, not frozen dataclasses: ``import dataclasses`` alone costs more than reading a plugin
does. Text that came from a file is decoded as UTF-8 with ``surrogateescape``, so that no byte is lost;
`aoti_inspect.text.printable` makes it safe to show. Offsets and sizes are bytes; addresses are the file's own
virtual addresses.
"""

from __future__ import annotations

from aoti_abi.records import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from typing import Literal

    Binding = Literal["local", "global", "weak", "unique", "other"]


class ElfHeader(NamedTuple):
    """What the first bytes say (System V gABI, "ELF Header").

    Attributes:
        bits: 32 or 64.
        byte_order: "little" or "big".
        type: ``e_type``: "REL", "EXEC", "DYN", "CORE", or the number.
        machine: ``e_machine``.
        machine_name: as ``uname -m`` has it ("x86_64", "aarch64"); ``machine(N)`` if not known.
    """

    bits: int
    byte_order: Literal["little", "big"]
    type: str
    machine: int
    machine_name: str


class Segment(NamedTuple):
    """One program header. ``flags`` is a subset of "RWE" in that order; ``type`` is its name or number."""

    type: str
    flags: str
    offset: int
    address: int
    file_size: int
    memory_size: int
    align: int


class Symbol(NamedTuple):
    """One dynamic symbol.

    Attributes:
        name: the symbol's name.
        binding: how it binds; "weak" undefined symbols may stay unresolved.
        version: the version that it is bound to (``GLIBC_2.34``), or None.
        library: for an undefined one with a version: the library that must provide it (``libc.so.6``).
    """

    name: str
    binding: Binding
    version: str | None
    library: str | None


class VersionNeed(NamedTuple):
    """One version that a library must define, and why.

    Attributes:
        library: the file that must define it, as DT_VERNEED names it.
        version: the version's name.
        weak: True if the dynamic linker only warns when the library lacks it (VER_FLG_WEAK).
        symbols: the undefined symbols bound to it, sorted; empty if only the table names it.
    """

    library: str
    version: str
    weak: bool
    symbols: tuple[str, ...]


class Section(NamedTuple):
    """One section header, for what only sections tell. A NOBITS section has a size, but no bytes."""

    name: str
    type: int
    flags: int
    address: int
    offset: int
    size: int


class ExportSummary(NamedTuple):
    """The defined dynamic symbols, counted and named where a rule asks for them.

    Attributes:
        total: defined, not local.
        container: the ``AOTInductor*`` names, sorted.
        shims: the names of the host API that the file itself defines, sorted.
        std: how many belong to the C++ standard library or runtime (``_ZNSt``, ``_ZSt``, ``__cxa_``, ...).
        std_strong: those of ``std`` that are not weak: an inlined template is weak, a runtime's copy is not.
        std_examples: up to five of ``std_strong``, else of ``std``.
        runtime: how many belong to ``torch::aot_inductor`` (the fixed part of a plugin).
        unique: the STB_GNU_UNIQUE names, sorted.
        others: how many are none of the above.
        other_examples: up to five of those.
    """

    total: int
    container: tuple[str, ...]
    shims: tuple[str, ...]
    std: int
    std_strong: int
    std_examples: tuple[str, ...]
    runtime: int
    unique: tuple[str, ...]
    others: int
    other_examples: tuple[str, ...]


class ElfFacts(NamedTuple):
    """One ELF file as the dynamic linker sees it.

    Attributes:
        size: bytes of the file.
        header: machine, class, byte order, type.
        segments: the program headers.
        is_dynamic: whether there is a PT_DYNAMIC with bytes in the file.
        interpreter: PT_INTERP, or None.
        soname, needed, rpath, runpath: from PT_DYNAMIC; ``rpath`` and ``runpath`` are split at colons.
        flags: names of DT_FLAGS and DT_FLAGS_1 bits ("BIND_NOW", "NODELETE", "STATIC_TLS", ...), sorted.
        build_id: of the GNU note, in hex, or None.
        executable_stack: PT_GNU_STACK's PF_X; None without that header (the machine's default decides).
        text_relocations: DT_TEXTREL or DF_TEXTREL.
        symbol_count: entries of the dynamic symbol table, the null entry included.
        symbol_count_source: "DT_HASH", "DT_GNU_HASH" or "DT_STRTAB" (bounded by where the strings start).
        undefined: undefined dynamic symbols, in the table's order.
        exports: summary of the defined ones.
        version_needs: DT_VERNEED, in the file's order.
        version_definitions: names of DT_VERDEF, the file's own base version left out.
        sections: the section table, or None if there is none or it can't be used.
        section_problem: why the section table can't be used, if there is one; None otherwise.
        debug_info: whether sections hold DWARF.
        anomalies: what was wrong but could be worked around, one sentence each.
        unusable: those of ``anomalies`` that the dynamic linker does not work around: it refuses the file,
            crashes on it, or finds none of its symbols.
        not_read: what was not read to its end, since that would cost too much, one sentence each.
    """

    size: int
    header: ElfHeader
    segments: tuple[Segment, ...]
    is_dynamic: bool
    interpreter: str | None
    soname: str | None
    needed: tuple[str, ...]
    rpath: tuple[str, ...]
    runpath: tuple[str, ...]
    flags: tuple[str, ...]
    build_id: str | None
    executable_stack: bool | None
    text_relocations: bool
    symbol_count: int
    symbol_count_source: str
    undefined: tuple[Symbol, ...]
    exports: ExportSummary
    version_needs: tuple[VersionNeed, ...]
    version_definitions: tuple[str, ...]
    sections: tuple[Section, ...] | None
    section_problem: str | None
    debug_info: bool
    anomalies: tuple[str, ...]
    unusable: tuple[str, ...] = ()
    not_read: tuple[str, ...] = ()
