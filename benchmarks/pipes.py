"""``canal.pipe`` beside a loop that one writes by hand with the same client library: get, write, ack, on the same Instance.

    python -m benchmarks.pipes [kafka|opensearch|postgresql|rabbitmq|redis …] [--rows 100000] [--rounds 3]

Each loop does what its authors usually do, and commits the position with the rows where the target can; it folds nothing, knows
one table, and no values but those of this load. A line tells rows a second of both, the best of the rounds, and the quotient: 0.8
is the goal. Into PostgreSQL Debezium races too, where Maven has it: its engine and its JDBC sink, without the start of its JVM.
What PostgreSQL has at the end is compared with the source.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any, Final

import attrs

import canal
from benchmarks import spark_debezium
from benchmarks.pipes_debezium import Debezium
from canal import targets
from canal.testing.servers import MariaDBServer, ThrowawayServer
from tests.support.target_servers import KafkaServer, OpenSearchServer, PostgreSQLServer, RabbitMQServer, RedisServer

COLUMNS: Final = (
    "id INT PRIMARY KEY, customer INT, state VARCHAR(20), total DECIMAL(10,2), note VARCHAR(200), placed DATETIME, paid BIGINT"
)
NAMES: Final = ("id", "customer", "state", "total", "note", "placed", "paid")
JARS: Final = Path(__file__).resolve().parents[1] / ".venv/debezium"
#: Rows of a transaction of the source.
TRANSACTION: Final = 100
_runs = itertools.count(1)

Message = canal.Message
#: Writes the messages that it is given, and gives each back when it is committed.
Loop = Callable[[Iterable[Message]], Iterator[Message]]


def load(server: ThrowawayServer, rows: int) -> None:
    with closing(server.connect(database="bench", autocommit=False)) as connection, connection.cursor() as cursor:
        for begin in range(0, rows, TRANSACTION):
            values = ", ".join(
                f"({n}, {n % 977}, 'state {n % 7}', {n / 100}, '{'x' * (n % 150)}', '2026-01-01 10:00:00', {n * n})"
                for n in range(begin, min(begin + TRANSACTION, rows))
            )
            cursor.execute(f"INSERT INTO orders VALUES {values}")
            connection.commit()


def rows_of(message: Message) -> Iterator[dict[str, Any]]:
    for entry in message.entries:
        for row in entry.rows:
            assert row.after is not None
            yield row.after.as_dict()


def texts_of(message: Message) -> Iterator[tuple[str, str, str]]:
    """What the targets send of a change too: the message, its key, and an id to drop repeats by."""
    for entry in message.entries:
        if not entry.rows:
            continue
        transaction, position = entry.header.gtid, f"{entry.transaction.journal}:{entry.offset}"
        for number, row in enumerate(entry.rows, entry.first_row):
            assert row.after is not None
            key, id = {"id": row.after["id"]}, f"{transaction}/{number}"
            document = {
                "id": id,
                "op": "INSERT",
                "table": "bench.orders",
                "key": key,
                "before": None,
                "after": row.after.as_dict(),
                "ts": entry.header.execute_time,
                "transaction": transaction,
                "position": position,
            }
            yield json.dumps(document, default=str), json.dumps(key), id


# -- loops ---------------------------------------------------------------------------------------------------------------


def kafka(server: KafkaServer, name: str) -> Loop:
    import confluent_kafka

    def loop(messages: Iterable[Message]) -> Iterator[Message]:
        producer = confluent_kafka.Producer({"bootstrap.servers": server.servers, "transactional.id": f"hand-{name}"})
        producer.init_transactions()
        for message in messages:
            producer.begin_transaction()
            for text, key, id in texts_of(message):
                while True:
                    try:
                        producer.produce(f"hand-{name}", text, key, headers=[("id", id)])
                        break
                    except BufferError:
                        producer.poll(0.01)
            producer.produce(f"hand-{name}-progress", message.position.to_text(), "progress")  # type: ignore[union-attr]
            producer.commit_transaction()
            yield message

    return loop


def redis(server: RedisServer, name: str) -> Loop:
    from redis import Redis

    def loop(messages: Iterable[Message]) -> Iterator[Message]:
        with closing(Redis.from_url(server.url)) as client:
            for message in messages:
                with client.pipeline(transaction=True) as pipeline:
                    for row in rows_of(message):
                        key = f"hand-{name}:{row['id']}"
                        pipeline.delete(key)
                        pipeline.hset(key, mapping={name: str(value) for name, value in row.items() if value is not None})
                    pipeline.set(f"hand-{name}", message.position.to_text())  # type: ignore[union-attr]
                    pipeline.execute()
                yield message

    return loop


def postgresql(server: PostgreSQLServer, name: str) -> Loop:
    import psycopg

    def loop(messages: Iterable[Message]) -> Iterator[Message]:
        with psycopg.connect(server.conninfo) as connection:
            columns = COLUMNS.replace("DATETIME", "TIMESTAMP")
            connection.execute(f"CREATE TABLE {name} ({columns})".encode())
            connection.execute(f"CREATE TABLE {name}_progress (position TEXT)".encode())
            new = ", ".join(f"{column} = EXCLUDED.{column}" for column in NAMES[1:])
            values = ", ".join(["%s"] * len(NAMES))
            upsert = f"INSERT INTO {name} VALUES ({values}) ON CONFLICT (id) DO UPDATE SET {new}"
            for message in messages:
                with connection.cursor() as cursor:
                    cursor.executemany(upsert.encode(), [tuple(row.values()) for row in rows_of(message)])
                    cursor.execute(f"DELETE FROM {name}_progress".encode())
                    assert message.position is not None
                    cursor.execute(f"INSERT INTO {name}_progress VALUES (%s)".encode(), [message.position.to_text()])
                connection.commit()
                yield message

    return loop


def opensearch(server: OpenSearchServer, name: str) -> Loop:
    import httpx

    def loop(messages: Iterable[Message]) -> Iterator[Message]:
        with httpx.Client(base_url=server.url, timeout=60) as client:
            for number, message in enumerate(messages, 1):
                lines = []
                for row in rows_of(message):
                    index = {"_index": name, "_id": row["id"], "version": number, "version_type": "external_gte"}
                    lines += [json.dumps({"index": index}), json.dumps(row, default=str)]
                answer = client.post("/_bulk", content="\n".join([*lines, ""]), headers={"Content-Type": "application/x-ndjson"})
                assert not answer.json()["errors"]
                assert message.position is not None
                client.put(f"/{name}_progress/_doc/1", json={"position": message.position.to_text()}).raise_for_status()
                yield message

    return loop


def rabbitmq(server: RabbitMQServer, name: str) -> Loop:
    import pika

    def loop(messages: Iterable[Message]) -> Iterator[Message]:
        with closing(pika.BlockingConnection(pika.URLParameters(server.url))) as connection:
            channel = connection.channel()
            channel.queue_declare(name, durable=True)
            channel.confirm_delivery()
            for message in messages:
                for text, _, id in texts_of(message):
                    properties = pika.BasicProperties(delivery_mode=2, message_id=id)
                    channel.basic_publish("", name, text.encode(), properties, mandatory=True)
                yield message

    return loop


@attrs.frozen
class Contest:
    server: type[Any]
    target: Callable[[Any, str], targets.Target]
    loop: Callable[[Any, str], Loop]
    is_named: bool = True
    """Whether the target can call the table after the run by itself; else a rule does."""


CONTESTS: Final = {
    "kafka": Contest(KafkaServer, lambda server, name: targets.KafkaTarget(server.servers, topic=name), kafka),
    "opensearch": Contest(OpenSearchServer, lambda server, name: targets.OpenSearchTarget(server.url, prefix=name), opensearch),
    "postgresql": Contest(PostgreSQLServer, lambda server, name: targets.PostgreSQLTarget(server.conninfo), postgresql, False),
    "rabbitmq": Contest(RabbitMQServer, lambda server, name: targets.RabbitMQTarget(server.url, routing_key=name), rabbitmq),
    "redis": Contest(RedisServer, lambda server, name: targets.RedisTarget(server.url, prefix=f"{name}:"), redis),
}


# -- the race ------------------------------------------------------------------------------------------------------------


def raced(source: ThrowawayServer, write: Callable[[canal.Instance, str], float]) -> float:
    """Seconds until all rows are acked, from the first get on."""
    name = f"b{os.getpid()}_{next(_runs)}"
    config = canal.InstanceConfig(
        destination=name,
        filter=r"bench\.orders",
        start="earliest",
        meta=canal.MemoryMeta(),
        source=canal.MySQLSource(host=source.host, port=source.port, user=source.user, password=source.password),
    )
    with canal.Instance(config) as instance:
        instance.subscribe()
        began = time.perf_counter()
        return write(instance, name) - began


def by_hand(loop: Callable[[str], Loop], rows: int) -> Callable[[canal.Instance, str], float]:
    def write(instance: canal.Instance, name: str) -> float:
        acked = 0
        for message in loop(name)(_messages(instance)):
            acked += sum(entry.row_count for entry in message.entries)
            instance.ack(message.id)
            if acked >= rows:
                break
        return time.perf_counter()

    return write


def _messages(instance: canal.Instance) -> Iterator[Message]:
    while True:
        if message := instance.get_without_ack(10_000, timeout=1.0, linger=0.05):
            yield message


def piped(make: Callable[[str], targets.Target], rows: int, is_named: bool) -> Callable[[canal.Instance, str], float]:
    def write(instance: canal.Instance, name: str) -> float:
        made = canal.pipe(instance, make(name), rules=[] if is_named else [canal.Rule(to=f"{name}.orders")])
        with made:
            while made.status().changes < rows and not made.join(0.002):
                pass
            return time.perf_counter()

    return write


def check(source: ThrowawayServer, server: PostgreSQLServer, tables: int) -> None:
    """The server has as many tables of orders, each with the source's rows."""
    import psycopg

    columns = ", ".join(NAMES)
    ours = "FROM information_schema.columns WHERE table_schema <> 'information_schema' AND column_name = 'customer'"
    with closing(source.connect()) as connection, connection.cursor() as cursor:
        cursor.execute(f"SELECT {columns} FROM bench.orders ORDER BY id")
        rows = cursor.fetchall()
    with psycopg.connect(server.conninfo) as other:
        found = other.execute(f"SELECT table_schema, table_name {ours}".encode()).fetchall()
        if len(found) != tables:
            raise SystemExit(f"PostgreSQL has {len(found)} tables of orders, not {tables}")
        for schema, table in found:
            wrong = other.execute(f'SELECT {columns} FROM "{schema}"."{table}" ORDER BY id'.encode()).fetchall() != list(rows)
            if wrong:
                raise SystemExit(f"{schema}.{table} of PostgreSQL differs from the source's")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.pipes", description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("names", nargs="*", choices=[*CONTESTS, []])
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--jars", type=Path, default=JARS, help="where Debezium's jars are, or are put")
    options = parser.parse_args()
    names = options.names or list(CONTESTS)
    with ExitStack() as stack:
        source = stack.enter_context(MariaDBServer("--binlog-row-metadata=FULL"))
        source.query("CREATE DATABASE bench")
        source.query(f"CREATE TABLE bench.orders ({COLUMNS})")
        debezium = None
        if "postgresql" in names and (jars := spark_debezium.classpath(options.jars)):
            debezium = stack.enter_context(closing(Debezium(source, jars)))
        load(source, options.rows)
        for name in names:
            race(source, name, options.rows, options.rounds, debezium if name == "postgresql" else None)
    return 0


def race(source: ThrowawayServer, name: str, rows: int, rounds: int, debezium: Debezium | None) -> None:
    contest, seconds = CONTESTS[name], dict[str, list[float]]()
    with contest.server() as server:
        loop = by_hand(lambda run: contest.loop(server, run), rows)
        pipe = piped(lambda run: contest.target(server, run), rows, contest.is_named)
        for _ in range(rounds):
            for who, write in (("pipe", pipe), ("loop", loop)):
                seconds.setdefault(who, []).append(raced(source, write))
            if debezium is not None:
                seconds.setdefault("Debezium", []).append(debezium.seconds(server, rows))
        if name == "postgresql":
            check(source, server, sum(map(len, seconds.values())))
    best = {who: rows / min(found) for who, found in seconds.items()}
    speeds = "   ".join(f"{who} {speed:9,.0f} rows/s" for who, speed in best.items())
    print(f"{name:12}{speeds}   {best['pipe'] / best['loop']:5.2f} of the loop", flush=True)


if __name__ == "__main__":
    raise SystemExit(main())
