"""Which names inside a package are safe to turn into paths."""

from __future__ import annotations

_DEVICE_NAMES = frozenset(
    ("con", "prn", "aux", "nul", *(f"{port}{digit}" for port in ("com", "lpt") for digit in "123456789"))
)


def unsafe_reason(name: str) -> str | None:
    """Return why extracting a member under its own name could write elsewhere, or None if it could not."""
    if not name:
        return "it is empty"
    if "\0" in name:
        return "it contains NUL, where C programs see its end"
    if name.startswith(("/", "\\")):
        return "it is absolute"
    if len(name) > 1 and name[1] == ":" and name[0].isascii() and name[0].isalpha():
        return "it names a drive"
    parts = name.replace("\\", "/").split("/")
    if ".." in parts:
        return "it climbs out of its folder with '..'"
    if "\\" in name:
        return "it contains a backslash, which Windows takes for a separator"
    return None


def has_control(name: str) -> bool:
    """Whether a name has a line break or another control character of ASCII in it."""
    return any(char < " " or char == "\x7f" for char in name)


def safe_file_name(text: str, fallback: str) -> str:
    """Return a file name that resembles ``text``: at most 80 ASCII letters, digits and ``._-``."""
    kept = "".join(
        char if (char.isascii() and char.isalnum()) or char in "._-" else "_" for char in text[:80]
    )
    kept = kept.lstrip(".-")
    if not kept.strip("_") or kept.split(".")[0].lower() in _DEVICE_NAMES:
        return fallback
    return kept
