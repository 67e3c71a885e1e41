"""Loading: what is refused and how it is said, features and warnings, the private copy's identity."""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import struct
import warnings
import zipfile
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import aoti_loader
from aoti_abi.errors import (
    AccessFailed,
    AotiError,
    FallbackWarning,
    InvalidArgument,
    InvalidProgram,
    InvalidState,
    NotFound,
    NotSupported,
)
from aoti_abi.features import FEATURES, evaluate
from aoti_inspect.artifacts import open_artifact
from aoti_inspect.artifacts.facts import read_facts
from aoti_inspect.elf.image import ElfImage
from aoti_loader import loading

if TYPE_CHECKING:
    from collections.abc import Callable


def tag(plugin: aoti_loader.Plugin) -> int:
    from aoti_loader import linker

    return int(ctypes.CFUNCTYPE(ctypes.c_int)(linker.find_symbol(plugin._handle, "tag") or 0)())


def test_a_plugin_loads(plugin: Callable[..., str]) -> None:
    with aoti_loader.load(plugin(), warn=False) as loaded:
        assert loaded.host.name == "builtin"
        assert loaded.staging == "memory"
        assert tag(loaded) == 1
        assert loaded.function("AOTInductorModelContainerRun")
        with pytest.raises(NotFound, match="has no AOTInductorModelContainerGetCallSpec"):
            loaded.function("AOTInductorModelContainerGetCallSpec")
    with pytest.raises(InvalidState, match="closed"):
        loaded.function("AOTInductorModelContainerRun")
    with pytest.raises(InvalidState, match="closed"):
        loaded.hold()


def test_real_plugins_load_and_answer(real_plugin: str) -> None:
    with aoti_loader.load(real_plugin, host="builtin", warn=False) as loaded:
        container, count = ctypes.c_void_p(), ctypes.c_size_t()
        functions = loaded.functions
        assert (
            functions["AOTInductorModelContainerCreateWithDevice"](ctypes.byref(container), 1, b"cpu", None)
            == 0
        )
        assert functions["AOTInductorModelContainerGetNumInputs"](container, ctypes.byref(count)) == 0
        assert count.value >= 1
        assert functions["AOTInductorModelContainerDelete"](container) == 0


def test_the_forecast_is_what_is_bound(real_plugin: str, plugin: Callable[..., str]) -> None:
    for path in (real_plugin, plugin(), plugin(ENTRIES="OK", NAMES='"z"')):
        forecast = evaluate(frozenset(read_facts(path).elf.exports.container))
        with aoti_loader.load(path, warn=False) as loaded:
            assert tuple(loaded.features.values()) == forecast
            assert list(loaded.features) == list(FEATURES)


def test_L1_every_missing_function_is_named(plugin: Callable[..., str]) -> None:
    with pytest.raises(InvalidProgram, match="required functions are missing") as caught:
        aoti_loader.load(plugin("-DNO_RUN", "-DNO_CREATE"))
    assert "AOTInductorModelContainerCreateWithDevice, AOTInductorModelContainerRun" in str(caught.value)


def test_L1_a_library_that_is_no_plugin(compile_library: Callable[..., str]) -> None:
    with pytest.raises(InvalidProgram, match="not an AOTInductor plugin"):
        aoti_loader.load(compile_library("int x;"))


def test_L8_R1_each_lost_feature_warns_when_a_plugin_is_loaded(plugin: Callable[..., str]) -> None:
    with pytest.warns(FallbackWarning) as caught:
        loaded = aoti_loader.load(plugin())
    loaded.close()
    given = {item.message.feature: item for item in caught if isinstance(item.message, FallbackWarning)}
    assert "run" not in given
    assert "error-text" not in given
    assert "external-constants-at-creation" not in given
    assert set(given) == {item.feature for item in loaded.fallbacks}
    for name, since, instead in (
        ("weight-sharing", "2.13", "each method loads its own weights"),
        ("mutable-sessions", "2.13", "sessions are not supported"),
        ("graph-safe-constants", "2.13", "CUDA graphs stay off"),
        ("external-weights", "2.10", "weights must be inside the plugin"),
    ):
        words = str(given[name].message)
        assert since in words
        assert instead in words
        assert FEATURES[name].symbols[-1] in words
        assert given[name].filename == __file__


