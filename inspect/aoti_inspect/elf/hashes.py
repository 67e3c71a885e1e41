"""DT_GNU_HASH and DT_HASH: how many symbols there are, and where one of them is.

The gABI's hash table tells its number of symbols outright; the GNU one only through its longest chain.
Neither is believed before it was checked against the bytes that are there.
"""

from __future__ import annotations

import struct

from aoti_abi.records import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from aoti_inspect.elf import format as elf

    Read = Callable[[int, int], bytes]

#: Entries that are read of one table. 2 million symbols are 28 times those of libtorch_cpu.
MAX_SYMBOLS = 1 << 21
_BLOCK = 1024


def gnu_hash(name: bytes) -> int:
    """Return the hash that DT_GNU_HASH uses (Bernstein's, 32 bits)."""
    value = 5381
    for byte in name:
        value = (value * 33 + byte) & 0xFFFFFFFF
    return value


def sysv_hash(name: bytes) -> int:
    """Return the hash that DT_HASH uses (System V gABI, "Hash Table")."""
    value = 0
    for byte in name:
        value = (value << 4) + byte
        high = value & 0xF0000000
        value = (value ^ (high >> 24)) & ~high & 0xFFFFFFFF
    return value


class GnuHash(NamedTuple):
    """A DT_GNU_HASH table whose parts are all in the file.

    Attributes:
        buckets: number of buckets, at least 1.
        first: index of the first symbol that can be found.
        words: number of words of the Bloom filter, a power of two.
        shift: the filter's second shift.
        bloom, table, chains: addresses of the three arrays.
        layout: the file's layout.
        read: reads bytes at an address.
    """

    buckets: int
    first: int
    words: int
    shift: int
    bloom: int
    table: int
    chains: int
    layout: elf.Layout
    read: Read

    def reach(self) -> int | None:
        """Return how many symbols the table covers; 0 if it is empty, None if its chains don't end."""
        mark = self.layout.mark
        raw = self.read(self.table, 4 * self.buckets)
        if len(raw) < 4 * self.buckets:
            return None
        # One number at a time: a tuple of all of them would take ten times the table's own size.
        last: int = max(number for (number,) in struct.iter_unpack(f"{mark}I", raw))
        if last < self.first:
            return 0
        while last < MAX_SYMBOLS:
            raw = self.read(self.chains + 4 * (last - self.first), 4 * _BLOCK)
            if len(raw) < 4:
                return None
            # The lowest bit of a chain's last entry is set.
            low = raw[0 if mark == "<" else 3 : len(raw) - len(raw) % 4 : 4]
            for step, byte in enumerate(low):
                if byte & 1:
                    return last + step + 1
            last += len(low)
        return None

    def candidates(self, name: bytes) -> Iterator[int | None]:
        """Go along the chain of this name's bucket, as the dynamic linker does.

        Yields:
            The index of each symbol that may have the name; None for one whose hash is another's.
        """
        value = gnu_hash(name)
        word, mark = self.layout.word, self.layout.mark
        raw = self.read(self.bloom + word.size * (value // self.layout.bits & (self.words - 1)), word.size)
        if len(raw) < word.size:
            return
        (bits,) = word.unpack(raw)
        if (
            not (bits >> (value % self.layout.bits))
            & (bits >> ((value >> self.shift) % self.layout.bits))
            & 1
        ):
            return
        raw = self.read(self.table + 4 * (value % self.buckets), 4)
        if len(raw) < 4:
            return
        (index,) = struct.unpack(f"{mark}I", raw)
        if index < self.first:
            return
        for at in range(index, MAX_SYMBOLS):
            raw = self.read(self.chains + 4 * (at - self.first), 4)
            if len(raw) < 4:
                return
            (entry,) = struct.unpack(f"{mark}I", raw)
            yield at if (entry ^ value) >> 1 == 0 else None
            if entry & 1:
                return


class SysvHash(NamedTuple):
    """A DT_HASH table whose parts are all in the file; ``symbols`` is its number of chain entries."""

    buckets: int
    symbols: int
    table: int
    width: int
    layout: elf.Layout
    read: Read

    def _entry(self, number: int) -> int:
        raw = self.read(self.table + self.width * number, self.width)
        return int.from_bytes(raw, self.layout.byte_order)

    def candidates(self, name: bytes) -> Iterator[int]:
        """Yield the indices in the chain of this name's bucket; a chain that runs in a circle ends."""
        index = self._entry(sysv_hash(name) % self.buckets)
        for _ in range(self.symbols):
            if not 0 < index < self.symbols:
                return
            yield index
            index = self._entry(self.buckets + index)


def open_gnu_hash(address: int, layout: elf.Layout, read: Read) -> GnuHash | str:
    """Check a DT_GNU_HASH table; return it, or what is wrong with it as the end of a sentence."""
    header = struct.Struct(layout.mark + "IIII")
    raw = read(address, header.size)
    if len(raw) < header.size:
        return "lies outside of the file"
    buckets, first, words, shift = header.unpack(raw)
    if buckets == 0:
        return "has no buckets: the dynamic linker finds no symbol through it"
    if words == 0 or words & (words - 1):
        return f"has a Bloom filter of {words} words, which is not a power of two"
    bloom = address + header.size
    table = bloom + words * layout.word.size
    chains = table + 4 * buckets
    if buckets > 4 * MAX_SYMBOLS or words > MAX_SYMBOLS or len(read(chains - 1, 1)) < 1:
        return f"announces {buckets} buckets and {words} filter words, more than the file holds"
    # Read whole: both ends may be in the file, and a gap between two segments in the middle.
    if len(read(bloom, table - bloom)) < table - bloom or len(read(table, 4 * buckets)) < 4 * buckets:
        return f"announces {buckets} buckets and {words} filter words, more than the file holds"
    return GnuHash(buckets, first, words, shift, bloom, table, chains, layout, read)


def open_sysv_hash(address: int, layout: elf.Layout, machine: int, read: Read) -> SysvHash | str:
    """Check a DT_HASH table; return it, or what is wrong with it as the end of a sentence."""
    # Alpha and 64-bit s390 have 64-bit entries (their psABI supplements).
    width = 8 if layout.bits == 64 and machine in (22, 0x9026) else 4
    raw = read(address, 2 * width)
    if len(raw) < 2 * width:
        return "lies outside of the file"
    buckets = int.from_bytes(raw[:width], layout.byte_order)
    symbols = int.from_bytes(raw[width:], layout.byte_order)
    if buckets == 0:
        return "has no buckets: the dynamic linker finds no symbol through it"
    table = address + 2 * width
    entries = buckets + symbols
    if entries > 4 * MAX_SYMBOLS or len(read(table, width * entries)) < width * entries:
        return f"announces {buckets} buckets and {symbols} symbols, more than the file holds"
    return SysvHash(buckets, symbols, table, width, layout, read)
