"""The tables of shims as text: one line a function, with the releases that have it.

A table's first line names what was scanned, release by release; every other line has the function's name, the
first minor version with it, the last one (empty while the newest still has it), and what else is known of it.
The tables are written from, and read back into, one mapping by minor version, so that a release can be added
or scanned anew without the others.
"""

from __future__ import annotations

import re
from typing import NamedTuple


class Shim(NamedTuple):
    """One function as one release declares it: ``device`` as in `aoti_abi.shim_catalogue.DEVICES`."""

    device: str
    text: str


class Scan(NamedTuple):
    """What one release has: its full version ("2.9.1") and its functions by name."""

    release: str
    shims: dict[str, Shim]


def minor(release: str) -> str:
    """Return ``"2.9"`` for ``"2.9.1"``."""
    return ".".join(release.split(".")[:2])


def number(version: str) -> tuple[int, ...]:
    """Return a version as numbers, for comparison."""
    return tuple(map(int, version.split(".")))


def ordered(scans: dict[str, Scan]) -> list[str]:
    """Return the minor versions, oldest first."""
    return sorted(scans, key=number)


def _header(product: str, scans: dict[str, Scan]) -> str:
    return "\t".join((f"# {product}", *(scans[version].release for version in ordered(scans))))


def _releases(table: str, product: str) -> dict[str, str]:
    """Return the release by minor version, from a table's first line."""
    title, *releases = table.partition("\n")[0].split("\t")
    if title != f"# {product}" or not releases:
        raise ValueError(f"not a table of {product}: its first line is {title!r}")
    return {minor(release): release for release in releases}


def types_of(declaration: str) -> str:
    """Return a declaration without the names of its parameters, which no caller sees."""
    head, _, rest = declaration.partition("(")
    parts, depth = [""], 0
    for char in rest.removesuffix(")"):
        depth += (char == "(") - (char == ")")
        if char == "," and not depth:
            parts.append("")
        else:
            parts[-1] += char
    bare = [part if "(" in part else re.sub(r"(?<=[\s*&])\w+\s*\Z", "", part) for part in parts]
    return re.sub(r"\s*([*&])\s*", r"\1", f"{head}({','.join(part.strip() for part in bare)})")


def _spans(present: list[str], versions: list[str]) -> tuple[str, str, str]:
    """Return the columns first, last and gaps."""
    first, last = present[0], present[-1]
    between = versions[versions.index(first) : versions.index(last)]
    gaps = ",".join(version for version in between if version not in present)
    return first, "" if last == versions[-1] else last, gaps


def _present(fields: list[str], versions: list[str]) -> list[str]:
    first, last, gaps = fields
    span = versions[versions.index(first) : versions.index(last or versions[-1]) + 1]
    return [version for version in span if version not in gaps.split(",")]


def _declarations(texts: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return each declaration with the version since which it holds, in the words of the newest header."""
    rows: list[tuple[str, str]] = []
    for version, text in texts:
        if rows and types_of(rows[-1][1]) == types_of(text):
            rows[-1] = (rows[-1][0], text)
        else:
            rows.append((version, text))
    return rows


def host_tables(scans: dict[str, Scan]) -> tuple[str, str]:
    """Return ``shims.tsv`` and ``signatures.tsv`` of PyTorch's releases.

    Args:
        scans: what each release has, by minor version.
    """
    versions = ordered(scans)
    shims = [_header("PyTorch", scans)]
    signatures = [_header("PyTorch", scans)]
    for name in sorted({name for scan in scans.values() for name in scan.shims}):
        present = [version for version in versions if name in scans[version].shims]
        first, last, gaps = _spans(present, versions)
        rows = _declarations([(version, scans[version].shims[name].text) for version in present])
        changed = ",".join(version for version, _ in rows[1:])
        device = scans[present[-1]].shims[name].device
        shims.append(f"{name}\t{first}\t{last}\t{device}\t{gaps}\t{changed}")
        fields = [name, rows[0][1], *(field for row in rows[1:] for field in row)]
        signatures.append("\t".join(fields))
    return "\n".join(shims) + "\n", "\n".join(signatures) + "\n"


def read_host_tables(shims: str, signatures: str) -> dict[str, Scan]:
    """Return what each release has, from the two tables of PyTorch.

    Raises:
        ValueError: they are not such tables, or do not belong together.
    """
    releases = _releases(shims, "PyTorch")
    if releases != _releases(signatures, "PyTorch"):
        raise ValueError("shims.tsv and signatures.tsv name different releases")
    versions = list(releases)
    scans = {version: Scan(release, {}) for version, release in releases.items()}
    for line, texts in zip(shims.splitlines()[1:], signatures.splitlines()[1:], strict=True):
        name, first, last, device, gaps, changed = line.split("\t")
        same, text, *rest = texts.split("\t")
        changes = dict(zip(rest[::2], rest[1::2], strict=True))
        if same != name or ",".join(changes) != changed:
            raise ValueError(f"shims.tsv and signatures.tsv differ on {name}")
        for version in _present([first, last, gaps], versions):
            text = changes.get(version, text)
            scans[version].shims[name] = Shim(device, text)
    return scans


def slim_table(scans: dict[str, Scan]) -> str:
    """Return ``executorch_shims.tsv``: the functions that each release of its CUDA backend offers."""
    versions = ordered(scans)
    lines = [_header("ExecuTorch", scans)]
    for name in sorted({name for scan in scans.values() for name in scan.shims}):
        present = [version for version in versions if name in scans[version].shims]
        lines.append("\t".join((name, *_spans(present, versions))))
    return "\n".join(lines) + "\n"


def read_slim_table(table: str) -> dict[str, Scan]:
    """Return what each release of ExecuTorch offers, from ``executorch_shims.tsv``."""
    releases = _releases(table, "ExecuTorch")
    scans = {version: Scan(release, {}) for version, release in releases.items()}
    for line in table.splitlines()[1:]:
        name, *fields = line.split("\t")
        for version in _present(fields, list(releases)):
            scans[version].shims[name] = Shim("", "")
    return scans
