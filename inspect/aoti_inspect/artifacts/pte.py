"""``.pte``: an ExecuTorch program whose delegates may be AOTInductor plugins (``schema/program.fbs``)."""

from __future__ import annotations

from functools import partial

from aoti_abi.codes import DEVICE_NAMES, dtype_name
from aoti_abi.errors import AotiError, InvalidProgram, NotFound, NotSupported
from aoti_abi.payload import MAGIC_PREFIX, parse_payload
from aoti_abi.records import TYPE_CHECKING, NamedTuple
from aoti_inspect.artifacts.anomaly import Anomaly
from aoti_inspect.artifacts.artifact import Artifact, Delegate, Model, Plugin
from aoti_inspect.artifacts.declared_inputs import declared_inputs
from aoti_inspect.artifacts.ptd import named_blob, read_tensor_file
from aoti_inspect.artifacts.pte_method import read_method
from aoti_inspect.artifacts.segments import program_container, read_segments
from aoti_inspect.artifacts.weights import Location, Weights, WeightTensor
from aoti_inspect.text import decode
from aoti_inspect.wording import counted, sized

if TYPE_CHECKING:
    from aoti_abi.payload import Payload
    from aoti_inspect.artifacts.artifact import NamedBlob
    from aoti_inspect.artifacts.flatbuffer import CheckedTable
    from aoti_inspect.artifacts.mapped import Source
    from aoti_inspect.artifacts.pte_method import DelegateRecord, Method

# Field slots of the table Program.
_VERSION, _PLANS, _, _INLINE_DATA, _SEGMENTS, _, _, _NAMED_DATA = range(8)

#: Backends that are known to hand over AOTInductor plugins.
AOTI_BACKENDS = frozenset(("CudaBackend", "AotiBackend", "MetalBackend"))
_LONGEST_KEYS = 4096


class _Program(NamedTuple):
    """A program's parts that its delegates refer to, and what was found wrong so far.

    ``places`` says where the program and its data files lie, by name; those in memory alone are not in it.
    """

    name: str
    view: memoryview
    places: dict[str, Location]
    root: CheckedTable
    segments: tuple[tuple[int, int], ...]
    named: dict[str, NamedBlob]
    anomalies: list[Anomaly]


def read_program(source: Source, tensor_files: tuple[Source, ...]) -> Artifact:
    """Read a ``.pte`` together with the ``.ptd`` files that belong to it.

    Raises:
        InvalidProgram: it is damaged or cut short.
        NotSupported: it has another version.
    """
    name, view = source.name, source.view
    container = program_container(view, name)
    root = container.buffer.root()
    version = root.integer(_VERSION, "u32")
    if version > 0:
        raise NotSupported(f"this program has version {version}; only 0 is known", path=name)
    anomalies: list[Anomaly] = []
    if container.trailing and container.base:
        anomalies.append(Anomaly("trailing-data", f"{container.trailing} bytes follow the program's data"))
    segments = read_segments(container, root, _SEGMENTS)
    blobs = [
        named_blob(
            view, name, segments, index=index, key=table.text(0, "key"), segment=table.integer(1, "u32")
        )
        for index, table in enumerate(root.tables(_NAMED_DATA, "named data"))
    ]
    for file in tensor_files:
        content = read_tensor_file(file.view, file.name)
        blobs.extend(content.blobs)
        anomalies.extend(content.anomalies)
    named = merge_named_data(blobs, anomalies)
    places = {file.name: file.place for file in (source, *tensor_files) if file.place is not None}
    program = _Program(name, view, places, root, segments, named, anomalies)
    models: dict[str, Model] = {}
    for plan in root.tables(_PLANS, "methods"):
        method = read_method(plan, name)
        if method.name in models:
            anomalies.append(Anomaly("duplicate-method", "two methods have the same name", (method.name,)))
            continue
        models[method.name] = _model(program, method)
    if not any(model.plugins or model.problems for model in models.values()):
        others = sorted({backend for model in models.values() for backend in model.other_delegates})
        what = f"its delegates are {', '.join(others)}" if others else "it has no delegates"
        anomalies.append(
            Anomaly("no-plugin", f"this program uses no AOTInductor plugin: {what}", tuple(models))
        )
    return Artifact(
        name,
        "pte",
        models,
        anomalies=tuple(anomalies),
        summary=_summary(models, named),
        companions=tuple(file.name for file in tensor_files),
        named_data=named,
        sources=(source, *tensor_files),
    )


def merge_named_data(blobs: list[NamedBlob], anomalies: list[Anomaly]) -> dict[str, NamedBlob]:
    """Return the named data by key, the first of two with one key, and note keys that are there twice."""
    named: dict[str, NamedBlob] = {}
    for blob in blobs:
        first = named.setdefault(blob.key, blob)
        if first is not blob:
            where = first.origin if first.origin == blob.origin else f"{first.origin} and {blob.origin}"
            message = f"the key {blob.key!r} is there twice, in {where}: ExecuTorch refuses to load that"
            anomalies.append(Anomaly("duplicate-key", message, (blob.key,)))
    return named


def _model(program: _Program, method: Method) -> Model:
    plugins: list[Plugin] = []
    others: list[str] = []
    problems: list[AotiError] = []
    for index, record in enumerate(method.delegates):
        where = f"{program.name}!{method.name}"
        try:
            data = _payload_bytes(program, record, where)
            payload = _aoti_payload(program, record, data)
            if payload is None:
                others.append(record.id)
                continue
            plugins.extend(_plugins(program, method, index, payload))
        except AotiError as error:
            kind = {NotSupported: "unknown-payload", NotFound: "missing-plugin"}.get(
                type(error), "malformed-payload"
            )
            error.path = error.path or f"{where}[{index}]"
            program.anomalies.append(
                Anomaly(kind, f"delegate {index} of {method.name}: {error.message}", (method.name,))
            )
            problems.append(error)
    return Model(
        method.name,
        tuple(plugins),
        method.inputs,
        method.outputs,
        method.operators,
        tuple(others),
        problems=tuple(problems),
    )


