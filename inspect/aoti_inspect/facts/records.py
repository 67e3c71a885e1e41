"""What can be read from a plugin without loading it, as immutable records.

Named tuples, as in `aoti_inspect.elf.records`. Offsets and sizes are bytes.
"""

from __future__ import annotations

from aoti_abi.records import TYPE_CHECKING, NamedTuple
from aoti_inspect.facts.imports import Imports

if TYPE_CHECKING:
    from typing import Literal

    from aoti_inspect.elf.records import ElfFacts
    from aoti_inspect.facts.inputs import InputSpec
    from aoti_inspect.facts.instruction_sets import InstructionUse


class GpuImage(NamedTuple):
    """One piece of GPU code.

    Attributes:
        kind: "cubin" (machine code, for one architecture) or "ptx" (compiled by the driver).
        architecture: the compute capability as an integer, 90 for sm_90; 0 if it can't be told.
        ptx_version: the PTX ISA version as "8.7" for "ptx", else None.
        container: "fatbin" or "elf" (a cubin that stands alone in the plugin's data).
        offset, size: where it is in the file, bytes.
        reach: which GPUs of other architectures it may run on: "later" by the usual rules; "family" for PTX
            of ``sm_100f``; "none" for code of ``sm_90a``, which has instructions that only this GPU has.
        kernel: what it is code for: the kernel's name, or ``code at 0x1234``; images of one kernel are for
            different GPUs.
    """

    kind: Literal["cubin", "ptx"]
    architecture: int
    ptx_version: str | None
    container: Literal["fatbin", "elf"]
    offset: int
    size: int
    reach: Literal["later", "family", "none"] = "later"
    kernel: str = ""

    @property
    def label(self) -> str:
        """The architecture as CUDA's tools write it: ``sm_90a`` for machine code, ``compute_90a`` for PTX."""
        suffix = {"later": "", "family": "f", "none": "a"}[self.reach]
        return f"{'sm_' if self.kind == 'cubin' else 'compute_'}{self.architecture}{suffix}"


class Weights(NamedTuple):
    """Where a plugin's constants are, found without reading them.

    Attributes:
        kind: "none" (the plugin holds no constants of its own), "embedded" (in a section of the file),
            "appended" (past the last segment, found by the magic number), "external" (in a blob).
        offset, size: of the bytes in the plugin file; 0 and 0 where there are none.
        required: bytes that the plugin expects of an external or appended blob; None if the file can't tell.
        magic: the magic number that guards appended weights; None otherwise.
        magic_ok: whether the appended copy of the magic number is the same; None where there is none.
        mutable: whether the constants lie in writable memory, which AOTInductor chooses when a run mutates
            one of them; None if the file can't tell.
    """

    kind: Literal["none", "embedded", "appended", "external"]
    offset: int
    size: int
    required: int | None
    magic: int | None
    magic_ok: bool | None
    mutable: bool | None


class _PluginFields(NamedTuple):
    name: str
    elf: ElfFacts
    gpu: tuple[GpuImage, ...]
    weights: Weights
    cxx_runtime: Literal["libstdc++", "libc++"] | None
    cxx_runtime_static: bool
    metadata: dict[str, str] | None
    cubin_paths: tuple[str, ...] = ()
    inputs: tuple[InputSpec, ...] = ()
    openmp_team: int | None = None
    instructions: tuple[InstructionUse, ...] = ()


class PluginFacts(_PluginFields):
    """Everything about one plugin that the rules look at.

    Attributes:
        name: what to call it in a report: a path, or ``package!member``.
        elf: the ELF view.
        gpu: GPU code in it.
        weights: where its constants are.
        cxx_runtime: the C++ library that it was compiled against: "libstdc++", "libc++" or None (no C++).
        cxx_runtime_static: True if it carries that library in itself.
        metadata: the sidecar JSON that Inductor writes (``AOTI_DEVICE_KEY``, ...); None if there is none.
        cubin_paths: files with GPU code that it opens by name, if it has none in itself; in the file's order.
        inputs: what is known of its inputs, up to the last of which anything is.
        openmp_team: the largest OpenMP team that is known to be safe; None for no limit.
        instructions: which vector instructions its code has, of the encodings that were looked for.
    """

    @property
    def imports(self) -> Imports:
        """What the plugin asks of others, by family: built from ``elf`` when it is first asked for.

        It is no field, so that a copy with another ``elf`` (``_replace``) never has the old one's.
        """
        found: Imports | None = self.__dict__.get("imports")
        if found is None:
            found = self.__dict__["imports"] = Imports(self.elf)
        return found

    def remember(self, imports: Imports) -> None:
        """Keep what was built from this plugin's ``elf`` already."""
        self.__dict__["imports"] = imports

    def __reduce__(self) -> tuple[type[PluginFacts], tuple[object, ...]]:
        # What can be built again does not travel from a worker process.
        return type(self), tuple(self)
