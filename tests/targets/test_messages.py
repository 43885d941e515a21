"""Ids and keys of messages, which Kafka, RabbitMQ and HTTP share."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest

import canal
from canal.changes import Change, Reader
from canal.errors import UnfitChangeError
from canal.model import Row
from canal.targets import JSONLinesTarget
from canal.targets.messages import halves
from canal.testing import FakeBinlog


def changes(fake: FakeBinlog) -> list[Change]:
    fake.end()
    config = canal.InstanceConfig(destination="d", source=fake, meta=canal.MemoryMeta(), start="earliest")
    reader = Reader(is_log=True)
    with canal.Instance(config) as instance:
        instance.subscribe()
        return [change for message in instance.stream() for entry in message.entries for change in reader.changes(entry)]


def test_each_change_and_each_statement_of_a_transaction_has_an_id_of_its_own() -> None:
    """Also statements that say nothing of rows, before a row and between them."""
    fake = FakeBinlog()
    table = fake.table("shop", "orders", "id INT PRIMARY KEY, n INT")
    with fake.transaction():
        fake.query("UPDATE other SET n = 1", "shop")
        fake.query("UPDATE other SET n = 2", "shop")
        table.insert({"id": 1, "n": 1}, {"id": 2, "n": 1})
        fake.query("UPDATE other SET n = 3", "shop")
        table.insert({"id": 3, "n": 1})
    found = [change.id for change in changes(fake)]

    assert len(found) == 6
    assert len(set(found)) == 6


def test_a_key_of_a_column_whose_old_value_is_not_known_is_unfit(tmp_path: Path) -> None:
    """With MINIMAL images an update has the primary key before it, and what changed after it."""
    fake = FakeBinlog(row_image="MINIMAL")
    table = fake.table("shop", "orders", "id INT PRIMARY KEY, customer INT, n INT")
    table.update({"id": 1, "customer": 1, "n": 5}, {"customer": 2})
    table.update({"id": 1, "customer": 2, "n": 5}, {"n": 6})
    moved, other = changes(fake)

    def customer(table: Any, row: Row) -> str:
        return f"{row['customer']}"

    with pytest.raises(UnfitChangeError, match="only parts of a row"):
        list(halves(moved, customer))
    by_id = lambda table, row: f"{row['id']}"  # noqa: E731
    assert [[key for _, key in halves(change, by_id)] for change in (moved, other)] == [[b"1"], [b"1"]]


@pytest.mark.parametrize("as_pipe", [False, True])
def test_a_line_that_encode_cannot_make_is_parked_and_the_others_are_written(
    as_pipe: bool, fake_binlog: FakeBinlog, tmp_path: Path
) -> None:
    fake_binlog.table("shop", "orders", "id INT PRIMARY KEY").insert({"id": 0}, {"id": 1})
    fake_binlog.end()
    written, parked = io.BytesIO(), tmp_path / "parked"
    target = JSONLinesTarget(written if as_pipe else tmp_path / "lines", encode=lambda change: str(1 // change.row["id"]))
    with canal.Instance(canal.InstanceConfig(destination="shop", source=fake_binlog, start="earliest")) as instance:
        instance.subscribe()
        canal.pipe(instance, target, on_error="stop", on_unfit=JSONLinesTarget(parked)).run()

    assert (written.getvalue() if as_pipe else (tmp_path / "lines").read_bytes()) == b"1\n"
    assert json.loads(parked.read_text())["after"] == {"id": 0}
