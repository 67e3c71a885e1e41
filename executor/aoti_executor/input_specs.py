"""Inputs, compared with what is known of them (`aoti_inspect.facts.inputs`)."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from aoti_abi.codes import dtype_name
from aoti_abi.errors import InvalidArgument
from aoti_inspect.facts.inputs import InputSpec

if TYPE_CHECKING:
    from aoti_executor.views import View
    from aoti_inspect.facts.records import PluginFacts

#: Plugins of PyTorch 2.7 and later check their inputs if this is in the environment at their first run.
CHECK_VARIABLE = "AOTI_RUNTIME_CHECK_INPUTS"


def check_input(spec: InputSpec, value: View, what: str) -> None:
    """Check an input against what is known of it.

    Raises:
        InvalidArgument: it differs in dtype, rank, size or stride; the message has both.
    """
    if spec.dtype is not None and dtype_name(value.dtype) != spec.dtype:
        given = dtype_name(value.dtype)
        raise InvalidArgument(f"{what} is {given}, the model takes {spec.dtype}", hint="convert it first")
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


def specs_of(facts: PluginFacts, count: int) -> tuple[InputSpec, ...]:
    """Return what is known of each of a plugin's ``count`` inputs."""
    return (facts.inputs + (InputSpec(),) * count)[:count]


def ask_plugin_to_check() -> bool:
    """Ask plugins to check dtypes, sizes and strides themselves, unless the environment says otherwise.

    A plugin reads the variable once, in its first run, so it has to be there before that. It stays for the
    process: other AOTInductor models in it check their inputs too, at well under a microsecond a run.

    Returns:
        Whether they check.
    """
    value = os.environ.setdefault(CHECK_VARIABLE, "1")
    return not value.startswith("0")
