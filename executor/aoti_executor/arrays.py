"""The memory of an argument: what arrays of any library say about themselves, as one record.

Accepted, in this order, without a copy: ``__array_interface__`` (numpy and its kin), DLPack
(``__dlpack__``: PyTorch, JAX, CuPy, numpy), the buffer protocol (``array``, ``memoryview``, ``bytearray``,
``ctypes`` arrays). numpy itself is not needed.
"""

from __future__ import annotations

import ctypes
from typing import Any

from aoti_abi.codes import DTYPES, DTYPES_BY_NAME
from aoti_abi.errors import InvalidArgument
from aoti_executor.dlpack import import_dlpack
from aoti_executor.views import TYPESTR, View, contiguous, span

# Buffer formats of the struct module in native mode, as `array` and `memoryview` have them.
_FORMATS: dict[str, str] = {
    "?": "bool",
    "b": "int8",
    "B": "uint8",
    "h": "int16",
    "H": "uint16",
    "e": "float16",
    "f": "float32",
    "d": "float64",
    "Zf": "complex64",
    "Zd": "complex128",
}
_INTEGERS = "iIlLqQnN"


def view(obj: Any, what: str = "the argument") -> View:
    """Return the memory of an array-like object, without a copy.

    Args:
        obj: the object.
        what: how to call it in an error, as "input 0 (x)".

    Raises:
        InvalidArgument: it offers no memory, or memory that a tensor cannot describe (another byte order,
            records, strides that are negative or no multiple of the element size), or describes it wrongly.
    """
    if isinstance(obj, View):
        return obj
    interface = getattr(obj, "__array_interface__", None)
    if isinstance(interface, dict) and not _is_numpy_scalar(obj):
        try:
            return _from_array_interface(obj, interface, what)
        except (LookupError, TypeError, ValueError) as error:
            cause = f"{type(error).__name__}: {error}"
            raise InvalidArgument(f"{what} has a malformed __array_interface__", cause=cause) from error
    if hasattr(obj, "__dlpack__"):
        return import_dlpack(obj, what)
    return _from_buffer(obj, what)


def _is_numpy_scalar(obj: Any) -> bool:
    # Their array interface points into a temporary that is gone by the time it is returned.
    return any(base.__name__ == "generic" and base.__module__ == "numpy" for base in type(obj).__mro__)


def is_tensor(obj: Any) -> bool:
    """Whether an object offers memory in a way that `view` accepts; numbers, text and bytes do not."""
    if obj is None or isinstance(obj, (bool, int, float, complex, str, bytes, list, tuple, dict)):
        return False
    if hasattr(obj, "__array_interface__") or hasattr(obj, "__dlpack__"):
        return True
    try:
        memoryview(obj).release()
    except (TypeError, BufferError, ValueError):
        return False
    return True


def _from_array_interface(obj: Any, interface: dict[str, Any], what: str) -> View:
    typestr = interface["typestr"]
    code = TYPESTR.get(typestr)
    if code is None:
        # The type strings of ml_dtypes tell only the size: the dtype's name tells them apart.
        known = DTYPES_BY_NAME.get(str(getattr(obj, "dtype", "")))
        if known is None or typestr[2:] != str(known.itemsize):
            raise InvalidArgument(
                f"{what} has the type {typestr!r}, which no tensor has",
                hint="convert it with .astype(), to native byte order" if typestr[:1] == ">" else None,
            )
        code = known.code
    shape = tuple(interface["shape"])
    if len(shape) > 64:
        raise InvalidArgument(f"{what} has {len(shape)} dimensions; tensors have at most 64")
    data = interface.get("data")
    if not isinstance(data, tuple):
        # The protocol also allows a buffer there, as Pillow's images have it.
        memory = _from_buffer(obj if data is None else data, what)
        if not span(shape, contiguous(shape), DTYPES[code].itemsize) <= memory.span:
            raise InvalidArgument(f"{what} has less memory than its shape {shape} needs")
        return View(memory.data, code, shape, contiguous(shape), 0, 0, memory.readonly, (obj, memory.owner))
    address, readonly = data
    strides = _element_strides(interface.get("strides"), shape, DTYPES[code].itemsize, what)
    return View(address, code, shape, strides, 0, 0, bool(readonly), (obj, interface))


def _element_strides(
    strides: tuple[int, ...] | None, shape: tuple[int, ...], itemsize: int, what: str
) -> tuple[int, ...]:
    """Turn byte strides into element strides; where a dimension has one element its stride means nothing."""
    usual = contiguous(shape)
    if strides is None or 0 in shape:
        return usual
    result = []
    for size, stride, default in zip(shape, strides, usual, strict=True):
        if size == 1:
            result.append(default)
            continue
        elements, rest = divmod(stride, itemsize)
        if rest or stride < 0:
            raise InvalidArgument(
                f"{what} has the strides {tuple(strides)} in bytes, which elements of {itemsize} bytes "
                "cannot have in a tensor",
                hint="pass a contiguous copy",
            )
        result.append(elements)
    return tuple(result)


def _from_buffer(obj: Any, what: str) -> View:
    try:
        buffer = memoryview(obj)
    except TypeError:
        hint = None
        if isinstance(obj, (int, float, complex, list, tuple)):
            hint = "numbers and lists have no dtype: pass a numpy array"
        raise InvalidArgument(
            f"{what} is a {type(obj).__name__}, not an array or tensor", hint=hint
        ) from None
    except (BufferError, ValueError) as error:
        raise InvalidArgument(f"{what} does not give its memory", cause=str(error)) from None
    code = _buffer_dtype(buffer, what)
    shape = buffer.shape or ()
    address = 0 if 0 in shape else _buffer_address(buffer)
    strides = _element_strides(buffer.strides, shape, buffer.itemsize, what)
    return View(address, code, shape, strides, 0, 0, buffer.readonly, buffer)


def _buffer_dtype(buffer: memoryview, what: str) -> int:
    text = buffer.format.lstrip("@=<")
    if text in _INTEGERS and text:
        sign = "int" if text.islower() else "uint"
        return DTYPES_BY_NAME[f"{sign}{8 * buffer.itemsize}"].code
    name = _FORMATS.get(text)
    if name is None:
        raise InvalidArgument(f"{what} has the buffer format {buffer.format!r}, which no tensor has")
    return DTYPES_BY_NAME[name].code


class _PyBuffer(ctypes.Structure):
    _fields_ = (
        ("buf", ctypes.c_void_p),
        ("obj", ctypes.c_void_p),
        ("len", ctypes.c_ssize_t),
        ("itemsize", ctypes.c_ssize_t),
        ("readonly", ctypes.c_int),
        ("ndim", ctypes.c_int),
        ("format", ctypes.c_char_p),
        ("shape", ctypes.c_void_p),
        ("strides", ctypes.c_void_p),
        ("suboffsets", ctypes.c_void_p),
        ("internal", ctypes.c_void_p),
    )


_STRIDED_READ = 0x18 | 0x4  # PyBUF_STRIDES | PyBUF_FORMAT


def _buffer_address(buffer: memoryview) -> int:
    """Return where a memoryview's bytes are; ctypes alone refuses read-only and strided ones."""
    record = _PyBuffer()
    get, release = ctypes.pythonapi.PyObject_GetBuffer, ctypes.pythonapi.PyBuffer_Release
    if get(ctypes.py_object(buffer), ctypes.byref(record), _STRIDED_READ) != 0:
        raise InvalidArgument("the buffer does not give its address")
    address = record.buf or 0
    # The memoryview itself holds the exporter, so the address stays valid without this second export.
    release(ctypes.byref(record))
    return address
