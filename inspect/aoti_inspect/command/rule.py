"""``aoti-inspect rule``: explain a rule, or list all of them."""

from __future__ import annotations

from aoti_abi.records import TYPE_CHECKING

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace


def configure_parser(parser: ArgumentParser) -> None:
    """Add the arguments of ``rule``."""
    wanted = parser.add_mutually_exclusive_group(required=True)
    wanted.add_argument(
        "code", nargs="?", metavar="CODE", help="a code (AOTI401) or a name (executable-stack)"
    )
    wanted.add_argument("--all", action="store_true", help="list every rule")
    parser.add_argument("--format", choices=("text", "json"), default="text", help="default: text")


def execute(options: Namespace) -> int:
    """Print the page of a rule, or the list of rules."""
    from aoti_inspect.command.output import write_standard_output
    from aoti_inspect.rules import all_rules
    from aoti_inspect.rules.registry import find_rule

    rules = all_rules()
    chosen = list(rules.values()) if options.all else [find_rule(options.code, rules)]
    if options.format == "json":
        from aoti_inspect.reports.json_report import dumps

        text = dumps(
            [{"code": r.code, "name": r.name, "severity": r.severity, "page": r.page} for r in chosen]
        )
    elif options.all:
        text = "\n".join(
            f"{rule.code}  {rule.severity:7}  {rule.name:32}  {rule.page.splitlines()[0]}" for rule in chosen
        )
    else:
        (rule,) = chosen
        text = f"{rule.code} {rule.name} ({rule.severity})\n\n{rule.page}"
    write_standard_output(f"{text}\n")
    return 0
