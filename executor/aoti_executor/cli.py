"""The ``aoti-run`` command: run a compiled model on arrays in files.

Exit codes: 0 it ran, 1 the model could not be loaded or the run failed, 2 usage or unreadable input.
"""

from __future__ import annotations

import argparse
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from aoti_abi.errors import AccessFailed, AotiError
from aoti_abi.release import VERSION
from aoti_inspect.command.output import discard_standard_output, write_standard_output
from aoti_inspect.reports.terminal import HelpFormatter
from aoti_inspect.text import printable, printable_error
from aoti_inspect.wording import counted
from aoti_loader import hosts

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aoti_executor.model import Model

_EPILOG = """\
inputs:
  --input FILE.npy        the next input in order
  --input NAME=FILE.npy   one input, by name (see --info) or number
  --input FILE.npz        several, under such names or as in0, in1, ...
bfloat16 and other types that .npy files lack are read from float32 and written as float32. Arrays need numpy.

exit codes:
  0  it ran
  1  the model could not be loaded, or the run failed
  2  wrong usage, or an input that can't be read

examples:
  aoti-run model.so --info
  aoti-run model.so --input in.npy --output out.npz
  aoti-run model.pt2 --bench 1000"""


#: The duration of each run is kept, for the percentiles.
_MOST_RUNS = 10_000_000


class _Usage(Exception):
    """What the user gave can't be used; the message says why."""


