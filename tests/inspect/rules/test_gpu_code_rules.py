from __future__ import annotations

import pytest

from aoti_inspect.facts.gpu_fit import cubin_runs_on
from aoti_inspect.facts.records import GpuImage
from aoti_inspect.facts.releases import PTX_CUDA
from aoti_inspect.facts.target import Target
from aoti_inspect.hosts.verdicts import judge_all


def cubin(sm, reach="later", kernel="k"):
    return GpuImage("cubin", sm, None, "elf", 0, 100, reach, kernel)


def ptx(sm, version="8.7", reach="later", kernel="k"):
    return GpuImage("ptx", sm, version, "fatbin", 0, 100, reach, kernel)


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
        (101, 110, True),  # one GPU, two names
        (110, 101, True),
        (100, 110, False),
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


@pytest.mark.parametrize(
    ("image", "sm", "label", "runs"),
    [
        (cubin(90, "none"), 90, "sm_90a", True),
        (cubin(100, "none"), 103, "sm_100a", False),
        (cubin(101, "none"), 110, "sm_101a", True),
        (ptx(90, reach="none"), 90, "compute_90a", True),
        (ptx(90, reach="none"), 100, "compute_90a", False),
        (ptx(90, reach="none"), 80, "compute_90a", False),
        (ptx(100, reach="family"), 100, "compute_100f", True),
        (ptx(100, reach="family"), 103, "compute_100f", True),
        (ptx(103, reach="family"), 100, "compute_103f", False),
        (ptx(100, reach="family"), 120, "compute_100f", False),
        (ptx(100), 120, "compute_100", True),
    ],
)
def test_code_with_the_instructions_of_one_gpu_runs_there_only(run, image, sm, label, runs):
    assert image.label == label
    outcome = run("AOTI501", gpu=(image,), target=Target(sm=sm))
    assert outcome.silent is runs
    assert runs or label in outcome.only.message
    if image.reach != "later":
        assert "every later GPU" not in run("AOTI503", gpu=(image,)).only.message


GAP = (cubin(80, kernel="k0"), cubin(80, kernel="k1"), cubin(90, kernel="k2"))


def test_a_model_runs_only_if_all_its_kernels_do(run):
    finding = run("AOTI501", gpu=GAP, target=Target(sm=86)).only
    assert "1 of 3 kernels has no code for sm_86: k2 (only sm_90)" in finding.message
    assert finding.symbols == ("k2",)
    assert (
        "2 of 3 kernels have no code for sm_90: k0 and k1"
        in run("AOTI501", gpu=GAP, target=Target(sm=90)).only.message
    )
    overview = run("AOTI503", gpu=GAP).only
    assert (overview.severity, "no GPU runs all of them" in overview.message) == ("warning", True)
    together = (*GAP[:2], cubin(86, kernel="k2"))
    assert run("AOTI501", gpu=together, target=Target(sm=86)).silent
    assert run("AOTI503", gpu=together).only.severity == "info"


def test_one_kernel_may_need_the_driver(run):
    gpu = (cubin(90, kernel="k0"), ptx(80, kernel="k1"))
    assert "(1 of 2 kernels)" in run("AOTI502", gpu=gpu, target=Target(sm=90)).only.message


@pytest.mark.parametrize(
    ("gpu", "target", "severity"),
    [
        ((ptx(80, "8.7"),), Target(driver="535.104.05"), "error"),
        ((ptx(80, "8.7"),), Target(driver="570"), "info"),
        ((ptx(80, "8.7"), ptx(80, "7.0")), Target(driver="535"), "info"),  # the driver may take the older one
        ((cubin(90), ptx(80, "8.7")), Target(driver="535"), "warning"),
        ((cubin(90), ptx(80, "8.7")), Target(driver="535", sm=90), "info"),  # machine code runs
        ((cubin(80), ptx(80, "8.7")), Target(driver="535", sm=90), "error"),
        ((cubin(90, kernel="k0"), ptx(80, "8.7", kernel="k1")), Target(driver="535", sm=90), "error"),
        ((ptx(80, "99.9"),), Target(driver="535"), "error"),
        ((ptx(80, "8.7"),), Target(driver="10"), "error"),
    ],
)
def test_the_driver_of_the_target_takes_the_ptx_or_not(run, gpu, target, severity):
    assert run("AOTI504", gpu=gpu, target=target).only.severity == severity


