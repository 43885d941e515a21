"""The file under meta.dat: damage, crashes, full disks, canal's own files, two processes."""

from __future__ import annotations

import json
import logging
import math
import os
import resource
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import attrs
import pytest

import canal
from canal.errors import ConfigError, CursorError, StateError
from canal.meta import FileMeta, document
from canal.meta.cursor_file import CursorFile
from canal.position import Position
from canal.testing.fake import FakeBinlog

UUID = "3e11fa47-71ca-11e1-9e33-c80aa9429562"
HERE = Position("bin.000001", 2**33, f"{UUID}:1-5", row=3, timestamp=7, server_id=2, source=UUID)
NEXT = Position("bin.000002", 4, f"{UUID}:1-6", source=UUID)

CANAL_FILE = """{"clientDatas":[{"clientIdentity":{"clientId":1001,"destination":"example","filter":".*\\\\..*"},
"cursor":{"@type":"com.alibaba.otter.canal.protocol.position.LogPosition",
"identity":{"slaveId":-1,"sourceAddress":{"address":"localhost","port":3306}},
"postion":{"gtid":"","included":false,"journalName":"mysql-bin.000003","position":154,"serverId":1,
"timestamp":1600000000000}}},{"clientIdentity":{"clientId":1002,"destination":"example"},"cursor":null}],
"destination":"example"}"""


@contextmanager
def started(directory: Path, destination: str = "example", interval: float = 0.0) -> Iterator[FileMeta]:
    meta = FileMeta(directory, "interval", interval) if interval else FileMeta(directory)
    meta.start(destination)
    try:
        yield meta
    finally:
        meta.stop()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A destination's folder whose meta.dat says NEXT and whose .bak says HERE."""
    with started(tmp_path) as meta:
        meta.subscribe(1, "shop\\..*")
        meta.update_cursor(1, HERE)
    with started(tmp_path) as meta:
        meta.update_cursor(1, NEXT)
    return tmp_path / "example"


# What is in the file.


def test_canal_can_read_the_file(folder: Path) -> None:
    data = (folder / "meta.dat").read_bytes()
    assert data.isascii()
    document = json.loads(data)
    assert document["destination"] == "example"
    (client,) = document["clientDatas"]
    assert client["clientIdentity"] == {"clientId": 1, "destination": "example", "filter": "shop\\..*"}
    assert client["cursor"]["postion"] == {
        "gtid": f"{UUID}:1-6", "included": False, "journalName": "bin.000002", "position": 4, "serverId": 0,
        "timestamp": 0,
    }  # fmt: skip
    assert sorted(path.name for path in folder.iterdir()) == ["lock", "meta.dat", "meta.dat.bak"]


def test_the_previous_file_is_kept(folder: Path) -> None:
    (folder / "meta.dat.bak").replace(folder / "meta.dat")
    with started(folder.parent) as meta:
        assert meta.cursor(1) == HERE


@pytest.mark.parametrize("prefix", [b"", b"\xef\xbb\xbf"])
def test_canals_own_file_is_read_and_kept(tmp_path: Path, prefix: bytes) -> None:
    path = tmp_path / "example" / "meta.dat"
    path.parent.mkdir()
    path.write_bytes(prefix + CANAL_FILE.encode())
    with started(tmp_path) as meta:
        assert meta.subscriptions() == {1001: ".*\\..*", 1002: ""}
        start_of_event = Position("mysql-bin.000003", 154, timestamp=1600000000000, server_id=1, at_event=True)
        assert meta.cursor(1001) == start_of_event
        assert meta.cursor(1002) is None
        meta.update_cursor(1002, NEXT)
    assert path.with_name("meta.dat.bak").read_bytes() == prefix + CANAL_FILE.encode()
    with started(tmp_path) as meta:
        assert (meta.cursor(1001), meta.cursor(1002)) == (start_of_event, NEXT)


