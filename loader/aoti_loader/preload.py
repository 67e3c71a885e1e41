"""What a plugin uses but forgot to name in DT_NEEDED, opened before it (behaviour L7).

A plugin may be linked without its C++ runtime or the CUDA runtime, counting on a host that has them. Opened
with RTLD_GLOBAL they join the lookup scope after everything that is in it, so what the program or the host
defines still wins. Only what a plugin really lacks is opened.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, NamedTuple

from aoti_abi.errors import AccessFailed, AotiError
from aoti_loader import linker
from aoti_loader.cuda import CUDART, find_cudart
from aoti_loader.process import PROCESS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from aoti_inspect.facts.records import PluginFacts
    from aoti_inspect.facts.symbol_families import Family

#: Whose functions each runtime library has.
_RUNTIMES: tuple[tuple[Family, str], ...] = (
    ("c++", "libstdc++"),
    ("libc++", "libc++"),
    ("cuda-runtime", "libcudart"),
)
_LIBCXX = "libc++.so.1"
_LIBSTDCXX = "libstdc++.so.6"


class Preload(NamedTuple):
    """One library that must be in the process before a plugin.

    Attributes:
        library: "libstdc++", "libc++" or "libcudart".
        symbols: up to three of the plugin's symbols that need it.
    """

    library: str
    symbols: tuple[str, ...]


def forgotten(facts: PluginFacts) -> tuple[Preload, ...]:
    """Return which runtimes a plugin uses without naming them in DT_NEEDED."""
    imports = facts.imports
    found = []
    for kind, library in _RUNTIMES:
        # A symbol with a library of its own is that library's business.
        symbols = imports.unversioned(kind)
        if symbols and not imports.needs_library(library):
            found.append(Preload(library, tuple(sorted(symbols)[:3])))
    if any(item.library == "libc++" for item in found):
        # Exceptions and operator new have the same names in both runtimes; libc++ brings its own.
        found = [item for item in found if item.library != "libstdc++"]
    if imports.needs_library("libc++"):
        found = [item for item in found if item.library != "libstdc++"]
    return tuple(found)


def open_forgotten(items: Iterable[Preload], path: str) -> tuple[str, ...]:
    """Open what a plugin forgot; return the files that now provide it.

    Args:
        items: from `forgotten`.
        path: the plugin, for errors.

    Raises:
        AccessFailed: one can't be opened, with the dynamic linker's words, each time it is tried.
    """
    with PROCESS.lock:
        return tuple(_open_runtime(item, path) for item in items)


def open_needed(facts: PluginFacts) -> None:
    """Open what a plugin names in DT_NEEDED before the plugin, locally, and keep it.

    A library that comes in together with a plugin is bound with the plugin's symbols in sight: libstdc++
    would call the plugin's copies of its own inline functions, and could never be parted from it again. What
    can't be opened here is left for the dynamic linker to refuse, in the plugin's name.
    """
    opened = PROCESS.libraries
    with PROCESS.lock:
        for name in facts.elf.needed:
            if name not in opened and name not in facts.imports.libtorch and "/" not in name:
                with contextlib.suppress(AccessFailed):
                    opened[name] = linker.open_library(name, linker.RTLD_LAZY | linker.RTLD_LOCAL)


def open_named(names: Iterable[str], path: str) -> tuple[str, ...]:
    """Open libraries that the caller names, globally and in order; return their files.

    Raises:
        AccessFailed: one can't be opened.
    """
    with PROCESS.lock:
        return tuple(_open(name, path, f"the preload {name!r}", None) for name in names)


def _open_runtime(item: Preload, path: str) -> str:
    why = f"{item.library}, which the plugin uses ({', '.join(item.symbols)}) and does not name in DT_NEEDED"
    if item.library == "libcudart":
        return _open_cudart(path, why)
    name = _LIBCXX if item.library == "libc++" else _LIBSTDCXX
    package = "libc++1" if name == _LIBCXX else "libstdc++6"
    return _open(name, path, why, f"install it ({package} on Debian), or put its folder on LD_LIBRARY_PATH")


def _open(name: str, path: str, what: str, hint: str | None) -> str:
    if name in PROCESS.global_libraries:
        return linker.file_of_handle(PROCESS.libraries[name])
    try:
        handle = linker.open_library(name, linker.RTLD_LAZY | linker.RTLD_GLOBAL)
    except AotiError as error:
        raise AccessFailed(f"cannot open {what}", path=path, cause=error.cause, hint=hint) from None
    PROCESS.libraries[name] = handle
    PROCESS.global_libraries.add(name)
    return linker.file_of_handle(handle)


def _open_cudart(path: str, why: str) -> str:
    hint = "install aoti-toolkit[cuda] with NVIDIA's runtime wheel, or put libcudart on LD_LIBRARY_PATH"
    found = find_cudart()
    candidates = [found] if found else [f"{CUDART}.13", f"{CUDART}.12", CUDART]
    for candidate in candidates[:-1]:
        with contextlib.suppress(AccessFailed):
            return _open(candidate, path, why, hint)
    return _open(candidates[-1], path, why, hint)
