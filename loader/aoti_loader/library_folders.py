"""Where the toolkit's own C libraries are."""

from __future__ import annotations

import os

from aoti_abi.errors import NotFound

#: Names the built-in host's library of a development build; the others are looked for beside it.
OVERRIDE = "AOTI_SHIM_PATH"


def overridden() -> str | None:
    """Return the library that ``AOTI_SHIM_PATH`` names, or None if it is not set.

    Raises:
        NotFound: it names no file.
    """
    value = os.environ.get(OVERRIDE)
    if not value:
        return None
    path = os.path.abspath(value)
    if not os.path.isfile(path):
        raise NotFound(f"{OVERRIDE} names no file", path=path, hint="correct it, or unset it")
    return path


def library_folders() -> tuple[str, ...]:
    """Return the folders that may hold the toolkit's C libraries, the likeliest first."""
    import aoti_loader

    override = os.environ.get(OVERRIDE)
    folders = [os.path.dirname(os.path.abspath(override))] if override else []
    # An editable install has the sources in one folder and the built libraries in another.
    folders += [os.path.join(os.path.abspath(folder), "lib") for folder in aoti_loader.__path__]
    return tuple(folders)
