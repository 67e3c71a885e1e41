"""Rules AOTI501 to AOTI505: GPU code."""

from __future__ import annotations

from aoti_abi.records import TYPE_CHECKING
from aoti_abi.versions import parse_version
from aoti_inspect.facts import imports
from aoti_inspect.facts.gpu_fit import by_kernel, current_name, driver_takes, fits, ptx_of_driver
from aoti_inspect.facts.releases import PTX_CUDA
from aoti_inspect.facts.version_needs import number_of
from aoti_inspect.rules.registry import RuleResult, Unchecked, plugin_rule
from aoti_inspect.wording import counted, listed

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import Literal

    from aoti_inspect.facts.records import GpuImage
    from aoti_inspect.rules.registry import PluginContext


def _labels(images: Iterable[GpuImage]) -> list[str]:
    """Return the architectures of code, machine code before PTX, each once; unknown ones left out."""
    order = sorted((image.kind, image.architecture, image.label) for image in images if image.architecture)
    return list(dict.fromkeys(label for _kind, _number, label in order))


@plugin_rule("AOTI501", "no-code-for-gpu", "error")
def no_code_for_gpu(context: PluginContext) -> Iterator[RuleResult | Unchecked]:
    """The plugin has no GPU code that the target's GPU can run.

    ## Why it matters
    Machine code runs on GPUs of its own major version only, and not on older ones of that version. PTX is
    compiled by the driver for any later GPU; PyTorch stores none by default. The first launch fails.

    ## How it is checked
    The architectures of the cubins and of the PTX of each kernel are compared with `--target sm=90`: a model
    runs only if all its kernels do. A kernel is what lies between two symbols of Inductor's, or one fatbin.
    Code for `sm_90a` and the like runs on exactly that GPU, PTX for `sm_100f` within that major version. Two
    names of one GPU (`sm_101` is `sm_110` since CUDA 13) are the same.

    ## How to fix it
    Compile on a GPU of the target's kind, or with `aot_inductor.emit_multi_arch_kernel=True`, which adds PTX.

    ## Reports it prevents
    "no kernel image is available for execution on the device" on another GPU than the one that compiled it.
    """
    sm, plugin = context.target.sm, context.facts
    if sm is None or not plugin.gpu:
        return
    found = fits(plugin.gpu, sm)
    without = [fit for fit in found if fit.how == "none"]
    unknown = sum(not image.architecture for fit in found if fit.how == "unknown" for image in fit.images)
    if unknown:
        yield Unchecked(f"the architecture of {counted(unknown, 'piece')} of its GPU code is unknown")
    if not without:
        return
    code = [image for fit in without for image in fit.images]
    labels = _labels(code)
    remedy = "compile it on such a GPU, or with aot_inductor.emit_multi_arch_kernel=True, which adds PTX"
    if len(without) < len(found):
        kernels = listed([fit.kernel for fit in without])
        yield RuleResult(
            f"{len(without)} of {counted(len(found), 'kernel')} {'has' if len(without) == 1 else 'have'} no "
            f"code for sm_{sm}: {kernels} (only {listed(labels, 8)})",
            remedy,
            tuple(fit.kernel for fit in without),
        )
        return
    ptx = [image for image in code if image.kind == "ptx"]
    hint = "no PTX" if not ptx else "its PTX is for later GPUs"
    if any(image.reach != "later" for image in ptx):
        hint = "its PTX is for these GPUs alone"
    yield RuleResult(
        f"has GPU code for {listed(labels, 8)} only, and {hint}; the target is sm_{sm}", remedy, tuple(labels)
    )


@plugin_rule("AOTI502", "gpu-code-from-ptx", "warning")
def gpu_code_from_ptx(context: PluginContext) -> Iterator[RuleResult]:
    """The target's GPU can run the plugin only through PTX.

    ## Why it matters
    The driver compiles the PTX when the plugin is first loaded, which takes seconds, and caches the result
    per user. Features of the newer GPU are not used.

    ## How it is checked
    Of some kernel no cubin in the file runs on the target's GPU, but PTX for an older one is there.

    ## How to fix it
    Compile on a GPU of the target's kind if the first load or the speed matters.

    ## Reports it prevents
    A first request that takes much longer than all others on new hardware.
    """
    sm = context.target.sm
    if sm is None:
        return
    found = fits(context.facts.gpu, sm)
    compiled = [fit for fit in found if fit.how == "ptx"]
    if not compiled or any(fit.how == "none" for fit in found):
        return
    usable = [max(fit.ptx, key=lambda image: image.architecture) for fit in compiled]
    part = "" if len(compiled) == len(found) else f"{len(compiled)} of {len(found)} kernels: "
    yield RuleResult(
        f"runs on sm_{sm} only through its PTX for {listed(_labels(usable))}, which the driver compiles "
        f"at first load{f' ({part[:-2]})' if part else ''}",
        f"compile it on a GPU of sm_{sm}",
        tuple(_labels(usable)),
    )


