"""Rules AOTI701 to AOTI707: memory protection, search paths, misleading names, and unread parts."""

from __future__ import annotations

from aoti_abi.records import TYPE_CHECKING
from aoti_inspect.findings import TOO_COMPLEX_CODE, TOO_COMPLEX_NAME
from aoti_inspect.rules.registry import RuleResult, Unchecked, plugin_rule
from aoti_inspect.wording import counted, listed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aoti_inspect.rules.registry import PluginContext

#: Folders that anyone may write to.
_SHARED = ("/tmp", "/var/tmp", "/dev/shm")  # noqa: S108 - looked for, not used
#: What the dynamic linker replaces in a search path; the first is the file's own folder.
_TOKENS = ("$ORIGIN", "${ORIGIN}")
#: Where systems and toolkits install libraries: absolute, but the same everywhere.
_SYSTEM = ("/usr/", "/lib/", "/lib64/", "/opt/")


def _search_paths(context: PluginContext) -> list[tuple[str, str]]:
    """Return ``(tag, entry)`` for each search path in effect: DT_RPATH counts only without DT_RUNPATH."""
    elf = context.facts.elf
    if elf.runpath:
        return [("RUNPATH", entry) for entry in elf.runpath]
    return [("RPATH", entry) for entry in elf.rpath]


def _below(path: str, folders: tuple[str, ...]) -> bool:
    return any(path == folder or path.startswith(f"{folder.rstrip('/')}/") for folder in folders)


@plugin_rule("AOTI701", "text-relocations", "warning")
def text_relocations(context: PluginContext) -> Iterator[RuleResult]:
    """The plugin has text relocations: its code is modified while it is loaded.

    ## Why it matters
    The dynamic linker must make the code writable for that; hardened systems forbid it. The modified pages
    are not shared between processes.

    ## How it is checked
    DT_TEXTREL, or DF_TEXTREL in DT_FLAGS.

    ## How to fix it
    Compile every object with `-fPIC`; `-Wl,-z,text` makes the linker name the one that was not.

    ## Reports it prevents
    "cannot restore segment prot after reloc: Permission denied".
    """
    if context.facts.elf.text_relocations:
        yield RuleResult(
            "has text relocations (DT_TEXTREL)",
            "compile every object with -fPIC, and link with -Wl,-z,text",
        )


@plugin_rule("AOTI702", "writable-code", "warning")
def writable_code(context: PluginContext) -> Iterator[RuleResult]:
    """A segment is both writable and executable.

    ## Why it matters
    Whoever can write to it can run what was written. Hardened systems refuse to map it.

    ## How it is checked
    The flags of the PT_LOAD program headers.

    ## How to fix it
    Link without `-Wl,--omagic` (`-N`) and without linker scripts that merge code and data.

    ## Reports it prevents
    "failed to map segment from shared object" under SELinux, and findings of security scanners.
    """
    found = [s for s in context.facts.elf.segments if s.type == "LOAD" and "W" in s.flags and "E" in s.flags]
    if found:
        yield RuleResult(
            f"{counted(len(found), 'segment')} both writable and executable, at "
            f"{listed([f'{segment.address:#x}' for segment in found])}",
            "link without -Wl,--omagic, and without a linker script that merges code and data",
        )


@plugin_rule("AOTI703", "insecure-search-path", "error")
def insecure_search_path(context: PluginContext) -> Iterator[RuleResult]:
    """The library search path has a directory that other users can write to.

    ## Why it matters
    A library with the right name that somebody puts there is loaded into the process. An empty or relative
    entry means the current directory of the process.

    ## How it is checked
    Each entry of DT_RUNPATH (of DT_RPATH, without it) that is empty, relative without `$ORIGIN`, or below
    `/tmp`, `/var/tmp` or `/dev/shm`.

    ## How to fix it
    Remove it (`patchelf --remove-rpath` on a copy, if no weights are appended), or use `$ORIGIN/...`.

    ## Reports it prevents
    Build folders below `/tmp` that stay in shipped files, and libraries found in the wrong one.
    """
    for tag, entry in _search_paths(context):
        if not entry:
            why = f"an empty entry in {tag} means the current directory of the process"
        elif _below(entry, _SHARED):
            why = f"{tag} names {entry}, which any user can write to"
        elif not entry.startswith(("/", *_TOKENS)):
            why = f"{tag} names {entry}, relative to the current directory of the process"
        else:
            continue
        yield RuleResult(
            f"searches for libraries in an insecure directory: {why}",
            "remove the entry, or use $ORIGIN/... for a directory beside the plugin",
            (entry,),
        )


