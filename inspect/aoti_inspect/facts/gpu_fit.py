"""Which GPUs a plugin's code runs on, kernel by kernel, and which drivers take its PTX.

Sources: CUDA C++ Programming Guide, "Binary Compatibility", "PTX Compatibility", "Feature Set Compiler
Targets"; the PTX manual, ".target".
"""

from __future__ import annotations

from aoti_abi.records import TYPE_CHECKING, NamedTuple
from aoti_abi.versions import parse_version
from aoti_inspect.facts.releases import PTX_CUDA

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Literal

    from aoti_inspect.facts.records import GpuImage

#: Architectures that CUDA 13 gave another number: one GPU, two names.
_RENAMED = {101: 110}


class KernelFit(NamedTuple):
    """How one kernel runs on one GPU.

    Attributes:
        kernel: its name.
        how: "machine code", "ptx" (compiled by the driver), "none", or "unknown" if an architecture that
            can't be told leaves it open.
        images: the code that there is of it.
        ptx: the PTX that the driver may take, empty unless ``how`` is "ptx".
    """

    kernel: str
    how: Literal["machine code", "ptx", "none", "unknown"]
    images: tuple[GpuImage, ...]
    ptx: tuple[GpuImage, ...] = ()


def current_name(architecture: int) -> int:
    """Return the number that CUDA 13 knows an architecture by: 110 for 101."""
    return _RENAMED.get(architecture, architecture)


def cubin_runs_on(architecture: int, sm: int) -> bool:
    """Whether machine code for ``architecture`` runs on a GPU of compute capability ``sm``.

    Machine code runs on GPUs of the same major version and the same or a later minor version. 86 is major 8,
    minor 6; 120 is major 12, minor 0. 101 and 110 are one.
    """
    architecture, sm = current_name(architecture), current_name(sm)
    return architecture // 10 == sm // 10 and architecture <= sm


def runs_on(image: GpuImage, sm: int) -> bool:
    """Whether a GPU takes a piece of code: machine code as it is, PTX after the driver compiled it.

    PTX runs on every later GPU, that of ``sm_100f`` within its family, which is its major version, and that
    of ``sm_90a`` on that GPU alone, as does machine code for it.
    """
    if image.reach == "none":
        return current_name(image.architecture) == current_name(sm)
    if image.kind == "cubin" or image.reach == "family":
        return cubin_runs_on(image.architecture, sm)
    return current_name(image.architecture) <= current_name(sm)


def by_kernel(images: Iterable[GpuImage]) -> dict[str, tuple[GpuImage, ...]]:
    """Return the code of each kernel, in the order of the file."""
    found: dict[str, tuple[GpuImage, ...]] = {}
    for image in images:
        found[image.kernel] = (*found.get(image.kernel, ()), image)
    return found


def fits(images: Iterable[GpuImage], sm: int) -> list[KernelFit]:
    """Return how each kernel runs on a GPU of compute capability ``sm``."""
    return [_fit(kernel, code, sm) for kernel, code in by_kernel(images).items()]


def _fit(kernel: str, images: tuple[GpuImage, ...], sm: int) -> KernelFit:
    taken = [image for image in images if image.architecture and runs_on(image, sm)]
    if any(image.kind == "cubin" for image in taken):
        return KernelFit(kernel, "machine code", images)
    if taken:
        return KernelFit(kernel, "ptx", images, tuple(taken))
    unknown = any(not image.architecture for image in images)
    return KernelFit(kernel, "unknown" if unknown else "none", images)


def ptx_of_driver(driver: str) -> tuple[str, bool]:
    """Return the newest PTX version that a driver is known to compile, and whether it may know newer ones.

    Args:
        driver: its version, as ``"535.104.05"``.
    """
    branch = parse_version(driver)[0]
    known = [version for version, (_cuda, first) in PTX_CUDA.items() if first <= branch]
    newest = max(first for _cuda, first in PTX_CUDA.values())
    return max(known, key=parse_version, default="0"), branch > newest


def driver_takes(version: str, driver: str) -> bool | None:
    """Whether a driver compiles PTX of a version; None if it is newer than the table."""
    newest, may_know_more = ptx_of_driver(driver)
    if parse_version(version) <= parse_version(newest):
        return True
    return None if may_know_more else False
