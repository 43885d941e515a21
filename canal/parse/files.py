"""Binlog files as a source: one file or a directory of them, to their end or following what a server appends.

Never writes, never locks and never looks inside an event further than its header; encrypted files are refused.
"""

from __future__ import annotations

import logging
import os
import re
import threading
import time
import zlib
from pathlib import Path
from typing import BinaryIO, Iterator, Mapping

import attrs

from canal.errors import (
    CanalError,
    ConfigError,
    ConnectionLostError,
    DecodeError,
    LostReason,
    PositionLostError,
    SourceError,
    StateError,
    TruncatedError,
    UnsupportedError,
)
from canal.parse.cascades import ForeignKey, keys_in
from canal.parse.events import IN_USE, Format, check_format, parse_format
from canal.parse.framing import FileFramer
from canal.parse.scan import TransactionScan
from canal.parse.source import Description, MySQLSource, Session, Start
from canal.position import Position, journal_key
from canal.schema import TableSchema, tables_from_mapping, tables_from_sql
from canal.status import SourceEnd

log = logging.getLogger("canal.parse")

MAGIC = b"\xfebin"
_ENCRYPTED_MAGIC = b"\xfdbin"
_ROTATE, _FORMAT, _START_ENCRYPTION = 4, 15, 164
_ARTIFICIAL = 0x20
_JOURNAL_NAME = re.compile(r".+\.\d+")


@attrs.frozen
class LocalBinlogSource:
    """Binlog or relay log files in a directory, named by their ``.index`` file, or one such file.

    Args:
        path: a directory, an index file, or one file. A file alone is read to its end; followed, its successors too.
        follow: wait for events that are appended and for new files; else the log ends with the last whole event.
        schema: where columns are looked up that the files themselves do not name: ``{"shop.orders": "id int primary
            key, note varchar(20)"}`` or SQL text with CREATE TABLE statements, both as of the start of the oldest file (what
            statements in the files change is followed), or a server to ask.
        poll_interval: seconds between two looks for more, with ``follow``.

    A relay log carries the journal names and offsets of the server it came from; positions inside one cannot be resumed
    from here.
    """

    path: str = attrs.field(converter=os.fspath)
    follow: bool = attrs.field(default=False, kw_only=True)
    schema: Mapping[str, str] | str | MySQLSource | None = attrs.field(default=None, kw_only=True, repr=False)
    poll_interval: float = attrs.field(default=0.2, kw_only=True, converter=float)

    def connect(self, server_id_hint: int | None = None) -> LocalBinlogConnection:
        return LocalBinlogConnection(self)

    @property
    def address(self) -> str:
        """Where the files are."""
        return self.path

    def read_end(self, timeout: float) -> SourceEnd:
        """The files with their sizes."""
        return SourceEnd(tuple((path.name, path.stat().st_size) for path in self.journals()))

    def journals(self) -> list[Path]:
        """The files there are now, in the order of the log. Raises ConfigError when ``path`` names none that can be."""
        path = Path(self.path)
        if path.is_dir():
            return _in_directory(path)
        if path.suffix == ".index" and path.is_file():
            return _from_index(path)
        if not path.exists():
            raise ConfigError(
                f"there is no {path}", remedy="Give a binlog file, its index file or a directory of them."
            )
        return [path, *_successors(path)] if self.follow else [path]


def _in_directory(path: Path) -> list[Path]:
    indexes = {index.name: found for index in sorted(path.glob("*.index")) if (found := _from_index(index))}
    if len(indexes) > 1:
        raise ConfigError(
            f"{path} has {len(indexes)} index files: {', '.join(indexes)}",
            remedy="Give the path of the index file that is meant.",
        )
    return next(iter(indexes.values()), None) or _numbered(path)


