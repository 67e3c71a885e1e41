"""From the names of hosts to verdicts: the one place where it is decided how a named host is judged."""

from __future__ import annotations

import os

from aoti_abi import hosts
from aoti_abi.errors import AotiError, InvalidArgument, NotFound
from aoti_abi.records import TYPE_CHECKING
from aoti_inspect.budget import Budget
from aoti_inspect.findings import HostVerdict

if TYPE_CHECKING:
    from aoti_inspect.facts.records import PluginFacts
    from aoti_inspect.facts.target import Target

#: A plain process on this machine, with what the dynamic linker finds for the plugin.
LOCAL = "local"


def default_hosts() -> tuple[str, ...]:
    """Return the names of the hosts that an audit shows unasked."""
    return (*hosts.audited(), LOCAL)


def check_host_names(names: tuple[str, ...]) -> None:
    """Reject what is no host before any file is read.

    Raises:
        InvalidArgument: an unknown name, or a version that no table covers.
        NotFound: a path to a host that is not there.
    """
    known = ", ".join((*hosts.spellings(), LOCAL))
    for name in names:
        if name == LOCAL or hosts.find(name) is not None:
            continue
        if not os.path.exists(name):
            looks_like_path = "/" in name or name.endswith(".so")
            kind = NotFound if looks_like_path else InvalidArgument
            raise kind(
                f"no such host: {name!r}",
                hint=f"write {known}, or the path of an ELF program or library",
            )


def judge_all(
    plugin: PluginFacts, names: tuple[str, ...], target: Target, budget: Budget | None = None
) -> tuple[HostVerdict, ...]:
    """Return a verdict for each host, in order.

    A host that can't be read is "not checked", with the reason.

    Args:
        plugin: its facts.
        names: the hosts.
        target: where it is meant to run.
        budget: what the search in hosts that are files may cost; by default that of a plugin by itself.
    """
    from aoti_inspect.hosts.judge import for_all_hosts, judge

    budget = budget or Budget(plugin.elf.size)
    common = for_all_hosts(plugin, target)
    verdicts = []
    for name in names:
        known = None if name == LOCAL else hosts.find(name)
        if known is not None:
            verdicts.append(judge(common, known)._replace(host=name))
            continue
        from aoti_inspect.hosts.closure import judge_files

        try:
            verdicts.append(judge_files(common, None if name == LOCAL else name, budget))
        except AotiError as error:
            verdicts.append(HostVerdict(name, "not checked", (str(error).replace("\nhint: ", "; "),)))
    return tuple(verdicts)
