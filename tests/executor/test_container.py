"""`Container`: no call from Python can crash the process, and errors carry everyone's words."""

from __future__ import annotations

import contextlib
import gc
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from aoti_abi.errors import ExecutionFailed, InvalidArgument, InvalidState, NotSupported
from aoti_executor import Container
from aoti_loader import load

PLUGINS = Path(__file__).resolve().parents[2] / "fixtures" / "plugins"


@pytest.fixture
def mlp():
    with load(PLUGINS / "mlp.so", host="builtin") as plugin, Container(plugin) as container:
        yield container


def test_E1_N39_wrong_number_of_inputs_names_all_numbers(mlp):
    for inputs in ([], [np.zeros((8, 16), "f")] * 2):
        with pytest.raises(
            InvalidArgument, match=rf"takes 1 input and gives 1 output; {len(inputs)} were given"
        ):
            mlp.run(inputs)


def test_E1_wrong_number_of_bound_outputs_is_refused(mlp):
    from aoti_executor.arrays import view

    x = view(np.zeros((8, 16), "f"))
    with pytest.raises(InvalidArgument, match="1 and 3 were given"):
        mlp.bind([x], [None, None, None])


def test_run_matches(mlp, arrays):
    inputs, outputs = arrays(PLUGINS / "mlp.npz")
    np.testing.assert_allclose(mlp.run(inputs)[0].numpy(), outputs[0], rtol=1e-5, atol=1e-6)


def test_run_on_a_closed_container_is_refused(mlp):
    mlp.close()
    with pytest.raises(InvalidState, match="closed"):
        mlp.run([np.zeros((8, 16), "f")])
    with pytest.raises(InvalidState, match="closed"):
        mlp.call_spec()
    with pytest.raises(InvalidState, match="closed"):
        mlp.weights.update_constants({"a.weight": np.zeros((32, 16), "f")})


@pytest.mark.parametrize("num_models", [0, -1, 1.5, True, None, 1 << 40])
def test_number_of_models_is_checked(synthetic, num_models):
    with pytest.raises(InvalidArgument, match="num_models"):
        Container(synthetic(), num_models=num_models)


@pytest.mark.parametrize("device", ["gpu", "cpu:", "cpu:x", "", "cuda:-1", "cpu:1:2"])
def test_N26_device_text_is_checked(synthetic, device):
    with pytest.raises(InvalidArgument, match="no device"):
        Container(synthetic(), device=device)


def test_E6_refused_creation_has_the_plugins_words(synthetic):
    with pytest.raises(ExecutionFailed, match="no such thing") as caught:
        Container(synthetic(), device="cuda")
    assert caught.value.code == "Internal"
    assert caught.value.path.endswith("synthetic.so")


def test_creation_that_gives_no_handle_is_an_error(synthetic):
    with pytest.raises(ExecutionFailed, match="could not create"):
        Container(synthetic(CREATE_NULL=1))


@pytest.mark.parametrize(
    ("macros", "code", "words"),
    [
        ({"FAILS_BEFORE": '"it never began"'}, 7, "it never began"),
        ({"FAILS_AFTER": 1}, 8, "failed after replacing outputs"),
        ({"FAILS_HALFWAY": 1}, 9, "failed halfway"),
        ({"FAILS_PASSING": 1}, 10, "failed while passing"),
    ],
)
def test_E5_E6_N51_N52_failed_run_frees_every_handle_and_keeps_the_words(
    synthetic, live_tensors, macros, code, words
):
    with Container(synthetic(INPUTS=3, OUTPUTS=2, **macros)) as container:
        x = np.zeros(4)
        before = live_tensors()
        for _ in range(1000):
            with pytest.raises(ExecutionFailed) as caught:
                container.run([x, x, x])
        assert f"error {code}" in caught.value.message
        assert words in caught.value.cause
        del caught
        gc.collect()
        assert live_tensors() == before


def complaint_after(container, call):
    """Return the host's error after a call on a thread that had none: it notices a handle freed twice."""
    words = []

    def work():
        with contextlib.suppress(ExecutionFailed):
            call()
        words.append(container._handle.host.last_error())

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    return words[0]


def test_E5_input_that_stands_in_an_output_slot_is_freed_once(synthetic):
    with Container(synthetic(FAILS_PASSING=1)) as container:
        assert complaint_after(container, lambda: container.run([np.zeros(4)])) is None


