"""``.pt2``: PyTorch's package, a zip archive with compiled models, exported programs or both.

``torch/export/pt2_archive/_package.py`` and ``torch/csrc/inductor/aoti_package/model_package_loader.cpp``:
each compiled model is a folder ``data/aotinductor/<model>/`` with ``<stem>.so``, ``<stem>_metadata.json``,
perhaps ``<stem>_weights.blob``, ``<stem>.json`` (operators it calls through its host) and its C++ sources.
PyTorch puts all of it below one more folder, which older packages and packages made by hand lack.
"""

from __future__ import annotations

import re

from aoti_abi.errors import InvalidProgram, NotFound, NotSupported
from aoti_abi.records import TYPE_CHECKING, NamedTuple
from aoti_inspect.artifacts.artifact import Artifact, Model
from aoti_inspect.artifacts.extern_nodes import load_json
from aoti_inspect.artifacts.external_weights import BlobWeights, ExternalWeights
from aoti_inspect.artifacts.package_fact import PackageFact
from aoti_inspect.artifacts.plugin import ArtifactPlugin
from aoti_inspect.artifacts.sidecars import MAX_JSON, SidecarFile, Sidecars, read_extern_nodes
from aoti_inspect.artifacts.zip_names import has_control

if TYPE_CHECKING:
    from aoti_abi.errors import AotiError
    from aoti_inspect.artifacts.members import Members

#: Names are bytes to PyTorch: one with a line break in it is a file like any other.
_MODEL_FILE = re.compile(r"((?:[^/]+/)?)data/aotinductor/([^/]+)/(.+)", re.DOTALL)
_MARKER = re.compile(r"((?:[^/]+/)?)archive_format")
_EXPORTED = re.compile(r"(?:[^/]+/)?(?:models/([^/]+)\.json|serialized_exported_program\.json)")
_MAX_MARKER = 256


def is_package(names: list[str]) -> bool:
    """Return whether these members are a PyTorch package: with compiled models, or an exported program."""
    return any(
        _MODEL_FILE.fullmatch(name) or _MARKER.fullmatch(name) or _EXPORTED.fullmatch(name) for name in names
    )


class _Package(NamedTuple):
    """A package while it is read: which member is what, and what was noted so far.

    Attributes:
        members: its members.
        prefix: the folder that everything lies in, with its final slash; empty if there is none.
        models: for each model its members by their name in the model's folder.
        exported: names of exported programs.
        noted: what is odd so far.
    """

    members: Members
    prefix: str
    models: dict[str, dict[str, str]]
    exported: tuple[str, ...]
    noted: list[PackageFact]


def read_package(members: Members, *, unpacked: bool = False) -> Artifact:
    """Read a package's table of contents and the small files that describe its models.

    Args:
        members: its members.
        unpacked: whether the members are files in a folder.

    Raises:
        InvalidProgram: what describes it is damaged.
    """
    noted = list(members.facts)
    layout = _layout(members, noted, unpacked=unpacked)
    unprintable = tuple(name for name in members.names() if has_control(name))
    if unprintable:
        noted.append(PackageFact("control-characters", unprintable))
    _check_markers(layout)
    models = {name: _read_model(layout, name, files) for name, files in layout.models.items()}
    if not models:
        noted.append(PackageFact("no-compiled-models", layout.exported))
    summary = [("models", ", ".join(models) or "none")]
    if layout.exported:
        summary.append(("exported programs", ", ".join(layout.exported)))
    programs = [name for name in members.names() if name.startswith(f"{layout.prefix}data/executorch/")]
    if programs:
        summary.append(("ExecuTorch programs", ", ".join(programs)))
    return Artifact(
        members.name,
        "folder" if unpacked else "pt2" if models or not layout.exported else "exported program",
        models,
        facts=tuple(noted),
        summary=tuple(summary),
        opened=(members,),
    )


def _layout(members: Members, noted: list[PackageFact], *, unpacked: bool) -> _Package:
    prefixes: dict[str, None] = {}
    matches = []
    exported = []
    for name in members.names():
        match = _MODEL_FILE.fullmatch(name)
        if match:
            matches.append(match)
            prefixes[match[1]] = None
        elif marker := _MARKER.fullmatch(name):
            prefixes.setdefault(marker[1], None)
        elif program := _EXPORTED.fullmatch(name):
            exported.append(program[1] or "model")
    prefix = next(iter(prefixes), "")
    if len(prefixes) > 1:
        noted.append(PackageFact("several-folders", tuple(prefixes), prefix))
    if matches and not prefix and not unpacked:
        noted.append(PackageFact("no-common-folder"))
    models: dict[str, dict[str, str]] = {}
    for match in matches:
        if match[1] == prefix:
            models.setdefault(match[2], {})[match[3]] = match[0]
    return _Package(members, prefix, models, tuple(exported), noted)


def _check_markers(layout: _Package) -> None:
    members, noted = layout.members, layout.noted
    for member, expected in (("archive_format", b"pt2"), ("archive_version", b"0"), ("byteorder", b"little")):
        name = f"{layout.prefix}{member}"
        if name in members.names():
            text = bytes(members.read(name, _MAX_MARKER)).strip()
            if text != expected:
                shown = text.decode("utf-8", "surrogateescape")
                noted.append(PackageFact("marker-unknown", (name,), member, (shown, expected.decode())))
        elif member == "archive_format" and layout.models:
            noted.append(PackageFact("marker-absent", subject=member))


