"""Methods of an ExecuTorch program (``schema/program.fbs``, the table ``ExecutionPlan``)."""

from __future__ import annotations

from aoti_abi.codes import device_name, dtype_name
from aoti_abi.errors import InvalidProgram
from aoti_abi.records import TYPE_CHECKING, NamedTuple
from aoti_inspect.artifacts.program import Argument, Value

if TYPE_CHECKING:
    from aoti_inspect.artifacts.flatbuffer import CheckedTable

# Field slots, in the order of the schema.
_PLAN_NAME, _, _PLAN_VALUES, _PLAN_INPUTS, _PLAN_OUTPUTS, _PLAN_CHAINS, _PLAN_OPERATORS, _PLAN_DELEGATES = (
    range(8)
)
_CHAIN_INSTRUCTIONS = 2
_UNION_TYPE, _UNION_VALUE = 0, 1
_CALL_TARGET, _CALL_ARGS = 0, 1
_DELEGATE_ID, _DELEGATE_PROCESSED, _DELEGATE_SPECS = range(3)
_TENSOR_DTYPE, _TENSOR_SIZES, _TENSOR_DIM_ORDER, _TENSOR_DYNAMISM, _TENSOR_EXTRA = 0, 2, 3, 8, 9
_EXTRA_DEVICE_TYPE, _EXTRA_DEVICE_INDEX = 3, 4

_KERNEL_CALL, _DELEGATE_CALL = 1, 2
_INSTRUCTIONS = {3: "MoveCall", 4: "JumpFalseCall", 5: "FreeCall"}
_TENSOR = 5
_VALUE_KINDS = {
    1: "none",
    2: "int",
    3: "bool",
    4: "double",
    5: "tensor",
    6: "string",
    7: "int list",
    8: "double list",
    9: "bool list",
    10: "tensor list",
    11: "optional tensor list",
}
_DYNAMISM = {0: "static", 1: "bound", 2: "unbound"}

#: Kernels that only move a tensor to or from the device: what goes in is what comes out.
_COPIES = frozenset(("et_copy::_h2d_copy", "et_copy::_d2h_copy"))


class DelegateRecord(NamedTuple):
    """One delegate, not yet resolved.

    Attributes:
        id: the backend's name.
        in_segment: whether its payload is a segment, or inline data.
        data_index: of that segment or inline data.
        compile_specs: options, in order.
        calls: arguments of each call.
    """

    id: str
    in_segment: bool
    data_index: int
    compile_specs: tuple[tuple[str, bytes], ...]
    calls: tuple[tuple[Argument, ...], ...]


class Method(NamedTuple):
    """One method.

    Attributes:
        name: as callers use it.
        inputs, outputs: in the order of the method.
        delegates: by index.
        operators: what no delegate runs, in order, without repeats.
    """

    name: str
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    delegates: tuple[DelegateRecord, ...]
    operators: tuple[str, ...]


class _Code(NamedTuple):
    """A method's instructions, as far as they matter here."""

    delegate_calls: tuple[tuple[int, tuple[int, ...]], ...]
    operators: tuple[str, ...]
    copies: tuple[tuple[int, int], ...]


def read_method(plan: CheckedTable, path: str) -> Method:
    """Read one method.

    Raises:
        InvalidProgram: it is damaged, or refers to values or delegates that it does not have.
    """
    name = plan.text(_PLAN_NAME, "method name")
    if not name:
        raise InvalidProgram("the program has a method without a name", path=path)
    where = f"{path}!{name}"
    inputs = plan.integers(_PLAN_INPUTS, "i32", "inputs")
    outputs = plan.integers(_PLAN_OUTPUTS, "i32", "outputs")
    code = _read_code(plan, where)
    values = plan.length(_PLAN_VALUES, "values")
    origins = {value: index for index, value in reversed(list(enumerate(inputs)))}
    results = {value: index for index, value in reversed(list(enumerate(outputs)))}
    for source, target in code.copies:
        if source in origins:
            origins.setdefault(target, origins[source])
    for source, target in reversed(code.copies):
        if target in results:
            results.setdefault(source, results[target])
    records = list(plan.tables(_PLAN_DELEGATES, "delegates"))
    calls: list[list[tuple[Argument, ...]]] = [[] for _ in records]
    for index, arguments in code.delegate_calls:
        if not 0 <= index < len(records):
            raise InvalidProgram(f"it calls delegate {index}, but has {len(records)}", path=where)
        for value in arguments:
            if not 0 <= value < values:
                raise InvalidProgram(
                    f"delegate {index} gets value {value}, but there are {values}", path=where
                )
        calls[index].append(
            tuple(Argument(value, origins.get(value), results.get(value)) for value in arguments)
        )
    delegates = tuple(_delegate(table, tuple(made)) for table, made in zip(records, calls, strict=True))
    return Method(
        name,
        tuple(_value(plan, index, where) for index in inputs),
        tuple(_value(plan, index, where) for index in outputs),
        delegates,
        code.operators,
    )


