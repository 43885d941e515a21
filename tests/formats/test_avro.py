"""Avro in the wire form of a registry: what a reader gets is what Debezium's JSON of the same change says."""

from __future__ import annotations

import io
import json
import struct
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest

from canal.changes import Change
from canal.errors import ConfigError, ConnectionLostError, TargetError
from canal.formats.avro import DebeziumAvro, SchemaRegistry
from canal.formats.debezium_json import DebeziumJson, _base64
from tests.support.debezium import refused

fastavro = pytest.importorskip("fastavro")


def plain(value: Any) -> Any:
    return json.loads(json.dumps(value, default=_base64))


def singles(value: dict[str, Any]) -> dict[str, Any]:
    """With what a FLOAT holds, of which JSON has the shortest text."""
    row = value["after"] or {}
    if row.get("f4") is not None:
        (row["f4"],) = struct.unpack("f", struct.pack("f", row["f4"]))
    return value


def without_logical(schema: Any) -> Any:
    if isinstance(schema, list):
        return [without_logical(one) for one in schema]
    if isinstance(schema, dict):
        return {name: without_logical(one) for name, one in schema.items() if name != "logicalType"}
    return schema


@pytest.mark.parametrize("options", [{}, {"times": "connect", "unsigned_bigints": "precise"}])
def test_a_reader_with_the_registered_schema_gets_debezium_s_values(changes: list[Change], options: dict[str, Any]) -> None:
    registered: list[tuple[str, str]] = []

    def register(subject: str, schema: str) -> int:
        registered.append((subject, schema))
        return len(registered)

    def read(message: bytes | None) -> Any:
        if message is None:
            return None
        assert message[0] == 0
        schema = json.loads(registered[int.from_bytes(message[1:5], "big") - 1][1])
        fastavro.parse_schema(json.loads(json.dumps(schema)))  # the logical types are valid too
        return plain(fastavro.schemaless_reader(io.BytesIO(message[5:]), without_logical(schema)))

    avro = DebeziumAvro(register=register, clock=lambda: 0, **options)
    text = DebeziumJson(clock=lambda: 0, **options)
    rows = [change for change in changes if change.before or change.after]
    if options:  # what these modes refuse
        rows = [change for change in rows if not refused(text, change)]
    for change in rows:
        pairs = list(zip(avro.messages(change), text.messages(change), strict=True))
        assert pairs
        for one, other in pairs:
            assert read(one.key) == (None if other.key is None else json.loads(other.key))
            assert read(one.value) == (None if other.value is None else singles(json.loads(other.value)))
            assert [name for name, _ in one.headers] == [name for name, _ in other.headers]
    subjects = [subject for subject, _ in registered]
    # The registry is asked once for each schema: orders has two, as it was altered.
    assert subjects.count("canal.shop.orders-value") == 2
    assert subjects.count("canal.shop.kinds-value") == subjects.count("canal.shop.kinds-key") == 1


class Registry(BaseHTTPRequestHandler):
    asked: list[tuple[str, str | None, dict[str, Any]]]
    status = 200

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.asked.append((self.path, self.headers["Authorization"], body))
        self.send_response(self.status)
        self.end_headers()
        self.wfile.write(b'{"id": 258}')

    def log_message(self, *args: Any) -> None:
        pass


@pytest.fixture
def registry() -> Iterator[tuple[str, type[Registry]]]:
    kind = type("Kind", (Registry,), {"asked": [], "status": 200})
    server = HTTPServer(("127.0.0.1", 0), kind)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield f"127.0.0.1:{server.server_port}", kind
    server.shutdown()
    thread.join()
    server.server_close()


def test_the_registry_is_asked_as_confluent_s_is(registry: tuple[str, type[Registry]]) -> None:
    address, kind = registry
    assert SchemaRegistry(f"http://me:p%40ss@{address}/api")("a.b/c-value", '"string"') == 258
    assert kind.asked == [("/api/subjects/a.b%2Fc-value/versions", "Basic bWU6cEBzcw==", {"schema": '"string"'})]
    kind.status = 409
    with pytest.raises(TargetError, match="409"):
        SchemaRegistry(f"http://{address}")("x", "{}")


def test_a_registry_that_cannot_be_reached_may_be_asked_again() -> None:
    with pytest.raises(ConnectionLostError):
        SchemaRegistry("http://127.0.0.1:1")("x", "{}")


def test_text_cannot_be_asked_of_it(changes: list[Change]) -> None:
    with pytest.raises(ConfigError, match="Avro is bytes"):
        DebeziumAvro(register=lambda subject, schema: 1)(changes[0])
