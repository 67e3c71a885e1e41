from __future__ import annotations

import pytest

from aoti_inspect.elf.records import VersionNeed
from aoti_inspect.facts.instruction_sets import InstructionUse
from aoti_inspect.facts.processor import encodings_beyond, sleef_isa
from aoti_inspect.facts.records import GpuImage
from aoti_inspect.facts.releases import GLIBC_FIRST
from aoti_inspect.facts.target import ISA_FLAGS, Target
from aoti_inspect.hosts.verdicts import judge_all

CUBIN = GpuImage("cubin", 90, None, "elf", 0, 100)


@pytest.mark.parametrize(
    ("glibc", "severity"),
    [(None, "warning"), ("2.36", "warning"), ("2.40", "warning"), ("2.41", "error"), ("3.0", "error")],
)
def test_an_executable_stack_is_an_error_from_glibc_2_41_on(run, glibc, severity):
    finding = run("AOTI401", executable_stack=True, target=Target(glibc=glibc)).only
    assert finding.severity == severity
    assert "noexecstack" in finding.remedy
    assert run("AOTI402", executable_stack=None, target=Target(glibc=glibc)).only.severity == severity


def test_an_ordinary_stack_is_fine(run):
    assert run("AOTI401").silent
    assert run("AOTI402").silent
    assert run("AOTI401", executable_stack=None).silent
    assert run("AOTI402", executable_stack=None, machine_name="aarch64").silent
    assert run("AOTI402", executable_stack=None, is_dynamic=False).silent


@pytest.mark.parametrize(("number", "first"), GLIBC_FIRST.items())
def test_each_glibc_is_compared_on_both_sides(run, number, first):
    need = VersionNeed("libc.so.6", f"GLIBC_{number}", False, ("__isoc23_strtol",))
    assert run("AOTI403", version_needs=(need,), target=Target(glibc=number)).silent
    below = f"2.{int(number.partition('.')[2]) - 1}"
    finding = run("AOTI403", version_needs=(need,), target=Target(glibc=below)).only
    assert finding.severity == "error"
    assert finding.symbols == ("__isoc23_strtol",)
    assert f"GLIBC_{number} ({first}) for __isoc23_strtol" in finding.message
    assert f"glibc {below}" in finding.message


def test_every_version_beyond_the_target_is_named_with_its_symbols(run):
    needs = (
        VersionNeed("libc.so.6", "GLIBC_2.38", False, ("__isoc23_strtol", "__isoc23_strtoull")),
        VersionNeed("libm.so.6", "GLIBC_2.29", False, ("expf",)),
        VersionNeed("libc.so.6", "GLIBC_2.4", False, ("__stack_chk_fail",)),
    )
    finding = run("AOTI403", version_needs=needs, target=Target(glibc="2.28")).only
    assert finding.symbols == ("__isoc23_strtol", "__isoc23_strtoull", "expf")
    assert finding.message.index("GLIBC_2.38") < finding.message.index("GLIBC_2.29")
    assert "GLIBC_2.4 " not in finding.message


def test_a_weak_version_need_is_a_remark(run):
    need = VersionNeed("libc.so.6", "GLIBC_2.38", True, ())
    assert run("AOTI403", version_needs=(need,), target=Target(glibc="2.36")).only.severity == "info"


def test_glibc_abi_versions(run):
    relr = VersionNeed("libc.so.6", "GLIBC_ABI_DT_RELR", False, ())
    assert run("AOTI403", version_needs=(relr,), target=Target(glibc="2.36")).silent
    assert "2.36" in run("AOTI403", version_needs=(relr,), target=Target(glibc="2.35")).only.message
    unknown = VersionNeed("libc.so.6", "GLIBC_ABI_GNU2_TLS", False, ())
    outcome = run("AOTI403", version_needs=(unknown,), target=Target(glibc="2.36"))
    assert "GLIBC_ABI_GNU2_TLS" in outcome.unchecked[0].reason
    assert run("AOTI403", version_needs=(relr, unknown)).silent


def test_private_symbols_of_glibc(run):
    need = VersionNeed("libc.so.6", "GLIBC_PRIVATE", False, ("__libc_early_init",))
    assert run("AOTI404", version_needs=(need,)).only.symbols == ("__libc_early_init",)
    assert run("AOTI404").silent


