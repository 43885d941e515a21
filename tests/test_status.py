"""What an Instance tells of itself: in every state, from any thread, and always in order from the clients to the source."""

from __future__ import annotations

import json
import random
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

import canal
from canal import State
from canal.parse.source.protocol import source_info
from canal.status import Lag, Latency, SourceEnd, utc
from canal.testing import FakeBinlog
from tests.support.stand_ins import Address, AuditSink, DequeStore, Pair

#: Rows of the run that is looked at.
TOTAL = 1000
flavors = pytest.mark.parametrize("flavor", ["mysql", "mariadb"])


def shop(**options: Any) -> tuple[FakeBinlog, Any]:
    fake = FakeBinlog(**options)
    return fake, fake.table("shop", "orders", "id INT PRIMARY KEY, note VARCHAR(200)")


def instance_of(source: Any, **options: Any) -> canal.Instance:
    return canal.Instance(
        canal.InstanceConfig(
            **{"destination": "orders", "source": source, "start": "earliest", "reconnect_backoff": (0.001, 0.01)}
            | {"alarm": lambda destination, text: None}
            | options
        )
    )


def wait_until(instance: canal.Instance, done: Callable[[canal.InstanceStatus], Any], **options: Any) -> canal.InstanceStatus:
    deadline = time.monotonic() + 60
    while not done(status := instance.status(**options)):
        assert time.monotonic() < deadline, status
        time.sleep(0.01)
    return status


def parser_of(status: canal.InstanceStatus) -> canal.status.ParserStatus:
    assert status.parser is not None
    return status.parser


def store_of(status: canal.InstanceStatus) -> canal.status.StoreStatus:
    assert status.store is not None
    return status.store


# -- states --------------------------------------------------------------------------------------------------------------


def test_an_instance_tells_of_itself_before_the_start_and_after_the_stop() -> None:
    fake, orders = shop()
    instance = instance_of(fake)
    before = instance.status(1.0)
    with instance:
        instance.subscribe()
        orders.insert({"id": 1})
        instance.ack(instance.get_without_ack(timeout=60).id)
        during = instance.status()
    after = instance.status(1.0)

    assert (before.state, before.uptime, before.received, before.stored, before.clients) == (State.STOPPED, None, None, None, ())
    assert before.lag.seconds is None
    assert (after.state, after.uptime) == (State.STOPPED, None)
    assert store_of(after).put_rows == store_of(during).put_rows == 1
    assert (store_of(after).entries, after.memory_bytes) == (0, 0)
    assert after.clients[0].acked == during.clients[0].acked
    for status in (before, during, after):
        assert json.loads(json.dumps(status.as_dict()))["state"] == status.state.value
        assert str(status).startswith("orders ")


def test_a_second_start_counts_anew() -> None:
    fake, orders = shop()
    instance = instance_of(fake)
    for number in range(2):
        with instance:
            instance.subscribe()
            orders.insert({"id": number})
            instance.ack(instance.get_without_ack(timeout=60).id)
            status = wait_until(instance, lambda status: parser_of(status).transactions)

            assert parser_of(status).transactions == 1
            assert store_of(status).put_rows == 1
            assert status.clients[0].unacked_transactions == 0


class Held:
    """A source whose login, start position or dump waits until it is let go."""

    def __init__(self, fake: FakeBinlog, where: str) -> None:
        self.fake = fake
        self.where = where
        self.go = threading.Event()

    def connect(self, server_id_hint: int | None = None) -> Any:
        if self.where == "connect":
            assert self.go.wait(60)
        if self.where == "refuse":
            raise canal.ConnectionLostError("refused")
        connection: Any = self.fake.connect()
        if self.where == "resolve":
            resolve = connection.resolve
            connection.resolve = lambda start: self.go.wait(60) and resolve(start)
        return connection


