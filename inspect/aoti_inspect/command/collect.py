"""From the command line's arguments to the files to audit."""

from __future__ import annotations

import os
import stat

from aoti_abi.errors import AccessFailed, NotFound
from aoti_abi.records import TYPE_CHECKING
from aoti_inspect.artifacts.formats import SUFFIXES, is_artifact_name
from aoti_inspect.auditing.result import STDIN

if TYPE_CHECKING:
    from aoti_abi.errors import AotiError

#: A folder with more artifacts than this is taken for a mistake (a file system's root, a mount).
_LIMIT = 100_000
#: How deep folders may be nested: nobody keeps models deeper.
_MOST_LEVELS = 200


def collect(arguments: list[str]) -> list[str]:
    """Return the files that the arguments stand for, in order and without repeats.

    A file stands for itself, a folder for the artifacts below it, a pattern that is not a file for what it
    matches, ``-`` for standard input. Links to folders below a folder are not followed. An unpacked package
    (a folder with ``archive_format``) stands for itself.

    Raises:
        NotFound: a path or pattern that matches nothing, or a folder without artifacts.
        AccessFailed: a folder that can't be listed.
    """
    found: dict[str, None] = {}
    for argument in arguments:
        for path in _expand(argument, pattern=True):
            found[path] = None
    return list(found)


def _expand(argument: str, *, pattern: bool) -> list[str]:
    if argument == STDIN:
        return [STDIN]
    try:
        mode = os.stat(argument).st_mode
    except (OSError, ValueError) as error:
        # What a pattern matched is a name, even one that looks like a pattern.
        matches = _glob(argument) if pattern else []
        if matches:
            return [path for match in matches for path in _expand(match, pattern=False)]
        raise _not_there(argument, error) from error
    if not stat.S_ISDIR(mode):
        return [argument]
    if os.path.isfile(os.path.join(argument, "archive_format")):
        return [argument]
    return _walk(argument)


def _not_there(argument: str, error: Exception) -> AotiError:
    if isinstance(error, PermissionError):
        return AccessFailed("cannot open", path=argument, cause=error.strerror)
    if any(char in argument for char in "*?["):
        return NotFound(
            "nothing matches this pattern", path=argument, hint="quote it only if it is a pattern"
        )
    if isinstance(error, FileNotFoundError):
        return NotFound("no such file", path=argument)
    cause = getattr(error, "strerror", None) or str(error)
    return NotFound("no such file", path=argument, cause=cause)


def _glob(argument: str) -> list[str]:
    if not any(char in argument for char in "*?["):
        return []
    import glob

    return sorted(glob.glob(argument, recursive=True))


def _walk(folder: str) -> list[str]:
    def refuse(error: OSError) -> None:
        raise AccessFailed("the folder cannot be listed", path=error.filename, cause=error.strerror)

    paths: list[str] = []
    for root, folders, files in os.walk(folder, onerror=refuse):
        # Python 3.11 and older go down by recursion.
        if root.count(os.sep, len(folder)) > _MOST_LEVELS:
            raise AccessFailed(
                f"it holds folders nested over {_MOST_LEVELS} deep", path=folder, hint="name a folder in it"
            )
        folders.sort()
        for name in sorted(files):
            path = os.path.join(root, name)
            if is_artifact_name(name) and os.path.isfile(path):
                paths.append(path)
        if len(paths) > _LIMIT:
            raise NotFound(
                f"the folder holds over {_LIMIT} artifacts", path=folder, hint="name a smaller folder"
            )
    if not paths:
        raise NotFound(
            "the folder holds no artifact",
            path=folder,
            hint=f"looked for {', '.join('*' + suffix for suffix in SUFFIXES)} and *.so.*",
        )
    return paths
