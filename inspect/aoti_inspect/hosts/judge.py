"""Verdicts for hosts that are known by a description (`aoti_abi.hosts`).

A plugin loads in a host if the dynamic linker can resolve each of its strong undefined symbols there. Symbols
with a version come from the C and C++ libraries and are compared with the target; those without one come from
the host. What can be resolved only under a condition becomes a note, what can't be decided makes the verdict
"not checked", never "loads".
"""

from __future__ import annotations

from aoti_abi.features import evaluate
from aoti_abi.records import TYPE_CHECKING, NamedTuple
from aoti_abi.versions import parse_version
from aoti_inspect.facts.predicates import cuda_needs, not_a_library, refuses_its_stack
from aoti_inspect.facts.processor import fits_processor
from aoti_inspect.facts.symbol_families import uses_old_string_abi
from aoti_inspect.facts.version_needs import newer_than
from aoti_inspect.findings import HostVerdict
from aoti_inspect.wording import counted, listed

if TYPE_CHECKING:
    from aoti_abi.host_descriptor import HostDescriptor, KnownHost
    from aoti_inspect.facts.records import PluginFacts
    from aoti_inspect.facts.target import Target
    from aoti_inspect.findings import Outcome


def lost_features(plugin: PluginFacts) -> tuple[str, ...]:
    """Return the features that the plugin allows in no host, by name; additions of no loss left out."""
    return tuple(
        state.feature.name for state in evaluate(frozenset(plugin.elf.exports.container)) if state.lost
    )


def common_reasons(plugin: PluginFacts, target: Target) -> list[str]:
    """Return why the plugin would not load in any host of this target, the gravest first."""
    reasons: list[str] = []
    elf = plugin.elf
    machine = elf.header.machine_name
    if target.machine is not None and machine != target.machine:
        return [f"it is built for {machine}, the target is {target.machine}"]
    what = not_a_library(elf)
    if what:
        return [f"it {what}"]
    reasons += elf.unusable
    run = evaluate(frozenset(elf.exports.container))[0]
    if run.missing:
        reasons.append(f"required entry points are missing: {', '.join(run.missing)}")
    for prefix, limit in (("GLIBC_", target.glibc), ("GLIBCXX_", target.glibcxx), ("CXXABI_", target.cxxabi)):
        for newer in newer_than(plugin, prefix, limit) if limit else ():
            if not newer.need.weak:
                because = f" (for {listed(newer.need.symbols)})" if newer.need.symbols else ""
                reasons.append(f"it needs {newer.need.version}{because}, the target has {prefix}{limit}")
    reasons += [
        f"illegal instruction: it {found.message}" for found in fits_processor(plugin, target).lacking
    ]
    return reasons


class Common(NamedTuple):
    """What is the same for every host: computed once for a plugin and a target.

    Attributes:
        plugin, target: what is judged.
        reasons: why it would load nowhere.
        lost: the features that it allows nowhere.
        unchecked: what is open wherever it runs.
    """

    plugin: PluginFacts
    target: Target
    reasons: tuple[str, ...]
    lost: tuple[str, ...]
    unchecked: tuple[str, ...] = ()


def for_all_hosts(plugin: PluginFacts, target: Target) -> Common:
    """Look at a plugin once, before its hosts are judged."""
    reasons = tuple(common_reasons(plugin, target))
    unchecked = tuple(f"it {text}" for text in fits_processor(plugin, target).unchecked)
    return Common(plugin, target, reasons, lost_features(plugin), unchecked)


class Judgement:
    """What speaks against a host, gathered while a plugin is looked at.

    Attributes:
        plugin: what is judged.
        reasons: why the plugin will not load there, the gravest first.
        unchecked: what could not be decided.
        notes: what holds only under a condition.
        missing: undefined symbols that nothing there defines.
        libraries: what was found, where and how, as `HostVerdict` has it.
    """

    def __init__(self, common: Common) -> None:
        self.plugin = common.plugin
        self.reasons = list(common.reasons)
        # What was not read may hold what speaks against the host.
        self.unchecked = [f"not read to its end: {what}" for what in common.plugin.elf.not_read]
        self.unchecked += common.unchecked
        self.notes: list[str] = []
        self.missing: list[str] = []
        self.libraries: list[str] = []
        self._lost = common.lost

    def verdict(self, host: str) -> HostVerdict:
        """Combine: a reason against outweighs a doubt, a doubt outweighs a fallback."""
        lost = self._lost
        outcome: Outcome = "loads with fallbacks" if lost else "loads"
        if self.unchecked:
            outcome = "not checked"
        if self.reasons:
            outcome = "will not load"
        return HostVerdict(
            host,
            outcome,
            tuple(self.reasons or self.unchecked),
            tuple(sorted(self.missing)),
            lost,
            tuple(self.notes),
            tuple(self.libraries),
        )


