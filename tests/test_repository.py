"""What must hold of the repository itself."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
TOP_FOLDERS = (
    *("abi", "inspect", "loader", "executor", "native"),
    *("tests", "benchmarks", "fixtures", "docs", "tools"),
)


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


def test_scripts_shadow_no_standard_module() -> None:
    """A script's own folder comes first on the path: a benchmarks/inspect.py would break ``dataclasses``."""
    folders = ("benchmarks", "docs", "fixtures", "native", "tools")
    names = {path.stem for folder in folders for path in (ROOT / folder).rglob("*.py")}
    assert not names & set(sys.stdlib_module_names)


def test_every_package_is_typed() -> None:
    for package in ("abi/aoti_abi", "inspect/aoti_inspect", "loader/aoti_loader", "executor/aoti_executor"):
        assert (ROOT / package / "py.typed").exists()


def test_the_tables_alone_name_the_newest_versions() -> None:
    """A number that is written anywhere else is out of date as soon as a version is added to the tables."""
    from aoti_abi.hosts.executorch import RELEASES
    from aoti_abi.versions import KNOWN_TORCH

    torch, executorch = re.escape(KNOWN_TORCH[-1]), re.escape(RELEASES[-1])
    number = re.compile(
        rf"(?<![\w.-]){torch}(?!\d)|up to (?:ExecuTorch )?{executorch}(?![\d.])", re.IGNORECASE
    )
    tables = re.compile(r' *_f\("AOTInductor')  # the rows of container_api.py
    skipped = {"tests", "fixtures", "benchmarks", "build", "dist", "evidence", "__pycache__"}
    found = [
        f"{path.relative_to(ROOT)}: {line.strip()}"
        for top in ROOT.iterdir()
        if not top.name.startswith(".")
        for path in (top.rglob("*") if top.is_dir() else [top])
        if path.suffix in (".py", ".md", ".c", ".h", ".toml", ".json") or path.name == "Makefile"
        if skipped.isdisjoint(path.relative_to(ROOT).parts)
        for line in path.read_text(encoding="utf-8").splitlines()
        if number.search(line) and not tables.match(line)
    ]
    assert not found, "use aoti_abi.versions.KNOWN_TORCH, or say it without the number"
