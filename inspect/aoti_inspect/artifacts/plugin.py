"""A plugin in an artifact, which was not loaded yet."""

from __future__ import annotations

from aoti_abi.records import TYPE_CHECKING
from aoti_inspect.artifacts.external_weights import ExternalWeights

if TYPE_CHECKING:
    from collections.abc import Collection

    from aoti_abi.payload import Variant
    from aoti_inspect.artifacts.external_weights import Content
    from aoti_inspect.artifacts.program import Delegate
    from aoti_inspect.artifacts.sidecars import Sidecars
    from aoti_inspect.source import Location, Source


class ArtifactPlugin:
    """One plugin in an artifact: found, and not loaded.

    Attributes:
        name: what reports call it: a path, or ``package!member``.
        model: the model or method that it belongs to.
        size: bytes, as declared.
        weights: what comes with it.
        delegate: how a ``.pte`` method calls it; None elsewhere.
        variant: which GPU it is for, if it comes from a ``.pte``; None elsewhere.
        beside: names of the files of its model in the package, itself included; None outside of packages.
    """

    def __init__(
        self,
        name: str,
        model: str,
        content: Content,
        *,
        sidecars: Sidecars | None = None,
        weights: ExternalWeights | None = None,
        delegate: Delegate | None = None,
        variant: Variant | None = None,
        beside: frozenset[str] | None = None,
    ) -> None:
        self.name = name
        self.model = model
        self.size = content.size
        self.weights = weights or ExternalWeights()
        self.delegate = delegate
        self.variant = variant
        self.beside = beside
        self._content = content
        self._sidecars = sidecars
        self._metadata: tuple[dict[str, str] | None, tuple[str, ...]] | None = None

    @property
    def location(self) -> Location | None:
        """Where its bytes lie in a file as they are; None if they are compressed, or in memory only."""
        return self._content.location

    def open_source(self) -> Source:
        """Return its bytes as a source, which the caller closes: a range of the artifact where it can be one.

        Raises:
            InvalidProgram: they are damaged.
            NotSupported: they can't be had (encrypted, another compression, too large).
            InvalidState: the artifact was closed.
        """
        return self._content.open()

    def read(self) -> memoryview:
        """Return its bytes, checked: a part of the mapped file, or a private copy if they are compressed.

        Raises:
            AotiError: as `open_source`.
        """
        return self._content.view()

    @property
    def metadata(self) -> dict[str, str] | None:
        """What Inductor noted about its machine (``AOTI_DEVICE_KEY``, ...); None without anything to read."""
        return self._read_metadata()[0]

    @property
    def metadata_problems(self) -> tuple[str, ...]:
        """A sentence for each file with metadata that is there and can't be read."""
        return self._read_metadata()[1]

    @property
    def extern_nodes(self) -> str | None:
        """What reports call the JSON with the operators that it calls through its host; None without one."""
        sidecars = self._sidecars
        if sidecars is None or sidecars.extern_nodes is None:
            return None
        return sidecars.neighbours.label(sidecars.extern_nodes)

    @property
    def sources(self) -> tuple[memoryview, ...]:
        """The C++ sources that Inductor left beside it: of the wrapper, and of its kernels.

        Raises:
            AotiError: as `open_source`.
        """
        return () if self._sidecars is None else self._sidecars.read_sources()

    def read_beside(self, names: Collection[str]) -> dict[str, memoryview]:
        """Return the bytes of files in its folder, by their names without it; what is not there is left out.

        Raises:
            AotiError: as `open_source`.
        """
        if self._sidecars is None or not self._sidecars.metadata:
            return {}
        neighbours = self._sidecars.neighbours
        around = neighbours.beside(self._sidecars.metadata[0])
        paths = [path for path in around if path.rpartition("/")[2] in names]
        return {path.rpartition("/")[2]: neighbours.read(path) for path in paths}

    def _read_metadata(self) -> tuple[dict[str, str] | None, tuple[str, ...]]:
        if self._metadata is None:
            self._metadata = (None, ()) if self._sidecars is None else self._sidecars.read_metadata()
        return self._metadata
