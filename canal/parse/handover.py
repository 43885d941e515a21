"""A cursor of canal's as a position of ours: where its transaction begins or ends, and which GTIDs are done there.

Never decides where to begin: what cannot be proved is given back as it came.

canal's offset is where the last event done begins, and its cursor names no server. Without GTID mode it has no GTID set either,
and a switch to another server would have to go by the time. A meta.dat that canal has read and written again has our offsets,
which are ends, in canal's form alone: what is before such an offset tells it from canal's own.
"""

from __future__ import annotations

import contextlib
import logging

import attrs

from canal.binlog import event_layout as layout
from canal.binlog.event_types import FORMAT_DESCRIPTION, HEARTBEATS, MARIADB_GTID_LIST, PREVIOUS_GTIDS, ROTATE
from canal.errors import AuthenticationError, ConnectionLostError, SourceError
from canal.gtid import MysqlGtidSet
from canal.parse.log.continuity import incarnation_of, is_at
from canal.parse.log.scan import TransactionScan
from canal.parse.source.protocol import FullConnection
from canal.position import Position

log = logging.getLogger("canal.parse")


def taken_over(connection: FullConnection, cursor: Position) -> Position:
    """The position that a cursor of canal's means in the log of a server; the cursor where that is not known."""
    if not (cursor.at_event and cursor.timestamp and connection.identity and connection.can_replay) or cursor.gtid:
        return cursor
    try:
        found = _found(connection, cursor)
    except (AuthenticationError, ConnectionLostError):
        raise
    except SourceError as error:  # the stream meets it too, and says more
        log.info("%s cannot be looked up: %s", cursor, error)
        return cursor
    return cursor if found is None else found


def _found(connection: FullConnection, cursor: Position) -> Position | None:
    """Read the journal up to the cursor. None where neither the event there nor the one before it is that of the cursor, or
    where the source has GTIDs and the journal does not tell those before it."""
    scan, last, incarnation, tells_gtids = TransactionScan(), b"", "", not connection.has_gtids
    with contextlib.closing(connection.replay(cursor.journal, layout.FIRST)) as events:
        for event in events:
            if event[layout.TYPE] == ROTATE or event[layout.TYPE] in HEARTBEATS:
                continue
            if scan.offset >= cursor.offset:
                break
            if event[layout.TYPE] == FORMAT_DESCRIPTION:
                incarnation = incarnation or incarnation_of(event)
            tells_gtids |= event[layout.TYPE] in (PREVIOUS_GTIDS, MARIADB_GTID_LIST)
            scan.feed(event)
            last = event
        else:
            event = b""
    if scan.offset != cursor.offset or not tells_gtids:
        return None
    if event and is_at(cursor, event):
        begin = scan.boundary
        scan.feed(event)
        # A statement that stands alone may be canal's, which is done, or the one behind ours, within the same second.
        is_alone = begin.offset == cursor.offset
        position = scan.boundary if scan.whole == scan.offset and not is_alone else begin
    elif last and is_at(cursor, last) and scan.whole == scan.offset:
        position = scan.boundary
    else:
        return None
    gtid = position.gtid if connection.has_gtids else ""
    if gtid and connection.purged:
        gtid = str(MysqlGtidSet.parse(gtid) | MysqlGtidSet.parse(connection.purged))
    return attrs.evolve(
        cursor, offset=position.offset, gtid=gtid, source=connection.identity, incarnation=incarnation, at_event=False
    )
