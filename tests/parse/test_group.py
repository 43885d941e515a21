"""A group of parsers behind an Instance: fakes, random histories, restarts, lost connections, several clients."""

from __future__ import annotations

import json
import random
import threading
import time
from pathlib import Path
from typing import Any

import attrs
import pytest

import canal
import canal.targets
from canal.parse.merge import Merge
from canal.testing import FakeBinlog
from tests.support.instances import in_thread
from tests.support.stand_ins import Pair, Piece
from tests.support.waiting import until

#: Silence lets nobody pass: only what a member has given counts.
NEVER = 1e12


@attrs.define(eq=False)
class Member:
    """A source whose clock the test sets, and what was committed to it."""

    name: str
    log: FakeBinlog
    now: list[float]
    rows: list[int] = attrs.field(factory=list)
    times: dict[int, int] = attrs.field(factory=dict)
    transactions: list[tuple[int, ...]] = attrs.field(factory=list)

    @classmethod
    def of(cls, name: str, number: int, flavor: Any, **options: Any) -> Member:
        now = [1_700_000_000.0]
        log = FakeBinlog(flavor, server_id=number, clock=lambda: now[0], row_event_max_size=40, **options)
        log.table("shop", "orders", "id INT PRIMARY KEY")
        return cls(name, log, now)

    def commit(self, count: int = 1) -> None:
        """A transaction of so many rows."""
        ids = range(len(self.rows), len(self.rows) + count)
        with self.log.transaction():
            for one in ids:
                self.log.table("shop", "orders", "id INT PRIMARY KEY").insert({"id": one})
                self.times[one] = int(self.now[0])
        self.rows += ids
        self.transactions.append(tuple(ids))


def members(number: int = 3) -> list[Member]:
    kinds: list[tuple[Any, dict[str, Any]]] = [("mysql", {}), ("mysql", {"gtid": False}), ("mariadb", {})]
    return [Member.of("abc"[one], one + 1, kinds[one][0], **kinds[one][1]) for one in range(number)]


def group_of(every: list[Member], **options: Any) -> canal.parse.GroupParser:
    parsers = {
        one.name: canal.parse.BinlogParser(one.log, start="earliest", piece_entries=8, backoff=(0.01, 0.05)) for one in every
    }
    return canal.parse.GroupParser(parsers, **options)


def instance_of(every: list[Member], meta: canal.meta.MetaManager, **options: Any) -> canal.Instance:
    store = canal.store.MemoryStore(max_entries=64)
    return canal.Instance.compose("shop", parser=group_of(every, **options), meta=meta, store=store)


def got_of(message: canal.Message) -> list[tuple[str, int]]:
    return [(entry.member, row.after["id"]) for entry in message.entries for row in entry.rows if row.after]


class Reader:
    """One client over several lives of an instance: what it acked, and what each life gave it."""

    def __init__(self, client: int, rng: random.Random) -> None:
        self.client = client
        self.rng = rng
        self.acked: list[tuple[str, int]] = []
        self.lives: list[list[tuple[str, int]]] = []
        self.out: list[canal.Message] = []

    def begin(self) -> None:
        self.out = []
        self.lives.append([])

    def step(self, instance: canal.Instance) -> bool:
        """Whether there was anything to ack; what is rolled back here comes again."""
        message = instance.get_without_ack(self.rng.randint(1, 12), timeout=0.1, client_id=self.client)
        if message:
            self.out.append(message)
        was_any = bool(self.out)
        if self.out and self.rng.random() < 0.15:
            number = self.rng.randrange(len(self.out))
            instance.rollback(self.out[number].id, client_id=self.client)
            del self.out[number:]
        while self.out and self.rng.random() < 0.6:
            first = self.out.pop(0)
            instance.ack(first, client_id=self.client)
            self.acked += got_of(first)
            self.lives[-1] += got_of(first)
        return was_any


