"""Rules AOTI111 to AOTI116: optional container functions that are missing, and what that costs.

Each rule speaks for a group of features of `aoti_abi.features`, which the loader evaluates with the same
function when it binds a plugin. Features that are mere additions cost nothing when they are missing, and
have no rule. None of the rules reports on a plugin that lacks a required function: nothing else matters then.
"""

from __future__ import annotations

from aoti_abi.container_api import REQUIRED
from aoti_abi.features import FEATURES, evaluate
from aoti_abi.records import TYPE_CHECKING
from aoti_abi.versions import newest
from aoti_inspect.facts import imports
from aoti_inspect.rules.registry import RuleResult, plugin_rule
from aoti_inspect.wording import listed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aoti_inspect.findings import Severity
    from aoti_inspect.rules.registry import PluginContext

#: The features that each rule speaks for; "run" is AOTI102's.
GROUPS: dict[str, tuple[str, ...]] = {
    "AOTI111": ("call-spec", "error-text"),
    "AOTI112": ("single-threaded-run",),
    "AOTI113": ("list-constants", "constant-sizes", "constant-types"),
    "AOTI114": ("external-weights",),
    "AOTI115": ("read-constants", "weight-sharing", "mutable-sessions", "graph-safe-constants"),
    "AOTI116": ("update-constants", "user-managed-constants", "swap-constants", "constant-folding"),
}


def _lost(context: PluginContext, code: str, severity: Severity | None = None) -> Iterator[RuleResult]:
    exports = frozenset(context.facts.elf.exports.container)
    if not all(name in exports for name in REQUIRED):
        return
    wanted = GROUPS.get(code, ())
    states = [state for state in evaluate(exports) if state.feature.name in wanted and not state.available]
    if not states:
        return
    missing = sorted({name for state in states for name in state.missing})
    since = newest([state.since for state in states])
    lost = "; ".join(f"{state.feature.name} ({state.feature.instead})" for state in states)
    yield RuleResult(
        f"does not export {listed(missing)}, so it lacks {lost}",
        f"compile it with PyTorch {since} or later",
        tuple(missing),
        severity,
    )


@plugin_rule("AOTI111", "no-diagnostics", "info")
def no_diagnostics(context: PluginContext) -> Iterator[RuleResult]:
    """The plugin cannot report the names of its arguments, or why a call failed.

    ## Why it matters
    Without `AOTInductorGetLastError` (PyTorch 2.13) the reason of an error is printed on standard error and
    lost to the program; without `...GetCallSpec` inputs and outputs are flat lists.

    ## How it is checked
    The features `error-text` and `call-spec` are evaluated on the exports, as the loader does.

    ## How to fix it
    Compile with the version that the finding names.

    ## Reports it prevents
    "API call failed at model.so, line 530", with the cause only in a log that nobody kept.
    """
    return _lost(context, "AOTI111")


@plugin_rule("AOTI112", "no-single-threaded-run", "info")
def no_single_threaded_run(context: PluginContext) -> Iterator[RuleResult]:
    """The plugin lacks the single-threaded run, which CUDA graph capture needs.

    ## Why it matters
    The ordinary run waits for and records events to share the container among threads. A stream that is
    captured into a CUDA graph forbids that. A warning for plugins with GPU code, information for others.

    ## How it is checked
    `AOTInductorModelContainerRunSingleThreaded` is looked up among the exports.

    ## How to fix it
    Compile with PyTorch 2.7 or later.

    ## Reports it prevents
    "operation not permitted when stream is capturing" during CUDA graph capture of a plugin.
    """
    gpu = bool(context.facts.gpu) or bool(imports.names(context.facts, "cuda-driver"))
    return _lost(context, "AOTI112", "warning" if gpu else None)


@plugin_rule("AOTI113", "no-constant-table", "info")
def no_constant_table(context: PluginContext) -> Iterator[RuleResult]:
    """The plugin cannot list its constants, or cannot tell their sizes or types.

    ## Why it matters
    Names, FQNs and dtypes are what a weights file is checked against; sizes tell whether a blob is too short;
    types tell a parameter from a buffer. Without the list itself no constant can be set at all, and the
    finding is a warning.

    ## How it is checked
    The features `list-constants`, `constant-sizes` and `constant-types` are evaluated on the exports.

    ## How to fix it
    Compile with the version that the finding names.

    ## Reports it prevents
    Weights bound to the wrong names, and blobs that are read past their end.
    """
    listing = FEATURES["list-constants"].symbols
    exports = frozenset(context.facts.elf.exports.container)
    return _lost(context, "AOTI113", None if all(name in exports for name in listing) else "warning")


@plugin_rule("AOTI114", "no-weights-blob", "info")
def no_weights_blob(context: PluginContext) -> Iterator[RuleResult]:
    """The plugin cannot take its weights from a separate blob.

    ## Why it matters
    A host such as ExecuTorch hands a plugin all of its weights at once, as bytes. Without
    `AOTInductorModelUpdateConstantsFromBlob` the weights must be inside the plugin or be set one by one.
    A warning if the plugin has no weights of its own.

    ## How it is checked
    The function is looked up among the exports; where the weights are is read from the file.

    ## How to fix it
    Compile with PyTorch 2.10 or later and
    `aot_inductor.package_constants_on_disk_format="binary_blob"`.

    ## Reports it prevents
    Models that load without weights and die in their first run.
    """
    external = context.facts.weights.kind == "external"
    return _lost(context, "AOTI114", "warning" if external else None)


@plugin_rule("AOTI115", "no-constant-entries", "warning")
def no_constant_entries(context: PluginContext) -> Iterator[RuleResult]:
    """The plugin cannot return its constants as a C array.

    ## Why it matters
    Weight sharing between methods, independent sessions over mutable buffers, and the check that no constant
    is in host memory (for CUDA graphs) depend on reading constants back. The older call needs one C++ library
    on both sides (see AOTI120), so no host of this toolkit uses it.

    ## How it is checked
    The features `read-constants`, `weight-sharing`, `mutable-sessions` and `graph-safe-constants` are
    evaluated on the exports; the loader's warnings come from the same function.

    ## How to fix it
    Compile with PyTorch 2.13 or later, which emits `AOTInductorModelContainerExtractConstantsMapEntries`.

    ## Reports it prevents
    Weights held once per method instead of once per model, and memory that grows with each method.
    """
    return _lost(context, "AOTI115")


@plugin_rule("AOTI116", "no-constant-updates", "info")
def no_constant_updates(context: PluginContext) -> Iterator[RuleResult]:
    """Some ways to replace constants are missing.

    ## Why it matters
    Copying new values in, binding the caller's own memory, and filling a second set while the first serves
    are separate functions that came with separate versions. The others still work.

    ## How it is checked
    The features `update-constants`, `user-managed-constants`, `swap-constants` and `constant-folding` are
    evaluated on the exports.

    ## How to fix it
    Compile with the version that the finding names.

    ## Reports it prevents
    Weight updates that fall back to reloading the whole model.
    """
    return _lost(context, "AOTI116")
