"""Where the constants are: embedded, appended, external, none."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from aoti_inspect.elf.image import ElfImage
from aoti_inspect.elf.read import open_elf
from aoti_inspect.facts.plugin import plugin_facts
from aoti_inspect.facts.weights import TAIL_ALIGN, find_weights

MAGIC = 0x1234_5678_9ABC_DEF1
#: What only code for one kind of weights holds, as in PyTorch's model_base.h.
EXTERNAL_TEXT = (
    "Constants are not mmap'd. Use AOTInductorModelUpdateConstantsBlob to initialize the constants first."
)
APPENDED_TEXT = "weights_offset must be aligned to 16K boundary"


def source(body: str, *, section: str = '.lrodata, "a"', text: str = "") -> str:
    """Assembly as Inductor writes it, in C."""
    return f"""
    __asm__(".section {section.replace('"', chr(92) + '"')}\\n .balign 64\\n"
            ".globl _binary_constants_bin_start\\n_binary_constants_bin_start:\\n {body}\\n"
            ".globl _binary_constants_bin_end\\n_binary_constants_bin_end:\\n"
            ".section .note.GNU-stack,\\"\\"\\n");
    const char *message(void) {{ return "{text}"; }}
    """


def weights_of(data: bytes):
    image = ElfImage(data, "test.so")
    facts = plugin_facts(image, metadata=None)
    assert facts.weights == find_weights(image)
    return facts


@pytest.mark.parametrize(("section", "mutable"), [('.lrodata, "a"', False), ('.ldata, "aw"', True)])
def test_embedded_weights(compile_library: Callable[..., str], section: str, mutable: bool):
    path = compile_library(source('.ascii \\"WEIGHTS!\\"\\n.space 632', section=section))
    data = Path(path).read_bytes()
    weights = weights_of(data).weights
    assert (weights.kind, weights.size, weights.mutable) == ("embedded", 640, mutable)
    assert weights.offset == data.index(b"WEIGHTS!")
    assert (weights.required, weights.magic, weights.magic_ok) == (None, None, None)


def test_embedded_weights_without_an_end_symbol(compile_library: Callable[..., str]):
    """use_consts_asm_build=False: a sized array in .data, and whether runs mutate it can't be told."""
    path = compile_library("unsigned char _binary_constants_bin_start[128] = {7, 7, 7, 7};")
    data = Path(path).read_bytes()
    weights = weights_of(data).weights
    assert (weights.kind, weights.size, weights.mutable) == ("embedded", 128, None)
    assert data[weights.offset : weights.offset + 5] == b"\x07\x07\x07\x07\0"


@pytest.mark.parametrize("body", [".space 1", ""])
def test_no_weights(compile_library: Callable[..., str], body: str):
    weights = weights_of(Path(compile_library(source(body))).read_bytes()).weights
    assert weights == ("none", 0, 0, None, None, None, None)


def test_a_library_that_is_no_plugin_has_none(compile_library: Callable[..., str]):
    assert weights_of(Path(compile_library("int f;")).read_bytes()).weights.kind == "none"


def test_external_weights(compile_library: Callable[..., str]):
    path = compile_library(source(".quad 49792", text=EXTERNAL_TEXT))
    assert weights_of(Path(path).read_bytes()).weights == ("external", 0, 0, 49792, None, None, None)
    array = (
        "unsigned char _binary_constants_bin_start[8] = {0x80, 0xc2, 0, 0, 0, 0, 0, 0};"
        f'const char *message = "{EXTERNAL_TEXT}";'
    )
    assert weights_of(Path(compile_library(array)).read_bytes()).weights.required == 0xC280


def test_eight_bytes_of_weights_are_no_length(compile_library: Callable[..., str]):
    """A single 64-bit constant looks like the length of a blob; the code that reads a blob is missing."""
    weights = weights_of(Path(compile_library(source(".quad 5"))).read_bytes()).weights
    assert (weights.kind, weights.size) == ("embedded", 8)


@pytest.fixture
def appended(compile_library: Callable[..., str]) -> Callable[..., bytes]:
    """Return a function that writes a plugin with a tail: (payload, magic in the tail) -> bytes."""

    def write(payload: bytes, magic: int = MAGIC, align: int = TAIL_ALIGN) -> bytes:
        body = f".quad {len(payload) + 8}\\n.quad {MAGIC}"
        data = Path(compile_library(source(body, text=APPENDED_TEXT))).read_bytes()
        data += b" " * (align - len(data) % align)
        return data + payload + magic.to_bytes(8, "little")

    return write