def check(reader: Reader, every: list[Member], by_time: bool) -> None:
    known = {one.name: one for one in every}
    for one in every:
        assert [id for name, id in reader.acked if name == one.name] == one.rows
    for life in reader.lives:
        for (name, id), (following, _) in zip(life, life[1:]):
            whole = next(ids for ids in known[name].transactions if id in ids)
            assert following == name or id == whole[-1], "a transaction was not whole"
        if by_time:
            order = [known[name].times[id] for name, id in life]
            assert order == sorted(order)


@pytest.mark.parametrize("order", ["time", "arrival"])
@pytest.mark.parametrize("seed", range(4))
def test_random_histories_come_once_whole_and_in_the_order_promised(seed: int, order: Any) -> None:
    """Through restarts that lose what was not acked, lost connections and rollbacks, for two clients of different speeds."""
    rng = random.Random(seed)
    every = members()
    meta = canal.MemoryMeta()
    readers = [Reader(1, random.Random(seed + 1)), Reader(2, random.Random(seed + 2))]
    left = 90
    instance = instance_of(every, meta, order=order, idle_after=NEVER)
    is_done = False
    while not is_done:
        with instance:
            for reader in readers:
                instance.subscribe(reader.client)
                reader.begin()
            for _ in range(rng.randint(3, 25)):
                for _ in range(min(rng.randint(0, 6), left)):
                    one, left = rng.choice(every), left - 1
                    one.now[0] += rng.choice((0.0, 0.3, 1.0, 4.0))
                    one.commit(rng.choice((1, 1, 2, 5, 30)))
                if not left:
                    for one in every:
                        one.log.end()
                if rng.random() < 0.1:
                    rng.choice(every).log.cut_after(rng.randint(1, 20), inside=rng.random() < 0.5)
                some = [reader.step(instance) for reader in rng.sample(readers, rng.randint(1, 2))]
                if not any(some) and instance.is_exhausted:
                    last = [reader.step(instance) for reader in readers]
                    is_done = not any(last)
                    break
        if rng.random() < 0.5:
            instance = instance_of(every, meta, order=order, idle_after=NEVER)

    for reader in readers:
        check(reader, every, order == "time")


def drained(instance: canal.Instance, client: int = 1001) -> list[tuple[str, int]]:
    """All that comes until the logs end, acked."""
    found = []
    while True:
        is_over = instance.is_exhausted
        message = instance.get(timeout=0.2, client_id=client)
        found += got_of(message)
        if is_over and not message:
            return found


@pytest.mark.parametrize("order", ["time", "arrival"])
def test_a_restart_inside_a_transaction_goes_on_with_its_rest(order: Any) -> None:
    """Also where the others are quicker."""
    every = members(2)
    every[0].commit(30)
    meta = canal.MemoryMeta()
    with instance_of(every, meta, order=order, idle_after=0) as instance:
        instance.subscribe()
        first = instance.get_without_ack(3, timeout=10)
        instance.ack(first)
        assert instance.position().member("a").row  # type: ignore[union-attr]
    every[1].now[0] -= 10
    every[1].commit()
    for one in every:
        one.log.end()
    away = Away(every[0].log)
    parsers = {"a": canal.parse.BinlogParser(away, backoff=(0.01, 0.05)), "b": canal.parse.BinlogParser(every[1].log)}
    group = canal.parse.GroupParser(parsers, order=order, idle_after=0)
    with canal.Instance.compose("shop", parser=group, meta=meta) as instance:
        until(lambda: is_waiting(parsers["b"]))
        assert not instance.get()
        away.is_there = True

        assert got_of(first) + drained(instance) == [("a", id) for id in range(30)] + [("b", 0)]


def test_client_ahead_inside_a_transaction_gets_the_next_one_of_that_second_whole() -> None:
    """The next one is in the next journal, where no offset tells the two apart."""
    one = Member.of("a", 1, "mysql")
    one.commit()
    one.commit(20)
    one.log.rotate()
    one.commit(20)
    one.log.end()
    meta = canal.MemoryMeta()
    with instance_of([one], meta) as instance:
        instance.subscribe(1)
        instance.subscribe(2)
        until(lambda: instance.is_exhausted)
        first = instance.get_without_ack(15, client_id=2)
        instance.ack(first, client_id=2)
        assert instance.position(2).member("a").row == 14  # type: ignore[union-attr]
    with instance_of([one], meta) as instance:
        until(lambda: instance.is_exhausted)  # both transactions come in one slice of the store

        assert got_of(first) + drained(instance, 2) == [("a", id) for id in range(41)]


