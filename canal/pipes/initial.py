"""Initial load of a pipe: reads existing rows in chunks while the stream goes on.

Never writes to a target, and never reads rows on the pipe's thread.

A window of a table opens at a position of the stream. The reader waits until the table shows all changes before that position.
Then it reads chunks. A chunk may show changes that the stream delivers later, but none after the end of the log at its read.
When the stream has passed that end, the pipe writes the chunk without the keys that changed since the window opened: the
stream has written those rows. A statement that affects the table closes the window, and its chunks are read again. The
progress stores the last key in the commit of the rows.

A table without a key is read as a whole, at one position. Its changes before that position are dropped. Later changes are held
until the rows are written.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from itertools import chain
from typing import Final

import attrs

from canal._util.threads import as_own
from canal.changes.batch import Changes, Decode, EntryRows, Part, TableRoute
from canal.changes.change import Change, Op, Origin, Table
from canal.changes.keys import Key, KeyRules
from canal.changes.reading import is_new, row_numbers, with_json
from canal.changes.unlogged import statement_of, touched
from canal.errors import ConfigError, ConnectionLostError, HookError, StreamMismatchError, UnfitChangeError
from canal.instance.instance import Instance
from canal.model import Entry, EntryType, EventType, Row, decode_rows
from canal.pipes.rules import Rules
from canal.pipes.units import decoder_of_columns
from canal.position import Position, journal_key
from canal.rows.values import ABSENT
from canal.snapshot.rows import Name, Rows, ServerTables, SourceTable, TableMissingError, TableReader
from canal.snapshot.values import Forms
from canal.targets.protocol import ArrowWork, EmptyCheckable, Guarantee, Load, Progress, Readable, Target, Work

log = logging.getLogger("canal.pipe")

#: Minimum number of rows of a chunk.
_CHUNK_ROWS: Final = 20_000
#: No further chunk is read while chunks with so many rows, or bytes, wait for the stream.
_AHEAD_ROWS: Final = 100_000
_AHEAD_BYTES: Final = 64 << 20
#: Maximum number of keys in a window.
_MOST_TOUCHED: Final = 500_000
#: Seconds between two log lines about a table.
_PACE: Final = 10.0
#: Seconds before a lost connection is tried again, at first and at most.
_FIRST_PAUSE, _PAUSE = 0.2, 30.0


@attrs.frozen
class LoadStatus:
    """Progress of an initial load."""

    table: str
    """The table in progress."""

    rows: int
    """Rows of the table that were loaded, or that the stream has written."""

    of: int
    """The source's estimate of the table's rows."""

    tables: int
    """Number of loaded tables."""

    of_tables: int

    seconds_left: float | None
    """Estimate for the table, or None if unknown."""


@attrs.frozen
class SnapshotBatch:
    """Rows to write at the stream's position."""

    key: str
    """The target's table that has the progress, or ""."""

    changes: Changes = attrs.field(repr=False)
    parked: list[Change] = attrs.field(repr=False)
    load: Load | None
    """The load that is left after the rows."""

    chunks: int
    """Number of chunks."""


@attrs.define(eq=False)
class _Chunk:
    """Rows of one read. They wait until the stream has passed its end of the log.

    Args:
        first: the number of the table's rows in earlier chunks.
    """

    rows: Rows
    first: int
    _left: dict[Key, tuple[int, int]] | None = None
    """By key, the numbers of the entry and of the row within it, without touched keys. None: no key was touched."""

    def __attrs_post_init__(self) -> None:
        done = self.first
        for entry in self.rows.entries:
            entry.first_row = done
            done += entry.row_count

    @property
    def done(self) -> int:
        """The number of the table's rows up to the end of the chunk."""
        return self.first + self.rows.count

    def drop(self, touched: set[Key], window: _Window) -> None:
        """Leave out the rows with these keys."""
        if not touched:
            return
        if self._left is None:
            decoder, exact = self.rows.selection.key_decoder(window.source.identity), window.keys.exact
            self._left = {}
            for at, entry in enumerate(self.rows.entries):
                keys = decoder.decode(entry.data, entry.body, entry.body_end, entry.kind)  # type: ignore[no-untyped-call]
                self._left |= {exact(key): (at, number) for number, (_, key) in enumerate(keys)}
        for one in touched & self._left.keys():
            del self._left[one]

    def entries(self) -> list[Entry]:
        """Return the entries of the rows that are left."""
        if self._left is None:
            return self.rows.entries
        numbers: list[list[int]] = [[] for _ in self.rows.entries]
        for at, number in self._left.values():
            numbers[at].append(number)
        for entry, own in zip(self.rows.entries, numbers):
            entry.selected = tuple(own)
        return [entry for entry, own in zip(self.rows.entries, numbers) if own]

    def changes(self, entry: Entry, table: Table, json_text: bool) -> list[Change]:
        """Return the rows of an entry as changes."""
        rows = decode_rows(entry, json_text)
        if json_text and entry.table is not None and not entry.table.decoder.json_text:
            rows = with_json(rows, table)
        origin = _origin(table, self.rows, self.first)
        return [Change(table, Op.READ, None, row.after, origin, number) for number, row in zip(row_numbers(entry), rows)]


