"""Symbol versions: DT_VERNEED and DT_VERDEF (Linux Standard Base, "Symbol Versioning").

The chains are followed by their ``next`` offsets, as the dynamic linker follows them, and the stored counts
are only compared. Offsets only lead forward, every step is at least one record, and the number of records is
bounded, so hostile chains end. Records whose name can't be read count too: they cost as much.
"""

from __future__ import annotations

import struct

from aoti_abi.records import TYPE_CHECKING, NamedTuple
from aoti_inspect.elf import format as elf

if TYPE_CHECKING:
    from collections.abc import Callable

    from aoti_inspect.elf.strings import StringTable

    Read = Callable[[int, int], bytes]
    Note = Callable[..., None]

#: Version indices are 15 bits wide, so there can't be more.
MAX_RECORDS = 1 << 15


class Need(NamedTuple):
    """One DT_VERNEED auxiliary record: ``number`` is what DT_VERSYM refers to."""

    library: str
    version: str
    weak: bool
    number: int


class Definition(NamedTuple):
    """One DT_VERDEF record."""

    version: str
    base: bool
    number: int


def read_needs(
    address: int, count: int, layout: elf.Layout, *, strings: StringTable, read: Read, note: Note
) -> list[Need]:
    """Decode DT_VERNEED.

    Args:
        address: where the first record is.
        count: DT_VERNEEDNUM.
        layout: the file's byte order.
        strings: DT_STRTAB.
        read: reads bytes at an address; gives fewer when they are not in the file.
        note: takes one sentence for each thing that is wrong.
    """
    record = struct.Struct(layout.mark + "HHIII")
    needs: list[Need] = []
    files, records = 0, 0
    while True:
        raw = read(address, record.size)
        if len(raw) < record.size:
            note("the version needs (DT_VERNEED) lead outside of the file", fatal=True)
            return needs
        version, stored, file_name, first, following = record.unpack(raw)
        if version != 1:
            note(
                f"the version needs (DT_VERNEED) have format {version}, not 1: the dynamic linker refuses it",
                fatal=True,
            )
            return needs
        files += 1
        library = strings.text(file_name)
        if library is None:
            note(f"version need {files} names its library outside of the string table", fatal=True)
            library = ""
        most = MAX_RECORDS - records
        found = _read_need(
            address + first, library, layout, strings=strings, read=read, note=note, into=needs, most=most
        )
        records += found
        if records > MAX_RECORDS or (following and files > MAX_RECORDS):
            note(f"more than {MAX_RECORDS} version needs: the rest was not read", unread=True)
            return needs
        if found != stored:
            note(
                f"{stored} versions of {library or 'a library'} are announced (vn_cnt), but {found} are there"
            )
        if following == 0:
            break
        if following < record.size:
            note("the version needs (DT_VERNEED) overlap each other", fatal=True)
            break
        address += following
    if files != count:
        note(f"{count} libraries with version needs are announced (DT_VERNEEDNUM), but {files} are there")
    return needs


def _read_need(
    address: int,
    library: str,
    layout: elf.Layout,
    *,
    strings: StringTable,
    read: Read,
    note: Note,
    into: list[Need],
    most: int,
) -> int:
    """Append the versions needed of one library; return how many records there are, ``most`` + 1 at most."""
    record = struct.Struct(layout.mark + "IHHII")
    found = 0
    while found <= most:
        raw = read(address, record.size)
        if len(raw) < record.size:
            note(f"the versions needed of {library or 'a library'} lead outside of the file", fatal=True)
            break
        _, flags, number, name, step = record.unpack(raw)
        text = strings.text(name)
        if text is None:
            note(
                f"a version needed of {library or 'a library'} has its name outside of the string table",
                fatal=True,
            )
        else:
            into.append(Need(library, text, bool(flags & elf.VER_FLG_WEAK), number & ~elf.VERSYM_HIDDEN))
        found += 1
        if step == 0:
            break
        if step < record.size:
            note(f"the versions needed of {library or 'a library'} overlap each other", fatal=True)
            break
        address += step
    return found


def read_definitions(
    address: int, count: int, layout: elf.Layout, *, strings: StringTable, read: Read, note: Note
) -> list[Definition]:
    """Decode DT_VERDEF; the arguments are those of `read_needs`, ``count`` is DT_VERDEFNUM."""
    record = struct.Struct(layout.mark + "HHHHIII")
    definitions: list[Definition] = []
    for _ in range(MAX_RECORDS):
        raw = read(address, record.size)
        if len(raw) < record.size:
            note("the version definitions (DT_VERDEF) lead outside of the file")
            return definitions
        version, flags, index, _, _, first, following = record.unpack(raw)
        if version != 1:
            note(f"the version definitions (DT_VERDEF) have format {version}, not 1")
            return definitions
        name = strings.text(int.from_bytes(read(address + first, 4), layout.byte_order))
        if name is None:
            note("a version definition has its name outside of the string table")
        else:
            base = bool(flags & elf.VER_FLG_BASE)
            definitions.append(Definition(name, base, index & ~elf.VERSYM_HIDDEN))
        if following == 0:
            break
        if following < record.size:
            note("the version definitions (DT_VERDEF) overlap each other")
            return definitions
        address += following
    else:
        note(f"more than {MAX_RECORDS} version definitions: the rest was not read", unread=True)
    if len(definitions) != count:
        note(f"{count} version definitions are announced (DT_VERDEFNUM), but {len(definitions)} are there")
    return definitions
