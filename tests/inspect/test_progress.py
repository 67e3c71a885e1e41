"""The progress bar: on a terminal, and only for what takes its time."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PLUGIN = str(ROOT / "fixtures" / "plugins" / "mlp.so")
BAR = b"auditing"
SLOW = """
import sys, time
from aoti_inspect.command.progress import with_progress
def results():
    for number in range(8):
        time.sleep(float(sys.argv[1]))
        yield number
assert list(with_progress(results(), 8)) == list(range(8))
"""


def on_terminal(command: list[str]) -> bytes:
    """Run a command with its standard error on a terminal; return what it wrote there."""
    parent, child = os.openpty()
    variables = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p), "TERM": "xterm"}
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=child, env=variables)
    os.close(child)
    output = b""
    try:
        while chunk := os.read(parent, 65536):
            output += chunk
    except OSError:
        pass  # the terminal's other end was closed: Linux reports that as an error
    assert process.wait(timeout=60) == 0
    os.close(parent)
    return output


@pytest.mark.parametrize(("pause", "drawn"), [("0.15", True), ("0.001", False)])
def test_a_bar_is_drawn_after_half_a_second(pause: str, drawn: bool) -> None:
    assert (BAR in on_terminal([sys.executable, "-c", SLOW, pause])) is drawn


def test_the_command_draws_one_on_a_terminal_unless_told_not_to() -> None:
    script = (
        "import aoti_inspect.command.progress as progress, sys\n"
        "progress._PATIENCE = 0.0\n"
        "from aoti_inspect.command.cli import main\n"
        "sys.exit(main(sys.argv[1:]))"
    )
    links = [PLUGIN, str(ROOT / "fixtures" / "plugins" / "mlp_blob.so")] * 2
    command = [sys.executable, "-c", script, "--jobs", "1", "--target", "isa=any,glibc=any", *links]
    assert BAR in on_terminal(command)
    assert on_terminal([*command, "--no-progress"]) == b""
    assert on_terminal([*command, "--quiet"]) == b""
    done = subprocess.run(
        command,
        capture_output=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (0, b"")
