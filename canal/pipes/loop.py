"""The pipe: get, apply rules, write to the target, commit, ack.

Never acks a change before the target has committed it, and never silently skips a change.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Collection, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from types import TracebackType
from typing import Any, Final, Literal, Self

import attrs
from attrs.validators import optional

from canal._util.option_checks import not_negative, positive
from canal._util.option_names import checks_names
from canal._util.threads import OwnThread, is_own
from canal.aio import AsyncInstance, to_the_end
from canal.changes import Change, Changes, Reader
from canal.changes.change import qualified
from canal.errors import (
    CanalError,
    ConfigError,
    ConnectionLostError,
    CoordinationError,
    CursorError,
    NotActiveError,
    StateError,
    StreamMismatchError,
    TargetConflictError,
    TargetError,
    TargetLostError,
    TargetSchemaError,
    UnfitChangeError,
    fresh,
    visible,
)
from canal.instance.instance import CLIENT_ID, Instance
from canal.pipes.initial import Initial, LoadStatus, Passed, initial_of
from canal.pipes.rules import Rule, Rules
from canal.pipes.units import POLL, POLL_LOADING, Unit, Units
from canal.position import Position
from canal.targets.protocol import ArrowWork, EncodingWork, Guarantee, Load, Progress, StoppableWork, Target, Work
from canal.targets.work import StateWork
from canal.zookeeper.session import ROOT, Fence

log = logging.getLogger("canal.pipe")

#: Seconds between two commits of a progress without changes.
_SETTLE: Final = 5.0
#: Maximum seconds of a target's ``retry_after``.
_LONGEST_ASKED: Final = 3600.0
#: Errors that a retry may mend, and their subclasses that no retry mends.
_PASSING: Final = (TargetError, ConnectionLostError, CursorError, CoordinationError)
_LASTING: Final = (TargetSchemaError, UnfitChangeError, StreamMismatchError)


@checks_names()
@attrs.frozen
class Retry:
    """Retries with exponential backoff after a target fails.

    Args:
        times: maximum consecutive failed attempts. A commit resets the count. None: unlimited.
        first: seconds before the first retry. Each further retry doubles them.
        longest: maximum seconds before a retry.
    """

    times: int | None = attrs.field(default=10, validator=optional(not_negative))  # type: ignore[arg-type]
    first: float = attrs.field(default=0.3, validator=positive)
    longest: float = attrs.field(default=60.0, validator=positive)

    def __attrs_post_init__(self) -> None:
        if self.first > self.longest:
            raise ConfigError(f"longest of Retry must be at least its first, {self.first:g} s, not {self.longest:g}")

    def wait(self, failures: int) -> float | None:
        """Return the seconds to wait after so many failures, or None to stop."""
        if self.times is not None and failures > self.times:
            return None
        return min(self.first * 2.0 ** min(failures - 1, 60), self.longest)


_RETRY: Final = Retry()


@attrs.frozen
class PipeStatus:
    """Status of a pipe. Counts begin with its creation."""

    target: str
    guarantee: str
    stream: str
    is_running: bool
    progress: Progress | None
    """The progress of this pipe's last commit."""
    commits: int
    changes: int
    """Committed changes, without changes that the target had already."""
    parked: int
    failures: int
    error: CanalError | None
    """The last error, if no commit has followed."""
    committed_at: float | None
    """Time of the last commit, in seconds since 1970."""
    load: LoadStatus | None = None
    """Progress of ``snapshot="initial"``. None: the target has all existing rows."""


