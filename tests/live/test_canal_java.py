"""Beside alibaba/canal 1.1.7 itself: the same log through both gives the same entries, and each goes on from the other's cursor.

What stays different by choice stands in docs/migrating.md, and is taken out here, each in one line of ``comparable``.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import random
import time
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

import canal
from canal.filter import TableFilter
from canal.formats.canal_json import flat_message
from canal.testing import ZooKeeperServer
from canal.testing.servers import ThrowawayServer
from tests.support.fix_canal_java import CanalJava
from tests.support.fix_servers import Line
from tests.support.live import end_of_log, is_since, source
from tests.support.waiting import until

_numbers = itertools.count(1)
#: Types and literals of two values. Text is in the charset of the connection, which is the only one that canal knows.
TYPES: dict[str, tuple[str, str]] = {
    "tinyint(1)": ("1", "-128"),
    "tinyint(4)": ("7", "-1"),
    "tinyint(3) unsigned zerofill": ("5", "255"),
    "smallint(6)": ("-32768", "9"),
    "smallint(5) unsigned": ("40000", "9"),
    "mediumint(9)": ("-8388608", "1"),
    "int(11)": ("-5", "2147483647"),
    "int(5) unsigned zerofill": ("42", "4294967295"),
    "int(10) unsigned": ("1", "4000000000"),
    "bigint(20)": ("-9223372036854775808", "1"),
    "bigint(20) unsigned": ("18446744073709551615", "3"),
    "float": ("-1.5", "0.25"),
    "float(7,4)": ("1.25", "-2.5"),
    "double": ("1e300", "0"),
    "double(10,3) unsigned": ("1.125", "0"),
    "decimal(10,2)": ("1.50", "-99999999.25"),
    "decimal(6,3) unsigned zerofill": ("7.125", "0.5"),
    "bit(9)": ("b'101010101'", "b'1'"),
    "year(4)": ("2020", "1901"),
    "date": ("'2026-02-03'", "'1000-01-01'"),
    "time(3)": ("'-01:02:03.250'", "'838:59:59'"),
    "datetime": ("'2026-02-03 04:05:06'", "'1000-01-01 00:00:00'"),
    "datetime(6)": ("'2026-02-03 04:05:06.123456'", "'9999-12-31 23:59:59'"),
    "timestamp(2) null": ("'2026-02-03 04:05:06.25'", "'1971-01-01 00:00:01'"),
    "char(5)": ("'é'", "''"),
    "varchar(300)": ("'ж\\\"'", "'a'"),
    "mediumtext": ("'😀'", "''"),
    "tinytext": ("'a'", "'b'"),
    "binary(4)": ("'ab'", "'abcd'"),
    "varbinary(9)": ("x'ff00'", "'a'"),
    "longblob": ("x'ff00'", "''"),
    "enum('a','ü')": ("'ü'", "'a'"),
    "set('x','y','z')": ("'x,z'", "''"),
    "point": ("ST_GeomFromText('POINT(1 2)')", "ST_GeomFromText('POINT(-1 0)')"),
    "polygon": ("ST_GeomFromText('POLYGON((0 0,1 0,1 1,0 0))')", "ST_GeomFromText('POLYGON((0 0,2 0,2 2,0 0))')"),
}
NULL_TYPES = {"timestamp(2) null"}


def types_of(line: Line) -> dict[str, tuple[str, str]]:
    found = dict(TYPES)
    if line.kind == "mysql" and line.can("json"):
        found["json"] = ("""'{"a": [1, null]}'""", """'["x"]'""")
    if not line.can("initialize") and line.kind == "mysql":
        found = {name: values for name, values in found.items() if name not in ("point", "polygon")}
    return found


def stages_of(line: Line, tables: int, seed: int) -> Iterator[list[str]]:
    """Tables of random types, rows put in, changed and removed, statements between them.

    canal asks the server for the columns of a table, so it reads each stage before the next one.
    """
    chance, types = random.Random(seed), types_of(line)
    yield ["DROP DATABASE IF EXISTS beside", "CREATE DATABASE beside CHARACTER SET utf8mb4", "CREATE TABLE beside.mark (n int)"]
    made, later = [], []
    for number in range(tables):
        chosen = list(types) if number == 0 else chance.sample(list(types), chance.randint(2, 12))
        columns = ", ".join(f"c{i} {kind}" for i, kind in enumerate(chosen))
        table = f"beside.t{number}"
        made.append(f"CREATE TABLE {table} (id int(11) NOT NULL, {columns}, last tinyint(1), PRIMARY KEY (id))")
        for row in (0, 1):
            made.append(f"INSERT INTO {table} VALUES ({row}, {', '.join(types[kind][row] for kind in chosen)}, {row})")
        nothing = ", ".join(["NULL"] * (len(chosen) + 1))
        made.append(f"INSERT INTO {table} VALUES (2, {nothing}), (3, {nothing})")
        made.append(f"UPDATE {table} SET last = 1 - last, c0 = {types[chosen[0]][1]}")
        later.append(f"ALTER TABLE {table} ADD more int(3) unsigned zerofill AFTER id, MODIFY last tinyint(2)")
        later += [f"UPDATE {table} SET more = id", f"DELETE FROM {table} WHERE id < 3"]
    yield made
    yield later
    yield [
        "RENAME TABLE beside.t0 TO beside.r0",
        "CREATE INDEX k ON beside.r0 (more)",
        "TRUNCATE TABLE beside.r0",
        "DROP TABLE beside.r0",
    ]


def run(server: ThrowawayServer, statements: list[str]) -> None:
    with server.connect(charset="utf8mb4", autocommit=True) as connection, connection.cursor() as cursor:
        cursor.execute("SET sql_mode = '', time_zone = '+00:00'")
        if server.kind == "mariadb":  # canal makes an entry of each text
            cursor.execute("SET binlog_annotate_row_events = OFF")
        for sql in statements:
            cursor.execute(sql)


class Both:
    """canal and an Instance, each on a destination of its own that begins at one position."""

    def __init__(self, server: ThrowawayServer, canal_java: CanalJava, folder: Path) -> None:
        self.server, self.java, self.folder = server, canal_java, folder
        plugin = "WITH mysql_native_password " if is_since(server, mysql=(8, 0)) else ""  # canal knows no other
        if not server.query("SELECT 1 FROM mysql.user WHERE user = 'beside'"):
            server.query(f"CREATE USER 'beside'@'%' IDENTIFIED {plugin}BY 'beside'")
            server.query("GRANT ALL ON *.* TO 'beside'@'%'")
        self._start = end_of_log(server)

    @contextlib.contextmanager
    def canal(self, **options: Any) -> Iterator[CanalJava]:
        """canal's server with the destination "both", subscribed; with ``zookeeper`` it takes turns for it."""
        position = {"journalName": self._start.journal, "position": self._start.offset, "timestamp": int(time.time() * 1000)}
        if options.get("gtid"):
            position["gtid"] = self._start.gtid
        self.java.call(
            "start",
            host=self.server.host,
            port=self.server.port,
            user="beside",
            password="beside",
            directory=str(self.folder),
            server_id=70_000 + next(_numbers),
            position=json.dumps(position),
            **{"destination": "both", "filter": r"beside\..*", **options},
        )
        try:
            if "zookeeper" not in options:
                self.java.call("subscribe")
            yield self.java
        finally:
            self.java.call("stop")

    @contextlib.contextmanager
    def ours(self, **options: Any) -> Iterator[canal.Instance]:
        config = canal.InstanceConfig(
            source=source(self.server),
            start=self._start,
            **{
                "destination": "both",
                "meta": canal.FileMeta(self.folder),
                "filter": r"beside\..*",
                "column_types": "history",
                "leave_out": ("tableless",),
                **options,
            },
        )
        with canal.Instance(config) as instance:
            instance.subscribe()
            yield instance


