"""The schema history: what it gives back for a position, its file, and the follower that reads ahead in the log."""

from __future__ import annotations

import contextlib
import functools
import os
import random
import resource
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import canal
from canal.parse.schema import tables
from canal.parse.schema.history import SchemaHistory, Version
from canal.testing._columns import parse_columns
from canal.testing.fake import FakeBinlog, FakeConnection

HOUR = 3600.0


def at(offset: int, **more: Any) -> canal.Position:
    return canal.Position(journal=f"log.{1 + offset // 100:06}", offset=4 + offset % 100, **more)


def state(number: int) -> dict[str, Any]:
    return {"columns": [f"c{number}"]}


def make(kind: str, request: pytest.FixtureRequest, directory: Path, root: str) -> Any:
    if kind == "zookeeper":
        hosts = request.getfixturevalue("zookeeper_server").hosts
        return canal.parse.ZooKeeperHistory(canal.ZooKeeper(hosts=hosts, root=root, session_timeout=30.0), keep_days=-1)
    return canal.parse.MemoryHistory() if kind == "memory" else canal.FileHistory(directory, keep_days=-1)


@pytest.fixture(params=["memory", "file", "zookeeper"])
def history(request: pytest.FixtureRequest, tmp_path: Path, zookeeper_root: str) -> Iterator[SchemaHistory]:
    made: SchemaHistory = make(request.param, request, tmp_path, zookeeper_root)
    made.open("x")
    yield made
    made.close()


TABLES = [("s", "a"), ("s", "b"), ("t", "\udcff")]
_versions = st.dictionaries(
    st.sampled_from(TABLES), st.one_of(st.integers(0, 9).map(state), st.just(True), st.none()), max_size=3
)
_actions = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.integers(0, 40), _versions, st.none() | st.integers(0, 3).map(lambda n: {"n": n})),
        st.tuples(st.just("prune"), st.integers(0, 300)),
        st.tuples(st.just("restore"), st.integers(0, 300), st.integers(0, 1)),
    ),
    max_size=20,
)


