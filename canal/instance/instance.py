"""The Instance: the parser, sink, store and meta of one destination, and its clients.

This module wires the parts together and decides when they run. :mod:`canal.instance.delivery` hands out batches and
acknowledges them.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Iterator
from functools import partial
from importlib import import_module
from typing import Any, Self, TypeVar

from canal._util.lifecycle import Life, Steps
from canal._util.ownership import claim
from canal._util.threads import as_own
from canal.alarm import Alarm, AlarmDesk, log_alarm
from canal.changes.change import Change
from canal.config import InstanceConfig, check_shared, check_start
from canal.errors import CanalError, ConfigError, ConnectionLostError, CoordinationError, StateError
from canal.filter import TableFilter
from canal.formats.message import Message
from canal.ha import Heartbeat, Role, RunningMonitor, SourceHealth
from canal.instance.calls import Calls
from canal.instance.catch_up import line_config
from canal.instance.clients import Clients
from canal.instance.consume import Crew, Handling, Key, ParallelConsumer
from canal.instance.context import ClientContext
from canal.instance.decode_ahead import Decoded
from canal.instance.delivery import Delivery, Taken, check_client_id
from canal.instance.feed import Feed
from canal.instance.ha_turns import Turns
from canal.instance.parts import Parts
from canal.instance.readers import Readers
from canal.instance.stream import ChangeIterator, Stream, consume
from canal.instance.wiring import parser_of, sink_of, store_of
from canal.meta import MemoryMeta, MetaManager, ZooKeeperMeta
from canal.model import Entry
from canal.parse.parser import EventParser, wait_for_rest
from canal.position import Position
from canal.sink import Sink
from canal.status import InstanceStatus, ParserStatus, State, StoreStatus
from canal.store import EntryStore, MemoryStore
from canal.zookeeper.session import Fence, Session, ZooKeeper

log = logging.getLogger("canal")

_Made = TypeVar("_Made")

#: The default client id, as in canal.
CLIENT_ID = 1001


class Instance:
    """One destination in this process: ``subscribe``, ``get_without_ack``, ``ack``, ``rollback``.

    Delivery is at least once and in source order. Only ``ack`` moves the cursor, and a restart resumes at the cursor.
    Several clients may subscribe, each with separate batches and a separate cursor. The store keeps each entry until the
    slowest client has acknowledged it. All methods are thread-safe. An Instance is a context manager.
    """

    #: The config it was created from, or None if it was composed from parts.
    config: InstanceConfig | None = None
    _healths: tuple[SourceHealth, ...] = ()
    _ha: RunningMonitor | None = None
    _turns: Turns | None = None

    def __init__(self, config: InstanceConfig) -> None:
        if not isinstance(config, InstanceConfig):  # the message omits the value, which may contain a password
            raise ConfigError(
                f"Instance takes a canal.InstanceConfig, not {type(config).__name__}",
                remedy="Use Instance(InstanceConfig(destination=…, source=MySQLSource.from_url(url))), or canal.connect(url).",
            )
        self.config = config
        parser = parser_of(config)
        self._configure(config, parser)
        self._healths = self._parts.watch(config.heartbeat or Heartbeat(), without_standby=config.heartbeat is not None)
        if config.ha is not None:
            self._take_turns(RunningMonitor(config.ha, config.destination, _TurnParts(self), self._alarms))

    @classmethod
    def _of_output(cls, config: InstanceConfig, parser: EventParser) -> Self:
        """Create an Instance that reads from an output of a :class:`canal.server.RouterSink`."""
        self = cls.__new__(cls)
        self._configure(config, parser)
        return self

    def _configure(self, config: InstanceConfig, parser: EventParser) -> None:
        parts = Parts(parser, sink_of(config), store_of(config, lambda held: self._clients.held_back(held)), config.meta)
        self._compose(config.destination, parts, config.start_timeout, config.alarm)

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
        heartbeat: Heartbeat | None = None,
        ha: ZooKeeper | None = None,
        alarm: Alarm = log_alarm,
    ) -> Self:
        """Create an instance from parts. Each part may be any class that implements the part's Protocol.

        The default sink drops statements about tables that a parser masks; another sink must have the same masks.
        docs/how-to/your-own-parts.md lists the optional capabilities of each part.

        Args:
            heartbeat: watches each source that has a standby, including the members of a group.
            ha: elects one process per destination. The parts start in the elected process and restart with each turn.
                The default ``meta`` is then a ``ZooKeeperMeta``. Unless the source has ``binlog_row_metadata=FULL``, give each
                ``BinlogParser`` a :class:`canal.parse.ZooKeeperHistory`.
            alarm: receives alarms about elections. Each parser has a separate alarm.

        Raises:
            ConfigError: a part does not implement its Protocol, or lacks a capability that another option needs.
        """
        self = cls.__new__(cls)
        if ha is not None and meta is None:
            meta = ZooKeeperMeta(ha)
        parts = Parts(parser, sink, MemoryStore() if store is None else store, MemoryMeta() if meta is None else meta)
        if ha is not None:
            check_shared(parts.meta, *parts.histories)
        self._compose(destination, parts, start_timeout, alarm)
        if ha is not None:
            self._take_turns(RunningMonitor(ha, destination, _TurnParts(self), self._alarms))
        if heartbeat is not None:
            self._healths = parts.watch(heartbeat, without_standby=False)
        return self

    def _compose(self, destination: str, parts: Parts, start_timeout: float, alarm: Alarm) -> None:
        self.destination = destination
        self.parser, self.sink, self.store, self.meta = parts.parser, parts.sink, parts.store, parts.meta
        self._parts = parts
        self._alarms = AlarmDesk(alarm)
        self._alarms.reset(destination)
        self._start_timeout = start_timeout
        self._life = Life(destination, self._begin, self._end, start_timeout)
        self._steps = Steps()  # they end the run of the parts
        self._context = ClientContext(destination, parts, self._alarms, self._life, self._open_feed)
        self._clients = clients = Clients(self._context, parts.meta)
        self._calls = Calls(self._context, clients)
        on_lost = None if self.config is None or parts.merging is not None else self.config.on_lost
        if (aware := parts.client_aware) is not None:
            aware.oldest, aware.marks, aware.translated, aware.lost = (
                clients.oldest_cursor,
                clients.marks,
                clients.translate,
                partial(clients.lost, on_lost),
            )
        if parts.merging is not None:
            parts.merging.joined = clients.add_members

    def _take_turns(self, ha: RunningMonitor) -> None:
        """Run the parts only while ``ha`` elects this process."""
        self._ha = self._context.ha = ha
        self._turns = self._calls.turns = Turns(ha, self._context, self._alarms, self._calls.client)

    # -- life -----------------------------------------------------------------------------------------------------

    def start(self) -> Self:
        """Start meta, store, sink and parser, without waiting for the source to answer.

        With ``ha``, join the election instead: the parts start once this process is elected. If another thread is stopping the
        instance, wait up to ``start_timeout`` seconds for that to finish.

        Raises:
            StateError: the instance is already started, its last run has not ended, another thread stopped it meanwhile, or
                another instance uses one of the parts.
        """
        self._life.start()
        return self

    def stop(self) -> None:
        """Stop the parser, raise ``StateError`` in every waiting call and write the cursors. A second call is a no-op.

        Everything has ended when ``stop`` returns. There is one exception: called from your own callback (an alarm, a hook, a
        row filter or a sink), ``stop`` returns at once, the run ends when the callback returns, and ``start`` raises until then.
        If ``stop`` is interrupted, for example by a second Ctrl-C, call it again.
        """
        self._life.stop()

    def _begin(self) -> None:
        if self._ha is not None:
            self._ha.start()
        else:
            self._start_parts()

    def _end(self) -> None:
        if self._ha is not None and self._turns is not None:
            self._ha.stop()
            self._turns.forget()  # a cursor that is deleted while we are stopped must stay deleted
        else:
            self._stop_parts()

    def _start_parts(self) -> None:
        steps = self._steps = Steps()
        try:
            steps.add(claim(self, self.destination, *self._parts.exclusive))
            steps.add(self.meta.stop)
            try:
                self.meta.start(self.destination)
            except StateError:  # another user of this meta manager has started it
                steps.drop(self.meta.stop)
                raise
            self._clients.clear()
            steps.add(self.store.stop, self.parser.stop, self.sink.stop)
            self.store.start()
            self.sink.start(self.destination, self.store)
            if self._turns is not None:
                self._turns.restore(self.meta)
            resume = self._clients.restore()
            self.parser.start(self.destination, _OwnSink(self.sink), resume, self.store.end)
            for health in self._healths:
                steps.add(health.stop)
                health.start(self.destination)
            with self._clients.lock:
                self._context.note_start()
        except BaseException:
            with contextlib.suppress(Exception):  # raise the first error
                self._stop_parts()
            raise
        log.info("[%s] started", self.destination)

    def _begin_parts(self, session: Session) -> None:
        """Start the parts for a turn of this process."""
        assert self._turns is not None
        self._turns.begin(session, (self.meta, *self._parts.histories))
        self._start_parts()

    def _stop_parts(self) -> None:
        with self._clients.lock:
            was_running, self._context.parts_run = self._context.parts_run, False
            if self._turns is not None and was_running:
                self._turns.forget()
            keep = self._turns.keep if self._turns is not None and was_running else _nothing
            self._clients.end(keep)
        self._steps.add(*(client.end_feeds for client in self._clients.all()))
        self._steps.carry_out()
        if was_running:
            log.info("[%s] stopped", self.destination)

    def __enter__(self) -> Self:
        self._life.start(once=False)
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def switch(self, reason: str = "by hand") -> bool:
        """Switch from the source to the standby, or back. Return False and raise an alarm if the other server does not answer.

        If both servers have GTIDs, the stream resumes by GTID set without loss or repetition. Otherwise the position is found
        by time and by the last transactions: see docs/start-positions.md.

        Raises:
            StateError: the instance is not running, or the parser has no standby.
        """
        self._context.check_running()
        switch = self._parts.parser_info.switch
        if switch is None:
            raise StateError("this parser has no standby", destination=self.destination)
        return bool(switch(reason))

    # -- turns: which process is active -------------------------------------------------------------------------------

    @property
    def role(self) -> Role:
        """The role of this process. Without ``ha`` a running instance is always active."""
        if self._life.is_elsewhere:
            return Role.OFFLINE
        if self._ha is not None:
            return self._ha.role
        return Role.ACTIVE if self._context.parts_run else Role.OFFLINE

    def wait_active(self, timeout: float | None = None) -> bool:
        """Wait until this process is active. Return False after ``timeout`` seconds, or if the instance is stopped."""
        self._life.check_process()
        return self._context.parts_run if self._ha is None else self._ha.wait_active(timeout)

    def _wait_turn(self, timeout: float) -> Fence | None:
        """Wait until this process is active. Return the fence of its turn, or None if the time is over or there is no ``ha``.

        Raises:
            StateError: the instance is not running.
        """
        if self._ha is None or not self._ha.wait_active(timeout):
            if not self.is_running:
                self._context.check_running()
            return None
        return self._ha.fence

    def release(self) -> None:
        """Let another process take over. This process becomes a standby and joins the election again after a pause."""
        self._context.check_running()
        if self._ha is None:
            raise StateError("there is no other process: this instance has no ha", destination=self.destination)
        self._ha.release()

    @property
    def is_running(self) -> bool:
        """True between ``start`` and ``stop``, even while another process is active."""
        return self._life.is_up

    @property
    def is_exhausted(self) -> bool:
        """True if the store receives no more entries: the log has ended, or the parser has failed (see ``error``).

        Entries in the store are still delivered. A loop may end when a ``get`` that began after this was true returns empty.
        """
        return self._context.is_exhausted

    def _is_over(self, client_id: int) -> bool:
        """Like ``is_exhausted`` for one client. A client that catches up over its own connection is not over."""
        return self._calls.is_over(client_id)

    @property
    def error(self) -> CanalError | None:
        """The error that stopped the parser, or None. The next ``get`` that finds the store empty raises it."""
        return self.parser.error

    # -- subscriptions --------------------------------------------------------------------------------------------

    def subscribe(
        self, client_id: int = CLIENT_ID, filter: str | None = None, *, timeout: float | None = None, durable: bool = True
    ) -> None:
        """Subscribe a client to the destination, or change the filter of a subscribed client.

        The first cursor is durable when ``subscribe`` returns, so a crash after a start at "latest" loses nothing. With ``ha``,
        a standby only records the subscription and applies it when it becomes active.

        Args:
            filter: tables that this client receives, in the syntax of the instance's filter. "" passes all tables. None keeps the
                stored filter, as in canal, or means "" for a new client.
            timeout: seconds to wait for the start position. None: ``start_timeout`` of the config.
            durable: if False, the cursor is never written and the client ends at ``stop`` (with ``ha``: at the end of the
                turn). For readers that store their position themselves.

        Raises:
            ConnectionLostError: the source did not answer in time. The parser keeps trying.
            CanalError: the error that stopped the parser.
        """
        check_client_id(client_id)
        TableFilter(filter or "")
        seconds = self._start_timeout if timeout is None else timeout
        if self._turns is None or self._turns.may_subscribe(client_id, filter, seconds, durable):
            self._context.check_running()
            self._subscribe(client_id, filter, seconds, durable)
        if self._turns is not None and durable:
            self._turns.note(client_id, self.meta)

    def _subscribe(self, client_id: int, filter: str | None, timeout: float, durable: bool = True) -> None:
        is_new = self._clients.subscribe(client_id, filter, durable, lambda: self._wait_started(timeout))
        if is_new and self._ha is not None:
            self._ha.clients_changed()

    def _wait_started(self, timeout: float) -> Position:
        """Wait for the parser's start position. A stop of the instance ends the wait."""
        deadline = time.monotonic() + timeout
        try:
            while self._ha is not None and time.monotonic() < deadline - 0.2:
                try:
                    return self.parser.wait_started(0.2)
                except ConnectionLostError:
                    if not self.is_running or self.parser.is_finished:
                        raise
            return wait_for_rest(self.parser, deadline - time.monotonic(), timeout)
        except StateError:  # the parser was stopped
            self._context.check_running()
            raise

    def unsubscribe(self, client_id: int = CLIENT_ID) -> None:
        """Delete a client, its filter and its cursor durably. If it subscribes again, its batch ids continue."""
        self._context.check_running()
        if self._turns is not None:
            self._turns.noted.pop(client_id, None)
        if self._clients.unsubscribe(client_id) and self._ha is not None:
            self._ha.clients_changed()

    def subscriptions(self) -> dict[int, str]:
        """Return the filter of each client id."""
        self._life.check_process()
        with self._clients.lock:
            return {client.id: client.filter for client in self._clients.all()}

    def _resume(self, client_id: int, cursor: Position) -> None:
        """Subscribe a client that stores its cursor itself, as with ``durable=False``, at that cursor.

        The client reads from the store, or over its own connection until it has caught up. ``get`` raises PositionLostError if
        the source has purged the log after the cursor.
        """
        self._context.check_running()
        self._clients.resume(client_id, cursor)

    def _name_clients(self, named: Callable[[int], str]) -> None:
        """Set the names of clients in alarms."""
        self._context.name_of = named

    # -- clients that read over their own connection -----------------------------------------------------------------

    def seek(self, client_id: int, to: str | Position, *, timeout: float | None = None) -> Position:
        """Move the cursor of a client, forward or back, and return the new cursor. It is durable then.

        Outstanding batches can no longer be acknowledged. The client reads over its own connection until it has caught up with
        the store.

        Args:
            to: "earliest", "latest" or a :class:`Position`, which may have only a ``timestamp`` (milliseconds since 1970).
            timeout: seconds to wait for the source. None: ``start_timeout`` of the config.

        Raises:
            PositionLostError: the source has purged the log at that position. The cursor is unchanged.
            ConnectionLostError: the source did not answer in time. The cursor is unchanged.
            CursorError: the cursor could not be written. The cursor is unchanged.
        """
        client = self._client(client_id)
        check_start(None, None, to)
        seconds = self._start_timeout if timeout is None else timeout
        opened: list[Feed] = []
        try:
            instance, feed = self._open_line(client_id, to, opened, is_cursor=False)
            instance.subscribe(client_id, timeout=seconds)
            position = instance.position(client_id)
            self._clients.seek(client, feed, position)
        except BaseException:
            client.feeds.extend(opened)  # end_feeds() below ends it, unless the client reads it
            raise
        finally:
            client.end_feeds()
        log.info("[%s] client %d goes on at %s", self.destination, client_id, position)
        return position

    def _open_line(self, client_id: int, start: str | Position, feeds: list[Feed], is_cursor: bool) -> tuple[Instance, Feed]:
        """Start a private Instance for one client.

        Args:
            feeds: the new feed is appended before the Instance starts, so that an interrupted caller can stop it.
            is_cursor: whether the start is the client's cursor.
        """
        if self.config is None or self._parts.merging is not None:
            what = "reads a group" if self.config is not None else "was composed from parts"
            raise StateError(
                f"a client cannot read over its own connection: the instance {what}",
                destination=self.destination,
                remedy="Create the instance from an InstanceConfig with one source.",
            )
        name, source = self._context.name_of(client_id), self._context.source
        instance = Instance(line_config(self.config, source, client_id, start, is_cursor, name))
        instance._name_clients(lambda client_id: name)
        feeds.append(Feed(instance.parser, instance.store, instance.stop, source))
        instance.start()
        return instance, feeds[-1]

    def _open_feed(self, client_id: int, position: Position, feeds: list[Feed]) -> Feed:
        log.info("[%s] client %d continues at %s over its own connection", self.destination, client_id, position)
        return self._open_line(client_id, position, feeds, is_cursor=True)[1]

    # -- delivery -------------------------------------------------------------------------------------------------

    def get_without_ack(
        self, batch_size: int = 1000, timeout: float | None = 0.0, linger: float = 0.0, *, client_id: int = CLIENT_ID
    ) -> Message:
        """Return the next batch without acknowledging it. Several batches may be outstanding.

        With ``ha``, a standby waits and returns no entries, so the same loop serves all processes.

        Args:
            batch_size: row changes at most; a batch has at least one entry.
            timeout: seconds to wait for the first entry. 0: do not wait. None: wait for ever.
            linger: further seconds to wait for a full batch.

        Returns:
            The batch. Its ``id`` is -1 if there are no entries.

        Raises:
            CanalError: the error that stopped the parser, after all entries before it were returned.
            StateError: the instance is not running or was stopped, or a stream, a pipe or ``consume`` reads this client.
        """
        self._calls.readers.check(client_id)
        return self._calls.read(batch_size, timeout, linger, client_id)

    def get(
        self, batch_size: int = 1000, timeout: float | None = 0.0, linger: float = 0.0, *, client_id: int = CLIENT_ID
    ) -> Message:
        """Like ``get_without_ack``, but each call acknowledges the batch of the previous call.

        A crash between two calls repeats one batch and loses none. Call ``get`` only after the previous batch is processed.
        Threads that process batches concurrently need one client each.
        """
        return self._calls.get_and_ack(batch_size, timeout, linger, client_id)

    def ack(self, batch_id: int | Message, *, client_id: int = CLIENT_ID) -> None:
        """Acknowledge the oldest outstanding batch. The cursor is durable (as the meta manager defines it) on return.

        Acknowledging the last acknowledged id again, or -1, is a no-op.

        Args:
            batch_id: the id of the batch, or its message.

        Raises:
            BatchError: the id is unknown, or an older batch is outstanding. The cursor is unchanged.
            CursorError: the cursor could not be written. The cursor is unchanged; acknowledge again.
            NotActiveError: with ``ha``: another process is or was active since the batch was returned. The active process
                delivers from the last cursor.
        """
        self._calls.ack(batch_id, client_id=client_id)

    def rollback(self, batch_id: int | Message | None = None, *, client_id: int = CLIENT_ID) -> None:
        """Deliver outstanding batches again, with new ids.

        Args:
            batch_id: the id or the message of the first batch to deliver again. None: all batches since the last ack.

        Raises:
            BatchError: the batch is not outstanding.
            NotActiveError: the batch was returned in an earlier turn of this process.
        """
        self._calls.rollback(batch_id, client_id=client_id)

    def list_batches(self, client_id: int = CLIENT_ID) -> list[int]:
        """Return the ids of the outstanding batches, oldest first."""
        return self._client(client_id).outstanding()

    def position(self, client_id: int = CLIENT_ID) -> Position:
        """Return the client's cursor: all entries before it are acknowledged."""
        return self._client(client_id).cursor

    def status(self, source_timeout: float | None = None) -> InstanceStatus:
        """Return the state of the instance and its parts. It never waits for another call and works in any state.

        Args:
            source_timeout: seconds to wait for the source's end of log, over a separate connection. None: do not query the
                source. The lag in bytes and transactions is None if the end of log is unknown.
        """
        self._life.check_process()
        complete = self._parts.parser_info.complete_to or None  # read before the status of the store
        # Read the clients first and the source last, so that each position is at least as far as the one before.
        clients = [(client, client.state) for client in self._clients.all()]
        got = {client.id: state.reading.start for client, state in clients}
        store: StoreStatus | None = self._parts.status_of(self.store, StoreStatus, got)
        parser: ParserStatus | None = self._parts.status_of(self.parser, ParserStatus, source_timeout)
        now = time.time()
        ha = self._ha
        return InstanceStatus(
            self.destination,
            _state_of(self, parser),
            now,
            self._context.uptime,
            tuple(client.status(state, store, parser, now, complete) for client, state in clients),
            store,
            parser,
            self.parser.error or (None if ha is None else ha.error),
            None if ha is None else ha.role.value,
            {} if ha is None else {role.value: ha.transitions[role] for role in Role},
            self._alarms.count + (0 if parser is None else parser.alarms),
        )

    # -- convenience ----------------------------------------------------------------------------------------------

    def stream(self, batch_size: int = 1000, linger: float = 0.0, *, client_id: int = CLIENT_ID, poll: float = 1.0) -> Stream:
        """Iterate over messages. Each message is acknowledged when the loop asks for the next one.

        Leaving the loop by ``break`` or by an exception rolls back the current message, so it is delivered again. The loop ends
        when the source ends (a file that is not followed) and raises the error that stopped the parser.

        If a signal handler may raise and the loop must continue afterwards, use ``for`` instead of ``next(stream)``. An exception
        between the return of ``next`` and the assignment would lose a message that the following call acknowledges.

        Raises:
            StateError: another stream, a pipe or ``consume`` reads this client. ``close()`` ends an abandoned stream.
        """
        stream = Stream(self._calls, batch_size, linger, client_id, poll)
        stream.begin()
        return stream

    def pipe(self, target: Any, **options: Any) -> Any:
        """Return ``canal.pipe(self, target, **options)``, which writes changes to a target from ``canal.targets``."""
        return import_module("canal.pipes").pipe(self, target, **options)

    def decoded(
        self,
        decode: Callable[[Message], _Made],
        batch_size: int = 1000,
        linger: float = 0.0,
        *,
        decode_threads: int = 2,
        client_id: int = CLIENT_ID,
        poll: float = 1.0,
    ) -> Decoded[_Made]:
        """Iterate over pairs of a message and ``decode(message)``, in log order. Otherwise like ``stream``.

        ``decode_threads`` threads decode ahead, one message each, which helps if ``decode`` releases the GIL, as
        ``Message.to_arrow`` does. An exception in ``decode`` is raised when the loop reaches its message. Besides the current
        message, up to ``decode_threads`` messages are outstanding. All of them are delivered again when the loop is left.
        """
        return Decoded(self._calls, decode, decode_threads, batch_size, linger, client_id, poll)

    def changes(
        self,
        batch_size: int = 1000,
        linger: float = 0.0,
        *,
        statements: bool = False,
        client_id: int = CLIENT_ID,
        poll: float = 1.0,
    ) -> Iterator[Change]:
        """Iterate over changed rows as :class:`canal.Change`: table, op, before, after, key, position.

        A message is acknowledged when the loop asks for the change after its last one. Leaving the loop delivers the whole
        message again. Otherwise like ``stream``.

        Args:
            statements: also yield statements, for which ``change.op.is_row`` is False.

        Raises:
            UnloggedChangeError: without ``statements``, a statement changed rows that are not in the log, such as TRUNCATE,
                DROP, or an UPDATE that was logged as text.
        """
        return ChangeIterator(self.stream(batch_size, linger, client_id=client_id, poll=poll), statements)

    def consume(
        self,
        handler: Callable[[Any], Any],
        batch_size: int = 1000,
        linger: float = 0.0,
        *,
        retries: int = 0,
        backoff: tuple[float, float] = (0.1, 30.0),
        on_unfit: Callable[[Any, Exception], Any] | None = None,
        client_id: int = CLIENT_ID,
        workers: int | None = None,
        key: str | Key = "primary key",
        in_flight: int = 10_000,
        statements: bool = False,
    ) -> None:
        """Call ``handler`` with each message and acknowledge it. Return when the source ends.

        If ``handler`` raises, the message is rolled back and retried: the same changes, perhaps followed by more, under a new id.
        Errors of this library are raised at once.

        With ``workers``, threads call ``handler`` with one :class:`canal.Change` each. Changes of one key run in source order,
        changes of different keys concurrently. A failed change is retried alone, and only changes of its key wait. A batch is
        acknowledged when it and all batches before it are done, so a crash may repeat changes that were done out of order.

        Args:
            retries: attempts after the first one.
            backoff: seconds before the first retry, doubled for each further one, and the maximum.
            on_unfit: called with the message (with ``workers``: the change) and the error after the last retry; when it returns,
                the message is acknowledged. None: raise the error.
            workers: number of threads. None: call ``handler`` with whole messages in this thread.
            key: "primary key", or a function from a change to its ordering key (None: unordered). An update of a primary key
                waits for the changes of both keys. All changes of a table without a primary key share one key.
            in_flight: unacknowledged changes at most, plus one batch.
            statements: with ``workers``, also pass statements. No other change runs at the same time.

        Raises:
            UnloggedChangeError: with ``workers`` and without ``statements``, as in ``changes``.
        """
        if workers is not None:
            handle = Handling(handler, retries, backoff, on_unfit)
            crew = partial(Crew, f"canal-{self.destination}-worker", workers, handle)
            ParallelConsumer(self._calls, crew, workers, key, in_flight, statements, batch_size, linger, client_id).run()
            return
        consume(self._calls, handler, retries, backoff, on_unfit, batch_size, linger, client_id)

    # -- for canal.aio, pipes and spark ------------------------------------------------------------------------------

    @property
    def _readers(self) -> Readers:
        return self._calls.readers

    def _client(self, client_id: int) -> Delivery:
        return self._calls.client(client_id)

    def _get(self, batch_size: int, timeout: float | None, linger: float, client_id: int, taken: list[Taken]) -> Message:
        return self._calls.get(batch_size, timeout, linger, client_id, taken)

    def _read(self, batch_size: int, timeout: float | None, linger: float, client_id: int) -> Message:
        return self._calls.read(batch_size, timeout, linger, client_id)

    def __repr__(self) -> str:
        state = "running" if self._context.parts_run else self.role.value if self.is_running else "stopped"
        return f"<Instance {self.destination} {state}>"


