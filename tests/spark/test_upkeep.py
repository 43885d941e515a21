"""Targets that are kept up while changes are applied: files and metadata stay few, and readers see whole versions."""

from __future__ import annotations

import os
import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from canal.errors import ConfigError, TargetConflictError, UnloggedChangeError
from canal.spark import apply_changes
from canal.targets.tables import DeltaTableTarget, IcebergTableTarget, MySQLTableTarget, Upkeep, delta
from tests.support.histories import change, table
from tests.support.lakes import load_catalog

IDS = 20


def target_of(kind: str, path: Path, upkeep: Upkeep | None) -> Any:
    if kind == "delta":
        return DeltaTableTarget(str(path / "t"), upkeep=upkeep)
    catalog = {"type": "sql", "uri": f"sqlite:///{path}/catalog.db?timeout=60", "warehouse": f"file://{path}"}
    return IcebergTableTarget("shop.t", "lake", catalog, upkeep=upkeep)


def opened(target: Any) -> Callable[[], pa.Table]:
    """A reader of the version that there is now."""
    if isinstance(target, DeltaTableTarget):
        return DeltaTable(target.path).to_pyarrow_table
    return load_catalog(target.catalog, **target.properties).load_table(target.table).scan().to_arrow


def batch(number: int) -> pa.Table:
    """An upsert, and now and then a delete of what is put again by the next."""
    row = {"id": number % IDS, "k": "x", "a": number, "b": "y" * 20}
    rows = [change("U" if number >= IDS else "I", number + 1, 0, row, row)]
    if number % 7 == 0 and number:
        rows.insert(0, change("D", number + 1, -0, {**row, "id": (number - 1) % IDS, "a": number - 1}))
        rows[1]["_ord"] = 1
    return table(rows)


def expected(last: int) -> dict[int, int]:
    rows = {number % IDS: number for number in range(last + 1)}
    if last % 7 == 0:
        rows.pop((last - 1) % IDS, None)
    gone = {number - 1 for number in range(7, last + 1, 7)}
    return {key: number for key, number in rows.items() if number not in gone}


def check(rows: pa.Table) -> int:
    """What a reader got is a whole version; gives its batch."""
    found = dict(zip(rows["id"].to_pylist(), rows["a"].to_pylist()))
    assert len(found) == rows.num_rows
    last = max(found.values())
    assert found == expected(last)
    return last


def files(path: Path) -> int:
    """Beside the hundred that Iceberg keeps of its metadata."""
    return sum(one.is_file() and not one.name.endswith(".metadata.json") for one in path.rglob("*"))


def largest_metadata(path: Path) -> int:
    """Bytes of what a reader opens first: Iceberg's newest table metadata, Delta's newest checkpoint."""
    found = [*path.rglob("*.metadata.json"), *path.rglob("*.checkpoint.parquet")]
    return max(found, key=lambda one: one.stat().st_mtime_ns).stat().st_size if found else 0


