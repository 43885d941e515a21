"""Computes the effect of a DDL statement on the tables of a source.

Never changes tables: the caller applies the result as a whole, or not at all.
"""

from __future__ import annotations

from collections.abc import Callable

import attrs

from canal.parse.schema import sequences
from canal.parse.schema.alter import altered, copied, created
from canal.parse.schema.alteration import Alteration, read_alteration
from canal.parse.schema.classify import if_exists, is_database_option, object_of, pass_wait
from canal.parse.schema.definition import create_options, database_charset, read_body
from canal.parse.schema.key_definition import read_key_rest
from canal.parse.schema.parts import INNODB, Body, Dialect, NotUnderstoodError
from canal.parse.schema.scanner import END, Scanner
from canal.parse.schema.table_state import TableVersion
from canal.parse.schema.tables import Tables, discard, lower
from canal.parse.schema.words import expect, take_name
from canal.schema import TableSchema
from canal.statement import Statement, Table


@attrs.define
class TableChanges:
    """The changes that a statement makes, to be applied as a whole."""

    #: None: removed.
    states: dict[Table, TableVersion | None] = attrs.field(factory=dict)
    doubtful: list[Table] = attrs.field(factory=list)


class StatementRun:
    """Computes the changes of one statement."""

    def __init__(
        self, tables: Tables, scan: Scanner, statement: Statement, dialect: Dialect, server_charset: str, session: int | None
    ) -> None:
        self.tables, self.scan, self.statement, self.dialect = tables, scan, statement, dialect
        self.server_charset = server_charset
        self.session = session
        self.schema = statement.default_schema
        self.found = TableChanges()

    def _verb(self) -> str:
        scan = self.scan
        while scan.accept(";"):
            pass
        if scan.accept_all("SET", "STATEMENT"):
            while not scan.at_end() and scan.take()[2] != "FOR":
                pass
        return scan.take()[2]

    def alteration(self) -> Alteration:
        """Return the clauses of an ALTER TABLE; empty for other statements."""
        if self._verb() != "ALTER" or self._object()[0] != "TABLE":
            return Alteration()
        self._named_table()
        return read_alteration(self.scan, self.dialect, self.schema)

    def change(self) -> TableChanges:
        scan, verb = self.scan, self._verb()
        handlers: dict[str, Callable[[], None]] = {
            "CREATE": self._create,
            "ALTER": self._alter,
            "DROP": self._drop,
            "RENAME": self._rename,
            "TRUNCATE": self._truncate,
            "OPTIMIZE": self._optimize,
        }
        if verb not in handlers:
            raise NotUnderstoodError(f"unknown verb {verb}")
        handlers[verb]()
        while scan.accept(";"):
            pass
        if scan.broken or not scan.at_end() or scan.peek()[0] != END:
            raise NotUnderstoodError(f"text after the end of the statement: {scan.peek()[1]}")
        return self.found

    # -- names ---------------------------------------------------------------------------------------------------------

    def _object(self) -> tuple[str, frozenset[str]]:
        what, modifiers = object_of(self.scan)
        return what, modifiers

    def _table(self) -> Table:
        found = self.scan.table(self.schema)
        if found is None:
            raise NotUnderstoodError("a table name is missing")
        return self.tables.stored(found[0]), self.tables.stored(found[1])

    def _if(self) -> bool:
        return if_exists(self.scan)

    def _get(self, table: Table) -> TableVersion | None:
        return self.tables.get(*table)

    def _set(self, table: Table, state: TableVersion | None) -> None:
        self.found.states[table] = state

    def _doubt(self, *tables: Table) -> None:
        self.found.doubtful += tables

    def _may_exist(self, table: Table) -> bool:
        return self.tables.is_doubtful(*table)

    def _is_temporary(self, table: Table) -> bool:
        """Return whether a temporary table of this session hides the permanent table.

        Raises:
            NotUnderstoodError: it may, but the session or the case of names is unknown.
        """
        names = self.tables.temporary.get(self.session, set())
        hidden = self.tables.fold(table) in names
        is_unsure = self.tables.lower_case_table_names is None and lower(table) in map(lower, names - {table})
        if is_unsure or hidden and self.session is None:
            raise NotUnderstoodError("the table may be a temporary table")
        return hidden

    def _default_charset(self, schema: str) -> str | None:
        return self.tables.databases.get(self.tables.fold_name(schema))

    def _skip(self) -> None:
        while not self.scan.at_end():
            self.scan.take()

    # -- CREATE --------------------------------------------------------------------------------------------------------

    def _create(self) -> None:
        what, modifiers = self._object()
        if what in ("DATABASE", "SCHEMA"):
            return self._create_database("REPLACE" in modifiers)
        if what == "INDEX":
            return self._create_index("UNIQUE" in modifiers)
        if what not in ("TABLE", "SEQUENCE"):
            raise NotUnderstoodError(f"CREATE {what}")
        conditional = self._if()
        table = self._table()
        if "TEMPORARY" in modifiers:
            self.tables.temporary.setdefault(self.session, set()).add(self.tables.fold(table))
            return self._skip()
        if conditional and "REPLACE" not in modifiers:
            if self._get(table) is not None:
                return self._skip()
            if self._may_exist(table):
                self._doubt(table)
                return self._skip()
        state = self._sequence(table) if what == "SEQUENCE" else self._created(table)
        if state is None:
            self._doubt(table)
        else:
            self._set(table, state)
        return None

    def _created(self, table: Table) -> TableVersion | None:
        """Return the new table; None if the columns come from an unknown source."""
        scan = self.scan
        bracket = scan.peek()[2] == "(" and scan.peek(1)[2] == "LIKE"
        if bracket:
            scan.take()
        if scan.accept("LIKE"):
            other = self._table()
            if bracket:
                expect(scan, ")")
            state = None if self._is_temporary(other) else self._get(other)
            return None if state is None else copied(state, *table, self.dialect)
        body = Body()
        if scan.peek()[2] == "(" and scan.peek(1)[2] not in ("SELECT", "WITH", "VALUES", "TABLE", "("):
            scan.take()
            body = read_body(scan, self.dialect)
        options = create_options(scan)
        if options.queried or not body.columns:
            self._skip()
            return None
        charset = self._default_charset(table[0])
        if options.charset is not None:
            charset = options.charset.over(charset)
        return created(*table, body, self.dialect, charset, options)

    def _sequence(self, table: Table) -> TableVersion | None:
        """Return a sequence, which MariaDB stores as a table with one row."""
        typed = False
        while not self.scan.at_end():
            typed = self.scan.take()[2] == "AS" or typed
        if typed:
            return None
        return TableVersion(TableSchema(*table, sequences.COLUMNS), self._default_charset(table[0]), ())

    def _create_index(self, unique: bool) -> None:
        scan = self.scan
        conditional = self._if()
        named = take_name(scan) if scan.peek()[2] != "ON" else ""
        is_hash = bool(scan.accept("USING", "TYPE")) and scan.take()[2] == "HASH"
        expect(scan, "ON")
        table = self._table()
        pass_wait(scan)
        key = read_key_rest(scan, named, unique, conditional)
        if is_hash:
            key = attrs.evolve(key, hash=True)
        self._manners()
        self._alter_by(table, lambda change: change.body.keys.append(key))

    def _manners(self) -> None:
        while self.scan.accept("ALGORITHM", "LOCK"):
            self.scan.accept("=")
            self.scan.take()

    def _create_database(self, replaces: bool) -> None:
        conditional = self._if()
        schema = self.tables.stored(take_name(self.scan))
        choice = database_charset(self.scan)
        known = self.tables.databases.get(self.tables.fold_name(schema))
        if conditional and not replaces and (known or not self.tables.complete):
            return
        if replaces or not conditional:
            self._empty(schema)
        self.tables.set_database(schema, choice.over(self.server_charset) if choice else self.server_charset)  # type: ignore[arg-type]

    def _empty(self, schema: str) -> None:
        """Remove all tables of a database."""
        for table in self.tables.tables_of(schema):
            self._set(table, None)
        if self.tables.complete:
            self.tables.unread.discard(self.tables.fold_name(schema))
        else:
            self.tables.whole.add(self.tables.fold_name(schema))

    # -- ALTER ---------------------------------------------------------------------------------------------------------

    def _alter(self) -> None:
        what, _ = self._object()
        if what in ("DATABASE", "SCHEMA"):
            return self._alter_database()
        if what == "SEQUENCE":
            table = self._named_table()
            return self._doubt(table) if self._scan_has("AS") else None
        if what != "TABLE":
            raise NotUnderstoodError(f"ALTER {what}")
        table = self._named_table()
        change = read_alteration(self.scan, self.dialect, self.schema)
        self._altered(table, change)
        return None

    def _named_table(self) -> Table:
        self._if()
        table = self._table()
        pass_wait(self.scan)
        return table

    def _scan_has(self, word: str) -> bool:
        found = False
        while not self.scan.at_end():
            found = self.scan.take()[2] == word or found
        return found

    def _alter_by(self, table: Table, edit: Callable[[Alteration], object]) -> None:
        change = Alteration()
        edit(change)
        self._altered(table, change)

    def _altered(self, table: Table, change: Alteration) -> None:
        if self._is_temporary(table):
            if change.rename is not None:
                temporary = self.tables.temporary[self.session]
                temporary.discard(self.tables.fold(table))
                temporary.add(self.tables.fold(change.rename))
            return
        target = change.rename and (self.tables.stored(change.rename[0]), self.tables.stored(change.rename[1]))
        state = self._get(table)
        if state is None:
            self._set(table, None)
            self._doubt(target or table, *([change.split_off] if change.split_off else []))
        if change.taken_in is not None:
            self._set(change.taken_in, None)
        if state is None:
            return
        if change.split_off is not None:
            self._set(change.split_off, attrs.evolve(_named(state, change.split_off), partitioned=False))
        charsets = self._default_charset(table[0]), self._default_charset(self.schema)
        state = altered(state, change, self.dialect, *charsets)
        if target is not None:
            self._set(table, None)
        self._set(target or table, _named(state, target or table))

    def _alter_database(self) -> None:
        scan = self.scan
        schema = self.schema
        if scan.at_name() and not is_database_option(scan):
            schema = self.tables.stored(take_name(scan))
        if schema.startswith("#mysql50#"):
            raise NotUnderstoodError("a database is renamed")
        choice = database_charset(scan)
        if choice is not None:
            charset = choice.over(self.server_charset)
            assert charset is not None
            self.tables.set_database(schema, charset)

    # -- DROP, RENAME, TRUNCATE ----------------------------------------------------------------------------------------

    def _drop(self) -> None:
        what, modifiers = self._object()
        if what in ("DATABASE", "SCHEMA"):
            self._if()
            schema = self.tables.stored(take_name(self.scan))
            self._empty(schema)
            self.tables.databases.pop(self.tables.fold_name(schema), None)
        elif what == "INDEX":
            conditional = self._if()
            named = take_name(self.scan).lower()
            expect(self.scan, "ON")
            table = self._table()
            pass_wait(self.scan)
            self._manners()
            self._alter_by(table, lambda change: change.dropped_keys.__setitem__(named, conditional))
        elif what in ("TABLE", "TABLES", "SEQUENCE"):
            self._drop_tables("TEMPORARY" in modifiers)
        else:
            raise NotUnderstoodError(f"DROP {what}")

    def _drop_tables(self, temporary: bool) -> None:
        self._if()
        while True:
            table = self._table()
            if temporary or self._is_temporary(table):
                discard(self.tables.temporary, self.session, self.tables.fold(table))
            else:
                self._set(table, None)
            if not self.scan.accept(","):
                break
        pass_wait(self.scan)
        self.scan.accept("RESTRICT", "CASCADE")

    def _truncate(self) -> None:
        self._skip()

    def _optimize(self) -> None:
        """Apply OPTIMIZE: MariaDB rebuilds InnoDB tables, which forgets that a unique key was requested USING HASH.

        It may fail for a partitioned table, if the key lacks a partitioning column.
        """
        for one in self.statement.remade:
            table = self.tables.stored(one[0]), self.tables.stored(one[1])
            state = self._get(table)
            if state is None or not self.dialect.has("hash_keys") or not any(key.hash for key in state.keys or ()):
                continue
            if state.partitioned and not self._is_temporary(table):
                self._doubt(table)
            else:
                self._altered(table, Alteration(remakes=state.engine == INNODB))
        self._skip()

    def _rename(self) -> None:
        """Apply RENAME TABLE, pair by pair."""
        scan = self.scan
        if not scan.accept("TABLE", "TABLES"):
            raise NotUnderstoodError("RENAME what?")
        self._if()
        names: dict[Table, Table] = {}
        doubtful: dict[Table, Table] = {}
        while True:
            old = self._table()
            pass_wait(scan)
            expect(scan, "TO")
            new = self._table()
            self._move(old, new, names, doubtful)
            if not scan.accept(","):
                return self._doubt(*doubtful.values())

    def _move(self, old: Table, new: Table, names: dict[Table, Table], doubtful: dict[Table, Table]) -> None:
        """Rename one table. ``names`` and ``doubtful`` are from earlier pairs, by normalised name."""
        if self._is_temporary(old):
            raise NotUnderstoodError("RENAME of a temporary table")
        key, new_key = self.tables.fold(old), self.tables.fold(new)
        before = names.get(key)
        state = self.found.states[before] if before else self._get(old)
        for one in (key, new_key):
            if before := names.pop(one, None):
                del self.found.states[before]
        self._set(old, None)
        doubtful.pop(key, None)
        if state is None:
            self._set(new, None)
            doubtful[new_key] = new
        else:
            self._set(new, _named(state, new))
        names[key] = old
        names[new_key] = new


def _named(state: TableVersion, table: Table) -> TableVersion:
    return attrs.evolve(state, schema=TableSchema(*table, state.schema.columns))