def test_L8_every_feature_that_can_be_lost_has_its_warning(smallest_plugin: str) -> None:
    """A plugin with the required functions only loses all of them, and each is said on its own."""
    with pytest.warns(FallbackWarning) as caught:
        aoti_loader.load(smallest_plugin).close()
    given = {item.message.feature: str(item.message) for item in caught}  # type: ignore[union-attr]
    lost = {name: feature for name, feature in FEATURES.items() if name != "run" and not feature.addition}
    assert given.keys() == lost.keys()
    for name, feature in lost.items():
        assert all(symbol in given[name] for symbol in feature.symbols)
        assert feature.instead in given[name]
        assert f"PyTorch {feature.since}" in given[name]


def test_L8_warnings_can_be_left_to_whoever_needs_the_feature(plugin: Callable[..., str]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        loaded = aoti_loader.load(plugin(), warn=False)
        loaded.warn_fallback("error-text")
    assert not loaded.has("weight-sharing")
    with pytest.warns(FallbackWarning, match="weight-sharing: the plugin does not export") as caught:
        loaded.warn_fallback("weight-sharing")
    assert caught[0].filename == __file__
    with pytest.raises(NotFound, match="no feature 'nonsense'"):
        loaded.warn_fallback("nonsense")
    loaded.close()


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "empty"),
        (b"\x7fELF", "ELF"),
        (b"version https://git-lfs.github.com/spec/v1\n", "LFS"),
        (b"PK\3\4", "zip"),
    ],
)
def test_what_is_not_a_library_is_one_error(tmp_path: Path, content: bytes, words: str) -> None:
    path = tmp_path / "x.so"
    path.write_bytes(content)
    with pytest.raises(AotiError, match=words) as caught:
        aoti_loader.load(path)
    assert caught.value.path == str(path)


def test_paths_that_lead_nowhere(tmp_path: Path) -> None:
    with pytest.raises(NotFound):
        aoti_loader.load(tmp_path / "absent.so")
    with pytest.raises(AotiError):
        aoti_loader.load(tmp_path)
    with pytest.raises(NotFound):
        aoti_loader.load("a\0b")
    with pytest.raises(InvalidArgument):
        aoti_loader.load(7)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument):
        aoti_loader.load(b"bytes.so")  # type: ignore[arg-type]


def test_wrong_options(plugin: Callable[..., str]) -> None:
    with pytest.raises(InvalidArgument, match="no host 'nonsense'"):
        aoti_loader.load(plugin(), host="nonsense")  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match=r"preload='libm\.so\.6'"):
        aoti_loader.load(plugin(), preload="libm.so.6")  # type: ignore[arg-type]


def test_another_machine_is_refused(plugin: Callable[..., str], copy: Callable[[str], Path]) -> None:
    path = copy(plugin())
    data = bytearray(path.read_bytes())
    data[18:20] = (243).to_bytes(2, "little")  # EM_RISCV
    path.write_bytes(data)
    with pytest.raises(NotSupported, match=f"64-bit riscv.*this machine is {os.uname().machine}"):
        aoti_loader.load(path)


def test_instructions_that_the_processor_lacks_are_refused(
    plugin: Callable[..., str], copy: Callable[[str], Path]
) -> None:
    path = copy(plugin())
    foreign = "NEON" if os.uname().machine == "x86_64" else "AVX2"
    path.with_name("plugin_metadata.json").write_text(json.dumps({"AOTI_CPU_ISA": foreign}))
    with pytest.raises(NotSupported, match=f"compiled for {foreign}, and this processor lacks {foreign}"):
        aoti_loader.load(path, warn=False)
    aoti_loader.load(path, check_isa=False, warn=False).close()


