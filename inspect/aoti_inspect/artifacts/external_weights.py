"""Constants that come with a plugin, but not inside it: none, one blob, tensor by tensor, or missing."""

from __future__ import annotations

from aoti_abi.errors import InvalidState, NotFound
from aoti_abi.records import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from typing import Literal, Protocol

    from aoti_inspect.source import Location, Source

    WeightsKind = Literal["none", "blob", "tensors", "missing"]

    class Content(Protocol):
        """Bytes in an artifact: a member, a file beside a plugin, or a piece of named data."""

        @property
        def name(self) -> str:
            """What reports call them."""

        @property
        def size(self) -> int:
            """How many there are, as declared."""

        @property
        def location(self) -> Location | None:
            """Where they lie in a file as they are; None if they are compressed, or in memory only."""

        def open(self) -> Source:
            """Return them as a source, which the caller closes."""

        def view(self) -> memoryview:
            """Return them as memory, without a copy unless they are compressed; checked if they can be."""

    class TensorStore(Protocol):
        """Tensors that are stored one by one."""

        def tensors(self) -> tuple[WeightTensor, ...]:
            """Return what is stored."""

        def storage(self, key: str) -> memoryview:
            """Return the bytes of the storage that `WeightTensor.storage` names."""


class WeightTensor(NamedTuple):
    """One constant that is stored apart from the plugin.

    Attributes:
        fqn: its name in the exported module.
        dtype: PyTorch's name of its element type ("float32").
        sizes, strides, offset: in elements, of the view in its storage.
        device: "cpu" or "cuda", where the plugin expects it; None if the artifact does not say.
        storage: what identifies its storage: views with the same text share bytes.
        storage_nbytes: bytes of the storage.
    """

    fqn: str
    dtype: str
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int
    device: str | None
    storage: str
    storage_nbytes: int


class ExternalWeights:
    """The constants that come with a plugin but not inside it; this one has none.

    Attributes:
        kind: "none" (nothing beside the plugin: they are embedded, or there are none), "blob" (all in one, in
            the plugin's order), "tensors" (one by one, with names) or "missing" (named, but not there).
        origin: the member, key or file that holds them; for "missing" the one that should.
        size: bytes.
        automatic: whether PyTorch's or ExecuTorch's own loader would bind them without being asked.
    """

    kind: WeightsKind = "none"

    def __init__(self, origin: str = "", *, size: int = 0, automatic: bool = True) -> None:
        self.origin = origin
        self.size = size
        self.automatic = automatic

    @property
    def location(self) -> Location | None:
        """Where a blob lies in a file as it is; None for everything else."""
        return None

    def blob(self) -> memoryview:
        """Return the blob's bytes.

        Raises:
            NotFound: the artifact names a blob that is not there.
            InvalidState: these weights are not one blob, or the artifact was closed.
        """
        raise InvalidState(f"these weights are not a blob, but {self.kind!r}")

    def tensors(self) -> tuple[WeightTensor, ...]:
        """Return what is stored tensor by tensor; empty for a blob.

        Raises:
            InvalidProgram: the description of a tensor is damaged.
            InvalidState: the artifact was closed.
        """
        return ()

    def storage(self, tensor: WeightTensor) -> memoryview:  # noqa: ARG002 - what is stored tensor by tensor has it
        """Return the bytes of a tensor's storage.

        Raises:
            InvalidState: these weights are not stored tensor by tensor, or the artifact was closed.
        """
        raise InvalidState(f"these weights are not stored tensor by tensor, but {self.kind!r}")


class BlobWeights(ExternalWeights):
    """Weights in one piece, in the plugin's order."""

    kind = "blob"

    def __init__(self, content: Content, *, automatic: bool) -> None:
        super().__init__(content.name, size=content.size, automatic=automatic)
        self._content = content

    @property
    def location(self) -> Location | None:
        """Where the blob lies in a file as it is; None if it is compressed, or in memory only."""
        return self._content.location

    def blob(self) -> memoryview:
        """Return the blob's bytes."""
        return self._content.view()


class TensorWeights(ExternalWeights):
    """Weights that are stored one by one, with names."""

    kind = "tensors"

    def __init__(self, origin: str, store: TensorStore, *, size: int, automatic: bool) -> None:
        super().__init__(origin, size=size, automatic=automatic)
        self._store = store

    def tensors(self) -> tuple[WeightTensor, ...]:
        """Return what is stored."""
        return self._store.tensors()

    def storage(self, tensor: WeightTensor) -> memoryview:
        """Return the bytes of a tensor's storage."""
        return self._store.storage(tensor.storage)


class MissingWeights(ExternalWeights):
    """Weights that an artifact names and does not have."""

    kind = "missing"

    def blob(self) -> memoryview:
        """Raise NotFound: they are not there."""
        raise NotFound(
            f"the weights {self.origin!r} are not there",
            hint="put the file with the weights beside the artifact, or name it",
        )
