"""What a host can do with a plugin, as sets of container functions.

`evaluate` is the one function that decides it. The inspector calls it with a file's symbol table, the loader
with the functions that it bound, so that the forecast and the warnings cannot disagree.
"""

from __future__ import annotations

from aoti_abi.container_api import CONTAINER_API, REQUIRED
from aoti_abi.records import TYPE_CHECKING, NamedTuple
from aoti_abi.symbols import CONTAINER as _C
from aoti_abi.versions import newest

if TYPE_CHECKING:
    from collections.abc import Container


class Feature(NamedTuple):
    """One thing that a plugin may allow.

    Attributes:
        name: a stable identifier, as in reports and warnings.
        symbols: the container functions that it needs, all of them.
        title: what it is, for people.
        instead: what happens when a plugin lacks it.
        addition: True if nothing is lost without it: another way, which older plugins have, does the same.
    """

    name: str
    symbols: tuple[str, ...]
    title: str
    instead: str
    addition: bool = False

    @property
    def since(self) -> str:
        """The first PyTorch whose plugins have every function that this feature needs."""
        return newest([CONTAINER_API[name].since for name in self.symbols])


class FeatureState(NamedTuple):
    """A feature, judged for one plugin.

    Attributes:
        feature: the feature.
        missing: its functions that the plugin lacks, in the table's order; empty if it is available.
        since: the first PyTorch that emits all of ``missing``; empty if nothing is missing.
    """

    feature: Feature
    missing: tuple[str, ...]
    since: str

    @property
    def available(self) -> bool:
        """Whether the plugin has every function that the feature needs."""
        return not self.missing

    @property
    def lost(self) -> bool:
        """Whether something can't be done that another plugin allows: it is missing, and no mere addition."""
        return bool(self.missing) and not self.feature.addition


_LIST = (
    f"{_C}GetNumConstants",
    f"{_C}GetConstantName",
    f"{_C}GetConstantOriginalFQN",
)
_SHARE = (*_LIST, f"{_C}ExtractConstantsMapEntries", f"{_C}UpdateUserManagedConstantBufferPairs")

#: Every feature, by name, in the order in which reports show them.
FEATURES: dict[str, Feature] = {
    feature.name: feature
    for feature in (
        Feature("run", REQUIRED, "create, run and delete a model", "the plugin cannot be used"),
        Feature(
            "call-spec",
            (f"{_C}GetCallSpec",),
            "arguments and results as the Python module had them",
            "inputs and outputs are flat lists",
        ),
        Feature(
            "error-text",
            ("AOTInductorGetLastError",),
            "the plugin's own words for an error",
            "errors carry only what the plugin prints on standard error",
        ),
        Feature(
            "single-threaded-run",
            (f"{_C}RunSingleThreaded",),
            "runs without the container's locks and events, as CUDA graph capture needs them",
            "every run goes through the container's model pool",
        ),
        Feature(
            "list-constants",
            (*_LIST, f"{_C}GetConstantDtype", f"{_C}GetConstantFromFolded"),
            "the table of constants: names, FQNs, dtypes",
            "constants cannot be named, counted or checked",
        ),
        Feature(
            "constant-sizes",
            (f"{_C}GetNumConstants", f"{_C}GetConstantDataSize", f"{_C}GetConstantFromFolded"),
            "how many bytes of weights the plugin wants",
            "the length of a weights blob is checked only against the blob's own file",
        ),
        Feature(
            "constant-types",
            (f"{_C}GetNumConstants", f"{_C}GetConstantType"),
            "parameters told apart from buffers",
            "a buffer that runs mutate cannot be told from a parameter when weights are shared",
        ),
        Feature(
            "external-weights",
            ("AOTInductorModelUpdateConstantsFromBlob",),
            "weights from a separate blob",
            "weights must be inside the plugin, or be set one by one",
        ),
        Feature(
            "read-constants",
            (f"{_C}ExtractConstantsMapEntries",),
            "reading a model's constants back",
            "the values, shapes and strides of constants stay unknown",
        ),
        Feature(
            "update-constants",
            (*_LIST, f"{_C}UpdateConstantBufferPairs"),
            "new values for constants, copied in",
            "constants keep the values that the plugin was loaded with",
        ),
        Feature(
            "user-managed-constants",
            (*_LIST, f"{_C}UpdateUserManagedConstantBufferPairs"),
            "constants in the caller's own memory, without a copy",
            "constants are always copied",
        ),
        Feature(
            "swap-constants",
            (*_LIST, f"{_C}UpdateInactiveConstantBufferPairs", f"{_C}SwapConstantBuffer"),
            "a second set of constants, filled while the first one serves, then swapped in",
            "constants cannot be replaced while runs go on",
        ),
        Feature(
            "constant-folding",
            (f"{_C}RunConstantFolding",),
            "folding of constants at a time of the caller's choice",
            "folding happens inside the next run",
        ),
        Feature(
            "weight-sharing",
            _SHARE,
            "one copy of the weights for several methods",
            "each method loads its own weights",
        ),
        Feature(
            "mutable-sessions",
            _SHARE,
            "several independent sessions over one model's mutable buffers",
            "sessions are not supported",
        ),
        Feature(
            "graph-safe-constants",
            (f"{_C}GetNumConstants", f"{_C}ExtractConstantsMapEntries"),
            "the check that no constant is in host memory, which CUDA graphs need",
            "CUDA graphs stay off",
        ),
        Feature(
            "external-constants-at-creation",
            (f"{_C}CreateWithExternalConstants",),
            "a container created around the caller's own constants",
            "constants are bound after the container was created",
            addition=True,
        ),
    )
}


def evaluate(exports: Container[str]) -> tuple[FeatureState, ...]:
    """Judge every feature for a plugin.

    Args:
        exports: whatever answers ``name in exports`` for container functions: the names in a symbol table,
            or the table of bound functions.

    Returns:
        One state for each of `FEATURES`, in its order.
    """
    states = []
    for feature in FEATURES.values():
        missing = tuple(name for name in feature.symbols if name not in exports)
        since = newest([CONTAINER_API[name].since for name in missing]) if missing else ""
        states.append(FeatureState(feature, missing, since))
    return tuple(states)
