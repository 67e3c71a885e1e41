"""One ELF file as the dynamic linker sees it.

PT_DYNAMIC is the authority: the section table may be missing or lie, and the dynamic linker never looks at
it. Every offset is checked against the file and every count is bounded, so any bytes give facts or one
`AotiError`.
"""

from __future__ import annotations

from functools import cached_property

from aoti_abi.errors import InvalidProgram
from aoti_abi.records import TYPE_CHECKING
from aoti_inspect.budget import Budget
from aoti_inspect.elf import format as elf
from aoti_inspect.elf.address_space import AddressSpace
from aoti_inspect.elf.assemble import assemble
from aoti_inspect.elf.dynamic import MAX_ENTRIES, parse_dynamic
from aoti_inspect.elf.header import read_header, read_segments
from aoti_inspect.elf.records import Symbol
from aoti_inspect.elf.sections import read_sections
from aoti_inspect.elf.strings import MAX_TABLE, StringTable
from aoti_inspect.elf.symbol_table import SymbolTable
from aoti_inspect.source import BufferSource, Source

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aoti_inspect.elf.dynamic import Dynamic
    from aoti_inspect.elf.records import ElfFacts, Section, Segment
    from aoti_inspect.elf.symbols import DynamicSymbol

#: Bytes that `ElfImage.contains` looks at; a plugin has about one million.
MAX_SEARCH = 1 << 25
#: Sentences that are kept about one file: more say nothing new.
MAX_NOTED = 256
_AND_MORE = f"and more, beyond the {MAX_NOTED} that are listed"
_DAMAGED = "no linker writes this: the file is damaged, or made to mislead its readers"


class _Note:
    """Remembers sentences, each once, in the order in which they came."""

    def __init__(self, sentences: dict[str, bool], budget: Budget) -> None:
        self._sentences = sentences
        self._budget = budget

    def __call__(self, sentence: str, *, fatal: bool = False, unread: bool = False) -> None:
        """Remember something that is wrong but could be worked around.

        Args:
            sentence: what is wrong.
            fatal: whether the dynamic linker does not work around it.
            unread: whether something was left unread over it, so that the file can't pass.
        """
        if unread:
            self._budget.give_up(sentence)
        if len(self._sentences) < MAX_NOTED:
            self._sentences[sentence] = fatal
        elif sentence not in self._sentences:
            # That there is more of it is one sentence, which is fatal if any of them was.
            self._sentences[_AND_MORE] = fatal or self._sentences.get(_AND_MORE, False)


