"""Verdicts for hosts that are files: a program or library with all it needs, resolved as ``ld.so`` would.

The lookup scope of a plugin that is opened with RTLD_LOCAL is the global scope (the host and what it needs,
breadth first), then the plugin and what it needs. A library that is already there under the same name is not
loaded again. Nothing is executed.
"""

from __future__ import annotations

import errno
import os
from contextlib import ExitStack

from aoti_abi.errors import AotiError
from aoti_abi.records import TYPE_CHECKING, NamedTuple
from aoti_inspect.budget import TooComplex
from aoti_inspect.elf.links import read_links
from aoti_inspect.elf.read import open_elf
from aoti_inspect.facts.predicates import refuses_its_stack
from aoti_inspect.hosts.judge import Judgement
from aoti_inspect.hosts.library_search import LibrarySearch
from aoti_inspect.wording import counted, listed

if TYPE_CHECKING:
    from aoti_inspect.budget import Budget
    from aoti_inspect.elf.image import ElfImage
    from aoti_inspect.elf.links import Links
    from aoti_inspect.elf.records import ElfFacts
    from aoti_inspect.findings import HostVerdict
    from aoti_inspect.hosts.judge import Common

#: More libraries than this in one closure is no real program.
_MOST_LIBRARIES = 4096
#: What it costs to ask one library for one symbol, steps.
_STEPS_PER_LOOKUP = 2


class Library(NamedTuple):
    """One loaded file of a scope.

    Attributes:
        path: where it was found.
        names: what a DT_NEEDED may call it: its file name and its SONAME.
        image: its dynamic view.
        links: what it needs and which versions it defines.
    """

    path: str
    names: frozenset[str]
    image: ElfImage
    links: Links

    def defines(self, name: str) -> bool:
        """Whether the dynamic linker finds a definition here: it asks the hash table, and nothing else."""
        return self.image.symbol_table.hashed(name.encode("utf-8", "surrogateescape")) is not None


#: A DT_RPATH entry with the folder of the library that owns it.
_Rpaths = tuple[tuple[str, str], ...]


class Scope:
    """A lookup scope: libraries in the order in which symbols are looked up.

    A context manager: it keeps every file of the scope open.

    Attributes:
        libraries: what was found, in lookup order.
        missing: ``(name, who asks)`` of the needed libraries that were not found.
        found: ``"name => path (rule)"`` of those that were, in lookup order.
    """

    def __init__(self, search: LibrarySearch, budget: Budget) -> None:
        self.libraries: list[Library] = []
        self.missing: list[tuple[str, str]] = []
        self.found: list[str] = []
        self._by_name: dict[str, Library] = {}
        self._budget = budget
        self._search = search
        self._files = ExitStack()

    def __enter__(self) -> Scope:
        return self

    def __exit__(self, *_exception: object) -> None:
        self._files.close()

    def add_file(self, path: str) -> None:
        """Add a file and, breadth first, what it needs.

        Raises:
            AotiError: the file itself can't be read; one that it needs is listed as missing instead.
        """
        library = self._open(path, "")
        self._add(library)
        self._drain([(library, ())])

    def add_needed(self, facts: ElfFacts, origin: str) -> None:
        """Add what a file that is not in the scope itself needs: the plugin, which lies in ``origin``."""
        rpaths = tuple((origin, entry) for entry in facts.rpath)
        self._drain(self._resolve(facts.needed, origin, rpaths, facts.runpath, "the plugin"))

    def _add(self, library: Library) -> None:
        self.libraries.append(library)
        for name in library.names:
            self._by_name.setdefault(name, library)

    def _open(self, path: str, name: str) -> Library:
        image = self._files.enter_context(open_elf(path))
        links = read_links(image)
        base = os.path.basename(path)
        return Library(path, frozenset({base, name or base, links.soname or base}), image, links)

    def _drain(self, queue: list[tuple[Library, _Rpaths]]) -> None:
        """Resolve what the queued libraries need, and what those need in turn, breadth first."""
        for library, inherited in queue:
            origin = os.path.dirname(os.path.realpath(library.path))
            own = tuple((origin, entry) for entry in library.links.rpath)
            rpaths = inherited if library.links.runpath else (*own, *inherited)
            queue += self._resolve(library.links.needed, origin, rpaths, library.links.runpath, library.path)

    def _resolve(
        self, needed: tuple[str, ...], origin: str, rpaths: _Rpaths, runpath: tuple[str, ...], asking: str
    ) -> list[tuple[Library, _Rpaths]]:
        added: list[tuple[Library, _Rpaths]] = []
        folders = self._search.folders(origin=origin, rpaths=rpaths, runpath=runpath) if needed else ()
        for name in dict.fromkeys(needed):
            if name in self._by_name:
                continue
            if len(self.libraries) >= _MOST_LIBRARIES:
                raise TooComplex(f"the libraries that it needs: more than {_MOST_LIBRARIES}")
            found = self._search.find(name, folders)
            if found is None:
                self.missing.append((name, asking))
                continue
            try:
                library = self._open(found.path, name)
            except AotiError as error:
                if isinstance(error, TooComplex) or _out_of_files(error):
                    raise
                self.missing.append((name, f"{asking} ({found.path}: {error.message})"))
                continue
            self._add(library)
            self.found.append(f"{name} => {found.path} ({found.via})")
            added.append((library, rpaths))
        return added

    def find(self, name: str) -> Library | None:
        """Return the first library of the scope that defines ``name``."""
        self._budget.spend(_STEPS_PER_LOOKUP * len(self.libraries), "the search for symbols in libraries")
        for library in self.libraries:
            if library.defines(name):
                return library
        return None

    def named(self, name: str) -> Library | None:
        """Return the library that a DT_NEEDED or DT_VERNEED entry means."""
        return self._by_name.get(name)