def of_canal(java: CanalJava, size: int = 1000) -> tuple[list[Any], list[Any]]:
    """Entries and FlatMessages up to the next mark, acked."""
    entries: list[Any] = []
    flat: list[Any] = []
    for _ in range(60):
        answer = java.call("get", size=size)
        if answer["id"] != -1:
            java.call("ack", id=answer["id"])
        entries += answer["entries"]
        flat += answer["flat"]
        if any(one["table"] == "mark" and one["eventType"] == "INSERT" for one in answer["entries"]):
            return entries, flat
    raise AssertionError(f"canal gave {len(entries)} entries; its log is {java.log.read_text()[-3000:]}")


def of_ours(instance: canal.Instance, marks: int = 1) -> list[canal.Entry]:
    entries: list[canal.Entry] = []
    deadline = time.monotonic() + 60
    while sum(entry.header.table == "mark" and entry.event_type is canal.EventType.INSERT for entry in entries) < marks:
        assert time.monotonic() < deadline, entries[-3:]
        message = instance.get_without_ack(1000, timeout=0.5)
        entries += message.entries
        if message:
            instance.ack(message.id)
    return entries


def form_of(entry: canal.Entry) -> dict[str, Any]:
    """An entry as Beside.java writes one."""
    header = entry.header
    form = {
        "entryType": entry.entry_type.name,
        "eventType": entry.event_type.name,
        "journal": header.journal,
        "offset": header.offset,
        "server": header.server_id,
        "time": header.execute_time,
        "length": header.event_length,
        "schema": header.schema,
        "table": header.table,
        "props": header.props,
    }
    if entry.entry_type is canal.EntryType.ROWDATA:
        rows = [
            [[list(vars_of(column)) for column in image] for image in (row.before_columns, row.after_columns)]
            for row in entry.row_change.columns(codes_of_values=True)
        ]
        form |= {"isDdl": entry.is_ddl, "sql": entry.row_change.sql, "rows": rows}
    return form


