"""Carries the state machine of canal.ha.machine out for one destination, on shared threads and a shared session.

Never delivers anything itself. Whether a delivery or an ack may go through is one question to the gate: the role is
active, and the lease, counted on this process's own clock from its last contact with ZooKeeper, is not over.
"""

from __future__ import annotations

import contextlib
import logging
import os
import queue
import socket
import threading
import uuid
from collections import Counter
from collections.abc import Callable, Collection
from functools import partial
from typing import Final, Protocol

import attrs

from canal._util.workers import Stepper
from canal.alarm import AlarmDesk, AlarmKind
from canal.errors import CanalError, CoordinationError, NotActiveError, StateError
from canal.ha import clock
from canal.ha.gate import Gate
from canal.ha.machine import OWNING, Action, Event, Role, step
from canal.ha.nodes import Presence, made, read_epoch, read_running, remove_own, running_document
from canal.ha.troubles import LONGEST_WAIT, Troubles
from canal.zookeeper.session import (
    Create,
    Delete,
    Fence,
    NodeExists,
    NodeMissing,
    Session,
    Set,
    UnansweredError,
    VersionChanged,
    ZooKeeper,
)

log = logging.getLogger("canal.ha")

#: So many in a row are no chance: answers that did not come though there is contact, claims in which others were quicker,
#: and take-overs in the middle of a start.
_MANY: Final = 3


class ActiveParts(Protocol):
    """What runs in the active process only."""

    def start_parts(self, session: Session, fence: Fence) -> None:
        """Start from the stored cursors; raises what makes that impossible."""

    def clients(self) -> Collection[int]:
        """Ids of the clients that are subscribed now."""

    def stop_parts(self) -> None:
        """Stop; nothing may be outstanding afterwards. Never raises."""


def _draw_address() -> str:
    """What no other process, and no other instance of this one, calls itself."""
    return f"{socket.gethostname()}:{os.getpid()}:{uuid.uuid4().hex}"


#: What is tried again until it is done.
_LASTING: Final = frozenset((Action.OPEN, Action.JOIN, Action.LOOK, Action.CLAIM, Action.MARK, Action.GIVE_UP))
#: The event that has something done again, where the state machine knows one.
_RETRIES: Final = {Action.LOOK: Event.CHANGED, Action.MARK: Event.CLIENTS}


#: Actions that may wait for a server or for code of the user.
_LONG: Final = frozenset((Action.START_PARTS, Action.STOP_PARTS))


@attrs.frozen
class _OfTurn:
    """An event that means one turn: it may be taken from the queue when that is over, and the next one has begun."""

    event: Event
    fence: Fence


class _Inbox:
    """The events to come, each of which wakes the monitor."""

    def __init__(self, wake: Callable[[], None]) -> None:
        self._events: queue.SimpleQueue[Event | _OfTurn] = queue.SimpleQueue()
        self._wake = wake

    def put(self, event: Event | _OfTurn) -> None:
        self._events.put(event)
        self._wake()

    def take(self) -> Event | _OfTurn | None:
        try:
            return self._events.get_nowait()
        except queue.Empty:
            return None

    def empty(self) -> bool:
        return self._events.empty()


