"""Where the sections say something else than PT_DYNAMIC, and what only they hold."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from aoti_inspect.elf.image import ElfImage
from aoti_inspect.elf.read import open_elf
from aoti_inspect.facts.second_view import compare, look


def section(data: bytes, name: str) -> int:
    """Offset of the header of a section, in a 64-bit little-endian file."""
    image = ElfImage(data, "test.so")
    names = [item.name for item in image.sections or ()]
    return image.header.section_offset + 64 * names.index(name)


def disagreements(data: bytes) -> tuple[str, ...]:
    return compare(data, ElfImage(data, "test.so").facts())


def test_views_agree_on_real_files(small_plugin: Path, plugins: Path):
    for path in (small_plugin, *plugins.glob("*.so")):
        with open_elf(str(path)) as image:
            facts = image.facts()
        assert compare(str(path), facts) == ()
        assert compare(path.read_bytes(), facts) == ()


def test_sections_were_stripped(small_plugin: Path):
    """A file without sections looks empty to other auditors, and loads."""
    data = bytearray(small_plugin.read_bytes())
    data[40:48] = bytes(8)
    data[58:64] = bytes(6)
    (sentence,) = disagreements(bytes(data))
    assert "no section headers" in sentence
    assert "the dynamic linker sees them all" in sentence


def test_sections_that_cannot_be_used(small_plugin: Path):
    data = bytearray(small_plugin.read_bytes())
    data[40:48] = (0xFF << 32).to_bytes(8, "little")
    (sentence,) = disagreements(bytes(data))
    assert "outside of the file" in sentence


def test_sections_that_hide_symbols(small_plugin: Path):
    data = bytearray(small_plugin.read_bytes())
    struct.pack_into("<Q", data, section(bytes(data), ".dynsym") + 32, 24 * 3)
    (sentence,) = disagreements(bytes(data))
    assert "dynamic symbols are not in the sections: AOTInductorModelContainer" in sentence


def test_sections_that_name_other_libraries(small_plugin: Path):
    data = bytearray(small_plugin.read_bytes())
    # A second dynamic table and its strings behind the file's end, for those who look at sections.
    strings, start = b"\0libinnocent.so\0", len(data)
    data += strings + struct.pack("<QQQQ", 1, 1, 0, 0)
    struct.pack_into("<QQ", data, section(bytes(data), ".dynamic") + 24, start + len(strings), 32)
    struct.pack_into("<QQ", data, section(bytes(data), ".dynstr") + 24, start, len(strings))
    found = disagreements(bytes(data))
    assert any(
        "the file needs libinnocent.so, but the dynamic linker loads libstdc++.so.6" in item for item in found
    )


def test_sections_without_versions(small_plugin: Path):
    data = bytearray(small_plugin.read_bytes())
    struct.pack_into("<I", data, section(bytes(data), ".gnu.version_r") + 4, 1)
    (sentence,) = disagreements(bytes(data))
    assert "needed versions" in sentence


@pytest.mark.parametrize(
    ("name", "words"), [(".dynamic", "PT_DYNAMIC is there"), (".dynsym", "cannot be read")]
)
def test_sections_that_are_of_another_type(small_plugin: Path, name: str, words: str):
    data = bytearray(small_plugin.read_bytes())
    struct.pack_into("<I", data, section(bytes(data), name) + 4, 1)
    assert any(words in sentence for sentence in disagreements(bytes(data)))


def test_a_dynamic_table_only_in_the_sections(small_plugin: Path):
    data = bytearray(small_plugin.read_bytes())
    image = ElfImage(bytes(data), "test.so")
    index = [segment.type for segment in image.segments].index("DYNAMIC")
    struct.pack_into("<Q", data, image.header.program_offset + 56 * index + 32, 0)
    assert any("the dynamic linker sees none" in sentence for sentence in disagreements(bytes(data)))


def test_what_only_sections_hold(compile_library: Callable[..., str], small_plugin: Path):
    path = compile_library("int answer(void) { return 42; }", "-g", "-Wl,--build-id=sha1")
    with open_elf(path) as image:
        facts = image.facts()
    view = look(path, facts)
    assert any("GCC" in text or "clang" in text for text in view.comments)
    assert any("C1" in text or "C99" in text or "clang" in text for text in view.producers)
    assert view.static_symbols is not None
    assert view.static_symbols > 5
    assert f"NT_GNU_BUILD_ID: {facts.build_id}" in view.notes
    with open_elf(str(small_plugin)) as image:
        assert look(str(small_plugin), image.facts()).producers == ()


def test_whatever_pyelftools_raises_is_a_sentence(small_plugin: Path):
    data = bytearray(small_plugin.read_bytes())
    at = section(bytes(data), ".dynsym")
    struct.pack_into("<I", data, at + 40, 999)
    struct.pack_into("<Q", data, at + 24, 64)
    (sentence,) = [item for item in disagreements(bytes(data)) if "cannot be read" in item]
    assert sentence.startswith("the sections cannot be read: ")
