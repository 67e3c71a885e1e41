"""``aoti-inspect schema``: the JSON schema of the report."""

from __future__ import annotations

from aoti_abi.records import TYPE_CHECKING

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace


def configure_parser(_parser: ArgumentParser) -> None:
    """Add nothing: ``schema`` takes no arguments."""


def execute(_options: Namespace) -> int:
    """Print the schema."""
    from aoti_inspect.command.output import write_standard_output
    from aoti_inspect.reports.json_report import schema_text

    write_standard_output(schema_text())
    return 0
