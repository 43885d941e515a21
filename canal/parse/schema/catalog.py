"""The columns of every table of a source as of a position, carried on from one DDL statement of its log to the next.

Never asks a server and never raises on a statement: what it does not understand makes tables doubtful, no column shifts.
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
    """What a statement did to the catalog."""

    #: Tables whose state was made, replaced, moved or removed.
    changed: tuple[Table, ...] = ()
    #: Tables whose columns are not known any more: read them again, or go by the metadata of their rows.
    doubtful: tuple[Table, ...] = ()


class Catalog(Tables):
    """The tables of a source, which follow the statements of its log.

    A table that it does not hold and that is not doubtful does not exist: put all tables of the source first, or say
    ``complete=False``, or which databases are ``unread``. ``lower_case_table_names`` is the server's setting. None: it is
    not known, and a statement makes doubtful which of its tables are called as others but for the case, and those as well.
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
            gone = TableChanges(dict.fromkeys(statement.tables))  # in the log only if the old table is
            return self._with_namesakes(self._commit(gone), statement)
        if error and statement.event_type != "ERASE" and not statement.temporary:
            return self._doubt(statement)
        dialect = Dialect(flavor, version, sql_mode, explicit_defaults, connection_charset)
        try:
            run = StatementRun(self, Scanner(sql, sql_mode, flavor), statement, dialect, server_charset, session)
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
        """A statement that is not understood: its tables, those of its database, or all become doubtful."""
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
    """Names of the columns that an ALTER TABLE adds and that are not NULL in the rows that are there, or may be.

    Raises:
        NotUnderstoodError: the text says something that is not known here.
    """
    run = StatementRun(Catalog(), Scanner(sql, dialect.sql_mode, dialect.flavor), statement, dialect, "", None)
    added = (one.definition for one in run.alteration().placed if not one.old)
    return [column.name for column in added if column is not None and column.fills(dialect)]
