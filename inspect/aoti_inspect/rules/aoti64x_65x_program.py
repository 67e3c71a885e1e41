"""Rules AOTI640 to AOTI650: programs, delegates, and what a plugin calls through its host."""

from __future__ import annotations

from aoti_abi.records import TYPE_CHECKING
from aoti_inspect.facts import imports
from aoti_inspect.rules.registry import RuleResult, about, package_rule, plugin_rule
from aoti_inspect.wording import listed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aoti_inspect.artifacts.package_fact import PackageFact
    from aoti_inspect.rules.registry import PackageContext, PluginContext


def _of_delegate(fact: PackageFact) -> str:
    return f"delegate {fact.numbers[0]} of {fact.subject}: {fact.details[0]}"


@package_rule("AOTI640", "duplicate-key", "error")
def duplicate_key(context: PackageContext) -> Iterator[RuleResult]:
    """Two pieces of named data have the same key.

    ## Why it matters
    ExecuTorch refuses to merge them; other readers use one of the two.

    ## How it is checked
    The keys of the program and of every `.ptd` that was read with it.

    ## How to fix it
    Pass only the `.ptd` files that belong to the program.

    ## Reports it prevents
    "Duplicate key" when a program is loaded with the data of another.
    """
    for fact in context.noted("repeated-key"):
        where = " and ".join(dict.fromkeys(fact.details))
        message = f"the key {fact.subject!r} is there twice, in {where}: ExecuTorch refuses to load that"
        yield about(fact, message, "write the program and its data again, together")


@package_rule("AOTI641", "duplicate-method", "error")
def duplicate_method(context: PackageContext) -> Iterator[RuleResult]:
    """Two methods of the program have the same name.

    ## Why it matters
    Only the first can be called.

    ## How it is checked
    The names of the program's execution plans.

    ## How to fix it
    Give each method a name of its own.

    ## Reports it prevents
    Calls that reach another method than the one that was meant.
    """
    for fact in context.noted("repeated-method"):
        yield about(fact, "two methods have the same name", "export the program again")


@package_rule("AOTI642", "missing-plugin", "error")
def missing_plugin(context: PackageContext) -> Iterator[RuleResult]:
    """A delegate's plugin is missing from the named data.

    ## Why it matters
    The payload names the key of a library that neither the program nor its `.ptd` files have.

    ## How it is checked
    The plugin key of each delegate's payload, or the one that follows from the method's name if the
    payload is empty.

    ## How to fix it
    Ship all files of one export. If a tool rewrote the program, it dropped the named data.

    ## Reports it prevents
    "Failed to find so blob" at load time.
    """
    for fact in context.noted("payload-without-plugin"):
        yield about(fact, _of_delegate(fact), "put the .ptd that belongs to the program beside it")


@package_rule("AOTI643", "malformed-payload", "error")
def malformed_payload(context: PackageContext) -> Iterator[RuleResult]:
    """A delegate's payload cannot be decoded.

    ## Why it matters
    It should be empty, two keys separated by a newline, or binary metadata of a known form.

    ## How it is checked
    Every count, length and shape of the payload against its size; views of weights against their
    storages.

    ## How to fix it
    Export again; if it persists, the program was written by another backend than its id says.

    ## Reports it prevents
    "Malformed named-data key payload" without the method concerned.
    """
    for fact in context.noted("payload-undecodable"):
        yield about(fact, _of_delegate(fact), "export the program again")


@package_rule("AOTI644", "unknown-payload", "error")
def unknown_payload(context: PackageContext) -> Iterator[RuleResult]:
    """A delegate's payload has an unknown version.

    ## Why it matters
    Weights and plugins are named in a way that this version of the toolkit can't read, and neither can a
    runtime of another release.

    ## How it is checked
    The version character after `ETCUDAFQN`; 0, 3, 4 and 5 are known.

    ## How to fix it
    Export with a released ExecuTorch that the runtime matches.

    ## Reports it prevents
    Mixing exporters and runtimes of different releases.
    """
    for fact in context.noted("payload-of-unknown-version"):
        remedy = "export with ExecuTorch 1.5, or use a newer aoti-toolkit"
        yield about(fact, _of_delegate(fact), remedy)


@package_rule("AOTI645", "method-not-whole", "info")
def method_not_whole(context: PackageContext) -> Iterator[RuleResult]:
    """A method runs more than its AOTInductor plugin.

    ## Why it matters
    The plugin computes a part of it; the rest needs ExecuTorch's kernels or another delegate. Copies to and
    from the device are harmless, and listed for completeness.

    ## How it is checked
    The instructions of each method that are not calls of an AOTInductor delegate, by operator.

    ## How to fix it
    Run the program with ExecuTorch, or lower all of the method to one delegate.

    ## Reports it prevents
    Results of a part of the model taken for those of all of it.
    """
    for model in context.artifact.models.values():
        if model.plugins and (model.operators or model.other_delegates):
            others = [*model.operators, *(f"the delegate {name}" for name in model.other_delegates)]
            yield RuleResult(
                f"method {model.name!r} is more than one plugin: it also runs {listed(others)}",
                "run it with ExecuTorch, or lower all of it to one delegate",
                (*model.operators, *model.other_delegates),
            )


