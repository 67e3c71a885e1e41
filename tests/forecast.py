"""Compare forecast and reality: what the audit says of a file, and what the dynamic linker does with it.

``python tests/forecast.py [FILE...] [--mutants N] [--seed S]``

Each file, and N copies of it with one field changed, is audited for the built-in host on this machine, mended
as `aoti_loader` does, and opened with ``dlopen`` in a small C program where that host's symbols are global. A
line for each kind of disagreement:

* ``false load``: the audit says that it loads; the linker refuses it, or the process dies.
* ``false refusal``: the audit says that it will not load; it does.

The exit code is 1 if there is any that `EXPLAINED` does not cover.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import struct
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
#: What reading a file cannot tell, or what opening it does not try, by the disagreement and the field.
EXPLAINED = {
    ("false load", "init array"): "a constructor runs, and only running it tells what it does",
    ("false load", "init"): "as the init array",
    ("false refusal", "init array"): "as the init array",
    ("false refusal", "LOAD p_filesz"): "bytes past the end of the file kill only who touches them",
    ("false refusal", "LOAD p_offset"): "as p_filesz",
}
_LIMIT = 20  # seconds for one child


class Mutant(NamedTuple):
    """A file with one field changed: which, and the bytes."""

    field: str
    data: bytes


def mutants(data: bytes, count: int, seed: int) -> Iterator[Mutant]:
    """Yield copies of a little-endian ELF64 file with one field of its headers or tables changed."""
    rng = random.Random(seed)
    fields = list(_fields(data))
    for _ in range(count):
        name, offset, size = rng.choice(fields)
        old = int.from_bytes(data[offset : offset + size], "little")
        bits = 8 * size
        new = rng.choice(
            (
                0,
                1,
                old ^ (1 << rng.randrange(bits)),
                old + rng.choice((1, 8, 16, 4096, -1)),
                rng.getrandbits(bits),
            )
        ) % (1 << bits)
        if new != old:
            changed = bytearray(data)
            changed[offset : offset + size] = new.to_bytes(size, "little")
            yield Mutant(name, bytes(changed))


def _fields(data: bytes) -> Iterator[tuple[str, int, int]]:
    """Yield name, offset and size of each field of the header, the segments and the dynamic section."""
    for name, offset, size in (
        ("EI_CLASS", 4, 1), ("EI_DATA", 5, 1), ("EI_VERSION", 6, 1), ("EI_OSABI", 7, 1),
        ("EI_ABIVERSION", 8, 1), ("e_type", 16, 2), ("e_machine", 18, 2), ("e_version", 20, 4),
        ("e_phoff", 32, 8), ("e_phentsize", 54, 2), ("e_phnum", 56, 2),
    ):  # fmt: skip
        yield name, offset, size
    start, count = struct.unpack_from("<Q", data, 32)[0], struct.unpack_from("<H", data, 56)[0]
    for index in range(count):
        at = start + 56 * index
        kind, _, offset, _, _, size = struct.unpack_from("<IIQQQQ", data, at)
        label = {1: "LOAD", 2: "DYNAMIC", 7: "TLS", 0x6474E551: "STACK"}.get(kind, "other segment")
        for name, where, width in (
            ("p_type", 0, 4), ("p_flags", 4, 4), ("p_offset", 8, 8), ("p_vaddr", 16, 8), ("p_filesz", 32, 8),
            ("p_memsz", 40, 8), ("p_align", 48, 8),
        ):  # fmt: skip
            yield f"{label} {name}", at + where, width
        if kind == 2:
            for entry in range(offset, offset + size, 16):
                tag = struct.unpack_from("<Q", data, entry)[0]
                if tag == 0:
                    break
                group = {
                    25: "init array",
                    26: "init array",
                    27: "init array",
                    28: "init array",
                    12: "init",
                    13: "init",
                }
                yield f"{group.get(tag, f'DT {tag:#x} tag')}", entry, 8
                yield f"{group.get(tag, f'DT {tag:#x}')}", entry + 8, 8


def forecast(path: str) -> bool | None:
    """Return whether the audit says that the built-in host loads a file; None if it does not decide."""
    from aoti_inspect import audit

    result = audit(path, hosts=("builtin",))
    if result.error is not None:
        return False
    verdicts = [verdict.outcome for plugin in result.plugins for verdict in plugin.verdicts]
    if not verdicts:
        return False
    errors = any(finding.severity == "error" for finding in result.all_findings())
    if all(outcome.startswith("loads") for outcome in verdicts):
        return not errors
    return False if "will not load" in verdicts else None


#: A process with nothing in it but the C library: the host and what the loader preloads, then the plugin.
LAUNCHER = """
#include <dlfcn.h>
#include <string.h>
int main(int argc, char **argv) {
    for (int i = 1; i < argc - 1; i++) {
        if (!dlopen(argv[i], RTLD_NOW | RTLD_GLOBAL)) { return 2; }
    }
    void *plugin = dlopen(argv[argc - 1], RTLD_NOW | RTLD_LOCAL);
    if (!plugin) { return 1; }
    static const char *required[] = {"CreateWithDevice", "Delete", "GetNumInputs", "GetNumOutputs", "Run"};
    for (int i = 0; i < 5; i++) {
        char name[64] = "AOTInductorModelContainer";
        if (!dlsym(plugin, strcat(name, required[i]))) { return 3; }
    }
    return 0;
}
"""
_SONAMES = {"libstdc++": "libstdc++.so.6", "libc++": "libc++.so.1"}
_ENDS = {0: "loads", 1: "is refused", 2: "lacks a library", 3: "lacks a function", 127: "ends in the linker"}


def reality(launcher: Path, path: Path) -> str:
    """Open a file as `aoti_loader` does, mended, in a process of its own; return how that ended."""
    from aoti_abi.errors import AotiError
    from aoti_inspect import read_facts
    from aoti_inspect.elf.image import ElfImage
    from aoti_loader.hosts import builtin
    from aoti_loader.mending import plan_mends
    from aoti_loader.preload import forgotten

    preloads: list[str] = []
    data = bytearray(path.read_bytes())
    try:
        facts = read_facts(str(path))
        preloads = [_SONAMES.get(item.library, item.library) for item in forgotten(facts)]
        for mend in plan_mends(ElfImage(bytes(data), str(path)), facts, drop=facts.imports.libtorch):
            for patch in mend.patches:
                data[patch.offset : patch.offset + len(patch.data)] = patch.data
    except AotiError:
        pass  # what the readers refuse is shown to the linker as it is
    path.write_bytes(data)
    command = [str(launcher), builtin.find(), *preloads, str(path)]
    try:
        done = subprocess.run(command, capture_output=True, timeout=_LIMIT)
    except subprocess.TimeoutExpired:
        return "hangs"
    if done.returncode < 0:
        return f"dies of {signal.Signals(-done.returncode).name}"
    return _ENDS.get(done.returncode, f"ends the process with {done.returncode}")


def compile_launcher(folder: Path) -> Path:
    """Compile the process in which files are opened."""
    source, program = folder / "launcher.c", folder / "launcher"
    source.write_text(LAUNCHER)
    subprocess.run([os.environ.get("CC", "cc"), str(source), "-o", str(program), "-ldl"], check=True)
    return program


def compare(launcher: Path, path: Path, data: bytes) -> tuple[bool | None, str, str | None]:
    """Return the forecast, what happened, and the disagreement if there is one."""
    path.write_bytes(data)
    try:
        told = forecast(str(path))
        happened = reality(launcher, path)
    finally:
        path.unlink()
    if told is True and happened != "loads":
        return told, happened, "false load"
    if told is False and happened == "loads":
        return told, happened, "false refusal"
    return told, happened, None


def main(arguments: list[str]) -> int:
    """Run the comparison; return 1 for a disagreement that is not explained."""
    import tempfile

    parser = argparse.ArgumentParser(description="Compare audits with the dynamic linker.")
    parser.add_argument("files", nargs="*", type=Path, default=sorted((ROOT / "fixtures").glob("*/*.so")))
    parser.add_argument(
        "--mutants", type=int, default=0, metavar="N", help="copies with one field changed, a file"
    )
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(arguments)
    found: Counter[tuple[str, str, str]] = Counter()
    total = 0
    with tempfile.TemporaryDirectory() as folder:
        launcher = compile_launcher(Path(folder))
        for file in options.files:
            data = file.read_bytes()
            for mutant in (Mutant("unchanged", data), *mutants(data, options.mutants, options.seed)):
                total += 1
                _, happened, wrong = compare(launcher, Path(folder) / f"{total}.so", mutant.data)
                if wrong:
                    found[wrong, mutant.field, happened] += 1
    unexplained = 0
    for (wrong, field, happened), count in found.most_common():
        why = EXPLAINED.get((wrong, field))
        unexplained += 0 if why else count
        print(f"{wrong:14} {count:5}  {field:22} {happened}{f'  ({why})' if why else ''}")
    print(f"{total} files, {sum(found.values())} disagreements, {unexplained} of them unexplained")
    return 1 if unexplained else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
