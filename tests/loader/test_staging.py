"""The private copy (behaviour L9): in memory, or in a private folder that nothing is left in."""

from __future__ import annotations

import os
import re
import stat
from typing import TYPE_CHECKING

import pytest

import aoti_loader
from aoti_abi.errors import AccessFailed
from aoti_inspect.source import BufferSource
from aoti_loader import staging
from aoti_loader.mending import Patch
from aoti_loader.process import PROCESS

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.fixture
def on_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(staging, "_in_memory", lambda: None)


def test_L9_a_copy_in_memory_leaves_nothing_on_disk() -> None:
    staged = staging.stage(BufferSource(b"0123456789"), [Patch(3, b"xy")], name="p.so")
    assert staged.kind == "memory"
    with open(staged.path, "rb") as stream:
        assert stream.read() == b"012xy56789"
    staging.release(staged)
    assert not os.path.exists(staged.path)


@pytest.mark.usefixtures("on_disk")
def test_L9_N22_a_copy_on_disk_is_private_and_named_by_a_counter() -> None:
    copies = [staging.stage(BufferSource(b"abc"), name="../../evil") for _ in range(2)]
    for staged in copies:
        assert staged.kind == "file"
        folder, name = os.path.split(staged.path)
        assert stat.S_IMODE(os.stat(folder).st_mode) == 0o700
        assert re.fullmatch(rf"{os.getpid()}-[0-9]+\.so", name)
        assert stat.S_IMODE(os.stat(staged.path).st_mode) == 0o500
    assert copies[0].path != copies[1].path
    for staged in copies:
        staging.release(staged)
        assert not os.path.exists(staged.path)


@pytest.mark.usefixtures("on_disk")
def test_L9_N60_the_copy_is_removed_when_the_plugin_is_closed(plugin: Callable[..., str]) -> None:
    loaded = aoti_loader.load(plugin(), warn=False)
    assert loaded.staging == "file"
    path = loaded._staged.path  # type: ignore[union-attr]
    assert os.path.exists(path)
    assert loaded.close()
    assert not os.path.exists(path)


@pytest.mark.usefixtures("on_disk")
def test_L9_the_copy_is_removed_when_loading_fails(plugin: Callable[..., str]) -> None:
    with pytest.raises(AccessFailed, match="nothing in the process defines nowhere"):
        aoti_loader.load(plugin("-DNEEDS=X(nowhere)"), warn=False)
    assert PROCESS.staging_folder
    assert os.listdir(PROCESS.staging_folder[0]) == []


@pytest.mark.usefixtures("on_disk")
def test_N25_a_failure_after_dlopen_leaves_nothing(
    plugin: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from aoti_loader import loading

    mapped = []

    def fail(*_: object) -> None:
        assert PROCESS.staging_folder
        with open("/proc/self/maps") as stream:
            mapped.append(PROCESS.staging_folder[0] in stream.read())
        raise RuntimeError("after dlopen")

    monkeypatch.setattr(loading, "equip", fail)
    with pytest.raises(RuntimeError, match="after dlopen"):
        aoti_loader.load(plugin(), warn=False)
    assert mapped == [True]
    assert PROCESS.staging_folder
    assert os.listdir(PROCESS.staging_folder[0]) == []
    with open("/proc/self/maps") as stream:
        assert PROCESS.staging_folder[0] not in stream.read()


def test_L9_the_folder_is_removed_at_exit(plugin: Callable[..., str], child: Callable[..., str]) -> None:
    code = """
    import os, sys, aoti_loader
    from aoti_loader import staging
    from aoti_loader.process import PROCESS
    staging._in_memory = lambda: None
    plugin = aoti_loader.load(sys.argv[1], warn=False)
    if os.fork() == 0: sys.exit()  # a child leaves its parent's copies alone
    os.wait()
    assert os.listdir(PROCESS.staging_folder[0])
    print(plugin.staging, PROCESS.staging_folder[0])
    """
    kind, folder = child(code, plugin()).split()
    assert kind == "file"
    assert not os.path.exists(folder)


@pytest.mark.parametrize("in_memory", [True, False])
def test_L9_N23_a_short_write_is_access_failed(monkeypatch: pytest.MonkeyPatch, in_memory: bool) -> None:
    monkeypatch.setattr(os, "write", lambda _descriptor, data: len(data) - 1)
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(AccessFailed, match=r"p\.so: only 9 of 10 bytes could be copied"):
        staging.stage(BufferSource(b"0123456789"), name="p.so", in_memory=in_memory)
    assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.parametrize("in_memory", [True, False])
def test_L9_a_full_disk_is_access_failed(monkeypatch: pytest.MonkeyPatch, in_memory: bool) -> None:
    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(AccessFailed, match="No space left on device"):
        staging.stage(BufferSource(b"0123456789"), name="p.so", in_memory=in_memory)


def test_L9_no_folder_is_access_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> str:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(staging, "_private_folder", refuse)
    with pytest.raises(AccessFailed, match="no private place"):
        staging.stage(BufferSource(b"x"), name="p.so", in_memory=False)


def test_large_files_are_copied_to_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(staging, "MEMORY_LIMIT", 5)
    monkeypatch.setattr(staging, "_CHUNK", 4)
    staged = staging.stage(BufferSource(b"0123456789"), name="p.so")
    assert staged.kind == "file"
    with open(staged.path, "rb") as stream:
        assert stream.read() == b"0123456789"
    staging.release(staged)


def test_code_that_may_not_run_from_memory_runs_from_disk(
    plugin: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from aoti_loader import linker

    original = linker.open_owned

    def refuse_memory(path: str, flags: int) -> linker.Opened:
        if path.startswith("/proc/self/fd"):
            raise AccessFailed("refused", cause=f"{path}: failed to map segment from shared object")
        return original(path, flags)

    monkeypatch.setattr(linker, "open_owned", refuse_memory)
    loaded = aoti_loader.load(plugin(), warn=False)
    assert loaded.staging == "file"
    assert loaded.close()


def test_a_descriptor_stays_taken_while_its_copy_is_loaded(plugin: Callable[..., str]) -> None:
    """The dynamic linker takes what is loaded under the same name for the same library."""
    loaded = [aoti_loader.load(plugin(TAG=str(number)), warn=False) for number in range(5)]
    assert len({item._staged.path for item in loaded}) == 5  # type: ignore[union-attr]
    for item in loaded:
        item.close()
