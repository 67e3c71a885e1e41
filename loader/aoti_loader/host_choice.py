"""Which host serves a plugin: every shim is checked first, and no second provider is let in."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING, NamedTuple

from aoti_abi import shim_catalogue
from aoti_abi.errors import AotiError, InvalidState, NotFound, NotSupported
from aoti_abi.hosts.torch import is_libtorch
from aoti_loader import hosts
from aoti_loader.hosts.host import global_provider, same_file
from aoti_loader.process import PROCESS, host_key

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aoti_inspect.facts.records import PluginFacts
    from aoti_loader.hosts.host import Host
    from aoti_loader.needs import Needs


class _Refusal(NamedTuple):
    """Why a host was not taken: the shims that it lacks, or why it can't be opened."""

    name: str
    version: str | None
    missing: tuple[str, ...]
    error: AotiError | None


def choose_host(name: str, facts: PluginFacts, needs: Needs) -> Host:
    """Return a host that is in the global scope and provides every shim that the plugin needs.

    Args:
        name: one of `aoti_loader.hosts.choices`.
        facts: of the plugin.
        needs: from `aoti_loader.needs.needs_of`.

    Raises:
        InvalidArgument: there is no such host.
        NotSupported: no host provides all of them; all that are missing are named, for each host.
        InvalidState: the process has another provider of the host API, or would get one.
        AotiError: the one host that was asked for cannot be opened.
    """
    refusals: list[_Refusal] = []
    with PROCESS.lock:
        for candidate in _candidates() if name == hosts.AUTO else (name,):
            found = _admit(candidate, facts, needs)
            if not isinstance(found, _Refusal):
                return found
            refusals.append(found)
    if len(refusals) == 1 and refusals[0].error is not None:
        raise refusals[0].error
    raise _nobody_provides(facts, refusals)


def equip(host: Host, needs: Needs) -> None:
    """Give the chosen host what a plugin makes it need: a BLAS, a CUDA runtime."""
    with PROCESS.lock:
        hosts.module(host.name).equip(host, needs)


def _admit(name: str, facts: PluginFacts, needs: Needs) -> Host | _Refusal:
    """Open one host and let it into the global scope, if it has every shim; the lock is held."""
    module, key = hosts.module(name), host_key(name, needs)
    opened = PROCESS.hosts.get(key)
    if opened is None:
        # Before it is opened: LibTorch stays once it is in the process, and would bar every other host.
        with contextlib.suppress(NotFound):
            refuse_clash(name, module.find(), facts.name)
        try:
            host = module.open_host(needs)
        except AotiError as error:
            return _Refusal(name, None, (), error)
    else:
        host = opened
        refuse_clash(name, host.path, facts.name)
    missing = host.missing(needs.shims)
    if missing:
        if opened is None:
            host.discard()
        return _Refusal(name, host.version, missing, None)
    if opened is None:
        host.make_global()
        if host.is_kept:
            PROCESS.hosts[key] = host
    return host


def _candidates() -> tuple[str, ...]:
    """Return which hosts "auto" tries: whoever is in the process already, else each by its rank."""
    provider = global_provider()
    if provider is not None:
        return (next((name for name, module in hosts.modules() if module.owns(provider)), _PROCESS),)
    for name, module in hosts.modules():
        if module.present() is not None:
            return (name,)
    return tuple(name for name, module in hosts.modules() if module.RANK is not None)


#: Whose provider of the host API is none of the other hosts'.
_PROCESS = "process"


def refuse_clash(name: str, path: str | None, plugin: str) -> None:
    """Raise if the process has another provider of ``aoti_torch_*`` than the file of a host.

    Two providers lay their tensor handles out differently; whichever a symbol is bound to by load order then
    reads the other's memory. LibTorch counts even where it is loaded locally, as ``import torch`` does it: a
    host that becomes global would take over the symbols of whatever PyTorch loads next.

    Raises:
        InvalidState: there is another one; both files are named.
    """
    other = next(_others(path), None)
    if other is not None:
        raise InvalidState(
            f"the process already has another provider of aoti_torch_*: {other}; the {name} host "
            f"{path or '(none)'} must not meet it",
            path=plugin,
            hint="load the plugin in a process of its own, or with host='auto', which takes what is there",
        )


def _others(path: str | None) -> Iterator[str]:
    """Yield the providers in the process that are not the file of a host at ``path``, nor belong to it."""
    provider = global_provider()
    if provider is not None and (path is None or not same_file(provider, path)):
        yield provider
    for _, module in hosts.modules():
        present = module.present()
        if present is not None and (path is None or not (same_file(present, path) or module.owns(path))):
            yield present


def serves_without_libtorch(host: Host) -> bool:
    """Whether a plugin's DT_NEEDED on LibTorch would bring a second provider beside this host."""
    return host.path is None or not is_libtorch(host.path)


def unwanted_needs(host: Host, needs: Needs) -> tuple[str, ...]:
    """Return the DT_NEEDED entries that would bring a second provider of ``aoti_torch_*`` beside a host.

    LibTorch finds its own libraries by their names; a path may lead to another copy of them.
    """
    if serves_without_libtorch(host):
        return needs.libtorch
    folder = os.path.dirname(host.path or "")
    return tuple(
        entry
        for entry in needs.libtorch
        if "/" in entry and not same_file(entry, os.path.join(folder, os.path.basename(entry)))
    )


def _nobody_provides(facts: PluginFacts, refusals: list[_Refusal]) -> NotSupported:
    parts = []
    missing_everywhere: set[str] = set()
    for name, host_version, missing, error in refusals:
        if error is not None:
            parts.append(f"{name}: {error.message}" + (f" ({error.cause})" if error.cause else ""))
            continue
        version = f" {host_version}" if host_version else ""
        parts.append(f"{name}{version} lacks {len(missing)}: {', '.join(missing)}")
        missing_everywhere.update(missing)
    return NotSupported(
        "no host provides every function that the plugin calls"
        if len(refusals) > 1
        else f"the {refusals[0].name} host lacks functions that the plugin calls",
        path=facts.name,
        cause="; ".join(parts),
        hint=_who_could(sorted(missing_everywhere), [refusal.name for refusal in refusals]),
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
    ranked = [(name, module.OFFER) for name, module in hosts.modules() if module.RANK is not None]
    if any(name in tried for name, _ in ranked):
        notes += [f"host={name!r} {offer}" for name, offer in ranked if offer and name not in tried]
    return "; ".join(notes) or None
