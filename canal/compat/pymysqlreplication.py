"""``BinLogStreamReader`` of python-mysql-replication on top of an Instance, for gradual migration.

It supports the options, event classes and attributes that programs use. As in the original, the caller stores the position.
Options with a different meaning raise an error; see docs/how-to/from-python-mysql-replication.md.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Self

from canal.config import InstanceConfig
from canal.errors import ConfigError
from canal.instance.instance import Instance
from canal.model import Entry, EntryType, EventType, Transaction
from canal.parse.source.mysql import MySQLSource
from canal.parse.source.protocol import Source
from canal.position import Position


class BinLogEvent:
    """Base class of all events. ``timestamp`` is in seconds since 1970."""

    def __init__(self, entry: Entry) -> None:
        self.timestamp = entry.header.execute_time // 1000


class GtidEvent(BinLogEvent):
    """Start of a transaction with a MySQL GTID in ``gtid``."""

    def __init__(self, entry: Entry) -> None:
        super().__init__(entry)
        self.gtid = entry.header.gtid


class MariadbGtidEvent(GtidEvent):
    """Start of a transaction with a MariaDB GTID in ``gtid``."""


class QueryEvent(BinLogEvent):
    """BEGIN, or a statement without row changes: ``query``, and ``schema`` as bytes (absent for BEGIN)."""

    def __init__(self, entry: Entry, query: str) -> None:
        super().__init__(entry)
        self.query, self.schema = query, entry.header.schema.encode()


class XidEvent(BinLogEvent):
    """Commit of a transaction."""


class RowsEvent(BinLogEvent):
    """Changed rows of one table: ``schema``, ``table``, ``rows``, and ``primary_key`` as a column name or a tuple of names."""

    def __init__(self, entry: Entry) -> None:
        super().__init__(entry)
        self.schema, self.table = entry.header.schema, entry.header.table
        keys = tuple(column.name for column in entry.table.schema.keys) if entry.table is not None else ()
        self.primary_key = keys[0] if len(keys) == 1 else keys or ""
        self.rows: list[dict[str, Any]] = [self._row(row.before, row.after) for row in entry.rows]

    @staticmethod
    def _row(before: Any, after: Any) -> dict[str, Any]:
        return {"values": (before if after is None else after).as_dict()}


class WriteRowsEvent(RowsEvent):
    """Inserted rows with ``row["values"]``."""


class DeleteRowsEvent(RowsEvent):
    """Deleted rows with ``row["values"]``."""


class UpdateRowsEvent(RowsEvent):
    """Updated rows with ``row["before_values"]`` and ``row["after_values"]``."""

    @staticmethod
    def _row(before: Any, after: Any) -> dict[str, Any]:
        return {"before_values": before.as_dict(), "after_values": after.as_dict()}


_ROWS = {EventType.INSERT: WriteRowsEvent, EventType.UPDATE: UpdateRowsEvent, EventType.DELETE: DeleteRowsEvent}
#: BinLogStreamReader options without effect here.
_NEEDLESS = frozenset(
    (
        "ctl_connection_settings",
        "resume_stream",
        "filter_non_implemented_events",
        "report_slave",
        "slave_uuid",
        "is_mariadb",
        "annotate_rows_event",
        "verify_checksum",
        "enable_logging",
        "use_column_name_cache",
    )
)


class BinLogStreamReader:
    """An endless iterator of events, until ``close``.

    Args:
        connection_settings: host, port, user and passwd (or password), or a source such as :class:`canal.MySQLSource`.
        blocking: must be True: the reader waits for changes and reconnects automatically.
        log_file, log_pos: start position. Otherwise ``auto_position`` (a GTID set), ``skip_to_timestamp`` (in seconds), or
            the end of the log, as in the original.

    The attributes ``log_file`` and ``log_pos`` are the resume position. Within a transaction it is the transaction's start, so
    its rows are read again.

    Raises:
        ConfigError: an option is unknown or has a different meaning here.
    """

    def __init__(
        self,
        connection_settings: Mapping[str, Any] | Source,
        server_id: int | None = None,
        *,
        blocking: bool = False,
        only_events: Collection[type[BinLogEvent]] | None = None,
        ignored_events: Collection[type[BinLogEvent]] = (),
        log_file: str | None = None,
        log_pos: int | None = None,
        auto_position: str | None = None,
        skip_to_timestamp: float | None = None,
        only_schemas: Sequence[str] | None = None,
        ignored_schemas: Sequence[str] | None = None,
        only_tables: Sequence[str] | None = None,
        ignored_tables: Sequence[str] | None = None,
        **options: Any,
    ) -> None:
        if not blocking:
            raise ConfigError("blocking=False is not supported", remedy="Give blocking=True, and leave the loop where you like.")
        wrong = sorted(name for name, value in options.items() if value and name not in _NEEDLESS)
        if wrong:
            raise ConfigError(f"{', '.join(wrong)} of BinLogStreamReader have no meaning here", remedy="Leave them out.")
        start: str | Position = "latest"
        if log_file:
            start = Position(journal=log_file, offset=log_pos or 4)
        elif auto_position:
            start = Position(gtid=auto_position)
        elif skip_to_timestamp:
            start = Position(timestamp=int(skip_to_timestamp * 1000))
        config = InstanceConfig(
            destination="reader",
            source=_source(connection_settings, server_id),
            start=start,
            filter=_names(only_schemas, only_tables),
            black_filter=_dropped(ignored_schemas, ignored_tables),
        )
        self._wanted = None if only_events is None else tuple(only_events)
        self._ignored = tuple(ignored_events)
        self._instance = Instance(config).start()
        self._instance.subscribe()
        self._place = self._instance.position()
        self._events = self._read()

    @property
    def log_file(self) -> str:
        """Log file to resume in."""
        return self._place.journal

    @property
    def log_pos(self) -> int:
        """Offset to resume at."""
        return self._place.offset

    def __iter__(self) -> Iterator[BinLogEvent]:
        return self._events

    def fetchone(self) -> BinLogEvent | None:
        """Return the next event, or None after ``close``."""
        return next(self._events, None)

    def close(self) -> None:
        """Close the connection."""
        self._instance.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _read(self) -> Iterator[BinLogEvent]:
        transaction: Transaction | None = None
        for message in self._instance.stream():
            for entry in message.entries:
                begun = transaction is not None and transaction.is_same(entry.transaction)
                transaction = entry.transaction
                for event in _events_of(entry, begun):
                    self._place = entry.position
                    if (self._wanted is None or isinstance(event, self._wanted)) and not isinstance(event, self._ignored):
                        yield event


def _events_of(entry: Entry, begun: bool) -> Iterator[BinLogEvent]:
    """Return the events for an entry. ``begun`` is true if an event already began the transaction."""
    gtid = entry.header.gtid
    if gtid and not begun:
        yield GtidEvent(entry) if ":" in gtid else MariadbGtidEvent(entry)
    if entry.entry_type is EntryType.TRANSACTIONBEGIN and not begun:
        yield QueryEvent(entry, "BEGIN")
    elif entry.entry_type is EntryType.TRANSACTIONEND:
        yield XidEvent(entry)
    elif entry.event_type in _ROWS:
        yield _ROWS[entry.event_type](entry)
    elif entry.entry_type is EntryType.ROWDATA:
        yield QueryEvent(entry, entry.row_change.sql)


def _source(settings: Mapping[str, Any] | Source, server_id: int | None) -> Source:
    if not isinstance(settings, Mapping):
        return settings
    names = {"passwd": "password", "db": "", "database": "", "charset": ""}
    given = {names.get(name, name): value for name, value in settings.items() if names.get(name, name)}
    known = ("host", "port", "user", "password", "unix_socket", "connect_timeout", "read_timeout")
    wrong = sorted(given.keys() - set(known))
    if wrong:
        raise ConfigError(f"{', '.join(wrong)} of connection_settings have no meaning here", remedy="Give a canal.MySQLSource.")
    return MySQLSource(server_id=server_id, **given)


def _names(schemas: Sequence[str] | None, tables: Sequence[str] | None) -> str:
    """Return a filter for the given schemas and tables."""
    if schemas is None and tables is None:
        return ""
    one_of = ["|".join(map(re.escape, names)) if names is not None else ".*" for names in (schemas, tables)]
    return rf"({one_of[0]})\.({one_of[1]})"


def _dropped(schemas: Sequence[str] | None, tables: Sequence[str] | None) -> str:
    parts = [_names(schemas, None)] if schemas else []
    return ",".join(parts + ([_names(None, tables)] if tables else []))
