"""What the documents show works as shown: each page's Python runs, from top to bottom, in one process."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BLOCK = re.compile(r"^```(python|pycon)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PAGES = ("README.md", *(f"docs/{name}.md" for name in ("abi", "artifacts", "executor", "inspect", "loader")))
RUN = """
import doctest, sys
blocks = [(kind, open(name).read()) for kind, name in zip(sys.argv[1::2], sys.argv[2::2])]
names = {}
for kind, text in blocks:
    if kind == "python":
        exec(compile(text, "page", "exec"), names)
        continue
    test = doctest.DocTestParser().get_doctest(text, {}, "page", None, 0)
    test.globs = names  # a page is one session: the next block goes on with the names of this one
    failed, tried = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(test, clear_globs=False)
    assert tried and not failed
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the files that the pages speak of."""
    path = tmp_path_factory.mktemp("reader")
    (path / "fixtures").symlink_to(ROOT / "fixtures")
    plugins = ROOT / "fixtures" / "plugins"
    shutil.copy(plugins / "mlp.so", path / "model.so")
    shutil.copy(ROOT / "fixtures" / "artifacts" / "aoti_two_keys.pte", path / "model.pte")
    with zipfile.ZipFile(path / "model.pt2", "w") as archive:
        archive.writestr("model/archive_format", "pt2")
        archive.write(plugins / "mlp.so", "model/data/aotinductor/model/mlp.so")
        archive.write(plugins / "mlp_metadata.json", "model/data/aotinductor/model/mlp_metadata.json")
    return path


@pytest.mark.parametrize("page", PAGES)
def test_the_python_of_a_page_runs(page: str, folder: Path) -> None:
    blocks = BLOCK.findall((ROOT / page).read_text())
    assert blocks
    arguments = []
    for number, (kind, text) in enumerate(blocks):
        block = folder / f"block{number}.txt"
        block.write_text(text)
        arguments += [kind, str(block)]
    command = [sys.executable, "-c", RUN, *arguments]
    variables = {**os.environ, "PYTHONPATH": os.pathsep.join(os.path.abspath(p) for p in sys.path if p)}
    done = subprocess.run(command, cwd=folder, env=variables, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr


def test_links_between_pages_resolve() -> None:
    for page in (ROOT / "README.md", ROOT / "CHANGELOG.md", *(ROOT / "docs").rglob("*.md")):
        for target in re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text()):
            if "://" not in target:
                assert (page.parent / target).exists(), f"{page.name}: {target}"
