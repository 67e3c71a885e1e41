"""Rules AOTI101 to AOTI103: the functions that a host needs of a plugin."""

from __future__ import annotations

from aoti_abi.container_api import REQUIRED, TORCH_2_1_ONLY
from aoti_abi.records import TYPE_CHECKING
from aoti_abi.symbols import CONTAINER as _C
from aoti_inspect.rules.registry import RuleResult, plugin_rule
from aoti_inspect.wording import counted, listed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aoti_inspect.rules.registry import PluginContext


@plugin_rule("AOTI101", "not-a-plugin", "error")
def not_a_plugin(context: PluginContext) -> Iterator[RuleResult]:
    """The library exports no function of the AOTInductor container API.

    ## Why it matters
    A host drives a plugin through C functions whose names start with `AOTInductor`. A library without any of
    them is something else, or its symbols were hidden when it was linked.

    ## How it is checked
    The defined dynamic symbols are searched for the prefix `AOTInductor`. If symbols of AOTInductor's runtime
    (`torch::aot_inductor`) are exported, the message says that the entry points were hidden.

    ## How to fix it
    Pass the `.so` that `torch._inductor.aot_compile` returned, or the `.pt2` package. If it is the right
    file, link it without `-fvisibility=hidden`, `--exclude-libs` or a version script that drops
    `AOTInductor*`.

    ## Reports it prevents
    "Entry point not found", "undefined symbol: AOTInductorModelContainerCreateWithDevice" and plugins whose
    registration function the linker dropped.
    """
    exports = context.facts.elf.exports
    # Without a dynamic segment there are no symbols to look at; AOTI432 reports that.
    if exports.container or not context.facts.elf.is_dynamic:
        return
    if exports.shims:
        count = counted(len(exports.shims), "host function")
        message = f"a host, not an AOTInductor plugin: it defines {count}, and exports no AOTInductor*"
        fix = "to check plugins against it, pass it with --host"
    elif exports.runtime:
        message = (
            f"no AOTInductor* function is exported, though {counted(exports.runtime, 'symbol')} of "
            "torch::aot_inductor are: the entry points were hidden when it was linked"
        )
        fix = "link without a version script or -fvisibility=hidden that drops AOTInductor*"
    elif exports.total == 0:
        message = "not an AOTInductor plugin: it exports nothing at all"
        fix = "pass the .so that torch._inductor.aot_compile returned, or the .pt2 package"
    else:
        count = counted(exports.total, "export")
        message = f"not an AOTInductor plugin: none of its {count} starts with AOTInductor"
        fix = "pass the .so that torch._inductor.aot_compile returned, or the .pt2 package"
    yield RuleResult(message, fix)


@plugin_rule("AOTI102", "missing-entry-point", "error")
def missing_entry_point(context: PluginContext) -> Iterator[RuleResult]:
    """A container function that every run needs is missing.

    ## Why it matters
    Creating a container, asking how many inputs and outputs it has, running it and deleting it take five
    functions. PyTorch 2.3 and later emit all of them into every plugin, so a plugin that lacks one was
    trimmed, linked with a version script, or made by PyTorch 2.2 or older.

    ## How it is checked
    The five names are looked up among the defined dynamic symbols. All that are missing are named at once.

    ## How to fix it
    Compile again with PyTorch 2.3 or later, and export every `AOTInductor*` symbol.

    ## Reports it prevents
    Loaders that report one missing symbol after the other, each after a rebuild; entry points lost to a
    missing `extern "C"` or to hidden visibility.
    """
    exports = set(context.facts.elf.exports.container)
    if not exports or exports & TORCH_2_1_ONLY:
        return
    missing = [name for name in REQUIRED if name not in exports]
    if missing:
        old = missing == [f"{_C}CreateWithDevice"] and f"{_C}Create" in exports
        yield RuleResult(
            f"{counted(len(missing), 'required entry point')} missing: {listed(missing, len(REQUIRED))}",
            "compile it with PyTorch 2.3 or later; PyTorch 2.2 emits no ...CreateWithDevice"
            if old
            else "compile it again with PyTorch 2.3 or later, without a version script that drops "
            "AOTInductor*",
            tuple(missing),
        )


@plugin_rule("AOTI103", "torch-2.1-interface", "error")
def torch_2_1_interface(context: PluginContext) -> Iterator[RuleResult]:
    """The plugin has the container API of PyTorch 2.1, which no later host can call.

    ## Why it matters
    PyTorch 2.1 passed `std::vector` pointers and an error enumeration across the boundary. Functions with the
    same names took different arguments, so a later host that calls them corrupts memory.

    ## How it is checked
    Four functions existed in PyTorch 2.1 only; any of them among the exports is enough.

    ## How to fix it
    Compile the model again with PyTorch 2.3 or later.

    ## Reports it prevents
    Crashes in the first call of a plugin that "loads fine" but is two years older than its host.
    """
    found = sorted(TORCH_2_1_ONLY.intersection(context.facts.elf.exports.container))
    if found:
        yield RuleResult(
            "compiled by PyTorch 2.1, whose container API no later host can call: it exports "
            f"{listed(found)}",
            "compile the model again with PyTorch 2.3 or later",
            tuple(found),
        )
