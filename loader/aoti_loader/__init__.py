"""Load AOTInductor plugins: choose a host, preload, mend a private copy, open it, bind its functions.

    import aoti_loader

    with aoti_loader.load("model.so") as plugin:
        print(plugin.host, plugin.features["weight-sharing"].available)

`load` loads into this process, `probe` into a child process that may crash. Tensors, weights and runs are the
business of `aoti_executor`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aoti_loader.hosts import Host
from aoti_loader.loading import load
from aoti_loader.plugin import Lease, Plugin

if TYPE_CHECKING:
    from aoti_loader.probing import Probe, probe

__all__ = ["Host", "Lease", "Plugin", "Probe", "load", "probe"]


def __getattr__(name: str) -> Any:
    """Import `probe` when it is asked for: it brings subprocess and json along."""
    if name not in ("probe", "Probe"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from aoti_loader import probing

    return getattr(probing, name)
