"""``canal check`` of a target: what it finds of real servers, that what it names mends it, and that it changes nothing."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import random
import re
import sqlite3
import threading
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any, ClassVar

import pytest

import canal
from canal._util.findings import Finding
from canal.cli.main import main
from canal.targets import (
    HTTPTarget,
    KafkaTarget,
    MongoDBTarget,
    MySQLTarget,
    OpenSearchTarget,
    PostgreSQLTarget,
    RabbitMQTarget,
    RedisTarget,
    RocketMQTarget,
    SQLiteTarget,
)
from canal.targets.look import look
from canal.targets.looks import _missing
from canal.testing import FakeBinlog
from canal.testing.servers import ThrowawayServer
from tests.support.target_servers import (
    FerretDBServer,
    KafkaServer,
    OpenSearchServer,
    PostgreSQLServer,
    RabbitMQServer,
    RedisCluster,
    RedisServer,
    RocketMQServer,
)

_numbers = itertools.count(random.randrange(1 << 30))


def wrong(target: Any, tables: Sequence[str] = (), stream: str = "s") -> dict[str, Finding]:
    return {one.what: one for one in look(target, stream, tables) if one.level == "error"}


def statement(found: Finding) -> str:
    return re.search(r"(GRANT|ALTER) .*?;", found.remedy)[0]  # type: ignore[index]


def progress(target: Any, stream: str) -> str:
    return next(one.text for one in look(target, stream) if one.what == "progress")


def follow(fake: FakeBinlog, target: Any, stream: str) -> None:
    fake.table("shop", stream, "id INT PRIMARY KEY").insert({"id": 1})
    fake.end()
    with canal.Instance(canal.InstanceConfig(destination="d", source=fake, start="earliest")) as instance:
        instance.subscribe()
        canal.pipe(instance, target, stream=stream).run()


def test_postgresql(postgresql_server: PostgreSQLServer, fake_binlog: FakeBinlog) -> None:
    import psycopg

    user = f"u{next(_numbers)}"
    target = PostgreSQLTarget(postgresql_server.conninfo.replace("user=cdc", f"user={user}"), progress_table=f"p{user}")
    assert wrong(target)["target"].text.startswith("PostgreSQL")
    with psycopg.connect(postgresql_server.conninfo, autocommit=True) as admin:
        for sql in (f"CREATE USER {user}", f"CREATE SCHEMA s{user}", f"CREATE TABLE s{user}.t (id int)"):
            admin.execute(sql.encode())
        names = [f"s{user}.t", f"s{user}.new", f"other{user}.t"]
        found = wrong(target, names)
        assert found.keys() == {f"p{user}", *names}
        assert found[names[0]].text == f"the user lacks USAGE on the schema s{user}."

        while found:
            before = list(found.values())
            for one in before:
                admin.execute(statement(one).encode())
            found = wrong(target, names)
            assert list(found.values()) != before

        admin.execute(f"REVOKE INSERT ON s{user}.t FROM {user}".encode())
        assert wrong(target, names)[names[0]].remedy == f"GRANT INSERT ON s{user}.t TO {user};"
        admin.execute(f"GRANT INSERT ON s{user}.t TO {user}".encode())
        assert [one.level for one in look(target, "s", names) if one.what == names[0]] == ["ok", "warning"]
        follow(fake_binlog, target, f"t{user}")
        assert progress(target, f"t{user}").startswith(f"t{user} is at ")


@pytest.mark.parametrize("kind", ["mariadb", "mysql"])
def test_mysql(kind: str, request: pytest.FixtureRequest, fake_binlog: FakeBinlog) -> None:
    server: ThrowawayServer = request.getfixturevalue(f"{kind}_server")
    user = f"u{next(_numbers)}"
    connect = {"host": server.host, "port": server.port, "user": user, "password": "secret"}
    target = MySQLTarget(connect, database=f"p{user}")
    assert "secret" not in str(wrong(target))
    server.query(f"CREATE USER {user}@'%' IDENTIFIED BY 'secret'")
    server.query("CREATE DATABASE IF NOT EXISTS shop")

    found = wrong(target, ["shop.orders"])
    assert found.keys() == {"shop", f"p{user}"}
    assert found["shop"].text == "the user lacks ALTER, CREATE, DELETE, INSERT, SELECT on the database shop."
    for one in found.values():
        server.query(statement(one).rstrip(";"))

    assert wrong(target, ["shop.orders"]) == {}
    follow(fake_binlog, target, f"t{user}")
    assert progress(target, f"t{user}").startswith(f"t{user} is at ")


def test_redis(redis_server: RedisServer, fake_binlog: FakeBinlog) -> None:
    import redis

    user = f"u{next(_numbers)}"
    target = RedisTarget(redis_server.url.replace("//", f"//{user}:secret@"), prefix=f"{user}:")
    assert wrong(target).keys() == {"target"}
    with redis.Redis.from_url(redis_server.url) as admin:
        rights = f"on >secret ~{user}:* +get +multi +discard +exec +unwatch +hset +scan +set +info +config|get"
        admin.execute_command("ACL", "SETUSER", user, *rights.split())
        found = wrong(target)["commands"]
        assert found.text == f"the user lacks WATCH, UNLINK on keys of {user}:*."

        admin.execute_command("ACL", "SETUSER", user, *re.findall(r"[+~]\S+", found.remedy))

        assert wrong(target) == {}
        assert not list(admin.scan_iter(match=f"{user}:*"))
        follow(fake_binlog, target, user)
        assert progress(target, user).startswith(f"{user} is at ")


def test_kafka(kafka_server: KafkaServer, fake_binlog: FakeBinlog) -> None:
    from confluent_kafka.admin import AclBinding, AclOperation, AclPermissionType, AdminClient, ResourcePatternType, ResourceType

    stream, denied = f"s{next(_numbers)}", f"d{next(_numbers)}"
    target = KafkaTarget(kafka_server.servers, progress_topic=f"p{stream}")
    assert wrong(target, [denied], stream) == {}
    admin = AdminClient({"bootstrap.servers": kafka_server.servers})
    kind = ResourceType.TOPIC, denied, ResourcePatternType.LITERAL
    rule = AclBinding(*kind, "User:ANONYMOUS", "*", AclOperation.WRITE, AclPermissionType.DENY)
    for future in admin.create_acls([rule]).values():
        future.result()
    follow(fake_binlog, target, stream)

    assert wrong(target, [denied], stream).keys() == {denied}
    assert progress(target, stream).startswith(f"{stream} is at ")
    assert wrong(KafkaTarget("127.0.0.1:1", timeout=1.0)).keys() == {"target"}


def test_a_look_at_kafka_shuts_no_writer_out(kafka_server: KafkaServer, fake_binlog: FakeBinlog) -> None:
    stream = f"s{next(_numbers)}"
    target = KafkaTarget(kafka_server.servers, progress_topic=f"p{stream}")
    with target.begin(stream) as work:
        work.progress()
        look(target, stream)
        work.commit(canal.targets.Progress(canal.Position("binlog.000001", 4)))


def test_opensearch(opensearch_server: OpenSearchServer) -> None:
    import httpx

    index = f"suite.i{next(_numbers)}"
    target = OpenSearchTarget(opensearch_server.url)
    assert wrong(target, [index]) == {}
    httpx.put(f"{opensearch_server.url}/{index}", json={"settings": {"index.blocks.write": True}}, timeout=60)

    assert "index.blocks.write" in wrong(target, [index])[index].text
    assert wrong(OpenSearchTarget("http://127.0.0.1:1")).keys() == {"target"}


#: What a cluster's security plugin answers to who may not.
_NO_RIGHT = "no permissions for [%s] and User [name=canal, backend_roles=[], requestedTenant=null]"


class Guarded(BaseHTTPRequestHandler):
    """An OpenSearch with the security plugin, as far as a look asks it: nothing may be done but what ``given`` says."""

    given: ClassVar[set[str]] = set()
    asked: ClassVar[list[tuple[str, str, bytes]]] = []

    def answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        path = self.path.partition("?")[0]
        self.asked.append((self.command, path, body))
        rights = {
            ("GET", "/"): "cluster:monitor/main",
            ("GET", "/_cluster/health"): "cluster:monitor/health",
            ("POST", "/_bulk"): "indices:data/write/bulk",
        }
        last = path.rpartition("/")[2]
        right = rights.get((self.command, path)) or {
            "_settings": "indices:monitor/settings/get",
            "_search": "indices:data/read/search",
        }.get(last, "indices:admin/create")
        if right not in self.given:
            self.say(403, {"error": {"type": "security_exception", "reason": _NO_RIGHT % right}, "status": 403})
        elif path == "/":
            self.say(200, {"version": {"distribution": "opensearch", "number": "2.19.1"}})
        elif path == "/_bulk":
            error = {"type": "security_exception", "reason": _NO_RIGHT % "indices:data/write/delete"}
            items = [{"index": {"status": 409}}, {"delete": {"status": 403, "error": error}}]
            if "indices:data/write/delete" in self.given:
                items[1] = {"delete": {"status": 409}}
            self.say(200, {"errors": True, "items": items})
        elif last == "_settings":
            self.say(200, {"canal": {"settings": {}}})
        else:
            self.say(200 if self.command == "GET" else 400, {"status": "green"})

    do_GET = do_PUT = do_POST = answer

    def say(self, status: int, document: Any) -> None:
        text = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def serving(handler: type[BaseHTTPRequestHandler]) -> Iterator[str]:
    with HTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_what_is_named_of_the_rights_of_opensearch_mends_it() -> None:
    Guarded.given, Guarded.asked = set(), []
    with serving(Guarded) as url:
        target = OpenSearchTarget(url)
        named: list[str] = []
        while found := wrong(target, ["shop.orders"]):
            rights = {right for one in found.values() for right in re.findall(r"(?:indices|cluster):[\w:/]+", one.remedy)}
            assert rights - Guarded.given, f"nothing new is named: {found}"
            named += sorted(rights - Guarded.given)
            Guarded.given |= rights

    assert set(named) == {
        "cluster:monitor/main",
        "indices:monitor/settings/get",
        "indices:data/write/bulk",
        "indices:data/write/delete",
        "indices:data/read/search",
        "indices:admin/create",
    }


def test_a_look_at_opensearch_changes_nothing(opensearch_server: OpenSearchServer) -> None:
    import httpx

    index, other = f"suite.i{next(_numbers)}", f"suite.i{next(_numbers)}"
    httpx.put(f"{opensearch_server.url}/{index}/_doc/canal_look?refresh=true", json={"n": 1}, timeout=60)

    assert wrong(OpenSearchTarget(opensearch_server.url), [index, other]) == {}
    found = httpx.get(f"{opensearch_server.url}/{index}/_search", timeout=60).json()["hits"]["hits"]
    assert [(hit["_id"], hit["_source"]) for hit in found] == [("canal_look", {"n": 1})]
    assert httpx.get(f"{opensearch_server.url}/{other}", timeout=60).status_code == 404


@pytest.mark.usefixtures("mongo_clients")
def test_mongodb(ferretdb_server: FerretDBServer, fake_binlog: FakeBinlog) -> None:
    stream = f"t{next(_numbers)}"
    target = MongoDBTarget(ferretdb_server.url, decimals="text")

    assert wrong(target, ["shop.orders"]) == {}
    follow(fake_binlog, target, stream)
    texts = [one.text for one in look(target, stream, [f"shop.{stream}"]) if one.what == "progress"]
    assert texts[0].startswith(f"{stream} is at ")
    assert [one.what for one in look(target, "s") if one.level == "warning"] == ["transactions"]
    assert wrong(MongoDBTarget(ferretdb_server.url, transactions=True)).keys() == {"server"}
    assert wrong(MongoDBTarget("mongodb://127.0.0.1:1", timeout=0.2)).keys() == {"target"}


def test_rights_of_mongodb() -> None:
    everywhere = {"resource": {"db": "", "collection": ""}, "actions": ["find"]}
    own = {"resource": {"db": "shop", "collection": ""}, "actions": ["insert", "remove"]}
    one = {"resource": {"db": "shop", "collection": "orders"}, "actions": ["update"]}
    cluster = {"resource": {"cluster": True}, "actions": ["insert"]}

    assert _missing([everywhere, own, one, cluster], "shop", "orders") == []
    assert _missing([everywhere, own, one, cluster], "shop", "other") == ["update"]
    assert _missing([everywhere, one, cluster], "crm", "orders") == ["insert", "remove", "update"]
    assert _missing([{"resource": {"anyResource": True}, "actions": ["anyAction"]}], "a", "b") == []


def test_rabbitmq(rabbitmq_server: RabbitMQServer) -> None:
    import pika

    name, url = f"q{next(_numbers)}", rabbitmq_server.url
    assert wrong(RabbitMQTarget(url), [name]) == {}
    assert wrong(RabbitMQTarget(url, queues=None), [name]).keys() == {name}
    assert wrong(RabbitMQTarget(url, exchange=name)).keys() == {name}
    assert "refuses the user" in wrong(RabbitMQTarget(url.replace("guest@", "other@")))["server"].text
    assert "virtual host" in wrong(RabbitMQTarget(url.replace("%2F", "other")))["server"].text
    assert wrong(RabbitMQTarget("amqp://127.0.0.1:1/?connection_attempts=1")).keys() == {"target"}
    with contextlib.closing(pika.BlockingConnection(pika.URLParameters(url))) as connection:
        connection.channel().exchange_declare(name, internal=True)  # which nobody may send to
        found = wrong(RabbitMQTarget(url, exchange=name))[name]
        connection.channel().exchange_delete(name)

    assert found.text == f"the user lacks write on {name}."
    assert f"'^{name}$'" in found.remedy


@pytest.mark.parametrize(
    ("status", "headers", "level"),
    [
        (204, {}, "ok"),
        (405, {}, "ok"),
        (401, {}, "error"),
        (404, {}, "error"),
        (302, {"Location": "/x"}, "error"),
        (503, {}, "warning"),
        (200, {"Allow": "GET, HEAD"}, "error"),
    ],
)
def test_http(status: int, headers: dict[str, str], level: str) -> None:
    asked: list[tuple[str, str | None]] = []

    class Answer(BaseHTTPRequestHandler):
        def do_OPTIONS(self) -> None:
            asked.append((self.path, self.headers["Authorization"]))
            self.send_response(status)
            for name, value in {**headers, "Content-Length": "0"}.items():
                self.send_header(name, value)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with serving(Answer) as url:
        found = look(HTTPTarget(f"{url}/hook", headers={"Authorization": "secret"}), "s")

    assert found[-1].level == level
    assert asked == [("/hook", "secret")]
    assert "secret" not in str(found)


def test_who_may_not_send_to_a_topic_of_rocketmq_is_told(rocketmq_server: RocketMQServer, fake_binlog: FakeBinlog) -> None:
    stream = f"t{next(_numbers)}"
    options = {"secret_key": "12345678", "timeout": 20}
    writer, reader = (
        RocketMQTarget(rocketmq_server.name_server, access_key=f"canal-{who}", **options) for who in ("writer", "reader")
    )
    follow(fake_binlog, writer, stream)

    assert wrong(writer, [f"shop.{stream}"]) == {}
    found = wrong(reader, [f"shop.{stream}"])[f"shop_{stream}"]
    assert found.text.startswith("the user may not send to the topic")
    assert f"PUB on shop_{stream}" in found.remedy


def test_a_cluster_of_redis(redis_cluster: RedisCluster, fake_binlog: FakeBinlog) -> None:
    stream = f"t{next(_numbers)}"
    target = RedisTarget(redis_cluster.url, cluster=True)
    follow(fake_binlog, target, stream)

    found = look(target, stream, [f"shop.{stream}"])
    assert {one.level for one in found} == {"ok"}
    assert any(one.text.startswith(f"{stream} is at ") for one in found)
    assert wrong(RedisTarget("redis://127.0.0.1:1", cluster=True)).keys() == {"target"}


def test_rocketmq(rocketmq_server: RocketMQServer, fake_binlog: FakeBinlog, monkeypatch: pytest.MonkeyPatch) -> None:
    stream = f"t{next(_numbers)}"
    name = f"shop.{stream}"
    target = RocketMQTarget(rocketmq_server.name_server, access_key="canal-writer", secret_key="12345678", timeout=20)
    texts = [one.text for one in look(target, "s", [name])]
    assert "the topic is not there, and broker-a makes it" in texts
    assert f"127.0.0.1:{rocketmq_server.port} is there" in texts
    follow(fake_binlog, target, stream)

    assert "the topic has 4 queues" in [one.text for one in look(target, "s", [name])]
    assert wrong(RocketMQTarget("127.0.0.1:1", timeout=1.0)).keys() == {"target"}
    monkeypatch.setattr("canal.targets.looks.DEFAULT_TOPIC", "nothing")
    found = wrong(target, [f"{name}-other"])[f"{name}-other".replace(".", "_")]
    assert (found.level, found.text) == ("error", "the topic is not there, and no broker makes it.")


def test_a_file_of_destinations_is_looked_at(
    mariadb_server: ThrowawayServer, redis_server: RedisServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "canal.toml"
    file.write_text(f"""
