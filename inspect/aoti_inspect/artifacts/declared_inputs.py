"""What a ``.pte`` program says of the tensors that it hands to a plugin."""

from __future__ import annotations

from aoti_abi.codes import DTYPES_BY_NAME
from aoti_abi.records import TYPE_CHECKING
from aoti_inspect.facts.inputs import Extent, InputSpec

if TYPE_CHECKING:
    from aoti_inspect.artifacts.program import Argument, Value


def declared_inputs(
    inputs: tuple[Value, ...], calls: tuple[tuple[Argument, ...], ...]
) -> tuple[InputSpec, ...]:
    """Return what is known of each of a plugin's inputs, in its own order.

    Args:
        inputs: of the method.
        calls: of its delegate.

    Returns:
        One spec per input; none where the delegate is called more than once, or with anything but inputs of
        the method.
    """
    if len(calls) != 1:
        return ()
    order = [argument.input for argument in calls[0] if argument.output is None]
    values = [inputs[index] for index in order if index is not None and index < len(inputs)]
    return tuple(map(_spec, values)) if len(values) == len(order) else ()


def _spec(value: Value) -> InputSpec:
    if value.dtype is None:
        return InputSpec()
    low = value.sizes if value.dynamism == "static" else (0,) * len(value.sizes)
    high: tuple[int | None, ...] = value.sizes
    if value.dynamism == "unbound":
        high = (None,) * len(value.sizes)
    strides = _strides(value.sizes, value.dim_order) if value.dynamism == "static" else None
    sizes = tuple(Extent(a, b) for a, b in zip(low, high, strict=True))
    return InputSpec(value.dtype if value.dtype in DTYPES_BY_NAME else None, len(value.sizes), sizes, strides)


def _strides(sizes: tuple[int, ...], order: tuple[int, ...]) -> tuple[int | None, ...] | None:
    if sorted(order) != list(range(len(sizes))):
        return None
    strides, step = [0] * len(sizes), 1
    for dim in reversed(order):
        strides[dim] = step
        step *= max(sizes[dim], 1)
    return tuple(strides)
