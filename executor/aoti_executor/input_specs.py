"""What a model expects of its inputs, from everything that tells.

A plugin has no function for it. Three places tell something:

* the generated C++ of a package holds the checks that PyTorch 2.7 and later compile in, with their values;
* a ``.pte`` has the dtype and shape of each argument of a delegate;
* a plain plugin has the texts of its checks among its strings: one for each dimension and stride that is
  checked, so at least the rank is known. The values are checked by the plugin itself if it is asked to:
  `ask_plugin_to_check`.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, NamedTuple

from aoti_abi.codes import DTYPES_BY_NAME, dtype_name
from aoti_abi.errors import InvalidArgument

if TYPE_CHECKING:
    from collections.abc import Iterable

    from aoti_executor.views import View

#: Plugins of PyTorch 2.7 and later check their inputs if this is in the environment at their first run.
CHECK_VARIABLE = "AOTI_RUNTIME_CHECK_INPUTS"

_LOCATION = re.compile(
    rb"input_handles\[(\d{1,5})\]: "
    rb"(?:unmatched (dtype)|(?:unmatched dim value|dim value is too (?:small|large)) at (\d{1,2})"
    rb"|unmatched stride value at (\d{1,2}))"
)
_FUNCTION = re.compile(
    r"static void check_input_(\d+)\((.*?)(?=static void check_input_|static bool _check_aoti)", re.DOTALL
)
_DTYPE = re.compile(r"aoti_torch_dtype_(\w+)\(\)")
_VALUE = re.compile(
    r"(unmatched dim value|dim value is too small|dim value is too large|unmatched stride value) at (\d+), \""
    r"\s*<< \"expected[^\"]*?(-?\d+), \""
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
        dtype: ``c10::ScalarType`` value.
        rank: the number of dimensions.
        sizes: one `Extent` per dimension.
        strides: elements; None for a stride that depends on a dynamic size.
    """

    dtype: int | None = None
    rank: int | None = None
    sizes: tuple[Extent, ...] | None = None
    strides: tuple[int | None, ...] | None = None

    def __str__(self) -> str:
        """Return "float32(2..64, 16)", with "?" for what is not known."""
        dtype = "?" if self.dtype is None else dtype_name(self.dtype)
        if self.sizes is not None:
            return f"{dtype}({', '.join(map(str, self.sizes))})"
        return f"{dtype}({'?' if self.rank is None else ', '.join('?' * self.rank)})"


def check_input(spec: InputSpec, value: View, what: str) -> None:
    """Check an input against what is known of it.

    Raises:
        InvalidArgument: it differs in dtype, rank, size or stride; the message has both.
    """
    if spec.dtype is not None and value.dtype != spec.dtype:
        expected, given = dtype_name(spec.dtype), dtype_name(value.dtype)
        raise InvalidArgument(f"{what} is {given}, the model takes {expected}", hint="convert it first")
    if spec.rank is not None and len(value.shape) != spec.rank:
        raise InvalidArgument(
            f"{what} has {len(value.shape)} dimensions {value.shape}, the model takes {spec.rank}: {spec}"
        )
    for dim, (extent, size) in enumerate(zip(spec.sizes or (), value.shape, strict=False)):
        if size < extent.low or (extent.high is not None and size > extent.high):
            raise InvalidArgument(
                f"{what} has {size} elements along dimension {dim}, the model takes {extent}: {spec}"
            )
    if spec.strides is None or 0 in value.shape:
        return
    for dim, (expected_stride, stride) in enumerate(zip(spec.strides, value.strides, strict=False)):
        # A dimension of one element is never stepped along, yet the plugin's own check compares it.
        if expected_stride is not None and stride != expected_stride and value.shape[dim] != 1:
            raise InvalidArgument(
                f"{what} has the stride {stride} along dimension {dim}, the model reads {expected_stride}",
                hint="pass a contiguous copy, or the layout that the model was exported with",
            )


def specs_from_strings(data: Iterable[bytes | memoryview], count: int) -> tuple[InputSpec, ...]:
    """Read from a plugin's bytes which checks it has.

    Args:
        data: the parts of the file that may hold its strings.
        count: how many inputs it has.

    Returns:
        One spec per input, with the rank where any check of it is there.
    """
    ranks: dict[int, int] = {}
    for part in data:
        for match in _LOCATION.finditer(part):
            index = int(match[1])
            dim = match[3] or match[4]
            ranks[index] = max(ranks.get(index, 0), int(dim) + 1 if dim else 0)
    return tuple(InputSpec(rank=ranks.get(index)) for index in range(count))


def specs_from_source(source: str, count: int) -> tuple[InputSpec, ...]:
    """Read the checks of the C++ that Inductor generated for a plugin.

    Returns:
        One spec per input; empty ones where the source has no checks.
    """
    specs = [InputSpec()] * count
    for match in _FUNCTION.finditer(source):
        index, body = int(match[1]), match[2]
        if index < count:
            specs[index] = _from_body(body)
    return tuple(specs)


def _from_body(body: str) -> InputSpec:
    low: dict[int, int] = {}
    high: dict[int, int] = {}
    strides: dict[int, int] = {}
    for kind, dim_text, value_text in _VALUE.findall(body):
        dim, value = int(dim_text), int(value_text)
        if kind == "unmatched stride value":
            strides[dim] = value
        if kind in ("unmatched dim value", "dim value is too small"):
            low[dim] = value
        if kind in ("unmatched dim value", "dim value is too large"):
            high[dim] = value
    dtype = _DTYPE.search(body)
    known = DTYPES_BY_NAME.get(dtype[1]) if dtype else None
    rank = max([*low, *high, *strides], default=-1) + 1
    return InputSpec(
        known.code if known else None,
        rank,
        tuple(Extent(low.get(dim, 0), high.get(dim)) for dim in range(rank)),
        tuple(strides.get(dim) for dim in range(rank)),
    )


def ask_plugin_to_check() -> bool:
    """Ask plugins to check dtypes, sizes and strides themselves, unless the environment says otherwise.

    A plugin reads the variable once, in its first run, so it has to be there before that. It stays for the
    process: other AOTInductor models in it check their inputs too, at well under a microsecond a run.

    Returns:
        Whether they check.
    """
    value = os.environ.setdefault(CHECK_VARIABLE, "1")
    return not value.startswith("0")
