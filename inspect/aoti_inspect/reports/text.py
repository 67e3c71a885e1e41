"""The report for people."""

from __future__ import annotations

from aoti_abi.records import TYPE_CHECKING
from aoti_abi.versions import parse_version
from aoti_inspect.facts.compiler import fingerprint
from aoti_inspect.facts.processor import encoding_title
from aoti_inspect.reports.terminal import wrapped
from aoti_inspect.text import printable
from aoti_inspect.wording import counted, listed, sized

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from aoti_abi.errors import AotiError
    from aoti_inspect.auditing.result import ArtifactAudit, PluginAudit
    from aoti_inspect.facts.instruction_sets import InstructionUse
    from aoti_inspect.facts.records import PluginFacts, Weights
    from aoti_inspect.findings import Finding, HostVerdict
    from aoti_inspect.reports.formats import Options

    Paint = Callable[[str, str], str]

_COLORS = {"error": "31;1", "warning": "33;1", "info": "36", "good": "32", "dim": "2", "bold": "1"}
_OUTCOME_COLOR = {
    "loads": "good",
    "loads with fallbacks": "good",
    "will not load": "error",
    "not checked": "warning",
}
_LABEL_WIDTH = 11
#: Symbols listed under a finding with ``-v``; all of them are in the JSON report.
_SYMBOLS_SHOWN = 200
#: Inputs named without ``-v``.
_INPUTS_SHOWN = 4


def painter(color: bool) -> Paint:
    """Return the function that wraps text in the escape codes of a style, or leaves it alone."""
    if color:
        return lambda style, text: f"\x1b[{_COLORS[style]}m{text}\x1b[0m"
    return lambda _style, text: text


def render(audits: list[ArtifactAudit], options: Options) -> str:
    """Return the report of all artifacts, each after an empty line, with a closing line that counts."""
    color, quiet, info = options.color, options.quiet, options.info
    lines: list[str] = []
    for audit in audits:
        block = list(artifact_lines(audit, color=color, quiet=quiet, verbose=options.verbose, info=info))
        if block and lines:
            lines.append("")
        lines += block
    if not quiet:
        lines += ["", summary(audits, color=color, info=info)]
    if options.width is not None:
        lines = [part for line in lines for part in wrapped(line, options.width)]
    return "".join(f"{line}\n" for line in lines)


def artifact_lines(
    audit: ArtifactAudit, *, color: bool = False, quiet: bool = False, verbose: int = 0, info: bool = False
) -> Iterator[str]:
    """Yield the lines of one artifact's report.

    Args:
        audit: what was found.
        color: whether to use terminal colours.
        quiet: only findings, errors and what was not checked, below the name of what they are about.
        verbose: 1 adds the symbols behind each finding and the notes of each verdict, 2 the file's details.
        info: whether to show findings of severity info; ``verbose`` does too.
    """
    paint = painter(color)
    hidden = "" if info or verbose else "info"
    path = printable(audit.path)
    if audit.error is not None:
        yield from _error(audit.error, path, paint)
        return
    if audit.kind != "plugin" and not quiet:
        yield f"{paint('bold', path)}: {audit.kind}, {counted(len(audit.plugins), 'plugin')}"
        for label, text in audit.summary:
            yield _row(printable(label), printable(text))
    found = _found(audit, hidden, paint, verbose)
    if quiet and found:
        yield paint("bold", path)
    yield from found
    for plugin in audit.plugins:
        if audit.kind != "plugin" and not quiet:
            yield ""
        beside = audit.summary if audit.kind == "plugin" else ()
        yield from _plugin(plugin, beside, paint, hidden, quiet=quiet, verbose=verbose)


def summary(audits: list[ArtifactAudit], *, color: bool = False, info: bool = False) -> str:
    """Return the closing line: what was found in all artifacts together, with ``info`` all severities."""
    paint = painter(color)
    findings = [finding for audit in audits for finding in audit.all_findings()]
    unreadable = sum(audit.error is not None for audit in audits)
    unchecked = sum(len(audit.all_not_checked()) for audit in audits)
    errors = sum(finding.severity == "error" for finding in findings)
    warnings = sum(finding.severity == "warning" for finding in findings)
    parts = []
    if errors:
        parts.append(paint("error", counted(errors, "error")))
    if warnings:
        parts.append(paint("warning", counted(warnings, "warning")))
    notes = sum(finding.severity == "info" for finding in findings)
    if info and notes:
        parts.append(paint("info", f"{notes} info"))
    if unreadable:
        parts.append(paint("error", f"{unreadable} unreadable"))
    if unchecked:
        parts.append(paint("warning", f"{unchecked} not checked"))
    files = f" in {len(audits)} files" if len(audits) > 1 else ""
    if not parts:
        return paint("good", f"No problems found{files}.")
    return f"Found {', '.join(parts)}{files}."


