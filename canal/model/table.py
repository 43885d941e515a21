"""A table as announced in the log. Compiled if a C compiler was present at install time."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Any

from canal.model.row import ColumnNames, column_names

if TYPE_CHECKING:
    from canal.rows.decoder import RowDecoder
    from canal.schema import TableSchema


class TableMap:
    """A table as announced in a TABLE_MAP event: the schema at that position and the row decoder.

    ``columns`` and ``names`` have the delivered columns. ``accepted`` is the filter's decision. ``digest`` identifies the
    table in transaction digests. ``size`` counts bytes that no entry accounts for yet.
    """

    __slots__ = ("schema", "columns", "names", "decoder", "accepted", "digest", "size")

    def __init__(
        self,
        schema: TableSchema,
        columns: tuple[Any, ...],
        decoder: RowDecoder | None,
        accepted: bool,
        names: ColumnNames | None = None,
        size: int = 0,
    ) -> None:
        self.schema = schema
        self.columns = columns
        self.names = column_names(columns, schema.columns) if names is None else names
        self.size = size
        self.decoder: RowDecoder = decoder  # type: ignore[assignment]  # None: the rows are not accepted
        self.accepted = accepted
        self.digest = zlib.crc32(f"{schema.schema}.{schema.table}".encode("utf-8", "surrogateescape"))

    def __repr__(self) -> str:
        return f"<TableMap {self.schema.schema}.{self.schema.table}>"
