"""A call with fixed inputs and outputs, for loops that must not allocate."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aoti_abi.errors import InvalidArgument
from aoti_abi.lifetimes import Unique
from aoti_executor.views import View, allocate, contiguous

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from aoti_executor.container import Container
    from aoti_executor.tensor import Tensor


class BoundCall(Unique):
    """Runs a model on the same memory again and again; made by `Model.bind`.

    Write new values into the inputs in place, call it, read the outputs in place. One call is one foreign
    call without Python allocations. Use one bound call per thread.

    Attributes:
        outputs: the destinations, in the plugin's order; None where an output is dropped.
    """

    __slots__ = ("_container", "_frame", "_result", "_run", "_weights", "outputs")

    def __init__(
        self,
        container: Container,
        inputs: Sequence[View],
        destinations: Sequence[View | None],
        outputs: Sequence[Any],
        result: Any,
    ) -> None:
        self._container = container
        self._weights = container.weights
        self._frame = container.bind(inputs, destinations)
        self._run: Callable[[], int] = self._frame.run
        self._result = result
        self.outputs = list(outputs)

    def __call__(self) -> Any:
        """Run; return the outputs, structured as the model's result.

        Raises:
            InvalidArgument: an output has another type or shape than its destination.
            InvalidState: the model is closed, constants have no value, or another thread is in this call.
            ExecutionFailed: the plugin or the host returned an error.
        """
        if not self._weights.ready:
            self._weights.prepare()
        status = self._run()
        if status:
            call = self._frame.bound.call
            raise self._container.failure(status, call.code, call.index)
        return self._result


def allocate_like(tensors: Sequence[Tensor | None]) -> list[View | None]:
    """Return new host memory for outputs that look like these.

    Raises:
        InvalidArgument: one is not in host memory.
    """
    views: list[View | None] = []
    for tensor in tensors:
        if tensor is None:
            views.append(None)
            continue
        seen = tensor.view
        if seen.device_type:
            raise InvalidArgument(f"an output is on {tensor.device}; bound calls deliver to host memory")
        views.append(allocate(seen.dtype, seen.shape, contiguous(seen.shape)))
    return views