def pipe(
    instance: Instance | AsyncInstance,
    target: Target,
    *,
    rules: Iterable[Rule] = (),
    stream: str = "",
    on_error: Retry | Literal["stop"] = _RETRY,
    on_unfit: Target | Literal["stop"] = "stop",
    on_large: Literal["stop", "pieces"] = "stop",
    acknowledged: Collection[str] = (),
    client_id: int = CLIENT_ID,
    batch_size: int = 10_000,
    linger: float = 0.05,
    snapshot: Literal["none", "initial"] = "none",
) -> Pipe:
    """Return a pipe from an Instance to a target. Run it with ``run()``, on a thread with ``start()``, or with ``run_async()``.

    Each commit stores the progress in the target, and the messages are acked after the commit. With ``Guarantee.ONCE`` the
    pipe skips changes that repeat after a crash. If the target is older than the cursor, such as after a restore, it gets all
    changes from its position on. TRUNCATE empties the table. Other changes without rows in the log (DROP, RENAME, dropping
    or narrowing a column) stop the pipe after all earlier changes are written.

    Args:
        instance: a started Instance, with the client subscribed.
        target: a target from ``canal.targets``, or a custom target with that Protocol.
        rules: rules for changes. The first rule for a table applies. Tables without a rule pass unchanged.
        stream: the name of the progress in the target, default the destination. Use one name for the life of the target.
        on_error: ``canal.pipes.Retry``, or "stop" if the target fails.
        on_unfit: "stop" at a change that cannot be written exactly, or a log target as dead letter. The pipe writes the
            change there with its error and position, and continues. If the next commit fails, the change repeats with the same
            id. In a target of rows the row stays unchanged.
        on_large: "stop" at a transaction larger than the store, or write it in "pieces" with one commit each. This applies
            to the scope "all".
        acknowledged: positions (``journal:offset``) of changes without rows in the log at which the pipe stopped, after you
            have brought the target to the state of the table.
        client_id: the client of this pipe. Each pipe needs another client.
        batch_size: row changes in one commit, about; a transaction is not cut. While existing rows are loaded and commits take
            longer than half a second, a commit has up to 10,000.
        linger: seconds to wait for more changes once there is one.
        snapshot: "initial": also write the rows that the tables have already, while their changes are followed. Tables that are
            made later have their rows in the log. On a stream that has a progress in the target it only goes on with what was
            begun. Logs are given the rows with the op READ.

    Raises:
        ConfigError: an option cannot be.
    """
    return Pipe(
        instance.instance if isinstance(instance, AsyncInstance) else instance,
        target,
        rules=rules,
        stream=stream,
        on_error=on_error,
        on_unfit=on_unfit,
        on_large=on_large,
        acknowledged=acknowledged,
        client_id=client_id,
        batch_size=batch_size,
        linger=linger,
        snapshot=snapshot,
    )