[destinations.orders]
source = {{ host = "127.0.0.1", port = {mariadb_server.port}, user = "cdc", password = "cdc" }}
filter = 'shop\\..*'

[destinations.orders.pipe]
target = {{ kind = "redis", url = "{redis_server.url}" }}
""")

    assert main(["check", str(file)]) == 0

    lines = capsys.readouterr().out.splitlines()
    assert any(line.startswith("orders source  ok") for line in lines)
    assert "orders target  ok       progress: there is none of orders: it begins with what is not acked" in lines
    file.write_text(file.read_text().replace(f":{redis_server.port}", ":1"))
    assert main(["check", str(file)]) == 1


def test_sqlite(tmp_path: Path, fake_binlog: FakeBinlog, monkeypatch: pytest.MonkeyPatch) -> None:
    target = SQLiteTarget(tmp_path / "copies" / "copy.db")
    found = wrong(target)["file"]
    assert found.text == f"the directory {tmp_path / 'copies'} does not exist."
    assert found.remedy == f"mkdir -p {tmp_path / 'copies'}"
    (tmp_path / "copies").mkdir()
    assert wrong(target, ["shop.t"]) == {}
    assert progress(target, "t").startswith("there is none of t")
    assert list((tmp_path / "copies").iterdir()) == []

    follow(fake_binlog, target, "t")
    before = Path(target.path).read_bytes()
    names = ["shop.T", "shop.other"]
    assert wrong(target, names) == {}
    strict = SQLiteTarget(target.path, create=False)
    assert {name: one.text for name, one in wrong(strict, names, "t").items()} == {
        "shop.other": "there is no such table, and create is False."
    }
    assert progress(target, "t").startswith("t is at ")
    assert progress(target, "another").startswith("there is none of another")
    assert [path.name for path in (tmp_path / "copies").iterdir()] == ["copy.db"]
    assert Path(target.path).read_bytes() == before

    with closing(sqlite3.connect(target.path)) as writer:
        writer.execute("PRAGMA journal_mode=WAL")
        writer.execute("BEGIN IMMEDIATE")
        assert progress(target, "t").startswith("t is at ")
    with closing(sqlite3.connect(target.path)) as writer:
        assert writer.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    for path in (tmp_path / "copies").glob("copy.db-*"):
        path.unlink()
    assert progress(target, "t").startswith("t is at ")
    assert [path.name for path in (tmp_path / "copies").iterdir()] == ["copy.db"]

    (tmp_path / "text.db").write_text("no database at all, but some text that is long enough to be read as a page of one" * 9)
    assert "cannot be read: file is not a database." in wrong(SQLiteTarget(tmp_path / "text.db"))["file"].text
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path).is_dir())  # root may all
    assert wrong(target)["file"].text == f"this user may not read and write {target.path}."
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    assert wrong(target)["file"].text.startswith(f"this user cannot write to {tmp_path / 'copies'}")
