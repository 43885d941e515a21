"""Configurations that are read once and followed: directories, TOML, and classes of the user's own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

import canal
from canal.server.configuration.toml_files import TomlFiles
from canal.testing import FakeBinlog, ZooKeeperServer
from canal.zookeeper.session import Create, Delete, Session, Set

INTERVAL = 0.05


@pytest.fixture
def served() -> Iterator[tuple[FakeBinlog, str]]:
    fake = FakeBinlog()
    with fake.serve(user="canal", password="secret") as server:
        yield fake, f"{server.host}:{server.port}"


def until(holds: Callable[[], object]) -> None:
    deadline = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def current(server: canal.Server, name: str) -> canal.Instance | None:
    """The instance that runs; None while it is started anew."""
    try:
        return server.instance(name)
    except canal.StateError:
        return None


def is_unknown(server: canal.Server, name: str) -> bool:
    try:
        server.instance(name)
    except canal.errors.UnknownDestinationError:
        return True
    except canal.StateError:  # it is being stopped
        return False
    raise AssertionError(name)


def own(address: str, *lines: str) -> str:
    return "\n".join(
        [
            f"canal.instance.master.address={address}",
            "canal.instance.dbUsername=canal",
            "canal.instance.dbPassword=secret",
            *lines,
            "",
        ]
    )


def written(conf: Path, name: str, text: str) -> None:
    (conf / name).mkdir(parents=True, exist_ok=True)
    (conf / name / "instance.properties").write_text(text)


def test_canals_directory_is_loaded_and_delivers(tmp_path: Path, served: tuple[FakeBinlog, str]) -> None:
    fake, address = served
    (tmp_path / "canal.properties").write_text("canal.destinations = shop\n")
    written(tmp_path, "shop", own(address, "canal.instance.filter.regex=shop\\\\..*"))
    written(tmp_path, "spring", "not a destination")
    with canal.load(tmp_path) as server:
        assert (server.configured(), server.destinations()) == (["shop"], [])
        instance = server.instance("shop")
        instance.subscribe()
        fake.table("crm", "t", "id INT PRIMARY KEY").insert({"id": 1})
        fake.table("shop", "t", "id INT PRIMARY KEY").insert({"id": 2})
        found: list[tuple[str, int]] = []
        while not found:
            rows = [(entry.header.schema, row) for entry in instance.get(timeout=30).entries for row in entry.rows]
            found = [(schema, row.after["id"]) for schema, row in rows if row.after]
    assert found == [("shop", 2)]
    assert (tmp_path / "shop" / "meta.dat").exists()
    assert canal.load(tmp_path / "canal.properties").configured() == ["shop"]


def test_a_directory_without_a_configuration(tmp_path: Path) -> None:
    with pytest.raises(canal.ConfigError, match="neither canal.properties"):
        canal.load(tmp_path)


def test_what_comes_changes_and_goes(tmp_path: Path, served: tuple[FakeBinlog, str]) -> None:
    _, address = served
    alarms: list[tuple[str, str]] = []
    written(tmp_path, "a", own(address))
    (tmp_path / "canal.properties").write_text("")
    with canal.Server() as server:
        server.follow(canal.server.DirectorySource(tmp_path), INTERVAL, alarm=lambda *alarm: alarms.append(alarm))
        assert server.destinations() == ["a"]
        first = server.instance("a")
        written(tmp_path, "b", own(address))
        until(lambda: "b" in server.destinations())
        other = server.instance("b")
        assert server.configured() == ["a", "b"]

        written(tmp_path, "a", own(address, "canal.instance.filter.regex=shop\\\\..*"))
        until(lambda: current(server, "a") not in (None, first))
        changed = server.instance("a")
        assert changed.config is not None
        assert changed.config.filter == r"shop\..*"

        for text in (own(address, "canal.instance.filter.regex=("), own(address, "no.such.key=1"), "\\u12"):
            count = len(alarms)
            written(tmp_path, "a", text)
            until(lambda count=count: len(alarms) > count)  # type: ignore[misc]
        (tmp_path / "canal.properties").write_text("no.such.key=1")
        count = len(alarms)
        until(lambda: len(alarms) > count)
        (tmp_path / "canal.properties").write_text("")
        written(tmp_path, "a", own(address, "canal.instance.filter.regex=shop\\\\..*"))
        until(lambda: sum(getattr(text, "is_over", False) for _, text in alarms) >= 2)  # of a and of b
        assert (server.instance("a"), server.instance("b"), changed.is_running) == (changed, other, True)

        written(tmp_path, "a", own(address, "canal.instance.filter.regex=crm\\\\..*"))
        until(lambda: current(server, "a") not in (None, changed))
        (tmp_path / "b" / "instance.properties").unlink()
        until(lambda: server.destinations() == ["a"] and server.configured() == ["a"])
        until(lambda: is_unknown(server, "b"))
        assert {name for name, _ in alarms} <= {"a", "b"}
        assert any(getattr(text, "kind", None) is canal.AlarmKind.CONFIGURATION for _, text in alarms)
        assert "secret" not in str(alarms)


def test_an_exchanged_link_is_seen_and_an_equal_content_is_not_a_change(tmp_path: Path, served: tuple[FakeBinlog, str]) -> None:
    """As a mounted ConfigMap changes: by its digest, whatever the times of files say."""
    _, address = served
    for number, regex in enumerate(("one", "two")):
        written(tmp_path / str(number), "a", own(address, f"canal.instance.filter.regex={regex}\\\\..*"))
        os.utime(tmp_path / str(number) / "a" / "instance.properties", (1, 1))
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "a").symlink_to(tmp_path / "0" / "a")
    source = canal.server.DirectorySource(tmp_path / "conf")
    before = dict(source.names())
    (tmp_path / "0" / "a" / "instance.properties").touch()
    assert source.names() == before
    (tmp_path / "conf" / "new").symlink_to(tmp_path / "1" / "a")
    (tmp_path / "conf" / "new").rename(tmp_path / "conf" / "a")
    assert source.names() != before
    assert source.load("a").filter == r"two\..*"


class Own:
    """A ConfigSource of the user's own, which may fail."""

    def __init__(self, configs: dict[str, tuple[str, canal.InstanceConfig]]) -> None:
        self.configs = configs
        self.error: Exception | None = None

    def names(self) -> Mapping[str, str]:
        if self.error is not None:
            raise self.error
        return {name: digest for name, (digest, _) in self.configs.items()}

    def load(self, name: str) -> canal.InstanceConfig:
        return self.configs[name][1]


