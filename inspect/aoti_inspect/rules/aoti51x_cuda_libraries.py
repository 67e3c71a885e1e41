"""Rules AOTI510 and AOTI511: the libraries of CUDA."""

from __future__ import annotations

from aoti_abi.records import TYPE_CHECKING
from aoti_abi.versions import parse_version
from aoti_inspect.facts import imports
from aoti_inspect.facts.predicates import cuda_needs
from aoti_inspect.facts.releases import PTX_CUDA
from aoti_inspect.rules.registry import RuleResult, plugin_rule
from aoti_inspect.wording import counted, listed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aoti_inspect.facts.symbol_families import Family
    from aoti_inspect.rules.registry import PluginContext

#: The libraries that CUDA's functions come from, by family.
_CUDA_LIBRARIES: tuple[tuple[Family, str], ...] = (
    ("cuda-runtime", "libcudart.so"),
    ("cuda-driver", "libcuda.so"),
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


@plugin_rule("AOTI511", "other-cuda-release", "error")
def other_cuda_release(context: PluginContext) -> Iterator[RuleResult]:
    """The plugin needs libraries of another CUDA release than the target has.

    ## Why it matters
    The major version is part of the libraries' names: libcudart.so.12 is not there where CUDA 13 is. Where
    both are, two CUDA runtimes meet in one process.

    ## How it is checked
    The DT_NEEDED entries libcudart, libcublas, libcublasLt, libnvrtc, libnvJitLink and libcupti, whose names
    have CUDA's major version, are compared with `--target cuda=12.8`, and with the CUDA release of which the
    target's driver is (`--target driver=535`): older ones run on it, newer ones don't. For other libraries
    the numbers differ from CUDA's, and are not compared.

    ## How to fix it
    Compile with a PyTorch for the target's CUDA release (`+cu126`, `+cu130`).

    ## Reports it prevents
    "libcudart.so.12: cannot open shared object file", "CUDA driver version is insufficient".
    """
    target, needs = context.target, cuda_needs(context.facts)
    has = None if target.cuda is None else parse_version(target.cuda)[0]
    other = [library for library, major in needs.items() if has is not None and major != has]
    if other:
        yield RuleResult(
            f"needs {listed(other)}, and the target has CUDA {target.cuda}",
            f"compile with a PyTorch for CUDA {has}",
            tuple(other),
        )
    if target.driver is None:
        return
    branch = parse_version(target.driver)[0]
    for library, major in needs.items():
        oldest = min(
            (first for cuda, first in PTX_CUDA.values() if parse_version(cuda)[0] == major), default=0
        )
        if branch < oldest:
            yield RuleResult(
                f"needs {library}, which takes driver {oldest} or later; the target has {target.driver}",
                "install a newer driver, or compile with an older CUDA release",
                (library,),
            )
