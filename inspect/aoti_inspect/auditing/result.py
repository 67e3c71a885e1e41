"""The audit of one artifact: facts, verdicts, findings."""

from __future__ import annotations

from aoti_abi.errors import InternalError
from aoti_abi.records import TYPE_CHECKING, NamedTuple
from aoti_inspect.budget import TooComplex
from aoti_inspect.findings import SEVERITIES

if TYPE_CHECKING:
    from typing import Literal

    from aoti_abi.errors import AotiError
    from aoti_inspect.facts.records import PluginFacts
    from aoti_inspect.facts.target import Target
    from aoti_inspect.findings import Finding, HostVerdict, NotChecked, Severity

    ExitCode = Literal[0, 1, 2, 3]

#: The path that stands for standard input.
STDIN = "-"
#: The format of `aoti_inspect.reports.json_report`; a change that could break a reader raises it.
SCHEMA_VERSION: Literal[1] = 1


class Settings(NamedTuple):
    """What to check an artifact against.

    Attributes:
        target: the machine that it is meant for.
        hosts: the hosts to judge, as the user wrote them.
        required: those that it must load in: a verdict against one of them is an error, not information.
        second_view: whether to compare with the section-based view too, which costs a hundred milliseconds.
    """

    target: Target
    hosts: tuple[str, ...]
    required: frozenset[str] = frozenset()
    second_view: bool = False


class PluginAudit(NamedTuple):
    """One plugin, audited. ``findings`` are in the order of their codes, the highest severity first."""

    facts: PluginFacts
    findings: tuple[Finding, ...]
    not_checked: tuple[NotChecked, ...]
    verdicts: tuple[HostVerdict, ...]


class ArtifactAudit(NamedTuple):
    """One artifact, audited.

    Attributes:
        path: as it was given.
        kind: "plugin", "pt2", "pte", "ptd", "folder", "zip", ...; "unreadable" if ``error`` is set.
        plugins: the plugins in it.
        findings, not_checked: of the package as a whole.
        summary: ``(label, text)`` lines about the package (its methods, its weights), or what the second view
            shows of a plugin by itself.
        error: why it could not be read at all.
    """

    path: str
    kind: str
    plugins: tuple[PluginAudit, ...] = ()
    findings: tuple[Finding, ...] = ()
    not_checked: tuple[NotChecked, ...] = ()
    summary: tuple[tuple[str, str], ...] = ()
    error: AotiError | None = None

    def all_findings(self) -> tuple[Finding, ...]:
        """Return the findings of the package and of each plugin in it."""
        return self.findings + tuple(finding for plugin in self.plugins for finding in plugin.findings)

    def all_not_checked(self) -> tuple[NotChecked, ...]:
        """Return what could not be checked, of the package and of each plugin in it."""
        return self.not_checked + tuple(entry for plugin in self.plugins for entry in plugin.not_checked)


def exit_code(audits: list[ArtifactAudit], fail_on: Severity | None) -> ExitCode:
    """Return 2 if something was unreadable, else 1 for findings at or above ``fail_on``, else 3, else 0.

    What costs too much to read, and what a defect of the inspector kept from being read, was not checked.

    Args:
        audits: at least one.
        fail_on: the lowest severity that fails; None if findings never do.
    """
    errors = [audit.error for audit in audits if audit.error is not None]
    unchecked = [error for error in errors if isinstance(error, InternalError | TooComplex)]
    if len(unchecked) < len(errors):
        return 2
    if fail_on is not None:
        failing = SEVERITIES[SEVERITIES.index(fail_on) :]
        if any(finding.severity in failing for audit in audits for finding in audit.all_findings()):
            return 1
    return 3 if unchecked or any(audit.all_not_checked() for audit in audits) else 0


def by_gravity(findings: list[Finding]) -> tuple[Finding, ...]:
    """Order findings for people: errors first, then by code."""
    return tuple(sorted(findings, key=lambda finding: (-SEVERITIES.index(finding.severity), finding.code)))
