"""`Weights`: what the container would take and crash on, or take and ignore, is refused."""

from __future__ import annotations

import ctypes
import gc
import weakref
from pathlib import Path

import numpy as np
import pytest

from aoti_abi.errors import ExecutionFailed, FallbackWarning, InvalidArgument, InvalidState, NotSupported
from aoti_executor import Container
from aoti_loader import load
from aoti_loader.hosts.builtin import find as find_builtin

ROOT = Path(__file__).resolve().parents[2]
PLUGINS, STRUCTURED = ROOT / "fixtures" / "plugins", ROOT / "fixtures" / "structured"
BLOB = PLUGINS / "mlp_blob.blob"


@pytest.fixture
def container(request):
    path = getattr(request, "param", PLUGINS / "mlp.so")
    with load(path, host="builtin", warn=False) as plugin, Container(plugin) as container:
        yield container


external = pytest.mark.parametrize("container", [PLUGINS / "mlp_blob.so"], indirect=True)
fold = pytest.mark.parametrize("container", [STRUCTURED / "fold.so"], indirect=True)
counter = pytest.mark.parametrize("container", [PLUGINS / "counter.so"], indirect=True)


def eager(weights, x):
    from math import erf

    hidden = x @ weights["a.weight"].T + weights["a.bias"]
    gelu = hidden * 0.5 * (1 + np.vectorize(erf)(hidden / np.sqrt(2)))
    return np.maximum(gelu @ weights["b.weight"].T + weights["b.bias"], 0)


def random_weights(container, seed):
    random = np.random.default_rng(seed)
    return {
        c.fqn: random.standard_normal(c.shape).astype("f")
        for c in container.weights.constants
        if not c.folded
    }


# ---- the blob ----


@external
def test_Q6_run_before_the_weights_are_bound_is_refused(container):
    with pytest.raises(InvalidState, match=r"'a\.weight', 'a\.bias', 'b\.weight' and 1 more") as caught:
        container.run([np.zeros((8, 16), "f")])
    assert "weights blob" in caught.value.hint


@external
def test_N31_blob_is_copied_and_the_run_matches(container, arrays):
    inputs, outputs = arrays(PLUGINS / "mlp_blob.npz")
    blob = bytearray(BLOB.read_bytes())
    container.weights.bind_blob(blob)
    blob[:] = bytes(len(blob))
    del blob
    np.testing.assert_allclose(container.run(inputs)[0].numpy(), outputs[0], rtol=1e-5, atol=1e-6)


@external
def test_second_blob_is_refused(container):
    container.weights.bind_blob(BLOB.read_bytes())
    with pytest.raises(InvalidState, match="only once"):
        container.weights.bind_blob(BLOB.read_bytes())


@external
def test_W1_blob_that_is_too_short_is_refused_before_it_is_read(container):
    size = BLOB.stat().st_size
    for short in (0, 1, size - 1):
        with pytest.raises(InvalidArgument, match=f"has {short} bytes, the plugin reads {size}"):
            container.weights.bind_blob(BLOB.read_bytes()[:short])
    container.weights.bind_blob(BLOB.read_bytes() + bytes(64))


@external
def test_blob_that_is_not_bytes_is_refused(container):
    for blob in (3, None, "text", memoryview(bytes(8192))[::2]):
        with pytest.raises(InvalidArgument, match="blob"):
            container.weights.bind_blob(blob)


def test_blob_for_a_plugin_with_its_weights_inside_is_refused(container):
    with pytest.raises(InvalidState, match="weights already"):
        container.weights.bind_blob(bytes(1 << 16))


@external
def test_all_weights_one_by_one_instead_of_a_blob(container):
    given = np.frombuffer(BLOB.read_bytes(), "f")
    values, at = {}, 0
    shapes = {"a.weight": (32, 16), "a.bias": (32,), "b.weight": (12, 32), "b.bias": (12,)}
    for constant in container.weights.constants:
        shape = shapes[constant.fqn]
        values[constant.fqn] = given[at : at + np.prod(shape)].reshape(shape)
        at += constant.nbytes // 4
    some = dict(list(values.items())[:2])
    container.weights.update_constants(some)
    with pytest.raises(InvalidState, match="there is no value for"):
        container.run([np.zeros((8, 16), "f")])
    container.weights.update_constants(values)
    x = np.random.default_rng(1).standard_normal((8, 16)).astype("f")
    np.testing.assert_allclose(container.run([x])[0].numpy(), eager(values, x), rtol=1e-4, atol=1e-5)


@external
def test_value_of_another_size_is_refused_where_the_shape_is_unknown(container):
    with pytest.raises(InvalidArgument, match="slot of 2048 bytes"):
        container.weights.update_constants({"a.weight": np.zeros((64, 16), "f")})


