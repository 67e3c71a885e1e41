"""Verdicts for hosts that are known as tables.

A plugin loads in a host if the dynamic linker can resolve each of its strong undefined symbols there. Symbols
with a version come from the C and C++ libraries and are compared with the target; those without one come from
the host. What can be resolved only under a condition becomes a note, what can't be decided makes the verdict
"not checked", never "loads".
"""

from __future__ import annotations

from typing import NamedTuple

from aoti_abi.features import evaluate
from aoti_abi.torch_host import NEEDED_NAMES
from aoti_abi.versions import parse_version
from aoti_inspect.facts import PluginFacts
from aoti_inspect.findings import HostVerdict, Outcome
from aoti_inspect.hosts.tables import TableHost
from aoti_inspect.symbol_families import Family, family, uses_old_string_abi
from aoti_inspect.target import Target

#: The first glibc whose dlopen refuses an object that asks for an executable stack.
EXECSTACK_REFUSED_SINCE = "2.41"
#: PyTorch's wheels use the C++11 std::string ABI in every build from this version on.
CXX11_ABI_SINCE = "2.7"

#: The version names of the C and C++ libraries, and the field of `Target` that says how new they may be.
VERSION_PREFIXES: dict[str, str] = {"GLIBC_": "glibc", "GLIBCXX_": "glibcxx", "CXXABI_": "cxxabi"}


class Undefined(NamedTuple):
    """The strong undefined symbols that a host has to provide, by family."""

    by_family: dict[Family, list[str]]

    def of(self, name: Family) -> list[str]:
        """Return the symbols of one family, in the file's order."""
        return self.by_family.get(name, [])


def host_symbols(plugin: PluginFacts) -> Undefined:
    """Group the strong undefined symbols that carry no version: nothing but the host provides those."""
    groups: dict[Family, list[str]] = {}
    for symbol in plugin.elf.undefined:
        if symbol.binding != "weak" and symbol.version is None:
            groups.setdefault(family(symbol.name), []).append(symbol.name)
    return Undefined(groups)


def lost_features(plugin: PluginFacts) -> tuple[str, ...]:
    """Return the features that the plugin does not allow in any host, by name; additions of no loss left out."""
    return tuple(
        state.feature.name
        for state in evaluate(frozenset(plugin.elf.exports.container))
        if not state.available and not state.feature.addition
    )


def newer_than_target(plugin: PluginFacts, target: Target) -> list[tuple[str, str, tuple[str, ...]]]:
    """Return ``(needed version, the target's version, symbols)`` for each version need beyond the target."""
    beyond = []
    for need in plugin.elf.version_needs:
        for prefix, field in VERSION_PREFIXES.items():
            limit: str | None = getattr(target, field)
            number = need.version.removeprefix(prefix)
            if number == need.version or limit is None or need.weak:
                continue
            try:
                if parse_version(number) > parse_version(limit):
                    beyond.append((need.version, limit, need.symbols))
            except ValueError:
                # GLIBC_PRIVATE, GLIBC_ABI_DT_RELR and the like are no numbers; the closure check decides those.
                continue
    return beyond


def missing_isa(plugin: PluginFacts, target: Target) -> tuple[str, ...]:
    """Return the instruction sets that the plugin's metadata names and the target lacks."""
    text = (plugin.metadata or {}).get("AOTI_CPU_ISA", "")
    if target.isa is None or not text or text == "INVALID_VEC_ISA":
        return ()
    return tuple(name for name in text.upper().split() if name not in target.isa)


def common_reasons(plugin: PluginFacts, target: Target) -> list[str]:
    """Return why the plugin would not load in any host of this target, the gravest first."""
    reasons = []
    elf = plugin.elf
    machine = elf.header.machine_name
    if target.machine is not None and machine != target.machine:
        return [f"it is built for {machine}, the target is {target.machine}"]
    run = evaluate(frozenset(elf.exports.container))[0]
    if run.missing:
        reasons.append(f"required entry points are missing: {', '.join(run.missing)}")
    for version, limit, symbols in newer_than_target(plugin, target):
        because = f" (for {some(symbols)})" if symbols else ""
        reasons.append(f"it needs {version}{because}, the target has {limit}")
    lacking = missing_isa(plugin, target)
    if lacking:
        reasons.append(f"it uses {' '.join(lacking)}, which the target's processor lacks: illegal instruction")
    return reasons


def execstack_refused(plugin: PluginFacts, target: Target) -> bool:
    """Whether the target's glibc refuses to dlopen the plugin for its executable stack."""
    return (
        plugin.elf.executable_stack is True
        and target.glibc is not None
        and parse_version(target.glibc) >= parse_version(EXECSTACK_REFUSED_SINCE)
    )


def outcome(reasons: list[str], unchecked: list[str], lost: tuple[str, ...]) -> Outcome:
    """Combine: a reason against outweighs a doubt, a doubt outweighs a fallback."""
    if reasons:
        return "will not load"
    if unchecked:
        return "not checked"
    return "loads with fallbacks" if lost else "loads"