def test_the_machine_comes_before_the_instruction_set(run):
    target = Target(machine="aarch64", isa=frozenset({"NEON"}))
    assert "aarch64" in run("AOTI420", target=target).only.message
    assert run("AOTI421", target=target).silent
    assert run("AOTI420", target=Target(machine="x86_64")).silent
    assert run("AOTI420").silent


META = {"AOTI_CPU_ISA": "AVX512 AVX512_VNNI"}


def test_instruction_sets_beyond_the_target(run):
    target = Target(machine="x86_64", isa=frozenset({"AVX2"}))
    finding = run("AOTI421", metadata=META, target=target).only
    assert finding.severity == "error"
    assert finding.symbols == ("AVX512", "AVX512_VNNI")
    assert "simdlen" in finding.remedy


@pytest.mark.parametrize(
    ("metadata", "isa"),
    [
        (META, {"AVX512", "AVX512_VNNI", "AVX2"}),
        (META, {"AVX512_VNNI"}),  # implies AVX512 and AVX2
        ({"AOTI_CPU_ISA": "AVX2"}, {"AVX512"}),
        ({"AOTI_CPU_ISA": "INVALID_VEC_ISA"}, set()),
    ],
)
def test_instruction_sets_that_the_target_has(run, metadata, isa):
    assert run("AOTI421", metadata=metadata, target=Target(isa=frozenset(isa))).silent


def test_without_a_target_nothing_is_compared(run):
    assert run("AOTI421", metadata=META).silent


def test_sleef_is_evidence_where_there_is_no_metadata(run):
    target = Target(isa=frozenset({"AVX2"}))
    finding = run(
        "AOTI421", metadata=None, undefined=("Sleef_expf16_u10", "Sleef_sinf8_u35"), target=target
    ).only
    assert finding.symbols == ("Sleef_expf16_u10",)
    assert run("AOTI421", metadata=None, undefined=("Sleef_expf8_u10",), target=target).silent


def test_neither_metadata_nor_sleef_is_not_checked(run):
    outcome = run("AOTI421", metadata=None, target=Target(isa=frozenset({"AVX2"})))
    assert not outcome.findings
    assert "metadata" in outcome.unchecked[0].reason
    assert run("AOTI421", metadata=None, target=Target(isa=frozenset({"AVX512"}))).unchecked
    # What has everything that Inductor may choose needs no evidence.
    everything = Target(isa=frozenset(ISA_FLAGS))
    assert run("AOTI421", metadata=None, target=everything).silent
    assert run("AOTI421", metadata=None, container=(), target=Target(isa=frozenset())).silent


AVX2_ONLY = Target(machine="x86_64", isa=frozenset({"AVX2"}))
NO_WIDE = (InstructionUse("EVEX", "none"), InstructionUse("AMX", "none"))


@pytest.mark.parametrize(
    "metadata", [None, {"AOTI_CPU_ISA": "AVX2"}, META, {"AOTI_CPU_ISA": "INVALID_VEC_ISA"}]
)
def test_the_code_is_evidence_whatever_the_metadata_say(run, metadata):
    used = (InstructionUse("EVEX", "used", ("kernel", "code at 0x40")), NO_WIDE[1])
    finding = run("AOTI421", metadata=metadata, instructions=used, target=AVX2_ONLY).only
    assert finding.severity == "error"
    assert finding.symbols == ("code at 0x40", "kernel")
    assert "AVX-512 instructions, which the target lacks, in kernel and code at 0x40" in finding.message


@pytest.mark.parametrize("metadata", [None, {"AOTI_CPU_ISA": "AVX2"}, META])
def test_code_without_the_instructions_is_fine_whatever_the_metadata_say(run, metadata):
    assert run("AOTI421", metadata=metadata, instructions=NO_WIDE, target=AVX2_ONLY).silent


def test_metadata_tell_what_encodings_do_not(run):
    """AVX512_VNNI has the encoding of AVX-512, which the target can run."""
    target = Target(isa=frozenset({"AVX512"}))
    finding = run("AOTI421", metadata=META, instructions=NO_WIDE[1:], target=target).only
    assert finding.symbols == ("AVX512_VNNI",)
    outcome = run("AOTI421", metadata=None, instructions=NO_WIDE[1:], target=target)
    assert "does not tell whether it uses AVX512_VNNI" in outcome.unchecked[0].reason


