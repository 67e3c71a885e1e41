r"""The report for programs: one JSON document, described by ``schema/report.schema.json``.

Text from a file may hold bytes that are not UTF-8; they are written as ``\xff``, so that the document is
always valid.
"""

from __future__ import annotations

import json
import os

from aoti_abi.records import TYPE_CHECKING
from aoti_abi.release import VERSION
from aoti_inspect.reports.document import plain, report
from aoti_inspect.text import printable_json

if TYPE_CHECKING:
    from aoti_inspect.auditing.result import ArtifactAudit
    from aoti_inspect.reports.formats import Options


def render(audits: list[ArtifactAudit], options: Options) -> str:
    """Return the report as one line of JSON; it always has all details."""
    return dumps(report(audits, options.target, options.exit_code, VERSION)) + "\n"


def dumps(value: object) -> str:
    """Serialise records, or what holds them, in one line, with `printable_json`."""
    return printable_json(json.dumps(plain(value), ensure_ascii=False))


def schema_text() -> str:
    """Return the JSON schema of the report."""
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "schema", "report.schema.json")
    with open(path, encoding="utf-8") as stream:
        return stream.read()
