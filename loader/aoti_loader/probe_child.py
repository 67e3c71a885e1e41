"""The child of `aoti_loader.probing`: ``python -m aoti_loader.probe_child DESCRIPTOR SECONDS REQUEST``.

Writes one JSON object to the descriptor. Everything that a plugin prints goes to standard output and error,
which the parent keeps apart.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
from typing import TYPE_CHECKING, Any

from aoti_abi.errors import AotiError, ExecutionFailed, InternalError
from aoti_abi.memory import read_text

if TYPE_CHECKING:
    from aoti_loader.plugin import Plugin

_PREFIX = "AOTInductorModelContainer"
_MOST_NAMES = 1 << 20
_MAX_SPEC = 16 << 20
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


class _Asker:
    """Calls functions of one container and checks their answers."""

    def __init__(self, plugin: Plugin, device: str) -> None:
        self._plugin = plugin
        self._functions = plugin.functions
        self._words = plugin.error_reader()
        handle = ctypes.c_void_p()
        self._check(
            "CreateWithDevice",
            self._functions[f"{_PREFIX}CreateWithDevice"](
                ctypes.byref(handle), 1, device.encode("utf-8", "surrogateescape"), None
            ),
        )
        self._container = handle.value

    def _check(self, name: str, code: int) -> None:
        if code:
            raise ExecutionFailed(
                f"{_PREFIX}{name} returned {code}",
                path=self._plugin.path,
                cause=self._words(),
            )

    def has(self, *names: str) -> bool:
        return all(f"{_PREFIX}{name}" in self._functions for name in names)

    def ask(self, name: str, out: Any, *arguments: Any) -> Any:
        """Call a function whose last parameter is what it answers; return that."""
        code = self._functions[f"{_PREFIX}{name}"](self._container, *arguments, ctypes.byref(out))
        self._check(name, code)
        return out.value

    def count(self, name: str) -> int:
        count = int(self.ask(name, ctypes.c_size_t()))
        if count > _MOST_NAMES:
            raise ExecutionFailed(f"{_PREFIX}{name} answers {count}", path=self._plugin.path)
        return count

    def text(self, name: str, index: int) -> str:
        return read_text(self.ask(name, ctypes.c_void_p(), index) or 0, f"the answer of {name}({index})")

    def call_spec(self) -> tuple[str, str]:
        specs = (ctypes.c_void_p(), ctypes.c_void_p())
        function = self._functions[f"{_PREFIX}GetCallSpec"]
        self._check("GetCallSpec", function(self._container, ctypes.byref(specs[0]), ctypes.byref(specs[1])))
        texts = [read_text(item.value or 0, "the call spec", _MAX_SPEC) for item in specs]
        return texts[0], texts[1]


def _describe(plugin: Plugin, device: str) -> dict[str, Any]:
    asker = _Asker(plugin, device)
    found: dict[str, Any] = {}
    for key, what in (("inputs", "Input"), ("outputs", "Output")):
        count = asker.count(f"GetNum{what}s")
        name = f"Get{what}Name"
        found[key] = [asker.text(name, index) if asker.has(name) else str(index) for index in range(count)]
    if asker.has("GetNumConstants", "GetConstantName", "GetConstantOriginalFQN"):
        dtype, folded = asker.has("GetConstantDtype"), asker.has("GetConstantFromFolded")
        found["constants"] = [
            (
                asker.text("GetConstantName", index),
                asker.text("GetConstantOriginalFQN", index),
                asker.ask("GetConstantDtype", ctypes.c_int32(), index) if dtype else None,
                asker.ask("GetConstantFromFolded", ctypes.c_bool(), index) if folded else None,
            )
            for index in range(asker.count("GetNumConstants"))
        ]
    if asker.has("GetCallSpec"):
        found["call_spec"] = asker.call_spec()
    return found


if __name__ == "__main__":
    main(sys.argv[1:])
