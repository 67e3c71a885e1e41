"""Which instruction sets a plugin needs and a target's processor lacks, decided once for rules and verdicts.

Three witnesses, the surest first: the code itself (`instruction_sets`), where it was looked at; the lane
counts in the names of Sleef's functions; the metadata, which speak of the kernels only and not of the code
around them, which is compiled with ``-march=native``.
"""

from __future__ import annotations

from aoti_abi.records import TYPE_CHECKING, NamedTuple
from aoti_inspect.facts.target import ISA_FLAGS, ISA_IMPLIES
from aoti_inspect.wording import listed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aoti_inspect.facts.instruction_sets import Encoding, InstructionUse
    from aoti_inspect.facts.records import PluginFacts
    from aoti_inspect.facts.target import Target

#: What Inductor writes for "compiled without vector instructions".
INVALID_ISA = "INVALID_VEC_ISA"
#: The instruction set that a processor must have to run an encoding, what to call it, and the names of
#: Inductor's instruction sets that are written in it.
_ENCODINGS: dict[Encoding, tuple[str, str, tuple[str, ...]]] = {
    "VEX": ("AVX2", "AVX or AVX2", ("AVX2",)),
    "EVEX": ("AVX512", "AVX-512", ("AVX512", "AVX512_VNNI")),
    "AMX": ("AMX_TILE", "AMX", ("AMX", "AMX_TILE", "AMX_FP16")),
}
#: Inductor prints the same word for NEON and for SVE (``cpu_vec_isa.py``).
_ALIASES = {"ASIMD": "NEON"}
#: What Inductor may choose from on each machine: a target with all of it needs no evidence.
_CHOICES: dict[str, tuple[str, ...]] = {
    "x86_64": ("AVX2", "AVX512", "AVX512_VNNI", "AMX_TILE", "AMX_FP16"),
    "aarch64": ("NEON", "SVE", "SVE256"),
}


class Evidence(NamedTuple):
    """One thing that a plugin surely uses and the target lacks.

    Attributes:
        message: what proves it, as a sentence without its subject: "has AVX-512 instructions in ...".
        symbols: the functions or instruction sets concerned.
    """

    message: str
    symbols: tuple[str, ...]


class ProcessorFit(NamedTuple):
    """What is known of a plugin on a target's processor.

    Attributes:
        lacking: what it uses and the processor lacks.
        unchecked: what its code leaves open, as sentences without a subject.
        untold: what nobody could look at: its metadata say too little, or are not there.
    """

    lacking: tuple[Evidence, ...] = ()
    unchecked: tuple[str, ...] = ()
    untold: tuple[str, ...] = ()


def encodings_beyond(target: Target) -> tuple[Encoding, ...]:
    """Return the encodings of x86-64 instructions that a target can't run; none if that is not compared."""
    if target.isa is None or target.machine not in (None, "x86_64"):
        return ()
    available = target.isa
    return tuple(name for name, (isa, *_) in _ENCODINGS.items() if missing_isa([isa], available))


def encoding_title(encoding: Encoding) -> str:
    """Return what people call the instructions of an encoding: "AVX-512" for EVEX."""
    return _ENCODINGS[encoding][1]


def sleef_isa(names: Sequence[str]) -> str | None:
    """Return the x86 instruction set that Sleef's names prove: ``expf16`` and ``expd8`` are AVX-512's.

    The number is the count of lanes: 16 floats or 8 doubles fill 512 bits, 8 floats or 4 doubles 256.
    """
    found = None
    for name in names:
        stem = name.removeprefix("Sleef_").partition("_")[0]
        if stem.endswith(("f16", "d8")):
            return "AVX512"
        if stem.endswith(("f8", "d4")):
            found = "AVX2"
    return found


def missing_isa(needed: Sequence[str], available: frozenset[str]) -> list[str]:
    """Return those of ``needed`` that a processor with ``available`` lacks, implied ones counted in."""
    have = available.union(*(ISA_IMPLIES.get(name, ()) for name in available))
    return [name for name in needed if name not in have]


