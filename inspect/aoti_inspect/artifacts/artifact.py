"""The interface that every kind of artifact has: models, their plugins, and where their weights are.

Nothing here reads ahead: a model's plugin, metadata and weights are looked at when they are asked for, as
parts of the mapped file wherever the format allows it.
"""

from __future__ import annotations

from aoti_abi.errors import InvalidArgument, NotFound, NotSupported
from aoti_abi.records import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Literal, Protocol

    from typing_extensions import Self

    from aoti_abi.errors import AotiError
    from aoti_inspect.artifacts.package_fact import PackageFact
    from aoti_inspect.artifacts.plugin import ArtifactPlugin
    from aoti_inspect.artifacts.program import NamedBlob, Value
    from aoti_inspect.budget import Budget

    class Closable(Protocol):
        """What an artifact holds open."""

        def close(self) -> None:
            """Give it back."""

    Kind = Literal["plugin", "pt2", "exported program", "pte", "ptd", "zip", "folder"]


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
    plugins: tuple[ArtifactPlugin, ...]
    inputs: tuple[Value, ...] | None = None
    outputs: tuple[Value, ...] | None = None
    operators: tuple[str, ...] = ()
    other_delegates: tuple[str, ...] = ()
    custom_objects: tuple[str, ...] = ()
    proxy_operators: tuple[str, ...] = ()
    problems: tuple[AotiError, ...] = ()

    @property
    def plugin(self) -> ArtifactPlugin:
        """The model's only plugin.

        Raises:
            NotFound: it has none.
            NotSupported: it has several, so that one must be chosen.
        """
        return self.select(None)

    def select(self, device_sm: int | None) -> ArtifactPlugin:
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
        if not delegates:
            raise NotSupported(
                f"{self.name!r} has {len(self.plugins)} libraries, and loaders differ in which they take: "
                f"{', '.join(plugin.name for plugin in self.plugins)}",
                hint="pack each model under a name of its own",
            )
        if len(delegates) != 1:
            raise NotSupported(
                f"{self.name!r} has {len(self.plugins)} plugins, so one must be named: "
                f"{', '.join(plugin.name for plugin in self.plugins)}"
            )
        from aoti_abi.payload import select_variant

        variants = tuple(plugin.variant for plugin in self.plugins if plugin.variant is not None)
        chosen, _ = select_variant(variants, device_sm)
        return next(plugin for plugin in self.plugins if plugin.variant == chosen)


class Artifact:
    """Something that holds plugins; a context manager. Views that were handed out stay valid after `close`.

    Attributes:
        path: as it was given.
        kind: what it is, by its content.
        models: by name, in the artifact's order.
        facts: what was noted about it as a whole; rules decide what it means.
        summary: ``(label, text)`` facts about the package as a whole, for reports.
        companions: other files that were read with it (``.ptd``, ``.blob``).
        named_data: the named data of a ``.pte`` and its ``.ptd`` files, by key; empty elsewhere.
        budget: what its audit may still cost; None for who reads it whatever it costs.
    """

    budget: Budget | None = None

    def __init__(
        self,
        path: str,
        kind: Kind,
        models: dict[str, Model],
        *,
        facts: tuple[PackageFact, ...] = (),
        summary: tuple[tuple[str, str], ...] = (),
        companions: tuple[str, ...] = (),
        named_data: dict[str, NamedBlob] | None = None,
        opened: tuple[Closable, ...] = (),
    ) -> None:
        self.path = path
        self.kind: Kind = kind
        self.models = models
        self.facts = facts
        self.summary = summary
        self.companions = companions
        self.named_data = named_data or {}
        self._opened = opened

    @property
    def plugins(self) -> tuple[ArtifactPlugin, ...]:
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
        for item in self._opened:
            item.close()
        self._opened = ()

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
