from __future__ import annotations

import pytest

from aoti_inspect.elf.records import VersionNeed
from aoti_inspect.facts.releases import CXXABI_GCC, GLIBCXX_GCC
from aoti_inspect.facts.target import Target

OLD_TORCH = "_ZN3c107WarningC1ERKSs"
NEW_TORCH = "_ZN3c107WarningC1ERKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE"


def test_L7_a_runtime_that_is_used_but_not_needed(run):
    finding = run(
        "AOTI201", needed=("libc.so.6",), undefined=("_Znwm", "__cxa_throw", "_ZNSt6localeC1Ev")
    ).only
    assert finding.severity == "warning"
    assert finding.symbols == ("_ZNSt6localeC1Ev", "_Znwm", "__cxa_throw")
    assert "libstdc++.so.6" in finding.message


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"needed": ("/opt/gcc/lib64/libstdc++.so.6",)},
        {"needed": ("libc++.so.1",), "undefined": ("_Znwm",)},
        {"needed": (), "undefined": ("memcpy", "?_Znwm")},
        {
            "needed": (),
            "undefined": ("__cxa_atexit@GLIBC_2.2.5@libc.so.6", "__cxa_finalize", "_Unwind_Resume"),
        },
    ],
)
def test_L7_a_runtime_that_is_needed_or_unused(run, changes):
    assert run("AOTI201", **changes).silent


def test_L7_libcxx_is_named_where_it_is_the_runtime(run):
    finding = run("AOTI201", needed=(), cxx_runtime="libc++", undefined=("_ZNSt3__16localeC1Ev",)).only
    assert "libc++.so.1" in finding.message
    assert "-lc++" in finding.remedy


def test_an_exported_static_runtime_is_an_error(run):
    finding = run(
        "AOTI202", cxx_runtime_static=True, std=3000, std_strong=800, std_examples=("_ZNSt6localeC1Ev",)
    ).only
    assert finding.severity == "error"
    assert "3000 symbols" in finding.message
    assert "--exclude-libs" in finding.remedy


def test_templates_that_were_inlined_are_no_copy_of_the_runtime(run):
    assert run("AOTI202", std=250, std_strong=0).silent
    assert run("AOTI202", cxx_runtime_static=True, std_strong=0).silent
    assert run("AOTI202", cxx_runtime_static=False, std_strong=3).silent


def test_a_hidden_static_runtime_is_a_remark(run):
    assert run("AOTI203", cxx_runtime_static=True, std_strong=0).only.severity == "info"
    assert run("AOTI203", cxx_runtime_static=True, std_strong=5).silent
    assert run("AOTI203").silent


def test_libcxx_is_told(run):
    assert "libstdc++" in run("AOTI204", cxx_runtime="libc++").only.message
    assert run("AOTI204").silent


def test_the_old_string_abi_of_libtorch_is_an_error(run):
    finding = run("AOTI205", undefined=(OLD_TORCH, "_ZN5torch3jit17parseSchemaOrNameERKSs")).only
    assert finding.severity == "error"
    assert len(finding.symbols) == 2
    assert "OLD std::string ABI" in finding.message
    assert "_GLIBCXX_USE_CXX11_ABI" in finding.remedy


def test_the_old_string_abi_of_libstdcxx_alone_is_a_warning(run):
    assert run("AOTI205", undefined=("_ZNSsC1ERKSs",)).only.severity == "warning"


def test_the_new_string_abi_is_fine(run):
    assert run("AOTI205", undefined=(NEW_TORCH, "_ZN4Mess6SsSsSsEv")).silent


def test_cxx_symbols_of_libtorch_are_told(run):
    name = "_ZN5torch12aot_inductor33tensor_handle_to_tensor_pointerEP16AtenTensorOpaque"
    finding = run("AOTI206", undefined=(name, NEW_TORCH, OLD_TORCH)).only
    assert finding.symbols == (NEW_TORCH, name)  # the old ABI is AOTI205's
    assert run("AOTI206", undefined=("aoti_torch_get_data_ptr", "?" + name)).silent


def test_unique_symbols_keep_it_mapped(run):
    finding = run("AOTI207", unique=tuple(f"_ZZ{n}" for n in range(17))).only
    assert "17 unique symbols" in finding.message
    assert len(finding.symbols) == 17
    assert run("AOTI207", unique=()).silent


def test_exported_internals_clash_under_rtld_global(run):
    finding = run("AOTI208").only
    assert "RTLD_GLOBAL" in finding.message
    assert "40 of torch::aot_inductor" in finding.message
    assert run("AOTI208", runtime=0, others=0, other_examples=()).silent
    assert "40 symbols" in run("AOTI208", others=0, other_examples=()).only.message


LIMITS = [
    *(("AOTI210", "glibcxx", "GLIBCXX_", entry) for entry in GLIBCXX_GCC.items()),
    *(("AOTI211", "cxxabi", "CXXABI_", entry) for entry in CXXABI_GCC.items()),
]


@pytest.mark.parametrize(("code", "field", "prefix", "entry"), LIMITS)
def test_each_version_is_compared_on_both_sides(run, code, field, prefix, entry):
    number, gcc = entry
    need = VersionNeed("libstdc++.so.6", prefix + number, False, ("_ZSt4cerr",))
    assert run(code, version_needs=(need,), target=Target(**{field: number})).silent
    head, _, last = number.rpartition(".")
    below = f"{head}.{int(last) - 1}" if int(last) else "1"
    finding = run(code, version_needs=(need,), target=Target(**{field: below})).only
    assert finding.severity == "error"
    assert finding.symbols == ("_ZSt4cerr",)
    assert f"{need.version} (GCC {gcc}) for _ZSt4cerr" in finding.message


def test_versions_are_compared_as_numbers(run):
    need = VersionNeed("libstdc++.so.6", "GLIBCXX_3.4.9", False, ("_ZSt4cerr",))
    assert run("AOTI210", version_needs=(need,), target=Target(glibcxx="3.4.10")).silent


def test_a_version_of_the_future_is_not_explained_but_found(run):
    need = VersionNeed("libstdc++.so.6", "GLIBCXX_3.4.99", False, ("_ZSt4cerr",))
    message = run("AOTI210", version_needs=(need,), target=Target(glibcxx="3.4.30")).only.message
    assert "GLIBCXX_3.4.99 for _ZSt4cerr" in message


@pytest.mark.parametrize(
    "version", ["CXXABI_TM_1", "CXXABI_FLOAT128", "GLIBCXX_", "GLIBCXX_3..4", "GLIBCXX_" + "9" * 9999]
)
def test_versions_without_a_number_are_not_compared(run, version):
    need = VersionNeed("libstdc++.so.6", version, False, ("x",))
    assert run("AOTI210", version_needs=(need,), target=Target(glibcxx="3.4")).silent
    assert run("AOTI211", version_needs=(need,), target=Target(cxxabi="1.3")).silent


def test_a_target_without_a_value_is_not_compared(run):
    assert run("AOTI210").silent
    assert run("AOTI211").silent
