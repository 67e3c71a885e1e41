"""Hosts: which is chosen, what it must have, and that two never meet."""

from __future__ import annotations

import ctypes
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import aoti_loader
from aoti_abi.errors import InvalidArgument, InvalidState, NotFound, NotSupported
from aoti_inspect.artifacts.facts import read_facts
from aoti_loader import host_choice
from aoti_loader.hosts import torch
from aoti_loader.process import PROCESS

if TYPE_CHECKING:
    from collections.abc import Callable

BOTH_NEED = "-DNEEDS=X(aoti_torch_device_type_cpu)"
#: A shim that LibTorch has and a host of C tensors cannot have.
TORCH_ONLY = "-DNEEDS=X(aoti_torch_device_type_cpu) X(aoti_torch_proxy_executor_call_function)"

LOAD = """
import sys, aoti_loader
try:
    plugin = aoti_loader.load(sys.argv[1], host=sys.argv[2], warn=False)
    print(plugin.host.name, plugin.host.version, plugin.host.path, [mend.name for mend in plugin.mends])
except Exception as error:
    print(type(error).__name__, error)
print("torch" in sys.modules)
"""


def test_L13_every_missing_shim_is_named_for_each_host(
    plugin: Callable[..., str], child: Callable[..., str]
) -> None:
    path = plugin("-DNEEDS=X(aoti_torch_device_type_cpu) X(aoti_torch_no_such_a) X(aoti_torch_no_such_b)")
    words = child(LOAD, path, "auto")
    assert words.startswith("NotSupported")
    assert "builtin lacks 2: aoti_torch_no_such_a, aoti_torch_no_such_b; torch" in words
    assert words.count("aoti_torch_no_such_a, aoti_torch_no_such_b") == 3
    assert "no known PyTorch has" in words
    assert path in words


def test_L13_is_checked_before_the_plugin_is_opened(
    plugin: Callable[..., str], child: Callable[..., str]
) -> None:
    code = """
    import sys, aoti_loader
    from aoti_loader import linker
    try: aoti_loader.load(sys.argv[1], host="builtin", warn=False)
    except aoti_loader.loading.NotSupported as error: print(error)
    print(linker.find_symbol(None, "aoti_torch_device_type_cpu"), "memfd" in open("/proc/self/maps").read())
    """
    words = child(code, plugin(TORCH_ONLY))
    assert "the builtin host lacks functions" in words
    assert "host='torch' uses an installed PyTorch" in words
    # A host that did not fit leaves nothing in the global scope.
    assert words.splitlines()[-1] == "None False"


def test_an_unknown_host_is_one_error_with_the_known_ones(plugin: Callable[..., str]) -> None:
    with pytest.raises(InvalidArgument, match="no host 'tensorflow'") as caught:
        aoti_loader.load(plugin(BOTH_NEED), host="tensorflow", warn=False)
    assert caught.value.hint == "hosts: auto, builtin, torch, process"


def test_skew_is_in_the_hint(plugin: Callable[..., str]) -> None:
    with pytest.raises(NotSupported) as caught:
        aoti_loader.load(
            plugin("-DNEEDS=X(aoti_torch_create_tensor_from_blob_v3)"), host="builtin", warn=False
        )
    assert "aoti_torch_create_tensor_from_blob_v3 is in no PyTorch up to" in (caught.value.hint or "")


def test_auto_takes_the_built_in_host_if_it_has_every_shim(
    plugin: Callable[..., str], child: Callable[..., str]
) -> None:
    assert child(LOAD, plugin(BOTH_NEED), "auto").startswith("builtin None /")


@pytest.mark.torch
def test_auto_takes_torch_for_what_the_built_in_host_lacks(
    plugin: Callable[..., str], child: Callable[..., str]
) -> None:
    words = child(LOAD, plugin(TORCH_ONLY), "auto")
    assert words.startswith("torch 2.")
    assert "libtorch_cpu.so" in words
    assert words.splitlines()[-1] == "False"  # PyTorch was not imported


@pytest.mark.torch
def test_L12_a_second_provider_is_refused_with_both_names(
    plugin: Callable[..., str], child: Callable[..., str], builtin_library: str
) -> None:
    code = LOAD + "sys.argv[2] = sys.argv[3]\n" + LOAD
    for first, second in (("builtin", "torch"), ("torch", "builtin")):
        words = child(code, plugin(BOTH_NEED), first, second)
        lines = [line for line in words.splitlines() if not line.startswith(("True", "False", "hint"))]
        assert lines[0].startswith(first)
        assert lines[1].startswith("InvalidState")
        assert builtin_library in lines[1]
        assert "libtorch_cpu.so" in lines[1]