def test_canals_file_in_another_charset(tmp_path: Path) -> None:
    """Harmless where we do not look, an error where it would change a filter."""
    path = tmp_path / "example" / "meta.dat"
    path.parent.mkdir()
    path.write_bytes(CANAL_FILE.replace("localhost", "主机").encode("gbk"))
    with started(tmp_path) as meta:
        assert set(meta.subscriptions()) == {1001, 1002}
    path.write_bytes(CANAL_FILE.replace(".*", "商店", 1).encode("gbk"))
    with pytest.raises(CursorError, match="UTF-8"):
        FileMeta(tmp_path).start("example")


@pytest.mark.parametrize(
    "change",
    [
        {"clientDatas": None},
        {"clientDatas": [1]},
        {"clientDatas": [{}]},
        {"clientDatas": [{"clientIdentity": {"clientId": "1"}}]},
        {"clientDatas": [{"clientIdentity": {"clientId": 1}}] * 2},
        {"clientDatas": [{"clientIdentity": {"clientId": 1, "filter": 5}}]},
        {"clientDatas": [{"clientIdentity": {"clientId": 1}, "cursor": "x"}]},
        {"clientDatas": [{"clientIdentity": {"clientId": 1}, "cursor": {"$ref": "$"}}]},
        {"clientDatas": [{"clientIdentity": {"clientId": 1}, "position": "{}"}]},
        {"destination": "other"},
        {"destination": 5},
        {"format": 1},
        {"checksum": "x"},
    ],
)
def test_files_that_make_no_sense_are_refused(tmp_path: Path, change: dict[str, Any]) -> None:
    (tmp_path / "example").mkdir()
    (tmp_path / "example" / "meta.dat").write_text(json.dumps({**json.loads(CANAL_FILE), **change}))
    with pytest.raises(CursorError) as caught:
        FileMeta(tmp_path).start("example")
    assert caught.value.remedy


def test_what_could_not_be_read_again_is_not_written(tmp_path: Path) -> None:
    with started(tmp_path) as meta:
        with pytest.raises(CursorError):
            meta.subscribe(1, "\udc80")
        assert meta.subscriptions() == {}


# Damage.


