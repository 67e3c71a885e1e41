"""The ELF header and the program headers: what has to be right before anything else can be read."""

from __future__ import annotations

from aoti_abi.errors import InvalidProgram
from aoti_abi.records import TYPE_CHECKING, NamedTuple
from aoti_inspect.elf import format as elf
from aoti_inspect.elf.records import ElfHeader, Segment
from aoti_inspect.file_kind import HEAD, describe, refusal

if TYPE_CHECKING:
    from typing import Literal

    from aoti_inspect.source import Source


#: Program headers that are read: as many as e_phnum can tell, which is all that the dynamic linker takes.
MAX_SEGMENTS = 1 << 16


class Header(NamedTuple):
    """The header, decoded.

    Attributes:
        facts: the part that reports show.
        layout: how the file's records are laid out.
        flags, abi_version: e_flags and the ABI version of e_ident, which mean what the machine says.
        program_offset, program_count: where the program headers are, and how many.
        section_offset, section_size, section_count, section_names: e_shoff, e_shentsize, e_shnum, e_shstrndx.
    """

    facts: ElfHeader
    layout: elf.Layout
    flags: int
    abi_version: int
    program_offset: int
    program_count: int
    section_offset: int
    section_size: int
    section_count: int
    section_names: int

    @property
    def end(self) -> int:
        """Where the last of the header and its two tables ends: the length of a file that has them last."""
        return max(
            16 + self.layout.header.size,
            self.program_offset + self.program_count * self.layout.program.size,
            self.section_offset + self.section_count * self.section_size,
        )

    def segment_flags_offset(self, index: int) -> int:
        """Return where in the file p_flags of a program header is, four bytes."""
        entry = self.program_offset + index * self.layout.program.size
        return entry + (4 if self.layout.bits == 64 else 24)


def identify(head: bytes) -> ElfHeader | None:
    """Decode class, byte order, type and machine from a file's first 20 bytes; None if they are not ELF's."""
    if len(head) < 20 or not head.startswith(elf.MAGIC) or head[4] not in (1, 2) or head[5] not in (1, 2):
        return None
    bits: Literal[32, 64] = 64 if head[4] == 2 else 32
    order: elf.ByteOrder = "little" if head[5] == 1 else "big"
    type_ = int.from_bytes(head[16:18], order)
    machine = int.from_bytes(head[18:20], order)
    return ElfHeader(
        bits, order, elf.ET_NAMES.get(type_, str(type_)), machine, elf.machine_name(machine, bits, order)
    )


def read_header(source: Source, name: str) -> Header:
    """Decode the first bytes.

    Raises:
        AotiError: it is not ELF, or too broken to go on; the error says what it is.
    """
    head = source.read(0, 64)
    if not head.startswith(elf.MAGIC) or len(head) < 20:
        raise refusal(describe(source.read(0, HEAD), source.size), name)
    facts = identify(head)
    if facts is None:
        raise InvalidProgram(
            f"the ELF header has class {head[4]} and byte order {head[5]}; both must be 1 or 2",
            path=name,
            hint="the file is damaged: build or copy it again",
        )
    layout = elf.layout(facts.bits, facts.byte_order)
    if len(head) < 16 + layout.header.size:
        raise refusal(describe(head, source.size), name)
    (
        _, _, _, _, phoff, shoff, flags, _, phentsize, phnum, shentsize, shnum, shstrndx,
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
    return Header(facts, layout, flags, head[8], phoff, phnum, shoff, shentsize, shnum, shstrndx)


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
