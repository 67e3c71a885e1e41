"""Members of a zip archive: stored ones are ranges of the file, others are inflated when asked for."""

from __future__ import annotations

import struct

from aoti_abi.errors import InvalidProgram, NotFound, NotSupported
from aoti_abi.records import TYPE_CHECKING
from aoti_inspect.artifacts.zip_directory import DEFLATED, STORED, read_directory
from aoti_inspect.source import BufferSource
from aoti_inspect.text import decode

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aoti_inspect.artifacts.zip_directory import Directory, Member
    from aoti_inspect.source import Location, Source

_LOCAL = struct.Struct("<4s5H3I2H")
_LOCAL_SIGNATURE = b"PK\x03\x04"
_ENCRYPTED = 1
_SIZES_FOLLOW = 8
#: How much of a compressed member is read at once, bytes.
_CHUNK = 1 << 18
_METHODS = {
    1: "Shrink",
    6: "Implode",
    9: "Deflate64",
    12: "bzip2",
    14: "LZMA",
    93: "Zstandard",
    95: "XZ",
    98: "PPMd",
}

#: deflate can't do better than 1032 to 1, so a member that claims more is not what it says.
_MAX_RATIO = 1032
#: Inflating is the only way by which reading takes memory in proportion to what a file claims: the most for
#: one member, and the most for all of an archive, which bounds the time.
MAX_INFLATED = 256 << 20
MAX_INFLATED_IN_ALL = 2 << 30
#: Up to this size, stored members are checked against their CRC when read; larger ones when asked.
CHECKED_WHEN_READ = 4 << 20


