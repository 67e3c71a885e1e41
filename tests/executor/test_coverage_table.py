"""The command that writes which plugins run on which host."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.torch
def test_coverage_compares_each_model_with_its_data(tmp_path):
    (tmp_path / "junk.so").write_bytes(b"\x7fELF and no more")
    for name in ("counter.so", "counter.npz"):
        (tmp_path / name).write_bytes((ROOT / "fixtures" / "plugins" / name).read_bytes())
    page = tmp_path / "page.md"
    done = subprocess.run(
        [sys.executable, str(ROOT / "benchmarks" / "coverage.py"), str(tmp_path), "--output", str(page)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )
    assert done.returncode == 0, done.stderr
    lines = page.read_text().splitlines()
    assert "| `counter.so` | matches | matches |" in lines
    assert any(line.startswith("| `junk.so` | ") and "matches" not in line for line in lines)
    assert "2 models: 1 on builtin, 1 on torch match." in lines
