"""The central directory of a zip archive, read from untrusted bytes (PKWARE APPNOTE 6.3.10, 4.3 to 4.5).

The standard library's reader trusts what it should not here (overlapping members, a directory that lies about
where it starts), reads the whole directory through Python objects that cost more than the rest of an
inspection, and can't hand out a member without copying it. This one takes the end record, the zip64 end
record and the directory, checks every offset against the file, and notes what is odd.
"""

from __future__ import annotations

import stat
import struct

from aoti_abi.errors import InvalidProgram, NotSupported
from aoti_abi.records import TYPE_CHECKING, NamedTuple
from aoti_inspect.artifacts.package_fact import PackageFact
from aoti_inspect.artifacts.zip_names import unsafe_reason
from aoti_inspect.text import decode

if TYPE_CHECKING:
    from aoti_inspect.source import Source

STORED = 0
DEFLATED = 8

_END = struct.Struct("<4s4H2IH")
_END_SIGNATURE = b"PK\x05\x06"
_LOCATOR = struct.Struct("<4sIQI")
_LOCATOR_SIGNATURE = b"PK\x06\x07"
_END64 = struct.Struct("<4sQ2H2I4Q")
_END64_SIGNATURE = b"PK\x06\x06"
_ENTRY = struct.Struct("<4s6H3I5H2I")
_ENTRY_SIGNATURE = b"PK\x01\x02"
_ZIP64_EXTRA = 1
_COMMENT_MAX = 0xFFFF
_UNIX = 3

#: A package has some dozens of members and a large wheel some ten thousand.
MAX_MEMBERS = 200_000
#: With names of 64 KiB each a directory could be far larger than any reader needs.
MAX_DIRECTORY_BYTES = 64 << 20


class Member(NamedTuple):
    """One entry of the central directory.

    Attributes:
        name: as stored, with ``/`` between folders.
        flags, method: general purpose bits and compression method.
        crc: CRC-32 of the uncompressed bytes.
        compressed, size: bytes in the file, and after decompression, as declared.
        header_offset: of the local header, from the start of the file.
        limit: where the next member or the directory starts: nothing of this one may lie beyond.
        is_link: whether it is a symbolic link.
    """

    name: str
    flags: int
    method: int
    crc: int
    compressed: int
    size: int
    header_offset: int
    limit: int
    is_link: bool


class Directory(NamedTuple):
    """A zip archive's table of contents.

    Attributes:
        members: files that may be read, by name, in the directory's order; folders are left out, and so are
            members whose name is unsafe or that are links. The last of two with one name wins.
        facts: what is odd about the archive.
    """

    members: dict[str, Member]
    facts: tuple[PackageFact, ...]


def has_end_record(source: Source) -> bool:
    """Return whether there is an end record near the end: then it is a zip archive, whatever comes first."""
    return _END_SIGNATURE in _tail(source)[1]


def read_directory(source: Source) -> Directory:
    """Read the table of contents.

    Args:
        source: the whole archive.

    Raises:
        InvalidProgram: there is no directory, or it lies outside the file or contradicts itself.
        NotSupported: it spans several files, or has more entries than any package.
    """
    noted: list[PackageFact] = []
    name = source.name
    end_position, comment, last = _find_end(source)
    if last != end_position:
        noted.append(PackageFact("later-end-record", numbers=(end_position, last)))
    trailing = source.size - end_position - _END.size - comment
    if trailing:
        noted.append(PackageFact("bytes-after", subject="the end of the archive", numbers=(trailing,)))
    count, size, offset, directory_end = _totals(source, end_position)
    if size > directory_end:
        raise InvalidProgram(
            f"the archive's directory claims {size} bytes, but only {directory_end} precede its end",
            path=name,
        )
    start = directory_end - size
    prefix = start - offset
    if prefix < 0:
        raise InvalidProgram(
            f"the archive's directory should start at byte {offset}, but ends at byte {directory_end} "
            f"after {size} bytes: the file was cut or joined",
            path=name,
        )
    if prefix:
        noted.append(PackageFact("bytes-before", numbers=(prefix,)))
    if count > MAX_MEMBERS or size > MAX_DIRECTORY_BYTES:
        raise NotSupported(
            f"the archive lists {count} members in {size} bytes; the limits are {MAX_MEMBERS} and "
            f"{MAX_DIRECTORY_BYTES}",
            path=name,
        )
    if size < count * _ENTRY.size:
        raise InvalidProgram(f"the archive claims {count} members in a directory of {size} bytes", path=name)
    entries = _read_entries(source.read(start, size), count, prefix, start, name)
    return _sort_out(entries, start, noted)


