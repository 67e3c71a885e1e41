"""`Model`: plugins, packages and programs as Python callables."""

from __future__ import annotations

import gc
import os
import shutil
import threading
import weakref
import zipfile
from array import array
from pathlib import Path

import numpy as np
import pytest

from aoti_abi.errors import AotiError, InvalidArgument, InvalidState, NotFound
from aoti_executor import Model

ROOT = Path(__file__).resolve().parents[2]
PLUGINS, STRUCTURED = ROOT / "fixtures" / "plugins", ROOT / "fixtures" / "structured"
PROGRAMS = ROOT / "fixtures" / "artifacts"
ALL = sorted([*PLUGINS.glob("*.so"), STRUCTURED / "tree.so", STRUCTURED / "fold.so"])


def open_model(path, **options):
    return Model(path, host="builtin", warn=False, **options)


@pytest.mark.parametrize("path", ALL, ids=lambda path: path.stem)
def test_matches_on_the_builtin_host(path, arrays):
    inputs, outputs = arrays(path.with_suffix(".npz"))
    with open_model(path) as model:
        results = model.run(inputs)
        for index, expected in outputs.items():
            got = results[index].numpy().astype(expected.dtype)
            np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.torch
def test_matches_on_libtorch_without_importing_torch(child):
    out = child(
        """
        import sys, numpy as np
        from aoti_executor import Model
        for path in sys.argv[1:]:
            data = np.load(path.removesuffix(".so") + ".npz")
            with data as content, Model(path, host="torch", warn=False) as model:
                inputs = [content[f"in{i}"] for i in range(model.container.num_inputs)]
                results = model.run(inputs)
                for i, result in enumerate(results):
                    if result is not None:
                        expected = content[f"out{i}"]
                        np.testing.assert_allclose(
                            result.numpy().astype(expected.dtype), expected, rtol=1e-5, atol=1e-6
                        )
                print(model.plugin.host.name)
        assert "torch" not in sys.modules
        """,
        *map(str, ALL),
    )
    assert out.split() == ["torch"] * len(ALL)


def test_without_numpy_or_torch_installed(child):
    """The core needs neither: buffers in, bytes out."""
    out = child(
        """
        import os, sys
        sys.path[:0] = os.environ["TOOLKIT"].split(os.pathsep)
        from array import array
        from aoti_executor import Model
        with Model(sys.argv[1]) as model:
            x = memoryview(array("f", [0.5] * 128)).cast("B").cast("f", (8, 16))
            y = model(x)
            print(y.shape, y.dtype, len(y.tobytes()), model.plugin.host.name)
            try:
                y.numpy()
            except Exception as error:
                print(error)
        assert not {"numpy", "torch"} & set(sys.modules)
        """,
        str(PLUGINS / "mlp.so"),
        options=("-S", "-E"),
        TOOLKIT=os.pathsep.join(str(ROOT / name) for name in ("abi", "inspect", "loader", "executor")),
    )
    assert out.startswith("(8, 12) float32 384 builtin\nnumpy is not installed\nhint:")


# ---- structure ----


@pytest.fixture
def tree():
    with open_model(STRUCTURED / "tree.so") as model:
        yield model


def tree_arguments():
    with np.load(STRUCTURED / "tree.npz") as content:
        x, y, a, b, scale, flag = (content[f"in{i}"] for i in range(6))
    return ({"x": x, "y": y}, (a, b)), {"scale": scale, "flag": flag}


def test_structured_arguments_and_results(tree):
    args, kwargs = tree_arguments()
    # The order in which a caller writes a dict down is not the order of flattening.
    result = tree({"y": args[0]["y"], "x": args[0]["x"]}, args[1], flag=kwargs["flag"], scale=kwargs["scale"])
    assert list(result) == ["sum", "again", "mask", "half", "brain", "integers", "same", "view", "weight"]
    np.testing.assert_allclose(result["sum"].numpy(), args[0]["x"] + args[1][0] * kwargs["scale"])
    assert result["sum"] is result["again"]
    assert result["mask"].dtype == "bool"
    assert result["half"].dtype == "float16"
    assert result["integers"][1] is None
    np.testing.assert_array_equal(result["integers"][0].numpy(), args[1][0] + 1)
    assert result["view"].shape == (1, 5)
    np.testing.assert_array_equal(result["weight"].numpy(), np.arange(24, dtype="f").reshape(4, 6))


