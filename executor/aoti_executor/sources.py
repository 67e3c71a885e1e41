"""Where a model comes from: the plugin in a file or package, and its weights."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from aoti_abi.codes import DTYPES_BY_NAME
from aoti_abi.errors import AotiError, InvalidProgram, NotSupported
from aoti_abi.lifetimes import Unique
from aoti_executor.call_spec import LEAF, CallSpec, Tree
from aoti_inspect.artifacts import open_artifact
from aoti_inspect.source import open_file
from aoti_inspect.wording import some
from aoti_loader.paths import as_path

if TYPE_CHECKING:
    from tempfile import TemporaryDirectory

    from aoti_abi.names import FQN
    from aoti_executor.container import Container
    from aoti_inspect.artifacts.artifact import Artifact, Model
    from aoti_inspect.artifacts.external_weights import ExternalWeights
    from aoti_inspect.artifacts.plugin import ArtifactPlugin
    from aoti_inspect.facts.records import PluginFacts
    from aoti_loader import Plugin as LoadedPlugin

_COPIES = "et_copy::"  # ExecuTorch's copies to and from a device: the plugin's own tensors, elsewhere


class ModelSource(Unique):
    """One model of an artifact, with everything that the executor asks about it.

    Attributes:
        artifact: the open artifact.
        entry: the plugin in it.
        call_spec: the structure of arguments and results, where the artifact and not the plugin has it.
        input_order: for each of the plugin's inputs, which of the method's it is; None for the same order.
        output_order: for each of the method's outputs, which of the plugin's it is; None for the same order.
    """

    def __init__(self, artifact: Artifact, model: Model, entry: ArtifactPlugin, weights: Any) -> None:
        self.artifact = artifact
        self.model = model
        self.entry = entry
        self._weights = weights
        self._folder: TemporaryDirectory[str] | None = None
        self.call_spec: CallSpec | None = None
        self.input_order: tuple[int, ...] | None = None
        self.output_order: tuple[int, ...] | None = None
        if entry.delegate is not None:
            self._learn_method()

    def _learn_method(self) -> None:
        """Read how a method of a program calls its delegate (inputs come first, in an order of its own)."""
        model, delegate = self.model, self.entry.delegate
        outside = [name for name in model.operators if not name.startswith(_COPIES)]
        outside += model.other_delegates
        if outside or delegate is None or len(delegate.calls) != 1:
            raise NotSupported(
                f"method {model.name!r} is not one call of one plugin: "
                f"{', '.join(outside) or f'{len(delegate.calls) if delegate else 0} calls'}",
                path=self.artifact.path,
                hint="run it with ExecuTorch, or take its plugin alone: aoti_executor.Container",
            )
        given = [argument for argument in delegate.calls[0] if argument.output is None]
        results = [argument for argument in delegate.calls[0] if argument.output is not None]
        inputs, outputs = model.inputs or (), model.outputs or ()
        order = tuple(argument.input for argument in given)
        back = {argument.output: index for index, argument in enumerate(results)}
        if None in order or sorted(back) != list(range(len(outputs))):  # type: ignore[type-var]
            raise NotSupported(
                f"method {model.name!r} does not pass all its inputs and outputs straight to its plugin",
                path=self.artifact.path,
            )
        self.input_order = tuple(index for index in order if index is not None)
        self.output_order = tuple(back[index] for index in range(len(outputs)))
        leaves = (LEAF,) * len(outputs)
        result = LEAF if len(outputs) == 1 else Tree("builtins.tuple", (), leaves)
        self.call_spec = CallSpec((LEAF,) * len(inputs), {}, result)

    def load(self, host: str, options: dict[str, Any]) -> LoadedPlugin:
        """Load the plugin into the process; see `aoti_loader.load`."""
        from aoti_loader import load

        options.setdefault("stacklevel", 4)
        return load(self.entry, host=host, **options)

    def kernels(self, facts: PluginFacts) -> str | None:
        """Return the folder of the GPU kernels that the plugin opens by name; None if it has them itself.

        Where it lies in a package, they are written to a folder that goes with `close`.
        """
        if not facts.cubin_paths:
            return None
        location = self.entry.location
        if location is not None and location.path == self.entry.name:
            return os.path.dirname(location.path)
        names = {path.rpartition("/")[2] for path in facts.cubin_paths}
        found = self.entry.read_beside(names)
        if not found:
            return None
        from tempfile import TemporaryDirectory

        self._folder = folder = TemporaryDirectory(prefix="aoti-kernels-")
        for name, data in found.items():
            with open(os.path.join(folder.name, name), "xb") as stream:
                stream.write(data)
        return folder.name

    def bind_weights(self, container: Container) -> None:
        """Give the container its weights, if it lacks them and they are to be had (behaviour W1).

        Nothing is read before it is known to be wanted. A plugin that has none to be found is left without:
        runs are refused until `Weights.update_constants` gave all of them.

        Raises:
            NotFound: the artifact names weights that are not there.
            AotiError: the weights do not fit the plugin.
        """
        given = self._weights
        if given is not None:
            if isinstance(given, (str, os.PathLike)):
                with _mapped(as_path(given, "the weights' path")) as blob:
                    container.weights.bind_blob(blob)
            elif hasattr(given, "keys"):
                container.weights.update_constants(given)
            else:
                container.weights.bind_blob(given)
            return
        weights = self.entry.weights
        if not container.weights.unbound or weights.kind == "none":
            return
        if weights.kind == "tensors":
            container.weights.update_constants(
                _tensors(weights, {c.fqn for c in container.weights.constants})
            )
        else:
            container.weights.bind_blob(weights.blob())

    def close(self) -> None:
        """Give the artifact's files back."""
        self.artifact.close()
        if self._folder is not None:
            self._folder.cleanup()