def _tail(source: Source) -> tuple[int, bytes]:
    """Return what may hold the end record, and where it starts."""
    base = max(0, source.size - _END.size - _COMMENT_MAX)
    return base, source.read(base, source.size - base)


def _find_end(source: Source) -> tuple[int, int, int]:
    """Return where the end record is, its comment's length, and where the last record is.

    A record that ends with the file is preferred. miniz, by which PyTorch reads archives, takes the last one
    that has room, whatever its comment claims.
    """
    base, tail = _tail(source)
    last = base + tail.rfind(_END_SIGNATURE, 0, max(0, len(tail) - _END.size + len(_END_SIGNATURE)))
    best: tuple[int, int, int] | None = None
    position = tail.rfind(_END_SIGNATURE)
    while position >= 0:
        if position + _END.size <= len(tail):
            comment = int.from_bytes(tail[position + 20 : position + 22], "little")
            end = position + _END.size + comment
            if end == len(tail):
                return base + position, comment, last
            if end < len(tail) and best is None:
                best = (base + position, comment, last)
        position = tail.rfind(_END_SIGNATURE, 0, position)
    if best is None:
        raise InvalidProgram(
            "this zip archive has no end record: the file was cut short",
            path=source.name,
            hint="compare its size with the original's and copy it again",
        )
    return best


def _totals(source: Source, end_position: int) -> tuple[int, int, int, int]:
    """Return number of entries, bytes and stated offset of the directory, and where it ends."""
    name = source.name
    fields = _END.unpack(source.read(end_position, _END.size))
    disk, directory_disk, here, count, size, offset = fields[1:7]
    locator_position = end_position - _LOCATOR.size
    locator = source.read(locator_position, _LOCATOR.size)
    if not locator.startswith(_LOCATOR_SIGNATURE):
        if disk or directory_disk or here != count:
            raise NotSupported(
                "this is one part of a zip archive that was split over several files", path=name
            )
        return count, size, offset, end_position
    _, _, stated, disks = _LOCATOR.unpack(locator)
    # Directly before its locator unless the record is extensible; the stated offset ignores leading data.
    for position in (stated, locator_position - _END64.size):
        if 0 <= position <= locator_position - _END64.size and source.read(position, 4) == _END64_SIGNATURE:
            break
    else:
        if count != 0xFFFF and 0xFFFFFFFF not in (size, offset):
            # What looks like a locator is the end of something else, as a comment: there is no zip64 record.
            return count, size, offset, end_position
        raise InvalidProgram("the archive's zip64 end record is not where its locator says", path=name)
    values = _END64.unpack(source.read(position, _END64.size))
    disk, directory_disk, here, count, size, offset = values[4:10]
    if disk or directory_disk or here != count or disks > 1:
        raise NotSupported("this is one part of a zip archive that was split over several files", path=name)
    for short, full, top in zip(
        fields[4:7], (count, size, offset), (0xFFFF, 2**32 - 1, 2**32 - 1), strict=True
    ):
        if short not in (top, full):
            raise InvalidProgram("the archive's two end records contradict each other", path=name)
    return count, size, offset, position


