"""What the dynamic linker acts on before any symbol is looked up: what fails here fails in every host.

The checks are those of glibc's ``open_verify``, ``_dl_map_object_from_fd`` and ``elf_get_dynamic_info``
(``elf/dl-load.c``, ``elf/get-dynamic-info.h``); the words in quotes are its messages. What it trusts, and a
file may get wrong (relocations, initialisers), is checked where following it would end the process.
"""

from __future__ import annotations

from aoti_abi.records import TYPE_CHECKING
from aoti_inspect.elf import format as elf

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aoti_inspect.elf.image import ElfImage
    from aoti_inspect.elf.records import Segment

#: The smallest page of any machine; the alignment of segments is checked against it.
PAGE = 4096
#: ELFOSABI_NONE and ELFOSABI_GNU, and the ABI versions below which glibc takes a file of the latter.
_SYSV, _GNU, _MOST_ABI = 0, 3, 4
#: Memory that no plugin asks for: mapping it fails where the system does not overcommit.
_MOST_MEMORY = 1 << 38
_DT_PLTRELSZ, _DT_RELA, _DT_RELASZ, _DT_RELAENT, _DT_INIT, _DT_FINI, _DT_PLTREL = 2, 7, 8, 9, 12, 13, 20
_DT_JMPREL, _DT_INIT_ARRAY, _DT_FINI_ARRAY, _DT_INIT_ARRAYSZ, _DT_FINI_ARRAYSZ = 23, 25, 26, 27, 28
_DT_RELR, _DT_RELACOUNT = 36, 0x6FFFFFF9
_NAMES = {
    _DT_RELA: "DT_RELA",
    _DT_RELASZ: "DT_RELASZ",
    _DT_RELAENT: "DT_RELAENT",
    _DT_JMPREL: "DT_JMPREL",
    _DT_PLTRELSZ: "DT_PLTRELSZ",
    _DT_PLTREL: "DT_PLTREL",
}
#: The entry of DT_VERNEED by which a file says that it needs a linker that knows DT_RELR.
_RELR_MARKER = "GLIBC_ABI_DT_RELR"
_R_X86_64_RELATIVE = 8
#: Relocations that glibc applies in a shared library (sysdeps/x86_64/dl-machine.h, sysdeps/aarch64/...).
_RELOCATIONS: dict[str, frozenset[int]] = {
    "x86_64": frozenset((0, 1, 2, 5, 6, 7, 8, 10, 16, 17, 18, 32, 33, 36, 37, 38)),
    "aarch64": frozenset((0, 257, 1024, 1025, 1026, 1027, 1028, 1029, 1030, 1031, 1032)),
}


def check(image: ElfImage) -> None:
    """Note everything that keeps the dynamic linker from mapping, relocating or initialising a library."""
    for sentence in (*_header(image), *_segments(image)):
        image.note(sentence, fatal=True)
    if image.dynamic is not None and image.layout.bits == 64:
        for sentence in (*_dynamic(image), *_initialisers(image)):
            image.note(sentence, fatal=True)


def _header(image: ElfImage) -> Iterator[str]:
    head = image.source.read(0, 24)
    if head[6] != 1:
        yield f"EI_VERSION is {head[6]}, not 1: 'ELF file version ident does not match current one'"
    if head[7] not in (_SYSV, _GNU):
        yield f"EI_OSABI is {head[7]}: 'ELF file OS ABI invalid'"
    elif head[8] and not (head[7] == _GNU and head[8] < _MOST_ABI):
        yield f"EI_ABIVERSION is {head[8]}: 'ELF file ABI version invalid'"
    if any(head[9:16]):
        yield "the padding of e_ident is not zero: 'nonzero padding in e_ident'"
    version = int.from_bytes(head[20:24], image.layout.byte_order)
    if version != 1:
        yield f"e_version is {version}, not 1: 'ELF file version does not match current one'"


def _segments(image: ElfImage) -> Iterator[str]:
    loads = [segment for segment in image.segments if segment.type == "LOAD"]
    if not loads and image.dynamic is not None:
        yield "it has no PT_LOAD: 'object file has no loadable segments'"
    for segment in loads:
        if (segment.address - segment.offset) % PAGE:
            yield (
                f"the PT_LOAD at {segment.address:#x} comes from offset {segment.offset:#x}, which differs "
                "modulo the page: 'ELF load command address/offset not page-aligned'"
            )
        if segment.memory_size - segment.file_size > _MOST_MEMORY:
            yield (
                f"the PT_LOAD at {segment.address:#x} asks for {segment.memory_size} bytes of memory: "
                "'cannot map zero-fill pages'"
            )
    for index, after in enumerate(loads[1:]):
        before = loads[index]
        if after.address < before.address:
            yield (
                f"the PT_LOAD at {after.address:#x} comes after that at {before.address:#x}: they must ascend"
            )
    if loads and loads[-1].address + loads[-1].memory_size - loads[0].address > 1 << 46:
        yield "its segments span more addresses than a process has"
    dynamic = next((item for item in reversed(image.segments) if item.type == "DYNAMIC"), None)
    if dynamic is not None and "W" in dynamic.flags:
        home = image.space.segment_of(dynamic.address)
        if home is not None and "W" not in home.flags:
            yield "PT_DYNAMIC is writable, but its PT_LOAD is not: the dynamic linker crashes on it"

    for segment in image.segments:
        if segment.type not in ("GNU_RELRO", "NOTE", "GNU_PROPERTY") or not segment.memory_size:
            continue
        end = segment.address + segment.memory_size
        if not any(item.address <= segment.address and end <= _page_end(item) for item in loads):
            yield f"PT_{segment.type} covers {segment.address:#x} to {end:#x}, which no PT_LOAD maps"


