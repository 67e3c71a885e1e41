"""Opening anything: what it is follows from its content, and what it is not is said in one sentence."""

from __future__ import annotations

import os
import shutil
import zipfile
from pathlib import Path

import pytest

from aoti_abi.errors import AotiError, InvalidArgument, InvalidProgram, InvalidState, NotFound, NotSupported
from aoti_inspect.artifacts import open_artifact
from aoti_inspect.artifacts.facts import facts_of
from aoti_inspect.artifacts.package_fact import PackageFact
from aoti_inspect.auditing.path import audit_path
from aoti_inspect.auditing.result import Settings
from aoti_inspect.facts.target import Target

from .conftest import METADATA, package_members, write_zip


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "an empty file"),
        (b"MZ\x90\0" + b"\0" * 60, "Windows"),
        (b"\xcf\xfa\xed\xfe" + b"\0" * 60, "Mach-O"),
        (b"version https://git-lfs.github.com/spec/v1\n", "Git LFS pointer"),
        (b"/* GNU ld script */\nGROUP ( libx.so.1 )", "linker script"),
        (b"\x1f\x8b\x08\0", "gzip"),
        (b"\x80\x04N.", "a pickle; it is not opened"),
        (b"\0\0\0\0ED00" + b"\0" * 60, "ETDump"),
        (b"hello world", "a text file"),
        (b"\x7f\xff", "begins with 7f ff"),
        (b"PK\x03\x04" + b"\0" * 60, "no end record"),
    ],
)
def test_what_it_is_not_is_said(tmp_path: Path, content, words):
    path = tmp_path / "model.pt2"
    path.write_bytes(content)
    with pytest.raises(AotiError, match=words) as caught:
        open_artifact(str(path))
    assert caught.value.path == str(path)
    assert caught.value.hint


@pytest.mark.parametrize(
    "members", [{"a/data.pkl": b"", "a/data/0": b""}, {"a/data.pkl": b"", "a/constants.pkl": b""}]
)
def test_checkpoints_and_torchscript_are_no_packages(tmp_path: Path, members):
    with pytest.raises(NotSupported, match=r"checkpoint|TorchScript"):
        open_artifact(write_zip(tmp_path / "x.pt", members))


def test_files_that_are_not_there_or_not_files(tmp_path: Path):
    with pytest.raises(NotFound, match="no such file"):
        open_artifact(str(tmp_path / "nope.pt2"))
    with pytest.raises(NotFound, match="no such file"):
        open_artifact(str(tmp_path / "nope" / "x.pt2"))
    with pytest.raises(NotFound, match="no file can have this name"):
        open_artifact("nul\0byte")
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(InvalidArgument, match="not a regular file"):
        open_artifact(str(tmp_path / "fifo"))


def test_a_plugin_with_what_lies_beside_it(tmp_path: Path, plugin_bytes):
    import json

    path = tmp_path / "m.so"
    path.write_bytes(plugin_bytes)
    (tmp_path / "m_metadata.json").write_text(json.dumps(METADATA | {"mine": 1}))
    (tmp_path / "m_weights.blob").write_bytes(b"w" * 100)
    (tmp_path / "m.json").write_text('{"nodes": [{"node": {"target": "mylib::op"}}]}')
    with open_artifact(str(path)) as artifact:
        assert (artifact.kind, list(artifact.models)) == ("plugin", ["m"])
        plugin = artifact.model().plugin
        assert plugin.read() == plugin_bytes
        assert plugin.metadata == METADATA | {"mine": "1"}
        assert plugin.weights.blob() == b"w" * 100
        assert artifact.companions == (str(tmp_path / "m_weights.blob"),)
        assert artifact.model().proxy_operators == ("mylib::op",)


def test_a_json_that_is_not_about_operators_is_left_alone(tmp_path: Path, plugin_bytes):
    (tmp_path / "m.so").write_bytes(plugin_bytes)
    (tmp_path / "m.json").write_text('{"config": true}')
    (tmp_path / "m_metadata.json").write_text("[")
    with open_artifact(str(tmp_path / "m.so")) as artifact:
        assert artifact.model().plugin.extern_nodes is None
        assert artifact.model().plugin.metadata is None
        (problem,) = artifact.model().plugin.metadata_problems
        assert problem.startswith(
            f"the metadata beside the plugin ({tmp_path / 'm_metadata.json'}) is not JSON"
        )


