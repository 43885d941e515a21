"""What classify() makes of statements, most of them texts that MySQL 9.7 and MariaDB 10.11 were seen to write."""

from __future__ import annotations

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from canal.model import EventType
from canal.parse.schema.classify import classify
from canal.parse.schema.scanner import ANSI_QUOTES, NO_BACKSLASH_ESCAPES, Scanner
from canal.statement import Statement, Verb


def tables(text: str) -> tuple[tuple[str, str], ...]:
    """``"a x.b"`` → (("d", "a"), ("x", "b")): names without a schema are in the default one."""
    return tuple(("d", name) if "." not in name else tuple(name.split(".")) for name in text.split())  # type: ignore[misc]


@pytest.mark.parametrize(
    ("sql", "verb", "kind"),
    [
        ("BEGIN", Verb.BEGIN, "begin"),
        ("begin", Verb.BEGIN, "begin"),
        ("BEGIN WORK", Verb.BEGIN, "begin"),
        ("  Begin ;", Verb.BEGIN, "begin"),
        ("START TRANSACTION", Verb.BEGIN, "begin"),
        ("/* app */ start  transaction -- x", Verb.BEGIN, "begin"),
        ("COMMIT", Verb.COMMIT, "commit"),
        ("commit;", Verb.COMMIT, "commit"),
        ("COMMIT /* xid=12 */", Verb.COMMIT, "commit"),
        ("# note\nCOMMIT", Verb.COMMIT, "commit"),
        ("ROLLBACK", Verb.ROLLBACK, "rollback"),
        ("rollback work", Verb.ROLLBACK, "rollback"),
        ("ROLLBACK TO `sp1`", Verb.ROLLBACK_TO, "rollback"),
        ("rollback to savepoint sp1", Verb.ROLLBACK_TO, "rollback"),
        ("SAVEPOINT `sp1`", Verb.SAVEPOINT, "savepoint"),
        ("savepoint`begin`", Verb.SAVEPOINT, "savepoint"),
        ("RELEASE SAVEPOINT sp1", Verb.RELEASE_SAVEPOINT, "savepoint"),
        ("XA START X'7831',X'62',7", Verb.XA_START, "xa"),
        ("xa begin 'a'", Verb.XA_START, "xa"),
        ("XA END X'7831',X'62',7", Verb.XA_END, "xa"),
        ("XA PREPARE X'7831',X'62',7", Verb.XA_PREPARE, "xa"),
        ("XA COMMIT X'7831',X'62',7", Verb.XA_COMMIT, "xa"),
        ("XA COMMIT X'7831',X'62',7 ONE PHASE", Verb.XA_COMMIT, "xa"),
        ("XA ROLLBACK X'7831',X'62',7", Verb.XA_ROLLBACK, "xa"),
    ],
)
def test_transaction_statements(sql: str, verb: int, kind: str) -> None:
    statement = classify(sql, "d")
    assert (statement.kind, statement.verb) == (kind, verb)
    assert not statement.doubtful


@pytest.mark.parametrize(
    "sql",
    [
        "",
        "DROP TABLE my_commit",
        "DROP TABLE my_begin",
        "ALTER TABLE t ADD COLUMN begin",
        "ALTER TABLE t ADD x int AFTER commit",
        "BEGINNING",
        "BEGIN NOT ATOMIC SELECT 1; END",
        "COMMIT_LOG",
        "SAVEPOINTS",
        "START SLAVE",
        "XA",
        "XA RECOVER",
        "XAEND",
        "INSERT INTO t VALUES ('\nCOMMIT')",
        "/* BEGIN */",
        "/* BEGIN",
        "-- COMMIT",
        "/*! DROP TABLE */ BEGIN",
        "CREATE TABLE t (a int) START TRANSACTION",
        "B",
        "\x00BEGIN",
    ],
)
def test_not_a_transaction_statement(sql: str) -> None:
    """T43"""
    assert classify(sql, "d").verb == Verb.NONE


