"""Redis: rows as hashes or JSON, or the changes as a stream or list, with the progress in the same MULTI.

Never writes to a server that may have thrown the progress away without saying so.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from typing import Any, ClassVar, Final, Literal

import attrs

from canal.changes import Change, Table, TableState
from canal.changes.latest import Key, Values
from canal.errors import ConfigError, ConnectionLostError, TargetError
from canal.formats.change_json import line, row_json
from canal.model import Row
from canal.targets.protocol import Guarantee, Scope
from canal.targets.tables import need
from canal.targets.values import TEXTS
from canal.targets.work import LogWork, StateWork, conflict

log = logging.getLogger("canal.pipe")

_STRUCTURES: Final = ("hash", "json", "stream", "list")
#: Keys that are asked for at once where a table is emptied.
_SCAN: Final = 1000


@attrs.frozen
class RedisTarget:
    """One Redis or Valkey server, not a cluster; all of a message is one MULTI.

    A row is kept under ``<prefix><table>:<key>``, the values of several key columns with colons between them (a colon or
    backslash in a value has a backslash before it). As a "hash" it has a field for each column that is not NULL, as "json" it
    is the text of ``canal.formats.change_json.row_json``. Changes go to one "stream" or "list" for each table,
    ``<prefix><table>``, as lines of JSON: of a stream the field ``change``. What survives a crash of the server is what its
    ``appendonly`` and ``appendfsync`` say; a server that was restored from the past gets the rest again.

    Args:
        url: as redis-py takes it: ``redis://user:password@host:6379/0``, ``rediss://…`` for TLS.
        structure: "hash", "json", "stream" or "list".
        prefix: of all keys.
        options: more arguments of ``redis.Redis.from_url``.
    """

    url: str = attrs.field(repr=False)
    structure: Literal["hash", "json", "stream", "list"] = "hash"
    prefix: str = ""
    options: Mapping[str, Any] = attrs.field(factory=dict, repr=False)

    guarantee = Guarantee.ONCE
    scope: ClassVar[Scope] = "all"

    def __attrs_post_init__(self) -> None:
        if self.structure not in _STRUCTURES:
            raise ConfigError(f"structure is one of {', '.join(_STRUCTURES)}, not {self.structure!r}")

    @property
    def is_log(self) -> bool:
        return self.structure in ("stream", "list")

    def __str__(self) -> str:
        return f"Redis {self.url.rpartition('@')[2].rpartition('//')[2]} ({self.structure})"

    @contextmanager
    def begin(self, stream: str) -> Iterator[_RedisRows | _RedisLog]:
        redis = need("redis", "redis")
        try:
            connection = redis.Redis.from_url(self.url, **{"socket_connect_timeout": 10, "socket_timeout": 60, **self.options})
        except ValueError as error:
            raise ConfigError(f"bad URL of a Redis server: {error}") from None
        with closing(connection), _understood(f"{self}"):
            _check_server(connection, f"{self}")
            kind = _RedisLog if self.is_log else _RedisRows
            yield kind(connection, self.structure, self.prefix, f"{self.prefix}canal_progress:{stream}", f"{self}")


@contextmanager
def _understood(what: str) -> Iterator[None]:
    import redis

    try:
        yield
    except redis.WatchError as error:
        raise conflict() from error
    except (redis.ConnectionError, redis.TimeoutError) as error:
        raise ConnectionLostError(f"the connection to {what} broke: {type(error).__name__}") from error
    except redis.RedisError as error:
        said = str(error).partition(" ")[0]  # its code; what follows may quote a command
        raise TargetError(f"{what} refuses: {said}", remedy="Mend that; nothing of the commit was written.") from error


def _check_server(connection: Any, what: str) -> None:
    import redis

    if connection.info("cluster").get("cluster_enabled"):
        raise ConfigError(f"{what} is of a cluster, which has no MULTI over all keys", remedy="Give a server that is none.")
    try:
        policy = connection.config_get("maxmemory-policy").get("maxmemory-policy", "")
    except redis.ResponseError:  # not every user may ask
        return
    if str(policy).startswith("allkeys"):
        log.warning("%s throws keys away when its memory is full (maxmemory-policy %s): rows may vanish", what, policy)


class _Commit:
    """The progress, and what is written with it, in one MULTI."""

    _connection: Any
    _key: str
    _what: str

    def load(self, table: str) -> str | None:
        found = self._connection.get(self._key)
        return found.decode() if isinstance(found, bytes) else found

    def _write(self, old: str | None, new: str, queue: Callable[[Any], None]) -> None:
        with _understood(self._what), self._connection.pipeline(transaction=True) as pipeline:
            pipeline.watch(self._key)
            text = pipeline.get(self._key)
            if (text.decode() if isinstance(text, bytes) else text) != old:
                raise conflict()
            pipeline.multi()
            queue(pipeline)
            pipeline.set(self._key, new)
            pipeline.execute()


class _RedisRows(_Commit, StateWork):
    def __init__(self, connection: Any, structure: str, prefix: str, key: str, what: str) -> None:
        super().__init__()
        self._connection, self._structure, self._prefix, self._key, self._what = connection, structure, prefix, key, what

    def write(self, made: Sequence[TableState], old: str | None, new: str, table: str) -> None:
        with _understood(self._what):
            emptied = {state.table.name: self._keys_of(state.table) for state in made if state.is_emptied}
        self._write(old, new, lambda pipeline: self._queue(pipeline, made, emptied))

    def _queue(self, pipeline: Any, made: Sequence[TableState], emptied: Mapping[str, Sequence[bytes]]) -> None:
        for state in made:
            names = {self._name(state.table, key): row for key, row in state.rows.items()}
            for some in _slices([*emptied.get(state.table.name, ()), *names]):
                pipeline.unlink(*some)
            for name, row in names.items():
                if row is None:
                    continue
                if self._structure == "json":
                    pipeline.set(name, row_json(Row(row, state.table.names)))
                else:
                    pipeline.hset(name, mapping=_fields(state.table, row))

    def _keys_of(self, table: Table) -> list[bytes]:
        pattern = f"{self._prefix}{table.name}:".translate(_GLOB) + "*"
        return list(self._connection.scan_iter(match=pattern, count=_SCAN))

    def read(self, table: Table, keys: Sequence[Key]) -> Mapping[Key, Values]:
        if self._structure == "json":
            return super().read(table, keys)
        with _understood(self._what), self._connection.pipeline(transaction=False) as pipeline:
            for key in keys:
                pipeline.hgetall(self._name(table, key))
            rows = pipeline.execute()
        return {
            key: tuple(row.get(name.encode(), row.get(name)) for name in table.names.names) for key, row in zip(keys, rows) if row
        }

    def _name(self, table: Table, key: Key) -> bytes:
        parts = (_bytes(value).replace(b"\\", b"\\\\").replace(b":", b"\\:") for value in key)
        return f"{self._prefix}{table.name}:".encode() + b":".join(parts)


class _RedisLog(_Commit, LogWork):
    def __init__(self, connection: Any, structure: str, prefix: str, key: str, what: str) -> None:
        super().__init__()
        self._connection, self._structure, self._prefix, self._key, self._what = connection, structure, prefix, key, what

    def write(self, made: Sequence[Change], old: str | None, new: str, table: str) -> None:
        self._write(old, new, lambda pipeline: self._queue(pipeline, made))

    def _queue(self, pipeline: Any, made: Sequence[Change]) -> None:
        for change in made:
            name = f"{self._prefix}{change.table.name}"
            if self._structure == "stream":
                pipeline.xadd(name, {"change": line(change)})
            else:
                pipeline.rpush(name, line(change))


_GLOB: Final = str.maketrans({char: f"\\{char}" for char in "*?[]\\^-"})


def _fields(table: Table, row: Values) -> dict[str, bytes]:
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
