"""Models out of packages that are wrong in some way: nothing is loaded, and what is wrong is said."""

from __future__ import annotations

import zipfile
from pathlib import Path

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
