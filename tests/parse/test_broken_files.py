"""Logs in files of which something is missing, or which are begun anew: the rest is delivered, or an error says what is not."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import closing, suppress
from itertools import accumulate
from pathlib import Path
from typing import Any

import pytest

import canal
from canal import Position, PositionLostError
from canal.errors import LostReason
from canal.parse.source import file_listing
from tests.support.parsing import order, rows_of, shop, started

SETUPS = {"mysql": {}, "without gtids": {"gtid": False}, "mariadb": {"flavor": "mariadb"}}
setups = pytest.mark.parametrize("setup", SETUPS)


class Log:
    """Files of a directory: each has three transactions of one row, with the numbers 10, 11, 12 in the first of them."""

    def __init__(self, directory: Path, setup: str, ends: str = "rotate rotate rotate", begun: int = 1000) -> None:
        self.directory = directory
        self.now = begun
        self.fake, self.orders = shop(**({"clock": lambda: float(self.now)} | SETUPS[setup]))
        self.number = 1
        self.write()
        self.go_on(ends)

    def go_on(self, ends: str) -> None:
        for end in ends.split():
            getattr(self.fake, end)()
            self.number, self.now = self.number + 1, self.now + 100
            self.write()
        self.files = self.fake.write(self.directory)

    def write(self) -> None:
        for one in range(3):
            self.orders.insert(order(10 * self.number + one))

    def index(self) -> Path:
        return self.directory / "binlog.index"

    def remove(self, *numbers: int, listed: bool = False) -> None:
        for number in numbers:
            self.files[number - 1].unlink()
        if not listed:
            self.list(path for path in self.files if path.exists())

    def list(self, paths: Iterable[Path]) -> None:
        new = self.index().with_suffix(".index_crash_safe")
        new.write_text("".join(f"./{path.name}\n" for path in paths))
        new.replace(self.index())

    def source(self, **options: Any) -> canal.LocalBinlogSource:
        return canal.LocalBinlogSource(self.directory, poll_interval=0.001, **options)

    def read(self, start: Any = "earliest", **options: Any) -> tuple[list[int], canal.CanalError | None, list[str]]:
        """The rows up to the end of the log or an error, that error, and the alarms."""
        alarms: list[str] = []
        found: list[int] = []
        options.setdefault("source", self.source())
        with started(self.fake, start=start, alarm=lambda _, text: alarms.append(text), **options) as instance:
            try:
                instance.subscribe()
                for message in instance.stream(100):
                    found += ids(message)
            except canal.CanalError as error:
                return found, error, alarms
        return found, None, alarms


def ids(message: canal.Message) -> list[int]:
    return [after for _, _, after in rows_of(list(message.entries))]


def rows(*numbers: int) -> list[int]:
    return [10 * number + one for number in numbers for one in range(3)]


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_listing, "PATIENCE", 0.0)


def gap(error: canal.CanalError | None, behind: str) -> None:
    assert isinstance(error, PositionLostError), error
    assert error.reason is LostReason.GAP, error
    assert error.behind.journal == behind
    assert error.remedy


@setups
@pytest.mark.parametrize("listed", ["by the index", "by no index", "still"])
@pytest.mark.parametrize("end", ["rotate", "restart"])
def test_a_missing_file(tmp_path: Path, setup: str, listed: str, end: str) -> None:
    log = Log(tmp_path, setup, f"{end} rotate rotate")
    assert log.read() == (rows(1, 2, 3, 4), None, [])
    log.remove(2, listed=listed == "still")
    if listed == "by no index":
        log.index().unlink()

    found, error, _ = log.read()
    assert found == rows(1)
    gap(error, "binlog.000003")

    found, error, alarms = log.read(on_lost="earliest")
    assert (found, error) == (rows(1, 3, 4), None)
    assert any("binlog.000003" in text and "LOST" in text for text in alarms)


@setups
@pytest.mark.parametrize("at_end", [False, True])
def test_a_restart_at_the_end_of_a_file_whose_next_one_is_gone(tmp_path: Path, setup: str, at_end: bool) -> None:
    log = Log(tmp_path, setup, "")
    log.read(meta=canal.FileMeta(tmp_path / "meta"))
    log.go_on("rotate rotate rotate")
    meta = canal.FileMeta(tmp_path / "meta")
    if at_end:  # behind the ROTATE, which tells the next one
        position = Position(journal="binlog.000001", offset=log.files[0].stat().st_size)
        meta.start("test")
        meta.update_cursor(1001, position)
        meta.stop()
    log.remove(2)

    found, error, _ = log.read(meta=meta)
    assert found == []
    gap(error, "binlog.000003")
    assert log.read(Position(journal="binlog.000003", offset=log.files[2].stat().st_size))[:2] == (rows(4), None)

    log.remove(1)
    _, error, _ = log.read(meta=meta)
    assert isinstance(error, PositionLostError)
    assert error.reason is LostReason.PURGED


@setups
@pytest.mark.parametrize("is_there", [False, True], ids=["removed", "only taken from the index"])
def test_a_purge_while_the_store_is_full(tmp_path: Path, setup: str, is_there: bool) -> None:
    """Each transaction is in pieces. What it takes back is looked up in the open file, which has no name any more."""
    log = Log(tmp_path, setup, "rotate rotate rotate rotate")
    with started(log.fake, source=log.source(follow=True), store_entries=4) as instance:
        instance.subscribe()
        found = ids(instance.get(1, timeout=60))
        if is_there:
            log.list(log.files[3:])
        else:
            log.remove(1, 2, 3)
        with pytest.raises(PositionLostError) as caught:
            while True:
                found += ids(instance.get(100, timeout=60))

    assert found == rows(1)  # of the file that was open
    gap(caught.value, "binlog.000004")


@setups
@pytest.mark.parametrize("end", ["rotate", "restart"])
def test_a_closed_file_that_is_cut_at_the_end_of_any_event(tmp_path: Path, setup: str, end: str) -> None:
    """Without GTIDs nothing tells a cut from a crash where a server has started behind it: docs/limits.md."""
    log = Log(tmp_path, setup, f"{end} rotate")
    path = log.files[0]
    whole = path.read_bytes()
    ends = [4]
    for event in log.fake.events(path.name):
        ends.append(ends[-1] + len(event))
    for at in ends[2:-1]:
        path.write_bytes(whole[:at])
        found, error, _ = log.read()
        if error is not None:
            assert found == rows(1)[: len(found)]
            gap(error, "binlog.000002")
        else:
            assert end == "restart"
            assert found == rows(1, 2, 3) or setup == "without gtids"


@setups
def test_a_file_out_of_which_any_event_is_cut(tmp_path: Path, setup: str) -> None:
    log = Log(tmp_path, setup, "rotate rotate")
    path = log.files[0]
    events = log.fake.events(path.name)
    for number in range(1, len(events) - 1):
        path.write_bytes(b"\xfebin" + b"".join(events[:number] + events[number + 1 :]))
        found, error, _ = log.read()
        assert found == rows(1)[: len(found)]
        assert isinstance(error, canal.DecodeError), (number, error)
        assert error.position is not None


@setups
@pytest.mark.parametrize("later", [1100, 1000], ids=["later", "at once"])
def test_a_log_that_is_reset_under_the_reader(tmp_path: Path, setup: str, later: int) -> None:
    """The rows that the new log has come, whatever its numbers are. It begins as the old one did, if that was at once."""
    log = Log(tmp_path, setup, "")
    with started(log.fake, source=log.source(follow=True), on_lost="earliest") as instance:
        instance.subscribe()
        found: list[int] = []
        while len(found) < 3:
            found += ids(instance.get(100, timeout=60))
        log.files[0].unlink()
        anew = Log(tmp_path, setup, "rotate", begun=later)
        while len(found) < 9:
            found += ids(instance.get(100, timeout=60))
    assert found == rows(1) + rows(1, 2)
    assert anew.read()[0] == rows(1, 2)


@setups
def test_a_log_that_was_reset_while_nobody_read_it(tmp_path: Path, setup: str) -> None:
    log = Log(tmp_path, setup, "")
    meta = tmp_path / "meta"
    with started(log.fake, source=log.source(), meta=canal.FileMeta(meta)) as instance:
        instance.subscribe()
        found: list[int] = []
        while len(found) < 3:
            found += ids(instance.get(100, timeout=60))
    Log(tmp_path, setup, "rotate", begun=1100)

    found, error, _ = log.read(meta=canal.FileMeta(meta))
    assert found == []
    assert isinstance(error, PositionLostError)
    assert error.reason is LostReason.DIVERGED
    assert log.read(meta=canal.FileMeta(meta), on_lost="earliest")[:2] == (rows(1, 2), None)


@setups
@pytest.mark.parametrize("on_lost", ["fail", "earliest"])
def test_a_missing_file_that_was_read_already(tmp_path: Path, setup: str, on_lost: str) -> None:
    """Nothing is missing of what is still to be read; what may be wrong are the columns, of which an alarm tells."""
    log = Log(tmp_path, setup)
    log.remove(2, listed=True)
    source = log.source(schema={"shop.orders": "id int primary key"})
    found, error, alarms = log.read(Position(journal="binlog.000003", offset=4), on_lost=on_lost, source=source)
    assert (found, error) == (rows(3, 4), None)
    (alarm,) = alarms
    assert "binlog.000002" in alarm
    assert "columns" in alarm


@setups
@pytest.mark.parametrize("end", ["rotate", "restart"])
@pytest.mark.parametrize("anew", [True, False])
def test_a_log_that_is_begun_anew_while_it_is_read_to_its_end(tmp_path: Path, setup: str, end: str, anew: bool) -> None:
    """A file that was to be read is gone; or it was never there: then the log was copied while its last file was closed."""
    log = Log(tmp_path, setup, end)
    if not anew:
        log.remove(2)
    with closing(log.source().connect()) as connection:
        connection.dump(connection.resolve("earliest"))
        assert connection.read(1.0)
        if not anew:
            assert connection.read(1.0) is None
            return
        log.remove(1, 2)
        Log(tmp_path, setup, "")
        with pytest.raises(PositionLostError, match="binlog.000001 was replaced") as caught:
            connection.read(1.0)
    assert caught.value.reason is LostReason.DIVERGED


@setups
def test_an_offset_at_which_no_event_begins(tmp_path: Path, setup: str) -> None:
    """Whatever stands there: no end of the log, no wait for the rest of an event."""
    log = Log(tmp_path, setup, "")
    data = log.files[0].read_bytes()
    begins = list(accumulate(map(len, log.fake.events("binlog.000001")), initial=4))
    for offset in range(begins[2], len(data) - 18):
        with closing(log.source().connect()) as connection:
            connection.dump(Position(journal="binlog.000001", offset=offset))
            connection.read(1.0)
            if offset in begins:
                assert connection.read(1.0)
            elif any(data[offset + 13 : offset + 17]):
                with pytest.raises(PositionLostError, match=f"no event begins at offset {offset} of ") as caught:
                    connection.read(1.0)
                assert caught.value.reason is LostReason.BEYOND
            else:  # MariaDB may leave out where an event ends
                with suppress(PositionLostError):
                    assert connection.read(1.0), "what does not fit is the decoder's to see"
    assert log.read(Position(journal="binlog.000001", offset=begins[2]))[:2] == (rows(1), None)
