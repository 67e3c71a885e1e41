"""The command where its surroundings fail it: closed streams, interrupts, dying workers, odd files."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from aoti_abi.errors import AccessFailed, AotiError, NotFound, NotSupported
from aoti_inspect.artifacts.facts import read_facts
from aoti_inspect.artifacts.segmented_file import open_tensors
from aoti_inspect.auditing import workers as parallel
from aoti_inspect.auditing.path import audit_path
from aoti_inspect.auditing.result import ArtifactAudit, Settings
from aoti_inspect.command.cli import main
from aoti_inspect.command.collect import collect
from aoti_inspect.facts.target import Target
from aoti_inspect.hosts.library_search import LibrarySearch
from aoti_inspect.hosts.verdicts import judge_all
from aoti_inspect.reports.json_report import dumps
from aoti_inspect.reports.text import artifact_lines
from aoti_inspect.source import BufferSource
from aoti_inspect.text import printable_error

ROOT = Path(__file__).resolve().parents[2]
PLUGIN = str(ROOT / "fixtures" / "plugins" / "mlp.so")
COMMAND = (sys.executable, "-m", "aoti_inspect")
ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
SETTINGS = Settings(Target(None, None, None, None, None, None), ("builtin",))


def in_shell(redirection: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[bytes]:
    script = f'"$@" {redirection}'
    command = ["/bin/sh", "-c", script, "sh", *COMMAND, *arguments]
    variables = {**ENVIRONMENT, **environment}
    return subprocess.run(command, capture_output=True, env=variables, timeout=30, check=False)


# Streams


@pytest.mark.parametrize(
    "arguments", [(PLUGIN,), ("--format", "json", PLUGIN), ("rule", "--all"), ("schema",)]
)
@pytest.mark.parametrize("redirection", [">&-", "> /dev/full"])
def test_output_that_cannot_be_written_is_one_error(redirection: str, arguments: tuple[str, ...]) -> None:
    done = in_shell(redirection, *arguments)
    assert done.returncode == 2
    assert done.stderr.startswith(b"aoti-inspect: error: standard output ")
    assert done.stderr.count(b"\n") <= 2


@pytest.mark.parametrize("redirection", ["2>&-", "2> /dev/full", "<&- >&- 2>&-"])
def test_an_error_that_cannot_be_shown_still_is_the_exit_code(redirection: str) -> None:
    assert in_shell(redirection, "nowhere.so").returncode == 2


def test_a_report_in_a_file_needs_no_standard_output(tmp_path: Path) -> None:
    path = tmp_path / "report"
    assert in_shell(">&- <&-", "-o", str(path), "--target", "glibc=any,isa=any", PLUGIN).returncode == 0
    assert "AOTInductor plugin" in path.read_text()


@pytest.mark.parametrize(("redirection", "message"), [("<&-", b"is closed"), ("< /dev/zero", b"zeros")])
def test_standard_input_that_is_closed_or_never_ends(redirection: str, message: bytes) -> None:
    done = in_shell(redirection, "-")
    assert done.returncode == 2
    assert message in done.stdout
    assert not done.stderr


def test_names_that_the_output_cannot_encode_are_escaped(tmp_path: Path) -> None:
    path = tmp_path / "mod\u00e8le\U0001f600.so"
    shutil.copy(PLUGIN, path)
    text = in_shell("", str(path), PYTHONIOENCODING="ascii")
    assert b"mod\\u00e8le\\ud83d\\ude00.so" in text.stdout
    report = in_shell("", "--format", "json", str(path), PYTHONIOENCODING="ascii")
    assert json.loads(report.stdout)["artifacts"][0]["path"] == str(path)
    assert not text.stderr + report.stderr


# Arguments


@pytest.mark.parametrize("option", ["-o", "--extract"])
def test_an_empty_name_is_not_taken_for_no_name(option: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([option, "", PLUGIN]) == 2
    assert "empty" in capsys.readouterr().err


def test_standard_input_cannot_be_extracted(tmp_path: Path) -> None:
    done = in_shell(f"< {PLUGIN}", "--extract", str(tmp_path / "out"), "-")
    assert (done.returncode, done.stdout) == (2, b"")
    assert b"standard input twice" in done.stderr


@pytest.mark.parametrize("name", ["a*.so", "[ab].so", "a?.so"])
def test_a_broken_link_that_is_named_like_a_pattern_is_not_there(tmp_path: Path, name: str) -> None:
    (tmp_path / name).symlink_to("nowhere")
    with pytest.raises(NotFound):
        collect([str(tmp_path / "*")])


def test_an_error_cannot_write_lines_of_its_own() -> None:
    error = AotiError("bad\nname\x1b[2J", path="a\nb\\n", cause="\r", hint="do\nthis")
    assert printable_error(error) == "a\\nb\\\\n: bad\\nname\\x1b[2J (\\r)\nhint: do\\nthis"


def test_the_labels_of_a_summary_cannot_write_to_the_terminal() -> None:
    audit = ArtifactAudit("x.pte", "pte", summary=(("\x1b[2J\udcff also runs", "aten::add"),))
    assert "  \\x1b[2J\\xff also runs aten::add" in list(artifact_lines(audit))


@pytest.mark.parametrize("code", [0xD800, 0xDBFF, 0xDC00, 0xDC7F, 0xDD00, 0xDFFF])
def test_a_lone_surrogate_from_a_json_file_becomes_an_escape(code: int) -> None:
    text = dumps({"key": chr(code), chr(code): "\u00e9"})
    text.encode("utf-8")
    assert json.loads(text) == {"key": f"\\u{code:04x}", f"\\u{code:04x}": "\u00e9"}


# Odd files


def test_folders_nested_without_end_are_refused(tmp_path: Path) -> None:
    below = os.open(tmp_path, os.O_RDONLY)
    for _ in range(1100):
        os.mkdir("x", dir_fd=below)
        inner = os.open("x", os.O_RDONLY, dir_fd=below)
        os.close(below)
        below = inner
    os.close(below)
    try:
        with pytest.raises(AccessFailed, match="nested over 200 deep"):
            collect([str(tmp_path)])
    finally:
        # What removes temporary folders later would trip over it.
        subprocess.run(["rm", "-rf", str(tmp_path / "x")], check=True)


def test_a_library_that_is_a_pipe_is_passed_over(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "libx.so")
    search = LibrarySearch(62, 64, "x86_64", library_path=str(tmp_path))
    start = time.monotonic()
    assert search.find("libx.so", search.folders(origin=".")) is None
    assert time.monotonic() - start < 20  # a pipe without a writer would block for ever


def test_pipes_beside_a_plugin_do_not_stop_its_audit(tmp_path: Path) -> None:
    path = tmp_path / "mlp.so"
    shutil.copy(PLUGIN, path)
    for suffix in ("_metadata.json", ".wrapper_metadata.json", ".json", "_weights.blob", ".blob"):
        os.mkfifo(tmp_path / f"mlp{suffix}")
    done = in_shell("", str(path))
    assert b"AOTInductor plugin" in done.stdout
    assert not done.stderr


@pytest.mark.parametrize("mark", [b"\xff\xfe\x00\x1b", b"FT99", b"abcd"])
def test_a_tensor_file_of_another_format_is_refused_whatever_its_mark(mark: bytes) -> None:
    with pytest.raises(NotSupported, match="only 'FT01' is known"):
        open_tensors(BufferSource(bytes(4) + mark + bytes(64), "x.ptd"))


@pytest.mark.parametrize("name", ["x.pte!a\0b", "x.pte!\ud800", ""])
def test_a_plugin_under_a_name_that_no_file_can_have_is_judged(name: str) -> None:
    (verdict,) = judge_all(read_facts(PLUGIN)._replace(name=name), ("local",), SETTINGS.target)
    assert verdict.outcome == "will not load"


# Interrupts and workers


@pytest.fixture
def many(tmp_path: Path) -> str:
    folder = tmp_path / "many"
    folder.mkdir()
    for number in range(120):
        (folder / f"{number:03}.so").symlink_to(PLUGIN)
    return str(folder)


@pytest.fixture(scope="module")
def crowd(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Return more files than can be audited before an interrupt comes."""
    folder = tmp_path_factory.mktemp("crowd")
    paths = [folder / f"{number:04}.so" for number in range(4000)]
    for path in paths:
        path.symlink_to(PLUGIN)
    return [str(path) for path in paths]


