"""The audit of an artifact: each of its plugins, then the whole."""

from __future__ import annotations

from aoti_abi.errors import AotiError
from aoti_abi.records import TYPE_CHECKING
from aoti_inspect.artifacts.anomaly import Anomaly
from aoti_inspect.artifacts.facts import read_facts
from aoti_inspect.auditing.plugin import audit_plugin
from aoti_inspect.auditing.result import ArtifactAudit, by_gravity
from aoti_inspect.rules import package_rules
from aoti_inspect.rules.registry import PackageContext, run_rules

if TYPE_CHECKING:
    from aoti_inspect.artifacts.artifact import Artifact, Plugin
    from aoti_inspect.auditing.result import PluginAudit, Settings
    from aoti_inspect.facts.records import PluginFacts


def audit_artifact(artifact: Artifact, settings: Settings) -> ArtifactAudit:
    """Audit every plugin that can be read, and the artifact as a whole, which reports those that can't."""
    plugins: list[PluginAudit] = []
    for plugin in artifact.plugins:
        try:
            facts = read_facts(plugin)
            disagreements = _second_view(plugin, facts, settings)
            plugins.append(audit_plugin(facts, settings, disagreements, origin=plugin))
        except AotiError as error:  # noqa: PERF203 - the others are still to be audited
            message = f"{plugin.name}: {error.message}"
            artifact.anomalies += (Anomaly("unreadable-member", message, (plugin.name,)),)
    context = PackageContext(artifact, settings.target, tuple(audit.facts for audit in plugins))
    findings, not_checked = run_rules(context, package_rules())
    return ArtifactAudit(
        artifact.path,
        artifact.kind,
        tuple(plugins),
        by_gravity(findings),
        tuple(not_checked),
        artifact.summary,
    )


def _second_view(plugin: Plugin, facts: PluginFacts, settings: Settings) -> tuple[str, ...]:
    if not settings.second_view:
        return ()
    from aoti_inspect.facts.second_view import compare

    return compare(bytes(plugin.read()), facts.elf)