@pytest.mark.torch
def test_L12_a_refused_torch_does_not_bar_the_host_that_is_there(
    plugin: Callable[..., str], child: Callable[..., str]
) -> None:
    code = LOAD + "sys.argv[2] = 'torch'\n" + LOAD + "sys.argv[2] = 'builtin'\n" + LOAD
    words = child(code, plugin(BOTH_NEED), "builtin")
    lines = [line for line in words.splitlines() if not line.startswith(("True", "False", "hint"))]
    assert [line.split()[0] for line in lines] == ["builtin", "InvalidState", "builtin"]


@pytest.mark.torch
def test_L12_P15_an_imported_torch_counts_though_it_is_local(
    plugin: Callable[..., str], child: Callable[..., str], builtin_library: str
) -> None:
    words = child("import torch\n" + LOAD, plugin(BOTH_NEED), "builtin")
    assert words.startswith("InvalidState")
    assert builtin_library in words
    assert "libtorch_cpu.so" in words
    assert child("import torch\n" + LOAD, plugin(BOTH_NEED), "auto").startswith("torch 2.")


def test_L12_auto_stays_with_what_is_there(
    plugin: Callable[..., str], child: Callable[..., str], host_library: Callable[..., str]
) -> None:
    code = "import ctypes, sys\nctypes.CDLL(sys.argv[3], ctypes.RTLD_GLOBAL)\n" + LOAD
    library = host_library()
    for kind in ("auto", "process"):
        assert child(code, plugin(BOTH_NEED), kind, library).startswith(f"process None {library}")
    words = child(code, plugin(BOTH_NEED), "builtin", library)
    assert words.startswith("InvalidState")
    assert library in words


def test_process_without_a_provider_names_what_is_missing(
    plugin: Callable[..., str], child: Callable[..., str]
) -> None:
    words = child(LOAD, plugin(BOTH_NEED), "process")
    assert "process lacks 1: aoti_torch_device_type_cpu" in words


@pytest.mark.torch
def test_a_plugin_that_names_libtorch_is_served_without_it(
    plugin: Callable[..., str], compile_library: Callable[..., str], child: Callable[..., str]
) -> None:
    stand_in = compile_library("int x;", "-Wl,-soname,libtorch_cpu.so", name="libtorch_cpu.so")
    path = plugin(BOTH_NEED, "-Wl,--no-as-needed", stand_in)
    words = child(LOAD, path, "builtin")
    assert words.startswith("builtin")
    assert "libtorch-needed" in words
    assert child(LOAD, path, "torch").startswith("torch 2.")
    words = child(LOAD.replace("warn=False", "warn=False, mend=False"), path, "builtin")
    assert words.startswith("NotSupported")
    assert "names libtorch_cpu.so in DT_NEEDED" in words


def test_the_functions_of_a_host_are_typed(plugin: Callable[..., str]) -> None:
    with aoti_loader.load(plugin(BOTH_NEED), warn=False) as loaded:
        host = loaded.host
        function = host.function("aoti_torch_get_dim")
        assert function is host.function("aoti_torch_get_dim")
        assert function.argtypes[0] is ctypes.c_void_p
        assert host.function("aoti_torch_device_type_cuda")() == 1
        assert host.provides("aoti_torch_get_dim")
        assert not host.provides("aoti_torch_nonsense")
        with pytest.raises(NotFound, match="no shim"):
            host.function("aoti_torch_nonsense")
        with pytest.raises(NotFound, match="the builtin host has no"):
            host.function("aoti_torch_proxy_executor_call_function")


def test_the_host_tells_its_last_error(plugin: Callable[..., str]) -> None:
    with aoti_loader.load(plugin(BOTH_NEED), warn=False) as loaded:
        dim = ctypes.c_int64()
        assert loaded.host.function("aoti_torch_get_dim")(None, ctypes.byref(dim)) != 0
        assert "null" in (loaded.host.last_error() or "").lower()
        loaded.host.clear_error()
        assert loaded.host.last_error() is None


def test_a_wrong_override_fails_loudly(plugin: Callable[..., str], child: Callable[..., str]) -> None:
    words = child(LOAD, plugin(BOTH_NEED), "builtin", AOTI_SHIM_PATH="/nowhere/libaoti_shim.so")
    assert words.startswith("NotFound /nowhere/libaoti_shim.so: AOTI_SHIM_PATH names no file")


def test_without_torch_the_reason_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.path", [])
    with pytest.raises(NotFound, match="PyTorch is not installed"):
        torch.find()


def test_the_version_of_torch_is_read_from_its_text(tmp_path: Path) -> None:
    (tmp_path / "lib").mkdir()
    assert torch.version(str(tmp_path / "lib")) is None
    (tmp_path / "version.py").write_text("from x import y\n__version__ = '2.13.0+cpu'\ndebug = False\n")
    assert torch.version(str(tmp_path / "lib")) == "2.13.0+cpu"


