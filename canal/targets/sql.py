"""What the writers of SQL databases have in common: rows and progress in one transaction.

Never opens a connection. A changed row is updated in place, so that columns of the target's own and rows that refer to it stay.
Rows go first, then rows change, then new ones come. Where the database refuses that, the changes are put in the order of the
log, in ever smaller parts: values of a second unique key that change places pass so, and what is refused at last is unfit.
"""

from __future__ import annotations

import contextlib
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, ClassVar, Final

from canal.changes import Change, Changes, Table, TableState
from canal.changes.keys import KeyRules
from canal.changes.latest import Key, Values, latest, together
from canal.errors import CanalError, ConfigError, TargetSchemaError, UnfitChangeError
from canal.rows.values import ABSENT
from canal.schema import ColumnSchema
from canal.targets.names import Names, Path
from canal.targets.sql_tables import Refused, SQLOptions, SQLTables
from canal.targets.work import conflict

if TYPE_CHECKING:
    import pyarrow as pa

    from canal.changes.fold import ArrowState

#: Values in one statement, at most.
_SLICE: Final = 900
#: Bytes that are put in columns, at most: offsets of Arrow are 32 bits.
_LARGEST: Final = 1 << 29
#: Rows that are asked for at once where a table is read.
_SCAN: Final = 1000
#: What the names of tables are filed under, beside the progress of the stream.
_NAMES: Final = "names of tables"


