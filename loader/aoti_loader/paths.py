"""Paths that callers give."""

from __future__ import annotations

import os

from aoti_abi.errors import InvalidArgument, NotFound


def as_path(path: object, what: str = "the path") -> str:
    """Return a path as absolute text.

    Raises:
        InvalidArgument: it is none; bytes, which may be a whole file, are not shown.
        NotFound: there is no current folder that it is relative to, or no file can have the name.
    """
    text = os.fspath(path) if isinstance(path, (str, os.PathLike)) else None
    if not isinstance(text, str):
        raise InvalidArgument(
            f"{what} is text or a pathlib.Path, not {type(path).__name__}",
            hint="write bytes to a file first" if isinstance(path, (bytes, bytearray, memoryview)) else None,
        )
    if "\0" in text:
        raise NotFound("no file can have this name", path=text)
    try:
        return os.path.abspath(text)
    except FileNotFoundError:
        raise NotFound("the current folder was removed, and the path is relative to it", path=text) from None
