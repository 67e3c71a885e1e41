"""Compare `aoti_abi.container_api` with what a release of PyTorch declares and pastes into plugins."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shim_tables import minor, number, types_of

from aoti_abi.container_api import CONTAINER_API, PREFIX

if TYPE_CHECKING:
    from releases import Release


def _row(name: str, declaration: str, version: str) -> str:
    parameters = declaration.partition("(")[2].removesuffix(")")
    return f'_f("{name}", "{version}", "{parameters}"),'


def differences(release: Release) -> list[str]:
    """Return what to change in container_api.py, a sentence for each function; empty if it agrees.

    What a plugin exports is what interface.cpp defines; the header may declare more, or have declared it
    earlier. Functions that only some plugins have (``generated``) are in neither for certain.
    """
    version = minor(release.scan.release)
    found = []
    for name in sorted(release.emitted | release.declared.keys()):
        if not name.startswith(PREFIX):
            continue
        row = CONTAINER_API.get(name)
        text = release.declared.get(name)
        if row is None:
            if name in release.emitted:
                found.append(f"{name} is not in the table; add: {_row(name, text or '', version)}")
            continue
        if name in release.emitted and number(row.since) > number(version):
            found.append(f"{name} is emitted by {version} already; the table says since {row.since}")
        if text is not None and types_of(text) != types_of(row.signature):
            found.append(f"{name} is declared as {text}; the table has {row.signature}")
    for row in CONTAINER_API.values():
        expected = number(row.since) <= number(version) and not row.generated
        if expected and row.name not in release.emitted:
            found.append(f"{row.name} is no longer emitted by {version}; the table says since {row.since}")
    return found
