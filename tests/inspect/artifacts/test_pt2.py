"""PyTorch packages: layouts, weights, what they lack, and what should not be in them."""

from __future__ import annotations

import importlib
import io
import json
import os
import warnings
import zipfile
from pathlib import Path

import pytest

from aoti_abi.errors import InvalidArgument, InvalidProgram, NotFound, NotSupported
from aoti_inspect.artifacts import open_artifact

from .conftest import METADATA, package_members, write_zip


def kinds(artifact) -> list[str]:
    return [fact.kind for fact in artifact.facts]


@pytest.mark.parametrize("compression", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_a_package_gives_its_plugin_and_metadata(tmp_path, plugin_bytes, compression):
    path = write_zip(tmp_path / "model.pt2", package_members(plugin_bytes), compression)
    with open_artifact(path) as artifact:
        assert (artifact.kind, list(artifact.models), kinds(artifact)) == ("pt2", ["model"], [])
        plugin = artifact.model().plugin
        assert plugin.name == f"{path}!model/data/aotinductor/model/abc.wrapper.so"
        assert plugin.read() == plugin_bytes
        assert plugin.metadata == METADATA
        assert plugin.weights.kind == "none"
        assert (plugin.location is None) == (compression == zipfile.ZIP_DEFLATED)
        if plugin.location:
            start = plugin.location.offset
            assert Path(path).read_bytes()[start : start + plugin.size] == plugin_bytes


def test_views_outlive_the_artifact(tmp_path, plugin_bytes):
    path = write_zip(tmp_path / "model.pt2", package_members(plugin_bytes))
    with open_artifact(path) as artifact:
        view = artifact.model().plugin.read()
    artifact.close()
    assert view == plugin_bytes


def test_without_a_common_folder(tmp_path, plugin_bytes):
    path = write_zip(tmp_path / "model.pt2", package_members(plugin_bytes, prefix=""))
    with open_artifact(path) as artifact:
        assert artifact.model().plugin.read() == plugin_bytes
        assert kinds(artifact) == ["no-common-folder"]


def test_content_decides_and_not_the_extension(tmp_path, plugin_bytes):
    path = write_zip(tmp_path / "model.so", package_members(plugin_bytes))
    assert open_artifact(path).kind == "pt2"


def test_a_model_that_is_not_there_lists_those_that_are(tmp_path, plugin_bytes):
    members = package_members(plugin_bytes, model="prefill") | package_members(plugin_bytes, model="decode")
    with open_artifact(write_zip(tmp_path / "two.pt2", members)) as artifact:
        assert list(artifact.models) == ["prefill", "decode"]
        assert artifact.model("decode").plugin.model == "decode"
        with pytest.raises(NotFound, match="no model 'nope'; it has: prefill, decode"):
            artifact.model("nope")
        with pytest.raises(InvalidArgument, match="one must be named: prefill, decode"):
            artifact.model()


def test_of_several_models_the_one_called_model_is_the_default(tmp_path, plugin_bytes):
    members = package_members(plugin_bytes, model="model") | package_members(plugin_bytes, model="other")
    with open_artifact(write_zip(tmp_path / "two.pt2", members)) as artifact:
        assert artifact.model().name == "model"


def test_an_exported_program_is_recognised(tmp_path):
    members = {
        "x/archive_format": b"pt2",
        "x/models/model.json": b"{}",
        "x/data/weights/model_weights_config.json": b"{}",
    }
    with open_artifact(write_zip(tmp_path / "exported.pt2", members)) as artifact:
        assert artifact.kind == "exported program"
        assert kinds(artifact) == ["no-compiled-models"]
        assert artifact.facts[0].names == ("model",)
        with pytest.raises(NotFound, match="holds no model"):
            artifact.model()


def test_the_older_form_of_an_exported_program(tmp_path):
    members = {"serialized_exported_program.json": b"{}", "version": b"1"}
    assert open_artifact(write_zip(tmp_path / "old.pt2", members)).kind == "exported program"


def test_without_a_library(tmp_path):
    with open_artifact(write_zip(tmp_path / "no_so.pt2", package_members(None))) as artifact:
        assert kinds(artifact) == ["model-without-library"]
        with pytest.raises(NotFound, match="has no compiled library for model 'model', only 1 C"):
            _ = artifact.model().plugin


def test_without_metadata(tmp_path, plugin_bytes):
    members = package_members(plugin_bytes)
    del members["model/data/aotinductor/model/abc.wrapper_metadata.json"]
    with open_artifact(write_zip(tmp_path / "no_meta.pt2", members)) as artifact:
        assert kinds(artifact) == ["metadata-absent"]
        assert artifact.model().plugin.metadata is None


def test_a_compile_only_package_is_explained(tmp_path):
    members = package_members(None, CMakeLists__txt=b"project(x)", abc__wrapper_compile_flags__json=b"{}")
    with open_artifact(write_zip(tmp_path / "cpp.pt2", members)) as artifact:
        assert kinds(artifact) == ["sources-only"]
        with pytest.raises(NotSupported, match="package_cpp_only"):
            artifact.model().select(None)


def test_an_empty_library(tmp_path):
    with open_artifact(write_zip(tmp_path / "zero.pt2", package_members(b""))) as artifact:
        assert kinds(artifact) == ["library-without-bytes"]
        with pytest.raises(InvalidProgram, match="empty"):
            _ = artifact.model().plugin


def test_of_several_libraries_the_wrapper_is_the_plugin(tmp_path, plugin_bytes):
    path = write_zip(tmp_path / "triton.pt2", package_members(plugin_bytes, kernel__so=b"\x7fELFkernel"))
    with open_artifact(path) as artifact:
        assert artifact.model().plugin.name.endswith("abc.wrapper.so")
        assert kinds(artifact) == []
    path = write_zip(tmp_path / "two.pt2", package_members(plugin_bytes, zzz__wrapper__so=plugin_bytes))
    with open_artifact(path) as artifact:
        assert "several-libraries" in kinds(artifact)


def test_a_blob_is_found_and_its_name_checked(tmp_path, plugin_bytes):
    path = write_zip(
        tmp_path / "blob.pt2", package_members(plugin_bytes, abc__wrapper_weights__blob=b"w" * 64)
    )
    with open_artifact(path) as artifact:
        weights = artifact.model().plugin.weights
        assert (weights.kind, weights.size, bytes(weights.blob()), kinds(artifact)) == (
            "blob",
            64,
            b"w" * 64,
            [],
        )
        assert weights.tensors() == ()
    path = write_zip(tmp_path / "other.pt2", package_members(plugin_bytes, other__blob=b"w"))
    assert kinds(open_artifact(path)) == ["blob-of-other-name"]


def pickled(artifacts: Path, plugin: bytes, config: object, *, name="weight_0") -> dict:
    members = package_members(plugin, weights_config__json=json.dumps(config).encode())
    members[f"model/data/weights/{name}"] = (artifacts / "weight_0").read_bytes()
    return members


def test_pickled_weights_are_read_without_executing_them(tmp_path, artifacts, plugin_bytes):
    config = {"a": ["weight_0", [32, 16], [16, 1], 0], "a_t": ["weight_0", [16, 32], [1, 16], 0]}
    with open_artifact(write_zip(tmp_path / "p.pt2", pickled(artifacts, plugin_bytes, config))) as artifact:
        weights = artifact.model().plugin.weights
        assert (weights.kind, weights.automatic) == ("tensors", False)
        first, second = weights.tensors()
        assert (first.fqn, first.dtype, first.sizes, first.strides) == ("a", "float32", (32, 16), (16, 1))
        assert second.storage == first.storage
        assert len(weights.storage(first)) == first.storage_nbytes == 2048


@pytest.mark.torch
@pytest.mark.parametrize("whole", [True, False], ids=["with the whole", "slices only"])
def test_pickled_weights_that_are_slices_of_one_storage(tmp_path, plugin_bytes, whole):
    """PyTorch's own writer stores one tensor for all of them; its reader takes ``as_strided`` of that."""
    import torch
    from torch.export.pt2_archive._package import package_pt2
    from torch.export.pt2_archive._package_weights import TensorProperties
    from torch.export.pt2_archive._package_weights import Weights as Written

    base = torch.arange(48, dtype=torch.float32)
    constants = {"tail": base[20:40], "head": base[4:16].view(3, 4)}
    if whole:
        constants |= {"all": base, "columns": base.view(6, 8)[:, 2:4], "transposed": base.view(6, 8).t()}
    plugin = tmp_path / "abc.wrapper.so"
    plugin.write_bytes(plugin_bytes)
    written = Written({name: (tensor, TensorProperties(tensor)) for name, tensor in constants.items()})
    path = str(tmp_path / "slices.pt2")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # slices only: that there is no tensor of the whole storage
        package_pt2(path, aoti_files={"model": [str(plugin), written]})
    with open_artifact(path) as artifact:
        weights = artifact.model().plugin.weights
        found = {tensor.fqn: tensor for tensor in weights.tensors()}
        assert found.keys() == constants.keys()
        for name, tensor in found.items():
            memory = torch.frombuffer(bytearray(weights.storage(tensor)), dtype=getattr(torch, tensor.dtype))
            read = memory.as_strided(tensor.sizes, tensor.strides, tensor.offset)
            assert torch.equal(read, constants[name]), name
        assert len({tensor.storage for tensor in found.values()}) == 1


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"a": ["weight_0", [32, 17], [17, 1], 0]}, "reaches to byte"),
        ({"a": ["weight_0", [32], [16, 1], 0]}, "impossible shape"),
        ({"a": ["weight_0", [-1], [1], 0]}, "impossible shape"),
        ({"a": ["weight_0", ["x"], [1], 0]}, "impossible shape"),
        ({"a": ["weight_0", [1], [1], -1]}, "impossible shape"),
        ({"a": "weight_0"}, "is not .file, shape"),
        ([1], "not a JSON object"),
    ],
)
def test_damaged_weight_configurations(tmp_path, artifacts, plugin_bytes, config, words):
    path = write_zip(tmp_path / "p.pt2", pickled(artifacts, plugin_bytes, config))
    with pytest.raises(InvalidProgram, match=words), open_artifact(path) as artifact:
        artifact.model().plugin.weights.tensors()