def vars_of(column: Any) -> tuple[Any, ...]:
    names = ("index", "sql_type", "name", "is_key", "updated", "is_null", "value", "mysql_type")
    return tuple(getattr(column, name) for name in names)


def comparable(form: dict[str, Any], gtid_mode: bool) -> dict[str, Any]:
    """Without what differs by choice."""
    if form["entryType"] != "ROWDATA":
        form = {**form, "eventType": ""}
    if not gtid_mode:  # canal tells GTIDs only where it reads by them
        form = {**form, "props": {name: text for name, text in form["props"].items() if name == "rowsCount"}}
    if form.get("rows"):
        form = {**form, "rows": [[list(map(comparable_column, image)) for image in row] for row in form["rows"]]}
    return form


def comparable_column(column: list[Any]) -> list[Any]:
    *head, value, kind = column
    return [*head, comparable_value(value, kind), kind]


def comparable_value(value: str | None, kind: str) -> Any:
    if value is not None and kind.startswith("binary"):
        return value.rstrip("\0")
    if value is not None and kind.startswith("decimal"):
        return Decimal(value)
    return value


def comparable_flat(flat: dict[str, Any]) -> dict[str, Any]:
    """Without what differs by choice; the codes of ``sqlType`` are compared column by column."""
    kinds = flat["mysqlType"]
    data = flat["data"] and [{name: comparable_value(text, kinds[name]) for name, text in row.items()} for row in flat["data"]]
    left = {name: value for name, value in flat.items() if name not in ("ts", "id", "gtid", "old", "sqlType")}
    return {**left, "data": data}


