"""RocketMQ: each change a message, which a broker has stored before the next commit.

Never takes a message for written that a broker has not said it stored as it is configured to.
"""

from __future__ import annotations

import base64
import hashlib
import itertools
import re
import ssl
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import ClassVar, Final

import attrs

from canal._util.option_checks import text
from canal.changes import Change, Changes, Table
from canal.changes.batch import EntryRows
from canal.errors import ConfigError, ConnectionLostError, TargetError, TargetSchemaError, UnfitChangeError
from canal.formats.change_json import line
from canal.targets import rocketmq_wire as wire
from canal.targets.messages import (
    Encode,
    Encoding,
    Headers,
    Key,
    Namer,
    Partition,
    change_of,
    headers_of,
    of_entry,
    partition_of,
    primary_key,
    refuse,
)
from canal.targets.protocol import Guarantee, Scope
from canal.targets.work import LogWork

_TOPIC: Final = re.compile(r"[a-zA-Z0-9_%|-]{1,127}")
#: The topic after which brokers make those that are not there, where they do.
DEFAULT_TOPIC: Final = "TBW102"
#: Bytes of messages that are sent at once, about: a broker stores a batch under a lock.
_BATCH: Final = 1 << 20
#: Bytes of the properties of a message.
_PROPERTIES: Final = 32_767
_SEPARATORS: Final = re.compile("[\x00-\x02]")
#: What an answer says of a message that is stored, yet not as the broker is configured to.
_NOT_SAFE: Final = {10: "it did not reach the disk in time", 11: "no slave has it", 12: "it did not reach a slave's disk in time"}
_ILLEGAL: Final = 13
#: What an answer has around its text.
_JAVA: Final = re.compile(r"^[\w.$]+(Exception|Error): |, [\w.$]+\([\w.]+:\d+\)$")


@attrs.frozen
class RocketMQTarget:
    """Topics of RocketMQ brokers (4.5 or later, 5.x), by their remoting protocol; it needs no library.

    A commit waits until the brokers have stored all of its messages. It keeps no progress: what was not acked is sent again after
    a failure, in the same order, with the same message id and the same property ``id``, for readers to drop repeats by. Messages
    with the same key are in one queue, in the order of the log. Nothing shuts out a second writer.

    Args:
        name_servers: ``host:port``, with semicolons between.
        topic: of a change: a text in which ``{name}`` is what the target calls the table, ``{schema}`` and ``{table}`` are those
            of the source; or ``change -> topic``. In ``{name}`` a dot becomes ``_``, as a topic has none.
        key: ``(table, row) -> text``, by which a queue is chosen, and what readers find as the message group; the primary key as
            JSON if not given. An update that changes it is sent as a deletion and an insertion.
        partition: ``change -> number``: of the queue among those of the topic, in the order of the brokers' names.
        tag: of the messages, for consumers to filter by: a text as ``topic`` is, or ``change -> tag``.
        encode: makes the body of a message, text or bytes; "" or None sends nothing.
        headers: ``change -> {name: value}``: properties of the message. Names in capitals are the brokers' own.
        group: the name of the group of producers.
        queues: how many a topic has that the brokers make by themselves (``autoCreateTopicEnable``).
        access_key: of brokers with ACLs; ``secret_key`` signs each request.
        tls: ``True``, or an ``ssl.SSLContext``.
        max_bytes: of a message with its properties; a larger one is unfit. The ``maxMessageSize`` of a broker is 4 MiB,
            if it is not set.
        timeout: seconds that a broker may take to answer.
    """

    name_servers: str = attrs.field(validator=text)
    topic: str | Callable[[Change], str] = "{name}"
    key: Key = primary_key
    partition: Partition | None = None
    tag: str | Callable[[Change], str] | None = None
    encode: Encode = line
    headers: Headers | None = None
    group: str = "canal"
    queues: int = 4
    access_key: str = ""
    secret_key: str = attrs.field(default="", repr=False)
    tls: bool | ssl.SSLContext = False
    max_bytes: int = 4 << 20
    timeout: float = 60.0

    guarantee = Guarantee.APPENDED
    scope: ClassVar[Scope] = "all"
    is_log = True

    def __attrs_post_init__(self) -> None:
        Namer("topic", self.topic)
        Namer("tag", self.tag or "")
        if not self.timeout > 0 or self.max_bytes < 1 or self.queues < 1:
            raise ConfigError("timeout is in seconds, max_bytes in bytes, queues a number, all above 0")
        if bool(self.access_key) != bool(self.secret_key):
            raise ConfigError("access_key and secret_key go together")
        for address in self.addresses():
            host, colon, port = address.rpartition(":")
            if not (host and colon and port.isascii() and port.isdecimal()):
                raise ConfigError(f"name_servers are host:port with semicolons between, not {self.name_servers!r}")

    def __str__(self) -> str:
        return f"RocketMQ {self.name_servers}"

    def addresses(self) -> list[str]:
        return [one.strip() for one in self.name_servers.split(";") if one.strip()] or [""]

    @contextmanager
    def begin(self, stream: str) -> Iterator[LogWork]:
        with Cluster(self) as cluster:
            cluster.route(DEFAULT_TOPIC)  # a name server answers, or it ends here
            yield _RocketMQWork(cluster, self)