def test_xa_identifier() -> None:
    statement = classify("XA COMMIT X'7831',X'62',7 ONE PHASE", "")
    assert (statement.xid, statement.one_phase, statement.event_type) == ("X'7831',X'62',7", True, "XACOMMIT")
    statement = classify("XA ROLLBACK X'7831',X'62',7", "")
    assert (statement.xid, statement.one_phase, statement.event_type) == ("X'7831',X'62',7", False, "XAROLLBACK")
    assert classify("XA START X'7831',X'',1", "").event_type == "QUERY"


DDL = [
    # CREATE TABLE
    ("create table t (a int)", "CREATE", "t"),
    ("create table d1.t (a int primary key, b int) /* xid=9 */", "CREATE", "d1.t"),
    ("CREATE TABLE IF NOT EXISTS `t` (a int)", "CREATE", "t"),
    ("create or replace table t (a int)", "CREATE", "t"),
    ("CREATE TEMPORARY TABLE t (a int)", "QUERY", "t"),
    ("create table t like x.src", "CREATE", "t"),
    ("create table t (like src)", "CREATE", "t"),
    ("create table t as select * from src", "CREATE", "t"),
    ("create table t (a varchar(9) default 'it''s \\') like b', check (a like 'x')) comment=\"like x\"", "CREATE", "t"),
    ("CREATE TABLE `ctas` (\n  `a` int NOT NULL\n) START TRANSACTION", "CREATE", "ctas"),
    ("create table /* 99999 foo */ ex1 (a int) /* hi */", "CREATE", "ex1"),
    ("create table ex2 (a int) /*M! comment 'm' */ /*! engine=innodb */", "CREATE", "ex2"),
    ("/*!50000 CREATE */ /*!50000 TABLE t */ (a int)", "CREATE", "t"),
    ("/*M!100100 create or replace */ table t (a int)", "CREATE", "t"),
    ("CREATE TABLE t (a int, FOREIGN KEY (a) REFERENCES other.p (id))", "CREATE", "t"),
    ("CREATE SEQUENCE s1 START WITH 5", "CREATE", "s1"),
    ("create or replace temporary sequence if not exists x.s1", "QUERY", "x.s1"),
    # ALTER TABLE
    ("ALTER TABLE t ADD COLUMN x int NOT NULL DEFAULT 5 COMMENT 'rename to y, drop z' AFTER `rename`", "ALTER", "t"),
    ("ALTER TABLE x.t ADD (a int, KEY (a)), DROP b", "ALTER", "x.t"),
    ("alter online ignore table if exists t wait 3 add y int, algorithm=inplace", "ALTER", "t"),
    ("alter table t nowait drop column a", "ALTER", "t"),
    ("ALTER TABLE t CONVERT TO CHARACTER SET utf8mb4 COLLATE utf8mb4_bin", "ALTER", "t"),
    ("ALTER TABLE t ENGINE=InnoDB", "ALTER", "t"),
    ("alter table t", "ALTER", "t"),
    ("ALTER TABLE t RENAME COLUMN a TO b, RENAME INDEX i TO j, RENAME KEY k TO l", "ALTER", "t"),
    ("ALTER TABLE t CHANGE a `rename` int, MODIFY b int FIRST", "ALTER", "t"),
    ("ALTER TABLE t ADD PRIMARY KEY (a)", "ALTER", "t"),
    ("ALTER TABLE t DROP PRIMARY KEY", "ALTER", "t"),
    ("ALTER TABLE t ADD CONSTRAINT fk FOREIGN KEY (a) REFERENCES p (id)", "ALTER", "t"),
    ("ALTER TABLE t ADD vector int", "ALTER", "t"),
    ("ALTER TABLE t TRUNCATE PARTITION p1", "ALTER", "t"),
    ("ALTER TABLE t REORGANIZE PARTITION p0, p1 INTO (PARTITION p2 VALUES LESS THAN (5))", "ALTER", "t"),
    ("alter table t exchange partition p0 with table exq", "ALTER", "t exq"),
    ("ALTER TABLE t EXCHANGE PARTITION `p 0` WITH TABLE x.exq WITHOUT VALIDATION", "ALTER", "t x.exq"),
    ("ALTER TABLE t CONVERT PARTITION p0 TO TABLE x.u", "ALTER", "t x.u"),
    ("ALTER TABLE t CONVERT TABLE u TO PARTITION p1 VALUES LESS THAN (9)", "ALTER", "t u"),
    ("ALTER TABLE t ADD x enum('a,b','rename u') , ORDER BY a, b", "ALTER", "t"),
    ("ALTER SEQUENCE s RESTART 50", "ALTER", "s"),
    ("set statement max_statement_time=10 for alter table t add x int", "ALTER", "t"),
    ("SET STATEMENT a=(SELECT substring('x' FROM 1 FOR 2)), b=1 FOR ALTER TABLE t ADD x int", "ALTER", "t"),
    ("ALTER TABLE `shop`.`_orders_gho` /* gh-ost */ ADD x int", "ALTER", "shop._orders_gho"),
    # indexes
    ("ALTER TABLE t ADD INDEX i (a)", "CINDEX", "t"),
    ("ALTER TABLE t ADD UNIQUE (a), ALGORITHM=INPLACE, LOCK=NONE", "CINDEX", "t"),
    ("ALTER TABLE t ADD CONSTRAINT `u` UNIQUE KEY (a)", "CINDEX", "t"),
    ("ALTER TABLE t ADD CONSTRAINT UNIQUE (a)", "CINDEX", "t"),
    ("ALTER TABLE t ADD FULLTEXT KEY (a)", "CINDEX", "t"),
    ("ALTER TABLE t ADD VECTOR INDEX (v)", "CINDEX", "t"),
    ("ALTER TABLE t DROP KEY i", "DINDEX", "t"),
    ("ALTER TABLE t DROP CONSTRAINT c", "DINDEX", "t"),
    ("alter table t drop index i, add index j (b)", "DINDEX", "t"),
    ("alter table t add index j (b), add column c int", "ALTER", "t"),
    ("create index `i x` on src(b)", "CINDEX", "src"),
    ("CREATE OR REPLACE UNIQUE INDEX IF NOT EXISTS i USING BTREE ON x.t WAIT 5 (a)", "CINDEX", "x.t"),
    ("create fulltext index on_t on t (a)", "CINDEX", "t"),
    ("drop index `i on x` on src", "DINDEX", "src"),
    ("DROP INDEX IF EXISTS i ON x.t ALGORITHM=INPLACE", "DINDEX", "x.t"),
    # DROP, TRUNCATE
    ("DROP TABLE `pp` /* generated by server */ /* xid=36 */", "ERASE", "pp"),
    ("DROP TABLE IF EXISTS `nope`,`ex1` /* generated by server */", "ERASE", "nope ex1"),
    ("drop table a, x.b restrict", "ERASE", "a x.b"),
    ("DROP TABLES a NOWAIT CASCADE", "ERASE", "a"),
    ("DROP /*!40005 TEMPORARY */ TABLE IF EXISTS `a`", "QUERY", "a"),
    ("DROP TEMPORARY TABLE IF EXISTS `d1`.`a` /* generated by server */", "QUERY", "d1.a"),
    ("drop temporary table a; drop table b", "ERASE", "a b"),
    ("DROP SEQUENCE `s1`,s2 /* generated by server */", "ERASE", "s1 s2"),
    ("-- lead\n/* x */ # y\n drop table t", "ERASE", "t"),
    ("--\tx\ndrop table t;", "ERASE", "t"),
    ("truncate mem", "TRUNCATE", "mem"),
    ("TRUNCATE TABLE `x`.`mem` /* generated by server, implicitly emptying in-memory table */", "TRUNCATE", "x.mem"),
    ("truncate table t wait 10", "TRUNCATE", "t"),
    # RENAME
    ("rename table d1.u to u2", "RENAME", "d1.u u2"),
    ("RENAME TABLE a TO t1, b TO a", "RENAME", "a t1 b"),
    ("rename tables if exists a wait 5 to b", "RENAME", "a b"),
    ("alter table d1.t rename t9", "RENAME", "d1.t t9"),
    ("ALTER TABLE t ADD x int, RENAME TO x.u, ADD KEY (x)", "RENAME", "t x.u"),
    ("ALTER TABLE t RENAME AS u", "RENAME", "t u"),
    ("ALTER TABLE t RENAME = `to`", "RENAME", "t to"),
    # several statements
    ("drop table a; drop table b;", "ERASE", "a b"),
    ("create table a (x int); ; alter table b drop y", "CREATE", "a b"),
]


