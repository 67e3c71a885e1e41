"""The call helper: what it exports, and that it is the right one."""

from __future__ import annotations

import ctypes

import pytest

from aoti_abi.errors import AccessFailed, InternalError
from aoti_executor import call_structs, native
from aoti_inspect.artifacts.facts import read_facts


def test_helper_exports_nothing_but_its_own_and_links_to_nothing():
    facts = read_facts(native.library_path())
    assert not facts.elf.exports.container
    assert not facts.elf.exports.shims
    assert set(facts.elf.needed) <= {"libc.so.6", "libpthread.so.0", "ld-linux-aarch64.so.1"}
    assert not [s.name for s in facts.elf.undefined if s.name.startswith(("aoti_", "Py", "_Py"))]


def test_every_struct_is_compared():
    """`load` has compared by the time that it returns; this shows that it leaves nothing out."""
    native.load()
    described = call_structs._described(ctypes.CDLL(native.library_path()))
    assert set(structs()) == set(call_structs.STRUCTS.values())
    assert described == call_structs._declared()


def structs():
    return [
        value
        for name, value in vars(call_structs).items()
        if isinstance(value, type)
        and issubclass(value, ctypes.Structure)
        and not name.startswith("_")
        and value is not ctypes.Structure
    ]


@pytest.mark.parametrize("change", ["size", "offset", "more", "fewer"])
def test_helper_with_other_structs_is_refused(compile_library, monkeypatch, change):
    places = dict(call_structs._declared())
    text = {
        "size": ("call", (0, 96), "call is 96 bytes at 0 in it and 72 bytes at 0 in aoti_executor"),
        "offset": ("call.code", (60, 4), "call.code is 4 bytes at 60 in it and 4 bytes at 56"),
        "more": ("output.owner", (24, 8), "output.owner is 8 bytes at 24 in it and absent"),
        "fewer": ("target.gate", None, "target.gate is absent in it and 8 bytes at 8"),
    }
    name, place, message = text[change]
    places[name] = place
    rows = ",\n".join(
        '{{"{}", {}, {}, {}}}'.format(
            name.partition(".")[0], f'"{name.partition(".")[2]}"' if "." in name else 0, *place
        )
        for name, place in places.items()
        if place
    )
    source = f"""
        #include <stddef.h>
        struct place {{ const char *structure, *member; size_t offset, size; }};
        static const struct place places[] = {{ {rows} }};
        int aoti_call_version(void) {{ return {native._VERSION}; }}
        const struct place *aoti_call_layout(size_t *count)
        {{
            *count = sizeof places / sizeof *places;
            return places;
        }}
    """
    other = compile_library(source, name="libaoti_call.so")
    monkeypatch.setenv("AOTI_CALL_PATH", other)
    native.load.cache_clear()
    try:
        with pytest.raises(InternalError, match="lays out its structs in another way") as caught:
            native.load()
    finally:
        native.load.cache_clear()
    assert message in str(caught.value)
    assert caught.value.path == other
    assert "install aoti-toolkit again" in caught.value.hint


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
