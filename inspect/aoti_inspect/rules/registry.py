"""How a rule is written, what it looks at, and the two tables that rules register in.

A rule is a generator function under `plugin_rule` or `package_rule`. Its docstring is its page: the first
line says what was found, the rest why it matters, how it is checked, and how to fix it. The first digit of a
code is its subject: 1 container API, 2 C++ runtime, 3 host functions, 4 system, 5 GPU code, 6 packages and
weights, 7 security. A code is never reused.
"""

from __future__ import annotations

from aoti_abi.errors import NotFound
from aoti_abi.records import TYPE_CHECKING, NamedTuple
from aoti_inspect.findings import Finding, NotChecked

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from aoti_inspect.artifacts.artifact import Artifact
    from aoti_inspect.artifacts.package_fact import FactKind, PackageFact
    from aoti_inspect.artifacts.plugin import ArtifactPlugin
    from aoti_inspect.facts.records import PluginFacts
    from aoti_inspect.facts.target import Target
    from aoti_inspect.findings import HostVerdict, Severity

    Results = Iterator["RuleResult"] | Iterator["RuleResult | Unchecked"]
    PluginCheck = Callable[["PluginContext"], Results]
    PackageCheck = Callable[["PackageContext"], Results]


class PluginContext(NamedTuple):
    """What a rule about a plugin looks at.

    Attributes:
        facts: what was read of the plugin.
        target: where it is meant to run.
        verdicts: the hosts that it must load in, already judged.
        disagreements: where the section table contradicts the dynamic segment, one sentence each; empty also
            if that comparison was not asked for.
        origin: the plugin in its artifact, with what comes with it (weights, operators, variant); None for a
            plugin by itself.
    """

    facts: PluginFacts
    target: Target
    verdicts: tuple[HostVerdict, ...] = ()
    disagreements: tuple[str, ...] = ()
    origin: ArtifactPlugin | None = None


class PackageContext(NamedTuple):
    """What a rule about a package as a whole looks at.

    Attributes:
        artifact: the package, open.
        target: where it is meant to run.
        plugins: the facts of those of its plugins that could be read.
        unread: those that could not: name, and why.
    """

    artifact: Artifact
    target: Target
    plugins: tuple[PluginFacts, ...] = ()
    unread: tuple[tuple[str, str], ...] = ()

    def noted(self, *kinds: FactKind) -> tuple[PackageFact, ...]:
        """Return what readers noted of these kinds, in the order of the kinds."""
        return tuple(fact for kind in kinds for fact in self.artifact.facts if fact.kind == kind)


class RuleResult(NamedTuple):
    """What a rule yields: a finding without the rule's own code and name.

    Attributes:
        message, remedy, symbols: as in `Finding`.
        severity: another severity than the rule's own, or None.
    """

    message: str
    remedy: str | None = None
    symbols: tuple[str, ...] = ()
    severity: Severity | None = None


def about(
    fact: PackageFact, message: str, remedy: str | None = None, severity: Severity | None = None
) -> RuleResult:
    """Return the finding about what a reader noted; of an artifact within another it says which."""
    return RuleResult(f"{fact.within}: {message}" if fact.within else message, remedy, fact.names, severity)


class Unchecked(NamedTuple):
    """What a rule yields when it cannot decide: why, and what would make it checkable."""

    reason: str


class Rule(NamedTuple):
    """One rule.

    Attributes:
        code, name: stable identifiers ("AOTI401", "executable-stack").
        severity: what its findings have unless the check says otherwise.
        check: the generator function; it takes the context of the table that the rule is in.
    """

    code: str
    name: str
    severity: Severity
    check: Callable[..., Results]

    @property
    def page(self) -> str:
        """The rule's documentation: the docstring of its check, unindented."""
        lines = (self.check.__doc__ or "").strip().splitlines()
        margin = min((len(line) - len(line.lstrip()) for line in lines[1:] if line.strip()), default=0)
        return "\n".join([lines[0], *(line[margin:] for line in lines[1:])]) if lines else ""


#: The rules by code, as far as their modules are imported: ask `aoti_inspect.rules` for all of them.
PLUGIN_RULES: dict[str, Rule] = {}
PACKAGE_RULES: dict[str, Rule] = {}


def plugin_rule(code: str, name: str, severity: Severity) -> Callable[[PluginCheck], PluginCheck]:
    """Register the decorated generator function as a rule about a plugin, alone or in its package."""

    def register(check: PluginCheck) -> PluginCheck:
        _register(PLUGIN_RULES, Rule(code, name, severity, check))
        return check

    return register


def package_rule(code: str, name: str, severity: Severity) -> Callable[[PackageCheck], PackageCheck]:
    """Register the decorated generator function as a rule about a package as a whole."""

    def register(check: PackageCheck) -> PackageCheck:
        _register(PACKAGE_RULES, Rule(code, name, severity, check))
        return check

    return register


def _register(table: dict[str, Rule], rule: Rule) -> None:
    for other in (*PLUGIN_RULES.values(), *PACKAGE_RULES.values()):
        if rule.code == other.code or rule.name == other.name:
            raise ValueError(f"rule {rule.code} ({rule.name}) is registered twice")
    table[rule.code] = rule


def find_rule(text: str, rules: Mapping[str, Rule]) -> Rule:
    """Return the rule with this code or name, in any case.

    Raises:
        NotFound: there is none; the hint names the closest.
    """
    wanted = text.strip().lower()
    for rule in rules.values():
        if wanted in (rule.code.lower(), rule.name):
            return rule
    import difflib

    names = {label.lower(): label for rule in rules.values() for label in (rule.code, rule.name)}
    close = difflib.get_close_matches(wanted, names, n=1)
    hint = "`aoti-inspect rule --all` lists every rule"
    if close:
        hint = f"did you mean {names[close[0]]}? {hint}"
    raise NotFound(f"no rule {text!r}", hint=hint)


def run_rules(
    context: PluginContext | PackageContext, rules: Mapping[str, Rule]
) -> tuple[list[Finding], list[NotChecked]]:
    """Evaluate rules in their order; return what they found and what they could not check.

    Args:
        context: what they look at.
        rules: `aoti_inspect.rules.plugin_rules` for a `PluginContext`, ``package_rules`` for the other.
    """
    findings: list[Finding] = []
    unchecked: list[NotChecked] = []
    for rule in rules.values():
        for item in rule.check(context):
            if isinstance(item, Unchecked):
                unchecked.append(NotChecked(rule.code, rule.name, item.reason))
            else:
                findings.append(
                    Finding(
                        rule.code,
                        rule.name,
                        item.severity or rule.severity,
                        item.message,
                        item.remedy,
                        tuple(sorted(set(item.symbols))),
                    )
                )
    return findings, unchecked
