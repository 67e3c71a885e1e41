"""Verdicts for hosts that are known as tables, on small plugins that are compiled here."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from aoti_abi.errors import InvalidArgument, NotFound
from aoti_abi.hosts import executorch
from aoti_inspect.artifacts.facts import read_facts
from aoti_inspect.facts.target import Target
from aoti_inspect.findings import HostVerdict
from aoti_inspect.hosts.verdicts import check_host_names, default_hosts, judge_all

Compile = Callable[..., str]
ENTRIES = """
int AOTInductorModelContainerCreateWithDevice(void **c, unsigned long n, const char *d, const char *b)
{ CALLS return 0; }
int AOTInductorModelContainerDelete(void *c) { return 0; }
int AOTInductorModelContainerGetNumInputs(void *c, unsigned long *n) { return 0; }
int AOTInductorModelContainerGetNumOutputs(void *c, unsigned long *n) { return 0; }
int AOTInductorModelContainerRun(void *c, void **i, unsigned long a, void **o, unsigned long b, void *s,
                                 void *p) { return 0; }
"""


@pytest.fixture(scope="session")
def plugin_that_calls(compile_library: Compile) -> Callable[..., str]:
    """Return a function that compiles a plugin which calls the given C functions."""

    def build(*names: str, flags: tuple[str, ...] = ()) -> str:
        declared = "".join(f"void {name}(void);\n" for name in names)
        source = declared + ENTRIES.replace("CALLS", "".join(f"{name}(); " for name in names))
        return compile_library(source, *flags, name="plugin.so")

    return build


def verdict(path: str, host: str, target: Target | None = None) -> HostVerdict:
    (found,) = judge_all(read_facts(path), (host,), target or Target())
    return found


def test_each_version_is_judged_by_what_it_exports(plugin_that_calls: Callable[..., str]) -> None:
    path = plugin_that_calls("aoti_torch_get_data_ptr", "torch_call_dispatcher")
    before, after = verdict(path, "torch==2.9"), verdict(path, "torch==2.10")
    assert before.outcome == "will not load"
    assert before.missing == ("torch_call_dispatcher",)
    assert "torch_call_dispatcher" in before.reasons[0]
    assert after.outcome == "loads with fallbacks"


def test_a_patch_level_and_a_build_do_not_matter(plugin_that_calls: Callable[..., str]) -> None:
    path = plugin_that_calls("aoti_torch_get_data_ptr")
    assert verdict(path, "torch==2.13.0+cpu").outcome == "loads with fallbacks"


def test_the_slim_host_is_told_from_pytorch(plugin_that_calls: Callable[..., str]) -> None:
    path = plugin_that_calls("aoti_torch_cpu_addmm_out")
    found = verdict(path, "executorch")
    assert (found.outcome, found.missing) == ("will not load", ("aoti_torch_cpu_addmm_out",))
    assert verdict(path, "torch==2.13").missing == ()


def test_a_weak_shim_may_be_missing(compile_library: Compile) -> None:
    source = "void aoti_torch_nowhere(void) __attribute__((weak));\n"
    source += ENTRIES.replace("CALLS", "if (aoti_torch_nowhere) aoti_torch_nowhere();")
    assert verdict(compile_library(source), "torch==2.13").outcome == "loads with fallbacks"


def test_vector_math_comes_with_libtorch(plugin_that_calls: Callable[..., str]) -> None:
    path = plugin_that_calls("Sleef_expf16_u10")
    assert verdict(path, "torch==2.13").missing == ()
    assert verdict(path, "executorch").missing == ("Sleef_expf16_u10",)


def test_a_plugin_that_does_not_name_libtorch_loads_with_a_condition(
    plugin_that_calls: Callable[..., str],
) -> None:
    notes = verdict(plugin_that_calls("aoti_torch_get_data_ptr"), "torch==2.13").notes
    assert any("RTLD_GLOBAL" in note for note in notes)


def test_the_cuda_runtime_must_come_from_the_host(plugin_that_calls: Callable[..., str]) -> None:
    path = plugin_that_calls("cudaMalloc", "aoti_torch_get_data_ptr")
    assert any("CUDA build" in note for note in verdict(path, "torch==2.13").notes)
    assert any("libcudart" in note for note in verdict(path, "executorch").notes)


def test_the_cxx_api_of_libtorch_is_no_promise(compile_library: Compile) -> None:
    source = "namespace c10 { struct Warning { Warning(int); }; }\nvoid use() { c10::Warning w(1); }\n"
    source += f'extern "C" {{ {ENTRIES.replace("CALLS", "use();")} }}'
    path = compile_library(source, cxx=True)
    found = verdict(path, "torch==2.13")
    assert found.outcome == "not checked"
    assert "promises nothing" in found.reasons[0]
    assert verdict(path, "executorch").outcome == "will not load"


def test_the_old_string_abi_does_not_load_in_new_builds(compile_library: Compile) -> None:
    source = "#include <string>\nnamespace c10 { struct Error { Error(std::string); }; }\n"
    source += 'void use() { c10::Error e("x"); }\n'
    source += f'extern "C" {{ {ENTRIES.replace("CALLS", "use();")} }}'
    path = compile_library(source, "-D_GLIBCXX_USE_CXX11_ABI=0", cxx=True)
    found = verdict(path, "torch==2.13")
    assert found.outcome == "will not load"
    assert "old std::string ABI" in found.reasons[0]


@pytest.mark.parametrize(("glibc", "loads"), [("2.40", True), ("2.41", False), (None, True)])
def test_an_executable_stack_is_refused_from_glibc_2_41_on(
    plugin_that_calls: Callable[..., str], glibc: str | None, loads: bool
) -> None:
    path = plugin_that_calls("aoti_torch_get_data_ptr", flags=("-Wl,-z,execstack",))
    found = verdict(path, "torch==2.13", Target(glibc=glibc))
    assert (found.outcome != "will not load") is loads
    mended = verdict(path, "builtin", Target(glibc=glibc))
    assert mended.outcome == "loads with fallbacks"
    assert any("private copy" in note for note in mended.notes) is not loads


@pytest.mark.parametrize(("limit", "loads"), [("2.0", False), ("99.0", True), (None, True)])
def test_a_newer_glibc_than_the_target_is_a_reason_with_its_symbols(
    compile_library: Compile, limit: str | None, loads: bool
) -> None:
    source = "#include <stdlib.h>\n" + ENTRIES.replace("CALLS", "abort();")
    found = verdict(compile_library(source), "torch==2.13", Target(glibc=limit))
    assert (found.outcome != "will not load") is loads
    assert any("abort" in reason for reason in found.reasons) is not loads


def test_the_machine_is_compared_before_anything_else(plugin_that_calls: Callable[..., str]) -> None:
    found = verdict(plugin_that_calls("aoti_torch_nowhere"), "torch==2.13", Target(machine="aarch64"))
    assert found.outcome == "will not load"
    assert "built for" in found.reasons[0]


def test_L1_a_plugin_without_its_entry_points_loads_nowhere(compile_library: Compile) -> None:
    path = compile_library("int AOTInductorModelContainerRun(void) { return 0; }")
    found = verdict(path, "builtin")
    assert found.outcome == "will not load"
    for name in ("CreateWithDevice", "Delete", "GetNumInputs", "GetNumOutputs"):
        assert f"AOTInductorModelContainer{name}" in found.reasons[0]


def test_a_symbol_that_no_host_knows_is_not_checked_or_missing(plugin_that_calls: Callable[..., str]) -> None:
    alone = plugin_that_calls("some_other_call", flags=("-nostdlib",))
    assert verdict(alone, "builtin").outcome == "will not load"
    beside = plugin_that_calls("some_other_call", flags=("-Wl,--no-as-needed",))
    found = verdict(beside, "builtin")
    assert found.outcome == "not checked"
    assert "libc.so.6" in found.reasons[0]


@pytest.mark.parametrize("name", ["torch==1.13", "torch==2.99", "torch==new", "torch==", "pytorch", "torch"])
def test_what_is_no_host_is_one_error(name: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        check_host_names((name,))
    assert caught.value.hint


def test_a_host_file_that_is_not_there_is_one_error() -> None:
    with pytest.raises(NotFound):
        check_host_names(("/nowhere/libhost.so",))


def test_the_built_in_host_is_that_of_the_plugins_machine(plugin_that_calls: Callable[..., str]) -> None:
    """AVX-512's vector functions are in no host for Arm."""
    facts = read_facts(plugin_that_calls("Sleef_expf16_u10", "Sleef_expf4_u10"))
    (here,) = judge_all(facts, ("builtin",), Target())
    header = facts.elf.header._replace(machine=183, machine_name="aarch64")
    elsewhere = facts._replace(elf=facts.elf._replace(header=header))
    (there,) = judge_all(elsewhere, ("builtin",), Target())
    assert (here.outcome, here.missing) == ("loads with fallbacks", ())
    assert (there.outcome, there.missing) == ("will not load", ("Sleef_expf16_u10",))