@plugin_rule("AOTI704", "absolute-search-path", "warning")
def absolute_search_path(context: PluginContext) -> Iterator[RuleResult]:
    """The library search path names a directory of the build machine.

    ## Why it matters
    That directory is absent elsewhere, or has other libraries. The plugin works on the build machine only.

    ## How it is checked
    Each entry of DT_RUNPATH (of DT_RPATH, without it) that is absolute and not below `/usr`, `/lib`, `/lib64`
    or `/opt`.

    ## How to fix it
    Use `$ORIGIN/...`, or no search path at all.

    ## Reports it prevents
    "libaoti_cuda_shims.so: cannot open shared object file" after installation, though it was found when it
    was built.
    """
    found = [
        (tag, entry)
        for tag, entry in _search_paths(context)
        if entry.startswith("/") and not _below(entry, _SYSTEM) and not _below(entry, _SHARED)
    ]
    if found:
        yield RuleResult(
            f"{found[0][0]} names {counted(len(found), 'directory', 'directories')} of the build machine: "
            f"{listed([entry for _, entry in found])}",
            "use $ORIGIN/..., or no search path",
            tuple(entry for _, entry in found),
        )


@plugin_rule("AOTI705", "unprintable-names", "warning")
def unprintable_names(context: PluginContext) -> Iterator[RuleResult]:
    """Names in the file contain control characters or bytes that are not UTF-8.

    ## Why it matters
    No compiler writes such names. Printed raw, as by readelf and nm, they move the cursor, change colours or
    hide lines, so that a file can forge its own report. They are escaped in every report here.

    ## How it is checked
    The names of the file itself, of needed libraries, search paths, versions, and of imported and exported
    symbols are searched for characters that do not print, and for bytes that are not UTF-8.

    ## How to fix it
    Find out where the file comes from before you load it.

    ## Reports it prevents
    Audits that were read on a terminal and said what the file wanted them to say.
    """
    elf = context.facts.elf
    exports = elf.exports
    names = {
        elf.soname or "",
        *elf.needed,
        *elf.rpath,
        *elf.runpath,
        *(symbol.name for symbol in elf.undefined),
        *(need.version for need in elf.version_needs),
        *(need.library for need in elf.version_needs),
        *elf.version_definitions,
        *exports.container,
        *exports.shims,
        *exports.unique,
        *exports.std_examples,
        *exports.other_examples,
    }
    found = sorted(name for name in names if not name.isprintable())
    if found:
        yield RuleResult(
            f"{counted(len(found), 'name')} with control characters or bytes that are not UTF-8: "
            f"{listed(found)}",
            "find out where the file comes from before you load it",
            tuple(found),
        )


@plugin_rule("AOTI706", "needed-by-path", "warning")
def needed_by_path(context: PluginContext) -> Iterator[RuleResult]:
    """DT_NEEDED names a library by its path, not by its SONAME.

    ## Why it matters
    The dynamic linker opens exactly that path and searches nowhere else. It is the build machine's; relative
    to the current folder if it is not absolute.

    ## How it is checked
    Entries of DT_NEEDED with a slash.

    ## How to fix it
    Give the library a SONAME (`-Wl,-soname,...`) and link it with `-L... -l...`.

    ## Reports it prevents
    A plugin that cannot find a library which is installed and on the search path.
    """
    found = [entry for entry in context.facts.elf.needed if "/" in entry]
    if found:
        yield RuleResult(
            f"needs {counted(len(found), 'library', 'libraries')} by path: {listed(found)}",
            "give the library a SONAME, and link it with -L and -l",
            tuple(found),
        )


@plugin_rule(TOO_COMPLEX_CODE, TOO_COMPLEX_NAME, "error")
def too_complex(context: PluginContext) -> Iterator[RuleResult | Unchecked]:
    """A part of the file was not read to its end, since that would cost too much.

    ## Why it matters
    A small file can keep a reader busy for hours: tables that lie over each other, a million symbols, members
    that inflate a thousandfold. An audit costs at most about a second, and two more for every 100 MB; what it
    gives up over that may hide anything, so it never counts as a pass.

    ## How it is checked
    Everything that is read more than once is counted, by entries and bytes and not by time. Where a count
    goes over its limit, the rest of that part is left, and named here. No host "loads" such a file.

    ## How to fix it
    No compiler or linker writes such a file: find out where it comes from. Audit the plugins of a very large
    package one by one.

    ## Reports it prevents
    Audits that never ended, or ended by running out of memory, on a file that somebody sent.
    """
    for sentence in context.facts.elf.not_read:
        yield Unchecked(f"not read to its end: {sentence}")
