"""The host API: every ``aoti_torch_*`` and ``torch_*`` C function, by the PyTorch that exports it.

``tools/scan_torch.py`` reads it from the headers of every version in `aoti_abi.versions.KNOWN_TORCH`
(``torch/csrc/inductor/aoti_torch/c``, ``.../generated`` and ``torch/csrc/stable/c``). Where the libraries
were compared, on Linux, what the headers declare is exactly what they export. The names are read on first
use (a third of a millisecond), the declarations only when asked for.
"""

from __future__ import annotations

import os
from bisect import bisect_left
from functools import lru_cache

from aoti_abi.records import NamedTuple
from aoti_abi.versions import DATA, KNOWN_TORCH, newest, parse_version

#: Whose build of PyTorch exports a shim: every build ("common"), or the one for a device.
DEVICES: tuple[str, ...] = ("common", "cpu", "cuda", "xpu", "mps")


class Shim(NamedTuple):
    """One function of the host API.

    Attributes:
        name: the exported C name.
        first: the first PyTorch that exports it, as ``"2.4"``.
        last: the last one; the newest known version if it is still there.
        device: one of `DEVICES`; "cpu" shims are in every build, as libtorch_cpu is.
        gaps: versions between ``first`` and ``last`` that lack it.
        changed: versions in which its declaration became another one.
    """

    name: str
    first: str
    last: str
    device: str
    gaps: tuple[str, ...]
    changed: tuple[str, ...]

    def available_in(self, version: str) -> bool:
        """Whether this PyTorch exports it; ``version`` is a minor version as ``"2.13"``."""
        number = parse_version(version)
        return parse_version(self.first) <= number <= parse_version(self.last) and version not in self.gaps


@lru_cache(maxsize=1)
def _lines() -> list[bytes]:
    return _table("shims.tsv")


@lru_cache(maxsize=1)
def _signature_lines() -> list[bytes]:
    return _table("signatures.tsv")


def _table(name: str) -> list[bytes]:
    """Return the lines of a table, sorted by name, without its first."""
    with open(os.path.join(DATA, name), "rb") as stream:
        stream.readline()
        return stream.read().splitlines()


def _find(lines: list[bytes], name: str) -> list[str] | None:
    """Return the fields of a name's line; a tab sorts before every character of a name."""
    index = bisect_left(lines, name.encode("ascii", "replace") + b"\t")
    if index == len(lines):
        return None
    fields = lines[index].decode("ascii").split("\t")
    return fields if fields[0] == name else None


def _split(text: str) -> tuple[str, ...]:
    return tuple(text.split(",")) if text else ()


def _shim(fields: list[str]) -> Shim:
    name, first, last, device, gaps, changed = fields
    return Shim(name, first, last or KNOWN_TORCH[-1], device, _split(gaps), _split(changed))


@lru_cache(maxsize=4096)
def lookup(name: str) -> Shim | None:
    """Return what is known of a shim, or None if no PyTorch of `KNOWN_TORCH` exports that name."""
    fields = _find(_lines(), name)
    if fields is None:
        return None
    return _shim(fields)


def available_in(name: str, version: str) -> bool:
    """Whether some build of this minor version of PyTorch (``"2.13"``) exports a shim of this name."""
    shim = lookup(name)
    return shim is not None and shim.available_in(version)


def versions_with(name: str) -> tuple[str, ...]:
    """Return the known versions of PyTorch that export a shim, oldest first; none for an unknown name."""
    shim = lookup(name)
    return tuple(version for version in KNOWN_TORCH if shim is not None and shim.available_in(version))


def names_in(version: str, devices: tuple[str, ...] = ("common", "cpu")) -> frozenset[str]:
    """Return every shim that a build of PyTorch exports.

    Args:
        version: a minor version, as ``"2.13"``.
        devices: which of `DEVICES` the build covers; add "cuda" for a CUDA build.

    Raises:
        ValueError: ``version`` is not one of `aoti_abi.versions.KNOWN_TORCH`.
    """
    if version not in KNOWN_TORCH:
        raise ValueError(f"no table for PyTorch {version}; known: {KNOWN_TORCH[0]} to {KNOWN_TORCH[-1]}")
    found = []
    for line in _lines():
        shim = _shim(line.decode("ascii").split("\t"))
        if shim.device in devices and shim.available_in(version):
            found.append(shim.name)
    return frozenset(found)


def all_names() -> tuple[str, ...]:
    """Return every name of the catalogue, sorted."""
    return tuple(line.partition(b"\t")[0].decode("ascii") for line in _lines())


def signature(name: str, version: str | None = None) -> str | None:
    """Return the C declaration of a shim without its semicolon, or None for an unknown name.

    Args:
        name: the shim.
        version: which PyTorch's declaration; the newest if not given.
    """
    fields = _find(_signature_lines(), name)
    if fields is None:
        return None
    text = fields[1]
    for since, declaration in zip(fields[2::2], fields[3::2], strict=True):
        if version is None or parse_version(since) <= parse_version(version):
            text = declaration
    return text


def skew(name: str) -> str | None:
    """Explain a missing shim whose name belongs to a ``_vN`` family or whose range of versions is not whole.

    Returns:
        One sentence, as "aoti_torch_create_tensor_from_blob_v2 came with PyTorch 2.4; an older host has only
        aoti_torch_create_tensor_from_blob"; None if the catalogue has nothing to add to the bare name.
    """
    base, number = _split_version(name)
    shim = lookup(name)
    older = [_family_name(base, n) for n in range(number - 1, 0, -1)] if number <= len(KNOWN_TORCH) else []
    relatives = [found for found in map(lookup, older) if found is not None]
    if shim is None:
        if relatives:
            return (
                f"{name} is in no PyTorch up to {KNOWN_TORCH[-1]}, which has {relatives[0].name}: "
                "the plugin was compiled by a newer one, or by a fork"
            )
        return None
    if relatives:
        return (
            f"{name} came with PyTorch {shim.first}; an older host has only {relatives[0].name}, "
            f"since {relatives[0].first}"
        )
    if parse_version(shim.last) < parse_version(KNOWN_TORCH[-1]):
        newer = [_family_name(base, n) for n in range(number + 1, number + 4)]
        successor = next((other for other in newer if lookup(other)), None)
        instead = f"; newer hosts have {successor}" if successor else ""
        return f"{name} was removed after PyTorch {shim.last}{instead}"
    if shim.gaps:
        return f"{name} is missing from PyTorch {', '.join(shim.gaps)}, though {shim.first} had it"
    return None


def _split_version(name: str) -> tuple[str, int]:
    """Return the stem and the number of a name that ends in ``_vN``; any other is its own version 1."""
    # Without `re`, which costs more to import than the whole catalogue to read.
    base, _, digits = name.rpartition("_v")
    if base and digits.isascii() and digits.isdigit() and len(digits) < 10:
        return base, int(digits)
    return name, 1


def _family_name(base: str, number: int) -> str:
    return base if number == 1 else f"{base}_v{number}"


def first_with_all(names: list[str]) -> str | None:
    """Return the oldest PyTorch that exports every one of these shims, or None if no known version does."""
    shims = [lookup(name) for name in names]
    if not shims or any(shim is None for shim in shims):
        return None
    start = newest([shim.first for shim in shims if shim is not None])
    for version in KNOWN_TORCH[KNOWN_TORCH.index(start) :]:
        if all(shim is not None and shim.available_in(version) for shim in shims):
            return version
    return None
