"""XA transactions: rows come at XA COMMIT and never after XA ROLLBACK, across journals, restarts and sessions (T40)."""

from __future__ import annotations

import random

import pytest

from canal import Instance, InstanceConfig, MySQLSource, Position, PositionLostError
from canal.meta import MemoryMeta
from canal.model import EntryType
from canal.position import PreparedXa
from canal.testing import FakeBinlog
from tests.support.waiting import is_in, until

FLAVORS = pytest.mark.parametrize("flavor", ["mysql", "mariadb"])


def _changes(entries):
    return [row.after["id"] for entry in entries for row in entry.rows]


def _deliver(instance, size=1000):
    """Everything up to the end of the log."""
    instance.subscribe()
    entries = []
    while message := instance.get_without_ack(size, timeout=30):
        entries += message.entries
        instance.ack(message.id)
    return entries


def _read(binlog, start="earliest", size=1000):
    with Instance(InstanceConfig(destination="xa", source=binlog, start=start)) as instance:
        return _deliver(instance, size)


def _log(flavor, **options):
    binlog = FakeBinlog(flavor=flavor, **options)
    table = binlog.table("shop", "orders", "id int primary key, note varchar(100)")
    return binlog, table


@FLAVORS
def test_rows_come_at_commit_and_never_after_rollback(flavor):
    """T40"""
    binlog, table = _log(flavor)
    table.insert({"id": 1, "note": ""})
    with binlog.transaction(xa="kept"):
        table.insert({"id": 2, "note": ""}, {"id": 3, "note": ""})
    with binlog.transaction(xa="dropped"):
        table.insert({"id": 100, "note": ""})
    table.insert({"id": 4, "note": ""})
    binlog.rotate()
    binlog.xa_rollback("dropped")
    table.insert({"id": 5, "note": ""})
    binlog.xa_commit("kept")
    with binlog.transaction(xa="never decided"):
        table.insert({"id": 200, "note": ""})
    table.insert({"id": 6, "note": ""})
    binlog.end()

    entries = _read(binlog)
    assert _changes(entries) == [1, 4, 5, 2, 3, 6]
    committed = next(entry for entry in entries if entry.is_end and entry.props.get("XA_TYPE") == "XA COMMIT")
    rows = [e for e in entries if e.transaction is committed.transaction and e.entry_type == EntryType.ROWDATA]
    assert committed.props["XA_XID"] == "X'6b657074',X'',1"
    assert [e.header.gtid for e in rows] == [committed.header.gtid]
    assert {(e.header.journal, e.header.offset) for e in rows} == {(committed.header.journal, committed.header.offset)}
    assert [one.xid for one in entries[-1].position.xa] == ["X'" + b"never decided".hex() + "',X'',1"]


@FLAVORS
def test_the_same_name_may_be_used_again(flavor):
    binlog, table = _log(flavor)
    for number in range(3):
        with binlog.transaction(xa="again"):
            table.insert({"id": number, "note": ""})
        (binlog.xa_commit if number != 1 else binlog.xa_rollback)("again")
    binlog.end()
    assert _changes(_read(binlog)) == [0, 2]


def test_one_phase_commits_at_once():
    binlog, table = _log("mysql")
    with binlog.transaction(xa="one", end="ONE PHASE"):
        table.insert({"id": 1, "note": ""})
    table.insert({"id": 2, "note": ""})
    binlog.end()
    entries = _read(binlog)
    assert _changes(entries) == [1, 2]
    assert entries[-1].position.xa == ()


def test_a_large_one_in_one_phase_comes_once_and_in_order():
    binlog, table = _log("mysql")
    with binlog.transaction(xa="one", end="ONE PHASE"):
        for number in range(55):
            table.insert({"id": number, "note": ""})
    binlog.end()
    with Instance(InstanceConfig(destination="xa", source=binlog, start="earliest", store_entries=40)) as instance:
        assert _changes(_deliver(instance)) == list(range(55))


def test_one_that_the_server_forgot_gives_nothing_to_a_later_one_of_its_name():
    """MySQL 9.7 forgets some prepared transactions when it restarts, and says nothing of it in the log."""
    binlog, table = _log("mysql")
    with binlog.transaction(xa="name"):
        table.insert({"id": 1, "note": "forgotten"})
    binlog.restart()
    with binlog.transaction(xa="name", end="ONE PHASE"):
        for number in range(100, 155):
            table.insert({"id": number, "note": ""})
    table.insert({"id": 2, "note": ""})
    binlog.end()
    with Instance(InstanceConfig(destination="xa", source=binlog, start="earliest", store_entries=40)) as instance:
        entries = _deliver(instance)
    assert _changes(entries) == [*range(100, 155), 2]
    assert entries[-1].position.xa == ()