@pytest.mark.parametrize(("sql", "event_type", "names"), DDL)
def test_ddl(sql: str, event_type: str, names: str) -> None:
    """T42, T48, T78, T80, T81, T82"""
    statement = classify(sql, "d")
    assert (statement.kind, statement.event_type, statement.tables) == ("ddl", event_type, tables(names))
    assert not statement.doubtful
    assert not statement.schema_wide
    assert statement.default_schema == "d"
    assert event_type in statement.event_types
    assert EventType[statement.event_type]


@pytest.mark.parametrize(
    ("sql", "table"),
    [
        ("DROP TABLE `a.b`", ("d", "a.b")),
        ("DROP TABLE `x y` . ` lead`", ("x y", " lead")),
        ("DROP TABLE `a``b`", ("d", "a`b")),
        ("DROP TABLE `select`.`table`", ("select", "table")),
        ("DROP TABLE été", ("d", "été")),
        ("DROP TABLE `表`.`😀`", ("表", "😀")),
        ("DROP TABLE a$b", ("d", "a$b")),
        ("DROP TABLE 1e5", ("d", "1e5")),
        ("DROP TABLE 2x.1a", ("2x", "1a")),
        ("DROP TABLE x./* why */1e5t", ("x", "1e5t")),
        ("DROP TABLE .t", ("d", "t")),
        ("DROP TABLE a\u00a0b", ("d", "a\u00a0b")),
        ('DROP TABLE "a""b.c" /* generated by server */', ("d", 'a"b.c')),
        ('DROP TABLE "x"."a"', ("x", "a")),
        ("DROP TABLE `" + "x" * 64 + "`", ("d", "x" * 64)),
        ("DROP TABLE `a\udcffb`", ("d", "a\udcffb")),
        ("DROP TABLE `/* a */`", ("d", "/* a */")),
        ("DROP TABLE `#mysql50#a-b`", ("d", "#mysql50#a-b")),
        ("DROP TABLE Mixed.Case", ("Mixed", "Case")),
    ],
)
def test_names(sql: str, table: tuple[str, str]) -> None:
    """T79"""
    statement = classify(sql, "d")
    assert statement.tables == (table,)
    assert not statement.doubtful