@pytest.mark.slow
@pytest.mark.timeout(14400)
@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_files_and_metadata_stay_few(kind: str, full_size: bool, tmp_path: Path, record: Callable[..., None]) -> None:
    """No more in the second half of the batches than in the first, but for what chance makes of it."""
    count = 10_000 if full_size else 60
    target = target_of(kind, tmp_path, Upkeep(every=20, keep=60) if full_size else Upkeep(every=10, keep=0))
    sink = apply_changes(target, keys=["id", "k"])
    most, tenths = [[0, 0, 0], [0, 0, 0]], []
    begun = time.monotonic()
    for number in range(count):
        sink(batch(number))
        if (number + 1) % 10 == 0:
            whole = sum(one.stat().st_size for one in tmp_path.rglob("*") if one.is_file())
            found = files(tmp_path), whole, largest_metadata(tmp_path)
            half = number >= count // 2
            most[half] = [max(pair) for pair in zip(most[half], found)]
            if (number + 1) % (count // 10) == 0:
                tenths.append(found)
                print(
                    f"{kind}: {number + 1} batches, {time.monotonic() - begun:.0f} s, "
                    f"{found[0]} files, {found[1]} bytes, metadata {found[2]} bytes",
                    flush=True,
                )
    limits = [
        min(most[0][0] * 1.5 + 150, count * 1.5),  # without upkeep two a batch, and three of Iceberg
        most[0][1] * 1.5 + (1 << 20),
        most[0][2] * 1.5 + (1 << 14),
    ]
    wrong = [f"{kind}: {size} after {most[0]} is more than {limit}" for size, limit in zip(most[1], limits) if size > limit]
    record(
        kind="spark upkeep",
        target=kind,
        batches=count,
        every=target.upkeep.every,
        keep=target.upkeep.keep,
        seconds=round(time.monotonic() - begun),
        tenths=tenths,
        wrong=wrong,
    )
    assert not wrong
    assert check(opened(target)()) == count - 1
    progress = sink.progress()
    assert progress is not None
    assert progress.table.txn == count
    again = apply_changes(target, keys=["id", "k"])
    again(batch(count - 1))
    assert check(opened(target)()) == count - 1


def test_deltas_checkpoints_forget_files_that_are_gone_and_no_file_is_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unless told otherwise Delta names them for seven days: each checkpoint would be larger than the one before."""
    monkeypatch.setattr(delta, "_MARGIN", 0)
    target = target_of("delta", tmp_path, None)
    sink = apply_changes(target, keys=["id", "k"])
    for number in range(20):
        sink(batch(number))
    young, old = (tmp_path / "t" / f"{name}.parquet" for name in ("young", "old"))
    shutil.copy(next(tmp_path.rglob("*.parquet")), young)
    shutil.copy(young, old)
    os.utime(old, (0, 0))
    deadline = time.monotonic() + 60
    while True:
        sink.maintain(Upkeep(keep=0))
        newest = max(tmp_path.rglob("*.checkpoint.parquet"), key=lambda one: one.stat().st_mtime_ns)
        removed = pq.read_table(newest, columns=["remove"])["remove"]
        if len(removed) == removed.null_count:
            break
        assert time.monotonic() < deadline, f"{len(removed) - removed.null_count} files are named still"
        time.sleep(0.2)
    assert young.exists()
    assert not old.exists()  # what a killed writer left
    assert check(opened(target)()) == 19


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_readers_see_whole_versions_while_the_target_is_kept_up(kind: str, tmp_path: Path) -> None:
    target = target_of(kind, tmp_path, Upkeep(every=5, keep=3600))
    sink = apply_changes(target, keys=["id", "k"])
    for number in range(10):
        sink(batch(number))
    stop, seen, failed = threading.Event(), [], []

    def read() -> None:
        try:
            while not stop.is_set():
                seen.append(check(opened(target)()))
        except BaseException as error:
            failed.append(error)

    held = opened(target)  # and reads it at the end
    readers = [threading.Thread(target=read) for _ in range(2)]
    for reader in readers:
        reader.start()
    for number in range(10, 30):
        sink(batch(number))
    stop.set()
    for reader in readers:
        reader.join()
    assert failed == []
    assert seen
    assert check(held()) == 9
    sink.maintain(Upkeep(keep=0))
    with pytest.raises((OSError, FileNotFoundError)):
        held()
    assert check(opened(target)()) == 29


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_small_files_are_put_together(kind: str, tmp_path: Path) -> None:
    target = target_of(kind, tmp_path, None)
    sink = apply_changes(target, keys=None)
    for number in range(12):
        sink(batch(number))
    rows = opened(target)().num_rows
    before = files(tmp_path)
    sink.maintain(Upkeep(keep=0))
    assert opened(target)().num_rows == rows
    assert files(tmp_path) < before
    assert len([*tmp_path.rglob("*.parquet")]) <= 2  # with Delta's checkpoint
    sink.maintain(Upkeep(keep=0))  # nothing to do
    sink(batch(12))
    assert opened(target)().num_rows == rows + 1


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_what_the_progress_says_outlives_the_log(kind: str, tmp_path: Path) -> None:
    """A fault above all, which stands in the text of a commit."""
    target = target_of(kind, tmp_path, None)
    sink = apply_changes(target, keys=["id", "k"])
    for number in range(3):
        sink(batch(number))
    with target.begin(sink.stream, ("id", "k")) as work, pytest.raises(UnloggedChangeError):
        sink._refuse(work, work.progress.table, "rows went")
    for _ in range(3):
        sink.maintain(Upkeep(keep=0))
    progress = sink.progress()
    assert progress is not None
    assert progress.table.fault == "rows went"
    with pytest.raises(UnloggedChangeError, match="rows went"):
        sink(batch(3))


def test_an_upkeep_that_fails_is_tried_again_and_stops_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    calls: list[int] = []

    def maintain(self: DeltaTableTarget, stream: str, upkeep: Upkeep) -> None:
        calls.append(1)
        raise TargetConflictError("another writer was quicker")

    monkeypatch.setattr(DeltaTableTarget, "maintain", maintain)
    sink = apply_changes(target_of("delta", tmp_path, Upkeep(every=2)), keys=["id", "k"])
    for number in range(4):
        sink(batch(number))
    assert len(calls) == 2
    assert "another writer was quicker" in caplog.text


def test_a_target_without_upkeep_says_so(tmp_path: Path) -> None:
    sink = apply_changes(MySQLTableTarget("a.b", {"host": "x"}), keys=["id"])
    with pytest.raises(ConfigError, match="has no upkeep"):
        sink.maintain()
    with pytest.raises(ConfigError):
        Upkeep(keep=-1)
