"""Kafka beyond the suite: which message goes where, sizes, what is refused, and brokers and writers that die."""

from __future__ import annotations

import itertools
import json
import random
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

import canal
from canal.changes import Table
from canal.errors import ConnectionLostError, TargetConflictError, TargetError, TargetSchemaError, UnfitChangeError
from canal.model import ColumnNames, Row
from canal.targets import CanalMQ, JSONLinesTarget, KafkaTarget, Progress
from canal.targets import kafka as module
from canal.targets.canal_mq import java_hash
from canal.targets.messages import primary_key
from canal.testing import FakeBinlog, target_suite
from tests.support.harnesses import kafka_log
from tests.support.target_servers import KafkaServer

confluent_kafka = pytest.importorskip("confluent_kafka")
_numbers = itertools.count(random.randrange(1 << 30))


@pytest.fixture
def topic(kafka_server: KafkaServer) -> str:
    """The name of a topic with three partitions."""
    from confluent_kafka.admin import NewTopic

    return made(kafka_server, NewTopic(f"t{next(_numbers)}", 3, 1))


def made(server: KafkaServer, topic: Any) -> str:
    from confluent_kafka.admin import AdminClient

    admin = AdminClient({"bootstrap.servers": server.servers})  # what it is asked ends with it
    (made,) = admin.create_topics([topic]).values()
    made.result()
    return str(topic.topic)


@contextmanager
def life(fake: FakeBinlog, target: Any, **options: Any) -> Iterator[canal.Pipe]:
    config = canal.InstanceConfig(destination=f"d{next(_numbers)}", source=fake, start="earliest")
    with canal.Instance(config) as instance:
        instance.subscribe()
        yield canal.pipe(instance, target, **{"on_error": "stop", **options})


def follow(fake: FakeBinlog, target: Any, **options: Any) -> None:
    fake.end()
    with life(fake, target, **options) as pipe:
        pipe.run()


def test_a_key_has_its_partition_and_one_that_changes_is_deleted_under_the_old_one(
    fake_binlog: FakeBinlog, kafka_server: KafkaServer, topic: str
) -> None:
    table, draw = fake_binlog.table("shop", "orders", "id INT PRIMARY KEY, n INT"), random.Random(1)
    rows = {key: {"id": key, "n": 0} for key in range(30)}
    fresh = itertools.count(30)
    for row in rows.values():
        table.insert(row)
    for n in range(300):
        row = rows.pop(draw.choice(list(rows)))
        new = {"id": next(fresh) if draw.random() < 0.3 else row["id"], "n": n}
        table.update(row, new)
        rows[new["id"]] = new

    follow(fake_binlog, KafkaTarget(kafka_server.servers, topic=topic), batch_size=50)

    state: dict[bytes, Any] = {}
    partitions = defaultdict(set)
    log = kafka_log(kafka_server.servers, topic)
    for message in log:
        value = json.loads(message.value())
        state[message.key()] = value["after"]
        partitions[message.key()].add(message.partition())
        assert dict(message.headers())["id"] == value["id"].encode()
    assert {key: row for key, row in state.items() if row is not None} == {b'{"id":%d}' % key: row for key, row in rows.items()}
    assert {len(found) for found in partitions.values()} == {1}
    assert len({number for found in partitions.values() for number in found}) == 3
    assert len({dict(message.headers())["id"] for message in log}) == len(log)


def test_a_partition_that_is_named_has_the_messages_and_one_that_there_is_not_is_an_error(
    fake_binlog: FakeBinlog, kafka_server: KafkaServer, topic: str
) -> None:
    mq = CanalMQ(topic=topic, partition_hash="shop.orders:n", partitions=3)
    table = fake_binlog.table("shop", "orders", "id INT PRIMARY KEY, n INT")
    for key in range(9):
        table.insert({"id": key, "n": key})
    table.update({"id": 0, "n": 0}, {"id": 0, "n": 1})
    routes: dict[str, Any] = {"topic": mq.topic_of, "key": mq.key_of, "partition": mq.partition_of}

    follow(fake_binlog, KafkaTarget(kafka_server.servers, **routes))

    log = [(message.partition(), json.loads(message.value())) for message in kafka_log(kafka_server.servers, topic)]
    hashed = java_hash("shop")
    for partition, value in log:
        row = value["after"] or value["before"]
        assert partition == abs(hashed ^ java_hash(str(row["n"]))) % 3
    assert sorted(value["op"] for _, value in log) == ["DELETE", *["INSERT"] * 10]
    with pytest.raises(TargetError, match=f"{topic}: _?UNKNOWN"):
        follow(fake_binlog, KafkaTarget(kafka_server.servers, topic=topic, partition=lambda change: 7), stream="other")


