"""Which host serves a plugin: every shim checked first (L13), no second provider let in (L12)."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING, NamedTuple

from aoti_abi import shim_catalogue
from aoti_abi.errors import AotiError, InvalidState, NotFound, NotSupported
from aoti_abi.torch_host import LIBRARIES, NEEDED_NAMES
from aoti_inspect.facts.symbol_families import family
from aoti_loader import hosts

if TYPE_CHECKING:
    from aoti_inspect.facts.records import PluginFacts
    from aoti_loader.hosts import Host


class Needs(NamedTuple):
    """What a plugin asks of its host.

    Attributes:
        shims: the undefined symbols that only a host defines: shims and SLEEF's functions, sorted.
        cuda: whether some of them are in CUDA builds of PyTorch only.
        uses_cuda: whether it calls CUDA at all.
        libtorch: the LibTorch libraries that it names in DT_NEEDED.
    """

    shims: tuple[str, ...]
    cuda: bool
    uses_cuda: bool
    libtorch: tuple[str, ...]


_opened: dict[tuple[str, tuple[str, ...], bool], Host] = {}


def needs_of(facts: PluginFacts) -> Needs:
    """Return what a plugin asks of its host."""
    shims = sorted(
        symbol.name
        for symbol in facts.elf.undefined
        if symbol.binding != "weak" and family(symbol.name) in ("shim", "prefixed-shim", "sleef")
    )
    libtorch = tuple(name for name in facts.elf.needed if name in NEEDED_NAMES)
    found = map(shim_catalogue.lookup, shims)
    cuda = any(shim is not None and shim.device == "cuda" for shim in found)
    uses_cuda = any(family(symbol.name) in ("cuda-runtime", "cuda-driver") for symbol in facts.elf.undefined)
    return Needs(tuple(shims), cuda or "libtorch_cuda.so" in libtorch, cuda or uses_cuda, libtorch)


def choose_host(kind: str, facts: PluginFacts, needs: Needs) -> Host:
    """Return a host that is in the global scope and provides every shim that the plugin needs.

    Args:
        kind: "auto", "builtin", "torch" or "process".
        facts: of the plugin.
        needs: from `needs_of`.

    Raises:
        NotSupported: no host provides all of them; all that are missing are named, for each host.
        InvalidState: the process has another provider of the host API, or would get one.
        AotiError: the one host that was asked for cannot be opened.
    """
    candidates = _candidates() if kind == "auto" else (kind,)
    refusals: list[tuple[str, Host | None, tuple[str, ...], AotiError | None]] = []
    for candidate in candidates:
        key = (candidate, needs.libtorch, needs.cuda)
        if candidate == "torch" and key not in _opened:
            # LibTorch stays once it was opened, and would bar every other host from then on.
            _refuse_libtorch_beside_another(facts.name)
        host = _opened.get(key) or hosts.try_open(candidate, needs.libtorch, cuda=needs.cuda)
        if isinstance(host, AotiError):
            refusals.append((candidate, None, (), host))
            continue
        missing = host.missing(needs.shims)
        if missing:
            refusals.append((candidate, host, missing, None))
            if key not in _opened:
                host.discard()
            continue
        try:
            refuse_clash(host, facts.name)
        except InvalidState:
            if key not in _opened:
                host.discard()
            raise
        if key not in _opened:
            host.make_global()
            if candidate != "process":
                _opened[key] = host
        return host
    if len(refusals) == 1 and refusals[0][3] is not None:
        raise refusals[0][3]
    raise _nobody_provides(facts, refusals)


def _candidates() -> tuple[str, ...]:
    """Return which hosts "auto" tries: whoever is in the process already, else our own, then LibTorch."""
    provider = hosts.global_provider()
    if provider is not None:
        try:
            if os.path.samefile(provider, hosts.find_builtin()):
                return ("builtin",)
        except (AotiError, OSError):
            pass
        return ("torch",) if os.path.basename(provider) in NEEDED_NAMES else ("process",)
    if hosts.loaded_libtorch() is not None:
        return ("torch",)
    return ("builtin", "torch")


def refuse_clash(host: Host, plugin: str) -> None:
    """Raise if the process has another provider of ``aoti_torch_*`` than the chosen host (behaviour L12).

    Two providers lay their tensor handles out differently; whichever a symbol is bound to by load order then
    reads the other's memory. LibTorch counts even where it is loaded locally, as ``import torch`` does it: a
    host that becomes global would take over the symbols of whatever PyTorch loads next.

    Raises:
        InvalidState: there is another one; both files are named.
    """
    provider = hosts.global_provider()
    other = provider if provider is not None and not _same(provider, host.path) else None
    if other is None:
        libtorch = hosts.loaded_libtorch()
        if libtorch is not None and not _same(libtorch, host.path) and not _is_libtorch(host):
            other = libtorch
    if other is None:
        return
    raise InvalidState(
        f"the process already has another provider of aoti_torch_*: {other}; the {host.kind} host "
        f"{host.path or '(none)'} must not meet it",
        path=plugin,
        hint="load the plugin in a process of its own, or with host='auto', which takes what is there",
    )


def _refuse_libtorch_beside_another(plugin: str) -> None:
    with contextlib.suppress(NotFound):
        folder = hosts.find_torch()
        refuse_clash(hosts.Host("torch", os.path.join(folder, LIBRARIES["cpu"][0]), ()), plugin)


def _is_libtorch(host: Host) -> bool:
    return host.path is not None and os.path.basename(host.path) in NEEDED_NAMES


def serves_without_libtorch(host: Host) -> bool:
    """Whether a plugin's DT_NEEDED on LibTorch would bring a second provider beside this host."""
    return not _is_libtorch(host)