def _wait_for_start(pid: int) -> None:
    """Wait until a process is past Python's own start-up, which nobody can end silently."""
    deadline = time.monotonic() + 3
    while time.monotonic() < deadline:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        if (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK") >= 0.1:
            break
        time.sleep(0.01)
    time.sleep(0.05)


@pytest.mark.parametrize("jobs", ["1", "2"])
@pytest.mark.parametrize("alone", [True, False])
def test_an_interrupt_ends_it_silently(crowd: list[str], jobs: str, alone: bool) -> None:
    # Where a shell started us in the background, SIGINT is ignored and stays so.
    def listen() -> None:
        signal.signal(signal.SIGINT, signal.default_int_handler)

    command = [*COMMAND, "-j", jobs, *crowd]
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=ENVIRONMENT,
        start_new_session=True,
        preexec_fn=listen,  # noqa: PLW1509 - there are no threads here
    )
    _wait_for_start(process.pid)
    (os.kill if alone else os.killpg)(process.pid, signal.SIGINT)
    output, messages = process.communicate(timeout=30)
    assert (process.returncode, output, messages) == (130, b"", b"")


def _audit_or_die(path: str, settings: Settings) -> ArtifactAudit:
    if os.path.basename(path) == "004.so":
        os.kill(os.getpid(), signal.SIGKILL)
    return audit_path(path, settings)


def test_a_worker_that_dies_costs_only_its_file(many: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parallel, "audit_path", _audit_or_die)
    paths = [f"{many}/{number:03}.so" for number in range(12)]
    audits = list(parallel.audit_in_workers(paths, SETTINGS, 2))
    assert [audit.path for audit in audits] == paths
    assert [audit.path for audit in audits if audit.error is not None] == [paths[4]]
    assert "ended by the system" in str(audits[4].error)


def test_the_number_of_workers_is_bounded(many: str, monkeypatch: pytest.MonkeyPatch) -> None:
    started = []

    def count(paths: list[str], _settings: Settings, workers: int) -> list[ArtifactAudit]:
        started.append(workers)
        return [ArtifactAudit(path, "plugin") for path in paths]

    monkeypatch.setattr(parallel, "audit_in_workers", count)
    assert main(["-q", "-j", "100000", many]) == 0
    assert started == [max(16, os.cpu_count() or 1)]
