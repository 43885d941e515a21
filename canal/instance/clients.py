"""The clients of an Instance: who is subscribed, from where each reads, and what the store keeps for them.

Never starts or stops a part, and hands nothing out: that is each client's :class:`canal.instance.delivery.Delivery`.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable

from canal.alarm import AlarmKind
from canal.errors import CursorError, NotSubscribedError, PositionLostError
from canal.instance.client_filter import ReadPosition, is_all_done
from canal.instance.context import ClientContext
from canal.instance.delivery import Delivery
from canal.instance.feed import Feed
from canal.meta import MetaManager
from canal.position import Position, earliest, resume_at
from canal.store import CatchUpStore, HeldBack

log = logging.getLogger("canal")


class Clients:
    """Those that are subscribed in this run of the parts.

    The store is open for each of them that reads from it, and for nobody else. When the last one lets go of it, all is kept
    from there on for the next one. The ids of a client's batches go on when it comes again.

    Args:
        context: what they share.
        meta: has their subscriptions and cursors.
    """

    def __init__(self, context: ClientContext, meta: MetaManager) -> None:
        #: Held while one comes or goes.
        self.lock = threading.Lock()
        self._context = context
        self._meta = meta
        self._by_id: dict[int, Delivery] = {}
        self._batch_ids: dict[int, tuple[int, int]] = {}  # of those that were here: the next batch's, and the first of this turn
        self._tail: ReadPosition | None = None  # where the store begins when no client is left to say

    def get(self, client_id: int) -> Delivery | None:
        return self._by_id.get(client_id)

    def all(self) -> list[Delivery]:
        """Those of now; others may come and go meanwhile."""
        return list(self._by_id.values())

    # -- coming and going ---------------------------------------------------------------------------------------------

    def clear(self) -> None:
        """A run begins."""
        self._by_id = {}
        self._tail = None

    def restore(self) -> Position | None:
        """Those with stored cursors go on from there; gives the earliest of them, at which the parser resumes."""
        cursors = {}
        for client_id in self._meta.subscriptions():
            cursor = self._meta.cursor(client_id)
            if cursor is not None:
                cursors[client_id] = cursor
        if not cursors:
            return None
        try:
            resume = resume_at(cursors.values())
        except CursorError as error:
            each = [f"client {client_id} is at {cursor} of {cursor.source or '?'}" for client_id, cursor in cursors.items()]
            raise CursorError(
                f"{error.message}: {', '.join(each)}", destination=self._context.destination, remedy=error.remedy
            ) from error
        for client_id, cursor in cursors.items():
            start = ReadPosition(0, cursor, skip=None if cursor == resume else cursor)
            self._add(client_id, self._meta.subscriptions()[client_id], start)
        return resume

    def subscribe(self, client_id: int, filter: str | None, durable: bool, wait_started: Callable[[], Position]) -> bool:
        """Subscribe a client, or change its filter; True where it is new. See ``Instance.subscribe``."""
        while True:
            with self.lock:
                is_new = client_id not in self._by_id
            started = wait_started() if is_new else None
            with self.lock:
                self._context.check_running()  # a stop may have come meanwhile
                if started is not None or client_id in self._by_id:  # else somebody has unsubscribed it meanwhile
                    return self._subscribe(client_id, filter, durable, started)

    def _subscribe(self, client_id: int, filter: str | None, durable: bool, started: Position | None) -> bool:
        destination = self._context.destination
        client = self._by_id.get(client_id)
        is_durable = durable if client is None else client.durable
        if filter is None:
            if client is not None:
                if client.filter:
                    log.info("[%s] client %d keeps its filter %s", destination, client_id, client.filter)
                return False
            # It may be stored without a cursor.
            filter = self._meta.subscriptions().get(client_id, "") if is_durable else ""
        if is_durable:
            self._meta.subscribe(client_id, filter)
        if client is not None:
            client.set_filter(filter)
            return False
        assert started is not None
        position = self._begin(client_id, filter, durable, started).position
        log.info("[%s] client %d subscribed at %s", destination, client_id, position)
        return True

    def _begin(self, client_id: int, filter: str, durable: bool, started: Position) -> ReadPosition:
        """Let a new client begin with the oldest entry that is kept."""
        while True:
            kept = [client for client in self._by_id.values() if client.kept is not None]
            slowest = min(kept, key=_kept, default=None)
            try:
                with slowest.lock if slowest is not None else contextlib.nullcontext():  # an ack might free that entry
                    start = (slowest.kept if slowest is not None else None) or self._tail or ReadPosition(0, started)
                    if durable:
                        self._meta.update_cursor(client_id, start.position)
                    self._add(client_id, filter, start, durable, slowest.id if slowest is not None else None)
                    return start
            except NotSubscribedError:
                if slowest is None:
                    raise
            slowest.evicted()  # just now

    def _add(self, client_id: int, filter: str, start: ReadPosition, durable: bool = True, like: int | None = None) -> None:
        """Let a client begin with what the store keeps, or keeps for client ``like``, where that is not before ``start``."""
        context = self._context
        try:
            first = max(context.store.open(client_id, like), start.start)
            start = start._replace(start=first, open=None, begin=None, feed=Feed(context.parser, context.store))
            self._by_id[client_id] = Delivery(context, client_id, filter, start, durable, *self._batch_ids.get(client_id, (1, 1)))
        finally:
            if client_id not in self._by_id:
                context.store.close(client_id)

    def resume(self, client_id: int, cursor: Position) -> None:
        """Let a client that is not durable go on at a cursor that it keeps itself: with what the store keeps where that begins
        with something that is done, else over a line of its own."""
        context = self._context
        with self.lock:
            context.check_running()
            start = ReadPosition(0, cursor)
            if isinstance(context.store, CatchUpStore):
                first = context.store.join(client_id, lambda entry: is_all_done(entry, cursor))
                if first is not None:
                    start = ReadPosition(first, cursor, skip=cursor, feed=Feed(context.parser, context.store))
            self._by_id[client_id] = Delivery(context, client_id, "", start, False, *self._batch_ids.get(client_id, (1, 1)))

    def unsubscribe(self, client_id: int) -> bool:
        """Forget a client, durably; False where it is not subscribed."""
        with self.lock:
            client = self._by_id.get(client_id)
            if client is None:
                return False
            with client.lock:  # no ack is half done
                if client.durable:
                    self._meta.unsubscribe(client_id)
                self._note_tail(client)
                self._context.store.close(client_id)
                client.is_gone = True
                self._batch_ids[client_id] = client.state.next_id, client.state.first_id
                del self._by_id[client_id]  # the last step: what an exception cuts short can be called again
        client.end_feeds()
        return True

    def seek(self, client: Delivery, feed: Feed, position: Position) -> None:
        """A client goes on at a position, over a line of its own."""
        with self.lock:
            self._note_tail(client)
            client.seek(feed, position)

    def end(self, keep: Callable[[Delivery], None]) -> None:
        """The run of the parts ends, of which ``keep`` is called with each client. Who calls holds the lock."""
        for client in self._by_id.values():
            with client.lock:  # an ack under way is done, and none is carried over into a later turn
                client.is_over = True
                keep(client)
                self._batch_ids[client.id] = client.state.next_id, client.state.next_id
            if client.durable and client.cursor.xa:
                log.warning(
                    "[%s] XA transactions are prepared before the cursor of client %d: canal would not deliver their rows, "
                    "for it does so at XA PREPARE",
                    self._context.destination,
                    client.id,
                )

    def _note_tail(self, client: Delivery) -> None:
        """A client lets go of the store: if it was the last one, all is kept from there on for the next one."""
        if client.kept is not None and all(other.kept is None for other in self._by_id.values() if other is not client):
            self._tail = client.kept

    # -- all of them --------------------------------------------------------------------------------------------------

    def oldest_cursor(self) -> Position | None:
        """The position before which no client will resume; None where none has subscribed yet."""
        with self.lock:
            cursors = [client.cursor for client in self._by_id.values()]  # an ack may move them meanwhile
            if not cursors:
                return self._tail.position if self._tail is not None else None
            try:
                return earliest(cursors)
            except CursorError:  # clients on either side of a change of the source
                return None

    def _first(self) -> list[Delivery]:
        """Return the clients at the earliest cursor of those that read from the shared store."""
        clients = [client for client in self.all() if client.kept is not None]
        first = earliest([client.cursor for client in clients])
        return [client for client in clients if client.cursor == first]

    def _leave(self, first: list[Delivery]) -> Position | None:
        """Let these clients read over lines of their own. Return where the others resume, or None if there are no others."""
        with self.lock:
            others = [client.cursor for client in self.all() if client.kept is not None and client not in first]
            if not others:
                return None
            position = resume_at(others)
            for client in first:
                client.evicted()
                self._context.store.close(client.id)
            return position

    def marks(self) -> list[Position]:
        """The cursors of clients that are ahead of the stream."""
        marks = (client.state.reading.skip for client in self.all())
        return [mark for mark in marks if mark is not None]

    def add_members(self, start: Position) -> None:
        """Members have joined the group whose start no cursor has yet: now all have it, durably.

        Raises:
            CursorError: a cursor could not be written.
        """
        with self.lock:
            for client in self._by_id.values():
                client.add_members(start)

    def translate(self, found: dict[Position, Position | None]) -> None:
        """Cursors in the log of the source that was left are others in the log of the new one."""
        for client in self.all():
            client.translate(found)

    def lost(self, on_lost: str | None, error: PositionLostError) -> Position | None:
        """The first cursor is lost: its clients read on by themselves. Return where the others resume, or None.

        Args:
            on_lost: what decides for a client alone; None: no client can have a line of its own.
        """
        first = self._first()
        names = " and ".join(self._context.name_of(client.id) for client in first)
        error.remedy = f"{error.remedy} It is the cursor of {names}: seek() moves a cursor, unsubscribe() deletes it."
        if on_lost is None:
            return None
        position = self._leave(first)
        if position is not None:
            self._context.alarms.announce(
                AlarmKind.POSITION,
                f"the position of {names} is lost ({error.message}): it reads on over a connection of its own, where "
                f"on_lost={on_lost!r} decides for it alone; the others go on from {position}",
            )
        return position

    def held_back(self, held: HeldBack) -> None:
        """Raise or end the alarm about clients that hold the store back."""
        alarms = self._context.alarms
        if not held.clients:
            alarms.over(AlarmKind.SLOW, "the store has room again")
            return
        text = self._holding_back(held)
        if held.is_evicted:
            alarms.announce(AlarmKind.SLOW, f"{text}: it reads on over a connection of its own from now on")
        else:
            text += ": nobody gets anything new until it acks or is unsubscribed"
            alarms.tell(AlarmKind.SLOW, text, str(held.clients))

    def _holding_back(self, held: HeldBack) -> str:
        """Return how much the store keeps for which clients; evict those that it has evicted."""
        whose = []
        for client in self.all():
            if client.id in held.clients:
                handed = max(client.state.reading.start - (held.tail - held.entries), 0)
                rest = held.entries - handed
                name = self._context.name_of(client.id)
                whose.append(f"{name} ({handed} of them handed out and not acked, {rest} not fetched)")
                if held.is_evicted:
                    client.evicted()
        return f"the store keeps {held.entries} entries, {held.bytes} bytes, for {' and '.join(whose)}" + (
            f"; the reader has waited {held.seconds:.0f} s for room" if held.seconds else ""
        )


def _kept(client: Delivery) -> tuple[int, bool]:
    """What the store keeps for a client: the less, the more."""
    kept = client.kept
    assert kept is not None
    return kept.start, kept.skip is not None