def test_E5_successful_run_leaves_nothing_behind(synthetic, live_tensors):
    with Container(synthetic(INPUTS=3, OUTPUTS=3)) as container:
        before = live_tensors()
        for _ in range(100):
            container.run([np.zeros(4)] * 3)
        gc.collect()
        assert live_tensors() == before


def test_E5_N49_input_that_the_host_refuses_frees_those_made_before_it(synthetic, live_tensors):
    from aoti_executor.views import View

    with Container(synthetic(INPUTS=2)) as container:
        good = np.zeros(4)
        # complex32 is a type that the built-in host does not make tensors of, or a device it does not know.
        bad = View(good.ctypes.data, 6, (1 << 40, 1 << 40), (1 << 40, 1), 0, 0, readonly=False, owner=good)
        before = live_tensors()
        with pytest.raises(ExecutionFailed, match="cannot make a tensor of input 1"):
            container.run([good, bad])
        assert live_tensors() == before


def test_none_outputs(synthetic):
    with Container(synthetic(OUTPUTS=3, NONE_AT=1)) as container:
        results = container.run([np.arange(3.0)])
        assert [result is None for result in results] == [False, True, False]


def test_one_handle_in_every_slot_is_one_tensor_freed_once(synthetic, live_tensors):
    with Container(synthetic(OUTPUTS=3, SAME=1)) as container:
        before = live_tensors()
        first, second, third = container.run([np.arange(3.0)])
        assert first is second is third
        assert live_tensors() == before + 1
        del first, second, third
        assert live_tensors() == before


def test_one_handle_in_every_slot_of_a_bound_call_is_freed_once(synthetic, live_tensors):
    from aoti_executor.arrays import view
    from aoti_executor.native import CALL_OK

    with Container(synthetic(OUTPUTS=3, SAME=1)) as container:
        outs = [np.zeros(3) for _ in range(3)]
        frame = container.bind([view(np.arange(3.0))], [view(out) for out in outs])
        before = live_tensors()
        assert [frame.run() for _ in range(50)] == [CALL_OK] * 50
        assert live_tensors() == before
        assert complaint_after(container, frame.run) is None
        for out in outs:
            np.testing.assert_array_equal(out, np.arange(3.0))


def test_outputs_that_alias_an_input_keep_it_alive(synthetic):
    with Container(synthetic(OUTPUTS=2)) as container:
        results = container.run([np.arange(1000.0)])
    gc.collect()
    assert all(result.aliases_input for result in results)
    junk = [np.full(1000, -1.0) for _ in range(100)]
    np.testing.assert_array_equal(results[1].numpy(), np.arange(1000.0))
    del junk


def test_no_outputs(synthetic, live_tensors, exported):
    plugin = synthetic(OUTPUTS=0)
    with Container(plugin) as container:
        before = live_tensors()
        assert container.run([np.zeros(4)]) == []
        assert exported(plugin, "run_count")() == 1
        assert live_tensors() == before


def test_N36_no_inputs(synthetic):
    with Container(synthetic(INPUTS=0, OUTPUTS=1)) as container:
        assert container.run([]) == [None]


