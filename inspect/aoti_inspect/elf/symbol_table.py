"""The dynamic symbol table: how long it is, what is in it, and where a name is.

PT_DYNAMIC gives the table's address but not its length. That comes from DT_HASH, from the longest chain of
DT_GNU_HASH, or from where the next table begins.
"""

from __future__ import annotations

from functools import cached_property

from aoti_abi.errors import InvalidProgram
from aoti_abi.records import TYPE_CHECKING
from aoti_inspect.elf import format as elf
from aoti_inspect.elf.hashes import MAX_SYMBOLS, GnuHash, open_gnu_hash, open_sysv_hash
from aoti_inspect.elf.symbol_versions import SymbolVersions
from aoti_inspect.elf.symbols import (
    BINDINGS,
    NOT_LOCAL,
    Columns,
    DynamicSymbol,
    binding_name,
    both,
    positions,
    read_columns,
    read_symbol,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from aoti_inspect.elf.address_space import AddressSpace
    from aoti_inspect.elf.dynamic import Dynamic
    from aoti_inspect.elf.hashes import SysvHash
    from aoti_inspect.elf.strings import StringTable

#: Defined symbols that are looked up to find out whether a hash table tells the truth.
_SAMPLES = 8
#: Entries behind the last one that a hash table covers that are looked at.
_MAX_EXTRA = 1 << 16
#: Linkers make about as many buckets as there are symbols; a longer chain than this comes from none of them.
_LONG_CHAIN = 64
#: Steps beyond that in all lookups together, a second's work.
_MAX_STEPS = 1 << 18

#: STV_INTERNAL and STV_HIDDEN; STT_* that are no code.
_INVISIBLE = {1: "internal", 2: "hidden"}
_NO_FUNCTIONS = {
    1: "data (STT_OBJECT)",
    3: "a section",
    4: "a file's name",
    5: "common data",
    6: "thread-local",
}


class SymbolTable:
    """DT_SYMTAB and what belongs to it.

    Args:
        space: the file by address.
        layout: its class and byte order.
        dynamic: PT_DYNAMIC; without one, or without DT_SYMTAB, the table is empty.
        machine: e_machine.
        strings: DT_STRTAB.
        note: takes one sentence for each thing that is wrong.

    Attributes:
        address: DT_SYMTAB; None if there is none.
        versions: the versions of its symbols.
    """

    def __init__(
        self,
        space: AddressSpace,
        layout: elf.Layout,
        dynamic: Dynamic | None,
        *,
        machine: int,
        strings: StringTable,
        note: Callable[..., None],
    ) -> None:
        self._space = space
        self._layout = layout
        self._machine = machine
        self._dynamic = dynamic
        self._strings = strings
        self._note = note
        self.address = None if dynamic is None else dynamic.values.get(elf.DT_SYMTAB)
        self._patience = _MAX_STEPS
        self.versions = SymbolVersions(space, layout, dynamic, strings=strings, note=note)

    @property
    def entry_size(self) -> int:
        """Bytes of one entry."""
        return self._layout.symbol.size

    def offset_of(self, index: int) -> int | None:
        """Return where in the file an entry is; None if the table or that entry is not in it."""
        return None if self.address is None else self._space.offset_of(self.address + index * self.entry_size)

    # How long it is

    @cached_property
    def _extent(self) -> tuple[int, str, bool]:
        """Count, source of the count, and whether the hash table covers all of it."""
        if self.address is None or self._dynamic is None:
            return 0, "", True
        size = self.entry_size
        room = self._space.available(self.address) // size
        if not room:
            raise InvalidProgram(
                f"the symbol table (DT_SYMTAB) is at {self.address:#x}, which is not in the file: "
                "the dynamic linker crashes on it"
            )
        stored = self._dynamic.values.get(elf.DT_SYMENT)
        if stored != size:
            self._note(f"DT_SYMENT is {stored}, but an entry of the symbol table has {size} bytes")
        nearest = min(self._dynamic.tables_above(self.address), default=0)
        bound = min((nearest - self.address) // size, room) if nearest else room
        count, source = self._count_by_hash(room)
        if count == 0:
            # Without another table behind it only the entries' own looks tell where the table ends.
            count = bound if nearest else 1 + self._plausible(1, bound)
            source = "DT_STRTAB"
        elif count > bound:
            extra = self._plausible(bound, count)
            self._note(
                f"the hash table covers {count} dynamic symbols, but another table begins after {bound}"
            )
            return bound + extra, "DT_STRTAB", False
        elif count < bound:
            extra = self._plausible(count, bound)
            if extra:
                self._note(f"the hash table covers {count} of {count + extra} dynamic symbols")
                return count + extra, "DT_STRTAB", False
        if count > MAX_SYMBOLS:
            raise InvalidProgram(f"{count} dynamic symbols, more than the {MAX_SYMBOLS} that are read")
        return count, source, True

    def _count_by_hash(self, room: int) -> tuple[int, str]:
        by_sysv = self.sysv_hash.symbols if self.sysv_hash else 0
        by_gnu: int | None = 0
        if self.gnu_hash:
            by_gnu = self.gnu_hash.reach()
            if by_gnu is None:
                self._note(
                    "the chains of the hash table (DT_GNU_HASH) do not end within the file", fatal=True
                )
        if by_sysv and by_gnu and by_sysv != by_gnu:
            self._note(f"DT_HASH counts {by_sysv} dynamic symbols, DT_GNU_HASH {by_gnu}")
        count, source = max((by_sysv, "DT_HASH"), (by_gnu or 0, "DT_GNU_HASH"), key=lambda item: item[0])
        if count > room:
            self._note(f"the hash table covers {count} symbols, but the file has room for {room}", fatal=True)
            return 0, ""
        return count, source

    def _plausible(self, start: int, end: int) -> int:
        """Return how many entries from ``start`` on look like symbols: a real name, a known binding."""
        assert self.address is not None
        end = min(end, start + _MAX_EXTRA)
        raw = self._space.read(self.address + start * self.entry_size, (end - start) * self.entry_size)
        names, info, _ = read_columns(raw[: len(raw) - len(raw) % self.entry_size], self._layout)
        data = self._strings.data
        for index, (name, bind) in enumerate(zip(names, info, strict=True)):
            if not 0 < name < len(data) or data[name] == 0 or bind >> 4 not in BINDINGS or bind & 15 > 10:
                return index
        return len(names)

    @property
    def count(self) -> int:
        """How many entries there are, the null entry included.

        Raises:
            InvalidProgram: the table is not in the file, or has more entries than any real one.
        """
        return self._extent[0]

    @property
    def count_source(self) -> str:
        """What told the count: "DT_HASH", "DT_GNU_HASH", "DT_STRTAB"; "" if there is no table."""
        return self._extent[1]

    # What is in it

    @cached_property
    def columns(self) -> Columns:
        """The table by columns; empty if there is none."""
        if self.address is None or not self.count:
            return Columns([], b"", b"")
        raw = self._space.read(self.address, self.count * self.entry_size)
        return read_columns(raw, self._layout)

    def entry(self, index: int) -> DynamicSymbol | None:
        """Return one entry; None if it or its name is outside of its table."""
        if self.address is None or index < 0:
            return None
        raw = self._space.read(self.address + index * self.entry_size, self.entry_size)
        if len(raw) < self.entry_size:
            return None
        name, info, section, value, size = read_symbol(raw, self._layout)
        text = self._strings.text(name)
        if text is None:
            return None
        return DynamicSymbol(
            index, text, binding_name(info), info & 15, section != elf.SHN_UNDEF, value, size
        )

    def undeliverable(self, entry: DynamicSymbol) -> str | None:
        """Return why ``dlsym`` does not deliver a function for a defined symbol; None if it does.

        glibc's ``do_lookup_x`` takes global, weak and unique symbols of default or protected visibility, and
        ``check_match`` passes over versions that are marked hidden.
        """
        if entry.binding not in ("global", "weak", "unique"):
            return "it does not bind globally"
        at = (self.address or 0) + entry.position * self.entry_size + (5 if self._layout.bits == 64 else 13)
        visibility = (self._space.read(at, 1) or b"\0")[0] & 3
        if visibility in _INVISIBLE:
            return f"its visibility is {_INVISIBLE[visibility]}"
        if entry.type in _NO_FUNCTIONS:
            return f"it is {_NO_FUNCTIONS[entry.type]}"
        if entry.value == 0:
            return "its value is 0"
        number = self.versions.raw_index(entry.position)
        if number & elf.VERSYM_HIDDEN and number & ~elf.VERSYM_HIDDEN > 1:
            return "its only version is hidden"
        return None

    def entries(self) -> Iterator[DynamicSymbol]:
        """Yield every entry but the null entry; those whose name is outside of the table are left out."""
        for index in range(1, self.count):
            entry = self.entry(index)
            if entry is not None:
                yield entry

    def defined_names(self) -> Iterator[str]:
        """Yield the names of the entries that are defined and not local, in the table's order."""
        for name in self.columns.exported(NOT_LOCAL):
            text = self._strings.text(name)
            if text:
                yield text

    # Where a name is

    @cached_property
    def gnu_hash(self) -> GnuHash | None:
        """DT_GNU_HASH, if there is one that can be used."""
        address = None if self._dynamic is None else self._dynamic.values.get(elf.DT_GNU_HASH)
        if address is None:
            return None
        table = open_gnu_hash(address, self._layout, self._space.read)
        if isinstance(table, str):
            self._note(f"the hash table (DT_GNU_HASH) {table}")
            return None
        return table

    @cached_property
    def sysv_hash(self) -> SysvHash | None:
        """DT_HASH, if there is one that can be used."""
        address = None if self._dynamic is None else self._dynamic.values.get(elf.DT_HASH)
        if address is None:
            return None
        table = open_sysv_hash(address, self._layout, self._machine, self._space.read)
        if isinstance(table, str):
            self._note(f"the hash table (DT_HASH) {table}")
            return None
        return table

    def hashed(self, name: bytes) -> int | None:
        """Return the entry to which the hash table leads for a defined ``name``; None if it leads nowhere.

        Of several versions of one name the default one counts. DT_GNU_HASH goes before DT_HASH, as in glibc.

        Raises:
            InvalidProgram: the table's chains are so long that lookups do not end in reasonable time.
        """
        table = self.gnu_hash or self.sysv_hash
        if table is None or self.address is None:
            return None
        hidden = None
        for step, index in enumerate(table.candidates(name)):
            if step >= _LONG_CHAIN:
                self._patience -= 1
                if self._patience < 0:
                    raise InvalidProgram(
                        "the chains of the hash table are too long to look names up",
                        hint="no linker writes this; the file was made to keep a reader busy",
                    )
            if index is None:
                continue
            raw = self._space.read(self.address + index * self.entry_size, self.entry_size)
            if len(raw) < self.entry_size:
                return hidden
            offset, info, section, _, _ = read_symbol(raw, self._layout)
            if section and info > 15 and self._strings.data.startswith(name + b"\0", offset):
                if not self.versions.is_hidden(index):
                    return index
                hidden = index if hidden is None else hidden
        return hidden

    def find(self, name: str) -> DynamicSymbol | None:
        """Return the entry that defines ``name`` for others; None if there is none.

        A hash table is believed when it says no only if it leads to the symbols that it should lead to;
        otherwise the entries themselves decide.
        """
        raw = name.encode("utf-8", "surrogateescape")
        if not raw:
            return None
        index = self.hashed(raw)
        if index is None and not self._hash_is_true:
            index = self._by_name.get(raw)
        return None if index is None else self.entry(index)

    @cached_property
    def _hash_is_true(self) -> bool:
        """Whether the hash table covers the whole table and leads to a sample of its symbols."""
        table = self.gnu_hash or self.sysv_hash
        if table is None or not self._extent[2] or self.count_source == "DT_STRTAB":
            return False
        first = table.first if isinstance(table, GnuHash) else 1
        step = max(1, (self.count - first) // _SAMPLES)
        for index in {*range(first, self.count, step), self.count - 1}:
            entry = self.entry(index)
            if entry is None or not entry.name:
                return False
            if entry.defined and entry.binding != "local":
                found = self.hashed(entry.name.encode("utf-8", "surrogateescape"))
                if found is None:
                    return False
        return True

    @cached_property
    def _by_name(self) -> dict[bytes, int]:
        found: dict[bytes, int] = {}
        names, info, defined = self.columns
        for index in positions(both(defined, info.translate(NOT_LOCAL)), 1):
            raw = self._strings.raw(names[index])
            if raw and (raw not in found or self.versions.is_hidden(found[raw])):
                found[raw] = index
        return found
