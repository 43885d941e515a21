r"""Which topic and partition canal's MQ starter gives a change: its grammar of ``canal.mq.*``, for targets that are brokers.

Never sends anything, and knows no file: ``canal.server.DirectorySource(…).mq(destination)`` reads those.
"""

from __future__ import annotations

import struct
from typing import Final

import attrs

from canal._util.bounded import Recent
from canal._util.option_checks import not_negative, positive, text
from canal.changes import Change, Table
from canal.errors import ConfigError
from canal.filter import TableFilter
from canal.formats.change_json import key_json
from canal.formats.columns import column_text
from canal.model import Row
from canal.schema import ColumnSchema
from canal.targets.messages import image, known

#: With one of these a name is a regular expression.
_WILD: Final = frozenset("*?+|(){}[]\\$^")


def java_hash(value: str) -> int:
    """``String.hashCode()`` of Java: 32 bits with a sign, over UTF-16."""
    units = value.encode("utf-16-le", "surrogatepass")
    found = 0
    for unit in struct.unpack(f"<{len(units) // 2}H", units):
        found = (31 * found + unit) & 0xFFFFFFFF
    return found - (1 << 32) if found >> 31 else found


@attrs.frozen
class _Names:
    """Names of one item of the grammar: one name, or a regular expression of tables or of schemas; case is ignored."""

    item: str
    _pattern: TableFilter | None

    def accepts(self, name: str) -> bool:
        return name.lower() == self.item.lower() if self._pattern is None else self._pattern.accepts_name(name)


@attrs.frozen
class _Topic:
    topic: str
    names: _Names

    def accepts(self, name: str) -> bool:
        is_of_tables = r"\." in self.names.item
        return self.names.accepts(name) and (not _is_wild(self.names.item) or is_of_tables == ("." in name))


@attrs.frozen
class _Hash:
    """What a partition is made of: the table's name (``columns`` None), the primary key (()), or these columns."""

    names: _Names
    columns: tuple[str, ...] | None


def _is_wild(item: str) -> bool:
    return not _WILD.isdisjoint(item)


def _items(given: str) -> list[str]:
    """The items of a list, which canal cuts at each comma and semicolon."""
    return [item for item in given.replace(",", ";").split(";") if item]


def _names(option: str, item: str) -> _Names:
    if item != item.strip() or not item:
        raise ConfigError(
            f"{option}: {item!r} has a blank at its ends, or nothing else: canal compares that too, so it names no table",
            remedy="Take the blank out.",
        )
    try:
        if item.count("{") != item.count("}"):
            raise ConfigError("a brace is left open")
        return _Names(item, TableFilter(item) if _is_wild(item) else None)
    except ConfigError as error:
        raise ConfigError(
            f"{option}: {item!r} is no regular expression: {error.message}",
            remedy="canal cuts the list at every comma and semicolon, also within braces.",
        ) from None


def _topics(given: str) -> list[_Topic]:
    found = []
    for item in _items(given):
        topic, colon, names = item.partition(":")
        topic, names = (topic.strip(), names.strip()) if colon else ("", item)
        if colon and not topic:
            raise ConfigError(f"dynamic_topic: {item!r} has no topic before its colon")
        found.append(_Topic(topic, _names("dynamic_topic", names)))
    return found


def _hashes(given: str) -> list[_Hash]:
    found = []
    for item in _items(given):
        names, colon, columns = item.rpartition(":")
        if not colon:
            found.append(_Hash(_names("partition_hash", item), None))
            continue
        named = () if columns.lower() == "$pk$" else tuple(filter(None, columns.split("^")))
        if columns != columns.strip() or any(one != one.strip() for one in named) or not columns.strip("^"):
            raise ConfigError(
                f"partition_hash: {item!r} is like schema.table:column^column, without blanks",
                remedy="Name columns, or $pk$ for the primary key, or leave the colon out for the name of the table.",
            )
        found.append(_Hash(_names("partition_hash", names), named))
    return found


def _counts(given: str) -> list[tuple[_Names, int]]:
    found = []
    for item in _items(given):
        names, _, count = item.rpartition(":")
        if not (names and count.isascii() and count.isdecimal() and int(count)):
            raise ConfigError(f"topic_partitions: {item!r} is like topic:4")
        found.append((_names("topic_partitions", names), int(count)))
    return found