def test_a_missing_weight_file(tmp_path, artifacts, plugin_bytes):
    members = pickled(artifacts, plugin_bytes, {"a": ["weight_7", [1], [1], 0]})
    with open_artifact(write_zip(tmp_path / "p.pt2", members)) as artifact:
        assert kinds(artifact) == ["absent-weight-files"]
        with pytest.raises(NotFound, match="weight_7"):
            artifact.model().plugin.weights.blob()


def test_a_weight_file_never_leads_out_of_the_package(tmp_path, artifacts, plugin_bytes):
    members = pickled(artifacts, plugin_bytes, {"a": ["../../../../etc/passwd", [1], [1], 0]})
    with open_artifact(write_zip(tmp_path / "p.pt2", members)) as artifact:
        assert artifact.model().plugin.weights.kind == "missing"


#: As PyTorch 2.13 wrote it for a model with one custom operator.
NODES = {
    "nodes": [
        {
            "name": "buf1",
            "node": {
                "target": "mylib::scale",
                "inputs": [
                    {"name": "x", "arg": {"as_tensor": {"name": "buf0"}}, "kind": 1},
                    {"name": "s", "arg": {"as_float": 2.5}, "kind": 1},
                    {
                        "name": "o",
                        "arg": {"as_custom_obj": {"name": "_obj0", "class_fqn": "mylib.Q"}},
                        "kind": 1,
                    },
                ],
                "outputs": [{"as_tensor": {"name": "buf2"}}],
                "metadata": {},
            },
        },
        {"name": "buf3", "node": {"target": "torch.ops.mylib.shift.default", "inputs": [], "outputs": []}},
    ]
}