def test_end_passes_a_filter_when_another_member_comes_before_what_the_client_has_acked() -> None:
    every = members(2)
    meta = canal.MemoryMeta()

    def commit(member: Member) -> None:
        with member.log.transaction():
            for table in ("orders", "others"):
                member.log.table("shop", table, "id INT PRIMARY KEY").insert({"id": 1})

    commit(every[0])
    with instance_of(every, meta, order="arrival") as instance:
        instance.subscribe(1)
        instance.subscribe(2, r"shop\.orders")
        instance.ack(instance.get_without_ack(1, timeout=10, client_id=2), client_id=2)
        assert instance.position(2).member("a").row == 1  # type: ignore[union-attr]
    every[1].now[0] -= 10
    commit(every[1])
    for one in every:
        one.log.end()
    with instance_of(every, meta, order="time") as instance:
        until(lambda: instance.is_exhausted)
        got = [entry for size in (1, 100) for entry in instance.get(size, timeout=0, client_id=2).entries]

    begin, row, end = canal.EntryType.TRANSACTIONBEGIN, canal.EntryType.ROWDATA, canal.EntryType.TRANSACTIONEND
    assert [(entry.member, entry.entry_type) for entry in got] == [("b", begin), ("b", row), ("b", end), ("a", end)]


def is_waiting(member: Any) -> bool:
    """Whether its sink has a transaction, and has not returned."""
    return member.received[0] > 3 and member.delivered_position is None


def stored(position: canal.Position) -> canal.MemoryMeta:
    meta = canal.MemoryMeta()
    meta.start("shop")
    meta.subscribe(1001, "")
    meta.update_cursor(1001, position)
    meta.stop()
    return meta


def ended(number: int = 2, count: int = 1) -> list[Member]:
    """Members with so many transactions, and no more."""
    every = members(number)
    for one in every:
        for _ in range(count):
            one.now[0] += 1
            one.commit()
        one.log.end()
    return every


def test_a_cursor_names_each_member_and_the_text_of_it_is_refused_by_who_knows_only_one(tmp_path: Path) -> None:
    every = ended(count=2)
    meta = canal.FileMeta(tmp_path)
    with instance_of(every, meta) as instance:
        instance.subscribe()
        assert len(drained(instance)) == 4
        cursor = instance.position()

    assert [(name, one.offset) for name, one in cursor.members] == [(one.name, one.log.position.offset) for one in every]
    assert json.loads(cursor.to_text())["v"] == 4
    assert canal.Position.from_text(cursor.to_text()) == cursor
    kept = json.loads((tmp_path / "shop" / "meta.dat").read_text())["clientDatas"][0]["cursor"]["postion"]
    assert (kept["journalName"], kept["timestamp"]) == ("", min(int(one.now[0]) for one in every) * 1000)
    with instance_of(every, canal.FileMeta(tmp_path)) as instance:
        assert drained(instance) == []


def test_what_a_member_has_before_the_others_are_started_is_not_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    instance = instance_of(ended(count=2), canal.MemoryMeta())
    assert isinstance(instance.parser, canal.parse.GroupParser)
    first, last = instance.parser.members["a"], instance.parser.members["b"]
    start = last.start

    def late(*given: Any) -> None:
        until(lambda: is_waiting(first))
        start(*given)

    monkeypatch.setattr(last, "start", late)
    with instance:
        instance.subscribe()
        assert sorted(drained(instance)) == [("a", 0), ("a", 1), ("b", 0), ("b", 1)]


def test_changes_and_entries_name_the_member_and_the_place_of_all() -> None:
    every = ended(count=1)
    with instance_of(every, canal.MemoryMeta()) as instance:
        instance.subscribe()
        changes = list(instance.changes())

    assert sorted(change.entry.member for change in changes) == ["a", "b"]
    for change in changes:
        assert [name for name, _ in change.position.members] == ["a", "b"]
        assert change.position.member(change.entry.member).row == 1  # type: ignore[union-attr]


