"""Grad mode, failed checks, warnings and profiling: what a plugin asks of its host besides tensors."""

from __future__ import annotations

import ctypes
import subprocess
import sys
import threading
from typing import Any

import numpy as np
import pytest

HANDLER = ctypes.CFUNCTYPE(None, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_uint32, ctypes.c_char_p)

# A plugin in small: its entry point turns whatever is thrown into an error code, as AOTInductor's does.
CHECKING = """
#include <cstdint>
#include <cstring>
#include <stdexcept>
static void (*check)(bool, const char *, const char *, uint32_t, const char *);
static char what[200];
static void kernel(const long *index, float *out, bool *unwound) {
    struct Guard { bool *flag; ~Guard() { *flag = true; } } guard{unwound};
    check(0 <= index[0] && index[0] < 4, "kernel", "model.cpp", 12, "index out of bounds: 0 <= tmp0 < 4");
    out[index[0]] = 1;
}
extern "C" int run(long index, float *out, bool *unwound) {
    try { kernel(&index, out, unwound); }
    catch (const std::exception &error) { std::strncpy(what, error.what(), sizeof what - 1); return 1; }
    catch (...) { return 2; }
    return 0;
}
extern "C" const char *last(void) { return what; }
extern "C" void thrower(void) { throw std::runtime_error("brings the runtime along"); }
extern "C" void set_check(void *pointer) { check = (decltype(check))pointer; }
"""


def test_grad_mode_is_per_thread(shim: Any) -> None:
    enabled, switch = (
        shim.function("aoti_torch_grad_mode_is_enabled"),
        shim.function("aoti_torch_grad_mode_set_enabled"),
    )
    assert not enabled()
    switch(True)
    try:
        assert enabled()
        seen = []
        thread = threading.Thread(target=lambda: seen.append(enabled()))
        thread.start()
        thread.join()
        assert seen == [False]
    finally:
        switch(False)
    assert not enabled()


@pytest.mark.parametrize("flags", [(), ("-static-libstdc++", "-static-libgcc")])
def test_a_failed_check_ends_the_kernel_and_not_the_process(
    shim: Any, compile_library: Any, flags: tuple[str, ...]
) -> None:
    plugin = ctypes.CDLL(compile_library(CHECKING, *flags, name="checking.so", cxx=True))
    plugin.set_check(ctypes.cast(shim.library.aoti_torch_check, ctypes.c_void_p))
    out, unwound = (ctypes.c_float * 4)(), ctypes.c_bool()
    shim.library.aoti_shim_clear_error()
    assert plugin.run(ctypes.c_long(2), out, ctypes.byref(unwound)) == 0
    assert shim.error() == ""
    for _ in range(3):
        unwound.value = False
        assert plugin.run(ctypes.c_long(1 << 40), out, ctypes.byref(unwound)) == 1
        assert unwound.value
    plugin.last.restype = ctypes.c_char_p
    assert shim.error() == "kernel: index out of bounds: 0 <= tmp0 < 4 (model.cpp:12)"
    assert plugin.last().decode() == shim.error()
    assert list(out) == [0, 0, 1, 0]


def test_a_failed_check_that_nobody_catches_returns(shim_path: str) -> None:
    code = (
        "import ctypes, sys; shim = ctypes.CDLL(sys.argv[1]);"
        "shim.aoti_torch_check(False, b'f', b'x.cpp', 3, b'no'); text = ctypes.c_char_p();"
        "shim.aoti_shim_last_error(ctypes.byref(text)); print(text.value.decode())"
    )
    done = subprocess.run([sys.executable, "-c", code, shim_path], capture_output=True, text=True)
    assert (done.returncode, done.stdout.strip()) == (0, "f: no (x.cpp:3)")


def test_warnings_reach_the_handler_or_standard_error(shim: Any, capfd: pytest.CaptureFixture[str]) -> None:
    heard: list[tuple[bytes, bytes, int, bytes]] = []
    tensor = shim.tensor(np.zeros((2, 3), "f4"))
    handler = HANDLER(lambda *what: heard.append(what))
    shim.library.aoti_shim_set_warning_handler(handler)
    try:
        shim.function("aoti_torch_warn")(b"run", b"model.cpp", 7, b"slow path")
        shim.function("aoti_torch_print_tensor_handle")(tensor.handle, b"buf0")
        shim.function("aoti_torch_print_tensor_handle")(None, None)
    finally:
        shim.library.aoti_shim_set_warning_handler(None)
    assert heard[0] == (b"run", b"model.cpp", 7, b"slow path")
    assert heard[1][3] == b"buf0: float32 [2, 3]"
    assert heard[2][3] == b"tensor: a null handle"
    shim.function("aoti_torch_warn")(b"run", b"model.cpp", 7, b"slow path")
    assert "model.cpp:7: slow path" in capfd.readouterr().err


def test_profiling_is_accepted(shim: Any) -> None:
    guard, value = ctypes.c_void_p(), ctypes.c_void_p()
    library = shim.library
    assert library.aoti_torch_int64_to_ivalue(ctypes.c_int64(3), ctypes.byref(value)) == 0
    assert library.aoti_record_function_start(b"op", None, None, ctypes.c_uint64(0), ctypes.byref(guard)) == 0
    assert library.aoti_record_function_end(guard) == 0
    assert library.aoti_torch_delete_c10_value_object(value) == 0


def test_codes_are_pytorchs(shim: Any, torch_host: Any) -> None:
    from aoti_abi.hosts.builtin import CODES

    for name in sorted(CODES - {"aoti_torch_dtype_element_size"}):
        assert shim.function(name)() == torch_host.function(name)(), name
    for code in (*range(12), 15, *range(23, 30)):
        name = "aoti_torch_dtype_element_size"
        assert shim.function(name)(code) == torch_host.function(name)(code)
    assert shim.function("aoti_torch_dtype_element_size")(99) == 0
