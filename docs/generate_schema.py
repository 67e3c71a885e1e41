"""Write the JSON schema of the report from the records that it is made of.

``python docs/generate_schema.py`` writes it; ``--check`` writes nothing and fails if it is out of date. Types
come from the records' annotations, descriptions from their docstrings. The sources are parsed and not
imported, since what annotations name is imported for type checkers only.
"""

from __future__ import annotations

import ast
import json
import re
import sys
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
SCHEMA = ROOT / "inspect" / "aoti_inspect" / "reports" / "schema" / "report.schema.json"
FOLDERS = (ROOT / "abi", ROOT / "inspect")
sys.path[:0] = map(str, FOLDERS)

from aoti_inspect.reports import document  # noqa: E402 - found through the path above

Schema = dict[str, Any]
TYPES = {"str": "string", "int": "integer", "bool": "boolean", "float": "number"}
CONTAINERS = {"tuple", "frozenset", "list"}


@cache
def source(module: str) -> ast.Module:
    """Return the syntax tree of a module of the toolkit."""
    name = module.replace(".", "/")
    for folder in FOLDERS:
        for path in (folder / f"{name}.py", folder / name / "__init__.py"):
            if path.exists():
                return ast.parse(path.read_text(encoding="utf-8"))
    raise LookupError(f"no module {module}")


def resolve(module: str, name: str) -> tuple[str, ast.ClassDef | ast.expr]:
    """Return what a name of a module stands for, and in which module that is: a class or an alias."""
    for node in ast.walk(source(module)):
        if isinstance(node, ast.ClassDef) and node.name == name:
            return module, node
        if isinstance(node, ast.Assign) and any(
            isinstance(t, ast.Name) and t.id == name for t in node.targets
        ):
            return module, node.value
        if isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                if name == (alias.asname or alias.name):
                    return resolve(node.module, alias.name)
    raise LookupError(f"{module} has no {name}")


class Writer:
    """Collects the schemas of records as they are referred to."""

    def __init__(self) -> None:
        self.definitions: dict[str, Schema] = {}
        self._owners: dict[str, tuple[str, str]] = {}

    def of(self, module: str, annotation: ast.expr) -> Schema:
        """Return the schema of a type, as it is written in a module."""
        if isinstance(annotation, ast.BinOp):
            return _either(self.of(module, annotation.left), self.of(module, annotation.right))
        if isinstance(annotation, ast.Subscript):
            return self._generic(module, annotation)
        if isinstance(annotation, ast.Constant):
            if annotation.value is None:
                return {"type": "null"}
            return self.of(module, ast.parse(annotation.value, mode="eval").body)
        if not isinstance(annotation, ast.Name):
            raise TypeError(f"{module}: no schema for {ast.unparse(annotation)}")
        if annotation.id in TYPES:
            return {"type": TYPES[annotation.id]}
        home, found = resolve(module, annotation.id)
        return self._reference(home, found) if isinstance(found, ast.ClassDef) else self.of(home, found)

    def _generic(self, module: str, annotation: ast.Subscript) -> Schema:
        name, argument = ast.unparse(annotation.value), annotation.slice
        parts = argument.elts if isinstance(argument, ast.Tuple) else [argument]
        if name == "Literal":
            return _literal([ast.literal_eval(part) for part in parts])
        if name == "dict":
            return {"type": "object", "additionalProperties": self.of(module, parts[1])}
        several = len(parts) == 1 or ast.unparse(parts[1]) == "..."
        if name in CONTAINERS and several:
            return {"type": "array", "items": self.of(module, parts[0])}
        if name == "tuple":
            items = [self.of(module, part) for part in parts]
            return {"type": "array", "prefixItems": items, "minItems": len(items), "maxItems": len(items)}
        raise TypeError(f"{module}: no schema for {ast.unparse(annotation)}")

    def _reference(self, module: str, record: ast.ClassDef) -> Schema:
        name = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", record.name).lower()
        owner = (module, record.name)
        if self._owners.setdefault(name, owner) != owner:
            raise TypeError(f"two records are called {name}: {owner} and {self._owners[name]}")
        if name not in self.definitions:
            self.definitions[name] = {}
            self.definitions[name] = self.record(module, record)
        return {"$ref": f"#/$defs/{name}"}

    def record(self, module: str, record: ast.ClassDef) -> Schema:
        """Return the schema of a record, each of whose fields is always there."""
        summary, described = _docstring(ast.get_docstring(record) or "")
        properties = self._properties(module, record, described)
        return {
            "description": summary,
            "type": "object",
            "properties": properties,
            "required": list(properties),
        }

    def _properties(self, module: str, record: ast.ClassDef, described: dict[str, str]) -> dict[str, Schema]:
        properties: dict[str, Schema] = {}
        for node in _body(module, record):
            if not (isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)):
                continue
            name = node.target.id
            if name in _exceptions(document.LEFT_OUT, module, record, ()):
                continue
            if name in _exceptions(document.INLINED, module, record, ()):
                home, inner = resolve(module, ast.unparse(node.annotation))
                if not isinstance(inner, ast.ClassDef):
                    raise TypeError(f"{module}: {name} is no record")
                properties |= self._properties(home, inner, _docstring(ast.get_docstring(inner) or "")[1])
                continue
            schema = self.of(module, node.annotation)
            if name in described:
                schema = {**schema, "description": described[name]}
            properties[_exceptions(document.RENAMED, module, record, {}).get(name, name)] = schema
        return properties