def test_custom_operators_and_objects_are_listed(tmp_path, plugin_bytes):
    members = package_members(
        plugin_bytes,
        abc__wrapper__json=json.dumps(NODES).encode(),
        custom_objs_config__json=b'{"_obj1": "custom_obj_0"}',
    )
    with open_artifact(write_zip(tmp_path / "ops.pt2", members)) as artifact:
        model = artifact.model()
        assert model.proxy_operators == ("mylib::scale", "mylib::shift.default")
        assert model.custom_objects == ("_obj0", "_obj1")
        assert model.plugin.extern_nodes.endswith("abc.wrapper.json")


@pytest.mark.parametrize("content", [b"{", b"[]", b'{"nodes": [{}]}', b"[" * 100000, b"\xff"])
def test_damaged_operator_lists(tmp_path, plugin_bytes, content):
    path = write_zip(tmp_path / "ops.pt2", package_members(plugin_bytes, abc__wrapper__json=content))
    with pytest.raises(InvalidProgram, match=r"JSON|nodes"):
        open_artifact(path)


def test_another_archive_version_is_reported(tmp_path, plugin_bytes):
    members = package_members(plugin_bytes) | {"model/archive_version": b"7"}
    with open_artifact(write_zip(tmp_path / "v7.pt2", members)) as artifact:
        assert kinds(artifact) == ["marker-unknown"]