def _payload_bytes(program: _Program, record: DelegateRecord, where: str) -> memoryview:
    if record.in_segment:
        if record.data_index >= len(program.segments):
            raise InvalidProgram(
                f"a delegate's payload is in segment {record.data_index} of {len(program.segments)}",
                path=where,
            )
        start, size = program.segments[record.data_index]
        return program.view[start : start + size]
    if record.data_index < 0:
        return memoryview(b"")
    inline = program.root.table_in(_INLINE_DATA, record.data_index, "inline data")
    if inline is None:
        raise InvalidProgram(
            f"a delegate's payload is inline data {record.data_index}, which is not there", path=where
        )
    return inline.octets(0, "payload") or memoryview(b"")


def _aoti_payload(program: _Program, record: DelegateRecord, data: memoryview) -> Payload | None:
    """Decode a payload if the delegate is one of AOTInductor's, by its id or by what it says."""
    method_name = next((decode(value) for key, value in record.compile_specs if key == "method_name"), "")
    if record.id in AOTI_BACKENDS or bytes(data[: len(MAGIC_PREFIX)]) == MAGIC_PREFIX:
        return parse_payload(data, method_name)
    # Another backend's payload that happens to be two lines of text which name a plugin: an unknown AOTI
    # backend.
    so_key = bytes(data[:_LONGEST_KEYS]).partition(b"\n")[0]
    if len(data) > _LONGEST_KEYS or not so_key or decode(so_key) not in program.named:
        return None
    return parse_payload(data, method_name)


def _plugins(program: _Program, method: Method, number: int, payload: Payload) -> list[Plugin]:
    record = method.delegates[number]
    inputs = declared_inputs(method.inputs, record.calls)
    delegate = Delegate(number, record.id, record.compile_specs, payload, record.calls, inputs)
    weights = _weights(program, payload)
    label = method.name if len(method.delegates) == 1 else f"{method.name}[{number}]"
    plugins = []
    for variant in payload.variants:
        blob = program.named.get(variant.so_key)
        if blob is None:
            raise NotFound(
                f"its plugin {variant.so_key!r} is in no named data",
                hint="the program and its data files do not belong together, or one is missing",
            )
        gpu = f"(sm_{variant.target_sm}{' fallback' if variant.fallback_only else ''})"
        plugins.append(
            Plugin(
                f"{program.name}!{label}{gpu if len(payload.variants) > 1 else ''}",
                method.name,
                blob.size,
                partial(_view, blob),
                weights=weights,
                delegate=delegate,
                variant=variant,
                location=_location(program, blob),
            )
        )
    return plugins


def _view(blob: NamedBlob) -> memoryview:
    return blob.view


def _location(program: _Program, blob: NamedBlob) -> Location | None:
    place = program.places.get(blob.origin)
    return None if place is None else Location(place.path, place.offset + blob.offset, blob.size)


def _weights(program: _Program, payload: Payload) -> Weights:
    named = program.named
    if payload.kind == "fqn":
        return _fqn_weights(named, payload, program.anomalies)
    key = payload.weights_key
    if not key:
        return Weights("none")
    blob = named.get(key)
    if blob is None:
        return Weights("missing", key)
    location = _location(program, blob)
    return Weights("blob", key, size=blob.size, location=location, blob=lambda: blob.view)


def _fqn_weights(named: dict[str, NamedBlob], payload: Payload, anomalies: list[Anomaly]) -> Weights:
    if not payload.weights:
        return Weights("none")
    absent = sorted({entry.key for entry in payload.weights if entry.key not in named})
    if absent:
        message = f"{len(absent)} of {len(payload.weights)} weights are in no named data, first {absent[0]!r}"
        anomalies.append(Anomaly("missing-weight-keys", message, tuple(absent)))
        return Weights("missing", absent[0])
    for entry in payload.weights:
        if named[entry.key].size != entry.nbytes:
            message = (
                f"the weight {entry.fqn!r} should have {entry.nbytes} bytes and has {named[entry.key].size}"
            )
            anomalies.append(Anomaly("weight-size", message, (entry.fqn,)))
    tensors = tuple(
        WeightTensor(
            entry.fqn,
            dtype_name(entry.dtype),
            entry.sizes,
            entry.strides,
            entry.offset,
            DEVICE_NAMES[entry.device_type],
            entry.key,
            entry.nbytes,
        )
        for entry in payload.weights
    )
    return Weights(
        "tensors",
        f"{len(tensors)} named weights",
        size=sum({tensor.storage: tensor.storage_nbytes for tensor in tensors}.values()),
        tensors=lambda: tensors,
        storage=lambda key: named[key].view,
    )


def _summary(models: dict[str, Model], named: dict[str, NamedBlob]) -> tuple[tuple[str, str], ...]:
    lines = [("methods", ", ".join(models) or "none")]
    if named:
        total = sum(blob.size for blob in named.values())
        lines.append(("named data", f"{counted(len(named), 'key')}, {sized(total)}"))
    for model in models.values():
        if model.operators:
            lines.append((f"{model.name} also runs", ", ".join(model.operators)))
        if model.other_delegates:
            lines.append((f"{model.name} also delegates to", ", ".join(model.other_delegates)))
    return tuple(lines)
