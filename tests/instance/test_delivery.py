"""get, ack and rollback: what an Instance promises, over parts composed from the user's side of the API."""

from __future__ import annotations

import threading
import time
import traceback
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

import canal
from canal.model import Entry, EventType, TableMap
from tests.support.instances import ids, in_thread
from tests.support.stand_ins import ListParser, composed
from tests.support.strategies import begin, end, row, transaction, whole


def named(entries: list[Entry], table: str) -> list[Entry]:
    """The same entries as changes of a table."""
    for entry in entries:
        if entry.row_count:
            entry.table = TableMap(canal.TableSchema("shop", table, ()), (), None, True)
    return entries


# -- ids, order, acks --------------------------------------------------------------------------------------------------


def test_batches_come_in_order_with_ids_that_grow() -> None:
    entries = whole(1, 1) + whole(2, 1) + whole(3, 1)
    with composed(entries) as instance:
        instance.subscribe()
        first = instance.get_without_ack(1, timeout=60)
        second = instance.get_without_ack(2, timeout=60)

        assert (first.id, second.id) == (1, 2)
        assert ids(first) + ids(second) == [id(entry) for entry in entries]
        assert instance.list_batches() == [1, 2]


def test_nothing_to_hand_out_is_a_message_with_id_minus_one() -> None:
    with composed() as instance:
        instance.subscribe()
        message = instance.get_without_ack(10, timeout=0.01)

        assert (message.id, message.entries, bool(message)) == (-1, [], False)
        instance.ack(message.id)


def test_ack_moves_the_cursor_to_the_end_of_the_batch_and_it_is_stored() -> None:
    meta = canal.MemoryMeta()
    with composed(whole(1, 1) + whole(2, 1), meta=meta) as instance:
        instance.subscribe()
        message = instance.get_without_ack(1, timeout=60)
        instance.ack(message.id)

        assert instance.position().offset == 199
        assert meta.cursor(1001) == instance.position()


def test_ack_inside_a_transaction_moves_the_cursor_by_rows() -> None:
    with composed(whole(1, 2, 3)) as instance:
        instance.subscribe()
        instance.ack(instance.get_without_ack(2, timeout=60).id)

        assert (instance.position().offset, instance.position().row) == (100, 2)


def test_ack_out_of_order_is_refused_and_moves_nothing() -> None:
    with composed(whole(1, 1) + whole(2, 1)) as instance:
        instance.subscribe()
        before = instance.position()
        instance.get_without_ack(1, timeout=60)
        second = instance.get_without_ack(1, timeout=60)

        with pytest.raises(canal.BatchError, match="before batch 1"):
            instance.ack(second.id)
        assert instance.position() == before
        assert instance.list_batches() == [1, 2]


def test_acking_the_last_acked_id_again_does_nothing_and_an_unknown_one_is_an_error() -> None:
    with composed(whole(1, 1)) as instance:
        instance.subscribe()
        message = instance.get_without_ack(1, timeout=60)
        instance.ack(message.id)
        instance.ack(message.id)

        with pytest.raises(canal.BatchError, match="not outstanding"):
            instance.ack(77)


class FailingMeta(canal.MemoryMeta):
    failing = False

    def update_cursor(self, client_id: int, position: canal.Position) -> None:
        if self.failing:
            raise canal.CursorError("disk full")
        super().update_cursor(client_id, position)


def test_an_ack_whose_cursor_cannot_be_written_changes_nothing_and_can_be_repeated() -> None:
    meta = FailingMeta()
    with composed(whole(1, 1) + whole(2, 1), meta=meta) as instance:
        instance.subscribe()
        message = instance.get_without_ack(1, timeout=60)
        before = instance.position()
        meta.failing = True
        with pytest.raises(canal.CursorError):
            instance.ack(message.id)
        assert instance.position() == before
        assert instance.list_batches() == [message.id]

        meta.failing = False
        instance.ack(message.id)
        assert instance.position() != before


# -- rollback ----------------------------------------------------------------------------------------------------------


