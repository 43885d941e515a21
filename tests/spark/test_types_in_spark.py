"""Every type through a real Spark, with driver, executors and session in three time zones of their own: the server is the oracle.

The batches are those of the log and of a snapshot, as executors make them.
"""

from __future__ import annotations

import os
import pickle
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.functions import expr, from_json
from pyspark.sql.types import DayTimeIntervalType, StringType, StructType

from canal.formats.change_table import Shape
from canal.formats.envelope import Envelope
from canal.schema import column_from_text
from canal.spark.frames import spark_struct
from canal.testing.servers import ThrowawayServer
from tests.programs.types_table import EXAMPLES
from tests.support.fix_spark import WORKER_ZONE
from tests.support.live import end_of_log
from tests.support.oracle_cases import CASES, Case
from tests.support.oracle_tables import Table, available
from tests.support.snapshots import logged, shape_of, snapshot, write_cases

DRIVER, SESSION = "Asia/Tokyo", "Australia/Lord_Howe"
#: Sizes and digits in between, and what is too long for a table of all, are for the tests without a Spark.
UNWANTED = re.compile(r"BIT\((?!1\)|40|63|64)|TIME(STAMP)?\([1245]\)|SET\('m0'|INT\(5\)|(CHAR|BINARY)\((6|8|1.|2..|7).*\)")

pytestmark = pytest.mark.timeout(600)


class Files(DataSource):
    """Batches that a file holds, given by executors."""

    @classmethod
    def name(cls) -> str:
        return "files"

    def schema(self) -> Any:
        with open(self.options["shape"], "rb") as file:
            return spark_struct(pickle.load(file).arrow)

    def reader(self, schema: Any) -> DataSourceReader:
        return FilesReader(self.options["path"])


class FilesReader(DataSourceReader):
    def __init__(self, path: str) -> None:
        self.path = path

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(0)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert (os.environ["TZ"], time.tzname[0]) == (WORKER_ZONE, "IST")
        with pa.OSFile(self.path) as file, pa.ipc.open_stream(file) as reader:
            yield from reader


@pytest.fixture
def zoned(spark: SparkSession) -> Iterator[SparkSession]:
    for name, value in {"spark.sql.session.timeZone": SESSION, "spark.sql.debug.maxToStringFields": "1000"}.items():
        spark.conf.set(name, value)
    spark.dataSource.register(Files)
    zones = spark._jvm.java.util.TimeZone
    before = zones.getDefault()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TZ", DRIVER)
        time.tzset()
        zones.setDefault(zones.getTimeZone(DRIVER))
        yield spark
        zones.setDefault(before)
    time.tzset()


def in_spark(spark: SparkSession, shape: Shape | Envelope, batches: list[pa.RecordBatch], path: Path) -> DataFrame:
    (path / "shape").write_bytes(pickle.dumps(shape))
    with pa.OSFile(str(path / "rows"), "wb") as file, pa.ipc.new_stream(file, shape.arrow) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return spark.read.format("files").option("shape", str(path / "shape")).load(str(path / "rows"))


#: How a value of a Spark type, and of a kind of column at the server, are compared: the same text of both.
ASKED: dict[str, tuple[str, str]] = {
    "date": ("CAST({} AS STRING)", "CAST({} AS CHAR)"),
    "timestamp_ntz": ("date_format({}, 'yyyy-MM-dd HH:mm:ss.SSSSSS')", "DATE_FORMAT({}, '%Y-%m-%d %H:%i:%s.%f')"),
    "timestamp": ("CAST(unix_micros({}) AS STRING)", "CAST(CAST(UNIX_TIMESTAMP({}) * 1000000 AS SIGNED) AS CHAR)"),
    "interval day to second": (
        "CAST(unix_micros(TIMESTAMP'2000-01-01 00:00:00Z' + {}) - 946684800000000 AS STRING)",
        "CAST(TIMESTAMPDIFF(MICROSECOND, '2000-01-01 00:00:00', ADDTIME('2000-01-01 00:00:00', {})) AS CHAR)",
    ),
    "string": ("hex({})", "HEX(CONVERT({} USING utf8mb4))"),
    "binary": ("hex({})", "HEX({})"),
    "float": ("CAST({} AS DOUBLE)", "{}*1e0"),
    "double": ("{}", "{}*1e0"),
}
#: Of which there are values that Spark cannot hold.
MOMENTS = ("date", "timestamp", "timestamp_ntz")


#: Of a TIME that an envelope has as text.
TIME = ("IF({0} LIKE '%.%', {0}, {0} || '.000000')", "CAST(CAST({} AS TIME(6)) AS CHAR)")