def test_the_cursor_of_one_source_is_refused_by_a_group_and_that_of_a_group_by_one_source() -> None:
    every = ended()
    group = canal.Position(members={one.name: one.log.position for one in every})

    with pytest.raises(canal.CursorError, match="belongs to a single source"):
        instance_of(every, stored(every[0].log.position)).start()
    with pytest.raises(canal.CursorError, match="has positions for members of a group"):
        canal.Instance(canal.InstanceConfig(destination="shop", source=every[0].log, meta=stored(group))).start()
    with pytest.raises(canal.CursorError, match="names members that the group lacks: b"):
        instance_of(every[:1], stored(group)).start()


def test_a_member_that_is_added_begins_at_its_own_start() -> None:
    every = ended()
    meta = stored(canal.Position(members={"a": every[0].log.position}))

    with instance_of(every, meta) as instance:
        assert drained(instance) == [("b", 0)]
        assert [name for name, _ in instance.position().members] == ["a", "b"]


def with_latest(every: list[Member], meta: canal.meta.MetaManager) -> canal.Instance:
    parsers = {one.name: canal.parse.BinlogParser(one.log, backoff=(0.01, 0.05)) for one in every}
    return canal.Instance.compose("shop", parser=canal.parse.GroupParser(parsers, order="arrival"), meta=meta)


def test_the_start_of_a_member_that_is_added_is_in_every_cursor_before_anything_of_it_passes() -> None:
    """Else it would begin anew after a restart without an ack, and what had come until then would be lost with "latest"."""
    every = members(2)
    every[0].commit()
    meta = stored(canal.Position(members={"a": every[0].log.position}))
    meta.start("shop")
    meta.subscribe(2, "")
    meta.update_cursor(2, canal.Position(members={"a": every[0].log.resolve("earliest")}))
    meta.stop()
    every[1].commit()
    begins = every[1].log.position
    with with_latest(every, meta) as instance:
        for client in (1001, 2):
            until(lambda: instance.position(client).member("b") is not None)  # noqa: B023
    every[1].commit(2)
    for one in every:
        one.log.end()

    with with_latest(every, meta) as instance:
        assert instance.position().member("b").offset == begins.offset  # type: ignore[union-attr]
        assert drained(instance) == [("b", 1), ("b", 2)]
        assert sorted(drained(instance, 2)) == [("a", 0), ("b", 1), ("b", 2)]


def test_nothing_passes_of_a_member_whose_start_no_cursor_can_take() -> None:
    class Full(canal.MemoryMeta):
        def update_cursor(self, client_id: int, position: canal.Position) -> None:
            if position.member("b") is not None:
                raise canal.CursorError("the disk is full")
            super().update_cursor(client_id, position)

    every = ended()
    meta = Full()
    meta.start("shop")
    meta.subscribe(1001, "")
    meta.update_cursor(1001, canal.Position(members={"a": every[0].log.resolve("earliest")}))
    meta.stop()

    with instance_of(every, meta, order="arrival") as instance, pytest.raises(canal.CursorError, match="the disk is full"):
        assert got_of(instance.get_without_ack(timeout=10)) == []


def test_a_time_is_where_every_member_resumes_as_canal_keeps_it() -> None:
    every = ended(count=3)
    late = int(every[0].now[0])

    with instance_of(every, stored(canal.Position(timestamp=late * 1000))) as instance:
        assert sorted(drained(instance)) == [("a", 2), ("b", 2)]


def test_a_member_that_fails_stops_the_group_with_its_error_behind_what_came_before() -> None:
    every = members(2)
    every[0].commit()
    lost = canal.Position(journal="binlog.000009", offset=4)
    meta = stored(canal.Position(members={"a": every[0].log.resolve("earliest"), "b": lost}))

    with instance_of(every, meta, order="arrival") as instance:
        with pytest.raises(canal.PositionLostError):
            while True:
                instance.get(timeout=1)
        assert instance.is_exhausted
        assert instance.status().state is canal.State.FAILED


