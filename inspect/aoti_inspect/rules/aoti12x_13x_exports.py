"""Rules AOTI120 to AOTI131: calls that pass C++ types, and the PyTorch that the exports point to."""

from __future__ import annotations

from aoti_abi.container_api import REQUIRED, TORCH_2_1_ONLY
from aoti_abi.records import TYPE_CHECKING
from aoti_abi.symbols import CONTAINER as _C
from aoti_abi.versions import KNOWN_TORCH
from aoti_inspect.facts import compiler
from aoti_inspect.rules.registry import RuleResult, plugin_rule
from aoti_inspect.wording import counted, listed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aoti_inspect.rules.registry import PluginContext


#: Container functions that take a C++ map, and the one with a C array that replaces each.
_C_REPLACEMENTS = {
    f"{_C}ExtractConstantsMap": f"{_C}ExtractConstantsMapEntries",
    f"{_C}UpdateConstantBuffer": f"{_C}UpdateConstantBufferPairs",
    f"{_C}UpdateConstantBufferFromCpu": f"{_C}UpdateConstantBufferFromCpuPairs",
    f"{_C}UpdateInactiveConstantBuffer": f"{_C}UpdateInactiveConstantBufferPairs",
    f"{_C}UpdateUserManagedConstantBuffer": f"{_C}UpdateUserManagedConstantBufferPairs",
}


@plugin_rule("AOTI120", "cpp-map-only", "warning")
def cpp_map_only(context: PluginContext) -> Iterator[RuleResult]:
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
    exports = set(context.facts.elf.exports.container)
    found = [cpp for cpp, plain in _C_REPLACEMENTS.items() if cpp in exports and plain not in exports]
    if found:
        runtime = context.facts.cxx_runtime or "the plugin's C++ library"
        yield RuleResult(
            f"{counted(len(found), 'constants call')} exported only with std::unordered_map: "
            f"{listed(found)}; safe only if the host uses {runtime} with the same string ABI",
            "compile it with PyTorch 2.13 or later, which also emits the calls with C arrays",
            tuple(found),
        )


@plugin_rule("AOTI130", "compiled-by", "info")
def compiled_by(context: PluginContext) -> Iterator[RuleResult]:
    """Which PyTorch compiled the plugin.

    ## Why it matters
    No version number is stored in a plugin. Which hosts can load it, and which features it has, follows from
    the PyTorch that compiled it.

    ## How it is checked
    PyTorch pastes the same container API into every plugin, and most minor versions added functions to it, so
    the exported set is a fingerprint. Versions that added none are distinguished, where possible, by the
    newest host function that the plugin imports.

    ## How to fix it
    Nothing to fix.

    ## Reports it prevents
    "Which PyTorch can load this file?", asked of artifacts that say nothing about it.
    """
    found = compiler.fingerprint(context.facts)
    if found is None:
        return
    functions = counted(len(context.facts.elf.exports.container), "container function")
    if found.missing:
        yield RuleResult(
            f"compiled by PyTorch {found.oldest} or later, judging by its {functions}: "
            f"{len(found.missing)} that this version emits are missing"
        )
    else:
        yield RuleResult(f"compiled by PyTorch {found.range}, judging by its {functions}")


@plugin_rule("AOTI131", "unusual-exports", "warning")
def unusual_exports(context: PluginContext) -> Iterator[RuleResult]:
    """The exported functions match no released PyTorch.

    ## Why it matters
    A plugin that lacks functions which its version emits was trimmed or patched. One that exports unknown
    functions comes from a newer PyTorch or a fork. One that imports host functions newer than its own exports
    mixes the headers of two versions. In each case, what is known about its version may not apply.

    ## How it is checked
    The exported set is compared with what each known PyTorch emits, and the imported host
    functions with the versions that they came with.

    ## How to fix it
    Compile with an unmodified PyTorch, or update this tool if the plugin is from a newer one.

    ## Reports it prevents
    Features that "must be there in this version" and fail at run time with an undefined symbol.
    """
    found = compiler.fingerprint(context.facts)
    if found is None or TORCH_2_1_ONLY.intersection(context.facts.elf.exports.container):
        return
    trimmed = [name for name in found.missing if name not in REQUIRED]
    if trimmed:
        yield RuleResult(
            f"{counted(len(trimmed), 'function')} that PyTorch {found.range} emits "
            f"{'is' if len(trimmed) == 1 else 'are'} missing: {listed(trimmed)}",
            "compile it with an unmodified PyTorch, without a version script",
            tuple(trimmed),
        )
    if found.unknown:
        yield RuleResult(
            f"{counted(len(found.unknown), 'export')} unknown to PyTorch up to {KNOWN_TORCH[-1]}: "
            f"{listed(found.unknown)}",
            "compiled by a newer PyTorch or a fork: update this tool, or read the fork's header",
            found.unknown,
        )
    if found.newer_shims:
        yield RuleResult(
            f"imports {counted(len(found.newer_shims), 'host function')} newer than its exports, which are "
            f"those of PyTorch {found.range}: {listed(found.newer_shims)}",
            "compile it with one unmodified PyTorch",
            found.newer_shims,
        )
