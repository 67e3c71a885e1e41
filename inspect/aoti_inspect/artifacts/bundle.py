"""A folder, a wheel or any zip archive that happens to hold plugins, packages or programs."""

from __future__ import annotations

from aoti_abi.errors import AotiError
from aoti_abi.records import TYPE_CHECKING
from aoti_inspect.artifacts.artifact import Artifact, Model
from aoti_inspect.artifacts.formats import NESTED_SUFFIXES, is_library_name
from aoti_inspect.artifacts.package_fact import PackageFact
from aoti_inspect.artifacts.read import read_artifact
from aoti_inspect.artifacts.sidecars import Beside, SidecarFile
from aoti_inspect.artifacts.so_file import model_of
from aoti_inspect.budget import TooComplex
from aoti_inspect.file_kind import HEAD, describe

if TYPE_CHECKING:
    from aoti_inspect.artifacts.artifact import Closable
    from aoti_inspect.artifacts.members import Members

#: What a plugin's dynamic string table contains, and hardly anything else does.
_MARK = b"AOTInductorModelContainer"
_WINDOW = 1 << 20


def read_bundle(members: Members, *, folder: bool) -> Artifact:
    """Find the plugins among the members, and those inside its ``.pt2`` and ``.pte`` members.

    A library counts as a plugin if it names the container API; if none does, all libraries are listed, so
    that reports can say what they lack.
    """
    noted = list(members.facts)
    names = members.names()
    libraries = [name for name in names if is_library_name(name) and _is_elf(members, name, noted)]
    plugins = [name for name in libraries if _mentions_container(members, name, noted)]
    models: dict[str, Model] = {}
    for name in plugins or libraries:
        content = SidecarFile(members, name, verify=True)
        models[name] = model_of(content, name, Beside(members, name))
    nested = [name for name in names if name.lower().endswith(NESTED_SUFFIXES)]
    opened: list[Closable] = []
    for name in nested:
        models.update(_nested(members, name, opened, noted))
    if not plugins and not nested:
        noted.append(PackageFact("bundle-without-plugins", tuple(libraries)))
    summary = [("members", str(len(names))), ("plugins", str(len(plugins)))]
    if nested:
        summary.append(("packages", ", ".join(nested)))
    return Artifact(
        members.name,
        "folder" if folder else "zip",
        models,
        facts=tuple(noted),
        summary=tuple(summary),
        opened=(*opened, members),
    )


def _is_elf(members: Members, name: str, noted: list[PackageFact]) -> bool:
    """Whether a member is an ELF file; what is called a library and is none is told, not passed over."""
    try:
        kind = describe(next(members.pieces(name, HEAD), b""), members.size(name))
    except TooComplex:
        return False
    except AotiError as error:
        noted.append(PackageFact("unreadable", (name,), name, (error.message,)))
        return False
    if kind.kind != "elf":
        noted.append(PackageFact("no-elf", (name,), name, (kind.what,)))
    return kind.kind == "elf"


def _mentions_container(members: Members, name: str, noted: list[PackageFact]) -> bool:
    """Whether a member names the container API, without inflating all of it at once.

    Wherever its names are: tools that change a library move them to its end.
    """
    end = b""
    try:
        for piece in members.pieces(name, _WINDOW):
            text = end + piece
            if _MARK in text:
                return True
            end = text[1 - len(_MARK) :]
    except TooComplex:
        # Then the audit of the whole is not complete, and says so.
        return False
    except AotiError as error:
        noted.append(PackageFact("unreadable", (name,), name, (error.message,)))
    return False


def _nested(
    members: Members, name: str, opened: list[Closable], noted: list[PackageFact]
) -> dict[str, Model]:
    """Read a package or program inside the bundle; its models are called ``member:model``."""
    try:
        inner = read_artifact(members.open(name), Beside(members, name, nested=True))
    except TooComplex:
        return {}
    except AotiError as error:
        noted.append(PackageFact("unreadable", (name,), name, (error.message,)))
        return {}
    opened.append(inner)
    noted.extend(fact._replace(within=name) for fact in inner.facts)
    return {f"{name}:{key}": model._replace(name=f"{name}:{key}") for key, model in inner.models.items()}
