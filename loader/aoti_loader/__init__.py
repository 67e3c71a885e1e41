"""Load AOTInductor plugins: choose a host, preload, mend a private copy, open it, bind its functions.

    import aoti_loader

    with aoti_loader.load("model.so") as plugin:
        print(plugin.host, plugin.features["weight-sharing"].available)

`load` loads into this process, `probe` into a child process that may crash. Tensors, weights and runs are the
business of `aoti_executor`.
"""

from __future__ import annotations

from aoti_loader.hosts import Host
from aoti_loader.loading import load, load_source
from aoti_loader.plugin import Lease, Plugin

__all__ = ["Host", "Lease", "Plugin", "load", "load_source"]
