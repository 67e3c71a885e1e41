"""``.ptd``: named data apart from the program (ExecuTorch ``flat_tensor.fbs``)."""

from __future__ import annotations

from aoti_abi.codes import dtype_name
from aoti_abi.errors import InvalidProgram, NotSupported
from aoti_abi.records import TYPE_CHECKING, NamedTuple
from aoti_inspect.artifacts.artifact import Artifact
from aoti_inspect.artifacts.package_fact import PackageFact
from aoti_inspect.artifacts.program import NamedBlob, Value
from aoti_inspect.artifacts.segmented_file import open_tensors, read_segments
from aoti_inspect.wording import counted, sized

if TYPE_CHECKING:
    from aoti_inspect.artifacts.flatbuffer import CheckedTable
    from aoti_inspect.artifacts.sidecars import Beside
    from aoti_inspect.source import Source

# Field slots of flat_tensor.fbs; they differ from those of the program's tables of the same names.
_FILE_VERSION, _FILE_SEGMENTS, _FILE_NAMED_DATA = range(3)
_NAMED_KEY, _NAMED_SEGMENT, _NAMED_LAYOUT = range(3)
_LAYOUT_DTYPE, _LAYOUT_SIZES, _LAYOUT_DIM_ORDER = range(3)


class TensorFile(NamedTuple):
    """What a ``.ptd`` holds.

    Attributes:
        blobs: its named data, in its order; a key may be there twice.
        facts: what is odd about it.
    """

    blobs: tuple[NamedBlob, ...]
    facts: tuple[PackageFact, ...]


def read_ptd(source: Source, beside: Beside) -> Artifact:  # noqa: ARG001 - nothing lies beside it
    """Read a ``.ptd`` by itself; it holds no plugin that anything says how to call.

    Raises:
        InvalidProgram, NotSupported: as `read_tensor_file`.
    """
    content = read_tensor_file(source)
    noted = list(content.facts)
    named = merge_named_data(list(content.blobs), noted)
    total = sum(blob.size for blob in named.values())
    return Artifact(
        source.name,
        "ptd",
        {},
        facts=tuple(noted),
        summary=(("named data", f"{counted(len(named), 'key')}, {sized(total)}"),),
        named_data=named,
        opened=(source,),
    )


def read_tensor_file(source: Source) -> TensorFile:
    """Read a ``.ptd`` without touching its data.

    Raises:
        InvalidProgram: it is damaged or cut short.
        NotSupported: it has another version.
    """
    file, name = open_tensors(source), source.name
    root = file.buffer.root()
    version = root.integer(_FILE_VERSION, "u32")
    if version > 0:
        raise NotSupported(f"this .ptd has version {version}; only 0 is known", path=name)
    segments = read_segments(file, root, _FILE_SEGMENTS)
    blobs = []
    for index, table in enumerate(root.tables(_FILE_NAMED_DATA, "named data")):
        key = table.text(_NAMED_KEY, "key")
        segment = table.integer(_NAMED_SEGMENT, "u32")
        blobs.append(
            named_blob(source, segments, index=index, key=key, segment=segment, layout=_layout(table))
        )
    noted: tuple[PackageFact, ...] = ()
    if file.trailing:
        noted = (PackageFact("bytes-after", (name,), f"the data of {name}", numbers=(file.trailing,)),)
    return TensorFile(tuple(blobs), noted)


def named_blob(
    source: Source,
    segments: tuple[tuple[int, int], ...],
    *,
    index: int,
    key: str | None,
    segment: int,
    layout: Value | None = None,
) -> NamedBlob:
    """Return one piece of named data, after checking that its segment exists."""
    name = source.name
    if not key:
        raise InvalidProgram(f"piece {index} of the named data has no key", path=name)
    if segment >= len(segments):
        raise InvalidProgram(
            f"the named data {key!r} is in segment {segment}, but there are {len(segments)}", path=name
        )
    start, size = segments[segment]
    return NamedBlob(key, name, start, size, source, layout)


def merge_named_data(blobs: list[NamedBlob], noted: list[PackageFact]) -> dict[str, NamedBlob]:
    """Return the named data by key, the first of two with one key, and note keys that are there twice."""
    named: dict[str, NamedBlob] = {}
    for blob in blobs:
        first = named.setdefault(blob.key, blob)
        if first is not blob:
            noted.append(
                PackageFact("repeated-key", (blob.key,), blob.key, details=(first.origin, blob.origin))
            )
    return named


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