@pytest.mark.parametrize(
    ("where", "state", "backoff"),
    [("connect", State.CONNECTING, 0.01), ("resolve", State.SEEKING, 0.01), ("refuse", State.WAITING, 60.0)],
)
def test_the_state_tells_what_is_waited_for(where: str, state: State, backoff: float) -> None:
    fake, _ = shop()
    source = Held(fake, where)
    with instance_of(source, reconnect_backoff=(backoff, backoff)) as instance:
        status = wait_until(instance, lambda status: status.state is state)
        source.go.set()

    assert status.uptime is not None
    assert (status.last_error is not None) == (where == "refuse")
    assert "refused" in str(status) or where != "refuse"


def test_a_failure_is_a_state_with_the_error_and_its_time() -> None:
    fake, orders = shop()
    for number in range(4):
        orders.insert({"id": number})
    fake.error_after(8, 1234, "a fault of the server")
    began = time.time()
    with instance_of(fake) as instance:
        instance.subscribe()
        status = wait_until(instance, lambda status: status.state is State.FAILED)

        assert status.error is status.last_error is instance.error
        assert isinstance(status.error, canal.errors.ServerError)
        assert began <= (parser_of(status).last_error_at or 0) <= time.time()
        assert (parser_of(status).errors, parser_of(status).alarms) == (1, 1)
        assert status.as_dict()["error"]["type"] == "ServerError"


def test_the_end_of_files_is_a_state(tmp_path: Any) -> None:
    fake, orders = shop()
    orders.insert({"id": 1})
    fake.write(tmp_path)
    source = canal.LocalBinlogSource(tmp_path)
    with instance_of(source) as instance:
        instance.subscribe()
        status = wait_until(instance, lambda status: status.state is State.ENDED, source_timeout=60.0)

    assert status.lag == Lag(0.0, 0, None)
    assert parser_of(status).address == str(tmp_path)


def test_parts_that_do_not_tell_give_none() -> None:
    class Silent:
        """A user's own parser."""

        error = None
        is_finished = False

        def start(self, destination: str, sink: Any, resume: Any, finished: Any) -> None: ...

        def stop(self) -> None: ...

        def wait_started(self, timeout: float) -> canal.Position:
            return canal.Position("binlog.000001", 4)

    store: Any = DequeStore()
    with canal.Instance.compose("own", parser=Silent(), sink=AuditSink(), store=store) as instance:
        instance.subscribe()
        status = instance.status(0.1)

    assert status.state is State.RUNNING
    assert (status.parser, status.store, status.received, status.stored, status.memory_bytes) == (None,) * 5
    (client,) = status.clients
    assert (client.unacked_entries, client.unacked_transactions, client.lag.seconds) == (None, None, None)
    assert client.acked == client.got == canal.Position("binlog.000001", 4)
    assert json.dumps(status.as_dict())
    assert "client 1001" in str(status)


def test_a_store_of_the_users_own_beside_our_parser() -> None:
    fake, orders = shop()
    orders.insert({"id": 1})
    parser = canal.parse.BinlogParser(fake, start="earliest")
    store: Any = DequeStore()
    with canal.Instance.compose("own", parser=parser, store=store) as instance:
        instance.subscribe()
        instance.ack(instance.get_without_ack(timeout=60).id)
        status = instance.status()

    assert status.stored is None
    assert parser_of(status).transactions == 1
    assert status.clients[0].rows_got is None
    assert status.clients[0].acked.precedes(parser_of(status).received or canal.Position()) is False


# -- lag -----------------------------------------------------------------------------------------------------------------


def test_an_idle_source_has_no_lag() -> None:
    clock = [1_000_000_000.0]
    fake, orders = shop(clock=lambda: clock[0])
    orders.insert({"id": 1})
    clock[0] = time.time()
    with instance_of(fake) as instance:
        instance.subscribe()
        old = wait_until(instance, lambda status: parser_of(status).transactions == 1)
        fake.heartbeat()
        wait_until(instance, lambda status: status.lag.seconds == 0.0)
        waiting = instance.status()  # the store is asked before the parser, and may have been empty still
        instance.ack(instance.get_without_ack(timeout=60).id)
        done = instance.status()

    assert old.lag.seconds is None or old.lag.seconds == 0 or old.lag.seconds > 1e8
    assert (waiting.clients[0].lag.seconds or 0) > 1e8
    assert waiting.clients[0].unacked_transactions == 1
    assert done.clients[0].lag.seconds == 0.0
    assert done.clients[0].get_seconds == 0.0


