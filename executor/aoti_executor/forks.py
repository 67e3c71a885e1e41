"""What a forked child may do with models: only what can't wait for a thread that its parent left behind.

Of all threads, ``fork`` copies the one that calls it. Locks that others held stay locked in the child, and
the workers that an OpenMP runtime keeps are gone while the runtime waits for them. So a child looks, before
it runs anything, at what the parent was doing, and refuses what would hang.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING
from weakref import WeakSet

from aoti_abi.errors import InvalidState

if TYPE_CHECKING:
    from aoti_executor.container import Container

#: File names of OpenMP runtimes start so; PyTorch brings one as libgomp-a34b3233.so.1.
_RUNTIMES = ("/libgomp", "/libiomp5", "/libomp")


class _Process:
    """What is known of this process's past.

    Attributes:
        containers: those that live.
        threads: how many threads the process had at its last fork.
        team_lost: whether it is a child whose OpenMP runtime may wait for threads of its parent.
    """

    def __init__(self) -> None:
        self.containers: WeakSet[Container] = WeakSet()
        self.threads = 1
        self.team_lost = False


_PROCESS = _Process()


def watch(container: Container) -> None:
    """Tell a container of forks: its `Container.note_fork` is called in the child."""
    _PROCESS.containers.add(container)


def team_lost() -> bool:
    """Whether OpenMP regions may wait for threads that only the parent has."""
    return _PROCESS.team_lost


def refuse_lost_team(path: str) -> None:
    """Refuse what starts OpenMP regions, where they may never end.

    Raises:
        InvalidState: the process was forked from one that had threads and an OpenMP runtime.
    """
    if _PROCESS.team_lost:
        raise InvalidState(
            "this process was forked from one with OpenMP threads, which it lacks: the plugin would wait for "
            "them for ever",
            path=path,
            hint="start workers with the 'spawn' or 'forkserver' method, or fork before anything runs",
        )


def _before() -> None:
    try:
        _PROCESS.threads = len(os.listdir("/proc/self/task"))
    except OSError:
        _PROCESS.threads = 2  # nothing tells


def _in_child() -> None:
    _PROCESS.team_lost = _PROCESS.team_lost or (_PROCESS.threads > 1 and _has_runtime())
    for container in tuple(_PROCESS.containers):
        container.note_fork()


def _has_runtime() -> bool:
    # From the kernel: another thread may have been inside the dynamic linker.
    try:
        with open("/proc/self/maps", encoding="utf-8", errors="surrogateescape") as maps:
            return any(name in line for line in maps for name in _RUNTIMES)
    except OSError:
        return True


os.register_at_fork(before=_before, after_in_child=_in_child)
