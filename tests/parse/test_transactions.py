"""What a log says of transactions beside BEGIN and COMMIT: ROLLBACK, savepoints, LOAD DATA, tagged GTIDs."""

from __future__ import annotations

import itertools
import struct
import sys
import zlib
from typing import Any

import attrs
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import canal
from canal.parse.log.events import parse_tagged_gtid, parse_xa_prepare
from canal.parse.log.prepared import look_ahead, read_again
from canal.parse.log.scan import TransactionScan
from canal.testing import FakeBinlog, _encode
from canal.testing._tables import FakeTable, FakeTransaction
from tests.support.instances import instance_of
from tests.support.parsing import chained, decoded, everything, started

UUID = "3e11fa47-71ca-11e1-9e33-c80aa9429562"


def rolled_back(entries: list[canal.Entry]) -> list[str]:
    return [entry.sql for entry in entries if entry.statement is not None and entry.sql and entry.statement.rolled_back]


def changes(entries: list[canal.Entry]) -> list[Any]:
    return [entry.row_change.sql or entry.rows[0].after["id"] for entry in entries if entry.table or entry.sql]


def side_reads(fake: FakeBinlog) -> dict[str, Any]:
    """What a decoder needs to read the log by the side."""
    connection = fake.connect()
    return {
        "look_ahead": lambda journal, offset: look_ahead(connection, journal, offset, 1 << 20),
        "read_again": lambda wanted, offset: read_again(connection, wanted, canal.Position(offset=offset)),
    }


def ids(events: list[bytes], **options: Any) -> list[int]:
    return [row.after["id"] for entry in decoded(events, **options) for row in entry.rows]


# -- rows that are taken back (T41) --------------------------------------------------------------------------------------


def test_a_rolled_back_transaction_leaves_only_its_end() -> None:
    fake = FakeBinlog()
    table = fake.table("shop", "orders", "id INT")
    with fake.transaction(end="ROLLBACK"):
        table.insert({"id": 1})
    table.insert({"id": 2})
    entries = decoded(fake.events())

    assert [row.after["id"] for entry in entries for row in entry.rows] == [2]
    assert entries[0].transaction.has_rows is False
    assert entries[-1].position.gtid.endswith(":1-2")


@pytest.mark.parametrize("name", ["s1", "`s1`", "`odd ``name`"])
def test_rows_behind_a_savepoint_are_taken_back(name: str) -> None:
    """T41: MariaDB logs ROLLBACK TO where a table without transactions was written behind the savepoint."""
    fake = FakeBinlog(flavor="mariadb")
    table = fake.table("shop", "orders", "id INT")
    with fake.transaction() as transaction:
        table.insert({"id": 1})
        transaction.query(f"SAVEPOINT {name}")
        table.insert({"id": 2}, {"id": 3})
        transaction.query("SAVEPOINT other")
        table.insert({"id": 4})
        transaction.query(f"ROLLBACK TO {name.upper()}")
        table.insert({"id": 5})
        transaction.query(f"ROLLBACK TO SAVEPOINT {name}")
        table.insert({"id": 6})
    assert ids(fake.events(), flavor="mariadb") == [1, 6]


def test_a_savepoint_that_was_never_set_is_an_error() -> None:
    fake = FakeBinlog()
    table = fake.table("shop", "orders", "id INT")
    with fake.transaction() as transaction:
        table.insert({"id": 1})
        transaction.query("ROLLBACK TO nowhere")
    with pytest.raises(canal.DecodeError, match="nowhere"):
        decoded(fake.events())