def _page_end(segment: Segment) -> int:
    end = segment.address + segment.memory_size
    return end + -end % PAGE


def _dynamic(image: ElfImage) -> Iterator[str]:
    dynamic = image.dynamic
    if dynamic is None:
        return
    values = dynamic.values
    if "NOOPEN" in dynamic.flags():
        yield "it is marked DF_1_NOOPEN: 'shared object cannot be dlopen()ed'"
    if _DT_RELR in values and not any(
        need.version == _RELR_MARKER for need in image.symbol_table.versions.needs
    ):
        yield f"DT_RELR without {_RELR_MARKER}: 'DT_RELR without {_RELR_MARKER} dependency'"
    for group in ((_DT_RELA, _DT_RELASZ, _DT_RELAENT), (_DT_JMPREL, _DT_PLTRELSZ, _DT_PLTREL)):
        there = [tag for tag in group if tag in values]
        if there and len(there) < len(group):
            missing = ", ".join(_NAMES[tag] for tag in group if tag not in values)
            yield f"{_NAMES[there[0]]} without {missing}: the dynamic linker crashes or aborts"
    for tag in (elf.DT_STRTAB, elf.DT_SYMTAB, elf.DT_GNU_HASH, elf.DT_HASH, _DT_RELA, _DT_JMPREL):
        home = image.space.segment_of(values[tag]) if tag in values else None
        if home is not None and not {"R", "W"} & set(home.flags):
            yield f"the PT_LOAD at {home.address:#x} holds tables, but cannot be read: opening it crashes"
            break
    if values.get(_DT_RELAENT, 24) != 24:
        yield f"DT_RELAENT is {values[_DT_RELAENT]}, not 24: the dynamic linker aborts"
    if _DT_JMPREL in values and values.get(_DT_PLTREL, _DT_RELA) != _DT_RELA:
        yield f"DT_PLTREL is {values[_DT_PLTREL]}, not DT_RELA: the dynamic linker aborts"
    writable = [item for item in image.segments if item.type == "LOAD" and "W" in item.flags]
    if "TEXTREL" in dynamic.flags():
        writable = [item for item in image.segments if item.type == "LOAD"]
    for name, start, size in (("DT_RELA", _DT_RELA, _DT_RELASZ), ("DT_JMPREL", _DT_JMPREL, _DT_PLTRELSZ)):
        if start in values:
            yield from _relocations(image, name, values[start], values.get(size, 0), writable)


def _relocations(
    image: ElfImage, name: str, address: int, size: int, writable: list[Segment]
) -> Iterator[str]:
    if size and image.space.available(address) < size:
        yield f"its relocations ({name}) reach out of the file: the dynamic linker crashes on them"
        return
    machine = image.header.facts.machine_name
    known, count = _RELOCATIONS.get(machine), size // 24
    if known is None or not count or image.layout.byte_order != "little":
        return
    image.budget.spend(count // 16, "its relocations")
    words = memoryview(image.read_at_address(address, count * 24)).cast("Q")
    places, kinds = words[::3].tolist(), words[1::3].tolist()
    relative = image.dynamic.values.get(_DT_RELACOUNT, 0) if image.dynamic and name == "DT_RELA" else 0
    types = {kind & 0xFFFFFFFF for kind in set(kinds)}
    strange = sorted(types - known)
    if strange:
        yield f"{name} has relocations of type {strange[0]:#x}: 'unexpected reloc type' or 'unsupported'"
    if max(kinds) >> 32 >= max(image.symbol_table.count, 1):
        yield f"{name} refers to symbol {max(kinds) >> 32}, and there are {image.symbol_table.count}"
    if machine == "x86_64" and any(kind != _R_X86_64_RELATIVE for kind in kinds[:relative]):
        yield f"DT_RELACOUNT says {relative}, but fewer relocations are relative: the dynamic linker aborts"
    spans = [(item.address, item.address + item.memory_size) for item in writable]
    ends = {min(places), max(places)}
    if len(spans) > 1:
        ends.update(places)
    outside = [place for place in ends if not any(start <= place <= end - 8 for start, end in spans)]
    if outside:
        yield (
            f"{name} writes to {min(outside):#x}, which no writable PT_LOAD has: the dynamic linker crashes"
        )


def _initialisers(image: ElfImage) -> Iterator[str]:
    values = image.dynamic.values if image.dynamic is not None else {}
    for name, tag in (("DT_INIT", _DT_INIT), ("DT_FINI", _DT_FINI)):
        if tag in values:
            home = image.space.segment_of(values[tag])
            if home is None or "E" not in home.flags:
                yield f"{name} is {values[tag]:#x}, where there is no code: calling it ends the process"
    for name, tag, size in (
        ("DT_INIT_ARRAY", _DT_INIT_ARRAY, _DT_INIT_ARRAYSZ),
        ("DT_FINI_ARRAY", _DT_FINI_ARRAY, _DT_FINI_ARRAYSZ),
    ):
        length = values.get(size, 0)
        if tag in values and length >= 8 and image.space.available(values[tag]) < length:
            yield f"{name} reaches out of the file: the dynamic linker calls what it finds there"
