"""RocketMQ beyond the suite: which message goes where, what its own client reads, what is refused, and a broker that dies."""

from __future__ import annotations

import itertools
import json
import random
import shutil
import socket
import ssl
import subprocess
import threading
from collections import defaultdict
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import canal
from canal.errors import ConnectionLostError, TargetError, TargetSchemaError, UnfitChangeError
from canal.formats import CanalJson
from canal.targets import CanalMQ, JSONLinesTarget, RocketMQTarget
from canal.targets import rocketmq as module
from canal.targets import rocketmq_wire as wire
from canal.targets.canal_mq import java_hash
from canal.testing import FakeBinlog, target_suite
from tests.support.harnesses import rocketmq_queue, rocketmq_topic
from tests.support.target_servers import RocketMQServer

_numbers = itertools.count(random.randrange(1 << 30))


@pytest.fixture
def topic() -> str:
    return f"t{next(_numbers)}"


def to(server: RocketMQServer, **options: Any) -> RocketMQTarget:
    account = {"access_key": "canal-writer", "secret_key": "12345678"}
    return RocketMQTarget(server.name_server, **{**account, "timeout": 20.0, **options})


def follow(fake: FakeBinlog, target: Any, **options: Any) -> None:
    fake.end()
    config = canal.InstanceConfig(destination=f"d{next(_numbers)}", source=fake, start="earliest")
    with canal.Instance(config) as instance:
        instance.subscribe()
        canal.pipe(instance, target, **{"on_error": "stop", **options}).run()


def queues(target: RocketMQTarget, topic: str) -> dict[int, list[Any]]:
    with module.Cluster(target) as cluster:
        return {queue.number: list(rocketmq_queue(cluster, topic, queue)) for queue in cluster.route(topic)}


