"""Kafka: each change a message, with the progress as a record of a compacted topic in the same transaction.

Never sends anything outside of a transaction.
"""

from __future__ import annotations

import contextlib
import logging
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar, Final

import attrs

from canal._util.option_checks import text
from canal.changes import Change, Changes
from canal.changes.batch import EntryRows
from canal.errors import ConfigError, ConnectionLostError, TargetError, TargetSchemaError, UnfitChangeError
from canal.formats.change_json import line
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
from canal.targets.tables import need
from canal.targets.work import LogWork, conflict

log = logging.getLogger("canal.pipe")

_TOPIC: Final = re.compile(r"(?!\.{1,2}$)[a-zA-Z0-9._-]{1,249}")
#: Another writer with our transactional id has begun.
_FENCED: Final = ("_FENCED", "INVALID_PRODUCER_EPOCH", "PRODUCER_FENCED")
_LOST: Final = ("_TRANSPORT", "_ALL_BROKERS_DOWN", "_TIMED_OUT", "_RESOLVE", "_MSG_TIMED_OUT", "REQUEST_TIMED_OUT")
#: Seconds within which the broker finds that a transaction has timed out.
_SWEEP: Final = 15.0
#: Seconds to wait for the end of a transaction that failed.
_ABORT: Final = 5.0
#: Of the topic with the progress: small files, as only those that are full are compacted, and each writer reads all at its start.
_COMPACTED: Final = {"cleanup.policy": "compact", "segment.bytes": str(4 << 20), "min.cleanable.dirty.ratio": "0.1"}


@attrs.frozen
class KafkaTarget:
    """Topics of a Kafka cluster (2.5 or later), with confluent-kafka; all of a message of the pipe is one transaction.

    Consumers that read with ``isolation.level=read_committed`` get each change once, in the order of the log for each key. The
    key of a message tells its partition, as in Kafka's own clients (murmur2). An update that changes the key is two messages,
    DELETE under the old key and INSERT under the new one. Messages without a key go to one partition of their topic. Each has a
    header ``id``, which is the same whenever the change is given again.

    The writer that begins last is the only one: brokers refuse those before it (``transactional.id`` is ``canal-<stream>``).

    Args:
        servers: ``host:port`` of brokers, several with commas.
        topic: of a change: a text in which ``{name}`` is what the target calls the table, ``{schema}`` and ``{table}`` are those
            of the source; or ``change -> topic``. The broker must make topics by itself, or have them.
        encode: an encoder, such as ``canal.formats.DebeziumJson()``, which makes whole messages: key, value, headers,
            tombstones; or ``change -> value``: text, bytes, or None (which compaction takes for a deletion). "" sends nothing.
        key: ``(table, row) -> key``: text, bytes, or None. If not given, that of the encoder, else the primary key as JSON.
            Values that the source calls equal make one key.
        partition: ``change -> number``: the partition of a message instead of that of its key, from 0 on. It must be the same for
            all messages of a key.
        headers: ``change -> {name: value}``: more headers.
        tombstones: send a message without a value behind that of each deleted row, so that compaction removes its key.
        progress_topic: its name; it is made with one partition where it is not there, and must be compacted.
        timeout: seconds that a commit may take, and that what a dead writer has left open may hold up readers.
        options: of librdkafka, for all clients: ``{"security.protocol": "SASL_SSL", "sasl.username": …}``.
        producer: more of them for the producer: ``{"compression.type": "zstd", "message.max.bytes": 1_000_000}``.
    """

    servers: str = attrs.field(validator=text)
    topic: str | Callable[[Change], str] = "{name}"
    encode: Encode = line
    key: Key = primary_key
    partition: Partition | None = None
    headers: Headers | None = None
    tombstones: bool = False
    progress_topic: str = "canal_progress"
    timeout: float = 60.0
    options: Mapping[str, Any] = attrs.field(factory=dict, repr=False)
    producer: Mapping[str, Any] = attrs.field(factory=dict, repr=False)

    guarantee = Guarantee.ONCE
    scope: ClassVar[Scope] = "all"
    is_log = True

    def __attrs_post_init__(self) -> None:
        Namer("topic", self.topic)
        if not _TOPIC.fullmatch(self.progress_topic):
            raise ConfigError(f"progress_topic {self.progress_topic!r} is no name of a topic")
        if self.timeout < 1:
            raise ConfigError(f"timeout is in seconds, from 1 on, not {self.timeout}")

    def __str__(self) -> str:
        return f"Kafka {self.servers}"

    @contextmanager
    def begin(self, stream: str) -> Iterator[LogWork]:
        kafka = need("confluent_kafka", "kafka")
        common = {"bootstrap.servers": self.servers, **self.options}
        with _understood(f"{self}"):
            progress = _ProgressTopic(kafka, self, common, stream)
            producer = _client(
                kafka.Producer,
                {
                    "partitioner": "murmur2",
                    **common,
                    **self.producer,
                    "transactional.id": f"canal-{stream}",
                    "transaction.timeout.ms": int(self.timeout * 1000),
                    "delivery.report.only.error": True,
                },
            )
            producer.init_transactions(self.timeout)  # what an earlier writer left open is ended
            yield _KafkaWork(producer, self, progress)