def compare(line: Line, server: ThrowawayServer, canal_java: CanalJava, folder: Path, tables: int, seed: int, gtid: bool) -> int:
    """How many columns there were."""
    both = Both(server, canal_java, folder)
    entries, flat = [], []
    with both.canal(gtid=gtid) as java:
        for stage in stages_of(line, tables, seed):
            run(server, [*stage, "INSERT INTO beside.mark VALUES (1)"])
            for some, more in zip((entries, flat), of_canal(java)):
                some += more
    for left in folder.rglob("meta.*"):
        left.unlink()
    with both.ours() as instance:
        own = of_ours(instance, 4)

    theirs = [comparable(entry, gtid) for entry in entries]
    ours = [comparable(form_of(entry), gtid) for entry in own]
    if server.kind == "mariadb":  # canal has no entry of its BEGIN
        theirs, ours = ([one for one in some if one["entryType"] == "ROWDATA"] for some in (theirs, ours))
    assert len(ours) >= len(theirs)
    for one, other in zip(ours, theirs):
        assert one == other
    flat_ours = [flat_message(entry, batch_id=0, now=0) for entry in own if entry.entry_type is canal.EntryType.ROWDATA]
    for mine, other in zip(flat_ours, flat):
        assert list(mine) == list(other)
        assert comparable_flat(mine) == comparable_flat(other)
        for old, more in zip(mine["old"] or [], other["old"] or [], strict=True):  # canal's grows from row to row
            kinds = mine["mysqlType"]
            assert {name: comparable_value(old[name], kinds[name]) for name in old} == {
                name: comparable_value(more[name], kinds[name]) for name in old
            }
    return sum(len(image) for entry in theirs for row in entry.get("rows", ()) for image in row)


def modes_of(line: Line) -> tuple[bool, ...]:
    """By GTID, and by journal and offset; canal reads MariaDB's GTIDs only when they come from a file of its console."""
    return (True, False) if line.kind == "mysql" else (False,)


short = pytest.mark.lines("mysql==8.0.15", "mariadb==10.11")


@short
@pytest.mark.every_line
def test_entries_columns_and_flat_messages_are_canals(
    line: Line, server: ThrowawayServer, canal_java: CanalJava, tmp_path: Path
) -> None:
    """Types, codes, texts, ``mysqlType``, ``header.props``, offsets, lengths and times, with FULL metadata too."""
    for gtid in modes_of(line):
        assert compare(line, server, canal_java, tmp_path, 3, 5, gtid) > 300


@pytest.mark.lines("mysql>=5.6,<8.4", "mariadb>=10.2,<11")
def test_entries_of_more_tables_are_canals(line: Line, server: ThrowawayServer, canal_java: CanalJava, tmp_path: Path) -> None:
    """On each line that canal 1.1.7 can read, in `make matrix`."""
    assert compare(line, server, canal_java, tmp_path, 20, 7, line.can("gtid") and line.kind == "mysql") > 1000


@short
@pytest.mark.every_line
def test_each_goes_on_from_the_cursor_of_the_other(
    line: Line, server: ThrowawayServer, canal_java: CanalJava, tmp_path: Path
) -> None:
    """Nothing is repeated and nothing lost: from canal to ours, and back; columns that a filter leaves keep their ``index``."""
    for gtid in modes_of(line):
        check_cursors(server, canal_java, tmp_path / str(gtid), gtid)


def check_cursors(server: ThrowawayServer, canal_java: CanalJava, folder: Path, gtid: bool) -> None:
    both = Both(server, canal_java, folder)
    run(server, ["DROP DATABASE IF EXISTS beside", "CREATE DATABASE beside", "CREATE TABLE beside.mark (n int, a int, b int)"])

    def mark(number: int) -> None:
        run(server, [f"INSERT INTO beside.mark VALUES ({number}, 0, {number})"])

    def marks(forms: list[Any]) -> list[Any]:
        return [image for form in forms if form["eventType"] == "INSERT" for row in form["rows"] for image in row if image]

    mark(1)
    with both.canal(gtid=gtid, fields="beside.mark:n/b") as java:
        first = marks(of_canal(java)[0])
    mark(2)
    with both.ours(field_filter="beside.mark:n/b") as instance:
        second = marks([form_of(entry) for entry in of_ours(instance)])
    mark(3)
    with both.canal(gtid=gtid, fields="beside.mark:n/b") as java:
        third = marks(of_canal(java)[0])

    def image(n: int) -> list[list[Any]]:
        return [[index, 4, name, False, True, False, str(n), "int(11)"] for index, name in ((0, "n"), (2, "b"))]

    expected = [[image(n)] for n in (1, 2, 3)]
    assert [first, second, third] == expected


