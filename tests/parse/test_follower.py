"""The SchemaFollower by itself: what it knows of tables at the position of a stream, and what it refuses to guess."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

import canal
from canal.binlog.server_facts import Release
from canal.errors import SchemaError
from canal.parse.follower import SchemaFollower
from canal.parse.log.decoder import BinlogDecoder
from canal.parse.schema.classify import classify
from canal.parse.schema.history import SchemaHistory
from canal.parse.schema.raw_map import RawTableMap, parse_table_map
from canal.parse.schema.table_state import TableVersion
from canal.parse.source.information_schema import Accepts, accept_all
from canal.parse.source.protocol import Description, complete
from canal.testing.fake import FakeBinlog

ORDERS = "id INT PRIMARY KEY, note VARCHAR(20)"


class Stream:
    """A follower of a fake's log whose stream stands where a test puts it."""

    def __init__(self, fake: FakeBinlog, history: SchemaHistory | None = None, **options: Any) -> None:
        self.fake = fake
        self.alarms: list[str] = []
        self.history = history or canal.parse.MemoryHistory()
        self.follower = SchemaFollower(self.history, self.alarms.append, **options)
        self.follower.open("test")
        self.begin(fake.position)

    def begin(self, position: canal.Position) -> None:
        self.stand(position)
        connection = complete(self.fake.connect())
        connection.describe = self.describe  # type: ignore[method-assign]
        self.follower.begin(connection, position, lambda: False)

    def describe(self, schema: str = "", table: str = "", *, accepts: Accepts = accept_all) -> Description:
        """As a server does, and not one table at a time only as a fake."""
        names = [name for name in self.fake.table_names() if not schema or name == (schema, table)]
        schemas = [self.fake.table_columns(*name) for name in names]
        return Description(tuple(TableVersion(one, "utf8mb4") for one in schemas if one is not None), {"shop": "utf8mb4"})

    def stand(self, position: canal.Position) -> None:
        """The stream has come to a position."""
        decoder = SimpleNamespace(
            position=position,
            group_position=position,
            server_version=self.fake.version,
            flavor=self.fake.flavor,
            release=Release.parse(self.fake.version),
        )
        self.follower.decoder = cast(BinlogDecoder, decoder)

    def find(self, raw: RawTableMap) -> str | None:
        found = self.follower.find(raw)
        return None if found is None else " ".join(column.name for column in found.columns)


@pytest.fixture
def fake() -> FakeBinlog:
    return FakeBinlog(metadata="MINIMAL")


def last_map(fake: FakeBinlog) -> RawTableMap:
    """The last table map of the log."""
    (data,) = [event for event in fake.events() if event[4] == 19][-1:]
    return parse_table_map(data[25:-4])


def noted(table: Any, *rows: dict[str, Any]) -> None:
    for row in rows:
        table.insert(row)


def test_find_table_at_stream_start_returns_source_columns(fake: FakeBinlog) -> None:
    table = fake.table("shop", "orders", ORDERS)
    noted(table, {"id": 1, "note": "a"})
    stream = Stream(fake)

    assert stream.find(last_map(fake)) == "id note"
    assert stream.alarms == []


def test_find_table_changed_later_raises(fake: FakeBinlog) -> None:
    """The source has the columns of now, which the rows before the ALTER do not fit."""
    table = fake.table("shop", "orders", ORDERS)
    noted(table, {"id": 1, "note": "a"})
    begin, raw = fake.position, last_map(fake)
    table.alter("ALTER TABLE orders ADD COLUMN more INT", "id INT PRIMARY KEY, note VARCHAR(20), more INT")
    stream = Stream(fake)
    stream.begin(begin)

    with pytest.raises(SchemaError, match=r"the columns of shop\.orders are unknown for rows after") as caught:
        stream.find(raw)
    assert "the source describes it only as of a later change at" in caught.value.message
    assert "binlog_row_metadata=FULL" in str(caught.value)


