"""What lies beside a plugin ``STEM.so``, in a folder on disk or in an archive.

``aot_compile`` and ``aoti_compile_and_package`` write ``STEM_metadata.json``; for plugins with external
weights ``STEM_weights.blob``; for operators without a C shim ``STEM.json``; and leave the source of the
wrapper, ``STEM.cpp``.
"""

from __future__ import annotations

import os
from contextlib import suppress

from aoti_abi.errors import AotiError, NotFound, NotSupported
from aoti_abi.records import TYPE_CHECKING, NamedTuple
from aoti_inspect.artifacts.external_weights import BlobWeights, ExternalWeights
from aoti_inspect.source import Location, open_file

if TYPE_CHECKING:
    from typing import Protocol

    from aoti_inspect.artifacts.extern_nodes import ExternNodes
    from aoti_inspect.source import Source

    class Neighbours(Protocol):
        """Files by name, of which one is looked at: a folder on disk, or the members of a package."""

        def has(self, name: str) -> bool:
            """Whether there is a file of this name."""

        def beside(self, name: str) -> list[str]:
            """Return the names of the files in the same folder, sorted."""

        def size(self, name: str) -> int:
            """Return a file's size, bytes; NotFound if it is not there."""

        def location(self, name: str) -> Location | None:
            """Return where a file's bytes lie in a file on disk, or None."""

        def label(self, name: str) -> str:
            """Return what reports call a file."""

        def open(self, name: str, *, verify: bool = False) -> Source:
            """Return a file's bytes as a source, which the caller closes; compared with their checksum."""

        def read(self, name: str, limit: int | None = None, *, verify: bool | None = None) -> memoryview:
            """Return a file's bytes; NotSupported if there are more than ``limit``."""


#: Where metadata are looked for, in this order: beside ``aot_compile``'s result, and for the wrapper.
_METADATA = ("_metadata.json", ".wrapper_metadata.json")
_WEIGHTS = ("_weights.blob", ".blob")
_EXTERN_NODES = ".json"
_SOURCE = ".cpp"
#: Inductor's metadata have some hundred bytes.
MAX_METADATA = 1 << 20
#: C++ beside a plugin: the wrapper of a large model has a few megabytes.
MAX_SOURCE = 64 << 20
#: JSON beside a plugin: operators, configuration of weights (some 300 bytes each). Parsed JSON takes up to 25
#: times its own size, and a deflated member of 60 kB inflates to 60 MB of it.
MAX_JSON = 8 << 20


#: Up to this size a plugin in an archive is compared with its checksum when it is opened, so in each audit.
CHECKED_WHEN_OPENED = 256 << 20


class Sidecars(NamedTuple):
    """What lies beside a plugin, by name; nothing of it was read yet.

    Attributes:
        neighbours: where the names count.
        metadata: what may hold Inductor's metadata, the best first; each may be absent.
        extern_nodes: the list of operators that it calls through its host; None if there is none.
        calls: what that list says.
        sources: its C++ sources: the wrapper's, and perhaps those of its kernels.
    """

    neighbours: Neighbours
    metadata: tuple[str, ...] = ()
    extern_nodes: str | None = None
    calls: ExternNodes | None = None
    sources: tuple[str, ...] = ()

    def read_metadata(self) -> tuple[dict[str, str] | None, tuple[str, ...]]:
        """Return the metadata that can be read first, and a sentence for each file that can't be read."""
        problems: list[str] = []
        for name in self.metadata:
            try:
                size = self.neighbours.size(name)
                if size <= MAX_METADATA:
                    from aoti_inspect.facts.plugin import parse_metadata

                    metadata = parse_metadata(bytes(self.neighbours.read(name, MAX_METADATA)))
                    if isinstance(metadata, dict):
                        return metadata, tuple(problems)
                    problem = metadata
                else:
                    problem = f"has {size} bytes, more than the {MAX_METADATA} that are read"
            except NotFound:
                continue
            except AotiError as error:
                problem = f"cannot be read: {error.message}"
            problems.append(f"the metadata beside the plugin ({self.neighbours.label(name)}) {problem}")
        return None, tuple(problems)

    def read_sources(self) -> tuple[memoryview, ...]:
        """Return the C++ sources.

        Raises:
            AotiError: one can't be read, or is far larger than any that Inductor writes.
        """
        return tuple(self.neighbours.read(name, MAX_SOURCE) for name in self.sources)


def read_extern_nodes(neighbours: Neighbours, name: str) -> ExternNodes:
    """Return the operators that a plugin calls through its host.

    Raises:
        InvalidProgram: the list is damaged, or is another kind of JSON.
        AotiError: it can't be read.
    """
    from aoti_inspect.artifacts.extern_nodes import parse_extern_nodes

    return parse_extern_nodes(neighbours.read(name, MAX_JSON), neighbours.label(name))


class Beside(NamedTuple):
    """What an artifact is read with: the files around it.

    Attributes:
        neighbours: where the artifact is one of the files.
        name: its name among them.
        data: ``.ptd`` files that belong to it, if the caller named them; None to look for them.
        nested: whether it lies in a folder or archive, so that it must not hold archives in its turn.
    """

    neighbours: Neighbours
    name: str
    data: tuple[str, ...] | None = None
    nested: bool = False


