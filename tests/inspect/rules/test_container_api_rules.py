from __future__ import annotations

import pytest

from aoti_abi.container_api import REQUIRED, TORCH_2_1_ONLY
from aoti_abi.features import FEATURES
from aoti_inspect.rules import aoti11x_lost_features as lost_features

C = "AOTInductorModelContainer"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"container": (), "runtime": 0, "total": 12}, "none of its 12 exports"),
        ({"container": (), "runtime": 0, "total": 0}, "exports nothing"),
        ({"container": (), "runtime": 40}, "were hidden"),
        ({"container": (), "runtime": 4, "shims": ("aoti_torch_get_dim",)}, "a host, not a"),
    ],
)
def test_what_exports_no_container_function_is_no_plugin(run, changes, words):
    finding = run("AOTI101", **changes).only
    assert finding.severity == "error"
    assert words in finding.message
    assert finding.remedy


def test_a_plugin_is_a_plugin(run):
    assert run("AOTI101").silent


def test_nothing_is_said_of_exports_that_can_not_be_read(run):
    assert run("AOTI101", container=(), is_dynamic=False).silent


def test_L1_all_missing_entry_points_are_named_at_once(run, emitted):
    kept = tuple(name for name in emitted("2.13") if name not in REQUIRED)
    finding = run("AOTI102", container=kept).only
    assert finding.severity == "error"
    assert finding.symbols == tuple(sorted(REQUIRED))
    assert all(name in finding.message for name in REQUIRED)


@pytest.mark.parametrize("name", REQUIRED)
def test_L1_each_entry_point_is_required(run, emitted, name):
    kept = tuple(other for other in emitted("2.13") if other != name)
    assert run("AOTI102", container=kept).only.symbols == (name,)


def test_L1_a_complete_plugin_misses_none(run):
    assert run("AOTI102").silent
    assert run("AOTI102", container=()).silent  # AOTI101 speaks for it


def test_L1_pytorch_2_2_is_named_as_the_cause(run):
    finding = run("AOTI102", torch="2.2").only
    assert finding.symbols == (f"{C}CreateWithDevice",)
    assert "2.2" in finding.remedy


def test_the_interface_of_pytorch_2_1_is_told(run, emitted):
    old = tuple(sorted({*emitted("2.2"), *TORCH_2_1_ONLY}))
    assert "2.1" in run("AOTI103", container=old).only.message
    assert run("AOTI102", container=old).silent
    assert run("AOTI131", container=old).silent
    assert run("AOTI103", torch="2.2").silent


def test_every_feature_that_can_be_lost_has_one_rule():
    grouped = [name for names in lost_features.GROUPS.values() for name in names]
    expected = [name for name, feature in FEATURES.items() if name != "run" and not feature.addition]
    assert sorted(grouped) == sorted(expected)


@pytest.mark.parametrize("code", lost_features.GROUPS)
def test_a_plugin_of_pytorch_2_13_loses_nothing(run, code):
    assert run(code).silent


@pytest.mark.parametrize("code", lost_features.GROUPS)
def test_what_is_no_plugin_loses_nothing(run, code):
    assert run(code, container=()).silent


@pytest.mark.parametrize(
    ("code", "torch", "since", "symbol"),
    [
        ("AOTI111", "2.12", "2.13", "AOTInductorGetLastError"),
        ("AOTI112", "2.6", "2.7", f"{C}RunSingleThreaded"),
        ("AOTI113", "2.7", "2.8", f"{C}GetConstantDataSize"),
        ("AOTI114", "2.9", "2.10", "AOTInductorModelUpdateConstantsFromBlob"),
        ("AOTI115", "2.12", "2.13", f"{C}ExtractConstantsMapEntries"),
        ("AOTI116", "2.12", "2.13", f"{C}UpdateConstantBufferPairs"),
    ],
)
def test_L8_a_lost_feature_names_its_functions_and_their_first_version(run, code, torch, since, symbol):
    finding = run(code, torch=torch).only
    assert symbol in finding.symbols
    assert f"PyTorch {since} or later" in finding.remedy
    assert run(code, torch=since).silent


def test_W5_lost_sharing_says_what_happens_instead(run):
    message = run("AOTI115", torch="2.12").only.message
    assert "weight-sharing" in message
    assert FEATURES["weight-sharing"].instead in message


def test_an_incomplete_plugin_is_not_drowned_in_lost_features(run):
    assert run("AOTI115", container=(f"{C}Run", f"{C}Delete")).silent


def test_lost_features_weigh_more_where_they_are_needed(run, emitted):
    assert run("AOTI112", torch="2.6").only.severity == "info"
    assert run("AOTI112", torch="2.6", undefined=("cuLaunchKernel",)).only.severity == "warning"
    assert run("AOTI114", torch="2.9").only.severity == "info"
    assert run("AOTI114", torch="2.9", weights="external").only.severity == "warning"
    assert run("AOTI113", torch="2.7").only.severity == "info"
    unlisted = tuple(name for name in emitted("2.13") if not name.endswith("GetConstantName"))
    assert run("AOTI113", container=unlisted).only.severity == "warning"


def test_constants_calls_with_a_map_only_are_named(run):
    finding = run("AOTI120", torch="2.9").only
    assert f"{C}ExtractConstantsMap" in finding.symbols
    assert "libstdc++" in finding.message
    assert f"{C}UpdateUserManagedConstantBuffer" not in run("AOTI120", torch="2.10").only.symbols


def test_a_counterpart_with_a_c_array_is_enough(run):
    assert run("AOTI120").silent
    assert run("AOTI120", torch="2.2").silent  # has no constants calls at all


@pytest.mark.parametrize(
    ("changes", "version"),
    [
        ({}, "2.13"),
        ({"torch": "2.14"}, "2.14"),
        ({"torch": "2.10", "undefined": ()}, "2.10 to 2.12"),
        ({"torch": "2.10", "undefined": ("aoti_torch_cpu__grouped_mm",)}, "2.12"),
        ({"torch": "2.3", "undefined": ()}, "2.3 to 2.5"),
    ],
)
def test_the_compiler_is_told_from_exports_and_imports(run, changes, version):
    assert f"PyTorch {version}," in run("AOTI130", **changes).only.message


def test_a_trimmed_plugin_gives_a_lower_bound_only(run):
    message = run("AOTI130", container=REQUIRED, undefined=()).only.message
    assert "PyTorch 2.3 or later" in message
    assert "missing" in message


def test_nothing_is_said_of_a_compiler_without_exports(run):
    assert run("AOTI130", container=()).silent


def test_a_trimmed_plugin_is_told(run, emitted):
    kept = tuple(name for name in emitted("2.13") if not name.endswith("SwapConstantBuffer"))
    finding = run("AOTI131", container=kept).only
    assert finding.symbols == (f"{C}SwapConstantBuffer",)
    assert "is missing" in finding.message


def test_unknown_exports_are_told(run, emitted):
    finding = run("AOTI131", container=(*emitted("2.14"), "AOTInductorFromTheFuture")).only
    assert finding.symbols == ("AOTInductorFromTheFuture",)


def test_headers_of_two_versions_are_told(run):
    finding = run("AOTI131", torch="2.8", undefined=("aoti_torch_cpu__grouped_mm",)).only
    assert finding.symbols == ("aoti_torch_cpu__grouped_mm",)


@pytest.mark.parametrize("torch", ["2.2", "2.6", "2.9", "2.13", "2.14"])
def test_exports_of_a_release_are_usual(run, torch):
    assert run("AOTI131", torch=torch, undefined=()).silent
