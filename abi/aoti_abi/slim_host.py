"""The host API of ExecuTorch's CUDA backend: the shims over its SlimTensor, by release.

A plugin compiled with ``link_libtorch=False`` and ExecuTorch's options needs no other. ``docs/tables.md``
says what the table was made from: each release's own list of what a plugin may call.
"""

from __future__ import annotations

import os
from functools import lru_cache

from aoti_abi.versions import DATA, parse_version, scanned_releases

_TABLE = "executorch_shims.tsv"

#: The minor versions of ExecuTorch whose shims are known, oldest first; those before have no CUDA backend.
KNOWN_EXECUTORCH: tuple[str, ...] = tuple(release.rpartition(".")[0] for release in scanned_releases(_TABLE))


@lru_cache(maxsize=16)
def slim_shims(release: str) -> frozenset[str]:
    """Return every shim that a release of ExecuTorch offers to plugins.

    Args:
        release: a minor version, as ``"1.4"``.

    Raises:
        ValueError: ``release`` is not one of `KNOWN_EXECUTORCH`.
    """
    if release not in KNOWN_EXECUTORCH:
        known = f"{KNOWN_EXECUTORCH[0]} to {KNOWN_EXECUTORCH[-1]}"
        raise ValueError(f"no table for ExecuTorch {release}; known: {known}")
    number = parse_version(release)
    with open(os.path.join(DATA, _TABLE), "rb") as stream:
        lines = stream.read().decode("ascii").splitlines()[1:]
    found = []
    for line in lines:
        name, first, last, gaps = line.split("\t")
        latest = last or KNOWN_EXECUTORCH[-1]
        if parse_version(first) <= number <= parse_version(latest) and release not in gaps.split(","):
            found.append(name)
    return frozenset(found)


#: The shims of the newest known release.
EXECUTORCH_SLIM: frozenset[str] = slim_shims(KNOWN_EXECUTORCH[-1])