def test_topics_keys_headers_and_values_are_as_they_are_asked_for(fake_binlog: FakeBinlog, kafka_server: KafkaServer) -> None:
    topic = f"t{next(_numbers)}"
    table = fake_binlog.table("shop", "o", "id INT PRIMARY KEY, buyer VARCHAR(9)")
    keyless = fake_binlog.table("shop", "log", "n INT")
    table.insert({"id": 1, "buyer": "é"})
    table.update({"id": 1, "buyer": "é"}, {"id": 1, "buyer": "b"})
    table.delete({"id": 1, "buyer": "b"})
    keyless.insert({"n": 5})
    fake_binlog.ddl("TRUNCATE TABLE shop.o", "shop")
    target = KafkaTarget(
        kafka_server.servers,
        topic=topic + "-{schema}-{table}",
        tombstones=True,
        key=lambda table, row: row["buyer"] if table.keys else None,
        encode=lambda change: change.op.name.encode(),
        headers=lambda change: {"table": change.table.name},
    )

    follow(fake_binlog, target)

    log = kafka_log(kafka_server.servers, f"{topic}-shop-o")
    assert [(one.key(), one.value()) for one in log] == [
        ("é".encode(), b"INSERT"),
        ("é".encode(), b"DELETE"),
        ("é".encode(), None),
        (b"b", b"INSERT"),
        (b"b", b"DELETE"),
        (b"b", None),
        (None, b"TRUNCATE"),
    ]
    assert {dict(one.headers())["table"] for one in log} == {b"shop.o"}
    assert [(one.key(), one.value()) for one in kafka_log(kafka_server.servers, f"{topic}-shop-log")] == [(None, b"INSERT")]


def test_partial_images_have_their_keys_and_one_whose_key_changes_is_unfit(
    fake_binlog: FakeBinlog, kafka_server: KafkaServer, topic: str
) -> None:
    table = fake_binlog.table("shop", "o", "id INT PRIMARY KEY, n INT, m INT")
    table.insert({"id": 1, "n": 1, "m": 1})
    fake_binlog.row_image = "MINIMAL"
    table.update({"id": 1, "n": 1, "m": 1}, {"id": 1, "n": 2, "m": 1})
    table.update({"id": 1, "n": 2, "m": 1}, {"id": 2, "n": 2, "m": 1})

    with pytest.raises(UnfitChangeError, match="parts of a row of shop.o whose key changes"):
        follow(fake_binlog, KafkaTarget(kafka_server.servers, topic=topic), batch_size=1)

    assert [one.key() for one in kafka_log(kafka_server.servers, topic)] == [b'{"id":1}'] * 2
    with pytest.raises(UnfitChangeError, match="a column of the key of shop.o is not in the row image"):
        primary_key(Table("o", "shop.o", keys=("id",)), Row((canal.ABSENT,), ColumnNames(("id",))))


def test_what_is_too_large_is_parked_and_the_rest_of_its_transaction_is_there(
    fake_binlog: FakeBinlog, kafka_server: KafkaServer, topic: str, tmp_path: Any
) -> None:
    table = fake_binlog.table("shop", "o", "id INT PRIMARY KEY, t LONGTEXT")
    with fake_binlog.transaction():
        for key, size in enumerate([1, 30_000, 1, 40_000, 1]):
            table.insert({"id": key, "t": "x" * size})
    target = KafkaTarget(kafka_server.servers, topic=topic, producer={"message.max.bytes": 20_000})

    with pytest.raises(UnfitChangeError, match="a message of .* is larger than message.max.bytes"):
        follow(fake_binlog, target)
    assert kafka_log(kafka_server.servers, topic) == []
    follow(fake_binlog, target, on_unfit=JSONLinesTarget(tmp_path / "parked"))

    assert sorted(one.key() for one in kafka_log(kafka_server.servers, topic)) == [b'{"id":0}', b'{"id":2}', b'{"id":4}']
    assert [json.loads(text)["key"]["id"] for text in (tmp_path / "parked").read_text().splitlines()] == [1, 3]


