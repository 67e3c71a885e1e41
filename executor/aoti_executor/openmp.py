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
from typing import TYPE_CHECKING, NamedTuple

from aoti_abi.container_api import compiled_by
from aoti_abi.errors import InvalidArgument
from aoti_abi.versions import parse_version

if TYPE_CHECKING:
    from collections.abc import Iterable

    from aoti_inspect.facts.records import PluginFacts

#: Every plugin with OpenMP code was compiled with at least this many threads.
SAFE_TEAM = 2
#: The first PyTorch whose plugins leave the team's size to the process.
FIRST_DYNAMIC = "2.12"

_PARALLEL = re.compile(rb"# ?pragma omp parallel(?! for num_threads| num_threads)")
# Arrays with one slot per thread, and the count that templates share their buffers out by.
_SIZED = re.compile(rb"(?:\b\w+_arr\[|\bnum_threads? ?= ?)(\d+)[\];]")


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
    parallel = [source for source in sources if _PARALLEL.search(source)]
    if not parallel:
        return None
    found = [int(match[1]) for source in parallel for match in _SIZED.finditer(source)]
    return min((count for count in found if count), default=0)


def needs_limit(facts: PluginFacts) -> bool:
    """Whether a plugin has OpenMP code whose team size the process decides.

    Plugins of 2.10 to 2.12 can't be told apart, so all of them count as of 2.12.
    """
    if not any(symbol.name.startswith("GOMP_parallel") for symbol in facts.elf.undefined):
        return False
    compiler = compiled_by(frozenset(facts.elf.exports.container))
    return compiler is None or parse_version(compiler.newest) >= parse_version(FIRST_DYNAMIC)


def hold_teams(facts: PluginFacts, threads: int | None, from_source: int | None = None) -> OpenMP | None:
    """Decide how large a plugin's OpenMP teams may be.

    Args:
        facts: of the plugin.
        threads: what the user asks for; None for what is known to be safe.
        from_source: what `team_limit_from_source` found.

    Returns:
        The limit and where to apply it; None if there is nothing to limit.

    Raises:
        InvalidArgument: ``threads`` is not a positive number.
    """
    if threads is not None:
        if not isinstance(threads, int) or isinstance(threads, bool) or threads < 1:
            raise InvalidArgument(f"threads is {threads!r}; it is a number of at least 1, or None")
        return OpenMP(threads, *runtime())
    if not needs_limit(facts):
        return None
    limit = SAFE_TEAM if from_source is None else from_source
    return OpenMP(limit, *runtime()) if limit else None


def runtime() -> tuple[int, int]:
    """Find ``omp_get_max_threads`` and ``omp_set_num_threads`` where a plugin's own calls go.

    The dynamic linker searches the global scope first and then what the plugin names as needed, so this does.

    Returns:
        Two addresses; zeros if the process has no OpenMP runtime.
    """
    places = [ctypes.CDLL(None)]
    with contextlib.suppress(OSError):
        places.append(ctypes.CDLL("libgomp.so.1", mode=os.RTLD_NOLOAD))  # only what is loaded already
    for place in places:
        try:
            get, set_ = place.omp_get_max_threads, place.omp_set_num_threads
        except AttributeError:
            continue
        return ctypes.cast(get, c_void_p).value or 0, ctypes.cast(set_, c_void_p).value or 0
    return 0, 0