def test_lag_is_told_by_the_clock_of_the_source() -> None:
    """A server whose clock is an hour ahead, over the wire."""
    fake, orders = shop(clock=lambda: time.time() + 3600)
    with fake.serve(user="u", password="p") as server:
        source = canal.MySQLSource(host=server.host, port=server.port, user="u", password="p", ssl_mode="DISABLED")
        with instance_of(source) as instance:
            began = time.monotonic()
            instance.subscribe()
            took = time.monotonic() - began
            orders.insert({"id": 1})
            status = wait_until(instance, lambda status: status.clients[0].unacked_transactions == 1)

    assert abs(parser_of(status).clock_offset - 3600) <= 1 + took
    assert 0 <= (status.clients[0].lag.seconds or 0) < 60
    assert parser_of(status).address == f"{server.host}:{server.port}"


@pytest.mark.parametrize("ahead", [0, 3600, -3600])
def test_lag_grows_while_the_source_is_away(ahead: int) -> None:
    """By the clock of the source, which may be another one than ours."""
    fake, orders = shop(clock=lambda: time.time() + ahead)
    orders.insert({"id": 1})
    source = Held(fake, "")
    with instance_of(source) as instance:
        instance.subscribe()
        wait_until(instance, lambda status: status.lag.seconds == 0.0)
        source.where = "refuse"
        fake.cut_after(0)
        orders.insert({"id": 2})
        first = wait_until(instance, lambda status: parser_of(status).errors > 2)
        second = wait_until(instance, lambda status: (status.lag.seconds or 0) > (first.lag.seconds or 0))

    assert 0 < (first.lag.seconds or 0) < 600
    assert second.state in (State.WAITING, State.CONNECTING)


@flavors
def test_what_the_source_has_more_is_told_in_bytes_and_transactions_when_asked(flavor: Any) -> None:
    fake, orders = shop(flavor=flavor)
    for number in range(10):
        orders.insert({"id": number})
        if number == 4:
            fake.rotate()
    sizes = dict(fake.journals)
    with instance_of(fake, store_entries=3) as instance:
        instance.subscribe()
        done = 0
        while not done:  # the END of a transaction may come a little later than its rows
            message = instance.get_without_ack(1, timeout=60)
            instance.ack(message.id)
            done += sum(entry.is_end for entry in message.entries)
        status = wait_until(instance, lambda status: store_of(status).entries == 3, source_timeout=60.0)
        unasked = instance.status()

    acked = status.clients[0].acked
    assert status.clients[0].lag.bytes == sizes["binlog.000001"] - acked.offset + sizes["binlog.000002"]
    assert status.clients[0].lag.transactions == 10 - done
    received = status.received
    assert received is not None
    assert status.lag.bytes == sizes["binlog.000001"] - received.offset + sizes["binlog.000002"]
    assert (unasked.lag.bytes, unasked.lag.transactions) == (None, None)


def test_a_source_that_does_not_answer_is_waited_for_no_longer_than_said() -> None:
    fake, orders = shop()
    orders.insert({"id": 1})
    go = threading.Event()

    class Mute(Held):
        def read_end(self, timeout: float) -> SourceEnd:
            assert go.wait(60)
            return fake.read_end(timeout)

    with instance_of(Mute(fake, "")) as instance:
        instance.subscribe()
        statuses = [instance.status(0.05) for _ in range(3)]
        asking = [thread for thread in threading.enumerate() if thread.name == "canal-orders-status"]
        go.set()
        answered = wait_until(instance, lambda status: status.lag.bytes == 0, source_timeout=60.0)
        for thread in asking:
            thread.join(60)

    assert [status.lag.bytes for status in statuses] == [None] * 3
    assert len(asking) == 1  # they wait for one answer
    assert answered.lag.bytes == 0