def judge(common: Common, host: KnownHost) -> HostVerdict:
    """Return the verdict for one host known by its description."""
    found = Judgement(common)
    plugin, target = common.plugin, common.target
    asked = plugin.imports.unversioned("shim", "prefixed-shim", "sleef")
    provides = host.provides(plugin.elf.header.machine_name)
    found.missing = [name for name in asked if not provides(name)]
    if found.missing:
        count = counted(len(found.missing), "symbol")
        found.reasons.append(f"{host.name} lacks {count} that the plugin calls: {listed(found.missing)}")
    _check_libtorch_cxx(found, host)
    _check_cxx_runtime(found, host.descriptor)
    _check_needed(found, host.descriptor)
    _check_cuda(found, host, target)
    _check_rest(found)
    if refuses_its_stack(target, plugin.elf):
        if host.descriptor.clears_executable_stack and plugin.elf.executable_stack:
            found.notes.append("aoti_loader clears the executable-stack flag in its private copy")
        else:
            found.reasons.append(f"it asks for an executable stack, which glibc {target.glibc} refuses")
    if plugin.imports.proxy_executor:
        found.notes.append("its custom operators must be registered in the host first")
    return found.verdict(host.name)


def _check_libtorch_cxx(found: Judgement, host: KnownHost) -> None:
    called = found.plugin.imports.names("libtorch-c++")
    if not called:
        return
    old = [name for name in called if uses_old_string_abi(name)]
    if not host.descriptor.is_libtorch:
        found.reasons.append(f"it calls libtorch's C++ API, which only PyTorch has: {listed(called)}")
    elif old and host.at_least(host.descriptor.cxx11_abi_since):
        found.reasons.append(
            f"it was built with the old std::string ABI, {host.name} has the new one: {listed(old)}"
        )
    else:
        found.unchecked.append(
            f"it calls libtorch's C++ API, which promises nothing across versions: {listed(called)}"
        )


def _check_cxx_runtime(found: Judgement, host: HostDescriptor) -> None:
    plugin = found.plugin
    if plugin.cxx_runtime_static and plugin.elf.exports.std_strong:
        text = f"it carries and exports its own C++ runtime ({plugin.elf.exports.std_strong} symbols)"
        if host.cxx_runtime:
            found.reasons.append(f"{text}: two runtimes meet in one process, and creating the model crashes")
        else:
            found.notes.append(f"{text}: safe only in a process without another C++ runtime")
    if plugin.imports.unversioned("c++") and not plugin.imports.needs_library("libstdc++.so"):
        found.notes.append("libstdc++.so.6 must be loaded first, as aoti_loader does: it is not named")
    if plugin.cxx_runtime == "libc++" and host.cxx_runtime == "libstdc++":
        found.notes.append(
            f"it uses libc++, {host.title} uses libstdc++: exceptions do not cross between the two"
        )


def _check_needed(found: Judgement, host: HostDescriptor) -> None:
    libtorch = found.plugin.imports.libtorch
    if host.is_libtorch:
        by_path = [entry for entry in libtorch if "/" in entry]
        if by_path:
            found.notes.append(f"{listed(by_path)} must be the file that {host.title} itself loads")
        if not libtorch and found.plugin.imports.unversioned("shim"):
            found.notes.append(
                "libtorch must be in the global scope first (linked into the program, or opened "
                "RTLD_GLOBAL), since it is not named; PyTorch's own Python loader fails on it"
            )
    elif libtorch and host.drops_libtorch:
        found.notes.append(
            f"aoti_loader drops {listed(libtorch)} from the needed libraries of its private copy"
        )
    elif libtorch:
        found.reasons.append(f"it needs {listed(libtorch)}, which would be a second provider of aoti_torch_*")


def _check_cuda(found: Judgement, host: KnownHost, target: Target) -> None:
    imports, descriptor = found.plugin.imports, host.descriptor
    if imports.unversioned("cuda-driver") or imports.needs_library("libcuda.so"):
        found.notes.append("the NVIDIA driver (libcuda.so.1) must be installed")
    forgotten = bool(imports.unversioned("cuda-runtime")) and not imports.needs_library("libcudart.so")
    asks = imports.cuda_shims + imports.cuda_libtorch
    if descriptor.cuda_build and (forgotten or asks):
        names = f": {listed(asks)}" if asks else ""
        if host.build == "cpu":
            found.reasons.append(f"it needs {descriptor.cuda_build}{names}")
        elif host.cuda is None:
            found.notes.append(f"it needs {descriptor.cuda_build}{names}")
    elif forgotten:
        found.notes.append("the CUDA runtime (libcudart) must be loaded first: the plugin does not name it")
    needs = cuda_needs(found.plugin)
    has = host.cuda or target.cuda
    for library, major in needs.items():
        if has is None:
            if descriptor.cuda_build:
                found.notes.append(f"{library} must be there: only a build for CUDA {major} brings it")
        elif parse_version(has)[0] != major:
            found.reasons.append(f"it needs {library}, of CUDA {major}, and the host has CUDA {has}")


def _check_rest(found: Judgement) -> None:
    """Judge symbols of no known interface: another needed library may define them, the host does not."""
    imports = found.plugin.imports
    rest = imports.unversioned("other", "openmp", "libc++")
    if not rest:
        return
    others = [name for name in imports.needed if name not in imports.libtorch]
    if others:
        found.unchecked.append(f"{listed(rest)} must come from {listed(others)}; --host local looks there")
    else:
        found.missing += rest
        found.reasons.append(f"nothing that the plugin needs defines {listed(rest)}")
