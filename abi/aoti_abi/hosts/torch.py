"""PyTorch as a host: LibTorch's C functions, by PyTorch's version.

The shims themselves are in `shim_catalogue`. LibTorch also exports the functions of SLEEF, the vector math
library that is linked into libtorch_cpu: vectorised kernels call ``Sleef_expf16_u10`` and the like.
"""

from __future__ import annotations

from aoti_abi import shim_catalogue
from aoti_abi.host_descriptor import HostDescriptor
from aoti_abi.records import TYPE_CHECKING
from aoti_abi.versions import KNOWN_TORCH, SUPPORTED_TORCH

if TYPE_CHECKING:
    from aoti_abi.host_descriptor import Provides

#: Names with this prefix are SLEEF's; libtorch_cpu of PyTorch 2.13 for Linux x86-64 exports 1,328 of them.
SLEEF_PREFIX = "Sleef_"

#: The libraries of a PyTorch package that define the host API, in the order in which they must be opened, by
#: the device whose shims they add. They sit in the package's ``lib`` folder.
LIBRARIES: dict[str, tuple[str, ...]] = {
    "cpu": ("libtorch_cpu.so",),
    "cuda": ("libtorch_cuda.so",),
    "xpu": ("libtorch_xpu.so",),
}

#: What PyTorch's packages have in their ``lib`` folders, and so the DT_NEEDED names by which a plugin asks
#: for LibTorch: libraries of every build, of those for NVIDIA's GPUs, and of those for others.
_EVERY_BUILD = (
    "libtorch.so",
    "libtorch_cpu.so",
    "libc10.so",
    "libtorch_global_deps.so",
    "libtorch_python.so",
)
_CUDA_BUILD = (
    "libtorch_cuda.so",
    "libc10_cuda.so",
    "libtorch_cuda_linalg.so",
    "libtorch_nvshmem.so",
    "libcaffe2_nvrtc.so",
)
_OTHER_BUILDS = ("libtorch_xpu.so", "libc10_xpu.so", "libtorch_hip.so", "libc10_hip.so")
NEEDED_NAMES: frozenset[str] = frozenset((*_EVERY_BUILD, *_CUDA_BUILD, *_OTHER_BUILDS))


def is_libtorch(entry: str) -> bool:
    """Whether a DT_NEEDED entry or a path is one of LibTorch's libraries, whatever folder it names."""
    return entry.rpartition("/")[2] in NEEDED_NAMES


def is_cuda_libtorch(entry: str) -> bool:
    """Whether a DT_NEEDED entry is one of LibTorch's libraries that only its builds for CUDA have."""
    return entry.rpartition("/")[2] in _CUDA_BUILD


def is_sleef(name: str) -> bool:
    """Whether a name is one of SLEEF's, which LibTorch exports and other hosts may not."""
    return name.startswith(SLEEF_PREFIX)


def provides(name: str, version: str, devices: tuple[str, ...] = ("common", "cpu")) -> bool:
    """Whether LibTorch of this minor version exports a C function that plugins ask for.

    Args:
        name: an undefined symbol of a plugin.
        version: a minor version of PyTorch, as ``"2.13"``.
        devices: which of `shim_catalogue.DEVICES` the build covers.
    """
    if is_sleef(name):
        return True
    shim = shim_catalogue.lookup(name)
    return shim is not None and shim.device in devices and shim.available_in(version)


def _shims(_machine: str, version: str | None) -> Provides:
    newest = version or KNOWN_TORCH[-1]
    # A build for CUDA has everything that the one for the CPU has; which one it must be is a note.
    return lambda name: provides(name, newest, ("common", "cpu", "cuda"))


HOST = HostDescriptor(
    name="torch",
    title="PyTorch",
    shims=_shims,
    versions=KNOWN_TORCH,
    audited=tuple(f"torch=={version}" for version in SUPPORTED_TORCH),
    is_libtorch=True,
    cxx_runtime="libstdc++",
    cxx11_abi_since="2.7",
    cuda_build="the CUDA build of PyTorch",
    libraries=LIBRARIES,
    local_build=LIBRARIES["cpu"][0],
)
