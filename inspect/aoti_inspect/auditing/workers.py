"""Auditing in worker processes, of which any may be interrupted, or ended by the system."""

from __future__ import annotations

import signal
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing import get_context

from aoti_abi.errors import AccessFailed
from aoti_abi.records import TYPE_CHECKING
from aoti_inspect.auditing.path import audit_path
from aoti_inspect.auditing.result import ArtifactAudit

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aoti_inspect.auditing.result import Settings


def audit_in_workers(paths: list[str], settings: Settings, workers: int) -> Iterator[ArtifactAudit]:
    """Yield the audit of each path, in order.

    A file over which its worker dies (by SIGBUS, as it became shorter while it was mapped; by SIGKILL, as
    memory ran out) is a result with an error; the others are audited all the same.
    """
    size = max(1, len(paths) // (workers * 8))
    done = 0
    try:
        with _pool(workers) as pool:
            # Not pool.map: when it is interrupted it cancels, over which the pool's own thread then trips.
            with _interrupts_held():
                parts = [
                    pool.submit(_audit_part, paths[at : at + size], settings)
                    for at in range(0, len(paths), size)
                ]
            for part in parts:
                audits = part.result()
                done += len(audits)
                yield from audits
    except BrokenProcessPool:
        # Whose fault it was is not known: what is left is done one by one.
        for path in paths[done:]:
            yield _audit_alone(path, settings)


def _audit_part(paths: list[str], settings: Settings) -> list[ArtifactAudit]:
    return [audit_path(path, settings) for path in paths]


def _audit_alone(path: str, settings: Settings) -> ArtifactAudit:
    try:
        with _pool(1) as pool:
            with _interrupts_held():
                future = pool.submit(audit_path, path, settings)
            return future.result()
    except BrokenProcessPool:
        error = AccessFailed(
            "the process that read it was ended by the system",
            hint="see whether something changes the file, or memory ran out; then try again",
        )
        return ArtifactAudit(path, "unreadable", error=error)


@contextmanager
def _pool(workers: int) -> Iterator[ProcessPoolExecutor]:
    # Nothing has started a thread here, so forking is safe, and it saves each worker its imports.
    context = get_context("fork")
    with ProcessPoolExecutor(workers, mp_context=context, initializer=_end_at_interrupt) as pool:
        try:
            yield pool
        except KeyboardInterrupt:
            # Only this process may have been interrupted; leaving the pool would wait for all that is left.
            for worker in context.active_children():
                worker.kill()
            raise


@contextmanager
def _interrupts_held() -> Iterator[None]:
    """Hold Ctrl-C back while workers are born: until they know better they answer it with a traceback."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _end_at_interrupt() -> None:
    """Make Ctrl-C end a worker at once and silently; the parent process answers it."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
