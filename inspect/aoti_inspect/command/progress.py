"""How far a long audit is, on a terminal: one line that redraws itself, and is gone at the end."""

from __future__ import annotations

import time
from contextlib import suppress

from aoti_abi.records import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import TextIO, TypeVar

    T = TypeVar("T")

#: Seconds; what takes less needs no line.
_PATIENCE = 0.5
#: What the terminal itself writes behind the line when the user interrupts.
_ECHO = "^C"


def with_progress(results: Iterable[T], total: int, terminal: TextIO) -> Iterator[T]:
    r"""Yield ``results`` unchanged; once they have taken half a second, show how many there are so far.

    The line is erased when the results end, raise, or are no longer wanted. It is overwritten with spaces:
    ``\r`` is all that a terminal has to know. A terminal that went away fails no audit.
    """
    start = time.monotonic()
    shown = ""
    try:
        for done, result in enumerate(results, start=1):
            if done < total and time.monotonic() - start > _PATIENCE:
                shown = f"auditing {done}/{total}"
                _draw(terminal, shown)
            yield result
    finally:
        if shown:
            _draw(terminal, " " * len(shown + _ECHO) + "\r")


def _draw(terminal: TextIO, line: str) -> None:
    with suppress(OSError):
        terminal.write(f"\r{line}")
        terminal.flush()
