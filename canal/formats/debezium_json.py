"""Debezium's change events: an envelope with the row before and after, as its connectors for MySQL and MariaDB write it.

Never gives what the log does not tell: a part of a row, of a text or of a document is an UnfitChangeError.

Other than Debezium: what it changes is as it is (a NULL where the column has a default, a YEAR of zero, a year below 100, a
comma in an ENUM's label), what it drops is refused (a TIME beyond a day with "connect" and "isostring"), TRUNCATE is given, and
schemas have no defaults. Times of ``source`` are whole seconds, ``transaction`` and ``query`` are null.
"""

from __future__ import annotations

import base64
import time
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, Final, Literal

import attrs

from canal._util.bounded import Recent
from canal.changes.change import Change, Op, Table
from canal.errors import ConfigError
from canal.formats.debezium_types import Field, Modes, Schema, field
from canal.formats.encoder import Encoded, TextEncoder, names, split, unfit
from canal.formats.text import dumps
from canal.model import Row

_OPS: Final = {Op.INSERT: "c", Op.READ: "r", Op.UPDATE: "u", Op.DELETE: "d", Op.TRUNCATE: "t"}
_CHOICES: Final = {
    "decimals": ("precise", "double", "string"),
    "times": ("adaptive_time_microseconds", "connect", "isostring", "microseconds", "nanoseconds"),
    "unsigned_bigints": ("long", "precise"),
    "binaries": ("bytes", "base64", "base64-url-safe", "hex"),
}


def _member(kind: str, name: str, optional: bool = False) -> Schema:
    return {"type": kind, "optional": optional, "field": name}


_SNAPSHOT: Final[Schema] = {
    "type": "string",
    "optional": True,
    "name": "io.debezium.data.Enum",
    "version": 1,
    "parameters": {"allowed": "true,first,first_in_data_collection,last_in_data_collection,last,false,incremental"},
    "default": "false",
    "field": "snapshot",
}
_SOURCE: Final = (
    _member("string", "version"),
    _member("string", "connector"),
    _member("string", "name"),
    _member("int64", "ts_ms"),
    _SNAPSHOT,
    _member("string", "db"),
    _member("string", "sequence", True),
    _member("int64", "ts_us", True),
    _member("int64", "ts_ns", True),
    _member("string", "table", True),
    _member("int64", "server_id"),
    _member("string", "gtid", True),
    _member("string", "file"),
    _member("int64", "pos"),
    _member("int32", "row"),
    _member("int64", "thread", True),
    _member("string", "query", True),
)
_BLOCK: Final = (_member("string", "id"), _member("int64", "total_order"), _member("int64", "data_collection_order"))
_END: Final = (
    _member("string", "op"),
    _member("int64", "ts_ms", True),
    _member("int64", "ts_us", True),
    _member("int64", "ts_ns", True),
)


@attrs.frozen
class DebeziumMessage:
    """A message before it is bytes: ``key`` and ``value`` are values of their schemas, with bytes as bytes."""

    shape: DebeziumSchema
    key: Mapping[str, Any] | None
    value: Mapping[str, Any] | None
    header: tuple[str, Mapping[str, Any]] | None = None


class DebeziumSchema:
    """What the messages of a table have in common."""

    def __init__(self, table: Table, topic: str, connector: str, modes: Modes) -> None:
        self.topic = topic
        self.fields: dict[str, Field] = {}
        for column in table.columns:
            try:
                self.fields[column.name] = field(column, modes)
            except ValueError as error:
                raise ValueError(f"column {column.name}: {error}") from None
        keys = [{**self.fields[name].schema, "optional": False} for name in table.keys]
        self.key: Schema | None = {"type": "struct", "fields": keys, "optional": False, "name": f"{topic}.Key"} if keys else None
        columns = [one.schema for one in self.fields.values()]
        row = {"type": "struct", "fields": columns, "optional": True, "name": f"{topic}.Value"}
        source = f"io.debezium.connector.{connector}.Source"
        members = (
            {**row, "field": "before"},
            {**row, "field": "after"},
            {"type": "struct", "fields": _SOURCE, "optional": False, "name": source, "version": 1, "field": "source"},
            {"type": "struct", "fields": _BLOCK, "optional": True, "name": "event.block", "version": 1, "field": "transaction"},
            *_END,
        )
        self.value: Schema = {"type": "struct", "fields": members, "optional": False, "name": f"{topic}.Envelope", "version": 2}


def _check_choice(instance: object, attribute: attrs.Attribute[Any], value: object) -> None:
    if value not in _CHOICES[attribute.name]:
        raise ConfigError(f"{attribute.name} is one of {', '.join(_CHOICES[attribute.name])}, not {value!r}")


