"""What a plugin asks of its host."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from aoti_abi import shim_catalogue
from aoti_abi.hosts.torch import LIBRARIES

if TYPE_CHECKING:
    from aoti_inspect.facts.records import PluginFacts


class Needs(NamedTuple):
    """What a plugin asks of its host.

    Attributes:
        shims: the undefined symbols that only a host defines: shims and SLEEF's functions, sorted.
        cuda_shims: whether some of them are in CUDA builds of PyTorch only.
        uses_cuda: whether it calls CUDA at all.
        libtorch: the DT_NEEDED entries that are LibTorch's libraries.
    """

    shims: tuple[str, ...]
    cuda_shims: bool
    uses_cuda: bool
    libtorch: tuple[str, ...]


def needs_of(facts: PluginFacts) -> Needs:
    """Return what a plugin asks of its host."""
    imports = facts.imports
    shims = imports.names("shim", "prefixed-shim", "sleef")
    found = map(shim_catalogue.lookup, shims)
    cuda = any(shim is not None and shim.device == "cuda" for shim in found)
    cuda = cuda or any(entry.rpartition("/")[2] in LIBRARIES["cuda"] for entry in imports.libtorch)
    return Needs(tuple(shims), cuda, cuda or imports.uses_cuda, imports.libtorch)
