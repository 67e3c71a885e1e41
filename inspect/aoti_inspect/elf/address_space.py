"""Which byte of the file an address is."""

from __future__ import annotations

from aoti_abi.records import TYPE_CHECKING

if TYPE_CHECKING:
    from aoti_inspect.elf.records import Segment
    from aoti_inspect.source import Source


class AddressSpace:
    """A file's PT_LOAD segments over its bytes.

    Segments that overlap are mapped one over the other in the file's order, so the last one that has an
    address counts.
    """

    def __init__(self, source: Source, segments: tuple[Segment, ...]) -> None:
        self._source = source
        loads = [segment for segment in segments if segment.type == "LOAD" and segment.file_size]
        self._loads = tuple(reversed(loads))

    def segment_of(self, address: int) -> Segment | None:
        """Return the PT_LOAD that has the byte for ``address`` in the file; None if there is none."""
        for segment in self._loads:
            if 0 <= address - segment.address < segment.file_size:
                return segment
        return None

    def offset_of(self, address: int) -> int | None:
        """Return the offset of the byte for ``address``; None if the file doesn't have it."""
        segment = self.segment_of(address)
        return None if segment is None else segment.offset + address - segment.address

    def available(self, address: int) -> int:
        """Return how many bytes of the file follow from ``address`` on in its segment; 0 if it has none."""
        segment = self.segment_of(address)
        return 0 if segment is None else segment.file_size - (address - segment.address)

    def read(self, address: int, size: int) -> bytes:
        """Return up to ``size`` bytes at ``address``, from the segment that has it; fewer where it ends."""
        segment = self.segment_of(address)
        if segment is None:
            return b""
        ahead = address - segment.address
        return self._source.read(segment.offset + ahead, min(size, segment.file_size - ahead))
