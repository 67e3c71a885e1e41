"""What frozen models ask for: weights packed for oneDNN, and layers fused with what follows them."""

from __future__ import annotations

import ctypes
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aoti_abi.codes import DTYPES_BY_NAME

DIMS = ctypes.c_int64 * 12
MKLDNN = 3
GROUPS = b"\1\0\0\0"  # what PyTorch adds to the descriptor


class Descriptor(ctypes.Structure):
    """``struct dnnl_memory_desc`` of oneDNN 3."""

    _fields_ = (
        ("kind", ctypes.c_int32),
        ("ndims", ctypes.c_int32),
        ("dims", DIMS),
        ("data_type", ctypes.c_int32),
        ("padded_dims", DIMS),
        ("padded_offsets", DIMS),
        ("offset0", ctypes.c_int64),
        ("format_kind", ctypes.c_int32),
        ("strides", DIMS),
        ("block_count", ctypes.c_int32),
        ("blocks", DIMS),
        ("block_dims", DIMS),
        ("extra_flags", ctypes.c_uint64),
        ("rest", ctypes.c_char * 144),
    )


def pack(array: np.ndarray, blocks: list[tuple[int, int]], data_type: int) -> tuple[np.ndarray, Descriptor]:
    """Return the array in blocks, given as (dimension, size) from the outermost, and its descriptor."""
    inner = [math.prod(size for dim, size in blocks if dim == axis) for axis in range(array.ndim)]
    padded = [-(-size // unit) * unit for size, unit in zip(array.shape, inner, strict=True)]
    whole = np.zeros(padded, array.dtype)
    whole[tuple(slice(size) for size in array.shape)] = array
    shape: list[int] = []
    places: list[list[int]] = []  # of each dimension: the axes of the split array, outermost first
    for axis in range(array.ndim):
        sizes = [padded[axis] // inner[axis], *(size for dim, size in blocks if dim == axis)]
        places.append(list(range(len(shape), len(shape) + len(sizes))))
        shape += sizes
    order, seen = [place[0] for place in places], [0] * array.ndim
    for dim, _ in blocks:
        seen[dim] += 1
        order.append(places[dim][seen[dim]])
    data = np.ascontiguousarray(whole.reshape(shape).transpose(order))
    d = Descriptor(kind=1, ndims=array.ndim, data_type=data_type, format_kind=2, block_count=len(blocks))
    for axis in range(array.ndim):
        d.dims[axis], d.padded_dims[axis] = array.shape[axis], padded[axis]
        d.strides[axis] = data.strides[axis] // array.itemsize
    for at, (dim, size) in enumerate(blocks):
        d.block_dims[at], d.blocks[at] = dim, size
    return data, d


def unpack(shim: Any, data: np.ndarray, d: Descriptor, sizes: tuple[int, ...], dtype: str) -> Any:
    return make_v2(shim, data, bytes(d) + GROUPS, sizes, dtype)


def make_v2(shim: Any, data: np.ndarray, metadata: bytes, sizes: tuple[int, ...], dtype: str) -> Any:
    out = ctypes.c_void_p()
    raw = (ctypes.c_uint8 * max(len(metadata), 1)).from_buffer_copy(metadata or b"\0")
    shim.call(
        "aoti_torch_create_tensor_from_blob_v2",
        data.ctypes.data,
        len(sizes),
        shim.int64s(sizes),
        shim.int64s([1] * len(sizes)),
        0,
        DTYPES_BY_NAME[dtype].code,
        0,
        0,
        ctypes.byref(out),
        MKLDNN,
        raw,
        len(metadata),
    )
    shared = shim.make("aoti_torch_new_tensor_handle", out)
    shim.call("aoti_torch_delete_tensor_object", out)
    return shared


@settings(deadline=None, max_examples=100)
@given(
    st.lists(st.integers(1, 9), min_size=1, max_size=4),
    st.lists(st.tuples(st.integers(0, 3), st.sampled_from([2, 3, 4, 16])), max_size=4),
    st.sampled_from([("float32", 3), ("int8", 5), ("float16", 1)]),
)
def test_packed_weights_come_back_in_rows(
    shim: Any, shape: list[int], blocks: list[tuple[int, int]], kind: tuple[str, int]
) -> None:
    array = (np.arange(math.prod(shape)) % 100).reshape(shape).astype(kind[0])
    data, d = pack(array, [(dim % len(shape), size) for dim, size in blocks], kind[1])
    tensor = unpack(shim, data, d, tuple(shape), kind[0])
    np.testing.assert_array_equal(tensor.numpy(), array)
    assert tensor._number("aoti_torch_get_layout", ctypes.c_int32) == MKLDNN


def test_a_grouped_weight_loses_its_groups(shim: Any) -> None:
    array = np.arange(2 * 4 * 3 * 9, dtype="f4").reshape(2, 4, 3, 3, 3)
    data, d = pack(array, [(1, 8)], 3)
    tensor = unpack(shim, data, d, (8, 3, 3, 3), "float32")
    np.testing.assert_array_equal(tensor.numpy(), array.reshape(8, 3, 3, 3))


@pytest.mark.parametrize(
    "change",
    [
        {"kind": 2}, {"ndims": 5}, {"ndims": 13}, {"ndims": -1}, {"data_type": 2}, {"format_kind": 3},
        {"offset0": 8}, {"extra_flags": 1}, {"block_count": 13}, {"block_count": -1},
        ("dims", 0, 5), ("dims", 0, 0), ("padded_dims", 0, 1), ("padded_dims", 0, 17),
        ("padded_offsets", 1, 1), ("strides", 0, -1), ("blocks", 0, 0), ("blocks", 0, 2**40),
        ("block_dims", 0, 2), ("block_dims", 0, -1),
    ],
)  # fmt: skip
def test_a_descriptor_that_is_not_known_is_refused(shim: Any, shim_error: type, change: Any) -> None:
    data, d = pack(np.ones((4, 6), "f4"), [(0, 16)], 3)
    if isinstance(change, dict):
        for name, value in change.items():
            setattr(d, name, value)
    else:
        getattr(d, change[0])[change[1]] = change[2]
    with pytest.raises(shim_error, match="not known here"):
        unpack(shim, data, d, (4, 6), "float32")


def test_a_descriptor_of_another_size_is_refused(shim: Any, shim_error: type) -> None:
    data, d = pack(np.ones((4, 6), "f4"), [], 3)
    for metadata in (b"", bytes(d), bytes(d) + GROUPS + b"\0"):
        with pytest.raises(shim_error, match="descriptor of"):
            make_v2(shim, data, metadata, (4, 6), "float32")


ACTIVATIONS = [
    ("none", [], None), ("relu", [], None), ("sigmoid", [], None), ("tanh", [], None), ("swish", [], None),
    ("hardswish", [], None), ("hardsigmoid", [], None), ("gelu", [], b"none"), ("gelu", [], b"tanh"),
    ("leaky_relu", [0.1], None), ("hardtanh", [-0.5, 0.75], None),
]  # fmt: skip


class Fused:
    """The arguments that name an activation, and what they point to."""

    def __init__(self, name: str, scalars: list[float], algorithm: bytes | None) -> None:
        pointer = ctypes.POINTER(ctypes.c_double)
        self.values = [ctypes.c_double(value) for value in scalars]
        self.text = ctypes.create_string_buffer(algorithm or b"")
        self.arguments = (
            name.encode(),
            (pointer * max(len(scalars), 1))(*map(ctypes.pointer, self.values)),
            len(scalars),
            ctypes.byref(ctypes.c_void_p(ctypes.addressof(self.text))),
        )


@pytest.mark.parametrize("activation", ACTIVATIONS, ids=str)
@pytest.mark.parametrize("shape", [(7, 5), (2, 3, 5)])
def test_a_linear_layer_and_its_activation(
    shim: Any, torch_host: Any, activation: tuple[str, list[float], bytes | None], shape: tuple[int, ...]
) -> None:
    rng = np.random.default_rng(1)
    x, w, bias = (rng.standard_normal(s).astype("f4") for s in (shape, (4, 5), (4,)))
    fused, results = Fused(*activation), []
    for host in (shim, torch_host):
        held = [host.tensor(array) for array in (x, w, bias)]
        operands = (held[0], held[1], host.handle(held[2]))
        results.append(host.make("aoti_torch_cpu__linear_pointwise", *operands, *fused.arguments))
    assert results[0].strides == results[1].strides
    np.testing.assert_allclose(results[0].numpy(), results[1].numpy(), rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("activation", ACTIVATIONS, ids=str)
def test_an_activation_keeps_nan(shim: Any, activation: tuple[str, list[float], bytes | None]) -> None:
    x, w = shim.tensor(np.full((1, 1), np.nan, "f4")), shim.tensor(np.ones((1, 1), "f4"))
    result = shim.make("aoti_torch_cpu__linear_pointwise", x, w, None, *Fused(*activation).arguments)
    assert np.isnan(result.numpy()).all()


@pytest.mark.parametrize("activation", ACTIVATIONS, ids=str)
@pytest.mark.parametrize("last", [False, True])
def test_a_convolution_and_its_activation(
    shim: Any, torch_host: Any, activation: tuple[str, list[float], bytes | None], last: bool
) -> None:
    rng = np.random.default_rng(1)
    x, w, bias = (rng.standard_normal(s).astype("f4") for s in ((2, 4, 7, 6), (6, 2, 3, 2), (6,)))
    if last:
        x = np.ascontiguousarray(x.transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2)
    fused, results = Fused(*activation), []
    for host in (shim, torch_host):
        held = [host.tensor(array) for array in (x, w, bias)]
        given_ = [item for value in (1, 2, 1) for item in (host.int64s([value, value]), 2)]
        operands = (held[0], held[1], host.handle(held[2]), *given_, 2)
        results.append(host.make("aoti_torch_cpu_mkldnn__convolution_pointwise", *operands, *fused.arguments))
    assert (results[0].sizes, results[0].strides) == (results[1].sizes, results[1].strides)
    np.testing.assert_allclose(results[0].numpy(), results[1].numpy(), rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("operation", ["add", "sub", "mul"])
def test_a_linear_layer_and_another_tensor(shim: Any, torch_host: Any, operation: str) -> None:
    rng = np.random.default_rng(1)
    x, other, w = (rng.standard_normal(s).astype("f4") for s in ((7, 5), (7, 4), (4, 5)))
    ours, theirs = (
        host.make(
            "aoti_torch_cpu__linear_pointwise_binary",
            *map(host.tensor, (x, other, w)),
            None,
            operation.encode(),
        )
        for host in (shim, torch_host)
    )
    np.testing.assert_allclose(ours.numpy(), theirs.numpy(), rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize("unary", [None, "relu"])
def test_a_convolution_another_tensor_and_an_activation(
    shim: Any, torch_host: Any, in_place: bool, unary: str | None
) -> None:
    rng = np.random.default_rng(1)
    x, w, bias = (rng.standard_normal(s).astype("f4") for s in ((2, 4, 7, 6), (6, 4, 3, 3), (6,)))
    other = rng.standard_normal((2, 6, 5, 4)).astype("f4")
    fused, results = Fused(unary or "none", [], None), []
    name = ctypes.create_string_buffer((unary or "").encode())
    pointer = ctypes.byref(ctypes.c_void_p(ctypes.addressof(name))) if unary else None
    for host in (shim, torch_host):
        kept = other.copy()
        held = [host.tensor(array) for array in (x, kept, w, bias)]
        given_ = [item for value in (0, 1, 1) for item in (host.int64s([value, value]), 2)]
        operands = (*(held[:2] if not in_place else held[1::-1]), held[2], host.handle(held[3]))
        out = host.make(
            "aoti_torch_cpu_mkldnn__convolution_pointwise_binary" + ("_" if in_place else ""),
            *(*operands, *given_, 1, b"add", None, pointer, *fused.arguments[1:]),
        )
        assert (out.pointer == kept.ctypes.data) == in_place
        results.append(out)
    assert (results[0].sizes, results[0].strides) == (results[1].sizes, results[1].strides)
    np.testing.assert_allclose(results[0].numpy(), results[1].numpy(), rtol=2e-5, atol=2e-5)


def test_a_convolution_with_a_packed_weight_has_its_channels_innermost(shim: Any) -> None:
    rng = np.random.default_rng(1)
    x, w = rng.standard_normal((1, 3, 5, 5)).astype("f4"), rng.standard_normal((4, 3, 2, 2)).astype("f4")
    data, d = pack(w, [(0, 8), (1, 4)], 3)
    one, none = [shim.int64s([1, 1]), 2], [shim.int64s([0, 0]), 2]
    nothing = Fused("none", [], None)
    results = [
        shim.make(
            "aoti_torch_cpu_mkldnn__convolution_pointwise",
            *(shim.tensor(x), weight, None, *none, *one, *one, 1, *nothing.arguments),
        )
        for weight in (shim.tensor(w), unpack(shim, data, d, w.shape, "float32"))
    ]
    np.testing.assert_array_equal(results[0].numpy(), results[1].numpy())
    assert results[0].strides == (64, 16, 4, 1)
    assert results[1].strides == (64, 1, 16, 4)


def test_what_cannot_be_fused_is_refused(shim: Any, shim_error: type) -> None:
    x, w = shim.empty([2, 3]), shim.empty([4, 3])
    name = "aoti_torch_cpu__linear_pointwise"
    for activation, text in (
        (("mystery", [], None), "'mystery' is not known"),
        (("hardtanh", [1.0], None), "1 scalars instead of 2"),
    ):
        fused = Fused(*activation)
        with pytest.raises(shim_error, match=text):
            shim.make(name, x, w, None, *fused.arguments)
    nothing = Fused("none", [], None).arguments
    with pytest.raises(shim_error, match="don't fit"):
        shim.make(name, x, shim.empty([4, 2]), None, *nothing)
    bias = shim.empty([3])
    with pytest.raises(shim_error, match="the bias is not one float32 for each of 4"):
        shim.make(name, x, w, shim.handle(bias), *nothing)
