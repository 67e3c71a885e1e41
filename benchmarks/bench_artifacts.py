"""What it costs to inspect a plugin in a package, against the same plugin as a file, and a package of 2 GB.

Usage: python benchmarks/bench_artifacts.py [--runs N] [--plugin FILE]

Whole processes are timed in turn, so that a busy machine slows all of them alike; the table gives medians.
The large package has a blob of 2 GB that is one hole, so it takes no space on disk. What a run reads is
counted by the kernel (``rchar``) and, for what is mapped, by the pages that are resident at its end.
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
from aoti_inspect.cli import main
with contextlib.redirect_stdout(io.StringIO()):
    main([sys.argv[1]])
with open("/proc/self/io") as f:
    read = int(f.readline().split()[1])
with open("/proc/self/status") as f:
    status = dict(line.split(":", 1) for line in f)
print(read, status["VmHWM"].split()[0], status["RssFile"].split()[0])
"""


def environment() -> dict[str, str]:
    kept = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    return kept | {"PYTHONPATH": f"{ROOT}/abi{os.pathsep}{ROOT}/inspect"}


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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
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
        print(f"{'what':18} {'ms':>7} {'ratio':>6} {'MB read':>8} {'peak MiB':>9} {'mapped MiB':>11}")
        for name, path in paths.items():
            median = statistics.median(times[name])
            read, peak, mapped = measured(path)
            print(
                f"{name:18} {median * 1e3:7.1f} {median / base:6.2f} {read:8.2f} {peak:9.1f} {mapped:11.1f}"
            )


if __name__ == "__main__":
    main()
