from __future__ import annotations

import pytest

from aoti_inspect.findings import HostVerdict
from aoti_inspect.rules.aoti30x_host_functions import shim_family


def lacks(host, *names):
    return HostVerdict(host, "will not load", ("it lacks something",), names)


def test_missing_functions_are_grouped_by_host_and_family(run):
    missing = ("Sleef_expf16_u10", "aoti_torch_cpu_addmm_out", "aoti_torch_get_dim", "torch_call_dispatcher")
    verdicts = (
        lacks("torch==2.6", *missing),
        lacks("torch==2.7", *missing),
        HostVerdict("torch==2.13", "loads"),
    )
    finding = run("AOTI301", verdicts=verdicts).only
    assert finding.severity == "error"
    assert finding.symbols == missing
    assert finding.message.startswith("torch==2.6 and torch==2.7 lack 4 functions")
    assert "core: aoti_torch_get_dim (2." in finding.message
    assert "CPU operators: aoti_torch_cpu_addmm_out" in finding.message
    assert "vector math (Sleef): Sleef_expf16_u10" in finding.message
    assert "stable API: torch_call_dispatcher (2.10)" in finding.message


def test_L13_hosts_that_lack_different_functions_are_told_apart(run):
    outcome = run("AOTI301", verdicts=(lacks("a", "aoti_torch_get_dim"), lacks("b", "aoti_torch_clone")))
    assert [finding.symbols for finding in outcome.findings] == [
        ("aoti_torch_get_dim",),
        ("aoti_torch_clone",),
    ]


def test_a_missing_v2_is_explained_by_its_predecessor(run):
    finding = run("AOTI301", verdicts=(lacks("torch==2.3", "aoti_torch_create_tensor_from_blob_v2"),)).only
    assert "older host has only aoti_torch_create_tensor_from_blob" in finding.remedy


def test_no_version_has_what_no_version_has(run):
    finding = run("AOTI301", verdicts=(lacks("torch==2.13", "aoti_torch_cpu_my_own_op"),)).only
    assert "no PyTorch" in finding.remedy


def test_a_host_that_could_not_be_checked_is_no_pass(run):
    outcome = run("AOTI301", verdicts=(HostVerdict("/opt/host", "not checked", ("no such library",)),))
    assert not outcome.findings
    assert "no such library" in outcome.unchecked[0].reason


def test_hosts_that_load_it_are_fine(run):
    verdicts = (HostVerdict("torch==2.13", "loads"), HostVerdict("builtin", "loads with fallbacks"))
    for code in ("AOTI301", "AOTI303", "AOTI304"):
        assert run(code, verdicts=verdicts).silent
        assert run(code).silent


def test_a_required_host_that_refuses_for_another_reason(run):
    verdict = HostVerdict("executorch", "will not load", ("it needs libtorch.so", "and more"))
    assert "it needs libtorch.so; and more" in run("AOTI304", verdicts=(verdict,)).only.message
    assert run("AOTI304", verdicts=(lacks("executorch", "aoti_torch_clone"),)).silent


@pytest.mark.parametrize(
    ("name", "title"),
    [
        ("aoti_torch_get_dim", "core"),
        ("aoti_torch_cuda_mm_out", "CUDA operators"),
        ("aoti_torch_xpu_mm_out", "XPU operators"),
        ("aoti_torch_mps_mm_out", "MPS operators"),
        ("aoti_torch_proxy_executor_call_function", "custom operators"),
        ("_ZN3c107WarningC1ERKSs", "C++ functions of LibTorch"),
        ("cudaMalloc", "CUDA runtime"),
        ("my_symbol", "others"),
    ],
)
def test_families_of_host_functions(name, title):
    assert shim_family(name) == title


def test_a_function_that_no_pytorch_has(run):
    finding = run("AOTI302", undefined=("aoti_torch_cpu_my_own_op", "aoti_torch_clone")).only
    assert finding.symbols == ("aoti_torch_cpu_my_own_op",)
    assert finding.severity == "warning"
    assert run("AOTI302").silent


