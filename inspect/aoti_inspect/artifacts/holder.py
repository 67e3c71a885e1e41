"""A folder, a wheel or any zip archive that happens to hold plugins, packages or programs."""

from __future__ import annotations

import os

from aoti_abi.errors import AotiError
from aoti_abi.records import TYPE_CHECKING
from aoti_inspect.artifacts.anomaly import Anomaly
from aoti_inspect.artifacts.artifact import Artifact, Model, Plugin
from aoti_inspect.artifacts.extern_nodes import MAX_METADATA, string_map
from aoti_inspect.artifacts.mapped import MemorySource
from aoti_inspect.artifacts.tree import ZipTree
from aoti_inspect.artifacts.weights import Weights
from aoti_inspect.file_kind import HEAD, describe
from aoti_inspect.wording import counted

if TYPE_CHECKING:
    from aoti_inspect.artifacts.mapped import Source
    from aoti_inspect.artifacts.tree import Tree

#: What a plugin's dynamic string table contains, and hardly anything else does.
_MARK = b"AOTInductorModelContainer"
_WINDOW = 1 << 20
_SEARCHED = 64 << 20


def read_holder(tree: Tree, sources: tuple[Source, ...], *, folder: bool) -> Artifact:
    """Find the plugins among a tree's members, and those inside its ``.pt2`` and ``.pte`` members.

    A library counts as a plugin if it names the container API; if none does, all libraries are listed, so
    that reports can say what they lack.
    """
    anomalies = list(tree.anomalies)
    names = tree.names()
    libraries = [name for name in names if _is_library(name) and _is_elf(tree, name, anomalies)]
    plugins = [name for name in libraries if _mentions_container(tree, name, anomalies)]
    models: dict[str, Model] = {}
    for name in plugins or libraries:
        models[name] = Model(name, (_plugin(tree, name, names),))
    nested = [name for name in names if name.endswith((".pt2", ".pte"))]
    opened: list[Source] = []
    for name in nested:
        models.update(_nested(tree, name, opened, anomalies))
    if not plugins and not nested:
        what = (
            f"no AOTInductor plugin, only {counted(len(libraries), 'other library', 'other libraries')}"
            if libraries
            else "no library at all"
        )
        anomalies.append(Anomaly("no-plugin", f"it holds {what}", tuple(libraries)))
    summary = [("members", str(len(names))), ("plugins", str(len(plugins)))]
    if nested:
        summary.append(("packages", ", ".join(nested)))
    return Artifact(
        tree.name,
        "folder" if folder else "zip",
        models,
        anomalies=tuple(anomalies),
        summary=tuple(summary),
        sources=(*opened, *sources),
    )


def _is_library(name: str) -> bool:
    base = name.rpartition("/")[2].lower()
    return base.endswith(".so") or ".so." in base


def _is_elf(tree: Tree, name: str, anomalies: list[Anomaly]) -> bool:
    """Whether a member is an ELF file; what is called a library and is none is told, not passed over."""
    try:
        kind = describe(next(tree.pieces(name, HEAD), b""), tree.size(name))
    except AotiError as error:
        anomalies.append(Anomaly("unreadable-member", f"{name!r} can't be read: {error.message}", (name,)))
        return False
    if kind.kind != "elf":
        anomalies.append(Anomaly("not-elf", f"{name!r} is no library, but {kind.what}", (name,)))
    return kind.kind == "elf"


def _mentions_container(tree: Tree, name: str, anomalies: list[Anomaly]) -> bool:
    """Whether the first of a member's bytes name the container API, without inflating all of it at once."""
    end = b""
    try:
        for number, piece in enumerate(tree.pieces(name, _WINDOW)):
            text = end + bytes(piece)
            if _MARK in text:
                return True
            if number * _WINDOW > _SEARCHED:
                break
            end = text[1 - len(_MARK) :]
    except AotiError as error:
        anomalies.append(Anomaly("unreadable-member", f"{name!r} can't be read: {error.message}", (name,)))
    return False


def _plugin(tree: Tree, name: str, names: list[str]) -> Plugin:
    stem = os.path.splitext(name)[0]
    metadata = f"{stem}_metadata.json"
    weights = Weights("none")
    for blob in (f"{stem}_weights.blob", f"{stem}.blob"):
        if blob in names:
            weights = _blob(tree, blob)
            break
    return Plugin(
        tree.label(name),
        name,
        tree.size(name),
        lambda: tree.read(name, verify=True),
        metadata=lambda: (
            string_map(tree.read(metadata, MAX_METADATA), tree.label(metadata)) if metadata in names else None
        ),
        weights=weights,
        location=tree.location(name),
        extern_nodes=tree.label(f"{stem}.json") if f"{stem}.json" in names else None,
    )


def _blob(tree: Tree, name: str) -> Weights:
    return Weights(
        "blob",
        tree.label(name),
        size=tree.size(name),
        automatic=False,
        location=tree.location(name),
        blob=lambda: tree.read(name),
    )


def _nested(tree: Tree, name: str, opened: list[Source], anomalies: list[Anomaly]) -> dict[str, Model]:
    """Read a package or program inside the tree; its models are called ``member:model``."""
    try:
        inner = _open_nested(tree, name, opened)
    except AotiError as error:
        anomalies.append(Anomaly("unreadable-member", f"{name!r} can't be read: {error.message}", (name,)))
        return {}
    anomalies.extend(entry._replace(message=f"{name}: {entry.message}") for entry in inner.anomalies)
    return {f"{name}:{key}": model._replace(name=f"{name}:{key}") for key, model in inner.models.items()}


def _open_nested(tree: Tree, name: str, opened: list[Source]) -> Artifact:
    source = _member(tree, name)
    opened.append(source)
    if name.endswith(".pte"):
        from aoti_inspect.artifacts.pte import read_program

        stem = name.removesuffix("pte")
        beside = [other for other in tree.names() if other.startswith(stem) and other.endswith(".ptd")]
        files = tuple(_member(tree, other) for other in beside)
        opened.extend(files)
        return read_program(source, files)
    from aoti_inspect.artifacts.pt2 import read_package

    path, base = (source.place.path, source.place.offset) if source.place else (None, 0)
    return read_package(ZipTree(source.view, source.name, path=path, base=base), ())


def _member(tree: Tree, name: str) -> MemorySource:
    return MemorySource(tree.label(name), tree.read(name), tree.location(name))
