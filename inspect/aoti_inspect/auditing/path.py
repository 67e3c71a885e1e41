"""Auditing one file, whatever it is."""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager

from aoti_abi.errors import AccessFailed, AotiError, InvalidProgram
from aoti_abi.records import TYPE_CHECKING
from aoti_inspect.artifacts.formats import find_format
from aoti_inspect.artifacts.read import open_artifact
from aoti_inspect.auditing.artifact import audit_artifact
from aoti_inspect.auditing.result import STDIN, ArtifactAudit

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aoti_inspect.auditing.result import Settings

#: What is read of standard input before it is refused, bytes: of an artifact, and of something else.
_MOST_INPUT = 4 << 30
_MOST_UNKNOWN_INPUT = 32 << 20


def audit_path(path: str, settings: Settings) -> ArtifactAudit:
    """Audit one file; what can't be read is a result with an error, never an exception."""
    try:
        return _audit(path, settings)
    except AotiError as error:
        return ArtifactAudit(path, "unreadable", error=_without_path(error, path))
    except RecursionError as error:
        return ArtifactAudit(
            path, "unreadable", error=InvalidProgram("the file nests too deeply", cause=str(error))
        )
    except MemoryError:
        return ArtifactAudit(path, "unreadable", error=AccessFailed("not enough memory to read it"))
    except Exception as error:  # noqa: BLE001 - whatever it is, the other files are still to be reported
        from aoti_inspect.auditing.failures import internal_error

        return ArtifactAudit(path, "unreadable", error=internal_error(error))


def _without_path(error: AotiError, path: str) -> AotiError:
    """Drop the path from an error that is shown under that path anyway."""
    if error.path is not None and error.path != path:
        error.message = f"{error.path}: {error.message}"
    error.path = None
    return error


def _audit(path: str, settings: Settings) -> ArtifactAudit:
    if path == STDIN:
        with _standard_input() as (source, content):
            return _rename(_audit_file(source, settings, content), source, "<stdin>")
    return _audit_file(path, settings)


def _audit_file(path: str, settings: Settings, content: bytes | None = None) -> ArtifactAudit:
    with open_artifact(path, content=content, audited=True) as artifact:
        return audit_artifact(artifact, settings)


@contextmanager
def _standard_input() -> Iterator[tuple[str, bytes | None]]:
    """Lend standard input as a path: its own if it is a file, else that of a private copy in memory.

    Without /proc no path leads to either, so the bytes come with it.
    """
    if sys.stdin is None:
        raise AccessFailed("standard input is closed")
    if os.path.isfile("/proc/self/fd/0"):
        yield "/proc/self/fd/0", None
        return
    descriptor = os.memfd_create("stdin")
    try:
        _copy_standard_input(descriptor)
        if os.path.isdir("/proc/self/fd"):
            yield f"/proc/self/fd/{descriptor}", None
        else:
            yield "<stdin>", os.pread(descriptor, os.fstat(descriptor).st_size, 0)
    finally:
        os.close(descriptor)


def _copy_standard_input(descriptor: int) -> None:
    """Copy what begins as an artifact; of anything else enough to say what it is, as it may never end."""
    most, copied = _MOST_INPUT, 0
    try:
        with open(descriptor, "wb", closefd=False) as copy:
            while copied < most and (chunk := sys.stdin.buffer.read(1 << 20)):
                if not copied and find_format(chunk) is None:
                    most = _MOST_UNKNOWN_INPUT
                copied += copy.write(chunk)
    except OSError as error:
        raise AccessFailed("standard input cannot be read", cause=error.strerror) from error
    if copied >= _MOST_INPUT:
        raise AccessFailed(
            f"standard input has over {_MOST_INPUT >> 30} GiB", hint="write it to a file and name that"
        )


def _rename(audit: ArtifactAudit, old: str, new: str) -> ArtifactAudit:
    """Show standard input by its own name, not by the path that stood for it."""
    plugins = tuple(
        plugin._replace(facts=plugin.facts._replace(name=plugin.facts.name.replace(old, new, 1)))
        for plugin in audit.plugins
    )
    return audit._replace(path=new, plugins=plugins)