def test_every_truncation_falls_back_loudly(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    whole, spare = (folder / "meta.dat").read_bytes(), (folder / "meta.dat.bak").read_bytes()
    end_of_json = len(whole) - 1  # the newline behind it says nothing
    for end in range(end_of_json):
        (folder / "meta.dat").write_bytes(whole[:end])
        (folder / "meta.dat.bak").write_bytes(spare)
        caplog.clear()
        with started(folder.parent) as meta:
            assert meta.cursor(1) == HERE
        (record,) = (one for one in caplog.records if one.name == "canal.meta")
        assert record.levelno == logging.ERROR
        assert "meta.dat.bak" in record.getMessage()
        assert (folder / "meta.dat.corrupt").read_bytes() == whole[:end]


def test_every_changed_byte_is_noticed_or_harmless(folder: Path) -> None:
    whole, spare = (folder / "meta.dat").read_bytes(), (folder / "meta.dat.bak").read_bytes()
    for at in range(len(whole)):
        for value in {0, 0xFF, whole[at] ^ 1, whole[at] ^ 0x20} - {whole[at]}:
            (folder / "meta.dat").write_bytes(whole[:at] + bytes((value,)) + whole[at + 1 :])
            (folder / "meta.dat.bak").write_bytes(spare)
            with started(folder.parent) as meta:
                assert meta.cursor(1) in (HERE, NEXT)
                assert meta.subscriptions() == {1: "shop\\..*"}


@pytest.mark.parametrize("damage", [b"", b"\0" * 300, b"{", b"[]"])
def test_two_damaged_files_stop_the_start(folder: Path, damage: bytes) -> None:
    (folder / "meta.dat").write_bytes(damage)
    (folder / "meta.dat.bak").write_bytes(b"\0" * 300)
    meta = FileMeta(folder.parent)
    for _ in range(2):  # and the lock was given back
        with pytest.raises(CursorError, match=r"meta\.dat cannot be used") as caught:
            meta.start("example")
        assert "delete it and its .bak" in caught.value.remedy
    assert (folder / "meta.dat").read_bytes() == damage


def test_a_spare_that_cannot_be_proved_whole_is_not_used(folder: Path) -> None:
    (folder / "meta.dat").write_bytes(b"\0")
    (folder / "meta.dat.bak").write_text(CANAL_FILE)
    with pytest.raises(CursorError):
        FileMeta(folder.parent).start("example")


def test_a_missing_file_beside_a_spare_is_damage(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    (folder / "meta.dat").unlink()
    with started(folder.parent) as meta:
        assert meta.cursor(1) == HERE
    assert "missing" in caplog.text


def test_a_damaged_file_never_becomes_the_spare(folder: Path) -> None:
    spare = (folder / "meta.dat.bak").read_bytes()
    (folder / "meta.dat").write_bytes(b"\0")
    with started(folder.parent) as meta:
        meta.update_cursor(1, NEXT)
        assert (folder / "meta.dat.bak").read_bytes() == spare
    with started(folder.parent) as meta:
        assert meta.cursor(1) == NEXT


def test_a_later_format_is_refused_even_with_a_right_checksum(folder: Path) -> None:
    changed = json.loads((folder / "meta.dat").read_bytes())
    changed["format"] = 2
    changed["checksum"] = document._checksum(changed)
    (folder / "meta.dat").write_text(json.dumps(changed))
    (folder / "meta.dat.bak").unlink()
    with pytest.raises(CursorError, match="format 2"):
        FileMeta(folder.parent).start("example")


# Crashes.

_WRITER = """
import sys
from canal.meta import FileMeta
from canal.position import Position
meta = FileMeta(sys.argv[1])
meta.start("example")
meta.subscribe(1, "x" * 200)
offset = (meta.cursor(1) or Position()).offset
while True:
    offset += 1
    meta.update_cursor(1, Position("bin.000001", offset))
    print(offset, flush=True)
"""


def _spawn(directory: Path) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-c", _WRITER, str(directory)], stdout=subprocess.PIPE, text=True)


def test_kill_9_loses_no_cursor_that_was_returned(tmp_path: Path) -> None:
    path = tmp_path / "example" / "meta.dat"
    done = 0
    for _ in range(4):
        with _spawn(tmp_path) as child:
            assert child.stdout is not None
            line = child.stdout.readline()  # the first write is done
            ends = time.monotonic() + 0.3
            while time.monotonic() < ends:  # a reader sees whole files only, and never an older one
                cursor = document.load(path.read_bytes(), "example", must_verify=True)[1].cursor
                assert cursor is not None
                assert cursor.offset >= done
                done = cursor.offset
            child.send_signal(signal.SIGKILL)
            told = [int(told) for told in [line, *child.stdout.read().splitlines(keepends=True)] if told[-1:] == "\n"]
        with started(tmp_path) as meta:
            cursor = meta.cursor(1)
            assert cursor is not None
            assert told[-1] <= cursor.offset <= told[-1] + 1
            done = cursor.offset


# Disks.


@contextmanager
def _file_size_limit(size: int) -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    old = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, old)


def test_a_write_that_fails_changes_nothing(folder: Path) -> None:
    before = (folder / "meta.dat").read_bytes()
    meta = FileMeta(folder.parent)
    meta.start("example")
    with _file_size_limit(100):
        calls = [lambda: meta.update_cursor(1, HERE), lambda: meta.subscribe(2, ""), lambda: meta.unsubscribe(1)]
        for call in calls:
            with pytest.raises(CursorError, match=r"cannot write .*meta\.dat") as caught:
                call()
            assert caught.value.remedy
            assert meta.cursor(1) == NEXT
            assert meta.subscriptions() == {1: "shop\\..*"}
    assert (folder / "meta.dat").read_bytes() == before
    assert not (folder / "meta.dat.tmp").exists()
    meta.update_cursor(1, HERE)
    meta.stop()
    with started(folder.parent) as meta:
        assert meta.cursor(1) == HERE


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(disk)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True, check=False).returncode != 0:
        pytest.skip("mounting a tmpfs needs root; the file size limit above tests the same path")
    try:
        yield disk
    finally:
        subprocess.run(["umount", str(disk)], check=True)


