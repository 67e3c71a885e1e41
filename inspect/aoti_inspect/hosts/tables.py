"""Hosts that are known as tables: PyTorch by version, ExecuTorch's CUDA backend, the toolkit's own C host."""

from __future__ import annotations

from aoti_abi.errors import InvalidArgument
from aoti_abi.records import TYPE_CHECKING, NamedTuple
from aoti_abi.versions import KNOWN_TORCH, parse_version

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Literal

    HostKind = Literal["builtin", "torch", "executorch"]


class TableHost(NamedTuple):
    """A host whose symbols are known without a file of it.

    Attributes:
        name: as the user writes it ("torch==2.13").
        kind: what it is.
        version: PyTorch's minor version for "torch", else None.
        provides: whether it defines a symbol of its own API (shims, Sleef); not the C or C++ library's.
    """

    name: str
    kind: HostKind
    version: str | None
    provides: Callable[[str], bool]


def builtin_host() -> TableHost:
    """Return the C host that `aoti_loader` brings."""
    from aoti_abi.builtin_host import BUILTIN_SHIMS

    return TableHost("builtin", "builtin", None, BUILTIN_SHIMS.__contains__)


def executorch_host() -> TableHost:
    """Return ExecuTorch's CUDA backend with its slim shims."""
    from aoti_abi.slim_host import EXECUTORCH_SLIM

    return TableHost("executorch", "executorch", None, EXECUTORCH_SLIM.__contains__)


def torch_host(version: str) -> TableHost:
    """Return PyTorch of one version, by its minor version ("2.13"; a patch level is ignored).

    Raises:
        InvalidArgument: not a version, or one that the shim table does not cover.
    """
    try:
        minor = ".".join(map(str, parse_version(version.partition("+")[0])[:2]))
    except ValueError as error:
        raise InvalidArgument(f"not a PyTorch version: {version!r}", hint="write torch==2.13") from error
    if minor not in KNOWN_TORCH:
        raise InvalidArgument(
            f"the shim table does not cover PyTorch {minor}",
            hint=f"it covers {KNOWN_TORCH[0]} to {KNOWN_TORCH[-1]}; to check a real build, pass "
            "--host PATH/TO/libtorch_cpu.so",
        )
    from aoti_abi.torch_host import provides

    devices = ("common", "cpu", "cuda")
    return TableHost(f"torch=={minor}", "torch", minor, lambda name: provides(name, minor, devices))
