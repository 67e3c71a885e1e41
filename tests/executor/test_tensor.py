"""`Tensor`: every way out of a result."""

from __future__ import annotations

import ctypes
import gc

import ml_dtypes
import numpy as np
import pytest

from aoti_abi.codes import DTYPES_BY_NAME
from aoti_abi.errors import InvalidArgument, NotSupported
from aoti_executor import Container, Tensor
from aoti_executor.arrays import view
from aoti_executor.dlpack import import_dlpack
from aoti_executor.views import View, allocate

#: Neither numpy nor this ml_dtypes has them.
WITHOUT_ARRAYS = [
    name for name, dtype in DTYPES_BY_NAME.items() if not dtype.numpy and not hasattr(ml_dtypes, name)
]


@pytest.fixture
def container(synthetic):
    with Container(synthetic()) as container:
        yield container


def test_numpy_shares_memory_and_keeps_the_tensor(container):
    value = np.arange(12.0).reshape(3, 4)[:, ::2]
    tensor = container.run([value])[0]
    result = tensor.numpy()
    assert result.ctypes.data == tensor.data_ptr
    assert result.strides == value.strides
    del tensor
    gc.collect()
    np.testing.assert_array_equal(result, value)


def test_facts(container):
    tensor = container.run([np.zeros((3, 4), "i2")])[0]
    assert (tensor.shape, tensor.strides, tensor.dtype, tensor.device) == ((3, 4), (4, 1), "int16", "cpu")
    assert (tensor.ndim, tensor.size, tensor.nbytes, len(tensor)) == (2, 12, 24, 3)
    assert repr(tensor) == "Tensor(int16(3, 4))"


def test_numbers(container):
    tensor = container.run([np.array(2.5)])[0]
    assert (float(tensor), int(tensor), bool(tensor), tensor.item(), tensor.tolist()) == (
        2.5,
        2,
        True,
        2.5,
        2.5,
    )
    with pytest.raises(TypeError, match="0-d"):
        len(tensor)


@pytest.mark.parametrize("name", [name for name in DTYPES_BY_NAME if name not in WITHOUT_ARRAYS])
def test_every_element_type(container, name):
    dtype = DTYPES_BY_NAME[name]
    scalar = np.dtype(dtype.numpy) if dtype.numpy else getattr(ml_dtypes, name)
    value = np.array([1, 2, 1]).astype(scalar)
    tensor = Tensor(container._handle.host, container._handle.host.wrap(view(value)), value)
    assert tensor.dtype == name
    assert tensor.numpy().dtype == scalar
    assert tensor.tobytes() == value.tobytes()
    np.testing.assert_array_equal(np.asarray(tensor), value)


@pytest.mark.parametrize("name", WITHOUT_ARRAYS)
def test_an_element_type_without_arrays(container, name):
    memory = allocate(DTYPES_BY_NAME[name].code, (2, 3), (3, 1))
    ctypes.memset(memory.data, 7, memory.span)
    tensor = Tensor(container._handle.host, container._handle.host.wrap(memory), memory)
    assert (tensor.dtype, tensor.shape, tensor.strides) == (name, (2, 3), (3, 1))
    assert tensor.nbytes == 6 * DTYPES_BY_NAME[name].itemsize
    assert tensor.tobytes() == b"\7" * tensor.nbytes
    assert import_dlpack(tensor).dtype == memory.dtype
    with pytest.raises(NotSupported, match=f"numpy has no {name}, nor has ml_dtypes") as caught:
        tensor.numpy()
    assert "pip" not in caught.value.hint


def test_a_scale_of_8_bits_can_be_read(container):
    memory = allocate(44, (5,), (1,))
    tensor = Tensor(container._handle.host, container._handle.host.wrap(memory), memory)
    assert (tensor.dtype, tensor.nbytes, tensor.view.itemsize) == ("float8_e8m0fnu", 5, 1)
    assert str(tensor.view) == "float8_e8m0fnu(5,)"


def test_an_element_type_that_is_not_known(container):
    tensor = container.run([np.arange(3.0)])[0]
    tensor._view = tensor.view._replace(dtype=12)
    assert tensor.dtype == "dtype(12)"
    for use in (lambda: tensor.nbytes, tensor.tobytes, tensor.numpy, tensor.__dlpack__):
        with pytest.raises(NotSupported, match=r"dtype\(12\)"):
            use()


def test_array_protocol(container):
    tensor = container.run([np.arange(3, dtype="f")])[0]
    assert np.asarray(tensor).ctypes.data == tensor.data_ptr
    assert np.asarray(tensor, dtype="d").dtype == np.float64
    assert tensor.__array__(copy=True).ctypes.data != tensor.data_ptr
    with pytest.raises(ValueError, match="only by a copy"):
        tensor.__array__(np.dtype("d"), copy=False)
    np.testing.assert_array_equal(
        tensor + np.ones(3, "f") if hasattr(tensor, "__add__") else np.add(tensor, 1), [1, 2, 3]
    )


def test_strided_bytes_are_row_major(container):
    value = np.arange(6, dtype="i4").reshape(2, 3).T
    assert container.run([value])[0].tobytes() == value.tobytes()


def test_empty(container):
    tensor = container.run([np.zeros((0, 3))])[0]
    assert tensor.tobytes() == b""
    assert tensor.numpy().shape == (0, 3)
    assert np.from_dlpack(tensor).shape == (0, 3)


def test_dlpack_options(container):
    tensor = container.run([np.arange(3.0)])[0]
    assert tensor.__dlpack_device__() == (1, 0)
    np.testing.assert_array_equal(np.from_dlpack(tensor), np.arange(3.0))
    with pytest.raises(BufferError, match="not moved"):
        tensor.__dlpack__(dl_device=(2, 0))
    with pytest.raises(BufferError, match="not copied"):
        tensor.__dlpack__(copy=True)


def test_tensor_is_an_argument(container):
    first = container.run([np.arange(3.0)])[0]
    second = container.run([first])[0]
    del first
    gc.collect()
    np.testing.assert_array_equal(second.numpy(), np.arange(3.0))


def test_missing_ml_dtypes_is_said(container, monkeypatch):
    import sys

    value = np.zeros(3, ml_dtypes.bfloat16)
    tensor = Tensor(container._handle.host, container._handle.host.wrap(view(value)), value)
    monkeypatch.setitem(sys.modules, "ml_dtypes", None)
    with pytest.raises(NotSupported, match="numpy has no bfloat16") as caught:
        tensor.numpy()
    assert "ml_dtypes" in caught.value.hint
    assert tensor.tobytes() == bytes(6)


def test_memory_on_a_device_is_not_touched(container):
    tensor = container.run([np.arange(3.0)])[0]
    tensor._view = View(4096, 6, (3,), (1,), 1, 1, readonly=False, owner=None)
    assert tensor.device == "cuda:1"
    assert tensor.__dlpack_device__() == (2, 1)
    assert not hasattr(tensor, "__array_interface__")
    for use in (tensor.numpy, tensor.tobytes, tensor.tolist):
        with pytest.raises(InvalidArgument, match="cuda:1"):
            use()
