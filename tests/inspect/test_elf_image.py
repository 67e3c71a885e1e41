"""The dynamic view of one file: classes, byte orders, tables, look-up."""

from __future__ import annotations

import mmap
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from aoti_abi.errors import AccessFailed, InvalidArgument, InvalidProgram, NotFound
from aoti_inspect.elf.image import ElfImage
from aoti_inspect.elf.read import open_elf
from aoti_inspect.elf.records import ElfFacts, Symbol
from aoti_inspect.source import open_file

MACHINES = [
    (64, "little", 62, "x86_64"),
    (64, "little", 183, "aarch64"),
    (64, "big", 22, "s390x"),
    (64, "big", 21, "ppc64"),
    (32, "little", 3, "i386"),
    (32, "little", 40, "arm"),
    (32, "big", 20, "ppc"),
    (64, "little", 243, "riscv64"),
    (64, "little", 9999, "machine(9999)"),
]
NAMES = [f"AOTInductorModelContainer{name}" for name in ("Run", "Delete", "CreateWithDevice")]


def facts_of(data: bytes) -> ElfFacts:
    return ElfImage(data, "test.so").facts()


@pytest.mark.parametrize("machine_of", MACHINES, ids=lambda item: item[3])
@pytest.mark.parametrize("hashes", [("gnu",), ("sysv",), ("gnu", "sysv"), ()])
def test_every_class_byte_order_and_hash_style_reads_the_same(elf_writer, machine_of, hashes):
    bits, order, machine, name = machine_of
    writer = elf_writer(
        bits,
        order,
        machine,
        undefined=[("strlen", 2), ("aoti_torch_get_data_ptr", 1), ("_ZSt4cerr", 3)],
        defined=[*NAMES, ("value", 10, 0x40010, 8), ("inline_thing", 2, 0x40020, 8)],
        versions={"libc.so.6": [("GLIBC_2.34", 2), ("GLIBC_9.9", 4)], "libstdc++.so.6": [("GLIBCXX_3.4", 3)]},
        needed=["libc.so.6", "libstdc++.so.6"],
        soname="libtest.so",
        runpath="$ORIGIN:/opt/lib",
        tags=[(30, 8 | 16), (0x6FFFFFFB, 1 | 8)],
        hashes=hashes,
        stack=7,
    )
    image = ElfImage(writer.build(), "test.so")
    facts = image.facts()
    assert facts.header == (bits, order, "DYN", machine, name)
    assert facts.needed == ("libc.so.6", "libstdc++.so.6")
    assert (facts.soname, facts.runpath, facts.rpath) == ("libtest.so", ("$ORIGIN", "/opt/lib"), ())
    assert facts.flags == ("BIND_NOW", "NODELETE", "NOW", "STATIC_TLS")
    assert facts.executable_stack is True
    assert facts.symbol_count == 9
    assert facts.symbol_count_source == (
        "DT_HASH" if "sysv" in hashes else "DT_GNU_HASH" if hashes else "DT_STRTAB"
    )
    assert facts.undefined == (
        Symbol("strlen", "global", "GLIBC_2.34", "libc.so.6"),
        Symbol("aoti_torch_get_data_ptr", "global", None, None),
        Symbol("_ZSt4cerr", "global", "GLIBCXX_3.4", "libstdc++.so.6"),
    )
    assert [(need.version, need.symbols) for need in facts.version_needs] == [
        ("GLIBC_2.34", ("strlen",)),
        ("GLIBC_9.9", ()),
        ("GLIBCXX_3.4", ("_ZSt4cerr",)),
    ]
    assert facts.exports.total == 5
    assert facts.exports.container == tuple(sorted(NAMES))
    assert facts.exports.unique == ("value",)
    assert (facts.exports.others, facts.exports.other_examples) == (2, ("inline_thing", "value"))
    assert set(image.defined_names()) == {*NAMES, "value", "inline_thing"}
    for wanted in (*NAMES, "value", "inline_thing"):
        assert image.defines(wanted) is not None
    assert image.defines("strlen") is None, "undefined here"
    assert image.defines("absent") is None
    assert image.defines("value") == Symbol("value", "unique", None, None)
    found = image.find("value")
    assert found is not None
    assert (found.value, found.size, found.type) == (0x40010, 8, 1)
    assert facts.sections is None
    assert facts.section_problem is None
    assert facts.anomalies == (() if hashes else (facts.anomalies[0],))


@pytest.mark.parametrize(("bits", "order", "machine", "_name"), MACHINES[:7])
def test_the_writer_of_these_tests_writes_what_readelf_reads(
    elf_writer, tmp_path, bits, order, machine, _name
):
    writer = elf_writer(
        bits, order, machine, undefined=["u"], defined=NAMES, needed=["libx.so"], hashes=("sysv",)
    )
    path = tmp_path / "written.so"
    path.write_bytes(writer.build())
    shown = subprocess.run(["readelf", "-dW", path], capture_output=True, text=True, check=True).stdout
    assert "Shared library: [libx.so]" in shown
    shown = subprocess.run(["readelf", "-DsW", path], capture_output=True, text=True, check=True).stdout
    assert all(name in shown for name in NAMES)


