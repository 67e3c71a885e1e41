"""Minor versions of PyTorch, ordered as numbers.

``"2.9" < "2.13"`` is false for strings, so every comparison of versions goes through `parse_version`.
"""

from __future__ import annotations

from functools import lru_cache

#: The minor versions whose headers and libraries the tables of this package were read from, oldest first.
KNOWN_TORCH: tuple[str, ...] = tuple(f"2.{minor}" for minor in range(2, 15))

#: The versions that a verdict is given for by default.
SUPPORTED_TORCH: tuple[str, ...] = tuple(f"2.{minor}" for minor in range(6, 15))


@lru_cache(maxsize=1024)
def parse_version(text: str) -> tuple[int, ...]:
    """Return the numeric parts of ``text`` (``"2.13"`` gives ``(2, 13)``, ``"3.4.30"`` gives ``(3, 4, 30)``).

    Raises:
        ValueError: a part is not a decimal number.
    """
    parts = text.split(".")
    if not all(part.isascii() and part.isdigit() for part in parts):
        raise ValueError(f"not a dotted version number: {text!r}")
    return tuple(map(int, parts))


def newest(versions: list[str]) -> str:
    """Return the highest of one or more dotted versions."""
    return max(versions, key=parse_version)
