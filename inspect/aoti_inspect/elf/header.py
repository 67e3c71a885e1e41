"""The ELF header and the program headers: what has to be right before anything else can be read."""

from __future__ import annotations

from aoti_abi.errors import InvalidProgram
from aoti_abi.records import TYPE_CHECKING, NamedTuple
from aoti_inspect.elf import format as elf
from aoti_inspect.elf.records import ElfHeader, Segment
from aoti_inspect.file_kind import HEAD, describe, refusal

if TYPE_CHECKING:
    from aoti_inspect.source import Source


#: Program headers that are read: as many as e_phnum can tell, which is all that the dynamic linker takes.
MAX_SEGMENTS = 1 << 16


class Header(NamedTuple):
    """The header, decoded.

    Attributes:
        facts: the part that reports show.
        layout: how the file's records are laid out.
        program_offset, program_count: where the program headers are, and how many.
        section_offset, section_size, section_count, section_names: e_shoff, e_shentsize, e_shnum, e_shstrndx.
    """

    facts: ElfHeader
    layout: elf.Layout
    program_offset: int
    program_count: int
    section_offset: int
    section_size: int
    section_count: int
    section_names: int


def read_header(source: Source, name: str) -> Header:
    """Decode the first bytes.

    Raises:
        AotiError: it is not ELF, or too broken to go on; the error says what it is.
    """
    head = source.read(0, 64)
    if not head.startswith(elf.MAGIC) or len(head) < 20:
        raise refusal(describe(source.read(0, HEAD), source.size), name)
    kind, order = head[4], head[5]
    if kind not in (1, 2) or order not in (1, 2):
        raise InvalidProgram(
            f"the ELF header has class {kind} and byte order {order}; both must be 1 or 2",
            path=name,
            hint="the file is damaged: build or copy it again",
        )
    layout = elf.layout(64 if kind == 2 else 32, "little" if order == 1 else "big")
    if len(head) < 16 + layout.header.size:
        raise refusal(describe(head, source.size), name)
    (
        type_, machine, _, _, phoff, shoff, _, _, phentsize, phnum, shentsize, shnum, shstrndx,
    ) = layout.header.unpack_from(head, 16)  # fmt: skip
    if phnum and phentsize != layout.program.size:
        raise InvalidProgram(
            f"the program headers have {phentsize} bytes each, not {layout.program.size}",
            path=name,
            cause="the dynamic linker refuses this: ELF file's phentsize not the expected size",
        )
    if phnum == elf.PN_XNUM:
        first = source.read(shoff, layout.section.size)
        if len(first) == layout.section.size:
            phnum = layout.section.unpack(first)[7]
    facts = ElfHeader(
        layout.bits,
        layout.byte_order,
        elf.ET_NAMES.get(type_, str(type_)),
        machine,
        elf.machine_name(machine, layout.bits, layout.byte_order),
    )
    return Header(facts, layout, phoff, phnum, shoff, shentsize, shnum, shstrndx)


def read_segments(source: Source, header: Header, name: str) -> tuple[Segment, ...]:
    """Decode the program headers.

    Raises:
        InvalidProgram: they, or the bytes of a PT_LOAD, are not all in the file.
    """
    layout = header.layout
    if header.program_count > MAX_SEGMENTS:
        raise InvalidProgram(
            f"{header.program_count} program headers are announced; at most {MAX_SEGMENTS} are read",
            path=name,
            hint="no linker writes this: the file is damaged, or made to mislead its readers",
        )
    size = header.program_count * layout.program.size
    raw = source.read(header.program_offset, size)
    if len(raw) < size:
        raise InvalidProgram(
            f"the {header.program_count} program headers at {header.program_offset:#x} are not inside the "
            f"file ({source.size} bytes)",
            path=name,
            hint="the file is cut off or damaged: build or copy it again",
        )
    segments = []
    for row in layout.program.iter_unpack(raw):
        if layout.bits == 64:
            kind, flags, offset, address, _, file_size, memory_size, align = row
        else:
            kind, offset, address, _, file_size, memory_size, flags, align = row
        if kind == elf.PT_LOAD and offset + file_size > source.size:
            raise InvalidProgram(
                f"truncated: a segment needs the bytes up to {offset + file_size}, "
                f"but the file has only {source.size}",
                path=name,
                hint="the copy or download stopped early: fetch the file again",
            )
        letters = (("R", elf.PF_R), ("W", elf.PF_W), ("E", elf.PF_X))
        text = "".join(letter for letter, bit in letters if flags & bit)
        segments.append(
            Segment(
                elf.PT_NAMES.get(kind, f"{kind:#x}"), text, offset, address, file_size, memory_size, align
            )
        )
    return tuple(segments)