@pytest.mark.parametrize(("flavor", "gtid"), [("mysql", True), ("mysql", False), ("mariadb", True)])
def test_resuming_at_any_entry_gives_exactly_the_rest(flavor, gtid):
    """Across XA PREPARE and XA COMMIT in different journals: the cursor says what is open, the rows are read again."""
    binlog, table = _log(flavor, gtid=gtid)
    number = iter(range(1, 1000))

    def rows(count):
        return [{"id": next(number), "note": ""} for _ in range(count)]

    table.insert(*rows(1))
    with binlog.transaction(xa="a"):
        table.insert(*rows(2))
        table.insert(*rows(1))
    with binlog.transaction(xa="b"):
        table.insert(*rows(2))
    with binlog.transaction(xa="gone"):
        table.insert(*rows(2))
    binlog.rotate()
    table.insert(*rows(1))
    binlog.xa_commit("b")
    binlog.xa_rollback("gone")
    binlog.restart()
    with binlog.transaction(xa="b"):
        table.insert(*rows(3))
    binlog.xa_commit("a")
    table.insert(*rows(1))
    binlog.xa_commit("b")
    table.insert(*rows(1))
    binlog.end()

    entries = _read(binlog)
    expected = _changes(entries)
    assert len(expected) == 1 + 1 + 2 + 3 + 1 + 3 + 1
    for stop, entry in enumerate(entries):
        resumed = Position.from_text(entry.position.to_text())
        rest = _read(binlog, resumed, size=1)
        assert _changes(entries[: stop + 1]) + _changes(rest) == expected, (stop, entry, resumed)


@FLAVORS
def test_a_large_one_is_read_again_at_its_commit_and_resumes_inside(flavor):
    binlog, table = _log(flavor)
    with binlog.transaction(xa="large"):
        for start in range(0, 600, 20):
            table.insert(*({"id": number, "note": "x" * 50} for number in range(start, start + 20)))
    table.insert({"id": 1000, "note": ""})
    binlog.xa_commit("large")
    table.insert({"id": 1001, "note": ""})
    binlog.end()
    expected = [1000, *range(600), 1001]
    meta = MemoryMeta()
    seen, lives, rng = [], 0, random.Random(7)
    while len(seen) < len(expected):
        lives += 1
        config = InstanceConfig(
            destination="xa", source=binlog, start="earliest", meta=meta, store_bytes=20_000, store_entries=40
        )
        with Instance(config) as instance:
            instance.subscribe()
            for _ in range(rng.randrange(1, 6)):
                message = instance.get_without_ack(30, timeout=1)
                if message:
                    seen += _changes(message.entries)
                    instance.ack(message.id)
            assert instance.error is None
    assert seen == expected
    assert lives > 3


@FLAVORS
def test_a_start_between_prepare_and_commit_searches_the_log(flavor):
    binlog, table = _log(flavor)
    with binlog.transaction(xa="same name"):
        table.insert({"id": 99, "note": "an earlier one of this name"})
    binlog.xa_commit("same name")
    with binlog.transaction(xa="same name"):
        table.insert({"id": 1, "note": ""})
    binlog.rotate()
    binlog.rotate()
    start = binlog.position
    assert start.xa == ()
    table.insert({"id": 2, "note": ""})
    binlog.xa_commit("same name")
    binlog.end()
    assert _changes(_read(binlog, start)) == [2, 1]


@FLAVORS
def test_a_search_ends_where_its_journal_ends(flavor):
    """A journal that ends with STOP, or with nothing, names no next one: the server goes on with it all the same."""
    binlog, table = _log(flavor)
    with binlog.transaction(xa="x"):
        table.insert({"id": 1, "note": ""})
    binlog.restart()
    start = binlog.position
    binlog.xa_commit("x")
    table.insert({"id": 2, "note": ""})
    with binlog.serve(user="u", password="p") as server:
        source = MySQLSource(host=server.host, port=server.port, user="u", password="p")
        with Instance(InstanceConfig(destination="xa", source=source, start=start)) as instance:
            instance.subscribe()
            found = []
            while len(found) < 2:
                message = instance.get_without_ack(100, timeout=30)
                assert message
                found += _changes(message)
    assert found == [1, 2]


