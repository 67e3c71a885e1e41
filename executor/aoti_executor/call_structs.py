"""The structs of the call helper, ``libaoti_call.so``, as ``native/call/call.h`` declares them.

The library says where their members lie; `check` compares before any is used.
"""

from __future__ import annotations

import ctypes
from ctypes import (
    POINTER,
    Structure,
    c_char_p,
    c_int,
    c_int32,
    c_int64,
    c_size_t,
    c_uint8,
    c_uint16,
    c_uint32,
    c_uint64,
    c_void_p,
)

from aoti_abi.errors import InternalError

#: Tensors of more dimensions are refused.
MAX_DIMENSIONS = 64


class HostTable(Structure):
    """Addresses of the host functions that the helper calls."""

    _fields_ = tuple(
        (name, c_void_p)
        for name in (
            "create_from_blob",
            "new_handle",
            "delete_tensor",
            "get_data_ptr",
            "get_dim",
            "get_sizes",
            "get_strides",
            "get_dtype",
            "get_device_type",
            "get_device_index",
        )
    )


class Target(Structure):
    """What every call of one container shares."""

    _fields_ = (
        ("host", POINTER(HostTable)),
        ("gate", c_void_p),
        ("run", c_void_p),
        ("container", c_void_p),
        ("omp_get_max_threads", c_void_p),
        ("omp_set_num_threads", c_void_p),
        ("max_threads", c_int64),
        ("image", c_void_p),
        ("image_size", c_size_t),
        ("num_inputs", c_size_t),
        ("num_outputs", c_size_t),
    )


class Layout(Structure):
    """A tensor's type and shape; strides count elements, ``nbytes`` spans what they reach."""

    _fields_ = (
        ("ndim", c_int64),
        ("sizes", POINTER(c_int64)),
        ("strides", POINTER(c_int64)),
        ("nbytes", c_int64),
        ("dtype", c_int32),
        ("itemsize", c_int32),
        ("device_type", c_int32),
        ("device_index", c_int32),
    )


class Output(Structure):
    """One output slot after a run; ``handle`` comes first, as `aoti_executor.native.own` needs it."""

    _fields_ = (("handle", c_void_p), ("data", c_void_p), ("alias", c_int32), ("same", c_int32))


class Call(Structure):
    """One prepared call."""

    _fields_ = (
        ("target", POINTER(Target)),
        ("inputs", POINTER(Layout)),
        ("data", POINTER(c_void_p)),
        ("handles", POINTER(c_void_p)),
        ("outputs", POINTER(Output)),
        ("stream", c_void_p),
        ("proxy", c_void_p),
        ("code", c_int32),
        ("reserved", c_int32),
        ("index", c_int64),
    )


class Bound(Structure):
    """A call whose inputs and outputs are fixed."""

    _fields_ = (
        ("call", Call),
        ("templates", POINTER(c_void_p)),
        ("targets", POINTER(Layout)),
        ("destinations", POINTER(c_void_p)),
        ("busy", c_int),
    )


class Description(Structure):
    """Everything about one tensor."""

    _fields_ = (
        ("data", c_void_p),
        ("ndim", c_int64),
        ("dtype", c_int32),
        ("device_type", c_int32),
        ("device_index", c_int32),
        ("reserved", c_int32),
        ("sizes", c_int64 * MAX_DIMENSIONS),
        ("strides", c_int64 * MAX_DIMENSIONS),
    )


class DLDevice(Structure):
    """``DLDevice`` of dlpack.h."""

    _fields_ = (("type", c_int32), ("id", c_int32))


class DLTensor(Structure):
    """``DLTensor`` of dlpack.h."""

    _fields_ = (
        ("data", c_void_p),
        ("device", DLDevice),
        ("ndim", c_int32),
        ("code", c_uint8),
        ("bits", c_uint8),
        ("lanes", c_uint16),
        ("shape", POINTER(c_int64)),
        ("strides", POINTER(c_int64)),
        ("byte_offset", c_uint64),
    )


class DLManaged(Structure):
    """``DLManagedTensor`` of dlpack.h."""

    _fields_ = (("tensor", DLTensor), ("context", c_void_p), ("deleter", c_void_p))


class DLVersioned(Structure):
    """``DLManagedTensorVersioned`` of dlpack.h."""

    _fields_ = (
        ("major", c_uint32),
        ("minor", c_uint32),
        ("context", c_void_p),
        ("deleter", c_void_p),
        ("flags", c_uint64),
        ("tensor", DLTensor),
    )


class PythonTable(Structure):
    """Addresses of the C functions of Python that the helper calls."""

    _fields_ = tuple(
        (name, c_void_p)
        for name in (
            "ensure_gil",
            "release_gil",
            "decref",
            "is_finalizing",
            "capsule_is_valid",
            "capsule_get_pointer",
            "capsule_get_context",
            "capsule_new",
            "capsule_set_context",
            "save_thread",
            "restore_thread",
            "long_from_long",
        )
    )


#: By their names in C.
STRUCTS: dict[str, type[Structure]] = {
    "host": HostTable,
    "target": Target,
    "layout": Layout,
    "output": Output,
    "call": Call,
    "bound": Bound,
    "description": Description,
    "python": PythonTable,
    "dl_device": DLDevice,
    "dl_tensor": DLTensor,
    "dl_managed": DLManaged,
    "dl_versioned": DLVersioned,
}


class _Place(Structure):
    _fields_ = (("structure", c_char_p), ("member", c_char_p), ("offset", c_size_t), ("size", c_size_t))


def _described(library: ctypes.CDLL) -> dict[str, tuple[int, int]]:
    """Return (offset, size) of each struct and of each ``struct.member``, as the library has them."""
    function, count = library.aoti_call_layout, c_size_t()
    function.restype = POINTER(_Place)
    places = function(ctypes.byref(count))[: count.value]
    return {
        (place.structure + b"." + place.member if place.member else place.structure).decode("ascii"): (
            place.offset,
            place.size,
        )
        for place in places
    }


def _declared() -> dict[str, tuple[int, int]]:
    """Return the same of the classes above."""
    places = {}
    for name, struct in STRUCTS.items():
        places[name] = (0, ctypes.sizeof(struct))
        for field in struct._fields_:
            place = getattr(struct, field[0])
            places[f"{name}.{field[0]}"] = (place.offset, place.size)
    return places


def check(library: ctypes.CDLL, path: str) -> None:
    """Compare the structs with the library's own.

    Raises:
        InternalError: one of them differs: a call would read another member's bytes.
    """
    theirs, ours = _described(library), _declared()
    for name in sorted(theirs.keys() | ours.keys()):
        there, here = theirs.get(name), ours.get(name)
        if there != here:
            raise InternalError(
                f"the call helper lays out its structs in another way: {name} is {_text(there)} in it and "
                f"{_text(here)} in aoti_executor",
                path=path,
                hint="the library and the Python code are of different builds: install aoti-toolkit again",
            )


def _text(place: tuple[int, int] | None) -> str:
    return "absent" if place is None else f"{place[1]} bytes at {place[0]}"
