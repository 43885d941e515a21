"""Binlog files as a source: order of the files, start positions, following, and what is refused."""

from __future__ import annotations

import logging
import struct
import threading
import zlib
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import attrs
import pytest

import canal
from canal.errors import (
    ConfigError,
    ConnectionLostError,
    DecodeError,
    LostReason,
    PositionLostError,
    TruncatedError,
    UnsupportedError,
)
from canal.parse.log.framing import FileFramer
from canal.parse.source import file_listing, file_reader
from canal.parse.source.file_listing import MAGIC
from canal.parse.source.files import LocalBinlogConnection, LocalBinlogSource
from canal.parse.source.mysql import MySQLSource
from canal.parse.source.sealing import rotate_event
from canal.parse.source.session import QuerySession
from canal.position import Position
from canal.testing.fake import FakeBinlog
from tests.support.parsing import decoded, order, rows_of, shop

FORMAT, QUERY, ROTATE, XID, GTID, PREVIOUS_GTIDS = 15, 2, 4, 16, 33, 35
SID = bytes(range(16))
SERVER = "00010203-0405-0607-0809-0a0b0c0d0e0f"


class Journal:
    """The bytes of a MySQL binlog file with checksums."""

    def __init__(self, time: int = 1000, version: bytes = b"8.0.40", flags: int = 0, executed: int = 0) -> None:
        self.data = MAGIC
        body = struct.pack("<H50sIB", 4, version, time, 19) + bytes(40) + b"\1"
        self.add(FORMAT, time, body)
        if flags:  # the server sets the flag after it made the checksum
            self.data = self.data[:21] + bytes((flags,)) + self.data[22:]
        intervals = struct.pack("<16sQQQ", SID, 1, 1, executed + 1) if executed else b""
        self.add(PREVIOUS_GTIDS, time, struct.pack("<Q", 1 if executed else 0) + intervals)

    def add(self, kind: int, time: int, body: bytes) -> int:
        size = 19 + len(body) + 4
        start = len(self.data)
        event = struct.pack("<IBIIIH", time, kind, 7, size, start + size, 0) + body
        self.data += event + zlib.crc32(event).to_bytes(4, "little")
        return start

    def transaction(self, time: int, number: int) -> int:
        start = self.add(GTID, time, b"\1" + SID + struct.pack("<Q", number) + bytes(17))
        self.add(QUERY, time, struct.pack("<IIBHH", 1, 0, 0, 0, 0) + b"\0BEGIN")
        self.add(XID, time, bytes(8))
        return start

    def rotate(self, time: int, name: bytes) -> None:
        self.add(ROTATE, time, struct.pack("<Q", 4) + name)

    def events(self) -> int:
        count, at = 0, 4
        while at < len(self.data):
            at += int.from_bytes(self.data[at + 9 : at + 13], "little")
            count += 1
        return count


def write(path: Path, journal: Journal) -> Path:
    path.write_bytes(journal.data)
    return path


def append(path: Path, journal: Journal) -> None:
    """Bring a file to the journal's present bytes as a server does, never shrinking it."""
    with path.open("r+b") as file:
        file.seek(0, 2)
        file.write(journal.data[file.tell() :])


def everything(source: LocalBinlogSource, position: Position | None = None) -> list[bytes]:
    with closing(source.connect()) as connection:
        connection.dump(position or connection.resolve("earliest"))
        found: list[bytes] = []
        while (events := connection.read(1.0)) is not None:
            found += events
    return found


@contextmanager
def following(path: Path) -> Iterator[LocalBinlogConnection]:
    with closing(LocalBinlogSource(path, follow=True, poll_interval=0.001).connect()) as connection:
        connection.dump(connection.resolve("earliest"))
        yield connection


def names(events: list[bytes]) -> list[str]:
    return [event[27:-4].decode() for event in events if event[4] == ROTATE and event[17] & 0x20]


def test_a_file_is_read_as_a_server_sends_it(tmp_path: Path) -> None:
    journal = Journal()
    journal.transaction(1000, 1)
    path = write(tmp_path / "binlog.000001", journal)

    events = everything(LocalBinlogSource(path))

    assert events[0] == rotate_event("binlog.000001", 4, checksum=True)
    assert b"".join(events[1:]) == journal.data[4:]
    assert all(zlib.crc32(event) == 0x2144DF1C for event in events)