def test_results_outlive_the_model(tree):
    args, kwargs = tree_arguments()
    result = tree(*args, **kwargs)
    expected = {key: value.tobytes() for key, value in result.items() if key != "integers"}
    tree.close()
    del args, kwargs
    assert {key: result[key].tobytes() for key in expected} == expected


def test_bfloat16_through_ml_dtypes(tree):
    import ml_dtypes

    args, kwargs = tree_arguments()
    brain = tree(*args, **kwargs)["brain"].numpy()
    assert brain.dtype == ml_dtypes.bfloat16
    np.testing.assert_array_equal(brain, args[0]["x"].astype(ml_dtypes.bfloat16))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda a, k: (a[:1], k),
            "2 positional arguments, 1 were given; its keyword arguments are scale, flag",
        ),
        (lambda a, k: (a, {"scale": k["scale"]}), "missing flag"),
        (lambda a, k: (a, {**k, "more": 1}), "unknown more"),
        (
            lambda a, k: (({"x": a[0]["x"]}, a[1]), k),
            "argument 0 should be a dict of 'x', 'y', it is a dict of 'x'",
        ),
        (
            lambda a, k: ((list(a[0].values()), a[1]), k),
            "argument 0 should be a dict of 'x', 'y', it is list",
        ),
        (lambda a, k: ((a[0], list(a[1])), k), "argument 1 should be a tuple of 2, it is a list of 2"),
        (lambda a, k: ((a[0], a[1] * 2), k), "it is a tuple of 4"),
        (lambda a, k: (a, {**k, "scale": 2.0}), r"takes 6 tensors, 5 were given(.|\n)*scale \(float\)"),
    ],
)
def test_arguments_of_another_structure_are_refused(tree, change, message):
    args, kwargs = change(*tree_arguments())
    with pytest.raises(InvalidArgument, match=message):
        tree(*args, **kwargs)


def test_names_of_arguments(tree):
    assert tree.argument_names()[4] == ("scale", "arg5_1", "in4", "4")


# ---- what inputs may be ----


@pytest.fixture
def mlp():
    with open_model(PLUGINS / "mlp.so") as model:
        yield model


@pytest.fixture
def x():
    return np.random.default_rng(0).standard_normal((8, 16)).astype("f")


def test_every_kind_of_array_is_taken_without_a_copy(mlp, x):
    expected = mlp(x).tobytes()
    buffer = memoryview(array("f", x.ravel().tolist())).cast("B").cast("f", (8, 16))
    ctypes_array = np.ctypeslib.as_ctypes(x)

    class Capsule:
        def __dlpack__(self, **options):
            return x.__dlpack__(**options)

    class Old:
        def __dlpack__(self, stream=None):
            return x.__dlpack__()

    for value in (x, buffer, ctypes_array, Capsule(), Old(), mlp.bind([x]).outputs and x):
        assert mlp(value).tobytes() == expected
    assert mlp(x.copy()).tobytes() == expected


def test_result_of_a_model_is_an_argument_of_another(mlp, x):
    with open_model(PLUGINS / "counter.so") as counter:
        y = counter(mlp.run([x])[0].numpy()[:, :4].copy())
        again = counter(y)
    assert again.shape == (8, 4)


def test_wrong_rank_is_refused(mlp, x):
    for value in (x.ravel(), x.reshape(1, 8, 16), x.reshape(8, 16, 1)):
        with pytest.raises(InvalidArgument, match=r"input 0 \(arg\d+_1\) has \d dimensions .*takes 2"):
            mlp(value)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda x: x.astype("d"), "unmatched dtype"),
        (lambda x: x.astype("i4"), "unmatched dtype"),
        (lambda x: x[:7], "unmatched dim value at 0"),
        (np.asfortranarray, "unmatched stride value at 0"),
        (lambda x: np.zeros((8, 32), "f")[:, ::2], "unmatched stride value"),
    ],
)
def test_plain_plugin_checks_what_only_it_knows(child, change, message, tmp_path, x):
    # In a process of its own: a plugin reads the environment once, in its first run.
    np.save(tmp_path / "x.npy", change(x))
    layout = "F" if np.isfortran(change(x)) else "C"
    code = f"""
        import sys, numpy as np
        from aoti_abi.errors import InvalidArgument
        from aoti_executor import Model
        x = np.load(sys.argv[2])
        if {"stride value" in message and layout == "C"}:
            x = np.zeros((8, 32), "f")[:, ::2]
        with Model(sys.argv[1], warn=False) as model:
            for _ in range(3):
                try:
                    model(x)
                except InvalidArgument as error:
                    print(error)
            model(np.zeros((8, 16), "f"))
        """
    out = child(code, str(PLUGINS / "mlp.so"), str(tmp_path / "x.npy")).splitlines()
    assert len(out) == 3
    assert all("input 0 (arg" in line and message in line for line in out)


