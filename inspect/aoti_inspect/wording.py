"""Names in sentences: how many there are, and the first few."""

from __future__ import annotations

from aoti_abi.records import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

#: How many names a sentence lists before it says "and N more"; a finding's ``symbols`` has them all.
SHOWN = 4
#: How much of a name a sentence shows; mangled names of templates run to thousands of characters.
_LONGEST = 72


def listed(names: Sequence[str], shown: int = SHOWN) -> str:
    """Return ``"a, b and c"``, or ``"a, b, c, d and 7 more"`` if there are more than ``shown``."""
    rest = len(names) - shown if len(names) > shown + 1 else 0
    shorter = [
        name if len(name) <= _LONGEST else f"{name[: _LONGEST - 3]}..."
        for name in (names[:shown] if rest else names)
    ]
    if rest:
        return f"{', '.join(shorter)} and {rest} more"
    return " and ".join(filter(None, (", ".join(shorter[:-1]), *shorter[-1:])))


def some(names: Sequence[str]) -> str:
    """Return the first three names, quoted, and how many there are besides."""
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return ", ".join(repr(name) for name in names[:3]) + more


def counted(number: int, noun: str, plural: str | None = None) -> str:
    """Return ``"1 symbol"`` or ``"3 symbols"``."""
    return f"{number} {noun if number == 1 else plural or noun + 's'}"


def sized(size: int) -> str:
    """Return a number of bytes for people: ``"2688 bytes"``, ``"1.5 MiB"``."""
    if size < 10_000:
        return counted(size, "byte")
    scaled, unit = float(size), "bytes"
    for unit in ("KiB", "MiB", "GiB"):  # noqa: B007 - the last one tried is the answer
        scaled /= 1024
        if scaled < 1024:
            break
    return f"{scaled:.1f} {unit}"
