"""A table as of a position of the log: its columns, and what its later changes depend on.

Never reads a statement.
"""

from __future__ import annotations

import attrs

from canal.parse.schema.parts import INNODB, Key
from canal.schema import ColumnSchema, TableSchema


@attrs.frozen
class TableVersion:
    """A table as of a position: its columns in the order of its rows, and what its later changes depend on.

    ``charset`` is the default of new text columns, None where it is not known. ``keys`` are all indexes in the order
    of the server, None where they are not known (a change that depends on them then makes the table doubtful).
    """

    schema: TableSchema
    charset: str | None
    keys: tuple[Key, ...] | None = None
    #: The column that ends a row's time in a MariaDB table WITH SYSTEM VERSIONING, "" in others.
    row_end: str = ""
    #: How many of the last columns are MariaDB's own, in its rows but not in its information_schema.
    hidden: int = 0
    #: Whether its first column is surely AUTO_INCREMENT, in InnoDB and without partitions.
    counts_first: bool = False
    #: In lower case; it is taken to be InnoDB where no statement names another one.
    engine: str = INNODB
    partitioned: bool = False
    #: In lower case the AUTO_INCREMENT column, "" where there is none; None: not known.
    counted: str | None = None

    @property
    def shown(self) -> tuple[ColumnSchema, ...]:
        """The columns that information_schema has."""
        return tuple(column for column in self.defined if not column.hidden)

    @property
    def defined(self) -> tuple[ColumnSchema, ...]:
        """The columns that statements made, those of MySQL's functional keys among them."""
        columns = self.schema.columns
        return columns[: len(columns) - self.hidden]

    @property
    def as_logged(self) -> TableSchema:
        """As its rows are in the log: of a table WITH SYSTEM VERSIONING those in MINIMAL images lack VIRTUAL values."""
        if not self.row_end:
            return self.schema
        return attrs.evolve(
            self.schema, columns=tuple(attrs.evolve(column, logged=not column.virtual) for column in self.schema.columns)
        )
