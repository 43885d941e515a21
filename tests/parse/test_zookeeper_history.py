"""The schema history in ZooKeeper: take-overs, crashes in mid write, its nodes, and a standby that goes on with it."""

from __future__ import annotations

import random
import string
import zlib
from collections.abc import Iterator
from typing import Any

import pytest

import canal
from canal.parse.schema import zookeeper_history
from canal.testing.fake import FakeBinlog
from canal.testing.zookeeper import ZooKeeperServer
from canal.zookeeper.session import Create, Delete, Fence, Session, Set, ZooKeeper

T = ("s", "t")


def at(offset: int) -> canal.Position:
    return canal.Position(journal="log.000001", offset=offset)


@pytest.fixture
def config(zookeeper_server: ZooKeeperServer, zookeeper_root: str) -> ZooKeeper:
    return ZooKeeper(hosts=zookeeper_server.hosts, root=zookeeper_root, session_timeout=30.0)  # outlasts a stall of 20 s


@pytest.fixture
def session(config: ZooKeeper) -> Iterator[Session]:
    made = Session(config)
    made.open()
    assert made.wait_connected(30)
    yield made
    made.close()


@pytest.fixture
def alone(config: ZooKeeper) -> Iterator[canal.parse.ZooKeeperHistory]:
    made = canal.parse.ZooKeeperHistory(config, keep_days=-1)
    made.open("x")
    yield made
    made.close()


class Turn:
    """A process that has taken the destination over."""

    def __init__(self, session: Session) -> None:
        path = session.config.destination_path("x", "epoch")
        session.make(path)
        (version,) = session.write([Set(path, b"")])
        self.fence: Fence | None = Fence(path, version, version)
        self.history = canal.parse.ZooKeeperHistory(session.config, keep_days=-1)
        self.history.bind(session, lambda: self.fence)
        self.history.open("x")


def large(count: int = 300) -> dict[Any, Any]:
    """Tables that do not compress."""
    rng = random.Random(count)
    return {("s", f"t{n}"): {"columns": ["".join(rng.choices(string.printable, k=300))]} for n in range(count)}


def test_who_takes_over_goes_on_with_what_was_written_and_who_comes_late_writes_nothing(session: Session) -> None:
    first = Turn(session)
    first.history.add(at(1), {T: {"n": 1}}, {"a": 1})
    second = Turn(session)

    with pytest.raises(canal.NotActiveError):
        first.history.add(at(2), {T: {"n": 2}}, None)
    with pytest.raises(canal.NotActiveError):
        first.history.add(at(2), large(), None)
    with pytest.raises(canal.NotActiveError):
        first.history.forget()
    found = second.history.restore(at(9))
    assert found == canal.parse.schema.history.Snapshot({T: {"n": 1}}, {"a": 1})
    second.history.add(at(3), {T: {"n": 3}}, None)
    assert second.history.restore(at(9)).tables == {T: {"n": 3}}  # type: ignore[union-attr]


def test_who_has_no_turn_any_more_writes_nothing(session: Session) -> None:
    turn = Turn(session)
    turn.fence = None

    with pytest.raises(canal.NotActiveError):
        turn.history.add(at(1), {}, {})
    assert session.get(session.config.destination_path("x", "schema")) is None


def test_many_tables_go_into_nodes_that_zookeeper_takes_and_read_back(
    alone: canal.parse.ZooKeeperHistory, session: Session
) -> None:
    tables = large(10_000)
    alone.add(at(1), tables, {})
    alone.add(at(2), {T: None, ("s", "t7"): {"n": 2}}, None)

    found = alone.restore(at(9))

    assert found is not None
    assert found.tables == {**tables, ("s", "t7"): {"n": 2}}
    path = session.config.destination_path("x", "schema")
    sizes = [len(data or b"") for data in session.get_many(f"{path}/{name}" for name in session.children(path))]
    assert len(sizes) > 4
    assert max(sizes) < 200_000


