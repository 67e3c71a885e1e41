"""ELF notes: the build-id."""

from __future__ import annotations

import struct

from aoti_abi.records import TYPE_CHECKING

if TYPE_CHECKING:
    from aoti_inspect.budget import Share
    from aoti_inspect.elf.image import ElfImage

NT_GNU_BUILD_ID = 3
#: Notes of one segment are some hundred bytes; what follows is not looked at.
_MAX_NOTES = 1 << 16
#: Notes that are looked at in all segments together: linkers write three or four.
MAX_NOTES_IN_ALL = 1 << 14
_MAX_BUILD_ID = 64


def build_id(image: ElfImage) -> str | None:
    """Return the build-id of the first PT_NOTE that has one, in hex; None if there is none."""
    share = image.budget.share("the notes (PT_NOTE)", MAX_NOTES_IN_ALL, "notes")
    seen: set[tuple[int, int, int]] = set()
    for segment in image.segments:
        place = (segment.offset, segment.file_size, segment.align)
        if segment.type != "NOTE" or place in seen:
            continue
        seen.add(place)
        if not share.take():
            return None
        raw = image.source.read(segment.offset, min(segment.file_size, _MAX_NOTES))
        found = _find(raw, 8 if segment.align == 8 else 4, image.layout.mark, share)
        if found is not None:
            return found.hex()
    return None


def _find(raw: bytes, align: int, mark: str, share: Share) -> bytes | None:
    header = struct.Struct(mark + "III")
    at = 0
    while at + header.size <= len(raw) and share.take():
        name_size, size, kind = header.unpack_from(raw, at)
        start = at + header.size + -(-name_size // 4) * 4
        if align == 8:
            start = -(-(at + header.size + name_size) // 8) * 8
        if (
            kind == NT_GNU_BUILD_ID
            and raw.startswith(b"GNU\0", at + header.size)
            and 0 < size <= _MAX_BUILD_ID
        ):
            found = raw[start : start + size]
            return found if len(found) == size else None
        at = -(-(start + size) // align) * align
    return None