def _read_code(plan: CheckedTable, where: str) -> _Code:
    names: list[tuple[str, str]] = []
    for table in plan.tables(_PLAN_OPERATORS, "operators"):
        base, overload = table.text(0, "operator") or "", table.text(1, "overload")
        names.append((base, f"{base}.{overload}" if overload else base))
    calls: list[tuple[int, tuple[int, ...]]] = []
    operators: dict[str, None] = {}
    copies: list[tuple[int, int]] = []
    for chain in plan.tables(_PLAN_CHAINS, "chains"):
        for instruction in chain.tables(_CHAIN_INSTRUCTIONS, "instructions"):
            kind = instruction.integer(_UNION_TYPE, "u8")
            if kind not in (_KERNEL_CALL, _DELEGATE_CALL):
                operators[_INSTRUCTIONS.get(kind, f"instruction {kind}")] = None
                continue
            call = instruction.table(_UNION_VALUE, "instruction")
            if call is None:
                raise InvalidProgram("it has an instruction without content", path=where)
            target = call.integer(_CALL_TARGET, "i32")
            arguments = call.integers(_CALL_ARGS, "i32", "arguments")
            if kind == _DELEGATE_CALL:
                calls.append((target, arguments))
                continue
            if not 0 <= target < len(names):
                raise InvalidProgram(f"it calls operator {target}, but has {len(names)}", path=where)
            base, full = names[target]
            operators[full] = None
            if base in _COPIES and len(arguments) >= 2:
                copies.append((arguments[0], arguments[-1]))
    return _Code(tuple(calls), tuple(operators), tuple(copies))


def _delegate(table: CheckedTable, calls: tuple[tuple[Argument, ...], ...]) -> DelegateRecord:
    processed = table.table(_DELEGATE_PROCESSED, "delegate's data")
    specs = tuple(
        (spec.text(0, "option") or "", bytes(spec.octets(1, "option value") or b""))
        for spec in table.tables(_DELEGATE_SPECS, "options")
    )
    return DelegateRecord(
        table.text(_DELEGATE_ID, "backend id") or "",
        processed is not None and processed.integer(0, "i8") == 1,
        -1 if processed is None else processed.integer(1, "u32"),
        specs,
        calls,
    )


def _value(plan: CheckedTable, index: int, where: str) -> Value:
    entry = plan.table_in(_PLAN_VALUES, index, "values")
    if entry is None:
        raise InvalidProgram(f"its inputs and outputs name value {index}, which it does not have", path=where)
    kind = entry.integer(_UNION_TYPE, "u8")
    name = _VALUE_KINDS.get(kind, f"value of type {kind}")
    tensor = entry.table(_UNION_VALUE, "value") if kind == _TENSOR else None
    if tensor is None:
        return Value(name)
    extra = tensor.table(_TENSOR_EXTRA, "tensor details")
    device = "cpu"
    if extra is not None and extra.integer(_EXTRA_DEVICE_TYPE, "i8"):
        device = device_name(
            extra.integer(_EXTRA_DEVICE_TYPE, "i8"), extra.integer(_EXTRA_DEVICE_INDEX, "i8")
        )
    dynamism = tensor.integer(_TENSOR_DYNAMISM, "i8")
    return Value(
        name,
        dtype_name(tensor.integer(_TENSOR_DTYPE, "i8")),
        tensor.integers(_TENSOR_SIZES, "i32", "sizes"),
        tensor.integers(_TENSOR_DIM_ORDER, "u8", "dim order"),
        _DYNAMISM.get(dynamism, f"dynamism {dynamism}"),
        device,
    )
