"""Which flags of a decoder are true together in each of its states, between two events."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Final

from canal.parse.log.decoder import BinlogDecoder
from canal.parse.log.states import TransactionState


class Flag(enum.Enum):
    SKIPPING = "so many rows of the transaction, or of the next one, are done and left out"
    PIECE = "entries of the transaction have been handed out, by this decoder or before the start"
    REPLAY = "a prepared transaction is read again"


S, P, R = Flag
#: A transaction of which rows are left out has had a piece, so both are or none.
TOGETHER: Final[Mapping[TransactionState, frozenset[frozenset[Flag]]]] = {
    state: frozenset(map(frozenset, rows))
    for state, rows in {
        TransactionState.BETWEEN: ((), (S,), (R,), (S, R)),
        TransactionState.ANNOUNCED: ((), (S,), (R,), (S, R)),
        TransactionState.UNDECIDED: ((),),
        TransactionState.OPEN: ((), (P,), (S, P)),
        TransactionState.ALONE: ((), (P,), (S, P)),
        TransactionState.XA: ((), (S, P), (R,), (P, R), (S, P, R)),
        TransactionState.RELEASED: ((), (S, P)),
    }.items()
}


def check(decoder: BinlogDecoder) -> tuple[TransactionState, frozenset[Flag]]:
    """Return the state and the flags of a decoder between two events.

    Raises:
        ValueError: they cannot be true together.
    """
    assembly = decoder.assembly
    state = TransactionState(assembly.state)
    if (assembly.txn is not None) != (state >= TransactionState.OPEN):
        raise ValueError(f"{state!r} with {assembly.txn!r}")
    are = {Flag.SKIPPING: assembly.skip > 0, Flag.PIECE: assembly.part > 0, Flag.REPLAY: assembly.is_replay}
    flags = frozenset(flag for flag, is_set in are.items() if is_set)
    if flags not in TOGETHER[state]:
        raise ValueError(f"{state!r} with {sorted(flag.name for flag in flags)}")
    return state, flags