@attrs.define(eq=False)
class _Window:
    """Pending chunks of a table, and the keys that changed since a position of the stream."""

    name: Name
    at: Position | None
    """The next chunk must show all changes before this position. None: use the stream's position at the next read."""

    source: SourceTable
    keys: KeyRules
    is_settled: bool = False
    """Whether the table shows the changes before ``at``."""

    touched: set[Key] = attrs.field(factory=set)
    held: list[Change] = attrs.field(factory=list)
    ready: deque[_Chunk] = attrs.field(factory=deque)
    reading: Future[_Chunk] | None = None
    is_last: bool = False
    """Whether the last chunk was read."""

    @property
    def is_full(self) -> bool:
        """Whether enough chunks wait for the stream."""
        rows = sum(chunk.rows.count for chunk in self.ready)
        return rows >= _AHEAD_ROWS or rows * self.source.row_bytes >= _AHEAD_BYTES

    def forget(self) -> None:
        """Drop the touched keys from pending chunks and clear them. The next chunk is read at a later position."""
        for chunk in self.ready:
            chunk.drop(self.touched, self)
        self.touched.clear()
        self.at, self.is_settled = None, False

    @classmethod
    def open(cls, name: Name, at: Position, source: SourceTable) -> _Window:
        numbers = [source.table.names.index(one) for one in source.identity]
        return cls(name, at, source, KeyRules.of(source.table.columns, numbers))

    def key(self, row: Row, other: Row | None = None) -> Key:
        values = [row.get(name, ABSENT) for name in self.source.identity]
        if other is not None:
            values = [other.get(name, ABSENT) if value is ABSENT else value for name, value in zip(self.source.identity, values)]
        return self.keys.exact(tuple(values))

    def touch(self, entry: Entry) -> bool:
        """Record the keys of an entry. Return False if a row image is partial."""
        found: list[Key] = []
        is_whole = True
        for row in decode_rows(entry, True):
            is_whole = is_whole and (row.after is None or ABSENT not in row.after.values())
            if row.before is not None:
                found.append(self.key(row.before))
            if row.after is not None:
                found.append(self.key(row.after, row.before))
        self.touched.update(found)
        return is_whole and not any(ABSENT in key for key in found)


def initial_of(
    instance: Instance, target: Target, rules: Rules, *, client_id: int, parks: bool, batch_size: int, json_text: bool
) -> Initial:
    """Return the initial load of a client's tables.

    Args:
        json_text: deliver JSON as text.

    Raises:
        ConfigError: the instance has no server, or has a row filter or hooks; the target stores no progress.
    """
    config = instance.config
    if config is None:
        raise ConfigError('snapshot="initial" needs an Instance that was made of an InstanceConfig')
    if config.row_filter is not None or config.hooks:
        raise ConfigError(
            'rows that are read by snapshot="initial" do not go through row_filter and hooks of the instance',
            remedy="Say by canal.Rule(where=…) which rows the target is to have.",
        )
    if target.guarantee is Guarantee.APPENDED:
        raise ConfigError(f"{target} keeps no progress, so it would not be known after a restart which rows it has")
    accepts = config.table_filter().narrow(instance.subscriptions().get(client_id, "")).accepts
    forms = Forms(config.column_filter(), config.masks(), config.time_zone, config.json == "text")
    return Initial(
        ServerTables(lambda: instance._parts.parser_info.source, accepts, forms, config.shadow_tables),
        target,
        rules,
        parks=parks,
        executor=ThreadPoolExecutor(1, f"canal-{instance.destination}-pipe-rows"),
        json_text=json_text,
        chunk_rows=max(batch_size, _CHUNK_ROWS),
    )


