"""Binlog files as a source: one file or a directory of them, to their end or following what a server appends.

Never writes, never locks and never looks inside an event further than its header; encrypted files are refused.
"""

from __future__ import annotations

import contextlib
import io
import logging
import os
import re
import sys
import threading
import time
import zlib
from functools import partial
from itertools import dropwhile
from operator import itemgetter
from pathlib import Path
from typing import Any, Callable, Generator, Mapping, Sequence, TypeVar

import attrs

from canal._util.option_checks import path_of
from canal.binlog import event_layout as layout
from canal.binlog.event_types import (
    ARTIFICIAL_F,
    FORMAT_DESCRIPTION,
    IN_USE_F,
    ROTATE,
    START_ENCRYPTION,
    START_EVENT_V3,
)
from canal.binlog.server_facts import Release
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
from canal.parse.log.events import Format, as_closed, check_format, parse_format, put
from canal.parse.log.framing import BUFFER_BYTES, FileFramer
from canal.parse.log.scan import TransactionScan, first_to_scan
from canal.parse.log.side_reads import SideRead
from canal.parse.schema.cascades import ForeignKey, keys_in
from canal.parse.schema.table_state import TableState
from canal.parse.schema.texts import Tables, tables_from_mapping, tables_from_sql
from canal.parse.source.information_schema import Accepts, accept_all
from canal.parse.source.mysql import MySQLSource
from canal.parse.source.protocol import Description, FullConnection, Start
from canal.parse.source.session import QuerySession
from canal.position import Position, journal_key
from canal.schema import TableSchema
from canal.status import SourceEnd

log = logging.getLogger("canal.parse")

MAGIC = b"\xfebin"
_ENCRYPTED_MAGIC = b"\xfdbin"
#: Of MariaDB's logs in InnoDB, whose files are of pages.
_INNODB_MAGIC, _INNODB_SUFFIX = b"\xfe\xfe\x0d\x01", ".ibb"
_CRASH_SAFE = "_crash_safe"
#: Seconds for which a file that is not there is looked for again, and between two looks.
_PATIENCE, _PAUSE = 5.0, 0.02
#: Bytes that are read at once of a file of which the first event is wanted, and then its middle.
_HEAD_BYTES = 4096
_T = TypeVar("_T")


def _path(value: str | os.PathLike[str]) -> str:
    return path_of(value, "path of LocalBinlogSource")


@attrs.frozen
class LocalBinlogSource:
    """Binlog files in a directory, named by their ``.index`` file, or one such file.

    Args:
        path: a directory, an index file, or one file. A file alone is read to its end; followed, its successors too.
        follow: wait for events that are appended and for new files; else the log ends with the last whole event.
        schema: where columns are looked up that the files themselves do not name: ``{"shop.orders": "id int primary
            key, note varchar(20)"}`` or SQL text with CREATE TABLE statements, both with all keys and as of the start of the
            oldest file (what statements in the files change is followed), or a server to ask. Text columns of a table that
            names no charset are utf8mb4.
        poll_interval: seconds between two looks for more, with ``follow``.
        lower_case_table_names: the setting of the server that wrote the files, which they do not hold: 0, 1 or 2. Without it, and
            without a server to ask, statements that name one table in several cases leave its columns unknown.

    The relay log of a replica is refused: it carries the journal names and offsets of another server.
    """

    path: str = attrs.field(converter=_path)
    follow: bool = attrs.field(default=False, kw_only=True)
    schema: Mapping[str, str] | str | MySQLSource | None = attrs.field(default=None, kw_only=True, repr=False)
    poll_interval: float = attrs.field(default=0.2, kw_only=True, converter=float)
    lower_case_table_names: int | None = attrs.field(default=None, kw_only=True)

    def __attrs_post_init__(self) -> None:
        if self.lower_case_table_names not in (None, 0, 1, 2):
            raise ConfigError(f"lower_case_table_names is 0, 1 or 2, not {self.lower_case_table_names!r}")

    def connect(self, server_id_hint: int | None = None) -> LocalBinlogConnection:
        return LocalBinlogConnection(self)

    @property
    def address(self) -> str:
        """Where the files are."""
        return self.path

    def read_end(self, timeout: float) -> SourceEnd:
        """The files with their sizes."""
        sizes = []
        for path in _patiently(lambda: self.listing()(), patience=min(timeout, _PATIENCE)):
            with contextlib.suppress(FileNotFoundError):  # purged since, or lost, which reading tells
                sizes.append((path.name, path.stat().st_size))
        return SourceEnd(tuple(sizes))

    def journals(self) -> list[Path]:
        """The files of the log, in its order: all that an index lists from the first one on that is there.

        Raises ConfigError when ``path`` names none that can be.
        """
        return _patiently(lambda: self.listing()())

    def listing(self) -> Callable[[], list[Path]]:
        """How to list the files of the one log that ``path`` means now, whatever appears beside it later.

        It and what it gives raise FileNotFoundError while a server has its index away.
        """
        path = Path(self.path)
        if path.is_dir():
            return _in_directory(path)
        if path.suffix == ".index":
            _from_index(path)
            return partial(_from_index, path)
        if not path.exists():
            raise _no_such(path)
        base, number = journal_key(path.name)
        return partial(_numbered, path.parent, base, number) if self.follow and number >= 0 else lambda: [path]