def test_files_of_a_directory_come_in_numeric_order(tmp_path: Path) -> None:
    """T33"""
    for name in ("bin.1000000", "bin.999999", "bin.1000001"):
        write(tmp_path / name, Journal())
    (tmp_path / "notes.txt").write_text("no binlog")

    assert names(everything(LocalBinlogSource(tmp_path))) == ["bin.999999", "bin.1000000", "bin.1000001"]


def test_an_index_file_decides_what_belongs_to_the_log(tmp_path: Path) -> None:
    for name in ("a.000001", "b.000001", "b.000002"):
        write(tmp_path / name, Journal())
    (tmp_path / "b.index").write_text("C:\\purged\\b.000000\n./b.000001\n/var/lib/elsewhere/b.000002\n")

    assert names(everything(LocalBinlogSource(tmp_path))) == ["b.000001", "b.000002"]
    assert names(everything(LocalBinlogSource(tmp_path / "b.index"))) == ["b.000001", "b.000002"]


def test_two_index_files_must_be_told_apart(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write(tmp_path / f"{name}.000001", Journal())
        (tmp_path / f"{name}.index").write_text(f"{name}.000001\n")

    with pytest.raises(ConfigError, match="2 index files"):
        LocalBinlogSource(tmp_path).connect()


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_listing, "PATIENCE", 0.0)


def index_of(directory: Path, *numbers: int) -> Path:
    index = directory / "bin.index"
    index.write_text("".join(f"./bin.{number:06}\n" for number in numbers))
    return index


def journals_of(directory: Path, *numbers: int) -> None:
    for number in numbers:
        write(directory / f"bin.{number:06}", Journal())


@pytest.mark.parametrize("by_index", [True, False])
def test_an_index_that_is_away_for_a_moment_is_looked_for_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by_index: bool
) -> None:
    """MySQL writes it anew beside the old one, deletes that, and renames the new one."""
    journals_of(tmp_path, 1)
    index = index_of(tmp_path, 1)
    away = index.with_name("bin.index_crash_safe")
    path = index if by_index else tmp_path
    pauses: list[float] = []

    def rewritten(*_: Any) -> None:
        pauses.append(0)
        away.rename(index)

    monkeypatch.setattr(LocalBinlogConnection, "_pause", rewritten)
    index.rename(away)
    with following(path) as connection:
        connection.read(1.0)
        index.rename(away)
        assert connection.read(0.001) == []
        journals_of(tmp_path, 2)
        index_of(tmp_path, 1, 2)
        index.rename(away)
        assert names(connection.read(1.0) or []) == ["bin.000002"]
    index.rename(away)
    assert names(everything(LocalBinlogSource(path))) == ["bin.000001", "bin.000002"]
    assert len(pauses) == 4


@pytest.mark.usefixtures("impatient")
def test_an_index_that_stays_away_is_an_error(tmp_path: Path) -> None:
    journals_of(tmp_path, 1)
    index = index_of(tmp_path, 1)
    with following(index) as connection:
        connection.read(1.0)
        index.unlink()
        with pytest.raises(ConfigError, match=r"there is no .*bin\.index.*Give") as caught:
            connection.read(1.0)
    assert caught.value.remedy
    source = LocalBinlogSource(index)
    for ask in (source.connect, source.journals, lambda: source.read_end(1.0)):
        with pytest.raises(ConfigError, match="bin.index"):
            ask()


@pytest.mark.parametrize("lines", [(1, 2, 2), (2, 1, 2), (1, 2, 1, 2)])
def test_an_index_with_a_line_twice_names_each_file_once(tmp_path: Path, lines: tuple[int, ...]) -> None:
    """MariaDB writes it anew in place when it purges: what remains is copied to the beginning, then the rest is cut off."""
    journals_of(tmp_path, 1, 2)
    index = index_of(tmp_path, *lines)

    assert names(everything(LocalBinlogSource(tmp_path))) == ["bin.000001", "bin.000002"]
    with following(index) as connection:
        assert names(connection.read(1.0) or []) == ["bin.000001"]
        assert names(connection.read(1.0) or []) == ["bin.000002"]
        assert connection.read(0.001) == []


def test_an_index_that_is_cut_off_while_it_is_read_is_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journals_of(tmp_path, 1, 2)
    index = index_of(tmp_path, 1, 2)
    read, states = Path.read_text, ["./bin.000001\n"]

    def read_text(path: Path, *args: Any) -> str:
        return states.pop() if states and path == index else read(path, *args)

    monkeypatch.setattr(Path, "read_text", read_text)
    assert [path.name for path in LocalBinlogSource(index).journals()] == ["bin.000001", "bin.000002"]


