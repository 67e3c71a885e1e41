"""Byte-level mends of a private copy: old troubles that need no new layout.

* ``PT_GNU_STACK`` with PF_X makes the whole process's stacks executable; glibc 2.41 and later refuse such a
  library. Plugins ask for it only because a hand-written assembly file lacks a marker. PF_X is cleared.
* ``STB_GNU_UNIQUE`` symbols pin a library for good: ``dlclose`` never unmaps it. They become STB_GLOBAL.
* ``__cxa_thread_atexit`` pins it too, until the threads that made its ``thread_local`` objects have ended.
  The import is pointed at ``cxa_thread_atexit`` of libaoti_unload.so (`aoti_loader.thread_exit`): the same
  string, two characters on.
* A plugin that names LibTorch in DT_NEEDED, but uses none of it beyond the shims that another host has, would
  drag LibTorch in, or fail without it. The entry is dropped when another host was chosen.

Every mend overwrites bytes in place, so that nothing moves. Weights that are appended past the last segment
are found by their offset from the file's end; a mend that would touch them is refused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from aoti_abi.errors import InvalidProgram, NotSupported
from aoti_inspect.elf import format as elf
from aoti_inspect.elf.symbols import info_offset

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aoti_inspect.elf.image import ElfImage
    from aoti_inspect.facts.records import PluginFacts

#: The imports that pin a library to its threads: of a C++ runtime, and of the C library by a C++ runtime that
#: the plugin carries in itself. Both are pointed at the same name without its first characters.
THREAD_ATEXIT: tuple[str, ...] = ("__cxa_thread_atexit", "__cxa_thread_atexit_impl")
_SKIPPED = len("__")


class Patch(NamedTuple):
    """Bytes that replace as many bytes at ``offset`` of the copy."""

    offset: int
    data: bytes


class Mend(NamedTuple):
    """One mend of the private copy.

    Attributes:
        name: "executable-stack", "unique-symbols", "thread-exit" or "libtorch-needed".
        description: what was changed, for a report.
        patches: the bytes.
    """

    name: str
    description: str
    patches: tuple[Patch, ...]


def plan_mends(
    image: ElfImage, facts: PluginFacts, *, drop: tuple[str, ...] = (), thread_exit: bool = False
) -> tuple[Mend, ...]:
    """Return the mends that a plugin needs; none if it is fine as it is.

    Args:
        image: the file, which is read again.
        facts: what was read from it.
        drop: the DT_NEEDED entries that must not be followed.
        thread_exit: whether libaoti_unload.so is in the global scope.

    Raises:
        InvalidProgram: the file's tables contradict the facts.
        NotSupported: a mend would change appended weights, or cut a versioned need.
    """
    mends = []
    if facts.elf.executable_stack:
        mends.append(_clear_executable_stack(image))
    if facts.elf.exports.unique:
        mends.append(_unique_to_global(image))
    if thread_exit and any(symbol.name in THREAD_ATEXIT for symbol in facts.elf.undefined):
        mends.append(_redirect_thread_exit(image))
    if drop:
        mends.append(_drop_needed(image, facts, drop))
    _refuse_changing_weights(facts, mends)
    return tuple(mends)


def _clear_executable_stack(image: ElfImage) -> Mend:
    order = image.layout.byte_order
    patches = []
    for index, segment in enumerate(image.segments):
        if segment.type == elf.PT_NAMES[elf.PT_GNU_STACK] and "E" in segment.flags:
            place = image.header.segment_flags_offset(index)
            flags = int.from_bytes(image.source.read(place, 4), order)
            patches.append(Patch(place, (flags & ~elf.PF_X).to_bytes(4, order)))
    return Mend(
        "executable-stack", "the stack stays non-executable (PF_X of PT_GNU_STACK cleared)", tuple(patches)
    )


def _unique_to_global(image: ElfImage) -> Mend:
    patches = []
    at = info_offset(image.layout)
    for index, info in enumerate(image.symbol_table.columns.info):
        if info >> 4 == elf.STB_UNIQUE:
            place = _in_file(image, image.symbol_table.offset_of(index)) + at
            patches.append(Patch(place, bytes((elf.STB_GLOBAL << 4 | info & 15,))))
    return Mend(
        "unique-symbols",
        f"{len(patches)} STB_GNU_UNIQUE symbols made STB_GLOBAL, so that dlclose can unload it",
        tuple(patches),
    )


def _redirect_thread_exit(image: ElfImage) -> Mend:
    order, table = image.layout.byte_order, image.symbol_table
    patches = []
    for index, name in _imports(image):
        if image.strings.text(name) in THREAD_ATEXIT:
            patches.append(
                Patch(_in_file(image, table.offset_of(index)), (name + _SKIPPED).to_bytes(4, order))
            )
            version = table.versions.offset_of(index)
            if version is not None:
                # The other function has no version.
                patches.append(Patch(version, elf.VER_NDX_GLOBAL.to_bytes(2, order)))
    return Mend(
        "thread-exit",
        "destructors of thread_local objects registered where closing can run them",
        tuple(patches),
    )


def _imports(image: ElfImage) -> Iterator[tuple[int, int]]:
    """Yield the position and st_name of each undefined symbol."""
    columns = image.symbol_table.columns
    for index in columns.undefined():
        yield index, columns.names[index]


def _drop_needed(image: ElfImage, facts: PluginFacts, unwanted: tuple[str, ...]) -> Mend:
    # DT_VERNEED may have the file name alone of a library that DT_NEEDED names by its path.
    names = {*unwanted, *(entry.rpartition("/")[2] for entry in unwanted)}
    versioned = sorted({need.library for need in facts.elf.version_needs} & names)
    if versioned:
        raise NotSupported(
            f"DT_NEEDED {versioned[0]} cannot be dropped: symbol versions are bound to it", path=facts.name
        )
    kept = []
    dropped = []
    for tag, value in image.dynamic.entries if image.dynamic else ():
        name = image.strings.text(value) if tag == elf.DT_NEEDED else None
        if name is not None and name in unwanted:
            dropped.append(name)
        else:
            kept.append((tag, value))
    if not dropped:
        raise InvalidProgram("its dynamic section names no library to drop", path=image.name)
    # What is behind moves up; the dynamic linker reads to the first DT_NULL.
    kept += [(elf.DT_NULL, 0)] * len(dropped)
    data = b"".join(image.layout.dynamic.pack(*entry) for entry in kept)
    return Mend(
        "libtorch-needed",
        f"DT_NEEDED {', '.join(dropped)} dropped: the chosen host provides every shim",
        (Patch(_in_file(image, image.dynamic_offset), data),),
    )


def _in_file(image: ElfImage, offset: int | None) -> int:
    """Return an offset that the reader found in the file.

    Raises:
        InvalidProgram: it is not there, so that the file is not the one that the facts are of.
    """
    if offset is None:
        raise InvalidProgram("its dynamic tables are not in the file", path=image.name)
    return offset


def _refuse_changing_weights(facts: PluginFacts, mends: list[Mend]) -> None:
    weights = facts.weights
    if weights.kind != "appended":
        return
    for mend in mends:
        for patch in mend.patches:
            if patch.offset + len(patch.data) > weights.offset:
                raise NotSupported(
                    f"the mend {mend.name!r} would change the weights appended at {weights.offset}",
                    path=facts.name,
                    hint="load it with mend=False",
                )
