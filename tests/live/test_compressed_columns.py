"""MariaDB's COMPRESSED columns: what is decoded is what SELECT gives, however the server chose to store it."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest

import canal
from canal.testing.servers import MariaDBServer, ThrowawayServer
from tests.support.live import end_of_log, source

COLUMNS = {
    "id": "INT PRIMARY KEY",
    "tiny_text": "TINYTEXT COMPRESSED",
    "plain": "TEXT COMPRESSED",
    "medium": "MEDIUMTEXT COMPRESSED",
    "long_blob": "LONGBLOB COMPRESSED",
    "bytes": "BLOB COMPRESSED",
    "short": "VARCHAR(50) COMPRESSED CHARACTER SET latin1",
    "longer": "VARCHAR(3000) COMPRESSED",
    "chinese": "VARCHAR(200) COMPRESSED CHARACTER SET gbk",
    "binary_short": "VARBINARY(100) COMPRESSED",
    "binary_long": "VARBINARY(2000) COMPRESSED",
    "after": "INT NOT NULL",
}
LIMITS = {
    "tiny_text": 60,
    "plain": 5000,
    "medium": 30_000,
    "long_blob": 200_000,
    "bytes": 60_000,
    "short": 50,
    "longer": 3000,
    "chinese": 200,
    "binary_short": 100,
    "binary_long": 2000,
}
ALPHABETS = {"short": "añ€z", "chinese": "中文ab", "long_blob": None, "bytes": None, "binary_short": None, "binary_long": None}


@pytest.fixture(scope="module")
def mariadb_server_of_its_own(request: pytest.FixtureRequest) -> Iterator[ThrowawayServer]:
    request.getfixturevalue("mariadb_server")  # skips or fails where there is none
    with MariaDBServer().start() as server:
        yield server


def random_cell(rng: random.Random, name: str) -> Any:
    limit = LIMITS[name]
    size = rng.choice([0, 1, 2, 3, rng.randint(0, limit), rng.randint(0, limit), limit])
    alphabet = ALPHABETS.get(name, "xyé日😀")
    if rng.random() < 0.15:
        return None
    if alphabet is None:
        return rng.randbytes(size) if rng.random() < 0.4 else rng.randbytes(3) * (size // 3)
    return rng.choice(alphabet) * size if rng.random() < 0.5 else "".join(rng.choices(alphabet, k=size))


@pytest.mark.mariadb
@pytest.mark.parametrize("metadata", ["FULL", "NO_LOG"])
def test_compressed_columns_give_what_select_gives(mariadb_server_of_its_own: ThrowawayServer, metadata: str) -> None:
    """All lengths, empty, NULL, below the threshold, deflated with and without zlib's frame, at each level."""
    server, rng = mariadb_server_of_its_own, random.Random(metadata)
    schema = f"compressed_{metadata}".lower()
    server.query(f"SET GLOBAL binlog_row_metadata = {metadata}")
    start = end_of_log(server)
    with server.connect() as connection, connection.cursor() as cursor:
        cursor.execute(f"CREATE DATABASE {schema} CHARACTER SET utf8mb4")
        cursor.execute(f"CREATE TABLE {schema}.t ({', '.join(f'`{name}` {kind}' for name, kind in COLUMNS.items())})")
        marks = ", ".join(["%s"] * len(COLUMNS))
        for number in range(60):
            cursor.execute(
                f"SET column_compression_threshold = {rng.choice([0, 1, 100, 1000])}, "
                f"column_compression_zlib_level = {rng.choice([0, 1, 6, 9])}, "
                f"column_compression_zlib_wrap = {rng.choice(['ON', 'OFF'])}, "
                f"column_compression_zlib_strategy = {rng.choice(['DEFAULT_STRATEGY', 'HUFFMAN_ONLY', 'FIXED'])}"
            )
            cells = [random_cell(rng, name) for name in LIMITS]
            cursor.execute(f"INSERT INTO {schema}.t VALUES ({marks})", (number, *cells, -number))
            if number % 3 == 0:
                cursor.execute(f"UPDATE {schema}.t SET plain = %s, short = %s WHERE id = %s", ("x" * number, "é", number))
        connection.commit()
        cursor.execute(f"SELECT * FROM {schema}.t ORDER BY id")
        expected = {row[0]: row for row in cursor.fetchall()}
    found: dict[int, tuple[Any, ...]] = {}
    config = canal.InstanceConfig(destination="compressed", source=source(server), start=start, filter=f"{schema}\\..*")
    with canal.Instance(config) as instance:
        instance.subscribe()
        while found != expected:
            message = instance.get(1000, timeout=60)
            if not message:
                break
            for entry in message.entries:
                found |= {row.after[0]: row.after.values() for row in entry.rows}
                if entry.table is not None:
                    kinds = {column.name: column.column_type for column in entry.table.schema.columns}
    assert found == expected
    assert {name for name, kind in kinds.items() if "COMPRESSED" in kind} == set(LIMITS)
    assert kinds["longer"] == "varchar(3000) /*M!100301 COMPRESSED*/"