@attrs.define(kw_only=True)
class DebeziumEvents:
    """What DebeziumJson and DebeziumAvro make bytes of. Its arguments are theirs."""

    prefix: str = "canal"
    decimals: Literal["precise", "double", "string"] = attrs.field(default="precise", validator=_check_choice)
    times: Literal["adaptive_time_microseconds", "connect", "isostring", "microseconds", "nanoseconds"] = attrs.field(
        default="adaptive_time_microseconds", validator=_check_choice
    )
    unsigned_bigints: Literal["long", "precise"] = attrs.field(default="long", validator=_check_choice)
    binaries: Literal["bytes", "base64", "base64-url-safe", "hex"] = attrs.field(default="bytes", validator=_check_choice)
    tombstones: bool = True
    connector: Literal["mysql", "mariadb"] = "mysql"
    clock: Callable[[], int] = time.time_ns
    _shapes: Recent[str, tuple[Table, DebeziumSchema]] = attrs.field(factory=Recent, init=False, repr=False, eq=False)

    def events(self, change: Change) -> Sequence[DebeziumMessage]:
        """The events of a change; () of a statement that is no TRUNCATE.

        Raises:
            UnfitChangeError: the log tells only a part of it, or its schema cannot hold a value.
        """
        if change.op not in _OPS:
            return ()
        try:
            shape = self._shape(change)
            before, after = (_row(shape, row) for row in (change.before, change.after))
        except ValueError as error:
            unfit(change, f"Debezium's form has nothing for it: {error}", "Park it, or choose another mode or format.")
        old, new = (_key(change, row) for row in (before, after))
        if change.op is Op.UPDATE and old != new:
            assert old is not None
            assert new is not None
            gone = self._removed(shape, change, old, before, ("__debezium.newkey", new))
            return (*gone, DebeziumMessage(shape, new, self._value(change, "c", None, after), ("__debezium.oldkey", old)))
        if change.op is Op.DELETE:
            return self._removed(shape, change, old, before, None)
        return (DebeziumMessage(shape, new, self._value(change, _OPS[change.op], before, after)),)

    def _removed(
        self,
        shape: DebeziumSchema,
        change: Change,
        key: Mapping[str, Any] | None,
        before: Mapping[str, Any] | None,
        header: tuple[str, Mapping[str, Any]] | None,
    ) -> Sequence[DebeziumMessage]:
        made = DebeziumMessage(shape, key, self._value(change, "d", before, None), header)
        return (made, DebeziumMessage(shape, key, None, header)) if self.tombstones else (made,)

    def _shape(self, change: Change) -> DebeziumSchema:
        table = change.table
        known = self._shapes.get(table.name)
        if known is not None and known[0] is table:
            return known[1]
        modes = Modes(self.decimals, self.times, self.unsigned_bigints, self.binaries)
        shape = DebeziumSchema(table, ".".join((self.prefix, *names(change))), self.connector, modes)
        self._shapes[table.name] = table, shape
        return shape

    def _value(
        self, change: Change, op: str, before: Mapping[str, Any] | None, after: Mapping[str, Any] | None
    ) -> dict[str, Any]:
        origin, now = change.origin, self.clock()
        database, table = names(change)
        journal, offset = split(origin.position)
        source = {
            "version": _version(),
            "connector": self.connector,
            "name": self.prefix,
            "ts_ms": origin.ts,
            "snapshot": "incremental" if change.op is Op.READ else "false",
            "db": database,
            "sequence": None,
            "ts_us": origin.ts * 1000,
            "ts_ns": origin.ts * 1_000_000,
            "table": table,
            "server_id": origin.server_id,
            "gtid": origin.gtid or None,
            "file": journal,
            "pos": offset,
            "row": change.ord - origin.first,
            "thread": origin.thread_id or None,
            "query": None,
        }
        return {
            "before": before,
            "after": after,
            "source": source,
            "transaction": None,
            "op": op,
            "ts_ms": now // 1_000_000,
            "ts_us": now // 1000,
            "ts_ns": now,
        }


@cache
def _version() -> str:
    from canal import __version__

    return __version__


def _row(shape: DebeziumSchema, row: Row | None) -> dict[str, Any] | None:
    if row is None:
        return None
    found = {}
    for one, value in zip(shape.fields.values(), row.values()):
        try:
            found[one.name] = one.give(value)
        except ValueError as error:
            raise ValueError(f"column {one.name}: {error}") from None
    return found


def _key(change: Change, row: Mapping[str, Any] | None) -> dict[str, Any] | None:
    return None if row is None or not change.table.keys else {name: row[name] for name in change.table.keys}


@attrs.define(kw_only=True)
class DebeziumJson(DebeziumEvents, TextEncoder):
    """Debezium's events as its JSON converter writes them.

    A delete is followed by a tombstone; an update that changes the key is a delete, a tombstone and an insert, whose headers
    name the other key. A row of a snapshot has the operation "r" and ``source.snapshot`` "incremental". Statements give nothing,
    but for TRUNCATE, which is an event with the operation "t".

    Args:
        schemas: each key and value is ``{"schema": …, "payload": …}``, as with ``schemas.enable=true``.
        prefix: the first part of names in schemas, and ``source.name``: Debezium's ``topic.prefix``.
        decimals: ``decimal.handling.mode``.
        times: ``time.precision.mode``.
        unsigned_bigints: ``bigint.unsigned.handling.mode``; with "long" values from 2**63 on are negative.
        binaries: ``binary.handling.mode``; "bytes" are base64 in JSON.
        tombstones: ``tombstones.on.delete``.
        connector: ``source.connector``.
        clock: gives ``ts_ms``, ``ts_us`` and ``ts_ns``, in nanoseconds since 1970.
    """

    schemas: bool = False

    def messages(self, change: Change) -> Sequence[Encoded]:
        return [self._encoded(event) for event in self.events(change)]

    def _encoded(self, event: DebeziumMessage) -> Encoded:
        key = event.shape.key
        headers: tuple[tuple[str, bytes], ...] = ()
        if event.header is not None:
            assert key is not None
            headers = ((event.header[0], self._json(key, event.header[1])),)
        return Encoded(
            None if key is None or event.key is None else self._json(key, event.key),
            None if event.value is None else self._json(event.shape.value, event.value),
            headers,
        )

    def _json(self, schema: Schema, value: Mapping[str, Any]) -> bytes:
        document = {"schema": schema, "payload": value} if self.schemas else value
        return dumps(document, _base64).encode()


def _base64(value: bytes) -> str:
    return base64.b64encode(value).decode()
