"""Rules AOTI601 to AOTI604: where a plugin's constants are."""

from __future__ import annotations

from aoti_abi.records import TYPE_CHECKING
from aoti_inspect.rules.registry import RuleResult, plugin_rule
from aoti_inspect.wording import sized

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aoti_inspect.rules.registry import PluginContext


@plugin_rule("AOTI601", "weights-external", "warning")
def weights_external(context: PluginContext) -> Iterator[RuleResult]:
    """The plugin contains no weights.

    ## Why it matters
    It loads without them, and its first run reads through null pointers: the plugin does not check. The host
    has to bind the weights first, from a blob beside it or one by one.

    ## How it is checked
    The file holds no constants section and no appended weights, though it was compiled with constants.

    ## How to fix it
    Ship the blob (`*_weights.blob`, `.ptd`) with the plugin and bind it; or compile with
    `aot_inductor.package_constants_in_so=True`.

    ## Reports it prevents
    Segmentation faults and illegal memory accesses in the first run of a model that "loaded fine".
    """
    weights = context.facts.weights
    if context.origin is not None and context.origin.weights.kind != "none":
        return  # They come with the artifact, or their absence is a finding about the artifact.
    if weights.kind == "external":
        amount = f"{sized(weights.required)} of weights" if weights.required else "weights"
        yield RuleResult(
            f"needs {amount} from outside: it crashes if it is run before they are bound",
            "ship its weights blob and bind it first, or compile with "
            "aot_inductor.package_constants_in_so=True",
        )


@plugin_rule("AOTI602", "weights-appended", "warning")
def weights_appended(context: PluginContext) -> Iterator[RuleResult]:
    """Weights are appended to the file, outside of every ELF segment.

    ## Why it matters
    The plugin maps its own file to reach them. Tools that rewrite ELF files (strip, patchelf, objcopy) drop
    or move what no header describes; the plugin then refuses to start, or reads something else.

    ## How it is checked
    The last segment ends before the file does, and the magic number that guards the weights is there.

    ## How to fix it
    Do not strip or patch the file; copy it whole. Compile with
    `aot_inductor.package_constants_on_disk_format="binary_blob"` for a separate file instead.

    ## Reports it prevents
    Models of several gigabytes that break when a package is built from them.
    """
    weights = context.facts.weights
    if weights.kind == "appended" and weights.magic_ok is not False:
        yield RuleResult(
            f"{sized(weights.size)} of weights are appended at offset {weights.offset}: strip, patchelf and "
            "objcopy would drop or move them",
            "do not rewrite this file; package_constants_on_disk_format=binary_blob keeps weights apart",
        )


@plugin_rule("AOTI603", "weights-damaged", "error")
def weights_damaged(context: PluginContext) -> Iterator[RuleResult]:
    """The appended weights do not carry the magic number that the plugin expects.

    ## Why it matters
    The plugin compares the two and throws when the container is created. The file was cut, padded, or
    rewritten by a tool that did not know of the weights.

    ## How it is checked
    The number in the constants section is compared with the one at the end of the file.

    ## How to fix it
    Copy the file again from where it was compiled, and check its size.

    ## Reports it prevents
    "Mismatched magic number" far from the step that damaged the file.
    """
    weights = context.facts.weights
    if weights.magic_ok is False:
        expected = f" {weights.magic:#x}" if weights.magic is not None else ""
        yield RuleResult(
            f"the magic number{expected} of its appended weights is not at the end of the file: they were "
            "cut off, moved or overwritten",
            "copy the file again from where it was compiled; do not strip or patch it",
        )


@plugin_rule("AOTI604", "weights-mutable", "info")
def weights_mutable(context: PluginContext) -> Iterator[RuleResult]:
    """A run changes some of the plugin's constants.

    ## Why it matters
    The model has state: caches, counters, running statistics. All runs of one container share it, so results
    depend on earlier runs, and containers must not be shared between independent sequences.

    ## How it is checked
    PyTorch puts the constants into writable memory (`.ldata`) if the graph mutates one of them, and into
    read-only memory (`.lrodata`) otherwise.

    ## How to fix it
    Nothing, if state is meant: use one session per sequence. Otherwise export the model without in-place
    updates of buffers.

    ## Reports it prevents
    Results of one request that leak into the next.
    """
    weights = context.facts.weights
    if weights.mutable and weights.kind in ("embedded", "appended"):
        yield RuleResult(
            "its constants are in writable memory: a run changes some of them, and all runs of a "
            "container share them",
            "use one session for each independent sequence",
        )
