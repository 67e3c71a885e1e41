"""The whole command on damaged, odd and hostile libraries: what a user reads, and the exit code."""

from __future__ import annotations

import json
import os
import struct
import subprocess
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from aoti_inspect.command.cli import main
from aoti_inspect.elf.image import ElfImage

from .damage import (
    DT_GNU_HASH,
    DT_NEEDED,
    DT_STRTAB,
    DT_VERNEED,
    Patch,
    many_dynamic_entries,
    needed_in_control,
    no_hash,
    no_sections,
)

#: A host that loads the plugin, and a target that has all it needs, whatever machine runs the tests.
HOST = ("--host", "torch==2.13")
FITTING = (*HOST, "--target", "glibc=2.99,glibcxx=3.4.99,isa=any,machine=any")
LFS = b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n"
PE = b"MZ" + bytes(58) + b"\x40\0\0\0PE\0\0" + bytes(18) + b"\x22\x20" + bytes(200)
Compile = Callable[..., str]
Change = Callable[[Patch], object]


class Command:
    """Runs the command on a real plugin with something changed in it."""

    def __init__(self, plugin: Path, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.plugin, self.folder, self.capsys = plugin, folder, capsys

    def write(self, change: Change, name: str = "model.so") -> str:
        patch = Patch(self.plugin.read_bytes())
        change(patch)
        path = self.folder / name
        path.write_bytes(patch.data)
        return str(path)

    def json(self, *arguments: str) -> tuple[int, dict[str, Any]]:
        code = main(["--format", "json", *arguments])
        document = json.loads(self.capsys.readouterr().out)
        assert document["exit_code"] == code
        (artifact,) = document["artifacts"]
        return code, artifact

    def text(self, *arguments: str) -> tuple[int, str]:
        code = main(["--color", "never", *arguments])
        return code, self.capsys.readouterr().out

    def audit(self, change: Change, *arguments: str) -> tuple[int, dict[str, Any]]:
        """Return the exit code and the report on the changed plugin."""
        code, artifact = self.json(*(arguments or FITTING), self.write(change))
        return code, artifact["plugins"][0]

    def error(self, change: Change) -> str:
        """Return what is said of a plugin that can't be read, which is exit code 2."""
        code, artifact = self.json(*FITTING, self.write(change))
        assert (code, artifact["kind"], artifact["plugins"]) == (2, "unreadable", [])
        assert artifact["error"]["help"]
        return artifact["error"]["message"]


@pytest.fixture
def command(plugins: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Command:
    return Command(plugins / "mlp.so", tmp_path, capsys)


def unchanged(_patch: Patch) -> None:
    """Change nothing."""


def findings(report: dict[str, Any]) -> dict[str, str]:
    """Return the messages of a report by the codes of its findings, remarks left out."""
    return {item["code"]: item["message"] for item in report["findings"] if item["severity"] != "info"}


def outcome(report: dict[str, Any]) -> str:
    (host,) = report["hosts"]
    return host["outcome"]


LINKER_FACTS = ("needed", "undefined", "exports", "version_needs", "symbols")


def same_facts(report: dict[str, Any], other: dict[str, Any]) -> bool:
    return all(report["facts"][key] == other["facts"][key] for key in LINKER_FACTS)


def test_a_sound_plugin_passes(command: Command) -> None:
    code, report = command.audit(unchanged)
    assert (code, findings(report), outcome(report)) == (0, {}, "loads")


# What only the section table holds


def test_without_sections_nothing_is_missed(command: Command) -> None:
    """Tools that read sections see an empty file here, and pass it for the oldest systems."""
    _, sound = command.audit(unchanged)
    code, report = command.audit(no_sections)
    assert (code, outcome(report)) == (0, "loads")
    assert same_facts(report, sound)
    assert "AOTI452" in {item["code"] for item in report["findings"]}
    code, report = command.audit(
        no_sections, "--target", "glibc=2.5,isa=any,machine=any", "--host", "torch==2.13"
    )
    assert code == 1
    assert "GLIBC_2.34" in findings(report)["AOTI403"]
    assert outcome(report) == "will not load"


@pytest.mark.parametrize(
    "change",
    [
        lambda patch: patch.put(40, "Q", 0xFFFFFFFFFFFFF000),
        lambda patch: patch.put(40, "Q", 0xFF),
        lambda patch: patch.put(60, "H", 0xFFFF),
        lambda patch: patch.put(62, "H", 0xFF),
    ],
    ids=["offset", "offset-inside", "count", "names"],
)
def test_a_nonsensical_section_table_is_told_and_not_needed(command: Command, change: Change) -> None:
    _, sound = command.audit(unchanged)
    code, report = command.audit(change)
    assert code == 0
    assert "section table" in findings(report)["AOTI450"]
    assert same_facts(report, sound)
    assert outcome(report) == "loads"


# Hash tables, from which others count the symbols


@pytest.mark.parametrize(
    "change",
    [lambda patch: patch.put(patch.table(DT_GNU_HASH), "I", 0), no_hash],
    ids=["no-buckets", "no-table"],
)
def test_symbols_are_read_without_a_hash_table(command: Command, change: Change) -> None:
    """The dynamic linker loads such a file and finds nothing in it: everything is read, and no pass."""
    _, sound = command.audit(unchanged)
    code, report = command.audit(change)
    assert code == 1
    assert report["facts"]["exports"] == sound["facts"]["exports"]
    assert report["facts"]["undefined"] == sound["facts"]["undefined"]
    assert report["facts"]["symbols"] == {"count": sound["facts"]["symbols"]["count"], "source": "DT_STRTAB"}
    assert "finds none of the symbols" in findings(report)["AOTI451"]
    assert outcome(report) == "will not load"
    assert "finds none of the symbols" in report["hosts"][0]["reasons"][0]


# What is not there


def test_no_symbols_are_no_pass(command: Command) -> None:
    """PT_DYNAMIC without bytes: nothing is needed and nothing is exported, which is not clean."""
    code, report = command.audit(lambda patch: patch.put(patch.program(2) + 32, "Q", 0))
    assert code == 1
    assert "no dynamic section" in findings(report)["AOTI432"]
    assert outcome(report) == "will not load"
    assert "no dynamic section" in report["hosts"][0]["reasons"][0]


@pytest.mark.parametrize("size", [4, 64, 120_000])
def test_half_a_file_is_named_in_valid_json(command: Command, size: int) -> None:
    message = command.error(lambda patch: patch.data.__delitem__(slice(size, None)))
    assert any(word in message for word in ("cut off after 4 bytes", "not inside the file", "truncated"))


def test_a_needed_name_outside_of_the_strings_is_told(command: Command) -> None:
    message = command.error(lambda patch: patch.set(DT_NEEDED, 0x7FFFFFF0))
    assert "DT_NEEDED entry 1" in message
    assert "outside of the string table" in message


def test_a_needed_name_that_is_empty_is_told(command: Command) -> None:
    code, report = command.audit(lambda patch: patch.set(DT_NEEDED, 0))
    assert code == 1
    assert "AOTI441" in findings(report)


def test_strings_outside_of_the_file_are_told(command: Command) -> None:
    assert "DT_STRTAB" in command.error(lambda patch: patch.set(DT_STRTAB, 0x7FFFFFFFF000))


def test_a_count_of_versions_that_lies_is_told(command: Command) -> None:
    _, sound = command.audit(unchanged)
    code, report = command.audit(lambda patch: patch.put(patch.table(DT_VERNEED) + 2, "H", 0xFFFF))
    assert code == 0
    assert "65535 versions" in findings(report)["AOTI451"]
    assert same_facts(report, sound)
    assert outcome(report) == "loads"


def test_a_dynamic_table_without_end_is_one_error(command: Command) -> None:
    assert "does not end within" in command.error(many_dynamic_entries)


def test_frames_are_not_parsed(command: Command) -> None:
    """Sizes in .eh_frame that hang others can't: nobody reads them."""

    def frames(patch: Patch) -> None:
        section = next(
            item for item in ElfImage(bytes(patch.data), "x").sections or () if item.name == ".eh_frame"
        )
        patch.data[section.offset : section.offset + section.size] = b"\xfe" * section.size

    _, sound = command.audit(unchanged)
    code, report = command.audit(frames)
    assert (code, outcome(report)) == (0, "loads")
    assert same_facts(report, sound)


# Stack


def test_an_executable_stack_is_told_by_the_targets_glibc(command: Command) -> None:
    def execstack(patch: Patch) -> None:
        patch.put(patch.program(0x6474E551) + 4, "I", 7)

    for glibc, code, severity, loads in (
        ("2.40", 0, "warning", "loads"),
        ("2.41", 1, "error", "will not load"),
    ):
        target = ("--target", f"glibc={glibc},isa=any,machine=any", "--host", "torch==2.13")
        found, report = command.audit(execstack, *target)
        assert (found, outcome(report)) == (code, loads)
        (finding,) = [item for item in report["findings"] if item["code"] == "AOTI401"]
        assert finding["severity"] == severity
        assert "noexecstack" in finding["help"]


def test_no_stack_header_means_an_executable_stack(command: Command) -> None:
    _, report = command.audit(lambda patch: patch.put(patch.program(0x6474E551), "I", 0))
    assert "no PT_GNU_STACK" in findings(report)["AOTI402"]
    target = (*HOST, "--target", "glibc=2.41,isa=any,machine=any")
    code, report = command.audit(lambda patch: patch.put(patch.program(0x6474E551), "I", 0), *target)
    assert (code, outcome(report)) == (1, "will not load")


# Names that act on a terminal, and files that are none


def test_control_characters_in_a_needed_name_are_escaped(command: Command) -> None:
    path = command.write(needed_in_control)
    for arguments in ((), ("-vv",), ("--format", "concise")):
        code, text = command.text(*FITTING, *arguments, path)
        assert code == 0
        assert "\\x1b[31m\\n" in text
        assert "\x1b" not in text
    _, report = command.audit(needed_in_control)
    assert report["facts"]["needed"][0].startswith("\x1b[31m\n")
    assert "AOTI705" in findings(report)


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("zero", b"", "an empty file"),
        (
            "lfs",
            LFS,
            "Git LFS pointer",
        ),
        ("ldscript", b"/* GNU ld script */\nINPUT(libfoo.so.1)\n", "linker script"),
        ("archive", b"!<arch>\n" + bytes(60), "static library"),
        (
            "pe",
            b"MZ" + bytes(58) + b"\x40\0\0\0PE\0\0" + bytes(18) + b"\x22\x20" + bytes(200),
            "Windows DLL",
        ),
        ("macho", b"\xcf\xfa\xed\xfe" + bytes(28), "Mach-O"),
        ("fat", b"\xca\xfe\xba\xbe\0\0\0\2" + bytes(40), "fat Mach-O"),
        ("text", b"hello\n", "a text file"),
        ("magic", b"\x7fELF", "cut off after 4 bytes"),
    ],
)
def test_what_is_no_library_is_exit_code_2(command: Command, name: str, content: bytes, words: str) -> None:
    path = command.folder / f"{name}.so"
    path.write_bytes(content)
    code, artifact = command.json(str(path))
    assert (code, artifact["kind"]) == (2, "unreadable")
    assert words in artifact["error"]["message"]
    assert artifact["error"]["help"]
    code, text = command.text(str(path))
    assert (code, words in text, "1 unreadable" in text) == (2, True, True)