# ---- the table ----


def test_R10_reading_constants_of_a_real_plugin_uses_the_entries(container, monkeypatch):
    from aoti_executor import weights

    asked = []
    original = weights.extract_entries

    def note(function, *arguments, **options):
        asked.append(function.__name__)
        return original(function, *arguments, **options)

    monkeypatch.setattr(weights, "extract_entries", note)
    assert container.weights.read_constants()["a.weight"].shape == (32, 16)
    assert asked == ["AOTInductorModelContainerExtractConstantsMapEntries"]


def test_table_of_constants(container):
    table = {c.fqn: c for c in container.weights.constants}
    weight = table["a.weight"]
    assert (
        weight.name,
        weight.dtype_name,
        weight.shape,
        weight.strides,
        weight.nbytes,
        weight.type,
        weight.device,
    ) == (
        "a_weight",
        "float32",
        (32, 16),
        (16, 1),
        2048,
        "Parameter",
        "cpu",
    )


@fold
def test_folded_constants_are_marked(container):
    assert [c.folded for c in container.weights.constants].count(True) == 1


# ---- updates ----


@pytest.mark.parametrize("copy", [True, False])
def test_update_is_seen_by_the_next_run(container, copy):
    x = np.random.default_rng(0).standard_normal((8, 16)).astype("f")
    for seed in range(3):
        weights = random_weights(container, seed)
        container.weights.update_constants(weights, copy=copy)
        np.testing.assert_allclose(container.run([x])[0].numpy(), eager(weights, x), rtol=1e-3, atol=1e-4)


def test_N70_update_of_some_keeps_the_others(container):
    weights = {name: tensor.numpy() for name, tensor in container.weights.read_constants().items()}
    weights["a.bias"] = np.ones(32, "f")
    container.weights.update_constants({"a.bias": weights["a.bias"]})
    x = np.random.default_rng(0).standard_normal((8, 16)).astype("f")
    np.testing.assert_allclose(container.run([x])[0].numpy(), eager(weights, x), rtol=1e-4, atol=1e-5)


def test_update_from_views_copies_the_view_and_nothing_else(container):
    # A copying update takes the whole storage of what it is given: a view would overwrite its neighbours.
    big = np.random.default_rng(0).standard_normal((64, 32)).astype("f")
    before = {name: tensor.numpy().copy() for name, tensor in container.weights.read_constants().items()}
    container.weights.update_constants({"a.weight": big[10:42, 5:21]})
    after = container.weights.read_constants()
    np.testing.assert_array_equal(after["a.weight"].numpy(), big[10:42, 5:21])
    for name in ("a.bias", "b.weight", "b.bias"):
        np.testing.assert_array_equal(after[name].numpy(), before[name])


def test_L4_R11_names_are_fqns_and_unknown_ones_get_the_closest(container):
    with pytest.raises(InvalidArgument, match=r"no constant 'a_weight' \(did you mean 'a\.weight'\?\)"):
        container.weights.update_constants({"a_weight": np.zeros((32, 16), "f")})


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (np.zeros((32, 16)), "is float32, the value is float64"),
        (np.zeros((16, 32), "f"), r"shape \(32, 16\), the value \(16, 32\)"),
        (np.zeros(512, "f"), r"the value \(512,\)"),
        (3.0, "not an array"),
    ],
)
def test_value_that_does_not_fit_is_refused(container, value, message):
    before = container.weights.read_constants()["a.weight"].tobytes()
    with pytest.raises(InvalidArgument, match=message):
        container.weights.update_constants({"b.bias": np.zeros(12, "f"), "a.weight": value})
    assert container.weights.read_constants()["a.weight"].tobytes() == before


def test_values_in_place_are_kept_alive_and_seen_when_written(container):
    weights = random_weights(container, 0)
    reference = weakref.ref(weights["a.bias"])
    container.weights.update_constants(weights, copy=False)
    x = np.random.default_rng(0).standard_normal((8, 16)).astype("f")
    weights["a.bias"][:] = 1
    expected = eager(weights, x)
    del weights
    gc.collect()
    assert reference() is not None
    np.testing.assert_allclose(container.run([x])[0].numpy(), expected, rtol=1e-3, atol=1e-4)
    container.weights.update_constants({"a.bias": np.zeros(32, "f")}, copy=False)
    gc.collect()
    assert reference() is None


