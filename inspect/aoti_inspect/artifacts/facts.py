"""From a plugin in an artifact to its facts, without unpacking it."""

from __future__ import annotations

import os

from aoti_abi.errors import AccessFailed, AotiError
from aoti_abi.records import TYPE_CHECKING
from aoti_inspect.elf.image import ElfImage
from aoti_inspect.elf.source import BufferSource, FileSource
from aoti_inspect.facts.plugin import plugin_facts

if TYPE_CHECKING:
    from aoti_inspect.artifacts.artifact import Plugin
    from aoti_inspect.elf.source import Source
    from aoti_inspect.facts.inputs import InputSpec
    from aoti_inspect.facts.records import PluginFacts


def read_facts(plugin: Plugin) -> PluginFacts:
    """Read a plugin's facts where it lies: in place if it is stored, from memory if it is compressed.

    Raises:
        AotiError: it can't be had, or is no shared library; see `Plugin.read` and `ElfImage.facts`.
    """
    try:
        metadata = plugin.metadata()
    except AotiError:
        metadata = None
    if plugin.location is None:
        return _facts(plugin, BufferSource(plugin.read()), metadata)
    place = plugin.location
    try:
        descriptor = os.open(place.path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise AccessFailed("the file can't be opened", path=place.path, cause=error.strerror) from None
    try:
        source = FileSource(descriptor, place.size, start=place.offset, name=plugin.name)
        return _facts(plugin, source, metadata)
    finally:
        os.close(descriptor)


def _facts(plugin: Plugin, source: Source, metadata: dict[str, str] | None) -> PluginFacts:
    image = ElfImage(source, plugin.name)
    return plugin_facts(image, metadata=metadata, sources=read_sources(plugin), inputs=inputs_of(plugin))


def read_sources(plugin: Plugin) -> tuple[bytes, ...]:
    """Return the C++ that Inductor packed beside a plugin; empty if it can't be had, since it only adds."""
    try:
        return tuple(bytes(text) for text in plugin.sources())
    except AotiError:
        return ()


def inputs_of(plugin: Plugin) -> tuple[InputSpec, ...]:
    """Return what the program that a plugin lies in says of its inputs."""
    return () if plugin.delegate is None else plugin.delegate.inputs
