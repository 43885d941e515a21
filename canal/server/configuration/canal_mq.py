"""canal's keys of brokers: those of its routes, the target that its server mode names, and what is in the others' stead.

Never sends anything.
"""

from __future__ import annotations

from collections.abc import Callable
from difflib import get_close_matches
from typing import Any, Final
from urllib.parse import quote

from canal.errors import ConfigError
from canal.formats import CanalJson
from canal.server.configuration.keys import PREFIXES
from canal.server.configuration.properties import Values
from canal.targets import CanalMQ, KafkaTarget, RabbitMQTarget, RocketMQTarget, Target

_FLAT: Final = "canal.mq.flatMessage"
_QUEUES: Final = "canal.mq.enableDynamicQueuePartition"


def _flag(value: str) -> bool:
    if value.lower() not in ("true", "false"):
        raise ValueError
    return value.lower() == "true"


#: The option that a key sets, what reads it, and what it is.
ROUTES: Final[dict[str, tuple[str, Callable[[str], Any], str]]] = {
    "canal.mq.topic": ("topic", str, "a text"),
    "canal.mq.dynamicTopic": ("dynamic_topic", str, "a text"),
    "canal.mq.partition": ("partition", int, "a number"),
    "canal.mq.partitionsNum": ("partitions", int, "a number"),
    "canal.mq.partitionHash": ("partition_hash", str, "a text"),
    "canal.mq.dynamicTopicPartitionNum": ("topic_partitions", str, "a text"),
    "canal.mq.database.hash": ("database_hash", _flag, "true or false"),
}

_TARGET: Final = "give it to the target: its address, user and options"
_PIPE: Final = "batch_size and linger of canal.pipe"
_ORDER: Final = "messages are sent in their order by one thread"
#: Keys that have no part in the routes, and what is in their stead.
INSTEAD: Final[dict[str, str]] = {
    **dict.fromkeys(
        (
            "canal.mq.servers",
            "canal.mq.producerGroup",
            "canal.mq.accessChannel",
            "canal.mq.namespace",
            "canal.mq.vhost",
            "canal.mq.exchange",
            "canal.mq.username",
            "canal.mq.password",
            "canal.mq.aliyunuid",
            "canal.mq.tag",
        ),
        _TARGET,
    ),
    "rocketmq.namesrv.addr": "name_servers= of RocketMQTarget",
    "rocketmq.producer.group": "group= of RocketMQTarget",
    "rocketmq.tag": "tag= of RocketMQTarget",
    "rocketmq.namespace": "topic= of RocketMQTarget, as namespace%topic",
    "rocketmq.retry.times.when.send.failed": "on_error=canal.Retry(times=) of canal.pipe",
    "rocketmq.vip.channel.enabled": "brokers are asked at the address that their name server tells",
    **dict.fromkeys(
        (
            "rocketmq.enable.message.trace",
            "rocketmq.customized.trace.topic",
            "canal.mq.customizedTraceTopic",
            "canal.mq.enableMessageTrace",
        ),
        "messages are not traced: each has the id of its change",
    ),
    **dict.fromkeys(
        (
            "canal.mq.batchSize",
            "canal.mq.maxRequestSize",
            "canal.mq.lingerMs",
            "canal.mq.bufferMemory",
            "canal.mq.compressionType",
        ),
        "producer= of KafkaTarget, by librdkafka's names",
    ),
    **dict.fromkeys(
        ("canal.mq.kafka.kerberos.enable", "canal.mq.kafka.kerberos.jaasFilePath", "canal.mq.kafka.kerberos.krb5FilePath"),
        "options= of KafkaTarget, by librdkafka's names",
    ),
    "canal.mq.acks": "all brokers that hold a partition have each message before its commit",
    "canal.mq.transaction": "each commit of a KafkaTarget is a transaction",
    "canal.mq.retries": "on_error=canal.Retry(times=) of canal.pipe",
    "canal.mq.canalBatchSize": _PIPE,
    "canal.mq.canalGetTimeout": _PIPE,
    "canal.mq.send.thread.size": _ORDER,
    "canal.mq.build.thread.size": _ORDER,
    "canal.mq.filterTransactionEntry": "a target is given no BEGIN and END, as with JSON messages of canal's",
    _FLAT: "JSON messages: encode=canal.formats.CanalJson()",
    _QUEUES: "false",
}


def read_mq(values: Values, destination: str) -> CanalMQ:
    """The routes that these values say.

    Raises:
        ConfigError: a key that there is not, a value that cannot be, or what has no equal here.
    """
    for key in values.all():
        if key.startswith("canal.mq.") and key not in ROUTES and _instead(key) is None:
            near = get_close_matches(key, [*ROUTES, *INSTEAD], 1)
            remedy = f"Did you mean {near[0]}?" if near else "Take it out."
            raise ConfigError(f"there is no key {key}", destination=destination, remedy=remedy)
    if values.get(_FLAT).lower() == "false":
        raise ConfigError(
            f"{_FLAT}=false: messages of protobuf are not made",
            destination=destination,
            remedy="Let consumers read JSON, and set it to true.",
        )
    if values.get(_QUEUES).lower() == "true":
        raise ConfigError(
            f"{_QUEUES}: no broker is asked how many queues a topic has",
            destination=destination,
            remedy="Give the numbers by canal.mq.partitionsNum or canal.mq.dynamicTopicPartitionNum.",
        )
    if not values.get("canal.mq.topic"):
        raise ConfigError("canal.mq.topic is not set", destination=destination, remedy="Set it, for what has no other.")
    return CanalMQ(**{option: _value(values, key) for key, (option, _, _) in ROUTES.items() if values.get(key)})