class Cluster:
    """The name servers and brokers, each with a connection that is opened when it is first needed."""

    def __init__(self, target: RocketMQTarget) -> None:
        self._target = target
        self._tls = ssl.create_default_context() if target.tls is True else target.tls or None
        self._open: dict[str, wire.BrokerConnection] = {}
        self._routes: dict[str, list[wire.Queue]] = {}

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, *_: object) -> None:
        for connection in self._open.values():
            connection.close()

    def broker(self, address: str) -> wire.BrokerConnection:
        found = self._open.get(address)
        if found is not None and found.is_over():
            found.close()
            found = None
        if found is None:
            found = self._open[address] = wire.BrokerConnection(address, self._target, self._tls, self._target.timeout)
        return found

    def route(self, topic: str) -> list[wire.Queue]:
        """The queues of a topic; none where it is not there.

        Raises:
            ConnectionLostError: no name server answers.
            TargetError: they refuse.
        """
        lost: ConnectionLostError | None = None
        for address in self._target.addresses():
            try:
                answer = self.broker(address).ask(wire.ROUTE, {"topic": topic, "acceptStandardJsonOnly": "true"})
            except ConnectionLostError as error:
                lost = error
                continue
            if answer.code == wire.OK:
                return wire.queues_of(answer)
            if answer.code != wire.TOPIC_MISSING:
                raise TargetError(f"the name server {address} refuses: {_said(answer)}")
        if lost is not None:
            raise lost
        return []

    def queues(self, topic: str) -> list[wire.Queue]:
        """Where messages of a topic go, the same as long as this is open.

        Raises:
            TargetSchemaError: it is not there, and no broker makes it.
        """
        found = self._routes.get(topic)
        if not found:
            found = self.route(topic) or self._made()
            if not found:
                raise TargetSchemaError(
                    f"there is no topic {topic!r} that may be written to",
                    remedy="Make it, or set autoCreateTopicEnable of a broker.",
                )
            self._routes[topic] = found
        return found

    def _made(self) -> list[wire.Queue]:
        """The queues that a topic will have when a broker makes it: all of one broker, or the others' would come later."""
        found = self.route(DEFAULT_TOPIC)
        return [one for one in found if one.broker == found[0].broker][: self._target.queues]


def _said(answer: wire.Answer) -> str:
    """What a server says, without Java's names before and after it."""
    return _JAVA.sub("", answer.remark.partition("\n")[0])[:200]