def test_savepoints_do_not_grow_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """RELEASE SAVEPOINT is not in the log; one that is set again is the newest."""
    monkeypatch.setattr(canal.parse.log.assembly, "_MOST_SAVEPOINTS", 3)
    for target, expected in (("s3", [0, 1, 2, 3, 7]), ("again", [0, 1, 2, 3, 4, 5, 7]), ("s2", None)):
        fake = FakeBinlog(flavor="mariadb")
        table = fake.table("shop", "orders", "id INT")
        with fake.transaction() as transaction:
            for number in range(6):
                table.insert({"id": number})
                if number != 4:
                    transaction.query(f"SAVEPOINT s{number}")
                transaction.query("SAVEPOINT again")
            table.insert({"id": 6})
            transaction.query(f"ROLLBACK TO {target}")
            table.insert({"id": 7})
        if expected is None:
            with pytest.raises(canal.DecodeError, match="'s2', which is not among the last 3"):
                decoded(fake.events(), flavor="mariadb")
        else:
            assert ids(fake.events(), flavor="mariadb") == expected


def test_a_statement_of_a_rolled_back_transaction_is_delivered() -> None:
    """It may have changed a table without transactions, which ROLLBACK does not undo."""
    fake = FakeBinlog()
    table = fake.table("shop", "orders", "id INT")
    with fake.transaction(end="ROLLBACK") as transaction:
        table.insert({"id": 1})
        transaction.query("INSERT INTO log VALUES (1)", "shop")
    kinds = [(entry.event_type.name, entry.row_change.sql) for entry in decoded(fake.events())[1:-1]]
    assert kinds == [("INSERT", "INSERT INTO log VALUES (1)")]
    assert rolled_back(decoded(fake.events())) == ["INSERT INTO log VALUES (1)"]


@pytest.mark.parametrize("end", ["ROLLBACK", "XID"])
def test_resuming_behind_a_statement_among_rows_that_are_taken_back(end: str) -> None:
    fake = FakeBinlog(flavor="mariadb")
    table = fake.table("shop", "orders", "id INT")
    with fake.transaction(end=end) as transaction:
        if end == "XID":
            table.insert({"id": 1})
        transaction.query("SAVEPOINT s")
        table.insert({"id": 2}, {"id": 3})
        transaction.query("INSERT INTO log VALUES (1)", "shop")
        table.insert({"id": 4})
        transaction.query("INSERT INTO log VALUES (2)", "shop")
        if end == "XID":
            transaction.query("ROLLBACK TO s")
            table.insert({"id": 5})
    table.insert({"id": 6})
    fake.end()

    with started(fake) as instance:
        instance.subscribe()
        entries = everything(instance)
    expected = changes(entries)
    logged = ["INSERT INTO log VALUES (1)", "INSERT INTO log VALUES (2)"]
    assert expected == ([1, *logged, 5, 6] if end == "XID" else [*logged, 6])
    for stop, entry in enumerate(entries[:-1]):
        with started(fake, start=entry.position) as instance:
            instance.subscribe()
            found = changes(everything(instance))
        before = changes(entries[: stop + 1])
        rest = expected[len(before) :]
        assert found[len(found) - len(rest) :] == rest, (stop, entry)
        assert set(found[: len(found) - len(rest)]) <= set(before) & set(logged), "no row comes twice"


class Reference:
    """What a transaction leaves, by the rules of SAVEPOINT and ROLLBACK alone."""

    def __init__(self, transaction: FakeTransaction, table: FakeTable, log: FakeTable) -> None:
        self._transaction, self._table, self._log = transaction, table, log
        self._numbers = itertools.count(1)
        self._savepoints: dict[str, int] = {}
        self.left: list[Any] = []
        self.rolled_back: set[str] = set()

    def insert(self) -> None:
        number = next(self._numbers)
        self._table.insert({"id": number})
        self.left.append(number)

    def insert_filtered(self) -> None:
        self._log.insert({"id": next(self._numbers)})

    def statement(self) -> None:
        sql = f"INSERT INTO orders VALUES ({next(self._numbers)})"
        self._transaction.query(sql, "shop")
        self.left.append(sql)

    def savepoint(self, name: str) -> None:
        self._transaction.query(f"SAVEPOINT {name}")
        self._savepoints.pop(name, None)
        self._savepoints[name] = len(self.left)

    def roll_back(self, name: str) -> None:
        if name in self._savepoints:
            self._transaction.query(f"ROLLBACK TO {name}")
            self._undo(self._savepoints[name])
            names = list(self._savepoints)
            for later in names[names.index(name) + 1 :]:
                del self._savepoints[later]

    def _undo(self, kept: int) -> None:
        self.left[kept:] = [one for one in self.left[kept:] if isinstance(one, str)]
        self.rolled_back.update(self.left[kept:])

    def end(self, how: str) -> None:
        if how == "ROLLBACK":
            self._undo(0)


