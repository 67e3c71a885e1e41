"""Rules AOTI630 to AOTI637: the weights that come with a plugin."""

from __future__ import annotations

from aoti_abi.errors import AotiError
from aoti_abi.records import TYPE_CHECKING
from aoti_inspect.rules.registry import RuleResult, about, package_rule, plugin_rule
from aoti_inspect.wording import sized

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aoti_inspect.artifacts.artifact import Model
    from aoti_inspect.artifacts.external_weights import WeightTensor
    from aoti_inspect.rules.registry import PackageContext, PluginContext


@package_rule("AOTI630", "missing-weight-keys", "error")
def missing_weight_keys(context: PackageContext) -> Iterator[RuleResult]:
    """Weights are listed, but missing.

    ## Why it matters
    The plugin needs every one of its constants before the first run; with one missing it reads through a
    null pointer, or refuses to load.

    ## How it is checked
    The keys of the payload against the named data of the program and its `.ptd` files; the files of
    `weights_config.json` against the package's members.

    ## How to fix it
    Ship the `.ptd` that was written together with the `.pte`; export the package again.

    ## Reports it prevents
    Loads that succeed and first runs that crash.
    """
    for fact in context.noted("absent-named-data", "absent-weight-files"):
        total, first = fact.numbers[0], fact.names[0]
        absent = len(fact.names)
        yield about(
            fact,
            f"{absent} of {total} weights are in no named data, first {first!r}"
            if fact.kind == "absent-named-data"
            else f"{absent} of {total} weight files are missing, first {first!r}",
            "put the missing files or the right .ptd beside the artifact",
        )


@package_rule("AOTI631", "weights-name", "warning")
def weights_name(context: PackageContext) -> Iterator[RuleResult]:
    """The weights blob does not have the name that belongs to the library.

    ## Why it matters
    It may belong to another build: the blob has no header, so a wrong one gives wrong numbers, not an
    error.

    ## How it is checked
    A model's `.blob` members against `<stem>_weights.blob`.

    ## How to fix it
    Export again; keep library and blob of one build together.

    ## Reports it prevents
    Plausible but wrong results after an update of one of two files.
    """
    remedy = "export the package again instead of exchanging its weights by hand"
    for fact in context.noted("blob-of-other-name"):
        chosen, expected = fact.details
        called = f"are called {chosen!r}, where its library's are {expected!r}"
        yield about(fact, f"the weights of model {fact.subject!r} {called}", remedy)
    for fact in context.noted("several-blobs"):
        many = f"model {fact.subject!r} has {len(fact.names)} blobs"
        yield about(fact, f"{many}; PyTorch takes the one it finds last", remedy)


@package_rule("AOTI632", "weight-size", "error")
def weight_size(context: PackageContext) -> Iterator[RuleResult]:
    """A weight's size differs from its size in the program.

    ## Why it matters
    The plugin reads as many bytes as it was compiled for.

    ## How it is checked
    The size of each named piece of data against the payload's metadata.

    ## How to fix it
    Program and `.ptd` come from two exports: write both again.

    ## Reports it prevents
    Reading past a weight's end.
    """
    for fact in context.noted("weight-of-other-size"):
        expected, actual = fact.numbers
        message = f"the weight {fact.subject!r} should have {expected} bytes and has {actual}"
        yield about(fact, message, "export the program and its data together")


@plugin_rule("AOTI633", "missing-weights", "error")
def missing_weights(context: PluginContext) -> Iterator[RuleResult]:
    """The weights that the plugin needs are missing.

    ## Why it matters
    Older runtimes load it anyway and crash in the first run; ExecuTorch 1.5 refuses.

    ## How it is checked
    The payload's weights key is in no named data, and the plugin was compiled with external constants. A
    plugin without constants needs none.

    ## How to fix it
    Put the `.ptd` beside the `.pte`, under the program's name or as the exporter called it
    (`aoti_cuda_blob.ptd`).

    ## Reports it prevents
    Illegal memory accesses in the first run of a model whose second file was left behind.
    """
    origin = context.origin
    if origin is None or origin.weights.kind != "missing":
        return
    weights = context.facts.weights
    if weights.required != 0:
        amount = f" ({sized(weights.required)})" if weights.required else ""
        yield RuleResult(
            f"its weights{amount} should be in {origin.weights.origin!r}, which is missing",
            "put the .ptd or the blob that was written with it beside it",
            (origin.weights.origin,),
        )