def judge(plugin: PluginFacts, host: TableHost, target: Target) -> HostVerdict:
    """Return the verdict for one host known as a table."""
    reasons = common_reasons(plugin, target)
    unchecked: list[str] = []
    notes: list[str] = []
    symbols = host_symbols(plugin)
    asked = [*symbols.of("shim"), *symbols.of("prefixed-shim"), *symbols.of("sleef")]
    missing = [name for name in asked if not host.provides(name)]
    if missing:
        reasons.append(f"{host.name} lacks {_count(missing, 'symbol')} that the plugin calls: {some(missing)}")
    _check_cxx(plugin, host, symbols, reasons, unchecked, notes)
    _check_needed(plugin, host, symbols, reasons, notes)
    _check_cuda(plugin, host, symbols, notes)
    _check_rest(plugin, symbols, missing, reasons, unchecked)
    if execstack_refused(plugin, target):
        if host.kind == "builtin":
            notes.append("aoti_loader clears the executable-stack flag in its private copy")
        else:
            reasons.append(f"it asks for an executable stack, which glibc {target.glibc} refuses")
    if symbols.of("shim") and any("proxy_executor" in name for name in symbols.of("shim")):
        notes.append("its custom operators must be registered in the host first")
    lost = lost_features(plugin)
    return HostVerdict(
        host.name,
        outcome(reasons, unchecked, lost),
        tuple(reasons or unchecked),
        tuple(sorted(missing)),
        lost,
        tuple(notes),
    )


def _check_cxx(
    plugin: PluginFacts,
    host: TableHost,
    symbols: Undefined,
    reasons: list[str],
    unchecked: list[str],
    notes: list[str],
) -> None:
    libtorch = [s.name for s in plugin.elf.undefined if s.binding != "weak" and family(s.name) == "libtorch-c++"]
    if libtorch and host.kind != "torch":
        reasons.append(f"it calls libtorch's C++ API, which only PyTorch has: {some(libtorch)}")
    elif libtorch:
        old = [name for name in libtorch if uses_old_string_abi(name)]
        if old and parse_version(host.version or "0") >= parse_version(CXX11_ABI_SINCE):
            reasons.append(f"it was built with the old std::string ABI, {host.name} has the new one: {some(old)}")
        else:
            unchecked.append(
                f"it calls libtorch's C++ API, which promises nothing across versions: {some(libtorch)}"
            )
    if plugin.cxx_runtime_static and plugin.elf.exports.std_strong:
        text = f"it carries and exports its own C++ runtime ({plugin.elf.exports.std_strong} symbols)"
        if host.kind == "torch":
            reasons.append(f"{text}: two runtimes meet in one process, and creating the model crashes")
        else:
            notes.append(f"{text}: safe only in a process without another C++ runtime")
    if symbols.of("c++") and "libstdc++.so.6" not in plugin.elf.needed:
        notes.append("libstdc++.so.6 must be loaded first, as aoti_loader does: the plugin does not name it")
    if plugin.cxx_runtime == "libc++" and host.kind == "torch":
        notes.append("it uses libc++, PyTorch uses libstdc++: exceptions do not cross between the two")


def _check_needed(
    plugin: PluginFacts, host: TableHost, symbols: Undefined, reasons: list[str], notes: list[str]
) -> None:
    libtorch = [name for name in plugin.elf.needed if name in NEEDED_NAMES]
    if host.kind == "torch":
        if not libtorch and symbols.of("shim"):
            notes.append(
                "libtorch must be in the global scope first (linked into the program, or opened RTLD_GLOBAL): "
                "the plugin does not name it, and PyTorch's own Python loader fails on it"
            )
    elif libtorch and host.kind == "builtin":
        notes.append(f"aoti_loader drops {', '.join(libtorch)} from the needed libraries of its private copy")
    elif libtorch:
        reasons.append(f"it needs {', '.join(libtorch)}, which would be a second provider of aoti_torch_*")


def _check_cuda(plugin: PluginFacts, host: TableHost, symbols: Undefined, notes: list[str]) -> None:
    runtime = symbols.of("cuda-runtime")
    if "libcuda.so.1" in plugin.elf.needed or symbols.of("cuda-driver"):
        notes.append("the NVIDIA driver (libcuda.so.1) must be installed")
    if runtime and not any(name.startswith("libcudart.so") for name in plugin.elf.needed):
        notes.append(
            "it needs the CUDA build of PyTorch"
            if host.kind == "torch"
            else "the CUDA runtime (libcudart) must be loaded first: the plugin does not name it"
        )
    elif host.kind == "torch" and any("cuda" in name for name in symbols.of("shim") if name != _CUDA_CODE):
        notes.append("it needs the CUDA build of PyTorch")


#: Every plugin, also one for the CPU, asks for this one: it only returns an integer.
_CUDA_CODE = "aoti_torch_device_type_cuda"


def _check_rest(
    plugin: PluginFacts, symbols: Undefined, missing: list[str], reasons: list[str], unchecked: list[str]
) -> None:
    """Judge symbols that no table knows: another needed library may define them, the host does not."""
    rest = [*symbols.of("other"), *symbols.of("openmp"), *symbols.of("libc++")]
    if not rest:
        return
    others = [name for name in plugin.elf.needed if name not in NEEDED_NAMES]
    if others:
        unchecked.append(f"{some(rest)} must come from one of {', '.join(others)}; use --host local to look there")
    else:
        missing += rest
        reasons.append(f"nothing that the plugin needs defines {some(rest)}")


def _count(names: list[str], noun: str) -> str:
    return f"1 {noun}" if len(names) == 1 else f"{len(names)} {noun}s"


def some(names: list[str] | tuple[str, ...], limit: int = 4) -> str:
    """Name the first few, and count the rest."""
    shown = ", ".join(names[:limit])
    return shown if len(names) <= limit else f"{shown} and {len(names) - limit} more"
