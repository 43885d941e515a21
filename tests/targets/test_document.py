"""docs/targets.md: its table is what the targets declare, its code runs, and the examples do what they say."""

from __future__ import annotations

import io
import re
import runpy
from pathlib import Path
from typing import Any

import pytest

import canal
from canal import targets
from canal.testing import FakeBinlog, target_suite

ROOT = Path(__file__).parent.parent.parent
TEXT = (ROOT / "docs/targets.md").read_text("utf-8")

#: Each target as the table names it, the extra that it needs, and one of it.
TARGETS = [
    ("`DeltaTarget`", "lake", targets.DeltaTarget("lake")),
    ("`DuckDBTarget`", "duckdb", targets.DuckDBTarget("copy.duckdb")),
    ("`HTTPTarget`", "http", targets.HTTPTarget("https://localhost")),
    ("`IcebergTarget`", "lake", targets.IcebergTarget()),
    ("`JSONLinesTarget` (file)", "", targets.JSONLinesTarget("changes.jsonl")),
    ("`JSONLinesTarget` (pipe)", "", targets.JSONLinesTarget(io.BytesIO())),
    ("`KafkaTarget`", "kafka", targets.KafkaTarget("localhost")),
    ("`MongoDBTarget`", "mongodb", targets.MongoDBTarget("mongodb://localhost")),
    ("`MongoDBTarget` (transactions)", "mongodb", targets.MongoDBTarget("mongodb://localhost", transactions=True)),
    ("`MySQLTarget`", "", targets.MySQLTarget({})),
    ("`OpenSearchTarget`", "opensearch", targets.OpenSearchTarget("https://localhost:9200")),
    ("`ParquetTarget`", "arrow", targets.ParquetTarget("changes")),
    ("`PostgreSQLTarget`", "postgresql", targets.PostgreSQLTarget("")),
    ("`RabbitMQTarget`", "rabbitmq", targets.RabbitMQTarget("amqp://localhost")),
    ("`RedisTarget` (hash, json)", "redis", targets.RedisTarget("redis://localhost")),
    ("`RedisTarget` (stream, list)", "redis", targets.RedisTarget("redis://localhost", structure="stream")),
    ("`RocketMQTarget`", "", targets.RocketMQTarget("localhost:9876")),
    ("`SQLiteTarget`", "", targets.SQLiteTarget("copy.db")),
]


def table() -> str:
    rows = ["| target | needs | promise | one commit has | keeps |", "|---|---|---|---|---|"]
    for name, extra, target in TARGETS:
        needs = f"`canal-cdc[{extra}]`" if extra else "–"
        scope = "all tables of a transaction" if target.scope == "all" else "one table"
        rows.append(f"| {name} | {needs} | {target.guarantee.promise} | {scope} | {'changes' if target.is_log else 'rows'} |")
    return "\n".join(rows)


def test_the_table_is_what_the_targets_declare() -> None:
    assert re.findall(r"<!-- table.*?-->\n(.*?)\n<!-- end -->", TEXT, re.DOTALL) == [table()]
    assert {name.partition("`")[2].partition("`")[0] for name, _, _ in TARGETS} == {
        name for name in targets.__all__ if name.endswith("Target") and name != "Target"
    }


@pytest.mark.parametrize("number", range(TEXT.count("```python")))
def test_its_code_runs(number: int, tmp_path: Path, fake_binlog: FakeBinlog) -> None:
    code = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)[number].replace("/var/lib/app", str(tmp_path))
    fake_binlog.table("shop", "orders", "id INT PRIMARY KEY").insert({"id": 1})
    fake_binlog.end()
    own = runpy.run_path(str(ROOT / "examples/own_target.py"))

    class MyTarget:
        def __new__(cls) -> Any:
            made = own["DictTarget"](tmp_path / "tables")
            made.rows = lambda table: list(own["DictWork"](made.path, "").content().get(table, {}).values())
            return made

    given = {"config": canal.InstanceConfig(destination="shop", source=fake_binlog, start="earliest"), "MyTarget": MyTarget}
    exec(compile(code, f"targets.md-{number}", "exec"), given)


def test_a_target_of_ones_own_has_less_than_60_lines_and_stands_the_suite(capsys: pytest.CaptureFixture[str]) -> None:
    lines = (ROOT / "examples/own_target.py").read_text("utf-8").partition('if __name__ == "__main__"')[0].splitlines()
    assert len(lines) < 60

    runpy.run_path(str(ROOT / "examples/own_target.py"), run_name="__main__")

    assert capsys.readouterr().out.split() == [word for case in target_suite.CASES for word in ("ok", case)]


def test_the_example_writes_each_change_once(capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(ROOT / "examples/pipe_to_sqlite.py"), run_name="__main__")

    assert capsys.readouterr().out.splitlines() == [
        "first life: 4 changes, exactly once", "second life: 0 changes, exactly once", "[(2, 'B…', '4.50')]",
    ]  # fmt: skip