def test_the_logs_of_two_series_are_not_joined(tmp_path: Path) -> None:
    for name in ("bin.000001", "bin.000002"):
        write(tmp_path / name, Journal())
    (tmp_path / "core.4711").write_bytes(b"no binlog")
    (tmp_path / "lock.1").touch()
    assert names(everything(LocalBinlogSource(tmp_path))) == ["bin.000001", "bin.000002"]

    with following(tmp_path) as connection:
        assert names(connection.read(1.0) or []) == ["bin.000001"]
        write(tmp_path / "relay.000003", Journal())
        assert names(connection.read(1.0) or []) == ["bin.000002"]
        assert connection.read(0.001) == []
    with pytest.raises(ConfigError, match=r"2 logs: bin\.\*, relay\.\*.*a separate directory"):
        LocalBinlogSource(tmp_path).connect()


@pytest.mark.usefixtures("impatient")
def test_a_file_that_the_index_lists_is_not_passed_over(tmp_path: Path) -> None:
    """The oldest ones may be gone: a purge takes their lines away first, an operator may not."""
    journals_of(tmp_path, 2, 4)
    source = LocalBinlogSource(index_of(tmp_path, 1, 2, 3, 4))
    assert [path.name for path in source.journals()] == ["bin.000002", "bin.000003", "bin.000004"]
    assert [name for name, _ in source.read_end(1.0).journals] == ["bin.000002", "bin.000004"]

    for follow in (False, True):
        with closing(attrs.evolve(source, follow=follow).connect()) as connection:
            connection.dump(connection.resolve("earliest"))
            assert names(connection.read(1.0) or []) == ["bin.000002"]
            with pytest.raises(PositionLostError, match=r"bin\.000003 is missing") as caught:
                connection.read(1.0)
            assert caught.value.reason is LostReason.GAP
            assert caught.value.behind == Position(journal="bin.000004", offset=4)
    with closing(source.connect()) as connection:
        for start in (Position(journal="bin.000003", offset=4), Position(timestamp=2_000_000)):
            with pytest.raises(PositionLostError, match=r"bin\.000003 is missing"):
                connection.resolve(start)


def test_a_file_that_is_listed_and_not_there_yet_is_waited_for(tmp_path: Path) -> None:
    """As where files are copied one by one, the index first."""
    journals_of(tmp_path, 1)
    with following(index_of(tmp_path, 1, 2)) as connection:
        connection.read(1.0)
        assert connection.read(0.001) == []
        journals_of(tmp_path, 2)
        assert names(connection.read(1.0) or []) == ["bin.000002"]


@pytest.mark.parametrize("by_index", [True, False])
def test_a_file_that_is_purged_between_finding_and_opening_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by_index: bool
) -> None:
    journals_of(tmp_path, 1, 2, 3)
    if by_index:
        index_of(tmp_path, 1, 2, 3)
    to_purge = [1]
    opened = file_reader.JournalReader.__init__

    def purged_before(self: Any, path: Path, start: int = 4) -> None:
        if to_purge and path.name == f"bin.{to_purge[0]:06}":
            if by_index:
                index_of(tmp_path, *range(to_purge.pop() + 1, 4))
            path.unlink()
            to_purge.clear()
        opened(self, path, start)

    monkeypatch.setattr(file_reader.JournalReader, "__init__", purged_before)
    with closing(LocalBinlogSource(tmp_path).connect()) as connection:
        assert connection.resolve("earliest").journal == "bin.000002"
        to_purge.append(2)
        with pytest.raises(PositionLostError, match="there is no file bin.000002.* it has bin.000003 to bin.000003") as caught:
            connection.dump(Position(journal="bin.000002", offset=4))
        assert caught.value.remedy
    journals_of(tmp_path, 1, 2)
    index_of(tmp_path, *((1, 2, 3) if by_index else ()))
    if not by_index:
        (tmp_path / "bin.index").unlink()
    with following(tmp_path) as connection:
        assert names(connection.read(1.0) or []) == ["bin.000001"]
        to_purge.append(2)
        assert names(connection.read(1.0) or []) == ["bin.000003"]  # as it is: whether it may follow is the decoder's to judge


