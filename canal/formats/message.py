"""A batch of entries as an Instance hands it out.

Never decodes rows: entries do, each time that they are asked for them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from canal.errors import ConfigError
from canal.model import Entry, count_rows
from canal.position import Position


class Message:
    """What one ``get`` hands out: ``id`` to acknowledge it with (-1 when empty) and its entries."""

    __slots__ = ("id", "entries", "position", "epoch")

    def __init__(self, id: int, entries: list[Entry], position: Position | None = None, epoch: int = 0) -> None:
        self.id = id
        self.entries = entries
        self.position = position
        #: With ``ha``, the number of the turn in which it was handed out: what is written with it can be fenced.
        self.epoch = epoch

    def __bool__(self) -> bool:
        return self.id != -1

    def __len__(self) -> int:
        return len(self.entries)

    def __iter__(self) -> Iterator[Entry]:
        return iter(self.entries)

    @property
    def row_count(self) -> int:
        """Changed rows of all its entries, counted without decoding them."""
        return count_rows(self.entries)

    def to_arrow(self) -> list[Any]:
        """One ``pyarrow.RecordBatch`` per table and schema version; see :func:`canal.formats.arrow.to_arrow`."""
        try:
            from canal.formats.arrow import to_arrow
        except ModuleNotFoundError as error:
            raise ConfigError("Arrow output needs pyarrow", remedy="pip install 'canal-cdc[arrow]'") from error

        return to_arrow(self.entries)

    def __repr__(self) -> str:
        return f"<Message {self.id}: {len(self.entries)} entries>"
