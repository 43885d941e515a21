"""The status of an Instance: a frozen value with state, positions, lag, contents and counters.

The parts create their pieces, and ``Instance.status()`` combines them.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import Any

import attrs

from canal.errors import CanalError
from canal.gtid import MariadbGtidSet, MysqlGtidSet
from canal.position import Position


class State(enum.Enum):
    """State of an Instance."""

    STOPPED = "stopped"
    """Not started, or stopped by ``stop()``; with ``ha`` also while another process is active."""
    CONNECTING = "connecting"
    """A login to the source runs."""
    SEEKING = "seeking"
    """Connected; the start position is looked for, or the source has not begun to send."""
    STREAMING = "streaming"
    """Events come, or the source has none."""
    WAITING = "waiting to reconnect"
    """The connection was lost, and is tried again in a moment."""
    FAILED = "failed"
    """An error has stopped the parser: ``last_error``."""
    ENDED = "ended"
    """The end of a log that is not followed."""
    RUNNING = "running"
    """Started, with a parser of the user's own that does not tell more."""


@attrs.frozen
class SourceEnd:
    """The end of a source's log at one moment."""

    #: Names and sizes of the journals, oldest first.
    journals: tuple[tuple[str, int], ...]
    #: GTIDs in the log; "" if the source has none.
    gtid: str = ""

    def bytes_behind(self, position: Position) -> int | None:
        """Return the bytes from a position to the end of the log; None if the journal is unknown."""
        left, found = 0, False
        for name, size in self.journals:
            if found:
                left += size
            elif name == position.journal:
                left, found = size - position.offset, True
        return max(left, 0) if found else None

    def transactions_behind(self, position: Position) -> int | None:
        """Return the number of transactions from a position to the end, by GTID; None without GTIDs.

        Gaps in MariaDB's sequence numbers are counted too.
        """
        if not self.gtid or not position.gtid:
            return None
        end, done = Position(gtid=self.gtid).gtid_set, position.gtid_set
        if isinstance(end, MysqlGtidSet) and isinstance(done, MysqlGtidSet):
            return (end - done).count()
        if isinstance(end, MariadbGtidSet) and isinstance(done, MariadbGtidSet):
            known = done.domains
            return sum(max(number - known.get(domain, (0, 0))[1], 0) for domain, (_, number) in end.domains.items())
        return None


@attrs.frozen
class Lag:
    """Lag behind the source."""

    #: 0 if up to date; corrected for clock differences. The log has whole seconds.
    seconds: float | None = None
    #: Bytes of the source's log. Only with a query to the source.
    bytes: int | None = None
    #: Transactions by GTID. Only with a query to the source.
    transactions: int | None = None


