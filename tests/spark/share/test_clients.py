"""Clients of a shared Instance, its ends, and who may read it: what ends a query says which of them it was."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
import socket
import stat
import subprocess
import sys
import textwrap
import threading
from multiprocessing.connection import Client
from pathlib import Path
from typing import Any

import attrs
import pytest

import canal.spark
from canal import Instance, MySQLSource, ZooKeeper
from canal.errors import CanalError, ConfigError, ConnectionLostError, NotActiveError, StateError, UnknownDestinationError
from canal.ha import Role
from canal.instance.sharing import addresses
from canal.instance.sharing.addresses import look_up, path_of
from canal.instance.sharing.client import Remote
from canal.spark.options import parse_options
from canal.spark.sharing import _served
from canal.spark.stream.shared_instance import attach
from tests.support.driver import WAIT, Driver
from tests.support.engine import Engine
from tests.support.shop import Shop, seen
from tests.support.waiting import until

# -- clients --------------------------------------------------------------------------------------------------------------


def test_a_client_that_is_named_is_kept_and_taken_over_by_the_later_query(shop: Shop, driver: Driver) -> None:
    old, new = driver.query(clientId=7), driver.query(clientId=7)
    old.start()
    old.step()
    shop.insert(3)
    old.until(3)
    until(lambda: driver.instance.position(7).offset == shop.fake.position.offset)  # else they are not acked, and come to it too
    new.start()
    new.step()
    shop.insert(2)

    assert seen(new.until(2)) == shop.expected[3:]
    with pytest.raises(StateError, match="reads as client 7 now"):
        until(old.step)
    new.stop()
    until(lambda: not _served)
    assert list(driver.clients()) == [7]


def test_a_client_that_somebody_else_uses_is_an_error(shop: Shop, driver: Driver) -> None:
    engine = driver.query(clientId=7)
    engine.start()
    engine.step()
    reader = Remote(driver.name)
    shop.insert(1)
    engine.until(1)
    reader.close()
    stopping = threading.Event()

    def take() -> None:  # waits for its turn at the client, and so gets it between two of the query's
        while not stopping.is_set():
            with contextlib.suppress(CanalError):
                driver.instance.get_without_ack(1, timeout=0.05, client_id=7)

    def read() -> None:
        shop.insert(1)
        engine.step()

    thief = threading.Thread(target=take)
    thief.start()
    try:
        with pytest.raises(StateError, match="somebody else uses client 7"):
            until(read)
    finally:
        stopping.set()
        thief.join()


def test_the_client_of_the_driver_itself_is_refused(driver: Driver) -> None:
    engine = driver.query(clientId=1001)
    engine.start()
    with pytest.raises(ConfigError, match="without naming a client"):
        engine.step()


# -- ends -----------------------------------------------------------------------------------------------------------------


def test_a_stop_of_the_instance_is_an_error_of_the_query(shop: Shop, driver: Driver) -> None:
    engine = driver.query()
    engine.start()
    engine.step()
    shop.insert(2)
    driver.instance.stop()
    with pytest.raises(StateError, match="stopped"):
        until(lambda: engine.step() and False)


def test_an_end_of_the_sharing_is_an_error_of_the_query(shop: Shop, driver: Driver) -> None:
    engine = driver.query()
    engine.start()
    engine.step()
    canal.spark.unshare(driver.name)
    assert not path_of(driver.name).exists()
    with pytest.raises(ConnectionLostError, match="shares it no more"):
        until(lambda: engine.step() and False)
    until(lambda: not driver.clients())


def test_what_stopped_the_parser_reaches_the_query(shop: Shop, driver: Driver) -> None:
    engine = driver.query()
    engine.start()
    engine.step()
    shop.fake.error_after(1, 1236, "Could not find first log file name in binary log index file")
    shop.insert(2)
    with pytest.raises(CanalError) as caught:
        until(lambda: engine.step() and False)
    assert type(caught.value) is type(driver.instance.error)
    assert caught.value.message == driver.instance.error.message


def test_a_query_fails_while_another_process_is_active_and_goes_on_in_its_turn(
    shop: Shop, driver: Driver, zookeeper_server: Any, zookeeper_root: str
) -> None:
    zookeeper = ZooKeeper(hosts=zookeeper_server.hosts, root=zookeeper_root, session_timeout=20.0, takeover_delay=0.2)
    driver.stop()
    instance = driver.start(ha=zookeeper)
    instance.subscribe()
    engine = driver.query()
    engine.start()
    engine.step()
    shop.insert(3)
    engine.until(3)
    with Instance(attrs.evolve(instance.config, source=attrs.evolve(instance.config.source, server_id=78))) as other:
        other.subscribe()
        instance.release()
        with pytest.raises(NotActiveError, match="(?s)this process is.*another one delivers.*wait_active"):
            until(lambda: engine.step() and False)
        engine.stop()

        def is_over() -> bool:
            with contextlib.suppress(NotActiveError):
                instance.release()  # again, where it was quicker than the other one
            return other.wait_active(2.0)

        until(is_over)
        shop.insert(2)
        assert list(other.subscriptions()) == [1001]  # nothing of the query's is left to hold it up
        engine.start(startTimeout="0.5")
        with pytest.raises(NotActiveError, match="another one delivers"):
            until(lambda: engine.step() and False)
        engine.stop()
    assert instance.wait_active(WAIT)
    engine.start(startTimeout=WAIT)
    assert seen(engine.until(5)) == shop.expected


@pytest.mark.parametrize("client", [None, 7])
def test_a_reader_of_an_earlier_turn_is_refused_in_the_next_one(
    driver: Driver, zookeeper_server: Any, zookeeper_root: str, client: int | None
) -> None:
    """However soon it comes: what another process has delivered and acked in between would be left out."""
    driver.stop()
    instance = driver.start(
        ha=ZooKeeper(hosts=zookeeper_server.hosts, root=zookeeper_root, session_timeout=20.0, takeover_delay=0.2)
    )
    with Remote(driver.name) as remote:
        remote.ask("open", wait=WAIT, timeout=WAIT, client=client, filter="")
        instance.release()
        until(lambda: instance.status().role_changes[Role.ACTIVE.value] == 2)
        with pytest.raises(NotActiveError, match="another one delivers"):
            remote.ask("get", ack=-1, size=10, timeout=0.1)


@pytest.mark.parametrize("method", ["ack", "get_without_ack", "position"])
def test_a_stop_of_the_instance_at_any_moment_is_told_as_one(
    driver: Driver, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    with Remote(driver.name) as remote:
        remote.ask("open", wait=WAIT, timeout=WAIT, client=None, filter="")
        call = getattr(driver.instance, method)

        def stopped(*arguments: Any, **more: Any) -> Any:
            driver.instance.stop()
            return call(*arguments, **more)

        monkeypatch.setattr(driver.instance, method, stopped)
        with pytest.raises(StateError, match="the Instance was stopped"):
            remote.ask("get", ack=-1, size=10, timeout=0.1)


def test_a_driver_that_does_not_answer_is_an_error_that_a_restart_may_mend(
    driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        monkeypatch.setattr("canal.instance.sharing.client.look_up", lambda name: {**look_up(name), "port": port})
        monkeypatch.setattr("canal.instance.sharing.wire._LOGIN", 0.1)
        with pytest.raises(ConnectionLostError, match="does not answer"):
            Remote(driver.name)


RUNNER = """
import sys, json
from tests.support.engine import Engine
engine = Engine(json.loads(sys.argv[1]))
engine.offsets, engine.committed = json.loads(sys.argv[2])
engine.start()
while len(engine.rows) < int(sys.argv[3]):
    engine.step()