STEPS = st.one_of(
    st.tuples(st.just("insert")),
    st.tuples(st.just("insert")),
    st.tuples(st.just("insert_filtered")),
    st.tuples(st.just("statement")),
    st.tuples(st.just("savepoint"), st.sampled_from("abc")),
    st.tuples(st.just("roll_back"), st.sampled_from("abc")),
)


@given(st.sampled_from(["mysql", "mariadb"]), st.sampled_from(["XID", "ROLLBACK"]), st.lists(STEPS, max_size=40))
@example("mysql", "XID", [("savepoint", "a"), ("statement",), ("roll_back", "a")])  # rolls back no row
def test_transaction_larger_than_a_piece_delivers_only_what_stays(flavor: Any, end: Any, steps: list[tuple[str, ...]]) -> None:
    fake = FakeBinlog(flavor=flavor)
    table, log = fake.table("shop", "orders", "id INT"), fake.table("shop", "log", "id INT")
    with fake.transaction(end=end) as transaction:
        reference = Reference(transaction, table, log)
        reference.insert()
        for name, *arguments in steps:
            getattr(reference, name)(*arguments)
        reference.end(end)
    fake.end()

    def found(events: list[bytes], row: int, **options: Any) -> list[canal.Entry]:
        start = canal.Position(journal="binlog.000001", offset=4, row=row)
        return decoded(events, start, flavor=flavor, tables=r"shop\.orders", **options)

    options = side_reads(fake)
    for pieces in (3, 7):
        entries = found(fake.events(), 0, piece_entries=pieces, **options)
        assert changes(entries) == reference.left
        assert set(rolled_back(entries)) == reference.rolled_back
        for stop, entry in enumerate(entries):
            if not entry.is_end and entry.entry_type == canal.EntryType.ROWDATA:
                rest = changes(found(fake.events(), entry.own_position.row, piece_entries=pieces, **options))
                known, left = changes(entries[: stop + 1]), changes(entries[stop + 1 :])
                assert rest[len(rest) - len(left) :] == left
                assert all(isinstance(one, str) for one in rest[: len(rest) - len(left)]), "no row comes twice"
                assert set(rest[: len(rest) - len(left)]) <= set(known)


def test_transaction_that_is_not_whole_in_the_log_is_read_again() -> None:
    fake = FakeBinlog(flavor="mariadb")
    table = fake.table("shop", "orders", "id INT")
    with fake.transaction():
        for number in range(10):
            table.insert({"id": number})
    events = fake.events()
    out: list[canal.Entry] = []
    seen = iter([[(0, sys.maxsize)]])  # what a look ahead finds of a file that another program still writes

    with pytest.raises(canal.ConnectionLostError, match="incomplete in the log"):
        decoded(events, flavor="mariadb", piece_entries=4, look_ahead=lambda *_: next(seen), out=out)
    assert changes(out) == []
    assert len(fake.events()) == len(events)


@pytest.mark.parametrize("sql", ["ROLLBACK", "ROLLBACK TO s"])
def test_rows_that_are_delivered_cannot_be_taken_back(sql: str) -> None:
    """A source that cannot be read by the side."""
    fake = FakeBinlog()
    table = fake.table("shop", "orders", "id INT")
    with fake.transaction(end="ROLLBACK" if sql == "ROLLBACK" else "XID") as transaction:
        transaction.query("SAVEPOINT s")
        for number in range(10):
            table.insert({"id": number})
        if sql != "ROLLBACK":
            transaction.query(sql)
    with pytest.raises(canal.SourceError, match="already delivered"):
        decoded(fake.events(), piece_entries=4)


