"""Debezium's events as Avro in a schema registry's wire format: a zero byte, the schema's id in four bytes, the record.

Never registers the same schema twice while its id is cached.
"""

from __future__ import annotations

import base64
import json
import re
import struct
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable
from typing import Any, ClassVar, Final

import attrs

from canal._util.bounded import Recent
from canal.changes.change import Change, Origin, Table
from canal.errors import ConfigError, ConnectionLostError, TargetError
from canal.formats import put
from canal.formats.debezium_json import DebeziumEvents, json_piece, piece_of, version
from canal.formats.debezium_types import Field, Schema
from canal.formats.encoder import ColumnPiece, names, split, writer_of
from canal.formats.row_writer import Program, RowWriter
from canal.formats.text import dumps

_TYPES: Final = {"int16": "int", "int32": "int", "int64": "long"}
_LOGICAL: Final = {"Decimal": "decimal", "Date": "date", "Time": "time-millis", "Timestamp": "timestamp-millis"}

#: ``subject, schema -> id``: registers a schema and returns its id.
Register = Callable[[str, str], int]


@attrs.frozen
class SchemaRegistry:
    """A registry with Confluent's HTTP interface.

    Args:
        url: such as ``https://user:password@registry:8081``.
        timeout: seconds to wait for a response.
    """

    url: str = attrs.field(repr=False)
    timeout: float = 30.0

    def __call__(self, subject: str, schema: str) -> int:
        """Return the id of a schema. Register the schema if it is new.

        Raises:
            TargetError: if the registry rejects the schema.
            ConnectionLostError: if the registry is unreachable or its response is invalid.
        """
        parts = urllib.parse.urlsplit(self.url)
        address = parts._replace(netloc=parts.netloc.rpartition("@")[2], path=f"{parts.path.rstrip('/')}/subjects/")
        request = urllib.request.Request(
            f"{address.geturl()}{urllib.parse.quote(subject, safe='')}/versions",
            json.dumps({"schema": schema}).encode(),
            {"Content-Type": "application/vnd.schemaregistry.v1+json"},
        )
        if parts.username is not None:
            login = f"{urllib.parse.unquote(parts.username)}:{urllib.parse.unquote(parts.password or '')}"
            request.add_header("Authorization", f"Basic {base64.b64encode(login.encode()).decode()}")
        try:
            with urllib.request.urlopen(request, timeout=self.timeout) as answer:
                return int(json.load(answer)["id"])
        except urllib.error.HTTPError as error:
            error.close()
            raise TargetError(
                f"the schema registry rejected a schema for {subject}: HTTP {error.code}",
                remedy="With 409, the table changed in a way that the subject's compatibility level forbids.",
            ) from None
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ConnectionLostError(f"the schema registry does not answer: {type(error).__name__}") from error


