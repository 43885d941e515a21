"""A user's own store and sink in an Instance, and a consumer's unit test: only public names are imported here."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

import canal
from canal.testing import FakeBinlog
from tests.support.stand_ins import AuditSink, DequeStore


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
        "mine", parser=canal.parse.BinlogParser(fake, start="earliest"), sink=sink, store=DequeStore(),
        meta=Positions(table),
    )  # fmt: skip

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
