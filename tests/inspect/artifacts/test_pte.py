"""ExecuTorch programs: what a delegate needs, where it is, and files that are damaged."""

from __future__ import annotations

import shutil
import struct
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aoti_abi.errors import AotiError, InvalidProgram, NotFound, NotSupported
from aoti_inspect.artifacts import open_artifact
from aoti_inspect.artifacts.program import Argument, Value

from .conftest import FIXTURES

PROGRAMS = sorted(FIXTURES.glob("*.pte"))
TENSOR_FILES = sorted(FIXTURES.glob("*.ptd"))


def kinds(artifact) -> list[str]:
    return [fact.kind for fact in artifact.facts]


def test_L10_N20_two_keys(artifacts: Path):
    with open_artifact(str(artifacts / "aoti_two_keys.pte")) as artifact:
        plugin = artifact.model().plugin
        assert (artifact.kind, kinds(artifact)) == ("pte", [])
        assert plugin.delegate.id == "CudaBackend"
        assert plugin.delegate.compile_specs == (("method_name", b"forward"),)
        assert plugin.delegate.payload.kind == "keys"
        assert bytes(plugin.read()).startswith(b"\x7fELF tiny")
        assert (plugin.weights.kind, plugin.weights.size) == ("blob", 192)
        data = (artifacts / "aoti_two_keys.pte").read_bytes()
        assert data[plugin.location.offset :][: plugin.size] == plugin.read()


def test_L10_N12_legacy_keys_with_data_beside_the_program(artifacts: Path):
    with open_artifact(str(artifacts / "aoti_legacy_external.pte")) as artifact:
        plugin = artifact.model().plugin
        assert plugin.delegate.payload.kind == "legacy"
        assert plugin.weights.origin == "forward_weights_blob"
        assert artifact.companions == (str(artifacts / "aoti_legacy_external.aoti_cuda_blob.ptd"),)
        assert plugin.weights.location.path == artifact.companions[0]


def test_L11_N30_weights_by_name(artifacts: Path):
    with open_artifact(str(artifacts / "aoti_fqn3_external.pte")) as artifact:
        weights = artifact.model().plugin.weights
        assert weights.kind == "tensors"
        assert {tensor.fqn: (tensor.dtype, tensor.sizes) for tensor in weights.tensors()} == {
            "w": ("float32", (3, 4)),
            "b": ("float32", (3, 4)),
            "i8": ("int8", (3, 4)),
        }
        assert [len(weights.storage(tensor)) for tensor in weights.tensors()] == [48, 48, 12]


def test_methods_inputs_outputs_and_arguments(artifacts: Path):
    with open_artifact(str(artifacts / "aoti_multimethod_external.pte")) as artifact:
        assert list(artifact.models) == ["forward", "second"]
        assert artifact.model().name == "forward"
        second = artifact.model("second")
        assert second.inputs == (Value("tensor", "float32", (10,), (0,)),)
        assert second.outputs[1] == Value("tensor", "float32", (), ())
        assert second.plugin.delegate.calls == (
            (Argument(0, 0, None), Argument(1, None, 0), Argument(2, None, 1)),
        )
        with pytest.raises(NotFound, match=r"no method 'third'; it has: forward, second"):
            artifact.model("third")


def test_arguments_are_followed_through_copies_to_the_device(artifacts: Path):
    with open_artifact(str(artifacts / "aoti_target_device.pte")) as artifact:
        model = artifact.model()
        assert model.operators == ("et_copy::_h2d_copy.out", "et_copy::_d2h_copy.out")
        assert model.plugin.delegate.calls == ((Argument(1, 0, None), Argument(2, None, 0)),)
        assert dict(model.plugin.delegate.compile_specs)["target_device"] == b"cuda:0"


def test_L10_a_malformed_payload_is_a_problem_of_its_method(artifacts: Path):
    with open_artifact(str(artifacts / "handmade_malformed_payload.pte")) as artifact:
        assert kinds(artifact) == ["payload-undecodable"]
        with pytest.raises(InvalidProgram, match=r"forward\[0\]: the delegate's payload"):
            _ = artifact.model().plugin


def test_programs_without_a_plugin_say_what_they_run(artifacts: Path):
    with open_artifact(str(artifacts / "portable.pte")) as artifact:
        assert kinds(artifact) == ["program-without-plugins"]
        assert artifact.model().operators == ("aten::permute_copy.out", "aten::addmm.out", "aten::relu.out")
        with pytest.raises(NotFound, match="no AOTInductor plugin"):
            _ = artifact.model().plugin
    with open_artifact(str(artifacts / "xnnpack.pte")) as artifact:
        assert artifact.model().other_delegates == ("XnnpackBackend",)


