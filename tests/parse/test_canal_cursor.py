"""A cursor that canal has left is gone on from exactly, and gets the GTID set that it came without."""

from __future__ import annotations

from collections.abc import Iterator

import attrs
import pytest

from canal.binlog.event_types import FL_STANDALONE, MARIADB_GTID, QUERY, XID
from canal.config import InstanceConfig
from canal.instance.instance import Instance
from canal.meta import MemoryMeta
from canal.model import EntryType
from canal.parse.canal_cursor import convert_cursor
from canal.position import Position
from canal.testing import FakeBinlog
from canal.testing._encode import Flavor


class Log(FakeBinlog):
    """Four transactions, of 1, 2, no and 1 rows; ``gtids`` are those done before each and at the end."""

    gtids: list[str]


def log(flavor: Flavor = "mysql", *, gtid: bool = True) -> Log:
    fake = Log(flavor=flavor, gtid=gtid)
    fake.gtids = [""]
    table = fake.table("shop", "t", "id INT PRIMARY KEY")
    table.insert({"id": 1})
    fake.gtids.append(fake.executed)
    with fake.transaction():
        fake.insert(table, {"id": 2})
        fake.insert(table, {"id": 3})
    fake.gtids.append(fake.executed)
    fake.ddl("CREATE TABLE u (id INT)", schema="shop")
    fake.gtids.append(fake.executed)
    table.insert({"id": 4})
    fake.gtids.append(fake.executed)
    fake.end()
    return fake


def canals(fake: FakeBinlog) -> Iterator[tuple[Position, bytes]]:
    """The cursors that canal may write, where a BEGIN, an END or a DDL begins, and the event there."""
    offset = 4
    for event in map(bytes, fake.events()):
        if event[4] in (QUERY, XID) or event[4] == MARIADB_GTID and not event[31] & FL_STANDALONE:
            seconds, server = (int.from_bytes(event[at : at + 4], "little") for at in (0, 5))
            yield Position(fake.journal, offset, timestamp=1000 * seconds, server_id=server, at_event=True), event
        offset += len(event)


def read_on(fake: FakeBinlog, at: Position) -> tuple[list[object], Position]:
    """Ids of the rows and texts of the statements that come behind a cursor, and the last cursor."""
    meta = MemoryMeta()
    meta.start("shop")
    meta.subscribe(1001, "")
    meta.update_cursor(1001, at)
    meta.stop()
    found: list[object] = []
    with Instance(InstanceConfig(destination="shop", source=fake, meta=meta)) as instance:
        for message in instance.stream():
            for entry in message.entries:
                if entry.entry_type is EntryType.ROWDATA:
                    found += [row.after["id"] for row in entry.rows if row.after] or [entry.sql]
        return found, instance.position()


WHOLE: list[object] = [1, 2, 3, "CREATE TABLE u (id INT)", 4]
#: What comes behind each cursor of canal's: a BEGIN is not done, an END and a DDL are.
BEHIND = [WHOLE, WHOLE[1:], WHOLE[1:], WHOLE[3:], WHOLE[4:], WHOLE[4:], []]
DONE = [0, 1, 1, 2, 3, 3, 4]


@pytest.mark.parametrize("number", range(len(BEHIND)))
@pytest.mark.parametrize("flavor", ["mysql", "mariadb"])
def test_canal_cursor_gets_gtid_set(flavor: Flavor, number: int) -> None:
    fake = log(flavor)
    at, _ = list(canals(fake))[number]

    position = convert_cursor(fake.connect(), at)  # type: ignore[arg-type]
    found, last = read_on(fake, at)

    assert (position.at_event, position.source, position.gtid) == (False, fake.identity, fake.gtids[DONE[number]])
    assert position.incarnation
    assert found == BEHIND[number]
    assert last.gtid == fake.executed or not found


def test_canal_cursor_without_gtids_resumes_exactly() -> None:
    fake = log(gtid=False)
    for number, (at, _) in enumerate(canals(fake)):
        assert read_on(fake, at)[0] == BEHIND[number]


@pytest.mark.parametrize("gtid", [True, False])
def test_own_cursor_rewritten_by_canal_resumes_exactly(gtid: bool) -> None:
    """It has the end of a transaction for an offset, and the time and server of the event before that."""
    fake = log("mysql", gtid=gtid)
    for number, (at, event) in enumerate(canals(fake)):
        if event[4] == XID:
            ours = attrs.evolve(at, offset=at.offset + len(event))

            position = convert_cursor(fake.connect(), ours)  # type: ignore[arg-type]

            assert (position.at_event, position.offset, bool(position.gtid)) == (False, ours.offset, gtid)
            assert read_on(fake, ours)[0] == BEHIND[number]


def test_canal_cursor_of_another_log_is_unchanged() -> None:
    fake = log()
    at = Position(fake.journal, 4, timestamp=1000, server_id=99, at_event=True)

    assert convert_cursor(fake.connect(), at) == at  # type: ignore[arg-type]


def test_xa_transaction_prepared_before_canal_cursor_raises_alarm(caplog: pytest.LogCaptureFixture) -> None:
    """canal delivers rows at XA PREPARE, we at XA COMMIT: from canal they come twice, to canal they would be lost."""
    fake = FakeBinlog()
    table = fake.table("shop", "t", "id INT PRIMARY KEY")
    with fake.transaction(xa="one"):
        fake.insert(table, {"id": 1})
    table.insert({"id": 2})
    at, event = [pair for pair in canals(fake) if pair[1][4] == XID][-1]
    alarms: list[str] = []
    meta = MemoryMeta()
    meta.start("shop")
    meta.subscribe(1001, "")
    meta.update_cursor(1001, at)
    meta.stop()
    config = InstanceConfig(destination="shop", source=fake, meta=meta, alarm=lambda _, text: alarms.append(text))
    with Instance(config) as instance:
        fake.xa_commit("one")
        (rows,) = [entry.rows for entry in instance.get(timeout=30).entries if entry.rows]
        with fake.transaction(xa="two"):
            fake.insert(table, {"id": 3})
        table.insert({"id": 4})
        while not instance.position().xa:
            instance.get(timeout=1)

    assert rows[0].after["id"] == 1
    assert [text for text in alarms if "canal has already delivered them at XA PREPARE" in text]
    assert "XA transactions are prepared before the cursor of client 1001" in caplog.text
