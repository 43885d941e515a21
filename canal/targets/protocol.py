"""Protocols, guarantees and progress of targets.

Never writes anything.
"""

from __future__ import annotations

import enum
import json
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Final, Literal, Protocol, runtime_checkable

import attrs

from canal.changes.batch import EntryRows
from canal.changes.change import Change, Table
from canal.changes.latest import Key, Values
from canal.errors import CanalError, TargetError
from canal.position import Position

_FORMAT: Final = 1


class Guarantee(enum.Enum):
    """A target's guarantee for changes that it receives more than once."""

    ONCE = "once"
    """Exactly once: a commit contains changes and progress, and a late writer is refused."""

    VERSIONED = "versioned"
    """At least once, idempotent: each key stores a version, so a late writer never overwrites a newer value."""

    REPEATABLE = "repeatable"
    """At least once, idempotent for a single writer: rows are put and deleted by key."""

    APPENDED = "appended"
    """At least once: each message has the id of the change, so that a reader can drop duplicates."""

    @property
    def promise(self) -> str:
        """Return the guarantee in a few words."""
        return _PROMISES[self]


_PROMISES: Final = {
    Guarantee.ONCE: "exactly once",
    Guarantee.VERSIONED: "at least once, and again does no harm; a late writer is refused, key by key",
    Guarantee.REPEATABLE: "at least once, and again does no harm, from one writer at a time",
    Guarantee.APPENDED: "at least once, each with an id to drop repeats by",
}

#: "all": a commit contains all tables of a source transaction, so readers never see half of a transaction.
#: "table": each table has a separate commit and progress.
Scope = Literal["all", "table"]


#: The position if batches have none, as in a streaming query.
UNKNOWN: Final = Position()


def _pair(value: Iterable[int]) -> tuple[int, int]:
    one, other = value
    return one, other


@attrs.frozen
class TableProgress:
    """Progress of a table. The table has all changes up to (``txn``, ``ord``)."""

    txn: int
    """``_txn`` of the last applied change. For a pipe: the number of the commit."""

    ord: int
    """``_ord`` of the last applied change. Negative: only rows of a snapshot."""

    ts: int = 0
    """The latest ``_ts`` of all applied changes, in microseconds since 1970."""

    snapshot: int = -1
    """``_txn`` of the last snapshot that began. -1: none."""

    server: str = ""
    """UUID of the server with the log of ``txn``, if the last batch had it."""

    gtid: str = ""
    """``_gtid`` of the last change. Its transaction is applied up to ``ord``."""

    gtids: str = attrs.field(default="", repr=False)
    """GTIDs of the last batch (see ``canal.formats.gtid_text``), if the batch had no position. All but ``gtid`` are complete."""

    types: str = attrs.field(default="", repr=False)
    """Declared column types of the last rows, if the batch had them. See ``canal.changes.alters``."""

    lost: tuple[int, int] = attrs.field(default=(-1, -1), converter=_pair)
    """``_txn`` and ``_ord`` of the stream's last change without rows in the log."""

    is_copy: bool = False
    """``copy_table`` has not finished: the target lacks rows."""

    fault: str = ""
    """Describes an unacknowledged change without rows in the log. Further changes are refused."""

    @property
    def last_change(self) -> tuple[int, int]:
        """Return ``_txn`` and ``_ord`` of the last applied change."""
        return self.txn, self.ord


@attrs.frozen
class Load:
    """Progress of a snapshot that runs while changes are followed."""

    left: tuple[tuple[str, str], ...]
    """Tables with rows to read, as schema and name. The first table is being read."""

    after: tuple[str, ...] | None = None
    """The last key of the first table in the target (see ``canal.snapshot.keys``). None: no rows yet."""

    rows: int = 0
    """Rows read from the first table."""

    order: str = ""
    """Key columns and their order. A key with another order is ignored."""

    def to_document(self) -> dict[str, Any]:
        """Return the JSON value for ``Progress.to_text``."""
        return {"left": self.left, "after": self.after, "rows": self.rows, "order": self.order}

    @classmethod
    def from_document(cls, document: Any) -> Load:
        """Read the value that ``to_document`` returned."""
        left = tuple((str(schema), str(table)) for schema, table in document["left"])
        after = document["after"]
        return cls(left, None if after is None else tuple(map(str, after)), int(document["rows"]), str(document["order"]))


