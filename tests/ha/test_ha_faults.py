"""ZooKeeper refuses, forgets, holds rubbish or says nothing: no process is ever out of the election in silence."""

from __future__ import annotations

import contextlib
import itertools
import logging
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from typing import Any

import attrs
import pytest
from kazoo import exceptions
from kazoo.client import KazooClient
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.security import OPEN_ACL_UNSAFE, make_digest_acl

import canal
from canal.ha import Role, nodes, running, troubles
from canal.meta import ZooKeeperMeta
from canal.testing import FakeBinlog, ZooKeeperServer
from canal.zookeeper.link import EnsembleLink
from canal.zookeeper.session import Create, Delete, Session, Set
from tests.support.ha_group import PATIENT, Group, close_session, data_of, ids_of, read
from tests.support.waiting import until

#: What ZooKeeper answers where all is well: a node is there or not, and is what it was or not.
ANSWERS = {exceptions.NoNodeError, exceptions.NodeExistsError, exceptions.BadVersionError, exceptions.NotEmptyError}
#: No answer: whoever gets it asks again, and nobody is told of it at once.
SILENCES = {
    exceptions.ConnectionLoss,
    exceptions.OperationTimeoutError,
    exceptions.SessionExpiredError,
    exceptions.ConnectionClosedError,
    exceptions.SessionMovedError,
    exceptions.UnknownSessionError,
    exceptions.RequestTimeoutError,
    exceptions.ConnectionDropped,
    exceptions.CancelledError,
    KazooTimeoutError,
    ConnectionResetError,
}
REFUSALS = (
    {
        *(kind for kind in vars(exceptions).values() if isinstance(kind, type) and issubclass(kind, exceptions.ZookeeperError)),
        exceptions.KazooException,
        exceptions.ConfigurationError,
        exceptions.SASLException,
        RuntimeError,
        TypeError,
        KeyError,
        ValueError,
        AssertionError,
        RecursionError,
        MemoryError,
        struct.error,
    }
    - ANSWERS
    - SILENCES
)


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


@pytest.fixture
def group(zookeeper_server: ZooKeeperServer, zookeeper_root: str, stack: ExitStack) -> Group:
    return Group(zookeeper_server, zookeeper_root, stack)


# -- an exception at each call -----------------------------------------------------------------------------------------


class Faults:
    """Gives some calls to kazoo an exception, raised by the call itself or in the place of its answer."""

    def __init__(self) -> None:
        self.calls = 0
        self.wrong: Callable[[int], bool] = lambda number: False
        self.kind: type[Exception] = RuntimeError
        self.is_done = False  # ZooKeeper has done what was asked, and only its answer is lost
        self._lock = threading.Lock()

    def ask(self, handler: Any, genuine: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        with self._lock:
            self.calls += 1
            number = self.calls
        if not self.wrong(number):
            return genuine(*args, **kwargs)
        if self.is_done:
            genuine(*args, **kwargs).wait(60)
        if number % 3 == 0:
            raise self.kind("as injected")
        result = handler.async_result()
        result.set_exception(self.kind("as injected"))
        return result


class Wrapped:
    """A client of kazoo, or a transaction of it, whose calls may fail."""

    def __init__(self, genuine: Any, handler: Any, faults: Faults) -> None:
        self._genuine, self._handler, self._faults = genuine, handler, faults

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._genuine, name)
        if name.endswith("_async") and name != "start_async":
            return partial(self._faults.ask, self._handler, found)
        if name == "transaction":
            return lambda: Wrapped(found(), self._handler, self._faults)
        return found


@pytest.fixture
def faults(monkeypatch: pytest.MonkeyPatch) -> Faults:
    faults, make = Faults(), EnsembleLink.make

    def wrapped(link: EnsembleLink) -> Any:
        client = make(link)
        return Wrapped(client, client.handler, faults)

    monkeypatch.setattr(EnsembleLink, "make", wrapped)
    return faults


