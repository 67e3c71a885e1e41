"""The integers that cross the C ABI: dtypes, devices, layouts, constant types.

The values are those of ``c10/core/ScalarType.h``, ``c10/core/DeviceType.h``, ``c10/core/Layout.h`` and
``torch/csrc/inductor/aoti_runtime/constant_type.h``; none changed from PyTorch 2.2 to 2.14. A plugin asks
its host for them (``aoti_torch_dtype_float32()``), so a host must answer with exactly these.
"""

from __future__ import annotations

from aoti_abi.errors import InvalidArgument
from aoti_abi.records import NamedTuple


class Dtype(NamedTuple):
    """One element type.

    Attributes:
        code: the ``c10::ScalarType`` value.
        name: PyTorch's name, as in ``torch.float32``.
        itemsize: bytes of one element.
        numpy: numpy's own name for it; None where numpy has no such type (``ml_dtypes`` may).
    """

    code: int
    name: str
    itemsize: int
    numpy: str | None


_TABLE: tuple[Dtype, ...] = (
    Dtype(0, "uint8", 1, "uint8"),
    Dtype(1, "int8", 1, "int8"),
    Dtype(2, "int16", 2, "int16"),
    Dtype(3, "int32", 4, "int32"),
    Dtype(4, "int64", 8, "int64"),
    Dtype(5, "float16", 2, "float16"),
    Dtype(6, "float32", 4, "float32"),
    Dtype(7, "float64", 8, "float64"),
    Dtype(8, "complex32", 4, None),
    Dtype(9, "complex64", 8, "complex64"),
    Dtype(10, "complex128", 16, "complex128"),
    Dtype(11, "bool", 1, "bool"),
    Dtype(15, "bfloat16", 2, None),
    Dtype(23, "float8_e5m2", 1, None),
    Dtype(24, "float8_e4m3fn", 1, None),
    Dtype(25, "float8_e5m2fnuz", 1, None),
    Dtype(26, "float8_e4m3fnuz", 1, None),
    Dtype(27, "uint16", 2, "uint16"),
    Dtype(28, "uint32", 4, "uint32"),
    Dtype(29, "uint64", 8, "uint64"),
)

#: Element types by ``c10::ScalarType`` value.
DTYPES: dict[int, Dtype] = {dtype.code: dtype for dtype in _TABLE}
#: Element types by PyTorch's name.
DTYPES_BY_NAME: dict[str, Dtype] = {dtype.name: dtype for dtype in _TABLE}

#: ``c10::DeviceType`` values by the names that AOTInductor plugins are compiled for.
DEVICE_TYPES: dict[str, int] = {"cpu": 0, "cuda": 1, "xpu": 12, "mps": 13}
DEVICE_NAMES: dict[int, str] = {code: name for name, code in DEVICE_TYPES.items()}

#: ``c10::Layout`` values that a plugin may name.
LAYOUT_STRIDED = 0
LAYOUT_MKLDNN = 3

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
