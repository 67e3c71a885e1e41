"""The JSON that lists what a plugin calls through its host: custom operators and custom objects.

A plugin can't call an operator that has no C shim; it hands the call to the host's proxy executor, which
finds the operator by the node of that index in ``<stem>.json``
(``torch/_inductor/extern_node_serializer.py``).
"""

from __future__ import annotations

from aoti_abi.errors import InvalidProgram
from aoti_abi.records import NamedTuple


class ExternNodes(NamedTuple):
    """What a plugin needs its host's dispatcher for.

    Attributes:
        operators: full names ("mylib::scale.default"), sorted, without repeats.
        custom_objects: names of script objects that are arguments, sorted.
        calls: how many calls there are.
    """

    operators: tuple[str, ...]
    custom_objects: tuple[str, ...]
    calls: int


def parse_extern_nodes(data: memoryview, name: str) -> ExternNodes:
    """Read the list.

    Raises:
        InvalidProgram: it is not JSON of that form.
    """
    content = load_json(data, name)
    nodes = content.get("nodes") if isinstance(content, dict) else None
    if not isinstance(nodes, list):
        raise InvalidProgram("it lists no nodes", path=name)
    operators: set[str] = set()
    objects: set[str] = set()
    for entry in nodes:
        node = entry.get("node") if isinstance(entry, dict) else None
        target = node.get("target") if isinstance(node, dict) else None
        if not isinstance(node, dict) or not isinstance(target, str):
            raise InvalidProgram("one of its nodes names no operator", path=name)
        operators.add(_operator_name(target))
        inputs = node.get("inputs")
        for item in inputs if isinstance(inputs, list) else []:
            argument = item.get("arg") if isinstance(item, dict) else None
            custom = argument.get("as_custom_obj") if isinstance(argument, dict) else None
            if isinstance(custom, dict) and isinstance(custom.get("name"), str):
                objects.add(custom["name"])
    return ExternNodes(tuple(sorted(operators)), tuple(sorted(objects)), len(nodes))


def _operator_name(target: str) -> str:
    """Return ``namespace::name.overload`` for how the serializer or PyTorch's dispatcher writes it."""
    parts = target.removeprefix("torch.ops.").split(".")
    if "::" in target or len(parts) < 2:
        return target
    return f"{parts[0]}::{'.'.join(parts[1:])}"


def load_json(data: memoryview, name: str) -> object:
    """Parse JSON from an untrusted member.

    Raises:
        InvalidProgram: it is not UTF-8 or not JSON, or nests too deeply.
    """
    import json

    try:
        return json.loads(bytes(data))
    except (ValueError, RecursionError) as error:
        raise InvalidProgram("it is not valid JSON", path=name, cause=str(error)) from None
