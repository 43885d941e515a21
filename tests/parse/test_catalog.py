"""The catalog, statement by statement; tests/live/test_catalog.py has the servers' word on the same. Tests of T75 to T85."""

from __future__ import annotations

import copy
import json
import logging
import struct
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

import canal
from canal.parse.log.events import DdlContext, ddl_context, query_context
from canal.parse.schema.catalog import Applied, Catalog, Key, TableVersion
from canal.parse.schema.classify import classify
from canal.parse.schema.tables import table_from_document, table_to_document
from canal.parse.schema_search import LoggedStatement, logged_statement
from canal.schema import UNTOLD, TableSchema, column_from_text
from canal.testing import _encode

D, E = "d", "e"


def catalog(*statements: str, **options: object) -> Catalog:
    made = Catalog(**options)  # type: ignore[arg-type]
    made.set_database(D, "utf8mb4")
    made.set_database(E, "latin1")
    for sql in statements:
        applied = made.apply(sql, D)
        assert not applied.doubtful, sql
    return made


def text(made: Catalog, table: str = "t", schema: str = D) -> str | None:
    """The columns in one line: name, type, charset where it is not utf8mb4, ! for NOT NULL, * for the key, - for hidden."""
    state = made.get(schema, table)
    if state is None:
        return None
    words = []
    for c in state.schema.columns:
        charset = f":{c.charset}" if c.charset not in (None, "utf8mb4") else ""
        words.append(f"{c.name} {c.column_type}{charset}{'' if c.nullable else '!'}{'*' * c.key}{'' if c.visible else '-'}")
    return ", ".join(words)


#: Columns before, statement, columns after (None: the table is gone, ? doubtful). Servers' answers to more: tests/live.
CASES = [
    ("a int, b int", "alter table t add c int", "a int, b int, c int"),
    ("a int, b int", "alter table t add c int first, add d int after a", "c int, a int, d int, b int"),
    ("a int, b int", "alter table t add (c int, d text charset latin1)", "a int, b int, c int, d text:latin1"),
    ("a int, b int", "alter table t drop a, add a text", "b int, a text"),  # T75
    ("a int, b int", "alter table t change A x bigint after b, add y int after x", "b int, x bigint, y int"),  # T81
    ("a int, b int", "alter table t rename column a to b, rename column b to a", "b int, a int"),
    ("a int, b int", "alter table t modify b int first, modify a text", "b int, a text"),
    ("a int, b int", "alter table t add index (a), add key k (b), comment 'x, drop a'", "a int, b int"),
    ("a int", "alter table t add b int primary key", "a int, b int!*"),
    ("a int primary key, b int", "alter table t drop primary key, add primary key (b)", "a int!, b int!*"),
    ("a int not null unique, b int", "alter table t drop index a", "a int!, b int"),
    ("a int not null unique, b int not null unique", "alter table t drop index a", "a int!, b int!*"),
    ("a text, b tinytext", "alter table t charset latin1", "a text, b tinytext"),
    ("a int", "alter table t charset latin1, add b text", "a int, b text:latin1"),
    ("a text charset latin1", "alter table t convert to character set utf8mb4", "a mediumtext"),
    ("a int, b int invisible", "alter table t alter column b set visible, alter a set invisible", "a int-, b int"),
    ("a int", "alter table t engine=innodb row_format=dynamic, algorithm=inplace, lock=none", "a int"),
    ("a int", "alter table t add b int partition by hash (a) partitions 3", "a int, b int"),
    ("a int", "alter table t exchange partition p with table u", "a int"),
    ("a int", "truncate table t", "a int"),
    ("a int", "create table if not exists t (z int)", "a int"),  # T80
    ("a int", "create unique index i on t (a)", "a int"),
    ("a int", "drop table if exists nope, t, d.other", None),
    ("a int", "drop database d", None),
    ("a int", "rename table t to e.t, e.t to t", "a int"),
    ("a int", "create view v as select * from t", "a int"),
    ("a int", "drop view t2", "a int"),
    ("a int", "grant select on t to x", "a int"),
    ("a int", "insert into t values (1)", "a int"),
    ("a int", "# comment\n/* alter table t drop a */ alter /*!50000 table */ t -- x\n add b int", "a int, b int"),  # T78
    ("a int", "/*!40000 alter table t add b int */", "a int, b int"),
    ("a int", "alter table t add /*M! b int, add */ c int", "a int, c int"),
    ("a int", "alter table `d`.`t` add `b.c` int, add `d``e` int, add `key` int", "a int, b.c int, d`e int, key int"),  # T79
    ("a int", "alter table t frobnicate the columns", "?"),  # T83
    ("a int", "alter table t add b unheardof(3)", "?"),
    ("a int", "alter table t add b int frobnicated", "?"),
    ("a int", "alter table t add b int after nope", "?"),
    ("a int", "alter table t drop nope", "?"),
    ("a int", "alter table t modify nope int", "?"),
    ("a int", "alter table t add a int", "?"),
    ("a int", "alter table t drop a", "?"),
    ("a int", "alter table t add b int,", "?"),
    ("a int", "alter table t add b varchar(10", "?"),
    ("a int", f"alter table t add b varchar({'9' * 5000})", "?"),
    ("a int", f"alter table t add b varchar({'0' * 5000}9)", "a int, b varchar(9)"),
    ("a int", "alter table t add b smallint serial default value", "a int, b smallint!*"),
    ("a int", "alter table t max_rows=1.5e3, add b decimal(19.5)", "a int, b decimal(19,0)"),
    ("a int", "alter table t add t.b int default 1. not null", "a int, b int!"),
    ("a int", "alter table t add b enum('x", "?"),
    ("a int", "alter table t add b text charset klingon", "?"),
    ("a int", "alter table t add b int; drop table u", "?"),
    ("a int", "create or replace table t as select 1", "?"),
    ("a int", "create or replace table t like nope", "?"),
    ("a int", "frobnicate everything", "?"),
    ("a int", "alter database d upgrade data directory name", "a int"),
]


