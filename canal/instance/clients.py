"""The subscribed clients of an Instance. Each client is a :class:`canal.instance.delivery.Delivery`."""

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
    """The clients of one run of the parts.

    The store keeps entries only for clients that read from it. After the last client leaves the store, the store keeps all
    entries from that client's position for the next client. Batch ids continue when a client subscribes again.

    Args:
        context: shared by the clients.
        meta: stores subscriptions and cursors.
    """

    def __init__(self, context: ClientContext, meta: MetaManager) -> None:
        #: Held while a client is added or removed.
        self.lock = threading.Lock()
        self._context = context
        self._meta = meta
        self._by_id: dict[int, Delivery] = {}
        self._batch_ids: dict[int, tuple[int, int]] = {}  # of former clients: the next batch id, and the first one of this turn
        self._tail: ReadPosition | None = None  # where the store begins if it has no client

    def get(self, client_id: int) -> Delivery | None:
        return self._by_id.get(client_id)

    def all(self) -> list[Delivery]:
        """Return a snapshot of the clients."""
        return list(self._by_id.values())

    # -- adding and removing ------------------------------------------------------------------------------------------

    def clear(self) -> None:
        """Forget the clients of the previous run."""
        self._by_id = {}
        self._tail = None

    def restore(self) -> Position | None:
        """Add the clients with stored cursors. Return the earliest cursor, at which the parser resumes, or None."""
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
        """Subscribe a client, or change its filter; see ``Instance.subscribe``. Return whether the client is new."""
        while True:
            with self.lock:
                is_new = client_id not in self._by_id
            started = wait_started() if is_new else None
            with self.lock:
                self._context.check_running()  # the instance may have been stopped meanwhile
                if started is not None or client_id in self._by_id:  # else another thread has unsubscribed it
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
            # The subscription may be stored without a cursor.
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
        """Add a new client at the oldest entry that the store keeps."""
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
            slowest.evicted()  # the store evicted it meanwhile

    def _add(self, client_id: int, filter: str, start: ReadPosition, durable: bool = True, like: int | None = None) -> None:
        """Add a client that reads from the store, but not from before ``start``.

        Args:
            like: begin with the entries that the store keeps for this client.
        """
        context = self._context
        try:
            first = max(context.store.open(client_id, like), start.start)
            start = start._replace(start=first, open=None, begin=None, feed=Feed(context.parser, context.store))
            self._by_id[client_id] = Delivery(context, client_id, filter, start, durable, *self._batch_ids.get(client_id, (1, 1)))
        finally:
            if client_id not in self._by_id:
                context.store.close(client_id)

    def resume(self, client_id: int, cursor: Position) -> None:
        """Add a client that stores its cursor itself. It reads from the store if the store reaches back to the cursor."""
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
        """Delete a client durably. Return False if it is not subscribed."""
        with self.lock:
            client = self._by_id.get(client_id)
            if client is None:
                return False
            with client.lock:  # no ack is in progress
                if client.durable:
                    self._meta.unsubscribe(client_id)
                self._note_tail(client)
                self._context.store.close(client_id)
                client.is_gone = True
                self._batch_ids[client_id] = client.state.next_id, client.state.first_id
                del self._by_id[client_id]  # last, so that an interrupted call can be repeated
        client.end_feeds()
        return True

    def seek(self, client: Delivery, feed: Feed, position: Position) -> None:
        """Move a client to a position that it reads over a private feed."""
        with self.lock:
            self._note_tail(client)
            client.seek(feed, position)

    def end(self, keep: Callable[[Delivery], None]) -> None:
        """End all clients and call ``keep`` with each. The caller holds the lock."""
        for client in self._by_id.values():
            with client.lock:  # wait for an ack in progress; a later ack must not reach the next turn
                client.is_over = True
                keep(client)
                self._batch_ids[client.id] = client.state.next_id, client.state.next_id
            if client.durable and client.cursor.xa:
                log.warning(
                    "[%s] XA transactions are prepared before the cursor of client %d. Canal would not deliver their rows after "
                    "this cursor, because it delivers them at XA PREPARE",
                    self._context.destination,
                    client.id,
                )

    def _note_tail(self, client: Delivery) -> None:
        """Remember the position of the last client that leaves the store."""
        if client.kept is not None and all(other.kept is None for other in self._by_id.values() if other is not client):
            self._tail = client.kept

    # -- all clients --------------------------------------------------------------------------------------------------

    def oldest_cursor(self) -> Position | None:
        """Return the position before which no client will resume, or None if there is no client or the cursors differ in log."""
        with self.lock:
            cursors = [client.cursor for client in self._by_id.values()]
            if not cursors:
                return self._tail.position if self._tail is not None else None
            try:
                return earliest(cursors)
            except CursorError:  # the cursors belong to two logs, before and after a switch of the source
                return None

    def _first(self) -> list[Delivery]:
        """Return the clients of the shared store with the earliest cursor."""
        clients = [client for client in self.all() if client.kept is not None]
        first = earliest([client.cursor for client in clients])
        return [client for client in clients if client.cursor == first]

    def _leave(self, first: list[Delivery]) -> Position | None:
        """Move these clients to private feeds. Return where the others resume, or None if there are no others."""
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
        """Return the cursors of clients that are ahead of the stream."""
        marks = (client.state.reading.skip for client in self.all())
        return [mark for mark in marks if mark is not None]

    def add_members(self, start: Position) -> None:
        """Add the start of new members of a group to all cursors, durably.

        Raises:
            CursorError: a cursor could not be written.
        """
        with self.lock:
            for client in self._by_id.values():
                client.add_members(start)

    def translate(self, found: dict[Position, Position | None]) -> None:
        """Replace cursors after a switch to another source's log."""
        for client in self.all():
            client.translate(found)

    def lost(self, on_lost: str | None, error: PositionLostError) -> Position | None:
        """Handle the loss of the earliest cursor: move its clients to private feeds. Return where the others resume, or None.

        Args:
            on_lost: decides what a client with a private feed does. None: clients cannot have private feeds.
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
                f"the position of {names} is lost ({error.message}): {names} continues over a separate connection, where "
                f"on_lost={on_lost!r} applies to it alone; the other clients continue at {position}",
            )
        return position

    def held_back(self, held: HeldBack) -> None:
        """Raise or end the alarm about clients that fill the store."""
        alarms = self._context.alarms
        if not held.clients:
            alarms.over(AlarmKind.SLOW, "the store has room again")
            return
        text = self._holding_back(held)
        if held.is_evicted:
            alarms.announce(AlarmKind.SLOW, f"{text}: it continues over a separate connection")
        else:
            text += ": no client receives new entries until it acknowledges or is unsubscribed"
            alarms.tell(AlarmKind.SLOW, text, str(held.clients))

    def _holding_back(self, held: HeldBack) -> str:
        """Describe what the store keeps for which clients. Move evicted clients to private feeds."""
        whose = []
        for client in self.all():
            if client.id in held.clients:
                handed = max(client.state.reading.start - (held.tail - held.entries), 0)
                rest = held.entries - handed
                name = self._context.name_of(client.id)
                whose.append(f"{name} ({handed} of them returned and not acknowledged, {rest} not fetched)")
                if held.is_evicted:
                    client.evicted()
        return f"the store keeps {held.entries} entries, {held.bytes} bytes, for {' and '.join(whose)}" + (
            f"; the parser has waited {held.seconds:.0f} s for room" if held.seconds else ""
        )


def _kept(client: Delivery) -> tuple[int, bool]:
    """Return the sort key of a client: the smaller, the more the store keeps for it."""
    kept = client.kept
    assert kept is not None
    return kept.start, kept.skip is not None