def _same(one: str, other: str | None) -> bool:
    if other is None:
        return False
    try:
        return os.path.samefile(one, other)
    except OSError:
        return os.path.realpath(one) == os.path.realpath(other)


def _nobody_provides(
    facts: PluginFacts, refusals: list[tuple[str, Host | None, tuple[str, ...], AotiError | None]]
) -> NotSupported:
    parts = []
    missing_everywhere: set[str] = set()
    for kind, host, missing, error in refusals:
        if error is not None:
            parts.append(f"{kind}: {error.message}" + (f" ({error.cause})" if error.cause else ""))
            continue
        version = f" {host.version}" if host is not None and host.version else ""
        parts.append(f"{kind}{version} lacks {len(missing)}: {', '.join(missing)}")
        missing_everywhere.update(missing)
    return NotSupported(
        "no host provides every function that the plugin calls"
        if len(refusals) > 1
        else f"the {refusals[0][0]} host lacks functions that the plugin calls",
        path=facts.name,
        cause="; ".join(parts),
        hint=_who_could(sorted(missing_everywhere), [kind for kind, *_ in refusals]),
    )


def _who_could(missing: list[str], tried: list[str]) -> str | None:
    """Say what would help, from the catalogue of shims."""
    notes = [note for note in map(shim_catalogue.skew, missing) if note]
    known = [name for name in missing if shim_catalogue.lookup(name)]
    unknown = [name for name in missing if not shim_catalogue.lookup(name) and not name.startswith("Sleef_")]
    if unknown:
        notes.append(f"no known PyTorch has {', '.join(unknown)}: a newer one, or a custom host")
    elif known:
        version = shim_catalogue.first_with_all(known)
        if version is not None:
            cuda = any(shim_catalogue.lookup(name).device == "cuda" for name in known)  # type: ignore[union-attr]
            notes.append(f"PyTorch {version} and later has them{', in its CUDA build' if cuda else ''}")
    if "torch" not in tried and "process" not in tried:
        notes.append("host='torch' uses an installed PyTorch")
    return "; ".join(notes) or None
