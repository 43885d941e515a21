"""What a query reads of an Instance that its driver shares, as if it were an Instance of its own.

Never gives a change twice or leaves one out, wherever the query and the Instance stand: what the Instance has no more is read
over a connection of this process, and what the query has already is passed over.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import attrs

from canal.errors import ConfigError, ConnectionLostError, CursorError, StateError
from canal.filter import TableFilter, split_patterns
from canal.formats.message import Message
from canal.instance.instance import Instance
from canal.instance.sharing.client import Remote, SharedSource
from canal.instance.sharing.wire import decode_source, end_at
from canal.model import Entry
from canal.parse.source.mysql import another
from canal.position import Position, journal_key
from canal.spark.options import Options
from canal.spark.stream.stretch import Stretch, Until, open_instance, plan, within

_GET: Final = 4096  # row changes of one get
_WAIT: Final = 0.5


def attach(options: Options) -> Options:
    """The options of a query on a shared Instance with what the driver tells of its source; of any other as they are."""
    if not isinstance(options.source, SharedSource):
        return options
    with Remote(options.source.name) as remote:
        found = remote.ask("describe", table=options.table)[0]
    black = ",".join(filter(None, (options.black_filter, found["black_filter"])))
    return attrs.evolve(
        options,
        source=decode_source(found["source"]) or options.source,
        black_filter=black,
        filter=_both(options.filter, found["filter"]),
    )


def _both(one: str, other: str) -> str:
    """A filter for the tables that pass two."""
    if not other.strip() or other == one:
        return one
    first, second = ("|".join(f"(?:{pattern})" for _, pattern in split_patterns(text)) for text in (one, other))
    found = rf"(?=(?:{first})\Z)(?:{second})"
    try:
        TableFilter(found)
    except ConfigError as error:
        raise ConfigError(
            f"the option tables and the filter of the shared Instance cannot be put together: {error.message}",
            remedy="Write the option tables as the filter is.",
        ) from error
    return found


class SharedInstance:
    """A client of a shared Instance, from a position on. ``messages`` is for one thread; ``stop`` may come from another.

    Args:
        start: where to begin. With "latest" and no startingPosition: where the Instance has a new client begin.
        until: where to end; None for never.
    """

    def __init__(self, options: Options, start: str | Position, until: Position | None) -> None:
        assert options.instance is not None
        self._options = options
        self._name = options.instance
        self._start = start
        self._until = until
        self._closing = False
        self._remote: Remote | None = None
        self._own: Instance | None = None
        self._cursor = Position()  # of the client, when it was opened
        self._received = (0, 0)

    @property
    def parser(self) -> SharedInstance:
        return self

    @property
    def received(self) -> tuple[int, int]:
        """Bytes of the log that have come to the shared Instance since its start; the first is not known."""
        return self._received

    def subscribe(self) -> None:
        """Connect, and find the start.

        Raises:
            CanalError: there is no such Instance, or it does not deliver; or the start is lost.
        """
        self._connect()
        if self._start == "latest" and self._options.starting is None:
            self._start = self._cursor
        elif isinstance(self._start, str) or not self._start.is_concrete:
            connection = self._options.source.connect()
            try:
                self._start = connection.resolve(self._start)
            finally:
                connection.close()

    def position(self) -> Position:
        """Where it begins."""
        assert isinstance(self._start, Position)
        return self._start

    def stop(self) -> None:
        """End; ``messages`` raises StateError then."""
        self._closing = True
        own, remote = self._own, self._remote
        if own is not None:
            own.stop()
        if remote is not None:
            remote.shut()

    def _connect(self) -> None:
        self._check()
        remote = self._remote = Remote(self._name)
        try:
            timeout = self._options.start_timeout
            reply, _ = remote.ask("open", wait=timeout, timeout=timeout, client=self._options.client, filter=self._options.filter)
        except BaseException:
            remote.close()
            raise
        self._cursor = Position.from_text(reply["position"])
        self._check()

    def _check(self) -> None:
        if self._closing:
            raise StateError("the query was stopped")

    # -- messages ------------------------------------------------------------------------------------------------------

    def messages(self) -> Iterator[Message]:
        """Everything behind the start, in order, until the end. What came is acked when the next is asked for."""
        position = self.position()
        try:
            if self._is_behind(position) and self._options.client is None:
                assert self._remote is not None
                self._remote.close()  # a client that does not read would hold up all others, perhaps for long
                yield from self._read_again(position, self._cursor)
                position = self._cursor
                self._connect()
            if self._is_behind(position):
                yield from self._read_again(position, self._cursor)
                position = self._cursor
            yield from self._live(position)
        finally:
            if self._remote is not None:
                self._remote.close()

    def _is_behind(self, position: Position) -> bool:
        before = position.precedes(self._cursor)
        if before is None:
            raise CursorError(
                f"the query is at {position} and the shared Instance at {self._cursor}, which cannot be compared",
                remedy="They are of different sources: share the Instance that the checkpoint was written with, or begin a new "
                "checkpoint.",
            )
        return before

    def _read_again(self, start: Position, end: Position) -> Iterator[Message]:
        """The entries of (start, end], over a connection of our own."""
        options = self._options
        for stretch in plan(options, Stretch(start, end)):
            until = Until(another(options.source), stretch)
            self._own = own = open_instance(options, until, stretch.start, history=True)
            with own:
                self._check()
                own.subscribe()
                yield from (Message(0, entries) for entries in until.entries(own) if entries)

    def _live(self, position: Position) -> Iterator[Message]:
        """What the shared Instance gives behind ``position``."""
        remote, ack, passed = self._remote, -1, _Passed(position, self._cursor.journal)
        last: Entry | None = None
        assert remote is not None
        while True:
            self._check()
            try:
                reply, entries = remote.ask("get", wait=_WAIT, timeout=_WAIT, ack=ack, size=_GET)
            except ConnectionLostError:
                self._check()
                raise
            ack = reply["id"]
            self._received = (0, reply.get("received", 0))
            if entries:
                entries = passed.left(entries)
            elif ack == -1:
                if self._is_over(reply):
                    return
                moved = reply.get("cursor")
                known = position if last is None else last.position
                if moved is not None and known.precedes(position := Position.from_text(moved)):
                    entries = [end_at(position)]
            if entries:
                last = entries[-1]
                yield Message(0, entries)

    def _is_over(self, reply: dict[str, Any]) -> bool:
        """Whether nothing more will come, or all up to ``until`` has been read."""
        if reply["over"] or self._until is None or "position" not in reply:
            return bool(reply["over"])
        return Position.from_text(reply["position"]).precedes(self._until) is False


class _Passed:
    """Leaves out what lies before a position, of what begins in the file ``journal``."""

    def __init__(self, position: Position, journal: str) -> None:
        self._position = position
        self._journal = journal
        self._is_passed = False

    def left(self, entries: list[Entry]) -> list[Entry]:
        if self._is_passed:
            return entries
        return [entry for entry in entries if not self._is_done(entry)]

    def _is_done(self, entry: Entry) -> bool:
        """Whether an entry lies before the position; of rows on both sides of it those before are taken away."""
        position, transaction = self._position, entry.transaction
        if self._is_passed:
            return False
        here = position.source in ("", transaction.source) and transaction.offset == position.offset
        if position.row and here and journal_key(transaction.journal) == journal_key(position.journal):
            left = position.row - entry.first_row - entry.skip_rows
            if 0 < left < entry.row_count:
                entry.skip_rows += left
                entry.row_count -= left
                if entry.selected is not None:
                    entry.selected = tuple(number - left for number in entry.selected if number >= left)
                return False
            return left > 0 and not entry.is_end
        found = within(entry, Stretch(Position(journal=self._journal), position))
        self._is_passed = found is None
        return bool(found)
