"""The call helper: what it exports, and that it is the right one."""

from __future__ import annotations

import ctypes
import subprocess

import pytest

from aoti_abi.errors import AccessFailed
from aoti_executor import native
from aoti_inspect.artifacts.facts import read_facts


def test_helper_exports_nothing_but_its_own_and_links_to_nothing():
    facts = read_facts(native.library_path())
    assert not facts.elf.exports.container
    assert not facts.elf.exports.shims
    assert set(facts.elf.needed) <= {"libc.so.6", "libpthread.so.0", "ld-linux-aarch64.so.1"}
    assert not [s.name for s in facts.elf.undefined if s.name.startswith(("aoti_", "Py", "_Py"))]


def test_layouts_agree_with_the_c_side(compile_library, tmp_path):
    from pathlib import Path

    root = Path(__file__).resolve().parents[2]
    sizes = {
        "struct target": native.Target,
        "struct layout": native.Layout,
        "struct output": native.Output,
        "struct call": native.Call,
        "struct bound": native.Bound,
        "struct description": native.Description,
        "struct dl_tensor": native.DLTensor,
        "struct python": native._PythonTable,
        "struct host": native.HostTable,
    }
    fields = "\n".join(f'printf("%zu\\n", sizeof({name}));' for name in sizes)
    source = (
        f'#include <stdio.h>\n#include "{root / "shim" / "call.c"}"\nint main(void) {{ {fields} return 0; }}'
    )
    program = compile_library(source, "-lpthread", name="sizes", shared=False)
    printed = subprocess.run([program], capture_output=True, text=True, check=True).stdout.split()
    assert dict(zip(sizes, map(int, printed), strict=True)) == {n: ctypes.sizeof(t) for n, t in sizes.items()}


def test_helper_of_another_version_is_refused(compile_library, monkeypatch):
    other = compile_library("int aoti_call_version(void) { return 99; }", name="libaoti_call.so")
    monkeypatch.setenv("AOTI_CALL_PATH", other)
    native.load.cache_clear()
    try:
        with pytest.raises(AccessFailed, match="another version"):
            native.load()
        monkeypatch.setenv("AOTI_CALL_PATH", "/nonexistent/libaoti_call.so")
        with pytest.raises(AccessFailed, match="cannot be loaded") as caught:
            native.load()
        assert caught.value.path == "/nonexistent/libaoti_call.so"
        assert "AOTI_CALL_PATH" in caught.value.hint
    finally:
        native.load.cache_clear()


def test_gate_excludes_writers_and_refuses_after_close():
    import threading

    gate = native.Gate()
    order = []
    with gate:
        thread = threading.Thread(target=lambda: (gate.close(), order.append("closed")))
        thread.start()
        thread.join(0.1)
        order.append("left")
    thread.join()
    assert order == ["left", "closed"]
