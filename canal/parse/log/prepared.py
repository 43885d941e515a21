"""Reads transactions of the log over a side connection.

Never decides about rows; the decoder does. The rows of a prepared XA transaction are read again after a restart, if they
were too many to hold, or if the start is between XA PREPARE and XA COMMIT. A transaction that is delivered in pieces is
scanned first, because it may roll back some rows.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from typing import Any

from canal.binlog import event_layout as layout
from canal.binlog.server_facts import Release
from canal.errors import PositionLostError
from canal.model import TableMap
from canal.parse.log.decoder import BinlogDecoder
from canal.parse.log.events import MAX_INFLATED_BYTES
from canal.parse.schema.classify import classify
from canal.position import Position, PreparedXa
from canal.schema import TableSchema

_FILTERED = TableMap(TableSchema("", "", ()), (), None, False)


def read_again(connection: Any, wanted: PreparedXa, committed: Position) -> Iterator[bytes]:
    """Yield the events of a prepared transaction and later events, starting with a FORMAT_DESCRIPTION.

    Args:
        connection: the source; provides ``journal_names()`` and ``replay(journal, offset)``.
        wanted: with an empty ``journal`` the position is unknown, and the log is searched from the end.
        committed: the start of XA COMMIT: the rows are before it.

    Raises:
        PositionLostError: the log does not contain it, or no longer.
    """
    if connection is None or not connection.can_replay:
        raise _lost(wanted, committed, "this source cannot be read again")
    position: PreparedXa | None = wanted if wanted.journal else _find(connection, wanted.xid, committed)
    if position is None:
        raise _lost(wanted, committed, f"the log does not contain it from {connection.journal_names()[0]} on")
    try:
        yield from connection.replay(position.journal, position.offset)
    except PositionLostError as error:
        raise _lost(wanted, committed, f"the rows were at {position.journal}:{position.offset}") from error


def _lost(wanted: PreparedXa, committed: Position, why: str) -> PositionLostError:
    return PositionLostError(
        f"XA transaction {wanted.xid} was prepared before this reader's start and is committed at {committed}, but {why}",
        position=committed,
        remedy="Copy the tables that it changed again: the rows are gone.",
    )


def _find(connection: Any, xid: str, committed: Position) -> PreparedXa | None:
    """Return the last position before ``committed`` at which the transaction was prepared."""
    names = connection.journal_names()
    if committed.journal in names:
        names = names[: names.index(committed.journal) + 1]
    for journal in reversed(names):
        follower = _follower(connection, Position(journal=journal, offset=layout.FIRST))
        for event in connection.replay(journal, layout.FIRST):
            follower.feed([event])
            if journal == committed.journal and follower.offset >= committed.offset:
                break
        found = [one for one in follower.assembly.prepared if one.xid == xid]
        if found:
            return found[-1]
    return None


def look_ahead(connection: Any, journal: str, offset: int, inflated_bytes: int) -> list[tuple[int, int]] | None:
    """Return the entries that the transaction rolls back later; see ``canal.parse.log.assembly.LookAhead``.

    A transaction that is incomplete in the log may still roll back everything.
    """
    if connection is None or not connection.can_replay:
        return None
    follower = _follower(connection, Position(journal=journal, offset=offset), inflated_bytes)
    found: list[tuple[int, int]] = []
    follower.assembly.taken_back = found
    with contextlib.closing(connection.replay(journal, offset)) as events:
        for event in events:
            follower.feed([event])
            if follower.transaction_count:
                return found
    return [(0, sys.maxsize)]


def _follower(connection: Any, position: Position, inflated_bytes: int = MAX_INFLATED_BYTES) -> BinlogDecoder:
    follower = BinlogDecoder(_nowhere, classify, _nothing, _nothing, _nothing, inflated_bytes=inflated_bytes)
    follower.follow_only = True
    follower.reset(position, connection.flavor, "", None)
    return follower


def _nowhere(body: bytes, release: Release) -> TableMap:
    return _FILTERED


def _nothing(*values: Any) -> None:
    pass