if len(sys.argv) > 4:  # one more is planned, and never done
    print("ready", flush=True)
    while not engine.plan():
        pass
print(json.dumps([engine.offsets, engine.committed, [[r["_op"], r["id"], r["note"]] for r in engine.rows]]), flush=True)
sys.stdin.read()
"""


def run(driver: Driver, engine: Engine, count: int, *more: str) -> subprocess.Popen[str]:
    """A process of a query, as Spark keeps one."""
    arguments = [json.dumps(engine.options), json.dumps([engine.offsets, engine.committed]), str(count), *more]
    return subprocess.Popen([sys.executable, "-c", RUNNER, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def test_a_process_that_is_killed_goes_on_from_its_checkpoint(shop: Shop, driver: Driver) -> None:
    driver.instance.subscribe()
    engine = driver.query()
    shop.insert(4)
    process = run(driver, engine, 4, "and one planned")
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    shop.insert(3)
    engine.offsets, engine.committed, rows = json.loads(process.stdout.readline())
    assert len(driver.clients()) == 2
    process.send_signal(signal.SIGKILL)
    process.communicate()
    until(lambda: list(driver.clients()) == [1001])

    shop.insert(2)
    again = run(driver, engine, 5)
    assert again.stdout is not None
    *_, more = json.loads(again.stdout.readline())
    again.communicate()

    assert [tuple(row) for row in rows + more] == shop.expected


# -- who may --------------------------------------------------------------------------------------------------------------


def test_a_name_that_nobody_shares_says_what_to_do(driver: Driver) -> None:
    with pytest.raises(UnknownDestinationError, match=r"(?s)canal.spark.share\(instance, 'nobody'\).*Spark Connect"):
        attach(parse_options({"instance": "nobody", "table": "a.b"}))


@pytest.mark.parametrize("name", ["a/b", "..", ".", "..\n\0", "ü 価格", "a" * 200, "%2F", "-rf", "'\"$(x)"])
def test_a_name_may_be_any_text(driver: Driver, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(addresses, "directory", lambda: tmp_path / "shares")  # nobody else has the name there
    with canal.spark.share(driver.instance, name):
        assert path_of(name).parent == addresses.directory()
        assert look_up(name)["name"] == name
        assert stat.S_IMODE(path_of(name).stat().st_mode) == 0o600
        assert stat.S_IMODE(path_of(name).parent.stat().st_mode) == 0o700
        Remote(name).close()
        with pytest.raises(StateError, match="already"):
            canal.spark.share(driver.instance, name)
    assert not path_of(name).exists()


@pytest.mark.parametrize("name", ["", "a" * 201, "ü" * 100])
def test_a_name_that_cannot_be(driver: Driver, name: str) -> None:
    with pytest.raises(ConfigError, match="cannot name"):
        canal.spark.share(driver.instance, name)


def test_who_does_not_know_the_key_is_refused(driver: Driver, caplog: pytest.LogCaptureFixture) -> None:
    found = look_up(driver.name)
    address = (found["host"], found["port"])
    with pytest.raises(Exception) as caught:
        Client(address, "AF_INET", authkey=b"wrong")
    assert type(caught.value).__name__ == "AuthenticationError"
    until(lambda: "without the key" in caplog.text)
    with Client(address, "AF_INET") as silent, socket.create_connection(address) as rude:
        rude.sendall(b"\0\0\0\x05hello")
        silent.send_bytes(b"x" * 100)
        Remote(driver.name).close()  # others are served meanwhile


def test_what_answers_without_the_key_is_not_believed(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    found = look_up(driver.name)
    monkeypatch.setattr("canal.instance.sharing.client.look_up", lambda name: {**found, "key": "00" * 32})
    with pytest.raises(UnknownDestinationError, match="is not process"):
        Remote(driver.name)


def test_a_file_of_a_process_that_has_ended_is_told_and_replaced(driver: Driver) -> None:
    name = f"{driver.name} left"
    code = f"""
        import os, canal.instance.sharing.addresses as addresses
        file = addresses.publish({name!r}, {{"v": 1, "pid": os.getpid(), "host": "127.0.0.1", "port": 1, "key": "00"}})
        os._exit(1)
    """
    assert subprocess.run([sys.executable, "-c", textwrap.dedent(code)], check=False).returncode == 1
    assert path_of(name).exists()
    with pytest.raises(UnknownDestinationError, match="which shared one, has ended"):
        Remote(name)
    with canal.spark.share(driver.instance, name):
        Remote(name).close()
    assert not path_of(name).exists()


def test_a_file_that_is_left_is_replaced_while_somebody_looks_it_up(driver: Driver) -> None:
    name = f"{driver.name} looked up"
    addresses.publish(name, {"v": 1, "pid": 1}).close()
    with path_of(name).open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_SH)
        looking = threading.Timer(0.5, fcntl.flock, (file, fcntl.LOCK_UN))
        looking.start()
        with canal.spark.share(driver.instance, name):
            assert look_up(name)["pid"] == os.getpid()
        looking.join()


def test_a_name_of_another_process_is_taken(driver: Driver) -> None:
    code = f"""
        import canal.instance.sharing.addresses as addresses
        try:
            addresses.publish({driver.name!r}, {{}})
        except addresses.StateError as error:
            print(error)
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, check=True)
    assert f"already, by process {os.getpid()}" in done.stdout
    Remote(driver.name).close()