@plugin_rule("AOTI503", "gpu-architectures", "info")
def gpu_architectures(context: PluginContext) -> Iterator[RuleResult]:
    """Which GPUs the plugin has code for.

    ## Why it matters
    A cubin runs within one major version, from its own minor version on; PTX runs on every later GPU. Which
    of the two a file holds decides where it can be shipped.

    ## How it is checked
    Cubins and fatbins in the file are found by their magic numbers, and their headers read. A warning if no
    GPU runs all kernels of the file.

    ## How to fix it
    Nothing to fix; to reach later GPUs, compile with `aot_inductor.emit_multi_arch_kernel=True`.

    ## Reports it prevents
    Artifacts that turn out to be for one GPU only after they were deployed.
    """
    known = [image for image in context.facts.gpu if image.architecture]
    if not known:
        return
    kernels = by_kernel(known)
    if len({tuple(_labels(code)) for code in kernels.values()}) > 1:
        yield _mixed(kernels)
        return
    cubins = [image for image in known if image.kind == "cubin"]
    ptx = [image for image in known if image.kind == "ptx"]
    forward = [image.architecture for image in ptx if image.reach == "later"]
    parts = []
    if cubins:
        parts.append(f"{counted(len(cubins), 'cubin')} for {listed(_labels(cubins), 8)}")
    if forward:
        parts.append(f"PTX from compute_{min(forward)} on, so it runs on that and every later GPU")
    else:
        if ptx:
            parts.append(f"PTX for {listed(_labels(ptx), 8)}")
        no_ptx = "" if ptx else "no PTX, so it "
        reach = listed(list(dict.fromkeys(map(_reach, sorted(known, key=lambda image: image.architecture)))))
        parts.append(f"{no_ptx}runs on GPUs of compute capability {reach} only")
    yield RuleResult(
        f"has {' and '.join(parts)}",
        None if forward else "aot_inductor.emit_multi_arch_kernel=True adds PTX for later GPUs",
        tuple(_labels(known)),
    )


def _reach(image: GpuImage) -> str:
    """Return the GPUs that code for certain GPUs only runs on: "8.6 and later 8.x"."""
    major, minor = divmod(current_name(image.architecture), 10)
    return f"{major}.{minor}" if image.reach == "none" else f"{major}.{minor} and later {major}.x"


def _mixed(kernels: dict[str, tuple[GpuImage, ...]]) -> RuleResult:
    """Describe kernels that have code for different GPUs: the model runs where each of them does."""
    sets: dict[str, list[str]] = {}
    for kernel, code in kernels.items():
        sets.setdefault(listed(_labels(code), 8), []).append(kernel)
    images = [image for code in kernels.values() for image in code]
    # Whoever runs anywhere runs on one of these: PTX and cubins begin at an architecture.
    candidates = {image.architecture for image in images}
    somewhere = any(all(fit.how != "none" for fit in fits(images, sm)) for sm in candidates)
    parts = "; ".join(f"{listed(names)} for {labels}" for labels, names in sets.items())
    return RuleResult(
        f"has kernels with code for different GPUs: {parts}"
        + ("" if somewhere else "; no GPU runs all of them"),
        "compile all of it in one go, on one GPU",
        tuple(_labels(images)),
        None if somewhere else "warning",
    )


@plugin_rule("AOTI504", "ptx-version", "info")
def ptx_version(context: PluginContext) -> Iterator[RuleResult | Unchecked]:
    """Which driver the PTX in the plugin needs.

    ## Why it matters
    A driver compiles PTX of its own CUDA release and of older ones. PTX that is newer is refused, even if the
    GPU itself would do.

    ## How it is checked
    The `.version` of the PTX is compared with the table of PTX releases, and with the driver of the target
    (`--target driver=535`). An error if some kernel runs on the target's GPU (`sm=90`) only through PTX that
    this driver does not take, a warning if the GPU is not given and machine code may do. A driver that is
    newer than the table is not checked where the PTX is, too.

    ## How to fix it
    Install the driver that the finding names, or compile with the CUDA toolkit of the target.

    ## Reports it prevents
    "the provided PTX was compiled with an unsupported toolchain", and assemblers that refuse a `.version`.
    """
    versions = set(_ptx_versions(context.facts.gpu))
    if not versions:
        return
    top = max(versions, key=parse_version)
    known = PTX_CUDA.get(top)
    needs = f"CUDA {known[0]}, driver {known[1]} or later" if known else "a driver newer than this table"
    message = f"its PTX has version {top}: needs {needs}"
    driver = context.target.driver
    severity, beyond = (None, "") if driver is None else _against_driver(context, driver)
    if severity == "unknown":
        yield Unchecked(f"{message}, and driver {driver} is newer than this table, too")
    elif severity is None:
        yield RuleResult(message, None, tuple(sorted(versions)))
    else:
        yield RuleResult(
            f"its PTX has version {beyond}: the target's driver {driver} compiles PTX up to "
            f"{ptx_of_driver(driver or '')[0]}",
            f"install a newer driver ({needs}), or compile with an older CUDA toolkit",
            tuple(sorted(versions)),
            severity,
        )


def _ptx_versions(images: Iterable[GpuImage]) -> Iterator[str]:
    for image in images:
        if image.ptx_version and number_of(f"PTX_{image.ptx_version}", "PTX_"):
            yield image.ptx_version


def _against_driver(
    context: PluginContext, driver: str
) -> tuple[Literal["error", "warning", "unknown"] | None, str]:
    """Return how grave it is that a driver does not take some PTX, and the oldest version that is needed."""
    sm, grave = context.target.sm, ""
    answers = []
    for code in by_kernel(context.facts.gpu).values():
        fit = None if sm is None else fits(code, sm)[0]
        if fit is not None and fit.how != "ptx":
            continue
        # The driver may choose among the PTX of one kernel.
        oldest = min(_ptx_versions(code if fit is None else fit.ptx), key=parse_version, default=None)
        if oldest is not None:
            takes = driver_takes(oldest, driver)
            answers.append(takes)
            if takes is False:
                grave = max(grave or oldest, oldest, key=parse_version)
    if False in answers:
        has_cubin = any(image.kind == "cubin" for image in context.facts.gpu)
        return ("warning" if sm is None and has_cubin else "error"), grave
    return ("unknown" if None in answers else None), ""


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
