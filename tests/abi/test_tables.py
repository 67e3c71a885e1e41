"""The tables and the small functions over them: container API, features, codes, versions, errors."""

from __future__ import annotations

import ctypes
import pickle
import warnings

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aoti_abi import codes, errors, shim_catalogue
from aoti_abi.container_api import CONTAINER_API, REQUIRED, TORCH_2_1_ONLY, compiled_by
from aoti_abi.features import FEATURES, evaluate
from aoti_abi.hosts import builtin
from aoti_abi.versions import KNOWN_TORCH, SUPPORTED_TORCH, newest, parse_version

C = "AOTInductorModelContainer"


def exports_of(version: str) -> set[str]:
    return {
        f.name
        for f in CONTAINER_API.values()
        if not f.generated and parse_version(f.since) <= parse_version(version)
    }


@pytest.mark.parametrize(
    ("version", "count"),
    [
        ("2.2", 13),
        ("2.3", 23),
        ("2.6", 24),
        ("2.7", 25),
        ("2.8", 29),
        ("2.10", 32),
        ("2.13", 40),
        ("2.14", 44),
        ("2.15", 47),
    ],
)
def test_how_many_functions_each_version_emits(version: str, count: int) -> None:
    assert len(exports_of(version)) == count


@pytest.mark.parametrize(
    ("version", "oldest", "newest_one"),
    [
        ("2.2", "2.2", "2.2"),
        ("2.3", "2.3", "2.5"),
        ("2.5", "2.3", "2.5"),
        ("2.6", "2.6", "2.6"),
        ("2.7", "2.7", "2.7"),
        ("2.9", "2.8", "2.9"),
        ("2.12", "2.10", "2.12"),
        ("2.13", "2.13", "2.13"),
        ("2.14", "2.14", "2.14"),
        ("2.15", "2.15", "2.15"),
    ],
)
def test_compiled_by_reads_the_export_set(version: str, oldest: str, newest_one: str) -> None:
    compiler = compiled_by(exports_of(version))
    assert compiler == (oldest, newest_one, (), ())


def test_compiled_by_reports_what_does_not_fit() -> None:
    exports = exports_of("2.13") - {f"{C}GetCallSpec"} | {"AOTInductorNew", "printf"} | set(TORCH_2_1_ONLY)
    compiler = compiled_by(exports)
    assert compiler is not None
    assert compiler.missing == (f"{C}GetCallSpec",)
    assert compiler.unknown == ("AOTInductorNew",)


@pytest.mark.parametrize("exports", [set(), {"main"}, {"AOTInductorModelRunMinimalArrayrefInterface"}])
def test_compiled_by_none(exports: set[str]) -> None:
    assert compiled_by(exports) is None


def test_L1_N1_run_needs_every_required_function() -> None:
    states = {state.feature.name: state for state in evaluate(())}
    assert states["run"].missing == REQUIRED
    assert len(REQUIRED) == 5
    assert not states["run"].available


@pytest.mark.parametrize(
    ("absent", "lost"),
    [
        ("AOTInductorModelUpdateConstantsFromBlob", {"external-weights"}),
        (f"{C}GetConstantDataSize", {"constant-sizes"}),
        (f"{C}GetConstantDtype", {"list-constants"}),
        (f"{C}GetCallSpec", {"call-spec"}),
        ("AOTInductorGetLastError", {"error-text"}),
        (f"{C}RunSingleThreaded", {"single-threaded-run"}),
        (
            f"{C}ExtractConstantsMapEntries",
            {"read-constants", "weight-sharing", "mutable-sessions", "graph-safe-constants"},
        ),
        (
            f"{C}UpdateUserManagedConstantBufferPairs",
            {"user-managed-constants", "weight-sharing", "mutable-sessions"},
        ),
        (f"{C}GetConstantType", {"constant-types"}),
    ],
)
def test_L2_N3_each_absent_function_costs_named_features(absent: str, lost: set[str]) -> None:
    exports = exports_of(KNOWN_TORCH[-1]) - {absent}
    states = [state for state in evaluate(exports) if not state.available]
    assert {state.feature.name for state in states} == lost
    assert all(state.missing == (absent,) and state.since == CONTAINER_API[absent].since for state in states)


def test_every_feature_names_real_functions_that_can_be_called() -> None:
    for feature in FEATURES.values():
        assert feature.symbols
        assert all(not CONTAINER_API[name].cpp_abi for name in feature.symbols)
        assert feature.since in KNOWN_TORCH
        assert feature.title
        assert feature.instead


@pytest.mark.parametrize("version", KNOWN_TORCH)
def test_a_feature_is_there_exactly_since_its_version(version: str) -> None:
    for state in evaluate(exports_of(version)):
        reached = parse_version(version) >= parse_version(state.feature.since)
        assert state.available == reached, state


def test_the_same_answer_for_a_set_and_a_table() -> None:
    exports = exports_of("2.10")
    assert evaluate(exports) == evaluate(dict.fromkeys(exports)) == evaluate(tuple(exports))


