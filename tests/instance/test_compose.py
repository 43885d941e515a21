"""A user's own store and sink in an Instance, and a consumer's unit test: only public names are imported here."""

from __future__ import annotations

import threading
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest

import canal
from canal.rows.mask import Mask, Masks
from canal.testing import FakeBinlog
from tests.support.stand_ins import AuditSink, DequeStore, ListParser


class Positions:
    """The user's own position keeping: all that the MetaManager Protocol asks for, as text in a dict of his."""

    def __init__(self, table: dict[str, str]) -> None:
        self.table = table
        self._destination = ""

    def start(self, destination: str) -> None:
        self._destination = destination

    def stop(self) -> None:
        self._destination = ""

    def subscribe(self, client_id: int, filter: str) -> None:
        self.table[self._key(client_id, "filter")] = filter

    def unsubscribe(self, client_id: int) -> None:
        for what in ("filter", "cursor"):
            self.table.pop(self._key(client_id, what), None)

    def subscriptions(self) -> dict[int, str]:
        keys = (key.split("/") for key in self.table)
        return {int(id): self.table[f"{name}/{id}/filter"] for name, id, what in keys if what == "filter"}

    def cursor(self, client_id: int) -> canal.Position | None:
        text = self.table.get(self._key(client_id, "cursor"))
        return None if text is None else canal.Position.from_text(text)

    def update_cursor(self, client_id: int, position: canal.Position) -> None:
        self.table[self._key(client_id, "cursor")] = position.to_text()

    def flush(self) -> None: ...

    def _key(self, client_id: int, what: str) -> str:
        if not self._destination:
            raise canal.StateError("not started")
        return f"{self._destination}/{client_id}/{what}"


def test_a_users_own_store_sink_and_position_keeping() -> None:
    fake = FakeBinlog()
    orders = fake.table("shop", "orders", "id INT PRIMARY KEY, note VARCHAR(20)")
    orders.insert({"id": 1, "note": "a"})
    orders.update({"id": 1, "note": "a"}, {"id": 1, "note": "b"})
    orders.insert({"id": 2, "note": "c"})
    fake.end()
    sink, table = AuditSink(), dict[str, str]()
    instance = canal.Instance.compose(
        "mine", parser=canal.parse.BinlogParser(fake, start="earliest"), sink=sink, store=DequeStore(), meta=Positions(table)
    )

    with instance:
        instance.subscribe()
        ids = [row.after["id"] for message in instance.stream(2) for entry in message.entries for row in entry.rows]

    assert ids == [1, 2]
    assert sink.dropped == ["UPDATE"]
    assert canal.Position.from_text(table["mine/1001/cursor"]).offset == fake.position.offset


def test_a_parsers_options_are_one_value_and_its_keywords_are_the_same() -> None:
    fake, history = FakeBinlog(), canal.parse.MemoryHistory()
    options = canal.parse.ParserOptions(source=fake, start="earliest", history=history)
    parsers = [canal.parse.BinlogParser(options), canal.parse.BinlogParser(fake, start="earliest", history=history, tables=None)]

    for parser in parsers:
        assert parser.options.sources == [(fake, "earliest")]
        assert parser.options.history is parser.history is history
        assert parser.options.tables.accepts("any", "table")
    assert canal.parse.BinlogParser(options, start="latest", standby=fake).options.sources == [(fake, "latest"), (fake, "latest")]
    with pytest.raises(TypeError, match="strat"):
        canal.parse.BinlogParser(fake, strat="earliest")


def test_parsers_of_the_same_options_do_not_share_what_serves_one_at_a_time() -> None:
    fake = FakeBinlog()
    options = canal.parse.ParserOptions(source=fake, start="earliest")
    with canal.Instance.compose("first", parser=canal.parse.BinlogParser(options)) as first:
        first.subscribe()
        second = canal.Instance.compose("second", parser=canal.parse.BinlogParser(options))
        with pytest.raises(canal.StateError, match="is in use by the instance of 'first'"):
            second.start()


