"""The schema history: the columns of all tables, versioned by log position.

Never parses a statement and never queries a server: stores table versions and returns them for a position.

A step is a position with the changes there. Steps are in log order, so the steps done at a position come first. The state at a
position is each table's last version among these steps.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import sqlite3
import time
import weakref
import zlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, Protocol, runtime_checkable

import attrs

from canal._util.disk import make_folder, private
from canal._util.option_checks import path_of
from canal.errors import CursorError, HistoryError
from canal.position import Position

Table = tuple[str, str]
#: A table as JSON values; True: it may exist with unknown columns; None: it does not exist.
Version = dict[str, Any] | bool | None


@attrs.frozen
class Snapshot:
    """All tables at a position (never None), and ``settings``: other state as JSON values.

    ``ahead``: the settings of the last discarded step, which was after the position.
    """

    tables: Mapping[Table, Version]
    settings: Mapping[str, Any]
    ahead: Mapping[str, Any] = attrs.field(factory=dict)


@runtime_checkable
class SchemaHistory(Protocol):
    """Stores versions of tables by position, for a single destination at a time, used by a single thread."""

    def open(self, destination: str) -> None:
        """Open the history. Raises HistoryError if the stored data is unusable."""

    def restore(self, position: Position) -> Snapshot | None:
        """Return the state at a position, and discard later steps; None if nothing that old is stored.

        Raises:
            HistoryError: the position cannot be compared with those of the steps, or the stored data is damaged.
        """

    def add(self, position: Position, tables: Mapping[Table, Version], settings: Mapping[str, Any] | None) -> None:
        """Store a step after all others; durable on return. ``settings`` None: unchanged.

        Raises:
            HistoryError: the step could not be stored.
        """

    def prune(self, position: Position) -> None:
        """Forget data that is needed only before this position."""

    def forget(self) -> None:
        """Forget everything, because a log of another server is read from now on."""

    def close(self) -> None:
        """Close the history; ``open`` may follow."""


def is_done(step: Position, position: Position) -> bool | None:
    """Return whether a step is done for a reader that resumes at the position; None if they cannot be compared."""
    before = step.precedes(position)
    if before is None:
        # Another source, and each has executed something that the other lacks: so the step is not done.
        return False if _gtid_sources(step) & _gtid_sources(position) else None
    if before is False:
        after = position.precedes(step)
        return None if after is None else not after
    return before


def _gtid_sources(position: Position) -> set[str]:
    """Return the UUIDs, or MariaDB's domains."""
    return {part.partition(":" if ":" in part else "-")[0] for part in position.gtid.split(",") if part}


class OtherSourceError(HistoryError):
    """The history belongs to another source."""


def _incomparable(step: Position, position: Position, where: str) -> HistoryError:
    return OtherSourceError(
        f"the schema history{where} has position {step} of {step.source or 'an unnamed source'}, which cannot be compared with "
        f"{position} of {position.source or 'an unnamed source'}",
        remedy="The history belongs to another source: use a separate history for this source, or delete it to start over.",
    )


def count_done(count: int, position_of: Callable[[int], Position], position: Position, where: str = "") -> int:
    """Return how many of the steps are done at the position. Steps are in log order."""
    low, high = 0, count
    while low < high:
        middle = (low + high) // 2
        done = is_done(position_of(middle), position)
        if done is None:
            raise _incomparable(position_of(middle), position, where)
        if done:
            low = middle + 1
        else:
            high = middle
    return low


class MemoryHistory:
    """Keeps the schema history in memory: enough for reconnects, not for a restart."""

    def __init__(self) -> None:
        self._steps: list[tuple[Position, dict[Table, Version], Mapping[str, Any] | None]] = []

    def open(self, destination: str) -> None:
        pass

    def restore(self, position: Position) -> Snapshot | None:
        count = self._done(position)
        ahead: Mapping[str, Any] = next((given for _, _, given in reversed(self._steps[count:]) if given is not None), {})
        del self._steps[count:]
        tables, settings = self._merged(count)
        kept: dict[Table, Version] = {table: state for table, state in tables.items() if state is not None}
        return Snapshot(kept, settings, ahead) if count else None

    def add(self, position: Position, tables: Mapping[Table, Version], settings: Mapping[str, Any] | None) -> None:
        self._steps.append((position, dict(tables), settings))

    def prune(self, position: Position) -> None:
        count = self._done(position)
        if count > 1:
            tables, settings = self._merged(count)
            kept: dict[Table, Version] = {table: state for table, state in tables.items() if state is not None}
            self._steps[:count] = [(self._steps[count - 1][0], kept, settings)]

    def forget(self) -> None:
        self._steps.clear()

    def close(self) -> None:
        pass

    def bind(self, *turn: object) -> None:
        """Start a turn of this process: forget everything, because another process may have followed schema changes."""
        self.forget()

    def _done(self, position: Position) -> int:
        return count_done(len(self._steps), lambda number: self._steps[number][0], position)

    def _merged(self, count: int) -> tuple[dict[Table, Version], Mapping[str, Any]]:
        tables: dict[Table, Version] = {}
        settings: Mapping[str, Any] = {}
        for _, versions, given in self._steps[:count]:
            tables.update(versions)
            settings = settings if given is None else given
        return tables, settings


