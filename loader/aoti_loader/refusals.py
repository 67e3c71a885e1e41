"""What no host can help with, refused before one is looked for."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from aoti_abi.container_api import REQUIRED, TORCH_2_1_ONLY
from aoti_abi.errors import InvalidProgram, NotSupported

if TYPE_CHECKING:
    from aoti_inspect.facts.records import PluginFacts


def refuse_unusable(facts: PluginFacts, *, check_isa: bool) -> None:
    """Raise for what no host can help with: not a plugin, required functions missing, another machine.

    Raises:
        InvalidProgram: it is not a plugin, or lacks required functions, which are all named (behaviour L1),
            or it is so damaged that the dynamic linker would refuse it or crash on it.
        NotSupported: it is for another machine or processor.
    """
    elf = facts.elf
    machine = os.uname().machine
    if elf.header.machine_name != machine or elf.header.bits != 64:
        raise NotSupported(
            f"it is for {elf.header.bits}-bit {elf.header.machine_name}, and this machine is {machine}",
            path=facts.name,
        )
    exports = frozenset(elf.exports.container)
    if not exports:
        raise InvalidProgram(
            "it is not an AOTInductor plugin: it exports no AOTInductor function",
            path=facts.name,
            hint="torch._inductor.aot_compile and aoti_compile_and_package produce plugins",
        )
    missing = [name for name in REQUIRED if name not in exports]
    if missing:
        old = " (PyTorch 2.1 had another interface)" if exports & TORCH_2_1_ONLY else ""
        raise InvalidProgram(
            f"required functions are missing: {', '.join(missing)}{old}",
            path=facts.name,
            hint="compile the model again with PyTorch 2.3 or later",
        )
    if elf.unusable:
        raise InvalidProgram(
            f"the dynamic linker can't use it: {'; '.join(elf.unusable[:3])}",
            path=facts.name,
            hint="a tool that rewrote the file damaged it: make it again from the original",
        )
    if check_isa and facts.metadata:
        _refuse_foreign_metadata(facts, facts.metadata)
        if facts.metadata.get("AOTI_CPU_ISA"):
            _refuse_foreign_isa(facts, facts.metadata["AOTI_CPU_ISA"])


def _refuse_foreign_metadata(facts: PluginFacts, metadata: dict[str, str]) -> None:
    """Raise if the metadata are those of another plugin: what they say of instructions is void then."""
    machine, device = metadata.get("AOTI_MACHINE"), metadata.get("AOTI_DEVICE_KEY", "").partition(":")[0]
    said = None
    if machine and machine != facts.elf.header.machine_name:
        said = f"AOTI_MACHINE={machine}, but the file is for {facts.elf.header.machine_name}"
    elif device == "cuda" and not facts.gpu and not facts.imports.cuda_calls:
        said = "AOTI_DEVICE_KEY=cuda, but it neither calls CUDA nor holds GPU code"
    if said:
        raise InvalidProgram(
            f"its metadata says {said}",
            path=facts.name,
            hint="keep the plugin and its metadata together, or pass check_isa=False to load it all the same",
        )


def _refuse_foreign_isa(facts: PluginFacts, wanted: str) -> None:
    from aoti_inspect.facts.target import ISA_FLAGS, local_target

    here = local_target().isa
    missing = [name for name in wanted.upper().split() if name in ISA_FLAGS and here and name not in here]
    if missing:
        raise NotSupported(
            f"it was compiled for {wanted}, and this processor lacks {', '.join(missing)}",
            path=facts.name,
            hint="compile it with cpp.march and cpp.simdlen for this machine, or pass check_isa=False",
        )
