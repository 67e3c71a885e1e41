"""The C sources that repeat tables of `aoti_abi` are up to date, and say so when they are not."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FILES = ("include/aoti_host.h", "host/codes.h", "host/codes.c")


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """Return a copy of what the generator reads and writes."""
    for folder in ("native", "abi"):
        shutil.copytree(ROOT / folder, tmp_path / folder)
    return tmp_path


def generate(root: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(root / "native" / "generate.py"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


def test_the_sources_are_what_the_tables_say() -> None:
    done = generate(ROOT, "--check")
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("name", FILES)
def test_a_file_that_was_edited_is_named_and_written_anew(copy: Path, name: str) -> None:
    path = copy / "native" / name
    whole = path.read_text()
    path.write_text(whole.replace("int32_t", "int64_t", 1).replace("= 44", "= 43", 1))
    done = generate(copy, "--check")
    assert done.returncode == 1
    assert done.stderr == f"native/{name} is out of date: run python native/generate.py\n"
    assert generate(copy).returncode == 0
    assert path.read_text() == whole


def test_a_name_that_no_pytorch_has_is_refused(copy: Path) -> None:
    table = copy / "abi" / "aoti_abi" / "codes.py"
    line = '    Dtype(27, "uint16", '
    text = table.read_text()
    assert text.count(line) == 1
    table.write_text(text.replace(line, f'    Dtype(46, "bits8", "uint", 1, None, (1, 8, 1)),\n{line}'))
    done = generate(copy)
    assert "aoti_torch_dtype_bits8 is in aoti_abi.hosts.builtin, but no PyTorch has it" in done.stderr


def test_wrong_usage() -> None:
    done = generate(ROOT, "--chekc")
    assert (done.returncode, done.stderr) == (2, "usage: generate.py [--check]\n")
