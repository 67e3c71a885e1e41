"""``aoti-inspect facts``: what can be read from any ELF file, as JSON."""

from __future__ import annotations

from aoti_abi.records import TYPE_CHECKING

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace


def configure_parser(parser: ArgumentParser) -> None:
    """Add the argument of ``facts``."""
    parser.add_argument("path", metavar="FILE", help="an ELF file, plugin or not")


def execute(options: Namespace) -> int:
    """Print the facts of one file."""
    from aoti_inspect.artifacts.facts import read_facts
    from aoti_inspect.command.output import write_standard_output
    from aoti_inspect.reports.document import facts_of
    from aoti_inspect.reports.json_report import dumps

    write_standard_output(f"{dumps(facts_of(read_facts(options.path)))}\n")
    return 0