def test_L12_names_one_file_once(monkeypatch: pytest.MonkeyPatch, builtin_library: str) -> None:
    monkeypatch.setattr(torch, "present", lambda: None)
    monkeypatch.setattr(host_choice, "global_provider", lambda: builtin_library)
    host_choice.refuse_clash("builtin", builtin_library, "p.so")
    monkeypatch.setattr(host_choice, "global_provider", lambda: "/elsewhere/libtorch_cpu.so")
    with pytest.raises(InvalidState, match="already has another provider of aoti_torch_\\*: /elsewhere"):
        host_choice.refuse_clash("builtin", builtin_library, "p.so")


def test_a_libtorch_named_by_its_path_is_libtorch_to_the_loader(
    plugin: Callable[..., str], compile_library: Callable[..., str], child: Callable[..., str]
) -> None:
    stand_in = compile_library("int x;", name="libtorch_cpu.so")
    path = plugin(BOTH_NEED, "-Wl,--no-as-needed", stand_in)
    assert stand_in in read_facts(path).elf.needed  # a library without a SONAME is needed by its path
    words = child(LOAD, path, "builtin")
    assert words.startswith("builtin")
    assert "libtorch-needed" in words


@pytest.mark.torch
def test_another_libtorch_by_its_path_does_not_come_in_beside_pytorchs(
    plugin: Callable[..., str], compile_library: Callable[..., str], child: Callable[..., str]
) -> None:
    stand_in = compile_library("int x;", name="libtorch_cpu.so")
    code = LOAD + f"print({stand_in!r} in open('/proc/self/maps').read())"
    words = child(code, plugin(BOTH_NEED, "-Wl,--no-as-needed", stand_in), "torch")
    assert words.startswith("torch 2.")
    assert "libtorch-needed" in words
    assert words.splitlines()[-1] == "False"


NEW_FAMILY = """
from aoti_abi.host_descriptor import HostDescriptor

HOST = HostDescriptor("toy", "the toy", lambda machine, version: {"aoti_torch_toy"}.__contains__)
"""
NEW_OPENER = """
import os
from aoti_loader import linker
from aoti_loader.hosts.host import Host

RANK, OFFER = 50, "is a toy"

def find(): return os.environ["TOY"]
def present(): return None
def owns(provider): return provider == find()
def open_host(needs): return Host("toy", find(), (linker.open_library(find(), linker.RTLD_NOW),))
def equip(host, needs): print("equipped")
"""


def test_a_new_host_is_two_files(
    plugin: Callable[..., str],
    compile_library: Callable[..., str],
    child: Callable[..., str],
    tmp_path: Path,
) -> None:
    for folder, text in (("abi", NEW_FAMILY), ("loader", NEW_OPENER)):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "toy.py").write_text(text)
    code = f"""
    import sys
    import aoti_abi.hosts, aoti_loader.hosts, aoti_executor.cli
    aoti_abi.hosts.__path__.append("{tmp_path}/abi")
    aoti_loader.hosts.__path__.append("{tmp_path}/loader")
    print(aoti_loader.hosts.choices())
    print("toy" in aoti_executor.cli.build_parser().format_help())
    from aoti_inspect.artifacts.facts import read_facts
    from aoti_inspect.facts.target import Target
    from aoti_inspect.hosts.verdicts import judge_all
    print(judge_all(read_facts(sys.argv[1]), ("toy",), Target())[0].outcome)
    try: aoti_loader.load(sys.argv[1], host="builtin", warn=False)
    except Exception as error: print(error.hint)
    print(aoti_loader.load(sys.argv[1], warn=False).host.name)
    """
    library = compile_library("int aoti_torch_toy(void) { return 0; }")
    path = plugin("-DNEEDS=X(aoti_torch_toy)")
    unknown = "no known PyTorch has aoti_torch_toy: a newer one, or a custom host; "
    unknown += "host='toy' is a toy; host='torch' uses an installed PyTorch"
    assert child(code, path, TOY=library).splitlines() == [
        "('auto', 'builtin', 'toy', 'torch', 'process')",
        "True",
        "loads with fallbacks",
        unknown,
        "equipped",
        "toy",
    ]


def test_a_plugin_closes_while_another_is_being_loaded(plugin: Callable[..., str]) -> None:
    """A thread that loads may at any time collect a container: closing must not wait for it."""
    loaded = aoti_loader.load(plugin(BOTH_NEED), warn=False)
    done: list[bool] = []
    with PROCESS.lock:
        thread = threading.Thread(target=lambda: done.append(loaded.close()))
        thread.start()
        thread.join(30)
        assert done == [True]
