"""What an Instance is doing: one frozen value with its state, positions, lag, what it holds and what it counted.

Never asks anybody: the parts fill in their own pieces, and ``Instance.status()`` puts them together.
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
    """What an instance is at."""

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

    #: Names and sizes of the journals, the oldest first.
    journals: tuple[tuple[str, int], ...]
    #: The GTIDs that are in the log; "" where there are none.
    gtid: str = ""

    def bytes_behind(self, position: Position) -> int | None:
        """Bytes of the log between a position and its end; None where the journal is not there."""
        left, found = 0, False
        for name, size in self.journals:
            if found:
                left += size
            elif name == position.journal:
                left, found = size - position.offset, True
        return max(left, 0) if found else None

    def transactions_behind(self, position: Position) -> int | None:
        """Transactions between a position and the end, by GTID; None without GTIDs.

        MariaDB's sequence numbers may leave numbers out, which count here all the same.
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
    """How far something is behind the source."""

    #: 0 when there is nothing that it lacks; the source's clock is taken into account. Times in logs are whole seconds.
    seconds: float | None = None
    #: Of the source's log. Only where the source was asked.
    bytes: int | None = None
    #: By GTID. Only where the source was asked.
    transactions: int | None = None


@attrs.frozen
class Latency:
    """Seconds from a change in the source to its ack, of the last batches that were acked: each is as late as its last change.

    By the source's clock. Times in logs are whole seconds, so each may be up to one second more than it was.
    """

    #: Half of the batches, 95 and 99 of a hundred were not later.
    median: float
    p95: float
    p99: float
    longest: float
    #: Of how many batches: the last 1000 at most.
    batches: int

    @classmethod
    def of(cls, seconds: Iterable[float]) -> Latency | None:
        """None of no batches."""
        found = sorted(seconds)
        if not found:
            return None
        median, p95, p99 = (found[max(-(-len(found) * percent // 100) - 1, 0)] for percent in (50, 95, 99))
        return cls(median, p95, p99, found[-1], len(found))


@attrs.frozen
class ReaderStatus:
    """Where a client is in the store, in sequences of it: what is before them is acked, or handed out."""

    acked: int
    got: int
    #: When the oldest entry that is not acked, or not handed out, was made: seconds by the source's clock; None: there is none.
    oldest_unacked: int | None = None
    oldest_ungot: int | None = None


@attrs.frozen
class StoreStatus:
    """What a store holds now, and what was put into it since it was started."""

    entries: int
    bytes: int
    rows: int
    max_entries: int
    max_bytes: int
    put_entries: int
    put_bytes: int
    put_rows: int
    #: Seconds for which the parser has waited for room.
    waited: float
    #: Behind the last entry that was put in.
    last: Position | None = None
    #: Transactions of the parser that were done with that entry.
    transactions: int = 0
    #: By client.
    readers: dict[int, ReaderStatus] = attrs.field(factory=dict)


@attrs.frozen
class ParserStatus:
    """What a parser is at, and what it counted since it was started."""

    state: State
    address: str = ""
    identity: str = ""
    flavor: str = ""
    #: Behind the last event that was received, by journal and offset.
    received: Position | None = None
    lag: Lag = Lag()
    events: int = 0
    bytes: int = 0
    transactions: int = 0
    #: Changes of rows that came as statements: their rows are not in the log.
    statements: int = 0
    #: Connections made after the first: of a lost one, and of a switch.
    reconnects: int = 0
    #: Messages that it has given to the alarm callback.
    alarms: int = 0
    #: Lost connections, attempts to connect that failed, and what stopped the parser.
    errors: int = 0
    #: Bytes of transactions that have not ended, and of XA transactions that are prepared.
    held_bytes: int = 0
    last_error: CanalError | None = None
    last_error_at: float | None = None
    #: Seconds that the source's clock is ahead of ours.
    clock_offset: float = 0.0
    #: Where the source was asked.
    end: SourceEnd | None = None


@attrs.frozen
class ClientStatus:
    """One subscription. After a restart a quick client may be ahead of what is stored again for a slow one."""

    client_id: int
    filter: str
    got: Position
    acked: Position
    #: Batches that were handed out and not acked.
    batches: int
    #: Seconds: the age of the oldest entry that is not acked; bytes and transactions: from ``acked`` to the source's end.
    lag: Lag
    #: In the store, from the last ack on; None where a part does not tell.
    unacked_entries: int | None
    unacked_transactions: int | None
    #: As ``lag.seconds``, of the oldest entry that is not handed out.
    get_seconds: float | None
    #: Row changes handed out (again after a rollback, too), and acked; None where the store does not count them.
    rows_got: int | None
    rows_acked: int | None
    rollbacks: int
    #: The store keeps nothing for it: it reads on over a connection of its own until it has caught up.
    is_behind: bool = False
    #: From the source to the ack; None until a batch is acked.
    latency: Latency | None = None
    #: Everything that the source committed before this time is acked: seconds since 1970 by the source's clock. It moves on while
    #: the source has nothing new, too. None: not known.
    complete_to: float | None = None


@attrs.frozen
class InstanceStatus:
    """One look at an Instance; ``str()`` is a table for people, ``as_dict()`` is for machines.

    Counts are since ``start()``. Taken without a stop of the line, from the clients to the source: with one client
    received >= stored >= got >= acked. What a part of the user's own does not tell is None.
    """

    destination: str
    state: State
    #: Seconds since 1970 when this was taken, and since ``start()`` (None: not running).
    at: float
    uptime: float | None
    clients: tuple[ClientStatus, ...]
    store: StoreStatus | None
    parser: ParserStatus | None
    error: CanalError | None
    #: With ``ha``, the value of the instance's ``canal.Role``, and how many times each role was entered since it was made.
    role: str | None = None
    role_changes: dict[str, int] = attrs.field(factory=dict)
    #: Messages that were given to the alarm callback: by the parser since it was started, and by all other parts since the
    #: instance was made.
    alarms: int = 0

    @property
    def received(self) -> Position | None:
        """Behind the last event received, by journal and offset."""
        return self.parser.received if self.parser else None

    @property
    def stored(self) -> Position | None:
        """Behind the last entry put into the store; None: nothing yet."""
        return self.store.last if self.store else None

    @property
    def lag(self) -> Lag:
        """Of what is received behind the source."""
        return self.parser.lag if self.parser else Lag()

    @property
    def complete_to(self) -> float | None:
        """Everything that the source committed before this time, by its clock, was acked by every client; None: not known."""
        times = [client.complete_to for client in self.clients]
        known = [time for time in times if time is not None]
        return min(known) if known and len(known) == len(times) else None

    @property
    def memory_bytes(self) -> int | None:
        """What entries and open transactions are accounted with; None where a part does not tell."""
        if self.store is None or self.parser is None:
            return None
        return self.store.bytes + self.parser.held_bytes

    @property
    def last_error(self) -> CanalError | None:
        """The last one, also when it is healed."""
        return (self.parser.last_error if self.parser else None) or self.error

    def as_dict(self) -> dict[str, Any]:
        """Everything in types that JSON has."""
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
    """A time as people read it."""
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
    """One value for ``attrs.asdict``."""
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, CanalError):
        return {"type": type(value).__name__, "message": str(value)}
    if isinstance(value, Position):
        return {
            name: getattr(value, name) for name in ("journal", "offset", "gtid", "row", "timestamp", "server_id", "source")
        } | ({"members": {name: plain(None, None, one) for name, one in value.members}} if value.members else {})
    return value
