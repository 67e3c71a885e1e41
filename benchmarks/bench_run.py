"""Loading and running models, beside PyTorch: start-up, memory, calls, a large product, unloading, threads.

Usage: python benchmarks/bench_run.py [--work FOLDER] [--rounds N] [--cycles N] [--stress S] [SECTION...]

Sections: start, calls, product, cycles, stress; all by default. Needs PyTorch and a C++ compiler: the models
are compiled first (into FOLDER, where they are found again), and both sides run the very same packages. Each
figure comes from processes of its own, taken in turn so that a busy machine slows all of them alike; of the
rounds the median is given. One thread is used, except where the table says so.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
SECTIONS = ("start", "calls", "product", "cycles", "stress")

COMPILE = """
import sys, torch
from torch import nn
from torch._inductor import aoti_compile_and_package
folder = sys.argv[1]

class Mlp(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(16, 32), nn.Linear(32, 4)
    def forward(self, x):
        return torch.relu(self.b(torch.nn.functional.gelu(self.a(x))))

class Product(nn.Module):
    def forward(self, x, y):
        return x @ y

class Elementwise(nn.Module):
    def forward(self, x, y):
        return (x + y) * 2 - x

torch.manual_seed(0)
single = {"cpp.threads": 1}
generic = {**single, "max_autotune": True, "max_autotune_gemm_backends": "CPP"}
for name, module, inputs, options in (
    ("mlp", Mlp().eval(), (torch.randn(8, 16),), single),
    ("mlp_generic", Mlp().eval(), (torch.randn(8, 16),), generic),
    ("elementwise", Elementwise(), (torch.randn(64), torch.randn(64)), single),
    ("product", Product(), (torch.randn(1024, 1024), torch.randn(1024, 1024)), {}),
):
    with torch.no_grad():
        aoti_compile_and_package(
            torch.export.export(module, inputs), package_path=f"{folder}/{name}.pt2", inductor_configs=options
        )
"""

#: Prepares ``model``, ``x`` (numpy arrays) and what PyTorch calls; ends with the first result.
START = {
    "toolkit": """
import sys, numpy as np
from aoti_executor import Model
model = Model(sys.argv[1], host=sys.argv[2])
x = np.ones((8, 16), np.float32)
y = model(x).numpy()
""",
    "pytorch": """
import sys, numpy as np, torch
model = torch._inductor.aoti_load_package(sys.argv[1])
x = np.ones((8, 16), np.float32)
y = model(torch.from_numpy(x)).numpy()
""",
}

REPORT = """
import json
with open("/proc/self/status") as stream:
    status = dict(line.split(":", 1) for line in stream)
print(json.dumps({"rss": int(status["VmHWM"].split()[0]) * 1024, "sum": float(np.sum(y, dtype=float))}))
"""

TIMER = """
import json, sys, time
def best(call, batch=200, batches=200):
    for _ in range(batch):
        call()
    durations = []
    for _ in range(batches):
        start = time.perf_counter()
        for _ in range(batch):
            call()
        durations.append((time.perf_counter() - start) / batch)
    durations.sort()
    return durations[len(durations) // 10]
import numpy as np
random = np.random.default_rng(0)
shapes = json.loads(sys.argv[3])
inputs = [random.standard_normal(shape).astype(np.float32) for shape in shapes]
"""

CALLS = {
    "toolkit": TIMER
    + """
from aoti_executor import Model
model = Model(sys.argv[1], host=sys.argv[2], threads=1)
bound = model.bind(inputs)
print(json.dumps({"call": best(lambda: model(*inputs)), "bound": best(bound)}))
""",
    "pytorch": TIMER
    + """
import torch
torch.set_num_threads(1)
model = torch._inductor.aoti_load_package(sys.argv[1])
tensors = [torch.from_numpy(array) for array in inputs]
print(json.dumps({"call": best(lambda: model(*tensors)), "bound": best(lambda: model.loader.run(tensors))}))
""",
}

PRODUCT = {
    "toolkit": TIMER
    + """
from aoti_executor import Model
model = Model(sys.argv[1], host=sys.argv[2])
bound = model.bind(inputs)
expected = inputs[0] @ inputs[1]
assert np.allclose(model(*inputs).numpy(), expected, rtol=1e-3, atol=1e-2)
print(json.dumps({"bound": best(bound, 1, 60)}))
""",
    "pytorch": TIMER
    + """
import torch
model = torch._inductor.aoti_load_package(sys.argv[1])
tensors = [torch.from_numpy(array) for array in inputs]
print(json.dumps({"bound": best(lambda: model.loader.run(tensors), 1, 60)}))
""",
}

CYCLES = """
import json, sys, numpy as np
from aoti_executor import Model
x = np.ones((8, 16), np.float32)
def memory():
    with open("/proc/self/statm") as stat, open("/proc/self/maps") as maps:
        return int(stat.read().split()[1]) * 4096, sum(1 for _ in maps)
curve = []
count = int(sys.argv[3])
for turn in range(count + 1):
    if turn % max(count // 10, 1) == 0 or turn == 1:
        curve.append((turn, *memory()))
    with Model(sys.argv[1], host=sys.argv[2]) as model:
        model(x)
print(json.dumps(curve))
"""

STRESS = """
import json, sys, threading, time, numpy as np
from aoti_executor import Model
x = np.random.default_rng(0).standard_normal((8, 16)).astype(np.float32)
model = Model(sys.argv[1], host=sys.argv[2], num_runners=4)
expected = model(x).tobytes()
deadline = time.monotonic() + float(sys.argv[3])
runs, wrong = [0] * 8, [0] * 8
def work(number):
    while time.monotonic() < deadline:
        for _ in range(100):
            wrong[number] += model(x).tobytes() != expected
        runs[number] += 100
threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(json.dumps({"runs": sum(runs), "wrong": sum(wrong)}))
"""


def run(code: str, *arguments: str, threads: int | None = 1) -> tuple[object, float]:
    """Run code in a process of its own; return what it printed last, and the seconds until it did."""
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        "PYTHONWARNINGS": "ignore",
    }
    if threads:
        environment |= {"OMP_NUM_THREADS": str(threads), "OPENBLAS_NUM_THREADS": str(threads)}
    start = time.perf_counter()
    with subprocess.Popen(
        [sys.executable, "-c", code, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment,
    ) as child:
        assert child.stdout is not None
        line = child.stdout.readline()
        seconds = time.perf_counter() - start
        _, errors = child.communicate()
    if not line:
        raise SystemExit(errors.decode())
    return json.loads(line), seconds


def rounds(variants: dict[str, tuple[str, ...]], count: int, **options: int | None) -> dict[str, list]:
    """Run each variant ``count`` times, in turn."""
    results: dict[str, list] = {name: [] for name in variants}
    for _ in range(count):
        for name, (code, *arguments) in variants.items():
            results[name].append(run(code, *arguments, **options))
    return results


def row(*cells: object) -> None:
    print(f"| {' | '.join(map(str, cells))} |", flush=True)


def head(*cells: str) -> None:
    row(*cells)
    print(f"|{'---|' * len(cells)}")


def start(folder: str, count: int) -> None:
    print("\n## Process start to first result, and peak memory\n")
    package, plugin = f"{folder}/mlp.pt2", f"{ROOT}/fixtures/plugins/mlp.so"
    results = rounds(
        {
            "PyTorch, package": (START["pytorch"] + REPORT, package, ""),
            "builtin host, package": (START["toolkit"] + REPORT, package, "builtin"),
            "builtin host, plugin": (START["toolkit"] + REPORT, plugin, "builtin"),
            "LibTorch host, package": (START["toolkit"] + REPORT, package, "torch"),
            "numpy alone": ("import numpy as np\ny = np.zeros(1)\n" + REPORT,),
        },
        count,
    )
    head("", "seconds", "of PyTorch's", "peak MB", "of PyTorch's")
    first = None
    for name, measured in results.items():
        seconds = statistics.median(value for _, value in measured)
        rss = statistics.median(report["rss"] for report, _ in measured)
        first = first or (seconds, rss)
        row(
            name,
            f"{seconds:.3f}",
            f"1/{first[0] / seconds:.1f}",
            f"{rss / 1e6:.0f}",
            f"1/{first[1] / rss:.1f}",
        )


def calls(folder: str, count: int) -> None:
    print("\n## One call, one thread, microseconds\n")
    head("model", "way", "PyTorch", "builtin host", "ratio", "LibTorch host", "ratio")
    for name, shapes in (("mlp", [[8, 16]]), ("mlp_generic", [[8, 16]]), ("elementwise", [[64], [64]])):
        package = f"{folder}/{name}.pt2"
        results = rounds(
            {
                "pytorch": (CALLS["pytorch"], package, "", json.dumps(shapes)),
                "builtin": (CALLS["toolkit"], package, "builtin", json.dumps(shapes)),
                "torch": (CALLS["toolkit"], package, "torch", json.dumps(shapes)),
            },
            count,
        )
        for way, label in (("call", "model(x)"), ("bound", "bound() / loader.run")):
            times = {
                who: statistics.median(report[way] for report, _ in measured) * 1e6
                for who, measured in results.items()
            }
            cells = [f"{times['pytorch']:.2f}"]
            for host in ("builtin", "torch"):
                cells += [f"{times[host]:.2f}", f"{times[host] / times['pytorch']:.2f}"]
            row(name, label, *cells)


def product(folder: str, count: int) -> None:
    print("\n## Product of two 1024 x 1024 float32 matrices, milliseconds\n")
    head("threads", "PyTorch", "builtin host", "ratio", "LibTorch host", "ratio")
    shapes = json.dumps([[1024, 1024]] * 2)
    for threads in dict.fromkeys((1, os.cpu_count() or 1)):
        results = rounds(
            {
                "pytorch": (PRODUCT["pytorch"], f"{folder}/product.pt2", "", shapes),
                "builtin": (PRODUCT["toolkit"], f"{folder}/product.pt2", "builtin", shapes),
                "torch": (PRODUCT["toolkit"], f"{folder}/product.pt2", "torch", shapes),
            },
            count,
            threads=threads,
        )
        times = {
            who: statistics.median(report["bound"] for report, _ in measured) * 1e3
            for who, measured in results.items()
        }
        cells = [f"{times['pytorch']:.2f}"]
        for host in ("builtin", "torch"):
            cells += [f"{times[host]:.2f}", f"{times[host] / times['pytorch']:.2f}"]
        row(threads, *cells)


def cycles(count: int) -> None:
    print(f"\n## Load, run and close, {count} times\n")
    for host in ("builtin", "torch"):
        curve, seconds = run(CYCLES, f"{ROOT}/fixtures/plugins/mlp.so", host, str(count))
        head(f"{host} host: after", *(str(turn) for turn, _, _ in curve))
        row("resident MB", *(f"{rss / 1e6:.1f}" for _, rss, _ in curve))
        row("mappings", *(maps for _, _, maps in curve))
        print(f"\n{seconds / (count + 1) * 1e3:.2f} ms each.\n")


def stress(seconds: float) -> None:
    print(f"\n## Eight threads on one model for {seconds:g} s\n")
    head("host", "runs", "different results")
    for host in ("builtin", "torch"):
        report, _ = run(STRESS, f"{ROOT}/fixtures/plugins/mlp.so", host, str(seconds))
        row(host, report["runs"], report["wrong"])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("section", nargs="*", metavar="SECTION", help=f"of {', '.join(SECTIONS)}")
    parser.add_argument("--work", metavar="FOLDER", help="where the compiled models are kept")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--cycles", type=int, default=1000)
    parser.add_argument("--stress", type=float, default=60, metavar="S", help="seconds")
    options = parser.parse_args()
    unknown = set(options.section) - set(SECTIONS)
    if unknown:
        parser.error(f"no section {', '.join(sorted(unknown))}")
    chosen = options.section or SECTIONS
    with tempfile.TemporaryDirectory() as scratch:
        folder = options.work or scratch
        os.makedirs(folder, exist_ok=True)
        if {"start", "calls", "product"} & set(chosen) and not os.path.exists(f"{folder}/product.pt2"):
            subprocess.run([sys.executable, "-W", "ignore", "-c", COMPILE, folder], check=True)
        if "start" in chosen:
            start(folder, options.rounds)
        if "calls" in chosen:
            calls(folder, options.rounds)
        if "product" in chosen:
            product(folder, options.rounds)
        if "cycles" in chosen:
            cycles(options.cycles)
        if "stress" in chosen:
            stress(options.stress)


if __name__ == "__main__":
    main()
