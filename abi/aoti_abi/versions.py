"""Minor versions of PyTorch, ordered as numbers.

``"2.9" < "2.13"`` is false for strings, so every comparison of versions goes through `parse_version`. Which
versions there are is read from the first line of the shims' table: nothing else names the newest one.
"""

from __future__ import annotations

import os
from functools import lru_cache

#: The tables of this package; `docs/tables.md` says how they are made.
DATA = os.path.join(os.path.dirname(os.path.abspath(__file__)), "data")


def scanned_releases(table: str) -> tuple[str, ...]:
    """Return the releases that a table of `DATA` was made from (``"2.9.1"``), oldest first."""
    with open(os.path.join(DATA, table), "rb") as stream:
        return tuple(stream.readline().decode("ascii").split()[2:])


#: The minor versions whose headers the tables of this package were read from, oldest first.
KNOWN_TORCH: tuple[str, ...] = tuple(release.rpartition(".")[0] for release in scanned_releases("shims.tsv"))

#: The versions that a verdict is given for by default: the host API of older ones lacks what plugins need.
SUPPORTED_TORCH: tuple[str, ...] = KNOWN_TORCH[KNOWN_TORCH.index("2.6") :]


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
