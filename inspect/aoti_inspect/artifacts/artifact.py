"""The interface that every kind of artifact has: models, their plugins, and where their weights are.

Nothing here reads ahead: a model's plugin, metadata and weights are looked at when they are asked for, as
parts of the mapped file wherever the format allows it.
"""

from __future__ import annotations

from aoti_abi.errors import InvalidArgument, NotFound, NotSupported
from aoti_abi.records import TYPE_CHECKING, NamedTuple
from aoti_inspect.artifacts.weights import Weights, unless_closed

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType
    from typing import Literal

    from typing_extensions import Self

    from aoti_abi.errors import AotiError
    from aoti_abi.payload import Payload, Variant
    from aoti_inspect.artifacts.anomaly import Anomaly
    from aoti_inspect.artifacts.mapped import Source
    from aoti_inspect.artifacts.weights import Location
    from aoti_inspect.facts.inputs import InputSpec

    Kind = Literal["plugin", "pt2", "exported program", "pte", "ptd", "zip", "folder"]


class Value(NamedTuple):
    """One input or output of a method.

    Attributes:
        kind: "tensor", or another type of value ("int", "bool", ...).
        dtype: PyTorch's name of the element type; None for other kinds.
        sizes: the shape; for a dynamic one its upper bound.
        dim_order: the dimensions from the outermost in memory to the innermost.
        dynamism: "static", "bound" (at most ``sizes``) or "unbound".
        device: "cpu" or "cuda:0".
    """

    kind: str
    dtype: str | None = None
    sizes: tuple[int, ...] = ()
    dim_order: tuple[int, ...] = ()
    dynamism: str = "static"
    device: str = "cpu"


class Argument(NamedTuple):
    """One argument of a delegate's call; the inputs come first, then the outputs.

    Attributes:
        value: its index in the method's table of values.
        input: the method's input that it is, directly or through a copy to the device; None if it is none.
        output: the method's output that it becomes; None if it is none.
    """

    value: int
    input: int | None
    output: int | None


class Delegate(NamedTuple):
    """How a ``.pte`` method calls a plugin.

    Attributes:
        number: its place among the method's delegates.
        id: the backend's name ("CudaBackend").
        compile_specs: its options, in order.
        payload: decoded; None for a delegate that is not AOTInductor's.
        calls: the arguments of each call to it, in the order of execution; usually one call.
        inputs: what the method says of the plugin's inputs; empty where it can't be told.
    """

    number: int
    id: str
    compile_specs: tuple[tuple[str, bytes], ...]
    payload: Payload | None
    calls: tuple[tuple[Argument, ...], ...]
    inputs: tuple[InputSpec, ...] = ()


class Plugin:
    """One plugin in an artifact.

    Attributes:
        name: what reports call it: a path, or ``package!member``.
        model: the model or method that it belongs to.
        size: bytes, as declared.
        weights: what comes with it.
        delegate: how a ``.pte`` method calls it; None elsewhere.
        variant: which GPU it is for, if it comes from a ``.pte``; None elsewhere.
        location: where its bytes lie in a file as they are; None if they are compressed, or in memory only.
        extern_nodes: name of the JSON with the operators that it calls through its host; None without one.
        beside: names of the files of its model in the package, itself included; None outside of packages.
    """

    def __init__(
        self,
        name: str,
        model: str,
        size: int,
        read: Callable[[], memoryview],
        *,
        metadata: Callable[[], dict[str, str] | None] = lambda: None,
        weights: Weights | None = None,
        delegate: Delegate | None = None,
        variant: Variant | None = None,
        location: Location | None = None,
        extern_nodes: str | None = None,
        beside: frozenset[str] | None = None,
        sources: Callable[[], tuple[memoryview, ...]] = tuple,
    ) -> None:
        self.name = name
        self.model = model
        self.size = size
        self.weights = weights or Weights("none")
        self.delegate = delegate
        self.variant = variant
        self.location = location
        self.extern_nodes = extern_nodes
        self.beside = beside
        self._read = read
        self._metadata = metadata
        self._sources = sources

    def read(self) -> memoryview:
        """Return the plugin's bytes: a part of the mapped file, or a private copy if they are compressed.

        Raises:
            InvalidProgram: they are damaged.
            NotSupported: they can't be had (encrypted, another compression, too large).
        """
        return unless_closed(self._read)

    def metadata(self) -> dict[str, str] | None:
        """Return what Inductor noted about its machine (``AOTI_DEVICE_KEY``, ...), if that is there.

        Raises:
            InvalidProgram: it is there and damaged.
        """
        return unless_closed(self._metadata)

    def sources(self) -> tuple[memoryview, ...]:
        """Return the C++ sources that Inductor packed beside it: of the wrapper, and of its kernels.

        Raises:
            AotiError: as `read`.
        """
        return unless_closed(self._sources)


