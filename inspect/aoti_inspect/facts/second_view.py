"""The section table's view of a file, by pyelftools, and where it differs from the dynamic linker's.

Most tools look at a file through its sections, which the dynamic linker ignores: where the two differ, those
tools audit another file than the one that will be loaded. What only sections hold (compiler and assembler
versions, debug information, the full symbol table) is read here too.

pyelftools is imported when this is used, and not trusted: whatever it raises becomes a sentence.
"""

from __future__ import annotations

import re
from itertools import islice

from aoti_abi.records import TYPE_CHECKING, NamedTuple
from aoti_inspect.elf import format as elf
from aoti_inspect.elf.image import ElfImage
from aoti_inspect.elf.read import open_elf
from aoti_inspect.text import decode

if TYPE_CHECKING:
    from typing import IO, Any

    from aoti_inspect.elf.records import ElfFacts

#: Bounds on what pyelftools is asked to read: a hostile file must not keep it busy.
_MAX_NAMES = 200_000
_MAX_VERSIONS = 4096
_MAX_COMMENT = 1 << 20
_MAX_DWARF = 1 << 25
_MAX_UNITS = 64
_MAX_NOTES = 64
_EXAMPLES = 3


class SecondView(NamedTuple):
    """What the sections say.

    Attributes:
        disagreements: where they differ from the dynamic linker's view, one sentence each.
        comments: what compilers and linkers wrote into ``.comment``.
        producers: compilers and their options as the DWARF names them, each once.
        static_symbols: entries of ``.symtab``; None if there is none.
        notes: the GNU notes by type, "NT_GNU_BUILD_ID: 4fed...", each once.
    """

    disagreements: tuple[str, ...]
    comments: tuple[str, ...]
    producers: tuple[str, ...]
    static_symbols: int | None
    notes: tuple[str, ...]

    def rows(self) -> tuple[tuple[str, str], ...]:
        """Return what is there as ``(label, text)`` rows of a report."""
        symbols = None if self.static_symbols is None else str(self.static_symbols)
        rows = {
            "compiler": "; ".join(self.producers or self.comments),
            "symtab": symbols and f"{symbols} symbols",
            "notes": "; ".join(self.notes),
        }
        return tuple((label, text) for label, text in rows.items() if text)


def compare(file: str | bytes, facts: ElfFacts) -> tuple[str, ...]:
    """Return where sections and dynamic linker disagree; arguments and errors as for `look`."""
    return look(file, facts, extras=False).disagreements


def look(file: str | bytes, facts: ElfFacts, *, extras: bool = True) -> SecondView:
    """Read a file through its sections.

    Args:
        file: its path, or its bytes.
        facts: the dynamic linker's view of the same file.
        extras: whether to read what only sections hold too, or just to compare.

    Raises:
        AotiError: the file can't be read any more.
    """
    if facts.sections is None:
        reason = facts.section_problem or "there are no section headers"
        if facts.is_dynamic:
            reason += (
                ": tools that read sections see no libraries, no symbols and no versions in this file, "
                "and the dynamic linker sees them all"
            )
        return SecondView((reason,), (), (), None, ())
    import io

    if isinstance(file, bytes):
        return _look(io.BytesIO(file), ElfImage(file, "the file"), facts, extras=extras)
    with open_elf(file) as image, open(file, "rb") as stream:
        return _look(stream, image, facts, extras=extras)


def _look(stream: IO[bytes], image: ElfImage, facts: ElfFacts, *, extras: bool) -> SecondView:
    from elftools.elf.elffile import ELFFile

    try:
        view = ELFFile(stream)
    except Exception as error:  # noqa: BLE001 - a fuzzer finds KeyError, struct.error and more in it
        return SecondView((f"the sections cannot be read: {_words(error)}",), (), (), None, ())
    disagreements: dict[str, None] = {}
    for check in (_dynamic, _symbols, _versions):
        try:
            disagreements.update(dict.fromkeys(check(view, image, facts)))
        except Exception as error:  # noqa: BLE001, PERF203 - as above
            disagreements[f"the sections cannot be read: {_words(error)}"] = None
    if not extras:
        return SecondView(tuple(disagreements), (), (), None, ())
    return SecondView(
        tuple(disagreements),
        _guarded(_comments, view),
        _guarded(_producers, view),
        _static_symbols(facts),
        _guarded(_notes, view),
    )


def _dynamic(view: Any, image: ElfImage, facts: ElfFacts) -> list[str]:
    section = _first(view, "SHT_DYNAMIC")
    if section is None:
        return ["no section is the dynamic table, but PT_DYNAMIC is there"] if facts.is_dynamic else []
    if not facts.is_dynamic:
        return [f"section {section.name} is a dynamic table, but the dynamic linker sees none (PT_DYNAMIC)"]
    needed = tuple(
        str(tag.needed) for tag in islice(section.iter_tags(), _MAX_NAMES) if tag.entry.d_tag == "DT_NEEDED"
    )
    if tuple(map(_plain, needed)) != tuple(map(_plain, facts.needed)):
        theirs, ours = _list(needed), _list(facts.needed)
        return [f"by its sections the file needs {theirs}, but the dynamic linker loads {ours}"]
    segment = next(item for item in reversed(image.segments) if item.type == "DYNAMIC")
    if section["sh_offset"] != image.space.offset_of(segment.address):
        return [f"section {section.name} is at {section['sh_offset']:#x}, not where PT_DYNAMIC leads"]
    return []


