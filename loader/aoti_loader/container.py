"""A container of a loaded plugin: made, asked about itself, deleted.

Its answers are checked like any untrusted input: counts have a bound, texts are read without ever faulting
and must be UTF-8. There are no tensors here; `aoti_executor` runs containers.
"""

from __future__ import annotations

from ctypes import byref, c_bool, c_int32, c_size_t, c_void_p
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from aoti_abi.codes import CONSTANT_TYPES
from aoti_abi.errors import ExecutionFailed, InvalidProgram, InvalidState, NotSupported
from aoti_abi.memory import read_string, read_text
from aoti_abi.names import FQN, InternalName
from aoti_abi.symbols import CONTAINER, LAST_ERROR

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_MOST_TENSORS = 1 << 16
_MOST_CONSTANTS = 1 << 20
_LONGEST_SPEC = 1 << 24
_LONGEST_ERROR = 1 << 20


class ErrorSource(Protocol):
    """A host, as far as a container's errors go."""

    def last_error(self) -> str | None:
        """Return the host's text for the last error on this thread, or None if it keeps none."""


class Functions(Protocol):
    """What a container needs of `aoti_loader.Plugin`."""

    @property
    def path(self) -> str:
        """The plugin's file, as errors name it."""

    @property
    def functions(self) -> Mapping[str, Any]:
        """The container functions that the plugin exports, bound."""

    @property
    def host(self) -> ErrorSource:
        """The host that the plugin was loaded into."""

    def warn_fallback(self, feature: str) -> None:
        """Warn that a feature is lost (behaviour L8)."""


class ConstantRow(NamedTuple):
    """What a container tells of one constant; None for what it does not.

    Attributes:
        position: its place in the plugin's table.
        name: its name inside the plugin.
        fqn: its name in the Python module; empty if the plugin does not tell.
        dtype: ``c10::ScalarType`` value.
        nbytes: bytes of its slot, padding included.
        type: one of `aoti_abi.codes.CONSTANT_TYPES`, or the number that is none of them.
        folded: whether the plugin computes it from other constants.
    """

    position: int
    name: InternalName
    fqn: FQN
    dtype: int | None
    nbytes: int | None
    type: str | None
    folded: bool | None


def read_last_error(functions: Mapping[str, Any]) -> str | None:
    """Return this thread's last error in a plugin's own words.

    None if there is none, or if the plugin keeps none (before PyTorch 2.13). What is not UTF-8 is replaced.

    Raises:
        InvalidProgram: the plugin points to memory that can't be read, or to text without an end.
    """
    get = functions.get(LAST_ERROR)
    text = c_void_p()
    if get is None or get(byref(text)) or not text.value:
        return None
    raw = read_string(text.value, "the plugin's last error", _LONGEST_ERROR)
    return raw.decode("utf-8", "replace").strip() or None


