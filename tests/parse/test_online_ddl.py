"""T77: the tables of gh-ost and pt-online-schema-change are told by their names, and by what the log shows of their making."""

from __future__ import annotations

import re
from datetime import UTC

import pytest

import canal
from canal.filter import FieldFilter, TableFilter
from canal.parse.schema.classify import classify
from canal.parse.schema.online_ddl import ShadowTables, stems
from canal.parse.schema.table_map import TableResolver
from canal.testing.fake import FakeBinlog

LONG = "t" * 60  # names have 64 characters at most
LONGEST = "t" * 64


@pytest.mark.parametrize(
    ("name", "base"),
    [
        ("_t_gho", "t"),
        ("_t_ghc", "t"),
        ("_t_ghk", "t"),
        ("_t_del", "t"),
        ("_t_rev_del", "t"),
        ("_t_20260102030405_del", "t"),
        ("_t_20260102030405_rev_del", "t"),
        ("__t_gho", "_t"),
        ("_t_x_gho", "t_x"),
        (f"_{LONG[:59]}_gho", LONG),
        (f"_{LONGEST[:44]}_20260102030405_del", LONGEST),
        ("_t_new", "t"),
        ("_t_old", "t"),
        ("__t_new", "t"),
        ("__t_new", "_t"),
        ("__________t_old", "t"),
        ("ABC123__________t_old", "t"),
        ("ABC123_DEF456__________t_old", "t"),
        (f"_{LONG}_ne", LONG),
        (f"__{LONG}_o", LONG),
        (f"_{LONGEST[:63]}", LONGEST),
        (f"_{LONGEST[:62]}_", LONGEST[:62]),
    ],
)
def test_the_base_of_a_shadow(name: str, base: str) -> None:
    assert len(name) <= 64
    assert any(base.startswith(stem) if is_open else base == stem for stem, is_open in stems(name))


@pytest.mark.parametrize("name", ["t", "t_gho", "t_new", "_gho", "__new", "_t", "_t_newer", "_t_GHO", "_new", "x_t_old"])
def test_other_names_have_none(name: str) -> None:
    assert list(stems(name)) == []


def shadows(*existing: str, filter: str = "", alarms: list[str] | None = None) -> ShadowTables:
    def tables_like(schema: str, name: str, is_prefix: bool) -> list[str]:
        return [table for table in existing if table == name or is_prefix and table.startswith(name)]

    return ShadowTables(TableFilter(filter).accepts, tables_like, [].append if alarms is None else alarms.append)


def test_a_table_counts_only_where_its_base_exists_and_is_delivered() -> None:
    assert shadows("orders").base_of("shop", "_orders_old") == "orders"
    assert shadows("order", "orders2").base_of("shop", "_orders_old") == ""
    assert shadows("orders", filter=r"shop\._orders_old").base_of("shop", "_orders_old") == ""
    assert shadows(LONG).base_of("shop", f"_{LONG[:59]}_gho") == LONG
    assert shadows(LONG[:59]).base_of("shop", f"_{LONG[:59]}_gho") == ""


def test_rows_that_the_name_alone_leaves_out_are_told_once() -> None:
    alarms: list[str] = []
    tables = shadows("orders", alarms=alarms)
    tables.base_of("shop", "_orders_old")
    assert alarms == []  # it may never have a row

    assert [tables.leaves_out_rows("shop", name) for name in ("_orders_old", "_orders_old", "_orders_gho", "other")] == [
        True,
        True,
        True,
        False,
    ]

    assert len(alarms) == 2
    assert re.search(r"shop\._orders_old: .*shop\.orders.*shadow_tables=True", alarms[0])


TRIGGER = (
    "CREATE DEFINER=`u`@`%` TRIGGER `s`.`pt_osc_s_t_del` AFTER DELETE ON `s`.`t` FOR EACH ROW DELETE IGNORE FROM `s`.`_t_new` "
    "WHERE `s`.`_t_new`.`id` <=> OLD.`id`"
)


@pytest.mark.parametrize(
    ("log", "name", "is_left_out", "told"),
    [
        (["create /* gh-ost */ table `s`.`_t_gho` like `s`.`t`"], "_t_gho", True, ""),
        (["CREATE TABLE _t_gho (id INT)"], "_t_gho", False, ""),
        (["CREATE TABLE IF NOT EXISTS _t_del LIKE t"], "_t_del", False, ""),
        (["create /* gh-ost */ table _t_del (id int)", "DROP TABLE _t_del", "CREATE TABLE _t_del (id INT)"], "_t_del", False, ""),
        (["CREATE TABLE _t_old (id INT)"], "_t_old", False, ""),
        (["CREATE TABLE _t_new (id INT)", TRIGGER], "_t_new", True, ""),
        ([TRIGGER], "_t_new", True, ""),
        (["CREATE TABLE _t_new (id INT)"], "_t_new", False, r"received rows of s\._t_new: .* delivered.*CREATE was skipped"),
        (["RENAME TABLE t TO _t_old"], "_t_old", False, ""),
        (["ALTER TABLE other RENAME _t_del"], "_t_del", False, ""),
        (["alter /* gh-ost */ table s.t rename _t_del"], "_t_del", True, ""),
        (["CREATE TABLE _t_new (id INT)", TRIGGER, "RENAME TABLE t TO _t_old, _t_new TO t"], "_t_old", True, ""),
        (["RENAME TABLE t TO _t_old, fresh TO t"], "_t_old", False, ""),
        (["create /* gh-ost */ table _t_gho like t", "RENAME TABLE t TO _t_del, _t_gho TO t"], "_t_del", True, ""),
        (["RENAME TABLE _t_old TO _t_del"], "_t_del", True, "not delivered"),
        (["CREATE TEMPORARY TABLE _t_old (id INT)"], "_t_old", True, "not delivered"),
        (["create /* gh-ost */ table `S`.`_T_gho` like `S`.`T`"], "_t_gho", True, ""),
    ],
)
def test_the_log_shows_whose_a_table_is(log: list[str], name: str, is_left_out: bool, told: str) -> None:
    alarms: list[str] = []
    tables = shadows("t", "_t_old", "_t_new", alarms=alarms)
    for sql in log:
        tables.follow(classify(sql, "s"), sql)

    assert tables.leaves_out_rows("s", name) == is_left_out
    assert bool(tables.base_of("s", name)) == is_left_out
    assert [bool(re.search(told, text)) for text in alarms] == ([True] if told else [])


