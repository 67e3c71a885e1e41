"""Verdicts for hosts that are real programs and libraries, compiled here."""

from __future__ import annotations

import os
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from aoti_inspect.artifacts.facts import read_facts
from aoti_inspect.facts.target import Target, local_target
from aoti_inspect.findings import HostVerdict
from aoti_inspect.hosts.verdicts import judge_all

Compile = Callable[..., str]

ENTRIES = """
#include <stddef.h>
int aoti_torch_get_data_ptr(void *t, void **p);
int AOTInductorModelContainerCreateWithDevice(void **c, size_t n, const char *d, const char *b) { return 0; }
int AOTInductorModelContainerDelete(void *c) { return 0; }
int AOTInductorModelContainerGetNumInputs(void *c, size_t *n) { return aoti_torch_get_data_ptr(c, 0); }
int AOTInductorModelContainerGetNumOutputs(void *c, size_t *n) { return 0; }
int AOTInductorModelContainerRun(void *c, void **i, size_t a, void **o, size_t b, void *s, void *p)
{ return 0; }
"""
SHIM = "int aoti_torch_get_data_ptr(void *t, void **p) { return 0; }"
MAIN = """
#include <dlfcn.h>
#include <stdio.h>
int main(int n, char **a) {
    if (!dlopen(a[1], RTLD_NOW | RTLD_LOCAL)) { puts(dlerror()); return 1; }
    return 0;
}
"""


@pytest.fixture(scope="session")
def plugin(compile_library: Compile) -> str:
    return compile_library(ENTRIES, name="plugin.so")


def verdict(plugin: str, host: str, target: Target | None = None) -> HostVerdict:
    (found,) = judge_all(read_facts(plugin), (host,), target or local_target())
    return found


def really_loads(host: str, plugin: str) -> bool:
    return subprocess.run([host, plugin], capture_output=True, timeout=30).returncode == 0


def test_a_program_that_exports_the_shims_loads_the_plugin(compile_library: Compile, plugin: str) -> None:
    host = compile_library(MAIN + SHIM, "-rdynamic", "-ldl", name="host", shared=False)
    found = verdict(plugin, host)
    assert found.outcome == "loads with fallbacks"
    assert "weight-sharing" in found.lost_features
    assert really_loads(host, plugin)


def test_P12_R8_shims_that_the_host_hides_are_named_as_hidden(compile_library: Compile, plugin: str) -> None:
    host = compile_library(MAIN + SHIM, "-ldl", name="host", shared=False)
    found = verdict(plugin, host)
    assert found.outcome == "will not load"
    assert found.missing == ("aoti_torch_get_data_ptr",)
    assert "cannot be seen" in found.reasons[0]
    assert "-rdynamic" in found.reasons[0]
    assert not really_loads(host, plugin)


def test_a_damaged_symbol_table_of_a_host_changes_no_verdict(
    compile_library: Compile, plugin: str, tmp_path: Path
) -> None:
    """Each field of the table's header, and of its names' header, at its limits."""
    program = Path(compile_library(MAIN + SHIM, "-ldl", name="host", shared=False)).read_bytes()
    first, count = struct.unpack_from("<Q", program, 40)[0], struct.unpack_from("<H", program, 60)[0]
    headers = range(first, first + 64 * count, 64)
    table = next(at for at in headers if struct.unpack_from("<I", program, at + 4)[0] == 2)
    names = first + 64 * struct.unpack_from("<I", program, table + 40)[0]
    fields = tuple(zip("IIQQQQIIQQ", (0, 4, 8, 16, 24, 32, 40, 44, 48, 56), strict=True))
    host = tmp_path / "host"
    for header in (table, names):
        for form, offset in fields:
            most = (1 << 8 * struct.calcsize(form)) - 1
            for value in (0, 1, most >> 1, most):
                data = bytearray(program)
                struct.pack_into(f"<{form}", data, header + offset, value)
                host.write_bytes(data)
                found = verdict(plugin, str(host))
                assert found.missing == ("aoti_torch_get_data_ptr",)
                assert found.outcome == "will not load"


