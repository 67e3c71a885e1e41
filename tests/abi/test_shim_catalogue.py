"""The host API's catalogue: look-ups, versions and declarations."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from aoti_abi import shim_catalogue
from aoti_abi.hosts import executorch, torch
from aoti_abi.versions import KNOWN_TORCH


def test_the_catalogue_is_sorted_and_whole() -> None:
    names = shim_catalogue.all_names()
    assert len(names) == len(set(names)) > 3000
    assert list(names) == sorted(names)
    assert all(name.startswith(("aoti_", "torch_")) for name in names)
    for name in names:
        shim = shim_catalogue.lookup(name)
        assert shim is not None
        assert shim.name == name
        assert shim.device in shim_catalogue.DEVICES
        assert {shim.first, shim.last, *shim.gaps, *shim.changed} <= set(KNOWN_TORCH)


@pytest.mark.parametrize(
    ("version", "count"),
    [("2.2", 46), ("2.3", 2664), ("2.6", 449), ("2.12", 774), ("2.13", 791), ("2.14", 882), ("2.15", 889)],
)
def test_counts_by_version(version: str, count: int) -> None:
    assert len(shim_catalogue.names_in(version, shim_catalogue.DEVICES)) == count


def test_names_in_and_versions_with_agree() -> None:
    tables = {version: shim_catalogue.names_in(version, shim_catalogue.DEVICES) for version in KNOWN_TORCH}
    for name in shim_catalogue.all_names()[::7]:
        assert shim_catalogue.versions_with(name) == tuple(v for v in KNOWN_TORCH if name in tables[v])


@pytest.mark.parametrize(
    ("name", "first", "last", "device"),
    [
        ("aoti_torch_create_tensor_from_blob_v2", "2.4", KNOWN_TORCH[-1], "common"),
        ("aoti_torch_empty_strided", "2.2", KNOWN_TORCH[-1], "common"),
        ("aoti_torch_cpu__qconv2d_pointwise_tensor", "2.6", "2.7", "cpu"),
        ("torch_set_current_cuda_stream", "2.10", KNOWN_TORCH[-1], "cuda"),
    ],
)
def test_lookup(name: str, first: str, last: str, device: str) -> None:
    shim = shim_catalogue.lookup(name)
    assert shim is not None
    assert (shim.first, shim.last, shim.device) == (first, last, device)


def test_versions_compare_as_numbers() -> None:
    assert not shim_catalogue.available_in("torch_set_current_cuda_stream", "2.9")
    assert shim_catalogue.available_in("torch_set_current_cuda_stream", "2.10")


def test_a_gap_is_not_available() -> None:
    name = "aoti_torch_cpu__weight_int8pack_mm"
    assert shim_catalogue.lookup(name).gaps == ("2.4", "2.5")  # type: ignore[union-attr]
    assert [shim_catalogue.available_in(name, v) for v in ("2.3", "2.4", "2.5", "2.6")] == [
        True,
        False,
        False,
        True,
    ]


@given(st.text(max_size=40) | st.sampled_from(["aoti_torch_get_data_pt", "", "aoti_torch_get_data_ptr\t2.2"]))
def test_an_unknown_name_is_none(name: str) -> None:
    assume(name not in shim_catalogue.all_names())  # hypothesis also draws strings that the code names
    assert shim_catalogue.lookup(name) is None
    assert shim_catalogue.signature(name) is None
    assert shim_catalogue.versions_with(name) == ()
    assert not shim_catalogue.available_in(name, "2.13")


def test_every_name_has_a_declaration() -> None:
    for name in shim_catalogue.all_names():
        text = shim_catalogue.signature(name)
        assert text is not None
        assert f" {name}(" in text
        assert text.endswith(")")


def test_a_changed_declaration_is_given_by_version() -> None:
    name = "aoti_torch_cpu_fill__Scalar"
    assert shim_catalogue.lookup(name).changed == ("2.8",)  # type: ignore[union-attr]
    before = shim_catalogue.signature(name, "2.7")
    after = shim_catalogue.signature(name, "2.8")
    assert before == f"AOTITorchError {name}(AtenTensorHandle self, double value, AtenTensorHandle* ret0)"
    assert after == f"AOTITorchError {name}(AtenTensorHandle self, double value)"
    assert shim_catalogue.signature(name) == after


@pytest.mark.parametrize(
    ("name", "words"),
    [
        (
            "aoti_torch_create_tensor_from_blob_v2",
            "came with PyTorch 2.4; an older host has only aoti_torch_create_tensor_from_blob, since 2.2",
        ),
        ("aoti_torch_create_tensor_from_blob_v3", f"is in no PyTorch up to {KNOWN_TORCH[-1]}, which has"),
        ("aoti_torch_cpu__qconv2d_pointwise_tensor", "was removed after PyTorch 2.7"),
        ("aoti_torch_cpu__weight_int8pack_mm", "is missing from PyTorch 2.4, 2.5, though 2.3 had it"),
    ],
)
def test_skew_is_explained(name: str, words: str) -> None:
    text = shim_catalogue.skew(name)
    assert text is not None
    assert text.startswith(name)
    assert words in text


@pytest.mark.parametrize("name", ["aoti_torch_get_data_ptr", "aoti_torch_nonsense", "x_v99999999999"])
def test_skew_has_nothing_to_add(name: str) -> None:
    assert shim_catalogue.skew(name) is None


def test_first_with_all() -> None:
    assert (
        shim_catalogue.first_with_all(["aoti_torch_get_dim", "aoti_torch_create_tensor_from_blob_v2"])
        == "2.4"
    )
    assert shim_catalogue.first_with_all(["aoti_torch_get_dim", "aoti_torch_nonsense"]) is None


def test_names_in_refuses_an_unknown_version() -> None:
    with pytest.raises(ValueError, match=r"no table for PyTorch 1\.0"):
        shim_catalogue.names_in("1.0")


def test_import_reads_no_data_and_nothing_heavy() -> None:
    code = (
        "import sys, aoti_abi.shim_catalogue as c; "
        "bad = {'gzip', 'json', 'dataclasses', 'pathlib', 'ctypes', 're'} & set(sys.modules); "
        "assert not bad, bad; assert c._lines.cache_info().currsize == 0"
    )
    subprocess.run([sys.executable, "-S", "-c", code], check=True, env={"PYTHONPATH": ":".join(sys.path)})


@pytest.mark.parametrize(
    ("release", "count"), [("1.1", 41), ("1.2", 40), ("1.3", 44), ("1.4", 48), ("1.5", 51)]
)
def test_the_slim_list_of_each_release(release: str, count: int) -> None:
    assert len(executorch.slim_shims(release)) == count
    assert executorch.slim_shims(release) - {"aoti_torch_dtype_element_size"} <= executorch.slim_shims("1.5")


@pytest.mark.parametrize("release", ["1.0", "1.5.1", "", "99.0"])
def test_an_unknown_release_of_executorch_is_refused(release: str) -> None:
    with pytest.raises(ValueError, match=rf"no table for ExecuTorch {re.escape(release)}; known: 1\.1 to"):
        executorch.slim_shims(release)


def test_the_slim_list() -> None:
    assert executorch.RELEASES[0] == "1.1"
    assert "aoti_torch_dtype_element_size" in executorch.shims_of_any_release()
    assert "aoti_torch_cuda_int4_plain_mm" in executorch.slim_shims("1.5")
    generic = [name for name in executorch.slim_shims("1.5") if shim_catalogue.lookup(name)]
    assert len(generic) > 40


def test_what_a_torch_host_provides() -> None:
    assert torch.provides("Sleef_expf16_u10", "2.13")
    assert torch.provides("aoti_torch_get_dim", "2.13")
    assert not torch.provides("aoti_torch_cpu__qconv2d_pointwise_tensor", "2.8")
    assert not torch.provides("aoti_torch_cuda_mm_out", "2.13")
    assert torch.provides("aoti_torch_cuda_mm_out", "2.13", ("common", "cpu", "cuda"))
    assert not torch.provides("cblas_sgemm", "2.13")