def test_a_key_may_share_its_segment(artifacts: Path):
    with open_artifact(str(artifacts / "handmade_two_keys.pte")) as artifact:
        assert set(artifact.named_data) == {"aaa_so_blob", "bbb_weights_blob", "alias_weights_blob"}
        shared = artifact.named_data["alias_weights_blob"], artifact.named_data["bbb_weights_blob"]
        assert shared[0].offset == shared[1].offset


def test_W1_data_that_was_left_behind(artifacts: Path, tmp_path: Path):
    program = shutil.copy(artifacts / "aoti_legacy_external.pte", tmp_path)
    with open_artifact(program) as artifact:
        weights = artifact.model().plugin.weights
        assert (weights.kind, weights.origin) == ("missing", "forward_weights_blob")
        with pytest.raises(NotFound, match="forward_weights_blob"):
            weights.blob()


@pytest.mark.parametrize(
    "name", ["aoti_cuda_blob.ptd", "aoti_legacy_external.ptd", "aoti_legacy_external.x.ptd"]
)
def test_data_is_found_under_the_names_that_exporters_give(artifacts: Path, tmp_path: Path, name):
    program = shutil.copy(artifacts / "aoti_legacy_external.pte", tmp_path)
    shutil.copy(artifacts / "aoti_legacy_external.aoti_cuda_blob.ptd", tmp_path / name)
    with open_artifact(program) as artifact:
        assert artifact.model().plugin.weights.kind == "blob"
        assert artifact.companions == (str(tmp_path / name),)


def test_data_of_another_program_is_left_alone(artifacts: Path, tmp_path: Path):
    program = shutil.copy(artifacts / "aoti_two_keys.pte", tmp_path)
    shutil.copy(artifacts / "aoti_legacy_external.aoti_cuda_blob.ptd", tmp_path / "aoti_cuda_blob.ptd")
    shutil.copy(artifacts / "aoti_legacy_external.aoti_cuda_blob.ptd", tmp_path / "other.ptd")
    with open_artifact(program) as artifact:
        assert artifact.companions == ()


def test_data_can_be_named(artifacts: Path, tmp_path: Path):
    program = shutil.copy(artifacts / "aoti_legacy_external.pte", tmp_path)
    data = str(artifacts / "aoti_legacy_external.aoti_cuda_blob.ptd")
    with open_artifact(program, data=(data,)) as artifact:
        assert artifact.model().plugin.weights.size == 192
    with open_artifact(program, data=(data, data)) as artifact:
        assert kinds(artifact) == ["repeated-key"]
    with pytest.raises(NotFound, match="no such file"):
        open_artifact(program, data=(str(tmp_path / "nope.ptd"),))


@pytest.mark.parametrize("content", [b"", b"\xff" * 100, b"not a data file at all, but long enough"])
def test_data_that_is_something_else(artifacts: Path, tmp_path: Path, content):
    (tmp_path / "x.ptd").write_bytes(content)
    with pytest.raises(AotiError, match=r"only 'FT01' is known"):
        open_artifact(str(artifacts / "aoti_two_keys.pte"), data=(str(tmp_path / "x.ptd"),))


def test_missing_weights_by_name(artifacts: Path, tmp_path: Path):
    program = shutil.copy(artifacts / "aoti_fqn3_external.pte", tmp_path)
    with open_artifact(program) as artifact:
        assert kinds(artifact) == ["absent-named-data"]
        assert artifact.model().plugin.weights.kind == "missing"


def test_N21_a_plugin_key_that_is_nowhere(artifacts: Path):
    data = (artifacts / "handmade_two_keys.pte").read_bytes()
    with open_artifact("x.pte", content=data.replace(b"aaa_so_blob\n", b"zzz_so_blob\n")) as artifact:
        assert kinds(artifact) == ["payload-without-plugin"]
        with pytest.raises(NotFound, match="'zzz_so_blob' is in no named data"):
            _ = artifact.model().plugin


def test_an_unknown_version_of_the_payload(artifacts: Path):
    data = (artifacts / "aoti_fqn3_external.pte").read_bytes().replace(b"ETCUDAFQN3", b"ETCUDAFQN9")
    with open_artifact("x.pte", content=data) as artifact:
        assert kinds(artifact) == ["payload-of-unknown-version"]
        with pytest.raises(NotSupported, match="ETCUDAFQN9"):
            _ = artifact.model().plugin


