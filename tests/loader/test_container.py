"""What a container tells of itself, and what becomes of answers that are none."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any

import pytest

import aoti_loader
from aoti_abi.errors import ExecutionFailed, InvalidProgram, InvalidState, NotSupported
from aoti_abi.symbols import CONTAINER, LAST_ERROR
from aoti_loader.container import ConstantRow, OpenContainer, read_last_error

if TYPE_CHECKING:
    from collections.abc import Callable


class Library:
    """A plugin whose functions are Python's, with answers to give.

    Args:
        answers: by function name, what it gives: numbers, or bytes for a text.
        host: the host's words for the last error.
    """

    path = "model.so"

    def __init__(self, answers: dict[str, Any], *, host: str | None = None) -> None:
        self._texts: list[ctypes.Array[ctypes.c_char]] = []
        self._host = host
        self.lost: list[str] = []
        create = {f"{CONTAINER}CreateWithDevice": lambda out, *_: self._give(out, 7)}
        self.functions: dict[str, Any] = create | {
            (name if name.startswith("AOTInductor") else CONTAINER + name): self._function(answer)
            for name, answer in answers.items()
        }

    @property
    def host(self) -> Library:
        return self

    def last_error(self) -> str | None:
        return self._host

    def warn_fallback(self, feature: str) -> None:
        self.lost.append(feature)

    def _function(self, answer: Any) -> Any:
        if callable(answer):
            return answer
        if isinstance(answer, list):
            return lambda _handle, index, out: self._give(out, answer[index])
        if isinstance(answer, tuple):
            return lambda _handle, *outs: [self._give(*pair) for pair in zip(outs, answer, strict=True)] and 0
        return lambda *arguments: self._give(arguments[-1], answer)

    def _give(self, out: Any, value: Any) -> int:
        if isinstance(value, bytes):
            self._texts.append(ctypes.create_string_buffer(value))
            value = ctypes.addressof(self._texts[-1])
        out._obj.value = value
        return 0


def test_answers_are_handed_on() -> None:
    library = Library(
        {
            "GetNumInputs": 2,
            "GetNumOutputs": 1,
            "GetInputName": [b"x", b"y"],
            "GetNumConstants": 1,
            "GetConstantName": [b"a_weight"],
            "GetConstantOriginalFQN": [b"a.weight"],
            "GetConstantDtype": [6],
            "GetConstantDataSize": [64],
            "GetConstantType": [1],
            "GetConstantFromFolded": [False],
            "GetCallSpec": (b"[1]", b"[2]"),
        }
    )
    container = OpenContainer(library)
    assert container.address == 7
    assert container.names("Input", container.count("Inputs")) == ("x", "y")
    assert container.names("Output", container.count("Outputs")) == ("output0",)
    assert container.constants() == (ConstantRow(0, "a_weight", "a.weight", 6, 64, "Parameter", False),)
    assert container.call_spec() == ("[1]", "[2]")


def test_what_an_old_plugin_lacks_is_none() -> None:
    library = Library({"GetNumConstants": 1, "GetConstantName": [b"a"]})
    container = OpenContainer(library)
    assert container.constants() == (ConstantRow(0, "a", "", None, None, None, None),)
    assert container.call_spec() is None
    assert OpenContainer(Library({})).constants() is None
    with pytest.raises(NotSupported, match="does not export AOTInductorModelContainerGetNumInputs"):
        container.count("Inputs")
    assert library.lost == ["run"]


@pytest.mark.parametrize(
    ("answers", "words"),
    [
        ({"GetNumInputs": 1 << 40}, "claims 1099511627776 inputs"),
        ({"GetNumInputs": 1, "GetInputName": [0]}, "name of input 0 is null"),
        ({"GetNumInputs": 1, "GetInputName": [8]}, "runs out of readable memory"),
        ({"GetNumInputs": 1, "GetInputName": [b"\xff"]}, "name of input 0 is not UTF-8"),
        ({"GetNumConstants": 1 << 40, "GetConstantName": []}, "claims 1099511627776 constants"),
        ({"GetNumConstants": 2, "GetConstantName": [b"a", b"a"]}, "two constants named 'a'"),
        ({"GetNumConstants": 1, "GetConstantName": [0]}, "constant 0's name is null"),
        ({"GetCallSpec": (b"\xff", b"")}, "call spec is not UTF-8"),
    ],
)
def test_answers_that_are_none_are_refused(answers: dict[str, Any], words: str) -> None:
    container = OpenContainer(Library(answers))

    def ask_all() -> None:
        if "GetNumInputs" in answers:
            container.names("Input", container.count("Inputs"))
        container.constants()
        container.call_spec()

    with pytest.raises(InvalidProgram, match=words):
        ask_all()


def test_an_error_has_the_words_of_plugin_and_host_each_once() -> None:
    library = Library(
        {"GetNumInputs": lambda *_: 1, LAST_ERROR: b" no \xff such thing\n"}, host="out of memory"
    )
    with pytest.raises(ExecutionFailed, match="GetNumInputs returned 1") as caught:
        OpenContainer(library).count("Inputs")
    assert caught.value.cause == "no \N{REPLACEMENT CHARACTER} such thing; out of memory"
    library = Library({"GetNumInputs": lambda *_: 1, LAST_ERROR: b"same"}, host="same")
    with pytest.raises(ExecutionFailed) as caught:
        OpenContainer(library).count("Inputs")
    assert caught.value.cause == "same"


def test_no_error_has_no_words() -> None:
    assert read_last_error({}) is None
    assert read_last_error(Library({LAST_ERROR: 0}).functions) is None
    assert read_last_error(Library({LAST_ERROR: b"  "}).functions) is None
    assert read_last_error({LAST_ERROR: lambda _out: 1}) is None


def test_a_container_is_deleted_once() -> None:
    deleted: list[int] = []
    container = OpenContainer(Library({"Delete": lambda handle: deleted.append(handle) or 0}))
    container.close()
    container.close()
    assert container.closed
    assert deleted == [7]
    with pytest.raises(InvalidState, match="closed"):
        _ = container.address


def test_a_plugin_that_makes_no_container_says_why(plugin: Callable[..., str]) -> None:
    with (
        aoti_loader.load(plugin(), warn=False) as loaded,
        pytest.raises(ExecutionFailed, match="could not create a container on 'gpu'") as caught,
    ):
        OpenContainer(loaded, device="gpu")
    assert "gpu" in (caught.value.cause or "") or "device" in (caught.value.cause or "").lower()
