"""The states of a decoder between two events, and the transitions as a table.

Never looks at an event: ``Assembly`` makes each move and refuses moves that are not in the table.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Final


class TransactionState(enum.IntEnum):
    """The open transaction's state. From ``OPEN`` on there is a transaction."""

    BETWEEN = 0
    """No transaction."""

    ANNOUNCED = 1
    """A GTID or an equivalent event has come; the transaction has not begun."""

    UNDECIDED = 2
    """As ``ANNOUNCED``, but the next statement is an ALTER that has not happened or has failed."""

    OPEN = 3
    """A transaction is open."""

    ALONE = 4
    """Rows without BEGIN; the transaction ends with the statement."""

    XA = 5
    """A transaction that may end in XA PREPARE: no piece is delivered before the decision."""

    RELEASED = 6
    """An XA transaction that is too large to hold: the rows are read again at the commit."""


class Move(enum.IntEnum):
    """A transition."""

    ANNOUNCE = 0
    UNDECIDE = 1
    BEGIN = 2
    BEGIN_ALONE = 3
    """The open transaction has no BEGIN."""

    ENTER_XA = 4
    RELEASE = 5
    READ_AGAIN = 6
    """The rows of the transaction are read again from the log."""

    END = 7
    """The transaction or statement has ended, or was dropped."""


S, M = TransactionState, Move
MOVES: Final[Mapping[TransactionState, Mapping[Move, TransactionState]]] = {
    # A canal cursor is the start of the last END, so a dump from there begins with that event.
    S.BETWEEN: {M.ANNOUNCE: S.ANNOUNCED, M.END: S.BETWEEN},
    S.ANNOUNCED: {M.ANNOUNCE: S.ANNOUNCED, M.UNDECIDE: S.UNDECIDED, M.BEGIN: S.OPEN, M.END: S.BETWEEN},
    S.UNDECIDED: {M.ANNOUNCE: S.ANNOUNCED, M.BEGIN: S.OPEN, M.END: S.BETWEEN},
    S.OPEN: {M.BEGIN_ALONE: S.ALONE, M.ENTER_XA: S.XA, M.READ_AGAIN: S.OPEN, M.END: S.BETWEEN},
    S.ALONE: {M.END: S.BETWEEN},
    S.XA: {M.ENTER_XA: S.XA, M.RELEASE: S.RELEASED, M.END: S.BETWEEN},
    S.RELEASED: {M.RELEASE: S.RELEASED, M.READ_AGAIN: S.OPEN, M.END: S.BETWEEN},
}
#: In ``NEXT``: the move is not allowed.
REFUSED: Final = 255
#: ``MOVES`` for compiled code: next state at index state * len(Move) + move.
NEXT: Final = bytes(MOVES[state].get(move, REFUSED) for state in TransactionState for move in Move)
