"""Rules AOTI301 to AOTI304: the host's C functions (shims) that a plugin calls."""

from __future__ import annotations

from aoti_abi.records import TYPE_CHECKING
from aoti_abi.versions import KNOWN_TORCH
from aoti_inspect.facts import compiler, imports
from aoti_inspect.facts.symbol_families import family
from aoti_inspect.rules.registry import RuleResult, Unchecked, plugin_rule
from aoti_inspect.wording import counted, listed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aoti_inspect.rules.registry import PluginContext

_FAMILY_TITLES = {
    "libtorch-c++": "C++ functions of LibTorch",
    "sleef": "vector math (Sleef)",
    "cuda-runtime": "CUDA runtime",
    "cuda-driver": "CUDA driver",
    "openmp": "OpenMP",
    "c++": "C++ runtime",
    "libc++": "C++ runtime (libc++)",
}


def shim_family(name: str) -> str:
    """Return what kind of host function a name is, for people."""
    if name == imports.PROXY_EXECUTOR:
        return "custom operators"
    for device in ("cpu", "cuda", "xpu", "mps"):
        if name.startswith(f"aoti_torch_{device}_"):
            return f"{device.upper()} operators"
    kind = family(name)
    if kind == "shim":
        return "stable API" if name.startswith("torch_") else "core"
    return _FAMILY_TITLES.get(kind, "others")


@plugin_rule("AOTI301", "missing-host-functions", "error")
def missing_host_functions(context: PluginContext) -> Iterator[RuleResult | Unchecked]:
    """A required host lacks functions that the plugin calls.

    ## Why it matters
    A plugin binds its host's functions by name. One that is missing makes `dlopen` fail, or, with lazy
    binding, ends the process at the first call.

    ## How it is checked
    The undefined symbols are compared with what each required host defines: for `torch==X.Y` and `executorch`
    with tables, for a file with its dynamic symbols. Hosts that lack the same functions are named together,
    the functions by family, each with the first PyTorch that has it. Names that end in `_v2` and later are
    successors of a function with the same stem; a host from before the successor has only the old one.

    ## How to fix it
    Use the host version that the finding names, or compile with the PyTorch of the host. An operator that the
    host lacks can often be generated into the plugin: `max_autotune_gemm_backends="CPP"` or `"TRITON"`.

    ## Reports it prevents
    "undefined symbol: aoti_torch_create_tensor_from_blob_v2" and the question which PyTorch has it.
    """
    groups: dict[tuple[str, ...], list[str]] = {}
    for verdict in context.verdicts:
        if verdict.outcome == "not checked":
            reason = verdict.reasons[0] if verdict.reasons else "no reason was given"
            yield Unchecked(f"whether it loads in {verdict.host} could not be determined: {reason}")
        if verdict.missing:
            groups.setdefault(verdict.missing, []).append(verdict.host)
    if not groups:
        return
    from aoti_abi import shim_catalogue

    for missing, hosts in groups.items():
        families: dict[str, list[str]] = {}
        for name in missing:
            shim = shim_catalogue.lookup(name)
            label = f"{name} ({shim.first})" if shim else name
            families.setdefault(shim_family(name), []).append(label)
        parts = "; ".join(f"{title}: {listed(names)}" for title, names in families.items())
        yield RuleResult(
            f"{listed(hosts, 12)} {'lacks' if len(hosts) == 1 else 'lack'} "
            f"{counted(len(missing), 'function')} that it calls: {parts}",
            _help(missing),
            missing,
        )


def _help(missing: tuple[str, ...]) -> str:
    from aoti_abi import shim_catalogue

    shims = [name for name in missing if family(name) == "shim"]
    first = shim_catalogue.first_with_all(shims) if shims else None
    reasons = [text for text in map(shim_catalogue.skew, shims) if text]
    if first:
        reasons.append(
            f"PyTorch {first} has all the shims among them (the number after a name is its first version)"
        )
    elif shims:
        reasons.append(f"no PyTorch up to {KNOWN_TORCH[-1]} has them all")
    else:
        reasons.append("load the library that defines them before the plugin")
    return "; ".join(reasons[-3:])


