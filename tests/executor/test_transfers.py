"""Copies to a device and back, with a CUDA runtime that is a C file: reading its memory crashes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from aoti_abi.codes import parse_device
from aoti_abi.errors import InvalidArgument

FAKE = Path(__file__).resolve().parents[1] / "native" / "fake_device.c"
PLUGIN = Path(__file__).with_name("sources") / "plugin.c"
Compile = Callable[..., str]

PRELUDE = """
import ctypes, sys
import numpy as np
from aoti_executor.container import Container
from aoti_executor.arrays import view
from aoti_loader import load

plugin = load(sys.argv[1], host="builtin", warn=False)
fake = ctypes.CDLL(sys.argv[2], mode=ctypes.RTLD_GLOBAL)
shim = ctypes.CDLL(plugin.host.path)
assert shim.aoti_shim_load_cuda(sys.argv[2].encode()) == 0
counter = lambda name: ctypes.c_long.in_dll(fake, name).value
container = Container(plugin, device="cuda:1")
"""


@pytest.fixture(scope="session")
def paths(compile_library: Compile) -> tuple[str, str]:
    plugin = compile_library(PLUGIN.read_text(), "-DANY_DEVICE", name="identity.so")
    return plugin, compile_library(FAKE.read_text(), "-Wl,-Bsymbolic", name="libfakecudart.so")


def test_E3_Q1_Q2_host_arrays_are_copied_to_the_device_and_results_stay(
    paths: tuple[str, str], child: Callable[..., str]
) -> None:
    child(
        PRELUDE
        + """
array = np.arange(12, dtype=np.float32).reshape(3, 4).T
(result,) = container.run([array])
assert result.device == "cuda:1", result.device
assert result.shape == (4, 3) and counter("copies") == 1
back = result.to("cpu")
assert back.device == "cpu" and np.array_equal(np.asarray(back), array)
""",
        *paths,
    )


def test_N45_what_is_on_the_device_already_is_not_copied(
    paths: tuple[str, str], child: Callable[..., str]
) -> None:
    child(
        PRELUDE
        + """
tensor = container.upload(np.ones(5, np.int64))
before = counter("copies")
(result,) = container.run([tensor])
assert counter("copies") == before
assert result.data_ptr == tensor.data_ptr
assert result.to("cuda:1") is result
assert np.asarray(result.to("cpu")).tolist() == [1] * 5
""",
        *paths,
    )


def test_Q8_device_memory_goes_back_and_lives_as_long_as_its_results(
    paths: tuple[str, str], child: Callable[..., str]
) -> None:
    child(
        PRELUDE
        + """
(result,) = container.run([np.ones(5, np.float32)])
assert counter("live_allocations") == 1  # the result is the input, which nobody else holds
assert np.asarray(result.to("cpu")).tolist() == [1] * 5
del result
assert counter("live_allocations") == 0
""",
        *paths,
    )


def test_what_host_code_cannot_read_says_how_to_get_it(
    paths: tuple[str, str], child: Callable[..., str]
) -> None:
    child(
        PRELUDE
        + """
from aoti_abi.errors import InvalidArgument
(result,) = container.run([np.ones(5, np.float32)])
for take in (result.numpy, result.tobytes, result.tolist):
    try:
        take()
    except InvalidArgument as error:
        assert '.to("cpu")' in error.hint
    else:
        raise AssertionError(take)
""",
        *paths,
    )


def test_a_device_that_fails_is_one_error_with_its_own_words(
    paths: tuple[str, str], child: Callable[..., str]
) -> None:
    child(
        PRELUDE
        + """
from aoti_abi.errors import ExecutionFailed
ctypes.c_int.in_dll(fake, "fail_next").value = 2
try:
    container.run([np.ones(5, np.float32)])
except ExecutionFailed as error:
    assert error.cause, error
else:
    raise AssertionError
(result,) = container.run([np.ones(5, np.float32)])
assert np.asarray(result.to("cpu")).tolist() == [1] * 5
""",
        *paths,
    )


@pytest.mark.parametrize(
    ("text", "expected"), [("cpu", (0, 0)), ("cuda", (1, 0)), ("cuda:3", (1, 3)), ("cpu:0", (0, 0))]
)
def test_devices_by_name(text: str, expected: tuple[int, int]) -> None:
    assert parse_device(text) == expected


@pytest.mark.parametrize("text", ["", "gpu", "cuda:", "cuda:x", "cuda:-1", ":0", "cuda:1:2"])
def test_what_names_no_device_is_one_error(text: str) -> None:
    with pytest.raises(InvalidArgument):
        parse_device(text)
