"""Timing a model's runs."""

from __future__ import annotations

from time import perf_counter_ns
from typing import TYPE_CHECKING, Any, NamedTuple

from aoti_abi.errors import InvalidArgument

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from aoti_executor.model import Model

_POINTS = (50, 90, 99)


class Timing(NamedTuple):
    """Durations of runs, in nanoseconds: the shortest, the percentiles 50, 90 and 99, and the longest."""

    runs: int
    shortest: int
    percentiles: tuple[int, ...]
    longest: int

    def __str__(self) -> str:
        """Return one line, in microseconds."""
        points = ", ".join(
            f"p{point} {value / 1e3:.2f}" for point, value in zip(_POINTS, self.percentiles, strict=True)
        )
        return f"{self.runs} runs: min {self.shortest / 1e3:.2f}, {points}, max {self.longest / 1e3:.2f} us"


def time_calls(call: Callable[[], Any], count: int) -> Timing:
    """Time single calls, after a tenth as many that are not counted."""
    for _ in range(max(count // 10, 1)):
        call()
    durations = []
    for _ in range(count):
        start = perf_counter_ns()
        call()
        durations.append(perf_counter_ns() - start)
    durations.sort()
    # Nearest rank: the smallest duration that at least so many percent of the runs did not exceed.
    percentiles = tuple(durations[max(-(-count * point // 100), 1) - 1] for point in _POINTS)
    return Timing(count, durations[0], percentiles, durations[-1])


def time_model(model: Model, inputs: Sequence[Any], count: int) -> str:
    """Time a model's ways to be called; return one line for each."""
    lines = [f"call:  {time_calls(lambda: model.run(inputs), count)}"]
    try:
        bound = model.bind(inputs)
    except InvalidArgument as error:
        return "\n".join([*lines, f"bound: not possible: {error.message}"])
    return "\n".join([*lines, f"bound: {time_calls(bound, count)}"])
