"""Instructions found by their encodings, against what the compiler was told and what objdump says."""

from __future__ import annotations

import platform
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aoti_inspect.auditing.audit import audit
from aoti_inspect.elf.image import ElfImage
from aoti_inspect.elf.x86_length import EVEX, LONGEST, VEX, decode
from aoti_inspect.facts.instruction_sets import SHOWN, InstructionUse, find_instructions
from aoti_inspect.reports.text import describe_code

pytestmark = pytest.mark.skipif(platform.machine() != "x86_64", reason="hardware: compiles x86-64 code")
PLUGINS = sorted(Path("fixtures").glob("*/*.so"))
_LINE = re.compile(r"\s*[0-9a-f]+:\t((?:[0-9a-f]{2} )+)\s*\t?(.*)")
_ALL = ("EVEX", "VEX", "AMX")

WIDE = """
void add(float *restrict a, const float *restrict b) { for (int i = 0; i < 64; i++) a[i] += b[i] * 3; }
int narrow(int a) { return a * 98 + 0x62f17c48; }
"""
TILE = 'void release(void) { __asm__ volatile (".byte 0xc4,0xe2,0x78,0x49,0xc0"); }'
CPUID = """
int level(void) { int a, b, c, d; __asm__ volatile ("cpuid" : "=a"(a), "=b"(b), "=c"(c), "=d"(d) : "0"(7));
return b; }
"""


def uses(path: str | Path) -> dict[str, InstructionUse]:
    found = find_instructions(ElfImage(Path(path).read_bytes(), str(path)), _ALL)
    return {use.encoding: use for use in found}


def disassembled(path: str | Path) -> list[tuple[bytes, str]]:
    text = subprocess.run(
        ["objdump", "-d", "-w", "--insn-width=16", str(path)], capture_output=True, text=True, check=True
    ).stdout
    return [(bytes.fromhex(m[1]), m[2]) for m in map(_LINE.match, text.splitlines()) if m]


@pytest.mark.parametrize(
    ("flags", "evex", "vex"),
    [
        (["-march=x86-64"], "none", "none"),
        (["-march=x86-64-v3"], "none", "used"),
        (["-march=x86-64-v4", "-mprefer-vector-width=512"], "used", "used"),
    ],
)
def test_code_is_found_by_what_it_was_compiled_for(
    compile_library: Callable[..., str], flags: list[str], evex: str, vex: str
):
    found = uses(compile_library(WIDE, "-O3", "-fno-unroll-loops", *flags))
    assert (found["EVEX"].outcome, found["AMX"].outcome) == (evex, "none")
    assert found["VEX"].outcome in (vex, "used" if evex == "used" else vex)
    if evex == "used":
        assert found["EVEX"].functions == ("add",)
        assert not found["EVEX"].dispatched


def test_constants_that_look_like_a_prefix_are_none(compile_library: Callable[..., str]):
    source = "int f(int a) { return a ^ 0x487cf162; } long g(void) { return 0xc5c5c5c562f17c48; }"
    assert {use.outcome for use in uses(compile_library(source, "-O1")).values()} == {"none"}


def test_tiles_are_found(compile_library: Callable[..., str]):
    found = uses(compile_library(TILE, "-O1"))
    assert (found["AMX"].outcome, found["AMX"].functions) == ("used", ("release",))


def test_a_file_that_asks_the_processor_may_choose_at_run_time(compile_library: Callable[..., str]):
    source = WIDE + CPUID
    assert uses(compile_library(source, "-O3", "-march=x86-64-v4"))["EVEX"].dispatched
    source = WIDE + 'int has(void) { return __builtin_cpu_supports("avx512f"); }'
    assert uses(compile_library(source, "-O3", "-march=x86-64-v4"))["EVEX"].dispatched


def test_code_without_unwind_information_is_not_checked(compile_library: Callable[..., str]):
    path = compile_library(WIDE, "-O3", "-march=x86-64-v4", "-fno-asynchronous-unwind-tables")
    assert uses(path)["EVEX"].outcome == "not checked"
    assert "unwind" in (uses(path)["EVEX"].reason or "")


