"""What packages cost: to inspect one, against the same plugin as a file, and to load one.

Usage: python benchmarks/bench_artifacts.py [--runs N] [--plugin FILE]

Whole processes are timed in turn, so that a busy machine slows all of them alike; the tables give medians.
The large package has a blob of 2 GB that is one hole, so it takes no space on disk. What a run reads is
counted by the kernel (``rchar``) and, for what is mapped, by the pages that are resident at its end. Loading
is measured on a plugin of 64 MiB in a package with that blob; it needs a C compiler and the C libraries,
which it builds with CMake.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import struct
import subprocess
import sys
import tempfile
import time
import zipfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
DEFAULT_PLUGIN = os.path.join(ROOT, "fixtures", "plugins", "mlp.so")
HOLE = 2_000_000_000

#: Runs the command in the process that then reports on itself.
MEASURED = """
import contextlib, io, sys
from aoti_inspect.command.cli import main
with contextlib.redirect_stdout(io.StringIO()):
    main([sys.argv[1]])
with open("/proc/self/io") as f:
    read = int(f.readline().split()[1])
with open("/proc/self/status") as f:
    status = dict(line.split(":", 1) for line in f)
print(read, status["VmHWM"].split()[0], status["RssFile"].split()[0])
"""


#: A plugin that is mostly data, so that a copy of it shows.
LARGE = """
#include <stddef.h>
const char data[64 << 20] = {1};
const char *look(size_t i) { return &data[i]; }
int AOTInductorModelContainerCreateWithDevice(void **c, size_t n, const char *d, const char *b)
{ *c = &data; return 0; }
int AOTInductorModelContainerDelete(void *c) { return 0; }
int AOTInductorModelContainerGetNumInputs(void *c, size_t *n) { *n = 0; return 0; }
int AOTInductorModelContainerGetNumOutputs(void *c, size_t *n) { *n = 0; return 0; }
int AOTInductorModelContainerRun(void *c, void **i, size_t a, void **o, size_t b, void *s, void *p)
{ return 0; }
"""

#: Loads the plugin of a package, without binding weights, and tells what that added to the process.
LOADED = """
import sys
from aoti_inspect.artifacts.read import open_artifact
from aoti_loader import load
def memory():
    with open("/proc/self/status") as f:
        status = dict(line.split(":", 1) for line in f)
    with open("/proc/meminfo") as f:
        system = dict(line.split(":", 1) for line in f)
    values = [status[key] for key in ("RssAnon", "RssFile")] + [system["Shmem"]]
    return [int(value.split()[0]) for value in values]
load(sys.argv[2], host="builtin", warn=False)
before = memory()
with open_artifact(sys.argv[1]) as artifact:
    plugin = load(artifact.model("model").plugin, host="builtin", warn=False)
    print(*(after - earlier for after, earlier in zip(memory(), before)))
