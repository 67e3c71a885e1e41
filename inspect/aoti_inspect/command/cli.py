"""The ``aoti-inspect`` command line: which command it is, and what becomes of errors.

Each command is a module of `aoti_inspect.command` with ``configure_parser`` and ``execute``, and a line in
`COMMANDS`. Each has a parser of its own, so that only the module of the command that runs is imported, and an
audit needs no name: sub-parsers of argparse have no default.

Exit codes: 0 nothing found, 1 findings at or above ``--fail-on``, 2 wrong usage or unreadable input, 3
something could not be checked.
"""

from __future__ import annotations

import argparse
import sys
from contextlib import suppress
from importlib import import_module

from aoti_abi.errors import AotiError
from aoti_abi.records import TYPE_CHECKING
from aoti_inspect.reports.terminal import HelpFormatter

if TYPE_CHECKING:
    from collections.abc import Sequence

#: The commands by their first word, and what each does.
COMMANDS = {
    "audit": "audit files; the word may be left out",
    "rule": "explain a finding; --all lists every rule",
    "facts": "print what can be read from any ELF file, as JSON",
    "schema": "print the JSON schema of the report",
}
_DEFAULT = "audit"


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return its exit code. Never raises for bad input."""
    arguments = sys.argv[1:] if argv is None else list(argv)
    try:
        return _run(arguments)
    except KeyboardInterrupt:
        return 130
    except AotiError as error:
        from aoti_inspect.text import printable_error

        # Standard error may be closed or full; the exit code says the same.
        with suppress(OSError):
            print(f"aoti-inspect: error: {printable_error(error)}", file=sys.stderr)
        return 2


def _run(arguments: list[str]) -> int:
    """Hand the arguments to the command that the first of them names; a file of that name is ``./NAME``."""
    named = arguments[0] if arguments and arguments[0] in COMMANDS else None
    name = named or _DEFAULT
    command = import_module(f"aoti_inspect.command.{name}")
    parser = argparse.ArgumentParser(
        prog=f"aoti-inspect {named}" if named else "aoti-inspect",
        description=f"{COMMANDS[name].capitalize()}.",
        formatter_class=HelpFormatter,
        allow_abbrev=False,
    )
    if named is None:
        parser.add_argument("--version", action=_Version, help="show the version and exit")
        rows = (f"  aoti-inspect {other:8}{text}" for other, text in COMMANDS.items())
        parser.epilog = "\n".join(("commands:", *rows))
    command.configure_parser(parser)
    result: int = command.execute(parser.parse_args(arguments[1:] if named else arguments))
    return result


class _Version(argparse.Action):
    """Show the version; it is looked up only then."""

    def __init__(self, option_strings: Sequence[str], dest: str, help: str | None = None) -> None:  # noqa: A002
        super().__init__(option_strings, dest, nargs=0, default=argparse.SUPPRESS, help=help)

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from aoti_abi.release import VERSION

        parser.exit(message=f"{parser.prog} {VERSION}\n")
