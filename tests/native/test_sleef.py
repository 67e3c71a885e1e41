"""Sleef's vector functions, called as a plugin calls them, against numpy."""

from __future__ import annotations

import ctypes
import math
import os
from typing import Any

import numpy as np
import pytest

from aoti_abi.hosts.builtin import SLEEF

MACHINE = os.uname().machine
WIDTHS = {
    "f4": ("float", 16, ""), "d2": ("double", 16, ""),
    "f8": ("float", 32, "avx2"), "d4": ("double", 32, "avx2"),
    "f16": ("float", 64, "avx512f"), "d8": ("double", 64, "avx512f"),
}  # fmt: skip
vectorised = np.vectorize
REFERENCES: dict[str, Any] = {
    "acos": np.arccos, "acosh": np.arccosh, "asin": np.arcsin, "asinh": np.arcsinh, "atan": np.arctan,
    "atanh": np.arctanh, "cos": np.cos, "cosh": np.cosh, "erf": vectorised(math.erf, [float]),
    "erfc": vectorised(math.erfc, [float]), "exp": np.exp, "exp2": np.exp2, "expm1": np.expm1,
    "lgamma": vectorised(math.lgamma, [float]), "log": np.log, "log10": np.log10, "log1p": np.log1p,
    "log2": np.log2, "sin": np.sin, "sinh": np.sinh, "tan": np.tan, "tanh": np.tanh, "atan2": np.arctan2,
    "copysign": np.copysign, "fmod": np.fmod, "hypot": np.hypot, "nextafter": np.nextafter, "pow": np.power,
}  # fmt: skip
TWO = {"atan2", "copysign", "fmod", "hypot", "nextafter", "pow"}
ABOVE_ZERO = {"log", "log10", "log1p", "log2", "lgamma", "pow"}
FLAGS = set()
if os.path.exists("/proc/cpuinfo"):
    with open("/proc/cpuinfo") as file:
        FLAGS = set(next((line for line in file if line.startswith("flags")), "").split())


def inputs(name: str, dtype: str, count: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(5)
    x, y = rng.standard_normal(count) * 3, rng.standard_normal(count) * 2
    if name in ABOVE_ZERO:
        x = abs(x) + 0.01
    elif name in {"acos", "asin", "atanh"}:
        x = np.tanh(x) * 0.99
    elif name == "acosh":
        x = abs(x) + 1.01
    return x.astype(dtype), y.astype(dtype)


@pytest.fixture(scope="module")
def caller(compile_library: Any) -> Any:
    """Return ``call(symbol, vector, *arrays)``, which runs a vector function over whole arrays."""

    def call(shim: Any, symbol: str, vector: str, *arrays: np.ndarray) -> np.ndarray:
        element, size, isa = WIDTHS[vector]
        target = f'__attribute__((target("{isa}")))' if isa else ""
        source = f"""
            typedef {element} V __attribute__((vector_size({size})));
            {target} void one(V (*f)(V), long n, const V *x, V *o)
            {{ for (long i = 0; i < n; i++) o[i] = f(x[i]); }}
            {target} void two(V (*f)(V, V), long n, const V *x, const V *y, V *o)
            {{ for (long i = 0; i < n; i++) o[i] = f(x[i], y[i]); }}
        """
        library = ctypes.CDLL(compile_library(source, "-O1", name=f"{vector}.so"))
        lanes = size // arrays[0].itemsize

        def aligned(array: np.ndarray) -> np.ndarray:
            room = np.empty(array.nbytes + 64, np.uint8)
            start = -room.ctypes.data % 64
            out = room[start : start + array.nbytes].view(array.dtype)
            out[...] = array
            return out

        arguments = [aligned(array) for array in (*arrays, np.zeros_like(arrays[0]))]
        function = library.two if len(arrays) == 2 else library.one
        function(
            ctypes.cast(shim.library[symbol], ctypes.c_void_p),
            ctypes.c_long(arrays[0].size // lanes),
            *(ctypes.c_void_p(array.ctypes.data) for array in arguments),
        )
        return arguments[-1]

    return call


@pytest.mark.parametrize("symbol", sorted(SLEEF.get(MACHINE, ())))
def test_every_function_of_every_width(shim: Any, caller: Any, symbol: str) -> None:
    vector = next(v for v in sorted(WIDTHS, key=len, reverse=True) if v in symbol.split("_")[1][3:])
    name = symbol.split("_")[1].removesuffix(vector)
    element, _, isa = WIDTHS[vector]
    if isa and isa not in FLAGS:
        pytest.skip(f"hardware: no {isa} here")
    dtype = "float32" if element == "float" else "float64"
    x, y = inputs(name, dtype, 256)
    arrays = (x, y) if name in TWO else (x,)
    got = caller(shim, symbol, vector, *arrays)
    if name == "nextafter":
        np.testing.assert_array_equal(got, np.nextafter(x, y))
        return
    want = REFERENCES[name](*(array.astype("float64") for array in arrays))
    limit = 3e-6 if dtype == "float32" else 5e-15
    np.testing.assert_allclose(got, want, rtol=limit, atol=limit)


def test_special_values(shim: Any, caller: Any) -> None:
    x = np.tile(np.array([0, -0.0, np.inf, -np.inf, np.nan, 1e-42, 89, -200], "f4"), 2)
    with np.errstate(all="ignore"):
        for name in ("exp", "log", "tanh"):
            for vector, isa in (("f4", None), ("f8", "avx2"), ("f16", "avx512f")):
                symbol = f"Sleef_{name}{vector}_u10"
                if symbol in SLEEF.get(MACHINE, ()) and (isa is None or isa in FLAGS):
                    got = caller(shim, symbol, vector, x)
                    np.testing.assert_allclose(got, REFERENCES[name](x), rtol=1e-6)
