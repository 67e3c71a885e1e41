"""DLPack both ways, and capsules that claim what can't be."""

from __future__ import annotations

import ctypes
import gc
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from aoti_abi.errors import InvalidArgument, NotSupported
from aoti_executor.arrays import view
from aoti_executor.call_structs import DLManaged, DLTensor, DLVersioned
from aoti_executor.dlpack import export_dlpack, import_dlpack

TYPES = ["?", "b", "h", "i", "l", "B", "H", "I", "L", "e", "f", "d", "F", "D"]
_new = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)(
    ("PyCapsule_New", ctypes.pythonapi)
)


@given(
    st.sampled_from(TYPES).flatmap(
        lambda code: hnp.arrays(
            np.dtype(code), hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=4)
        )
    ),
    st.booleans(),
)
@settings(max_examples=150, deadline=None)
def test_numpy_arrays_through_dlpack(value, transposed):
    value = value.T if transposed else value
    memory = import_dlpack(value)
    direct = view(value)
    assert memory[1:4] == direct[1:4]
    if value.size:
        assert memory.data == direct.data
    again = np.from_dlpack(_Exporter(direct, value, versioned=True))
    np.testing.assert_array_equal(again, value)
    again = np.from_dlpack(_Exporter(direct, value, versioned=False))
    np.testing.assert_array_equal(again, value)


class _Exporter:
    def __init__(self, memory, owner, *, versioned):
        self.memory, self.owner, self.versioned = memory, owner, versioned

    def __dlpack_device__(self):
        return 1, 0

    def __dlpack__(self, **_):
        return export_dlpack(self.memory, self.owner, versioned=self.versioned)


@pytest.mark.parametrize("versioned", [True, False])
def test_consumed_capsule_lets_its_owner_go_with_the_consumer(versioned):
    value = np.arange(3.0)
    count = sys.getrefcount(value)
    other = np.from_dlpack(_Exporter(view(value)._replace(owner=None), value, versioned=versioned))
    assert sys.getrefcount(value) > count
    del other
    gc.collect()
    assert sys.getrefcount(value) == count


@pytest.mark.parametrize("versioned", [True, False])
def test_capsule_that_nobody_consumes_lets_its_owner_go(versioned):
    value = np.arange(3.0)
    count = sys.getrefcount(value)
    capsules = [
        export_dlpack(view(value)._replace(owner=None), value, versioned=versioned) for _ in range(10)
    ]
    assert sys.getrefcount(value) == count + 10
    del capsules
    gc.collect()
    assert sys.getrefcount(value) == count


def test_import_calls_the_deleter_once_when_the_view_goes():
    value = np.arange(3.0)
    count = sys.getrefcount(value)
    memory = import_dlpack(value)
    copies = [memory._replace(shape=(3,)) for _ in range(3)]
    assert memory.owner is not value
    del memory, copies
    gc.collect()
    assert sys.getrefcount(value) == count


def test_read_only_arrays_are_marked_where_the_protocol_can():
    value = np.arange(3.0)
    value.flags.writeable = False
    memory = import_dlpack(_Exporter(view(value), value, versioned=True))
    assert memory.readonly


class _Handmade:
    """A producer of one capsule over a struct that a test filled in."""

    def __init__(self, struct, name):
        self.struct, self.name = struct, name

    def __dlpack__(self, **_):
        return _new(ctypes.addressof(self.struct), self.name, None)


def _managed(**fields):
    shape, strides, data = (ctypes.c_int64 * 2)(2, 3), (ctypes.c_int64 * 2)(3, 1), (ctypes.c_float * 6)()
    struct = DLManaged()
    tensor = struct.tensor
    tensor.data, tensor.ndim, tensor.code, tensor.bits, tensor.lanes = ctypes.addressof(data), 2, 2, 32, 1
    tensor.device.type = 1
    tensor.shape, tensor.strides = (
        ctypes.cast(shape, type(tensor.shape)),
        ctypes.cast(strides, type(tensor.strides)),
    )
    for name, value in fields.items():
        if name in ("shape", "strides") and value is not None:
            array = (ctypes.c_int64 * len(value))(*value)
            struct.kept = [*getattr(struct, "kept", []), array]
            setattr(tensor, name, ctypes.cast(array, type(tensor.shape)))
        elif name == "device":
            tensor.device.type = value
        else:
            setattr(tensor, name, value)
    struct.memory = (shape, strides, data)
    return struct