class Model(NamedTuple):
    """One model of a package, or one method of a program.

    Attributes:
        name: "model", "forward", ...; for a plain plugin its file's stem.
        plugins: usually one; a method has one per delegate and GPU variant.
        inputs, outputs: of a ``.pte`` method; None where only the plugin itself knows.
        operators: instructions that no delegate runs, by operator ("aten::add.out"), in order, without
            repeats.
        other_delegates: backends of this method that are not AOTInductor's, by id.
        custom_objects: names of serialised custom objects that it needs.
        proxy_operators: operators that its plugin calls through the host's dispatcher
            ("mylib::scale.default").
        problems: why a plugin that it should have can't be had.
    """

    name: str
    plugins: tuple[Plugin, ...]
    inputs: tuple[Value, ...] | None = None
    outputs: tuple[Value, ...] | None = None
    operators: tuple[str, ...] = ()
    other_delegates: tuple[str, ...] = ()
    custom_objects: tuple[str, ...] = ()
    proxy_operators: tuple[str, ...] = ()
    problems: tuple[AotiError, ...] = ()

    @property
    def plugin(self) -> Plugin:
        """The model's only plugin.

        Raises:
            NotFound: it has none.
            NotSupported: it has several, so that one must be chosen.
        """
        return self.select(None)

    def select(self, device_sm: int | None) -> Plugin:
        """Return the model's plugin for a GPU (behaviour L11).

        Args:
            device_sm: its compute capability as an integer (90); None without one, which is enough unless the
                plugin comes in variants.

        Raises:
            NotFound: it has no plugin.
            NotSupported: none of its variants fits, or several delegates have a plugin each.
            InvalidProgram: its plugin can't be had, as `problems` says.
        """
        if self.problems:
            raise self.problems[0]
        if not self.plugins:
            others = (
                f"; its work is done by {', '.join(self.other_delegates)}" if self.other_delegates else ""
            )
            raise NotFound(
                f"{self.name!r} has no AOTInductor plugin{others}",
                hint="pass what was lowered with AOTInductor; aoti-inspect says what a file holds",
            )
        delegates = {plugin.delegate.number for plugin in self.plugins if plugin.delegate is not None}
        if len(self.plugins) == 1 and self.plugins[0].variant is None:
            return self.plugins[0]
        if len(delegates) != 1:
            raise NotSupported(
                f"{self.name!r} has {len(self.plugins)} plugins, so one must be named: "
                f"{', '.join(plugin.name for plugin in self.plugins)}"
            )
        from aoti_abi.payload import select_variant

        variants = tuple(plugin.variant for plugin in self.plugins if plugin.variant is not None)
        chosen, _ = select_variant(variants, device_sm)
        return next(plugin for plugin in self.plugins if plugin.variant == chosen)


class NamedBlob(NamedTuple):
    """One piece of named data of a ``.pte`` or ``.ptd``.

    Attributes:
        key: its name; untrusted, never a file name.
        origin: what the ``.pte`` or ``.ptd`` that holds it is called.
        offset, size: bytes in that file.
        whole: the whole file, mapped or in memory.
        layout: dtype and shape, for what is stored as a tensor; None for plain bytes.
    """

    key: str
    origin: str
    offset: int
    size: int
    whole: memoryview
    layout: Value | None = None

    @property
    def view(self) -> memoryview:
        """Its bytes, as a part of the mapped file.

        Raises:
            InvalidState: the artifact was closed.
        """
        return unless_closed(lambda: self.whole[self.offset : self.offset + self.size])


class Artifact:
    """Something that holds plugins; a context manager. Views that were handed out stay valid after `close`.

    Attributes:
        path: as it was given.
        kind: what it is, by its content.
        models: by name, in the artifact's order.
        anomalies: what is wrong with it but does not keep it from being read.
        summary: ``(label, text)`` facts about the package as a whole, for reports.
        companions: other files that were read with it (``.ptd``, ``.blob``).
        named_data: the named data of a ``.pte`` and its ``.ptd`` files, by key; empty elsewhere.
    """

    def __init__(
        self,
        path: str,
        kind: Kind,
        models: dict[str, Model],
        *,
        anomalies: tuple[Anomaly, ...] = (),
        summary: tuple[tuple[str, str], ...] = (),
        companions: tuple[str, ...] = (),
        named_data: dict[str, NamedBlob] | None = None,
        sources: tuple[Source, ...] = (),
    ) -> None:
        self.path = path
        self.kind: Kind = kind
        self.models = models
        self.anomalies = anomalies
        self.summary = summary
        self.companions = companions
        self.named_data = named_data or {}
        self._sources = sources

    @property
    def plugins(self) -> tuple[Plugin, ...]:
        """All plugins of all models, each once even if several models share its bytes."""
        return tuple(plugin for model in self.models.values() for plugin in model.plugins)

    def model(self, name: str | None = None) -> Model:
        """Return a model or method by name, or the only one.

        Raises:
            NotFound: there is none of that name; the message lists those there are.
            InvalidArgument: no name was given and there are several.
        """
        return choose(self.models, name, self.path, "method" if self.kind == "pte" else "model")

    def close(self) -> None:
        """Give the files back. May be called twice."""
        for source in self._sources:
            source.close()
        self._sources = ()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def choose(models: dict[str, Model], name: str | None, path: str, noun: str) -> Model:
    """Return the model of that name; without one the only one, or "forward" or "model" of several."""
    listed = ", ".join(models) or "none"
    if name is not None:
        if name in models:
            return models[name]
        raise NotFound(f"there is no {noun} {name!r}; it has: {listed}", path=path)
    for candidate in models if len(models) == 1 else ("forward", "model"):
        if candidate in models:
            return models[candidate]
    if not models:
        hint = "pass what was compiled with AOTInductor; aoti-inspect says what a file holds"
        raise NotFound(f"it holds no {noun}", path=path, hint=hint)
    raise InvalidArgument(f"it holds {len(models)} {noun}s, so one must be named: {listed}", path=path)
