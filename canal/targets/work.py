"""Base classes for the writers of targets.

Never opens anything.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar, Generic, TypeVar
from urllib.parse import urlsplit

from canal.changes.batch import Changes, EntryRows
from canal.changes.change import Change, Op, Table
from canal.changes.latest import Key, TableState, Values, latest
from canal.errors import TargetConflictError, UnfitChangeError
from canal.targets.names import Names, Naming
from canal.targets.protocol import Progress

T = TypeVar("T")


class _Writer(ABC, Generic[T]):
    """Collects changes until a commit, and caches the target's progress."""

    stopping: threading.Event
    """Set when the pipe stops, so that a waiting commit gives up. The pipe replaces it by its event."""

    def __init__(self) -> None:
        self.stopping = threading.Event()
        self._changes = Changes(())
        self._texts: dict[str, str | None] = {}

    @abstractmethod
    def load(self, table: str) -> str | None:
        """Return the text of the stream's progress in the target, or None if there is none.

        Args:
            table: the table with the scope "table", else "".
        """

    @abstractmethod
    def write(self, made: Sequence[T], old: str | None, new: str, table: str) -> None:
        """Write the changes, and ``new`` as the text of the progress, in one durable commit.

        With the guarantee ONCE the commit checks that the text is still ``old``. If not, raise ``canal.targets.conflict()``.
        """

    @abstractmethod
    def _made(self, changes: Changes) -> Sequence[T]:
        """Return the arguments for ``write``."""

    def progress(self, table: str = "") -> Progress | None:
        text = self._texts[table] = self.load(table)
        return None if text is None else Progress.from_text(text)

    def apply(self, changes: Sequence[Change]) -> None:
        given = changes if isinstance(changes, Changes) else Changes([changes])
        self._changes = self._changes + given if self._changes.parts else given

    def commit(self, progress: Progress, table: str = "") -> None:
        if table not in self._texts:
            self.progress(table)
        old = self._texts[table]
        if old is not None and Progress.from_text(old).epoch > progress.epoch:
            raise conflict("the writer of a later turn has written since")
        changes, self._changes = self._changes, Changes(())
        new = progress.to_text()
        self.write(self._made(changes), old, new, table)
        self._texts[table] = new


class StateWork(_Writer[TableState]):
    """A writer of tables that equal the source's tables: ``write`` gets the state of each changed table.

    Attributes:
        names: which table of the source each of the target's belongs to; in memory, where the target does not store it.
    """

    keeps_columns: ClassVar[bool] = False
    """Whether ``write`` keeps columns with the value ``canal.ABSENT``. Otherwise it gets whole rows."""

    empties_parts: ClassVar[bool] = False
    """Whether ``write`` heeds ``TableState.emptied``: a TRUNCATE of one of the tables that ``Rule(merge=…)`` brings together."""

    arrow_from: ClassVar[int | None] = None
    """The number of changes of a table from which on ``write`` is given ``TableState.arrow``; None: never."""

    accepts_lost: bool = False
    """Whether a table that is not the one that was written before is taken as it is now: its owner has acknowledged a change."""

    def __init__(self) -> None:
        super().__init__()
        self.names = Names(Naming(is_flat=True))

    def _made(self, changes: Changes) -> Sequence[TableState]:
        made = latest(changes, self.read, keeps_columns=self.keeps_columns)
        for state in made:
            for table in state.tables:
                self.names.claim(table)
            if state.emptied and not self.empties_parts:
                emptied = tuple([one for one in state.changes if one.op is Op.TRUNCATE])
                raise UnfitChangeError(
                    f"one of the tables that are brought together in {state.table.name} was emptied by TRUNCATE, and this target"
                    " cannot empty a part of a table",
                    position=emptied[0].origin.position,
                    changes=emptied,
                    remedy="Take its rows away in the target, and park the change by on_unfit.",
                )
        return made

    def read(self, table: Table, keys: Sequence[Key]) -> Mapping[Key, Values]:
        """The rows with these keys by their keys, each with the values of ``table.columns``; not those that are missing.

        Asked only for rows of which the log tells a part (binlog_row_image MINIMAL or NOBLOB).
        """
        raise UnfitChangeError(
            f"the log tells only parts of rows of {table.source}, and this target cannot be asked for the others",
            remedy="Set binlog_row_image=FULL at the source.",
        )


class LogWork(_Writer[Change]):
    """A writer of changes: ``write`` gets them in the order of the log.

    Attributes:
        encode_entry: see ``EncodingWork``. ``write`` gets ``Changes`` if it is set, and writes their ``parts``.
    """

    encode_entry: Callable[[EntryRows], Any] | None = None

    def _made(self, changes: Changes) -> Sequence[Change]:
        return changes if self.encode_entry is not None else changes.rows


@contextmanager
def closed(client: Any) -> Iterator[None]:
    """Close a client at the end, but not where an interrupt ends the work: that may have come while the client held a lock of its
    own, for which its ``close`` would wait for ever."""
    try:
        yield
    except Exception:
        client.close()
        raise
    client.close()


def is_http(url: str) -> bool:
    """Whether it begins with http://host or https://host, and a port if there is one is a number that a port can have."""
    try:
        parts = urlsplit(url)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        return False


def conflict(what: str = "another writer of this stream has committed since") -> TargetConflictError:
    """Return the error of a late commit."""
    return TargetConflictError(what, remedy="Run one pipe for each target and stream.")
