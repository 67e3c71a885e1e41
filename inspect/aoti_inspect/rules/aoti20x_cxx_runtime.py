"""Rules AOTI201 to AOTI208: the C++ runtime, and C++ symbols at the boundary."""

from __future__ import annotations

from aoti_abi.records import TYPE_CHECKING
from aoti_inspect.facts import imports
from aoti_inspect.facts.symbol_families import uses_old_string_abi
from aoti_inspect.rules.registry import RuleResult, plugin_rule
from aoti_inspect.wording import counted, listed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aoti_inspect.rules.registry import PluginContext


@plugin_rule("AOTI201", "cxx-runtime-not-needed", "warning")
def cxx_runtime_not_needed(context: PluginContext) -> Iterator[RuleResult]:
    """The plugin uses the C++ runtime library without naming it in DT_NEEDED.

    ## Why it matters
    The dynamic linker loads what DT_NEEDED names. A plugin that leaves out `libstdc++.so.6` loads only where
    something else has put that library into the global scope first; a Python process usually has not.

    ## How it is checked
    Undefined, non-weak C++ runtime symbols (`_ZNSt...`, `_Znwm`, `__cxa_throw`, ...) are counted; DT_NEEDED
    is searched for `libstdc++` or `libc++`.

    ## How to fix it
    Link with g++ instead of gcc or ld, or add `-lstdc++`. `aoti_loader` opens `libstdc++.so.6` globally
    before it loads such a plugin; other hosts must do the same.

    ## Reports it prevents
    "undefined symbol: _ZTVN10__cxxabiv120__si_class_type_infoE" in one program and not in another.
    """
    if imports.needs_library(context.facts, "libstdc++", "libc++"):
        return
    used = imports.cxx_runtime_imports(context.facts)
    if used:
        library = "libc++.so.1" if context.facts.cxx_runtime == "libc++" else "libstdc++.so.6"
        yield RuleResult(
            f"uses {counted(len(used), 'symbol')} of the C++ runtime, but DT_NEEDED does not name {library}: "
            f"{listed(used)}",
            f"link with g++, or add -l{library[3:].partition('.')[0]}; a host must open {library} with "
            "RTLD_GLOBAL first",
            tuple(used),
        )


@plugin_rule("AOTI202", "cxx-runtime-exported", "error")
def cxx_runtime_exported(context: PluginContext) -> Iterator[RuleResult]:
    """The C++ runtime is linked into the plugin statically, and exported from it.

    ## Why it matters
    Two C++ runtimes then share one process, and symbols of each bind to the other by load order: locales,
    exceptions and iostreams of one implementation run on the data of the other. PyTorch's own runner was seen
    to crash inside such a plugin's constructor, on the machine that compiled it.

    ## How it is checked
    The file defines the runtime's own functions, not only inlined templates, among its dynamic symbols, and
    does not need them from a shared library.

    ## How to fix it
    Link the shared runtime: drop `-static-libstdc++`, or set `CXX` to a compiler that has a shared one. If it
    must be static, hide it with `-Wl,--exclude-libs,ALL`.

    ## Reports it prevents
    Crashes inside `std::locale`, `codecvt` or `std::regex` after an unrelated library was loaded; libraries
    that bind to another one's private helper symbols.
    """
    plugin = context.facts
    if plugin.cxx_runtime_static and plugin.elf.exports.std_strong:
        exports = plugin.elf.exports
        name = plugin.cxx_runtime or "a C++ runtime"
        yield RuleResult(
            f"carries its own {name} and exports {counted(exports.std, 'symbol')} of it, "
            f"among them {listed(exports.std_examples, 2)}",
            "link the shared runtime (no -static-libstdc++, another CXX), or hide the static one with "
            "-Wl,--exclude-libs,ALL",
            exports.std_examples,
        )


