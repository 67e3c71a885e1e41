"""What is added is found through its table alone: formats of reports and artifacts, rules."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from aoti_inspect.artifacts import formats
from aoti_inspect.artifacts.artifact import Artifact
from aoti_inspect.artifacts.formats import Format
from aoti_inspect.artifacts.sidecars import Beside
from aoti_inspect.command.cli import main
from aoti_inspect.command.collect import collect
from aoti_inspect.facts.target import Target
from aoti_inspect.findings import Finding
from aoti_inspect.reports import formats as report_formats
from aoti_inspect.rules import registry
from aoti_inspect.rules.registry import PluginContext, RuleResult, plugin_rule, run_rules
from aoti_inspect.source import Source

ROOT = Path(__file__).resolve().parents[2]
PLUGIN = str(ROOT / "fixtures" / "plugins" / "mlp.so")


def test_json_lines_has_the_artifacts_of_the_json_report(capsys: pytest.CaptureFixture[str]):
    arguments = [PLUGIN, str(ROOT / "fixtures" / "plugins" / "counter.so")]
    main(["--format", "json", *arguments])
    whole = json.loads(capsys.readouterr().out)
    main(["--format", "json-lines", *arguments])
    lines = capsys.readouterr().out.splitlines()
    assert [json.loads(line) for line in lines] == whole["artifacts"]
    assert len(lines) == 2


def test_a_format_of_reports_is_a_module_and_a_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    module = ModuleType("aoti_inspect.reports.counts")
    module.render = lambda audits, _options: f"{len(audits)} artifacts\n"  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setitem(report_formats.FORMATS, "counts", "counts")
    main(["--format", "counts", PLUGIN])
    assert capsys.readouterr().out == "1 artifacts\n"


def test_a_format_of_artifacts_is_a_reader_and_a_row(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    def read(source: Source, _beside: Beside) -> Artifact:
        return Artifact(source.name, "zip", {}, summary=(("boxes", "1"),), opened=(source,))

    module = ModuleType("box_reader")
    module.read_box = read  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "box_reader", module)
    row = Format("box", (".box",), ((0, b"BOX1"),), "box_reader:read_box")
    monkeypatch.setattr(formats, "FORMATS", (*formats.FORMATS, row))
    monkeypatch.setattr(formats, "SUFFIXES", (*formats.SUFFIXES, *row.suffixes))  # made from the table
    (tmp_path / "model.box").write_bytes(b"BOX1 and more")
    assert collect([str(tmp_path)]) == [str(tmp_path / "model.box")]
    assert main(["--quiet", str(tmp_path / "model.box")]) == 0


def test_a_rule_is_a_function_under_a_decorator(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(registry, "PLUGIN_RULES", {})

    @plugin_rule("AOTI999", "has-a-name", "info")
    def has_a_name(context: PluginContext) -> Iterator[RuleResult]:
        """The plugin has a name."""
        yield RuleResult(f"is called {context.facts.name}")

    from aoti_inspect import read_facts

    findings, _ = run_rules(PluginContext(read_facts(PLUGIN), Target()), registry.PLUGIN_RULES)
    assert findings == [Finding("AOTI999", "has-a-name", "info", f"is called {PLUGIN}")]
