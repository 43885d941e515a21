"""Decodes rare binlog events in plain Python: formats, GTID lists, compressed events.

Keeps no state: each function maps the bytes of an event to a value.
"""

from __future__ import annotations

import re
import zlib
from functools import lru_cache
from io import BytesIO
from typing import Any, Iterator

import attrs

from canal._util import zstd
from canal.binlog import event_layout as layout
from canal.binlog.event_types import (
    DELETE_ROWS,
    DELETE_ROWS_V1,
    EXECUTE_LOAD_QUERY,
    FL_COMPLETED_XA,
    FL_GROUP_COMMIT_ID,
    FL_PREPARED_XA,
    FORMAT_DESCRIPTION,
    GTID_TAGGED,
    IN_USE_F,
    MARIADB_GTID,
    QUERY,
    QUERY_COMPRESSED,
    ROTATE,
    TABLE_MAP,
    TRANSACTION_PAYLOAD,
    UPDATE_ROWS,
    UPDATE_ROWS_V1,
    WRITE_ROWS,
    WRITE_ROWS_COMPRESSED_V1,
    WRITE_ROWS_V1,
    XA_PREPARE,
    event_name,
)
from canal.binlog.server_facts import Release
from canal.errors import GO_ON_AFTER, ChecksumError, DecodeError, TruncatedError, UnsupportedError
from canal.gtid import MAX_NUMBER, MariadbGtidSet, MysqlGtidSet
from canal.rows import charsets
from canal.rows.wire import packed

#: The largest event that a server can write (max_allowed_packet, slave_max_allowed_packet).
MAX_EVENT_BYTES = 1 << 30
#: Default for the largest event after decompression: a few kB can expand to 1 GiB.
MAX_INFLATED_BYTES = 256 << 20
_CHUNK = 1 << 20

#: CRC32 of any event followed by that event's CRC32 in little-endian order.
CRC_RESIDUE = 0x2144DF1C
DAMAGED = f"The log or the connection is damaged: compare with the file on the server. {GO_ON_AFTER}"
INSIDE = "The position is inside a transaction: start at the beginning of a transaction, or move the cursor there with seek()."


#: Lengths of the fixed parts of event bodies, equal in all releases.
_FIXED_PARTS = {
    QUERY: 13,
    ROTATE: 8,
    TABLE_MAP: 8,
    WRITE_ROWS_V1: 8,
    UPDATE_ROWS_V1: 8,
    DELETE_ROWS_V1: 8,
    WRITE_ROWS: 10,
    UPDATE_ROWS: 10,
    DELETE_ROWS: 10,
    MARIADB_GTID: 19,
}


@attrs.frozen
class Format:
    """The contents of a FORMAT_DESCRIPTION event."""

    server_version: str
    created: int
    checksum: bool
    post_header_lengths: bytes
    knows_checksums: bool

    def __attrs_post_init__(self) -> None:
        for kind, length in _FIXED_PARTS.items():
            found = self.post_header_length(kind)
            if found not in (0, length):
                raise UnsupportedError(
                    f"{event_name(kind)} with a fixed part of {found} bytes, not {length}",
                    event_type=FORMAT_DESCRIPTION,
                    remedy="An unreleased or patched server wrote this.",
                )

    def post_header_length(self, kind: int) -> int:
        """Return the length of the fixed part of an event type's body; 0 if the server does not know the type."""
        return self.post_header_lengths[kind - 1] if kind <= len(self.post_header_lengths) else 0

    @property
    def release(self) -> Release:
        """The release of the server that wrote the log."""
        return Release.parse(self.server_version)


