"""The report for programs that read line by line: each artifact of the JSON report on a line of its own."""

from __future__ import annotations

from aoti_abi.records import TYPE_CHECKING
from aoti_abi.release import VERSION
from aoti_inspect.reports.document import report
from aoti_inspect.reports.json_report import dumps

if TYPE_CHECKING:
    from aoti_inspect.auditing.result import ArtifactAudit
    from aoti_inspect.reports.formats import Options


def render(audits: list[ArtifactAudit], options: Options) -> str:
    """Return a line for each artifact: an element of ``artifacts`` in the report's schema."""
    whole = report(audits, options.target, options.exit_code, VERSION)
    return "".join(f"{dumps(artifact)}\n" for artifact in whole.artifacts)
