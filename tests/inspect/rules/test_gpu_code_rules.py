from __future__ import annotations

import pytest

from aoti_inspect.facts.predicates import cubin_runs_on
from aoti_inspect.facts.records import GpuImage
from aoti_inspect.facts.releases import PTX_CUDA
from aoti_inspect.facts.target import Target


def cubin(sm):
    return GpuImage("cubin", sm, None, "elf", 0, 100)


def ptx(sm, version="8.7"):
    return GpuImage("ptx", sm, version, "fatbin", 0, 100)


@pytest.mark.parametrize(
    ("architecture", "sm", "runs"),
    [
        (90, 90, True),
        (80, 86, True),
        (86, 80, False),
        (80, 90, False),
        (90, 100, False),
        (100, 103, True),
        (120, 121, True),
        (100, 120, False),
    ],
)
def test_machine_code_runs_within_its_major_version(architecture, sm, runs):
    assert cubin_runs_on(architecture, sm) is runs


@pytest.mark.parametrize(
    ("gpu", "sm"), [((cubin(86),), 90), ((cubin(90),), 80), ((ptx(90),), 80), ((cubin(80), ptx(90)), 75)]
)
def test_no_code_for_the_target(run, gpu, sm):
    finding = run("AOTI501", gpu=gpu, target=Target(sm=sm)).only
    assert finding.severity == "error"
    assert f"sm_{sm}" in finding.message
    assert run("AOTI502", gpu=gpu, target=Target(sm=sm)).silent


def test_the_message_names_what_is_there(run):
    finding = run("AOTI501", gpu=(cubin(86),), target=Target(sm=90)).only
    assert "has GPU code for sm_86 only, and no PTX; the target is sm_90" in finding.message
    assert finding.symbols == ("sm_86",)


@pytest.mark.parametrize(
    ("gpu", "sm"), [((cubin(90),), 90), ((cubin(80),), 86), ((ptx(80),), 90), ((), 90), ((cubin(90),), None)]
)
def test_code_for_the_target_or_nothing_to_compare(run, gpu, sm):
    assert run("AOTI501", gpu=gpu, target=Target(sm=sm)).silent


def test_an_architecture_that_can_not_be_told_is_not_checked(run):
    outcome = run("AOTI501", gpu=(cubin(0),), target=Target(sm=90))
    assert not outcome.findings
    assert outcome.unchecked


def test_code_through_ptx(run):
    finding = run("AOTI502", gpu=(cubin(80), ptx(80)), target=Target(sm=90)).only
    assert "PTX for compute_80" in finding.message
    assert run("AOTI502", gpu=(cubin(80), ptx(80)), target=Target(sm=86)).silent
    assert run("AOTI502", gpu=(cubin(80), ptx(80))).silent


def test_the_architectures_are_listed(run):
    forward = run("AOTI503", gpu=(cubin(80), ptx(80))).only
    assert "every later GPU" in forward.message
    assert forward.symbols == ("compute_80", "sm_80")
    only = run("AOTI503", gpu=(cubin(90), cubin(90))).only
    assert "2 cubins for sm_90 and no PTX" in only.message
    assert "9.0 and later 9.x only" in only.message
    assert run("AOTI503").silent
    assert run("AOTI503", gpu=(cubin(0),)).silent


@pytest.mark.parametrize(("version", "known"), PTX_CUDA.items())
def test_the_driver_for_each_ptx_version(run, version, known):
    message = run("AOTI504", gpu=(ptx(80, version),)).only.message
    assert f"CUDA {known[0]}, driver {known[1]}" in message


def test_the_newest_ptx_counts_and_the_future_is_unknown(run):
    assert "version 8.10" in run("AOTI504", gpu=(ptx(80, "8.10"), ptx(80, "8.9"))).only.message
    assert "newer than this table" in run("AOTI504", gpu=(ptx(80, "99.9"),)).only.message
    assert run("AOTI504", gpu=(cubin(90),)).silent
    assert run("AOTI504", gpu=(ptx(80, "x"),)).silent


def test_cubins_opened_by_path(run):
    paths = ("/tmp/torchinductor_me/ab/cab.cubin", "/tmp/torchinductor_me/cd/ccd.cubin")
    finding = run("AOTI505", undefined=("cuModuleLoad",), cubin_paths=paths).only
    assert finding.symbols == paths
    assert "cab.cubin and /tmp/torchinductor_me/cd/ccd.cubin" in finding.message
    assert run("AOTI505", undefined=("cuModuleLoad",)).only.severity == "warning"
    assert run("AOTI505", undefined=("cuModuleLoad",), gpu=(cubin(90),)).silent
    assert run("AOTI505", undefined=("cuModuleLoadData",)).silent


def test_the_cuda_runtime_is_used_but_not_needed(run):
    finding = run("AOTI510", undefined=("cudaMalloc", "cuLaunchKernel"), needed=("libcuda.so.1",)).only
    assert finding.symbols == ("cudaMalloc",)
    assert finding.severity == "warning"
    assert "-lcudart" in finding.remedy


def test_libtorch_brings_the_cuda_runtime_along(run):
    finding = run("AOTI510", undefined=("cudaMalloc",), needed=("libtorch_cuda.so",)).only
    assert finding.severity == "info"


def test_cuda_libraries_that_are_needed_or_unused(run):
    assert run(
        "AOTI510", undefined=("cudaMalloc", "cuInit"), needed=("libcuda.so.1", "libcudart.so.13")
    ).silent
    assert run("AOTI510").silent


def test_the_cuda_driver_is_used_but_not_needed(run):
    assert run("AOTI510", undefined=("cuInit",), needed=()).only.symbols == ("cuInit",)
