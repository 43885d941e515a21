"""Debezium's events as Avro in the wire form of a schema registry: a zero byte, four bytes of the schema's number, the record.

Never asks the registry twice for one schema. Needs fastavro.
"""

from __future__ import annotations

import base64
import io
import json
import re
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import attrs

from canal._util.bounded import Recent
from canal.changes.change import Change
from canal.errors import ConfigError, ConnectionLostError, TargetError
from canal.formats.debezium_json import DebeziumEvents, DebeziumMessage
from canal.formats.debezium_types import Schema
from canal.formats.encoder import Encoded

_TYPES: Final = {"int16": "int", "int32": "int", "int64": "long"}
_LOGICAL: Final = {"Decimal": "decimal", "Date": "date", "Time": "time-millis", "Timestamp": "timestamp-millis"}

#: ``subject, schema -> number``: what gives a schema its number.
Register = Callable[[str, str], int]


@attrs.frozen
class SchemaRegistry:
    """A registry with Confluent's HTTP interface.

    Args:
        url: such as ``https://user:password@registry:8081``.
        timeout: seconds for an answer.
    """

    url: str = attrs.field(repr=False)
    timeout: float = 30.0

    def __call__(self, subject: str, schema: str) -> int:
        """The number of a schema, which is registered where it is new.

        Raises:
            TargetError: the registry refuses it.
            ConnectionLostError: it cannot be reached.
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
                f"the schema registry refuses a schema of {subject}: HTTP {error.code}",
                remedy="With 409 the table has changed in a way that the subject's compatibility does not allow.",
            ) from None
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ConnectionLostError(f"the schema registry does not answer: {type(error).__name__}") from error


@attrs.define(kw_only=True)
class DebeziumAvro(DebeziumEvents):
    """Debezium's events as its Avro converter writes them: keys and values are registered as ``<topic>-key`` and
    ``<topic>-value``, where the topic is ``<prefix>.<database>.<table>``. Headers are JSON.

    Args:
        register: gives a schema its number, such as ``SchemaRegistry(url)``.

    The others are those of ``DebeziumJson``.
    """

    register: Register
    _known: Recent[int, tuple[Schema, Any, bytes]] = attrs.field(factory=Recent, init=False, repr=False, eq=False)

    def __attrs_post_init__(self) -> None:
        try:
            import fastavro  # noqa: F401
        except ModuleNotFoundError as error:
            raise ConfigError("Avro needs fastavro", remedy="pip install 'canal-cdc[avro]'") from error

    def messages(self, change: Change) -> Sequence[Encoded]:
        return [self._encoded(event) for event in self.events(change)]

    def __call__(self, change: Change) -> str:
        raise ConfigError("Avro is bytes, and the target takes text", remedy="Give it a JSON format.")

    def _encoded(self, event: DebeziumMessage) -> Encoded:
        shape = event.shape
        headers: tuple[tuple[str, bytes], ...] = ()
        if event.header is not None:
            name, key = event.header
            headers = ((name, json.dumps(key, default=lambda value: base64.b64encode(value).decode()).encode()),)
        return Encoded(
            None if shape.key is None or event.key is None else self._bytes(f"{shape.topic}-key", shape.key, event.key),
            None if event.value is None else self._bytes(f"{shape.topic}-value", shape.value, event.value),
            headers,
        )

    def _bytes(self, subject: str, schema: Schema, value: Mapping[str, Any]) -> bytes:
        import fastavro

        known = self._known.get(id(schema))
        if known is None or known[0] is not schema:
            document = _avro(schema, {})
            number = self.register(subject, json.dumps(document, separators=(",", ":")))
            parsed = fastavro.parse_schema(_plain(document))
            known = self._known[id(schema)] = schema, parsed, b"\0" + number.to_bytes(4, "big")
        out = io.BytesIO(known[2])
        out.seek(5)
        fastavro.schemaless_writer(out, known[1], value)
        return out.getvalue()


def _name(text: str) -> str:
    """What Avro takes as a name: other characters are underscores."""
    return ".".join(re.sub(r"^(\d)", r"_\1", re.sub(r"\W", "_", part, flags=re.ASCII)) for part in text.split("."))


def _avro(schema: Schema, seen: dict[str, str]) -> Any:
    """The Avro schema of a Connect schema; what is optional is a union with null."""
    kind = _struct(schema, seen) if schema["type"] == "struct" else _simple(schema, seen)
    if not schema["optional"]:
        return kind
    return ["null", kind]


def _struct(schema: Schema, seen: dict[str, str]) -> Any:
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


def _plain(schema: Any) -> Any:
    """Without logical types: values are what those stand on."""
    if isinstance(schema, list):
        return [_plain(one) for one in schema]
    if isinstance(schema, dict):
        return {name: _plain(value) for name, value in schema.items() if name != "logicalType"}
    return schema
