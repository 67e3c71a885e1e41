"""`audit`: one call from a path to its audit."""

from __future__ import annotations

from aoti_abi.records import TYPE_CHECKING
from aoti_inspect.auditing.result import Settings

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aoti_inspect.auditing.result import ArtifactAudit
    from aoti_inspect.facts.target import Target


def audit(
    path: str, *, hosts: Sequence[str] = (), target: str | Target = "", second_view: bool = False
) -> ArtifactAudit:
    """Audit one file or unpacked package, without loading it.

    Args:
        path: a plugin, a package, a folder; ``"-"`` is standard input.
        hosts: hosts that it must load in, spelled as for ``--host`` ("torch==2.13", "builtin", a path): it is
            an error if one will not load it. Without any, all known hosts are judged and none is required.
        target: where it must run: as for ``--target`` ("glibc=2.35,isa=avx2"), laid over this machine's
            values, or a `Target`, of which None is not compared.
        second_view: whether to compare with the section table too, which takes some hundred milliseconds.

    Returns:
        The audit. That of a file that cannot be read has an ``error``; it is not raised.

    Raises:
        InvalidArgument: a host or target that is not known.
    """
    from aoti_inspect.auditing.path import audit_path

    return audit_path(path, settings(hosts, target, second_view=second_view))


def settings(hosts: Sequence[str], target: str | Target, *, second_view: bool = False) -> Settings:
    """Return what to check against, from what a user wrote; arguments and errors as of `audit`."""
    from aoti_inspect.facts.target import local_target, parse_target
    from aoti_inspect.hosts.verdicts import check_host_names, default_hosts

    if isinstance(target, str):
        target = parse_target(target, local_target())
    names = tuple(dict.fromkeys(hosts)) or default_hosts()
    check_host_names(names)
    return Settings(target, names, frozenset(hosts), second_view=second_view)
