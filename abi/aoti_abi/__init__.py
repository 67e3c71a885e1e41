"""The contract between a host and an AOTInductor plugin, as data and pure functions.

Nothing here opens a file, loads a library or imports a third-party package. Public is what ``__all__`` lists:
`AotiError`, the base of every error that the toolkit raises on purpose, its subclasses, `FallbackWarning`,
and what decides which features a plugin has and which PyTorch compiled it. The modules:

* `container_api`: the ``AOTInductor*`` functions that a plugin exports, as a table.
* `features`: what a host can do with a plugin, as sets of those functions.
* `shim_catalogue`: the ``aoti_torch_*`` functions that a host exports, by PyTorch version.
* `codes`: the integers that stand for dtypes, devices, layouts and constant types.
* `prototypes`, `structs`, `entries`: ctypes views of the C API and the decoder of its replies.
* `errors`: the one exception tree.
"""

from __future__ import annotations

from aoti_abi.face import lazy_face
from aoti_abi.records import TYPE_CHECKING

if TYPE_CHECKING:
    from aoti_abi.container_api import CONTAINER_API, compiled_by
    from aoti_abi.errors import (
        AccessFailed,
        AotiError,
        ExecutionFailed,
        FallbackWarning,
        InternalError,
        InvalidArgument,
        InvalidProgram,
        InvalidState,
        NotFound,
        NotSupported,
    )
    from aoti_abi.features import FEATURES, Feature, FeatureState, evaluate

    __version__: str

__all__ = [
    "CONTAINER_API",
    "FEATURES",
    "AccessFailed",
    "AotiError",
    "ExecutionFailed",
    "FallbackWarning",
    "Feature",
    "FeatureState",
    "InternalError",
    "InvalidArgument",
    "InvalidProgram",
    "InvalidState",
    "NotFound",
    "NotSupported",
    "__version__",
    "compiled_by",
    "evaluate",
]

__getattr__ = lazy_face(
    __name__,
    {
        **dict.fromkeys(("CONTAINER_API", "compiled_by"), "container_api"),
        **dict.fromkeys(("FEATURES", "Feature", "FeatureState", "evaluate"), "features"),
        **dict.fromkeys(
            (
                "AccessFailed",
                "AotiError",
                "ExecutionFailed",
                "FallbackWarning",
                "InternalError",
                "InvalidArgument",
                "InvalidProgram",
                "InvalidState",
                "NotFound",
                "NotSupported",
            ),
            "errors",
        ),
    },
)
