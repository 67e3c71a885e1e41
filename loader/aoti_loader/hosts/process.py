"""What the program has made global itself as a host, as an embedder provides it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aoti_abi.hosts.builtin import HOST as BUILTIN
from aoti_loader.hosts.host import Host, global_provider

if TYPE_CHECKING:
    from aoti_loader.needs import Needs

#: Never tried where nothing is: a process without a provider has no shims.
RANK: int | None = None
OFFER: str | None = None


def find() -> str | None:
    """Return the file that provides the host API in the global scope, or None."""
    return global_provider()


def present() -> str | None:
    """Return None: it is in the process only if it is in the global scope."""
    return None


def owns(_provider: str) -> bool:
    """Whether a file is this host's: any may be, but those of other hosts are theirs."""
    return False


def open_host(_needs: Needs) -> Host:
    """Return the host that the process already has in its global scope."""
    # Nothing keeps an embedder from linking the built-in host's library.
    return Host("process", global_provider(), (), last_error=BUILTIN.last_error)


def equip(_host: Host, _needs: Needs) -> None:
    """Do nothing: the program has what it wants its plugins to have."""
