"""Symbols that a host has, but keeps to itself.

The dynamic symbol table is what a plugin can see. A host's full symbol table, if it was not stripped, also
holds what is local or hidden: finding a missing shim there tells the user that it is a matter of linking.
"""

from __future__ import annotations

_MOST_SYMBOLS = 5_000_000


def hidden_in(names: list[str], path: str) -> list[str]:
    """Return those of ``names`` that the file's ``.symtab`` defines, sorted; none if it has no such table."""
    from elftools.common.exceptions import ELFError
    from elftools.elf.elffile import ELFFile

    wanted = set(names)
    found: set[str] = set()
    try:
        with open(path, "rb") as stream:
            table = ELFFile(stream).get_section_by_name(".symtab")
            if table is None or table.num_symbols() > _MOST_SYMBOLS:
                return []
            for symbol in table.iter_symbols():
                if symbol.name in wanted and symbol["st_shndx"] != "SHN_UNDEF":
                    found.add(symbol.name)
    except (ELFError, OSError, ValueError, KeyError, TypeError, AttributeError):
        # The dynamic view was read already; what pyelftools makes of damaged sections changes no verdict.
        return []
    return sorted(found)
