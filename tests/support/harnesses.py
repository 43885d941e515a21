"""How the suite gets at each target."""

from __future__ import annotations

import atexit
import base64
import functools
import gc
import json
import sqlite3
import struct
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import UTC, timedelta
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, BinaryIO

from canal.targets import (
    DeltaTarget,
    DuckDBTarget,
    HTTPTarget,
    IcebergTarget,
    JSONLinesTarget,
    KafkaTarget,
    MongoDBTarget,
    MySQLTarget,
    OpenSearchTarget,
    ParquetTarget,
    PostgreSQLTarget,
    RabbitMQTarget,
    RedisTarget,
    RocketMQTarget,
    SQLiteTarget,
)
from canal.targets.rocketmq import Cluster
from canal.targets.rocketmq_wire import Queue
from canal.testing.servers import ThrowawayServer
from canal.testing.target_suite import Harness
from tests.support.lakes import load_catalog

Rows = list[dict[str, Any]]
#: Columns of the suite's tables, and of a load's, that hold bytes.
BYTES = ("b", "c_blob", "c_raw")


def sqlite(path: Path) -> Harness:
    def ask(sql: str) -> Rows:
        with closing(sqlite3.connect(path)) as connection, connection:
            cursor = connection.execute(sql)
            return [dict(zip([column[0] for column in cursor.description], row)) for row in cursor.fetchall()]

    def rows(table: str) -> Rows:
        name = table.partition(".")[2]
        return ask(f'SELECT * FROM "{name}"') if ask(f"SELECT 1 FROM sqlite_master WHERE name = '{name}'") else []

    def unique(table: str, column: str) -> None:
        with closing(sqlite3.connect(path)) as connection:
            connection.execute(f'CREATE UNIQUE INDEX "u_{table}" ON "{table.partition(".")[2]}" ("{column}")')

    return Harness(lambda: SQLiteTarget(path), rows=rows, unique=unique)


def duckdb(path: Path) -> Harness:
    import duckdb

    def ask(sql: str) -> Rows:
        with duckdb.connect(path) as connection:
            cursor = connection.execute(sql)
            names = [column[0] for column in cursor.description or ()]
            return [dict(zip(names, row)) for row in cursor.fetchall()]

    def rows(table: str) -> Rows:
        schema, _, name = table.partition(".")
        there = ask(f"SELECT 1 FROM duckdb_tables() WHERE schema_name = '{schema}' AND table_name = '{name}'")
        return ask(f"SELECT * FROM {table}") if there else []

    def unique(table: str, column: str) -> None:
        ask(f'CREATE UNIQUE INDEX "u_{table}" ON {table} ({column})')

    return Harness(lambda: DuckDBTarget(path), rows=rows, unique=unique)


@functools.cache
def _asking(server: ThrowawayServer) -> Any:
    """One connection for all questions; each one of its own costs more than the question."""
    connection = server.connect(ssl_disabled=True)
    atexit.register(connection.close)
    return connection


def mysql(server: ThrowawayServer) -> Harness:
    connect = {"host": server.host, "port": server.port, "user": server.user, "password": server.password, "ssl_disabled": True}

    def ask(sql: str, *values: Any) -> list[tuple[Any, ...]]:
        with _asking(server).cursor() as cursor:
            cursor.execute(sql, values or None)
            return list(cursor.fetchall())

    def rows(table: str) -> Rows:
        at = "table_schema = %s AND table_name = %s ORDER BY ordinal_position"
        names = [name for (name,) in ask(f"SELECT column_name FROM information_schema.columns WHERE {at}", *table.split("."))]
        if not names:
            return []
        wanted = {"bits": "bits + 0"}
        _asking(server).query("SET time_zone = '+00:00'")
        found = ask(f"SELECT {', '.join(wanted.get(name, name) for name in names)} FROM {table}")
        rows = [dict(zip(names, row)) for row in found]
        return [row | {"ts": row["ts"].replace(tzinfo=UTC)} if row.get("ts") else row for row in rows]

    def unique(table: str, column: str) -> None:
        ask(f"ALTER TABLE {table} ADD UNIQUE KEY ({column})")

    return Harness(lambda: MySQLTarget(connect), rows=rows, unique=unique)