def test_a_weight_of_another_size(artifacts: Path):
    program = (artifacts / "aoti_fqn3_external.pte").read_bytes()
    metadata = struct.pack("<Qii", 48, 6, 0)
    assert metadata in program
    changed = program.replace(metadata, struct.pack("<Qii", 64, 6, 0), 1)
    data = str(artifacts / "aoti_fqn3_external.aoti_cuda_blob.ptd")
    with open_artifact("x.pte", content=changed, data=(data,)) as artifact:
        assert kinds(artifact) == ["weight-of-other-size"]


def test_bytes_after_the_end_are_reported(artifacts: Path):
    data = (artifacts / "handmade_two_keys.pte").read_bytes()
    assert kinds(open_artifact("x.pte", content=data + b"garbage")) == ["bytes-after"]


def test_a_tensor_file_by_itself(artifacts: Path):
    with open_artifact(str(artifacts / "portable_external._default_external_constant.ptd")) as artifact:
        assert artifact.kind == "ptd"
        layouts = {blob.layout.sizes for blob in artifact.named_data.values()}
        assert layouts == {(12, 5), (12,)}
    data = (artifacts / "aoti_fqn3_external.aoti_cuda_blob.ptd").read_bytes()
    assert kinds(open_artifact("x.ptd", content=data + b"!")) == ["bytes-after"]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda data: data[:4] + b"ET99" + data[8:], "only ET12"),
        (lambda data: data[:4] + b"BP08" + data[8:], "bundled program"),
        (lambda data: data[:12] + struct.pack("<I", 8) + data[16:], "at least 24"),
        (lambda data: data[:16] + struct.pack("<Q", 1 << 40) + data[24:], "of structure"),
        (lambda data: data[:24] + struct.pack("<Q", 16) + data[32:], "inside the"),
        (lambda data: data[:-1], "cut short"),
        (lambda data: struct.pack("<I", 1 << 31) + data[4:], "structure is damaged"),
        (lambda data: data[:20], "inside its header"),
    ],
)
def test_damaged_programs_say_what_is_wrong(artifacts: Path, change, words):
    data = (artifacts / "handmade_two_keys.pte").read_bytes()
    with pytest.raises(AotiError, match=words):
        open_artifact("x.pte", content=change(data))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda data: data[:4] + b"FT99" + data[8:], "only 'FT01'"),
        (lambda data: data[:8] + b"XXXX" + data[12:], "no complete header"),
        (lambda data: data[:12] + struct.pack("<I", 8) + data[16:], "at least 40"),
        (lambda data: data[:-1], "cut short"),
    ],
)
def test_damaged_tensor_files_say_what_is_wrong(artifacts: Path, change, words):
    data = (artifacts / "aoti_fqn3_external.aoti_cuda_blob.ptd").read_bytes()
    with pytest.raises(AotiError, match=words):
        open_artifact("x.ptd", content=change(data))


def read_all(data: bytes, name: str) -> None:
    with open_artifact(name, content=data, data=()) as artifact:
        for model in artifact.models.values():
            for plugin in model.plugins:
                plugin.read()
                for tensor in plugin.weights.tensors():
                    plugin.weights.storage(tensor)
        for blob in artifact.named_data.values():
            bytes(blob.view())


@settings(max_examples=400, deadline=1000)
@given(
    st.sampled_from(PROGRAMS + TENSOR_FILES),
    st.lists(st.tuples(st.integers(0, 1 << 16), st.integers(0, 255)), min_size=1, max_size=8),
    st.booleans(),
)
def test_mutated_files_are_read_or_refused(path, changes, words):
    data = bytearray(path.read_bytes())
    for position, value in changes:
        if words:
            start = position % (len(data) // 4) * 4
            data[start : start + 4] = struct.pack("<I", value if value < 200 else 0xFFFFFFFF - value)
        else:
            data[position % len(data)] = value
    try:
        read_all(bytes(data), path.name)
    except AotiError as error:
        assert str(error)


@settings(max_examples=60, deadline=1000)
@given(st.sampled_from(PROGRAMS + TENSOR_FILES), st.floats(0, 1))
def test_shortened_files_are_read_or_refused(path, share):
    data = path.read_bytes()
    try:
        read_all(data[: int(len(data) * share)], path.name)
    except AotiError as error:
        assert str(error)