def open_source(
    path: str | os.PathLike[str],
    *,
    method: str | None = None,
    weights: Any = None,
    variant: int | None = None,
) -> ModelSource:
    """Open an artifact and choose the model in it.

    Args:
        path: a plugin, package, program or folder.
        method: the model's or method's name; None for the only one.
        weights: as in `aoti_executor.Model`.
        variant: the device's compute capability, for programs with one plugin per GPU (behaviour L11).

    Raises:
        AotiError: it can't be opened, has no such model, or needs more than one plugin.
    """
    artifact = open_artifact(_checked(path))
    try:
        _refuse_hostile(artifact)
        model = artifact.model(method)
        return ModelSource(artifact, model, model.select(variant), weights)
    except BaseException as error:
        if isinstance(error, AotiError) and error.path is None:
            error.path = artifact.path
        artifact.close()
        raise


def _checked(path: object) -> str:
    as_path(path, "the model's path")
    return os.fspath(path)  # type: ignore[call-overload, no-any-return] # errors name it as it was given


#: What no exporter writes, by kind of `aoti_inspect.artifacts.package_fact.PackageFact`.
_HOSTILE = {
    "refused-names": "members have unsafe names or are links",
    "shared-bytes": "members share bytes with others",
}


def _refuse_hostile(artifact: Artifact) -> None:
    """Raise for a package that was made to mislead: inspection reads it, nothing is run out of it."""
    for fact in artifact.facts:
        what = _HOSTILE.get(fact.kind)
        if what:
            raise InvalidProgram(
                f"nothing is loaded from this package, as {what}: {some(fact.names)}",
                path=artifact.path,
                hint="find out who made it; `aoti-inspect` shows what is in it without loading it",
            )


def _tensors(weights: ExternalWeights, wanted: set[FQN]) -> dict[str, Any]:
    """Return the stored tensors that the plugin has, as views of the mapped file."""
    from aoti_executor.arrays import view
    from aoti_executor.views import View

    result: dict[str, Any] = {}
    for tensor in weights.tensors():
        if tensor.fqn not in wanted:
            continue
        dtype = DTYPES_BY_NAME.get(tensor.dtype)
        if dtype is None:
            raise NotSupported(f"weight {tensor.fqn!r} has the type {tensor.dtype!r}")
        data = weights.storage(tensor)
        memory = view(data.cast("B"), f"weight {tensor.fqn!r}")
        whole = View(
            memory.data + tensor.offset * dtype.itemsize,
            dtype.code,
            tensor.sizes,
            tensor.strides,
            0,
            0,
            readonly=True,
            owner=data,
        )
        if (
            tensor.offset < 0
            or any(stride < 0 for stride in tensor.strides)
            or (whole.span and tensor.offset * dtype.itemsize + whole.span > data.nbytes)
        ):
            raise InvalidProgram(f"weight {tensor.fqn!r} reaches past the {data.nbytes} bytes of its storage")
        result[tensor.fqn] = whole
    return result


def _mapped(path: str) -> memoryview:
    with open_file(path) as source:
        return source.view()
