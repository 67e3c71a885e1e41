"""Which plugins run on which host: a table of every plugin and package in some folders.

Usage: python benchmarks/coverage.py [--output docs/coverage.md] [FOLDER...]

Each model with an ``NAME.npz`` beside it (``in0``, ... and ``out0``, ...) is loaded and run on each host in a
process of its own, and its outputs are compared with the file's. A model of a package is compared with the
package's. Without an ``.npz`` a model is only loaded. The repository's fixtures are the default.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
DEFAULT = [os.path.join(ROOT, "fixtures", name) for name in ("plugins", "structured")]
HOSTS = ("builtin", "torch")
SUFFIXES = (".so", ".pt2")
TIME_LIMIT = 120

#: Runs one model in the process that reports on it as JSON.
PROBE = """
import json, os, sys, warnings
warnings.simplefilter("ignore")
from aoti_abi.errors import AotiError, NotSupported
from aoti_executor import Model
path, host = sys.argv[1:]
data = os.path.splitext(path)[0] + ".npz"

def compare(results, content):
    import numpy as np
    worst = 0.0
    for index, result in enumerate(results):
        name = f"out{index}"
        if result is None or name not in content:
            continue
        got, expected = result.numpy(), content[name]
        if got.shape != expected.shape:
            return f"differs: {name} has the shape {got.shape}, not {expected.shape}"
        got, expected = got.astype(expected.dtype), expected
        if not np.allclose(got, expected, rtol=1e-4, atol=1e-5, equal_nan=True):
            return f"differs: {name} by up to {np.abs(got.astype('d') - expected.astype('d')).max():.2g}"
        if got.size and got.dtype.kind in "fc":
            worst = max(worst, float(np.abs(got - expected).max()))
    return f"matches (max difference {worst:.1g})" if worst else "matches"

def run():
    with Model(path, host=host) as model:
        missing = [c.fqn for c in model.container.weights.unbound]
        if missing:
            return f"loads; has no weights for {len(missing)} constants"
        if any("proxy_executor" in symbol.name for symbol in model.plugin.facts.elf.undefined):
            return "loads; its custom operators need the dispatcher of PyTorch"
        if not os.path.exists(data):
            return "loads"
        import numpy as np
        with np.load(data) as content:
            inputs = [content[f"in{i}"] for i in range(model.container.num_inputs)]
            return compare(model.run(inputs), content)

try:
    answer = run()
except AotiError as error:
    lacking = (error.cause or "").partition(" lacks ")[2].partition(": ")[2]
    answer = f"needs {lacking}" if lacking else error.message
print(json.dumps(answer))
"""


def probe(path: str, host: str) -> str:
    """Return what happens to a model on a host, in a few words."""
    command = [sys.executable, "-c", PROBE, path, host]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=TIME_LIMIT, check=False, env=environment
        )
    except subprocess.TimeoutExpired:
        return f"hangs for {TIME_LIMIT} s"
    if done.returncode:
        why = (done.stderr.strip().splitlines() or [""])[-1]
        return f"dies of signal {-done.returncode}" if done.returncode < 0 else f"fails: {why}"
    return str(json.loads(done.stdout.splitlines()[-1]))


def models(folders: list[str]) -> list[str]:
    """Return the plugins and packages in some folders."""
    found = []
    for folder in folders:
        if os.path.isfile(folder):
            found.append(folder)
            continue
        found += [
            os.path.join(folder, name) for name in sorted(os.listdir(folder)) if name.endswith(SUFFIXES)
        ]
    return found


def table(paths: list[str]) -> str:
    """Return the table in Markdown."""
    lines = [f"| model | {' | '.join(HOSTS)} |", f"|---|{'---|' * len(HOSTS)}"]
    counts = dict.fromkeys(HOSTS, 0)
    for path in paths:
        answers = []
        for host in HOSTS:
            answer = probe(path, host).replace("|", "\\|")
            counts[host] += answer.startswith("matches")
            answers.append(answer)
        lines.append(f"| `{os.path.basename(path)}` | {' | '.join(answers)} |")
        print(lines[-1], file=sys.stderr)
    total = ", ".join(f"{counts[host]} on {host}" for host in HOSTS)
    return "\n".join([*lines, "", f"{len(paths)} models: {total} match."])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", nargs="*", default=DEFAULT)
    parser.add_argument("--output", metavar="FILE", help="write the page there instead of printing it")
    options = parser.parse_args()
    page = f"""# Which plugins run on which host

Generated by `python benchmarks/coverage.py FOLDER...`; without a folder it runs the repository's plugins.
Each model ran in a process of its own, and its outputs were compared with those of eager PyTorch. "loads"
alone: it was not run, for lack of expected outputs. "needs" names the functions that a host lacks.

{table(models(options.folder))}
"""
    if options.output is None:
        print(page)
        return
    with open(options.output, "w", encoding="utf-8") as stream:
        stream.write(page)


if __name__ == "__main__":
    main()