def test_find_table_changed_later_raises_even_if_columns_fit(fake: FakeBinlog) -> None:
    """Two columns have changed their names since."""
    table = fake.table("shop", "orders", "id INT PRIMARY KEY, a INT, b INT")
    noted(table, {"id": 1, "a": 1, "b": 2})
    begin, raw = fake.position, last_map(fake)
    table.alter("ALTER TABLE orders CHANGE a b INT, CHANGE b a INT", "id INT PRIMARY KEY, b INT, a INT")
    stream = Stream(fake)
    stream.begin(begin)

    with pytest.raises(SchemaError, match="the source describes it only as of a later change at"):
        stream.find(raw)


def test_find_returns_columns_before_and_after_change(fake: FakeBinlog) -> None:
    table = fake.table("shop", "orders", ORDERS)
    noted(table, {"id": 1, "note": "a"})
    stream, before, begin = Stream(fake), last_map(fake), fake.position
    table.alter("ALTER TABLE orders ADD COLUMN more INT", "id INT PRIMARY KEY, note VARCHAR(20), more INT")
    noted(table, {"id": 2, "note": "a", "more": 5})

    assert stream.find(before) == "id note"
    later = Stream(fake, stream.history)  # another run, which begins where the first one did
    later.begin(begin)
    assert later.find(before) == "id note"


def test_find_misfitting_table_raises(fake: FakeBinlog) -> None:
    table = fake.table("shop", "orders", ORDERS)
    noted(table, {"id": 1, "note": "a"})
    other = FakeBinlog(metadata="MINIMAL")
    noted(other.table("shop", "orders", "id INT PRIMARY KEY, note VARCHAR(20), more BLOB"), {"id": 1, "note": "a", "more": b""})

    with pytest.raises(SchemaError, match=r"shop\.orders does not fit the source's present schema"):
        Stream(fake).find(last_map(other))


def test_find_missing_table_raises_with_reason(fake: FakeBinlog) -> None:
    other = FakeBinlog(metadata="MINIMAL")
    noted(other.table("shop", "gone", "id INT PRIMARY KEY"), {"id": 1})

    with pytest.raises(SchemaError, match=r"the source does not describe shop\.gone: it was dropped"):
        Stream(fake).find(last_map(other))


@pytest.fixture
def followed(fake: FakeBinlog) -> Iterator[tuple[Stream, Callable[[str], None]]]:
    """A stream that has seen a row of shop.orders, and what brings a statement to its follower."""
    noted(fake.table("shop", "orders", ORDERS), {"id": 1, "note": "a"})
    stream = Stream(fake)

    def statement(sql: str) -> None:
        fake.ddl(sql, "shop")
        data = [event for event in fake.events() if event[4] == 2][-1]
        stream.stand(fake.position)
        stream.follower.changed(classify(sql, "shop"), sql, data)

    yield stream, statement
    stream.follower.close()


def test_changed_applies_statement_to_catalog(followed: tuple[Stream, Callable[[str], None]]) -> None:
    stream, statement = followed
    raw = last_map(stream.fake)
    statement("ALTER TABLE orders CHANGE note remark VARCHAR(20)")

    assert stream.find(raw) == "id remark"
    assert stream.alarms == []


def test_opaque_statement_makes_tables_compared_with_source(followed: tuple[Stream, Callable[[str], None]]) -> None:
    stream, statement = followed
    raw = last_map(stream.fake)
    statement("ALTER WHATEVER orders SOMEHOW")

    assert [alarm.partition(" is not understood")[1] for alarm in stream.alarms] == [" is not understood"]
    assert stream.find(raw) == "id note"
    assert len(stream.alarms) == 1


def test_adopted_table_is_stored_before_later_events(followed: tuple[Stream, Callable[[str], None]]) -> None:
    """Another run, of a source that is asked nothing, has the columns from the history."""
    stream, statement = followed
    raw = last_map(stream.fake)
    statement("ALTER TABLE orders CHANGE note remark VARCHAR(20)")
    later = Stream(stream.fake, stream.history)

    assert later.find(raw) == "id remark"


def test_dropped_table_is_forgotten(followed: tuple[Stream, Callable[[str], None]]) -> None:
    stream, statement = followed
    statement("DROP TABLE orders")
    found = stream.history.restore(stream.fake.position)

    assert found is not None
    assert found.tables.get(("shop", "orders")) is None