@attrs.frozen(kw_only=True)
class DebeziumAvro(DebeziumEvents):
    """Debezium's events as its Avro converter writes them.

    Subjects are ``<topic>-key`` and ``<topic>-value``. The topic is ``<prefix>.<database>.<table>``. Headers are JSON.

    Args:
        register: returns the id of a schema, such as ``SchemaRegistry(url)``.

    The other arguments are the same as in ``DebeziumJson``.
    """

    is_text: ClassVar[bool] = False

    register: Register
    _numbers: Recent[tuple[str, str], bytes] = attrs.field(factory=Recent, init=False, repr=False, eq=False)

    def __call__(self, change: Change) -> str:
        raise ConfigError("Avro is bytes, and the target takes text", remedy="Set encode to a JSON format.")

    def _form(self, table: Table) -> RowWriter:
        fields = list(self._shape(table).fields.values())
        pieces = [ColumnPiece(_given(one, _writer(one.schema)), _styles(one, one.schema["optional"])) for one in fields]
        # Key columns are never optional.
        keys = [ColumnPiece(_given(one, _writer({**one.schema, "optional": False})), _styles(one, False)) for one in fields]
        others = [ColumnPiece(json_piece(one), one.styles) for one in fields]
        empty = [b""] * len(fields)
        return writer_of(table, pieces, names=empty, keys=keys, others=others, null=b"\0", comma=b"", is_whole=True)

    def _key(self, table: Table, side: int) -> Program | None:
        shape = self._shape(table)
        if shape.key is None:
            return None
        head = self._number(f"{shape.topic}-key", shape.key)
        return Program([(put.TEXT, head), (side, (True, (b"",) * len(table.keys), False))])

    def _header(self, table: Table, side: int) -> Program:
        texts = tuple([f"{',' * (n > 0)}{dumps(name)}:".encode() for n, name in enumerate(table.keys)])
        return Program([(put.TEXT, b"{"), (side, (True, texts, True)), (put.TEXT, b"}")])

    def _event(self, table: Table, op: str, has_before: bool, has_after: bool) -> Program:
        shape = self._shape(table)
        database, name = names(table)
        write = {one["field"]: _writer(one) for one in (*shape.value["fields"], *shape.source)}
        snapshot = "incremental" if op == "r" else "false"
        images: list[tuple[int, Any]] = []
        for side, is_there in ((put.BEFORE, has_before), (put.AFTER, has_after)):
            images += [(put.TEXT, b"\2"), (side, None)] if is_there else [(put.TEXT, b"\0")]
        return Program(
            [
                (put.TEXT, self._number(f"{shape.topic}-value", shape.value)),
                *images,
                (put.TEXT, write["version"](version()) + write["connector"](self.connector) + write["name"](self.prefix)),
                (put.LITERAL, 0),
                (put.TEXT, write["snapshot"](snapshot) + write["db"](database) + write["sequence"](None)),
                (put.LITERAL, 1),
                (put.TEXT, write["table"](name)),
                (put.LITERAL, 2),
                (put.ZIGZAG, None),
                (put.LITERAL, 3),
                (put.TEXT, b"\0" + write["op"](op)),
                (put.LITERAL, 4),
            ]
        )

    def _literals(self, table: Table, origin: Origin, part: int = 0) -> list[bytes]:
        now, (journal, offset) = self.clock(), split(origin.position)
        ts, gtid, thread = origin.ts, origin.gtid, origin.thread_id
        return [
            _long(ts),
            b"\2" + _long(ts * 1000) + b"\2" + _long(ts * 1_000_000),
            _long(origin.server_id) + (b"\2" + _text(gtid) if gtid else b"\0") + _text(journal) + _long(offset),
            (b"\2" + _long(thread) if thread else b"\0") + b"\0",
            b"\2" + _long(now // 1_000_000) + b"\2" + _long(now // 1000) + b"\2" + _long(now),
        ]

    def _number(self, subject: str, schema: Schema) -> bytes:
        """Return the bytes before a record: the zero byte and the schema's id. Register the schema if it is new."""
        text = json.dumps(_avro(schema, {}), separators=(",", ":"))
        found = self._numbers.get((subject, text))
        if found is None:
            found = self._numbers[subject, text] = b"\0" + self.register(subject, text).to_bytes(4, "big")
        return found


# -- values --------------------------------------------------------------------------------------------------------------


def _long(value: int) -> bytes:
    to = bytearray(10)
    return bytes(to[: put.zigzag(to, 0, int(value))])


def _text(value: str) -> bytes:
    return _bytes(value.encode())


def _bytes(value: bytes) -> bytes:
    return _long(len(value)) + value


def _struct(schema: Schema) -> Callable[[Any], bytes]:
    fields = [(one["field"], _writer(one)) for one in schema["fields"]]
    return lambda value: b"".join([write(value.get(name)) for name, write in fields])


def _array(schema: Schema) -> Callable[[Any], bytes]:
    write = _writer(schema["items"])
    return lambda value: (_long(len(value)) + b"".join(map(write, value)) if value else b"") + b"\0"


_WRITERS: Final[dict[str, Callable[[Any], bytes]]] = {
    **dict.fromkeys(("int16", "int32", "int64"), _long),
    "boolean": lambda value: b"\1" if value else b"\0",
    "float": struct.Struct("<f").pack,
    "double": struct.Struct("<d").pack,
    "string": _text,
    "bytes": _bytes,
}


def _writer(schema: Schema) -> Callable[[Any], bytes]:
    """Return a function that writes values in a Connect schema. Optional values start with the type's index in the union."""
    kind = schema["type"]
    write = _struct(schema) if kind == "struct" else _array(schema) if kind == "array" else _WRITERS[kind]
    if not schema["optional"]:
        return write
    null, other = (b"\2", b"\0") if schema.get("default") is not None else (b"\0", b"\2")
    return lambda value: null if value is None else other + write(value)


def _given(one: Field, write: Callable[[Any], bytes]) -> Callable[[Any], bytes]:
    return piece_of(one, lambda value: write(one.give(value)))


#: Maps each JSON style to the equivalent Avro style.
_WAYS: Final = {
    put.INTEGER: put.AVRO_LONG,
    put.UTF8_TEXT: put.AVRO_TEXT,
    put.BASE64: put.AVRO_BYTES,
    put.DECIMAL_BASE64: put.AVRO_DECIMAL,
    put.MOMENT: put.AVRO_MOMENT,
    put.EPOCH: put.AVRO_EPOCH,
    put.REAL: put.AVRO_REAL,
}


def _styles(one: Field, is_optional: bool) -> dict[int, tuple[int, int]]:
    """Return a column's shortcuts. Bytes represented as base64 text have no shortcut."""
    is_bytes = one.schema["type"] == "bytes"
    found = {}
    for kind, (way, param) in one.styles.items():
        if way == put.LABELS:
            found[kind] = way, param
        elif way in _WAYS and (way != put.BASE64 or is_bytes):
            found[kind] = _WAYS[way], param | put.OPTIONAL * is_optional
    return found


# -- schemas -------------------------------------------------------------------------------------------------------------


def _name(text: str) -> str:
    """Return a valid Avro name: replace invalid characters with underscores."""
    return ".".join(re.sub(r"^(\d)", r"_\1", re.sub(r"\W", "_", part, flags=re.ASCII)) for part in text.split("."))


def _avro(schema: Schema, seen: dict[str, str]) -> Any:
    """Convert a Connect schema to Avro. An optional schema becomes a union with null."""
    kind = _record(schema, seen) if schema["type"] == "struct" else _simple(schema, seen)
    if not schema["optional"]:
        return kind
    return ["null", kind]


def _record(schema: Schema, seen: dict[str, str]) -> Any:
    name = _name(schema["name"])
    if name in seen:
        return name
    seen[name] = name
    fields = []
    for one in schema["fields"]:
        field = {"name": _name(one["field"]), "type": _avro(one, seen)}
        if one.get("default") is not None:
            field |= {"type": field["type"][::-1] if one["optional"] else field["type"], "default": one["default"]}
        elif one["optional"]:
            field["default"] = None
        fields.append(field)
    namespace, _, bare = name.rpartition(".")
    found = {"type": "record", "name": bare, "namespace": namespace, "fields": fields, "connect.name": schema["name"]}
    return found | ({"connect.version": schema["version"]} if "version" in schema else {})


def _simple(schema: Schema, seen: dict[str, str]) -> Any:
    kind = schema["type"]
    if kind == "array":
        return {"type": "array", "items": _avro(schema["items"], seen), "connect.name": schema["name"], "connect.version": 1}
    found: dict[str, Any] = {"type": _TYPES.get(kind, kind)}
    if kind == "int16":
        found["connect.type"] = "int16"
    name = schema.get("name")
    if name:
        found |= {"connect.version": schema["version"], "connect.name": name}
        parameters = schema.get("parameters", {})
        if parameters:
            found["connect.parameters"] = parameters
        logical = _LOGICAL.get(name.removeprefix("org.apache.kafka.connect.data."))
        if logical:
            found["logicalType"] = logical
        if logical == "decimal":
            found |= {"scale": int(parameters["scale"]), "precision": int(parameters["connect.decimal.precision"])}
    return found if len(found) > 1 else found["type"]