class ZipArchive:
    """The readable members of an archive.

    Attributes:
        name: what to call the archive in messages.
        directory: its table of contents.
    """

    def __init__(self, source: Source) -> None:
        self.name = source.name
        self.directory: Directory = read_directory(source)
        self._source = source
        self._inflated = 0

    def __contains__(self, member: object) -> bool:
        return member in self.directory.members

    def names(self) -> list[str]:
        """Return the members' names in the directory's order."""
        return list(self.directory.members)

    def member(self, name: str) -> Member:
        """Return the entry with this name.

        Raises:
            NotFound: there is none, or it is one that must not be read.
        """
        try:
            return self.directory.members[name]
        except KeyError:
            raise NotFound(f"there is no member {name!r}", path=self.name) from None

    def read(self, name: str, *, limit: int | None = None, verify: bool | None = None) -> memoryview:
        """Return a member's bytes: a part of the mapped archive if it is stored and large, else a copy.

        Args:
            name: the member.
            limit: refuse a larger one.
            verify: compare with the CRC; by default if it is small, and always if it has to be inflated.

        Raises:
            NotFound: there is no such member.
            InvalidProgram: its bytes are damaged, or its two headers contradict each other.
            NotSupported: it is encrypted, compressed by another method, or too large.
        """
        member = self.member(name)
        if limit is not None and member.size > limit:
            raise NotSupported(
                f"it claims {member.size} bytes; the limit for this kind of member is {limit}",
                path=self._path(member),
            )
        packed = self._packed(member)
        if member.method == DEFLATED:
            return self._inflate(member, packed)
        small = member.size <= CHECKED_WHEN_READ
        view = memoryview(packed.read(0, packed.size)) if small else packed.view()
        if verify or (verify is None and small):
            self._check(member, view)
        return view

    def open(self, name: str, *, verify: bool = False) -> Source:
        """Return a member's bytes as a source: a range of the archive if it is stored.

        Args:
            name: the member.
            verify: compare a stored member with its CRC too; one that is inflated always is.

        Raises:
            NotFound, InvalidProgram, NotSupported: as `read`.
        """
        member = self.member(name)
        packed = self._packed(member)
        if member.method == STORED:
            if verify:
                self._check(member, packed.view())
            return packed
        inflated = BufferSource(self._inflate(member, packed), packed.name)
        inflated.budget = self._source.budget
        return inflated

    def pieces(self, name: str, size: int) -> Iterator[bytes]:
        """Yield a member's bytes, ``size`` at a time, without ever holding more; nothing is verified.

        Raises:
            NotFound, InvalidProgram, NotSupported: as `read`.
        """
        member = self.member(name)
        packed = self._packed(member)
        budget = self._source.budget
        if member.method == STORED:
            for chunk in _chunks(packed, size):
                if budget is not None:
                    budget.spend_bytes(len(chunk), "searching its members")
                yield chunk
            return
        import zlib

        engine = zlib.decompressobj(-15)
        try:
            for chunk in _chunks(packed, _CHUNK):
                rest = chunk
                while rest and not engine.eof:
                    piece = engine.decompress(rest, size)
                    rest = engine.unconsumed_tail
                    if budget is not None:
                        budget.spend_bytes(len(piece), "inflating its members")
                    if piece:
                        yield piece
            while piece := engine.decompress(engine.unconsumed_tail, size):
                yield piece
        except zlib.error as error:
            raise self._damaged(member, str(error)) from None
        if not engine.eof:
            raise self._damaged(member, "they end before their end mark")

    def location(self, name: str) -> Location | None:
        """Return where a stored member's bytes lie in a file; None if compressed, or in memory only."""
        member = self.member(name)
        return None if member.method == DEFLATED else self._packed(member).location

    def _packed(self, member: Member) -> Source:
        if member.flags & _ENCRYPTED:
            raise NotSupported(
                "it is encrypted", path=self._path(member), hint="pack it again without a password"
            )
        if member.method not in (STORED, DEFLATED):
            method = _METHODS.get(member.method, f"method {member.method}")
            raise NotSupported(
                f"it is compressed with {method}",
                path=self._path(member),
                hint="pack it again stored, as PyTorch does, or deflated",
            )
        if member.method == STORED and member.compressed != member.size:
            raise InvalidProgram(
                f"it is stored, but its two sizes differ: {member.compressed} and {member.size}",
                path=self._path(member),
            )
        return self._source.part(self._data_start(member), member.compressed, self._path(member))

    def _data_start(self, member: Member) -> int:
        header = self._source.read(member.header_offset, _LOCAL.size)
        if len(header) < _LOCAL.size or header[:4] != _LOCAL_SIGNATURE:
            raise InvalidProgram(
                f"there is no local header at byte {member.header_offset}, where the directory says it is",
                path=self._path(member),
            )
        fields = _LOCAL.unpack(header)
        flags, method = fields[2:4]
        compressed, size, name_length, extra_length = fields[7:11]
        name_start = member.header_offset + _LOCAL.size
        local_name = decode(self._source.read(name_start, name_length))
        if local_name != member.name:
            raise InvalidProgram(
                f"its local header calls it {local_name!r}: readers would disagree on what it is",
                path=self._path(member),
            )
        stated = not flags & _SIZES_FOLLOW and 0xFFFFFFFF not in (size, compressed)
        if method != member.method or (stated and (compressed, size) != (member.compressed, member.size)):
            raise InvalidProgram(
                f"its local header (method {method}, {compressed} and {size} bytes) differs from "
                f"the directory (method {member.method}, {member.compressed} and {member.size} bytes)",
                path=self._path(member),
            )
        start = name_start + int(name_length) + int(extra_length)
        if start + member.compressed > member.limit:
            raise InvalidProgram(
                f"it ends at byte {start + member.compressed}, inside what follows it at {member.limit}",
                path=self._path(member),
            )
        return start

    def _inflate(self, member: Member, packed: Source) -> memoryview:
        import zlib

        if member.size > member.compressed * _MAX_RATIO + _MAX_RATIO:
            raise InvalidProgram(
                f"{member.compressed} bytes can't inflate to the {member.size} that it claims",
                path=self._path(member),
            )
        left = min(MAX_INFLATED, MAX_INFLATED_IN_ALL - self._inflated)
        if member.size > left:
            raise NotSupported(
                f"inflating it would take {member.size} bytes of memory; {left} are allowed",
                path=self._path(member),
                hint="pack it again with its large members stored, as PyTorch does",
            )
        self._inflated += member.size
        if self._source.budget is not None:
            self._source.budget.spend_bytes(member.size, "inflating its members")
        engine = zlib.decompressobj(-15)
        data = bytearray()
        try:
            for chunk in _chunks(packed, _CHUNK):
                data += engine.decompress(chunk, member.size + 1 - len(data))
                if engine.eof or len(data) > member.size:
                    break
            # Where the output is exactly full, the end marker has not been read yet.
            if not engine.eof and len(data) <= member.size:
                data += engine.decompress(engine.unconsumed_tail, member.size + 1 - len(data))
        except zlib.error as error:
            raise self._damaged(member, str(error)) from None
        if len(data) != member.size or not engine.eof:
            held = "more" if len(data) > member.size else len(data)
            raise InvalidProgram(
                f"it inflates to {held} bytes instead of the {member.size} that it claims",
                path=self._path(member),
            )
        view = memoryview(data).toreadonly()
        self._check(member, view)
        return view

    def _damaged(self, member: Member, cause: str) -> InvalidProgram:
        return InvalidProgram("its compressed bytes are damaged", path=self._path(member), cause=cause)

    def _check(self, member: Member, view: memoryview) -> None:
        import zlib

        if zlib.crc32(view) != member.crc:
            raise InvalidProgram(
                "its bytes do not match their checksum: the archive is damaged",
                path=self._path(member),
                hint="copy or download it again",
            )

    def _path(self, member: Member) -> str:
        return f"{self.name}!{member.name}"


def _chunks(source: Source, size: int) -> Iterator[bytes]:
    return (source.read(start, size) for start in range(0, source.size, size))