@pytest.mark.parametrize("anew", [True, False])
@pytest.mark.parametrize("later", [True, False])
def test_a_log_that_is_begun_anew_under_the_reader_is_another_one(tmp_path: Path, anew: bool, later: bool) -> None:
    journal = Journal()
    path = write(tmp_path / "bin.000002", journal)
    with following(tmp_path) as connection:
        connection.read(1.0)
        journal.transaction(1000, 1)
        append(path, journal)
        path.unlink()
        if anew:
            journals_of(tmp_path, 1, 2)
        if later:
            journals_of(tmp_path, 3)
        assert len(connection.read(1.0) or []) == 3  # what is in the open file was done
        if later and not anew:  # no more than a purge
            assert names(connection.read(1.0) or []) == ["bin.000003"]
            return
        with pytest.raises(PositionLostError, match="the log was reset") as caught:
            connection.read(1.0)
    assert caught.value.reason is LostReason.DIVERGED


def test_a_rotation_and_a_purge_at_once_are_no_new_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "bin.000001", Journal())
    with following(tmp_path) as connection:
        connection.read(1.0)
        listed = connection._list

        def before_both() -> list[Path]:
            found = listed()
            if path.exists():
                journals_of(tmp_path, 2)
                path.unlink()
            return found

        monkeypatch.setattr(connection, "_list", before_both)
        assert names(connection.read(1.0) or []) == ["bin.000002"]


def test_a_single_file_that_is_deleted_while_it_is_read_ends_as_others(tmp_path: Path) -> None:
    path = write(tmp_path / "bin.000001", Journal())
    with closing(LocalBinlogSource(path).connect()) as connection:
        connection.dump(connection.resolve("earliest"))
        path.unlink()
        assert connection.read(1.0)
        assert connection.read(1.0) is None


def test_a_file_that_is_cut_under_the_reader_is_read_anew_from_what_was_done(tmp_path: Path) -> None:
    """A server that starts after a crash cuts what is not whole."""
    journal = Journal()
    done = len(journal.data)
    journal.transaction(1000, 1)
    end = len(journal.data)
    path = write(tmp_path / "bin.000001", journal)
    with following(tmp_path) as connection:
        connection.read(1.0)
        with path.open("r+b") as file:
            file.truncate(done)
        with pytest.raises(ConnectionLostError, match=f"was cut to {done} bytes after {end} were read"):
            connection.read(1.0)
    with following(tmp_path) as connection, pytest.raises(PositionLostError) as caught:
        connection.resolve(Position(journal="bin.000001", offset=end))
    assert caught.value.reason is LostReason.BEYOND


def test_a_connection_that_was_closed_opens_no_file(tmp_path: Path) -> None:
    write(tmp_path / "bin.000001", Journal())
    connection = LocalBinlogSource(tmp_path).connect()
    connection.close()

    with pytest.raises(ConnectionLostError):
        connection.dump(Position(journal="bin.000001", offset=4))


def test_a_first_file_without_a_head_is_waited_for(tmp_path: Path) -> None:
    """Whose log it is stands in the head."""
    path = tmp_path / "bin.000001"
    path.write_bytes(MAGIC)
    with pytest.raises(ConnectionLostError, match="no FORMAT_DESCRIPTION yet"):
        LocalBinlogSource(tmp_path, follow=True).connect()
    write(path, Journal(version=b"10.11.19-MariaDB-log"))
    with following(tmp_path) as connection:
        assert connection.flavor == "mariadb"


@pytest.mark.parametrize("kind", ["flag", "artificial", "rotated"])
def test_a_relay_log_is_refused_by_name(tmp_path: Path, kind: str) -> None:
    """Replicas before MySQL 5.6 and MariaDB 10.5 set no flag in the head."""
    journal = Journal(flags=0x40 if kind == "flag" else 0)
    if kind == "artificial":
        journal.data += rotate_event("source-bin.000001", 4, checksum=True)
    if kind == "rotated":
        start = len(journal.data)
        journal.rotate(1000, b"bin.000002")
        journal.data = journal.data[: start + 17] + b"\x40" + journal.data[start + 18 :]
    path = write(tmp_path / "bin.000001", journal)

    with pytest.raises(UnsupportedError, match=r"bin.000001: this is a replica's relay log.*Read the source's"):
        everything(LocalBinlogSource(path))