#: Keys of a producer of Kafka, and what librdkafka calls them.
_PRODUCER: Final = {
    "compression.type": "compression.type",
    "batch.size": "batch.size",
    "linger.ms": "linger.ms",
    "max.request.size": "message.max.bytes",
}
#: What changes the meaning of a mode, and is not done by it.
_NOT_DONE: Final = {
    "kafka": ("kafka.kerberos.enable", "canal.mq.kafka.kerberos.enable"),
    "rocketmq": ("rocketmq.namespace", "canal.mq.namespace"),
    "rabbitmq": ("rabbitmq.resource.ownerId", "canal.mq.aliyunuid"),
}


def read_target(values: Values, destination: str) -> Target | None:
    """The broker that ``canal.serverMode`` names, with canal's routes and its JSON messages; None for tcp.

    Raises:
        ConfigError: as ``read_mq``; and a mode, or an option of it, that has no equal here.
    """
    mode = values.get("canal.serverMode").lower()
    if mode in ("", "tcp"):
        return None
    remedy = "Write the destination as TOML, with a [destinations.….pipe] and its target: docs/configuration.md."
    made = {"kafka": _kafka, "rocketmq": _rocketmq, "rabbitmq": _rabbitmq}.get(mode)
    if made is None:
        known = "tcp, kafka, rocketMQ or rabbitMQ"
        raise ConfigError(f"canal.serverMode is {known} here, not {mode!r}", destination=destination, remedy=remedy)
    for key in _NOT_DONE[mode]:
        if values.get(key).lower() not in ("", "false"):
            raise ConfigError(f"{key} has no equal in the mode {mode}", destination=destination, remedy=remedy)
    return made(values, read_mq(values, destination), destination)


def _address(values: Values, key: str, destination: str) -> str:
    found = values.get(key) or values.get("canal.mq.servers")  # as it was before 1.1.5
    if not found:
        raise ConfigError(f"{key} is not set, which canal.serverMode needs", destination=destination)
    return found


def _kafka(values: Values, mq: CanalMQ, destination: str) -> Target:
    producer = {name: values.get(f"kafka.{key}") for key, name in _PRODUCER.items() if values.get(f"kafka.{key}")}
    return KafkaTarget(
        _address(values, "kafka.bootstrap.servers", destination),
        topic=mq.topic_of,
        key=mq.key_of,
        partition=mq.partition_of,
        encode=CanalJson(),
        producer=producer,
    )


def _rocketmq(values: Values, mq: CanalMQ, destination: str) -> Target:
    return RocketMQTarget(
        _address(values, "rocketmq.namesrv.addr", destination),
        topic=mq.topic_of,
        key=mq.key_of,
        partition=mq.partition_of,
        encode=CanalJson(),
        group=values.get("rocketmq.producer.group") or "canal",
        tag=values.get("rocketmq.tag") or None,
        access_key=values.get("canal.aliyun.accessKey"),
        secret_key=values.get("canal.aliyun.secretKey"),
    )


def _rabbitmq(values: Values, mq: CanalMQ, destination: str) -> Target:
    named = {
        part: values.get(f"rabbitmq.{key}") or values.get(f"canal.mq.{old}")
        for part, key, old in (
            ("vhost", "virtual.host", "vhost"),
            ("exchange", "exchange", "exchange"),
            ("user", "username", "username"),
            ("password", "password", "password"),
        )
    }
    host = _address(values, "rabbitmq.host", destination)
    user, password, vhost = (quote(named[part], safe="") for part in ("user", "password", "vhost"))
    url = f"amqp://{user or 'guest'}:{password or 'guest'}@{host}/{vhost or '%2F'}"
    return RabbitMQTarget(url, exchange=named["exchange"], routing_key=mq.topic_of, encode=CanalJson())


def mq_notes(values: Values) -> dict[str, str]:
    """Keys that are set and have no part in the routes, and what is in their stead."""
    return {key: why for key in sorted(values.all()) if key not in ROUTES and values.written(key) and (why := _instead(key))}


def _instead(key: str) -> str | None:
    if key.startswith("canal.mq.properties."):
        return "options= of KafkaTarget, by librdkafka's names"
    if key not in INSTEAD and not key.startswith("canal.mq.") and key.startswith(tuple(PREFIXES)):
        return _TARGET
    return INSTEAD.get(key)


def _value(values: Values, key: str) -> Any:
    _, read, what = ROUTES[key]
    try:
        return read(values.get(key))
    except ValueError:
        raise ConfigError(f"{key} is {what}, not {values.get(key)!r}") from None
