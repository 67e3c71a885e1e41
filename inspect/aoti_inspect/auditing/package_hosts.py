"""Which hosts refuse a package for the way in which it is packed, whatever its plugins are."""

from __future__ import annotations

from aoti_abi import hosts
from aoti_abi.records import TYPE_CHECKING
from aoti_abi.versions import parse_version

if TYPE_CHECKING:
    from aoti_inspect.artifacts.artifact import Artifact
    from aoti_inspect.findings import HostVerdict

#: The first PyTorch that refuses a model with two wrappers; older ones load one of them.
_ONE_WRAPPER = "2.13"


def refuse_layout(verdicts: tuple[HostVerdict, ...], artifact: Artifact) -> tuple[HostVerdict, ...]:
    """Return a plugin's verdicts, with "will not load" where PyTorch can't open the package around it.

    Other hosts get the plugin from `aoti_loader`, which reads the package as the audit does.
    """
    if artifact.kind != "pt2":
        return verdicts
    broken = [fact for fact in artifact.facts if fact.kind == "bytes-before"]
    wrappers = [fact for fact in artifact.facts if fact.kind == "several-libraries" and fact.numbers[0]]
    if not broken and not wrappers:
        return verdicts
    result = []
    for verdict in verdicts:
        host = hosts.find(verdict.host)
        reason = None
        if host is not None and host.descriptor.is_libtorch and host.version:
            if broken:
                reason = (
                    "PyTorch reads the archive's directory where its end record says, and it lies elsewhere"
                )
            elif parse_version(host.version) >= parse_version(_ONE_WRAPPER):
                reason = f"model {wrappers[0].subject!r} has several wrapper libraries"
        result.append(
            verdict
            if reason is None
            else verdict._replace(outcome="will not load", reasons=(reason, *verdict.reasons))
        )
    return tuple(result)