def test_rollback_hands_out_the_same_entries_with_new_ids() -> None:
    with composed(whole(1, 1) + whole(2, 1)) as instance:
        instance.subscribe()
        instance.ack(instance.get_without_ack(1, timeout=60).id)
        second = instance.get_without_ack(1, timeout=60)
        instance.rollback()
        again = instance.get_without_ack(1, timeout=60)

        assert ids(again) == ids(second)
        assert again.id > second.id
        with pytest.raises(canal.BatchError):
            instance.ack(second.id)


def test_rollback_of_a_batch_drops_it_and_the_later_ones_only() -> None:
    with composed(whole(1, 1) + whole(2, 1) + whole(3, 1)) as instance:
        instance.subscribe()
        first, second, third = (instance.get_without_ack(1, timeout=60) for _ in range(3))
        instance.rollback(second.id)

        assert instance.list_batches() == [first.id]
        assert ids(instance.get_without_ack(1, timeout=60)) == ids(second)
        assert ids(instance.get_without_ack(1, timeout=60)) == ids(third)


def test_rollback_of_an_unknown_batch_is_an_error() -> None:
    with composed(whole(1, 1)) as instance:
        instance.subscribe()
        with pytest.raises(canal.BatchError):
            instance.rollback(5)


# -- get, stream, consume ------------------------------------------------------------------------------------------------


def test_get_acks_the_batch_before_and_not_the_one_in_hand() -> None:
    with composed(whole(1, 1) + whole(2, 1)) as instance:
        instance.subscribe()
        start = instance.position()
        instance.get(1, timeout=60)
        assert instance.position() == start

        instance.get(1, timeout=60)
        assert instance.position().offset == 199
        instance.get(1)
        assert instance.position().offset == 299


def test_get_refuses_to_mix_with_batches_that_wait_for_their_ack() -> None:
    with composed(whole(1, 1) + whole(2, 1)) as instance:
        instance.subscribe()
        instance.get_without_ack(1, timeout=60)
        with pytest.raises(canal.BatchError, match="not acknowledged"):
            instance.get(1)


def test_stream_acks_when_the_loop_comes_round_and_ends_with_the_source() -> None:
    with composed(whole(1, 1) + whole(2, 1), then="end") as instance:
        instance.subscribe()
        seen = [message.id for message in instance.stream(1)]

        assert seen == [1, 2]
        assert instance.position().offset == 299


def test_leaving_a_stream_rolls_back_what_is_in_hand() -> None:
    with composed(whole(1, 1) + whole(2, 1)) as instance:
        instance.subscribe()
        with pytest.raises(ZeroDivisionError):
            for message in instance.stream(1):
                if message.id == 2:
                    raise ZeroDivisionError
        again = next(iter(instance.stream(1)))

        assert instance.position().offset == 199
        assert again.entries[0].transaction.offset == 200


def test_consume_tries_again_with_the_same_changes_and_then_gives_up() -> None:
    with composed(whole(1, 1), then="end") as instance:
        instance.subscribe()
        seen: list[list[int]] = []

        def handler(message: canal.Message) -> None:
            seen.append(ids(message))
            if len(seen) < 3:
                raise ValueError("not yet")

        with pytest.raises(ValueError, match="not yet"):
            instance.consume(handler, retries=1)
        instance.consume(handler, retries=1)

        assert seen == [seen[0]] * 3
        assert instance.position().offset == 199