def postgresql(conninfo: str) -> Harness:
    import psycopg

    def rows(table: str) -> Rows:
        with psycopg.connect(conninfo, autocommit=True) as connection:
            if connection.execute("SELECT to_regclass(%s)", [table]).fetchall() == [(None,)]:
                return []
            columns = connection.execute(
                "SELECT attname, format_type(atttypid, -1) FROM pg_attribute WHERE attrelid = to_regclass(%s) AND attnum > 0"
                " ORDER BY attnum",
                [table],
            ).fetchall()
            wanted = ", ".join(f"{name}::text" if kind == "json" else name for name, kind in columns)
            found = connection.execute(f"SELECT {wanted} FROM {table}".encode()).fetchall()
            return [dict(zip([name for name, _ in columns], row)) for row in found]

    def unique(table: str, column: str) -> None:
        with psycopg.connect(conninfo, autocommit=True) as connection:
            connection.execute(f"ALTER TABLE {table} ADD UNIQUE ({column})".encode())

    return Harness(lambda: PostgreSQLTarget(conninfo), rows=rows, unique=unique)


def json_lines(path: Path, file: BinaryIO | None = None) -> Harness:
    def messages(table: str) -> Rows:
        lines = path.read_text().splitlines() if path.exists() else []
        return [message for message in map(_message, lines) if message["table"] == table]

    return Harness(lambda: JSONLinesTarget(file or path), messages=messages)


def _message(text: str | bytes) -> dict[str, Any]:
    message: dict[str, Any] = json.loads(text)
    for side in (message["before"], message["after"]):
        for name in message.get("base64", ()):
            if side is not None and side.get(name) is not None:
                side[name] = base64.b64decode(side[name])
    return message


def _redis(url: str, cluster: bool) -> Any:
    import redis

    return redis.cluster.RedisCluster.from_url(url) if cluster else redis.Redis.from_url(url)


def redis_rows(url: str, structure: Any, *, cluster: bool = False) -> Harness:
    def rows(table: str) -> Rows:
        with closing(_redis(url, cluster)) as connection:
            if structure in ("set", "sortedset"):
                members = connection.zrange(table, 0, -1) if structure == "sortedset" else connection.smembers(table)
                return [_from_json(json.loads(member)) for member in members]
            keys = list(connection.scan_iter(match=f"{table}:*", count=1000))
            if structure == "json":
                return [_from_json(json.loads(connection.get(key))) for key in keys]
            asked = connection.pipeline(transaction=False)
            for key in keys:
                asked.hgetall(key)
            return [_from_hash(fields) for fields in asked.execute()]

    score = "id" if structure == "sortedset" else ""
    return Harness(lambda: RedisTarget(url, structure=structure, score=score, cluster=cluster), rows=rows)


def _from_hash(fields: dict[bytes, bytes]) -> dict[str, Any]:
    return {name.decode(): value if name.decode() in BYTES else value.decode() for name, value in fields.items()}


def _from_json(row: dict[str, Any]) -> dict[str, Any]:
    return {name: base64.b64decode(value) if name in BYTES and value is not None else value for name, value in row.items()}


def redis_log(url: str, structure: Any, *, cluster: bool = False) -> Harness:
    def messages(table: str) -> Rows:
        with closing(_redis(url, cluster)) as connection:
            if structure == "list":
                return [_message(text) for text in connection.lrange(table, 0, -1)]
            return [_message(fields[b"change"]) for _, fields in connection.xrange(table)]

    return Harness(lambda: RedisTarget(url, structure=structure, cluster=cluster), messages=messages)


