"""A loaded plugin: its functions, its features, and its end."""

from __future__ import annotations

import ctypes
import os
import threading
import warnings
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from aoti_abi.container_api import REQUIRED
from aoti_abi.errors import FallbackWarning, InvalidProgram, InvalidState, NotFound
from aoti_abi.features import FEATURES, FeatureState, evaluate
from aoti_abi.lifetimes import Unique
from aoti_abi.prototypes import bind_container
from aoti_loader import linker, thread_exit
from aoti_loader.container import read_last_error
from aoti_loader.process import PROCESS
from aoti_loader.staging import release

if TYPE_CHECKING:
    from types import TracebackType

    from aoti_inspect.facts.records import PluginFacts
    from aoti_loader.hosts.host import Host
    from aoti_loader.mending import Mend
    from aoti_loader.staging import Staged


#: What a library calls to start a thread of its own: ``std::thread`` goes through the second.
_THREAD_STARTERS = ("pthread_create", "_ZNSt6thread15_M_start_thread", "thrd_create")


#: Plugins whose locks a child of fork must look at.
_live: WeakSet[Plugin] = WeakSet()


def _after_fork_in_child() -> None:
    for plugin in tuple(_live):
        plugin.note_fork()


os.register_at_fork(after_in_child=_after_fork_in_child)


def unload_waiting() -> None:
    """Unload what was closed earlier and had to wait for threads to end."""
    for plugin in tuple(PROCESS.waiting):
        plugin.close()


class Lease(Unique):
    """A claim on a plugin's code: while it is held, the plugin is not unloaded.

    Whoever holds a container, or a tensor that the plugin made, holds a lease. Releasing is idempotent.
    """

    def __init__(self, plugin: Plugin, what: str) -> None:
        self._plugin: Plugin | None = plugin
        self.what = what

    def release(self) -> None:
        """Give the claim up; the last one to go unloads a plugin that was closed meanwhile."""
        plugin, self._plugin = self._plugin, None
        if plugin is not None:
            plugin._give_up(self)  # noqa: SLF001 - the two are one mechanism


