"""Whatever a plugin passes, the host answers with an error code and a text: it never ends the process."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import threading
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

some = settings(deadline=None, max_examples=150)
INVALID_ARGUMENT, NOT_SUPPORTED, NO_MEMORY = 0x12, 0x10, 0x21
BIG = 2**62

# Run in a child: standard error names the function that ended it.
NULL_CALLS = """
import ctypes, sys
from aoti_abi.hosts.builtin import COMMON_SHIMS
from aoti_abi.errors import NotSupported
from aoti_abi.prototypes import shim_prototype
shim = ctypes.CDLL(sys.argv[1])
accepted = []
for name in sorted(COMMON_SHIMS):
    try:
        kinds = shim_prototype(name).argtypes
    except NotSupported:  # complex by value
        continue
    if not kinds:
        continue
    print(name, file=sys.stderr, flush=True)
    shim.aoti_shim_clear_error()
    numbers = (ctypes.c_double, ctypes.c_float)
    code = shim[name](*[kind(0.0) if kind in numbers else ctypes.c_void_p(0) for kind in kinds])
    text = ctypes.c_char_p()
    shim.aoti_shim_last_error(ctypes.byref(text))
    if code == 0 or not text.value:
        accepted.append(name)
    elif name != "aoti_torch_check":
        assert text.value.decode().startswith(name + ": "), (name, text.value)