def test_code_that_asks_the_processor_is_not_checked(run, plugin):
    used = (InstructionUse("EVEX", "used", ("kernel",), dispatched=True),)
    outcome = run("AOTI421", metadata={"AOTI_CPU_ISA": "AVX2"}, instructions=used, target=AVX2_ONLY)
    assert not outcome.findings
    assert "CPUID" in outcome.unchecked[0].reason
    # Metadata say that the kernels themselves need it: no choice among versions helps them.
    assert run("AOTI421", metadata=META, instructions=used, target=AVX2_ONLY).only.severity == "error"


def test_code_that_could_not_be_searched_is_not_checked(run):
    unclear = (InstructionUse("EVEX", "not checked", reason="some of its code belongs to no function"),)
    outcome = run("AOTI421", metadata={"AOTI_CPU_ISA": "AVX2"}, instructions=unclear, target=AVX2_ONLY)
    assert "belongs to no function" in outcome.unchecked[0].reason


@pytest.mark.parametrize(
    ("target", "encodings"),
    [
        (Target(), ()),
        (Target(machine="aarch64", isa=frozenset({"NEON"})), ()),
        (Target(isa=frozenset()), ("VEX", "EVEX", "AMX")),
        (AVX2_ONLY, ("EVEX", "AMX")),
        (Target(isa=frozenset({"AVX512"})), ("AMX",)),
        (Target(isa=frozenset(ISA_FLAGS)), ()),
    ],
)
def test_what_the_target_can_not_run_is_looked_for(target, encodings):
    assert encodings_beyond(target) == encodings


@pytest.mark.parametrize(
    ("use", "outcome"),
    [
        (InstructionUse("EVEX", "used", ("kernel",)), "will not load"),
        (InstructionUse("EVEX", "used", ("kernel",), dispatched=True), "not checked"),
        (InstructionUse("EVEX", "not checked", reason="too much code"), "not checked"),
        (InstructionUse("EVEX", "none"), "loads"),
    ],
)
def test_verdicts_follow_the_code(plugin, use, outcome):
    (verdict,) = judge_all(plugin(instructions=(use,)), ("torch==2.13",), AVX2_ONLY)
    assert verdict.outcome == outcome
    assert use.outcome == "none" or any("AVX-512" in reason for reason in verdict.reasons)


def test_unknown_instruction_sets_are_not_checked(run):
    outcome = run("AOTI421", metadata={"AOTI_CPU_ISA": "VSX"}, target=Target(isa=frozenset({"AVX2"})))
    assert "VSX" in outcome.unchecked[0].reason


def test_asimd_stands_for_neon_and_sve(run):
    facts = {"machine_name": "aarch64", "metadata": {"AOTI_CPU_ISA": "ASIMD"}}
    assert run("AOTI421", **facts, target=Target(isa=frozenset({"SVE"}))).silent
    assert "SVE" in run("AOTI421", **facts, target=Target(isa=frozenset({"NEON"}))).unchecked[0].reason


@pytest.mark.parametrize(
    ("names", "isa"),
    [
        (["Sleef_expf16_u10"], "AVX512"),
        (["Sleef_expd8_u10"], "AVX512"),
        (["Sleef_expf8_u10"], "AVX2"),
        (["Sleef_expd4_u10"], "AVX2"),
        (["Sleef_expf4_u10"], None),
        (["Sleef_expf_u10"], None),
        ([], None),
    ],
)
def test_lane_counts_of_sleef(names, isa):
    assert sleef_isa(names) == isa


def test_a_failed_isa_probe_is_told(run):
    assert run("AOTI422", metadata={"AOTI_CPU_ISA": "INVALID_VEC_ISA"}).only.severity == "warning"
    assert run("AOTI422", metadata={"AOTI_CPU_ISA": "INVALID_VEC_ISA"}, gpu=(CUBIN,)).only.severity == "info"
    assert run("AOTI422").silent
    assert run("AOTI422", metadata=None).silent


OPENMP = ("GOMP_parallel@GOMP_4.0@libgomp.so.1", "omp_get_thread_num@OMP_1.0@libgomp.so.1")


