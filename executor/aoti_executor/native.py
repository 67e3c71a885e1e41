"""The call helper, ``libaoti_call.so``: its functions, opened once per process.

Its structs are in `aoti_executor.call_structs`.
"""

from __future__ import annotations

import ctypes
import os
import sys
from ctypes import c_char_p, c_int, c_int64, c_uint64, c_void_p, py_object
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

from aoti_abi.errors import AccessFailed
from aoti_executor import call_structs
from aoti_executor.call_structs import Bound, PythonTable

if TYPE_CHECKING:
    from collections.abc import Callable

    from aoti_executor.call_structs import Call

CALL_OK = 0
CALL_CLOSED = 1
CALL_RUN_FAILED = 2
CALL_BAD_INPUT = 3
CALL_BAD_OUTPUT = 4
CALL_NO_FIT = 5
CALL_BUSY = 6

_VERSION = 1


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
    # An editable install has the sources in one folder and the built library in another.
    folders = [os.path.abspath(folder) for folder in sys.modules["aoti_executor"].__path__]
    paths = [os.path.join(folder, "lib", "libaoti_call.so") for folder in folders]
    return next(filter(os.path.isfile, paths), paths[0])


@lru_cache(maxsize=1)
def load() -> CallLibrary:
    """Open the call helper, once per process.

    Raises:
        AccessFailed: it is not there, cannot be loaded, or belongs to another version of the toolkit.
        InternalError: it lays out its structs in another way.
    """
    path = library_path()
    hint = (
        "install aoti-toolkit from a wheel, or build native/ with CMake and set AOTI_CALL_PATH to the library"
    )
    try:
        library = ctypes.CDLL(path)
    except OSError as error:
        raise AccessFailed(
            "the call helper cannot be loaded", path=path, cause=str(error), hint=hint
        ) from None
    if library.aoti_call_version() != _VERSION:
        raise AccessFailed("the call helper belongs to another version of the toolkit", path=path, hint=hint)
    call_structs.check(library, path)
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
    table = PythonTable(
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
