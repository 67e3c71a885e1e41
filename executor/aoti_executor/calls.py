"""Prepared calls: the C structs of one run, made once and used again.

A `Plan` belongs to one combination of input types and shapes; it holds what never changes between runs and a
stock of frames, so that threads share a plan and never a frame.
"""

from __future__ import annotations

import ctypes
from ctypes import POINTER, c_int64, c_void_p, cast
from typing import TYPE_CHECKING

from aoti_abi.lifetimes import Unique
from aoti_executor.call_structs import Bound, Call, Layout, Output, Target
from aoti_executor.native import runner
from aoti_executor.views import View

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aoti_executor.host_tensors import HostTensors

#: Frames kept for reuse by a plan; more than this many threads at once make new ones.
_STOCK = 32


class Layouts:
    """A C array of tensor layouts, with the memory that it points to."""

    __slots__ = ("_numbers", "array")

    def __init__(self, views: Sequence[View]) -> None:
        self.array = (Layout * max(len(views), 1))()
        self._numbers = []
        for slot, view in zip(self.array, views, strict=False):
            numbers = c_int64 * max(len(view.shape), 1)
            sizes, strides = numbers(*view.shape), numbers(*view.strides)
            self._numbers += [sizes, strides]
            slot.ndim = len(view.shape)
            slot.sizes = cast(sizes, POINTER(c_int64))
            slot.strides = cast(strides, POINTER(c_int64))
            slot.nbytes = view.span
            slot.dtype = view.dtype
            slot.itemsize = view.itemsize
            slot.device_type = view.device_type
            slot.device_index = view.device_index


class Frame(Unique):
    """The memory of one run in progress."""

    __slots__ = ("call", "data", "handles", "outputs", "plan", "run")

    def __init__(self, plan: Plan) -> None:
        target = plan.target
        self.plan = plan
        self.data = (c_void_p * max(target.num_inputs, 1))()
        self.handles = (c_void_p * max(target.num_inputs + target.num_outputs, 1))()
        self.outputs = (Output * max(target.num_outputs, 1))()
        self.call = Call(
            ctypes.pointer(target),
            cast(plan.layouts.array, POINTER(Layout)),
            cast(self.data, POINTER(c_void_p)),
            cast(self.handles, POINTER(c_void_p)),
            cast(self.outputs, POINTER(Output)),
        )
        self.run = runner(self.call)


class Plan(Unique):
    """What runs with inputs of one combination of types and shapes have in common."""

    __slots__ = ("_stock", "layouts", "target")

    def __init__(self, target: Target, views: Sequence[View]) -> None:
        self.target = target
        self.layouts = Layouts(views)
        self._stock: list[Frame] = []

    def take(self) -> Frame:
        """Return a frame that nobody else uses."""
        # list.pop is atomic: two threads never get one frame.
        try:
            return self._stock.pop()
        except IndexError:
            return Frame(self)

    def give(self, frame: Frame) -> None:
        """Put a frame back."""
        if len(self._stock) < _STOCK:
            self._stock.append(frame)


class BoundFrame(Unique):
    """A run with fixed inputs and destinations; ``run()`` returns one of the ``CALL_`` codes of `native`."""

    __slots__ = ("_kept", "bound", "run")

    def __init__(
        self,
        plan: Plan,
        host: HostTensors,
        inputs: Sequence[View],
        outputs: Sequence[View | None],
    ) -> None:
        target = plan.target
        handles, owners = [], []
        for value in inputs:
            handles.append(host.wrap(value))
            owners.append(host.own(c_void_p(handles[-1])))
        frame = Frame(plan)
        for index, value in enumerate(inputs):
            frame.data[index] = value.data
        templates = (c_void_p * max(target.num_inputs, 1))(*handles)
        shapes = Layouts([value or _NOTHING for value in outputs])
        destinations = (c_void_p * max(target.num_outputs, 1))(
            *(None if value is None else value.data for value in outputs)
        )
        self.bound = Bound(
            frame.call,
            cast(templates, POINTER(c_void_p)),
            cast(shapes.array, POINTER(Layout)),
            cast(destinations, POINTER(c_void_p)),
            0,
        )
        self._kept = (frame, templates, owners, shapes, destinations, tuple(inputs), tuple(outputs))
        self.run = runner(self.bound)


_NOTHING = View(0, 0, (), (), 0, 0, readonly=False, owner=None)
