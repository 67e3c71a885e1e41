"""The entry point of ``aoti-inspect``: `aoti_inspect.command.cli.main` in a process of its own.

An audit takes a few milliseconds, so what Python does around it counts. Collecting garbage while modules are
imported finds none, and tearing modules down at exit frees memory that the system takes back anyway: leaving
both out makes the command a fifth faster.
"""

from __future__ import annotations

import gc
import os
import sys
from contextlib import suppress

from aoti_abi.records import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import NoReturn

#: Objects between two collections; the audit of thousands of files still collects now and then.
_RARELY = 100_000


def main() -> NoReturn:
    """Run the command and end the process with its exit code."""
    gc.set_threshold(_RARELY)
    code = 1
    try:
        from aoti_inspect.command.cli import main as run

        code = run()
    except SystemExit as stop:
        # argparse ends so: 0 for --help, 2 for wrong usage.
        code = stop.code if isinstance(stop.code, int) else 1
    except KeyboardInterrupt:
        code = 130
    except BaseException:  # noqa: BLE001 - what no handler took is shown, as Python itself would
        sys.excepthook(*sys.exc_info())
    for stream in (sys.stdout, sys.stderr):
        # A stream that was closed before Python started is None.
        with suppress(OSError, ValueError, AttributeError):
            stream.flush()
    os._exit(code)
