"""One source for several destinations: the log is read once, and each output gets its part of it.

Never decodes a row and keeps no cursor. The instance that reads has a client for each output, whose thread copies what is for
the output into the output's own store. Where an output resumes is what its own meta manager says.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any, Final, Self

import attrs

from canal._util.lifecycle import Life, Steps
from canal._util.threads import OwnThread
from canal.alarm import AlarmDesk, AlarmKind
from canal.config import Group, InstanceConfig, check_shared
from canal.errors import CanalError, ConfigError, ConnectionLostError, CursorError, HookError, StateError, StoreClosedError, fresh
from canal.ha import Role
from canal.instance.client_filter import ClientFilter
from canal.instance.ha_turns import bind
from canal.instance.instance import Instance
from canal.meta import MemoryMeta, MetaManager, ZooKeeperMeta
from canal.model import Entry, EntryType, Transaction
from canal.parse.parser import OwnParser, parser_info, wait_for_rest
from canal.parse.schema.history import MemoryHistory
from canal.position import Position, earliest, resume_at
from canal.server.router_turns import RouterTurns
from canal.sink.protocol import Sink
from canal.status import ParserStatus, State
from canal.zookeeper.session import Fence, Session

log = logging.getLogger("canal")

#: Seconds of one wait for the source, between two looks whether the output is being stopped.
_LOOK: Final = 0.2
#: What an output may have of its own; everything else is the source's, which is read once.
_OPTIONS: Final = frozenset(
    (
        "black_filter",
        "row_filter",
        "leave_out",
        "hooks",
        "store_entries",
        "store_bytes",
        "slow_after",
        "isolate_ddl",
        "whole_transactions",
        "batch_bytes",
        "empty_transaction_interval",
        "empty_transaction_count",
        "start_timeout",
        "alarm",
    )
)


class RouterSink:
    """Reads one source for several destinations: 1 to n.

    Each output is an :class:`canal.Instance` with a name, a filter, hooks, a store, clients and cursors of its own, for all
    of which there is one connection and one parser. The source is read from the earliest of the outputs' cursors on, and each
    output gets what is behind its own. Several clients of one instance do with less (docs/how-to/several-clients.md): take
    a router where consumers need destinations of their own.

    An output whose store is full holds up the others, with an alarm that names it; with ``on_slow="evict"`` in ``config`` it
    reads on over a connection of its own until it has caught up. So does one that is started while the router runs. One that
    fails or is stopped holds up nobody, and goes on at its cursor when it is started again.

    ``with router:`` starts all outputs and the reading, and stops them at the end.

    Args:
        config: the source and what is read of it, by its ``filter``; hooks and the rest of it come before the outputs. ``start``
            is where an output without a cursor begins. It has no ``meta``. With ``ha`` routers of several processes take turns:
            in one of them the reading and all outputs run, whose cursors are in ZooKeeper (docs/high-availability.md).

    Attributes:
        instance: what reads the source, for ``status()``, metrics and ``switch()``; the router starts and stops it. Its
            clients are the outputs, in their order from 1 on.
        outputs: the outputs by their destinations.
    """

    def __init__(self, config: InstanceConfig) -> None:
        _check(config)
        if config.ha is not None:
            reads = attrs.evolve(config, ha=None, meta=MemoryMeta(), schema_history=config.history())
        else:
            reads = config
        self.instance = Instance(reads)
        self.outputs: dict[str, Instance] = {}
        self._config = config
        self._reading = Reading(self.instance, reads)
        self._turns: RouterTurns | None = None
        if config.ha is not None:
            self._turns = RouterTurns(config, config.ha, self._reading, lambda: list(self.outputs.values()))
        self._life = Life(config.destination, self._begin, self._end, config.start_timeout)

    def output(self, destination: str, filter: str = "", *, meta: MetaManager | None = None, **options: Any) -> Instance:
        """Add an output: an instance to subscribe to, which is started with the router or by itself.

        Args:
            destination: its name.
            filter: what it gets of that which the router reads; "" is everything.
            meta: keeps its clients' cursors: in memory when none is given, with ``ha`` in ZooKeeper.
            options: of :class:`canal.InstanceConfig`, those that are not about the source: black_filter, row_filter, leave_out,
                hooks, the sizes of store and batches, slow_after, start_timeout, alarm and so on.

        Raises:
            ConfigError: another option, or a destination that there is already.
        """
        unknown = sorted(options.keys() - _OPTIONS)
        if unknown:
            raise ConfigError(
                f"an output has no {', '.join(unknown)} of its own",
                destination=destination,
                remedy=f"What is about the source stands in the router's config. An output has {', '.join(sorted(_OPTIONS))}.",
            )
        if destination in self.outputs or destination == self._config.destination:
            raise ConfigError("there is a destination of this name already", destination=destination)
        ha = self._config.ha
        if meta is None and ha is not None:
            meta = ZooKeeperMeta(ha)
        if meta is not None:
            options["meta"] = meta
        config = InstanceConfig(destination=destination, source=self._config.source, filter=filter, **options)
        if ha is not None:
            check_shared(config.meta)
        output = Instance._of_output(config, self._reading.new_route(config))
        if self._turns is not None:
            output._take_turns(self._turns.election_of(output))
        self.outputs[destination] = output
        return output

    def start(self) -> Self:
        """Start every output that does not run, then the reading. Does not wait for the source to answer.

        Raises:
            StateError: it is started already, or what ``Instance.start`` raises of an output; nothing runs then.
        """
        self._life.start()
        return self

    def stop(self) -> None:
        """Stop the outputs and the reading, as ``Instance.stop`` does. A second call does nothing."""
        self._life.stop()

    @property
    def is_running(self) -> bool:
        """Between ``start`` and ``stop``."""
        return self._life.is_up

    @property
    def role(self) -> Role:
        """Whether this process is active for the router; without ``ha`` it is whenever it runs."""
        if self._turns is not None:
            return self._turns.monitor.role
        return Role.ACTIVE if self.is_running else Role.OFFLINE

    def wait_active(self, timeout: float | None = None) -> bool:
        """Wait until this process is active; False when ``timeout`` seconds are over or the router was stopped."""
        return self.is_running if self._turns is None else self._turns.monitor.wait_active(timeout)

    def release(self) -> None:
        """Let another process take over, with all outputs. This one stands by, and competes again after a while."""
        if self._turns is None:
            raise StateError("there is no other process: this router has no ha", destination=self._config.destination)
        self._turns.monitor.release()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()

    def _begin(self) -> None:
        try:
            for output in list(self.outputs.values()):
                if not output.is_running:
                    output.start()
            if self._turns is not None:
                self._turns.monitor.start()
            else:
                self._reading.start()
        except BaseException:
            with contextlib.suppress(Exception):  # what went wrong first is raised
                self._end()
            raise

    def _end(self) -> None:
        steps = Steps()
        last = self._reading.stop if self._turns is None else self._turns.monitor.stop
        steps.add(*(output.stop for output in self.outputs.values()), last)
        steps.carry_out()


class Reading:
    """The instance that reads the source, with a client for each output, and who waits for it."""

    def __init__(self, instance: Instance, config: InstanceConfig) -> None:
        self.instance = instance
        self.config = config
        self._routes: list[Route] = []
        self._changed = threading.Condition()  # it has begun, or an output is being stopped
        self._has_begun = False
        self._begins_at_start = True
        self._bind()

    def new_route(self, config: InstanceConfig) -> Route:
        """The parser of another output."""
        self._routes.append(Route(self, len(self._routes) + 1, config))
        return self._routes[-1]

    def bind(self, session: Session, fence: Callable[[], Fence | None]) -> None:
        """With ``ha``: a turn begins, behind whose fence the schema history writes."""
        bind((parser_info(self.instance.parser).history,), session, fence)

    def start(self) -> None:
        """Begin at the earliest cursor of the outputs that wait; each gets what is behind its own."""
        with self._changed:
            waiting = [route.run for route in self._routes if route.run.is_waiting and route.run.resume is not None]
            runs = _comparable(waiting)
            for run in runs:
                run.is_awaited = True
            self._begins_at_start = not runs
        meta = self.config.meta
        meta.start(self.config.destination)
        for client_id in meta.subscriptions():
            meta.unsubscribe(client_id)
        for run in runs:
            assert run.resume is not None
            meta.subscribe(run.route.client_id, "")
            meta.update_cursor(run.route.client_id, run.resume)
        meta.stop()
        self.instance.start()
        with self._changed:
            self._has_begun = True
            left = [run for run in runs if not run.is_waiting]
            self._changed.notify_all()
        for run in left:
            self.instance.unsubscribe(run.route.client_id)

    def stop(self) -> None:
        with self._changed:
            self._has_begun = False
        self.instance.stop()
        self.config.meta.stop()  # where a start was interrupted that wrote cursors into it

    def has_start_of(self, client_id: int) -> bool:
        """Whether an output without a cursor begins where the config says."""
        if self.config.start == "latest":
            return True
        return self._begins_at_start and self.instance.position(client_id) == self.instance.parser.wait_started(0.0)

    def wait(self, run: RouteRun) -> bool:
        """Wait until it has begun; False where the output is being stopped before."""
        with self._changed:
            self._changed.wait_for(lambda: self._has_begun or run.is_stopping)
            run.is_waiting = False
            return not run.is_stopping

    def leave(self, run: RouteRun) -> None:
        """Nothing is to be kept for it any more; a get of it that waits ends."""
        with self._changed:
            run.is_waiting = False
            has_begun = self._has_begun
            self._changed.notify_all()
        if has_begun:
            with contextlib.suppress(CanalError):  # all is being stopped
                self.instance.unsubscribe(run.route.client_id)

    def _bind(self) -> None:
        """Let the parser know of the outputs' cursors, not only of how far it has given them something."""
        parser = self.instance.parser
        assert isinstance(parser, OwnParser)
        oldest, marks, translated = parser.oldest, parser.marks, parser.translated

        def oldest_of_all() -> Position | None:
            known = [one for one in (oldest(), *(route.oldest_kept() for route in self._routes)) if one is not None]
            with contextlib.suppress(CursorError):  # outputs on either side of a change of the source
                return earliest(known) if len(known) > len(self._routes) else None
            return None

        def translate_all(found: dict[Position, Position | None]) -> None:
            translated(found)
            for route in self._routes:
                route.translated(found)

        parser.oldest = oldest_of_all
        parser.marks = lambda: [*marks(), *(mark for route in self._routes for mark in route.marks())]
        parser.translated = translate_all
        parser.began = self._check_history
        self.instance._name_clients(lambda client_id: f"output {self._routes[client_id - 1].destination}")

    def _check_history(self, position: Position) -> None:
        """Warn if a restart may find rows of a table as it was before an ALTER, and nothing that says how it was."""
        asked = parser_info(self.instance.parser)
        keeps_cursors = [route.destination for route in self._routes if type(route.meta) is not MemoryMeta]
        if asked.full_metadata is False and type(asked.history) is MemoryHistory and keeps_cursors:
            self.instance._alarms.announce(
                AlarmKind.SCHEMA,
                "the source does not write binlog_row_metadata=FULL, and the router keeps no schema history. If a table is "
                f"altered and the router restarts before the outputs {', '.join(keeps_cursors)} are past that, all outputs stop "
                "with a SchemaError. Give the router's config schema_history=canal.FileHistory(directory), or SET GLOBAL "
                "binlog_row_metadata=FULL on a source that has it",
            )


