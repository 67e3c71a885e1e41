"""The audit of an artifact: each of its plugins, then the whole."""

from __future__ import annotations

from aoti_abi.errors import AotiError
from aoti_abi.records import TYPE_CHECKING
from aoti_inspect.artifacts.anomaly import Anomaly
from aoti_inspect.artifacts.facts import read_facts
from aoti_inspect.audit import ArtifactAudit, PluginAudit, by_gravity
from aoti_inspect.hosts.verdicts import judge_all
from aoti_inspect.rules import all_rules
from aoti_inspect.rules.package_scope import check_package
from aoti_inspect.rules.registry import Context, run_rules

if TYPE_CHECKING:
    from aoti_inspect.artifacts.artifact import Artifact, Plugin
    from aoti_inspect.audit import Settings


def audit_artifact(artifact: Artifact, settings: Settings) -> ArtifactAudit:
    """Audit every plugin that can be read, and the artifact as a whole, which reports those that can't."""
    plugins: list[PluginAudit] = []
    for plugin in artifact.plugins:
        try:
            plugins.append(_audit_plugin(artifact, plugin, settings))
        except AotiError as error:  # noqa: PERF203 - the others are still to be audited
            message = f"{plugin.name}: {error.message}"
            artifact.anomalies += (Anomaly("unreadable-member", message, (plugin.name,)),)
    facts = tuple(audit.facts for audit in plugins)
    findings, not_checked = check_package(artifact, settings.target, facts)
    return ArtifactAudit(
        artifact.path,
        artifact.kind,
        tuple(plugins),
        by_gravity(findings),
        tuple(not_checked),
        artifact.summary,
    )


def _audit_plugin(artifact: Artifact, plugin: Plugin, settings: Settings) -> PluginAudit:
    facts = read_facts(plugin)
    verdicts = judge_all(facts, settings.hosts, settings.target)
    required = tuple(verdict for verdict in verdicts if verdict.host in settings.required)
    context = Context(facts, settings.target, required, artifact=artifact, entry=plugin)
    findings, not_checked = run_rules(context, all_rules())
    return PluginAudit(facts, by_gravity(findings), tuple(not_checked), verdicts)