def test_a_function_that_only_executorch_has_is_a_remark(run):
    assert run("AOTI302", undefined=("aoti_torch_cuda_int4_plain_mm",)).only.severity == "info"


@pytest.mark.parametrize(
    ("host", "found"), [("torch==2.6", True), ("torch==2.7", False), ("torch==2.13", False)]
)
def test_a_function_whose_arguments_changed_in_2_7(run, host, found):
    outcome = run(
        "AOTI303", undefined=("aoti_torch_cpu_set__source_Tensor",), verdicts=(HostVerdict(host, "loads"),)
    )
    assert bool(outcome.findings) is found
    if found:
        assert outcome.only.symbols == ("aoti_torch_cpu_set__source_Tensor",)
        assert "torch==2.6" in outcome.only.message


def test_a_newer_host_than_the_change(run):
    outcome = run(
        "AOTI303",
        torch="2.6",
        undefined=("aoti_torch_cpu_set__source_Tensor",),
        verdicts=(HostVerdict("torch==2.13.0+cpu", "loads"),),
    )
    assert outcome.only.symbols == ("aoti_torch_cpu_set__source_Tensor",)


def test_libtorch_needed_or_not(run):
    assert run("AOTI310").only.symbols == ("libtorch_cpu.so",)
    assert run("AOTI311").silent
    without = {"needed": ("libstdc++.so.6", "libc.so.6")}
    assert run("AOTI310", **without).silent
    assert "aoti_torch_get_data_ptr" in run("AOTI311", **without).only.symbols
    assert run("AOTI311", needed=(), undefined=("memcpy@GLIBC_2.14@libc.so.6",)).silent


def test_operators_of_two_devices(run):
    finding = run("AOTI312", undefined=("aoti_torch_cpu_mm_out", "aoti_torch_cuda_mm_out")).only
    assert "cpu: aoti_torch_cpu_mm_out; cuda: aoti_torch_cuda_mm_out" in finding.message
    assert run("AOTI312", undefined=("aoti_torch_cuda_mm_out", "aoti_torch_clone")).silent


def test_sleef_is_expected_of_the_host(run):
    assert run("AOTI320", undefined=("Sleef_expf16_u10",)).only.symbols == ("Sleef_expf16_u10",)
    assert run("AOTI320").silent


def test_other_symbols_of_the_host(run):
    finding = run("AOTI321", undefined=("my_helper", "cblas_sgemm"), needed=("libc.so.6",)).only
    assert finding.symbols == ("cblas_sgemm", "my_helper")
    assert finding.severity == "warning"
    maybe = run("AOTI321", undefined=("cblas_sgemm",), needed=("libopenblas.so.0",)).only
    assert maybe.severity == "info"
    assert "libopenblas.so.0" in maybe.message
    assert run("AOTI321", undefined=("?optional", "memcpy@GLIBC_2.14@libc.so.6")).silent
    assert run("AOTI321").silent


def test_the_proxy_executor_is_needed(run):
    finding = run("AOTI330", undefined=("aoti_torch_proxy_executor_call_function",)).only
    assert "JSON" in finding.message
    assert run("AOTI330").silent


def test_L12_a_plugin_that_defines_host_functions(run):
    finding = run("AOTI340", shims=("aoti_torch_get_data_ptr",)).only
    assert finding.severity == "error"
    assert run("AOTI340", shims=("aoti_torch_get_data_ptr",), container=()).only.severity == "info"
    assert run("AOTI340").silent


def test_prefixed_host_functions(run):
    finding = run("AOTI341", undefined=("executorch_aoti_torch_get_data_ptr",)).only
    assert "prefix executorch_:" in finding.message
    assert run("AOTI341").silent


@pytest.mark.parametrize("code", ["AOTI310", "AOTI311", "AOTI321"])
def test_what_is_no_plugin_needs_no_host(run, code):
    assert run(
        code, container=(), undefined=("cblas_sgemm", "aoti_torch_get_dim"), needed=("libc.so.6",)
    ).silent
    assert run(code, container=()).silent
