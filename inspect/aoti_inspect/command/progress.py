"""A progress bar on standard error, for what takes longer than half a second."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

T = TypeVar("T")
_PATIENCE = 0.5


def with_progress(results: Iterable[T], total: int) -> Iterator[T]:
    """Yield ``results`` unchanged; draw a bar on standard error once it has taken half a second."""
    start = time.monotonic()
    iterator = iter(results)
    done = 0
    for result in iterator:
        done += 1
        yield result
        if time.monotonic() - start > _PATIENCE and done < total:
            break
    else:
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("auditing", total=total, completed=done)
        for result in iterator:
            bar.advance(task)
            yield result
