"""What ``ha`` adds to an Instance: nothing begins, is handed out or acked but in this process's turn.

Never starts or stops a part: whoever takes part in the election does.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable
from typing import Protocol, runtime_checkable

import attrs

from canal.alarm import AlarmDesk, AlarmKind
from canal.errors import CanalError, CoordinationError, NotActiveError
from canal.formats.message import Message
from canal.ha.machine import Role
from canal.ha.running import RunningMonitor
from canal.instance.context import ClientContext
from canal.instance.delivery import Delivery, Taken, take_back
from canal.meta.protocol import MetaManager, Subscribed
from canal.position import Position
from canal.zookeeper.session import Fence, Session


@runtime_checkable
class FencedPart(Protocol):
    """A meta manager or schema history that writes to ZooKeeper beside a check of the turn's fence.

    A part without this method writes without a fence. Then a process whose turn is over may still write to it.
    """

    def bind(self, session: Session, fence: Callable[[], Fence | None]) -> None:
        """Use this session from the next ``start`` on, and the fence that ``fence`` returns then."""


@runtime_checkable
class SharedSubscriptions(Protocol):
    """A meta manager that returns what other processes have done with a client's subscription."""

    def subscribed(self, session: Session, destination: str, client_id: int) -> Subscribed:
        """Read it in this session. The manager need not be started."""


@attrs.frozen
class Note:
    """A subscription to repeat in each turn of this process, until another process changes it.

    Attributes:
        filter: None keeps the stored one.
        seen: what was known when ``subscribe`` was called; None: nothing.
    """

    filter: str | None
    seen: Subscribed | None = None


def bind(parts: Iterable[object], session: Session, fence: Callable[[], Fence | None]) -> None:
    """A turn begins: bind the parts that write beside its fence."""
    for part in parts:
        if isinstance(part, FencedPart):
            part.bind(session, fence)


class Turns:
    """The turns of one instance, and what is kept from one to the next.

    Args:
        client: returns a client by its id.
    """

    def __init__(self, ha: RunningMonitor, context: ClientContext, alarms: AlarmDesk, client: Callable[[int], Delivery]) -> None:
        self._ha = ha
        self._context = context
        self._alarms = alarms
        self._client = client
        #: What is to be subscribed in each turn, by client.
        self.noted: dict[int, Note] = {}
        self._epoch = 0  # of the last turn
        self._left: dict[int, tuple[str, Position]] = {}  # clients at its end, their filters and cursors

    def begin(self, session: Session, parts: Iterable[object]) -> None:
        """It is this process's turn: what writes does so beside the fence."""
        ha = self._ha
        bind(parts, session, lambda: ha.fence)
        fence = ha.fence
        if fence is not None:
            if fence.epoch != self._epoch + 1 and not ha.was_deleted:  # another process may have moved or ended them
                self._left = {}
            self._epoch = fence.epoch

    def forget(self) -> None:
        """Nothing is to be known any more of the clients at the end of the last turn."""
        self._left = {}

    def keep(self, client: Delivery) -> None:
        """A client at the end of a turn."""
        if client.durable:
            self._left[client.id] = client.filter, client.cursor

    def restore(self, meta: MetaManager) -> None:
        """Clients whose cursors were deleted under this process go on from those it knows."""
        for client_id, (filter, cursor) in self._left.items():
            if meta.cursor(client_id) is None:
                meta.subscribe(client_id, filter)
                meta.update_cursor(client_id, cursor)
                self._alarms.announce(
                    AlarmKind.COORDINATION,
                    f"the cursor of client {client_id} was deleted while this process had the turn: it goes on from {cursor}, "
                    "which it had acked. Stop all processes before you delete one",
                )

    def note(self, client_id: int, meta: MetaManager) -> None:
        """Remember what is known now of a client whose subscription is noted."""
        note = self.noted.get(client_id)
        if note is not None:
            self.noted[client_id] = attrs.evolve(note, seen=self._seen(client_id, meta))

    def _seen(self, client_id: int, meta: MetaManager) -> Subscribed | None:
        if not isinstance(meta, SharedSubscriptions):
            return None
        return meta.subscribed(self._ha.session, self._context.destination, client_id)

    def wanted(self, meta: MetaManager) -> Iterable[tuple[int, str | None]]:
        """Yield the clients to subscribe in a turn that begins, and their filters; None keeps the stored one.

        Forget the clients that another process has unsubscribed since, and the filters that it has replaced.
        """
        for client_id, note in list(self.noted.items()):
            before, now = note.seen, self._seen(client_id, meta)
            if before is None or now is None:
                yield client_id, note.filter
            elif now.filter is None and now.unsubscribed > before.last:
                self.noted.pop(client_id, None)
            else:
                yield client_id, note.filter if now.filter in (None, before.filter) else None

    def may_subscribe(self, client_id: int, filter: str | None, timeout: float, durable: bool) -> bool:
        """Whether it is this process's turn, once that is known; the subscription is noted for later turns too."""
        if not self._context.is_started:
            self._context.check_running()
        if durable:
            noted = self.noted.get(client_id)
            self.noted[client_id] = Note(noted.filter if filter is None and noted is not None else filter)
        deadline = time.monotonic() + timeout
        while not self._ha.wait_active(0.02):
            problem = self._ha.error
            if self._ha.role in (Role.STANDBY, Role.WAITING, Role.RESTING) and self._ha.is_decided and problem is None:
                return False
            if not self._context.is_started:
                self._context.check_running()
            if time.monotonic() >= deadline:
                text = f"it is not known yet which process is active: this one is {self._ha.role.value}"
                raise CoordinationError(
                    text if problem is None else f"{text}: {problem.message}",
                    destination=self._context.destination,
                    remedy=problem and problem.remedy or "Check that ZooKeeper can be reached; it goes on trying.",
                ) from problem
        return True

    def get(self, batch_size: int, timeout: float | None, linger: float, client_id: int, taken: list[Taken]) -> Message:
        """A batch that is handed out while it is this process's turn, which is asked as the last thing."""
        ha = self._ha
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            left = None if deadline is None else max(deadline - time.monotonic(), 0.0)
            if not ha.wait_active(left):
                if not self._context.is_started:
                    self._context.check_running()
                return Message(-1, [])
            fence = ha.fence
            if not ha.wait_active(0.0):
                continue  # else the parts may be those of no turn, and not of the fence's
            try:
                message = self._client(client_id).get(batch_size, left, linger, taken)
            except NotActiveError:
                ha.fenced(fence)
                continue
            except CanalError:
                if not self._context.is_started or (ha.may_pass and ha.fence is fence):
                    raise
                continue  # the turn has ended meanwhile
            if message and fence is not None and ha.fence is fence and ha.may_pass:  # the clock last
                message.epoch = fence.epoch
                return message
            if message:  # too late: another process may deliver it by now
                take_back(taken)
            elif left is not None and deadline is not None and time.monotonic() >= deadline or self._context.is_exhausted:
                return message

    def check_ack(self, batch_id: int, client_id: int) -> None:
        """Refuse an ack that is not this process's to give. That is final: if it turns out to be active still, what is
        outstanding comes again, with new ids."""
        try:
            self._ha.check(f"batch {batch_id} cannot be acked")
        except NotActiveError:
            with contextlib.suppress(CanalError):
                self._client(client_id).rollback(disown=True)
            raise
