"""Which flags of a decoder are true together between two events, as a table.

Never decides anything: the decoder and its parts set their flags, and tests hold each decoder that they run against the table.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from canal.parse.log.decoder import BinlogDecoder


class State(enum.Enum):
    """What is open."""

    BETWEEN = "nothing"
    ANNOUNCED = "a GTID has come, its transaction has not begun"
    OPEN = "a transaction"
    ALONE = "rows without BEGIN, which end with their statement"
    XA = "a transaction that may end in XA PREPARE: no piece of it goes out before"
    RELEASED = "such a one that is too large to be held: its rows are read again at its end"


class Flag(enum.Enum):
    SKIPPING = "so many rows of the transaction, or of the next one, are done and left out"
    PIECE = "entries of the transaction have been handed out, by this decoder or before the start"
    REPLAY = "a prepared transaction is read again"
    UNDECIDED = "the statement to come is an ALTER that has not happened, or has failed"


S, P, R, U = Flag.SKIPPING, Flag.PIECE, Flag.REPLAY, Flag.UNDECIDED
#: What may be true in each state. A transaction of which rows are left out has had a piece, so both are or none.
TOGETHER: Final[Mapping[State, frozenset[frozenset[Flag]]]] = {
    state: frozenset(map(frozenset, rows))
    for state, rows in {
        State.BETWEEN: ((), (S,), (R,), (S, R)),
        State.ANNOUNCED: ((), (S,), (R,), (S, R), (U,)),
        State.OPEN: ((), (P,), (S, P)),
        State.ALONE: ((), (P,), (S, P)),
        State.XA: ((), (S, P), (R,), (P, R), (S, P, R)),
        State.RELEASED: ((), (S, P)),
    }.items()
}


def state_of(decoder: BinlogDecoder) -> State:
    """The state that the flags of a decoder say.

    Raises:
        ValueError: they contradict each other.
    """
    assembly = decoder.assembly
    group, txn, alone, xa, released = (
        assembly.run.is_open, assembly.txn is not None, decoder.is_alone, assembly.in_xa, assembly.released,
    )  # fmt: skip
    found = _STATES.get((bool(group), txn, bool(alone), bool(xa), bool(released)))
    if found is None:
        raise ValueError(f"group={group} txn={txn} alone={alone} xa={xa} released={released}")
    return found


#: A group has begun, its transaction is open, of rows alone, in XA, its rows are let go.
_STATES: Final = {
    (False, False, False, False, False): State.BETWEEN,
    (True, False, False, False, False): State.ANNOUNCED,
    (True, True, False, False, False): State.OPEN,
    (True, True, True, False, False): State.ALONE,
    (True, True, False, True, False): State.XA,
    (True, True, False, True, True): State.RELEASED,
}


def flags_of(decoder: BinlogDecoder) -> frozenset[Flag]:
    assembly = decoder.assembly
    are = {
        Flag.SKIPPING: assembly.is_skipping, Flag.PIECE: assembly.part > 0, Flag.REPLAY: assembly.is_replay,
        Flag.UNDECIDED: decoder.is_undecided,
    }  # fmt: skip
    return frozenset(flag for flag, is_set in are.items() if is_set)


def check(decoder: BinlogDecoder) -> tuple[State, frozenset[Flag]]:
    """The state and the flags of a decoder between two events.

    Raises:
        ValueError: they cannot be true together.
    """
    state, flags = state_of(decoder), flags_of(decoder)
    if flags not in TOGETHER[state]:
        raise ValueError(f"{state} with {sorted(flag.name for flag in flags)}")
    return state, flags