class Pipe:
    """The result of ``canal.pipe``. ``run`` and ``start`` can be repeated after an end. Other methods are thread-safe."""

    def __init__(
        self,
        instance: Instance,
        target: Target,
        *,
        rules: Iterable[Rule],
        stream: str,
        on_error: Retry | str,
        on_unfit: Target | str,
        on_large: Literal["stop", "pieces"],
        acknowledged: Collection[str],
        client_id: int,
        batch_size: int,
        linger: float,
        snapshot: Literal["none", "initial"],
    ) -> None:
        _check(target, on_error, on_unfit, on_large, acknowledged, batch_size)
        if snapshot not in ("none", "initial"):
            raise ConfigError(f'snapshot is "none" or "initial", not {snapshot!r}')
        if getattr(instance.parser, "members", None):
            raise ConfigError(
                "a pipe follows one source, and this instance merges several, anew after each restart",
                remedy="Make an instance and a pipe for each source; each stream has its own progress in the target.",
            )
        self.instance = instance
        self.target = target
        self.stream = stream or instance.destination
        self.client_id = client_id
        self._retry = on_error if isinstance(on_error, Retry) else Retry(times=0)
        self._park = None if isinstance(on_unfit, str) else on_unfit
        given = tuple(rules)
        self._loading: Callable[[], Initial] | None = None
        if snapshot == "initial":
            self._loading = lambda: initial_of(
                instance,
                target,
                Rules(given, is_log=target.is_log),
                client_id=client_id,
                parks=self._park is not None,
                batch_size=batch_size,
                json_text=self._reading["json_text"],
            )
        self._rules = Rules(given, is_log=target.is_log, acknowledged=acknowledged) if given else None
        accepts = instance.config.table_filter().accepts if instance.config is not None else lambda schema, table: True
        self._reading: dict[str, Any] = {
            "is_log": target.is_log,
            "accepts": accepts,
            "acknowledged": acknowledged,
            "json_text": not getattr(target, "takes_objects", False),
        }
        self._fetching: dict[str, Any] = {
            "batch_size": batch_size,
            "linger": linger,
            "is_whole": target.scope == "all",
            "on_large": on_large,
        }
        self._written: dict[str, Progress] = {}  # of the last commit, by table
        self._stopping = threading.Event()
        self._thread: OwnThread | None = None
        self._began = threading.Event()  # of the thread: it runs, or has ended
        self._fatal: CanalError | None = None
        self._lock = threading.Lock()  # held by who runs it
        self._status = PipeStatus(f"{target}", target.guarantee.promise, self.stream, False, None, 0, 0, 0, 0, None, None)

    # -- life -----------------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """The loop. Returns when ``stop`` was called, or when the log has ended.

        Raises:
            UnloggedChangeError, UnfitChangeError, HookError: a change cannot be written; what lies before it is.
            TargetLostError: a table of the target is gone, or is another one.
            TargetError, ConnectionLostError: the target fails, and ``on_error`` has given up, or it is not to be mended so.
            StreamMismatchError: the target has followed another log.
            StateError: another pipe, a stream or ``consume`` reads this client.
            CanalError: what stopped the instance's parser.
        """
        if not self._lock.acquire(blocking=False):
            raise StateError(f"the pipe {self.stream!r} is running already", destination=self.instance.destination)
        try:
            self._begin()
            self._read()
        finally:
            self.instance._readers.end(self.client_id, self)
            self._lock.release()

    def _begin(self) -> None:
        self.instance._readers.begin(self.client_id, self, f"the pipe {self.stream!r}")

    def _read(self) -> None:
        with ExitStack() as stack:
            has_turns = self.instance._ha is not None
            initial = None if has_turns else self._load(stack)  # raises for options that cannot be
            self._read_units(initial)

    def _load(self, stack: ExitStack) -> Initial | None:
        if self._loading is None:
            return None
        initial = self._loading()
        stack.callback(initial.close)
        return initial

    def _read_units(self, initial: Initial | None) -> None:
        units = Units(
            self.instance,
            self.client_id,
            reader=Reader(**self._reading),
            rules=self._rules,
            parks=self._park is not None,
            **self._fetching,
        )
        self._announce()
        self._tell(is_running=True, error=None)
        self._began.set()
        try:
            if self.instance._ha is None:
                self._run(units, initial, None)
            else:
                self._take_turns(units)
        except CanalError as error:
            self._tell(error=error)
            raise
        finally:
            units.close()
            self._stopping.clear()
            self._tell(is_running=False)

    async def run_async(self) -> None:
        """The loop on a thread, awaited. A task that is cancelled ends it behind the commit in hand, as ``stop`` does, and goes
        on when it has ended: nothing is lost, and it can be run again.

        Raises:
            CanalError: as ``run``; where the task was cancelled, it is the cause of the CancelledError.
        """
        loop, thread = asyncio.get_running_loop(), ThreadPoolExecutor(1, f"canal-{self.instance.destination}-pipe")
        try:
            await to_the_end(loop.run_in_executor(thread, self.run), self._stopping.set)
        except asyncio.CancelledError:
            self._stopping.clear()  # it may have ended by itself meanwhile
            raise
        finally:
            thread.shutdown(wait=False)

    def start(self) -> Self:
        """Run the loop on a thread of its own, and return when ``status().is_running`` is true; ``join`` and ``stop`` raise what
        ends the loop, also when it has ended before this call returns."""
        if self._thread is not None:
            raise StateError(f"the pipe {self.stream!r} was started already", destination=self.instance.destination)
        self._begin()
        self._stopping.clear()
        self._began.clear()
        self._thread = OwnThread(target=self._work, name=f"canal-{self.instance.destination}-pipe")
        self._thread.start()
        self._began.wait()
        return self

    def _work(self) -> None:
        try:
            self.run()
        except CanalError as error:
            log.error("[%s] the pipe to %s has stopped: %s", self.instance.destination, self.target, error)
            self._fatal = error
        except BaseException as error:
            log.exception("[%s] the pipe to %s has stopped", self.instance.destination, self.target)
            self._fatal = TargetError(f"the pipe to {self.target} has stopped: {type(error).__name__}")
            self._fatal.__cause__ = error
            self._tell(error=self._fatal)
        finally:
            self._began.set()

    def join(self, timeout: float | None = None) -> bool:
        """Wait for the end of a pipe that was started; whether it came.

        Raises:
            CanalError: what ended it.
        """
        thread = self._thread
        if thread is None:
            return True
        thread.join(timeout)
        if thread.is_alive():
            return False
        self._thread = None
        fatal, self._fatal = self._fatal, None
        if fatal is not None:
            raise fresh(fatal)
        return True

    def stop(self) -> None:
        """End the loop behind the commit in hand; of a pipe that was started wait for it, and raise what ended it before.

        A rule that calls it does not wait.
        """
        self._stopping.set()
        if not is_own():
            self.join()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()

    def status(self) -> PipeStatus:
        """Return the status."""
        return self._status

    def _tell(self, **fields: Any) -> None:
        self._status = attrs.evolve(self._status, **fields)

    def _check_written(self, table: str, found: Progress | None) -> None:
        """Check that the target still has the progress of this pipe's last commit.

        Raises:
            TargetLostError: the target or the table was dropped, or it is an earlier version.
        """
        written = self._written.get(table)
        if written is None or self.target.guarantee is not Guarantee.ONCE or self._reading["acknowledged"]:
            return
        if found is None or self.target.scope == "table" and found.position.precedes(written.position):
            what = f"the table {table} of {self.target}" if table else f"{self.target}"
            now = "has no progress" if found is None else f"is at {found.position}"
            raise TargetLostError(
                f"{what} was dropped, replaced or restored: this pipe has written up to {written.position}, and it {now}",
                remedy="Restore the version that this pipe has written. Or load all tables again: drop them, and start a pipe "
                'with another stream= and snapshot="initial".',
            )

    def _announce(self) -> None:
        whole = "a transaction is one commit" if self.target.scope == "all" else "each table is committed by itself"
        log.info(
            "[%s] pipe to %s, stream %s: %s; %s",
            self.instance.destination,
            self.target,
            self.stream,
            self.target.guarantee.promise,
            whole,
        )

    # -- the loop -------------------------------------------------------------------------------------------------------

    def _take_turns(self, units: Units) -> None:
        """Open the target in each turn of this process, without state from earlier turns."""
        while not self._stopping.is_set() and not units.is_over:
            turn = self.instance._wait_turn(POLL)
            if turn is not None:
                with ExitStack() as stack:
                    self._run(units, self._load(stack), turn)
                    units.rollback()

    def _run(self, units: Units, initial: Initial | None, turn: Fence | None) -> None:
        """Write until the end of the log, of the pipe, or of the turn."""
        failures = 0
        while not self._stopping.is_set() and self._has(turn):
            commits = self._status.commits
            try:
                with ExitStack() as stack:
                    work = stack.enter_context(self.target.begin(self.stream))
                    if isinstance(work, StoppableWork):
                        work.stopping = self._stopping
                    if isinstance(work, StateWork):  # the owner may have dropped a table that the source dropped
                        work.accepts_lost = bool(self._reading["acknowledged"])
                    units.arrow_from = work.arrow_from if isinstance(work, ArrowWork) else None
                    units.encode = work.encode_entry if isinstance(work, EncodingWork) else None
                    writer = _Writer(self, units, work, stack, initial, turn)
                    writer.begin()
                    while not self._stopping.is_set() and self._has(turn):
                        if not writer.step():
                            return
            except NotActiveError as error:
                log.info("[%s] the pipe leaves what is not acked to another process: %s", self.instance.destination, error)
                units.rollback()
            except _PASSING as error:
                units.rollback()
                failures = 1 if self._status.commits > commits else failures + 1
                self._pause(error, failures)

    def _has(self, turn: Fence | None) -> bool:
        """Return whether the turn lasts. Without ``ha`` it always does."""
        ha = self.instance._ha
        return ha is None or ha.fence is turn

    def _pause(self, error: CanalError, failures: int) -> None:
        is_lasting = isinstance(error, _LASTING) or (isinstance(error, TargetError) and error.is_lasting)
        wait = None if is_lasting else self._retry.wait(failures)
        self._tell(error=error, failures=self._status.failures + 1)
        if wait is None:
            raise error
        if isinstance(error, TargetError):
            wait = max(wait, min(error.retry_after, _LONGEST_ASKED))
        log.warning(
            "[%s] %s failed, attempt %d; it is tried again in %.1f s: %s",
            self.instance.destination,
            self.target,
            failures,
            wait,
            error,
        )
        self._stopping.wait(wait)


@attrs.define
class _Place:
    """Position in the stream for rows that are not from the log."""

    end: Position
    epoch: int
    parked: list[Change]


@attrs.define(eq=False)
class _Writer:
    """Writes units with one work of the target."""

    pipe: Pipe
    units: Units
    work: Work
    stack: ExitStack
    initial: Initial | None
    turn: Fence | None
    _passed: Passed = attrs.field(init=False)
    _is_aligned: bool = False
    _epoch: int = 0
    _known: dict[str, Progress | None] = attrs.field(factory=dict)
    _settled: float = attrs.field(factory=time.monotonic)
    _parking: Work | None = None

    def __attrs_post_init__(self) -> None:
        self._passed = Passed(self.pipe.instance, self.pipe.client_id)

    def begin(self) -> None:
        """Resume the load of existing rows from the target's progress."""
        if self.initial is not None:
            self.initial.begin(self.work, self._progress)

    def step(self) -> bool:
        """Write and ack the next unit, if there is one. Return False if the stream has ended."""
        is_loading = self.initial is not None and not self.initial.is_done
        if is_loading and self._load():
            return True
        self.units.poll = POLL_LOADING if is_loading else POLL
        unit = self.units.next()
        if unit is None:
            if is_loading:
                self._passed.nothing_came()
            self._settle()
            return not self.units.is_over
        if self.turn is not None and unit.epoch != self.turn.epoch:
            raise NotActiveError("the turn is over in which the target was opened", destination=self.pipe.instance.destination)
        self._epoch, begun = unit.epoch, time.monotonic()
        if self.initial is not None:
            self._passed.came()
            self.initial.saw(unit.entries)
        if self.pipe.target.scope == "table":
            self._write_tables(unit)
        elif not self._write_all(unit):
            return True
        if unit.failure is not None:
            raise unit.failure
        self.units.ack(unit)
        self.units.pace(unit, time.monotonic() - begun if is_loading else 0.0)
        return True

    # -- one commit for all tables --------------------------------------------------------------------------------------

    def _write_all(self, unit: Unit) -> bool:
        """Write a unit. Return False if the client was set back to the target's position instead."""
        known = self._progress("")
        changes = unit.changes
        if known is not None and known.position != unit.start:
            order = _order(known.position, unit.start)
            if order < 0:
                log.warning(
                    "[%s] %s is at %s, behind the cursor: it is given everything from there on",
                    self.pipe.instance.destination,
                    self.pipe.target,
                    known.position,
                )
                self.units.seek(known.position)
                return False
            if order > 0:
                changes = unit.behind(known.position)
                if _order(known.position, unit.end) >= 0:  # it has all of it
                    return True
        self._commit(unit, self._kept(changes), "", load=self._left(""))
        return True

    def _settle(self) -> None:
        """Commit the progress if the cursor has moved over filtered changes."""
        known = self._known.get("")
        if known is None or self.pipe.target.scope == "table" or time.monotonic() < self._settled + _SETTLE:
            return
        self._settled = time.monotonic()
        try:
            position = self.pipe.instance.position(self.pipe.client_id)
        except NotActiveError:
            return
        if known.position.precedes(position):
            moved = attrs.evolve(known, position=position, load=self._left(""))
            self.work.commit(moved)
            self._known[""] = moved

    # -- rows that were there -------------------------------------------------------------------------------------------

    def _load(self) -> bool:
        """Write existing rows that belong to this position, if there are any."""
        assert self.initial is not None
        pipe = self.pipe
        pipe._tell(load=self.initial.status())
        try:
            at = pipe.instance.position(pipe.client_id)
        except NotActiveError:
            return False
        if pipe.target.scope == "all" and not self._is_aligned:
            known, self._is_aligned = self._progress(""), True
            if known is not None and _order(known.position, at) < 0:
                self.units.seek(known.position)
                return True
        batch = self.initial.step(at, self._passed.position)
        if batch is None:
            return False
        known = self._progress(batch.key)
        if known is not None and _order(known.position, at) > 0:
            return False  # the stream gives again what the target has
        source = ""
        if pipe.target.scope == "table" and not pipe.target.is_log:
            source = _source(batch.changes, batch.key, known)
        epoch = max(self._epoch, 0 if known is None else known.epoch)
        self._commit(_Place(at, epoch, batch.parked), batch.changes, batch.key, source, batch.load)
        self.initial.wrote(batch)
        pipe._tell(load=self.initial.status())
        return True

    def _kept(self, changes: Changes) -> Changes:
        return changes if self.initial is None else self.initial.keep(changes)

    def _left(self, table: str) -> Load | None:
        return None if self.initial is None else self.initial.load(table)

    # -- one commit for each table --------------------------------------------------------------------------------------

    def _write_tables(self, unit: Unit) -> None:
        for table in dict.fromkeys(batch.name for batch in unit.changes.tables):
            known = self._progress(table)
            changes = unit.changes
            if known is not None and _order(known.position, unit.start) > 0:
                changes = unit.behind(known.position)
            if own := self._kept(changes.of(table)):
                source = "" if self.pipe.target.is_log else _source(own, table, known)
                self._commit(unit, own, table, source, self._left(table))

    # -- both -----------------------------------------------------------------------------------------------------------

    def _progress(self, table: str) -> Progress | None:
        if table not in self._known:
            self._known[table] = self.work.progress(table)
            self.pipe._check_written(table, self._known[table])
        return self._known[table]

    def _commit(self, unit: Unit | _Place, changes: Changes, table: str, source: str = "", load: Load | None = None) -> None:
        """Commit the changes, and park unfit changes before."""
        pipe = self.pipe
        known = self._known[table]
        epoch = 0 if known is None else known.epoch
        if unit.epoch and unit.epoch < epoch:
            raise self._overtaken(known, unit.epoch)
        progress = Progress(unit.end, max(epoch, unit.epoch), source, load, turns=self._series(known, unit.epoch))
        self._park(unit, unit.parked)
        unit.parked = []
        while True:
            self.work.apply(changes)
            try:
                self.work.commit(progress, table)
                break
            except UnfitChangeError as error:
                unfit = {id(change) for change in error.changes}
                if pipe._park is None or not unfit.intersection(map(id, changes)):  # parking leaves nothing out
                    raise
                self._park(unit, [one.evolve(error=why) for one, why in zip(error.changes, error.reasons)])
                changes = changes.without(error.changes)
        self._known[table] = pipe._written[table] = progress
        status = pipe.status()
        pipe._tell(
            progress=progress,
            commits=status.commits + 1,
            changes=status.changes + len(changes),
            committed_at=time.time(),
            error=None,
        )

    def _series(self, known: Progress | None, epoch: int) -> str:
        """Return the count of turns to store with the higher epoch."""
        if self.turn is not None and (known is None or epoch >= known.epoch):
            return self.turn.series
        return "" if known is None else known.turns

    def _overtaken(self, known: Progress | None, epoch: int) -> TargetConflictError:
        ha, turn = self.pipe.instance._ha, self.turn
        last, series = (0, "") if known is None else (known.epoch, known.turns)
        remedy = "Another process has the turn. This process stands by."
        text = f"turn {last} has written to the target, and this is turn {epoch}"
        if ha is not None and turn is not None and series != turn.series:
            text += ": another ZooKeeper, root or destination has counted it"
            remedy = (
                f"Stop all processes that use the other one. Then continue its count: canal ha adopt {ha.config.hosts} "
                f"{ha.destination} --epoch {last}" + (f" --root {ha.config.root}" if ha.config.root != ROOT else "")
            )
        return TargetConflictError(text, destination=self.pipe.instance.destination, remedy=remedy)

    def _park(self, unit: Unit | _Place, changes: list[Change]) -> None:
        pipe = self.pipe
        if not changes:
            return
        assert pipe._park is not None
        if self._parking is None:
            self._parking = self.stack.enter_context(pipe._park.begin(f"{pipe.stream}-parked"))
        self._parking.apply(changes)
        self._parking.commit(Progress(unit.end, unit.epoch))
        pipe._tell(parked=pipe.status().parked + len(changes))
        log.warning(
            "[%s] changes are parked in %s, the first at %s: %s; count %d",
            pipe.instance.destination,
            pipe._park,
            changes[0].origin.position,
            visible(str(changes[0].error)),
            len(changes),
        )