def _client(kind: Callable[..., Any], options: Mapping[str, Any]) -> Any:
    import confluent_kafka

    try:
        return kind(dict(options), logger=logging.getLogger("canal.kafka"))
    except (confluent_kafka.KafkaException, TypeError, ValueError) as error:
        text = error.args[0].str() if isinstance(error, confluent_kafka.KafkaException) else f"{error}"
        raise ConfigError(f"options of librdkafka: {text.strip()}") from None


@contextmanager
def _understood(what: str) -> Iterator[None]:
    import confluent_kafka

    try:
        yield
    except confluent_kafka.KafkaException as error:
        name = error.args[0].name()
        if name in _FENCED:
            raise conflict("another writer of this stream has begun since, or the commit took longer than `timeout`") from error
        if name in _LOST:
            raise ConnectionLostError(f"{what} gave no answer: {name}") from error
        raise TargetError(f"{what} refuses: {name}", remedy="Mend that; nothing of the commit was written.") from error


class _ProgressTopic:
    """What streams have as their progress: the last record of each in a compacted topic."""

    def __init__(self, kafka: Any, target: KafkaTarget, common: Mapping[str, Any], stream: str, *, make: bool = True) -> None:
        self.name, self.key = target.progress_topic, stream
        self._kafka, self._timeout = kafka, target.timeout
        self._partition = kafka.TopicPartition(self.name, 0, 0)
        self._common = common
        self._asking = need("confluent_kafka.admin", "kafka")
        self._admin = _client(self._asking.AdminClient, common)
        if make:
            self._make()

    def _make(self) -> None:
        topics = [self._asking.NewTopic(self.name, 1, -1, config=_COMPACTED)]
        (made,) = self._admin.create_topics(topics, request_timeout=self._timeout).values()
        try:
            made.result()
        except self._kafka.KafkaException as error:
            if error.args[0].name() not in ("TOPIC_ALREADY_EXISTS", "TOPIC_AUTHORIZATION_FAILED"):
                raise
        wanted = [self._asking.ConfigResource("topic", self.name)]
        (asked,) = self._admin.describe_configs(wanted, request_timeout=self._timeout).values()
        try:
            policy = asked.result()["cleanup.policy"].value
        except self._kafka.KafkaException as error:
            if error.args[0].name() != "TOPIC_AUTHORIZATION_FAILED":
                raise
            log.warning("whether the topic %s is compacted cannot be asked: give the right DescribeConfigs", self.name)
            return
        if policy != "compact":
            raise ConfigError(
                f"the topic {self.name} is not compacted alone (cleanup.policy {policy}): the progress would vanish from it",
                remedy=f"Set its cleanup.policy to compact, or give another progress_topic than {self.name}.",
            )

    def read(self) -> str | None:
        """The last one of the stream, when all that was written before is committed or gone."""
        level = self._kafka.IsolationLevel.READ_UNCOMMITTED
        latest, seconds = {self._partition: self._asking.OffsetSpec.latest()}, self._timeout
        (asked,) = self._admin.list_offsets(latest, isolation_level=level, request_timeout=seconds).values()
        end = asked.result().offset
        consumer = _client(
            self._kafka.Consumer,
            {
                "fetch.wait.max.ms": 10,
                **self._common,
                "group.id": f"canal-{self.key}",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "enable.partition.eof": True,
                "auto.offset.reset": "earliest",
            },
        )
        try:
            consumer.assign([self._partition])
            return self._last(consumer, end)
        finally:
            consumer.close()

    def _last(self, consumer: Any, end: int) -> str | None:
        found: str | None = None
        deadline = time.monotonic() + self._timeout + _SWEEP
        while time.monotonic() < deadline:
            for message in consumer.consume(10_000, timeout=0.02):
                error = message.error()
                if error is None:
                    if message.key() == self.key.encode():
                        found = message.value().decode()
                elif error.code() != self._kafka.KafkaError._PARTITION_EOF:
                    raise self._kafka.KafkaException(error)
                elif message.offset() >= end:
                    return found
        raise ConnectionLostError(f"the topic {self.name} cannot be read to its end: a writer of another stream is open in it")