def test_consume_waits_longer_each_time_and_gives_what_stays_unfit_to_a_hook(monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[float] = []
    unfit: list[tuple[int, str]] = []
    with composed(whole(1, 1) + whole(2, 1), then="end") as instance:
        monkeypatch.setattr("canal.instance.stream._pause", lambda instance, seconds: waited.append(seconds))
        instance.subscribe()
        seen: list[int] = []

        def handler(message: canal.Message) -> None:
            seen.append(message.entries[0].transaction.offset)
            if seen[-1] == 100:
                raise ValueError("unfit")

        instance.consume(
            handler,
            1,
            retries=4,
            backoff=(1.0, 5.0),
            on_unfit=lambda message, error: unfit.append((message.entries[0].transaction.offset, str(error))),
        )

        assert seen == [100] * 5 + [200]
        assert waited == [1.0, 2.0, 4.0, 5.0]
        assert unfit == [(100, "unfit")]
        assert instance.position().offset == 299


def test_consume_raises_what_the_hook_raises_and_the_message_comes_again() -> None:
    def give_up(message: canal.Message, error: Exception) -> None:
        raise KeyError("no room for it") from error

    with composed(whole(1, 1), then="end") as instance:
        instance.subscribe()
        with pytest.raises(KeyError):
            instance.consume(lambda message: 1 / 0, on_unfit=give_up)

        assert instance.get_without_ack(1, timeout=60).entries[0].transaction.offset == 100


def test_a_stop_ends_consumes_wait_between_two_tries() -> None:
    tried = threading.Event()

    def handler(message: canal.Message) -> None:
        tried.set()
        raise ValueError

    instance = composed(whole(1, 1)).start()
    instance.subscribe()
    thread, found = in_thread(lambda: instance.consume(handler, retries=9, backoff=(3600.0, 3600.0)))
    assert tried.wait(60)
    instance.stop()
    thread.join(60)

    assert isinstance(found[0], canal.StateError)


# -- clients -------------------------------------------------------------------------------------------------------------


def test_calls_before_start_or_subscribe_are_refused() -> None:
    instance = composed()
    with pytest.raises(canal.StateError):
        instance.subscribe()
    with instance:
        for call in (lambda: instance.get_without_ack(), lambda: instance.ack(1), lambda: instance.rollback()):
            with pytest.raises(canal.errors.NotSubscribedError):
                call()
        with pytest.raises(canal.StateError):
            instance.start()


def test_the_first_cursor_is_stored_when_subscribe_returns() -> None:
    meta = canal.MemoryMeta()
    with composed(meta=meta) as instance:
        instance.subscribe()

        assert meta.cursor(1001) == canal.Position(journal="binlog.000001", offset=4)


def test_two_clients_each_get_everything_at_their_own_pace() -> None:
    entries = whole(1, 1) + whole(2, 1)
    with composed(entries) as instance:
        instance.subscribe(1)
        instance.subscribe(2)
        for client in (1, 2):
            got: list[int] = []
            while len(got) < len(entries):
                message = instance.get_without_ack(1, timeout=60, client_id=client)
                got += ids(message)
                instance.ack(message.id, client_id=client)
            assert got == [id(entry) for entry in entries]


def test_a_client_that_comes_later_begins_at_the_oldest_change_that_is_kept() -> None:
    with composed(whole(1, 1) + whole(2, 1)) as instance:
        instance.subscribe(1)
        instance.ack(instance.get_without_ack(1, timeout=60, client_id=1).id, client_id=1)
        instance.subscribe(2)

        assert instance.position(2) == instance.position(1)
        assert instance.get_without_ack(9, timeout=60, client_id=2).entries[0].transaction.offset == 200


def test_a_client_that_subscribes_while_another_acks_misses_nothing() -> None:
    """The ack comes when the subscription has seen the other's cursor, and does not read from the store yet."""

    class Meta(canal.MemoryMeta):
        def update_cursor(self, client_id: int, position: canal.Position) -> None:
            if client_id == 2:
                acking.start()
                acking.join(0.5)  # it may wait for the subscription
            super().update_cursor(client_id, position)

    with composed(whole(1, 1) + whole(2, 1), meta=Meta()) as instance:
        instance.subscribe(1)
        message = instance.get_without_ack(1, timeout=5, client_id=1)
        acking = threading.Thread(target=instance.ack, args=(message.id,), kwargs={"client_id": 1})
        start = instance.position(1)
        instance.subscribe(2)
        acking.join()

        assert instance.position(1) != start
        assert instance.position(2) == start
        assert instance.get_without_ack(9, timeout=5, client_id=2).entries[0].transaction.offset == 100


def test_the_oldest_cursor_is_told_while_an_ack_moves_it(monkeypatch: pytest.MonkeyPatch) -> None:
    class Moving:
        offset = 100

        @property
        def cursor(self) -> canal.Position:
            self.offset += 1
            return canal.Position(journal="binlog.000001", offset=self.offset)

    with composed() as instance, monkeypatch.context() as patch:
        patch.setattr(instance._clients, "_by_id", {1: Moving()})
        oldest = instance._clients.oldest_cursor()

    assert oldest is not None
    assert oldest.offset > 100


def test_a_clients_filter_narrows_and_keeps_begin_and_end_of_what_is_left() -> None:
    mixed = transaction(2)
    entries = [*named(whole(1, 1), "a"), begin(mixed), *named([row(mixed)], "a"), *named([row(mixed)], "b"), end(mixed)]
    with composed(entries) as instance:
        instance.subscribe(filter=r"shop\.b")
        got: list[Entry] = []
        while not got or not got[-1].is_end:
            got += instance.get_without_ack(1, timeout=60).entries

        assert [id(entry) for entry in got] == [id(entries[3]), id(entries[5]), id(entries[6])]


def test_what_a_clients_filter_drops_moves_its_cursor_without_an_ack() -> None:
    with composed(named(whole(1, 1), "a")) as instance:
        instance.subscribe(filter=r"shop\.b")
        deadline = time.monotonic() + 60
        while (stored := instance.status().store) is None or stored.put_entries < 3:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        assert not instance.get_without_ack(1, timeout=0.05)
        assert not instance.get_without_ack(1, timeout=0.05)

        assert instance.position().offset == 199


def test_what_a_filter_passes_over_is_not_taken_for_the_end_of_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    """However long it takes to pass it over."""
    monkeypatch.setattr("canal.instance.delivery._SCAN", 0.0)
    entries = [*named(whole(1, 1) + whole(2, 1), "a"), *named(whole(3, 1), "b")]
    with composed(entries, then="end") as instance:
        instance.subscribe(filter=r"shop\.b")
        while not instance.is_exhausted:
            time.sleep(0.01)
        got = [entry for message in instance.stream(1, poll=0.0) for entry in message.entries]

    assert [entry.transaction.offset for entry in got if entry.row_count] == [300]


def test_a_filter_that_is_not_given_is_kept_and_an_empty_one_is_everything() -> None:
    meta = canal.MemoryMeta()
    with composed(named(whole(1, 1), "a"), meta=meta) as instance:
        instance.subscribe(filter=r"shop\.b")
        instance.subscribe()
        instance.subscribe(2)

        assert instance.subscriptions() == meta.subscriptions() == {1001: r"shop\.b", 2: ""}
    with composed(named(whole(1, 1), "a"), meta=meta) as instance:
        instance.subscribe()

        assert instance.subscriptions() == meta.subscriptions() == {1001: r"shop\.b", 2: ""}
        assert not instance.get_without_ack(1, timeout=0.05)
        instance.subscribe(filter="")

        assert meta.subscriptions()[1001] == ""


def test_unsubscribe_forgets_filter_and_cursor() -> None:
    meta = canal.MemoryMeta()
    with composed(whole(1, 1), meta=meta) as instance:
        instance.subscribe()
        instance.unsubscribe()

        assert (instance.subscriptions(), meta.subscriptions(), meta.cursor(1001)) == ({}, {}, None)
        instance.subscribe()
        assert instance.get_without_ack(1, timeout=60).entries


def test_ids_go_on_after_unsubscribe() -> None:
    with composed(whole(1, 1)) as instance:
        instance.subscribe()
        first = instance.get_without_ack(1, timeout=60)
        instance.unsubscribe()
        instance.subscribe()

        again = instance.get_without_ack(1, timeout=60)

        assert again.id == first.id + 1
        with pytest.raises(canal.BatchError, match="not outstanding"):
            instance.ack(first)
        instance.ack(again)


# -- failures and stops --------------------------------------------------------------------------------------------------


def test_a_parser_failure_comes_after_everything_before_it() -> None:
    with composed(whole(1, 1), then=canal.DecodeError("damaged")) as instance:
        instance.subscribe()
        assert instance.get_without_ack(1, timeout=60).entries
        for _ in range(2):
            with pytest.raises(canal.DecodeError, match="damaged"):
                instance.get_without_ack(1, timeout=60)
        assert isinstance(instance.error, canal.DecodeError)


def test_stop_wakes_a_get_that_waits_for_ever() -> None:
    instance = composed().start()
    instance.subscribe()
    caught: list[BaseException] = []

    def consume() -> None:
        try:
            instance.get_without_ack(1, timeout=None)
        except canal.StateError as error:
            caught.append(error)

    thread = threading.Thread(target=consume)
    thread.start()
    instance.stop()
    thread.join(60)

    assert not thread.is_alive()
    assert len(caught) == 1


class Overtaken:
    """The lock of a client before which something else comes, once."""

    def __init__(self, instance: canal.Instance, first: Callable[[], Any]) -> None:
        self._lock = instance._client(1001).lock
        self._first = first
        self._due = True

    def __enter__(self) -> None:
        if self._due:
            self._due = False
            self._first()
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()


@pytest.mark.parametrize("batch_id", [None, 1])
def test_a_rollback_that_a_stop_overtakes_says_that_the_instance_does_not_run(batch_id: int | None) -> None:
    instance = composed(whole(1, 1)).start()
    instance.subscribe()
    assert instance.get_without_ack(1, timeout=60)
    instance._client(1001).lock = Overtaken(instance, instance.stop)  # type: ignore[assignment]

    with pytest.raises(canal.StateError, match="not running"):
        instance.rollback(batch_id)


@pytest.mark.parametrize("call", ["ack", "rollback", "get"])
def test_who_has_unsubscribed_does_not_move_who_has_its_number_now(call: str) -> None:
    meta = canal.MemoryMeta()
    with composed(whole(1, 1) + whole(2, 1), meta=meta) as instance:
        instance.subscribe(7)  # holds the store back
        instance.subscribe()
        start = instance.position()
        if call != "get":
            assert instance.get_without_ack(1, timeout=60)

        def anew() -> None:
            instance.unsubscribe()
            instance.subscribe()

        instance._client(1001).lock = Overtaken(instance, anew)  # type: ignore[assignment]
        calls: dict[str, Callable[[], Any]] = {
            "ack": lambda: instance.ack(1),
            "rollback": instance.rollback,
            "get": lambda: instance.get_without_ack(1, timeout=60),
        }
        with pytest.raises(canal.errors.NotSubscribedError):
            calls[call]()

        assert (instance.position(), meta.cursor(1001)) == (start, start)
        assert instance.get_without_ack(9, timeout=60).entries[0].transaction.offset == 100


@pytest.mark.parametrize("durable", [True, False])
def test_a_subscription_that_a_stop_overtakes_says_that_the_instance_does_not_run(
    durable: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    with composed(whole(1, 1)) as instance:
        wait = instance._wait_started

        def overtaken(timeout: float) -> canal.Position:
            started = wait(timeout)
            instance.stop()
            return started

        monkeypatch.setattr(instance, "_wait_started", overtaken)
        with pytest.raises(canal.StateError, match="not running"):
            instance.subscribe(durable=durable)


def test_a_subscription_that_waits_for_the_source_ends_when_the_instance_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    instance = canal.Instance(canal.InstanceConfig(destination="d", source=Unreachable(), meta=canal.MemoryMeta())).start()
    wait = instance._wait_started

    def stopped(timeout: float) -> canal.Position:
        threading.Timer(0.1, instance.stop).start()
        return wait(timeout)

    monkeypatch.setattr(instance, "_wait_started", stopped)
    with pytest.raises(canal.StateError, match="not running"):
        instance.subscribe()


class Unreachable:
    address = "nowhere"

    def connect(self, server_id_hint: int | None = None) -> Any:
        raise canal.ConnectionLostError("nobody is there")


def test_a_stream_that_is_left_while_a_stop_overtakes_it_ends_with_what_ended_the_loop() -> None:
    instance = composed(whole(1, 1)).start()
    instance.subscribe()
    stream = instance.stream()
    next(stream)
    instance._client(1001).lock = Overtaken(instance, instance.stop)  # type: ignore[assignment]
    stream.close()  # type: ignore[attr-defined]

    assert not instance.is_running


def test_ack_does_not_wait_for_a_get_that_does() -> None:
    with composed(whole(1, 1)) as instance:
        instance.subscribe()
        message = instance.get_without_ack(1, timeout=60)
        stopped: list[canal.StateError] = []

        def get() -> None:
            try:
                instance.get_without_ack(1, timeout=None)
            except canal.StateError as error:
                stopped.append(error)

        waiting = threading.Thread(target=get)
        waiting.start()
        acked = threading.Event()
        threading.Thread(target=lambda: (instance.ack(message.id), acked.set())).start()

        assert acked.wait(60)
        assert waiting.is_alive()
    waiting.join(60)
    assert len(stopped) == 1


def test_a_restart_resumes_at_the_cursor() -> None:
    meta = canal.MemoryMeta()
    instance = composed(whole(1, 1) + whole(2, 1), meta=meta)
    with instance:
        instance.subscribe()
        instance.ack(instance.get_without_ack(1, timeout=60).id)
        cursor = instance.position()
    with instance:
        instance.subscribe()

        assert instance.parser.resume == cursor  # type: ignore[attr-defined]
        assert instance.position() == cursor


def test_after_a_restart_each_client_gets_only_what_it_has_not_acked() -> None:
    entries = whole(1, 1) + whole(2, 1) + whole(3, 1)
    meta = canal.MemoryMeta()
    instance = composed(entries, meta=meta)
    with instance:
        for client, batches in ((1, 0), (2, 2)):
            instance.subscribe(client)
            for _ in range(batches):
                instance.ack(instance.get_without_ack(1, timeout=60, client_id=client).id, client_id=client)
    with instance:
        first = instance.get_without_ack(99, timeout=60, client_id=1)
        second = instance.get_without_ack(99, timeout=60, client_id=2)

        assert ids(first) == [id(entry) for entry in entries]
        assert ids(second) == [id(entry) for entry in entries[6:]]


# -- a failure that is kept ----------------------------------------------------------------------------------------------


def test_an_error_that_is_raised_again_does_not_grow() -> None:
    def depth(error: BaseException) -> int:
        return sum(1 for _ in traceback.walk_tb(error.__traceback__))

    failure = canal.errors.ServerError("no", errno=1236, sqlstate="HY000", remedy="Ask.")
    failure.__cause__ = ValueError("why")
    with composed(then=failure) as instance:
        instance.subscribe()
        raised = []
        for _ in range(3):
            with pytest.raises(canal.errors.ServerError) as caught:
                instance.get_without_ack(1, timeout=60)
            raised.append(caught.value)

        assert {depth(error) for error in raised} == {depth(raised[0])}
        assert instance.error is not None
        assert (len({id(error) for error in raised}), instance.error.__traceback__) == (3, None)
        assert {(str(error), error.errno, error.sqlstate, error.__cause__) for error in raised} == {
            (str(failure), 1236, "HY000", failure.__cause__)
        }


@pytest.mark.parametrize("known", [True, False], ids=["found", "lost"])
def test_a_client_that_was_ahead_goes_on_where_its_cursor_is_in_another_servers_log(known: bool) -> None:
    meta = canal.MemoryMeta()
    old = canal.Position(journal="old.000009", offset=5000, source="old")
    meta.start("test")
    for client, cursor in ((1, canal.Position(journal="old.000009", offset=4, source="old")), (2, old)):
        meta.subscribe(client, "")
        meta.update_cursor(client, cursor)
    meta.stop()
    entries = whole(1, 1) + whole(2, 1)
    instance = composed(entries, meta=meta)
    put = instance.sink.sink

    def translated(entries: list[Entry]) -> None:  # as the parser does before the first entry of that log
        assert instance._clients.marks() == [old]
        instance._clients.translate({old: there if known else None})
        put(entries)

    there = entries[2].position
    instance.sink.sink = translated  # type: ignore[method-assign]
    with instance:
        got = [ids(instance.get_without_ack(9, timeout=60, client_id=client)) for client in (1, 2)]

        assert got == [[id(entry) for entry in entries], [id(entry) for entry in (entries[3:] if known else entries)]]
        assert instance.position(2) == meta.cursor(2) == old  # until the next ack


# -- what is refused -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("filter", ["shop.a"]),
        ("field_filter", {"shop.a": "id"}),
        ("row_filter", "id"),
        ("alarm", "print"),
        ("heartbeat", 5),
        ("reconnect_backoff", 5),
        ("reconnect_backoff", (10.0, 0.1)),
        ("store_entries", "many"),
        ("fallback_interval", None),
        ("empty_transaction_count", -1),
        ("start", "lastest"),
        ("start", canal.Position(offset=4)),
        ("standby_start", canal.Position()),
    ],
)
def test_a_wrong_option_is_refused_by_name(option: str, value: Any) -> None:
    with pytest.raises(canal.ConfigError, match="start" if "start" in option else option):
        canal.InstanceConfig(destination="test", source=canal.MySQLSource(), **{option: value})