def _source(changes: Changes, table: str, known: Progress | None) -> str:
    """Return the source table of a target table.

    Raises:
        ConfigError: the target table belongs to another source table.
    """
    found = "" if known is None else known.source
    for one in [one for batch in changes.tables for one in batch.tables]:
        if not one.columns:
            continue  # a statement, which may spell the name otherwise
        source = qualified(*one.origin) if one.merge is None else f"merged by {one.merge[0]}"
        if found and source != found:
            raise ConfigError(
                f"both {found} and {source} would be the table {table} of the target",
                remedy='Give one of them another name by canal.Rule(to="…"), or bring them together by canal.Rule(merge=…).',
            )
        found = source
    return found


def _order(one: Position, other: Position) -> int:
    """Return -1, 0 or 1 if a position is before, at or after the other.

    Raises:
        StreamMismatchError: the order is unknown.
    """
    before, behind = one.precedes(other), other.precedes(one)
    if before is None or behind is None:
        raise StreamMismatchError(
            f"the target is at {one}, and the instance at {other}: which of them is further cannot be told, as they are not of "
            "one log",
            remedy="Let the same source be read, or one with GTIDs in common; or empty the target together with its progress.",
        )
    return behind - before


def _check(target: object, on_error: object, on_unfit: object, on_large: object, acknowledged: object, batch_size: int) -> None:
    if not isinstance(target, Target):
        raise ConfigError(f"the target must be one of canal.targets, or one with their Protocol, not {target!r}")
    if on_error != "stop" and not isinstance(on_error, Retry):
        raise ConfigError(f'on_error is canal.pipes.Retry(…) or "stop", not {on_error!r}')
    if on_unfit != "stop" and not (isinstance(on_unfit, Target) and on_unfit.is_log):
        raise ConfigError(f'on_unfit is "stop" or a target that is a log, such as JSONLinesTarget, not {on_unfit!r}')
    if on_large not in ("stop", "pieces"):
        raise ConfigError(f'on_large is "stop" or "pieces", not {on_large!r}')
    if isinstance(acknowledged, str):
        raise ConfigError(f"acknowledged must be a sequence of positions, not {acknowledged!r}")
    if batch_size < 1:
        raise ConfigError(f"batch_size must be at least 1, not {batch_size}")
