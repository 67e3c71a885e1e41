"""What the loader's tests share: synthetic plugins, the built-in host, and child processes."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).resolve().parents[2]
SOURCES = Path(__file__).parent / "sources"


@pytest.fixture(scope="session", autouse=True)
def builtin_library(native_libraries: str) -> str:
    """The built-in host's library, for every test here."""
    return native_libraries


@pytest.fixture(scope="session")
def plugin(compile_library: Callable[..., str]) -> Callable[..., str]:
    """Compile ``sources/plugin.c``; macros as ``plugin(ENTRIES="NULL_NAME", NAMES='"z"')``."""

    def build(*flags: str, name: str = "plugin.so", **macros: str) -> str:
        given = [f"-D{key}={value}" for key, value in macros.items()]
        return compile_library((SOURCES / "plugin.c").read_text(), *given, *flags, name=name)

    return build


@pytest.fixture(scope="session")
def cxx_plugin(compile_library: Callable[..., str]) -> Callable[..., str]:
    """Compile ``sources/cxx_plugin.cpp`` with the given flags."""

    def build(*flags: str, name: str = "cxx_plugin.so") -> str:
        return compile_library((SOURCES / "cxx_plugin.cpp").read_text(), *flags, name=name, cxx=True)

    return build


@pytest.fixture(scope="session")
def host_library(compile_library: Callable[..., str]) -> Callable[..., str]:
    """Compile ``sources/host.c`` with the given flags."""

    def build(*flags: str) -> str:
        return compile_library((SOURCES / "host.c").read_text(), *flags, name="libhost.so")

    return build


@pytest.fixture(scope="session")
def child() -> Callable[..., str]:
    """Run Python code in a process of its own, where the state of the dynamic linker is fresh.

    ``child(code, *arguments, status=0, **environment)`` returns what it printed.
    """

    def run(code: str, *arguments: str, status: int = 0, **environment: str) -> str:
        path = os.pathsep.join(entry for entry in sys.path if entry)
        done = subprocess.run(
            [sys.executable, "-W", "error::ResourceWarning", "-c", textwrap.dedent(code), *arguments],
            capture_output=True,
            text=True,
            env={**os.environ, "PYTHONPATH": path, **environment},
            timeout=120,
            check=False,
        )
        assert done.returncode == status, f"status {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    return run


FIXTURES = sorted(str(path) for path in (ROOT / "fixtures" / "plugins").glob("*.so"))


@pytest.fixture(params=FIXTURES, ids=lambda path: Path(path).name)
def real_plugin(request: pytest.FixtureRequest) -> str:
    """Each real plugin of the fixtures."""
    return str(request.param)