class SQLWork(SQLTables):
    """A writer over one connection that is in no transaction. Each database says below what it does in its own way."""

    #: What stands for a value in a statement.
    slot: ClassVar[str] = "?"
    text_type: ClassVar[str] = "TEXT"
    keeps_columns = True
    empties_parts = True
    arrow_from = 200  # fewer are put sooner one by one

    def __init__(self, stream: str, options: SQLOptions) -> None:
        super().__init__(options)
        self._stream = stream
        self._declared: dict[Path, dict[str, str]] = {}  # the types of the columns of tables that are put in columns
        self.given: Sequence[Change] = ()  # the changes of the commit in hand, in the order of the log
        self._prepare_progress()
        forget = f"DELETE FROM {self.progress_name} WHERE stream = '{stream}' AND target = '{_NAMES}'"
        self.names = Names(self.naming(), self.load(_NAMES), f"{forget.replace('%%', '%')};")

    # -- what a database does in its own way ------------------------------------------------------------------------------

    @abstractmethod
    def adapters(self) -> Mapping[type, Callable[[Any], Any]]:
        """What makes a value that the database's library takes, by the type of values that it does not take as they are.

        They raise ``ValueError`` of one that no column holds.
        """

    def form(self, values: pa.Array, column: ColumnSchema, declared: str) -> pa.Array | None:
        """Return values of a column as ``put_columns`` takes them for a column of the declared type.

        Return None, or raise ArrowInvalid, if it would not write what the row way writes of them.
        """
        return None

    def put_columns(self, name: str, table: Table, rows: ArrowState) -> None:
        """Delete, update in place and insert rows whose values have their ``form``."""
        raise NotImplementedError

    def begin(self) -> None:
        self.execute("BEGIN")

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

    def _store_names(self) -> None:
        if self.names.is_changed:
            name, slot = self.progress_name, self.slot
            self.execute(f"DELETE FROM {name} WHERE stream = {slot} AND target = {slot}", (self._stream, _NAMES))
            insert = f"INSERT INTO {name} (stream, target, progress) VALUES ({slot}, {slot}, {slot})"
            self.execute(insert, (self._stream, _NAMES, self.names.to_text()))

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

    def _made(self, changes: Changes) -> Sequence[TableState]:
        self.given = changes
        return super()._made(changes)

    def write(self, made: Sequence[TableState], old: str | None, new: str, table: str) -> None:
        for state in made:
            self.prepare(state)
        try:
            with self.transaction(old, new, table):
                for state in made:
                    self._put(state)
        except Refused as error:
            self.write_in_order(error, old, new, table)
        self.names.is_changed = False

    @contextmanager
    def transaction(self, old: str | None, new: str, table: str) -> Iterator[None]:
        self.begin()
        try:
            self._claim(old, new, table)
            self._store_names()
            yield
            self.execute("COMMIT")
        except BaseException:
            with contextlib.suppress(CanalError):  # the connection is closed next, which does the same
                self.rollback()
            raise

    def write_in_order(self, error: Refused, old: str | None, new: str, table: str) -> None:
        """Write all changes in the order of the log, or none of them where some are refused even so.

        Raises:
            UnfitChangeError: its ``changes`` are refused.
            TargetSchemaError: what is refused cannot be told.
        """
        refused: list[UnfitChangeError] = []
        try:
            with self.transaction(old, new, table):
                self.put_in_order(self.given, refused)
                if refused:
                    raise together(refused) from error.__cause__
        except Refused:
            text = f"the target refuses rows: {error}"
            raise TargetSchemaError(text, remedy="Give it the columns and keys of the source.") from error.__cause__

    def prepare(self, state: TableState) -> bool:
        is_new = super().prepare(state)
        if is_new:
            self._declared.pop(self.names.naming.path(state.table), None)
        return is_new

    def put_in_order(self, changes: Sequence[Change], refused: list[UnfitChangeError]) -> None:
        """Put changes, halving them where they are refused; what is refused alone is left out, and added to ``refused``."""
        pending = [list(changes)]
        while pending:
            part = pending.pop()
            self.execute("SAVEPOINT canal_part")
            try:
                self.put_changes(part)
            except (Refused, UnfitChangeError) as error:
                self.execute("ROLLBACK TO SAVEPOINT canal_part")
                pending += self.without(part, error, refused)
            self.execute("RELEASE SAVEPOINT canal_part")

    def put_changes(self, changes: Sequence[Change]) -> None:
        for state in latest(changes, self.read, keeps_columns=True):
            self._put(state)

    def without(
        self, part: list[Change], error: Refused | UnfitChangeError, refused: list[UnfitChangeError]
    ) -> list[list[Change]]:
        """What is to be tried in the stead of a part that was refused, the first part last."""
        unfit = {id(change) for change in error.changes} if isinstance(error, UnfitChangeError) else set()
        left = [change for change in part if id(change) not in unfit]
        if isinstance(error, UnfitChangeError) and len(left) < len(part):
            refused.append(error)
            return [left] if left else []
        if len(part) == 1:
            refused.append(self.unfit_change(part[0].table, part, str(error)))
            return []
        middle = len(part) // 2
        return [part[middle:], part[:middle]]

    def rollback(self) -> None:
        self.execute("ROLLBACK")

    def read(self, table: Table, keys: Sequence[Key]) -> Mapping[Key, Values]:
        parts = self.names.naming.path(table)
        there = self.columns(parts)
        if there is None:
            return {}
        wanted = {tuple(self._adapted(key)): key for key in keys}
        columns = self._selected(table, there)
        at = [table.names.index(name) for name in table.keys]
        written = KeyRules.of(table.columns, at).written
        found = {}
        for where, values in self._where(table, [self.adapted_key(table, key) for key in keys]):
            for row in self.execute(f"SELECT {columns} FROM {self.named(parts)} WHERE {where}", values).fetchall():
                row = self.returned(table, row)
                if (key := wanted.get(tuple(self._adapted(written(tuple([row[number] for number in at])))))) is not None:
                    found[key] = row
        return found

    def scan(self, table: Table, lower: Key | None = None, upper: Key | None = None) -> Iterator[Values]:
        if not table.keys:
            raise ConfigError(f"{table.name} has no key to read it by", remedy="Name columns by canal.Rule(keys=…).")
        parts = self.names.naming.path(table)
        there = self.columns(parts)
        if there is None:
            return
        at = [table.names.index(name) for name in table.keys]
        select = f"SELECT {self._selected(table, there)} FROM {self.named(parts)}"
        order = f"ORDER BY {', '.join(map(self.quoted, table.keys))} LIMIT {_SCAN}"
        while True:
            ends = [(">", lower), ("<", upper)]
            found = [self._beyond(table, sign, self.adapted_key(table, end)) for sign, end in ends if end is not None]
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
        fold = self.names.naming.fold_columns
        names = {fold(name) for name in there}
        found = (column if fold(column.name) in names else None for column in table.columns)
        return ", ".join("NULL" if column is None else self.selected(column) for column in found)

    def selected(self, column: ColumnSchema) -> str:
        """What gives the value of a column as it was put."""
        return self.quoted(column.name)

    def _put(self, state: TableState) -> None:
        path = self.names.naming.path(state.table)
        if not self.is_there(path):
            return  # a table that was emptied before anything was put into it
        name, table = self.named(path), state.table
        if self._put_in_columns(name, state):
            return
        rows, unfit = self._adapted_rows(state)
        if unfit:
            raise together(unfit)
        self._take_away(name, state)
        new: dict[tuple[int, ...], list[Values]] = {}
        changed: dict[tuple[int, ...], list[Values]] = {}
        is_whole = len(state.tables) == 1
        for key, row in rows.items():
            shape = () if is_whole or ABSENT not in row else tuple([at for at, value in enumerate(row) if value is not ABSENT])
            (new if key in state.inserted else changed).setdefault(shape, []).append(row)
        for put, groups in ((self.upsert, changed), (self._insert_new, new)):
            for shape, some in groups.items():
                names = table.names.names
                if shape:
                    names, some = tuple([names[at] for at in shape]), [tuple([row[at] for at in shape]) for row in some]
                put(name, table, names, some)

    def columns_of(self, state: TableState) -> ArrowState | None:
        """Return the state as columns; None if it has none, or is to be put in rows."""
        arrow = state.arrow
        return None if arrow is None or arrow.upserts.nbytes > _LARGEST else arrow

    def _put_in_columns(self, name: str, state: TableState) -> bool:
        """Put the state in columns; return False if it is to be put in rows."""
        arrow = self.columns_of(state)
        if arrow is None:
            return False
        from canal.targets.sql_bulk import in_forms  # pyarrow is there, as the state has columns

        path, fold = self.names.naming.path(state.table), self.names.naming.fold_columns
        if path not in self._declared:
            self._declared[path] = {fold(one): kind for one, kind in (self.columns(path) or {}).items()}
        made = in_forms(arrow, state.table, lambda one, values: self.form(values, one, self._declared[path][fold(one.name)]))
        if made is not None:
            self.put_columns(name, state.table, made)
        return made is not None

    def _adapted_rows(self, state: TableState) -> tuple[dict[Key, Values], list[UnfitChangeError]]:
        """The rows to put, of values that the database's library takes, and what there is that it does not take."""
        rows: dict[Key, Values] = {}
        unfit: list[UnfitChangeError] = []
        for key, row in state.rows.items():
            try:
                if row is not None:
                    rows[key] = tuple(self._adapted(row))
                else:
                    self._adapted(key)
            except Refused as error:
                unfit.append(self.unfit_change(state.table, state.of_key(key), str(error)))
        return rows, unfit

    def _take_away(self, name: str, state: TableState) -> None:
        with self.patient():
            if state.is_emptied:
                self.execute(f"DELETE FROM {name}")
            for column, value in state.emptied:
                self.execute(f"DELETE FROM {name} WHERE {self.quoted(column)} = {self.slot}", [value])
        gone = [self.adapted_key(state.table, key) for key, row in state.rows.items() if row is None or key in state.replaced]
        for where, values in self._where(state.table, [] if state.is_emptied else gone):
            self.execute(f"DELETE FROM {name} WHERE {where}", values)

    def _insert_new(self, name: str, table: Table, columns: Sequence[str], rows: Any) -> None:
        """Insert rows that are not there by what the source says; where some are, they were written before by something else."""
        self.execute("SAVEPOINT canal_new")
        try:
            self.insert(name, columns, rows)
        except Refused as error:
            self.execute("ROLLBACK TO SAVEPOINT canal_new")
            if not error.is_duplicate:
                raise
            self.upsert(name, table, columns, rows)
        self.execute("RELEASE SAVEPOINT canal_new")

    def update(self, name: str, table: Table, columns: Sequence[str]) -> tuple[str, list[int], list[int]]:
        """A statement that updates the row with a key, and which of the columns are the values and the key that it takes."""
        own = [one for one in columns if one not in table.keys] or [table.keys[0]]
        sets = ", ".join(f"{self.quoted(one)} = {self.slot}" for one in own)
        where = " AND ".join(f"{self.quoted(one)} = {self.slot}" for one in table.keys)
        numbers = {one: number for number, one in enumerate(columns)}
        return f"UPDATE {name} SET {sets} WHERE {where}", [numbers[one] for one in own], [numbers[one] for one in table.keys]

    def upsert(self, name: str, table: Table, columns: Sequence[str], rows: Sequence[Values]) -> None:
        """Update the rows in place that have the keys of these, and insert the others; values are adapted."""
        sql, values, key = self.update(name, table, columns)
        lacking = []
        for row in rows:
            at = self.adapted_key(table, [row[number] for number in key])
            if not self.updated(self.execute(sql, [*(row[number] for number in values), *at])):
                lacking.append(row)
        if lacking:
            self.insert(name, columns, lacking)

    def _where(self, table: Table, keys: Sequence[Key]) -> Iterator[tuple[str, list[Any]]]:
        """Conditions for slices of adapted keys, and their values."""
        names = [self.quoted(name) for name in table.keys]
        one = "(" + " AND ".join(f"{name} = {self.slot}" for name in names) + ")"  # not all use an index for (a, b) IN (…)
        for some in _slices(keys, len(names)):
            where = " OR ".join([one] * len(some))
            if len(names) == 1:
                where = f"{names[0]} IN ({', '.join([self.slot] * len(some))})"
            yield where, [value for key in some for value in key]

    def _adapted(self, values: Sequence[Any]) -> list[Any]:
        adapters = self.adapters()
        try:
            return [adapters[type(value)](value) if type(value) in adapters else value for value in values]
        except ValueError as error:
            raise Refused(str(error)) from error

    def adapted_key(self, table: Table, key: Sequence[Any]) -> Key:
        """The values of a key as the database compares them with those of its columns; also of one that is adapted."""
        return tuple(self._adapted(key))

    def returned(self, table: Table, row: Sequence[Any]) -> Values:
        """The values of a row as they were put."""
        return tuple(row)

    def unfit_change(self, table: Table, changes: Sequence[Change], text: str) -> UnfitChangeError:
        return UnfitChangeError(
            f"the target cannot hold a row of {table.name}: {text}",
            position=changes[-1].origin.position if changes else None,
            changes=tuple(changes),
            remedy="Give its table the columns and keys of the source, let a rule change the value, or park it by on_unfit.",
        )


def _slices(rows: Sequence[Values], width: int) -> Iterator[Sequence[Values]]:
    step = max(_SLICE // max(width, 1), 1)
    return (rows[begin : begin + step] for begin in range(0, len(rows), step))
