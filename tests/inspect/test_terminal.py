"""The report and the help on terminals of several widths."""

from __future__ import annotations

import fcntl
import os
import re
import struct
import subprocess
import sys
import termios
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aoti_inspect.reports.terminal import columns, wrapped

ROOT = Path(__file__).resolve().parents[2]
PLUGIN = "fixtures/plugins/mlp.so"
CODES = re.compile(r"\x1b\[[0-9;]*m")


def variables() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p), "TERM": "xterm"}


def written(width: int, *arguments: str, **environment: str) -> str:
    """Run the command with its standard output on a terminal; return all that it wrote."""
    parent, child = os.openpty()
    fcntl.ioctl(child, termios.TIOCSWINSZ, struct.pack("HHHH", 50, width, 0, 0))
    command = [sys.executable, "-m", "aoti_inspect", *arguments]
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=child,
        stderr=subprocess.DEVNULL,
        env={**variables(), **environment},
        cwd=ROOT,
    )
    os.close(child)
    output = b""
    try:
        while chunk := os.read(parent, 65536):
            output += chunk
    except OSError:
        pass  # the terminal's other end was closed: Linux reports that as an error
    process.wait(timeout=60)
    os.close(parent)
    return output.decode()


def on_terminal(width: int, *arguments: str) -> list[str]:
    """Return the lines that the command writes to a terminal, without their colours."""
    return CODES.sub("", written(width, *arguments)).replace("\r", "").splitlines()


@pytest.mark.parametrize(("no_color", "colored"), [("", True), ("1", False)])
def test_NO_COLOR_is_honoured_on_a_terminal(no_color: str, colored: bool) -> None:
    output = written(80, "--target", "isa=any", "-q", "--host", "local", PLUGIN, NO_COLOR=no_color)
    assert "AOTI301" in output
    assert ("\x1b[" in output) is colored


@pytest.mark.parametrize("width", [80, 120])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    for arguments in ((PLUGIN,), ("--help",)):
        lines = on_terminal(width, "--target", "isa=any", *arguments)
        assert len(lines) > 10
        assert max(map(len, lines)) <= width


def test_a_pipe_gets_each_finding_in_one_line() -> None:
    command = [sys.executable, "-m", "aoti_inspect", PLUGIN]
    piped = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env=variables()).stdout
    joined = " ".join(line.strip() for line in on_terminal(80, PLUGIN))
    assert " ".join(piped.split()) == " ".join(joined.split())
    assert max(map(len, piped.splitlines())) > 120


def test_lines_continue_below_their_text() -> None:
    row = "  libraries  libstdc++.so.6, libm.so.6, libgcc_s.so.1"
    assert wrapped(row, 40) == ["  libraries  libstdc++.so.6, libm.so.6,", "             libgcc_s.so.1"]
    note = "      \x1b[2m- it must be in the global scope before the plugin\x1b[0m"
    assert wrapped(note, 40) == [
        "      \x1b[2m- it must be in the global scope",
        "        before the plugin\x1b[0m",
    ]
    assert wrapped("  error[X] a: what was found in this file here", 30) == [
        "  error[X] a: what was found",
        "      in this file here",
    ]


def test_a_word_is_never_broken() -> None:
    assert wrapped("      " + "x" * 100, 80) == ["      " + "x" * 100]
    assert wrapped("  a: " + "x" * 100 + " b", 80) == ["  a:", "      " + "x" * 100, "      b"]


@given(st.text(alphabet="ab, -\u00e9", max_size=200), st.integers(40, 100))
def test_breaking_keeps_every_word(line: str, width: int) -> None:
    parts = wrapped(line, width)
    assert " ".join(parts).split() == line.split()
    assert all(len(part) <= width or len(part.split()) <= 1 for part in parts)


def test_what_is_no_terminal_has_no_width(tmp_path: Path) -> None:
    assert columns(None) is None
    with (tmp_path / "file").open("w") as stream:
        assert columns(stream) is None
    assert columns(stream) is None
