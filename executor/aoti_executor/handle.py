"""The raw container: its handle, the functions that take it, and what it says about itself."""

from __future__ import annotations

from ctypes import byref, c_int32, c_size_t, c_void_p
from typing import TYPE_CHECKING, Any, Protocol

from aoti_abi.errors import ExecutionFailed, InvalidArgument, InvalidProgram, InvalidState, NotSupported
from aoti_abi.lifetimes import Unique
from aoti_abi.memory import read_text
from aoti_executor.host_tensors import HostFunctions, HostTensors, error_reader
from aoti_executor.native import Gate, address_of
from aoti_executor.transfers import parse_device

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from aoti_inspect.facts.records import PluginFacts

#: Every function of a container starts so.
PREFIX = "AOTInductorModelContainer"
_COUNT_LIMIT = 1 << 16
_SPEC_LIMIT = 1 << 24
_NOT_CALLED = -(1 << 31)


class LoadedPlugin(Protocol):
    """What a container needs of `aoti_loader.Plugin`."""

    @property
    def path(self) -> str:
        """The plugin's file, as errors name it."""

    @property
    def functions(self) -> Mapping[str, Any]:
        """The container functions that the plugin exports, bound."""

    @property
    def host(self) -> HostFunctions:
        """The host that the plugin was loaded into."""

    @property
    def facts(self) -> PluginFacts:
        """What was read from the file before it was loaded."""

    def warn_fallback(self, feature: str) -> None:
        """Warn that a feature is lost (behaviour L8)."""

    def hold(self, what: str) -> Any:
        """Return a lease that keeps the plugin loaded until its ``release()``."""

    @property
    def image(self) -> tuple[int, int]:
        """Where it is mapped: address and bytes."""

    def binding(self, symbol: str) -> int | None:
        """Return where the plugin's calls of a function go; None if nothing in the process defines it."""


class ContainerHandle(Unique):
    """Owns one container of a plugin: creates it, asks it, deletes it.

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
        self._address: int | None = None
        if not isinstance(num_models, int) or isinstance(num_models, bool) or not 1 <= num_models <= 4096:
            raise InvalidArgument(f"num_models is {num_models!r}; it is a number of at least 1")
        self.plugin = plugin
        self.path = plugin.path
        self.device = device
        self.device_type, _ = parse_device(device)
        self.functions = plugin.functions
        self.last_error = error_reader(plugin.functions)
        self.host = HostTensors(plugin.host)
        self.gate = Gate()
        self._lease = plugin.hold("a container")
        try:
            self._address = self._create(num_models, kernels)
        except BaseException:
            self._lease.release()
            raise

    def _create(self, num_models: int, kernels: str | None) -> int:
        handle = c_void_p()
        device = self.device
        folder = kernels.encode() if kernels is not None else None
        create = self.functions[f"{PREFIX}CreateWithDevice"]
        try:
            code = create(byref(handle), num_models, device.encode(), folder)
        except BaseException:
            if handle.value:  # a signal's handler raised when the call was done
                self.functions[f"{PREFIX}Delete"](handle)
            raise
        if code or not handle.value:
            raise ExecutionFailed(
                f"the plugin could not create a container on {device!r}: error {code}",
                path=self.path,
                cause=self.cause(),
            )
        return handle.value

    @property
    def address(self) -> int:
        """The handle.

        Raises:
            InvalidState: the container is closed.
        """
        if self._address is None:
            raise InvalidState("the model is closed", path=self.path)
        return self._address

    @property
    def closed(self) -> bool:
        """Whether the container is deleted."""
        return self._address is None

    def cause(self) -> str | None:
        """Return the plugin's words for the last failure, and the host's own, which it drops."""
        words = [text for text in (self.last_error(), self.host.last_error()) if text]
        return "; ".join(dict.fromkeys(words)) or None

    def check(self, code: int, function: str) -> None:
        """Raise if a container function returned an error.

        Raises:
            ExecutionFailed: the code is not 0.
        """
        if code:
            raise ExecutionFailed(f"{PREFIX}{function} returned {code}", path=self.path, cause=self.cause())

    def function(self, name: str) -> Callable[..., int] | None:
        """Return a function of the container API by its name without `PREFIX`; None if it is absent."""
        return self.functions.get(PREFIX + name)

    def require(self, name: str, feature: str) -> Callable[..., int]:
        """Return a function of the container API, or say which feature is lost without it.

        Raises:
            NotSupported: the plugin lacks it.
        """
        function = self.function(name)
        if function is None:
            self.plugin.warn_fallback(feature)
            raise NotSupported(f"the plugin does not export {PREFIX}{name}", path=self.path)
        return function

    def count(self, what: str) -> int:
        """Return how many "Inputs" or "Outputs" a run has.

        Raises:
            InvalidProgram: an absurd number.
            ExecutionFailed: the plugin returned an error.
        """
        count = c_size_t()
        self.check(self.require(f"GetNum{what}", "run")(self.address, byref(count)), f"GetNum{what}")
        if count.value > _COUNT_LIMIT:
            raise InvalidProgram(f"the plugin claims {count.value} {what.lower()}", path=self.path)
        return count.value

    def names(self, what: str, count: int) -> tuple[str, ...]:
        """Return the plugin's names of each "Input" or "Output", as "arg0_1"; made up where it tells none.

        Raises:
            InvalidProgram: a name is no text.
            ExecutionFailed: the plugin returned an error.
        """
        get = self.function(f"Get{what}Name")
        if get is None:
            return tuple(f"{what.lower()}{index}" for index in range(count))
        names = []
        for index in range(count):
            name = c_void_p()
            self.check(get(self.address, index, byref(name)), f"Get{what}Name")
            names.append(read_text(name.value or 0, f"the name of {what.lower()} {index}"))
        return tuple(names)

    def call_spec(self) -> tuple[str, str]:
        """Return the pytree specs of inputs and outputs, as JSON text; empty if the plugin has none.

        Raises:
            InvalidProgram: a spec is no text.
            ExecutionFailed: the plugin returned an error.
        """
        get = self.function("GetCallSpec")
        if get is None:
            self.plugin.warn_fallback("call-spec")
            return "", ""
        given, result = c_void_p(), c_void_p()
        self.check(get(self.address, byref(given), byref(result)), "GetCallSpec")
        return _spec(given.value), _spec(result.value)

    def close(self) -> None:
        """Wait for the runs in progress and delete the container; closing twice is fine (behaviour D3).

        Raises:
            ExecutionFailed: the plugin returned an error; the container is gone all the same.
            InvalidState: this thread is inside a run.
        """
        handle = self._address
        if handle is None:
            return
        code = c_int32(_NOT_CALLED)
        try:
            self.gate.close(address_of(self.functions[f"{PREFIX}Delete"]), handle, code)
        finally:
            if code.value != _NOT_CALLED:
                self._address = None
                self._lease.release()
        self.check(code.value, "Delete")

    def abandon(self) -> None:
        """Count as closed, without waiting for anything: the container stays, and so does the plugin."""
        self._address = None


def _spec(address: int | None) -> str:
    return read_text(address, "the call spec", _SPEC_LIMIT) if address else ""