def test_few_functions_are_named(compile_library: Callable[..., str]):
    source = "".join(WIDE.replace("add", f"add{i}").replace("narrow", f"narrow{i}") for i in range(9))
    found = uses(compile_library(source, "-O3", "-march=x86-64-v4", "-mprefer-vector-width=512"))
    assert found["EVEX"].functions == tuple(f"add{i}" for i in range(SHOWN))


@pytest.mark.parametrize("path", PLUGINS, ids=lambda path: path.name)
def test_plugins_have_what_objdump_finds(path: Path):
    lines = disassembled(path)
    assert lines
    found = uses(path)
    registers = {
        "EVEX": any(code[0] == 0x62 and "(bad)" not in text for code, text in lines),
        "VEX": any(text.startswith("v") and code[0] in (0xC4, 0xC5) for code, text in lines),
    }
    for encoding, there in registers.items():
        assert found[encoding].outcome == ("used" if there else "none")


def test_lengths_are_those_of_objdump(compile_library: Callable[..., str]):
    lines = disassembled(compile_library(WIDE, "-O3", "-march=x86-64-v4"))
    for path in ("libm.so.6", "libmvec.so.1"):
        lines += disassembled(f"/lib/x86_64-linux-gnu/{path}")[::7]
    checked = 0
    for code, text in lines:
        # A lone prefix, data, and an `fwait` that objdump joins with what follows are no single instruction.
        if "(bad)" in text or text.startswith(("rex", "data16", "cs ", ".byte")) or code[0] == 0x9B:
            continue
        length, kind = decode(code, 0)
        assert length == len(code), (code.hex(" "), text)
        if text.startswith("v"):
            assert kind == (EVEX if code[0] == 0x62 else VEX)
        checked += 1
    assert checked > 10_000


@given(st.binary(max_size=40), st.integers(0, 45))
def test_any_bytes_have_a_length_or_none(code: bytes, at: int):
    length, _ = decode(code, at)
    assert 0 <= length <= LONGEST
    assert at + length <= len(code) or length == 0


@given(st.binary(max_size=3000), st.randoms())
def test_any_code_is_decided(code: bytes, rng):
    original = bytearray(Path("fixtures/structured/affine.so").read_bytes())
    at = rng.randrange(len(original))
    original[at : at + len(code)] = code[: len(original) - at]
    try:
        image = ElfImage(bytes(original), "x")
    except Exception:  # noqa: BLE001 - what can't be read at all is another test's
        return
    assert {use.outcome for use in find_instructions(image, _ALL)} <= {"used", "none", "not checked"}


def test_an_audit_looks_at_the_code_and_says_what_it_saw(
    compile_library: Callable[..., str], smallest_source: str
):
    """Metadata of AVX2 beside code that is compiled with -march=native on a machine with AVX-512."""
    wide = compile_library(smallest_source + WIDE, "-O3", "-march=x86-64-v4", "-mprefer-vector-width=512")
    Path(wide).with_name("lib_metadata.json").write_text('{"AOTI_CPU_ISA": "AVX2"}')
    (plugin,) = audit(wide, target="isa=avx2,machine=x86_64,glibc=any").plugins
    (finding,) = [item for item in plugin.findings if item.code == "AOTI421"]
    assert "add" in finding.symbols
    assert all(verdict.outcome == "will not load" for verdict in plugin.verdicts)
    assert any(describe_code(use).startswith("AVX-512 instructions in ") for use in plugin.facts.instructions)
    plain = compile_library(smallest_source, "-O1", "-march=x86-64")
    (plugin,) = audit(plain, target="isa=baseline,machine=x86_64,glibc=any").plugins
    assert not plugin.not_checked
    assert {use.outcome for use in plugin.facts.instructions} == {"none"}
    assert audit(wide, target="isa=any,glibc=any").plugins[0].facts.instructions == ()
