"""A container's weights: where they come from, how they change, and what must hold before a run.

The container keeps two sets of constants and trusts whoever fills them: it copies as many bytes as the
storage of a given tensor has, frees a first blob under the tensors of a second, swaps sets without a look.
`Weights` knows which entries of which set have a value, and refuses what would read or write past them.
"""

from __future__ import annotations

import threading
from ctypes import byref, c_uint64, c_void_p, sizeof
from typing import TYPE_CHECKING, Any

from aoti_abi.entries import extract_entries
from aoti_abi.errors import ExecutionFailed, InvalidArgument, InvalidProgram, InvalidState, NotSupported
from aoti_abi.lifetimes import Unique
from aoti_executor.arrays import view
from aoti_executor.constant_values import Pair, fit, hand_over
from aoti_executor.constants import Constant, ConstantSet, match_entries, select, table_of
from aoti_executor.native import INSIDE, address_of
from aoti_executor.tensor import Tensor

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from aoti_abi.names import InternalName
    from aoti_executor.handle import ContainerHandle

_POINTER = sizeof(c_void_p)


class Weights(Unique):
    """The constants of one container.

    Attributes:
        table: the plugin's constants; None if it is too old to list them.
        ready: whether a run may start without a further look.

    Args:
        handle: the container.
        kind: where the plugin file has its constants, as in its facts; believed where the plugin itself can't
            list their values (before PyTorch 2.13).
    """

    def __init__(self, handle: ContainerHandle, *, kind: str) -> None:
        self._handle = handle
        self._lock = threading.RLock()
        self._changes = 0  # of the active set
        self._lost: str | None = None
        self.ready = False
        rows = handle.constants()
        self.table = None if rows is None else table_of(rows)
        self._sets = (ConstantSet(), ConstantSet())
        self._active = 0
        self._blob_bound = False
        self._broken: str | None = None
        self._see_constants(constants_inside=kind in ("embedded", "appended"))
        # Without a table, this is all that tells of constants which have no value.
        self._wants_blob = (
            self.table is None and kind in ("none", "external") and bool(kind == "external" or self.blob_size)
        )
        self._sets[0].needs_folding = self._folds

    def turn(self) -> threading.RLock:
        """Return the lock that is held by whoever changes anything here, or asks the container.

        Raises:
            InvalidState: this thread holds it. It came from a signal handler or a callback of what it
                interrupted, and would change things halfway through.
        """
        # The lock itself is entered and left in C, where no handler gets in between.
        if self._lock._is_owned():  # type: ignore[attr-defined] # noqa: SLF001 - as threading.Condition does
            raise InvalidState(INSIDE, path=self._handle.path)
        return self._lock

    def lose(self, reason: str | None) -> None:
        """Refuse everything from now on, in a child of fork: for a reason, or if a thread was lost inside."""
        self.ready = False
        if self._handle.gate.inside() or not self._lock.acquire(blocking=False):
            self._lock = threading.RLock()
            reason = "another thread was inside the model when this process was forked"
        else:
            self._lock.release()
        self._lost = self._lost or reason

    @property
    def lost(self) -> bool:
        """Whether this is a forked child's view of a model that it can't use."""
        return self._lost is not None

    @property
    def constants(self) -> tuple[Constant, ...]:
        """The plugin's constants; empty, with a warning, if the plugin is too old to list them."""
        if self.table is None:
            self._handle.plugin.warn_fallback("list-constants")
            return ()
        return self.table

    @property
    def unbound(self) -> tuple[Constant, ...]:
        """Constants of the active set that have no value yet."""
        return self._missing(self._sets[self._active])

    def _missing(self, constants: ConstantSet) -> tuple[Constant, ...]:
        return tuple(c for c in self.table or () if not c.folded and c.name not in constants.filled)

    @property
    def _can_extract(self) -> bool:
        return self._handle.function("ExtractConstantsMapEntries") is not None

    @property
    def _folds(self) -> bool:
        return any(constant.folded for constant in self.table or ())

    def _see_constants(self, *, constants_inside: bool) -> None:
        """Find out which constants have a value, right after creation and after a blob was bound."""
        active = self._sets[self._active]
        wanted = [constant for constant in self.table or () if not constant.folded]
        if not wanted:
            return
        if self._can_extract:
            self._describe_constants(self._extract(use_inactive=False), active)
        elif constants_inside:
            active.filled.update(constant.name for constant in wanted)

    def _extract(self, *, use_inactive: bool) -> list[tuple[Constant, int]]:
        """Return the constants that a set has, with their borrowed handles."""
        function = self._handle.function("ExtractConstantsMapEntries")
        if function is None:
            self._handle.plugin.warn_fallback("read-constants")
            raise NotSupported(
                "the plugin cannot list the values of its constants",
                path=self._handle.path,
                hint="PyTorch 2.13 and later compile plugins that can",
            )
        table = self.table or ()
        entries = extract_entries(
            function,
            self._handle.address,
            use_inactive=use_inactive,
            last_error=self._handle.cause,
            expected=[constant.fqn for constant in table if not constant.folded] if table else None,
        )
        if not table:
            return []
        matched = match_entries(table, [entry.name for entry in entries])
        return [(constant, entry.handle) for constant, entry in zip(matched, entries, strict=True)]

    def _describe_constants(self, entries: list[tuple[Constant, int]], constants: ConstantSet) -> None:
        table = list(self.table or ())
        for constant, handle in entries:
            constants.filled.add(constant.name)
            try:
                seen = self._handle.host.describe(handle)
            except ExecutionFailed:
                continue  # an opaque layout, as oneDNN's packed weights have: no strides, no address
            device = "cpu" if seen.device_type == 0 else self._handle.device
            table[constant.position] = constant._replace(
                shape=seen.shape, strides=seen.strides, device=device
            )
        self.table = tuple(table)

    @property
    def blob_size(self) -> int | None:
        """How many bytes of weights the plugin wants in a blob; None if it can't tell."""
        sizes = [c.nbytes for c in self.table or () if not c.folded]
        if self.table is not None and all(size >= 0 for size in sizes):
            return sum(sizes)
        get = self._handle.function("GetConstantsBlobSize")
        size = c_uint64()
        return None if get is None or get(self._handle.address, byref(size)) else size.value

    def bind_blob(self, blob: Any) -> None:
        """Copy all weights from a blob that was written for this plugin.

        Args:
            blob: the bytes: anything with the buffer protocol, as a ``memoryview`` over a mapped file. It may
                be freed after the call.

        Raises:
            NotSupported: the plugin takes no blob (before PyTorch 2.10).
            InvalidState: it has its weights already: a second blob would free what the first one's tensors
                point to.
            InvalidArgument: the blob is shorter than the plugin reads.
            ExecutionFailed: the plugin returned an error.
        """
        with self.turn():
            self.check_open()
            function = self._handle.functions.get("AOTInductorModelUpdateConstantsFromBlob")
            if function is None:
                self._handle.plugin.warn_fallback("external-weights")
                raise NotSupported("the plugin cannot take its weights from a blob", path=self._handle.path)
            if self._blob_bound or (self.table and not self.unbound):
                raise InvalidState(
                    "the model has its weights already, and a blob can be bound only once",
                    path=self._handle.path,
                    hint="leave the blob out; update_constants replaces values",
                )
            memory = view(_as_bytes(blob), "the blob")
            size = memory.span
            wanted = self.blob_size
            if wanted is None:
                raise InvalidState(
                    "the plugin does not tell how long its blob is, so that one cannot be checked",
                    path=self._handle.path,
                )
            if size < wanted:
                raise InvalidArgument(
                    f"the blob has {size} bytes, the plugin reads {wanted}",
                    path=self._handle.path,
                    hint="the blob is truncated or belongs to another model",
                )
            self._blob_bound = True
            code = self._handle.gate.bind(address_of(function), self._handle.address, memory.data)
            self._handle.check(code, "UpdateConstantsFromBlob")
            if self.table is not None:
                self._see_constants(constants_inside=True)
                if self.unbound:
                    raise InvalidProgram(
                        f"the plugin ignored the blob: there is still no value for {_list(self.unbound)}",
                        path=self._handle.path,
                        hint="it was not compiled for a binary blob: give its weights with update_constants",
                    )
            self.ready = False

    def read_constants(self, *, inactive: bool = False) -> dict[str, Tensor]:
        """Return copies of the constants' values, by FQN (by internal name where FQNs repeat).

        Raises:
            NotSupported: the plugin can't (before PyTorch 2.13).
            InvalidState: the inactive set was freed.
        """
        with self.turn():
            self.check_open()
            chosen = self._sets[self._active ^ inactive]
            if chosen.freed:
                raise InvalidState(
                    "the inactive constants were freed", hint="fill them with update_constants"
                )
            if inactive and chosen.given:
                self._complete_inactive()
            copies = self._clone(self._extract(use_inactive=inactive))
        counts: dict[str, int] = {}
        for constant, _ in copies:
            counts[constant.fqn] = counts.get(constant.fqn, 0) + 1
        return {(c.fqn if c.fqn and counts[c.fqn] == 1 else c.name): tensor for c, tensor in copies}

    def _clone(self, entries: list[tuple[Constant, int]]) -> list[tuple[Constant, Tensor]]:
        """Copy tensors of the container, all of them between two runs."""
        host, count = self._handle.host, len(entries)
        slots = (c_void_p * max(count, 1))()
        handles = (c_void_p * max(count, 1))(*(handle for _, handle in entries))
        try:
            code = self._handle.gate.clone(host.clone_address, handles, slots, count)
            if code:
                raise ExecutionFailed("the host cannot copy a tensor", cause=host.last_error())
            return [
                (
                    constant,
                    Tensor(host, slots[i] or 0, slot=c_void_p.from_buffer(slots, i * _POINTER)),
                )
                for i, (constant, _) in enumerate(entries)
            ]
        finally:
            for slot in slots:  # what no tensor owns: there are some only after an error
                if slot:
                    host.delete(slot)

    def update_constants(
        self, values: Mapping[str, Any], *, inactive: bool = False, copy: bool = True
    ) -> None:
        """Give constants new values.

        Args:
            values: arrays by FQN. Constants that are not named keep their value; in the inactive set, those
                that have none take the active one.
            inactive: fill the inactive set, which runs don't see until `swap`.
            copy: False lets the plugin use the arrays in place (they are kept alive, later writes to them are
                seen by runs, and the model may write to them); their strides must then be the constants' own.

        Raises:
            InvalidArgument: an unknown name, or a value that does not fit its constant; with ``copy=False``,
                memory that is read-only or not aligned.
            InvalidState: closed, or called from inside itself (`turn`).
            NotSupported: the plugin has no function for it.
            ExecutionFailed: the plugin returned an error.
        """
        with self.turn():
            self.check_open()
            if self.table is None:
                self._handle.plugin.warn_fallback("list-constants")
                raise NotSupported("the plugin cannot name its constants", path=self._handle.path)
            chosen = [
                (constant, view(value, f"the value of {constant.fqn or constant.name!r}"))
                for constant, value in select(self.table, values)
            ]
            target = self._sets[self._active ^ inactive]
            fitted = [(c, fit(self._handle, c, value, copy=copy)) for c, value in chosen]
            if not fitted:
                return
            names = {constant.name for constant, _ in fitted}
            if inactive and not self._can_extract:
                self._active_values(self._lacking(target, names))  # refuses, if one can't be told
            self._hand_over(fitted, target, names, inactive=inactive, copy=copy)

    def _hand_over(
        self,
        fitted: list[Pair],
        target: ConstantSet,
        given: set[InternalName],
        *,
        inactive: bool,
        copy: bool,
        swap: bool = False,
    ) -> None:
        gate = self._handle.gate
        gate.forget()
        try:
            hand_over(self._handle, fitted, target.pending, inactive=inactive, copy=copy, swap=swap)
        finally:
            # A handler's exception may come when all is done; what the container has must be known still.
            if gate.done:
                self._note(fitted, target)
                if inactive:
                    target.given |= given
                if swap:
                    self._active ^= 1
                    for constants in self._sets:
                        constants.given.clear()
                        constants.completed = -1
                self._changes += swap or not inactive

    def _lacking(self, target: ConstantSet, given: set[InternalName]) -> list[Constant]:
        """Return what the inactive set takes from the active one: a model may have written its buffers."""
        known = target.filled if target.completed == self._changes else set()
        return [
            constant
            for constant in self.table or ()
            if not constant.folded
            and constant.name not in given
            and constant.name not in target.given
            and (constant.name not in known or constant.type != "Parameter")
        ]

    def _active_values(self, lacking: list[Constant]) -> list[Pair]:
        """Return the active set's own memory.

        Raises:
            InvalidArgument: the plugin can't tell where it is.
        """
        if not lacking:
            return []
        if self._can_extract:
            wanted = {constant.name for constant in lacking}
            found = [pair for pair in self._extract(use_inactive=False) if pair[0].name in wanted]
            try:
                return [(constant, self._handle.host.describe(handle)) for constant, handle in found]
            except ExecutionFailed:
                pass  # an opaque layout
        raise InvalidArgument(
            f"no value is given for {_list(lacking)}, and the plugin cannot tell the active one",
            path=self._handle.path,
            hint="give all constants",
        )

    def _complete_inactive(self, *, swap: bool = False) -> None:
        """Give the inactive set the active one's value of what it was not given; then swap, if asked to."""
        target = self._sets[self._active ^ 1]
        values = self._active_values(self._lacking(target, set())) if target.given else []
        if values or swap:
            self._hand_over(values, target, set(), inactive=True, copy=True, swap=swap)
            target.completed = self._changes if not swap else -1

    def _note(self, values: list[Pair], target: ConstantSet) -> None:
        if not values:
            return
        table = list(self.table or ())
        owners = {constant.name: value for constant, value in target.pending}
        target.pending = []
        for constant, value in values:
            target.filled.add(constant.name)
            target.owners.pop(constant.name, None)
            if constant.shape is None:
                table[constant.position] = constant._replace(
                    shape=value.shape, strides=value.strides, device=self._handle.device
                )
        self.table = tuple(table)
        target.owners.update(owners)
        target.freed = False
        target.needs_folding = self._folds
        self.ready = False

    def fold(self, *, inactive: bool = False) -> None:
        """Compute the constants that depend on others, now instead of inside the next run.

        Raises:
            InvalidState: some constant of that set has no value.
            NotSupported: the plugin has no function for it.
            ExecutionFailed: the plugin returned an error; the container can't be used after that.
        """
        with self.turn():
            self.check_usable()
            chosen = self._sets[self._active ^ inactive]
            if inactive and chosen.given:
                self._complete_inactive()
            self._fold(chosen, inactive=inactive)

    def _fold(self, chosen: ConstantSet, *, inactive: bool) -> None:
        self._complete(chosen, "folded", inactive=inactive)
        if not self._folds:
            return  # the plugin would only complain on standard error
        function = self._handle.function("RunConstantFolding")
        if function is None:
            self._handle.plugin.warn_fallback("constant-folding")
            raise NotSupported("the plugin has no function to fold constants", path=self._handle.path)
        code = self._handle.gate.fold(address_of(function), self._handle.address, inactive=inactive)
        if code:
            # A folding that throws leaves the model out of the container's pool: a later run would
            # wait for it for ever.
            self._broken = "folding its constants failed"
        self._handle.check(code, "RunConstantFolding")
        chosen.needs_folding = False

    def swap(self) -> None:
        """Make the inactive set active, and the other way round, between two runs.

        If some of the inactive set was updated since the last swap, the rest first takes the values that the
        active set has now. If nothing was, the sets change places as they are.

        Raises:
            InvalidState: some constant of the inactive set has no value.
        """
        with self.turn():
            self.check_usable()
            inactive = self._sets[self._active ^ 1]
            if not inactive.given:
                self._complete(inactive, "swapped in", inactive=True)
            self.ready = False
            self._complete_inactive(swap=True)
            self.ready = False

    def free_inactive(self) -> None:
        """Give the memory of the inactive set back.

        Raises:
            NotSupported: the plugin can't (before PyTorch 2.8).
        """
        with self.turn():
            self.check_usable()
            inactive = self._sets[self._active ^ 1]
            if inactive.freed:
                return
            code = self._handle.require("FreeInactiveConstantBuffer", "swap-constants")(self._handle.address)
            self._handle.check(code, "FreeInactiveConstantBuffer")
            inactive.filled.clear()
            inactive.owners.clear()
            inactive.pending.clear()
            inactive.given.clear()
            inactive.completed = -1
            inactive.freed = True

    def _complete(self, constants: ConstantSet, what: str, *, inactive: bool) -> None:
        missing = self._missing(constants)
        if missing:
            which = "inactive" if inactive else "active"
            raise InvalidState(
                f"the {which} constants cannot be {what}: there is no value for {_list(missing)}",
                path=self._handle.path,
                hint="bind a weights blob, or give values with update_constants",
            )

    def check_open(self) -> None:
        """Refuse a container that is closed, or that a forked child can't use.

        Raises:
            InvalidState: it is.
        """
        _ = self._handle.address
        if self._lost:
            raise InvalidState(
                f"this forked process can't use the model: {self._lost}",
                path=self._handle.path,
                hint="load it in the child; start children with 'spawn' or 'forkserver' where threads run",
            )

    def check_usable(self) -> None:
        """Refuse what `check_open` does, and a container that an earlier failure left unusable."""
        self.check_open()
        if self._broken:
            raise InvalidState(
                f"the container can't be used any more: {self._broken}",
                path=self._handle.path,
                hint="close it and load the model again",
            )

    def prepare(self) -> None:
        """Check, and fold, before the first run after a change.

        Raises:
            InvalidState: closed, broken, or constants have no value.
            NotSupported: they have none, and the plugin can't be given them one by one.
            ExecutionFailed: folding failed.
        """
        with self.turn():
            self.check_usable()
            if self._wants_blob and not self._blob_bound:
                raise NotSupported(
                    "the plugin has no values for its constants, and is too old to say which it has",
                    path=self._handle.path,
                    hint="give its blob (weights=), or compile the model again with its weights inside",
                )
            active = self._sets[self._active]
            self._complete(active, "used", inactive=False)
            if active.needs_folding and self._handle.function("RunConstantFolding") is not None:
                self._fold(active, inactive=False)
            self.ready = True

    def release(self) -> None:
        """Forget the owners of memory that the container, now deleted, pointed to."""
        self.ready = False
        for constants in self._sets:
            constants.owners.clear()
            constants.pending.clear()


def _as_bytes(blob: Any) -> memoryview:
    try:
        return memoryview(blob).cast("B")
    except TypeError as error:
        raise InvalidArgument("the blob is not contiguous bytes", cause=str(error)) from None


def _list(constants: Sequence[Constant]) -> str:
    names = ", ".join(repr(c.fqn or c.name) for c in constants[:3])
    return f"{names} and {len(constants) - 3} more" if len(constants) > 3 else names
