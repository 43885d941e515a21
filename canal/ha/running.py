"""Carries the state machine of canal.ha.machine out: one thread, one ZooKeeper session, one destination.

Never delivers anything itself. Whether a delivery or an ack may go through is one question to the gate: the role is
active, and the lease, counted on this process's own clock from its last contact with ZooKeeper, is not over.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import queue
import socket
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Collection
from typing import Final, Protocol

import attrs

from canal.errors import CanalError, CoordinationError, NotActiveError, StateError
from canal.ha.machine import OWNING, Action, Event, Role, step
from canal.threads import OwnThread
from canal.zookeeper import (
    Create,
    Delete,
    Fence,
    NodeExists,
    NodeMissing,
    Session,
    Set,
    VersionChanged,
    ZooKeeper,
)

log = logging.getLogger("canal.ha")

#: The part of the session's time-out for which a contact lets deliveries through. A member of ZooKeeper that dies may take
#: up to a tick of what it has heard with it.
_LEASE: Final = 2 / 3
_LONGEST_REST: Final = 60.0
_CLOCK: Final = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def _now() -> float:
    """Seconds on a clock that also runs while the machine sleeps, where there is one."""
    return time.clock_gettime(_CLOCK)


class Parts(Protocol):
    """What runs in the active process only."""

    def start_parts(self, session: Session, fence: Fence) -> None:
        """Start from the stored cursors; raises what makes that impossible."""

    def clients(self) -> Collection[int]:
        """Ids of the clients that are subscribed now."""

    def stop_parts(self) -> None:
        """Stop; nothing may be outstanding afterwards. Never raises."""


def running_document(address: str, active: bool = True, client_id: int | None = None) -> bytes:
    """The data of a destination's running node, or of a client's, as canal writes it."""
    document: dict[str, object] = {"active": active, "address": address}
    if client_id is not None:
        document["clientId"] = client_id
    return json.dumps(document, separators=(",", ":")).encode()


def _draw_address() -> str:
    """What no other process, and no other instance of this one, calls itself."""
    return f"{socket.gethostname()}:{os.getpid()}:{uuid.uuid4().hex}"


def read_running(data: bytes) -> tuple[str, bool]:
    """Address and whether it is active; canal's own nodes too."""
    try:
        document = json.loads(data)
        return str(document["address"]), bool(document.get("active", True))
    except (ValueError, KeyError, TypeError):
        return "", True


@attrs.frozen
class _OfTurn:
    """An event that means one turn: it may be taken from the queue when that is over, and the next one has begun."""

    event: Event
    fence: Fence