class Receiver(ThreadingHTTPServer):
    """An address that keeps what it is sent, and answers as it is asked to."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Receive)
        self.requests: list[tuple[Message, bytes]] = []
        self.answer: Callable[[Message, bytes], tuple[int, dict[str, str]] | None] = lambda headers, body: (204, {})
        """The status and headers; None closes the connection without a word. What gets a 2xx is kept."""
        self.attempts = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/hook"


class _Receive(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: Receiver

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.attempts += 1
        answer = self.server.answer(self.headers, body)
        if answer is None:
            self.close_connection = True
            return
        status, headers = answer
        if status < 300:
            self.server.requests.append((self.headers, body))
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        if status != 204:
            self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


def http(receiver: Receiver, **options: Any) -> Harness:
    def messages(table: str) -> Rows:
        found = [_message(text) for _, body in list(receiver.requests) for text in body.splitlines()]
        return [message for message in found if message["table"] == table]

    return Harness(lambda: HTTPTarget(receiver.url, **options), messages=messages)


def opensearch(url: str) -> Harness:
    import httpx

    client = httpx.Client(base_url=url, timeout=60)
    atexit.register(client.close)

    def rows(table: str) -> Rows:
        if client.post(f"/{table}/_refresh").status_code == 404:
            return []
        found, page = [], client.post(f"/{table}/_search?scroll=1m", json={"size": 10_000}).json()
        while hits := page["hits"]["hits"]:
            found += [_from_json(hit["_source"]) for hit in hits]
            page = client.post("/_search/scroll", json={"scroll": "1m", "scroll_id": page["_scroll_id"]}).json()
        return found

    return Harness(lambda: OpenSearchTarget(url), rows=rows)


def mongodb(url: str, **options: Any) -> Harness:
    import pymongo

    client: Any = pymongo.MongoClient(url)
    atexit.register(client.close)

    def collection(table: str) -> Any:
        database, _, name = table.partition(".")
        return client[database][name]

    def rows(table: str) -> Rows:
        found = [{name: value for name, value in row.items() if name != "_id"} for row in collection(table).find()]
        return [row | {"d": row["d"].date()} if row.get("d") else row for row in found]

    def unique(table: str, column: str) -> None:
        collection(table).create_index(column, unique=True)

    return Harness(lambda: MongoDBTarget(url, decimals="text", **options), rows=rows, unique=unique)


def kafka(servers: str, **options: Any) -> Harness:
    def messages(table: str) -> Rows:
        return [_message(message.value()) for message in kafka_log(servers, table)]

    return Harness(lambda: KafkaTarget(servers, **options), messages=messages)


def kafka_log(servers: str, topic: str) -> list[Any]:
    """What a reader with ``read_committed`` gets of a topic, in the order of its partitions."""
    import confluent_kafka

    settings = {
        "bootstrap.servers": servers,
        "group.id": "test",
        "enable.partition.eof": True,
        "fetch.wait.max.ms": 10,
        "isolation.level": "read_committed",
        "auto.offset.reset": "earliest",
        "allow.auto.create.topics": False,
    }
    consumer = confluent_kafka.Consumer(settings)
    try:
        partitions = consumer.list_topics(topic, timeout=30).topics[topic].partitions
        found, left = [], set(partitions)
        consumer.assign([confluent_kafka.TopicPartition(topic, number, 0) for number in partitions])
        while left:
            for message in consumer.consume(1000, timeout=0.02):
                if message.error() is None:
                    found.append(message)
                elif message.error().code() == confluent_kafka.KafkaError._PARTITION_EOF:
                    left.discard(message.partition())
        return found
    finally:
        consumer.close()


def delta(root: Path) -> Harness:
    import deltalake

    def rows(table: str) -> Rows:
        path = str(root / table)
        there = deltalake.DeltaTable.is_deltatable(path)
        return [_from_arrow(row) for row in deltalake.DeltaTable(path).to_pyarrow_table().to_pylist()] if there else []

    return Harness(lambda: DeltaTarget(root), rows=rows)


def iceberg(root: Path) -> Harness:
    from pyiceberg.exceptions import NoSuchTableError

    from canal.targets.tables.iceberg import _kept

    properties = {"type": "sql", "uri": f"sqlite:///{root}/catalog.db", "warehouse": f"file://{root}"}

    def rows(table: str) -> Rows:
        try:
            found = load_catalog("test", **properties).load_table(table).scan().to_arrow()
        except NoSuchTableError:
            return []
        return [_from_arrow(row) for row in found.to_pylist()]

    def make() -> IcebergTarget:
        """Without the connections, and their locks, of a process that is gone."""
        while _kept:
            _kept.popitem()[1].close()
        gc.collect()
        return IcebergTarget("test", properties)

    return Harness(make, rows=rows)


def parquet(root: Path) -> Harness:
    import pyarrow.parquet as pq

    def messages(table: str) -> Rows:
        rows = [row for path in sorted((root / table).glob("*.parquet")) for row in pq.read_table(path).to_pylist()]
        return [
            {"id": row["_id"], "op": row["_op"]} | {side: _from_arrow(row.get(f"_{side}")) for side in ("before", "after")}
            for row in rows
        ]

    return Harness(lambda: ParquetTarget(root), messages=messages)


def _from_arrow(row: dict[str, Any] | None) -> Any:
    """TIME columns are microseconds."""
    if row is None or not isinstance(row.get("t"), int):
        return row
    return row | {"t": timedelta(microseconds=row["t"])}


def rabbitmq(url: str) -> Harness:
    queues: dict[str, list[Any]] = defaultdict(list)  # who reads a queue takes what it has

    def messages(table: str) -> Rows:
        queues[table] += rabbitmq_queue(url, table)
        return [_message(body) for _, body in queues[table]]

    return Harness(lambda: RabbitMQTarget(url), messages=messages)


def rabbitmq_queue(url: str, queue: str) -> list[tuple[Any, bytes]]:
    """The properties and bodies that a queue has; it is empty then."""
    import pika

    found = []
    with closing(pika.BlockingConnection(pika.URLParameters(url))) as connection:
        channel = connection.channel()
        channel.queue_declare(queue, durable=True)
        while (got := channel.basic_get(queue, auto_ack=True))[0] is not None:
            found.append((got[1], got[2]))
    return found


def rocketmq(name_server: str) -> Harness:
    def make() -> RocketMQTarget:
        """With one queue for each topic, in which a TRUNCATE has its place too."""
        return RocketMQTarget(name_server, access_key="canal-writer", secret_key="12345678", queues=1, timeout=20)

    def messages(table: str) -> Rows:
        return [_message(body) for _, body in rocketmq_topic(make(), table.replace(".", "_"))]

    return Harness(make, messages=messages)


def rocketmq_topic(target: RocketMQTarget, topic: str) -> list[tuple[dict[str, str], bytes]]:
    """The properties and bodies that the queues of a topic have, one queue after the other."""
    with Cluster(target) as cluster:
        return [one for queue in cluster.route(topic) for one in rocketmq_queue(cluster, topic, queue)]


def rocketmq_queue(cluster: Cluster, topic: str, queue: Queue) -> Iterator[tuple[dict[str, str], bytes]]:
    offset = 0
    while True:
        asked = {
            "consumerGroup": "canal-test",
            "topic": topic,
            "queueId": queue.number,
            "queueOffset": offset,
            "maxMsgNums": 32,
            "sysFlag": 4,
            "commitOffset": 0,
            "suspendTimeoutMillis": 0,
            "subscription": "*",
            "subVersion": 0,
            "expressionType": "TAG",
        }
        answer = cluster.broker(queue.address).ask(11, {name: str(value) for name, value in asked.items()})
        yield from _stored(answer.body)
        following = int(answer.fields["nextBeginOffset"])
        if following == offset:
            assert answer.code in (0, 19, 20, 21), answer
            return
        offset = following


def _stored(body: bytes) -> Iterator[tuple[dict[str, str], bytes]]:
    """Messages as a broker keeps them: 84 bytes, and each of the body, the topic and the properties with its length before it."""
    while body:
        (size,) = struct.unpack_from(">I", body)
        one, body = body[84:size], body[size:]
        (length,) = struct.unpack_from(">I", one)
        content, rest = one[4 : 4 + length], one[4 + length :]
        properties = rest[1 + rest[0] + 2 :].decode()
        yield dict(pair.split("\x01") for pair in properties.split("\x02") if pair), content
