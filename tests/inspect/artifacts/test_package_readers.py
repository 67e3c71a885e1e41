"""Which library of a package is loaded: what the audit looks at against what PyTorch takes.

Each library here has a constructor that says its name and ends the process, so that PyTorch's own loader
tells which one it opens, without a model that would run.
"""

from __future__ import annotations

import struct
import subprocess
import sys
from pathlib import Path

import pytest

from aoti_abi.errors import NotSupported
from aoti_inspect import audit
from aoti_inspect.artifacts import open_artifact

from .conftest import write_zip

FOLDER = "m/data/aotinductor/model/"
LOADER = """
import os, sys
import torch._inductor
for path in sys.argv[1:]:
    if not os.fork():
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        try:
            torch._inductor.aoti_load_package(path)
            os.write(1, b"loaded" + bytes([10]))
        except RuntimeError:
            os.write(1, b"refused" + bytes([10]))
        finally:
            os._exit(0)
    os.wait()
"""


@pytest.fixture(scope="module")
def libraries(compile_library) -> dict[str, bytes]:
    source = """
    #include <unistd.h>
    __attribute__((constructor)) static void say(void) {{ if (write(1, "{0}\\n", 4)) _exit(0); _exit(1); }}
    """
    return {
        name: Path(compile_library(source.format(name), name=f"{name}.so")).read_bytes()
        for name in ("one", "two")
    }


def members(libraries: dict[str, bytes], **files: str) -> dict[str, bytes]:
    """Return a package's members; ``files`` says which library each name is, with ``__`` for dots."""
    content = {"m/archive_format": b"pt2", "m/archive_version": b"0", "m/byteorder": b"little"}
    for name, library in files.items():
        stem = name.replace("__", ".")
        content[f"{FOLDER}{stem}.so"] = libraries[library]
        content[f"{FOLDER}{stem}_metadata.json"] = b'{"AOTI_DEVICE_KEY": "cpu"}'
    return content


def moved(archive: bytes, distance: int) -> bytearray:
    """Return an archive whose offsets count from ``distance`` bytes before it."""
    data = bytearray(archive)
    end = data.rfind(b"PK\5\6")
    count, _, position = struct.unpack_from("<HII", data, end + 10)
    struct.pack_into("<I", data, end + 16, position + distance)
    for _ in range(count):
        (offset,) = struct.unpack_from("<I", data, position + 42)
        struct.pack_into("<I", data, position + 42, offset + distance)
        position += 46 + sum(struct.unpack_from("<HHH", data, position + 28))
    return data


@pytest.fixture(scope="module")
def packages(tmp_path_factory, libraries) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("packages")

    def zipped(name: str, content: dict[str, bytes]) -> bytes:
        return Path(write_zip(folder / name, content)).read_bytes()

    one = zipped("one", members(libraries, a__wrapper="one"))
    two = zipped("two", members(libraries, a__wrapper="two"))
    newline = members(libraries, a="one")
    newline[f"{FOLDER}b\n.wrapper.so"] = libraries["two"]
    newline[f"{FOLDER}b\n.wrapper_metadata.json"] = b'{"AOTI_DEVICE_KEY": "cpu"}'
    behind = moved(two, len(one))
    struct.pack_into("<H", behind, behind.rfind(b"PK\5\6") + 20, 0xFFFF)
    contents = {
        "sound": one,
        "kernel_library": zipped("x", members(libraries, a="two", b__wrapper="one", c="two")),
        "newline": zipped("x", newline),
        "first_of_two": zipped("x", members(libraries, b="two", a="one")),
        "two_wrappers": zipped("x", members(libraries, b__wrapper="two", a__wrapper="one")),
        "joined": one + two,
        "joined_and_moved": one + moved(two, len(one)),
        "comment_past_the_end": one + behind,
        "bytes_before": b"#!/bin/sh" + one,
        "bytes_after": one + b"garbage",
    }
    paths = {}
    for name, content in contents.items():
        path = folder / f"{name}.pt2"
        path.write_bytes(content)
        paths[name] = str(path)
    return paths


@pytest.fixture(scope="module")
def taken(packages) -> dict[str, str]:
    """What PyTorch does with each package: the name of the library that it opens, or "refused"."""
    command = [sys.executable, "-c", LOADER, *packages.values()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200, check=True)
    return dict(zip(packages, done.stdout.split(), strict=True))


def test_what_pytorch_takes(taken):
    """The judge itself: if another PyTorch takes other libraries, the rules' texts need to say so."""
    assert taken == {
        "sound": "one",
        "kernel_library": "one",
        "newline": "two",
        "first_of_two": "two",
        "two_wrappers": "refused",
        "joined": "one",
        "joined_and_moved": "two",
        "comment_past_the_end": "two",
        "bytes_before": "refused",
        "bytes_after": "one",
    }


def test_no_package_is_clean_of_which_pytorch_takes_another_library(packages, taken, libraries):
    for name, path in packages.items():
        with open_artifact(path) as artifact:
            ours = {bytes(plugin.read()) for plugin in artifact.plugins}
        result = audit(path, hosts=("torch==2.13",))
        errors = {finding.code for finding in result.findings if finding.severity == "error"}
        if ours != {libraries.get(taken[name])}:
            assert errors & {"AOTI614", "AOTI621", "AOTI623"}, name
        if taken[name] == "refused":
            for plugin in result.plugins:
                (verdict,) = plugin.verdicts
                assert verdict.outcome == "will not load"
                assert "PyTorch reads" in verdict.reasons[0] or "several wrapper" in verdict.reasons[0]


def test_sound_packages_have_no_error_of_layout(packages):
    for name in ("sound", "kernel_library", "joined_and_moved"):
        assert not {item.code for item in audit(packages[name]).findings} & {"AOTI614", "AOTI621", "AOTI623"}
    assert [item.severity for item in audit(packages["bytes_after"]).findings] == ["warning"]


def test_control_characters_in_names_are_an_error(packages):
    result = audit(packages["newline"])
    assert [item.code for item in result.findings if item.severity == "error"] == ["AOTI623"]
    assert [plugin.facts.name.endswith("b\n.wrapper.so") for plugin in result.plugins] == [True]


def test_of_several_libraries_each_is_audited_and_none_is_loaded(packages):
    for name in ("first_of_two", "two_wrappers"):
        assert len(audit(packages[name]).plugins) == 2
        with open_artifact(packages[name]) as artifact, pytest.raises(NotSupported, match="loaders differ"):
            artifact.model().select(None)


def test_a_comment_that_ends_like_a_locator(tmp_path, libraries):
    path = Path(write_zip(tmp_path / "m.pt2", members(libraries, a="one")))
    data = path.read_bytes()
    end = data.rfind(b"PK\5\6")
    # The last entry's comment ends directly before the end record, where a zip64 locator would be.
    directory = int.from_bytes(data[end + 16 : end + 20], "little")
    last = data.rfind(b"PK\1\2", directory, end)
    comment = b"PK\6\7" + b"\xff" * 16
    patched = bytearray(data[:end] + comment + data[end:])
    struct.pack_into("<H", patched, last + 32, len(comment))
    struct.pack_into("<I", patched, end + len(comment) + 12, end + len(comment) - directory)
    path.write_bytes(patched)
    with open_artifact(str(path)) as artifact:
        assert artifact.facts == ()
        assert artifact.model().plugin.read() == libraries["one"]