def test_E7_gil_is_released_and_runs_overlap(synthetic, exported):
    plugin = synthetic(SLEEPS=100000)
    with Container(plugin, num_models=4) as container:
        threads = [threading.Thread(target=container.run, args=([np.zeros(4)],)) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert exported(plugin, "most_at_once")() == 4


def test_E7_threads_share_one_model_with_equal_results(arrays):
    inputs, _ = arrays(PLUGINS / "mlp.npz")
    with load(PLUGINS / "mlp.so", host="builtin") as plugin, Container(plugin, num_models=3) as container:
        expected = container.run(inputs)[0].tobytes()
        wrong = []
        deadline = time.monotonic() + 2

        def work():
            while time.monotonic() < deadline and not wrong:
                for _ in range(50):
                    wrong.extend([1] * (container.run(inputs)[0].tobytes() != expected))

        threads = [threading.Thread(target=work) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not wrong


def test_D3_N57_close_twice_deletes_once(synthetic, exported):
    plugin = synthetic()
    container = Container(plugin)
    before = exported(plugin, "deleted_count")()
    container.close()
    container.close()
    del container
    gc.collect()
    assert exported(plugin, "deleted_count")() == before + 1


def test_D3_collected_container_is_deleted(synthetic, exported):
    plugin = synthetic()
    before = exported(plugin, "deleted_count")()
    Container(plugin)
    gc.collect()
    assert exported(plugin, "deleted_count")() == before + 1


def test_D3_failing_deletion_is_reported_once(synthetic):
    container = Container(synthetic(DELETE_FAILS=1))
    with pytest.raises(ExecutionFailed, match="would not go"):
        container.close()
    container.close()


def test_D3_close_waits_for_the_run_in_another_thread(synthetic, exported):
    plugin = synthetic(SLEEPS=200000)
    container = Container(plugin)
    results = []
    thread = threading.Thread(target=lambda: results.append(container.run([np.arange(3.0)])))
    thread.start()
    while not exported(plugin, "run_count")():
        time.sleep(0.001)
    container.close()
    thread.join()
    assert exported(plugin, "deleted_while_running_count")() == 0
    assert len(results) == 1
    np.testing.assert_array_equal(results[0][0].numpy(), np.arange(3.0))


def test_D3_plugin_closed_before_its_container_stays_until_it_is_gone(synthetic):
    plugin = synthetic()
    container = Container(plugin)
    assert plugin.close() is False
    container.run([np.zeros(3)])
    container.close()
    assert plugin.closed


def test_tensors_outlive_container_and_plugin(arrays):
    inputs, outputs = arrays(PLUGINS / "mlp.npz")
    with load(PLUGINS / "mlp.so", host="builtin") as plugin, Container(plugin) as container:
        result = container.run(inputs)[0]
    del container, plugin
    gc.collect()
    np.testing.assert_allclose(result.numpy(), outputs[0], rtol=1e-5, atol=1e-6)


def test_D3_exit_with_everything_open_is_clean(child):
    out = child(
        """
        import sys, threading, numpy as np
        from aoti_executor import Model
        x = np.zeros((8, 16), "f")
        kept = [Model(sys.argv[1], host="builtin") for _ in range(3)]
        results = [model(x) for model in kept]
        bound = kept[0].bind([x])
        def work():
            while True:
                kept[1](x)
        threading.Thread(target=work, daemon=True).start()
        kept[0].close()
        print("done")
        """,
        str(PLUGINS / "mlp.so"),
    )
    assert out == "done\n"


def test_D3_nothing_is_deleted_at_interpreter_exit(child, compile_library):
    """Threads may still run, and static objects of the plugin may be gone: the system frees it all."""
    path = compile_library(
        Path(__file__).with_name("sources").joinpath("plugin.c").read_text(),
        "-DDELETE_TELLS",
        name="plugin.so",
    )
    out = child(
        """
        import sys
        from aoti_executor import Container
        from aoti_loader import load
        plugin = load(sys.argv[1], host="builtin", warn=False)
        kept, dropped = Container(plugin), Container(plugin)
        del dropped
        print("done", flush=True)
        """,
        path,
    )
    assert out == "deleted\ndone\n"


def test_Q3_results_have_the_size_that_the_plugin_returned(synthetic):
    with Container(synthetic()) as container:
        for size in (3, 7, 0, 5):
            (result,) = container.run([np.arange(float(size))])
            np.testing.assert_array_equal(result.numpy(), np.arange(float(size)))


def test_shapes_without_end_do_not_fill_the_memory(synthetic):
    with Container(synthetic()) as container:
        for size in range(1, 500):
            container.run([np.zeros(size)])
        assert len(container._plans) <= 64


def test_read_only_input_is_copied_so_that_the_model_may_write(synthetic):
    x = np.arange(4.0)
    x.flags.writeable = False
    with Container(synthetic()) as container:
        result = container.run([x])[0]
        assert result.data_ptr != x.ctypes.data
        np.testing.assert_array_equal(result.numpy(), x)


def test_plugin_that_needs_pytorchs_dispatcher_is_refused_before_it_runs(synthetic, exported):
    plugin = synthetic(PROXY=1)
    with Container(plugin) as container, pytest.raises(NotSupported, match="dispatcher"):
        container.run([np.zeros(4)])
    assert exported(plugin, "run_count")() == 0


def test_E2_N40_input_on_another_device_is_refused(synthetic):
    from aoti_executor.views import View

    with Container(synthetic()) as container:
        value = View(4096, 6, (4,), (1,), 1, 0, readonly=False, owner=None)
        with pytest.raises(InvalidArgument, match=r"input 0 .*cuda:0.*runs on cpu"):
            container.run([value])
