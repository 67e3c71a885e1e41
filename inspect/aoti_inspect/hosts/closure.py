"""Verdicts for hosts that are files: a program or library with all it needs, resolved as ``ld.so`` would.

The lookup scope of a plugin that is opened with RTLD_LOCAL is the global scope (the host and what it needs,
breadth first), then the plugin and what it needs. A library that is already there under the same name is not
loaded again. Nothing is executed.
"""

from __future__ import annotations

import os
from typing import NamedTuple

from aoti_abi.errors import AotiError
from aoti_inspect.elf.image import ElfImage
from aoti_inspect.elf.read import open_elf
from aoti_inspect.facts import ElfFacts, PluginFacts
from aoti_inspect.findings import HostVerdict
from aoti_inspect.hosts.judge import common_reasons, execstack_refused, lost_features, outcome, some
from aoti_inspect.hosts.library_search import LibrarySearch
from aoti_inspect.symbol_families import family
from aoti_inspect.target import Target

#: More libraries than this in one closure is no real program.
_MOST_LIBRARIES = 4096


class Library(NamedTuple):
    """One loaded file of a scope.

    Attributes:
        path: where it was found; empty for the plugin itself, which may stand inside a package.
        names: what a DT_NEEDED may call it: its file name and its SONAME.
        image: its dynamic view.
        version_definitions: the versions that it defines.
    """

    path: str
    names: frozenset[str]
    image: ElfImage
    version_definitions: frozenset[str]


class Scope:
    """A lookup scope: libraries in the order in which symbols are looked up.

    A context manager: it keeps every file of the scope open.
    """

    def __init__(self, search: LibrarySearch) -> None:
        self.libraries: list[Library] = []
        self.missing: list[tuple[str, str]] = []
        self._search = search
        self._open: list[object] = []

    def __enter__(self) -> Scope:
        return self

    def __exit__(self, *_exception: object) -> None:
        for opened in self._open:
            opened.__exit__(None, None, None)  # type: ignore[attr-defined]

    def add_file(self, path: str) -> None:
        """Add a file and, breadth first, what it needs."""
        opened = open_elf(path)
        image = opened.__enter__()
        self._open.append(opened)
        self._add(_library(path, image))

    def add_needed(self, facts: ElfFacts, origin: str) -> None:
        """Add what a file that is not in the scope itself needs (the plugin)."""
        rpaths = tuple((origin, entry) for entry in facts.rpath)
        self._enqueue(facts.needed, origin, rpaths, facts.runpath, "the plugin")

    def _add(self, library: Library) -> None:
        queue = [(library, ())]
        self.libraries.append(library)
        self._drain(queue)

    def _enqueue(
        self,
        needed: tuple[str, ...],
        origin: str,
        rpaths: tuple[tuple[str, str], ...],
        runpath: tuple[str, ...],
        asking: str,
    ) -> None:
        queue: list[tuple[Library, tuple[tuple[str, str], ...]]] = []
        self._resolve(needed, origin, rpaths, runpath, asking, queue)
        self._drain(queue)

    def _drain(self, queue: list[tuple[Library, tuple[tuple[str, str], ...]]]) -> None:
        position = 0
        while position < len(queue):
            library, inherited = queue[position]
            position += 1
            origin = os.path.dirname(os.path.realpath(library.path))
            own = tuple((origin, entry) for entry in library.image.rpath)
            rpaths = inherited if library.image.runpath else (*own, *inherited)
            self._resolve(library.image.needed, origin, rpaths, library.image.runpath, library.path, queue)

    def _resolve(
        self,
        needed: tuple[str, ...],
        origin: str,
        rpaths: tuple[tuple[str, str], ...],
        runpath: tuple[str, ...],
        asking: str,
        queue: list[tuple[Library, tuple[tuple[str, str], ...]]],
    ) -> None:
        for name in needed:
            if any(name in library.names for library in self.libraries) or len(self.libraries) > _MOST_LIBRARIES:
                continue
            found = self._search.find(name, origin=origin, rpaths=rpaths, runpath=runpath)
            if found is None:
                self.missing.append((name, asking))
                continue
            try:
                opened = open_elf(found.path)
                image = opened.__enter__()
                self._open.append(opened)
                library = _library(found.path, image, name)
            except AotiError as error:
                self.missing.append((name, f"{asking}: {found.path} is broken: {error.message}"))
                continue
            self.libraries.append(library)
            queue.append((library, rpaths))

    def find(self, name: str) -> Library | None:
        """Return the first library of the scope that defines ``name``."""
        for library in self.libraries:
            if library.image.defines(name) is not None:
                return library
        return None

    def named(self, name: str) -> Library | None:
        """Return the library that a DT_NEEDED or DT_VERNEED entry means."""
        for library in self.libraries:
            if name in library.names:
                return library
        return None


