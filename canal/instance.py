"""The Instance: parser, sink, store and meta of one destination, composed; and delivery by get, ack and rollback.

Never decodes and never reads a socket. This is the only place that wires the parts together.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from functools import partial
from types import TracebackType
from typing import Any, Self

import attrs

from canal.alarm import AlarmDesk, AlarmKind
from canal.config import InstanceConfig
from canal.errors import (
    BatchError,
    CanalError,
    ConfigError,
    ConnectionLostError,
    CoordinationError,
    CursorError,
    NotActiveError,
    NotSubscribedError,
    StateError,
    StoreClosedError,
)
from canal.filter import TableFilter
from canal.ha import Heartbeat, Role, RunningMonitor, SourceHealth
from canal.meta import MemoryMeta, MetaManager
from canal.model import Entry, EntryType, Message, Transaction
from canal.parse.log_positions import (
    FailbackLogPositionManager,
    MemoryLogPositionManager,
    MetaLogPositionManager,
)
from canal.parse.parser import BinlogParser, EventParser
from canal.position import Position, earliest
from canal.sink import EntrySink, Sink
from canal.status import ClientStatus, InstanceStatus, Lag, ParserStatus, State, StoreStatus
from canal.store import EntryStore, MemoryStore, Slice
from canal.zookeeper import Fence, Session

log = logging.getLogger("canal")

#: Seconds between two acks of entries that a client's filter dropped, and for which a get may look for one that passes.
_SETTLE, _SCAN = 0.1, 1.0

#: The client id that canal uses where nobody says another.
CLIENT_ID = 1001


@attrs.define
class _Batch:
    """Entries that were handed out and not acked: sequences ``start`` … ``end - 1`` of the store."""

    id: int
    start: int
    end: int
    position: Position
    rows: int | None
    done: int  # transactions of the parser that are done with it
    open: Transaction | None  # the client's open transaction before this batch
    begin: Entry | None  # the BEGIN held back before this batch


@attrs.define(eq=False)
class _Client:
    """One subscription. ``lock`` guards the fields; ``turn`` is held by the one thread that gets."""

    id: int
    filter: str
    cursor: Position
    got: Position  # behind the last entries that were handed out or dropped
    durable: bool = True  # its subscription and cursor are kept by the meta manager
    skip: Position | None = None  # entries up to here were acked in an earlier life
    accepted: dict[tuple[str, str], bool] = attrs.field(factory=dict)
    narrow: TableFilter | None = None
    batches: OrderedDict[int, _Batch] = attrs.field(factory=OrderedDict)
    next_id: int = 1
    first_id: int = 1  # of this turn: earlier ones were handed out before another process was active
    last_acked: int = 0
    start: int = 0  # store sequence from which the next batch begins
    unclaimed: tuple[Position, int, int] | None = None  # position, sequence and ``done`` behind entries that its filter dropped
    open: Transaction | None = None  # the transaction that was delivered in part
    begin: Entry | None = None  # BEGIN of the last transaction, when nothing of it has passed the filter yet
    held: Entry | None = None  # ``begin`` as it was at ``start``
    settled: float = 0.0  # when entries that its filter dropped were last acked
    rollbacks: int = 0
    done: int = 0  # transactions of the parser that were done with the last ack
    rows_got: int | None = 0
    rows_acked: int | None = 0
    auto: int = 0  # the batch that get() will ack at its next call
    over: bool = False  # the parts were stopped
    lock: threading.Lock = attrs.field(factory=threading.Lock)
    turn: threading.Lock = attrs.field(factory=threading.Lock)


class Instance:
    """One destination in this process: ``subscribe``, ``get_without_ack``, ``ack``, ``rollback``.

    Delivery is in the order of the source and at least once: the cursor moves only on ``ack``, and a restart begins at the
    cursor. Several clients may subscribe; each has its own place, batches and cursor, and the store keeps what the slowest
    has not acked. Methods may be called from any thread. Usable as a context manager.
    """

    #: What it was made from; None where it was composed of parts.
    config: InstanceConfig | None = None
    _health: SourceHealth | None = None
    _ha: RunningMonitor | None = None

    def __init__(self, config: InstanceConfig) -> None:
        self.config = config
        parser = BinlogParser(
            config.source,
            start=config.start,
            tables=config.table_filter(),
            fields=config.column_filter(),
            time_zone=config.time_zone,
            json_text=config.json == "text",
            backoff=config.reconnect_backoff,
            piece_bytes=min(4 << 20, max(config.store_bytes // 4, 1)),
            piece_entries=min(4096, max(config.store_entries // 4, 1)),
            alarm=config.alarm,
            shadow_tables=config.shadow_tables,
            history=config.history(),
            standby=config.standby,
            standby_start=config.standby_start,
            log_positions=config.log_positions
            or FailbackLogPositionManager(MemoryLogPositionManager(), MetaLogPositionManager(config.meta)),
            on_lost=config.on_lost,
            dump_error_threshold=config.dump_error_threshold,
            fallback_interval=config.fallback_interval,
        )
        heartbeat = config.heartbeat or (Heartbeat() if config.standby is not None else None)
        if heartbeat is not None:
            self._health = SourceHealth(heartbeat, parser.open_probe, parser.switch)
        sink = EntrySink(
            hooks=config.hooks,
            row_filter=config.row_filter,
            empty_interval=config.empty_transaction_interval,
            empty_count=config.empty_transaction_count,
        )
        store = MemoryStore(config.store_entries, config.store_bytes, isolate_ddl=config.isolate_ddl)
        self._compose(config.destination, parser, sink, store, config.meta, config.start_timeout)
        if config.ha is not None:
            alarms = AlarmDesk(config.alarm)
            alarms.reset(config.destination)
            tell = partial(alarms.tell, AlarmKind.FAILOVER)
            self._ha = RunningMonitor(config.ha, config.destination, _Parts(self), tell)

    @classmethod
    def compose(
        cls,
        destination: str,
        *,
        parser: EventParser,
        sink: Sink | None = None,
        store: EntryStore | None = None,
        meta: MetaManager | None = None,
        start_timeout: float = 30.0,
    ) -> Self:
        """An instance from parts; any of them may be the user's own class that meets the Protocol of the part."""
        self = cls.__new__(cls)
        for part, protocol in ((parser, EventParser), (sink, Sink), (store, EntryStore), (meta, MetaManager)):
            if part is not None and not isinstance(part, protocol):
                missing = [name for name in dir(protocol) if not name.startswith("_") and not hasattr(part, name)]
                raise ConfigError(f"{part!r} is no {protocol.__name__}: it lacks {', '.join(missing)}")
        self._compose(
            destination, parser, sink or EntrySink(), store or MemoryStore(), meta or MemoryMeta(), start_timeout
        )
        return self

    def _compose(
        self,
        destination: str,
        parser: EventParser,
        sink: Sink,
        store: EntryStore,
        meta: MetaManager,
        start_timeout: float,
    ) -> None:
        self.destination = destination
        self.parser = parser
        if isinstance(parser, BinlogParser):
            parser.oldest = self._oldest_cursor
        self.sink = sink
        self.store = store
        self.meta = meta
        self._start_timeout = start_timeout
        self._clients: dict[int, _Client] = {}
        self._lock = threading.Lock()
        self._started = False  # start() was called
        self._running = False  # the parts run: with ``ha`` in the active process only
        self._subscribed: dict[int, str | None] = {}  # with ``ha``: what is to be subscribed in each turn
        self._next_ids: dict[int, int] = {}
        self._started_at = 0.0
        self._tail: Position | None = None  # where the store begins when no client is left to say
        self._tail_done = 0

    # -- life -----------------------------------------------------------------------------------------------------

    def start(self) -> Self:
        """Start meta, store, sink and parser. Does not wait for the source to answer.

        With ``ha`` take part in the election instead; they are started when it is this process's turn.

        Raises:
            StateError: it is started already, or, with ``ha``, its last run has not ended yet.
        """
        with self._lock:
            if self._started:
                raise StateError("the instance is started already", destination=self.destination)
            self._started = True
        try:
            if self._ha is not None:
                self._ha.start()
            else:
                self._start_parts()
        except BaseException:
            self._started = False
            raise
        return self

    def _start_parts(self) -> None:
        with self._lock:
            self.meta.start(self.destination)
            self._clients = {}
            self._tail = None
            self._tail_done = 0
            try:
                self.store.start()
                self.sink.start(self.destination, self.store)
                resume = self._restore_clients()
                self.parser.start(self.destination, self.sink, resume, self.store.end)
                if self._health is not None:
                    self._health.start(self.destination)
            except BaseException:
                self.sink.stop()
                self.store.stop()
                self.meta.stop()
                raise
            self._started_at = time.monotonic()
            self._running = True
        log.info("[%s] started", self.destination)

    def stop(self) -> None:
        """End the parser, wake every waiting call with ``StateError``, write cursors. A second call does nothing."""
        with self._lock:
            if not self._started:
                return
            self._started = False
        if self._ha is not None:
            self._ha.stop()
        else:
            self._stop_parts()

    def _begin_turn(self, session: Session) -> None:
        """It is this process's turn: start the parts, and subscribe what was noted."""
        ha = self._ha
        assert ha is not None
        for part in (self.meta, getattr(self.parser, "history", None)):
            bind = getattr(part, "bind", None)
            if bind is not None:
                bind(session, lambda: ha.fence)
        self._start_parts()
        for client_id, filter in self._subscribed.items():
            known = self._clients.get(client_id)
            if known is None or filter not in (None, known.filter):
                self._subscribe(client_id, filter, self._start_timeout)

    def _stop_parts(self) -> None:
        with self._lock:
            if not self._running:
                return
            self._running = False
            for client in self._clients.values():
                with client.lock:  # an ack under way is done, and none is carried over into a later turn
                    client.over = True
                    self._next_ids[client.id] = client.next_id
        with contextlib.ExitStack() as parts:  # in reverse; each is stopped whatever another raises
            parts.callback(self.meta.stop)
            parts.callback(self.sink.stop)
            parts.callback(self.parser.stop)
            parts.callback(self.store.stop)
            if self._health is not None:
                parts.callback(self._health.stop)
        log.info("[%s] stopped", self.destination)

    def __enter__(self) -> Self:
        return self if self._started else self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def switch(self, reason: str = "by hand") -> bool:
        """Go on at the other one of source and standby; False, with an alarm, when it does not answer or there is none.

        By GTID set where both have GTIDs: nothing is lost and nothing repeated. Else the place is found by time and by the
        last transactions; see docs/start-positions.md.
        """
        self._check_running()
        switch = getattr(self.parser, "switch", None)
        if switch is None:
            raise StateError("this parser has no standby", destination=self.destination)
        return bool(switch(reason))

    # -- turns: which process is active -------------------------------------------------------------------------------

    @property
    def role(self) -> Role:
        """Whether this process is active for the destination; without ``ha`` it is whenever it runs."""
        if self._ha is not None:
            return self._ha.role
        return Role.ACTIVE if self._running else Role.OFFLINE

    def wait_active(self, timeout: float | None = None) -> bool:
        """Wait until this process is active; False when ``timeout`` seconds are over or the instance was stopped."""
        return self._running if self._ha is None else self._ha.wait_active(timeout)

    def release(self) -> None:
        """Let another process take over. This one stands by, and competes again after a while."""
        self._check_running()
        if self._ha is None:
            raise StateError("there is no other process: this instance has no ha", destination=self.destination)
        self._ha.release()

    @property
    def is_running(self) -> bool:
        """Between ``start`` and ``stop``, also while another process is active."""
        return self._started

    @property
    def is_exhausted(self) -> bool:
        """True when nothing will ever come again: the log has ended, or the parser has failed (see ``error``)."""
        return self.parser.is_finished and (self._ha is None or self._running)

    @property
    def error(self) -> CanalError | None:
        """What stopped the parser, or None. The next ``get`` that finds the store empty raises it."""
        return self.parser.error

    def _restore_clients(self) -> Position | None:
        """Clients with stored cursors go on from there; the parser resumes at the earliest of them."""
        cursors = {}
        for client_id in self.meta.subscriptions():
            cursor = self.meta.cursor(client_id)
            if cursor is not None:
                cursors[client_id] = cursor
        if not cursors:
            return None
        resume = earliest(cursors.values())
        for client_id, cursor in cursors.items():
            client = self._add_client(client_id, self.meta.subscriptions()[client_id], cursor, None)
            client.skip = None if cursor == resume else cursor
        return resume

    # -- subscriptions --------------------------------------------------------------------------------------------

    def subscribe(
        self, client_id: int = CLIENT_ID, filter: str | None = None, *, timeout: float | None = None, durable: bool = True
    ) -> None:
        """Bind a client to the destination; calling it again only changes the filter.

        ``filter`` narrows what this client gets, in the syntax of the instance's filter; "" is everything. None keeps the
        stored one, as canal does, also over restarts; for a new client it is "". When this returns the client's
        first cursor is stored, so that "latest" followed by a crash loses nothing. Waits for the start position up to
        ``timeout`` seconds (None: the config's ``start_timeout``).

        With ``durable=False`` the client is forgotten at ``stop``, and its cursor is never written: for a reader that keeps
        its place itself. With ``ha`` it lasts for one turn.

        Raises:
            ConnectionLostError: the source could not be reached in time (the parser goes on trying).
            CanalError: what stopped the parser.

        With ``ha``, while another process is active, it only notes what to subscribe when the turn comes.
        """
        TableFilter(filter or "")
        if self._ha is not None and not self._may_subscribe(client_id, filter, timeout, durable):
            return
        self._check_running()
        self._subscribe(client_id, filter, self._start_timeout if timeout is None else timeout, durable)

    def _subscribe(self, client_id: int, filter: str | None, timeout: float, durable: bool = True) -> None:
        with self._lock:
            client = self._clients.get(client_id)
        if client is None:
            started = self._wait_started(timeout)
        with self._lock:
            self._check_running()  # a stop may have come meanwhile
            client = self._clients.get(client_id)
            is_durable = durable if client is None else client.durable
            if filter is None:
                if client is not None:
                    if client.filter:
                        log.info("[%s] client %d keeps its filter %s", self.destination, client_id, client.filter)
                    return
                # It may be stored without a cursor.
                filter = self.meta.subscriptions().get(client_id, "") if is_durable else ""
            if is_durable:
                self.meta.subscribe(client_id, filter)
            if client is not None:
                with client.lock:
                    client.filter, client.narrow, client.accepted = filter, _narrowing(filter), {}
                return
            with contextlib.ExitStack() as still:
                for other in self._clients.values():  # an ack moves a place in the store, and then its cursor
                    still.enter_context(other.lock)
                slowest = self._slowest()
                cursor = slowest.cursor if slowest else self._tail or started
                if durable:
                    self.meta.update_cursor(client_id, cursor)
                client = self._add_client(client_id, filter, cursor, slowest.id if slowest else None)
                client.durable = durable
                client.done = self._tail_done
                if slowest is not None:
                    client.skip, client.done = slowest.skip, slowest.done
        if self._ha is not None:
            self._ha.clients_changed()
        log.info("[%s] client %d subscribed at %s", self.destination, client_id, cursor)

    def _wait_started(self, timeout: float) -> Position:
        """The parser's start; a stop of the instance ends the wait."""
        deadline = time.monotonic() + timeout
        while self._ha is not None and time.monotonic() < deadline - 0.2:
            try:
                return self.parser.wait_started(0.2)
            except ConnectionLostError:
                if not self._started or self.parser.is_finished:
                    raise
        return self.parser.wait_started(max(deadline - time.monotonic(), 0.0))

    def _may_subscribe(self, client_id: int, filter: str | None, timeout: float | None, durable: bool) -> bool:
        """Whether it is this process's turn, once that is known; the subscription is noted for later turns too."""
        assert self._ha is not None
        if not self._started:
            self._check_running()
        if durable:
            self._subscribed[client_id] = self._subscribed.get(client_id) if filter is None else filter
        deadline = time.monotonic() + (self._start_timeout if timeout is None else timeout)
        while not self._ha.wait_active(0.02):
            if self._ha.role in (Role.STANDBY, Role.WAITING, Role.RESTING) and self._ha.is_decided:
                return False
            if not self._started:
                self._check_running()
            if time.monotonic() >= deadline:
                raise CoordinationError(
                    f"it is not known yet which process is active: this one is {self._ha.role.value}",
                    destination=self.destination, remedy="Check that ZooKeeper can be reached; it goes on trying.",
                )  # fmt: skip
        return True

    def unsubscribe(self, client_id: int = CLIENT_ID) -> None:
        """Forget a client, its filter and its cursor, durably."""
        self._check_running()
        self._subscribed.pop(client_id, None)
        with self._lock:
            client = self._clients.pop(client_id, None)
            if client is None:
                return
            with client.lock:  # no ack is half done
                if not self._clients:
                    self._tail, self._tail_done = client.cursor, client.done
                if client.durable:
                    self.meta.unsubscribe(client_id)
                self.store.close(client_id)
        if self._ha is not None:
            self._ha.clients_changed()

    def subscriptions(self) -> dict[int, str]:
        """Client ids and their filters."""
        with self._lock:
            return {client.id: client.filter for client in self._clients.values()}

    def _add_client(self, client_id: int, filter: str, cursor: Position, like: int | None) -> _Client:
        self.store.open(client_id, like)
        client = _Client(id=client_id, filter=filter, cursor=cursor, got=cursor, narrow=_narrowing(filter))
        client.next_id = client.first_id = self._next_ids.get(client_id, 1)
        self._clients[client_id] = client
        return client

    def _oldest_cursor(self) -> Position | None:
        """The position before which no client will resume; None where none has subscribed yet."""
        with self._lock:
            try:
                slowest = self._slowest()
            except CursorError:  # clients on either side of a change of the source
                return None
            return slowest.cursor if slowest is not None else self._tail

    def _slowest(self) -> _Client | None:
        cursors = [(client.cursor, client) for client in self._clients.values()]  # an ack may move them meanwhile
        if not cursors:
            return None
        slowest = earliest(cursor for cursor, _ in cursors)
        return next(client for cursor, client in cursors if cursor is slowest)

    # -- delivery -------------------------------------------------------------------------------------------------

    def get_without_ack(
        self, batch_size: int = 1000, timeout: float | None = 0.0, linger: float = 0.0, *, client_id: int = CLIENT_ID
    ) -> Message:
        """The next batch: at most ``batch_size`` row changes, but at least one entry; ``id`` -1 when there is nothing.

        Waits up to ``timeout`` seconds for the first entry (0: not at all, None: for ever), and up to ``linger`` seconds
        longer to fill the batch. Several batches may be outstanding.

        Raises:
            CanalError: what stopped the parser, once everything before it has been handed out.
            StateError: the instance is not running, or was stopped meanwhile.

        With ``ha``, while another process is active, it waits and gives nothing, so one loop serves all processes.
        """
        if batch_size < 1:
            raise ConfigError(f"batch_size must be at least 1, not {batch_size}")
        if self._ha is None:
            return self._get(batch_size, timeout, linger, client_id)
        return self._get_in_turn(self._ha, batch_size, timeout, linger, client_id)

    def _get_in_turn(
        self, ha: RunningMonitor, batch_size: int, timeout: float | None, linger: float, client_id: int
    ) -> Message:
        """A batch that is handed out while it is this process's turn, which is asked as the last thing."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            left = None if deadline is None else max(deadline - time.monotonic(), 0.0)
            if not ha.wait_active(left):
                if not self._started:
                    self._check_running()
                return Message(-1, [])
            fence = ha.fence
            if not ha.wait_active(0.0):
                continue  # else the parts may be those of no turn, and not of the fence's
            try:
                message = self._get(batch_size, left, linger, client_id)
            except NotActiveError:
                ha.fenced(fence)
                continue
            except CanalError:
                if not self._started or (ha.may_pass and ha.fence is fence):
                    raise
                continue  # the turn has ended meanwhile
            if message and fence is not None and ha.may_pass and ha.fence is fence:
                message.epoch = fence.epoch
                return message
            if message:  # too late: another process may deliver it by now
                with contextlib.suppress(CanalError):
                    self.rollback(message.id, client_id=client_id)
            elif left is not None and deadline is not None and time.monotonic() >= deadline or self.is_exhausted:
                return message

    def _get(self, batch_size: int, timeout: float | None, linger: float, client_id: int) -> Message:
        client = self._client(client_id)
        deadline = None if timeout is None else time.monotonic() + timeout
        with client.turn:
            while True:
                seen = client.rollbacks
                finished = self.parser.is_finished  # before the look into the store: what it put in goes first
                left = None if deadline is None else deadline - time.monotonic()
                wait = left if client.unclaimed is None else _SETTLE if left is None else min(left, _SETTLE)
                slice = self._slice(client, batch_size, None if wait is None else max(wait, 0.0), linger)
                if slice.entries:
                    message = self._record(client, slice, seen)
                    if message is not None:
                        return message
                self._settle(client, seen, not slice.entries)
                # Passing over what is not for this client may take longer than waiting was to, but not for ever.
                over = deadline is not None and time.monotonic() >= deadline + (_SCAN if slice.entries else 0.0)
                if finished:  # to have found nothing means then that there is nothing
                    over = not slice.entries
                    if over and self.parser.error is not None:
                        raise self.parser.error
                if over:
                    return Message(-1, [])

    def get(
        self, batch_size: int = 1000, timeout: float | None = 0.0, linger: float = 0.0, *, client_id: int = CLIENT_ID
    ) -> Message:
        """As ``get_without_ack``, and acks by itself: each call acks the batch of the call before.

        A crash in between therefore repeats a batch and loses none.
        """
        with contextlib.suppress(NotActiveError):  # then another process delivers that batch
            self._ack_last(client_id)
        message = self.get_without_ack(batch_size, timeout, linger, client_id=client_id)
        if message:
            with contextlib.suppress(NotActiveError):
                self._client(client_id).auto = message.id
        return message

    def _ack_last(self, client_id: int) -> None:
        client = self._client(client_id)
        with client.lock:
            auto, others = client.auto, [id for id in client.batches if id != client.auto]
        if others:
            raise BatchError(
                f"client {client_id} has batches that are not acked: {others}",
                destination=self.destination, remedy="Ack or roll them back, or use get_without_ack.",
            )  # fmt: skip
        if auto:
            self.ack(auto, client_id=client_id)

    def ack(self, batch_id: int, *, client_id: int = CLIENT_ID) -> None:
        """Confirm the oldest outstanding batch. When it returns the cursor is durable (as the meta manager defines it).

        Acking the last acked id again, or -1, does nothing.

        Raises:
            BatchError: the id is unknown, or an older batch is outstanding. Nothing has changed.
            CursorError: the cursor could not be written. Nothing has changed; ack again.
            NotActiveError: with ``ha``: it is another process's turn, or was since the batch was handed out. It delivers
                from the last cursor.
        """
        if batch_id == -1 and self._started:
            return
        if self._ha is not None and self._started:
            try:
                self._ha.check(f"batch {batch_id} cannot be acked")
            except NotActiveError:
                self._disown(client_id)
                raise
        client = self._client(client_id)
        with client.lock:
            if client.over:
                self._check_running()
                raise self._too_late(batch_id)
            self._check_current(client)
            if batch_id == client.last_acked and batch_id not in client.batches:
                return
            batch = self._oldest(client, batch_id)
            fence = self._ha.fence if self._ha is not None else None
            try:
                if client.durable:
                    self.meta.update_cursor(client_id, batch.position)
            except NotActiveError:
                if self._ha is not None:
                    self._ha.fenced(fence)
                raise
            with contextlib.suppress(StoreClosedError):  # stopped meanwhile: the cursor is durable all the same
                self.store.ack(client_id, batch.end)
            client.cursor, client.done = batch.position, batch.done
            client.rows_acked = _plus(client.rows_acked, batch.rows)
            client.last_acked = batch_id
            del client.batches[batch_id]
            if client.auto == batch_id:
                client.auto = 0

    def _disown(self, client_id: int) -> None:
        """A refusal is final: if this process turns out to be active still, what is outstanding comes again, with new ids."""
        with contextlib.suppress(CanalError):
            self.rollback(client_id=client_id)
            client = self._client(client_id)
            client.first_id = client.next_id

    def _oldest(self, client: _Client, batch_id: int) -> _Batch:
        if batch_id not in client.batches and 0 < batch_id < client.first_id:
            raise self._too_late(batch_id)
        if batch_id not in client.batches:
            raise BatchError(
                f"batch {batch_id} is not outstanding for client {client.id}; outstanding are {list(client.batches)}",
                destination=self.destination,
                remedy="It was acked or rolled back before, or belongs to another client.",
            )
        oldest = next(iter(client.batches.values()))
        if oldest.id != batch_id:
            raise BatchError(
                f"batch {batch_id} cannot be acked before batch {oldest.id}",
                destination=self.destination,
                remedy="Ack in the order of delivery.",
            )
        return oldest

    def _too_late(self, batch_id: int) -> NotActiveError:
        return NotActiveError(
            f"batch {batch_id} was handed out before this process had to pause", destination=self.destination,
            remedy="What was not acked then is delivered again, by the process that is active.",
        )  # fmt: skip

    def rollback(self, batch_id: int | None = None, *, client_id: int = CLIENT_ID) -> None:
        """Hand out again: everything since the last ack, or batch ``batch_id`` and all after it (with new ids).

        Raises:
            BatchError: the id is not outstanding. Nothing has changed.
            NotActiveError: the batch was handed out in an earlier turn of this process.
        """
        client = self._client(client_id)
        with client.lock:
            if client.over:  # its store is closed, or is about to be
                self._check_running()
                if batch_id is None:
                    return
                raise self._too_late(batch_id)
            self._check_current(client)
            if batch_id is None:
                if not client.batches and client.unclaimed is None:
                    return
                first = next(iter(client.batches.values()), None)
            else:
                first = client.batches.get(batch_id)
                if first is None:
                    raise BatchError(
                        f"batch {batch_id} is not outstanding for client {client_id}", destination=self.destination
                    )
            if first is None:
                return
            self.store.rollback(client_id, first.start)
            for id in [id for id in client.batches if id >= first.id]:
                del client.batches[id]
            client.start = first.start
            client.open = first.open
            client.unclaimed = None
            client.begin = client.held = first.begin
            client.auto = 0
            last = next(reversed(client.batches.values()), None)
            client.got = last.position if last is not None else client.cursor
            client.rollbacks += 1

    def list_batches(self, client_id: int = CLIENT_ID) -> list[int]:
        """Ids of the outstanding batches, oldest first."""
        client = self._client(client_id)
        with client.lock:
            return list(client.batches)

    def position(self, client_id: int = CLIENT_ID) -> Position:
        """The client's cursor: everything before it is acked."""
        return self._client(client_id).cursor

    def status(self, source_timeout: float | None = None) -> InstanceStatus:
        """How everything stands, in any state and from any thread; it waits for no other call.

        With ``source_timeout`` the source is asked for the end of its log, over a connection of its own, and has so many
        seconds to answer; without it, or where the answer does not come, lag in bytes and transactions is None.
        """
        # From the clients to the source, and what is acked before what is got: each is at least as far as the one before.
        clients = [
            (client, client.cursor, client.done, client.rows_acked, client.got, client.rows_got)
            for client in list(self._clients.values())
        ]
        store: StoreStatus | None = self._told(self.store, StoreStatus)
        parser: ParserStatus | None = self._told(self.parser, ParserStatus, source_timeout)
        now = time.time()
        ha = self._ha
        return InstanceStatus(
            self.destination, self._state(parser), now,
            time.monotonic() - self._started_at if self._running else None,
            tuple(_client_status(*client, store, parser, now) for client in clients), store, parser, self.parser.error,
            None if ha is None else ha.role.value, {} if ha is None else {role.value: ha.transitions[role] for role in Role},
        )  # fmt: skip

    @staticmethod
    def _told(part: Any, kind: type[Any], *arguments: Any) -> Any:
        """What a part says of itself; None where it is the user's own and does not."""
        status = getattr(part, "status", None)
        found = status(*arguments) if callable(status) else None
        return found if isinstance(found, kind) else None

    def _state(self, parser: ParserStatus | None) -> State:
        if not self._running:
            return State.STOPPED
        if parser is not None:
            return parser.state
        if not self.parser.is_finished:
            return State.RUNNING
        return State.ENDED if self.parser.error is None else State.FAILED

    def _slice(self, client: _Client, batch_size: int, timeout: float | None, linger: float) -> Slice:
        try:
            return self.store.get(client.id, batch_size, timeout, linger)
        except CanalError as error:
            if not self._running:
                raise StateError("the instance was stopped", destination=self.destination) from error
            raise

    def _record(self, client: _Client, slice: Slice, seen: int) -> Message | None:
        """Make a batch of a slice; None when nothing of it is for this client, or a rollback came in between."""
        with client.lock:
            self._check_current(client)
            if client.rollbacks != seen:
                with contextlib.suppress(StoreClosedError):  # stopped meanwhile, as the next look into the store tells
                    self.store.rollback(client.id, client.start)
                return None
            last = slice.entries[-1]
            position, done = last.position, last.transaction.before + last.is_end
            entries = self._wanted(client, slice.entries)
            if client.skip is None:
                client.got = position
            if not entries:
                client.unclaimed = (position, slice.end, done)
                return None
            rows = slice.row_count if entries is slice.entries else sum(entry.row_count for entry in entries)
            client.rows_got = _plus(client.rows_got, rows)
            batch = _Batch(client.next_id, client.start, slice.end, position, rows, done, client.open, client.held)
            client.open = None if entries[-1].is_end else entries[-1].transaction
            client.next_id += 1
            client.batches[batch.id] = batch
            client.start = slice.end
            client.unclaimed = None
            client.held = client.begin
            return Message(batch.id, entries, position)

    def _settle(self, client: _Client, seen: int, idle: bool) -> None:
        """What the client's filter dropped since the last batch needs no ack by the user."""
        with client.lock:
            if client.over or client.unclaimed is None or client.batches or client.rollbacks != seen:
                return
            self._check_current(client)
            if not idle and time.monotonic() < client.settled + _SETTLE:
                return
            position, end, done = client.unclaimed
            if client.skip is None:  # else the cursor is ahead of what was dropped
                if client.durable:
                    self.meta.update_cursor(client.id, position)
                client.cursor, client.done = position, done
            self.store.ack(client.id, end)
            client.start, client.unclaimed, client.held = end, None, client.begin
            client.settled = time.monotonic()

    def _wanted(self, client: _Client, entries: list[Entry]) -> list[Entry]:
        if client.skip is not None:
            entries = self._unskipped(client, entries)
        begin, client.begin = client.begin, None
        if begin is not None and entries and entries[0].entry_type is not EntryType.TRANSACTIONBEGIN:
            if _same(entries[0].transaction, begin.transaction):
                entries = [begin, *entries]
        if client.narrow is None or not entries:
            return entries
        return self._narrowed(client, entries)

    def _narrowed(self, client: _Client, entries: list[Entry]) -> list[Entry]:
        """What passes the client's filter, with BEGIN and END of just those transactions of which something passes."""
        wanted = [entry.entry_type is EntryType.ROWDATA and self._accepts(client, entry) for entry in entries]
        alive = {id(entry.transaction) for entry, want in zip(entries, wanted) if want}
        if client.open is not None and _same(entries[0].transaction, client.open):
            alive.add(id(entries[0].transaction))
        last = entries[-1]
        if not last.is_end and id(last.transaction) not in alive:  # something of it may still come
            begins = (e for e in entries if e.entry_type is EntryType.TRANSACTIONBEGIN)
            client.begin = next((e for e in begins if e.transaction is last.transaction), None)
        return [
            entry
            for entry, want in zip(entries, wanted)
            if want or (entry.entry_type is not EntryType.ROWDATA and id(entry.transaction) in alive)
        ]

    @staticmethod
    def _accepts(client: _Client, entry: Entry) -> bool:
        assert client.narrow is not None
        if entry.statement is not None and entry.statement.doubtful:  # it may be about any table
            return True
        for name in entry.header.tables or ((entry.header.schema, ""),):
            decision = client.accepted.get(name)
            if decision is None:
                decision = client.accepted[name] = client.narrow.accepts(*name)
            if decision:
                return True
        return False

    @staticmethod
    def _unskipped(client: _Client, entries: list[Entry]) -> list[Entry]:
        """Leave out what the client acked before a restart, when the parser had to begin earlier for another client."""
        skip = client.skip
        assert skip is not None
        for number, entry in enumerate(entries):
            position = entry.position
            done = position.precedes(skip)
            if done is False and not skip.precedes(position):  # the same place: a BEGIN stands before its rows
                done = entry.is_end or entry.row_count > 0
            if not done:
                client.skip = None
                return entries[number:]
        return []

    # -- convenience ----------------------------------------------------------------------------------------------

    def stream(
        self, batch_size: int = 1000, linger: float = 0.0, *, client_id: int = CLIENT_ID, poll: float = 1.0
    ) -> Iterator[Message]:
        """Messages one after the other: each is acked when the loop comes round for the next.

        When the loop is left, by ``break`` or by an exception, the message in hand is rolled back and will come again.
        Ends when the source has ended (a file that is not followed); raises what stopped the parser.
        """
        with contextlib.suppress(NotActiveError):  # nothing is outstanding then
            self.rollback(client_id=client_id)
        return _Stream(self, batch_size, linger, client_id, poll)

    def consume(
        self,
        handler: Callable[[Message], Any],
        batch_size: int = 1000,
        linger: float = 0.0,
        *,
        retries: int = 0,
        client_id: int = CLIENT_ID,
    ) -> None:
        """Call ``handler`` with each message and ack it; on an exception roll back, try ``retries`` times, then re-raise.

        A retried message comes with the same changes and a new id. Returns when the source has ended.
        """
        failures = 0
        while True:
            stream = self.stream(batch_size, linger, client_id=client_id)
            try:
                for message in stream:
                    handler(message)
                    failures = 0
                return
            except CanalError:
                raise
            except Exception:
                failures += 1
                if failures > retries:
                    raise
                log.warning("[%s] the handler failed, attempt %d of %d", self.destination, failures, retries + 1,
                            exc_info=True)  # fmt: skip
            finally:
                stream.close()  # type: ignore[attr-defined]

    # -- checks ---------------------------------------------------------------------------------------------------

    def _check_running(self) -> None:
        if self._running:
            return
        if self._started and self._ha is not None:
            raise NotActiveError(
                f"this process is {self._ha.role.value}", destination=self.destination,
                remedy="Another process delivers; get waits until it is this one's turn.",
            )  # fmt: skip
        raise StateError("the instance is not running", destination=self.destination, remedy="Call start() first.")

    def _client(self, client_id: int) -> _Client:
        self._check_running()
        client = self._clients.get(client_id)
        if client is None:
            raise self._not_subscribed(client_id)
        return client

    def _check_current(self, client: _Client) -> None:
        """Raise where an unsubscribe came between the look at the client and its lock: another one may have its number."""
        if not client.over and self._clients.get(client.id) is not client:
            raise self._not_subscribed(client.id)

    def _not_subscribed(self, client_id: int) -> NotSubscribedError:
        return NotSubscribedError(
            f"client {client_id} is not subscribed", destination=self.destination, remedy="Call subscribe() first."
        )

    def __repr__(self) -> str:
        state = "running" if self._running else self.role.value if self._started else "stopped"
        return f"<Instance {self.destination} {state}>"