def test_what_others_could_have_written_is_not_read(driver: Driver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(addresses, "directory", lambda: tmp_path / "shares")
    with canal.spark.share(driver.instance, "mine"):
        path = path_of("mine")
        path.chmod(0o640)
        with pytest.raises(ConfigError, match="not this user's alone"):
            Remote("mine")
        path.chmod(0o600)
        path_of("link").symlink_to(path)
        with pytest.raises(ConfigError, match="cannot be read"):
            Remote("link")
        path.parent.chmod(0o777)
        with pytest.raises(ConfigError, match="not this user's alone"):
            Remote("mine")
        with pytest.raises(ConfigError, match="not this user's alone"):
            canal.spark.share(driver.instance, "other")
        path.parent.chmod(0o700)


def test_a_child_of_the_driver_leaves_the_sharing_alone(shop: Shop, driver: Driver) -> None:
    engine = driver.query()
    engine.start()
    engine.step()
    child = os.fork()
    if child == 0:
        try:
            canal.spark.unshare(driver.name)
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    shop.insert(2)
    assert seen(engine.until(2)) == shop.expected


# -- options --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "more", [{"host": "h"}, {"password": "s3cr3t"}, {"path": "/x"}, {"unixSocket": "/x"}, {"historyDir": "/x"}]
)
def test_the_source_is_the_instances(more: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match="exclude each other") as caught:
        parse_options({"instance": "x", "table": "a.b", **more})
    assert "s3cr3t" not in str(caught.value)


