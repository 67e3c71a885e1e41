"""ctypes layouts of what crosses the C ABI, as in ``torch/csrc/inductor/aoti_runtime/interface.h``.

Sizes are asserted on import: a layout that drifted would make a plugin read another field's bytes.
"""

from __future__ import annotations

import ctypes
from ctypes import POINTER, Structure, c_int32, c_uint64, c_void_p, sizeof

#: Returned by every container function; 0 is success.
AOTIRuntimeError = c_int32
#: Returned by almost every shim; 0 is success.
AOTITorchError = c_int32

#: An opaque pointer, as every handle; this kind owns one reference to a tensor of the host that made it.
AtenTensorHandle = c_void_p

#: A value of any type on the stack of a dispatched call (``torch/csrc/stable/c/shim.h``).
StableIValue = c_uint64


class AOTInductorConstantMapEntry(Structure):
    """A constant's name and its tensor.

    In extraction ``name`` is an original FQN and ``handle`` is borrowed; in updates ``name`` is an internal
    name. The name is kept as an address, so that ctypes never dereferences it by itself.
    """

    _fields_ = (("name", c_void_p), ("handle", AtenTensorHandle))


def _assert_layout() -> None:
    entry = AOTInductorConstantMapEntry
    layout = (
        sizeof(c_void_p),
        sizeof(entry),
        entry.name.offset,
        entry.handle.offset,
        sizeof(AOTIRuntimeError),
    )
    if layout != (8, 16, 0, 8, 4):
        raise ImportError(f"this platform lays the AOTInductor structs out in another way: {layout}")


_assert_layout()

EntryPointer = POINTER(AOTInductorConstantMapEntry)

# What `size_t` and `bool` are is the platform's choice; the table in `prototypes` names them by these.
c_size_t = ctypes.c_size_t
c_bool = ctypes.c_bool
