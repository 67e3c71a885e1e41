"""The fast NamedTuple behaves as the one of `typing`."""

from __future__ import annotations

import pickle
import subprocess
import sys
import typing
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from aoti_abi.records import TYPE_CHECKING, NamedTuple


class Fast(NamedTuple):
    """A record."""

    a: int
    b: undefined_name  # noqa: F821 - annotations are never evaluated
    c: str = "c"
    d: tuple[int, ...] = ()

    @property
    def both(self) -> tuple[int, Any]:
        return self.a, self.b

    def plus(self, number: int) -> int:
        return self.a + number


class Slow(typing.NamedTuple):
    """A record."""

    a: int
    b: Any
    c: str = "c"
    d: tuple[int, ...] = ()

    @property
    def both(self) -> tuple[int, Any]:
        return self.a, self.b

    def plus(self, number: int) -> int:
        return self.a + number


BOTH = pytest.mark.parametrize("kind", [Fast, Slow])


@BOTH
def test_values_by_position_name_and_default(kind: Any) -> None:
    assert kind(1, 2) == (1, 2, "c", ())
    assert kind(1, 2, "x", (3,)) == (1, 2, "x", (3,))
    assert kind(1, b=2, d=(4,)) == (1, 2, "c", (4,))
    assert kind(d=(4,), a=1, b=2) == (1, 2, "c", (4,))
    record = kind(1, 2, d=(5,))
    assert (record.a, record.b, record.c, record.d) == (1, 2, "c", (5,))
    assert record.both == (1, 2)
    assert record.plus(2) == 3


@BOTH
@pytest.mark.parametrize(
    "call",
    [
        lambda kind: kind(),
        lambda kind: kind(1),
        lambda kind: kind(1, 2, 3, 4, 5),
        lambda kind: kind(1, 2, a=1),
        lambda kind: kind(1, 2, z=1),
        lambda kind: kind(b=1),
        lambda kind: kind(1, 2, 3, 4, d=4),
    ],
)
def test_what_does_not_fit_is_a_type_error(kind: Any, call: Callable[[Any], object]) -> None:
    with pytest.raises(TypeError):
        call(kind)


@BOTH
def test_copies_dictionaries_and_iterables(kind: Any) -> None:
    record = kind(1, 2)
    assert record._replace(b=7) == (1, 7, "c", ())
    assert type(record._replace(b=7)) is kind
    assert record._asdict() == {"a": 1, "b": 2, "c": "c", "d": ()}
    assert list(record._asdict()) == list(kind._fields) == ["a", "b", "c", "d"]
    assert kind._make([1, 2, 3, 4]) == (1, 2, 3, 4)
    with pytest.raises((ValueError, TypeError)):
        record._replace(z=1)


@BOTH
def test_it_is_an_immutable_tuple(kind: Any) -> None:
    record = kind(1, 2)
    assert isinstance(record, tuple)
    assert hash(record) == hash((1, 2, "c", ()))
    assert repr(record) == f"{kind.__name__}(a=1, b=2, c='c', d=())"
    assert kind.__doc__ == "A record."
    assert kind.__module__ == __name__
    for change in (lambda: setattr(record, "a", 3), lambda: setattr(record, "z", 3)):
        with pytest.raises(AttributeError):
            change()
    match record:
        case kind(1, second):  # noqa: F841 - the pattern is the test
            pass
        case _:
            raise AssertionError


@BOTH
def test_it_survives_pickling(kind: Any) -> None:
    from aoti_abi.features import FEATURES

    feature = next(iter(FEATURES.values()))
    assert pickle.loads(pickle.dumps(feature)) == feature
    assert type(pickle.loads(pickle.dumps(feature))) is type(feature)
    assert kind(1, 2) == kind(*kind(1, 2).__getnewargs__())


def test_type_checkers_see_the_real_one(tmp_path: Path) -> None:
    source = tmp_path / "checked.py"
    source.write_text(
        "from __future__ import annotations\n"
        "from aoti_abi.records import NamedTuple\n"
        "class R(NamedTuple):\n    a: int\n    b: str = ''\n"
        "R(1).a + 1\n"
        "R('x')\n"
        "R(1).c\n"
    )
    command = [sys.executable, "-m", "mypy", "--strict", "--no-incremental", "--config-file=", str(source)]
    sources = str(Path(__file__).resolve().parents[2] / "abi")
    done = subprocess.run(
        command, capture_output=True, text=True, env={"MYPYPATH": sources, "PATH": ""}, cwd=tmp_path
    )
    lines = [line.split(":")[1] for line in done.stdout.splitlines() if ": error:" in line]
    assert lines == ["7", "8"], done.stdout + done.stderr


def test_it_imports_next_to_nothing() -> None:
    script = (
        "import sys; import aoti_abi.records; print('typing' in sys.modules, 'collections' in sys.modules)"
    )
    path = str(Path(__file__).resolve().parents[2] / "abi")
    done = subprocess.run(
        [sys.executable, "-S", "-c", script], capture_output=True, text=True, env={"PYTHONPATH": path}
    )
    assert done.stdout.split()[0] == "False", done.stderr
    assert TYPE_CHECKING is False