class Cycle:
    """Two processes: start, claim, deliver, ack, a lost session, a stop in order, a take-over and the end."""

    def __init__(self, group: Group) -> None:
        self.group = group
        group.log = FakeBinlog(metadata="MINIMAL")
        group.table = group.log.table("shop", "orders", "id INT PRIMARY KEY")
        self.errors: list[Exception] = []
        self.acked: set[int] = set()
        self.delivered: list[int] = []
        self.epochs: list[int] = []

    def run(self) -> None:
        options: dict[str, Any] = {"subscribe": False, "start": "earliest", "reconnect_backoff": (0.01, 0.05)}
        first = self.group.instance(**options)
        self.subscribe(first)
        self.consume(first, self.group.write(2))
        second = self.group.instance(**options)
        self.subscribe(second)
        close_session(first)
        self.consume(first, self.group.write(1), second)
        self.stop(first)
        self.consume(second, self.group.write(2))
        self.stop(second)

    def subscribe(self, instance: canal.Instance) -> None:
        until(lambda: self.answered(instance.subscribe))

    def answered(self, call: Callable[[], object]) -> bool:
        try:
            call()
        except canal.CanalError as error:
            self.errors.append(error)
            return False
        return True

    def consume(self, instance: canal.Instance, ids: list[int], other: canal.Instance | None = None) -> None:
        """Until they are acked; whichever of the processes it is that has the turn."""
        alternately = itertools.cycle([instance] if other is None else [instance, other])
        until(lambda: self.get(next(alternately)) or self.acked >= set(ids))
        for one in (instance, other):
            if one is not None and one.role is Role.ACTIVE:
                until(lambda: one._ha.error is None)  # type: ignore[union-attr]  # noqa: B023

    def get(self, instance: canal.Instance) -> None:
        assert instance._ha._stepper.is_alive  # type: ignore[union-attr]
        try:
            message = instance.get_without_ack(100, timeout=0.02)
            if message:
                self.delivered += ids_of(message)
                self.epochs.append(message.epoch)
                instance.ack(message.id)
                self.acked.update(ids_of(message))
        except canal.CanalError as error:
            self.errors.append(error)
            with contextlib.suppress(canal.CanalError):
                instance.rollback()
            if instance.error is not None:  # the parser has stopped, and has told so
                with contextlib.suppress(canal.CanalError):
                    instance.release()

    def stop(self, instance: canal.Instance) -> None:
        self.answered(instance.stop)
        assert instance.role is Role.OFFLINE

    def judge(self) -> None:
        first_seen = list(dict.fromkeys(self.delivered))
        assert first_seen == sorted(first_seen) == list(range(5))
        assert self.epochs == sorted(self.epochs)
        assert [thread.name for thread in threading.enumerate() if thread.name.startswith("canal-d-")] == []


