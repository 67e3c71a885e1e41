"""Operators on the CPU: values and strides against PyTorch's own shims."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

some = settings(deadline=None, max_examples=60)
FLOATS = ["float32", "float64", "bfloat16", "float16"]
TOLERANCE = {"float32": 2e-5, "float64": 1e-12, "bfloat16": 2e-2, "float16": 4e-3}
LAYOUTS = st.sampled_from(["plain", "transposed", "sliced", "padded"])


def numpy_type(shim: Any, name: str) -> np.dtype:
    return shim.empty([1], dtype=name).dtype


def laid_out(shape: tuple[int, ...], dtype: np.dtype, layout: str, seed: int) -> np.ndarray:
    """Random values in a matrix, or a batch of them, that lies in memory in one of several ways."""
    rng = np.random.default_rng(seed)
    whole = list(shape)
    if layout == "transposed":
        whole[-2], whole[-1] = whole[-1], whole[-2]
    elif layout == "sliced":
        whole[-1] *= 2
    elif layout == "padded":
        whole[-1] += 3
    drawn = rng.integers(-9, 9, whole) if dtype.kind in "iu" else rng.standard_normal(whole)
    array = drawn.astype(dtype)
    if layout == "transposed":
        return array.swapaxes(-1, -2)
    return array[..., ::2] if layout == "sliced" else array[..., : shape[-1]]


def assert_close(ours: np.ndarray, theirs: np.ndarray, dtype: str) -> None:
    if dtype in TOLERANCE:
        limit = TOLERANCE[dtype]
        np.testing.assert_allclose(
            ours.astype("float64"), theirs.astype("float64"), rtol=limit, atol=limit * 4
        )
    else:
        np.testing.assert_array_equal(ours, theirs)


def assert_equal(ours: np.ndarray, theirs: np.ndarray) -> None:
    assert ours.dtype == theirs.dtype
    kind = "float64" if ours.dtype.kind in "fV" else ours.dtype  # bfloat16 NaNs don't compare as such
    np.testing.assert_array_equal(ours.astype(kind), theirs.astype(kind))


@pytest.fixture(scope="module", params=["loop", "blas32", "blas64"])
def with_blas(request: pytest.FixtureRequest, shim: Any) -> Any:
    """Run with the built-in loop, and with OpenBLAS with integers of 32 and of 64 bits where installed."""
    if request.param == "loop":
        assert shim.library.aoti_shim_set_blas(None, None, 32) == 0
        yield shim
        return
    import glob
    import importlib
    import os

    if request.param == "blas32":
        module, pattern, symbol, bits = "scipy_openblas32", "lib/libscipy_openblas*.so*", "scipy_cblas_{}", 32
    else:
        module, pattern, symbol, bits = (
            "numpy",
            "../numpy.libs/libscipy_openblas64_*",
            "scipy_cblas_{}64_",
            64,
        )
    folder = os.path.dirname(importlib.import_module(module).__file__)
    found = glob.glob(os.path.join(folder, pattern))
    assert found, f"no BLAS in {module}"
    blas = ctypes.CDLL(found[0])
    pointers = [ctypes.cast(blas[symbol.format(name)], ctypes.c_void_p) for name in ("sgemm", "dgemm")]
    assert shim.library.aoti_shim_set_blas(*pointers, bits) == 0
    yield shim
    assert shim.library.aoti_shim_set_blas(None, None, 32) == 0


@some
@given(
    st.sampled_from([*FLOATS, "int64", "int32", "uint8"]),
    st.tuples(*[st.sampled_from([0, 1, 2, 5, 17])] * 2, st.sampled_from([0, 1, 3, 40])),
    st.tuples(LAYOUTS, LAYOUTS, LAYOUTS),
    st.sampled_from([(1.0, 1.0), (0.0, 1.0), (2.0, -3.0), (1.0, 0.0)]),
    st.sampled_from(["full", "row", "column", "scalar", "vector"]),
)
def test_addmm(  # noqa: PLR0917 - one argument for each drawn value
    with_blas: Any, torch_host: Any, dtype: str, sizes: Any, layouts: Any, scales: Any, addend: str
) -> None:
    m, n, k = sizes
    if dtype not in FLOATS:
        k = max(k, 1)  # PyTorch refuses an empty sum of integers, and a negative scale of unsigned ones
        scales = tuple(abs(scale) for scale in scales)
    kind = numpy_type(with_blas, dtype)
    left, right = laid_out((m, k), kind, layouts[0], 1), laid_out((k, n), kind, layouts[1], 2)
    shape = {"full": (m, n), "row": (1, n), "column": (m, 1), "scalar": (1, 1), "vector": (n,)}[addend]
    self = np.asarray(laid_out((1, *shape), kind, "plain", 3)[0])
    results = []
    for host in (with_blas, torch_host):
        out = np.full((m, n), 77, kind) if layouts[2] == "plain" else laid_out((m, n), kind, layouts[2], 4)
        operands = [host.tensor(array) for array in (out, self, left, right)]
        host.call("aoti_torch_cpu_addmm_out", *operands, *scales)
        results.append(out)
    assert_close(results[0], results[1], dtype)


@some
@given(
    st.sampled_from(FLOATS),
    st.tuples(*[st.sampled_from([0, 1, 2, 9])] * 4),
    st.tuples(LAYOUTS, LAYOUTS, LAYOUTS),
    st.sampled_from([(1.0, 1.0), (0.0, 1.0), (0.5, 2.0)]),
)
def test_bmm_and_baddbmm(  # noqa: PLR0917 - one argument for each drawn value
    with_blas: Any, torch_host: Any, dtype: str, sizes: Any, layouts: Any, scales: Any
) -> None:
    b, m, n, k = sizes
    kind = numpy_type(with_blas, dtype)
    left, right = laid_out((b, m, k), kind, layouts[0], 1), laid_out((b, k, n), kind, layouts[1], 2)
    self = laid_out((1, m, n), kind, layouts[2], 3)
    for name, more, tail in (("bmm_out", [], ()), ("baddbmm_out", [self], scales)):
        results = []
        for host in (with_blas, torch_host):
            out = laid_out((b, m, n), kind, layouts[2], 4)
            host.call(f"aoti_torch_cpu_{name}", *map(host.tensor, (out, *more, left, right)), *tail)
            results.append(out)
        assert_close(results[0], results[1], dtype)


def test_mm_and_its_deprecated_names(with_blas: Any) -> None:
    left, right = (
        laid_out((70, 300), np.dtype("f4"), "plain", 1),
        laid_out((300, 130), np.dtype("f4"), "plain", 2),
    )
    for name in ("aoti_torch_cpu_mm_out", "aoti_torch_mm_out"):
        out = np.zeros((70, 130), "f4")
        with_blas.call(name, *map(with_blas.tensor, (out, left, right)))
        np.testing.assert_allclose(out, left @ right, rtol=1e-4, atol=1e-4)


def test_mm_plus_mm(with_blas: Any) -> None:
    a, b, c, d = (
        laid_out((6, 6), np.dtype("f8"), layout, i) for i, layout in enumerate(["plain", "transposed"] * 2)
    )
    out = np.zeros((6, 6))
    with_blas.call("aoti_torch__mm_plus_mm_out", *map(with_blas.tensor, (out, a, b, c, d)))
    np.testing.assert_allclose(out, a @ b + c @ d)


def test_a_broadcast_batch_is_an_operand_like_any_other(with_blas: Any) -> None:
    left = np.broadcast_to(laid_out((1, 3, 4), np.dtype("f4"), "plain", 1), (5, 3, 4))
    right, out = laid_out((5, 4, 2), np.dtype("f4"), "plain", 2), np.zeros((5, 3, 2), "f4")
    with_blas.call("aoti_torch_cpu_bmm_out", *map(with_blas.tensor, (out, left, right)))
    np.testing.assert_allclose(out, left @ right, rtol=1e-5, atol=1e-5)


def test_with_beta_0_the_addend_is_not_read(with_blas: Any) -> None:
    nan, out = np.full((2, 2), np.nan, "f4"), np.full((2, 2), np.nan, "f4")
    eye = np.eye(2, dtype="f4")
    with_blas.call("aoti_torch_cpu_addmm_out", *map(with_blas.tensor, (out, nan, eye, eye)), 0.0, 1.0)
    np.testing.assert_array_equal(out, eye)


def test_products_that_cannot_be(shim: Any, shim_error: type) -> None:
    a = shim.empty([2, 3])
    with pytest.raises(shim_error, match=r"the sizes \(2, 3\) and \(2, 3\)"):
        shim.call("aoti_torch_cpu_mm_out", shim.empty([2, 3]), a, a)
    with pytest.raises(shim_error, match="is float64, the output is float32"):
        shim.call("aoti_torch_cpu_mm_out", shim.empty([2, 2]), a, shim.empty([3, 2], dtype="float64"))
    with pytest.raises(shim_error, match="dimensions"):
        shim.call("aoti_torch_cpu_mm_out", shim.empty([2, 2]), a, shim.empty([3]))
    with pytest.raises(shim_error, match="no matrix product of bool"):
        shim.call("aoti_torch_cpu_mm_out", *[shim.empty([2, 2], dtype="bool")] * 3)
    with pytest.raises(shim_error, match="does not broadcast"):
        shim.call(
            "aoti_torch_cpu_addmm_out",
            shim.empty([2, 2]),
            shim.empty([3, 3]),
            *[shim.empty([2, 2])] * 2,
            1,
            1,
        )
    assert shim.library.aoti_shim_set_blas(None, None, 16) != 0


# --- convolution --------------------------------------------------------------------------------------------


def convolve(host: Any, x: Any, w: Any, bias: Any, transposed: bool, groups: int, **given: list[int]) -> Any:  # noqa: PLR0917 - one argument for each drawn value
    parameters = [
        item
        for name in ("stride", "padding", "dilation")
        for item in (host.int64s(given[name]), len(given[name]))
    ]
    extra = given.get("output_padding", [0])
    held = host.tensor(bias) if bias is not None else None
    return host.make(
        "aoti_torch_cpu_convolution",
        host.tensor(x),
        host.tensor(w),
        host.handle(held),
        *parameters,
        int(transposed),
        host.int64s(extra),
        len(extra),
        groups,
    )


@settings(deadline=None, max_examples=120)
@given(st.data())
def test_convolution(with_blas: Any, torch_host: Any, data: st.DataObject) -> None:
    dtype = data.draw(st.sampled_from(["float32", "float32", "float64", "bfloat16"]))
    kind, dims = numpy_type(with_blas, dtype), data.draw(st.integers(1, 3))
    groups = data.draw(st.sampled_from([1, 1, 2, 3]))
    each_in, each_out = data.draw(st.integers(1, 3)), data.draw(st.integers(1, 3))
    transposed = data.draw(st.booleans())
    small = st.lists(st.integers(1, 2), min_size=dims, max_size=dims)
    stride, dilation = data.draw(small), data.draw(small)
    padding = data.draw(st.lists(st.integers(0, 2), min_size=dims, max_size=dims))
    kernel = data.draw(st.lists(st.integers(1, 3), min_size=dims, max_size=dims))
    image = [data.draw(st.integers(6, 8)) for _ in range(dims)]
    batch = data.draw(st.integers(1, 2))
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    first, second = (each_in * groups, each_out) if transposed else (each_out * groups, each_in)
    x = rng.standard_normal((batch, each_in * groups, *image)).astype(kind)
    w = rng.standard_normal((first, second, *kernel)).astype(kind)
    if data.draw(st.booleans()):  # channels innermost
        x = np.moveaxis(np.ascontiguousarray(np.moveaxis(x, 1, -1)), -1, 1)
    bias = rng.standard_normal(each_out * groups).astype(kind) if data.draw(st.booleans()) else None

    def run(host: Any, *operands: np.ndarray | None) -> Any:
        return convolve(host, *operands, transposed, groups, stride=stride, padding=padding,
                        dilation=dilation, output_padding=[0] * dims)  # fmt: skip

    results = [run(host, x, w, bias) for host in (with_blas, torch_host)]
    assert results[0].sizes == results[1].sizes
    if dtype == "bfloat16":
        # PyTorch sums in bfloat16 on processors without AVX-512; the exact sums are the better reference.
        wide = (array if array is None else array.astype("float32") for array in (x, w, bias))
        exact = run(torch_host, *wide).numpy()
        np.testing.assert_allclose(results[0].numpy().astype("float32"), exact, rtol=2**-8, atol=1e-5)
    else:
        assert_close(results[0].numpy(), results[1].numpy(), dtype)
    if dims == 2:
        assert results[0].strides == results[1].strides


@pytest.mark.parametrize(
    ("x", "w", "given_", "text"),
    [
        ((1, 3, 8, 8), (4, 2, 3, 3), {}, "input channels"),
        ((1, 3, 2, 2), (4, 3, 3, 3), {}, "does not fit"),
        ((1, 3, 8, 8), (4, 3, 3, 3), {"stride": [0]}, "'stride' is 0"),
        ((1, 3, 8, 8), (4, 3, 3, 3), {"padding": [-1]}, "'padding' is -1"),
        ((1, 3, 8, 8), (4, 3, 3, 3), {"dilation": [1, 1, 1]}, "'dilation' has 3 values"),
        ((1, 3, 8, 8), (4, 3, 3), {}, "3-d weight"),
        ((1, 3), (4, 3), {}, "2-d input"),
        ((1, 4, 8), (4, 4, 3), {"groups": 0}, "0 groups"),
        ((1, 4, 8), (4, 4, 3), {"bias": (3,)}, "the bias is not one value for each of 4"),
    ],
)
def test_convolutions_that_cannot_be(  # noqa: PLR0917 - one argument for each drawn value
    shim: Any, shim_error: type, x: Any, w: Any, given_: dict[str, Any], text: str
) -> None:
    call = {"stride": [1], "padding": [0], "dilation": [1], "groups": 1, **given_}
    bias = np.zeros(call.pop("bias"), "f4") if "bias" in call else None
    with pytest.raises(shim_error, match=text):
        convolve(shim, np.zeros(x, "f4"), np.zeros(w, "f4"), bias, False, **call)


# --- sort, topk, cumsum, nonzero ----------------------------------------------------------------------------


@st.composite
def lines(draw: st.DrawFn) -> tuple[str, list[int], list[int], int]:
    dtype = draw(
        st.sampled_from(["float32", "float64", "int64", "uint8", "int8", "bool", "bfloat16", "float16"])
    )
    shape = draw(st.lists(st.sampled_from([0, 1, 2, 7, 40]), min_size=0, max_size=3))
    return dtype, shape, draw(st.permutations(range(len(shape)))), draw(st.integers(0, 999))


def with_ties(shim: Any, drawn: Any) -> np.ndarray:
    dtype, shape, order, seed = drawn
    rng = np.random.default_rng(seed)
    kind = numpy_type(shim, dtype)
    array = rng.integers(-4 if kind.kind not in "ub" else 0, 5 if kind.kind != "b" else 2, shape).astype(kind)
    if dtype in FLOATS and array.size:
        flat = array.reshape(-1)
        flat[rng.integers(0, flat.size)] = np.nan
        flat[rng.integers(0, flat.size)] = -np.inf
        flat[rng.integers(0, flat.size)] = -0.0
    return np.asarray(array.transpose(order)) if shape else np.asarray(array)


@settings(deadline=None, max_examples=100)
@given(lines(), st.booleans(), st.integers(-3, 2))
def test_sort(shim: Any, torch_host: Any, drawn: Any, descending: bool, dim: int) -> None:
    array = with_ties(shim, drawn)
    bound = max(array.ndim, 1)
    if not -bound <= dim < bound:
        dim = -1
    stable = ctypes.byref(ctypes.c_int32(1))
    ours, theirs = (
        host.make("aoti_torch_cpu_sort_stable", host.tensor(array), stable, dim, int(descending), results=2)
        for host in (shim, torch_host)
    )
    for mine, reference in zip(ours, theirs, strict=True):
        assert_equal(mine.numpy(), reference.numpy())
        assert mine.strides == reference.strides
    plain = shim.make("aoti_torch_cpu_sort", shim.tensor(array), dim, int(descending), results=2)
    np.testing.assert_array_equal(plain[1].numpy(), ours[1].numpy())


@some
@given(lines(), st.booleans(), st.integers(0, 40))
def test_topk(shim: Any, torch_host: Any, drawn: Any, largest: bool, k: int) -> None:
    array = with_ties(shim, (drawn[0] if drawn[0] != "bool" else "uint8", *drawn[1:]))
    k = min(k, array.shape[-1] if array.ndim else 1)
    ours, theirs = (
        host.make("aoti_torch_cpu_topk", host.tensor(array), k, -1, int(largest), 1, results=2)
        for host in (shim, torch_host)
    )
    assert_equal(ours[0].numpy(), theirs[0].numpy())
    assert ours[0].strides == theirs[0].strides
    if array.ndim:  # among equals, which index is up to the host
        picked = np.take_along_axis(array, ours[1].numpy(), -1)
        assert_equal(picked, ours[0].numpy())


def test_topk_and_sort_refuse(shim: Any, shim_error: type) -> None:
    with pytest.raises(shim_error, match="k = 5 is outside 0 to 4"):
        shim.make("aoti_torch_cpu_topk", shim.empty([4]), 5, 0, 1, 1, results=2)
    with pytest.raises(shim_error, match="no order"):
        shim.make("aoti_torch_cpu_sort", shim.empty([4], dtype="complex64"), 0, 0, results=2)
    with pytest.raises(shim_error, match="dimension 1 is outside"):
        shim.make("aoti_torch_cpu_sort", shim.empty([4]), 1, 0, results=2)


@some
@given(
    lines(), st.sampled_from([None, "float64", "float32", "int32"]), st.sampled_from(["cumsum", "cumprod"])
)
def test_running_sums(shim: Any, torch_host: Any, drawn: Any, to: str | None, name: str) -> None:
    array = with_ties(shim, drawn)
    if to == "int32" and array.dtype.kind not in "iub":
        array = np.asarray(np.nan_to_num(array.astype("f4"), neginf=0))
    code = None if to is None else ctypes.byref(ctypes.c_int32(shim.function("aoti_torch_dtype_" + to)()))
    ours, theirs = (
        host.make("aoti_torch_cpu_" + name, host.tensor(array), -1, code) for host in (shim, torch_host)
    )
    assert ours.dtype == theirs.dtype
    assert ours.strides == theirs.strides
    assert_close(ours.numpy(), theirs.numpy(), str(ours.dtype) if ours.dtype.kind != "V" else "bfloat16")


@some
@given(lines())
def test_nonzero(shim: Any, torch_host: Any, drawn: Any) -> None:
    array = with_ties(shim, drawn)
    ours, theirs = (host.make("aoti_torch_cpu_nonzero", host.tensor(array)) for host in (shim, torch_host))
    np.testing.assert_array_equal(ours.numpy(), theirs.numpy())
    assert ours.strides == theirs.strides


# --- attention ----------------------------------------------------------------------------------------------


@some
@given(st.data())
def test_attention(with_blas: Any, torch_host: Any, data: st.DataObject) -> None:
    dtype = data.draw(st.sampled_from(["float32", "float32", "float64", "bfloat16"]))
    kind = numpy_type(with_blas, dtype)
    b, h, e = (
        data.draw(st.integers(1, 2)),
        data.draw(st.integers(1, 3)),
        data.draw(st.sampled_from([1, 8, 16])),
    )
    q_len, k_len = data.draw(st.sampled_from([1, 5, 70])), data.draw(st.sampled_from([1, 6, 90]))
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    causal = data.draw(st.booleans())
    # As a model gives them: (batch, length, heads, depth), transposed.
    shared = data.draw(st.sampled_from([1, 1, 2, 3]))  # by how many heads of the query a key is used
    q, k, v = (
        rng.standard_normal((b, length, heads, e)).astype(kind).swapaxes(1, 2)
        for length, heads in ((q_len, h * shared), (k_len, h), (k_len, h))
    )
    mask = None
    if not causal and data.draw(st.booleans()):
        mask = rng.standard_normal((b, 1, q_len, k_len)).astype(kind)
        mask[..., : k_len // 2] = -np.inf
    scale = data.draw(st.sampled_from([None, 0.25]))
    results = []
    for host in (with_blas, torch_host):
        held = host.tensor(mask) if mask is not None else None
        results.append(
            host.make(
                "aoti_torch_cpu__scaled_dot_product_flash_attention_for_cpu",
                *map(host.tensor, (q, k, v)),
                0.0,
                int(causal),
                host.handle(held),
                None if scale is None else ctypes.byref(ctypes.c_double(scale)),
                results=2,
            )
        )
    for mine, reference in zip(*results, strict=True):
        assert (mine.sizes, mine.strides, mine.dtype) == (reference.sizes, reference.strides, reference.dtype)
    assert_close(results[0][0].numpy(), results[1][0].numpy(), dtype)
    np.testing.assert_allclose(results[0][1].numpy(), results[1][1].numpy(), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("heads", [(4, 3, 3), (4, 2, 4), (2, 4, 4), (2, 0, 0)])
def test_attention_of_heads_that_share_no_whole_number_is_refused(with_blas: Any, heads: Any) -> None:
    held = [with_blas.tensor(np.ones((1, count, 5, 8), "f")) for count in heads]
    with pytest.raises(Exception, match=r"heads of the query|don't fit"):
        with_blas.make(
            "aoti_torch_cpu__scaled_dot_product_flash_attention_for_cpu",
            *held,
            0.0,
            0,
            None,
            None,
            results=2,
        )
