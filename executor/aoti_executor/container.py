"""A model container, driven so that no call from Python can crash the process.

The C API trusts its caller. Counts that differ make it abort, a run before the weights are there reads null
pointers, a closed container is freed memory. `Container` refuses what does not fit, with an error that says
what to do instead; `aoti_executor.weights` does the same for constants.
"""

from __future__ import annotations

import ctypes
import sys
from typing import TYPE_CHECKING, Any

from aoti_abi.codes import parse_device
from aoti_abi.errors import ExecutionFailed, InvalidArgument, InvalidState, NotSupported
from aoti_abi.lifetimes import Unique
from aoti_abi.symbols import CONTAINER as PREFIX
from aoti_executor import native
from aoti_executor.arrays import view
from aoti_executor.call_structs import Target
from aoti_executor.calls import BoundFrame, Plan
from aoti_executor.forks import refuse_lost_team, team_lost, watch
from aoti_executor.handle import ContainerHandle, LoadedPlugin
from aoti_executor.native import CALL_OK, address_of
from aoti_executor.openmp import hold_teams
from aoti_executor.tensor import Tensor
from aoti_executor.views import View, allocate, copy_elements
from aoti_executor.weights import Weights
from aoti_inspect.facts.openmp import uses_openmp
from aoti_inspect.wording import counted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aoti_executor.call_structs import Output

_PLANS = 64