def test_sql_mode_decides_what_quotes_mean() -> None:
    """T78"""
    assert classify('DROP TABLE "a\\"', "d", sql_mode=ANSI_QUOTES).tables == (("d", "a\\"),)
    text = "CREATE TABLE t (a char(9) DEFAULT '\\', b int) LIKE x"
    assert classify(text, "d", sql_mode=NO_BACKSLASH_ESCAPES).doubtful is False
    assert classify(text, "d").doubtful is True  # there the quote never ends


def test_flavor_decides_who_reads_mariadb_comments() -> None:
    """T78"""
    sql = "DROP /*M! TEMPORARY */ TABLE t"
    assert classify(sql, "d", flavor="mariadb").temporary
    assert classify(sql, "d").temporary
    assert not classify(sql, "d", flavor="mysql").temporary


def test_names_are_those_that_mysql_keeps() -> None:
    """It keeps no characters of 4 bytes in names; in strings it does."""
    found = classify("ALTER TABLE d😀.`t😀` RENAME u😀, COMMENT '😀'", "s", flavor="mysql")
    assert found.tables == (("d?", "t?"), ("s", "u?"))
    assert classify('DROP TABLE "t😀"', "s", sql_mode=ANSI_QUOTES, flavor="mysql").tables == (("s", "t?"),)
    assert Scanner("'😀'", flavor="mysql").take()[1] == "😀"


def test_renames_are_pairs() -> None:
    """T76"""
    statement = classify("RENAME TABLE a TO tmp, x.b TO a, tmp TO x.b", "d")
    assert statement.renames == ((("d", "a"), ("d", "tmp")), (("x", "b"), ("d", "a")), (("d", "tmp"), ("x", "b")))
    assert classify("alter table x.a rename b", "d").renames == ((("x", "a"), ("d", "b")),)