def made(name: str, **options: Any) -> canal.InstanceConfig:
    return canal.InstanceConfig(destination=name, source=FakeBinlog(), **options)


def test_a_source_of_ones_own_lazily(tmp_path: Path) -> None:
    source = Own({"a": ("1", made("a"))})
    alarms: list[str] = []
    with canal.Server() as server:
        server.follow(source, INTERVAL, lazy=True, alarm=lambda _, text: alarms.append(text))
        assert (server.configured(), server.destinations()) == (["a"], [])
        with pytest.raises(canal.StateError, match="follows"):
            server.follow(source)
        first = server.instance("a")
        source.error = OSError("no answer")
        until(lambda: alarms)
        source.error = None
        source.configs = {"a": ("2", made("a", filter="b\\..*"))}
        until(lambda: current(server, "a") not in (None, first))
        until(lambda: server.destinations() == ["a"])
        server.reload("a")
        assert server.destinations() == ["a"]


def test_what_cannot_start_leaves_what_ran(tmp_path: Path) -> None:
    """The folder of the cursors is another process's: the instance before runs again."""
    other = canal.FileMeta(tmp_path)
    other.start("a")
    source = Own({"a": ("1", made("a"))})
    alarms: list[str] = []
    with canal.Server() as server:
        server.follow(source, INTERVAL, alarm=lambda _, text: alarms.append(text))
        source.configs = {"a": ("2", made("a", meta=canal.FileMeta(tmp_path)))}
        until(lambda: alarms)
        until(lambda: server.destinations() == ["a"])
        config = server.instance("a").config
        assert config is not None
        assert isinstance(config.meta, canal.MemoryMeta)
    other.stop()


