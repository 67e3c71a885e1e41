"""The audit of an artifact: each of its plugins, then the whole."""

from __future__ import annotations

from aoti_abi.errors import AotiError
from aoti_abi.records import TYPE_CHECKING
from aoti_inspect.artifacts.anomaly import Anomaly
from aoti_inspect.artifacts.facts import read_facts
from aoti_inspect.audit import ArtifactAudit, by_gravity
from aoti_inspect.plugin_audit import audit_plugin
from aoti_inspect.rules.package_scope import check_package

if TYPE_CHECKING:
    from aoti_inspect.artifacts.artifact import Artifact
    from aoti_inspect.audit import PluginAudit, Settings


def audit_artifact(artifact: Artifact, settings: Settings) -> ArtifactAudit:
    """Audit every plugin that can be read, and the artifact as a whole, which reports those that can't."""
    plugins: list[PluginAudit] = []
    for plugin in artifact.plugins:
        try:
            plugins.append(audit_plugin(read_facts(plugin), settings, artifact=artifact, entry=plugin))
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
