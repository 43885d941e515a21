"""``canal ha``: what it tells of destinations in a real ZooKeeper, and how it hands one over."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import attrs
import pytest

import canal
from canal.cli.main import main
from canal.ha import Role
from canal.ha.overview import _client, look_at
from canal.testing import FakeBinlog
from canal.testing.zookeeper import ZooKeeperServer
from canal.zookeeper.session import Session, Set, ZooKeeper
from tests.support.ha_group import PATIENT

CANALS = {
    "@type": "com.alibaba.otter.canal.protocol.position.LogPosition",
    "identity": {"slaveId": -1, "sourceAddress": {"address": "db1", "port": 3306}},
    "postion": {
        "gtid": "",
        "included": False,
        "journalName": "mysql-bin.000266",
        "position": 226987109,
        "serverId": 2757725211,
        "timestamp": 1610750948000,
    },
}


@pytest.fixture
def config(zookeeper_server: ZooKeeperServer, zookeeper_root: str) -> ZooKeeper:
    return ZooKeeper(hosts=zookeeper_server.hosts, root=zookeeper_root, session_timeout=30.0, takeover_delay=0.1)


@pytest.fixture
def session(config: ZooKeeper) -> Iterator[Session]:
    made = Session(config)
    made.open()
    assert made.wait_connected(30)
    yield made
    made.close()


def run(capsys: pytest.CaptureFixture[str], config: ZooKeeper, *arguments: str) -> tuple[int, str, str]:
    action, *rest = arguments
    status = main(["ha", action, config.hosts, *rest, "--root", config.root])
    return status, *capsys.readouterr()


def instance(config: ZooKeeper) -> canal.Instance:
    fake = FakeBinlog(clock=lambda: time.time() - 5)
    fake.table("s", "t", "id INT PRIMARY KEY").insert({"id": 1})
    return canal.Instance(canal.InstanceConfig(destination="orders", source=fake, ha=config, start="earliest"))


def test_top_shows_the_destinations_of_a_tree(
    config: ZooKeeper, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "250")
    with instance(config) as one:
        one.subscribe(1001, r"s\..*")
        one.ack(one.get_without_ack(timeout=60).id)
        assert main(["top", config.hosts, "--root", config.root, "--once"]) == 0

    (line,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("orders")]
    assert "on " in line
    assert " 1001 " in line
    assert "binlog.000001:" in line


def test_it_tells_who_runs_what_and_where_the_clients_are(config: ZooKeeper, capsys: pytest.CaptureFixture[str]) -> None:
    began = time.time()
    with instance(config) as one:
        one.subscribe(1001, r"s\..*")
        message = one.get_without_ack(timeout=60)
        one.ack(message.id)
        other = instance(config).start()
        other.subscribe()

        assert run(capsys, config, "status")[0] == 0
        status, out, _ = run(capsys, config, "status", "orders", "--json")

        assert status == 0
        (told,) = json.loads(out)
        addresses = sorted((one._ha.address, other._ha.address))  # type: ignore[union-attr]
        assert told["owner"] == one._ha.address  # type: ignore[union-attr]
        assert sorted(told["members"]) == addresses
        assert (told["active"], told["epoch"]) == (True, 1)
        assert began - 2 <= canal_time(told["since"]) <= time.time() + 2
        (client,) = told["clients"]
        assert (client["id"], client["filter"]) == (1001, r"s\..*")
        assert 4 < client["behind_at_most_s"] < 120
        assert client["cursor"]["journal"] == "binlog.000001"
        text = run(capsys, config, "status")[1]
        assert f"runs on   {told['owner']}  since {told['since']}" in text
        assert "stands by " in text
        assert "client 1001  filter s" in text
        assert "at most" in text
        other.stop()


def test_a_cursor_that_its_owner_moves_meanwhile_was_moved_by_nobody_else(caplog: pytest.LogCaptureFixture) -> None:
    """The owner writes both nodes in one transaction, and they are read one by one."""
    old, new = (canal.Position(journal="binlog.000001", offset=at, timestamp=1_700_000_000_000, server_id=1) for at in (4, 400))
    read: list[str] = []

    class Moving:
        def get(self, path: str) -> Any:
            read.append(path.rpartition("/")[2])
            position = new if "position" in read else old
            data = {"filter": "", "cursor": json.dumps(position.to_canal()), "position": position.to_text()}[read[-1]]
            return SimpleNamespace(data=data.encode(), version=position.offset, changed=0.0)

    session: Any = Moving()
    assert _client(session, "/destinations/orders", 1001).cursor == new
    assert caplog.text == ""


def canal_time(text: str) -> float:
    from datetime import datetime

    return datetime.fromisoformat(text).timestamp()


def test_a_destination_of_canal_is_read_too(config: ZooKeeper, session: Session, capsys: pytest.CaptureFixture[str]) -> None:
    path = config.destination_path("orders")
    documents = {
        "1001/filter": b".*\\..*",
        "1001/cursor": json.dumps(CANALS).encode(),
        "1002/cursor": b"no JSON",
        "1003": b"",
        "running": b'{"active":true,"address":"10.0.0.1:11111"}',
        "cluster/10.0.0.1:11111": b"",
        "cluster/10.0.0.2:11111": b"",
    }
    for name, data in documents.items():
        session.make(f"{path}/{name}")
        session.write([Set(f"{path}/{name}", data)])

    text = run(capsys, config, "status")[1]

    assert "runs on   10.0.0.1:11111" in text
    assert "stands by 10.0.0.2:11111" in text
    assert "mysql-bin.000266:226987109" in text
    assert "client 1002\n    a cursor that cannot be read\n  client 1003\n    no cursor" in text


@pytest.mark.parametrize(
    "data", [b"", b"{", b"[]", b"null", b"[" * 100_000, b'{"a":' * 50_000, b"\xff", b"9" * 5000, b'{"address":[]}', "٣".encode()]
)
def test_damaged_nodes_are_told_by_name(
    config: ZooKeeper, session: Session, capsys: pytest.CaptureFixture[str], data: bytes
) -> None:
    """Never a traceback, and the rest is told all the same."""
    path = config.destination_path("orders")
    late = json.loads(json.dumps(CANALS))
    late["postion"]["timestamp"] = 1 << 200
    documents = {
        "running": data,
        "epoch": data or b"x",
        "1001/cursor": json.dumps(CANALS).encode(),
        "1001/position": data or b"x",
        "1001/filter": data,
        "1002/cursor": data or b"x",
        "1003/cursor": json.dumps(late).encode(),
        "1" + "0" * 5000: b"",
        "schema": data,
        "²": b"",
        "01": b"",
        "cluster/a:1": data,
    }
    for name, content in documents.items():
        session.make(f"{path}/{name}")
        session.write([Set(f"{path}/{name}", content)])

    status, text, error = run(capsys, config, "status")
    document = json.loads(run(capsys, config, "status", "--json")[1])[0]
    refused = run(capsys, config, "release", "orders", "--timeout", "0.1")

    assert (status, error) == (1, "")
    assert "stands by a:1" in text
    assert "damaged   " in text
    damaged = " ".join(document["damaged"])
    assert "/orders/running lives by no session" in damaged
    for node in ("1001", "1002", "1003"):
        assert f"/orders/{node} has a cursor that cannot be read" in damaged
    assert "is no number of take-overs" in damaged
    assert refused[0] == 1
    assert refused[2].startswith("canal: ")
    assert [client["id"] for client in document["clients"]] == [1001, 1002, 1003]


def test_credentials_come_from_the_environment(
    config: ZooKeeper, session: Session, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with instance(attrs.evolve(config, auth=(("digest", "cdc:s3cret:1"),))) as one:
        one.subscribe()
        status, out, error = run(capsys, config, "status")
        assert (status, out) == (1, "")
        assert "NoAuthError" in error
        monkeypatch.setenv("CANAL_ZOOKEEPER_AUTH", "digest:cdc:s3cret:1")
        assert "client 1001" in run(capsys, config, "status")[1]


def test_release_waits_until_another_process_has_it(config: ZooKeeper, capsys: pytest.CaptureFixture[str]) -> None:
    with instance(attrs.evolve(config, **PATIENT)) as one:
        one.subscribe()
        assert one.wait_active(30)
        other = instance(config).start()
        other.subscribe()

        status, out, error = run(capsys, config, "release", "orders")

        assert (status, error) == (0, "")
        assert f"{one._ha.address} has let go, {other._ha.address} runs it (epoch 2)" in out  # type: ignore[union-attr]
        assert other.wait_active(30)
        assert one.role is not Role.ACTIVE
        other.stop()


def test_release_leaves_a_process_alone_that_nobody_could_follow(
    config: ZooKeeper, session: Session, capsys: pytest.CaptureFixture[str]
) -> None:
    with instance(config) as one:
        one.subscribe()
        assert one.wait_active(30)

        status, out, error = run(capsys, config, "release", "orders")

        assert (status, out) == (1, "")
        assert "no other process stands by for orders" in error
        assert one.role is Role.ACTIVE
    assert "no process runs orders" in run(capsys, config, "release", "orders")[2]
    assert look_at(session, "orders").owner == ""


def test_release_says_that_nobody_has_taken_it(
    config: ZooKeeper, session: Session, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    connect = Session.wait_connected
    monkeypatch.setattr(Session, "wait_connected", lambda self, timeout: connect(self, 60))  # the time is for the others
    path = config.destination_path("orders")
    for name in ("running", "cluster/dead:1", "cluster/mute:1"):
        session.make(f"{path}/{name}")
    session.write([Set(f"{path}/running", b'{"active":true,"address":"dead:1"}')])

    status, _, error = run(capsys, config, "release", "orders", "--timeout", "0.3")

    assert status == 1
    assert "dead:1 was asked to release orders, but no other process has taken it over within 0.3 s" in error
    value = session.get(f"{path}/running")
    assert value is not None
    assert json.loads(value.data) == {"active": False, "address": "dead:1"}
    assert "(asked to let go)" in run(capsys, config, "status")[1]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["status", "127.0.0.1:1", "--timeout", "0.2"], "ZooKeeper at 127.0.0.1:1 does not answer. Check the addresses"),
        (["status", "zk:abc"], "cannot be used as configured"),
        (["status", ""], "hosts of ZooKeeper names none"),
        (["status", "zk1:2181", "--root", "x"], "root of ZooKeeper is a path"),
    ],
)
def test_what_cannot_be_is_told_in_one_line(arguments: list[str], told: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ha", *arguments]) == 1
    captured: Any = capsys.readouterr()
    assert captured.out == ""
    assert told in captured.err
    assert captured.err.count("\n") == 1


def test_an_unknown_destination_is_told_with_those_that_are(
    config: ZooKeeper, session: Session, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(capsys, config, "status") == (0, f"no destination under {config.root}\n", "")
    session.make(config.destination_path("orders"))

    for action in ("status", "release"):
        status, _, error = run(capsys, config, action, "nix")
        assert status == 1
        assert "there is no destination 'nix'" in error
        assert "There are: orders." in error
