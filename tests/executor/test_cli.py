"""The ``aoti-run`` command."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from aoti_executor.cli import main
from aoti_executor.timing import time_calls

ROOT = Path(__file__).resolve().parents[2]
PLUGINS, STRUCTURED = ROOT / "fixtures" / "plugins", ROOT / "fixtures" / "structured"
MLP = str(PLUGINS / "mlp.so")
XNNPACK = str(PLUGINS.parent / "artifacts" / "xnnpack.pte")


@pytest.fixture(autouse=True)
def quiet(recwarn):
    """Lost features are warned of; that is tested elsewhere."""


def test_runs_as_a_module_too():
    command = [sys.executable, "-m", "aoti_executor", MLP, "-i", str(PLUGINS / "mlp.npz")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert (done.returncode, done.stdout.partition("\n")[0]) == (0, "out0: float32(8, 12)")
    done = subprocess.run([*command[:3], "/nowhere.so"], capture_output=True, text=True, env=environment)
    assert (done.returncode, done.stderr) == (2, "aoti-run: /nowhere.so: no such file\n")


def test_run_writes_what_the_model_gives(tmp_path, capsys):
    out = tmp_path / "out.npz"
    assert main([MLP, "-i", str(PLUGINS / "mlp.npz"), "-o", str(out)]) == 0
    assert capsys.readouterr().out == ""
    with np.load(out) as got, np.load(PLUGINS / "mlp.npz") as expected:
        np.testing.assert_allclose(got["out0"], expected["out0"], rtol=1e-5, atol=1e-6)
    assert [path.name for path in tmp_path.iterdir()] == ["out.npz"]


def test_inputs_by_name_number_and_order(tmp_path, capsys):
    with np.load(STRUCTURED / "tree.npz") as content:
        paths = {}
        for index in range(6):
            paths[index] = str(tmp_path / f"{index}.npy")
            np.save(paths[index], content[f"in{index}"])
        expected = content["out0"]
    arguments = [
        f"in1={paths[1]}",
        paths[0],
        f"scale={paths[4]}",
        f"5={paths[5]}",
        f"arg3_1={paths[2]}",
        paths[3],
    ]
    out = str(tmp_path / "out.npz")
    flags = [part for argument in arguments for part in ("--input", argument)]
    assert main([str(STRUCTURED / "tree.so"), *flags, "--output", out]) == 0
    with np.load(out) as got:
        np.testing.assert_allclose(got["out0"], expected)
        assert "out6" not in got.files
        assert got["out4"].dtype == np.float32


def test_single_output_to_npy(tmp_path):
    out = tmp_path / "out.npy"
    assert main([MLP, "-i", str(PLUGINS / "mlp.npz"), "-o", str(out)]) == 0
    assert np.load(out).shape == (8, 12)
    assert out.stat().st_mode & 0o444


def test_outputs_are_shown(capsys):
    assert main([str(STRUCTURED / "tree.so"), "-i", str(STRUCTURED / "tree.npz")]) == 0
    text = capsys.readouterr().out
    assert "out0: float32(5)" in text
    assert "out4: bfloat16(5)" in text
    assert "out6: None" in text


def test_info_and_constants(capsys):
    assert main([MLP, "--info", "--constants"]) == 0
    text = capsys.readouterr().out
    assert "compiled by: PyTorch 2.13" in text
    assert re.search(r"a_weight +a\.weight +float32 +\[32, 16\] +2048 +Parameter +cpu", text)
    assert "4 constants, 3776 bytes" in text


def test_bench(capsys):
    assert main([MLP, "-i", str(PLUGINS / "mlp.npz"), "--bench", "50"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(":")[0] for line in lines] == ["call", "bound"]
    assert all(
        re.search(r"50 runs: min [\d.]+, p50 [\d.]+, p90 [\d.]+, p99 [\d.]+, max [\d.]+ us", line)
        for line in lines
    )


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["/nonexistent.so"], 2, "no such file"),
        ([MLP], 2, "takes 1 input, and none is given: use --input"),
        ([MLP, "--threads", "0"], 2, "--threads takes a number of at least 1, not 0"),
        ([MLP, "--bench", "5"], 2, "does not tell the shapes"),
        ([MLP, "--bench", "0"], 2, "a number from 1 to"),
        ([MLP, "--bench", "99999999999999999999"], 2, "a number from 1 to"),
        ([MLP, "-i", "/dev/zero"], 2, "not a regular file"),
        ([MLP, "-o", ""], 2, "as .npz or .npy"),
        (["/no\x1b[2J\n"], 2, "/no\\x1b[2J\\n: no such file"),
        ([MLP, "-i", "/nonexistent.npy"], 2, "cannot be read: No such file"),
        ([MLP, "-i", MLP], 2, "no .npy or .npz file"),
        ([MLP, "-i", f"zz={PLUGINS / 'counter.npz'}"], 2, "holds 2 arrays"),
        ([MLP, "-i", str(PLUGINS / "mlp.npz"), "-o", "/nonexistent/out.npz"], 2, "cannot be written"),
        ([MLP, "-i", str(PLUGINS / "mlp.npz"), "-o", "out.txt"], 2, "as .npz or .npy"),
        ([MLP, "-i", str(PLUGINS / "mlp.npz"), "--device", "gpu"], 1, "no device"),
        ([MLP, "-i", str(PLUGINS / "mlp.npz"), "--method", "other"], 1, "other"),
        (
            [MLP, "-i", str(PLUGINS / "mlp.npz"), "--weights", str(PLUGINS / "mlp_blob.blob")],
            1,
            "weights already",
        ),
        ([__file__, "--info"], 1, "test_cli.py: "),
        ([XNNPACK, "--info"], 1, "xnnpack.pte: 'forward' has no AOTInductor plugin; its work is done by Xnn"),
    ],
)
def test_errors_are_one_clear_message(arguments, code, message, capsys):
    assert main(arguments) == code
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("aoti-run: ")
    assert message in captured.err
    assert "Traceback" not in captured.err


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("zz={}", "has no input 'zz'; it has: arg"),
        ("0={} in0={}", "given twice"),
        ("{} {}", "more were given"),
    ],
)
def test_inputs_that_cannot_be_placed(name, message, tmp_path, capsys):
    path = tmp_path / "x.npy"
    np.save(path, np.zeros((8, 16), "f"))
    flags = [part for text in name.split() for part in ("-i", text.format(path))]
    assert main([MLP, *flags]) == 2
    assert message in capsys.readouterr().err


def test_pickles_are_never_loaded(tmp_path, capsys):
    path = tmp_path / "x.npy"
    np.save(path, np.array([object()]), allow_pickle=True)
    assert main([MLP, "-i", str(path)]) == 2
    assert "allow_pickle=False" in capsys.readouterr().err


def test_failed_run_leaves_no_output_file(tmp_path):
    out = tmp_path / "out.npz"
    np.save(tmp_path / "x.npy", np.zeros((8, 17, 1), "f"))
    assert main([MLP, "-i", str(tmp_path / "x.npy"), "-o", str(out)]) == 1
    assert not out.exists()


def test_usage_error_has_exit_code_2(capsys):
    with pytest.raises(SystemExit) as caught:
        main([MLP, "--nonsense"])
    assert caught.value.code == 2


def test_closed_pipe_is_no_traceback(tmp_path):
    script = f"{sys.executable} -m aoti_executor {MLP} --info --constants | true"
    done = subprocess.run(
        ["sh", "-c", script],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": ":".join(sys.path)},
    )
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("redirection", [">&-", "> /dev/full"])
@pytest.mark.parametrize("flags", ["--info", "--constants", f"-i {PLUGINS / 'mlp.npz'}"])
def test_output_that_cannot_be_written_is_one_error(redirection, flags):
    done = subprocess.run(
        ["sh", "-c", f"{sys.executable} -W ignore -m aoti_executor {MLP} {flags} {redirection}"],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": ":".join(sys.path)},
    )
    assert done.returncode == 2
    assert done.stderr.startswith("aoti-run: standard output ")
    assert done.stderr.count("\n") == 1


def test_input_that_is_a_pipe_is_refused_at_once(tmp_path, capsys):
    os.mkfifo(tmp_path / "x.npy")
    assert main([MLP, "-i", str(tmp_path / "x.npy")]) == 2
    assert "not a regular file" in capsys.readouterr().err


def test_percentiles():
    timing = time_calls(lambda: None, 100)
    assert timing.runs == 100
    assert (
        timing.shortest
        <= timing.percentiles[0]
        <= timing.percentiles[1]
        <= timing.percentiles[2]
        <= timing.longest
    )


def test_the_version_and_the_help_are_those_of_the_toolkit(capsys):
    from aoti_abi.release import VERSION

    for option in ("--version", "--help"):
        with pytest.raises(SystemExit) as stop:
            main([option])
        assert stop.value.code == 0
    version, text = capsys.readouterr().out.split("\n", 1)
    assert version == f"aoti-run {VERSION}"
    assert max(map(len, text.splitlines())) <= 80


def test_what_a_plugin_does_not_record_is_explained(capsys):
    assert main([MLP, "--info"]) == 0
    assert "inputs: 1 (?: not recorded in the plugin)\n  arg4_1: ?(?, ?)\n" in capsys.readouterr().out
