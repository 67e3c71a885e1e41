"""The reports: the JSON schema, what the text leaves out, and what starting the command costs."""

from __future__ import annotations

import copy
import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jsonschema
import pytest

from aoti_inspect.artifacts.facts import read_facts
from aoti_inspect.auditing.path import audit_path
from aoti_inspect.auditing.result import ArtifactAudit, PluginAudit, Settings
from aoti_inspect.command.cli import main
from aoti_inspect.facts.records import Weights
from aoti_inspect.facts.target import Target
from aoti_inspect.findings import Finding, HostVerdict
from aoti_inspect.reports.document import plain
from aoti_inspect.reports.formats import FORMATS, Options, renderer
from aoti_inspect.reports.json_report import dumps, schema_text
from aoti_inspect.reports.text import artifact_lines, describe_weights, summary

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


def load_script(path: Path) -> Any:
    specification = importlib.util.spec_from_file_location(path.stem, path)
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


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


def test_the_schema_is_up_to_date(capsys: pytest.CaptureFixture[str]) -> None:
    generator = load_script(ROOT / "docs" / "generate_schema.py")
    assert generator.main(["--check"]) == 0, capsys.readouterr().err
    assert generator.main(["--what"]) == 2


def described(schema: Any) -> dict[str, str]:
    """Return the types of each field of the report, by its path."""
    found: dict[str, str] = {}
    kinds = {str: "string", bool: "boolean", int: "integer", type(None): "null"}

    def walk(part: Any, path: str) -> set[str]:
        if "$ref" in part:
            return walk(schema["$defs"][part["$ref"].rpartition("/")[2]], path)
        types = part.get("type", [])
        known = {types} if isinstance(types, str) else set(types)
        known |= {
            kinds[type(value)] for value in part.get("enum", [part["const"]] if "const" in part else [])
        }
        known = known.union(*(walk(other, path) for other in part.get("anyOf", [])))
        below = {f"{path}.{name}".lstrip("."): value for name, value in part.get("properties", {}).items()}
        if "items" in part:
            below[f"{path}[]"] = part["items"]
        if isinstance(part.get("additionalProperties"), dict):
            below[f"{path}.*"] = part["additionalProperties"]
        for name, value in below.items():
            found[name] = " ".join(sorted(walk(value, name)))
        return known

    walk(schema, "")
    return found


def test_fields_of_a_schema_version_stay(schema: Any) -> None:
    """Fields may be added; one that is gone, or has another type, takes a new version of the schema."""
    first = Path(__file__).with_name("report_fields.txt").read_text().splitlines()
    assert schema["properties"]["schema_version"]["const"] == 1
    now = described(schema)
    assert {line.partition(" ")[0]: line.partition(" ")[2] for line in first}.items() <= now.items()


def test_a_field_of_a_record_is_in_the_report_by_itself() -> None:
    class Grown(NamedTuple):
        name: str
        sizes: frozenset[int]
        inner: tuple[Finding, ...]

    finding = Finding("AOTI130", "compiled-by", "info", "a remark", "a remedy", ("b",))
    assert plain(Grown("x", frozenset({2, 1}), (finding,))) == {
        "name": "x",
        "sizes": [1, 2],
        "inner": [
            {
                "code": "AOTI130",
                "name": "compiled-by",
                "severity": "info",
                "message": "a remark",
                "help": "a remedy",
                "symbols": ["b"],
            }
        ],
    }


@pytest.mark.parametrize("name", FORMATS)
def test_each_format_renders_what_it_is_given(name: str) -> None:
    audits = [audit_path(path, Settings(Target(), ("builtin",))) for path in PLUGINS[:2]]
    text = renderer(name)(audits, Options(Target(), 0, info=True))
    assert text.endswith("\n")
    assert all(path in text for path in PLUGINS[:2])


def test_each_module_of_a_report_is_a_format() -> None:
    folder = ROOT / "inspect" / "aoti_inspect" / "reports"
    modules = {path.stem for path in folder.glob("*.py") if "\ndef render(" in path.read_text()}
    assert modules == set(FORMATS.values())


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
    facts = read_facts(PLUGINS[0])
    rows = (
        verdict("builtin", "loads"),
        verdict("torch==2.6", "will not load", "torch==2.6 lacks 1 symbol"),
        verdict("torch==2.7", "will not load", "torch==2.7 lacks 1 symbol"),
        verdict("torch==2.8", "loads"),
        verdict("executorch", "loads"),
    )
    audit = ArtifactAudit("x.so", "plugin", (PluginAudit(facts, (), (), rows),))
    text = "\n".join(artifact_lines(audit))
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
    facts = read_facts(PLUGINS[0])
    finding = Finding("AOTI130", "compiled-by", "info", "a remark")
    audit = ArtifactAudit("x.so", "plugin", (PluginAudit(facts, (finding,), (), ()),))
    assert "a remark" not in "\n".join(artifact_lines(audit))
    assert "a remark" in "\n".join(artifact_lines(audit, verbose=1))


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
            "inside the file, 2688 bytes, modified by runs",
        ),
        (Weights("appended", 16384, 1 << 20, 1 << 20, 1, True, None), "appended at offset 16384, 1.0 MiB"),
        (Weights("external", 0, 0, 2 << 30, None, None, None), "in a separate blob, 2.0 GiB expected"),
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
