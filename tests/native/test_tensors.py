"""Tensors, views and clones against numpy, and against PyTorch's own shims."""

from __future__ import annotations

import ctypes
import threading
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

some = settings(deadline=None, max_examples=60)

PLAIN = ["uint8", "int16", "int32", "int64", "float16", "float32", "float64", "complex64", "bool", "uint32"]


@st.composite
def views(draw: st.DrawFn, dtypes: list[str] = PLAIN, max_dims: int = 4) -> np.ndarray:
    """Arrays with any non-negative strides: sliced, transposed, broadcast."""
    dtype = np.dtype(draw(st.sampled_from(dtypes)))
    shape = draw(hnp.array_shapes(min_dims=0, max_dims=max_dims, min_side=0, max_side=5))
    rng = np.random.default_rng(draw(st.integers(0, 1 << 16)))
    array = (rng.standard_normal(shape) * 50).astype(dtype)
    for axis in range(array.ndim):
        kind = draw(st.sampled_from(["whole", "step", "tail", "broadcast"]))
        index: list[Any] = [slice(None)] * array.ndim
        if kind == "step":
            index[axis] = slice(None, None, 2)
        elif kind == "tail":
            index[axis] = slice(1, None)
        array = array[tuple(index)]
        if kind == "broadcast" and array.shape[axis] == 1:
            array = np.broadcast_to(array, [3 if i == axis else n for i, n in enumerate(array.shape)])
    if array.ndim:
        array = array.transpose(draw(st.permutations(range(array.ndim))))
    return np.asarray(array)


