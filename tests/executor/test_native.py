"""The call helper: what it exports, and that it is the right one."""

from __future__ import annotations

import ctypes
import gc

import pytest

from aoti_abi.errors import AccessFailed, InternalError, InvalidState
from aoti_executor import call_structs, native
from aoti_inspect.artifacts.facts import read_facts


def test_helper_exports_nothing_but_its_own_and_links_to_nothing():
    facts = read_facts(native.library_path())
    assert not facts.elf.exports.container
    assert not facts.elf.exports.shims
    assert set(facts.elf.needed) <= {
        "libc.so.6",
        "libpthread.so.0",
        "ld-linux-aarch64.so.1",
        "ld-linux-x86-64.so.2",
    }
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


def test_gate_deletes_once_and_refuses_after_close():
    gate = native.Gate()
    deleted = []

    @ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p)
    def delete(container):
        deleted.append((container, gate.inside()))
        return 5

    code = ctypes.c_int32(-1)
    gate.close(native.address_of(delete), 7, code)
    assert (deleted, code.value, gate.inside()) == ([(7, 1)], 5, 0)
    gate.close(native.address_of(delete), 7, code)
    assert (len(deleted), code.value) == (1, 0)


def test_gate_is_not_waited_for_by_who_holds_it():
    gate = native.Gate()
    refusals = []

    @ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_bool, ctypes.c_void_p, ctypes.c_void_p)
    def fold(*_):
        for again in (
            lambda: gate.fold(0, 0, inactive=False),
            lambda: gate.update(0, 0, None, 0, inactive=False),
            lambda: gate.update(0, 0, None, 0, inactive=True, swap=1),
            lambda: gate.bind(0, 0, 0),
            lambda: gate.clone(0, None, None, 0),
            lambda: gate.close(0, 0, ctypes.c_int32()),
        ):
            with pytest.raises(InvalidState, match="inside") as caught:
                again()
            refusals.append(caught)
        return 0

    assert gate.fold(native.address_of(fold), 0, inactive=False) == 0
    assert len(refusals) == 6


def test_what_is_owned_is_given_back_after_every_finalizer_of_a_cycle():
    order = []
    note = ctypes.PYFUNCTYPE(None, ctypes.c_void_p)(order.append)

    class Last:
        def __del__(self):
            order.append("finalizer")

    for first in (True, False):
        slot = ctypes.c_void_p(77)
        holder = [] if first else [Last()]
        holder += [native.own(slot, native.address_of(note)), holder]
        holder += [Last()] if first else []
        assert slot.value is None
        del holder
        gc.collect()
    assert order == ["finalizer", 77, "finalizer", 77]
