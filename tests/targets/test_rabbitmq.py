"""RabbitMQ beyond the suite: what messages look like, what no queue takes, sizes, and a broker that dies."""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import pytest

import canal
from canal.errors import ConnectionLostError, TargetError, TargetSchemaError, UnfitChangeError
from canal.targets import JSONLinesTarget, RabbitMQTarget
from canal.testing import FakeBinlog, target_suite
from tests.support.harnesses import rabbitmq_queue
from tests.support.target_servers import RabbitMQServer

pika = pytest.importorskip("pika")
_numbers = itertools.count(random.randrange(1 << 30))


@pytest.fixture
def queue() -> str:
    return f"q{next(_numbers)}"


@contextmanager
def channel(server: RabbitMQServer) -> Iterator[Any]:
    with closing(pika.BlockingConnection(pika.URLParameters(server.url))) as connection:
        yield connection.channel()


def follow(fake: FakeBinlog, target: Any, **options: Any) -> None:
    fake.end()
    config = canal.InstanceConfig(destination=f"d{next(_numbers)}", source=fake, start="earliest")
    with canal.Instance(config) as instance:
        instance.subscribe()
        canal.pipe(instance, target, **{"on_error": "stop", **options}).run()


def test_messages_are_persistent_and_have_the_id_of_their_change(
    fake_binlog: FakeBinlog, rabbitmq_server: RabbitMQServer, queue: str
) -> None:
    with channel(rabbitmq_server) as made:
        made.exchange_declare(queue, "topic")
        made.queue_declare(queue, durable=True)
        made.queue_bind(queue, queue, "cdc.shop.*")
    table = fake_binlog.table("shop", "o", "id INT PRIMARY KEY")
    table.insert({"id": 1})
    table.update({"id": 1}, {"id": 2})
    target = RabbitMQTarget(
        rabbitmq_server.url, exchange=queue, routing_key="cdc.{schema}.{table}", headers=lambda change: {"op": change.op.name}
    )

    follow(fake_binlog, target)

    messages = rabbitmq_queue(rabbitmq_server.url, queue)
    assert [json.loads(body)["after"]["id"] for _, body in messages] == [1, 2]
    assert [one.message_id for one, _ in messages] == [json.loads(body)["id"] for _, body in messages]
    assert [(one.delivery_mode, one.content_type, one.headers["op"]) for one, _ in messages] == [
        (2, "application/json", b"INSERT"),
        (2, "application/json", b"UPDATE"),
    ]


def test_what_no_queue_takes_is_an_error(fake_binlog: FakeBinlog, rabbitmq_server: RabbitMQServer, queue: str) -> None:
    fake_binlog.table("shop", "o", "id INT PRIMARY KEY").insert({"id": 1})
    with channel(rabbitmq_server) as made:
        made.exchange_declare(queue)
        made.queue_declare(f"{queue}-other", durable=False)
    for options, error in (
        ({"exchange": queue}, f"the exchange '{queue}' of .* has no queue for messages with the routing key 'shop.o'"),
        ({"exchange": f"{queue}-missing"}, "NOT_FOUND - no exchange"),
        ({"routing_key": f"{queue}-other"}, "PRECONDITION_FAILED - inequivalent arg 'durable'"),
        ({"routing_key": "x" * 256}, "must be UTF-8 of 255 bytes at most"),
        ({"routing_key": queue, "queues": None}, "the exchange '' of .* has no queue"),
    ):
        with pytest.raises(TargetSchemaError, match=error):
            follow(fake_binlog, RabbitMQTarget(rabbitmq_server.url, **options))


def test_a_message_that_a_queue_refuses_is_an_error(fake_binlog: FakeBinlog, rabbitmq_server: RabbitMQServer, queue: str) -> None:
    table = fake_binlog.table("shop", "o", "id INT PRIMARY KEY")
    with fake_binlog.transaction():
        for key in range(3):
            table.insert({"id": key})
    full = {"x-max-length": 1, "x-overflow": "reject-publish"}

    with pytest.raises(TargetError, match="could not keep 2 messages"):
        follow(fake_binlog, RabbitMQTarget(rabbitmq_server.url, routing_key=queue, queues=full))


def test_what_is_too_large_is_parked(fake_binlog: FakeBinlog, rabbitmq_server: RabbitMQServer, queue: str, tmp_path: Any) -> None:
    table = fake_binlog.table("shop", "o", "id INT PRIMARY KEY, t TEXT")
    with fake_binlog.transaction():
        for key, size in enumerate([1, 3000, 1]):
            table.insert({"id": key, "t": "x" * size})
    target = RabbitMQTarget(rabbitmq_server.url, routing_key=queue, max_bytes=2000)

    with pytest.raises(UnfitChangeError, match="of shop.o is larger than max_bytes"):
        follow(fake_binlog, target)
    assert rabbitmq_queue(rabbitmq_server.url, queue) == []
    follow(fake_binlog, target, on_unfit=JSONLinesTarget(tmp_path / "parked"))

    assert [json.loads(body)["key"]["id"] for _, body in rabbitmq_queue(rabbitmq_server.url, queue)] == [0, 2]


def test_a_server_that_cannot_be_used_is_an_error(rabbitmq_server: RabbitMQServer) -> None:
    url = rabbitmq_server.url
    for bad, kind, error in (
        (url.replace("guest:guest", "guest:wrong"), TargetError, "refuses the user"),
        (url.replace("%2F", "nowhere"), TargetError, "refuses"),
        ("amqp://127.0.0.1:1", ConnectionLostError, "broke"),
        ("amqp://127.0.0.1:x", canal.ConfigError, "bad URL"),
    ):
        with pytest.raises(kind, match=error) as caught, RabbitMQTarget(bad).begin("x"):
            pass
        assert "guest" not in f"{caught.value}"
    with pytest.raises(canal.ConfigError, match="routing_key"):
        RabbitMQTarget(url, routing_key="{no}")


def test_no_change_is_lost_when_the_broker_dies(fake_binlog: FakeBinlog, rabbitmq_server: RabbitMQServer, queue: str) -> None:
    table = fake_binlog.table("shop", "o", "id INT PRIMARY KEY")
    for key in range(100):
        table.insert({"id": key})
    commits = itertools.count(1)

    def at(point: str) -> None:
        if point == "before" and next(commits) == 4:
            rabbitmq_server.kill()
            rabbitmq_server.start()

    target = target_suite.Faulty(RabbitMQTarget(rabbitmq_server.url, routing_key=queue), at)
    follow(fake_binlog, target, batch_size=10, on_error=canal.Retry(first=0.05))

    firsts = {one.message_id: json.loads(body) for one, body in reversed(rabbitmq_queue(rabbitmq_server.url, queue))}
    assert sorted(message["key"]["id"] for message in firsts.values()) == list(range(100))
