"""The end of a plugin (behaviours D1, D3): gone for real, or a reason why not."""

from __future__ import annotations

import ctypes
import threading
import time
from typing import TYPE_CHECKING

import pytest

import aoti_loader
from aoti_abi.errors import InvalidState
from aoti_loader import linker

if TYPE_CHECKING:
    from collections.abc import Callable

CYCLE = """
import ctypes, os, sys, aoti_loader
from aoti_loader import linker
path, cycles = sys.argv[1], int(sys.argv[2])
def measure():
    with open("/proc/self/statm") as stream: pages = int(stream.read().split()[1])
    with open("/proc/self/maps") as stream: maps = stream.readlines()
    libraries = sum("/" in line for line in maps)
    return pages * 4, libraries, len(maps) - libraries, len(os.listdir("/proc/self/fd"))
for cycle in range(cycles):
    plugin = aoti_loader.load(path, host="builtin", warn=False)
    create = plugin.functions["AOTInductorModelContainerCreateWithDevice"]
    handle = ctypes.c_void_p()
    assert create(ctypes.byref(handle), 1, b"cpu", None) == 0
    assert create(ctypes.byref(ctypes.c_void_p()), 1, b"gpu", None) == 1  # a thread_local error text
    assert "gpu" in plugin.last_error()
    assert plugin.functions["AOTInductorModelContainerDelete"](handle) == 0
    assert plugin.close(), plugin.kept_because
    if cycle == cycles // 5: first = measure()
print(*first, *measure())
"""


def check_flat(words: str, growth: int = 2048) -> None:
    first_rss, first_libraries, first_others, first_files, rss, libraries, others, files = map(
        int, words.split()
    )
    assert libraries == first_libraries
    assert files == first_files
    # Memory that Python itself maps, an arena at a time, follows no plugin.
    assert others - first_others <= 3
    assert rss - first_rss < growth, f"grew from {first_rss} to {rss} KiB"


def test_D1_a_thousand_loads_leave_nothing(cxx_plugin: Callable[..., str], child: Callable[..., str]) -> None:
    check_flat(child(CYCLE, cxx_plugin("-fgnu-unique"), "1000"))


def test_D1_nor_with_a_cxx_runtime_of_its_own(
    cxx_plugin: Callable[..., str], child: Callable[..., str]
) -> None:
    words = child(CYCLE, cxx_plugin("-fgnu-unique", "-static-libstdc++", "-static-libgcc"), "200")
    # libstdc++ never frees the 72 KiB that it sets aside for exceptions when memory runs out.
    check_flat(words, growth=200 * 80)


def test_D1_N59_real_plugins_leave_nothing(real_plugin: str, child: Callable[..., str]) -> None:
    check_flat(child(CYCLE, real_plugin, "150"))


def test_D3_a_lease_may_be_given_up_inside_close(plugin: Callable[..., str]) -> None:
    """Python may collect a container, and so give up its lease, in the middle of `close` itself."""
    loaded = aoti_loader.load(plugin(), warn=False)
    lease = loaded.hold()

    class Collecting(str):
        __slots__ = ()

        def __hash__(self) -> int:
            lease.release()
            return super().__hash__()

    other = loaded.hold(Collecting("a tensor"))
    closing = threading.Thread(target=loaded.close, daemon=True)
    closing.start()
    closing.join(20)
    assert not closing.is_alive()
    assert "1 claims on it are held" in (loaded.kept_because or "")
    other.release()
    assert loaded.close()


def test_D1_unique_symbols_are_the_reason_without_mending(cxx_plugin: Callable[..., str]) -> None:
    loaded = aoti_loader.load(cxx_plugin("-fgnu-unique"), mend=False, warn=False)
    assert loaded.close() is False
    assert "STB_GNU_UNIQUE symbols pin it; load it with mend=True" in (loaded.kept_because or "")
    assert loaded.close() is False


def test_D1_nodelete_is_the_reason(plugin: Callable[..., str]) -> None:
    loaded = aoti_loader.load(plugin("-Wl,-z,nodelete"), warn=False)
    assert loaded.close() is False
    assert "DF_1_NODELETE" in (loaded.kept_because or "")


