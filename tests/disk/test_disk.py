"""What was promised to be durable is there after a crash of the machine, whatever of the rest came to the disk."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from canal.meta import FileMeta
from canal.parse.log_positions import FileLogPositionManager
from canal.parse.schema.history import FileHistory
from tests.programs.disk_child import COUNT, position
from tests.support.disk import COMPILER, crashes, lay_out, record

needs_compiler = pytest.mark.skipif(COMPILER is None, reason="what records the writes is compiled by a C compiler")


def cursors(folder: Path) -> dict[str, int]:
    meta = FileMeta(folder / "of" / "app")
    meta.start("example")
    try:
        found = {str(one): meta.cursor(one) for one in meta.subscriptions()}
    finally:
        meta.stop()
    return {client: cursor.offset - 100 for client, cursor in found.items() if cursor is not None}


def schemas(folder: Path) -> dict[str, int]:
    history = FileHistory(folder / "of" / "app")
    history.open("example")
    try:
        snapshot = history.restore(position(COUNT))
    finally:
        history.close()
    if snapshot is None:
        return {}
    assert snapshot.tables == {("shop", "orders"): [snapshot.settings["number"]]}
    return {"": snapshot.settings["number"]}


def positions(folder: Path) -> dict[str, int]:
    manager = FileLogPositionManager(folder / "of" / "app")
    manager.start("example")
    found = manager.latest()
    return {} if found is None else {"": found.offset - 100}


def progress(folder: Path) -> dict[str, int]:
    from canal.targets.tables import ParquetTableTarget

    with ParquetTableTarget(str(folder / "of" / "app")).begin("s", ()) as work:
        return {} if work.progress is None else {"": work.progress.table.txn}


@needs_compiler
@pytest.mark.parametrize(
    ("what", "read"),
    [("cursors", cursors), ("cursors_together", cursors), ("schemas", schemas), ("positions", positions), ("progress", progress)],
)
def test_what_was_promised_is_there_after_a_crash_at_any_moment(
    what: str, read: Callable[[Path], dict[str, int]], tmp_path: Path
) -> None:
    """It can be read, and is as far as was promised; further where that was under way."""
    root = tmp_path / "disk"
    root.mkdir()
    states = 0
    for marks, state in crashes(record(what, root, tmp_path), root):
        promised: dict[str, int] = {}
        for one in marks:
            client, _, number = one.rpartition(" ")
            promised[client] = int(number)
        lay_out(state, str(root), tmp_path / "after")
        found = read(tmp_path / "after")
        for client, number in promised.items():
            assert number <= found.get(client, -1) <= number + 1, (marks[-1:], found, sorted(state))
        states += 1
    assert states > 100
