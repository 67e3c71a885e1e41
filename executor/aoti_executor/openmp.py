"""The size of a plugin's OpenMP teams.

PyTorch 2.12 and later compile kernels with a plain ``#pragma omp parallel`` when they are compiled with as
many threads as the machine has CPUs (the default), yet size their per-thread arrays with that number, which
nothing records. A larger team writes past the arrays: a crash on any machine with more cores than the
compiler's. A smaller team is right: work is shared out with ``omp for`` and unused slots keep their initial
value.

So a limit is needed, and 2 is one that always holds: a compiler with one thread emits no parallel region at
all, so a plugin that has one was compiled with at least two. Whoever knows more (the package's generated
source, the user) may raise it. Plugins of PyTorch 2.11 and before fix the team's size in the code and need
no limit.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
from ctypes import c_void_p
from typing import TYPE_CHECKING, Any, NamedTuple

from aoti_abi.versions import parse_version

if TYPE_CHECKING:
    from collections.abc import Iterable

#: Every plugin with OpenMP code was compiled with at least this many threads.
SAFE_TEAM = 2
#: The first PyTorch whose plugins leave the team's size to the process.
FIRST_DYNAMIC = "2.12"

_ARRAY = re.compile(rb"\b\w+_arr\[(\d+)\]")
_FIXED = re.compile(rb"#pragma omp parallel(?: for)? num_threads\((\d+)\)")
_PARALLEL = re.compile(rb"#pragma omp parallel(?! for num_threads| num_threads)")
_THREADS = re.compile(rb"\bnum_threads?\s*=\s*(\d+)\s*;")


class OpenMP(NamedTuple):
    """How a plugin's teams are held to a size.

    Attributes:
        max_threads: the largest team; 0 for no limit.
        get_max_threads, set_num_threads: addresses in the OpenMP runtime that the plugin uses; 0 if it has
            no OpenMP code.
    """

    max_threads: int
    get_max_threads: int
    set_num_threads: int


def team_limit_from_source(sources: Iterable[bytes]) -> int | None:
    """Read from Inductor's generated C++ how many threads it was compiled for.

    Returns:
        The smallest count that sizes something per thread; 0 if nothing is, so that any team is safe; None
        if there is no source to tell.
    """
    found = False
    counts: list[int] = []
    for source in sources:
        if b'extern "C"' not in source and b"#pragma omp" not in source:
            continue
        found = True
        if _PARALLEL.search(source):
            counts += [int(match[1]) for match in _ARRAY.finditer(source)]
            counts += [int(match[1]) for match in _THREADS.finditer(source)]
    if not found:
        return None
    return min(counts, default=0)


def needs_limit(undefined: Iterable[str], newest_torch: str | None) -> bool:
    """Whether a plugin has OpenMP code whose team size the process decides.

    Args:
        undefined: the symbols that the plugin imports.
        newest_torch: the newest PyTorch that can have compiled it (2.10 to 2.12 can't be told apart); None if
            unknown.
    """
    if not any(name.startswith("GOMP_parallel") for name in undefined):
        return False
    return newest_torch is None or parse_version(newest_torch) >= parse_version(FIRST_DYNAMIC)


def runtime(library: Any = None) -> tuple[int, int]:
    """Find ``omp_get_max_threads`` and ``omp_set_num_threads`` where a plugin's own calls go.

    The dynamic linker searches the global scope first and then what the plugin names as needed, so this does.

    Returns:
        Two addresses; zeros if the process has no OpenMP runtime.
    """
    places = [ctypes.CDLL(None)]
    if library is not None:
        places.append(library)
    else:
        with contextlib.suppress(OSError):
            places.append(ctypes.CDLL("libgomp.so.1", mode=os.RTLD_NOLOAD))  # only what is loaded already
    for place in places:
        try:
            get, set_ = place.omp_get_max_threads, place.omp_set_num_threads
        except AttributeError:
            continue
        return ctypes.cast(get, c_void_p).value or 0, ctypes.cast(set_, c_void_p).value or 0
    return 0, 0
