"""What a search for libraries needs of each file: names, paths and versions, without the symbols.

A program's closure is dozens of libraries, and `ElfImage.facts` would read every symbol of each.
"""

from __future__ import annotations

from aoti_abi.records import TYPE_CHECKING, NamedTuple
from aoti_inspect.elf import format as elf

if TYPE_CHECKING:
    from aoti_inspect.elf.image import ElfImage


class Links(NamedTuple):
    """How a file hangs together with others, as in `ElfFacts`; unreadable names are left out."""

    needed: tuple[str, ...]
    soname: str | None
    rpath: tuple[str, ...]
    runpath: tuple[str, ...]
    version_definitions: frozenset[str]


def read_links(image: ElfImage) -> Links:
    """Read the links of one file.

    Raises:
        InvalidProgram: a table that the dynamic linker needs is not in the file.
    """
    dynamic = image.dynamic
    if dynamic is None:
        return Links((), None, (), (), frozenset())

    def text(tag: int) -> str | None:
        offset = dynamic.values.get(tag)
        return None if offset is None else image.strings.text(offset)

    def path(tag: int) -> tuple[str, ...]:
        entries = text(tag)
        return tuple(entries.split(":")) if entries else ()

    names = (image.strings.text(offset) for offset in dynamic.needed)
    return Links(
        tuple(name for name in names if name),
        text(elf.DT_SONAME),
        path(elf.DT_RPATH),
        path(elf.DT_RUNPATH),
        frozenset(item.version for item in image.symbol_table.versions.definitions),
    )