def test_what_the_topic_refuses_is_an_error_that_names_it(fake_binlog: FakeBinlog, kafka_server: KafkaServer) -> None:
    from confluent_kafka.admin import NewTopic

    topic = made(kafka_server, NewTopic(f"t{next(_numbers)}", 1, 1, config={"max.message.bytes": "1000"}))
    fake_binlog.table("shop", "o", "id INT PRIMARY KEY, t TEXT").insert({"id": 1, "t": "x" * 5000})

    with pytest.raises(TargetSchemaError, match=f"the topic {topic} takes no messages as large .*max.message.bytes"):
        follow(fake_binlog, KafkaTarget(kafka_server.servers, topic=topic))
    with pytest.raises(TargetSchemaError, match="'a b' is no name of a topic"):
        follow(fake_binlog, KafkaTarget(kafka_server.servers, topic="a b"))
    with pytest.raises(UnfitChangeError, match="its message cannot be made of a change of shop.o: ZeroDivisionError"):
        follow(fake_binlog, KafkaTarget(kafka_server.servers, topic=topic, encode=lambda change: str(1 / 0)))


def test_a_cluster_or_topic_that_cannot_be_used_is_an_error(kafka_server: KafkaServer) -> None:
    from confluent_kafka.admin import NewTopic

    plain = made(kafka_server, NewTopic(f"t{next(_numbers)}", 1, 1, config={"cleanup.policy": "compact,delete"}))
    for target, error in (
        (KafkaTarget(kafka_server.servers, progress_topic=plain), "is not compacted alone"),
        (KafkaTarget(kafka_server.servers, options={"bogus": "1"}), "No such configuration property"),
        (KafkaTarget(kafka_server.servers, producer={"acks": "0"}), "`acks` must be set to `all`"),
    ):
        with pytest.raises(canal.ConfigError, match=error), target.begin("x"):
            pass
    with pytest.raises(ConnectionLostError), KafkaTarget("127.0.0.1:1", timeout=1).begin("x"):
        pass
    for options in ({"topic": "{no}"}, {"progress_topic": ""}, {"timeout": 0}):
        with pytest.raises(canal.ConfigError, match=next(iter(options))):
            KafkaTarget("127.0.0.1:1", **options)


def test_a_writer_that_was_shut_out_has_written_nothing(fake_binlog: FakeBinlog, kafka_server: KafkaServer, topic: str) -> None:
    fake_binlog.table("shop", "o", "id INT PRIMARY KEY").insert({"id": 1})
    target = KafkaTarget(kafka_server.servers, topic=topic)

    def at(point: str) -> None:
        if point == "before":
            with target.begin("zombie"):
                pass

    with pytest.raises(TargetConflictError, match="another writer of this stream has begun since"):
        follow(fake_binlog, target_suite.Faulty(target, at), stream="zombie")
    assert kafka_log(kafka_server.servers, topic) == []
    follow(fake_binlog, target, stream="zombie")
    assert len(kafka_log(kafka_server.servers, topic)) == 1


def test_the_progress_is_read_behind_what_another_stream_has_open(
    fake_binlog: FakeBinlog, kafka_server: KafkaServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = f"s{next(_numbers)}"
    from confluent_kafka.admin import NewTopic

    # Of several partitions one has the progress.
    progress = made(kafka_server, NewTopic(f"t{next(_numbers)}", 3, 1, config={"cleanup.policy": "compact"}))
    target = KafkaTarget(kafka_server.servers, timeout=2, progress_topic=progress)
    other = confluent_kafka.Producer({"bootstrap.servers": kafka_server.servers, "transactional.id": "other"})
    other.init_transactions(30)
    first, second = Progress(fake_binlog.position, 1), Progress(fake_binlog.position, 2)
    with target.begin(stream) as work:
        work.commit(first)
        other.begin_transaction()
        other.produce(progress, b"", b"another", 0)
        other.flush()
        work.commit(second)

    monkeypatch.setattr(module, "_SWEEP", 0.0)
    with target.begin(stream) as work:
        with pytest.raises(ConnectionLostError, match="a writer of another stream is open in it"):
            work.progress()  # what is before the open transaction is not all
        other.abort_transaction(30)
        assert work.progress() == second


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_each_change_is_there_once_when_the_broker_dies(fake_binlog: FakeBinlog, kafka_server: KafkaServer, topic: str) -> None:
    table = fake_binlog.table("shop", "o", "id INT PRIMARY KEY")
    for key in range(200):
        table.insert({"id": key})
    fake_binlog.end()
    commits = itertools.count(1)

    def at(point: str) -> None:
        if point == "before" and next(commits) == 4:
            kafka_server.kill()
            kafka_server.start()

    target = target_suite.Faulty(KafkaTarget(kafka_server.servers, topic=topic), at)
    with life(fake_binlog, target, batch_size=20, on_error=canal.Retry(first=0.05)) as pipe:
        pipe.run()

    keys = [json.loads(one.key())["id"] for one in kafka_log(kafka_server.servers, topic)]
    assert sorted(keys) == list(range(200))