def test_a_distance_across_journals_and_gtids() -> None:
    uuid = "3e11fa47-71ca-11e1-9e33-c80aa9429562"
    end = SourceEnd((("b.1", 100), ("b.2", 50), ("b.3", 70)), f"{uuid}:1-20")

    assert [end.bytes_behind(canal.Position(f"b.{n}", 30)) for n in (1, 2, 3, 4)] == [190, 90, 40, None]
    assert end.bytes_behind(canal.Position("b.3", 90)) == 0
    assert end.transactions_behind(canal.Position(gtid=f"{uuid}:1-5:7-8")) == 13
    assert end.transactions_behind(canal.Position("b.1", 4)) is None
    maria = SourceEnd((), "0-1-20,1-5-7")
    assert maria.transactions_behind(canal.Position(gtid="0-2-15")) == 12
    assert maria.transactions_behind(canal.Position(gtid=f"{uuid}:1-5")) is None


# -- always in order -----------------------------------------------------------------------------------------------------


def check(status: canal.InstanceStatus, before: canal.InstanceStatus | None) -> None:
    """One look by itself, and beside an earlier one of the same thread."""
    parser, store = parser_of(status), store_of(status)
    (client,) = status.clients
    positions = [position for position in (client.acked, client.got, status.stored, status.received) if position is not None]
    for behind, ahead in zip(positions, positions[1:]):
        assert not ahead.precedes(behind), status
    reader = store.readers[client.client_id]
    assert 0 <= reader.acked <= reader.got <= store.put_entries
    assert client.unacked_transactions is not None
    assert client.unacked_entries is not None
    assert client.unacked_entries >= 0
    assert parser.transactions >= store.transactions
    assert store.entries <= store.max_entries
    assert store.rows <= store.put_rows
    assert client.rows_acked is not None
    assert client.rows_got is not None
    assert client.rows_acked <= client.rows_got
    assert status.memory_bytes is not None
    assert status.memory_bytes >= 0
    assert json.dumps(status.as_dict())
    if before is None:
        return
    old_parser, old_store, (old_client,) = parser_of(before), store_of(before), before.clients
    for name in ("events", "bytes", "transactions", "statements", "reconnects", "alarms", "errors"):
        assert getattr(old_parser, name) <= getattr(parser, name), name
    for name in ("put_entries", "put_bytes", "put_rows", "waited", "transactions"):
        assert getattr(old_store, name) <= getattr(store, name), name
    for name in ("rows_got", "rows_acked", "rollbacks"):
        assert getattr(old_client, name) <= getattr(client, name), name
    assert not client.acked.precedes(old_client.acked)


@flavors
@pytest.mark.parametrize("seed", range(3))
def test_a_look_at_any_moment_is_consistent(flavor: Any, seed: int) -> None:
    """Two threads look while one writes, one consumes with rollbacks, and connections are cut, also inside transactions."""
    rng = random.Random(seed)
    fake, orders = shop(flavor=flavor, row_event_max_size=300)
    total, looks, failures = TOTAL, [0, 0], []
    written = [0]
    instance = instance_of(fake, store_entries=16, store_bytes=20_000, reconnect_backoff=(0.001, 0.002))
    done = threading.Event()

    def write() -> None:
        number = 0
        while number < total:
            count = rng.choice((1, 1, 2, 40))
            orders.insert(*[{"id": n, "note": "x" * rng.randint(0, 200)} for n in range(number, number + count)])
            number += count
            if rng.random() < 0.1:
                fake.rotate()
            if rng.random() < 0.2:
                fake.cut_after(rng.randint(0, 12))
            while number > total / 2 and min(looks) <= 5 and not (failures or done.is_set()):
                time.sleep(0.001)
        written[0] = number
        fake.end()

    def look(number: int) -> None:
        before: canal.InstanceStatus | None = None
        try:
            while not done.is_set():
                status = instance.status(60.0 if number else None)
                check(status, before)
                before = status
                looks[number] += 1
                time.sleep(0.001)
        except BaseException as error:
            failures.append(error)

    with instance:
        instance.subscribe()
        threads = [threading.Thread(target=look, args=(number,)) for number in range(2)] + [threading.Thread(target=write)]
        for thread in threads:
            thread.start()
        acked = 0
        deadline = time.monotonic() + 60
        waiting: list[tuple[int, int]] = []
        finished, message = False, canal.Message(-1, [])
        while not finished or message or waiting:
            assert time.monotonic() < deadline
            finished = instance.is_exhausted
            message = instance.get_without_ack(rng.randint(1, 12), timeout=0.05)
            if message:
                waiting.append((message.id, sum(entry.row_count for entry in message.entries)))
            if message and rng.random() < 0.1:
                instance.rollback(None if rng.random() < 0.5 else (again := rng.choice(waiting))[0])
                waiting = waiting[: waiting.index(again)] if instance.list_batches() else []
            while waiting and (not message or rng.random() < 0.6):
                id, rows = waiting.pop(0)
                instance.ack(id)
                acked += rows
        last = instance.status(60.0)
        done.set()
        for thread in threads:
            thread.join(60)

    for failure in failures:
        raise failure
    assert min(looks) > 5
    assert (acked, last.clients[0].rows_acked, store_of(last).put_rows) == (written[0],) * 3, last
    assert (last.clients[0].unacked_transactions, last.clients[0].unacked_entries) == (0, 0)
    assert last.lag.bytes == 0


