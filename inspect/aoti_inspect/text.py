"""Text from untrusted files, made safe to show."""

from __future__ import annotations

from aoti_abi.records import TYPE_CHECKING

if TYPE_CHECKING:
    from aoti_abi.errors import AotiError

_NAMED = {"\n": "\\n", "\r": "\\r", "\t": "\\t", "\\": "\\\\"}


def decode(raw: bytes) -> str:
    """Return ``raw`` as text; bytes that are not UTF-8 become lone surrogates, so that none is lost."""
    return raw.decode("utf-8", "surrogateescape")


def printable(text: str) -> str:
    r"""Return ``text`` with everything that a terminal could act on escaped.

    Control characters become ``\x1b``, undecodable bytes ``\xff``, other non-printing characters
    (bidirectional overrides, line separators) ``\u202e``. Printable text, in any script, is unchanged.
    """
    if text.isprintable() and "\\" not in text:
        return text
    out = []
    for char in text:
        code = ord(char)
        if char in _NAMED:
            out.append(_NAMED[char])
        elif 0xDC80 <= code <= 0xDCFF:
            out.append(f"\\x{code - 0xDC00:02x}")
        elif char.isprintable():
            out.append(char)
        elif code < 0x100:
            out.append(f"\\x{code:02x}")
        elif code < 0x10000:
            out.append(f"\\u{code:04x}")
        else:
            out.append(f"\\U{code:08x}")
    return "".join(out)


def printable_json(text: str) -> str:
    r"""Return a JSON document with everything that a terminal could act on escaped.

    JSON's own escapes keep every character as it is for a parser (``\u009b``, ``\u202e``), except for what no
    JSON text may hold: an undecodable byte is read back as the four characters ``\xff``, another surrogate as
    the six of ``\ud800``.
    """
    if text.isprintable():
        return text
    # A line break of the layout; inside of strings it is escaped already.
    return "".join(char if char.isprintable() or char == "\n" else _json_escape(char) for char in text)


def _json_escape(char: str) -> str:
    code = ord(char)
    if 0xD800 <= code <= 0xDFFF:
        # Inside of a JSON string the backslash itself is escaped.
        return f"\\{printable(char)}"
    raw = char.encode("utf-16-be").hex()
    return "".join(f"\\u{raw[at : at + 4]}" for at in range(0, len(raw), 4))


def printable_error(error: AotiError) -> str:
    """Return ``str(error)`` made safe to show; the only line break in it is the one before the hint."""
    text = printable(error.message)
    if error.path:
        text = f"{printable(error.path)}: {text}"
    if error.cause:
        text = f"{text} ({printable(error.cause)})"
    return f"{text}\nhint: {printable(error.hint)}" if error.hint else text
