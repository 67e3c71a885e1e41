"""Load AOTInductor plugins: choose a host, preload, mend a private copy, open it, bind its functions.

    import aoti_loader

    with aoti_loader.load("model.so") as plugin:
        print(plugin.host, plugin.features["weight-sharing"].available)

`load` loads into this process, `probe` into a child process that may crash. Public is what ``__all__`` lists:
these two, `load_source` for a plugin in memory or in a package, and what they return. Tensors, weights and
runs are the business of `aoti_executor`.
"""

from __future__ import annotations

from aoti_abi.face import lazy_face
from aoti_abi.records import TYPE_CHECKING

if TYPE_CHECKING:
    from aoti_loader.hosts.host import Host
    from aoti_loader.loading import load
    from aoti_loader.plugin import Lease, Plugin
    from aoti_loader.probing import Probe, probe

    __version__: str

__all__ = ["Host", "Lease", "Plugin", "Probe", "__version__", "load", "probe"]

__getattr__ = lazy_face(
    __name__,
    {
        "Host": "hosts.host",
        "Lease": "plugin",
        "Plugin": "plugin",
        "Probe": "probing",
        "load": "loading",
        "probe": "probing",
    },
)