def test_members_that_climb_out_are_reported_and_written_nowhere(tmp_path, plugin_bytes):
    members = package_members(plugin_bytes) | {
        "model/data/aotinductor/model/../../../../slip.txt": b"slipped"
    }
    path = write_zip(tmp_path / "slip.pt2", members)
    before = sorted(os.listdir(tmp_path))
    with open_artifact(path) as artifact:
        assert kinds(artifact) == ["refused-names"]
        assert artifact.model().plugin.read() == plugin_bytes
    assert sorted(os.listdir(tmp_path)) == before


def test_an_unpacked_package(tmp_path, plugin_bytes):
    for name, content in package_members(plugin_bytes).items():
        target = tmp_path / "unpacked" / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)
    for folder in ("unpacked", "unpacked/model"):
        with open_artifact(str(tmp_path / folder)) as artifact:
            assert (artifact.kind, kinds(artifact)) == ("folder", [])
            assert artifact.model().plugin.read() == plugin_bytes
            assert artifact.model().plugin.metadata == METADATA


def test_links_in_an_unpacked_package_are_not_followed(tmp_path, plugin_bytes):
    for name, content in package_members(plugin_bytes).items():
        target = tmp_path / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)
    library = next(tmp_path.rglob("*.so"))
    library.unlink()
    library.symlink_to("/etc/passwd")
    (tmp_path / "loop").symlink_to(tmp_path)
    with open_artifact(str(tmp_path)) as artifact:
        assert sorted(kinds(artifact)) == ["links", "model-without-library"]


def test_a_package_of_pytorch(tmp_path):
    """The layout that the tests above write by hand is the one that PyTorch writes."""
    package = importlib.import_module("torch.export.pt2_archive._package")
    library = tmp_path / "abc.wrapper.so"
    library.write_bytes(b"\x7fELF" + b"x" * 1000)
    metadata = tmp_path / "abc.wrapper_metadata.json"
    metadata.write_text(json.dumps(METADATA))
    path = str(tmp_path / "by_torch.pt2")
    package.package_pt2(path, aoti_files={"decode": [str(library), str(metadata)]})
    with open_artifact(path) as artifact:
        assert kinds(artifact) == []
        plugin = artifact.model("decode").plugin
        assert plugin.read() == library.read_bytes()
        assert plugin.metadata == METADATA


def test_an_artifact_from_memory(plugin_bytes):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, content in package_members(plugin_bytes).items():
            archive.writestr(name, content)
    with open_artifact("<stdin>", content=buffer.getvalue()) as artifact:
        plugin = artifact.model().plugin
        assert plugin.read() == plugin_bytes
        assert plugin.location is None
        assert plugin.name.startswith("<stdin>!")
