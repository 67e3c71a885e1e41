"""Constants that come with a plugin, but not inside it."""

from __future__ import annotations

from aoti_abi.errors import InvalidState, NotFound
from aoti_abi.records import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Literal, TypeVar

    WeightsKind = Literal["none", "blob", "tensors", "missing"]
    _T = TypeVar("_T")


_MISSING_HINT = "put the file with the weights beside the artifact, or name it"


def unless_closed(read: Callable[[], _T]) -> _T:
    """Return what ``read`` does; it raises ValueError exactly if its artifact's files were given back.

    Raises:
        InvalidState: they were.
    """
    try:
        return read()
    except ValueError:
        raise InvalidState("the artifact was closed", hint="read from it before it is closed") from None


class Location(NamedTuple):
    """Where bytes lie unchanged in a file, so that they can be read without mapping them.

    Attributes:
        path: the file.
        offset, size: bytes.
    """

    path: str
    offset: int
    size: int


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


class Weights:
    """The constants that come with a plugin but not inside it.

    Attributes:
        kind: "none" (nothing beside the plugin: they are embedded, or there are none), "blob" (all in one, in
            the plugin's order), "tensors" (one by one, with names) or "missing" (named, but not there).
        origin: the member, key or file that holds them; for "missing" the one that should.
        automatic: whether PyTorch's or ExecuTorch's own loader would bind them without being asked.
    """

    def __init__(
        self,
        kind: WeightsKind,
        origin: str = "",
        *,
        size: int = 0,
        automatic: bool = True,
        location: Location | None = None,
        blob: Callable[[], memoryview] | None = None,
        tensors: Callable[[], tuple[WeightTensor, ...]] | None = None,
        storage: Callable[[str], memoryview] | None = None,
    ) -> None:
        self.kind: WeightsKind = kind
        self.origin = origin
        self.size = size
        self.automatic = automatic
        self.location = location
        self._blob = blob
        self._tensors = tensors
        self._storage = storage

    def blob(self) -> memoryview:
        """Return the blob's bytes.

        Raises:
            NotFound: the artifact names a blob that is not there.
            InvalidState: these weights are not one blob.
        """
        if self.kind == "missing":
            raise NotFound(f"the weights {self.origin!r} are not there", hint=_MISSING_HINT)
        if self._blob is None:
            raise InvalidState(f"these weights are not a blob, but {self.kind!r}")
        return unless_closed(self._blob)

    def tensors(self) -> tuple[WeightTensor, ...]:
        """Return what is stored tensor by tensor; empty for a blob.

        Raises:
            InvalidProgram: the description of a tensor is damaged.
            NotFound: the artifact names one that is not there.
        """
        return () if self._tensors is None else unless_closed(self._tensors)

    def storage(self, tensor: WeightTensor) -> memoryview:
        """Return the bytes of a tensor's storage.

        Raises:
            InvalidState: these weights are not stored tensor by tensor.
        """
        if self._storage is None:
            raise InvalidState(f"these weights are not stored tensor by tensor, but {self.kind!r}")
        read = self._storage
        return unless_closed(lambda: read(tensor.storage))
