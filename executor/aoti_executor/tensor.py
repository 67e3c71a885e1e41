"""Tensors that a plugin returned: a host's handle, and every way out of it."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any

from aoti_abi.codes import device_name, dtype_name, parse_device
from aoti_abi.errors import InvalidArgument, NotSupported
from aoti_abi.lifetimes import Unique
from aoti_executor.dlpack import dlpack_device, export_dlpack
from aoti_executor.views import TYPESTR_OF, View, contiguous, packed

if TYPE_CHECKING:
    from aoti_executor.host_tensors import HostTensors


class Tensor(Unique):
    """One tensor of a host, owned.

    It lives as long as Python refers to it, longer than the model that made it if need be: its memory belongs
    to the host, or to the input that it aliases, which it keeps alive. Hand it on with ``torch.from_dlpack``,
    ``numpy.asarray`` or `numpy`, none of which copies.
    """

    __slots__ = ("__weakref__", "_handle", "_host", "_keep", "_owner", "_view")

    def __init__(self, host: HostTensors, handle: int, keep: object = None, slot: Any = None) -> None:
        self._host = host
        self._handle = handle
        self._keep = keep
        self._owner = host.own(ctypes.c_void_p(handle) if slot is None else slot)
        self._view: View | None = None

    @property
    def view(self) -> View:
        """The tensor's memory, as the host describes it."""
        if self._view is None:
            self._view = self._host.describe(self._handle)
        return self._view

    @property
    def shape(self) -> tuple[int, ...]:
        """Elements along each dimension."""
        return self.view.shape

    @property
    def strides(self) -> tuple[int, ...]:
        """Strides in elements."""
        return self.view.strides

    @property
    def dtype(self) -> str:
        """PyTorch's name of the element type, as "float32"."""
        return dtype_name(self.view.dtype)

    @property
    def device(self) -> str:
        """The device, as "cpu" or "cuda:0"."""
        view = self.view
        return device_name(view.device_type, view.device_index if view.device_type else -1)

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return len(self.view.shape)

    @property
    def size(self) -> int:
        """The number of elements."""
        count = 1
        for extent in self.view.shape:
            count *= extent
        return count

    @property
    def nbytes(self) -> int:
        """Bytes of all elements."""
        return self.size * self.view.itemsize

    @property
    def data_ptr(self) -> int:
        """Address of the first element."""
        return self.view.data

    @property
    def aliases_input(self) -> bool:
        """Whether its memory is that of an input of the run that made it."""
        return self._keep is not None

    def to(self, device: str) -> Tensor:
        """Return the tensor on a device: itself if it is there, else a copy; one in host memory is complete.

        Args:
            device: as "cpu" or "cuda:0".

        Raises:
            InvalidArgument: it names no device.
            ExecutionFailed: the host does not reach it, or has no memory left there.
        """
        view = self.view
        kind, index = parse_device(device)
        if (kind, index if kind else 0) == (view.device_type, view.device_index if kind else 0):
            return self
        return Tensor(self._host, self._host.copy_to(view, kind, index))

    def _on_host(self) -> View:
        view = self.view
        if view.device_type:
            raise InvalidArgument(
                f"the tensor is on {self.device}, out of reach for what reads host memory",
                hint='copy it with .to("cpu"), or hand it to a library that knows the device by DLPack',
            )
        return view

    @property
    def __array_interface__(self) -> dict[str, Any]:
        """The array interface, version 3.

        Raises:
            AttributeError: numpy has no such element type, or the tensor is not in host memory.
        """
        view = self.view
        typestr = TYPESTR_OF.get(view.dtype)
        if typestr is None or view.device_type:
            raise AttributeError("__array_interface__")
        strides = None
        if view.strides != contiguous(view.shape):
            strides = tuple(stride * view.itemsize for stride in view.strides)
        return {
            "version": 3,
            "shape": view.shape,
            "typestr": typestr,
            "data": (view.data, False),
            "strides": strides,
        }

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        """Return a numpy array over the same memory; see `numpy`."""
        array = self.numpy()
        if dtype is not None and array.dtype != dtype:
            if copy is False:
                raise ValueError(f"a {self.dtype} tensor becomes {dtype} only by a copy")
            return array.astype(dtype)
        return array.copy() if copy else array

    def numpy(self) -> Any:
        """Return a numpy array over the same memory, which it keeps alive.

        Raises:
            NotSupported: numpy is not installed; or numpy has no such element type and ml_dtypes, which has,
                is not installed.
            InvalidArgument: the tensor is not in host memory.
        """
        view = self._on_host()
        try:
            import numpy as np
        except ImportError:
            raise NotSupported(
                "numpy is not installed", hint="pip install numpy, or use DLPack or tobytes()"
            ) from None
        if view.dtype in TYPESTR_OF:
            return np.asarray(self)
        scalar = extended_dtype(self.dtype)
        raw = np.asarray(_Raw(self, view))
        return raw.view(scalar)

    def tobytes(self) -> bytes:
        """Return a copy of the elements, row-major."""
        view = self._on_host()
        if view.strides != contiguous(view.shape):
            view = packed(view)
        return ctypes.string_at(view.data, view.span) if view.span else b""

    def tolist(self) -> Any:
        """Return nested lists of Python numbers; a number for a 0-d tensor."""
        return self.numpy().tolist()

    def item(self) -> Any:
        """Return the only element, as a Python number."""
        return self.numpy().item()

    def __dlpack_device__(self) -> tuple[int, int]:
        """Return DLPack's device pair."""
        view = self.view
        return dlpack_device(view.device_type, view.device_index)

    def __dlpack__(
        self,
        *,
        stream: Any = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> object:
        """Return a DLPack capsule over the same memory.

        Args:
            stream: the consumer's stream; results on the CPU are complete, so there is none to wait for.
            max_version: the newest DLPack that the consumer reads; None stands for one before 1.0.
            dl_device: only the tensor's own device is given.
            copy: True is refused: the consumer can copy.

        Raises:
            BufferError: another device, or a copy, is asked for.
        """
        del stream
        if dl_device is not None and tuple(dl_device) != self.__dlpack_device__():
            raise BufferError(f"the tensor is on {self.device}; it is not moved for DLPack")
        if copy:
            raise BufferError("the tensor is shared, not copied")
        versioned = max_version is not None and max_version[0] >= 1
        return export_dlpack(self.view, self, versioned=versioned)

    def __len__(self) -> int:
        if not self.view.shape:
            raise TypeError("a 0-d tensor has no length")
        return self.view.shape[0]

    def __float__(self) -> float:
        return float(self.item())

    def __int__(self) -> int:
        return int(self.item())

    def __bool__(self) -> bool:
        return bool(self.item())

    def __repr__(self) -> str:
        return f"Tensor({self.view})"

    def __reduce_ex__(self, protocol: object) -> str:
        """Refuse to be copied or pickled, and say what can be."""
        del protocol
        raise TypeError(
            "a Tensor can be neither copied nor pickled: copy tensor.numpy(), tensor.tobytes() or what "
            "torch.from_dlpack(tensor) gives"
        )


class _Raw:
    """The bits of a tensor as unsigned integers, for element types that numpy learns from ml_dtypes."""

    __slots__ = ("__array_interface__", "_tensor")

    def __init__(self, tensor: Tensor, view: View) -> None:
        self._tensor = tensor
        self.__array_interface__ = {
            "version": 3,
            "shape": view.shape,
            "typestr": {1: "|u1", 2: "<u2", 4: "<u4"}[view.itemsize],
            "data": (view.data, False),
            "strides": tuple(stride * view.itemsize for stride in view.strides),
        }


def extended_dtype(name: str) -> Any:
    """Return ml_dtypes' scalar type for an element type that numpy lacks.

    Raises:
        NotSupported: ml_dtypes is not installed, or lacks it too.
    """
    try:
        import ml_dtypes
    except ImportError:
        ml_dtypes = None
    scalar = getattr(ml_dtypes, name, None)
    if scalar is None:
        install = "pip install ml_dtypes, which has it, or " if ml_dtypes is None else ""
        raise NotSupported(
            f"numpy has no {name}" + (", nor has ml_dtypes" if ml_dtypes else ""),
            hint=f"{install}take the tensor with torch.from_dlpack ({name})",
        )
    return scalar
