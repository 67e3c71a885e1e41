"""Families of undefined symbols."""

from __future__ import annotations

import pytest

from aoti_inspect.facts.symbol_families import family, uses_old_string_abi


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("aoti_torch_cpu_addmm_out", "shim"),
        ("torch_call_dispatcher", "shim"),
        ("executorch_aoti_torch_get_sizes", "prefixed-shim"),
        ("_ZN3c1014MessageLoggerC1EPKcii", "libtorch-c++"),
        ("_ZNK2at10TensorBase4sizeEv", "libtorch-c++"),
        ("_ZTVN5torch8autograd12AutogradMetaE", "libtorch-c++"),
        ("_ZTVN10__cxxabiv117__class_type_infoE", "c++"),
        ("_ZSt4cerr", "c++"),
        ("_ZdlPvm", "c++"),
        ("_ZNSt6localeD1Ev", "c++"),
        ("_ZNSs4_Rep10_M_destroyERKSaIcE", "c++"),
        ("_ZNOSt7__cxx1115basic_stringbufIcSt11char_traitsIcESaIcEE3strEv", "c++"),
        ("_ZNKRSt7__cxx1115basic_stringbufIcSt11char_traitsIcESaIcEE3strEv", "c++"),
        ("_ZNKR2at10TensorBase7optionsEv", "libtorch-c++"),
        ("__cxa_throw", "c++"),
        ("_Unwind_Resume", "c++"),
        ("_ZNSt3__14coutE", "libc++"),
        ("_ZNKSt3__16locale9use_facetERNS0_2idE", "libc++"),
        ("Sleef_expf16_u10", "sleef"),
        ("GOMP_parallel", "openmp"),
        ("omp_get_num_threads", "openmp"),
        ("cudaMalloc", "cuda-runtime"),
        ("cuModuleLoadData", "cuda-driver"),
        ("current_time", "other"),
        ("__gmon_start__", "toolchain"),
        ("memcpy", "other"),
        ("", "other"),
    ],
)
def test_family_of_a_symbol(name: str, expected: str) -> None:
    assert family(name) == expected


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("_ZN3c105ErrorC1ENS_14SourceLocationESs", True),
        ("_ZN5torch3jit17parseSchemaOrNameERKSs", True),
        ("_ZN5torch3jit17parseSchemaOrNameERKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE", False),
        # The letters are part of an identifier, not a parameter.
        ("_ZN3c107PassStrEv", False),
        ("_ZN3c109SSsSsSsSsEv", False),
        ("_ZN3c101fES1_Ss", True),
        ("_ZN3c101fES1_i", False),
        # The number of a template argument is no length.
        ("_ZN3c101fILi16EEEvSs", True),
        ("_ZN3c101fILin16EEEvSs", True),
        ("_ZN3c101fILb1EEEvi", False),
        ("_ZN3c101fIL", False),
        ("Ss", False),
        ("_Z999999999", False),
        ("_ZS", False),
    ],
)
def test_old_string_abi_is_told_from_the_mangled_name(name: str, expected: bool) -> None:
    assert uses_old_string_abi(name) is expected
