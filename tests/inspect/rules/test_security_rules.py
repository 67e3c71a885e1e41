from __future__ import annotations

import pytest

from aoti_inspect.elf.records import Segment


def test_text_relocations(run):
    assert "-fPIC" in run("AOTI701", text_relocations=True).only.remedy
    assert run("AOTI701").silent


def test_writable_code(run):
    segments = (Segment("LOAD", "RWE", 0, 0x4000, 10, 10, 4096), Segment("GNU_STACK", "RWE", 0, 0, 0, 0, 16))
    finding = run("AOTI702", segments=segments).only
    assert "1 segment both writable and executable, at 0x4000" in finding.message
    assert run("AOTI702", segments=segments[1:]).silent
    assert run("AOTI702").silent


@pytest.mark.parametrize(
    "entry", ["", ".", "lib", "../lib", "/tmp/build-xyz", "/tmp", "/dev/shm/x", "/var/tmp/y"]
)
def test_insecure_search_paths(run, entry):
    finding = run("AOTI703", runpath=("$ORIGIN", entry)).only
    assert finding.severity == "error"
    assert finding.symbols == (entry,)
    assert run("AOTI704", runpath=(entry,)).silent


@pytest.mark.parametrize("entry", ["/home/someone/build/lib", "/builds/x", "/usrlocal", "/tmpfiles"])
def test_search_paths_of_the_build_machine(run, entry):
    finding = run("AOTI704", rpath=(entry,)).only
    assert finding.symbols == (entry,)
    assert run("AOTI703", rpath=(entry,)).silent


@pytest.mark.parametrize(
    "entry", ["$ORIGIN", "$ORIGIN/../lib", "${ORIGIN}", "/usr/lib", "/usr/local/cuda/lib64", "/opt/rocm/lib"]
)
def test_search_paths_that_are_fine(run, entry):
    assert run("AOTI703", runpath=(entry,)).silent
    assert run("AOTI704", runpath=(entry,)).silent


def test_runpath_makes_rpath_void(run):
    assert run("AOTI703", runpath=("$ORIGIN",), rpath=("/tmp/x",)).silent
    assert run("AOTI704", runpath=("$ORIGIN",), rpath=("/home/x",)).silent


@pytest.mark.parametrize(
    "changes",
    [
        {"needed": ("\x1b[31mlibc.so.6",)},
        {"soname": "a\nb"},
        {"undefined": ("bad\udcffname",)},
        {"runpath": ("/usr/\u202elib",)},
        {"other_examples": ("\x07",)},
    ],
)
def test_names_that_act_on_a_terminal(run, changes):
    assert run("AOTI705", **changes).only.severity == "warning"


def test_names_of_any_script_are_fine(run):
    assert run("AOTI705").silent
    assert run("AOTI705", soname="modèle_模型.so").silent


def test_libraries_needed_by_path(run):
    assert run("AOTI706", needed=("/build/lib/liba.so", "./b.so", "libc.so.6")).only.symbols == (
        "./b.so",
        "/build/lib/liba.so",
    )
    assert run("AOTI706").silent