def test_a_single_file_is_read_alone(tmp_path: Path) -> None:
    write(tmp_path / "bin.000002", Journal())

    assert names(everything(LocalBinlogSource(write(tmp_path / "bin.000001", Journal())))) == ["bin.000001"]


def test_a_start_inside_a_file_sends_a_format_description_that_has_no_place(tmp_path: Path) -> None:
    journal = Journal(time=1000)
    journal.transaction(1001, 1)
    second = journal.transaction(1002, 2)
    path = write(tmp_path / "bin.000001", journal)

    rotate, head, *rest = everything(LocalBinlogSource(path), Position(journal="bin.000001", offset=second))

    assert rotate == rotate_event("bin.000001", second, checksum=True)
    assert head[4] == FORMAT
    assert head[13:17] == bytes(4)  # no end position
    assert head[71:75] == bytes(4)  # not created: it rolls nothing back
    assert zlib.crc32(head) == 0x2144DF1C
    assert b"".join(rest) == journal.data[second:]


def test_the_mark_of_a_file_in_use_is_taken_away_so_that_its_checksum_holds(tmp_path: Path) -> None:
    events = everything(LocalBinlogSource(write(tmp_path / "bin.000001", Journal(flags=1))))

    assert events[1][17] == 0
    assert zlib.crc32(events[1]) == 0x2144DF1C


@pytest.mark.parametrize("cut", [1, 18, 19, 26])
def test_a_truncated_tail_is_an_error_with_file_and_offset(tmp_path: Path, cut: int) -> None:
    """T35"""
    journal = Journal()
    journal.transaction(1000, 1)
    end = len(journal.data) - 31  # the XID event
    (tmp_path / "bin.000001").write_bytes(journal.data[: end + cut])

    with pytest.raises(TruncatedError, match=f"bin.000001 ends inside the event at offset {end}"):
        everything(LocalBinlogSource(tmp_path))


