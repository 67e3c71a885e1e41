"""Symbol versions that a target lacks."""

from __future__ import annotations

from aoti_abi.records import TYPE_CHECKING, NamedTuple
from aoti_abi.versions import parse_version

if TYPE_CHECKING:
    from aoti_inspect.elf.records import VersionNeed
    from aoti_inspect.facts.records import PluginFacts


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
