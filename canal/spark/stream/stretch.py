"""Stretches of the log that are read by themselves, from a position to a position, over a connection of their own.

Never gives an entry behind the end of a stretch, and never ends before it without an error.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import takewhile
from typing import Any, Final

import attrs

from canal.binlog import event_layout as layout
from canal.config import InstanceConfig
from canal.errors import ConnectionLostError, LostReason, PositionLostError
from canal.formats.message import Message
from canal.gtid import parse_gtid_set
from canal.instance.instance import Instance
from canal.instance.sharing.client import SharedSource
from canal.model import Entry, Transaction
from canal.parse.log.scan import TransactionScan
from canal.parse.parser import BinlogParser, parser_info
from canal.parse.schema.history import FileHistory
from canal.parse.source.mysql import another
from canal.parse.source.protocol import FullConnection, Source, complete
from canal.position import Position, journal_key
from canal.spark.options import Options
from canal.spark.stream.watch import Epochs, Watch

_GET: Final = 16384  # row changes of one get
_STALLED: Final = 120.0  # seconds
_PREDECESSOR: Final = 15.0  # seconds that the query's last process may take to end


@attrs.frozen
class Stretch:
    """A part of the log that whoever reads it asks the source for: (start, end]; ``epoch`` is that of its start.

    ``types`` are the declared types that the columns had right before it, or before ``types_at``, as a ``Watch`` takes them.
    """

    start: Position
    end: Position
    epoch: int = 0
    types: str = ""
    types_at: str = ""

    def is_by_position(self, source: str) -> bool:
        """Whether a position in a server's log tells what is in it; else the GTID sets of its ends do."""
        return bool(self.end.journal) and (self.start.source in ("", source) and self.end.source in ("", source))


class Until:
    """A source whose connections end their stream behind a stretch."""

    def __init__(self, source: Source, stretch: Stretch) -> None:
        self._source = source
        self._stretch = stretch
        self.parser: BinlogParser | None = None

    def connect(self, server_id_hint: int | None = None) -> Any:
        return _UntilConnection(self._source.connect(server_id_hint), self)

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._source, name)
        return (lambda hint=None: _UntilConnection(found(hint), self)) if name == "new_connection" else found

    def is_over(self, identity: str) -> bool:
        """Whether all up to the end has been read; asked by the parser's thread, between two reads."""
        assert self.parser is not None
        end, position = self._stretch.end, self.parser.position
        if end.row:
            return False  # the transaction behind it is looked into by whoever takes the entries
        if self._stretch.is_by_position(identity):
            if renames(position.journal, end.journal):  # which lies behind it only where the stretch begins in files of its name
                return not renames(self._stretch.start.journal, end.journal)
            return _journal_position(position) >= _journal_position(end)
        return bool(end.gtid) and covers(self.parser.whole_position.gtid_set, end.gtid_set)

    def entries(self, instance: Instance) -> Iterator[list[Entry]]:
        """Those of the stretch that an instance on this source gives, some at once.

        Raises:
            PositionLostError: all that the source has was read, and the end is not among it.
        """
        for message in messages(instance, _STALLED):
            found = ((entry, within(entry, self._stretch)) for entry in message.entries)
            up_to_end = list(takewhile(lambda pair: pair[1] is not None, found))
            yield [entry for entry, is_inside in up_to_end if is_inside]
            if len(up_to_end) < len(message.entries):
                return
        assert self.parser is not None
        if not self.is_over(self.parser.position.source):
            raise PositionLostError(
                f"the log ends at {self.parser.position}, before {self._stretch.end}",
                reason=LostReason.BEYOND,
                position=self._stretch.end,
                remedy="The end of the log is gone: restore it, or begin a new checkpoint and copy the table anew.",
            )


class _UntilConnection:
    def __init__(self, connection: Any, until: Until) -> None:
        self._connection = connection
        self._until = until

    def read(self, timeout: float) -> Sequence[bytes] | None:
        if self._until.is_over(self._connection.identity):
            return None
        events: Sequence[bytes] | None = self._connection.read(timeout)
        return events

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)


def _journal_position(position: Position) -> tuple[int, int]:
    return journal_key(position.journal)[1], position.offset


def _file_position(position: Position) -> tuple[str, str, int]:
    return position.source, position.journal, position.offset


def is_before_told(start: Position, transaction: Transaction) -> bool:
    """Whether a transaction lies before a start that its server has told, such as "latest": there the position counts.

    A MySQL tells a file and an offset, and with them a GTID set that may lack the last transactions before that: they are
    sent, for a dump goes by the set. A position that was read from the log, which has a ``server_id``, is exact.
    """
    return (
        transaction.journal == start.journal
        and transaction.offset < start.offset
        and transaction.source == start.source
        and not start.server_id
    )


