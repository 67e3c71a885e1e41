"""Rules AOTI501 to AOTI510: GPU code and the CUDA libraries."""

from __future__ import annotations

from aoti_abi.records import TYPE_CHECKING
from aoti_abi.versions import parse_version
from aoti_inspect.facts import imports
from aoti_inspect.facts.predicates import cubin_runs_on
from aoti_inspect.facts.releases import PTX_CUDA
from aoti_inspect.facts.version_needs import number_of
from aoti_inspect.rules.registry import RuleResult, Unchecked, plugin_rule
from aoti_inspect.wording import counted, listed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aoti_inspect.facts.records import PluginFacts
    from aoti_inspect.facts.symbol_families import Family
    from aoti_inspect.rules.registry import PluginContext

#: The libraries that CUDA's functions come from, by family.
_CUDA_LIBRARIES: tuple[tuple[Family, str], ...] = (
    ("cuda-runtime", "libcudart.so"),
    ("cuda-driver", "libcuda.so"),
)


def _labels(architectures: set[int], prefix: str) -> list[str]:
    return [f"{prefix}{number}" for number in sorted(architectures)]


def _code(plugin: PluginFacts) -> tuple[set[int], set[int]]:
    """Return the architectures of cubins and of PTX, unknown ones left out."""
    cubins = {image.architecture for image in plugin.gpu if image.kind == "cubin" and image.architecture}
    ptx = {image.architecture for image in plugin.gpu if image.kind == "ptx" and image.architecture}
    return cubins, ptx


@plugin_rule("AOTI501", "no-code-for-gpu", "error")
def no_code_for_gpu(context: PluginContext) -> Iterator[RuleResult | Unchecked]:
    """The plugin has no GPU code that the target's GPU can run.

    ## Why it matters
    Machine code runs on GPUs of its own major version only, and not on older ones of that version. PTX is
    compiled by the driver for any later GPU; PyTorch stores none by default. The first launch fails.

    ## How it is checked
    The architectures of the cubins and of the PTX in the file are compared with `--target sm=90`. Code for
    the special architectures `sm_90a` and the like, which run on exactly one GPU, cannot be distinguished
    from the rest.

    ## How to fix it
    Compile on a GPU of the target's kind, or with `aot_inductor.emit_multi_arch_kernel=True`, which adds PTX.

    ## Reports it prevents
    "no kernel image is available for execution on the device" on another GPU than the one that compiled it.
    """
    sm, plugin = context.target.sm, context.facts
    if sm is None or not plugin.gpu:
        return
    cubins, ptx = _code(plugin)
    if any(cubin_runs_on(cubin, sm) for cubin in cubins) or any(level <= sm for level in ptx):
        return
    if not cubins and not ptx:
        yield Unchecked(f"the architecture of its {counted(len(plugin.gpu), 'piece')} of GPU code is unknown")
        return
    has = listed(_labels(cubins, "sm_") + _labels(ptx, "compute_"), 8)
    hint = "no PTX" if not ptx else "its PTX is for later GPUs"
    yield RuleResult(
        f"has GPU code for {has} only, and {hint}; the target is sm_{sm}",
        "compile it on such a GPU, or with aot_inductor.emit_multi_arch_kernel=True, which adds PTX",
        tuple(_labels(cubins, "sm_") + _labels(ptx, "compute_")),
    )


@plugin_rule("AOTI502", "gpu-code-from-ptx", "warning")
def gpu_code_from_ptx(context: PluginContext) -> Iterator[RuleResult]:
    """The target's GPU can run the plugin only through PTX.

    ## Why it matters
    The driver compiles the PTX when the plugin is first loaded, which takes seconds, and caches the result
    per user. Features of the newer GPU are not used.

    ## How it is checked
    No cubin in the file runs on the target's GPU, but PTX for an older one is there.

    ## How to fix it
    Compile on a GPU of the target's kind if the first load or the speed matters.

    ## Reports it prevents
    A first request that takes much longer than all others on new hardware.
    """
    sm = context.target.sm
    if sm is None:
        return
    cubins, ptx = _code(context.facts)
    usable = [level for level in ptx if level <= sm]
    if usable and not any(cubin_runs_on(cubin, sm) for cubin in cubins):
        yield RuleResult(
            f"runs on sm_{sm} only through its PTX for compute_{max(usable)}, which the driver compiles "
            "at first load",
            f"compile it on a GPU of sm_{sm}",
            (f"compute_{max(usable)}",),
        )


@plugin_rule("AOTI503", "gpu-architectures", "info")
def gpu_architectures(context: PluginContext) -> Iterator[RuleResult]:
    """Which GPUs the plugin has code for.

    ## Why it matters
    A cubin runs within one major version, from its own minor version on; PTX runs on every later GPU. Which
    of the two a file holds decides where it can be shipped.

    ## How it is checked
    Cubins and fatbins in the file are found by their magic numbers, and their headers read.

    ## How to fix it
    Nothing to fix; to reach later GPUs, compile with `aot_inductor.emit_multi_arch_kernel=True`.

    ## Reports it prevents
    Artifacts that turn out to be for one GPU only after they were deployed.
    """
    cubins, ptx = _code(context.facts)
    if not cubins and not ptx:
        return
    parts = []
    if cubins:
        count = sum(image.kind == "cubin" for image in context.facts.gpu)
        parts.append(f"{counted(count, 'cubin')} for {listed(_labels(cubins, 'sm_'), 8)}")
    if ptx:
        parts.append(f"PTX from compute_{min(ptx)} on, so it runs on that and every later GPU")
    else:
        ranges = [f"{sm // 10}.{sm % 10} and later {sm // 10}.x" for sm in sorted(cubins)]
        parts.append(f"no PTX, so it runs on GPUs of compute capability {listed(ranges)} only")
    yield RuleResult(
        f"has {' and '.join(parts)}",
        None if ptx else "aot_inductor.emit_multi_arch_kernel=True adds PTX for later GPUs",
        tuple(_labels(cubins, "sm_") + _labels(ptx, "compute_")),
    )


