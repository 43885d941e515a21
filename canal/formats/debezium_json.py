"""Debezium's change events: an envelope with the row before and after, as its connectors for MySQL and MariaDB write it.

Never gives what the log does not tell: a part of a row, of a text or of a document is an UnfitChangeError.

Other than Debezium: what it changes is as it is (a NULL where the column has a default, a YEAR of zero, a year below 100, a
comma in an ENUM's label), what it drops is refused (a TIME beyond a day with "connect" and "isostring"), TRUNCATE is given, and
schemas have no defaults. Times of ``source`` are whole seconds, ``transaction`` and ``query`` are null.
"""

from __future__ import annotations

import base64
import time
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, Final, Literal, NoReturn

import attrs

from canal._util.bounded import Recent
from canal.changes.change import Change, Op, Origin, Table
from canal.errors import ConfigError
from canal.formats import put
from canal.formats.debezium_types import Field, Modes, Schema, field
from canal.formats.encoder import ColumnPiece, Encoded, RowEncoder, image_object, key_object, names, split, unfit, writer_of
from canal.formats.row_writer import Messages, Program, RowWriter
from canal.formats.text import dumps

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
        self.source = _SOURCE
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


@attrs.frozen(kw_only=True)
class DebeziumEvents(RowEncoder):
    """The base of DebeziumJson and DebeziumAvro. Its arguments are theirs."""

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

    def _event(self, table: Table, op: str, has_before: bool, has_after: bool) -> Program:
        """Return what writes the value of a message."""
        raise NotImplementedError

    def _header(self, table: Table, side: int) -> Program:
        """Return what writes the header that names another key."""
        raise NotImplementedError

    def _shape(self, table: Table) -> DebeziumSchema:
        known = self._shapes.get(table.name)
        if known is None or known[0] is not table:
            modes = Modes(self.decimals, self.times, self.unsigned_bigints, self.binaries)
            known = table, DebeziumSchema(table, ".".join((self.prefix, *names(table))), self.connector, modes)
            self._shapes[table.name] = known
        return known[1]

    def _statement(self, change: Change) -> Sequence[Encoded]:
        return self._written(change) if change.op in _OPS else ()

    def _unfit(self, change: Change, error: Exception) -> NoReturn:
        unfit(change, f"Debezium's form has nothing for it: {error}", "Park it, or choose another mode or format.")

    def _program(self, table: Table, op: Op, has_before: bool, has_after: bool, form: int) -> Messages:
        has_key = bool(table.keys) and (has_before or has_after)
        key, old = (self._key(table, side) if has_key else None for side in (put.KEY, put.KEY_BEFORE))
        value = self._event(table, _OPS[op], has_before, has_after)
        if op is Op.DELETE:
            return Messages([(old, value, None, None), *[(old, None, None, None)] * self.tombstones])
        if op is not Op.UPDATE or not has_key or not (has_before and has_after):
            return Messages([(key, value, None, None)])
        to_new = "__debezium.newkey", self._header(table, put.KEY)
        gone = (old, self._event(table, "d", True, False), *to_new)
        came = key, self._event(table, "c", False, True), "__debezium.oldkey", self._header(table, put.KEY_BEFORE)
        moved = [gone, *[(old, None, *to_new)] * self.tombstones, came]
        return Messages([(key, value, None, None)], moved, ["~"] * (len(moved) - 1) + [""])


@cache
def version() -> str:
    from canal import __version__

    return __version__


@attrs.frozen(kw_only=True)
class DebeziumJson(DebeziumEvents):
    """Debezium's events as its JSON converter writes them.

    A delete is followed by a tombstone. An update that changes the key is a delete, a tombstone and an insert, whose headers
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
        clock: returns ``ts_ms``, ``ts_us`` and ``ts_ns``, in nanoseconds since 1970.
    """

    schemas: bool = False

    def _form(self, table: Table) -> RowWriter:
        shape = self._shape(table)
        return writer_of(table, [ColumnPiece(json_piece(one), one.styles) for one in shape.fields.values()], is_whole=True)

    def _key(self, table: Table, side: int) -> Program:
        start, end = self._payload(self._shape(table).key)
        return Program([(put.TEXT, start), *key_object(table, side), (put.TEXT, end)])

    def _header(self, table: Table, side: int) -> Program:
        return self._key(table, side)

    def _event(self, table: Table, op: str, has_before: bool, has_after: bool) -> Program:
        start, end = self._payload(self._shape(table).value)
        database, name = names(table)
        of_source = {"version": version(), "connector": self.connector, "name": self.prefix}
        more = {"snapshot": "incremental" if op == "r" else "false", "db": database, "sequence": None}
        return Program(
            [
                (put.TEXT, start + b'{"before":'),
                *image_object(put.BEFORE, has_before),
                (put.TEXT, b',"after":'),
                *image_object(put.AFTER, has_after),
                (put.TEXT, f',"source":{dumps(of_source)[:-1]},"ts_ms":'.encode()),
                (put.LITERAL, 0),
                (put.TEXT, f",{dumps(more)[1:-1]},".encode()),
                (put.LITERAL, 1),
                (put.TEXT, f',"table":{dumps(name)},'.encode()),
                (put.LITERAL, 2),
                (put.NUMBER, None),
                (put.LITERAL, 3),
                (put.TEXT, b'"%s",' % op.encode()),
                (put.LITERAL, 4),
                (put.TEXT, b"}" + end),
            ]
        )

    def _literals(self, table: Table, origin: Origin, part: int = 0) -> list[bytes]:
        now, (journal, offset) = self.clock(), split(origin.position)
        gtid, thread = dumps(origin.gtid or None), origin.thread_id or "null"
        return [
            b"%d" % origin.ts,
            b'"ts_us":%d,"ts_ns":%d' % (origin.ts * 1000, origin.ts * 1_000_000),
            f'"server_id":{origin.server_id},"gtid":{gtid},"file":{dumps(journal)},"pos":{offset},"row":'.encode(),
            f',"thread":{thread},"query":null}},"transaction":null,"op":'.encode(),
            b'"ts_ms":%d,"ts_us":%d,"ts_ns":%d' % (now // 1_000_000, now // 1000, now),
        ]

    def _payload(self, schema: Schema | None) -> tuple[bytes, bytes]:
        """Return what stands before and after a key or value."""
        return (f'{{"schema":{dumps(schema)},"payload":'.encode(), b"}") if self.schemas else (b"", b"")


def piece_of(one: Field, write: Callable[[Any], bytes]) -> Callable[[Any], bytes]:
    """Return a function that names the column if it cannot write a value."""

    def make(value: Any) -> bytes:
        try:
            return write(value)
        except ValueError as error:
            raise ValueError(f"column {one.name}: {error}") from None

    return make


def json_piece(one: Field) -> Callable[[Any], bytes]:
    """Return what writes the values of a column as JSON."""

    def write(value: Any) -> bytes:
        made = one.give(value)
        return b'"%b"' % base64.b64encode(made) if type(made) is bytes else dumps(made, _base64).encode()

    return piece_of(one, write)


def _base64(value: bytes) -> str:
    return base64.b64encode(value).decode()