@attrs.frozen(kw_only=True)
class CanalMQ:
    r"""canal's routes to a broker, by the texts of its own configuration (1.1.7, JSON messages).

    ::

        mq = CanalMQ(topic="example", dynamic_topic=r"orders:shop\..*", partition_hash=r".*\..*:$pk$", partitions=8)
        target = KafkaTarget("kafka:9092", topic=mq.topic_of, key=mq.key_of, partition=mq.partition_of, encode=CanalJson())

    Tables are called as at the source, whatever a rule makes of them; columns as the rules left them. An update whose partition
    is another one afterwards is a DELETE in the old partition and an INSERT in the new one; canal sends an UPDATE to the new one.

    Args:
        topic: ``canal.mq.topic``: of what ``dynamic_topic`` does not name.
        dynamic_topic: ``canal.mq.dynamicTopic``: ``topic:tables`` or ``tables``, with commas between; the first one counts, that
            names the table, else the schema. Dots in the name of a topic become ``_`` then.
        partition: ``canal.mq.partition``: of everything, where there is no ``partition_hash``.
        partitions: ``canal.mq.partitionsNum``: how many a topic has.
        topic_partitions: ``canal.mq.dynamicTopicPartitionNum``: ``topic:number``, with commas between; before ``partitions``.
        partition_hash: ``canal.mq.partitionHash``: ``tables:column^column``, ``tables:$pk$``, or ``tables`` for the hash of the
            table's name; the first one counts. What it does not name, and statements, go to partition 0.
        database_hash: ``canal.mq.database.hash``: whether the schema's name counts in the hash of columns.

    Raises:
        ConfigError: a text does not follow the grammar, or canal would take it for something else.
    """

    topic: str = attrs.field(validator=text)
    dynamic_topic: str = attrs.field(default="", validator=text)
    partition: int = attrs.field(default=0, validator=not_negative)
    partitions: int = attrs.field(default=1, validator=positive)
    topic_partitions: str = attrs.field(default="", validator=text)
    partition_hash: str = attrs.field(default="", validator=text)
    database_hash: bool = True

    _topics: list[_Topic] = attrs.field(init=False, repr=False, eq=False)
    _hashes: list[_Hash] = attrs.field(init=False, repr=False, eq=False)
    _counts: list[tuple[_Names, int]] = attrs.field(init=False, repr=False, eq=False)
    #: Of each table at the source its topic, how many partitions that has, and what a partition is made of.
    _routes: Recent[tuple[str, str], tuple[str, int, _Hash | None]] = attrs.field(
        init=False, repr=False, eq=False, factory=Recent
    )

    @_topics.default
    def _read_topics(self) -> list[_Topic]:
        return _topics(self.dynamic_topic)

    @_hashes.default
    def _read_hashes(self) -> list[_Hash]:
        return _hashes(self.partition_hash)

    @_counts.default
    def _read_counts(self) -> list[tuple[_Names, int]]:
        return _counts(self.topic_partitions)

    def topic_of(self, change: Change) -> str:
        """The topic of a change: ``topic`` of a KafkaTarget, ``routing_key`` of a RabbitMQTarget."""
        return self._route(change.table)[0]

    def partition_of(self, change: Change) -> int:
        """The partition of a change, counted from 0: ``partition`` of a KafkaTarget.

        Raises:
            UnfitChangeError: the row image lacks a column that the partition is made of.
        """
        _, count, hashed = self._route(change.table)
        if not self._hashes:
            return self.partition
        if hashed is None or not change.op.is_row:
            return 0
        if hashed.columns is None:
            return abs(java_hash(change.table.own_name)) % count
        found = java_hash(change.table.database) if self.database_hash else 0
        row, columns = image(change), _columns(change.table, hashed)
        known(change.table, row, [column.name for column in columns])
        for column in columns:
            found ^= java_hash(column_text(row[column.name], column) or "")
        return abs(found) % count

    def key_of(self, table: Table, row: Row) -> str | None:
        """The key of a message, ``key`` of a KafkaTarget: JSON of the primary key and of the columns of its partition.

        Raises:
            UnfitChangeError: the row image lacks one of them.
        """
        columns = _columns(table, self._route(table)[2])
        names = list(dict.fromkeys((*table.keys, *(column.name for column in columns))))
        known(table, row, names)
        return key_json(row, names, table.columns) if names else None

    def _route(self, table: Table) -> tuple[str, int, _Hash | None]:
        known, source = (table.database, table.source), table.source
        found = self._routes.get(known)
        if found is None:
            topic = self._named(table)
            count = next((count for names, count in self._counts if names.accepts(topic)), self.partitions)
            hashed = next((one for one in self._hashes if one.names.accepts(source)), None)
            found = self._routes[known] = topic, count, hashed
        return found

    def _named(self, table: Table) -> str:
        if not self._topics:
            return self.topic
        for name in (table.source, table.database) if table.database and table.own_name else ():
            for one in self._topics:
                if one.accepts(name):
                    return (one.topic or name.lower()).replace(".", "_")
        return self.topic.replace(".", "_")


def _columns(table: Table, hashed: _Hash | None) -> list[ColumnSchema]:
    """The columns of which the partition is made. As with canal those that the table does not have, in this case, do not count,
    and one that is named twice counts twice."""
    if hashed is None or hashed.columns is None:
        return []
    if not hashed.columns:
        return [column for column in table.columns if column.key]
    columns = {column.name: column for column in table.columns}
    return [columns[name] for name in hashed.columns if name in columns]