@plugin_rule("AOTI203", "cxx-runtime-static", "info")
def cxx_runtime_static(context: PluginContext) -> Iterator[RuleResult]:
    """The C++ runtime is linked into the plugin statically, and hidden.

    ## Why it matters
    It works, as long as no C++ object crosses the boundary: exceptions, strings and maps of the plugin are
    not those of the host. The plugin does not get the fixes of the system's runtime either.

    ## How it is checked
    The file contains parts of the runtime, does not need the shared library, and exports none of the
    runtime's own functions.

    ## How to fix it
    Nothing, if the host uses only calls with C arrays; otherwise link the shared runtime.

    ## Reports it prevents
    Exceptions of a plugin that no host can catch, and maps read with another library's layout.
    """
    plugin = context.facts
    if plugin.cxx_runtime_static and not plugin.elf.exports.std_strong:
        yield RuleResult(
            f"carries its own {plugin.cxx_runtime or 'C++ runtime'}, hidden: no C++ object may cross the "
            "boundary",
            "use only the container calls with C arrays, or link the shared runtime",
        )


@plugin_rule("AOTI204", "libcxx", "warning")
def libcxx(context: PluginContext) -> Iterator[RuleResult]:
    """The plugin was compiled against libc++ instead of libstdc++.

    ## Why it matters
    LibTorch for Linux uses libstdc++. The two libraries lay out strings and maps differently, so the calls
    that pass a `std::unordered_map` read garbage, silently. Calls with C arrays are not affected.

    ## How it is checked
    libc++ keeps its names in the inline namespace `std::__1`, which shows in mangled symbols.

    ## How to fix it
    Compile with `-stdlib=libstdc++`, or use only the calls with C arrays.

    ## Reports it prevents
    Corrupted weights after an update from a host that was built with the other library.
    """
    if context.facts.cxx_runtime == "libc++":
        used = imports.names(context.facts, "libc++")
        yield RuleResult(
            "compiled against libc++, while LibTorch uses libstdc++: calls that pass a "
            "std::unordered_map are unsafe",
            "compile with -stdlib=libstdc++, or use only the container calls with C arrays",
            tuple(used),
        )


@plugin_rule("AOTI205", "old-string-abi", "error")
def old_string_abi(context: PluginContext) -> Iterator[RuleResult]:
    """The plugin needs symbols with the pre-C++11 `std::string`.

    ## Why it matters
    A plugin compiled with `_GLIBCXX_USE_CXX11_ABI=0` mangles `std::string` as `Ss`. A LibTorch of the new ABI
    defines other names, so none of those symbols is found, whatever the version. The message of the dynamic
    linker names one symbol and hides the cause. It has nothing to do with GPU architectures or missing files.

    ## How it is checked
    The undefined symbols are read as Itanium mangled names and searched for the abbreviation `Ss`. Those of
    LibTorch's namespaces are an error; those of libstdc++ alone, which has both ABIs, are a warning.

    ## How to fix it
    Compile with `-D_GLIBCXX_USE_CXX11_ABI=1`, as all of PyTorch's own wheels are since 2.7.

    ## Reports it prevents
    "undefined symbol: _ZN3c107WarningC1E...Ss", "_ZN5torch3jit17parseSchemaOrNameERKSs" and the like.
    """
    families = imports.by_family(context.facts)
    torch = sorted({s.name for s in families.get("libtorch-c++", ()) if uses_old_string_abi(s.name)})
    std = sorted({s.name for s in families.get("c++", ()) if uses_old_string_abi(s.name)})
    fix = "compile with -D_GLIBCXX_USE_CXX11_ABI=1, as all of PyTorch's wheels are since 2.7"
    if torch:
        yield RuleResult(
            f"needs {counted(len(torch), 'C++ symbol')} of LibTorch with the OLD std::string ABI, which a "
            f"host with the new one does not have: {listed(torch)}",
            fix,
            tuple(torch + std),
        )
    elif std:
        yield RuleResult(
            f"compiled with the OLD std::string ABI: it uses {counted(len(std), 'symbol')} of it: "
            f"{listed(std)}",
            fix,
            tuple(std),
            "warning",
        )


