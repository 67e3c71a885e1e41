"""`view`: what arrays say about their memory, read right or refused."""

from __future__ import annotations

import ctypes
from array import array
from typing import ClassVar

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from aoti_abi.codes import DTYPES, DTYPES_BY_NAME
from aoti_abi.errors import InvalidArgument
from aoti_executor.arrays import is_tensor, view
from aoti_executor.views import View, allocate, contiguous, copy_elements, packed, span

NUMPY_TYPES = [dtype.numpy for dtype in DTYPES.values() if dtype.numpy]


@st.composite
def strided_arrays(draw):
    """Arrays of any type, and views of them: steps, transpositions, new axes, empty and 0-d ones."""
    dtype = np.dtype(draw(st.sampled_from(NUMPY_TYPES)))
    shape = draw(hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=5))
    base = np.arange(np.prod(shape, dtype=int) * dtype.itemsize, dtype="u1").view(dtype)
    result = base.reshape(shape)
    if dtype.kind == "b":
        result = result.view("u1").__and__(1).view(bool)
    for axis in range(result.ndim):
        start, step = draw(st.integers(0, 2)), draw(st.integers(1, 3))
        result = result[(slice(None),) * axis + (slice(start, None, step),)]
    if result.ndim:
        result = result.transpose(draw(st.permutations(range(result.ndim))))
    return result[None] if draw(st.booleans()) else np.asarray(result)


def rebuild(memory: View) -> np.ndarray:
    """Read a view's elements one by one, from its address and strides alone."""
    dtype = np.dtype(DTYPES[memory.dtype].numpy)
    result = np.empty(memory.shape, dtype)
    for index in np.ndindex(memory.shape):
        at = memory.data + sum(i * s for i, s in zip(index, memory.strides, strict=True)) * dtype.itemsize
        result[index] = np.frombuffer(ctypes.string_at(at, dtype.itemsize), dtype)[0]
    return result


@given(strided_arrays())
@settings(max_examples=200, deadline=None)
def test_views_of_arrays_are_the_arrays(value):
    memory = view(value)
    assert memory.shape == value.shape
    assert rebuild(memory).tobytes() == value.tobytes()
    if value.size:
        low, high = np.lib.array_utils.byte_bounds(value)
        assert (memory.data, memory.data + memory.span) == (low, high)


@given(strided_arrays())
@settings(max_examples=100, deadline=None)
def test_copies_keep_elements_and_are_aligned(value):
    memory = view(value)
    copy = packed(memory)
    assert copy.strides == contiguous(value.shape)
    assert copy.data % 64 == 0
    assert rebuild(copy).tobytes() == value.tobytes()
    other = allocate(memory.dtype, memory.shape, tuple(reversed(contiguous(tuple(reversed(memory.shape))))))
    copy_elements(other, memory)
    assert rebuild(other).tobytes() == value.tobytes()


@pytest.mark.parametrize("code", "bBhHiIlLqQfd")
def test_buffer_protocol_without_numpy(code):
    value = array(code, [1, 2, 3])
    memory = view(value)
    assert memory.data == value.buffer_info()[0]
    assert DTYPES[memory.dtype].itemsize == value.itemsize
    assert rebuild(memory).tolist() == [1, 2, 3]


def test_buffers_of_many_dimensions_and_ctypes_arrays():
    buffer = memoryview(bytearray(range(24))).cast("B", (2, 3, 4))
    assert view(buffer).strides == (12, 4, 1)
    assert view(buffer[1]).shape == (3, 4) if buffer.ndim == 1 else True
    assert view((ctypes.c_float * 3 * 2)()).shape == (2, 3)
    assert view((ctypes.c_int16 * 3)(1, 2, 3)).dtype == DTYPES_BY_NAME["int16"].code
    assert view(memoryview(b"abcdef")[::2]).strides == (2,)
    assert view(memoryview(b"")).shape == (0,)


@pytest.mark.parametrize("scalar", [np.float32(2.5), np.int64(3), np.bool_(True), np.float16(1)])
def test_scalars_of_numpy_are_read_where_they_are(scalar):
    # Their array interface points into freed memory.
    memories = [view(scalar) for _ in range(50)]
    assert all(memory.shape == () and memory.readonly for memory in memories)
    assert {rebuild(memory).item() for memory in memories} == {scalar.item()}


def test_read_only_memory_is_marked():
    value = np.zeros(3)
    value.flags.writeable = False
    assert view(value).readonly
    assert view(b"abc").readonly
    assert not view(bytearray(b"abc")).readonly


def test_types_of_ml_dtypes_go_by_name():
    for name in ("bfloat16", "float8_e5m2", "float8_e4m3fn"):
        value = np.zeros((2, 3), getattr(ml_dtypes, name))
        assert view(value).dtype == DTYPES_BY_NAME[name].code


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (np.zeros(3, ">f4"), r"has the type '>f4'"),
        (np.zeros(3, "U4"), "which no tensor has"),
        (np.zeros(3, "M8[s]"), "which no tensor has"),
        (np.zeros(3, [("a", "f4")]), "which no tensor has"),
        (np.zeros(3, object), "which no tensor has"),
        (np.zeros(3)[::-1], "which elements of 8 bytes cannot have"),
        (np.zeros(2, "u1,f8")["f1"], "which elements of 8 bytes cannot have"),
        (memoryview(b"abc").cast("c"), "buffer format 'c'"),
        (1, "is a int, not an array"),
        ("text", "is a str"),
        ([1.0], "numbers and lists have no dtype"),
        (None, "is a NoneType"),
        (object(), "is a object"),
    ],
)
def test_what_no_tensor_can_be_is_refused(value, message):
    with pytest.raises(InvalidArgument, match=message):
        view(value, "the thing")


def test_interface_with_a_buffer_as_pillow_has_it():
    class Image:
        __array_interface__: ClassVar = {
            "version": 3,
            "shape": (2, 3),
            "typestr": "|u1",
            "data": bytes(range(6)),
            "strides": None,
        }

    memory = view(Image())
    assert memory.readonly
    assert rebuild(memory).tolist() == [[0, 1, 2], [3, 4, 5]]
    Image.__array_interface__["shape"] = (2, 4)
    with pytest.raises(InvalidArgument, match="less memory"):
        view(Image())


def test_too_many_dimensions_are_refused():
    class Deep:
        __array_interface__: ClassVar = {
            "version": 3,
            "shape": (1,) * 65,
            "typestr": "|u1",
            "data": (4096, False),
        }

    with pytest.raises(InvalidArgument, match="65 dimensions"):
        view(Deep())


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (np.zeros(3), True),
        (array("f"), True),
        (memoryview(b"a"), True),
        (1, False),
        (True, False),
        ("a", False),
        (b"a", False),
        (None, False),
        ([], False),
        ({}, False),
        (object(), False),
    ],
)
def test_what_counts_as_a_tensor(value, expected):
    assert is_tensor(value) is expected


def test_span_of_broadcast_and_empty_shapes():
    assert span((4, 3), (0, 1), 4) == 12
    assert span((0, 3), (3, 1), 4) == 0
    assert span((), (), 8) == 8
    value = np.broadcast_to(np.arange(3.0), (4, 3))
    assert view(value).strides == (0, 1)