def test_a_wheel_is_not_passed_over_its_broken_libraries(command: Command) -> None:
    members = {
        "pkg/model.so": command.plugin.read_bytes(),
        "pkg/zero.so": b"",
        "pkg/lfs.so.1": LFS,
        "pkg/magic.so": b"\x7fELF",
        "pkg/half.so": command.plugin.read_bytes()[:150_000],
    }
    path = command.folder / "pkg-1-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as wheel:
        for name, content in members.items():
            wheel.writestr(name, content)
    code, artifact = command.json(*FITTING, str(path))
    assert code == 1
    told = {item["symbols"][0].rpartition("/")[2]: item for item in artifact["findings"]}
    assert {name: item["code"] for name, item in told.items()} == {
        "zero.so": "AOTI618",
        "lfs.so.1": "AOTI618",
        "magic.so": "AOTI618",
        "half.so": "AOTI617",
    }
    assert "an empty file" in told["zero.so"]["message"]
    assert "Git LFS" in told["lfs.so.1"]["message"]
    assert "truncated" in told["half.so"]["message"]
    assert [outcome(report) for report in artifact["plugins"]] == ["loads"]


def test_failures_leave_nothing_behind(command: Command) -> None:
    path = command.folder / "text.so"
    path.write_text("hello\n")
    descriptors = len(os.listdir("/proc/self/fd"))
    for _ in range(200):
        assert command.json(str(path))[0] == 2
    assert len(os.listdir("/proc/self/fd")) == descriptors


