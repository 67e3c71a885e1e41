"""From arguments to files."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from aoti_abi.errors import AccessFailed, NotFound
from aoti_inspect.command.collect import STDIN, collect


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name in ("a.so", "sub/b.pt2", "sub/libx.so.2", "sub/notes.txt", "c.pte", "d.ptd"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"x")
    return tmp_path


def test_a_folder_stands_for_the_artifacts_below_it(tree: Path) -> None:
    found = [os.path.relpath(path, tree) for path in collect([str(tree)])]
    assert sorted(found) == ["a.so", "c.pte", "d.ptd", "sub/b.pt2", "sub/libx.so.2"]


def test_a_named_file_is_taken_whatever_it_is_called(tree: Path) -> None:
    path = str(tree / "sub" / "notes.txt")
    assert collect([path]) == [path]


def test_order_is_kept_and_repeats_are_dropped(tree: Path) -> None:
    first, second = str(tree / "c.pte"), str(tree / "a.so")
    assert collect([first, second, first]) == [first, second]


def test_a_pattern_that_the_shell_left_alone_is_expanded(tree: Path) -> None:
    assert collect([str(tree / "*.so")]) == [str(tree / "a.so")]


def test_a_file_with_pattern_characters_in_its_name_is_itself(tree: Path) -> None:
    path = tree / "a[1].so"
    path.write_bytes(b"x")
    assert collect([str(path)]) == [str(path)]


def test_an_unpacked_package_stands_for_itself(tree: Path) -> None:
    (tree / "sub" / "archive_format").write_text("pt2")
    assert collect([str(tree / "sub")]) == [str(tree / "sub")]


def test_standard_input_is_passed_on() -> None:
    assert collect([STDIN]) == [STDIN]


def test_links_to_folders_are_not_followed(tree: Path) -> None:
    (tree / "loop").symlink_to(tree)
    assert len(collect([str(tree)])) == 5


def test_an_empty_folder_is_an_error_that_says_what_was_looked_for(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="holds no artifact") as caught:
        collect([str(tmp_path)])
    assert "*.so" in (caught.value.hint or "")


@pytest.mark.parametrize("name", ["missing.so", "nothing*.so", "a\0b", "x" * 5000])
def test_what_is_not_there_is_one_error(tmp_path: Path, name: str) -> None:
    with pytest.raises((NotFound, AccessFailed)):
        collect([os.path.join(str(tmp_path), name)])