def test_checks_can_be_switched_off(child):
    child(
        """
        import os, sys, numpy as np
        from aoti_executor import Model
        with Model(sys.argv[1], warn=False, check_inputs=False) as model:
            assert "AOTI_RUNTIME_CHECK_INPUTS" not in os.environ
            model(np.zeros((9, 16), "f"))  # a row too many is simply not looked at
        """,
        str(PLUGINS / "mlp.so"),
    )


def test_the_users_own_setting_of_the_plugins_checks_stands(child):
    child(
        """
        import sys, numpy as np
        from aoti_executor import Model
        with Model(sys.argv[1], warn=False) as model:
            assert not model.plugin_checks
            model(np.zeros((9, 16), "f"))
        """,
        str(PLUGINS / "mlp.so"),
        AOTI_RUNTIME_CHECK_INPUTS="0",
    )


@pytest.mark.parametrize("value", [1, 2.5, None, "text", b"bytes", [1.0, 2.0], object()])
def test_what_is_no_array_is_refused(mlp, value):
    with pytest.raises(InvalidArgument):
        mlp(value)


def test_rejected_inputs_do_not_leak(mlp, live_tensors, x):
    mlp(x)
    before = live_tensors()
    for _ in range(500):
        with pytest.raises(InvalidArgument):
            mlp(x[:7])
    assert live_tensors() == before


# ---- bound calls ----


def test_N48_bound_call_reads_and_writes_in_place(mlp, x):
    out = np.empty((8, 12), "f")
    bound = mlp.bind([x], [out])
    for seed in range(3):
        x[:] = np.random.default_rng(seed).standard_normal((8, 16))
        assert bound() is out
        assert out.tobytes() == mlp(x).tobytes()


class Interfaced:
    """An array of some library that makes its memory for the interface alone, which owns it."""

    def __init__(self, **changes):
        self.changes, self.made = changes, []

    @property
    def __array_interface__(self):
        memory = np.arange(1000.0)
        self.made.append(weakref.ref(memory))
        return {**memory.__array_interface__, "owner": memory, **self.changes}


@pytest.mark.filterwarnings("ignore::aoti_abi.errors.FallbackWarning")
def test_memory_that_an_interface_owns_lives_as_long_as_what_aliases_it(synthetic):
    source = Interfaced()
    with open_model(synthetic().path) as model:
        results = [model.run([source])[0] for _ in range(3)]
    gc.collect()
    alive = {reference().ctypes.data for reference in source.made if reference() is not None}
    assert {result.data_ptr for result in results} <= alive


@pytest.mark.filterwarnings("ignore::aoti_abi.errors.FallbackWarning")
def test_an_interface_may_hold_lists(synthetic):
    source = Interfaced(shape=[1000], strides=[8])
    with open_model(synthetic().path) as model:
        for _ in range(2):
            np.testing.assert_array_equal(model.run([source])[0].numpy(), np.arange(1000.0))


@pytest.mark.filterwarnings("ignore::aoti_abi.errors.FallbackWarning")
@pytest.mark.parametrize(
    "changes", [{"shape": 3}, {"data": (1,)}, {"data": b"ab"}, {"typestr": None}], ids=str
)
def test_a_malformed_interface_is_refused(synthetic, changes):
    with open_model(synthetic().path) as model, pytest.raises(InvalidArgument, match="input 0"):
        model.run([Interfaced(**changes)])


def test_bound_call_makes_its_own_outputs(mlp, x):
    bound = mlp.bind([x])
    x[:] = 1
    result = bound()
    assert result.tobytes() == mlp(x).tobytes()
    first = result.data_ptr
    assert bound().data_ptr == first


def test_bound_call_into_strided_memory(mlp, x):
    big = np.full((16, 36), 7, "f")
    out = big[::2, ::3]
    mlp.bind([x], [out])()
    np.testing.assert_array_equal(out, mlp(x).numpy())
    assert (big[1::2] == 7).all()


