"""copy_ with casts and broadcasting, zero_, scalars in and out: against PyTorch's own shims."""

from __future__ import annotations

import ctypes
import warnings
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from aoti_abi.codes import DTYPES_BY_NAME

some = settings(deadline=None, max_examples=80)
EVERY = [
    ["bool", "uint8", "int8", "int16", "int32", "int64", "uint16", "uint32", "uint64"],
    ["float16", "bfloat16", "float32", "float64", "complex64", "complex128"],
]
TYPES = EVERY[0] + EVERY[1]


def numpy_type(shim: Any, name: str) -> np.dtype:
    return shim.empty([1], dtype=name).dtype


def values(dtype: np.dtype, shape: tuple[int, ...], seed: int, other: np.dtype) -> np.ndarray:
    """Random values; integers over the whole range, floats within what an integer target can hold."""
    rng = np.random.default_rng(seed)
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        return rng.integers(info.min, info.max, shape, dtype, endpoint=True)
    if dtype.kind == "b":
        return rng.integers(0, 2, shape).astype(dtype)
    limit = 100.0 if other.kind in "iub" else 1e4
    real = (rng.standard_normal(shape) * rng.choice([1e-6, 1.0, limit / 5], shape)).clip(-limit, limit)
    if other.kind == "u":
        real = abs(real)
    return (real + 1j * rng.standard_normal(shape)).astype(dtype) if dtype.kind == "c" else real.astype(dtype)


@some
@given(
    st.sampled_from(TYPES),
    st.sampled_from(TYPES),
    hnp.mutually_broadcastable_shapes(num_shapes=1, base_shape=(2, 3, 4), max_dims=3),
    st.permutations([0, 1, 2]),
    st.integers(0, 999),
)
def test_copy_casts_and_broadcasts(  # noqa: PLR0917 - one argument for each drawn value
    shim: Any, torch_host: Any, to: str, source: str, shapes: Any, order: list[int], seed: int
) -> None:
    shape = shapes.input_shapes[0]
    assume(shapes.result_shape == (2, 3, 4))
    to_type, source_type = numpy_type(shim, to), numpy_type(shim, source)
    array = np.asarray(values(source_type, shape, seed, to_type))
    results = []
    for host in (shim, torch_host):
        target = np.zeros([(2, 3, 4)[axis] for axis in order], to_type).transpose(np.argsort(order))
        host.call("aoti_torch_copy_", host.tensor(target), host.tensor(array), 0)
        results.append(target.tobytes())
        target[...] = 0
        host.call("aoti_torch_tensor_copy_", host.tensor(array), host.tensor(target))
        assert target.tobytes() == results[-1]
    assert results[0] == results[1]


@pytest.mark.parametrize("name", ["float16", "bfloat16"])
def test_every_16_bit_float_survives(shim: Any, torch_host: Any, name: str) -> None:
    patterns = np.arange(1 << 16, dtype=np.uint16).view(numpy_type(shim, name))
    results = []
    for host in (shim, torch_host):
        wide, back = np.zeros(1 << 16, np.float32), np.zeros_like(patterns)
        host.call("aoti_torch_copy_", host.tensor(wide), host.tensor(patterns), 0)
        host.call("aoti_torch_copy_", host.tensor(back), host.tensor(wide), 0)
        results.append((wide, back))
    np.testing.assert_array_equal(results[0][0], results[1][0])
    number = ~np.isnan(results[0][0])
    np.testing.assert_array_equal(results[0][1].view(np.uint16)[number], patterns.view(np.uint16)[number])


@pytest.mark.parametrize("name", ["float16", "bfloat16"])
def test_rounding_to_16_bits(shim: Any, torch_host: Any, name: str) -> None:
    rng = np.random.default_rng(3)
    wide = rng.integers(0, 1 << 32, 200_000, np.uint32).view(np.float32)
    halfway = (rng.integers(0, 1 << 16, 50_000, np.uint32) << 13).view(np.float32) + np.float32(0)
    results = []
    for host in (shim, torch_host):
        out = []
        for array in (wide, halfway):
            narrow = np.zeros(array.shape, numpy_type(shim, name))
            host.call("aoti_torch_copy_", host.tensor(narrow), host.tensor(array), 0)
            out.append(np.where(np.isnan(array), 0, narrow.view(np.uint16)))
        results.append(out)
    np.testing.assert_array_equal(results[0][0], results[1][0])
    np.testing.assert_array_equal(results[0][1], results[1][1])


def test_same_type_copies_of_types_without_arithmetic(shim: Any) -> None:
    for name in ("float8_e4m3fn", "float8_e5m2", "complex32"):
        source, target = shim.empty([5], dtype=name), shim.empty([5], dtype=name)
        size = 5 * DTYPES_BY_NAME[name].itemsize
        ctypes.memmove(source.pointer, bytes(range(size)), size)
        shim.call("aoti_torch_copy_", target, source, 0)
        assert ctypes.string_at(target.pointer, size) == bytes(range(size))


def test_a_cast_that_is_not_supported_is_an_error(shim: Any, shim_error: type) -> None:
    with pytest.raises(shim_error, match="no conversion from float32 to float8_e5m2"):
        shim.call("aoti_torch_copy_", shim.empty([5], dtype="float8_e5m2"), shim.empty([5]), 0)