class _Parts:
    """An instance's parts as the monitor of the running node starts and stops them."""

    def __init__(self, instance: Instance) -> None:
        self._instance = instance

    def start_parts(self, session: Session, fence: Fence) -> None:
        self._instance._begin_turn(session)

    def clients(self) -> list[int]:
        return list(self._instance._clients)

    def stop_parts(self) -> None:
        try:
            self._instance._stop_parts()
        except CoordinationError as error:  # without contact, write-behind cursors cannot be written: they come again
            log.warning("[%s] stopped: %s", self._instance.destination, error)
        except Exception:
            log.exception("[%s] did not stop cleanly", self._instance.destination)


class _Stream(Iterator[Message]):
    """The iterator of :meth:`Instance.stream`; leaving it rolls back what is in hand."""

    def __init__(self, instance: Instance, batch_size: int, linger: float, client_id: int, poll: float) -> None:
        self._instance = instance
        self._options = (batch_size, poll, linger)
        self._client_id = client_id
        self._in_hand = -1

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Message:
        instance = self._instance
        with contextlib.suppress(NotActiveError):  # then another process delivers that message
            instance.ack(self._in_hand, client_id=self._client_id)
        self._in_hand = -1
        while True:
            finished = instance.is_exhausted
            message = instance.get_without_ack(*self._options, client_id=self._client_id)
            if message:
                self._in_hand = message.id
                return message
            if finished:
                raise StopIteration

    def close(self) -> None:
        """Roll back what is in hand; the next get hands it out again."""
        if self._in_hand != -1 and self._instance.is_running:
            in_hand, self._in_hand = self._in_hand, -1
            try:
                self._instance.rollback(in_hand, client_id=self._client_id)
            except (BatchError, NotSubscribedError, NotActiveError, StateError):
                pass  # the user acked or rolled back by hand, unsubscribed or stopped, or another process is active

    def __del__(self) -> None:
        self.close()


