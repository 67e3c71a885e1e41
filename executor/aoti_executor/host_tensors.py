"""A host's tensors, through its C API: how they are made, described, copied and deleted."""

from __future__ import annotations

import ctypes
from ctypes import byref, c_void_p
from typing import Any, Protocol

from aoti_abi.codes import device_name
from aoti_abi.errors import ExecutionFailed, InternalError
from aoti_abi.lifetimes import Unique
from aoti_executor.call_structs import Description, HostTable
from aoti_executor.native import address_of, load, own
from aoti_executor.views import View

_P = "aoti_torch_"
_TABLE = {
    "create_from_blob": "create_tensor_from_blob_v2",
    "new_handle": "new_tensor_handle",
    "delete_tensor": "delete_tensor_object",
    "get_data_ptr": "get_data_ptr",
    "get_dim": "get_dim",
    "get_sizes": "get_sizes",
    "get_strides": "get_strides",
    "get_dtype": "get_dtype",
    "get_device_type": "get_device_type",
    "get_device_index": "get_device_index",
}


class HostFunctions(Protocol):
    """What the executor needs of a host: its functions by name, and its words for the last error."""

    @property
    def name(self) -> str:
        """Which host it is, as "builtin" or "torch"."""

    @property
    def starts_teams(self) -> bool:
        """Whether its own operators may run in OpenMP teams."""

    def function(self, name: str) -> Any:
        """Return a shim as a ctypes function with its prototype."""

    def last_error(self) -> str | None:
        """Return the host's text for the last error on this thread, or None if it keeps none."""


class HostTensors(Unique):
    """Makes and reads tensors of one host. It has no state of its own beyond the functions."""

    __slots__ = ("_clone", "_create", "_delete", "_describe", "_host", "_keep", "table")

    def __init__(self, host: HostFunctions) -> None:
        self._host = host
        self._keep = {field: host.function(_P + name) for field, name in _TABLE.items()}
        self._create = self._keep["create_from_blob"]
        self._delete = self._keep["delete_tensor"]
        self._clone = host.function(_P + "clone")
        self._describe = load().describe
        self.table = HostTable(*(address_of(self._keep[field]) for field in _TABLE))

    def function(self, name: str) -> Any:
        """Return a shim of the host as a ctypes function with its prototype."""
        return self._host.function(name)

    def last_error(self) -> str | None:
        """Return the host's own words for the last failure on this thread."""
        return self._host.last_error()

    def describe(self, handle: int) -> View:
        """Return what a tensor is and where its memory is; ``owner`` is None.

        Raises:
            ExecutionFailed: the host can't tell.
        """
        record = Description()
        code = self._describe(byref(self.table), handle, byref(record))
        if code:
            raise ExecutionFailed("the host cannot describe a tensor", cause=self.last_error())
        ndim = record.ndim
        return View(
            record.data or 0,
            record.dtype,
            tuple(record.sizes[:ndim]),
            tuple(record.strides[:ndim]),
            record.device_type,
            max(record.device_index, 0),
            readonly=False,
            owner=None,
        )

    def wrap(self, view: View) -> int:
        """Return a new handle over somebody's memory, which must outlive it.

        Raises:
            ExecutionFailed: the host refuses.
        """
        numbers = ctypes.c_int64 * max(len(view.shape), 1)
        handle = c_void_p()
        code = self._create(
            view.data,
            len(view.shape),
            numbers(*view.shape),
            numbers(*view.strides),
            0,
            view.dtype,
            view.device_type,
            view.device_index,
            byref(handle),
            0,
            None,
            0,
        )
        if code or not handle.value:
            raise ExecutionFailed(f"the host cannot make a tensor {view}", cause=self.last_error())
        return handle.value

    def clone(self, handle: int) -> int:
        """Return a new handle to a copy, in memory of the host's own.

        Raises:
            ExecutionFailed: the host refuses.
        """
        copy = c_void_p()
        code = self._clone(handle, byref(copy))
        if code or not copy.value:
            raise ExecutionFailed("the host cannot copy a tensor", cause=self.last_error())
        return copy.value

    def own(self, slot: Any) -> object:
        """Return an object that deletes a handle when nothing refers to it any more; see `native.own`."""
        return own(slot, self.table.delete_tensor)

    @property
    def clone_address(self) -> int:
        """Address of the function that copies a tensor."""
        return address_of(self._clone)

    def copy_to(self, source: View, device_type: int, device_index: int = 0) -> int:
        """Return a new handle to a copy of some memory on a device, with the same shape and strides.

        A plugin for a GPU takes tensors on the GPU. Memory there belongs to whoever provides the host API, so
        it is made and filled by its functions: one way for every host, and no CUDA in this package (behaviour
        E3).

        A copy to or from host memory is complete when this returns (behaviour W8); one within a device is
        ordered on the device's current stream.

        Args:
            source: the memory to copy, on any device that the host reaches.
            device_type: ``c10::DeviceType`` value of the destination.
            device_index: its index.

        Raises:
            ExecutionFailed: the host has no such device, or no memory left there.
        """
        handle = self._empty(source, device_type, device_index)
        try:
            wrapped = self.wrap(source)
            try:
                code = self.function("aoti_torch_copy_")(handle, wrapped, 0)
            finally:
                self.delete(wrapped)
            self._check_copy(code, device_name(device_type, device_index))
        except BaseException:
            self.delete(handle)
            raise
        return handle

    def _empty(self, like: View, device_type: int, device_index: int) -> int:
        numbers = ctypes.c_int64 * max(len(like.shape), 1)
        handle = c_void_p()
        code = self.function("aoti_torch_empty_strided")(
            len(like.shape),
            numbers(*like.shape),
            numbers(*like.strides),
            like.dtype,
            device_type,
            device_index,
            byref(handle),
        )
        if code or not handle.value:
            where = device_name(device_type, device_index)
            raise ExecutionFailed(f"the host cannot make a tensor on {where}", cause=self.last_error())
        return handle.value

    def _check_copy(self, code: int, where: str) -> None:
        if code:
            raise ExecutionFailed(f"the host cannot copy to {where}", cause=self.last_error())

    def delete(self, handle: int) -> None:
        """Give a handle back.

        Raises:
            InternalError: the host does not know it.
        """
        code: int = self._delete(handle)
        if code:
            raise InternalError("the host refuses to delete a tensor", cause=self.last_error())
