"""All facts about one ELF file, put together."""

from __future__ import annotations

from aoti_abi.container_api import REQUIRED
from aoti_abi.errors import InvalidProgram
from aoti_abi.records import TYPE_CHECKING
from aoti_inspect.elf import format as elf
from aoti_inspect.elf.exports import summarize
from aoti_inspect.elf.linker_checks import check
from aoti_inspect.elf.notes import build_id
from aoti_inspect.elf.records import ElfFacts, Symbol, VersionNeed
from aoti_inspect.elf.symbols import binding_name
from aoti_inspect.text import decode

if TYPE_CHECKING:
    from aoti_inspect.elf.image import ElfImage

_MAX_INTERPRETER = 4096
#: What every host has loaded before a plugin comes: versions of these are found without DT_NEEDED.
_ALWAYS_LOADED = ("libc.so.6", "libm.so.6", "ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1")
#: Undefined symbols that are listed. PyTorch's own largest libraries have some ten thousand.
MAX_UNDEFINED = 1 << 14
#: Names of the container API that are looked up through the hash table; it has fifty.
_MAX_LOOKUPS = 256
#: What an entry of each table costs in all that is done with it: reading, judging, rules, reports.
_STEPS_PER_SEGMENT = 4
_STEPS_PER_UNDEFINED = 20
_STEPS_PER_NEED = 12
_SYMBOLS_IN_A_STEP = 2