def test_all_effects_are_kept() -> None:
    """T82"""
    assert classify("alter table t drop index i, add index j (b)", "d").event_types == ("DINDEX", "CINDEX")
    three = classify("alter table t add index j (b), add c int, rename u", "d")
    assert three.event_types == ("CINDEX", "ALTER", "RENAME")
    merged = classify("rename table a to b; drop table c; garbage", "d")
    assert merged.event_types == ("RENAME", "ERASE", "QUERY")
    assert merged.doubtful


@pytest.mark.parametrize(
    ("sql", "flags"),
    [
        ("create table if not exists t (a int)", {"conditional"}),
        ("create or replace table t (a int)", {"replaces"}),
        ("create temporary table t (a int)", {"temporary"}),
        ("create temporary table t select 1", {"temporary", "selects"}),
        ("create table t (a int) ignore with x as (values (1)) select * from x", {"selects"}),
        ("create table t (select 1 a)", {"selects"}),
        ("create table t (a int, `select` int)", set()),
        ("CREATE TABLE t (a int) START TRANSACTION", {"starts_transaction"}),
        ("CREATE TABLE t (a int) -- START TRANSACTION", set()),
        ("CREATE TABLE t (a int) comment='START TRANSACTION'", set()),
        ("drop temporary table if exists t", {"temporary", "conditional"}),
    ],
)
def test_flags(sql: str, flags: set[str]) -> None:
    """T80"""
    statement = classify(sql, "d")
    names = ("conditional", "replaces", "temporary", "selects", "starts_transaction")
    assert {name for name in names if getattr(statement, name)} == flags


def test_like_names_its_source() -> None:
    assert classify("create table t like x.src", "d").like == ("x", "src")
    assert classify("create table x.t (like src)", "d").like == ("d", "src")


@pytest.mark.parametrize(
    ("sql", "database"),
    [
        ("drop database d1 /* xid=85 */", "d1"),
        ("DROP SCHEMA IF EXISTS `a b`", "a b"),
        ("create database d1", "d1"),
        ("CREATE OR REPLACE DATABASE d1", "d1"),
        ("CREATE DATABASE comment CHARSET latin1", "comment"),
        ("alter database d1 charset latin1", "d1"),
        ("alter database charset = latin1", "d"),
        ("ALTER SCHEMA DEFAULT CHARACTER SET utf8mb4", "d"),
        ("ALTER DATABASE READ ONLY = 1", "d"),
        ("ALTER DATABASE COMMENT = 'x'", "d"),
    ],
)
def test_databases(sql: str, database: str) -> None:
    statement = classify(sql, "d")
    assert (statement.kind, statement.event_type, statement.tables) == ("ddl", "QUERY", ())
    assert (statement.schema_wide, statement.database, statement.doubtful) == (True, database, False)


DML = [
    ("insert into ctl select * from src where a=1", "INSERT", "ctl"),
    ("INSERT LOW_PRIORITY IGNORE x.t (a) VALUES (1)", "INSERT", "x.t"),
    ("insert t set a=1", "INSERT", "t"),
    ("replace into ctl values(5,6)", "INSERT", "ctl"),
    ("REPLACE DELAYED `t` VALUES (1)", "INSERT", "t"),
    ("LOAD DATA LOCAL INFILE 'f into table y' REPLACE INTO TABLE `x`.`t` LINES STARTING BY ','", "INSERT", "x.t"),
    ("LOAD XML INFILE 'f' INTO TABLE t", "INSERT", "t"),
    ("update t set a=1", "UPDATE", "t"),
    ("UPDATE LOW_PRIORITY IGNORE x.t AS a SET a.b=1", "UPDATE", "x.t"),
    ("update src x join ctl c on x.a=c.a, ctas set x.b=9", "UPDATE", "src ctl ctas"),
    ("UPDATE a, (SELECT * FROM z) q, (b CROSS JOIN c) SET a.x=1", "UPDATE", "a b c"),
    ("UPDATE t PARTITION (p0, p1) USE INDEX (i) LEFT JOIN u USING (id) SET t.a=(SELECT 1 FROM z)", "UPDATE", "t u"),
    ("UPDATE t, JSON_TABLE('[]', '$[*]' COLUMNS (a int PATH '$')) AS j SET t.a=1", "UPDATE", "t"),
    ("WITH c AS (SELECT * FROM z), e (x) AS (SELECT 1) UPDATE t JOIN c SET t.a=1", "UPDATE", "t c"),
    ("delete from t", "DELETE", "t"),
    ("DELETE FROM `x`.`t`", "DELETE", "x.t"),
    ("DELETE LOW_PRIORITY QUICK IGNORE FROM t AS x WHERE a=1", "DELETE", "t"),
    ("DELETE HISTORY FROM t", "DELETE", "t"),
    ("delete x from src as x join ctl c on x.a=c.a", "DELETE", "src"),
    ("DELETE a.*, X FROM a JOIN y.b AS x ON a.i=x.i JOIN z", "DELETE", "a y.b"),
    ("DELETE q.a FROM q.a JOIN b", "DELETE", "q.a"),
    ("DELETE FROM a, b USING a JOIN x.long b JOIN c WHERE 1", "DELETE", "a x.long"),
    ("WITH c AS (SELECT 1) DELETE FROM t WHERE a IN (SELECT * FROM c)", "DELETE", "t"),
]


