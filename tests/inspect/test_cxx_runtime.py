"""Which C++ library a plugin was compiled against, and whether it carries it in itself."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from aoti_inspect.elf.image import ElfImage
from aoti_inspect.facts.cxx_runtime import find_cxx_runtime

THROWS = """
#include <stdexcept>
#include <string>
extern "C" int run(const char *text) {
  try {
    if (!text) throw std::runtime_error("null");
    return static_cast<int>(std::string(text).size());
  } catch (const std::exception &) {
    return -1;
  }
}
"""


def runtime_of(data: bytes) -> tuple[str | None, bool]:
    image = ElfImage(data, "test.so")
    return find_cxx_runtime(image, image.facts())


def test_a_shared_runtime(compile_library: Callable[..., str], small_plugin: Path, plugins: Path):
    assert runtime_of(Path(compile_library(THROWS, cxx=True)).read_bytes()) == ("libstdc++", False)
    assert runtime_of(small_plugin.read_bytes()) == ("libstdc++", False)
    for path in plugins.glob("*.so"):
        assert runtime_of(path.read_bytes()) == ("libstdc++", False)


@pytest.mark.parametrize(
    "hidden",
    [
        (),
        ("-Wl,--exclude-libs,ALL",),
        ("-Wl,--exclude-libs,ALL", "-fvisibility=hidden", "-s", "-static-libgcc"),
    ],
)
def test_a_runtime_linked_statically(compile_library: Callable[..., str], hidden: tuple[str, ...]):
    """By its exported entry points, or, if it is hidden, by what it cannot hide."""
    path = compile_library(THROWS, "-static-libstdc++", *hidden, cxx=True)
    image = ElfImage(Path(path).read_bytes(), path)
    facts = image.facts()
    assert not any(name.startswith("libstdc++") for name in facts.needed)
    assert (facts.exports.std_strong > 0) == (not hidden)
    assert find_cxx_runtime(image, facts) == ("libstdc++", True)


def test_a_runtime_that_is_used_but_not_named_is_not_static(compile_library: Callable[..., str]):
    path = compile_library(THROWS, "-nostdlib", "-lc", cxx=True)
    image = ElfImage(Path(path).read_bytes(), path)
    assert not any(name.startswith("libstdc++") for name in image.facts().needed)
    assert find_cxx_runtime(image, image.facts()) == ("libstdc++", False)


def test_plain_c_has_none(compile_library: Callable[..., str]):
    # __cxa_finalize and __cxa_atexit look like the C++ runtime's, and are the C library's.
    path = compile_library("#include <stdlib.h>\nint f(void) { return abs(-1); }")
    assert runtime_of(Path(path).read_bytes()) == (None, False)
    path = compile_library("int AOTInductorModelContainerRun(void) { return 0; }")
    assert runtime_of(Path(path).read_bytes()) == (None, False)


def test_libcxx_by_name_by_library_and_by_export(elf_writer):
    thrower = "_ZNSt3__112basic_stringIcNS_11char_traitsIcEENS_9allocatorIcEEE6appendEPKc"
    assert runtime_of(elf_writer(undefined=[thrower]).build()) == ("libc++", False)
    assert runtime_of(elf_writer(undefined=["_ZNSt6__ndk14cerrE"]).build()) == ("libc++", False)
    assert runtime_of(elf_writer(undefined=["__cxa_throw"], needed=["libc++.so.1"]).build()) == (
        "libc++",
        False,
    )
    inlined = [(thrower, 2, 0x40010, 4)]
    assert runtime_of(elf_writer(defined=inlined).build()) == ("libc++", False)
    assert runtime_of(elf_writer(defined=[*inlined, "__cxa_throw"]).build()) == ("libc++", True)


def test_versions_name_the_runtime(elf_writer):
    data = elf_writer(
        undefined=[("f", 2)], versions={"libstdc++.so.6": [("GLIBCXX_3.4", 2)]}, needed=["libstdc++.so.6"]
    ).build()
    assert runtime_of(data) == ("libstdc++", False)