@short
@pytest.mark.every_line
def test_canal_and_ours_take_turns(
    line: Line, server: ThrowawayServer, canal_java: CanalJava, own_zookeeper: ZooKeeperServer, tmp_path: Path
) -> None:
    """For one destination in ZooKeeper: each stands by while the other runs it, then goes on behind what that has acked."""
    for gtid in modes_of(line):
        check_turns(Both(server, canal_java, tmp_path), own_zookeeper.hosts, gtid)


def check_turns(both: Both, hosts: str, gtid: bool) -> None:
    run(both.server, ["DROP DATABASE IF EXISTS beside", "CREATE DATABASE beside", "CREATE TABLE beside.mark (n int)"])
    name = {"destination": f"turns-{gtid}"}
    ha = canal.ZooKeeper(hosts=hosts, session_timeout=6.0, takeover_delay=3.0)  # canal waits for a second, ours for longer

    def mark(number: int) -> None:
        run(both.server, [f"INSERT INTO beside.mark VALUES ({number})"])

    def of_java() -> list[int]:
        return [int(row[1][0][6]) for form in of_canal(both.java)[0] for row in form.get("rows", ()) if row[1]]

    def of_instance(instance: canal.Instance) -> list[int]:
        return [row.after["n"] for entry in of_ours(instance) for row in entry.rows if row.after]

    def has_passed(instance: canal.Instance) -> bool:
        if instance.role is canal.Role.ACTIVE:
            instance.release()
        return bool(both.java.call("active"))

    with contextlib.ExitStack() as stack:
        with both.canal(gtid=gtid, zookeeper=hosts, **name) as java:
            until(lambda: java.call("active"), 120)
            java.call("subscribe")
            instance = stack.enter_context(both.ours(ha=ha, meta=canal.ZooKeeperMeta(ha), **name))
            mark(1)
            assert of_java() == [1]
            mark(2)
            until(lambda: java.call("get", size=1000)["id"] != -1)  # and no ack
            assert instance.role is canal.Role.STANDBY
        until(lambda: instance.role is canal.Role.ACTIVE, 120)
        assert of_instance(instance) == [2]
        with both.canal(gtid=gtid, zookeeper=hosts, **name) as java:
            mark(3)
            assert of_instance(instance) == [3]
            mark(4)
            assert instance.get_without_ack(1000, timeout=60)
            assert not java.call("active")
            until(lambda: has_passed(instance), 120)
            java.call("subscribe")
            assert of_java() == [4]
            mark(5)
            assert of_java() == [5]
        until(lambda: instance.role is canal.Role.ACTIVE, 120)
        mark(6)
        assert of_instance(instance) == [6]


def random_filters(count: int, seed: str) -> Iterator[tuple[str, str]]:
    chance = random.Random(seed)
    atoms = ("a", "b", "shop", r"\.", ".", ".*", "[ab]", "(a|b)+", "x?", r"\d", "[[:alpha:]]", "[^a]", "_", "$", "T1", "t{2}")
    names = ("a.b", "shop.a", "shop.orders_1", "A.T1", "b.tt", "shop.x", "ab.ba", "a._", "shop.é", "s h.a b", "a.b.c")
    for _ in range(count):
        parts = ("".join(chance.choices(atoms, k=chance.randint(1, 5))) for _ in range(chance.randint(1, 3)))
        yield ",".join(parts), chance.choice(names)


@pytest.mark.lines("mysql>=5.6,<8.4", "mariadb>=10.2,<11")
def test_filters_accept_what_canals_accept(line: Line, canal_java: CanalJava) -> None:
    """Others for each line of `make matrix`; no server is asked."""
    cases = [("", "a.b"), (r".*\..*", "a.b"), (r"SHOP\.T1", "shop.t1"), *random_filters(600, line.name)]

    theirs = canal_java.call("filter", cases=cases)

    ours = [TableFilter(text).accepts(*name.split(".", 1)) for text, name in cases]
    assert [case for case, one, other in zip(cases, ours, theirs) if one != other] == []
    assert 20 < sum(theirs) < 580