def test_a_library_that_is_no_plugin_is_a_finding(
    command: Command, compile_library: Callable[..., str]
) -> None:
    path = compile_library("void *PyInit_x(void) { return 0; }", name="x.cpython-311-x86_64-linux-gnu.so")
    code, artifact = command.json(*FITTING, path)
    assert code == 1
    assert findings(artifact["plugins"][0]).keys() >= {"AOTI101"}


def test_a_stripped_plugin_is_the_same(command: Command) -> None:
    _, sound = command.audit(unchanged)
    path = command.write(unchanged, "stripped.so")
    subprocess.run(["strip", "--strip-all", path], check=True)
    code, artifact = command.json(*FITTING, path)
    assert (code, outcome(artifact["plugins"][0])) == (0, "loads")
    assert same_facts(artifact["plugins"][0], sound)


def test_another_machine_is_all_that_is_told(command: Command) -> None:
    """A plugin for aarch64, big-endian 32-bit ones among them, is read here and refused for its machine."""
    target = ("--target", "machine=x86_64,isa=any,glibc=any", "--host", "torch==2.13")
    code, report = command.audit(lambda patch: patch.put(18, "H", 183), *target)
    assert code == 1
    assert "aarch64" in findings(report)["AOTI420"]
    assert report["hosts"][0]["reasons"] == ["it is built for aarch64, the target is x86_64"]


