"""What the loader keeps for the life of the process, and the order of its locks.

Libraries that were opened for plugins are never closed: what was loaded above them has addresses in them.

Two kinds of locks are taken, in this order:

1. `Process.lock`, while a host or a library enters the process, so that two threads never let two hosts in.
2. the lock of one plugin (`aoti_loader.plugin.Plugin`), while it is held or closed.

With a plugin's lock held, `Process.lock` is never waited for: Python may collect a container wherever memory
is allocated, so a thread that has `Process.lock` may at any time come to want a plugin's. What is needed then
(`Process.waiting`, `Process.thread_exit`) is changed in single steps, which need no lock.
"""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from aoti_loader.blas import Blas
    from aoti_loader.hosts.host import Host
    from aoti_loader.needs import Needs
    from aoti_loader.plugin import Plugin


class Process:
    """The state of the process; `PROCESS` is the only one.

    Attributes:
        lock: held while anything enters the process; a thread may take it again.
        hosts: hosts that are in the global scope, by name and by what a plugin made them open.
        libraries: handles of libraries that were opened for plugins, by the name that was asked for.
        global_libraries: which of ``libraries`` are in the global scope.
        blas: the BLAS that a host was given, by the host's file; None for one that uses its own loops.
        waiting: plugins that were closed while other threads had objects of theirs.
        staging_folder: the private folder for copies on disk, and the process that made it: a child of fork
            makes one of its own.
        thread_exit: the handle of libaoti_unload.so; None if it was not opened.
    """

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.hosts: dict[tuple[str, tuple[str, ...], bool], Host] = {}
        self.libraries: dict[str, int] = {}
        self.global_libraries: set[str] = set()
        self.blas: dict[str | None, Blas | None] = {}
        self.waiting: set[Plugin] = set()
        self.staging_folder: tuple[str, int] | None = None
        self.thread_exit: int | None = None


PROCESS = Process()
# A fork waits for what enters the process, or a child would find the lock taken by a thread that it lacks.
os.register_at_fork(
    before=PROCESS.lock.acquire,
    after_in_parent=PROCESS.lock.release,
    after_in_child=PROCESS.lock.release,
)


def host_key(name: str, needs: Needs) -> tuple[str, tuple[str, ...], bool]:
    """Return the key of `Process.hosts` for a host that is opened for what a plugin needs."""
    return name, needs.libtorch, needs.cuda_shims
