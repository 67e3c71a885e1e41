"""The audit of one plugin: its hosts judged, every rule evaluated."""

from __future__ import annotations

from aoti_abi.records import TYPE_CHECKING
from aoti_inspect.auditing.result import PluginAudit, by_gravity
from aoti_inspect.hosts.verdicts import judge_all
from aoti_inspect.rules import plugin_rules
from aoti_inspect.rules.registry import PluginContext, run_rules

if TYPE_CHECKING:
    from aoti_inspect.artifacts.plugin import ArtifactPlugin
    from aoti_inspect.auditing.result import Settings
    from aoti_inspect.budget import Budget
    from aoti_inspect.facts.records import PluginFacts


def audit_plugin(
    facts: PluginFacts,
    settings: Settings,
    disagreements: tuple[str, ...] = (),
    *,
    origin: ArtifactPlugin | None = None,
    budget: Budget | None = None,
) -> PluginAudit:
    """Judge the hosts and evaluate the rules.

    Args:
        facts: what was read of the plugin.
        settings: what to check it against.
        disagreements: what the section-based view says differently, if that was asked for.
        origin: the plugin in its package; None for a plugin by itself.
        budget: what it may still cost; by default that of a file of its own.
    """
    verdicts = judge_all(facts, settings.hosts, settings.target, None if budget is None else budget.part())
    required = tuple(verdict for verdict in verdicts if verdict.host in settings.required)
    context = PluginContext(facts, settings.target, required, disagreements, origin)
    findings, not_checked = run_rules(context, plugin_rules())
    return PluginAudit(facts, by_gravity(findings), tuple(not_checked), verdicts)
