"""What is other where Redis is a cluster: each table is committed by itself.

A key of Redis for each table is in one slot with its progress, so it is written in one MULTI with it. Rows with keys of their own
are in all slots: a script writes those of a slot together, and only if no later writer has written to the slot.

Never waits for replicas: what a server has confirmed and loses in a crash is not known to the others.
"""

from __future__ import annotations

import binascii
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from typing import Any, Final

from canal.changes import TableState
from canal.errors import ConfigError, ConnectionLostError
from canal.formats.change_json import row_json
from canal.model import Row
from canal.targets.redis_work import Layout, RedisLog, RedisMembers, RedisRows, check_memory, fields_of, text_of, understood
from canal.targets.tables import need
from canal.targets.work import LogWork, StateWork, conflict

_SLOTS: Final = 16384
#: Scripts that are sent at once.
_AT_ONCE: Final = 1000

#: KEYS: the turn of the slot, and rows. ARGV: our turn, and of each row how many values follow, and these: of a row that is gone
#: none, of JSON one, of a hash names and values.
_PUT: Final = """
if tonumber(redis.call('GET', KEYS[1]) or '0') > tonumber(ARGV[1]) then return 0 end
redis.call('SET', KEYS[1], ARGV[1])
local at = 2
for number = 2, #KEYS do
  local count = tonumber(ARGV[at])
  redis.call('UNLINK', KEYS[number])
  if count == 1 then
    redis.call('SET', KEYS[number], ARGV[at + 1])
  elseif count > 1 then
    redis.call('HSET', KEYS[number], unpack(ARGV, at + 1, at + count))
  end
  at = at + 1 + count
end
return 1
"""
#: KEYS: the progress. ARGV: our turn, the table, and the new text, or none to look only.
_CLAIM: Final = """
if redis.call('HGET', KEYS[1], 'turn') ~= ARGV[1] then return 0 end
if ARGV[3] then redis.call('HSET', KEYS[1], 'table ' .. ARGV[2], ARGV[3]) end
return 1
"""


@contextmanager
def begin(target: Layout, url: str, options: Mapping[str, Any], stream: str) -> Iterator[StateWork | LogWork]:
    redis = need("redis", "redis")
    options = {"socket_connect_timeout": 10, "socket_timeout": 60, **options}
    with _of_cluster(f"{target}"), understood(f"{target}"):
        try:
            cluster = redis.cluster.RedisCluster.from_url(url, **options)
        except ValueError as error:
            raise ConfigError(f"bad URL of a Redis server: {error}") from None
        with closing(cluster):
            for node in cluster.get_primaries():
                check_memory(cluster.get_redis_connection(node), f"{target}, {node.name},")
            kinds: dict[str, Callable[..., StateWork | LogWork]] = {
                "hash": _Rows,
                "json": _Rows,
                "set": _Members,
                "sortedset": _Members,
            }
            yield kinds.get(target.structure, _Log)(target, cluster, stream)


@contextmanager
def _of_cluster(what: str) -> Iterator[None]:
    import redis

    try:
        yield
    except redis.exceptions.RedisClusterException as error:
        if "not enabled" in str(error):
            raise ConfigError(f"{what} is no cluster", remedy="Leave cluster=True out.") from error
        raise ConnectionLostError(f"{what} cannot be used: {type(error).__name__}") from error


def slot_of(name: bytes) -> int:
    """The slot of a key, as servers and clients tell it: by what is in its first braces, if there is anything."""
    begin = name.find(b"{")
    end = name.find(b"}", begin + 1) if begin >= 0 else -1
    return binascii.crc_hqx(name[begin + 1 : end] if end > begin + 1 else name, 0) % _SLOTS


@functools.cache
def _tags() -> list[str]:
    """For each slot a text that leads there, where it stands in braces."""
    found: dict[int, str] = {}
    number = 0
    while len(found) < _SLOTS:
        found.setdefault(binascii.crc_hqx(b"%d" % number, 0) % _SLOTS, str(number))
        number += 1
    return [found[slot] for slot in range(_SLOTS)]


class _Rows(RedisRows):
    """Hashes and JSON: all slots remember the turn of their writer."""

    _turn = 0

    def _progress_key(self, table: str) -> str:
        return f"{self._target.prefix}canal_turns:{self._stream}"

    def load(self, table: str) -> str | None:
        """Begins a turn, the first time."""
        key = self._progress_key(table)
        with understood(self._what):
            self._turn = self._turn or int(self._connection.hincrby(key, "turn", 1))
            return text_of(self._connection.hget(key, f"table {table}"))

    def write(self, made: Sequence[TableState], old: str | None, new: str, table: str) -> None:
        with understood(self._what):
            self._claim(table)
            for state in made:
                if state.is_emptied:
                    self._empty(state)
                rows = {self._name(state.table, key): row for key, row in state.rows.items()}
                self._put({name: [] if row is None else self._values(state, row) for name, row in rows.items()})
            self._claim(table, new)

    def _claim(self, *words: str) -> None:
        if not self._connection.eval(_CLAIM, 1, self._progress_key(""), self._turn, *words):
            raise conflict("another writer of this stream has begun since")

    def _values(self, state: TableState, row: Sequence[Any]) -> list[Any]:
        if self._target.structure == "json":
            return [row_json(Row(tuple(row), state.table.names))]
        return [word for field in fields_of(state.table, tuple(row)).items() for word in field]

    def _empty(self, state: TableState) -> None:
        """Take all rows away, and have every slot refuse who would bring one back."""
        gone: dict[bytes, list[Any]] = {name: [] for name in self._keys_of(state.table)}
        self._put(gone, slots=range(_SLOTS))

    def _put(self, rows: dict[bytes, list[Any]], slots: Sequence[int] = ()) -> None:
        of_slot: dict[int, list[bytes]] = {slot: [] for slot in slots}
        for name in rows:
            of_slot.setdefault(slot_of(name), []).append(name)
        scripts = []
        for slot, names in of_slot.items():
            turn = f"{self._target.prefix}canal_turn:{{{_tags()[slot]}}}:{self._stream}"
            values = (word for name in names for word in (len(rows[name]), *rows[name]))
            scripts.append((_PUT, 1 + len(names), turn, *names, self._turn, *values))
        for at in range(0, len(scripts), _AT_ONCE):
            pipeline = self._connection.pipeline()
            for script in scripts[at : at + _AT_ONCE]:
                pipeline.execute_command("EVAL", *script)
            if not all(pipeline.execute()):
                raise conflict("a later writer of this stream has written since")


class _OneSlot:
    """One key of Redis for each table, whose progress is in its slot."""

    _target: Layout
    _connection: Any
    _stream: str

    def _names_key(self) -> str:
        return ""

    def _server(self, key: str) -> Any:
        """A client that follows no slot to another server: what it had watched would not be watched there."""
        return self._connection.get_redis_connection(self._connection.get_node_from_key(key))

    def _progress_key(self, table: str) -> str:
        name = f"{self._target.prefix}{table}"
        if slot_of(name.encode()) != slot_of(f"{{{name}}}".encode()):
            raise ConfigError(
                f"{name} has braces, by which a cluster chooses the server of a key", remedy="Name it by canal.Rule(to=…)."
            )
        return f"{self._target.prefix}canal_progress:{{{name}}}:{self._stream}"


class _Members(_OneSlot, RedisMembers):
    pass


class _Log(_OneSlot, RedisLog):
    pass
