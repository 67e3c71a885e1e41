"""Rules of the first hundred: the container API that a plugin exports."""

from __future__ import annotations

from aoti_abi.container_api import REQUIRED, TORCH_2_1_ONLY
from aoti_abi.records import TYPE_CHECKING
from aoti_abi.symbols import CONTAINER as _C
from aoti_inspect.facts import compiler
from aoti_inspect.rules.registry import Report, rule
from aoti_inspect.wording import counted, listed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aoti_inspect.rules.registry import Context

#: Container functions that take a C++ map, and the one with a C array that replaces each.
_C_REPLACEMENTS = {
    f"{_C}ExtractConstantsMap": f"{_C}ExtractConstantsMapEntries",
    f"{_C}UpdateConstantBuffer": f"{_C}UpdateConstantBufferPairs",
    f"{_C}UpdateConstantBufferFromCpu": f"{_C}UpdateConstantBufferFromCpuPairs",
    f"{_C}UpdateInactiveConstantBuffer": f"{_C}UpdateInactiveConstantBufferPairs",
    f"{_C}UpdateUserManagedConstantBuffer": f"{_C}UpdateUserManagedConstantBufferPairs",
}


@rule("AOTI101", "not-a-plugin", "error")
def not_a_plugin(context: Context) -> Iterator[Report]:
    """The library exports no function of the AOTInductor container API.

    ## Why it matters
    A host drives a plugin through C functions whose names start with `AOTInductor`. A library without any of
    them is something else, or its symbols were hidden when it was linked.

    ## How it is checked
    The defined dynamic symbols are searched for the prefix `AOTInductor`. If some are known to be
    AOTInductor's inner parts (`torch::aot_inductor`), the message says that the plugin was hidden.

    ## How to fix it
    Pass the `.so` that `torch._inductor.aot_compile` returned, or the `.pt2` package. If it is the right
    file, link it without `-fvisibility=hidden`, `--exclude-libs` or a version script that drops
    `AOTInductor*`.

    ## Reports it prevents
    "Entry point not found", "undefined symbol: AOTInductorModelContainerCreateWithDevice" and plugins whose
    registration function the linker dropped.
    """
    exports = context.plugin.elf.exports
    # Without a dynamic section nothing can be said of symbols; AOTI432 speaks of that.
    if exports.container or not context.plugin.elf.is_dynamic:
        return
    if exports.shims:
        count = counted(len(exports.shims), "host function")
        message = f"not an AOTInductor plugin but a host: it defines {count}, and no AOTInductor*"
        fix = "to judge plugins against it, pass it with --host"
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
        message = f"not an AOTInductor plugin: none of its {count} is AOTInductor*"
        fix = "pass the .so that torch._inductor.aot_compile returned, or the .pt2 package"
    yield Report(message, fix)


