"""Symbol versions that a target lacks, with the symbols that need them."""

from __future__ import annotations

from aoti_abi.records import TYPE_CHECKING, NamedTuple
from aoti_abi.versions import parse_version
from aoti_inspect.rules.registry import Report
from aoti_inspect.rules.wording import counted, listed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from aoti_inspect.facts import PluginFacts, VersionNeed


class Newer(NamedTuple):
    """One need beyond the target: the number of its version, and the need."""

    number: str
    need: VersionNeed


def number_of(version: str, prefix: str) -> str | None:
    """Return ``"2.38"`` for ``"GLIBC_2.38"``; None for another prefix or a version without a number."""
    text = version.removeprefix(prefix)
    if text == version or not text or not all(part.isascii() and part.isdigit() for part in text.split(".")):
        return None
    # A hostile file may name a version of a million digits, which int() refuses.
    return text if len(text) <= 40 else None


def newer_than(plugin: PluginFacts, prefix: str, limit: str) -> list[Newer]:
    """Return the needs whose version is above ``limit``, the newest first."""
    bound = parse_version(limit)
    found = []
    for need in plugin.elf.version_needs:
        number = number_of(need.version, prefix)
        if number is not None and parse_version(number) > bound:
            found.append(Newer(number, need))
    return sorted(found, key=lambda item: parse_version(item.number), reverse=True)


def reports(
    found: list[Newer], what: str, limit: str, first: Callable[[str], str | None], fix: str
) -> Iterator[Report]:
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
        yield Report(
            f"needs {counted(len(group), 'version')} newer than the target's {what}{limit}: "
            f"{'; '.join(reasons)}" + ("; all of them weak, so it loads with a warning" if weak else ""),
            fix,
            tuple(symbols) or tuple(item.need.version for item in group),
            "info" if weak else None,
        )