def test_a_wheel_with_plugins(tmp_path: Path, plugin_bytes, artifacts):
    inner = write_zip(tmp_path / "inner.pt2", package_members(plugin_bytes))
    members = {
        "pkg/__init__.py": b"",
        "pkg/model.so": plugin_bytes,
        "pkg/_ext.cpython-311.so": b"\x7fELF" + b"\0" * 100,
        "pkg/inner.pt2": Path(inner).read_bytes(),
        "pkg/two.pte": (artifacts / "aoti_legacy_external.pte").read_bytes(),
        "pkg/two.ptd": (artifacts / "aoti_legacy_external.aoti_cuda_blob.ptd").read_bytes(),
        "pkg/text.so": b"not a library",
        "pkg/broken.pte": b"\0\0\0\0ET99" + b"\0" * 100,
    }
    for compression in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        path = write_zip(tmp_path / "pkg-1.0-py3-none-any.whl", members, compression)
        with open_artifact(path) as artifact:
            assert artifact.kind == "zip"
            assert list(artifact.models) == ["pkg/model.so", "pkg/inner.pt2:model", "pkg/two.pte:forward"]
            assert [entry.kind for entry in artifact.facts] == ["no-elf", "unreadable"]
            assert artifact.models["pkg/inner.pt2:model"].plugin.read() == plugin_bytes
            plugin = artifact.models["pkg/two.pte:forward"].plugin
            assert plugin.weights.kind == "blob"
            for place, data in ((plugin.location, plugin.read()), (plugin.weights.location, None)):
                if compression == zipfile.ZIP_DEFLATED:
                    assert place is None
                else:
                    assert place.path == path
                    stored = Path(path).read_bytes()[place.offset :][: place.size]
                    assert stored == (plugin.weights.blob() if data is None else data)
            location = artifact.models["pkg/inner.pt2:model"].plugin.location
            if compression == zipfile.ZIP_STORED:
                assert Path(path).read_bytes()[location.offset :][: location.size] == plugin_bytes
            else:
                assert location is None


@pytest.mark.parametrize("compression", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_the_plugin_of_a_program_in_an_archive_is_audited(tmp_path: Path, artifacts, compression):
    members = {"two.pte": (artifacts / "aoti_legacy_external.pte").read_bytes()}
    path = write_zip(tmp_path / "models.zip", members, compression)
    result = audit_path(path, Settings(Target(), ("builtin",)))
    # The fixture's plugin is a placeholder of eighteen bytes, and this is what it must be refused for.
    (message,) = (finding.message for finding in result.findings if finding.code == "AOTI617")
    assert message.startswith(f"{path}!two.pte!forward: ")
    assert "an ELF file cut off after 18 bytes" in message


def test_a_plugin_in_memory_has_no_place_and_nothing_beside_it(tmp_path: Path, plugin_bytes):
    (tmp_path / "model_metadata.json").write_text("{}")
    (tmp_path / "model.blob").write_bytes(b"weights")
    with open_artifact(str(tmp_path / "model.so"), content=plugin_bytes) as artifact:
        plugin = artifact.model().plugin
        assert (plugin.location, plugin.metadata, plugin.weights.kind) == (None, None, "none")
        assert facts_of(plugin).elf.size == len(plugin_bytes)


def test_a_program_in_memory_has_no_place(artifacts):
    content = (artifacts / "aoti_legacy_external.pte").read_bytes()
    with open_artifact("x.pte", content=content) as artifact:
        assert artifact.model().plugin.location is None


def test_a_folder_of_plugins(tmp_path: Path, plugin_bytes):
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "a.so.1").write_bytes(plugin_bytes)
    (tmp_path / "b.so").write_bytes(plugin_bytes)
    (tmp_path / "b_weights.blob").write_bytes(b"w")
    (tmp_path / "link.so").symlink_to(tmp_path / "b.so")
    with open_artifact(str(tmp_path)) as artifact:
        assert artifact.kind == "folder"
        assert sorted(artifact.models) == ["b.so", "deep/a.so.1"]
        assert artifact.models["b.so"].plugin.weights.size == 1
        assert artifact.models["b.so"].plugin.location.path == str(tmp_path / "b.so")
        assert [entry.kind for entry in artifact.facts] == ["links"]


