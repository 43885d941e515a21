"""Tracks the columns of every table at a log position, by applying each DDL statement.

Never queries a server and never raises for a statement: a statement that is not understood makes tables doubtful.
"""

from __future__ import annotations

import logging

import attrs

from canal.parse.schema.classify import classify
from canal.parse.schema.parts import Dialect, Key, NotUnderstoodError
from canal.parse.schema.scanner import Scanner
from canal.parse.schema.statement_run import StatementRun, TableChanges
from canal.parse.schema.table_state import TableVersion
from canal.parse.schema.tables import Tables, differ_in_case
from canal.statement import Statement, Table

__all__ = ["Applied", "Catalog", "Key", "TableVersion"]

log = logging.getLogger("canal.parse")


@attrs.frozen
class Applied:
    """The effect of a statement on the catalog."""

    #: Tables that were created, replaced, moved or removed.
    changed: tuple[Table, ...] = ()
    #: Tables with unknown columns from now on: read them again, or use the metadata of their rows.
    doubtful: tuple[Table, ...] = ()


class Catalog(Tables):
    """The tables of a source, updated by the statements in the log.

    A table that is neither known nor doubtful does not exist. So first ``put`` all tables of the source, or pass
    ``complete=False`` or the ``unread`` databases. ``lower_case_table_names`` is the server's setting. If it is None
    (unknown), a statement makes tables doubtful whose names differ only in case.
    """

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
        """Apply a statement of the log; never raises.

        Args:
            sql_mode, server_charset ("": unknown), explicit_defaults, connection_charset: from the event's status variables,
                see ``events.query_context`` and ``events.ddl_context``.
            flavor, version: the server that wrote the statement. Integer types have display widths before MySQL 8.0.19.
            error: the event's error code: the statement failed after it had changed something.
            session: the event's thread id, which distinguishes temporary tables.
            statement: the classified statement, if available.
        """
        statement = statement or classify(sql, default_schema, sql_mode=sql_mode, flavor=flavor)
        if statement.kind != "ddl" and not statement.remade:
            return Applied()
        if error and statement.event_type == "CREATE" and statement.replaces and not statement.temporary:
            gone = TableChanges(dict.fromkeys(statement.tables))  # logged only if the old table existed
            return self._with_namesakes(self._commit(gone), statement)
        if error and statement.event_type != "ERASE" and not statement.temporary:
            return self._doubt(statement)
        dialect = Dialect(flavor, version, sql_mode, explicit_defaults, connection_charset)
        try:
            run = StatementRun(self, Scanner(sql, sql_mode, flavor), statement, dialect, server_charset, session)
            change = run.change()
        except NotUnderstoodError as problem:
            log.debug("cannot apply a statement to the schema: %s", problem)
            return self._doubt(statement)
        except Exception:  # a bug here must not stop the stream; the tables are read again instead
            log.exception("cannot apply a statement to the schema")
            return self._doubt(statement)
        return self._with_namesakes(self._commit(change), statement)

    def _with_namesakes(self, applied: Applied, statement: Statement) -> Applied:
        """Mark tables and databases as doubtful if their names differ only in case."""
        if self.lower_case_table_names is not None:
            return applied
        doubtful = []
        for table in (*applied.changed, *applied.doubtful):
            names = self.namesakes(table)
            doubtful += [*names, table] if names else []
        if statement.schema_wide:
            doubtful += [one for one in self.tables_of(None) if differ_in_case(one[0], statement.database)]
            for name in [one for one in self.databases if differ_in_case(one, statement.database)]:
                del self.databases[name]
        for table in doubtful:
            self.forget(table)
        changed = tuple(table for table in applied.changed if table not in doubtful)
        return Applied(changed, tuple(dict.fromkeys((*applied.doubtful, *doubtful))))

    def _commit(self, change: TableChanges) -> Applied:
        for table, state in change.states.items():
            key = self.fold(table)
            if state is None:
                self.drop(key)
            else:
                self._doubtful.pop(key, None)
                self.spell(key)
                self._tables[key] = state
        for table in change.doubtful:
            self.forget(table)
        doubtful = frozenset(change.doubtful)
        changed = tuple(table for table in change.states if table not in doubtful)
        return Applied(changed, tuple(change.doubtful))

    def _doubt(self, statement: Statement) -> Applied:
        """Mark the tables, the database's tables or all tables as doubtful for a statement that is not understood."""
        doubtful = list(statement.tables)
        if statement.schema_wide:
            doubtful += self.tables_of(statement.database)
            self.databases.pop(self.fold_name(statement.database), None)
            self.whole.discard(self.fold_name(statement.database))
        elif statement.doubtful or not doubtful:
            doubtful += self.tables_of(None)
        for table in doubtful:
            self.forget(table)
        return self._with_namesakes(Applied((), tuple(dict.fromkeys(doubtful))), statement)


def filled_columns(sql: str, statement: Statement, dialect: Dialect) -> list[str]:
    """Return the columns that an ALTER TABLE adds and that may not be NULL in existing rows.

    Raises:
        NotUnderstoodError: the statement is not understood.
    """
    run = StatementRun(Catalog(), Scanner(sql, dialect.sql_mode, dialect.flavor), statement, dialect, "", None)
    added = (one.definition for one in run.alteration().placed if not one.old)
    return [column.name for column in added if column is not None and column.fills(dialect)]