def build_parser() -> argparse.ArgumentParser:
    """Return the command's argument parser."""
    parser = argparse.ArgumentParser(
        prog="aoti-run",
        description="Run an AOTInductor plugin, package or ExecuTorch program, if possible without PyTorch.",
        epilog=_EPILOG,
        formatter_class=HelpFormatter,
    )
    parser.add_argument(
        "path", metavar="PATH", help="a plugin (.so), package (.pt2), program (.pte) or folder"
    )
    parser.add_argument("--version", action="version", version=f"aoti-run {VERSION}")
    parser.add_argument(
        "-i",
        "--input",
        metavar="[NAME=]FILE",
        action="append",
        default=[],
        help="an array, or several; see below; may be repeated",
    )
    parser.add_argument(
        "-o", "--output", metavar="FILE", help="write outputs to FILE.npz, or the only one to FILE.npy"
    )
    parser.add_argument("--info", action="store_true", help="say what the model is and takes")
    parser.add_argument("--constants", action="store_true", help="list the model's constants")
    parser.add_argument("--bench", metavar="N", type=int, help="time N runs; random inputs if none are given")
    parser.add_argument("--method", metavar="NAME", help="the model of a package or method of a program")
    parser.add_argument("--weights", metavar="FILE", help="a weights blob, for a plugin that has none inside")
    parser.add_argument(
        "--host",
        choices=hosts.choices(),
        default=hosts.AUTO,
        help="who provides aoti_torch_*: the toolkit's own library, LibTorch, or this process "
        "(default: the first that has all the plugin calls)",
    )
    parser.add_argument(
        "--device", metavar="DEVICE", help="cpu or cuda:N (default: what the model was compiled for)"
    )
    parser.add_argument("--threads", metavar="N", type=int, help="the largest OpenMP team")
    parser.add_argument(
        "--no-check", action="store_true", help="don't check inputs against what the model expects"
    )
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return its exit code."""
    options = build_parser().parse_args(arguments)
    try:
        return _main(options)
    except _Usage as error:
        _complain(printable(str(error)))
        return 2
    except AotiError as error:
        _complain(printable_error(error))
        return 1
    except BrokenPipeError:
        # The reader of a pipe went away; keep Python from saying so once more at exit.
        discard_standard_output()
        return 1
    except KeyboardInterrupt:
        return 130


def _complain(message: str) -> None:
    # Standard error may be closed or full; the exit code says the same.
    with suppress(OSError):
        print(f"aoti-run: {message}", file=sys.stderr)


def _say(text: str) -> None:
    try:
        write_standard_output(f"{text}\n")
    except AccessFailed as error:
        raise _Usage(str(error).partition("\n")[0]) from None


def _main(options: argparse.Namespace) -> int:
    import os

    from aoti_executor.model import Model

    if not os.path.exists(options.path):
        raise _Usage(f"{options.path}: no such file")
    if options.bench is not None and not 1 <= options.bench <= _MOST_RUNS:
        raise _Usage(f"--bench takes a number from 1 to {_MOST_RUNS}")
    if options.threads is not None and options.threads < 1:
        raise _Usage(f"--threads takes a number of at least 1, not {options.threads}")
    if options.output is not None and not options.output.endswith((".npz", ".npy")):
        raise _Usage(f"{options.output}: outputs are written as .npz or .npy")
    arrays = [_read(text) for text in options.input]
    with Model(
        options.path,
        method=options.method,
        host=options.host,
        device=options.device,
        weights=options.weights,
        check_inputs=not options.no_check,
        threads=options.threads,
    ) as model:
        if options.info:
            from aoti_executor.describe import describe_model

            _say(describe_model(model))
        if options.constants:
            from aoti_executor.describe import constants_table

            _say(constants_table(model.weights.constants))
        listing = options.info or options.constants
        if not arrays and not options.bench and (listing or model.container.num_inputs):
            if listing:
                return 0
            takes = counted(model.container.num_inputs, "input")
            raise _Usage(f"the model takes {takes}, and none is given: use --input")
        inputs = _assign(model, arrays) if arrays else _random(model)
        results = model.run(inputs)
        if options.output:
            _write(options.output, results)
        elif not options.bench:
            _show(results)
        if options.bench:
            from aoti_executor.timing import time_model

            _say(time_model(model, inputs, options.bench))
    return 0


def _numpy() -> Any:
    try:
        import numpy as np
    except ImportError:
        raise _Usage("arrays need numpy: pip install numpy") from None
    return np


def _read(text: str) -> tuple[str | None, Any]:
    """Return the name, if one was given, and the array or arrays of one ``--input``."""
    import os

    np = _numpy()
    name, equals, path = text.partition("=")
    if not equals:
        name, path = "", text
    # numpy seeks in what it reads, and would wait for a pipe's writer before it finds that it can't.
    if os.path.exists(path) and not os.path.isfile(path):
        raise _Usage(f"{path}: cannot be read: it is not a regular file")
    try:
        # allow_pickle stays off: unpickling an array runs code that the file names.
        content = np.load(path)
        if hasattr(content, "files"):
            with content:
                content = {key: content[key] for key in content.files}
    except OSError as error:
        raise _Usage(f"{path}: cannot be read: {error.strerror or error}") from None
    except Exception as error:  # noqa: BLE001 - numpy, zipfile and zlib raise what they like for a damaged file
        reason = str(error).partition("\n")[0].partition(". If you trust")[0]
        raise _Usage(f"{path}: is no .npy or .npz file: {reason}") from None
    if name and isinstance(content, dict):
        if len(content) != 1:
            raise _Usage(f"{path}: holds {len(content)} arrays, so it can't be input {name!r}")
        content = next(iter(content.values()))
    return name or None, content


def _assign(model: Model, arrays: list[tuple[str | None, Any]]) -> list[Any]:
    """Put the arrays in the order of the model's inputs."""
    count = model.container.num_inputs
    slots: list[Any] = [None] * count
    pending: list[Any] = []
    for name, content in arrays:
        if isinstance(content, dict):
            inputs = {key: value for key, value in content.items() if not _is_output(key)}
            for key, value in inputs.items():
                _place(model, slots, key, value)
        elif name is None:
            pending.append(content)
        else:
            _place(model, slots, name, content)
    for value in pending:
        free = next((index for index, slot in enumerate(slots) if slot is None), None)
        if free is None:
            raise _Usage(f"the model takes {counted(count, 'input')}, and more were given")
        slots[free] = value
    missing = [str(index) for index, slot in enumerate(slots) if slot is None]
    if missing:
        raise _Usage(f"the model takes {counted(count, 'input')}; missing: {', '.join(missing)}")
    return [_convert(model, index, value) for index, value in enumerate(slots)]


def _is_output(key: str) -> bool:
    return key.startswith("out") and key[3:].isdecimal()


