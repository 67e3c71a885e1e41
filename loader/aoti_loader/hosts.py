"""Hosts: whatever provides ``aoti_torch_*`` to plugins.

A plugin's shims are undefined symbols without a library of their own, so the dynamic linker looks for them in
the global scope only (and in what the plugin names in DT_NEEDED). A host that is to serve a plugin must
therefore be opened with RTLD_GLOBAL. It is opened locally first, asked for every shim, and made global only
when it was chosen, so that a host that does not fit leaves no symbol behind.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any, Literal

from aoti_abi.errors import AccessFailed, AotiError, InvalidArgument, NotFound
from aoti_abi.prototypes import bind, shim_prototype
from aoti_abi.torch_host import LIBRARIES, NEEDED_NAMES
from aoti_inspect.text import decode
from aoti_loader import linker
from aoti_loader.library_folders import library_folders, overridden

if TYPE_CHECKING:
    import ctypes
    from collections.abc import Iterable

HostKind = Literal["builtin", "torch", "process"]

#: The built-in host's file, in the package's ``lib`` folder.
BUILTIN_LIBRARY = "libaoti_shim.so"

#: Every provider of the host API has it; used to find out whose is in the global scope.
WITNESS = "aoti_torch_delete_tensor_object"


class Host:
    """A host that is in the process.

    Attributes:
        kind: "builtin", "torch" or "process".
        path: the library that provides the shims; None for "process" if nothing does.
        version: PyTorch's version for "torch", as ``"2.13.0+cpu"``; None if it is not known.
    """

    def __init__(
        self, kind: HostKind, path: str | None, handles: tuple[int, ...], version: str | None = None
    ) -> None:
        self.kind: HostKind = kind
        self.path = path
        self.version = version
        self._handles = handles
        self._functions: dict[str, Any] = {}
        self._libraries: tuple[ctypes.CDLL, ...] = ()

    def __repr__(self) -> str:
        return f"<Host {self.kind} {self.path or ''}>"

    def provides(self, name: str) -> bool:
        """Whether the host defines a symbol."""
        return self.address(name) is not None

    def address(self, name: str) -> int | None:
        """Return where a symbol of the host is, or None."""
        if self.kind == "process":
            return linker.find_symbol(None, name)
        for handle in self._handles:
            address = linker.find_symbol(handle, name)
            if address is not None:
                return address
        return None

    def missing(self, names: Iterable[str]) -> tuple[str, ...]:
        """Return those names that the host does not define, in order (behaviour L13)."""
        return tuple(name for name in names if self.address(name) is None)

    def function(self, name: str) -> Any:
        """Return a shim as a ctypes function with its prototype set; the same object each time.

        Raises:
            NotFound: the host lacks it, or no PyTorch has a shim of that name.
            NotSupported: a C++ value crosses it.
        """
        found = self._functions.get(name)
        if found is not None:
            return found
        version = None
        if self.kind == "torch" and self.version:
            version = ".".join(self.version.split("+")[0].split(".")[:2])
        prototype = shim_prototype(name, version)
        if not self._libraries:
            handles = self._handles or (linker.process_handle(),)
            self._libraries = tuple(linker.library(handle) for handle in handles)
        for library in self._libraries:
            function = bind(library, name, prototype)
            if function is not None:
                self._functions[name] = function
                return function
        raise NotFound(f"the {self.kind} host has no {name}", path=self.path)

    def last_error(self) -> str | None:
        """Return this thread's last error in the host's own words; None if there is none or it keeps none."""
        if self.kind == "torch":
            return None
        address = self.address("aoti_shim_last_error")
        if address is None:
            return None
        import ctypes

        text = ctypes.c_char_p()
        prototype = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.POINTER(ctypes.c_char_p))
        code = prototype(address)(ctypes.byref(text))
        return decode(text.value) if code and text.value else None

    def clear_error(self) -> None:
        """Forget this thread's last error, so that the next one read is new."""
        address = None if self.kind == "torch" else self.address("aoti_shim_clear_error")
        if address is not None:
            import ctypes

            ctypes.CFUNCTYPE(None)(address)()

    def make_global(self) -> None:
        """Let plugins find the host's symbols; it stays so for the life of the process.

        Raises:
            AccessFailed: the dynamic linker refused.
        """
        for handle in self._handles:
            path = linker.file_of_handle(handle)
            linker.open_library(path, linker.RTLD_LAZY | linker.RTLD_NOLOAD | linker.RTLD_GLOBAL)

    def discard(self) -> None:
        """Close a host that was opened but not chosen."""
        for handle in reversed(self._handles):
            linker.close_library(handle)
        self._handles = ()


