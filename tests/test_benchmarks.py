"""The benchmarks: a wrong answer is refused, whatever its speed; who is absent is printed; the document tells what was found."""

from __future__ import annotations

import dataclasses
import datetime
import json
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks import measures, ours, pipes_cpu, report, values
from benchmarks.contestants import CONTESTANTS, Contestant
from benchmarks.goals import GOALS
from benchmarks.loads import LOADS, Load, Log
from benchmarks.race import ROOT, Race, WrongAnswer, job_of, last_words
from canal.testing import FakeBinlog

pytestmark = pytest.mark.nightly

ROWS = 5
LOAD = dataclasses.replace(LOADS["A"], rows=ROWS)
SERVER: Any = SimpleNamespace(kind="mariadb", host="127.0.0.1", port=1, user="", password="")


def contestant(answer: str, name: str = "someone") -> Contestant:
    """One that prints an answer, whatever it is asked."""
    return Contestant(name, lambda: [sys.executable, "-S", "-c", answer])


def result(**other: Any) -> dict[str, Any]:
    right = {
        "rows": ROWS,
        "ids": LOAD.ids(ROWS),
        "checksum": LOAD.checksum(ROWS),
        "seconds": 2.0,
        "cpu_seconds": 1.0,
        "half_rows": 2,
        "half_seconds": 1.0,
        "half_cpu": 0.75,
        "first_seconds": 0.1,
        "peak_mib": 20.0,
        "idle_mib": 10.0,
    }
    return right | other


def log(load: Load, file: str = "") -> Log:
    return Log(load, load.rows, "binlog.000001", 4, 1000, file)


def check(*contestants: Contestant) -> tuple[Race, list[str]]:
    race = Race()
    return race, [one.name for one in race.check(contestants, SERVER, log(LOAD))]


def printed(**other: Any) -> str:
    return f"print('RESULT ' + {json.dumps(result(**other))!r})"


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (printed(rows=ROWS - 1, ids=LOAD.ids(ROWS - 1)), f"{ROWS - 1} rows of {ROWS}"),
        (printed(ids=0), "sum to 0"),
        (printed(checksum=LOAD.checksum(ROWS) + 1), "another checksum"),
        ("raise SystemExit('out of order')", "out of order"),
        ("", "it failed"),
    ],
)
def test_a_contestant_with_a_wrong_answer_is_refused(answer: str, reason: str) -> None:
    race, fit = check(contestant(answer), contestant(printed(), "right"))

    assert fit == ["right"]
    assert [one["contestant"] for one in race.refused] == ["someone"]
    assert reason in race.refused[0]["reason"]


def test_who_cannot_be_had_is_absent_and_says_why() -> None:
    race, fit = check(contestant("raise SystemExit('ABSENT no such package')"))

    assert (fit, race.absent) == ([], {"someone": "no such package"})
    assert "* someone: absent, no such package" in report.text(document(race))


def test_a_wrong_answer_of_a_run_for_speed_does_not_count() -> None:
    race = Race()
    race.rounds([contestant(printed(ids=1)), contestant(printed(), "right")], SERVER, log(LOAD), 1)

    assert [run["contestant"] for run in race.runs] == ["right"]
    assert [one["contestant"] for one in race.refused] == ["someone"]


def document(race: Race) -> dict[str, Any]:
    return {
        "machine": {"system": "here"},
        "servers": {"mysql": "9.7"},
        "scale": 1,
        "rounds": 1,
        "latency": [],
        "recovery": [],
        "import": [0.05],
        "runs": race.runs,
        "absent": race.absent,
        "refused": race.refused,
    }


def test_the_document_says_what_is_reached_and_by_how_much_is_missed() -> None:
    race = Race()
    costs = {"canal rows": 1.0, "mysql-replication": 150.0, "go-mysql sync handler": 1.5}
    for name, seconds in costs.items():
        run = result(cpu_seconds=seconds, rows=1_000_000, half_rows=500_000, half_cpu=seconds / 2)
        race.runs.append(
            run | {"server": "mysql", "load": "A", "contestant": name, "round": 0, "bytes_of_row": 100.0, "load_average": 1.0}
        )
    text = report.text(document(race))

    assert "| A: canal rows against mysql-replication | at least 75 × | 150.00 × (150.00 … 150.00), reached |" in text
    assert (
        "| A: canal rows against go-mysql sync handler | at least 3 × | 1.50 × (1.50 … 1.50), missed: 0.50 of the goal [1] |"
        in text
    )
    assert "| B: canal undecoded against drain, second half of both | at least 0.6 × | not measured |" in text
    (chart,) = report.charts(document(race)).values()
    labels = [element.text for element in ElementTree.fromstring(chart).iter("{http://www.w3.org/2000/svg}text")]
    assert {*costs, "150"} <= set(labels)


def test_goals_name_contestants_that_run_on_those_loads() -> None:
    loads = {one.name: one.loads for one in CONTESTANTS}
    for goal in GOALS:
        assert set(goal.loads) <= set(loads[goal.ours]) & set(loads[goal.theirs]), goal