def test_nothing_passes_before_the_start_of_each_member_is_known() -> None:
    """Else a cursor would lack it, and the next start would begin it anew."""
    every = members(2)
    every[0].commit()
    away = Away(every[1].log)
    parsers = {
        "a": canal.parse.BinlogParser(every[0].log, start="earliest"),
        "b": canal.parse.BinlogParser(away, backoff=(0.01, 0.05)),
    }
    with canal.Instance.compose("shop", parser=canal.parse.GroupParser(parsers, order="arrival")) as instance:
        with pytest.raises(canal.ConnectionLostError):
            instance.subscribe(timeout=0.3)
        assert instance.status().store.put_entries == 0  # type: ignore[union-attr]
        away.is_there = True
        instance.subscribe()

        assert got_of(instance.get(timeout=10)) == [("a", 0)]
        assert [name for name, _ in instance.position().members] == ["a", "b"]


def test_who_waits_for_the_end_of_a_transaction_does_not_pass_when_its_member_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    every = members(2)
    real, ended = Merge.end, threading.Event()

    def end(merge: Merge, name: str) -> None:
        real(merge, name)
        ended.wait(0.5)  # time for the other to pass

    monkeypatch.setattr(Merge, "end", end)
    every[0].commit(30)
    with instance_of(every, canal.MemoryMeta(), order="arrival") as instance:
        group = instance.parser
        assert isinstance(group, canal.parse.GroupParser)
        run = group._run
        instance.subscribe()
        assert got_of(instance.get(timeout=10, linger=1))[-1] == ("a", 29)
        failed = Piece("a", 0, is_end=False)
        run.merge.pass_on("a", [failed], lambda entries: None)  # type: ignore[list-item]
        every[1].commit()
        until(lambda: run.merge._lanes["b"].head is not None)
        group.members["a"]._run.error = canal.PositionLostError("gone")  # type: ignore[attr-defined]

        run._ended("a")

        with pytest.raises(canal.PositionLostError):
            assert got_of(instance.get(timeout=5)) == []
            instance.get(timeout=5)


def test_a_parser_is_refused_by_a_second_user_and_the_first_goes_on() -> None:
    a, b, c = members()
    shared = group_of([a], order="arrival").members["a"]
    others = {one.name: group_of([one]).members[one.name] for one in (b, c)}
    first = canal.Instance.compose("first", parser=canal.parse.GroupParser({"a": shared, "b": others["b"]}, order="arrival"))
    second = canal.Instance.compose("second", parser=canal.parse.GroupParser({"c": others["c"], "a": shared}))
    alone = canal.Instance.compose("alone", parser=shared)
    with first:
        first.subscribe()
        for other in (second, canal.Instance.compose("third", parser=canal.parse.GroupParser({"a": shared})), alone):
            with pytest.raises(canal.StateError, match="in use by the instance of 'first'"):
                other.start()
        assert shared.marks.func.__self__ is first.parser  # type: ignore[attr-defined]
        a.commit()
        assert got_of(first.get(timeout=10)) == [("a", 0)]
    with second:
        second.subscribe()


class Refused(canal.parse.BinlogParser):
    """Does not start; what the others have read fills the store by then."""

    def __init__(self, log: FakeBinlog, is_full: Any) -> None:
        super().__init__(log)
        self.is_full = is_full

    def start(self, *arguments: Any) -> None:
        until(self.is_full)
        raise canal.CursorError("what it has stored cannot be read")


