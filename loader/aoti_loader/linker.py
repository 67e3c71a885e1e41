"""The dynamic linker's own functions: open, look up, close, and who is in the process.

`ctypes.CDLL` would do for opening, but it can neither close a library nor say which file defines a symbol.
"""

from __future__ import annotations

import ctypes
import os
from functools import lru_cache
from typing import Any, NamedTuple

from aoti_abi.errors import AccessFailed
from aoti_abi.lifetimes import refuse_subinterpreter
from aoti_inspect.text import decode

refuse_subinterpreter("aoti_loader")

RTLD_LAZY: int = os.RTLD_LAZY
RTLD_NOW: int = os.RTLD_NOW
RTLD_LOCAL: int = os.RTLD_LOCAL
RTLD_GLOBAL: int = os.RTLD_GLOBAL
RTLD_NOLOAD: int = os.RTLD_NOLOAD
RTLD_DEEPBIND: int = os.RTLD_DEEPBIND


class _Info(ctypes.Structure):
    """``Dl_info`` of ``dlfcn.h``."""

    _fields_ = (
        ("file", ctypes.c_char_p),
        ("base", ctypes.c_void_p),
        ("symbol", ctypes.c_char_p),
        ("address", ctypes.c_void_p),
    )


class Opened(ctypes.c_void_p):
    """A handle that nobody has taken yet: it is closed with this object.

    It is what ``dlopen`` itself returns: a signal's handler may raise before the result has a name.
    """

    def take(self) -> int:
        """Return the handle, which the caller closes from now on."""
        handle, self.value = self.value or 0, None
        return handle

    def close(self) -> None:
        """Close it now, if nobody took it."""
        handle = self.take()
        if handle:
            _libc().dlclose(handle)

    def __del__(self) -> None:
        self.close()


class _LinkMap(ctypes.Structure):
    """The public head of ``struct link_map`` of ``link.h``, which a handle of glibc and musl points to."""

    _fields_ = (("base", ctypes.c_void_p), ("name", ctypes.c_char_p), ("dynamic", ctypes.c_void_p))


class _Functions(NamedTuple):
    dlopen: Any
    dlsym: Any
    dlclose: Any
    dlerror: Any
    dladdr: Any


@lru_cache(maxsize=1)
def _libc() -> _Functions:
    process = ctypes.CDLL(None)

    def bind(name: str, restype: Any, *argtypes: Any) -> Any:
        function = process[name]
        function.restype, function.argtypes = restype, argtypes
        return function

    handle, text = ctypes.c_void_p, ctypes.c_char_p
    return _Functions(
        bind("dlopen", Opened, text, ctypes.c_int),
        bind("dlsym", handle, handle, text),
        bind("dlclose", ctypes.c_int, handle),
        bind("dlerror", text),
        bind("dladdr", ctypes.c_int, handle, ctypes.POINTER(_Info)),
    )


def _error() -> str:
    words = _libc().dlerror()
    return decode(words) if words else "the dynamic linker gives no reason"


def open_library(path: str, flags: int) -> int:
    """Open a library and return its handle.

    Raises:
        AccessFailed: ``cause`` has the dynamic linker's own words.
    """
    return open_owned(path, flags).take()


def open_owned(path: str, flags: int) -> Opened:
    """Open a library that is closed again unless somebody takes its handle.

    Raises:
        AccessFailed: ``cause`` has the dynamic linker's own words.
    """
    opened: Opened = _libc().dlopen(os.fsencode(path), flags)
    if not opened:
        raise AccessFailed("the dynamic linker refused it", path=path, cause=_error())
    return opened


def is_loaded(name: str) -> str | None:
    """Return the file of a library that the process has loaded, by SONAME or path; None if it has not."""
    opened = _libc().dlopen(os.fsencode(name), RTLD_LAZY | RTLD_NOLOAD)
    if not opened:
        _libc().dlerror()
        return None
    return file_of_handle(int(opened.value))


def handle_of_file(file: str) -> int | None:
    """Return the handle of a library that stays loaded, by its file as the dynamic linker names it."""
    opened = _libc().dlopen(os.fsencode(file), RTLD_LAZY | RTLD_NOLOAD)
    if not opened:
        _libc().dlerror()
        return None
    return int(opened.take())


def close_library(handle: int) -> None:
    """Drop one reference to a library.

    Raises:
        AccessFailed: ``cause`` has the dynamic linker's own words.
    """
    if _libc().dlclose(handle):
        raise AccessFailed("the dynamic linker could not close a library", cause=_error())


def find_symbol(handle: int | None, name: str) -> int | None:
    """Return the address of a symbol in a library and what it depends on, or in the global scope (None)."""
    functions = _libc()
    if handle is None:
        handle = process_handle()
    address = functions.dlsym(handle, name.encode("utf-8", "surrogateescape"))
    if address is None:
        functions.dlerror()
        return None
    return int(address)


@lru_cache(maxsize=1)
def process_handle() -> int:
    """Return the handle of the global scope: the program, what it links, and what was opened globally."""
    return int(_libc().dlopen(None, RTLD_LAZY).take())


def file_of_address(address: int) -> str | None:
    """Return the file whose mapping holds an address, as the dynamic linker names it; None if none does."""
    info = _Info()
    if not _libc().dladdr(address, ctypes.byref(info)) or not info.file:
        return None
    return decode(info.file)


def file_of_handle(handle: int) -> str:
    """Return the file that a handle stands for, as the dynamic linker names it."""
    return decode(_LinkMap.from_address(handle).name or b"")


def base_of_handle(handle: int) -> int:
    """Return where a library was mapped: the difference between its own addresses and the process's."""
    return int(_LinkMap.from_address(handle).base or 0)


def library(handle: int) -> ctypes.CDLL:
    """Return a ctypes view of an open library; it does not own the handle."""
    return ctypes.CDLL(None, handle=handle)
