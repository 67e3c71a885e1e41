"""The built library under test, driven through ctypes, and PyTorch's own shims for comparison."""

from __future__ import annotations

import ctypes
import fcntl
import glob
import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from aoti_abi.codes import DTYPES_BY_NAME
from aoti_abi.prototypes import shim_prototype

ROOT = Path(__file__).resolve().parents[2]
SOURCES = ROOT / "native"
NUMPY = {**{name: np.dtype(d.numpy) for name, d in DTYPES_BY_NAME.items() if d.numpy}}
NUMPY["bfloat16"] = np.dtype(ml_dtypes.bfloat16)
NAMES = {dtype: name for name, dtype in NUMPY.items()}


class Stats(ctypes.Structure):
    _fields_ = (("tensors", ctypes.c_int64), ("storages", ctypes.c_int64), ("owned_bytes", ctypes.c_int64))


class ShimError(Exception):
    """A shim returned a code other than 0."""


class Tensor:
    """A handle, deleted with this object, and the memory it borrows."""

    def __init__(self, host: Host, handle: int, memory: Any = None) -> None:
        self.host, self.handle, self.memory = host, handle, memory

    def __del__(self) -> None:
        self.host.function("aoti_torch_delete_tensor_object")(self.handle)

    def _number(self, name: str, kind: type = ctypes.c_int64) -> int:
        out = kind()
        self.host.check(self.host.function(name)(self.handle, ctypes.byref(out)), name)
        return out.value

    def _numbers(self, name: str) -> tuple[int, ...]:
        out = ctypes.POINTER(ctypes.c_int64)()
        self.host.check(self.host.function(name)(self.handle, ctypes.byref(out)), name)
        return tuple(out[: self._number("aoti_torch_get_dim")])

    @property
    def sizes(self) -> tuple[int, ...]:
        return self._numbers("aoti_torch_get_sizes")

    @property
    def strides(self) -> tuple[int, ...]:
        return self._numbers("aoti_torch_get_strides")

    @property
    def offset(self) -> int:
        return self._number("aoti_torch_get_storage_offset")

    @property
    def nbytes(self) -> int:
        return self._number("aoti_torch_get_storage_size")

    @property
    def dtype(self) -> np.dtype:
        code = self._number("aoti_torch_get_dtype", ctypes.c_int32)
        return next(NUMPY[name] for name, d in DTYPES_BY_NAME.items() if d.code == code)

    @property
    def pointer(self) -> int:
        out = ctypes.c_void_p()
        name = "aoti_torch_get_data_ptr"
        self.host.check(self.host.function(name)(self.handle, ctypes.byref(out)), name)
        return out.value or 0

    def view(self) -> np.ndarray:
        """Return the elements where they lie."""
        dtype, sizes, strides = self.dtype, self.sizes, self.strides
        if 0 in sizes:
            return np.zeros(sizes, dtype)
        extent = (
            1 + sum((size - 1) * stride for size, stride in zip(sizes, strides, strict=True))
        ) * dtype.itemsize
        memory = (ctypes.c_char * extent).from_address(self.pointer)
        flat = np.frombuffer(memory, dtype)
        return np.lib.stride_tricks.as_strided(flat, sizes, [stride * dtype.itemsize for stride in strides])

    def numpy(self) -> np.ndarray:
        return self.view().copy()


