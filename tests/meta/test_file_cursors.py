"""Cursors on the disk: the syncs before an ack returns, those that clients share, and the slots of meta.cursors."""

from __future__ import annotations

import math
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from canal.errors import CursorError
from canal.meta import FileMeta, document
from canal.meta.cursor_file import CursorFile
from canal.position import Position
from tests.support.file_meta import CANAL_FILE, HERE, NEXT, started, stored


def test_a_cursor_is_on_the_disk_before_it_takes_the_place_of_the_last_one_and_that_before_the_ack_returns(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a loss of power may leave: the system may put the new name on the disk before what the file holds."""
    steps: list[tuple[str, str]] = []
    sync, replace = os.fsync, os.replace

    def syncing(descriptor: int) -> None:
        steps.append(("sync", os.path.basename(os.readlink(f"/proc/self/fd/{descriptor}"))))
        sync(descriptor)

    def replacing(source: Path, target: Path) -> None:
        steps.append(("rename", f"{source.name} to {target.name}"))
        replace(source, target)

    with started(folder.parent) as meta, monkeypatch.context() as patch:
        patch.setattr(os, "fsync", syncing)
        patch.setattr(os, "replace", replacing)
        meta.update_cursor(1, HERE)

        assert steps == [
            ("sync", "meta.dat.tmp"),
            ("rename", "meta.dat.bak.tmp to meta.dat.bak"),
            ("rename", "meta.dat.tmp to meta.dat"),
            ("sync", "example"),
        ]


# Acks of several clients at once.


@contextmanager
def _together(meta: FileMeta, positions: dict[int, Position], monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Client 1 acks, and while its file is synced so do the others; gives the names of the files that were synced.

    The block runs while all of them wait, and behind it they have their answers.
    """
    synced: list[str] = []
    is_syncing, go = threading.Event(), threading.Event()

    def syncing(descriptor: int, sync: Callable[[int], None]) -> None:
        synced.append(os.path.basename(os.readlink(f"/proc/self/fd/{descriptor}")))
        is_syncing.set()
        assert go.wait(60)
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", partial(syncing, sync=os.fsync))
    monkeypatch.setattr(os, "fdatasync", partial(syncing, sync=os.fdatasync))
    threads = [threading.Thread(target=meta.update_cursor, args=one) for one in [(1, NEXT), *positions.items()]]
    threads[0].start()
    assert is_syncing.wait(60)
    for thread in threads[1:]:
        thread.start()
    ends = time.monotonic() + 60
    while len(meta._group.wanted) < len(positions) and time.monotonic() < ends:
        time.sleep(0.001)
    try:
        yield synced
    finally:
        go.set()
        for thread in threads:
            thread.join(60)


@pytest.fixture
def five(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FileMeta]:
    """A started manager with five clients, which writes meta.dat each time."""
    monkeypatch.setattr("canal.meta.file._WHOLE_SECONDS", -1.0)
    with started(tmp_path) as meta:
        for client_id in range(1, 6):
            meta.subscribe(client_id, "")
            meta.update_cursor(client_id, HERE)
        yield meta


@pytest.mark.parametrize(("seconds", "names"), [(-1.0, ["meta.dat.tmp", "example"]), (math.inf, ["meta.cursors"])])
def test_clients_that_ack_while_another_ones_cursor_is_synced_share_the_next_sync(
    five: FileMeta, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seconds: float, names: list[str]
) -> None:
    monkeypatch.setattr("canal.meta.file._WHOLE_SECONDS", seconds)
    five.update_cursor(1, NEXT)
    five.update_cursor(1, HERE)
    with _together(five, dict.fromkeys(range(2, 6), NEXT), monkeypatch) as synced:
        assert [five.cursor(client_id) for client_id in range(1, 6)] == [HERE] * 5, "nothing is shown before it is durable"

    assert synced == names * 2
    assert _after_a_crash(tmp_path) == dict.fromkeys(range(1, 6), NEXT)


def test_a_cursor_that_cannot_be_written_harms_no_other_clients(five: FileMeta, monkeypatch: pytest.MonkeyPatch) -> None:
    failures: list[BaseException | None] = []
    monkeypatch.setattr(threading, "excepthook", lambda arguments: failures.append(arguments.exc_value))

    with _together(five, {2: NEXT, 3: Position("bin\udc80.000001", 4), 4: NEXT}, monkeypatch):
        pass

    assert [five.cursor(client_id) for client_id in range(1, 5)] == [NEXT, NEXT, HERE, NEXT]
    (failure,) = failures
    assert isinstance(failure, CursorError)


def test_a_group_that_cannot_be_written_fails_for_each_and_changes_nothing(
    five: FileMeta, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failures: list[BaseException | None] = []
    monkeypatch.setattr(threading, "excepthook", lambda arguments: failures.append(arguments.exc_value))

    with _together(five, {2: NEXT, 3: NEXT}, monkeypatch):
        (tmp_path / "example" / "meta.dat.bak.tmp").mkdir()  # nothing can be written under this name

    assert [type(failure) for failure in failures] == [CursorError] * 3
    assert [five.cursor(client_id) for client_id in (1, 2, 3)] == [HERE] * 3
    (tmp_path / "example" / "meta.dat.bak.tmp").rmdir()
    five.update_cursor(3, NEXT)
    assert [five.cursor(client_id) for client_id in (1, 2, 3)] == [HERE, HERE, NEXT]


def test_an_ack_that_was_interrupted_while_it_waited_is_not_written_later(
    five: FileMeta, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its client may have acked something else since, or gone back."""

    class Interrupted(BaseException):
        pass

    class Interrupting:
        def __enter__(self) -> None:
            raise Interrupted

        def __exit__(self, *_: object) -> None: ...

    group = five._group
    with monkeypatch.context() as patch:
        patch.setattr(group, "lock", Interrupting())
        with pytest.raises(Interrupted):
            five.update_cursor(2, NEXT)
    assert group.wanted == {}


def _after_a_crash(directory: Path) -> dict[int, Position | None]:
    """The cursors that another process finds if this one ends here."""
    copy = directory.with_name(f"{directory.name} {time.monotonic_ns()}")
    shutil.copytree(directory, copy)
    with started(copy) as meta:
        return {client_id: meta.cursor(client_id) for client_id in meta.subscriptions()}


# Cursors beside meta.dat.


@pytest.fixture
def moving(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FileMeta]:
    """A started manager that has just written meta.dat, with HERE, and writes cursors only from now on."""
    monkeypatch.setattr("canal.meta.file._WHOLE_SECONDS", math.inf)
    with started(tmp_path) as meta:
        meta.subscribe(1, "shop\\..*")
        meta.update_cursor(1, HERE)
        meta.flush()
        yield meta


def test_cursors_are_written_beside_the_file_until_a_flush(moving: FileMeta, tmp_path: Path) -> None:
    moving.update_cursor(1, NEXT)

    assert stored(tmp_path) == HERE
    assert _after_a_crash(tmp_path) == {1: NEXT}
    moving.flush()
    assert stored(tmp_path) == NEXT
    moving.update_cursor(1, HERE)
    assert _after_a_crash(tmp_path) == {1: HERE}
    moving.update_cursor(1, NEXT)  # as meta.dat says, but not what is beside it
    assert _after_a_crash(tmp_path) == {1: NEXT}
    moving.stop()
    assert stored(tmp_path) == NEXT
    assert sorted(path.name for path in (tmp_path / "example").iterdir()) == ["lock", "meta.dat", "meta.dat.bak"]


def test_the_file_is_written_at_least_once_a_second(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr("canal.meta.file.time.monotonic", lambda: now)
    with started(tmp_path) as meta:
        meta.subscribe(1, "")
        for now, offset in ((0.5, 500), (1.0, 500), (1.5, 500), (1.51, 1510), (2.0, 1510), (2.52, 2520)):
            meta.update_cursor(1, Position("bin.000001", int(now * 1000)))
            found = stored(tmp_path)
            assert found is not None
            assert found.offset == offset


def test_a_subscription_is_written_at_once(moving: FileMeta, tmp_path: Path) -> None:
    moving.update_cursor(1, NEXT)
    moving.subscribe(2, "x")
    assert _after_a_crash(tmp_path) == {1: NEXT, 2: None}
    moving.update_cursor(2, NEXT)
    moving.subscribe(1, "another filter")
    moving.unsubscribe(2)
    assert _after_a_crash(tmp_path) == {1: NEXT}
    with started(tmp_path.with_name("other")) as meta:
        assert meta.subscriptions() == {}


def test_every_damaged_byte_of_a_cursor_falls_back_to_the_one_before(moving: FileMeta, tmp_path: Path) -> None:
    """The one whose write was under way when the power went; the rest of its slot says nothing."""
    path = tmp_path / "example" / "meta.cursors"
    moving.update_cursor(1, NEXT)
    older = path.read_bytes()
    last = Position("bin.000003", 77)
    moving.update_cursor(1, last)
    newer = path.read_bytes()
    changed = [at for at, (one, other) in enumerate(zip(older, newer)) if one != other]
    assert changed[-1] - changed[0] < len(newer) // 2, "one slot was written"
    for at in range(changed[0], changed[-1] + 1):
        path.write_bytes(newer[:at] + bytes((newer[at] ^ 1,)) + newer[at + 1 :])
        assert CursorFile(path).read(moving._folder._name) == {1: NEXT}
        path.write_bytes(newer[:at] + older[at:])
        assert CursorFile(path).read(moving._folder._name) in ({1: NEXT}, {1: last})
    for size in range(0, len(newer), 97):
        path.write_bytes(newer[:size])
        assert CursorFile(path).read(moving._folder._name) in ({}, {1: NEXT}, {1: last})
    path.write_bytes(newer)
    assert _after_a_crash(tmp_path) == {1: last}


@pytest.mark.parametrize("is_canals", [False, True])
def test_another_state_in_its_stead_does_not_get_its_cursors(moving: FileMeta, tmp_path: Path, is_canals: bool) -> None:
    """Somebody goes back to a copy of meta.dat, after a crash."""
    path = tmp_path / "example" / "meta.dat"
    copy = CANAL_FILE.encode() if is_canals else path.read_bytes()
    moving.update_cursor(1, NEXT)
    moving.flush()
    moving.update_cursor(1, Position("bin.000003", 77))
    path.write_bytes(copy)
    found = _after_a_crash(tmp_path)
    assert found[1001 if is_canals else 1] == (document.load(copy, "example")[1001].cursor if is_canals else HERE)


def test_a_state_that_is_the_same_again_does_not_get_the_cursors_of_the_first_time(moving: FileMeta, tmp_path: Path) -> None:
    """The client goes forth and back."""
    for position in (NEXT, HERE):
        moving.update_cursor(1, NEXT)
        moving.update_cursor(1, position)
        moving.flush()
    assert _after_a_crash(tmp_path) == {1: HERE}


@pytest.mark.parametrize("call", ["pwrite", "fdatasync"])
def test_a_cursor_that_cannot_be_written_beside_the_file_is_written_into_it(
    moving: FileMeta, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    """Whatever has come of it, it does not count any more."""
    moving.update_cursor(1, NEXT)

    def fail(*arguments: Any) -> None:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(os, call, fail)
        moving.update_cursor(1, HERE)
        assert _after_a_crash(tmp_path) == {1: HERE}
        assert stored(tmp_path) == HERE
        patch.setattr(os, "replace", fail)
        with pytest.raises(CursorError, match="Input/output error"):
            moving.update_cursor(1, NEXT)
    assert moving.cursor(1) == HERE
    moving.update_cursor(1, NEXT)
    assert _after_a_crash(tmp_path) == {1: NEXT}


def test_a_stop_that_cannot_write_the_file_leaves_the_cursors_beside_it(
    moving: FileMeta, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    moving.update_cursor(1, NEXT)
    with monkeypatch.context() as patch:
        patch.setattr("canal.meta.file._write_synced", _no_room)
        moving.stop()
    assert "the cursors are on the disk beside it" in caplog.text
    with started(tmp_path) as meta:
        assert meta.cursor(1) == NEXT
    assert stored(tmp_path) == NEXT


def _no_room(path: Path, data: bytes) -> None:
    raise OSError(28, "No space left on device")


def test_a_file_of_cursors_that_somebody_removed_is_made_anew(moving: FileMeta, tmp_path: Path) -> None:
    moving.update_cursor(1, NEXT)
    (tmp_path / "example" / "meta.cursors").unlink()
    moving.update_cursor(1, Position("bin.000003", 77))
    assert _after_a_crash(tmp_path) == {1: Position("bin.000003", 77)}


def test_cursors_that_grow(moving: FileMeta, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A crash while the file is made anew loses none that was acked."""
    make, acked, made = CursorFile._make, HERE, 0

    def making(file: CursorFile, record: bytes) -> int:
        nonlocal made
        made += 1
        descriptor = make(file, record)
        assert _after_a_crash(tmp_path) == {1: acked}
        return descriptor

    monkeypatch.setattr(CursorFile, "_make", making)
    for offset, count in enumerate((1, 2, 100, 100, 1000, 1000, 10, 10), start=1000):
        gtid = ",".join(f"{number:08x}-71ca-11e1-9e33-c80aa9429562:1-{count}" for number in range(count))
        position = Position("bin.000003", offset, gtid)
        moving.update_cursor(1, position)
        acked = position
        assert _after_a_crash(tmp_path) == {1: position}
    assert made == 3


def test_cursors_that_cannot_be_read_stop_the_start_and_harm_nothing(moving: FileMeta, tmp_path: Path) -> None:
    folder = tmp_path / "example"
    moving.update_cursor(1, NEXT)
    copy = tmp_path.with_name("copy of it")
    shutil.copytree(tmp_path, copy)
    (copy / "example" / "meta.cursors").unlink()
    (copy / "example" / "meta.cursors").symlink_to(folder / "meta.cursors")
    meta = FileMeta(copy)
    with pytest.raises(CursorError, match="cannot read .*meta.cursors"):
        meta.start("example")
    assert (copy / "example" / "meta.dat").read_bytes() == (folder / "meta.dat").read_bytes()
    (copy / "example" / "meta.cursors").unlink()
    shutil.copy(folder / "meta.cursors", copy / "example")
    assert _after_a_crash(copy) == {1: NEXT}