def test_a_group_of_which_a_member_does_not_start_waits_for_no_room_in_the_store() -> None:
    a, b = members(2)
    for _ in range(10):
        a.commit()
        b.commit()
    store, meta = canal.store.MemoryStore(max_entries=8), canal.MemoryMeta()
    with canal.Instance.compose("shop", parser=group_of([a, b], order="arrival"), meta=meta, store=store) as instance:
        instance.subscribe()
        instance.ack(instance.get_without_ack(1, timeout=60))
    parsers = {"a": group_of([a]).members["a"], "b": Refused(b.log, lambda: store.status().waited > 0)}
    second = canal.Instance.compose("shop", parser=canal.parse.GroupParser(parsers, order="arrival"), meta=meta, store=store)
    caller, raised = in_thread(second.start)
    caller.join(60)

    assert not caller.is_alive()
    assert isinstance(raised[0], canal.CursorError)
    assert [thread.name for thread in threading.enumerate() if thread.name.startswith("canal-shop")] == []
    with canal.Instance.compose("shop", parser=group_of([a, b], order="arrival"), meta=meta, store=store) as instance:
        assert instance.get(timeout=60)


class Away:
    """A source that does not answer at first."""

    def __init__(self, log: FakeBinlog) -> None:
        self.log = log
        self.is_there = False
        self.address = "away"

    def connect(self, server_id_hint: int | None = None) -> Any:
        if not self.is_there:
            raise canal.ConnectionLostError("nobody is there")
        return self.log.connect(server_id_hint)


def test_a_heartbeat_of_an_idle_server_lets_the_others_pass() -> None:
    """Over the network: its silence alone does not."""
    now = [time.time()]
    busy, idle = FakeBinlog(server_id=1, clock=lambda: now[0]), FakeBinlog(server_id=2)
    orders = busy.table("shop", "orders", "id INT PRIMARY KEY")
    with idle.serve() as server:
        parsers = {
            "busy": canal.parse.BinlogParser(busy, start="earliest"),
            "idle": canal.parse.BinlogParser(canal.MySQLSource(port=server.port, user="", password="", heartbeat_interval=600)),
        }
        with canal.Instance.compose("shop", parser=canal.parse.GroupParser(parsers, idle_after=0)) as instance:
            instance.subscribe()
            while not parsers["idle"].complete_to:
                idle.heartbeat()
                assert not instance.get(timeout=0.2)
            now[0] = parsers["idle"].complete_to + 1
            orders.insert({"id": 1})
            assert not instance.get(timeout=3.5)
            message = canal.Message(-1, [])
            for _ in range(100):
                idle.heartbeat()
                message = instance.get(timeout=0.2)
                if message:
                    break

            assert got_of(message) == [("busy", 1)]


def test_options_that_cannot_be_are_refused() -> None:
    parser = canal.parse.BinlogParser(FakeBinlog())
    for wrong, text in (
        ({}, "mapping of names"),
        ({"a.b": parser}, "member name must have"),
        ({"a": 1}, "must be a parser"),
        ({"a": parser, "b": parser}, "twice"),
        ({"a": canal.parse.GroupParser({"a": parser})}, "single source"),
    ):
        with pytest.raises(canal.ConfigError, match=text):
            canal.parse.GroupParser(wrong)  # type: ignore[arg-type]
    for options in ({"order": "size"}, {"on_stalled": "skip"}, {"idle_after": -1}, {"stalled_after": "1"}):
        with pytest.raises(canal.ConfigError, match=next(iter(options))):
            canal.parse.GroupParser({"a": parser}, **options)  # type: ignore[arg-type]
    with pytest.raises(canal.ConfigError, match="no journal"):
        canal.Position(journal="x", members={"a": canal.Position()})
    with pytest.raises(canal.ConfigError, match="follows one source"):
        canal.pipe(
            canal.Instance.compose("shop", parser=canal.parse.GroupParser({"a": parser})), canal.targets.JSONLinesTarget("never")
        )


