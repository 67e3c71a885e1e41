"""The ``aoti-inspect`` command.

Report on standard output, progress and messages on standard error. Exit codes: 0 nothing found, 1 findings at
or above ``--fail-on``, 2 usage or unreadable input, 3 something could not be checked.
"""

from __future__ import annotations

import argparse
import os
import sys
from contextlib import suppress

from aoti_abi.errors import AotiError, InvalidArgument
from aoti_abi.records import TYPE_CHECKING
from aoti_abi.versions import SUPPORTED_TORCH
from aoti_inspect.auditing.result import Settings, exit_code
from aoti_inspect.findings import SEVERITIES
from aoti_inspect.reports.terminal import HelpFormatter, columns, wrapped

if TYPE_CHECKING:
    from aoti_inspect.auditing.result import ArtifactAudit
    from aoti_inspect.findings import Severity

VERSION = "0.1.0"
DEFAULT_HOSTS: tuple[str, ...] = ("builtin", *(f"torch=={v}" for v in SUPPORTED_TORCH), "executorch", "local")

_DESCRIPTION = """\
Audit AOTInductor plugins without loading them: what they export and need, in which hosts they will load, \
which features they will have there, and what to change. PATH is a plugin (.so), a package (.pt2, .pte, \
.ptd, .whl, .zip), a folder, a glob, or - for standard input."""

_EPILOG = """\
other commands:
  aoti-inspect rule CODE    explain a finding; --all lists every rule
  aoti-inspect facts FILE   print what can be read from any ELF file, as JSON
  aoti-inspect schema       print the JSON schema of the report

exit codes:
  0  nothing found at or above --fail-on, and everything was checked
  1  findings at or above --fail-on
  2  wrong usage, or an input that can't be read
  3  something could not be checked, which never counts as a pass

examples:
  aoti-inspect model.so
  aoti-inspect --host torch==2.13 --target glibc=2.35,isa=avx2 model.pt2
  aoti-inspect --format json exported/ > report.json
  aoti-inspect rule AOTI401"""


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="aoti-inspect",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=HelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("paths", nargs="*", metavar="PATH", help="what to audit")
    parser.add_argument("--version", action="version", version=f"aoti-inspect {VERSION}")
    parser.add_argument("--format", choices=("text", "concise", "json"), default="text", help="default: text")
    parser.add_argument("-o", "--output", metavar="FILE", help="write the report there, whole or not at all")
    parser.add_argument(
        "--host",
        action="append",
        default=[],
        metavar="HOST",
        help="a host it must load in: torch==X.Y, builtin, executorch, local (this machine), or the path of "
        "an ELF program or library; may be repeated; without it all known hosts are shown, none is required",
    )
    parser.add_argument(
        "--target",
        default="",
        metavar="KEY=VALUE,...",
        help="where it must run: glibc, glibcxx, cxxabi, machine, isa (joined by +), sm; `any` turns a check "
        "off (isa=any); default: this machine",
    )
    parser.add_argument(
        "--fail-on",
        choices=(*reversed(SEVERITIES), "never"),
        default="error",
        help="the mildest severity that makes the exit code 1 (default: error)",
    )
    parser.add_argument(
        "--second-view", action="store_true", help="read the section table too, and compare (slower)"
    )
    parser.add_argument("--extract", metavar="DIR", help="write the plugins and weights of packages into DIR")
    parser.add_argument("--color", choices=("auto", "always", "never"), default="auto", help="default: auto")
    parser.add_argument("-q", "--quiet", action="store_true", help="findings only")
    parser.add_argument(
        "-v",
        "--verbose",
        action="count",
        default=0,
        help="add findings of severity info, and symbols; twice: the file's details",
    )
    parser.add_argument(
        "-j", "--jobs", type=int, default=0, metavar="N", help="worker processes (default: by need)"
    )
    parser.add_argument("--no-progress", action="store_true", help="no progress line")
    return parser


def main(argv: list[str] | None = None) -> int:
    """Run the command; return its exit code. Never raises for bad input."""
    arguments = sys.argv[1:] if argv is None else argv
    try:
        return _run(arguments)
    except BrokenPipeError:
        # The reader (`| head`) went away: no error of ours. Python would complain at exit without this.
        from aoti_inspect.command.output import discard_standard_output

        discard_standard_output()
        return 0
    except KeyboardInterrupt:
        return 130
    except AotiError as error:
        from aoti_inspect.text import printable_error

        # Standard error may be closed or full; the exit code says the same.
        with suppress(OSError):
            print(f"aoti-inspect: error: {printable_error(error)}", file=sys.stderr)
        return 2


def _run(arguments: list[str]) -> int:
    if arguments and arguments[0] == "rule":
        return _explain(arguments[1:])
    if arguments and arguments[0] == "schema":
        from aoti_inspect.reports.json_report import schema_text

        if arguments[1:]:
            raise InvalidArgument(f"`schema` takes no arguments, and got {arguments[1]!r}")
        _write(schema_text())
        return 0
    if arguments and arguments[0] == "facts":
        return _facts(arguments[1:])
    parser = _parser()
    options = parser.parse_args(arguments)
    if not options.paths:
        parser.error("no PATH given; `aoti-inspect --help` shows what can be audited")
    if "" in (options.output, options.extract):
        parser.error("-o and --extract take a name; it is empty")
    settings = _settings(options)
    from aoti_inspect.auditing.result import STDIN
    from aoti_inspect.command.collect import collect

    paths = collect(options.paths)
    if options.extract and STDIN in paths:
        raise InvalidArgument("--extract cannot read standard input twice", hint="write it to a file first")
    audits = _audit_all(paths, settings, options)
    fail_on: Severity | None = None if options.fail_on == "never" else options.fail_on
    code = exit_code(audits, fail_on)
    text = _render(audits, settings, options, code)
    if options.output:
        from aoti_inspect.command.output import write_whole

        write_whole(options.output, text)
    else:
        _write(text)
    if options.extract:
        _extract(paths, options.extract)
    return code