def test_a_libtorch_that_is_named_by_its_path_is_libtorch(plugin_that_calls: Callable[..., str]) -> None:
    facts = read_facts(plugin_that_calls("aoti_torch_get_data_ptr"))
    entry = "/opt/lib/libtorch_cpu.so"
    facts = facts._replace(elf=facts.elf._replace(needed=(entry, *facts.elf.needed)))
    builtin, torch, executorch = judge_all(facts, ("builtin", "torch==2.13", "executorch"), Target())
    assert builtin.outcome == "loads with fallbacks"
    assert any(f"drops {entry}" in note for note in builtin.notes)
    assert torch.outcome == "loads with fallbacks"
    assert any(entry in note and "itself loads" in note for note in torch.notes)
    assert not any("is not named" in note for note in torch.notes)
    assert executorch.outcome == "will not load"
    assert any(entry in reason for reason in executorch.reasons)


def test_each_release_of_executorch_is_a_host(plugin_that_calls: Callable[..., str]) -> None:
    path = plugin_that_calls("aoti_torch_get_data_ptr")
    for release in executorch.RELEASES:
        assert verdict(path, f"executorch=={release}").outcome == "loads with fallbacks"
    assert verdict(path, "executorch").host == "executorch"


def test_what_an_audit_shows_unasked_comes_from_the_descriptions() -> None:
    shown = default_hosts()
    assert {"builtin", "executorch", "local", "torch==2.6", "torch==2.14"} <= set(shown)
    check_host_names(shown)
