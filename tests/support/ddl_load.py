"""A random load of statements that change tables, with rows between them, and what the server itself says of each row.

Names, sql_mode and comments are of the kinds that are hard to read; most statements suit the tables as they are.
"""

from __future__ import annotations

import contextlib
import datetime
import random
from collections.abc import Iterator
from typing import Any

import pymysql

import canal
from canal.testing.servers import ThrowawayServer
from tests.support.live import is_since, logs_generated

Table = tuple[str, str]
#: Event, table, and the rows before and after by their columns; as texts, which also tell types and the order of columns.
Change = tuple[str, str, str, str]

TABLES = ("t", "u", "a.b", "x`y", "sel ect", "tä", 'q"q')
COLUMNS = ("a", "b", "c", "d.e", "f`g", "h i", "ö", "first", "after", "key", 'p"q', "column", "A1")
TYPES = (
    "int",
    "int",
    "int",
    "varchar(20)",
    "varchar(20)",
    "varchar(20)",
    "varchar(20) charset utf8mb4",
    "int unsigned",
    "text",
    "enum('a','b,)')",
    "set('x','y''z')",
    "decimal(8,2)",
    "char(5) charset latin1",
    "date",
    "year",
    "varbinary(9)",
    "blob",
    "datetime(3)",
    "timestamp null",
    "bigint unsigned",
    "double",
    "tinyint(1)",
    "json",
    "time(2)",
    "bit(9)",
    "mediumtext",
    "smallint zerofill",
    "nchar varying(7)",
    "varchar(9) collate utf8mb4_bin",
    "boolean",
    "dec(5)",
    "character varying(8)",
)
ATTRIBUTES = ("", "", "", "", "not null", "null", "default null", "comment 'first, after `a` -- x'", "invisible", "unique")
MODES = ("", "", "ANSI_QUOTES", "NO_BACKSLASH_ESCAPES", "ANSI", "STRICT_ALL_TABLES")


def is_older(server: ThrowawayServer) -> bool:
    return server.kind == "mysql" and server.installation.release < (5, 6)


