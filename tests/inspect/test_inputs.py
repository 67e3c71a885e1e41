"""What is known of a model's inputs without loading it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aoti_inspect.artifacts import open_artifact
from aoti_inspect.artifacts.declared_inputs import declared_inputs
from aoti_inspect.artifacts.facts import read_facts
from aoti_inspect.artifacts.program import Argument, Value
from aoti_inspect.command.cli import main
from aoti_inspect.facts.inputs import Extent, InputSpec, inputs_from_source, read_checks

ROOT = Path(__file__).resolve().parents[2]

SOURCE = b"""
AOTI_NOINLINE static void check_input_0(
    AtenTensorHandle* input_handles
) {
    ConstantHandle arg4_1 = ConstantHandle(input_handles[0]);
    int32_t arg4_1_dtype;
    static int32_t arg4_1_expected_dtype = aoti_torch_dtype_float32();
    if (arg4_1_expected_dtype != arg4_1_dtype) {
        ss << "input_handles[0]: unmatched dtype, " << "expected: " << arg4_1_expected_dtype << "(float32), ";
    }
    if (arg4_1_size[0] < 2) {
        ss << "input_handles[0]: dim value is too small at 0, "
           << "expected it to be >= 2, " << "but got: ";
    }
    if (arg4_1_size[0] > 64) {
        ss << "input_handles[0]: dim value is too large at 0, "
           << "expected to be <= 64, " << "but got: ";
    }
    if (16 != arg4_1_size[1]) {
        ss << "input_handles[0]: unmatched dim value at 1, "
           << "expected: 16, " << "but got: ";
    }
    if (1 != arg4_1_stride[1]) {
        ss << "input_handles[0]: unmatched stride value at 1, "
           << "expected: 1, " << "but got: ";
    }
}
AOTI_NOINLINE static void check_input_2(
    AtenTensorHandle* input_handles
) {
    static int32_t arg_expected_dtype = aoti_torch_dtype_int64();
}
static bool _check_aoti_runtime_check_inputs_env() {
    static int32_t other = aoti_torch_dtype_bool();
}
"""


def test_the_generated_source_has_the_values_of_the_checks():
    first, second, third = inputs_from_source(SOURCE)
    assert first == InputSpec("float32", 2, (Extent(1, 64), Extent(16, 16)), (None, 1))
    assert str(first) == "float32(1..64, 16)"
    assert (str(second), str(third)) == ("?(?)", "int64()")


def test_the_strings_of_a_plugin_tell_the_number_of_dimensions():
    assert list(map(str, read_facts(str(ROOT / "fixtures/plugins/mlp.so")).inputs)) == ["?(?, ?)"]
    tree = read_facts(str(ROOT / "fixtures/structured/tree.so")).inputs
    assert [spec.rank for spec in tree] == [1, 1, 1, 1, 0, 0]


def test_constants_are_not_searched(tmp_path: Path):
    plugin = shutil.copy(ROOT / "fixtures/plugins/mlp.so", tmp_path)
    facts = read_facts(plugin)
    with open(plugin, "r+b") as stream:
        stream.seek(facts.weights.offset)
        stream.write(b"input_handles[7]: unmatched dtype, ")
    assert read_facts(plugin).inputs == facts.inputs


def test_the_source_beside_a_plugin_is_read(tmp_path: Path):
    plugin = shutil.copy(ROOT / "fixtures/plugins/mlp.so", tmp_path)
    (tmp_path / "mlp.cpp").write_bytes(SOURCE)
    assert str(read_facts(plugin).inputs[0]) == "float32(1..64, 16)"


@pytest.mark.parametrize(
    ("text", "ranks"),
    [
        (b"input_handles[0]: unmatched dtype, ", {0: 0}),
        (b"input_handles[3]: dim value is too large at 12, \0input_handles[3]: unmatched dtype, ", {3: 13}),
        (b"input_handles[1]: unmatched stride value at 2, ", {1: 3}),
        (b"input_handles[1]: unmatched device type, ", {}),
        (b"input_handles[999999]: unmatched dtype, ", {}),
        (b"input_handles[", {}),
        (b"input_handles[-1]: unmatched dtype", {}),
    ],
)
def test_texts_of_checks(text: bytes, ranks: dict[int, int]):
    found: dict[int, int] = {}
    read_checks(text, found)
    assert found == ranks


PIECES = st.sampled_from(
    [
        b"input_handles[",
        b"]: unmatched dtype",
        b"]: unmatched dim value at ",
        b"static void check_input_",
        b"static bool _check_aoti",
        b"aoti_torch_dtype_float32()",
        b"aoti_torch_dtype_zzz()",
        b'unmatched dim value at 1, " << "expected: ',
        b'unmatched stride value at 99, " << "expected: 3, "',
        b', "',
        b"9" * 5000,
        b"0",
        b"(",
        b"\xc2\xb2",
    ]
)


@given(st.lists(PIECES | st.binary(max_size=8), max_size=30))
def test_hostile_text_is_read_without_an_error(pieces: list[bytes]):
    text = b"".join(pieces)
    read_checks(text, {})
    for spec in inputs_from_source(text):
        assert spec.rank is None or 0 <= spec.rank <= 64
        assert spec.dtype in (None, "float32")


def test_the_report_shows_inputs_and_the_json_their_parts(tmp_path: Path, capsys):
    plugin = shutil.copy(ROOT / "fixtures/plugins/mlp.so", tmp_path)
    (tmp_path / "mlp.cpp").write_bytes(SOURCE)
    main([plugin])
    assert "inputs     float32(1..64, 16), ?(?), int64()" in capsys.readouterr().out
    main([plugin, "--format", "json"])
    facts = json.loads(capsys.readouterr().out)["artifacts"][0]["plugins"][0]["facts"]
    assert facts["inputs"][0] == {
        "dtype": "float32",
        "rank": 2,
        "sizes": [{"low": 1, "high": 64}, {"low": 16, "high": 16}],
        "strides": [None, 1],
    }
    assert facts["openmp_team"] is None


def test_a_program_says_what_it_hands_to_its_plugin():
    with open_artifact(str(ROOT / "fixtures/artifacts/aoti_multimethod_external.pte")) as program:
        inputs = [plugin.delegate.inputs for plugin in program.plugins]
    assert inputs == [
        (InputSpec("float32", 2, (Extent(3, 3), Extent(4, 4)), (4, 1)),),
        (InputSpec("float32", 1, (Extent(10, 10),), (1,)),),
    ]


@pytest.mark.parametrize(
    ("dynamism", "shown"),
    [("static", "int64(2, 3)"), ("bound", "int64(0..2, 0..3)"), ("unbound", "int64(0.., 0..)")],
)
def test_the_sizes_of_a_dynamic_input_are_bounds(dynamism: str, shown: str):
    value = Value("tensor", "int64", (2, 3), (1, 0), dynamism)
    (spec,) = declared_inputs((Value("int"), value), ((Argument(5, 1, None), Argument(6, None, 0)),))
    assert str(spec) == shown
    assert spec.strides == ((1, 2) if dynamism == "static" else None)


def test_nothing_is_declared_where_a_plugin_takes_more_than_the_inputs_of_the_method():
    value = Value("tensor", "int64", (2,), (0,))
    assert declared_inputs((value,), ((Argument(5, None, None),),)) == ()
    assert declared_inputs((value,), ((Argument(5, 3, None),),)) == ()
    assert declared_inputs((value,), ()) == ()


def test_a_long_list_of_inputs_is_cut_without_v(capsys):
    tree = str(ROOT / "fixtures/structured/tree.so")
    main([tree])
    assert "?(?), ?(?), ?(?), ?(?) and 2 more" in capsys.readouterr().out
    main(["-v", tree])
    assert "?(?), ?(?), ?(?), ?(?), ?(), ?()" in capsys.readouterr().out
