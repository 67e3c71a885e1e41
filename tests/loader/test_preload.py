"""Runtimes that a plugin uses and does not name (behaviour L7), and one that it carries in itself."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from aoti_inspect.artifacts.facts import read_facts
from aoti_inspect.elf.records import Symbol
from aoti_loader.preload import Preload, forgotten

if TYPE_CHECKING:
    from collections.abc import Callable

#: As g++ links, less the C++ runtime.
UNNAMED = ("-nodefaultlibs", "-Wl,--as-needed", "-lc")

LOAD = """
import sys, aoti_loader
for _ in range(2):
    try:
        plugin = aoti_loader.load(sys.argv[1], warn=False, **eval(sys.argv[2]))
        print("loads", plugin.preloaded)
    except Exception as error:
        print(type(error).__name__, error)
"""


def test_L7_a_plugin_that_forgot_libstdcxx_gets_it(
    cxx_plugin: Callable[..., str], child: Callable[..., str]
) -> None:
    path = cxx_plugin(*UNNAMED)
    facts = read_facts(path)
    assert not any(name.startswith("libstdc++") for name in facts.elf.needed)
    words = child(LOAD, path, "{}")
    assert words.count("loads") == 2
    assert "libstdc++.so.6" in words


def test_L7_without_it_the_symbol_is_explained(
    cxx_plugin: Callable[..., str], child: Callable[..., str]
) -> None:
    words = child(LOAD, cxx_plugin(*UNNAMED), "{'preload': []}")
    assert words.startswith("AccessFailed")
    assert "undefined symbol: " in words
    assert "it belongs to the C++ runtime: preload='auto' opens libstdc++" in words
    assert child(LOAD, cxx_plugin(*UNNAMED), "{'preload': ['libstdc++.so.6']}").count("loads") == 2


def test_L7_P4_R4_a_failing_preload_is_refused_each_time(
    cxx_plugin: Callable[..., str], child: Callable[..., str], tmp_path: Path
) -> None:
    (tmp_path / "libstdc++.so.6").write_text("not a library")
    words = child(LOAD, cxx_plugin(*UNNAMED), "{}", LD_LIBRARY_PATH=str(tmp_path))
    lines = [line for line in words.splitlines() if line.startswith("AccessFailed")]
    assert len(lines) == 2
    for line in lines:
        assert "cannot open libstdc++, which the plugin uses" in line
        assert "libstdc++.so.6: file too short" in line or "invalid ELF header" in line


def test_L7_P2_a_runtime_is_opened_once_a_process(
    cxx_plugin: Callable[..., str], child: Callable[..., str]
) -> None:
    code = """
    import sys, aoti_loader
    from aoti_loader import linker
    opened, real = [], linker.open_library
    def note(name, flags):
        opened.append((name, bool(flags & linker.RTLD_GLOBAL)))
        return real(name, flags)
    linker.open_library = note
    for _ in range(3):
        plugin = aoti_loader.load(sys.argv[1], warn=False)
        assert any("libstdc++" in path for path in plugin.preloaded), plugin.preloaded
    print([name for name, everywhere in opened if everywhere and "libstdc++" in name])
    """
    assert child(code, cxx_plugin(*UNNAMED)) == "['libstdc++.so.6']\n"


def test_L7_R12_only_what_is_needed_is_opened(
    plugin: Callable[..., str], cxx_plugin: Callable[..., str], child: Callable[..., str]
) -> None:
    assert "loads ()" in child(LOAD, plugin(), "{}")
    assert "loads ()" in child(LOAD, cxx_plugin(), "{}")


def test_L7_P3_what_the_host_defines_still_wins(
    cxx_plugin: Callable[..., str], host_library: Callable[..., str], child: Callable[..., str]
) -> None:
    code = """
    import ctypes, sys, aoti_loader
    from aoti_loader import linker
    host = ctypes.CDLL(sys.argv[2], ctypes.RTLD_GLOBAL)
    plugin = aoti_loader.load(sys.argv[1], host="process", warn=False)
    before = ctypes.c_int.in_dll(host, "news").value
    ctypes.CFUNCTYPE(ctypes.c_void_p)(linker.find_symbol(plugin._handle, "make"))()
    print(plugin.preloaded, ctypes.c_int.in_dll(host, "news").value - before)
    """
    words = child(code, cxx_plugin(*UNNAMED), host_library("-DWITH_NEW"))
    assert "libstdc++" in words
    assert words.endswith("1\n")


def test_L7_families_tell_what_was_forgotten(plugin: Callable[..., str]) -> None:
    facts = read_facts(plugin())

    def ask(*names: str, needed: tuple[str, ...] = ("libc.so.6",)) -> tuple[Preload, ...]:
        symbols = tuple(Symbol(name, "global", None, None) for name in names)
        return forgotten(facts._replace(elf=facts.elf._replace(undefined=symbols, needed=needed)))

    assert ask("malloc", "aoti_torch_get_dim") == ()
    assert ask("_ZSt4cerr") == (Preload("libstdc++", ("_ZSt4cerr",)),)
    assert ask("_ZSt4cerr", needed=("libstdc++.so.6",)) == ()
    assert ask("_ZNSt3__14cerrE", "__cxa_throw") == (Preload("libc++", ("_ZNSt3__14cerrE",)),)
    assert ask("__cxa_throw", needed=("libc++.so.1",)) == ()
    assert ask("cudaMalloc") == (Preload("libcudart", ("cudaMalloc",)),)
    assert ask("cudaMalloc", needed=("libcudart.so.13",)) == ()
    assert ask("cuLaunchKernel") == ()


def test_L7_a_missing_cuda_runtime_is_named(plugin: Callable[..., str], child: Callable[..., str]) -> None:
    code = """
    import sys
    import aoti_loader
    from aoti_loader import preload
    preload.find_cudart = lambda: None
    preload.CUDART = "libnot-here.so"
    try: aoti_loader.load(sys.argv[1], warn=False)
    except Exception as error: print(type(error).__name__, error)
    """
    words = child(code, plugin("-DNEEDS=X(cudaMalloc)"))
    assert words.startswith("AccessFailed")
    assert "cannot open libcudart, which the plugin uses (cudaMalloc)" in words
    assert "aoti-toolkit[cuda]" in words


def test_a_plugin_with_its_own_cxx_runtime_uses_that_one(
    cxx_plugin: Callable[..., str], child: Callable[..., str]
) -> None:
    """Beside a global libstdc++, half of it would run on that and half on its own."""
    code = """
    import ctypes, sys, aoti_loader
    from aoti_loader import linker
    ctypes.CDLL("libstdc++.so.6", ctypes.RTLD_GLOBAL)
    plugin = aoti_loader.load(sys.argv[1], warn=False)
    where = ctypes.CFUNCTYPE(ctypes.c_void_p)(linker.find_symbol(plugin._handle, "where_terminate_is"))()
    own = linker.file_of_handle(plugin._handle)
    print(plugin.facts.cxx_runtime_static, linker.file_of_address(where) == own)
    handle = ctypes.c_void_p()
    create = plugin.functions["AOTInductorModelContainerCreateWithDevice"]
    print(create(ctypes.byref(handle), 1, b"gpu", None), plugin.last_error())
    """
    path = cxx_plugin("-static-libstdc++", "-static-libgcc")
    assert child(code, path).splitlines() == ["True True", "1 Invalid device: gpu"]


def test_libraries_come_before_the_plugin_so_that_none_is_bound_to_it(
    cxx_plugin: Callable[..., str], child: Callable[..., str]
) -> None:
    """A libstdc++ that is opened with the plugin in sight would call the plugin's inline functions."""
    code = """
    import sys, aoti_loader
    for _ in range(2):
        plugin = aoti_loader.load(sys.argv[1], warn=False)
        print(plugin.close(), plugin.kept_because)
    """
    assert child(code, cxx_plugin()) == "True None\nTrue None\n"


def test_the_search_for_a_cuda_runtime_ends_somewhere() -> None:
    from aoti_loader.cuda import find_cudart

    found = find_cudart()
    assert found is None or os.path.isfile(found)
