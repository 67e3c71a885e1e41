"""Writing a report to a file: whole, or not at all."""

from __future__ import annotations

import os
from contextlib import suppress

from aoti_abi.errors import AccessFailed


def write_whole(path: str, text: str) -> None:
    """Write ``text`` to ``path`` through a temporary file beside it, so that no reader sees half of it.

    Raises:
        AccessFailed: the folder can't be written to, or the disk is full; nothing is left behind.
    """
    if os.path.exists(path) and not os.path.isfile(path):
        # A device or a pipe (/dev/stdout) can't be replaced by a rename.
        try:
            with open(path, "w", encoding="utf-8") as stream:
                stream.write(text)
        except OSError as error:
            raise AccessFailed("cannot be written", path=path, cause=error.strerror) from error
        return
    temporary = f"{path}.{os.getpid()}.tmp"
    try:
        with open(temporary, "x", encoding="utf-8") as stream:
            stream.write(text)
        os.replace(temporary, path)
    except OSError as error:
        with suppress(OSError):
            os.unlink(temporary)
        raise AccessFailed(
            "cannot be written", path=path, cause=error.strerror, hint="check the folder and the free space"
        ) from error
