"""Redis: rows as hashes, JSON or members of a set, or the changes as a stream or list, with the progress in the same MULTI.

``redis_cluster.py`` has what is other in a cluster. Never writes to a server that may have thrown the progress away without
saying so.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any, Final, Literal

import attrs

from canal._util.option_checks import text
from canal.changes import Change, Table, TableState
from canal.changes.latest import Key, Values
from canal.errors import ConfigError, ConnectionLostError, TargetError, UnfitChangeError
from canal.formats.change_json import line, row_json
from canal.model import Row
from canal.targets.protocol import Guarantee, Scope
from canal.targets.tables import need
from canal.targets.values import TEXTS
from canal.targets.work import LogWork, StateWork, conflict

log = logging.getLogger("canal.pipe")

Structure = Literal["hash", "json", "set", "sortedset", "stream", "list"]
_STRUCTURES: Final = ("hash", "json", "set", "sortedset", "stream", "list")
#: Keys that are asked for at once where a table is emptied.
_SCAN: Final = 1000


@attrs.frozen
class RedisTarget:
    """A Redis or Valkey server, all of a message of the pipe in one MULTI; or a cluster of them.

    A row is kept under ``<prefix><table>:<key>``, the values of several key columns with colons between them (a colon or
    backslash in a value has a backslash before it). As a "hash" it has a field for each column that is not NULL, as "json" it
    is the text of ``canal.formats.change_json.row_json``. As a "set" or "sortedset" the rows of a table are members of one,
    ``<prefix><table>``, each as that text; ``<prefix>canal_members:{<prefix><table>}`` has the member of each key. Changes go to
    one "stream" or "list" for each table, ``<prefix><table>``, as lines of JSON: of a stream the field ``change``. What survives
    a crash of the server is what its ``appendonly`` and ``appendfsync`` say; a server that was restored from the past gets the
    rest again.

    A cluster has no MULTI over its servers, so each table is committed by itself there. What is one key of Redis for each table
    is in one MULTI with its progress. Of hashes and JSON each of the 16384 slots remembers the turn of its writer, and who began
    before is refused; the progress is written behind the rows.

    Args:
        url: as redis-py takes it: ``redis://user:password@host:6379/0``, ``rediss://…`` for TLS; of a cluster that of one of its
            servers.
        structure: "hash", "json", "set", "sortedset", "stream" or "list".
        prefix: of all keys.
        options: more arguments of ``redis.Redis.from_url``, or of ``redis.cluster.RedisCluster.from_url``.
        score: of a sortedset the column whose number, or whose moment in seconds since 1970 UTC, is the score (a double).
        cluster: whether it is a cluster.
    """

    url: str = attrs.field(repr=False, validator=text)
    structure: Structure = "hash"
    prefix: str = ""
    options: Mapping[str, Any] = attrs.field(factory=dict, repr=False)
    score: str = attrs.field(default="", kw_only=True)
    cluster: bool = attrs.field(default=False, kw_only=True)

    def __attrs_post_init__(self) -> None:
        if self.structure not in _STRUCTURES:
            raise ConfigError(f"structure is one of {', '.join(_STRUCTURES)}, not {self.structure!r}")
        if bool(self.score) != (self.structure == "sortedset"):
            raise ConfigError("score names the column that orders a sortedset, and is of nothing else")

    @property
    def guarantee(self) -> Guarantee:
        return Guarantee.VERSIONED if self.cluster and self.structure in ("hash", "json") else Guarantee.ONCE

    @property
    def scope(self) -> Scope:
        return "table" if self.cluster else "all"

    @property
    def is_log(self) -> bool:
        return self.structure in ("stream", "list")

    def __str__(self) -> str:
        what = "Redis cluster" if self.cluster else "Redis"
        return f"{what} {self.url.rpartition('@')[2].rpartition('//')[2]} ({self.structure})"

    @contextmanager
    def begin(self, stream: str) -> Iterator[StateWork | LogWork]:
        if self.cluster:
            from canal.targets.redis_cluster import begin

            with begin(self, stream) as work:
                yield work
            return
        redis = need("redis", "redis")
        try:
            connection = redis.Redis.from_url(self.url, **{"socket_connect_timeout": 10, "socket_timeout": 60, **self.options})
        except ValueError as error:
            raise ConfigError(f"bad URL of a Redis server: {error}") from None
        with closing(connection), understood(f"{self}"):
            if connection.info("cluster").get("cluster_enabled"):
                raise ConfigError(f"{self} is of a cluster, which has no MULTI over all keys", remedy="Give it cluster=True.")
            check_memory(connection, f"{self}")
            kinds: dict[str, Callable[..., StateWork | LogWork]] = {
                "hash": RedisRows, "json": RedisRows, "set": RedisMembers, "sortedset": RedisMembers,
            }  # fmt: skip
            yield kinds.get(self.structure, RedisLog)(self, connection, stream)


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
        said = str(error).partition(" ")[0]  # its code; what follows may quote a command
        raise TargetError(f"{what} refuses: {said}", remedy="Mend that; nothing of the commit was written.") from error


def check_memory(connection: Any, what: str) -> None:
    import redis

    try:
        policy = connection.config_get("maxmemory-policy").get("maxmemory-policy", "")
    except redis.ResponseError:  # not every user may ask
        return
    if str(policy).startswith("allkeys"):
        log.warning("%s throws keys away when its memory is full (maxmemory-policy %s): rows may vanish", what, policy)


def text_of(found: Any) -> str | None:
    return found.decode() if isinstance(found, bytes) else found


class _Commit:
    """The progress, and what is written with it, in one MULTI."""

    def __init__(self, target: RedisTarget, connection: Any, stream: str) -> None:
        super().__init__()
        self._target, self._connection, self._stream, self._what = target, connection, stream, f"{target}"

    def _progress_key(self, table: str) -> str:
        return f"{self._target.prefix}canal_progress:{self._stream}"

    def load(self, table: str) -> str | None:
        return text_of(self._connection.get(self._progress_key(table)))

    def _server(self, key: str) -> Any:
        """The client of the server that has the key."""
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
            pipeline.execute()


class RedisRows(_Commit, StateWork):
    """A key of Redis for each row."""

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
        pattern = f"{self._target.prefix}{table.name}:".translate(_GLOB) + "*"
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
        return f"{self._target.prefix}{table.name}:".encode() + _joined(key)


class RedisMembers(_Commit, StateWork):
    """A set or sorted set for each table, whose members are the rows, and beside it a hash with the member of each key."""

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
        """Those that the set has of the keys of these rows."""
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
                position=changes[-1].origin.position if changes else None, changes=changes,
                remedy="Let a rule leave such rows out (where=), or park them by on_unfit.",
            )  # fmt: skip
        return found


class RedisLog(_Commit, LogWork):
    """A stream or list for each table."""

    def write(self, made: Sequence[Change], old: str | None, new: str, table: str) -> None:
        self._write(old, new, table, lambda pipeline: self._queue(pipeline, made))

    def _queue(self, pipeline: Any, made: Sequence[Change]) -> None:
        for change in made:
            name = f"{self._target.prefix}{change.table.name}"
            if self._target.structure == "stream":
                pipeline.xadd(name, {"change": line(change)})
            else:
                pipeline.rpush(name, line(change))


_GLOB: Final = str.maketrans({char: f"\\{char}" for char in "*?[]\\^-"})


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
