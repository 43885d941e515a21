"""What the writers of SQL databases have in common: rows and progress in one transaction.

Never opens a connection. Rows with the keys of the changes are deleted and put anew, so that values of a second unique key may
change places within a transaction.
"""

from __future__ import annotations

import contextlib
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Final, Literal

import attrs

from canal.changes import Table, TableState
from canal.changes.latest import Key, Values
from canal.errors import CanalError, ConfigError, TargetSchemaError, UnfitChangeError
from canal.schema import ColumnSchema
from canal.targets.work import StateWork, conflict

#: Values in one statement, at most.
_SLICE: Final = 900
#: Rows that are asked for at once where a table is read.
_SCAN: Final = 1000


@attrs.frozen
class SQLOptions:
    """What all SQL targets can be told.

    Args:
        create: make tables that are not there: columns and primary key of the source's, and nothing else of it.
        schema: what to do when the source's table has columns that the target's lacks: "add" adds them (rows that are there have
            NULL in them until they change: what MySQL puts into them is not logged), "refuse" stops.
        progress_table: its name; it is made where it is not there.
    """

    create: bool = True
    schema: Literal["add", "refuse"] = "add"
    progress_table: str = "canal_progress"


class Refused(Exception):
    """A row is none that the database takes. The text says why, without a value of the row."""


