"""The report for tools that read lines: one line for each finding."""

from __future__ import annotations

from aoti_abi.records import TYPE_CHECKING
from aoti_inspect.text import printable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aoti_inspect.auditing.result import ArtifactAudit
    from aoti_inspect.reports.formats import Options


def render(audits: list[ArtifactAudit], options: Options) -> str:
    """Return ``path: CODE severity: message`` lines."""
    return "".join(f"{line}\n" for audit in audits for line in _lines(audit, options))


def _lines(audit: ArtifactAudit, options: Options) -> Iterator[str]:
    if audit.error is not None:
        yield f"{printable(audit.path)}: unreadable: {printable(audit.error.message)}"
    named = [(audit.path, finding) for finding in audit.findings]
    named += [(plugin.facts.name, finding) for plugin in audit.plugins for finding in plugin.findings]
    for name, finding in named:
        if options.info or finding.severity != "info":
            yield f"{printable(name)}: {finding.code} {finding.severity}: {printable(finding.message)}"
    for entry in audit.all_not_checked():
        yield f"{printable(audit.path)}: {entry.code} not checked: {printable(entry.reason)}"
