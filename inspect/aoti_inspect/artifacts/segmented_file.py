"""What ``.pte`` and ``.ptd`` have in common: a header, a FlatBuffers part, then data segments.

ExecuTorch ``schema/extended_header.h`` and ``extension/flat_tensor/serialize/flat_tensor_header.h``. All
integers are little-endian; segment offsets count from the segment base, which counts from the file's start.
"""

from __future__ import annotations

import struct

from aoti_abi.errors import InvalidProgram, NotSupported
from aoti_abi.records import TYPE_CHECKING, NamedTuple
from aoti_inspect.artifacts.flatbuffer import Buffer
from aoti_inspect.text import decode

if TYPE_CHECKING:
    from aoti_inspect.artifacts.flatbuffer import CheckedTable
    from aoti_inspect.source import Source

#: Bytes of the longer of the two headers.
_HEAD = 48
_TRUNCATED = "the file was cut short: copy or export it again"

#: FlatBuffers parts up to this size are read, larger ones are mapped: old programs have all weights in them.
_MAPPED_FROM = 64 << 20


class SegmentedFile(NamedTuple):
    """Where the parts of a file are.

    Attributes:
        buffer: the FlatBuffers part.
        base: where segments count from; 0 if there are none.
        end: where the last segment may end.
        trailing: bytes after that.
    """

    buffer: Buffer
    base: int
    end: int
    trailing: int


def open_program(source: Source) -> SegmentedFile:
    """Read the header of a ``.pte``.

    Raises:
        InvalidProgram: the header is damaged, or the file shorter than it says.
        NotSupported: a program of another version.
    """
    head, name = source.read(0, _HEAD), source.name
    if head[4:8] != b"ET12":
        mark = decode(head[4:8])
        raise NotSupported(f"this program's format is {mark!r}; only ET12 is known", path=name)
    if head[8:12] != b"eh00":
        return SegmentedFile(Buffer(_structure(source, source.size), name), 0, 0, 0)
    if source.size < 40:
        raise InvalidProgram("the file ends inside its header", path=name, hint=_TRUNCATED)
    (length,) = struct.unpack_from("<I", head, 12)
    if length < 24:
        raise InvalidProgram(f"the header claims {length} bytes; it has at least 24", path=name)
    program_size, base, data_size = struct.unpack_from("<3Q", head, 16)
    if length < 32:
        data_size = 0
    return _segmented(source, program_size, base, data_size)


def open_tensors(source: Source) -> SegmentedFile:
    """Read the header of a ``.ptd``.

    Raises:
        InvalidProgram: the header is damaged, or the file shorter than it says.
        NotSupported: tensors of another version.
    """
    head, name = source.read(0, _HEAD), source.name
    if head[4:8] != b"FT01":
        mark = decode(head[4:8])
        raise NotSupported(f"this file's format is {mark!r}; only 'FT01' is known", path=name)
    if source.size < 48 or head[8:12] != b"FH01":
        raise InvalidProgram("the file has no complete header", path=name, hint=_TRUNCATED)
    (length,) = struct.unpack_from("<I", head, 12)
    if length < 40:
        raise InvalidProgram(f"the header claims {length} bytes; it has at least 40", path=name)
    start, size, base, data_size = struct.unpack_from("<4Q", head, 16)
    return _segmented(source, start + size, base, data_size)


def _segmented(source: Source, flat_size: int, base: int, data_size: int) -> SegmentedFile:
    name = source.name
    if flat_size > source.size:
        raise InvalidProgram(
            f"the header claims {flat_size} bytes of structure, but the file has {source.size}",
            path=name,
            hint=_TRUNCATED,
        )
    if base and base < flat_size:
        raise InvalidProgram(
            f"the data starts at byte {base}, inside the {flat_size} bytes before it", path=name
        )
    if base + data_size > source.size:
        raise InvalidProgram(
            f"the header claims data up to byte {base + data_size}, but the file has {source.size}",
            path=name,
            hint=_TRUNCATED,
        )
    end = base + data_size if data_size else source.size
    return SegmentedFile(Buffer(_structure(source, flat_size), name), base, end, source.size - end)


def _structure(source: Source, size: int) -> memoryview:
    """Return the FlatBuffers part."""
    return source.view()[:size] if size > _MAPPED_FROM else memoryview(source.read(0, size))


def read_segments(file: SegmentedFile, root: CheckedTable, slot: int) -> tuple[tuple[int, int], ...]:
    """Return where each segment starts in the file, and its bytes.

    Raises:
        InvalidProgram: one reaches past the end of the data.
    """
    segments = []
    for index, table in enumerate(root.tables(slot, "segments")):
        offset, size = table.integer(0, "u64"), table.integer(1, "u64")
        start = file.base + offset
        if size and (file.base == 0 or start + size > file.end):
            raise InvalidProgram(
                f"segment {index} would be bytes {start} to {start + size}; the data ends at {file.end}",
                path=file.buffer.name,
                hint=_TRUNCATED,
            )
        segments.append((min(start, file.end) if not size else start, size))
    return tuple(segments)