def _plugin(
    plugin: PluginAudit,
    beside: tuple[tuple[str, str], ...],
    paint: Paint,
    hidden: str,
    *,
    quiet: bool,
    verbose: int,
) -> Iterator[str]:
    """Yield the lines of one plugin; ``beside`` are rows that its facts don't have."""
    facts = plugin.facts
    name = printable(facts.name)
    if not quiet:
        yield f"{paint('bold', name)}: {describe(facts)}"
        for label, text in (*_facts_rows(facts, verbose), *beside):
            yield _row(label, printable(text))
        yield from _verdicts(plugin.verdicts, paint, verbose)
    found = _found(plugin, hidden, paint, verbose)
    if quiet and found:
        yield paint("bold", name)
    yield from found


def describe(facts: PluginFacts) -> str:
    """Return a line such as ``AOTInductor plugin for x86_64, compiled by PyTorch 2.13, 361 KiB``."""
    elf = facts.elf
    compiler = fingerprint(facts)
    what = "not an AOTInductor plugin"
    by = ""
    if compiler is not None:
        what = "AOTInductor plugin"
        by = f", compiled by PyTorch {compiler.range}"
    return f"{what} for {elf.header.machine_name}{by}, {sized(elf.size)}"


def _facts_rows(facts: PluginFacts, verbose: int) -> Iterator[tuple[str, str]]:
    elf = facts.elf
    metadata = facts.metadata or {}
    device = metadata.get("AOTI_DEVICE_KEY")
    isa = metadata.get("AOTI_CPU_ISA")
    if device or isa:
        parts = [device or "", f"instruction set {isa}" if isa else ""]
        yield "device", ", ".join(filter(None, parts))
    yield "exports", f"{len(elf.exports.container)} container functions, {elf.exports.total} symbols in all"
    shims = len(facts.imports.of("shim"))
    yield "imports", f"{counted(shims, 'host shim')}, {len(elf.undefined)} symbols in all"
    yield "libraries", ", ".join(elf.needed) or "none named"
    floors = newest_versions(facts)
    if floors:
        yield "versions", ", ".join(floors)
    yield from _inputs(facts, verbose)
    yield "weights", describe_weights(facts.weights)
    if facts.gpu:
        yield "gpu code", ", ".join(_gpu(facts))
    if verbose and facts.instructions:
        yield "code", "; ".join(map(describe_code, facts.instructions))
    if verbose and facts.openmp_team is not None:
        yield "openmp", f"teams of up to {counted(facts.openmp_team, 'thread')} are safe"
    if verbose >= 2:
        yield "build id", elf.build_id or "none"
        yield "symbols", f"{elf.symbol_count} by {elf.symbol_count_source}"
        if elf.flags:
            yield "flags", " ".join(elf.flags)
        for need in elf.version_needs:
            yield "", f"{need.library} {need.version}: {', '.join(need.symbols) or 'no symbol'}"


def _inputs(facts: PluginFacts, verbose: int) -> Iterator[tuple[str, str]]:
    """Yield what is known of the inputs: one row, with ``-v`` all of them."""
    specs = list(map(str, facts.inputs))
    shown = specs if verbose else specs[:_INPUTS_SHOWN]
    if shown:
        more = len(specs) - len(shown)
        yield "inputs", ", ".join(shown) + (f" and {more} more" if more else "")


def newest_versions(facts: PluginFacts) -> list[str]:
    """Return the newest version of each versioned library interface, as ``GLIBC 2.34``."""
    newest: dict[str, tuple[tuple[int, ...], str]] = {}
    for need in facts.elf.version_needs:
        prefix, underscore, number = need.version.rpartition("_")
        try:
            key = parse_version(number)
        except ValueError:
            continue
        if underscore and (prefix not in newest or newest[prefix][0] < key):
            newest[prefix] = (key, number)
    return [f"{prefix} {number}" for prefix, (_key, number) in sorted(newest.items())]


def describe_weights(weights: Weights) -> str:
    """Return where the constants are, in a few words."""
    if weights.kind == "none":
        return "none of its own"
    if weights.kind == "external":
        required = f", {sized(weights.required)} expected" if weights.required is not None else ""
        return f"in a separate blob{required}"
    where = "inside the file" if weights.kind == "embedded" else f"appended at offset {weights.offset}"
    return f"{where}, {sized(weights.size)}{', modified by runs' if weights.mutable else ''}"


