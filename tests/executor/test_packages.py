"""Models out of packages that are wrong in some way: nothing is loaded, and what is wrong is said."""

from __future__ import annotations

import io
import json
import struct
import zipfile
from pathlib import Path

import numpy as np
import pytest

from aoti_abi.errors import InvalidProgram, NotFound, NotSupported
from aoti_executor import Model

PLUGINS = Path(__file__).resolve().parents[2] / "fixtures" / "plugins"
FOLDER = "model/data/aotinductor"


def write(path: Path, members: dict[str, bytes]) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("model/archive_format", "pt2")
        archive.writestr("model/archive_version", "0")
        for name, content in members.items():
            archive.writestr(name, content)
    return path


def model(name: str = "model", **changed: bytes) -> dict[str, bytes]:
    """Return the members of one model; ``changed`` are those that are other than they should be."""
    members = {
        "so": (PLUGINS / "mlp.so").read_bytes(),
        "metadata": (PLUGINS / "mlp_metadata.json").read_bytes(),
        **changed,
    }
    return {
        f"{FOLDER}/{name}/abc.wrapper.so": members["so"],
        f"{FOLDER}/{name}/abc.wrapper_metadata.json": members["metadata"],
    }


def test_a_sound_package_loads(tmp_path: Path) -> None:
    Model(write(tmp_path / "m.pt2", model())).close()


def test_an_exported_program_is_no_model(tmp_path: Path) -> None:
    path = write(tmp_path / "m.pt2", {"model/models/model.json": b"{}"})
    with pytest.raises(NotFound, match="holds no model"):
        Model(path)


def test_a_wrong_method_lists_those_that_are_there(tmp_path: Path) -> None:
    path = write(tmp_path / "m.pt2", model())
    with pytest.raises(NotFound, match="no model 'nope'; it has: model"):
        Model(path, method="nope")


def test_a_package_without_its_library_says_so(tmp_path: Path) -> None:
    path = write(tmp_path / "m.pt2", {f"{FOLDER}/model/abc.wrapper.cpp": b"int x;"})
    with pytest.raises(NotFound, match="has no compiled library for model 'model'"):
        Model(path)
    with pytest.raises(InvalidProgram, match="the library is empty"):
        Model(write(tmp_path / "zero.pt2", model(so=b"")))


def test_nothing_is_loaded_from_a_package_that_climbs_out(tmp_path: Path) -> None:
    path = write(tmp_path / "m.pt2", {**model(), f"{FOLDER}/model/../../../../slip.txt": b"slipped"})
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(InvalidProgram, match=r"nothing is loaded from this package.*slip\.txt"):
        Model(path)
    assert sorted(tmp_path.rglob("*")) == before


def test_metadata_of_another_machine_are_refused_unless_allowed(tmp_path: Path) -> None:
    path = write(tmp_path / "m.pt2", model(metadata=b'{"AOTI_DEVICE_KEY": "cpu", "AOTI_MACHINE": "s390x"}'))
    with pytest.raises(InvalidProgram, match="AOTI_MACHINE=s390x, but the file is for"):
        Model(path)
    Model(path, check_isa=False).close()


def test_a_package_for_a_gpu_is_refused_before_its_plugin_is_opened(tmp_path: Path) -> None:
    path = write(tmp_path / "m.pt2", model(metadata=b'{"AOTI_DEVICE_KEY": "cuda"}'))
    with pytest.raises((InvalidProgram, NotSupported), match="AOTI_DEVICE_KEY=cuda"):
        Model(path)


def saved(values: np.ndarray) -> bytes:
    """Return what ``torch.save`` writes for a tensor of float32 that is a whole storage."""
    count = struct.pack("<i", values.size)
    program = b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\n((X\x07\0\0\0storagectorch\nFloatStorage\n"
    program += b"X\x01\0\0\x000X\x03\0\0\0cpuJ" + count + b"tQK\0J" + count
    program += b"\x85K\x01\x85\x89ccollections\nOrderedDict\n)RtR."
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("archive/data.pkl", program)
        archive.writestr("archive/data/0", values.astype("<f4").tobytes())
    return buffer.getvalue()


def test_weights_that_are_slices_of_one_saved_storage(tmp_path: Path, arrays) -> None:
    """One file holds all constants, with gaps between them."""
    given = np.frombuffer((PLUGINS / "mlp_blob.blob").read_bytes(), "f")
    storage, config, at = [np.full(5, np.nan, "f")], {}, 0
    # In the order of the blob; each constant there starts at a multiple of 64 bytes.
    for name, shape in {"a.weight": (32, 16), "a.bias": (32,), "b.weight": (12, 32), "b.bias": (12,)}.items():
        value = given[at : at + int(np.prod(shape))].reshape(shape)
        at += -(-value.size // 16) * 16
        strides = [step // value.itemsize for step in value.strides]
        config[name] = ["weight_0", list(shape), strides, sum(part.size for part in storage)]
        storage += [value.ravel(), np.full(3, np.nan, "f")]
    members = model(
        so=(PLUGINS / "mlp_blob.so").read_bytes(), metadata=(PLUGINS / "mlp_blob_metadata.json").read_bytes()
    )
    members[f"{FOLDER}/model/weights_config.json"] = json.dumps(config).encode()
    members["model/data/weights/weight_0"] = saved(np.concatenate(storage))
    inputs, outputs = arrays(PLUGINS / "mlp_blob.npz")
    with Model(write(tmp_path / "m.pt2", members)) as opened:
        np.testing.assert_allclose(opened(*inputs).numpy(), outputs[0], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("limit", [0, 1 << 30])
def test_a_changed_byte_of_a_stored_library_is_found_before_it_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: int
) -> None:
    """However large it is: those above the limit are not checked in audits, but before they are loaded."""
    for module in ("aoti_inspect.artifacts.sidecars", "aoti_loader.loading"):
        monkeypatch.setattr(f"{module}.CHECKED_WHEN_OPENED", limit)
    path = write(tmp_path / "m.pt2", model())
    data = bytearray(path.read_bytes())
    library = (PLUGINS / "mlp.so").read_bytes()
    data[data.find(library) + len(library) - 1] ^= 1
    path.write_bytes(data)
    with pytest.raises(InvalidProgram, match="do not match their checksum"):
        Model(path)


def test_of_two_libraries_none_is_loaded(tmp_path: Path) -> None:
    other = {f"{FOLDER}/model/z.wrapper.so": (PLUGINS / "mlp.so").read_bytes()}
    with pytest.raises(NotSupported, match="loaders differ in which they take"):
        Model(write(tmp_path / "m.pt2", {**model(), **other}))
