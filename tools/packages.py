"""Get and read wheels: from the package index through pip, from a file, or from a folder."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import zipfile
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

#: Small wheels first: macOS's have the headers of Linux's, c_shim_cuda.h included, at a tenth of the size.
PLATFORMS: tuple[tuple[str, ...], ...] = (
    tuple(f"macosx_{major}_0_arm64" for major in range(11, 17)),
    ("manylinux_2_28_aarch64", "manylinux2014_aarch64", "manylinux_2_17_aarch64"),
    ("manylinux_2_28_x86_64", "manylinux2014_x86_64", "manylinux1_x86_64"),
)
#: A Python for which every release has a wheel; the headers do not depend on it.
PYTHON = "3.12"

#: For one wheel, in seconds.
TIMEOUT = 1800

_REQUIREMENT = re.compile(r"(?:(torch|executorch)==)?(\d+(?:\.\d+){1,2})\Z")


class ScanError(Exception):
    """Something can't be scanned; the message says what, and what to do."""


def requirement(source: str) -> str | None:
    """Return the requirement for pip that a version stands for, or None if ``source`` is not a version.

    ``"2.9"`` is ``torch==2.9.*``, its newest patch release; ``"executorch==1.5.1"`` stays as it is.
    """
    match = _REQUIREMENT.match(source)
    if match is None:
        return None
    package, version = match[1] or "torch", match[2]
    return f"{package}=={version}" + (".*" if version.count(".") == 1 else "")


def download(wanted: str, folder: str) -> str:
    """Download the smallest wheel of a requirement into a folder and return its path.

    Raises:
        ScanError: the index has none, or pip failed.
    """
    reason = ""
    for platforms in PLATFORMS:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-cache-dir"]
        command += ["--disable-pip-version-check", "--only-binary=:all:", "--implementation=cp"]
        command += [f"--python-version={PYTHON}", *(f"--platform={name}" for name in platforms)]
        command += [f"--dest={folder}", wanted]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT, check=False)
        except subprocess.TimeoutExpired:
            raise ScanError(f"pip did not get {wanted} within {TIMEOUT} seconds: try again") from None
        wheels = [name for name in os.listdir(folder) if name.endswith(".whl")]
        if done.returncode == 0 and wheels:
            return os.path.join(folder, wheels[0])
        reason = done.stderr.strip()
    raise ScanError(f"pip found no wheel of {wanted}:\n{reason}")


def _folder_members(folder: str) -> Iterator[tuple[str, Callable[[], bytes]]]:
    for where, _, names in os.walk(folder):
        for name in names:
            path = os.path.join(where, name)

            def read(path: str = path) -> bytes:
                with open(path, "rb") as stream:
                    return stream.read()

            yield os.path.relpath(path, folder).replace(os.sep, "/"), read


def members(path: str, wanted: Callable[[str], bool]) -> dict[str, str]:
    """Return the texts of a wheel or of a folder that holds what a wheel does, by their path in it.

    Args:
        path: the wheel or folder.
        wanted: which members to read.

    Raises:
        ScanError: it cannot be read.
    """
    try:
        if os.path.isdir(path):
            return {
                name: read().decode("utf-8", "replace")
                for name, read in _folder_members(path)
                if wanted(name)
            }
        with zipfile.ZipFile(path) as archive:
            return {
                name: archive.read(name).decode("utf-8", "replace")
                for name in archive.namelist()
                if wanted(name)
            }
    except (OSError, zipfile.BadZipFile) as error:
        raise ScanError(
            f"cannot read {path}: {error}; give a wheel, an unpacked wheel or a version"
        ) from error


def obtain(source: str, wanted: Callable[[str], bool]) -> dict[str, str]:
    """Return the wanted texts of a version, a wheel or a folder; what is downloaded is deleted again."""
    package = requirement(source)
    if package is None or os.path.exists(source):
        return members(source, wanted)
    with tempfile.TemporaryDirectory(prefix="scan_torch_") as folder:
        return members(download(package, folder), wanted)
