"""The public face of a package: names that are imported when they are first asked for."""

from __future__ import annotations

import sys
from importlib import import_module

from aoti_abi.records import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any


def lazy_face(package: str, homes: dict[str, str]) -> Callable[[str], Any]:
    """Return the ``__getattr__`` of a package whose names are imported when they are asked for.

    Args:
        package: the package's ``__name__``.
        homes: the module below the package that has each name, as ``"module"``, or as ``"module:name"`` if it
            has another name there. ``__version__`` is always there.
    """
    sources = {name: f"{package}.{home}" for name, home in homes.items()}
    sources["__version__"] = "aoti_abi.release:VERSION"

    def get(name: str) -> Any:
        if name not in sources:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module, _, own = sources[name].partition(":")
        value = getattr(import_module(module), own or name)
        setattr(sys.modules[package], name, value)
        return value

    return get
