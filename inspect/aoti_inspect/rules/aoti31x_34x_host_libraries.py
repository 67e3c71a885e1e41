"""Rules AOTI310 to AOTI341: libraries that a host must provide, and who else defines its functions."""

from __future__ import annotations

from aoti_abi.records import TYPE_CHECKING
from aoti_inspect.facts import imports
from aoti_inspect.rules.registry import RuleResult, plugin_rule
from aoti_inspect.wording import counted, listed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aoti_inspect.rules.registry import PluginContext


def _libtorch(context: PluginContext) -> list[str]:
    return list(context.facts.imports.libtorch)


@plugin_rule("AOTI310", "needs-libtorch", "info")
def needs_libtorch(context: PluginContext) -> Iterator[RuleResult]:
    """LibTorch is in DT_NEEDED, so loading the plugin loads LibTorch.

    ## Why it matters
    The plugin can't be loaded where PyTorch is not installed, even if another host defines every function
    that it calls: the dynamic linker looks for the library first.

    ## How it is checked
    DT_NEEDED is searched for LibTorch's libraries.

    ## How to fix it
    Compile with `aot_inductor.link_libtorch=False` (PyTorch 2.10 and later) for hosts without LibTorch.
    `aoti_loader` drops the entry in its private copy. Within PyTorch nothing is wrong.

    ## Reports it prevents
    "libtorch_cpu.so: cannot open shared object file" in a small host that has all the functions.
    """
    libraries = _libtorch(context)
    if libraries and imports.is_plugin(context.facts):
        yield RuleResult(
            f"names {listed(libraries)} as needed: an ordinary dlopen works only where LibTorch is found",
            "for a host without LibTorch, compile with aot_inductor.link_libtorch=False (PyTorch 2.10 "
            "and later)",
            tuple(libraries),
        )


@plugin_rule("AOTI311", "host-must-export-shims", "info")
def host_must_export_shims(context: PluginContext) -> Iterator[RuleResult]:
    """No library in DT_NEEDED defines the host functions: the process must have them in its global scope.

    ## Why it matters
    The plugin was linked without LibTorch. Its `aoti_torch_*` functions are found only if a host has exported
    them before: an executable linked with `-rdynamic`, or a library opened with RTLD_GLOBAL. `import torch`
    opens LibTorch locally, so that even PyTorch's own loader fails on such a plugin.

    ## How it is checked
    There are undefined `aoti_torch_*` symbols, and none of LibTorch's libraries is in DT_NEEDED.

    ## How to fix it
    Load it with `aoti_loader`, which brings a host into scope first; or open `libtorch_cpu.so` with
    RTLD_GLOBAL; or compile with `aot_inductor.link_libtorch=True`.

    ## Reports it prevents
    "undefined symbol: aoti_torch_dtype_float32" in a process that has PyTorch loaded.
    """
    shims = imports.names(context.facts, "shim")
    if shims and imports.is_plugin(context.facts) and not _libtorch(context):
        yield RuleResult(
            f"names no provider of the {counted(len(shims), 'host function')} that it calls: the host must "
            "have them in the global scope first",
            "load it with aoti_loader, or open the host's library with RTLD_GLOBAL; import torch does "
            "not do that",
            tuple(shims),
        )


@plugin_rule("AOTI312", "mixed-devices", "info")
def mixed_devices(context: PluginContext) -> Iterator[RuleResult]:
    """The plugin calls operators of more than one device.

    ## Why it matters
    Each operator function belongs to one device. A graph that mixes them needs a host with both families,
    and code generation has been known to hand a CPU kernel a pointer to GPU memory.

    ## How it is checked
    Undefined symbols named `aoti_torch_cpu_*`, `aoti_torch_cuda_*`, `aoti_torch_xpu_*` and
    `aoti_torch_mps_*`.

    ## How to fix it
    If that is not intended, move the model's buffers and index tensors to one device before export.

    ## Reports it prevents
    Illegal memory accesses of models where one small tensor stayed on the CPU.
    """
    shims = imports.names(context.facts, "shim")
    families = {
        device: [name for name in shims if name.startswith(f"aoti_torch_{device}_")]
        for device in ("cpu", "cuda", "xpu", "mps")
    }
    used = {device: found for device, found in families.items() if found}
    if len(used) > 1:
        yield RuleResult(
            "calls operators of several devices: "
            + "; ".join(f"{device}: {listed(found)}" for device, found in used.items()),
            "if that is not intended, move the model's buffers to one device before export",
            tuple(name for found in used.values() for name in found),
        )


@plugin_rule("AOTI320", "host-vector-math", "info")
def host_vector_math(context: PluginContext) -> Iterator[RuleResult]:
    """The plugin needs vector math functions (Sleef) from its host.

    ## Why it matters
    Vectorised kernels call Sleef for `exp`, `sin`, `tanh` and the like. LibTorch exports these functions;
    other hosts need not.

    ## How it is checked
    Undefined symbols that start with `Sleef_`.

    ## How to fix it
    Use LibTorch or `aoti_loader`'s built-in host, which forwards them to glibc's libmvec; or compile with
    `cpp.simdlen=1`, which calls libm instead.

    ## Reports it prevents
    "undefined symbol: Sleef_expf16_u10" in a host that has every `aoti_torch_*` function.
    """
    found = imports.names(context.facts, "sleef")
    if found:
        yield RuleResult(
            f"expects {counted(len(found), 'vector math function')} of the host: {listed(found)}",
            "LibTorch and the built-in host have them; cpp.simdlen=1 avoids them",
            tuple(found),
        )