def test_a_full_disk(small_disk: Path) -> None:
    meta = FileMeta(small_disk)
    meta.start("example")
    meta.subscribe(1, "")
    meta.update_cursor(1, HERE)
    meta.stop()
    meta.start("example")
    filler = small_disk / "filler"
    with open(filler, "wb", buffering=0) as file, suppress(OSError):
        while file.write(b"\0" * 512):
            pass
    with pytest.raises(CursorError, match="No space left"):
        meta.update_cursor(1, NEXT)
    assert meta.cursor(1) == HERE
    meta.stop()  # nothing is owed: the failed cursor was refused
    meta.start("example")  # the cursors can still be read
    assert meta.cursor(1) == HERE
    filler.unlink()
    meta.update_cursor(1, NEXT)
    meta.stop()


def test_a_directory_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(CursorError, match="cannot make the folder"):
        FileMeta(tmp_path / "file").start("example")


def test_a_file_system_without_hard_links(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_link(*args: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", no_link)
    previous = (folder / "meta.dat").read_bytes()
    with started(folder.parent) as meta:
        meta.update_cursor(1, HERE)
    assert (folder / "meta.dat.bak").read_bytes() == previous


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "../up", "a\0", "a\n", "x" * 129, "ä", "a b"])
def test_names_that_are_no_folder(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigError):
        FileMeta(tmp_path).start(name)
    assert list(tmp_path.iterdir()) == []


# Flushing by interval.


@pytest.mark.parametrize("interval", [-1.0, 0.0, float("nan"), float("inf")])
def test_impossible_intervals(tmp_path: Path, interval: float) -> None:
    with pytest.raises(ConfigError):
        FileMeta(tmp_path, "interval", interval)


def test_an_unknown_durability(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="durability"):
        FileMeta(tmp_path, "never")  # type: ignore[arg-type]


