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

import re
from typing import TYPE_CHECKING, NamedTuple

from aoti_abi.container_api import compiled_by
from aoti_abi.errors import InvalidArgument, NotSupported
from aoti_abi.versions import parse_version

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from aoti_inspect.facts.records import PluginFacts

#: Every plugin with OpenMP code was compiled with at least this many threads.
SAFE_TEAM = 2
#: The first PyTorch whose plugins leave the team's size to the process.
FIRST_DYNAMIC = "2.12"

#: What compilers call to start a region, by how the names begin: GCC's runtime, and LLVM's.
STARTERS = ("GOMP_parallel", "__kmpc_fork_call")

_PARALLEL = re.compile(rb"# ?pragma omp parallel(?! for num_threads| num_threads)")
# Arrays with one slot per thread, and the count that templates share their buffers out by.
_SIZED = re.compile(rb"(?:_arr\[|\bnum_threads? ?= ?)(\d{1,9})[\];]")

_LIMITERS = ("omp_get_max_threads", "omp_set_num_threads")
_MOST_THREADS = (1 << 31) - 1


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


def uses_openmp(facts: PluginFacts) -> bool:
    """Whether a plugin starts OpenMP regions, by the functions of GCC's runtime or of LLVM's."""
    return any(symbol.name.startswith(STARTERS) for symbol in facts.elf.undefined)


def needs_limit(facts: PluginFacts) -> bool:
    """Whether a plugin has OpenMP code whose team size the process decides.

    Plugins of 2.10 to 2.12 can't be told apart, so all of them count as of 2.12.
    """
    if not uses_openmp(facts):
        return False
    compiler = compiled_by(frozenset(facts.elf.exports.container))
    return compiler is None or parse_version(compiler.newest) >= parse_version(FIRST_DYNAMIC)


def hold_teams(
    facts: PluginFacts,
    threads: int | None,
    from_source: int | None,
    binding: Callable[[str], int | None],
) -> OpenMP | None:
    """Decide how large a plugin's OpenMP teams may be.

    Args:
        facts: of the plugin.
        threads: what the user asks for; None for what is known to be safe.
        from_source: what `team_limit_from_source` found.
        binding: where the plugin's calls of a function go, by its name.

    Returns:
        The limit and where to apply it; None if there is nothing to limit.

    Raises:
        InvalidArgument: ``threads`` is not a positive number of an int's size.
        NotSupported: the teams can't be limited: nobody knows the runtime that the plugin uses.
    """
    if threads is not None and (
        not isinstance(threads, int) or isinstance(threads, bool) or not 1 <= threads <= _MOST_THREADS
    ):
        raise InvalidArgument(f"threads is {threads!r}; it is a number of at least 1, or None")
    if not uses_openmp(facts):
        return OpenMP(threads, 0, 0) if threads else None
    limit = threads
    if limit is None:
        limit = (SAFE_TEAM if from_source is None else from_source) if needs_limit(facts) else 0
    return OpenMP(limit, *runtime(facts, binding)) if limit else None


def runtime(facts: PluginFacts, binding: Callable[[str], int | None]) -> tuple[int, int]:
    """Find ``omp_get_max_threads`` and ``omp_set_num_threads`` of the runtime that a plugin uses.

    A process may have several (libgomp, LLVM's libomp, Intel's libiomp5), each with limits of its own. The
    plugin's is the library in which the functions lie that start its regions.

    Returns:
        Two addresses.

    Raises:
        NotSupported: the plugin uses none that is found, more than one, or one without these functions.
    """
    from aoti_loader import linker

    starters = [s.name for s in facts.elf.undefined if s.name.startswith(STARTERS)]
    files = {linker.file_of_address(address) for name in starters if (address := binding(name)) is not None}
    if len(files) != 1 or None in files:
        found = ", ".join(sorted(filter(None, files))) or "none"
        raise _no_limit(facts, f"it uses one OpenMP runtime, and these have its functions: {found}")
    file = files.pop() or ""
    handle = linker.handle_of_file(file)
    get, set_ = (linker.find_symbol(handle, name) for name in _LIMITERS)
    if get is None or set_ is None or {linker.file_of_address(get), linker.file_of_address(set_)} != {file}:
        raise _no_limit(facts, f"{file} has no {' and '.join(_LIMITERS)}")
    return get, set_


def _no_limit(facts: PluginFacts, reason: str) -> NotSupported:
    return NotSupported(
        "the plugin's OpenMP teams can't be held to the size that its arrays have room for",
        path=facts.name,
        cause=reason,
        hint="load libgomp, libomp or libiomp5 before it (preload=), or compile it with cpp.threads=1",
    )
