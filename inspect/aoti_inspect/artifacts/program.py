"""What only ``.pte`` and ``.ptd`` have: values, delegates, named data."""

from __future__ import annotations

from aoti_abi.records import TYPE_CHECKING, NamedTuple
from aoti_inspect.source import Location

if TYPE_CHECKING:
    from aoti_abi.payload import Payload
    from aoti_inspect.facts.inputs import InputSpec
    from aoti_inspect.source import Source


class Value(NamedTuple):
    """One input or output of a method.

    Attributes:
        kind: "tensor", or another type of value ("int", "bool", ...).
        dtype: PyTorch's name of the element type; None for other kinds.
        sizes: the shape; for a dynamic one its upper bound.
        dim_order: the dimensions from the outermost in memory to the innermost.
        dynamism: "static", "bound" (at most ``sizes``) or "unbound".
        device: "cpu" or "cuda:0".
    """

    kind: str
    dtype: str | None = None
    sizes: tuple[int, ...] = ()
    dim_order: tuple[int, ...] = ()
    dynamism: str = "static"
    device: str = "cpu"


class Argument(NamedTuple):
    """One argument of a delegate's call; the inputs come first, then the outputs.

    Attributes:
        value: its index in the method's table of values.
        input: the method's input that it is, directly or through a copy to the device; None if it is none.
        output: the method's output that it becomes; None if it is none.
    """

    value: int
    input: int | None
    output: int | None


class Delegate(NamedTuple):
    """How a ``.pte`` method calls a plugin.

    Attributes:
        number: its place among the method's delegates.
        id: the backend's name ("CudaBackend").
        compile_specs: its options, in order.
        payload: decoded; None for a delegate that is not AOTInductor's.
        calls: the arguments of each call to it, in the order of execution; usually one call.
        inputs: what the method says of the plugin's inputs; empty where it can't be told.
    """

    number: int
    id: str
    compile_specs: tuple[tuple[str, bytes], ...]
    payload: Payload | None
    calls: tuple[tuple[Argument, ...], ...]
    inputs: tuple[InputSpec, ...] = ()


class NamedBlob(NamedTuple):
    """One piece of named data of a ``.pte`` or ``.ptd``.

    Attributes:
        key: its name; untrusted, never a file name.
        origin: what the ``.pte`` or ``.ptd`` that holds it is called.
        offset, size: bytes in that file.
        whole: the whole file.
        layout: dtype and shape, for what is stored as a tensor; None for plain bytes.
    """

    key: str
    origin: str
    offset: int
    size: int
    whole: Source
    layout: Value | None = None

    @property
    def name(self) -> str:
        """What reports call it: its key."""
        return self.key

    @property
    def location(self) -> Location | None:
        """Where it lies in a file; None if the ``.pte`` or ``.ptd`` is in memory only."""
        place = self.whole.location
        return None if place is None else Location(place.path, place.offset + self.offset, self.size)

    def open(self) -> Source:
        """Return its bytes as a source.

        Raises:
            InvalidState: the artifact was closed.
        """
        return self.whole.part(self.offset, self.size, f"{self.origin}!{self.key}")

    def view(self) -> memoryview:
        """Return its bytes, as a part of the mapped file.

        Raises:
            InvalidState: the artifact was closed.
        """
        return self.open().view()
