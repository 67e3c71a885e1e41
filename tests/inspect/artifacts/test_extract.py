"""Extraction: safe names, whole files, nothing overwritten."""

from __future__ import annotations

import json
import os
import zipfile
from pathlib import Path

import pytest

from aoti_abi.errors import AccessFailed, AotiError
from aoti_inspect.artifacts import open_artifact, zip_archive
from aoti_inspect.artifacts.extract import extract

from .conftest import METADATA, package_members, write_zip


def test_plugins_metadata_and_blobs_are_written(tmp_path: Path, plugin_bytes):
    members = package_members(plugin_bytes, model="decode", abc__wrapper_weights__blob=b"w" * 10)
    path = write_zip(tmp_path / "m.pt2", members, zipfile.ZIP_DEFLATED)
    with open_artifact(path) as artifact:
        written = extract(artifact, str(tmp_path / "out" / "deep"))
    assert [os.path.basename(name) for name in written] == [
        "00_decode.so",
        "00_decode_metadata.json",
        "00_decode_weights.blob",
    ]
    assert Path(written[0]).read_bytes() == plugin_bytes
    assert json.loads(Path(written[1]).read_text()) == METADATA
    assert sorted(os.listdir(tmp_path / "out" / "deep")) == sorted(map(os.path.basename, written))
    with open_artifact(written[0]) as again:
        assert again.model().plugin.metadata == METADATA
        assert again.model().plugin.weights.blob() == b"w" * 10


def test_names_of_the_artifact_never_become_paths(tmp_path: Path, plugin_bytes):
    members = package_members(plugin_bytes, model="..\u202e$(x)")
    members["model/data/aotinductor/../../../../evil.so"] = plugin_bytes
    with open_artifact(write_zip(tmp_path / "m.pt2", members)) as artifact:
        written = extract(artifact, str(tmp_path / "out"))
    assert {os.path.dirname(name) for name in written} == {str(tmp_path / "out")}
    assert os.path.basename(written[0]) == "00____x_.so"
    assert sorted(os.listdir(tmp_path)) == ["m.pt2", "out"]


def test_nothing_is_overwritten(tmp_path: Path, plugin_bytes):
    with open_artifact(write_zip(tmp_path / "m.pt2", package_members(plugin_bytes))) as artifact:
        (tmp_path / "00_model.so").write_bytes(b"mine")
        with pytest.raises(AccessFailed, match="already a file"):
            extract(artifact, str(tmp_path))
    assert (tmp_path / "00_model.so").read_bytes() == b"mine"
    assert sorted(os.listdir(tmp_path)) == ["00_model.so", "m.pt2"]


def test_a_link_is_not_written_through(tmp_path: Path, plugin_bytes):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "00_model.so").symlink_to(tmp_path / "elsewhere")
    path = write_zip(tmp_path / "m.pt2", package_members(plugin_bytes))
    with open_artifact(path) as artifact, pytest.raises(AccessFailed, match="already a file"):
        extract(artifact, str(tmp_path / "out"))
    assert not (tmp_path / "elsewhere").exists()


def test_a_damaged_member_leaves_nothing_behind(tmp_path: Path, plugin_bytes, monkeypatch):
    monkeypatch.setattr(zip_archive, "CHECKED_WHEN_READ", 10)
    path = Path(write_zip(tmp_path / "m.pt2", package_members(plugin_bytes)))
    data = bytearray(path.read_bytes())
    data[data.index(plugin_bytes) + 100] ^= 0xFF
    path.write_bytes(data)
    with open_artifact(str(path)) as artifact, pytest.raises(AotiError, match="checksum"):
        extract(artifact, str(tmp_path / "out"))
    assert os.listdir(tmp_path / "out") == []


def test_programs_are_extracted_by_method(tmp_path: Path, artifacts):
    with open_artifact(str(artifacts / "aoti_multimethod_external.pte")) as artifact:
        written = extract(artifact, str(tmp_path))
    assert [os.path.basename(name) for name in written] == [
        "00_forward.so",
        "00_forward_weights.blob",
        "01_second.so",
        "01_second_weights.blob",
    ]


def test_a_directory_that_cannot_be_made(tmp_path: Path, plugin_bytes):
    (tmp_path / "file").write_bytes(b"")
    path = write_zip(tmp_path / "m.pt2", package_members(plugin_bytes))
    with open_artifact(path) as artifact, pytest.raises(AccessFailed, match="can't be made"):
        extract(artifact, str(tmp_path / "file" / "out"))