def _read_entries(raw: bytes, count: int, prefix: int, directory_start: int, name: str) -> list[Member]:
    entries: list[Member] = []
    position = 0
    for index in range(count):
        if position + _ENTRY.size > len(raw):
            raise InvalidProgram(f"the archive's directory ends inside entry {index} of {count}", path=name)
        fields = _ENTRY.unpack_from(raw, position)
        if fields[0] != _ENTRY_SIGNATURE:
            raise InvalidProgram(f"entry {index} of the archive's directory has a wrong signature", path=name)
        made_by, _, flags, method, _, _, crc, compressed, size = fields[1:10]
        name_length, extra_length, comment_length, _, _, external, offset = fields[10:17]
        start = position + _ENTRY.size
        extra_start = start + name_length
        position = extra_start + extra_length + comment_length
        if position > len(raw):
            raise InvalidProgram(f"the archive's directory ends inside entry {index} of {count}", path=name)
        member_name = decode(raw[start:extra_start])
        if 0xFFFFFFFF in (compressed, size, offset):
            extra = raw[extra_start : extra_start + extra_length]
            size, compressed, offset = _zip64_values(extra, (size, compressed, offset), member_name, name)
        offset += prefix
        end = offset + 30 + name_length + compressed
        if end > directory_start:
            raise InvalidProgram(
                f"member {member_name!r} claims bytes {offset} to {end}, past the directory's start at "
                f"{directory_start}",
                path=name,
            )
        is_link = made_by >> 8 == _UNIX and stat.S_ISLNK(external >> 16)
        entries.append(Member(member_name, flags, method, crc, compressed, size, offset, 0, is_link))
    if position != len(raw):
        raise InvalidProgram(
            f"{len(raw) - position} bytes follow the last of {count} entries in the archive's directory",
            path=name,
        )
    return entries


def _zip64_values(extra: bytes, values: tuple[int, int, int], member: str, name: str) -> tuple[int, int, int]:
    """Replace the values that say "see the zip64 extra field", in the order in which that field has them."""
    position = 0
    while position + 4 <= len(extra):
        kind, length = struct.unpack_from("<HH", extra, position)
        position += 4
        if kind == _ZIP64_EXTRA:
            field = extra[position : position + length]
            result: list[int] = []
            for value in values:
                if value != 0xFFFFFFFF:
                    result.append(value)
                    continue
                if len(field) < 8:
                    break
                result.append(int.from_bytes(field[:8], "little"))
                field = field[8:]
            if len(result) == 3:
                return result[0], result[1], result[2]
            break
        position += length
    raise InvalidProgram(f"member {member!r} refers to zip64 sizes that it does not have", path=name)


def _sort_out(entries: list[Member], directory_start: int, noted: list[PackageFact]) -> Directory:
    """Bound each member by the next, and keep out what must not be read."""
    overlapping: list[str] = []
    order = sorted(range(len(entries)), key=lambda index: entries[index].header_offset)
    limit = directory_start
    for index in reversed(order):
        entry = entries[index]
        if (
            entry.header_offset + 30 + len(entry.name.encode("utf-8", "surrogateescape")) + entry.compressed
            > limit
        ):
            overlapping.append(entry.name)
        entries[index] = entry._replace(limit=limit)
        limit = entry.header_offset
    members: dict[str, Member] = {}
    duplicates: list[str] = []
    refused: dict[str, str] = {}
    for entry in entries:
        reason = "it is a symbolic link" if entry.is_link else unsafe_reason(entry.name)
        if reason:
            refused[entry.name] = reason
        elif not entry.name.endswith("/"):
            if entry.name in members:
                duplicates.append(entry.name)
            members[entry.name] = entry
    if overlapping:
        noted.append(PackageFact("shared-bytes", tuple(overlapping)))
    if duplicates:
        noted.append(PackageFact("repeated-names", tuple(duplicates)))
    if refused:
        noted.append(PackageFact("refused-names", tuple(refused), details=tuple(refused.values())))
    return Directory(members, tuple(noted))
