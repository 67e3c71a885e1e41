"""The containers of ``.pte`` and ``.ptd``: a FlatBuffers part, then data segments, described by a header.

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

_TRUNCATED = "the file was cut short: copy or export it again"

#: File identifiers that are told apart to say what a file is instead.
_RELATIVES = {
    b"BP08": "a bundled program (a .pte with test inputs)",
    b"ED00": "an ETDump trace",
    b"NPTG": "a native program graph",
}


class Container(NamedTuple):
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


def is_program(view: memoryview) -> bool:
    """Return whether these bytes are an ExecuTorch program of any version."""
    mark = bytes(view[4:8])
    return mark.startswith(b"ET") and mark[2:].isdigit()


def is_tensor_file(view: memoryview) -> bool:
    """Return whether these bytes are a FlatTensor file of any version."""
    mark = bytes(view[4:8])
    return mark.startswith(b"FT") and mark[2:].isdigit()


def relative_of_program(view: memoryview) -> str | None:
    """Return what a file of ExecuTorch's is that is neither a program nor tensors, or None."""
    return _RELATIVES.get(bytes(view[4:8]))


def program_container(view: memoryview, name: str) -> Container:
    """Read the header of a ``.pte``.

    Raises:
        InvalidProgram: the header is damaged, or the file shorter than it says.
        NotSupported: a program of another version.
    """
    if bytes(view[4:8]) != b"ET12":
        mark = bytes(view[4:8]).decode("ascii")
        raise NotSupported(f"this program's format is {mark}; only ET12 is known", path=name)
    if bytes(view[8:12]) != b"eh00":
        return Container(Buffer(view, name), 0, 0, 0)
    if len(view) < 40:
        raise InvalidProgram("the file ends inside its header", path=name, hint=_TRUNCATED)
    (length,) = struct.unpack_from("<I", view, 12)
    if length < 24:
        raise InvalidProgram(f"the header claims {length} bytes; it has at least 24", path=name)
    program_size, base, data_size = struct.unpack_from("<3Q", view, 16)
    if length < 32:
        data_size = 0
    return _container(view, name, program_size, base, data_size)


def tensor_container(view: memoryview, name: str) -> Container:
    """Read the header of a ``.ptd``.

    Raises:
        InvalidProgram: the header is damaged, or the file shorter than it says.
        NotSupported: tensors of another version.
    """
    if bytes(view[4:8]) != b"FT01":
        mark = decode(bytes(view[4:8]))
        raise NotSupported(f"this file's format is {mark!r}; only 'FT01' is known", path=name)
    if len(view) < 48 or bytes(view[8:12]) != b"FH01":
        raise InvalidProgram("the file has no complete header", path=name, hint=_TRUNCATED)
    (length,) = struct.unpack_from("<I", view, 12)
    if length < 40:
        raise InvalidProgram(f"the header claims {length} bytes; it has at least 40", path=name)
    start, size, base, data_size = struct.unpack_from("<4Q", view, 16)
    return _container(view, name, start + size, base, data_size)


def _container(view: memoryview, name: str, flat_size: int, base: int, data_size: int) -> Container:
    if flat_size > len(view):
        raise InvalidProgram(
            f"the header claims {flat_size} bytes of structure, but the file has {len(view)}",
            path=name,
            hint=_TRUNCATED,
        )
    if base and base < flat_size:
        raise InvalidProgram(
            f"the data starts at byte {base}, inside the {flat_size} bytes before it", path=name
        )
    if base + data_size > len(view):
        raise InvalidProgram(
            f"the header claims data up to byte {base + data_size}, but the file has {len(view)}",
            path=name,
            hint=_TRUNCATED,
        )
    end = base + data_size if data_size else len(view)
    return Container(Buffer(view[:flat_size], name), base, end, len(view) - end)


def read_segments(container: Container, root: CheckedTable, slot: int) -> tuple[tuple[int, int], ...]:
    """Return where each segment starts in the file, and its bytes.

    Raises:
        InvalidProgram: one reaches past the end of the data.
    """
    segments = []
    for index, table in enumerate(root.tables(slot, "segments")):
        offset, size = table.integer(0, "u64"), table.integer(1, "u64")
        start = container.base + offset
        if size and (container.base == 0 or start + size > container.end):
            raise InvalidProgram(
                f"segment {index} would be bytes {start} to {start + size}; the data ends at {container.end}",
                path=container.buffer.name,
                hint=_TRUNCATED,
            )
        segments.append((min(start, container.end) if not size else start, size))
    return tuple(segments)
