"""The container that a model runs: what it holds on to, and how it ends."""

from __future__ import annotations

from ctypes import c_int32
from typing import TYPE_CHECKING, Any, Protocol

from aoti_abi.codes import parse_device
from aoti_abi.errors import InvalidArgument
from aoti_abi.lifetimes import Unique
from aoti_abi.symbols import CONTAINER
from aoti_executor.host_tensors import HostFunctions, HostTensors
from aoti_executor.native import Gate, address_of
from aoti_loader.container import Functions, OpenContainer

if TYPE_CHECKING:
    from aoti_inspect.facts.records import PluginFacts

_NOT_CALLED = -(1 << 31)


class LoadedPlugin(Functions, Protocol):
    """What a container needs of `aoti_loader.Plugin`."""

    @property
    def host(self) -> HostFunctions:
        """The host that the plugin was loaded into."""

    @property
    def facts(self) -> PluginFacts:
        """What was read from the file before it was loaded."""

    def hold(self, what: str) -> Any:
        """Return a lease that keeps the plugin loaded until its ``release()``."""

    @property
    def image(self) -> tuple[int, int]:
        """Where it is mapped: address and bytes."""

    def binding(self, symbol: str) -> int | None:
        """Return where the plugin's calls of a function go; None if nothing in the process defines it."""


class ContainerHandle(OpenContainer, Unique):
    """Owns one container of a plugin, which stays loaded until it is deleted.

    Args:
        plugin: the loaded plugin, kept open as long as the container is.
        num_models: how many runs may overlap (behaviour E7).
        device: as "cpu" or "cuda:1".
        kernels: folder of GPU kernels that are not inside the plugin.

    Raises:
        InvalidArgument: ``num_models`` is not positive or the device is malformed.
        ExecutionFailed: the plugin could not create the container.
    """

    def __init__(self, plugin: LoadedPlugin, num_models: int, device: str, kernels: str | None) -> None:
        if not isinstance(num_models, int) or isinstance(num_models, bool) or not 1 <= num_models <= 4096:
            raise InvalidArgument(f"num_models is {num_models!r}; it is a number of at least 1")
        if not isinstance(device, str):
            raise InvalidArgument(f"device is {device!r}; it is text, as 'cpu' or 'cuda:0'")
        if kernels is not None and not isinstance(kernels, str):
            raise InvalidArgument(f"kernels is a {type(kernels).__name__}; it is the path of a folder")
        key = (plugin.facts.metadata or {}).get("AOTI_DEVICE_KEY")
        if key == "cpu" and parse_device(device)[0]:
            raise InvalidArgument(
                f"the plugin was compiled for the CPU, so it can't run on {device!r}", path=plugin.path
            )
        self.plugin = plugin
        self.device_type, _ = parse_device(device)
        self.host = HostTensors(plugin.host)
        self.gate = Gate()
        self._lease = plugin.hold("a container")
        try:
            super().__init__(plugin, num_models=num_models, device=device, kernels=kernels)
        except BaseException:
            self._lease.release()
            raise

    def close(self) -> None:
        """Wait for the runs in progress and delete the container; closing twice is fine (behaviour D3).

        Raises:
            ExecutionFailed: the plugin returned an error; the container is gone all the same.
            InvalidState: this thread is inside a run.
        """
        if self.closed:
            return
        code = c_int32(_NOT_CALLED)
        try:
            self.gate.close(address_of(self.functions[f"{CONTAINER}Delete"]), self.address, code)
        finally:
            if code.value != _NOT_CALLED:
                self._address = None
                self._lease.release()
        self.check(code.value, "Delete")

    def abandon(self) -> None:
        """Count as closed, without waiting for anything: the container stays, and so does the plugin."""
        self._address = None
