"""A BLAS for the built-in host, found at run time.

The host multiplies matrices with a C loop of its own unless it is given CBLAS functions. They come from
OpenBLAS: the wheel of the ``[blas]`` extra, else the one inside numpy's wheel. Neither package is imported;
only the library is opened, the first time a plugin asks for a matrix product.
"""

from __future__ import annotations

import ctypes
import glob
import os
from typing import TYPE_CHECKING, NamedTuple

from aoti_abi.errors import AotiError
from aoti_loader import linker
from aoti_loader.process import PROCESS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from aoti_loader.hosts.host import Host

#: Shims that compute through BLAS.
PRODUCTS: frozenset[str] = frozenset(
    {
        *(f"aoti_torch_cpu_{operator}_out" for operator in ("mm", "addmm", "bmm", "baddbmm")),
        "aoti_torch__mm_plus_mm_out",
        "aoti_torch_cpu_convolution",
        "aoti_torch_cpu__linear_pointwise",
        "aoti_torch_cpu__linear_pointwise_binary",
        "aoti_torch_cpu_mkldnn__convolution_pointwise",
        "aoti_torch_cpu_mkldnn__convolution_pointwise_binary",
        "aoti_torch_cpu_mkldnn__convolution_pointwise_binary_",
        "aoti_torch_cpu__scaled_dot_product_flash_attention_for_cpu",
    }
)


class Blas(NamedTuple):
    """An opened BLAS.

    Attributes:
        path: its file.
        sgemm: address of ``cblas_sgemm``.
        dgemm: address of ``cblas_dgemm``.
        int_bits: 32 or 64, the width of its integers.
    """

    path: str
    sgemm: int
    dgemm: int
    int_bits: int


# Package whose folder it is in, pattern of the file there, prefix and suffix of its symbols, integer width.
_PLACES = (
    ("scipy_openblas32", "lib/libscipy_openblas*.so*", "scipy_", "", 32),
    ("numpy", "../numpy.libs/libscipy_openblas64_*.so*", "scipy_", "64_", 64),
    ("numpy", "../numpy.libs/libopenblas64_*.so*", "", "64_", 64),
)


def find_blas() -> Blas | None:
    """Open the first BLAS that is installed; None if there is none."""
    from importlib.machinery import PathFinder

    for package, pattern, prefix, suffix, int_bits in _PLACES:
        spec = PathFinder.find_spec(package)
        for folder in list(spec.submodule_search_locations or ()) if spec else ():
            for path in sorted(glob.glob(os.path.join(folder, pattern))):
                blas = _open(os.path.realpath(path), prefix, suffix, int_bits)
                if blas is not None:
                    return blas
    return None


def _open(path: str, prefix: str, suffix: str, int_bits: int) -> Blas | None:
    try:
        handle = linker.open_library(path, linker.RTLD_NOW | linker.RTLD_LOCAL)
    except AotiError:
        return None
    sgemm = linker.find_symbol(handle, f"{prefix}cblas_sgemm{suffix}")
    dgemm = linker.find_symbol(handle, f"{prefix}cblas_dgemm{suffix}")
    if sgemm is None or dgemm is None:
        linker.close_library(handle)
        return None
    return Blas(path, sgemm, dgemm, int_bits)


def provide_blas(host: Host, shims: Iterable[str]) -> Blas | None:
    """Give the built-in host a BLAS, once, if a plugin's shims multiply matrices and there is one.

    `Process.lock` is held.

    Returns:
        The BLAS that the host uses; None if it uses its own loop, or was not asked.
    """
    given = PROCESS.blas
    if host.path in given or PRODUCTS.isdisjoint(shims):
        return given.get(host.path)
    address = host.address("aoti_shim_set_blas")
    if address is None:
        return None
    blas = find_blas()
    if blas is not None:
        prototype = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int32)
        if prototype(address)(blas.sgemm, blas.dgemm, blas.int_bits):
            blas = None
    given[host.path] = blas
    return blas