def parse_format(data: bytes) -> Format:
    """Decode a FORMAT_DESCRIPTION event."""
    if len(data) <= layout.FORMAT_SIZES:
        raise TruncatedError("FORMAT_DESCRIPTION event is too short", event_type=FORMAT_DESCRIPTION)
    version = int.from_bytes(data[layout.FORMAT_VERSION : layout.FORMAT_SERVER], "little")
    if version != 4:
        raise UnsupportedError(
            f"binlog format version {version}", event_type=FORMAT_DESCRIPTION, remedy="MySQL 5.1 and later write 4."
        )
    if data[layout.FORMAT_HEADER] != layout.HEADER:
        raise UnsupportedError(
            f"event headers of {data[layout.FORMAT_HEADER]} bytes",
            event_type=FORMAT_DESCRIPTION,
            remedy="A patched server wrote this.",
        )
    server_version = data[layout.FORMAT_SERVER : layout.FORMAT_CREATED].split(b"\0")[0].decode("ascii", "replace")
    lengths, checksum = data[layout.FORMAT_SIZES :], False
    release = Release.parse(server_version)
    knows_checksums = release.has("checksums")
    if knows_checksums:
        if len(lengths) < 6:
            raise TruncatedError("FORMAT_DESCRIPTION event is too short", event_type=FORMAT_DESCRIPTION)
        algorithm, lengths = lengths[-5], lengths[:-5]
        if algorithm not in (0, 1):
            raise UnsupportedError(f"binlog checksum algorithm {algorithm}", event_type=FORMAT_DESCRIPTION)
        checksum = algorithm == 1
    if len(lengths) < DELETE_ROWS_V1 or not release.has("row_events"):
        raise UnsupportedError(
            f"cannot read a log written by version {server_version}: row events had another format",
            event_type=FORMAT_DESCRIPTION,
            remedy="Rows are supported from MySQL 5.1 (GA) on.",
        )
    created = int.from_bytes(data[layout.FORMAT_CREATED : layout.FORMAT_HEADER], "little")
    return Format(server_version, created, checksum, lengths, knows_checksums)


def check_format(data: bytes, form: Format) -> None:
    """Verify the CRC32 of a FORMAT_DESCRIPTION.

    A server sets the in-use flag after it computes the checksum. When it sends the event, it clears the creation time for
    a dump by GTID set or from the middle of a log, and in the latter case also the end. It computes a new checksum only if
    the other events have checksums. Otherwise the checksum is still that of the event in the log, with a creation time of 0
    or of the event.

    Raises:
        ChecksumError: the CRC32 matches none of these forms.
    """
    if not form.knows_checksums or not form.checksum and not any(data[-layout.CHECKSUM :]):
        return
    plain = as_closed(data)
    forms = [data, plain]
    if not form.checksum and not form.created:
        if not any(data[layout.END : layout.FLAGS]):
            plain = put(plain, layout.END, (layout.FIRST + len(data)).to_bytes(4, "little"))
        forms += [plain, put(plain, layout.FORMAT_CREATED, data[: layout.TYPE])]
    if all(zlib.crc32(one) != CRC_RESIDUE for one in forms):
        raise checksum_error(data)


def as_closed(event: bytes) -> bytes:
    """Return a FORMAT_DESCRIPTION without the in-use flag, which the checksum does not cover."""
    return put(event, layout.FLAGS, bytes((event[layout.FLAGS] & ~IN_USE_F,)))


def put(event: bytes, at: int, field: bytes) -> bytes:
    """Return the event with a replaced field."""
    return event[:at] + field + event[at + len(field) :]


def checksum_error(data: bytes) -> ChecksumError:
    told = int.from_bytes(data[-layout.CHECKSUM :], "little")
    return ChecksumError(
        f"{event_name(data[layout.TYPE])} has CRC32 {told:08x}, but the CRC32 of its bytes is "
        f"{zlib.crc32(data[: -layout.CHECKSUM]):08x}",
        event_type=data[layout.TYPE],
        remedy=DAMAGED,
    )


def uuid_text(sid: bytes) -> str:
    h = sid.hex()
    return f"{h[:8]}-{h[8:12]}-{h[12:16]}-{h[16:20]}-{h[20:]}"


def parse_tagged_gtid(data: bytes, end: int) -> tuple[str, int, int]:
    """Return source (``uuid`` or ``uuid:tag``), number and flags of a GTID_TAGGED event.

    The body uses MySQL's serialization: version, size, last required field, then (field, value) pairs in field order:
    0 flags, 1 UUID, 2 number, 3 tag, and others that are ignored.
    """
    at, head = layout.HEADER, []
    for _ in range(3):
        value, at = _variable(data, at, end)
        head.append(value)
    if head[0] != 0 and head[0] != 1:
        raise UnsupportedError(f"GTID_TAGGED event of format {head[0]}", event_type=GTID_TAGGED)
    uuid, number, tag, flags, field = b"", 0, "", 0, -1
    while field < 3:
        field, at = _variable(data, at, end)
        if field == 1:
            sid = []
            for _ in range(16):
                value, at = _variable(data, at, end)
                sid.append(value & 0xFF)
            uuid = bytes(sid)
        elif field == 3:
            size, at = _variable(data, at, end)
            if size > 32 or at + size > end:
                raise TruncatedError("the tag of a GTID_TAGGED event exceeds the event", event_type=GTID_TAGGED)
            tag = data[at : at + size].decode("ascii", "replace").lower()
            at += size
        elif field in (0, 2):
            value, at = _variable(data, at, end)
            if field == 2:
                number = value >> 1 ^ -(value & 1)
            else:
                flags = value
    if not uuid or not 0 < number <= MAX_NUMBER or not re.fullmatch("[a-z_][a-z0-9_]{0,31}|", tag):
        raise DecodeError("GTID_TAGGED event without a valid GTID", event_type=GTID_TAGGED)
    return f"{uuid_text(uuid)}:{tag}" if tag else uuid_text(uuid), number, flags


