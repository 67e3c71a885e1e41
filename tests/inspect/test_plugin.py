"""One plugin, put together: facts, weights, GPU code, runtime, and the metadata beside it."""

from __future__ import annotations

import json
import os
import pickle
import shutil
from pathlib import Path

import pytest

from aoti_abi.errors import NotFound
from aoti_abi.features import evaluate
from aoti_inspect.artifacts.facts import read_facts
from aoti_inspect.elf.image import ElfImage
from aoti_inspect.facts.plugin import parse_metadata, plugin_facts


@pytest.mark.parametrize("name", ["mlp", "mlp_blob", "counter"])
def test_real_plugins(plugins: Path, name: str):
    facts = read_facts(str(plugins / f"{name}.so"))
    assert facts.name == str(plugins / f"{name}.so")
    assert facts.elf.anomalies == ()
    assert facts.gpu == ()
    assert (facts.cxx_runtime, facts.cxx_runtime_static) == ("libstdc++", False)
    assert facts.metadata is not None
    assert facts.metadata["AOTI_DEVICE_KEY"] == "cpu"
    assert "AOTInductorModelContainerExtractConstantsMapEntries" in facts.elf.exports.container
    states = {
        state.feature.name: state.available for state in evaluate(frozenset(facts.elf.exports.container))
    }
    assert states["run"]
    assert not states["external-constants-at-creation"], "PyTorch 2.14 has it first"
    assert facts.elf.exports.unique, "std::regex's statics"
    assert facts.elf.exports.runtime > 10
    assert facts.elf.exports.std > 300
    assert facts.elf.exports.std_strong == 0
    assert facts.elf.executable_stack == (name != "mlp")
    assert ("libtorch_cpu.so" in facts.elf.needed) == (name == "counter")
    shims = {symbol.name for symbol in facts.elf.undefined if symbol.name.startswith("aoti_torch_")}
    assert "aoti_torch_create_tensor_from_blob_v2" in shims
    assert not {name for name in shims if "_cpu_" in name}, "no operator of ATen"


def test_no_path_of_the_machine_that_built_them_is_in_the_real_plugins(plugins: Path):
    for path in plugins.glob("*.so"):
        data = path.read_bytes()
        # What a build machine's paths look like, wherever its folders are.
        for text in (b"/home/", b"/tmp/", b"site-packages"):
            assert text not in data, text


def test_facts_are_values_that_can_be_sent_to_another_process(plugins: Path):
    facts = read_facts(str(plugins / "mlp.so"))
    assert pickle.loads(pickle.dumps(facts)) == facts
    assert read_facts(str(plugins / "mlp.so")) == facts


@pytest.mark.parametrize("suffix", ["_metadata.json", ".wrapper_metadata.json"])
def test_metadata_beside_the_plugin(small_plugin: Path, tmp_path: Path, suffix: str):
    plugin = tmp_path / "model.so"
    shutil.copy(small_plugin, plugin)
    assert read_facts(str(plugin)).metadata is None
    written = {"AOTI_DEVICE_KEY": "cuda", "AOTI_COMPUTE_CAPABILITY": "90", "own": 3, "nested": {"a": [1]}}
    (tmp_path / f"model{suffix}").write_text(json.dumps(written))
    facts = read_facts(str(plugin))
    assert facts.metadata == {
        "AOTI_DEVICE_KEY": "cuda",
        "AOTI_COMPUTE_CAPABILITY": "90",
        "own": "3",
        "nested": '{"a": [1]}',
    }
    assert facts.elf.anomalies == ()


def test_metadata_of_a_wrapper_has_the_name_of_the_wrapper(small_plugin: Path, tmp_path: Path):
    plugin = tmp_path / "chash.wrapper.so"
    shutil.copy(small_plugin, plugin)
    (tmp_path / "chash.wrapper_metadata.json").write_text('{"AOTI_DEVICE_KEY": "cpu"}')
    assert read_facts(str(plugin)).metadata == {"AOTI_DEVICE_KEY": "cpu"}


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (b"", "is not JSON"),
        (b"{", "is not JSON"),
        (b"\xff\xfe\x00", "is not JSON"),
        (b"[1, 2]", "not an object"),
        (b'"text"', "not an object"),
        (b"[" * 200_000, "nests too deeply"),
        (b" " * (1 << 20) + b"{}", "more than"),
    ],
)
def test_metadata_that_cannot_be_read_is_an_anomaly(
    small_plugin: Path, tmp_path: Path, raw: bytes, reason: str
):
    plugin = tmp_path / "model.so"
    shutil.copy(small_plugin, plugin)
    (tmp_path / "model_metadata.json").write_bytes(raw)
    facts = read_facts(str(plugin))
    assert facts.metadata is None
    (anomaly,) = facts.elf.anomalies
    assert reason in anomaly
    assert "model_metadata.json" in anomaly


def test_metadata_that_is_a_folder_or_a_pipe_is_an_anomaly(small_plugin: Path, tmp_path: Path):
    plugin = tmp_path / "model.so"
    shutil.copy(small_plugin, plugin)
    (tmp_path / "model_metadata.json").mkdir()
    os.mkfifo(tmp_path / "model.wrapper_metadata.json")
    facts = read_facts(str(plugin))
    assert facts.metadata is None
    assert len(facts.elf.anomalies) == 2


def test_metadata_is_parsed_from_bytes_too():
    assert parse_metadata(b'{"a": "b"}') == {"a": "b"}
    assert parse_metadata(b"{}") == {}
    assert isinstance(parse_metadata(b"nope"), str)


def test_an_image_of_an_archive_member_takes_the_metadata_that_it_is_given(small_plugin: Path):
    image = ElfImage(small_plugin.read_bytes(), "model.pt2!data/model.so")
    facts = plugin_facts(image, metadata={"AOTI_DEVICE_KEY": "cpu"})
    assert (facts.name, facts.metadata) == ("model.pt2!data/model.so", {"AOTI_DEVICE_KEY": "cpu"})


def test_a_missing_plugin(tmp_path: Path):
    with pytest.raises(NotFound, match="no such file"):
        read_facts(str(tmp_path / "absent.so"))
