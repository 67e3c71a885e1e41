"""Rules AOTI210 and AOTI211: versions of the C++ runtime that a target lacks."""

from __future__ import annotations

from aoti_abi.records import TYPE_CHECKING
from aoti_inspect.facts.releases import CXXABI_GCC, GLIBCXX_GCC
from aoti_inspect.facts.version_needs import newer_than
from aoti_inspect.rules.newer_versions import reports
from aoti_inspect.rules.registry import plugin_rule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aoti_inspect.rules.registry import PluginContext, RuleResult

_FIX = "compile with an older GCC, or install a newer libstdc++.so.6 where it runs: it is backward compatible"


def _gcc(table: dict[str, str], number: str) -> str | None:
    release = table.get(number)
    return f"GCC {release}" if release else None


@plugin_rule("AOTI210", "glibcxx-too-new", "error")
def glibcxx_too_new(context: PluginContext) -> Iterator[RuleResult]:
    """The plugin needs a `GLIBCXX_` version that the target's libstdc++ lacks.

    ## Why it matters
    The dynamic linker refuses the library at load, however seldom the symbol is used.

    ## How it is checked
    DT_VERNEED is compared with the target's newest version (`--target glibcxx=3.4.30`), as numbers. The
    symbols that are bound to each version are named, and the GCC release that brought it.

    ## How to fix it
    Compile with the GCC of the oldest system that must load it, or ship a newer `libstdc++.so.6`.

    ## Reports it prevents
    "version `GLIBCXX_3.4.30' not found", the commonest report about binaries built on a newer system.
    """
    limit = context.target.glibcxx
    if limit is not None:
        found = newer_than(context.facts, "GLIBCXX_", limit)
        yield from reports(
            found, "libstdc++, GLIBCXX_", limit, lambda number: _gcc(GLIBCXX_GCC, number), _FIX
        )


@plugin_rule("AOTI211", "cxxabi-too-new", "error")
def cxxabi_too_new(context: PluginContext) -> Iterator[RuleResult]:
    """The plugin needs a `CXXABI_` version that the target's libstdc++ lacks.

    ## Why it matters
    As for AOTI210: the library does not load. The language's own support (exceptions, RTTI, guards) is
    versioned apart from the standard library.

    ## How it is checked
    DT_VERNEED is compared with `--target cxxabi=1.3.13`, as numbers.

    ## How to fix it
    Compile with the GCC of the oldest system that must load it, or ship a newer `libstdc++.so.6`.

    ## Reports it prevents
    "version `CXXABI_1.3.15' not found" after an upgrade of the build machine.
    """
    limit = context.target.cxxabi
    if limit is not None:
        found = newer_than(context.facts, "CXXABI_", limit)
        yield from reports(found, "libstdc++, CXXABI_", limit, lambda number: _gcc(CXXABI_GCC, number), _FIX)
