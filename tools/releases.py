"""What a release of PyTorch or of ExecuTorch declares, from the files that its wheel ships."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from c_declarations import exported
from packages import ScanError
from shim_tables import Scan, Shim, minor

if TYPE_CHECKING:
    from c_declarations import Declaration

_INDUCTOR = "torch/include/torch/csrc/inductor/"
_HEADERS = re.compile(
    rf"{_INDUCTOR}aoti_torch/(?:c|generated)/\w+\.h\Z|torch/include/torch/csrc/stable/c/\w+\.h\Z"
)
#: What PyTorch pastes into every plugin, and the header of it.
_INTERFACE = "torch/_inductor/codegen/aoti_runtime/interface.cpp"
_INTERFACE_HEADER = f"{_INDUCTOR}aoti_runtime/interface.h"
_VERSION = {"torch/version.py": "torch", "executorch/version.py": "executorch"}

#: The device of a header's functions by the last word of its name (``c_shim_cuda.h``); others are for all.
_DEVICE_OF_HEADER = {"cpu": "cpu", "mkldnn": "cpu", "cuda": "cuda", "xpu": "xpu", "mps": "mps"}
_DEVICE_OF_NAME = re.compile(r"aoti_torch_(cpu|cuda|xpu|mps)_")

#: The import library of ExecuTorch's shims for Windows, which names every one that a plugin may call.
_IMPORT_LIBRARY = "executorch/data/lib/aoti_cuda_shims.lib"
_BACKEND = "executorch/backends/cuda/cuda_backend.py"
#: In a source checkout of ExecuTorch, named executorch: the headers of what its shim library is built from.
_SLIM_HEADERS = re.compile(
    r"executorch/backends/(?:aoti/common_shims_slim|cuda/runtime/shims/"
    r"(?:memory|cuda_guard|rand|randint|sort|int4mm|int\d_plain_mm))\.h\Z"
)
_SHIM_NAME = re.compile(r"(?<![A-Za-z0-9])(?:__imp_)?(aoti_torch_\w+)", re.ASCII)
_FALLBACK = re.compile(r'"at::_ops::(\w+)::call"')


class Release(NamedTuple):
    """One scanned release.

    Attributes:
        package: ``"torch"`` or ``"executorch"``.
        scan: its version and its shims.
        declared: PyTorch only: the container functions of interface.h, by name.
        emitted: PyTorch only: the container functions that interface.cpp defines.
        complete: False if the wheel names only some shims: those of operators, by ExecuTorch's exporter.
    """

    package: str
    scan: Scan
    declared: dict[str, str]
    emitted: frozenset[str]
    complete: bool


def wanted(path: str) -> bool:
    """Whether a member of a wheel is read."""
    return (
        path in _VERSION
        or path in (_INTERFACE, _INTERFACE_HEADER, _IMPORT_LIBRARY, _BACKEND)
        or _HEADERS.match(path) is not None
        or _SLIM_HEADERS.match(path) is not None
    )


def device_of(path: str, declaration: Declaration) -> str:
    """Return the device whose build has a function: by its header, its name, or the ``#ifdef`` around it."""
    word = re.split(r"[/_]", path.removesuffix(".h"))[-1]
    match = _DEVICE_OF_NAME.match(declaration.name)
    return _DEVICE_OF_HEADER.get(word) or declaration.guard or (match[1] if match else "common")


def _version(files: dict[str, str]) -> tuple[str, str]:
    for path, package in _VERSION.items():
        match = re.search(r"^__version__\s*=\s*['\"](\d+\.\d+\.\d+)", files.get(path, ""), re.MULTILINE)
        if match:
            return package, match[1]
    raise ScanError(
        "no torch/version.py or executorch/version.py that names a release: "
        "give a wheel of one of them, or the folder that holds its package"
    )


def _torch(files: dict[str, str], release: str) -> Release:
    shims: dict[str, Shim] = {}
    for path in sorted(path for path in files if _HEADERS.match(path)):
        for declaration in exported(files[path]):
            shim = Shim(device_of(path, declaration), declaration.text)
            if shims.setdefault(declaration.name, shim) != shim:
                raise ScanError(f"torch {release} declares {declaration.name} twice, once in {path}: {shim}")
    if not shims or _INTERFACE_HEADER not in files:
        raise ScanError(f"torch {release} as given holds no headers of AOTInductor: give a whole wheel")
    if number_of(release) >= (2, 3) and not any(shim.device == "cuda" for shim in shims.values()):
        raise ScanError(f"torch {release} as given lacks c_shim_cuda.h: give a wheel of a CUDA build")
    declared = {item.name: item.text for item in exported(files[_INTERFACE_HEADER], ("AOTIRuntimeError",))}
    emitted = {item.name for item in exported(files.get(_INTERFACE, ""), ("AOTIRuntimeError",))}
    return Release("torch", Scan(release, shims), declared, frozenset(emitted), complete=True)


def number_of(release: str) -> tuple[int, ...]:
    """Return a release's minor version as numbers."""
    return tuple(map(int, minor(release).split(".")))


def _executorch(files: dict[str, str], release: str) -> Release:
    if _BACKEND not in files and not any(map(_SLIM_HEADERS.match, files)):
        raise ScanError(f"executorch {release} has no CUDA backend, hence no shims")
    backend = files.get(_BACKEND, "")
    names = {f"aoti_torch_cuda_{operator}" for operator in _FALLBACK.findall(backend)}
    names.update(_SHIM_NAME.findall(backend), _SHIM_NAME.findall(files.get(_IMPORT_LIBRARY, "")))
    headers = [path for path in files if _SLIM_HEADERS.match(path)]
    names.update(item.name for path in headers for item in exported(files[path]))
    shims = {name: Shim("", "") for name in names}
    complete = bool(headers) or _IMPORT_LIBRARY in files
    return Release("executorch", Scan(release, shims), {}, frozenset(), complete)


def scan(files: dict[str, str]) -> Release:
    """Return what a release declares, from the texts of its wheel that `wanted` asks for.

    Raises:
        ScanError: they are of neither package, or lack the headers.
    """
    package, release = _version(files)
    return _torch(files, release) if package == "torch" else _executorch(files, release)