def subscribe_noted(instance: Instance) -> None:
    """Subscribe the clients that were recorded for each turn."""
    turns = instance._turns
    assert turns is not None
    for client_id, filter in turns.wanted(instance.meta):
        known = instance._clients.get(client_id)
        if known is None or filter not in (None, known.filter):
            instance._subscribe(client_id, filter, instance._start_timeout)
            turns.note(client_id, instance.meta)


def _state_of(instance: Instance, parser: ParserStatus | None) -> State:
    if not instance._context.parts_run:
        return State.STOPPED
    if parser is not None:
        return parser.state
    if not instance.parser.is_finished:
        return State.RUNNING
    return State.ENDED if instance.parser.error is None else State.FAILED


def _nothing(client: Delivery) -> None:
    pass


class _OwnSink:
    """Marks the parser's thread as ours while it is inside the sink, for parsers that run in a user's thread."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink

    def start(self, destination: str, store: EntryStore) -> None:
        self._sink.start(destination, store)

    def stop(self) -> None:
        self._sink.stop()

    def sink(self, entries: list[Entry]) -> None:
        with as_own():
            self._sink.sink(entries)

    def restart(self) -> None:
        self._sink.restart()


class _TurnParts:
    """Starts and stops an instance's parts for the running-node monitor."""

    def __init__(self, instance: Instance) -> None:
        self._instance = instance

    def start_parts(self, session: Session, fence: Fence) -> None:
        self._instance._begin_parts(session)
        subscribe_noted(self._instance)

    def clients(self) -> list[int]:
        return [client.id for client in self._instance._clients.all()]

    def stop_parts(self) -> None:
        try:
            self._instance._stop_parts()
        except CoordinationError as error:  # write-behind cursors are lost without ZooKeeper, so their batches repeat
            log.warning("[%s] stopped: %s", self._instance.destination, error)
        except Exception:
            log.exception("[%s] did not stop cleanly", self._instance.destination)
