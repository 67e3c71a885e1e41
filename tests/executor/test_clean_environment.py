"""What runs where nothing but the toolkit is installed: no PyTorch, no numpy."""

from __future__ import annotations

import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import numpy as np
import pytest

import aoti_abi
import aoti_executor
import aoti_inspect
import aoti_loader

PLUGINS = Path(__file__).resolve().parents[2] / "fixtures" / "plugins"

RUN = """
import array, importlib.util, sys
for name in ("torch", "numpy", "ml_dtypes", "elftools"):
    assert importlib.util.find_spec(name) is None, name
from aoti_executor import Model
rows, columns, path = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
values = array.array("f", map(float, sys.stdin.read().split()))
x = memoryview(values).cast("B").cast("f", (rows, columns))
with Model(path) as model:
    y = model(x)
print(y.dtype, *y.shape)
print(*memoryview(y.tobytes()).cast("f"))
maps = open("/proc/self/maps").read()
assert "torch" not in maps.replace(path, "")
"""


@pytest.fixture(scope="module")
def clean(tmp_path_factory: pytest.TempPathFactory, native_libraries: str) -> str:
    """Return the Python of a virtual environment that holds the toolkit's packages and nothing else."""
    root = tmp_path_factory.mktemp("clean") / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(root)], check=True)
    target = Path(sysconfig.get_path("purelib", "venv", {"base": str(root), "platbase": str(root)}))
    for package in (aoti_abi, aoti_inspect, aoti_loader, aoti_executor):
        name = package.__name__
        shutil.copytree(
            next(iter(package.__path__)), target / name, ignore=shutil.ignore_patterns("__pycache__")
        )
    built = Path(native_libraries).parent
    for package, names in {
        "aoti_loader": ("libaoti_shim.so", "libaoti_unload.so"),
        "aoti_executor": ("libaoti_call.so",),
    }.items():
        folder = target / package / "lib"
        folder.mkdir(exist_ok=True)
        for name in names:
            source = built / name
            if not source.exists():  # installed: each library is in its own package
                source = Path(next(iter(sys.modules[package].__path__))) / "lib" / name
            if not (folder / name).exists():
                shutil.copy(source, folder / name)
    return str(root / "bin" / "python")


@pytest.mark.parametrize("name", ["mlp", "mlp_blob"])
def test_a_real_plugin_runs_in_a_clean_environment(clean: str, name: str) -> None:
    arrays = np.load(PLUGINS / f"{name}.npz")
    x, expected = arrays["in0"], arrays["out0"]
    done = subprocess.run(
        [clean, "-c", RUN, *map(str, x.shape), str(PLUGINS / f"{name}.so")],
        input=" ".join(map(repr, x.ravel().tolist())),
        capture_output=True,
        text=True,
        timeout=120,
        env={"PATH": "/usr/bin:/bin"},
    )
    assert done.returncode == 0, done.stderr
    head, values = done.stdout.splitlines()
    assert head == f"float32 {' '.join(map(str, expected.shape))}"
    np.testing.assert_allclose(
        np.array(values.split(), np.float32).reshape(expected.shape), expected, rtol=1e-5, atol=1e-6
    )
