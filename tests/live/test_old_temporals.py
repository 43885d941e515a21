"""MariaDB's temporal types in the format from before 10.1 (T60): the log tells neither their digits nor their bytes."""

from __future__ import annotations

import random

import pytest

import canal
from canal.testing.servers import MariaDBServer, ThrowawayServer
from tests.support.live import end_of_log, source

COLUMNS = {f"{kind.lower()}_{digits}": f"{kind}({digits})" for kind in ("TIME", "DATETIME", "TIMESTAMP") for digits in range(7)}


def random_moment(rng: random.Random, kind: str) -> str | None:
    if rng.random() < 0.1:
        return None
    fraction = f"{rng.choice([0, 1, 999999, rng.randrange(10**6)]):06}"
    clock = f"{rng.randrange(60):02}:{rng.randrange(60):02}.{fraction}"
    if kind.startswith("TIME("):
        return f"{rng.choice(['', '-'])}{rng.choice([0, rng.randrange(839)])}:{clock}".replace("838:59:59", "838:00:00")
    if kind.startswith("DATETIME") and rng.random() < 0.2:
        return rng.choice(["0000-00-00 00:00:00", "2020-00-00 00:00:00", f"9999-12-31 23:{clock}", f"0001-01-01 00:{clock}"])
    if kind.startswith("TIMESTAMP") and rng.random() < 0.2:
        return rng.choice(["0000-00-00 00:00:00", f"1970-01-01 00:00:00.{fraction}", "1970-01-01 00:00:01"])
    return f"{rng.randint(1971, 2037)}-{rng.randint(1, 12):02}-{rng.randint(1, 28):02} {rng.randrange(24):02}:{clock}"


@pytest.mark.parametrize("metadata", ["FULL", "NO_LOG"])
def test_old_temporal_types_give_what_select_gives(mariadb_server: ThrowawayServer, metadata: str) -> None:
    rng = random.Random(metadata)
    text = "id INT PRIMARY KEY, " + ", ".join(f"{name} {kind} NULL" for name, kind in COLUMNS.items())
    with MariaDBServer(f"--binlog-row-metadata={metadata}", "--mysql56-temporal-format=OFF").start() as server:
        start = end_of_log(server)
        with server.connect() as connection, connection.cursor() as cursor:
            cursor.execute("SET time_zone = '+00:00', sql_mode = ''")
            cursor.execute("CREATE DATABASE old")
            cursor.execute(f"CREATE TABLE old.t ({text})")
            created = end_of_log(server)
            for number in range(100):
                cells = [random_moment(rng, kind) for kind in COLUMNS.values()]
                cursor.execute(f"INSERT INTO old.t VALUES ({', '.join(['%s'] * (len(cells) + 1))})", (number, *cells))
            connection.commit()
            casts = ", ".join(f"CAST({name} AS CHAR)" for name in COLUMNS)
            cursor.execute(f"SELECT id, {casts} FROM old.t ORDER BY id")
            expected = [tuple(None if one is None else str(one) for one in row) for row in cursor.fetchall()]
        assert read(source(server), start) == expected
        assert read(canal.LocalBinlogSource(server.binlog_dir, schema={"old.t": text}), "earliest") == expected
        without_schema = canal.LocalBinlogSource(server.binlog_dir)
        assert read(without_schema, "earliest") == expected  # the log has the CREATE TABLE
        with pytest.raises(canal.errors.UnsupportedError, match="old temporal format"):
            read(without_schema, created)


def read(log: canal.parse.Source, start: canal.Position | str) -> list[tuple[str | None, ...]]:
    """The texts of all rows of the table."""
    rows: list[tuple[str | None, ...]] = []
    with canal.Instance(canal.InstanceConfig(destination="old", source=log, start=start, filter="old\\..*")) as instance:
        instance.subscribe()
        while len(rows) < 100:
            message = instance.get(1000, timeout=60)
            assert message
            for entry in message.entries:
                rows += [tuple(column.value for column in data.after_columns) for data in entry.row_change.row_datas]
    return rows