def _library(path: str, image: ElfImage, name: str = "") -> Library:
    names = {os.path.basename(path), name or os.path.basename(path), image.soname or os.path.basename(path)}
    return Library(path, frozenset(names), image, frozenset(image.version_definitions))


def judge_files(plugin: PluginFacts, host: str | None, target: Target) -> HostVerdict:
    """Return the verdict for a program or library (``host``), or for a plain process here (None).

    Raises:
        AotiError: the host's file can't be read, or is no ELF file.
    """
    elf = plugin.elf
    name = host or "local"
    reasons = common_reasons(plugin, target)
    unchecked: list[str] = []
    notes: list[str] = []
    missing: list[str] = []
    search = LibrarySearch(
        elf.header.machine,
        elf.header.bits,
        elf.header.machine_name,
        library_path=os.environ.get("LD_LIBRARY_PATH", ""),
    )
    with Scope(search) as scope:
        if host is not None:
            scope.add_file(host)
            header = scope.libraries[0].image.header
            if header.machine != elf.header.machine or header.bits != elf.header.bits:
                reasons = [f"it is built for {elf.header.machine_name}, the host for {header.machine_name}"]
                return _verdict(name, reasons, unchecked, missing, plugin, notes)
        if not reasons or reasons[0].find("is built for") < 0:
            scope.add_needed(elf, os.path.dirname(os.path.realpath(plugin.name)))
            for library, asking in scope.missing:
                reasons.append(f"{library}, which {asking} needs, was not found")
            _check_versions(plugin, scope, reasons)
            missing += _undefined(plugin, scope)
            _explain_missing(missing, scope, host, reasons)
            _check_providers(plugin, scope, notes)
    if execstack_refused(plugin, target):
        reasons.append(f"it asks for an executable stack, which glibc {target.glibc} refuses")
    return _verdict(name, reasons, unchecked, missing, plugin, notes)


def _verdict(
    name: str, reasons: list[str], unchecked: list[str], missing: list[str], plugin: PluginFacts, notes: list[str]
) -> HostVerdict:
    lost = lost_features(plugin)
    return HostVerdict(
        name,
        outcome(reasons, unchecked, lost),
        tuple(reasons or unchecked),
        tuple(sorted(missing)),
        lost,
        tuple(notes),
    )


def _check_versions(plugin: PluginFacts, scope: Scope, reasons: list[str]) -> None:
    """Check DT_VERNEED as the dynamic linker does: the named library must define each version."""
    for need in plugin.elf.version_needs:
        library = scope.named(need.library)
        if library is None or need.weak or need.version in library.version_definitions:
            continue
        because = f" (for {some(need.symbols)})" if need.symbols else ""
        text = f"{library.path} does not define {need.version}{because}"
        if not any(need.version in reason for reason in reasons):
            reasons.append(text)


def _undefined(plugin: PluginFacts, scope: Scope) -> list[str]:
    missing = []
    for symbol in plugin.elf.undefined:
        if symbol.binding == "weak" or family(symbol.name) == "toolchain":
            continue
        library = scope.named(symbol.library) if symbol.library else None
        if library is not None and library.image.defines(symbol.name) is not None:
            continue
        if scope.find(symbol.name) is None:
            missing.append(symbol.name)
    return missing


def _explain_missing(missing: list[str], scope: Scope, host: str | None, reasons: list[str]) -> None:
    if not missing:
        return
    hidden = _hidden_in(missing, host) if host is not None else []
    if hidden:
        reasons.append(
            f"{len(hidden)} symbols are in {host} but not in its dynamic symbol table: {some(hidden)}; "
            "link it with -rdynamic, or give them default visibility"
        )
    rest = [name for name in missing if name not in hidden]
    if rest:
        where = f"{host} and what it needs" if host else "a plain process on this machine"
        plural = "symbols that nothing" if len(rest) > 1 else "symbol that nothing"
        reasons.append(f"it calls {len(rest)} {plural} in {where} defines: {some(rest)}")


def _hidden_in(names: list[str], path: str) -> list[str]:
    """Return those of ``names`` that a host has in its full symbol table only: local or hidden there."""
    from aoti_inspect.second_view import static_symbols  # noqa: PLC0415 - pyelftools, only to explain a failure

    wanted = set(names)
    return sorted(wanted & static_symbols(path, wanted))


def _check_providers(plugin: PluginFacts, scope: Scope, notes: list[str]) -> None:
    """Point out symbols of the host API that two libraries define: load order decides between them."""
    providers: dict[tuple[str, ...], list[str]] = {}
    for symbol in plugin.elf.undefined:
        if family(symbol.name) == "shim":
            paths = tuple(lib.path for lib in scope.libraries if lib.image.defines(symbol.name) is not None)
            if len(paths) > 1:
                providers.setdefault(paths, []).append(symbol.name)
    for paths, names in providers.items():
        notes.append(f"{len(paths)} providers for {len(names)} shims: {', '.join(paths)}; load order decides")