def _no_such(path: object) -> ConfigError:
    return ConfigError(f"there is no {path}", remedy="Give a binlog file, its index file or a directory of them.")


def _in_innodb(path: Path) -> UnsupportedError:
    return UnsupportedError(
        f"{path} is of a MariaDB that keeps its log in InnoDB (binlog_storage_engine), whose files are not read",
        remedy="Read the files of a server that was started without binlog_storage_engine, such as a replica.",
    )


def _patiently(
    find: Callable[[], _T], pause: Callable[[float], object] = time.sleep, patience: float | None = None
) -> _T:
    """What ``find`` gives; it is called again for a moment while a file is not there.

    A server takes its index away to write it anew, and purges between our finding a file and opening it.
    """
    deadline = time.monotonic() + (_PATIENCE if patience is None else patience)
    while True:
        try:
            return find()
        except FileNotFoundError as error:
            lost: CanalError = _no_such(error.filename)
        except OSError as error:
            raise SourceError(f"cannot read {error.filename}: {error.strerror}") from error
        except PositionLostError as error:
            if error.reason is not LostReason.GAP:
                raise
            lost = error
        if time.monotonic() >= deadline:
            raise lost
        pause(_PAUSE)


def _in_directory(path: Path) -> Callable[[], list[Path]]:
    names = {entry.name.removesuffix(_CRASH_SAFE) for entry in os.scandir(path)}  # MySQL writes an index anew beside it
    in_use = [path / name for name in sorted(names) if name.endswith(".index") and _from_index(path / name)]
    pages = sorted(name for name in names if name.endswith(_INNODB_SUFFIX))
    if pages and not in_use:
        raise _in_innodb(path / pages[0])
    if len(in_use) > 1:
        raise ConfigError(
            f"{path} has {len(in_use)} index files: {', '.join(index.name for index in in_use)}",
            remedy="Give the path of the index file that is meant.",
        )
    return partial(_from_index, in_use[0]) if in_use else partial(_numbered, path, _base_in(path))


def _from_index(index: Path) -> list[Path]:
    """The files that an index lists, from the first one on that is there: purging begins at the oldest.

    Written on any machine: only names count. MariaDB writes it anew in place: it may be cut off while it is read, and for a
    moment the last lines are there twice, of which the last ones count.
    """
    text = None
    while text != (again := index.read_text("utf-8", "surrogateescape")):
        text = again
    lines = [line.strip() for line in text.split("\n")]
    names = [re.split(r"[/\\]", line)[-1] for line in lines if line]
    paths = [index.parent / name for name in dict.fromkeys(reversed(names))]
    return list(dropwhile(lambda path: not path.exists(), reversed(paths)))


def _numbered(directory: Path, base: str, first: int = 0) -> list[Path]:
    """Files of a base name by number, which has no fixed width: 1000000 comes after 999999."""
    keys = ((journal_key(entry.name), entry) for entry in os.scandir(directory) if entry.is_file())
    return [Path(entry) for key, entry in sorted(keys, key=itemgetter(0)) if key[0] == base and key[1] >= first]


