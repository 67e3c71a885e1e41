"""The tables as text: written from scans, and read back."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from shim_tables import (
    Scan,
    Shim,
    host_tables,
    minor,
    read_host_tables,
    read_slim_table,
    slim_table,
    types_of,
)

from aoti_abi import shim_catalogue
from aoti_abi.hosts import executorch

DATA = Path(shim_catalogue.__file__).parent / "data"


def scan(release: str, **shims: str) -> tuple[str, Scan]:
    return minor(release), Scan(release, {name: Shim("common", text) for name, text in shims.items()})


def test_a_table_by_hand() -> None:
    scans = dict(
        [
            scan("2.10.0", f="E f(int a)", g="E g(A x)", gone="E gone()"),
            scan("2.9.1", f="E f(int b)", g="E g(A x)", h="E h()"),
            scan("2.11.2", f="E f(int c, int d)", h="E h()"),
        ]
    )
    shims, signatures = host_tables(scans)
    assert shims.splitlines() == [
        "# PyTorch\t2.9.1\t2.10.0\t2.11.2",
        "f\t2.9\t\tcommon\t\t2.11",
        "g\t2.9\t2.10\tcommon\t\t",
        "gone\t2.10\t2.10\tcommon\t\t",
        "h\t2.9\t\tcommon\t2.10\t",
    ]
    assert signatures.splitlines()[1:] == [
        "f\tE f(int a)\t2.11\tE f(int c, int d)",  # a new name of a parameter alone is no change
        "g\tE g(A x)",
        "gone\tE gone()",
        "h\tE h()",
    ]


def test_the_tables_of_the_package_are_what_they_would_be_written_as() -> None:
    shims, signatures = (
        (DATA / name).read_text(encoding="ascii") for name in ("shims.tsv", "signatures.tsv")
    )
    assert host_tables(read_host_tables(shims, signatures)) == (shims, signatures)
    slim = (DATA / "executorch_shims.tsv").read_text(encoding="ascii")
    assert slim_table(read_slim_table(slim)) == slim


def test_the_package_reads_what_the_scanner_wrote() -> None:
    shims, signatures = (
        (DATA / name).read_text(encoding="ascii") for name in ("shims.tsv", "signatures.tsv")
    )
    for version, found in read_host_tables(shims, signatures).items():
        assert shim_catalogue.names_in(version, shim_catalogue.DEVICES) == found.shims.keys()
        for name, shim in list(found.shims.items())[::23]:
            assert shim_catalogue.signature(name, version) == shim.text
    for version, found in read_slim_table(
        (DATA / "executorch_shims.tsv").read_text(encoding="ascii")
    ).items():
        assert executorch.slim_shims(version) == found.shims.keys()


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("E f(int a)", "E f(int b)", True),
        ("E f(A * a)", "E f(A* b)", True),
        ("E f(int a)", "E f(int a, int b)", False),
        ("E f(int a)", "E f(int64_t a)", False),
        ("E f(const A* a)", "E f(A* a)", False),
        ("E f(int a)", "void f(int a)", False),
        ("E f(void (*g)(int, int))", "E f(void (*g)(int))", False),
        ("E f()", "E f(int a)", False),
    ],
)
def test_only_types_make_another_declaration(one: str, other: str, same: bool) -> None:
    assert (types_of(one) == types_of(other)) is same


VERSIONS = st.lists(st.integers(2, 30), unique=True, min_size=1, max_size=5).map(
    lambda minors: [f"2.{number}.{number % 3}" for number in minors]
)
DECLARED = st.dictionaries(
    st.sampled_from(["f", "g", "h", "aoti_torch_k"]), st.sampled_from(["E x()", "E x(int a)", "E x(A* a)"])
)


@given(VERSIONS, st.data())
def test_tables_round_trip(releases: list[str], data: st.DataObject) -> None:
    scans = dict(scan(release, **data.draw(DECLARED)) for release in releases)
    assert read_host_tables(*host_tables(scans)) == scans
    names = {version: Scan(s.release, {n: Shim("", "") for n in s.shims}) for version, s in scans.items()}
    assert read_slim_table(slim_table(names)) == names


@pytest.mark.parametrize(
    ("shims", "signatures", "words"),
    [
        ("f\t2.2\n", "# PyTorch\t2.2.0\n", "not a table of PyTorch"),
        ("# PyTorch\t2.2.0\n", "# PyTorch\t2.3.0\n", "different releases"),
        ("# PyTorch\t2.2.0\nf\t2.2\t\tcpu\t\t\n", "# PyTorch\t2.2.0\ng\tE g()\n", "differ on f"),
        ("# PyTorch\t2.2.0\nf\t2.2\t\tcpu\t\t2.2\n", "# PyTorch\t2.2.0\nf\tE f()\n", "differ on f"),
    ],
)
def test_tables_that_do_not_belong_together_are_refused(shims: str, signatures: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        read_host_tables(shims, signatures)