def _body(module: str, record: ast.ClassDef) -> list[ast.stmt]:
    """Return what a class and its bases hold: a record with methods has its fields in a base of its own."""
    bases = [base.id for base in record.bases if isinstance(base, ast.Name) and base.id != "NamedTuple"]
    found = [resolve(module, base)[1] for base in bases]
    return [node for base in found if isinstance(base, ast.ClassDef) for node in base.body] + record.body


def _exceptions(table: dict[type, Any], module: str, record: ast.ClassDef, none: Any) -> Any:
    """Return what a table of `aoti_inspect.reports.document` has for a record."""
    for kind, value in table.items():
        if (kind.__module__, kind.__name__) == (module, record.name):
            return value
    return none


def _literal(values: list[object]) -> Schema:
    return {"const": values[0]} if len(values) == 1 else {"enum": values}


def _either(left: Schema, right: Schema) -> Schema:
    """Return the schema of a union, without ``anyOf`` where a list of types or values says the same."""
    if "enum" in left and right == {"type": "null"}:
        return {"enum": [*left["enum"], None]}
    if "type" in left and right == {"type": "null"}:
        kinds = left["type"] if isinstance(left["type"], list) else [left["type"]]
        return {**left, "type": [*kinds, "null"]}
    return {"anyOf": [*left.get("anyOf", [left]), right]}


def _docstring(text: str) -> tuple[str, dict[str, str]]:
    """Return the text before ``Attributes:``, and the description of each attribute."""
    summary, _, attributes = text.partition("\nAttributes:\n")
    described: dict[str, str] = {}
    for entry in re.split(r"\n(?=    \S)", f"\n{attributes}"):
        names, colon, words = entry.strip().partition(": ")
        if colon:
            for name in names.split(", "):
                described[name] = _plain(words)
    return _plain(summary), described


def _plain(text: str) -> str:
    return " ".join(text.replace("``", "`").split())


def schema_text() -> str:
    """Return the schema as it is written to the file."""
    writer = Writer()
    home, report = resolve(document.__name__, "Report")
    assert isinstance(report, ast.ClassDef)
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "aoti-inspect report",
        **writer.record(home, report),
        "$defs": writer.definitions,
    }
    return json.dumps(schema, indent=2) + "\n"


def main(arguments: list[str]) -> int:
    """Write the schema, or with ``--check`` compare it."""
    if arguments not in ([], ["--check"]):
        sys.stderr.write("usage: generate_schema.py [--check]\n")
        return 2
    wanted = schema_text()
    if arguments:
        if SCHEMA.read_text(encoding="utf-8") != wanted:
            sys.stderr.write(f"{SCHEMA.name} is out of date: run python docs/generate_schema.py\n")
            return 1
        return 0
    SCHEMA.write_text(wanted, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