class Host:
    """A provider of ``aoti_torch_*``, called with the prototypes of the project's own catalogue."""

    def __init__(self, path: str) -> None:
        self.path, self.library = path, ctypes.CDLL(path)
        self._functions: dict[str, Any] = {}

    def function(self, name: str) -> Any:
        if name not in self._functions:
            function = getattr(self.library, name)
            if not name.startswith("aoti_shim_"):
                prototype = shim_prototype(name)
                function.restype, function.argtypes = prototype.restype, list(prototype.argtypes)
            self._functions[name] = function
        return self._functions[name]

    def error(self) -> str:
        if not hasattr(self.library, "aoti_shim_last_error"):
            return ""
        text = ctypes.c_char_p()
        self.library.aoti_shim_last_error(ctypes.byref(text))
        return (text.value or b"").decode()

    def reason(self, name: str) -> str:
        """Return the last error: it names the shim that was called, however deep it arose."""
        text = self.error()
        assert not text or text.startswith(f"{name}: "), (name, text)
        return text

    def check(self, code: int, name: str) -> None:
        if code:
            raise ShimError(f"{name} returned {code}: {self.reason(name)}")

    def call(self, name: str, *arguments: Any) -> None:
        self.check(self.function(name)(*(a.handle if isinstance(a, Tensor) else a for a in arguments)), name)

    def make(self, name: str, *arguments: Any, results: int = 1) -> Any:
        """Call a function whose last parameters return new handles."""
        outs = [ctypes.c_void_p() for _ in range(results)]
        self.call(name, *arguments, *(ctypes.byref(out) for out in outs))
        made = [Tensor(self, out.value or 0) for out in outs]
        return made[0] if results == 1 else made

    @staticmethod
    def int64s(values: Any) -> Any:
        values = list(values)
        return (ctypes.c_int64 * max(len(values), 1))(*values)

    def tensor(self, array: np.ndarray) -> Tensor:
        """Return a tensor on the array's own memory; strides must be multiples of the itemsize."""
        strides = [stride // array.itemsize for stride in array.strides]
        made = self.make(
            "aoti_torch_create_tensor_from_blob",
            array.ctypes.data,
            array.ndim,
            self.int64s(array.shape),
            self.int64s(strides),
            0,
            DTYPES_BY_NAME[NAMES[array.dtype]].code,
            0,
            0,
        )
        made.memory = array
        return made

    def empty(self, sizes: Any, strides: Any = None, dtype: str = "float32", device: int = 0) -> Tensor:
        sizes = tuple(sizes)
        if strides is None:
            strides, step = [], 1
            for size in reversed(sizes):
                strides.insert(0, step)
                step *= max(size, 1)
        code = DTYPES_BY_NAME[dtype].code
        return self.make(
            "aoti_torch_empty_strided", len(sizes), self.int64s(sizes), self.int64s(strides), code, device, -1
        )

    def handle(self, tensor: Tensor | None) -> Any:
        """Return an optional tensor argument: a pointer to the handle, or NULL."""
        return None if tensor is None else ctypes.byref(ctypes.c_void_p(tensor.handle))

    def stats(self) -> tuple[int, int, int]:
        stats = Stats()
        self.library.aoti_shim_get_stats(ctypes.byref(stats))
        return stats.tensors, stats.storages, stats.owned_bytes


def tool(name: str) -> str | None:
    """Return a program of this environment, or of the system."""
    beside = os.path.join(os.path.dirname(sys.executable), name)
    return beside if os.path.exists(beside) else shutil.which(name)


def build(folder: Path, *options: str, target: str = "aoti_shim") -> Path:
    """Configure and build the C sources in a folder of their own; return it."""
    folder.mkdir(parents=True, exist_ok=True)
    cmake, ninja = tool("cmake"), tool("ninja")
    if cmake is None:
        pytest.fail("no cmake: pip install cmake, which the test extra names")
    generator = ["-G", "Ninja", f"-DCMAKE_MAKE_PROGRAM={ninja}"] if ninja else []
    # Workers share the folder; whoever comes second finds it built.
    with open(f"{folder}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for command in (
            [cmake, "-S", str(SOURCES), "-B", str(folder), *generator, *options],
            [cmake, "--build", str(folder), "--target", target],
        ):
            done = subprocess.run(command, capture_output=True, text=True)
            assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}\n{done.stderr}"
    return folder


@pytest.fixture(scope="session")
def build_shim() -> Any:
    """Return the function that builds the C sources with given options, in a cached folder."""

    def build_(name: str, *options: str, target: str = "aoti_shim") -> Path:
        key = hashlib.sha256(repr((str(SOURCES), os.uname().machine, options)).encode()).hexdigest()[:8]
        return build(ROOT / "build" / f"shim-{name}-{key}", *options, target=target)

    return build_


@pytest.fixture(scope="session")
def shim_path(build_shim: Any) -> str:
    """Return the library under test: built from the sources here, warnings being errors.

    ``AOTI_SHIM_LIBRARY`` names another one: an installed one, or one built with sanitizers.
    """
    named = os.environ.get("AOTI_SHIM_LIBRARY")
    if named:
        return named
    return str(build_shim("test", "-DAOTI_SHIM_WERROR=ON") / "libaoti_shim.so")


@pytest.fixture(scope="session")
def shim(shim_path: str) -> Host:
    return Host(shim_path)


@pytest.fixture(scope="session")
def torch_host() -> Host:
    """Return PyTorch's shims, opened by path: ``torch`` itself is not imported."""
    spec = importlib.util.find_spec("torch")
    if spec is None or not spec.submodule_search_locations:
        pytest.fail("no PyTorch, which the test extra names")
    found = glob.glob(os.path.join(spec.submodule_search_locations[0], "lib", "libtorch_cpu.so"))
    if not found:
        pytest.fail("this PyTorch has no libtorch_cpu.so")
    return Host(found[0])


@pytest.fixture(scope="session")
def shim_error() -> type[ShimError]:
    return ShimError
