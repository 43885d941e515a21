"""The forms of the commands by which a replica registers and asks for a dump, as a server takes them.

Never sends one.
"""

from __future__ import annotations

import socket
import struct
from typing import Final

COM_BINLOG_DUMP: Final = 0x12
COM_REGISTER_SLAVE: Final = 0x15
COM_BINLOG_DUMP_GTID: Final = 0x1E

#: Flags of a dump: end it where the log ends; send ANNOTATE_ROWS (MariaDB).
NON_BLOCK: Final = 1
SEND_ANNOTATE_ROWS: Final = 2

#: The offsets of a dump have 32 bits.
MAX_DUMP_OFFSET: Final = 0xFFFFFFFF


def register_packet(server_id: int) -> bytes:
    """COM_REGISTER_SLAVE: who we are, for SHOW REPLICAS; never the password, which canal sends along in clear."""
    host = socket.gethostname().encode("ascii", "replace")[:60]
    return struct.pack("<IB", server_id, len(host)) + host + struct.pack("<BBHII", 0, 0, 0, 0, 0)


def dump_packet(offset: int, flags: int, server_id: int, journal: str) -> bytes:
    """COM_BINLOG_DUMP; its offset has 32 bits."""
    return struct.pack("<IHI", offset, flags, server_id) + journal.encode("utf-8", "surrogateescape")


def dump_gtid_packet(flags: int, server_id: int, encoded: bytes) -> bytes:
    """COM_BINLOG_DUMP_GTID with no file name and the offset that goes with none."""
    return struct.pack("<HIIQI", flags, server_id, 0, 4, len(encoded)) + encoded
