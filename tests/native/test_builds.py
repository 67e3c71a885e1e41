"""Other builds of the C sources: under sanitizers, and for AArch64."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from elftools.elf.elffile import ELFFile

from aoti_abi.hosts.builtin import builtin_shims

COMMON = ("-DAOTI_SHIM_WERROR=ON", "-DAOTI_SHIM_TESTS=ON")


def run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (0, "0 failed\n"), done.stdout + done.stderr


@pytest.mark.parametrize("sanitizers", ["address,undefined", "thread"])
def test_the_c_program_is_clean_under_sanitizers(build_shim: Any, tmp_path: Path, sanitizers: str) -> None:
    probe = tmp_path / "probe.c"
    probe.write_text("int main(void) { return 0; }")
    done = subprocess.run(
        [os.environ.get("CC", "cc"), f"-fsanitize={sanitizers}", str(probe), "-o", str(tmp_path / "probe")],
        capture_output=True,
    )
    if done.returncode or subprocess.run([str(tmp_path / "probe")], capture_output=True).returncode:
        pytest.skip(f"the compiler has no {sanitizers} sanitizer here")
    folder = build_shim(
        sanitizers.replace(",", "-"), *COMMON, f"-DAOTI_SHIM_SANITIZE={sanitizers}", target="shim_test"
    )
    run(str(folder / "shim_test"))


@pytest.fixture(scope="module")
def aarch64(build_shim: Any) -> Path:
    compiler = shutil.which("aarch64-linux-gnu-gcc")
    if compiler is None:
        pytest.skip("no cross compiler (Debian: gcc-aarch64-linux-gnu)")
    system = ("-DCMAKE_SYSTEM_NAME=Linux", "-DCMAKE_SYSTEM_PROCESSOR=aarch64")
    return build_shim("aarch64", *COMMON, *system, f"-DCMAKE_C_COMPILER={compiler}", target="all")


def test_the_aarch64_library_exports_its_table(aarch64: Path) -> None:
    with open(aarch64 / "libaoti_shim.so", "rb") as file:
        symbols = ELFFile(file).get_section_by_name(".dynsym").iter_symbols()
        defined = {s.name for s in symbols if s.name and s["st_shndx"] != "SHN_UNDEF"}
    assert {name for name in defined if not name.startswith("aoti_shim_")} == builtin_shims("aarch64")


def test_the_c_program_runs_on_aarch64(aarch64: Path) -> None:
    emulator = shutil.which("qemu-aarch64-static") or shutil.which("qemu-aarch64")
    if not emulator or not Path("/usr/aarch64-linux-gnu").exists():
        pytest.skip("no qemu, or no AArch64 C library")
    run(emulator, "-L", "/usr/aarch64-linux-gnu", str(aarch64 / "shim_test"))
