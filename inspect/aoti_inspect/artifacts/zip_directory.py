"""The central directory of a zip archive, read from untrusted bytes (PKWARE APPNOTE 6.3.10, 4.3 to 4.5).

The standard library's reader trusts what it should not here (overlapping members, a directory that lies about
where it starts), reads the whole directory through Python objects that cost more than the rest of an
inspection, and can't hand out a member without copying it. This one takes the end record, the zip64 end
record and the directory, checks every offset against the file, and keeps what is odd as anomalies.
"""

from __future__ import annotations

import stat
import struct

from aoti_abi.errors import InvalidProgram, NotSupported
from aoti_abi.records import TYPE_CHECKING, NamedTuple
from aoti_inspect.artifacts.anomaly import Anomaly
from aoti_inspect.artifacts.zip_names import unsafe_reason
from aoti_inspect.text import decode
from aoti_inspect.wording import counted

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
        anomalies: what is odd about the archive.
    """

    members: dict[str, Member]
    anomalies: tuple[Anomaly, ...]


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
    anomalies: list[Anomaly] = []
    name = source.name
    end_position, comment = _find_end(source)
    trailing = source.size - end_position - _END.size - comment
    if trailing:
        anomalies.append(Anomaly("trailing-data", f"{trailing} bytes follow the end of the archive"))
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
        anomalies.append(Anomaly("leading-data", f"{prefix} bytes precede the archive"))
    if count > MAX_MEMBERS or size > MAX_DIRECTORY_BYTES:
        raise NotSupported(
            f"the archive lists {count} members in {size} bytes; the limits are {MAX_MEMBERS} and "
            f"{MAX_DIRECTORY_BYTES}",
            path=name,
        )
    if size < count * _ENTRY.size:
        raise InvalidProgram(f"the archive claims {count} members in a directory of {size} bytes", path=name)
    entries = _read_entries(source.read(start, size), count, prefix, start, name)
    return _sort_out(entries, start, anomalies)


def _tail(source: Source) -> tuple[int, bytes]:
    """Return what may hold the end record, and where it starts."""
    base = max(0, source.size - _END.size - _COMMENT_MAX)
    return base, source.read(base, source.size - base)


def _find_end(source: Source) -> tuple[int, int]:
    """Return where the end record is and its comment's length; one that ends with the file is preferred."""
    base, tail = _tail(source)
    best: tuple[int, int] | None = None
    position = tail.rfind(_END_SIGNATURE)
    while position >= 0:
        if position + _END.size <= len(tail):
            comment = int.from_bytes(tail[position + 20 : position + 22], "little")
            end = position + _END.size + comment
            if end == len(tail):
                return base + position, comment
            if end < len(tail) and best is None:
                best = (base + position, comment)
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


def _sort_out(entries: list[Member], directory_start: int, anomalies: list[Anomaly]) -> Directory:
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
    for kind, names, what in (
        ("overlapping-members", overlapping, "share bytes with another one, as in a zip bomb"),
        ("duplicate-member", duplicates, "are there more than once; readers differ in which they take"),
    ):
        if names:
            noun = "members" if len(names) > 1 else "member"
            anomalies.append(Anomaly(kind, f"{len(names)} {noun} {what}: {_some(names)}", tuple(names)))
    if refused:
        listed = "; ".join(f"{entry_name!r}: {reason}" for entry_name, reason in list(refused.items())[:3])
        anomalies.append(
            Anomaly(
                "unsafe-member-name",
                f"{counted(len(refused), 'unsafe member name')} ({listed})",
                tuple(refused),
            )
        )
    return Directory(members, tuple(anomalies))


def _some(names: list[str]) -> str:
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return ", ".join(repr(name) for name in names[:3]) + more