@attrs.frozen
class BrokerReport:
    """What brokers say of a target, of which nothing was changed."""

    topics: Mapping[str, tuple[bool, set[str]]]
    """By name whether it is there, and the names of the operations that the user may do; the progress' own is the first."""
    may_make: Mapping[str, str]
    """Of those that are not there, why they may not be made; "" where they may."""
    progress: str | None


def asked_of_brokers(target: KafkaTarget, stream: str, topics: Iterable[str]) -> BrokerReport:
    """Ask without beginning a writer, which would shut out who writes now.

    Raises:
        TargetError, ConnectionLostError: they give no answer, or refuse the user.
    """
    kafka, asking = need("confluent_kafka", "kafka"), need("confluent_kafka.admin", "kafka")
    common, seconds = {"bootstrap.servers": target.servers, **target.options}, min(target.timeout, _ABORT)
    admin = _client(asking.AdminClient, common)
    names = list(dict.fromkeys((target.progress_topic, *topics)))
    with _understood(f"{target}"):
        wanted = kafka.TopicCollection(names)
        found = {}
        for name, future in admin.describe_topics(wanted, include_authorized_operations=True, request_timeout=seconds).items():
            try:
                found[name] = True, {one.name for one in future.result().authorized_operations or ()}
            except kafka.KafkaException as error:
                if error.args[0].name() not in ("UNKNOWN_TOPIC_OR_PART", "TOPIC_AUTHORIZATION_FAILED"):
                    raise
                found[name] = error.args[0].name() == "TOPIC_AUTHORIZATION_FAILED", set[str]()
        lacking = [asking.NewTopic(name, 1, -1) for name, (is_there, _) in found.items() if not is_there]
        may_make = {}
        for name, future in admin.create_topics(lacking, validate_only=True, request_timeout=seconds).items() if lacking else ():
            refused = future.exception()
            may_make[name] = "" if refused is None else str(refused.args[0].name())
        is_there, rights = found[target.progress_topic]
        topic = _ProgressTopic(kafka, target, common, stream, make=False)
        text = topic.read() if is_there and "READ" in rights else None
    return BrokerReport({name: found[name] for name in names}, may_make, text)


def _checked(topic: str, position: str) -> str:
    if _TOPIC.fullmatch(topic):
        return topic
    raise TargetSchemaError(
        f"{topic!r} is no name of a topic, which has letters of ASCII, digits, '.', '_' and '-'",
        position=position,
        remedy="Give topics by topic=, or another name of the table by a rule.",
    )