def _write(text: str) -> None:
    from aoti_inspect.command.output import write_standard_output

    write_standard_output(text)


def _settings(options: argparse.Namespace) -> Settings:
    from aoti_inspect.facts.target import local_target, parse_target

    if options.jobs < 0:
        raise InvalidArgument(
            f"--jobs {options.jobs} is negative", hint="give the number of worker processes"
        )
    target = parse_target(options.target, local_target())
    hosts = tuple(dict.fromkeys(options.host)) or DEFAULT_HOSTS
    from aoti_inspect.hosts.verdicts import check_host_names

    check_host_names(hosts)
    return Settings(target, hosts, frozenset(options.host), second_view=options.second_view)


def _audit_all(paths: list[str], settings: Settings, options: argparse.Namespace) -> list[ArtifactAudit]:
    from aoti_inspect.auditing.many import audit_many

    shown = sys.stderr is not None and sys.stderr.isatty()
    progress = shown and not options.no_progress and not options.quiet
    audits = audit_many(paths, settings, jobs=options.jobs)
    if not progress:
        return list(audits)
    from aoti_inspect.command.progress import with_progress

    return list(with_progress(audits, len(paths), sys.stderr))


def _may_color() -> bool:
    return not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def _use_color(choice: str) -> bool:
    """Follow ``--color``, then NO_COLOR (no-color.org), then whether a terminal reads us."""
    if choice != "auto":
        return choice == "always"
    return _may_color() and sys.stdout is not None and sys.stdout.isatty()


def _render(audits: list[ArtifactAudit], settings: Settings, options: argparse.Namespace, code: int) -> str:
    if options.format == "json":
        from aoti_inspect.reports import json_report as report_json

        document = report_json.document(audits, version=VERSION, target=settings.target, code=code)
        return report_json.dumps(document) + "\n"
    from aoti_inspect.reports import text as report_text

    # What makes the exit code 1 is shown, whatever its severity.
    info = bool(options.verbose) or options.fail_on == "info"
    if options.format == "concise":
        found = (line for audit in audits for line in report_text.concise(audit, info=info))
        return "".join(f"{line}\n" for line in found)
    color = _use_color(options.color) and not options.output
    lines: list[str] = []
    for audit in audits:
        shown = report_text.render(
            audit, color=color, quiet=options.quiet, verbose=options.verbose, info=info
        )
        block = list(shown)
        if block and lines:
            lines.append("")
        lines += block
    if not options.quiet:
        lines += ["", report_text.summary(audits, color=color, info=info)]
    width = None if options.output else columns(sys.stdout)
    if width is not None:
        lines = [part for line in lines for part in wrapped(line, width)]
    return "".join(f"{line}\n" for line in lines)


def _extract(paths: list[str], directory: str) -> None:
    """Write the plugins of each artifact out, each artifact into a folder of its own if there are several."""
    from aoti_inspect.artifacts.extract import extract
    from aoti_inspect.artifacts.read import open_artifact
    from aoti_inspect.text import printable

    for number, path in enumerate(paths):
        target = directory if len(paths) == 1 else os.path.join(directory, f"{number:03}")
        with open_artifact(path) as artifact:
            for written in extract(artifact, target):
                with suppress(OSError):
                    print(f"wrote {printable(written)}", file=sys.stderr)


def _facts(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="aoti-inspect facts", description="Print the facts of one ELF file as JSON.", allow_abbrev=False
    )
    parser.add_argument("path")
    options = parser.parse_args(arguments)
    from aoti_inspect.facts.plugin import read_plugin
    from aoti_inspect.reports import json_report as report_json

    _write(report_json.dumps(report_json.facts(read_plugin(options.path))) + "\n")
    return 0


def _explain(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="aoti-inspect rule", description="Explain a rule.", allow_abbrev=False
    )
    parser.add_argument("code", nargs="?", help="a code (AOTI401) or a name (executable-stack)")
    parser.add_argument("--all", action="store_true", help="list every rule")
    parser.add_argument("--format", choices=("text", "json"), default="text")
    options = parser.parse_args(arguments)
    if bool(options.code) == options.all:
        parser.error("give one CODE, or --all")
    from aoti_inspect.rules import all_rules
    from aoti_inspect.rules.registry import find_rule

    rules = all_rules()
    chosen = [rules[code] for code in sorted(rules)] if options.all else [find_rule(options.code)]
    if options.format == "json":
        from aoti_inspect.reports.json_report import dumps

        text = dumps(
            [{"code": r.code, "name": r.name, "severity": r.severity, "page": r.page} for r in chosen]
        )
    elif options.all:
        text = "\n".join(
            f"{entry.code}  {entry.severity:7}  {entry.name:32}  {entry.page.splitlines()[0]}"
            for entry in chosen
        )
    else:
        entry = chosen[0]
        text = f"{entry.code} {entry.name} ({entry.severity})\n\n{entry.page}"
    _write(f"{text}\n")
    return 0