class SidecarFile:
    """A file beside a plugin, or a member of a package; see `external_weights.Content`."""

    def __init__(self, neighbours: Neighbours, name: str, *, verify: bool | None = None) -> None:
        self.name = neighbours.label(name)
        self.size = neighbours.size(name)
        self._neighbours = neighbours
        self._own_name = name
        self._verify = verify

    @property
    def location(self) -> Location | None:
        """Where it lies in a file on disk as it is; None if it is compressed, or in memory only."""
        return self._neighbours.location(self._own_name)

    def open(self) -> Source:
        """Return its bytes as a source, which the caller closes; see `CHECKED_WHEN_OPENED`."""
        verify = bool(self._verify) and self.size <= CHECKED_WHEN_OPENED
        return self._neighbours.open(self._own_name, verify=verify)

    def view(self) -> memoryview:
        """Return its bytes, compared with their checksum if there is one."""
        return self._neighbours.read(self._own_name, verify=self._verify)


def find_sidecars(neighbours: Neighbours, library: str) -> Sidecars:
    """Return what lies beside a plugin.

    Args:
        neighbours: the plugin's folder, or the package that it is a member of.
        library: the plugin's name among them.
    """
    stem = os.path.splitext(library)[0]
    nodes, source = stem + _EXTERN_NODES, stem + _SOURCE
    calls = None
    if neighbours.has(nodes):
        with suppress(AotiError):  # a JSON of the plugin's name may be about anything
            calls = read_extern_nodes(neighbours, nodes)
    return Sidecars(
        neighbours,
        tuple(stem + suffix for suffix in _METADATA),
        None if calls is None else nodes,
        calls,
        (source,) if neighbours.has(source) else (),
    )


def find_weights(neighbours: Neighbours, library: str) -> ExternalWeights:
    """Return the weights beside a plugin, which no loader of PyTorch binds without being asked."""
    stem = os.path.splitext(library)[0]
    for suffix in _WEIGHTS:
        if neighbours.has(stem + suffix):
            return BlobWeights(SidecarFile(neighbours, stem + suffix), automatic=False)
    return ExternalWeights()


class FilesOnDisk:
    """Files on disk; their names are paths."""

    def has(self, name: str) -> bool:
        """Whether there is a file of this name."""
        return os.path.isfile(name)

    def beside(self, name: str) -> list[str]:
        """Return the paths of what is in the same folder, sorted; nothing if that can't be listed."""
        folder = os.path.dirname(name)
        try:
            return sorted(os.path.join(folder, entry) for entry in os.listdir(folder or "."))
        except OSError:
            return []

    def size(self, name: str) -> int:
        """Return a file's size."""
        try:
            return os.stat(name).st_size
        except (OSError, ValueError) as error:
            raise NotFound("no such file", path=name, cause=str(error)) from None

    def location(self, name: str) -> Location | None:
        """Return the file itself."""
        return Location(name, 0, self.size(name))

    def label(self, name: str) -> str:
        """Return the path."""
        return name

    def open(self, name: str, *, verify: bool = False) -> Source:  # noqa: ARG002 - as the protocol has it
        """Open a file; see `open_file` for the errors."""
        return open_file(name)

    def read(self, name: str, limit: int | None = None, *, verify: bool | None = None) -> memoryview:  # noqa: ARG002 - as the protocol has it
        """Return a file's bytes; see `read_file`."""
        return read_file(name, limit)


class NoFiles:
    """What lies beside bytes in memory: nothing."""

    def has(self, name: str) -> bool:  # noqa: ARG002 - as the protocol has it
        """Return False."""
        return False

    def beside(self, name: str) -> list[str]:  # noqa: ARG002 - as the protocol has it
        """Return nothing."""
        return []

    def size(self, name: str) -> int:
        """Raise NotFound."""
        raise NotFound("no such file", path=name)

    def location(self, name: str) -> Location | None:  # noqa: ARG002 - as the protocol has it
        """Return None."""
        return None

    def label(self, name: str) -> str:
        """Return the name."""
        return name

    def open(self, name: str, *, verify: bool = False) -> Source:  # noqa: ARG002 - as the protocol has it
        """Raise NotFound."""
        raise NotFound("no such file", path=name)

    def read(self, name: str, limit: int | None = None, *, verify: bool | None = None) -> memoryview:  # noqa: ARG002 - as the protocol has it
        """Raise NotFound."""
        raise NotFound("no such file", path=name)


#: Up to this size a file is read, larger ones are mapped: a view of a file that shrinks kills the process.
_MAPPED_FROM = 4 << 20


def read_file(path: str, limit: int | None = None) -> memoryview:
    """Return a file's bytes: small ones read, large ones mapped.

    Raises:
        NotSupported: there are more than ``limit``.
        AotiError: as `open_file`.
    """
    with open_file(path) as source:
        if limit is not None and source.size > limit:
            raise NotSupported(
                f"it has {source.size} bytes; the limit for this kind of file is {limit}", path=path
            )
        return source.view() if source.size > _MAPPED_FROM else memoryview(source.read(0, source.size))