@package_rule("AOTI646", "custom-operators", "warning")
def custom_operators(context: PackageContext) -> Iterator[RuleResult]:
    """The plugin calls operators that its package does not contain.

    ## Why it matters
    Operators without a C shim go through PyTorch's dispatcher by name, so only LibTorch can run the
    plugin, and only after the library that registers them was loaded. Operators that exist in Python only
    can't be called from C++ at all.

    ## How it is checked
    The JSON beside the library that lists these calls (`<stem>.json`), and the configuration of custom
    objects.

    ## How to fix it
    Load the library first (`torch.ops.load_library`, `dlopen`), or replace the operator before the
    export.

    ## Reports it prevents
    "Could not find schema for mylib::scale" in another process than the one that exported.
    """
    for model in context.artifact.models.values():
        names = [*model.proxy_operators, *(f"the custom object {name}" for name in model.custom_objects)]
        if names:
            yield RuleResult(
                f"{model.name!r} calls {listed(names)} through its host: their library is not in the package",
                "load the library that registers them into the process first; in C++ too",
                (*model.proxy_operators, *model.custom_objects),
            )


@plugin_rule("AOTI647", "missing-operator-list", "error")
def missing_operator_list(context: PluginContext) -> Iterator[RuleResult]:
    """The plugin needs a list of operators that is missing.

    ## Why it matters
    It passes the host a number, and the JSON beside the library says which operator that is. Without the
    JSON no host can run it.

    ## How it is checked
    The library imports `aoti_torch_proxy_executor_call_function`, and there is no `<stem>.json`.

    ## How to fix it
    Copy the JSON with the library, or use a package, which holds both.

    ## Reports it prevents
    Crashes of a `.so` that works as a `.pt2`.
    """
    origin = context.origin
    if origin is None or origin.extern_nodes is not None or origin.delegate is not None:
        return
    if any(symbol.name == imports.PROXY_EXECUTOR for symbol in context.facts.elf.undefined):
        yield RuleResult(
            "calls operators through its host, but the JSON that lists them is missing",
            "ship the JSON with the library's name that lies beside it in the export",
            (imports.PROXY_EXECUTOR,),
        )


@package_rule("AOTI648", "mixed-cxx-runtimes", "warning")
def mixed_cxx_runtimes(context: PackageContext) -> Iterator[RuleResult]:
    """The plugins of one artifact use different C++ libraries.

    ## Why it matters
    A host has to provide both, and anything that passes C++ objects between them breaks.

    ## How it is checked
    libstdc++ and libc++ are distinguished by the symbols that each plugin imports.

    ## How to fix it
    Compile all models with one compiler and `-stdlib`.

    ## Reports it prevents
    A host in which one of two models loads.
    """
    runtimes = {plugin.cxx_runtime: plugin.name for plugin in context.plugins if plugin.cxx_runtime}
    if len(runtimes) > 1:
        yield RuleResult(
            "its plugins were compiled against different C++ libraries: "
            f"{listed([f'{name} ({runtime})' for runtime, name in sorted(runtimes.items())])}",
            "compile all of them with the same compiler and standard library",
            tuple(runtimes.values()),
        )


@plugin_rule("AOTI649", "variant-without-code", "error")
def variant_without_code(context: PluginContext) -> Iterator[RuleResult]:
    """A variant lacks the GPU code that it is listed for.

    ## Why it matters
    The runtime chooses by the list, loads the library, and the first kernel fails.

    ## How it is checked
    The variant's target and PTX against the cubins and PTX found in the library.

    ## How to fix it
    Export again; do not exchange libraries below one key.

    ## Reports it prevents
    "no kernel image is available" from a program that claims to support the GPU.
    """
    origin = context.origin
    if origin is None or origin.variant is None or not origin.variant.target_sm:
        return
    variant, images = origin.variant, context.facts.gpu
    native = {image.architecture for image in images if image.kind == "cubin"}
    ptx = {image.architecture for image in images if image.kind == "ptx"}
    if not variant.fallback_only and variant.target_sm not in native:
        found = listed([f"sm_{number}" for number in sorted(native)]) or "none"
        yield RuleResult(
            f"it is listed for sm_{variant.target_sm}, but the machine code in it is for: {found}",
            "export the program again",
        )
    if variant.ptx_compute and variant.ptx_compute not in ptx:
        found = listed([f"compute_{number}" for number in sorted(ptx)]) or "none"
        yield RuleResult(
            f"it is listed with PTX for compute_{variant.ptx_compute}, but the PTX in it is for: {found}",
            "export the program again",
        )


@plugin_rule("AOTI650", "device-differs", "info")
def device_differs(context: PluginContext) -> Iterator[RuleResult]:
    """The delegate is named for a GPU, but its plugin has no GPU code.

    ## Why it matters
    The backend passes device pointers to a plugin that reads them on the CPU.

    ## How it is checked
    The delegate's id, the plugin's cubins and PTX, and whether it needs the CUDA driver.

    ## How to fix it
    Run it as what it is, on the CPU.

    ## Reports it prevents
    Segmentation faults of test programs that were compiled without a GPU.
    """
    origin = context.origin
    if origin is None or origin.delegate is None or context.facts.gpu:
        return
    if "cuda" in origin.delegate.id.lower() and not any(
        n.startswith("libcuda") for n in context.facts.elf.needed
    ):
        yield RuleResult(
            f"its delegate is {origin.delegate.id!r}, but the plugin has no GPU code: it runs on the CPU",
            "run it with --device cpu",
            (origin.delegate.id,),
        )