@plugin_rule("AOTI302", "unknown-host-function", "warning")
def unknown_host_function(context: PluginContext) -> Iterator[RuleResult]:
    """The plugin calls a function that looks like a host function, but is in no known PyTorch.

    ## Why it matters
    It comes from a newer PyTorch, from a fork, or from another host such as ExecuTorch. Only that host loads
    the plugin.

    ## How it is checked
    Undefined `aoti_torch_*` and `torch_*` names are looked up in the catalogue of every known PyTorch, then
    in the list of ExecuTorch's CUDA backend.

    ## How to fix it
    Load it in the host that it was compiled for, or register the operator as a custom operator instead.

    ## Reports it prevents
    Custom C shims that exist on the machine of one developer only.
    """
    from aoti_abi.shim_catalogue import lookup

    unknown = [name for name in imports.names(context.facts, "shim") if lookup(name) is None]
    if not unknown:
        return
    from aoti_abi.hosts.executorch import shims_of_any_release

    offered = shims_of_any_release()
    slim = [name for name in unknown if name in offered]
    nowhere = [name for name in unknown if name not in offered]
    if slim:
        yield RuleResult(
            f"calls {counted(len(slim), 'function')} that only ExecuTorch's CUDA backend has: {listed(slim)}",
            "load it in ExecuTorch, or compile it without ExecuTorch's custom operators",
            tuple(slim),
            "info",
        )
    if nowhere:
        yield RuleResult(
            f"calls {counted(len(nowhere), 'host function')} that no PyTorch up to {KNOWN_TORCH[-1]} has: "
            f"{listed(nowhere)}",
            "load it in the host that it was compiled for, or make the operator a registered custom operator",
            tuple(nowhere),
        )


@plugin_rule("AOTI303", "changed-host-function", "warning")
def changed_host_function(context: PluginContext) -> Iterator[RuleResult]:
    """A host function takes different arguments than the plugin passes.

    ## Why it matters
    A few host functions changed their parameters and kept their names. C has no check for that: the call
    reads wrong arguments, and crashes or corrupts memory.

    ## How it is checked
    The version that compiled the plugin follows from its exports and imports; each `torch==X.Y` host that was
    asked about is compared with the versions in which an imported function changed.

    ## How to fix it
    Load it in a PyTorch on the same side of the change, or compile it with the host's version.

    ## Reports it prevents
    Crashes inside one operator after a PyTorch upgrade that every other model survived.
    """
    from aoti_abi.hosts import find

    known = [find(verdict.host) for verdict in context.verdicts]
    hosts = [host.version for host in known if host and host.version and host.descriptor.is_libtorch]
    found = compiler.fingerprint(context.facts) if hosts else None
    if found is None:
        return
    from aoti_abi.shim_catalogue import lookup
    from aoti_abi.versions import parse_version

    oldest, latest = parse_version(found.oldest), parse_version(found.newest)
    changed: dict[str, list[str]] = {}
    for name in imports.names(context.facts, "shim"):
        shim = lookup(name)
        for version in shim.changed if shim else ():
            change = parse_version(version)
            for host in hosts:
                here = parse_version(host)
                if (oldest >= change > here) or (here >= change > latest):
                    changed.setdefault(name, []).append(f"torch=={host}")
    if changed:
        affected = sorted({host for hosts in changed.values() for host in hosts})
        yield RuleResult(
            f"passes different arguments to {listed(sorted(changed))} than {listed(affected)} "
            f"{'takes' if len(affected) == 1 else 'take'}",
            f"use a host of PyTorch {found.range}, or compile it with the host's version",
            tuple(changed),
        )


@plugin_rule("AOTI304", "required-host-refuses", "error")
def required_host_refuses(context: PluginContext) -> Iterator[RuleResult]:
    """A required host cannot load the plugin, for a reason other than missing functions.

    ## Why it matters
    The host was named with `--host`: the artifact is of no use without it.

    ## How it is checked
    The verdict of each required host is "will not load", though the host has every function that the plugin
    calls. The reasons are the verdict's own; many of them have a finding of their own, with more detail.

    ## How to fix it
    Follow the findings beside this one; or require another host.

    ## Reports it prevents
    A release gate that passes because the cause lay outside of what it compared.
    """
    for verdict in context.verdicts:
        if verdict.outcome == "will not load" and not verdict.missing:
            yield RuleResult(
                f"{verdict.host} cannot load it: {'; '.join(verdict.reasons) or 'no reason was given'}",
                "follow the other findings, or require another host",
                (verdict.host,),
            )
