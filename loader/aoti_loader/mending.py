"""Byte-level mends of a private copy: old troubles that need no new layout.

* ``PT_GNU_STACK`` with PF_X makes the whole process's stacks executable; glibc 2.41 and later refuse such a
  library. Plugins ask for it only because a hand-written assembly file lacks a marker. PF_X is cleared.
* ``STB_GNU_UNIQUE`` symbols pin a library for good: ``dlclose`` never unmaps it. They become STB_GLOBAL.
* ``__cxa_thread_atexit`` pins it too, until the threads that made its ``thread_local`` objects have ended.
  The import is pointed at ``cxa_thread_atexit`` of libaoti_unload.so (`aoti_loader.thread_exit`): the same
  string, two characters on.
* A plugin that names LibTorch in DT_NEEDED, but uses none of it beyond the shims that another host has, would
  drag LibTorch in, or fail without it. The entry is dropped when another host was chosen.

Every mend overwrites bytes in place, so that nothing moves. Weights that are appended past the last segment
are found by their offset from the file's end; a mend that would touch them is refused.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, NamedTuple

from aoti_abi.errors import InvalidProgram, NotSupported

if TYPE_CHECKING:
    from collections.abc import Callable

    from aoti_inspect.facts.records import PluginFacts

    Read = Callable[[int, int], bytes]

_PT_LOAD, _PT_DYNAMIC, _PT_GNU_STACK = 1, 2, 0x6474E551
_PF_X = 1
_DT_NULL, _DT_NEEDED, _DT_STRTAB, _DT_SYMTAB, _DT_STRSZ, _DT_SYMENT = 0, 1, 5, 6, 10, 11
_DT_VERSYM = 0x6FFFFFF0
_STB_GLOBAL, _STB_GNU_UNIQUE = 1, 10
_VER_NDX_GLOBAL = 1
_SYMBOL = struct.Struct("<IBBHQQ")
_SYMBOL_SIZE = _SYMBOL.size

#: The imports that pin a library to its threads: of a C++ runtime, and of the C library by a C++ runtime that
#: the plugin carries in itself. Both are pointed at the same name without its first characters.
THREAD_ATEXIT: tuple[str, ...] = ("__cxa_thread_atexit", "__cxa_thread_atexit_impl")
_SKIPPED = len("__")

_PROGRAM_HEADER = struct.Struct("<IIQQQQQQ")
_DYNAMIC_ENTRY = struct.Struct("<QQ")


class Patch(NamedTuple):
    """Bytes that replace as many bytes at ``offset`` of the copy."""

    offset: int
    data: bytes


class Mend(NamedTuple):
    """One mend of the private copy.

    Attributes:
        name: "executable-stack", "unique-symbols", "thread-exit" or "libtorch-needed".
        description: what was changed, for a report.
        patches: the bytes.
    """

    name: str
    description: str
    patches: tuple[Patch, ...]


class _Headers(NamedTuple):
    """The program headers of a 64-bit little-endian file, with the offset of each."""

    entries: tuple[tuple[int, tuple[int, ...]], ...]

    def offset_of(self, address: int) -> int:
        for _, (kind, _flags, offset, start, _physical, file_size, _memory, _align) in self.entries:
            if kind == _PT_LOAD and start <= address < start + file_size:
                return offset + address - start
        raise InvalidProgram(f"the address {address:#x} of the dynamic section is not in the file")


def plan_mends(
    facts: PluginFacts, read: Read, *, drop_libtorch: bool = False, thread_exit: bool = False
) -> tuple[Mend, ...]:
    """Return the mends that a plugin needs; none if it is fine as it is.

    Args:
        facts: of the plugin.
        read: returns ``size`` bytes at ``offset`` of its file.
        drop_libtorch: whether a host other than LibTorch was chosen.
        thread_exit: whether libaoti_unload.so is in the global scope.

    Raises:
        InvalidProgram: the file's tables contradict the facts.
        NotSupported: a mend would change appended weights, or the file is of a kind that is not mended.
    """
    elf = facts.elf
    unwanted = facts.imports.libtorch if drop_libtorch else ()
    pinned = thread_exit and any(symbol.name in THREAD_ATEXIT for symbol in elf.undefined)
    if not (elf.executable_stack or elf.exports.unique or unwanted or pinned):
        return ()
    if elf.header.bits != 64 or elf.header.byte_order != "little":
        raise NotSupported("only 64-bit little-endian files are mended", path=facts.name)
    try:
        mends = _plan(facts, read, unwanted, pinned=pinned)
    except struct.error as error:
        raise InvalidProgram("its headers are cut off", path=facts.name) from error
    _refuse_changing_weights(facts, mends)
    return tuple(mends)


def _plan(facts: PluginFacts, read: Read, unwanted: tuple[str, ...], *, pinned: bool) -> list[Mend]:
    elf = facts.elf
    headers = _read_headers(read)
    mends = []
    if elf.executable_stack:
        mends.append(_clear_executable_stack(headers))
    if elf.exports.unique or unwanted or pinned:
        tables = _read_tables(headers, read)
        if elf.exports.unique:
            mends.append(_unique_to_global(facts, tables, read))
        if pinned:
            mends.append(_redirect_thread_exit(facts, headers, tables, read))
        if unwanted:
            mends.append(_drop_needed(facts, tables, unwanted, read))
    return mends


def _read_headers(read: Read) -> _Headers:
    header = read(0, 64)
    offset, entry_size, count = (
        struct.unpack_from("<Q", header, 32)[0],
        *struct.unpack_from("<HH", header, 54),
    )
    if entry_size != _PROGRAM_HEADER.size:
        raise InvalidProgram(f"program headers of {entry_size} bytes")
    raw = read(offset, count * entry_size)
    entries = tuple(
        (offset + index * entry_size, fields) for index, fields in enumerate(_PROGRAM_HEADER.iter_unpack(raw))
    )
    return _Headers(entries)


class _Tables(NamedTuple):
    """Offsets in the file of the dynamic section, its entries, the string table and the symbol table."""

    dynamic: int
    entries: tuple[tuple[int, int], ...]
    strings: int
    symbols: int


def _read_tables(headers: _Headers, read: Read) -> _Tables:
    segment = next((fields for _, fields in headers.entries if fields[0] == _PT_DYNAMIC), None)
    if segment is None:
        raise InvalidProgram("no dynamic section")
    # The dynamic linker follows the segment's address, not its offset.
    offset = headers.offset_of(segment[3])
    raw = read(offset, segment[5] - segment[5] % _DYNAMIC_ENTRY.size)
    entries: list[tuple[int, int]] = []
    for tag, value in _DYNAMIC_ENTRY.iter_unpack(raw):
        if tag == _DT_NULL:
            break
        entries.append((tag, value))
    values = dict(entries)
    if values.get(_DT_SYMENT, _SYMBOL_SIZE) != _SYMBOL_SIZE or not {_DT_STRTAB, _DT_SYMTAB} <= values.keys():
        raise InvalidProgram("no usable dynamic symbol table")
    return _Tables(
        offset,
        tuple(entries),
        headers.offset_of(values[_DT_STRTAB]),
        headers.offset_of(values[_DT_SYMTAB]),
    )


def _clear_executable_stack(headers: _Headers) -> Mend:
    patches = tuple(
        Patch(offset + 4, struct.pack("<I", fields[1] & ~_PF_X))
        for offset, fields in headers.entries
        if fields[0] == _PT_GNU_STACK and fields[1] & _PF_X
    )
    return Mend("executable-stack", "the stack stays non-executable (PF_X of PT_GNU_STACK cleared)", patches)


def _unique_to_global(facts: PluginFacts, tables: _Tables, read: Read) -> Mend:
    raw = read(tables.symbols, facts.elf.symbol_count * _SYMBOL_SIZE)
    patches = []
    for index, info in enumerate(raw[4::_SYMBOL_SIZE]):
        if info >> 4 == _STB_GNU_UNIQUE:
            place = tables.symbols + index * _SYMBOL_SIZE + 4
            patches.append(Patch(place, bytes((_STB_GLOBAL << 4 | info & 15,))))
    return Mend(
        "unique-symbols",
        f"{len(patches)} STB_GNU_UNIQUE symbols made STB_GLOBAL, so that dlclose can unload it",
        tuple(patches),
    )


def _redirect_thread_exit(facts: PluginFacts, headers: _Headers, tables: _Tables, read: Read) -> Mend:
    raw = read(tables.symbols, facts.elf.symbol_count * _SYMBOL_SIZE)
    values = dict(tables.entries)
    strings = read(tables.strings, values.get(_DT_STRSZ, 0))
    wanted = tuple(name.encode() + b"\0" for name in THREAD_ATEXIT)
    patches = []
    for index, (name, _info, _other, section, _value, _size) in enumerate(_SYMBOL.iter_unpack(raw)):
        if section == 0 and strings.startswith(wanted, name):
            patches.append(Patch(tables.symbols + index * _SYMBOL_SIZE, struct.pack("<I", name + _SKIPPED)))
            if _DT_VERSYM in values:
                # The other function has no version.
                place = headers.offset_of(values[_DT_VERSYM]) + 2 * index
                patches.append(Patch(place, struct.pack("<H", _VER_NDX_GLOBAL)))
    return Mend(
        "thread-exit",
        "destructors of thread_local objects registered where closing can run them",
        tuple(patches),
    )


def _drop_needed(facts: PluginFacts, tables: _Tables, unwanted: tuple[str, ...], read: Read) -> Mend:
    versioned = sorted({need.library for need in facts.elf.version_needs} & set(unwanted))
    if versioned:
        raise NotSupported(
            f"DT_NEEDED {versioned[0]} cannot be dropped: symbol versions are bound to it", path=facts.name
        )
    kept = []
    dropped = []
    for tag, value in tables.entries:
        name = read(tables.strings + value, 64).partition(b"\0")[0] if tag == _DT_NEEDED else b""
        if name.decode("ascii", "replace") in unwanted:
            dropped.append(name.decode("ascii"))
        else:
            kept.append((tag, value))
    # What is behind moves up; the dynamic linker reads to the first DT_NULL.
    kept += [(_DT_NULL, 0)] * len(dropped)
    data = b"".join(_DYNAMIC_ENTRY.pack(*entry) for entry in kept)
    return Mend(
        "libtorch-needed",
        f"DT_NEEDED {', '.join(dropped)} dropped: the chosen host provides every shim",
        (Patch(tables.dynamic, data),),
    )


def _refuse_changing_weights(facts: PluginFacts, mends: list[Mend]) -> None:
    weights = facts.weights
    if weights.kind != "appended":
        return
    for mend in mends:
        for patch in mend.patches:
            if patch.offset + len(patch.data) > weights.offset:
                raise NotSupported(
                    f"the mend {mend.name!r} would change the weights appended at {weights.offset}",
                    path=facts.name,
                    hint="load it with mend=False",
                )
