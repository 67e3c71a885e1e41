"""The library's dynamic symbols and dependencies are what the project's tables say."""

from __future__ import annotations

import os
import re
import subprocess
from typing import Any

from elftools.elf.elffile import ELFFile

from aoti_abi import shim_catalogue
from aoti_abi.hosts.builtin import COMMON_SHIMS, SLEEF, builtin_shims

CONTROL = {
    "aoti_shim_abi_version",
    "aoti_shim_clear_error",
    "aoti_shim_get_stats",
    "aoti_shim_has_device",
    "aoti_shim_last_error",
    "aoti_shim_load_cuda",
    "aoti_shim_register_device",
    "aoti_shim_set_blas",
    "aoti_shim_set_current_stream",
    "aoti_shim_set_warning_handler",
    "aoti_shim_synchronize",
}


def dynamic_symbols(path: str) -> tuple[set[str], set[str]]:
    with open(path, "rb") as file:
        symbols = list(ELFFile(file).get_section_by_name(".dynsym").iter_symbols())
    named = [symbol for symbol in symbols if symbol.name]
    return (
        {symbol.name for symbol in named if symbol["st_shndx"] != "SHN_UNDEF"},
        {symbol.name for symbol in named if symbol["st_shndx"] == "SHN_UNDEF"},
    )


def test_P13_the_library_exports_exactly_the_table(shim_path: str) -> None:
    defined, _ = dynamic_symbols(shim_path)
    assert defined - CONTROL == builtin_shims(os.uname().machine)
    assert defined & CONTROL == CONTROL


def test_the_table_by_machine() -> None:
    assert builtin_shims("x86_64") == COMMON_SHIMS | SLEEF["x86_64"]
    assert builtin_shims("aarch64") == COMMON_SHIMS | SLEEF["aarch64"]
    assert builtin_shims("riscv64") == COMMON_SHIMS
    assert SLEEF["aarch64"] < SLEEF["x86_64"]


def test_R13_every_shim_is_one_of_pytorchs() -> None:
    unknown = {name for name in COMMON_SHIMS if shim_catalogue.lookup(name) is None}
    assert not unknown


def test_P17_the_library_needs_only_the_c_library(shim_path: str) -> None:
    with open(shim_path, "rb") as file:
        elf = ELFFile(file)
        needed = {
            tag.needed
            for tag in elf.get_section_by_name(".dynamic").iter_tags()
            if tag["d_tag"] == "DT_NEEDED"
        }
        stack = next(s for s in elf.iter_segments() if s["p_type"] == "PT_GNU_STACK")
    assert all(re.match(r"(libc|libm|libdl|libpthread|ld-linux[\w-]*)\.so\.\d+$", name) for name in needed), (
        needed
    )
    assert stack["p_flags"] & 1 == 0
    _, undefined = dynamic_symbols(shim_path)
    assert not {name for name in undefined if name.startswith(("_Z", "cuda", "Py", "_Unwind"))}


def test_P19_the_headers_serve_c_and_cxx(compile_library: Any) -> None:
    include = os.path.join(os.path.dirname(__file__), "..", "..", "native", "include")
    source = "#include <aoti_shim.h>\nint size(void) { return sizeof(struct aoti_device_ops); }\n"
    assert compile_library(source, f"-I{include}", "-std=c11", "-pedantic", "-Werror")
    assert compile_library(source, f"-I{include}", "-std=c++17", "-pedantic", "-Werror", cxx=True)


def test_the_call_helper_exports_no_shim(build_shim: Any) -> None:
    folder = build_shim("test", "-DAOTI_SHIM_WERROR=ON", target="aoti_call")
    defined, _ = dynamic_symbols(str(folder / "libaoti_call.so"))
    assert defined
    assert all(name.startswith("aoti_call_") for name in defined)


def test_the_library_opens_and_closes(shim_path: str) -> None:
    code = f"import ctypes; print(ctypes.CDLL({shim_path!r}).aoti_shim_abi_version())"
    done = subprocess.run(["python3", "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "1"
