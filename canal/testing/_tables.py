"""Tables and transactions of a fake binlog: what a test calls to write.

Never keeps a row.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final, Protocol

from canal.binlog.event_types import (
    ANNOTATE_ROWS,
    IGNORABLE_F,
    ROWS_QUERY,
    TABLE_MAP,
    WRITE_ROWS,
    WRITE_ROWS_COMPRESSED,
    WRITE_ROWS_COMPRESSED_V1,
    WRITE_ROWS_V1,
)
from canal.errors import UsageError
from canal.schema import ColumnSchema, TableSchema, column_from_text
from canal.testing import _encode
from canal.testing._encode import FakeColumn, Flavor, Image, Row
from canal.testing._log import COMPRESS_FROM, FakeLog, Piece

#: Write, update and delete: the first of them in each version, plain and compressed.
_ROWS: Final = {1: (WRITE_ROWS_V1, WRITE_ROWS_COMPRESSED_V1), 2: (WRITE_ROWS, WRITE_ROWS_COMPRESSED)}


class Home(Protocol):
    """What a table needs of the fake binlog that it is written to."""

    flavor: Flavor
    is_old: bool
    metadata: str
    row_image: str
    row_version: int
    row_event_max_size: int
    compression: str

    def ddl(self, sql: str, schema: str = "") -> None: ...
    def add(self, schema: str, pieces: list[Piece]) -> None: ...
    def columns_of(self, columns: str | Sequence[FakeColumn]) -> tuple[FakeColumn, ...]: ...
    def next_table_id(self) -> int: ...


class FakeTransaction:
    """One transaction that is being made; the tables' own methods add to it."""

    def __init__(self, log: FakeLog, end: str, gtid: str | None, xa: str = "", server_id: int | None = None) -> None:
        self._log = log
        self._end = end
        self._gtid = gtid
        self._xa = xa
        self._server_id = server_id
        self._pieces: list[Piece] = []
        self._schema = ""
        self._rolled_back = False

    def query(self, sql: str, schema: str = "") -> None:
        """Add a statement as text, as statement format or SAVEPOINT do."""
        self._add(self._log.query(schema or self._schema, sql))

    def rollback(self) -> None:
        """Leave nothing of the transaction in the log."""
        self._rolled_back = True

    def _add(self, *pieces: Piece, schema: str = "") -> None:
        self._schema = self._schema or schema
        self._pieces.extend(pieces)


