"""Make the tables of aoti_abi from the headers that PyTorch and ExecuTorch ship.

    python tools/scan_torch.py 2.N                   # add PyTorch 2.N: its newest patch release
    python tools/scan_torch.py executorch==1.N       # the same for ExecuTorch's CUDA backend
    python tools/scan_torch.py torch.whl unpacked/   # from wheels, or folders that hold what a wheel does
    python tools/scan_torch.py                       # every release that the tables name
    python tools/scan_torch.py --check ...           # write nothing; fail if a table would change

Wheels come from the package index through pip, and are deleted again. Exit codes: 0 the tables hold what the
releases declare, 1 they don't (with --check), or container_api.py wants a change by hand; 2 wrong usage, or a
release that can't be scanned: then nothing is written.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DATA = ROOT / "abi" / "aoti_abi" / "data"
sys.path[:0] = [str(ROOT / "abi"), str(Path(__file__).resolve().parent)]

from container_check import differences  # noqa: E402 - found through the path above
from packages import ScanError, obtain  # noqa: E402 - as above
from releases import Release, scan, wanted  # noqa: E402 - as above
from shim_tables import (  # noqa: E402 - as above
    Scan,
    host_tables,
    minor,
    read_host_tables,
    read_slim_table,
    slim_table,
)

SHIMS, SIGNATURES, SLIM = "shims.tsv", "signatures.tsv", "executorch_shims.tsv"


def _read(data: Path, name: str) -> str:
    path = data / name
    return path.read_text(encoding="ascii") if path.exists() else ""


def _merge_slim(slim: dict[str, Scan], release: Release) -> None:
    """Add a release of ExecuTorch.

    A wheel without the import library names only the operators' shims. They are then compared with what the
    table has for that minor version, which must come from another wheel of it or from the source.
    """
    version = minor(release.scan.release)
    if release.complete:
        slim[version] = release.scan
        return
    if version not in slim:
        raise ScanError(
            f"the wheel of executorch {release.scan.release} has no import library of its shims: "
            "give a source checkout of that release, a folder that holds it as executorch/"
        )
    missing = release.scan.shims.keys() - slim[version].shims.keys()
    if missing:
        raise ScanError(
            f"executorch {release.scan.release} names shims that the table lacks: "
            f"{', '.join(sorted(missing))}; give a source checkout of that release"
        )
    slim[version] = Scan(release.scan.release, slim[version].shims)


def tables(releases: list[Release], data: Path) -> dict[str, str]:
    """Return the text of every table with these releases in it, by file name."""
    shims, slims = _read(data, SHIMS), _read(data, SLIM)
    torch = read_host_tables(shims, _read(data, SIGNATURES)) if shims else {}
    slim = read_slim_table(slims) if slims else {}
    for release in releases:
        if release.package == "torch":
            torch[minor(release.scan.release)] = release.scan
        else:
            _merge_slim(slim, release)
    wanted_texts = {}
    if torch:
        wanted_texts[SHIMS], wanted_texts[SIGNATURES] = host_tables(torch)
    if slim:
        wanted_texts[SLIM] = slim_table(slim)
    return wanted_texts


def _known(data: Path) -> list[str]:
    """Return the sources of the tables, as their first lines name them."""
    found = []
    for name, package in ((SHIMS, "torch"), (SLIM, "executorch")):
        releases = _read(data, name).partition("\n")[0].split("\t")[1:]
        found += [f"{package}=={release}" for release in releases]
    return found


def _say(text: str) -> None:
    sys.stderr.write(text + "\n")


def main(arguments: list[str] | None = None) -> int:
    """Scan, then write the tables or compare them."""
    parser = argparse.ArgumentParser(
        description=(__doc__ or "").partition("\n\n")[0], epilog="see docs/tables.md", allow_abbrev=False
    )
    parser.add_argument("source", nargs="*", help="2.N, torch==2.N.P, executorch==1.N, a wheel or a folder")
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if a table would change")
    parser.add_argument("--data", type=Path, default=DATA, help="the folder of the tables")
    options = parser.parse_args(arguments)
    releases = []
    try:
        for source in options.source or _known(options.data):
            release = scan(obtain(source, wanted))
            releases.append(release)
            _say(f"{release.package} {release.scan.release}: {len(release.scan.shims)} shims")
        texts = {name: text.encode("ascii") for name, text in tables(releases, options.data).items()}
    except (ScanError, ValueError) as error:
        _say(f"scan_torch.py: {error}")
        return 2
    stale = [name for name, text in texts.items() if text != _read(options.data, name).encode()]
    for name in stale:
        if options.check:
            _say(f"{name} is out of date: run python tools/scan_torch.py with the same arguments")
        else:
            (options.data / name).write_bytes(texts[name])
            _say(f"{name} is written: git diff shows what changed")
    by_hand = [text for release in releases if release.package == "torch" for text in differences(release)]
    for text in dict.fromkeys(by_hand):
        _say(f"container_api.py: {text}")
    return 1 if by_hand or (stale and options.check) else 0


if __name__ == "__main__":
    sys.exit(main())
