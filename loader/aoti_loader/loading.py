"""Loading a plugin: facts, host, preloads, private copy, the dynamic linker, the functions."""

from __future__ import annotations

import os
import warnings
from typing import TYPE_CHECKING, Any, Literal

from aoti_abi.errors import AccessFailed, InvalidArgument, NotSupported
from aoti_inspect.artifacts.facts import facts_of
from aoti_inspect.artifacts.plugin import ArtifactPlugin
from aoti_inspect.artifacts.sidecars import CHECKED_WHEN_OPENED
from aoti_inspect.artifacts.so_file import open_so_file
from aoti_inspect.elf.image import ElfImage
from aoti_loader import linker, thread_exit
from aoti_loader.explain import explain_refusal
from aoti_loader.host_choice import choose_host, equip, unwanted_needs
from aoti_loader.mending import Mend, plan_mends
from aoti_loader.needs import needs_of
from aoti_loader.paths import as_path
from aoti_loader.plugin import Plugin, unload_waiting
from aoti_loader.preload import forgotten, open_forgotten, open_named, open_needed
from aoti_loader.refusals import refuse_unusable
from aoti_loader.staging import Staged, release, stage

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aoti_inspect.facts.records import PluginFacts
    from aoti_inspect.source import Source
    from aoti_loader.hosts.host import Host


def load(
    plugin: str | os.PathLike[str] | ArtifactPlugin,
    *,
    host: str = "auto",
    preload: Literal["auto"] | Sequence[str] = "auto",
    mend: bool = True,
    check_isa: bool = True,
    warn: bool = True,
    stacklevel: int = 2,
) -> Plugin:
    """Load a plugin.

    Args:
        plugin: the path of a ``.so`` file; or a plugin of an open artifact (`aoti_inspect.artifacts`), which
            needs no file of its own: a member of a package, the named data of a program.
        host: who provides its shims: "builtin" (the toolkit's own, without PyTorch), "torch" (LibTorch of the
            installed PyTorch, without importing it), "process" (what the program has made global), or
            "auto": who is in the process already, else the first of builtin and torch that has every shim.
        preload: libraries to open globally before it; "auto" finds what it uses and forgot to name.
        mend: whether its private copy may be mended (`aoti_loader.mending`).
        check_isa: whether to refuse a plugin whose metadata names instructions that this processor lacks, or
            is that of another plugin.
        warn: whether to warn of each feature that it lacks; `Plugin.fallbacks` has them in any case.
        stacklevel: whose line those warnings point at, as in `warnings.warn`.

    Raises:
        NotFound: there is no such file, or the one host that was asked for is not installed.
        InvalidProgram: it is not a plugin, or a required function is missing (behaviour L1).
        NotSupported: no host has every shim (L13), or it is not for this machine.
        InvalidState: a second provider of the host API would enter the process (L12).
        AccessFailed: the system or the dynamic linker refused; ``cause`` has their words.
    """
    options: dict[str, Any] = {"host": host, "preload": preload, "mend": mend, "check_isa": check_isa}
    if isinstance(plugin, ArtifactPlugin):
        loaded = _load(plugin, **options)
    else:
        with open_so_file(as_path(plugin)) as artifact:
            loaded = _load(artifact.plugins[0], **options)
    if warn:
        _announce_or_close(loaded, stacklevel)
    return loaded


def _announce_or_close(plugin: Plugin, stacklevel: int) -> None:
    try:
        announce(plugin, stacklevel=stacklevel + 1)
    except BaseException:  # a warning that is an error, or an interrupt
        plugin.close()
        raise


def announce(plugin: Plugin, *, stacklevel: int) -> None:
    """Warn of each feature that a plugin lacks (behaviour L8), one warning each."""
    for warning in plugin.fallbacks:
        warnings.warn(warning, stacklevel=stacklevel + 1)


def _load(
    plugin: ArtifactPlugin,
    *,
    host: str,
    preload: Literal["auto"] | Sequence[str],
    mend: bool,
    check_isa: bool,
) -> Plugin:
    if plugin.size > CHECKED_WHEN_OPENED and plugin.location and plugin.location.path != plugin.name:
        plugin.read()  # raises if the bytes of an archive's member don't match their checksum
    with plugin.open_source() as source:
        facts = facts_of(plugin, source)
        return _load_source(source, facts, host=host, preload=preload, mend=mend, check_isa=check_isa)