class Cut(Session):
    """Its nth write fails, before it is done or after."""

    def __init__(self, config: ZooKeeper, number: int, after: bool) -> None:
        super().__init__(config)
        self.left, self.after = number, after

    def write(self, *args: Any) -> list[int]:
        self.left -= 1
        if self.left == 0 and not self.after:
            raise canal.CoordinationError("cut before")
        done = super().write(*args)
        if self.left == 0:
            raise canal.CoordinationError("cut after")
        return done


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_a_crash_at_any_write_leaves_whole_steps_and_no_rubbish(
    session: Session, after: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same process goes on as after a lost connection: it reads what was done, and does the rest."""
    monkeypatch.setattr(zookeeper_history, "_PIECE", 30_000)
    tables = large()
    actions: list[tuple[Any, ...]] = [
        ("add", at(1), {T: {"n": 1}}, {}),
        ("add", at(2), tables, None),
        ("add", at(3), {T: {"n": 3}}, None),
        ("prune", at(3)),
        ("restore", at(2)),
        ("add", at(4), large(200), None),
    ]
    one, three = {T: {"n": 1}}, {T: {"n": 3}, **tables}
    states: list[Any] = [None, one, {**one, **tables}, three, three, None, large(200)]
    turn = Turn(session)
    for number in range(1, 100):
        cut = Cut(session.config, number, after)
        cut.open()
        assert cut.wait_connected(30)
        history = canal.parse.ZooKeeperHistory(session.config, keep_days=-1)
        history.bind(cut, lambda: turn.fence)
        history.open(f"d{number}")
        for done, action in enumerate(actions):
            try:
                getattr(history, action[0])(*action[1:])
            except canal.ConnectionLostError:
                reader = canal.parse.ZooKeeperHistory(session.config)
                reader.bind(session, lambda: turn.fence)
                reader.open(f"d{number}")
                found = reader.restore(at(9))
                state = found and found.tables
                assert state in (states[done], states[done + 1])
                if state != states[done + 1] or action[0] != "add":
                    history.restore(at(9))
                    getattr(history, action[0])(*action[1:])
        found = history.restore(at(9))
        assert found is not None
        assert found.tables == states[-1]
        path = session.config.destination_path(f"d{number}", "schema")
        assert set(session.children(path)) == {name for step in history._steps for name in step.names()}
        cut.close()
        if cut.left > 0:
            break
    assert number > 10


@pytest.mark.parametrize("deed", ["add", "forget"])
def test_a_second_process_without_turns_is_found_out(alone: canal.parse.ZooKeeperHistory, config: ZooKeeper, deed: str) -> None:
    other = canal.parse.ZooKeeperHistory(config)
    other.open("x")
    alone.add(at(1), {T: {"n": 1}}, {})
    assert other.restore(at(9)) is not None
    if deed == "add":
        other.add(at(2), {}, None)
    else:
        other.forget()

    with pytest.raises(canal.errors.HistoryError, match="another process wrote.*Use ha="):
        alone.add(at(3), {}, None)
    other.close()


def _bomb() -> bytes:
    """What is valid JSON, and 1,000 times as large when it is inflated."""
    packer, blanks = zlib.compressobj(), b" " * (1 << 20)
    parts = [packer.compress(b'{"settings":null,"tables":[]}')]
    parts += [packer.compress(blanks) for _ in range(256)]
    return b"".join([*parts, packer.flush()])


def _damages() -> dict[str, Any]:
    return {
        "missing": lambda path, data: [Delete(f"{path}/0000000001")],
        "flipped": lambda path, data: [Set(f"{path}/0000000001", data[:-1] + bytes((data[-1] ^ 1,)))],
        "cut": lambda path, data: [Set(f"{path}/0000000001", data[:-9])],
        "bomb": lambda path, data: [Set(f"{path}/0000000001", data.partition(b"\n")[0] + b"\n" + _bomb())],
        "emptied": lambda path, data: [Set(f"{path}/0000000001", b"")],
        "list": lambda path, data: [Set(path, b"{}")],
        "long list": lambda path, data: [Set(path, b'{"format":1,"next":2,"steps":[[1,1000000000]]}')],
        "long lists": lambda path, data: [Set(path, b'{"format":1,"next":2,"steps":[' + b"[1,1]," * 99_999 + b"[1,1]]}")],
        "huge numbers": lambda path, data: [Set(path, b'{"format":1,"next":2,"steps":[[1e999,1e999]]}')],
        "deep list": lambda path, data: [Set(path, b"[" * 100_000)],
        "deep step": lambda path, data: [Set(f"{path}/0000000001", b'{"a":' * 50_000)],
        "many pieces": lambda path, data: [Set(f"{path}/0000000001", data.replace(b'"pieces":0', b'"pieces":999999999'))],
        "late": lambda path, data: [Set(f"{path}/0000000001", data.replace(b'"made":', b'"made":1e999,"other":'))],
        "newer": lambda path, data: [Set(path, b'{"format":9,"next":1,"steps":[]}')],
    }


@pytest.mark.parametrize("damage", _damages())
def test_nodes_that_cannot_be_trusted_are_refused(alone: canal.parse.ZooKeeperHistory, session: Session, damage: str) -> None:
    alone.add(at(1), {T: {"n": 1}}, {})
    path = session.config.destination_path("x", "schema")
    value = session.get(f"{path}/0000000001")
    assert value is not None
    session.write(_damages()[damage](path, value.data))

    told = {"missing": "is missing.*Delete the node", "newer": "format 9 instead of 1"}.get(damage, "is damaged.*Delete the node")
    with pytest.raises(canal.errors.HistoryError, match=told):
        alone.restore(at(9))


def test_what_a_dead_process_left_half_written_is_removed(alone: canal.parse.ZooKeeperHistory, session: Session) -> None:
    alone.add(at(1), {T: {"n": 1}}, {})
    path = session.config.destination_path("x", "schema")
    session.write([Create(f"{path}/0000000002.0001", b"half"), Create(f"{path}/0000000002.0002", b"half")])

    assert alone.restore(at(9)) is not None
    assert session.children(path) == ["0000000001"]


def test_steps_are_merged_when_that_is_worth_it_and_young_ones_stay(config: ZooKeeper, session: Session) -> None:
    now = [1e9]
    history = canal.parse.ZooKeeperHistory(config, keep_days=1, clock=lambda: now[0])
    history.open("x")
    path = config.destination_path("x", "schema")
    tables = large(100)
    history.add(at(1), tables, {})
    for number in range(2, 111):
        history.add(at(number), {T: {"n": number}}, None)
    counts = []
    for days, position in ((0, 110), (2, 50), (0, 110)):
        now[0] += days * 86400
        history.prune(at(position))
        counts.append(len(session.children(path)))

    assert counts == [110, 110, 1]
    found = history.restore(at(200))
    assert found is not None
    assert found.tables == {**tables, T: {"n": 110}}
    history.close()


def test_a_zookeeper_that_does_not_answer_is_a_lost_connection_and_is_used_again(own_zookeeper: ZooKeeperServer) -> None:
    history = canal.parse.ZooKeeperHistory(ZooKeeper(hosts=own_zookeeper.hosts, session_timeout=4.0))
    history.open("x")
    history.add(at(1), {T: {"n": 1}}, {})
    own_zookeeper.kill()
    with pytest.raises(canal.ConnectionLostError, match="cannot write /otter/canal/destinations/x/schema: ZooKeeper at"):
        history.add(at(2), {}, None)
    own_zookeeper.start()
    assert history._own is not None
    assert history._own.wait_connected(30)

    history.add(at(3), {T: {"n": 3}}, None)
    found = history.restore(at(9))
    assert found is not None
    assert found.tables == {T: {"n": 3}}
    history.close()


def test_a_standby_goes_on_with_the_columns_of_the_place_of_its_cursor(config: ZooKeeper) -> None:
    """The table was changed behind the cursor: what the source says of it now is no longer true there."""
    fake = FakeBinlog(metadata="MINIMAL")
    table = fake.table("s", "t", "id INT PRIMARY KEY, a INT, b INT")
    table.insert({"id": 1})
    options: dict[str, Any] = {"destination": "x", "source": fake, "ha": config, "start": "earliest"}
    with canal.Instance(canal.InstanceConfig(**options)) as first:
        first.subscribe()
        message = first.get_without_ack(1, timeout=20)
        first.ack(message.id)
    table.insert({"id": 2})
    table.alter("ALTER TABLE s.t RENAME COLUMN a TO b, RENAME COLUMN b TO a", "id INT PRIMARY KEY, b INT, a INT")
    table.insert({"id": 3})
    fake.table_columns = None  # type: ignore[assignment,method-assign]  # it is not asked again

    found = []
    with canal.Instance(canal.InstanceConfig(**options)) as second:
        second.subscribe()
        while len(found) < 2:
            message = second.get_without_ack(1, timeout=20)
            assert message
            found += [tuple(row.after.keys()) for entry in message.entries for row in entry.rows if row.after]
            second.ack(message.id)

    assert found == [("id", "a", "b"), ("id", "b", "a")]
    assert isinstance(second.parser.history, canal.parse.ZooKeeperHistory)  # type: ignore[attr-defined]


class Failing(canal.parse.MemoryHistory):
    """The second step meets an error, once."""

    def __init__(self, error: Exception) -> None:
        super().__init__()
        self.errors = [error]
        self.steps = 0

    def add(self, *args: Any) -> None:
        self.steps += 1
        if self.steps == 2 and self.errors:
            raise self.errors.pop()
        super().add(*args)


def _read_through(history: Failing, told: list[str]) -> list[tuple[str, ...]]:
    fake = FakeBinlog(metadata="MINIMAL")
    fake.ddl("CREATE TABLE s.t (id INT PRIMARY KEY, a INT)")
    table = fake.table("s", "t", "id INT PRIMARY KEY, a INT")
    table.insert({"id": 1})
    table.alter("ALTER TABLE s.t RENAME COLUMN a TO b", "id INT PRIMARY KEY, b INT")
    table.insert({"id": 2})
    fake.end()
    config = canal.InstanceConfig(
        destination="x",
        source=fake,
        start="earliest",
        schema_history=history,
        reconnect_backoff=(0.01, 0.01),
        alarm=lambda destination, text: told.append(text),
    )
    with canal.Instance(config) as instance:
        instance.subscribe()
        return [
            tuple(row.after.keys())
            for message in instance.stream()
            for entry in message.entries
            for row in entry.rows
            if row.after
        ]


def test_a_step_that_zookeeper_did_not_answer_is_tried_again_before_anything_behind_it_is_delivered() -> None:
    told: list[str] = []

    assert _read_through(Failing(canal.ConnectionLostError("no answer")), told) == [("id", "a"), ("id", "b")]
    assert any("no answer" in text for text in told)


def test_a_turn_that_is_over_ends_the_parser_and_is_no_alarm() -> None:
    told: list[str] = []

    with pytest.raises(canal.NotActiveError):
        _read_through(Failing(canal.NotActiveError("over")), told)
    assert told == []