@settings(max_examples=settings().max_examples // 3, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(actions=_actions)
@pytest.mark.parametrize("kind", ["memory", "file", "zookeeper"])
def test_what_it_gives_back_is_what_a_replay_gives(
    kind: str,
    actions: list[tuple[Any, ...]],
    tmp_path_factory: pytest.TempPathFactory,
    request: pytest.FixtureRequest,
    zookeeper_root: str,
) -> None:
    """T85: by position, whatever was pruned before it; and closing changes nothing."""
    directory = tmp_path_factory.mktemp("h")
    history = make(kind, request, directory, f"{zookeeper_root}/{directory.name}")
    history.open("x")
    steps: list[tuple[int, dict[Any, Version], dict[str, Any] | None]] = []
    position, pruned = 0, 0
    for action in actions:
        if action[0] == "add":
            position += action[1]
            given = action[3] if steps else {"first": True}
            history.add(at(position), action[2], given)
            steps.append((position, action[2], given))
        elif action[0] == "prune":
            history.prune(at(action[1]))
            pruned = max([pruned, *(step[0] for step in steps if step[0] <= action[1])])
        else:
            resume = max(action[1], pruned)
            if kind != "memory":
                history.close()
                history.open("x")
            found = history.restore(at(resume, row=action[2]))
            steps = [step for step in steps if step[0] <= resume]
            position = steps[-1][0] if steps else 0
            tables: dict[Any, Version] = {}
            setting: Any = {}
            for _, versions, given in steps:
                tables.update(versions)
                setting = setting if given is None else given
            if not steps:
                assert found is None
                pruned = 0
            else:
                assert found is not None
                assert dict(found.tables) == {name: one for name, one in tables.items() if one is not None}
                assert found.settings == setting
    history.close()


def test_steps_of_two_sources_are_ordered_by_their_gtid_sets(history: SchemaHistory) -> None:
    one, two = "3e11fa47-71ca-11e1-9e33-c80aa9429562:", "9e11fa47-71ca-11e1-9e33-c80aa9429562:"
    history.add(canal.Position(journal="a.000009", offset=9, gtid=f"{one}1-5", source="A"), {("s", "a"): state(1)}, {})
    history.add(canal.Position(journal="a.000009", offset=90, gtid=f"{one}1-9", source="A"), {("s", "a"): state(2)}, {})

    found = history.restore(canal.Position(journal="b.000001", offset=4, gtid=f"{one}1-7,{two}1", source="B"))

    assert found is not None
    assert found.tables == {("s", "a"): state(1)}


def test_a_history_of_another_source_is_refused(history: SchemaHistory) -> None:
    history.add(canal.Position(journal="a.000009", offset=9, source="A"), {}, {})

    with pytest.raises(canal.errors.HistoryError, match="of A.*of B.*separate history"):
        history.restore(canal.Position(journal="a.000010", offset=9, source="B"))


def test_young_steps_stay_for_a_start_in_the_past(tmp_path: Path) -> None:
    now = [1000.0 * HOUR]
    history = canal.FileHistory(tmp_path, keep_days=1, clock=lambda: now[0])
    history.open("x")
    for number in range(3):
        history.add(at(number), {("s", "a"): state(number)}, {})
        now[0] += 20 * HOUR
    history.prune(at(50))
    history.close()
    with contextlib.closing(sqlite3.connect(tmp_path / "x" / "schema.db")) as database:
        rows = database.execute("SELECT count(*) FROM step").fetchall()
    history.open("x")

    assert rows == [(2,)]
    found = history.restore(at(1))
    assert found is not None
    assert found.tables == {("s", "a"): state(1)}
    history.close()


def _flipped(path: Path) -> None:
    """A byte of a version, which SQLite itself has no checksum of."""
    database = sqlite3.connect(path)
    ((state,),) = database.execute("SELECT state FROM version").fetchall()
    database.execute("UPDATE version SET state = ?", (state[:-1] + bytes((state[-1] ^ 1,)),))
    database.commit()
    database.close()


def _newer(path: Path) -> None:
    database = sqlite3.connect(path)
    database.execute("PRAGMA user_version = 99")
    database.close()


@pytest.mark.parametrize(
    ("damage", "told"),
    [
        (lambda path: path.write_bytes(b"no database" * 99), "damaged"),
        (lambda path: path.write_bytes(path.read_bytes()[:5000]), "damaged"),
        (_flipped, "damaged"),
        (_newer, "format 99 instead of 1"),
    ],
    ids=["overwritten", "cut", "flipped", "newer"],
)
def test_a_file_that_cannot_be_trusted_is_refused(tmp_path: Path, damage: Callable[[Path], None], told: str) -> None:
    history = canal.FileHistory(tmp_path)
    history.open("x")
    history.add(at(1), {("s", "a"): state(1)}, {})
    history.close()
    damage(tmp_path / "x" / "schema.db")

    with pytest.raises(canal.errors.HistoryError, match=told):
        history.open("x")
        history.restore(at(1))
    history.close()


def test_a_second_user_and_a_folder_that_cannot_be_written_are_told(tmp_path: Path) -> None:
    first, second = canal.FileHistory(tmp_path), canal.FileHistory(tmp_path)
    first.open("x")
    first.add(at(1), {}, {})
    with pytest.raises(canal.errors.HistoryError, match="Another process"):
        second.open("x")
    (tmp_path / "file").write_text("")
    third = canal.FileHistory(tmp_path / "file")
    third.open("x")
    with pytest.raises(canal.errors.HistoryError, match="cannot write"):
        third.add(at(1), {}, {})
    first.close()


def test_one_that_is_about_to_end_is_waited_for(tmp_path: Path) -> None:
    first, second = canal.FileHistory(tmp_path), canal.FileHistory(tmp_path, wait=60)
    first.open("x")
    first.add(at(1), {("s", "a"): state(1)}, {})
    ending = threading.Timer(1.5, first.close)
    ending.start()
    second.open("x")
    restored = second.restore(at(1))
    ending.join()
    second.close()

    assert restored is not None
    assert list(restored.tables) == [("s", "a")]


_WRITER = """
import canal, sys
history = canal.FileHistory(sys.argv[1])
history.open("x")
for number in range(1, 100000):
    history.add(canal.Position(journal="log.000001", offset=number), {("s", str(n)): {"n": number} for n in range(20)}, {})
    print(number, flush=True)
"""


def test_a_kill_in_mid_write_leaves_whole_steps(tmp_path: Path) -> None:
    for count in (3, 11, 24):
        writer = subprocess.Popen([sys.executable, "-c", _WRITER, str(tmp_path / str(count))], stdout=subprocess.PIPE, text=True)
        assert writer.stdout is not None
        for _ in range(count):
            said = int(writer.stdout.readline())
        os.kill(writer.pid, signal.SIGKILL)
        writer.wait()
        writer.stdout.close()
        history = canal.FileHistory(tmp_path / str(count))
        history.open("x")
        found = history.restore(canal.Position(journal="log.000001", offset=10**9))
        history.close()

        assert found is not None
        (number,) = {one["n"] for one in found.tables.values()}  # type: ignore[index, call-overload]
        assert number >= said
        assert len(found.tables) == 20


# -- the follower ------------------------------------------------------------------------------------------------------


def names(source: canal.parse.Source, **options: Any) -> list[tuple[str, ...]]:
    config = canal.InstanceConfig(destination="x", source=source, **options)
    end = source.position if isinstance(source, FakeBinlog) else None  # of a log that goes on later, maybe
    with canal.Instance(config) as instance:
        instance.subscribe()
        found = []
        while message := instance.get_without_ack(100, timeout=20):
            found += [tuple((row.after or row.before).keys()) for entry in message.entries for row in entry.rows]
            instance.ack(message.id)
            position = instance.position()
            if end is not None and (position.journal, position.offset) == (end.journal, end.offset):
                break
    return found


def test_files_are_read_by_the_statements_in_them(tmp_path: Path) -> None:
    fake = FakeBinlog(flavor="mariadb", metadata="NO_LOG")
    fake.ddl("CREATE TABLE shop.t (id INT PRIMARY KEY, a INT, b INT)")
    table = fake.table("shop", "t", "id INT PRIMARY KEY, a INT, b INT")
    table.insert({"id": 1})
    table.alter("ALTER TABLE shop.t RENAME COLUMN a TO b, RENAME COLUMN b TO a", "id INT PRIMARY KEY, b INT, a INT")
    table.insert({"id": 2})
    fake.end()
    fake.write(tmp_path)

    found = names(canal.LocalBinlogSource(tmp_path), start="earliest")

    assert found == [("id", "a", "b"), ("id", "b", "a")]


def test_columns_that_become_unknown_are_an_alarm_or_an_error(tmp_path: Path) -> None:
    """From files, where nobody can be asked."""
    fake = FakeBinlog(metadata="MINIMAL")
    fake.ddl("CREATE TABLE shop.t (id INT, a INT)")
    table = fake.table("shop", "t", "id INT, a INT")
    table.insert({"id": 1})
    fake.ddl("ALTER TABLE shop.t ADD b INT FIRST OR SO")
    for number in (2, 3):
        table.insert({"id": number})
    fake.end()
    fake.write(tmp_path)
    alarms: list[str] = []
    files: dict[str, Any] = {"alarm": lambda destination, text: alarms.append(text), "start": "earliest"}

    assert names(canal.LocalBinlogSource(tmp_path), **files) == [("id", "a"), ("@1", "@2"), ("@1", "@2")]
    (alarm,) = (text for text in alarms if "shop.t" in text)
    assert isinstance(alarm, canal.AlarmMessage)
    assert alarm.kind is canal.AlarmKind.SCHEMA

    with pytest.raises(canal.errors.SchemaError, match=r"the columns of shop\.t are unknown .*schema="):
        names(canal.LocalBinlogSource(tmp_path), unknown_columns="error", **files)
    with pytest.raises(canal.ConfigError, match="unknown_columns"):
        names(canal.LocalBinlogSource(tmp_path), unknown_columns="maybe", **files)


def test_a_log_that_begins_anew_does_not_begin_with_no_tables(tmp_path: Path) -> None:
    """After RESET MASTER, or where the log was turned on later, tables are older than its first file."""
    fake = FakeBinlog(metadata="MINIMAL")
    fake.ddl("CREATE TABLE IF NOT EXISTS shop.t (id INT, b INT, a INT)")
    fake.table("shop", "t", "id INT, a INT, b INT").insert({"id": 1})
    fake.ddl("CREATE DATABASE made")
    fake.ddl("CREATE TABLE IF NOT EXISTS made.t (id INT, c INT)")
    fake.table("made", "t", "id INT, c INT").insert({"id": 1})
    fake.end()
    fake.write(tmp_path)

    assert names(fake, start="earliest") == [("id", "a", "b"), ("id", "c")]
    assert names(canal.LocalBinlogSource(tmp_path), start="earliest") == [("@1", "@2", "@3"), ("id", "c")]


@pytest.mark.parametrize("late", [False, True])
def test_a_given_schema_holds_at_the_start_of_the_files(tmp_path: Path, late: bool) -> None:
    fake = FakeBinlog(flavor="mariadb", metadata="NO_LOG")
    table = fake.table("shop", "t", "id INT PRIMARY KEY, a INT")
    table.insert({"id": 1})
    table.alter("ALTER TABLE shop.t CHANGE a b INT", "id INT PRIMARY KEY, b INT")
    middle = fake.position
    table.insert({"id": 2})
    fake.end()
    fake.write(tmp_path)
    source = canal.LocalBinlogSource(tmp_path, schema={"shop.t": "id INT PRIMARY KEY, a INT"})

    start = canal.Position(journal=middle.journal, offset=middle.offset) if late else "earliest"
    assert names(source, start=start) == [("id", "a"), ("id", "b")][late:]


GIVEN = "id INT NOT NULL, a INT, note VARCHAR(9), PRIMARY KEY (id), KEY by_a (a)"


@pytest.mark.parametrize("flavor", ["mysql", "mariadb"])
@pytest.mark.parametrize(
    "given", [{"shop.t": GIVEN}, f"CREATE TABLE shop.t ({GIVEN}) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4"], ids=["columns", "sql"]
)
@pytest.mark.parametrize(
    ("statement", "after"),
    [
        ("DROP INDEX by_a ON shop.t", GIVEN.replace(", KEY by_a (a)", "")),
        ("ALTER TABLE shop.t ADD more VARCHAR(5) FIRST", f"more VARCHAR(5), {GIVEN}"),
        ("ALTER TABLE shop.t DROP a", GIVEN.replace(" a INT,", "").replace(", KEY by_a (a)", "")),
    ],
    ids=["drop-key", "add-text", "drop-column"],
)
def test_a_given_schema_has_its_keys_and_its_charset(tmp_path: Path, flavor: Any, given: Any, statement: str, after: str) -> None:
    """A statement of the log that depends on them leaves no column without its name."""
    fake = FakeBinlog(flavor, metadata="MINIMAL" if flavor == "mysql" else "NO_LOG")
    table = fake.table("shop", "t", GIVEN)
    table.insert({"id": 1, "note": "ä"})
    table.alter(statement, after)
    table.insert({"id": 2, "note": "ö"})
    fake.end()
    fake.write(tmp_path)
    alarms: list[str] = []
    config = canal.InstanceConfig(
        destination="files",
        source=canal.LocalBinlogSource(tmp_path, schema=given),
        start="earliest",
        unknown_columns="error",
        alarm=lambda destination, text: alarms.append(text),
    )

    with canal.Instance(config) as instance:
        instance.subscribe()
        rows = [row for message in instance.stream() for entry in message.entries for row in entry.rows]

    assert [row.after["note"] for row in rows] == ["ä", "ö"]
    assert list(rows[1].after.keys()) == [column.name for column in parse_columns(after)]
    assert alarms == []


def test_json_of_mariadb_in_a_given_schema_is_json(tmp_path: Path) -> None:
    """Whose log has it as LONGTEXT."""
    fake = FakeBinlog("mariadb", metadata="NO_LOG")
    fake.table("shop", "t", "id INT, doc JSON").insert({"id": 1, "doc": '{"a": 1}'})
    fake.end()
    fake.write(tmp_path)
    source = canal.LocalBinlogSource(tmp_path, schema={"shop.t": "id INT, doc JSON"})
    config = canal.InstanceConfig(destination="files", source=source, start="earliest", json="objects")
    with canal.Instance(config) as instance:
        instance.subscribe()
        (entry,) = [entry for message in instance.stream() for entry in message.entries if entry.rows]

    assert entry.rows[0].after["doc"] == {"a": 1}
    assert entry.table.columns[1].column_type == "json"


@pytest.mark.parametrize("setting", [1, 2])
def test_names_that_differ_in_case_are_one_table_over_a_restart_too(tmp_path: Path, setting: int) -> None:
    fake = FakeBinlog(metadata="MINIMAL")
    fake.ddl("CREATE TABLE shop.T (a INT, b INT)")
    table = fake.table("shop", "t", "a INT, b INT")
    table.alter("ALTER TABLE shop.t MODIFY b INT FIRST", "b INT, a INT")
    table.insert({"a": 1})
    table.alter("ALTER TABLE shop.T MODIFY a INT FIRST, ALGORITHM = COPY", "a INT, b INT")
    middle = fake.position
    table.insert({"a": 2})
    fake.end()
    fake.write(tmp_path)
    options: dict[str, Any] = {"start": "earliest", "schema_history": canal.parse.MemoryHistory()}
    source = canal.LocalBinlogSource(tmp_path, lower_case_table_names=setting)
    options["source"] = source

    assert names(**options) == [("b", "a"), ("a", "b")]
    assert names(**options | {"start": canal.Position(journal=middle.journal, offset=middle.offset)}) == [("a", "b")]


def test_a_table_is_read_again_only_while_no_change_of_it_waits_in_the_log() -> None:
    """T75."""
    fake = FakeBinlog(metadata="MINIMAL")
    table = fake.table("shop", "t", "id INT PRIMARY KEY, a INT, b INT")
    table.insert({"id": 1})
    start = fake.resolve("earliest")
    fake.ddl("CREATE INDEX i ON shop.t (a)")
    fake.ddl("ALTER TABLE shop.t COMMENT = 'x'")
    assert names_until_error(fake, start) == [("id", "a", "b")]
    table.alter("ALTER TABLE shop.t RENAME COLUMN a TO b, RENAME COLUMN b TO a", "id INT PRIMARY KEY, b INT, a INT")

    with pytest.raises(canal.errors.SchemaError, match=r"shop\.t are unknown.*as of a later change at"):
        names_until_error(fake, start)


def test_a_statement_that_is_not_understood_is_remembered_over_a_restart(tmp_path: Path) -> None:
    """T83: whatever it changed, tables are compared with the source as they come, once each."""
    fake = FakeBinlog(metadata="MINIMAL")
    table, other = (fake.table("shop", name, "id INT PRIMARY KEY, a INT, b INT") for name in ("t", "u"))
    table.insert({"id": 1})
    other.insert({"id": 1})
    options: dict[str, Any] = {"meta": canal.FileMeta(tmp_path), "start": "earliest", "alarm": lambda *_: None}
    assert names(fake, **options) == [("id", "a", "b")] * 2
    table.alter("SWAP EVERYTHING EVERYWHERE", "id INT PRIMARY KEY, b INT, a INT")
    assert names(fake, **options) == []
    table.insert({"id": 2})
    assert names(fake, **options) == [("id", "b", "a")]
    fake.table_columns = None  # type: ignore[assignment,method-assign]  # it is not asked again
    table.insert({"id": 3})
    assert names(fake, **options) == [("id", "b", "a")]


def test_a_statement_about_no_lasting_table_costs_nothing_for_each_of_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakeBinlog(metadata="MINIMAL")
    table = fake.table("shop", "t", "id INT")
    table.insert({"id": 1})
    fake.ddl("CREATE TEMPORARY TABLE shop.x (a INT)")
    fake.ddl("ALTER DATABASE shop CHARSET latin1")
    table.insert({"id": 2})
    fake.end()
    monkeypatch.setattr(tables, "table_to_document", lambda state: pytest.fail("all tables were written"))
    assert names(fake, start="earliest") == [("id",)] * 2


def test_the_history_of_a_log_that_was_begun_anew_is_not_believed(tmp_path: Path) -> None:
    """RESET MASTER: the same source, the same names of journals and the same GTIDs, but other tables."""
    told: list[str] = []
    for year, columns in ((1, "id INT, a INT, b INT"), (2, "id INT, b INT, a INT"), (3, "id INT, a INT, b INT")):
        fake = FakeBinlog(metadata="MINIMAL", clock=functools.partial(float, 1e9 + year * HOUR))
        if year == 3:
            fake.rotate()  # so that the former journal is there, but it is another one
        table = fake.table("shop", "t", columns)
        table.insert({"id": 1})
        start = fake.position
        table.insert({"id": 2})
        history = canal.FileHistory(tmp_path)
        options: dict[str, Any] = {"start": "earliest" if year == 1 else start, "schema_history": history}
        found = names(fake, **options, alarm=lambda _, text: told.append(text))
        assert found == [tuple(columns.replace(" INT", "").split(", "))] * (2 if year == 1 else 1)
    assert [text.partition(":")[0] for text in told] == ["the schema history belongs to a log that the source no longer has"] * 2


def test_the_history_of_a_stranger_with_numbers_like_ours_is_not_believed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """MariaDB's GTIDs of two servers in one domain compare, whether they have ever met or not."""
    for server_id, columns in ((1, "id INT, a INT, b INT"), (2, "id INT, b INT, a INT")):
        fake = FakeBinlog("mariadb", metadata="NO_LOG", server_id=server_id)
        table = fake.table("shop", "t", columns)
        for _ in range(server_id):
            fake.ddl("CREATE TABLE x.x (x INT)")
            table.insert({"id": 1})
        start = fake.position
        table.insert({"id": 2})
        monkeypatch.setattr(FakeConnection, "has_logged", lambda self, gtid: False, raising=False)
        history = canal.FileHistory(tmp_path)
        found = names(fake, start=start, schema_history=history, alarm=lambda *_: None)
        assert found == [tuple(columns.replace(" INT", "").split(", "))]


def names_until_error(fake: FakeBinlog, start: canal.Position) -> list[tuple[str, ...]]:
    config = canal.InstanceConfig(destination="x", source=fake, start=start, alarm=lambda destination, text: None)
    with canal.Instance(config) as instance:
        instance.subscribe()
        message = instance.get(1, timeout=30)
        return [tuple(row.after.keys()) for entry in message.entries for row in entry.rows if row.after]


def test_a_lost_connection_goes_back_to_the_schemas_of_its_place() -> None:
    fake = FakeBinlog(metadata="MINIMAL")
    fake.ddl("CREATE TABLE shop.t (id INT PRIMARY KEY, a INT)")
    table = fake.table("shop", "t", "id INT PRIMARY KEY, a INT")
    for number in range(8):
        table.insert({"id": number})
        old, new = f"c{number}" if number else "a", f"c{number + 1}"
        table.alter(f"ALTER TABLE shop.t CHANGE {old} {new} INT", f"id INT PRIMARY KEY, {new} INT")
    fake.end()
    for events in (4, 7, 9, 9, 12):
        fake.cut_after(events)

    found = names(fake, start="earliest", reconnect_backoff=(0.01, 0.01), alarm=lambda destination, text: None)

    assert found == [("id", "a"), *(("id", f"c{number}") for number in range(1, 8))]


def test_what_was_complete_before_the_disk_is_full_is_delivered_and_the_rest_once_there_is_room(tmp_path: Path) -> None:
    fake = FakeBinlog(metadata="MINIMAL")
    rng = random.Random(1)
    for number in range(60):
        columns = ", ".join(f"c{rng.getrandbits(64):x} INT" for _ in range(40))
        fake.ddl(f"CREATE TABLE shop.t{number} ({columns})")
        fake.table("shop", f"t{number}", columns).insert({})
    fake.end()

    def read() -> list[str]:
        config = canal.InstanceConfig(
            destination="x", source=fake, start="earliest", meta=canal.FileMeta(tmp_path), alarm=lambda *_: None
        )
        with canal.Instance(config) as instance:
            instance.subscribe()
            while len(found) < 60:
                message = instance.get_without_ack(100, timeout=20)
                assert message
                found.extend(entry.header.table for entry in message.entries for _ in entry.rows)
                instance.ack(message.id)
        return found

    found: list[str] = []
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, limits[1]))
    try:
        for _ in range(2):
            with pytest.raises(canal.errors.HistoryError, match="cannot write .*schema.db: .* [(]at binlog.*Free disk space"):
                read()
            number = len(found)
            assert 10 < number < 60
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert found == [f"t{n}" for n in range(number)]
    assert read() == [f"t{n}" for n in range(60)]


