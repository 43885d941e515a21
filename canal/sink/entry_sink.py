"""The default sink: excluded kinds, hooks, row filter, condensing of empty transactions, then the store.

It never reorders entries, and decodes rows only for a row filter.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence

import attrs

from canal.errors import CanalError, HookError, StateError
from canal.model import Entry, EntryType, Header, Row
from canal.rows.mask import WITHHELD, Masks
from canal.sink.condense import Condenser
from canal.sink.leave_out import LeaveOut
from canal.sink.protocol import Hook
from canal.store.protocol import EntryStore

#: ``(header, before, after) -> bool``: return whether to deliver a row change.
RowPredicate = Callable[[Header, "Row | None", "Row | None"], bool]


class EntrySink:
    """The default :class:`~canal.sink.protocol.Sink`. It writes to a store.

    Args:
        hooks: called in order, before and after the store.
        leave_out: kinds of changes to drop before the hooks.
        masks: withhold the text of statements on these tables.
        row_filter: keep a row change if it returns true. The parser's thread then decodes every row.
        empty_interval, empty_count: pass an empty transaction this often.
    """

    is_exclusive = True

    def __init__(
        self,
        *,
        hooks: Sequence[Hook] = (),
        row_filter: RowPredicate | None = None,
        leave_out: Iterable[str] = (),
        masks: Masks | None = None,
        empty_interval: float = 5.0,
        empty_count: int = 8192,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._hooks = tuple(hooks)
        self._row_filter = row_filter
        self._leave_out = LeaveOut(leave_out)
        self.masks = masks or Masks()
        self._condenser = Condenser(empty_interval, empty_count)
        self._clock = clock
        self._store: EntryStore | None = None

    def start(self, destination: str, store: EntryStore) -> None:
        self._store = store
        self._condenser.reset()

    def stop(self) -> None:
        self._store = None

    def restart(self) -> None:
        """Do nothing: the condenser compares transactions by identity."""

    def sink(self, entries: list[Entry]) -> None:
        store = self._store
        if store is None:
            raise StateError("the sink is not started")
        if self._leave_out:
            entries = self._leave_out.kept(entries)
        if self.masks:
            for entry in entries:
                entry.set_query(None)
                if entry.statement is not None and self.masks.withholds(entry.statement):
                    entry.statement = attrs.evolve(entry.statement, withheld=entry.sql or "")
                    entry.sql = WITHHELD
        for hook in self._hooks:
            entries = _kept_by(hook, entries)
        if self._row_filter is not None:
            entries = [entry for entry in entries if self._keeps(entry, self._row_filter)]
        entries = self._condenser.feed(entries, self._clock())
        if not entries:
            return
        store.put(entries)
        for hook in self._hooks:
            try:
                hook.after(entries)
            except CanalError:
                raise
            except Exception as error:
                raise HookError(f"hook {hook!r} raised {error!r} after {entries[-1]!r} was stored") from error

    @staticmethod
    def _keeps(entry: Entry, predicate: RowPredicate) -> bool:
        if entry.entry_type is not EntryType.ROWDATA or entry.table is None:
            return True
        header = entry.header
        try:
            kept = tuple(i for i, row in enumerate(entry.rows) if predicate(header, row.before, row.after))
        except CanalError:
            raise
        except Exception as error:
            raise HookError(f"the row filter raised {error!r} at {entry!r}") from error
        if len(kept) < entry.row_count:
            entry.select(kept)
        return bool(kept)


def _kept_by(hook: Hook, entries: list[Entry]) -> list[Entry]:
    """Return the entries that a hook keeps. Verify that it kept their order."""
    try:
        kept = list(hook.before(list(entries)))
    except CanalError:
        raise
    except Exception as error:
        which = repr(entries[0]) if entries else "an empty list"
        raise HookError(f"hook {hook!r} raised {error!r} on entries from {which}") from error
    remaining = iter(entries)
    for entry in kept:
        if not any(entry is other for other in remaining):
            raise HookError(f"hook {hook!r} reordered entries or added {entry!r}: it may only drop and annotate them")
    return kept
