"""How large a team a plugin's per-thread arrays have room for."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from aoti_abi.container_api import CONTAINER_API
from aoti_abi.versions import parse_version
from aoti_inspect.artifacts.facts import read_facts
from aoti_inspect.command.cli import main
from aoti_inspect.facts.openmp import SAFE_TEAM, find_safe_team, needs_limit, team_from_sources

ROOT = Path(__file__).resolve().parents[2]
TEAM = ROOT / "fixtures" / "structured" / "team.so"
MLP = ROOT / "fixtures" / "plugins" / "mlp.so"


def test_plugin_without_openmp_code_needs_no_limit():
    facts = read_facts(str(MLP))
    assert not needs_limit(facts.elf)
    assert facts.openmp_team is None


def test_plugins_of_before_2_12_fix_their_teams_themselves():
    facts = read_facts(str(TEAM))
    assert needs_limit(facts.elf)
    exports = facts.elf.exports
    names = tuple(name for name in exports.container if parse_version(CONTAINER_API[name].since) <= (2, 8))
    old = exports._replace(container=names)
    assert not needs_limit(facts.elf._replace(exports=old))


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
    assert team_from_sources(sources) == limit


def test_the_source_decides_where_it_is_there(tmp_path: Path):
    elf = read_facts(str(TEAM)).elf
    assert find_safe_team(elf, ()) == SAFE_TEAM
    assert find_safe_team(elf, (KERNEL,)) == 16
    assert find_safe_team(elf, (b"#pragma omp parallel\n out[i] = in[i];",)) is None
    plugin = shutil.copy(TEAM, tmp_path)
    (tmp_path / "team.cpp").write_bytes(KERNEL)
    assert read_facts(plugin).openmp_team == 16


def test_a_count_of_a_thousand_digits_is_no_count():
    assert team_from_sources([b"#pragma omp parallel\n float a_arr[" + b"9" * 5000 + b"];"]) == 0


def test_the_report_tells_the_safe_team_with_v(capsys):
    main(["-v", str(TEAM)])
    assert "teams of up to 2 threads are safe" in capsys.readouterr().out
    main([str(TEAM)])
    assert "teams of up to" not in capsys.readouterr().out
