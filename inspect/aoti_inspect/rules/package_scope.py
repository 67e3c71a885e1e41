"""How rules about packages find what they report.

Rules run once for each plugin, with its place in the artifact as ``context.entry``, and once for the artifact
as a whole, without one. What a reader noted is an anomaly with the name of the rule that reports it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from aoti_inspect.rules.registry import Context, Report, run_rules

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aoti_inspect.artifacts.artifact import Artifact
    from aoti_inspect.facts.records import PluginFacts
    from aoti_inspect.facts.target import Target
    from aoti_inspect.findings import Finding, NotChecked

#: Modules whose rules may look at an artifact as a whole.
_MODULES = ("package", "package_weights", "package_program", "package_security")


def of_package(context: Context, kind: str, fix: str) -> Iterator[Report]:
    """Yield the artifact's anomalies of one kind, where the artifact is looked at as a whole."""
    if context.artifact is not None and context.entry is None:
        for anomaly in context.artifact.anomalies:
            if anomaly.code_hint == kind:
                yield Report(anomaly.message, fix, anomaly.names)


def check_package(
    artifact: Artifact, target: Target, plugins: tuple[PluginFacts, ...]
) -> tuple[list[Finding], list[NotChecked]]:
    """Evaluate the rules about an artifact as a whole.

    Args:
        artifact: open.
        target: where it is meant to run.
        plugins: the facts of those of its plugins that could be read.
    """
    from importlib import import_module

    from aoti_inspect.rules.registry import RULES

    modules = [import_module(f"aoti_inspect.rules.{name}").__name__ for name in _MODULES]
    rules = {code: entry for code, entry in RULES.items() if entry.check.__module__ in modules}
    # These rules look at no plugin unless there is an entry for it, and here there is none.
    nothing = cast("PluginFacts", None)
    return run_rules(Context(nothing, target, (), artifact=artifact, siblings=plugins), rules)