TOML = r"""
[defaults]
meta = "memory"
filter = 'shop\..*'
reconnect_backoff = [0.2, 5]
time_zone = "Europe/Berlin"

[defaults.source]
host = "db1"
user = "canal"
password = { env = "DB_PASSWORD" }

[destinations.orders]
start = { journal = "binlog.000007", offset = 99 }
source = { port = 3307, ssl_mode = "REQUIRED" }
leave_out = ["ddl"]

[destinations.files]
lazy = true
source = { path = "/var/lib/mysql", follow = true }
heartbeat = { interval = 1.5 }
"""


def test_our_own_form() -> None:
    text = TOML.replace('host = "db1"\nuser = "canal"\npassword = { env = "DB_PASSWORD" }', "read_timeout = 9").replace(
        "[defaults.source]", '[destinations.third.source]\nhost = "db3"'
    )
    files = TomlFiles(
        TOML.replace("[destinations.files]", "[destinations.x]").replace(
            'source = { path = "/var/lib/mysql", follow = true }', ""
        ),
        environ={"DB_PASSWORD": "s3"},
    )
    orders = files.config("orders")
    source: Any = orders.source

    assert (source.host, source.port, source.password, source.ssl_mode) == ("db1", 3307, "s3", "REQUIRED")
    assert orders.start == canal.Position("binlog.000007", 99)
    assert (orders.filter, orders.reconnect_backoff, list(orders.leave_out)) == (r"shop\..*", (0.2, 5), ["ddl"])
    assert str(orders.time_zone) == "Europe/Berlin"
    assert files.config("x").heartbeat == canal.Heartbeat(interval=1.5)
    assert (files.is_lazy("x"), files.is_lazy("orders")) == (True, False)
    assert TomlFiles(text, environ={}).config("files").source.path == "/var/lib/mysql"  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x", "not TOML"),
        ("[other]", "has a table or key other"),
        ("[destinations.a]\nfilters = 'x'", "no option filters.*filter"),
        ("[destinations.a]\n[destinations.a.source]\nhots = 'x'", r"source has no option hots\. Did you mean host\?"),
        ("[destinations.a]\nsource = { password = { env = 'NO' } }", "no environment variable NO"),
        ("[destinations.a]\nsource = { password = { file = '/no/such' } }", "/no/such cannot be read"),
        ("[destinations.a]\nfilter = 'x'", "cannot be made of destination, filter"),
        ("[destinations.a]\ntime_zone = 'Mars'\nsource = 'mysql://a@b/'", "no time zone"),
        ("[destinations.a]\nsource = 'mysql://a:hidden@b:x/'", "host or port"),
    ],
)
def test_a_bad_document(text: str, message: str) -> None:
    with pytest.raises(canal.ConfigError, match=message) as caught:
        TomlFiles(text, environ={}).config("a")
    assert "hidden" not in str(caught.value)


def test_a_directory_of_toml(tmp_path: Path) -> None:
    (tmp_path / "canal.toml").write_text('[defaults]\nsource = "mysql://canal@db1/"\n')
    (tmp_path / "a.toml").write_text("filter = 'a\\..*'\n")
    (tmp_path / "b.toml").write_text("filter = \n")
    source = canal.server.DirectorySource(tmp_path)

    assert sorted(source.names()) == ["a", "b"]
    assert source.load("a").filter == r"a\..*"
    with pytest.raises(canal.ConfigError, match=r"b.toml is not TOML"):
        source.load("b")


