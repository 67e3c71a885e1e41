"""Our facts beside GNU readelf's and pyelftools', on real files of this machine and of the repository."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest
from elftools.elf.elffile import ELFFile

from aoti_inspect.elf.read import open_elf
from aoti_inspect.elf.records import ElfFacts

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures" / "plugins"


def mapped_libraries() -> list[str]:
    """What the dynamic linker loaded into this very process, and the program itself."""
    with open("/proc/self/maps", encoding="utf-8", errors="surrogateescape") as stream:
        paths = {line.split(None, 5)[5].strip() for line in stream if len(line.split(None, 5)) == 6}
    wanted = (
        "libc.so",
        "libc-",
        "libm.so",
        "libpthread",
        "libdl",
        "ld-linux",
        "libcrypto",
        "libffi",
        "_struct",
    )
    return sorted(path for path in paths if any(name in path for name in wanted) and os.path.isfile(path))


def cxx_library() -> list[str]:
    """Return libstdc++, which has version definitions, unique symbols and five thousand exports."""
    done = subprocess.run(
        ["g++", "-print-file-name=libstdc++.so.6"], capture_output=True, text=True, check=True
    )
    path = os.path.realpath(done.stdout.strip())
    return [path] if os.path.isfile(path) else []


FILES = [*sorted(str(path) for path in FIXTURES.glob("*.so")), *mapped_libraries(), *cxx_library()]


def facts_of(path: str) -> ElfFacts:
    with open_elf(path) as image:
        return image.facts()


def readelf(*arguments: str) -> str:
    environment = {**os.environ, "LC_ALL": "C"}
    return subprocess.run(
        ["readelf", "-W", *arguments], capture_output=True, text=True, check=True, env=environment
    ).stdout


def test_there_is_something_to_compare():
    assert len(FILES) >= 6


@pytest.mark.parametrize("path", FILES, ids=os.path.basename)
def test_dynamic_section_as_readelf_has_it(path: str):
    facts, shown = facts_of(path), readelf("-d", "-l", "-n", path)
    assert list(facts.needed) == re.findall(r"\(NEEDED\).*\[(.*)\]", shown)
    assert [facts.soname] == (re.findall(r"\(SONAME\).*\[(.*)\]", shown) or [None])
    stack = re.findall(r"GNU_STACK\s+\S+\s+\S+\s+\S+\s+\S+\s+\S+\s+(R?W? ?E?)", shown)
    assert facts.executable_stack == ("E" in stack[0] if stack else None)
    assert [facts.build_id] == (re.findall(r"Build ID: (\w+)", shown) or [None])
    loads = re.findall(r"^  LOAD\s+(0x\w+) (0x\w+) 0x\w+ (0x\w+) (0x\w+)", shown, re.MULTILINE)
    ours = [
        (item.offset, item.address, item.file_size, item.memory_size)
        for item in facts.segments
        if item.type == "LOAD"
    ]
    assert ours == [tuple(int(value, 16) for value in row) for row in loads]
    flags = {
        name for line in re.findall(r"\(FLAGS(?:_1)?\)\s+(?:Flags: )?(.*)", shown) for name in line.split()
    }
    assert flags <= set(facts.flags)


@pytest.mark.parametrize("path", FILES, ids=os.path.basename)
def test_symbols_and_versions_as_readelf_has_them(path: str):
    facts = facts_of(path)
    undefined, defined, unique = [], 0, set()
    for line in readelf("--dyn-syms", path).splitlines():
        row = line.split()
        if not re.match(r"\d+:$", row[0] if row else "") or int(row[0][:-1]) == 0:
            continue
        name, _, version = (row[7] if len(row) > 7 else "").partition("@")
        if row[6] == "UND":
            if name:
                undefined.append((name, row[4].lower(), version.lstrip("@") or None))
        elif row[4] != "LOCAL":
            defined += 1
            if row[4] == "UNIQUE":
                unique.add(name)
    assert [(item.name, item.binding, item.version) for item in facts.undefined] == undefined
    assert facts.exports.total == defined
    assert set(facts.exports.unique) == unique
    library, needs = "", []
    for line in readelf("-V", path).partition("Version needs section")[2].splitlines():
        if found := re.search(r"File: (\S+)\s+Cnt", line):
            library = found[1]
        elif found := re.search(r"Name: (\S+)\s+Flags: (.*?)\s+Version", line):
            needs.append((library, found[1], "WEAK" in found[2]))
    assert [(need.library, need.version, need.weak) for need in facts.version_needs] == needs


@pytest.mark.parametrize("path", FILES, ids=os.path.basename)
def test_sections_and_symbols_as_pyelftools_has_them(path: str):
    facts = facts_of(path)
    with open(path, "rb") as stream:
        view = ELFFile(stream)
        assert facts.sections is not None
        assert [(item.name, item.offset, item.size) for item in facts.sections] == [
            (section.name, section["sh_offset"], section["sh_size"]) for section in view.iter_sections()
        ]
        table = view.get_section_by_name(".dynsym")
        symbols = list(table.iter_symbols())
        assert facts.symbol_count == len(symbols)
        expected = {
            symbol.name
            for symbol in symbols
            if symbol["st_shndx"] != "SHN_UNDEF" and symbol["st_info"]["bind"] != "STB_LOCAL"
        }
    with open_elf(path) as image:
        assert set(image.defined_names()) == expected
        every = list(image.dynamic_symbols())
        assert [symbol.name for symbol in every] == [symbol.name for symbol in symbols[1:]]
        assert [symbol.value for symbol in every] == [symbol["st_value"] for symbol in symbols[1:]]
        for name in sorted(expected)[:: max(1, len(expected) // 200)]:
            found = image.defines(name)
            assert found is not None, name
            assert image.symbol_table.hashed(name.encode()) is not None, name
        for name in ("no_such_symbol", "AOTInductorModelContainerRunX", "_ZNSt3__1"):
            assert image.defines(name) is None
