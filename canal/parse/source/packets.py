"""Encodes the commands that register a replica and request a dump.

Never sends them.
"""

from __future__ import annotations

import socket
import struct
from typing import Final

COM_BINLOG_DUMP: Final = 0x12
COM_REGISTER_SLAVE: Final = 0x15
COM_BINLOG_DUMP_GTID: Final = 0x1E

#: Flags of a dump: end at the end of the log; send ANNOTATE_ROWS (MariaDB).
NON_BLOCK: Final = 1
SEND_ANNOTATE_ROWS: Final = 2

#: Largest offset of a dump: 32 bits.
MAX_DUMP_OFFSET: Final = 0xFFFFFFFF


def register_packet(server_id: int) -> bytes:
    """Return COM_REGISTER_SLAVE with our host name, for SHOW REPLICAS. Canal also sends the password in clear text; we do not."""
    host = socket.gethostname().encode("ascii", "replace")[:60]
    return struct.pack("<IB", server_id, len(host)) + host + struct.pack("<BBHII", 0, 0, 0, 0, 0)


def dump_packet(offset: int, flags: int, server_id: int, journal: str) -> bytes:
    """Return COM_BINLOG_DUMP. ``offset`` has 32 bits."""
    return struct.pack("<IHI", offset, flags, server_id) + journal.encode("utf-8", "surrogateescape")


def dump_gtid_packet(flags: int, server_id: int, encoded: bytes) -> bytes:
    """Return COM_BINLOG_DUMP_GTID without a file name and with offset 4, as servers require."""
    return struct.pack("<HIIQI", flags, server_id, 0, 4, len(encoded)) + encoded
