"""The call helper, ``libaoti_call.so``: its functions, opened once per process.

Its structs are in `aoti_executor.call_structs`.
"""

from __future__ import annotations

import ctypes
import os
import sys
from ctypes import c_char_p, c_int, c_int32, c_int64, c_size_t, c_uint64, c_void_p, py_object
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

from aoti_abi.errors import AccessFailed, InvalidState
from aoti_abi.lifetimes import Unique, refuse_subinterpreter
from aoti_executor import call_structs
from aoti_executor.call_structs import Bound, PythonTable

if TYPE_CHECKING:
    from collections.abc import Callable

    from aoti_executor.call_structs import Call

refuse_subinterpreter("aoti_executor")

#: What is said to a thread that comes back into a container while it is inside.
INSIDE = (
    "this thread is inside the model already: it was called from a signal handler or callback, which would "
    "wait for what it interrupted"
)

CALL_OK = 0
CALL_CLOSED = 1
CALL_RUN_FAILED = 2
CALL_BAD_INPUT = 3
CALL_BAD_OUTPUT = 4
CALL_NO_FIT = 5
CALL_BUSY = 6
CALL_INSIDE = 7

#: `Output.alias` of a result that lies in the plugin's own memory.
IN_PLUGIN = -2

_VERSION = 2
_NOT_CALLED = -(1 << 31)


class CallLibrary(NamedTuple):
    """The helper's functions, ready to call."""

    method: ctypes._NamedFuncPointer
    describe: ctypes._NamedFuncPointer
    copy: ctypes._NamedFuncPointer
    gate_new: ctypes._NamedFuncPointer
    gate_free: ctypes._NamedFuncPointer
    gate_inside: ctypes._NamedFuncPointer
    update: ctypes._NamedFuncPointer
    bind: ctypes._NamedFuncPointer
    fold: ctypes._NamedFuncPointer
    clone: ctypes._NamedFuncPointer
    close: ctypes._NamedFuncPointer
    dlpack_new: ctypes._NamedFuncPointer
    dlpack_destructor: int
    own: Any


_PROTOTYPES: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "method": (c_void_p, (c_int,)),
    "describe": (c_int, (c_void_p, c_void_p, c_void_p)),
    "copy": (None, (c_void_p, c_void_p, c_void_p, c_void_p, c_void_p, c_int64, c_int64)),
    "gate_new": (c_void_p, ()),
    "gate_free": (None, (c_void_p,)),
    "gate_inside": (c_int, (c_void_p,)),
    "update": (c_int, (c_void_p, c_void_p, c_void_p, c_void_p, c_size_t, c_int, c_void_p, c_void_p)),
    "bind": (c_int, (c_void_p, c_void_p, c_void_p, c_void_p, c_void_p)),
    "fold": (c_int, (c_void_p, c_void_p, c_void_p, c_int, c_void_p)),
    "clone": (c_int, (c_void_p, c_void_p, c_void_p, c_void_p, c_size_t, c_void_p)),
    "close": (c_int, (c_void_p, c_void_p, c_void_p, c_void_p)),
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
    own = ctypes.PYFUNCTYPE(py_object, c_void_p, c_void_p)(("aoti_call_own", library))
    return CallLibrary(**functions, dlpack_destructor=destructor, own=own)


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
        address("PyCapsule_GetContext"),
        address("PyCapsule_New"),
        address("PyCapsule_SetContext"),
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


def own(slot: Any, function: int) -> object:
    """Return an object that gives something back when nothing refers to it any more.

    It has no ``__del__``: those of a reference cycle run in any order, while others of the cycle may still
    use what they hold. This object's end comes when its memory is freed, after all of them.

    Args:
        slot: a ctypes object that starts with the pointer; it is emptied, so that whoever cleans up after an
            interrupted call knows what is still his.
        function: address of a C function that takes the pointer.
    """
    return load().own(ctypes.byref(slot), function)


class Gate(Unique):
    """The lock between runs (shared) and changes of the active constants (exclusive).

    It is held only inside the helper's functions, which wait without the GIL.
    """

    __slots__ = ("_code", "_library", "_owner", "address")

    def __init__(self) -> None:
        self._library = library = load()
        slot = c_void_p(library.gate_new())
        self.address = slot.value or 0
        if not self.address:
            raise AccessFailed("the system gave no memory for a lock")
        self._owner = own(slot, address_of(library.gate_free))
        self._code = c_int32(_NOT_CALLED)

    def inside(self) -> int:
        """Return how many threads hold it, or wait for it."""
        return int(self._library.gate_inside(self.address))

    def forget(self) -> None:
        """Forget the last call."""
        self._code = c_int32(_NOT_CALLED)

    @property
    def done(self) -> bool:
        """Whether something was called since `forget`, and succeeded; a handler's exception may follow."""
        return self._code.value == 0

    def _alone(self, function: Any, *arguments: Any) -> int:
        self._code = code = c_int32(_NOT_CALLED)
        if function(self.address, *arguments, ctypes.byref(code)) == CALL_INSIDE:
            raise InvalidState(INSIDE)
        return code.value

    def update(
        self,
        function: int,
        container: int,
        pairs: Any,
        count: int,
        *,
        inactive: bool,
        swap: int | None = None,
    ) -> int:
        """Call a container function that takes pairs, then ``swap``; return the code of the first to fail.

        Runs in progress are waited for, unless only the inactive set changes.

        Raises:
            InvalidState: this thread is inside a run.
        """
        return self._alone(self._library.update, function, container, pairs, count, inactive, swap)

    def bind(self, function: int, container: int, blob: int) -> int:
        """Call ``UpdateConstantsFromBlob`` while nothing runs; return its code. Raises: see `update`."""
        return self._alone(self._library.bind, function, container, blob)

    def fold(self, function: int, container: int, *, inactive: bool) -> int:
        """Call ``RunConstantFolding`` while nothing runs; return its code. Raises: see `update`."""
        return self._alone(self._library.fold, function, container, inactive)

    def clone(self, function: int, tensors: Any, copies: Any, count: int) -> int:
        """Copy tensors while nothing runs; return the host's code. Raises: see `update`."""
        return self._alone(self._library.clone, function, tensors, copies, count)

    def close(self, function: int, container: int, code: c_int32) -> None:
        """Wait for the runs in progress, delete the container and refuse all later runs; once.

        Args:
            function: the container's ``Delete``.
            container: its handle.
            code: takes the plugin's answer; it is left alone if the container is not deleted.

        Raises:
            InvalidState: this thread is inside a run.
        """
        if self._library.close(self.address, function, container, ctypes.byref(code)) == CALL_INSIDE:
            raise InvalidState(INSIDE)


def address_of(function: Any) -> int:
    """Return where a ctypes function is."""
    return ctypes.cast(function, c_void_p).value or 0
