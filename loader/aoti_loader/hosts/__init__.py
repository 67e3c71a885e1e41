"""The hosts that the loader can open: one module for each, named as users name it.

A module has the functions of `HostModule`; what is known of the host apart from that is in the module of
that name in `aoti_abi.hosts`. Nothing lists the modules: a new host is a new file in each of the packages.
"""

from __future__ import annotations

import os
from functools import lru_cache
from importlib import import_module
from typing import TYPE_CHECKING, Protocol

from aoti_abi.errors import InvalidArgument

if TYPE_CHECKING:
    from aoti_loader.hosts.host import Host
    from aoti_loader.needs import Needs

#: What chooses among the hosts by itself.
AUTO = "auto"

#: Modules of this package that are no hosts.
_OTHERS = frozenset({"host"})


class HostModule(Protocol):
    """What the module of a host has.

    Attributes:
        RANK: in which order `AUTO` tries it in a process that has no host yet, the lowest first; None if only
            a process that has it already takes it by itself.
        OFFER: what to say of it where another host lacks functions, after its name; None if nothing.
    """

    RANK: int | None
    OFFER: str | None

    def find(self) -> str | None:
        """Return the file that provides its shims; None if the process has nothing like it.

        Raises:
            NotFound: it is not installed.
        """

    def present(self) -> str | None:
        """Return its file if it is in the process, whether its symbols are global or not; else None."""

    def owns(self, provider: str) -> bool:
        """Whether a file that provides the host API is this host's."""

    def open_host(self, needs: Needs) -> Host:
        """Open it, locally, for a plugin.

        Raises:
            NotFound: it is not installed.
            AccessFailed: it cannot be opened.
        """

    def equip(self, host: Host, needs: Needs) -> None:
        """Give it what a plugin makes it need, when it was chosen."""


def names() -> tuple[str, ...]:
    """Return the names of all hosts, those first that `AUTO` tries first."""
    return tuple(name for name, _ in _modules(tuple(__path__)))


def choices() -> tuple[str, ...]:
    """Return what may be asked for: `AUTO` and the names of the hosts."""
    return (AUTO, *names())


def modules() -> tuple[tuple[str, HostModule], ...]:
    """Return the name and the module of each host, those first that `AUTO` tries first."""
    return _modules(tuple(__path__))


def module(name: str) -> HostModule:
    """Return the module of a host.

    Raises:
        InvalidArgument: there is no such host.
    """
    for known, found in modules():
        if known == name:
            return found
    raise InvalidArgument(f"no host {name!r}", hint=f"hosts: {', '.join(choices())}")


@lru_cache(maxsize=8)
def _modules(folders: tuple[str, ...]) -> tuple[tuple[str, HostModule], ...]:
    files = {entry.removesuffix(".py") for folder in folders for entry in os.listdir(folder)}
    found: list[tuple[str, HostModule]] = []
    for name in sorted(files - _OTHERS):
        if name.isidentifier() and not name.startswith("_"):
            host: HostModule = import_module(f"{__name__}.{name}")
            found.append((name, host))
    return tuple(sorted(found, key=lambda item: (item[1].RANK is None, item[1].RANK or 0)))
