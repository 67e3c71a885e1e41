"""Run AOTInductor plugins: models, their weights, and tensors in and out, without PyTorch in the process.

    from aoti_executor import Model

    model = Model("model.so")
    y = model(x).numpy()

Public is what ``__all__`` lists: `Model`, a compiled model as a callable; `Container`, the plugin's own
container, checked; `Tensor`, what comes out of both; `Weights`, what `Model.weights` gives; and the records
that they return. Each is imported when it is first asked for.
"""

from __future__ import annotations

from aoti_abi.face import lazy_face
from aoti_abi.records import TYPE_CHECKING

if TYPE_CHECKING:
    from aoti_executor.bound_call import BoundCall
    from aoti_executor.constants import Constant
    from aoti_executor.container import Container
    from aoti_executor.model import Model
    from aoti_executor.tensor import Tensor
    from aoti_executor.weights import Weights

    __version__: str

__all__ = ["BoundCall", "Constant", "Container", "Model", "Tensor", "Weights", "__version__"]

__getattr__ = lazy_face(
    __name__,
    {
        "BoundCall": "bound_call",
        "Constant": "constants",
        "Container": "container",
        "Model": "model",
        "Tensor": "tensor",
        "Weights": "weights",
    },
)