def test_D1_a_plugin_that_starts_threads_stays(
    compile_library: Callable[..., str], smallest_source: str, child: Callable[..., str]
) -> None:
    """Its thread would run on in memory that is no longer there."""
    source = f"""{smallest_source}
    #include <pthread.h>
    #include <unistd.h>
    static void *work(void *x) {{ for (;;) usleep(1000); }}
    API int AOTInductorModelContainerGetNumConstants(void *c, size_t *n)
    {{ pthread_t t; *n = 0; return pthread_create(&t, 0, work, 0); }}
    """
    code = """
    import ctypes, sys, time, aoti_loader
    plugin = aoti_loader.load(sys.argv[1], warn=False)
    function = plugin.functions["AOTInductorModelContainerGetNumConstants"]
    assert function(None, ctypes.byref(ctypes.c_size_t())) == 0
    print(plugin.close(), plugin.kept_because)
    print(plugin.close())
    time.sleep(0.1)
    """
    path = compile_library(source, "-pthread", name="threads.so")
    assert child(code, path).splitlines() == [
        "False it can start threads (pthread_create), which may still run its code",
        "False",
    ]


def test_D1_leases_keep_it(plugin: Callable[..., str]) -> None:
    loaded = aoti_loader.load(plugin(), warn=False)
    one, two = loaded.hold(), loaded.hold("a tensor")
    one.release()
    one.release()
    assert loaded.close() is False
    assert "1 claims on it are held (a tensor)" in (loaded.kept_because or "")
    assert loaded.functions
    with pytest.raises(InvalidState):
        loaded.hold()
    two.release()
    assert loaded.kept_because is None
    assert loaded.functions == {}
    assert loaded.close() is True


def test_D3_closing_is_idempotent_and_in_any_order(plugin: Callable[..., str]) -> None:
    first, second = (aoti_loader.load(plugin(), warn=False) for _ in range(2))
    assert first.close()
    assert first.close()
    assert (
        second.functions["AOTInductorModelContainerGetNumInputs"](None, ctypes.byref(ctypes.c_size_t())) == 0
    )
    assert second.close()
    assert repr(second).endswith("closed>")


def test_D3_nothing_is_unloaded_at_interpreter_exit(
    cxx_plugin: Callable[..., str], child: Callable[..., str]
) -> None:
    code = """
    import ctypes, sys, aoti_loader
    plugins = [aoti_loader.load(sys.argv[1], warn=False) for _ in range(3)]
    for plugin in plugins:
        create = plugin.functions["AOTInductorModelContainerCreateWithDevice"]
        assert create(ctypes.byref(ctypes.c_void_p()), 1, b"x", None) == 1
    plugins[1].close()
    del plugins[0]
    """
    assert child(code, cxx_plugin("-fgnu-unique")) == ""


def eventually(condition: Callable[[], bool]) -> bool:
    """Python lets go of a thread a moment before the system has ended it."""
    deadline = time.monotonic() + 10
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.001)
    return condition()


def _function(loaded: aoti_loader.Plugin, name: str, *types: object) -> object:
    address = linker.find_symbol(loaded._handle, name)
    assert address
    return ctypes.CFUNCTYPE(None, *types)(address)  # type: ignore[arg-type]


def test_D1_destructors_run_once_when_their_thread_ends_or_when_it_closes(
    cxx_plugin: Callable[..., str],
) -> None:
    loaded = aoti_loader.load(cxx_plugin(), warn=False)
    counter = ctypes.c_int()
    _function(loaded, "count_destroyed", ctypes.c_void_p)(ctypes.addressof(counter))  # type: ignore[operator]
    touch = _function(loaded, "use_thread_local")
    thread = threading.Thread(target=touch)  # type: ignore[arg-type]
    thread.start()
    thread.join()
    assert eventually(lambda: counter.value == 1)
    touch()  # type: ignore[operator]
    assert loaded.close()
    assert counter.value == 2


def test_D1_another_threads_objects_keep_it_until_the_thread_ends(cxx_plugin: Callable[..., str]) -> None:
    loaded = aoti_loader.load(cxx_plugin(), warn=False)
    touch = _function(loaded, "use_thread_local")
    touched, leave = threading.Event(), threading.Event()

    def work() -> None:
        touch()  # type: ignore[operator]
        touched.set()
        leave.wait()

    thread = threading.Thread(target=work)
    thread.start()
    touched.wait()
    assert loaded.close() is False
    assert "1 C++ thread_local objects of it belong to other threads" in (loaded.kept_because or "")
    leave.set()
    thread.join()

    def next_load_unloads_it() -> bool:
        aoti_loader.load(cxx_plugin(), warn=False).close()
        return loaded.kept_because is None

    assert eventually(next_load_unloads_it)
    assert loaded.close() is True
