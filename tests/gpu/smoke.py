"""Load real CUDA plugins without PyTorch in the process, run them, compare with the expected outputs.

Usage: python tests/gpu/smoke.py FOLDER [--output RECORD.md]

FOLDER holds ``NAME.so``, ``NAME.blob`` (its weights) and ``NAME.npz`` (inputs ``in0``, ``in1``, ...; outputs
``out0``, ...) for each plugin. Needs a GPU, numpy, a C compiler and CMake; the package need not be installed.
Each plugin runs in a process of its own, so that a crash of one is a row of the record and not its end. Exit
code 0 if every plugin matched.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
NAMES = ("mlp_slim", "mlp13", "mlp13_static", "prefill13", "decode13")
TOLERANCE = 2e-5


def run_one(folder: str, name: str) -> dict[str, object]:
    """Load, run and compare one plugin; called in a child process."""
    import numpy as np

    start = time.perf_counter()
    from aoti_executor import Model

    imported = time.perf_counter()
    data = np.load(os.path.join(folder, f"{name}.npz"))
    inputs = [data[key] for key in sorted(data.files) if key.startswith("in")]
    expected = [data[key] for key in sorted(data.files) if key.startswith("out")]
    begin = time.perf_counter()
    model = Model(os.path.join(folder, f"{name}.so"), weights=os.path.join(folder, f"{name}.blob"))
    loaded = time.perf_counter()
    results = model.run(inputs)
    outputs = [np.asarray(result.to("cpu")) for result in results]
    first = time.perf_counter()
    worst = max(float(np.abs(a - b).max()) for a, b in zip(outputs, expected, strict=True))
    shapes = [list(output.shape) for output in outputs]
    device = results[0].device
    constants = len(model.weights.constants)
    fallbacks = sorted({warning.feature for warning in model.plugin.fallbacks})
    times = []
    on_device = [model.upload(value) for value in inputs]
    for _ in range(200):
        tick = time.perf_counter()
        for result in model.run(on_device):
            result.to("cpu")
        times.append(time.perf_counter() - tick)
    model.close()
    return {
        "plugin": name,
        "matches": worst <= TOLERANCE,
        "max error": f"{worst:.1e}",
        "output shapes": ", ".join("x".join(map(str, shape)) for shape in shapes),
        "device": device,
        "constants": constants,
        "features lost": ", ".join(fallbacks) or "none",
        "import ms": round((imported - start) * 1e3, 1),
        "load ms": round((loaded - begin) * 1e3, 1),
        "first run ms": round((first - loaded) * 1e3, 1),
        "run us (median of 200, outputs copied back)": round(sorted(times)[100] * 1e6, 1),
        "CUDA runtime": next(
            os.path.basename(line.split()[-1]) for line in open("/proc/self/maps") if "libcudart" in line
        ),
        "torch in process": "torch" in sys.modules
        or any("libtorch" in line for line in open("/proc/self/maps")),
    }


def run_command(folder: str, name: str, environment: dict[str, str]) -> dict[str, object]:
    """Run one plugin with ``aoti-run``, and compare the file that it writes."""
    import numpy as np

    data = np.load(os.path.join(folder, f"{name}.npz"))
    with tempfile.TemporaryDirectory() as scratch:
        inputs, outputs = os.path.join(scratch, "in.npz"), os.path.join(scratch, "out.npz")
        np.savez(inputs, **{key: data[key] for key in data.files if key.startswith("in")})
        stem = os.path.join(folder, name)
        options = [f"{stem}.so", "--weights", f"{stem}.blob", "--input", inputs, "--output", outputs]
        command = [sys.executable, "-m", "aoti_executor", *options]
        done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=300)
        if done.returncode:
            return {"plugin": f"{name} (aoti-run)", "matches": False, "error": done.stderr.strip()}
        written = np.load(outputs)
        worst = max(float(np.abs(written[key] - data[key]).max()) for key in written.files)
    return {"plugin": f"{name} (aoti-run)", "matches": worst <= TOLERANCE, "max error": f"{worst:.1e}"}


def build() -> dict[str, str]:
    """Build the C libraries of this tree, and return the environment in which they are found."""
    target = os.path.join(ROOT, "build", "gpu")
    commands = [
        ["cmake", "-S", os.path.join(ROOT, "native"), "-B", target, "-DCMAKE_BUILD_TYPE=Release"],
        ["cmake", "--build", target, "-j"],
    ]
    for command in commands:
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            sys.exit(f"{' '.join(command)}\n{done.stdout}{done.stderr}")
    paths = [os.path.join(ROOT, part) for part in ("abi", "inspect", "loader", "executor")]
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join((*paths, os.environ.get("PYTHONPATH", ""))),
        "AOTI_SHIM_PATH": os.path.join(target, "libaoti_shim.so"),
        "AOTI_CALL_PATH": os.path.join(target, "libaoti_call.so"),
    }


def describe_machine() -> list[tuple[str, str]]:
    """Return what the record must name: card, driver, versions."""
    query = ["nvidia-smi", "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader"]
    card = subprocess.run(query, capture_output=True, text=True).stdout.strip()
    import numpy as np

    return [
        ("date", time.strftime("%Y-%m-%d")),
        ("card, driver, memory", card),
        ("Python", platform.python_version()),
        ("numpy", np.__version__),
        ("C library", " ".join(platform.libc_ver())),
        ("command", "python tests/gpu/smoke.py FOLDER"),
    ]


def record(rows: list[dict[str, object]]) -> str:
    """Return the record as Markdown."""
    lines = ["# CUDA plugins without PyTorch in the process", "", "| | |", "|---|---|"]
    lines += [f"| {label} | {value} |" for label, value in describe_machine()]
    runtimes = {str(row.pop("CUDA runtime")) for row in rows if "CUDA runtime" in row}
    lines.append(f"| CUDA runtime | {', '.join(sorted(runtimes))} |")
    lines += [
        "",
        "Each plugin ran in a fresh process: weights bound from the blob beside it, inputs copied to the",
        f"device, outputs copied back and compared (tolerance {TOLERANCE}).",
        "",
    ]
    fields = list(dict.fromkeys(field for row in rows for field in row))
    lines += [f"| {' | '.join(fields)} |", f"|{'---|' * len(fields)}"]
    lines += [f"| {' | '.join(_cell(row.get(field, '')) for field in fields)} |" for row in rows]
    return "\n".join(lines) + "\n"


def _cell(value: object) -> str:
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else str(value)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder")
    parser.add_argument("--output")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(run_one(options.folder, options.one)))
        return 0
    environment = build()
    rows: list[dict[str, object]] = []
    for name in NAMES:
        command = [sys.executable, os.path.abspath(__file__), options.folder, "--one", name]
        done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=300)
        if done.returncode:
            last = (done.stderr.strip().splitlines() or ["no output"])[-1]
            rows.append({"plugin": name, "matches": False, "error": f"exit {done.returncode}: {last}"})
            print(done.stderr, file=sys.stderr)
        else:
            rows.append(json.loads(done.stdout.splitlines()[-1]))
    rows.append(run_command(options.folder, "mlp13", environment))
    text = record(rows)
    print(text)
    if options.output:
        with open(options.output, "w", encoding="utf-8") as stream:
            stream.write(text)
    return 0 if all(row["matches"] for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
