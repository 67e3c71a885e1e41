"""A plugin that PyTorch compiled, run by the built-in host in a process that has nothing but ctypes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np

PLUGINS = Path(__file__).parents[2] / "fixtures" / "plugins"

RUN = """
import ctypes as C, sys
shim_path, plugin_path, rows, columns, outputs = sys.argv[1:]
shim = C.CDLL(shim_path, C.RTLD_GLOBAL)
plugin = C.CDLL(plugin_path)
values = (C.c_float * (int(rows) * int(columns)))(*map(float, sys.stdin.read().split()))
container, tensor, size = C.c_void_p(), C.c_void_p(), C.c_size_t(1)
assert plugin.AOTInductorModelContainerCreateWithDevice(C.byref(container), size, b"cpu", None) == 0
shape, strides = (C.c_int64 * 2)(int(rows), int(columns)), (C.c_int64 * 2)(int(columns), 1)
for _ in range(3):
    assert shim.aoti_torch_create_tensor_from_blob(
        values, C.c_int64(2), shape, strides, C.c_int64(0), 6, 0, 0, C.byref(tensor)) == 0
    inputs, results = (C.c_void_p * 1)(tensor.value), (C.c_void_p * 1)()
    assert plugin.AOTInductorModelContainerRun(container, inputs, size, results, size, None, None) == 0
    data = C.c_void_p()
    assert shim.aoti_torch_get_data_ptr(C.c_void_p(results[0]), C.byref(data)) == 0
    answer = list((C.c_float * int(outputs)).from_address(data.value))
    assert shim.aoti_torch_delete_tensor_object(C.c_void_p(results[0])) == 0
assert plugin.AOTInductorModelContainerDelete(container) == 0
stats = (C.c_int64 * 3)()
shim.aoti_shim_get_stats(stats)
assert list(stats) == [0, 0, 0], list(stats)
assert "torch" not in open("/proc/self/maps").read()
print(*answer)
"""


def test_a_real_plugin_runs_without_pytorch_and_leaves_nothing(shim_path: str) -> None:
    plugin, arrays = PLUGINS / "mlp.so", np.load(PLUGINS / "mlp.npz")
    x, want = (arrays[next(n for n in arrays.files if n.startswith(prefix))] for prefix in ("in", "out"))
    needed = subprocess.run(["readelf", "-d", str(plugin)], capture_output=True, text=True).stdout
    assert "libtorch" not in needed
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", RUN, shim_path, str(plugin), *map(str, x.shape), str(want.size)],
        input=" ".join(map(str, x.ravel().tolist())),
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    got = np.array(done.stdout.split(), "f4").reshape(want.shape)
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)
