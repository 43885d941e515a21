"""A large transaction that a lost connection cuts, for readers with a filter: its BEGIN and END come once."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import canal
from canal.targets import SQLiteTarget
from canal.testing import FakeBinlog
from tests.support.waiting import until

#: Rows of table a before those of table b, in pieces of 16 entries.
WANTED, OTHERS = 3, 30


def cut_log(cut: int, then: int = 1) -> FakeBinlog:
    """A large transaction, and ``then`` small ones."""
    fake = FakeBinlog(row_event_max_size=40)
    wanted, other = (fake.table("s", name, "id INT PRIMARY KEY") for name in "ab")
    with fake.transaction():
        for key in range(WANTED):
            wanted.insert({"id": key})
        for key in range(OTHERS):
            other.insert({"id": key})
    for key in range(then):
        wanted.insert({"id": 100 + key})
    fake.cut_after(cut)
    fake.end()
    return fake


def options(**more: Any) -> dict[str, Any]:
    return {"start": "earliest", "store_entries": 64, "reconnect_backoff": (0.01, 0.02), "alarm": lambda *told: None, **more}


@contextmanager
def client_of(fake: FakeBinlog) -> Iterator[canal.Instance]:
    """An instance whose client 2 has a filter."""
    with canal.connect(fake, **options()) as instance:
        instance.subscribe(2, r"s\.a")
        yield instance


@contextmanager
def output_of(fake: FakeBinlog) -> Iterator[canal.Instance]:
    """An output of a router, of which no filter is asked but that of its client."""
    router = canal.server.RouterSink(canal.InstanceConfig(destination="source", source=fake, **options()))
    output = router.output("out", store_entries=64)
    with router:
        output.subscribe(2, r"s\.a")
        yield output


@pytest.mark.parametrize("reader", [client_of, output_of])
def test_begin_and_end_pass_the_filter_once(reader: Any) -> None:
    for cut in range(10, 10 + OTHERS):
        with reader(cut_log(cut)) as instance:
            found = list(instance.get_without_ack(WANTED - 1, timeout=10, client_id=2).entries)
            until(lambda: instance.is_exhausted)
            while message := instance.get_without_ack(timeout=0, client_id=2):
                found += message.entries
        ids = [row.after["id"] for entry in found for row in entry.rows if row.after]
        begins = [entry for entry in found if entry.entry_type is canal.EntryType.TRANSACTIONBEGIN and not entry.part]

        assert ids == [*range(WANTED), 100], cut
        assert [sum(entry.is_end for entry in found), len(begins)] == [2, 2], cut


def test_pipe_commits_the_transaction(tmp_path: Path) -> None:
    for cut in (34, 35, 36):
        target = SQLiteTarget(tmp_path / f"{cut}.db")
        with client_of(cut_log(cut, then=0)) as instance:
            until(lambda: instance.is_exhausted)
            canal.pipe(instance, target, client_id=2).run()

        with sqlite3.connect(tmp_path / f"{cut}.db") as made:
            assert made.execute("SELECT id FROM a ORDER BY id").fetchall() == [(0,), (1,), (2,)]
