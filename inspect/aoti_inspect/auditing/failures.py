"""Defects of the inspector itself, told as results: no file takes the report of the others with it."""

from __future__ import annotations

import os

from aoti_abi.errors import InternalError
from aoti_abi.records import TYPE_CHECKING

if TYPE_CHECKING:
    from types import TracebackType

_HINT = "please report it, with the file if you can: it is a defect of aoti-inspect, and nothing was decided"


def internal_error(error: Exception) -> InternalError:
    """Return an error that names the kind of an unexpected exception, and where it was raised."""
    return InternalError(
        "internal error, please report",
        cause=f"{type(error).__name__}: {error} at {_place(error.__traceback__)}",
        hint=_HINT,
    )


def _place(trace: TracebackType | None) -> str:
    """Return ``file:line`` of the last step of ours."""
    place = "an unknown place"
    while trace is not None:
        path = trace.tb_frame.f_code.co_filename
        folder, name = os.path.split(path)
        if "aoti_" in folder:
            place = f"{os.path.basename(folder)}/{name}:{trace.tb_lineno}"
        trace = trace.tb_next
    return place
