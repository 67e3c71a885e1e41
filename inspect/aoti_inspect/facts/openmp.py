"""How large a plugin's OpenMP teams may be.

PyTorch 2.12 and later compile kernels with a plain ``#pragma omp parallel`` when they are compiled with as
many threads as the machine has CPUs (the default), yet size their per-thread arrays with that number, which
nothing records. A larger team writes past the arrays: a crash on any machine with more cores than the
compiler's. A smaller team is right: work is shared out with ``omp for`` and unused slots keep their initial
value.

So a limit is needed, and 2 is one that always holds: a compiler with one thread emits no parallel region at
all, so a plugin that has one was compiled with at least two. The source that Inductor generated, where it is
there, has the number. Plugins of PyTorch 2.11 and before fix the team's size in the code and need no limit.
"""

from __future__ import annotations

from aoti_abi.container_api import compiled_by
from aoti_abi.records import TYPE_CHECKING
from aoti_abi.versions import parse_version

if TYPE_CHECKING:
    from collections.abc import Iterable

    from aoti_inspect.elf.records import ElfFacts

#: Every plugin with OpenMP code was compiled with at least this many threads.
SAFE_TEAM = 2
#: The first PyTorch whose plugins leave the team's size to the process.
FIRST_DYNAMIC = "2.12"

#: What compilers call to start a region, by how the names begin: GCC's runtime, and LLVM's.
_STARTERS = ("GOMP_parallel", "__kmpc_fork_call")

_PARALLEL = rb"# ?pragma omp parallel(?! for num_threads| num_threads)"
# Arrays with one slot per thread, and the count that templates share their buffers out by.
_SIZED = rb"(?:_arr\[|\bnum_threads? ?= ?)(\d{1,9})[\];]"


def find_safe_team(elf: ElfFacts, sources: Iterable[bytes]) -> int | None:
    """Return the largest OpenMP team that is known to be safe; None for no limit.

    Args:
        elf: the plugin.
        sources: the C++ that Inductor generated for it, if that is there.
    """
    if not needs_limit(elf):
        return None
    told = team_from_sources(sources)
    return SAFE_TEAM if told is None else told or None


def starters(elf: ElfFacts) -> list[str]:
    """Return the functions that a plugin starts OpenMP regions with: of GCC's runtime, or of LLVM's."""
    return [symbol.name for symbol in elf.undefined if symbol.name.startswith(_STARTERS)]


def uses_openmp(elf: ElfFacts) -> bool:
    """Whether a plugin starts OpenMP regions."""
    return bool(starters(elf))


def needs_limit(elf: ElfFacts) -> bool:
    """Whether a plugin has OpenMP code whose team size the process decides.

    Plugins of 2.10 to 2.12 can't be told apart, so all of them count as of 2.12.
    """
    if not uses_openmp(elf):
        return False
    compiler = compiled_by(frozenset(elf.exports.container))
    return compiler is None or parse_version(compiler.newest) >= parse_version(FIRST_DYNAMIC)


def team_from_sources(sources: Iterable[bytes]) -> int | None:
    """Read from Inductor's generated C++ how many threads it was compiled for.

    Returns:
        The smallest count that sizes something per thread; 0 if nothing is, so that any team is safe; None
        if there is no source to tell.
    """
    import re

    parallel = [source for source in sources if re.search(_PARALLEL, source)]
    if not parallel:
        return None
    found = [int(match[1]) for source in parallel for match in re.finditer(_SIZED, source)]
    return min((count for count in found if count), default=0)
