"""What threads may share, entries and decoders of rows, gives each of them the same, also where Python has no lock."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import sysconfig
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import canal
from canal.testing import FakeBinlog
from tests.support.instances import instance_of

THREADS = 4
THRESHOLDS = gc.get_threshold()
COLUMNS = """id INT PRIMARY KEY, name VARCHAR(20) CHARACTER SET latin1, price DECIMAL(20, 2), big DECIMAL(40, 3), at DATETIME(6),
 day DATE, flags SET('a', 'b', 'c', 'd', 'e', 'f', 'g', 'h'), kind ENUM('x', 'y'), j JSON, raw VARBINARY(20), t TIME(3)"""


def entries_of(rounds: int) -> list[canal.Entry]:
    """Of tables that nobody has decoded yet, with images of many sets of columns."""
    fake = FakeBinlog(row_image="MINIMAL")
    table = fake.table("shop", "t", COLUMNS)
    for number in range(rounds):
        row = {
            "id": number,
            "name": f"näme {number}",
            "price": f"{number}.25",
            "big": f"-{number}.5",
            "at": f"2026-01-02 03:04:{number % 60:02}.5",
            "day": "2026-02-03",
            "flags": "a,c" if number % 2 else "b",
            "kind": "y",
            "j": {"n": number},
            "raw": b"\0\xff",
            "t": "-01:02:03.5",
        }
        table.insert(row, {"id": -number - 1})
        table.update(row, {**row, **dict.fromkeys(list(row)[1 + number % 10 :][:3])})
    fake.end()
    with instance_of(fake) as instance:
        instance.subscribe()
        return [entry for message in instance.stream(100) for entry in message]


def rows(entries: list[canal.Entry]) -> Any:
    return [[(row.before and row.before.as_dict(), row.after and row.after.as_dict()) for row in entry.rows] for entry in entries]


def tuples(entries: list[canal.Entry]) -> Any:
    return [entry.tuples() for entry in entries]


def texts(entries: list[canal.Entry]) -> Any:
    return [
        [(column.name, column.value, column.is_null) for data in entry.row_change.row_datas for column in data.after_columns]
        for entry in entries
        if entry.table is not None
    ]


def arrow(entries: list[canal.Entry]) -> Any:
    return [batch.to_pylist() for batch in canal.Message(1, entries).to_arrow()]


def places(entries: list[canal.Entry]) -> Any:
    return [(str(entry.position), entry.header.gtid, entry.header.table, repr(entry)) for entry in entries]


@pytest.mark.parametrize("read", [rows, tuples, texts, arrow, places], ids=lambda read: read.__name__)
def test_entries_that_several_threads_read_at_the_same_time(read: Callable[[list[canal.Entry]], Any]) -> None:
    expected = read(entries_of(30))
    for _ in range(8):
        entries = entries_of(30)
        together = threading.Barrier(THREADS)

        def race(_: int, entries: list[canal.Entry] = entries, together: threading.Barrier = together) -> Any:
            together.wait()
            return read(entries)

        with ThreadPoolExecutor(THREADS) as threads:
            for found in threads.map(race, range(THREADS)):
                assert found == expected


def test_marks_that_several_threads_make_are_all_there() -> None:
    entries = entries_of(200)
    together = threading.Barrier(THREADS)

    def mark(thread: int) -> None:
        together.wait()
        for entry in entries:
            entry.props[str(thread)] = thread

    with ThreadPoolExecutor(THREADS) as threads:
        list(threads.map(mark, range(THREADS)))
    assert {len(entry.props) for entry in entries} == {THREADS}


def test_a_mark_that_is_made_in_the_making_of_another_stays() -> None:
    """A garbage collection may run there, and with it other code, or another thread."""
    made: set[str] = set()

    def mark(phase: str, info: Any) -> None:
        entry.props[phase] = 1
        made.add(phase)

    held: list[Any] = [{} for _ in range(200)]  # none is left over, which would be taken without a collection
    for entry in entries_of(30):
        made.clear()
        gc.callbacks.append(mark)
        gc.set_threshold(1)
        try:
            entry.props["mark"] = 1
        finally:
            gc.set_threshold(*THRESHOLDS)
            gc.callbacks.remove(mark)
        held.append(entry)
        assert entry.props.keys() == {"mark", *made}


@pytest.mark.skipif(not sysconfig.get_config_var("Py_GIL_DISABLED"), reason="of a free-threaded Python")
def test_no_module_takes_the_lock_of_the_interpreter() -> None:
    modules = ", ".join(("canal", "canal.instance.instance", "canal.formats.arrow", *canal._util.build.COMPILED_MODULES))
    code = f"import sys, {modules}; print(sys._is_gil_enabled())"
    environ = {name: value for name, value in os.environ.items() if name != "PYTHON_GIL"}
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, env=environ)
    assert (done.stdout.strip(), done.stderr) == ("False", "")
