"""``.pte``: an ExecuTorch program whose delegates may be AOTInductor plugins (``schema/program.fbs``)."""

from __future__ import annotations

import os

from aoti_abi.codes import DEVICE_NAMES, dtype_name
from aoti_abi.errors import AotiError, InvalidProgram, NotFound, NotSupported
from aoti_abi.payload import MAGIC_PREFIX, parse_payload
from aoti_abi.records import TYPE_CHECKING, NamedTuple
from aoti_inspect.artifacts.artifact import Artifact, Model
from aoti_inspect.artifacts.declared_inputs import declared_inputs
from aoti_inspect.artifacts.external_weights import (
    BlobWeights,
    ExternalWeights,
    MissingWeights,
    TensorWeights,
    WeightTensor,
)
from aoti_inspect.artifacts.package_fact import PackageFact
from aoti_inspect.artifacts.plugin import ArtifactPlugin
from aoti_inspect.artifacts.program import Delegate
from aoti_inspect.artifacts.ptd import merge_named_data, named_blob, read_tensor_file
from aoti_inspect.artifacts.pte_method import read_method
from aoti_inspect.artifacts.segmented_file import open_program, read_segments
from aoti_inspect.source import open_file
from aoti_inspect.text import decode
from aoti_inspect.wording import counted, sized

if TYPE_CHECKING:
    from aoti_abi.payload import Payload
    from aoti_inspect.artifacts.flatbuffer import CheckedTable
    from aoti_inspect.artifacts.package_fact import FactKind
    from aoti_inspect.artifacts.program import NamedBlob
    from aoti_inspect.artifacts.pte_method import DelegateRecord, Method
    from aoti_inspect.artifacts.sidecars import Beside
    from aoti_inspect.source import Source

# Field slots of the table Program.
_VERSION, _PLANS, _, _INLINE_DATA, _SEGMENTS, _, _, _NAMED_DATA = range(8)

#: Backends that are known to hand over AOTInductor plugins.
AOTI_BACKENDS = frozenset(("CudaBackend", "AotiBackend", "MetalBackend"))
#: What ExecuTorch's exporter calls a backend's data: ``aoti_<device>_blob``.
_SHARED_NAMES = ("aoti_cuda_blob.ptd", "aoti_metal_blob.ptd", "aoti_cpu_blob.ptd")
_LONGEST_KEYS = 4096


class _Program(NamedTuple):
    """A program's parts that its delegates refer to, and what was found wrong so far."""

    source: Source
    root: CheckedTable
    segments: tuple[tuple[int, int], ...]
    named: dict[str, NamedBlob]
    noted: list[PackageFact]


def read_pte(source: Source, beside: Beside) -> Artifact:
    """Read a ``.pte`` with its ``.ptd`` files: those that were named, else those beside it that fit.

    Raises:
        InvalidProgram, NotSupported: as `read_program`.
        AotiError: a ``.ptd`` file can't be opened.
    """
    neighbours = beside.neighbours
    named = beside.data is not None
    names = _own_tensor_files(beside) if beside.data is None else beside.data
    opened: list[Source] = []
    try:
        opened.extend(open_file(name) if named else neighbours.open(name) for name in names)
        artifact = read_program(source, tuple(opened))
        if not named and not names and _lacks_data(artifact):
            shared = [name for name in neighbours.beside(beside.name) if _base(name) in _SHARED_NAMES]
            opened.extend(neighbours.open(name) for name in shared)
            artifact = read_program(source, tuple(opened))
    except BaseException:
        for item in opened:
            item.close()
        raise
    return artifact


def _own_tensor_files(beside: Beside) -> list[str]:
    """Return the ``.ptd`` files beside a program that carry its name: ``STEM.ptd``, ``STEM.KEY.ptd``."""
    stem = os.path.splitext(_base(beside.name))[0]
    return [
        name
        for name in beside.neighbours.beside(beside.name)
        if name.endswith(".ptd") and _base(name).startswith(f"{stem}.")
    ]


def _base(name: str) -> str:
    return name.rpartition("/")[2]


def _lacks_data(artifact: Artifact) -> bool:
    """Return whether a program names data that is not in it, so that it pays to look for a shared file."""
    missing = any(plugin.weights.kind == "missing" for plugin in artifact.plugins)
    return missing or any(
        isinstance(error, NotFound) for model in artifact.models.values() for error in model.problems
    )