def test_without_a_plugin_all_libraries_are_listed(tmp_path: Path):
    path = write_zip(tmp_path / "x.zip", {"a.so": b"\x7fELF" + b"\0" * 60, "b.txt": b""})
    with open_artifact(path) as artifact:
        assert list(artifact.models) == ["a.so"]
        assert [entry.kind for entry in artifact.facts] == ["bundle-without-plugins"]
    with open_artifact(write_zip(tmp_path / "y.zip", {"b.txt": b""})) as artifact:
        assert artifact.facts == (PackageFact("bundle-without-plugins"),)
    (tmp_path / "empty").mkdir()
    assert open_artifact(str(tmp_path / "empty")).models == {}


def test_an_archive_after_a_script_is_found_by_its_end(tmp_path: Path, plugin_bytes):
    path = tmp_path / "self-extracting"
    write_zip(tmp_path / "m.pt2", package_members(plugin_bytes))
    path.write_bytes(b"#!/bin/sh\nexit 1\n" + (tmp_path / "m.pt2").read_bytes())
    with open_artifact(str(path)) as artifact:
        assert artifact.model().plugin.read() == plugin_bytes
        assert [entry.kind for entry in artifact.facts] == ["bytes-before"]
        location = artifact.model().plugin.location
        assert path.read_bytes()[location.offset :][: location.size] == plugin_bytes


def test_a_closed_artifact_says_so(tmp_path: Path, plugin_bytes, artifacts):
    (tmp_path / "plain.so").write_bytes(plugin_bytes)
    package = write_zip(tmp_path / "m.pt2", package_members(plugin_bytes))
    for path in (package, str(tmp_path / "plain.so"), str(artifacts / "aoti_two_keys.pte"), str(tmp_path)):
        artifact = open_artifact(path)
        kept = artifact.plugins[0].read()
        artifact.close()
        assert bytes(kept[:4]) == b"\x7fELF"
        with pytest.raises(InvalidState, match="was closed"):
            artifact.plugins[0].read()


def test_nothing_stays_open(tmp_path: Path, plugin_bytes, artifacts):
    package = write_zip(tmp_path / "m.pt2", package_members(plugin_bytes))
    program = shutil.copy(artifacts / "aoti_legacy_external.pte", tmp_path)
    shutil.copy(artifacts / "aoti_legacy_external.aoti_cuda_blob.ptd", tmp_path / "aoti_cuda_blob.ptd")
    bad = tmp_path / "bad.pte"
    bad.write_bytes(Path(program).read_bytes()[:100])
    before = len(os.listdir("/proc/self/fd"))
    for path in (package, program, str(tmp_path)):
        with open_artifact(path) as artifact:
            for plugin in artifact.plugins:
                bytes(plugin.read())
                plugin.weights.tensors()
    with pytest.raises(AotiError):
        open_artifact(str(bad))
    assert len(os.listdir("/proc/self/fd")) == before
    assert str(tmp_path) not in Path("/proc/self/maps").read_text()


@pytest.mark.parametrize("name", ["pkg/m.PT2", "pkg/M.SO", "pkg/m.pt2"])
def test_names_count_in_any_case(tmp_path: Path, plugin_bytes, name):
    inner = Path(write_zip(tmp_path / "inner", package_members(plugin_bytes))).read_bytes()
    members = {"a.so": plugin_bytes, name: plugin_bytes if name.endswith("SO") else inner}
    with open_artifact(write_zip(tmp_path / "x.whl", members)) as artifact:
        assert len(artifact.plugins) == 2


def test_a_library_is_searched_to_its_end(tmp_path: Path, plugin_bytes):
    """Tools that rewrite a library move its names to the end."""
    late = b"\x7fELF" + bytes(60) + bytes(70 << 20) + b"AOTInductorModelContainerRun"
    path = write_zip(tmp_path / "x.zip", {"a.so": plugin_bytes, "late.so": late}, zipfile.ZIP_DEFLATED)
    with open_artifact(path) as artifact:
        assert list(artifact.models) == ["a.so", "late.so"]


@pytest.mark.parametrize("in_memory", [False, True])
def test_a_changed_byte_of_a_stored_plugin_is_found_by_an_audit(tmp_path: Path, plugin_bytes, in_memory):
    path = Path(write_zip(tmp_path / "m.pt2", package_members(plugin_bytes)))
    data = bytearray(path.read_bytes())
    data[data.find(plugin_bytes) + len(plugin_bytes) // 2] ^= 1
    path.write_bytes(data)
    content = bytes(data) if in_memory else None
    with (
        open_artifact(str(path), content=content) as artifact,
        pytest.raises(InvalidProgram, match="checksum"),
        artifact.model().plugin.open_source(),
    ):
        pass