def _variable(data: bytes, at: int, end: int) -> tuple[int, int]:
    """Return a variable-length integer and the next index. The trailing one bits of the first byte count the further bytes."""
    if at >= end:
        raise TruncatedError("GTID_TAGGED event is too short", event_type=GTID_TAGGED)
    first = data[at]
    more = (~first & (first + 1)).bit_length() - 1  # number of trailing one bits
    if at + 1 + more > end:
        raise TruncatedError("GTID_TAGGED event is too short", event_type=GTID_TAGGED)
    if more == 8:
        return int.from_bytes(data[at + 1 : at + 9], "little"), at + 9
    return int.from_bytes(data[at : at + 1 + more], "little") >> (more + 1), at + 1 + more


def parse_xa_prepare(data: bytes, end: int) -> tuple[bool, str]:
    """Return whether an XA_PREPARE event commits in one phase, and the XID as statements write it."""
    if end < layout.XA_DATA:
        raise TruncatedError("XA_PREPARE event is too short", event_type=XA_PREPARE)
    global_size = int.from_bytes(data[layout.XA_GLOBAL_SIZE : layout.XA_BRANCH_SIZE], "little")
    branch_size = int.from_bytes(data[layout.XA_BRANCH_SIZE : layout.XA_DATA], "little")
    if global_size + branch_size > 128 or layout.XA_DATA + global_size + branch_size > end:
        raise TruncatedError("the XID of an XA_PREPARE event exceeds the event", event_type=XA_PREPARE)
    branch = layout.XA_DATA + global_size
    number = int.from_bytes(data[layout.XA_FORMAT : layout.XA_GLOBAL_SIZE], "little")
    both = data[layout.XA_DATA : branch].hex(), data[branch : branch + branch_size].hex()
    return bool(data[layout.XA_ONE_PHASE]), f"X'{both[0]}',X'{both[1]}',{number}"


def execute_load_query(data: bytes, end: int) -> bytes:
    """Convert an EXECUTE_LOAD_QUERY event to a QUERY event by removing the fields about the loaded file."""
    if end < layout.LOAD_STATUS:
        raise TruncatedError("EXECUTE_LOAD_QUERY event is too short", event_type=EXECUTE_LOAD_QUERY)
    return data[: layout.QUERY_STATUS] + data[layout.LOAD_STATUS : end]


def status_of(data: bytes) -> bytes:
    """Return the status variables of a QUERY event."""
    size = int.from_bytes(data[layout.QUERY_STATUS_SIZE : layout.QUERY_STATUS], "little")
    return data[layout.QUERY_STATUS : layout.QUERY_STATUS + size]


def text_start(data: bytes) -> int:
    """Return the index of a QUERY event's statement."""
    size = int.from_bytes(data[layout.QUERY_STATUS_SIZE : layout.QUERY_STATUS], "little")
    return layout.QUERY_STATUS + size + data[layout.QUERY_SCHEMA_SIZE] + 1


def parse_previous_gtids(data: bytes, end: int) -> MysqlGtidSet:
    return MysqlGtidSet.decode(data[layout.HEADER : end])


def parse_gtid_list(data: bytes, end: int) -> MariadbGtidSet:
    return MariadbGtidSet.decode(data[layout.GTID_LIST_COUNT : end])


_START_ALTER, _ROLLBACK_ALTER = 0x02, 0x08  # extra flags of MARIADB_GTID