print(*accepted)
"""


def test_null_for_every_argument_of_every_shim(shim_path: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", NULL_CALLS, shim_path],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )
    assert done.returncode == 0, done.stderr[-600:]
    # What has nothing to refuse in zeros.
    assert set(done.stdout.split()) <= {
        "aoti_torch_dtype_element_size",
        "aoti_torch_grad_mode_set_enabled",
        "aoti_torch_print_tensor_handle",
        "aoti_torch_warn",
        "aoti_torch_check",
        "aoti_torch_scalar_to_tensor_complex128",
        "aoti_torch_cuda_caching_allocator_raw_delete",
    }


@pytest.mark.parametrize(
    ("sizes", "strides", "dtype", "code", "text"),
    [
        ([-1], [1], 6, INVALID_ARGUMENT, "size -1"),
        ([2, 3], [-3, 1], 6, INVALID_ARGUMENT, "stride -3"),
        ([2], [1], 99, NOT_SUPPORTED, "type code 99"),
        ([2], [1], -1, NOT_SUPPORTED, "type code -1"),
        ([2], [1], 12, NOT_SUPPORTED, "type code 12"),
        ([BIG, 4], [4, 1], 6, INVALID_ARGUMENT, "elements overflows"),
        ([BIG], [1], 7, INVALID_ARGUMENT, "bytes overflows"),
        ([3, 3], [BIG, BIG], 0, INVALID_ARGUMENT, "extent of the strides overflows"),
        ([BIG, 0, 8], [0, 0, 0], 0, INVALID_ARGUMENT, "elements overflows"),
        ([2**50], [1], 0, NO_MEMORY, "no memory"),
        ([1] * 65, [1] * 65, 6, INVALID_ARGUMENT, "65 dimensions"),
    ],
)
def test_sizes_that_cannot_be(  # noqa: PLR0917 - one argument for each drawn value
    shim: Any, sizes: list[int], strides: list[int], dtype: int, code: int, text: str
) -> None:
    before, out = shim.stats(), ctypes.c_void_p()
    function = shim.function("aoti_torch_empty_strided")
    got = function(len(sizes), shim.int64s(sizes), shim.int64s(strides), dtype, 0, 0, ctypes.byref(out))
    assert got == code
    assert text in shim.error()
    assert shim.error().startswith("aoti_torch_empty_strided: ")
    assert out.value is None
    assert shim.stats() == before


@some
@given(
    st.lists(st.integers(-2, 2**63 - 1) | st.integers(0, 8), max_size=5),
    st.lists(st.integers(-2, 2**63 - 1) | st.integers(0, 8), max_size=5),
    st.integers(-2, 2**63 - 1) | st.integers(0, 40),
    st.integers(-1, 50),
)
def test_a_view_stays_inside_its_storage(  # noqa: PLR0917 - one argument for each drawn value
    shim: Any, shim_error: type, sizes: list[int], strides: list[int], offset: int, dtype: int
) -> None:
    count = min(len(sizes), len(strides))
    base = shim.empty([64], dtype="uint8")
    arguments = (dtype, count, shim.int64s(sizes[:count]), shim.int64s(strides[:count]))
    try:
        view = shim.make("aoti_torch__alloc_from_pool", base, offset, *arguments)
    except shim_error:
        return
    itemsize = shim.function("aoti_torch_dtype_element_size")(dtype)
    extent = sum((n - 1) * s for n, s in zip(sizes, strides, strict=False)) + 1
    if 0 not in sizes[:count]:
        assert offset >= 0
        assert offset + extent * itemsize <= 64
        assert base.pointer <= view.pointer
    else:
        assert view.pointer == 0


def test_borrowed_memory_must_be_there(shim: Any) -> None:
    function, out = shim.function("aoti_torch_create_tensor_from_blob"), ctypes.c_void_p()
    assert (
        function(None, 1, shim.int64s([3]), shim.int64s([1]), 0, 6, 0, 0, ctypes.byref(out))
        == INVALID_ARGUMENT
    )
    assert "no data for a tensor of 12 bytes" in shim.error()
    shim.make("aoti_torch_create_tensor_from_blob", None, 1, shim.int64s([0]), shim.int64s([1]), 0, 6, 0, 0)
    assert (
        function(8, 1, shim.int64s([3]), shim.int64s([1]), -1, 6, 0, 0, ctypes.byref(out)) == INVALID_ARGUMENT
    )
    assert function(8, 1, shim.int64s([3]), shim.int64s([1]), 0, 6, 1, 0, ctypes.byref(out)) == NOT_SUPPORTED
    assert "device type 1 is not registered" in shim.error()
    v2 = shim.function("aoti_torch_create_tensor_from_blob_v2")
    assert (
        v2(8, 1, shim.int64s([3]), shim.int64s([1]), 0, 6, 0, 0, ctypes.byref(out), 1, None, 0)
        == NOT_SUPPORTED
    )
    assert "layout 1 is not strided" in shim.error()


def test_what_is_no_handle_is_refused(shim: Any) -> None:
    memory = (ctypes.c_int64 * 32)(*range(32))
    size = ctypes.c_int64()
    for address in (ctypes.addressof(memory), ctypes.addressof(memory) + 1, ctypes.addressof(memory) + 4):
        assert shim.function("aoti_torch_get_dim")(address, ctypes.byref(size)) == INVALID_ARGUMENT
        assert "not a tensor of this host" in shim.error()


def test_an_undefined_tensor_is_no_operand(shim: Any, shim_error: type) -> None:
    undefined, defined = shim.make("aoti_torch_new_uninitialized_tensor"), shim.empty([2, 2])
    for name, arguments in (
        ("aoti_torch_copy_", (defined, undefined, 0)),
        ("aoti_torch_copy_", (undefined, defined, 0)),
        ("aoti_torch_zero_", (undefined,)),
        ("aoti_torch_cpu_mm_out", (undefined, defined, defined)),
        ("aoti_torch_cpu_mm_out", (defined, defined, undefined)),
    ):
        with pytest.raises(shim_error, match="undefined"):
            shim.call(name, *arguments)
    with pytest.raises(shim_error, match="undefined"):
        shim.make("aoti_torch_clone", undefined)


def test_an_item_needs_one_element(shim: Any, shim_error: type) -> None:
    for shape in ((0,), (2,), (1, 3)):
        with pytest.raises(shim_error, match="not a scalar"):
            shim.call("aoti_torch_item_float32", shim.empty(shape), ctypes.byref(ctypes.c_float()))


def test_errors_are_kept_per_thread(shim: Any) -> None:
    texts = []

    def fail(code: int) -> None:
        for _ in range(200):
            shim.function("aoti_torch_empty_strided")(
                1, shim.int64s([1]), shim.int64s([1]), code, 0, 0, ctypes.byref(ctypes.c_void_p())
            )
            texts.append((code, shim.error()))

    threads = [threading.Thread(target=fail, args=(code,)) for code in (70, 80, 90)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(f"code {code} " in text for code, text in texts)
    shim.library.aoti_shim_clear_error()
    assert shim.error() == ""
    assert shim.library.aoti_shim_last_error(None) == 0


def test_the_error_text_is_what_pytorchs_getter_returns(shim: Any) -> None:
    shim.function("aoti_torch_delete_tensor_object")(None)
    function = shim.library.torch_exception_get_what
    function.restype = ctypes.c_char_p
    assert function().decode() == shim.error() != ""


def test_dimensions_out_of_range(shim: Any) -> None:
    out, tensor = ctypes.c_int64(), shim.tensor(np.zeros((2, 3)))
    for axis in (2, -3, 2**40):
        assert (
            shim.function("aoti_torch_get_size")(tensor.handle, axis, ctypes.byref(out)) == INVALID_ARGUMENT
        )
        assert (
            shim.function("aoti_torch_get_stride")(tensor.handle, axis, ctypes.byref(out)) == INVALID_ARGUMENT
        )