def test_a_sparse_file_of_5_gib_costs_what_the_plugin_costs(command: Command) -> None:
    path = command.write(unchanged)
    os.truncate(path, 5 << 30)
    code, artifact = command.json(*FITTING, path)
    assert (code, outcome(artifact["plugins"][0])) == (0, "loads")
    assert artifact["plugins"][0]["facts"]["size"] == 5 << 30


def test_the_audited_file_is_never_written_to(command: Command) -> None:
    path = command.write(lambda patch: patch.put(patch.program(0x6474E551) + 4, "I", 7))
    before = Path(path).read_bytes(), os.stat(path).st_mtime_ns
    command.json(*FITTING, "--second-view", path)
    assert (Path(path).read_bytes(), os.stat(path).st_mtime_ns) == before


def test_where_each_library_would_be_loaded_from(command: Command) -> None:
    """Without loading it, and by which rule of the dynamic linker's search."""
    _, report = command.audit(unchanged, "--host", "local", "--target", "isa=any")
    found = report["hosts"][0]["libraries"]
    assert len(found) >= len(report["facts"]["needed"])
    for name, line in zip(report["facts"]["needed"], found, strict=False):
        head, _, rest = line.partition(" => ")
        path, _, rule = rest.rpartition(" (")
        assert head == name
        assert os.path.exists(path)
        assert rule in (
            "/etc/ld.so.cache)",
            "default folder)",
            "LD_LIBRARY_PATH)",
            "DT_RUNPATH)",
            "DT_RPATH)",
        )
    _, text = command.text("-v", "--host", "local", str(command.folder / "model.so"))
    assert found[0] in text


def test_the_change_of_a_byte_order_mark_is_told(command: Command) -> None:
    assert "byte order" in command.error(lambda patch: struct.pack_into("B", patch.data, 5, 9))


def test_the_instruction_set_that_it_was_built_for_is_shown(command: Command) -> None:
    path = command.write(unchanged)
    (command.folder / "model_metadata.json").write_text('{"AOTI_CPU_ISA": "AVX512 AVX512_VNNI"}')
    assert "instruction set AVX512 AVX512_VNNI" in command.text(*FITTING, path)[1]
    # The code was looked at, and has no such instructions: what the metadata say of it is no evidence then.
    code, artifact = command.json(*HOST, "--target", "isa=avx2,machine=x86_64,glibc=2.99", path)
    assert code == 0
    assert "AOTI421" not in findings(artifact["plugins"][0])
    (command.folder / "model_metadata.json").write_text('{"AOTI_CPU_ISA": "AVX512 AVX512_VNNI"}')
    code, artifact = command.json(*HOST, "--target", "isa=avx512,machine=x86_64,glibc=2.99", path)
    assert code == 1
    assert "the target lacks AVX512_VNNI" in findings(artifact["plugins"][0])["AOTI421"]