class SQLWork(StateWork):
    """A writer over one connection that is in no transaction. Each database says below what it does in its own way."""

    #: What stands for a value in a statement.
    slot: ClassVar[str] = "?"
    quote: ClassVar[str] = '"'
    text_type: ClassVar[str] = "TEXT"

    def __init__(self, stream: str, options: SQLOptions) -> None:
        super().__init__()
        self._stream, self._options = stream, options
        self._known: dict[str, tuple[Table, bool]] = {}  # whether it is there
        self._owners: dict[str, str] = {}
        self._prepare_progress()

    # -- what a database does in its own way ------------------------------------------------------------------------------

    @abstractmethod
    def execute(self, sql: str, values: Sequence[Any] = ()) -> Any:
        """Run a statement; gives what has ``fetchall`` and ``rowcount``.

        Raises:
            Refused: a value or row cannot be stored.
            TargetError, ConnectionLostError: anything else.
        """

    @abstractmethod
    def parts(self, name: str) -> tuple[str, ...]:
        """The table of a name as the database knows it: the table alone, or behind its schema."""

    @abstractmethod
    def columns(self, parts: tuple[str, ...]) -> dict[str, str] | None:
        """Names and declared types of a table's columns; None: there is no such table."""

    @abstractmethod
    def column_type(self, column: ColumnSchema) -> str:
        """The type that holds every value of the source's column, and gives it back as it was."""

    @abstractmethod
    def adapters(self) -> Mapping[type, Callable[[Any], Any]]:
        """What makes a value that the database's library takes, by the type of values that it does not take as they are.

        They raise ``ValueError`` of one that no column holds.
        """

    def check_column(self, column: ColumnSchema, declared: str) -> str:
        """Why a column of the target does not keep values as they are; "" where it does, or refuses those that it cannot keep."""
        return ""

    def begin(self) -> None:
        self.execute("BEGIN")

    def create_parent(self, parts: tuple[str, ...]) -> None:
        """Make the schema of a table that is about to be made."""

    def insert(self, name: str, columns: Sequence[str], rows: Sequence[Values]) -> None:
        """Put rows, whose values are adapted."""
        names = ", ".join(map(self.quoted, columns))
        for some in _slices(rows, len(columns)):
            one = f"({', '.join([self.slot] * len(columns))})"
            self.execute(
                f"INSERT INTO {name} ({names}) VALUES {', '.join([one] * len(some))}", [value for row in some for value in row]
            )

    # -- progress ---------------------------------------------------------------------------------------------------------

    @property
    def progress_name(self) -> str:
        return self.quoted(self._options.progress_table)

    def _prepare_progress(self) -> None:
        text = self.text_type
        self.execute(
            f"CREATE TABLE IF NOT EXISTS {self.progress_name} (stream {text} NOT NULL, target {text} NOT NULL,"
            f" progress {text}, PRIMARY KEY (stream, target))"
        )

    def load(self, table: str) -> str | None:
        where, values = f"WHERE stream = {self.slot} AND target = {self.slot}", (self._stream, table)
        rows = self.execute(f"SELECT progress FROM {self.progress_name} {where}", values).fetchall()
        return rows[0][0] if rows else None

    def _claim(self, old: str | None, new: str, table: str) -> None:
        """The first statement of each transaction: whoever comes second waits here, and then finds another text."""
        name, slot = self.progress_name, self.slot
        if old is None:
            insert = f"INSERT INTO {name} (stream, target, progress) VALUES ({slot}, {slot}, {slot})"
            try:
                self.execute(insert, (self._stream, table, new))
            except Refused as error:
                raise conflict() from error
            return
        done = self.execute(
            f"UPDATE {name} SET progress = {slot} WHERE stream = {slot} AND target = {slot} AND progress = {slot}",
            (new, self._stream, table, old),
        )
        if self.updated(done) != 1:
            raise conflict()

    def updated(self, done: Any) -> int:
        """How many rows an UPDATE has found."""
        return int(done.rowcount)

    # -- rows -------------------------------------------------------------------------------------------------------------

    def write(self, made: Sequence[TableState], old: str | None, new: str, table: str) -> None:
        for state in made:
            self._prepare(state)
        self.begin()
        try:
            self._claim(old, new, table)
            for state in made:
                self._put(state)
            self.execute("COMMIT")
        except Refused as error:
            self.rollback()
            raise self._unfit(made, error) from error.__cause__
        except BaseException:
            with contextlib.suppress(CanalError):  # the connection is closed next, which does the same
                self.rollback()
            raise

    def rollback(self) -> None:
        self.execute("ROLLBACK")

    def read(self, table: Table, keys: Sequence[Key]) -> Mapping[Key, Values]:
        parts = self.parts(table.name)
        there = self.columns(parts)
        if there is None:
            return {}
        wanted = {tuple(self._adapted(table, key)): key for key in keys}
        columns = self._selected(table, there)
        at = [table.names.index(name) for name in table.keys]
        found = {}
        for where, values in self._where(table, list(wanted)):
            for row in self.execute(f"SELECT {columns} FROM {self.named(parts)} WHERE {where}", values).fetchall():
                if (key := wanted.get(tuple([row[number] for number in at]))) is not None:
                    found[key] = tuple(row)
        return found

    def scan(self, table: Table, lower: Key | None = None, upper: Key | None = None) -> Iterator[Values]:
        if not table.keys:
            raise ConfigError(f"{table.name} has no key to read it by", remedy="Name columns by canal.Rule(keys=…).")
        parts = self.parts(table.name)
        there = self.columns(parts)
        if there is None:
            return
        at = [table.names.index(name) for name in table.keys]
        select = f"SELECT {self._selected(table, there)} FROM {self.named(parts)}"
        order = f"ORDER BY {', '.join(map(self.quoted, table.keys))} LIMIT {_SCAN}"
        while True:
            ends = [(">", lower), ("<", upper)]
            found = [self._beyond(table, sign, self._adapted(table, end)) for sign, end in ends if end is not None]
            where = " AND ".join(["1 = 1", *(one for one, _ in found)])
            rows = self.execute(f"{select} WHERE {where} {order}", [value for _, values in found for value in values]).fetchall()
            yield from map(tuple, rows)
            if len(rows) < _SCAN:
                return
            lower = tuple(rows[-1][number] for number in at)

    def _beyond(self, table: Table, sign: str, key: Sequence[Any]) -> tuple[str, list[Any]]:
        """A condition for keys behind one, or up to it, that servers use an index for; and its values."""
        names, last = [self.quoted(name) for name in table.keys], len(key) - 1
        ways, values = [], [key[0]]
        for number, name in enumerate(names):
            same = [f"{one} = {self.slot}" for one in names[:number]]
            ways.append(" AND ".join([*same, f"{name} {sign}{'=' * (sign == '<' and number == last)} {self.slot}"]))
            values += key[: number + 1]
        return f"{names[0]} {sign}= {self.slot} AND ({' OR '.join(ways)})", values

    def _selected(self, table: Table, there: Mapping[str, str]) -> str:
        """The table's columns; NULL for those that the target's lacks."""
        names = {name.lower() for name in there}
        return ", ".join(self.quoted(name) if name.lower() in names else "NULL" for name in table.names.names)

    def _put(self, state: TableState) -> None:
        if not self._known[state.table.name][1]:
            return  # a table that was emptied before anything was put into it
        name = self.named(self.parts(state.table.name))
        if state.is_emptied:
            self.execute(f"DELETE FROM {name}")
        else:
            keys = [tuple(self._adapted(state.table, key)) for key in state.rows]
            for where, values in self._where(state.table, keys):
                self.execute(f"DELETE FROM {name} WHERE {where}", values)
        if rows := [self._values(state, key, row) for key, row in state.rows.items() if row is not None]:
            self.insert(name, state.table.names.names, rows)

    def _where(self, table: Table, keys: Sequence[Key]) -> Iterator[tuple[str, list[Any]]]:
        """Conditions for slices of adapted keys, and their values."""
        names = [self.quoted(name) for name in table.keys]
        one = "(" + " AND ".join(f"{name} = {self.slot}" for name in names) + ")"  # not all use an index for (a, b) IN (…)
        for some in _slices(keys, len(names)):
            where = " OR ".join([one] * len(some))
            if len(names) == 1:
                where = f"{names[0]} IN ({', '.join([self.slot] * len(some))})"
            yield where, [value for key in some for value in key]

    def _adapted(self, table: Table, values: Sequence[Any]) -> list[Any]:
        adapters = self.adapters()
        try:
            return [adapters[type(value)](value) if type(value) in adapters else value for value in values]
        except ValueError as error:
            raise Refused(str(error)) from error

    def _values(self, state: TableState, key: Key, row: Values) -> Values:
        try:
            return tuple(self._adapted(state.table, row))
        except Refused as error:
            raise self._unfit_change(state, key, str(error)) from error

    # -- what does not fit ------------------------------------------------------------------------------------------------

    def _unfit(self, made: Sequence[TableState], error: Refused) -> UnfitChangeError | TargetSchemaError:
        """Which rows the database refuses: they are put one by one, and all is taken back."""
        culprits = self.culprits(made)
        if not culprits:
            return TargetSchemaError(f"the target refuses rows: {error}", remedy="Give it the columns and keys of the source.")
        found = self._unfit_change(*culprits[0], str(error))
        found.changes = tuple(change for state, key in culprits for change in state.of_key(key))
        return found

    def culprits(self, made: Sequence[TableState]) -> list[tuple[TableState, Key]]:
        """The rows that are refused; nothing of what is tried for it stays."""
        self.begin()
        try:
            return [(state, key) for state in made for key in self._tried(state)]
        finally:
            self.rollback()

    def _tried(self, state: TableState) -> list[Key]:
        self._put(attrs.evolve(state, rows=dict.fromkeys(state.rows)))
        name, refused = self.named(self.parts(state.table.name)), []
        for key, row in state.rows.items():
            if row is None:
                continue
            self.execute("SAVEPOINT canal_row")
            try:
                self.insert(name, state.table.names.names, [self._values(state, key, row)])
            except (Refused, UnfitChangeError):
                self.execute("ROLLBACK TO SAVEPOINT canal_row")
                refused.append(key)
        return refused

    def _unfit_change(self, state: TableState, key: Key, text: str) -> UnfitChangeError:
        changes = state.of_key(key)
        return UnfitChangeError(
            f"the target cannot hold a row of {state.table.name}: {text}",
            position=changes[-1].origin.position if changes else None, changes=changes,
            remedy="Give its table the columns and keys of the source, let a rule change the value, or park it by on_unfit.",
        )  # fmt: skip

    # -- tables -----------------------------------------------------------------------------------------------------------

    def _prepare(self, state: TableState) -> None:
        """See that there is a table, with all columns; statements that do that may commit by themselves."""
        table = state.table
        known = self._known.get(table.name)
        if known is not None and known[0] is table:
            return
        parts = self.parts(table.name)
        owner = self._owners.setdefault(self.named(parts), table.name)
        if owner != table.name:
            raise ConfigError(
                f"both {owner} and {table.name} would be the table {'.'.join(parts)} of the target",
                remedy='Give one of them another name by canal.Rule(to="…").',
            )
        there = self.columns(parts)
        if there is None and table.columns:
            self._create(table, parts)
            there = {column.name: "" for column in table.columns}
        elif there is not None:
            self._check(table, parts, there)
        self._known[table.name] = table, there is not None

    def _create(self, table: Table, parts: tuple[str, ...]) -> None:
        if not self._options.create:
            raise TargetSchemaError(f"there is no table {'.'.join(parts)}", remedy="Make it, or give the target create=True.")
        self.create_parent(parts)
        columns = [
            f"{self.quoted(column.name)} {self.column_type(column)}{' NOT NULL' if column.name in table.keys else ' NULL'}"
            for column in table.columns
        ]
        keys = f", PRIMARY KEY ({', '.join(map(self.quoted, table.keys))})" if table.keys else ""
        self.execute(f"CREATE TABLE {self.named(parts)} ({', '.join(columns)}{keys})")

    def _check(self, table: Table, parts: tuple[str, ...], there: Mapping[str, str]) -> None:
        declared = {name.lower(): kind for name, kind in there.items()}
        lacking = [column for column in table.columns if column.name.lower() not in declared]
        if lacking and self._options.schema == "refuse":
            raise TargetSchemaError(
                f"the table {'.'.join(parts)} lacks {', '.join(column.name for column in lacking)}",
                remedy='Alter it as the source was altered, or give the target schema="add".',
            )
        for column in table.columns:
            if column not in lacking and (why := self.check_column(column, declared[column.name.lower()])):
                raise TargetSchemaError(
                    f"the column {column.name} of {'.'.join(parts)} {why}",
                    remedy=f"Make it {self.column_type(column) or 'a column without a type'}.",
                )
        for column in lacking:
            added = f"{self.quoted(column.name)} {self.column_type(column)} NULL"
            self.execute(f"ALTER TABLE {self.named(parts)} ADD COLUMN {added}")

    def named(self, parts: tuple[str, ...]) -> str:
        return ".".join(map(self.quoted, parts))

    def quoted(self, name: str) -> str:
        return self.quote + name.replace(self.quote, self.quote * 2) + self.quote


def _slices(rows: Sequence[Values], width: int) -> Iterator[Sequence[Values]]:
    step = max(_SLICE // max(width, 1), 1)
    return (rows[begin : begin + step] for begin in range(0, len(rows), step))
