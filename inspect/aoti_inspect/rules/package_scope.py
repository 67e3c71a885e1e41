"""How rules about packages word what a reader noted: an anomaly has the name of the rule that reports it."""

from __future__ import annotations

from aoti_abi.records import TYPE_CHECKING
from aoti_inspect.rules.registry import RuleResult

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aoti_inspect.rules.registry import PackageContext


def of_package(context: PackageContext, kind: str, fix: str) -> Iterator[RuleResult]:
    """Yield the artifact's anomalies of one kind."""
    for anomaly in context.artifact.anomalies:
        if anomaly.code_hint == kind:
            yield RuleResult(anomaly.message, fix, anomaly.names)