def fits_processor(plugin: PluginFacts, target: Target) -> ProcessorFit:
    """Compare a plugin with the target's processor; nothing is found where the target names none."""
    machine = plugin.elf.header.machine_name
    if target.isa is None or target.machine not in (None, machine):
        return ProcessorFit()
    lacking, unchecked = _by_code(plugin.instructions)
    # What the code was searched for needs no other witness, whatever was found.
    decided = {
        name
        for use in plugin.instructions
        if use.outcome == "none" or (use.outcome == "used" and not use.dispatched)
        for name in _ENCODINGS[use.encoding][2]
    }
    seen = bool(lacking)
    called = _by_sleef(plugin, target.isa) if machine == "x86_64" and not seen else None
    if called is not None:
        lacking.append(called)
    recorded = (plugin.metadata or {}).get("AOTI_CPU_ISA", "").upper()
    words = [_ALIASES.get(word, word) for word in recorded.split() if word != INVALID_ISA]
    missing = [
        name
        for name in missing_isa([word for word in words if word in ISA_FLAGS], target.isa)
        if name not in decided
    ]
    if missing and called is None:
        lacking.append(
            Evidence(
                f"was compiled for {listed(words)}, and the target lacks {listed(missing)}", tuple(missing)
            )
        )
    if lacking:
        # One certain reason is enough; what else is open adds nothing.
        return ProcessorFit(tuple(lacking))
    untold = _untold(plugin, recorded, words, target.isa, decided) if not unchecked else ()
    return ProcessorFit((), tuple(unchecked), untold)


def _by_code(uses: tuple[InstructionUse, ...]) -> tuple[list[Evidence], list[str]]:
    lacking, unchecked = [], []
    for use in uses:
        what = encoding_title(use.encoding)
        if use.outcome == "used" and not use.dispatched:
            message = f"has {what} instructions, which the target lacks, in {listed(use.functions)}"
            lacking.append(Evidence(message, use.functions))
        elif use.outcome == "used":
            unchecked.append(
                f"has {what} instructions, which the target lacks, in {listed(use.functions)}; it also asks "
                "the processor what it has (CPUID), so it may never run them there"
            )
        elif use.outcome == "not checked":
            unchecked.append(f"may have {what} instructions, which the target lacks: {use.reason}")
    return lacking, unchecked


def _by_sleef(plugin: PluginFacts, available: frozenset[str]) -> Evidence | None:
    called = plugin.imports.names("sleef")
    proven = sleef_isa(called)
    if proven is None or not missing_isa([proven], available):
        return None
    evidence = [name for name in called if sleef_isa([name]) == proven]
    return Evidence(f"calls {listed(evidence)}, so it uses {proven}, which the target lacks", tuple(evidence))


def _untold(
    plugin: PluginFacts, recorded: str, words: list[str], available: frozenset[str], decided: set[str]
) -> tuple[str, ...]:
    machine = plugin.elf.header.machine_name
    if recorded:
        found = []
        unknown = [word for word in words if word not in ISA_FLAGS]
        if unknown:
            found.append(f"AOTI_CPU_ISA={recorded} has a name that is not known: {listed(unknown)}")
        if "ASIMD" in recorded.split() and "SVE" not in available:
            found.append("AOTI_CPU_ISA=ASIMD stands for NEON and for SVE, and the target has no SVE")
        return tuple(found)
    choices = _CHOICES.get(machine, ("?",))
    open_ = [name for name in missing_isa(choices, available) if name not in decided]
    if not open_ or (
        machine == "x86_64" and sleef_isa(plugin.imports.names("sleef")) and not plugin.instructions
    ):
        return ()
    if decided:
        why = f"its code does not tell whether it uses {listed(open_)}"
    else:
        why = "its instruction sets are unknown: code of this machine is not disassembled"
        if machine == "x86_64":
            why = "its instruction sets are unknown: its code was not searched"
    advice = "keep NAME_metadata.json beside NAME.so, pass the .pt2 package, or --target isa=any"
    return (f"{why}, and there is no metadata beside it; {advice}",)