def test_stop_does_not_wait_for_a_server_that_sends_no_rows_again():
    binlog, table = _log("mysql")
    with binlog.transaction(xa="x"):
        table.insert({"id": 1, "note": ""})
    start = binlog.position
    with binlog.serve(user="u", password="p") as server:
        source = MySQLSource(host=server.host, port=server.port, user="u", password="p")
        instance = Instance(InstanceConfig(destination="xa", source=source, start=start)).start()
        instance.subscribe()
        binlog.stall_after(3, 3600.0)  # behind the GTID and XA COMMIT, which make it ask for the rows, and one event of those
        binlog.xa_commit("x")
        until(lambda: not binlog._faults and is_in("_read_log", "canal-xa-parse"))
        instance.stop()


@FLAVORS
def test_positions_do_not_grow_for_ever_with_what_is_never_decided(flavor, caplog):
    binlog, table = _log(flavor)
    for number in range(550):
        with binlog.transaction(xa=f"x{number}"):
            table.insert({"id": number, "note": ""})
    binlog.rotate()
    table.insert({"id": 5000, "note": ""})
    with_all = Position(journal=binlog.journal, offset=4)
    binlog.xa_commit("x0")
    binlog.xa_commit("x549")
    binlog.end()
    entries = _read(binlog)
    assert _changes(entries) == [5000, 0, 549]
    before = next(entry for entry in entries if entry.row_count).position
    assert len(before.xa) == 500
    assert len([one for one in caplog.records if one.levelname == "WARNING" and "XA RECOVER" in one.getMessage()]) == 1
    assert _changes(_read(binlog, Position.from_text(before.to_text()))) == [0, 549]
    assert _changes(_read(binlog, with_all)) == [5000, 0, 549]


@FLAVORS
def test_purged_rows_are_an_error_that_names_the_transaction(flavor):
    binlog, table = _log(flavor)
    with binlog.transaction(xa="x"):
        table.insert({"id": 1, "note": ""})
    journal = binlog.journals[0][0]
    binlog.rotate()
    table.insert({"id": 2, "note": ""})
    after = binlog.position
    binlog.xa_commit("x")
    binlog.end()
    binlog.purge(binlog.journal)
    xid = "X'78',X'',1"
    for known in ((), (PreparedXa(xid, journal, 4),)):
        start = Position(journal=after.journal, offset=after.offset, gtid=after.gtid, source=after.source, xa=known)
        with pytest.raises(PositionLostError, match="78'") as caught:
            _read(binlog, start)
        assert "Copy the tables" in str(caught.value)


@FLAVORS
def test_purged_rows_are_left_behind_where_on_lost_says_so(flavor):
    """Reading goes on behind the XA COMMIT, and not before it once more."""
    alarms = []
    binlog, table = _log(flavor)
    with binlog.transaction(xa="x"):
        table.insert({"id": 1, "note": ""})
    binlog.rotate()
    table.insert({"id": 2, "note": ""})
    binlog.xa_commit("x")
    table.insert({"id": 3, "note": ""})
    binlog.end()
    binlog.purge(binlog.journal)
    config = InstanceConfig(
        destination="xa",
        source=binlog,
        start="earliest",
        on_lost="earliest",
        dump_error_threshold=0,
        reconnect_backoff=(0.001, 0.001),
        alarm=lambda _, text: alarms.append(str(text)),
    )
    with Instance(config) as instance:
        assert _changes(_deliver(instance)) == [2, 3]
    assert len([text for text in alarms if "LOST" in text]) == 1


@FLAVORS
def test_places_of_another_server_are_searched_for(flavor):
    """After a failover the journals are others; the XID finds the rows."""
    binlog, table = _log(flavor)
    table.insert({"id": 1, "note": ""})
    with binlog.transaction(xa="x"):
        table.insert({"id": 2, "note": ""})
    here = binlog.position
    binlog.xa_commit("x")
    binlog.end()
    elsewhere = Position(
        gtid=here.gtid, journal="other.000007", offset=9999, source="another", xa=[PreparedXa("X'78',X'',1", "other.000006", 4)]
    )
    assert _changes(_read(binlog, elsewhere)) == [2]
