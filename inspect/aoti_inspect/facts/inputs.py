"""What a model takes, from everything that tells.

A plugin has no function for it. Three places tell something:

* a ``.pte`` program has the dtype and shape of each argument of a delegate (`aoti_inspect.artifacts`);
* the C++ that Inductor generated holds the checks that PyTorch 2.7 and later compile in, with their values;
* a plugin without its source has the texts of its checks among its strings: one for each dimension and
  stride that is checked, so at least the number of dimensions is known.
"""

from __future__ import annotations

from aoti_abi.codes import DTYPES_BY_NAME
from aoti_abi.records import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from aoti_inspect.elf.image import ElfImage
    from aoti_inspect.facts.records import Weights

_CHECK = b"input_handles["
_KINDS = (
    b"]: unmatched dtype",
    b"]: unmatched dim value at ",
    b"]: dim value is too small at ",
    b"]: dim value is too large at ",
    b"]: unmatched stride value at ",
)
#: The longest text of a check: its start, five digits of the input, its kind, two digits of the dimension.
_LONGEST = 64
_WINDOW = 1 << 20
#: Strings of plugins are in the first bytes of their read-only segments; constants may fill gigabytes.
_MOST_SEARCHED = 1 << 26
#: Inductor treats sizes 0 and 1 apart at compile time, so it writes this bound for every dynamic dimension
#: that may be smaller, whatever range the model was exported with. PyTorch's own loader does not look at it
#: and runs a batch of one. Nothing tells whether the exported range has a 0.
_SPECIALIZED = 2
#: More dimensions than this has no tensor.
_MOST_DIMENSIONS = 64

_FUNCTION = b"static void check_input_"
_END = b"static bool _check_aoti"
_VALUES = (
    rb"(unmatched dim value|dim value is too small|dim value is too large|unmatched stride value)"
    rb" at (\d{1,2}), \"\s*<< \"expected[^\"]{0,40}?(-?\d{1,19}), \""
)


class Extent(NamedTuple):
    """The sizes that a dimension may have: ``low`` to ``high``, both included; None for no upper bound."""

    low: int
    high: int | None

    def __str__(self) -> str:
        """Return "8", "2..64" or "2.."."""
        if self.low == self.high:
            return str(self.low)
        return f"{self.low}..{'' if self.high is None else self.high}"


class InputSpec(NamedTuple):
    """What is known of one input; None for what is not.

    Attributes:
        dtype: PyTorch's name of the element type, as "float32".
        rank: the number of dimensions.
        sizes: one `Extent` per dimension.
        strides: elements; None for a stride that depends on a dynamic size.
    """

    dtype: str | None = None
    rank: int | None = None
    sizes: tuple[Extent, ...] | None = None
    strides: tuple[int | None, ...] | None = None

    def __str__(self) -> str:
        """Return "float32(2..64, 16)", with "?" for what is not known."""
        dtype = self.dtype or "?"
        if self.sizes is not None:
            return f"{dtype}({', '.join(map(str, self.sizes))})"
        return f"{dtype}({'?' if self.rank is None else ', '.join('?' * self.rank)})"


def find_inputs(image: ElfImage, weights: Weights, sources: Iterable[bytes]) -> tuple[InputSpec, ...]:
    """Return what is known of a plugin's inputs.

    Args:
        image: the file.
        weights: where its constants are, which are not searched.
        sources: the C++ that Inductor generated for it, if that is there.

    Returns:
        One spec for each input up to the last that is checked; none if there are no checks.
    """
    for source in sources:
        if _FUNCTION in source:
            return inputs_from_source(source)
    ranks: dict[int, int] = {}
    for part in _strings(image, weights):
        read_checks(part, ranks)
    return _in_order({index: InputSpec(rank=rank) for index, rank in ranks.items()})


def read_checks(part: bytes, ranks: dict[int, int]) -> None:
    """Add the number of dimensions of each input whose checks are among some strings to ``ranks``."""
    at = part.find(_CHECK)
    while at >= 0:
        at += len(_CHECK)
        digits, _, _ = part[at : at + 6].partition(b"]")
        if len(digits) < 6 and digits.isdigit():
            start = at + len(digits)
            index = int(digits)
            for kind in _KINDS:
                if part.startswith(kind, start):
                    start += len(kind)
                    dimension = part[start : start + 2].partition(b",")[0]
                    rank = int(dimension) + 1 if dimension.isdigit() else 0
                    ranks[index] = max(ranks.get(index, 0), rank)
                    break
        at = part.find(_CHECK, at)


def inputs_from_source(source: bytes) -> tuple[InputSpec, ...]:
    """Read the checks of the C++ that Inductor generated for a plugin.

    Returns:
        As `find_inputs`.
    """
    found: dict[int, InputSpec] = {}
    start = source.find(_FUNCTION)
    while start >= 0:
        start += len(_FUNCTION)
        digits, _, _ = source[start : start + 6].partition(b"(")
        after = source.find(_FUNCTION, start)
        if len(digits) < 6 and digits.isdigit():
            body = source[start : after if after >= 0 else len(source)].partition(_END)[0]
            found[int(digits)] = _from_body(body)
        start = after
    return _in_order(found)


def _from_body(body: bytes) -> InputSpec:
    import re

    low: dict[int, int] = {}
    high: dict[int, int] = {}
    strides: dict[int, int] = {}
    for kind, dim_text, value_text in re.findall(_VALUES, body):
        dim, value = int(dim_text), int(value_text)
        if dim >= _MOST_DIMENSIONS:
            continue
        if kind == b"unmatched stride value":
            strides[dim] = value
        if kind in (b"unmatched dim value", b"dim value is too small"):
            low[dim] = value
        if kind == b"dim value is too small" and value == _SPECIALIZED:
            low[dim] = 1
        if kind in (b"unmatched dim value", b"dim value is too large"):
            high[dim] = value
    dtype = re.search(rb"aoti_torch_dtype_(\w{1,20})\(\)", body)
    name = dtype[1].decode("ascii", "replace") if dtype else None
    rank = max([*low, *high, *strides], default=-1) + 1
    return InputSpec(
        name if name in DTYPES_BY_NAME else None,
        rank,
        tuple(Extent(low.get(dim, 0), high.get(dim)) for dim in range(rank)),
        tuple(strides.get(dim) for dim in range(rank)),
    )


def _in_order(found: dict[int, InputSpec]) -> tuple[InputSpec, ...]:
    nothing = InputSpec()
    return tuple(found.get(index, nothing) for index in range(max(found, default=-1) + 1))


def _strings(image: ElfImage, weights: Weights) -> Iterator[bytes]:
    """Yield a plugin's read-only segments without its constants, in pieces that overlap."""
    budget = _MOST_SEARCHED
    for segment in image.segments:
        if segment.type != "LOAD" or "W" in segment.flags:
            continue
        end = segment.offset + segment.file_size
        parts = [(segment.offset, end)]
        if segment.offset <= weights.offset < end and weights.size:
            parts = [(segment.offset, weights.offset), (weights.offset + weights.size, end)]
        for first, last in parts:
            at = first
            while at < last and budget > 0:
                yield image.source.read(at, min(_WINDOW + _LONGEST, last - at))
                at += _WINDOW
                budget -= _WINDOW
