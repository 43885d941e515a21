"""A table at a log position: columns, and facts that affect later changes.

Never parses a statement.
"""

from __future__ import annotations

import attrs

from canal.parse.schema.parts import INNODB, Key
from canal.schema import ColumnSchema, TableSchema


@attrs.frozen
class TableVersion:
    """A table at a position: columns in row order, and facts that affect later changes.

    ``charset``: the default of new text columns, None if unknown. ``keys``: all indexes in the server's order, None if
    unknown (then a change that depends on them makes the table doubtful).
    """

    schema: TableSchema
    charset: str | None
    keys: tuple[Key, ...] | None = None
    #: The column that ends a row's period in a MariaDB table WITH SYSTEM VERSIONING, otherwise "".
    row_end: str = ""
    #: Number of trailing columns that MariaDB added, which are in rows but not in information_schema.
    hidden: int = 0
    #: Whether the first column is certainly AUTO_INCREMENT, in InnoDB and without partitions.
    counts_first: bool = False
    #: In lower case. InnoDB is assumed if no statement names an engine.
    engine: str = INNODB
    partitioned: bool = False
    #: The AUTO_INCREMENT column in lower case, "" if there is none, None if unknown.
    counted: str | None = None

    @property
    def shown(self) -> tuple[ColumnSchema, ...]:
        """The columns in information_schema."""
        return tuple(column for column in self.defined if not column.hidden)

    @property
    def defined(self) -> tuple[ColumnSchema, ...]:
        """The columns that statements created, including those of MySQL's functional keys."""
        columns = self.schema.columns
        return columns[: len(columns) - self.hidden]

    @property
    def as_logged(self) -> TableSchema:
        """The schema of logged rows: MINIMAL images of a table WITH SYSTEM VERSIONING lack VIRTUAL values."""
        if not self.row_end:
            return self.schema
        return attrs.evolve(
            self.schema, columns=tuple(attrs.evolve(column, logged=not column.virtual) for column in self.schema.columns)
        )