@pytest.mark.parametrize(
    ("fields", "error", "message"),
    [
        ({"ndim": -1}, InvalidArgument, "-1 dimensions"),
        ({"ndim": 65}, InvalidArgument, "65 dimensions"),
        ({"ndim": 1 << 30}, InvalidArgument, "dimensions"),
        ({"shape": None}, InvalidArgument, "no shape"),
        ({"shape": (-2, 3)}, InvalidArgument, "negative size"),
        ({"strides": (-3, 1)}, InvalidArgument, "negative strides"),
        ({"data": None}, InvalidArgument, "no memory"),
        ({"lanes": 4}, NotSupported, "4 lanes"),
        ({"code": 99}, NotSupported, "type 99"),
        ({"bits": 33}, NotSupported, "33 bits"),
        ({"device": 77}, NotSupported, "device type 77"),
    ],
)
def test_malformed_capsules_are_refused(fields, error, message):
    with pytest.raises(error, match=message):
        import_dlpack(_Handmade(_managed(**fields), b"dltensor"))


def test_handmade_capsule_that_is_right_is_taken():
    struct = _managed(strides=None, byte_offset=4)
    memory = import_dlpack(_Handmade(struct, b"dltensor"))
    assert memory.shape == (2, 3)
    assert memory.strides == (3, 1)
    assert memory.data == struct.tensor.data + 4


def test_other_versions_and_other_objects_are_refused():
    versioned = DLVersioned()
    versioned.major = 2
    with pytest.raises(NotSupported, match=r"DLPack 2\.0"):
        import_dlpack(_Handmade(versioned, b"dltensor_versioned"))
    with pytest.raises(InvalidArgument, match="holds no DLPack tensor"):
        import_dlpack(_Handmade(versioned, b"something"))
    with pytest.raises(InvalidArgument, match="holds no DLPack tensor"):
        import_dlpack(_Handmade(versioned, b"used_dltensor"))

    class Wrong:
        def __dlpack__(self, **_):
            return 5

    with pytest.raises(InvalidArgument, match="holds no DLPack tensor"):
        import_dlpack(Wrong())


def test_producer_that_refuses_gives_its_reason():
    class Grad:
        def __dlpack__(self, **_):
            raise BufferError("Can't export tensors that require gradient, use tensor.detach()")

    with pytest.raises(InvalidArgument, match="require gradient") as caught:
        import_dlpack(Grad())
    assert "detach" in caught.value.hint


def test_capsule_is_consumed_once():
    value = np.arange(3.0)
    capsule = value.__dlpack__()

    class Same:
        def __dlpack__(self, **_):
            return capsule

    import_dlpack(Same())
    with pytest.raises(InvalidArgument, match="holds no DLPack tensor"):
        import_dlpack(Same())


@pytest.mark.torch
def test_pytorch_tensors_in_and_out(child):
    child(
        """
        import gc, sys, torch
        from aoti_executor import Model
        from aoti_executor.arrays import view
        kinds = (torch.float32, torch.bfloat16, torch.bool, torch.complex64, torch.int8, torch.float8_e5m2)
        for dtype in kinds:
            x = torch.zeros(3, 4, 5).to(dtype)
            for y in (x, x.transpose(0, 2), x[:, 1:3], x[0, 0, 0], x[:0], x.expand(3, 4, 5)[:, ::2]):
                memory = view(y)
                assert memory.shape == tuple(y.shape)
                assert not y.numel() or memory.data == y.data_ptr()
                assert 0 in y.shape or all(
                    a == b for a, b, n in zip(memory.strides, y.stride(), y.shape) if n > 1
                )
        with Model(sys.argv[1], warn=False) as model:
            x = torch.randn(8, 16)
            result = model(x)
            y = torch.from_dlpack(result)
            assert y.data_ptr() == result.data_ptr
            expected = y.clone()
            del result
            gc.collect()
            assert torch.equal(y, expected) and torch.equal(torch.from_dlpack(model(x)), expected)
            try:
                model(x.requires_grad_())
            except Exception as error:
                assert "detach" in str(error), error
            else:
                raise AssertionError
        del model
        gc.collect()
        assert torch.equal(y, expected)
        """,
        str(Path(__file__).resolve().parents[2] / "fixtures" / "plugins" / "mlp.so"),
    )


def test_layout_of_the_structs_is_that_of_the_protocol():
    assert ctypes.sizeof(DLTensor) == 48
    assert ctypes.sizeof(DLManaged) == 64
    assert ctypes.sizeof(DLVersioned) == 80
    assert DLVersioned.tensor.offset == 32
