"""The reports: the JSON schema, what the text leaves out, and what starting the command costs."""

from __future__ import annotations

import copy
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from aoti_inspect.auditing.path import audit_path
from aoti_inspect.auditing.result import ArtifactAudit, PluginAudit, Settings
from aoti_inspect.command.cli import main
from aoti_inspect.facts.plugin import read_plugin
from aoti_inspect.facts.records import Weights
from aoti_inspect.facts.target import Target
from aoti_inspect.findings import Finding, HostVerdict
from aoti_inspect.reports.json_report import dumps, schema_text
from aoti_inspect.reports.text import describe_weights, render, summary

ROOT = Path(__file__).resolve().parents[2]
PLUGINS = sorted(str(path) for path in (ROOT / "fixtures" / "plugins").glob("*.so"))
Compile = Callable[..., str]


def strict(schema: Any) -> Any:
    """Return the schema with no room for fields that it does not name: one must not be added unnoticed."""
    if isinstance(schema, list):
        return [strict(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    tightened = {key: strict(value) for key, value in schema.items()}
    if "properties" in schema:
        tightened["additionalProperties"] = False
    return tightened


@pytest.fixture(scope="module")
def schema() -> Any:
    published = json.loads(schema_text())
    jsonschema.Draft202012Validator.check_schema(published)
    return published


def test_the_report_of_every_kind_of_artifact_follows_the_schema(
    schema: Any,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    compile_library: Compile,
    smallest_source: str,
) -> None:
    (tmp_path / "broken.so").write_bytes(b"\x7fELF")
    odd = compile_library(smallest_source, "-Wl,-z,execstack", "-Wl,-rpath,/tmp/build")
    main(["--format", "json", *PLUGINS, odd, str(tmp_path / "broken.so")])
    text = capsys.readouterr().out
    document = json.loads(text)
    assert len(document["artifacts"]) == len(PLUGINS) + 2
    jsonschema.validate(document, schema)
    jsonschema.validate(document, strict(schema))


def test_the_strict_schema_notices_an_unnamed_field(schema: Any, capsys: pytest.CaptureFixture[str]) -> None:
    main(["--format", "json", PLUGINS[0]])
    document = json.loads(capsys.readouterr().out)
    grown = copy.deepcopy(document)
    grown["artifacts"][0]["plugins"][0]["facts"]["new"] = 1
    jsonschema.validate(grown, schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(grown, strict(schema))


def test_the_command_prints_the_schema(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["schema"]) == 0
    assert capsys.readouterr().out == schema_text()


def test_bytes_that_are_no_text_survive_in_json() -> None:
    value = {"name": b"a\xffb".decode("utf-8", "surrogateescape")}
    text = dumps(value)
    text.encode("utf-8")
    assert json.loads(text) == {"name": r"a\xffb"}


def verdict(host: str, outcome: Any, *reasons: str) -> HostVerdict:
    return HostVerdict(host, outcome, reasons)


def test_versions_with_one_verdict_share_a_line() -> None:
    facts = read_plugin(PLUGINS[0])
    rows = (
        verdict("builtin", "loads"),
        verdict("torch==2.6", "will not load", "torch==2.6 lacks 1 symbol"),
        verdict("torch==2.7", "will not load", "torch==2.7 lacks 1 symbol"),
        verdict("torch==2.8", "loads"),
        verdict("executorch", "loads"),
    )
    audit = ArtifactAudit("x.so", "plugin", (PluginAudit(facts, (), (), rows),))
    text = "\n".join(render(audit))
    assert "torch==2.6 to 2.7  will not load: torch==2.6 lacks 1 symbol" in text
    assert "torch==2.8         loads" in text
    assert "executorch         loads" in text


def test_the_second_view_adds_what_only_sections_hold(
    capsys: pytest.CaptureFixture[str], compile_library: Compile, smallest_source: str
) -> None:
    path = compile_library(smallest_source, "-g")
    main([path])
    assert "compiler" not in capsys.readouterr().out
    main(["--second-view", path])
    text = capsys.readouterr().out
    assert "  compiler   GNU C" in text
    assert "  symtab " in text


def test_remarks_are_shown_only_when_asked_for() -> None:
    facts = read_plugin(PLUGINS[0])
    finding = Finding("AOTI130", "compiled-by", "info", "a remark")
    audit = ArtifactAudit("x.so", "plugin", (PluginAudit(facts, (finding,), (), ()),))
    assert "a remark" not in "\n".join(render(audit))
    assert "a remark" in "\n".join(render(audit, verbose=1))


def test_the_closing_line_counts_what_was_found(tmp_path: Path) -> None:
    path = tmp_path / "broken.so"
    path.write_bytes(b"\x7fELF")
    settings = Settings(Target(), ("builtin",))
    audits = [audit_path(str(path), settings), audit_path(PLUGINS[0], settings)]
    assert "1 unreadable" in summary(audits)
    assert summary(audits).endswith("in 2 files.")


@pytest.mark.parametrize(
    ("weights", "text"),
    [
        (Weights("none", 0, 0, None, None, None, None), "none of its own"),
        (
            Weights("embedded", 64, 2688, None, None, None, True),
            "inside the file, 2688 bytes, written to by runs",
        ),
        (Weights("appended", 16384, 1 << 20, 1 << 20, 1, True, None), "appended at offset 16384, 1.0 MiB"),
        (Weights("external", 0, 0, 2 << 30, None, None, None), "in a separate blob, 2.0 GiB wanted"),
    ],
)
def test_where_the_weights_are(weights: Weights, text: str) -> None:
    assert describe_weights(weights) == text


#: What no audit of a plain plugin may import: each costs as much as the audit, or belongs to a layer above.
TOO_DEAR = ("dataclasses", "inspect", "pathlib", "shutil", "zipfile", "elftools")
HEAVY = ("typing", "ctypes", "numpy", "torch", "concurrent.futures", "multiprocessing", "subprocess")


@pytest.mark.parametrize("form", ["text", "concise", "json"])
def test_an_audit_imports_little(form: str) -> None:
    # What the standard library's own modules import differs between Python's versions.
    script = "import argparse, json, sys; own = set(sys.modules); from aoti_inspect.command.cli import main"
    script += "; main(sys.argv[1:]); print(*set(sys.modules) - own, file=sys.stderr)"
    variables = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    command = [sys.executable, "-S", "-c", script, "--format", form, PLUGINS[0]]
    done = subprocess.run(command, capture_output=True, text=True, env=variables, timeout=60)
    loaded = set(done.stderr.split())
    assert "aoti_inspect.auditing.path" in loaded, done.stderr
    assert not loaded & {*TOO_DEAR, *HEAVY}


def test_importing_the_package_imports_nothing_else() -> None:
    script = "import sys; before = set(sys.modules); import aoti_inspect; print(*set(sys.modules) - before)"
    variables = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, env=variables, timeout=60)
    assert done.stdout.split() == ["aoti_inspect"]