def test_what_a_tool_has_filled_is_left_out_though_its_base_is_gone_by_now() -> None:
    tables = shadows()
    assert tables.base_of("s", "_t_gho") == ""
    sql = "create /* gh-ost */ table s._t_gho like s.t"
    tables.follow(classify(sql, "s"), sql)

    assert tables.leaves_out_rows("s", "_t_gho")


def wanted(sql: str) -> tuple[str, tuple[str, ...], tuple[tuple[str, str], ...]] | None:
    resolver = TableResolver(lambda raw: None, TableFilter(), FieldFilter(), UTC, shadows=shadows("t", "u"))
    statement = resolver.wants(classify(sql, "s"))
    if statement is None:
        return None
    renames = tuple((old[1], new[1]) for old, new in statement.renames)
    return statement.event_type, tuple(table for _, table in statement.tables), renames


def test_what_is_delivered_of_a_statement() -> None:
    assert wanted("CREATE TABLE _t_gho LIKE t") is None
    assert wanted("DROP TABLE IF EXISTS _t_del, _u_old") is None
    assert wanted("RENAME TABLE t TO _t_del, _t_gho TO t") == ("ALTER", ("t",), ())
    assert wanted("RENAME TABLE _t_new TO t, a TO b") == ("RENAME", ("_t_new", "t", "a", "b"), (("_t_new", "t"), ("a", "b")))
    assert wanted("RENAME TABLE t TO _t_old, _t_new TO t, a TO b") == ("RENAME", ("t", "a", "b"), (("a", "b"),))
    assert wanted("RENAME TABLE t TO _t_old") == ("RENAME", ("t", "_t_old"), (("t", "_t_old"),))
    assert wanted("RENAME TABLE t TO _u_old, _t_new TO t") == (
        "RENAME",
        ("t", "_u_old", "_t_new"),
        (("t", "_u_old"), ("_t_new", "t")),
    )


@pytest.mark.parametrize(("other", "delivered"), [("t", ["t"]), ("u", ["u", "_t_gho"])])
def test_a_server_is_asked_for_the_base(other: str, delivered: list[str]) -> None:
    fake = FakeBinlog()
    tables = [fake.table("s", name, "id INT") for name in (other, "_t_gho")]
    alarms: list[str] = []
    with fake.serve(user="u", password="p") as server:
        source = canal.MySQLSource(host=server.host, port=server.port, user="u", password="p")
        config = canal.InstanceConfig(destination="x", source=source, alarm=lambda destination, text: alarms.append(text))
        with canal.Instance(config) as instance:
            instance.subscribe()
            with fake.transaction():
                for table in tables:
                    table.insert({"id": 1})
            message = instance.get(timeout=30)

    assert [entry.header.table for entry in message.entries if entry.rows] == delivered
    assert len(alarms) == (other == "t")


@pytest.mark.parametrize("shadow_tables", [False, True])
def test_rows_of_a_log_that_nobody_explains(shadow_tables: bool) -> None:
    fake = FakeBinlog()
    table, ghost = (fake.table("s", name, "id INT") for name in ("t", "_t_gho"))
    with fake.transaction():
        table.insert({"id": 1})
        ghost.insert({"id": 1})
    fake.end()
    config = canal.InstanceConfig(destination="x", source=fake, start="earliest", shadow_tables=shadow_tables)
    with canal.Instance(config) as instance:
        instance.subscribe()
        rows = [e.header.table for message in instance.stream() for e in message.entries if e.rows]

    assert rows == ["t", "_t_gho"][: 1 + shadow_tables]


def test_a_table_of_the_users_own_that_is_read_late_keeps_its_rows() -> None:
    """Made and renamed while nobody read, to names that the tools give."""
    fake = FakeBinlog()
    tables = [fake.table("s", name, "id INT") for name in ("t", "_t_old", "_t_del")]
    fake.ddl("CREATE TABLE _t_old (id INT)", schema="s")
    tables[1].insert({"id": 1})
    fake.ddl("RENAME TABLE other TO _t_del", schema="s")
    tables[2].insert({"id": 2})
    tables[0].insert({"id": 3})
    fake.end()
    alarms: list[str] = []
    config = canal.InstanceConfig(
        destination="x", source=fake, start="earliest", alarm=lambda destination, text: alarms.append(text)
    )
    with canal.Instance(config) as instance:
        instance.subscribe()
        found = [e for message in instance.stream() for e in message.entries if e.rows or e.is_ddl]

    assert [(e.event_type.name, e.header.table) for e in found] == [
        ("CREATE", "_t_old"),
        ("INSERT", "_t_old"),
        ("RENAME", "_t_del"),
        ("INSERT", "_t_del"),
        ("INSERT", "t"),
    ]
    assert alarms == []
