"""A look at a target before the start: whether it is there, what its user may not do, and how far a stream is.

Never changes anything, begins no writer, and so shuts nobody out who writes now.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from typing import Any, Final

import pymysql

from canal.errors import CanalError
from canal.findings import Finding
from canal.targets import look_sqlite
from canal.targets.kafka import KafkaTarget, asked_of_brokers
from canal.targets.mysql import MySQLTarget
from canal.targets.opensearch import OpenSearchTarget
from canal.targets.postgresql import PostgreSQLTarget
from canal.targets.protocol import Progress, Target
from canal.targets.redis import RedisTarget
from canal.targets.rocketmq import DEFAULT_TOPIC, Cluster, RocketMQTarget
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


def _told(stream: str, text: str | None) -> Finding:
    if text is None:
        return Finding("progress", "ok", f"there is none of {stream}: it begins with what is not acked")
    return Finding("progress", "ok", f"{stream} is at {Progress.from_text(text).position}")


def _allowed(what: str, missing: Sequence[str], on: str, grant: str) -> Finding:
    if missing:
        return Finding(what, "error", f"the user lacks {', '.join(missing)} on {on}.", grant)
    return Finding(what, "ok", f"the user may write {on}")


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
            yield _allowed(target.progress_table, missing, there, f"GRANT {', '.join(missing)} ON {there} TO {user};")
            if not missing:
                row = ask(f"SELECT progress FROM {there} WHERE stream = %s AND target = ''", stream)
                yield _told(stream, row and row[0])
        elif schema is None or not ask("SELECT has_schema_privilege(%s, 'CREATE')", schema)[0]:
            named = schema or "a schema of its search path"
            yield _allowed(target.progress_table, ["CREATE"], named, f"GRANT CREATE ON SCHEMA {schema or 'public'} TO {user};")
        else:
            yield _told(stream, None)
        for name in tables:
            yield from _table_of_postgresql(target, ask, name, user, schema, database)


def _table_of_postgresql(
    target: PostgreSQLTarget, ask: Callable[..., Any], name: str, user: str, current: str, database: str
) -> Iterator[Finding]:
    schema, _, table = name.rpartition(".")
    quoted = ".".join('"' + part.replace('"', '""') + '"' for part in (schema, table) if part)
    may_use = ask("SELECT has_schema_privilege(oid, 'USAGE') FROM pg_namespace WHERE nspname = %s", schema) if schema else None
    if may_use == (False,):
        yield _allowed(name, ["USAGE"], f"the schema {schema}", f"GRANT USAGE, CREATE ON SCHEMA {schema} TO {user};")
        return
    (there,) = ask("SELECT to_regclass(%s)::text", quoted)
    if there is not None:
        missing = [one for one in _ROWS if not ask("SELECT has_table_privilege(%s, %s)", there, one)[0]]
        yield _allowed(name, missing, there, f"GRANT {', '.join(missing)} ON {there} TO {user};")
        is_owner = ask("SELECT pg_has_role(relowner, 'USAGE') FROM pg_class WHERE oid = %s::regclass", there)[0]
        if target.schema == "add" and not is_owner:
            remedy = f"ALTER TABLE {there} OWNER TO {user}; or add columns by hand (schema='refuse')."
            yield Finding(name, "warning", "only its owner may add columns.", remedy)
    elif not target.create:
        yield Finding(name, "error", "there is no such table, and create is False.", f"{_MAKE}create=True.")
    elif schema and may_use is None:
        may = ask("SELECT has_database_privilege(%s, 'CREATE')", database)[0]
        grant = f"GRANT CREATE ON DATABASE {database} TO {user};"
        yield _allowed(name, [] if may else ["CREATE"], f"the database {database}", grant)
    else:
        may = ask("SELECT has_schema_privilege(%s, 'CREATE')", schema or current)[0]
        yield _allowed(name, [] if may else ["CREATE"], f"the schema {schema}", f"GRANT CREATE ON SCHEMA {schema} TO {user};")


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
            yield _allowed(schema, missing, f"the database {schema}", f"GRANT {', '.join(missing)} ON `{schema}`.* TO {account};")
        if (target.database, target.progress_table) in known and "SELECT" in _rights(grants, target.database):
            name = f"`{target.database}`.`{target.progress_table}`"
            rows = ask(f"SELECT progress FROM {name} WHERE stream = %s AND target = ''", stream)
            yield _told(stream, rows[0][0] if rows else None)
        else:
            yield _told(stream, None)


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


def _rights_of_redis(target: RedisTarget, stream: str, tables: Sequence[str], ask: Callable[..., Any]) -> Iterator[Finding]:
    key = f"{target.prefix}canal_progress:{stream}"
    own = f"{target.prefix}{tables[0] if tables else 'canal_look'}"
    row = f"{own}:0"
    of_structure: dict[str, list[tuple[str, ...]]] = {
        "hash": [("HSET", row, "n", "0"), ("UNLINK", row)], "json": [("SET", row, "0"), ("UNLINK", row)],
        "stream": [("XADD", own, "*", "change", "0")], "list": [("RPUSH", own, "0")],
    }  # fmt: skip
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
    yield _allowed("commands", names, f"keys of {target.prefix}*", f"ACL SETUSER … {grant} ~{target.prefix}*")
    if ("GET", key) not in missing:
        text = ask("GET", key)
        yield _told(stream, text.decode() if isinstance(text, bytes) else text)


def _kafka(target: KafkaTarget, stream: str, tables: Sequence[str]) -> Iterator[Finding]:
    topics = tables if target.topic == "{name}" else ()
    asked = asked_of_brokers(target, stream, topics)
    for name, (is_there, rights) in asked.topics.items():
        needed = {"READ", "WRITE", "DESCRIBE_CONFIGS"} if name == target.progress_topic else {"WRITE"}
        if is_there:
            grant = "kafka-acls --add --allow-principal User:… " + " ".join(
                f"--operation {one.title().replace('_', '')}" for one in sorted(needed - rights)
            )
            yield _allowed(name, sorted(needed - rights), f"the topic {name}", f"{grant} --topic {name}")
        elif asked.may_make.get(name, "") == "":
            yield Finding(name, "ok", "the topic is not there, and may be made")
        else:
            remedy = f"Make it, or kafka-acls --add --allow-principal User:… --operation Create --topic {name}"
            yield Finding(name, "error", f"the topic is not there, and may not be made: {asked.may_make[name]}.", remedy)
    yield Finding(
        "transactions", "ok", f"not looked at, which would shut out who writes now: Write on the transactional id canal-{stream}"
    )
    if asked.topics[target.progress_topic][0]:
        yield _told(stream, asked.progress)
    else:
        yield _told(stream, None)


def _rocketmq(target: RocketMQTarget, stream: str, tables: Sequence[str]) -> Iterator[Finding]:
    with Cluster(target) as cluster:
        makes = cluster.route(DEFAULT_TOPIC)
        brokers = sorted({queue.address for queue in makes})
        for name in tables if target.topic == "{name}" else ():
            topic = name.replace(".", "_")
            queues = cluster.route(topic)
            brokers = sorted({*brokers, *(queue.address for queue in queues)})
            if queues:
                yield Finding(topic, "ok", f"the topic has {len(queues)} queues")
            elif makes:
                yield Finding(topic, "ok", f"the topic is not there, and {makes[0].broker} makes it")
            else:
                remedy = f"mqadmin updateTopic -n {target.name_servers} -c … -t {topic}"
                yield Finding(topic, "error", "the topic is not there, and no broker makes it.", remedy)
        for address in brokers:
            cluster.broker(address)
            yield Finding("broker", "ok", f"{address} is there")
    yield Finding("rights", "ok", "not looked at, which only sending would tell: PUB on the topics")


def _opensearch(target: OpenSearchTarget, stream: str, tables: Sequence[str]) -> Iterator[Finding]:
    httpx = need("httpx", "opensearch")
    with closing(httpx.Client(base_url=target.url, **{"timeout": target.timeout, **target.options})) as client:

        def ask(path: str) -> tuple[int, Any]:
            answer = client.get(path)
            is_json = answer.headers.get("content-type", "").startswith("application/json")
            return answer.status_code, answer.json() if is_json else {}

        status, about = ask("/")
        if status != 200:
            remedy = "See the user and its password." if status in (401, 403) else "See what listens there."
            yield Finding("server", "error", f"it answers {status}.", remedy)
            return
        yield Finding("server", "ok", f"{about['version'].get('distribution', 'elasticsearch')} {about['version']['number']}")
        status, health = ask("/_cluster/health")
        if status == 200 and health["status"] == "red":
            yield Finding("cluster", "error", "it is red: some of its shards are not there.", "Bring its nodes back.")
        names = [target.progress_index, *(f"{target.prefix}{name}".lower() for name in tables)]
        for name in names:
            status, found = ask(f"/{name}/_settings?flat_settings=true")
            if status in (401, 403):
                rights = "read, index, delete, create_index, view_index_metadata, manage"
                yield Finding(name, "error", f"the user may not look at the index ({status}).", f"Give it {rights} on {name}.")
            elif status == 200:
                settings: Mapping[str, str] = next(iter(found.values()))["settings"]
                blocks = [key for key, value in settings.items() if key.startswith("index.blocks.") and str(value) == "true"]
                if blocks:
                    remedy = f"PUT /{name}/_settings with {{{', '.join(f'{one!r}: null' for one in blocks)}}}"
                    yield Finding(name, "error", f"the index is blocked: {', '.join(blocks)}.", remedy)
                else:
                    yield Finding(name, "ok", "the index is there")
            else:
                yield Finding(name, "ok", "the index is not there, and is made")


def _release(text: str, is_good: bool, least: str) -> Finding:
    if is_good:
        return Finding("server", "ok", text)
    return Finding("server", "error", f"{text} is too old.", f"Take {least} or later.")


_LOOKS: Final[Mapping[type, Callable[[Any, str, Sequence[str]], Iterator[Finding]]]] = {
    PostgreSQLTarget: _postgresql, MySQLTarget: _mysql, RedisTarget: _redis, KafkaTarget: _kafka, OpenSearchTarget: _opensearch,
    RocketMQTarget: _rocketmq,
    SQLiteTarget: look_sqlite.look,
}  # fmt: skip
