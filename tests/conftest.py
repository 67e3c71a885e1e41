"""What tests of every package share: compiling small libraries with the system's compiler."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest
from hypothesis import settings

# A deadline for each example would fail on a busy machine, and says nothing of the code's cost.
settings.register_profile("toolkit", deadline=None)
settings.load_profile("toolkit")

#: A function that compiles source text and returns the path of the result.
Compile = Callable[..., str]

REQUIRED_ENTRIES = """
#include <stddef.h>
#include <stdint.h>
#define API __attribute__((visibility("default")))
API int AOTInductorModelContainerCreateWithDevice(void **c, size_t n, const char *d, const char *b)
{ return 0; }
API int AOTInductorModelContainerDelete(void *c) { return 0; }
API int AOTInductorModelContainerGetNumInputs(void *c, size_t *n) { *n = 0; return 0; }
API int AOTInductorModelContainerGetNumOutputs(void *c, size_t *n) { *n = 0; return 0; }
API int AOTInductorModelContainerRun(void *c, void **i, size_t n, void **o, size_t m, void *s, void *p)
{ return 0; }
"""


@pytest.fixture(scope="session")
def compile_library(tmp_path_factory: pytest.TempPathFactory) -> Compile:
    """Return a function ``(source, *flags, name="lib.so", cxx=False, shared=True) -> path``.

    The same source with the same flags is compiled once a session.
    """
    folder = tmp_path_factory.mktemp("compiled")

    def compile_(
        source: str, *flags: str, name: str = "lib.so", cxx: bool = False, shared: bool = True
    ) -> str:
        key = hashlib.sha256("\0".join((source, *flags, name, str(cxx), str(shared))).encode()).hexdigest()[
            :16
        ]
        target = folder / key / name
        if not target.exists():
            target.parent.mkdir(exist_ok=True)
            text = target.parent / ("source.cpp" if cxx else "source.c")
            text.write_text(source)
            compiler = os.environ.get("CXX", "c++") if cxx else os.environ.get("CC", "cc")
            kind = ["-shared", "-fPIC"] if shared else []
            command = [compiler, "-w", *kind, str(text), "-o", str(target), *flags]
            done = subprocess.run(command, capture_output=True, text=True)
            assert done.returncode == 0, f"{' '.join(command)}\n{done.stderr}"
        return str(target)

    return compile_


@pytest.fixture(scope="session")
def smallest_plugin(compile_library: Compile) -> str:
    """Return the path of a plugin in C that has the required entry points and needs nothing."""
    return compile_library(REQUIRED_ENTRIES, "-s", name="smallest.so")


@pytest.fixture
def copy(tmp_path: Path) -> Callable[[str], Path]:
    """Return a function that copies a file into the test's own folder, to be changed there."""

    def copy_(path: str) -> Path:
        return Path(shutil.copy(path, tmp_path))

    return copy_


@pytest.fixture(scope="session")
def smallest_source() -> str:
    """Return the C source of a plugin that has the required entry points and needs nothing."""
    return REQUIRED_ENTRIES


@pytest.fixture(scope="session")
def native_libraries() -> Iterator[str]:
    """Yield the path of the built-in host's library: the installed one, else one built from the sources."""
    from aoti_abi.errors import NotFound
    from aoti_loader.hosts.builtin import find as find_builtin

    try:
        path = find_builtin()
    except NotFound:
        root = Path(__file__).resolve().parents[1]
        beside = Path(sys.executable).with_name("cmake")
        cmake = str(beside) if beside.exists() else shutil.which("cmake")
        assert cmake, "the C libraries are not installed, and there is no cmake to build them"
        folder = root / "build" / "native"
        folder.mkdir(parents=True, exist_ok=True)
        # Workers share the folder; whoever comes second finds it built.
        with open(f"{folder}.lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            for command in (
                [cmake, "-S", str(root / "native"), "-B", str(folder)],
                [cmake, "--build", str(folder)],
            ):
                subprocess.run(command, check=True, capture_output=True)
        path = str(folder / "libaoti_shim.so")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AOTI_SHIM_PATH", path)
        helper = Path(path).with_name("libaoti_call.so")
        if not helper.exists():  # installed: each library lies in the package that uses it
            from aoti_executor.native import library_path

            helper = Path(library_path())
        patch.setenv("AOTI_CALL_PATH", str(helper))
        yield path


#: A skip with this reason is for what the processor lacks: nothing can be installed for it.
HARDWARE = "hardware: "


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Fail a run of CI that skipped for want of a tool: what is skipped there is tested nowhere."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if not os.environ.get("CI") or reporter is None or exitstatus:
        return
    reasons = [
        report.longrepr[2] for report in reporter.stats.get("skipped", ()) if report.when != "teardown"
    ]
    hidden = [reason for reason in reasons if HARDWARE not in reason]
    if hidden:
        reporter.write_line(
            f"{len(hidden)} tests were skipped, which CI does not allow: {hidden[0]}", red=True
        )
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


#: Suites that need processes of their own: two providers of ``aoti_torch_*`` must never meet in one (L12).
#: Some tests import PyTorch, some open it as a host, some open the built-in host.
PROCESSES = {"abi": 1, "inspect": 1, "native": 2, "loader": 3, "executor": 3}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Refuse a session that would mix them, before it crashes."""
    here = Path(__file__).parent
    folders = {item.path.relative_to(here).parts[0] for item in items if here in item.path.parents}
    if len({PROCESSES[folder] for folder in folders if folder in PROCESSES}) > 1:
        raise pytest.UsageError(
            "these suites need processes of their own: run `make test`, or name one of "
            "tests/abi tests/inspect, tests/native, tests/loader tests/executor"
        )


#: The paths whose opening is recorded, each with the record; an audit hook can't be taken away again.
_watched: dict[str, list[str]] = {}


def _record(event: str, arguments: tuple) -> None:
    if event == "open" and _watched:
        path = os.fsdecode(arguments[0]) if isinstance(arguments[0], (str, bytes)) else ""
        if path in _watched:
            _watched[path].append(path)


@pytest.fixture(scope="session")
def opens_of() -> Callable[[str], AbstractContextManager[list[str]]]:
    """Return a context manager that records each time that this process opens a path."""
    sys.addaudithook(_record)

    @contextmanager
    def watch(path: str) -> Iterator[list[str]]:
        _watched[path] = []
        try:
            yield _watched[path]
        finally:
            del _watched[path]

    return watch