def test_a_truncated_tail_of_a_file_in_use_ends_the_log(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """T35"""
    journal = Journal(flags=1)
    journal.transaction(1000, 1)
    (tmp_path / "bin.000001").write_bytes(journal.data[:-5])

    with caplog.at_level(logging.WARNING):
        events = everything(LocalBinlogSource(tmp_path))

    assert len(events) == journal.events()  # one less, and the ROTATE
    assert "ends inside the event" in caplog.text


def test_follow_waits_for_whole_events_and_for_new_files(tmp_path: Path) -> None:
    journal = Journal(flags=1)
    path = tmp_path / "bin.000001"
    size = len(journal.data)
    journal.transaction(1000, 1)
    path.write_bytes(journal.data[: size + 30])

    with following(tmp_path) as connection:
        assert len(connection.read(1.0) or []) == 3
        assert connection.read(0.01) == []  # the event is not whole
        append(path, journal)
        assert len(connection.read(1.0) or []) == 3
        journal.rotate(1001, b"bin.000002")
        append(path, journal)
        assert [event[4] for event in connection.read(1.0) or []] == [ROTATE]
        assert connection.read(0.01) == []
        (tmp_path / "bin.000002").write_bytes(b"\xfe")  # the server has only begun it
        assert connection.read(0.01) == []
        append(tmp_path / "bin.000002", Journal())
        assert names(connection.read(1.0) or []) == ["bin.000002"]


def test_a_file_alone_is_followed_into_its_successors(tmp_path: Path) -> None:
    path = write(tmp_path / "bin.000001", Journal())
    write(tmp_path / "other.000002", Journal())

    with following(path) as connection:
        connection.read(1.0)
        assert connection.read(0.01) == []
        write(tmp_path / "bin.000002", Journal())

        assert names(connection.read(1.0) or []) == ["bin.000002"]


def test_close_from_another_thread_ends_a_read_that_waits(tmp_path: Path) -> None:
    write(tmp_path / "bin.000001", Journal())
    connection = LocalBinlogSource(tmp_path, follow=True, poll_interval=60.0).connect()
    connection.dump(connection.resolve("earliest"))
    connection.read(1.0)

    threading.Timer(0.05, connection.close).start()
    with pytest.raises(ConnectionLostError):
        connection.read(60.0)


@pytest.fixture
def log_of_three(tmp_path: Path) -> dict[tuple[int, int], int]:
    """bin.000001 … 3 with transactions at times 100·file + 10·number; gives their offsets."""
    offsets, number = {}, 0
    for file in (1, 2, 3):
        journal = Journal(time=100 * file, executed=number)
        for i in (1, 2, 3):
            number += 1
            offsets[file, i] = journal.transaction(100 * file + 10 * i, number)
        journal.rotate(100 * file + 40, b"bin.%06d" % (file + 1))
        write(tmp_path / f"bin.{file:06}", journal)
    return offsets


@pytest.mark.parametrize(
    ("time", "file", "number", "executed"),
    [(50, 1, 1, 0), (110, 1, 1, 0), (111, 1, 2, 1), (131, 2, 1, 3), (200, 2, 1, 3), (215, 2, 2, 4), (330, 3, 3, 8)],
)
def test_a_time_becomes_the_start_of_the_next_transaction(
    tmp_path: Path, log_of_three: dict[tuple[int, int], int], time: int, file: int, number: int, executed: int
) -> None:
    found = LocalBinlogSource(tmp_path).connect().resolve(Position(timestamp=time * 1000))

    assert (found.journal, found.offset) == (f"bin.{file:06}", log_of_three[file, number])
    assert found.gtid == (f"{SERVER}:1-{executed}" if executed > 1 else f"{SERVER}:1" if executed else "")


@pytest.mark.parametrize(
    ("begins", "time", "first"),
    [
        ([100, 1000, 200, 300], 250, 1),  # the second one was begun by a clock that was ahead
        ([100, 1000, 200, 300], 150, 1),
        ([100, 1000, 200, 300], 900, 1),
        ([100, 10, 200, 300], 150, 2),  # by one that was behind
        ([100, 10, 20, 300], 150, 3),
        ([100, 200, 150, 400], 200, 1),
        ([100, 100, 100], 100, 0),
        ([100, 90, 80], 500, 3),  # not yet
    ],
)
@pytest.mark.parametrize("served", [False, True], ids=["files", "server"])
def test_a_start_by_time_leaves_nothing_out_that_a_clock_which_went_back_has_stamped(
    tmp_path: Path, begins: list[int], time: int, first: int, served: bool
) -> None:
    """Each log has a transaction of the second in which it was begun."""
    now = [begins[0]]
    fake, orders = shop(clock=lambda: float(now[0]))
    starts = [fake.position]
    orders.insert(order(1))
    for now[0] in begins[1:]:
        fake.rotate()
        starts.append(fake.position)
        orders.insert(order(1))
    starts.append(fake.position)
    fake.write(tmp_path)

    with fake.serve(user="u", password="p") as server:
        source: Any = LocalBinlogSource(tmp_path)
        if served:
            source = MySQLSource(host=server.host, port=server.port, user="u", password="p", ssl_mode="DISABLED")
        with closing(source.connect()) as connection:
            found = connection.resolve(Position(timestamp=time * 1000))

    assert (found.journal, found.offset) == (starts[first].journal, starts[first].offset)


@pytest.mark.parametrize("served", [False, True], ids=["files", "server"])
def test_a_time_to_which_the_log_does_not_reach_back_is_lost(tmp_path: Path, served: bool) -> None:
    now = [1000]
    fake, orders = shop(clock=lambda: float(now[0]))
    for now[0] in (1000, 2000, 3000):
        orders.insert(order(1))
        fake.rotate()
    fake.purge("binlog.000002")
    fake.write(tmp_path)

    with fake.serve(user="u", password="p") as server:
        source: Any = LocalBinlogSource(tmp_path)
        if served:
            source = MySQLSource(host=server.host, port=server.port, user="u", password="p", ssl_mode="DISABLED")
        with closing(source.connect()) as connection:
            assert connection.resolve(Position(timestamp=1_001_000)).journal == "binlog.000002"
            with pytest.raises(
                PositionLostError,
                match=r"no log from before 1970-01-01 00:16:40 UTC.*binlog\.000002, created .* to binlog\.000004",
            ):
                connection.resolve(Position(timestamp=1_000_000))


def test_a_time_with_a_journal_stays_within_it(tmp_path: Path, log_of_three: Any) -> None:
    connection = LocalBinlogSource(tmp_path).connect()

    found = connection.resolve(Position(journal="bin.000002", timestamp=1000))
    late = connection.resolve(Position(journal="bin.000001", timestamp=131_000))

    assert (found.journal, found.offset) == ("bin.000002", log_of_three[2, 1])
    assert (late.journal, late.gtid) == ("bin.000001", f"{SERVER}:1-3")


def test_latest_is_the_end_of_the_last_whole_transaction(tmp_path: Path) -> None:
    journal = Journal(flags=1)
    journal.transaction(1000, 1)
    end = len(journal.data)
    journal.transaction(1001, 2)
    (tmp_path / "bin.000001").write_bytes(journal.data[:-31])  # its XID is not there yet

    found = LocalBinlogSource(tmp_path).connect().resolve("latest")

    assert (found.journal, found.offset, found.gtid) == ("bin.000001", end, f"{SERVER}:1")


def test_a_position_in_a_missing_file_names_what_is_there(tmp_path: Path, log_of_three: Any) -> None:
    connection = LocalBinlogSource(tmp_path).connect()

    with pytest.raises(PositionLostError, match=r"bin\.000009.*bin\.000001 to bin\.000003"):
        connection.resolve(Position(journal="bin.000009", offset=4))
    with pytest.raises(PositionLostError, match="before offset 99999"):
        connection.dump(Position(journal="bin.000001", offset=99999))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"\xfdbin" + bytes(100), "is encrypted"),
        (b"PK\x03\x04" + bytes(100), "is not a binlog file"),
        (b"\xfe\xfe\x0d\x01" + bytes(100), "keeps the log in InnoDB"),
        (MAGIC + struct.pack("<IBIIIH", 0, 1, 1, 19, 23, 0), "instead of a FORMAT_DESCRIPTION"),
        (Journal(version=b"5.0.96-log").data, "written by version 5.0.96"),
    ],
)
def test_files_that_cannot_be_decoded_are_refused(tmp_path: Path, data: bytes, message: str) -> None:
    (tmp_path / "bin.000001").write_bytes(data)

    with pytest.raises(UnsupportedError, match=message):
        LocalBinlogSource(tmp_path).connect()