class RunningMonitor:
    """Takes part in the election of the process that is active for a destination.

    Args:
        config: ZooKeeper.
        destination: whose running node it is.
        parts: started and stopped as the role changes, never at the same time.
        alarms: raised for what ZooKeeper refuses or holds, and for parts that do not start.

    Nothing that is raised ends it: what fails raises an alarm, and is tried again after waits that grow.
    """

    def __init__(self, config: ZooKeeper, destination: str, parts: ActiveParts, alarms: AlarmDesk) -> None:
        self.config = config
        self.destination = destination
        self.address = _draw_address()
        self.session = Session(config, self._listen, claim=config.destination_path(destination))
        #: How often each role was entered.
        self.transitions: Counter[Role] = Counter()
        self._parts = parts
        self._alarms = alarms
        self._troubles = Troubles(destination, alarms)
        self._presence = Presence(config, destination, self.session)
        self._again: dict[Action, float] = {}  # what has failed, and when it is to be done again
        self._silent_at = 0.0  # when a loss of contact is to raise an alarm
        self._role = Role.OFFLINE
        self._stepper: Stepper | None = None
        self._events = _Inbox(self._wake)
        self._held: Event | None = None  # to be carried out by the next step, which may take long
        self._tick = 0.0  # when the lease is to be renewed
        self.gate = Gate()
        self._process = os.getpid()
        self._ending = True  # stop() was called
        self._fence: Fence | None = None
        self._last_owner = ""
        self._due: float | None = None
        self._failures = 0
        self._looked = False
        self._epoch = 0  # the highest one that was seen
        self._refused = 0  # claims in a row in which another was quicker
        #: Somebody had deleted the epoch, and with it perhaps the cursors, when this turn was claimed.
        self.was_deleted = False

    # -- life ------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """
        Raises:
            StateError: the parts of the run before have not stopped yet.
            ConfigError: ZooKeeper cannot be used as configured.
        """
        if self._stepper is not None and self._stepper.is_alive:  # both would carry events out, of one queue
            raise StateError(
                "the run before has not ended yet",
                destination=self.destination,
                remedy="Something holds its parts up, such as a hook that does not return. Call start() again later.",
            )
        self.session.check()
        if self._process != os.getpid():  # a fork of the process that has made it, which may use it too
            self._process, self.address = os.getpid(), _draw_address()
        self._events, self._held = _Inbox(self._wake), None
        self._looked, self._due, self._failures, self._tick = False, None, 0, 0.0
        self._troubles.counts.clear()
        self._again.clear()
        self._ending = False
        self._stepper = Stepper(self._step, f"canal-{self.destination}-ha")
        self._events.put(Event.START)

    def stop(self, timeout: float = 30.0) -> None:
        """Give the node up and end. The parts are stopped first. A ZooKeeper that is silent is not waited for."""
        stepper = self._stepper
        if not self._ending:
            self._ending = True
            self.session.hurry()
            self.gate.shut()
            self._events.put(Event.STOP)
        if stepper is None or stepper.thread is threading.current_thread():
            return
        stepper.join(timeout)
        if stepper.is_alive:
            log.warning(
                "[%s] stopped, but something holds its parts up still, such as a hook that does not return", self.destination
            )

    def release(self) -> None:
        """Let another process take over; this one stands by and rests a little before it competes again."""
        fence = self._fence
        if fence is not None:
            self._events.put(_OfTurn(Event.RELEASE, fence))

    def fenced(self, fence: Fence | None) -> None:
        """A write behind this fence was refused: another process has taken over. Nothing, when that turn is over already."""
        with self.gate.changed:
            if fence is None or fence is not self._fence:
                return
            self.gate.shut()
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
    def error(self) -> CanalError | None:
        """What keeps this process from its turn, or from standing by for it; None: nothing."""
        return self._troubles.error

    @property
    def fence(self) -> Fence | None:
        """What the active process writes behind; None in any other."""
        return self._fence

    @property
    def may_pass(self) -> bool:
        """Whether a delivery or an ack may go through now; asked as the last thing before it does."""
        return self.gate.may_pass

    def wait_active(self, timeout: float | None) -> bool:
        """Wait until ``may_pass``; False when the time is over or the monitor has stopped."""
        return self.gate.wait(timeout, lambda: self._ending)

    def check(self, doing: str) -> None:
        """Raise unless ``may_pass``; while contact is lost, wait until it is known who owns the node."""
        while not self.may_pass:
            if self._role not in OWNING or self._ending or self.wait_active(self.config.session_timeout) is False:
                raise NotActiveError(
                    f"{doing}: this process is {self._role.value}",
                    destination=self.destination,
                    remedy="Another process delivers from the last cursor; nothing was lost.",
                )

    # -- events ----------------------------------------------------------------------------------------------------

    def _listen(self, state: str) -> None:
        """On kazoo's thread: what shuts the gate takes effect at once."""
        if state == "CONNECTED":
            self._events.put(Event.CONNECTED)
            return
        self.gate.lose_contact()
        self._events.put(Event.LOST if state == "LOST" else Event.DISCONNECTED)

    def _wake(self) -> None:
        if self._stepper is not None:
            self._stepper.wake()

    def _step(self) -> float | None:
        """Carry one event out, if there is one. Return the seconds until the next step, or None at the end."""
        try:
            held, self._held = self._held, None
            event = held or self._next()
            if event is None:
                return self._pause()
            assert self._stepper is not None
            if held is None and (event is Event.STOP or not _LONG.isdisjoint(step(self._role, event)[1])):
                self._held, self._stepper.is_long = event, True
                return 0.0
            if not self._take(event):
                return 0.0
            self._set_role(Role.OFFLINE)
            return None
        except BaseException as error:
            log.exception("[%s] the monitor of the running node failed", self.destination)
            self._alarms.tell(AlarmKind.STOPPED, f"this process takes no turns any more: {error!r}")
            self.gate.shut()
            with contextlib.suppress(Exception):
                self._parts.stop_parts()
            with contextlib.suppress(Exception):
                self.session.close()
            self._set_role(Role.OFFLINE)
            return None

    def _next(self) -> Event | None:
        """Return the next event, or None. If none has come for a while renew the lease, or end a wait."""
        while (event := self._events.take()) is not None:
            if not isinstance(event, _OfTurn):
                return event
            if event.fence is self._fence:
                return event.event
        if self._pause() > 0.0:
            return None
        self._tick = clock.now() + self.session.timeout / 6
        if self._due is not None and clock.now() >= self._due:
            self._due = None
            return Event.DUE
        if not self.session.is_connected:
            self._do(Action.OPEN, self._watch_contact)
            return None
        if self._role is Role.CONNECTING:  # the event that says so did not come, and it would wait for ever
            return Event.CONNECTED
        action = next((action for action, due in self._again.items() if clock.now() >= due), None)
        if action is not None:
            del self._again[action]
            if action in _RETRIES:
                return _RETRIES[action]
            if action is not Action.GIVE_UP or self._role not in OWNING:
                self._do(action)
        elif self._role in (Role.ACTIVE, Role.SUSPENDED) and Action.LOOK not in self._again:
            self._do(Action.LOOK, lambda: self._look(watch=False))
        return None

    def _pause(self) -> float:
        """Return the seconds until there is something to do though no event comes."""
        dues = [self._tick, *(self._again.values() if self.session.is_connected else ())]
        if self._due is not None:
            dues.append(self._due)
        return max(float(min(dues)) - clock.now(), 0.0)

    def _take(self, event: Event) -> bool:
        """Carry one event out; True when the machine has come to its end."""
        before = self._role
        role, actions = step(before, event)
        if role is not before:
            log.info("[%s] %s -> %s: %s", self.destination, before.value, role.value, event.value)
            self._set_role(role)
        if event in (Event.START, Event.DISCONNECTED, Event.LOST, Event.CONNECTED):
            self._again.clear()  # who has contact again looks anew
            if before is not Role.CONNECTING:
                self._silent_at = clock.now() + self.config.session_timeout
        is_done = True
        for action in actions:
            if action is Action.LOOK and not is_done:  # else what cannot be given up is seen again and again
                self._again[action] = clock.now() + self._troubles.wait()
            else:
                is_done = self._do(action) and is_done
        return role is Role.OFFLINE

    def _set_role(self, role: Role) -> None:
        with self.gate.changed:
            if role is not self._role:
                self._role = role
                self.transitions[role] += 1
            if role not in OWNING:
                self.gate.shut()
                self._fence = None
            self.gate.changed.notify_all()

    # -- actions ---------------------------------------------------------------------------------------------------

    def _do(self, action: Action, deed: Callable[[], Event | None] | None = None) -> bool:
        """Carry one action out; False where it failed, which was noted."""
        self._again.pop(action, None)
        try:
            event = (deed or self._deed(action))()
        except BaseException as error:  # of a user's part perhaps, such as SystemExit
            self._failed(action, error)
            return False
        if action in _LASTING:
            self._troubles.end(action.name, *(["session", "contact"] if action is Action.LOOK else []))
        if event is not None:
            self._events.put(event)
        return True

    def _deed(self, action: Action) -> Callable[[], Event | None]:
        deeds: dict[Action, Callable[[], Event | None]] = {
            Action.OPEN: self.session.open,
            Action.CLOSE: self.session.close,
            Action.LOOK: self._look,
            Action.CLAIM: self._claim,
            Action.START_PARTS: self._start_parts,
            Action.STOP_PARTS: self._parts.stop_parts,
            Action.UNMARK: self._presence.unmark,
            Action.PAUSE: self.gate.shut,
            Action.RESUME: self._resume,
            Action.WAIT_TURN: lambda: self._wait(self.config.takeover_delay),
            Action.NO_WAIT: lambda: self._wait(None),
            Action.WAIT_REST: lambda: self._wait(self._rest()),
        }
        asking: dict[Action, Callable[[], None]] = {
            Action.JOIN: lambda: self._presence.join(self.address),
            Action.LEAVE: lambda: self._presence.leave(self.address),
            Action.GIVE_UP: self._give_up,
            Action.MARK: self._mark,
        }
        if action in asking:  # without contact, what cannot be removed goes with the session
            return asking[action] if self.session.is_connected else lambda: None
        return deeds[action]

    def _wait(self, seconds: float | None) -> None:
        self._due = None if seconds is None else clock.now() + seconds

    def _rest(self) -> float:
        rest = max(2 * self.config.takeover_delay, 0.5) * 2.0 ** min(max(self._failures - 1, 0), 6)
        return min(rest, max(LONGEST_WAIT, 2 * self.config.takeover_delay))

    # -- what fails ------------------------------------------------------------------------------------------------

    def _failed(self, action: Action, error: BaseException) -> None:
        """Tell it once, and see that it is tried again; whoever only missed an answer tries again first."""
        if isinstance(error, (NodeExists, NodeMissing, VersionChanged)):
            error = CoordinationError(f"nodes of {self._path()} were changed at the same time: {error}")
        key = action.name
        is_silence = isinstance(error, UnansweredError)
        if is_silence and (not self.session.is_connected or self._ending):
            log.info("[%s] cannot %s: %s", self.destination, action.value, error)
        else:
            self._troubles.note(
                key, f"cannot {action.value}", error, is_alarm=not is_silence or self._troubles.counts[key] >= _MANY
            )
        if action is Action.CLAIM:
            is_first = is_silence and self._troubles.counts[key] < _MANY
            self._failures += not is_first
            self._events.put(Event.REFUSED if is_first else Event.BROKEN)
        elif action not in _LASTING:
            self._troubles.forget(key)
        elif action is not Action.OPEN:  # which is tried for as long as there is no contact
            self._again[action] = clock.now() + self._troubles.wait(key)

    def _watch_contact(self) -> None:
        """Without contact: see that somebody tries to get it, and tell where that takes longer than a session lives."""
        self.session.open()
        where = f"ZooKeeper at {self.config.hosts}"
        if self.session.has_ended:
            self._troubles.note(
                "session",
                f"cannot log in to {where}",
                CoordinationError(self.session.problem, remedy="Check the credentials and the options of ha."),
            )
        elif clock.now() >= self._silent_at:
            self._troubles.note(
                "contact",
                f"there is no contact with {where}",
                UnansweredError(
                    self.session.problem, remedy="Nobody delivers without it. Check that a majority of its members runs."
                ),
            )
            self._silent_at = clock.now() + self._troubles.wait("contact")
        self.session.revive()

    # -- the nodes -------------------------------------------------------------------------------------------------

    def _path(self, *parts: str) -> str:
        return self.config.destination_path(self.destination, *parts)

    def _look(self, watch: bool = True) -> Event | None:
        look, path = self.gate.look(), self._path("running")
        value = self.session.get(path, partial(self._events.put, Event.CHANGED) if watch else None)
        self._looked = self._looked or value is not None
        if value is None:
            self._troubles.end("running")
            return Event.GONE if self._last_owner not in ("", self.address) else Event.FREE
        address, active = read_running(value.data)
        if not value.owner:
            self._troubles.note(
                "running",
                "nobody can take the destination over",
                CoordinationError(f"{path} lives by no session, so it stays", remedy="Somebody has made it by hand: delete it."),
            )
        elif not address:
            self._troubles.note(
                "running",
                "nobody can tell who runs the destination",
                CoordinationError(f"{path} holds {value.data[:40]!r}", remedy="It goes with its owner's session."),
            )
        else:
            self._troubles.end("running")
        if value.owner and value.owner == self.session.id and address in ("", self.address):
            self._last_owner = self.address
            if not active:
                return Event.RETIRED
            self.gate.renew(look, self.session.timeout)
            return Event.OWN
        self._last_owner = address
        if address == self.address and value.owner:
            return Event.STALE
        self._refused = 0
        self._note_epoch()
        return Event.TAKEN

    def _note_epoch(self) -> None:
        """Of another's turn: should somebody delete the nodes, ours goes on from there."""
        path = self._path("epoch")
        try:
            value = self.session.get(path)
            self._epoch = max(self._epoch, read_epoch(path, value.data) if value is not None else 0)
        except CoordinationError as error:
            is_alarm = not isinstance(error, UnansweredError)
            self._troubles.note("EPOCH", "cannot read how often the destination was taken over", error, is_alarm)
            self._again[Action.LOOK] = clock.now() + self._troubles.wait("EPOCH")
        else:
            self._troubles.end("EPOCH")

    def _resume(self) -> None:
        self.gate.open()
        self._failures = 0

    def _claim(self) -> Event:
        """Raise the epoch and write the running node.

        The epoch is kept twice, the other one where nobody deletes it with the destination: it never goes back.
        """
        look = self.gate.look()
        epoch, copy = self._path("epoch"), f"{self.config.root}/epochs/{self.destination}"
        try:
            first, second = made(self.session, epoch), made(self.session, copy)
            number_there = read_epoch(epoch, first.data)
            last = max(number_there, read_epoch(copy, second.data), self._epoch)
            number, turn = last + 1, f"{epoch}/{uuid.uuid4().hex}"
            text = str(number).encode()
            versions = self.session.write(
                [
                    Set(epoch, text, first.version),
                    Set(copy, text, second.version),
                    Create(turn, b"", True),
                    Create(self._path("running"), running_document(self.address), True),
                    *(Delete(f"{epoch}/{earlier}") for earlier in self.session.children(epoch)),
                ]
            )
        except (NodeExists, NodeMissing, VersionChanged) as error:
            return self._overtaken(error)
        self.was_deleted = number_there < last
        if self.was_deleted:
            self._alarms.announce(
                AlarmKind.COORDINATION,
                f"{epoch} held {number_there} behind take-over {last}: somebody has deleted nodes of the destination, or set "
                f"them back. This is take-over {number}. A client whose cursor was deleted too, and which this process has not "
                "served in its last turn, begins anew where the config says: look whether it lacks anything",
            )
        self._epoch, self._refused, self._last_owner = number, 0, self.address
        self._troubles.end("EPOCH")
        self._fence = Fence(epoch, versions[0], number, turn, f"{self.destination}@{second.created:.3f}")
        self.gate.renew(look, self.session.timeout)
        return Event.CLAIMED

    def _overtaken(self, what: object) -> Event:
        """Others were quicker, again and again where something is wrong."""
        log.info("[%s] another process was quicker: %s", self.destination, what)
        self._refused += 1
        if self._refused > _MANY:
            raise CoordinationError(f"nodes of {self._path()} change all the time: {what}")
        return Event.REFUSED

    def _start_parts(self) -> Event:
        assert self._fence is not None
        try:
            self._parts.start_parts(self.session, self._fence)
        except NotActiveError as error:
            self._failures += 1
            if self._failures <= _MANY:
                log.info("[%s] another process was quicker: %s", self.destination, error)
                return Event.FENCED
            self._troubles.note("START_PARTS", "the parts do not start", error)
            return Event.BROKEN
        except BaseException as error:
            self._failures += 1
            self._troubles.note("START_PARTS", "the parts do not start, so another process may take over", error)
            return Event.BROKEN
        self._troubles.end("START_PARTS")
        return Event.READY

    def _give_up(self) -> None:
        remove_own(self.session, self._path("running"), self.address)

    def _mark(self) -> None:
        # Whoever has the destination has its clients.
        self._presence.mark(self._parts.clients(), self.address, self._fence, ended=self.release)
