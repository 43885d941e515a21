"""The Instance: parser, sink, store and meta of one destination, composed; its clients, and whose turn it is.

Never decodes and never reads a socket. Only here the parts are wired together; what a client is handed and acks is
:mod:`canal.instance.delivery`'s.
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

#: The client id that canal uses where nobody says another.
CLIENT_ID = 1001


class Instance:
    """One destination in this process: ``subscribe``, ``get_without_ack``, ``ack``, ``rollback``.

    Delivery is in the order of the source and at least once: the cursor moves only on ``ack``, and a restart begins at the
    cursor. Several clients may subscribe; each has its own batches and cursor, and the store keeps what the slowest
    has not acked. Methods may be called from any thread. Usable as a context manager.
    """

    #: What it was made from; None where it was composed of parts.
    config: InstanceConfig | None = None
    _healths: tuple[SourceHealth, ...] = ()
    _ha: RunningMonitor | None = None
    _turns: Turns | None = None

    def __init__(self, config: InstanceConfig) -> None:
        if not isinstance(config, InstanceConfig):  # it is not shown, for it may have a password
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
        """One whose parser is an output's of a :class:`canal.server.RouterSink`; ``config`` has the rest."""
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
        """An instance from parts; any of them may be the user's own class that meets the Protocol of the part.

        The default sink withholds the statements of tables that parsers mask; another sink must have their masks. With a
        ``heartbeat`` the sources of each parser that has a standby are watched, also in a group. What a part may have beside
        its Protocol is in docs/how-to/your-own-parts.md.

        With ``ha`` processes that compose the same destination take turns: the parts run in one of them, and are started again
        with each turn. ``meta`` is a ``ZooKeeperMeta`` then, when none is given. Without ``binlog_row_metadata=FULL`` give each
        ``BinlogParser`` a :class:`canal.parse.ZooKeeperHistory`. ``alarm`` gets what concerns the turns; parsers have their own.

        Raises:
            ConfigError: a part does not meet its Protocol, or lacks what another option needs.
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
        self._steps = Steps()  # that end the run of the parts
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
        """Run the parts while ``ha`` says that it is this process's turn."""
        self._ha = self._context.ha = ha
        self._turns = self._calls.turns = Turns(ha, self._context, self._alarms, self._calls.client)

    # -- life -----------------------------------------------------------------------------------------------------

    def start(self) -> Self:
        """Start meta, store, sink and parser. Does not wait for the source to answer.

        With ``ha`` take part in the election instead; they are started when it is this process's turn. While another thread
        stops the instance it waits for the end of that, ``start_timeout`` at most.

        Raises:
            StateError: it is started already, its last run has not ended yet, it was stopped meanwhile, or a part is used by
                another instance.
        """
        self._life.start()
        return self

    def stop(self) -> None:
        """End the parser, wake every waiting call with ``StateError``, write cursors. A second call does nothing.

        When it returns everything has ended. Where canal calls your code, as in an alarm, a hook, a row filter or a sink, it
        returns at once: the run ends when that code has returned, and cannot be started again before that.
        Where it is interrupted, as by a second Ctrl-C, call it again.
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
            self._turns.forget()  # whoever deletes a cursor now wants to begin anew
        else:
            self._stop_parts()

    def _start_parts(self) -> None:
        steps = self._steps = Steps()
        try:
            steps.add(claim(self, self.destination, *self._parts.exclusive))
            steps.add(self.meta.stop)
            try:
                self.meta.start(self.destination)
            except StateError:  # it is started already, by somebody else
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
            with contextlib.suppress(Exception):  # what went wrong first is raised
                self._stop_parts()
            raise
        log.info("[%s] started", self.destination)

    def _begin_parts(self, session: Session) -> None:
        """It is this process's turn: start the parts."""
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
        """Go on at the other one of source and standby; False, with an alarm, when it does not answer or there is none.

        By GTID set where both have GTIDs: nothing is lost and nothing repeated. Else the position is found by time and by the
        last transactions; see docs/start-positions.md.
        """
        self._context.check_running()
        switch = self._parts.teller.switch
        if switch is None:
            raise StateError("this parser has no standby", destination=self.destination)
        return bool(switch(reason))

    # -- turns: which process is active -------------------------------------------------------------------------------

    @property
    def role(self) -> Role:
        """Whether this process is active for the destination; without ``ha`` it is whenever it runs."""
        if self._life.is_elsewhere:
            return Role.OFFLINE
        if self._ha is not None:
            return self._ha.role
        return Role.ACTIVE if self._context.parts_run else Role.OFFLINE

    def wait_active(self, timeout: float | None = None) -> bool:
        """Wait until this process is active; False when ``timeout`` seconds are over or the instance was stopped."""
        self._life.check_process()
        return self._context.parts_run if self._ha is None else self._ha.wait_active(timeout)

    def release(self) -> None:
        """Let another process take over. This one stands by, and competes again after a while."""
        self._context.check_running()
        if self._ha is None:
            raise StateError("there is no other process: this instance has no ha", destination=self.destination)
        self._ha.release()

    @property
    def is_running(self) -> bool:
        """Between ``start`` and ``stop``, also while another process is active."""
        return self._life.is_up

    @property
    def is_exhausted(self) -> bool:
        """True when nothing more comes into the store: the log has ended, or the parser has failed (see ``error``).

        What is in the store is still handed out: a loop ends when a ``get`` that began after this was true has come back empty.
        """
        return self._context.is_exhausted

    def _is_over(self, client_id: int) -> bool:
        """As ``is_exhausted``, for one client: what is behind the store has its own end."""
        return self._calls.is_over(client_id)

    @property
    def error(self) -> CanalError | None:
        """What stopped the parser, or None. The next ``get`` that finds the store empty raises it."""
        return self.parser.error

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
        its position itself. With ``ha`` it lasts for one turn.

        Raises:
            ConnectionLostError: the source could not be reached in time (the parser goes on trying).
            CanalError: what stopped the parser.

        With ``ha``, while another process is active, it only notes what to subscribe when the turn comes.
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
        """The parser's start; a stop of the instance ends the wait."""
        deadline = time.monotonic() + timeout
        try:
            while self._ha is not None and time.monotonic() < deadline - 0.2:
                try:
                    return self.parser.wait_started(0.2)
                except ConnectionLostError:
                    if not self.is_running or self.parser.is_finished:
                        raise
            return wait_for_rest(self.parser, deadline - time.monotonic(), timeout)
        except StateError:  # of a parser that was stopped
            self._context.check_running()
            raise

    def unsubscribe(self, client_id: int = CLIENT_ID) -> None:
        """Forget a client, its filter and its cursor, durably. The ids of its batches go on if it subscribes again."""
        self._context.check_running()
        if self._turns is not None:
            self._turns.noted.pop(client_id, None)
        if self._clients.unsubscribe(client_id) and self._ha is not None:
            self._ha.clients_changed()

    def subscriptions(self) -> dict[int, str]:
        """Client ids and their filters."""
        self._life.check_process()
        with self._clients.lock:
            return {client.id: client.filter for client in self._clients.all()}

    def _resume(self, client_id: int, cursor: Position) -> None:
        """Subscribe a client that keeps its cursor itself, as with ``durable=False``, behind that cursor.

        It begins with what the store keeps, or over a connection of its own until it has caught up; where the source has no log
        from there on, a get raises that.
        """
        self._context.check_running()
        self._clients.resume(client_id, cursor)

    def _name_clients(self, named: Callable[[int], str]) -> None:
        """Call clients something else in alarms than by their ids."""
        self._context.name_of = named

    # -- clients that are behind the store ------------------------------------------------------------------------

    def seek(self, client_id: int, to: str | Position, *, timeout: float | None = None) -> Position:
        """Let a client go on somewhere else, earlier or later; gives that position, which is its cursor then, durably.

        ``to`` is "earliest", "latest" or a :class:`Position`, which may have only a ``timestamp`` (milliseconds since 1970).
        What it was handed out and has not acked can be acked no more. It reads from there over a connection of its own, until
        it has caught up with the store. Waits for the source up to ``timeout`` seconds (None: the config's
        ``start_timeout``).

        Raises:
            PositionLostError: the source has no log from there on. Nothing has changed.
            ConnectionLostError: the source could not be reached in time. Nothing has changed.
            CursorError: the cursor could not be written. Nothing has changed.
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
            client.feeds.extend(opened)  # ends it, where it is not what is read
            raise
        finally:
            client.end_feeds()
        log.info("[%s] client %d goes on at %s", self.destination, client_id, position)
        return position

    def _open_line(self, client_id: int, start: str | Position, feeds: list[Feed], is_cursor: bool) -> tuple[Instance, Feed]:
        """Start an Instance like this one for a client alone. The list has its feed before it begins.

        Args:
            is_cursor: the start is the client's cursor.
        """
        if self.config is None or self._parts.merging is not None:
            what = "of a group" if self.config is not None else "that was composed of parts"
            raise StateError(
                f"a line of a client's own cannot be made of an instance {what}",
                destination=self.destination,
                remedy="Make one from an InstanceConfig with one source.",
            )
        name, source = self._context.name_of(client_id), self._context.source
        instance = Instance(line_config(self.config, source, client_id, start, is_cursor, name))
        instance._name_clients(lambda client_id: name)
        feeds.append(Feed(instance.parser, instance.store, instance.stop, source))
        instance.start()
        return instance, feeds[-1]

    def _open_feed(self, client_id: int, position: Position, feeds: list[Feed]) -> Feed:
        log.info("[%s] client %d reads on from %s over a connection of its own", self.destination, client_id, position)
        return self._open_line(client_id, position, feeds, is_cursor=True)[1]

    # -- delivery -------------------------------------------------------------------------------------------------

    def get_without_ack(
        self, batch_size: int = 1000, timeout: float | None = 0.0, linger: float = 0.0, *, client_id: int = CLIENT_ID
    ) -> Message:
        """The next batch: at most ``batch_size`` row changes, but at least one entry; ``id`` -1 when there is nothing.

        Waits up to ``timeout`` seconds for the first entry (0: not at all, None: for ever), and up to ``linger`` seconds
        longer to fill the batch. Several batches may be outstanding.

        Raises:
            CanalError: what stopped the parser, once everything before it has been handed out.
            StateError: the instance is not running, or was stopped meanwhile; a stream, a pipe or ``consume`` reads this client.

        With ``ha``, while another process is active, it waits and gives nothing, so one loop serves all processes.
        """
        self._calls.readers.check(client_id)
        return self._calls.read(batch_size, timeout, linger, client_id)

    def get(
        self, batch_size: int = 1000, timeout: float | None = 0.0, linger: float = 0.0, *, client_id: int = CLIENT_ID
    ) -> Message:
        """As ``get_without_ack``, and acks by itself: each call acks the batch of the call before.

        A crash in between therefore repeats a batch and loses none. The calls of one client are to come one after the other,
        each when the batch before is done: threads that work side by side need a client each.
        """
        return self._calls.get_and_ack(batch_size, timeout, linger, client_id)

    def ack(self, batch_id: int | Message, *, client_id: int = CLIENT_ID) -> None:
        """Confirm the oldest outstanding batch, by its id or its message. When it returns the cursor is durable (as the meta
        manager defines it).

        Acking the last acked id again, or -1, does nothing.

        Raises:
            BatchError: the id is unknown, or an older batch is outstanding. Nothing has changed.
            CursorError: the cursor could not be written. Nothing has changed; ack again.
            NotActiveError: with ``ha``: it is another process's turn, or was since the batch was handed out. It delivers
                from the last cursor.
        """
        self._calls.ack(batch_id, client_id=client_id)

    def rollback(self, batch_id: int | Message | None = None, *, client_id: int = CLIENT_ID) -> None:
        """Hand out again: everything since the last ack, or a batch, by its id or its message, and all after it (with new ids).

        Raises:
            BatchError: the id is not outstanding. Nothing has changed.
            NotActiveError: the batch was handed out in an earlier turn of this process.
        """
        self._calls.rollback(batch_id, client_id=client_id)

    def list_batches(self, client_id: int = CLIENT_ID) -> list[int]:
        """Ids of the outstanding batches, oldest first."""
        return self._client(client_id).outstanding()

    def position(self, client_id: int = CLIENT_ID) -> Position:
        """The client's cursor: everything before it is acked."""
        return self._client(client_id).cursor

    def status(self, source_timeout: float | None = None) -> InstanceStatus:
        """How everything stands, in any state and from any thread; it waits for no other call.

        With ``source_timeout`` the source is asked for the end of its log, over a connection of its own, and has so many
        seconds to answer; without it, or where the answer does not come, lag in bytes and transactions is None.
        """
        self._life.check_process()
        complete = self._parts.teller.complete_to or None  # before the look at what the store holds
        # From the clients to the source, and what is acked before what is got: each is at least as far as the one before.
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
        """Messages one after the other: each is acked when the loop comes round for the next.

        When the loop is left, by ``break`` or by an exception, the message in hand is rolled back and will come again. Where a
        signal's handler raises and the loop is to go on, use ``for`` and no ``next(stream)``: that may lose a message between
        its return and the assignment, which the next one would ack.
        Ends when the source has ended (a file that is not followed); raises what stopped the parser.

        Raises:
            StateError: another stream, a pipe or ``consume`` reads this client. ``close()`` ends a stream that was left.
        """
        stream = Stream(self._calls, batch_size, linger, client_id, poll)
        stream.begin()
        return stream

    def pipe(self, target: Any, **options: Any) -> Any:
        """Return ``canal.pipe(self, target, **options)``, which writes changes to a target of ``canal.targets``."""
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
        """As ``stream``, but each message comes with what ``decode``, such as ``Message.to_arrow``, makes of it.

        ``decode_threads`` threads call it, each for another message; the loop gets them in the order of the log, and what
        ``decode`` raises at the turn of its message. It pays where ``decode`` lets go of the interpreter's lock. As many messages
        as threads are handed out beside the one in hand; they too come again when the loop is left.
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
        """Changed rows one after the other, as :class:`canal.Change`: table, op, before, after, key, position.

        Their message is acked when the loop comes round behind its last one; when the loop is left, all of it comes again. With
        ``statements`` statements come too: ``change.op.is_row`` tells them from rows. Else as ``stream``.

        Raises:
            UnloggedChangeError: without ``statements``, at a statement that changed rows of a table that are not in the log, such
                as TRUNCATE, DROP, or an UPDATE that was logged as its text.
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
        """Call ``handler`` with each message and ack it. Returns when the source has ended.

        On an exception it rolls back, waits, and tries up to ``retries`` times: with the same changes, perhaps more behind
        them, and a new id. It waits ``backoff[0]`` seconds, then twice as long each time, ``backoff[1]`` at most. What fails
        then is given to ``on_unfit(message, error)``, and acked when that returns; without it the exception is raised, as is
        one of the library's own, at once.

        With ``workers`` so many threads call ``handler`` with one :class:`canal.Change` each (and ``on_unfit`` too):
        those of one key one after the other in the order of the source, others at the same time. ``key`` is the "primary key"
        (an update that changes it is behind the changes of both; a table without one is one key), or a function that gives what
        to order a change by (None: by nothing). A change that fails is tried again by itself, and only those of its key wait. A
        batch is acked when all of it and all before it is done: a crash repeats what was done behind a gap. At most
        ``in_flight`` changes, and one batch more, are handed out and not acked. With ``statements`` each comes alone.

        Raises:
            UnloggedChangeError: as of ``changes``, with ``workers`` and without ``statements``.
        """
        if workers is not None:
            handle = Handling(handler, retries, backoff, on_unfit)
            crew = partial(Crew, f"canal-{self.destination}-worker", workers, handle)
            ParallelConsumer(self._calls, crew, workers, key, in_flight, statements, batch_size, linger, client_id).run()
            return
        consume(self._calls, handler, retries, backoff, on_unfit, batch_size, linger, client_id)

    # -- for the readers in other rooms: canal.aio, pipes and spark --------------------------------------------------

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
    """The parts of a turn run: subscribe the clients that are to be in each turn."""
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
    """The sink as the parser gets it, whose thread may be one of the user's own."""

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
    """An instance's parts as the monitor of the running node starts and stops them."""

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
        except CoordinationError as error:  # without contact, write-behind cursors cannot be written: they come again
            log.warning("[%s] stopped: %s", self._instance.destination, error)
        except Exception:
            log.exception("[%s] did not stop cleanly", self._instance.destination)