@pytest.mark.parametrize("sql", ["ROLLBACK", "ROLLBACK TO s"])
def test_rows_that_were_delivered_before_a_resumption_cannot_be_taken_back(sql: str) -> None:
    """The cursor stands right behind the last of them."""
    fake = FakeBinlog(flavor="mariadb")
    table = fake.table("shop", "orders", "id INT")
    with fake.transaction(end="ROLLBACK" if sql == "ROLLBACK" else "XID") as transaction:
        transaction.query("SAVEPOINT s")
        table.insert({"id": 1}, {"id": 2})
        if sql != "ROLLBACK":
            transaction.query(sql)
            table.insert({"id": 3})
    start = fake.resolve("earliest")
    events = fake.events()
    with pytest.raises(canal.SourceError, match="already delivered"):
        decoded(events, canal.Position(journal=start.journal, offset=4, row=2), flavor="mariadb")


@pytest.mark.parametrize("large", [False, True])
def test_an_xa_transaction_of_statements_that_is_rolled_back_before_it_is_prepared(large: bool) -> None:
    """MySQL with statement format and a table without transactions: XA ROLLBACK stands where ROLLBACK would."""
    fake = FakeBinlog()
    table = fake.table("shop", "orders", "id INT")
    with fake.transaction(end="COMMIT") as transaction:
        transaction.query("XA START X'61',X'',1")
        for number in range(10 if large else 1):
            table.insert({"id": number})
        transaction.query("INSERT INTO log VALUES (1)", "shop")
        transaction.query("XA END X'61',X'',1")
        transaction.query("XA ROLLBACK X'61',X'',1")
    events = [event for event in fake.events() if b"COMMIT" not in event and b"BEGIN" not in event]
    scan = TransactionScan()
    for event in events:
        scan.feed(event)
    assert scan.boundary.gtid == fake.executed
    options = {"read_again": lambda wanted, offset: iter(events), "look_ahead": lambda journal, offset: [(0, 12)]}
    entries = decoded(events, piece_entries=4 if large else 100, **options)
    assert [(entry.entry_type.name, entry.row_change.sql) for entry in entries] == [
        ("TRANSACTIONBEGIN", ""),
        ("ROWDATA", "INSERT INTO log VALUES (1)"),
        ("TRANSACTIONEND", ""),
    ]
    assert entries[-1].position.xa == ()
    assert entries[-1].transaction.row_count == (11 if large else 2)


@pytest.mark.parametrize("flavor", ["mysql", "mariadb"])
@pytest.mark.parametrize("size", [1, 10])
def test_statements_of_a_prepared_xa_transaction_are_delivered_when_it_is_rolled_back(flavor: Any, size: int) -> None:
    """They may have changed a table without transactions."""
    fake = FakeBinlog(flavor=flavor)
    table = fake.table("shop", "orders", "id INT")
    for name in ("first", "second"):
        with fake.transaction(xa=name) as transaction:
            for number in range(size):
                table.insert({"id": number})
            transaction.query(f"INSERT INTO log VALUES ('{name}')", "shop")
            table.insert({"id": 100})
    table.insert({"id": 200})
    fake.xa_rollback("second")
    fake.xa_rollback("first")
    fake.end()
    expected = [200, "INSERT INTO log VALUES ('second')", "INSERT INTO log VALUES ('first')"]

    with started(fake, store_entries=16) as instance:
        instance.subscribe()
        entries = everything(instance)
    assert changes(entries) == expected
    assert rolled_back(entries) == expected[1:]
    for stop, entry in enumerate(entries):
        if entry.is_end:
            with started(fake, start=entry.position, store_entries=16) as instance:
                instance.subscribe()
                assert changes(everything(instance)) == changes(entries[stop + 1 :])