def test_parts_that_do_not_meet_their_protocol_are_refused_by_name() -> None:
    with pytest.raises(canal.ConfigError, match="lacks.*wake"):
        canal.Instance.compose("test", parser=ListParser(), store=canal.sink.EntrySink())  # type: ignore[arg-type]


class DeliveryMachine(RuleBasedStateMachine):
    """One client against a list of entries and the ranges that are outstanding."""

    @initialize(counts=st.lists(st.lists(st.integers(1, 5), max_size=4), min_size=1, max_size=12))
    def build(self, counts: list[list[int]]) -> None:
        self.entries = [entry for n, rows in enumerate(counts, 1) for entry in whole(n, *rows)]
        self.instance = composed(self.entries).start()
        self.instance.subscribe()
        self.acked = 0
        self.out: list[tuple[int, int, int]] = []
        self.last_id = 0

    def teardown(self) -> None:
        if hasattr(self, "instance"):
            self.instance.stop()

    def got(self) -> int:
        return self.out[-1][2] if self.out else self.acked

    @rule(batch=st.integers(1, 8))
    def get(self, batch: int) -> None:
        start = self.got()
        message = self.instance.get_without_ack(batch, timeout=60 if start < len(self.entries) else 0)
        expected = self.entries[start : start + len(message.entries)]
        assert ids(message) == [id(entry) for entry in expected]
        if start < len(self.entries):
            assert message.id > self.last_id
            self.last_id = message.id
            self.out.append((message.id, start, start + len(message.entries)))
        else:
            assert message.id == -1

    @precondition(lambda self: self.out)
    @rule()
    def ack(self) -> None:
        id, _, stop = self.out.pop(0)
        self.instance.ack(id)
        self.acked = stop
        assert self.instance.position() == self.entries[stop - 1].position

    @precondition(lambda self: len(self.out) > 1)
    @rule(data=st.data())
    def ack_out_of_order(self, data: st.DataObject) -> None:
        id = data.draw(st.sampled_from(self.out[1:]))[0]
        with pytest.raises(canal.BatchError):
            self.instance.ack(id)

    @rule()
    def roll_all_back(self) -> None:
        self.instance.rollback()
        self.out = []

    @precondition(lambda self: self.out)
    @rule(data=st.data())
    def roll_one_back(self, data: st.DataObject) -> None:
        number = data.draw(st.integers(0, len(self.out) - 1))
        self.instance.rollback(self.out[number][0])
        del self.out[number:]

    @rule()
    def the_marks_agree(self) -> None:
        assert self.instance.list_batches() == [id for id, _, _ in self.out]


TestDelivery = DeliveryMachine.TestCase
TestDelivery.settings = settings(stateful_step_count=30)


def test_event_types_have_canals_numbers() -> None:
    assert [EventType.INSERT, EventType.UPDATE, EventType.DELETE, EventType.XAROLLBACK] == [1, 2, 3, 14]