class ElfImage:
    """The parsed dynamic view over some bytes; its parts are decoded when they are first asked for.

    Args:
        data: the whole file, in memory, or a `Source` that reads it. Only its tables are copied.
        name: what to call it in errors.
        budget: what reading it may cost; by default the source's, or that of a file of its own.

    Attributes:
        name, source, budget: as given.
        header: the ELF header.
        layout: how its class and byte order lay out records.
        segments: the program headers.
        space: the file by address.
        note: called with one sentence for each thing that is wrong but could be worked around.

    Raises:
        AotiError: it is not an ELF file, or cut off.
    """

    def __init__(
        self, data: bytes | bytearray | memoryview | Source, name: str, *, budget: Budget | None = None
    ) -> None:
        self.name = name
        self.source = data if isinstance(data, Source) else BufferSource(data)
        whole = budget or self.source.budget
        self.budget = Budget(self.source.size) if whole is None else whole.part()
        self.header = read_header(self.source, name)
        self.layout = self.header.layout
        self.segments = read_segments(self.source, self.header, name)
        self.space = AddressSpace(self.source, self.segments)
        # The tables note what is wrong without knowing the image: a cycle would keep a caller's mmap open.
        self._anomalies: dict[str, bool] = {}
        self.note = _Note(self._anomalies, self.budget)

    @property
    def anomalies(self) -> tuple[str, ...]:
        """What was noted so far, each sentence once; what `facts` returns is complete."""
        return tuple(self._anomalies)

    @property
    def unusable(self) -> tuple[str, ...]:
        """Those of the anomalies that the dynamic linker does not work around."""
        return tuple(sentence for sentence, fatal in self._anomalies.items() if fatal)

    def read_at_address(self, address: int, size: int) -> bytes:
        """Return up to ``size`` bytes at ``address``; fewer where the segment that has them ends."""
        return self.space.read(address, size)

    def contains(self, text: bytes) -> bool:
        """Whether the first `MAX_SEARCH` bytes of the segments that can't be written hold ``text``."""
        left = MAX_SEARCH
        for start, end in self.read_only:
            if self.source.find(text, start, min(end, start + left)) >= 0:
                return True
            left -= end - start
            if left <= 0:
                break
        return False

    @property
    def dynamic_offset(self) -> int | None:
        """Where in the file the entries of `dynamic` are; None if there are none in it."""
        segment = self._dynamic_segment
        # The dynamic linker goes by the segment's address and not by its offset.
        return None if segment is None else self.space.offset_of(segment.address)

    @property
    def _dynamic_segment(self) -> Segment | None:
        return next((item for item in reversed(self.segments) if item.type == "DYNAMIC"), None)

    @cached_property
    def read_only(self) -> tuple[tuple[int, int], ...]:
        """Where the bytes are that are mapped and can't be written: start and end, no byte twice."""
        found: list[tuple[int, int]] = []
        behind = 0
        for start, end in sorted(
            (segment.offset, segment.offset + segment.file_size)
            for segment in self.segments
            if segment.type == "LOAD" and "W" not in segment.flags
        ):
            if end > behind:
                found.append((max(start, behind), end))
                behind = end
        return tuple(found)

    @cached_property
    def dynamic(self) -> Dynamic | None:
        """PT_DYNAMIC; None if the file has none, or none with bytes in the file.

        Raises:
            InvalidProgram: no PT_LOAD maps it, or it has more than `MAX_ENTRIES` entries.
        """
        segment = self._dynamic_segment
        if segment is None:
            return None
        if segment.file_size == 0:
            self.note(
                "PT_DYNAMIC has no bytes: the dynamic linker says 'object file has no dynamic section'",
                fatal=True,
            )
            return None
        offset = self.dynamic_offset
        if offset is None:
            raise self._damaged(f"PT_DYNAMIC is at {segment.address:#x}, which no PT_LOAD maps")
        if offset != segment.offset:
            self.note("PT_DYNAMIC's address and its offset lead to different bytes; the address was followed")
        limit = MAX_ENTRIES * self.layout.dynamic.size
        raw = self.space.read(segment.address, min(segment.file_size, limit))
        dynamic = parse_dynamic(raw, self.layout)
        if not dynamic.terminated:
            if len(raw) < limit:
                self.note("PT_DYNAMIC has no DT_NULL at its end: the dynamic linker reads on behind it")
                # To the first DT_NULL, whatever the size of the segment.
                raw = self.space.read(segment.address, limit)
                dynamic = parse_dynamic(raw, self.layout)
            if not dynamic.terminated and len(raw) == limit:
                raise self._damaged(f"PT_DYNAMIC does not end within {MAX_ENTRIES} entries")
        return dynamic

    @cached_property
    def strings(self) -> StringTable:
        """DT_STRTAB; empty if there is none.

        Raises:
            InvalidProgram: its address is not in the file, or it is larger than any real one.
        """
        if self.dynamic is None:
            return StringTable(b"")
        address = self.dynamic.values.get(elf.DT_STRTAB)
        if address is None:
            self.note("PT_DYNAMIC names no string table (DT_STRTAB)")
            return StringTable(b"")
        available = self.space.available(address)
        if not available:
            raise self._damaged(
                f"the string table (DT_STRTAB) is at {address:#x}, which is not in the file: "
                "the dynamic linker crashes on it"
            )
        size = self.dynamic.values.get(elf.DT_STRSZ)
        if size is None:
            self.note("the size of the string table is not given (DT_STRSZ)")
            size = available
        elif size > available:
            self.note(f"the string table claims {size} bytes, but its segment ends after {available}")
            size = available
        if size > MAX_TABLE:
            raise self._damaged(f"the string table has {size} bytes, more than the {MAX_TABLE} that are read")
        return StringTable(self.space.read(address, size))

    @cached_property
    def symbol_table(self) -> SymbolTable:
        """The dynamic symbol table; empty if there is none."""
        return SymbolTable(
            self.space,
            self.layout,
            self.dynamic,
            machine=self.header.facts.machine,
            strings=self.strings,
            note=self.note,
        )

    def find(self, symbol: str) -> DynamicSymbol | None:
        """Return the entry that defines ``symbol`` for others; None if there is none.

        See `SymbolTable.find` for how it is looked up.
        """
        return self.symbol_table.find(symbol)

    def defines(self, symbol: str) -> Symbol | None:
        """Return the symbol if this file defines it for others, else None."""
        entry = self.symbol_table.find(symbol)
        if entry is None:
            return None
        versions = self.symbol_table.versions
        definition = versions.definition(versions.raw_index(entry.position))
        version = None if definition is None or definition.base else definition.version
        return Symbol(entry.name, entry.binding, version, None)

    def defined_names(self) -> Iterator[str]:
        """Yield the name of every symbol that this file defines for others, in the table's order."""
        return self.symbol_table.defined_names()

    def dynamic_symbols(self) -> Iterator[DynamicSymbol]:
        """Yield every entry of the dynamic symbol table but the null entry."""
        return self.symbol_table.entries()

    @cached_property
    def _section_table(self) -> tuple[tuple[Section, ...] | None, str | None]:
        head = self.header
        return read_sections(
            self.source,
            self.layout,
            offset=head.section_offset,
            entry_size=head.section_size,
            count=head.section_count,
            names_index=head.section_names,
        )

    @property
    def sections(self) -> tuple[Section, ...] | None:
        """The section table; None if there is none, or none that can be used."""
        return self._section_table[0]

    @property
    def section_problem(self) -> str | None:
        """Why the section table can't be used; None if it can, or if there is none."""
        return self._section_table[1]

    def facts(self) -> ElfFacts:
        """Return everything at once.

        Raises:
            InvalidProgram: something without which the dynamic linker can't load the file is broken.
        """
        return assemble(self)

    def _damaged(self, message: str) -> InvalidProgram:
        return InvalidProgram(message, path=self.name, hint=_DAMAGED)
