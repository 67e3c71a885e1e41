"""A container's weights: where they come from, how they change, and what must hold before a run.

The container keeps two sets of constants and trusts whoever fills them: it copies as many bytes as the
storage of a given tensor has, frees a first blob under the tensors of a second, swaps sets without a look.
`Weights` knows which entries of which set have a value, and refuses what would read or write past them.
"""

from __future__ import annotations

import ctypes
import threading
from ctypes import byref, c_uint64
from typing import TYPE_CHECKING, Any

from aoti_abi.entries import extract_entries
from aoti_abi.errors import ExecutionFailed, InvalidArgument, InvalidProgram, InvalidState, NotSupported
from aoti_executor.arrays import view
from aoti_executor.constant_values import Pair, fit, hand_over, own_copy
from aoti_executor.constants import Constant, ConstantSet, match_entries, select, table_of
from aoti_executor.tensor import Tensor

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from aoti_executor.handle import ContainerHandle


class Weights:
    """The constants of one container.

    Attributes:
        table: the plugin's constants; None if it is too old to list them.
        ready: whether a run may start without a further look.
        lock: held by whoever changes anything here.

    Args:
        handle: the container.
        constants_inside: whether the plugin file carries its constants; believed where the plugin itself
            can't list their values (before PyTorch 2.13).
    """

    def __init__(self, handle: ContainerHandle, *, constants_inside: bool) -> None:
        self._handle = handle
        self.lock = threading.RLock()
        self.ready = False
        rows = handle.constants()
        self.table = None if rows is None else table_of(rows)
        self._sets = (ConstantSet(), ConstantSet())
        self._active = 0
        self._blob_bound = False
        self._broken: str | None = None
        self._see_constants(constants_inside=constants_inside)
        self._sets[0].needs_folding = self._folds

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
        with self.lock:
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
            with self._handle.gate:
                code = function(self._handle.address, ctypes.cast(memory.data, function.argtypes[1]))
            self._blob_bound = True
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
        with self.lock:
            chosen = self._sets[self._active ^ inactive]
            if chosen.freed:
                raise InvalidState(
                    "the inactive constants were freed", hint="fill them with update_constants"
                )
            with self._handle.gate:
                entries = self._extract(use_inactive=inactive)
                copies = [
                    (c, Tensor(self._handle.host, self._handle.host.clone(handle))) for c, handle in entries
                ]
        counts: dict[str, int] = {}
        for constant, _ in copies:
            counts[constant.fqn] = counts.get(constant.fqn, 0) + 1
        return {(c.fqn if c.fqn and counts[c.fqn] == 1 else c.name): tensor for c, tensor in copies}

    def update_constants(
        self, values: Mapping[str, Any], *, inactive: bool = False, copy: bool = True
    ) -> None:
        """Give constants new values.

        Args:
            values: arrays by FQN. Constants that are not named keep their value; in the inactive set, those
                that have none take the active one.
            inactive: fill the inactive set, which runs don't see until `swap`.
            copy: False lets the plugin read the arrays in place (they are kept alive, and later writes to
                them are seen by runs); their strides must then be the constants' own.

        Raises:
            InvalidArgument: an unknown name, or a value that does not fit its constant.
            NotSupported: the plugin has no function for it.
            ExecutionFailed: the plugin returned an error.
        """
        with self.lock:
            if self.table is None:
                self._handle.plugin.warn_fallback("list-constants")
                raise NotSupported("the plugin cannot name its constants", path=self._handle.path)
            _ = self._handle.address
            chosen = [
                (constant, view(value, f"the value of {constant.fqn or constant.name!r}"))
                for constant, value in select(self.table, values)
            ]
            target = self._sets[self._active ^ inactive]
            fitted = [(c, fit(self._handle, c, value, copy=copy)) for c, value in chosen]
            if inactive:
                fitted += self._fill_from_active({c.name for c, _ in chosen}, target)
            if fitted:
                kept = hand_over(self._handle, fitted, inactive=inactive, copy=copy)
                self._note(fitted, kept, target)

    def _fill_from_active(self, given: set[Any], target: ConstantSet) -> list[Pair]:
        """Copy what the inactive set lacks, so that it is never partial."""
        lacking = [c for c in self._missing(target) if c.name not in given]
        if not lacking:
            return []
        if not self._can_extract:
            raise InvalidArgument(
                f"no value is given for {_list(lacking)}, and the plugin cannot tell the active one",
                path=self._handle.path,
                hint="give all constants",
            )
        wanted = {c.name for c in lacking}
        result = []
        for constant, handle in self._extract(use_inactive=False):
            if constant.name in wanted:
                seen = self._handle.host.describe(handle)
                result.append((constant, own_copy(self._handle, constant, seen, seen.strides)))
        return result

    def _note(self, values: list[Pair], kept: list[Pair], target: ConstantSet) -> None:
        table = list(self.table or ())
        owners = {constant.name: value.owner for constant, value in kept}
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
        with self.lock:
            self.check_usable()
            chosen = self._sets[self._active ^ inactive]
            self._complete(chosen, "folded", inactive=inactive)
            if not self._folds:
                return  # the plugin would only complain on standard error
            function = self._handle.function("RunConstantFolding")
            if function is None:
                self._handle.plugin.warn_fallback("constant-folding")
                raise NotSupported("the plugin has no function to fold constants", path=self._handle.path)
            with self._handle.gate:
                code = function(self._handle.address, inactive, None, None)
            if code:
                # A folding that throws leaves the model out of the container's pool: a later run would
                # wait for it for ever.
                self._broken = "folding its constants failed"
            self._handle.check(code, "RunConstantFolding")
            chosen.needs_folding = False

    def swap(self) -> None:
        """Make the inactive set active, and the other way round, between two runs.

        Raises:
            InvalidState: some constant of the inactive set has no value.
        """
        with self.lock:
            self.check_usable()
            self._complete(self._sets[self._active ^ 1], "swapped in", inactive=True)
            with self._handle.gate:
                code = self._handle.require("SwapConstantBuffer", "swap-constants")(self._handle.address)
                self._handle.check(code, "SwapConstantBuffer")
                self._active ^= 1
            self.ready = False

    def free_inactive(self) -> None:
        """Give the memory of the inactive set back.

        Raises:
            NotSupported: the plugin can't (before PyTorch 2.8).
        """
        with self.lock:
            inactive = self._sets[self._active ^ 1]
            if inactive.freed:
                return
            code = self._handle.require("FreeInactiveConstantBuffer", "swap-constants")(self._handle.address)
            self._handle.check(code, "FreeInactiveConstantBuffer")
            inactive.filled.clear()
            inactive.owners.clear()
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

    def check_usable(self) -> None:
        """Refuse a container that is closed, or that an earlier failure left unusable."""
        _ = self._handle.address
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
            ExecutionFailed: folding failed.
        """
        with self.lock:
            self.check_usable()
            active = self._sets[self._active]
            self._complete(active, "used", inactive=False)
            if active.needs_folding and self._handle.function("RunConstantFolding") is not None:
                self.fold()
            self.ready = True

    def release(self) -> None:
        """Forget the owners of memory that the container, now deleted, pointed to."""
        self.ready = False
        for constants in self._sets:
            constants.owners.clear()


def _as_bytes(blob: Any) -> memoryview:
    try:
        return memoryview(blob).cast("B")
    except TypeError as error:
        raise InvalidArgument("the blob is not contiguous bytes", cause=str(error)) from None


def _list(constants: Sequence[Constant]) -> str:
    names = ", ".join(repr(c.fqn or c.name) for c in constants[:3])
    return f"{names} and {len(constants) - 3} more" if len(constants) > 3 else names
