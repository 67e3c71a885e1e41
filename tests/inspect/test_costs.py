"""What audits cost, counted: calls of functions and steps of the budget, never seconds."""

from __future__ import annotations

import io
import json
import os
import random
import struct
import sys
import zipfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aoti_inspect.auditing.audit import audit
from aoti_inspect.auditing.result import exit_code
from aoti_inspect.budget import BASE_STEPS, BYTES_PER_STEP, Budget, TooComplex
from aoti_inspect.elf.address_space import AddressSpace
from aoti_inspect.elf.image import MAX_NOTED, ElfImage
from aoti_inspect.elf.records import Segment
from aoti_inspect.facts.plugin import parse_metadata
from aoti_inspect.hosts.library_search import LibrarySearch
from aoti_inspect.reports.document import plain, report
from aoti_inspect.source import BufferSource

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))
import costly_files
from costly_files import CASES, Cost, Library

SMALL, LARGE = 160, 640


def calls(path: str) -> int:
    """Audit and report a file; return how many functions were called, those in C included."""
    count = 0

    def note(_frame: object, event: str, _argument: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(note)
    try:
        found = audit(path)
        plain(report([found], None, 0, ""))
    finally:
        sys.setprofile(None)
    return count


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_work_grows_no_faster_than_the_file(case: Cost, tmp_path: Path) -> None:
    counts = []
    for scale in (SMALL, SMALL, LARGE):  # the first pays for imports
        path = tmp_path / f"{len(counts)}{case.suffix}"
        path.write_bytes(case.build(scale))
        counts.append(calls(str(path)))
    growth = LARGE / SMALL
    # What is quadratic grows with its square.
    assert counts[2] <= 2 * growth * counts[1], counts


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_costly_file_ends_in_a_report(case: Cost, tmp_path: Path) -> None:
    path = tmp_path / f"x{case.suffix}"
    path.write_bytes(case.build(LARGE))
    found = audit(str(path))
    assert found.error is None or found.error.code in ("InvalidProgram", "NotSupported")


def not_read(data: bytes, suffix: str, tmp_path: Path) -> str:
    """What the audit of a file says that it did not read; it must not be a pass."""
    path = tmp_path / f"x{suffix}"
    path.write_bytes(data)
    found = audit(str(path), target="isa=any")
    assert exit_code([found], None) == 3
    sentences = [entry.reason for entry in found.all_not_checked()]
    if found.error is not None:
        sentences.append(found.error.message)
    return "\n".join(sentences)


def test_notes_beyond_the_limit_are_not_checked(tmp_path: Path) -> None:
    assert "more than 16384 notes" in not_read(costly_files.notes(5400), ".so", tmp_path)


def test_gpu_code_beyond_the_limit_is_not_checked(tmp_path: Path) -> None:
    said = not_read(costly_files.fatbin_sections(2000), ".so", tmp_path)
    assert "the GPU code: more than 65536 places and entries" in said


def test_undefined_symbols_beyond_the_limit_are_not_checked(tmp_path: Path) -> None:
    said = not_read(costly_files.undefined_std(2500), ".so", tmp_path)
    assert "the undefined symbols: 20000, of which 16384 were read" in said


def test_exported_names_beyond_the_limit_are_not_checked(tmp_path: Path) -> None:
    assert "of which 16384 were read" in not_read(costly_files.exported_container(2500), ".so", tmp_path)


def test_libraries_in_an_archive_beyond_the_allowance_are_not_checked(tmp_path: Path) -> None:
    assert "the audit of 300 plugins" in not_read(costly_files.tiny_libraries(450), ".zip", tmp_path)


def test_lists_of_operators_beyond_the_allowance_are_not_checked(tmp_path: Path) -> None:
    assert "parsing the JSON" in not_read(costly_files.json_nodes(20_000), ".pt2", tmp_path)


def test_members_that_inflate_beyond_the_allowance_are_not_checked(tmp_path: Path) -> None:
    assert "inflating its members" in not_read(costly_files.zeros_in_zip(16_000), ".zip", tmp_path)


def test_a_plugin_that_was_not_read_whole_loads_nowhere(tmp_path: Path) -> None:
    path = tmp_path / "x.so"
    path.write_bytes(costly_files.notes(5400))
    outcomes = {verdict.outcome for verdict in audit(str(path)).plugins[0].verdicts}
    assert "loads" not in outcomes
    assert "loads with fallbacks" not in outcomes


def test_folders_and_names_are_asked_for_once_each(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    real = os.open

    def note(path: str, *arguments: int) -> int:
        asked.append(path)
        return real(path, *arguments)

    search = LibrarySearch(62, 64, "none", cache="/nowhere")
    folders = search.folders(
        origin=str(tmp_path),
        runpath=tuple(f"/nowhere/{n}" for n in range(2000)) + ("$ORIGIN", "$ORIGIN/.") * 50,
    )
    assert [folder.path for folder in folders] == [str(tmp_path)]
    monkeypatch.setattr(os, "open", note)
    for number in range(50):
        assert search.find(f"lib{number}.so", folders) is None
    assert sum(path.startswith((str(tmp_path), "/nowhere")) for path in asked) <= 51


def test_a_search_ends_with_its_budget(tmp_path: Path) -> None:
    search = LibrarySearch(62, 64, "none", cache="/nowhere", budget=Budget(0))
    with pytest.raises(TooComplex, match="the search for libraries"):
        search.folders(origin="/", runpath=tuple(str(n) for n in range(BASE_STEPS + 1)))


def test_a_plugin_whose_names_lie_far_behind_is_found_in_an_archive(tmp_path: Path) -> None:
    library = Library()
    library.blob = bytes(65 << 20)
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        archive.writestr("near.so", Library().build())
        archive.writestr("far.so", library.build())
    path = tmp_path / "x.zip"
    path.write_bytes(out.getvalue())
    assert len(audit(str(path)).plugins) == 2


def test_metadata_of_no_compiler_are_told_and_not_read(tmp_path: Path) -> None:
    assert "has 2000 keys" in str(parse_metadata(json.dumps({str(key): key for key in range(2000)}).encode()))


# The budget


@given(st.integers(0, 1 << 40), st.lists(st.integers(0, 1 << 21), max_size=20))
def test_a_budget_lets_no_more_through_than_it_allows(size: int, steps: list[int]) -> None:
    budget, spent = Budget(size), 0
    part = budget.part()
    allowed = BASE_STEPS + size // BYTES_PER_STEP
    for number, step in enumerate(steps):
        spent += step
        try:
            (budget if number % 2 else part).spend(step, "it")
        except TooComplex as error:
            assert spent > allowed
            assert str(allowed) in error.message
            assert budget.given_up or part.given_up
            return
        assert spent <= allowed


def test_a_share_says_once_what_was_given_up() -> None:
    budget = Budget(0)
    share = budget.share("the notes", 3, "notes")
    assert [share.take() for _ in range(6)] == [True] * 3 + [False] * 3
    assert budget.given_up == ("the notes: more than 3 notes",)


def test_sentences_about_one_file_are_bounded_and_none_that_is_fatal_is_lost() -> None:
    image = ElfImage(Library().build(), "x")
    for number in range(1000):
        image.note(f"n{number}", fatal=number == 999)
    assert len(image.anomalies) == MAX_NOTED + 1
    assert len(image.unusable) == 1


# Segments


def linear(segments: list[Segment], address: int) -> Segment | None:
    for segment in reversed(segments):
        if segment.type == "LOAD" and 0 <= address - segment.address < segment.file_size:
            return segment
    return None


@given(st.lists(st.tuples(st.integers(0, 60), st.integers(0, 30)), max_size=12))
def test_of_segments_over_each_other_the_last_one_counts(places: list[tuple[int, int]]) -> None:
    segments = [
        Segment("LOAD", "R", number, address, size, size, 1) for number, (address, size) in enumerate(places)
    ]
    space = AddressSpace(BufferSource(bytes(100)), tuple(segments))
    for address in range(-1, 100):
        assert space.segment_of(address) is linear(segments, address)


# Hash tables over gaps between segments


@settings(max_examples=300)
@given(
    st.integers(0, 40),
    st.integers(0, 300),
    st.tuples(*[st.integers(0, 40) | st.sampled_from((1 << 16, 1 << 20, (1 << 32) - 1))] * 4),
    st.sampled_from((0x6FFFFEF5, 4)),
    st.randoms(use_true_random=False),
)
def test_a_hash_table_over_a_gap_gives_facts(
    gap: int, at: int, header: tuple[int, ...], tag: int, chance: random.Random
) -> None:
    library = Library()
    data = bytearray(library.build())
    image = ElfImage(bytes(data), "x")
    dynamic = next(segment for segment in image.segments if segment.type == "DYNAMIC")
    where = data.index(struct.pack("<Q", 4), dynamic.offset)
    address = 0x900000
    struct.pack_into("<QQ", data, where, tag, address)
    body = struct.pack("<4I", *header) + bytes(chance.getrandbits(8) for _ in range(400))
    start = len(data)
    data += body
    segments = [*image.segments, Segment("LOAD", "R", start, address, at, at, 1)]
    segments.append(
        Segment("LOAD", "R", start + at + gap, address + at + gap, max(416 - at - gap, 0), 416, 1)
    )
    image = ElfImage(bytes(data), "x")
    image.segments = tuple(segments)
    image.space = AddressSpace(image.source, image.segments)
    names = [b"AOTInductorModelContainerRun", b"x", *(b"%d" % n for n in range(40))]
    for name in names:
        image.symbol_table.hashed(name)
    image.find("AOTInductorModelContainerRun")


@given(
    tail=st.binary(min_size=0, max_size=200),
    suffix=st.sampled_from((".pte", ".pt2", ".so", ".ptd")),
    program=st.booleans(),
)
def test_any_bytes_under_any_name_in_an_archive_give_a_report(
    tail: bytes, suffix: str, program: bool, tmp_path_factory: pytest.TempPathFactory
) -> None:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr(f"x{suffix}", (b"\x1c\0\0\0ET" if program else b"") + tail)
        archive.writestr("y.so", Library().build())
    path = tmp_path_factory.mktemp("any") / "x.zip"
    path.write_bytes(out.getvalue())
    found = audit(str(path))
    assert found.error is None
    assert len(found.plugins) >= 1