def _read_model(package: _Package, name: str, files: dict[str, str]) -> Model:
    members = package.members
    problems: list[AotiError] = []
    plugins: tuple[ArtifactPlugin, ...] = ()
    operators: tuple[str, ...] = ()
    objects: tuple[str, ...] = ()
    libraries = _find_libraries(package, name, files, problems)
    for library in libraries:
        nodes = files.get(f"{library.removesuffix('.so')}.json")
        if nodes is not None:
            calls = read_extern_nodes(members, nodes)
            operators, objects = (*operators, *calls.operators), (*objects, *calls.custom_objects)
        plugins += (_plugin(package, name, library, files),)
    config = files.get("custom_objs_config.json")
    if config is not None:
        content = load_json(members.read(config, MAX_JSON), members.label(config))
        objects = tuple(sorted({*objects, *(content if isinstance(content, dict) else ())}))
    return Model(name, plugins, custom_objects=objects, proxy_operators=operators, problems=tuple(problems))


def _find_libraries(
    package: _Package, name: str, files: dict[str, str], problems: list[AotiError]
) -> list[str]:
    """Return what may be the model's plugin: the wrapper, as kernels may come as libraries too.

    Of several wrappers, or several libraries without one, it depends on the loader which it takes: all of
    them are returned.
    """
    libraries = [file for file in files if file.endswith(".so")]
    if not libraries:
        problems.append(_no_library(package, name, files))
        return []
    wrappers = [file for file in libraries if file.endswith(".wrapper.so")]
    candidates = wrappers or libraries
    if len(candidates) > 1:
        package.noted.append(
            PackageFact("several-libraries", tuple(candidates), name, numbers=(len(wrappers),))
        )
    found = []
    for file in candidates:
        if package.members.size(files[file]):
            found.append(file)
            continue
        package.noted.append(PackageFact("library-without-bytes", (files[file],), name))
        problems.append(
            InvalidProgram(
                "the library is empty",
                path=package.members.label(files[file]),
                hint="packing it failed or was interrupted: export the package again",
            )
        )
    return found


def _no_library(package: _Package, name: str, files: dict[str, str]) -> AotiError:
    members, noted = package.members, package.noted
    sources = [file for file in files if file.endswith(".cpp")]
    if "CMakeLists.txt" in files or any(file.endswith("_compile_flags.json") for file in files):
        noted.append(PackageFact("sources-only", tuple(sources), name))
        return NotSupported(
            f"model {name!r} has only C++ source (package_cpp_only), no compiled library",
            path=members.name,
            hint="build it with its CMakeLists.txt, or export again without aot_inductor.package_cpp_only",
        )
    what = f"only {len(sources)} C++ sources" if sources else "none of a model's files"
    noted.append(PackageFact("model-without-library", tuple(files), name, (what,)))
    return NotFound(
        f"the package has no compiled library for model {name!r}, {what}",
        path=members.name,
        hint="it was packed incompletely: export it again",
    )


def _plugin(package: _Package, name: str, library: str, files: dict[str, str]) -> ArtifactPlugin:
    members, stem = package.members, library.removesuffix(".so")
    nodes = files.get(f"{stem}.json")
    metadata = files.get(f"{stem}_metadata.json")
    if metadata is None:
        others = [file for file in files if file.endswith("_metadata.json")]
        package.noted.append(PackageFact("metadata-absent", tuple(others), name, (f"{stem}_metadata.json",)))
        if len(others) == 1:
            metadata = files[others[0]]
    sidecars = Sidecars(
        members,
        (metadata,) if metadata else (),
        nodes,
        sources=tuple(member for file, member in files.items() if file.endswith(".cpp")),
    )
    member = files[library]
    return ArtifactPlugin(
        members.label(member),
        name,
        SidecarFile(members, member, verify=True),
        sidecars=sidecars,
        weights=_weights(package, name, stem, files),
        beside=frozenset(files),
    )


def _weights(package: _Package, name: str, stem: str, files: dict[str, str]) -> ExternalWeights:
    members, noted = package.members, package.noted
    blobs = [file for file in files if file.endswith(".blob")]
    if blobs:
        expected = f"{stem}_weights.blob"
        chosen = expected if expected in blobs else blobs[-1]
        if chosen != expected:
            noted.append(PackageFact("blob-of-other-name", tuple(blobs), name, (chosen, expected)))
        elif len(blobs) > 1:
            noted.append(PackageFact("several-blobs", tuple(blobs), name))
        return BlobWeights(SidecarFile(members, files[chosen]), automatic=True)
    config = files.get("weights_config.json")
    if config is None:
        return ExternalWeights()
    from aoti_inspect.artifacts.pt2_weights import tensor_weights

    content = load_json(members.read(config, MAX_JSON), members.label(config))
    return tensor_weights(members, f"{package.prefix}data/weights/", content, members.label(config), noted)
