"""What a target promises, and what one must have.

Never writes anything.
"""

from __future__ import annotations

import enum
import json
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Final, Literal, Protocol, runtime_checkable

import attrs

from canal.changes.change import Change, Table
from canal.changes.latest import Key, Values
from canal.errors import CanalError, TargetError
from canal.position import Position

_FORMAT: Final = 1


class Guarantee(enum.Enum):
    """What a target promises of a change that is given to it more than once."""

    ONCE = "once"
    """Changes and progress are one commit, and a writer that comes too late is refused: exactly once."""

    VERSIONED = "versioned"
    """Each key remembers who wrote it: a writer that comes too late never overwrites it. The same changes again do no harm."""

    REPEATABLE = "repeatable"
    """Rows are put and deleted by key: again does no harm, from one writer at a time."""

    APPENDED = "appended"
    """At least once; each message carries the id of its change, so that a reader can drop repeats."""

    @property
    def promise(self) -> str:
        """The promise in a few words."""
        return _PROMISES[self]


_PROMISES: Final = {
    Guarantee.ONCE: "exactly once",
    Guarantee.VERSIONED: "at least once, and again does no harm; a late writer is refused, key by key",
    Guarantee.REPEATABLE: "at least once, and again does no harm, from one writer at a time",
    Guarantee.APPENDED: "at least once, each with an id to drop repeats by",
}

#: "all": one commit has all tables of a transaction of the source, so no reader of the target ever sees half of one.
#: "table": each table is committed by itself, with a progress of its own.
Scope = Literal["all", "table"]


#: The position of a target whose batches had none: those of a streaming query.
UNKNOWN: Final = Position()


def _pair(value: Iterable[int]) -> tuple[int, int]:
    one, other = value
    return one, other


@attrs.frozen
class TableProgress:
    """How far one table is, in the numbers of its changes. All that is at or before (``txn``, ``ord``) is in the table."""

    txn: int
    """``_txn`` of the last change that was applied. Of a pipe: the number of the commit."""

    ord: int
    """Its ``_ord``; below 0: rows of a snapshot only."""

    ts: int = 0
    """The latest ``_ts`` of all that was applied, in microseconds since 1970."""

    snapshot: int = -1
    """``_txn`` of the last snapshot that was begun; -1: none was."""

    server: str = ""
    """The uuid of the server whose log ``txn`` counts, if the last batch named it."""

    gtid: str = ""
    """``_gtid`` of the last change. Of its transaction all up to ``ord`` is done."""

    gtids: str = attrs.field(default="", repr=False)
    """The GTIDs of the last batch, in the form of ``canal.formats.gtid_text``, if the batch had no position. All but ``gtid`` are
    done to their ends."""

    types: str = attrs.field(default="", repr=False)
    """Declared types of the columns of the last rows, if the batch named them, as ``canal.changes.alters`` has them."""

    lost: tuple[int, int] = attrs.field(default=(-1, -1), converter=_pair)
    """``_txn`` and ``_ord`` of the last change without rows in the log that this stream met."""

    is_copy: bool = False
    """``copy_table`` was begun and is not done: rows of the table are missing."""

    fault: str = ""
    """Describes a change without rows in the log that nobody has acknowledged: nothing more is applied."""

    @property
    def last_change(self) -> tuple[int, int]:
        """``_txn`` and ``_ord`` of the last change: changes up to it are done."""
        return self.txn, self.ord


@attrs.frozen
class Load:
    """How far a snapshot is that goes on beside the changes; it stands in the progress until it is done."""

    left: tuple[tuple[str, str], ...]
    """The tables, as schema and name, of which rows are still to come; the first one is being read."""

    after: tuple[str, ...] | None = None
    """The key, as ``canal.snapshot.keys`` writes it, up to which rows of the first table are there; None: there are none yet."""

    rows: int = 0
    """Rows of the first table that were read."""

    order: str = ""
    """What the key is made of: a key of another order says nothing."""

    def to_document(self) -> dict[str, Any]:
        """What the text of a progress has of it."""
        return {"left": self.left, "after": self.after, "rows": self.rows, "order": self.order}

    @classmethod
    def from_document(cls, document: Any) -> Load:
        """Read what ``to_document`` gave."""
        left = tuple((str(schema), str(table)) for schema, table in document["left"])
        after = document["after"]
        return cls(left, None if after is None else tuple(map(str, after)), int(document["rows"]), str(document["order"]))