class RunningMonitor:
    """Takes part in the election of the process that is active for a destination.

    Args:
        config: ZooKeeper.
        destination: whose running node it is.
        parts: started and stopped as the role changes, on the monitor's thread.
        tell: an alarm's text.
    """

    def __init__(
        self, config: ZooKeeper, destination: str, parts: Parts, tell: Callable[[str], None] = lambda text: None
    ) -> None:
        self.config = config
        self.destination = destination
        self.address = _draw_address()
        self.session = Session(config, self._listen)
        #: How often each role was entered.
        self.transitions: Counter[Role] = Counter()
        self._parts = parts
        self._tell = tell
        self._role = Role.OFFLINE
        self._events: queue.SimpleQueue[Event | _OfTurn] = queue.SimpleQueue()
        self._changed = threading.Condition()
        self._process = os.getpid()
        self._thread: threading.Thread | None = None
        self._ending = True  # stop() was called
        self._open = False
        self._doubts = 0  # how often contact was lost; a look proves ownership only if it stays the same
        self._certain = 0
        self._lease_until = 0.0
        self._fence: Fence | None = None
        self._marked: set[int] = set()  # clients whose running node is ours
        self._last_owner = ""
        self._due: float | None = None
        self._failures = 0
        self._looked = False

    # -- life ------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """
        Raises:
            StateError: the parts of the run before have not stopped yet.
        """
        if self._thread is not None and self._thread.is_alive():  # both would carry events out, of one queue
            raise StateError(
                "the run before has not ended yet", destination=self.destination,
                remedy="Something holds its parts up, such as a hook that does not return. Call start() again later.",
            )  # fmt: skip
        if self._process != os.getpid():  # a fork of the process that has made it, which may use it too
            self._process, self.address = os.getpid(), _draw_address()
        self._events = queue.SimpleQueue()
        self._events.put(Event.START)
        self._looked, self._due, self._failures = False, None, 0
        self._ending = False
        self._thread = OwnThread(target=self._run, name=f"canal-{self.destination}-ha")
        self._thread.start()

    def stop(self, timeout: float = 30.0) -> None:
        """Give the node up and end. The parts are stopped first."""
        thread = self._thread
        if not self._ending:
            self._ending = True
            self._shut()
            self._events.put(Event.STOP)
        if thread is None or thread is threading.current_thread():
            return
        thread.join(timeout)
        if thread.is_alive():
            log.warning("[%s] stopped, but something holds its parts up still, such as a hook that does not return",
                        self.destination)  # fmt: skip

    def release(self) -> None:
        """Let another process take over; this one stands by and rests a little before it competes again."""
        fence = self._fence
        if fence is not None:
            self._events.put(_OfTurn(Event.RELEASE, fence))

    def fenced(self, fence: Fence | None) -> None:
        """A write behind this fence was refused: another process has taken over. Nothing, when that turn is over already."""
        with self._changed:
            if fence is None or fence is not self._fence:
                return
            self._open = False
            self._changed.notify_all()
        self._events.put(_OfTurn(Event.FENCED, fence))

    def clients_changed(self) -> None:
        """A client has subscribed or unsubscribed."""
        self._events.put(Event.CLIENTS)

    # -- the gate --------------------------------------------------------------------------------------------------

    @property
    def role(self) -> Role:
        return self._role

    @property
    def is_decided(self) -> bool:
        """Whether the running node has been looked at since the start."""
        return self._looked

    @property
    def fence(self) -> Fence | None:
        """What the active process writes behind; None in any other."""
        return self._fence

    @property
    def may_pass(self) -> bool:
        """Whether a delivery or an ack may go through now; asked as the last thing before it does."""
        return self._open and _now() < self._lease_until

    def wait_active(self, timeout: float | None) -> bool:
        """Wait until ``may_pass``; False when the time is over or the monitor has stopped."""
        deadline = None if timeout is None else _now() + timeout
        with self._changed:
            while not self.may_pass:
                left = None if deadline is None else deadline - _now()
                if (left is not None and left <= 0) or self._ending:
                    return False
                # A lease that runs on again tells nobody.
                self._changed.wait(0.1 if left is None else min(left, 0.1))
        return True

    def check(self, doing: str) -> None:
        """Raise unless ``may_pass``; while contact is lost, wait until it is known who owns the node."""
        while not self.may_pass:
            if self._role not in OWNING or self._ending or self.wait_active(self.config.session_timeout) is False:
                raise NotActiveError(
                    f"{doing}: this process is {self._role.value}", destination=self.destination,
                    remedy="Another process delivers from the last cursor; nothing was lost.",
                )  # fmt: skip

    def _shut(self) -> None:
        with self._changed:
            self._open = False
            self._changed.notify_all()

    # -- events ----------------------------------------------------------------------------------------------------

    def _listen(self, state: str) -> None:
        """On kazoo's thread: what shuts the gate takes effect at once."""
        if state == "CONNECTED":
            self._events.put(Event.CONNECTED)
            return
        self._doubts += 1
        self._shut()
        self._events.put(Event.LOST if state == "LOST" else Event.DISCONNECTED)

    def _run(self) -> None:
        try:
            while True:
                event = self._next()
                if event is not None and self._take(event):
                    return
        except BaseException:
            log.exception("[%s] the monitor of the running node failed", self.destination)
            self._shut()
            self._parts.stop_parts()
            with contextlib.suppress(Exception):
                self.session.close()
            raise
        finally:
            self._set_role(Role.OFFLINE)

    def _next(self) -> Event | None:
        """The next event; meanwhile the lease is renewed, and the wait may come to its end."""
        pause = self.session.timeout / 6
        if self._due is not None:
            pause = min(pause, max(self._due - _now(), 0.0))
        try:
            event = self._events.get(timeout=pause)
        except queue.Empty:
            pass
        else:
            if not isinstance(event, _OfTurn):
                return event
            return event.event if event.fence is self._fence else None
        if self._due is not None and _now() >= self._due:
            self._due = None
            return Event.DUE
        if self._role in (Role.ACTIVE, Role.SUSPENDED) and self.session.is_connected:
            return self._look(watch=False)
        return None

    def _take(self, event: Event) -> bool:
        """Carry one event out; True when the machine has come to its end."""
        before = self._role
        role, actions = step(before, event)
        if role is not before:
            log.info("[%s] %s -> %s: %s", self.destination, before.value, role.value, event.value)
            self._set_role(role)
        for action in actions:
            self._do(action)
        return role is Role.OFFLINE

    def _set_role(self, role: Role) -> None:
        with self._changed:
            if role is not self._role:
                self._role = role
                self.transitions[role] += 1
            if role not in OWNING:
                self._open, self._fence = False, None
            self._changed.notify_all()

    # -- actions ---------------------------------------------------------------------------------------------------

    def _do(self, action: Action) -> None:
        if action is Action.LOOK:
            self._answer(self._look)
        elif action is Action.CLAIM:
            self._answer(self._claim)
        elif action is Action.START_PARTS:
            self._answer(self._start_parts)
        elif action is Action.STOP_PARTS:
            self._parts.stop_parts()
        elif action is Action.PAUSE:
            self._shut()
        elif action is Action.UNMARK:
            self._unmark()
        elif action is Action.RESUME:
            self._resume()
        elif action is Action.WAIT_TURN:
            self._due = _now() + self.config.takeover_delay
        elif action is Action.WAIT_REST:
            rest = max(2 * self.config.takeover_delay, 0.5) * 2 ** min(max(self._failures - 1, 0), 6)
            self._due = _now() + min(rest, max(_LONGEST_REST, 2 * self.config.takeover_delay))
        elif action is Action.NO_WAIT:
            self._due = None
        elif action is Action.OPEN:
            self.session.open()
        elif action is Action.CLOSE:
            self.session.close()
        elif self.session.is_connected:
            with contextlib.suppress(CoordinationError):  # what cannot be removed goes with the session
                {
                    Action.JOIN: self._join, Action.LEAVE: self._leave, Action.GIVE_UP: self._give_up,
                    Action.MARK: self._mark,
                }[action]()  # fmt: skip

    def _answer(self, ask: Callable[[], Event | None]) -> None:
        event = ask()
        if event is not None:
            self._events.put(event)

    def _path(self, *parts: str) -> str:
        return self.config.destination_path(self.destination, *parts)

    def _look(self, watch: bool = True) -> Event | None:
        asked, doubts = _now(), self._doubts
        try:
            value = self.session.get(self._path("running"), self._watched if watch else None)
        except CoordinationError as error:
            log.warning("[%s] %s", self.destination, error)
            if watch and self._due is None:  # nobody else would look again
                threading.Timer(1.0, self._watched).start()
            return None
        self._looked = self._looked or value is not None
        if value is None:
            return Event.GONE if self._last_owner not in ("", self.address) else Event.FREE
        address, active = read_running(value.data)
        if value.owner == self.session.id:
            self._last_owner = self.address
            if not active:
                return Event.RETIRED
            self._renew(asked, doubts)
            return Event.OWN
        self._last_owner = address
        return Event.STALE if address == self.address else Event.TAKEN

    def _watched(self) -> None:
        self._events.put(Event.CHANGED)

    def _renew(self, asked: float, doubts: int) -> None:
        """This session owned the node after ``asked``, so it lives for its time-out from then on at least."""
        self._certain = doubts
        self._lease_until = asked + self.session.timeout * _LEASE

    def _resume(self) -> None:
        with self._changed:
            # Else contact was lost since the last look, and the event that says so is on its way.
            self._open = self._doubts == self._certain
            self._changed.notify_all()
        self._failures = 0

    def _claim(self) -> Event:
        asked, doubts = _now(), self._doubts
        running, epoch = self._path("running"), self._path("epoch")
        try:
            self.session.make(self._path())
            value = self.session.get(epoch)
            if value is None:
                with contextlib.suppress(NodeExists):
                    self.session.write([Create(epoch, b"0")])
                value = self.session.get(epoch)
            if value is None:
                return Event.REFUSED
            number = int(value.data or b"0") + 1
            versions = self.session.write(
                [Set(epoch, str(number).encode(), value.version), Create(running, running_document(self.address), True)]
            )
        except (NodeExists, NodeMissing, VersionChanged, ValueError) as error:
            log.info("[%s] another process was quicker: %r", self.destination, error)
            return Event.REFUSED
        except CoordinationError as error:
            log.warning("[%s] cannot claim the running node: %s", self.destination, error)
            time.sleep(0.1)
            return Event.REFUSED
        self._fence = Fence(epoch, versions[0], number)
        self._last_owner = self.address
        self._renew(asked, doubts)
        return Event.CLAIMED

    def _start_parts(self) -> Event:
        assert self._fence is not None
        try:
            self._parts.start_parts(self.session, self._fence)
        except NotActiveError as error:
            log.info("[%s] another process was quicker: %s", self.destination, error)
            return Event.FENCED
        except Exception as error:
            self._failures += 1
            self._tell(f"the parts do not start, so another process may take over: {error}")
            if not isinstance(error, CanalError):
                log.exception("[%s] the parts do not start", self.destination)
            return Event.BROKEN
        return Event.READY

    def _give_up(self) -> None:
        value = self.session.get(self._path("running"))
        if value is None:
            return
        if value.owner == self.session.id or read_running(value.data)[0] == self.address:
            with contextlib.suppress(NodeMissing, VersionChanged):
                self.session.write([Delete(self._path("running"), value.version)])

    def _mark(self) -> None:
        """So that canal's tools see who consumes, and may say that it shall end. A node of somebody else's is left alone."""
        clients = set(self._parts.clients())
        self._marked &= clients  # of those that are gone the node went with all the others
        for client_id in clients:
            path = self._path(str(client_id), "running")
            value = self.session.get(path)
            if value is None:
                with contextlib.suppress(NodeExists, NodeMissing):
                    document = running_document(self.address, client_id=client_id)
                    self.session.write([Create(path, document, ephemeral=True)], self._fence)
                    self._marked.add(client_id)
            elif value.owner == self.session.id and not read_running(value.data)[1]:
                log.info("[%s] an operator has written active=false for client %d", self.destination, client_id)
                self.release()  # whoever has the destination has its clients

    def _unmark(self) -> None:
        """Without contact they go with the session."""
        marked, self._marked = self._marked, set()
        for client_id in marked if self.session.is_connected else ():
            path = self._path(str(client_id), "running")
            with contextlib.suppress(CoordinationError, NodeMissing, VersionChanged):
                value = self.session.get(path)
                if value is not None and value.owner == self.session.id:
                    self.session.write([Delete(path, value.version)])

    def _join(self) -> None:
        for path in self._members():
            self.session.make(path.rpartition("/")[0])
            with contextlib.suppress(NodeExists):
                self.session.write([Create(path, b"", ephemeral=True)])

    def _leave(self) -> None:
        for path in self._members():
            with contextlib.suppress(NodeMissing, VersionChanged):
                self.session.write([Delete(path)])

    def _members(self) -> tuple[str, str]:
        return f"{self.config.root}/cluster/{self.address}", self._path("cluster", self.address)
