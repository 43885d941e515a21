"""Partial updates of JSON columns on a real MySQL (T70): what is decoded is what SELECT printed after each update."""

from __future__ import annotations

import json
import os
import random
from typing import Any

import pytest

import canal
from canal.rows.json import apply_diffs
from canal.testing.servers import ThrowawayServer
from tests.support.live import end_of_log, source

COLUMNS = "id INT PRIMARY KEY, a JSON, n INT, b JSON, c JSON, note VARCHAR(20)"
KEYS = [
    "a",
    "b",
    "k1",
    "key",
    "$",
    "_x",
    "",
    "a b",
    'quo"te',
    "it's",
    "back\\slash",
    "é",
    "日本",
    "new\nline",
    "last",
    "1",
    "a.b",
    "[0]",
]
SQL_VALUES = [
    "CAST(1.50 AS DECIMAL(10,2))",
    "CAST('-123456789012345678901234567890.5' AS DECIMAL(40,2))",
    "CAST('2020-02-29' AS DATE)",
    "CAST('-12:34:56.789' AS TIME(3))",
    "CAST('2020-01-01 01:02:03.4' AS DATETIME(6))",
    "x'00ff10'",
    "b'10101'",
    "1e100",
    "0.1e0",
    "18446744073709551615",
    "-9223372036854775808",
    "ST_GeomFromText('POINT(1 2)')",
    "TRUE",
    "NULL",
    "1.0",
    "-0e0",
    "CAST(2019 AS YEAR)",
]


def quoted(text: str) -> str:
    """An SQL string."""
    return "'" + text.replace("\\", "\\\\").replace("'", "''").replace("\n", "\\n") + "'"


def random_value(rng: random.Random, depth: int = 2) -> Any:
    if depth and rng.random() < 0.4:
        if rng.random() < 0.5:
            return [random_value(rng, depth - 1) for _ in range(rng.randint(0, 3))]
        return {rng.choice(KEYS): random_value(rng, depth - 1) for _ in range(rng.randint(0, 4))}
    return rng.choice(
        [
            rng.randint(-(10**6), 10**6),
            rng.random() * 10 ** rng.randint(-20, 20),
            None,
            True,
            False,
            "x" * rng.randint(0, 30),
            rng.choice(KEYS),
            "é" * rng.randint(0, 300),
            rng.randint(2**62, 2**64 - 1),
        ]
    )


def random_path(rng: random.Random, document: Any) -> str:
    """A path in the document: mostly to what is there, sometimes to what is not."""
    path = "$"
    while path == "$" or (isinstance(document, (dict, list)) and document and rng.random() < 0.6):
        if isinstance(document, list) and (document or rng.random() < 0.5):
            cell = rng.randint(0, len(document))
            path += rng.choice([f"[{cell}]", f"[{cell}]", "[last]", f"[last-{cell}]"])
            document = document[cell] if cell < len(document) else None
        else:
            keys = list(document) if isinstance(document, dict) and rng.random() < 0.7 else KEYS
            key = rng.choice(keys or KEYS)
            path += "." + (key if key.isidentifier() and key.isascii() else json.dumps(key, ensure_ascii=False))
            document = document.get(key) if isinstance(document, dict) else None
    return path


def random_update(rng: random.Random, name: str, document: Any) -> str:
    """The assignment of a JSON column."""
    expression = name
    for _ in range(rng.choice([1, 1, 1, 2, 3])):
        function = rng.choice(["JSON_SET", "JSON_SET", "JSON_REPLACE", "JSON_REMOVE"])
        path = quoted(random_path(rng, document))
        value = rng.choice(SQL_VALUES) if rng.random() < 0.3 else f"CAST({quoted(json.dumps(random_value(rng)))} AS JSON)"
        if value.startswith("CAST(") and rng.random() < 0.2:
            value = quoted(rng.choice(KEYS) * rng.randint(1, 50))  # an SQL string
        expression = f"{function}({expression}, {path}" + ("" if function == "JSON_REMOVE" else f", {value}") + ")"
    return f"{name} = {expression}"


