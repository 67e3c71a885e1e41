"""The hosts that are known without a file of them: one module for each family, named as users name it.

A module of this package has a `HostDescriptor` called ``HOST``. Nothing lists the modules: a new family is a
new file here, and one in `aoti_loader.hosts` if the loader can open it.
"""

from __future__ import annotations

import os
from functools import lru_cache
from importlib import import_module

from aoti_abi.host_descriptor import KnownHost
from aoti_abi.records import TYPE_CHECKING

if TYPE_CHECKING:
    from aoti_abi.host_descriptor import HostDescriptor

_MARK = "=="


@lru_cache(maxsize=64)
def family(name: str) -> HostDescriptor | None:
    """Return a family of hosts by its name ("torch"); None if there is none of that name."""
    if name not in families():
        return None
    host: HostDescriptor = import_module(f"{__name__}.{name}").HOST
    return host


def families() -> tuple[str, ...]:
    """Return the names of all families, sorted."""
    return _modules(tuple(__path__))


@lru_cache(maxsize=8)
def _modules(folders: tuple[str, ...]) -> tuple[str, ...]:
    names = {entry.removesuffix(".py") for folder in folders for entry in os.listdir(folder)}
    return tuple(sorted(name for name in names if name.isidentifier() and not name.startswith("_")))


def find(name: str) -> KnownHost | None:
    """Return a host by its name: ``"builtin"``, ``"torch==2.13"``, ``"torch==2.13.0+cpu"``.

    Returns:
        None if it names no family, or a family without the version that it needs.

    Raises:
        InvalidArgument: the version is none, or one that the tables do not cover.
    """
    stem, mark, version = name.partition(_MARK)
    host = family(stem)
    if host is None:
        return None
    if mark:
        return KnownHost(host, host.release(version), version.partition("+")[2])
    if host.versions and host.default_version is None:
        return None
    return KnownHost(host, host.default_version)


def audited() -> tuple[str, ...]:
    """Return the names of the hosts that an audit shows unasked: family by family, oldest version first."""
    found: list[str] = []
    for name in families():
        host = family(name)
        found += host.audited if host is not None else ()
    return tuple(found)


def spellings() -> tuple[str, ...]:
    """Return how a host of each family is written: ``builtin``, ``torch==X.Y``."""
    found = []
    for name in families():
        host = family(name)
        if host is not None:
            needs_version = host.versions and host.default_version is None
            found.append(f"{name}{_MARK}X.Y" if needs_version else name)
            if host.default_version is not None:
                found.append(f"{name}{_MARK}X.Y")
    return tuple(found)
