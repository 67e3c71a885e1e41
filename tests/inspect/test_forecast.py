"""What the audit says of real plugins is what the dynamic linker does with them."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def forecast() -> ModuleType:
    spec = importlib.util.spec_from_file_location("forecast", ROOT / "tests" / "forecast.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["forecast"] = module
    spec.loader.exec_module(module)
    return module


def test_the_forecast_of_every_fixture_comes_true(forecast: ModuleType, capsys: pytest.CaptureFixture[str]):
    assert forecast.main([]) == 0
    assert " 0 disagreements" in capsys.readouterr().out


def test_what_the_linker_refuses_is_seen_as_a_false_load(forecast: ModuleType, tmp_path: Path):
    """The comparison itself can fail: a file that loads, and one that does not, told apart."""
    launcher = forecast.compile_launcher(tmp_path)
    data = (ROOT / "fixtures" / "structured" / "affine.so").read_bytes()
    assert forecast.compare(launcher, tmp_path / "whole.so", data)[1:] == ("loads", None)
    told, happened, _ = forecast.compare(launcher, tmp_path / "cut.so", data[:40])
    assert (told, happened) == (False, "is refused")
    changed = {mutant.field for mutant in forecast.mutants(data, 300, seed=1)}
    assert {"LOAD p_offset", "e_type", "init array"} <= changed
