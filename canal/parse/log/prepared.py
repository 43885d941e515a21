"""Read transactions of a source's log by the side of the stream.

Never decides about rows: that is the decoder's business. The rows of a prepared XA transaction are read again after a
restart, if they were too many to be held, and if the start lies between XA PREPARE and XA COMMIT. A transaction that is
delivered in pieces is looked through first, because it may take back some of its rows.
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
    """The events of the wanted transaction and those behind it, from a FORMAT_DESCRIPTION on.

    Args:
        connection: to the source; it gives ``journal_names()`` and ``replay(journal, offset)``.
        wanted: its ``journal`` is empty when its position is not known; then the log is searched, the newest part first.
        committed: where the XA COMMIT begins: the rows lie before it.

    Raises:
        PositionLostError: the log does not hold it, or not any more.
    """
    if connection is None or not connection.can_replay:
        raise _lost(wanted, committed, "this source cannot be read again")
    position: PreparedXa | None = wanted if wanted.journal else _find(connection, wanted.xid, committed)
    if position is None:
        raise _lost(wanted, committed, f"the log has it nowhere from {connection.journal_names()[0]} on")
    try:
        yield from connection.replay(position.journal, position.offset)
    except PositionLostError as error:
        raise _lost(wanted, committed, f"its rows lay at {position.journal}:{position.offset}") from error


def _lost(wanted: PreparedXa, committed: Position, why: str) -> PositionLostError:
    return PositionLostError(
        f"XA transaction {wanted.xid} was prepared before this reader's start and is committed at {committed}, but {why}",
        position=committed,
        remedy="Copy the tables that it changed anew: its rows are gone.",
    )


def _find(connection: Any, xid: str, committed: Position) -> PreparedXa | None:
    """The last position before ``committed`` at which the transaction was prepared."""
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
    """Return which entries the transaction that begins there takes back later; see ``canal.parse.log.assembly.LookAhead``.

    A transaction that is not whole in the log yet may take back all.
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
