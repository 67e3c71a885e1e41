"""The total decoder of constant entries: what a plugin answers, checked before anything is dereferenced.

``AOTInductorModelContainerExtractConstantsMapEntries`` answers with an array that the container owns:
``{const char* name; AtenTensorHandle handle;}``, original FQN and borrowed tensor. The array and its names
live until the next extraction on that container, an update of its constants, or its deletion, so they are
copied at once (behaviour L5). A malformed answer is `InvalidProgram` (L6).

On names that occur twice. An FQN does not have to be unique: where Inductor freezes weights, two constants
can stem from one attribute (``constant3`` and ``constant3_0`` may both be ``constant3``), and a correct
plugin then lists that FQN twice, with two handles. A duplicate is therefore malformed *unless the plugin's
own constant table has the FQN as often*: pass the table's FQNs as ``expected``. Without a table, every
duplicate is rejected, whether its handles agree or not.
"""

from __future__ import annotations

import ctypes
from struct import iter_unpack

from aoti_abi.errors import InvalidProgram
from aoti_abi.memory import MAX_STRING, read_exactly, read_text
from aoti_abi.names import FQN
from aoti_abi.records import TYPE_CHECKING, NamedTuple
from aoti_abi.structs import EntryPointer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

_ENTRY_SIZE = 16

#: More constants than any model has; a larger count is taken for garbage.
MAX_ENTRIES = 1 << 20


class Entry(NamedTuple):
    """One constant as the container surfaces it.

    Attributes:
        name: the original FQN.
        handle: the address of the borrowed tensor: never delete it, and use it only while the container
            lives and its constants are not updated.
    """

    name: FQN
    handle: int


def read_entries(
    address: int,
    count: int,
    *,
    expected: Iterable[str] | None = None,
    limit: int = MAX_ENTRIES,
    name_bound: int = MAX_STRING,
) -> tuple[Entry, ...]:
    """Copy an array of entries out of a container.

    Args:
        address: of the array; 0 for none.
        count: how many entries the container claims.
        expected: the FQNs of the container's own constant table, each as often as it has them; a name may
            occur that often. Without it, every name must be unique.
        limit: the highest count to believe; the number of constants, where it is known.
        name_bound: the longest name to believe, bytes, its NUL included.

    Returns:
        The entries in the container's order; empty for a count of 0, whatever the address.

    Raises:
        InvalidProgram: a null array with a nonzero count, a null name, a null handle, a count that is
            negative or above ``limit``, memory that is not readable, a name that is not NUL-terminated within
            ``name_bound`` or not UTF-8, or a duplicate name (see the module's note).
    """
    if count == 0:
        return ()
    if not 0 < count <= limit:
        raise InvalidProgram(f"the container claims {count} constant entries, of at most {limit} that can be")
    if not address:
        raise InvalidProgram(f"the container answers {count} constant entries with a null array")
    array = read_exactly(address, count * _ENTRY_SIZE, f"the array of {count} constant entries")
    allowed = _occurrences(expected) if expected is not None else {}
    seen: dict[str, int] = {}
    entries = []
    for index, (name_address, handle) in enumerate(iter_unpack("=QQ", array)):
        name = read_text(name_address, f"the name of constant entry {index}", name_bound)
        if not handle:
            raise InvalidProgram(f"constant entry {index} ({name!r}) has a null handle")
        seen[name] = seen.get(name, 0) + 1
        if seen[name] > max(1, allowed.get(name, 1)):
            raise InvalidProgram(
                f"constant entry {index} repeats the name {name!r}",
                hint=None
                if expected is not None
                else "a frozen model may repeat an FQN: check against the container's own constant table",
            )
        entries.append(Entry(FQN(name), handle))
    return tuple(entries)


def _occurrences(names: Iterable[str]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for name in names:
        counts[name] = counts.get(name, 0) + 1
    return counts


def extract_entries(
    extract: Callable[..., int],
    container: int,
    *,
    use_inactive: bool = False,
    last_error: Callable[[], str | None] | None = None,
    expected: Iterable[str] | None = None,
    limit: int = MAX_ENTRIES,
) -> tuple[Entry, ...]:
    """Call ``AOTInductorModelContainerExtractConstantsMapEntries`` and decode its answer (behaviours L3, L6).

    Args:
        extract: the function, with the prototype of `aoti_abi.prototypes`.
        container: the container's handle.
        use_inactive: ask for the inactive set of constants.
        last_error: returns the plugin's own words for its last error, or None.
        expected: as in `read_entries`.
        limit: as in `read_entries`.

    Raises:
        InvalidProgram: the call failed (``cause`` has the plugin's words), or the answer is malformed.
    """
    entries, count = EntryPointer(), ctypes.c_size_t()
    code = extract(container, ctypes.byref(entries), ctypes.byref(count), use_inactive)
    if code:
        raise InvalidProgram(
            f"the container could not list its constants: error {code}",
            cause=last_error() if last_error else None,
        )
    address = ctypes.cast(entries, ctypes.c_void_p).value or 0
    return read_entries(address, count.value, expected=expected, limit=limit)