class _RocketMQWork(LogWork):
    def __init__(self, cluster: Cluster, target: RocketMQTarget) -> None:
        super().__init__()
        self._cluster, self._target = cluster, target
        self._topic = Namer("topic", target.topic)
        self._tag = None if target.tag is None else Namer("tag", target.tag)
        self._is_text = getattr(target.encode, "is_text", True)
        self._encoding = Encoding(target.encode, target.key, target.partition)
        is_of_tables = self._tag is None or self._tag.is_of_tables
        self.encode_entry = self._encoding.entry(self._topic, target.headers, not is_of_tables)

    def load(self, table: str) -> None:
        return None

    def write(self, made: Sequence[Change], old: str | None, new: str, table: str) -> None:
        found: dict[tuple[str, wire.Queue], list[bytes]] = {}
        unfit: list[UnfitChangeError] = []
        for part in made.parts if isinstance(made, Changes) else [made]:
            if isinstance(part, EntryRows) and part.encoded is not None:
                self._add_entry(part, found, unfit)
                continue
            for change in part:
                try:
                    for topic, queue, message in self._messages(change):
                        found.setdefault((topic, queue), []).append(message)
                except UnfitChangeError as error:
                    error.changes, error.position = (change,), change.origin.position
                    unfit.append(error)
        refuse(unfit)
        # A queue's next batch is sent when it has the last one: a broker stores requests of one connection in any order.
        cut = [[(*where, batch) for batch in _batches(messages)] for where, messages in found.items()]
        for turn in itertools.zip_longest(*cut):
            self._send([one for one in turn if one is not None])

    def _send(self, batches: Sequence[tuple[str, wire.Queue, bytes]]) -> None:
        group, count = self._target.group, self._target.queues
        under_way = []
        for topic, queue, body in batches:
            broker = self._cluster.broker(queue.address)
            fields = wire.batch_fields(group, topic, queue, DEFAULT_TOPIC, count)
            under_way.append((topic, broker, broker.send(wire.SEND_BATCH, fields, body)))
        failures = [
            self._failure(topic, answer)
            for topic, broker, number in under_way
            if (answer := broker.answer(number)).code != wire.OK
        ]
        if failures:
            raise failures[0]

    def _failure(self, topic: str, answer: wire.Answer) -> TargetError:
        if answer.code in _NOT_SAFE:
            return TargetError(f"{self._target} is not sure to keep messages for {topic}: {_NOT_SAFE[answer.code]}")
        is_for_ever = answer.code in (_ILLEGAL, wire.TOPIC_MISSING) or "size exceeded" in answer.remark
        kind = TargetSchemaError if is_for_ever else TargetError
        return kind(
            f"{self._target} refuses messages for the topic {topic}: {_said(answer)} (code {answer.code})",
            remedy="Mend that; what was sent of this commit comes again. Give max_bytes as low as maxMessageSize of the brokers.",
        )

    def _add_entry(
        self, part: EntryRows, found: dict[tuple[str, wire.Queue], list[bytes]], unfit: list[UnfitChangeError]
    ) -> None:
        position = f"{part.entry.transaction.journal}:{part.entry.offset}"
        topic = self._named(self._topic.of(part.table), position)
        tag = None if self._tag is None else self._tag.of(part.table)
        for identity, key, value, headers, number in of_entry(part):
            try:
                if value:
                    queue = self._queue(topic, part.table, key, -1, position)
                    properties = self._properties(identity, tag, key, headers, part.table)
                    found.setdefault((topic, queue), []).append(self._packed(value, properties, part.table))
            except UnfitChangeError as error:
                error.changes, error.position = (change_of(part, number),), position
                unfit.append(error)

    def _messages(self, change: Change) -> Iterator[tuple[str, wire.Queue, bytes]]:
        position, table = change.origin.position, change.table
        topic = self._named(self._topic(change), position)
        for one in self._encoding.messages(change):
            if one.value:
                (_, _), *headers = headers_of(one, self._target.headers)
                tag = None if self._tag is None else self._tag(one.change)
                properties = self._properties(one.id, tag, one.key, headers, table)
                message = self._packed(one.value, properties, table)
                number = partition_of(one.change, self._target.partition)
                yield topic, self._queue(topic, table, one.key, number, position), message

    def _named(self, topic: str, position: str) -> str:
        if isinstance(self._target.topic, str):
            topic = topic.replace(".", "_")
        if _TOPIC.fullmatch(topic):
            return topic
        raise TargetSchemaError(
            f"{topic!r} is no name of a topic, which has letters of ASCII, digits, '_', '-', '%' and '|'",
            position=position,
            remedy="Give topics by topic=, or another name of the table by a rule.",
        )

    def _packed(self, body: bytes, properties: dict[str, str], table: Table) -> bytes:
        message = wire.packed(body, properties)
        if len(message) > self._target.max_bytes:
            raise UnfitChangeError(
                f"a message of {len(message)} bytes of {table.name} is larger than max_bytes",
                remedy="Raise max_bytes, and maxMessageSize of the brokers; or park it by on_unfit.",
            )
        return message

    def _queue(self, topic: str, table: Table, key: bytes | None, number: int, position: str) -> wire.Queue:
        queues = self._cluster.queues(topic)
        if number < 0:
            number = zlib.crc32(table.source.encode() if key is None else key) % len(queues)
        if number >= len(queues):
            raise TargetSchemaError(
                f"the topic {topic} has {len(queues)} queues, and partition gave {number}, counted from 0",
                position=position,
                remedy="Give the topic more queues, or smaller numbers.",
            )
        return queues[number]

    def _properties(
        self, identity: str, tag: str | None, key: bytes | None, headers: Sequence[tuple[str, bytes]], table: Table
    ) -> dict[str, str]:
        """Return what readers find beside the body: their client calls UNIQ_KEY the id, and finds messages by KEYS."""
        found = {
            "UNIQ_KEY": hashlib.sha256(identity.encode()).hexdigest()[:32].upper(),
            "KEYS": identity,
            "WAIT": "true",
            "id": identity,
        }
        if tag is not None:
            found["TAGS"] = tag
        try:
            if key is not None:
                found["__SHARDINGKEY"] = key.decode() if self._is_text else base64.b64encode(key).decode()
            for name, value in headers:
                if not name or name == "id" or name.upper() == name:
                    raise ConfigError(f"{name!r} cannot be the name of a header: it is ours, or the brokers' own")
                found[name] = value.decode()
        except UnicodeDecodeError:
            raise self._bad(table, "has no UTF-8") from None
        if any(_SEPARATORS.search(word) for pair in found.items() for word in pair):
            raise self._bad(table, "has a character below U+0003, which ends a property")
        if sum(len(f"{name}{value}".encode()) + 2 for name, value in found.items()) > _PROPERTIES:
            raise self._bad(table, f"makes more than {_PROPERTIES} bytes of properties")
        return found

    @staticmethod
    def _bad(table: Table, why: str) -> UnfitChangeError:
        return UnfitChangeError(
            f"a key, tag or header of a message of {table.name} {why}",
            remedy="Give others by key=, tag= and headers=, or park it by on_unfit.",
        )


def _batches(messages: Sequence[bytes]) -> Iterator[bytes]:
    """The messages in their order, as many at once as a broker stores without holding up others for long."""
    found: list[bytes] = []
    size = 0
    for message in messages:
        if found and size + len(message) > _BATCH:
            yield b"".join(found)
            found, size = [], 0
        found.append(message)
        size += len(message)
    if found:
        yield b"".join(found)
