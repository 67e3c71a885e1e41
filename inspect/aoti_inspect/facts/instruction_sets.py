"""Which vector instructions the code of a plugin has, found by their encodings.

Metadata say what a kernel was compiled for; the rest of a plugin is compiled with ``-march=native``, so only
the code tells. A byte that begins an EVEX or VEX prefix also occurs inside of other instructions, so each
candidate is confirmed by decoding its function from the start. Where functions start follows from
``PT_GNU_EH_FRAME``, which every plugin has (LSB, ".eh_frame_hdr"). No instruction is executed.
"""

from __future__ import annotations

import re
import struct
from bisect import bisect_right

from aoti_abi.records import TYPE_CHECKING, NamedTuple
from aoti_inspect.elf.x86_length import EVEX, PLAIN, VEX, decode

if TYPE_CHECKING:
    from typing import Literal

    from aoti_inspect.elf.image import ElfImage

    Encoding = Literal["EVEX", "VEX", "AMX"]

#: Functions named for each encoding; the search for it ends there.
SHOWN = 3
#: Bytes of code that are searched, and instructions that are decoded for one encoding.
_MOST_CODE = 64 << 20
_MOST_DECODED = 200_000
_MOST_FUNCTIONS = 200_000
#: DW_EH_PE_*: udata4, sdata4 relative to the header, sdata4 relative to itself.
_UDATA4, _DATAREL_SDATA4, _PCREL_SDATA4 = 0x03, 0x3B, 0x1B


class InstructionUse(NamedTuple):
    """What was found of one encoding.

    Attributes:
        encoding: "EVEX" (AVX-512, AVX10), "VEX" (AVX, AVX2, FMA) or "AMX".
        outcome: "used", "none", or "not checked".
        functions: up to three functions that have it, by name or as ``code at 0x1234``.
        dispatched: whether a function of the file asks for the processor's features (CPUID,
            ``__cpu_model``), so that the code may never be reached on another processor.
        reason: why it was not checked; None otherwise.
    """

    encoding: Encoding
    outcome: Literal["used", "none", "not checked"]
    functions: tuple[str, ...] = ()
    dispatched: bool = False
    reason: str | None = None


class _Function(NamedTuple):
    start: int
    end: int


def _bytes_where(*allowed: int) -> bytes:
    return b"[" + b"".join(re.escape(bytes((value,))) for value in allowed) + b"]"


_ALL = range(256)
_MAPS = (1, 2, 3)
#: What can begin an instruction of each encoding. The reserved bits are as the processor checks them.
_CANDIDATES: dict[str, re.Pattern[bytes]] = {
    "EVEX": re.compile(
        b"\x62"
        + _bytes_where(*(b for b in _ALL if not b & 8 and b & 7 in (*_MAPS, 5, 6)))
        + _bytes_where(*(b for b in _ALL if b & 4)),
        re.DOTALL,
    ),
    "VEX": re.compile(b"\xc5|\xc4" + _bytes_where(*(b for b in _ALL if b & 31 in _MAPS)), re.DOTALL),
    "AMX": re.compile(
        b"\xc4"
        + _bytes_where(*(b for b in _ALL if b & 31 == 2))
        + _bytes_where(*(b for b in _ALL if not b & 0x84))
        + b"[\x49\x4b\x5c\x5e\x6c]",
        re.DOTALL,
    ),
}
_KIND = {"EVEX": EVEX, "VEX": VEX, "AMX": VEX}


def find_instructions(image: ElfImage, encodings: tuple[Encoding, ...]) -> tuple[InstructionUse, ...]:
    """Look for instructions of some encodings in a library's code.

    Args:
        image: an open x86-64 library.
        encodings: what to look for.
    """
    unknown = _unreadable(image)
    if unknown is not None:
        return tuple(InstructionUse(encoding, "not checked", reason=unknown) for encoding in encodings)
    functions = _functions(image)
    pieces = [
        (segment.address, image.source.read(segment.offset, segment.file_size))
        for segment in image.segments
        if segment.type == "LOAD" and "E" in segment.flags
    ]
    return tuple(_look(image, encoding, pieces, functions) for encoding in encodings)


def _unreadable(image: ElfImage) -> str | None:
    if image.header.facts.machine_name != "x86_64":
        return "instructions are decoded for x86_64 only"
    code = sum(s.file_size for s in image.segments if s.type == "LOAD" and "E" in s.flags)
    if code > _MOST_CODE:
        return f"it has {code} bytes of code; {_MOST_CODE} are searched"
    return None