@pytest.mark.parametrize("composed", [True, False])
def test_a_users_own_meta_manager_keeps_what_a_restart_goes_on_from(composed: bool) -> None:
    """It derives from no class of ours. Filter, first cursor and acks are in it when their calls return."""
    fake = FakeBinlog()
    orders = fake.table("shop", "orders", "id INT PRIMARY KEY")
    table: dict[str, str] = {}

    def made() -> canal.Instance:
        if composed:
            parser = canal.parse.BinlogParser(fake, start="earliest")
            return canal.Instance.compose("mine", parser=parser, meta=Positions(table))
        config = canal.InstanceConfig(destination="mine", source=fake, start="earliest", meta=Positions(table))
        return canal.Instance(config)

    def ids(message: canal.Message) -> list[int]:
        return [row.after["id"] for entry in message.entries for row in entry.rows if row.after]

    for number in range(3):
        orders.insert({"id": number})
    with made() as instance:
        instance.subscribe(filter=r"shop\..*")
        assert table.keys() == {"mine/1001/filter", "mine/1001/cursor"}
        message = instance.get_without_ack(1, timeout=60)
        instance.ack(message.id)
        assert table["mine/1001/cursor"] == instance.position().to_text()
        assert ids(message) + ids(instance.get_without_ack(1, timeout=60)) == [0, 1]
    with made() as instance:
        assert instance.subscriptions() == {1001: r"shop\..*"}
        assert ids(instance.get_without_ack(100, timeout=60))[0] == 1
        instance.unsubscribe()
    assert table == {}


def test_an_exception_in_a_users_sink_stops_the_line_and_names_it() -> None:
    class Broken(AuditSink):
        def sink(self, entries: list[canal.Entry]) -> None:
            raise ValueError("no room")

    fake = FakeBinlog()
    fake.table("shop", "orders", "id INT").insert({"id": 1})
    alarms: list[str] = []
    parser = canal.parse.BinlogParser(fake, start="earliest", alarm=lambda destination, text: alarms.append(text))
    with canal.Instance.compose("mine", parser=parser, sink=Broken()) as instance:
        instance.subscribe()
        with pytest.raises(canal.errors.HookError) as caught:
            instance.get_without_ack(1, timeout=60)
    assert isinstance(caught.value.__cause__, ValueError)
    assert "no room" in alarms[0]


# -- what a user writes to test a consumer ---------------------------------------------------------------------------------


def price_cache(instance: canal.Instance) -> dict[int, Decimal]:
    """The consumer under test."""
    cache: dict[int, Any] = {}
    for message in instance.stream(100):
        for entry in message.entries:
            for row in entry.rows:
                if row.after is None:
                    del cache[row.before["id"]]
                else:
                    cache[row.after["id"]] = row.after["price"]
    return cache


def test_prices_are_cached(fake_binlog: FakeBinlog, canal_instance: Any) -> None:
    orders = fake_binlog.table("shop", "orders", "id INT UNSIGNED PRIMARY KEY, price DECIMAL(10,2)")
    instance = canal_instance(fake_binlog, filter=r"shop\..*")
    orders.insert({"id": 1, "price": "9.99"}, {"id": 2, "price": "5.00"})
    orders.update({"id": 1, "price": "9.99"}, {"id": 1, "price": "8.50"})
    orders.delete({"id": 2, "price": "5.00"})
    fake_binlog.end()

    assert price_cache(instance) == {1: Decimal("8.50")}


# -- what a part may have beside its Protocol --------------------------------------------------------------------------------


class JoinedStore(DequeStore):
    """A store that a client may join, as canal.store.CatchUpStore says; it derives from no class of the library."""

    def join(self, client_id: int, is_done: Callable[[canal.Entry], bool]) -> int | None:
        with self._changed:
            return self._first if self._entries and is_done(self._entries[0]) else None


def inserted(count: int) -> FakeBinlog:
    fake = FakeBinlog()
    orders = fake.table("shop", "orders", "id INT PRIMARY KEY")
    for number in range(count):
        orders.insert({"id": number})
    fake.end()
    return fake


def test_a_client_resumes_from_a_users_own_store_that_it_can_join() -> None:
    parser = canal.parse.BinlogParser(inserted(3), start="earliest")
    with canal.Instance.compose("mine", parser=parser, store=JoinedStore()) as instance:
        instance.subscribe()
        first = instance.get_without_ack(1, timeout=60)
        while not first.entries[-1].is_end:
            first = instance.get_without_ack(1, timeout=60)
        instance._resume(7, first.entries[-1].position)

        found = [entry for message in instance.stream(client_id=7) for entry in message.entries]

    assert [row.after["id"] for entry in found for row in entry.rows] == [1, 2]


def test_a_client_that_cannot_join_a_users_own_store_is_told_so() -> None:
    parser = canal.parse.BinlogParser(inserted(3), start="earliest")
    with canal.Instance.compose("mine", parser=parser, store=DequeStore()) as instance:
        instance.subscribe()
        instance._resume(7, instance.get_without_ack(9, timeout=60).entries[-1].position)
        with pytest.raises(canal.StateError, match="composed from parts"):
            instance.get_without_ack(9, timeout=60, client_id=7)


