"""Rules AOTI420 to AOTI424: machine, instruction sets, OpenMP teams, state that threads share."""

from __future__ import annotations

from aoti_abi.records import TYPE_CHECKING
from aoti_abi.versions import parse_version
from aoti_inspect.facts import compiler, imports
from aoti_inspect.facts.openmp import SAFE_TEAM
from aoti_inspect.facts.processor import INVALID_ISA, fits_processor
from aoti_inspect.rules.registry import RuleResult, Unchecked, plugin_rule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aoti_inspect.rules.registry import PluginContext

_DIV_FLAG = "inductor_cpu_integer_div_error_flag"


@plugin_rule("AOTI420", "wrong-machine", "error")
def wrong_machine(context: PluginContext) -> Iterator[RuleResult]:
    """The file is for a different machine than the target.

    ## Why it matters
    No library of another architecture, word size or byte order can be loaded. Everything else about the
    plugin is then beside the point, its instruction sets included.

    ## How it is checked
    `e_machine` of the ELF header is compared with the target's machine; the metadata beside the file is not
    believed here.

    ## How to fix it
    Compile on the target's architecture; AOTInductor does not cross-compile for Linux.

    ## Reports it prevents
    "wrong ELF class", "cannot open shared object file" and crashes that were searched for in the model.
    """
    header, wanted = context.facts.elf.header, context.target.machine
    if wanted is not None and header.machine_name != wanted:
        yield RuleResult(
            f"is for {header.machine_name} ({header.bits}-bit, {header.byte_order}-endian), and the "
            f"target is {wanted}",
            f"compile it on {wanted}",
            (header.machine_name,),
        )


@plugin_rule("AOTI421", "isa-beyond-target", "error")
def isa_beyond_target(context: PluginContext) -> Iterator[RuleResult | Unchecked]:
    """The plugin uses instruction sets that the target's processor lacks.

    ## Why it matters
    The process dies with SIGILL in the middle of a run. PyTorch compiles for the processor of the build
    machine, and its loaders only warn, or say nothing.

    ## How it is checked
    On x86-64 the code is searched for the encodings that the target (`--target isa=avx2`; by default this
    machine's /proc/cpuinfo) can't run: EVEX without AVX-512, VEX without AVX2, tile instructions without AMX.
    Each find is confirmed by decoding its function from the start, up to three functions are named, and
    neither metadata nor a missing file of metadata changes the answer: they speak of the kernels, the code
    around which is compiled with `-march=native`. If the file also asks the processor what it has (CPUID), it
    may choose among several versions of its code, which is not followed: not checked. So is code that no
    unwind information names.

    What encodings don't tell (AVX512_VNNI apart from AVX-512, AMX_FP16 apart from AMX) is taken from
    `AOTI_CPU_ISA` of the metadata beside the plugin; the lane counts in the names of Sleef's functions count,
    too. On aarch64 code is not decoded: there the metadata decide, which say ASIMD for NEON and for SVE, and
    without them it is not checked. Not compared if the machine differs (AOTI420).

    ## How to fix it
    Compile with `cpp.simdlen=256` for AVX2 or `cpp.simdlen=1` for none, and with `cpp.march="x86-64-v3"` or
    `"x86-64"` (PyTorch 2.13 and later; ATEN_CPU_CAPABILITY=avx2 before).

    ## Reports it prevents
    "Illegal instruction (core dumped)" on some machines of a cluster.
    """
    plugin = context.facts
    machine = plugin.elf.header.machine_name
    if not imports.is_plugin(plugin):
        return
    fix = (
        "compile with cpp.simdlen=256 (AVX2) or cpp.simdlen=1, and cpp.march=x86-64-v3 or x86-64"
        if machine == "x86_64"
        else "compile on a machine with the target's processor"
    )
    fit = fits_processor(plugin, context.target)
    for found in fit.lacking:
        yield RuleResult(found.message, fix, found.symbols)
    for reason in (*fit.unchecked, *fit.untold):
        yield Unchecked(reason)


