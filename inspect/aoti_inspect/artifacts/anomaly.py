"""What is wrong with an artifact but does not keep it from being read."""

from __future__ import annotations

from aoti_abi.records import NamedTuple


class Anomaly(NamedTuple):
    """One thing that is odd about an artifact; a rule of the same name turns it into a finding.

    Attributes:
        code_hint: the name of the rule under `aoti_inspect.rules` that reports it ("no-library").
        message: one sentence; raw text of the file may be in it.
        names: the members, keys or files concerned.
    """

    code_hint: str
    message: str
    names: tuple[str, ...] = ()