def test_a_client_with_a_filter_has_nothing_unacked_when_nothing_is_left_for_it() -> None:
    fake, orders = shop()
    other = fake.table("shop", "other", "id INT PRIMARY KEY")
    with instance_of(fake) as instance:
        instance.subscribe(1, r"shop\.orders")
        orders.insert({"id": 1})
        for number in range(20):
            other.insert({"id": number})
        instance.ack(instance.get_without_ack(timeout=60, client_id=1).id, client_id=1)
        wait_until(instance, lambda status: store_of(status).transactions == 21)
        for _ in range(2):  # the second finds nothing left to pass over, however long the first was held up
            assert not instance.get_without_ack(timeout=0.2, client_id=1)
        status = instance.status()

    assert status.clients[0].unacked_transactions == 0
    assert status.clients[0].filter == r"shop\.orders"
    assert status.clients[0].rows_got == 1


def test_transactions_that_the_filter_emptied_do_not_stay_unacked() -> None:
    fake, orders = shop()
    other = fake.table("shop", "other", "id INT PRIMARY KEY")
    with instance_of(fake, filter=r"shop\.orders") as instance:
        instance.subscribe()
        orders.insert({"id": 1})
        for number in range(20):
            other.insert({"id": number})
        wait_until(instance, lambda status: parser_of(status).transactions == 21 and status.lag.seconds == 0.0)
        while message := instance.get_without_ack(timeout=0):
            instance.ack(message.id)
        status = instance.status()

    assert (status.clients[0].unacked_entries, status.clients[0].unacked_transactions) == (0, 0)


def test_a_server_tells_of_all_its_instances() -> None:
    fake, _ = shop()
    with canal.Server([canal.InstanceConfig(destination=name, source=fake) for name in "ab"]) as server:
        server.start("a")
        assert list(server.status()) == ["a"]
        server.start("b")

        assert {name: status.destination for name, status in server.status().items()} == {"a": "a", "b": "b"}


def test_a_rollback_puts_what_is_got_back() -> None:
    fake, orders = shop()
    for number in range(6):
        orders.insert({"id": number})
    with instance_of(fake) as instance:
        instance.subscribe()
        first, second, third = (instance.get_without_ack(1, timeout=60) for _ in range(3))
        instance.ack(first.id)
        seen = []
        for id in (None, third.id, second.id):
            if id is not None:
                instance.rollback(id)
            (client,) = instance.status().clients
            seen.append((client.got, client.batches, client.rollbacks))
        acked = client.acked

    assert seen == [(third.position, 2, 0), (second.position, 1, 1), (first.position, 0, 2)]
    assert acked == first.position