def test_a_key_has_its_queue_and_one_that_changes_is_deleted_under_the_old_one(
    fake_binlog: FakeBinlog, rocketmq_server: RocketMQServer, topic: str
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
    target = to(rocketmq_server, topic=topic)

    follow(fake_binlog, target, batch_size=50)

    state: dict[str, Any] = {}
    found = defaultdict(set)
    for number, messages in queues(target, topic).items():
        for properties, body in messages:
            value = json.loads(body)
            key = properties["__SHARDINGKEY"]
            state[key] = value["after"]
            found[key].add(number)
            assert properties["id"] == properties["KEYS"] == value["id"]
    assert {key: row for key, row in state.items() if row is not None} == {f'{{"id":{key}}}': row for key, row in rows.items()}
    assert {len(numbers) for numbers in found.values()} == {1}
    assert {number for numbers in found.values() for number in numbers} == {0, 1, 2, 3}


def test_several_batches_of_a_queue_are_in_the_order_of_the_log(
    fake_binlog: FakeBinlog, rocketmq_server: RocketMQServer, topic: str
) -> None:
    table = fake_binlog.table("shop", "o", "id INT PRIMARY KEY, n INT, t TEXT")
    with fake_binlog.transaction():
        table.insert({"id": 1, "n": 0, "t": "x"})
        for n in range(1, 400):
            table.update({"id": 1, "n": n - 1, "t": "x"}, {"id": 1, "n": n, "t": "x" * 9000})
    target = to(rocketmq_server, topic=topic)

    follow(fake_binlog, target, batch_size=1000)

    log = [json.loads(body)["after"]["n"] for _, body in rocketmq_topic(target, topic)]
    assert log == list(range(400))


def test_repeats_have_the_same_message_id(fake_binlog: FakeBinlog, rocketmq_server: RocketMQServer, topic: str) -> None:
    table = fake_binlog.table("shop", "o", "id INT PRIMARY KEY")
    for key in range(9):
        table.insert({"id": key})
    target = to(rocketmq_server, topic=topic)

    follow(fake_binlog, target)
    follow(fake_binlog, target)

    found = defaultdict(list)
    for properties, body in rocketmq_topic(target, topic):
        found[properties["UNIQ_KEY"]].append(body)
    assert len(found) == 9
    assert {len(bodies) for bodies in found.values()} == {2}
    assert all(one == two for one, two in found.values())


def test_routes_of_canal_and_a_queue_that_there_is_not(
    fake_binlog: FakeBinlog, rocketmq_server: RocketMQServer, topic: str
) -> None:
    mq = CanalMQ(topic=topic, partition_hash="shop.orders:n", partitions=3)
    table = fake_binlog.table("shop", "orders", "id INT PRIMARY KEY, n INT")
    for key in range(9):
        table.insert({"id": key, "n": key})
    routes: dict[str, Any] = {"topic": mq.topic_of, "key": mq.key_of, "partition": mq.partition_of, "encode": CanalJson()}
    target = to(rocketmq_server, **routes)

    follow(fake_binlog, target)

    hashed, count = java_hash("shop"), 0
    for number, messages in queues(target, topic).items():
        for _, body in messages:
            count += 1
            assert number == abs(hashed ^ java_hash(json.loads(body)["data"][0]["n"])) % 3
    assert count == 9
    with pytest.raises(TargetSchemaError, match="has 4 queues, and partition gave 7"):
        follow(fake_binlog, to(rocketmq_server, topic=topic, partition=lambda change: 7))


def test_its_own_client_reads_the_messages(
    fake_binlog: FakeBinlog, rocketmq_server: RocketMQServer, topic: str, tmp_path: Path
) -> None:
    if shutil.which("javac") is None:
        pytest.skip("needs a Java compiler")
    table = fake_binlog.table("shop", "o", "id INT PRIMARY KEY, name VARCHAR(20)")
    for key in range(40):
        table.insert({"id": key, "name": "Ünïcode 🙂"})
    table.delete({"id": 0, "name": "Ünïcode 🙂"})
    follow(fake_binlog, to(rocketmq_server, topic=topic, tag=lambda change: change.op.name))

    jars = f"{rocketmq_server.programs()[0]}/*"
    words = (rocketmq_server.name_server, topic, "INSERT", "40")
    java = ["java", "-Xmx128m", f"-Duser.home={tmp_path}", "-cp", jars, str(Path(__file__).with_name("Read.java")), *words]
    done = subprocess.run(java, capture_output=True, text=True, timeout=200)

    lines = [line.split("\t") for line in done.stdout.splitlines() if line.count("\t") == 6]
    assert sorted(json.loads(body)["after"]["id"] for *_, body in lines) == list(range(40)), done.stderr[-2000:]
    for _, message, keys, tag, identity, group, body in lines:
        value = json.loads(body)
        assert (keys, identity, tag) == (value["id"], value["id"], "INSERT")
        assert group == f'{{"id":{value["after"]["id"]}}}'
        assert value["after"]["name"] == "Ünïcode 🙂"
        assert len(message) == 32
    assert len({line[1] for line in lines}) == 40
    assert len({line[0] for line in lines}) > 1


def test_names_tags_and_headers_are_as_they_are_asked_for(
    fake_binlog: FakeBinlog, rocketmq_server: RocketMQServer, topic: str
) -> None:
    fake_binlog.table("shop", "o", "id INT PRIMARY KEY, buyer VARCHAR(9)").insert({"id": 1, "buyer": "é"})
    fake_binlog.table("shop", "log", "n INT").insert({"n": 5})
    target = to(
        rocketmq_server,
        topic=f"{topic}-{{name}}",
        tag="{table}",
        key=lambda table, row: row["buyer"] if table.keys else None,
        headers=lambda change: {"op": change.op.name},
        encode=lambda change: change.table.source,
    )

    follow(fake_binlog, target)

    ((properties, body),) = rocketmq_topic(target, f"{topic}-shop_o")
    assert (properties["TAGS"], properties["op"], properties["__SHARDINGKEY"], body) == ("o", "INSERT", "é", b"shop.o")
    ((properties, body),) = rocketmq_topic(target, f"{topic}-shop_log")
    assert (properties["TAGS"], properties.get("__SHARDINGKEY"), body) == ("log", None, b"shop.log")


@pytest.mark.parametrize(
    ("options", "kind", "error"),
    [
        ({"topic": "no name"}, TargetSchemaError, "'no name' is no name of a topic"),
        ({"headers": lambda change: {"KEYS": "a b"}}, canal.ConfigError, "'KEYS' cannot be the name of a header"),
        ({"headers": lambda change: {"id": "other"}}, canal.ConfigError, "'id' cannot be the name of a header"),
        ({"headers": lambda change: {"one": "a\x02TAGS\x01b"}}, UnfitChangeError, "has a character below"),
        ({"headers": lambda change: {"one": b"\xff"}}, UnfitChangeError, "has no UTF-8"),
        ({"headers": lambda change: {"one": "x" * 33_000}}, UnfitChangeError, "more than 32767 bytes of properties"),
        ({"key": lambda table, row: b"\xff"}, UnfitChangeError, "has no UTF-8"),
        ({"secret_key": "12345679"}, TargetError, "refuses messages .* signature"),
        ({"access_key": "canal-reader"}, TargetError, r"refuses messages .*: No default permission for topic:t\d+ \(code 1\)"),
        ({"access_key": "", "secret_key": ""}, TargetError, r"refuses messages .*: No accessKey is configured \(code 1\)"),
        ({"topic": "%RETRY%x"}, TargetError, "refuses messages|no topic"),
    ],
)
def test_what_cannot_be_sent_is_an_error(
    fake_binlog: FakeBinlog, rocketmq_server: RocketMQServer, topic: str, options: Any, kind: Any, error: str
) -> None:
    fake_binlog.table("shop", "o", "id INT PRIMARY KEY").insert({"id": 1})

    with pytest.raises(kind, match=error) as caught:
        follow(fake_binlog, to(rocketmq_server, **{"topic": topic, **options}))

    assert "1234567" not in str(caught.value)
    assert rocketmq_topic(to(rocketmq_server), topic) == []


def test_options_that_cannot_be_are_an_error() -> None:
    for options in (
        {"name_servers": "nowhere"},
        {"name_servers": ""},
        {"topic": "{no}"},
        {"tag": "{no}"},
        {"timeout": 0},
        {"queues": 0},
        {"access_key": "alone"},
    ):
        with pytest.raises(canal.ConfigError):
            RocketMQTarget(**{"name_servers": "localhost:9876", **options})  # type: ignore[arg-type]
    assert "secret" not in repr(RocketMQTarget("localhost:9876", access_key="a", secret_key="secret"))


def test_what_is_too_large_is_parked(
    fake_binlog: FakeBinlog, rocketmq_server: RocketMQServer, topic: str, tmp_path: Path
) -> None:
    table = fake_binlog.table("shop", "o", "id INT PRIMARY KEY, t LONGTEXT")
    with fake_binlog.transaction():
        for key, size in enumerate([1, 3000, 1]):
            table.insert({"id": key, "t": "x" * size})
    target = to(rocketmq_server, topic=topic, max_bytes=2000)

    with pytest.raises(UnfitChangeError, match="of shop.o is larger than max_bytes"):
        follow(fake_binlog, target)
    assert rocketmq_topic(target, topic) == []
    follow(fake_binlog, target, on_unfit=JSONLinesTarget(tmp_path / "parked"))

    assert sorted(json.loads(body)["key"]["id"] for _, body in rocketmq_topic(target, topic)) == [0, 2]


def test_what_the_broker_finds_too_large_is_an_error(
    fake_binlog: FakeBinlog, rocketmq_server: RocketMQServer, topic: str
) -> None:
    fake_binlog.table("shop", "o", "id INT PRIMARY KEY, t LONGTEXT").insert({"id": 1, "t": "x" * (5 << 20)})

    with pytest.raises(TargetSchemaError, match=r"refuses messages .*: message body size exceeded \(code 1\)"):
        follow(fake_binlog, to(rocketmq_server, topic=topic, max_bytes=8 << 20))


def test_messages_go_through_tls(fake_binlog: FakeBinlog, rocketmq_server: RocketMQServer, topic: str) -> None:
    fake_binlog.table("shop", "o", "id INT PRIMARY KEY").insert({"id": 1})
    trusting = ssl.create_default_context()
    trusting.check_hostname, trusting.verify_mode = False, ssl.CERT_NONE

    follow(fake_binlog, to(rocketmq_server, topic=topic, tls=trusting))

    assert len(rocketmq_topic(to(rocketmq_server), topic)) == 1
    with pytest.raises(ConnectionLostError, match="broke: SSLCertVerificationError"):
        follow(fake_binlog, to(rocketmq_server, topic=topic, tls=True))


def test_a_connection_that_was_long_unused_is_opened_anew(
    rocketmq_server: RocketMQServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    with module.Cluster(to(rocketmq_server)) as cluster:
        first = cluster.broker(rocketmq_server.name_server)
        assert cluster.broker(rocketmq_server.name_server) is first
        monkeypatch.setattr(wire, "_IDLE", 0.0)

        assert cluster.route("TBW102")

        assert first.is_over()
        assert cluster.broker(rocketmq_server.name_server) is not first


@pytest.mark.parametrize(
    ("answer", "kind", "error"),
    [
        (b"", ConnectionLostError, "broke: ConnectionResetError"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", TargetError, "does not speak the remoting protocol"),
        (b"\0\0\0\x06\0\0\0\x02{]", TargetError, "does not speak the remoting protocol"),
    ],
)
def test_a_name_server_that_is_none_is_an_error(answer: bytes, kind: Any, error: str) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as server:

        def serve() -> None:
            with closing(server.accept()[0]) as connection:
                connection.recv(10_000)
                connection.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        address = f"127.0.0.1:{server.getsockname()[1]}"
        with pytest.raises(kind, match=error), RocketMQTarget(address, timeout=5).begin("x"):
            pass
        thread.join()


def test_another_name_server_is_asked_where_one_is_not_there(rocketmq_server: RocketMQServer) -> None:
    with RocketMQTarget(f"127.0.0.1:1;{rocketmq_server.name_server}").begin("x"):
        pass
    with pytest.raises(ConnectionLostError, match="ConnectionRefusedError"), RocketMQTarget("127.0.0.1:1").begin("x"):
        pass


def test_routes_of_old_name_servers_are_read() -> None:
    body = (
        b'{"brokerDatas":[{"brokerAddrs":{0:"10.0.0.1:10911",1:"10.0.0.2:10911"},"brokerName":"b","cluster":"c"},'
        b'{"brokerAddrs":{1:"10.0.0.3:10911"},"brokerName":"a","cluster":"c"}],"filterServerTable":{},'
        b'"queueDatas":[{"brokerName":"b","perm":6,"readQueueNums":2,"topicSysFlag":0,"writeQueueNums":2},'
        b'{"brokerName":"a","perm":6,"readQueueNums":2,"topicSysFlag":0,"writeQueueNums":2}]}'
    )

    found = wire.queues_of(wire.Answer(0, "", {}, body))

    assert found == [wire.Queue("b", 0, "10.0.0.1:10911"), wire.Queue("b", 1, "10.0.0.1:10911")]
    assert wire.queues_of(wire.Answer(0, "", {}, body.replace(b'"perm":6', b'"perm":4'))) == []


def test_no_change_is_lost_when_the_broker_dies(fake_binlog: FakeBinlog, rocketmq_server: RocketMQServer, topic: str) -> None:
    table = fake_binlog.table("shop", "o", "id INT PRIMARY KEY")
    for key in range(100):
        table.insert({"id": key})
    commits = itertools.count(1)

    def at(point: str) -> None:
        if point == "before" and next(commits) == 4:
            rocketmq_server.kill()
            rocketmq_server.start()

    target = to(rocketmq_server, topic=topic)
    follow(fake_binlog, target_suite.Faulty(target, at), batch_size=10, on_error=canal.Retry(first=0.05, longest=2.0))

    found = {properties["id"]: json.loads(body) for properties, body in rocketmq_topic(target, topic)}
    assert sorted(value["key"]["id"] for value in found.values()) == list(range(100))
