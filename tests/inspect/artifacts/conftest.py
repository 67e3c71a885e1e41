"""What the tests of artifacts share: small files, and packages made of a small plugin."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import pytest

FIXTURES = Path(__file__).resolve().parents[3] / "fixtures" / "artifacts"

#: What Inductor writes beside a plugin.
METADATA = {"AOTI_DEVICE_KEY": "cpu", "AOTI_PLATFORM": "linux", "AOTI_MACHINE": "x86_64", "AOTI_CPU_ISA": ""}


@pytest.fixture(scope="session")
def artifacts() -> Path:
    return FIXTURES


@pytest.fixture(scope="session")
def plugin_bytes(smallest_plugin: str) -> bytes:
    return Path(smallest_plugin).read_bytes()


def package_members(
    plugin: bytes | None, *, prefix="model/", model="model", stem="abc.wrapper", **extra: bytes
) -> dict:
    """Return a package's members; ``extra`` are further files of the model, with ``__`` for a dot."""
    folder = f"{prefix}data/aotinductor/{model}/"
    members = {
        f"{prefix}archive_format": b"pt2",
        f"{prefix}archive_version": b"0",
        f"{prefix}byteorder": b"little",
    }
    members[f"{folder}{stem}.cpp"] = b"// source\n"
    if plugin is not None:
        members[f"{folder}{stem}.so"] = plugin
        members[f"{folder}{stem}_metadata.json"] = json.dumps(METADATA).encode()
    for name, content in extra.items():
        members[f"{folder}{name.replace('__', '.')}"] = content
    return members


def write_zip(path: Path, members: dict[str, bytes], compression: int = zipfile.ZIP_STORED) -> str:
    with zipfile.ZipFile(path, "w", compression) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return str(path)