def test_xa_transaction_that_is_rolled_back_and_cannot_be_read_again_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    fake = FakeBinlog()
    table = fake.table("shop", "orders", "id INT")
    with fake.transaction(xa="gone"):
        table.insert({"id": 1})
    second = fake.rotate()
    between = fake.position
    fake.xa_rollback("gone")
    table.insert({"id": 2})
    fake.end()
    prepared = decoded(fake.events())[1].position
    assert [one.journal for one in prepared.xa] == ["binlog.000001"]
    fake.purge(second)

    with started(fake, start=attrs.evolve(between, xa=prepared.xa)) as instance:
        instance.subscribe()
        assert changes(everything(instance)) == [2]
    assert "is rolled back, but it cannot be read again" in caplog.text


def test_rows_of_a_large_xa_transaction_that_are_taken_back_are_not_delivered() -> None:
    fake = FakeBinlog()
    table = fake.table("shop", "orders", "id INT")
    with fake.transaction(xa="large") as transaction:
        table.insert({"id": 1})
        transaction.query("SAVEPOINT s")
        for number in range(10):
            table.insert({"id": 10 + number})
        transaction.query("ROLLBACK TO s")
        table.insert({"id": 2})
    fake.xa_commit("large")
    assert changes(decoded(fake.events(), piece_entries=4, **side_reads(fake))) == [1, 2]


# -- LOAD DATA (T47) -----------------------------------------------------------------------------------------------------


def sealed(kind: int, body: bytes) -> bytes:
    event = struct.pack("<IBIIIH", 1_700_000_000, kind, 1, 19 + len(body) + 4, 0, 0) + body
    return event + struct.pack("<I", zlib.crc32(event))


def test_load_data_is_delivered_as_a_statement_and_counted() -> None:
    """T47"""
    fake = FakeBinlog()
    with fake.transaction() as transaction:
        transaction.query("LOAD DATA INFILE 'x' INTO TABLE orders", "shop")
    events = fake.events()
    at = next(n for n, event in enumerate(events) if b"LOAD DATA" in event)
    query = events[at][19:-4]
    load = sealed(18, query[:13] + struct.pack("<IIIB", 1, 10, 13, 0) + query[13:])
    blocks = [sealed(17, struct.pack("<I", 1) + b"1\n2\n"), sealed(9, struct.pack("<I", 1) + b"3\n")]
    _, entry, _ = decoded(chained([*events[:at], *blocks, load, *events[at + 1 :]]))

    assert entry.row_change.sql == "LOAD DATA INFILE 'x' INTO TABLE orders"
    assert (entry.header.schema, entry.header.table, entry.event_type.name) == ("shop", "orders", "INSERT")
    for size in range(19, 45):
        with pytest.raises(canal.DecodeError):
            decoded([*events[:at], sealed(18, load[19:size]), *events[at + 1 :]])


def test_a_statement_that_changes_rows_raises_an_alarm() -> None:
    alarms: list[str] = []
    fake = FakeBinlog()
    with instance_of(fake, filter=r"shop\..*", alarm=lambda _, text: alarms.append(text)) as instance:
        instance.subscribe()
        for database in ("other", "shop"):
            with fake.transaction() as transaction:
                transaction.query("UPDATE t SET a = 1", database)
        message = instance.get(10, timeout=10)
        assert [entry.sql for entry in message.entries if entry.sql] == ["UPDATE t SET a = 1"]

    (alarm,) = alarms
    assert alarm.startswith("statement-format change of shop.t at ")
    assert "its rows are not in the log" in alarm


# -- tagged GTIDs (T30) --------------------------------------------------------------------------------------------------