def is_undecided_alter(data: bytes, end: int) -> bool:
    """Return whether a MariaDB GTID event announces the start or failure of an ALTER rather than the effect.

    With binlog_alter_two_phase (10.8 and later) the statement is logged before execution and again when it is done.
    """
    flags = data[layout.MARIADB_GTID_FLAGS]
    at = layout.MARIADB_GTID_REST + (8 if flags & FL_GROUP_COMMIT_ID else 0)
    return not flags & (FL_PREPARED_XA | FL_COMPLETED_XA) and at < end and data[at] & (_START_ALTER | _ROLLBACK_ALTER) != 0


# -- compressed events -------------------------------------------------------------------------------------------------


def iter_payload(data: bytes, end: int, limit: int = MAX_INFLATED_BYTES) -> Iterator[bytes]:
    """Yield the events in a TRANSACTION_PAYLOAD, each of at most ``limit`` bytes. The payload is decompressed in chunks."""
    at, size, compression, inflated = layout.HEADER, -1, 0, -1
    while True:
        field, at = packed(data, at, end)
        if field == 0:
            break
        length, at = packed(data, at, end)
        if at + length > end:
            raise TruncatedError("a field of TRANSACTION_PAYLOAD exceeds the event", event_type=TRANSACTION_PAYLOAD)
        value = packed(data, at, at + length)[0] if field in (1, 2, 3) else 0
        if field == 1:
            size = value
        elif field == 2:
            compression = value
        elif field == 3:
            inflated = value
        at += length
    if size < 0 or at + size > end:
        raise TruncatedError("TRANSACTION_PAYLOAD is shorter than its size field", event_type=TRANSACTION_PAYLOAD)
    if compression == 255:
        chunks: Iterator[bytes] = iter((data[at : at + size],))
    elif compression == 0:
        chunks = _inflate_zstd(data[at : at + size], inflated)
    else:
        raise UnsupportedError(f"TRANSACTION_PAYLOAD with compression type {compression}", event_type=TRANSACTION_PAYLOAD)
    yield from _split(chunks, limit)


def _inflate_zstd(data: bytes, inflated: int) -> Iterator[bytes]:
    total = 0
    try:
        for chunk in zstd.inflate(data, _CHUNK):
            total += len(chunk)
            if inflated >= 0 and total > inflated:  # a few bytes can expand to any size
                break
            yield chunk
    except ValueError as error:
        raise DecodeError("cannot decompress TRANSACTION_PAYLOAD", event_type=TRANSACTION_PAYLOAD) from error
    if inflated >= 0 and total != inflated:
        more = "more than " if total > inflated else f"{total} bytes instead of "
        raise DecodeError(f"TRANSACTION_PAYLOAD decompresses to {more}{inflated}", event_type=TRANSACTION_PAYLOAD)


def _split(chunks: Iterator[bytes], limit: int) -> Iterator[bytes]:
    """Split the chunks into events. An event larger than a chunk is assembled in a separate buffer."""
    begun, need = None, layout.HEADER  # an incomplete event, and the event's length, or the header's until that is known
    for chunk in chunks:
        at, have = 0, len(chunk)
        while at < have:
            if begun is None:
                while at + layout.HEADER <= have:
                    length = int.from_bytes(chunk[at + layout.SIZE : at + layout.END], "little")
                    if at + length > have or length < layout.HEADER:
                        break
                    yield chunk[at : at + length]
                    at += length
                begun, need = BytesIO(), layout.HEADER
            part = chunk[at : at + need - begun.tell()]
            at += len(part)
            begun.write(part)
            if begun.tell() == layout.HEADER == need:
                need = _length(begun.getvalue(), limit)
            if begun.tell() == need:
                yield begun.getvalue()
                begun = None
    if begun is not None and begun.tell():
        raise TruncatedError("the last event of a TRANSACTION_PAYLOAD is cut off", event_type=TRANSACTION_PAYLOAD)


def _length(head: bytes, limit: int) -> int:
    length = int.from_bytes(head[layout.SIZE : layout.END], "little")
    if length < layout.HEADER or length > MAX_EVENT_BYTES:
        raise DecodeError(f"an event of {length} bytes inside a TRANSACTION_PAYLOAD", event_type=TRANSACTION_PAYLOAD)
    if length > limit:
        raise _too_large(length, TRANSACTION_PAYLOAD, limit)
    return length


def _too_large(size: int, kind: int, limit: int) -> UnsupportedError:
    return UnsupportedError(
        f"a compressed event ({event_name(kind)}) contains an event of {size} bytes; the limit is {limit}",
        event_type=kind,
        remedy=f"If the server has rows or statements of that size, set store_bytes to at least {size}; see docs/limits.md.",
    )