def read_program(source: Source, tensor_files: tuple[Source, ...]) -> Artifact:
    """Read a ``.pte`` together with the ``.ptd`` files that belong to it.

    Raises:
        InvalidProgram: it is damaged or cut short.
        NotSupported: it has another version.
    """
    name = source.name
    file = open_program(source)
    root = file.buffer.root()
    version = root.integer(_VERSION, "u32")
    if version > 0:
        raise NotSupported(f"this program has version {version}; only 0 is known", path=name)
    noted: list[PackageFact] = []
    if file.trailing and file.base:
        noted.append(PackageFact("bytes-after", subject="the program's data", numbers=(file.trailing,)))
    segments = read_segments(file, root, _SEGMENTS)
    blobs = [
        named_blob(source, segments, index=index, key=table.text(0, "key"), segment=table.integer(1, "u32"))
        for index, table in enumerate(root.tables(_NAMED_DATA, "named data"))
    ]
    for tensors in tensor_files:
        content = read_tensor_file(tensors)
        blobs.extend(content.blobs)
        noted.extend(content.facts)
    named = merge_named_data(blobs, noted)
    program = _Program(source, root, segments, named, noted)
    models: dict[str, Model] = {}
    for plan in root.tables(_PLANS, "methods"):
        method = read_method(plan, name)
        if method.name in models:
            noted.append(PackageFact("repeated-method", (method.name,)))
            continue
        models[method.name] = _model(program, method)
    if not any(model.plugins or model.problems for model in models.values()):
        others = sorted({backend for model in models.values() for backend in model.other_delegates})
        noted.append(PackageFact("program-without-plugins", tuple(models), details=tuple(others)))
    return Artifact(
        name,
        "pte",
        models,
        facts=tuple(noted),
        summary=_summary(models, named),
        companions=tuple(tensors.name for tensors in tensor_files),
        named_data=named,
        opened=(source, *tensor_files),
    )


def _model(program: _Program, method: Method) -> Model:
    plugins: list[ArtifactPlugin] = []
    others: list[str] = []
    problems: list[AotiError] = []
    for index, record in enumerate(method.delegates):
        where = f"{program.source.name}!{method.name}"
        try:
            data = _payload_bytes(program, record, where)
            payload = _aoti_payload(program, record, data)
            if payload is None:
                others.append(record.id)
                continue
            plugins.extend(_plugins(program, method, index, payload))
        except AotiError as error:
            kind: FactKind = "payload-undecodable"
            if isinstance(error, NotSupported):
                kind = "payload-of-unknown-version"
            elif isinstance(error, NotFound):
                kind = "payload-without-plugin"
            error.path = error.path or f"{where}[{index}]"
            program.noted.append(PackageFact(kind, (method.name,), method.name, (error.message,), (index,)))
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
        return program.source.part(start, size, where).view()
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


def _plugins(program: _Program, method: Method, number: int, payload: Payload) -> list[ArtifactPlugin]:
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
            ArtifactPlugin(
                f"{program.source.name}!{label}{gpu if len(payload.variants) > 1 else ''}",
                method.name,
                blob,
                weights=weights,
                delegate=delegate,
                variant=variant,
            )
        )
    return plugins


def _weights(program: _Program, payload: Payload) -> ExternalWeights:
    named = program.named
    if payload.kind == "fqn":
        return _fqn_weights(named, payload, program.noted)
    key = payload.weights_key
    if not key:
        return ExternalWeights()
    blob = named.get(key)
    if blob is None:
        return MissingWeights(key)
    return BlobWeights(blob, automatic=True)


def _fqn_weights(named: dict[str, NamedBlob], payload: Payload, noted: list[PackageFact]) -> ExternalWeights:
    if not payload.weights:
        return ExternalWeights()
    absent = sorted({entry.key for entry in payload.weights if entry.key not in named})
    if absent:
        noted.append(PackageFact("absent-named-data", tuple(absent), numbers=(len(payload.weights),)))
        return MissingWeights(absent[0])
    for entry in payload.weights:
        if named[entry.key].size != entry.nbytes:
            sizes = (entry.nbytes, named[entry.key].size)
            noted.append(PackageFact("weight-of-other-size", (entry.fqn,), entry.fqn, numbers=sizes))
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
    size = sum({tensor.storage: tensor.storage_nbytes for tensor in tensors}.values())
    store = _NamedTensors(tensors, named)
    return TensorWeights(f"{len(tensors)} named weights", store, size=size, automatic=True)


class _NamedTensors:
    """Tensors that are named data; see `external_weights.TensorStore`."""

    def __init__(self, tensors: tuple[WeightTensor, ...], named: dict[str, NamedBlob]) -> None:
        self._tensors = tensors
        self._named = named

    def tensors(self) -> tuple[WeightTensor, ...]:
        return self._tensors

    def storage(self, key: str) -> memoryview:
        return self._named[key].view()


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
