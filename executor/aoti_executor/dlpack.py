"""DLPack, both ways: capsules of other libraries become views, our tensors become capsules.

Both capsule kinds of https://dmlc.github.io/dlpack are read, ``dltensor`` and ``dltensor_versioned`` (major
version 1), and what they claim is checked before it is used. A consumed capsule is renamed, as the protocol
asks, and its deleter runs when the last user of the memory is gone.
"""

from __future__ import annotations

import ctypes
from ctypes import c_char_p, c_int, c_void_p, py_object
from typing import Any

from aoti_abi.codes import DTYPES, dtype_name
from aoti_abi.errors import InvalidArgument, NotSupported
from aoti_executor.call_structs import MAX_DIMENSIONS, DLDevice, DLManaged, DLTensor, DLVersioned
from aoti_executor.native import load, own
from aoti_executor.views import View, contiguous

#: ``DLDeviceType`` values of the devices that plugins are made for, and ``c10::DeviceType`` for each.
_DEVICES = {1: 0, 2: 1, 3: 0, 11: 0, 13: 1, 14: 12, 8: 13}
_DL_CPU, _DL_CUDA, _DL_MANAGED, _DL_ONEAPI, _DL_METAL = 1, 2, 13, 14, 8
_DL_OF_C10 = {0: _DL_CPU, 1: _DL_CUDA, 12: _DL_ONEAPI, 13: _DL_METAL}

_CODES = {dtype.dlpack: dtype.code for dtype in DTYPES.values()}

_READ_ONLY = 1  # DLPACK_FLAG_BITMASK_READ_ONLY

_NAMES = {
    # A capsule keeps the pointer to its name, so these bytes live as long as the module.
    b"dltensor": b"used_dltensor",
    b"dltensor_versioned": b"used_dltensor_versioned",
}


def _python_function(name: str, restype: Any, *argtypes: Any) -> Any:
    return ctypes.PYFUNCTYPE(restype, *argtypes)((name, ctypes.pythonapi))


_is_valid = _python_function("PyCapsule_IsValid", c_int, py_object, c_char_p)
_get_pointer = _python_function("PyCapsule_GetPointer", c_void_p, py_object, c_char_p)
_set_name = _python_function("PyCapsule_SetName", c_int, py_object, c_char_p)
_capsule_new = _python_function("PyCapsule_New", py_object, c_void_p, c_char_p, c_void_p)
_incref = _python_function("Py_IncRef", None, py_object)
_decref = _python_function("Py_DecRef", None, py_object)


def import_dlpack(obj: Any, what: str = "the argument") -> View:
    """Return the memory of an object with ``__dlpack__``, without a copy.

    Raises:
        InvalidArgument: the object refuses (PyTorch does for tensors that require grad), or the capsule is
            malformed.
        NotSupported: its device, element type or DLPack version is unknown.
    """
    capsule = _ask(obj, what)
    name = next((name for name in reversed(_NAMES) if _is_valid(capsule, name)), None)
    if name is None:
        raise InvalidArgument(f"{what}: __dlpack__ returned {capsule!r}, which holds no DLPack tensor")
    address = _get_pointer(capsule, name)
    flags = 0
    if name == b"dltensor_versioned":
        versioned = DLVersioned.from_address(address)
        if versioned.major != 1:
            raise NotSupported(f"{what} uses DLPack {versioned.major}.{versioned.minor}; 1.x is known")
        tensor, flags, deleter = versioned.tensor, versioned.flags, versioned.deleter
    else:
        managed = DLManaged.from_address(address)
        tensor, deleter = managed.tensor, managed.deleter
    # Checked while the capsule still owns the tensor: a refused one is freed by its own destructor.
    fields = _decode(tensor, what)
    _set_name(capsule, _NAMES[name])
    owner = (own(c_void_p(address), deleter), obj) if deleter else obj
    return View(*fields, readonly=bool(flags & _READ_ONLY), owner=owner)


