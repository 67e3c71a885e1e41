"""From a plugin that was found to its facts, read where it lies."""

from __future__ import annotations

from aoti_abi.errors import AotiError
from aoti_abi.records import TYPE_CHECKING
from aoti_inspect.artifacts.so_file import open_so_file
from aoti_inspect.elf.image import ElfImage
from aoti_inspect.facts.plugin import plugin_facts

if TYPE_CHECKING:
    from aoti_inspect.artifacts.plugin import ArtifactPlugin
    from aoti_inspect.facts.instruction_sets import Encoding
    from aoti_inspect.facts.records import PluginFacts
    from aoti_inspect.source import Source


def facts_of(
    plugin: ArtifactPlugin, source: Source | None = None, *, encodings: tuple[Encoding, ...] = ()
) -> PluginFacts:
    """Read a plugin's facts: in place if it is stored, from memory if it is compressed.

    Args:
        plugin: of an open artifact.
        source: its bytes, for who has opened them already.
        encodings: the instructions to look for in its code, as `plugin_facts` takes them.

    Raises:
        AotiError: it can't be had, or is no shared library; see `ArtifactPlugin.open_source` and
            `ElfImage.facts`.
    """
    if source is None:
        with plugin.open_source() as opened:
            return facts_of(plugin, opened, encodings=encodings)
    image = ElfImage(source, plugin.name)
    for problem in plugin.metadata_problems:
        image.note(problem)
    return plugin_facts(
        image,
        metadata=plugin.metadata,
        sources=_sources(plugin),
        inputs=() if plugin.delegate is None else plugin.delegate.inputs,
        encodings=encodings,
    )


def read_facts(path: str) -> PluginFacts:
    """Read the facts of a plugin that is a file of its own, with the metadata beside it, if they are there.

    Raises:
        AotiError: as `aoti_inspect.source.open_file` and `ElfImage.facts`.
    """
    with open_so_file(path) as artifact:
        return facts_of(artifact.plugins[0])


def _sources(plugin: ArtifactPlugin) -> tuple[bytes, ...]:
    """Return the C++ that Inductor left beside a plugin; empty if it can't be had, since it only adds."""
    try:
        return tuple(bytes(text) for text in plugin.sources)
    except AotiError:
        return ()