def describe_code(use: InstructionUse) -> str:
    """Return what a search for instructions came to, in a few words."""
    what = encoding_title(use.encoding)
    if use.outcome == "none":
        return f"no {what} instructions"
    if use.outcome == "not checked":
        return f"{what} not checked: {use.reason}"
    asks = ", and asks the processor (CPUID)" if use.dispatched else ""
    return f"{what} instructions in {listed(use.functions)}{asks}"


def _gpu(facts: PluginFacts) -> list[str]:
    counts: dict[str, int] = {}
    for image in facts.gpu:
        arch = image.architecture or "?"
        label = f"sm_{arch} machine code" if image.kind == "cubin" else f"PTX for compute_{arch}"
        counts[label] = counts.get(label, 0) + 1
    parts = [f"{label} x {count}" if count > 1 else label for label, count in sorted(counts.items())]
    if not any(image.kind == "ptx" for image in facts.gpu):
        parts.append("no PTX")
    return parts


def _verdicts(verdicts: tuple[HostVerdict, ...], paint: Paint, verbose: int) -> Iterator[str]:
    """Show the table of hosts; versions of PyTorch that share one verdict share one line."""
    rows: list[tuple[list[str], HostVerdict]] = []
    for verdict in verdicts:
        same = rows and rows[-1][1][1:] == _without_own_name(verdict, rows[-1][1]) and "==" in verdict.host
        if same and "==" in rows[-1][0][0]:
            rows[-1][0].append(verdict.host)
        else:
            rows.append(([verdict.host], verdict))
    labels = [_range(hosts) for hosts, _ in rows]
    width = max(map(len, labels), default=0)
    if rows:
        yield _row("hosts", "").rstrip()
    for label, (_hosts, verdict) in zip(labels, rows, strict=True):
        text = paint(_OUTCOME_COLOR[verdict.outcome], verdict.outcome)
        tail = ""
        if verdict.reasons:
            tail = f": {verdict.reasons[0]}"
            if len(verdict.reasons) > 1 and not verbose:
                tail += f" (and {len(verdict.reasons) - 1} more)"
        elif verdict.lost_features:
            tail = f": without {', '.join(verdict.lost_features)}"
        yield f"    {printable(label):{width}}  {text}{printable(tail)}"
        extra = list(verdict.reasons[1:]) if verbose else []
        extra += verdict.notes if verbose or verdict.outcome.startswith("loads") else []
        extra += verdict.libraries if verbose else []
        for line in extra:
            yield f"    {'':{width}}  {paint('dim', '- ' + printable(line))}"


def _without_own_name(verdict: HostVerdict, other: HostVerdict) -> tuple[object, ...]:
    """Return the fields of a verdict with its own host's name replaced by the other's, for comparison."""
    return (
        verdict.outcome,
        tuple(reason.replace(verdict.host, other.host) for reason in verdict.reasons),
        *verdict[3:],
    )


def _range(hosts: list[str]) -> str:
    if len(hosts) == 1:
        return hosts[0]
    return f"{hosts[0]} to {hosts[-1].partition('==')[2]}"


def _findings(findings: Iterable[Finding], paint: Paint, verbose: int) -> Iterator[str]:
    for finding in findings:
        head = f"{paint(finding.severity, f'{finding.severity}[{finding.code}]')} {finding.name}"
        yield f"  {head}: {printable(finding.message)}"
        if verbose and finding.symbols:
            for symbol in finding.symbols[:_SYMBOLS_SHOWN]:
                yield f"      {paint('dim', printable(symbol))}"
            if len(finding.symbols) > _SYMBOLS_SHOWN:
                more = f"and {len(finding.symbols) - _SYMBOLS_SHOWN} more in the JSON report"
                yield f"      {paint('dim', more)}"
        if finding.remedy:
            yield f"    help: {printable(finding.remedy)}"


def _found(audit: ArtifactAudit | PluginAudit, hidden: str, paint: Paint, verbose: int) -> list[str]:
    shown = (finding for finding in audit.findings if finding.severity != hidden)
    lines = list(_findings(shown, paint, verbose))
    return lines + [_unchecked(entry.code, entry.name, entry.reason, paint) for entry in audit.not_checked]


def _error(error: AotiError, name: str, paint: Paint) -> Iterator[str]:
    cause = f" ({printable(error.cause)})" if error.cause else ""
    verdict = paint("error", "cannot be checked")
    yield f"{paint('bold', name)}: {verdict}: {printable(error.message)}{cause}"
    if error.hint:
        yield f"  help: {printable(error.hint)}"


def _unchecked(code: str, name: str, reason: str, paint: Paint) -> str:
    return f"  {paint('warning', f'not checked[{code}]')} {name}: {printable(reason)}"


def _row(label: str, text: str) -> str:
    return f"  {label:{_LABEL_WIDTH - 1}} {text}"
