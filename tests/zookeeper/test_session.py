"""The session against real ZooKeeper servers."""

from __future__ import annotations

import logging
import socket
import time
from collections.abc import Callable, Iterator
from typing import TypeVar

import pytest
from kazoo.security import make_digest_acl

from canal.errors import ConfigError, CoordinationError, NotActiveError
from canal.testing import ZooKeeperEnsemble, ZooKeeperServer
from canal.testing.proxy import FaultProxy
from canal.zookeeper.session import Create, Delete, Fence, NodeExists, NodeMissing, Session, Set, Value, VersionChanged, ZooKeeper
from tests.support.ha_group import end_session

Open = Callable[..., Session]
Answer = TypeVar("Answer")


def wait_until(done: Callable[[], object], timeout: float = 120.0) -> None:
    deadline = time.monotonic() + timeout
    while not done():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def answered(call: Callable[[], Answer]) -> Answer:
    """What the call gives, once ZooKeeper answers."""
    deadline = time.monotonic() + 60
    while True:
        try:
            return call()
        except CoordinationError:
            assert time.monotonic() < deadline


@pytest.fixture
def opened() -> Iterator[Open]:
    """A function that opens sessions, closed when the test is over."""
    sessions = []

    def make(hosts: str, changed: Callable[[str], None] = lambda state: None, **options: object) -> Session:
        session = Session(ZooKeeper(hosts=hosts, **{"session_timeout": 30.0, **options}), changed)  # type: ignore[arg-type]
        sessions.append(session)
        session.open()
        assert session.wait_connected(60)
        return session

    yield make
    for session in sessions:
        session.close()


@pytest.fixture
def session(opened: Open, zookeeper_server: ZooKeeperServer, zookeeper_root: str) -> Session:
    session = opened(zookeeper_server.hosts, root=zookeeper_root)
    session.make(zookeeper_root)
    return session


@pytest.fixture
def root(session: Session) -> str:
    return session.config.root


def test_values_have_versions(session: Session, root: str) -> None:
    assert session.get(f"{root}/a") is None
    assert session.write([Create(f"{root}/a", b"1"), Create(f"{root}/a/b"), Set(f"{root}/a", b"2")]) == [0, 0, 1]
    assert session.get(f"{root}/a") == Value(b"2", 1)
    assert session.get(f"{root}/a/b") == Value(b"", 0)
    assert session.children(root) == ["a"]
    assert session.children(f"{root}/a/none") == []
    session.make(f"{root}/a/c/d")
    assert session.children(f"{root}/a") == ["b", "c"]


@pytest.mark.parametrize(
    ("write", "error"),
    [
        (lambda root: Create(f"{root}/a"), NodeExists),
        (lambda root: Create(f"{root}/none/a"), NodeMissing),
        (lambda root: Set(f"{root}/none", b""), NodeMissing),
        (lambda root: Set(f"{root}/a", b"", 7), VersionChanged),
        (lambda root: Delete(f"{root}/none"), NodeMissing),
        (lambda root: Delete(f"{root}/a", 7), VersionChanged),
        (lambda root: Delete(f"{root}/a"), VersionChanged),  # it has a child
    ],
)
def test_a_transaction_is_done_whole_or_not_at_all(
    session: Session, root: str, write: Callable[[str], Create | Set | Delete], error: type[Exception]
) -> None:
    session.write([Create(f"{root}/a", b"1"), Create(f"{root}/a/b"), Create(f"{root}/epoch")])
    for fence in (None, Fence(f"{root}/epoch", 0, 0)):
        with pytest.raises(error):
            session.write([Set(f"{root}/a", b"2"), write(root), Create(f"{root}/c")], fence)
    assert session.get(f"{root}/a") == Value(b"1", 0)
    assert session.children(root) == ["a", "epoch"]


def test_a_raised_epoch_shuts_others_out(session: Session, root: str) -> None:
    epoch = f"{root}/epoch"
    session.write([Create(epoch, b"1"), Create(f"{root}/a", b"old")])
    fence = Fence(epoch, 0, 1)
    session.write([Set(f"{root}/a", b"new")], fence)
    session.write([Set(epoch, b"2")])
    with pytest.raises(NotActiveError):
        session.write([Set(f"{root}/a", b"late")], fence)
    with pytest.raises(NotActiveError):
        session.write([Set(f"{root}/none", b"late")], fence)
    assert session.get(f"{root}/a") == Value(b"new", 1)
    session.write([Delete(epoch)])
    with pytest.raises(NotActiveError):
        session.write([Set(f"{root}/a", b"late")], fence)