@attrs.define(eq=False)
class Passed:
    """Position of an idle stream. If the filters drop all transactions, the cursor does not move.

    ``position`` is one up to which all that there is for the client was handed out.
    """

    instance: Instance
    client_id: int
    position: Position | None = None
    _seen: tuple[Position, float] | None = None
    _found: Position | None = None
    _rounds: int = 0

    def came(self) -> None:
        """Reset after a message."""
        self._seen = self._found = None

    def nothing_came(self) -> None:
        """Update after an empty get."""
        if self._found is not None:
            self._rounds += 1
            if self._rounds == 2:  # the second get began when the store had everything before the position
                self.position, self._found = self._found, None
        if self._seen is not None and self._found is None:
            position, complete = self._seen
            # The source was idle after the store received everything before the position.
            if self.instance._parts.parser_info.complete_to > complete:
                self._found, self._seen, self._rounds = position, None, 0
        if self._seen is None:
            status = self.instance.status()
            client = next((one for one in status.clients if one.client_id == self.client_id), None)
            if client is not None and not client.is_behind and status.received is not None:
                self._seen = status.received, self.instance._parts.parser_info.complete_to


class Initial:
    """Initial load of a pipe's tables.

    Args:
        tables: reads the tables.
        target: the target of the pipe.
        rules: rules to apply to rows.
        parks: send rows that a rule rejects to the dead letters.
        executor: runs reads in sequence.
        json_text: deliver JSON as text.
        chunk_rows: number of rows of a chunk.
    """

    def __init__(
        self,
        tables: TableReader,
        target: Target,
        rules: Rules,
        *,
        parks: bool,
        executor: Executor,
        json_text: bool = True,
        chunk_rows: int,
    ) -> None:
        self._tables = tables
        self._target = target
        self._rules = rules
        self._parks = parks
        self._executor = executor
        self._json_text = json_text
        self._chunk_rows = chunk_rows
        self._cancelled = threading.Event()
        self._names: list[Name] | None = None
        self._sources: dict[Name, SourceTable] = {}
        self._loads: dict[str, Load] = {}
        self._keyless: set[Name] = set()
        self._window: _Window | None = None
        self._pace = _Pace()
        self._of_tables = 0
        self._columns: tuple[Decode | None, int] = None, 0

    @property
    def is_done(self) -> bool:
        """Whether the load is complete."""
        return not self._loads

    def load(self, key: str) -> Load | None:
        """Return the load to store in a commit."""
        return self._loads.get(key)

    def status(self) -> LoadStatus | None:
        """Return the progress, or None if the load is complete."""
        first = next(iter(self._loads.values()), None)
        if first is None:
            return None
        left = sum(len(load.left) for load in self._loads.values())
        name = first.left[0]
        of = self._sources[name].rows if name in self._sources else 0
        return LoadStatus(
            ".".join(name),
            first.rows,
            max(of, first.rows),
            self._of_tables - left,
            self._of_tables,
            self._pace.left(first.rows, of),
        )

    def close(self) -> None:
        """Stop reading and close the connection."""
        self._close_window()
        self._tables.close()
        self._executor.shutdown()

    # -- the state that the target has ------------------------------------------------------------------------------------

    def begin(self, work: Work, known: Callable[[str], Progress | None]) -> None:
        """Resume from the target's progress.

        Args:
            known: returns the progress of a table of the target, or of "".

        Raises:
            ConfigError: a table has no key, or a rule names tables by row.
            StreamMismatchError: a target table is not empty.
        """
        self._close_window()
        least = work.arrow_from if isinstance(work, ArrowWork) else None
        self._columns = (None, 0) if least is None else (decoder_of_columns(), least)
        if self._names is None:
            self._names = self._tables.names()
        fresh: list[Name] = []
        loads: dict[str, Load] = {}
        for key, names in self._groups().items():
            progress = known(key)
            if progress is None:
                fresh += names
                loads[key] = Load(tuple(names))
            elif progress.load is not None:
                loads[key] = progress.load
        self._loads = {key: load for key, load in loads.items() if load.left}
        if self._loads:
            self._tables.check()
        self._of_tables = max(self._of_tables, sum(len(load.left) for load in self._loads.values()))
        for name in chain.from_iterable(load.left for load in self._loads.values()):
            if name not in self._sources:
                with contextlib.suppress(TableMissingError):  # reported when its load begins
                    self._sources[name] = self._tables.look(name)
                    if name in fresh:
                        self._check(work, self._sources[name])
        self._keyless = {name for name in self._left() if name in self._sources and not self._sources[name].identity}

    def _groups(self) -> dict[str, list[Name]]:
        """Return the tables by the key of their progress."""
        assert self._names is not None
        if self._target.scope == "all":
            return {"": self._names}
        groups: dict[str, list[Name]] = {}
        for name in self._names:
            key = self._rules.name_of(".".join(name))
            if not key:
                raise ConfigError(
                    f"a rule names the target of {'.'.join(name)} by its rows, and this target keeps a progress for each table",
                    remedy="Name the tables by a text in Rule(to=…), or load the rows by a pipe of its own.",
                )
            groups.setdefault(key, []).append(name)
        return groups

    def _left(self) -> list[Name]:
        return list(chain.from_iterable(load.left for load in self._loads.values()))

    def _check(self, work: Work, source: SourceTable) -> None:
        """Raise an error if the table cannot be loaded."""
        if self._target.is_log:
            return
        table = self._rules.table(source.table)
        if not table.keys:
            raise ConfigError(
                f"{source.table.source} has no primary key that is delivered, so its rows cannot be told apart in the target",
                remedy="Name columns that tell them apart by canal.Rule(keys=…), leave the table out by the filter, or let a log"
                " of changes be the target.",
            )
        has_rows = isinstance(work, Readable) and next(iter(work.scan(table)), None) is not None
        if has_rows or isinstance(work, EmptyCheckable) and not work.is_empty(table):
            raise StreamMismatchError(
                f"the target's table {table.name} has rows already, of which it is not known that this stream has written them",
                remedy='Empty the table, give the stream the name that wrote it, or leave out snapshot="initial".',
            )

    # -- the stream ---------------------------------------------------------------------------------------------------------

    def saw(self, entries: Iterable[Entry]) -> None:
        """Record the stream's changes before they are written."""
        if not self._loads:
            return
        for entry in entries:
            if entry.entry_type is not EntryType.ROWDATA:
                continue
            window = self._window
            if entry.row_change.schema is None:
                self._statement(entry)
            elif window is not None and window.source.identity and _is_same(window.name, entry):
                if not window.touch(entry):
                    self._close_window()
                elif len(window.touched) > _MOST_TOUCHED and self._take(window):
                    window.forget()

    def _statement(self, entry: Entry) -> None:
        statement = statement_of(entry)
        if statement.temporary:
            return
        left = self._left()
        named = {_folded(name) for name in touched(entry, lambda schema, table: True, ())}
        unsure = statement.doubtful or statement.schema_wide
        renamed = {_folded(old): new for old, new in statement.renames}
        for name in left:
            if not unsure and _folded(name) not in named:
                continue
            if self._window is not None and self._window.name == name:
                self._close_window()
            self._sources.pop(name, None)
            if (
                (new := renamed.get(_folded(name))) is not None
                and (new := (new[0], new[1])) not in left
                and self._follow(name, new)
            ):
                continue
            if is_new(entry, *name) or entry.event_type is EventType.ERASE and not unsure:
                self._leave(name, "its rows are in the log from its creation on" if is_new(entry, *name) else "it was dropped")

    def _follow(self, name: Name, new: Name) -> bool:
        """Load a renamed table by its new name. Return False if the filter drops the new name."""
        assert self._names is not None
        if not self._tables.delivers(new):
            return False
        log.info("the rows of %s are read as %s, its new name", ".".join(name), ".".join(new))
        self._names = [new if one == name else one for one in self._names]
        for key, load in list(self._loads.items()):
            if name not in load.left:
                continue
            left = tuple([new if one == name else one for one in load.left])
            del self._loads[key]
            self._loads["" if self._target.scope == "all" else self._rules.name_of(".".join(new))] = attrs.evolve(load, left=left)
        if name in self._keyless:
            self._keyless = self._keyless - {name} | {new}
        return True

    def keep(self, changes: Changes) -> Changes:
        """Return the changes without those of tables that are read as a whole later."""
        if not self._keyless:
            return changes
        kept = []
        for change in changes:
            if change.table.origin not in self._keyless:
                kept.append(change)
            elif self._window is not None and self._window.name == change.table.origin:
                self._window.held.append(change)
        return Changes([kept])

    def _leave(self, name: Name, why: str) -> None:
        """Remove a table from the load."""
        log.warning("the rows of %s are not read, or no more of them: %s", ".".join(name), why)
        if self._names is not None and name in self._names:
            self._names.remove(name)
        self._keyless.discard(name)
        for key, load in list(self._loads.items()):
            if name in load.left:
                is_first = load.left[0] == name
                left = tuple(one for one in load.left if one != name)
                self._put(key, Load(left) if is_first else attrs.evolve(load, left=left))

    def _put(self, key: str, load: Load | None) -> None:
        if load is None or not load.left:
            del self._loads[key]
        else:
            self._loads[key] = load

    # -- the rows -----------------------------------------------------------------------------------------------------------

    def step(self, at: Position, passed: Position | None = None) -> SnapshotBatch | None:
        """Return the rows to write at the stream's position, if any.

        Args:
            at: all changes before this position are written.
            passed: the same for an idle stream.

        Raises:
            CanalError: a table cannot be read.
        """
        if not self._loads:
            return None
        key, load = next(iter(self._loads.items()))
        name = load.left[0]
        window = self._window or self._open(name, at)
        if window is None:
            return None
        try:
            self._advance(window, load, at)
        except TableMissingError as error:
            self._close_window()
            self._leave(name, error.message)
            return None
        if self._window is not window:
            return None
        chunks: list[_Chunk] = []
        for chunk in window.ready:
            is_there = _is_reached(chunk.rows.end, at, passed)
            if is_there is None or is_there and not window.source.identity and chunk.rows.end.source != at.source:
                log.info("the rows of %s are read again: the stream is at %s, of another server", ".".join(name), at)
                self._close_window()
                return None
            if not is_there:
                break
            chunks.append(chunk)
        return self._batch(key, load, window, chunks) if chunks else None

    def wrote(self, batch: SnapshotBatch) -> None:
        """Record that the batch is committed."""
        window, before = self._window, self._loads[batch.key]
        assert window is not None
        for _ in range(batch.chunks):
            chunk = window.ready.popleft()
        self._put(batch.key, batch.load)
        window.held.clear()
        if chunk.rows.upper is None:
            log.info("%s is loaded: %d rows", ".".join(before.left[0]), chunk.done)
            self._keyless.discard(window.name)
            self._window = None
        self._pace.tell(".".join(before.left[0]), chunk.done, chunk.rows.source.rows)

    def _open(self, name: Name, at: Position) -> _Window | None:
        source = self._sources.get(name)
        if source is None:
            try:
                source = self._sources[name] = self._executor.submit(as_tried, self._tables.look, name).result()
            except TableMissingError as error:
                self._leave(name, error.message)
                return None
        self._cancelled = threading.Event()
        self._window = _Window.open(name, at, source)
        return self._window

    def _close_window(self) -> None:
        """Discard the chunks, and stop the read."""
        window, self._window = self._window, None
        if window is not None and window.reading is not None:
            self._cancelled.set()
            if not window.reading.cancel() and not window.reading.done():
                self._tables.abort()
            with contextlib.suppress(Exception):
                window.reading.result()

    def _take(self, window: _Window) -> bool:
        """Add a finished chunk to the window. Return False while a chunk is being read."""
        if window.reading is None:
            return True
        if not window.reading.done():
            return False
        reading, window.reading = window.reading, None
        chunk = reading.result()
        window.ready.append(chunk)
        window.is_last = chunk.rows.upper is None
        self._sources[window.name] = chunk.rows.source
        return True

    def _advance(self, window: _Window, load: Load, at: Position) -> None:
        """Add a finished chunk, and start to read the next chunk."""
        if not self._take(window):
            return
        last = window.ready[-1] if window.ready else None
        if last is not None and last.rows.source.identity != window.source.identity:  # an ALTER changed the key
            self._close_window()
            self._keyless = {name for name in self._keyless if name != window.name}
            if not last.rows.source.identity:
                self._keyless.add(window.name)
            return
        if window.is_last or window.is_full:
            return
        after, done, order = load.after, load.rows, load.order
        if last is not None:
            after, done, order = last.rows.upper, last.done, last.rows.source.order
        window.at = window.at or at
        window.reading = self._executor.submit(self._read, window, window.at, after, order, done, self._cancelled)

    def _batch(self, key: str, load: Load, window: _Window, chunks: Sequence[_Chunk]) -> SnapshotBatch:
        parts: list[Part] = []
        parked: list[Change] = []
        for chunk in chunks:
            chunk.drop(window.touched, window)
            for entry in chunk.entries():
                parts.append(self._part(chunk, entry, parked))
        last = chunks[-1]
        if not window.source.identity:
            parts.append([one for one in window.held if not _is_before(one, last.rows.end)])
        if last.rows.upper is None:
            after = Load(load.left[1:]) if len(load.left) > 1 else None
        else:
            after = attrs.evolve(load, after=last.rows.upper, rows=last.done, order=last.rows.source.order)
        return SnapshotBatch(key, Changes(parts, *self._columns), parked, after, len(chunks))

    def _part(self, chunk: _Chunk, entry: Entry, parked: list[Change]) -> Part:
        """Return the rows of an entry. Decode them only for rules that need rows."""
        table = chunk.rows.source.table
        plan = self._rules.plan(table)
        if plan is None or plan.has_columns:

            def read(entry: Entry, table: Table, route: TableRoute | None) -> Sequence[Change]:
                changes = chunk.changes(entry, table, self._json_text)
                return changes if route is None else [one for change in changes for one in route.apply(change)]

            return EntryRows(entry, table, read, plan)
        made: list[Change] = []
        for change in chunk.changes(entry, table, self._json_text):
            try:
                made += self._rules.apply(change)
            except (HookError, UnfitChangeError) as error:
                if not self._parks:
                    raise
                parked.append(change.evolve(error=error.message))
        return made

    # -- on the thread that reads ---------------------------------------------------------------------------------------------

    def _read(
        self, window: _Window, at: Position, after: tuple[str, ...] | None, order: str, done: int, cancelled: threading.Event
    ) -> _Chunk:
        with as_own():
            return self._tried(lambda: self._chunk(window, at, after, order, done, cancelled), cancelled)

    def _tried(self, read: Callable[[], _Chunk], cancelled: threading.Event) -> _Chunk:
        wait = _FIRST_PAUSE
        while True:
            try:
                return read()
            except ConnectionLostError as error:
                self._tables.close()
                if cancelled.wait(wait):
                    raise
                log.warning("existing rows cannot be read now, it is tried again: %s", error)
                wait = min(2 * wait, _PAUSE)

    def _chunk(
        self, window: _Window, at: Position, after: tuple[str, ...] | None, order: str, done: int, cancelled: threading.Event
    ) -> _Chunk:
        if not window.is_settled:
            self._tables.settle(window.name, at, cancelled)
            window.is_settled = True
        if window.source.identity:
            rows = self._tables.read(window.name, after, order, self._chunk_rows, cancelled)
        else:
            rows = self._tables.read_whole(window.name, cancelled)
        return _Chunk(rows, done if order == rows.source.order else 0)  # another order starts at the first row


