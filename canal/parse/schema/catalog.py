"""The columns of every table of a source as of a position, carried on from one DDL statement of its log to the next.

Never asks a server and never raises on a statement: what it does not understand makes tables doubtful, no column shifts.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Any

import attrs

from canal.parse.schema import sequences
from canal.parse.schema.alter import altered, copied, created
from canal.parse.schema.alteration import Alteration, read_alteration
from canal.parse.schema.classify import classify, if_exists, is_database_option, object_of, pass_wait
from canal.parse.schema.definition import create_options, database_charset, read_body
from canal.parse.schema.key_definition import read_key_rest
from canal.parse.schema.parts import INNODB, Body, Dialect, Key, NotUnderstoodError
from canal.parse.schema.scanner import END, Scanner
from canal.parse.schema.table_state import TableState
from canal.parse.schema.words import expect, name
from canal.schema import TableSchema, column_from_text
from canal.statement import Statement, Table

__all__ = ["Applied", "Catalog", "Key", "TableState"]

log = logging.getLogger("canal.parse")

#: Of documents; 1 had no ``unread``, and is written where there is none.
FORMAT = 2


@attrs.frozen
class Applied:
    """What a statement did to the catalog."""

    #: Tables whose state was made, replaced, moved or removed.
    changed: tuple[Table, ...] = ()
    #: Tables whose columns are not known any more: read them again, or go by the metadata of their rows.
    doubtful: tuple[Table, ...] = ()


@attrs.define
class _Change:
    """What a statement is about to do to tables; it comes into force as a whole or not at all."""

    #: None: removed.
    states: dict[Table, TableState | None] = attrs.field(factory=dict)
    doubtful: list[Table] = attrs.field(factory=list)


class Catalog:
    """The tables of a source.

    A table that it does not hold and that is not doubtful does not exist: put all tables of the source first, or say
    ``complete=False``, or which databases are ``unread``. ``lower_case_table_names`` is the server's setting. None: it is
    not known, and a statement makes doubtful which of its tables are called as others but for the case, and those as well.
    """

    def __init__(
        self, *, lower_case_table_names: int | None = 0, complete: bool = True, unread: Iterable[str] = ()
    ) -> None:
        self.lower_case_table_names = lower_case_table_names
        self.complete = complete
        self._unread = set(map(self._fold_name, unread))
        self._tables: dict[Table, TableState] = {}
        self._doubtful: dict[Table, Table] = {}
        self._databases: dict[str, str] = {}
        #: Databases that were made or dropped by a statement: no table of theirs is older than that.
        self._whole: set[str] = set()
        #: Temporary tables by session.
        self._temporary: dict[int | None, set[Table]] = {}
        #: Where the setting is not known, the names that there are, by what is the same in lower case.
        self._spelled: dict[Table, set[Table]] = {}

    # -- state ---------------------------------------------------------------------------------------------------------

    def get(self, schema: str, table: str) -> TableState | None:
        """The table, None where it is unknown or doubtful."""
        return self._tables.get(self._fold((schema, table)))

    def put(self, state: TableState) -> None:
        """Set a table that was read from the server, or that the metadata of its rows proved."""
        key = self._fold((state.schema.schema, state.schema.table))
        self._spell(key)
        self._tables[key] = state
        self._doubtful.pop(key, None)

    def remove(self, schema: str, table: str) -> None:
        """A table that was looked for and does not exist: it is not doubtful any more."""
        self._drop(self._fold((schema, table)))

    def set_database(self, schema: str, charset: str) -> None:
        """Set the default charset of a database; "": it is not known."""
        if charset:
            self._databases[self._fold_name(schema)] = charset
        else:
            self._databases.pop(self._fold_name(schema), None)

    def tables(self) -> list[TableState]:
        """All tables that are known, in the order of their names."""
        return [self._tables[key] for key in sorted(self._tables)]

    def doubtful_tables(self) -> list[Table]:
        """Names of the tables that may exist with columns that are not known."""
        return [self._doubtful[key] for key in sorted(self._doubtful)]

    def is_doubtful(self, schema: str, table: str) -> bool:
        """Whether the table may exist with columns that are not known."""
        key = self._fold((schema, table))
        is_read = key[0] in self._whole or self.complete and key[0] not in self._unread
        unknown = not is_read and key not in self._tables
        return key in self._doubtful or unknown

    def namesakes(self, table: Table) -> list[Table]:
        """Tables, known or doubtful, that are the same one if the server does not look at the case of names, and else are not."""
        names = self._spelled.get(_lower(table), set()) - {table}
        return sorted(name for name in names if name in self._tables or name in self._doubtful)

    def key(self, table: Table) -> Table:
        """The same for all names of one table."""
        return self._fold(table)

    def _spell(self, key: Table) -> None:
        if self.lower_case_table_names is None:
            self._spelled.setdefault(_lower(key), set()).add(key)

    def _drop(self, key: Table) -> None:
        self._tables.pop(key, None)
        self._doubtful.pop(key, None)
        _discard(self._spelled, _lower(key), key)

    def _fold_name(self, text: str) -> str:
        return text.lower() if self.lower_case_table_names else text

    def _fold(self, table: Table) -> Table:
        return self._fold_name(table[0]), self._fold_name(table[1])

    def _stored(self, text: str) -> str:
        """A name as the server keeps it."""
        return text.lower() if self.lower_case_table_names == 1 else text

    # -- statements ----------------------------------------------------------------------------------------------------

    def apply(
        self,
        sql: str,
        default_schema: str,
        *,
        sql_mode: int = 0,
        flavor: str = "mysql",
        server_charset: str = "utf8mb4",
        version: tuple[int, ...] = (9, 0, 0),
        explicit_defaults: bool | None = True,
        error: int = 0,
        session: int | None = None,
        connection_charset: str = "utf8mb4",
        statement: Statement | None = None,
    ) -> Applied:
        """Follow a statement of the log; never raises.

        Args:
            sql_mode, server_charset ("": not known), explicit_defaults, connection_charset: from the status variables of
                its event, see ``events.query_context`` and ``events.ddl_context``.
            flavor, version: of the server that wrote it; integer types are shown with widths before MySQL 8.0.19.
            error: error code of its event: the statement failed, but not before it had changed something.
            session: thread id of its event, which tells apart temporary tables.
            statement: what it does, where its text was classified already.
        """
        statement = statement or classify(sql, default_schema, sql_mode=sql_mode, flavor=flavor)
        if statement.kind != "ddl" and not statement.remade:
            return Applied()
        if error and statement.event_type == "CREATE" and statement.replaces and not statement.temporary:
            gone = _Change(dict.fromkeys(statement.tables))  # in the log only if the old table is
            return self._with_namesakes(self._commit(gone), statement)
        if error and statement.event_type != "ERASE" and not statement.temporary:
            return self._doubt(statement)
        dialect = Dialect(flavor, version, sql_mode, explicit_defaults, connection_charset)
        try:
            run = _Run(self, Scanner(sql, sql_mode, flavor), statement, dialect, server_charset, session)
            change = run.change()
        except NotUnderstoodError as problem:
            log.debug("a statement is not followed: %s", problem)
            return self._doubt(statement)
        except Exception:  # a fault of ours must not stop the stream; the tables are read again instead
            log.exception("a statement could not be followed")
            return self._doubt(statement)
        return self._with_namesakes(self._commit(change), statement)

    def _with_namesakes(self, applied: Applied, statement: Statement) -> Applied:
        """Doubt tables that may be one or two, and those of a database that may be the one of the statement."""
        if self.lower_case_table_names is not None:
            return applied
        doubtful = []
        for table in (*applied.changed, *applied.doubtful):
            names = self.namesakes(table)
            doubtful += [*names, table] if names else []
        if statement.schema_wide:
            doubtful += [one for one in self._tables_of(None) if _differ_in_case(one[0], statement.database)]
            for name in [one for one in self._databases if _differ_in_case(one, statement.database)]:
                del self._databases[name]
        for table in doubtful:
            self._forget(table)
        changed = tuple(table for table in applied.changed if table not in doubtful)
        return Applied(changed, tuple(dict.fromkeys((*applied.doubtful, *doubtful))))

    def _commit(self, change: _Change) -> Applied:
        for table, state in change.states.items():
            key = self._fold(table)
            if state is None:
                self._drop(key)
            else:
                self._doubtful.pop(key, None)
                self._spell(key)
                self._tables[key] = state
        for table in change.doubtful:
            self._forget(table)
        doubtful = frozenset(change.doubtful)
        changed = tuple(table for table in change.states if table not in doubtful)
        return Applied(changed, tuple(change.doubtful))

    def _forget(self, table: Table) -> None:
        key = self._fold(table)
        self._spell(key)
        self._tables.pop(key, None)
        self._doubtful[key] = table

    def _doubt(self, statement: Statement) -> Applied:
        """A statement that is not understood: its tables, those of its database, or all become doubtful."""
        doubtful = list(statement.tables)
        if statement.schema_wide:
            doubtful += self._tables_of(statement.database)
            self._databases.pop(self._fold_name(statement.database), None)
            self._whole.discard(self._fold_name(statement.database))
        elif statement.doubtful or not doubtful:
            doubtful += self._tables_of(None)
        for table in doubtful:
            self._forget(table)
        return self._with_namesakes(Applied((), tuple(dict.fromkeys(doubtful))), statement)

    def _tables_of(self, database: str | None) -> list[Table]:
        """Names of all tables, or of those of a database."""
        wanted = None if database is None else self._fold_name(database)
        names = {key: (state.schema.schema, state.schema.table) for key, state in self._tables.items()}
        names.update(self._doubtful)
        return [names[key] for key in sorted(names) if wanted is None or key[0] == wanted]

    # -- snapshots -----------------------------------------------------------------------------------------------------

    def to_document(self) -> dict[str, Any]:
        """All of it as JSON values; equal catalogs give equal documents."""
        return {
            **self.settings(),
            "tables": [table_to_document(self._tables[key]) for key in sorted(self._tables)],
            "doubtful": [list(self._doubtful[key]) for key in sorted(self._doubtful)],
        }

    def settings(self) -> dict[str, Any]:
        """The part of the document that is not about tables."""
        return {
            "format": FORMAT if self._unread else 1,
            "lower_case_table_names": self.lower_case_table_names,
            "complete": self.complete,
            "databases": dict(sorted(self._databases.items())),
            "whole": sorted(self._whole),
            **({"unread": sorted(self._unread)} if self._unread else {}),
            "temporary": [
                [session, *map(list, sorted(tables))]
                for session, tables in sorted(self._temporary.items(), key=lambda item: (item[0] is not None, item[0] or 0))
                if tables
            ],
        }

    @classmethod
    def from_document(cls, document: Any) -> Catalog:
        """Read what ``to_document`` made.

        Raises:
            ValueError: the document is of another format or is damaged.
        """
        found = document.get("format") if isinstance(document, dict) else None
        if found not in (1, FORMAT):
            raise ValueError(f"a catalog document of format {found!r}, not 1 or {FORMAT}")
        try:
            catalog = cls(
                lower_case_table_names=document["lower_case_table_names"], complete=document["complete"],
                unread=document.get("unread", ()),
            )  # fmt: skip
            catalog._databases.update(document["databases"])
            catalog._whole.update(document.get("whole", ()))
            for table in document["tables"]:
                catalog.put(table_from_document(table))
            for schema, table in document["doubtful"]:
                catalog._forget((schema, table))
            for session, *tables in document["temporary"]:
                catalog._temporary[session] = {(schema, table) for schema, table in tables}
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise ValueError("a damaged catalog document") from error
        return catalog


def _discard(sets: dict[Any, set[Table]], key: Any, table: Table) -> None:
    """Take a table out of the set of a key, which goes with its last one."""
    tables = sets.get(key, set())
    tables.discard(table)
    if not tables:
        sets.pop(key, None)


def _lower(table: Table) -> Table:
    return table[0].lower(), table[1].lower()


def _differ_in_case(name: str, other: str) -> bool:
    return name != other and name.lower() == other.lower()


def filled_columns(sql: str, statement: Statement, dialect: Dialect) -> list[str]:
    """Names of the columns that an ALTER TABLE adds and that are not NULL in the rows that are there, or may be.

    Raises:
        NotUnderstoodError: the text says something that is not known here.
    """
    run = _Run(Catalog(), Scanner(sql, dialect.sql_mode, dialect.flavor), statement, dialect, "", None)
    added = (one.definition for one in run.alteration().placed if not one.old)
    return [column.name for column in added if column is not None and column.fills(dialect)]


class _Run:
    """One statement on its way into a catalog."""

    def __init__(
        self, catalog: Catalog, scan: Scanner, statement: Statement, dialect: Dialect, server_charset: str,
        session: int | None,
    ) -> None:  # fmt: skip
        self.catalog, self.scan, self.statement, self.dialect = catalog, scan, statement, dialect
        self.server_charset = server_charset
        self.session = session
        self.schema = statement.default_schema
        self.found = _Change()

    def _verb(self) -> str:
        scan = self.scan
        while scan.accept(";"):
            pass
        if scan.accept_all("SET", "STATEMENT"):
            while not scan.at_end() and scan.take()[2] != "FOR":
                pass
        return scan.take()[2]

    def alteration(self) -> Alteration:
        """The clauses of an ALTER TABLE; none of another statement."""
        if self._verb() != "ALTER" or self._object()[0] != "TABLE":
            return Alteration()
        self._named_table()
        return read_alteration(self.scan, self.dialect, self.schema)

    def change(self) -> _Change:
        scan, verb = self.scan, self._verb()
        handlers: dict[str, Callable[[], None]] = {
            "CREATE": self._create, "ALTER": self._alter, "DROP": self._drop, "RENAME": self._rename,
            "TRUNCATE": self._truncate, "OPTIMIZE": self._optimize,
        }  # fmt: skip
        if verb not in handlers:
            raise NotUnderstoodError(f"unknown verb {verb}")
        handlers[verb]()
        while scan.accept(";"):
            pass
        if scan.broken or not scan.at_end() or scan.peek()[0] != END:
            raise NotUnderstoodError(f"something after the end of the statement: {scan.peek()[1]}")
        return self.found

    # -- names ---------------------------------------------------------------------------------------------------------

    def _object(self) -> tuple[str, frozenset[str]]:
        what, modifiers = object_of(self.scan)
        return what, modifiers

    def _table(self) -> Table:
        found = self.scan.table(self.schema)
        if found is None:
            raise NotUnderstoodError("no table where one should stand")
        return self.catalog._stored(found[0]), self.catalog._stored(found[1])

    def _if(self) -> bool:
        return if_exists(self.scan)

    def _get(self, table: Table) -> TableState | None:
        return self.catalog.get(*table)

    def _set(self, table: Table, state: TableState | None) -> None:
        self.found.states[table] = state

    def _doubt(self, *tables: Table) -> None:
        self.found.doubtful += tables

    def _may_exist(self, table: Table) -> bool:
        return self.catalog.is_doubtful(*table)

    def _is_temporary(self, table: Table) -> bool:
        """Whether a temporary table of this session hides the permanent one.

        Raises:
            NotUnderstoodError: there is such a table, but the session is not known, or whether it is called so.
        """
        names = self.catalog._temporary.get(self.session, set())
        hidden = self.catalog._fold(table) in names
        is_unsure = self.catalog.lower_case_table_names is None and _lower(table) in map(_lower, names - {table})
        if is_unsure or hidden and self.session is None:
            raise NotUnderstoodError("it may be about a temporary table")
        return hidden

    def _default_charset(self, schema: str) -> str | None:
        return self.catalog._databases.get(self.catalog._fold_name(schema))

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
            self.catalog._temporary.setdefault(self.session, set()).add(self.catalog._fold(table))
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

    def _created(self, table: Table) -> TableState | None:
        """The table that is made; None where its columns come from what is not known."""
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

    def _sequence(self, table: Table) -> TableState | None:
        """MariaDB keeps a sequence as a table of one row."""
        typed = False
        while not self.scan.at_end():
            typed = self.scan.take()[2] == "AS" or typed
        if typed:
            return None
        return TableState(TableSchema(*table, sequences.COLUMNS), self._default_charset(table[0]), ())

    def _create_index(self, unique: bool) -> None:
        scan = self.scan
        conditional = self._if()
        named = name(scan) if scan.peek()[2] != "ON" else ""
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
        schema = self.catalog._stored(name(self.scan))
        choice = database_charset(self.scan)
        known = self.catalog._databases.get(self.catalog._fold_name(schema))
        if conditional and not replaces and (known or not self.catalog.complete):
            return
        if replaces or not conditional:
            self._empty(schema)
        self.catalog.set_database(schema, choice.over(self.server_charset) if choice else self.server_charset)  # type: ignore[arg-type]

    def _empty(self, schema: str) -> None:
        """The database has no tables now."""
        for table in self.catalog._tables_of(schema):
            self._set(table, None)
        if self.catalog.complete:
            self.catalog._unread.discard(self.catalog._fold_name(schema))
        else:
            self.catalog._whole.add(self.catalog._fold_name(schema))

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
                temporary = self.catalog._temporary[self.session]
                temporary.discard(self.catalog._fold(table))
                temporary.add(self.catalog._fold(change.rename))
            return
        target = change.rename and (self.catalog._stored(change.rename[0]), self.catalog._stored(change.rename[1]))
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
            schema = self.catalog._stored(name(scan))
        if schema.startswith("#mysql50#"):
            raise NotUnderstoodError("a database gets another name")
        choice = database_charset(scan)
        if choice is not None:
            charset = choice.over(self.server_charset)
            assert charset is not None
            self.catalog.set_database(schema, charset)

    # -- DROP, RENAME, TRUNCATE ----------------------------------------------------------------------------------------

    def _drop(self) -> None:
        what, modifiers = self._object()
        if what in ("DATABASE", "SCHEMA"):
            self._if()
            schema = self.catalog._stored(name(self.scan))
            self._empty(schema)
            self.catalog._databases.pop(self.catalog._fold_name(schema), None)
        elif what == "INDEX":
            conditional = self._if()
            named = name(self.scan).lower()
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
                _discard(self.catalog._temporary, self.session, self.catalog._fold(table))
            else:
                self._set(table, None)
            if not self.scan.accept(","):
                break
        pass_wait(self.scan)
        self.scan.accept("RESTRICT", "CASCADE")

    def _truncate(self) -> None:
        self._skip()

    def _optimize(self) -> None:
        """MariaDB makes a table of InnoDB anew, which forgets that a unique key was asked for USING HASH.

        Of one with partitions it may fail to, if that key lacks a column by which they are made.
        """
        for one in self.statement.remade:
            table = self.catalog._stored(one[0]), self.catalog._stored(one[1])
            state = self._get(table)
            if state is None or not self.dialect.has("hash_keys") or not any(key.hash for key in state.keys or ()):
                continue
            if state.partitioned and not self._is_temporary(table):
                self._doubt(table)
            else:
                self._altered(table, Alteration(remakes=state.engine == INNODB))
        self._skip()

    def _rename(self) -> None:
        """Pairs of old and new names, one after the other."""
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
        """One pair; ``names`` and ``doubtful`` are those of the pairs before it, as they are compared."""
        if self._is_temporary(old):
            raise NotUnderstoodError("RENAME of a temporary table")
        key, new_key = self.catalog._fold(old), self.catalog._fold(new)
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


def _named(state: TableState, table: Table) -> TableState:
    return attrs.evolve(state, schema=TableSchema(*table, state.schema.columns))


# -- documents ---------------------------------------------------------------------------------------------------------


def table_to_document(state: TableState) -> dict[str, Any]:
    """A table as JSON values."""
    return {
        "schema": state.schema.schema,
        "table": state.schema.table,
        "charset": state.charset,
        "row_end": state.row_end,
        "hidden": state.hidden,
        **({"counts_first": True} if state.counts_first else {}),
        **({"engine": state.engine} if state.engine != INNODB else {}),
        **({"partitioned": True} if state.partitioned else {}),
        **({"counted": state.counted} if state.counted is not None else {}),
        "columns": [
            [
                c.name, c.column_type, c.charset, c.nullable, c.key, c.visible, None if c.labels is None else list(c.labels),
                *(word for word in ("virtual", "hidden") if getattr(c, word)), *(() if c.logged else ("unlogged",)),
            ]
            for c in state.schema.columns
        ],
        "keys": None
        if state.keys is None
        else [[key.name, key.unique, [list(part) for part in key.columns], key.hash] for key in state.keys],
    }


def table_from_document(document: dict[str, Any]) -> TableState:
    """Read what ``table_to_document`` made."""
    columns = []
    for named, text, charset, nullable, key, visible, labels, *words in document["columns"]:
        column = column_from_text(named, text, charset=charset, nullable=nullable, key=key, visible=visible)
        labels = None if labels is None else tuple(labels)
        columns.append(attrs.evolve(
            column, labels=labels, virtual="virtual" in words, hidden="hidden" in words, logged="unlogged" not in words,
        ))  # fmt: skip
    keys = document["keys"]
    if not all(isinstance(name, str) for name in (document["schema"], document["table"], *(column.name for column in columns))):
        raise ValueError("a name that is no text")
    return TableState(
        TableSchema(document["schema"], document["table"], tuple(columns)),
        document["charset"],
        None
        if keys is None
        else tuple(
            Key(named, unique, tuple((part, length) for part, length in parts), is_hash)
            for named, unique, parts, is_hash in keys
        ),
        document["row_end"],
        document["hidden"],
        document.get("counts_first", False),
        document.get("engine", INNODB),
        document.get("partitioned", False),
        document.get("counted"),
    )