class Load:
    """Runs statements on a server; ``expected`` are the row changes in the order of the log."""

    def __init__(self, server: ThrowawayServer, databases: tuple[str, ...], seed: object) -> None:
        self.random = random.Random(str(seed))
        self.databases = databases
        self.expected: list[Change] = []
        self.statements: list[str] = []
        self.refused = 0
        self.mariadb = server.kind == "mariadb"
        #: MySQL 5.5 logs a DROP TABLE with backticks inside of names as they are, and with lower_case_table_names=1 renames to
        #: what is before a dot.
        self.names = tuple(name for name in TABLES if not {"`", "."} & set(name)) if is_older(server) else TABLES
        #: MySQL up to 5.6 keeps partitions in the quotes of ANSI, and MariaDB 10.1 and 10.2 do not find their rows.
        self.has_partitions = is_since(server, mysql=(5, 7), mariadb=(10, 5))
        self.forgets_charsets = is_since(server, mysql=(5, 6)) and not is_since(server, mysql=(5, 7))
        #: What MariaDB logs of a VIRTUAL column before 10.5 is not what it holds.
        virtual = "virtual" if is_since(server, mysql=(5, 7), mariadb=(10, 5)) else "stored"
        self.generated = ("int as (7) stored", f"int generated always as (1 + 1) {virtual}")
        self.logs_generated = logs_generated(server)
        self.session = server.connect(autocommit=True)
        self.cursor = self.session.cursor()
        self.cursor.execute("SET time_zone = '+00:00'")
        self.quote = "`"
        self.current = ""
        #: The types of columns that take a value.
        self.tables: dict[Table, dict[str, str]] = {}
        for database in databases:
            self.cursor.execute(f"CREATE DATABASE {self.q(database)} CHARACTER SET utf8mb4")
        self._use(databases[0])

    def close(self) -> None:
        self.session.close()

    # -- running -------------------------------------------------------------------------------------------------------

    def step(self) -> bool:
        """One statement, and rows where tables changed; False when the server refused it."""
        if self.random.random() < 0.1:
            mode = self.random.choice(MODES)
            self.cursor.execute(f"SET sql_mode = '{mode}'")
            self.quote = '"' if "ANSI" in mode else "`"
        if self.random.random() < 0.05:
            self._use(self.random.choice(self.databases))
        sql = self.commented(self.statement())
        try:
            self.cursor.execute(sql)
        except pymysql.MySQLError:
            self.refused += 1
            return False
        self.statements.append(sql)
        before, self.tables = self.tables, self._read_tables()
        if " as select " in sql:
            for name in self.tables.keys() - before.keys():
                self._expect("INSERT", name, None, self._row(name))
        for name in self.tables:
            if before.get(name) != self.tables[name] or self.random.random() < 0.05:
                self._change_row(name)
        return True

    def _use(self, database: str) -> None:
        with contextlib.suppress(pymysql.MySQLError):
            self.cursor.execute(f"USE {self.q(database)}")
            self.current = database

    def _read_tables(self) -> dict[Table, dict[str, str]]:
        self.cursor.execute(
            "SELECT c.table_schema, c.table_name, column_name, column_type, extra, character_set_name"
            " FROM information_schema.columns c JOIN information_schema.tables t USING (table_schema, table_name)"
            " WHERE table_schema IN %s AND table_type <> 'VIEW' ORDER BY 1, 2, ordinal_position",
            (self.databases,),
        )
        found: dict[Table, dict[str, str]] = {}
        for schema, table, column, column_type, extra, _ in self.cursor.fetchall():
            text = column_type.decode() if isinstance(column_type, bytes) else column_type
            generated = "GENERATED" in extra.upper() and "DEFAULT_GENERATED" not in extra.upper()
            found.setdefault((schema, table), {})[column] = "" if generated else text
        return found

    def _change_row(self, name: Table) -> None:
        """Every table has one row at most: it goes, and another one comes."""
        old = self._row(name)
        full = f"{self.q(name[0])}.{self.q(name[1])}"
        if old is not None:
            self.cursor.execute(f"DELETE FROM {full}")
            self._expect("DELETE", name, old, None)
        columns = [column for column, column_type in self.tables[name].items() if column_type]
        values = ", ".join(self.value(self.tables[name][column]) for column in columns)
        try:
            self.cursor.execute(f"INSERT INTO {full} ({', '.join(map(self.q, columns))}) VALUES ({values})")
        except pymysql.MySQLError:
            return
        self._expect("INSERT", name, None, new := self._row(name))
        ints = [column for column in columns if self.tables[name][column].startswith("int")]
        if ints and self.random.random() < 0.3:
            column = self.q(self.random.choice(ints))
            if self.cursor.execute(f"UPDATE {full} SET {column} = coalesce({column}, 0) + 1"):
                self._expect("UPDATE", name, new, self._row(name))

    def _row(self, name: Table) -> dict[str, Any] | None:
        columns = ", ".join(self.q(one) + " + 0" * kind.startswith("bit") for one, kind in self.tables[name].items())
        self.cursor.execute(f"SELECT {columns} FROM {self.q(name[0])}.{self.q(name[1])}")
        rows = self.cursor.fetchall()
        assert len(rows) < 2
        return dict(zip(self.tables[name], rows[0])) if rows else None

    def _expect(self, event: str, name: Table, before: dict[str, Any] | None, after: dict[str, Any] | None) -> None:
        if before is not None or after is not None:
            images = [self._logged(event, name, row) for row in (before, after)]
            self.expected.append((event, ".".join(name), *map(text_of, images)))

    def _logged(self, event: str, name: Table, row: dict[str, Any] | None) -> dict[str, Any] | None:
        if row is None or event == "INSERT" or self.logs_generated:
            return row
        return {column: value if self.tables[name][column] else canal.ABSENT for column, value in row.items()}

    # -- making --------------------------------------------------------------------------------------------------------

    def q(self, name: str) -> str:
        quote = self.random.choice((self.quote, "`"))
        return quote + name.replace(quote, quote * 2) + quote

    def value(self, column_type: str) -> str:
        base = column_type.partition("(")[0].split()[0]
        number = self.random.randrange(100)
        known = {
            "enum": "'a'",
            "set": "'x'",
            "date": f"'20{number:02}-03-04'",
            "year": f"20{number:02}",
            "decimal": f"{number}.00",
            "datetime": f"'20{number:02}-03-04 05:06:07.125'",
            "timestamp": f"'2001-03-04 05:06:{number % 60:02}'",
            "json": f"""'{{"k": {number}}}'""",
            "time": f"'01:02:{number % 60:02}.25'",
            "double": f"{number}.5",
        }
        if base in known:
            return known[base]
        return str(number) if base.endswith("int") or base == "bit" else f"'v{number}'"

    def commented(self, sql: str) -> str:
        """With comments between the words, and with words in comments that the server carries out."""
        kind = self.random.random()
        if kind < 0.05:
            return f"/* ; alter table t drop a; */ {sql}"
        if kind < 0.10:
            return f"{sql} -- drop table t"
        if kind < 0.15:
            verb, _, rest = sql.partition(" ")
            return f"{verb} # '\n /**/ {rest}"
        if kind < 0.20:
            return f"/*!{self.random.choice(('', '40000', '50000 '))} {sql} */"
        if kind < 0.25 and self.mariadb:
            return f"/*M! {sql} */"
        return sql

    def old(self) -> Table:
        """A table that is there, mostly."""
        if self.tables and self.random.random() < 0.95:
            return self.random.choice(sorted(self.tables))
        return self.new()

    def new(self) -> Table:
        return self.random.choice(self.databases), self.random.choice(self.names)

    def n(self, table: Table) -> str:
        if self.current == table[0] and self.random.random() < 0.5:
            return self.q(table[1])
        return f"{self.q(table[0])}.{self.q(table[1])}"

    def column(self, table: Table) -> str:
        columns = list(self.tables.get(table, ()))
        return self.q(self.random.choice(columns if columns and self.random.random() < 0.95 else COLUMNS))

    def fresh(self, table: Table) -> str:
        return self.q(self.random.choice([c for c in COLUMNS if c not in self.tables.get(table, ())] or COLUMNS))

    def definition(self) -> str:
        if self.random.random() < 0.06:
            return self.random.choice(self.generated)
        return f"{self.random.choice(TYPES)} {self.random.choice(ATTRIBUTES)}"

    def order(self, table: Table) -> str:
        return self.random.choice(("", "", "first", f"after {self.column(table)}"))

    def maybe(self, words: str, share: float = 0.15) -> str:
        return words if self.random.random() < share else ""

    def clause(self, table: Table) -> str:
        c, one, other = self.column, self.column(table), self.column(table)
        exists, absent = (self.maybe("if exists "), self.maybe("if not exists ")) if self.mariadb else ("", "")
        makers = (
            lambda: f"add column {absent}{self.fresh(table)} {self.definition()} {self.order(table)}",
            lambda: f"add {absent}{self.fresh(table)} {self.definition()} {self.order(table)}",
            lambda: f"add ({self.fresh(table)} {self.definition()}, {self.fresh(table)} {self.definition()})",
            lambda: f"drop column {exists}{one}",
            lambda: f"drop {exists}{one}",
            lambda: f"modify {exists}{one} {self.definition()} {self.order(table)}",
            lambda: f"modify column {exists}{one} {self.definition()} {self.order(table)}",
            lambda: f"change {exists}{one} {self.fresh(table)} {self.definition()} {self.order(table)}",
            lambda: f"rename column {one} to {other}, rename column {other} to {one}",
            lambda: f"rename column {one} to {self.fresh(table)}",
            lambda: f"drop {one}, add {one} {self.definition()} {self.order(table)}",
            lambda: f"add unique ({one})",
            lambda: f"add primary key ({one})",
            lambda: "drop primary key",
            lambda: f"alter column {one} set {self.random.choice(('invisible', 'visible', 'default null'))}",
            lambda: self.conversion(),
            lambda: f"default charset {self.random.choice(('latin1', 'utf8mb4', 'utf8mb3'))}",
            lambda: f"comment 'rename to {self.random.choice(TABLES)[0]}'",
            lambda: f"add index ({c(table)}, {c(table)})",
            lambda: "engine = innodb",
        )
        return self.random.choice(makers)()

    def conversion(self) -> str:
        """MySQL 5.6 may leave the table's charset, which makes text columns that are added later a stop, as documented."""
        if self.forgets_charsets:
            return "engine = innodb"
        return f"convert to {self.random.choice(('character set latin1', 'charset utf8mb4 collate utf8mb4_bin'))}"

    def created(self, table: Table) -> str:
        columns = self.random.sample(COLUMNS, self.random.randint(2, 6))
        parts = [f"{self.q(column)} {self.definition()}" for column in columns]
        if self.random.random() < 0.3:
            parts.append(f"{self.random.choice(('unique', 'primary key', 'key'))} ({self.q(columns[0])})")
        head = ["create table", "create table", "create table if not exists"] + ["create or replace table"] * self.mariadb
        options = self.random.choice(("", "", "", "charset latin1", "comment = 'a(b'", "row_format=dynamic collate utf8mb4_bin"))
        partitions = self.maybe(f" partition by key ({self.q(columns[0])}) partitions 2", 0.1 * self.has_partitions)
        return f"{self.random.choice(head)} {self.n(table)} ({', '.join(parts)}) {options}{partitions}"

    def renames(self) -> str:
        one, two, third = self.old(), self.old(), self.new()
        chain = self.random.random()
        pairs = [(one, third)]
        if chain < 0.5:
            pairs = [(one, third), (two, one), (third, two)]
        elif chain < 0.7:
            pairs = [(one, third), (two, one)]
        return "rename table " + ", ".join(f"{self.n(old)} to {self.n(new)}" for old, new in pairs)

    def statement(self) -> str:
        table = self.old()
        kind = self.random.random()
        if kind < 0.10 or len(self.tables) < 3:
            return self.created(self.new())
        if kind < 0.15:
            like = self.random.choice(("like {}", "(like {})")).format(self.n(table))
            return f"create table {self.maybe('if not exists ')}{self.n(self.new())} {like}"
        if kind < 0.18:
            return f"create table {self.n(self.new())} as select {self.column(table)} from {self.n(table)}"
        if kind < 0.22:
            more = f", {self.n(self.old())}" if self.random.random() < 0.3 else ""
            return f"drop table {self.maybe('if exists ', 0.4)}{self.n(table)}{more}"
        if kind < 0.32:
            return self.renames()
        if kind < 0.35:
            return f"alter table {self.n(table)} rename to {self.n(self.new())}"
        if kind < 0.37:
            return f"create {self.maybe('unique ', 0.5)}index k on {self.n(table)} ({self.column(table)})"
        if kind < 0.39:
            return f"truncate {self.maybe('table ', 0.5)}{self.n(table)}"
        if kind < 0.40:
            return f"drop database {self.q(self.databases[-1])}"
        if kind < 0.43:
            charset = self.random.choice(("latin1", "utf8mb4"))
            return f"{self.random.choice(('create', 'alter'))} database {self.q(self.databases[-1])} default charset {charset}"
        if kind < 0.45:
            return self.random.choice(
                (
                    f"alter table {self.n(table)} remove partitioning",
                    f"optimize table {self.n(table)}",
                    f"alter table {self.n(table)} partition by key () partitions 3",
                    f"alter table {self.n(table)} force",
                )
            )
        manner = self.maybe(", algorithm=copy", 0.05)
        clauses = ", ".join(self.clause(table) for _ in range(self.random.choice((1, 1, 2, 3))))
        return f"alter table {self.n(table)} {clauses}{manner}"


def changes_of(message: canal.Message) -> Iterator[tuple[tuple[str, int, int, int], Change]]:
    """The row changes of a batch, each with its position."""
    for entry in message.entries:
        head = entry.header
        for number, row in enumerate(entry.rows):
            texts = (text_of(one and one.as_dict()) for one in row)
            change = (entry.event_type.name, f"{head.schema}.{head.table}", *texts)
            yield (head.journal, head.offset, head.ordinal, number), change  # type: ignore[misc]


def text_of(row: dict[str, Any] | None) -> str:
    """A row as it is compared: an Instance's values where they are not those of PyMySQL are made such."""
    if row is None:
        return ""
    return repr({name: _plain(value) for name, value in row.items() if not name.startswith("DB_ROW_HASH_")})


def _plain(value: Any) -> Any:
    if isinstance(value, datetime.datetime):
        return value.replace(tzinfo=None)
    return str(value) if type(value).__module__.startswith("canal") else value
