"""Unloading plugins that have C++ ``thread_local`` objects.

The C library keeps a library mapped while a thread lives that made ``thread_local`` objects of it; on the
main thread that is until the process ends. Plugins have such an object: the text of their last error. A
private copy registers it with libaoti_unload.so instead, a small C library (``native/unload/``), which runs
destructors when their thread ends, or when the plugin is closed on that thread.
"""

from __future__ import annotations

import ctypes
import os

from aoti_abi.errors import AotiError
from aoti_loader import linker
from aoti_loader.library_folders import library_folders
from aoti_loader.process import PROCESS

LIBRARY = "libaoti_unload.so"


def _handle() -> int | None:
    """Return the handle of the library, which is opened once; None if it is not installed.

    A plugin's lock may be held, so none is taken: to open it twice does no harm.
    """
    if PROCESS.thread_exit is None:
        PROCESS.thread_exit = _open()
    return PROCESS.thread_exit


def _open() -> int | None:
    for folder in library_folders():
        path = os.path.join(folder, LIBRARY)
        if os.path.isfile(path):
            try:
                return linker.open_library(path, linker.RTLD_NOW | linker.RTLD_GLOBAL)
            except AotiError:
                return None
    return None


def is_available() -> bool:
    """Whether libaoti_unload.so is installed; it is opened globally, so that plugins find its function."""
    return _handle() is not None


def run_destructors(begin: int, end: int) -> int:
    """Run the calling thread's destructors of the library mapped in [begin, end).

    Returns:
        How many objects of it other threads have; 0 means that it may be unmapped.
    """
    handle = _handle()
    address = linker.find_symbol(handle, "aoti_unload_run_destructors") if handle is not None else None
    if address is None:
        return 0
    prototype = ctypes.CFUNCTYPE(ctypes.c_size_t, ctypes.c_void_p, ctypes.c_void_p)
    return int(prototype(address)(begin, end))