def _from_index(index: Path) -> list[Path]:
    """The files that an index lists and that are there. Written on any machine: only names count."""
    names = index.read_text("utf-8", "surrogateescape").splitlines()
    paths = [index.parent / re.split(r"[/\\]", name.strip())[-1] for name in names if name.strip()]
    return [path for path in paths if path.is_file()]


def _numbered(directory: Path) -> list[Path]:
    """Files with a numeric suffix, which has no fixed width: 1000000 comes after 999999."""
    paths = [path for path in directory.iterdir() if _JOURNAL_NAME.fullmatch(path.name) and path.is_file()]
    return sorted(paths, key=lambda path: journal_key(path.name))


def _successors(path: Path) -> list[Path]:
    base, number = journal_key(path.name)
    if number < 0:
        return []
    return [
        other
        for other in _numbered(path.parent)
        if journal_key(other.name) > (base, number) and journal_key(other.name)[0] == base
    ]


class LocalBinlogConnection:
    """A ``Connection`` to files: hands out what is in them as a server would send it."""

    def __init__(self, source: LocalBinlogSource) -> None:
        self._source = source
        self._closing = threading.Event()
        self._reading = threading.Lock()
        self._reader: _JournalReader | None = None
        self._checksum: bool | None = None
        self._session: Session | None = None
        self._tables: dict[tuple[str, str], TableSchema] = {}
        schema = source.schema
        if isinstance(schema, MySQLSource):
            self._session = schema.open_session()
        elif isinstance(schema, str):
            self._tables = tables_from_sql(schema)
        elif schema is not None:
            self._tables = tables_from_mapping(schema)
        self._format = _JournalReader(self._journals()[0], 4).read_format()

    @property
    def identity(self) -> str:
        return ""

    @property
    def flavor(self) -> str:
        return "mariadb" if self._format is not None and self._format.release.is_mariadb else "mysql"

    @property
    def has_gtids(self) -> bool:
        return False  # the head of each journal tells

    @property
    def full_metadata(self) -> bool | None:
        return None

    def _journals(self) -> list[Path]:
        found = self._source.journals()
        if not found:
            message = f"there is no binlog file in {self._source.path}"
            raise ConnectionLostError(message) if self._source.follow else PositionLostError(message)
        return found

    def _journal(self, position: Position) -> Path:
        journals = self._journals()
        for path in journals:
            if path.name == position.journal:
                return path
        raise PositionLostError(
            f"there is no file {position.journal or '(no name)'} in {self._source.path}; "
            f"it has {journals[0].name} to {journals[-1].name}",
            position=position,
            remedy='Restore the file, or start from "earliest" to accept the gap.',
        )

    # -- start positions -----------------------------------------------------------------------------------------------

    def resolve(self, start: Start) -> Position:
        if start == "earliest":
            return Position(journal=self._journals()[0].name, offset=4)
        if start == "latest":
            return self._scan(self._journals()[-1:], None)
        if not isinstance(start, Position):
            raise ConfigError(f"start must be 'latest', 'earliest' or a Position, not {start!r}")
        if start.journal and (start.offset or not start.timestamp):
            self._checked_size(start)
            return attrs.evolve(start, offset=max(start.offset, 4))
        if start.timestamp:
            return self._search(start)
        raise ConfigError(
            "files cannot be searched by GTID set" if start.gtid else "the start position is empty",
            remedy='Give a journal and an offset, or a time, or "latest" or "earliest".',
        )

    def _checked_size(self, position: Position) -> Path:
        path = self._journal(position)
        size = path.stat().st_size
        if position.offset > max(size, 4):
            raise PositionLostError(
                f"{path} ends at {size}, before offset {position.offset}",
                reason=LostReason.BEYOND,
                position=position,
                remedy="The file is not the same, or was cut.",
            )
        return path

    def _search(self, start: Position) -> Position:
        target = -(-start.timestamp // 1000)  # events have whole seconds
        if start.journal:
            return self._scan([self._journal(start)], target)
        journals = self._journals()
        first = 0
        for i, path in enumerate(journals):  # the answer is behind the last file that begins before the target
            reader = _JournalReader(path, 4)
            time_begun = reader.read_time()
            if time_begun is not None and time_begun < target:
                first = i
        return self._scan(journals[first:], target)

    def _scan(self, journals: list[Path], target: int | None) -> Position:
        scan = TransactionScan(target)
        for path in journals:
            scan.feed(rotate_event(path.name, 4, checksum=scan.has_checksum))
            offset = 4
            for event in self._whole_events(path):
                # A ROTATE names a file that may not be there (yet), in a relay log even one of another server.
                if event[4] != _ROTATE:
                    scan.feed(event, offset)
                offset += len(event)
                if scan.found is not None:
                    return scan.found
        return scan.boundary

    def journal_names(self) -> list[str]:
        """The files that are there, the oldest first."""
        return [path.name for path in self._journals()]

    def replay(self, journal: str, offset: int) -> Iterator[bytes]:
        """The events of one file from ``offset`` on, its FORMAT_DESCRIPTION first."""
        yield from self._whole_events(self._checked_size(Position(journal=journal, offset=offset)), offset)

    def _whole_events(self, path: Path, offset: int = 4) -> Iterator[bytes]:
        reader = _JournalReader(path, max(offset, 4))
        try:
            while not self._closing.is_set():
                events = reader.read()
                if not events:
                    return
                yield from events
        finally:
            reader.close()
        raise ConnectionLostError(f"reading {self._source.path} was ended")

    # -- the stream ----------------------------------------------------------------------------------------------------

    def dump(self, position: Position) -> None:
        if self._reader is not None:
            raise StateError("this connection streams already")
        self._reader = _JournalReader(self._checked_size(position), max(position.offset, 4))

    def read(self, timeout: float) -> list[bytes] | None:
        with self._reading:
            return self._read(time.monotonic() + timeout)

    def _read(self, deadline: float) -> list[bytes] | None:
        while True:
            if self._closing.is_set():
                raise ConnectionLostError(f"reading {self._source.path} was ended")
            reader = self._reader
            if reader is None:
                raise StateError("nothing is streamed before dump()")
            events = reader.read()
            if events:
                return self._as_sent(reader, events)
            following = self._following(reader)
            if following is not None or not self._source.follow:
                if reader.has_more():
                    continue  # the server appended between our last read and its opening of the next file
                reader.check_tail()
                reader.close()
                if following is None:
                    return None
                self._reader = _JournalReader(following, 4)
                continue
            remaining = deadline - time.monotonic()
            if remaining <= 0:
                return []
            self._closing.wait(min(remaining, self._source.poll_interval))

    def _following(self, reader: _JournalReader) -> Path | None:
        """The file after the reader's, if there is one yet."""
        journals = self._source.journals()
        names = [path.name for path in journals]
        if reader.path.name in names:
            later = journals[names.index(reader.path.name) + 1 :]
        else:  # purged behind us: a reader that holds the file open is not hurt
            later = [path for path in journals if journal_key(path.name) > journal_key(reader.path.name)]
        return later[0] if later else None

    def _as_sent(self, reader: _JournalReader, events: list[bytes]) -> list[bytes]:
        """Put the artificial ROTATE that a server sends before a journal's first events."""
        head = []
        for event in events:
            if event[4] == _FORMAT:
                checksum = parse_format(event).checksum
                if reader.is_fresh:
                    reader.is_fresh = False
                    had = checksum if self._checksum is None else self._checksum
                    head.append(rotate_event(reader.path.name, reader.start, checksum=had))
                self._checksum = checksum
        return head + events

    def table_columns(self, schema: str, table: str) -> TableSchema | None:
        if self._session is not None:
            return self._session.table_columns(schema, table)
        return self._tables.get((schema, table))

    @property
    def logs_cascades(self) -> bool:
        """MySQL from 9.6 on logs what foreign keys change, unless it is told not to, which a file does not tell."""
        form = self._format
        return form is not None and form.release.has("cascades_logged")

    def foreign_keys(self) -> list[ForeignKey]:
        """The cascading foreign keys that ``schema`` tells."""
        schema = self._source.schema or {}
        if isinstance(schema, MySQLSource):
            assert self._session is not None
            return self._session.foreign_keys()
        if isinstance(schema, str):
            return keys_in(schema, flavor=self.flavor)
        return [key for name, text in schema.items() for key in _keys_of(name, text, self.flavor)]

    def tables_like(self, schema: str, name: str, *, is_prefix: bool) -> list[str] | None:
        """Names of the tables of a schema that are called so, or begin so; None where there is nobody to ask."""
        return None if self._session is None else self._session.tables_like(schema, name, is_prefix=is_prefix)

    def describe(self, schema: str = "", table: str = "") -> Description | None:
        """What the server that was given as ``schema`` says now; None without one."""
        return None if self._session is None else self._session.describe(schema, table)

    @property
    def given_tables(self) -> list[TableSchema]:
        """The schemas that were given: as of the start of the oldest file."""
        return list(self._tables.values())

    def close(self) -> None:
        self._closing.set()
        with self._reading:  # a read that waits wakes at once
            if self._reader is not None:
                self._reader.close()
        if self._session is not None:
            self._session.close()


def _keys_of(name: str, text: str, flavor: str) -> list[ForeignKey]:
    """The cascading foreign keys of one table of a mapping: columns, or a whole CREATE TABLE."""
    schema, _, table = name.partition(".")
    if not re.match(r"\s*create\s", text, re.IGNORECASE):
        text = f"CREATE TABLE `{table}` ({text})"
    return keys_in(text, schema, flavor=flavor)


class _JournalReader:
    """Reads one file from an offset: first its FORMAT_DESCRIPTION, then whole events from there on."""

    def __init__(self, path: Path, start: int) -> None:
        self.path = path
        self.start = start
        self.is_fresh = True
        self._file: BinaryIO | None = None
        self._framer: FileFramer | None = None
        self._is_in_use = False
        self._has_format = False
        self._warned = False

    def read(self) -> list[bytes]:
        """The next whole events; [] when there is no more at the moment."""
        framer = self._opened()
        if framer is None:
            return []
        assert self._file is not None
        while True:
            if framer.error is not None:
                raise self._placed(framer.error, framer.offset)
            count = self._file.readinto(framer.room())  # type: ignore[attr-defined]
            if not count:
                return []
            events: list[bytes] = framer.advance(count)
            if events:
                return events if self._has_format else self._first(events)

    def _opened(self) -> FileFramer | None:
        """The framer, behind the file's magic bytes; None while the file has none yet."""
        if self._framer is not None:
            return self._framer
        try:
            self._file = self._file or open(self.path, "rb", buffering=0)
        except OSError as error:
            raise SourceError(f"cannot open {self.path}: {error.strerror}") from error
        self._file.seek(0)
        magic = self._file.read(4)
        if magic == _ENCRYPTED_MAGIC:
            raise self._encrypted()
        if magic != MAGIC[: len(magic)]:
            raise UnsupportedError(
                f"{self.path} is not a binlog file", position=f"{self.path.name}:0",
                remedy="Such a file begins with fe 62 69 6e.",
            )  # fmt: skip
        if len(magic) < 4:
            return None
        self._framer = FileFramer()
        return self._framer

    def _encrypted(self) -> UnsupportedError:
        return UnsupportedError(
            f"{self.path} is encrypted", event_type=_START_ENCRYPTION, position=f"{self.path.name}:0",
            remedy="Read from the server, which decrypts what it sends.",
        )  # fmt: skip

    def _first(self, events: list[bytes]) -> list[bytes]:
        """Check the head of the file, and go on at ``start`` where that is further behind."""
        head = events[0]
        if head[4] != _FORMAT:
            raise UnsupportedError(
                f"{self.path} does not begin with a FORMAT_DESCRIPTION event but with type {head[4]}",
                event_type=head[4],
                position=f"{self.path.name}:4",
                remedy="MySQL before 5.0 wrote it; it holds no rows." if head[4] == 1 else "The file's head is lost.",
            )  # fmt: skip
        try:
            form = parse_format(head)
            if self.start > 4 + len(head):
                check_format(head, form)  # nobody can do so behind us
        except DecodeError as error:
            raise self._placed(error, 4) from error
        if any(event[4] == _START_ENCRYPTION for event in events[1:3]):
            raise self._encrypted()
        self._has_format = True
        self._is_in_use = bool(head[17] & IN_USE)
        after = 4 + len(head)
        if self.start <= after:
            self.start = 4
            return [_as_closed(head), *events[1:]]
        assert self._file is not None
        self._file.seek(self.start)
        self._framer = FileFramer(self.start)
        return [_as_resent(head, form)]

    def _placed(self, error: CanalError, offset: int) -> CanalError:
        error.message = f"{self.path}: {error.message}"
        error.position = f"{self.path.name}:{offset}"
        return error

    def has_more(self) -> bool:
        """Whether the file has grown since the last read."""
        if self._file is None or self._framer is None:
            return self.path.stat().st_size >= len(MAGIC)
        return os.fstat(self._file.fileno()).st_size > self._file.tell()

    def check_tail(self) -> None:
        """Say what becomes of an event that is not whole, now that the file will not grow."""
        pending = self._framer.pending if self._framer is not None else 0
        if self._framer is not None and self._has_format and not pending:
            return
        offset = self._framer.offset if self._framer is not None else 0
        if not self._is_in_use:
            raise TruncatedError(
                f"{self.path} ends inside the event at offset {offset}", position=f"{self.path.name}:{offset}",
                remedy="The file was cut or is still being copied.",
            )  # fmt: skip
        if not self._warned:
            self._warned = True
            log.warning(
                "%s ends inside the event at offset %d: the server has it open, or stopped while it wrote",
                self.path,
                offset,
            )

    def read_format(self) -> Format | None:
        """What the file's head says; None while there is none."""
        try:
            events = self.read()
            return parse_format(events[0]) if events else None
        finally:
            self.close()

    def read_time(self) -> int | None:
        """When the file was begun, in seconds; None while it has no head."""
        try:
            events = self.read()
            return int.from_bytes(events[0][:4], "little") if events else None
        finally:
            self.close()

    def close(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            file.close()


# -- events as a server sends them -------------------------------------------------------------------------------------


def rotate_event(journal: str, offset: int, *, checksum: bool) -> bytes:
    """The artificial ROTATE that tells which journal comes next and at which offset."""
    name = journal.encode("utf-8", "surrogateescape")
    size = 27 + len(name) + 4 * checksum
    head = bytes(4) + bytes((_ROTATE,)) + bytes(4) + size.to_bytes(4, "little") + bytes(4) + bytes((_ARTIFICIAL, 0))
    return _sealed(head + offset.to_bytes(8, "little") + name, checksum)


def _sealed(event: bytes, checksum: bool) -> bytes:
    return event + zlib.crc32(event).to_bytes(4, "little") if checksum else event


def _as_closed(event: bytes) -> bytes:
    """A FORMAT_DESCRIPTION without the mark of a file in use, which its checksum does not cover."""
    return event[:17] + bytes((event[17] & ~IN_USE,)) + event[18:]


def _as_resent(event: bytes, form: Format) -> bytes:
    """A FORMAT_DESCRIPTION as sent before the middle of a file: it has no place there and announces no restart."""
    plain = _as_closed(event)
    plain = plain[:13] + bytes(4) + plain[17:71] + bytes(4) + plain[75:]
    return _sealed(plain[:-4], True) if form.knows_checksums else plain