def test_an_ephemeral_node_lives_by_its_session(session: Session, opened: Open, root: str) -> None:
    other = opened(session.config.hosts, root=root)
    other.write([Create(f"{root}/e", b"x", ephemeral=True)])
    assert session.get(f"{root}/e") == Value(b"x", 0, other.id)
    assert other.id not in (0, session.id)
    other.close()
    assert session.get(f"{root}/e") is None
    assert other.id == 0
    with pytest.raises(CoordinationError):
        other.get(root)


def test_a_watch_tells_of_a_node_made_changed_and_gone(session: Session, opened: Open, root: str) -> None:
    other = opened(session.config.hosts)
    told: list[None] = []
    steps: list[Create | Set | Delete] = [Create(f"{root}/w"), Set(f"{root}/w", b"1"), Delete(f"{root}/w"), Create(f"{root}/w")]
    for number, write in enumerate(steps, start=1):
        session.get(f"{root}/w", lambda: told.append(None))
        other.write([write])
        wait_until(lambda number=number: len(told) == number)
    other.write([Set(f"{root}/w", b"2")])
    session.get(root)
    assert len(told) == len(steps)  # each tells once


def test_a_session_closed_by_id_is_lost_and_made_anew(
    opened: Open, zookeeper_server: ZooKeeperServer, zookeeper_root: str
) -> None:
    states: list[str] = []
    session = opened(zookeeper_server.hosts, states.append)
    session.make(zookeeper_root)
    session.write([Create(f"{zookeeper_root}/e", ephemeral=True)])
    told: list[None] = []
    session.get(f"{zookeeper_root}/e", lambda: told.append(None))
    before = session.id
    end_session(session)
    wait_until(lambda: states[-1:] == ["CONNECTED"] and "LOST" in states)
    assert states == ["CONNECTED", "SUSPENDED", "LOST", "CONNECTED"]
    assert session.id not in (0, before)
    assert session.get(f"{zookeeper_root}/e") is None
    wait_until(lambda: told)  # whoever watches looks again


def test_a_server_that_accepts_and_never_answers_costs_no_session(opened: Open, zookeeper_server: ZooKeeperServer) -> None:
    """As ZooKeeper does with some that connect while it starts."""
    with FaultProxy("127.0.0.1", zookeeper_server.port) as proxy, socket.create_server(("127.0.0.1", 0)) as silent:
        session = opened(f"{proxy.host}:{proxy.port}", session_timeout=24.0)
        before = session.id
        proxy.retarget(*silent.getsockname())
        proxy.cut()
        with silent.accept()[0]:
            proxy.retarget("127.0.0.1", zookeeper_server.port)
            wait_until(lambda: session.is_connected)
        assert session.id == before


def test_a_server_that_is_killed_and_started_again_keeps_session_and_values(opened: Open, own_zookeeper: ZooKeeperServer) -> None:
    states: list[str] = []
    session = opened(own_zookeeper.hosts, states.append, session_timeout=20.0)
    session.write([Create("/a", b"1"), Create("/e", ephemeral=True)])
    before = session.id
    own_zookeeper.kill()
    wait_until(lambda: not session.is_connected)
    own_zookeeper.start()
    assert session.wait_connected(60)
    assert session.id == before
    assert session.get("/a") == Value(b"1", 0)
    assert session.get("/e") == Value(b"", 0, before)
    wait_until(lambda: states[-1] == "CONNECTED")
    assert states == ["CONNECTED", "SUSPENDED", "CONNECTED"]


def test_a_silent_server_is_an_error_in_time(opened: Open, own_zookeeper: ZooKeeperServer) -> None:
    opened(own_zookeeper.hosts).write([Create("/a", b"old")])
    session = opened(own_zookeeper.hosts, session_timeout=1.0)
    own_zookeeper.pause()
    for call in (
        lambda: session.write([Set("/a", b"new")]),
        lambda: session.get("/a"),
        lambda: session.children("/"),
        lambda: session.make("/b"),
    ):
        with pytest.raises(CoordinationError, match=own_zookeeper.hosts):
            call()
    own_zookeeper.resume()
    value = answered(lambda: session.get("/a"))
    assert value is not None
    assert value.data in (b"old", b"new")  # its outcome was unknown
    answered(lambda: session.write([Set("/a", b"next")]))
    assert answered(lambda: session.get("/a")).data == b"next"  # type: ignore[union-attr]


