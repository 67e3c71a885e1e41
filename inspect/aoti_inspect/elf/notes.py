"""ELF notes: the build-id."""

from __future__ import annotations

import struct

from aoti_abi.records import TYPE_CHECKING

if TYPE_CHECKING:
    from aoti_inspect.elf.image import ElfImage

NT_GNU_BUILD_ID = 3
#: Notes are some hundred bytes; what follows is not looked at.
_MAX_NOTES = 1 << 16
_MAX_BUILD_ID = 64


def build_id(image: ElfImage) -> str | None:
    """Return the build-id of the first PT_NOTE that has one, in hex; None if there is none."""
    for segment in image.segments:
        if segment.type == "NOTE":
            raw = image.source.read(segment.offset, min(segment.file_size, _MAX_NOTES))
            found = _find(raw, 8 if segment.align == 8 else 4, image.layout.mark)
            if found is not None:
                return found.hex()
    return None


def _find(raw: bytes, align: int, mark: str) -> bytes | None:
    header = struct.Struct(mark + "III")
    at = 0
    while at + header.size <= len(raw):
        name_size, size, kind = header.unpack_from(raw, at)
        start = at + header.size + -(-name_size // 4) * 4
        if align == 8:
            start = -(-(at + header.size + name_size) // 8) * 8
        if (
            kind == NT_GNU_BUILD_ID
            and raw[at + header.size :].startswith(b"GNU\0")
            and 0 < size <= _MAX_BUILD_ID
        ):
            found = raw[start : start + size]
            return found if len(found) == size else None
        at = -(-(start + size) // align) * align
    return None