class FakeTable:
    """A table of a fake binlog; it knows its columns but keeps no rows, so ``update`` and ``delete`` are given each as it was."""

    def __init__(self, fake: Home, schema: str, name: str, columns: Sequence[FakeColumn]) -> None:
        self._fake = fake
        self.schema = schema
        self.name = name
        self.id = fake.next_table_id()
        self._encoder = self._encoder_of(columns)
        self._auto = 0

    @property
    def columns(self) -> tuple[FakeColumn, ...]:
        return self._encoder.columns

    def insert(self, *rows: Row, sql: str | None = None) -> None:
        """Write rows as one statement. A column that is left out is NULL, or the next number of an AUTO_INCREMENT.

        ``sql`` is logged beside the rows, as binlog_rows_query_log_events and MariaDB's annotate events do.
        """
        whole = [self._numbered(self._checked(row)) for row in rows]
        image = self._image([row.keys() for row in whole])
        self._write(0, [image], [self._encoder.image(row, image) for row in whole], sql)

    def update(self, before: Row, after: Row, *more: Row, sql: str | None = None) -> None:
        """Change a row; columns that ``after`` leaves out stay. ``more`` rows are further pairs of a row before and after."""
        pairs = [self._checked(row) for row in (before, after, *more)]
        if len(pairs) % 2:
            raise UsageError(f"update of {self.schema}.{self.name} needs pairs of rows: before, after")
        changes = [(old, {**old, **new}) for old, new in zip(pairs[::2], pairs[1::2], strict=True)]
        first = self._image()
        changed = [[name for name in new if name not in old or old[name] != new[name]] for old, new in changes]
        second = self._image(changed)
        rows = [self._encoder.image(old, first) + self._encoder.image(new, second) for old, new in changes]
        self._write(1, [first, second], rows, sql)

    def delete(self, *rows: Row, sql: str | None = None) -> None:
        """Delete rows as one statement; each is the row as it was."""
        image = self._image()
        self._write(2, [image], [self._encoder.image(self._checked(row), image) for row in rows], sql)

    def alter(self, sql: str, columns: str | Sequence[FakeColumn]) -> None:
        """Log a DDL statement and have these columns from then on, under a new table id."""
        self._fake.ddl(sql, self.schema)
        self._encoder = self._encoder_of(self._fake.columns_of(columns))
        self.id = self._fake.next_table_id()

    def _encoder_of(self, columns: Sequence[FakeColumn]) -> _encode.TableEncoder:
        fake = self._fake
        return _encode.TableEncoder(fake.flavor, self.schema, self.name, tuple(columns), fake.row_version, fake.is_old)

    def _checked(self, row: Row) -> dict[str, Any]:
        names = {column.name.lower(): column.name for column in self.columns}
        unknown = [name for name in row if name.lower() not in names]
        if unknown:
            raise UsageError(
                f"{self.schema}.{self.name} has no column {unknown[0]!r}; it has {', '.join(names.values())}",
                remedy="alter(sql, columns) of the table gives it others.",
            )
        return {names[name.lower()]: value for name, value in row.items()}

    def _numbered(self, row: Row) -> dict[str, Any]:
        numbered = dict(row)
        for column in self.columns:
            if column.auto_increment:
                self._auto = numbered.setdefault(column.name, self._auto + 1)
        return numbered

    def _image(self, given: Sequence[Iterable[str]] = ()) -> Image:
        """The columns of an image under binlog_row_image; ``given`` are those that each row sets or changes."""
        fake, named = self._fake, set[str]().union(*given)
        no_key = not any(column.key for column in self.columns)
        if fake.row_image == "FULL" or (no_key and (fake.flavor == "mariadb" or not given)):
            return Image((True,) * len(self.columns), fill=fake.flavor == "mysql")
        if fake.row_image == "NOBLOB":
            return Image(tuple(not column.is_blob or column.key > 0 or column.name in named for column in self.columns))
        if given:
            return Image(tuple(column.name in named for column in self.columns))
        return Image(tuple(column.key > 0 for column in self.columns))

    def _write(self, kind: int, images: list[Image], rows: list[bytes], sql: str | None) -> None:
        if not rows:
            raise UsageError(f"a change of {self.schema}.{self.name} needs a row")
        fake = self._fake
        pieces = []
        if sql is not None:
            text = sql.encode("utf-8")
            pieces = [
                Piece(ROWS_QUERY, bytes((min(len(text), 255),)) + text, IGNORABLE_F)
                if fake.flavor == "mysql"
                else Piece(ANNOTATE_ROWS, text)
            ]
        pieces.append(Piece(TABLE_MAP, self._encoder.table_map(self.id, fake.metadata)))
        head = len(self._encoder.rows_head(self.id, 0, images))
        pieces += [
            self._rows_piece(kind, body, head)
            for body in self._encoder.rows_bodies(self.id, images, rows, fake.row_event_max_size)
        ]
        fake.add(self.schema, pieces)

    def _rows_piece(self, kind: int, body: bytes, head: int) -> Piece:
        plain, packed = _ROWS[self._fake.row_version]
        if self._fake.compression != "zlib" or len(body) - head < COMPRESS_FROM:
            return Piece(plain + kind, body)
        return Piece(packed + kind, body[:head] + _encode.compressed(body[head:]))

    def schema_now(self) -> TableSchema:
        return TableSchema(self.schema, self.name, tuple(self._column_schema(column) for column in self.columns))

    def _column_schema(self, column: FakeColumn) -> ColumnSchema:
        return column_from_text(
            column.name,
            column.column_type(self._fake.flavor),
            charset=column.charset if column.is_text else "utf8mb4" if column.type == "json" else None,
            nullable=column.nullable,
            key=column.key > 0,
            visible=column.visible,
        )