class Asked:
    """What a table of cases holds, as the server has it; ``selects`` is what to ask Spark for."""

    def __init__(self, server: ThrowawayServer, database: str, cases: Sequence[Case], kinds: Mapping[str, str]) -> None:
        self.cases = cases
        self.selects, asks, texts = [], [], []
        for number in range(len(cases)):
            name = f"c{number}"
            kind = kinds[name]
            ours, theirs = TIME if kind == "time" else ASKED.get(kind, ("CAST({} AS STRING)", "CAST({}+0 AS CHAR)"))
            self.selects.append(f"{ours.format(name)} AS {name}")
            asks.append(theirs.format(name))
            texts.append(f"CAST({name} AS CHAR)" if kind in MOMENTS else "NULL")
        with server.connect(database=database) as connection, connection.cursor() as cursor:
            cursor.execute("SET time_zone='+00:00', sql_mode='ALLOW_INVALID_DATES'")
            cursor.execute(f"SELECT id, {', '.join(asks)}, {', '.join(texts)} FROM cases")
            self.held = {row[0]: row[1:] for row in cursor.fetchall()}

    def check(self, rows: Sequence[Any]) -> None:
        wrong = []
        for row in rows:
            for number, case in enumerate(self.cases):
                name, theirs = f"c{number}", self.held[row["id"]][number]
                ours, exact = row[name], (row["_exact"] or {}).get(name)
                if exact is not None:
                    ours, theirs = exact, self.held[row["id"]][len(self.cases) + number]
                if ours != theirs:
                    wrong.append(f"{case.type} {row['_op']}: Spark has {ours!r:.80}, the server {theirs!r:.80}")
        assert wrong == [], "\n".join(wrong)


@pytest.mark.every_spark
def test_every_type_is_in_spark_what_the_server_holds(
    zoned: SparkSession, server: ThrowawayServer, database: str, tmp_path: Path
) -> None:
    """As the log has it and as a snapshot reads it."""
    cases = [case for case in CASES if available(case.since, server) and not UNWANTED.search(case.type)]
    table = Table("cases", cases)
    start = end_of_log(server)
    write_cases(server, database, table)
    shape = shape_of(server, database, "cases")
    batches = [*logged(server, start, {"cases": shape}, database)["cases"], *snapshot(server, shape)[1]]
    struct = spark_struct(shape.arrow)
    asked = Asked(server, database, cases, {field.name: field.dataType.simpleString() for field in struct.fields})

    frame = in_spark(zoned, shape, batches, tmp_path)
    assert frame.schema == struct
    # Nothing is lost or moved on the way through the JVM and back.
    assert frame.toArrow().to_pylist() == pa.Table.from_batches(batches).to_pylist()
    rows = frame.selectExpr("id", "_op", "_exact", *asked.selects).collect()
    assert sorted(row["_op"] for row in rows) == ["I"] * table.row_count + ["r"] * table.row_count
    asked.check(rows)


@pytest.mark.every_spark
def test_from_json_reads_of_an_envelope_what_the_server_holds(
    zoned: SparkSession, server: ThrowawayServer, database: str, tmp_path: Path
) -> None:
    """With the types of a stream of the one table, but TIME, which is text."""
    cases = [case for case in CASES if available(case.since, server) and not UNWANTED.search(case.type)]
    table = Table("cases", cases)
    start = end_of_log(server)
    write_cases(server, database, table)
    types = {field.name: field.dataType for field in spark_struct(shape_of(server, database, "cases").arrow).fields}
    kinds = {name: "time" if isinstance(kind, DayTimeIntervalType) else kind.simpleString() for name, kind in types.items()}
    asked = Asked(server, database, cases, kinds)
    server.query(f"UPDATE `{database}`.cases SET id = id + 1000")
    batches = logged(server, start, {"cases": Envelope()}, database)["cases"]

    typed = StructType()
    for name in ("id", *(f"c{number}" for number in range(len(cases))), "_exact"):
        typed.add(name, StringType() if kinds[name] == "time" else types[name])
    frame = in_spark(zoned, Envelope(), batches, tmp_path)
    read = frame.select("_op", from_json("data", typed).alias("row"), from_json("old", typed).alias("old"))
    rows = read.selectExpr("_op", "old", "row.*").withColumn("id", expr("coalesce(old.id, id)"))
    found = rows.selectExpr("id", "_op", "_exact", *asked.selects).collect()
    assert sorted(row["_op"] for row in found) == ["I"] * table.row_count + ["U"] * table.row_count
    asked.check(found)


def test_no_type_of_the_page_is_left_out() -> None:
    there = {column_from_text("c", case.type).base_type for case in CASES if not UNWANTED.search(case.type)}
    assert {example.column.base_type for example in EXAMPLES} <= there


def test_the_time_of_an_event_is_an_instant_whatever_the_zones(
    zoned: SparkSession, server: ThrowawayServer, database: str, tmp_path: Path
) -> None:
    start = end_of_log(server)
    server.query(f"CREATE TABLE `{database}`.t (id INT PRIMARY KEY, made TIMESTAMP(6) DEFAULT CURRENT_TIMESTAMP(6))")
    server.query(f"INSERT INTO `{database}`.t (id) VALUES (1)")
    shape = shape_of(server, database, "t")
    batches = [*logged(server, start, {"t": shape}, database)["t"], *snapshot(server, shape)[1]]
    frame = in_spark(zoned, shape, batches, tmp_path)
    for row in frame.selectExpr("unix_micros(_ts) - unix_micros(made) AS late", "unix_micros(_ts) AS at").collect():
        assert -1_000_000 <= row["late"] <= 600_000_000
        assert abs(row["at"] / 1e6 - time.time()) < 3600