def test_bound_call_leaves_nothing_behind(mlp, x, live_tensors):
    bound = mlp.bind([x])
    bound()
    before = live_tensors()
    for _ in range(1000):
        bound()
    assert live_tensors() == before


def test_bound_call_of_a_structured_model(tree):
    args, kwargs = tree_arguments()
    inputs = [args[0]["x"], args[0]["y"], *args[1], kwargs["scale"], kwargs["flag"]]
    bound = tree.bind(inputs)
    inputs[0][:] = 3
    result = bound()
    np.testing.assert_allclose(result["sum"].numpy(), 3 + inputs[2] * inputs[4])
    assert result["integers"][1] is None


@pytest.mark.parametrize(
    ("out", "message"),
    [
        (np.empty((8, 13), "f"), "output 0 .* another type or shape"),
        (np.empty((8, 12), "d"), "output 0 .* another type or shape"),
        (np.empty(96, "f"), "output 0 .* another type or shape"),
    ],
)
def test_bound_destination_that_does_not_fit_is_refused(mlp, x, out, message):
    with pytest.raises(InvalidArgument, match=message):
        mlp.bind([x], [out])()


def test_bound_memory_must_be_writable(mlp, x):
    out = np.empty((8, 12), "f")
    out.flags.writeable = False
    with pytest.raises(InvalidArgument, match="destination of output 0 is read-only"):
        mlp.bind([x], [out])
    x.flags.writeable = False
    with pytest.raises(InvalidArgument, match="read-only"):
        mlp.bind([x])


def test_bound_call_on_a_closed_model_is_refused(x):
    model = open_model(PLUGINS / "mlp.so")
    bound = model.bind([x])
    model.close()
    with pytest.raises(InvalidState, match="closed"):
        bound()


def test_bound_call_follows_new_constants(mlp, x):
    bound = mlp.bind([x])
    before = bound().tobytes()
    mlp.weights.update_constants({"b.bias": np.full(12, 9, "f")})
    assert bound().tobytes() != before
    assert bound().tobytes() == mlp(x).tobytes()


