"""A plugin as a file, with what Inductor wrote beside it.

``aot_compile`` returns ``<stem>.so`` and leaves ``<stem>_metadata.json``, for plugins with external weights
``<stem>_weights.blob``, and for operators without a C shim ``<stem>.json`` in the same folder.
"""

from __future__ import annotations

import os
from functools import partial

from aoti_abi.errors import AotiError
from aoti_abi.records import TYPE_CHECKING
from aoti_inspect.artifacts.artifact import Artifact, Model, Plugin
from aoti_inspect.artifacts.extern_nodes import parse_extern_nodes, string_map
from aoti_inspect.artifacts.mapped import MappedFile
from aoti_inspect.artifacts.weights import Location, Weights

if TYPE_CHECKING:
    from aoti_inspect.artifacts.mapped import Source

_MAX_JSON = 8 << 20


def read_plain_plugin(source: Source) -> Artifact:
    """Read a plugin's sidecar files, if there are any; the plugin itself is not looked at.

    A plugin in memory has nothing beside it, whatever it is called.
    """
    path = source.name
    stem = os.path.splitext(path)[0]
    model = os.path.basename(stem) or path
    on_disk = source.place is not None
    nodes = _sidecar(f"{stem}.json") if on_disk else None
    operators: tuple[str, ...] = ()
    objects: tuple[str, ...] = ()
    if nodes is not None:
        listed = _operators(nodes)
        if listed is None:
            nodes = None
        else:
            operators, objects = listed
    weights = _weights(stem) if on_disk else Weights("none")
    view = source.view
    plugin = Plugin(
        path,
        model,
        len(view),
        lambda: view[:],
        metadata=lambda: _metadata(stem) if on_disk else None,
        weights=weights,
        location=source.place,
        extern_nodes=nodes,
    )
    return Artifact(
        path,
        "plugin",
        {model: Model(model, (plugin,), proxy_operators=operators, custom_objects=objects)},
        companions=tuple(filter(None, (weights.origin,))),
        sources=(source,),
    )


def _sidecar(path: str) -> str | None:
    return path if os.path.isfile(path) else None


def _operators(path: str) -> tuple[tuple[str, ...], tuple[str, ...]] | None:
    """Return what a JSON of the plugin's name lists; None if it is some other JSON."""
    try:
        listed = parse_extern_nodes(_read_small(path), path)
    except AotiError:
        return None
    return listed.operators, listed.custom_objects


def _metadata(stem: str) -> dict[str, str] | None:
    path = _sidecar(f"{stem}_metadata.json")
    return None if path is None else string_map(_read_small(path), path)


def _read_small(path: str) -> memoryview:
    file = MappedFile(path)
    try:
        return memoryview(bytes(file.view[:_MAX_JSON]))
    finally:
        file.close()


def _map(path: str) -> memoryview:
    return MappedFile(path).view


def _weights(stem: str) -> Weights:
    for path in (f"{stem}_weights.blob", f"{stem}.blob"):
        if os.path.isfile(path):
            size = os.path.getsize(path)
            return Weights(
                "blob",
                path,
                size=size,
                automatic=False,
                location=Location(path, 0, size),
                blob=partial(_map, path),
            )
    return Weights("none")
