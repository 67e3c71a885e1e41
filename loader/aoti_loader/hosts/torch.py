"""LibTorch of the installed PyTorch as a host: opened by its path, without importing PyTorch."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

from aoti_abi.errors import AccessFailed, NotFound
from aoti_abi.hosts.torch import HOST, LIBRARIES, is_libtorch
from aoti_loader import linker
from aoti_loader.hosts.host import Host

if TYPE_CHECKING:
    from aoti_loader.needs import Needs

#: The last: LibTorch stays in the process once it was opened, and no other host may come in then.
RANK: int | None = 100
OFFER: str | None = "uses an installed PyTorch"


def find() -> str:
    """Return libtorch_cpu.so of the installed PyTorch, found without importing it.

    Raises:
        NotFound: there is no PyTorch, or it has no libtorch_cpu.so.
    """
    from importlib.machinery import PathFinder

    spec = PathFinder.find_spec("torch")
    locations = list(spec.submodule_search_locations or ()) if spec else []
    if not locations:
        raise NotFound("PyTorch is not installed", hint="pip install torch, or use a host that is here")
    folder = os.path.join(os.path.abspath(locations[0]), "lib")
    path = os.path.join(folder, LIBRARIES["cpu"][0])
    if not os.path.isfile(path):
        raise NotFound("PyTorch's folder has no libtorch_cpu.so", path=folder)
    return path


def present() -> str | None:
    """Return the file of LibTorch if the process has loaded it, as ``import torch`` does it, locally."""
    return linker.is_loaded(LIBRARIES["cpu"][0])


def owns(provider: str) -> bool:
    """Whether a file is one of LibTorch's libraries."""
    return is_libtorch(provider)


def version(folder: str) -> str | None:
    """Return the version of the PyTorch whose ``lib`` folder this is, read from its ``version.py``."""
    try:
        with open(os.path.join(os.path.dirname(folder), "version.py"), encoding="utf-8") as stream:
            match = re.search(r"^__version__ = ['\"]([^'\"]+)['\"]", stream.read(1 << 16), re.MULTILINE)
    except (OSError, UnicodeDecodeError):
        return None
    return match[1] if match else None


def open_host(needs: Needs) -> Host:
    """Open LibTorch, locally: what has the shims, and what the plugin names in DT_NEEDED.

    Raises:
        NotFound: PyTorch is not installed.
        AccessFailed: one of its libraries cannot be opened.
    """
    path = find()
    folder = os.path.dirname(path)
    libraries = [*LIBRARIES["cpu"], *(LIBRARIES["cuda"] if needs.cuda_shims else ())]
    libraries += [os.path.basename(entry) for entry in needs.libtorch]
    handles = []
    for library in dict.fromkeys(libraries):
        file = os.path.join(folder, library)
        if not os.path.isfile(file):
            if library in LIBRARIES["cuda"]:
                continue  # a CPU build: what it lacks shows in the list of missing shims
            raise AccessFailed(f"PyTorch ships no {library}, which the plugin names", path=folder)
        handles.append(linker.open_library(file, linker.RTLD_LAZY | linker.RTLD_LOCAL))
    return Host(HOST.name, path, tuple(handles), version=version(folder), last_error=HOST.last_error)


def equip(_host: Host, _needs: Needs) -> None:
    """Do nothing: it has its own BLAS, and its CUDA build the CUDA runtime."""