def test_bound_call_by_two_threads_at_once_is_refused(synthetic):
    from aoti_executor import Container
    from aoti_executor.arrays import view
    from aoti_executor.native import CALL_BUSY

    with Container(synthetic(SLEEPS=100000), num_models=2) as container:
        frame = container.bind([view(np.zeros(4))], [None])
        codes = []
        threads = [threading.Thread(target=lambda: codes.append(frame.run())) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(codes) == [0, CALL_BUSY]


# ---- where models come from ----

_CHECKS = """
AOTI_NOINLINE static void check_input_0(
    AtenTensorHandle* input_handles
) {
    int32_t arg0_1_expected_dtype = aoti_torch_dtype_float32();
    if (arg0_1_expected_dtype != arg0_1_dtype) {
        ss << "input_handles[0]: unmatched dtype, "
           << "expected: " << arg0_1_expected_dtype << "(at::kFloat), "
    }
    if (8 != arg0_1_size[0]) {
        ss << "input_handles[0]: unmatched dim value at 0, "
           << "expected: 8, " << "but got: " << arg0_1_size[0]
    }
    if (arg0_1_size[1] < 2) {
        ss << "input_handles[0]: dim value is too small at 1, "
           << "expected it to be >= 2, " << "but got: "
    }
    if (arg0_1_size[1] > 16) {
        ss << "input_handles[0]: dim value is too large at 1, "
           << "expected to be <= 16, " << "but got: "
    }
    if (16 != arg0_1_stride[0]) {
        ss << "input_handles[0]: unmatched stride value at 0, "
           << "expected: 16, " << "but got: "
    }
}
static bool _check_aoti_runtime_check_inputs_env() {
"""


@pytest.fixture
def package(tmp_path):
    """A package around a fixture plugin, laid out as PyTorch lays it out."""
    path = tmp_path / "model.pt2"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("model/archive_format", "pt2")
        archive.writestr("model/archive_version", "0")
        archive.writestr("model/byteorder", "little")
        folder = "model/data/aotinductor/model"
        archive.write(PLUGINS / "mlp_blob.so", f"{folder}/abc.wrapper.so")
        archive.write(BLOB, f"{folder}/abc.wrapper_weights.blob")
        archive.write(PLUGINS / "mlp_blob_metadata.json", f"{folder}/abc.wrapper_metadata.json")
        archive.writestr(f"{folder}/abc.wrapper.cpp", _CHECKS)
    return path


BLOB = PLUGINS / "mlp_blob.blob"


def test_package_with_a_blob(package, x, arrays):
    inputs, outputs = arrays(PLUGINS / "mlp_blob.npz")
    with open_model(package) as model:
        np.testing.assert_allclose(model(*inputs).numpy(), outputs[0], rtol=1e-5, atol=1e-6)


def test_package_source_tells_what_inputs_must_be(package, x):
    with open_model(package) as model:
        assert str(model.inputs[0]) == "float32(8, 1..16)"
        assert not model.plugin_checks
        for value, message in (
            (x.astype("d"), "is float64, the model takes float32"),
            (x[:7], r"has 7 elements along dimension 0, the model takes 8: float32\(8, 1\.\.16\)"),
            (np.zeros((8, 17), "f"), "17 elements along dimension 1"),
            (np.zeros((8, 0), "f"), "0 elements along dimension 1"),
            (np.asfortranarray(x), "stride 1 along dimension 0, the model reads 16"),
        ):
            with pytest.raises(InvalidArgument, match=message):
                model(value)


def test_blob_beside_a_plugin_is_found(x):
    with open_model(PLUGINS / "mlp_blob.so") as model:
        assert model(x).shape == (8, 12)


def test_weights_given_by_path_by_bytes_and_by_name(tmp_path, x):
    alone = tmp_path / "alone.so"
    shutil.copy(PLUGINS / "mlp_blob.so", alone)
    with open_model(PLUGINS / "mlp.so") as model:
        values = model.weights.read_constants()
        expected = model(x).tobytes()
    with open_model(alone) as model:
        with pytest.raises(InvalidState, match="there is no value for"):
            model(x)
        model.weights.update_constants(values)
        assert model(x).tobytes() == expected
    for weights in (BLOB, str(BLOB), BLOB.read_bytes(), values):
        with open_model(alone, weights=weights) as model:
            np.testing.assert_allclose(
                model(x).numpy(), np.frombuffer(expected, "f").reshape(8, 12), atol=1e-5
            )


def test_missing_weights_file_is_named(tmp_path):
    with pytest.raises(NotFound, match="nowhere"):
        open_model(PLUGINS / "mlp_blob.so", weights=tmp_path / "nowhere.blob")


@pytest.mark.parametrize(
    "name", ["aoti_two_keys", "aoti_legacy_external", "aoti_fqn3_external", "aoti_target_device"]
)
def test_W9_program_matches(name, program, arrays):
    """Every kind of payload: two keys, legacy keys, weights by name; with copies to a device around it."""
    inputs, outputs = arrays(STRUCTURED / "affine.npz")
    with open_model(program(name, forward=STRUCTURED / "affine.so")) as model:
        np.testing.assert_allclose(model(*inputs).numpy(), outputs[0], rtol=1e-6)


@pytest.mark.torch
def test_P16_program_matches_the_reference_of_its_exporter(program, child):
    child(
        """
        import sys, torch
        from aoti_executor import Model
        reference = torch.load(sys.argv[2])
        with Model(sys.argv[1], warn=False) as model:
            assert torch.allclose(torch.from_dlpack(model(reference["x"])), reference["affine"], atol=1e-6)
        """,
        str(program("aoti_two_keys", forward=STRUCTURED / "affine.so")),
        str(PROGRAMS / "ref.pt"),
    )


def test_program_method_by_name(program, compile_library):
    source = (Path(__file__).parent / "sources" / "plugin.c").read_text()
    twice = Path(compile_library(source, "-DOUTPUTS=2", name="twice.so"))
    path = program("aoti_multimethod_external", forward=STRUCTURED / "affine.so", second=twice)
    with open_model(path, method="second") as model:
        results = model(np.arange(10, dtype="f"))
        assert isinstance(results, tuple)
        assert [result.tolist() for result in results] == [list(range(10))] * 2
    with open_model(path) as model:  # "forward" is meant where several are there
        assert model(np.zeros((3, 4), "f")).shape == (3, 4)
    with pytest.raises(NotFound, match="third"):
        open_model(path, method="third")


def test_program_arguments_go_in_the_order_of_the_delegate_call(program):
    path = program("aoti_two_keys", forward=STRUCTURED / "affine.so")
    with open_model(path) as model:
        model._order, model._back = (1, 0), (1, 0)
        assert model.plugin_index(0) == 1
        assert model._ordered(["first", "second"]) == ["second", "first"]


def test_program_says_what_its_inputs_are(program):
    with open_model(program("aoti_two_keys", forward=STRUCTURED / "affine.so")) as model:
        assert [str(spec) for spec in model.inputs] == ["float32(3, 4)"]
        assert model.container.device == "cpu"  # whatever the delegate is called
        with pytest.raises(InvalidArgument, match="takes 3"):
            model(np.zeros((2, 4), "f"))


def test_W1_N76_program_whose_weights_are_missing_names_them(program):
    path = program("aoti_legacy_external", forward=STRUCTURED / "affine.so")
    next(path.parent.glob("*.ptd")).unlink()
    with pytest.raises(NotFound, match="forward_weights_blob"):
        open_model(path)


def test_W1_N74_plugin_that_has_its_weights_needs_no_blob(program):
    path = program("aoti_legacy_external", forward=STRUCTURED / "fold.so")
    next(path.parent.glob("*.ptd")).unlink()
    with open_model(path) as model:
        assert model(np.zeros((3, 4), "f")).shape == (3, 4)


@pytest.mark.parametrize("name", ["portable", "xnnpack", "handmade_two_keys", "handmade_malformed_payload"])
def test_program_without_a_plugin_is_one_clear_error(name):
    with pytest.raises(AotiError):
        open_model(PROGRAMS / f"{name}.pte")


@pytest.mark.parametrize("content", [b"", b"\x7fELF", b"not a model", b"PK\x03\x04"])
def test_junk_is_one_clear_error(tmp_path, content):
    path = tmp_path / "junk.so"
    path.write_bytes(content)
    with pytest.raises(AotiError) as caught:
        open_model(path)
    assert str(path) in str(caught.value)


def test_failed_opening_leaves_no_file_open(tmp_path):
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(20):
        with pytest.raises(InvalidArgument):
            open_model(PLUGINS / "mlp.so", num_runners=0)
        with pytest.raises(InvalidArgument):
            open_model(PLUGINS / "mlp.so", threads=0)
    assert len(os.listdir("/proc/self/fd")) <= before + 2


@pytest.mark.parametrize("binds_blobs", [True, False])
def test_W1_N64_N73_N77_plugin_without_constants_needs_no_blob(program, compile_library, binds_blobs):
    source = (Path(__file__).parent / "sources" / "plugin.c").read_text()
    plugin = STRUCTURED / "team.so" if binds_blobs else Path(compile_library(source, name="plugin.so"))
    path = program("aoti_legacy_external", forward=plugin)
    next(path.parent.glob("*.ptd")).unlink()
    with open_model(path) as model:
        functions = model.plugin.functions
        assert ("AOTInductorModelUpdateConstantsFromBlob" in functions) is binds_blobs
        assert not model.container.weights.unbound
        if not binds_blobs:
            np.testing.assert_array_equal(model.run([np.ones((3, 4), "f")])[0].numpy(), np.ones((3, 4)))


# ---- threads and the end ----


def test_E7_many_threads_one_model(mlp, x):
    expected = mlp(x).tobytes()
    wrong = []

    def work():
        for _ in range(200):
            wrong.extend([1] * (mlp(x).tobytes() != expected))

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_D1_Q9_load_run_close_again_and_again_keeps_memory_flat(child):
    out = child(
        """
        import sys, numpy as np
        from aoti_executor import Model
        def memory():
            with open("/proc/self/statm") as stat, open("/proc/self/maps") as maps:
                return int(stat.read().split()[1]) * 4096, len(maps.readlines())
        x = np.zeros((8, 16), "f")
        def once():
            with Model(sys.argv[1], warn=False) as model:
                model(x)
        for _ in range(20):
            once()
        rss, maps = memory()
        for _ in range(100):
            once()
        print(memory()[0] - rss, memory()[1] - maps)
        """,
        str(PLUGINS / "mlp.so"),
    )
    grown, mappings = map(int, out.split())
    assert grown < 4 << 20
    assert mappings <= 5


def test_closed_model_refuses(x):
    model = open_model(PLUGINS / "mlp.so")
    model.close()
    model.close()
    assert model.closed
    with pytest.raises(InvalidState, match="closed"):
        model(x)
    with pytest.raises(InvalidState):
        model.weights.swap()


def test_unsupported_option_is_a_type_error():
    with pytest.raises(TypeError):
        open_model(PLUGINS / "mlp.so", nonsense=1)