"""


def environment() -> dict[str, str]:
    kept = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    return kept | {"PYTHONPATH": os.pathsep.join(f"{ROOT}/{part}" for part in ("abi", "inspect", "loader"))}


def members(plugin: str) -> dict[str, bytes]:
    with open(plugin, "rb") as stream:
        library = stream.read()
    folder = "m/data/aotinductor/model/x.wrapper"
    metadata = os.path.splitext(plugin)[0] + "_metadata.json"
    text = b'{"AOTI_DEVICE_KEY": "cpu"}'
    if os.path.exists(metadata):
        with open(metadata, "rb") as stream:
            text = stream.read()
    return {
        "m/archive_format": b"pt2",
        "m/archive_version": b"0",
        "m/byteorder": b"little",
        f"{folder}.so": library,
        f"{folder}_metadata.json": text,
    }


def write_package(path: str, plugin: str) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in members(plugin).items():
            archive.writestr(name, content)


def write_sparse_package(path: str, plugin: str) -> None:
    """Write the same package with a stored blob that is a hole; nobody reads it, so its checksum is 0."""
    name = b"m/data/aotinductor/model/x.wrapper_weights.blob"
    write_package(path, plugin)
    with open(path, "r+b") as stream:
        data = stream.read()
        end = data.rindex(b"PK\x05\x06")
        count, size, start = struct.unpack_from("<HII", data, end + 10)
        stream.seek(start)
        stream.write(
            struct.pack("<4s5H3I2H", b"PK\x03\x04", 20, 0, 0, 0, 0, 0, HOLE, HOLE, len(name), 0) + name
        )
        stream.seek(HOLE, os.SEEK_CUR)
        moved = stream.tell()
        entry = struct.pack(
            "<4s6H3I5H2I", b"PK\x01\x02", 20, 20, 0, 0, 0, 0, 0, HOLE, HOLE, len(name), 0, 0, 0, 0, 0, start
        )
        stream.write(data[start : start + size] + entry + name)
        total = size + len(entry) + len(name)
        stream.write(struct.pack("<4s4H2IH", b"PK\x05\x06", 0, 0, count + 1, count + 1, total, moved, 0))


def timed(path: str) -> float:
    start = time.perf_counter()
    subprocess.run([sys.executable, "-m", "aoti_inspect", path], env=environment(), stdout=subprocess.DEVNULL)
    return time.perf_counter() - start


def measured(path: str) -> tuple[float, float, float]:
    """Return megabytes read by calls, peak resident, and resident as mapped files at the end."""
    done = subprocess.run(
        [sys.executable, "-c", MEASURED, path], env=environment(), capture_output=True, text=True, check=True
    )
    read, peak, mapped = map(int, done.stdout.split())
    return read / 1e6, peak / 1024, mapped / 1024


def loading(folder: str) -> None:
    """Measure what loading a large plugin out of a package adds to the process."""
    build = os.path.join(folder, "build")
    source, plugin = os.path.join(folder, "large.c"), os.path.join(folder, "large.so")
    with open(source, "w", encoding="ascii") as stream:
        stream.write(LARGE)
    for command in (
        ["cmake", "-S", os.path.join(ROOT, "native"), "-B", build],
        ["cmake", "--build", build],
        [os.environ.get("CC", "cc"), "-shared", "-fPIC", "-w", source, "-o", plugin],
    ):
        subprocess.run(command, check=True, capture_output=True)
    package = os.path.join(folder, "large.pt2")
    write_sparse_package(package, plugin)
    variables = environment() | {"AOTI_SHIM_PATH": os.path.join(build, "libaoti_shim.so")}
    small = os.path.join(ROOT, "fixtures", "plugins", "mlp.so")
    command = [sys.executable, "-c", LOADED, package, small]
    done = subprocess.run(command, env=variables, capture_output=True, text=True, check=True)
    anonymous, mapped, copies = (int(value) / 1024 for value in done.stdout.split())
    size = os.path.getsize(plugin) / (1 << 20)
    print("\n| loading a plugin out of a package with 2 GB of weights | MiB |\n|---|---:|")
    print(f"| the plugin's own size | {size:.1f} |")
    print(f"| private copies (growth of the system's shared memory, where memfd files are) | {copies:.1f} |")
    print(f"| anonymous memory it adds | {anonymous:.1f} |")
    print(f"| pages of files, the package among them, that become resident | {mapped:.1f} |")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=21)
    parser.add_argument("--plugin", default=DEFAULT_PLUGIN)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        plain = shutil.copy(options.plugin, os.path.join(folder, "x.so"))
        with open(os.path.join(folder, "x_metadata.json"), "wb") as stream:
            stream.write(members(options.plugin)["m/data/aotinductor/model/x.wrapper_metadata.json"])
        package, sparse = os.path.join(folder, "x.pt2"), os.path.join(folder, "sparse.pt2")
        write_package(package, options.plugin)
        write_sparse_package(sparse, options.plugin)
        program = os.path.join(ROOT, "fixtures", "artifacts", "aoti_multimethod_external.pte")
        paths = {"plugin": plain, "package": package, "package of 2 GB": sparse, "program (.pte)": program}
        times: dict[str, list[float]] = {name: [] for name in paths}
        for _ in range(options.runs):
            for name, path in paths.items():
                times[name].append(timed(path))
        base = statistics.median(times["plugin"])
        print("| aoti-inspect, whole process | median ms | ratio | MB read | peak MiB | mapped MiB |")
        print("|---|---:|---:|---:|---:|---:|")
        for name, path in paths.items():
            median = statistics.median(times[name])
            read, peak, mapped = measured(path)
            cells = (
                f"{median * 1e3:.1f}",
                f"{median / base:.2f}",
                f"{read:.2f}",
                f"{peak:.1f}",
                f"{mapped:.1f}",
            )
            print(f"| {name} | {' | '.join(cells)} |")
        loading(folder)


if __name__ == "__main__":
    main()
