"""Field offsets in binlog events, in bytes from the event start, with the names of the servers' documentation.

setup.py generates a C enum from this file for compiled modules.
"""

from __future__ import annotations

#: Offset of the first event in a journal, after the magic number.
FIRST = 4
#: Size of the CRC32 at the end of an event.
CHECKSUM = 4
# Event header: timestamp in seconds, type, server_id, event size, low half of the next offset, flags.
TIME = 0
TYPE = 4
SERVER = 5
SIZE = 9
END = 13
FLAGS = 17
#: Size of the header.
HEADER = 19
# Network packets: sequence number after the length, then the payload; the event follows a status byte.
PACKET_NUMBER = 3
PACKET = 4
PACKET_EVENT = 5
# FORMAT_DESCRIPTION: format version, server version, start time in seconds, header size, fixed size per event type.
FORMAT_VERSION = 19
FORMAT_SERVER = 21
FORMAT_CREATED = 71
FORMAT_HEADER = 75
FORMAT_SIZES = 76
# ROTATE: next offset, its two high bytes, journal name.
ROTATE_OFFSET = 19
ROTATE_TOP = 26
ROTATE_NAME = 27
# QUERY: thread, duration in seconds, schema name length, error, status variables length, status variables.
QUERY_THREAD = 19
QUERY_SECONDS = 23
QUERY_SCHEMA_SIZE = 27
QUERY_ERROR = 28
QUERY_STATUS_SIZE = 30
QUERY_STATUS = 32
#: EXECUTE_LOAD_QUERY: status variables, after the file fields.
LOAD_STATUS = 45
# ROWS_QUERY: the text, after a length byte that may overflow.
ROWS_QUERY_TEXT = 20
# GTID: flags, UUID, number, logical clock type, two clock values, end.
GTID_FLAGS = 19
GTID_SOURCE = 20
GTID_NUMBER = 36
GTID_CLOCK = 44
GTID_LAST_COMMITTED = 45
GTID_SEQUENCE = 53
GTID_CLOCK_END = 61
# MARIADB_GTID: number, domain, flags, group commit id or extra flags.
MARIADB_GTID_NUMBER = 19
MARIADB_GTID_DOMAIN = 27
MARIADB_GTID_FLAGS = 31
MARIADB_GTID_REST = 32
# MariaDB GTID_LIST: count, first entry, entry size.
GTID_LIST_COUNT = 19
GTID_LIST = 23
GTID_LIST_EACH = 16
# XA_PREPARE: one-phase flag, format, lengths of both XID parts, XID.
XA_ONE_PHASE = 19
XA_FORMAT = 20
XA_GLOBAL_SIZE = 24
XA_BRANCH_SIZE = 28
XA_DATA = 32
# XID: number, end.
XID_NUMBER = 19
XID_END = 27
# TABLE_MAP: table id, flags, then the identity of the table; minimum size.
MAP_TABLE = 19
MAP_FLAGS = 25
MAP_LEAST = 29
# Rows: table id, flags, columns. Version 2 has extra data before the columns that starts with its length.
ROWS_TABLE = 19
ROWS_FLAGS = 25
ROWS_BODY = 27
ROWS_EXTRA = 29