def test_a_default_charset_that_is_not_known_is_that_of_the_table_map(tmp_path: Path) -> None:
    """CREATE DATABASE stands in an earlier file."""
    fake = FakeBinlog(metadata="MINIMAL")
    fake.ddl("CREATE TABLE t (id INT, a VARCHAR(20), b CHAR(3), c TEXT, e ENUM('a','b'))", schema="shop")
    table = fake.table("shop", "t", "id INT, a VARCHAR(20) CHARACTER SET latin1, b BINARY(3), c BLOB, e ENUM('a','b')")
    table.insert({"id": 1, "a": "é", "b": b"x", "c": b"\xff", "e": "b"})
    fake.ddl("ALTER TABLE t ADD d VARCHAR(5) FIRST", schema="shop")
    table = fake.table(
        "shop",
        "t",
        "d VARCHAR(5) CHARACTER SET gbk, id INT, a VARCHAR(20) CHARACTER SET latin1, b BINARY(3), c BLOB, e ENUM('a','b')",
    )
    table.insert({"d": "中", "id": 2, "a": "é", "b": None, "c": None, "e": None})
    fake.end()
    fake.write(tmp_path)
    with canal.Instance(
        canal.InstanceConfig(destination="d", source=canal.LocalBinlogSource(tmp_path), start="earliest")
    ) as instance:
        instance.subscribe()
        entries = [entry for message in instance.stream() for entry in message.entries if entry.table is not None]

    rows = [row.after.as_dict() for entry in entries for row in entry.rows]
    assert rows == [
        {"id": 1, "a": "é", "b": b"x\0\0", "c": b"\xff", "e": "b"},
        {"d": "中", "id": 2, "a": "é", "b": None, "c": None, "e": None},
    ]
    types = [column.column_type for column in entries[0].table.columns]
    assert types == ["int", "varchar(20)", "binary(3)", "blob", "enum('a','b')"]
    assert [column.charset for column in entries[1].table.columns] == ["gbk", None, "latin1", None, None, None]