@rule("AOTI102", "missing-entry-point", "error")
def missing_entry_point(context: Context) -> Iterator[Report]:
    """A container function without which nothing can be run is missing.

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
    exports = set(context.plugin.elf.exports.container)
    if not exports or exports & TORCH_2_1_ONLY:
        return
    missing = [name for name in REQUIRED if name not in exports]
    if missing:
        old = missing == [f"{_C}CreateWithDevice"] and f"{_C}Create" in exports
        yield Report(
            f"{counted(len(missing), 'required entry point')} missing: {listed(missing, len(REQUIRED))}",
            "compile it with PyTorch 2.3 or later; PyTorch 2.2 emits no ...CreateWithDevice"
            if old
            else "compile it again with PyTorch 2.3 or later, without a version script that drops "
            "AOTInductor*",
            tuple(missing),
        )


@rule("AOTI103", "torch-2.1-interface", "error")
def torch_2_1_interface(context: Context) -> Iterator[Report]:
    """The plugin has the container API of PyTorch 2.1, which is another one.

    ## Why it matters
    PyTorch 2.1 passed `std::vector` pointers and an error enumeration across the boundary. Functions of the
    same names took other arguments, so that a later host which calls them corrupts memory.

    ## How it is checked
    Four functions existed in PyTorch 2.1 only; any of them among the exports is enough.

    ## How to fix it
    Compile the model again with PyTorch 2.3 or later.

    ## Reports it prevents
    Crashes in the first call of a plugin that "loads fine" but is two years older than its host.
    """
    found = sorted(TORCH_2_1_ONLY.intersection(context.plugin.elf.exports.container))
    if found:
        yield Report(
            "compiled by PyTorch 2.1, whose container API no later host can call: it exports "
            f"{listed(found)}",
            "compile the model again with PyTorch 2.3 or later",
            tuple(found),
        )


@rule("AOTI120", "cpp-map-only", "warning")
def cpp_map_only(context: Context) -> Iterator[Report]:
    """Constants can be read or updated only through a `std::unordered_map`.

    ## Why it matters
    The older constants calls take a pointer to a C++ map of strings behind an opaque handle. Host and plugin
    must then share one C++ standard library, of one string ABI, hash and allocator; nothing checks it, and a
    mismatch corrupts memory instead of failing. The newer calls take a plain C array.

    ## How it is checked
    For each of the five calls with a map, the exports are searched for its counterpart with a C array
    (`...Pairs`, `...Entries`).

    ## How to fix it
    Compile with PyTorch 2.13 or later, which emits every counterpart (2.10 and later emit the one for
    user-managed constants). Until then, call these functions only from a host that uses the same libstdc++.

    ## Reports it prevents
    Crashes and garbled names when weights are swapped or extracted from a host built with libc++, with a
    static libstdc++, or with `_GLIBCXX_USE_CXX11_ABI=0`.
    """
    exports = set(context.plugin.elf.exports.container)
    found = [cpp for cpp, plain in _C_REPLACEMENTS.items() if cpp in exports and plain not in exports]
    if found:
        runtime = context.plugin.cxx_runtime or "the plugin's C++ library"
        yield Report(
            f"{counted(len(found), 'constants call')} exported only with std::unordered_map: "
            f"{listed(found)}; safe only if the host uses {runtime} with the same string ABI",
            "compile it with PyTorch 2.13 or later, which also emits the calls with C arrays",
            tuple(found),
        )


@rule("AOTI130", "compiled-by", "info")
def compiled_by(context: Context) -> Iterator[Report]:
    """Which PyTorch compiled the plugin.

    ## Why it matters
    No version number is stored in a plugin. Which hosts can load it, and which features it has, follows from
    the PyTorch that compiled it.

    ## How it is checked
    PyTorch pastes the same container API into every plugin, and most minor versions added functions to it, so
    the exported set is a fingerprint. Versions that added none are told apart, where possible, by the newest
    host function that the plugin imports.

    ## How to fix it
    Nothing to fix.

    ## Reports it prevents
    "Which PyTorch can load this file?", asked of artifacts that say nothing about it.
    """
    found = compiler.fingerprint(context.plugin)
    if found is None:
        return
    functions = counted(len(context.plugin.elf.exports.container), "container function")
    if found.missing:
        yield Report(
            f"compiled by PyTorch {found.oldest} or later, as far as its {functions} tell: "
            f"{len(found.missing)} that this version emits are missing"
        )
    else:
        yield Report(f"compiled by PyTorch {found.range}, going by its {functions}")


@rule("AOTI131", "unusual-exports", "warning")
def unusual_exports(context: Context) -> Iterator[Report]:
    """The exported functions are those of no released PyTorch.

    ## Why it matters
    A plugin that lacks functions which its version emits was trimmed or patched. One that exports unknown
    functions comes from a newer PyTorch or a fork. One that imports host functions newer than its own exports
    mixes the headers of two versions. In each case what is known of "its" version need not hold.

    ## How it is checked
    The exported set is compared with what each PyTorch from 2.2 to 2.14 emits, and the imported host
    functions with the versions that they came with.

    ## How to fix it
    Compile with an unmodified PyTorch, or update this tool if the plugin is from a newer one.

    ## Reports it prevents
    Features that "must be there in this version" and fail at run time with an undefined symbol.
    """
    found = compiler.fingerprint(context.plugin)
    if found is None or TORCH_2_1_ONLY.intersection(context.plugin.elf.exports.container):
        return
    trimmed = [name for name in found.missing if name not in REQUIRED]
    if trimmed:
        yield Report(
            f"{counted(len(trimmed), 'function')} that PyTorch {found.range} emits "
            f"{'is' if len(trimmed) == 1 else 'are'} missing: {listed(trimmed)}",
            "compile it with an unmodified PyTorch, without a version script",
            tuple(trimmed),
        )
    if found.unknown:
        yield Report(
            f"{counted(len(found.unknown), 'export')} unknown to PyTorch up to 2.14: {listed(found.unknown)}",
            "compiled by a newer PyTorch or a fork: update this tool, or read the fork's header",
            found.unknown,
        )
    if found.newer_shims:
        yield Report(
            f"imports {counted(len(found.newer_shims), 'host function')} newer than its exports, which are "
            f"those of PyTorch {found.range}: {listed(found.newer_shims)}",
            "compile it with one unmodified PyTorch",
            found.newer_shims,
        )