def test_tagged_gtids_are_followed() -> None:
    """T30"""
    fake = FakeBinlog(uuid=UUID)
    table = fake.table("shop", "orders", "id INT")
    for number, tag in enumerate(["", "a", "a", "b", "", "a"]):
        with fake.transaction(gtid=f"{UUID}:{tag}:{number + 1}" if tag else None):
            table.insert({"id": number})
    events = fake.events()
    ends = [entry for entry in decoded(events) if entry.is_end]

    assert [end.header.gtid for end in ends] == [f"{UUID}:{text}" for text in ("1", "a:2", "a:3", "b:4", "2", "a:6")]
    assert ends[-1].position.gtid == fake.executed == f"{UUID}:1-2:a:2-3:6:b:4"
    scan = TransactionScan()
    for event in events:
        scan.feed(event)
    assert scan.boundary.gtid == fake.executed
    fake.end()
    for stop, end in enumerate(ends[:-1]):
        with started(fake, start=end.position) as instance:
            instance.subscribe()
            found = [row.after["id"] for entry in everything(instance) for row in entry.rows]
        assert found == list(range(stop + 1, 6))


@given(
    st.binary(min_size=16, max_size=16),
    st.from_regex("[a-z_][a-z0-9_]{0,31}", fullmatch=True),
    st.integers(1, 2**63 - 2),
    st.booleans(),
)
def test_a_tagged_gtid_event_is_read_at_any_number(source: bytes, tag: str, number: int, statement: bool) -> None:
    body = bytes(19) + _encode.tagged_gtid_body(source, tag, number, 1, statement)
    text, found, flags = parse_tagged_gtid(body, len(body))
    assert (text.replace("-", ""), found, flags) == (f"{source.hex()}:{tag}", number, statement)
    for end in range(19, len(body)):
        try:
            assert parse_tagged_gtid(body, end) == (text, number, flags)  # what is behind the tag does not matter
        except canal.DecodeError:
            pass


@given(st.binary(max_size=80))
def test_damaged_gtid_and_xa_events_are_errors(body: bytes) -> None:
    for parse in (parse_tagged_gtid, parse_xa_prepare):
        try:
            parse(bytes(19) + body, 19 + len(body))
        except (canal.DecodeError, canal.errors.UnsupportedError):
            pass


@pytest.mark.parametrize("flavor", ["mysql", "mariadb"])
@pytest.mark.parametrize("checksum", [True, False])
def test_damaged_events_are_errors_for_a_scan_too(flavor: Any, checksum: bool) -> None:
    fake = FakeBinlog(flavor=flavor, checksum=checksum)
    table = fake.table("shop", "orders", "id INT")
    table.insert({"id": 1})
    fake.ddl("CREATE TABLE shop.more (id INT)")
    fake.rotate()
    events = fake.events()
    for index, event in enumerate(events):
        for damaged in [event[:size] for size in range(19, min(len(event), 60))] + [
            event[:at] + bytes([value]) + event[at + 1 :] for at in range(19, len(event)) for value in (0, 255)
        ]:
            scan = TransactionScan(2_000_000_000)
            try:
                for one in (*events[:index], damaged, *events[index + 1 :]):
                    scan.feed(one)
                assert scan.boundary
            except (canal.DecodeError, canal.errors.UnsupportedError):
                pass


def test_a_gtid_of_the_other_kind_of_server_is_an_error() -> None:
    mysql, mariadb = FakeBinlog(), FakeBinlog(flavor="mariadb")
    for fake in (mysql, mariadb):
        fake.table("shop", "orders", "id INT").insert({"id": 1})
    with pytest.raises(canal.DecodeError, match="in a mysql log"):
        decoded(chained([*mysql.events(), *mariadb.events()[-5:]]))


def test_a_scan_over_gtids_of_the_other_kind_of_server_is_an_error() -> None:
    fakes = [FakeBinlog(), FakeBinlog(flavor="mariadb")]
    for fake in fakes:
        fake.table("shop", "orders", "id INT").insert({"id": 1})
    for one, other in (fakes, fakes[::-1]):
        scan = TransactionScan()
        with pytest.raises(canal.DecodeError, match="another flavor"):
            for event in (*one.events()[:2], *other.events()[2:]):
                scan.feed(event)
