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
from pathlib import Path
from typing import Any

import attrs
import pytest

import canal
from canal.errors import ConfigError, CursorError, StateError
from canal.meta import FileMeta, document
from canal.position import Position
from canal.testing.fake import FakeBinlog
from tests.support.file_meta import CANAL_FILE, HERE, NEXT, UUID, started, stored

# What is in the file.


def test_canal_can_read_the_file(folder: Path) -> None:
    data = (folder / "meta.dat").read_bytes()
    assert data.isascii()
    document = json.loads(data)
    assert document["destination"] == "example"
    (client,) = document["clientDatas"]
    assert client["clientIdentity"] == {"clientId": 1, "destination": "example", "filter": "shop\\..*"}
    assert client["cursor"]["postion"] == {
        "gtid": f"{UUID}:1-6",
        "included": False,
        "journalName": "bin.000002",
        "position": 4,
        "serverId": 0,
        "timestamp": 0,
    }
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


def test_every_changed_byte_is_noticed_or_harmless(folder: Path, thorough: bool) -> None:
    whole, spare = (folder / "meta.dat").read_bytes(), (folder / "meta.dat.bak").read_bytes()
    for at in range(len(whole)):
        for value in {0, 0xFF, whole[at] ^ 1, whole[at] ^ 0x20} - {whole[at]} if thorough else {whole[at] ^ 1}:
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
    if os.geteuid() != 0 or not shutil.which("mount") or subprocess.run(mount, capture_output=True, check=False).returncode != 0:
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
    assert stored(folder.parent) == NEXT


def _thread_names() -> set[str]:
    return {thread.name for thread in threading.enumerate()}


def test_a_thread_flushes_and_stop_flushes(tmp_path: Path) -> None:
    with started(tmp_path, interval=0.05) as meta:
        assert "canal-example-meta" in _thread_names()
        meta.subscribe(1, "")
        meta.update_cursor(1, HERE)
        meta.update_cursor(1, NEXT)
        ends = time.monotonic() + 60
        while stored(tmp_path) != NEXT and time.monotonic() < ends:
            time.sleep(0.01)
        assert stored(tmp_path) == NEXT
    assert "canal-example-meta" not in _thread_names()


def test_only_later_cursors_wait_for_the_flush(tmp_path: Path) -> None:
    with started(tmp_path, interval=3600) as meta:
        meta.subscribe(1, "")
        meta.update_cursor(1, HERE)
        assert stored(tmp_path) == HERE, "the first cursor is durable at once"
        meta.update_cursor(1, NEXT)
        assert stored(tmp_path) == HERE
        assert meta.cursor(1) == NEXT
        meta.flush()
        assert stored(tmp_path) == NEXT
        meta.update_cursor(1, HERE)
    assert stored(tmp_path) == HERE


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
        while stored(folder.parent) != HERE and time.monotonic() < ends:
            time.sleep(0.01)
        assert stored(folder.parent) == HERE


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
        os.close(meta._folder._claim or -1)  # what the kernel does when the parent is killed
        meta._folder._claim = None
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
    if not shutil.which("mount") or subprocess.run(bind, capture_output=True, check=False).returncode != 0:
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
    ("obstacle", "seconds"), [(_full, -1.0), (_full, math.inf), (_read_only, -1.0), (_in_the_way, -1.0), (_in_the_way, math.inf)]
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
