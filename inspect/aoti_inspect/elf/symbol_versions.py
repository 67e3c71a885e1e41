"""Which version each dynamic symbol has."""

from __future__ import annotations

import struct
import sys
from functools import cached_property

from aoti_abi.records import TYPE_CHECKING
from aoti_inspect.elf import format as elf
from aoti_inspect.elf.versions import read_definitions, read_needs

if TYPE_CHECKING:
    from collections.abc import Callable

    from aoti_inspect.elf.address_space import AddressSpace
    from aoti_inspect.elf.dynamic import Dynamic
    from aoti_inspect.elf.strings import StringTable
    from aoti_inspect.elf.versions import Definition, Need


class SymbolVersions:
    """DT_VERSYM, DT_VERNEED and DT_VERDEF of one file; the arguments are those of `SymbolTable`."""

    def __init__(
        self,
        space: AddressSpace,
        layout: elf.Layout,
        dynamic: Dynamic | None,
        *,
        strings: StringTable,
        note: Callable[..., None],
    ) -> None:
        self._space = space
        self._layout = layout
        self._values = {} if dynamic is None else dynamic.values
        self._strings = strings
        self._note = note

    @cached_property
    def needs(self) -> list[Need]:
        """DT_VERNEED's records, in the file's order."""
        address = self._values.get(elf.DT_VERNEED)
        if address is None:
            return []
        count = self._values.get(elf.DT_VERNEEDNUM, 0)
        return read_needs(
            address, count, self._layout, strings=self._strings, read=self._space.read, note=self._note
        )

    @cached_property
    def definitions(self) -> list[Definition]:
        """DT_VERDEF's records, in the file's order, the file's own base version included."""
        address = self._values.get(elf.DT_VERDEF)
        if address is None:
            return []
        count = self._values.get(elf.DT_VERDEFNUM, 0)
        return read_definitions(
            address, count, self._layout, strings=self._strings, read=self._space.read, note=self._note
        )

    @cached_property
    def _needs_by_index(self) -> dict[int, Need]:
        return {need.number: need for need in self.needs}

    @cached_property
    def _definitions_by_index(self) -> dict[int, Definition]:
        return {definition.number: definition for definition in self.definitions}

    def raw_index(self, symbol: int) -> int:
        """Return DT_VERSYM's entry for a symbol: 0 local, 1 without a version; 1 if there is no table."""
        address = self._values.get(elf.DT_VERSYM)
        if address is None:
            return 1
        raw = self._space.read(address + 2 * symbol, 2)
        return int.from_bytes(raw, self._layout.byte_order) if len(raw) == 2 else 1

    def offset_of(self, symbol: int) -> int | None:
        """Return where in the file DT_VERSYM's entry for a symbol is, two bytes; None if there is none."""
        address = self._values.get(elf.DT_VERSYM)
        return None if address is None else self._space.offset_of(address + 2 * symbol)

    def is_hidden(self, symbol: int) -> bool:
        """Whether a definition is hidden from references without a version (``name@VERSION``)."""
        return bool(self.raw_index(symbol) & elf.VERSYM_HIDDEN)

    def column(self, count: int) -> list[int] | None:
        """Return DT_VERSYM's entries for the first ``count`` symbols; None if the file has no such table."""
        address = self._values.get(elf.DT_VERSYM)
        if address is None:
            return None
        raw = self._space.read(address, 2 * count)
        if len(raw) < 2 * count:
            self._note("the versions of the symbols (DT_VERSYM) reach outside of the file")
            raw = raw[: len(raw) & ~1]
        if self._layout.byte_order == sys.byteorder:
            return memoryview(raw).cast("H").tolist()
        return [number for (number,) in struct.iter_unpack(f"{self._layout.mark}H", raw)]

    def need(self, raw_index: int) -> Need | None:
        """Return the needed version behind DT_VERSYM's ``raw_index``; None if it is another kind."""
        return self._needs_by_index.get(raw_index & ~elf.VERSYM_HIDDEN)

    def definition(self, raw_index: int) -> Definition | None:
        """Return the defined version behind DT_VERSYM's ``raw_index``; None if it is another kind."""
        return self._definitions_by_index.get(raw_index & ~elf.VERSYM_HIDDEN)