@attrs.frozen
class Latency:
    """Seconds from change to ack, for recent batches. A batch counts with its last change.

    Measured by the source's clock. The log has whole seconds, so a value may be up to one second too large.
    """

    #: 50th, 95th and 99th percentile.
    median: float
    p95: float
    p99: float
    longest: float
    #: Number of measured batches, at most the last 1000.
    batches: int

    @classmethod
    def of(cls, seconds: Iterable[float]) -> Latency | None:
        """Return the latency of these batches; None for an empty list."""
        found = sorted(seconds)
        if not found:
            return None
        median, p95, p99 = (found[max(-(-len(found) * percent // 100) - 1, 0)] for percent in (50, 95, 99))
        return cls(median, p95, p99, found[-1], len(found))


@attrs.frozen
class ReaderStatus:
    """Progress of a client in the store: the sequences after the last acknowledged and delivered entries."""

    acked: int
    got: int
    #: Times of the oldest entry without ack and of the oldest undelivered entry, in seconds by the source's clock; None if
    #: there is no such entry.
    oldest_unacked: int | None = None
    oldest_ungot: int | None = None


@attrs.frozen
class StoreStatus:
    """Contents of a store, and counters since its start."""

    entries: int
    bytes: int
    rows: int
    max_entries: int
    max_bytes: int
    put_entries: int
    put_bytes: int
    put_rows: int
    #: Seconds that the parser has waited for room.
    waited: float
    #: Position after the last stored entry.
    last: Position | None = None
    #: Number of transactions that the parser had completed at that entry.
    transactions: int = 0
    #: By client id.
    readers: dict[int, ReaderStatus] = attrs.field(factory=dict)


@attrs.frozen
class ParserStatus:
    """State of a parser, and counters since its start."""

    state: State
    address: str = ""
    identity: str = ""
    flavor: str = ""
    #: Position after the last received event, by journal and offset.
    received: Position | None = None
    lag: Lag = Lag()
    events: int = 0
    bytes: int = 0
    transactions: int = 0
    #: Row changes that were logged as statements, without rows.
    statements: int = 0
    #: Connections after the first, from reconnects and switches.
    reconnects: int = 0
    #: Messages passed to the alarm callback.
    alarms: int = 0
    #: Lost connections, failed connection attempts, and fatal errors.
    errors: int = 0
    #: Bytes in open transactions and prepared XA transactions.
    held_bytes: int = 0
    last_error: CanalError | None = None
    last_error_at: float | None = None
    #: Offset of the source's clock to ours, in seconds; positive if it is ahead.
    clock_offset: float = 0.0
    #: Only with a query to the source.
    end: SourceEnd | None = None


@attrs.frozen
class ClientStatus:
    """One subscription. After a restart a fast client may be ahead of the entries that are stored again for a slow client."""

    client_id: int
    filter: str
    got: Position
    acked: Position
    #: Batches that were delivered but not acknowledged.
    batches: int
    #: Seconds: age of the oldest entry without ack. Bytes and transactions: from ``acked`` to the end of the source.
    lag: Lag
    #: Entries in the store since the last ack; None if the store does not report it.
    unacked_entries: int | None
    unacked_transactions: int | None
    #: Like ``lag.seconds``, for the oldest undelivered entry.
    get_seconds: float | None
    #: Row changes delivered (including redeliveries) and acknowledged; None if the store does not count them.
    rows_got: int | None
    rows_acked: int | None
    rollbacks: int
    #: The store keeps no entries for this client: it is catching up over a private connection.
    is_behind: bool = False
    #: Latency from source to ack; None before the first ack.
    latency: Latency | None = None
    #: All changes before this time are acknowledged: seconds since 1970 by the source's clock. It advances while the source is
    #: idle. None if unknown.
    complete_to: float | None = None


@attrs.frozen
class InstanceStatus:
    """A snapshot of an Instance. ``str()`` returns a table for people, ``as_dict()`` a form for machines.

    Counters start at ``start()``. The snapshot is taken from the clients to the source without stopping the instance. With
    one client, received >= stored >= got >= acked. Values that a custom part does not report are None.
    """

    destination: str
    state: State
    #: Time of the snapshot in seconds since 1970, and seconds since ``start()`` (None if stopped).
    at: float
    uptime: float | None
    clients: tuple[ClientStatus, ...]
    store: StoreStatus | None
    parser: ParserStatus | None
    error: CanalError | None
    #: With ``ha``: the ``canal.Role`` of the instance, and how often each role was entered.
    role: str | None = None
    role_changes: dict[str, int] = attrs.field(factory=dict)
    #: Messages passed to the alarm callback: by the parser since its start, by all other parts since the instance was created.
    alarms: int = 0

    @property
    def received(self) -> Position | None:
        """Position after the last received event, by journal and offset."""
        return self.parser.received if self.parser else None

    @property
    def stored(self) -> Position | None:
        """Position after the last stored entry; None before the first."""
        return self.store.last if self.store else None

    @property
    def lag(self) -> Lag:
        """Lag of received events behind the source."""
        return self.parser.lag if self.parser else Lag()

    @property
    def complete_to(self) -> float | None:
        """Time before which every client has acknowledged all changes, by the source's clock; None if unknown."""
        times = [client.complete_to for client in self.clients]
        known = [time for time in times if time is not None]
        return min(known) if known and len(known) == len(times) else None

    @property
    def memory_bytes(self) -> int | None:
        """Accounted size of entries and open transactions; None if a part does not report it."""
        if self.store is None or self.parser is None:
            return None
        return self.store.bytes + self.parser.held_bytes

    @property
    def last_error(self) -> CanalError | None:
        """The last error, even if it is solved."""
        return (self.parser.last_error if self.parser else None) or self.error

    def as_dict(self) -> dict[str, Any]:
        """Return all values as JSON types."""
        found: dict[str, Any] = attrs.asdict(self, value_serializer=plain)
        found.update(
            received=plain(None, None, self.received),
            stored=plain(None, None, self.stored),
            lag=attrs.asdict(self.lag),
            memory_bytes=self.memory_bytes,
            complete_to=self.complete_to,
            last_error=plain(None, None, self.last_error),
        )
        if self.store is not None:
            found["store"]["readers"] = {str(id): attrs.asdict(reader) for id, reader in self.store.readers.items()}
        return found

    def __str__(self) -> str:
        return "\n".join(f"{name:<12} {text}" for name, text in self._lines())

    def _lines(self) -> Iterator[tuple[str, str]]:
        yield self.destination, self.state.value + ("" if self.uptime is None else f", started {self.uptime:.0f} s ago")
        if self.role is not None:
            yield "role", f"{self.role}, active {self.role_changes['active']} times so far"
        if self.parser is not None:
            yield from _parser_lines(self.parser, self.alarms)
        if self.store is not None:
            yield from _store_lines(self.store)
        for client in self.clients:
            yield from _client_lines(client)
        if self.memory_bytes is not None:
            yield "memory", _bytes(self.memory_bytes)
        if self.last_error is not None:
            yield "last error", str(self.last_error)


def _parser_lines(parser: ParserStatus, alarms: int) -> Iterator[tuple[str, str]]:
    yield "source", " ".join(part for part in (parser.address, parser.identity, parser.flavor) if part) or "not known"
    yield "received", f"{parser.received or 'nothing'}, {_lag(parser.lag)}"
    yield (
        "counted",
        (
            f"{parser.events} events, {_bytes(parser.bytes)}, {parser.transactions} transactions, "
            f"{parser.statements} statements, "
            f"{parser.reconnects} reconnects, {alarms} alarms, {parser.errors} errors"
        ),
    )


def _store_lines(store: StoreStatus) -> Iterator[tuple[str, str]]:
    yield "stored", str(store.last or "nothing")
    yield (
        "store",
        (
            f"{store.entries} of {store.max_entries} entries, {_bytes(store.bytes)} of {_bytes(store.max_bytes)}, "
            f"{store.rows} row changes; {store.put_rows} row changes since the start, waited {store.waited:.1f} s for room"
        ),
    )


def _client_lines(client: ClientStatus) -> Iterator[tuple[str, str]]:
    yield f"client {client.client_id}", f"acked {client.acked}, {_lag(client.lag)}"
    waiting = [
        f"{count} {what}"
        for count, what in (
            (client.unacked_entries, "entries"),
            (client.unacked_transactions, "transactions"),
            (client.batches, "batches"),
        )
        if count is not None
    ]
    yield "", f"got {client.got}, not acked: {', '.join(waiting)}"
    late, up_to = client.latency, client.complete_to
    if late is not None or up_to is not None:
        latency = "" if late is None else f"; latency {late.median:.1f} s, 99 of 100 up to {late.p99:.1f} s"
        yield "", f"complete up to {'a time not known' if up_to is None else utc(up_to)}{latency}"


def utc(seconds: float) -> str:
    """Format a time for people."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _lag(lag: Lag) -> str:
    parts = [
        f"{value:.1f} {unit}" if isinstance(value, float) else f"{value} {unit}"
        for value, unit in ((lag.seconds, "s"), (lag.bytes, "bytes"), (lag.transactions, "transactions"))
        if value is not None
    ]
    return f"{' and '.join(parts)} behind" if parts else "lag not known"


def _bytes(count: int) -> str:
    if count < 10 << 10:
        return f"{count} bytes"
    return f"{count / (1 << 10):.0f} KiB" if count < 10 << 20 else f"{count / (1 << 20):.0f} MiB"


def plain(instance: Any, attribute: Any, value: Any) -> Any:
    """Convert a value for ``attrs.asdict``."""
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, CanalError):
        return {"type": type(value).__name__, "message": str(value)}
    if isinstance(value, Position):
        return {
            name: getattr(value, name) for name in ("journal", "offset", "gtid", "row", "timestamp", "server_id", "source")
        } | ({"members": {name: plain(None, None, one) for name, one in value.members}} if value.members else {})
    return value