def _symbols(view: Any, image: ElfImage, facts: ElfFacts) -> list[str]:
    section = _first(view, "SHT_DYNSYM")
    table = image.symbol_table
    if section is None:
        if facts.symbol_count > 1:
            return [f"no section is the dynamic symbol table, but there are {facts.symbol_count} entries"]
        return []
    offset = None if table.address is None else image.space.offset_of(table.address)
    strings = None if image.dynamic is None else image.dynamic.values.get(elf.DT_STRTAB)
    same_names = strings is None or view.get_section(section["sh_link"])[
        "sh_offset"
    ] == image.space.offset_of(strings)
    count = section["sh_size"] // table.entry_size
    if offset == section["sh_offset"] and count == table.count and same_names:
        return []
    theirs = {_plain(str(symbol.name)) for symbol in islice(section.iter_symbols(), 1, _MAX_NAMES)}
    ours = {_plain(symbol.name) for symbol in islice(image.dynamic_symbols(), _MAX_NAMES)}
    hidden, invented = sorted(ours - theirs), sorted(theirs - ours)
    found = []
    if hidden:
        found.append(f"{len(hidden)} dynamic symbols are not in the sections: {_list(hidden)}")
    if invented:
        found.append(
            f"{len(invented)} symbols in the sections are not in the dynamic table: {_list(invented)}"
        )
    if not found:
        found.append("the section with the dynamic symbols is not the table that the dynamic linker uses")
    return found


def _versions(view: Any, _image: ElfImage, facts: ElfFacts) -> list[str]:
    section = _first(view, "SHT_GNU_verneed")
    theirs: set[tuple[str, str]] = set()
    if section is not None:
        pairs = ((need, version) for need, versions in section.iter_versions() for version in versions)
        theirs = {
            (_plain(str(need.name)), _plain(str(version.name)))
            for need, version in islice(pairs, _MAX_VERSIONS)
        }
    ours = {(_plain(need.library), _plain(need.version)) for need in facts.version_needs}
    if theirs == ours:
        return []
    differing = sorted(f"{version} of {library}" for library, version in theirs ^ ours)
    return [
        f"the sections and the dynamic linker differ in {len(differing)} needed versions: {_list(differing)}"
    ]


def _comments(view: Any) -> tuple[str, ...]:
    section = view.get_section_by_name(".comment")
    if section is None or section.data_size > _MAX_COMMENT:
        return ()
    return tuple(sorted({decode(text) for text in section.data().split(b"\0") if text}))


def _producers(view: Any) -> tuple[str, ...]:
    sizes = [item.data_size for item in view.iter_sections() if item.name.startswith((".debug_", ".zdebug_"))]
    if not sizes or sum(sizes) > _MAX_DWARF:
        return ()
    found = set()
    dwarf = view.get_dwarf_info(relocate_dwarf_sections=False)
    for unit in islice(dwarf.iter_CUs(), _MAX_UNITS):
        attribute = unit.get_top_DIE().attributes.get("DW_AT_producer")
        if attribute is not None and isinstance(attribute.value, bytes):
            found.add(decode(attribute.value))
    return tuple(sorted(found))


def _notes(view: Any) -> tuple[str, ...]:
    found: dict[str, None] = {}
    for section in view.iter_sections():
        if section["sh_type"] == "SHT_NOTE" and section["sh_size"] <= _MAX_COMMENT:
            for note in islice(section.iter_notes(), _MAX_NOTES):
                # The types of other owners' notes are their own; pyelftools names them as if they were GNU's.
                if note["n_name"] == "GNU":
                    text = note["n_desc"]
                    found[f"{note['n_type']}" + (f": {text}" if isinstance(text, str) else "")] = None
    return tuple(found)


def _static_symbols(facts: ElfFacts) -> int | None:
    size = 24 if facts.header.bits == 64 else 16
    for section in facts.sections or ():
        if section.type == elf.SHT_SYMTAB:
            return section.size // size
    return None


def _first(view: Any, kind: str) -> Any:
    return next((section for section in view.iter_sections() if section["sh_type"] == kind), None)


def _guarded(read: Any, view: Any) -> tuple[str, ...]:
    try:
        return tuple(read(view))
    except Exception as error:  # noqa: BLE001 - as above: extras must not cost the audit
        return (f"cannot be read: {_words(error)}",)


def _words(error: Exception) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


def _list(names: tuple[str, ...] | list[str]) -> str:
    if not names:
        return "nothing"
    more = f" and {len(names) - _EXAMPLES} more" if len(names) > _EXAMPLES else ""
    return ", ".join(names[:_EXAMPLES]) + more


def _plain(name: str) -> str:
    """Return a name without what depends on how its bytes were decoded."""
    return name if name.isascii() else "?".join(filter(None, re.split(r"[^\x00-\x7f]+", name)))
