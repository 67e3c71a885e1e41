"""From the names of hosts to verdicts: the one place where a host's name is understood."""

from __future__ import annotations

import os

from aoti_abi.errors import AotiError, InvalidArgument, NotFound
from aoti_abi.records import TYPE_CHECKING
from aoti_inspect.budget import Budget
from aoti_inspect.findings import HostVerdict

if TYPE_CHECKING:
    from aoti_inspect.facts.records import PluginFacts
    from aoti_inspect.facts.target import Target
    from aoti_inspect.hosts.tables import TableHost

LOCAL = "local"
_TORCH = "torch=="


def check_host_names(names: tuple[str, ...]) -> None:
    """Reject what is no host before any file is read.

    Raises:
        InvalidArgument: an unknown name, or a PyTorch version that no table covers.
        NotFound: a path to a host that is not there.
    """
    for name in names:
        if name == LOCAL or _table(name) is not None:
            continue
        if not os.path.exists(name):
            looks_like_path = "/" in name or name.endswith(".so")
            kind = NotFound if looks_like_path else InvalidArgument
            raise kind(
                f"no such host: {name!r}",
                hint="write torch==X.Y, builtin, executorch, local, or the path of an ELF program or library",
            )


def _table(name: str) -> TableHost | None:
    from aoti_inspect.hosts import tables

    if name.startswith(_TORCH):
        return tables.torch_host(name.removeprefix(_TORCH))
    if name == "builtin":
        return tables.builtin_host()
    return tables.executorch_host() if name == "executorch" else None


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
        table = _table(name)
        if table is not None:
            verdicts.append(judge(common, table)._replace(host=name))
            continue
        from aoti_inspect.hosts.closure import judge_files

        try:
            verdicts.append(judge_files(common, None if name == LOCAL else name, budget))
        except AotiError as error:
            verdicts.append(HostVerdict(name, "not checked", (str(error).replace("\nhint: ", "; "),)))
    return tuple(verdicts)
