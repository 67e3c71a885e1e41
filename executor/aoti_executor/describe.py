"""What a loaded model is, as text for people."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aoti_abi.container_api import compiled_by
from aoti_inspect.text import printable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aoti_executor.constants import Constant
    from aoti_executor.model import Model


def constants_table(constants: Sequence[Constant]) -> str:
    """Return the constants as a table: name, FQN, dtype, shape, bytes, type, device."""
    head = ("name", "fqn", "dtype", "shape", "bytes", "type", "device")
    rows = [head]
    for constant in constants:
        shape = "?" if constant.shape is None else str(list(constant.shape))
        rows.append(
            (
                printable(constant.name),
                printable(constant.fqn),
                constant.dtype_name,
                "(folded)" if constant.folded else shape,
                "?" if constant.nbytes < 0 else str(constant.nbytes),
                constant.type or "?",
                constant.device or "?",
            )
        )
    widths = [max(len(row[column]) for row in rows) for column in range(len(head))]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    ]
    total = sum(constant.nbytes for constant in constants if not constant.folded and constant.nbytes > 0)
    return "\n".join([*lines, f"{len(constants)} constants, {total} bytes"])


def describe_model(model: Model) -> str:
    """Return what a model is and takes, one fact a line."""
    container, plugin = model.container, model.plugin
    compiler = compiled_by(frozenset(plugin.facts.elf.exports.container))
    version = "unknown"
    if compiler is not None:
        same = compiler.oldest == compiler.newest
        version = compiler.oldest if same else f"{compiler.oldest} to {compiler.newest}"
    lines = [
        f"plugin: {printable(plugin.path)}",
        f"compiled by: PyTorch {version}",
        f"host: {plugin.host.name} ({plugin.host.path})",
        f"device: {container.device}",
    ]
    names = model.argument_names()
    specs = [str(model.inputs[model.plugin_index(index)]) for index in range(container.num_inputs)]
    unknown = " (?: not recorded in the plugin)" if any("?" in spec for spec in specs) else ""
    lines.append(f"inputs: {container.num_inputs}{unknown}")
    lines += [f"  {printable(known[0])}: {spec}" for known, spec in zip(names, specs, strict=True)]
    lines.append(f"outputs: {container.num_outputs}")
    constants = container.weights.table
    if constants is None:
        lines.append("constants: not told")
    else:
        total = sum(c.nbytes for c in constants if not c.folded and c.nbytes > 0)
        lines.append(f"constants: {len(constants)}, {total} bytes")
    unbound = container.weights.unbound
    if unbound:
        lines.append(f"without a value: {', '.join(printable(c.fqn or c.name) for c in unbound)}")
    limit = container.max_threads
    lines.append(f"largest OpenMP team: {limit or 'any'}")
    checks = "by the toolkit and the plugin" if model.plugin_checks else "by the toolkit"
    lines.append(f"inputs are checked: {checks if model.check_inputs else 'no'}")
    lost = [state.feature.name for state in plugin.features.values() if state.lost]
    lines.append(f"features it lacks: {', '.join(lost) or 'none'}")
    return "\n".join(lines)