@attrs.frozen
class Progress:
    """Progress of a stream in a target. The commit with the changes stores it in the target."""

    position: Position = UNKNOWN
    """The target has all changes before it."""

    epoch: int = 0
    """With ``ha``: the highest epoch of a writer. Writers with a lower epoch are refused."""

    source: str = ""
    """With the scope "table": the source table. Changes of another table are refused."""

    load: Load | None = None
    """The remaining snapshot. None: there is none, or it is complete."""

    table: TableProgress | None = None
    """With the scope "table": more about the table. None with the scope "all"."""

    turns: str = ""
    """With ``ha``: the count that ``epoch`` belongs to. A rebuilt ZooKeeper and another destination have another one."""

    def to_text(self) -> str:
        """Return one line for ``from_text``."""
        fields: dict[str, Any] = {"v": _FORMAT, "epoch": self.epoch, "position": self.position.to_text()}
        if self.source:
            fields["source"] = self.source
        if self.load is not None:
            fields["load"] = self.load.to_document()
        if self.table is not None:
            fields["table"] = attrs.asdict(self.table)
        if self.turns:
            fields["turns"] = self.turns
        return json.dumps(fields)

    @classmethod
    def from_text(cls, text: str) -> Progress:
        """Read the text that ``to_text`` returned.

        Raises:
            TargetError: the text is not from ``to_text``.
        """
        try:
            fields = json.loads(text)
            if fields["v"] == _FORMAT:
                load = Load.from_document(fields["load"]) if "load" in fields else None
                table = TableProgress(**fields["table"]) if "table" in fields else None
                position = Position.from_text(fields["position"])
                return cls(
                    position, int(fields["epoch"]), str(fields.get("source", "")), load, table, str(fields.get("turns", ""))
                )
        except (ValueError, TypeError, KeyError, CanalError):
            pass
        raise TargetError(
            "the progress in the target cannot be read: a later version of this library wrote it, or another program",
            remedy="Use that version, or another stream name.",
        )


class Work(Protocol):
    """A writer of one stream, from ``begin`` to the end of its ``with`` block. Used by one thread.

    It can continue after an UnfitChangeError. After any other error the pipe begins a new one. ``canal.targets.StateWork`` and
    ``LogWork`` are base classes.
    """

    def progress(self, table: str = "") -> Progress | None:
        """Return the stored progress, or None if nothing was written or the target stores no progress.

        The pipe skips changes before the progress. Without progress it repeats all changes since the last ack.

        Args:
            table: the table with the scope "table", else "".
        """

    def apply(self, changes: Sequence[Change]) -> None:
        """Accept changes in the order of the log, with the scope "table" of one table. May write them, or keep them."""

    def commit(self, progress: Progress, table: str = "") -> None:
        """Make all changes since the last commit durable, with ``progress``: all or nothing.

        Without the guarantee ONCE, a failure may leave some changes. Repeating the changes repairs that.

        Raises:
            UnfitChangeError: changes cannot be written exactly. Without the error's ``changes`` the others can be written.
            TargetSchemaError: the target's tables do not fit, and the user must alter them.
            TargetConflictError: another writer has committed since this writer began or last committed.
            TargetError, ConnectionLostError: any other failure. The changes can be repeated with a new writer.
        """


@runtime_checkable
class Readable(Protocol):
    """A work with readable tables, such as SQL tables, to compare them with the source between commits."""

    def read(self, table: Table, keys: Sequence[Key]) -> Mapping[Key, Values]:
        """Return the existing rows with these keys, by key, with the values of ``table.columns``."""

    def scan(self, table: Table, lower: Key | None = None, upper: Key | None = None) -> Iterator[Values]:
        """Yield the rows with ``lower < key <= upper``, with the values of ``table.columns``. A missing table has no rows.

        Rows have the target's key order and are read in thousands. Concurrent writes may or may not be included.

        Raises:
            ConfigError: the table has no key.
        """


@runtime_checkable
class EmptyCheckable(Protocol):
    """A work that reports whether a table has rows, if it is not ``Readable``."""

    def is_empty(self, table: Table) -> bool:
        """Return whether the table has no rows, or does not exist."""


@runtime_checkable
class ArrowWork(Protocol):
    """A work that accepts columns: its ``apply`` gets ``canal.changes.Changes``, which has the columns of each table."""

    @property
    def arrow_from(self) -> int | None:
        """Return the minimum changes of a table for columns. None: never use columns."""


@runtime_checkable
class EncodingWork(Protocol):
    """A work of a log that writes what an encoder makes of the bytes of the log: see ``EntryRows.encoded``."""

    @property
    def encode_entry(self) -> Callable[[EntryRows], Any] | None:
        """Encodes the changes of an entry, or returns None if their rows have to be asked. Called by the thread that fetches.

        None if the work is always given rows.
        """


@runtime_checkable
class StoppableWork(Protocol):
    """A work that gets the event that ends the pipe, as the two base classes do."""

    stopping: threading.Event


@runtime_checkable
class Target(Protocol):
    """A destination of changes: tables that equal the source's tables, or a log of the changes."""

    @property
    def guarantee(self) -> Guarantee:
        """Return the guarantee for repeated changes."""

    @property
    def scope(self) -> Scope:
        """Return the scope of a commit."""

    @property
    def is_log(self) -> bool:
        """Return whether the target stores changes and statements instead of rows."""

    def begin(self, stream: str) -> AbstractContextManager[Work]:
        """Open the target's resources and return a writer of ``stream``. Without ``commit`` it changes nothing.

        Raises:
            ConfigError: the target's options are wrong.
            TargetError, ConnectionLostError: the target is not reachable now.
        """
