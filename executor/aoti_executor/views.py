"""Memory that holds a tensor, as one record, and what is done with it on the host."""

from __future__ import annotations

import ctypes
from typing import NamedTuple

from aoti_abi.codes import DTYPES, device_name, dtype_name, itemsize
from aoti_executor.native import load


class View(NamedTuple):
    """Memory that holds a tensor, and the object that owns it.

    Attributes:
        data: address of the first element; 0 where an empty tensor has none.
        dtype: ``c10::ScalarType`` value.
        shape: elements along each dimension.
        strides: elements, not bytes.
        device_type, device_index: as in `aoti_abi.codes`; the CPU's index is 0.
        readonly: whether its owner forbids writing.
        owner: keeps the memory alive.
    """

    data: int
    dtype: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    device_type: int
    device_index: int
    readonly: bool
    owner: object

    @property
    def itemsize(self) -> int:
        """Bytes of one element."""
        return itemsize(self.dtype)

    @property
    def aligned(self) -> bool:
        """Whether the elements are where compiled code expects them; a complex one is a pair of reals."""
        return self.data % alignment(self.dtype) == 0

    @property
    def span(self) -> int:
        """Bytes from the first element to the end of the last one that the strides reach."""
        return span(self.shape, self.strides, self.itemsize)

    def __str__(self) -> str:
        """Return ``float32(8, 16)``, with strides and device where they are not the usual ones."""
        text = f"{dtype_name(self.dtype)}{self.shape}"
        if self.strides != contiguous(self.shape):
            text += f" with strides {self.strides}"
        return f"{text} on {device_name(self.device_type, self.device_index)}" if self.device_type else text


#: ``__array_interface__`` type strings of this machine's byte order, without ``V`` (void) types.
TYPESTR: dict[str, int] = {
    f"{'|' if dtype.itemsize == 1 else '<'}{dtype.kind[0]}{dtype.itemsize}": dtype.code
    for dtype in DTYPES.values()
    if dtype.numpy is not None
}
TYPESTR_OF: dict[int, str] = {code: text for text, code in TYPESTR.items()}


def alignment(code: int) -> int:
    """Return the bytes that the address of an element is a multiple of."""
    dtype = DTYPES[code]
    return max(dtype.itemsize // 2 if dtype.name.startswith("complex") else dtype.itemsize, 1)


def contiguous(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the strides, in elements, of a row-major tensor; a dimension of size 0 counts as 1."""
    strides = []
    step = 1
    for size in reversed(shape):
        strides.append(step)
        step *= max(size, 1)
    return tuple(reversed(strides))


def span(shape: tuple[int, ...], strides: tuple[int, ...], itemsize: int) -> int:
    """Return the bytes from a tensor's first element to the end of its last one; 0 if it is empty."""
    last = 0
    for size, stride in zip(shape, strides, strict=True):
        if size == 0:
            return 0
        last += (size - 1) * stride
    return (last + 1) * itemsize


def allocate(code: int, shape: tuple[int, ...], strides: tuple[int, ...]) -> View:
    """Return new memory for a tensor of the host CPU, aligned to 64 bytes as Inductor's own constants are."""
    raw = ctypes.create_string_buffer(span(shape, strides, DTYPES[code].itemsize) + 64)
    return View((ctypes.addressof(raw) + 63) & ~63, code, shape, strides, 0, 0, False, raw)


def copy_elements(to: View, source: View) -> None:
    """Copy element by element between host tensors of one dtype and shape, whatever their strides."""
    numbers = ctypes.c_int64 * max(len(to.shape), 1)
    load().copy(
        to.data,
        numbers(*to.strides),
        source.data,
        numbers(*source.strides),
        numbers(*to.shape),
        len(to.shape),
        to.itemsize,
    )


def packed(source: View) -> View:
    """Return a row-major copy."""
    result = allocate(source.dtype, source.shape, contiguous(source.shape))
    copy_elements(result, source)
    return result
