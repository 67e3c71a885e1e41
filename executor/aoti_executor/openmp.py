"""The size of a plugin's OpenMP teams, held to what is safe (`aoti_inspect.facts.openmp`)."""

from __future__ import annotations

import contextlib
import ctypes
import os
from ctypes import c_void_p
from typing import TYPE_CHECKING, NamedTuple

from aoti_abi.errors import InvalidArgument

if TYPE_CHECKING:
    from aoti_inspect.facts.records import PluginFacts


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


def hold_teams(facts: PluginFacts, threads: int | None) -> OpenMP | None:
    """Decide how large a plugin's OpenMP teams may be.

    Args:
        facts: of the plugin.
        threads: what the user asks for; None for what is known to be safe.

    Returns:
        The limit and where to apply it; None if there is nothing to limit.

    Raises:
        InvalidArgument: ``threads`` is not a positive number.
    """
    if threads is not None:
        if not isinstance(threads, int) or isinstance(threads, bool) or threads < 1:
            raise InvalidArgument(f"threads is {threads!r}; it is a number of at least 1, or None")
        return OpenMP(threads, *runtime())
    return None if facts.openmp_team is None else OpenMP(facts.openmp_team, *runtime())


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
