"""canal's log position managers: what each gives back, and when."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace

import pytest

import canal
from canal import Position
from canal.parse import FailbackLogPositionManager, FileLogPositionManager, MemoryLogPositionManager, MetaLogPositionManager

ONE, TWO, THREE = (Position("binlog.000001", offset, source="s") for offset in (100, 200, 300))


def test_memory_manager_forgets_position_on_stop() -> None:
    manager = MemoryLogPositionManager()
    manager.start("x")
    assert manager.latest() is None
    manager.persist(lambda: ONE)
    manager.persist(lambda: TWO)
    assert manager.latest() == TWO
    manager.stop()
    assert manager.latest() is None


def test_meta_manager_returns_earliest_subscribed_cursor() -> None:
    meta = canal.MemoryMeta()
    meta.start("x")
    manager = MetaLogPositionManager(meta)
    manager.start("x")
    assert manager.latest() is None
    meta.subscribe(1, "")
    assert manager.latest() is None
    for client, position in ((2, TWO), (3, THREE), (4, ONE)):
        meta.subscribe(client, "")
        meta.update_cursor(client, position)
    manager.persist(lambda: THREE)
    assert manager.latest() == ONE
    meta.unsubscribe(4)
    assert manager.latest() == TWO


def test_failback_manager_reads_secondary_if_primary_is_empty() -> None:
    meta = canal.MemoryMeta()
    meta.start("x")
    meta.subscribe(1, "")
    meta.update_cursor(1, ONE)
    manager = FailbackLogPositionManager(MemoryLogPositionManager(), MetaLogPositionManager(meta))
    manager.start("x")
    assert manager.latest() == ONE
    manager.persist(lambda: THREE)
    assert manager.latest() == THREE
    manager.stop()
    assert manager.latest() == ONE


def test_failback_manager_writes_secondary_if_primary_fails(tmp_path: Path) -> None:
    (tmp_path / "blocked").write_text("a file where a folder should be")
    second = MemoryLogPositionManager()
    manager = FailbackLogPositionManager(FileLogPositionManager(tmp_path / "blocked", interval=0.0), second)
    manager.start("x")
    manager.persist(lambda: TWO)
    assert second.latest() == TWO


def test_file_manager_keeps_position_over_restart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("canal.parse.log_positions.time", SimpleNamespace(monotonic=lambda: 60.0))  # the machine has just begun
    first = FileLogPositionManager(tmp_path, interval=3600.0)
    first.start("x")
    assert first.latest() is None
    first.persist(lambda: ONE)
    first.persist(lambda: TWO)
    other = FileLogPositionManager(tmp_path)
    other.start("y")
    assert other.latest() is None
    crashed = FileLogPositionManager(tmp_path)
    crashed.start("x")
    assert crashed.latest() == ONE  # the interval has not passed since
    first.stop()
    second = FileLogPositionManager(tmp_path)
    second.start("x")
    assert second.latest() == TWO
    assert [path.name for path in (tmp_path / "x").iterdir()] == ["parse.dat"]


@pytest.mark.parametrize("text", ["", "{", '{"v":99}', '{"v":2,"offset":-1}', "\x00" * 100])
def test_file_manager_damaged_file_raises(tmp_path: Path, text: str) -> None:
    (tmp_path / "x").mkdir()
    (tmp_path / "x" / "parse.dat").write_text(text)
    manager = FileLogPositionManager(tmp_path)
    manager.start("x")
    with pytest.raises(canal.CursorError):
        manager.latest()


def test_file_manager_restart_resumes_after_accepted_entries(tmp_path: Path) -> None:
    """As canal's users do with their own sink and no store."""
    from canal.testing import FakeBinlog

    log = FakeBinlog()
    orders = log.table("shop", "orders", "id INT PRIMARY KEY")

    class Keep:
        def __init__(self) -> None:
            self.rows: list[int] = []

        def start(self, destination: str, store: object) -> None: ...
        def restart(self) -> None: ...
        def stop(self) -> None: ...
        def sink(self, entries: list[canal.Entry]) -> None:
            self.rows += [row.after["id"] for entry in entries for row in entry.rows if row.after]

    rows = []
    for number in range(3):
        orders.insert({"id": number})
        keep = Keep()
        parser = canal.parse.BinlogParser(log, start="earliest", log_positions=FileLogPositionManager(tmp_path))
        with canal.Instance.compose("own", parser=parser, sink=keep):
            deadline = time.monotonic() + 60
            while not keep.rows:
                assert time.monotonic() < deadline
                time.sleep(0.01)
        rows.append(keep.rows)

    assert rows == [[0], [1], [2]]


def test_file_manager_restart_repeats_refused_entries(tmp_path: Path) -> None:
    """The position is kept when the sink has returned: what it raised on is not done."""
    from canal.testing import FakeBinlog

    log = FakeBinlog()
    orders = log.table("shop", "orders", "id INT PRIMARY KEY")
    for number in range(3):
        orders.insert({"id": number})
    log.end()
    taken: list[int] = []

    class Refusing:
        def __init__(self, most: int) -> None:
            self.most = most

        def start(self, destination: str, store: object) -> None: ...
        def restart(self) -> None: ...
        def stop(self) -> None: ...
        def sink(self, entries: list[canal.Entry]) -> None:
            rows = [row.after["id"] for entry in entries for row in entry.rows if row.after]
            if len(taken) >= self.most:
                raise canal.errors.HookError("the disk is full")
            taken.extend(rows)

    for most in (1, 2, 3):
        parser = canal.parse.BinlogParser(log, start="earliest", log_positions=FileLogPositionManager(tmp_path), piece_entries=1)
        with canal.Instance.compose("own", parser=parser, sink=Refusing(most)) as instance:
            deadline = time.monotonic() + 60
            while not instance.is_exhausted:
                assert time.monotonic() < deadline
                time.sleep(0.01)

    assert taken == [0, 1, 2]