@plugin_rule("AOTI504", "ptx-version", "info")
def ptx_version(context: PluginContext) -> Iterator[RuleResult]:
    """Which driver the PTX in the plugin needs.

    ## Why it matters
    A driver compiles PTX of its own CUDA release and of older ones. PTX that is newer is refused, even if the
    GPU itself would do.

    ## How it is checked
    The `.version` of the PTX is compared with the table of PTX releases.

    ## How to fix it
    Install the driver that the finding names, or compile with the CUDA toolkit of the target.

    ## Reports it prevents
    "the provided PTX was compiled with an unsupported toolchain", and assemblers that refuse a `.version`.
    """
    versions = {
        image.ptx_version
        for image in context.facts.gpu
        if image.ptx_version and number_of(f"PTX_{image.ptx_version}", "PTX_")
    }
    if versions:
        top = max(versions, key=parse_version)
        known = PTX_CUDA.get(top)
        needs = f"CUDA {known[0]}, driver {known[1]} or later" if known else "a driver newer than this table"
        yield RuleResult(f"its PTX has version {top}: needs {needs}", None, tuple(sorted(versions)))


@plugin_rule("AOTI505", "external-cubins", "warning")
def external_cubins(context: PluginContext) -> Iterator[RuleResult]:
    """GPU code is loaded from separate files.

    ## Why it matters
    The plugin opens its kernels by path, in the directory that is handed to it when the container is created,
    or in the one where it was compiled. If they are not there, the first run fails, without a file name.

    ## How it is checked
    The plugin calls `cuModuleLoad`, which takes a path, and no GPU code was found in the file. The paths are
    the strings that end in `.cubin`; with a directory for cubins only their last parts count. In a package
    those count that are not among its files: an error, since PyTorch hands the package's own directory over.

    ## How to fix it
    Ship the `*.cubin` files in one directory and pass it as `cubin_dir`, ship the `.pt2` package, or compile
    with `aot_inductor.embed_kernel_binary=True`.

    ## Reports it prevents
    "CUDA driver error: file not found" on every machine but the one that compiled the model.
    """
    plugin, origin = context.facts, context.origin
    if plugin.gpu or "cuModuleLoad" not in imports.names(plugin, "cuda-driver"):
        return
    paths = plugin.cubin_paths
    if paths and origin is not None and origin.beside is not None:
        beside = origin.beside
        missing = tuple(path for path in paths if path.rpartition("/")[2] not in beside)
        if missing:
            yield RuleResult(
                f"loads GPU code that is not in its package: {listed(missing)}",
                "make the package again; it lost its *.cubin files",
                missing,
                "error",
            )
    else:
        yield RuleResult(
            "loads its GPU code by path (cuModuleLoad), and embeds none"
            + (f": {listed(paths)}" if paths else ""),
            "ship the *.cubin files and pass their directory, or compile with "
            "aot_inductor.embed_kernel_binary=True",
            paths or ("cuModuleLoad",),
        )


@plugin_rule("AOTI510", "cuda-library-not-needed", "warning")
def cuda_library_not_needed(context: PluginContext) -> Iterator[RuleResult]:
    """The plugin uses CUDA functions without naming their library in DT_NEEDED.

    ## Why it matters
    Without LibTorch the plugin is linked with the driver's library only; `cudaMalloc` and the rest of the
    CUDA runtime are left to the host, which must have that library in the global scope. LibTorch's CUDA build
    loads it; then the finding is information.

    ## How it is checked
    Undefined `cuda*` functions without `libcudart` in DT_NEEDED, and undefined `cu*` functions without
    `libcuda`.

    ## How to fix it
    Link with `-lcudart`, or open `libcudart.so` with RTLD_GLOBAL first, as `aoti_loader` does.

    ## Reports it prevents
    "undefined symbol: cudaMalloc" in a process that never loaded the CUDA runtime.
    """
    plugin = context.facts
    brought = bool(imports.needs_library(plugin, "libtorch_cuda.so", "libc10_cuda.so"))
    for kind, library in _CUDA_LIBRARIES:
        used = imports.names(plugin, kind)
        if used and not imports.needs_library(plugin, library):
            yield RuleResult(
                f"uses {counted(len(used), 'function')} of {library}, which DT_NEEDED does not name"
                f"{', though LibTorch loads it' if brought else ''}: {listed(used)}",
                f"link with -l{library[3:-3]}, or open {library} with RTLD_GLOBAL first",
                tuple(used),
                "info" if brought else None,
            )
