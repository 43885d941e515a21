"""What is read of the log beside the stream: where to begin, what lies ahead, what is planned. Damage is noticed in all of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, TypeVar

import attrs
import pytest

import canal
from canal.parse.log.scan import transaction_start
from canal.parse.source.files import LocalBinlogSource
from canal.position import Position
from canal.spark.stream.stretch import beginning
from canal.testing.fake import FakeBinlog
from tests.support.parsing import decoded

FLAVORS = pytest.mark.parametrize("flavor", ["mysql", "mariadb"])


def two_logs(flavor: Any, checksum: bool = True) -> FakeBinlog:
    fake = FakeBinlog(flavor=flavor, checksum=checksum)
    orders = fake.table("shop", "orders", "id INT PRIMARY KEY")
    for number in range(12):
        orders.insert({"id": number})
    fake.rotate()
    with fake.transaction():
        orders.insert({"id": 12})
        orders.insert({"id": 13})
    fake.ddl("CREATE TABLE shop.more (id INT)")
    return fake


Read = Callable[[Any, FakeBinlog, int], Any]
T = TypeVar("T")


def latest(connection: Any, fake: FakeBinlog, offset: int) -> Any:
    return connection.resolve("latest")


def by_time(connection: Any, fake: FakeBinlog, offset: int) -> Any:
    return connection.resolve(Position(timestamp=(1 << 32) * 1000))


def by_time_in_one(connection: Any, fake: FakeBinlog, offset: int) -> Any:
    return connection.resolve(Position(journal="binlog.000002", timestamp=(1 << 32) * 1000))


def planned(connection: Any, fake: FakeBinlog, offset: int) -> Any:
    return beginning(connection, "binlog.000002")


def replayed(connection: Any, fake: FakeBinlog, offset: int) -> Any:
    return list(connection.replay("binlog.000002", 4))


def replayed_from_the_middle(connection: Any, fake: FakeBinlog, offset: int) -> Any:
    return list(connection.replay("binlog.000002", offset))[1:]  # whoever sends the head of the log there seals it anew


def start_of_transaction(connection: Any, fake: FakeBinlog, offset: int) -> Any:
    return transaction_start(connection, Position(journal="binlog.000002", offset=offset + 30))


def incarnation(connection: Any, fake: FakeBinlog, offset: int) -> Any:
    return connection.incarnation("binlog.000002")


READS: list[Read] = [latest, by_time, by_time_in_one, planned, replayed, replayed_from_the_middle, start_of_transaction]


def outcome(read: Callable[[], Any]) -> Any:
    try:
        return read()
    except canal.SourceError as error:
        return type(error)


def flips(read: Read, places: Sequence[T], thorough: bool) -> Sequence[T]:
    """Return every place, or every seventh one: the seven reads together flip all bytes."""
    return places if thorough else places[[*READS, incarnation].index(read) % 7 :: 7]


def is_error(found: Any) -> bool:
    return isinstance(found, type)


@FLAVORS
@pytest.mark.parametrize("follow", [False, True])
@pytest.mark.parametrize("read", READS)
def test_no_read_of_files_believes_a_flipped_byte(tmp_path: Path, flavor: str, follow: bool, read: Read, thorough: bool) -> None:
    fake = two_logs(flavor)
    *_, path = fake.write(tmp_path)
    whole = path.read_bytes()
    middle = offsets(fake)[2]
    source = LocalBinlogSource(tmp_path, follow=follow)

    def ask() -> Any:
        with closing(source.connect()) as connection:
            return read(connection, fake, middle)

    wanted = ask()
    for at in flips(read, range(len(whole)), thorough):
        path.write_bytes(whole[:at] + bytes((whole[at] ^ 0x11,)) + whole[at + 1 :])
        found = outcome(ask)
        assert found == wanted or is_error(found), (at, found)


@FLAVORS
@pytest.mark.parametrize("read", READS)
def test_without_checksums_a_read_of_files_believes_nothing_that_the_stream_refuses(
    tmp_path: Path, flavor: str, read: Read, thorough: bool
) -> None:
    fake = two_logs(flavor, checksum=False)
    *_, path = fake.write(tmp_path)
    whole = path.read_bytes()
    starts = offsets(fake)
    source = LocalBinlogSource(tmp_path)
    with closing(source.connect()) as connection:
        wanted = read(connection, fake, starts[2])
    headers = [start + at for start in starts for at in range(9, 17)]  # lengths and ends
    for at in flips(read, [*range(4, starts[1]), *headers], thorough):
        path.write_bytes(whole[:at] + bytes((whole[at] ^ 0x11,)) + whole[at + 1 :])
        with closing(source.connect()) as connection:
            found = outcome(lambda: read(connection, fake, starts[2]))
        assert found == wanted or is_error(found), (at, found)


def offsets(fake: FakeBinlog) -> list[int]:
    """Where the events of the second log begin."""
    found = [4]
    for event in fake.events("binlog.000002"):
        found.append(found[-1] + len(event))
    return found[:-1]


@FLAVORS
@pytest.mark.parametrize(
    "read", [by_time, by_time_in_one, planned, replayed, replayed_from_the_middle, start_of_transaction, incarnation]
)
def test_no_read_from_a_server_believes_a_flipped_byte(flavor: str, read: Read, thorough: bool) -> None:
    """A server sends what is in its file, and the way to it may change a byte."""
    fake = two_logs(flavor)
    middle = offsets(fake)[2]
    journal = fake.log.journals[1]
    events = list(journal.events)
    with fake.serve(user="u", password="p") as server:
        source = canal.MySQLSource(host=server.host, port=server.port, user="u", password="p")
        with closing(source.connect()) as connection:
            wanted = read(connection, fake, middle)
            for number, at in flips(read, list(damages(events)), thorough):
                data = bytearray(events[number].data)
                data[at] ^= 0x11
                journal.events[:] = events
                journal.events[number] = attrs.evolve(events[number], data=bytes(data))
                found = outcome(lambda: read(connection, fake, middle))
                assert found == wanted or is_error(found), (number, at, found)


def damages(events: list[Any]) -> Iterator[tuple[int, int]]:
    """Each byte of the head of a log and every seventh one behind it."""
    for number, event in enumerate(events):
        yield from ((number, at) for at in range(0, len(event.data), 1 if number < 2 else 7))


@pytest.mark.parametrize("at", range(9, 13))
def test_an_event_whose_length_is_damaged_is_not_waited_for(tmp_path: Path, at: int) -> None:
    """At the end of a file that is followed it looks like one that is still being written."""
    fake = two_logs("mysql")
    *_, path = fake.write(tmp_path)
    last, whole = offsets(fake)[-1], bytearray(path.read_bytes())
    whole[last + at] ^= 0x11
    path.write_bytes(whole)
    with closing(LocalBinlogSource(path, follow=True).connect()) as connection:
        connection.dump(Position(journal=path.name, offset=4))
        with pytest.raises(canal.DecodeError):
            decoded(connection.read(0) or [], Position(journal=path.name, offset=4))
            decoded(connection.read(0) or [], Position(journal=path.name, offset=last))
