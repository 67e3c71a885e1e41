"""Loading a plugin: facts, host, preloads, private copy, the dynamic linker, the functions."""

from __future__ import annotations

import os
import threading
import warnings
from typing import TYPE_CHECKING, Literal

from aoti_abi.errors import AccessFailed, InvalidArgument, NotFound, NotSupported
from aoti_inspect.elf.image import ElfImage
from aoti_inspect.elf.read import open_elf
from aoti_inspect.facts.plugin import plugin_facts, read_plugin
from aoti_loader import linker, thread_exit
from aoti_loader.blas import provide_blas
from aoti_loader.cuda import find_cudart, provide_cuda
from aoti_loader.explain import explain_refusal
from aoti_loader.host_choice import choose_host, needs_of, serves_without_libtorch
from aoti_loader.mending import Mend, plan_mends
from aoti_loader.plugin import Plugin, unload_waiting
from aoti_loader.preload import forgotten, open_forgotten, open_named, open_needed
from aoti_loader.refusals import refuse_unusable
from aoti_loader.staging import Staged, release, stage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from aoti_inspect.elf.source import Source
    from aoti_inspect.facts.inputs import InputSpec
    from aoti_inspect.facts.records import PluginFacts
    from aoti_loader.host_choice import Needs
    from aoti_loader.hosts import Host

HostChoice = Literal["auto", "builtin", "torch", "process"]

#: Held while a host enters the global scope: two threads must not let two of them in (behaviour L12).
_scope = threading.RLock()
# A fork waits for it, or a child would find it taken by a thread that it lacks.
os.register_at_fork(
    before=_scope.acquire, after_in_parent=_scope.release, after_in_child=_scope.release
)