@pytest.mark.parametrize(
    ("image", "compression", "form"),
    [(image, compression, "text") for image in ("FULL", "MINIMAL", "NOBLOB") for compression in ("OFF", "ON")]
    + [("FULL", "ON", "objects"), ("MINIMAL", "OFF", "objects")],
)
def test_partial_updates_give_what_select_printed(mysql_server: ThrowawayServer, image: str, compression: str, form: str) -> None:
    """With the document before in the image the whole document; else the diffs, which make it of the one before."""
    seed = f"{image} {compression} {form} {os.environ.get('CANAL_SEED', '')}"
    rng = random.Random(seed)
    schema = f"partial_{image}_{compression}_{form}".lower()
    start = end_of_log(mysql_server)
    expected: list[tuple[Any, ...]] = []
    with mysql_server.connect() as connection, connection.cursor() as cursor:
        cursor.execute(f"CREATE DATABASE {schema} CHARACTER SET utf8mb4")
        cursor.execute(f"CREATE TABLE {schema}.docs ({COLUMNS})")
        cursor.execute(
            f"SET binlog_row_image = {image}, binlog_row_value_options = 'PARTIAL_JSON', "
            f"binlog_transaction_compression = {compression}, sql_mode = ''"
        )
        for number in range(4):
            values = [
                quoted(
                    json.dumps(
                        random_value(rng, 3)
                        if rng.random() < 0.2
                        else {key: random_value(rng, 3) for key in KEYS[: rng.randint(3, 18)]}
                    )
                )
                for _ in "abc"
            ]
            cursor.execute(f"INSERT INTO {schema}.docs VALUES ({number}, {values[0]}, 1, {values[1]}, {values[2]}, '')")
        connection.commit()

        def select(number: int) -> tuple[Any, ...]:
            cursor.execute(f"SELECT * FROM {schema}.docs WHERE id = {number}")
            row: tuple[Any, ...] = cursor.fetchone()
            return row

        for step in range(150):
            number = rng.randrange(4)
            before = select(number)
            chosen = rng.sample([1, 3, 4], rng.choice([0, 1, 1, 1, 2, 3]))
            sets = [
                f"{'abc'[(1, 3, 4).index(at)]} = {rng.choice(['NULL', quoted(json.dumps(random_value(rng)))])}"
                if before[at] is None or rng.random() < 0.04
                else random_update(rng, "abc"[(1, 3, 4).index(at)], json.loads(before[at]))
                for at in chosen
            ]
            if not sets or rng.random() < 0.5:
                sets.append(f"n = {step + 10}")
            try:
                cursor.execute(f"UPDATE {schema}.docs SET {', '.join(sets)} WHERE id = {number}")
            except Exception as error:  # such as a document of more than it may hold
                raise AssertionError(sets) from error
            changed = cursor.rowcount
            connection.commit()
            if changed:
                expected.append((before, select(number)))
    target = end_of_log(mysql_server)
    config = canal.InstanceConfig(
        destination="partial", source=source(mysql_server), start=start, filter=f"{schema}\\.docs", json=form
    )
    found: list[tuple[Any, Any, dict[str, Any], list[Any]]] = []
    with canal.Instance(config) as instance:
        instance.subscribe()
        while len(found) < len(expected):
            message = instance.get(1000, timeout=60)
            assert message, f"{len(found)} of {len(expected)} updates by {target}"
            for entry in message.entries:
                if entry.event_type is canal.EventType.UPDATE and entry.table is not None:
                    texts = [data.after_columns for data in entry.row_change.row_datas]
                    found += zip([r.before for r in entry.rows], [r.after for r in entry.rows], entry.json_diffs(), texts)
    partial = bare = 0
    for (old, new), (before, after, diffs, columns) in zip(expected, found, strict=True):
        for at, name in ((1, "a"), (3, "b"), (4, "c")):
            partial += bool(diffs.get(name))
            value = after[name]
            if form == "objects":
                value = next((one.value for one in columns if one.name == name), canal.ABSENT)
                _compare_objects(after[name], new[at])
            if isinstance(after[name], canal.PartialJson):
                bare += 1
                assert before[name] is canal.ABSENT, seed
                assert diffs[name] == after[name].diffs
                if form == "text":
                    value = apply_diffs(old[at], after[name].diffs, True)
                else:
                    continue
            elif after[name] is canal.ABSENT:
                value = old[at]
            assert value == new[at], seed
        for at in (2, 5):
            assert after[at] in (new[at], canal.ABSENT)
    assert (bare > 50) == (image == "MINIMAL")  # to the server JSON is no BLOB: NOBLOB images have it
    assert partial > 50, f"only {partial} documents of {len(expected)} updates were logged as diffs"


def _compare_objects(value: Any, text: str | None) -> None:
    """Objects hold what the text holds, apart from the SQL values in it."""
    if value is canal.ABSENT or isinstance(value, canal.PartialJson):
        return
    plain = None if text is None else json.loads(text)

    def same(one: Any, other: Any) -> bool:
        if isinstance(other, dict):
            return isinstance(one, dict) and list(one) == list(other) and all(same(one[key], other[key]) for key in one)
        if isinstance(other, list):
            return isinstance(one, list) and len(one) == len(other) and all(map(same, one, other))
        if isinstance(other, str) and not isinstance(one, str):
            return True  # a date, bytes or BIT
        return bool(float(one) == other if type(other) is float else one == other)

    assert same(value, plain)