@attrs.frozen
class Progress:
    """How far a target has followed a stream. It is stored in the target, in the commit of the changes."""

    position: Position = UNKNOWN
    """All that is before it is in the target."""

    epoch: int = 0
    """With ``ha``: the highest number of a turn in which anything was written. Writers of an earlier one are refused."""

    source: str = ""
    """With the scope "table": which table of the source the target's belongs to. Another one is refused."""

    load: Load | None = None
    """What is left of a snapshot; None: there is none, or it is done."""

    table: TableProgress | None = None
    """More about a table that has a commit of its own; None with the scope "all"."""

    turns: str = ""
    """With ``ha``: the count that ``epoch`` belongs to. A rebuilt ZooKeeper and another destination have another one."""

    def to_text(self) -> str:
        """Return one line, which ``from_text`` reads."""
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
        """Read what ``to_text`` returned.

        Raises:
            TargetError: the text is something else.
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
            "the progress that is stored in the target cannot be read",
            remedy="It was written by a later version of this library, or by something else; use another stream name.",
        )


class Work(Protocol):
    """One writer of one stream, from ``begin`` to the end of its ``with``. Used by one thread.

    After an UnfitChangeError it goes on; after any other error it is left, and another one is begun. ``canal.targets.StateWork``
    and ``LogWork`` are bases that leave two to four methods to write.
    """

    def progress(self, table: str = "") -> Progress | None:
        """How far the target says it is; None: nothing is known (never written, or it keeps none).

        Changes before it are not given. Who keeps none is given all since the last ack again.

        Args:
            table: with the scope "table", the one that is asked for; else "".
        """

    def apply(self, changes: Sequence[Change]) -> None:
        """Take changes, in the order of the log; with the scope "table" those of one table. May write, or keep them all."""

    def commit(self, progress: Progress, table: str = "") -> None:
        """All that was applied since the last commit is durable, with ``progress``, when this returns; or nothing of it is.

        With a guarantee that is not ONCE a failure may leave some of it, which giving the same changes again mends.

        Raises:
            UnfitChangeError: a change cannot be written exactly; its ``changes`` are those that are to be left out for the
                others to be written.
            TargetSchemaError: the target's tables do not fit; nothing but its owner mends that.
            TargetConflictError: another writer has committed since this one began or last committed.
            TargetError, ConnectionLostError: anything else. The same changes may be given to another work later.
        """


@runtime_checkable
class Readable(Protocol):
    """A work whose tables can be read between its commits, to compare them with the source's: those of SQL databases."""

    def read(self, table: Table, keys: Sequence[Key]) -> Mapping[Key, Values]:
        """The rows with these keys by their keys, each with the values of ``table.columns``; not those that are missing."""

    def scan(self, table: Table, lower: Key | None = None, upper: Key | None = None) -> Iterator[Values]:
        """The rows with ``lower < key <= upper``, each with the values of ``table.columns``; none where there is no such table.

        In the order that the target has for keys, a thousand at a time: what is written meanwhile may or may not be among them.

        Raises:
            ConfigError: the table has no key.
        """


@runtime_checkable
class ArrowWork(Protocol):
    """A work that takes columns: its ``apply`` is given ``canal.changes.Changes``, of which it asks the columns of tables."""

    @property
    def arrow_from(self) -> int | None:
        """The number of changes of a table from which on columns are made of them; None: never."""


@runtime_checkable
class StoppableWork(Protocol):
    """A work that is given the event that the pipe is ended by, which those of the two bases are."""

    stopping: threading.Event


@runtime_checkable
class Target(Protocol):
    """Where changes go: tables that are kept equal to the source's, or a log of the changes. ``begin`` opens what it needs."""

    @property
    def guarantee(self) -> Guarantee:
        """What it promises of changes that are given more than once."""

    @property
    def scope(self) -> Scope:
        """What one commit holds."""

    @property
    def is_log(self) -> bool:
        """Whether it keeps the changes themselves, statements too, and not the rows that they lead to."""

    def begin(self, stream: str) -> AbstractContextManager[Work]:
        """A writer of ``stream``; leaving it without ``commit`` changes nothing that was there.

        Raises:
            ConfigError: the target cannot be used as it is set up.
            TargetError, ConnectionLostError: it cannot be reached now.
        """