def test_replaced_values_in_place_do_not_pile_up(container, live_tensors):
    # The plugin keeps a reference to each tensor it was given that way, for ever: it must not own memory.
    container.weights.update_constants({"a.weight": np.zeros((32, 16), "f")}, copy=False)
    library = ctypes.CDLL(find_builtin())
    stats = (ctypes.c_int64 * 3)()
    library.aoti_shim_get_stats(ctypes.byref(stats))
    before = stats[2]
    for _ in range(100):
        container.weights.update_constants({"a.weight": np.zeros((32, 16), "f")}, copy=False)
    library.aoti_shim_get_stats(ctypes.byref(stats))
    assert stats[2] == before


@fold
def test_strides_of_a_constant_are_kept(container):
    # The plugin's code reads w2 column by column; a row-major value would give wrong numbers silently.
    w2 = np.random.default_rng(0).standard_normal((3, 4)).astype("f")
    with pytest.raises(InvalidArgument, match=r"strides \(1, 3\), the value has \(4, 1\)"):
        container.weights.update_constants({"w2": w2}, copy=False)
    container.weights.update_constants({"w2": w2})
    x = np.ones((3, 4), "f")
    base = np.arange(12, dtype="f").reshape(3, 4)
    np.testing.assert_allclose(container.run([x])[0].numpy(), x * (base + w2 * 2) + base / 8, rtol=1e-6)


@fold
def test_folded_constant_cannot_be_given(container):
    folded = next(c.fqn for c in container.weights.constants if c.folded)
    with pytest.raises(InvalidArgument, match="no constant"):
        container.weights.update_constants({folded: np.zeros((3, 4), "f")})


@fold
def test_fold_now(container, arrays):
    inputs, outputs = arrays(STRUCTURED / "fold.npz")
    container.weights.fold()
    np.testing.assert_allclose(container.run(inputs)[0].numpy(), outputs[0], rtol=1e-6)


def test_fold_without_folded_constants_does_nothing_and_says_nothing(container, capfd):
    container.weights.fold()
    assert capfd.readouterr().err == ""


# ---- two sets ----


def test_swap_to_a_set_that_was_never_filled_is_refused(container):
    with pytest.raises(InvalidState, match="inactive constants cannot be swapped in"):
        container.weights.swap()


def test_partial_update_of_the_inactive_set_takes_the_rest_from_the_active(container):
    x = np.random.default_rng(0).standard_normal((8, 16)).astype("f")
    old = {name: tensor.numpy() for name, tensor in container.weights.read_constants().items()}
    new = {**old, "b.bias": np.full(12, 5, "f")}
    container.weights.update_constants({"b.bias": new["b.bias"]}, inactive=True)
    np.testing.assert_allclose(container.run([x])[0].numpy(), eager(old, x), rtol=1e-4, atol=1e-5)
    container.weights.swap()
    np.testing.assert_allclose(container.run([x])[0].numpy(), eager(new, x), rtol=1e-4, atol=1e-5)
    container.weights.swap()
    np.testing.assert_allclose(container.run([x])[0].numpy(), eager(old, x), rtol=1e-4, atol=1e-5)


def test_reading_a_freed_set_is_refused(container):
    container.weights.update_constants({"b.bias": np.zeros(12, "f")}, inactive=True)
    assert set(container.weights.read_constants(inactive=True)) == {
        "a.weight",
        "a.bias",
        "b.weight",
        "b.bias",
    }
    container.weights.free_inactive()
    container.weights.free_inactive()
    with pytest.raises(InvalidState, match="freed"):
        container.weights.read_constants(inactive=True)
    with pytest.raises(InvalidState, match="swapped in"):
        container.weights.swap()
    container.weights.update_constants({"b.bias": np.full(12, 7, "f")}, inactive=True)
    np.testing.assert_array_equal(
        container.weights.read_constants(inactive=True)["b.bias"].numpy(), np.full(12, 7, "f")
    )
    container.weights.swap()
    container.run([np.zeros((8, 16), "f")])


@fold
def test_fold_of_the_inactive_set(container):
    container.weights.update_constants({"w1": np.zeros((3, 4), "f")}, inactive=True)
    container.weights.fold(inactive=True)
    container.weights.swap()
    x = np.ones((3, 4), "f")
    base = np.arange(12, dtype="f").reshape(3, 4)
    w2 = np.arange(12, dtype="f").reshape(4, 3).T
    np.testing.assert_allclose(container.run([x])[0].numpy(), x * w2 * 2 + base / 8, rtol=1e-6)


def test_failed_folding_refuses_every_later_run(synthetic, exported):
    # A folding that throws leaves a real container without a model, so that a run would wait for ever.
    plugin = synthetic(CONSTANTS=1, FOLDING_FAILS=1)
    with Container(plugin) as container:
        container.weights.update_constants({"a.b": np.zeros(4, "f"), "c": np.zeros(4, "f")})
        with pytest.raises(ExecutionFailed, match="no folding today"):
            container.run([np.zeros(4)])
        runs = exported(plugin, "run_count")()
        with pytest.raises(InvalidState, match="can't be used any more"):
            container.run([np.zeros(4)])
        assert exported(plugin, "run_count")() == runs


