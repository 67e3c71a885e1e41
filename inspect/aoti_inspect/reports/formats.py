"""The formats of a report, by name: a new one is a module with a function ``render``, and a line here."""

from __future__ import annotations

from aoti_abi.records import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

    from aoti_inspect.auditing.result import ArtifactAudit, ExitCode
    from aoti_inspect.facts.target import Target

    Render = Callable[[list[ArtifactAudit], "Options"], str]

#: The module of `aoti_inspect.reports` that renders each format; imported when it is used.
FORMATS = {
    "text": "text",
    "concise": "concise",
    "json": "json_report",
    "json-lines": "json_lines",
}
DEFAULT_FORMAT = "text"


class Options(NamedTuple):
    """What a report needs besides the audits; each format uses the part that it has a use for.

    Attributes:
        target: what the artifacts were compared with.
        exit_code: of the command.
        info: whether to show findings of severity info.
        verbose: 1 adds details of findings and verdicts, 2 those of the file.
        quiet: whether to leave out all but findings, errors and what was not checked.
        color: whether to use terminal colours.
        width: columns of the terminal, which lines are broken to fit; None to leave lines whole.
    """

    target: Target
    exit_code: ExitCode
    info: bool = False
    verbose: int = 0
    quiet: bool = False
    color: bool = False
    width: int | None = None


def renderer(name: str) -> Render:
    """Return the function that renders a format of `FORMATS`; what it returns ends in a line break."""
    from importlib import import_module

    render: Render = import_module(f"{__package__}.{FORMATS[name]}").render
    return render