@plugin_rule("AOTI206", "torch-cxx-symbols", "warning")
def torch_cxx_symbols(context: PluginContext) -> Iterator[RuleResult]:
    """The plugin needs C++ symbols of LibTorch, which are not stable across versions.

    ## Why it matters
    A plugin should call its host through C functions only. C++ functions of `torch`, `c10` and `at` change
    with every release, and their names carry the types of their arguments; the plugin loads in the PyTorch
    that compiled it, and perhaps in no other.

    ## How it is checked
    Undefined symbols are searched for mangled names in the namespaces `torch`, `c10`, `at` and `caffe2`.

    ## How to fix it
    Compile in ABI-compatible mode (the default since PyTorch 2.4), and call LibTorch from custom kernels
    through `aoti_torch_*` or `torch/csrc/stable` only.

    ## Reports it prevents
    "undefined symbol: _ZN5torch12aot_inductor33tensor_handle_to_tensor_pointer..." one release later.
    """
    found = [name for name in imports.names(context.facts, "libtorch-c++") if not uses_old_string_abi(name)]
    if found:
        yield RuleResult(
            f"needs {counted(len(found), 'C++ symbol')} of LibTorch, outside the C API and not stable "
            f"across versions: {listed(found)}",
            "compile in ABI-compatible mode, with custom kernels on aoti_torch_* or torch/csrc/stable only",
            tuple(found),
        )


@plugin_rule("AOTI207", "unique-symbols", "info")
def unique_symbols(context: PluginContext) -> Iterator[RuleResult]:
    """Unique symbols keep the plugin mapped after `dlclose`.

    ## Why it matters
    g++ marks static data of inline functions and templates STB_GNU_UNIQUE. The dynamic linker never unmaps a
    library that defines such a symbol: memory grows with every load, and a rebuilt file under the same path
    may not be read again. All loaded plugins also share that data.

    ## How it is checked
    The binding of each defined dynamic symbol.

    ## How to fix it
    Compile with `-fno-gnu-unique`. `aoti_loader` turns the binding into STB_GLOBAL in its private copy.

    ## Reports it prevents
    Memory that grows by some hundred kilobytes with each load and unload of a model.
    """
    unique = context.facts.elf.exports.unique
    if unique:
        yield RuleResult(
            f"dlclose will not unload it: it has {counted(len(unique), 'unique symbol')}, "
            f"such as {listed(unique, 2)}",
            "compile with -fno-gnu-unique, or load it with aoti_loader, which patches its private copy",
            unique,
        )


@plugin_rule("AOTI208", "exported-internals", "info")
def exported_internals(context: PluginContext) -> Iterator[RuleResult]:
    """Opened with RTLD_GLOBAL, the plugin's internal symbols are visible to every library.

    ## Why it matters
    Plugins are compiled with default visibility: each exports the same `torch::aot_inductor` functions, its
    kernels and its weights under names that others use too. Opened with RTLD_GLOBAL, a second plugin binds to
    the first one's, and has been seen to use the first one's inputs and constants.

    ## How it is checked
    Exports other than `AOTInductor*` are counted: those of `torch::aot_inductor` and the rest.

    ## How to fix it
    Open plugins with RTLD_LOCAL, as PyTorch and `aoti_loader` do; or link with a version script that exports
    `AOTInductor*` only.

    ## Reports it prevents
    Two models in one process where one returns the other's results.
    """
    exports = context.facts.elf.exports
    if exports.container and exports.runtime + exports.others:
        yield RuleResult(
            f"opened with RTLD_GLOBAL it would clash with other plugins: it exports {exports.runtime} of "
            f"torch::aot_inductor and {exports.others} more, such as {listed(exports.other_examples, 2)}"
            if exports.others
            else "opened with RTLD_GLOBAL it would clash with other plugins: it exports "
            f"{counted(exports.runtime, 'symbol')} of torch::aot_inductor",
            "open it with RTLD_LOCAL, or link it with a version script that exports AOTInductor* only",
            exports.other_examples,
        )
