"""Auditing in worker processes, of which any may be interrupted, or ended by the system."""

from __future__ import annotations

import signal
import sys
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from multiprocessing import active_children, get_context

from aoti_abi.errors import AccessFailed
from aoti_abi.records import TYPE_CHECKING
from aoti_inspect.auditing.path import audit_path
from aoti_inspect.auditing.result import ArtifactAudit
from aoti_inspect.text import printable

if TYPE_CHECKING:
    from collections.abc import Iterator
    from concurrent.futures import Future

    from aoti_inspect.auditing.result import Settings


def audit_in_workers(paths: list[str], settings: Settings, workers: int) -> Iterator[ArtifactAudit]:
    """Yield the audit of each path, in order.

    Where the system gives no worker processes (no /dev/shm, no semaphores, too few descriptors, no fork) the
    files are audited one after the other here, and standard error says so.

    A file over which its worker dies (by SIGBUS, as it became shorter while it was mapped; by SIGKILL, as
    memory ran out) is a result with an error; the others are audited all the same.
    """
    size = max(1, len(paths) // (workers * 8))
    pieces = [paths[at : at + size] for at in range(0, len(paths), size)]
    done = 0
    try:
        with _pool(workers) as pool:
            for piece, part in zip(pieces, _submit(pool, pieces, settings), strict=True):
                audits = _result(piece, part)
                done += len(audits)
                yield from audits
    except _NoWorkers as error:
        _tell(str(error))
        for path in paths[done:]:
            yield audit_path(path, settings)
    except BrokenProcessPool:
        # Whose fault it was is not known: what is left is done one by one.
        for path in paths[done:]:
            yield _audit_alone(path, settings)


class _NoWorkers(Exception):
    """The system gives no worker processes, for the reason that is the text."""


def _submit(
    pool: ProcessPoolExecutor, pieces: list[list[str]], settings: Settings
) -> list[Future[list[ArtifactAudit]]]:
    # Not pool.map: when it is interrupted it cancels, over which the pool's own thread then trips.
    try:
        with _interrupts_held():
            return [pool.submit(_audit_part, piece, settings) for piece in pieces]
    except (OSError, RuntimeError) as error:
        if isinstance(error, BrokenProcessPool):
            raise
        # Those that were born wait for work that never comes.
        for worker in active_children():
            worker.kill()
        raise _NoWorkers(str(error)) from error


def _result(piece: list[str], part: Future[list[ArtifactAudit]]) -> list[ArtifactAudit]:
    try:
        return part.result()
    except BrokenProcessPool:
        raise
    except Exception as error:  # noqa: BLE001 - a result that can't be handed over must not take the others along
        from aoti_inspect.auditing.failures import internal_error

        return [ArtifactAudit(path, "unreadable", error=internal_error(error)) for path in piece]


def _tell(reason: str) -> None:
    if sys.stderr is not None:
        with suppress(OSError):
            print(
                f"aoti-inspect: no worker processes ({printable(reason)}): one file after the other",
                file=sys.stderr,
            )


def _audit_part(paths: list[str], settings: Settings) -> list[ArtifactAudit]:
    return [audit_path(path, settings) for path in paths]


def _audit_alone(path: str, settings: Settings) -> ArtifactAudit:
    try:
        with _pool(1) as pool:
            (part,) = _submit(pool, [[path]], settings)
            return _result([path], part)[0]
    except _NoWorkers:
        return audit_path(path, settings)
    except BrokenProcessPool:
        error = AccessFailed(
            "the process that read it was ended by the system",
            hint="see whether something changes the file, or memory ran out; then try again",
        )
        return ArtifactAudit(path, "unreadable", error=error)


@contextmanager
def _pool(workers: int) -> Iterator[ProcessPoolExecutor]:
    # Nothing has started a thread here, so forking is safe, and it saves each worker its imports.
    try:
        pool = ProcessPoolExecutor(workers, mp_context=get_context("fork"), initializer=_end_at_interrupt)
    except (OSError, ImportError, NotImplementedError) as error:
        # Its locks need /dev/shm and semaphores, its queues descriptors.
        raise _NoWorkers(str(error)) from error
    with pool:
        try:
            yield pool
        except KeyboardInterrupt:
            # Only this process may have been interrupted; leaving the pool would wait for all that is left.
            for worker in active_children():
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
