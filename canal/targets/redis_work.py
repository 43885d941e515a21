"""Redis commits: write rows, set members, streams or lists together with the progress in the same MULTI.

Never opens a connection.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any, Final, Protocol

from canal.changes import Change, Changes, Table, TableState
from canal.changes.batch import EntryRows
from canal.changes.latest import Key, Values
from canal.errors import ConfigError, ConnectionLostError, TargetError, UnfitChangeError
from canal.formats.change_json import line, row_json
from canal.model import Row
from canal.targets.names import Names, Naming
from canal.targets.values import TEXTS
from canal.targets.work import LogWork, StateWork, conflict

log = logging.getLogger("canal.pipe")

#: Maximum number of keys per command, and the SCAN count when a table is emptied.
_SCAN: Final = 1000


class Layout(Protocol):
    """The target options for key names and structure."""

    @property
    def structure(self) -> str: ...
    @property
    def prefix(self) -> str: ...
    @property
    def score(self) -> str: ...


@contextmanager
def understood(what: str) -> Iterator[None]:
    import redis

    try:
        yield
    except redis.WatchError as error:
        raise conflict() from error
    except (redis.ConnectionError, redis.TimeoutError) as error:
        raise ConnectionLostError(f"the connection to {what} broke: {type(error).__name__}") from error
    except (redis.exceptions.AskError, redis.exceptions.TryAgainError, redis.exceptions.ClusterError) as error:
        raise ConnectionLostError(f"slots of {what} move to another server: {type(error).__name__}") from error
    except redis.RedisError as error:
        said = str(error).partition(" ")[0]  # only the error code: the rest may quote a command
        raise TargetError(f"{what} refuses: {said}", remedy="Correct the cause. The commit wrote no data.") from error


def check_memory(connection: Any, what: str) -> None:
    import redis

    try:
        policy = connection.config_get("maxmemory-policy").get("maxmemory-policy", "")
    except redis.ResponseError:  # the user may lack the permission for CONFIG GET
        return
    if str(policy).startswith("allkeys"):
        log.warning("%s throws keys away when its memory is full (maxmemory-policy %s): rows may vanish", what, policy)


def text_of(found: Any) -> str | None:
    return found.decode() if isinstance(found, bytes) else found


class _Commit:
    """Base class for commits: writes the data and the progress in a single MULTI."""

    names: Names

    def __init__(self, target: Layout, connection: Any, stream: str) -> None:
        super().__init__()
        self._target, self._connection, self._stream, self._what = target, connection, stream, f"{target}"
        self.names = Names(_NAMING)

    def _progress_key(self, table: str) -> str:
        return f"{self._target.prefix}canal_progress:{self._stream}"

    def _names_key(self) -> str:
        """Return the key that stores table names, or "" if table names are not stored."""
        return f"{self._target.prefix}canal_names:{self._stream}"

    def load(self, table: str) -> str | None:
        if key := self._names_key():
            forget = f"DEL {key}"
            self.names = Names(_NAMING, text_of(self._connection.get(key)), forget)
        return text_of(self._connection.get(self._progress_key(table)))

    def _server(self, key: str) -> Any:
        """Return the client for the server that holds the key."""
        return self._connection

    def _write(self, old: str | None, new: str, table: str, queue: Callable[[Any], None]) -> None:
        key = self._progress_key(table)
        with understood(self._what), self._server(key).pipeline(transaction=True) as pipeline:
            pipeline.watch(key)
            if text_of(pipeline.get(key)) != old:
                raise conflict()
            pipeline.multi()
            queue(pipeline)
            pipeline.set(key, new)
            if self.names.is_changed and self._names_key():
                pipeline.set(self._names_key(), self.names.to_text())
            pipeline.execute()
        self.names.is_changed = False


class RedisRows(_Commit, StateWork):
    """Stores each row under a Redis key."""

    def write(self, made: Sequence[TableState], old: str | None, new: str, table: str) -> None:
        with understood(self._what):
            emptied = {state.table.name: self._keys_of(state.table) for state in made if state.is_emptied}
        self._write(old, new, table, lambda pipeline: self._queue(pipeline, made, emptied))

    def _queue(self, pipeline: Any, made: Sequence[TableState], emptied: Mapping[str, Sequence[bytes]]) -> None:
        for state in made:
            names = {self._name(state.table, key): row for key, row in state.rows.items()}
            for some in _slices([*emptied.get(state.table.name, ()), *names]):
                pipeline.unlink(*some)
            for name, row in names.items():
                if row is None:
                    continue
                if self._target.structure == "json":
                    pipeline.set(name, row_json(Row(row, state.table.names)))
                else:
                    pipeline.hset(name, mapping=fields_of(state.table, row))

    def _keys_of(self, table: Table) -> list[bytes]:
        pattern = f"{self._target.prefix}{table.name.translate(_COLON)}:".translate(_GLOB) + "*"
        return list(self._connection.scan_iter(match=pattern, count=_SCAN))

    def read(self, table: Table, keys: Sequence[Key]) -> Mapping[Key, Values]:
        if self._target.structure == "json":
            return super().read(table, keys)
        with understood(self._what), self._connection.pipeline(transaction=False) as pipeline:
            for key in keys:
                pipeline.hgetall(self._name(table, key))
            rows = pipeline.execute()
        return {
            key: tuple(row.get(name.encode(), row.get(name)) for name in table.names.names) for key, row in zip(keys, rows) if row
        }

    def _name(self, table: Table, key: Key) -> bytes:
        return f"{self._target.prefix}{table.name.translate(_COLON)}:".encode() + _joined(key)


class RedisMembers(_Commit, StateWork):
    """Stores each table as a set or sorted set with rows as members. An additional hash maps each key to the current member."""

    def write(self, made: Sequence[TableState], old: str | None, new: str, table: str) -> None:
        with understood(self._what):
            before = [self._members(state) for state in made]
        scores = [self._scores(state) for state in made]

        def queue(pipeline: Any) -> None:
            for state, members, score in zip(made, before, scores):
                self._queue(pipeline, state, members, score)

        self._write(old, new, table, queue)

    def _names(self, table: Table) -> tuple[str, str]:
        name = f"{self._target.prefix}{table.name}"
        return name, f"{self._target.prefix}canal_members:{{{name}}}"

    def _members(self, state: TableState) -> list[bytes]:
        """Return the current set members for the keys of these rows."""
        keys = [_joined(key) for key in state.rows]
        found = (self._connection.hmget(self._names(state.table)[1], some) for some in _slices(keys))
        return [member.encode() if isinstance(member, str) else member for some in found for member in some if member is not None]

    def _queue(self, pipeline: Any, state: TableState, before: Sequence[bytes], scores: Mapping[Key, float]) -> None:
        name, own = self._names(state.table)
        is_sorted = self._target.structure == "sortedset"
        if state.is_emptied:
            pipeline.unlink(name, own)
        for some in _slices(before):
            (pipeline.zrem if is_sorted else pipeline.srem)(name, *some)
        for some in _slices([_joined(key) for key in state.deletes]):
            pipeline.hdel(own, *some)
        for key, row in state.rows.items():
            if row is not None:
                member = row_json(Row(row, state.table.names))
                pipeline.hset(own, _joined(key), member)
                if is_sorted:
                    pipeline.zadd(name, {member: scores[key]})
                else:
                    pipeline.sadd(name, member)

    def _scores(self, state: TableState) -> dict[Key, float]:
        column = self._target.score
        if not column or not state.table.columns:
            return {}
        if column not in state.table.names.names:
            raise ConfigError(f"{state.table.name} has no column {column}, by which its sortedset is ordered")
        at = state.table.names.names.index(column)
        found: dict[Key, float] = {}
        unfit: list[Key] = []
        for key, row in state.rows.items():
            score = None if row is None else _score(row[at])
            if score is not None:
                found[key] = score
            elif row is not None:
                unfit.append(key)
        if unfit:
            changes = tuple(change for key in unfit for change in state.of_key(key))
            raise UnfitChangeError(
                f"{column} of a row of {state.table.name} is neither a number nor a moment, so it is no score",
                position=changes[-1].origin.position if changes else None,
                changes=changes,
                remedy="Let a rule leave such rows out (where=), or park them by on_unfit.",
            )
        return found


class RedisLog(_Commit, LogWork):
    """Appends changes to a stream or list per table."""

    def write(self, made: Sequence[Change], old: str | None, new: str, table: str) -> None:
        self._write(old, new, table, lambda pipeline: self._queue(pipeline, made))

    @staticmethod
    def encode_entry(part: EntryRows) -> list[bytes] | None:
        """Return the lines for an entry, or None if its changes must be encoded singly."""
        lines = line.lines(part)
        return None if lines is None else lines.split(b"\n")[:-1]

    def _queue(self, pipeline: Any, made: Sequence[Change]) -> None:
        for part in made.parts if isinstance(made, Changes) else [made]:
            if isinstance(part, EntryRows) and part.encoded is not None:
                self._push(pipeline, part.table.name, part.encoded)
                continue
            for change in part:
                self._push(pipeline, change.table.name, [line(change).encode()])

    def _push(self, pipeline: Any, table: str, lines: Sequence[bytes]) -> None:
        name = f"{self._target.prefix}{table}"
        if self._target.structure == "list":
            pipeline.rpush(name, *lines)
            return
        for one in lines:
            pipeline.xadd(name, {"change": one})


_GLOB: Final = str.maketrans({char: f"\\{char}" for char in "*?[]\\^-"})


#: A colon ends the table name, so colons inside table names are escaped, as in key values.
_COLON: Final = str.maketrans({":": "\\:", "\\": "\\\\"})
_NAMING: Final = Naming(is_flat=True, reserved=[(f"canal_{one}",) for one in ("progress", "names", "members", "turn", "turns")])


def _joined(key: Key) -> bytes:
    return b":".join(_bytes(value).replace(b"\\", b"\\\\").replace(b":", b"\\:") for value in key)


def _score(value: Any) -> float | None:
    if isinstance(value, datetime):
        return (value if value.tzinfo is not None else value.replace(tzinfo=UTC)).timestamp()
    if isinstance(value, date):
        return datetime(value.year, value.month, value.day, tzinfo=UTC).timestamp()
    if isinstance(value, timedelta):
        return value.total_seconds()
    return float(value) if isinstance(value, (int, float, Decimal)) else None


def fields_of(table: Table, row: Values) -> dict[str, bytes]:
    return {name: _bytes(value) for name, value in zip(table.names.names, row) if value is not None}


def _bytes(value: Any) -> bytes:
    if type(value) is str:
        return value.encode("utf-8", "surrogateescape")
    if isinstance(value, bytes):
        return bytes(value)
    if isinstance(value, float):
        return repr(value).encode()
    return str(TEXTS.get(type(value), str)(value)).encode("utf-8", "surrogateescape")


def _slices(keys: Sequence[bytes]) -> Iterator[Sequence[bytes]]:
    return (keys[begin : begin + _SCAN] for begin in range(0, len(keys), _SCAN))