def test_a_driver_and_ptx_that_are_newer_than_the_table_are_not_checked(run):
    outcome = run("AOTI504", gpu=(ptx(80, "99.9"),), target=Target(driver="9999"))
    assert not outcome.findings
    assert "9999" in outcome.unchecked[0].reason


def test_libraries_of_another_cuda_release(run):
    needed = ("libcudart.so.12", "/opt/cuda/libcublas.so.12", "libcufft.so.11", "libcudart.so.x")
    finding = run("AOTI511", needed=needed, target=Target(cuda="13.0")).only
    assert finding.symbols == ("/opt/cuda/libcublas.so.12", "libcudart.so.12")
    assert run("AOTI511", needed=needed, target=Target(cuda="12.8", driver="535")).silent
    assert run("AOTI511", needed=needed).silent
    newer = run("AOTI511", needed=("libcudart.so.13",), target=Target(driver="570.1")).only
    assert "driver 580 or later" in newer.message


CUDA_ONLY = ("libc10_cuda.so", "libtorch_cuda.so", "libtorch_cuda_linalg.so")


@pytest.mark.parametrize("library", CUDA_ONLY)
def test_builds_of_pytorch_are_told_apart(plugin, library):
    facts = plugin(needed=("libtorch_cpu.so", library))
    verdicts = judge_all(
        facts, ("torch==2.13", "torch==2.13.0+cpu", "torch==2.13+cu130", "builtin"), Target()
    )
    assert [verdict.outcome for verdict in verdicts] == ["loads", "will not load", "loads", "loads"]
    assert any(f"the CUDA build of PyTorch: {library}" in note for note in verdicts[0].notes)
    assert f"the CUDA build of PyTorch: {library}" in verdicts[1].reasons[0]
    assert not any("CUDA build" in note for note in verdicts[2].notes)
    assert any(library in note and "drops" in note for note in verdicts[3].notes)


@pytest.mark.parametrize("library", CUDA_ONLY)
def test_libraries_of_the_cuda_build_that_nothing_is_used_of(run, library):
    assert run("AOTI440", needed=(library,)).only.symbols == (library,)
    assert run("AOTI440", needed=(library,), undefined=("_ZN3c104cuda14current_deviceEv",)).silent
    shims = run("AOTI440", needed=(library,), undefined=("aoti_torch_create_cuda_guard",))
    assert shims.silent is (library == "libtorch_cuda.so")
    assert not run("AOTI440", needed=(library,), undefined=("aoti_torch_device_type_cuda",)).silent


def test_cuda_functions_of_the_host_api_need_the_cuda_build(plugin):
    facts = plugin(undefined=("aoti_torch_create_cuda_guard",))
    (cpu, cuda) = judge_all(facts, ("torch==2.13+cpu", "torch==2.13+cu126"), Target())
    assert (cpu.outcome, cuda.outcome) == ("will not load", "loads")


@pytest.mark.parametrize(
    ("host", "target", "outcome"),
    [
        ("torch==2.13+cu130", Target(), "will not load"),
        ("torch==2.13+cu126", Target(), "loads"),
        ("torch==2.13", Target(), "loads"),
        ("torch==2.13", Target(cuda="13"), "will not load"),
        ("torch==2.13+git1a2b3c", Target(), "loads"),
        ("builtin", Target(cuda="12.4"), "loads"),
    ],
)
def test_cuda_releases_are_compared_with_the_host(plugin, host, target, outcome):
    (verdict,) = judge_all(plugin(needed=("libtorch_cpu.so", "libcudart.so.12")), (host,), target)
    assert verdict.outcome == outcome
    if host == "torch==2.13" and target.cuda is None:
        assert any("only a build for CUDA 12 brings it" in note for note in verdict.notes)
