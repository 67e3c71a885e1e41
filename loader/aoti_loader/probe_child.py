"""The child of `aoti_loader.probing`: ``python -m aoti_loader.probe_child DESCRIPTOR SECONDS REQUEST``.

Writes one JSON object to the descriptor. Everything that a plugin prints goes to standard output and error,
which the parent keeps apart.
"""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING, Any

from aoti_abi.errors import AotiError, InternalError
from aoti_loader.container import OpenContainer

if TYPE_CHECKING:
    from aoti_loader.plugin import Plugin

_MOST_WRITTEN = 1 << 30


def main(arguments: list[str]) -> None:
    """Answer one request."""
    descriptor, seconds, text = int(arguments[0]), float(arguments[1]), arguments[2]
    request = json.loads(text)
    _limit(seconds, request["memory"])
    try:
        answer = _answer(request)
    except AotiError as error:
        answer = {"outcome": "refused", "error": _fields(error)}
    except MemoryError:
        limit = InternalError("the child process ran out of memory", path=request["path"])
        answer = {"outcome": "refused", "error": _fields(limit)}
    with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
        json.dump(answer, stream)
    # Destructors of a plugin that is at odds with the process are none of the answer.
    os._exit(0)


def _limit(seconds: float, memory: int | None) -> None:
    import resource

    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    threads = os.cpu_count() or 1
    processor = max(1, int(seconds * threads) + 1)
    resource.setrlimit(resource.RLIMIT_CPU, (processor, processor + 1))
    # What a plugin prints lands in a file; one that prints without end is killed before the disk is full.
    resource.setrlimit(resource.RLIMIT_FSIZE, (_MOST_WRITTEN, _MOST_WRITTEN))
    if memory is not None:
        resource.setrlimit(resource.RLIMIT_AS, (memory, memory))


def _fields(error: AotiError) -> dict[str, str | None]:
    return {
        "kind": type(error).__name__,
        "message": error.message,
        "path": error.path,
        "cause": error.cause,
        "hint": error.hint,
    }


def _answer(request: dict[str, Any]) -> dict[str, Any]:
    from aoti_loader.loading import load

    plugin = load(request["path"], host=request["host"], warn=False, **request["options"])
    answer: dict[str, Any] = {
        "outcome": "loads",
        "host": plugin.host.name,
        "host_path": plugin.host.path,
        "features": {name: state.available for name, state in plugin.features.items()},
        "mends": [mend.name for mend in plugin.mends],
    }
    try:
        answer.update(_describe(plugin, request["device"]))
    except AotiError as error:
        answer["error"] = _fields(error)
    return answer


def _describe(plugin: Plugin, device: str) -> dict[str, Any]:
    container = OpenContainer(plugin, device=device)
    found: dict[str, Any] = {
        "inputs": container.names("Input", container.count("Inputs")),
        "outputs": container.names("Output", container.count("Outputs")),
        "call_spec": container.call_spec(),
    }
    rows = container.constants()
    if rows is not None:
        found["constants"] = [(row.name, row.fqn, row.dtype, row.folded) for row in rows]
    return found


if __name__ == "__main__":
    main(sys.argv[1:])