def dense_strides(array: np.ndarray) -> tuple[int, ...]:
    return tuple(stride // array.itemsize for stride in array.strides)


@some
@given(views())
def test_metadata_is_the_arrays(shim: Any, array: np.ndarray) -> None:
    tensor = shim.tensor(array)
    assert tensor.sizes == array.shape
    assert tensor.strides == dense_strides(array)
    assert tensor.dtype == array.dtype
    assert tensor._number("aoti_torch_get_numel") == array.size
    assert tensor.pointer == (array.ctypes.data if array.size else 0)
    contiguous = tensor._number("aoti_torch_is_contiguous", ctypes.c_bool)
    # numpy calls a 0-stride dimension of size 1 contiguous too.
    assert contiguous == array.flags.c_contiguous
    for axis in range(-array.ndim, array.ndim):
        out = ctypes.c_int64()
        shim.call("aoti_torch_get_size", tensor, axis, ctypes.byref(out))
        assert out.value == array.shape[axis]
        shim.call("aoti_torch_get_stride", tensor, axis, ctypes.byref(out))
        assert out.value == array.strides[axis] // array.itemsize


@some
@given(views())
def test_clone_and_its_strides(shim: Any, torch_host: Any, array: np.ndarray) -> None:
    ours = shim.make("aoti_torch_clone", shim.tensor(array))
    theirs = torch_host.make("aoti_torch_clone", torch_host.tensor(array))
    np.testing.assert_array_equal(ours.numpy(), array)
    assert ours.strides == theirs.strides
    assert ours.nbytes == theirs.nbytes
    assert ours.offset == 0


@some
@given(views())
def test_clone_preserve_strides(shim: Any, torch_host: Any, array: np.ndarray) -> None:
    ours = shim.make("aoti_torch_clone_preserve_strides", shim.tensor(array))
    np.testing.assert_array_equal(ours.numpy(), array)
    assert ours.strides == dense_strides(array)
    if array.size:
        theirs = torch_host.make("aoti_torch_clone_preserve_strides", torch_host.tensor(array))
        assert (ours.strides, ours.nbytes) == (theirs.strides, theirs.nbytes)


@some
@given(views(), st.data())
def test_views_share_their_storage(shim: Any, array: np.ndarray, data: st.DataObject) -> None:
    base = shim.make("aoti_torch_clone", shim.tensor(np.ascontiguousarray(array)))
    size = array.size
    start = data.draw(st.integers(0, max(size - 1, 0)))
    count = data.draw(st.integers(0, max(size - start, 0)))
    part = shim.make("aoti_torch__reinterpret_tensor", base, 1, shim.int64s([count]), shim.int64s([1]), start)
    np.testing.assert_array_equal(part.numpy(), base.numpy().reshape(-1)[start : start + count])
    tail = shim.make(
        "aoti_torch__reinterpret_tensor", part, 1, shim.int64s([1 if count else 0]), shim.int64s([1]), 0
    )
    assert tail.offset == start  # counts from where the view begins
    if count:
        part.view()[...] = 1
        np.testing.assert_array_equal(base.numpy().reshape(-1)[start : start + count], 1)
    del base
    assert part.sizes == (count,)


def test_reinterpret_offset_counts_from_the_view_as_in_pytorch(shim: Any, torch_host: Any) -> None:
    array = np.arange(24, dtype=np.float32)
    offsets = []
    for host in (shim, torch_host):
        view = host.make(
            "aoti_torch__reinterpret_tensor", host.tensor(array), 1, host.int64s([8]), host.int64s([1]), 4
        )
        again = host.make(
            "aoti_torch__reinterpret_tensor", view, 2, host.int64s([2, 2]), host.int64s([2, 1]), 3
        )
        offsets.append((again.offset, again.numpy().tolist()))
    assert offsets[0] == offsets[1] == (7, [[7.0, 8.0], [9.0, 10.0]])


@some
@given(
    views(["uint8", "int16", "int32", "float64", "complex64"]),
    st.sampled_from(["uint8", "int16", "float32", "int64"]),
)
def test_view_dtype(shim: Any, torch_host: Any, shim_error: type, array: np.ndarray, to: str) -> None:
    outcomes = []
    for host in (shim, torch_host):
        tensor = host.tensor(array)
        code = host.function("aoti_torch_dtype_" + to)()
        try:
            view = host.make("aoti_torch_view_dtype", tensor, code)
        except shim_error:
            outcomes.append(None)
        else:
            outcomes.append((view.sizes, view.strides, view.offset, view.numpy().tobytes()))
    if array.size:
        assert outcomes[0] == outcomes[1]


def test_as_strided_keeps_the_number_of_dimensions(shim: Any) -> None:
    array = np.arange(12, dtype=np.int64).reshape(3, 4)
    view = shim.make("aoti_torch_as_strided", shim.tensor(array), shim.int64s([4, 3]), shim.int64s([1, 4]))
    np.testing.assert_array_equal(view.numpy(), array.T)


def test_alloc_from_pool(shim: Any) -> None:
    pool = shim.empty([64], dtype="uint8")
    part = shim.make("aoti_torch__alloc_from_pool", pool, 16, 6, 2, shim.int64s([2, 3]), shim.int64s([3, 1]))
    assert part.pointer == pool.pointer + 16
    assert (part.sizes, part.dtype, part.offset) == ((2, 3), np.float32, 4)


def test_assignment_shares_and_leaves_the_source(shim: Any) -> None:
    source = shim.make("aoti_torch_clone", shim.tensor(np.arange(6.0).reshape(1, 2, 3)))
    made = shim.make("aoti_torch_assign_tensors_out", source)
    target = shim.empty([2], dtype="int32")
    shim.call("aoti_torch_assign_tensors", source, target)
    handle = shim.make("aoti_torch_new_tensor_handle", source)
    assert made.pointer == target.pointer == handle.pointer == source.pointer
    assert target.sizes == (1, 2, 3)
    assert target.strides == (6, 3, 1)
    assert target.dtype == np.float64
    source.view()[...] = 7
    del source
    assert (made.numpy() == 7).all()
    assert (target.numpy() == 7).all()


def test_an_undefined_tensor(shim: Any) -> None:
    tensor = shim.make("aoti_torch_new_uninitialized_tensor")
    assert not tensor._number("aoti_torch_is_defined", ctypes.c_bool)
    assert tensor.sizes == (0,)
    assert tensor.pointer == 0
    source = shim.tensor(np.ones(3))
    shim.call("aoti_torch_assign_tensors", source, tensor)
    assert tensor._number("aoti_torch_is_defined", ctypes.c_bool)
    assert tensor.pointer == source.pointer


def test_memory_is_aligned_for_vectors(shim: Any) -> None:
    for size in (1, 3, 17, 100, 5000):
        assert shim.empty([size]).pointer % 64 == 0


def test_a_borrowed_tensor_calls_its_deleter_with_the_last_sharer(shim: Any) -> None:
    called = []
    deleter = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)(
        lambda data, ctx: called.append((data, ctx))
    )
    array = np.arange(4.0)
    function = shim.library.torch_from_blob
    out = ctypes.c_void_p()
    code = function(
        ctypes.c_void_p(array.ctypes.data), ctypes.c_int64(1), shim.int64s([4]), shim.int64s([1]),
        ctypes.c_int64(0), 7, 0, 0, ctypes.byref(out), 0, None, ctypes.c_int64(0),
        deleter, ctypes.c_void_p(77),
    )  # fmt: skip
    assert code == 0
    second = ctypes.c_void_p()
    shim.call("aoti_torch_new_tensor_handle", out, ctypes.byref(second))
    shim.call("aoti_torch_delete_tensor_object", out)
    assert not called
    shim.call("aoti_torch_delete_tensor_object", second)
    assert called == [(array.ctypes.data, 77)]


def test_nothing_leaks(shim: Any) -> None:
    before = shim.stats()
    base = shim.empty([10, 10])
    others = [shim.make("aoti_torch_clone", base), shim.make("aoti_torch_new_tensor_handle", base)]
    assert shim.stats() == (before[0] + 3, before[1] + 2, before[2] + 800)
    del base, others
    assert shim.stats() == before


def test_handles_are_counted_atomically_across_threads(shim: Any) -> None:
    before = shim.stats()
    held = [shim.empty([16])]

    def share() -> None:
        for _ in range(2000):
            shim.make("aoti_torch_new_tensor_handle", held[0])

    threads = [threading.Thread(target=share) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    held.clear()
    assert shim.stats() == before


@pytest.mark.parametrize("sizes", [(), (0,), (3, 0, 2), (1, 1)])
def test_empty_strided_sizes_in_bytes(shim: Any, torch_host: Any, sizes: tuple[int, ...]) -> None:
    ours, theirs = shim.empty(sizes), torch_host.empty(sizes)
    assert (ours.sizes, ours.strides, ours.nbytes) == (theirs.sizes, theirs.strides, theirs.nbytes)