def assemble(image: ElfImage) -> ElfFacts:
    """Read everything that `ElfFacts` holds.

    Raises:
        InvalidProgram: the dynamic linker can't load the file: a table that it needs, or the name of a
            library that it would open, is not in the file.
    """
    table = image.symbol_table
    image.budget.spend(_STEPS_PER_SEGMENT * len(image.segments), "its program headers")
    try:
        image.budget.spend(table.count // _SYMBOLS_IN_A_STEP, "its dynamic symbols")
        undefined = _undefined(image)
        exports = summarize(table.columns, image.strings, image.budget)
        exports = exports._replace(container=_callable(image, exports.container))
        _check_names(image)
        needs = _version_needs(image, undefined)
    except InvalidProgram as error:
        error.path = error.path or image.name
        raise
    dynamic = image.dynamic
    values = {} if dynamic is None else dynamic.values
    needed = tuple(
        _library(image, offset, number)
        for number, offset in enumerate(() if dynamic is None else dynamic.needed, start=1)
    )
    for library in sorted({need.library for need in needs} - {*needed, *_ALWAYS_LOADED}):
        image.note(
            f"versions of {library} are needed, but {library} is not in DT_NEEDED: the dynamic linker aborts",
            fatal=True,
        )
    if dynamic is not None and table.count > 1 and table.gnu_hash is None and table.sysv_hash is None:
        image.note(
            "there is no hash table that works: the dynamic linker finds none of the symbols", fatal=True
        )
    elif exports.container:
        _check_hash(image, exports.container)
    check(image)
    sections = image.sections
    return ElfFacts(
        size=image.source.size,
        header=image.header.facts,
        segments=image.segments,
        is_dynamic=dynamic is not None,
        interpreter=_interpreter(image),
        soname=_string(image, elf.DT_SONAME, "its own name (DT_SONAME)"),
        needed=needed,
        rpath=_path(image, elf.DT_RPATH, "the search path (DT_RPATH)"),
        runpath=_path(image, elf.DT_RUNPATH, "the search path (DT_RUNPATH)"),
        flags=() if dynamic is None else dynamic.flags(),
        build_id=build_id(image),
        executable_stack=_executable_stack(image),
        text_relocations=elf.DT_TEXTREL in values or bool(values.get(elf.DT_FLAGS, 0) & elf.DF_TEXTREL),
        symbol_count=table.count,
        symbol_count_source=table.count_source,
        undefined=undefined,
        exports=exports,
        version_needs=needs,
        version_definitions=tuple(item.version for item in table.versions.definitions if not item.base),
        sections=sections,
        section_problem=image.section_problem,
        debug_info=any(section.name.startswith((".debug_", ".zdebug_")) for section in sections or ()),
        anomalies=image.anomalies,
        unusable=image.unusable,
        not_read=image.budget.given_up,
    )


def _undefined(image: ElfImage) -> tuple[Symbol, ...]:
    table = image.symbol_table
    names, info, _ = table.columns
    versions = table.versions
    indices = table.columns.undefined()
    if len(indices) > MAX_UNDEFINED:
        image.budget.give_up(f"the undefined symbols: {len(indices)}, of which {MAX_UNDEFINED} were read")
        del indices[MAX_UNDEFINED:]
    image.budget.spend(_STEPS_PER_UNDEFINED * len(indices), "its undefined symbols")
    column = versions.column(indices[-1] + 1) if indices else None
    symbols = []
    for index in indices:
        text = image.strings.text(names[index])
        binding = binding_name(info[index])
        if not text or binding == "local":
            continue
        version, library = None, None
        number = column[index] & ~elf.VERSYM_HIDDEN if column and index < len(column) else 1
        if number > 1:
            need = versions.need(number)
            if need is not None:
                version, library = need.version, need.library
            elif versions.definition(number) is None:
                image.note(f"a symbol has version number {number}, which no version table has")
        symbols.append(Symbol(text, binding, version, library))
    return tuple(symbols)


def _version_needs(image: ElfImage, undefined: tuple[Symbol, ...]) -> tuple[VersionNeed, ...]:
    users: dict[tuple[str | None, str | None], list[str]] = {}
    for symbol in undefined:
        if symbol.version is not None:
            users.setdefault((symbol.library, symbol.version), []).append(symbol.name)
    image.budget.spend(_STEPS_PER_NEED * len(image.symbol_table.versions.needs), "its version needs")
    return tuple(
        VersionNeed(
            need.library, need.version, need.weak, tuple(sorted(users.get((need.library, need.version), ())))
        )
        for need in image.symbol_table.versions.needs
    )


def _check_names(image: ElfImage) -> None:
    names, size = image.symbol_table.columns.names, len(image.strings.data)
    if max(names, default=0) >= max(size, 1):
        outside = sum(name >= size for name in names)
        image.note(f"{outside} dynamic symbols have their name outside of the string table", fatal=True)


def _callable(image: ElfImage, names: tuple[str, ...]) -> tuple[str, ...]:
    """Return those of the container's functions that ``dlsym`` delivers as functions; note the others."""
    if len(names) > _MAX_LOOKUPS:
        return names
    kept = []
    for name in names:
        entry = image.symbol_table.find(name)
        reason = None if entry is None else image.symbol_table.undeliverable(entry)
        if reason is None:
            kept.append(name)
        else:
            image.note(f"{name} is defined, but dlsym does not deliver a function: {reason}")
    return tuple(kept)


def _check_hash(image: ElfImage, names: tuple[str, ...]) -> None:
    lost = [
        name
        for name in sorted(names, key=lambda name: name not in REQUIRED)[:_MAX_LOOKUPS]
        if image.symbol_table.hashed(name.encode("utf-8", "surrogateescape")) is None
    ]
    if lost:
        image.note(
            f"the hash table does not lead to {', '.join(lost[:3])}{' and more' if len(lost) > 3 else ''}: "
            "the dynamic linker will not find what the symbol table defines",
            fatal=any(name in REQUIRED for name in lost),
        )


def _library(image: ElfImage, offset: int, number: int) -> str:
    name = image.strings.text(offset)
    if name is None:
        raise InvalidProgram(
            f"the name of the library that DT_NEEDED entry {number} asks for is outside of the string table "
            f"({offset:#x} of {len(image.strings.data):#x} bytes): the dynamic linker crashes on it",
            path=image.name,
            hint="the file is damaged: build or copy it again",
        )
    return name


def _string(image: ElfImage, tag: int, what: str) -> str | None:
    offset = None if image.dynamic is None else image.dynamic.values.get(tag)
    if offset is None:
        return None
    text = image.strings.text(offset)
    if text is None:
        image.note(f"{what} is outside of the string table")
    return text


def _path(image: ElfImage, tag: int, what: str) -> tuple[str, ...]:
    text = _string(image, tag, what)
    return tuple(text.split(":")) if text else ()


def _interpreter(image: ElfImage) -> str | None:
    segment = next((item for item in image.segments if item.type == "INTERP"), None)
    if segment is None:
        return None
    raw = image.source.read(segment.offset, min(segment.file_size, _MAX_INTERPRETER))
    text, end, _ = raw.partition(b"\0")
    if not end:
        image.note("the interpreter (PT_INTERP) has no end within the file")
        return None
    return decode(text)


def _executable_stack(image: ElfImage) -> bool | None:
    # The dynamic linker goes by the last header of the kind.
    flags = [segment.flags for segment in image.segments if segment.type == "GNU_STACK"]
    return "E" in flags[-1] if flags else None
