"""Binlog files as a source: one file or a directory, read to the end or followed while a server appends.

Never writes and never locks. Parses only the headers of events. Refuses encrypted files.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import sys
import threading
import time
from functools import partial
from pathlib import Path
from typing import Callable, Generator, Mapping, Sequence

import attrs

from canal._util.option_checks import path_of
from canal.binlog import event_layout as layout
from canal.binlog.event_types import FORMAT_DESCRIPTION, ROTATE
from canal.binlog.server_facts import Release
from canal.errors import ConfigError, ConnectionLostError, LostReason, PositionLostError, StateError
from canal.parse.log.events import parse_format
from canal.parse.log.scan import TransactionScan, first_to_scan
from canal.parse.log.side_reads import SideRead
from canal.parse.schema.cascades import ForeignKey, keys_in
from canal.parse.schema.table_state import TableVersion
from canal.parse.schema.texts import Tables, tables_from_mapping, tables_from_sql
from canal.parse.source.file_listing import PATIENCE, from_index, in_directory, no_such_file, numbered, retry_missing
from canal.parse.source.file_reader import JournalReader, open_first
from canal.parse.source.information_schema import Accepts, accept_all
from canal.parse.source.mysql import MySQLSource
from canal.parse.source.protocol import Description, FullConnection, Start
from canal.parse.source.sealing import rotate_event
from canal.parse.source.session import QuerySession
from canal.position import Position, journal_key
from canal.schema import TableSchema
from canal.status import SourceEnd

log = logging.getLogger("canal.parse")


def _path(value: str | os.PathLike[str]) -> str:
    return path_of(value, "path of LocalBinlogSource")


@attrs.frozen
class LocalBinlogSource:
    """Binlog files in a directory or listed by an ``.index`` file, or one such file.

    Args:
        path: a directory, an index file, or one file. A single file is read to the end; with ``follow``, also the next files.
        follow: wait for appended events and new files. Otherwise the log ends with the last whole event.
        schema: columns that the files do not name: ``{"shop.orders": "id int primary key, note varchar(20)"}``, SQL text
            with CREATE TABLE statements, or a server to query. Text must contain all keys and describe the tables as of the
            start of the oldest file; later DDL in the files is applied. Text columns without a charset are utf8mb4.
        poll_interval: seconds between two checks for new events, with ``follow``.
        lower_case_table_names: the setting of the server that wrote the files: 0, 1 or 2. Without it and without a server as
            ``schema``, the columns of a table are unknown after statements that spell the table's name in different cases.

    A replica's relay log is refused: the journal names and offsets belong to another server.
    """

    path: str = attrs.field(converter=_path)
    follow: bool = attrs.field(default=False, kw_only=True)
    schema: Mapping[str, str] | str | MySQLSource | None = attrs.field(default=None, kw_only=True, repr=False)
    poll_interval: float = attrs.field(default=0.2, kw_only=True, converter=float)
    lower_case_table_names: int | None = attrs.field(default=None, kw_only=True)

    def __attrs_post_init__(self) -> None:
        if self.lower_case_table_names not in (None, 0, 1, 2):
            raise ConfigError(f"lower_case_table_names must be 0, 1 or 2, not {self.lower_case_table_names!r}")

    def connect(self, server_id_hint: int | None = None) -> LocalBinlogConnection:
        return LocalBinlogConnection(self)

    @property
    def address(self) -> str:
        return self.path

    def read_end(self, timeout: float) -> SourceEnd:
        """Return the names and sizes of the files."""
        sizes = []
        for path in retry_missing(lambda: self.listing()(), patience=min(timeout, PATIENCE)):
            with contextlib.suppress(FileNotFoundError):  # purged, or lost: reading reports that
                sizes.append((path.name, path.stat().st_size))
        return SourceEnd(tuple(sizes))

    def journals(self) -> list[Path]:
        """Return the files of the log in order, starting with the first file of the index that exists.

        Raises:
            ConfigError: ``path`` names no binlog.
        """
        return retry_missing(lambda: self.listing()())

    def listing(self) -> Callable[[], list[Path]]:
        """Return a function that lists the files of the log that ``path`` names now, even if other logs appear later.

        This method and the returned function raise FileNotFoundError while a server rewrites the index.
        """
        path = Path(self.path)
        if path.is_dir():
            return in_directory(path)
        if path.suffix == ".index":
            from_index(path)
            return partial(from_index, path)
        if not path.exists():
            raise no_such_file(path)
        base, number = journal_key(path.name)
        return partial(numbered, path.parent, base, number) if self.follow and number >= 0 else lambda: [path]


class LocalBinlogConnection(FullConnection):
    """A ``Connection`` to files: returns events as a server would send them."""

    def __init__(self, source: LocalBinlogSource) -> None:
        self._source = source
        self._closing = threading.Event()
        self._reading = threading.Lock()
        self._reader: JournalReader | None = None
        self._following: JournalReader | None = None
        self._checksum: bool | None = None
        self._end = Position()
        self._session: QuerySession | None = None
        if isinstance(source.schema, MySQLSource):
            self._session = source.schema.open_session()
        self._list = retry_missing(source.listing, self._pause)
        self._format = retry_missing(lambda: JournalReader(self._found()[0]), self._pause).read_format()
        self._tables = _tables_of(source.schema, None if self._format is None else self._format.release)
        if self._format is None and source.follow:  # without a head the flavor is unknown
            raise ConnectionLostError(f"the first binlog file in {source.path} has no FORMAT_DESCRIPTION yet")

    @property
    def identity(self) -> str:
        return ""

    @property
    def flavor(self) -> str:
        return "mariadb" if self._format is not None and self._format.release.is_mariadb else "mysql"

    @property
    def has_gtids(self) -> bool:
        return False  # unknown until the head of each journal is read

    @property
    def full_metadata(self) -> bool | None:
        return None

    @property
    def lower_case_table_names(self) -> int | None:
        return self._source.lower_case_table_names

    def _pause(self, seconds: float) -> None:
        if self._closing.wait(seconds):
            raise self._ended()

    def _ended(self) -> ConnectionLostError:
        return ConnectionLostError(f"the connection to {self._source.path} was closed")

    def _journals(self) -> list[Path]:
        return retry_missing(self._found, self._pause)

    def _found(self) -> list[Path]:
        found = self._list()
        if not found:
            message = f"there is no binlog file in {self._source.path}"
            raise ConnectionLostError(message) if self._source.follow else PositionLostError(message)
        return found

    def _open(self, position: Position) -> JournalReader:
        """Open the file of a position. Raises PositionLostError if the file is missing or ends before the position."""
        return retry_missing(partial(self._find, position), self._pause)

    def _find(self, position: Position) -> JournalReader:
        journals = self._found()
        names = [path.name for path in journals]
        if position.journal not in names:
            raise PositionLostError(
                f"there is no file {position.journal or '(no name)'} in {self._source.path}; it has {names[0]} to {names[-1]}",
                position=position,
                remedy="Restore the file.",
            )
        reader = open_first(journals[names.index(position.journal) :], max(position.offset, layout.FIRST))
        size = reader.size
        if reader.start > max(size, layout.FIRST):
            reader.close()
            raise PositionLostError(
                f"{reader.path} ends at {size}, before offset {position.offset}",
                reason=LostReason.BEYOND,
                position=position,
                remedy="Restore the file: it was replaced or cut.",
            )
        return reader

    # -- start positions -----------------------------------------------------------------------------------------------

    def resolve(self, start: Start) -> Position:
        if start == "earliest":
            return Position(journal=self._journals()[0].name, offset=layout.FIRST)
        if start == "latest":
            return self._scan(self.journal_names()[-1:], None)
        if not isinstance(start, Position):
            raise ConfigError(f"start must be 'latest', 'earliest' or a Position, not {start!r}")
        if start.journal and (start.offset or not start.timestamp):
            self._open(start).close()
            return attrs.evolve(start, offset=max(start.offset, layout.FIRST))
        if start.timestamp:
            return self._search(start)
        raise ConfigError(
            "cannot search files by GTID set" if start.gtid else "the start position is empty",
            remedy='Give a journal and an offset, a time, "latest" or "earliest".',
        )

    def _search(self, start: Position) -> Position:
        target = -(-start.timestamp // 1000)  # events have whole seconds
        if start.journal:
            return self._scan([start.journal], target)
        names = self.journal_names()
        return self._scan(names[first_to_scan(names, self._begin, target, self._source.path, start) :], target)

    def _begin(self, journal: str) -> int | None:
        """Return when a file was begun, in Unix seconds; None if it has no head yet."""
        return self._open(Position(journal=journal)).read_time()

    def _scan(self, journals: list[str], target: int | None) -> Position:
        scan = TransactionScan(target)
        for journal in journals:
            scan.feed(rotate_event(journal, layout.FIRST, checksum=scan.has_checksum))
            offset = layout.FIRST
            for event in self._whole_events(Position(journal=journal)):
                if event[layout.TYPE] != ROTATE:  # the next file may not exist yet
                    scan.feed(event, offset)
                offset += len(event)
                if scan.found is not None:
                    return scan.found
        return scan.boundary

    @property
    def can_replay(self) -> bool:
        return True

    def journal_names(self) -> list[str]:
        return [path.name for path in self._journals()]

    def end_of_log(self) -> Position:
        """Return the journal and offset of the present end.

        Without a server to query, this is the file's size. With one, scan for the last whole transaction, and remember how far.
        """
        journals = self._journals()
        path = journals[-1]
        if self._session is None:  # an index may list the last file before it exists
            path = next((one for one in reversed(journals) if one.exists()), path)
            return Position(journal=path.name, offset=retry_missing(path.stat, self._pause).st_size)
        begin = self._end if self._end.journal == path.name else Position(journal=path.name, offset=layout.FIRST)
        scan = TransactionScan()
        scan.feed(rotate_event(path.name, begin.offset, checksum=False))
        for event in self._whole_events(begin):
            if event[layout.TYPE] != ROTATE:
                scan.feed(event)
        self._end = Position(journal=path.name, offset=scan.whole)
        return self._end

    def replay(self, journal: str, offset: int) -> Generator[bytes, None, None]:
        yield from self._whole_events(Position(journal=journal, offset=offset))

    def _whole_events(self, position: Position) -> Generator[bytes, None, None]:
        """Yield the events of a file from a position on. Raises if an event is visibly damaged."""
        reader, side = self._streamed(position) or self._open(position), SideRead(position.journal, position.offset)
        try:
            while not self._closing.is_set():
                events = reader.read()
                if not events:
                    return
                yield from map(side.check, events)
        finally:
            reader.close()
        raise self._ended()

    def _streamed(self, position: Position) -> JournalReader | None:
        """Open the streamed file again, by descriptor: a purge may remove it from the index and directory at any moment."""
        reader = self._reader
        if reader is None or reader.path.name != position.journal or reader.is_there() is False:
            return None
        return reader.again(position.offset)

    # -- the stream ----------------------------------------------------------------------------------------------------

    def dump(self, position: Position) -> None:
        if self._reader is not None:
            raise StateError("this connection streams already")
        with self._reading:
            if self._closing.is_set():  # close() has run and would not close the new file
                raise self._ended()
            self._reader = self._open(position)

    def read(self, timeout: float) -> Sequence[bytes] | None:
        with self._reading:
            return self._read(time.monotonic() + timeout)

    def _read(self, deadline: float) -> Sequence[bytes] | None:
        while True:
            if self._closing.is_set():
                raise self._ended()
            reader = self._reader
            if reader is None:
                raise StateError("cannot read before dump()")
            events = reader.read()
            if events:
                return self._as_sent(reader, events)
            self._check_next(reader)
            if reader.has_more():
                continue  # the server appended after our last read and before it began the next file
            if self._following is not None or not self._source.follow:
                reader.check_tail()
                reader.close()
                if self._following is None:
                    return None
                self._reader, self._following = self._following, None
                continue
            remaining = deadline - time.monotonic()
            if remaining <= 0:
                return []
            self._closing.wait(min(remaining, self._source.poll_interval))

    def _check_next(self, reader: JournalReader) -> None:
        """Open the next file if there is one, and check that it continues the same log.

        Raises:
            PositionLostError: the log was reset while it was read.
        """
        self._following = self._following or self._next(reader)
        if self._following is None and not self._source.follow and not self._lacks_successor(reader):
            return
        is_there = reader.is_there()  # checked after opening the next file, which may belong to a new log
        if is_there is None and self._following is None:
            self._following, is_there = self._next(reader), reader.is_there()
        if is_there is None and self._following is not None:
            return  # purged after we opened it: the open file stays readable
        if not is_there:
            raise PositionLostError(
                f"{reader.path} {'is gone, and no later file exists' if is_there is None else 'was replaced'}: "
                "the log was reset while it was read",
                reason=LostReason.DIVERGED,
            )

    def _lacks_successor(self, reader: JournalReader) -> bool:
        """Return whether the next file, as listed or named by the ROTATE at the end, is missing."""
        return reader.has_successor and reader.path != Path(self._source.path)  # a single file has no next one

    def _next(self, reader: JournalReader) -> JournalReader | None:
        return retry_missing(partial(self._find_next, reader), self._pause)

    def _find_next(self, reader: JournalReader) -> JournalReader | None:
        later = self._later(reader)
        if self._source.follow and not any(path.exists() for path in later):
            return None
        return open_first(later, layout.FIRST) if later else None

    def _later(self, reader: JournalReader) -> list[Path]:
        journals = self._list()
        names = [path.name for path in journals]
        if reader.path.name in names:
            return journals[names.index(reader.path.name) + 1 :]
        base, number = journal_key(reader.path.name)
        keys = map(journal_key, names)
        return [path for path, (other, n) in zip(journals, keys) if other != base or n > number]

    def _as_sent(self, reader: JournalReader, events: Sequence[bytes]) -> Sequence[bytes]:
        """Insert the artificial ROTATE that a server sends before a journal's first events."""
        head = []
        for event in events if reader.brings_format else ():
            if event[layout.TYPE] == FORMAT_DESCRIPTION:
                checksum = parse_format(event).checksum
                if reader.is_fresh:
                    reader.is_fresh = False
                    had = checksum if self._checksum is None else self._checksum
                    head.append(rotate_event(reader.path.name, reader.start, checksum=had))
                self._checksum = checksum
        return [*head, *events] if head else events

    def table_columns(self, schema: str, table: str) -> TableSchema | None:
        if self._session is not None:
            return self._session.table_columns(schema, table)
        known = self._tables.get((schema, table))
        return None if known is None else TableSchema(schema, table, known.shown)

    @property
    def logs_cascades(self) -> bool:
        """Whether the log has rows changed by foreign keys: MySQL from 9.6 on. The files do not show whether it is disabled."""
        form = self._format
        return form is not None and form.release.has("cascades_logged")

    def foreign_keys(self) -> list[ForeignKey]:
        schema = self._source.schema or {}
        if isinstance(schema, MySQLSource):
            assert self._session is not None
            return self._session.foreign_keys()
        if isinstance(schema, str):
            return keys_in(schema, flavor=self.flavor, most=sys.maxsize)
        return [key for name, text in schema.items() for key in _keys_of(name, text, self.flavor)]

    def tables_like(self, schema: str, name: str, *, is_prefix: bool) -> list[str] | None:
        return None if self._session is None else self._session.tables_like(schema, name, is_prefix=is_prefix)

    def unlogged_columns(self, schema: str, table: str) -> set[str]:
        """See ``SchemaReader.unlogged_columns``. Uses the server or the text in ``schema``."""
        if self._session is not None:
            return self._session.unlogged_columns(schema, table)
        known = [one.schema for one in self.given_tables if (one.schema.schema, one.schema.table) == (schema, table)]
        return {column.name for one in known for column in one.columns if not column.logged}

    def describe(self, schema: str = "", table: str = "", *, accepts: Accepts = accept_all) -> Description | None:
        return None if self._session is None else self._session.describe(schema, table, accepts=accepts)

    @property
    def given_tables(self) -> list[TableVersion]:
        return list(self._tables.values())

    def close(self) -> None:
        self._closing.set()
        with self._reading:  # a waiting read wakes at once
            for reader in (self._reader, self._following):
                if reader is not None:
                    reader.close()
        if self._session is not None:
            self._session.close()


def _tables_of(schema: Mapping[str, str] | str | MySQLSource | None, release: Release | None) -> Tables:
    if schema is None or isinstance(schema, MySQLSource):
        return {}
    return tables_from_sql(schema, release=release) if isinstance(schema, str) else tables_from_mapping(schema, release)


def _keys_of(name: str, text: str, flavor: str) -> list[ForeignKey]:
    """Return the cascading foreign keys of a table. ``text`` is a column list or a whole CREATE TABLE."""
    schema, _, table = name.partition(".")
    if not re.match(r"\s*create\s", text, re.IGNORECASE):
        text = f"CREATE TABLE `{table}` ({text})"
    return keys_in(text, schema, flavor=flavor)
