"""Which byte of the file an address is."""

from __future__ import annotations

from bisect import bisect_right
from itertools import pairwise

from aoti_abi.records import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aoti_inspect.elf.records import Segment
    from aoti_inspect.source import Source


class AddressSpace:
    """A file's PT_LOAD segments over its bytes.

    Segments that overlap are mapped one over the other in the file's order, so the last one that has an
    address counts.
    """

    def __init__(self, source: Source, segments: tuple[Segment, ...]) -> None:
        self._source = source
        loads = [segment for segment in segments if segment.type == "LOAD" and segment.file_size > 0]
        ranges = list(_ranges(loads))
        self._starts = [start for start, _ in ranges]
        self._owners = [owner for _, owner in ranges]

    def segment_of(self, address: int) -> Segment | None:
        """Return the PT_LOAD that has the byte for ``address`` in the file; None if there is none."""
        at = bisect_right(self._starts, address) - 1
        return self._owners[at] if at >= 0 else None

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


def _ranges(loads: list[Segment]) -> Iterator[tuple[int, Segment | None]]:
    """Yield where the owner of the addresses changes, in ascending order, and who owns them from there on.

    A file may have 65,535 segments over each other, and every symbol is looked up by its address.
    """
    order = sorted(range(len(loads)), key=lambda index: loads[index].address)
    if all(_end(loads[one]) <= loads[two].address for one, two in pairwise(order)):
        # As linkers write them; what is only for the others is imported only for them.
        for place, index in enumerate(order):
            yield loads[index].address, loads[index]
            if place + 1 == len(order) or _end(loads[index]) < loads[order[place + 1]].address:
                yield _end(loads[index]), None
        return
    from heapq import heappop, heappush

    edges = sorted({edge for item in loads for edge in (item.address, _end(item))})
    # Those that reach here, the last in the file first.
    active: list[int] = []
    following = 0
    owner: Segment | None = None
    for edge in edges:
        while following < len(order) and loads[order[following]].address == edge:
            heappush(active, -order[following])
            following += 1
        while active and _end(loads[-active[0]]) <= edge:
            heappop(active)
        top = loads[-active[0]] if active else None
        if top is not owner:
            yield edge, top
            owner = top


def _end(segment: Segment) -> int:
    return segment.address + segment.file_size