@plugin_rule("AOTI634", "blob-size", "error")
def blob_size(context: PluginContext) -> Iterator[RuleResult]:
    """The blob with the weights has another size than the plugin needs.

    ## Why it matters
    The plugin is given the blob's address and no length. It copies what it was compiled for, past the end
    of a shorter blob. A longer one belongs to another build.

    ## How it is checked
    The size of the blob against the constants that the plugin's code lists.

    ## How to fix it
    Export again, and keep plugin and blob of one build together.

    ## Reports it prevents
    Crashes or wrong numbers after one of two files was exchanged.
    """
    origin = context.origin
    if origin is None or origin.weights.kind != "blob":
        return
    size, required = origin.weights.size, context.facts.weights.required
    if not required or size == required:
        return
    if size < required:
        yield RuleResult(
            f"its weights need {sized(required)} and {origin.weights.origin!r} has {sized(size)}: binding it "
            "reads past the end",
            "use the blob that was written with this plugin",
            (origin.weights.origin,),
        )
    else:
        yield RuleResult(
            f"its weights need {sized(required)} and {origin.weights.origin!r} has {sized(size)}",
            "use the blob that was written with this plugin",
            (origin.weights.origin,),
            "warning",
        )


@plugin_rule("AOTI635", "weights-unused", "warning")
def weights_unused(context: PluginContext) -> Iterator[RuleResult]:
    """Separate weights come with a plugin that has its weights embedded.

    ## Why it matters
    A plugin with embedded weights accepts a blob, reports success and ignores it.

    ## How it is checked
    The plugin has a constants section or appended weights, and the artifact has a blob for it too.

    ## How to fix it
    Ship one of the two.

    ## Reports it prevents
    New weights that have no effect.
    """
    origin = context.origin
    if origin is None or origin.weights.kind != "blob":
        return
    if context.facts.weights.kind in ("embedded", "appended"):
        yield RuleResult(
            f"has its weights embedded, so binding {origin.weights.origin!r} has no effect",
            "leave the file out, or compile with aot_inductor.package_constants_in_so=False",
            (origin.weights.origin,),
        )


@plugin_rule("AOTI636", "weights-not-automatic", "info")
def weights_not_automatic(context: PluginContext) -> Iterator[RuleResult]:
    """The package's weights are not bound when PyTorch loads it.

    ## Why it matters
    `aoti_load_package` ignores weights that were stored with `pickle_weights`, and the first run crashes.
    This toolkit binds them.

    ## How it is checked
    `weights_config.json` in the model's folder.

    ## How to fix it
    Load with `load_weights_from_disk=True`, or export with
    `package_constants_on_disk_format="binary_blob"`.

    ## Reports it prevents
    Segmentation faults in the first run of a package that "has the weights in it".
    """
    origin = context.origin
    if origin is not None and origin.weights.kind == "tensors" and not origin.weights.automatic:
        yield RuleResult(
            f"its weights lie in {origin.weights.origin!r} one by one; PyTorch binds them only when asked",
            "load it with torch.export.pt2_archive load_pt2(..., load_weights_from_disk=True)",
        )


@package_rule("AOTI637", "constants-differ", "warning")
def constants_differ(context: PackageContext) -> Iterator[RuleResult]:
    """Methods of one program have constants of the same name, but of different types or shapes.

    ## Why it matters
    Methods share weights by the name that a constant had in the module. Where the names meet by accident, or
    after one of the methods was changed, the shared bytes are wrong for one of them. Runtimes that compare
    give each method its own copy, at the cost of the memory; older ones do not compare.

    ## How it is checked
    Dtype, sizes and strides of the constants that the payloads list, by name, between methods.

    ## How to fix it
    Export the methods from one module; rename what should not be shared.

    ## Reports it prevents
    Wrong numbers in the second method of a program, after a wrapper was renamed or a layer was resized.
    """
    first: dict[str, tuple[str, WeightTensor]] = {}
    for model in context.artifact.models.values():
        for tensor in _listed_constants(model):
            method, known = first.setdefault(tensor.fqn, (model.name, tensor))
            parts = [
                f"{field} {getattr(known, field)} and {getattr(tensor, field)}"
                for field in ("dtype", "sizes", "strides")
                if getattr(known, field) != getattr(tensor, field)
            ]
            if parts:
                yield RuleResult(
                    f"the constant {tensor.fqn!r} differs between methods {method!r} and {model.name!r}: "
                    f"{', '.join(parts)}",
                    "export the methods from one module, or rename the constant",
                    (tensor.fqn,),
                )


def _listed_constants(model: Model) -> tuple[WeightTensor, ...]:
    """Return what a method's payload lists; nothing where it lists none, or nothing that can be read."""
    if not model.plugins or model.plugins[0].delegate is None:
        return ()
    weights = model.plugins[0].weights
    if weights.kind != "tensors":
        return ()
    try:
        return weights.tensors()
    except AotiError:
        return ()  # a damaged list has a finding of its own
