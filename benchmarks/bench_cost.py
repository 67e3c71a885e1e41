"""What the audit of hostile files costs: time, memory and outcome, each file in a process of its own.

Usage: python benchmarks/bench_cost.py [--only WORD] [--scale N]

Exits with 1 if an audit takes over three times 1 s + 2 s for 100 MB of the file, over 1 GiB of memory, or
ends in anything but a report. The files are built under build/cost, and kept there.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from costly_files import CASES

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
WORK = os.path.join(ROOT, "build", "cost")
#: How much more than the promise a busy machine may make of it.
SLACK = 3.0
MOST_MEMORY = 1 << 30
MOST_ADDRESSES = 4 << 30
LIMIT = 60
OUTCOMES = {0: "clean", 1: "findings", 2: "unreadable", 3: "not checked"}


def measure(path: str) -> tuple[float, int, str]:
    """Audit a file; return its processor time, peak memory in bytes, and what came of it."""
    command = [sys.executable, "-m", "aoti_inspect", "--format", "json", "-j", "1", path]
    child = subprocess.Popen(
        ["prlimit", f"--cpu={LIMIT}", f"--as={MOST_ADDRESSES}", *command],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert child.stderr is not None
    complaint = child.stderr.read()
    _, status, usage = os.wait4(child.pid, 0)
    code = os.waitstatus_to_exitcode(status)
    outcome = OUTCOMES.get(code, f"exit code {code}") if not complaint else complaint.splitlines()[-1]
    child.returncode = code
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss << 10, outcome


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--only", default="", help="only the files whose name has this word")
    parser.add_argument("--scale", type=int, default=65_000, help="entries of each table (default: 65,000)")
    options = parser.parse_args()
    os.makedirs(WORK, exist_ok=True)
    print(f"{'file':28} {'bytes':>11} {'seconds':>8} {'allowed':>8} {'MiB':>6}  outcome")
    failed = 0
    for case in CASES:
        if options.only not in case.name:
            continue
        path = os.path.join(WORK, f"{case.name.replace(' ', '_')}_{options.scale}{case.suffix}")
        if not os.path.exists(path):
            start = time.monotonic()
            data = case.build(options.scale)
            with open(path, "wb") as stream:
                stream.write(data)
            if time.monotonic() - start > 10:
                print(f"(building took {time.monotonic() - start:.0f} s)", file=sys.stderr)
        size = os.path.getsize(path)
        allowed = 1 + size * 2e-8
        seconds, memory, outcome = measure(path)
        bad = seconds > SLACK * allowed or memory > MOST_MEMORY or outcome not in OUTCOMES.values()
        failed += bad
        mark = "  <-- too much" if bad else ""
        print(
            f"{case.name:28} {size:11,} {seconds:8.2f} {allowed:8.2f} {memory >> 20:6}  {outcome}{mark}",
            flush=True,
        )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