@pytest.mark.parametrize("act", [ZooKeeperServer.pause, ZooKeeperServer.kill])
def test_a_session_can_be_closed_whatever_its_server_does(
    opened: Open, own_zookeeper: ZooKeeperServer, act: Callable[[ZooKeeperServer], None]
) -> None:
    session = opened(own_zookeeper.hosts, session_timeout=1.0)
    act(own_zookeeper)
    session.close()
    wait_until(lambda: not session.is_connected)
    session.close()


def test_no_server_is_an_error(zookeeper_server: ZooKeeperServer) -> None:
    session = Session(ZooKeeper(hosts="127.0.0.1:1", session_timeout=0.5))
    session.open()
    assert not session.wait_connected(0.2)
    with pytest.raises(CoordinationError, match=r"127\.0\.0\.1:1"):
        session.get("/a")
    session.close()


def test_its_client_library_logs_no_attempt(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    session = Session(ZooKeeper(hosts="127.0.0.1:1", session_timeout=1.0))
    session.open()
    assert not session.wait_connected(0.5)
    session.close()
    assert [record.getMessage() for record in caplog.records if "kazoo" in record.name] == []


def test_the_servers_limit_of_the_session_counts(opened: Open, zookeeper_server: ZooKeeperServer) -> None:
    for wanted, given in ((100.0, 60.0), (20.0, 20.0)):
        session = opened(zookeeper_server.hosts, session_timeout=wanted)
        session.children("/")
        assert session.timeout == pytest.approx(given)


def test_digest_opens_what_is_kept_for_its_user(opened: Open, zookeeper_server: ZooKeeperServer, zookeeper_root: str) -> None:
    acl = make_digest_acl("cdc", "secret", all=True)
    named = opened(zookeeper_server.hosts, auth=(("digest", "cdc:secret"),), options={"default_acl": [acl]})
    path = zookeeper_root.rpartition("/")[2] + "-digest"
    named.write([Create(f"/{path}", b"1")])
    assert named.get(f"/{path}") == Value(b"1", 0)
    other = opened(zookeeper_server.hosts)
    for call in (lambda: other.get(f"/{path}"), lambda: other.write([Set(f"/{path}", b"2")])):
        with pytest.raises(CoordinationError) as caught:
            call()
        assert not isinstance(caught.value, NotActiveError)
    assert "secret" not in repr(named.config)


def test_an_ensemble_loses_its_leader_and_no_value(opened: Open, own_ensemble: ZooKeeperEnsemble) -> None:
    session = opened(own_ensemble.hosts)
    session.write([Create("/a", b"0")])
    before = session.id
    leader = own_ensemble.leader()
    for number in range(1, 30):
        if number == 10:
            leader.kill()
        answered(lambda number=number: session.write([Set("/a", str(number).encode())]))  # type: ignore[misc]
    assert session.get("/a").data == b"29"  # type: ignore[union-attr]
    assert session.id == before
    leader.start()
    assert own_ensemble.leader() is not leader


# -- rights and credentials ----------------------------------------------------------------------------------------------

DIGEST = (("digest", "cdc:s3cret-of-cdc"),)


def acls(session: Session, path: str) -> list[object]:
    found: list[object] = session._client.get_acls(path)[0]
    return found


def test_with_credentials_nodes_are_their_creators(opened: Open, zookeeper_server: ZooKeeperServer, zookeeper_root: str) -> None:
    opened(zookeeper_server.hosts).make(zookeeper_root)
    named = opened(zookeeper_server.hosts, auth=DIGEST)
    named.make(f"{zookeeper_root}/a/b")
    named.write([Create(f"{zookeeper_root}/a/c", b"1"), Create(f"{zookeeper_root}/a/e", ephemeral=True)])
    same, other, open_ = (
        opened(zookeeper_server.hosts, auth=auth, acl=acl)
        for auth, acl in ((DIGEST, "creator"), ((("digest", "x:y"),), "creator"), (DIGEST, "open"))
    )
    assert same.get(f"{zookeeper_root}/a/c") == Value(b"1", 0)
    for call in (
        lambda: other.get(f"{zookeeper_root}/a/c"),
        lambda: other.children(f"{zookeeper_root}/a"),
        lambda: other.write([Set(f"{zookeeper_root}/a/c", b"2")]),
        lambda: other.write([Delete(f"{zookeeper_root}/a/b")]),
        lambda: other.make(f"{zookeeper_root}/a/d"),
    ):
        with pytest.raises(CoordinationError, match="NoAuthError"):
            call()
    open_.make(f"{zookeeper_root}/open")
    assert other.get(f"{zookeeper_root}/open") == Value(b"", 0)


def test_nodes_that_are_open_become_the_creators(opened: Open, zookeeper_server: ZooKeeperServer, zookeeper_root: str) -> None:
    """Those that somebody has given rights of his own keep them."""
    anybody = opened(zookeeper_server.hosts)
    for name in ("d/1001/cursor", "d/schema/0000000001", "d/epoch", "other"):
        anybody.make(f"{zookeeper_root}/{name}")
    own = [make_digest_acl("somebody", "x", read=True), make_digest_acl("cdc", "s3cret-of-cdc", all=True)]
    anybody._client.set_acls(f"{zookeeper_root}/d/schema", own)
    named = opened(zookeeper_server.hosts, auth=DIGEST)
    for _ in range(2):
        named.protect(f"{zookeeper_root}/d")
    creator = acls(named, f"{zookeeper_root}/d")
    assert [acl.id.scheme for acl in creator] == ["digest"]  # type: ignore[attr-defined]
    assert acls(named, f"{zookeeper_root}/d/1001/cursor") == acls(named, f"{zookeeper_root}/d/epoch") == creator
    assert acls(named, f"{zookeeper_root}/d/schema") == own
    assert anybody.get(f"{zookeeper_root}/other") is not None
    with pytest.raises(CoordinationError, match="NoAuthError"):
        anybody.get(f"{zookeeper_root}/d/1001/cursor")
    named.protect(f"{zookeeper_root}/none")


def test_credentials_are_in_no_log_and_no_error(
    opened: Open, zookeeper_server: ZooKeeperServer, zookeeper_root: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Nor is what a session could be taken over with."""
    caplog.set_level(1)
    caplog.set_level(1, "canal.ha.kazoo")
    session = opened(zookeeper_server.hosts, auth=DIGEST)
    session.make(zookeeper_root)
    secret = session._client._session_passwd
    assert "Sending request" in caplog.text
    told = caplog.text + repr(session.config) + str(session.config) + repr(session)
    for wrong in ("digest", ("digest", "cdc:s3cret-of-cdc"), ((b"digest", "cdc:s3cret-of-cdc"),), (("cdc:s3cret-of-cdc",),)):
        with pytest.raises(ConfigError, match="pairs") as caught:
            ZooKeeper(hosts="h", auth=wrong)  # type: ignore[arg-type]
        told += str(caught.value)
    for form in ("s3cret", repr(secret), secret.hex()):
        assert form not in told


@pytest.mark.parametrize(
    ("options", "told"), [({"acl": "mine"}, "acl of ZooKeeper"), ({"hosts": "zk:abc"}, "cannot be used as configured")]
)
def test_options_that_cannot_be_are_refused_before_anything_starts(options: dict[str, object], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        Session(ZooKeeper(**{"hosts": "h", **options})).check()  # type: ignore[arg-type]


# -- sessions that share a connection ----------------------------------------------------------------------------------


def shared(server: ZooKeeperServer, claim: str, changed: Callable[[str], None] = lambda state: None) -> Session:
    session = Session(ZooKeeper(hosts=server.hosts, session_timeout=30.0), changed, claim=claim)
    session.open()
    assert session.wait_connected(60)
    return session


def test_sessions_share_a_connection_but_for_those_of_one_claim(zookeeper_server: ZooKeeperServer) -> None:
    told: list[str] = []
    sessions = [shared(zookeeper_server, claim, told.append) for claim in ("/one", "/two", "", "", "/one")]
    ids = [session.id for session in sessions]
    assert len(set(ids[:4])) == 1
    assert ids[4] != ids[0]
    assert told == ["CONNECTED"] * 5
    for session in sessions:
        session.close()


def test_nodes_of_a_session_go_when_it_is_closed_though_its_connection_stays(
    opened: Open, own_zookeeper: ZooKeeperServer
) -> None:
    observer = opened(own_zookeeper.hosts)
    first, second = shared(own_zookeeper, "/one"), shared(own_zookeeper, "/two")
    first.write([Create("/first", ephemeral=True)])
    second.write([Create("/second", ephemeral=True), Create("/late", ephemeral=True)])
    first.close()
    assert observer.get("/first") is None
    assert observer.get("/second") is not None
    second_link = second._link
    third = shared(own_zookeeper, "/three")
    assert third._link is second_link
    own_zookeeper.kill()
    wait_until(lambda: not second.is_connected)
    second.close()
    own_zookeeper.start()
    assert third.wait_connected(60)
    wait_until(lambda: answered(lambda: observer.get("/late")) is None)
    third.close()
