"""FQNs and internal names are different types to the type checker."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

MIXED = """
from aoti_abi.names import FQN, InternalName

def update(names: list[InternalName]) -> None: ...
def lookup(name: FQN) -> InternalName: return InternalName(name)

update([lookup(FQN("layers.0.weight"))])
update([FQN("layers.0.weight")])
lookup(InternalName("layers_0_weight"))
lookup("layers.0.weight")
"""


def test_L4_mixing_the_two_name_spaces_does_not_type_check(tmp_path: object) -> None:
    path = os.path.join(str(tmp_path), "mixed.py")
    with open(path, "w", encoding="utf-8") as stream:
        stream.write(MIXED)
    # The sources: mypy refuses a search path in site-packages, where the package may be installed.
    sources = str(Path(__file__).resolve().parents[2] / "abi")
    env = {**os.environ, "MYPYPATH": sources}
    command = [sys.executable, "-m", "mypy", "--strict", "--no-incremental", "--config-file=", path]
    result = subprocess.run(command, capture_output=True, text=True, env=env, cwd=str(tmp_path), check=False)
    lines = [line for line in result.stdout.splitlines() if ": error:" in line]
    assert [line.split(":")[1] for line in lines] == ["8", "9", "10"], result.stdout + result.stderr
