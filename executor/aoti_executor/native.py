"""The call helper, ``libaoti_call.so``: its structs and functions.

The layouts repeat those of ``shim/call.c``; `load` compares the version that the library reports.
"""

from __future__ import annotations

import ctypes
import os
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
    c_uint64,
    c_void_p,
    py_object,
)
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

from aoti_abi.errors import AccessFailed

if TYPE_CHECKING:
    from collections.abc import Callable

CALL_OK = 0
CALL_CLOSED = 1
CALL_RUN_FAILED = 2
CALL_BAD_INPUT = 3
CALL_BAD_OUTPUT = 4
CALL_NO_FIT = 5
CALL_BUSY = 6

#: Tensors of more dimensions are refused.
MAX_DIMENSIONS = 64

_VERSION = 1


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
    """One output slot after a run."""

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


class _PythonTable(Structure):
    _fields_ = tuple(
        (name, c_void_p)
        for name in (
            "ensure_gil",
            "release_gil",
            "decref",
            "is_finalizing",
            "capsule_is_valid",
            "capsule_get_pointer",
            "save_thread",
            "restore_thread",
            "long_from_long",
        )
    )


class CallLibrary(NamedTuple):
    """The helper's functions, ready to call."""

    method: ctypes._NamedFuncPointer
    describe: ctypes._NamedFuncPointer
    copy: ctypes._NamedFuncPointer
    gate_new: ctypes._NamedFuncPointer
    gate_lock: ctypes._NamedFuncPointer
    gate_unlock: ctypes._NamedFuncPointer
    gate_close: ctypes._NamedFuncPointer
    gate_free: ctypes._NamedFuncPointer
    dlpack_new: ctypes._NamedFuncPointer
    dlpack_destructor: int


_PROTOTYPES: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "method": (c_void_p, (c_int,)),
    "describe": (c_int, (c_void_p, c_void_p, c_void_p)),
    "copy": (None, (c_void_p, c_void_p, c_void_p, c_void_p, c_void_p, c_int64, c_int64)),
    "gate_new": (c_void_p, ()),
    "gate_lock": (None, (c_void_p,)),
    "gate_unlock": (None, (c_void_p,)),
    "gate_close": (None, (c_void_p,)),
    "gate_free": (None, (c_void_p,)),
    "dlpack_new": (c_void_p, (c_void_p, c_void_p, c_int, c_uint64)),
}


def library_path() -> str:
    """Return the helper's file: ``AOTI_CALL_PATH`` if set, else the package's own."""
    override = os.environ.get("AOTI_CALL_PATH")
    if override:
        return os.path.abspath(override)
    import aoti_executor

    # An editable install has the sources in one folder and the built library in another.
    folders = [os.path.abspath(folder) for folder in aoti_executor.__path__]
    paths = [os.path.join(folder, "lib", "libaoti_call.so") for folder in folders]
    return next(filter(os.path.isfile, paths), paths[0])


@lru_cache(maxsize=1)
def load() -> CallLibrary:
    """Open the call helper, once per process.

    Raises:
        AccessFailed: it is not there, cannot be loaded, or belongs to another version of the toolkit.
    """
    path = library_path()
    hint = (
        "install aoti-toolkit from a wheel, or build shim/ with CMake and set AOTI_CALL_PATH to the library"
    )
    try:
        library = ctypes.CDLL(path)
    except OSError as error:
        raise AccessFailed(
            "the call helper cannot be loaded", path=path, cause=str(error), hint=hint
        ) from None
    if library.aoti_call_version() != _VERSION:
        raise AccessFailed("the call helper belongs to another version of the toolkit", path=path, hint=hint)
    functions = {}
    for name, (restype, argtypes) in _PROTOTYPES.items():
        function = library[f"aoti_call_{name}"]
        function.restype, function.argtypes = restype, argtypes
        functions[name] = function
    _hand_over_python(library)
    destructor = ctypes.cast(library.aoti_call_dlpack_capsule_destructor, c_void_p).value or 0
    return CallLibrary(**functions, dlpack_destructor=destructor)


def _hand_over_python(library: ctypes.CDLL) -> None:
    """Give the helper the few C functions of Python that a DLPack deleter needs; it links to none."""

    def address(name: str) -> int | None:
        return ctypes.cast(getattr(ctypes.pythonapi, name), c_void_p).value

    finalizing = "Py_IsFinalizing" if hasattr(ctypes.pythonapi, "Py_IsFinalizing") else "_Py_IsFinalizing"
    table = _PythonTable(
        address("PyGILState_Ensure"),
        address("PyGILState_Release"),
        address("Py_DecRef"),
        address(finalizing),
        address("PyCapsule_IsValid"),
        address("PyCapsule_GetPointer"),
        address("PyEval_SaveThread"),
        address("PyEval_RestoreThread"),
        address("PyLong_FromLong"),
    )
    library.aoti_call_set_python(ctypes.byref(table))


def runner(prepared: Call | Bound) -> Callable[[], int]:
    """Return a function without arguments that runs a prepared call and returns a ``CALL_`` code.

    It is a built-in function over the helper's C function, which costs a fifth of a call through ctypes. The
    struct must outlive it.
    """
    make_capsule, make_function = _constructors()
    capsule = make_capsule(ctypes.addressof(prepared), None, None)
    function: Callable[[], int] = make_function(load().method(isinstance(prepared, Bound)), capsule, None)
    return function


@lru_cache(maxsize=1)
def _constructors() -> tuple[Any, Any]:
    python, function = ctypes.pythonapi, ctypes.PYFUNCTYPE
    make_capsule = function(py_object, c_void_p, c_char_p, c_void_p)(("PyCapsule_New", python))
    make_function = function(py_object, c_void_p, py_object, c_void_p)(("PyCFunction_NewEx", python))
    return make_capsule, make_function


class Gate:
    """The lock between runs (shared) and changes of the active constants (exclusive).

    Waiting happens without the GIL. Once closed, runs are refused for good.
    """

    __slots__ = ("_library", "address")

    def __init__(self) -> None:
        self._library = load()
        self.address: int | None = self._library.gate_new()
        if not self.address:
            raise AccessFailed("the system gave no memory for a lock")

    def __enter__(self) -> Gate:
        self._library.gate_lock(self.address)
        return self

    def __exit__(self, *_: object) -> None:
        self._library.gate_unlock(self.address)

    def close(self) -> None:
        """Wait for the runs in progress and refuse all later ones."""
        self._library.gate_close(self.address)

    def __del__(self) -> None:
        address = getattr(self, "address", None)
        if address:
            self._library.gate_free(address)