def shares_of(full_size: bool) -> list[Callable[[int], tuple[type[Exception], bool]]]:
    """What the call of a number meets, and whether it was done: each of them one thing, with ``full_size`` everything."""
    kinds = [sorted(some, key=lambda kind: kind.__name__) for some in (ANSWERS, SILENCES, REFUSALS)]
    if not full_size:
        return [lambda number: (kinds[number % 3][number // 3 % len(kinds[number % 3])], bool(number % 2))]
    return [lambda number, kind=kind, done=done: (kind, done) for some in kinds for kind in some for done in (False, True)]  # type: ignore[misc]


@pytest.mark.timeout(7200)
def test_an_exception_at_each_call_of_a_turn_loses_nothing_and_is_told(
    zookeeper_server: ZooKeeperServer, zookeeper_root: str, faults: Faults, full_size: bool, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL, "canal")
    for round, share in enumerate(shares_of(full_size)):
        for number in itertools.count(1):
            faults.kind, faults.is_done = share(number)
            faults.calls, faults.wrong = 0, lambda call, number=number: call == number  # type: ignore[misc]
            with ExitStack() as stack:
                group = Group(zookeeper_server, f"{zookeeper_root}/{round}-{number}", stack)
                group.config = attrs.evolve(group.config, takeover_delay=0.05)
                cycle = Cycle(group)
                try:
                    cycle.run()
                    cycle.judge()
                except BaseException as error:
                    error.add_note(f"call {number}: {faults.kind.__name__}; alarms {group.alarms}; errors {cycle.errors}")
                    raise
                assert all(isinstance(error, canal.CanalError) for error in cycle.errors)
                if faults.calls < number:
                    break
                if faults.kind in REFUSALS:
                    assert group.alarms or cycle.errors, (number, faults.kind)
        assert number > 50


def test_a_claim_ends_the_alarm_about_an_epoch_that_the_standby_could_not_read(
    group: Group, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = group.instance()
    assert first.wait_active(60)
    monkeypatch.setattr(troubles, "_FIRST_WAIT", 60.0)  # no second look before the claim
    with monkeypatch.context() as patch:
        patch.setattr(running, "read_epoch", refuse)
        second = group.instance(subscribe=False)
        ha = second._ha
        assert ha is not None
        until(lambda: told(group, "cannot read how often"))

    first.stop()
    assert second.wait_active(60)
    until(lambda: ha.error is None)


def refuse(*_: object) -> int:
    raise canal.CoordinationError("as injected")


# -- causes that last --------------------------------------------------------------------------------------------------


def told(group: Group, text: str) -> list[str]:
    return [alarm for alarm in group.alarms if text in alarm and not alarm.is_over]  # type: ignore[attr-defined]


def is_refused(instance: canal.Instance, text: str) -> None:
    """Whoever asks gets a typed error that says why."""
    with pytest.raises(canal.CoordinationError, match=text):
        instance.subscribe(timeout=0.2)
    assert isinstance(instance.status().last_error, canal.CoordinationError)
    assert not instance.get_without_ack(timeout=0.05)


def recovers(group: Group, instance: canal.Instance) -> None:
    ha = instance._ha
    assert ha is not None
    until(lambda: ha.transitions[Role.ACTIVE] or hurried(ha))
    until(lambda: ha.error is None or hurried(ha))
    assert any("over: this process takes its turns as it should" in alarm for alarm in group.alarms)
    instance.subscribe()
    group.write(1)
    instance.ack(read(instance, 1).id)


def hurried(ha: running.RunningMonitor) -> None:
    """What waits for its next attempt need not."""
    if ha._due is not None:
        ha._events.put(running.Event.DUE)


def admin(group: Group) -> KazooClient:
    client = KazooClient(hosts=group.config.hosts.partition("/")[0])
    client.start(60)
    group._stack.callback(client.close)
    group._stack.callback(client.stop)
    return client


@pytest.mark.parametrize("kind", [RuntimeError, SystemExit])
@pytest.mark.parametrize("deed", ["_look", "_claim", "_mark"])
def test_what_nobody_expects_of_a_deed_is_told_and_the_deed_done_again(
    group: Group, monkeypatch: pytest.MonkeyPatch, deed: str, kind: type[BaseException]
) -> None:
    """A fault of the library's own, say."""
    genuine, errors = getattr(running.RunningMonitor, deed), [kind("as injected")]

    def broken(monitor: running.RunningMonitor, **options: Any) -> Any:
        if errors:
            raise errors.pop()
        return genuine(monitor, **options)

    monkeypatch.setattr(running.RunningMonitor, deed, broken)
    instance = group.instance(subscribe=False)
    instance.subscribe(timeout=60)
    until(lambda: told(group, "as injected"))
    recovers(group, instance)


def test_a_chroot_that_is_not_there(group: Group, zookeeper_root: str) -> None:
    chroot = f"{zookeeper_root}-no/chroot"  # of one level only kazoo makes it
    group.config = attrs.evolve(group.config, hosts=f"{group.config.hosts}{chroot}", root="/canal")
    instance = group.instance(subscribe=False)
    until(lambda: told(group, "what is above it is not there"))
    is_refused(instance, "cannot make /canal/")
    admin(group).create(chroot, makepath=True)
    recovers(group, instance)


def test_rights_that_are_missing_are_told_once_and_asked_for_ever_more_rarely(group: Group, faults: Faults) -> None:
    client = admin(group)
    client.ensure_path(group.path())
    client.set_acls(group.path(), [make_digest_acl("operator", "x", all=True)])
    instance = group.instance(subscribe=False)
    until(lambda: told(group, "NoAuthError"))
    is_refused(instance, "NoAuthError")
    ha = instance._ha
    assert ha is not None
    until(lambda: faults.calls > 8)
    assert max(ha._troubles.counts.values()) < 12
    assert len(told(group, "NoAuthError")) == len(set(told(group, "NoAuthError"))) <= 3
    client.add_auth("digest", "operator:x")
    client.set_acls(group.path(), OPEN_ACL_UNSAFE)
    recovers(group, instance)


def test_waits_grow_up_to_a_minute() -> None:
    waits = [troubles.wait_of(number) for number in range(1, 2000)]
    assert waits[:4] == [0.5, 1.0, 2.0, 4.0]
    assert waits == sorted(waits)
    assert waits[-1] == 60.0


def test_credentials_that_are_refused(group: Group, monkeypatch: pytest.MonkeyPatch) -> None:
    """ZooKeeper hangs up, and kazoo ends its work for good."""
    good = group.config
    group.config = attrs.evolve(group.config, auth=(("nosuch", "user:password"),))
    instance = group.instance(subscribe=False)
    until(lambda: told(group, "AuthFailedError"))
    is_refused(instance, "AuthFailedError")
    assert "password" not in "".join(group.alarms)
    ha = instance._ha
    assert ha is not None
    ha.session._link.config = good  # type: ignore[union-attr]  # as if ZooKeeper had learned the scheme
    until(lambda: ha.session.is_connected)
    recovers(group, instance)


@pytest.mark.parametrize("text", [b"seven", b"-1", "٣".encode(), b"1" * 5000, b"[" * 100_000])
def test_an_epoch_that_is_no_number(group: Group, faults: Faults, text: bytes) -> None:
    client = admin(group)
    client.ensure_path(group.path())
    client.create(group.path("epoch"), text)
    instance = group.instance(subscribe=False)
    until(lambda: told(group, "no number of take-overs"))
    is_refused(instance, "no number of take-overs")
    assert faults.calls < 100
    client.set(group.path("epoch"), b"41")
    recovers(group, instance)
    assert instance._ha.fence.epoch == 42  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "data", [b"", b"{", b"[]", b"null", b"7", b'"text"', b"{}", b"\xff", b"[" * 100_000, b'{"address":' * 50_000, b"9" * 5000]
)
def test_a_running_node_that_nobody_can_read(group: Group, data: bytes) -> None:
    session = group.session()
    session.make(group.path())
    session.write([Create(group.path("running"), data, ephemeral=True)])
    instance = group.instance(subscribe=False)
    until(lambda: told(group, "nobody can tell who runs the destination"))
    is_refused(instance, "running holds")
    session.close()
    recovers(group, instance)
    owner = instance._ha
    assert owner is not None
    group.session().write([Set(group.path("running"), data)])  # its own too
    until(lambda: owner.error is not None)
    group.write(1)
    instance.ack(read(instance, 1).id)


def test_a_running_node_that_lives_by_no_session(group: Group) -> None:
    """Somebody has made it by hand: nobody ever removes it."""
    session = group.session()
    session.make(group.path())
    session.write([Create(group.path("running"), nodes.running_document("somebody:1"))])
    instance = group.instance(subscribe=False)
    until(lambda: told(group, "lives by no session"))
    is_refused(instance, "lives by no session")
    session.write([Delete(group.path("running"))])
    recovers(group, instance)


def test_a_zookeeper_that_is_away_for_longer_than_a_session_lives_is_told(
    own_zookeeper: ZooKeeperServer, zookeeper_root: str, stack: ExitStack
) -> None:
    group = Group(own_zookeeper, zookeeper_root, stack)
    group.config = attrs.evolve(group.config, session_timeout=1.0)
    own_zookeeper.kill()
    instance = group.instance(subscribe=False)
    until(lambda: told(group, "there is no contact with ZooKeeper"))
    assert "refused" in group.alarms[0]
    is_refused(instance, "refused")
    own_zookeeper.start()
    recovers(group, instance)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_kazoo_that_ends_for_a_reason_of_its_own_is_begun_anew(group: Group, monkeypatch: pytest.MonkeyPatch) -> None:
    instance = group.instance()
    ha = instance._ha
    assert ha is not None
    client = ha.session._client

    def broken(*arguments: Any) -> None:
        raise RuntimeError("as injected")

    monkeypatch.setattr(client._connection, "_read_socket", broken)
    until(lambda: ha.session._client is not client)
    until(lambda: ha.transitions[Role.ACTIVE] == 2)
    assert instance.wait_active(60)
    group.write(1)
    instance.ack(read(instance, 1).id)


def test_with_credentials_a_destination_that_was_open_becomes_theirs(group: Group) -> None:
    """What others were let do before they are not any more, and are told so; who has the credentials goes on."""
    anybody = group.instance()
    group.write(1)
    anybody.ack(read(anybody, 1).id)
    anybody.stop()
    open_to_all, own = group.config, (("digest", "cdc:s3cret-of-cdc"),)
    group.config = attrs.evolve(group.config, auth=own)
    owner = group.instance()
    group.write(1)
    owner.ack(read(owner, 1).id)
    client = admin(group)
    for node in ("1001/cursor", "1001/running", "epoch", "running"):
        with pytest.raises(exceptions.NoAuthError):
            client.set(group.path(*node.split("/")), b"")
    with pytest.raises(exceptions.NoAuthError):
        client.set(f"{open_to_all.root}/epochs/d", b"")
    heir = group.instance(zookeeper={"takeover_delay": 0.05})
    owner.stop()
    group.write(1)
    assert ids_of(read(heir, 1)) == [2]
    assert group.alarms == []
    group.config = open_to_all
    group.instance(subscribe=False)
    until(lambda: told(group, "NoAuthError"))
    assert "s3cret" not in "".join(group.alarms)


def test_a_session_that_is_begun_anew_is_lost_before_it_can_connect(group: Group, monkeypatch: pytest.MonkeyPatch) -> None:
    """Told the other way round, it would be taken for lost for ever."""
    states: list[str] = []
    session = Session(attrs.evolve(group.config, hosts="127.0.0.1:1", session_timeout=0.01), states.append)
    launch = EnsembleLink._launch
    monkeypatch.setattr(EnsembleLink, "_launch", lambda link: (link._listen("CONNECTED"), launch(link))[1])
    session.open()
    until(lambda: session.revive() or len(states) >= 3)
    session.close()
    assert states[:3] == ["CONNECTED", "LOST", "CONNECTED"]


def test_a_monitor_that_was_not_told_of_its_contact_finds_it(group: Group) -> None:
    group.config = attrs.evolve(group.config, session_timeout=6.0)
    instance = group.instance()
    ha = instance._ha
    assert ha is not None
    ha._events.put(running.Event.LOST)
    until(lambda: ha.transitions[Role.CONNECTING] == 2)
    assert instance.wait_active(60)


# -- nodes that an operator deletes ------------------------------------------------------------------------------------


def delete_at_once(client: KazooClient, path: str) -> None:
    """With all that is below it: nothing is made anew meanwhile."""

    def nodes(path: str) -> Iterator[str]:
        for child in client.get_children(path):
            yield from nodes(f"{path}/{child}")
        yield path

    def is_done() -> bool:
        transaction = client.transaction()
        for node in nodes(path):
            transaction.delete(node)
        return all(result is True for result in transaction.commit())

    until(is_done)


def test_a_destination_that_is_deleted_under_its_owner_goes_on_from_the_cursor_that_it_knows(group: Group) -> None:
    owner = group.instance(start="latest")
    other = group.instance(start="latest", zookeeper=PATIENT)
    group.write(2)
    owner.ack(read(owner, 2).id)
    group.write(1)
    first = read(owner, 1)
    delete_at_once(admin(group), group.path())
    until(lambda: owner._ha.transitions[Role.ACTIVE] == 2)  # type: ignore[union-attr]
    assert owner.wait_active(60)
    group.write(2)
    message = read(owner, 3)
    assert ids_of(message) == [2, 3, 4]
    assert message.epoch > first.epoch
    owner.ack(message.id)
    assert told(group, "the cursor of client 1001 was deleted while this process had the turn: it goes on from")
    assert told(group, "somebody has deleted nodes of the destination")
    assert other.role is not Role.ACTIVE


def test_a_cursor_that_is_deleted_while_nobody_runs_begins_anew(group: Group) -> None:
    owner = group.instance(start="earliest")
    group.write(1)
    owner.ack(read(owner, 1).id)
    owner.stop()
    admin(group).delete(group.path("1001", "cursor"))
    owner.start()
    owner.subscribe()
    assert ids_of(read(owner, 1)) == [0]
    assert group.alarms == []


def test_a_zookeeper_that_comes_back_empty(own_zookeeper: ZooKeeperServer, zookeeper_root: str, stack: ExitStack) -> None:
    group = Group(own_zookeeper, zookeeper_root, stack)
    group.config = attrs.evolve(group.config, session_timeout=4.0)
    owner = group.instance(start="latest")
    other = group.instance(start="latest", zookeeper=PATIENT)
    group.write(2)
    first = read(owner, 2)
    owner.ack(first.id)
    own_zookeeper.stop()
    own_zookeeper.start()
    group.write(1)
    message = read(owner, 1)
    assert message.epoch > first.epoch
    owner.ack(message.id)
    assert told(group, "somebody has deleted nodes of the destination")
    assert told(group, "it goes on from")
    assert other.role is not Role.ACTIVE


@pytest.mark.parametrize("by", ["itself", "who stood by", "who came later"])
def test_the_fence_survives_that_the_epoch_is_deleted(group: Group, by: str) -> None:
    """Its version begins anew, and so would the number: a write that comes late is refused all the same."""
    owner = group.instance(zookeeper={} if by == "itself" else PATIENT)
    heir = group.instance(zookeeper={"takeover_delay": 0.05}) if by == "who stood by" else None
    fence = owner._ha.fence  # type: ignore[union-attr]
    assert fence is not None
    group.write(1)
    first = read(owner, 1)
    late = ZooKeeperMeta(group.session())
    late.bind(late._nodes._given, lambda: fence)  # type: ignore[arg-type]
    late.start("d")
    stored = late.cursor(1001)
    delete_at_once(admin(group), group.path("epoch"))
    if by == "itself":
        with pytest.raises(canal.NotActiveError):
            owner.ack(first.id)  # who has the turn is sure of it no more
    else:
        owner.release()
        heir = heir or group.instance(zookeeper={"takeover_delay": 0.05})
    instance = heir or owner
    again = read(instance, 1)
    assert (ids_of(again), again.epoch) == ([0], 2)
    assert instance._ha.fence.version == fence.version  # type: ignore[union-attr]
    with pytest.raises(canal.NotActiveError):
        late.update_cursor(1001, again.position)
    assert late.cursor(1001) == stored
    instance.ack(again.id)
    assert told(group, "somebody has deleted nodes of the destination")
    assert data_of(group.session(), group.path("epoch")) == b"2"


# -- the end -----------------------------------------------------------------------------------------------------------


def test_a_server_stops_all_at_once_though_zookeeper_says_nothing(
    own_zookeeper: ZooKeeperServer, zookeeper_root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One after the other, or with a wait for the end of the session, it would take many minutes."""
    names = [f"d{number}" for number in range(20)]
    config = canal.ZooKeeper(hosts=own_zookeeper.hosts, root=zookeeper_root, session_timeout=60.0)
    server = canal.Server(
        canal.InstanceConfig(destination=name, source=FakeBinlog(), ha=config, start="earliest") for name in names
    )
    for name in names:
        server.instance(name).subscribe()
    together, stop = threading.Barrier(len(names)), canal.Instance.stop

    def stop_with_others(instance: canal.Instance) -> None:
        together.wait(60)
        stop(instance)

    monkeypatch.setattr(canal.Instance, "stop", stop_with_others)
    own_zookeeper.pause()
    ended = threading.Thread(target=server.stop, daemon=True)
    ended.start()
    ended.join(60)
    assert not ended.is_alive()
    assert server.destinations() == []
