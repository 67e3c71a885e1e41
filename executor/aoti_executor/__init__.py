"""Run AOTInductor plugins: models, their weights, and tensors in and out, without PyTorch in the process.

    from aoti_executor import Model

    model = Model("model.so")
    y = model(x).numpy()

`Model` is a compiled model as a callable; `Container` is the plugin's own container, checked; `Tensor` is
what comes out; `Weights` is what `Model.weights` gives. Each is imported when it is first asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from aoti_executor.bound_call import BoundCall
    from aoti_executor.constants import Constant
    from aoti_executor.container import Container
    from aoti_executor.model import Model
    from aoti_executor.tensor import Tensor
    from aoti_executor.weights import Weights

__all__ = ["BoundCall", "Constant", "Container", "Model", "Tensor", "Weights"]

_HOMES = {
    "BoundCall": "bound_call",
    "Constant": "constants",
    "Container": "container",
    "Model": "model",
    "Tensor": "tensor",
    "Weights": "weights",
}


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(f"{__name__}.{home}"), name)
    globals()[name] = value
    return value