@pytest.mark.parametrize("shape", [(2,), (4, 1, 3), (5, 3, 4), (0, 3, 4)])
def test_shapes_that_do_not_broadcast_are_errors(shim: Any, shim_error: type, shape: tuple[int, ...]) -> None:
    with pytest.raises(shim_error, match=r"broadcast|does not fit"):
        shim.call("aoti_torch_copy_", shim.empty([3, 4]), shim.empty(shape), 0)


@some
@given(st.sampled_from(TYPES), st.permutations([0, 1, 2]), st.integers(1, 3))
def test_zero(shim: Any, name: str, order: list[int], step: int) -> None:
    array = np.ones((4, 3, 5), numpy_type(shim, name))
    part = array.transpose(order)[::step]
    shim.call("aoti_torch_zero_", shim.tensor(part))
    assert not part.astype(bool).any()
    assert array.astype(bool).sum() == array.size - part.size


@pytest.mark.parametrize("name", TYPES[:-1])
def test_item_and_scalar_to_tensor(shim: Any, name: str) -> None:
    dtype = numpy_type(shim, name)
    value = np.array(1.5 if dtype.kind in "fcV" else 1, dtype)
    out = np.zeros((), dtype)
    function = shim.library["aoti_torch_item_" + name]
    view = shim.make(
        "aoti_torch__reinterpret_tensor", shim.tensor(np.array([0, value], dtype)), 0, None, None, 1
    )
    assert function(ctypes.c_void_p(view.handle), ctypes.c_void_p(out.ctypes.data)) == 0
    assert out == value


ITEMS = {
    "bool": ctypes.c_bool, "uint8": ctypes.c_uint8, "int8": ctypes.c_int8, "int16": ctypes.c_int16,
    "int32": ctypes.c_int32, "int64": ctypes.c_int64, "uint16": ctypes.c_uint16, "uint32": ctypes.c_uint32,
    "uint64": ctypes.c_uint64, "float32": ctypes.c_float, "float64": ctypes.c_double,
}  # fmt: skip


NUMBERS = [
    0.0, 1.0, -1.0, 0.5, -0.5, 127, 127.5, 128, -128, -128.5, -129, 255, 255.5, 256, -255, -256, 65535,
    65536, 70000.0, 1e5, 2**31 - 1, 2**31 - 0.5, 2**31, 2**32 - 1, 2.0**32, -(2.0**31), -(2.0**32), 2.0**63,
    -(2.0**63), 1e39,
]  # fmt: skip


@settings(deadline=None, max_examples=200)
@given(
    st.sampled_from(TYPES),
    st.sampled_from(sorted(ITEMS)),
    st.sampled_from(NUMBERS),
)
def test_item_converts_or_refuses_as_pytorch_does(
    shim: Any, torch_host: Any, source: str, to: str, number: float
) -> None:
    dtype = numpy_type(shim, source)
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        array = np.array(number).astype(dtype)
    outcomes = []
    for host in (shim, torch_host):
        out = ITEMS[to]()
        function = host.library["aoti_torch_item_" + to]
        tensor = host.tensor(array)
        code = function(ctypes.c_void_p(tensor.handle), ctypes.byref(out))
        outcomes.append("refused" if code else out.value)
    assert outcomes[0] == outcomes[1]


SCALARS = {
    "bool": True, "uint8": 200, "int8": -7, "uint16": 60000, "int16": -300, "uint32": 4_000_000_000,
    "int32": -70000, "uint64": 2**63 + 5, "int64": -(2**40), "float32": 1.5, "float64": 0.1,
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(SCALARS))
def test_scalar_to_tensor(shim: Any, name: str) -> None:
    out = ctypes.c_void_p()
    assert (
        shim.library["aoti_torch_scalar_to_tensor_" + name](ITEMS[name](SCALARS[name]), ctypes.byref(out))
        == 0
    )
    value = ITEMS[name]()
    assert shim.library["aoti_torch_item_" + name](out, ctypes.byref(value)) == 0
    assert value.value == ITEMS[name](SCALARS[name]).value
    shim.call("aoti_torch_delete_tensor_object", out)


def test_complex_scalars(shim: Any) -> None:
    class Complex64(ctypes.Structure):
        _fields_ = (("real", ctypes.c_float), ("imag", ctypes.c_float))

    class Complex128(ctypes.Structure):
        _fields_ = (("real", ctypes.c_double), ("imag", ctypes.c_double))

    for name, kind in (("complex64", Complex64), ("complex128", Complex128)):
        tensor = ctypes.c_void_p()
        assert shim.library["aoti_torch_scalar_to_tensor_" + name](kind(1.5, -2.0), ctypes.byref(tensor)) == 0
        out = Complex64()
        assert shim.library.aoti_torch_item_complex64(tensor, ctypes.byref(out)) == 0
        assert (out.real, out.imag) == (1.5, -2.0)
        shim.call("aoti_torch_delete_tensor_object", tensor)


def test_check_inf_and_nan(shim: Any, shim_error: type) -> None:
    shim.call("aoti_torch_check_inf_and_nan", b"buf0", shim.tensor(np.ones(4)))
    shim.call("aoti_torch_check_inf_and_nan", b"buf0", shim.tensor(np.ones(4, int)))
    for bad in (np.inf, -np.inf, np.nan):
        array = np.array([1, bad, 2, bad], np.float32)
        with pytest.raises(shim_error, match="buf7 has 2 infinite or NaN elements of 4"):
            shim.call("aoti_torch_check_inf_and_nan", b"buf7", shim.tensor(array))
