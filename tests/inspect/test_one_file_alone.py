"""No file, and nothing that the system lacks, takes the report of the other files along."""

from __future__ import annotations

import io
import json
import multiprocessing.context
import os
import resource
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aoti_inspect.artifacts import facts as artifact_facts
from aoti_inspect.auditing import artifact as auditing_artifact
from aoti_inspect.auditing import workers
from aoti_inspect.auditing.result import ArtifactAudit
from aoti_inspect.command.cli import main
from aoti_inspect.findings import Finding
from aoti_inspect.reports.json_report import dumps
from aoti_inspect.text import printable

ROOT = Path(__file__).resolve().parents[2]
PLUGIN = ROOT / "fixtures" / "plugins" / "mlp.so"
COMMAND = (sys.executable, "-m", "aoti_inspect")
ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    place = tmp_path / "models"
    place.mkdir()
    for number in range(14):
        shutil.copy(PLUGIN, place / f"{number:02}.so")
    return place


def report(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, dict[str, Any], str]:
    code = main(["--format", "json", "--target", "isa=any", *arguments])
    out, err = capsys.readouterr()
    return code, json.loads(out), err


# Defects


def _breaks(real: Any) -> Any:
    def read(plugin: Any, *arguments: Any, **options: Any) -> Any:
        if plugin.name.endswith("03.so"):
            raise KeyError("a defect")
        return real(plugin, *arguments, **options)

    return read


