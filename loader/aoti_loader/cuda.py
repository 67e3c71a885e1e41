"""The CUDA runtime library: where it is, and how the built-in host gets it."""

from __future__ import annotations

import ctypes
import glob
import os
from typing import TYPE_CHECKING

from aoti_loader import linker

if TYPE_CHECKING:
    from aoti_loader.hosts.host import Host

CUDART = "libcudart.so"
_CUDA = 1  # c10::DeviceType
_FOLDERS = ("/usr/local/cuda/lib64", "/usr/local/cuda/targets/*/lib", "/usr/local/cuda-*/lib64")


def find_cudart() -> str | None:
    """Return a CUDA runtime library: one that is loaded already, NVIDIA's wheels', or the toolkit's own.

    The first is what other users of CUDA in this process share; each runtime keeps its own state.
    """
    for major in range(15, 10, -1):
        loaded = linker.is_loaded(f"{CUDART}.{major}") or linker.is_loaded(f"{CUDART}.{major}.0")
        if loaded:
            return loaded
    try:
        from cuda.pathfinder import load_nvidia_dynamic_lib

        found = load_nvidia_dynamic_lib("cudart").abs_path
        if found:
            return str(found)
    except Exception:  # noqa: BLE001, S110 - whatever its searches run into, the next place is tried
        pass
    for folder in _FOLDERS:
        for candidate in sorted(glob.glob(os.path.join(folder, CUDART + "*")), reverse=True):
            return os.path.realpath(candidate)
    return None


def provide_cuda(host: Host, cudart: str | None) -> bool:
    """Let the built-in host reach CUDA devices through a runtime library; return whether it now can.

    Without one, or without a device, the host refuses CUDA tensors when they are asked for.
    """
    has_device, load = host.address("aoti_shim_has_device"), host.address("aoti_shim_load_cuda")
    if has_device is None or load is None:
        return False
    if ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_int32)(has_device)(_CUDA):
        return True
    path = os.fsencode(cudart) if cudart else None
    return not ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_char_p)(load)(path)
