"""How long an audit takes, side by side with other readers of ELF files, in one run.

Usage: python benchmarks/bench_inspect.py [--runs N] [--plugin FILE] [--big FILE]

Builds the wheel of this tree, installs it and the peers into a virtual environment of their own (kept under
build/bench), and times whole processes in turn, so that a busy machine slows all of them alike. The table
gives medians, the ratio to an empty Python process, and peak resident memory. Without arguments the plugin is
compiled with the installed PyTorch (1.5 MB with its line tables), and the big file is its libtorch_cpu.so.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import zipfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
WORK = os.path.join(ROOT, "build", "bench")
#: Without the caller's Python settings, which could change what a start costs.
ENVIRONMENT = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
PEERS = ("pyelftools", "lief", "auditwheel", "abi3audit")

PYELFTOOLS = """
import sys
from elftools.elf.elffile import ELFFile
with open(sys.argv[1], "rb") as f:
    elf = ELFFile(f)
    section = elf.get_section_by_name
    needed = [t.needed for t in section(".dynamic").iter_tags("DT_NEEDED")]
    undefined = [s.name for s in section(".dynsym").iter_symbols() if s["st_shndx"] == "SHN_UNDEF"]
    needs = [(v.name, a.name) for v, aux in section(".gnu.version_r").iter_versions() for a in aux]