@pytest.mark.parametrize("jobs", ["1", "2"])
def test_a_defect_costs_only_the_row_of_its_file(
    jobs: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(auditing_artifact, "facts_of", _breaks(artifact_facts.facts_of))
    code, found, err = report(capsys, "-j", jobs, str(folder))
    assert code == found["exit_code"] == 3
    assert err == ""
    errors = [entry["error"] for entry in found["artifacts"]]
    assert [number for number, error in enumerate(errors) if error] == [3]
    assert errors[3]["message"] == "internal error, please report"
    assert errors[3]["code"] == "Internal"
    assert "KeyError" in errors[3]["cause"]
    assert "auditing/artifact.py:" in errors[3]["cause"]


def test_a_defect_in_one_plugin_of_a_package_costs_only_that_plugin(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "x.zip"
    with zipfile.ZipFile(path, "w") as archive:
        for number in (2, 3, 4):
            archive.write(folder / f"{number:02}.so", f"{number:02}.so")
    monkeypatch.setattr(auditing_artifact, "facts_of", _breaks(artifact_facts.facts_of))
    code, found, _ = report(capsys, str(path))
    assert code == 3
    (audit,) = found["artifacts"]
    assert [plugin["name"].rpartition("!")[2] for plugin in audit["plugins"]] == ["02.so", "04.so"]
    (entry,) = [entry for entry in audit["not_checked"] if entry["code"] == "AOTI707"]
    assert "03.so: internal error, please report (KeyError" in entry["reason"]


def test_a_result_that_a_worker_cannot_hand_over_is_one_row(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def audit(path: str, settings: Any) -> ArtifactAudit:
        kind: Any = (lambda: None) if path.endswith("00.so") else "plugin"
        return ArtifactAudit(path, kind)

    monkeypatch.setattr(workers, "audit_path", audit)
    paths = sorted(map(str, folder.iterdir()))
    found = list(workers.audit_in_workers(paths, None, 2))  # type: ignore[arg-type] - not looked at
    assert [entry.path for entry in found] == paths
    assert [entry.error is None for entry in found] == [False] + [True] * 13


@pytest.mark.parametrize("mark", [b"\xe1T12", b"ET\xff\xff", b"FT\xb2\xb3", b"ET\xb2\xb3"])
@pytest.mark.parametrize("name", ["x.pte", "x.pt2", "x.ptd", "x.so"])
def test_marks_that_are_no_ascii_are_told_and_not_raised(
    mark: bytes, name: str, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = b"\x1c\0\0\0" + mark + bytes(64)
    (folder / name).write_bytes(data)
    with zipfile.ZipFile(folder / "a.whl", "w") as archive:
        archive.writestr(name, data)
        archive.write(PLUGIN, "y.so")
    code, found, _ = report(capsys, "-j", "1", str(folder))
    assert code in (1, 2)
    assert len(found["artifacts"]) == 16
    assert all(not entry["error"] or entry["error"]["code"] != "Internal" for entry in found["artifacts"])


# What the system lacks


def test_without_locks_files_are_audited_one_after_the_other(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for error in (OSError(30, "Read-only file system"), ImportError("no sem_open"), NotImplementedError("x")):

        def refuse(*_arguments: object, error: Exception = error, **_options: object) -> None:
            raise error

        monkeypatch.setattr(workers, "ProcessPoolExecutor", refuse)
        code, found, err = report(capsys, "-j", "2", str(folder))
        assert code == 0
        assert len(found["artifacts"]) == 14
        assert err.count("no worker processes") == err.count("\n") == 1


@pytest.mark.parametrize("born", [0, 1])
def test_a_fork_that_is_refused_leaves_no_worker_behind(
    born: int, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    real, started = multiprocessing.context.ForkProcess.start, []

    def start(process: Any) -> None:
        if len(started) == born:
            raise BlockingIOError(11, "Resource temporarily unavailable")
        started.append(process)
        real(process)

    monkeypatch.setattr(multiprocessing.context.ForkProcess, "start", start)
    code, found, err = report(capsys, "-j", "2", str(folder))
    assert code == 0
    assert len(found["artifacts"]) == 14
    assert err.count("no worker processes") == 1
    for process in started:
        process.join(10)
        assert not process.is_alive()


def test_sixteen_descriptors_are_enough(folder: Path) -> None:
    done = subprocess.run(
        ["prlimit", "--nofile=16", *COMMAND, "-q", "-j4", "--target", "isa=any", str(folder)],
        capture_output=True,
        env=ENVIRONMENT,
        timeout=120,
        check=False,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("no worker processes") == 1


def test_no_file_descriptor_left_is_no_verdict(folder: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    code = (
        "import os, resource, json; from aoti_inspect import audit\n"
        f"audit({str(PLUGIN)!r})\n"
        "top = os.dup(0); os.close(top)\n"
        f"resource.setrlimit(resource.RLIMIT_NOFILE, (top + 3, {hard}))\n"
        f"print(audit({str(PLUGIN)!r}, hosts=['local']).plugins[0].verdicts[0].outcome)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, env=ENVIRONMENT, timeout=60, check=True, text=True
    )
    assert done.stdout == "not checked\n"
    assert soft


def test_the_inspector_needs_no_proc(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def without(real: Any) -> Any:
        def call(path: Any, *arguments: Any, **options: Any) -> Any:
            if isinstance(path, str) and path.startswith("/proc"):
                raise FileNotFoundError(2, "No such file or directory", path)
            return real(path, *arguments, **options)

        return call

    monkeypatch.setattr("builtins.open", without(open))
    for name in ("open", "stat", "listdir"):
        monkeypatch.setattr(os, name, without(getattr(os, name)))
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(PLUGIN.read_bytes())))
    assert main(["--format", "json", "-"]) in (0, 3)
    found = json.loads(capsys.readouterr().out)
    assert found["target"]["isa"] is None
    (audit,) = found["artifacts"]
    assert audit["path"] == "<stdin>"
    assert audit["error"] is None
    assert audit["plugins"][0]["name"] == "<stdin>"


# Streams


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("nothing-there.pt2",), 2),
        ((str(PLUGIN), "--target", "glibc=2.1"), 1),
        ((str(PLUGIN), "--target", "isa=any"), 0),
        (("rule", "--all"), 0),
    ],
)
def test_a_reader_that_went_away_changes_no_exit_code(
    arguments: tuple[str, ...], code: int, tmp_path: Path
) -> None:
    (tmp_path / "nothing-there.pt2").write_bytes(b"PK\3\4")
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(
        [*COMMAND, *arguments],
        stdout=write,
        stderr=subprocess.PIPE,
        env=ENVIRONMENT,
        cwd=tmp_path,
        timeout=60,
        check=False,
    )
    os.close(write)
    assert done.returncode == code
    assert done.stderr == b""


# Text

#: What a terminal may act on: C0, DEL, C1, bidirectional controls, lone surrogates, separators.
SHARP = (
    "\0\x07\x1b\x7f\x80\x9b\x9f\u061c\u200e\u200f\u202a\u202e\u2066\u2069\u2028\ufeff\U000e0041\ud800\udcff"
)
TEXT = st.text(st.characters(codec=None) | st.sampled_from(SHARP), max_size=30)


@given(TEXT)
def test_no_text_of_a_file_reaches_a_terminal_raw(text: str) -> None:
    assert printable(text).isprintable()
    document = dumps({text: [text], "finding": Finding("AOTI999", text, "error", text, text, (text,))})
    assert document.isprintable()
    document.encode("utf-8")
    parsed = json.loads(document)
    if text.isprintable() or not any(0xD800 <= ord(char) <= 0xDFFF for char in text):
        assert parsed["finding"]["message"] == text


def test_every_format_of_a_report_is_printable(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    sharp = SHARP.replace("\0", "").replace("\ud800", "")
    sharp_file = Path(f"{sharp}.so")
    shutil.copy(PLUGIN, sharp_file)
    with zipfile.ZipFile(f"{sharp}.zip", "w") as archive:
        archive.write(PLUGIN, f"a{sharp.replace(chr(0xDCFF), '')}.so")
    Path(f"{sharp}.pte").write_bytes(b"PK\x1b")
    for arguments in (["-vv"], ["--format", "concise"], ["--format", "json"], ["--extract", "out"]):
        main([*arguments, "."])
        out, err = capsys.readouterr()
        assert out
        for line in (out + err).split("\n"):
            assert line.isprintable(), (arguments, line)
    main([f"{sharp}.nowhere"])
    for line in capsys.readouterr().err.split("\n"):
        assert line.isprintable()