def test_metadata_of_another_plugin_are_refused(
    plugin: Callable[..., str], copy: Callable[[str], Path]
) -> None:
    path = copy(plugin())
    for metadata, words in (
        ({"AOTI_MACHINE": "s390x"}, f"AOTI_MACHINE=s390x, but the file is for {os.uname().machine}"),
        ({"AOTI_DEVICE_KEY": "cuda"}, "AOTI_DEVICE_KEY=cuda, but it neither calls CUDA nor holds GPU code"),
        ({"AOTI_DEVICE_KEY": "cuda:1"}, "neither calls CUDA"),
    ):
        path.with_name("plugin_metadata.json").write_text(json.dumps(metadata))
        with pytest.raises(InvalidProgram, match=words) as caught:
            aoti_loader.load(path, warn=False)
        assert "check_isa=False" in (caught.value.hint or "")
        aoti_loader.load(path, check_isa=False, warn=False).close()
    here = {"AOTI_MACHINE": os.uname().machine, "AOTI_DEVICE_KEY": "cpu", "AOTI_CPU_ISA": ""}
    path.with_name("plugin_metadata.json").write_text(json.dumps(here))
    aoti_loader.load(path, warn=False).close()


def test_a_gpu_plugin_without_a_driver_says_so(
    plugin: Callable[..., str], compile_library: Callable[..., str]
) -> None:
    driver = compile_library(
        "int cuLaunchKernel(void) { return 1; }", "-Wl,-soname,libcuda.so.1", name="libcuda.so.1"
    )
    path = plugin(driver, "-DNEEDS=X(cuLaunchKernel)")
    if _has_driver():
        pytest.skip("hardware: a GPU, with its driver")
    with pytest.raises(AccessFailed, match=r"libcuda\.so\.1 was not found") as caught:
        aoti_loader.load(path, warn=False)
    assert "NVIDIA's driver" in (caught.value.hint or "")


def _has_driver() -> bool:
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        return False
    return True


