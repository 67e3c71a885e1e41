"""How rules word the symbol versions that a target lacks."""

from __future__ import annotations

from aoti_abi.records import TYPE_CHECKING
from aoti_inspect.rules.registry import RuleResult
from aoti_inspect.wording import counted, listed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from aoti_inspect.facts.version_needs import Newer


def reports(
    found: list[Newer], what: str, limit: str, first: Callable[[str], str | None], fix: str
) -> Iterator[RuleResult]:
    """Word one report for the needs that must be met, and a milder one for those that need not.

    Args:
        found: the needs beyond the target, newest first.
        what: what lacks them ("glibc").
        limit: what the target has.
        first: what first had a version, for people; None if that is not known.
        fix: the help line.
    """
    for weak in (False, True):
        group = [item for item in found if item.need.weak is weak]
        if not group:
            continue
        reasons = []
        for item in group:
            origin = first(item.number)
            why = (
                f"for {listed(item.need.symbols)}" if item.need.symbols else "though no symbol is bound to it"
            )
            reasons.append(f"{item.need.version}{f' ({origin})' if origin else ''} {why}")
        symbols = [symbol for item in group for symbol in item.need.symbols]
        yield RuleResult(
            f"needs {counted(len(group), 'version')} newer than the target's {what}{limit}: "
            f"{'; '.join(reasons)}" + ("; all of them weak, so it loads with a warning" if weak else ""),
            fix,
            tuple(symbols) or tuple(item.need.version for item in group),
            "info" if weak else None,
        )
