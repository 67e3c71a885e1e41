"""The size of a plugin's OpenMP teams, held to what is safe (`aoti_inspect.facts.openmp`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from aoti_abi.errors import InvalidArgument, NotSupported
from aoti_inspect.facts.openmp import starters, uses_openmp
from aoti_loader import linker

if TYPE_CHECKING:
    from collections.abc import Callable

    from aoti_inspect.facts.records import PluginFacts

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


def hold_teams(
    facts: PluginFacts, threads: int | None, binding: Callable[[str], int | None]
) -> OpenMP | None:
    """Decide how large a plugin's OpenMP teams may be.

    Args:
        facts: of the plugin.
        threads: what the user asks for; None for what is known to be safe.
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
    limit = threads or facts.openmp_team
    if not limit:
        return None
    return OpenMP(limit, *(runtime(facts, binding) if uses_openmp(facts.elf) else (0, 0)))


def runtime(facts: PluginFacts, binding: Callable[[str], int | None]) -> tuple[int, int]:
    """Find ``omp_get_max_threads`` and ``omp_set_num_threads`` of the runtime that a plugin uses.

    A process may have several (libgomp, LLVM's libomp, Intel's libiomp5), each with limits of its own. The
    plugin's is the library in which the functions lie that start its regions.

    Returns:
        Two addresses.

    Raises:
        NotSupported: the plugin uses none that is found, more than one, or one without these functions.
    """
    addresses = [binding(name) for name in starters(facts.elf)]
    files = {linker.file_of_address(address) for address in addresses if address is not None}
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