@pytest.mark.zookeeper
def test_a_node_of_zookeeper(zookeeper_server: ZooKeeperServer, zookeeper_root: str) -> None:
    config = canal.ZooKeeper(hosts=zookeeper_server.hosts, root=zookeeper_root)
    session = Session(config)
    session.open()
    assert session.wait_connected(60)
    session.make(zookeeper_root)
    path = f"{zookeeper_root}/config"
    text = "[destinations.a]\nsource = 'mysql://canal@db1/'\n"
    source = canal.server.ZooKeeperSource(config, path)
    with pytest.raises(canal.CoordinationError, match="no node"):
        source.names()
    session.write([Create(path, text.encode())])
    before = source.names()
    assert source.load("a").source.address == "db1:3306"  # type: ignore[attr-defined]
    session.write([Set(path, (text + "filter = 'x'\n").encode())])
    assert source.names() != before
    source.close()
    session.close()


@pytest.mark.zookeeper
def test_a_zookeeper_that_comes_back_without_its_data_is_read_again(own_zookeeper: ZooKeeperServer) -> None:
    config = canal.ZooKeeper(hosts=own_zookeeper.hosts, session_timeout=4.0)
    source = canal.server.ZooKeeperSource(config, "/config")

    def write(text: str) -> None:
        session = Session(config)
        session.open()
        assert session.wait_connected(60)
        for _ in range(5):  # more transactions than the other has
            session.write([Create("/config", text.encode()), Delete("/config")])
        session.write([Create("/config", text.encode())])
        session.close()

    def names() -> list[str]:
        try:
            return list(source.names())
        except canal.CoordinationError:
            return []

    write("[destinations.a]\nsource = 'mysql://canal@db1/'\n")
    assert names() == ["a"]
    own_zookeeper.stop()
    own_zookeeper.start()
    session = Session(config)
    session.open()
    assert session.wait_connected(60)
    session.write([Create("/config", b"[destinations.b]\nsource = 'mysql://canal@db1/'\n")])
    until(lambda: names() == ["b"])
    source.close()
    session.close()


def test_the_launcher(tmp_path: Path, served: tuple[FakeBinlog, str]) -> None:
    fake, address = served
    table = fake.table("shop", "t", "id INT PRIMARY KEY")
    written(tmp_path / "conf", "shop", own(address, "canal.instance.master.journal.name=binlog.000001", "canal.mq.topic=x"))
    table.insert({"id": 1})
    (tmp_path / "mine.py").write_text(
        textwrap.dedent("""
        def handle(destination, message):
            for entry in message.entries:
                for row in entry.rows:
                    print(destination, row.after["id"], flush=True)
    """)
    )
    command = [sys.executable, "-m", "canal", "run", str(tmp_path / "conf")]
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    checked = subprocess.run([*command, "--check"], capture_output=True, text=True, timeout=120, env=environ)
    assert (checked.returncode, checked.stderr) == (0, "")
    assert "shop: can be used" in checked.stdout
    assert "canal.mq.topic has no meaning here: there is no broker" in checked.stdout
    folder = tmp_path / "conf" / "shop"
    found: list[str] = []
    for _ in range(2):  # what was acked does not come again
        whole = [*command, "--handler", "mine:handle"]
        with subprocess.Popen(whole, stdout=subprocess.PIPE, text=True, cwd=tmp_path, env=environ) as run:
            assert run.stdout is not None
            found.append(run.stdout.readline().strip())
            until(lambda: any(f"{fake.position.offset}," in path.read_text() for path in folder.glob("meta.*")))
            run.send_signal(signal.SIGTERM)
            found += run.stdout.read().split("\n")[:-1]
            assert run.wait(60) == 0
        table.insert({"id": 2 + len(found)})
    assert found == ["shop 1", "shop 3"]