def covers(outer: Any, inner: Any) -> bool:
    """Whether a GTID set includes another one, both of one kind; an empty one is included in all."""
    return not inner or (type(outer) is type(inner) and bool(inner <= outer))


def open_instance(options: Options, source: Source, start: str | Position, *, history: bool = False) -> Instance:
    """A started instance on a source of its own, not subscribed yet."""
    wait = min(_PREDECESSOR, options.start_timeout / 2)
    kept = FileHistory(options.history_dir, wait=wait) if history and options.history_dir is not None else None
    config = InstanceConfig(
        destination="spark",
        source=source,
        filter=options.filter,
        black_filter=options.black_filter,
        start=start,
        store_bytes=options.store_bytes,
        start_timeout=options.start_timeout,
        schema_history=kept,
        unknown_columns=options.unknown_columns,
    )
    instance = Instance(config)
    if isinstance(source, Until):
        assert isinstance(instance.parser, BinlogParser)
        source.parser = instance.parser
    return instance.start()


def read_stretch(options: Options, watch: Watch, stretch: Stretch, *, history: bool = False) -> Iterator[tuple[int, Entry]]:
    """The entries of a stretch, each with its epoch, over a dump of their own.

    Raises:
        PositionLostError: the log does not reach back to its start, before any entry.
        CanalError: what else stopped the dump, or what ``Watch`` finds.
    """
    epochs, until = Epochs(stretch.start, stretch.epoch), Until(another(options.source), stretch)
    with open_instance(options, until, stretch.start, history=history) as instance:
        instance.subscribe()
        for entries in until.entries(instance):
            for entry in entries:
                if watch.delivers(entry):
                    yield epochs.of(entry.transaction), entry


def messages(instance: Any, stalled: float | None = None) -> Iterator[Message]:
    """What an instance gives, acked when the next is asked for, until it has ended.

    With ``stalled`` it is an error when the source sends nothing for so many seconds.
    """
    if not isinstance(instance, Instance):
        yield from instance.messages()  # a shared one
        return
    received, since = (0, 0), time.monotonic()
    while True:
        finished = instance.is_exhausted
        message = instance.get_without_ack(_GET, timeout=0.5)
        if message:
            yield message
            instance.ack(message.id)
            since = time.monotonic()
        elif finished:
            return
        elif stalled is not None:
            if (now := parser_info(instance.parser).received) != received:
                received, since = now, time.monotonic()
            elif time.monotonic() - since > stalled:
                raise ConnectionLostError(
                    f"the source has sent nothing for {stalled:g} s of a part of its log that it has",
                    remedy="Check the connection from where executors run, then start the query again.",
                )


def within(entry: Entry, stretch: Stretch) -> bool | None:
    """Whether an entry is in a stretch, of what a dump from its start gives; None where it and all behind it are not."""
    transaction, end = entry.transaction, stretch.end
    if is_before_told(stretch.start, transaction):
        return False
    if stretch.is_by_position(transaction.source):
        if transaction.journal != end.journal:
            return _is_file_before(transaction.journal, stretch.start.journal, end.journal) or None
        if end.incarnation and transaction.incarnation not in ("", end.incarnation):
            raise _begun_anew(transaction.journal, end)
        position, last = transaction.offset, end.offset
        if position < last:
            return True
        if position > last or not end.row:
            return None
        left = end.row - entry.first_row - entry.skip_rows
        if left <= 0 and (entry.row_count or entry.is_end):
            return None
        if 0 < left < entry.row_count:
            entry.select(tuple(range(left)))
            entry.row_count = left
        return True
    if end.row or not (end.gtid and transaction.gtid):
        raise PositionLostError(
            f"the end of a batch, {end}, cannot be found at server {transaction.source}"
            + (": it lies inside a transaction of another server" if end.row else ", without GTIDs"),
            reason=LostReason.OTHER_SERVER,
            position=end,
            remedy="Let it be read from the server that it was planned on, or begin a new checkpoint and copy the table anew.",
        )
    return covers(end.gtid_set, Position(gtid=transaction.gtid).gtid_set)


