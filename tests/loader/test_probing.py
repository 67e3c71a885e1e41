"""Probing a plugin in a child process: what it says, or what became of it."""

from __future__ import annotations

import os
import pickle
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import aoti_loader
from aoti_abi.errors import AccessFailed, InvalidArgument, InvalidProgram, NotFound
from aoti_abi.features import FEATURES
from aoti_loader import probing

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable


def test_a_probe_tells_what_the_plugin_says(plugin: Callable[..., str]) -> None:
    found = aoti_loader.probe(plugin(NAMES='"z"', ENTRIES="OK"))
    assert found.outcome == "loads"
    assert found.host == "builtin"
    assert (found.inputs, found.outputs) == (("x", "y"), ("z",))
    assert found.constants is None
    assert found.features["read-constants"]
    assert not found.features["weight-sharing"]
    assert list(found.features) == list(FEATURES)
    assert found.error is None
    assert pickle.loads(pickle.dumps(found)) == found


def test_a_real_plugin(real_plugin: str) -> None:
    found = aoti_loader.probe(real_plugin, host="builtin")
    assert found.outcome == "loads"
    assert found.inputs
    assert found.outputs
    assert found.constants is not None
    assert all(constant.name and constant.fqn and constant.dtype == 6 for constant in found.constants)
    assert found.call_spec is not None


def test_a_crash_is_named(plugin: Callable[..., str]) -> None:
    found = aoti_loader.probe(plugin("-DCREATE_CRASHES"))
    assert (found.outcome, found.signal) == ("crashed", "SIGSEGV")
    found = aoti_loader.probe(plugin("-DCREATE_ABORTS"))
    assert (found.outcome, found.signal) == ("crashed", "SIGABRT")
    assert "terminate called" in found.stderr


def test_an_exit_is_a_crash_too(plugin: Callable[..., str]) -> None:
    found = aoti_loader.probe(plugin("-DCREATE_EXITS"))
    assert (found.outcome, found.signal, found.exit_code) == ("crashed", None, 3)


def test_a_hang_is_ended(plugin: Callable[..., str]) -> None:
    found = aoti_loader.probe(plugin("-DCREATE_HANGS"), timeout=1)
    assert found.outcome == "timed out"


def test_an_interrupt_ends_the_child_too(plugin: Callable[..., str], monkeypatch: pytest.MonkeyPatch) -> None:
    children = []

    def interrupt(child: subprocess.Popen[bytes]) -> bool:
        children.append(child)
        raise KeyboardInterrupt

    monkeypatch.setattr(probing, "_has_ended", interrupt)
    with pytest.raises(KeyboardInterrupt):
        aoti_loader.probe(plugin("-DCREATE_HANGS"), timeout=50)
    assert children[0].returncode == -signal.SIGKILL


def test_no_child_process_is_an_error_that_leaves_nothing_open(
    plugin: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = plugin()
    before = os.listdir("/proc/self/fd")
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    with pytest.raises(AccessFailed, match="no child process could be started"):
        aoti_loader.probe(path)
    assert len(os.listdir("/proc/self/fd")) == len(before)


def test_processes_that_a_plugin_leaves_behind_are_ended(
    compile_library: Callable[..., str], tmp_path: Path
) -> None:
    mark = tmp_path / "pid"
    source = """
        #include <stdio.h>
        #include <stdlib.h>
        #include <unistd.h>
        __attribute__((constructor)) static void leave(void)
        {
            if (fork() == 0) {
                FILE *file = fopen(MARK, "w");
                fprintf(file, "%d", getpid());
                fclose(file);
                sleep(60);
                _exit(0);
            }
            while (access(MARK, R_OK)) usleep(1000);
            usleep(20000);
            _exit(5);
        }
        int AOTInductorModelContainerRun(void) { return 0; }
        int AOTInductorModelContainerDelete(void) { return 0; }
        int AOTInductorModelContainerCreateWithDevice(void) { return 0; }
        int AOTInductorModelContainerGetNumInputs(void) { return 0; }
        int AOTInductorModelContainerGetNumOutputs(void) { return 0; }
        int AOTInductorModelContainerCreate(void) { return 0; }
    """
    start = time.monotonic()
    found = aoti_loader.probe(compile_library(source, f'-DMARK="{mark}"'), timeout=50)
    assert (found.outcome, found.exit_code) == ("crashed", 5)
    assert time.monotonic() - start < 20
    status = Path(f"/proc/{mark.read_text()}/stat")
    # Whoever adopted it may still have to wait for it.
    while status.exists() and status.read_text().split()[2] != "Z":
        assert time.monotonic() - start < 30
        time.sleep(0.01)


def test_what_a_plugin_prints_is_no_answer(plugin: Callable[..., str]) -> None:
    found = aoti_loader.probe(plugin("-DCREATE_PRINTS"))
    assert found.outcome == "loads"
    assert found.inputs == ("input0", "input1")
    assert "outcome" in found.stderr


def test_a_refusal_comes_back_as_the_error(plugin: Callable[..., str]) -> None:
    found = aoti_loader.probe(plugin("-DNO_RUN"))
    assert found.outcome == "refused"
    assert isinstance(found.error, InvalidProgram)
    assert "AOTInductorModelContainerRun" in str(found.error)
    assert isinstance(aoti_loader.probe("/nowhere.so").error, NotFound)


def test_a_container_that_cannot_be_made_is_told(plugin: Callable[..., str]) -> None:
    found = aoti_loader.probe(plugin(), device="gpu")
    assert found.outcome == "loads"
    assert found.error is not None
    assert found.error.cause == "Invalid device"


def test_a_malformed_answer_is_told(plugin: Callable[..., str]) -> None:
    found = aoti_loader.probe(plugin(NAMES='"\\xff"'))
    assert isinstance(found.error, InvalidProgram)
    assert "is not UTF-8" in str(found.error)


def test_little_memory_is_no_crash_of_ours(plugin: Callable[..., str]) -> None:
    found = aoti_loader.probe(plugin(), memory=64 << 20)
    assert found.outcome in ("loads", "refused", "crashed")


def test_wrong_arguments(plugin: Callable[..., str]) -> None:
    with pytest.raises(InvalidArgument, match="timeout"):
        aoti_loader.probe(plugin(), timeout=0)
    with pytest.raises(InvalidArgument, match="unknown option 'colour'"):
        aoti_loader.probe(plugin(), colour=True)
