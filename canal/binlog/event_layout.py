"""Where the fields of a binlog event are: bytes from its start, by the names that the servers' documentation has.

Never compiled itself: setup.py makes a C enum of it, for compiled modules.
"""

from __future__ import annotations

#: Offset of the first event of a journal, behind the bytes that every journal begins with.
FIRST = 4
#: Bytes of a CRC32 at the end of an event.
CHECKSUM = 4
# The header of every event: seconds, type, server_id, bytes of the event, low half of the offset behind it, flags.
TIME = 0
TYPE = 4
SERVER = 5
SIZE = 9
END = 13
FLAGS = 17
#: Bytes of the header: where the rest begins.
HEADER = 19
# What a server sends: the number of a packet, behind its length; what is in it; there the event, behind one byte.
PACKET_NUMBER = 3
PACKET = 4
PACKET_EVENT = 5
# FORMAT_DESCRIPTION: versions of format and server, seconds of its start, bytes of a header, of each type's fixed part.
FORMAT_VERSION = 19
FORMAT_SERVER = 21
FORMAT_CREATED = 71
FORMAT_HEADER = 75
FORMAT_SIZES = 76
# ROTATE: the offset to go on at, its highest two bytes, the journal's name.
ROTATE_OFFSET = 19
ROTATE_TOP = 26
ROTATE_NAME = 27
# QUERY: thread, seconds that it took, bytes of the schema's name, error, bytes of the status variables, these.
QUERY_THREAD = 19
QUERY_SECONDS = 23
QUERY_SCHEMA_SIZE = 27
QUERY_ERROR = 28
QUERY_STATUS_SIZE = 30
QUERY_STATUS = 32
#: EXECUTE_LOAD_QUERY: the status variables, behind what it says of a file.
LOAD_STATUS = 45
# ROWS_QUERY: the text, behind a byte that cannot hold its length.
ROWS_QUERY_TEXT = 20
# GTID: flags, UUID, number, which clock, its two numbers, their end.
GTID_FLAGS = 19
GTID_SOURCE = 20
GTID_NUMBER = 36
GTID_CLOCK = 44
GTID_LAST_COMMITTED = 45
GTID_SEQUENCE = 53
GTID_CLOCK_END = 61
# MariaDB's GTID: number, domain, flags, the id of a group commit or more flags.
MARIADB_GTID_NUMBER = 19
MARIADB_GTID_DOMAIN = 27
MARIADB_GTID_FLAGS = 31
MARIADB_GTID_REST = 32
# MariaDB's list of GTIDs: how many, the first, bytes of each.
GTID_LIST_COUNT = 19
GTID_LIST = 23
GTID_LIST_EACH = 16
# XA_PREPARE: whether in one phase, format, bytes of both parts of the XID, these.
XA_ONE_PHASE = 19
XA_FORMAT = 20
XA_GLOBAL_SIZE = 24
XA_BRANCH_SIZE = 28
XA_DATA = 32
# XID: the number, its end.
XID_NUMBER = 19
XID_END = 27
# TABLE_MAP: number of the table, flags and behind them all that says which table it is, bytes of the shortest one.
MAP_TABLE = 19
MAP_FLAGS = 25
MAP_LEAST = 29
# Rows: number of the table, flags, then the columns; in version 2 something comes before them, which begins with its bytes.
ROWS_TABLE = 19
ROWS_FLAGS = 25
ROWS_BODY = 27
ROWS_EXTRA = 29