@plugin_rule("AOTI422", "no-vector-isa", "warning")
def no_vector_isa(context: PluginContext) -> Iterator[RuleResult]:
    """The plugin was compiled without vector instructions.

    ## Why it matters
    The kernels are scalar, and several times slower. It is wanted with `cpp.simdlen=1`; otherwise PyTorch's
    probe for instruction sets failed, which happens with `link_libtorch=False` and an empty compile cache:
    the probe is linked without LibTorch then, and can't load. The failed answer is cached, so that later
    compilations with the same cache are scalar too.

    ## How it is checked
    The metadata beside the plugin say `INVALID_VEC_ISA`.

    ## How to fix it
    Compile any model once with `link_libtorch=True` and a fresh `TORCHINDUCTOR_CACHE_DIR`, then the one for
    the host without LibTorch with the same cache. Nothing to fix if `cpp.simdlen=1` was meant.

    ## Reports it prevents
    Models that are slow for no visible reason, on one build machine only.
    """
    if (context.facts.metadata or {}).get("AOTI_CPU_ISA") == INVALID_ISA:
        yield RuleResult(
            "compiled without vector instructions (AOTI_CPU_ISA=INVALID_VEC_ISA): cpp.simdlen=1 was set, or "
            "PyTorch's probe failed",
            "if not meant: fill a fresh TORCHINDUCTOR_CACHE_DIR with a link_libtorch=True compilation first",
            severity=None if context.facts.gpu == () else "info",
        )


@plugin_rule("AOTI423", "openmp-team-size", "warning")
def openmp_team_size(context: PluginContext) -> Iterator[RuleResult]:
    """Running with more threads than the build machine had may corrupt memory.

    ## Why it matters
    PyTorch 2.12 and later size per-thread arrays of reductions by the build machine's processor count, and
    start a parallel region without a fixed number of threads when that count is the default. With more
    threads the kernel writes past its arrays: crashes with SIGSEGV or SIGBUS were seen at 4 threads, compiled
    on 2. No metadata hold the count.

    ## How it is checked
    The plugin starts OpenMP regions (`GOMP_parallel`, or `__kmpc_fork_call` of LLVM's runtime), does not ask
    for the number of threads at run time (`omp_get_max_threads`), and was compiled by PyTorch 2.12 or later.
    Where the C++ that Inductor generated lies beside it, that tells the count, or that any team is safe.
    Without it, plugins with a fixed `cpp.threads`, and those whose parallel regions have no reduction, look
    the same and are safe. `aoti_executor` keeps to the same limit, and `aoti-run --info` shows it.

    ## How to fix it
    Compile with `cpp.threads=N` or `cpp.dynamic_threads=True`. Otherwise limit the run with OMP_NUM_THREADS
    to the processor count of the build machine.

    ## Reports it prevents
    Crashes of a model on a larger machine than the one that compiled it.
    """
    plugin = context.facts
    used, team = imports.names(plugin, "openmp"), plugin.openmp_team
    found = compiler.fingerprint(plugin)
    if team is None or found is None or "omp_get_max_threads" in used:
        return
    certain = parse_version(found.oldest) >= (2, 12)
    told = team != SAFE_TEAM  # without the source, the smallest team is taken
    yield RuleResult(
        "may write past its arrays when run with more threads than "
        + (f"the {team} that its source has room for" if told else "the build machine had processors")
        + ("" if certain else f", if PyTorch 2.12 compiled it (its exports are those of {found.range})"),
        "compile with cpp.dynamic_threads=True or cpp.threads=N, or set OMP_NUM_THREADS to "
        + (str(team) if told else "the build machine's processor count"),
        tuple(used),
        None if certain else "info",
    )


@plugin_rule("AOTI424", "shared-division-flag", "info")
def shared_division_flag(context: PluginContext) -> Iterator[RuleResult]:
    """Integer divisions of all plugins report errors through one shared pointer.

    ## Why it matters
    PyTorch 2.13 and later note a division by zero through one global pointer, which is a unique symbol: all
    plugins and all threads of a process share it. Integer-division kernels that run at the same time can
    write through a pointer to a variable of another thread that is gone.

    ## How it is checked
    The unique symbol `inductor_cpu_integer_div_error_flag` is exported. Every CPU plugin of these versions
    has it; only kernels that divide integers use it.

    ## How to fix it
    Do not run kernels with integer division at the same time, or compile with `-fno-gnu-unique` and one
    container per thread; other models need nothing.

    ## Reports it prevents
    Rare crashes, or a ZeroDivisionError for another thread's division.
    """
    if _DIV_FLAG in context.facts.elf.exports.unique:
        yield RuleResult(
            f"shares {_DIV_FLAG} with every plugin in the process: integer divisions must not run at the "
            "same time",
            "matters only for models that divide integers in several threads; -fno-gnu-unique keeps it "
            "per plugin",
            (_DIV_FLAG,),
        )