print(len(needed), len(undefined), len(needs))
"""
LIEF = """
import sys, lief
b = lief.parse(sys.argv[1])
print(len(list(b.libraries)), len(list(b.imported_symbols)), len(list(b.symbols_version_requirement)))
"""
COMPILE = """
import os, sys, torch
torch.manual_seed(0)
layers = torch.nn.Linear(16, 32), torch.nn.GELU(), torch.nn.Linear(32, 4), torch.nn.ReLU()
model = torch.nn.Sequential(*layers).eval()
x = torch.randn(8, 16)
program = torch.export.export(model, (x,))
options = {"aot_inductor.output_path": sys.argv[1]}
torch._inductor.aot_compile(program.module(), (x,), options=options)
"""


def environment() -> str:
    """Return the bin folder of an environment with the peers and a fresh wheel of this tree."""
    bin_folder = os.path.join(WORK, "venv", "bin")
    if not os.path.exists(os.path.join(bin_folder, "python")):
        subprocess.run([sys.executable, "-m", "venv", os.path.join(WORK, "venv")], check=True)
        subprocess.run([f"{bin_folder}/pip", "install", "-q", *PEERS], check=True, stderr=subprocess.DEVNULL)
    with tempfile.TemporaryDirectory() as folder:
        build = [f"{bin_folder}/pip", "wheel", "-q", "--no-deps", "-w", folder, ROOT]
        subprocess.run(build, check=True, stderr=subprocess.DEVNULL)
        (wheel,) = os.listdir(folder)
        path = os.path.join(folder, wheel)
        command = [f"{bin_folder}/pip", "install", "-q", "--force-reinstall", "--no-deps", path]
        subprocess.run(command, check=True, stderr=subprocess.DEVNULL)
    return bin_folder


def default_plugin() -> str:
    """Compile the plugin to measure on, once."""
    path = os.path.join(WORK, "mlp.so")
    if not os.path.exists(path):
        subprocess.run([sys.executable, "-c", COMPILE, path], check=True, stdout=subprocess.DEVNULL)
    return path


def default_big() -> str:
    """Return the libtorch_cpu.so of the installed PyTorch, without importing it."""
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        sys.exit("no PyTorch is installed here: name a big library with --big")
    return os.path.join(os.path.dirname(spec.origin), "lib", "libtorch_cpu.so")


def wheel_around(path: str) -> str:
    """Return a wheel that holds just this file: what auditwheel takes."""
    wheel = os.path.join(WORK, f"x{os.path.getsize(path)}-1.0-cp311-cp311-linux_x86_64.whl")
    name = os.path.basename(wheel).split("-")[0]
    info = f"{name}-1.0.dist-info"
    if not os.path.exists(wheel):
        with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
            archive.write(path, f"{name}/{os.path.basename(path)}")
            archive.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
            tag = "Wheel-Version: 1.0\nGenerator: b\nRoot-Is-Purelib: false\nTag: cp311-cp311-linux_x86_64\n"
            archive.writestr(f"{info}/WHEEL", tag)
            archive.writestr(f"{info}/RECORD", "")
    return wheel


#: A child starts with its parent's memory counted as its own, so a parent with as little as can be runs it.
PEAK = """
import os, sys
null = os.open(os.devnull, os.O_WRONLY)
files = [(os.POSIX_SPAWN_DUP2, null, 1), (os.POSIX_SPAWN_DUP2, null, 2)]
pid = os.posix_spawn(sys.argv[1], sys.argv[1:], os.environ, file_actions=files)
print(os.wait4(pid, 0)[2].ru_maxrss)
"""


def elapsed(command: list[str]) -> float:
    """Run a command; return its wall-clock time in milliseconds."""
    start = time.perf_counter()
    subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=ENVIRONMENT)
    return (time.perf_counter() - start) * 1e3


def peak(command: list[str]) -> float:
    """Run a command; return its peak resident memory in MiB."""
    path = shutil.which(command[0]) or command[0]
    runner = [sys.executable, "-I", "-S", "-c", PEAK, path, *command[1:]]
    done = subprocess.run(runner, capture_output=True, text=True, check=True, env=ENVIRONMENT)
    return int(done.stdout) / 1024


def compare(title: str, commands: dict[str, list[str]], runs: int, slow_runs: int) -> None:
    """Time all commands in turn and print a table."""
    times: dict[str, list[float]] = {name: [] for name in commands}
    memory = {name: peak(command) for name, command in commands.items()}
    for index in range(runs):
        for name, command in commands.items():
            if index >= slow_runs and statistics.median(times[name]) > 400:
                continue
            times[name].append(elapsed(command))
    base = statistics.median(times["python -c pass"])
    print(f"\n### {title}\n")
    print("| whole process | median ms | times `python -c pass` | peak RSS MiB | runs |")
    print("|---|---:|---:|---:|---:|")
    for name, values in times.items():
        median = statistics.median(values)
        print(f"| {name} | {median:.1f} | {median / base:.2f} | {memory[name]:.1f} | {len(values)} |")
    sys.stdout.flush()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=21)
    parser.add_argument("--plugin")
    parser.add_argument("--big")
    options = parser.parse_args()
    os.makedirs(WORK, exist_ok=True)
    plugin, big = options.plugin or default_plugin(), options.big or default_big()
    folder = environment()
    python = f"{folder}/python"

    def commands(path: str, facts_only: bool) -> dict[str, list[str]]:
        ours = {
            "**aoti-inspect --format json** (all hosts)": [
                f"{folder}/aoti-inspect",
                "--format",
                "json",
                path,
            ],
            "**aoti-inspect --format json --host torch==2.13**": [
                f"{folder}/aoti-inspect",
                "--format",
                "json",
                "--host",
                "torch==2.13",
                path,
            ],
        }
        facts = {"**aoti-inspect facts**": [f"{folder}/aoti-inspect", "facts", path]}
        return {
            "python -c pass": [python, "-c", "pass"],
            **(facts if facts_only else {**facts, **ours}),
            "pyelftools walk": [python, "-c", PYELFTOOLS, path],
            "import lief, parse": [python, "-c", LIEF, path],
            "auditwheel show": [f"{folder}/auditwheel", "show", wheel_around(path)],
            "abi3audit": [f"{folder}/abi3audit", "--assume-minimum-abi3", "3.8", path],
            "readelf -dVW --dyn-syms": ["readelf", "-dVW", "--dyn-syms", path],
        }

    size = os.path.getsize(plugin) / 1e6
    compare(f"A plugin of {size:.1f} MB", commands(plugin, facts_only=False), options.runs, 3)
    size = os.path.getsize(big) / 1e6
    compare(f"libtorch_cpu.so, {size:.0f} MB", commands(big, facts_only=True), options.runs, 3)
    with tempfile.TemporaryDirectory(dir=WORK) as scratch:
        sparse = os.path.join(scratch, "sparse.so")
        with open(plugin, "rb") as source, open(sparse, "wb") as copy:
            copy.write(source.read())
            copy.truncate(5 << 30)
        rows = {
            "python -c pass": [python, "-c", "pass"],
            "**aoti-inspect --format json**": [f"{folder}/aoti-inspect", "--format", "json", sparse],
        }
        compare("The same plugin, grown to a sparse 5 GiB", rows, options.runs, 3)


if __name__ == "__main__":
    main()
