"""Rules AOTI440 to AOTI452: needed libraries, malformed parts, contradicting views of the file."""

from __future__ import annotations

from aoti_abi.hosts.torch import is_cuda_libtorch
from aoti_abi.records import TYPE_CHECKING
from aoti_inspect.facts import imports
from aoti_inspect.rules.registry import RuleResult, plugin_rule
from aoti_inspect.wording import counted, listed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aoti_inspect.facts.records import PluginFacts
    from aoti_inspect.facts.symbol_families import Family
    from aoti_inspect.rules.registry import PluginContext

#: Libraries whose every symbol has a version: one without a version need is not used.
_VERSIONED = (
    "libc.so.",
    "libm.so.",
    "libstdc++.so.",
    "libgcc_s.so.",
    "libgomp.so.",
    "libpthread.so.",
    "libdl.so.",
)
#: Libraries whose symbols have no version, by the families that they define.
_UNVERSIONED: tuple[tuple[str, tuple[Family, ...]], ...] = (
    ("libcuda.so.", ("cuda-driver",)),
    ("libcudart.so.", ("cuda-runtime",)),
    ("libtorch_cpu.so", ("shim", "sleef", "libtorch-c++")),
    ("libc10.so", ("libtorch-c++",)),
)


def _uses_cuda_libtorch(plugin: PluginFacts, name: str) -> bool:
    """Whether a plugin may use one of the libraries that only LibTorch's builds for CUDA have."""
    shims = name == "libtorch_cuda.so" and bool(plugin.imports.cuda_shims)
    return shims or any("cuda" in symbol.lower() for symbol in plugin.imports.names("libtorch-c++"))


@plugin_rule("AOTI440", "unused-needed", "info")
def unused_needed(context: PluginContext) -> Iterator[RuleResult]:
    """DT_NEEDED names a library of which nothing is used.

    ## Why it matters
    The plugin does not load where that library is missing, though it would run without it.

    ## How it is checked
    For libraries with symbol versions (libc, libm, libstdc++, libgcc_s, libgomp, ...): DT_VERNEED does not
    name them. For LibTorch and CUDA's libraries: no undefined symbol is of their kind; for the libraries that
    only LibTorch's builds for CUDA have, none is about CUDA. Others are not judged.

    ## How to fix it
    Link with `-Wl,--as-needed` before the libraries.

    ## Reports it prevents
    "libgomp.so.1: cannot open shared object file" in a small container, for a model without threads.
    """
    elf = context.facts.elf
    versioned = {need.library for need in elf.version_needs}
    families = imports.by_family(context.facts)
    unused = []
    for entry in elf.needed:
        name = entry.rpartition("/")[2]
        if name.startswith(_VERSIONED):
            if versioned and entry not in versioned and name not in versioned:
                unused.append(entry)
            continue
        if is_cuda_libtorch(name) and not _uses_cuda_libtorch(context.facts, name):
            unused.append(entry)
        for prefix, kinds in _UNVERSIONED:
            if name.startswith(prefix) and not any(families.get(kind) for kind in kinds):
                unused.append(entry)
    if unused:
        yield RuleResult(
            f"needs {counted(len(unused), 'library', 'libraries')} of which it uses nothing: "
            f"{listed(unused)}",
            "link with -Wl,--as-needed before the libraries",
            tuple(unused),
        )


@plugin_rule("AOTI441", "needed-unreadable", "error")
def needed_unreadable(context: PluginContext) -> Iterator[RuleResult]:
    """An entry of DT_NEEDED has no readable name.

    ## Why it matters
    The entry points outside of the string table, or at an empty string. What the dynamic linker does then
    depends on what lies there: it fails, or loads something else.

    ## How it is checked
    Every DT_NEEDED entry is read as an offset into the dynamic string table, within its bounds.

    ## How to fix it
    The file is damaged, usually by a tool that rewrote it (patchelf, strip): restore it from the original.

    ## Reports it prevents
    Tools that end in "Is a directory", as they join the empty name with a library path.
    """
    broken = sum(not entry for entry in context.facts.elf.needed)
    if broken:
        yield RuleResult(
            f"{counted(broken, 'entry', 'entries')} of DT_NEEDED {'has' if broken == 1 else 'have'} no "
            "readable name",
            "the file is damaged, usually by a tool that rewrote it: restore it from the original",
        )


@plugin_rule("AOTI450", "views-disagree", "warning")
def views_disagree(context: PluginContext) -> Iterator[RuleResult]:
    """The section table contradicts the dynamic segment.

    ## Why it matters
    The dynamic linker follows PT_DYNAMIC; readelf, nm and most auditors follow the section table. Where the
    two differ, those tools describe something other than what gets loaded.

    ## How it is checked
    A section table that is invalid is always reported. With `--second-view` the needed libraries, versions
    and symbols of both views are compared, too.

    ## How to fix it
    Build the file again; if a tool rewrote it on purpose (a packer, sstrip), let it remove the section table.

    ## Reports it prevents
    Audits that call a library harmless because its section table is empty or forged.
    """
    elf = context.facts.elf
    if elf.section_problem:
        yield RuleResult(
            f"its section table is invalid: {elf.section_problem}; the dynamic linker does not need it, "
            "other tools do",
            "build the file again, or remove the section table",
        )
    if context.disagreements:
        yield RuleResult(
            f"the section table and the dynamic segment disagree: {'; '.join(context.disagreements)}",
            "trust the dynamic segment, and build the file again",
        )


@plugin_rule("AOTI451", "malformed-elf", "warning")
def malformed_elf(context: PluginContext) -> Iterator[RuleResult]:
    """Parts of the file are malformed.

    ## Why it matters
    The inspector could work around them; the dynamic linker may read them differently, refuse the file, or
    read out of bounds. An error where it is known to refuse the file, to crash on it, or to find none of its
    functions; the verdicts are "will not load" then.

    ## How it is checked
    Each offset, count and name that is read is checked against the file; what is out of bounds or
    inconsistent is listed.

    ## How to fix it
    The file was truncated, or damaged by a tool that rewrote it: restore it from the original.

    ## Reports it prevents
    Tracebacks, hangs, and empty results that look like a clean file.
    """
    elf = context.facts.elf
    anomalies = sorted(elf.anomalies, key=lambda sentence: sentence not in elf.unusable)
    if anomalies:
        yield RuleResult(
            f"is malformed in {counted(len(anomalies), 'place')}: {'; '.join(anomalies[:4])}"
            + (f"; and {len(anomalies) - 4} more" if len(anomalies) > 4 else ""),
            "the file was truncated or damaged by a tool that rewrote it: restore it from the original",
            severity="error" if elf.unusable else None,
        )


@plugin_rule("AOTI452", "no-section-table", "info")
def no_section_table(context: PluginContext) -> Iterator[RuleResult]:
    """The file has no section table.

    ## Why it matters
    It loads and runs without one. But `nm -D`, `readelf -V` and section-based auditors see nothing in it, and
    report success. Facts that only sections hold, such as where weights and debug information are, are less
    certain here, too.

    ## How it is checked
    The ELF header names no section table.

    ## How to fix it
    Nothing, if it was removed on purpose; do not rely on section-based tools for this file.

    ## Reports it prevents
    A wheel that is tagged for the oldest systems because the auditor found no symbols at all.
    """
    elf = context.facts.elf
    if elf.sections is None and elf.section_problem is None and elf.is_dynamic:
        yield RuleResult("has no section table: section-based tools see nothing in it and pass it")
