"""Everything about one plugin file."""

from __future__ import annotations

import os

from aoti_abi.errors import AotiError, NotFound
from aoti_abi.records import TYPE_CHECKING
from aoti_inspect.elf.read import open_elf, open_regular
from aoti_inspect.facts.cxx_runtime import find_cxx_runtime
from aoti_inspect.facts.gpu_code import find_cubin_paths, find_gpu_code
from aoti_inspect.facts.imports import Imports
from aoti_inspect.facts.inputs import find_inputs
from aoti_inspect.facts.openmp import find_safe_team
from aoti_inspect.facts.records import PluginFacts
from aoti_inspect.facts.weights import find_weights

if TYPE_CHECKING:
    from collections.abc import Iterable

    from aoti_inspect.elf.image import ElfImage
    from aoti_inspect.facts.inputs import InputSpec

#: What Inductor calls the metadata of ``STEM.so``: beside ``aot_compile``'s result, and for the wrapper.
_SIDECARS = ("_metadata.json", ".wrapper_metadata.json")
_MAX_SIDECAR = 1 << 20
_MAX_SOURCE = 64 << 20


def read_plugin(path: str) -> PluginFacts:
    """Read a plugin, and the metadata that Inductor wrote beside it, if it is there.

    Raises:
        AotiError: as `open_elf` and `ElfImage.facts`.
    """
    with open_elf(path) as image:
        return plugin_facts(image, metadata=_read_sidecar(image, path), sources=_read_source(path))


def plugin_facts(
    image: ElfImage,
    *,
    metadata: dict[str, str] | None,
    sources: Iterable[bytes] = (),
    inputs: tuple[InputSpec, ...] = (),
) -> PluginFacts:
    """Collect everything about the plugin behind an open image.

    Args:
        image: the file.
        metadata: what Inductor's metadata JSON says; None if there is none.
        sources: the C++ that Inductor generated for it, if that is there.
        inputs: what the program that calls it says of its inputs; empty if nothing does.

    Raises:
        AotiError: as `ElfImage.facts`.
    """
    elf = image.facts()
    weights = find_weights(image)
    imports = Imports(elf)
    gpu = find_gpu_code(image, imports)
    runtime, static = find_cxx_runtime(image, elf)
    facts = PluginFacts(
        name=image.name,
        # What was noted since belongs to the file as well.
        elf=elf._replace(anomalies=image.anomalies),
        gpu=gpu,
        weights=weights,
        cxx_runtime=runtime,
        cxx_runtime_static=static,
        metadata=metadata,
        cubin_paths=() if gpu else find_cubin_paths(image, imports),
        inputs=inputs or find_inputs(image, weights, sources),
        openmp_team=find_safe_team(elf, sources),
    )
    facts.remember(imports)
    return facts


def parse_metadata(raw: bytes) -> dict[str, str] | str:
    """Decode Inductor's metadata JSON: an object; values that are no strings are kept as JSON.

    Returns:
        The keys and values, or what is wrong with the bytes, as the end of a sentence.
    """
    import json

    try:
        value = json.loads(raw)
        if not isinstance(value, dict):
            return "is JSON, but not an object"
        return {key: item if isinstance(item, str) else json.dumps(item) for key, item in value.items()}
    except ValueError as error:
        return f"is not JSON: {error}"
    except RecursionError as error:
        return f"nests too deeply: {error}"


def _read_source(path: str) -> tuple[bytes, ...]:
    """Return the wrapper's C++ beside a plugin; it only adds to what is known, so no error matters."""
    try:
        with open(open_regular(os.path.splitext(path)[0] + ".cpp"), "rb") as stream:
            text = stream.read(_MAX_SOURCE + 1)
    except (AotiError, OSError):
        return ()
    return (text,) if len(text) <= _MAX_SOURCE else ()


def _read_sidecar(image: ElfImage, path: str) -> dict[str, str] | None:
    stem = os.path.splitext(path)[0]
    for suffix in _SIDECARS:
        sidecar = stem + suffix
        try:
            with open(open_regular(sidecar), "rb") as stream:
                raw = stream.read(_MAX_SIDECAR + 1)
        except NotFound:
            continue
        except (AotiError, OSError) as error:
            reason = error.message if isinstance(error, AotiError) else error.strerror
            image.note(f"the metadata beside the plugin ({sidecar}) cannot be read: {reason}")
            continue
        if len(raw) > _MAX_SIDECAR:
            image.note(f"the metadata beside the plugin ({sidecar}) has more than {_MAX_SIDECAR} bytes")
            continue
        metadata = parse_metadata(raw)
        if isinstance(metadata, dict):
            return metadata
        image.note(f"the metadata beside the plugin ({sidecar}) {metadata}")
    return None
