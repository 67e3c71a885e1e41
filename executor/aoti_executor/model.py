"""A compiled model as a Python callable."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aoti_abi.codes import parse_device
from aoti_abi.errors import AotiError, ExecutionFailed, InvalidArgument
from aoti_abi.lifetimes import Unique
from aoti_executor.arrays import is_tensor, view
from aoti_executor.call_spec import CallSpec, flatten, parse_call_spec, unflatten
from aoti_executor.container import Container
from aoti_executor.input_specs import ask_plugin_to_check, check_input, specs_of
from aoti_executor.views import TYPESTR, View
from aoti_inspect.facts.predicates import compiled_for
from aoti_inspect.wording import counted

if TYPE_CHECKING:
    import os
    from collections.abc import Sequence

    from aoti_executor.bound_call import BoundCall
    from aoti_executor.calls import Plan
    from aoti_executor.tensor import Tensor
    from aoti_executor.weights import Weights
    from aoti_inspect.facts.inputs import InputSpec

_FAST_PLANS = 64
_REJECTED = "input_handles["


class Model(Unique):
    """A model, loaded and ready to call.

    ``model(x)`` takes what the Python module took: positional and keyword arguments, nested in tuples, lists
    and dicts as they were at export. Arrays are anything with ``__array_interface__``, DLPack or the buffer
    protocol, and are not copied (read-only memory is: nothing tells whether a model writes to its inputs).
    For a model on a GPU, arrays in host memory are copied to the GPU; results stay there (`Tensor.to`).
    Results are `Tensor` objects in the structure of the module's result.

    Args:
        path: a plugin (``.so``), a package (``.pt2``), an ExecuTorch program (``.pte``) or a folder.
        method: which model of a package or method of a program; None for the only one.
        host: "auto", "builtin", "torch" or "process"; see `aoti_loader.load`.
        device: as "cpu" or "cuda:0"; None for what the model was compiled for.
        num_runners: how many runs may overlap when threads share the model (behaviour E7).
        weights: a blob for a plugin whose weights are apart: a path, or bytes. None looks beside it.
        check_inputs: check inputs against everything that is known of them. Off, a wrong dtype, shape or
            stride gives wrong numbers, or worse.
        kernels: folder of GPU kernels that are not inside the plugin; None for those of its package.
        threads: the largest OpenMP team; None for what is known to be safe (`aoti_executor.openmp`). A number
            above what the plugin was compiled with makes it write out of bounds.
        **load: further options of `aoti_loader.load`.

    Raises:
        AotiError: one of its kinds, with the reason and what to do next.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        method: str | None = None,
        host: str = "auto",
        device: str | None = None,
        num_runners: int = 1,
        weights: Any = None,
        check_inputs: bool = True,
        threads: int | None = None,
        kernels: str | os.PathLike[str] | None = None,
        **load: Any,
    ) -> None:
        from aoti_executor.sources import open_source
        from aoti_loader.paths import as_path

        self.check_inputs = check_inputs
        folder = None if kernels is None else as_path(kernels, "the folder of kernels")
        opened: list[Any] = []
        try:
            self.source = source = open_source(path, method=method, weights=weights)
            opened.append(source)
            self.plugin = plugin = source.load(host, load)
            opened.append(plugin)
            self.container = Container(
                plugin,
                num_models=num_runners,
                device=self._choose_device(device),
                kernels=folder or source.kernels(plugin.facts),
                threads=threads,
            )
            opened.append(self.container)
            source.bind_weights(self.container)
            self._learn()
        except BaseException:
            for item in reversed(opened):
                item.close()
            raise

    def _choose_device(self, device: str | None) -> str:
        made_for = compiled_for(self.plugin.facts)
        if device is None:
            return made_for
        if isinstance(device, str) and made_for == "cpu" and parse_device(device)[0]:
            raise InvalidArgument(
                f"the model was compiled for the CPU, so it can't run on {device!r}",
                path=self.plugin.path,
                hint="leave device= out, or export the model on that device",
            )
        return device

    def _learn(self) -> None:
        container = self.container
        self.spec: CallSpec | None = self.source.call_spec or parse_call_spec(*container.call_spec())
        self.inputs: tuple[InputSpec, ...] = specs_of(self.plugin.facts, container.num_inputs)
        # A plugin's own checks see every run, so they are only asked for where ours know less than they do:
        # the source has the very same ones, a program only upper bounds.
        known = self.source.entry.delegate is None and all(spec.sizes is not None for spec in self.inputs)
        self.plugin_checks = self.check_inputs and not known and ask_plugin_to_check()
        spec = self.spec
        # The common case needs no walk through the arguments' structure.
        self._flat_arguments = spec is None or (
            not spec.kwargs and all(tree.kind is None for tree in spec.args)
        )
        self._single = spec is not None and spec.result.kind is None and container.num_outputs == 1
        self._order, self._back = self.source.input_order, self.source.output_order
        self._on_host = container.on_host
        self._plans: dict[tuple[Any, ...], Plan] = {}

    # ---- calling ----

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the model.

        Raises:
            InvalidArgument: the arguments have another structure, number, dtype, shape, stride or device than
                the model takes.
            InvalidState: the model is closed, or its weights are not there.
            ExecutionFailed: the plugin or the host returned an error; ``cause`` has their words.
        """
        if self._flat_arguments and not kwargs:
            results = self._run(args)
        else:
            results = self._run_structured(args, kwargs)
        if self._single:
            return results[0]
        results = self._ordered(results)
        return results if self.spec is None else unflatten(self.spec.result, results)

    def run(self, inputs: Sequence[Any]) -> list[Tensor | None]:
        """Run on the flat list of tensors that the arguments hold; return the flat list of outputs."""
        return self._ordered(self._run(inputs))

    def _ordered(self, results: list[Any]) -> list[Any]:
        return results if self._back is None else [results[index] for index in self._back]

    def _run(self, inputs: Sequence[Any]) -> list[Tensor | None]:
        order = self._order
        if order is not None and len(inputs) == len(order):
            inputs = [inputs[index] for index in order]
        if not self._on_host:
            return self._run_views(inputs)
        key: list[Any] = []
        addresses = []
        owners = []  # the interface too: some make their memory for it alone
        known: tuple[Any, ...] | None = None
        try:
            for value in inputs:
                interface: Any = value.__array_interface__
                data = interface["data"]
                # 0-d ones may be numpy's scalars, which have no memory to point to.
                if type(data) is not tuple or data[1] or data[0] & 7 or not interface["shape"]:
                    break
                owners.append((value, interface))
                addresses.append(data[0])
                key += (interface["typestr"], interface["shape"], interface.get("strides"))
            else:
                known = tuple(key)
                plan = self._plans.get(known)
        except (AttributeError, LookupError, TypeError):
            known = None  # no such interface, or a malformed one
        if known is None:
            return self._run_views(inputs)
        if plan is None:
            return self._run_views(inputs, known)
        try:
            return self.container.run_plan(plan, addresses, owners)
        except ExecutionFailed as error:
            raise self._explain(error) from None

    def _run_views(self, inputs: Sequence[Any], key: tuple[Any, ...] | None = None) -> list[Tensor | None]:
        views = [self.container.place(value) for value in self._views(inputs)]
        plan = self.container.plan(views)
        # Only types that the key names without doubt: ml_dtypes' share one type string.
        if key is not None and all(typestr in TYPESTR for typestr in key[::3]):
            if len(self._plans) >= _FAST_PLANS:
                self._plans.clear()
            self._plans[key] = plan
        try:
            return self.container.run_plan(plan, [value.data for value in views], views)
        except ExecutionFailed as error:
            raise self._explain(error) from None

    def _views(self, inputs: Sequence[Any], names: Sequence[str] | None = None) -> list[View]:
        """Return the inputs' memory, checked."""
        container = self.container
        container.weights.check_open()
        if len(inputs) != container.num_inputs and not all(map(is_tensor, inputs)):
            # As PyTorch does: what is no tensor was made part of the code at export.
            inputs = [value for value in inputs if is_tensor(value)]
        container.check_count(len(inputs))
        views = []
        for index, value in enumerate(inputs):
            what = container.describe_input(index)
            if names is not None:
                what = f"{names[index]}, {what}"
            memory = view(value, what)
            if self.check_inputs:
                check_input(self.inputs[index], memory, what)
            views.append(memory)
        return views

    def _run_structured(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Tensor | None]:
        return self._run([value for _, value in self._leaves(args, kwargs)])

    def _leaves(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[tuple[str, Any]]:
        if self.spec is None:
            if kwargs:
                raise InvalidArgument(
                    "the plugin does not tell the names of its arguments", hint="pass them by position"
                )
            return [(f"argument {index}", value) for index, value in enumerate(args)]
        leaves = flatten(self.spec, args, kwargs)
        tensors = [(path, value) for path, value in leaves if is_tensor(value)]
        if len(tensors) != self.container.num_inputs:
            others = [f"{path} ({type(value).__name__})" for path, value in leaves if not is_tensor(value)]
            hint = f"no tensors: {', '.join(others[:5])}; pass numbers as arrays" if others else None
            raise InvalidArgument(
                f"the model takes {self.container.num_inputs} tensors, {len(tensors)} were given",
                path=self.plugin.path,
                hint=hint,
            )
        return tensors

    def _explain(self, error: ExecutionFailed) -> AotiError:
        """Tell a rejected input apart from a failure: the plugin's own check says which it was."""
        cause = error.cause or ""
        start = cause.find(_REJECTED)
        index_text = cause[start + len(_REJECTED) :].partition("]")[0]
        if start < 0 or not index_text.isdecimal() or int(index_text) >= self.container.num_inputs:
            return error
        what = self.container.describe_input(int(index_text))
        reason = cause[start:].partition("]: ")[2].partition(";")[0].strip()
        hint = None
        if "too small" in reason and ">= 2," in reason:
            hint = (
                "Inductor writes 2 for any smaller bound: if the model was exported for this size, load it "
                "from its package, or with check_inputs=False"
            )
        return InvalidArgument(f"{what} does not fit: {reason}", path=error.path, hint=hint)

    def bind(self, inputs: Sequence[Any], outputs: Sequence[Any] | None = None) -> BoundCall:
        """Fix inputs and outputs for calls that allocate nothing.

        Args:
            inputs: the flat list of input tensors, writable and in host memory; change them in place.
            outputs: where each output of the plugin goes, None to drop one. None as a whole: the model runs
                once, and new memory of the shapes that came back is used.

        Raises:
            InvalidArgument: an input or destination does not fit, or can't be written.
        """
        from aoti_executor.bound_call import BoundCall, allocate_like

        given = [inputs[index] for index in self._order] if self._order is not None else inputs
        views = self._views(given)
        for index, value in enumerate(views):
            if value.readonly:
                raise InvalidArgument(
                    f"{self.container.describe_input(index)} is read-only, so it can't be bound"
                )
        if outputs is None:
            destinations = allocate_like(self.container.run(given))
            outputs = [None if v is None else self.container.tensor_over(v) for v in destinations]
        else:
            if len(outputs) != self.container.num_outputs:
                raise InvalidArgument(
                    f"the model gives {counted(self.container.num_outputs, 'output')}, {len(outputs)} "
                    "destinations were given",
                    path=self.plugin.path,
                )
            destinations = [
                None if value is None else view(value, f"the destination of output {index}")
                for index, value in enumerate(outputs)
            ]
        result: Any = self._ordered(list(outputs))
        if self._single:
            result = outputs[0]
        elif self.spec is not None and self.spec.result.leaves == len(outputs):
            result = unflatten(self.spec.result, result)
        return BoundCall(self.container, views, destinations, outputs, result)

    def plugin_index(self, index: int) -> int:
        """Return which of the plugin's inputs the given input of `run` is."""
        return index if self._order is None else self._order.index(index)

    def argument_names(self) -> list[tuple[str, ...]]:
        """Return the names of each input of `run`: the keyword argument's, the plugin's, "in0", "0"."""
        leaves: list[str] = []
        if self.spec is not None:
            leaves = [""] * sum(tree.leaves for tree in self.spec.args)
            for name, tree in self.spec.kwargs.items():
                leaves += [name] if tree.kind is None else [f"{name}.{i}" for i in range(tree.leaves)]
            if len(leaves) != self.container.num_inputs:
                leaves = []  # some leaves are no tensors, and which ones only the exporter knew
        names = []
        for index in range(self.container.num_inputs):
            own = self.container.input_names[self.plugin_index(index)]
            first = (leaves[index],) if leaves and leaves[index] else ()
            names.append((*first, own, f"in{index}", str(index)))
        return names

    def upload(self, value: Any) -> Tensor:
        """Return a copy of an array on the model's device; see `Container.upload`.

        Host arrays that are passed to a model on a GPU are copied there for each call; copied once with this,
        they are not.
        """
        return self.container.upload(value)

    @property
    def weights(self) -> Weights:
        """The constants: what they are, their values, the two sets and the swap between them."""
        return self.container.weights

    # ---- the end ----

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self.container.closed

    def close(self) -> None:
        """Delete the container and unload the plugin where that is safe. Closing twice is fine.

        Runs in progress end first. Tensors that the model returned stay valid.
        """
        try:
            self.container.close()
        finally:
            self.plugin.close()
            self.source.close()

    def __enter__(self) -> Model:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        state = "closed" if self.closed else f"{self.container.num_inputs} inputs"
        return f"<Model {self.plugin.path}: {state}>"