def load(
    path: str | os.PathLike[str],
    *,
    host: HostChoice = "auto",
    preload: Literal["auto"] | Sequence[str] = "auto",
    mend: bool = True,
    check_isa: bool = True,
    warn: bool = True,
    stacklevel: int = 2,
) -> Plugin:
    """Load a plugin from a file.

    Args:
        path: the plugin, a ``.so`` file.
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
    name = _as_path(path)
    with open_elf(name) as image:
        identity = _identity(name)
        facts = read_plugin(name)

        def verify() -> None:
            if _identity(name) != identity or image.source.size != facts.elf.size:
                raise AccessFailed(
                    "the file was replaced while it was read",
                    path=name,
                    hint="wait until whatever writes it is done",
                )

        plugin = _load(
            image.source, facts, host=host, preload=preload, mend=mend, check_isa=check_isa, verify=verify
        )
    if warn:
        _announce_or_close(plugin, stacklevel)
    return plugin


def load_source(
    source: Source,
    name: str,
    *,
    metadata: dict[str, str] | None = None,
    sources: Iterable[bytes] = (),
    inputs: tuple[InputSpec, ...] = (),
    host: HostChoice = "auto",
    preload: Literal["auto"] | Sequence[str] = "auto",
    mend: bool = True,
    check_isa: bool = True,
    warn: bool = True,
    stacklevel: int = 2,
) -> Plugin:
    """Load a plugin from bytes that are not a file of their own: a member of a package, a named blob.

    Args:
        source: the bytes; a stored member is a range of its archive (`aoti_inspect.elf.source`).
        name: what to call it in errors, as ``package!member``; it never becomes a file name (behaviour L9).
        metadata: Inductor's metadata for it, if there is any.
        sources: the C++ that Inductor generated for it, if that is there.
        inputs: what the program that calls it says of its inputs, if there is one.
        host: as in `load`, like the other arguments and the errors.
        preload: as in `load`.
        mend: as in `load`.
        check_isa: as in `load`.
        warn: as in `load`.
        stacklevel: as in `load`.
    """
    facts = plugin_facts(ElfImage(source, name), metadata=metadata, sources=sources, inputs=inputs)
    plugin = _load(source, facts, host=host, preload=preload, mend=mend, check_isa=check_isa)
    if warn:
        _announce_or_close(plugin, stacklevel)
    return plugin


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
    source: Source,
    facts: PluginFacts,
    *,
    host: str,
    preload: Literal["auto"] | Sequence[str],
    mend: bool,
    check_isa: bool,
    verify: Callable[[], None] | None = None,
) -> Plugin:
    unload_waiting()
    refuse_unusable(facts, check_isa=check_isa)
    needs = needs_of(facts)
    with _scope:
        chosen = choose_host(host, facts, needs)
    drop_libtorch = bool(needs.libtorch) and serves_without_libtorch(chosen)
    if drop_libtorch and not mend:
        raise NotSupported(
            f"the plugin names {', '.join(needs.libtorch)} in DT_NEEDED, which would bring a second provider "
            f"of aoti_torch_* beside the {chosen.kind} host",
            path=facts.name,
            hint="let its private copy be mended (mend=True), or take host='torch'",
        )
    if isinstance(preload, str):
        if preload != "auto":
            raise InvalidArgument(f"preload={preload!r}", hint="give 'auto', or a list of libraries")
        preloaded = open_forgotten(forgotten(facts), facts.name)
    else:
        preloaded = open_named(preload, facts.name)
    if not (facts.elf.rpath or facts.elf.runpath):
        open_needed(facts)
    mends: tuple[Mend, ...] = ()
    if mend:
        mends = plan_mends(
            facts, source.read, drop_libtorch=drop_libtorch, thread_exit=thread_exit.is_available()
        )
    handle, staged = _open(source, facts, mends, chosen, verify)
    try:
        _equip(chosen, needs)
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
    verify: Callable[[], None] | None,
) -> tuple[linker.Opened, Staged | None]:
    """Hand the plugin to the dynamic linker: a private copy, or the file itself where it must be.

    ``verify`` is called when every byte was read; it is None for what is not a file of its own.
    """
    flags = linker.RTLD_NOW | linker.RTLD_LOCAL
    if facts.cxx_runtime_static:
        # It brings its own C++ runtime and exports it: its symbols come first for itself, or it would run
        # half on the process's libstdc++ and half on its own.
        flags |= linker.RTLD_DEEPBIND
    paths = facts.elf.rpath + facts.elf.runpath
    if verify is not None and any("$ORIGIN" in entry or "${ORIGIN}" in entry for entry in paths):
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
            if verify is not None:
                verify()
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


def _dlopen(path: str, flags: int, facts: PluginFacts, host: Host) -> linker.Opened:
    try:
        return linker.open_owned(path, flags)
    except AccessFailed as error:
        # Its words are all in the new one.
        raise explain_refusal(error.cause or "", path, facts, host) from None


def _equip(host: Host, needs: Needs) -> None:
    """Give the built-in host what this plugin makes it need: a BLAS, a CUDA runtime."""
    if host.kind == "builtin":
        provide_blas(host, needs.shims)
        if needs.uses_cuda:
            provide_cuda(host, find_cudart())


def _as_path(path: str | os.PathLike[str]) -> str:
    try:
        name = os.fspath(path)
    except TypeError:
        raise InvalidArgument(f"a path is text or a pathlib.Path, not a {type(path).__name__}") from None
    if not isinstance(name, str):
        raise InvalidArgument(f"a path is text or a pathlib.Path, not {type(name).__name__}")
    try:
        name = os.path.abspath(name)
    except FileNotFoundError:
        raise NotFound("the current folder was removed, and the path is relative to it", path=name) from None
    if "\0" in name:
        raise NotFound("no file can have this name", path=name)
    return name


def _identity(name: str) -> tuple[int, ...]:
    try:
        status = os.stat(name)
    except OSError as error:
        raise AccessFailed(
            "the file was removed while it was read", path=name, cause=error.strerror
        ) from error
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns
