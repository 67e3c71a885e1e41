"""A plugin as a file of its own, ``STEM.so``, with what Inductor wrote beside it."""

from __future__ import annotations

import os

from aoti_abi.records import TYPE_CHECKING
from aoti_inspect.artifacts.artifact import Artifact, Model
from aoti_inspect.artifacts.plugin import ArtifactPlugin
from aoti_inspect.artifacts.sidecars import Beside, FilesOnDisk, find_sidecars, find_weights
from aoti_inspect.source import open_file

if TYPE_CHECKING:
    from aoti_inspect.artifacts.external_weights import Content
    from aoti_inspect.source import Location, Source


class _WholeFile:
    """All bytes of an open file; see `external_weights.Content`."""

    def __init__(self, source: Source) -> None:
        self.name = source.name
        self.size = source.size
        self._source = source

    @property
    def location(self) -> Location | None:
        return self._source.location

    def open(self) -> Source:
        return self._source.part(0, self.size, self.name)

    def view(self) -> memoryview:
        return self._source.view()


def read_so_file(source: Source, beside: Beside) -> Artifact:
    """Look for a plugin's sidecar files; the plugin itself is not looked at."""
    name = source.name
    model = os.path.basename(os.path.splitext(name)[0]) or name
    made = model_of(_WholeFile(source), model, beside)
    companion = made.plugins[0].weights.origin
    return Artifact(
        name, "plugin", {model: made}, companions=(companion,) if companion else (), opened=(source,)
    )


def model_of(content: Content, model: str, beside: Beside) -> Model:
    """Return the model that a library by itself is, with what lies beside it.

    Args:
        content: the library.
        model: what to call the model.
        beside: where it lies.
    """
    sidecars = find_sidecars(beside.neighbours, beside.name)
    plugin = ArtifactPlugin(
        content.name,
        model,
        content,
        sidecars=sidecars,
        weights=find_weights(beside.neighbours, beside.name),
    )
    calls = sidecars.calls
    return Model(
        model,
        (plugin,),
        proxy_operators=calls.operators if calls else (),
        custom_objects=calls.custom_objects if calls else (),
    )


def open_so_file(path: str) -> Artifact:
    """Open a file that must be a plugin, whatever it begins with; who reads it finds out what it is instead.

    Raises:
        AotiError: as `aoti_inspect.source.open_file`.
    """
    source = open_file(path)
    try:
        return read_so_file(source, Beside(FilesOnDisk(), path))
    except BaseException:
        source.close()
        raise
