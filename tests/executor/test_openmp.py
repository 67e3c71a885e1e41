"""OpenMP teams are held to what the plugin's arrays have room for."""

from __future__ import annotations

import ctypes
from pathlib import Path

import numpy as np
import pytest

from aoti_abi.container_api import CONTAINER_API
from aoti_abi.errors import InvalidArgument, NotSupported
from aoti_abi.versions import parse_version
from aoti_executor import Model
from aoti_executor.openmp import SAFE_TEAM, hold_teams, needs_limit, team_limit_from_source
from aoti_inspect.facts.plugin import read_plugin
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


def test_plugin_without_openmp_code_needs_no_limit():
    facts = read_plugin(str(MLP))
    assert not needs_limit(facts)
    assert hold_teams(facts, None, None, nothing) is None


def test_plugins_of_before_2_12_fix_their_teams_themselves():
    facts = read_plugin(str(TEAM))
    assert needs_limit(facts)
    exports = facts.elf.exports
    names = tuple(name for name in exports.container if parse_version(CONTAINER_API[name].since) <= (2, 8))
    old = exports._replace(container=names)
    assert not needs_limit(facts._replace(elf=facts.elf._replace(exports=old)))


KERNEL = b"""
    #pragma omp parallel
    {
        int tid = omp_get_thread_num();
        float tmp_acc0_arr[16];
        for (int tid = 0; tid < 16; tid++) tmp_acc0_arr[tid] = 0;
        float other_arr[48];
"""


@pytest.mark.parametrize(
    ("sources", "limit"),
    [
        ([], None),
        ([b"int main() {}"], None),
        ([b"#pragma omp parallel num_threads(4)\n float tmp_acc0_arr[4];"], None),
        ([KERNEL], 16),
        ([b"#pragma omp parallel\n out[i] = in[i];"], 0),
        ([b"    #pragma omp parallel\n constexpr int64_t num_threads = 8;"], 8),
        ([b"#pragma omp parallel\n int64_t num_thread = 6;"], 6),
        ([b"int main() {}", KERNEL, b"#pragma omp parallel\n float a_arr[12];"], 12),
    ],
)
def test_source_tells_how_many_threads_there_is_room_for(sources, limit):
    assert team_limit_from_source(sources) == limit


def test_limit_from_the_source_is_used():
    with load(TEAM, host="builtin", warn=False) as plugin:
        facts, binding = plugin.facts, plugin.binding
        assert hold_teams(facts, None, 16, binding).max_threads == 16
        assert hold_teams(facts, None, 0, nothing) is None
        assert hold_teams(facts, 3, 16, binding).max_threads == 3


def nothing(symbol):
    """Where a symbol is that no library has."""


def test_teams_that_cannot_be_limited_are_refused():
    facts = read_plugin(str(TEAM))
    for threads, source in ((None, None), (1, None), (None, 8)):
        with pytest.raises(NotSupported, match="OpenMP teams"):
            hold_teams(facts, threads, source, nothing)
    with pytest.raises(NotSupported, match="omp_get_max_threads"):
        hold_teams(facts, None, None, lambda _: ctypes.cast(ctypes.CDLL(None).malloc, ctypes.c_void_p).value)