class Route(OwnParser):
    """The parser of an output: its part of what the router's instance reads.

    Args:
        client_id: its number at that instance.
    """

    def __init__(self, reading: Reading, client_id: int, config: InstanceConfig) -> None:
        super().__init__()
        self.reading = reading
        self.client_id = client_id
        self.destination = config.destination
        self.meta = config.meta
        self.filter = ClientFilter(config.filter, config.black_filter)
        self.alarms = AlarmDesk(config.alarm)
        self._asked = parser_info(reading.instance.parser)
        self.run = RouteRun(self, None, None, lambda: None)  # one that never starts, until there is another

    def start(self, destination: str, sink: Sink, resume: Position | None, finished: Callable[[], None]) -> None:
        if self.run.thread.is_alive():
            raise StateError("the output is started already", destination=destination)
        self.alarms.reset(destination)
        self.run = RouteRun(self, sink, resume, finished)
        self.run.start()

    def stop(self) -> None:
        self.run.stop()

    def wait_started(self, timeout: float) -> Position:
        return self.run.wait_started(timeout)

    @property
    def error(self) -> CanalError | None:
        return self.run.error

    @property
    def is_finished(self) -> bool:
        return self.run.is_over

    def address_of(self, cursor: Position) -> tuple[str, int]:
        """Host and port of the server that a cursor is of; ("", 0): not known."""
        return self._asked.address_of(cursor)

    def status(self, source_timeout: float | None = None) -> ParserStatus | None:
        """How the source is read, for all outputs together; the state is this one's where it has ended."""
        status = self._asked.status(source_timeout)
        if status is None:
            return None
        status = attrs.evolve(status, alarms=status.alarms + self.alarms.count)
        if not self.run.is_over:
            return status
        return attrs.evolve(status, state=State.ENDED if self.error is None else State.FAILED)

    def oldest_kept(self) -> Position | None:
        """The position before which it will not resume; None: not known."""
        return self.oldest() or self.run.started