@pytest.mark.parametrize("place", ["", "binlog-000000.ibb"])
def test_a_log_that_mariadb_keeps_in_innodb_is_refused(tmp_path: Path, place: str) -> None:
    (tmp_path / "binlog-000000.ibb").write_bytes(struct.pack("<IIIIQ", 0x010DFEFE, 14, 1, 0, 0) + bytes(16360))

    for follow in (False, True):
        with pytest.raises(UnsupportedError, match=r"binlog-000000\.ibb: MariaDB wrote it with binlog_storage_engine"):
            LocalBinlogSource(tmp_path / place, follow=follow).connect()


def test_a_file_that_mariadb_encrypted_is_refused(tmp_path: Path) -> None:
    journal = Journal(version=b"10.11.19-MariaDB")
    journal.data = journal.data[: 4 + int.from_bytes(journal.data[13:17], "little")]
    journal.add(164, 1000, bytes(17))
    (tmp_path / "bin.000001").write_bytes(journal.data + bytes(range(100)))

    with pytest.raises(UnsupportedError, match="is encrypted"):
        LocalBinlogSource(tmp_path).connect()


def test_damage_is_reported_with_its_file(tmp_path: Path) -> None:
    journal = Journal()
    (tmp_path / "bin.000001").write_bytes(journal.data + bytes(40))

    with pytest.raises(DecodeError, match=r"bin\.000001.*offset \d+ has the length 0"):
        everything(LocalBinlogSource(tmp_path))


@pytest.mark.parametrize("checksum", [True, False])
def test_a_damaged_head_is_noticed_wherever_reading_begins(tmp_path: Path, checksum: bool) -> None:
    """What is read from the middle of a file begins with a head without end and time of creation, sealed anew."""
    fake, orders = shop("mysql", checksum=checksum)
    start = fake.position
    orders.insert(order(1))
    whole = bytearray(MAGIC + b"".join(fake.events()))
    path = tmp_path / fake.journal

    for offset in (4, start.offset):
        path.write_bytes(whole)
        assert rows_of(decoded(everything(LocalBinlogSource(path), Position(fake.journal, offset)))) == [("INSERT", None, 1)]
        for at in (9, 23, 75, 90):  # server id, format, time of creation, length of a type
            path.write_bytes(whole[:at] + bytes((whole[at] ^ 0x10,)) + whole[at + 1 :])
            with pytest.raises(DecodeError):
                decoded(everything(LocalBinlogSource(path), Position(fake.journal, offset)))