class Container(Unique):
    """One model container of a loaded plugin.

    Thread-safe: runs overlap (``num_models`` of them at once, the rest wait their turn inside the plugin),
    and changes of the active constants wait for the runs in progress. Close it, or leave a ``with`` block, to
    free it; tensors that it returned stay valid.

    Args:
        plugin: the loaded plugin, kept open as long as the container is.
        num_models: how many runs may overlap (behaviour E7).
        device: as "cpu" or "cuda:1".
        kernels: folder of GPU kernels that are not inside the plugin.
        threads: the largest OpenMP team; None for what is known to be safe (`aoti_executor.openmp`).

    Attributes:
        weights: its constants: what they are, their values, the two sets and the swap between them.

    Raises:
        InvalidArgument: ``num_models`` is not positive or the device is malformed.
        ExecutionFailed: the plugin could not create the container.
        InvalidProgram: it answers nonsense about itself.
    """

    def __init__(
        self,
        plugin: LoadedPlugin,
        *,
        num_models: int = 1,
        device: str = "cpu",
        kernels: str | None = None,
        threads: int | None = None,
    ) -> None:
        self.plugin = plugin
        self.device = device
        self.num_models = num_models
        self._plans: dict[Any, Plan] = {}
        self._handle = handle = ContainerHandle(plugin, num_models, device, kernels)
        try:
            self.num_inputs = handle.count("Inputs")
            self.num_outputs = handle.count("Outputs")
            self.input_names = handle.names("Input", self.num_inputs)
            self.output_names = handle.names("Output", self.num_outputs)
            self.weights = Weights(handle, kind=plugin.facts.weights.kind)
            self._starts_teams = uses_openmp(plugin.facts.elf) or plugin.host.starts_teams
            if self._starts_teams:
                refuse_lost_team(plugin.path)
            openmp = hold_teams(plugin.facts, threads, plugin.binding)
            self._target = Target(
                ctypes.pointer(handle.host.table),
                handle.gate.address,
                address_of(handle.functions[f"{PREFIX}Run"]),
                handle.address,
                (openmp.get_max_threads or None) if openmp else None,
                (openmp.set_num_threads or None) if openmp else None,
                openmp.max_threads if openmp else 0,
                *plugin.image,
                self.num_inputs,
                self.num_outputs,
            )
        except BaseException:
            handle.close()
            raise
        watch(self)

    def note_fork(self) -> None:
        """Look, in the child of a fork, what of the parent's model is of use here."""
        reason = None
        if self._handle.device_type:
            reason = "what its parent has on a GPU is not reachable from it"
        elif self._starts_teams and team_lost():
            reason = "it would wait for OpenMP threads that only its parent has"
        self.weights.lose(reason)

    @property
    def max_threads(self) -> int:
        """The largest OpenMP team of a run; 0 for no limit."""
        return int(self._target.max_threads)

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._handle.closed

    def call_spec(self) -> tuple[str, str]:
        """Return the pytree specs of inputs and outputs, as JSON text; empty if the plugin has none."""
        with self.weights.turn():
            spec = self._handle.call_spec()
        if spec is None:
            self.plugin.warn_fallback("call-spec")
            return "", ""
        return spec

    def run(self, inputs: Sequence[Any]) -> list[Tensor | None]:
        """Run on a flat list of inputs.

        Args:
            inputs: arrays, in the plugin's order; borrowed for the time of the run.

        Returns:
            The outputs; None where the model returns None; one object where it returns one tensor twice.

        Raises:
            InvalidArgument: the number of inputs is wrong, or one is no tensor or is on another device.
            InvalidState: closed, broken, or constants have no value.
            ExecutionFailed: the plugin or the host returned an error (behaviour E6).
        """
        self.weights.check_open()
        self.check_count(len(inputs))
        views = [self.place(view(value, self.describe_input(i))) for i, value in enumerate(inputs)]
        return self.run_plan(self.plan(views), [value.data for value in views], views)

    def check_count(self, count: int) -> None:
        """Refuse a number of inputs that would make the plugin abort (behaviour E1)."""
        if count != self.num_inputs:
            raise InvalidArgument(
                f"{self._takes()}; {count} were given",
                path=self.plugin.path,
            )

    def _takes(self) -> str:
        inputs, outputs = counted(self.num_inputs, "input"), counted(self.num_outputs, "output")
        return f"the model takes {inputs} and gives {outputs}"

    def describe_input(self, index: int) -> str:
        """Return how messages call an input."""
        return f"input {index} ({self.input_names[index]})"

    @property
    def on_host(self) -> bool:
        """Whether the model runs in host memory."""
        return not self._handle.device_type

    def place(self, value: View) -> View:
        """Return an input where the plugin can take it: writable, aligned, on the model's device (E3).

        What is in host memory is copied to the device; what is on a device already is taken as it is.

        Raises:
            ExecutionFailed: the host does not reach the device, or has no memory left there.
        """
        handle = self._handle
        if value.device_type or not handle.device_type:
            return writable(value)
        tensor = Tensor(handle.host, handle.host.copy_to(value, *parse_device(self.device)))
        return tensor.view._replace(owner=tensor)

    def upload(self, value: Any) -> Tensor:
        """Return a copy of an array on the model's device, for runs that copy no input.

        Raises:
            InvalidArgument: it is no tensor.
            ExecutionFailed: as `place`.
        """
        self.weights.check_open()
        host = self._handle.host
        return Tensor(host, host.copy_to(view(value, "the array"), *parse_device(self.device)))

    def plan(self, views: Sequence[View]) -> Plan:
        """Return the prepared call for inputs of these types and shapes.

        Raises:
            InvalidArgument: an input is on another device.
            NotSupported: the plugin calls operators that no host here has.
        """
        key = tuple([(v.dtype, v.shape, v.strides, v.device_type, v.device_index) for v in views])
        plan = self._plans.get(key)
        if plan is None:
            self._refuse_proxy_operators()
            for index, value in enumerate(views):
                if value.device_type != self._handle.device_type:
                    raise InvalidArgument(
                        f"{self.describe_input(index)} is {value}, the model runs on {self.device}",
                        path=self.plugin.path,
                    )
            plan = Plan(self._target, views)
            if len(self._plans) >= _PLANS:  # shapes may vary without end
                self._plans.pop(next(iter(self._plans)), None)
            self._plans[key] = plan
        return plan

    def _refuse_proxy_operators(self) -> None:
        if self.plugin.facts.imports.proxy_executor:
            raise NotSupported(
                "the plugin calls operators through PyTorch's dispatcher, which only PyTorch's own runner "
                "can hand it",
                path=self.plugin.path,
                hint="run it with torch._inductor.aoti_load_package, or export without custom operators",
            )

    def run_plan(self, plan: Plan, addresses: Sequence[int], owners: Sequence[object]) -> list[Tensor | None]:
        """Run on memory that a plan was made for; ``owners`` keep it alive. See `run`."""
        if not self.weights.ready:
            self.weights.prepare()
        frame = plan.take()
        frame.data[: len(addresses)] = addresses
        status = frame.run()
        if status != CALL_OK:
            error = self.failure(status, frame.call.code, frame.call.index)
            plan.give(frame)
            raise error
        try:
            results = self._take(frame.outputs[: self.num_outputs], owners)
        except BaseException:
            for output in frame.outputs[: self.num_outputs]:  # what is no tensor yet is still ours
                if output.handle and output.same < 0:
                    self._handle.host.delete(output.handle)
            raise
        plan.give(frame)
        return results

    def _take(self, outputs: Sequence[Output], owners: Sequence[object]) -> list[Tensor | None]:
        results: list[Tensor | None] = []
        host = self._handle.host
        for output in outputs:
            handle = output.handle
            if handle is None:
                results.append(None)
            elif output.same >= 0:
                results.append(results[output.same])
            else:
                alias = output.alias
                tensor = Tensor(host, handle, None if alias < 0 else owners[alias], output)
                if alias == native.IN_PLUGIN:  # the next run writes there, and `close` unmaps it
                    tensor = Tensor(host, host.clone(handle))
                results.append(tensor)
        return results

    def bind(self, inputs: Sequence[View], outputs: Sequence[View | None]) -> BoundFrame:
        """Prepare a run with fixed inputs and destinations.

        The views' memory must stay in place. A None among the outputs drops that output.

        Raises:
            InvalidArgument: counts or devices differ, or memory can't be written or is not aligned.
            InvalidState: closed.
            ExecutionFailed: the host refuses one of the inputs.
        """
        self.weights.check_open()
        self.check_count(len(inputs))
        if len(outputs) != self.num_outputs:
            raise InvalidArgument(
                f"{self._takes()}; {len(inputs)} and {len(outputs)} were given",
                path=self.plugin.path,
            )
        for index, value in enumerate(outputs):
            if value is not None and (value.readonly or value.device_type):
                where = "read-only" if value.readonly else "not in host memory"
                raise InvalidArgument(f"the destination of output {index} is {where}", path=self.plugin.path)
        named = [(self.describe_input(index), value) for index, value in enumerate(inputs)]
        named += [(f"the destination of output {i}", value) for i, value in enumerate(outputs) if value]
        for what, value in named:
            if not value.aligned:
                raise InvalidArgument(
                    f"{what} is at the address {value.data:#x}, where {value.itemsize}-byte elements are not "
                    "aligned, so it can't be bound",
                    path=self.plugin.path,
                )
        return BoundFrame(self.plan(inputs), self._handle.host, inputs, outputs)

    def tensor_over(self, memory: View) -> Tensor:
        """Return a tensor over memory of ours, which it keeps alive."""
        return Tensor(self._handle.host, self._handle.host.wrap(memory), memory)

    def failure(self, status: int, code: int, index: int) -> Exception:
        """Return the error for a run that did not succeed, in the words of plugin and host (E6)."""
        path, host = self.plugin.path, self._handle.host
        if status == native.CALL_CLOSED:
            return InvalidState("the model is closed", path=path)
        if status == native.CALL_INSIDE:
            return InvalidState(native.INSIDE, path=path)
        if status == native.CALL_BUSY:
            return InvalidState(
                "another thread is running this very call", path=path, hint="bind one call for each thread"
            )
        if status == native.CALL_RUN_FAILED:
            return ExecutionFailed(f"the run failed: error {code}", path=path, cause=self._handle.cause())
        if status == native.CALL_BAD_INPUT:
            what = f"the host cannot make a tensor of {self.describe_input(index)}: error {code}"
            return ExecutionFailed(what, path=path, cause=host.last_error())
        if status == native.CALL_NO_FIT:
            return InvalidArgument(
                f"output {index} ({self.output_names[index]}) has another type or shape than its destination",
                path=path,
            )
        return ExecutionFailed(
            f"output {index} cannot be read: error {code}", path=path, cause=host.last_error()
        )

    def close(self) -> None:
        """Wait for the runs in progress and delete the container. Closing twice is fine (behaviour D3).

        In a forked child that can't use the container nothing is waited for, and its memory stays.

        Raises:
            ExecutionFailed: the plugin returned an error; the container is gone all the same.
            InvalidState: this thread is inside the container: it comes from a signal handler or a callback.
        """
        with self.weights.turn():
            if self.weights.lost:
                self._handle.abandon()
            elif not self._handle.closed:
                try:
                    self._handle.close()
                finally:
                    if self._handle.closed:
                        self.weights.release()

    def __enter__(self) -> Container:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        # Nothing is torn down at interpreter exit: threads may still run, and the system frees it all.
        if hasattr(self, "_target") and not sys.is_finalizing():
            self.close()


def writable(value: View) -> View:
    """Return memory that a plugin may write to: nothing tells whether a model writes its inputs."""
    if value.device_type or (value.aligned and not value.readonly):
        return value
    fresh = allocate(value.dtype, value.shape, value.strides)
    copy_elements(fresh, value)
    return fresh
