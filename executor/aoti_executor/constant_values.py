"""New values for constants: made to fit, and handed to the container.

A copying update copies as many bytes as the storage of a given tensor has, and believes its strides and its
offset: a view of a larger tensor overwrites the constant's neighbours. So handles are made over exactly a
value's own bytes, laid out as the plugin's code reads them.
"""

from __future__ import annotations

import ctypes
from ctypes import c_char_p, c_void_p
from typing import TYPE_CHECKING

from aoti_abi.codes import parse_device
from aoti_abi.errors import InvalidArgument, NotSupported
from aoti_abi.structs import AOTInductorConstantMapEntry
from aoti_executor.constants import Constant, check_value
from aoti_executor.native import address_of
from aoti_executor.tensor import Tensor
from aoti_executor.views import View, allocate, copy_elements

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aoti_executor.handle import ContainerHandle

#: A constant and its new value.
Pair = tuple[Constant, View]


def fit(handle: ContainerHandle, constant: Constant, value: View, *, copy: bool) -> View:
    """Return what to hand over for a value: itself, or a copy laid out as the plugin reads it.

    Raises:
        InvalidArgument: dtype, shape or size differ; or, if nothing may be copied, strides or device.
        ExecutionFailed: the host has no memory on the device, or does not reach it.
    """
    strides = check_value(constant, value)
    if not copy:
        _refuse_in_place(constant, value)
    kind, _ = parse_device(constant.device or handle.device)
    same_device = value.device_type == kind
    if same_device and _same_layout(value.shape, value.strides, strides):
        return value
    if copy and (same_device or not value.device_type):
        return own_copy(handle, constant, value, strides)
    label = constant.fqn or constant.name
    if not same_device:
        raise InvalidArgument(f"constant {label!r} is on another device than the value {value}")
    raise _other_strides(label, value, strides, "lay it out so, or let it be copied")


def _refuse_in_place(constant: Constant, value: View) -> None:
    """Refuse memory that the plugin may not use where it is: nothing tells whether a model writes to it."""
    label = constant.fqn or constant.name
    if value.readonly:
        raise InvalidArgument(
            f"the value of {label!r} is read-only, and the model may write to its constants",
            hint="let it be copied (copy=True), or give writable memory, as numpy.memmap(mode='c') is",
        )
    if not value.aligned:
        raise InvalidArgument(
            f"the value of {label!r} is at the address {value.data:#x}, where {value.itemsize}-byte elements "
            "are not aligned",
            hint="let it be copied (copy=True), or give an aligned copy",
        )


def own_copy(handle: ContainerHandle, constant: Constant, value: View, strides: tuple[int, ...]) -> View:
    """Return a copy that nobody else has, with the given strides, on the constant's device.

    Raises:
        InvalidArgument: the value is on a device, and has other strides.
        ExecutionFailed: the host has no memory on the device, or does not reach it.
    """
    if not value.device_type:
        fresh = allocate(value.dtype, value.shape, strides)
        copy_elements(fresh, value)
        value = fresh
    kind, index = parse_device(constant.device or handle.device)
    if not kind and not value.device_type:
        return value
    if not _same_layout(value.shape, value.strides, strides):
        raise _other_strides(constant.fqn or constant.name, value, strides, "lay it out so")
    tensor = Tensor(handle.host, handle.host.copy_to(value, kind, index))
    return tensor.view._replace(owner=tensor)


def _same_layout(shape: tuple[int, ...], strides: tuple[int, ...], others: tuple[int, ...]) -> bool:
    """Whether strides agree where they mean something: a dimension of one element is never stepped along."""
    if 0 in shape:
        return True
    return all(a == b for n, a, b in zip(shape, strides, others, strict=True) if n != 1)


def _other_strides(label: str, value: View, strides: tuple[int, ...], hint: str) -> InvalidArgument:
    return InvalidArgument(
        f"constant {label!r} is read with strides {strides}, the value has {value.strides}", hint=hint
    )


def hand_over(
    handle: ContainerHandle,
    values: Sequence[Pair],
    keep: list[Pair],
    *,
    inactive: bool,
    copy: bool,
    swap: bool = False,
) -> None:
    """Give values to the container.

    Args:
        handle: the container.
        values: as `fit` returned them.
        keep: is extended, before the call, by those whose memory the container uses from then on.
        inactive: for the inactive set; the active one is changed between runs.
        copy: whether the container copies them. Plugins of before 2.13 can't, and are given copies to keep.
        swap: whether to swap the two sets, before anything else runs.

    Raises:
        NotSupported: the plugin has no function for it that is safe to call.
        ExecutionFailed: the plugin returned an error.
    """
    function = handle.function("UpdateConstantBufferPairs") if copy else None
    if function is None and values:
        function = handle.function("UpdateUserManagedConstantBufferPairs")
        if function is None:
            handle.plugin.warn_fallback("user-managed-constants")
            raise NotSupported(
                "the plugin cannot take new constants without a shared C++ library",
                path=handle.path,
                hint="PyTorch 2.10 and later compile plugins that can",
            )
        if copy:
            handle.plugin.warn_fallback("update-constants")
            values = [(c, own_copy(handle, c, value, value.strides)) for c, value in values]
        keep += values
    handles: list[int] = []
    try:
        for _, value in values:
            handles.append(handle.host.wrap(value))
        pairs = (AOTInductorConstantMapEntry * len(values))()
        names = [c_char_p(constant.name.encode()) for constant, _ in values]
        for pair, name, tensor in zip(pairs, names, handles, strict=True):
            pair.name = ctypes.cast(name, c_void_p)
            pair.handle = tensor
        code = handle.gate.update(
            address_of(function) if function else 0,
            handle.address,
            pairs,
            len(values),
            inactive=inactive,
            swap=address_of(handle.require("SwapConstantBuffer", "swap-constants")) if swap else None,
        )
    finally:
        # The container made handles of its own; ours are not taken.
        for tensor in handles:
            handle.host.delete(tensor)
    handle.check(code, "SwapConstantBuffer" if swap and not values else "UpdateConstants")
