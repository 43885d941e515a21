"""Entry and event types, with canal's names and numbers."""

from __future__ import annotations

from enum import IntEnum


class EntryType(IntEnum):
    """Entry kinds. Names and numbers are canal's."""

    TRANSACTIONBEGIN = 1
    ROWDATA = 2
    TRANSACTIONEND = 3
    HEARTBEAT = 4
    GTIDLOG = 5


class EventType(IntEnum):
    """Change kinds. Names and numbers are canal's."""

    INSERT = 1
    UPDATE = 2
    DELETE = 3
    CREATE = 4
    ALTER = 5
    ERASE = 6
    QUERY = 7
    TRUNCATE = 8
    RENAME = 9
    CINDEX = 10
    DINDEX = 11
    GTID = 12
    XACOMMIT = 13
    XAROLLBACK = 14
    MHEARTBEAT = 15