@pytest.mark.parametrize(("sql", "event_type", "names"), DML)
def test_statement_format_changes(sql: str, event_type: str, names: str) -> None:
    """T42, T47"""
    statement = classify(sql, "d")
    assert (statement.kind, statement.event_type, statement.tables) == ("dml", event_type, tables(names))
    assert not statement.doubtful


@pytest.mark.parametrize("sql", ["SELECT `d2`.`f1`()", "call p()", "do f()", "WITH a AS (SELECT 1) SELECT f() FROM a"])
def test_changes_that_the_text_does_not_name(sql: str) -> None:
    statement = classify(sql, "d")
    assert (statement.kind, statement.event_type, statement.tables, statement.doubtful) == ("dml", "QUERY", (), True)


@pytest.mark.parametrize(
    "sql",
    [
        "",
        " \n",
        ";",
        "# Dum",
        "/* nothing */",
        "/* generated by server */ -- x",
        "GRANT ALL ON t.* TO 'x'@'%'",
        "CREATE USER 'drop table t'@'%'",
        "RENAME USER a TO b",
        "SET PASSWORD FOR a = 'x'",
        "CREATE ALGORITHM=UNDEFINED DEFINER=`cdc`@`%` SQL SECURITY DEFINER VIEW `v1` AS select * from src",
        "create or replace view v as select 1",
        "alter definer=current_user() view v as select 1",
        "drop view v1",
        "CREATE DEFINER=`cdc`@`%` trigger trg before insert on src for each row set new.b=1",
        "CREATE DEFINER=`table`@`%` PROCEDURE `p1`()\nbegin create table pp(a int); drop table pp; end",
        "CREATE DEFINER=table1@localhost FUNCTION `f1`() RETURNS int\nbegin insert into c values (7); return 1; end",
        "CREATE DEFINER=`cdc`@`%` event ev on schedule every 1 day do delete from d2.src",
        "DROP TRIGGER x",
        "alter event e disable",
        "CREATE AGGREGATE FUNCTION f RETURNS INTEGER SONAME 'x'",
        "CREATE ROLE r",
        "CREATE SERVER s FOREIGN DATA WRAPPER mysql",
        "CREATE UNDO TABLESPACE t ADD DATAFILE 'x'",
        "ALTER INSTANCE ROTATE INNODB MASTER KEY",
        "CREATE SPATIAL REFERENCE SYSTEM 1",
        "FLUSH TABLES t",
        "analyze table src",
        "LOAD INDEX INTO CACHE t",
        "USE x",
        "/*!40101 SET NAMES utf8 */",
    ],
)
def test_statements_that_change_no_table(sql: str) -> None:
    assert classify(sql, "d") == Statement("other", "QUERY", default_schema="d")


@pytest.mark.parametrize("words", ["table", "NO_WRITE_TO_BINLOG tables", "local table"])
def test_optimize_names_what_it_may_make_anew(words: str) -> None:
    found = classify(f"optimize {words} src, `b c`.t", "d")

    assert found == Statement("other", "QUERY", default_schema="d", remade=(("d", "src"), ("b c", "t")))