def _client_status(
    client: _Client,
    acked: Position,
    done: int,
    rows_acked: int | None,
    got: Position,
    rows_got: int | None,
    store: StoreStatus | None,
    parser: ParserStatus | None,
    now: float,
) -> ClientStatus:
    place = store.places.get(client.id) if store is not None else None
    entries = transactions = unacked_age = ungot_age = None
    if store is not None and place is not None:
        entries = store.put_entries - place.acked
        if parser is not None and client.skip is None:
            transactions = max(store.transactions - done, 0) if entries else 0
        if parser is not None:
            unacked_age, ungot_age = (
                _age(since, parser, now) for since in (place.oldest_unacked, place.oldest_ungot)
            )
    end = parser.end if parser is not None else None
    return ClientStatus(
        client.id, client.filter, got, acked, len(client.batches),
        Lag(unacked_age, end.bytes_behind(acked) if end else None, end.transactions_behind(acked) if end else None),
        entries, transactions, ungot_age, rows_got, rows_acked, client.rollbacks,
    )  # fmt: skip


def _age(since: int | None, parser: ParserStatus, now: float) -> float | None:
    """Age of an entry by the source's clock, which is not less than the lag of what is received."""
    if since is None or parser.lag.seconds is None:
        return parser.lag.seconds
    return max(now + parser.clock_offset - since, parser.lag.seconds)


def _plus(count: int | None, more: int | None) -> int | None:
    return None if count is None or more is None else count + more


def _narrowing(filter: str) -> TableFilter | None:
    return TableFilter(filter) if filter else None


def _same(one: Transaction, other: Transaction) -> bool:
    """Whether two objects are one transaction: after a lost connection the rest of a large one comes with a new object."""
    return one is other or (one.journal, one.offset, one.source) == (other.journal, other.offset, other.source)
