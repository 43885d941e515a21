"""The states of a decoder between two events, and the moves from one state to the next, as a table.

Never looks at an event: ``Assembly`` makes each move, and refuses one that the table does not have.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Final


class TransactionState(enum.IntEnum):
    """What is open. From ``OPEN`` on a transaction is."""

    BETWEEN = 0
    """Nothing."""

    ANNOUNCED = 1
    """A GTID has come, or an event that stands for one; its transaction has not begun."""

    UNDECIDED = 2
    """The same, and the statement to come is an ALTER that has not happened, or has failed."""

    OPEN = 3
    """A transaction."""

    ALONE = 4
    """Rows without BEGIN, which end with their statement."""

    XA = 5
    """A transaction that may end in XA PREPARE: no piece of it is handed out before."""

    RELEASED = 6
    """Such a transaction that is too large to be held: its rows are read again when it is committed."""


class Move(enum.IntEnum):
    """What happens to a state."""

    ANNOUNCE = 0
    UNDECIDE = 1
    BEGIN = 2
    BEGIN_ALONE = 3
    """The transaction that has begun has no BEGIN."""

    ENTER_XA = 4
    RELEASE = 5
    READ_AGAIN = 6
    """The rows of the transaction come from the log again, as those of any transaction."""

    END = 7
    """The transaction or the statement has ended, or never was."""


S, M = TransactionState, Move
MOVES: Final[Mapping[TransactionState, Mapping[Move, TransactionState]]] = {
    # canal's cursors name the start of the last END: a dump from there begins with it.
    S.BETWEEN: {M.ANNOUNCE: S.ANNOUNCED, M.END: S.BETWEEN},
    S.ANNOUNCED: {M.ANNOUNCE: S.ANNOUNCED, M.UNDECIDE: S.UNDECIDED, M.BEGIN: S.OPEN, M.END: S.BETWEEN},
    S.UNDECIDED: {M.ANNOUNCE: S.ANNOUNCED, M.BEGIN: S.OPEN, M.END: S.BETWEEN},
    S.OPEN: {M.BEGIN_ALONE: S.ALONE, M.ENTER_XA: S.XA, M.READ_AGAIN: S.OPEN, M.END: S.BETWEEN},
    S.ALONE: {M.END: S.BETWEEN},
    S.XA: {M.ENTER_XA: S.XA, M.RELEASE: S.RELEASED, M.END: S.BETWEEN},
    S.RELEASED: {M.RELEASE: S.RELEASED, M.READ_AGAIN: S.OPEN, M.END: S.BETWEEN},
}
#: In ``NEXT``: there is no such move.
REFUSED: Final = 255
#: ``MOVES`` for compiled code: the next state, by state * len(Move) + move.
NEXT: Final = bytes(MOVES[state].get(move, REFUSED) for state in TransactionState for move in Move)