class RouteRun:
    """One run of an output, from its start to its end.

    Attributes:
        resume: the earliest of its clients' cursors.
        is_waiting: it waits for the reading to begin.
        is_awaited: the reading begins no later than its cursor, and has a client for it.
        started: where it begins, once that is known.
    """

    def __init__(self, route: Route, sink: Sink | None, resume: Position | None, finished: Callable[[], None]) -> None:
        self.route = route
        self.resume = resume
        self._sink = sink
        self._finished = finished
        self._changed = threading.Condition()
        self.is_waiting = True
        self.is_awaited = False
        self.is_stopping = False
        self.is_over = False
        self.started: Position | None = None
        self.error: CanalError | None = None
        self._count = 0  # transactions that have ended
        self._known: tuple[Transaction, Transaction] | None = None  # the last one, and its copy
        self.thread = OwnThread(target=self._run, name=f"canal-{route.destination}-route")

    def start(self) -> None:
        self.thread.start()

    def stop(self) -> None:
        self.is_stopping = True
        self.route.reading.leave(self)
        if self.thread is not threading.current_thread() and self.thread.ident is not None:
            self.thread.join()

    def wait_started(self, timeout: float) -> Position:
        deadline = time.monotonic() + timeout
        with self._changed:
            self._changed.wait_for(lambda: self.started is not None or self.is_over, timeout)
            if self.started is not None:
                return self.started
            if self.error is not None:
                raise fresh(self.error)
        if self.is_waiting and not self.is_over:
            raise ConnectionLostError(
                f"no start position within {timeout:g} s: the router does not run",
                destination=self.route.destination,
                remedy="Start the router; the output waits for it.",
            )
        wait_for_rest(self.route.reading.instance.parser, deadline - time.monotonic(), timeout)  # raises what is wrong
        raise ConnectionLostError(
            f"no start position within {timeout:g} s", destination=self.route.destination, remedy="Subscribe again."
        )

    # -- the thread ---------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        route = self.route
        try:
            if route.reading.wait(self):
                started = self._join()
                with self._changed:
                    self.started = started
                    self._changed.notify_all()
                for message in route.reading.instance.stream(client_id=route.client_id):
                    self._pass(message.entries)
        except StoreClosedError:
            pass  # the output is being stopped
        except CanalError as error:
            self._fail(error)
        except BaseException as error:  # a SystemExit of a hook too: nothing may end the thread unseen
            self._fail(HookError(f"{error!r} came out of the line behind the router"), error)
        finally:
            route.reading.leave(self)
            with self._changed:
                self.is_over = True
                self._changed.notify_all()
            self._finished()

    def _fail(self, error: CanalError, cause: BaseException | None = None) -> None:
        if self.is_stopping:
            return
        if cause is not None:
            error.__cause__ = cause
        error.destination = error.destination or self.route.destination
        self.error = error
        self.route.alarms.announce(AlarmKind.STOPPED, f"the output has stopped: {error}")

    def _join(self) -> Position:
        """Become a client of what reads the source; gives where it begins."""
        reading, client_id = self.route.reading, self.route.client_id
        instance, start = reading.instance, reading.config.start
        if self.resume is not None:
            if not self.is_awaited:
                log.info("[%s] goes on at %s behind the router's store", self.route.destination, self.resume)
                instance._resume(client_id, self.resume)
            return self.resume
        self._patiently(lambda: instance.subscribe(client_id, timeout=_LOOK, durable=False))
        if not reading.has_start_of(client_id):
            self._patiently(lambda: instance.seek(client_id, start, timeout=10 * _LOOK))
        return instance.position(client_id)

    def _patiently(self, call: Callable[[], object]) -> None:
        """Call until the source answers."""
        while True:
            try:
                call()
                return
            except ConnectionLostError:
                if self.is_stopping:
                    raise StoreClosedError("the output is being stopped") from None
                if self.route.reading.instance.is_exhausted:
                    raise

    def _pass(self, entries: list[Entry]) -> None:
        """Give the output copies of what is for it: what it does to its entries is not seen by others."""
        assert self._sink is not None
        known, count, copies = self._known, self._count, []
        if known is not None and not known[1].end:
            known = None  # it had not ended when it was copied, and may have changed since
        accepts = self.route.filter.accepts
        for entry in entries:
            if known is None or entry.transaction is not known[0]:
                known = entry.transaction, entry.transaction.copy(count)
            count += entry.is_end
            if entry.entry_type is not EntryType.ROWDATA or accepts(entry):
                copies.append(entry.copy(known[1]))
        if copies:
            self._sink.sink(copies)
        self._known, self._count = known, count


def _check(config: object) -> None:
    if not isinstance(config, InstanceConfig):
        raise ConfigError(f"a router is made of a canal.InstanceConfig, not {config!r}")
    if isinstance(config.source, Group):
        raise ConfigError("a router reads one source, and no group", destination=config.destination)
    if type(config.meta) is not (MemoryMeta if config.ha is None else ZooKeeperMeta):
        raise ConfigError(
            "a router keeps no cursors",
            destination=config.destination,
            remedy="Give meta to the outputs; where the source does not write binlog_row_metadata=FULL give the router a "
            "schema_history.",
        )


def _comparable(runs: list[RouteRun]) -> list[RouteRun]:
    """Those whose cursors have an earliest one. Others, as those on two sides of a change of the source, resume by themselves."""
    found: list[RouteRun] = []
    for run in runs:
        with contextlib.suppress(CursorError):
            resume_at([one.resume for one in (*found, run) if one.resume is not None])
            found.append(run)
    return found
