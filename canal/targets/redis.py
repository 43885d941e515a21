"""Redis: rows as hashes, JSON or members of a set, or the changes as a stream or list, with the progress in the same MULTI.

``redis_work.py`` has what a commit writes, ``redis_cluster.py`` what is other in a cluster. Never writes to a server that may
have thrown the progress away without saying so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from typing import Any, Final, Literal

import attrs

from canal._util.option_checks import text
from canal.errors import ConfigError
from canal.targets import redis_cluster
from canal.targets.protocol import Guarantee, Scope
from canal.targets.redis_work import RedisLog, RedisMembers, RedisRows, check_memory, understood
from canal.targets.tables import need
from canal.targets.work import LogWork, StateWork

Structure = Literal["hash", "json", "set", "sortedset", "stream", "list"]
_STRUCTURES: Final = ("hash", "json", "set", "sortedset", "stream", "list")


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
            with redis_cluster.begin(self, self.url, self.options, stream) as work:
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
                "hash": RedisRows,
                "json": RedisRows,
                "set": RedisMembers,
                "sortedset": RedisMembers,
            }
            yield kinds.get(self.structure, RedisLog)(self, connection, stream)