def test_version_definitions_and_default_versions(compile_library: Callable[..., str], tmp_path: Path):
    script = tmp_path / "map"
    script.write_text("V1 { global: old; both; local: *; }; V2 { global: fresh; both; } V1;")
    source = """
    int old(void) { return 1; }
    int fresh(void) { return 2; }
    int both_1(void) { return 1; }
    int both_2(void) { return 2; }
    __asm__(".symver both_1, both@V1\\n.symver both_2, both@@V2");
    """
    path = compile_library(source, f"-Wl,--version-script={script}", "-Wl,-soname,libv.so")
    with open_elf(path) as image:
        facts = image.facts()
        assert facts.version_definitions == ("V1", "V2")
        assert facts.soname == "libv.so"
        assert image.defines("old") == Symbol("old", "global", "V1", None)
        assert image.defines("both") == Symbol("both", "global", "V2", None)
        assert image.defines("both_1") is None, "it is local"


def test_real_plugin_with_and_without_its_sections(small_plugin: Path):
    data = small_plugin.read_bytes()
    stripped = bytearray(data)
    stripped[40:48] = bytes(8)
    stripped[58:64] = bytes(6)
    whole, bare = facts_of(data), facts_of(bytes(stripped))
    assert whole.sections
    assert bare.sections is None
    assert bare._replace(sections=whole.sections) == whole
    assert whole.exports.container == (
        "AOTInductorModelContainerCreateWithDevice",
        "AOTInductorModelContainerDelete",
        "AOTInductorModelContainerGetNumInputs",
        "AOTInductorModelContainerGetNumOutputs",
        "AOTInductorModelContainerRun",
    )
    assert "libstdc++.so.6" in whole.needed
    assert whole.exports.std_strong == 0, "inlined templates are no copy of the runtime"
    assert whole.build_id is not None
    assert len(whole.build_id) == 40
    assert whole.executable_stack is False
    assert whole.debug_info is False
    assert whole.interpreter is None
    assert whole.anomalies == ()


def test_debug_info_text_relocations_paths_and_stack(compile_library: Callable[..., str]):
    path = compile_library(
        "int f(void) { return 1; }", "-g", "-Wl,-z,execstack", "-Wl,--enable-new-dtags,-rpath,/a:/b"
    )
    with open_elf(path) as image:
        facts = image.facts()
    assert facts.debug_info
    assert facts.executable_stack is True
    assert facts.runpath == ("/a", "/b")
    path = compile_library(
        '__asm__(".text\\n.globl g\\ng: .quad target\\n"); int target;',
        "-Wl,-z,notext",
        "-Wl,--disable-new-dtags,-rpath,/c",
    )
    with open_elf(path) as image:
        facts = image.facts()
    assert facts.text_relocations
    assert "TEXTREL" in facts.flags
    assert (facts.rpath, facts.runpath) == (("/c",), ())


def test_programs_have_an_interpreter_and_objects_no_dynamic_table(compile_library: Callable[..., str]):
    program = compile_library("int main(void) { return 0; }", name="program", shared=False)
    with open_elf(program) as image:
        facts = image.facts()
    assert facts.interpreter is not None
    assert "/ld" in facts.interpreter
    assert "PIE" in facts.flags
    module = compile_library("int f(void) { return 0; }", "-c", name="module.o", shared=False)
    with open_elf(module) as image:
        facts = image.facts()
    assert facts.header.type == "REL"
    assert (facts.is_dynamic, facts.symbol_count, facts.exports.total, facts.needed) == (False, 0, 0, ())


def test_a_library_that_defines_nothing_still_shows_what_it_needs(compile_library: Callable[..., str]):
    # GNU ld writes a GNU hash table for it that covers no symbol at all.
    path = compile_library(
        'int elsewhere(void); __attribute__((visibility("hidden"))) int f(void) { return elsewhere(); }',
        "-nostdlib",
        "-Wl,--hash-style=gnu",
    )
    with open_elf(path) as image:
        facts = image.facts()
    assert [symbol.name for symbol in facts.undefined] == ["elsewhere"]
    assert facts.symbol_count_source == "DT_STRTAB"


