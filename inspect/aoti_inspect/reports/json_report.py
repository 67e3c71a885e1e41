r"""The report for programs: one JSON document, described by ``schema/report.schema.json``.

Text from a file may hold bytes that are not UTF-8; they are written as ``\xff``, so that the document is
always valid.
"""

from __future__ import annotations

import json
import os

from aoti_abi.features import evaluate
from aoti_abi.records import TYPE_CHECKING
from aoti_inspect.auditing.result import SCHEMA_VERSION
from aoti_inspect.facts.compiler import fingerprint
from aoti_inspect.text import printable

if TYPE_CHECKING:
    from aoti_abi.errors import AotiError
    from aoti_inspect.auditing.result import ArtifactAudit, PluginAudit
    from aoti_inspect.facts.records import PluginFacts
    from aoti_inspect.facts.target import Target

Json = object


def document(audits: list[ArtifactAudit], *, version: str, target: Target, code: int) -> dict[str, Json]:
    """Return the whole report as plain dictionaries and lists."""
    return {
        "schema_version": SCHEMA_VERSION,
        "tool": {"name": "aoti-inspect", "version": version},
        "target": {
            **target._asdict(),
            "isa": None if target.isa is None else sorted(target.isa),
        },
        "artifacts": [_artifact(audit) for audit in audits],
        "exit_code": code,
    }


def dumps(value: Json, *, indent: int | None = None) -> str:
    """Serialise, in one line unless ``indent`` is given; undecodable bytes become backslash escapes."""
    text = json.dumps(value, ensure_ascii=False, indent=indent)
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return _escape_surrogates(text)
    return text


def _escape_surrogates(text: str) -> str:
    # JSON in an artifact can spell any surrogate ("\ud800"), not only those that stand for bytes. Inside a
    # JSON string the backslash itself must be escaped, so that a parser gives back "\xff" or "\ud800".
    return "".join(f"\\{printable(char)}" if 0xD800 <= ord(char) <= 0xDFFF else char for char in text)


def schema_text() -> str:
    """Return the JSON schema of the report."""
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "schema", "report.schema.json")
    with open(path, encoding="utf-8") as stream:
        return stream.read()


def _artifact(audit: ArtifactAudit) -> dict[str, Json]:
    return {
        "path": audit.path,
        "kind": audit.kind,
        "error": None if audit.error is None else _error(audit.error),
        "summary": [{"label": label, "text": text} for label, text in audit.summary],
        "findings": [finding._asdict() for finding in audit.findings],
        "not_checked": [entry._asdict() for entry in audit.not_checked],
        "plugins": [_plugin(plugin) for plugin in audit.plugins],
    }


def _error(error: AotiError) -> dict[str, Json]:
    return {
        "code": error.code,
        "path": error.path,
        "message": error.message,
        "cause": error.cause,
        "help": error.hint,
    }


def _plugin(plugin: PluginAudit) -> dict[str, Json]:
    return {
        "name": plugin.facts.name,
        "facts": facts(plugin.facts),
        "features": {
            state.feature.name: {
                "available": state.available,
                "missing": state.missing,
                "since": state.since or None,
            }
            for state in evaluate(frozenset(plugin.facts.elf.exports.container))
        },
        "hosts": [verdict._asdict() for verdict in plugin.verdicts],
        "findings": [finding._asdict() for finding in plugin.findings],
        "not_checked": [entry._asdict() for entry in plugin.not_checked],
    }


def facts(plugin: PluginFacts) -> dict[str, Json]:
    """Return the facts of one plugin; segments and sections are left to readelf."""
    elf = plugin.elf
    compiler = fingerprint(plugin)
    return {
        "size": elf.size,
        "compiled_by": None if compiler is None else compiler._asdict(),
        "machine": elf.header.machine_name,
        "bits": elf.header.bits,
        "byte_order": elf.header.byte_order,
        "type": elf.header.type,
        "soname": elf.soname,
        "needed": elf.needed,
        "rpath": elf.rpath,
        "runpath": elf.runpath,
        "interpreter": elf.interpreter,
        "flags": elf.flags,
        "build_id": elf.build_id,
        "executable_stack": elf.executable_stack,
        "writable_and_executable_segments": sum(
            "W" in s.flags and "E" in s.flags for s in elf.segments if s.type == "LOAD"
        ),
        "text_relocations": elf.text_relocations,
        "symbols": {"count": elf.symbol_count, "source": elf.symbol_count_source},
        "undefined": [symbol._asdict() for symbol in elf.undefined],
        "exports": elf.exports._asdict(),
        "version_needs": [need._asdict() for need in elf.version_needs],
        "version_definitions": elf.version_definitions,
        "has_sections": elf.sections is not None,
        "debug_info": elf.debug_info,
        "anomalies": elf.anomalies,
        "unusable": elf.unusable,
        "cxx_runtime": plugin.cxx_runtime,
        "cxx_runtime_static": plugin.cxx_runtime_static,
        "weights": plugin.weights._asdict(),
        "gpu": [image._asdict() for image in plugin.gpu],
        "metadata": plugin.metadata,
        "cubin_paths": plugin.cubin_paths,
        "inputs": [
            {
                **spec._asdict(),
                "sizes": None if spec.sizes is None else [extent._asdict() for extent in spec.sizes],
            }
            for spec in plugin.inputs
        ],
        "openmp_team": plugin.openmp_team,
    }