def test_what_waits_for_room_is_not_stored() -> None:
    fake, orders = shop()
    orders.insert(*[{"id": number} for number in range(9)])
    orders.insert({"id": 9})
    parser = canal.parse.BinlogParser(fake, start="earliest")  # which gives both transactions at once
    with canal.Instance.compose("orders", parser=parser, store=canal.store.MemoryStore(3)) as instance:
        instance.subscribe()
        status = wait_until(instance, lambda status: store_of(status).waited > 0 and store_of(status).entries == 3)

    assert status.stored is not None
    assert status.received is not None
    assert (store_of(status).put_rows, store_of(status).transactions) == (9, 1)
    assert status.stored.precedes(status.received)
    assert parser_of(status).transactions == 2


def test_heartbeats_on_the_way_to_new_events_are_no_sign_of_idleness() -> None:
    """MySQL sends them while it passes over transactions that the reader has; only one from the same position twice tells."""
    from canal.alarm import AlarmDesk
    from canal.parse.progress import ParserProgress

    class Decoder:
        event_count = byte_count = transaction_count = statement_count = timestamp = held_bytes = 0
        is_inside_transaction = False
        journal, offset = "b.1", 4

        def reset_counts(self) -> None:
            pass

    class Connection:
        identity, flavor, is_alive, clock_offset, sends_heartbeats = "uuid", "mysql", True, None, True

    decoder, now = Decoder(), [1000.0]
    progress = ParserProgress(lambda: source_info(object()), decoder, AlarmDesk(), 1.0, clock=lambda: now[0])  # type: ignore[arg-type]
    progress.reset()
    progress.connected(Connection())
    progress.began()

    def lag(*events: bytes, after: float = 1.0) -> float | None:
        now[0] += after
        progress.fed(list(events))
        return progress.status(lambda: None, None).lag.seconds

    assert [lag(b"rotate"), lag(b"beat 1"), lag(b"beat 2"), lag(b"beat 3")] == [None] * 4
    assert lag(b"beat 3") == 0.0
    decoder.offset, decoder.timestamp = 100, 900
    assert lag(b"rows") == now[0] - 1005  # of the last moment when there was no more
    assert lag(b"beat 4") == 2.0
    assert lag() == 0.0
    assert [lag(b"beat 5"), lag(b"beat 5", after=100.0)] == [0.0, 0.0]
    Connection.is_alive = False  # silence without heartbeats
    lag(after=3.0)
    assert lag(after=3.0) == 6.0


def test_a_connection_that_begins_further_back_meanwhile_takes_nothing_back() -> None:
    """By GTID set a dump may begin with what the reader has: what was seen is behind what is stored then."""
    from canal.alarm import AlarmDesk
    from canal.parse.progress import ParserProgress

    class Decoder:
        event_count = byte_count = transaction_count = statement_count = timestamp = held_bytes = 0
        is_inside_transaction = False
        journal, offset = "b.1", 100

        def reset_counts(self) -> None:
            pass

    decoder = Decoder()
    progress = ParserProgress(lambda: source_info(object()), decoder, AlarmDesk(), 1.0)  # type: ignore[arg-type]
    progress.began()
    delivered = canal.Position("b.1", 90)

    def begun_anew() -> canal.Position:
        nonlocal delivered
        decoder.offset, delivered = 50, canal.Position("b.1", 100)
        progress.began()
        return delivered

    received = [progress.status(position, None).received for position in (lambda: delivered, begun_anew, lambda: delivered)]
    assert [position and position.offset for position in received] == [100, 100, 100]


def test_after_a_switch_it_tells_of_the_other_source() -> None:
    pair = Pair()
    one, two = Address(pair.first, address="one"), Address(pair.second, address="two")
    with instance_of(one, standby=two, filter=r"shop\..*") as instance:
        instance.subscribe()
        looks = []
        for name, number in (("one", 1), ("two", 2)):
            pair.write(number)
            while not instance.get(timeout=60).entries:
                pass
            instance.get()  # acks it
            looks.append(wait_until(instance, lambda status: status.clients[0].unacked_entries == 0))
            if name == "one":
                assert instance.switch()
        last = instance.status()

    assert [parser_of(look).address for look in looks] == ["one", "two"]
    assert [parser_of(look).identity for look in looks] == [pair.first.uuid, pair.second.uuid]
    assert [look.received and look.received.source for look in looks] == [pair.first.uuid, pair.second.uuid]
    assert last.stored is not None
    assert last.stored.source == pair.second.uuid
    assert parser_of(last).transactions >= 2
    assert parser_of(last).alarms >= 1


