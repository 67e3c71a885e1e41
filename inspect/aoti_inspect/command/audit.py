"""``aoti-inspect PATH...``: audit files. Report on standard output, progress on standard error."""

from __future__ import annotations

import os
import sys
from contextlib import suppress

from aoti_abi import hosts
from aoti_abi.errors import InvalidArgument
from aoti_abi.records import TYPE_CHECKING
from aoti_inspect.auditing.result import STDIN, exit_code
from aoti_inspect.findings import SEVERITIES
from aoti_inspect.reports.formats import DEFAULT_FORMAT, FORMATS, Options, renderer
from aoti_inspect.reports.terminal import columns

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

    from aoti_inspect.auditing.result import ArtifactAudit, ExitCode, Settings
    from aoti_inspect.findings import Severity

_DESCRIPTION = """\
Audit AOTInductor plugins without loading them: what they export and need, in which hosts they will load, \
which features they will have there, and what to change. PATH is a plugin (.so), a package (.pt2, .pte, \
.ptd, .whl, .zip), a folder, a glob, or - for standard input."""


_EPILOG = """\
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


def configure_parser(parser: ArgumentParser) -> None:
    """Add the arguments of an audit."""
    parser.description = _DESCRIPTION
    parser.epilog = "\n\n".join(filter(None, (parser.epilog, _EPILOG)))
    parser.add_argument("paths", nargs="*", metavar="PATH", help="what to audit")
    parser.add_argument(
        "--format", choices=tuple(FORMATS), default=DEFAULT_FORMAT, help=f"default: {DEFAULT_FORMAT}"
    )
    parser.add_argument(
        "-o", "--output", metavar="FILE", help="write the report to FILE, complete or not at all"
    )
    parser.add_argument(
        "--host",
        action="append",
        default=[],
        metavar="HOST",
        help=f"a host it must load in: {', '.join(hosts.spellings())}, local (this machine), or the path of "
        "an ELF program or library; may be repeated; without it all known hosts are shown, none is required",
    )
    parser.add_argument(
        "--target",
        default="",
        metavar="KEY=VALUE,...",
        help="where it must run: glibc, glibcxx, cxxabi, machine, isa (joined by +), sm, driver (NVIDIA's), "
        "cuda; `any` turns a check off (isa=any); default: this machine",
    )
    parser.add_argument(
        "--fail-on",
        choices=(*reversed(SEVERITIES), "never"),
        default="error",
        help="the lowest severity that makes the exit code 1 (default: error)",
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
        "-j",
        "--jobs",
        type=int,
        default=0,
        metavar="N",
        help="worker processes (default: by the number of files)",
    )
    parser.add_argument("--no-progress", action="store_true", help="no progress line")


def execute(options: Namespace) -> int:
    """Audit what the options name, and write the report; return the exit code."""
    from aoti_inspect.command.collect import collect
    from aoti_inspect.command.output import write_standard_output, write_whole

    if not options.paths:
        raise InvalidArgument("no PATH given", hint="`aoti-inspect --help` shows what can be audited")
    if "" in (options.output, options.extract):
        raise InvalidArgument("-o and --extract take a name, and got an empty one")
    settings = _settings(options)
    paths = collect(options.paths)
    if options.extract and STDIN in paths:
        raise InvalidArgument("--extract cannot read standard input twice", hint="write it to a file first")
    audits = _audit_all(paths, settings, options)
    text = _render(audits, settings, options)
    if options.output:
        write_whole(options.output, text)
    else:
        write_standard_output(text)
    if options.extract:
        _extract(paths, options.extract)
    return _exit_code(audits, options)


def _settings(options: Namespace) -> Settings:
    from aoti_inspect.auditing.audit import settings

    if options.jobs < 0:
        raise InvalidArgument(
            f"--jobs {options.jobs} is negative", hint="give the number of worker processes"
        )
    return settings(options.host, options.target, second_view=options.second_view)


def _audit_all(paths: list[str], settings: Settings, options: Namespace) -> list[ArtifactAudit]:
    from aoti_inspect.auditing.many import audit_many

    shown = sys.stderr is not None and sys.stderr.isatty()
    progress = shown and not options.no_progress and not options.quiet
    audits = audit_many(paths, settings, jobs=options.jobs)
    if not progress:
        return list(audits)
    from aoti_inspect.command.progress import with_progress

    return list(with_progress(audits, len(paths), sys.stderr))


def _exit_code(audits: list[ArtifactAudit], options: Namespace) -> ExitCode:
    fail_on: Severity | None = None if options.fail_on == "never" else options.fail_on
    return exit_code(audits, fail_on)


def _render(audits: list[ArtifactAudit], settings: Settings, options: Namespace) -> str:
    shown = Options(
        settings.target,
        _exit_code(audits, options),
        # What makes the exit code 1 is shown, whatever its severity.
        info=bool(options.verbose) or options.fail_on == "info",
        verbose=options.verbose,
        quiet=options.quiet,
        color=_use_color(options.color) and not options.output,
        width=None if options.output else columns(sys.stdout),
    )
    return renderer(options.format)(audits, shown)


def _may_color() -> bool:
    return not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def _use_color(choice: str) -> bool:
    """Follow ``--color``, then NO_COLOR (no-color.org), then whether a terminal reads us."""
    if choice != "auto":
        return choice == "always"
    return _may_color() and sys.stdout is not None and sys.stdout.isatty()


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
