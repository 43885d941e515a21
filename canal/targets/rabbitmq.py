"""RabbitMQ: each change a persistent message, which the broker has confirmed before the next commit.

Never takes a message for written that the broker returned, refused or has not confirmed.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar, Final

import attrs

from canal._util.option_checks import text
from canal.changes import Change, Changes, Table
from canal.changes.batch import EntryRows
from canal.errors import CanalError, ConfigError, ConnectionLostError, TargetError, TargetSchemaError, UnfitChangeError
from canal.formats.change_json import line
from canal.targets.messages import Encode, Encoding, Headers, Namer, change_of, headers_of, of_entry, refuse
from canal.targets.protocol import Guarantee, Scope
from canal.targets.tables import need
from canal.targets.work import LogWork

#: Bytes of a routing key, at most.
_KEY: Final = 255
#: Seconds to wait for a broker to say goodbye.
_CLOSE: Final = 1.0


@attrs.frozen
class RabbitMQTarget:
    """An exchange of a RabbitMQ server (3.8 or later), with pika; every message is persistent, mandatory and confirmed.

    A commit waits until the broker has confirmed all of its messages. It keeps no progress: what was not acked is sent again
    after a failure, in the same order, and ``message_id`` is the same then, for readers to drop repeats by. Nothing shuts out a
    second writer.

    Args:
        url: as pika takes it: ``amqp://user:password@host:5672/%2F``, ``amqps://…`` for TLS.
        exchange: which must be there; "" is the default exchange, whose routing keys are names of queues.
        routing_key: of a change: a text in which ``{name}`` is what the target calls the table, ``{schema}`` and ``{table}`` are
            those of the source; or ``change -> key``.
        queues: arguments with which the durable queue of a routing key is declared where the exchange is "", such as
            ``{"x-queue-type": "quorum"}``; None: the queues are there.
        encode: an encoder, such as ``canal.formats.DebeziumJson()``, which makes bodies and headers; or ``change -> body``,
            text or bytes; "" or None sends nothing.
        headers: ``change -> {name: value}``: headers of the message.
        content_type: of the messages.
        max_bytes: of a body; a larger one is unfit. The max_message_size of a broker is 16 MiB,
            and 128 MiB before 4.0, if it is not set.
        timeout: seconds that a broker may take to confirm a commit.
    """

    url: str = attrs.field(repr=False, validator=text)
    exchange: str = ""
    routing_key: str | Callable[[Change], str] = "{name}"
    queues: Mapping[str, Any] | None = attrs.field(factory=dict)
    encode: Encode = line
    headers: Headers | None = None
    content_type: str = "application/json"
    max_bytes: int = 16 << 20
    timeout: float = 60.0

    guarantee = Guarantee.APPENDED
    scope: ClassVar[Scope] = "all"
    is_log = True

    def __attrs_post_init__(self) -> None:
        Namer("routing_key", self.routing_key)
        if not self.timeout > 0 or self.max_bytes < 1:
            raise ConfigError("timeout is in seconds and max_bytes in bytes, both above 0")

    def __str__(self) -> str:
        return f"RabbitMQ {self.url.rpartition('@')[2].rpartition('//')[2]}"

    @contextmanager
    def begin(self, stream: str) -> Iterator[LogWork]:
        pika = need("pika", "rabbitmq")
        try:
            parameters = pika.URLParameters(self.url)
        except (ValueError, TypeError) as error:
            raise ConfigError(f"bad URL of a RabbitMQ server: {type(error).__name__}") from None
        parameters.heartbeat = 0  # nobody would answer between two commits
        parameters.socket_timeout = parameters.stack_timeout = self.timeout
        link = _Link(pika, parameters, f"{self}", self.timeout)
        try:
            link.open()
            yield _RabbitMQWork(link, self)
        finally:
            link.close()


class _Link:
    """A connection with one channel that confirms. It works only while somebody waits in ``run``.

    Attributes:
        unconfirmed: numbers of the messages that were sent and are neither confirmed nor refused.
        refused: how many the broker could not keep.
        returned: routing keys that lead to no queue.
    """

    def __init__(self, pika: Any, parameters: Any, what: str, timeout: float) -> None:
        self._pika, self._parameters, self._what, self._timeout = pika, parameters, what, timeout
        self._connection: Any = None
        self._channel: Any = None
        self._number, self._lowest = 0, 1  # the last message, and the first one that no confirmation of several has named
        self._ended: Exception | None = None
        self._is_blocked = self._is_late = False
        self.unconfirmed: set[int] = set()
        self.refused = 0
        self.returned: dict[str, None] = {}

    def open(self) -> None:
        self._connection = self._pika.SelectConnection(
            self._parameters,
            on_open_callback=lambda connection: connection.channel(on_open_callback=self._opened),
            on_open_error_callback=lambda _, error: self._end(error),
            on_close_callback=lambda _, error: self._end(error),
        )
        self._connection.add_on_connection_blocked_callback(lambda *_: setattr(self, "_is_blocked", True))
        self._connection.add_on_connection_unblocked_callback(lambda *_: setattr(self, "_is_blocked", False))
        self.run(lambda: self._channel is not None)

    def _opened(self, channel: Any) -> None:
        channel.add_on_close_callback(lambda _, error: self._end(error))
        channel.add_on_return_callback(lambda _, method, *__: self.returned.setdefault(method.routing_key))
        channel.confirm_delivery(self._confirmed, callback=lambda _: self._set(channel))

    def _set(self, channel: Any) -> None:
        self._channel = channel
        self._stop()

    def _confirmed(self, frame: Any) -> None:
        method = frame.method
        done: Sequence[int] = (method.delivery_tag,)
        if method.multiple:
            done, self._lowest = range(self._lowest, method.delivery_tag + 1), method.delivery_tag + 1
        before = len(self.unconfirmed)
        self.unconfirmed.difference_update(done)
        if isinstance(method, self._pika.spec.Basic.Nack):
            self.refused += before - len(self.unconfirmed)
        if not self.unconfirmed:
            self._stop()

    def _end(self, error: Exception) -> None:
        self._ended = self._ended or error
        self._stop()

    def _stop(self) -> None:
        self._connection.ioloop.stop()

    def _expire(self) -> None:
        self._is_late = True
        self._stop()

    def run(self, is_done: Callable[[], bool]) -> None:
        """Let the connection work until something is so.

        Raises:
            ConnectionLostError: it broke, or that took too long.
            TargetError, TargetSchemaError: the broker has closed it, and said why.
        """
        loop, self._is_late = self._connection.ioloop, False
        timer = loop.call_later(self._timeout, self._expire)
        try:
            while not is_done():
                if self._ended is not None:
                    raise self._failure(self._ended)
                if self._is_late:
                    why = ": it is short of memory or disk" if self._is_blocked else ""
                    raise ConnectionLostError(f"{self._what} gave no answer for {self._timeout:g} s{why}")
                loop.start()
        finally:
            loop.remove_timeout(timer)

    def declare(self, queue: str, arguments: Mapping[str, Any]) -> None:
        """Make a durable queue, where it is not there."""
        made: list[object] = []

        def done(_: object) -> None:
            made.append(queue)
            self._stop()

        with self._sending():
            self._channel.queue_declare(queue, durable=True, arguments=dict(arguments), callback=done)
        self.run(lambda: bool(made))

    def publish(self, exchange: str, key: str, body: bytes, properties: Any) -> None:
        """Send a message, which is unconfirmed then."""
        self._number += 1
        self.unconfirmed.add(self._number)
        with self._sending():
            self._channel.basic_publish(exchange, key, body, properties, mandatory=True)

    @contextmanager
    def _sending(self) -> Iterator[None]:
        try:
            yield
        except self._pika.exceptions.AMQPError as error:
            raise self._failure(self._ended or error) from error

    def _failure(self, error: Exception) -> CanalError:
        """What the end of the connection or the channel is to us."""
        known, what = self._pika.exceptions, self._what
        if isinstance(error, (known.ProbableAuthenticationError, known.ProbableAccessDeniedError)):
            return TargetError(f"{what} refuses the user", remedy="Look at the user, password and virtual host of the URL.")
        if isinstance(error, (known.ChannelClosedByBroker, known.ConnectionClosedByBroker)):
            kind = TargetSchemaError if error.reply_code in (404, 406) else TargetError
            return kind(
                f"{what} refuses: {error.reply_text}",
                remedy="Make the exchange; or give `queues` as they were made, or None; or raise max_message_size of the broker.",
            )
        return ConnectionLostError(f"the connection to {what} broke: {type(error).__name__}")

    def close(self) -> None:
        """End the connection; what was sent and is not confirmed comes again."""
        if self._connection is None:
            return
        loop, self._is_late = self._connection.ioloop, False
        loop.call_later(_CLOSE, self._expire)
        with contextlib.suppress(Exception):
            if self._connection.is_open:
                self._connection.close()
            while not (self._connection.is_closed or self._is_late):
                loop.start()
        with contextlib.suppress(AssertionError):  # interrupted in its last step, pika's loop counts as running for ever
            loop.close()


class _RabbitMQWork(LogWork):
    def __init__(self, link: _Link, target: RabbitMQTarget) -> None:
        super().__init__()
        self._link, self._target = link, target
        self._key = Namer("routing_key", target.routing_key)
        self._encoding = Encoding(target.encode, key=None)
        self.encode_entry = self._encoding.entry(self._key, target.headers)
        self._declared: set[str] = set()

    def load(self, table: str) -> None:
        return None

    def write(self, made: Sequence[Change], old: str | None, new: str, table: str) -> None:
        link, target = self._link, self._target
        messages = self._messages(made)
        link.refused = 0
        link.returned.clear()
        for key, body, properties in messages:
            if target.exchange == "" and target.queues is not None and key not in self._declared:
                link.declare(key, target.queues)
                self._declared.add(key)
            link.publish(target.exchange, key, body, properties)
        link.run(lambda: not link.unconfirmed)
        if link.returned:
            raise TargetSchemaError(
                f"the exchange {target.exchange!r} of {target} has no queue for messages with the routing key "
                + " or ".join(map(repr, list(link.returned)[:3])),
                remedy="Bind a queue to it; what was sent of this commit comes again.",
            )
        if link.refused:
            raise TargetError(f"{target} could not keep {link.refused} messages", remedy="Its log tells why; they come again.")

    def _messages(self, made: Sequence[Change]) -> list[tuple[str, bytes, Any]]:
        """Return all messages before any is sent: what is unfit is left out before the others are there."""
        found: list[tuple[str, bytes, Any]] = []
        unfit: list[UnfitChangeError] = []
        for part in made.parts if isinstance(made, Changes) else [made]:
            if isinstance(part, EntryRows) and part.encoded is not None:
                self._add_entry(part, found, unfit)
                continue
            for change in part:
                try:
                    for one in self._encoding.messages(change):
                        if one.value:
                            key = self._routing_key(self._key(change), change.table, change.origin.position)
                            (_, identity), *more = headers_of(one, self._target.headers)
                            properties = self._properties(identity.decode(), change.origin.ts, more)
                            found.append((key, self._checked(one.value, change.table), properties))
                except UnfitChangeError as error:
                    error.changes, error.position = (change,), change.origin.position
                    unfit.append(error)
        refuse(unfit)
        return found

    def _add_entry(self, part: EntryRows, found: list[tuple[str, bytes, Any]], unfit: list[UnfitChangeError]) -> None:
        entry = part.entry
        position = f"{entry.transaction.journal}:{entry.offset}"
        key = self._routing_key(self._key.of(part.table), part.table, position)
        for identity, _, value, headers, number in of_entry(part):
            try:
                if value:
                    properties = self._properties(identity, entry.header.execute_time, headers)
                    found.append((key, self._checked(value, part.table), properties))
            except UnfitChangeError as error:
                error.changes, error.position = (change_of(part, number),), position
                unfit.append(error)

    @staticmethod
    def _routing_key(key: str, table: Table, position: str) -> str:
        try:
            size = len(key.encode())
        except UnicodeEncodeError:
            size = _KEY + 1
        if size > _KEY:
            raise TargetSchemaError(
                f"a routing key for {table.name} must be UTF-8 of {_KEY} bytes at most",
                position=position,
                remedy="Give shorter ones by routing_key=.",
            )
        return key

    def _checked(self, body: bytes, table: Table) -> bytes:
        if len(body) > self._target.max_bytes:
            raise UnfitChangeError(
                f"a message of {len(body)} bytes of {table.name} is larger than max_bytes",
                remedy="Raise max_bytes, and max_message_size of the broker; or park it by on_unfit.",
            )
        return body

    def _properties(self, identity: str, ts: int, headers: Sequence[tuple[str, bytes]]) -> Any:
        return self._link._pika.BasicProperties(
            content_type=self._target.content_type,
            delivery_mode=2,
            message_id=identity,
            timestamp=ts // 1000,
            headers=dict(headers) or None,
        )
