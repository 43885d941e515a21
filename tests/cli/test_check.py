"""``canal check`` of a file: standby, ZooKeeper and the folder of cursors are looked at, and nothing is made."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

import attrs
import pytest

import canal
from canal.cli.main import main
from canal.testing import FakeBinlog
from canal.testing._serve import FakeServer
from canal.testing.zookeeper import ZooKeeperServer
from canal.zookeeper.session import Session, Set, ZooKeeper

SECRET = "s3cret"


@attrs.define
class Files:
    """A file with one destination, and what ``canal check`` says of it."""

    path: Path
    server: FakeServer
    capsys: pytest.CaptureFixture[str]
    status: int = 0

    def check(self, text: str) -> dict[str, tuple[str, str]]:
        """Level and text, by part and what was looked at."""
        self.path.write_text(
            f'[destinations.orders]\n{text}\n[destinations.orders.source]\nhost = "127.0.0.1"\nport = {self.server.port}\n'
            f'user = "u"\npassword = "{SECRET}"\n'
        )
        self.status = main(["check", str(self.path)])
        lines = self.capsys.readouterr().out.splitlines()
        assert SECRET not in "".join(lines)
        found = [re.fullmatch(r"orders (\w*)  (\w+) +([\w.]+): (.*)", line) for line in lines]
        return {f"{one[1]} {one[3]}": (one[2], one[4]) for one in found if one}

    def check_ha(self, zookeeper: ZooKeeper, more: str = "") -> dict[str, tuple[str, str]]:
        return self.check(f'ha = {{ hosts = "{zookeeper.hosts}", root = "{zookeeper.root}"{more} }}')


@pytest.fixture
def files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Iterator[Files]:
    with FakeBinlog().serve(user="u", password=SECRET) as server:
        yield Files(tmp_path / "canal.toml", server, capsys)


@pytest.fixture
def zookeeper(zookeeper_server: ZooKeeperServer, zookeeper_root: str) -> ZooKeeper:
    return ZooKeeper(hosts=zookeeper_server.hosts, root=zookeeper_root, session_timeout=30.0)


def test_a_standby_is_looked_at_as_the_source_is(files: Files) -> None:
    standby = f'standby = {{ host = "127.0.0.1", port = {files.server.port}, user = "u", password = "%s" }}'
    found = files.check(standby % SECRET)
    assert files.status == 0
    assert found["standby binlog_format"] == found["source binlog_format"] == ("ok", "ROW")

    found = files.check(standby % "another")
    assert files.status == 1
    assert found["standby reachable"][0] == "error"
    assert found["source binlog_format"] == ("ok", "ROW")


def test_a_folder_of_cursors_that_is_not_there_is_not_made(files: Files, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "a" / "cursors"
    found = files.check(f'meta = "{folder}"')
    assert files.status == 0
    assert found["cursors meta"] == ("ok", f"{folder / 'orders'} is missing and will be created")
    assert found["cursors cursor"] == ("ok", "there is no cursor yet")
    assert not folder.exists()

    (tmp_path / "a").write_text("a file")
    assert files.check(f'meta = "{folder}"')["cursors meta"][1].startswith(f"{tmp_path / 'a'} is not a directory. Let this user")
    assert files.status == 1
    (tmp_path / "a").unlink()
    monkeypatch.setattr(os, "access", lambda path, mode: False)  # root may all
    assert files.check(f'meta = "{folder}"')["cursors meta"][1].startswith(f"this user cannot write to {tmp_path}.")
    assert files.status == 1


def test_cursors_are_told_and_those_that_cannot_be_read(files: Files, tmp_path: Path) -> None:
    meta = canal.FileMeta(tmp_path)
    meta.start("orders")
    for offset in (400, 500):
        meta.subscribe(1001, "")
        meta.update_cursor(1001, canal.Position(journal="binlog.000007", offset=offset))
        meta.flush()
    text = f'meta = "{tmp_path}"'
    found = files.check(text)  # somebody runs it just now
    assert (files.status, found["cursors cursor"]) == (0, ("ok", "client 1001 is at binlog.000007:500"))
    meta.stop()

    path = tmp_path / "orders" / "meta.dat"
    path.write_bytes(path.read_bytes()[:-9])
    names = sorted(one.name for one in path.parent.iterdir())
    found = files.check(text)
    assert files.status == 0
    assert found["cursors cursor"] == ("ok", "client 1001 is at binlog.000007:400")
    path.with_name("meta.dat.bak").write_bytes(b"")
    found = files.check(text)
    assert files.status == 1
    assert found["cursors cursor"][0] == "error"
    assert "meta.dat cannot be used" in found["cursors cursor"][1]
    assert sorted(one.name for one in path.parent.iterdir()) == names


def test_cursors_in_memory_are_a_warning_unless_the_target_keeps_them(files: Files, tmp_path: Path) -> None:
    found = files.check("")
    assert files.status == 0
    assert found["cursors meta"] == (
        "warning",
        "cursors are kept in memory: each start begins at 'latest' again. "
        'Set meta = "/a/directory" to continue after the last ack.',
    )
    text = f'pipe = {{ target = {{ kind = "sqlite", path = "{tmp_path / "copy.db"}" }} }}'
    found = files.check(text)
    assert "cursors meta" not in found
    assert found["target file"] == ("ok", f"{tmp_path / 'copy.db'} is not there, and is made")
    assert not (tmp_path / "copy.db").exists()


def test_zookeeper_is_asked_and_nothing_is_made(files: Files, zookeeper: ZooKeeper) -> None:
    found = files.check_ha(zookeeper)
    assert files.status == 0
    assert found["zookeeper server"][0] == "ok"
    kind, text = found["zookeeper rights"]
    assert (kind, text.partition(" ")[2]) == ("ok", "is writable")
    assert found["zookeeper turns"] == ("ok", "no process has run the destination yet: the first creates its nodes")
    session = Session(zookeeper)
    session.open()
    assert session.wait_connected(30)
    assert session.rights(zookeeper.destination_path("orders")) is None

    config = canal.InstanceConfig(destination="orders", source=FakeBinlog(), ha=zookeeper)
    with canal.Instance(config) as instance:
        assert instance.wait_active(60)
        found = files.check_ha(zookeeper)
        assert (files.status, found["zookeeper rights"][0]) == (0, "ok")
        assert re.fullmatch(r".+ runs it, 0 stand by", found["zookeeper turns"][1])
    session.write([Set(zookeeper.destination_path("orders", "epoch"), b"no number")])
    found = files.check_ha(zookeeper)
    assert (files.status, found["zookeeper nodes"][0]) == (1, "error")
    session.close()


def test_a_zookeeper_that_is_not_there_or_refuses_is_an_error(files: Files, zookeeper: ZooKeeper) -> None:
    found = files.check('ha = { hosts = "127.0.0.1:1", session_timeout = 1.0 }')
    assert files.status == 1
    assert found["zookeeper server"][1].startswith("ZooKeeper at 127.0.0.1:1 does not answer: ")

    found = files.check(f'ha = {{ hosts = "{zookeeper.hosts}/nowhere/at/all" }}')
    assert files.status == 1
    assert found["zookeeper node"][1].endswith("zkCli.sh -server " + zookeeper.hosts + " create /nowhere/at/all")

    owner = attrs.evolve(zookeeper, auth=(("digest", f"canal:{SECRET}"),))
    config = canal.InstanceConfig(destination="orders", source=FakeBinlog(), ha=owner)
    with canal.Instance(config) as instance:
        assert instance.wait_active(60)
    found = files.check_ha(zookeeper)
    assert files.status == 1
    assert found["zookeeper rights"] == (
        "error",
        f"these credentials lack the rights cdrw on {zookeeper.destination_path('orders')}. Set auth to credentials in its ACL, "
        "or let the owner change the ACL (setAcl).",
    )
    found = files.check_ha(zookeeper, f', auth = [["digest", "canal:{SECRET}"]]')
    assert (files.status, found["zookeeper rights"][0]) == (0, "ok")