def _load_source(
    source: Source,
    facts: PluginFacts,
    *,
    host: str,
    preload: Literal["auto"] | Sequence[str],
    mend: bool,
    check_isa: bool,
) -> Plugin:
    unload_waiting()
    refuse_unusable(facts, check_isa=check_isa)
    needs = needs_of(facts)
    chosen = choose_host(host, facts, needs)
    unwanted = unwanted_needs(chosen, needs)
    if unwanted and not mend:
        raise NotSupported(
            f"the plugin names {', '.join(unwanted)} in DT_NEEDED, which would bring a second provider "
            f"of aoti_torch_* beside the {chosen.name} host",
            path=facts.name,
            hint="let its private copy be mended (mend=True), or take host='torch'",
        )
    if isinstance(preload, str):
        if preload != "auto":
            raise InvalidArgument(f"preload={preload!r}", hint="give 'auto', or a list of libraries")
        preloaded = open_forgotten(forgotten(facts), facts.name)
    else:
        if not isinstance(preload, (list, tuple)) or not all(isinstance(name, str) for name in preload):
            raise InvalidArgument(f"preload={preload!r}", hint="give 'auto', or a list of libraries")
        preloaded = open_named(preload, facts.name)
    if not (facts.elf.rpath or facts.elf.runpath):
        open_needed(facts)
    mends: tuple[Mend, ...] = ()
    if mend:
        mends = plan_mends(
            ElfImage(source, facts.name), facts, drop=unwanted, thread_exit=thread_exit.is_available()
        )
    handle, staged = _open(source, facts, mends, chosen)
    try:
        equip(chosen, needs)
        return Plugin(
            facts=facts, host=chosen, handle=handle, staged=staged, mends=mends, preloaded=preloaded
        )
    except BaseException:
        handle.close()
        if staged is not None:
            release(staged)
        raise


def _open(
    source: Source,
    facts: PluginFacts,
    mends: tuple[Mend, ...],
    host: Host,
) -> tuple[linker.Opened, Staged | None]:
    """Hand the plugin to the dynamic linker: a private copy, or the file itself where it must be."""
    flags = linker.RTLD_NOW | linker.RTLD_LOCAL
    if facts.cxx_runtime_static:
        # It brings its own C++ runtime and exports it: its symbols come first for itself, or it would run
        # half on the process's libstdc++ and half on its own.
        flags |= linker.RTLD_DEEPBIND
    paths = facts.elf.rpath + facts.elf.runpath
    if _is_whole_file(source) and any("$ORIGIN" in entry or "${ORIGIN}" in entry for entry in paths):
        # A copy has another origin, and would not find the libraries beside the plugin.
        if mends and any(mend.name == "libtorch-needed" for mend in mends):
            raise NotSupported(
                "it finds libraries beside itself ($ORIGIN), so it can't be loaded from a mended copy",
                path=facts.name,
                hint="take host='torch'",
            )
        return _dlopen(os.path.realpath(facts.name), flags, facts, host), None
    patches = [patch for mend in mends for patch in mend.patches]
    for in_memory in (True, False):
        staged = stage(source, patches, name=facts.name, in_memory=in_memory)
        try:
            # Every byte was read: facts and copy are of one file, or of none.
            source.verify_unchanged()
            return _dlopen(staged.path, flags, facts, host), staged
        except AccessFailed as error:
            release(staged)
            # Some systems forbid code from files in memory, and allow it from the disk.
            if staged.kind == "file" or "failed to map segment" not in (error.cause or ""):
                raise
        except BaseException:
            release(staged)
            raise
    raise AssertionError("the second copy is on disk")


def _is_whole_file(source: Source) -> bool:
    return source.location is not None and source.location.path == source.name


def _dlopen(path: str, flags: int, facts: PluginFacts, host: Host) -> linker.Opened:
    try:
        return linker.open_owned(path, flags)
    except AccessFailed as error:
        # Its words are all in the new one.
        raise explain_refusal(error.cause or "", path, facts, host) from None
