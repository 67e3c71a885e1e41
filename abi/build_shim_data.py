"""Write ``aoti_abi/data`` from a record of PyTorch's shim headers.

    python abi/build_shim_data.py RECORD.json.gz

The record maps each shim's name to ``first_version``, ``last_version``, ``device``, ``signature``, ``gaps``
(versions in between that lack it) and ``changed`` (``in``, ``from``, ``to``). The files in ``aoti_abi/data``
are the source of truth; this program is how a newer PyTorch gets into them.
"""

from __future__ import annotations

import gzip
import json
import os
import sys
from typing import Any

DATA = os.path.join(os.path.dirname(os.path.abspath(__file__)), "aoti_abi", "data")


def shim_line(name: str, entry: dict[str, Any]) -> str:
    """Return one line of ``shims.tsv``."""
    changed = ",".join(change["in"] for change in entry["changed"])
    gaps = ",".join(entry.get("gaps", ()))
    return "\t".join((name, entry["first_version"], entry["last_version"], entry["device"], gaps, changed))


def signature_line(name: str, entry: dict[str, Any]) -> str:
    """Return one line of ``signatures.tsv``: the name, the first declaration, each change."""
    changes = entry["changed"]
    fields = [name, changes[0]["from"] if changes else entry["signature"]]
    for index, change in enumerate(changes):
        # A parameter may be renamed after the last change of type; the newest header's words are kept.
        fields += (change["in"], entry["signature"] if index == len(changes) - 1 else change["to"])
    if any("\t" in field or "\n" in field for field in fields):
        raise ValueError(f"the declaration of {name} holds a tab or a newline")
    return "\t".join(fields)


def main(path: str) -> None:
    """Write both files."""
    with gzip.open(path, "rt", encoding="ascii") as stream:
        record = json.load(stream)
    names = sorted(record)
    with open(os.path.join(DATA, "shims.tsv"), "w", encoding="ascii") as stream:
        stream.writelines(shim_line(name, record[name]) + "\n" for name in names)
    text = "".join(signature_line(name, record[name]) + "\n" for name in names)
    with open(os.path.join(DATA, "signatures.tsv.gz"), "wb") as raw:
        raw.write(gzip.compress(text.encode("ascii"), 9, mtime=0))


if __name__ == "__main__":
    if len(sys.argv) != 2:
        raise SystemExit(__doc__)
    main(sys.argv[1])
