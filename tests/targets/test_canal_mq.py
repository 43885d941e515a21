"""canal's routes to a broker: canal itself says where a change goes, and what it takes for something else is refused."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs
import pytest

import canal
from canal.changes import Change, Op, Table
from canal.changes.change import Origin
from canal.errors import ConfigError, UnfitChangeError
from canal.formats import CanalJson
from canal.schema import column_from_text
from canal.server.configuration.canal_files import CanalFiles
from canal.server.configuration.canal_mq import ROUTES
from canal.targets import CanalMQ, KafkaTarget, RabbitMQTarget, RocketMQTarget
from canal.targets.messages import halves
from tests.support.documents import ROOT
from tests.support.fix_canal_java import CanalJava

_COLUMNS = (("id", "int"), ("name", "varchar(40)"), ("Amount", "decimal(9,2)"))


def table(source: str, keys: tuple[str, ...] = ("id",)) -> Table:
    columns = (column_from_text(name, kind, charset="utf8mb4") for name, kind in _COLUMNS)
    return Table(source, source, tuple(attrs.evolve(one, key=one.name in keys) for one in columns), keys)


def change(source: str, op: Op = Op.INSERT, keys: tuple[str, ...] = ("id",), **row: Any) -> Change:
    known = table(source, keys)
    made = known.row(row)
    before, after = (made, None) if op is Op.DELETE else (None, made)
    return Change(known, op, before, after, Origin("u:1", "b:1", 0), 0)


def rows(count: int) -> Iterator[Change]:
    """Tables and rows of many kinds, the same in each run."""
    draw = random.Random(7)
    texts = ("", "a", "Ünïcode", "汉字", "😀 beyond", "polygenelubricants", "x" * 40)
    for _ in range(count):
        source = draw.choice(("shop.orders", "shop.Users", "SHOP2.orders", "crm.customer_7", "other.t", "shop.orders_1"))
        keys = draw.choice((("id",), ("id", "name"), (), ("Amount",)))
        op = draw.choice((Op.INSERT, Op.DELETE))
        number, name, amount = draw.randrange(-(1 << 31), 1 << 31), draw.choice((None, *texts)), draw.choice((None, "1.50"))
        yield change(source, op, keys, id=number, name=name, Amount=amount)


_GRAMMARS = [
    {},
    {"partition_hash": r".*\..*:$pk$", "partitions": 7},
    {"partition_hash": r".*\..*:$PK$", "partitions": 7, "database_hash": False},
    {"partition_hash": r"shop.orders:id^name,shop\.u.*:name;.*\..*", "partitions": 5},
    {"partition_hash": "SHOP.ORDERS:ID^name,shop.users:amount^Amount,crm.customer_7", "partitions": 4},
    {"partition_hash": r"shop\..*:id^id^name", "partitions": 6, "database_hash": False},
    {"partition_hash": "shop.orders", "partitions": 3},
    {"dynamic_topic": r"shop.orders,crm\..*;other"},
    {"dynamic_topic": r"first:shop\..*, second : crm ,.*"},
    {"dynamic_topic": r"a.b:shop2,shop\..*_1,SHOP.USERS,c:shop"},
    {"dynamic_topic": "t:shop.*", "topic": "my.topic"},
    {
        "dynamic_topic": r".*\..*",
        "partition_hash": r".*\..*:$pk$",
        "partitions": 2,
        "topic_partitions": "shop_orders:9,crm.*:4,Other_T:3",
    },
]


@pytest.mark.parametrize("grammar", _GRAMMARS, ids=repr)
def test_topics_and_partitions_are_canals(canal_java: CanalJava, grammar: dict[str, Any]) -> None:
    grammar = {"topic": "example"} | grammar
    mq, given, encode = CanalMQ(**grammar), list(rows(150)), CanalJson()

    theirs = canal_java.call("route", grammar=grammar, messages=[json.loads(encode(one)) for one in given])

    assert [[mq.topic_of(one), mq.partition_of(one)] for one in given] == theirs


def test_statements_go_to_the_first_partition_and_without_a_hash_all_to_the_one_that_is_named() -> None:
    statement = Change(Table("shop.o", "shop.o"), Op.ALTER, None, None, Origin("u:1", "b:1", 0), 0, sql="ALTER …")

    assert CanalMQ(topic="t", partition_hash=r".*\..*", partitions=99).partition_of(statement) == 0
    assert CanalMQ(topic="t", partition=5).partition_of(statement) == 5
    nowhere = Change(Table("", ""), Op.QUERY, None, None, statement.origin, 0)
    assert CanalMQ(topic="t", dynamic_topic=".*").topic_of(nowhere) == "t"


def test_an_update_that_changes_the_partition_is_a_deletion_there_and_an_insertion_here() -> None:
    mq = CanalMQ(topic="t", partition_hash="shop.o:name", partitions=50)
    known = table("shop.o")
    before, after = (known.row({"id": 1, "name": name, "Amount": None}) for name in ("a", "b"))
    moved = Change(known, Op.UPDATE, before, after, Origin("u:1", "b:1", 0), 0)

    parts = [(one.op, mq.partition_of(one), key) for one, key in halves(moved, mq.key_of)]

    assert parts == [
        (Op.DELETE, mq.partition_of(change("shop.o", id=1, name="a")), b'{"id":1,"name":"a"}'),
        (Op.INSERT, mq.partition_of(change("shop.o", id=1, name="b")), b'{"id":1,"name":"b"}'),
    ]
    assert parts[0][1] != parts[1][1]


def test_what_a_partial_image_lacks_is_of_the_other_one_or_an_error() -> None:
    mq = CanalMQ(topic="t", partition_hash="shop.o:name", partitions=50)
    known = table("shop.o")
    before = known.row({"id": 1, "name": "a", "Amount": None})
    partial = known.row({"id": 1, "name": canal.ABSENT, "Amount": "1.00"})
    origin = Origin("u:1", "b:1", 0)

    (half,) = halves(Change(known, Op.UPDATE, before, partial, origin, 0), mq.key_of)

    assert mq.partition_of(half[0]) == mq.partition_of(change("shop.o", id=1, name="a"))
    with pytest.raises(UnfitChangeError, match="not in the row image"):
        mq.partition_of(Change(known, Op.INSERT, None, partial, origin, 0))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"partition_hash": "a.b:id, c.d:id"}, "has a blank"),
        ({"partition_hash": "a.b:id ^name"}, "without blanks"),
        ({"partition_hash": "a.b:"}, "like schema.table:column"),
        ({"partition_hash": r"a_\d{1,2}\..*"}, "cuts the list"),
        ({"dynamic_topic": "a.b, c.d"}, "has a blank"),
        ({"dynamic_topic": ":a.b"}, "no topic"),
        ({"dynamic_topic": "("}, "no regular expression"),
        ({"topic_partitions": "t:many"}, "like topic:4"),
        ({"topic_partitions": "t:0"}, "like topic:4"),
        ({"partitions": 0}, "more than 0"),
        ({"partition": -1}, "at least 0"),
    ],
)
def test_what_canal_would_take_for_something_else_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        CanalMQ(topic="t", **options)


OWN = "canal.instance.master.address=db:3306\n"


def conf(folder: Path, own: str, server: str = "") -> canal.server.DirectorySource:
    (folder / "shop").mkdir()
    (folder / "shop/instance.properties").write_text(OWN + own)
    (folder / "canal.properties").write_text(server)
    return canal.server.DirectorySource(folder, environ={"TOPICS": "2"})


def test_the_routes_are_read_from_canals_files(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    own = "\n".join(
        (
            "canal.mq.topic=example",
            r"canal.mq.dynamicTopic=mytest1.user,topic2:mytest2\\..*,.*\\..*",
            "canal.mq.partition=0",
            "canal.mq.partitionsNum=${TOPICS}",
            "canal.mq.dynamicTopicPartitionNum=test.*:4,mycanal:6",
            r"canal.mq.partitionHash=test.table:id^name,.*\\..*",
        )
    )
    server = "canal.mq.database.hash = false\ncanal.mq.flatMessage = true\ncanal.mq.canalBatchSize = 50\nkafka.acks = all\n"

    with caplog.at_level("INFO", "canal"):
        found = conf(tmp_path, own, server).mq("shop")

    assert found == CanalMQ(
        topic="example",
        dynamic_topic=r"mytest1.user,topic2:mytest2\..*,.*\..*",
        partitions=2,
        topic_partitions="test.*:4,mycanal:6",
        partition_hash=r"test.table:id^name,.*\..*",
        database_hash=False,
    )
    for key in ("canal.mq.canalBatchSize", "kafka.acks", "canal.mq.flatMessage"):
        assert f"{key} is not among the routes: " in caplog.text


def piped(folder: Path, server: str) -> Any:
    own = "canal.mq.topic=t\ncanal.mq.partitionHash=.*\\\\..*:$pk$\ncanal.mq.partitionsNum=3\n"
    return conf(folder, own, server).files.pipe("shop")


def shown(target: Any) -> dict[str, Any]:
    """Its options; of a method whose it is and what it is called, of an encoder its class."""
    options = {field.name: getattr(target, field.name) for field in attrs.fields(type(target))}
    return {"kind": type(target)} | {
        name: (value.__self__, value.__name__) if hasattr(value, "__self__") else type(value) if name == "encode" else value
        for name, value in options.items()
    }


def test_the_server_mode_names_the_target_of_canal_run(tmp_path: Path) -> None:
    mq = CanalMQ(topic="t", partition_hash=r".*\..*:$pk$", partitions=3)
    texts = {
        "": "",
        "tcp": "kafka.bootstrap.servers=k:9092",
        "kafka": "kafka.bootstrap.servers=k:9092\nkafka.compression.type=zstd\nkafka.max.request.size=1048576\nkafka.acks=1",
        "rocketMQ": "rocketmq.namesrv.addr=n:9876\nrocketmq.producer.group=g\nrocketmq.tag=x\ncanal.aliyun.accessKey=a\n"
        "canal.aliyun.secretKey=b",
        "rabbitMQ": "rabbitmq.host=r:5673\nrabbitmq.virtual.host=/\nrabbitmq.exchange=e\nrabbitmq.username=u\n"
        "rabbitmq.password=p@w",
    }
    found: dict[str, Any] = {}
    for number, (mode, text) in enumerate(texts.items()):
        (tmp_path / f"{number}").mkdir()
        found[mode] = piped(tmp_path / f"{number}", f"canal.serverMode={mode}\n{text}\n")

    assert (found[""], found["tcp"]) == (None, None)
    routes: dict[str, Any] = {"key": mq.key_of, "partition": mq.partition_of, "encode": CanalJson()}
    wanted = {
        "kafka": KafkaTarget(
            "k:9092", topic=mq.topic_of, producer={"compression.type": "zstd", "message.max.bytes": "1048576"}, **routes
        ),
        "rocketMQ": RocketMQTarget("n:9876", topic=mq.topic_of, group="g", tag="x", access_key="a", secret_key="b", **routes),
        "rabbitMQ": RabbitMQTarget("amqp://u:p%40w@r:5673/%2F", exchange="e", routing_key=mq.topic_of, encode=CanalJson()),
    }
    for mode, target in wanted.items():
        assert found[mode]["rules"] == []
        assert shown(found[mode]["target"]) == shown(target)


@pytest.mark.parametrize(
    ("server", "message"),
    [
        ("canal.serverMode=pulsarMQ", "tcp, kafka, rocketMQ or rabbitMQ here.*TOML"),
        ("canal.serverMode=kafka", "kafka.bootstrap.servers is not set"),
        ("canal.serverMode=kafka\nkafka.bootstrap.servers=k:1\nkafka.kerberos.enable=true", "kerberos.enable has no equal"),
        ("canal.serverMode=rocketMQ\nrocketmq.namesrv.addr=n:1\nrocketmq.namespace=x", "namespace has no equal"),
    ],
)
def test_a_server_mode_without_an_equal_is_refused(tmp_path: Path, server: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        piped(tmp_path, server)


@pytest.mark.parametrize(
    ("own", "message"),
    [
        ("canal.mq.topic=t\ncanal.mq.flatMessage=false", "protobuf"),
        ("canal.mq.topic=t\ncanal.mq.enableDynamicQueuePartition=true", "partitionsNum"),
        ("canal.mq.topic=t\ncanal.mq.dynamicTopics=a", "Did you mean canal.mq.dynamicTopic"),
        ("canal.mq.topic=t\ncanal.mq.partitionsNum=x", "is a number"),
        ("canal.mq.topic=t\ncanal.mq.database.hash=1", "true or false"),
        ("canal.mq.partition=0", "canal.mq.topic is not set"),
    ],
)
def test_keys_that_have_no_equal_are_refused(tmp_path: Path, own: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        conf(tmp_path, own).mq("shop")


def test_each_key_of_canals_brokers_maps_or_has_a_reason() -> None:
    keys = (ROOT / "tests/server/configuration/canal_keys.txt").read_text().split()
    ours = [key for key in keys if key.startswith(("canal.mq.", "kafka.", "rabbitmq.", "rocketmq.", "pulsarmq."))]
    text = "\n".join(f"{key}=1" for key in ours if key not in ROUTES)

    notes = CanalFiles("", {"shop": f"{OWN}canal.mq.topic=t\n{text}"}, environ={}).mq_notes("shop")

    assert len(ours) > 50
    assert {*ROUTES, *notes} >= set(ours)