def _base_in(directory: Path) -> str:
    """The base name of the one series of binlog files in a directory; other numbered files are no binlogs by their magic."""
    numbered: dict[str, list[os.DirEntry[str]]] = {}
    for entry in os.scandir(directory):
        base, number = journal_key(entry.name)
        if number >= 0 and entry.is_file():
            numbered.setdefault(base, []).append(entry)
    bases = sorted(numbered)
    if len(bases) > 1:
        bases = [base for base in bases if any(map(_is_binlog, numbered[base]))] or bases[:1]
    if len(bases) > 1:
        raise ConfigError(
            f"{directory} has the files of {len(bases)} logs: {', '.join(f'{base}.*' for base in bases)}",
            remedy="Put each log into a directory of its own, or give an index file that lists the files of one.",
        )
    return bases[0] if bases else ""


def _is_binlog(entry: os.DirEntry[str]) -> bool:
    with open(entry, "rb", buffering=0) as file:
        return file.read(len(MAGIC)) in (MAGIC, _ENCRYPTED_MAGIC)


class LocalBinlogConnection(FullConnection):
    """A ``Connection`` to files: hands out what is in them as a server would send it."""

    def __init__(self, source: LocalBinlogSource) -> None:
        self._source = source
        self._closing = threading.Event()
        self._reading = threading.Lock()
        self._reader: _JournalReader | None = None
        self._following: _JournalReader | None = None
        self._checksum: bool | None = None
        self._end = Position()
        self._session: QuerySession | None = None
        if isinstance(source.schema, MySQLSource):
            self._session = source.schema.open_session()
        self._list = _patiently(source.listing, self._pause)
        self._format = _patiently(lambda: _JournalReader(self._found()[0]), self._pause).read_format()
        self._tables = _tables_of(source.schema, None if self._format is None else self._format.release)
        if self._format is None and source.follow:  # else we would not know whose log it is
            raise ConnectionLostError(f"the first binlog file in {source.path} has no head yet")

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

    @property
    def lower_case_table_names(self) -> int | None:
        return self._source.lower_case_table_names

    def _pause(self, seconds: float) -> None:
        if self._closing.wait(seconds):
            raise self._ended()

    def _ended(self) -> ConnectionLostError:
        return ConnectionLostError(f"reading {self._source.path} was ended")

    def _journals(self) -> list[Path]:
        return _patiently(self._found, self._pause)

    def _found(self) -> list[Path]:
        found = self._list()
        if not found:
            message = f"there is no binlog file in {self._source.path}"
            raise ConnectionLostError(message) if self._source.follow else PositionLostError(message)
        return found

    def _open(self, position: Position) -> _JournalReader:
        """The file of a position, which does not lie behind its end."""
        return _patiently(partial(self._find, position), self._pause)

    def _find(self, position: Position) -> _JournalReader:
        journals = self._found()
        names = [path.name for path in journals]
        if position.journal not in names:
            raise PositionLostError(
                f"there is no file {position.journal or '(no name)'} in {self._source.path}; it has {names[0]} to {names[-1]}",
                position=position,
                remedy="Restore the file.",
            )
        reader = _open_first(journals[names.index(position.journal) :], max(position.offset, layout.FIRST))
        size = reader.size
        if reader.start > max(size, layout.FIRST):
            reader.close()
            raise PositionLostError(
                f"{reader.path} ends at {size}, before offset {position.offset}",
                reason=LostReason.BEYOND,
                position=position,
                remedy="The file is not the same, or was cut.",
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
            "files cannot be searched by GTID set" if start.gtid else "the start position is empty",
            remedy='Give a journal and an offset, or a time, or "latest" or "earliest".',
        )

    def _search(self, start: Position) -> Position:
        target = -(-start.timestamp // 1000)  # events have whole seconds
        if start.journal:
            return self._scan([start.journal], target)
        names = self.journal_names()
        return self._scan(names[first_to_scan(names, self._begin, target, self._source.path, start) :], target)

    def _begin(self, journal: str) -> int | None:
        """When a file was begun; None while it has no head."""
        return self._open(Position(journal=journal)).read_time()

    def _scan(self, journals: list[str], target: int | None) -> Position:
        scan = TransactionScan(target)
        for journal in journals:
            scan.feed(rotate_event(journal, layout.FIRST, checksum=scan.has_checksum))
            offset = layout.FIRST
            for event in self._whole_events(Position(journal=journal)):
                if event[layout.TYPE] != ROTATE:  # it names a file that may not be there (yet)
                    scan.feed(event, offset)
                offset += len(event)
                if scan.found is not None:
                    return scan.found
        return scan.boundary

    @property
    def can_replay(self) -> bool:
        return True

    def journal_names(self) -> list[str]:
        """The files of the log, the oldest that is there first."""
        return [path.name for path in self._journals()]

    def end_of_log(self) -> Position:
        """Journal and offset of the present end; nothing of the files is read for it twice, and nothing where there is no server
        to ask about tables as they are at that end."""
        journals = self._journals()
        path = journals[-1]
        if self._session is None:  # an index may name the last file before it is there
            path = next((one for one in reversed(journals) if one.exists()), path)
            return Position(journal=path.name, offset=_patiently(path.stat, self._pause).st_size)
        begin = self._end if self._end.journal == path.name else Position(journal=path.name, offset=layout.FIRST)
        scan = TransactionScan()
        scan.feed(rotate_event(path.name, begin.offset, checksum=False))
        for event in self._whole_events(begin):
            if event[layout.TYPE] != ROTATE:
                scan.feed(event)
        self._end = Position(journal=path.name, offset=scan.whole)
        return self._end

    def replay(self, journal: str, offset: int) -> Generator[bytes, None, None]:
        """The events of one file from ``offset`` on, its FORMAT_DESCRIPTION first."""
        yield from self._whole_events(Position(journal=journal, offset=offset))

    def _whole_events(self, position: Position) -> Generator[bytes, None, None]:
        """Those of one file from a position on, none of them damaged as far as it can be seen."""
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

    def _streamed(self, position: Position) -> _JournalReader | None:
        """Open the file that is streamed once more, if it was purged: an open file can be read to its end."""
        reader = self._reader
        if reader is None or reader.path.name != position.journal or reader.is_there() is not None:
            return None
        return reader.again(position.offset)

    # -- the stream ----------------------------------------------------------------------------------------------------

    def dump(self, position: Position) -> None:
        if self._reader is not None:
            raise StateError("this connection streams already")
        with self._reading:
            if self._closing.is_set():  # nobody would close the file
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
                raise StateError("nothing is streamed before dump()")
            events = reader.read()
            if events:
                return self._as_sent(reader, events)
            self._look_behind(reader)
            if reader.has_more():
                continue  # the server appended between our last read and its opening of the next file
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

    def _look_behind(self, reader: _JournalReader) -> None:
        """Open the file after the reader's, if there is one yet, and see that both are of one life of the log.

        Raises:
            PositionLostError: the log was begun anew under the reader.
        """
        self._following = self._following or self._next(reader)
        if self._following is None and not self._source.follow and not self._lacks_successor(reader):
            return
        is_there = reader.is_there()  # looked at behind the opening: what is opened later may be of the new log
        if is_there is None and self._following is None:
            self._following, is_there = self._next(reader), reader.is_there()
        if is_there is None and self._following is not None:
            return  # purged behind us: a reader that holds the file open is not hurt
        if not is_there:
            raise PositionLostError(
                f"{reader.path} {'is gone, and no later file is there' if is_there is None else 'is another file now'}: "
                "the log was begun anew while it was read",
                reason=LostReason.DIVERGED,
            )

    def _lacks_successor(self, reader: _JournalReader) -> bool:
        """Whether a file was there behind the reader's, or is named at its end, that should be read and is not there."""
        return reader.has_successor and reader.path != Path(self._source.path)  # a file alone is read to its end

    def _next(self, reader: _JournalReader) -> _JournalReader | None:
        return _patiently(partial(self._find_next, reader), self._pause)

    def _find_next(self, reader: _JournalReader) -> _JournalReader | None:
        later = self._later(reader)
        if self._source.follow and not any(path.exists() for path in later):
            return None
        return _open_first(later, layout.FIRST) if later else None

    def _later(self, reader: _JournalReader) -> list[Path]:
        journals = self._list()
        names = [path.name for path in journals]
        if reader.path.name in names:
            return journals[names.index(reader.path.name) + 1 :]
        base, number = journal_key(reader.path.name)
        keys = map(journal_key, names)
        return [path for path, (other, n) in zip(journals, keys) if other != base or n > number]

    def _as_sent(self, reader: _JournalReader, events: Sequence[bytes]) -> Sequence[bytes]:
        """Put the artificial ROTATE that a server sends before a journal's first events."""
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
        """MySQL from 9.6 on logs what foreign keys change, unless a variable forbids it, which a file does not say."""
        form = self._format
        return form is not None and form.release.has("cascades_logged")

    def foreign_keys(self) -> list[ForeignKey]:
        """The cascading foreign keys that ``schema`` tells."""
        schema = self._source.schema or {}
        if isinstance(schema, MySQLSource):
            assert self._session is not None
            return self._session.foreign_keys()
        if isinstance(schema, str):
            return keys_in(schema, flavor=self.flavor, most=sys.maxsize)
        return [key for name, text in schema.items() for key in _keys_of(name, text, self.flavor)]

    def tables_like(self, schema: str, name: str, *, is_prefix: bool) -> list[str] | None:
        """Names of the tables of a schema that are called so, or begin so; None where there is nobody to ask."""
        return None if self._session is None else self._session.tables_like(schema, name, is_prefix=is_prefix)

    def unlogged_columns(self, schema: str, table: str) -> set[str]:
        """By the server that was given for the columns, or by their text."""
        if self._session is not None:
            return self._session.unlogged_columns(schema, table)
        known = [one.schema for one in self.given_tables if (one.schema.schema, one.schema.table) == (schema, table)]
        return {column.name for one in known for column in one.columns if not column.logged}

    def describe(self, schema: str = "", table: str = "", *, accepts: Accepts = accept_all) -> Description | None:
        """What the server that was given as ``schema`` says now; None without one."""
        return None if self._session is None else self._session.describe(schema, table, accepts=accepts)

    @property
    def given_tables(self) -> list[TableState]:
        """The schemas that were given: as of the start of the oldest file."""
        return list(self._tables.values())

    def close(self) -> None:
        self._closing.set()
        with self._reading:  # a read that waits wakes at once
            for reader in (self._reader, self._following):
                if reader is not None:
                    reader.close()
        if self._session is not None:
            self._session.close()


def _tables_of(schema: Mapping[str, str] | str | MySQLSource | None, release: Release | None) -> Tables:
    """The tables that ``LocalBinlogSource.schema`` describes; none where it is a server."""
    if schema is None or isinstance(schema, MySQLSource):
        return {}
    return tables_from_sql(schema, release=release) if isinstance(schema, str) else tables_from_mapping(schema, release)


def _keys_of(name: str, text: str, flavor: str) -> list[ForeignKey]:
    """The cascading foreign keys of one table of a mapping: columns, or a whole CREATE TABLE."""
    schema, _, table = name.partition(".")
    if not re.match(r"\s*create\s", text, re.IGNORECASE):
        text = f"CREATE TABLE `{table}` ({text})"
    return keys_in(text, schema, flavor=flavor)


def _open_first(journals: list[Path], start: int) -> _JournalReader:
    """The first of the files; an error names where the log goes on where it is not there."""
    try:
        reader = _JournalReader(journals[0], start)
        reader.has_successor = len(journals) > 1
        return reader
    except FileNotFoundError as error:
        behind = next((Position(journal=path.name, offset=layout.FIRST) for path in journals if path.exists()), None)
        raise PositionLostError(
            f"there is no {journals[0]}, which belongs to the log",
            reason=LostReason.GAP,
            behind=behind,
            remedy="Restore the file.",
        ) from error


class _SameFile(io.RawIOBase):
    """An open file with a position of its own. A descriptor that is duplicated shares the position."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = os.dup(descriptor)
        self._at = 0

    def fileno(self) -> int:
        return self._descriptor

    def readable(self) -> bool:
        return True

    def readinto(self, room: Any) -> int:
        count = os.preadv(self._descriptor, [room], self._at)
        self._at += count
        return count

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self._at = offset
        return offset

    def tell(self) -> int:
        return self._at

    def close(self) -> None:
        if not self.closed:
            os.close(self._descriptor)
        super().close()


class _JournalReader:
    """Reads one file from an offset: first its FORMAT_DESCRIPTION, then whole events from there on."""

    def __init__(self, path: Path, start: int = layout.FIRST, file: io.RawIOBase | None = None) -> None:
        self.path = path
        self.start = start
        self._is_start_proved = False  # an event begins there
        self.is_fresh = True
        #: Whether there is a next file, as the listing says, or the ROTATE at the end.
        self.has_successor = False
        #: Whether there is a FORMAT_DESCRIPTION among the events that were read last.
        self.brings_format = False
        self._file = file or open(path, "rb", buffering=0)
        self._framer: FileFramer | None = None
        self._is_in_use = False
        self._has_format = False
        self._warned = False

    def again(self, start: int) -> _JournalReader:
        """Return another reader of the same open file."""
        return _JournalReader(self.path, max(start, layout.FIRST), _SameFile(self._file.fileno()))

    def read(self) -> Sequence[bytes]:
        """The next whole events; [] when there is no more at the moment."""
        try:
            return self._read()
        except OSError as error:
            raise SourceError(f"cannot read {self.path}: {error.strerror}") from error

    def _read(self) -> Sequence[bytes]:
        framer = self._begun()
        if framer is None:
            return []
        if framer.offset == self.start > layout.FIRST:
            self._check_start()
        while True:
            if framer.error is not None:
                raise self._placed(framer.error, framer.offset)
            count = self._file.readinto(framer.room())
            if not count:
                self._check_rest(framer)
                return []
            events: Sequence[bytes] = framer.advance(count)
            if events:
                self.has_successor |= events[-1][layout.TYPE] == ROTATE
                self.brings_format = framer.has_format or not self._has_format
                return events if self._has_format else self._first(list(events))

    def _begun(self) -> FileFramer | None:
        """The framer, behind the file's magic bytes; None while the file has none yet."""
        if self._framer is not None:
            return self._framer
        self._file.seek(0)
        magic = self._file.read(len(MAGIC))
        if magic == _ENCRYPTED_MAGIC:
            raise self._encrypted()
        if magic == _INNODB_MAGIC:
            raise _in_innodb(self.path)
        if magic != MAGIC[: len(magic)]:
            raise UnsupportedError(
                f"{self.path} is not a binlog file", position=f"{self.path.name}:0",
                remedy="Such a file begins with fe 62 69 6e.",
            )  # fmt: skip
        if len(magic) < len(MAGIC):
            return None
        self._framer = FileFramer(buffer_bytes=BUFFER_BYTES if self.start == layout.FIRST else _HEAD_BYTES)
        return self._framer

    def _check_start(self) -> None:
        """Does an event begin at the offset at which reading began? Of those behind it the decoder sees whether they fit."""
        header = os.pread(self._file.fileno(), layout.HEADER, self.start)
        size, says = _lengths(header)
        end = self.start + size
        # MariaDB from 11.4 on does not say inside a transaction where an event ends; such a start is one that was read.
        fits = says == end & 0xFFFFFFFF if says else end <= self.size
        if len(header) == layout.HEADER and not (fits and size >= layout.HEADER):
            raise self._no_start()
        if 0 < len(header) < layout.HEADER and not self._is_start_proved:
            if not self._is_boundary():
                raise self._no_start()
            self._is_start_proved = True

    def _is_boundary(self) -> bool:
        """Whether the event before the start ends there, by the lengths of all of them."""
        at, size = layout.FIRST, layout.HEADER
        while at < self.start and size >= layout.HEADER:
            size = _lengths(os.pread(self._file.fileno(), layout.HEADER, at))[0]
            at += size
        return at == self.start

    def _no_start(self) -> PositionLostError:
        return PositionLostError(
            f"no event begins in {self.path} at offset {self.start}",
            reason=LostReason.BEYOND,
            position=f"{self.path.name}:{self.start}",
            remedy="The file is not the same, is damaged there, or is still being copied.",
        )

    def _check_rest(self, framer: FileFramer) -> None:
        """Is the event that is not whole at the end of the file one that is still being written, or is its length damaged?"""
        header = os.pread(self._file.fileno(), layout.HEADER, framer.offset)
        size, says = _lengths(header)
        is_wrong = says and says != framer.offset + size & 0xFFFFFFFF
        if len(header) == layout.HEADER and is_wrong and not header[layout.FLAGS] & ARTIFICIAL_F:
            raise self._placed(
                DecodeError(
                    f"an event of {size} bytes says that it ends at {says}", event_type=header[layout.TYPE],
                    remedy="The file is damaged there.",
                ),
                framer.offset,
            )  # fmt: skip

    def _encrypted(self) -> UnsupportedError:
        return UnsupportedError(
            f"{self.path} is encrypted", event_type=START_ENCRYPTION, position=f"{self.path.name}:0",
            remedy="Read from the server, which decrypts what it sends.",
        )  # fmt: skip

    def _first(self, events: list[bytes]) -> list[bytes]:
        """Check the head of the file, and go on at ``start`` where that is further behind."""
        head = events[0]
        kind = head[layout.TYPE]
        if kind != FORMAT_DESCRIPTION:
            raise UnsupportedError(
                f"{self.path} does not begin with a FORMAT_DESCRIPTION event but with type {kind}",
                event_type=kind,
                position=f"{self.path.name}:{layout.FIRST}",
                remedy="MySQL before 5.0 wrote it; it holds no rows." if kind == START_EVENT_V3 else "The file's head is lost.",
            )  # fmt: skip
        try:
            form = parse_format(head)
            check_format(head, form)  # what is read from the middle begins with one that is sealed anew
        except DecodeError as error:
            raise self._placed(error, layout.FIRST) from error
        if any(event[layout.TYPE] == START_ENCRYPTION for event in events[1:3]):
            raise self._encrypted()
        self._has_format = True
        self._is_in_use = bool(head[layout.FLAGS] & IN_USE_F)
        if self.start == layout.FIRST:
            return [as_closed(head), *events[1:]]
        after = layout.FIRST + len(head)
        begin = max(self.start, after)
        self._file.seek(begin)
        self._framer = FileFramer(begin)
        if begin > after:
            return [_as_resent(head, form)]
        self.start = layout.FIRST
        return [as_closed(head)]

    def _placed(self, error: CanalError, offset: int) -> CanalError:
        error.message = f"{self.path}: {error.message}"
        error.position = f"{self.path.name}:{offset}"
        return error

    @property
    def size(self) -> int:
        """Bytes of the open file, whatever has its name now."""
        return os.fstat(self._file.fileno()).st_size

    def has_more(self) -> bool:
        """Whether the file has grown since the last read.

        Raises ConnectionLostError where it has shrunk: a server that starts after a crash cuts what is not whole. What was
        read is then held against the file.
        """
        size, at = self.size, self._file.tell()
        if size < at:
            raise ConnectionLostError(f"{self.path} was cut to {size} bytes when {at} were read")
        return size > at

    def is_there(self) -> bool | None:
        """Whether the open file still has its name; None where no file has it."""
        try:
            return os.path.samestat(os.stat(self.path), os.fstat(self._file.fileno()))
        except OSError:
            return None

    def check_tail(self) -> None:
        """Say what becomes of an event that is not whole, now that the file will not grow."""
        pending = self._framer.pending if self._framer is not None else 0
        if self._framer is not None and self._has_format and not pending:
            return
        offset = self._framer.offset if self._framer is not None else 0
        if not self._is_in_use:
            if offset == self.start > layout.FIRST and pending < layout.HEADER:
                raise self._no_start()
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
            return int.from_bytes(events[0][: layout.TYPE], "little") if events else None
        finally:
            self.close()

    def close(self) -> None:
        self._file.close()


def _lengths(header: bytes) -> tuple[int, int]:
    """The bytes of an event, and where it ends, as its header says."""
    size, end = header[layout.SIZE : layout.END], header[layout.END : layout.FLAGS]
    return int.from_bytes(size, "little"), int.from_bytes(end, "little")


# -- events as a server sends them -------------------------------------------------------------------------------------


def rotate_event(journal: str, offset: int, *, checksum: bool) -> bytes:
    """The artificial ROTATE that tells which journal comes next and at which offset."""
    name = journal.encode("utf-8", "surrogateescape")
    size = layout.ROTATE_NAME + len(name) + layout.CHECKSUM * checksum
    head = bytes(4) + bytes((ROTATE,)) + bytes(4) + size.to_bytes(4, "little") + bytes(4) + bytes((ARTIFICIAL_F, 0))
    return _sealed(head + offset.to_bytes(8, "little") + name, checksum)


def _sealed(event: bytes, checksum: bool) -> bytes:
    return event + zlib.crc32(event).to_bytes(4, "little") if checksum else event


def _as_resent(event: bytes, form: Format) -> bytes:
    """A FORMAT_DESCRIPTION as sent before the middle of a file: it does not belong there and announces no restart."""
    plain = as_closed(event)
    plain = put(put(plain, layout.END, bytes(4)), layout.FORMAT_CREATED, bytes(4))
    return _sealed(plain[: -layout.CHECKSUM], True) if form.knows_checksums else plain
