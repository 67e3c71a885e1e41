"""``.ptd``: named data apart from the program (ExecuTorch ``flat_tensor.fbs``)."""

from __future__ import annotations

from aoti_abi.codes import dtype_name
from aoti_abi.errors import InvalidProgram, NotSupported
from aoti_abi.records import TYPE_CHECKING, NamedTuple
from aoti_inspect.artifacts.anomaly import Anomaly
from aoti_inspect.artifacts.artifact import NamedBlob, Value
from aoti_inspect.artifacts.segments import read_segments, tensor_container

if TYPE_CHECKING:
    from aoti_inspect.artifacts.flatbuffer import CheckedTable

# Field slots of flat_tensor.fbs; they differ from those of the program's tables of the same names.
_FILE_VERSION, _FILE_SEGMENTS, _FILE_NAMED_DATA = range(3)
_NAMED_KEY, _NAMED_SEGMENT, _NAMED_LAYOUT = range(3)
_LAYOUT_DTYPE, _LAYOUT_SIZES, _LAYOUT_DIM_ORDER = range(3)


class TensorFile(NamedTuple):
    """What a ``.ptd`` holds.

    Attributes:
        blobs: its named data, in its order; a key may be there twice.
        anomalies: what is odd about it.
    """

    blobs: tuple[NamedBlob, ...]
    anomalies: tuple[Anomaly, ...]


def read_tensor_file(view: memoryview, name: str) -> TensorFile:
    """Read a ``.ptd`` without touching its data.

    Raises:
        InvalidProgram: it is damaged or cut short.
        NotSupported: it has another version.
    """
    container = tensor_container(view, name)
    root = container.buffer.root()
    version = root.integer(_FILE_VERSION, "u32")
    if version > 0:
        raise NotSupported(f"this .ptd has version {version}; only 0 is known", path=name)
    segments = read_segments(container, root, _FILE_SEGMENTS)
    blobs = []
    for index, table in enumerate(root.tables(_FILE_NAMED_DATA, "named data")):
        key = table.text(_NAMED_KEY, "key")
        segment = table.integer(_NAMED_SEGMENT, "u32")
        blobs.append(
            named_blob(view, name, segments, index=index, key=key, segment=segment, layout=_layout(table))
        )
    anomalies: tuple[Anomaly, ...] = ()
    if container.trailing:
        anomalies = (
            Anomaly("trailing-data", f"{container.trailing} bytes follow the data of {name}", (name,)),
        )
    return TensorFile(tuple(blobs), anomalies)


def named_blob(
    view: memoryview,
    name: str,
    segments: tuple[tuple[int, int], ...],
    *,
    index: int,
    key: str | None,
    segment: int,
    layout: Value | None = None,
) -> NamedBlob:
    """Return one piece of named data, after checking that its segment exists."""
    if not key:
        raise InvalidProgram(f"piece {index} of the named data has no key", path=name)
    if segment >= len(segments):
        raise InvalidProgram(
            f"the named data {key!r} is in segment {segment}, but there are {len(segments)}", path=name
        )
    start, size = segments[segment]
    return NamedBlob(key, name, start, size, view, layout)


def _layout(table: CheckedTable) -> Value | None:
    layout = table.table(_NAMED_LAYOUT, "tensor layout")
    if layout is None:
        return None
    return Value(
        "tensor",
        dtype_name(layout.integer(_LAYOUT_DTYPE, "i8")),
        layout.integers(_LAYOUT_SIZES, "i32", "sizes"),
        layout.integers(_LAYOUT_DIM_ORDER, "u8", "dim order"),
    )
