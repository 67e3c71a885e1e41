"""Zip archives: what they hold says whether one is PyTorch's package, or an archive with artifacts in it."""

from __future__ import annotations

from aoti_abi.errors import NotSupported
from aoti_abi.records import TYPE_CHECKING
from aoti_inspect.artifacts.members import ZipMembers
from aoti_inspect.artifacts.pt2 import is_package, read_package

if TYPE_CHECKING:
    from aoti_inspect.artifacts.artifact import Artifact
    from aoti_inspect.artifacts.sidecars import Beside
    from aoti_inspect.source import Source


def read_zip(source: Source, beside: Beside) -> Artifact:
    """Read a package, or any other archive unless it is nested in one.

    Raises:
        InvalidProgram: it is damaged.
        NotSupported: it is a checkpoint or a TorchScript archive, or of a kind of zip that is not read.
    """
    members = ZipMembers(source)
    names = members.names()
    if beside.nested or is_package(names):
        return read_package(members)
    if any(name.count("/") == 1 and name.endswith("/data.pkl") for name in names):
        scripted = any(name.count("/") == 1 and name.endswith("/constants.pkl") for name in names)
        what = "a TorchScript archive" if scripted else "a checkpoint of torch.save"
        raise NotSupported(
            f"this is {what}, not a compiled model",
            path=source.name,
            hint="compile it with torch._inductor.aoti_compile_and_package",
        )
    from aoti_inspect.artifacts.bundle import read_bundle

    return read_bundle(members, folder=False)