def test_versions_are_numbers() -> None:
    assert newest(["2.9", "2.13", "2.2"]) == "2.13"
    assert list(KNOWN_TORCH) == sorted(KNOWN_TORCH, key=parse_version)
    assert KNOWN_TORCH[4:] == SUPPORTED_TORCH
    assert KNOWN_TORCH[0] == "2.2"
    assert SUPPORTED_TORCH[0] == "2.6"


@pytest.mark.parametrize("text", ["", "2.", "a.b", "2.13+cpu", "-1", "2..3", "²"])
def test_what_is_not_a_version_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a dotted version number"):
        parse_version(text)


@given(st.lists(st.integers(0, 10**6), min_size=1, max_size=4))
def test_versions_round_trip(parts: list[int]) -> None:
    assert parse_version(".".join(map(str, parts))) == tuple(parts)


def test_codes_are_those_of_torch() -> None:
    import os

    import torch

    library = ctypes.CDLL(os.path.join(os.path.dirname(torch.__file__), "lib", "libtorch_cpu.so"))
    tables = {
        "dtype": {name: dtype.code for name, dtype in codes.DTYPES_BY_NAME.items()},
        "device_type": codes.DEVICE_TYPES | codes.OTHER_DEVICE_TYPES,
        "layout": codes.LAYOUTS,
        "memory_format": codes.MEMORY_FORMATS,
    }
    for group, table in tables.items():
        for name, code in table.items():
            assert getattr(library, f"aoti_torch_{group}_{name}")() == code, (group, name)


class _Tensor(ctypes.Structure):
    """``DLManagedTensorVersioned`` as far as the type."""

    _fields_ = (
        ("head", ctypes.c_uint64 * 4),
        ("data", ctypes.c_uint64 * 2),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
    )


@pytest.mark.filterwarnings("ignore:TypedStorage is deprecated", "ignore:ComplexHalf support")
@pytest.mark.parametrize("dtype", codes.DTYPES.values(), ids=lambda dtype: dtype.name)
def test_element_types_are_those_of_torch(dtype: codes.Dtype) -> None:
    import torch

    theirs = getattr(torch, dtype.name)
    assert (theirs.itemsize, theirs.is_complex) == (dtype.itemsize, dtype.kind == "complex")
    assert theirs.is_floating_point == (dtype.kind == "float")
    if dtype.kind in ("int", "uint"):
        assert theirs.is_signed == (dtype.kind == "int")
    if dtype.storage:
        assert getattr(torch, dtype.storage).dtype == theirs
    capsule = torch.empty(0, dtype=theirs).__dlpack__(max_version=(1, 1))
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
    made = _Tensor.from_address(pointer(capsule, b"dltensor_versioned"))
    assert (made.code, made.bits, made.lanes) == dtype.dlpack


def test_every_code_that_a_plugin_may_ask_for_is_in_a_table() -> None:
    asked = {
        name
        for name in shim_catalogue.all_names()
        if name.startswith(
            (
                "aoti_torch_dtype_",
                "aoti_torch_device_type_",
                "aoti_torch_layout_",
                "aoti_torch_memory_format_",
            )
        )
    }
    assert asked == builtin.CODES


def test_names_of_codes() -> None:
    assert codes.dtype_name(6) == "float32"
    assert codes.dtype_name(99) == "dtype(99)"
    assert codes.device_name(1, 0) == "cuda:0"
    assert codes.device_name(0) == "cpu"
    assert codes.device_name(42, 3) == "device(42):3"


ERRORS = [
    kind
    for kind in vars(errors).values()
    if isinstance(kind, type) and issubclass(kind, errors.AotiError) and kind is not errors.AotiError
]


@pytest.mark.parametrize("kind", ERRORS, ids=lambda kind: kind.__name__)
def test_errors_survive_pickling_with_every_field(kind: type[errors.AotiError]) -> None:
    error = kind("it broke", path="a.so", cause="dlerror's words", hint="mend it")
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is kind
    assert vars(copy) == vars(error)
    assert copy.code == kind.code
    assert str(copy) == "a.so: it broke (dlerror's words)\nhint: mend it"


def test_an_error_without_extras_is_its_message() -> None:
    assert str(errors.NotFound("no such method")) == "no such method"


def test_L8_the_warning_names_feature_symbols_version_and_what_happens() -> None:
    with pytest.warns(errors.FallbackWarning) as caught:
        warnings.warn(
            errors.FallbackWarning("weight-sharing", ("f", "g"), "2.13", "each method loads its own"),
            stacklevel=1,
        )
    warning = caught[0].message
    assert isinstance(warning, errors.FallbackWarning)
    assert str(warning) == (
        "weight-sharing: the plugin does not export f, g (emitted by PyTorch 2.13 and later); "
        "each method loads its own"
    )
    assert (warning.feature, warning.symbols, warning.since) == ("weight-sharing", ("f", "g"), "2.13")