class OpenContainer:
    """One container, and its answers.

    Args:
        plugin: the loaded plugin, which must stay loaded as long as the container is there.
        num_models: how many runs may overlap.
        device: as "cpu" or "cuda:1".
        kernels: folder of GPU kernels that are not inside the plugin.

    Raises:
        ExecutionFailed: the plugin could not create the container.
    """

    def __init__(
        self, plugin: Functions, *, num_models: int = 1, device: str = "cpu", kernels: str | None = None
    ) -> None:
        self._address: int | None = None
        self.path = plugin.path
        self.device = device
        self.functions = plugin.functions
        self._plugin = plugin
        handle = c_void_p()
        try:
            code = self.functions[f"{CONTAINER}CreateWithDevice"](
                byref(handle),
                num_models,
                device.encode("utf-8", "surrogateescape"),
                None if kernels is None else kernels.encode("utf-8", "surrogateescape"),
            )
        except BaseException:
            if handle.value:  # a signal's handler raised when the call was done
                self.functions[f"{CONTAINER}Delete"](handle)
            raise
        if code or not handle.value:
            raise ExecutionFailed(
                f"the plugin could not create a container on {device!r}: error {code}",
                path=self.path,
                cause=self.cause(),
            )
        self._address = handle.value

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

    def close(self) -> None:
        """Delete the container; closing twice is fine (behaviour D3).

        Raises:
            ExecutionFailed: the plugin returned an error; the container is gone all the same.
        """
        handle, self._address = self._address, None
        if handle is not None:
            self.check(self.functions[f"{CONTAINER}Delete"](handle), "Delete")

    def cause(self) -> str | None:
        """Return the plugin's words for the last failure, and the host's own, which it drops."""
        words = [read_last_error(self.functions), self._plugin.host.last_error()]
        return "; ".join(dict.fromkeys(filter(None, words))) or None

    def check(self, code: int, function: str) -> None:
        """Raise if a container function returned an error.

        Raises:
            ExecutionFailed: the code is not 0.
        """
        if code:
            raise ExecutionFailed(
                f"{CONTAINER}{function} returned {code}", path=self.path, cause=self.cause()
            )

    def function(self, name: str) -> Callable[..., int] | None:
        """Return a container function by its name without ``AOTInductorModelContainer``; None without it."""
        return self.functions.get(CONTAINER + name)

    def require(self, name: str, feature: str) -> Callable[..., int]:
        """Return a container function, or say which feature is lost without it.

        Raises:
            NotSupported: the plugin lacks it.
        """
        function = self.function(name)
        if function is None:
            self._plugin.warn_fallback(feature)
            raise NotSupported(f"the plugin does not export {CONTAINER}{name}", path=self.path)
        return function

    def ask(self, name: str, out: Any, *arguments: int) -> Any:
        """Call a function whose last parameter is what it answers; return that, None without the function.

        Raises:
            ExecutionFailed: the plugin returned an error.
        """
        function = self.function(name)
        if function is None:
            return None
        self.check(function(self.address, *arguments, byref(out)), name)
        return out.value

    def count(self, what: str) -> int:
        """Return how many "Inputs" or "Outputs" a run has.

        Raises:
            InvalidProgram: an absurd number.
            ExecutionFailed: the plugin returned an error.
        """
        self.require(f"GetNum{what}", "run")
        count = int(self.ask(f"GetNum{what}", c_size_t()))
        if count > _MOST_TENSORS:
            raise InvalidProgram(f"the plugin claims {count} {what.lower()}", path=self.path)
        return count

    def names(self, what: str, count: int) -> tuple[str, ...]:
        """Return the plugin's names of each "Input" or "Output", as "arg0_1"; made up where it tells none.

        Raises:
            InvalidProgram: a name is no text.
            ExecutionFailed: the plugin returned an error.
        """
        if self.function(f"Get{what}Name") is None:
            return tuple(f"{what.lower()}{index}" for index in range(count))
        return tuple(
            self._text(f"Get{what}Name", index, f"the name of {what.lower()} {index}")
            for index in range(count)
        )

    def constants(self) -> tuple[ConstantRow, ...] | None:
        """Return the table of constants; None if the plugin is too old to have one.

        Raises:
            InvalidProgram: an answer is malformed.
            ExecutionFailed: the plugin returned an error.
        """
        if self.function("GetNumConstants") is None or self.function("GetConstantName") is None:
            return None
        count = self.ask("GetNumConstants", c_size_t())
        if count > _MOST_CONSTANTS:
            raise InvalidProgram(f"the plugin claims {count} constants", path=self.path)
        rows: dict[str, ConstantRow] = {}
        for index in range(count):
            row = self._constant(index)
            if rows.setdefault(row.name, row) is not row:
                raise InvalidProgram(f"the plugin has two constants named {row.name!r}", path=self.path)
        return tuple(rows.values())

    def _constant(self, index: int) -> ConstantRow:
        name = InternalName(self._text("GetConstantName", index, f"constant {index}'s name"))
        address = self.ask("GetConstantOriginalFQN", c_void_p(), index)
        kind = self.ask("GetConstantType", c_int32(), index)
        return ConstantRow(
            index,
            name,
            FQN(read_text(address, f"constant {index}'s FQN") if address else ""),
            self.ask("GetConstantDtype", c_int32(), index),
            self.ask("GetConstantDataSize", c_size_t(), index),
            None if kind is None else CONSTANT_TYPES.get(kind, str(kind)),
            self.ask("GetConstantFromFolded", c_bool(), index),
        )

    def _text(self, function: str, index: int, what: str) -> str:
        return read_text(self.ask(function, c_void_p(), index) or 0, what)

    def call_spec(self) -> tuple[str, str] | None:
        """Return the pytree specs of inputs and outputs, as JSON text; None if the plugin has none.

        Raises:
            InvalidProgram: a spec is no text.
            ExecutionFailed: the plugin returned an error.
        """
        get = self.function("GetCallSpec")
        if get is None:
            return None
        given, result = c_void_p(), c_void_p()
        self.check(get(self.address, byref(given), byref(result)), "GetCallSpec")
        return _spec(given.value), _spec(result.value)


def _spec(address: int | None) -> str:
    return read_text(address, "the call spec", _LONGEST_SPEC) if address else ""