class WithholdingSink(AuditSink):
    masks = Masks({"shop.users": {"email": Mask.drop()}})


def test_a_users_own_sink_must_say_that_it_withholds_what_the_parser_masks() -> None:
    parser = canal.parse.BinlogParser(inserted(0), start="earliest", masks=WithholdingSink.masks)
    with pytest.raises(canal.ConfigError, match=r"the parser masks shop\.users"):
        canal.Instance.compose("mine", parser=parser, sink=AuditSink())
    assert isinstance(canal.Instance.compose("mine", parser=parser, sink=WithholdingSink()).sink, WithholdingSink)


@pytest.mark.parametrize("is_exclusive", [True, False])
def test_a_users_own_sink_says_whether_it_serves_one_instance(is_exclusive: bool) -> None:
    sink = AuditSink()
    sink.is_exclusive = is_exclusive  # type: ignore[attr-defined]
    parsers = [canal.parse.BinlogParser(inserted(0), start="earliest") for _ in range(2)]
    first, second = (canal.Instance.compose(f"d{number}", parser=parser, sink=sink) for number, parser in enumerate(parsers))
    with first:
        if is_exclusive:
            with pytest.raises(canal.StateError, match="AuditSink is in use by the instance of 'd0'"):
                second.start()
        else:
            second.start().stop()


class AddressedPositions(Positions):
    """Writes the address of the source beside a cursor, as canal does."""

    address_of: Callable[[canal.Position], tuple[str, int]] = staticmethod(lambda position: ("", 0))

    def update_cursor(self, client_id: int, position: canal.Position) -> None:
        super().update_cursor(client_id, position)
        self.table["address"] = str(self.address_of(position))


class Dumb:
    """A session of a server that does not answer."""

    def rows(self, sql: str, *, doing: str) -> object:
        raise canal.ConnectionLostError("no answer")

    def close(self) -> None: ...


class OwnParser(ListParser):
    """A user's own parser with all that one may have beside its Protocol; it derives from no class of the library."""

    oldest: Callable[[], canal.Position | None]
    other_source = FakeBinlog()

    def __init__(self) -> None:
        super().__init__()
        self.oldest = self.marks = self.translated = self.began = self.lost = lambda *given: None
        self.reasons: list[str] = []
        self.was_switched = threading.Event()

    def address_of(self, cursor: canal.Position) -> tuple[str, int]:
        return "db1", 3307

    def open_probe(self, timeout: float) -> tuple[object, Callable[[], Any]]:
        return self, Dumb

    def switch(self, reason: str) -> bool:
        self.reasons.append(reason)
        self.was_switched.set()
        return True


def test_a_users_own_parser_is_asked_for_addresses_and_knows_the_clients_cursors() -> None:
    parser, table = OwnParser(), dict[str, str]()
    with canal.Instance.compose("mine", parser=parser, meta=AddressedPositions(table)) as instance:
        instance.subscribe()
        assert parser.oldest() == instance.position()
    assert table["address"] == "('db1', 3307)"


def test_a_heartbeat_switches_a_users_own_parser_or_is_refused() -> None:
    heartbeat = canal.Heartbeat(interval=0.001, retries=0)
    parser = OwnParser()
    with canal.Instance.compose("mine", parser=parser, heartbeat=heartbeat):
        assert parser.was_switched.wait(60)
    assert "no answer" in parser.reasons[0]

    with pytest.raises(canal.ConfigError, match="ListParser cannot"):
        canal.Instance.compose("mine", parser=ListParser(), heartbeat=heartbeat)


class Beside(ListParser):
    """A user's own parser of several others."""

    def __init__(self, **members: OwnParser) -> None:
        super().__init__()
        self.members = members
        self.joined: Callable[[canal.Position], None] = lambda start: None


def test_a_users_own_parser_of_several_sources_adds_a_member_to_cursors() -> None:
    parser, table = Beside(a=OwnParser()), dict[str, str]()
    joined = canal.Position("binlog.000001", 4)
    parser.wait_started = lambda timeout: canal.Position(members={"a": joined})  # type: ignore[method-assign]
    with canal.Instance.compose("mine", parser=parser, meta=Positions(table), heartbeat=canal.Heartbeat(interval=60)) as instance:
        instance.subscribe()
        parser.joined(canal.Position(members={"b": joined}))
        assert dict(instance.position().members) == {"a": joined, "b": joined}
