"""The public face of each package: what it names is there, is lazy, and is all that the documents import."""

from __future__ import annotations

import ast
import importlib
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("aoti_abi", "aoti_inspect", "aoti_loader", "aoti_executor")
PAGES = ("README.md", *(f"docs/{path.name}" for path in sorted((ROOT / "docs").glob("*.md"))))


@pytest.mark.parametrize("package", PACKAGES)
def test_every_public_name_is_there(package: str) -> None:
    module = importlib.import_module(package)
    for name in module.__all__:
        assert getattr(module, name) is not None
        assert name in vars(module), "looked up once, then kept"
    with pytest.raises(AttributeError, match=f"module '{package}' has no attribute 'nothing'"):
        module.nothing  # noqa: B018 - the look-up is what is tested


@pytest.mark.parametrize("package", PACKAGES)
def test_importing_a_package_imports_no_other_module_of_it(package: str) -> None:
    script = "import sys; before = set(sys.modules); import {0}; print(*set(sys.modules) - before)"
    variables = {"PYTHONPATH": ":".join(path for path in sys.path if path)}
    command = [sys.executable, "-S", "-c", script.format(package)]
    done = subprocess.run(command, capture_output=True, text=True, env=variables, timeout=60, check=True)
    ours = {name for name in done.stdout.split() if name.startswith("aoti_")}
    assert ours == {package, "aoti_abi", "aoti_abi.face", "aoti_abi.records"}
    assert "typing" not in done.stdout.split()


def imports(page: str) -> set[tuple[str, str]]:
    """Return what the Python of a page imports from the toolkit, as module and name."""
    found = set()
    text = (ROOT / page).read_text()
    for kind, block in re.findall(r"^```(python|pycon)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        code = block
        if kind == "pycon":
            code = "\n".join(line[4:] for line in block.splitlines() if line.startswith((">>> ", "... ")))
        for node in ast.walk(ast.parse(code)):
            if isinstance(node, ast.Import):
                found |= {(alias.name, "") for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                found |= {(node.module or "", alias.name) for alias in node.names}
    return {(module, name) for module, name in found if module.startswith("aoti_")}


def test_the_documents_import_public_names_only() -> None:
    used = {(page, *entry) for page in PAGES for entry in imports(page)}
    assert len(used) >= 4
    for page, module, name in used:
        assert module in PACKAGES, f"{page} imports {module}"
        assert not name or name in importlib.import_module(module).__all__, f"{page} imports {module}.{name}"


def test_the_version_is_that_of_the_project() -> None:
    text = (ROOT / "pyproject.toml").read_text()
    for package in PACKAGES:
        assert f'version = "{importlib.import_module(package).__version__}"' in text


def test_the_version_of_a_tree_that_is_not_installed_is_unknown(tmp_path: Path) -> None:
    script = "import sys; sys.path.insert(0, sys.argv[1]); import aoti_abi; print(aoti_abi.__version__)"
    command = [sys.executable, "-I", "-S", "-c", script, str(ROOT / "abi")]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=60, check=True)
    assert done.stdout.strip() == "unknown"
