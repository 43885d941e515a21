"""What ``ha`` adds to a router: in the process whose turn it is the reading and all outputs run, in no other any of them.

Never reads or hands out anything. The turn is the router's: its outputs write their cursors behind its fence.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Collection
from functools import partial
from typing import Any, Final, Protocol

from canal.alarm import AlarmDesk
from canal.config import InstanceConfig
from canal.errors import CanalError, CoordinationError
from canal.ha import Role, RunningMonitor
from canal.ha.nodes import read_router, read_running, running_document
from canal.instance.instance import Instance, subscribe_noted
from canal.zookeeper.session import Create, Delete, Fence, NodeExists, NodeMissing, Session, VersionChanged, ZooKeeper

log = logging.getLogger("canal")

#: Seconds between two looks whether an output that waits for its turn is being stopped.
_LOOK: Final = 0.2


class Reads(Protocol):
    """What reads the source for all outputs."""

    def bind(self, session: Session, fence: Callable[[], Fence | None]) -> None:
        """A turn begins: what is kept of tables is written behind its fence."""

    def start(self) -> None: ...
    def stop(self) -> None: ...


class RouterTurns:
    """Takes part in the election for a router, and starts and stops what it has as the role changes.

    Args:
        config: of the router.
        reading: is started behind the outputs.
        outputs: gives those that there are.
    """

    def __init__(self, config: InstanceConfig, ha: ZooKeeper, reading: Reads, outputs: Callable[[], list[Instance]]) -> None:
        alarms = AlarmDesk(config.alarm)
        alarms.reset(config.destination)
        self.monitor = RunningMonitor(ha, config.destination, self, alarms)
        self._config = ha
        self._destination = config.destination
        self._reading = reading
        self._outputs = outputs
        self._lock = threading.RLock()  # held while parts are started and stopped
        self._turn: tuple[Session, Fence] | None = None  # of which the parts run
        self._running: list[Instance] = []

    def election_of(self, output: Instance) -> Any:
        """What an output asks, as another instance asks its monitor."""
        return _Election(self, output)

    # -- the parts of the monitor -------------------------------------------------------------------------------------

    def start_parts(self, session: Session, fence: Fence) -> None:
        try:
            with self._lock:
                self._reading.bind(session, lambda: self.monitor.fence)
                self._turn = session, fence
                for output in self._outputs():
                    if output.is_running:
                        self._begin(output)
                self._reading.start()
            for output in list(self._running):
                self._subscribe(output)
        except BaseException:
            self.stop_parts()
            raise

    def clients(self) -> Collection[int]:
        """None: clients are those of outputs."""
        return ()

    def stop_parts(self) -> None:
        with self._lock:
            self._turn, turn = None, self._turn
            for output in list(self._running):
                self._end(output, turn)
            _quietly(self._destination, self._reading.stop)

    # -- one output ---------------------------------------------------------------------------------------------------

    def enter(self, output: Instance) -> None:
        """An output is started: where it is this process's turn, its parts are."""
        with self._lock:
            if self._turn is None:
                return
            self._begin(output)
        self._subscribe(output)

    def leave(self, output: Instance) -> None:
        """An output is stopped."""
        with self._lock:
            if output in self._running:
                self._end(output, self._turn)

    def _begin(self, output: Instance) -> None:
        assert self._turn is not None
        session, fence = self._turn
        self._claim(output.destination, session, fence)
        output._begin_parts(session)
        self._running.append(output)

    def _end(self, output: Instance, turn: tuple[Session, Fence] | None) -> None:
        self._running.remove(output)
        _quietly(output.destination, output._stop_parts)
        if turn is not None:
            self._let_go(output.destination, turn[0])

    @staticmethod
    def _subscribe(output: Instance) -> None:
        try:
            subscribe_noted(output)
        except CanalError:
            if output.is_running:  # else it was stopped meanwhile
                raise

    # -- its running node ---------------------------------------------------------------------------------------------

    def _claim(self, destination: str, session: Session, fence: Fence) -> None:
        """Write who runs an output where those look who would run its destination by itself.

        Raises:
            CoordinationError: somebody does.
        """
        path = self._config.destination_path(destination, "running")
        folder = path.rpartition("/")[0]
        session.protect(folder)
        session.make(folder)
        value = session.get(path)
        if value is not None and value.owner == session.id and read_running(value.data)[0] == self.monitor.address:
            return
        if value is not None and read_router(value.data) != self._destination:
            raise CoordinationError(
                f"{read_running(value.data)[0] or 'somebody'} runs {destination} by itself, so this router cannot have an output "
                "of that name",
                destination=self._destination,
                remedy="Stop that process, or give the output another name.",
            )
        writes = [Delete(path, value.version)] if value is not None else []  # of an earlier turn, whose session lives on
        document = running_document(self.monitor.address, router=self._destination)
        try:
            session.write([*writes, Create(path, document, ephemeral=True)], fence)
        except (NodeExists, NodeMissing, VersionChanged) as error:
            raise CoordinationError(f"{path} was changed at the same time: {error!r}") from error

    def _let_go(self, destination: str, session: Session) -> None:
        """Without contact the node goes with the session."""
        if not session.is_connected:
            return
        path = self._config.destination_path(destination, "running")
        with contextlib.suppress(CoordinationError, NodeMissing, VersionChanged):
            value = session.get(path)
            if value is not None and value.owner == session.id:
                session.write([Delete(path, value.version)])


class _Election:
    """The router's turns as one of its outputs takes part in them: what it does not have itself is the router's monitor's."""

    def __init__(self, turns: RouterTurns, output: Instance) -> None:
        self._turns = turns
        self._output = output
        self.start = partial(turns.enter, output)
        self.stop = partial(turns.leave, output)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._turns.monitor, name)

    @property
    def role(self) -> Role:
        return self._turns.monitor.role if self._output.is_running else Role.OFFLINE

    @property
    def error(self) -> CanalError | None:
        if self._turns.monitor.role is Role.OFFLINE:
            return CoordinationError("the router does not run", remedy="Start the router; the output waits for it.")
        return self._turns.monitor.error

    def clients_changed(self) -> None:
        """They have no nodes of their own."""

    def wait_active(self, timeout: float | None) -> bool:
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            left = _LOOK if deadline is None else min(_LOOK, max(deadline - time.monotonic(), 0.0))
            began = time.monotonic()
            if self._turns.monitor.wait_active(left):
                return True
            if not self._output.is_running or deadline is not None and time.monotonic() >= deadline:
                return False
            time.sleep(max(left - (time.monotonic() - began), 0.0))  # a monitor that is not started does not wait


def _quietly(destination: str, stop: Callable[[], None]) -> None:
    try:
        stop()
    except CoordinationError as error:  # without contact, write-behind cursors cannot be written: they come again
        log.warning("[%s] stopped: %s", destination, error)
    except Exception:
        log.exception("[%s] did not stop cleanly", destination)
