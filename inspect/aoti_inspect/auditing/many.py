"""Auditing many files: one after the other, or in worker processes."""

from __future__ import annotations

import os

from aoti_abi.records import TYPE_CHECKING
from aoti_inspect.auditing.path import audit_path
from aoti_inspect.auditing.result import STDIN

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aoti_inspect.auditing.result import ArtifactAudit, Settings

#: Fewer files than this are done before worker processes would have started.
_WORTH_WORKERS = 12
_MOST_WORKERS = 16


def audit_many(paths: list[str], settings: Settings, *, jobs: int = 0) -> Iterator[ArtifactAudit]:
    """Audit files, in worker processes if there are many, and yield the results in the order of ``paths``.

    Args:
        paths: files; ``-`` is standard input.
        settings: what to check against.
        jobs: worker processes; 0 chooses by the number of files and processors.
    """
    wanted = jobs or (1 if len(paths) < _WORTH_WORKERS else min(_MOST_WORKERS, os.cpu_count() or 1))
    most = 1 if STDIN in paths else max(_MOST_WORKERS, os.cpu_count() or 1)
    workers = min(wanted, len(paths), most)
    if workers == 1:
        return (audit_path(path, settings) for path in paths)
    from aoti_inspect.auditing.workers import audit_in_workers

    return audit_in_workers(paths, settings, workers)