def _ask(obj: Any, what: str) -> Any:
    try:
        try:
            return obj.__dlpack__(max_version=(1, 1))
        except TypeError:  # a producer of before DLPack 1.0 knows no such argument
            return obj.__dlpack__()
    except Exception as error:  # noqa: BLE001 - whatever a producer raises is its refusal
        text = str(error) or type(error).__name__
        hint = "pass tensor.detach()" if "grad" in text else None
        raise InvalidArgument(
            f"{what} does not give its memory through DLPack", cause=text, hint=hint
        ) from None


def _decode(tensor: DLTensor, what: str) -> tuple[int, int, tuple[int, ...], tuple[int, ...], int, int]:
    if tensor.device.type not in _DEVICES:
        raise NotSupported(f"{what} is on DLPack device type {tensor.device.type}, which no plugin uses")
    code = _CODES.get((tensor.code, tensor.bits, tensor.lanes))
    if code is None:
        raise NotSupported(
            f"{what} has elements that no tensor has: DLPack type {tensor.code}, {tensor.bits} bits, "
            f"{tensor.lanes} lanes"
        )
    ndim = tensor.ndim
    if not 0 <= ndim <= MAX_DIMENSIONS:
        raise InvalidArgument(f"{what} claims {ndim} dimensions; tensors have at most {MAX_DIMENSIONS}")
    if ndim and not tensor.shape:
        raise InvalidArgument(f"{what} has {ndim} dimensions and no shape")
    shape = tuple(tensor.shape[:ndim]) if ndim else ()
    if any(size < 0 for size in shape):
        raise InvalidArgument(f"{what} has a negative size: {shape}")
    usual = contiguous(shape)
    strides = usual
    if ndim and tensor.strides and 0 not in shape:
        given = tuple(tensor.strides[:ndim])
        strides = tuple(u if n == 1 else s for n, s, u in zip(shape, given, usual, strict=True))
        if any(stride < 0 for stride in strides):
            raise InvalidArgument(f"{what} has negative strides: {given}", hint="pass a contiguous copy")
    data = (tensor.data or 0) + tensor.byte_offset
    if not tensor.data and 0 not in shape:
        raise InvalidArgument(f"{what} has no memory")
    index = 0 if _DEVICES[tensor.device.type] == 0 else tensor.device.id
    return data, code, shape, strides, _DEVICES[tensor.device.type], index


def dlpack_device(device_type: int, index: int) -> tuple[int, int]:
    """Return what ``__dlpack_device__`` answers for a ``c10`` device."""
    return _DL_OF_C10[device_type], max(index, 0)


def export_dlpack(tensor: View, owner: object, *, versioned: bool) -> object:
    """Return a capsule over a tensor's memory.

    Args:
        tensor: the memory.
        owner: a Python object that keeps it alive until the consumer is done.
        versioned: make a DLPack 1.x capsule.

    Raises:
        NotSupported: DLPack has no such element type, or memory ran out.
    """
    dtype = DTYPES.get(tensor.dtype)
    if dtype is None:
        raise NotSupported(f"DLPack has no element type for {dtype_name(tensor.dtype)}")
    numbers = ctypes.c_int64 * max(len(tensor.shape), 1)
    shape, strides = numbers(*tensor.shape), numbers(*tensor.strides)
    pointer = ctypes.POINTER(ctypes.c_int64)
    record = DLTensor(
        tensor.data or None,
        DLDevice(*dlpack_device(tensor.device_type, tensor.device_index)),
        len(tensor.shape),
        *dtype.dlpack,
        ctypes.cast(shape, pointer),
        ctypes.cast(strides, pointer),
        0,
    )
    library = load()
    _incref(owner)
    flags = _READ_ONLY if tensor.readonly else 0
    address = library.dlpack_new(ctypes.byref(record), id(owner), versioned, flags)
    if not address:
        _decref(owner)
        raise NotSupported("memory ran out")
    name = b"dltensor_versioned" if versioned else b"dltensor"
    # The very bytes objects of _NAMES: the capsule keeps a pointer to its name.
    kept = next(key for key in _NAMES if key == name)
    return _capsule_new(address, kept, library.dlpack_destructor)
