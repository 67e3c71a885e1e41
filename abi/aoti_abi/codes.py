"""The integers that cross the C ABI: dtypes, devices, layouts, memory formats, constant types.

The values are those of ``c10/core/ScalarType.h``, ``c10/core/DeviceType.h``, ``c10/core/Layout.h``,
``c10/core/MemoryFormat.h`` and ``torch/csrc/inductor/aoti_runtime/constant_type.h``; none changed since
PyTorch 2.2. A plugin asks its host for them (``aoti_torch_dtype_float32()``), so a host must answer
with exactly these: the built-in one's C tables are generated from here (``native/generate.py``).
"""

from __future__ import annotations

from aoti_abi.errors import InvalidArgument, NotSupported
from aoti_abi.records import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from typing import Literal


class Dtype(NamedTuple):
    """One element type.

    Attributes:
        code: the ``c10::ScalarType`` value.
        name: PyTorch's name, as in ``torch.float32``.
        kind: which numbers its elements are.
        itemsize: bytes of one element.
        numpy: numpy's own name for it; None where numpy has no such type (``ml_dtypes`` may).
        dlpack: code, bits and lanes of ``DLDataType``, as PyTorch exports it.
        storage: the class of ``torch`` that stands for it in what ``torch.save`` wrote; None for types that
            came after ``UntypedStorage``.
    """

    code: int
    name: str
    kind: Literal["bool", "int", "uint", "float", "complex"]
    itemsize: int
    numpy: str | None
    dlpack: tuple[int, int, int]
    storage: str | None = None


_TABLE: tuple[Dtype, ...] = (
    Dtype(0, "uint8", "uint", 1, "uint8", (1, 8, 1), "ByteStorage"),
    Dtype(1, "int8", "int", 1, "int8", (0, 8, 1), "CharStorage"),
    Dtype(2, "int16", "int", 2, "int16", (0, 16, 1), "ShortStorage"),
    Dtype(3, "int32", "int", 4, "int32", (0, 32, 1), "IntStorage"),
    Dtype(4, "int64", "int", 8, "int64", (0, 64, 1), "LongStorage"),
    Dtype(5, "float16", "float", 2, "float16", (2, 16, 1), "HalfStorage"),
    Dtype(6, "float32", "float", 4, "float32", (2, 32, 1), "FloatStorage"),
    Dtype(7, "float64", "float", 8, "float64", (2, 64, 1), "DoubleStorage"),
    Dtype(8, "complex32", "complex", 4, None, (5, 32, 1)),
    Dtype(9, "complex64", "complex", 8, "complex64", (5, 64, 1), "ComplexFloatStorage"),
    Dtype(10, "complex128", "complex", 16, "complex128", (5, 128, 1), "ComplexDoubleStorage"),
    Dtype(11, "bool", "bool", 1, "bool", (6, 8, 1), "BoolStorage"),
    Dtype(15, "bfloat16", "float", 2, None, (4, 16, 1), "BFloat16Storage"),
    Dtype(23, "float8_e5m2", "float", 1, None, (12, 8, 1)),
    Dtype(24, "float8_e4m3fn", "float", 1, None, (10, 8, 1)),
    Dtype(25, "float8_e5m2fnuz", "float", 1, None, (13, 8, 1)),
    Dtype(26, "float8_e4m3fnuz", "float", 1, None, (11, 8, 1)),
    Dtype(27, "uint16", "uint", 2, "uint16", (1, 16, 1)),
    Dtype(28, "uint32", "uint", 4, "uint32", (1, 32, 1)),
    Dtype(29, "uint64", "uint", 8, "uint64", (1, 64, 1)),
    Dtype(44, "float8_e8m0fnu", "float", 1, None, (14, 8, 1)),
    # One element is a byte with two numbers in it.
    Dtype(45, "float4_e2m1fn_x2", "float", 1, None, (17, 4, 2)),
)

#: Element types by ``c10::ScalarType`` value.
DTYPES: dict[int, Dtype] = {dtype.code: dtype for dtype in _TABLE}
#: Element types by PyTorch's name.
DTYPES_BY_NAME: dict[str, Dtype] = {dtype.name: dtype for dtype in _TABLE}

#: ``c10::DeviceType`` values by the names that AOTInductor plugins are compiled for.
DEVICE_TYPES: dict[str, int] = {"cpu": 0, "cuda": 1, "xpu": 12, "mps": 13}
#: Those that a plugin may ask for, though none is compiled for them.
OTHER_DEVICE_TYPES: dict[str, int] = {"meta": 14, "privateuse1": 20}
DEVICE_NAMES: dict[int, str] = {code: name for name, code in (DEVICE_TYPES | OTHER_DEVICE_TYPES).items()}

#: ``c10::Layout`` values.
LAYOUTS: dict[str, int] = {
    "strided": 0,
    "sparse_coo": 1,
    "sparse_csr": 2,
    "_mkldnn": 3,
    "sparse_csc": 4,
    "sparse_bsr": 5,
    "sparse_bsc": 6,
    "jagged": 7,
}
LAYOUT_STRIDED = LAYOUTS["strided"]
LAYOUT_MKLDNN = LAYOUTS["_mkldnn"]

#: ``c10::MemoryFormat`` values.
MEMORY_FORMATS: dict[str, int] = {
    "contiguous_format": 0,
    "preserve_format": 1,
    "channels_last": 2,
    "channels_last_3d": 3,
}

#: ``ConstantType`` of ``constant_type.h`` (PyTorch 2.6 and later). None of them tells whether a constant is
#: mutated by a run.
CONSTANT_TYPES: dict[int, str] = {
    0: "Unknown",
    1: "Parameter",
    2: "Buffer",
    3: "TensorConstant",
    4: "FoldedConstant",
}


def dtype_name(code: int) -> str:
    """Return PyTorch's name for a ``c10::ScalarType`` value, or ``dtype(N)`` for one that is not known."""
    dtype = DTYPES.get(code)
    return dtype.name if dtype else f"dtype({code})"


def itemsize(code: int) -> int:
    """Return the bytes of one element of a ``c10::ScalarType`` value.

    Raises:
        NotSupported: the value is not known.
    """
    dtype = DTYPES.get(code)
    if dtype is None:
        raise NotSupported(f"the element type {dtype_name(code)} is not known: a newer PyTorch's, or damaged")
    return dtype.itemsize


def device_name(device_type: int, index: int = -1) -> str:
    """Return ``"cuda:1"`` for a ``c10::DeviceType`` value and an index; -1 (unspecified) adds no index."""
    name = DEVICE_NAMES.get(device_type, f"device({device_type})")
    return name if index < 0 else f"{name}:{index}"


def parse_device(text: str) -> tuple[int, int]:
    """Return ``(c10::DeviceType value, index)`` of "cpu", "cuda" or "cuda:1"; index 0 without one.

    Raises:
        InvalidArgument: it names no device.
    """
    kind, colon, index = text.partition(":")
    if kind not in DEVICE_TYPES or bool(colon) != index.isdecimal():
        raise InvalidArgument(f"{text!r} is no device; write it as 'cpu' or 'cuda:0'")
    return DEVICE_TYPES[kind], int(index or 0)
