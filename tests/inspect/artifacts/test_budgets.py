"""What reading an artifact may cost: memory, bytes read, imports."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from aoti_abi.errors import NotSupported
from aoti_inspect.artifacts import open_artifact

from .conftest import package_members, write_zip

ROOT = Path(__file__).resolve().parents[3]

MEASURE = """
import json, sys
from aoti_inspect.artifacts import open_artifact
from aoti_inspect.auditing.artifact import audit_artifact
from aoti_inspect.auditing.result import Settings
from aoti_inspect.facts.target import Target
with open_artifact(sys.argv[1]) as artifact:
    audit = audit_artifact(artifact, Settings(Target(), ("builtin",)))
read = int(open("/proc/self/io").readline().split()[1])
status = dict(line.split(":", 1) for line in open("/proc/self/status"))
heavy = {"numpy", "torch", "dataclasses", "inspect", "zipfile", "pathlib", "elftools"}
peak = int(status["VmHWM"].split()[0])
print(json.dumps([read, peak, sorted(heavy & set(sys.modules)), len(audit.plugins)]))
"""


def measure(path: str) -> tuple[int, int, list[str], int]:
    done = subprocess.run([sys.executable, "-c", MEASURE, path], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return tuple(json.loads(done.stdout))


def test_a_package_of_two_gigabytes_stays_small(tmp_path, smallest_plugin):
    spec = importlib.util.spec_from_file_location(
        "bench_artifacts", ROOT / "benchmarks" / "bench_artifacts.py"
    )
    bench = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(bench)
    path = str(tmp_path / "sparse.pt2")
    bench.write_sparse_package(path, smallest_plugin)
    assert Path(path).stat().st_size > 2_000_000_000
    read, peak, loaded, plugins = measure(path)
    assert plugins == 1
    assert read < 10_000_000
    assert peak < 40 * 1024
    assert loaded == []


@pytest.mark.parametrize("name", ["aoti_multimethod_external.pte", "aoti_fqn3_external.pte"])
def test_a_program_pulls_in_nothing_heavy(artifacts, name):
    read, peak, loaded, _ = measure(str(artifacts / name))
    assert read < 10_000_000
    assert peak < 40 * 1024
    assert loaded == []


def test_a_bomb_is_refused_before_it_takes_memory(tmp_path, plugin_bytes):
    """A member that really inflates to a gigabyte."""
    import zipfile

    path = tmp_path / "bomb.pt2"
    members = package_members(plugin_bytes)
    write_zip(path, members)
    blob = "model/data/aotinductor/model/abc.wrapper_weights.blob"
    with (
        zipfile.ZipFile(path, "a", zipfile.ZIP_DEFLATED, compresslevel=9) as archive,
        archive.open(blob, "w") as member,
    ):
        for _ in range(64):
            member.write(b"\0" * (16 << 20))
    assert path.stat().st_size < 2 << 20
    _, peak, _, plugins = measure(str(path))
    assert plugins == 1
    assert peak < 40 * 1024


@pytest.mark.parametrize("member", ["abc.wrapper.json", "custom_objs_config.json"])
def test_json_that_inflates_far_is_refused_before_it_is_parsed(tmp_path, plugin_bytes, member):
    """Parsed, sixty megabytes of empty objects would take a gigabyte and a half."""
    import zipfile

    members = package_members(plugin_bytes)
    members[f"model/data/aotinductor/model/{member}"] = b"[" + b"{}," * (20 << 20) + b"{}]"
    path = write_zip(tmp_path / "bomb.pt2", members, zipfile.ZIP_DEFLATED)
    with pytest.raises(NotSupported, match="the limit for this kind of member is"):
        open_artifact(path)


def test_metadata_that_inflate_far_are_not_read(tmp_path, plugin_bytes):
    import zipfile

    members = package_members(plugin_bytes)
    members["model/data/aotinductor/model/abc.wrapper_metadata.json"] = b" " * (60 << 20) + b"{}"
    with open_artifact(write_zip(tmp_path / "bomb.pt2", members, zipfile.ZIP_DEFLATED)) as artifact:
        plugin = artifact.models["model"].plugin
        assert plugin.metadata is None
        (problem,) = plugin.metadata_problems
        assert f"more than the {1 << 20} that are read" in problem


def test_libraries_that_inflate_to_gigabytes_are_looked_at_piece_by_piece(tmp_path, smallest_plugin):
    plugin = Path(smallest_plugin).read_bytes()
    bomb = plugin[:64] + bytes(200_000_000)
    path = tmp_path / "bombs.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        archive.writestr("pkg/model.so", plugin)
        for number in range(4):
            archive.writestr(f"pkg/bomb{number}.so", bomb)
    _, peak, _, plugins = measure(str(path))
    assert plugins == 1
    assert peak < 60 * 1024


def test_a_library_whose_compressed_bytes_are_damaged_hides_no_other(tmp_path, smallest_plugin):
    plugin = Path(smallest_plugin).read_bytes()
    path = tmp_path / "damaged.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("pkg/model.so", plugin)
        archive.writestr("pkg/other.so", plugin[:64] + os.urandom(4096) + bytes(1 << 20))
        info = archive.getinfo("pkg/other.so")
    data = bytearray(path.read_bytes())
    end = info.header_offset + 30 + len(info.filename) + info.compress_size
    data[end - 32 : end] = bytes(32)  # no block of a deflate stream looks so
    path.write_bytes(data)
    with open_artifact(str(path)) as artifact:
        assert list(artifact.models) == ["pkg/model.so"]
        assert any(entry.kind == "unreadable" for entry in artifact.facts)