@pytest.mark.parametrize("kind", ["mysql", "mariadb", "without GTIDs"])
def test_a_member_that_switches_loses_nothing_for_clients_that_stand_apart(kind: str) -> None:
    """What only the other server has, as here a statement, lets come again what follows it, as it does without a group."""
    pair = Pair(gtid=kind != "without GTIDs", flavor="mariadb" if kind == "mariadb" else "mysql")
    other = members(1)[0]
    meta = canal.MemoryMeta()

    def instance() -> canal.Instance:
        moves = canal.parse.BinlogParser(
            pair.first,
            standby=pair.second,
            start="earliest",
            standby_start="earliest",
            backoff=(0.01, 0.02),
            tables=canal.filter.TableFilter(r"shop\..*"),
        )
        group = canal.parse.GroupParser({"a": canal.parse.BinlogParser(other.log, start="earliest"), "m": moves}, order="arrival")
        return canal.Instance.compose("shop", parser=group, meta=meta)

    def ids(one: canal.Instance, client: int, count: int) -> list[int]:
        found: list[int] = []
        while len(found) < count:
            message = one.get(1, timeout=30, client_id=client)
            assert message, found
            found += [id for name, id in got_of(message) if name == "m"]
        return found

    pair.write(1, 2, 3, 4, 5, 6)
    with instance() as one:
        for client in (1, 2):
            one.subscribe(client)
        assert ids(one, 1, 2) == [1, 2]
        assert ids(one, 2, 6) == [1, 2, 3, 4, 5, 6]
        for client in (1, 2):
            one.get(1, timeout=0, client_id=client)
    with instance() as one:
        group = one.parser
        assert isinstance(group, canal.parse.GroupParser)
        assert group.members["m"].switch()  # type: ignore[attr-defined]
        pair.write(7, to=(pair.second,))

        assert ids(one, 1, 5) == [3, 4, 5, 6, 7]
        again = ids(one, 2, 1)
        while again[-1] != 7:
            again += ids(one, 2, 1)
        assert again == list(range(again[0], 8))


def test_the_cursors_of_a_member_are_those_that_a_switch_of_it_translates() -> None:
    here, there, other = (canal.Position(journal="b.1", offset=offset) for offset in (4, 5, 6))
    both = canal.Position(members={"a": here, "b": other})
    found: list[Any] = []
    parsers = {name: canal.parse.BinlogParser(FakeBinlog()) for name in "ab"}
    group = canal.parse.GroupParser(parsers)
    group.marks = lambda: [both]
    group.translated = found.append
    group.oldest = lambda: both
    group.bind()

    assert (parsers["a"].marks(), parsers["b"].marks()) == ([here], [other])
    assert (parsers["a"].oldest(), parsers["b"].oldest()) == (here, other)
    parsers["a"].translated({here: there})
    parsers["a"].translated({here: None})
    parsers["b"].translated({here: there})

    assert found == [{both: canal.Position(members={"a": there, "b": other})}, {both: canal.Position(members={"b": other})}, {}]


def test_each_member_has_a_schema_history_of_its_own(tmp_path: Path) -> None:
    """Tables of one name differ, and what the log says of them is read after a restart that comes behind a later change."""
    logs = {name: FakeBinlog(server_id=number, metadata="MINIMAL") for number, name in enumerate("ab", 1)}
    tables = {
        "a": logs["a"].table("shop", "t", "id INT PRIMARY KEY, one INT"),
        "b": logs["b"].table("shop", "t", "two INT, id INT PRIMARY KEY"),
    }

    def instance() -> canal.Instance:
        parsers = {name: canal.parse.BinlogParser(log, history=canal.FileHistory(tmp_path)) for name, log in logs.items()}
        group = canal.parse.GroupParser(parsers, order="arrival")
        return canal.Instance.compose("shop", parser=group, meta=canal.FileMeta(tmp_path))

    with instance() as one:
        one.subscribe()
        tables["a"].insert({"id": 1, "one": 10})
        tables["b"].insert({"id": 2, "two": 20})
        while one.status().store.put_rows < 2:  # type: ignore[union-attr]
            one.get_without_ack(timeout=0.1)
        tables["a"].alter("ALTER TABLE shop.t RENAME COLUMN one TO three", "id INT PRIMARY KEY, three INT")
        tables["a"].insert({"id": 3, "three": 30})
        for log in logs.values():
            log.end()
        while not one.is_exhausted:
            one.get_without_ack(timeout=0.1)
    with instance() as one:
        found = [change.after.as_dict() for change in one.changes() if change.after]

    assert sorted(found, key=lambda row: row["id"]) == [{"id": 1, "one": 10}, {"two": 20, "id": 2}, {"id": 3, "three": 30}]