@pytest.mark.parametrize(
    "sql",
    [
        "FROBNICATE TABLE t",
        "CREATE",
        "CREATE TABLE",
        "CREATE TABLE (",
        "ALTER TABLE",
        "DROP WHATEVER x",
        "DROP TABLE",
        "RENAME TABLE a",
        "/* open",
        "'",
        "CREATE TABLE t (a int default 'open",
        "DROP TABLE a `open",
        "DROP TABLE a b",
        "RENAME TABLE a TO b, c",
        "TRUNCATE TABLE a b",
        "ALTER TABLE t ADD x int COMMENT 'open",
        "BEGIN NOT ATOMIC DROP TABLE t; END",
        "CREATE INDEX i",
        "1",
        "RENAME DATABASE a TO b",
        "CREATE INDEX i ON",
        "SET STATEMENT x=1",
    ],
)
def test_text_that_cannot_be_read_is_doubtful(sql: str) -> None:
    """T83"""
    statement = classify(sql, "d")
    assert (statement.kind, statement.doubtful) == ("ddl", True)


def test_names_read_before_the_doubt_are_kept() -> None:
    assert classify("DROP TABLE a, x.b c", "d").tables == tables("a x.b")
    assert classify("RENAME TABLE a TO b, c", "d").renames == ((("d", "a"), ("d", "b")),)


@given(st.text())
def test_never_raises(sql: str) -> None:
    check(sql)


_FRAGMENTS = st.sampled_from(
    re.findall(
        r"\S+",
        """
        CREATE ALTER DROP RENAME TRUNCATE TABLE TABLES INDEX DATABASE SEQUENCE IF NOT EXISTS TEMPORARY OR REPLACE
        DEFINER = @ ( ) , . ; `a` `b.c` "d" 'e' ' " ` t u x.y TO WITH PARTITION EXCHANGE CONVERT ADD COLUMN KEY LIKE
        SELECT FROM USING WHERE SET STATEMENT FOR UPDATE DELETE INSERT INTO JOIN AS ON * /* */ /*! /*M!100100 -- # \\
        BEGIN COMMIT XA START END SAVEPOINT WAIT 5 NOWAIT USER VIEW SQL SECURITY ALGORITHM CONSTRAINT LOAD DATA é """
        "\x00 \udc80",
    )
)


@given(st.lists(_FRAGMENTS, max_size=30).map("\n".join) | st.lists(_FRAGMENTS, max_size=30).map(" ".join))
def test_never_raises_on_what_looks_like_sql(sql: str) -> None:
    """T83"""
    check(sql)


def check(sql: str) -> None:
    for mode in (0, ANSI_QUOTES | NO_BACKSLASH_ESCAPES):
        for flavor in ("", "mysql"):
            statement = classify(sql, "d", sql_mode=mode, flavor=flavor)
            assert statement.kind in {"begin", "commit", "rollback", "savepoint", "xa", "ddl", "dml", "other"}
            assert EventType[statement.event_type]
            assert all(len(table) == 2 for table in statement.tables)


@given(st.binary())
def test_any_bytes_have_a_verb(sql: bytes) -> None:
    assert 0 <= classify(sql.decode("utf-8", "surrogateescape"), "d").verb <= Verb.XA_ROLLBACK


def test_a_long_statement_costs_what_its_beginning_costs() -> None:
    insert = "/* app */ INSERT INTO t VALUES " + "(1,'abcdef')," * 800_000
    started = time.thread_time()
    assert classify(insert, "d").tables == (("d", "t"),)
    assert time.thread_time() - started < 0.5


@pytest.mark.parametrize(
    "sql",
    [
        "CREATE TABLE t (a char default '" + "\\'" * 500_000,
        "DROP TABLE " + "/*" * 500_000,
        "/*" + "*" * 1_000_000,
        "`" * 1_000_001,
        "-- \n" * 300_000 + "COMMIT",
        "ALTER TABLE t ADD " + "(" * 1_000_000,
        "COMMIT" + ";" * 390 + "x",
    ],
    ids=range(7),
)
def test_no_text_makes_it_slow(sql: str) -> None:
    started = time.thread_time()
    classify(sql, "d")
    assert time.thread_time() - started < 5
