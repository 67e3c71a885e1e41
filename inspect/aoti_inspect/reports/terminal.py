"""Lines for a terminal: how wide it is, and breaking long lines between words."""

from __future__ import annotations

import argparse
import os
import sys

from aoti_abi.records import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import TextIO

#: Lines of help longer than this are hard to read, however wide the terminal is.
_WIDEST_HELP = 108
_DEFAULT_COLUMNS = 80
#: Terminals narrower than this are not worth breaking lines for.
_NARROWEST = 40
_HANG = 4


def columns(stream: TextIO | None) -> int | None:
    """Return the width of the terminal behind a stream, or None if there is none or its width is unknown."""
    try:
        if stream is None or not stream.isatty():
            return None
        width = os.get_terminal_size(stream.fileno()).columns
    except (OSError, ValueError):
        return None
    return width if width >= _NARROWEST else None


def wrapped(line: str, width: int, hang: int | None = None) -> list[str]:
    """Break a line between words, so that no part is wider than the terminal unless a word is.

    Args:
        line: text without line breaks; escape codes of colours take no room.
        width: columns.
        hang: the indentation of continuation lines; by default it follows from the line: below the text after
            its label if it has one (a run of spaces ends it), else a little deeper than the line itself.
    """
    if _width(line) <= width:
        return [line]
    indent = " " * (_hang(_plain(line), width) if hang is None else hang)
    lines: list[str] = []
    body = line.lstrip(" ")
    first, *words = body.split(" ")
    # The first word stays where it is: a break before it would leave an empty line.
    current = line[: len(line) - len(body)] + first
    for word in words:
        if word and _width(current) + 1 + _width(word) > width:
            lines.append(current.rstrip(" "))
            current = indent + word
        else:
            current = f"{current} {word}"
    return [*lines, current]


def _plain(text: str) -> str:
    """Return a line without its escape codes."""
    first, *rest = text.split("\x1b[")
    return first + "".join(part.partition("m")[2] for part in rest)


def _width(text: str) -> int:
    return len(_plain(text))


def _hang(line: str, width: int) -> int:
    indent = len(line) - len(line.lstrip(" "))
    label, gap, rest = line[indent:].partition("  ")
    if not gap and not rest:
        label, rest = "", line[indent:]
    text = rest.lstrip(" ")
    start = len(line) - len(text) + (2 if text.startswith("- ") else 0)
    if (label or text.startswith("- ")) and start <= width // 2:
        return start
    return indent + _HANG


class HelpFormatter(argparse.HelpFormatter):
    """Help as wide as the terminal; each line of a description is a paragraph.

    (Python's own formatter asks through shutil, which is imported on every run then.)
    """

    def __init__(self, prog: str) -> None:
        super().__init__(prog, width=min(columns(sys.stdout) or _DEFAULT_COLUMNS, _WIDEST_HELP + 2) - 2)

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        lines = (part for line in text.splitlines() for part in wrapped(indent + line, width, len(indent)))
        return "\n".join(lines)
