"""The dynamic linker's search, step by step, against real files and the real linker."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from aoti_inspect.hosts.library_search import LibrarySearch

X86_64, AARCH64 = 62, 183


def elf_header(machine: int, bits: int = 64) -> bytes:
    return (
        b"\x7fELF"
        + bytes([bits // 32, 1, 1])
        + bytes(9)
        + b"\x03\x00"
        + machine.to_bytes(2, "little")
        + bytes(44)
    )


def library(folder: Path, name: str = "libx.so", machine: int = X86_64, bits: int = 64) -> str:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(elf_header(machine, bits))
    return str(folder / name)


@pytest.fixture
def search(tmp_path: Path) -> LibrarySearch:
    return LibrarySearch(
        X86_64, 64, "x86_64", library_path=str(tmp_path / "env"), cache=str(tmp_path / "no-cache")
    )


def test_rpath_comes_first_and_runpath_after_the_environment(tmp_path: Path, search: LibrarySearch) -> None:
    rpath, env, run = (library(tmp_path / name) for name in ("rpath", "env", "run"))
    owner = str(tmp_path)
    found = search.find("libx.so", search.folders(origin=owner, rpaths=((owner, "$ORIGIN/rpath"),)))
    assert (found.path, found.via) == (rpath, "DT_RPATH")
    found = search.find("libx.so", search.folders(origin=owner, runpath=("${ORIGIN}/run",)))
    assert (found.path, found.via) == (env, "LD_LIBRARY_PATH")
    os.unlink(env)
    found = search.find("libx.so", search.folders(origin=owner, runpath=("${ORIGIN}/run",)))
    assert (found.path, found.via) == (run, "DT_RUNPATH")


def test_a_runpath_switches_rpaths_off(tmp_path: Path, search: LibrarySearch) -> None:
    library(tmp_path / "rpath")
    owner = str(tmp_path)
    assert (
        search.find(
            "libx.so", search.folders(origin=owner, rpaths=((owner, "$ORIGIN/rpath"),), runpath=("/none",))
        )
        is None
    )


@pytest.mark.parametrize(("machine", "bits"), [(AARCH64, 64), (X86_64, 32)])
def test_a_file_for_another_machine_or_class_is_passed_over(
    tmp_path: Path, search: LibrarySearch, machine: int, bits: int
) -> None:
    library(tmp_path / "first", machine=machine, bits=bits)
    right = library(tmp_path / "second")
    found = search.find(
        "libx.so", search.folders(origin=str(tmp_path), runpath=("$ORIGIN/first", "$ORIGIN/second"))
    )
    assert found.path == right


@pytest.mark.parametrize("content", [b"", b"\x7fELF", b"GROUP ( libc.so.6 )", b"\x7fELF\x09\x09" + bytes(60)])
def test_what_is_no_elf_file_is_passed_over(tmp_path: Path, search: LibrarySearch, content: bytes) -> None:
    (tmp_path / "libx.so").write_bytes(content)
    assert search.find("libx.so", search.folders(origin=str(tmp_path), runpath=("$ORIGIN",))) is None


@pytest.mark.parametrize("name", ["", "\0", "lib\0x.so", "x" * 300, "/nowhere/libx.so"])
def test_a_name_that_can_be_no_file_is_not_found(tmp_path: Path, search: LibrarySearch, name: str) -> None:
    assert search.find(name, search.folders(origin=str(tmp_path), runpath=("$ORIGIN",))) is None


def test_a_name_with_a_slash_is_a_path(tmp_path: Path, search: LibrarySearch) -> None:
    path = library(tmp_path / "any")
    assert search.find(path, search.folders(origin="/")).path == path


def test_a_folder_with_the_name_is_passed_over(tmp_path: Path, search: LibrarySearch) -> None:
    (tmp_path / "libx.so").mkdir()
    assert search.find("libx.so", search.folders(origin=str(tmp_path), runpath=("$ORIGIN",))) is None


def test_a_broken_cache_is_as_none(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    for content in (
        b"glibc-ld.so.cache1.1",
        b"glibc-ld.so.cache1.1" + b"\xff" * 200,
        b"ld.so-1.7.0" + bytes(100),
    ):
        cache.write_bytes(content)
        search = LibrarySearch(X86_64, 64, "none", cache=str(cache))
        assert search.find("libnothing-here.so", search.folders(origin="/")) is None


def test_the_libraries_of_a_program_are_found_where_ldd_finds_them() -> None:
    program = os.path.realpath(shutil.which("readelf") or "/bin/ls")
    machine = os.uname().machine
    listed = subprocess.run(["ldd", program], check=True, capture_output=True, text=True).stdout
    expected = dict(re.findall(r"^\s*(\S+) => (\S+)", listed, re.MULTILINE))
    assert expected
    search = LibrarySearch({"x86_64": X86_64, "aarch64": AARCH64}[machine], 64, machine)
    for name, path in expected.items():
        found = search.find(name, search.folders(origin=os.path.dirname(program)))
        assert found is not None, name
        assert os.path.samefile(found.path, path), name
