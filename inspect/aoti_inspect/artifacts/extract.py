"""Writing the plugins and weights of an artifact out, under names that are never the artifact's own."""

from __future__ import annotations

import contextlib
import os
import tempfile

from aoti_abi.errors import AccessFailed
from aoti_abi.records import TYPE_CHECKING
from aoti_inspect.artifacts.zip_names import safe_file_name

if TYPE_CHECKING:
    from aoti_inspect.artifacts.artifact import Artifact
    from aoti_inspect.artifacts.plugin import ArtifactPlugin

_CHUNK = 8 << 20


def extract(artifact: Artifact, directory: str) -> list[str]:
    """Write each plugin as ``<number>_<model>.so`` with its metadata, and weights that are a blob.

    The sidecar files get the names that Inductor gives them, so that each plugin is an artifact again:
    ``<stem>_metadata.json`` and ``<stem>_weights.blob``. A file appears under its name only once it is
    complete, and one that is there already is left alone.

    Args:
        artifact: open.
        directory: made if it is not there.

    Returns:
        The paths written, in the order of the plugins.

    Raises:
        AccessFailed: a file of that name is there already, or the system refuses.
        InvalidProgram, NotSupported, NotFound: what should be written can't be read; nothing is left of it.
    """
    try:
        os.makedirs(directory, exist_ok=True)
    except OSError as error:
        raise AccessFailed("the directory can't be made", path=directory, cause=error.strerror) from None
    written: list[str] = []
    for number, plugin in enumerate(artifact.plugins):
        stem = os.path.join(directory, f"{number:02d}_{_stem(plugin)}")
        written.append(_write(f"{stem}.so", plugin.read()))
        metadata = plugin.metadata
        if metadata is not None:
            import json

            written.append(_write(f"{stem}_metadata.json", memoryview(json.dumps(metadata).encode())))
        if plugin.weights.kind == "blob":
            written.append(_write(f"{stem}_weights.blob", plugin.weights.blob()))
    return written


def _stem(plugin: ArtifactPlugin) -> str:
    variant = plugin.variant
    gpu = f"_sm{variant.target_sm}" if variant is not None and variant.target_sm else ""
    return safe_file_name(plugin.model.rpartition("/")[2].removesuffix(".so"), "plugin") + gpu


def _write(path: str, data: memoryview) -> str:
    """Write a private file beside its final place, then link it there, which fails if something is there."""
    folder = os.path.dirname(path)
    temporary = ""
    try:
        descriptor, temporary = tempfile.mkstemp(dir=folder, prefix=".aoti-extract-")
        with open(descriptor, "wb") as stream:
            stream.writelines(data[start : start + _CHUNK] for start in range(0, len(data), _CHUNK))
            stream.flush()
            os.fsync(stream.fileno())
        os.link(temporary, path)
    except FileExistsError:
        raise AccessFailed(
            "there is already a file of this name", path=path, hint="extract to an empty directory"
        ) from None
    except OSError as error:
        raise AccessFailed("the file can't be written", path=path, cause=error.strerror) from None
    finally:
        if temporary:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
    return path
