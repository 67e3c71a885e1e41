"""The command as its users run it."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from aoti_abi.versions import KNOWN_TORCH
from aoti_inspect import command
from aoti_inspect.command.cli import COMMANDS, main
from aoti_inspect.hosts.verdicts import default_hosts

ROOT = Path(__file__).resolve().parents[2]
PLUGIN = str(ROOT / "fixtures" / "plugins" / "mlp.so")
Compile = Callable[..., str]
#: So that a result does not depend on the machine that runs the tests.
ANYWHERE = ("--target", "glibc=any,isa=any,machine=any")


def run(
    *arguments: str, stdin: bytes | None = None, **environment: str
) -> subprocess.CompletedProcess[bytes]:
    """Run the command as a process of its own."""
    variables = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p), **environment}
    command = [sys.executable, "-m", "aoti_inspect", *arguments]
    return subprocess.run(command, input=stdin or b"", capture_output=True, env=variables, timeout=60)


def report(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, dict[str, object]]:
    """Run the command here and return its exit code and its JSON report."""
    code = main(["--format", "json", *arguments])
    return code, json.loads(capsys.readouterr().out)


# Exit codes, one test for each outcome


def test_nothing_found_is_0(capsys: pytest.CaptureFixture[str]) -> None:
    code, document = report(capsys, *ANYWHERE, PLUGIN)
    assert code == document["exit_code"] == 0


def test_findings_are_1(capsys: pytest.CaptureFixture[str], compile_library: Compile) -> None:
    code, _ = report(
        capsys, *ANYWHERE, compile_library("int AOTInductorModelContainerRun(void) { return 0; }")
    )
    assert code == 1


@pytest.mark.parametrize(("level", "code"), [("error", 0), ("warning", 1), ("info", 1), ("never", 0)])
def test_fail_on_chooses_the_severity(
    capsys: pytest.CaptureFixture[str], compile_library: Compile, smallest_source: str, level: str, code: int
) -> None:
    path = compile_library(smallest_source, "-Wl,-z,execstack")
    assert report(capsys, *ANYWHERE, "--fail-on", level, path)[0] == code


def test_what_cannot_be_read_is_2(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "text.so").write_text("hello\n")
    code, document = report(capsys, str(tmp_path / "text.so"))
    assert code == 2
    (artifact,) = document["artifacts"]
    assert artifact["kind"] == "unreadable"
    assert artifact["error"]["message"]


ASKS_CPUID = """
int level(void) { int a, b, c, d; __asm__ volatile ("cpuid" : "=a"(a), "=b"(b), "=c"(c), "=d"(d) : "0"(7));
return b; }
void wide(void) { __asm__ volatile (".byte 0x62,0xf1,0x7c,0x48,0x58,0xc0"); }
"""


def test_what_could_not_be_checked_is_3(
    capsys: pytest.CaptureFixture[str], compile_library: Compile, smallest_source: str
) -> None:
    path = compile_library(smallest_source + ASKS_CPUID)
    code, document = report(capsys, "--target", "glibc=any,isa=avx2,machine=x86_64", path)
    assert code == 3
    plugin = document["artifacts"][0]["plugins"][0]
    (unchecked,) = plugin["not_checked"]
    assert unchecked["code"] == "AOTI421"
    assert "CPUID" in unchecked["reason"]
    assert {host["outcome"] for host in plugin["hosts"]} <= {"not checked", "will not load"}


def test_an_unreadable_file_outweighs_findings_and_the_others_are_reported(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "empty.so").write_bytes(b"")
    code, document = report(capsys, *ANYWHERE, str(tmp_path / "empty.so"), PLUGIN)
    assert code == 2
    assert [artifact["kind"] for artifact in document["artifacts"]] == ["unreadable", "plugin"]


def test_a_required_host_that_will_not_load_it_is_1(capsys: pytest.CaptureFixture[str]) -> None:
    assert report(capsys, *ANYWHERE, "--host", "local", PLUGIN)[0] == 1


def test_a_host_that_nobody_asked_for_is_information_only(capsys: pytest.CaptureFixture[str]) -> None:
    code, document = report(capsys, *ANYWHERE, PLUGIN)
    verdicts = {v["host"]: v["outcome"] for v in document["artifacts"][0]["plugins"][0]["hosts"]}
    assert code == 0
    assert tuple(verdicts) == default_hosts()
    assert verdicts["local"] == "will not load"


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("--nonsense", PLUGIN),
        ("--target", "glibs=2", PLUGIN),
        ("--host", "torch==0.1", PLUGIN),
        ("--jobs", "-1", PLUGIN),
        ("--format", "yaml", PLUGIN),
        ("nowhere.so",),
        ("rule",),
        ("rule", "AOTI999"),
        ("facts", "nowhere.so"),
        ("facts", str(ROOT / "README.md")),
        ("-o", "/nowhere/report", PLUGIN),
    ],
)
def test_wrong_usage_is_2_and_says_why_on_standard_error(arguments: tuple[str, ...]) -> None:
    done = run(*arguments)
    assert done.returncode == 2
    assert done.stderr
    assert b"Traceback" not in done.stderr


# Text


def test_the_report_names_what_matters(capsys: pytest.CaptureFixture[str]) -> None:
    main([*ANYWHERE, PLUGIN])
    text = capsys.readouterr().out
    assert "AOTInductor plugin for x86_64, compiled by PyTorch 2.13" in text
    assert f"torch==2.7 to {KNOWN_TORCH[-1]}" in text
    assert "builtin" in text


def test_quiet_leaves_only_findings(capsys: pytest.CaptureFixture[str]) -> None:
    main([*ANYWHERE, PLUGIN])
    whole = capsys.readouterr().out
    main(["-q", *ANYWHERE, PLUGIN])
    name, _, text = capsys.readouterr().out.partition("\n")
    assert name == PLUGIN
    assert text
    assert text in whole
    assert "exports" in whole
    assert "exports" not in text


def test_verbose_lists_the_symbols_behind_a_finding(
    capsys: pytest.CaptureFixture[str], compile_library: Compile
) -> None:
    path = compile_library("int AOTInductorModelContainerRun(void) { return 0; }")
    main([*ANYWHERE, path])
    short = capsys.readouterr().out
    main(["-vv", *ANYWHERE, path])
    long = capsys.readouterr().out
    assert "\n      AOTInductorModelContainerDelete\n" in long
    assert "\n      AOTInductorModelContainerDelete\n" not in short
    assert "build id" in long


def test_concise_is_a_line_a_finding(capsys: pytest.CaptureFixture[str], compile_library: Compile) -> None:
    path = compile_library("int AOTInductorModelContainerRun(void) { return 0; }")
    main(["--format", "concise", *ANYWHERE, path])
    lines = capsys.readouterr().out.splitlines()
    assert any(line.startswith(f"{path}: AOTI102 error: ") for line in lines)


@pytest.mark.parametrize("form", ["text", "concise"])
def test_findings_of_severity_info_show_if_asked_for_or_if_they_fail(
    capsys: pytest.CaptureFixture[str], form: str
) -> None:
    shown = {}
    for arguments in ((), ("-v",), ("--fail-on", "info")):
        main(["--format", form, *arguments, *ANYWHERE, PLUGIN])
        shown[arguments] = "AOTI130" in capsys.readouterr().out
    assert shown == {(): False, ("-v",): True, ("--fail-on", "info"): True}


def test_the_summary_counts_what_made_the_exit_code_1(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    plugin = shutil.copy(PLUGIN, tmp_path)  # without its metadata, and so without a warning about it
    assert main(["--fail-on", "info", *ANYWHERE, plugin]) == 1
    assert re.fullmatch(r"Found \d+ info\.", capsys.readouterr().out.splitlines()[-1])


def test_schema_takes_no_arguments(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["schema", "report.json"])
    assert stop.value.code == 2
    assert "unrecognized arguments: report.json" in capsys.readouterr().err


@pytest.mark.parametrize("name", COMMANDS)
def test_a_file_that_is_called_like_a_command(
    name: str,
    smallest_plugin: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    shutil.copy(smallest_plugin, tmp_path / name)
    monkeypatch.chdir(tmp_path)
    for arguments in ([f"./{name}"], ["audit", name], ["-q", name]):
        main([*arguments, *ANYWHERE, "--format", "concise", "-v"])
        assert f"{name}: AOTI130 info" in capsys.readouterr().out


def test_each_command_has_its_help(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in ([], *([name] for name in COMMANDS)):
        with pytest.raises(SystemExit) as stop:
            main([*arguments, "--help"])
        assert stop.value.code == 0
        assert capsys.readouterr().out.startswith(f"usage: {' '.join(['aoti-inspect', *arguments])} [")
    with pytest.raises(SystemExit):
        main(["--help"])
    text = capsys.readouterr().out
    assert all(f"aoti-inspect {name} " in text for name in COMMANDS)


def test_every_module_of_a_command_is_listed() -> None:
    folder = Path(command.__file__).parent
    modules = {path.stem for path in folder.glob("*.py") if "\ndef configure_parser(" in path.read_text()}
    assert modules == set(COMMANDS)


def test_a_file_that_is_not_there_is_said_once(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["nowhere.so"]) == 2
    assert capsys.readouterr().err == "aoti-inspect: error: nowhere.so: no such file\n"


def test_an_unknown_rule_is_answered_with_the_closest_as_it_is_written(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["rule", "aoti4011"]) == 2
    assert "did you mean AOTI401? `aoti-inspect rule --all` lists" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "environment", "colored"),
    [
        ((), {}, False),
        (("--color", "always"), {}, True),
        (("--color", "always"), {"NO_COLOR": "1"}, True),
        (("--color", "never"), {}, False),
    ],
)
def test_color_follows_the_flag_and_the_terminal(
    arguments: tuple[str, ...], environment: dict[str, str], colored: bool
) -> None:
    assert (b"\x1b[" in run(*ANYWHERE, *arguments, PLUGIN, **environment).stdout) is colored


def test_names_cannot_write_to_the_terminal(compile_library: Compile, smallest_source: str) -> None:
    path = compile_library(smallest_source, "-Wl,-soname,\x1b[31mred\r\n", "-Wl,-rpath,/tmp/\x1b[2J")
    for arguments in ((), ("-vv",), ("--format", "concise")):
        done = run(*ANYWHERE, *arguments, path)
        assert b"\x1b" not in done.stdout
        assert b"\r" not in done.stdout
    done = run("--format", "json", *ANYWHERE, path)
    assert b"\x1b" not in done.stdout


def test_a_path_that_is_not_utf8_is_shown_escaped(tmp_path: Path, smallest_plugin: str) -> None:
    path = os.fsencode(tmp_path) + b"/\xff\x1b.so"
    with open(smallest_plugin, "rb") as source, open(path, "wb") as target:
        target.write(source.read())
    for arguments in (("--format", "text"), ("--format", "json")):
        done = run(*ANYWHERE, *arguments, os.fsdecode(path))
        assert done.returncode in (0, 3), done.stderr
        assert rb"\xff" in done.stdout


# Streams and files


def test_a_reader_that_goes_away_is_no_error() -> None:
    variables = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    command = [sys.executable, "-m", "aoti_inspect", "--format", "json", *ANYWHERE, *[PLUGIN] * 1]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=variables)
    assert process.stdout is not None
    process.stdout.close()
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 0
    assert errors == b""


def test_standard_input_from_a_pipe_and_from_a_file() -> None:
    data = Path(PLUGIN).read_bytes()
    piped = run("--format", "json", *ANYWHERE, "-", stdin=data)
    document = json.loads(piped.stdout)
    assert document["artifacts"][0]["path"] == "<stdin>"
    assert document["artifacts"][0]["plugins"][0]["name"] == "<stdin>"
    assert document["artifacts"][0]["plugins"][0]["facts"]["size"] == len(data)
    with open(PLUGIN, "rb") as stream:
        command = [sys.executable, "-m", "aoti_inspect", "--format", "json", *ANYWHERE, "-"]
        variables = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
        redirected = subprocess.run(command, stdin=stream, capture_output=True, env=variables, timeout=60)
    assert json.loads(redirected.stdout) == document


def test_a_report_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    target = tmp_path / "report.json"
    target.write_text("old")
    assert main(["--format", "json", "-o", str(target), *ANYWHERE, PLUGIN]) == 0
    assert json.loads(target.read_text())["exit_code"] == 0
    assert os.listdir(tmp_path) == ["report.json"]
    (tmp_path / "folder").mkdir()
    assert main(["-o", str(tmp_path / "folder" / "missing" / "report"), *ANYWHERE, PLUGIN]) == 2
    assert os.listdir(tmp_path / "folder") == []


def test_many_files_are_audited_in_order_by_workers(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, smallest_plugin: str
) -> None:
    data = Path(smallest_plugin).read_bytes()
    for number in range(30):
        (tmp_path / f"{number:02}.so").write_bytes(data if number % 7 else b"broken")
    main(["--format", "json", "--jobs", "1", *ANYWHERE, str(tmp_path)])
    alone = json.loads(capsys.readouterr().out)
    main(["--format", "json", "--jobs", "3", *ANYWHERE, str(tmp_path)])
    together = json.loads(capsys.readouterr().out)
    assert alone == together
    assert len(alone["artifacts"]) == 30


# Sub-commands


def test_every_rule_is_explained(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["rule", "--all", "--format", "json"]) == 0
    rules = json.loads(capsys.readouterr().out)
    assert len(rules) > 40
    for entry in rules:
        assert main(["rule", entry["code"].lower()]) == 0
        assert entry["page"] in capsys.readouterr().out
        assert main(["rule", entry["name"]]) == 0
        capsys.readouterr()


def test_a_mistyped_rule_is_answered_with_the_closest(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["rule", "executble-stack"]) == 2
    assert "executable-stack" in capsys.readouterr().err


def test_facts_of_any_elf_file(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["facts", os.path.realpath("/proc/self/exe")]) == 0
    assert json.loads(capsys.readouterr().out)["compiled_by"] is None


def test_what_is_not_elf_is_named_for_what_it_is(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    contents = {
        "zero.so": (b"", "empty"),
        "lfs.so": (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n", "LFS"),
        "script.so": (b"GROUP ( libc.so.6 )\n", "linker script"),
        "pe.so": (b"MZ" + bytes(58) + b"\x40\0\0\0PE\0\0" + bytes(200), "Windows"),
        "macho.so": (b"\xcf\xfa\xed\xfe" + bytes(60), "Mach-O"),
        "ar.so": (b"!<arch>\n" + bytes(60), "static library"),
        "magic.so": (b"\x7fELF", "ELF"),
    }
    for name, (content, _) in contents.items():
        (tmp_path / name).write_bytes(content)
    code = main(["--format", "json", str(tmp_path)])
    document = json.loads(capsys.readouterr().out)
    assert code == 2
    for artifact in document["artifacts"]:
        word = contents[os.path.basename(artifact["path"])][1]
        assert word.lower() in artifact["error"]["message"].lower(), artifact
        assert artifact["error"]["help"], artifact
