"""Prototypes: every C declaration of both APIs becomes a ctypes prototype, or is refused."""

from __future__ import annotations

import ctypes
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aoti_abi import shim_catalogue, structs
from aoti_abi.container_api import CONTAINER_API
from aoti_abi.errors import NotFound, NotSupported
from aoti_abi.prototypes import bind_container, container_prototype, parse_declaration, shim_prototype


def test_every_container_function_without_cpp_types_has_a_prototype() -> None:
    for name, function in CONTAINER_API.items():
        if not function.cpp_abi:
            prototype = container_prototype(name)
            assert prototype.restype is ctypes.c_int32
            assert len(prototype.argtypes) == len(function.parameters.split(","))


def test_L3_functions_that_pass_cpp_objects_are_never_bound() -> None:
    dangerous = [name for name, function in CONTAINER_API.items() if function.cpp_abi]
    assert "AOTInductorModelContainerExtractConstantsMap" in dangerous
    for name in dangerous:
        with pytest.raises(NotSupported, match="passes a C\\+\\+ object"):
            container_prototype(name)


def test_every_shim_but_three_has_a_prototype() -> None:
    refused = []
    for name in shim_catalogue.all_names():
        try:
            shim_prototype(name)
        except NotSupported:
            refused.append(name)
    assert refused == [
        "aoti_torch_scalar_to_tensor_complex128",
        "aoti_torch_scalar_to_tensor_complex64",
        "aoti_torch_set_current_xpu_device",
    ]


P = ctypes.POINTER
V = ctypes.c_void_p


@pytest.mark.parametrize(
    ("declaration", "restype", "argtypes"),
    [
        ("int32_t f()", ctypes.c_int32, ()),
        ("int32_t f(void)", ctypes.c_int32, ()),
        ("void f(void* p)", None, (V,)),
        ("const char* f()", V, ()),
        ("AOTITorchError f(AtenTensorHandle self, void** ret)", ctypes.c_int32, (V, P(V))),
        (
            "AOTITorchError f(const int64_t* sizes, int64_t n)",
            ctypes.c_int32,
            (P(ctypes.c_int64), ctypes.c_int64),
        ),
        ("AOTITorchError f(int64_t** sizes)", ctypes.c_int32, (P(P(ctypes.c_int64)),)),
        ("AOTITorchError f(const char* text)", ctypes.c_int32, (ctypes.c_char_p,)),
        ("AOTIRuntimeError f(const char** text)", ctypes.c_int32, (P(V),)),
        ("AOTITorchError f(c10::complex<float>* v, c10::Half * w)", ctypes.c_int32, (V, V)),
        ("void f(void (*fn)(uint64_t, uint64_t), bool on)", None, (V, ctypes.c_bool)),
        ("void f(const AOTInductorConstantMapEntry** e)", None, (P(structs.EntryPointer),)),
    ],
)
def test_declarations(declaration: str, restype: object, argtypes: tuple[object, ...]) -> None:
    name, prototype = parse_declaration(declaration)
    assert name == "f"
    assert prototype == (restype, argtypes)


@pytest.mark.parametrize(
    "declaration",
    [
        "",
        "f",
        "int32_t f(",
        "int32_t f(std::string s)",
        "int32_t f(const int32_t& x)",
        "int32_t f(c10::complex<double> x)",
        "int32_t f(long x)",
        "int32_t f(int32_t)",
        "struct s f(int x)",
        "int32_t f(int x[4])",
        "int32_t f(int x, ...)",
    ],
)
def test_what_is_not_known_is_refused(declaration: str) -> None:
    with pytest.raises(NotSupported):
        parse_declaration(declaration)


@given(st.text(alphabet="intvoid_*&()<>,: fHandle3264\n", max_size=60))
def test_any_text_is_parsed_or_refused(text: str) -> None:
    try:
        parse_declaration(text)
    except NotSupported as error:
        assert str(error)


def test_unknown_names_are_not_found() -> None:
    with pytest.raises(NotFound):
        container_prototype("AOTInductorNonsense")
    with pytest.raises(NotFound):
        shim_prototype("aoti_torch_nonsense")


def test_a_shim_is_bound_as_its_version_declares_it() -> None:
    assert len(shim_prototype("aoti_torch_cpu_fill__Scalar", "2.7").argtypes) == 3
    assert len(shim_prototype("aoti_torch_cpu_fill__Scalar", "2.8").argtypes) == 2


SOURCE = """
#include <stddef.h>
#include <stdint.h>
int32_t AOTInductorModelContainerGetNumInputs(void* c, size_t* n) { *n = (size_t)c + 1; return 0; }
int32_t AOTInductorModelContainerExtractConstantsMap(void* c, void* m, _Bool i) { return 0; }
int32_t AOTInductorModelContainerDelete(void* c) { return 5; }
"""


def test_L3_binding_takes_only_what_a_library_exports(tmp_path: object) -> None:
    source, library = f"{tmp_path}/p.c", f"{tmp_path}/p.so"
    with open(source, "w", encoding="utf-8") as stream:
        stream.write(SOURCE)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source], check=True)
    handle = ctypes.CDLL(library)
    bound = bind_container(handle)
    assert set(bound) == {"AOTInductorModelContainerGetNumInputs", "AOTInductorModelContainerDelete"}
    count = ctypes.c_size_t()
    assert bound["AOTInductorModelContainerGetNumInputs"](41, ctypes.byref(count)) == 0
    assert count.value == 42
    assert bound["AOTInductorModelContainerDelete"](None) == 5
    assert set(bind_container(handle, {"AOTInductorModelContainerDelete"})) == {
        "AOTInductorModelContainerDelete"
    }


def test_struct_layouts() -> None:
    entry = structs.AOTInductorConstantMapEntry
    assert ctypes.sizeof(entry) == 16
    assert (entry.name.offset, entry.handle.offset) == (0, 8)
    assert ctypes.sizeof(structs.AOTIRuntimeError) == ctypes.sizeof(structs.AOTITorchError) == 4
    assert ctypes.sizeof(structs.StableIValue) == 8