def test_a_program_without_the_shims_is_told_what_is_missing(compile_library: Compile, plugin: str) -> None:
    host = compile_library(MAIN, "-rdynamic", "-ldl", name="host", shared=False)
    found = verdict(plugin, host)
    assert found.outcome == "will not load"
    assert "aoti_torch_get_data_ptr" in found.reasons[0]
    assert not really_loads(host, plugin)


def test_a_library_that_the_host_needs_provides_for_it(compile_library: Compile, plugin: str) -> None:
    shims = compile_library(SHIM, "-Wl,-soname,libshims.so", name="libshims.so")
    folder = os.path.dirname(shims)
    host = compile_library(
        MAIN,
        f"-L{folder}",
        "-Wl,--no-as-needed",
        "-lshims",
        f"-Wl,-rpath,{folder}",
        "-ldl",
        name="host",
        shared=False,
    )
    assert verdict(plugin, host).outcome == "loads with fallbacks"
    assert really_loads(host, plugin)


def test_P14_two_providers_of_one_shim_are_pointed_out(compile_library: Compile, plugin: str) -> None:
    shims = compile_library(SHIM, "-Wl,-soname,libshims.so", name="libshims.so")
    folder = os.path.dirname(shims)
    host = compile_library(
        MAIN + SHIM,
        "-rdynamic",
        f"-L{folder}",
        "-Wl,--no-as-needed",
        "-lshims",
        f"-Wl,-rpath,{folder}",
        "-ldl",
        name="host",
        shared=False,
    )
    (note,) = [note for note in verdict(plugin, host).notes if "providers" in note]
    assert host in note
    assert "libshims.so" in note
    assert "load order decides" in note


def test_a_needed_library_that_is_not_found_is_named(compile_library: Compile) -> None:
    gone = compile_library(
        "int gone(void) { return 0; }", "-Wl,-soname,libgone-away.so", name="libgone-away.so"
    )
    folder = os.path.dirname(gone)
    plugin = compile_library(
        ENTRIES + "int gone(void); int user(void) { return gone(); }",
        f"-L{folder}",
        "-lgone-away",
        "-Wl,-rpath,/nowhere/build-xyz",
        name="plugin.so",
    )
    found = verdict(plugin, "local")
    assert found.outcome == "will not load"
    assert any("libgone-away.so" in reason and "not found" in reason for reason in found.reasons)


def test_local_is_a_plain_process_on_this_machine(smallest_plugin: str, plugin: str) -> None:
    assert verdict(smallest_plugin, "local").outcome == "loads with fallbacks"
    found = verdict(plugin, "local")
    assert (found.outcome, found.missing) == ("will not load", ("aoti_torch_get_data_ptr",))


def test_the_version_that_a_real_library_lacks_is_named_with_its_symbols(
    compile_library: Compile, tmp_path: Path
) -> None:
    def build(version: str) -> str:
        script = tmp_path / f"{version}.map"
        script.write_text(version + " { global: versioned; };")
        flags = ("-Wl,-soname,libversioned.so", f"-Wl,--version-script={script}")
        return compile_library("int versioned(void) { return 0; }", *flags, name="libversioned.so")

    new, old = build("LIBV_2.0"), build("LIBV_1.0")
    source = ENTRIES + "int versioned(void); int user(void) { return versioned(); }" + SHIM
    rpath = f"-Wl,-rpath,{os.path.dirname(old)}"
    plugin = compile_library(source, f"-L{os.path.dirname(new)}", "-lversioned", rpath, name="plugin.so")
    found = verdict(plugin, "local")
    assert found.outcome == "will not load"
    assert any("LIBV_2.0 (for versioned)" in reason for reason in found.reasons)


def test_a_host_that_cannot_be_read_is_not_checked(plugin: str, tmp_path: Path) -> None:
    path = f"{tmp_path}/host.so"
    with open(path, "wb") as stream:
        stream.write(b"\x7fELF")
    found = verdict(plugin, path)
    assert found.outcome == "not checked"
    assert path in found.reasons[0]


def test_the_python_that_runs_this_is_a_host_like_any_other(smallest_plugin: str) -> None:
    assert verdict(smallest_plugin, sys.executable).outcome == "loads with fallbacks"
