"""Device memory, copies, guards and streams, through a CUDA runtime that is a C file of the tests."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

CUDA = 1
FAKE = Path(__file__).with_name("fake_device.c").read_text()


class Cuda:
    """The shim with a CUDA table, and the counters of the runtime below."""

    def __init__(self, shim: Any, runtime: ctypes.CDLL) -> None:
        self.shim, self.runtime = shim, runtime

    def counter(self, name: str) -> int:
        return ctypes.c_long.in_dll(self.runtime, name).value

    @property
    def stream(self) -> int:
        return ctypes.c_void_p.in_dll(self.runtime, "last_stream").value or 0

    def fail_next(self, error: int) -> None:
        ctypes.c_int.in_dll(self.runtime, "fail_next").value = error

    def device(self) -> int:
        out = ctypes.c_int32()
        self.runtime.cudaGetDevice(ctypes.byref(out))
        return out.value

    def empty(self, sizes: Any, strides: Any = None, dtype: str = "float32", index: int = -1) -> Any:
        code = self.shim.function("aoti_torch_dtype_" + dtype)()
        strides = None if strides is None else self.shim.int64s(strides)
        return self.shim.make(
            "aoti_torch_empty_strided", len(sizes), self.shim.int64s(sizes), strides, code, CUDA, index
        )

    def upload(self, array: np.ndarray) -> Any:
        source = self.shim.tensor(array)
        target = self.empty(array.shape, [s // array.itemsize for s in array.strides], str(array.dtype))
        self.shim.call("aoti_torch_copy_", target, source, 0)
        return target

    def download(self, tensor: Any, dtype: str | None = None) -> np.ndarray:
        out = np.zeros(tensor.sizes, dtype or tensor.dtype)
        self.shim.call("aoti_torch_copy_", self.shim.tensor(out), tensor, 0)
        return out


@pytest.fixture(params=["pools", "no pools"])
def cuda(request: pytest.FixtureRequest, shim: Any, compile_library: Any) -> Iterator[Cuda]:
    flags = ["-DWITHOUT_POOLS"] if request.param == "no pools" else []
    # -Bsymbolic: the runtime is opened globally, and two variants of it are in this process.
    path = compile_library(FAKE, "-Wl,-Bsymbolic", *flags, name="libcudart.so")
    assert shim.library.aoti_shim_load_cuda(path.encode()) == 0, shim.error()
    runtime = ctypes.CDLL(path)
    runtime.cudaSetDevice(0)
    yield Cuda(shim, runtime)
    runtime.cudaSetDevice(0)
    assert ctypes.c_long.in_dll(runtime, "live_allocations").value == 0
    shim.library.aoti_shim_register_device(CUDA, None)


def test_loading_a_runtime_fails_with_a_reason(shim: Any, compile_library: Any) -> None:
    assert shim.library.aoti_shim_load_cuda(b"/nowhere/libcudart.so") != 0
    assert "/nowhere/libcudart.so" in shim.error()
    empty = compile_library("int x;", name="libempty.so")
    assert shim.library.aoti_shim_load_cuda(empty.encode()) != 0
    assert "has no cudaGetDevice" in shim.error()
    assert shim.library.aoti_shim_has_device(CUDA) == 0
    assert shim.library.aoti_shim_has_device(0) == 1


def test_a_runtime_that_lacks_something_leaves_the_one_in_use(cuda: Cuda, compile_library: Any) -> None:
    partial = "int cudaGetDevice(int *device) { *device = 1; return 0; }"
    path = compile_library(partial, "-Wl,-Bsymbolic", name="libpartial.so")
    assert cuda.shim.library.aoti_shim_load_cuda(path.encode()) != 0
    assert "has no cudaSetDevice" in cuda.shim.error()
    assert cuda.device() == 0  # the partial one, unmapped by now, would crash or say 1
    np.testing.assert_array_equal(cuda.download(cuda.upload(np.arange(3.0))), np.arange(3.0))


def test_a_table_must_be_whole(shim: Any) -> None:
    table = (ctypes.c_char * 256)()
    register = shim.library.aoti_shim_register_device
    assert register(0, table) != 0
    assert register(99, table) != 0
    assert register(CUDA, table) != 0
    assert "the table has 0 bytes" in shim.error()
    ctypes.c_uint32.from_buffer(table).value = 96
    assert register(CUDA, table) != 0
    assert "required function" in shim.error()


def test_memory_lives_on_its_device_and_is_given_back(cuda: Cuda) -> None:
    tensor = cuda.empty([4, 5], index=1)
    assert ctypes.c_int.in_dll(cuda.runtime, "last_device").value == 1
    assert cuda.device() == 0  # as it was
    assert tensor._number("aoti_torch_get_device_type", ctypes.c_int32) == CUDA
    assert tensor._number("aoti_torch_get_device_index", ctypes.c_int32) == 1
    assert cuda.counter("live_allocations") == 1
    other = cuda.shim.make("aoti_torch_new_tensor_handle", tensor)
    del tensor
    assert cuda.counter("live_allocations") == 1
    del other
    assert cuda.counter("live_allocations") == 0
    assert ctypes.c_int.in_dll(cuda.runtime, "last_device").value == 1
    assert cuda.device() == 0


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 0, 1)])
def test_copies_both_ways(cuda: Cuda, order: tuple[int, ...]) -> None:
    array = np.arange(24, dtype="f4").reshape(2, 3, 4).transpose(order)
    tensor = cuda.upload(array)
    assert cuda.counter("copies") > 0
    assert cuda.counter("synchronisations") > 0
    np.testing.assert_array_equal(cuda.download(tensor), array)
    np.testing.assert_array_equal(cuda.download(tensor, "float64"), array)  # with a cast
    np.testing.assert_array_equal(cuda.download(cuda.shim.make("aoti_torch_clone", tensor)), array)
    kept = cuda.shim.make("aoti_torch_clone_preserve_strides", tensor)
    assert kept.strides == tensor.strides
    np.testing.assert_array_equal(cuda.download(kept), array)


def test_a_strided_target_keeps_what_lies_between(cuda: Cuda) -> None:
    whole = cuda.upload(np.full((4, 6), 9, "i4"))
    part = cuda.shim.make(
        "aoti_torch__reinterpret_tensor", whole, 2, cuda.shim.int64s([4, 3]), cuda.shim.int64s([6, 2]), 0
    )
    cuda.shim.call("aoti_torch_copy_", part, cuda.shim.tensor(np.arange(3, dtype="i8")), 0)
    want = np.full((4, 6), 9)
    want[:, ::2] = [0, 1, 2]
    np.testing.assert_array_equal(cuda.download(whole), want)
    cuda.shim.call("aoti_torch_zero_", part)
    want[:, ::2] = 0
    np.testing.assert_array_equal(cuda.download(whole), want)
    cuda.shim.call("aoti_torch_zero_", whole)
    assert not cuda.download(whole).any()


def test_copies_between_devices_go_through_the_host(cuda: Cuda) -> None:
    source = cuda.upload(np.arange(6, dtype="f4").reshape(2, 3))
    target = cuda.empty([2, 3], index=1)
    cuda.shim.call("aoti_torch_copy_", target, source, 0)
    np.testing.assert_array_equal(cuda.download(target), [[0, 1, 2], [3, 4, 5]])


def test_items_and_checks_read_device_memory(cuda: Cuda, shim_error: type) -> None:
    value = ctypes.c_float()
    cuda.shim.call("aoti_torch_item_float32", cuda.upload(np.array([2.5], "f4")), ctypes.byref(value))
    assert value.value == 2.5
    with pytest.raises(shim_error, match="1 infinite or NaN"):
        cuda.shim.call("aoti_torch_check_inf_and_nan", b"x", cuda.upload(np.array([1, np.inf], "f4")))
    with pytest.raises(shim_error, match="not on the CPU"):
        cuda.shim.call("aoti_torch_cpu_mm_out", *[cuda.empty([2, 2])] * 3)


def test_errors_of_the_device_keep_their_words(cuda: Cuda, shim_error: type) -> None:
    cuda.fail_next(2)
    with pytest.raises(shim_error, match=r"no device memory for 16 bytes \(device error 2: out of memory\)"):
        cuda.empty([4])
    tensor = cuda.empty([4])
    cuda.fail_next(700)
    with pytest.raises(shim_error, match="device error 700: some trouble"):
        cuda.download(tensor)
    with pytest.raises(shim_error, match="device error 101"):
        cuda.empty([4], index=7)
    with pytest.raises(shim_error, match="device index 64 is outside"):
        cuda.empty([4], index=64)


def test_streams_are_per_thread_and_per_device(cuda: Cuda) -> None:
    library, out = cuda.shim.library, ctypes.c_void_p()
    assert library.aoti_shim_set_current_stream(1, ctypes.c_void_p(0x1000)) == 0
    try:
        for index, want in ((0, None), (-1, None), (1, 0x1000)):
            cuda.shim.call("aoti_torch_get_current_cuda_stream", index, ctypes.byref(out))
            assert out.value == want
        tensor = cuda.empty([4], index=1)
        if hasattr(cuda.runtime, "cudaMallocAsync"):
            assert cuda.stream == 0x1000
        library.aoti_shim_set_current_stream(1, ctypes.c_void_p(0x2000))
        assert library.aoti_shim_synchronize(CUDA, 1) == 0
        assert cuda.stream == 0x2000
        del tensor  # on the stream it came from
        if hasattr(cuda.runtime, "cudaFreeAsync"):
            assert cuda.stream == 0x1000
    finally:
        library.aoti_shim_set_current_stream(1, None)


def test_memory_of_a_destroyed_stream_is_freed_all_the_same(cuda: Cuda) -> None:
    cuda.shim.library.aoti_shim_set_current_stream(0, ctypes.c_void_p(0xDEAD))
    tensor = cuda.empty([4])
    cuda.shim.library.aoti_shim_set_current_stream(0, None)
    del tensor
    assert cuda.counter("live_allocations") == 0


def test_guards_put_device_and_stream_back(cuda: Cuda) -> None:
    shim, stream = cuda.shim, ctypes.c_void_p()
    outer = ctypes.c_void_p()
    shim.call("aoti_torch_create_cuda_guard", 1, ctypes.byref(outer))
    assert cuda.device() == 1
    inner = ctypes.c_void_p()
    shim.call("aoti_torch_create_cuda_stream_guard", 0x30, 0, ctypes.byref(inner))
    assert cuda.device() == 0
    shim.call("aoti_torch_get_current_cuda_stream", -1, ctypes.byref(stream))
    assert stream.value == 0x30
    shim.call("aoti_torch_delete_cuda_stream_guard", inner)
    shim.call("aoti_torch_get_current_cuda_stream", 0, ctypes.byref(stream))
    assert stream.value is None
    assert cuda.device() == 1
    shim.call("aoti_torch_cuda_guard_set_index", outer, 0)
    assert cuda.device() == 0
    shim.call("aoti_torch_delete_cuda_guard", outer)
    assert cuda.device() == 0
    generic, index = ctypes.c_void_p(), ctypes.c_int32()
    shim.call("aoti_torch_create_device_guard", 1, ctypes.byref(generic))
    shim.call("aoti_torch_get_current_device_index", ctypes.byref(index))
    assert index.value == 1
    shim.call("aoti_torch_delete_device_guard", generic)
    assert cuda.device() == 0


def test_guards_refuse_what_is_no_guard(cuda: Cuda, shim_error: type) -> None:
    tensor = cuda.shim.empty([4])
    for handle in (None, tensor.handle):
        with pytest.raises(shim_error, match="'guard' is"):
            cuda.shim.call("aoti_torch_delete_cuda_guard", handle)
    with pytest.raises(shim_error, match="device error 101"):
        cuda.shim.call("aoti_torch_create_cuda_guard", 5, ctypes.byref(ctypes.c_void_p()))
    assert cuda.device() == 0


def test_pinned_memory(cuda: Cuda, shim_error: type) -> None:
    shim, sizes = cuda.shim, cuda.shim.int64s([3])
    tensor = shim.make("aoti_torch_empty_strided_pinned", 1, sizes, None, 6, 0, 0)
    assert tensor._number("aoti_torch_get_device_type", ctypes.c_int32) == 0
    tensor.view()[...] = 1
    assert cuda.counter("live_allocations") == 1
    del tensor
    with pytest.raises(shim_error, match="only CPU memory"):
        shim.make("aoti_torch_empty_strided_pinned", 1, sizes, None, 6, 1, 0)


def test_raw_device_memory(cuda: Cuda) -> None:
    pointer = ctypes.c_void_p()
    cuda.shim.call("aoti_torch_cuda_caching_allocator_raw_alloc", 64, ctypes.byref(pointer))
    assert cuda.counter("live_allocations") == 1
    cuda.shim.call("aoti_torch_cuda_caching_allocator_raw_delete", pointer)
    cuda.shim.call("aoti_torch_cuda_caching_allocator_raw_alloc", 0, ctypes.byref(pointer))
    assert pointer.value is None
    cuda.shim.call("aoti_torch_cuda_caching_allocator_raw_delete", None)


def test_pinned_memory_needs_a_device(shim: Any, shim_error: type) -> None:
    with pytest.raises(shim_error, match="device type 1 is not registered"):
        shim.make("aoti_torch_empty_strided_pinned", 1, shim.int64s([3]), None, 6, 0, 0)
