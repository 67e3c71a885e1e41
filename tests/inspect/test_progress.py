"""The line of progress: on a terminal, only for what takes its time, and gone at the end."""

from __future__ import annotations

import errno
import fcntl
import io
import os
import signal
import subprocess
import sys
import termios
from pathlib import Path

import pytest

from aoti_inspect.command import progress
from aoti_inspect.command.progress import with_progress

ROOT = Path(__file__).resolve().parents[2]
PLUGIN = ROOT / "fixtures" / "plugins" / "mlp.so"
LINE = b"auditing"
SLOW = """
import sys, time
from aoti_inspect.command.progress import with_progress
def results():
    for number in range(8):
        time.sleep(float(sys.argv[1]))
        yield number
assert list(with_progress(results(), 8, sys.stderr)) == list(range(8))
"""
#: The command, impatient; after three files happens what the first argument says.
COMMAND = """
import sys, time
import aoti_inspect.auditing.many as many, aoti_inspect.command.progress as progress
from aoti_abi.errors import InvalidProgram
from aoti_inspect.command.cli import main
progress._PATIENCE = -1.0
real = many.audit_many
def audits(*arguments, **named):
    for number, audit in enumerate(real(*arguments, **named)):
        if number == 3 and sys.argv[1] == "stall":
            time.sleep(60)
        if number == 3 and sys.argv[1] == "fail":
            raise InvalidProgram("it is damaged")
        yield audit
many.audit_many = audits
sys.exit(main(sys.argv[2:]))
"""
OPTIONS = ["--jobs", "1", "--target", "isa=any,glibc=any", "-o", os.devnull]


@pytest.fixture
def twelve(tmp_path: Path) -> list[str]:
    """Return the paths of twelve plugins."""
    paths = [tmp_path / f"{number:02}.so" for number in range(12)]
    for path in paths:
        path.symlink_to(PLUGIN)
    return [str(path) for path in paths]


def variables() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p), "TERM": "xterm"}


def lead_terminal() -> None:
    """Make the terminal on standard error the one whose Ctrl-C this process gets."""
    fcntl.ioctl(2, termios.TIOCSCTTY, 0)
    # Where a shell started us in the background, SIGINT is ignored and stays so.
    signal.signal(signal.SIGINT, signal.default_int_handler)


def on_terminal(command: list[str], *, code: int = 0, interrupt_at: bytes = b"") -> bytes:
    """Run a command with its standard error on a terminal; return what arrived there.

    Ctrl-C is pressed when the terminal shows ``interrupt_at``.
    """
    parent, child = os.openpty()
    process = subprocess.Popen(
        command,
        stdin=child,
        stdout=subprocess.DEVNULL,
        stderr=child,
        env=variables(),
        start_new_session=True,
        preexec_fn=lead_terminal,  # noqa: PLW1509 - there are no threads here
    )
    os.close(child)
    output = b""
    try:
        while chunk := os.read(parent, 65536):
            output += chunk
            if interrupt_at and interrupt_at in output:
                interrupt_at = b""
                os.write(parent, b"\x03")
    except OSError:
        pass  # the terminal's other end was closed: Linux reports that as an error
    assert process.wait(timeout=60) == code, output
    os.close(parent)
    return output


def screen(output: bytes) -> list[str]:
    """Return the lines that a terminal shows after it was sent ``output``, which has no escape codes."""
    lines, column = [""], 0
    for char in output.decode("ascii"):
        if char == "\r":
            column = 0
        elif char == "\n":
            lines.append("")
        else:
            assert char.isprintable(), ascii(char)
            lines[-1] = lines[-1][:column].ljust(column) + char + lines[-1][column + 1 :]
            column += 1
    return [line.rstrip() for line in lines]


@pytest.mark.parametrize(("pause", "drawn"), [("0.15", True), ("0.001", False)])
def test_a_line_is_drawn_after_half_a_second(pause: str, drawn: bool) -> None:
    output = on_terminal([sys.executable, "-c", SLOW, pause])
    assert (LINE in output) is drawn
    assert (output == b"") is not drawn
    assert screen(output) == [""]


def test_the_command_draws_one_on_a_terminal_unless_told_not_to(twelve: list[str]) -> None:
    command = [sys.executable, "-c", COMMAND, "", *OPTIONS, *twelve]
    output = on_terminal(command)
    # Each count is drawn over the last one; the whole is done when the last file is.
    assert [part.decode() for part in output.split(b"\r")[1:-2]] == [
        f"auditing {done}/12" for done in range(1, 12)
    ]
    assert screen(output) == [""]
    assert on_terminal([*command, "--no-progress"]) == b""
    assert on_terminal([*command, "--quiet"]) == b""
    done = subprocess.run(command, capture_output=True, env=variables(), timeout=60)
    assert (done.returncode, done.stderr) == (0, b"")


def test_an_interrupt_erases_the_line_and_what_the_terminal_echoed(twelve: list[str]) -> None:
    command = [sys.executable, "-c", COMMAND, "stall", *OPTIONS, *twelve]
    output = on_terminal(command, code=130, interrupt_at=b"auditing 3/12")
    assert b"^C" in output
    assert screen(output) == [""]


def test_an_error_is_not_written_behind_the_line(twelve: list[str]) -> None:
    output = on_terminal([sys.executable, "-c", COMMAND, "fail", *OPTIONS, *twelve], code=2)
    assert b"auditing 3/12" in output
    assert screen(output) == ["aoti-inspect: error: it is damaged", ""]


def test_results_that_are_no_longer_wanted_leave_no_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "_PATIENCE", -1.0)
    terminal = io.StringIO()
    results = with_progress(iter("abc"), 3, terminal)
    assert next(results) == "a"
    assert screen(terminal.getvalue().encode()) == ["auditing 1/3"]
    results.close()
    assert screen(terminal.getvalue().encode()) == [""]


class Gone(io.StringIO):
    def flush(self) -> None:
        raise OSError(errno.EIO, "Input/output error")


def test_a_terminal_that_went_away_fails_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "_PATIENCE", -1.0)
    assert list(with_progress("abc", 3, Gone())) == ["a", "b", "c"]
