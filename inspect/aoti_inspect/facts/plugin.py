"""Everything about one plugin file."""

from __future__ import annotations

from aoti_abi.records import TYPE_CHECKING
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
    from aoti_inspect.facts.instruction_sets import Encoding, InstructionUse

#: Inductor's metadata have some twenty keys.
MAX_KEYS = 1 << 10


def plugin_facts(
    image: ElfImage,
    *,
    metadata: dict[str, str] | None,
    sources: Iterable[bytes] = (),
    inputs: tuple[InputSpec, ...] = (),
    encodings: tuple[Encoding, ...] = (),
) -> PluginFacts:
    """Collect everything about the plugin behind an open image.

    Args:
        image: the file.
        metadata: what Inductor's metadata JSON says; None if there is none.
        sources: the C++ that Inductor generated for it, if that is there.
        inputs: what the program that calls it says of its inputs; empty if nothing does.
        encodings: the x86-64 instructions to look for in its code; see `processor.encodings_beyond`.

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
        elf=elf._replace(anomalies=image.anomalies, not_read=image.budget.given_up),
        gpu=gpu,
        weights=weights,
        cxx_runtime=runtime,
        cxx_runtime_static=static,
        metadata=metadata,
        cubin_paths=() if gpu else find_cubin_paths(image, imports),
        inputs=inputs or find_inputs(image, weights, sources),
        openmp_team=find_safe_team(elf, sources),
        instructions=_instructions(image, encodings) if encodings else (),
    )
    facts.remember(imports)
    return facts


def _instructions(image: ElfImage, encodings: tuple[Encoding, ...]) -> tuple[InstructionUse, ...]:
    if image.header.facts.machine_name != "x86_64":
        return ()
    # Most audits need no decoder, and its tables take milliseconds to import.
    from aoti_inspect.facts.instruction_sets import find_instructions

    return find_instructions(image, encodings)


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
        if len(value) > MAX_KEYS:
            return f"has {len(value)} keys, more than the {MAX_KEYS} that are read"
        return {key: item if isinstance(item, str) else json.dumps(item) for key, item in value.items()}
    except ValueError as error:
        return f"is not JSON: {error}"
    except RecursionError as error:
        return f"nests too deeply: {error}"
