"""Which PyTorch compiled a plugin: its exports give a range, its imports narrow it."""

from __future__ import annotations

from aoti_abi.container_api import compiled_by
from aoti_abi.records import TYPE_CHECKING, NamedTuple
from aoti_abi.versions import newest, parse_version
from aoti_inspect.facts import imports

if TYPE_CHECKING:
    from aoti_inspect.facts.records import PluginFacts


class Fingerprint(NamedTuple):
    """What the exports and imports tell.

    Attributes:
        oldest, newest: the range of PyTorch versions.
        missing, unknown: as in `aoti_abi.container_api.Compiler`.
        newer_shims: imported shims that came after ``newest``, sorted: parts of two versions were mixed.
    """

    oldest: str
    newest: str
    missing: tuple[str, ...]
    unknown: tuple[str, ...]
    newer_shims: tuple[str, ...]

    @property
    def range(self) -> str:
        """The range for people: ``"2.13"`` or ``"2.10 to 2.12"``."""
        return self.oldest if self.oldest == self.newest else f"{self.oldest} to {self.newest}"


def fingerprint(plugin: PluginFacts) -> Fingerprint | None:
    """Return which PyTorch compiled ``plugin``, or None if it exports no known container function."""
    compiler = compiled_by(frozenset(plugin.elf.exports.container))
    if compiler is None:
        return None
    oldest, newer = compiler.oldest, []
    if compiler.newest != compiler.oldest or imports.names(plugin, "shim"):
        from aoti_abi.shim_catalogue import lookup

        for name in imports.names(plugin, "shim"):
            shim = lookup(name)
            if shim is None:
                continue
            if parse_version(shim.first) > parse_version(compiler.newest):
                newer.append(name)
            else:
                oldest = newest([oldest, shim.first])
    return Fingerprint(oldest, compiler.newest, compiler.missing, compiler.unknown, tuple(newer))