@pytest.mark.parametrize(("before", "sql", "after"), CASES, ids=[case[1][:200] for case in CASES])
def test_a_statement_changes_the_columns_as_the_server_does(
    before: str, sql: str, after: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    made = catalog(f"create table t ({before})")

    applied = made.apply(sql, D)

    assert not caplog.records  # of a fault of ours
    assert text(made) == (None if after == "?" else after)
    assert ((D, "t") in applied.doubtful) == (after == "?") == made.is_doubtful(D, "t")


def test_a_swap_of_tables_happens_from_left_to_right() -> None:
    """T76."""
    made = catalog("create table a (x int)", "create table b (y int)", "rename table a to c, b to a, c to b")

    assert (text(made, "a"), text(made, "b"), text(made, "c")) == ("y int", "x int", None)


def test_tables_of_the_same_name_in_two_databases_are_two() -> None:
    """T84."""
    made = catalog("create table t (a text)", "create table e.t (b text)", "alter table e.t add c int, rename u")

    assert text(made) == "a text"
    assert text(made, "t", E) is None
    assert text(made, "u") == "b text:latin1, c int"


def test_names_of_tables_are_compared_as_the_server_does() -> None:
    """T79: lower_case_table_names."""
    for setting, found in ((0, None), (1, "a int"), (2, "a int")):
        assert text(catalog("create table Orders (a int)", lower_case_table_names=setting), "ORDERS") == found


def test_without_the_setting_names_that_differ_in_case_are_one_table_or_two() -> None:
    """Whatever the statement was: then the columns of neither are known."""
    for sql in (
        "alter table Orders add b int first",
        "drop table ORDERS",
        "drop table D.Orders",
        "create table Orders (x int)",
        "create or replace table Orders (x int)",
        "create table if not exists Orders (x int)",
        "rename table x to Orders",
        "rename table Orders to x",
        "create index i on Orders (a)",
        "drop database D",
        "alter table Orders no such clause",
    ):
        made = catalog("create table orders (a int)", "create table x (y int)", lower_case_table_names=None)
        made.apply(sql, D, flavor="mariadb")

        assert made.is_doubtful(D, "orders"), sql
        assert made.get(D, "orders") is None

    made = catalog("create table Orders (a int)", lower_case_table_names=None)
    assert not made.apply("alter table Orders add b int", D).doubtful
    assert made.apply("create table if not exists orders (x int)", D).doubtful
    assert not made.namesakes((D, "x"))
    assert made.namesakes((D, "oRders")) == [(D, "Orders"), (D, "orders")]
    for number in range(3):  # what is gone is not kept
        made.apply(f"create table gone{number} (a int)", D)
        made.apply(f"drop table gone{number}", D)
    assert [name for _, name in made._spelled] == ["orders"]

    made = catalog("create table t (a int)", lower_case_table_names=None)
    made.apply("create temporary table T (z int)", D, session=7)
    assert made.apply("alter table t add b int first", D, session=7).doubtful

    made = Catalog(lower_case_table_names=None, complete=False)
    made.apply("create database d charset latin1", "")
    made.apply("alter database D charset utf8mb4", "")
    assert made.apply("create table d.t (a text)", "", version=(5, 7)).doubtful
    again = Catalog.from_document(made.to_document())
    assert again.to_document() == made.to_document()
    assert again.lower_case_table_names is None


def test_a_temporary_table_hides_the_permanent_one_in_its_session_only() -> None:
    """T80."""
    made = catalog("create table t (a int)")
    made.apply("create temporary table t (z int)", D, session=7)
    made.apply("alter table t add y int", D, session=7)
    made.apply("alter table t add b int", D, session=8)
    made.apply("drop table t", D, session=7)

    assert text(made) == "a int, b int"

    made.apply("alter table t add c int", D, session=7)

    assert text(made) == "a int, b int, c int"


def test_a_temporary_table_of_an_unknown_session_makes_its_name_doubtful() -> None:
    made = catalog("create table t (a int)")
    made.apply("create temporary table t (z int)", D)

    assert made.apply("alter table t add y int", D).doubtful == ((D, "t"),)


def test_a_failed_statement_is_not_believed() -> None:
    made = catalog("create table t (a int)")

    assert made.apply("create or replace table t (b int)", D, error=1072) == Applied(((D, "t"),), ())
    assert made.get(D, "t") is None
    assert not made.is_doubtful(D, "t")
    assert made.apply("drop table t, u", D, error=1051) == Applied(((D, "t"), (D, "u")), ())


def test_quotes_and_backslashes_mean_what_the_sql_mode_says() -> None:
    """T78."""
    made = catalog()
    made.apply("""create table t ("a" enum('x"', 'y\\'z'))""", D, sql_mode=1 << 2)
    made.apply("""create table u (a enum('x\\', "y"), b int)""", D, sql_mode=1 << 20)

    assert [c.labels for c in made.get(D, "t").schema.columns] == [('x"', "y'z")]  # type: ignore[union-attr]
    assert [c.labels for c in made.get(D, "u").schema.columns] == [("x\\", "y"), None]  # type: ignore[union-attr]


def test_a_charset_that_is_not_known_is_left_to_the_table_map_or_makes_doubtful() -> None:
    made = Catalog()

    assert made.apply("create table t (a text)", "unknown", version=(5, 7)).doubtful == (("unknown", "t"),)
    for sql in (
        "create table t (a varchar(20000))",
        "create table t (a text(200))",
        "create table t (e enum('ä'))",
        "create table t (e enum('[]'))",
    ):
        assert made.apply(sql, "unknown").doubtful == (("unknown", "t"),), sql
    assert made.apply("create table u (a text charset latin1, b int)", "unknown").doubtful == ()
    assert made.apply("create table t (a varchar(20) unique, b text, e enum('a b','c'), c int)", "unknown").doubtful == ()
    state = made.get("unknown", "t")
    assert state is not None
    assert [column.charset for column in state.schema.columns] == [UNTOLD, UNTOLD, UNTOLD, None]
    assert [column.column_type for column in state.schema.columns] == ["varchar(20)", "text", "enum('a b','c')", "int"]
    assert made.apply("alter table t convert to character set ucs2", "unknown").doubtful == (("unknown", "t"),)


@pytest.mark.parametrize(("setting", "nullable"), [(True, True), (False, False), (None, None)])
def test_explicit_defaults_decide_over_a_bare_timestamp(setting: bool | None, nullable: bool | None) -> None:
    made = catalog()
    made.apply("create table t (a timestamp)", D, explicit_defaults=setting)
    made.apply("alter table t add b timestamp, add c timestamp null, add d timestamp not null", D, explicit_defaults=setting)

    found = made.get(D, "t")
    assert found is not None
    state = table_from_document(table_to_document(found))
    assert [column.nullable for column in state.schema.columns] == [nullable, nullable, True, False]


def test_a_unique_key_that_is_the_primary_one_unless_a_bare_timestamp_is_nullable_makes_doubtful() -> None:
    made = catalog()
    made.apply("create table t (a timestamp unique)", D, explicit_defaults=None)
    made.apply("create table u (id int primary key, a timestamp unique)", D, explicit_defaults=None)

    assert made.is_doubtful(D, "t")
    assert text(made, "u") == "id int!*, a timestamp!"


#: Its table maps have the columns of functional keys.
OLD = (8, 0, 15)


def test_columns_of_functional_keys_come_behind_all_others_and_go_with_their_keys() -> None:
    made = catalog()
    made.apply("create table t (a int primary key, key k1 ((a + 1)), unique k2 ((a + 2), a, (a + 3)))", D, version=OLD)

    def hidden() -> str:
        state = made.get(D, "t")
        assert state is not None
        assert table_from_document(table_to_document(state)) == state
        assert [column.name for column in state.shown] == [c.name for c in state.schema.columns if not c.hidden]
        return " ".join(column.name.removeprefix("!hidden!") for column in state.schema.columns)

    assert hidden() == "a k1!0 k2!0 k2!1"
    for sql, columns in (
        ("alter table t add b int, add key ((b + 1)), add c int first", "c a k1!0 k2!0 k2!1 b functional_index!0"),
        ("alter table t rename index k2 to k3, drop index k1", "c a k3!0 k3!1 b functional_index!0"),
        ("create unique index k1 on t ((a * 2), b)", "c a k3!0 k3!1 b functional_index!0 k1!0"),
        ("alter table t drop index k3, add index k3 ((b))", "c a b functional_index!0 k1!0 k3!0"),
        ("alter table t drop column c, drop index k1", "a b functional_index!0 k3!0"),
        ("drop index functional_index on t", "a b k3!0"),
    ):
        assert not made.apply(sql, D, version=OLD).doubtful
        assert hidden() == columns

    made.apply("create table u like t", D, version=OLD)
    assert text(made, "u") == text(made, "t")
    made.apply("create table v (a int, key ((a + 1)))", D, version=(8, 0, 18))
    assert text(made, "v") == "a int(11)"


def test_a_primary_key_that_the_server_made_stays_the_first_column() -> None:
    made = catalog("create table t (my_row_id bigint unsigned not null auto_increment invisible primary key, a int)")
    made.apply("alter table t add c int first, modify a bigint first", D)
    assert text(made) == "my_row_id bigint unsigned!*-, a bigint, c int"

    made.apply("alter table t alter column my_row_id set visible", D)
    made.apply("alter table t add d int first", D)
    assert text(made) == "d int, my_row_id bigint unsigned!*, a bigint, c int"


def test_what_only_may_be_a_primary_key_of_the_server_is_no_guess() -> None:
    """Nothing in a column tells the engine, partitions and AUTO_INCREMENT, by which the server knows a key that it made."""
    like_it = "my_row_id bigint unsigned not null {}invisible primary key, a int"
    for columns, options in (
        (like_it.format(""), ""),
        (like_it.format("auto_increment "), "engine=MyISAM"),
        (like_it.format("auto_increment "), "comment 'x' partition by key (my_row_id) partitions 2"),
    ):
        made = catalog(f"create table t ({columns}) {options}")

        assert not made.apply("alter table t add b int", D).doubtful
        assert made.apply("alter table t add c int first", D).doubtful == ((D, "t"),)


def test_which_hidden_column_goes_with_a_key_is_no_guess() -> None:
    first_made = catalog()
    first_made.apply("create table t (a int, key k1 ((a + 1)), key k2 ((a + 2)))", D, version=OLD)
    state = first_made.get(D, "t")
    assert state is not None
    a, first, second = state.schema.columns
    unsure = (first, a, second)
    columns = tuple(attrs.evolve(one, name=f"!hidden!!{i}") if one.hidden else one for i, one in enumerate(unsure))
    made = catalog()
    made.put(attrs.evolve(state, schema=TableSchema(D, "t", columns)))

    assert not made.apply("alter table t add b int, add key k3 ((b + 1))", D, version=OLD).doubtful
    assert [c.name for c in made.get(D, "t").schema.columns] == ["!hidden!!0", "a", "!hidden!!2", "b", "!hidden!k3!0"]  # type: ignore[union-attr]
    assert made.apply("alter table t drop index k1", D, version=OLD).doubtful


def test_rows_of_versioned_and_hashed_tables_have_columns_that_are_not_shown() -> None:
    made = catalog()
    made.apply("create table t (a int primary key, b text unique) with system versioning", D, flavor="mariadb", version=(11, 8))
    made.apply("alter table t add c int", D, flavor="mariadb", version=(11, 8))

    assert text(made) == (
        "a int(11)!*, b text, c int(11), row_start timestamp(6)!-, row_end timestamp(6)!*-, DB_ROW_HASH_1 bigint(20) unsigned!-"
    )

    made.apply("alter table t drop system versioning, drop index b", D, flavor="mariadb", version=(11, 8))

    assert text(made) == "a int(11)!*, b text, c int(11)"


HASHES = [  # columns of a table of MariaDB, and the names of its unique keys, those by a hash in capitals
    ("a int not null, unique (a) using hash", "A"),
    ("a varchar(2000) not null, unique (a)", "A"),
    ("a varchar(3072) charset latin1 not null unique, b varchar(3073) charset latin1 not null unique", "a B"),
    ("a varchar(767), b tinyint, c bigint, unique x (a, b), unique y (a, c)", "x Y"),
    ("a text, unique (a(768)), unique (a(769)), unique (a)", "a A_2 A_3"),
    ("a geometry not null, b point not null, unique (a), unique (b)", "A b"),
]


@pytest.mark.parametrize(("columns", "keys"), HASHES)
def test_a_unique_key_by_a_hash_has_a_hidden_column_and_identifies_no_row(columns: str, keys: str) -> None:
    made = catalog()
    made.apply(f"create table t ({columns})", D, flavor="mariadb", version=(10, 5))
    state = made.get(D, "t")
    assert state is not None
    assert state.keys is not None

    assert sorted(key.name.upper() if key.hash else key.name for key in state.keys) == sorted(keys.split())
    assert state.hidden == sum(key.hash for key in state.keys)
    chosen = {column.name for column in state.schema.columns if column.key}
    assert chosen == {part for key in state.keys[:1] if not key.hash and len(key.columns) == 1 for part, _ in key.columns} - {
        column.name for column in state.schema.columns if column.nullable or column.base_type in ("point", "text")
    }


def test_which_keys_are_by_a_hash_depends_on_the_engine_and_outlives_what_leaves_the_table_as_it_is() -> None:
    made = catalog()
    options: dict[str, Any] = {"flavor": "mariadb", "version": (10, 5)}
    for sql, hidden in (
        ("create table t (a varchar(1001) charset latin1, unique (a)) engine=MyISAM", 1),
        ("alter table t add b int", 1),
        ("alter table t engine=InnoDB", 0),
        ("alter table t add unique k (b) using hash", 1),
        ("alter table t disable keys", 1),
        ("alter table t rename to t2, drop column if exists x", 1),
        ("rename table t2 to t", 1),
        ("alter table t force", 0),
        ("create unique index c using hash on t (b)", 1),
        ("alter table t drop constraint if exists c", 0),
    ):
        assert not made.apply(sql, D, **options).doubtful, sql
        state = made.get(D, "t") or made.get(D, "t2")
        assert state is not None
        assert state.hidden == hidden, sql
        assert table_from_document(table_to_document(state)) == state


def test_without_the_indexes_a_lost_key_makes_a_table_doubtful() -> None:
    made = catalog()
    columns = (column_from_text("a", "int", key=True, nullable=False), column_from_text("b", "int"))
    for sql, after in (("add c int", "a int!*, b int, c int"), ("drop b", "a int!*"), ("drop primary key", None)):
        made.put(TableVersion(TableSchema(D, "t", columns), "utf8mb4"))
        made.apply(f"alter table t {sql}", D)

        assert text(made) == after


def test_a_catalog_that_does_not_know_all_tables_doubts_if_not_exists() -> None:
    made = catalog(complete=False)

    assert made.apply("create table if not exists t (a int)", D).doubtful == ((D, "t"),)
    assert made.apply("create table u (a int)", D).doubtful == ()


def test_a_catalog_knows_of_which_databases_it_does_not_know_the_tables() -> None:
    made = Catalog(unread=["staging"])

    assert made.apply("create table if not exists staging.t (a int)", D).doubtful == (("staging", "t"),)
    assert made.apply("create table if not exists t (a int)", D).doubtful == ()
    assert made.apply("rename table staging.u to v", D).doubtful == ((D, "v"),)
    assert made.apply("create table w like staging.u", D).doubtful == ((D, "w"),)
    assert (made.is_doubtful("staging", "u"), made.is_doubtful(D, "u")) == (True, False)
    again = Catalog.from_document(json.loads(json.dumps(made.to_document())))
    assert (again.to_document(), again.is_doubtful("staging", "u")) == (made.to_document(), True)
    made.apply("drop database staging", D)
    assert not made.is_doubtful("staging", "u")


@pytest.mark.parametrize("lower_case_table_names", [0, None])
def test_what_is_gone_leaves_nothing_in_a_catalog(lower_case_table_names: int | None) -> None:
    made = Catalog(lower_case_table_names=lower_case_table_names, unread=["d7"])
    sizes = []
    for number in range(20):
        for sql in (
            f"create database d{number}",
            f"create table d{number}.t (a int)",
            f"create table t{number} like d{number}.t",
            f"create table u{number} select 1",
            f"drop table u{number}, t{number}",
            f"drop database d{number}",
            f"create temporary table x{number} (a int)",
            f"drop temporary table x{number}",
        ):
            made.apply(sql, D, session=number)
        sizes.append([len(value) for value in vars(made).values() if isinstance(value, (dict, set))])

    assert sizes[-1] == sizes[8]
    assert sum(sizes[-1]) == 0


def test_a_document_gives_the_same_catalog_back() -> None:
    """T85: equal catalogs give equal documents, whatever the order of their statements."""
    made = catalog("create table t (a enum('x','ä') unique, b text charset latin1, key k (b(3)))", "create table u (a int)")
    made.apply("alter table d.doubt add x frob", D)
    made.apply("create temporary table tt (a int)", D, session=3)
    document = json.loads(json.dumps(made.to_document()))

    again = Catalog.from_document(document)

    assert again.to_document() == document
    assert again.get(D, "t") == made.get(D, "t")
    assert again.is_doubtful(D, "doubt")
    assert again.get(D, "t").keys == (Key("a", True, (("a", None),)), Key("k", False, (("b", 3),)))  # type: ignore[union-attr]


@pytest.mark.parametrize("damage", [{"format": 99}, {"tables": 1}, {"tables": [{}]}, {"doubtful": [1]}])
def test_a_damaged_document_is_refused(damage: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="catalog document"):
        Catalog.from_document(catalog().to_document() | damage)


def test_whatever_a_document_is_instead_it_is_refused_or_can_be_written_again() -> None:
    whole = json.loads(json.dumps(catalog().to_document()))
    odd = (None, 1, -1, 10**30, 1e999, "", "x", [], {}, [1], {"a": 1}, True, [["a", "b"]])
    for path in _paths(whole):
        for value in odd:
            document: Any = {"": copy.deepcopy(whole)}
            at = document
            for key in path[:-1]:
                at = at[key]
            at[path[-1]] = value
            try:
                Catalog.from_document(document[""]).to_document()
            except ValueError:
                pass


def _paths(document: Any, path: tuple[Any, ...] = ("",)) -> Iterator[tuple[Any, ...]]:
    """Of everything in a document."""
    yield path
    inner = document.items() if isinstance(document, dict) else enumerate(document) if isinstance(document, list) else ()
    for key, value in inner:
        yield from _paths(value, (*path, key))


def test_status_variables_tell_charset_and_timestamp_default() -> None:
    mariadb = bytes.fromhex("0000000001 010000205400000000 0603737464 042d002d002100")
    mysql = bytes.fromhex("0000000000 010000000000000000 0603737464 04ff00ff002100 050653595354454d 0c016400 1001")

    collations = bytes.fromhex("8302 21000008 2d000009 04 080008002d00")

    assert ddl_context(mariadb, mariadb=True) == DdlContext("utf8mb3", True, "utf8mb4")
    assert ddl_context(mariadb[:19] + collations, mariadb=True) == DdlContext("utf8mb4", True, "latin1")
    assert query_context(mariadb[:19] + collations) == ("canal_latin1", 0x54200000)
    assert ddl_context(mysql, mariadb=False) == DdlContext("utf8mb3", True, "utf8mb4")
    for end in range(len(mysql)):
        ddl_context(mysql[:end], mariadb=False)


def test_a_rename_may_change_only_the_case_of_a_name() -> None:
    """Found by the fuzzer."""
    made = catalog("create table t (a int)", lower_case_table_names=2)
    applied = made.apply("rename table t to u, u to U", D)

    assert made.tables()[0].schema.name == f"{D}.U"
    assert applied.doubtful == ()
    assert len(made.tables()) == 1


def test_a_long_rename_takes_linear_time() -> None:
    made = catalog("create table t (a int)", complete=False)
    started = time.thread_time()
    applied = made.apply("rename table " + "a to b, " * 20_000 + "t to c", D)
    others = made.apply("rename table " + ", ".join(f"x{n} to y{n}" for n in range(20_000)), D)

    assert time.thread_time() - started < 10
    assert applied.doubtful == ((D, "b"),)
    assert len(others.doubtful) == 20_000


def logged(sql: str, status: bytes, *, version: str = "8.4.0", flavor: str = "mysql", error: int = 0) -> LoggedStatement:
    decoder = SimpleNamespace(flavor=flavor, server_version=version, position=canal.Position())
    body = bytearray(_encode.query_body(7, D, status, sql.encode()))
    body[9:11] = struct.pack("<H", error)
    return logged_statement(decoder, classify(sql, D, flavor=flavor), sql, bytes(19) + bytes(body))


@pytest.mark.parametrize(
    ("flavor", "version", "status", "nullable"),
    [
        ("mysql", "5.5.28-log", "", False),
        ("mysql", "5.7.9", "", None),
        ("mysql", "8.4.0", "1001", True),
        ("mysql", "8.4.0", "1000", False),
        ("mariadb", "10.5.9-MariaDB", "0000000000", None),
        ("mariadb", "10.5.23-MariaDB", "0000000001", True),
        ("mariadb", "10.11.19-MariaDB", "0000000001", True),
        ("mariadb", "10.11.19-MariaDB", "0000000000", False),
    ],
)
def test_a_bare_timestamp_is_what_its_event_and_its_server_make_it(
    flavor: str, version: str, status: str, nullable: bool | None
) -> None:
    made = Catalog()
    found = logged("create table t (a timestamp)", bytes.fromhex(status), version=version, flavor=flavor).apply(made)

    state = made.get(D, "t")
    assert state is not None
    assert state.schema.columns[0].nullable is nullable
    assert not found.doubtful


def test_a_statement_that_failed_in_part_is_not_believed() -> None:
    made = catalog("create table t (a int)")

    assert logged("create or replace table t (b int)", b"", error=1072).apply(made) == Applied(((D, "t"),), ())
    assert logged("alter table t add b int", b"", error=1072).apply(made).doubtful == ((D, "t"),)
    assert logged("create table t (b int)", b"", error=1072).creates is None


@pytest.mark.parametrize("status", ["", "042d002d00ffff"])
def test_a_database_with_a_charset_that_is_not_told_makes_its_texts_doubtful(status: str) -> None:
    """Neither an error nor a guess: tables that say their charset themselves are followed."""
    made = Catalog()
    logged(f"create database {D}", bytes.fromhex(status)).apply(made)
    logged("create table t (a text charset latin1)", b"").apply(made)
    logged("create table u (a text)", b"", version="5.7.9").apply(made)

    assert made.get(D, "t") is not None
    assert made.is_doubtful(D, "u")


# -- any text ----------------------------------------------------------------------------------------------------------

STATEMENTS = [line for line in (Path(__file__).parents[1] / "live/ddl.sql").read_text().splitlines() if line and "{" not in line]
WORDS = sorted({word for line in STATEMENTS for word in line.replace("(", " ( ").replace(",", " , ").split()})


class _Raising(logging.Handler):
    """A fault inside the catalog is logged and survived: here it shall fail the test."""

    def emit(self, record: logging.LogRecord) -> None:
        if record.levelno >= logging.ERROR and record.exc_info:
            raise AssertionError(record.getMessage()) from record.exc_info[1]


@pytest.fixture(autouse=True, scope="module")
def faults_are_failures() -> Iterator[None]:
    handler = _Raising()
    logging.getLogger("canal.parse").addHandler(handler)
    yield
    logging.getLogger("canal.parse").removeHandler(handler)


@given(
    st.lists(
        st.one_of(
            st.sampled_from(STATEMENTS).flatmap(lambda sql: st.integers(0, len(sql)).map(lambda end: sql[:end])),
            st.tuples(st.sampled_from(STATEMENTS), st.integers(0, 300), st.sampled_from(WORDS)).map(
                lambda parts: f"{parts[0][: parts[1]]} {parts[2]} {parts[0][parts[1] :]}"
            ),
            st.lists(st.sampled_from(WORDS), max_size=12).map(lambda words: "alter table t " + " ".join(words)),
            st.text(max_size=40),
        ),
        max_size=6,
    ),
    st.sampled_from(["mysql", "mariadb"]),
    st.sampled_from([0, 1 << 2, 1 << 20, 1 << 9]),
)
def test_no_text_makes_it_raise(statements: list[str], flavor: str, sql_mode: int) -> None:
    """T83."""
    made = catalog("create table t (a int, b text, c int, key (a))", "create table u (d int primary key)")
    for sql in statements:
        applied = made.apply(sql, D, flavor=flavor, sql_mode=sql_mode)
        assert all(made.get(*table) is None for table in applied.doubtful)
        assert Catalog.from_document(json.loads(json.dumps(made.to_document()))).to_document() == made.to_document()


def test_every_truncation_is_survived() -> None:
    """T83."""
    made = catalog()
    for sql in STATEMENTS:
        for end in range(0, len(sql), 3):
            for flavor in ("mysql", "mariadb"):
                made.apply(sql[:end], D, flavor=flavor)