def plan(options: Options, whole: Stretch) -> list[Stretch]:
    """A stretch in parts, one for each file of the log where the log can be read from the beginning of one.

    Raises:
        PositionLostError: the source has not got the log from the start on.
    """
    start, end = whole.start, whole.end
    if isinstance(options.source, SharedSource):
        raise options.source.refusal(start, end)
    connection = complete(another(options.source).connect())
    try:
        connection.resolve(start)
        identity: str = connection.identity
        if end.gtid and not end.row and not whole.is_by_position(identity):
            wait_for_end(connection, end, options.start_timeout)
        between: list[str] = []
        if start.journal and start.source == identity:
            names = connection.journal_names()
            _check_names(names, start)
            if whole.is_by_position(identity):
                _check_names(names, end)
                between = names[names.index(start.journal) + 1 : names.index(end.journal) + 1]
        if renames(start.journal, *between) > 1:  # a live stream counts only those behind which a transaction came
            raise _renamed(between[0], start.journal, end.journal)
        if between and not tells_columns(connection):
            between = []
        heads = [_head(connection, name, end) for name in between]
    finally:
        connection.close()
    positions = [start, *heads, end]
    epochs = [whole.epoch + renames(start.journal, *between[:count]) for count in range(len(positions) - 1)]
    at = whole.types_at or f"{start.journal}:{start.offset}"
    return [
        # Those behind something that was acknowledged are younger, and in which part that is only its reader knows.
        attrs.evolve(whole, end=other)
        if one is start
        else Stretch(one, other, epoch, "" if options.acknowledged else whole.types, at)
        for one, other, epoch in zip(positions, positions[1:], epochs)
        if other.row or not one.journal or _file_position(one) != _file_position(other)
    ]


def _head(connection: FullConnection, journal: str, end: Position) -> Position:
    """The position at which a file between two others begins, with what tells it from a later one of its name."""
    incarnation = connection.incarnation(journal)
    if incarnation == "" and connection.identity:
        raise PositionLostError(
            f"{journal} is gone since the source has named it: its log was purged or begun anew",
            reason=LostReason.PURGED,
            position=journal,
            remedy="Begin a new checkpoint and copy the table anew.",
        )
    if journal == end.journal and incarnation and end.incarnation not in ("", incarnation):
        raise _begun_anew(journal, end)
    return Position(journal=journal, offset=layout.FIRST, source=connection.identity, incarnation=incarnation or "")


def _begun_anew(journal: str, end: Position) -> PositionLostError:
    return PositionLostError(
        f"{journal} is not the log that {end} is a position of: it was begun anew",
        reason=LostReason.DIVERGED,
        position=end,
        remedy="Begin a new checkpoint and copy the table anew.",
    )


def _check_names(names: list[str], position: Position) -> None:
    if position.journal not in names:
        raise PositionLostError(
            f"the source has no log {position.journal}, it has {names[0]} to {names[-1]}",
            position=position,
            remedy="Begin a new checkpoint and copy the table anew.",
        )


@lru_cache(maxsize=64)
def _is_file_before(journal: str, first: str, last: str) -> bool:
    """Whether a file of a stretch from ``first`` to ``last``, or of what a dump gives behind it, comes before ``last``."""
    (start, _), (base, number), (end, most) = map(journal_key, (first, journal, last))
    if base == end:
        return number < most
    if start not in (base, end):
        raise _renamed(journal, first, last)
    return base == start


def _renamed(journal: str, first: str, last: str) -> PositionLostError:
    return PositionLostError(
        f"the files of the log have got other names around {journal} (log_bin was changed), so what of them lies between "
        f"{first or 'the start'} and {last} cannot be told",
        position=journal,
        remedy="Begin a new checkpoint and copy the table anew.",
    )


def renames(*journals: str) -> int:
    """How often the files of a log, in their order, get another base name."""
    return sum(journal_key(one)[0] != journal_key(other)[0] for one, other in zip(journals, journals[1:]))


def wait_for_end(connection: FullConnection, end: Position, timeout: float) -> None:
    """Raise PositionLostError where another server than the planned one has not got all up to ``end`` within ``timeout`` s."""
    deadline = time.monotonic() + timeout
    while not covers(connection.resolve("latest").gtid_set, end.gtid_set):
        if time.monotonic() >= deadline:
            raise PositionLostError(
                f"server {connection.identity} has not got all up to {end}: its log lacks transactions",
                reason=LostReason.OTHER_SERVER,
                position=end,
                remedy="Let the server catch up, or read from the one that the batch was planned on; where these transactions "
                "are lost begin a new checkpoint and copy the table anew.",
            )
        time.sleep(0.2)


def tells_columns(connection: FullConnection) -> bool:
    """Whether a log read from the middle says itself what the columns are; else it is searched to its end for statements."""
    return bool(connection.full_metadata or not connection.identity)


def beginning(connection: FullConnection, journal: str) -> Position:
    """The position at which a file of the log begins, with the GTIDs before it."""
    scan = TransactionScan()
    with contextlib.closing(connection.replay(journal, layout.FIRST)) as events:
        for number, event in enumerate(events):
            scan.feed(event)
            if number >= 1:  # behind the FORMAT_DESCRIPTION stands the list of GTIDs
                break
    gtid = scan.boundary.gtid if connection.has_gtids else ""
    if gtid and connection.purged:
        gtid = str(parse_gtid_set(gtid) | parse_gtid_set(connection.purged))
    return Position(journal=journal, offset=layout.FIRST, gtid=gtid, source=connection.identity)