def _place(model: Model, slots: list[Any], name: str, value: Any) -> None:
    names = model.argument_names()
    index = next((i for i, known in enumerate(names) if name in known), None)
    if index is None:
        listed = ", ".join(known[0] for known in names)
        raise _Usage(f"the model has no input {name!r}; it has: {listed}")
    if slots[index] is not None:
        raise _Usage(f"input {name!r} is given twice")
    slots[index] = value


def _convert(model: Model, index: int, value: Any) -> Any:
    """Turn a float32 array into what ``.npy`` files can't hold, if the model is known to take that."""
    from aoti_abi.codes import DTYPES_BY_NAME
    from aoti_executor.tensor import extended_dtype

    name = model.inputs[model.plugin_index(index)].dtype
    if name is not None and DTYPES_BY_NAME[name].numpy is None and value.dtype == _numpy().float32:
        return value.astype(extended_dtype(name))
    return value


def _random(model: Model) -> list[Any]:
    """Return inputs with values that fit, where the shapes are known."""
    from aoti_abi.codes import DTYPES_BY_NAME
    from aoti_executor.tensor import extended_dtype

    wanted = []
    for index in range(model.container.num_inputs):
        spec = model.inputs[model.plugin_index(index)]
        if spec.sizes is None or spec.dtype is None:
            raise _Usage("the plugin does not tell the shapes of its inputs: give them with --input")
        wanted.append((tuple(max(extent.low, 1) for extent in spec.sizes), DTYPES_BY_NAME[spec.dtype]))
    np = _numpy()
    generator = np.random.default_rng(0)
    arrays = []
    for shape, dtype in wanted:
        scalar = np.dtype(dtype.numpy) if dtype.numpy else extended_dtype(dtype.name)
        if dtype.name.startswith(("float", "bfloat", "complex")):
            arrays.append(generator.standard_normal(shape).astype(scalar))
        else:
            # Integers are often indices: 0 and 1 are in every table of more than one row.
            arrays.append(generator.integers(0, 2, shape).astype(scalar))
    return arrays


def _plain(tensor: Any) -> Any:
    """Return an array that a ``.npy`` file can hold."""
    np = _numpy()
    array = tensor.to("cpu").numpy()
    return array if array.dtype.kind != "V" and array.dtype.isbuiltin == 1 else array.astype(np.float32)


def _write(path: str, results: Sequence[Any]) -> None:
    """Write outputs to a file that appears only when it is complete."""
    import os
    import tempfile

    np = _numpy()
    arrays = {f"out{index}": _plain(tensor) for index, tensor in enumerate(results) if tensor is not None}
    if path.endswith(".npy") and len(arrays) != 1:
        raise _Usage(f"{path}: the model gave {len(arrays)} outputs; write them to a .npz file")
    folder = os.path.dirname(os.path.abspath(path))
    temporary = None
    try:
        with tempfile.NamedTemporaryFile(dir=folder, suffix=".part", delete=False) as stream:
            temporary = stream.name
            if path.endswith(".npy"):
                np.save(stream, next(iter(arrays.values())), allow_pickle=False)
            else:
                np.savez(stream, **arrays)
        os.chmod(temporary, 0o666 & ~_umask())
        os.replace(temporary, path)
    except OSError as error:
        raise _Usage(f"{path}: cannot be written: {error.strerror or error}") from None
    finally:
        # Still there only if something stopped us, an interrupt included.
        if temporary is not None and os.path.exists(temporary):
            os.unlink(temporary)


def _umask() -> int:
    import os

    mask = os.umask(0)
    os.umask(mask)
    return mask


def _show(results: Sequence[Any]) -> None:
    lines: list[str] = []
    for index, tensor in enumerate(results):
        if tensor is None:
            lines.append(f"out{index}: None")
            continue
        text = str(_numpy().array2string(_plain(tensor), threshold=20, edgeitems=3, max_line_width=100))
        shape = ", ".join(map(str, tensor.shape))
        lines.append(f"out{index}: {tensor.dtype}({shape})")
        lines.extend(f"  {line}" for line in text.splitlines())
    _say("\n".join(lines))