def test_any_buffer_is_read_alike(small_plugin: Path):
    data = small_plugin.read_bytes()
    expected = facts_of(data)
    assert facts_of(bytearray(data)) == expected
    assert facts_of(memoryview(data)) == expected
    with open(small_plugin, "rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as view:
        assert ElfImage(view, "test.so").facts() == expected
    with open_elf(str(small_plugin)) as image:
        assert image.facts() == expected


def test_a_member_inside_a_larger_file_is_read_in_place(small_plugin: Path, tmp_path: Path):
    data = small_plugin.read_bytes()
    path = tmp_path / "archive"
    path.write_bytes(b"x" * 777 + data + b"y" * 99)
    with open_file(str(path)) as archive:
        member = archive.part(777, len(data), "archive!plugin.so")
        assert ElfImage(member, member.name).facts() == facts_of(data)


def test_read_at_address_stays_within_a_segment(small_plugin: Path):
    data = small_plugin.read_bytes()
    image = ElfImage(data, "test.so")
    load = next(segment for segment in image.segments if segment.type == "LOAD" and segment.offset)
    assert image.read_at_address(load.address, 16) == data[load.offset : load.offset + 16]
    last = load.address + load.file_size - 4
    assert len(image.read_at_address(last, 1 << 40)) == 4
    assert image.read_at_address(1 << 60, 8) == b""
    assert image.read_at_address(-1, 8) == b""
    assert image.read_at_address(load.address, -5) == b""


def test_what_cannot_be_opened_is_one_clear_error(tmp_path: Path, small_plugin: Path):
    with pytest.raises(NotFound, match="no such file"), open_elf(str(tmp_path / "absent.so")):
        pass
    with pytest.raises(NotFound, match="no such file"), open_elf(str(small_plugin / "x.so")):
        pass
    with pytest.raises(NotFound, match="no file can have this name"), open_elf("a\0b"):
        pass
    with pytest.raises(InvalidArgument, match="this is a directory"), open_elf(str(tmp_path)):
        pass
    fifo = tmp_path / "fifo.so"
    os.mkfifo(fifo)
    with pytest.raises(InvalidArgument, match="this is a pipe"), open_elf(str(fifo)):
        pass
    with pytest.raises(InvalidArgument, match="this is a device"), open_elf("/dev/null"):
        pass
    loop = tmp_path / "loop.so"
    loop.symlink_to(loop)
    with pytest.raises(AccessFailed, match="cannot open"), open_elf(str(loop)):
        pass


def test_a_file_that_shrinks_while_it_is_read_is_an_error_and_no_crash(small_plugin: Path, tmp_path: Path):
    path = tmp_path / "shrinking.so"
    path.write_bytes(small_plugin.read_bytes())
    with open_elf(str(path)) as image:
        os.truncate(path, 4096)
        with pytest.raises(AccessFailed, match="became shorter"):
            image.facts()


def test_errors_name_the_file(small_plugin: Path, tmp_path: Path):
    path = tmp_path / "half.so"
    path.write_bytes(small_plugin.read_bytes()[: small_plugin.stat().st_size // 2])
    with pytest.raises(InvalidProgram, match="truncated") as caught, open_elf(str(path)) as image:
        image.facts()
    assert caught.value.path == str(path)
    assert caught.value.hint


def test_memory_and_time_do_not_depend_on_the_size_of_the_file(small_plugin: Path, tmp_path: Path):
    """Weights may follow the plugin's end; a sparse copy of 5 GiB must cost what the plugin costs."""
    path = tmp_path / "large.so"
    path.write_bytes(small_plugin.read_bytes())
    os.truncate(path, 5 << 30)
    script = (
        "import sys, time\n"
        "from aoti_inspect.artifacts.facts import read_facts\n"
        "start = time.perf_counter()\n"
        "facts = read_facts(sys.argv[1])\n"
        "took = time.perf_counter() - start\n"
        "peak = [line for line in open('/proc/self/status') if line.startswith('VmHWM')][0].split()[1]\n"
        "print(facts.elf.size, took, peak)\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", script, path], capture_output=True, text=True, check=True, env=environment
    )
    size, took, peak = done.stdout.split()
    assert int(size) == 5 << 30
    assert float(took) < 20, "reading 5 GiB instead of skipping it"
    assert int(peak) < 30 * 1024, "KiB"


def test_importing_the_reader_pulls_in_nothing_heavy():
    script = (
        "import sys; import aoti_inspect.facts.plugin; "
        "print(sorted({'json', 'zipfile', 'dataclasses', 'inspect', 'pathlib', 'elftools', 'ctypes', "
        "'argparse'} & set(sys.modules)))"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-S", "-c", script], capture_output=True, text=True, check=True, env=environment
    )
    assert done.stdout.strip() == "[]"


def test_names_keep_their_bytes(elf_writer):
    """Terminal escapes and bytes that are not UTF-8 are data."""
    raw = b"lib\x1b[31m\xff.so"
    facts = facts_of(elf_writer(needed=[raw], undefined=[b"sym\xfe\n"], defined=NAMES).build())
    assert facts.needed[0].encode("utf-8", "surrogateescape") == raw
    assert facts.undefined[0].name.encode("utf-8", "surrogateescape") == b"sym\xfe\n"