class Plugin(Unique):
    """A plugin in the process. `aoti_loader.load` makes it.

    Attributes:
        path: the file, or ``package!member``, that it was loaded from.
        facts: what was read from it before it was loaded.
        host: who provides its shims.
        functions: the container functions that it exports, bound with their prototypes, by name. Those that a
            C++ object crosses are never among them (behaviour L3).
        features: every feature of `aoti_abi.features`, judged on ``functions``, by name.
        fallbacks: the warnings for the features that it lacks (behaviour L8), given out or not.
        mends: how its private copy differs from the file.
        preloaded: files of the libraries that it forgot to name.
        staging: "memory", "file" or "in place": where the code is that runs.
        kept_because: after `close`, why it is still mapped; None if it is gone, or not closed.
    """

    def __init__(
        self,
        *,
        facts: PluginFacts,
        host: Host,
        handle: linker.Opened,
        staged: Staged | None,
        mends: tuple[Mend, ...],
        preloaded: tuple[str, ...],
    ) -> None:
        self.path = facts.name
        self.facts = facts
        self.host = host
        self.mends = mends
        self.preloaded = preloaded
        self.staging = staged.kind if staged else "in place"
        self.kept_because: str | None = None
        self._handle: int | None = handle.value
        self._staged = staged
        self._leases: set[Lease] = set()
        # Reentrant: with the lock held, Python may collect a container, which gives its lease up.
        self._lock = threading.RLock()
        self._closed = False
        self._unloading = False
        self.functions: dict[str, Any] = self._bind(handle.value or 0)
        self.features: dict[str, FeatureState] = {
            state.feature.name: state for state in evaluate(self.functions)
        }
        self.fallbacks: list[FallbackWarning] = [
            FallbackWarning(state.feature.name, state.missing, state.since, state.feature.instead)
            for state in self.features.values()
            if state.lost
        ]
        _live.add(self)
        # From here on it stays until it is closed, even if this object is collected.
        handle.take()
        if staged is not None:
            staged.descriptor.take()

    def _bind(self, handle: int) -> dict[str, Any]:
        """Bind the container functions that are code of this plugin.

        What its symbol table calls a function may be hidden from ``dlsym``, or data, or no address at all.

        Raises:
            InvalidProgram: a required one is none.
        """
        found = bind_container(linker.library(handle), frozenset(self.facts.elf.exports.container))
        base = linker.base_of_handle(handle)
        code = [
            (base + segment.address, base + segment.address + segment.memory_size)
            for segment in self.facts.elf.segments
            if segment.type == "LOAD" and "E" in segment.flags
        ]

        def is_code(function: Any) -> bool:
            address = ctypes.cast(function, ctypes.c_void_p).value or 0
            return any(begin <= address < end for begin, end in code)

        functions = {name: function for name, function in found.items() if is_code(function)}
        missing = [name for name in REQUIRED if name not in functions]
        if missing:
            raise InvalidProgram(
                f"required functions can't be called: {', '.join(missing)}",
                path=self.path,
                hint="its symbol table has them, but as hidden, or as data: make the file again",
            )
        return functions

    def __repr__(self) -> str:
        state = "closed" if self._closed else f"on {self.host.name}"
        return f"<Plugin {self.path} {state}>"

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._closed

    def function(self, name: str) -> Any:
        """Return a container function.

        Raises:
            NotFound: the plugin does not export it, or it is one that is never bound.
            InvalidState: the plugin is closed.
        """
        if self._closed:
            raise InvalidState("the plugin is closed", path=self.path)
        found = self.functions.get(name)
        if found is None:
            raise NotFound(f"the plugin has no {name} that can be called", path=self.path)
        return found

    def has(self, feature: str) -> bool:
        """Whether the plugin allows a feature, by its name in `aoti_abi.features`."""
        return self.features[feature].available

    @property
    def image(self) -> tuple[int, int]:
        """Where it is mapped: address and bytes; zeros if it is unloaded."""
        if self._handle is None:
            return 0, 0
        end = max(segment.address + segment.memory_size for segment in self.facts.elf.segments)
        return linker.base_of_handle(self._handle), end

    def binding(self, symbol: str) -> int | None:
        """Return where its calls of a function of another library go; None if nothing defines it.

        The dynamic linker looks in the global scope first, then in what the plugin names as needed; the other
        way round for a plugin with a C++ runtime of its own.
        """
        scopes = [None, self._handle]
        if self.facts.cxx_runtime_static:
            scopes.reverse()
        for scope in scopes:
            address = linker.find_symbol(scope, symbol)
            if address is not None:
                return address
        return None

    def warn_fallback(self, feature: str, *, stacklevel: int = 2) -> None:
        """Warn that a feature is lost, if it is (behaviour L8): feature, functions, version, what happens.

        Args:
            feature: its name in `aoti_abi.features`.
            stacklevel: whose line the warning points at, as in `warnings.warn`.
        """
        if feature not in FEATURES:
            raise NotFound(f"no feature {feature!r}", hint=f"features: {', '.join(FEATURES)}")
        for warning in self.fallbacks:
            if warning.feature == feature:
                warnings.warn(warning, stacklevel=stacklevel)

    def last_error(self) -> str | None:
        """Return this thread's last error in the plugin's own words.

        None if there is none, or if the plugin keeps none (before PyTorch 2.13).
        """
        return None if self._handle is None else read_last_error(self.functions)

    def hold(self, what: str = "a container") -> Lease:
        """Return a lease that keeps the plugin loaded until it is released.

        Raises:
            InvalidState: the plugin is closed.
        """
        with self._lock:
            if self._closed:
                raise InvalidState("the plugin is closed", path=self.path)
            lease = Lease(self, what)
            self._leases.add(lease)
            return lease

    def close(self) -> bool:
        """Unload the plugin, if that is safe; closing again does nothing (behaviours D1, D3).

        With leases held it is unloaded when the last one is released. Nothing is unloaded at the end of the
        interpreter, or when the object is collected: code may still be reached from threads and destructors.

        Returns:
            True if the plugin is gone from the process; else ``kept_because`` says why it stays.
        """
        with self._lock:
            self._closed = True
            if self._handle is None:
                return self.kept_because is None
            held = ", ".join(sorted({lease.what for lease in tuple(self._leases)}))
            if self._leases:
                self.kept_because = (
                    f"{len(self._leases)} claims on it are held ({held}); it goes with the last"
                )
                return False
            return self._unload()

    def _give_up(self, lease: Lease) -> None:
        with self._lock:
            self._leases.discard(lease)
            if self._closed and not self._leases and self._handle is not None:
                self._unload()

    def note_fork(self) -> None:
        """Look, in a forked child, whether another thread of the parent was loading or unloading it."""
        if self._lock.acquire(blocking=False):
            self._lock.release()
        else:
            self._lock = threading.RLock()
            self._handle = None
            self.kept_because = "another thread was closing it when this process was forked"

    def _unload(self) -> bool:
        """Close the library; the lock is held, maybe by what a signal handler interrupted."""
        if self._unloading:
            return False
        self._unloading = True
        try:
            return self._close_library()
        finally:
            self._unloading = False

    def _close_library(self) -> bool:
        handle = self._handle
        if handle is None:
            return self.kept_because is None
        starters = [s.name for s in self.facts.elf.undefined if s.name.startswith(_THREAD_STARTERS)]
        if starters:
            self.kept_because = f"it can start threads ({starters[0]}), which may still run its code"
            return False
        base = linker.base_of_handle(handle)
        end = base + max(segment.address + segment.memory_size for segment in self.facts.elf.segments)
        objects = thread_exit.run_destructors(base, end)
        if objects:
            self.kept_because = (
                f"{objects} C++ thread_local objects of it belong to other threads that still run; "
                "when they have ended it goes with the next load, or when it is closed again"
            )
            PROCESS.waiting.add(self)
            return False
        PROCESS.waiting.discard(self)
        self._handle = None
        # The functions' addresses are about to end; whoever kept the table must not find them in it.
        witness = next(iter(self.functions.values()), None)
        address = ctypes.cast(witness, ctypes.c_void_p).value if witness is not None else None
        name = linker.file_of_handle(handle)
        self.functions.clear()
        linker.close_library(handle)
        still_there = address is not None and linker.file_of_address(address) == name
        self.kept_because = self._why_kept() if still_there else None
        # A copy that is still mapped keeps its name: weights appended to the file are read through it, and
        # another library under the same name would be taken for this one.
        if self._staged is not None and not still_there:
            release(self._staged)
            self._staged = None
        return not still_there

    def _why_kept(self) -> str:
        elf = self.facts.elf
        if "NODELETE" in elf.flags:
            return "it is linked with -z nodelete (DF_1_NODELETE)"
        mended = any(mend.name == "unique-symbols" for mend in self.mends)
        if elf.exports.unique and not mended:
            return f"{len(elf.exports.unique)} STB_GNU_UNIQUE symbols pin it; load it with mend=True"
        if self._staged is None:
            return "it was loaded in place, and something else in the process uses the same file"
        return (
            "C++ thread_local objects of it belong to threads that still run, or a library uses its symbols"
        )

    def __enter__(self) -> Plugin:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()