def _inflate_mariadb(data: bytes, at: int, end: int, kind: int, limit: int) -> bytes:
    """Decompress MariaDB's format from ``at`` on: a byte with the algorithm and the size of the length, the length, zlib data."""
    if at >= end:
        raise TruncatedError(f"{event_name(kind)} is too short", event_type=kind)
    head = data[at]
    width = head & 0x07
    if head & 0x80 == 0 or (head & 0x70) or not 1 <= width <= 4:
        raise UnsupportedError(f"{event_name(kind)} with compression header {head:#x}", event_type=kind)
    start = at + 1 + width
    if start > end:
        raise TruncatedError(f"{event_name(kind)} is too short", event_type=kind)
    size = int.from_bytes(data[at + 1 : start], "big")
    if size > MAX_EVENT_BYTES:
        raise DecodeError(f"{event_name(kind)} claims to decompress to {size} bytes", event_type=kind)
    if size > limit:
        raise _too_large(size, kind, limit)
    inflater = zlib.decompressobj()
    try:
        if size <= _CHUNK:
            plain = data[:at] + inflater.decompress(data[start:end], size + 1)
        else:
            plain = _inflate_in_pieces(inflater, data, at, start, end, size)
    except zlib.error as error:
        raise DecodeError(f"cannot decompress {event_name(kind)}", event_type=kind) from error
    if len(plain) != at + size or not inflater.eof:
        raise DecodeError(f"{event_name(kind)} does not decompress to {size} bytes", event_type=kind)
    return plain


def _inflate_in_pieces(inflater: Any, data: bytes, at: int, start: int, end: int, size: int) -> bytes:
    """Decompress in chunks: zlib's own buffering would use twice the memory."""
    out = BytesIO()
    out.write(data[:at])
    while start < end and out.tell() <= at + size:
        rest, start = data[start : min(start + _CHUNK, end)], start + _CHUNK
        while rest and out.tell() <= at + size:
            out.write(inflater.decompress(rest, _CHUNK))
            rest = inflater.unconsumed_tail
    out.write(inflater.flush())
    return out.getvalue()


def inflate_query(data: bytes, end: int, limit: int = MAX_INFLATED_BYTES) -> bytes:
    """Convert a QUERY_COMPRESSED event to a QUERY event, without checksum."""
    if end < layout.QUERY_STATUS:
        raise TruncatedError("QUERY_COMPRESSED event is too short", event_type=QUERY_COMPRESSED)
    return _inflate_mariadb(data, text_start(data), end, QUERY_COMPRESSED, limit)


def inflate_rows(data: bytes, end: int, kind: int, body: int, limit: int = MAX_INFLATED_BYTES) -> bytes:
    """Convert a compressed rows event to a plain one: only the row images are compressed."""
    count, at = packed(data, body, end)
    at += (count + 7) // 8 * (2 if (kind - WRITE_ROWS_COMPRESSED_V1) % 3 == 1 else 1)
    if at > end:
        raise TruncatedError(f"{event_name(kind)} is too short", event_type=kind)
    return _inflate_mariadb(data, at, end, kind, limit)


# -- status variables of QUERY ---------------------------------------------------------------------------------------

# Numbers, with the servers' names. The last three exist only in MariaDB.
Q_FLAGS2, Q_SQL_MODE, Q_CATALOG, Q_AUTO_INCREMENT, Q_CHARSET, Q_TIME_ZONE, Q_CATALOG_NZ = range(7)
Q_LC_TIME_NAMES, Q_CHARSET_DATABASE, Q_TABLE_MAP_FOR_UPDATE, Q_MASTER_DATA_WRITTEN, Q_INVOKER = range(7, 12)
Q_UPDATED_DB_NAMES, Q_MICROSECONDS = 12, 13
Q_EXPLICIT_DEFAULTS, Q_DDL_LOGGED_WITH_XID, Q_DEFAULT_COLLATION, Q_REQUIRE_PRIMARY_KEY, Q_TABLE_ENCRYPTION = range(16, 21)
Q_HRNOW, Q_XID, Q_CHARACTER_SET_COLLATIONS = 128, 129, 131  # the last has a count, then pairs of collation numbers