class _KafkaWork(LogWork):
    def __init__(self, producer: Any, target: KafkaTarget, progress: _ProgressTopic) -> None:
        super().__init__()
        self._producer, self._target, self._progress = producer, target, progress
        self._failure = need("confluent_kafka", "kafka").KafkaException
        self._topic = Namer("topic", target.topic)
        self._encoding = Encoding(target.encode, target.key, target.partition, target.tombstones)
        self.encode_entry = self._encoding.entry(self._topic, target.headers)
        self._refused: dict[str, str] = {}  # by topic, why

    def load(self, table: str) -> str | None:
        with _understood(f"{self._target}"):
            return self._progress.read()

    def write(self, made: Sequence[Change], old: str | None, new: str, table: str) -> None:
        unfit: list[UnfitChangeError] = []
        self._refused.clear()
        with _understood(f"{self._target}"):
            self._producer.begin_transaction()
            try:
                for part in made.parts if isinstance(made, Changes) else [made]:
                    if isinstance(part, EntryRows) and part.encoded is not None:
                        self._send_entry(part, unfit)
                    else:
                        self._send_all(part, unfit)
                if not unfit:
                    self._produce(self._progress.name, new.encode(), self._progress.key.encode(), [], partition=0)
                    self._producer.commit_transaction(self._target.timeout)
                    return
            except Exception:
                with contextlib.suppress(Exception):  # what stays open holds up readers, until it is timed out
                    self._producer.abort_transaction(_ABORT)
                self._explain()
                raise
            self._producer.abort_transaction(self._target.timeout)
        refuse(unfit)

    def _explain(self) -> None:
        """Say which topic refused messages, where one did."""
        for topic, name in self._refused.items():
            if name == "MSG_SIZE_TOO_LARGE":
                raise TargetSchemaError(
                    f"the topic {topic} takes no messages as large as the producer makes",
                    remedy="Raise its max.message.bytes, or give producer={'message.max.bytes': …} that is as low.",
                )
            if name not in ("_PURGE_QUEUE", "_PURGE_INFLIGHT", *_FENCED, *_LOST):
                raise TargetError(
                    f"{self._target} refuses messages for the topic {topic}: {name}",
                    remedy="Mend that; nothing of the commit was written.",
                )

    def _send_all(self, changes: Sequence[Change], unfit: list[UnfitChangeError]) -> None:
        for change in changes:
            try:
                topic = _checked(self._topic(change), change.origin.position)
                for one in self._encoding.messages(change):
                    partition = partition_of(one.change, self._target.partition)
                    self._produce(topic, one.value, one.key, headers_of(one, self._target.headers), partition)
            except UnfitChangeError as error:
                error.changes = (change,)  # the whole one, not the half that an update may be
                unfit.append(error)

    def _send_entry(self, part: EntryRows, unfit: list[UnfitChangeError]) -> None:
        topic = _checked(self._topic.of(part.table), f"{part.entry.transaction.journal}:{part.entry.offset}")
        for identity, key, value, headers, number in of_entry(part):
            try:
                self._produce(topic, value, key, [("id", identity.encode()), *headers])
            except UnfitChangeError as error:
                error.changes = (change_of(part, number),)
                unfit.append(error)

    def _produce(
        self, topic: str, value: bytes | None, key: bytes | None, headers: list[tuple[str, bytes]], partition: int = -1
    ) -> None:
        while True:
            try:
                self._producer.produce(topic, value, key, partition, headers=headers, on_delivery=self._delivered)
                return
            except BufferError:  # its queue is full
                self._producer.poll(0.01)
            except self._failure as error:
                if error.args[0].name() != "MSG_SIZE_TOO_LARGE":
                    raise
                raise UnfitChangeError(
                    f"a message of {len(value or b'')} bytes for the topic {topic} is larger than message.max.bytes",
                    remedy="Raise message.max.bytes in producer=, and max.message.bytes of the topic; or park it by on_unfit.",
                ) from None

    def _delivered(self, error: Any, message: Any) -> None:
        if error is not None:
            self._refused.setdefault(message.topic(), error.name())
