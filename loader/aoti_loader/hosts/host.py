"""A host that is in the process: whatever provides ``aoti_torch_*`` to plugins.

A plugin's shims are undefined symbols without a library of their own, so the dynamic linker looks for them in
the global scope only (and in what the plugin names in DT_NEEDED). A host that is to serve a plugin must
therefore be opened with RTLD_GLOBAL. It is opened locally first, asked for every shim, and made global only
when it was chosen, so that a host that does not fit leaves no symbol behind.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from aoti_abi.errors import NotFound
from aoti_abi.prototypes import bind, shim_prototype
from aoti_inspect.text import decode
from aoti_loader import linker

if TYPE_CHECKING:
    import ctypes
    from collections.abc import Iterable

#: Every provider of the host API has it; used to find out whose is in the global scope.
WITNESS = "aoti_torch_delete_tensor_object"


class Host:
    """A host that is in the process.

    Attributes:
        name: the name of its module in `aoti_loader.hosts`.
        path: the library that provides the shims; None for "process" if nothing does.
        version: the PyTorch that it is, as ``"2.13.0+cpu"``; None if it is none, or not known.
        starts_teams: whether its own operators may run in OpenMP teams, which a forked child has lost.

    Args:
        name: as above.
        path: as above.
        handles: its open libraries, in the order in which symbols are looked up; none for the global scope.
        version: as above.
        starts_teams: as above.
        last_error: its functions that return, and forget, the text of a thread's last error; None if it
            keeps none.
    """

    def __init__(
        self,
        name: str,
        path: str | None,
        handles: tuple[int, ...],
        *,
        version: str | None = None,
        starts_teams: bool = True,
        last_error: tuple[str, str] | None = None,
    ) -> None:
        self.name = name
        self.path = path
        self.version = version
        self.starts_teams = starts_teams
        self._handles = handles
        self._last_error = last_error
        self._functions: dict[str, Any] = {}
        self._libraries: tuple[ctypes.CDLL, ...] = ()

    def __repr__(self) -> str:
        return f"<Host {self.name} {self.path or ''}>"

    @property
    def is_kept(self) -> bool:
        """Whether it was opened here, so that it stays what it is; the program may change its own."""
        return bool(self._handles)

    def provides(self, name: str) -> bool:
        """Whether the host defines a symbol."""
        return self.address(name) is not None

    def address(self, name: str) -> int | None:
        """Return where a symbol of the host is, or None."""
        for handle in self._handles or (None,):
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
        if self.version:
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
        raise NotFound(f"the {self.name} host has no {name}", path=self.path)

    def last_error(self) -> str | None:
        """Return this thread's last error in the host's own words; None if there is none or it keeps none."""
        address = self.address(self._last_error[0]) if self._last_error else None
        if address is None:
            return None
        import ctypes

        text = ctypes.c_char_p()
        prototype = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.POINTER(ctypes.c_char_p))
        code = prototype(address)(ctypes.byref(text))
        return decode(text.value) if code and text.value else None

    def clear_error(self) -> None:
        """Forget this thread's last error, so that the next one read is new."""
        address = self.address(self._last_error[1]) if self._last_error else None
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


def global_provider() -> str | None:
    """Return the file that provides the host API in the global scope, or None."""
    address = linker.find_symbol(None, WITNESS)
    return None if address is None else linker.file_of_address(address)


def same_file(one: str, other: str) -> bool:
    """Whether two paths lead to one file; files that are gone are compared by name."""
    try:
        return os.path.samefile(one, other)
    except OSError:
        return os.path.realpath(one) == os.path.realpath(other)