def test_appended_weights(appended: Callable[..., bytes]):
    """Where, how many, and whether the magic number is intact."""
    data = appended(b"w" * 1000)
    facts = weights_of(data)
    weights = facts.weights
    assert (weights.kind, weights.size, weights.required) == ("appended", 1000, 1008)
    assert data[weights.offset : weights.offset + weights.size] == b"w" * 1000
    assert (weights.magic, weights.magic_ok) == (MAGIC, True)
    assert facts.elf.anomalies == ()


def test_appended_weights_that_were_overwritten_moved_or_cut_off(appended: Callable[..., bytes]):
    wrong = weights_of(appended(b"w" * 1000, magic=MAGIC + 1)).weights
    assert (wrong.kind, wrong.magic_ok) == ("appended", False)
    moved = weights_of(appended(b"w" * 1000, align=4096 + 16))
    assert moved.weights.kind == "appended"
    assert any("multiple of 16 KiB" in sentence for sentence in moved.elf.anomalies)
    whole = appended(b"w" * 100_000)
    cut = weights_of(whole[:-100_008])
    assert (cut.weights.kind, cut.weights.offset, cut.weights.size, cut.weights.magic_ok) == (
        "appended",
        0,
        0,
        False,
    )
    assert any("no room for them" in sentence for sentence in cut.elf.anomalies)


def test_appended_weights_too_short_for_their_magic_number(compile_library: Callable[..., str]):
    body = f".quad 3\\n.quad {MAGIC}"
    facts = weights_of(Path(compile_library(source(body, text=APPENDED_TEXT))).read_bytes() + b"www")
    assert facts.weights == ("appended", 0, 0, 3, MAGIC, False, None)
    assert any("their magic number alone has 8" in sentence for sentence in facts.elf.anomalies)


def test_appended_weights_are_not_read(appended: Callable[..., bytes], tmp_path: Path):
    path = tmp_path / "large.so"
    data = appended(b"")
    length = (4 << 30) + 8
    at = data.index((8).to_bytes(8, "little") + MAGIC.to_bytes(8, "little"))
    patched = bytearray(data[: len(data) - 8])
    patched[at : at + 8] = length.to_bytes(8, "little")
    path.write_bytes(patched)
    os.truncate(path, len(patched) + length)
    with open(path, "r+b") as stream:
        stream.seek(-8, os.SEEK_END)
        stream.write(MAGIC.to_bytes(8, "little"))
    with open_elf(str(path)) as image:
        weights = find_weights(image)
    assert (weights.kind, weights.size, weights.magic_ok) == ("appended", 4 << 30, True)


def test_a_length_that_is_outside_of_the_file(compile_library: Callable[..., str]):
    path = compile_library("__attribute__((used)) unsigned char _binary_constants_bin_start[64] = {1};")
    data = bytearray(Path(path).read_bytes())
    image = ElfImage(bytes(data), "test.so")
    entry = image.find("_binary_constants_bin_start")
    assert entry is not None
    table = image.space.offset_of(image.symbol_table.address or 0)
    assert table is not None
    at = table + 24 * entry.position + 16
    data[at : at + 8] = (1 << 40).to_bytes(8, "little")
    facts = weights_of(bytes(data))
    assert facts.weights.kind == "none"
    assert any("not all in the file" in sentence for sentence in facts.elf.anomalies)


def test_the_real_plugins(plugins: Path):
    def weights(name: str):
        with open_elf(str(plugins / f"{name}.so")) as image:
            return find_weights(image)

    blob = (plugins / "mlp_blob.blob").stat().st_size
    assert weights("mlp_blob") == ("external", 0, 0, blob, None, None, None)
    assert (weights("mlp").kind, weights("mlp").size, weights("mlp").mutable) == ("embedded", blob, None)
    assert (weights("counter").kind, weights("counter").size, weights("counter").mutable) == (
        "embedded",
        64,
        True,
    )
    payload = (plugins / "mlp.so").read_bytes()[weights("mlp").offset :][:blob]
    # The same model: both hold the same constants.
    assert payload == (plugins / "mlp_blob.blob").read_bytes()
