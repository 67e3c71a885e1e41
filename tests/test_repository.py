"""What must hold of the repository itself."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
TOP_FOLDERS = ("abi", "inspect", "loader", "executor", "shim", "tests", "benchmarks", "fixtures", "docs")


@pytest.mark.parametrize("folder", TOP_FOLDERS)
def test_no_top_level_folder_is_a_package_of_its_own(folder: str) -> None:
    """An ``inspect/__init__.py`` would shadow the standard library's module for all that starts here."""
    assert (ROOT / folder).is_dir()
    assert not (ROOT / folder / "__init__.py").exists()


@pytest.mark.parametrize(
    "arguments",
    [
        ["-m", "pytest", "--version"],
        ["-m", "venv", "--help"],
        ["-c", "import dataclasses, inspect; assert inspect.signature"],
    ],
)
def test_the_standard_library_works_from_the_root(arguments: list[str]) -> None:
    done = subprocess.run([sys.executable, *arguments], cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


def test_scripts_in_benchmarks_and_docs_shadow_no_standard_module() -> None:
    """A script's own folder comes first on the path: a benchmarks/inspect.py would break ``dataclasses``."""
    folders = ("benchmarks", "docs", "fixtures")
    names = {path.stem for folder in folders for path in (ROOT / folder).rglob("*.py")}
    assert not names & set(sys.stdlib_module_names)


def test_every_package_is_typed() -> None:
    for package in ("abi/aoti_abi", "inspect/aoti_inspect", "loader/aoti_loader", "executor/aoti_executor"):
        assert (ROOT / package / "py.typed").exists()
