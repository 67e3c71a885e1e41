"""How long an x86-64 instruction is, and with which encoding it is prefixed: VEX, EVEX or neither.

Only lengths are decoded, not meanings (Intel SDM volume 2, chapter 2 and appendix A). Instructions that do
not exist in 64-bit mode have no length.
"""

from __future__ import annotations

_PREFIXES = frozenset((0x66, 0x67, 0xF0, 0xF2, 0xF3, 0x2E, 0x36, 0x3E, 0x26, 0x64, 0x65))
#: Invalid in 64-bit mode, apart from those that became prefixes.
_INVALID = frozenset((0x06, 0x07, 0x0E, 0x16, 0x17, 0x1E, 0x1F, 0x27, 0x2F, 0x37, 0x3F, 0x60, 0x61, 0x82,
                      0x9A, 0xCE, 0xD4, 0xD5, 0xD6, 0xEA))  # fmt: skip


def _table(*ranges: tuple[int, int]) -> frozenset[int]:
    return frozenset(code for first, last in ranges for code in range(first, last + 1))


#: One-byte opcodes with a ModRM byte.
_MODRM = _table(*((base, base + 3) for base in range(0, 0x40, 8)), (0x63, 0x63), (0x69, 0x69), (0x6B, 0x6B),
                (0x80, 0x8F), (0xC0, 0xC1), (0xC6, 0xC7), (0xD0, 0xD3), (0xD8, 0xDF), (0xF6, 0xF7),
                (0xFE, 0xFF))  # fmt: skip
#: One-byte opcodes with an immediate of one byte, and of the operand's size (4 bytes; 2 after 66).
_IMM8 = _table(*((base + 4, base + 4) for base in range(0, 0x40, 8)), (0x6A, 0x6B), (0x70, 0x7F),
               (0x80, 0x80), (0x83, 0x83), (0xA8, 0xA8), (0xB0, 0xB7), (0xC0, 0xC1), (0xC6, 0xC6),
               (0xCD, 0xCD), (0xE0, 0xE7), (0xEB, 0xEB))  # fmt: skip
_IMMZ = _table(*((base + 5, base + 5) for base in range(0, 0x40, 8)), (0x68, 0x69), (0x81, 0x81),
               (0xA9, 0xA9), (0xC7, 0xC7))  # fmt: skip
#: Two-byte opcodes (0F xx) without a ModRM byte, and those with an immediate byte.
_NO_MODRM_0F = _table((0x05, 0x09), (0x0B, 0x0B), (0x0E, 0x0E), (0x30, 0x37), (0x77, 0x77), (0x80, 0x8F),
                      (0xA0, 0xA2), (0xA8, 0xAA), (0xC8, 0xCF), (0xFF, 0xFF))  # fmt: skip
_IMM8_0F = _table((0x70, 0x73), (0xA4, 0xA4), (0xAC, 0xAC), (0xBA, 0xBA), (0xC2, 0xC2), (0xC4, 0xC6))

#: What `decode` says of an instruction's encoding.
PLAIN, VEX, EVEX = 0, 1, 2
#: No instruction is longer, bytes.
LONGEST = 15


def decode(code: bytes, at: int) -> tuple[int, int]:
    """Return the length of the instruction at ``at`` and its encoding; length 0 if there is none.

    Args:
        code: the bytes; an instruction that is cut off at their end has no length.
        at: where the instruction starts.
    """
    try:
        length, kind = _decode(code, at)
    except IndexError:
        return 0, PLAIN
    return (length, kind) if length <= LONGEST and at + length <= len(code) else (0, PLAIN)


def _decode(code: bytes, start: int) -> tuple[int, int]:
    at = start
    byte = code[at]
    narrow = wide = False
    while byte in _PREFIXES:
        narrow = narrow or byte == 0x66
        at += 1
        byte = code[at]
        if at - start > 14:
            return 0, PLAIN
    if 0x40 <= byte <= 0x4F:
        wide = bool(byte & 8)
        at += 1
        byte = code[at]
    at += 1
    if byte == 0x0F:
        return _decode_0f(code, start, at)
    if byte in (0xC4, 0xC5, 0x62):
        return _decode_vector(code, start, at, byte)
    if byte in _INVALID:
        return 0, PLAIN
    if byte == 0x8F and code[at] & 0x38:
        return 0, PLAIN  # AMD's XOP
    if byte in _MODRM:
        modrm = code[at]
        at = _after_modrm(code, at)
        if byte in (0xF6, 0xF7) and not modrm & 0x30:
            at += 1 if byte == 0xF6 else 2 if narrow else 4
    if byte in _IMM8:
        at += 1
    elif byte in _IMMZ:
        at += 2 if narrow and not wide else 4
    elif 0xB8 <= byte <= 0xBF:
        at += 8 if wide else 2 if narrow else 4
    elif 0xA0 <= byte <= 0xA3:
        at += 8
    elif byte in (0xE8, 0xE9):
        at += 4
    elif byte in (0xC2, 0xCA):
        at += 2
    elif byte == 0xC8:
        at += 3
    return at - start, PLAIN


def _decode_0f(code: bytes, start: int, at: int) -> tuple[int, int]:
    byte = code[at]
    at += 1
    if byte in (0x38, 0x3A):
        return _after_modrm(code, at + 1) + (byte == 0x3A) - start, PLAIN
    if 0x80 <= byte <= 0x8F:
        return at + 4 - start, PLAIN
    if byte not in _NO_MODRM_0F:
        at = _after_modrm(code, at)
    return at + (byte in _IMM8_0F) - start, PLAIN


def _decode_vector(code: bytes, start: int, at: int, first: int) -> tuple[int, int]:
    if first == 0xC5:
        space, at, kind = 1, at + 1, VEX
    elif first == 0xC4:
        space, at, kind = code[at] & 31, at + 2, VEX
    else:
        if code[at] & 8 or not code[at + 1] & 4:
            return 0, PLAIN  # reserved bits
        space, at, kind = code[at] & 7, at + 3, EVEX
    opcode = code[at]
    at += 1
    if space not in (1, 2, 3, 5, 6) or (kind == VEX and space > 3):
        return 0, PLAIN
    if space == 1 and opcode == 0x77 and kind == VEX:
        return at - start, kind  # vzeroupper
    at = _after_modrm(code, at)
    return at + (space == 3 or (space == 1 and opcode in _IMM8_0F)) - start, kind


def _after_modrm(code: bytes, at: int) -> int:
    """Return where the instruction goes on after its ModRM byte, SIB byte and displacement."""
    modrm = code[at]
    at += 1
    mode, low = modrm >> 6, modrm & 7
    if mode == 3:
        return at
    if low == 4:
        base = code[at] & 7
        at += 1
        if mode == 0 and base == 5:
            return at + 4
    elif mode == 0 and low == 5:
        return at + 4
    return at + (0, 1, 4)[mode]
