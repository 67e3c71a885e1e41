"""Writing a report: to standard output, or to a file, whole or not at all."""

from __future__ import annotations

import os
import sys
from contextlib import suppress

from aoti_abi.errors import AccessFailed


def write_standard_output(text: str) -> None:
    r"""Write ``text`` to standard output; what its encoding lacks becomes ``\u`` escapes, as in JSON.

    Raises:
        AccessFailed: it is closed, or the disk behind it is full.
    """
    stream = sys.stdout
    if stream is None:
        raise AccessFailed("standard output is closed", hint="redirect it to a file, or name one with -o")
    try:
        try:
            stream.write(text)
        except UnicodeEncodeError:
            stream.write("".join(char if char.isascii() else _escape(char) for char in text))
        stream.flush()
    except BrokenPipeError:
        # The reader (`| head`) went away: no error of ours, and what was found stays found. Python would
        # complain at exit without this.
        discard_standard_output()
    except OSError as error:
        # What is left in the buffer would fail once more, with a traceback, when Python ends.
        discard_standard_output()
        raise AccessFailed("standard output cannot be written", cause=error.strerror) from error


def discard_standard_output() -> None:
    """Let whatever is still written to standard output go nowhere."""
    descriptor = os.open(os.devnull, os.O_WRONLY)
    os.dup2(descriptor, sys.stdout.fileno())
    os.close(descriptor)


def _escape(char: str) -> str:
    raw = char.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{raw[at : at + 4]}" for at in range(0, len(raw), 4))


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