#: Lengths of fixed-size status variables. Variables that start with a length are in _COUNTED.
_FIXED = {
    Q_FLAGS2: 4,
    Q_SQL_MODE: 8,
    Q_AUTO_INCREMENT: 4,
    Q_CHARSET: 6,
    Q_LC_TIME_NAMES: 2,
    Q_CHARSET_DATABASE: 2,
    Q_TABLE_MAP_FOR_UPDATE: 8,
    Q_MASTER_DATA_WRITTEN: 4,
    Q_MICROSECONDS: 3,
    Q_HRNOW: 3,
    Q_XID: 8,
}
_COUNTED = {Q_CATALOG, Q_TIME_ZONE, Q_CATALOG_NZ}
#: Lengths of variables that only DDL statements have.
_FIXED_OF_DDL = {
    Q_EXPLICIT_DEFAULTS: 1,
    Q_DDL_LOGGED_WITH_XID: 8,
    Q_DEFAULT_COLLATION: 2,
    Q_REQUIRE_PRIMARY_KEY: 1,
    Q_TABLE_ENCRYPTION: 1,
}


@lru_cache(maxsize=256)
def query_context(status: bytes) -> tuple[str, int]:
    """Return the Python codec of a statement's text (UTF-8 by default) and the sql_mode."""
    codec, sql_mode, at = "utf-8", 0, 0
    while at < len(status):
        code = status[at]
        if code == Q_SQL_MODE and at + 9 <= len(status):
            sql_mode = int.from_bytes(status[at + 1 : at + 9], "little")
        elif code == Q_CHARSET and at + 3 <= len(status):
            codec = _codec(int.from_bytes(status[at + 1 : at + 3], "little"))
        if code in _FIXED:
            at += 1 + _FIXED[code]
        elif code in _COUNTED and at + 1 < len(status):
            at += 2 + status[at + 1] + (0 if code != Q_CATALOG else 1)
        elif code == Q_CHARACTER_SET_COLLATIONS and at + 1 < len(status):
            at += 2 + 4 * status[at + 1]
        else:
            break
    return codec, sql_mode


def _codec(collation: int) -> str:
    try:
        return charsets.codec_of(charsets.charset_of(collation)) or "utf-8"
    except UnsupportedError:
        return "utf-8"


#: MariaDB stores explicit_defaults_for_timestamp in the flags of every QUERY event.
_EXPLICIT_DEFAULTS = 1 << 24


@attrs.frozen
class DdlContext:
    """Session settings that affect the result of a CREATE or ALTER; None if the event lacks them."""

    server_charset: str | None = None
    explicit_defaults: bool | None = None
    connection_charset: str | None = None


def ddl_context(status: bytes, *, mariadb: bool) -> DdlContext:
    """Parse the status variables of a QUERY event with a DDL statement."""
    charset: str | None = None
    connection: str | None = None
    explicit: bool | None = None
    at = 0
    while at < len(status):
        code, value = status[at], status[at + 1 :]
        if code == Q_FLAGS2 and mariadb and len(value) >= 4:
            explicit = bool(int.from_bytes(value[:4], "little") & _EXPLICIT_DEFAULTS)
        elif code == Q_CHARSET and len(value) >= 6:
            connection = _charset_name(int.from_bytes(value[2:4], "little"))
            charset = _charset_name(int.from_bytes(value[4:6], "little"))
        elif code == Q_EXPLICIT_DEFAULTS and not mariadb and value:
            explicit = bool(value[0])
        size = _variable_length(code, value)
        if size is None:
            break
        at += 1 + size
    return DdlContext(charset, explicit, connection)


def _variable_length(code: int, value: bytes) -> int | None:
    """Return the length of a status variable's value; None for an unknown variable, where parsing must stop."""
    if code in _FIXED:
        return _FIXED[code]
    if code in _COUNTED and value:
        return 1 + value[0] + (1 if code == Q_CATALOG else 0)
    if code == Q_INVOKER and value and len(value) > 1 + value[0]:  # user and host of the invoker
        return 2 + value[0] + value[1 + value[0]]
    if code == Q_UPDATED_DB_NAMES and value:  # NUL-terminated database names; 254 means too many to list
        names = value[1:].split(b"\0")[: value[0]] if value[0] < 254 else []
        return 1 + sum(len(name) + 1 for name in names)
    if code == Q_CHARACTER_SET_COLLATIONS and value:
        return 1 + 4 * value[0]
    return _FIXED_OF_DDL.get(code)


def _charset_name(collation: int) -> str | None:
    try:
        return charsets.charset_of(collation)
    except UnsupportedError:
        return None
