"""Cursors, schemas and rows on the disk are their user's alone, and nothing is read or written behind a symbolic link."""

from __future__ import annotations

import itertools
import math
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import canal
from canal.parse.log_positions import FileLogPositionManager
from canal.parse.schema.history import FileHistory
from canal.position import Position

PLACE = Position(journal="binlog.000001", offset=4)
_OFFSETS = itertools.count(100, 100)


@pytest.fixture(autouse=True)
def _nobody_hides_anything() -> Iterator[None]:
    old = os.umask(0)
    yield
    os.umask(old)


def keep_cursor(directory: Path) -> None:
    meta = canal.FileMeta(directory)
    meta.start("d")
    try:
        meta.subscribe(1001, "")
        meta.update_cursor(1001, PLACE)
    finally:
        meta.stop()


def keep_moving_cursor(directory: Path) -> None:
    """One that is written beside meta.dat; its file, which goes at the stop, stays under another name too."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("canal.meta.file._WHOLE_SECONDS", math.inf)
        meta = canal.FileMeta(directory)
        meta.start("d")
        try:
            meta.subscribe(1001, "")
            meta.update_cursor(1001, Position(journal="binlog.000001", offset=next(_OFFSETS)))
            meta.flush()
            meta.update_cursor(1001, Position(journal="binlog.000001", offset=next(_OFFSETS)))
            (directory / "d" / "kept").unlink(missing_ok=True)
            (directory / "d" / "kept").hardlink_to(directory / "d" / "meta.cursors")
        finally:
            meta.stop()


def keep_schema(directory: Path) -> None:
    with closing(FileHistory(directory)) as history:
        history.open("d")
        history.restore(PLACE)
        history.add(PLACE, {("a", "b"): True}, None)


def keep_position(directory: Path) -> None:
    manager = FileLogPositionManager(directory)
    manager.start("d")
    manager.latest()
    manager.persist(lambda: PLACE)
    manager.stop()


def keep_entries(directory: Path) -> Any:
    pytest.importorskip("pyarrow")
    from canal.spool.spool import Spool

    spool = Spool(str(directory))
    add_entry(spool)
    return spool


def add_entry(spool: Any) -> None:
    from canal.testing.fake import FakeBinlog

    fake = FakeBinlog()
    fake.table("shop", "t", "id INT").insert({"id": 1})
    config = canal.InstanceConfig(destination="d", source=fake, start="earliest")
    with canal.Instance(config) as instance:
        instance.subscribe()
        spool.add(next(entry for entry in instance.get(100, timeout=60) if entry.rows), 0, 1 << 20)


def keep_rows(directory: Path) -> Any:
    pa = pytest.importorskip("pyarrow")
    from canal.snapshot.files import SnapshotFiles

    files = SnapshotFiles(directory)
    schema = pa.schema([("id", pa.int64())])
    list(files.write(iter([pa.record_batch([[1]], schema)]), schema, 10))
    return files


@pytest.mark.parametrize("keep", [keep_cursor, keep_moving_cursor, keep_schema, keep_position, keep_entries, keep_rows])
def test_files_are_their_users_alone(tmp_path: Path, keep: Callable[[Path], Any]) -> None:
    keepers = [keep(tmp_path / "new" / "folder") for _ in range(2)]

    modes = {path: (path.is_dir(), stat.S_IMODE(path.lstat().st_mode)) for path in tmp_path.rglob("*")}
    for keeper in filter(None, keepers):
        keeper.close()
    assert any(not is_folder for is_folder, _ in modes.values())
    assert {path: oct(mode) for path, (is_folder, mode) in modes.items() if mode != (0o700 if is_folder else 0o600)} == {}


@pytest.mark.parametrize(("keep", "name"), [(keep_cursor, "meta.dat"), (keep_cursor, "lock"), (keep_schema, "schema.db")])
def test_files_of_before_become_their_users_alone(tmp_path: Path, keep: Callable[[Path], None], name: str) -> None:
    keep(tmp_path)
    path = tmp_path / "d" / name
    path.chmod(0o666)
    if name == "meta.dat":
        path.unlink()
        (tmp_path / "d" / "meta.dat.bak").unlink(missing_ok=True)

    keep(tmp_path)

    assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.parametrize(
    ("keep", "name"),
    [
        (keep_cursor, "meta.dat"),
        (keep_cursor, "meta.dat.tmp"),
        (keep_cursor, "lock"),
        (keep_cursor, "."),
        (keep_schema, "schema.db"),
        (keep_position, "parse.dat"),
        (keep_position, "parse.dat.tmp"),
    ],
)
def test_nothing_is_written_or_read_behind_a_symbolic_link(tmp_path: Path, keep: Callable[[Path], None], name: str) -> None:
    victim = tmp_path / "victim"
    victim.write_text("mine")
    if name == ".":
        (tmp_path / "elsewhere").mkdir()
        (tmp_path / "d").symlink_to(tmp_path / "elsewhere")
    else:
        (tmp_path / "d").mkdir()
        (tmp_path / "d" / name).symlink_to(victim)

    with pytest.raises(canal.CanalError, match="symbolic link"):
        keep(tmp_path)

    assert victim.read_text() == "mine"
    assert list(tmp_path.glob("elsewhere/*")) == []


def test_the_rows_of_a_snapshot_are_not_written_behind_a_symbolic_link(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    from canal.snapshot.files import SnapshotFiles, file_of

    victim = tmp_path / "victim"
    victim.write_text("mine")
    schema = pa.schema([("id", pa.int64())])
    with closing(SnapshotFiles(tmp_path / "snapshots")) as files:
        Path(file_of(files.directory, 0)).symlink_to(victim)

        with pytest.raises(canal.errors.StoreError):
            list(files.write(iter([pa.record_batch([[1]], schema)]), schema, 10))

    assert victim.read_text() == "mine"


def test_a_segment_of_the_spool_is_not_written_behind_a_symbolic_link(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    from canal.spool.spool import Spool

    victim = tmp_path / "victim"
    victim.write_text("mine")
    with closing(Spool(str(tmp_path / "spool"))) as spool:
        (spool.directory / "00000001").symlink_to(victim)

        with pytest.raises(OSError, match="symbolic links"):
            add_entry(spool)

    assert victim.read_text() == "mine"


@pytest.mark.parametrize("keep", [keep_cursor, keep_schema, keep_position])
def test_the_directory_that_is_named_may_be_a_symbolic_link(tmp_path: Path, keep: Callable[[Path], None]) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "named").symlink_to(tmp_path / "real")

    keep(tmp_path / "named")

    assert list((tmp_path / "real" / "d").iterdir())


def test_cursors_that_move_are_not_written_behind_a_symbolic_link(tmp_path: Path) -> None:
    victim, folder = tmp_path / "victim", tmp_path / "d"
    victim.write_text("mine")
    folder.mkdir()
    (folder / "meta.cursors").symlink_to(victim)
    acked = [Position(journal="binlog.000001", offset=next(_OFFSETS)) for _ in range(3)]

    meta = canal.FileMeta(tmp_path)
    meta.start("d")
    meta.subscribe(1001, "")
    for position in acked:
        meta.update_cursor(1001, position)
    meta.stop()

    assert victim.read_text() == "mine"
    meta.start("d")
    assert meta.cursor(1001) == acked[-1]
    meta.stop()
    (folder / "meta.cursors").unlink(missing_ok=True)
    (folder / "meta.cursors").symlink_to(victim)
    with pytest.raises(canal.CanalError, match="symbolic link"):
        meta.start("d")
    assert victim.read_text() == "mine"
