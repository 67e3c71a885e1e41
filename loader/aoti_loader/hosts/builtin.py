"""The built-in host: the toolkit's own C library, without PyTorch in the process."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from aoti_abi.errors import NotFound
from aoti_abi.hosts.builtin import HOST
from aoti_loader import linker
from aoti_loader.blas import provide_blas
from aoti_loader.cuda import find_cudart, provide_cuda
from aoti_loader.hosts.host import Host, same_file
from aoti_loader.library_folders import library_folders, overridden

if TYPE_CHECKING:
    from aoti_loader.needs import Needs

RANK: int | None = 0
OFFER: str | None = None

#: The file, in the package's ``lib`` folder.
LIBRARY: str = HOST.libraries["cpu"][0]


def find() -> str:
    """Return the file of the built-in host: ``AOTI_SHIM_PATH`` if set, else the package's own.

    Raises:
        NotFound: it is not installed, or ``AOTI_SHIM_PATH`` names no file.
    """
    path = overridden()
    if path is not None:
        return path
    for folder in library_folders():
        path = os.path.join(folder, LIBRARY)
        if os.path.isfile(path):
            return path
    raise NotFound(
        f"the built-in host ({LIBRARY}) is not installed",
        hint="install aoti-toolkit from a wheel, or build native/ with CMake and set AOTI_SHIM_PATH",
    )


def present() -> str | None:
    """Return None: it is in the process only if it is in the global scope."""
    return None


def owns(provider: str) -> bool:
    """Whether a file is the built-in host's."""
    try:
        return same_file(provider, find())
    except NotFound:
        return False


def open_host(_needs: Needs) -> Host:
    """Open the built-in host, locally.

    Raises:
        NotFound: it is not installed.
        AccessFailed: it cannot be opened.
    """
    path = find()
    handle = linker.open_library(path, linker.RTLD_NOW | linker.RTLD_LOCAL)
    return Host(HOST.name, path, (handle,), starts_teams=False, last_error=HOST.last_error)


def equip(host: Host, needs: Needs) -> None:
    """Give it a BLAS if a plugin multiplies matrices, and the CUDA runtime if the plugin uses CUDA."""
    provide_blas(host, needs.shims)
    if needs.uses_cuda:
        provide_cuda(host, find_cudart())
