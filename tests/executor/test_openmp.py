"""OpenMP teams are held to what the plugin's arrays have room for."""

from __future__ import annotations

import ctypes
from pathlib import Path

import numpy as np
import pytest

from aoti_abi.errors import InvalidArgument, NotSupported
from aoti_executor import Model
from aoti_executor.openmp import hold_teams
from aoti_inspect.artifacts.facts import read_facts
from aoti_inspect.facts.openmp import SAFE_TEAM
from aoti_loader import load

ROOT = Path(__file__).resolve().parents[2]
TEAM = ROOT / "fixtures" / "structured" / "team.so"
MLP = ROOT / "fixtures" / "plugins" / "mlp.so"


@pytest.mark.parametrize("threads", ["2", "8", "64"])
def test_team_stays_within_the_plugins_arrays_whatever_the_machine_has(child, threads):
    # Without the limit this process dies of a signal for 8 threads and more.
    out = child(
        """
        import ctypes, sys, threading, numpy as np
        from aoti_executor import Model
        from aoti_executor.openmp import runtime
        x = np.random.default_rng(0).standard_normal(1 << 18).astype("f")
        wrong = []
        with Model(sys.argv[1], warn=False, num_runners=4) as model:
            get = ctypes.CFUNCTYPE(ctypes.c_int)(runtime(model.plugin.facts, model.plugin.binding)[0])
            before = get()
            bound = model.bind([x])
            def work():
                for _ in range(30):
                    total, most = model(x)
                    if abs(float(total) - x.sum(dtype="d")) > 0.1 or float(most) != x.max():
                        wrong.append(float(total))
            workers = [threading.Thread(target=work) for _ in range(4)]
            for worker in workers: worker.start()
            for worker in workers: worker.join()
            bound()
            assert get() == before, "the caller's own number of threads must come back"
            print(model.container.max_threads, before, wrong)
        """,
        str(TEAM),
        OMP_NUM_THREADS=threads,
    )
    assert out.split() == [str(SAFE_TEAM), threads, "[]"]


def test_user_may_choose():
    with Model(TEAM, host="builtin", warn=False, threads=1) as model:
        assert model.container.max_threads == 1
        x = np.ones(1 << 18, "f")
        assert float(model(x)[0]) == 1 << 18


@pytest.mark.parametrize("threads", [0, -1, 1.5, True, "2", 1 << 31, 1 << 63])
def test_number_of_threads_is_checked(threads):
    with pytest.raises(InvalidArgument, match="threads"):
        Model(MLP, host="builtin", warn=False, threads=threads)


def test_known_teams_are_held_to_and_the_user_has_the_last_word():
    with load(TEAM, host="builtin", warn=False) as plugin:
        facts, binding = plugin.facts, plugin.binding
        assert hold_teams(facts, None, binding).max_threads == SAFE_TEAM
        assert hold_teams(facts._replace(openmp_team=16), None, binding).max_threads == 16
        assert hold_teams(facts._replace(openmp_team=None), None, nothing) is None
        assert hold_teams(facts, 3, binding).max_threads == 3


def nothing(symbol):
    """Where a symbol is that no library has."""


def test_teams_that_cannot_be_limited_are_refused():
    facts = read_facts(str(TEAM))
    for threads in (None, 1, 8):
        with pytest.raises(NotSupported, match="OpenMP teams"):
            hold_teams(facts, threads, nothing)
    with pytest.raises(NotSupported, match="omp_get_max_threads"):
        hold_teams(facts, None, lambda _: ctypes.cast(ctypes.CDLL(None).malloc, ctypes.c_void_p).value)