class CatchUpHistory(MemoryHistory):
    """The history of a client that catches up over a private connection. It starts empty, without the Instance's history."""

    #: Remedies for unknown columns.
    ways: Final = (
        "restart the instance if its schema history reaches back to this client's cursor: the client catches up over a private "
        "connection without that history",
        "seek() to a position after the change",
    )


_APPLICATION: Final = 0x63616E6C
_FORMAT: Final = 1
_TABLES: Final = f"""
    CREATE TABLE step (id INTEGER PRIMARY KEY, place TEXT NOT NULL, made INTEGER NOT NULL, settings BLOB);
    CREATE TABLE version (step INTEGER NOT NULL, name TEXT NOT NULL, state BLOB NOT NULL, PRIMARY KEY (name, step))
        WITHOUT ROWID;
    CREATE INDEX version_step ON version (step);
    PRAGMA application_id = {_APPLICATION};
    PRAGMA user_version = {_FORMAT};
"""
_DAMAGED: Final = "Restore the file from a backup, or delete it: tables are then read from the source again."


class FileHistory:
    """Stores the schema history in ``<directory>/<destination>/schema.db``, a SQLite database.

    The file is created by the first ``add``. Each step is synced before ``add`` returns. A second process is locked out.

    Args:
        directory: parent directory of the destinations' directories; created if missing. A FileMeta may use it too.
        keep_days: keep steps younger than this, regardless of cursors, for a start in the past.
        wait: seconds to wait for another process's lock.
        clock: returns Unix seconds.
    """

    def __init__(
        self,
        directory: str | os.PathLike[str],
        *,
        keep_days: float = 7.0,
        wait: float = 1.0,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._directory = Path(path_of(directory, "directory of FileHistory"))
        self._keep = keep_days * 86400
        self._wait = wait
        self._clock = clock
        self._path = self._directory
        self._database: sqlite3.Connection | None = None
        _histories.add(self)

    def open(self, destination: str) -> None:
        self._path = self._directory / destination / "schema.db"
        if self._path.exists():
            with self._errors("read"):
                self._connect()

    def restore(self, position: Position) -> Snapshot | None:
        if self._database is None:
            return None
        with self._errors("read"):
            last = self._last_done(position)
            if last is not None:
                return self._at(last, position)
            with self._transaction() as database:
                database.execute("DELETE FROM version")
                database.execute("DELETE FROM step")
            return None

    def _at(self, last: int, position: Position) -> Snapshot:
        ahead = self._settings("id > ?", last)
        with self._transaction() as database:
            database.execute("DELETE FROM version WHERE step > ?", (last,))
            database.execute("DELETE FROM step WHERE id > ?", (last,))
        rows = database.execute(
            "SELECT name, state FROM version v WHERE step = (SELECT max(step) FROM version WHERE name = v.name)"
        )
        tables = {_table(name): _value(state) for name, state in rows}
        kept = {table: state for table, state in tables.items() if state is not None}
        return Snapshot(kept, self._settings("id <= ?", last), ahead)

    def _settings(self, where: str, step: int) -> dict[str, Any]:
        """Return the last settings among the selected steps."""
        assert self._database is not None
        ((settings,),) = self._database.execute(
            f"SELECT settings FROM step WHERE {where} AND settings IS NOT NULL ORDER BY id DESC LIMIT 1", (step,)
        ).fetchall() or [(None,)]
        return {} if settings is None else dict(_value(settings))

    def add(self, position: Position, tables: Mapping[Table, Version], settings: Mapping[str, Any] | None) -> None:
        with self._errors("write"):
            if self._database is None:
                make_folder(self._path.parent)
                self._connect()
            with self._transaction() as database:
                step = database.execute(
                    "INSERT INTO step (place, made, settings) VALUES (?, ?, ?)",
                    (position.to_text(), int(self._clock()), None if settings is None else _blob(settings)),
                ).lastrowid
                database.executemany(
                    "INSERT INTO version (step, name, state) VALUES (?, ?, ?)",
                    [(step, _name(table), _blob(state)) for table, state in tables.items()],
                )

    def prune(self, position: Position) -> None:
        if self._database is None:
            return
        with self._errors("write"):
            young = self._clock() - self._keep
            last = self._last_done(position, "WHERE made < ?", (young,))
            if last is None:
                return
            with self._transaction() as database:
                database.execute(
                    "DELETE FROM version WHERE step < ? AND EXISTS (SELECT 1 FROM version later"
                    " WHERE later.name = version.name AND later.step > version.step AND later.step <= ?)",
                    (last, last),
                )
                database.execute("DELETE FROM version WHERE step <= ? AND state = ?", (last, _blob(None)))
                database.execute("UPDATE version SET step = ? WHERE step < ?", (last, last))
                database.execute(
                    "UPDATE step SET settings = (SELECT settings FROM step WHERE id <= ? AND settings IS NOT NULL"
                    " ORDER BY id DESC LIMIT 1) WHERE id = ?",
                    (last, last),
                )
                database.execute("DELETE FROM step WHERE id < ?", (last,))

    def forget(self) -> None:
        if self._database is None:
            return
        with self._errors("write"), self._transaction() as database:
            database.execute("DELETE FROM version")
            database.execute("DELETE FROM step")

    def close(self) -> None:
        database, self._database = self._database, None
        if database is not None:
            database.close()

    def _last_done(self, position: Position, where: str = "", args: tuple[Any, ...] = ()) -> int | None:
        assert self._database is not None
        rows = self._database.execute(f"SELECT id, place FROM step {where} ORDER BY id", args).fetchall()
        count = count_done(len(rows), lambda number: Position.from_text(rows[number][1]), position, f" in {self._path}")
        return int(rows[count - 1][0]) if count else None

    # -- the database ----------------------------------------------------------------------------------------------

    def _connect(self) -> None:
        os.close(private(self._path, os.O_RDWR | os.O_CREAT))
        database = sqlite3.connect(self._path, timeout=self._wait, isolation_level=None, check_same_thread=False)
        try:
            database.execute("PRAGMA locking_mode = EXCLUSIVE")
            database.execute("PRAGMA synchronous = EXTRA")  # also sync the directory after a transaction
            database.execute("BEGIN EXCLUSIVE")
            database.execute("COMMIT")
            self._check(database)
        except BaseException:
            database.close()
            raise
        self._database = database

    def _check(self, database: sqlite3.Connection) -> None:
        application, version, count = (
            database.execute(sql).fetchone()[0]
            for sql in ("PRAGMA application_id", "PRAGMA user_version", "SELECT count(*) FROM sqlite_master")
        )
        if not count and not version:
            database.executescript(f"BEGIN;{_TABLES}COMMIT;")
        elif application != _APPLICATION:
            raise HistoryError(f"{self._path} is not a schema history", remedy=_DAMAGED)
        elif version != _FORMAT:
            raise HistoryError(
                f"{self._path} has format {version} instead of {_FORMAT}",
                remedy="Use the version of this library that wrote it, or a later version.",
            )
        elif database.execute("PRAGMA quick_check(1)").fetchone()[0] != "ok":
            raise HistoryError(f"{self._path} is damaged", remedy=_DAMAGED)

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        assert self._database is not None
        self._database.execute("BEGIN IMMEDIATE")
        try:
            yield self._database
            self._database.execute("COMMIT")
        except BaseException:
            if self._database.in_transaction:
                self._database.execute("ROLLBACK")
            raise

    @contextlib.contextmanager
    def _errors(self, doing: str) -> Iterator[None]:
        try:
            yield
        except sqlite3.OperationalError as error:
            busy = "locked" in str(error)
            raise HistoryError(
                f"cannot {doing} {self._path}: {error}",
                remedy="Another process uses it: stop that process, or use a different directory."
                if busy
                else "Free disk space or correct the directory's permissions; no data was lost.",
            ) from error
        except OSError as error:
            raise HistoryError(
                f"cannot {doing} {self._path}: {error.strerror}", remedy="Correct the directory's permissions."
            ) from error
        except (sqlite3.Error, zlib.error, ValueError, TypeError, CursorError) as error:
            raise HistoryError(f"{self._path} is damaged: {error}", remedy=_DAMAGED) from error

    def _leave_to_parent(self) -> None:
        """Abandon the database in a forked child. Closing it there would end the parent's transaction and locks."""
        if self._database is not None:
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._database))  # leak it, so that it is never closed
            self._database = None


_histories: weakref.WeakSet[FileHistory] = weakref.WeakSet()


def _after_fork() -> None:
    for history in list(_histories):
        history._leave_to_parent()


os.register_at_fork(after_in_child=_after_fork)


def _name(table: Table) -> str:
    return json.dumps(table)  # ASCII: a name may not be valid Unicode


def _table(name: str) -> Table:
    schema, table = json.loads(name)
    return str(schema), str(table)


def _blob(value: Any) -> bytes:
    """Compress a value, which also adds a checksum."""
    return zlib.compress(json.dumps(value, separators=(",", ":"), sort_keys=True).encode("ascii"))


def _value(blob: bytes) -> Any:
    return json.loads(zlib.decompress(blob))
