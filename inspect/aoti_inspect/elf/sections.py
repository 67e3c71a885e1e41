"""The section table: optional, never trusted, and read only for what nothing else tells."""

from __future__ import annotations

from aoti_abi.records import TYPE_CHECKING
from aoti_inspect.elf import format as elf
from aoti_inspect.elf.records import Section
from aoti_inspect.text import decode

if TYPE_CHECKING:
    from aoti_inspect.source import Source

#: A linker writes some thirty; objects with a section per function, which are not loaded, have many more.
MAX_SECTIONS = 1 << 16
_MAX_NAMES = 1 << 24


def read_sections(
    source: Source, layout: elf.Layout, *, offset: int, entry_size: int, count: int, names_index: int
) -> tuple[tuple[Section, ...] | None, str | None]:
    """Read the section headers.

    Args:
        source: the file.
        layout: its class and byte order.
        offset: e_shoff.
        entry_size: e_shentsize.
        count: e_shnum.
        names_index: e_shstrndx.

    Returns:
        The sections and None; None and None if the file has no table; None and the reason, as a sentence, if
        it has one that can't be used.
    """
    if offset == 0:
        return None, None
    record = layout.section
    if entry_size != record.size:
        return None, f"section headers of {entry_size} bytes are announced, not {record.size}"
    first = source.read(offset, record.size)
    if len(first) < record.size:
        return None, f"the section table at {offset:#x} is outside of the file ({source.size} bytes)"
    # Counts that don't fit into 16 bits are kept in the first header (gABI, "ELF Header").
    first_header = record.unpack(first)
    count = count or first_header[5]
    if names_index == elf.SHN_XINDEX:
        names_index = first_header[6]
    if count > MAX_SECTIONS:
        return None, f"{count} sections are announced, more than {MAX_SECTIONS}"
    raw = source.read(offset, count * record.size)
    if len(raw) < count * record.size:
        return None, f"the section table at {offset:#x} ({count} entries) reaches past the end of the file"
    headers = list(record.iter_unpack(raw))
    if names_index >= count:
        return None, f"the section with the names is number {names_index}, but there are {count}"
    names_offset, names_size = headers[names_index][4], headers[names_index][5]
    if names_size > _MAX_NAMES or names_offset + names_size > source.size:
        return None, "the names of the sections are outside of the file"
    names = source.read(names_offset, names_size)
    sections = []
    # Names that overlap each other may be longer together than any file.
    left = 16 * len(names) + (1 << 20)
    for name, kind, flags, address, start, size, *_ in headers:
        end = names.find(b"\0", name, name + 4096)
        if name >= len(names) or end < 0:
            return None, "a section has its name outside of the table of names"
        left -= end - name
        if left < 0:
            return None, "the names of the sections overlap each other without end"
        if kind not in (0, elf.SHT_NOBITS) and start + size > source.size:
            return None, f"section {decode(names[name:end])!r} reaches past the end of the file"
        sections.append(Section(decode(names[name:end]), kind, flags, address, start, size))
    return tuple(sections), None
