"""docs/behaviours.md defines every number that code, tests and pages cite, and names the tests for it."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parent.parent
TESTS = ROOT / "tests"
PAGE = ROOT / "docs" / "behaviours.md"
FOLDERS = ("abi", "inspect", "loader", "executor", "native", "tests", "docs", "benchmarks")
SUFFIXES = {".py", ".c", ".h", ".md", ".toml"}

#: A row of a table: number, behaviour, status, tests.
ROW = re.compile(r"^\| ([A-Z]\d+) \| ([^|]+) \| ([^|]+) \|([^|]*)\|$", re.MULTILINE)
#: A number in running text, but no compiler option (-O3), element type ("M8[s]") or linter code (E501).
CITED = re.compile(r"(?<![\w.\-/\"'])([LOWEGMKDPRNQ][1-9]\d?)(?![\w\[\"'])")
STATUSES = {"done", "part", "planned", "GPU: pending"}


class Behaviour(NamedTuple):
    """A row of the page."""

    text: str
    status: str
    tests: frozenset[str]


def read_page(page: str) -> dict[str, Behaviour]:
    rows = [
        (number, Behaviour(text.strip(), status.strip(), frozenset(re.findall(r"`([^`]+)`", tests))))
        for number, text, status, tests in ROW.findall(page)
    ]
    assert len(rows) == len(dict(rows)), "a number is defined twice"
    return dict(rows)


def numbers_of(name: str) -> set[str]:
    """Return the numbers that a test's name carries: test_L9_N22_what_it_checks."""
    match = re.match(r"test_((?:[A-Z]\d+_)*)", name)
    return set(match[1].split("_")[:-1]) if match else set()


def all_tests() -> dict[str, set[str]]:
    """Return the numbers that each test carries, by ``file::name``."""
    return {
        f"{path.relative_to(TESTS).as_posix()}::{node.name}": numbers_of(node.name)
        for path in TESTS.rglob("test_*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    }


BEHAVIOURS = read_page(PAGE.read_text())
ALL_TESTS = all_tests()


def test_every_number_that_is_cited_is_defined() -> None:
    unknown = {
        f"{path.relative_to(ROOT)}: {number}"
        for folder in FOLDERS
        for path in (ROOT / folder).rglob("*")
        if path.suffix in SUFFIXES and path.is_file()
        for number in CITED.findall(path.read_text())
        if number not in BEHAVIOURS
    }
    unknown |= {
        f"{name}: {number}"
        for name, numbers in ALL_TESTS.items()
        for number in numbers
        if number not in BEHAVIOURS
    }
    assert not unknown, "define them in docs/behaviours.md"


def test_every_row_is_well_formed() -> None:
    lines = [line for line in PAGE.read_text().splitlines() if re.match(r"\| *[A-Z]\d", line)]
    assert len(lines) == len(BEHAVIOURS)
    for number, behaviour in BEHAVIOURS.items():
        assert behaviour.text.endswith("."), number
        assert behaviour.status in STATUSES, number
        assert ("Planned:" in behaviour.text) == (behaviour.status == "part"), number


def test_tests_that_are_named_exist() -> None:
    named = {test for behaviour in BEHAVIOURS.values() for test in behaviour.tests}
    assert not named - ALL_TESTS.keys()


def test_what_holds_names_tests_and_one_of_them_carries_its_number() -> None:
    for number, behaviour in BEHAVIOURS.items():
        if behaviour.status in ("done", "part"):
            assert any(number in ALL_TESTS.get(test, ()) for test in behaviour.tests), number


def test_what_is_planned_names_no_test() -> None:
    assert not {number for number, item in BEHAVIOURS.items() if item.status == "planned" and item.tests}


def test_a_test_that_carries_a_number_is_listed_for_it() -> None:
    unlisted = {
        f"{number}: {name}"
        for name, numbers in ALL_TESTS.items()
        for number in numbers
        if number in BEHAVIOURS and name not in BEHAVIOURS[number].tests
    }
    assert not unlisted, "list them in docs/behaviours.md"


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("refused (L13), or (behaviours D1, N60).", ["L13", "D1", "N60"]),
        ("-O3 -DX=1, np.zeros(3, 'M8[s]'), # noqa: E501, H200, float8_e5m2, E5M2, O2=", ["O2"]),
    ],
)
def test_numbers_are_found_in_running_text(text: str, numbers: list[str]) -> None:
    assert CITED.findall(text) == numbers


def test_numbers_are_found_in_names() -> None:
    assert numbers_of("test_L9_N22_a_copy_of_2_files") == {"L9", "N22"}
    assert numbers_of("test_NO_COLOR_is_honoured") == set()
    assert numbers_of("test_what_holds") == set()
