"""What there is to know of a host before it is in a process: one record for each family of hosts.

A host is whatever provides ``aoti_torch_*`` to plugins. The modules of `aoti_abi.hosts` describe one family
each; the inspector judges by the description, and the loader opens hosts of some families.
"""

from __future__ import annotations

from aoti_abi.errors import InvalidArgument
from aoti_abi.records import TYPE_CHECKING, NamedTuple
from aoti_abi.versions import parse_version

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Literal

    #: Whether a host defines a symbol of its own API (shims, Sleef); not the C or C++ library's.
    Provides = Callable[[str], bool]


class HostDescriptor(NamedTuple):
    """One family of hosts.

    Attributes:
        name: of the family, and of its module ("torch").
        title: the name in a sentence ("PyTorch").
        shims: returns which symbols a host of this family provides, for a machine (as in
            ``os.uname().machine``) and one of ``versions``; the version is None if there are none.
        versions: the releases that the tables cover, oldest first; none if it comes in one form only.
        default_version: what the bare name means; None if a version must be given with it.
        audited: the names of those that an audit shows unasked.
        is_libtorch: whether its shims are LibTorch's, so that a plugin may name LibTorch in DT_NEEDED.
        drops_libtorch: whether it takes plugins that name LibTorch without letting LibTorch in.
        clears_executable_stack: whether it loads plugins that ask for an executable stack without one.
        cxx_runtime: the C++ runtime that is sure to be in its process ("libstdc++"), or None.
        cxx11_abi_since: for LibTorch: the first version whose every build has the new ``std::string``.
        cuda_build: which of its builds has the CUDA runtime and the shims for it; None if it has no build of
            its own for CUDA, so that whoever loads a plugin must bring the runtime.
        last_error: its functions that return, and forget, the text of a thread's last error; None if it keeps
            none.
        libraries: the files that define its shims, in the order in which they must be opened, by device.
        local_build: a file of a real build that can be named as a host where no table helps, or None.
    """

    name: str
    title: str
    shims: Callable[[str, str | None], Provides]
    versions: tuple[str, ...] = ()
    default_version: str | None = None
    audited: tuple[str, ...] = ()
    is_libtorch: bool = False
    drops_libtorch: bool = False
    clears_executable_stack: bool = False
    cxx_runtime: Literal["libstdc++", "libc++"] | None = None
    cxx11_abi_since: str | None = None
    cuda_build: str | None = None
    last_error: tuple[str, str] | None = None
    libraries: dict[str, tuple[str, ...]] = {}  # noqa: RUF012 - never changed
    local_build: str | None = None

    def release(self, text: str) -> str:
        """Return the release that a version belongs to: ``"2.13.0+cpu"`` is PyTorch 2.13.

        Raises:
            InvalidArgument: it is not a version, or one that the tables do not cover.
        """
        if not self.versions:
            raise InvalidArgument(f"{self.title} comes without versions: {text!r}", hint=f"write {self.name}")
        newest = self.versions[-1]
        try:
            minor = ".".join(map(str, parse_version(text.partition("+")[0])[:2]))
        except ValueError as error:
            raise InvalidArgument(
                f"not a version of {self.title}: {text!r}", hint=f"write {self.name}=={newest}"
            ) from error
        if minor not in self.versions:
            known = f"it covers {self.versions[0]} to {newest}"
            if self.local_build:
                known += f"; to check a real build, pass --host PATH/TO/{self.local_build}"
            raise InvalidArgument(f"the shim table does not cover {self.title} {minor}", hint=known)
        return minor


class KnownHost(NamedTuple):
    """One host that is known without a file of it: a family, and which release of it.

    Attributes:
        descriptor: the family.
        version: one of its versions; None if it comes in one form only.
        build: what the version says after a plus sign: "cpu", "cu130", "" if it says nothing.
    """

    descriptor: HostDescriptor
    version: str | None
    build: str = ""

    @property
    def name(self) -> str:
        """The name that asks for it, with its version: ``"torch==2.13"``."""
        family = self.descriptor.name
        return family if self.version is None else f"{family}=={self.version}"

    @property
    def cuda(self) -> str | None:
        """The CUDA release that this build is for: "13.0" for ``+cu130``; None if the name does not say."""
        digits = self.build.removeprefix("cu")
        if digits == self.build or not digits.isascii() or not digits.isdigit() or not 2 <= len(digits) <= 4:
            return None
        return f"{digits[:-1]}.{digits[-1]}"

    def provides(self, machine: str) -> Provides:
        """Return a test of whether it defines a symbol on a machine (as in ``os.uname().machine``)."""
        return self.descriptor.shims(machine, self.version)

    def at_least(self, version: str | None) -> bool:
        """Whether this is a version, and not older than another one; False if that is None."""
        if version is None or self.version is None:
            return False
        return parse_version(self.version) >= parse_version(version)