DAMAGES = {
    "no-buckets": (0x6FFFFEF5, 0, "I", 0),
    "no-hash": (None, 0, "", 0),
    "versions-overlap": (0x6FFFFFFE, 12, "I", 1),
    "versions-of-another-format": (0x6FFFFFFE, 0, "H", 7),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_what_the_dynamic_linker_dies_on_never_reaches_it(
    plugin: Callable[..., str], copy: Callable[[str], Path], child: Callable[..., str], damage: str
) -> None:
    """Opened with dlopen, some of these end the process: they are refused before, with what is wrong."""
    path = copy(plugin("-Wl,--hash-style=gnu"))
    data = bytearray(path.read_bytes())
    image = ElfImage(bytes(data), str(path))
    assert image.dynamic is not None
    tag, offset, kind, value = DAMAGES[damage]
    if tag is None:
        segment = next(item for item in image.segments if item.type == "DYNAMIC")
        for at in range(segment.offset, segment.offset + segment.file_size, 16):
            if struct.unpack_from("<Q", data, at)[0] == 0x6FFFFEF5:
                struct.pack_into("<Q", data, at, 0x6FFFF000)
    else:
        at = image.space.offset_of(image.dynamic.values[tag])
        assert at is not None
        struct.pack_into("<" + kind, data, at + offset, value)
    path.write_bytes(data)
    words = child(
        """
        import sys, aoti_loader
        from aoti_abi.errors import InvalidProgram
        try: aoti_loader.load(sys.argv[1], warn=False)
        except InvalidProgram as error: print(error)
        """,
        str(path),
    )
    assert "the dynamic linker can't use it" in words


def test_a_plugin_is_in_no_scope_but_its_own(plugin: Callable[..., str], child: Callable[..., str]) -> None:
    words = child(
        """
        import ctypes, sys, aoti_loader
        plugin = aoti_loader.load(sys.argv[1], warn=False)
        print(bool(plugin.function("AOTInductorModelContainerRun")))
        print(hasattr(ctypes.CDLL(None), "AOTInductorModelContainerRun"))
        """,
        plugin(),
    )
    assert words.split() == ["True", "False"]


def test_an_undefined_symbol_is_explained(plugin: Callable[..., str]) -> None:
    path = plugin("-DNEEDS=X(_ZN3c107WarningC1ESs)")
    with pytest.raises(AccessFailed, match="nothing in the process defines _ZN3c107WarningC1ESs") as caught:
        aoti_loader.load(path, warn=False)
    assert "undefined symbol" in (caught.value.cause or "")
    assert path in (caught.value.cause or "")
    assert "/proc/self/fd" not in str(caught.value)
    assert "std::string of the ABI before C++11" in (caught.value.hint or "")
    assert "libtorch's C++ API" in (caught.value.hint or "")


def test_a_missing_library_is_named(plugin: Callable[..., str], compile_library: Callable[..., str]) -> None:
    library = Path(
        compile_library("int gone(void) { return 1; }", "-Wl,-soname,libgone.so.1", name="libgone.so")
    )
    path = plugin(str(library), "-DNEEDS=X(gone)")
    with pytest.raises(
        AccessFailed, match=r"libgone\.so\.1 was not found, which it names in DT_NEEDED"
    ) as caught:
        aoti_loader.load(path, warn=False)
    assert "LD_LIBRARY_PATH" in (caught.value.hint or "")


def test_a_newer_version_is_explained_with_its_symbols(
    plugin: Callable[..., str], compile_library: Callable[..., str], tmp_path: Path, child: Callable[..., str]
) -> None:
    old, new = (
        compile_library(
            "int f(void) { return 1; }",
            "-Wl,-soname,libv.so",
            f"-Wl,--version-script={_versions(tmp_path, version)}",
            name="libv.so",
        )
        for version in ("V_1", "V_9")
    )
    path = plugin(new, "-DNEEDS=X(f)")
    shutil.copy(old, tmp_path / "libv.so")
    words = child(
        """
        import sys, aoti_loader
        try: aoti_loader.load(sys.argv[1], warn=False)
        except aoti_loader.loading.AccessFailed as error: print(error)
        """,
        path,
        LD_LIBRARY_PATH=str(tmp_path),
    )
    assert "it needs V_9 of" in words
    assert f"the one in this process ({tmp_path}/libv.so) is older" in words
    assert "because of f" in words


def _versions(folder: Path, version: str) -> Path:
    target = folder / version
    target.write_text(version + " { global: f; local: *; };")
    return target


def test_a_file_that_is_replaced_while_it_is_loaded(
    plugin: Callable[..., str], copy: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = copy(plugin())
    original = loading.plan_mends

    def replace(*arguments: object, **options: object) -> object:
        shutil.copy(plugin(TAG="2"), path.with_suffix(".new"))
        path.with_suffix(".new").replace(path)
        return original(*arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(loading, "plan_mends", replace)
    with pytest.raises(AccessFailed, match="replaced while it was read"):
        aoti_loader.load(path, warn=False)


def test_a_rebuilt_file_under_the_same_name_is_another_plugin(
    plugin: Callable[..., str], copy: Callable[[str], Path]
) -> None:
    path = copy(plugin())
    first = aoti_loader.load(path, warn=False)
    shutil.copy(plugin(TAG="2"), path)  # in place: the same inode
    second = aoti_loader.load(path, warn=False)
    assert (tag(first), tag(second)) == (1, 2)
    path.unlink()
    assert tag(first) == 1
    assert first.close()
    assert second.close()


def test_symbolic_links_are_followed(plugin: Callable[..., str], tmp_path: Path) -> None:
    link = tmp_path / "link.so"
    link.symlink_to(plugin())
    with aoti_loader.load(link, warn=False) as loaded:
        assert loaded.path == str(link)
        assert tag(loaded) == 1


def test_two_loads_of_one_file_share_nothing(cxx_plugin: Callable[..., str]) -> None:
    from aoti_loader import linker

    path = cxx_plugin()
    plugins = [aoti_loader.load(path, warn=False) for _ in range(2)]
    following = [
        ctypes.CFUNCTYPE(ctypes.c_int)(linker.find_symbol(p._handle, "next_value") or 0) for p in plugins
    ]
    assert [following[0](), following[0](), following[1]()] == [1, 2, 1]
    for loaded in plugins:
        loaded.close()


def test_N24_the_file_itself_is_neither_open_nor_mapped_after_loading(plugin: Callable[..., str]) -> None:
    path = os.path.realpath(plugin())
    with aoti_loader.load(path, warn=False) as loaded:
        assert tag(loaded) == 1
        assert path not in Path("/proc/self/maps").read_text()
        links = [f"/proc/self/fd/{number}" for number in os.listdir("/proc/self/fd")]
        assert path not in {os.readlink(link) for link in links if os.path.exists(link)}


def test_L9_Q7_a_member_of_a_package_never_names_a_file(plugin: Callable[..., str]) -> None:
    with open(plugin(), "rb") as stream:
        data = stream.read()
    name = "model.pt2!../../../etc/passwd"
    with (
        open_artifact(name, content=data) as artifact,
        aoti_loader.load(artifact.plugins[0], warn=False) as loaded,
    ):
        assert loaded.path == name
        assert tag(loaded) == 1


def test_a_plugin_of_an_artifact_is_loaded_as_the_file_is(plugin: Callable[..., str], tmp_path: Path) -> None:
    path = tmp_path / "models.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.write(plugin(), "deep/plugin.so")
    for source, name in ((plugin(), plugin()), (str(path), f"{path}!deep/plugin.so")):
        with (
            open_artifact(source) as artifact,
            aoti_loader.load(artifact.plugins[0], warn=False) as loaded,
        ):
            assert loaded.path == name
            assert tag(loaded) == 1


def test_a_package_that_was_replaced_since_it_was_opened_is_not_loaded(
    plugin: Callable[..., str], tmp_path: Path
) -> None:
    path = tmp_path / "models.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.write(plugin(), "plugin.so")
    with open_artifact(str(path)) as artifact:
        shutil.copy(path, tmp_path / "new")
        os.replace(tmp_path / "new", path)
        with pytest.raises(AccessFailed, match="replaced while it was read"):
            aoti_loader.load(artifact.plugins[0], warn=False)


def test_a_file_is_opened_once_and_loaded(
    plugin: Callable[..., str], opens_of: Callable[[str], AbstractContextManager[list[str]]]
) -> None:
    path = plugin()
    with opens_of(path) as opens, aoti_loader.load(path, warn=False):
        pass
    assert len(opens) == 1


def test_a_plugin_that_finds_libraries_beside_itself_is_loaded_in_place(
    plugin: Callable[..., str], compile_library: Callable[..., str], tmp_path: Path
) -> None:
    library = compile_library(
        "int beside(void) { return 1; }", "-Wl,-soname,libbeside.so", name="libbeside.so"
    )
    path = plugin(library, "-DNEEDS=X(beside)", "-Wl,-rpath,$ORIGIN")
    shutil.copy(library, tmp_path)
    shutil.copy(path, tmp_path)
    with aoti_loader.load(tmp_path / "plugin.so", warn=False) as loaded:
        assert loaded.staging == "in place"
        assert tag(loaded) == 1


def test_many_threads_may_load_at_once(real_plugin: str, child: Callable[..., str]) -> None:
    code = """
    import sys, threading, aoti_loader
    hosts, start = [], threading.Barrier(8)
    def work():
        start.wait()
        for _ in range(5):
            plugin = aoti_loader.load(sys.argv[1], warn=False)
            hosts.append(plugin.host.name)
            assert plugin.close(), plugin.kept_because
    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
    print(len(hosts), *set(hosts))
    """
    assert child(code, real_plugin) == "40 builtin\n"


def test_the_last_error_is_the_plugins_own(plugin: Callable[..., str]) -> None:
    with aoti_loader.load(plugin(), warn=False) as loaded:
        assert loaded.last_error() is None
        container = ctypes.c_void_p()
        create = loaded.functions["AOTInductorModelContainerCreateWithDevice"]
        assert create(ctypes.byref(container), 1, b"gpu", None) == 1
        assert loaded.last_error() == "Invalid device"
    assert loaded.last_error() is None