def test_folding_happens_once_per_change(synthetic, exported):
    plugin = synthetic(CONSTANTS=1)
    with Container(plugin) as container:
        values = {"a.b": np.zeros(4, "f"), "c": np.zeros(4, "f")}
        container.weights.update_constants(values)
        before = exported(plugin, "fold_count")()
        for _ in range(5):
            container.run([np.zeros(4)])
        assert exported(plugin, "fold_count")() == before + 1
        container.weights.update_constants(values)
        container.run([np.zeros(4)])
        assert exported(plugin, "fold_count")() == before + 2


# ---- what a plugin cannot do ----


def test_L8_N2_old_plugin_says_what_it_lacks(synthetic):
    with Container(synthetic()) as container:
        with pytest.warns(FallbackWarning, match="list-constants"):
            assert container.weights.constants == ()
        with pytest.warns(FallbackWarning), pytest.raises(NotSupported, match="cannot name its constants"):
            container.weights.update_constants({"a": np.zeros(4)})
        with pytest.warns(FallbackWarning, match="external-weights"), pytest.raises(NotSupported):
            container.weights.bind_blob(b"")
        with pytest.warns(FallbackWarning, match="read-constants"), pytest.raises(NotSupported):
            container.weights.read_constants()
        with pytest.warns(FallbackWarning, match="swap-constants"), pytest.raises(NotSupported):
            container.weights.free_inactive()


def test_L8_plugin_that_only_reads_in_place_is_given_memory_of_its_own(synthetic, exported):
    plugin = synthetic(CONSTANTS=1, MANAGED_ONLY=1)
    value = exported(plugin, "managed_value")
    value.restype = ctypes.c_float
    with Container(plugin) as container:
        given = np.full(4, 3, "f")
        with pytest.warns(FallbackWarning, match="update-constants"):
            container.weights.update_constants({"a.b": given, "c": given})
        given[:] = 9
        gc.collect()
        assert value(0) == 3
        container.weights.update_constants({"a.b": given, "c": given}, copy=False)
        assert value(0) == 9
        with pytest.raises(InvalidArgument, match=r"no value is given for 'c'"):
            container.weights.update_constants({"a.b": given}, inactive=True)
        container.run([np.zeros(4)])


def test_opaque_constants_are_listed_without_a_shape(container, monkeypatch):
    """oneDNN's packed weights have no strides to describe."""
    monkeypatch.setattr(type(container._handle.host), "describe", _refuse)
    with Container(container.plugin) as other:
        assert [constant.shape for constant in other.weights.constants] == [None] * 4
        assert not other.weights.unbound


def _refuse(*_):
    raise ExecutionFailed("no strides")


# ---- state that runs change ----


@counter
def test_mutated_buffers_live_in_the_container(container, arrays):
    inputs, outputs = arrays(PLUGINS / "counter.npz")
    with Container(container.plugin) as other:
        first = container.run(inputs)[0].numpy()
        np.testing.assert_allclose(first, outputs[0], rtol=1e-5)
        second = container.run(inputs)[0].numpy()
        assert not np.allclose(first, second)
        np.testing.assert_allclose(other.run(inputs)[0].numpy(), outputs[0], rtol=1e-5)
    total = container.weights.read_constants()["total"].numpy()
    np.testing.assert_allclose(total, 2 * inputs[0].sum(0), rtol=1e-5)
    container.weights.update_constants({"total": np.zeros(4, "f")})
    np.testing.assert_allclose(container.run(inputs)[0].numpy(), outputs[0], rtol=1e-5)


def test_updates_wait_for_runs_and_runs_see_whole_updates(container):
    import threading

    x = np.random.default_rng(0).standard_normal((8, 16)).astype("f")
    versions = [random_weights(container, seed) for seed in range(2)]
    container.weights.update_constants(versions[0])
    expected = set()
    for weights in versions:
        container.weights.update_constants(weights)
        expected.add(container.run([x])[0].tobytes())
    stop, wrong = threading.Event(), []

    def run():
        while not stop.is_set():
            if container.run([x])[0].tobytes() not in expected:
                wrong.append(1)

    threads = [threading.Thread(target=run) for _ in range(3)]
    for thread in threads:
        thread.start()
    for turn in range(200):
        container.weights.update_constants(versions[turn % 2])
    stop.set()
    for thread in threads:
        thread.join()
    assert not wrong