def test_a_client_goes_with_an_instance() -> None:
    with pytest.raises(ConfigError, match="clientId goes with instance"):
        parse_options({"host": "h", "table": "a.b", "clientId": "7"})


@pytest.mark.parametrize(
    "config",
    [
        {"row_filter": lambda header, before, after: True},
        {"field_filter": "shop.orders:id"},
        {"on_lost": "latest"},
        {"shadow_tables": True},
        {"sequences": True},
    ],
)
def test_an_instance_that_drops_what_a_query_would_read_again_is_refused(driver: Driver, config: dict[str, Any]) -> None:
    driver.stop()
    with pytest.raises(ConfigError, match="cannot be shared"):
        driver.start(**config)


@pytest.mark.parametrize(("filter", "what"), [(r"shop\.other", "its rows"), (r"shop\.orders", "DROP DATABASE")])
def test_a_table_that_the_instance_does_not_deliver(driver: Driver, filter: str, what: str) -> None:
    driver.stop()
    driver.start(filter=filter)
    with pytest.raises(ConfigError, match=what):
        driver.query().start()


def test_spark_connect_is_refused(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_CONNECT_MODE_ENABLED", "1")
    with pytest.raises(StateError, match="Spark Connect"):
        canal.spark.share(driver.instance, "other")


def test_the_password_goes_to_who_has_the_key_only_and_the_server_id_to_nobody(driver: Driver) -> None:
    source = attach(parse_options({"instance": driver.name, "table": "shop.orders"})).source
    assert isinstance(source, MySQLSource)
    assert (source.password, source.port, source.server_id) == ("s3cr3t", driver.server.port, None)
    assert "s3cr3t" not in path_of(driver.name).read_text() + repr(source)