@pytest.mark.parametrize("starter", ["GOMP_parallel", "__kmpc_fork_call"])
def test_the_source_tells_more_of_teams_than_the_functions_that_are_called(run, starter):
    """With the C++ beside a plugin its rule, its facts and the executor give one answer."""
    assert run("AOTI423", undefined=(starter,)).only.severity == "warning"
    assert run("AOTI423", undefined=(starter,), openmp_team=None).silent
    finding = run("AOTI423", undefined=(starter,), openmp_team=16).only
    assert "more threads than the 16 that its source has room for" in finding.message
    assert "OMP_NUM_THREADS to 16" in finding.remedy


@pytest.mark.parametrize(
    ("changes", "severity"),
    [
        ({"undefined": OPENMP}, "warning"),
        ({"undefined": OPENMP, "torch": "2.14"}, "warning"),
        ({"undefined": OPENMP, "torch": "2.10"}, "info"),  # 2.10 to 2.12 have one fingerprint
        ({"undefined": OPENMP, "torch": "2.9"}, None),
        ({"undefined": (*OPENMP, "omp_get_max_threads@OMP_1.0@libgomp.so.1")}, None),
        ({"undefined": OPENMP[1:]}, None),
        ({"undefined": OPENMP, "container": ()}, None),
        ({}, None),
    ],
)
def test_the_openmp_hazard(run, changes, severity):
    outcome = run("AOTI423", **changes)
    assert [finding.severity for finding in outcome.findings] == ([severity] if severity else [])
    assert not outcome.unchecked


def test_the_shared_division_flag(run):
    assert run("AOTI424", unique=("inductor_cpu_integer_div_error_flag",)).only.severity == "info"
    assert run("AOTI424").silent


def test_flags_of_the_dynamic_section(run):
    assert run("AOTI430", flags=("STATIC_TLS",)).only.severity == "warning"
    assert run("AOTI431", flags=("NODELETE",)).only.severity == "info"
    for code in ("AOTI430", "AOTI431"):
        assert run(code, flags=("BIND_NOW",)).silent


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"type": "REL"}, "object file"),
        ({"type": "EXEC"}, "an executable"),
        ({"type": "CORE"}, "core dump"),
        ({"type": "65281"}, "type 65281"),
        ({"flags": ("PIE",)}, "position-independent executable"),
        ({"is_dynamic": False}, "PT_DYNAMIC"),
    ],
)
def test_what_dlopen_does_not_take(run, changes, words):
    assert words in run("AOTI432", **changes).only.message


def test_a_shared_library_is_loadable(run):
    assert run("AOTI432").silent


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"metadata": {"AOTI_MACHINE": "aarch64"}}, "AOTI_MACHINE"),
        ({"metadata": {"AOTI_DEVICE_KEY": "cpu"}, "gpu": (CUBIN,)}, "AOTI_DEVICE_KEY"),
        ({"metadata": {"AOTI_DEVICE_KEY": "cpu"}, "undefined": ("cuLaunchKernel",)}, "AOTI_DEVICE_KEY"),
        ({"metadata": {"AOTI_DEVICE_KEY": "cuda"}}, "AOTI_DEVICE_KEY"),
        ({"metadata": {"AOTI_COMPUTE_CAPABILITY": "8.6"}, "gpu": (CUBIN,)}, "AOTI_COMPUTE_CAPABILITY"),
    ],
)
def test_metadata_that_disagree_with_the_file(run, changes, key):
    assert run("AOTI433", **changes).only.symbols == (key,)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"metadata": None},
        {"metadata": {"AOTI_DEVICE_KEY": "cuda", "AOTI_COMPUTE_CAPABILITY": "90"}, "gpu": (CUBIN,)},
        {"metadata": {"AOTI_COMPUTE_CAPABILITY": "9.0"}, "gpu": (CUBIN,)},
        {"metadata": {"AOTI_COMPUTE_CAPABILITY": "²"}, "gpu": (CUBIN,)},
        {"metadata": {"AOTI_COMPUTE_CAPABILITY": ""}},
    ],
)
def test_metadata_that_fit(run, changes):
    assert run("AOTI433", **changes).silent
