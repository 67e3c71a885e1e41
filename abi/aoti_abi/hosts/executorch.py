"""ExecuTorch's CUDA backend as a host: the shims over its SlimTensor, by ExecuTorch's release.

A plugin compiled with ``link_libtorch=False`` and ExecuTorch's options needs no other. ``docs/tables.md``
says what the table was made from: each release's own list of what a plugin may call.
"""

from __future__ import annotations

import os
from functools import lru_cache

from aoti_abi.host_descriptor import HostDescriptor
from aoti_abi.records import TYPE_CHECKING
from aoti_abi.versions import DATA, parse_version, scanned_releases

if TYPE_CHECKING:
    from aoti_abi.host_descriptor import Provides

_TABLE = "executorch_shims.tsv"

#: The minor versions of ExecuTorch whose shims are known, oldest first; those before have no CUDA backend.
RELEASES: tuple[str, ...] = tuple(release.rpartition(".")[0] for release in scanned_releases(_TABLE))


@lru_cache(maxsize=16)
def slim_shims(release: str) -> frozenset[str]:
    """Return every shim that a release of ExecuTorch offers to plugins.

    Args:
        release: a minor version, as ``"1.4"``.

    Raises:
        ValueError: ``release`` is not one of `RELEASES`.
    """
    if release not in RELEASES:
        raise ValueError(f"no table for ExecuTorch {release}; known: {RELEASES[0]} to {RELEASES[-1]}")
    number = parse_version(release)
    with open(os.path.join(DATA, _TABLE), "rb") as stream:
        lines = stream.read().decode("ascii").splitlines()[1:]
    found = []
    for line in lines:
        name, first, last, gaps = line.split("\t")
        latest = last or RELEASES[-1]
        if parse_version(first) <= number <= parse_version(latest) and release not in gaps.split(","):
            found.append(name)
    return frozenset(found)


def shims_of_any_release() -> frozenset[str]:
    """Return every shim that some known release offers."""
    return frozenset().union(*map(slim_shims, RELEASES))


def _shims(_machine: str, version: str | None) -> Provides:
    return slim_shims(version or RELEASES[-1]).__contains__


HOST = HostDescriptor(
    name="executorch",
    title="ExecuTorch",
    shims=_shims,
    versions=RELEASES,
    default_version=RELEASES[-1],
    audited=("executorch",),
)
