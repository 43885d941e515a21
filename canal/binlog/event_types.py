"""Binlog event types and header flags, with the names of the servers' documentation.

setup.py generates a C enum from this file for compiled modules.
"""

from __future__ import annotations

START_EVENT_V3 = 1
QUERY = 2
STOP = 3
ROTATE = 4
INTVAR = 5
LOAD = 6
SLAVE = 7
CREATE_FILE = 8
APPEND_BLOCK = 9
EXEC_LOAD = 10
DELETE_FILE = 11
NEW_LOAD = 12
RAND = 13
USER_VAR = 14
FORMAT_DESCRIPTION = 15
XID = 16
BEGIN_LOAD_QUERY = 17
EXECUTE_LOAD_QUERY = 18
TABLE_MAP = 19
PRE_GA_WRITE_ROWS = 20
PRE_GA_UPDATE_ROWS = 21
PRE_GA_DELETE_ROWS = 22
WRITE_ROWS_V1 = 23
UPDATE_ROWS_V1 = 24
DELETE_ROWS_V1 = 25
INCIDENT = 26
HEARTBEAT = 27
IGNORABLE = 28
ROWS_QUERY = 29
WRITE_ROWS = 30
UPDATE_ROWS = 31
DELETE_ROWS = 32
GTID = 33
ANONYMOUS_GTID = 34
PREVIOUS_GTIDS = 35
TRANSACTION_CONTEXT = 36
VIEW_CHANGE = 37
XA_PREPARE = 38
PARTIAL_UPDATE_ROWS = 39
TRANSACTION_PAYLOAD = 40
HEARTBEAT_V2 = 41
GTID_TAGGED = 42
ANNOTATE_ROWS = 160
BINLOG_CHECKPOINT = 161
MARIADB_GTID = 162
MARIADB_GTID_LIST = 163
START_ENCRYPTION = 164
QUERY_COMPRESSED = 165
WRITE_ROWS_COMPRESSED_V1 = 166
UPDATE_ROWS_COMPRESSED_V1 = 167
DELETE_ROWS_COMPRESSED_V1 = 168
WRITE_ROWS_COMPRESSED = 169
UPDATE_ROWS_COMPRESSED = 170
DELETE_ROWS_COMPRESSED = 171
PARTIAL_ROW_DATA = 172

#: Names of the event types.
EVENT_NAMES = {number: name for name, number in list(globals().items()) if name.isupper() and isinstance(number, int)}

HEARTBEATS = frozenset((HEARTBEAT, HEARTBEAT_V2))
#: Events that a server generates or repeats at the start of a journal or between changes.
HEADS = frozenset((ROTATE, FORMAT_DESCRIPTION, HEARTBEAT, PREVIOUS_GTIDS, HEARTBEAT_V2, MARIADB_GTID_LIST, START_ENCRYPTION))

# Flags of an event's header.
#: FORMAT_DESCRIPTION: the journal is in use, or was when the server crashed.
IN_USE_F = 0x01
#: The event is not in a journal: the server generated it for the dump.
ARTIFICIAL_F = 0x20
#: The event belongs to a replica's relay log.
RELAY_LOG_F = 0x40
#: Readers may ignore the event if they do not know the type.
IGNORABLE_F = 0x80

# Flags of a GTID or ANONYMOUS_GTID of MySQL.
#: The transaction may have statements in addition to rows. Meaningless up to MySQL 5.7.18.
FL_MAY_HAVE_STATEMENTS = 0x01

# Flags of a MARIADB_GTID.
FL_STANDALONE = 0x01
FL_GROUP_COMMIT_ID = 0x02
FL_TRANSACTIONAL = 0x04
FL_ALLOW_PARALLEL = 0x08
FL_DDL = 0x20
FL_PREPARED_XA = 0x40
FL_COMPLETED_XA = 0x80


def event_name(kind: int) -> str:
    """Return the name and number of an event type for messages."""
    return f"{EVENT_NAMES.get(kind, 'unknown')} event (type {kind})"
