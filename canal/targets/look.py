"""A look at a target before the start: whether it is there, what its user may not do, and how far a stream is.

Never changes anything, begins no writer, and so shuts nobody out who writes now.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from typing import Any, Final

import pymysql

from canal._util.findings import Finding
from canal.errors import CanalError
from canal.targets import look_sqlite, looks
from canal.targets.http import HTTPTarget
from canal.targets.kafka import KafkaTarget, asked_of_brokers
from canal.targets.looks import allowed, told
from canal.targets.mongodb import MongoDBTarget
from canal.targets.mysql import MySQLTarget
from canal.targets.opensearch import OpenSearchTarget
from canal.targets.postgresql import PostgreSQLTarget
from canal.targets.protocol import Target
from canal.targets.rabbitmq import RabbitMQTarget
from canal.targets.redis import RedisTarget
from canal.targets.rocketmq import RocketMQTarget
from canal.targets.sqlite import SQLiteTarget
from canal.targets.tables import need

#: What rows are written by; progress is updated too.
_ROWS: Final = ("SELECT", "INSERT", "DELETE")
_PROGRESS: Final = ("SELECT", "INSERT", "UPDATE")
_POSTGRESQL: Final = 120_000
#: What stands for others in the name of a database of a grant of MySQL.
_LIKE: Final = {"%": ".*", "_": "."}
_MAKE: Final = "Make the table, with the columns of the source's, or let the user make it: "


def look(target: Target, stream: str, tables: Sequence[str] = ()) -> list[Finding]:
    """What was found, in the order in which it matters; of targets that are no servers nothing.

    Args:
        stream: of whose progress it tells.
        tables: that are to be written, as the target calls them.
    """
    found: list[Finding] = []
    try:
        for kind, of in _LOOKS.items():
            if isinstance(target, kind):
                for one in of(target, stream, tables):
                    found.append(one)
    except CanalError as error:
        found.append(Finding("target", "error", error.message, error.remedy))
    except Exception as error:  # of the server's library: its text may have a password
        text = f"{target} cannot be asked: {type(error).__name__}."
        found.append(Finding("target", "error", text, "See its address, and the user and its password."))
    return found


# -- PostgreSQL ----------------------------------------------------------------------------------------------------------


def _postgresql(target: PostgreSQLTarget, stream: str, tables: Sequence[str]) -> Iterator[Finding]:
    psycopg = need("psycopg", "postgresql")
    with psycopg.connect(target.conninfo, autocommit=True, **{"connect_timeout": 10, **target.options}) as connection:

        def ask(sql: str, *values: Any) -> Any:
            return connection.execute(sql, values).fetchone()

        version, is_replica, user, schema, database = ask(
            "SELECT current_setting('server_version_num')::int, pg_is_in_recovery(), current_user, current_schema(),"
            " current_database()"
        )
        yield _release(f"PostgreSQL {version // 10_000}", version >= _POSTGRESQL, "PostgreSQL 12")
        if is_replica:
            yield Finding("server", "error", "it is a replica, which takes no changes.", "Give the address of its primary.")
        (there,) = ask("SELECT to_regclass(%s)::text", f'"{target.progress_table}"')
        if there is not None:
            missing = [one for one in _PROGRESS if not ask("SELECT has_table_privilege(%s, %s)", there, one)[0]]
            yield allowed(target.progress_table, missing, there, f"GRANT {', '.join(missing)} ON {there} TO {user};")
            if not missing:
                row = ask(f"SELECT progress FROM {there} WHERE stream = %s AND target = ''", stream)
                yield told(stream, row and row[0])
        elif schema is None or not ask("SELECT has_schema_privilege(%s, 'CREATE')", schema)[0]:
            named = schema or "a schema of its search path"
            yield allowed(target.progress_table, ["CREATE"], named, f"GRANT CREATE ON SCHEMA {schema or 'public'} TO {user};")
        else:
            yield told(stream, None)
        for name in tables:
            yield from _table_of_postgresql(target, ask, name, user, schema, database)


def _table_of_postgresql(
    target: PostgreSQLTarget, ask: Callable[..., Any], name: str, user: str, current: str, database: str
) -> Iterator[Finding]:
    schema, _, table = name.rpartition(".")
    quoted = ".".join('"' + part.replace('"', '""') + '"' for part in (schema, table) if part)
    may_use = ask("SELECT has_schema_privilege(oid, 'USAGE') FROM pg_namespace WHERE nspname = %s", schema) if schema else None
    if may_use == (False,):
        yield allowed(name, ["USAGE"], f"the schema {schema}", f"GRANT USAGE, CREATE ON SCHEMA {schema} TO {user};")
        return
    (there,) = ask("SELECT to_regclass(%s)::text", quoted)
    if there is not None:
        missing = [one for one in _ROWS if not ask("SELECT has_table_privilege(%s, %s)", there, one)[0]]
        yield allowed(name, missing, there, f"GRANT {', '.join(missing)} ON {there} TO {user};")
        is_owner = ask("SELECT pg_has_role(relowner, 'USAGE') FROM pg_class WHERE oid = %s::regclass", there)[0]
        if target.schema == "add" and not is_owner:
            remedy = f"ALTER TABLE {there} OWNER TO {user}; or add columns by hand (schema='refuse')."
            yield Finding(name, "warning", "only its owner may add columns.", remedy)
    elif not target.create:
        yield Finding(name, "error", "there is no such table, and create is False.", f"{_MAKE}create=True.")
    elif schema and may_use is None:
        may = ask("SELECT has_database_privilege(%s, 'CREATE')", database)[0]
        grant = f"GRANT CREATE ON DATABASE {database} TO {user};"
        yield allowed(name, [] if may else ["CREATE"], f"the database {database}", grant)
    else:
        may = ask("SELECT has_schema_privilege(%s, 'CREATE')", schema or current)[0]
        yield allowed(name, [] if may else ["CREATE"], f"the schema {schema}", f"GRANT CREATE ON SCHEMA {schema} TO {user};")


# -- MySQL and MariaDB ---------------------------------------------------------------------------------------------------


def _mysql(target: MySQLTarget, stream: str, tables: Sequence[str]) -> Iterator[Finding]:
    options = {"charset": "utf8mb4", "connect_timeout": 10, "autocommit": True, **target.connect}
    with closing(pymysql.connect(**options)) as connection:

        def ask(sql: str, *values: Any) -> Any:
            with connection.cursor() as cursor:
                cursor.execute(sql, values or None)
                return cursor.fetchall()

        ((version, is_read_only, user),) = ask("SELECT VERSION(), @@read_only, CURRENT_USER()")
        grants = [_grant(str(row[0])) for row in ask("SHOW GRANTS")]
        yield Finding("server", "ok", f"{version}")
        if is_read_only and not any("SUPER" in rights or "ALL PRIVILEGES" in rights for rights, _ in grants):
            remedy = "Give the address of its primary, or SET GLOBAL read_only = OFF;"
            yield Finding("server", "error", "it is read_only.", remedy)
        known = {(str(one), str(other)) for one, other in ask("SELECT table_schema, table_name FROM information_schema.tables")}
        wanted: dict[str, set[str]] = {}
        for schema, table in ((target.database, target.progress_table), *(_parts(name, target.database) for name in tables)):
            own = wanted.setdefault(schema, set(_ROWS))
            own |= {"UPDATE"} if table == target.progress_table else set()
            own |= {"CREATE"} if target.create and (schema, table) not in known else set()
            own |= {"ALTER"} if target.schema == "add" and table != target.progress_table else set()
        for schema, needed in wanted.items():
            missing = sorted(needed - _rights(grants, schema))
            account = "@".join(f"'{part}'" for part in str(user).rsplit("@", 1))
            yield allowed(schema, missing, f"the database {schema}", f"GRANT {', '.join(missing)} ON `{schema}`.* TO {account};")
        if (target.database, target.progress_table) in known and "SELECT" in _rights(grants, target.database):
            name = f"`{target.database}`.`{target.progress_table}`"
            rows = ask(f"SELECT progress FROM {name} WHERE stream = %s AND target = ''", stream)
            yield told(stream, rows[0][0] if rows else None)
        else:
            yield told(stream, None)


def _parts(name: str, database: str) -> tuple[str, str]:
    schema, _, table = name.rpartition(".")
    return schema or database, table


def _grant(text: str) -> tuple[set[str], str]:
    """The rights that a line of SHOW GRANTS names, and on which databases; of one about a table, or a role, none."""
    found = re.match(r"GRANT (.*) ON (?:`((?:[^`]|``)*)`|\*)\.\* TO ", text)
    return ({one.strip() for one in found[1].split(",")}, found[2] or "%") if found else (set(), "")


def _rights(grants: Sequence[tuple[set[str], str]], schema: str) -> set[str]:
    found: set[str] = set()
    for rights, pattern in grants:
        like = (_LIKE.get(part) or re.escape(part.removeprefix("\\")) for part in re.findall(r"\\?.", pattern))
        if re.fullmatch("".join(like), schema):
            found |= {*_ROWS, "UPDATE", "CREATE", "ALTER"} if "ALL PRIVILEGES" in rights else rights
    return found


# -- the others ----------------------------------------------------------------------------------------------------------


def _redis(target: RedisTarget, stream: str, tables: Sequence[str]) -> Iterator[Finding]:
    """Commands are queued in a MULTI, where the server looks whether the user may give them, and then discarded."""
    redis = need("redis", "redis")
    if target.cluster:
        yield from _redis_cluster(target, stream, tables)
        return
    with closing(redis.Redis.from_url(target.url, **{"socket_connect_timeout": 10, **target.options})) as client:
        connection = client.connection_pool.get_connection()
        try:

            def ask(*words: str) -> Any:
                connection.send_command(*words)
                try:
                    return connection.read_response()
                except redis.ResponseError as error:
                    return error

            yield from _rights_of_redis(target, stream, tables, ask)
        finally:
            client.connection_pool.release(connection)
        if isinstance(policy := ask("CONFIG", "GET", "maxmemory-policy"), list) and b"allkeys" in b"".join(policy[1:]):
            remedy = "CONFIG SET maxmemory-policy noeviction"
            yield Finding("maxmemory-policy", "warning", "it throws keys away when its memory is full.", remedy)
        if isinstance(kept := ask("CONFIG", "GET", "appendonly"), list) and kept[1:] == [b"no"]:
            yield Finding("appendonly", "warning", "a crash of the server loses what was committed.", "CONFIG SET appendonly yes")


def _redis_cluster(target: RedisTarget, stream: str, tables: Sequence[str]) -> Iterator[Finding]:
    redis = need("redis", "redis")
    with closing(redis.cluster.RedisCluster.from_url(target.url, **{"socket_connect_timeout": 10, **target.options})) as client:
        state = client.cluster_info().get("cluster_state")
        if state != "ok":
            remedy = "redis-cli --cluster check tells which slots have no server."
            yield Finding("cluster", "error", f"it does not serve all slots: its state is {state}.", remedy)
        nodes = client.get_primaries()
        yield Finding("cluster", "ok", f"{len(nodes)} servers")
        for node in nodes:
            own = client.get_redis_connection(node)
            if str(own.config_get("maxmemory-policy").get("maxmemory-policy")).startswith("allkeys"):
                text = f"{node.name} throws keys away when its memory is full."
                yield Finding("maxmemory-policy", "warning", text, "CONFIG SET maxmemory-policy noeviction")
            kept = own.config_get("append*")
            if (kept.get("appendonly"), kept.get("appendfsync")) != ("yes", "always"):
                text = f"{node.name} may lose in a crash what it confirmed, while another server has the progress behind it."
                yield Finding("appendfsync", "warning", text, "CONFIG SET appendonly yes, and CONFIG SET appendfsync always")
        if target.structure in ("hash", "json") and tables:
            text = client.hget(f"{target.prefix}canal_turns:{stream}", f"table {tables[0]}")
            yield told(stream, text.decode() if isinstance(text, bytes) else text)
    yield Finding("rights", "ok", f"not looked at: EVAL, MULTI and what they call, on keys of {target.prefix}*")


def _rights_of_redis(target: RedisTarget, stream: str, tables: Sequence[str], ask: Callable[..., Any]) -> Iterator[Finding]:
    key = f"{target.prefix}canal_progress:{stream}"
    own = f"{target.prefix}{tables[0] if tables else 'canal_look'}"
    row = f"{own}:0"
    beside = f"{target.prefix}canal_members:{{{own}}}"
    members = [("HSET", beside, "n", "0"), ("HDEL", beside, "n"), ("UNLINK", own, beside)]
    of_structure: dict[str, list[tuple[str, ...]]] = {
        "hash": [("HSET", row, "n", "0"), ("UNLINK", row)],
        "json": [("SET", row, "0"), ("UNLINK", row)],
        "set": [("SADD", own, "0"), ("SREM", own, "0"), *members],
        "sortedset": [("ZADD", own, "0", "0"), ("ZREM", own, "0"), *members],
        "stream": [("XADD", own, "*", "change", "0")],
        "list": [("RPUSH", own, "0")],
    }
    first: list[tuple[str, ...]] = [("GET", key), ("WATCH", key)]
    missing = [words for words in first if isinstance(ask(*words), Exception)]
    if isinstance(refused := ask("MULTI"), Exception):
        missing.append(("MULTI",))
    else:
        queued = [("SET", key, ""), *of_structure[target.structure]] + [("SCAN", "0")] * (not target.is_log)
        answers = [(words, ask(*words)) for words in queued]
        missing += [words for words, answer in answers if isinstance(answer, Exception)]
        refused = next((answer for _, answer in answers if isinstance(answer, Exception)), None)
        ask("DISCARD")
    ask("UNWATCH")
    if "OOM" in str(refused) or "READONLY" in str(refused):
        remedy = "Give it more memory." if "OOM" in str(refused) else "Give the address of its master."
        yield Finding("server", "error", f"it takes no changes: {str(refused).partition(' ')[0]}.", remedy)
        return
    names = list(dict.fromkeys(words[0] for words in missing))
    grant = " ".join(f"+{name.lower()}" for name in names)
    yield allowed("commands", names, f"keys of {target.prefix}*", f"ACL SETUSER … {grant} ~{target.prefix}*")
    if ("GET", key) not in missing:
        text = ask("GET", key)
        yield told(stream, text.decode() if isinstance(text, bytes) else text)


def _kafka(target: KafkaTarget, stream: str, tables: Sequence[str]) -> Iterator[Finding]:
    topics = tables if target.topic == "{name}" else ()
    asked = asked_of_brokers(target, stream, topics)
    for name, (is_there, rights) in asked.topics.items():
        needed = {"READ", "WRITE", "DESCRIBE_CONFIGS"} if name == target.progress_topic else {"WRITE"}
        if is_there:
            grant = "kafka-acls --add --allow-principal User:… " + " ".join(
                f"--operation {one.title().replace('_', '')}" for one in sorted(needed - rights)
            )
            yield allowed(name, sorted(needed - rights), f"the topic {name}", f"{grant} --topic {name}")
        elif asked.may_make.get(name, "") == "":
            yield Finding(name, "ok", "the topic is not there, and may be made")
        else:
            remedy = f"Make it, or kafka-acls --add --allow-principal User:… --operation Create --topic {name}"
            yield Finding(name, "error", f"the topic is not there, and may not be made: {asked.may_make[name]}.", remedy)
    yield Finding(
        "transactions", "ok", f"not looked at, which would shut out who writes now: Write on the transactional id canal-{stream}"
    )
    if asked.topics[target.progress_topic][0]:
        yield told(stream, asked.progress)
    else:
        yield told(stream, None)


def _release(text: str, is_good: bool, least: str) -> Finding:
    if is_good:
        return Finding("server", "ok", text)
    return Finding("server", "error", f"{text} is too old.", f"Take {least} or later.")


_LOOKS: Final[Mapping[type, Callable[[Any, str, Sequence[str]], Iterator[Finding]]]] = {
    PostgreSQLTarget: _postgresql,
    MySQLTarget: _mysql,
    RedisTarget: _redis,
    KafkaTarget: _kafka,
    OpenSearchTarget: looks.opensearch,
    MongoDBTarget: looks.mongodb,
    RabbitMQTarget: looks.rabbitmq,
    RocketMQTarget: looks.rocketmq,
    HTTPTarget: looks.http,
    SQLiteTarget: look_sqlite.look,
}