@pytest.fixture
def bytes_read(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many bytes each read of a file gave."""
    found: list[int] = []

    class Counting(FileFramer):
        def advance(self, count: int) -> list[bytes]:
            found.append(count)
            return super().advance(count)

    monkeypatch.setattr(file_reader, "FileFramer", Counting)
    return found


def test_tables_of_which_nobody_tells_the_columns_do_not_make_a_file_be_read_again(tmp_path: Path, bytes_read: list[int]) -> None:
    fake = FakeBinlog(metadata="MINIMAL")
    orders = fake.table("shop", "orders", "id INT PRIMARY KEY")
    for number in range(100):
        fake.ddl(f"CREATE TABLE other{number} (id INT)", schema="shop")
        orders.insert({"id": number})
    (path,) = fake.write(tmp_path)
    config = canal.InstanceConfig(destination="files", source=LocalBinlogSource(tmp_path), start="earliest")

    with canal.Instance(config) as instance:
        instance.subscribe()
        rows = [row for message in instance.stream() for entry in message.entries for row in entry.rows]

    assert [row.after[0] for row in rows] == list(range(100))
    assert sum(bytes_read) <= 4 * path.stat().st_size


def test_the_end_of_a_file_that_grows_is_found_without_reading_it_again(tmp_path: Path, bytes_read: list[int]) -> None:
    """A server that is asked about tables is asked with the end of the log, again and again."""
    journal = Journal()
    path = write(tmp_path / "binlog.000001", journal)
    with closing(LocalBinlogSource(tmp_path, follow=True).connect()) as connection:
        connection._session = QuerySession(MySQLSource())
        for number in range(1, 200):
            journal.transaction(1000, number)
            path.write_bytes(journal.data)
            end = Position(journal=path.name, offset=len(journal.data))
            journal.add(GTID, 1000, b"\1" + SID + struct.pack("<Q", number + 1) + bytes(17))
            path.write_bytes(journal.data)  # of a transaction that has begun
            assert connection.end_of_log() == end
            journal.data = journal.data[: end.offset]
        assert sum(bytes_read) < 200 * (4096 + 1000)


def test_nothing_to_read_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(PositionLostError, match="no binlog file"):
        LocalBinlogSource(tmp_path).connect()
    with pytest.raises(ConfigError, match="there is no"):
        LocalBinlogSource(tmp_path / "missing").connect()


def test_flavor_is_told_by_the_file(tmp_path: Path) -> None:
    write(tmp_path / "bin.000001", Journal(version=b"10.11.19-MariaDB-log"))

    assert LocalBinlogSource(tmp_path).connect().flavor == "mariadb"


@pytest.mark.parametrize(
    "schema",
    [
        {"shop.orders": "id int unsigned not null, note varchar(20) charset latin1, primary key (id)"},
        "CREATE TABLE shop.orders (id INT UNSIGNED PRIMARY KEY, note VARCHAR(20)) DEFAULT CHARSET=latin1",
    ],
)
def test_columns_come_from_what_the_user_gives(tmp_path: Path, schema: Any) -> None:
    write(tmp_path / "bin.000001", Journal())
    connection = LocalBinlogSource(tmp_path, schema=schema).connect()

    found = connection.table_columns("shop", "orders")

    assert found is not None
    assert [(c.name, c.column_type, c.charset, c.key, c.nullable) for c in found.columns] == [
        ("id", "int unsigned", None, True, False),
        ("note", "varchar(20)", "latin1", False, True),
    ]
    assert connection.table_columns("shop", "nothing") is None


def test_virtual_column_of_the_auto_increment_one_is_absent_in_files_with_full_metadata(tmp_path: Path) -> None:
    """MariaDB logs it as if the new row's number were 0; a table map does not say what a column is made of."""
    fake = FakeBinlog("mariadb", metadata="FULL")
    fake.table("s", "t", "id INT PRIMARY KEY, v VARCHAR(9)").insert({"id": 1, "v": "N0"})
    fake.write(tmp_path)
    text = "CREATE TABLE t (id INT AUTO_INCREMENT PRIMARY KEY, v VARCHAR(9) AS (CONCAT('N', id)))"
    source = canal.LocalBinlogSource(tmp_path, schema={"s.t": text})

    with canal.connect(source, start="earliest") as instance:
        found = [row.after["v"] for message in instance.stream() for entry in message.entries for row in entry.rows if row.after]

    assert found == [canal.ABSENT]
