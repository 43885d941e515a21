"""What a source of raw binlog events promises: the Protocols that the parser knows it by."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from canal.position import Position
from canal.schema import TableSchema

Start = str | Position
"""``"latest"``, ``"earliest"`` or a :class:`Position`."""


@runtime_checkable
class Source(Protocol):
    """Something that can be connected to again and again: a server, binlog files, a fake.

    It may also have a method ``new_connection(server_id_hint)``, for a connection whose ``open()`` does what ``connect``
    does, and ends when another thread calls ``close()``. For ``Instance.status()`` it may also have an ``address`` and a method
    ``read_end(timeout) -> canal.SourceEnd``, whose waits are bounded by ``timeout`` each.
    """

    def connect(self, server_id_hint: int | None = None) -> Connection:
        """Open one connection; ``server_id_hint`` is used where the configuration names no server id.

        Blocks for as long as the source's own connect timeout at most. Finds out what cannot work before anything
        streams.

        Raises:
            ConnectionLostError: nobody answers; trying again may help.
            AuthenticationError: the user or a privilege is refused.
            SourceError: any other fault of the source, such as a setting that makes its log useless.
        """
        ...


@runtime_checkable
class Connection(Protocol):
    """One connection to a source. Used by one thread at a time; only ``close`` may be called by any other.

    After an error other than those of ``resolve`` and ``table_columns`` it is of no more use than to be closed.
    For ``Instance.status()`` it may also have ``clock_offset``, the seconds that the source's clock is ahead of ours, and
    ``is_alive``: whether silence means that the source has no more.
    """

    @property
    def identity(self) -> str:
        """A stable id of the server, to tell whether journals and offsets mean the same logs; "" for files."""
        ...

    @property
    def flavor(self) -> str:
        """``"mysql"`` or ``"mariadb"``."""
        ...

    @property
    def has_gtids(self) -> bool:
        """Whether transactions have GTIDs, so that an empty set at "latest" or "earliest" means none rather than unknown."""
        ...

    @property
    def full_metadata(self) -> bool | None:
        """Whether the server is set to write binlog_row_metadata=FULL; None where that is not known."""
        ...

    def resolve(self, start: Start) -> Position:
        """Find the place that ``start`` means now.

        ``"latest"`` is the present end of the log, ``"earliest"`` the oldest that is still there. A position with
        journal or GTID set is checked and given back; one with only a time becomes the start of the first transaction
        at or after it (within its journal, where it names one); if there is none yet, the end. The result names a
        journal and an offset or a GTID set that a later ``dump`` can start from.

        Raises:
            PositionLostError: the log does not reach back to the place, or has no such place.
        """
        ...

    def dump(self, position: Position) -> None:
        """Begin to stream from a concrete position; once per connection.

        By journal and offset where the position has the ``incarnation`` of its journal, so that the reader can prove that it
        is still the same one; else by GTID set where it has one and the source can; else by journal and offset.
        ``position.row`` does not count here: the transaction that follows is sent whole.

        Raises:
            PositionLostError: it is known already that the log is gone; else the first ``read`` raises it.
        """
        ...

    def read(self, timeout: float) -> list[bytes] | None:
        """The events that have arrived: whole (19-byte header to checksum), in the log's order, each its own copy.

        Returns as soon as there is one event, ``[]`` when there was none within ``timeout`` seconds, None at the end of
        a log that is not followed. The stream begins with an artificial ROTATE that names the journal, then the
        journal's FORMAT_DESCRIPTION, as a server sends them; heartbeats come as events.

        Raises:
            ConnectionLostError: the connection broke, was closed, or was silent for longer than heartbeats allow.
            PositionLostError, ServerError: the server ended the stream with an error.
            DecodeError: the stream or file is damaged.
        """
        ...

    def table_columns(self, schema: str, table: str) -> TableSchema | None:
        """The columns of a table as they are now; None when there is no such table or nobody to ask.

        Raises:
            ConnectionLostError: the server could not be asked.
        """
        ...

    def close(self) -> None:
        """End the connection; a ``read`` that waits in another thread raises ConnectionLostError. Never raises."""
        ...
