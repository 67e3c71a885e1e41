"""The version of the installed toolkit; it is looked up when this module is imported."""

from __future__ import annotations

import os
import sys
from contextlib import suppress

_DISTRIBUTION = "aoti-toolkit"


def _installed_version() -> str:
    """Return the version that the package was installed under; ``"unknown"`` if it was not installed.

    The folder that an installer writes is named for it. Looking for that folder takes less than a
    millisecond; ``import importlib.metadata`` takes 35, as long as an audit.
    """
    prefix, suffix = f"{_DISTRIBUTION.replace('-', '_')}-", ".dist-info"
    for folder in sys.path:
        with suppress(OSError):
            for name in os.listdir(folder or os.curdir):
                if name.startswith(prefix) and name.endswith(suffix):
                    return name[len(prefix) : -len(suffix)]
    from importlib import metadata  # it also asks importers that are no folders

    try:
        return metadata.version(_DISTRIBUTION)
    except metadata.PackageNotFoundError:
        return "unknown"


VERSION = _installed_version()