def find_builtin() -> str:
    """Return the file of the built-in host: ``AOTI_SHIM_PATH`` if set, else the package's own.

    Raises:
        NotFound: it is not installed, or ``AOTI_SHIM_PATH`` names no file.
    """
    path = overridden()
    if path is not None:
        return path
    for folder in library_folders():
        path = os.path.join(folder, BUILTIN_LIBRARY)
        if os.path.isfile(path):
            return path
    raise NotFound(
        f"the built-in host ({BUILTIN_LIBRARY}) is not installed",
        hint="install aoti-toolkit from a wheel, or build shim/ with CMake and set AOTI_SHIM_PATH",
    )


def find_torch() -> str:
    """Return the ``lib`` folder of the installed PyTorch, found without importing it.

    Raises:
        NotFound: there is no PyTorch, or it has no libtorch_cpu.so.
    """
    from importlib.machinery import PathFinder

    spec = PathFinder.find_spec("torch")
    locations = list(spec.submodule_search_locations or ()) if spec else []
    if not locations:
        raise NotFound("PyTorch is not installed", hint="pip install torch, or use a host that is here")
    folder = os.path.join(os.path.abspath(locations[0]), "lib")
    if not os.path.isfile(os.path.join(folder, LIBRARIES["cpu"][0])):
        raise NotFound("PyTorch's folder has no libtorch_cpu.so", path=folder)
    return folder


def torch_version(folder: str) -> str | None:
    """Return the version of the PyTorch whose ``lib`` folder this is, read from its ``version.py``."""
    try:
        with open(os.path.join(os.path.dirname(folder), "version.py"), encoding="utf-8") as stream:
            match = re.search(r"^__version__ = ['\"]([^'\"]+)['\"]", stream.read(1 << 16), re.MULTILINE)
    except (OSError, UnicodeDecodeError):
        return None
    return match[1] if match else None


def open_builtin() -> Host:
    """Open the built-in host, locally.

    Raises:
        NotFound: it is not installed.
        AccessFailed: it cannot be opened.
    """
    path = find_builtin()
    handle = linker.open_library(path, linker.RTLD_NOW | linker.RTLD_LOCAL)
    return Host("builtin", path, (handle,))


def open_torch(needed: Iterable[str] = (), *, cuda: bool = False) -> Host:
    """Open LibTorch of the installed PyTorch, locally, without importing it.

    Args:
        needed: a plugin's DT_NEEDED; those that LibTorch ships are opened too, by their full path.
        cuda: whether the plugin needs the shims of the CUDA build.

    Raises:
        NotFound: PyTorch is not installed.
        AccessFailed: one of its libraries cannot be opened.
    """
    folder = find_torch()
    names = list(LIBRARIES["cpu"])
    if cuda:
        names += LIBRARIES["cuda"]
    names += [name for name in needed if name in NEEDED_NAMES and name not in names]
    handles = []
    for name in names:
        path = os.path.join(folder, name)
        if not os.path.isfile(path):
            if name in LIBRARIES["cuda"]:
                continue  # a CPU build: what it lacks shows in the list of missing shims
            raise AccessFailed(f"PyTorch ships no {name}, which the plugin names", path=folder)
        handles.append(linker.open_library(path, linker.RTLD_LAZY | linker.RTLD_LOCAL))
    return Host("torch", os.path.join(folder, names[0]), tuple(handles), torch_version(folder))


def open_process() -> Host:
    """Return the host that the process already has in its global scope, as an embedder provides it."""
    return Host("process", global_provider(), ())


def global_provider() -> str | None:
    """Return the file that provides the host API in the global scope, or None."""
    address = linker.find_symbol(None, WITNESS)
    return None if address is None else linker.file_of_address(address)


def loaded_libtorch() -> str | None:
    """Return the file of LibTorch if the process has loaded it, globally or not (``import torch`` does)."""
    return linker.is_loaded(LIBRARIES["cpu"][0])


def open_host(kind: str, needed: Iterable[str] = (), *, cuda: bool = False) -> Host:
    """Open a host by its kind.

    Raises:
        InvalidArgument: there is no such kind.
        AotiError: it cannot be opened.
    """
    if kind == "builtin":
        return open_builtin()
    if kind == "torch":
        return open_torch(needed, cuda=cuda)
    if kind == "process":
        return open_process()
    raise InvalidArgument(f"no host {kind!r}", hint="hosts: auto, builtin, torch, process")


def try_open(kind: str, needed: Iterable[str], *, cuda: bool) -> Host | AotiError:
    """Open a host, or return why it can't be."""
    try:
        return open_host(kind, needed, cuda=cuda)
    except AotiError as error:
        return error
