"""What an audit says: findings, verdicts, and what it could not check."""

from __future__ import annotations

from aoti_abi.records import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from typing import Literal

    Severity = Literal["error", "warning", "info"]
    Outcome = Literal["loads", "loads with fallbacks", "will not load", "not checked"]


#: Severities from the lowest to the highest.
SEVERITIES: tuple[Severity, ...] = ("info", "warning", "error")


#: The rule about what was given up since it would cost too much; also of packages, and of what reads them.
TOO_COMPLEX_CODE = "AOTI707"
TOO_COMPLEX_NAME = "too-complex"


class Finding(NamedTuple):
    """One thing that a rule found.

    Attributes:
        code: the rule's stable code ("AOTI401").
        name: the rule's name ("executable-stack").
        severity: how serious it is.
        message: one sentence that names what is concerned; raw text of the file may be in it, so show it
            through `aoti_inspect.text.printable`.
        remedy: the compile option, flag or step that fixes it; None if there is nothing to do.
        symbols: the symbols, libraries or keys concerned, all of them, sorted.
    """

    code: str
    name: str
    severity: Severity
    message: str
    remedy: str | None = None
    symbols: tuple[str, ...] = ()


class NotChecked(NamedTuple):
    """A rule that could not be evaluated: never a pass.

    Attributes:
        code, name: the rule.
        reason: why, and what would make it checkable.
    """

    code: str
    name: str
    reason: str


class HostVerdict(NamedTuple):
    """Whether one host can load and use a plugin.

    Attributes:
        host: the host as it was asked for ("torch==2.13", "builtin", a path).
        outcome: the verdict.
        reasons: why it will not load, or was not checked; one sentence each, the most serious first.
        missing: undefined symbols of the plugin that nothing in this host defines, sorted.
        lost_features: features (`aoti_abi.features`) that the plugin does not allow in any host, by name.
        notes: what holds only under a condition ("the CUDA build of PyTorch"), one sentence each.
        libraries: for a host that is looked at file by file: each library that was found, where, and by which
            rule of the dynamic linker's search ("libm.so.6 => /lib/libm.so.6 (DT_RUNPATH)"), in lookup order.
    """

    host: str
    outcome: Outcome
    reasons: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    lost_features: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    libraries: tuple[str, ...] = ()
