"""What the executor's tests share: the two libraries, real and synthetic plugins, child processes."""

from __future__ import annotations

import ctypes
import os
import shutil
import struct
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from aoti_loader import load
from aoti_loader.hosts.builtin import find as find_builtin

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from aoti_loader import Plugin

ROOT = Path(__file__).resolve().parents[2]
SOURCES = Path(__file__).parent / "sources"


@pytest.fixture(scope="session", autouse=True)
def libraries(native_libraries: str) -> str:
    """The toolkit's own C libraries, for every test here."""
    return native_libraries


class Stats(ctypes.Structure):
    """What the built-in host counts."""

    _fields_ = (("tensors", ctypes.c_int64), ("storages", ctypes.c_int64), ("owned_bytes", ctypes.c_int64))


@pytest.fixture
def live_tensors() -> Callable[[], int]:
    """Return a function that counts the tensor handles which the built-in host has given out."""
    library = ctypes.CDLL(find_builtin())

    def count() -> int:
        stats = Stats()
        library.aoti_shim_get_stats(ctypes.byref(stats))
        return int(stats.tensors)

    return count


@pytest.fixture
def synthetic(compile_library: Callable[..., str]) -> Iterator[Callable[..., Plugin]]:
    """Compile and load ``sources/plugin.c``; macros as ``synthetic(OUTPUTS=2)``."""
    loaded = []

    def build(**macros: Any) -> Plugin:
        given = [f"-D{key}={value}" for key, value in macros.items()]
        path = compile_library((SOURCES / "plugin.c").read_text(), *given, name="synthetic.so")
        plugin = load(path, host="builtin", warn=False)
        loaded.append(plugin)
        return plugin

    yield build
    for plugin in loaded:
        plugin.close()


@pytest.fixture
def exported() -> Callable[[Plugin, str], Any]:
    """Return a function that finds a function of a synthetic plugin which is no part of the container API."""
    from aoti_loader import linker

    return lambda plugin, name: linker.library(plugin._handle)[name]


@pytest.fixture
def arrays() -> Callable[[Path], tuple[list[Any], dict[int, Any]]]:
    """Return a function for the inputs and the expected outputs, by number, of an ``.npz``."""

    def read(path: Path) -> tuple[list[Any], dict[int, Any]]:
        with np.load(path) as content:
            inputs = [content[f"in{i}"] for i in range(len(content.files)) if f"in{i}" in content.files]
            outputs = {int(key[3:]): content[key] for key in content.files if key.startswith("out")}
        return inputs, outputs

    return read


@pytest.fixture
def program(tmp_path: Path) -> Callable[..., Path]:
    """Put real plugins for the stand-ins of a program: ``program("name", forward=path)``.

    The plugin goes behind the file's last segment, and its segment's offset and size are written over.
    """
    from flatbuffers.table import Table

    from aoti_inspect.artifacts import open_artifact

    def build(name: str, **plugins: Path) -> Path:
        source = ROOT / "fixtures" / "artifacts" / f"{name}.pte"
        for companion in source.parent.glob(f"{name}.*.ptd"):
            shutil.copy(companion, tmp_path)
        data = bytearray(source.read_bytes())
        base = int.from_bytes(data[24:32], "little")
        root = Table(data, int.from_bytes(data[:4], "little"))
        segments = Table(data, 0)
        segments.Pos = root.Vector(root.Offset(4 + 2 * 4))
        count = root.VectorLen(root.Offset(4 + 2 * 4))
        with open_artifact(str(source)) as artifact:
            places = {method: artifact.model(method).plugin.location.offset - base for method in plugins}
        for method, path in plugins.items():
            data += bytes(-len(data) % 128)
            for index in range(count):
                segment = Table(data, segments.Indirect(segments.Pos + 4 * index))
                at_offset, at_size = segment.Offset(4), segment.Offset(6)
                offset = int.from_bytes(data[segment.Pos + at_offset :][:8], "little") if at_offset else 0
                if offset != places[method] or not at_size:
                    continue
                if at_offset:
                    struct.pack_into("<Q", data, segment.Pos + at_offset, len(data) - base)
                else:  # the first segment's offset is 0, which is not stored: it is the only one
                    del data[base:]
                struct.pack_into("<Q", data, segment.Pos + at_size, path.stat().st_size)
            data += path.read_bytes()
        if int.from_bytes(data[12:16], "little") >= 32:
            struct.pack_into("<Q", data, 32, len(data) - base)
        target = tmp_path / f"{name}.pte"
        target.write_bytes(data)
        return target

    return build


@pytest.fixture(scope="session")
def child() -> Callable[..., str]:
    """Run Python code in a process of its own: ``child(code, *arguments, status=0, **environment)``."""

    def run(
        code: str, *arguments: str, status: int = 0, options: tuple[str, ...] = (), **environment: str
    ) -> str:
        path = os.pathsep.join(entry for entry in sys.path if entry)
        inherited = {key: value for key, value in os.environ.items() if key != "AOTI_RUNTIME_CHECK_INPUTS"}
        done = subprocess.run(
            [sys.executable, *options, "-c", textwrap.dedent(code), *arguments],
            capture_output=True,
            text=True,
            env={**inherited, "PYTHONPATH": path, **environment},
            timeout=120,
            check=False,
        )
        assert done.returncode == status, f"status {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    return run