def as_tried(look: Callable[[Name], SourceTable], name: Name) -> SourceTable:
    """Call ``look`` on the reading thread."""
    with as_own():
        return look(name)


def _origin(table: Table, rows: Rows, first: int) -> Origin:
    """Return the origin of a chunk's rows: the end of the log after the read."""
    position = f"{rows.end.journal}:{rows.end.offset}"
    return Origin(f"{table.source}@{position}", position, rows.ts, first=first)


def _folded(name: Sequence[str]) -> tuple[str, ...]:
    return tuple([part.lower() for part in name])


def _is_same(name: Name, entry: Entry) -> bool:
    """Compare without case: the log and information_schema may differ."""
    return name[1].lower() == entry.header.table.lower() and name[0].lower() == entry.header.schema.lower()


def _is_reached(end: Position, at: Position, passed: Position | None) -> bool | None:
    """Return whether the stream has passed the end of a chunk, or None if unknown."""
    if passed is not None and passed.precedes(end) is False:
        return True
    before = at.precedes(end)
    return None if before is None else not before


def _is_before(change: Change, position: Position) -> bool:
    journal, _, offset = change.origin.position.rpartition(":")
    return (journal_key(journal), int(offset)) < (journal_key(position.journal), position.offset)


@attrs.define
class _Pace:
    """Measures and logs the speed of a load."""

    table: str = ""
    begun: float = 0.0
    first: int = 0
    told: float = 0.0

    def tell(self, table: str, done: int, of: int) -> None:
        now = time.monotonic()
        if table != self.table:
            self.table, self.begun, self.first, self.told = table, now, done, now
        elif now - self.told >= _PACE:
            self.told = now
            left = self.left(done, of)
            log.info("%s: %d of about %d rows%s", table, done, max(of, done), "" if left is None else f", {left:.0f} s left")

    def left(self, done: int, of: int) -> float | None:
        """Return the estimated seconds, or None if unknown."""
        seconds, rows = time.monotonic() - self.begun, done - self.first
        return max(of - done, 0) * seconds / rows if rows > 0 and seconds >= 1 else None