def _look(
    image: ElfImage, encoding: Encoding, pieces: list[tuple[int, bytes]], functions: list[_Function]
) -> InstructionUse:
    sweep = _Sweep(functions, encoding)
    for base, code in pieces:
        for match in _CANDIDATES[encoding].finditer(code):
            sweep.meet(base, code, match.start())
            if len(sweep.found) == SHOWN or sweep.budget <= 0:
                break
    if sweep.found:
        return InstructionUse(encoding, "used", _names(image, sweep.found), _asks_processor(image, pieces))
    reason = None
    if sweep.budget <= 0:
        reason = f"none among the first {_MOST_DECODED} instructions that were decoded"
    elif sweep.unclear:
        reason = "some of its code belongs to no function that the unwind information names"
    return InstructionUse(encoding, "not checked" if reason else "none", reason=reason)


class _Sweep:
    """Candidates of one encoding, met in the order of their addresses; each function is decoded once.

    Attributes:
        found: where the functions start that have it.
        unclear: whether a candidate could not be confirmed or excluded.
        budget: instructions that may still be decoded.
    """

    def __init__(self, functions: list[_Function], encoding: Encoding) -> None:
        self._functions = functions
        self._starts = [function.start for function in functions]
        self._kind = _KIND[encoding]
        self._next = 0  # the address of the first instruction not decoded yet
        self._skip = 0  # the end of a function that needs no more looks
        self.found: list[int] = []
        self.unclear = False
        self.budget = _MOST_DECODED

    def meet(self, base: int, code: bytes, offset: int) -> None:
        """Decode up to a candidate, and note whether an instruction of the encoding starts there."""
        address = base + offset
        if address < self._skip:
            return
        index = bisect_right(self._starts, address) - 1
        function = self._functions[index] if index >= 0 else None
        if function is None or address >= function.end:
            self.unclear = True
            return
        at = max(self._next, function.start) - base
        length, kind = 0, PLAIN
        while at <= offset and self.budget > 0:
            length, kind = decode(code, at)
            self.budget -= 1
            if not length:
                self.unclear, self._skip = True, function.end
                return
            at += length
        self._next = base + at
        if at - length == offset and kind == self._kind:
            self.found.append(function.start)
            self._skip = function.end


def _asks_processor(image: ElfImage, pieces: list[tuple[int, bytes]]) -> bool:
    """Whether anything in the file could choose code by the processor at run time."""
    if any(symbol.name.startswith(("__cpu_", "__x86_get_cpuid")) for symbol in image.dynamic_symbols()):
        return True
    return any(_CPUID.search(code) is not None for _, code in pieces)


#: ``cpuid`` as compilers write it: a register with the leaf is set before, or its results are moved after.
_CPUID = re.compile(
    rb"\x0f\xa2(?=[\x40-\x4f]?[\x89\x87\x85\x39\x3d\x81\xc1\xf6\x0f\x83\x31\xb8-\xbf])", re.DOTALL
)


def _names(image: ElfImage, starts: list[int]) -> tuple[str, ...]:
    by_address = {symbol.value: symbol.name for symbol in image.dynamic_symbols() if symbol.defined}
    return tuple(by_address.get(start) or f"code at {start:#x}" for start in starts)


def _functions(image: ElfImage) -> list[_Function]:
    """Return the functions that the binary search table of PT_GNU_EH_FRAME lists, by address."""
    segment = next((item for item in image.segments if item.type == "GNU_EH_FRAME"), None)
    if segment is None or image.layout.byte_order != "little":
        return []
    head = image.read_at_address(segment.address, 12)
    if len(head) < 12 or head[0] != 1 or head[2] != _UDATA4 or head[3] != _DATAREL_SDATA4:
        return []
    if head[1] != _PCREL_SDATA4:
        return []
    count = min(struct.unpack_from("<I", head, 8)[0], _MOST_FUNCTIONS)
    table = image.read_at_address(segment.address + 12, 8 * count)
    functions = []
    for start, record in struct.iter_unpack("<ii", table[: len(table) & ~7]):
        fde = image.read_at_address(segment.address + record, 16)
        if len(fde) < 16:
            continue
        begin, size = struct.unpack_from("<iI", fde, 8)
        # Of pointer encodings only the one that compilers emit for position-independent code is read.
        if segment.address + record + 8 + begin == segment.address + start:
            functions.append(_Function(segment.address + start, segment.address + start + size))
    return sorted(functions)
