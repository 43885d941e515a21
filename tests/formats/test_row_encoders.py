"""Encoders write the same bytes from the log as from Python values, for every type, image and rule."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterator, Sequence
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import fastavro
import pytest
from hypothesis import HealthCheck, given, settings

import canal
from canal.changes import Change, Reader
from canal.changes.batch import EntryRows
from canal.errors import UnfitChangeError
from canal.formats import CanalJson, DebeziumJson, MaxwellJson, put
from canal.formats.avro import DebeziumAvro
from canal.formats.canal_json import flat_message
from canal.formats.change_json import document, line
from canal.formats.debezium_json import _base64
from canal.formats.encoder import KEYED, PLAIN, TOMBSTONES, RowEncoder
from canal.formats.texts import document_member
from canal.formats.transfer_json import TransferForm, TransferJson
from canal.model import Entry
from canal.pipes.rules import Rules
from canal.testing import FakeBinlog
from tests.support.random_logs import decode, logs

SCHEMAS: list[str] = []


def register(subject: str, schema: str) -> int:
    if schema not in SCHEMAS:
        SCHEMAS.append(schema)
    return SCHEMAS.index(schema)


def clock() -> int:
    return 1_700_000_000_123_456_789


def encoders() -> list[RowEncoder]:
    fine: Any = {"decimals": "string", "times": "nanoseconds", "unsigned_bigints": "precise", "binaries": "hex"}
    plain: Any = {"decimals": "double", "times": "isostring", "binaries": "base64", "tombstones": False}
    return [
        line,
        CanalJson(clock=clock),
        MaxwellJson(offsets=True, binlog_position=True, primary_keys=True),
        MaxwellJson(nulls=False, commit_info=False),
        DebeziumJson(clock=clock),
        DebeziumJson(clock=clock, schemas=True, **fine),
        DebeziumJson(clock=clock, **plain),
        DebeziumJson(clock=clock, times="connect"),
        DebeziumAvro(clock=clock, register=register),
        DebeziumAvro(clock=clock, register=register, **fine),
        DebeziumAvro(clock=clock, register=register, **plain),
        TransferJson(lambda table: TransferForm(reserve_raw_data=True)),
        TransferJson(lambda table: TransferForm(date_formatter="yyyy/MM/dd", datetime_formatter="yyyyMMdd HHmmss")),
    ]


def parts_of(entries: Sequence[Entry], rules: Rules | None = None) -> Iterator[EntryRows]:
    reader = Reader(is_log=True)
    for entry in entries:
        table = reader.table(entry)
        if table is not None:
            plan = None if rules is None else rules.plan(table)

            def read(entry: Entry, table: Any, route: Any) -> Sequence[Change]:
                rows = reader.rows(entry, table)
                return rows if route is None else [one for row in rows for one in route.apply(row)]

            yield EntryRows(entry, table, read, plan)


def by_rows(encoder: RowEncoder, changes: Sequence[Change], form: int | None = None) -> list[Any] | None:
    """Return the lines of changes, or their messages in a form; None if a change is unfit."""
    try:
        if form is None:
            return [encoder(change) for change in changes]
        return [(change.ord, one) for change in changes for one in encoder.messages(change, form)]
    except UnfitChangeError:
        return None


def check(encoder: RowEncoder, part: EntryRows, *forms: int) -> int:
    """Compare the lines and messages of an entry with those of its rows. Return the number of forms that need no rows."""
    found = None
    if encoder.is_text:
        found = encoder.lines(part)
        texts = by_rows(encoder, part.rows)
        assert found is None or texts is not None and found == "".join(f"{text}\n" for text in texts if text).encode()
    count = 0
    for form in forms:
        raw = encoder.entry(part, form)
        rows = by_rows(encoder, part.rows, form)
        if raw is None:
            continue
        made = [
            (ord, bool(suffix), key, value, () if name is None else ((name, header),))
            for ord, suffix, key, value, name, header in raw
        ]
        assert rows is not None
        assert made == [(ord, bool(one.suffix), one.key, one.value, one.headers) for ord, one in rows]
        assert found is not None or not encoder.is_text
        count += 1
    return count


@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
@given(logs())
def test_encode_entry_of_any_type_equals_rows(log: Any) -> None:
    fake, _ = log
    entries = decode(fake, iter([fake.events()]))
    every = encoders()
    for part in parts_of(entries):
        for encoder in every:
            check(encoder, part, PLAIN, KEYED, TOMBSTONES)
        for change, text in zip(part.rows, (line.lines(part) or b"").splitlines(), strict=True):
            assert text.decode() == json.dumps(document(change), separators=(",", ":"), default=document_member)


def entries_of(fake: FakeBinlog, **options: Any) -> list[Entry]:
    fake.end()
    config = canal.InstanceConfig(destination="d", source=fake, start="earliest", meta=canal.MemoryMeta(), **options)
    with canal.Instance(config) as instance:
        instance.subscribe()
        return [entry for message in instance.stream() for entry in message.entries]


def some_rows(**options: Any) -> FakeBinlog:
    """Values at their limits, and of which shortcuts must not be taken."""
    fake = FakeBinlog(**options)
    table = fake.table(
        "shop",
        "t",
        "id INT PRIMARY KEY, f DOUBLE, s FLOAT, d DECIMAL(20,3), t DATETIME(6), z TIMESTAMP(3) NULL, y DATE, h TIME(2),"
        " b VARBINARY(9), p BINARY(3), j JSON, e ENUM('a','é'), m SET('x','y'), i BIT(9), r YEAR, c VARCHAR(30),"
        " l VARCHAR(9) CHARACTER SET latin1, u BIGINT UNSIGNED",
    )
    texts = ("", 'a"\\\b\f\n\r\t\0\x1f\x7f', "é中😀\u2028", "12345678", "1234567\x7f", "eight\\ab", "x" * 30)
    reals = (0.0, -0.0, 0.125, 1e-3, 9.99e-4, 1e7, 1e15, 1e16, 5e-324, 1.7976931348623157e308, -2.5, 1 / 3, 123456789.001, 2.675)
    moments = (datetime(1, 1, 1), datetime(9999, 12, 31, 23, 59, 59, 999999), datetime(1969, 12, 31, 23, 59, 59, 999), None)
    rows = [
        {
            "id": -1 << 31 if n == 1 else n,
            "f": reals[n % len(reals)],
            "s": (0.1, 16777216.0, 1e-5, -0.0, 3.4028234663852886e38)[n % 5],
            "d": (Decimal("-0.001"), Decimal("99999999999999999.999"), Decimal(0), Decimal("12.500"))[n % 4],
            "t": moments[n % 4] if n % 5 else "0000-00-00 00:00:00",
            "z": datetime(2038, 1, 19, 3, 14, 7, 999000, UTC) if n % 3 else "0000-00-00 00:00:00",
            "y": (date(1, 1, 1), date(2024, 2, 29), "2024-02-30", "0000-00-00")[n % 4],
            "h": timedelta(hours=-838, minutes=-59, seconds=-59) if n % 2 else timedelta(milliseconds=10),
            "b": bytes(range(n % 9)),
            "p": b"\xff",
            "j": json.dumps({"a": [1, texts[n % 7], None]}),
            "e": ("a", "é")[n % 2],
            "m": ("", "x", "x,y")[n % 3],
            "i": n * 7,
            "r": (0, 1901, 2155)[n % 3],
            "c": texts[n % 7],
            "l": ("ascii", "é", None)[n % 3],
            "u": (0, (1 << 64) - 1, 1 << 63)[n % 3],
        }
        for n in range(28)
    ]
    with fake.transaction():
        table.insert(*rows)
    for n, row in enumerate(rows):
        table.update(row, {"c": "new", "f": None} | ({"id": 1000 + n} if n % 4 == 0 else {}))
    table.delete(rows[1])
    return fake


@pytest.mark.parametrize("image", ["FULL", "MINIMAL", "NOBLOB"])
@pytest.mark.parametrize("options", [{}, {"json": "objects"}, {"time_zone": timezone(timedelta(hours=-5, minutes=-30))}])
def test_encode_entry_of_values_at_their_limits_equals_rows(image: Any, options: Any) -> None:
    made, every = 0, encoders()
    for part in parts_of(entries_of(some_rows(row_image=image), **options)):
        made += sum(check(encoder, part, PLAIN, KEYED, TOMBSTONES) for encoder in every)
    assert made > 200  # most are made of the bytes


def test_encode_entry_in_a_zone_with_summer_time_equals_rows() -> None:
    every = encoders()
    for part in parts_of(entries_of(some_rows(), time_zone=ZoneInfo("Europe/Berlin"))):
        assert all(check(encoder, part, KEYED) or encoder.lines(part) is None for encoder in every)


RULES = [
    canal.Rule(to="lake.bought", rename={"c": "named"}, exclude=("f", "j")),
    canal.Rule(to="lake.all", merge="shard", defaults={"more": 7, "none": None}),
    canal.Rule(fields=("c", "u", "id")),
]


@pytest.mark.parametrize("rule", RULES)
def test_encode_entry_with_a_rule_without_callables_equals_rows(rule: canal.Rule) -> None:
    made, every = 0, encoders()
    for part in parts_of(entries_of(some_rows()), Rules([rule], is_log=True)):
        made += sum(check(encoder, part, KEYED) for encoder in every)
    assert made > 50


def test_encode_entry_with_skipped_and_selected_rows_equals_rows() -> None:
    entry = next(entry for entry in entries_of(some_rows()) if entry.row_count > 1)
    for part in parts_of([entry]):
        whole = line.lines(part)
    entry.skip_rows, entry.row_count = 3, entry.row_count - 3
    for part in parts_of([entry]):
        assert check(line, part, PLAIN)
        assert whole is not None
        assert line.lines(part) == b"".join(whole.splitlines(keepends=True)[3:])


def test_canal_json_equals_the_flat_messages_of_entries() -> None:
    for part in parts_of(entries_of(some_rows())):
        wanted = flat_message(part.entry, batch_id=-1, now=clock() // 1_000_000)
        found = [json.loads(text) for text in (CanalJson(clock=clock).lines(part) or b"").splitlines()]
        assert [one["data"][0] for one in found] == wanted["data"]
        assert [one["old"] and one["old"][0] for one in found] == (wanted["old"] or [None] * len(found))
        for one in found:
            assert {**one, "data": 0, "old": 0} == {**wanted, "data": 0, "old": 0, "sql": ""}
            assert list(one) == sorted(one)


def test_avro_is_what_its_schema_says_and_debezium_json() -> None:
    def bare(schema: Any) -> Any:
        if isinstance(schema, list):
            return [bare(one) for one in schema]
        return {name: bare(one) for name, one in schema.items() if name != "logicalType"} if isinstance(schema, dict) else schema

    def read(message: bytes) -> Any:
        schema = json.loads(SCHEMAS[int.from_bytes(message[1:5], "big")])
        stream = io.BytesIO(message[5:])
        found = fastavro.schemaless_reader(stream, bare(schema))
        assert not stream.read()
        return json.loads(json.dumps(found, default=_base64))

    avro, text = DebeziumAvro(clock=clock, register=register), DebeziumJson(clock=clock)
    for part in parts_of(entries_of(some_rows())):
        for one, other in zip(avro.entry(part) or (), text.entry(part) or (), strict=True):
            for binary, wanted in ((one[2], other[2]), (one[3], other[3])):
                assert (binary is None) == (wanted is None)
                if binary is not None and wanted is not None:
                    found, expected = read(binary), json.loads(wanted)
                    for image in (found, expected):
                        for side in ("before", "after"):
                            (image.get(side) or {}).pop("s", None)  # of a FLOAT JSON has the shortest text
                    assert found == expected
            assert one[4:] == other[4:]


def test_keys_that_the_source_calls_equal_are_one_message_key() -> None:
    def keys(sql: str, value: Any, **options: Any) -> set[bytes | None]:
        fake = FakeBinlog()
        fake.table("shop", "t", f"k {sql} PRIMARY KEY, n INT").insert({"k": value, "n": 1})
        (part,) = parts_of(entries_of(fake, **options))
        every = (line, CanalJson(), MaxwellJson())
        return {raw[0][2] for encoder in every if (raw := encoder.entry(part, KEYED)) is not None}

    assert keys("DECIMAL(10,2)", Decimal("1.50")) == keys("DECIMAL(12,4)", Decimal("1.5"))
    assert keys("DOUBLE", -0.0) == keys("DOUBLE", 0.0)
    moment, zone = datetime(2026, 1, 31, 12, tzinfo=UTC), timezone(timedelta(hours=3))
    assert keys("TIMESTAMP", moment, time_zone=zone) == keys("TIMESTAMP", moment)


def test_constants_of_put_are_those_of_its_compiled_form() -> None:
    text = Path(put.__file__).with_name("put.pxd").read_text()
    for block in re.findall(r"cdef enum:\n(.*?)\n\n", text, re.DOTALL):
        for number, (name, value) in enumerate(re.findall(r"(\w+)(?: = (\d+))?", block)):
            assert getattr(put, name) == (int(value) if value else number)
