"""Copies between host memory and a device, through the host's own C API.

A plugin for a GPU takes tensors on the GPU. Memory there belongs to whoever provides ``aoti_torch_*``, so it
is made by ``aoti_torch_empty_strided`` and filled by ``aoti_torch_copy_``: one way for every host, and no
CUDA in this package (behaviour E3).
"""

from __future__ import annotations

import ctypes
from ctypes import byref, c_void_p
from typing import TYPE_CHECKING

from aoti_abi.codes import DEVICE_TYPES, device_name
from aoti_abi.errors import ExecutionFailed, InvalidArgument
from aoti_executor.tensor import Tensor

if TYPE_CHECKING:
    from aoti_executor.host_tensors import HostTensors
    from aoti_executor.views import View


def parse_device(text: str) -> tuple[int, int]:
    """Return ``(c10::DeviceType value, index)`` of "cpu", "cuda" or "cuda:1"; index 0 without one.

    Raises:
        InvalidArgument: it names no device.
    """
    kind, colon, index = text.partition(":")
    if kind not in DEVICE_TYPES or bool(colon) != index.isdecimal():
        raise InvalidArgument(f"{text!r} is no device; write it as 'cpu' or 'cuda:0'")
    return DEVICE_TYPES[kind], int(index or 0)


def copy_to(host: HostTensors, source: View, device_type: int, device_index: int = 0) -> Tensor:
    """Return a copy of some memory as a tensor on a device, with the same shape and strides.

    A copy to or from host memory is complete when this returns (behaviour W8); one within a device is ordered
    on the device's current stream.

    Args:
        host: the host that owns the copy.
        source: the memory to copy, on any device that the host reaches.
        device_type: ``c10::DeviceType`` value of the destination.
        device_index: its index.

    Raises:
        ExecutionFailed: the host has no such device, or no memory left there.
    """
    numbers = ctypes.c_int64 * max(len(source.shape), 1)
    handle = c_void_p()
    code = host.function("aoti_torch_empty_strided")(
        len(source.shape),
        numbers(*source.shape),
        numbers(*source.strides),
        source.dtype,
        device_type,
        device_index,
        byref(handle),
    )
    if code or not handle.value:
        where = device_name(device_type, device_index)
        raise ExecutionFailed(f"the host cannot make a tensor on {where}", cause=host.last_error())
    result = Tensor(host, handle.value)
    wrapped = host.wrap(source)
    try:
        code = host.function("aoti_torch_copy_")(handle, wrapped, 0)
    finally:
        host.delete(wrapped)
    if code:
        where = device_name(device_type, device_index)
        raise ExecutionFailed(f"the host cannot copy to {where}", cause=host.last_error())
    return result