def test_while_another_source_is_sought_the_place_is_still_one_of_the_first() -> None:
    """A switch takes its time, and until the other source sends nothing of its log is known."""
    pair, go = Pair(), threading.Event()

    class Late(Address):
        def connect(self, server_id_hint: int | None = None) -> Any:
            connection: Any = pair.second.connect()
            dump = connection.dump
            connection.dump = lambda position: go.wait(120) and dump(position)
            return connection

        def read_end(self, timeout: float) -> SourceEnd:
            return pair.second.read_end(timeout)

    one, two = Address(pair.first, address="one"), Late(pair.second, address="two")
    with instance_of(one, standby=two, filter=r"shop\..*") as instance:
        instance.subscribe()
        pair.write(1)
        before = wait_until(instance, lambda status: parser_of(status).transactions)
        assert instance.switch()
        during = wait_until(instance, lambda status: parser_of(status).state is State.SEEKING, source_timeout=30.0)
        go.set()
        pair.write(2)
        after = wait_until(
            instance, lambda status: parser_of(status).transactions > parser_of(during).transactions, source_timeout=30.0
        )

    assert before.received is not None
    assert during.received == before.received
    assert during.received.source == pair.first.uuid
    assert parser_of(during).lag.bytes is None
    assert after.received is not None
    assert after.received.source == pair.second.uuid
    assert parser_of(after).lag.bytes == 0


# -- latency and what is complete ------------------------------------------------------------------------------------------


def test_quantiles_are_of_the_batches_that_were_not_later() -> None:
    assert Latency.of([]) is None
    assert Latency.of([7.0]) == Latency(7.0, 7.0, 7.0, 7.0, 1)
    assert Latency.of(float(n) for n in range(100, 0, -1)) == Latency(50.0, 95.0, 99.0, 100.0, 100)


def test_latency_is_from_the_change_to_the_ack_by_the_clock_of_the_source() -> None:
    fake, orders = shop(clock=lambda: time.time() - 500)
    with instance_of(fake) as instance:
        instance.subscribe()
        assert instance.status().clients[0].latency is None
        for number in range(3):
            orders.insert({"id": number, "note": ""})
        for _ in range(3):
            while not (message := instance.get_without_ack(1, timeout=60)).entries:
                pass
            instance.ack(message.id)
        latency = wait_until(instance, lambda status: parser_of(status).clock_offset < -400).clients[0].latency

    assert latency is not None
    assert latency.batches == 3
    assert -1 <= latency.median <= latency.p95 <= latency.p99 <= latency.longest < 60, "and not 500"


def test_what_is_complete_waits_for_what_is_not_acked_and_moves_on_while_the_source_is_idle() -> None:
    fake, orders = shop()
    with instance_of(fake) as instance:
        instance.subscribe()
        instance.subscribe(client_id=7)
        orders.insert({"id": 1, "note": ""})
        made = wait_until(instance, lambda status: parser_of(status).lag.seconds == 0.0 and store_of(status).put_rows == 1).at
        status = wait_until(instance, lambda status: status.at > made + 1.5 and parser_of(status).lag.seconds == 0.0)
        assert all((client.complete_to or 0.0) < made for client in status.clients), "the row is not acked"

        instance.ack(instance.get_without_ack(timeout=60).id)
        status = wait_until(instance, lambda status: (status.clients[0].complete_to or 0.0) > made)
        assert (status.clients[1].complete_to or 0.0) < made
        assert status.complete_to == status.clients[1].complete_to

        instance.ack(instance.get_without_ack(client_id=7, timeout=60).id, client_id=7)
        later = wait_until(instance, lambda status: (status.complete_to or 0.0) > made)
        wait_until(instance, lambda status: (status.complete_to or 0.0) > (later.complete_to or 0.0))
        assert f"complete up to {utc(later.clients[0].complete_to or 0.0)[:16]}" in str(later)