def judge_files(common: Common, host: str | None, budget: Budget) -> HostVerdict:
    """Return the verdict for a program or library (``host``), or for a plain process here (None).

    Args:
        common: the plugin and its target.
        host: a path, or None.
        budget: what the search for libraries and symbols may cost.

    Raises:
        AotiError: the host's file can't be read, or is no ELF file.
        TooComplex: the search was given up.
    """
    plugin, target = common.plugin, common.target
    elf = plugin.elf
    name = host or "local"
    found = Judgement(common)
    search = LibrarySearch(
        elf.header.machine,
        elf.header.bits,
        elf.header.machine_name,
        library_path=os.environ.get("LD_LIBRARY_PATH", ""),
        budget=budget,
    )
    with Scope(search, budget) as scope:
        machine = os.uname().machine
        if host is not None:
            scope.add_file(host)
            machine = scope.libraries[0].image.header.facts.machine_name
        if machine != elf.header.machine_name:
            found.reasons[:1] = [f"it is built for {elf.header.machine_name}, {name} for {machine}"]
            return found.verdict(name)
        scope.add_needed(elf, _folder(plugin.name))
        for library, asking in scope.missing:
            found.reasons.append(f"{library}, which {asking} needs, was not found")
        found.libraries = scope.found
        _check_versions(found, scope)
        _check_symbols(found, scope, host)
        _check_providers(found, scope)
    if refuses_its_stack(target, elf):
        found.reasons.append(f"it asks for an executable stack, which glibc {target.glibc} refuses")
    return found.verdict(name)


def _out_of_files(error: AotiError) -> bool:
    """Whether a file could not be opened because this process has too many open, which says nothing of it."""
    cause = error.__cause__
    return isinstance(cause, OSError) and cause.errno in (errno.EMFILE, errno.ENFILE)


def _folder(name: str) -> str:
    """Return the folder of a plugin; the working directory for a member that no file could be called."""
    try:
        return os.path.dirname(os.path.realpath(name))
    except ValueError:
        return "."


def _check_versions(found: Judgement, scope: Scope) -> None:
    """Check DT_VERNEED as the dynamic linker does: the named library must define each version."""
    told = {word.rstrip(",") for reason in found.reasons for word in reason.split()}
    for need in found.plugin.elf.version_needs:
        library = scope.named(need.library)
        if library is None or need.weak or need.version in library.links.version_definitions:
            continue
        because = f" (for {listed(need.symbols)})" if need.symbols else ""
        if need.version not in told:
            found.reasons.append(f"{library.path} does not define {need.version}{because}")


def _check_symbols(found: Judgement, scope: Scope, host: str | None) -> None:
    for symbol in found.plugin.imports.required:
        library = scope.named(symbol.library) if symbol.library else None
        if library is not None and symbol.version in library.links.version_definitions:
            # A library that defines a version has every symbol of it: versions only ever grow new ones.
            continue
        if scope.find(symbol.name) is None:
            found.missing.append(symbol.name)
    if not found.missing:
        return
    hidden: list[str] = []
    if host is not None:
        from aoti_inspect.hosts.hidden_symbols import hidden_in

        hidden = hidden_in(found.missing, host)
    if hidden:
        found.reasons.append(
            f"{counted(len(hidden), 'symbol')} of {host} cannot be seen, being local or hidden there: "
            f"{listed(hidden)}; link it with -rdynamic, or give them default visibility"
        )
    rest = [name for name in found.missing if name not in hidden]
    if rest:
        where = f"{host} and what it needs lack" if host else "a plain process on this machine lacks"
        found.reasons.append(f"{where} {counted(len(rest), 'symbol')} that it calls: {listed(rest)}")


def _check_providers(found: Judgement, scope: Scope) -> None:
    """Point out symbols of the host API that two libraries define: load order decides between them."""
    providers: dict[tuple[str, ...], list[str]] = {}
    missing = set(found.missing)
    for symbol in found.plugin.imports.of("shim"):
        if symbol.name not in missing:
            paths = tuple(library.path for library in scope.libraries if library.defines(symbol.name))
            if len(paths) > 1:
                providers.setdefault(paths, []).append(symbol.name)
    for paths, names in providers.items():
        shims = counted(len(names), "shim")
        found.notes.append(f"{len(paths)} providers for {shims}: {', '.join(paths)}; load order decides")
