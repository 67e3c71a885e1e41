"""What the audit of one file may cost, counted and not timed.

A hostile file of a few kilobytes can keep a reader busy for hours: tables that lie over each other, searches
of every name in every folder, members that inflate a thousandfold. So whatever is done more than once for a
byte of the file is charged here. The allowance grows with the file; the unit, a step, is about a microsecond
of work. Counts do not depend on the machine, so that the same file always gives the same report.
"""

from __future__ import annotations

from aoti_abi.errors import NotSupported

#: Steps that any file may cost, however small it is: half a second.
BASE_STEPS = 500_000
#: Bytes of the file that buy one step more: 2 seconds for 100 MB.
BYTES_PER_STEP = 50
#: Bytes that are searched, inflated or compared in one step.
BYTES_IN_A_STEP = 500
#: Sentences that are kept about what was given up; more say nothing new.
_MOST_SENTENCES = 16


class TooComplex(NotSupported):
    """Something was not read to its end, since that would cost too much: it was not checked."""


class _Account:
    """What budgets have in common: steps that are allowed, and spent."""

    def __init__(self, allowed: int) -> None:
        self.allowed = allowed
        self.spent = 0


class Budget:
    """The allowance of one audit.

    Args:
        size: bytes of the file that is audited.
    """

    def __init__(self, size: int) -> None:
        self._account = _Account(BASE_STEPS + max(size, 0) // BYTES_PER_STEP)
        self._given_up: dict[str, None] = {}

    @property
    def left(self) -> int:
        """How many steps may still be spent."""
        return max(self._account.allowed - self._account.spent, 0)

    def part(self) -> Budget:
        """Return a budget that draws on the same allowance, and has its own list of what was given up."""
        part = Budget(0)
        part._account = self._account
        return part

    def spend(self, steps: int, what: str) -> None:
        """Charge some work before it is done.

        Raises:
            TooComplex: the allowance is used up; ``what`` names the work ("the search for libraries").
        """
        account = self._account
        account.spent += steps
        if account.spent > account.allowed:
            sentence = (
                f"{what}: too complex, it takes more than the {account.allowed} steps of a file of this size"
            )
            self.give_up(sentence)
            raise TooComplex(sentence)

    def count(self, steps: int) -> None:
        """Charge work that is done already, or bounded otherwise."""
        self._account.spent += steps

    def spend_bytes(self, size: int, what: str) -> None:
        """Charge a pass over ``size`` bytes; raises as `spend`."""
        self.spend(size // BYTES_IN_A_STEP, what)

    def share(self, what: str, most: int, unit: str) -> Share:
        """Return a part of the allowance: ``most`` units of one kind of work ("notes")."""
        return Share(self, what, most, unit)

    def give_up(self, sentence: str) -> None:
        """Remember that something was not looked at to its end."""
        if len(self._given_up) < _MOST_SENTENCES:
            self._given_up[sentence] = None

    @property
    def given_up(self) -> tuple[str, ...]:
        """What was not looked at to its end, one sentence each."""
        return tuple(self._given_up)


class Share:
    """A counter with an end: what goes beyond it, or beyond the budget, is given up, and said so once."""

    def __init__(self, budget: Budget, what: str, most: int, unit: str) -> None:
        self._budget = budget
        self._sentence = f"{what}: more than {most} {unit}"
        self._left = most

    def take(self, number: int = 1) -> bool:
        """Count ``number`` units; return whether they are still within the share."""
        if number > self._left or not self._budget.left:
            self._left = 0
            self._budget.give_up(self._sentence)
            return False
        self._left -= number
        self._budget.count(number)
        return True
