from __future__ import annotations

import pytest


def test_unused_needed_libraries(run):
    finding = run("AOTI440", needed=("libc.so.6", "libstdc++.so.6", "libgomp.so.1", "libcuda.so.1")).only
    assert finding.symbols == ("libcuda.so.1", "libgomp.so.1")


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"needed": ("libc.so.6", "libwhatever.so.3", "libtorch.so")},
        {"needed": ("libcuda.so.1",), "undefined": ("cuLaunchKernel",)},
        {"needed": ("libcudart.so.13",), "undefined": ("cudaMalloc",)},
        {"needed": ("libgomp.so.1",), "version_needs": ()},  # without versions nothing can be said
        {"needed": ("/usr/lib/libc.so.6",)},
    ],
)
def test_needed_libraries_that_are_used(run, changes):
    assert run("AOTI440", **changes).silent


def test_a_needed_entry_without_a_name(run):
    assert "1 entry of DT_NEEDED has" in run("AOTI441", needed=("", "libc.so.6")).only.message
    assert "2 entries of DT_NEEDED have" in run("AOTI441", needed=("", "")).only.message
    assert run("AOTI441").silent


def test_a_section_table_that_can_not_be_used(run):
    finding = run("AOTI450", sections=None, section_problem="it lies outside of the file").only
    assert "outside of the file" in finding.message
    assert run("AOTI452", sections=None, section_problem="it lies outside of the file").silent


def test_views_that_disagree(run):
    outcome = run("AOTI450", disagreements=("DT_NEEDED has libc.so.6, .dynamic has none",))
    assert "libc.so.6" in outcome.only.message
    assert run("AOTI450").silent


def test_no_section_table_is_a_remark(run):
    assert run("AOTI452", sections=None).only.severity == "info"
    assert run("AOTI452").silent
    assert run("AOTI452", sections=None, is_dynamic=False).silent


def test_malformed_parts_are_listed(run):
    assert (
        "1 place: the hash table is cut" in run("AOTI451", anomalies=("the hash table is cut",)).only.message
    )
    assert "and 3 more" in run("AOTI451", anomalies=tuple("abcdefg")).only.message
    assert run("AOTI451").silent
