"""The audit of an artifact: each of its plugins, then the whole."""

from __future__ import annotations

from aoti_abi.errors import AotiError
from aoti_abi.records import TYPE_CHECKING
from aoti_inspect.artifacts.facts import facts_of
from aoti_inspect.auditing.plugin import audit_plugin
from aoti_inspect.auditing.result import ArtifactAudit, by_gravity
from aoti_inspect.budget import Budget, TooComplex
from aoti_inspect.facts.imports import PROXY_EXECUTOR
from aoti_inspect.facts.processor import encodings_beyond
from aoti_inspect.findings import TOO_COMPLEX_CODE, TOO_COMPLEX_NAME, NotChecked

if TYPE_CHECKING:
    from aoti_inspect.artifacts.artifact import Artifact
    from aoti_inspect.artifacts.plugin import ArtifactPlugin
    from aoti_inspect.auditing.result import PluginAudit, Settings
    from aoti_inspect.facts.records import PluginFacts
    from aoti_inspect.findings import Finding

#: What the rules and verdicts of one plugin cost, beside what reading it does.
_STEPS_PER_PLUGIN = 3000


def audit_artifact(artifact: Artifact, settings: Settings) -> ArtifactAudit:
    """Audit every plugin that can be read, and the artifact as a whole, which reports those that can't.

    Raises:
        AotiError: the artifact is a plugin by itself, and can't be read.
    """
    plugins: list[PluginAudit] = []
    unread: list[tuple[str, str]] = []
    encodings = encodings_beyond(settings.target)
    not_checked: list[NotChecked] = []
    summary = artifact.summary
    budget = artifact.budget or Budget(sum(plugin.size for plugin in artifact.plugins))
    for plugin in artifact.plugins:
        try:
            if artifact.kind != "plugin":
                budget.spend(_STEPS_PER_PLUGIN, f"the audit of {len(artifact.plugins)} plugins")
            facts = facts_of(plugin, encodings=encodings)
            disagreements, rows = _second_view(plugin, facts, settings)
            summary += rows if artifact.kind == "plugin" else ()
            audited = audit_plugin(facts, settings, disagreements, origin=plugin, budget=budget)
            if artifact.facts:
                from aoti_inspect.auditing.package_hosts import refuse_layout

                audited = audited._replace(verdicts=refuse_layout(audited.verdicts, artifact))
            plugins.append(audited)
        except TooComplex as error:  # noqa: PERF203 - the others are still to be audited
            if artifact.kind == "plugin":
                raise
            budget.give_up(f"{plugin.name}: {error.message}")
            if not budget.left:
                break
        except AotiError as error:
            if artifact.kind == "plugin":
                raise
            unread.append((plugin.name, error.message))
        except Exception as error:
            if artifact.kind == "plugin":
                raise
            from aoti_inspect.auditing.failures import internal_error

            budget.give_up(f"{plugin.name}: {internal_error(error)}")
    facts_of_all = tuple(audit.facts for audit in plugins)
    findings: list[Finding] = []
    if artifact.kind != "plugin" or any(_is_package(artifact, facts) for facts in facts_of_all):
        from aoti_inspect.rules import package_rules
        from aoti_inspect.rules.registry import PackageContext, run_rules

        findings, not_checked = run_rules(
            PackageContext(artifact, settings.target, facts_of_all, tuple(unread)), package_rules()
        )
    not_checked += [NotChecked(TOO_COMPLEX_CODE, TOO_COMPLEX_NAME, reason) for reason in budget.given_up]
    return ArtifactAudit(
        artifact.path,
        artifact.kind,
        tuple(plugins),
        by_gravity(findings),
        tuple(not_checked),
        summary,
    )


def _is_package(artifact: Artifact, facts: PluginFacts) -> bool:
    """Whether rules about packages may find something; a plain plugin does not pay for importing them."""
    plugin = artifact.plugins[0] if artifact.kind == "plugin" else None
    return (
        plugin is None
        or bool(artifact.facts)
        or plugin.weights.kind != "none"
        or plugin.extern_nodes is not None
        or facts.imports.has(PROXY_EXECUTOR)
    )


def _second_view(
    plugin: ArtifactPlugin, facts: PluginFacts, settings: Settings
) -> tuple[tuple[str, ...], tuple[tuple[str, str], ...]]:
    """Return where sections and dynamic linker disagree, and what only the sections tell."""
    if not settings.second_view:
        return (), ()
    from aoti_inspect.facts.second_view import look

    whole = plugin.location is not None and plugin.location.path == plugin.name
    seen = look(plugin.name if whole else bytes(plugin.read()), facts.elf)
    return seen.disagreements, seen.rows()
