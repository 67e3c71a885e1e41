"""A container's constants: the table, and which of its two sets holds what.

A container keeps two sets of constants, active and inactive, and swaps them; nothing in it remembers which
entries of a set were ever filled. `ConstantSet` does, so that a run or a swap cannot meet a hole.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from aoti_abi.codes import dtype_name
from aoti_abi.errors import InvalidArgument, InvalidProgram
from aoti_abi.lifetimes import Unique

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from aoti_abi.names import FQN, InternalName
    from aoti_executor.views import View
    from aoti_loader.container import ConstantRow

#: Inductor pads each constant's bytes to this.
ALIGNMENT = 64


class Constant(NamedTuple):
    """One constant of a plugin.

    Attributes:
        position: its place in the plugin's table.
        name: its name inside the plugin.
        fqn: its name in the Python module; empty if the plugin does not tell.
        dtype: ``c10::ScalarType`` value; -1 if the plugin does not tell.
        nbytes: bytes of its slot, padding included; -1 if the plugin does not tell.
        type: one of `aoti_abi.codes.CONSTANT_TYPES`; empty if the plugin does not tell.
        folded: computed by the plugin from other constants: never given, never extracted.
        shape, strides: elements; None where no value was ever read.
        device: as "cpu"; None where no value was ever read.
    """

    position: int
    name: InternalName
    fqn: FQN
    dtype: int
    nbytes: int
    type: str
    folded: bool
    shape: tuple[int, ...] | None = None
    strides: tuple[int, ...] | None = None
    device: str | None = None

    @property
    def dtype_name(self) -> str:
        """PyTorch's name of the element type; "?" if the plugin does not tell."""
        return dtype_name(self.dtype) if self.dtype >= 0 else "?"


class ConstantSet(Unique):
    """What is known of one of the two sets.

    Attributes:
        filled: internal names that have a value.
        owners: what the set points to outside of the container, by internal name.
        pending: the same of an update in progress, or one that failed.
        given: internal names that got a value since the set became the inactive one.
        completed: how often the active set had changed when the rest was copied from it; -1 for never.
        needs_folding: whether values changed since the folded constants were computed.
        freed: whether its memory was given back, after which its old entries dangle.
    """

    __slots__ = ("completed", "filled", "freed", "given", "needs_folding", "owners", "pending")

    def __init__(self) -> None:
        self.filled: set[InternalName] = set()
        self.owners: dict[InternalName, View] = {}
        self.pending: list[tuple[Constant, View]] = []
        self.given: set[InternalName] = set()
        self.completed = -1
        self.needs_folding = False
        self.freed = False


def table_of(rows: Iterable[ConstantRow]) -> tuple[Constant, ...]:
    """Return the constants that a container lists, of whose values nothing is known yet."""
    return tuple(
        Constant(
            row.position,
            row.name,
            row.fqn,
            -1 if row.dtype is None else row.dtype,
            -1 if row.nbytes is None else row.nbytes,
            row.type or "",
            bool(row.folded),
        )
        for row in rows
    )


def match_entries(table: Iterable[Constant], fqns: list[str]) -> list[Constant]:
    """Tell which constants the entries of an extraction are.

    An extraction lists FQNs in the table's order and leaves out what is folded or has no value. FQNs may
    repeat, so each entry takes the next constant of that FQN.

    Raises:
        InvalidProgram: an FQN that the table lacks.
    """
    waiting: dict[str, list[Constant]] = {}
    for constant in table:
        if not constant.folded:
            waiting.setdefault(constant.fqn, []).append(constant)
    matched = []
    for fqn in fqns:
        queue = waiting.get(fqn)
        if not queue:
            raise InvalidProgram(f"the plugin lists a constant {fqn!r} that its own table lacks")
        matched.append(queue.pop(0))
    return matched


def select(table: Iterable[Constant], values: Mapping[str, Any]) -> list[tuple[Constant, Any]]:
    """Pair values given by FQN with constants; one value may serve several constants of its FQN.

    Where an FQN repeats, each constant of it can also be named by its internal name.

    Raises:
        InvalidArgument: names that the plugin does not have, each with the closest that it has.
    """
    by_fqn: dict[str, list[Constant]] = {}
    for constant in table:
        if not constant.folded:
            by_fqn.setdefault(constant.fqn or constant.name, []).append(constant)
    for constant in [c for several in by_fqn.values() if len(several) > 1 for c in several]:
        by_fqn.setdefault(constant.name, [constant])
    unknown = [name for name in values if name not in by_fqn]
    if unknown:
        import difflib

        shown = []
        for name in unknown[:5]:
            close = difflib.get_close_matches(str(name), list(by_fqn), 1)
            shown.append(f"{name!r}" + (f" (did you mean {close[0]!r}?)" if close else ""))
        more = f" and {len(unknown) - 5} more" if len(unknown) > 5 else ""
        raise InvalidArgument(
            f"the plugin has no constant {', '.join(shown)}{more}",
            hint="constants are named by FQN; Inductor inlines small ones (0-d, or 1-d of up to 8 elements) "
            "and drops unused ones, so that they can't be updated",
        )
    return [(constant, value) for name, value in values.items() for constant in by_fqn[name]]


def check_value(constant: Constant, value: View) -> tuple[int, ...]:
    """Check a new value for a constant; return the strides that the plugin's code reads it with.

    Raises:
        InvalidArgument: dtype, shape or size differ, naming both sides.
    """
    label = constant.fqn or constant.name
    if constant.dtype >= 0 and value.dtype != constant.dtype:
        raise InvalidArgument(
            f"constant {label!r} is {constant.dtype_name}, the value is {dtype_name(value.dtype)}"
        )
    if constant.shape is not None:
        if value.shape != constant.shape:
            raise InvalidArgument(
                f"constant {label!r} has the shape {constant.shape}, the value {value.shape}"
            )
        return constant.strides or ()
    slot = -(-value.span // ALIGNMENT) * ALIGNMENT
    if constant.nbytes >= 0 and constant.nbytes not in (slot, value.span):
        raise InvalidArgument(
            f"constant {label!r} has a slot of {constant.nbytes} bytes; the value {value} has {value.span}"
        )
    return value.strides