def test_a_failed_folder_sync_is_made_good(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The rename may or may not have lasted, so even the old state has to be written again."""

    def no_sync(path: Path) -> None:
        raise OSError(5, "Input/output error")

    with started(folder.parent) as meta:
        with monkeypatch.context() as patch:
            patch.setattr("canal.meta.file.sync_folder", no_sync)
            with pytest.raises(CursorError, match="Input/output"):
                meta.update_cursor(1, HERE)
        assert meta.cursor(1) == NEXT
    assert _stored(folder.parent) == NEXT


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
            ("sync", "meta.dat.tmp"), ("rename", "meta.dat.bak.tmp to meta.dat.bak"), ("rename", "meta.dat.tmp to meta.dat"),
            ("sync", "example"),
        ]  # fmt: skip


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

    assert _stored(tmp_path) == HERE
    assert _after_a_crash(tmp_path) == {1: NEXT}
    moving.flush()
    assert _stored(tmp_path) == NEXT
    moving.update_cursor(1, HERE)
    assert _after_a_crash(tmp_path) == {1: HERE}
    moving.update_cursor(1, NEXT)  # as meta.dat says, but not what is beside it
    assert _after_a_crash(tmp_path) == {1: NEXT}
    moving.stop()
    assert _stored(tmp_path) == NEXT
    assert sorted(path.name for path in (tmp_path / "example").iterdir()) == ["lock", "meta.dat", "meta.dat.bak"]


def test_the_file_is_written_at_least_once_a_second(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr("canal.meta.file.time.monotonic", lambda: now)
    with started(tmp_path) as meta:
        meta.subscribe(1, "")
        for now, stored in ((0.5, 500), (1.0, 500), (1.5, 500), (1.51, 1510), (2.0, 1510), (2.52, 2520)):
            meta.update_cursor(1, Position("bin.000001", int(now * 1000)))
            found = _stored(tmp_path)
            assert found is not None
            assert found.offset == stored


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
        assert CursorFile(path).read(moving._name) == {1: NEXT}
        path.write_bytes(newer[:at] + older[at:])
        assert CursorFile(path).read(moving._name) in ({1: NEXT}, {1: last})
    for size in range(0, len(newer), 97):
        path.write_bytes(newer[:size])
        assert CursorFile(path).read(moving._name) in ({}, {1: NEXT}, {1: last})
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
        assert _stored(tmp_path) == HERE
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
    assert _stored(tmp_path) == NEXT


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


def _stored(directory: Path) -> Position | None:
    return document.load((directory / "example" / "meta.dat").read_bytes(), "example")[1].cursor


def _thread_names() -> set[str]:
    return {thread.name for thread in threading.enumerate()}


def test_a_thread_flushes_and_stop_flushes(tmp_path: Path) -> None:
    with started(tmp_path, interval=0.05) as meta:
        assert "canal-example-meta" in _thread_names()
        meta.subscribe(1, "")
        meta.update_cursor(1, HERE)
        meta.update_cursor(1, NEXT)
        ends = time.monotonic() + 60
        while _stored(tmp_path) != NEXT and time.monotonic() < ends:
            time.sleep(0.01)
        assert _stored(tmp_path) == NEXT
    assert "canal-example-meta" not in _thread_names()


def test_only_later_cursors_wait_for_the_flush(tmp_path: Path) -> None:
    with started(tmp_path, interval=3600) as meta:
        meta.subscribe(1, "")
        meta.update_cursor(1, HERE)
        assert _stored(tmp_path) == HERE, "the first cursor is durable at once"
        meta.update_cursor(1, NEXT)
        assert _stored(tmp_path) == HERE
        assert meta.cursor(1) == NEXT
        meta.flush()
        assert _stored(tmp_path) == NEXT
        meta.update_cursor(1, HERE)
    assert _stored(tmp_path) == HERE


def test_a_failed_flush_reaches_the_next_update(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    meta = FileMeta(folder.parent, "interval", 3600)
    meta.start("example")
    with _file_size_limit(100):
        meta.update_cursor(1, HERE)
        with pytest.raises(CursorError):
            meta.flush()
        with pytest.raises(CursorError):
            meta.update_cursor(1, Position("bin.000009", 4))
        assert meta.cursor(1) == HERE
        with pytest.raises(CursorError):
            meta.stop()
    with started(folder.parent) as again:  # stopped all the same: the lock is free
        assert again.cursor(1) == NEXT


def test_the_thread_logs_a_failed_flush_and_tries_again(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    with started(folder.parent, interval=0.02) as meta:
        (folder / "meta.dat.tmp").mkdir()  # nothing can be written under this name
        meta.update_cursor(1, HERE)
        ends = time.monotonic() + 60
        while "cannot write" not in caplog.text and time.monotonic() < ends:
            time.sleep(0.01)
        assert "cannot write" in caplog.text
        (folder / "meta.dat.tmp").rmdir()
        while _stored(folder.parent) != HERE and time.monotonic() < ends:
            time.sleep(0.01)
        assert _stored(folder.parent) == HERE


# Two writers.


def test_a_second_process_is_kept_out_and_told_who_holds_it(tmp_path: Path) -> None:
    with _spawn(tmp_path) as child:
        assert child.stdout is not None
        child.stdout.readline()
        with pytest.raises(CursorError, match=rf"pid {child.pid}\b"):
            FileMeta(tmp_path).start("example")
        with started(tmp_path, "other"):
            pass
        child.kill()
        child.stdout.read()
        child.wait()
    with started(tmp_path):
        pass


def test_a_second_manager_of_one_process_is_kept_out(tmp_path: Path) -> None:
    with started(tmp_path), pytest.raises(CursorError, match=rf"pid {os.getpid()}\b"):
        FileMeta(tmp_path).start("example")


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_forked_child_holds_nothing(folder: Path) -> None:
    """Else a child that outlives its killed parent would block the next one."""
    meta = FileMeta(folder.parent)
    meta.start("example")
    told, tell = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            meta.cursor(1)
        except StateError:
            os.write(tell, b"s")
        signal.pause()
    try:
        assert os.read(told, 1) == b"s"
        os.close(meta._claim or -1)  # what the kernel does when the parent is killed
        meta._claim = None
        with started(folder.parent) as again:
            assert again.cursor(1) == NEXT
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(told)
        os.close(tell)
        meta.stop()


# -- an instance whose cursor cannot be written --------------------------------------------------------------------------


@contextmanager
def _full(folder: Path) -> Iterator[None]:
    with _file_size_limit(100):
        yield


@contextmanager
def _read_only(folder: Path) -> Iterator[None]:
    """As root only a mount can be read-only."""
    if os.geteuid() != 0:
        folder.chmod(0o555)
        yield
        folder.chmod(0o755)
        return
    bind = ["mount", "--bind", str(folder), str(folder)]
    if subprocess.run(bind, capture_output=True, check=False).returncode != 0:
        pytest.skip("root without the right to mount writes everywhere")
    try:
        subprocess.run(["mount", "-o", "remount,bind,ro", str(folder)], check=True)
        yield
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


@contextmanager
def _in_the_way(folder: Path) -> Iterator[None]:
    """The folder removed, and a file where it was."""
    shutil.rmtree(folder.parent)
    folder.parent.write_text("")
    yield
    folder.parent.unlink()


@pytest.mark.parametrize(
    ("obstacle", "seconds"),
    [(_full, -1.0), (_full, math.inf), (_read_only, -1.0), (_in_the_way, -1.0), (_in_the_way, math.inf)],
)
def test_an_ack_that_cannot_be_written_is_refused_and_works_when_there_is_room(
    obstacle: Callable[[Path], AbstractContextManager[None]], seconds: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("canal.meta.file._WHOLE_SECONDS", seconds)
    fake = FakeBinlog()
    orders = fake.table("shop", "orders", "id INT")
    meta = FileMeta(tmp_path / "meta")
    config = canal.InstanceConfig(destination="example", source=fake, start="earliest", meta=meta)
    with canal.Instance(config) as instance:
        instance.subscribe()
        orders.insert({"id": 1})
        instance.ack(instance.get_without_ack(10, timeout=30).id)
        done = instance.position()
        orders.insert({"id": 2})
        message = instance.get_without_ack(10, timeout=30)
        with obstacle(tmp_path / "meta" / "example"):
            for _ in range(2):
                with pytest.raises(CursorError, match=r"\[example\] cannot (write|make|read)") as caught:
                    instance.ack(message.id)
                assert caught.value.remedy
                assert instance.position() == done
                assert instance.list_batches() == [message.id]
            orders.insert({"id": 3})
            assert instance.get_without_ack(10, timeout=30)  # delivery goes on
            instance.rollback()
            message = instance.get_without_ack(10, timeout=30)
        instance.ack(message.id)
        acked = instance.position()
    assert done.precedes(acked)

    with canal.Instance(config) as instance:
        assert instance.position() == acked


def test_a_folder_that_was_removed_is_made_again_and_claimed(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    meta = FileMeta(folder.parent)
    meta.start("example")
    shutil.rmtree(folder)
    meta.update_cursor(1, HERE)

    assert "was removed while it was in use" in caplog.text
    with pytest.raises(CursorError, match="in use by another meta manager"):
        FileMeta(folder.parent).start("example")
    meta.stop()
    with started(folder.parent) as meta:
        assert meta.cursor(1) == HERE


def test_a_folder_that_another_has_made_meanwhile_is_left_alone(folder: Path) -> None:
    meta = FileMeta(folder.parent)
    meta.start("example")
    shutil.rmtree(folder)
    with started(folder.parent) as other:
        other.subscribe(1, "")
        other.update_cursor(1, NEXT)
        with pytest.raises(CursorError, match="was replaced while it was in use"):
            meta.update_cursor(1, HERE)
    with pytest.raises(CursorError, match="was replaced while it was in use"):
        meta.update_cursor(1, HERE)
    with started(folder.parent) as other:
        assert other.cursor(1) == NEXT


def test_canal_finds_its_own_source_in_our_cursor(tmp_path: Path) -> None:
    """By address and port; the server is the one that began the journal where no event was read yet."""
    cursor = attrs.evolve(NEXT, incarnation="1732297541-7", timestamp=5000, server_id=0)
    meta = FileMeta(tmp_path)
    meta.address_of = lambda position: ("db1", 3307) if position.source == cursor.source else ("", 0)
    meta.start("example")
    meta.subscribe(1, "")
    meta.update_cursor(1, cursor)
    meta.stop()

    (client,) = json.loads((tmp_path / "example" / "meta.dat").read_bytes())["clientDatas"]

    assert client["cursor"]["identity"] == {"slaveId": -1, "sourceAddress": {"address": "db1", "port": 3307}}
    assert (client["cursor"]["postion"]["serverId"], client["cursor"]["postion"]["timestamp"]) == (7, 5000)


def test_ids_that_canal_cannot_read_do_not_keep_it_from_the_others(tmp_path: Path) -> None:
    ids = [-1, 1, 32767, 32768, 1 << 32]
    with started(tmp_path) as meta:
        for number, client_id in enumerate(ids):
            meta.subscribe(client_id, f"shop\\.t{number}")
            meta.update_cursor(client_id, attrs.evolve(NEXT, offset=number))

    document = json.loads((tmp_path / "example" / "meta.dat").read_bytes())

    assert [client["clientIdentity"]["clientId"] for client in document["clientDatas"]] == [1, 32767]
    with started(tmp_path) as meta:
        assert meta.subscriptions() == {client_id: f"shop\\.t{number}" for number, client_id in enumerate(ids)}
        assert [meta.cursor(client_id) for client_id in ids] == [attrs.evolve(NEXT, offset=number) for number in range(5)]


def test_an_instance_names_its_source_to_canal(tmp_path: Path) -> None:
    """From the first cursor on, at "latest" too: address, port, server and a time."""
    fake = FakeBinlog()
    table = fake.table("shop", "t", "id INT PRIMARY KEY")
    table.insert({"id": 1})
    with fake.serve(user="canal", password="secret") as server:
        source = canal.MySQLSource(host=server.host, port=server.port, user="canal", password="secret")
        config = canal.InstanceConfig(destination="example", source=source, meta=FileMeta(tmp_path))
        cursors = []
        with canal.Instance(config) as instance:
            instance.subscribe()
            cursors.append(json.loads((tmp_path / "example" / "meta.dat").read_bytes())["clientDatas"][0]["cursor"])
            table.insert({"id": 2})
            instance.ack(instance.get_without_ack(timeout=60))
            instance.meta.flush()
            cursors.append(json.loads((tmp_path / "example" / "meta.dat").read_bytes())["clientDatas"][0]["cursor"])
    for cursor in cursors:
        assert cursor["identity"]["sourceAddress"] == {"address": server.host, "port": server.port}
        assert cursor["postion"]["serverId"] > 0
        assert cursor["postion"]["timestamp"] > 0
