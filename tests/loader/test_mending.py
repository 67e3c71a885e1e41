"""Mends of the private copy, checked by reading the mended bytes again."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import aoti_loader
from aoti_abi.errors import AotiError, NotSupported
from aoti_inspect.artifacts.facts import read_facts
from aoti_inspect.elf.image import ElfImage
from aoti_inspect.facts.plugin import plugin_facts
from aoti_inspect.facts.records import PluginFacts, Weights
from aoti_loader.mending import THREAD_ATEXIT, Mend, plan_mends

if TYPE_CHECKING:
    from collections.abc import Callable


def mend(
    path: str, drop: tuple[str, ...] = (), *, thread_exit: bool = False
) -> tuple[bytes, bytes, tuple[Mend, ...], PluginFacts]:
    """Return the file's bytes, the mended bytes, the mends and the facts of the mended bytes."""
    with open(path, "rb") as stream:
        data = stream.read()
    mends = plan_mends(ElfImage(data, path), read_facts(path), drop=drop, thread_exit=thread_exit)
    mended = bytearray(data)
    for item in mends:
        for patch in item.patches:
            mended[patch.offset : patch.offset + len(patch.data)] = patch.data
    assert len(mended) == len(data)
    return data, bytes(mended), mends, plugin_facts(ElfImage(bytes(mended), path), metadata=None)


def test_a_plugin_without_troubles_is_left_alone(plugin: Callable[..., str]) -> None:
    before, after, mends, _ = mend(plugin("-Wl,-z,noexecstack"))
    assert mends == ()
    assert before == after


def test_the_executable_stack_is_cleared(plugin: Callable[..., str]) -> None:
    path = plugin("-Wl,-z,execstack")
    assert read_facts(path).elf.executable_stack
    before, after, mends, facts = mend(path)
    assert [item.name for item in mends] == ["executable-stack"]
    assert facts.elf.executable_stack is False
    assert sum(one != other for one, other in zip(before, after, strict=True)) == 1


def test_the_stack_stays_as_it_was(plugin: Callable[..., str], child: Callable[..., str]) -> None:
    code = """
    import sys, aoti_loader
    def stack(): return next(line.split()[1] for line in open("/proc/self/maps") if "[stack]" in line)
    plugin = aoti_loader.load(sys.argv[1], warn=False, mend=eval(sys.argv[2]))
    print(stack(), [mend.name for mend in plugin.mends])
    """
    assert child(code, plugin("-Wl,-z,execstack"), "True") == "rw-p ['executable-stack']\n"


def test_unique_symbols_become_global(cxx_plugin: Callable[..., str]) -> None:
    path = cxx_plugin("-fgnu-unique")
    unique = read_facts(path).elf.exports.unique
    assert unique
    _, _, mends, facts = mend(path)
    assert "unique-symbols" in [item.name for item in mends]
    assert facts.elf.exports.unique == ()
    assert facts.elf.exports.total == read_facts(path).elf.exports.total


def test_the_import_of_thread_exit_is_redirected(cxx_plugin: Callable[..., str]) -> None:
    path = cxx_plugin()
    _, _, mends, facts = mend(path, thread_exit=True)
    assert "thread-exit" in [item.name for item in mends]
    names = {symbol.name: symbol for symbol in facts.elf.undefined}
    assert names.keys().isdisjoint(THREAD_ATEXIT)
    assert names["cxa_thread_atexit"].version is None
    _, _, without, _ = mend(path)
    assert "thread-exit" not in [item.name for item in without]


def test_libtorch_is_dropped_from_the_needed_list(
    plugin: Callable[..., str], compile_library: Callable[..., str]
) -> None:
    libraries = [
        compile_library("int x;", f"-Wl,-soname,{name}", name=name)
        for name in ("libtorch.so", "libtorch_cpu.so")
    ]
    path = plugin("-Wl,--no-as-needed", libraries[0], "-lm", libraries[1])
    needed = read_facts(path).elf.needed
    assert {"libtorch.so", "libtorch_cpu.so"} < set(needed)
    assert mend(path)[2] == ()
    _, _, mends, facts = mend(path, read_facts(path).imports.libtorch)
    assert [item.name for item in mends] == ["libtorch-needed"]
    assert facts.elf.needed == tuple(name for name in needed if "torch" not in name)
    assert facts.elf.symbol_count == read_facts(path).elf.symbol_count
    assert facts.elf.anomalies == ()


def test_a_versioned_need_is_not_dropped(
    plugin: Callable[..., str], compile_library: Callable[..., str], tmp_path: object
) -> None:
    script = f"{tmp_path}/script"
    with open(script, "w", encoding="ascii") as stream:
        stream.write("V_1 { global: f; local: *; };")
    library = compile_library(
        "int f(void) { return 1; }",
        "-Wl,-soname,libtorch_cpu.so",
        f"-Wl,--version-script={script}",
        name="libtorch_cpu.so",
    )
    with pytest.raises(NotSupported, match="symbol versions are bound to it"):
        mend(plugin(library, "-DNEEDS=X(f)"), ("libtorch_cpu.so",))


def test_appended_weights_stay_byte_identical(plugin: Callable[..., str]) -> None:
    path = plugin("-Wl,-z,execstack")
    facts = read_facts(path)
    with open(path, "rb") as stream:
        data = stream.read()
    image = ElfImage(data, path)
    appended = Weights("appended", len(data), 16, 16, 1, magic_ok=True, mutable=None)
    mends = plan_mends(image, facts._replace(weights=appended))
    assert all(patch.offset + len(patch.data) <= len(data) for item in mends for patch in item.patches)
    lying = appended._replace(offset=64)  # program headers inside the weights: no linker writes this
    with pytest.raises(NotSupported, match="would change the weights appended at 64") as caught:
        plan_mends(image, facts._replace(weights=lying))
    assert "mend=False" in (caught.value.hint or "")


def test_a_mended_plugin_is_not_changed_on_disk(plugin: Callable[..., str]) -> None:
    path = plugin("-Wl,-z,execstack", TAG="3")
    with open(path, "rb") as stream:
        before = stream.read()
    with aoti_loader.load(path, warn=False) as loaded:
        assert [item.name for item in loaded.mends] == ["executable-stack"]
    with open(path, "rb") as stream:
        assert stream.read() == before


def test_real_plugins_are_mended_whole(real_plugin: str) -> None:
    original = read_facts(real_plugin)
    _, _, _, facts = mend(real_plugin, original.imports.libtorch, thread_exit=True)
    assert not facts.elf.executable_stack
    assert facts.elf.exports.unique == ()
    assert not any("torch" in name for name in facts.elf.needed)
    assert facts.elf.exports.container == original.elf.exports.container
    assert facts.elf.anomalies == original.elf.anomalies
    assert facts.weights == original.weights


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_bytes_give_mends_or_one_error(cxx_plugin: Callable[..., str], data: st.DataObject) -> None:
    path = cxx_plugin("-fgnu-unique", "-Wl,-z,execstack")
    with open(path, "rb") as stream:
        raw = bytearray(stream.read())
    facts = read_facts(path)
    for _ in range(data.draw(st.integers(1, 8))):
        place = data.draw(st.integers(0, 1024) | st.integers(0, len(raw) - 1))
        raw[place] = data.draw(st.integers(0, 255))
    end = data.draw(st.integers(0, len(raw)) | st.just(len(raw)))
    try:
        mends = plan_mends(ElfImage(bytes(raw[:end]), path), facts, drop=("libm.so.6",), thread_exit=True)
    except AotiError as error:
        assert str(error)
    else:
        assert all(patch.offset >= 0 and patch.data for item in mends for patch in item.patches)
