"""Read exported C functions from PyTorch's and ExecuTorch's headers.

Not a C++ parser: it knows what those headers are made of. Comments, string literals' contents, macros and
templates are passed over; what remains is looked through for declarations that carry an export macro.
"""

from __future__ import annotations

import re
from typing import NamedTuple

#: The macros that mark a function as exported, in the headers of PyTorch and of ExecuTorch.
EXPORT_MACROS = ("AOTI_TORCH_EXPORT", "AOTI_API", "AOTI_SHIM_EXPORT")

#: What a device's build defines, by the macro that guards its functions in a header for all devices.
_GUARDS = {"USE_CUDA": "cuda", "USE_ROCM": "cuda", "USE_XPU": "xpu", "USE_MPS": "mps"}

_TOKEN = re.compile(
    r"""//(?:\\\r?\n|[^\n])*          # a comment, to the end of its line
      | /\*.*?(?:\*/|\Z)              # a comment, over lines
      | "(?:\\.|[^"\\\n])*"           # a string, which may hold what looks like a comment
      | '(?:\\.|[^'\\\n])*'
    """,
    re.DOTALL | re.VERBOSE,
)
_ATTRIBUTE = re.compile(r"\[\[.*?\]\]|\b(?:__attribute__|__declspec|alignas)\s*\(", re.DOTALL)
_DECLARATION = re.compile(r"(?P<returned>[A-Za-z_][\w:<>\s*&]*?[\s*&])(?P<name>[A-Za-z_]\w*)\s*\(")
# What follows the parameters: a semicolon, a body, or a macro that makes the body.
_END = re.compile(r"\s*(?:noexcept\s*)?(?:[;{]|[A-Z][A-Z0-9_]*\s*\()")
_TEMPLATE = re.compile(r"\btemplate\s*<[^;{}]*>\s*\Z")
_CONDITION = re.compile(r"\s*#\s*(ifdef|ifndef|if|elif|else|endif)\b(.*)", re.DOTALL)


class Declaration(NamedTuple):
    """One exported function.

    Attributes:
        name: its C name.
        text: the declaration on one line, without macros, attributes, comments and semicolon.
        guard: the device whose build alone has it ("cuda"), from the ``#ifdef`` around it; else None.
    """

    name: str
    text: str
    guard: str | None


def without_comments(text: str) -> str:
    """Return C source with each comment replaced by a space; line breaks inside them are kept."""

    def replaced(match: re.Match[str]) -> str:
        token = match[0]
        return " " + "\n" * token.count("\n") if token.startswith("/") else token

    return _TOKEN.sub(replaced, text)


def _logical_lines(text: str) -> list[str]:
    return text.replace("\r\n", "\n").replace("\\\n", " ").split("\n")


class _Branch:
    """One open ``#if``: whether its lines are compiled at all, and for which device alone."""

    def __init__(self, kind: str, condition: str) -> None:
        self.live = True
        self.guard: str | None = None
        self.enter(kind, condition)

    def enter(self, kind: str, condition: str) -> None:
        words = re.findall(r"\w+", condition)
        self.live = not (kind in ("if", "elif") and condition.strip() == "0")
        positive = kind in ("ifdef", "if", "elif") and "!" not in condition
        self.guard = next((_GUARDS[word] for word in words if word in _GUARDS), None) if positive else None


def _guarded_lines(text: str) -> list[tuple[str, str | None]]:
    """Return the lines that a compiler may see, without directives, each with the device that guards it."""
    stack: list[_Branch] = []
    lines: list[tuple[str, str | None]] = []
    for line in _logical_lines(text):
        match = _CONDITION.match(line)
        if match:
            kind, condition = match[1], match[2]
            if kind.startswith("if"):
                stack.append(_Branch(kind, condition))
            elif kind == "endif":
                if stack:
                    stack.pop()
            elif stack:
                stack[-1].enter(kind, condition)
        elif not line.lstrip().startswith("#") and all(branch.live for branch in stack):
            guard = next((branch.guard for branch in reversed(stack) if branch.guard), None)
            lines.append((line, guard))
    return lines


def _closing(text: str, start: int, opening: str = "(", closing: str = ")") -> int:
    """Return the index after the bracket that closes the one at ``start``, or -1."""
    depth = 0
    for index in range(start, len(text)):
        if text[index] == opening:
            depth += 1
        elif text[index] == closing:
            depth -= 1
            if not depth:
                return index + 1
    return -1


def without_attributes(text: str) -> str:
    """Return source without ``[[...]]``, ``__attribute__((...))`` and ``__declspec(...)``."""
    parts, start = [], 0
    for match in _ATTRIBUTE.finditer(text):
        if match.start() < start:
            continue
        end = match.end() if match[0].startswith("[[") else _closing(text, match.end() - 1)
        if end < 0:
            break
        parts.append(text[start : match.start()])
        start = end
    return " ".join([*parts, text[start:]])


def _one_line(text: str) -> str:
    text = " ".join(text.split())
    return text.replace("( ", "(").replace(" )", ")").replace(" ,", ",").replace("(void)", "()")


def _declaration(text: str, guard: str | None) -> Declaration | None:
    """Return the function that is declared or defined at the start of ``text``."""
    match = _DECLARATION.match(text)
    if match is None:
        return None
    end = _closing(text, match.end() - 1)
    if end < 0 or not _END.match(text, end):
        return None
    return Declaration(match["name"], _one_line(text[:end]), guard)


def exported(text: str, macros: tuple[str, ...] = EXPORT_MACROS) -> list[Declaration]:
    """Return the functions of a header that carry an export macro, in their order.

    Args:
        text: the header.
        macros: the macros; a type may stand for them where a header marks nothing, as
            ``("AOTIRuntimeError",)``: it is then part of the declaration.
    """
    parts: list[str] = []
    guards: list[tuple[int, str | None]] = []
    length = 0
    for line, guard in _guarded_lines(without_comments(text)):
        guards.append((length, guard))
        parts.append(line + "\n")
        length += len(line) + 1
    body = "".join(parts)
    found = []
    position = 0
    for match in re.finditer(rf"\b(?:{'|'.join(map(re.escape, macros))})\b", body):
        while position + 1 < len(guards) and guards[position + 1][0] <= match.start():
            position += 1
        if _TEMPLATE.search(body, max(0, match.start() - 400), match.start()):
            continue
        start = match.start() if match[0] not in EXPORT_MACROS else match.end()
        rest = without_attributes(body[start : start + 8000]).lstrip()
        declaration = _declaration(rest, guards[position][1])
        if declaration is not None:
            found.append(declaration)
    return found
