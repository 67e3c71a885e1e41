"""The JSON report as records: those of the audit, and a few that only the report has.

`plain` turns any of them into dictionaries and lists, and ``docs/generate_schema.py`` writes the JSON schema
from their annotations and docstrings: a new field of a record is in both without a change here.
"""

from __future__ import annotations

from aoti_abi.features import evaluate
from aoti_abi.records import TYPE_CHECKING, NamedTuple
from aoti_inspect.auditing.result import SCHEMA_VERSION
from aoti_inspect.elf.records import ElfFacts
from aoti_inspect.facts.compiler import fingerprint
from aoti_inspect.facts.records import PluginFacts
from aoti_inspect.findings import Finding

if TYPE_CHECKING:
    from typing import Any, Literal

    from aoti_abi.errors import AotiError
    from aoti_inspect.auditing.result import ArtifactAudit, ExitCode, PluginAudit
    from aoti_inspect.facts.compiler import Fingerprint
    from aoti_inspect.facts.target import Target
    from aoti_inspect.findings import HostVerdict, NotChecked


class Tool(NamedTuple):
    """What wrote the report."""

    name: str
    version: str


class Report(NamedTuple):
    r"""What `aoti-inspect --format json` prints. Within one schema_version fields are only added.

    Bytes that are not UTF-8 appear as \xff.

    Attributes:
        schema_version: the format of the report.
        tool: what wrote it.
        target: what the artifacts were compared with; null was not compared.
        artifacts: one for each file, in the order of the command line.
        exit_code: of the command.
    """

    schema_version: Literal[1]
    tool: Tool
    target: Target
    artifacts: tuple[Artifact, ...]
    exit_code: ExitCode


class Artifact(NamedTuple):
    """One file that was audited.

    Attributes:
        path: as it was given.
        kind: "plugin", "pt2", "pte", "ptd", "folder", "zip", ...; "unreadable" if there is an error.
        error: why it could not be read at all.
        summary: lines about the package, or what the second view shows of a plugin by itself.
        findings, not_checked: of the package as a whole.
        plugins: the plugins in it.
    """

    path: str
    kind: str
    error: Error | None
    summary: tuple[Row, ...]
    findings: tuple[Finding, ...]
    not_checked: tuple[NotChecked, ...]
    plugins: tuple[Plugin, ...]


class Error(NamedTuple):
    """Why something could not be read.

    Attributes:
        code: the kind of error, by ExecuTorch's name.
        path: the file or member concerned, if it is not the artifact itself.
        message: what happened.
        cause: the words of the system or library that reported it.
        help: what to do next.
    """

    code: str
    path: str | None
    message: str
    cause: str | None
    help: str | None


class Row(NamedTuple):
    """One line of a summary."""

    label: str
    text: str


class Plugin(NamedTuple):
    """One plugin that was audited.

    Attributes:
        name: a path, or ``package!member``.
        facts: what was read of it.
        features: what a host can do with it, by the name of the feature.
        hosts: the verdict for each host.
        findings, not_checked: of this plugin, the most serious first.
    """

    name: str
    facts: Facts
    features: dict[str, Availability]
    hosts: tuple[HostVerdict, ...]
    findings: tuple[Finding, ...]
    not_checked: tuple[NotChecked, ...]


class Availability(NamedTuple):
    """A feature of one plugin.

    Attributes:
        available: whether the plugin exports every function that the feature needs.
        missing: the container functions that it lacks.
        since: the first PyTorch that emits all of them; null if none is missing.
    """

    available: bool
    missing: tuple[str, ...]
    since: str | None


class Symbols(NamedTuple):
    """The dynamic symbol table.

    Attributes:
        entries: how many there are, the null entry included.
        source: what their number was taken from: "DT_HASH", "DT_GNU_HASH" or "DT_STRTAB".
    """

    entries: int
    source: str