@plugin_rule("AOTI321", "other-host-symbols", "warning")
def other_host_symbols(context: PluginContext) -> Iterator[RuleResult]:
    """The plugin needs symbols of no known interface, with no library named for them.

    ## Why it matters
    They must come from whatever the host has loaded: a math library, a custom kernel's own library, a host
    with its own prefix. Nothing in the file says which.

    ## How it is checked
    Undefined, non-weak symbols without a version that are neither host functions, nor C++ runtime, LibTorch,
    Sleef, OpenMP or CUDA. Information only if DT_NEEDED names a library that may define them.

    ## How to fix it
    Link with the library that defines them, so that DT_NEEDED names it.

    ## Reports it prevents
    "undefined symbol" for a helper that happened to be loaded on the build machine.
    """
    plugin = context.facts
    others = imports.by_family(plugin).get("other", ())
    found = sorted({symbol.name for symbol in others if symbol.version is None})
    if not found or not imports.is_plugin(plugin):
        return
    own = (
        "libc.",
        "libm.",
        "libstdc++",
        "libc++",
        "libgcc_s",
        "libgomp",
        "ld-linux",
        "libcuda.",
        "libcudart",
    )
    providers = [name for name in plugin.elf.needed if not name.rpartition("/")[2].startswith(own)]
    where = f"perhaps from {listed(providers)}" if providers else "and no library in DT_NEEDED has them"
    yield RuleResult(
        f"needs {counted(len(found), 'symbol')} of no known interface, {where}: {listed(found)}",
        "link with the library that defines them, or load it with RTLD_GLOBAL before the plugin",
        tuple(found),
        "info" if providers else None,
    )


@plugin_rule("AOTI330", "needs-proxy-executor", "warning")
def needs_proxy_executor(context: PluginContext) -> Iterator[RuleResult]:
    """Operators without a C shim are called through the host's proxy executor.

    ## Why it matters
    Custom operators, and those of ATen that have no C function, are described in a JSON file beside the
    plugin and run by the host. Without that file, or in a host without such an executor, the run crashes or
    fails. The library that registers a custom operator must be loaded first; it is not in the package.

    ## How it is checked
    `aoti_torch_proxy_executor_call_function` is among the undefined symbols.

    ## How to fix it
    Ship the `.pt2` package, which has the JSON (`*.wrapper.json`), not the bare `.so`, and load the
    operator's library first; or replace the operator by one that has a C function.

    ## Reports it prevents
    "Could not find schema for mylib::custom_op" in another process, and crashes of the bare library where the
    package works.
    """
    if imports.PROXY_EXECUTOR in imports.names(context.facts, "shim"):
        yield RuleResult(
            "calls custom operators through the host's proxy executor: it needs the extern nodes' JSON and "
            "the operators' library",
            "ship the .pt2 package rather than the bare .so, and load the library that registers the "
            "operators",
            (imports.PROXY_EXECUTOR,),
        )


@plugin_rule("AOTI340", "defines-host-functions", "error")
def defines_host_functions(context: PluginContext) -> Iterator[RuleResult]:
    """The file itself defines host functions (`aoti_torch_*`).

    ## Why it matters
    These names belong to the host. A second definition in the process binds by load order, and a tensor
    handle of one implementation is then read with the layout of the other. Files that export no container
    function are hosts rather than plugins; for them the finding is information.

    ## How it is checked
    The defined dynamic symbols are searched for `aoti_torch_*` and `torch_*`.

    ## How to fix it
    Link the host's functions from a shared library, not from an archive; or hide them with
    `-Wl,--exclude-libs,ALL`.

    ## Reports it prevents
    Crashes in `aoti_torch_get_data_ptr` in a process that has both LibTorch and ExecuTorch.
    """
    exports = context.facts.elf.exports
    if exports.shims:
        plugin = bool(exports.container)
        yield RuleResult(
            f"defines {counted(len(exports.shims), 'host function')} itself: {listed(exports.shims)}; with "
            "another provider in the process, load order decides which one is called"
            if plugin
            else f"is a host rather than a plugin: it defines {counted(len(exports.shims), 'host function')}",
            "link the host's functions from a shared library, or hide them with -Wl,--exclude-libs,ALL"
            if plugin
            else None,
            exports.shims,
            None if plugin else "info",
        )


@plugin_rule("AOTI341", "prefixed-host-functions", "info")
def prefixed_host_functions(context: PluginContext) -> Iterator[RuleResult]:
    """Host functions are called under names with a prefix.

    ## Why it matters
    A prefix (`executorch_aoti_torch_*`) keeps two hosts apart in one process. It also means that only the
    host with that prefix can load the plugin.

    ## How it is checked
    Undefined symbols that contain `aoti_torch_` after a prefix.

    ## How to fix it
    Nothing, if that host is the intended one; otherwise compile without the prefix.

    ## Reports it prevents
    Plugins that are taken for broken because a plain PyTorch lacks all their functions.
    """
    found = imports.names(context.facts, "prefixed-shim")
    if found:
        prefixes = sorted({name.partition("aoti_torch_")[0] for name in found})
        yield RuleResult(
            f"calls {counted(len(found), 'host function')} with the prefix {listed(prefixes)}: "
            f"{listed(found)}",
            "load it in the host with that prefix, or compile it without one",
            tuple(found),
        )
