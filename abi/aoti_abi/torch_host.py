"""What an installed PyTorch offers to a plugin besides the shims.

The shims themselves are in `shim_catalogue`. LibTorch also exports the functions of SLEEF, the vector math
library that is linked into libtorch_cpu: vectorised kernels call ``Sleef_expf16_u10`` and the like.
"""

from __future__ import annotations

from aoti_abi import shim_catalogue

#: Names with this prefix are SLEEF's; libtorch_cpu of PyTorch 2.13 for Linux x86-64 exports 1,328 of them.
SLEEF_PREFIX = "Sleef_"

#: The libraries of a PyTorch package that define the host API, in the order in which they must be opened, by
#: the device whose shims they add. They sit in the package's ``lib`` folder.
LIBRARIES: dict[str, tuple[str, ...]] = {
    "cpu": ("libtorch_cpu.so",),
    "cuda": ("libtorch_cuda.so",),
    "xpu": ("libtorch_xpu.so",),
}

#: DT_NEEDED names by which a plugin asks for LibTorch.
NEEDED_NAMES: frozenset[str] = frozenset(
    ("libtorch.so", "libtorch_cpu.so", "libtorch_cuda.so", "libtorch_xpu.so", "libc10.so", "libc10_cuda.so")
)


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