class Facts(NamedTuple):
    """What was read of a plugin; the fields of ``elf`` and ``plugin`` stand beside the others.

    Attributes:
        compiled_by: the PyTorch that compiled it; null if it exports no known container function.
        machine: as ``uname -m`` has it.
        bits: the ELF class, 32 or 64.
        byte_order: the ELF data encoding.
        type: ``e_type``.
        symbols: the dynamic symbol table.
        writable_and_executable_segments: how many PT_LOAD segments are both.
        has_sections: whether there is a usable section table.
        elf, plugin: the records, less `LEFT_OUT`.
    """

    compiled_by: Fingerprint | None
    machine: str
    bits: int
    byte_order: Literal["little", "big"]
    type: str
    symbols: Symbols
    writable_and_executable_segments: int
    has_sections: bool
    elf: ElfFacts
    plugin: PluginFacts


#: Fields whose own fields take their place.
INLINED: dict[type, tuple[str, ...]] = {Facts: ("elf", "plugin")}
#: Fields that are not shown: `Facts` or `Plugin` has them in another form, or readelf shows them better.
LEFT_OUT: dict[type, tuple[str, ...]] = {
    ElfFacts: ("header", "segments", "sections", "symbol_count", "symbol_count_source"),
    PluginFacts: ("name", "elf"),
}
#: Fields with another name in the report, which keeps it within a schema version.
RENAMED: dict[type, dict[str, str]] = {Finding: {"remedy": "help"}, Symbols: {"entries": "count"}}


def plain(value: object) -> object:
    """Return records as dictionaries, other tuples as lists, sets as sorted lists, at every depth."""
    if isinstance(value, tuple):
        return _fields(value) if hasattr(value, "_fields") else [plain(item) for item in value]
    if isinstance(value, frozenset):
        return sorted(value)
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    return value


def _fields(record: Any) -> dict[str, object]:
    document: dict[str, object] = {}
    kind = type(record)
    inlined, left_out, renamed = INLINED.get(kind, ()), LEFT_OUT.get(kind, ()), RENAMED.get(kind, {})
    for name, value in zip(record._fields, record, strict=True):
        if name in inlined:
            document.update(_fields(value))
        elif name not in left_out:
            document[renamed.get(name, name)] = plain(value)
    return document


def report(audits: list[ArtifactAudit], target: Target, exit_code: ExitCode, version: str) -> Report:
    """Return the whole report."""
    artifacts = tuple(_artifact(audit) for audit in audits)
    return Report(SCHEMA_VERSION, Tool("aoti-inspect", version), target, artifacts, exit_code)


def _artifact(audit: ArtifactAudit) -> Artifact:
    return Artifact(
        audit.path,
        audit.kind,
        None if audit.error is None else _error(audit.error),
        tuple(Row(label, text) for label, text in audit.summary),
        audit.findings,
        audit.not_checked,
        tuple(_plugin(plugin) for plugin in audit.plugins),
    )


def _error(error: AotiError) -> Error:
    return Error(error.code, error.path, error.message, error.cause, error.hint)


def _plugin(plugin: PluginAudit) -> Plugin:
    features = {
        state.feature.name: Availability(state.available, state.missing, state.since or None)
        for state in evaluate(frozenset(plugin.facts.elf.exports.container))
    }
    return Plugin(
        plugin.facts.name,
        facts_of(plugin.facts),
        features,
        plugin.verdicts,
        plugin.findings,
        plugin.not_checked,
    )


def facts_of(plugin: PluginFacts) -> Facts:
    """Return the facts of one plugin as the report has them."""
    elf = plugin.elf
    return Facts(
        fingerprint(plugin),
        elf.header.machine_name,
        elf.header.bits,
        elf.header.byte_order,
        elf.header.type,
        Symbols(elf.symbol_count, elf.symbol_count_source),
        sum(
            "W" in segment.flags and "E" in segment.flags
            for segment in elf.segments
            if segment.type == "LOAD"
        ),
        elf.sections is not None,
        elf,
        plugin,
    )
