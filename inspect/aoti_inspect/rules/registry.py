"""The list of rules: codes, names, pages, and how a rule is written.

A rule is a generator function under `rule`. Its docstring is its page: the first line says what was found,
the rest why it matters, how it is checked, and how to fix it. Codes go by hundreds: 1 container API, 2 C++
runtime, 3 host shims, 4 system, 5 GPU code, 6 package and weights, 7 security. A code is never reused.
"""

from __future__ import annotations

from aoti_abi.errors import NotFound
from aoti_abi.records import TYPE_CHECKING, NamedTuple
from aoti_inspect.findings import Finding, NotChecked

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from aoti_inspect.artifacts.artifact import Artifact
    from aoti_inspect.artifacts.plugin import ArtifactPlugin
    from aoti_inspect.facts.records import PluginFacts
    from aoti_inspect.facts.target import Target
    from aoti_inspect.findings import HostVerdict, Severity

    Check = Callable[["Context"], Iterator["Report | Unchecked"]]


class Context(NamedTuple):
    """What a rule looks at.

    Attributes:
        plugin: the facts of one plugin.
        target: where it is meant to run.
        verdicts: the hosts that it must load in, already judged.
        disagreements: where the section table tells another story than the dynamic view, one sentence each;
            empty also if nobody asked for that comparison.
        artifact: what the plugin came in, for rules about packages; None for a plugin by itself.
        entry: the plugin's place in the artifact; None where the rules look at the artifact as a whole.
        siblings: the facts of the artifact's plugins, where the rules look at it as a whole.
    """

    plugin: PluginFacts
    target: Target
    verdicts: tuple[HostVerdict, ...]
    disagreements: tuple[str, ...] = ()
    artifact: Artifact | None = None
    entry: ArtifactPlugin | None = None
    siblings: tuple[PluginFacts, ...] = ()


class Report(NamedTuple):
    """What a rule yields: a finding without the rule's own code and name.

    Attributes:
        message, help, symbols: as in `Finding`.
        severity: another severity than the rule's own, or None.
    """

    message: str
    help: str | None = None
    symbols: tuple[str, ...] = ()
    severity: Severity | None = None


class Unchecked(NamedTuple):
    """What a rule yields when it can't tell: why, and what would make it checkable."""

    reason: str


class Rule(NamedTuple):
    """One rule.

    Attributes:
        code, name: stable identifiers ("AOTI401", "executable-stack").
        severity: what its findings have unless the check says otherwise.
        check: the generator function.
    """

    code: str
    name: str
    severity: Severity
    check: Check

    @property
    def page(self) -> str:
        """The rule's documentation: the docstring of its check, unindented."""
        lines = (self.check.__doc__ or "").strip().splitlines()
        margin = min((len(line) - len(line.lstrip()) for line in lines[1:] if line.strip()), default=0)
        return "\n".join([lines[0], *(line[margin:] for line in lines[1:])]) if lines else ""


RULES: dict[str, Rule] = {}


def rule(code: str, name: str, severity: Severity) -> Callable[[Check], Check]:
    """Register the decorated generator function as a rule."""

    def register(check: Check) -> Check:
        if code in RULES or any(other.name == name for other in RULES.values()):
            raise ValueError(f"rule {code} ({name}) is registered twice")
        RULES[code] = Rule(code, name, severity, check)
        return check

    return register


def find_rule(text: str) -> Rule:
    """Return the rule with this code or name, in any case.

    Raises:
        NotFound: there is none; the hint names the closest.
    """
    wanted = text.strip().lower()
    for entry in RULES.values():
        if wanted in (entry.code.lower(), entry.name):
            return entry
    import difflib

    names = {label.lower(): label for entry in RULES.values() for label in (entry.code, entry.name)}
    close = difflib.get_close_matches(wanted, names, n=1)
    hint = "`aoti-inspect rule --all` lists every rule"
    if close:
        hint = f"did you mean {names[close[0]]}? {hint}"
    raise NotFound(f"no rule {text!r}", hint=hint)


def run_rules(context: Context, rules: dict[str, Rule]) -> tuple[list[Finding], list[NotChecked]]:
    """Evaluate rules in the order of their codes; return what they found and what they could not check."""
    findings: list[Finding] = []
    unchecked: list[NotChecked] = []
    for code in sorted(rules):
        entry = rules[code]
        for item in entry.check(context):
            if isinstance(item, Unchecked):
                unchecked.append(NotChecked(entry.code, entry.name, item.reason))
            else:
                findings.append(
                    Finding(
                        entry.code,
                        entry.name,
                        item.severity or entry.severity,
                        item.message,
                        item.help,
                        tuple(sorted(set(item.symbols))),
                    )
                )
    return findings, unchecked