@pytest.mark.parametrize(
    ("kind", "one", "other"),
    [
        ("decimal", Decimal("1.50"), "1.50"),
        ("datetime", datetime.datetime(2026, 11, 21, 10, 0, 1, 5000), "2026-11-21 10:00:01.005"),
        ("timestamp", datetime.datetime(2026, 11, 21, 10, tzinfo=datetime.UTC), "1795255200"),
        ("date", datetime.date(2026, 11, 21), "2026-11-21"),
        ("enum", "paid", 2),
        ("json", '{"a": [1, "b"]}', {b"a": [1, b"b"]}),
        ("text", "é", "é".encode()),
    ],
)
def test_a_value_has_one_text_in_each_form_that_readers_give(kind: str, one: Any, other: Any) -> None:
    assert values.text(kind, one) == values.text(kind, other)


def typed(load: Load, row: list[Any]) -> dict[str, Any]:
    """A row of a load as the fake takes it."""
    found = dict(zip((column.name for column in load.columns), row))
    return {name: Decimal(value) if name == "price" else value for name, value in found.items()}


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Log]:
    """Loads A and C in files of a fake."""
    made = {}
    for key in "AC":
        load = dataclasses.replace(LOADS[key], rows=60)
        fake = FakeBinlog(row_event_max_size=1000)
        table = fake.table(load.schema, "t0", ",".join(f"{column.name} {column.sql}" for column in load.columns))
        if load.update:
            for n in range(1, load.rows + 1):
                table.update(typed(load, load.found(n)), typed(load, load.values(n)))
        else:
            table.insert(*(typed(load, load.values(n)) for n in range(1, load.rows + 1)))
        made[key] = log(load, str(fake.write(tmp_path_factory.mktemp(key))[0]))
    return made


@pytest.mark.parametrize("stage", [*ours.STAGES, "pipe", "pipe_tables"])
@pytest.mark.parametrize("key", "AC")
def test_each_stage_comes_to_the_values_of_the_load(
    stage: str, key: str, logs: dict[str, Log], capsys: pytest.CaptureFixture[str]
) -> None:
    load = logs[key].load
    job = job_of(contestant(""), SERVER, logs[key], 50, check=True) | {"from_file": True}
    with tempfile.TemporaryDirectory() as directory:
        meter = ours.LINES[stage](job) if stage in ours.LINES else ours.read(ours.STAGES[stage], job, directory)

    assert meter.rows >= 50
    assert json.loads(capsys.readouterr().out.removeprefix("RESULT "))["rows"] == meter.rows
    if stage != "undecoded":
        assert (meter.ids, meter.checksum) == (load.ids(meter.rows), load.checksum(meter.rows))


def test_framing_comes_to_the_end_of_a_log_or_fails(logs: dict[str, Log]) -> None:
    size = Path(logs["A"].file).stat().st_size
    job = job_of(contestant(""), SERVER, logs["A"], 60, check=False) | {"from_file": True, "bytes": size - 4}
    assert ours.framing(job).rows == 60

    with pytest.raises(SystemExit, match="behind 59 rows"):
        ours.framing(job | {"bytes": size})


def test_of_each_cut_the_row_that_came_latest_counts() -> None:
    committed = {1: 10, 2: 20, 3: 1_000_000, 4: 2_000_000}
    lines = [(1, 900_000), (2, 4_000_020), (3, 6_000_000), (3, 7_000_000), (4, 9_000_000)]
    taken = measures.judged(log(dataclasses.replace(LOAD, rows=4)), result(rows=5), committed, lines, [15, 1_500_000])

    assert (taken.longest_waits(), taken.twice) == ([5.0, 7.0], 1)


@pytest.mark.parametrize("came", [[1, 2, 3, 5], [1, 3, 3, 4, 5], [2, 2, 2, 3, 4], [1, 2, 3, 4]])
def test_who_loses_a_row_over_a_cut_is_refused(came: list[int]) -> None:
    answer = result(rows=len(came), ids=sum(came))
    with pytest.raises(WrongAnswer):
        measures.judged(log(LOAD), answer, {n: n for n in range(1, ROWS + 1)}, [(n, n) for n in came], [])


def test_a_changed_value_changes_the_checksum() -> None:
    kinds, row = LOAD.kinds, LOAD.values(3)
    swapped = [*row[:2], row[3], row[2], *row[4:]]
    assert len({values.checksum(kinds, row), values.checksum(kinds, swapped), values.checksum(kinds, [*row[:-1], "other"])}) == 3


def test_charts_are_beside_the_document() -> None:
    """What docs/benchmarks.md shows was written with it."""
    shown = {line.partition("(benchmarks/")[2].rstrip(")") for line in report.DOCUMENT.read_text().splitlines() if "![" in line}
    assert shown == {path.name for path in Path(report.CHARTS).glob("*.svg")}


def test_why_a_contestant_failed_is_said_without_where_the_checkout_is() -> None:
    trace = f'Traceback (most recent call last):\n  File "{ROOT}/benchmarks/values.py", line 1, in f\nValueError: bad'
    assert last_words(trace) == "ValueError: bad"
    assert last_words(f"panic at {ROOT}/benchmarks/x.go") == "panic at benchmarks/x.go"


@pytest.mark.parametrize("name", pipes_cpu.CONTESTS)
def test_cost_of_a_pipe_is_that_of_the_right_rows(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wanted = pipes_cpu.write_log(tmp_path, 400)

    pipes_cpu.race(name, tmp_path, wanted, changes=400, batch=150, rounds=1)

    assert capsys.readouterr().out.startswith(name)
    wanted.pop(1)
    with pytest.raises(SystemExit):
        pipes_cpu.race(name, tmp_path, wanted, changes=399, batch=150, rounds=1)
