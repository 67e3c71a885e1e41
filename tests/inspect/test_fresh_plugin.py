"""A plugin that PyTorch compiles here and now: what the tables say must hold of it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from aoti_abi.container_api import CONTAINER_API, compiled_by
from aoti_abi.features import evaluate
from aoti_abi.versions import parse_version
from aoti_inspect.artifacts.facts import read_facts
from aoti_inspect.command.cli import main

ENTRIES = "AOTInductorModelContainerExtractConstantsMapEntries"
COMPILE = """
import sys, torch
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 12)).eval()
x = torch.randn(4, 16)
program = torch.export.export(model, (x,))
options = {"aot_inductor.output_path": sys.argv[1]}
torch._inductor.aot_compile(program.module(), (x,), options=options)
print(torch.__version__)
"""


@pytest.fixture(scope="module")
def fresh(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """Return the path of a plugin with default options, and the minor version of the PyTorch that made it."""
    path = str(tmp_path_factory.mktemp("fresh") / "mlp.so")
    command = [sys.executable, "-c", COMPILE, path]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    return path, ".".join(done.stdout.split()[-1].split(".")[:2])


@pytest.mark.torch
def test_R2_a_fresh_plugin_exports_the_entries_call_and_it_is_seen(
    fresh: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    path, _ = fresh
    listed = subprocess.run(["nm", "-D", "--defined-only", path], check=True, capture_output=True, text=True)
    assert ENTRIES in listed.stdout.split()
    main(["--format", "json", path])
    (plugin,) = json.loads(capsys.readouterr().out)["artifacts"][0]["plugins"]
    assert ENTRIES in plugin["facts"]["exports"]["container"]
    for feature in ("read-constants", "weight-sharing", "mutable-sessions", "graph-safe-constants"):
        assert plugin["features"][feature]["available"], feature


@pytest.mark.torch
def test_the_table_lists_exactly_what_this_pytorch_emits(fresh: tuple[str, str]) -> None:
    path, version = fresh
    exports = set(read_facts(path).elf.exports.container)
    expected = {
        function.name
        for function in CONTAINER_API.values()
        if not function.generated and parse_version(function.since) <= parse_version(version)
    }
    assert exports == expected
    compiler = compiled_by(exports)
    assert compiler is not None
    assert (compiler.oldest, compiler.newest) == (version, version)
    assert all(state.available or state.feature.addition for state in evaluate(exports))


@pytest.mark.torch
def test_the_verdict_for_the_version_that_compiled_it_is_that_it_loads(
    fresh: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    path, version = fresh
    assert (
        main(["--format", "json", "--host", f"torch=={version}", "--target", "glibc=2.40,isa=any", path]) == 0
    )
    (plugin,) = json.loads(capsys.readouterr().out)["artifacts"][0]["plugins"]
    assert [verdict["outcome"] for verdict in plugin["hosts"]] == ["loads"]


@pytest.mark.torch
def test_a_default_plugin_asks_for_an_executable_stack(fresh: tuple[str, str]) -> None:
    assert read_facts(fresh[0]).elf.executable_stack is True


@pytest.mark.torch
def test_the_host_table_agrees_with_the_installed_library(fresh: tuple[str, str]) -> None:
    """Every common or CPU shim that the table gives this version is exported by its libtorch_cpu."""
    import importlib.util

    from aoti_abi.shim_catalogue import lookup, names_in
    from aoti_inspect.elf.read import open_elf

    spec = importlib.util.find_spec("torch")
    assert spec is not None
    assert spec.origin is not None
    library = Path(spec.origin).parent / "lib" / "libtorch_cpu.so"
    with open_elf(str(library)) as image:
        exported = set(image.defined_names())
    _, version = fresh
    expected = {name for name in names_in(version) if lookup(name).device in ("common", "cpu")}
    assert len(expected) > 350
    assert expected <= exported
