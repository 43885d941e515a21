"""Damaged and cut input: each damage is noticed, a typed error with its position, and takes bounded memory."""

from __future__ import annotations

import random
import struct
import tracemalloc
import zlib
from collections.abc import Callable
from itertools import chain
from pathlib import Path
from typing import Any

import attrs
import pytest

import canal
from canal.parse.log.events import inflate_query, inflate_rows, iter_payload
from canal.testing import _encode
from canal.testing.fake import FakeBinlog
from tests.support import zstd
from tests.support.parsing import chained, decoded, flavors, order, patched, rows_of, shop, started

# -- damaged and cut input -----------------------------------------------------------------------------------------------


@flavors
def test_every_truncation_and_every_flipped_byte_is_a_typed_error_or_is_noticed(flavor: str) -> None:
    """T16"""
    fake, orders = shop(flavor)
    with fake.transaction():
        orders.insert(order(1), order(2, None))
        orders.update(order(1), order(3))
    events = fake.events()
    whole = rows_of(decoded(events, flavor=flavor))

    for number, event in enumerate(events):
        for cut in range(len(event)):
            with pytest.raises(canal.DecodeError):
                decoded([*events[:number], event[:cut], *events[number + 1 :]], flavor=flavor)
        for at in range(0, len(event), 3):
            damaged = event[:at] + bytes((event[at] ^ 0x10,)) + event[at + 1 :]
            with pytest.raises(canal.SourceError):
                got = decoded([*events[:number], damaged, *events[number + 1 :]], flavor=flavor)
                raise AssertionError(f"byte {at} of event {number} was not noticed: {rows_of(got)} for {whole}")


@flavors
@pytest.mark.parametrize("checksum", [True, False])
@pytest.mark.parametrize("at_the_start", [True, False])
def test_every_flipped_bit_of_the_head_of_a_dump_is_noticed(flavor: str, at_the_start: bool, checksum: bool) -> None:
    """T16: the ROTATE that opens it comes before it is known that events have checksums, which one bit then tells.

    The FORMAT_DESCRIPTION has one in any case, which a server does not renew for a dump from the middle of a log whose
    other events have none.
    """
    fake, orders = shop(flavor, checksum=checksum)
    orders.insert(order(1))
    start = canal.Position(journal=fake.journal, offset=4) if at_the_start else fake.position
    connection = fake.connect()
    connection.dump(attrs.evolve(start, gtid=""))
    orders.insert(order(2))
    fake.end()
    events: list[bytes] = []
    while (read := connection.read(1.0)) is not None:
        events += read
    whole = decoded(events, start, flavor=flavor)

    assert whole[-1].position.journal == fake.journal
    for number, event in enumerate(events[:3]):
        for bit in range(8 * len(event) if checksum or event[4] == 15 else 0):
            if event[4] == 15 and bit == 8 * 17:
                continue  # a log in use is marked so after its checksum was made
            damaged = bytearray(event)
            damaged[bit // 8] ^= 1 << bit % 8
            if event[4] == 15 and not checksum and damaged[13:17] == struct.pack("<I", 4 + len(event)):
                continue  # its end, which the server had taken out, is there again
            with pytest.raises(canal.DecodeError):
                decoded([*events[:number], bytes(damaged), *events[number + 1 :]], start, flavor=flavor)


@flavors
def test_damage_without_checksums_never_raises_anything_else(flavor: str) -> None:
    fake, orders = shop(flavor, checksum=False)
    with fake.transaction():
        orders.insert(order(1), order(2, None))
        orders.update(order(1), order(3))
    fake.ddl("ALTER TABLE orders ADD x INT", schema="shop")
    events = fake.events()
    rng = random.Random(3)

    for _ in range(3000):
        number = rng.randrange(len(events))
        event = bytearray(events[number])
        for _ in range(rng.randint(1, 3)):
            event[rng.randrange(19 if rng.random() < 0.9 else 0, len(event))] = rng.randrange(256)
        try:
            rows_of(decoded([*events[:number], bytes(event), *events[number + 1 :]], flavor=flavor))
        except canal.CanalError:
            pass


@flavors
@pytest.mark.parametrize("kinds", [(33, 162), (35, 163)], ids=["GTID", "list"])
def test_gtids_of_the_other_server_are_a_typed_error(flavor: str, kinds: tuple[int, int]) -> None:
    fake, orders = shop(flavor)
    foreign, others = shop("mariadb" if flavor == "mysql" else "mysql")
    orders.insert(order(1))
    others.insert(order(2))
    alien = next(event for event in foreign.events() if event[4] in kinds)

    with pytest.raises(canal.DecodeError, match=f"in a {flavor} log"):
        decoded(chained([*fake.events(), alien]), flavor=flavor)


@flavors
def test_a_list_of_gtids_inside_a_transaction_is_a_typed_error(flavor: str) -> None:
    fake, orders = shop(flavor)
    orders.insert(order(1))
    events = fake.events()
    listed = next(event for event in events if event[4] in (35, 163))
    events.remove(listed)
    begin = next(number for number, event in enumerate(events) if event[4] in (33, 162))

    with pytest.raises(canal.DecodeError, match="inside a transaction"):
        decoded(chained([*events[: begin + 1], listed, *events[begin + 1 :]]), flavor=flavor)


@pytest.mark.parametrize("number", [0, (1 << 63) - 1, 1 << 63, (1 << 64) - 1])
def test_a_gtid_that_no_server_gives_is_a_typed_error(number: int) -> None:
    fake, orders = shop()
    orders.insert(order(1))
    events = [patched(event, 36, struct.pack("<Q", number)) if event[4] == 33 else event for event in fake.events()]

    with pytest.raises(canal.DecodeError, match="GTID has the number"):
        decoded(events)


def test_places_that_cannot_be_are_typed_errors() -> None:
    fake, orders = shop()
    orders.insert(order(1))
    fake.rotate()
    events = fake.events()
    rotate = next(event for event in events if event[4] == 4)

    with pytest.raises(canal.DecodeError, match="has the end offset 7"):
        decoded([patched(events[0], 13, struct.pack("<I", 7))])
    with pytest.raises(canal.DecodeError, match="impossible offset"):
        decoded([events[0], patched(rotate, 19, struct.pack("<Q", 1 << 63))])


def payload_event(body: bytes) -> bytes:
    return _encode.event(40, body, timestamp=1, server_id=1, end=0)


def test_a_payload_that_inflates_to_more_than_it_says_is_refused_on_the_way() -> None:
    data = zstd.compress([bytes(64 << 20)])
    body = _encode.tlv(2, b"\0") + _encode.tlv(3, _encode.packed(100)) + _encode.tlv(1, _encode.packed(len(data))) + b"\0" + data
    (form, *_) = FakeBinlog().events()

    with pytest.raises(canal.DecodeError, match="more than 100"):
        decoded([form, payload_event(body)])


@pytest.mark.parametrize("compression", ["zstd", "none"])
def test_events_of_many_chunks_inside_a_payload_are_joined(compression: Any) -> None:
    fake = FakeBinlog(compression=compression)
    table = fake.table("shop", "t", "id INT, v LONGTEXT")
    sizes = [1, 3 << 20, 5, (1 << 20) - 60, 1 << 20, 7]
    with fake.transaction():
        for number, size in enumerate(sizes):
            table.insert({"id": number, "v": chr(97 + number) * size})

    rows = [row.after for entry in decoded(fake.events()) for row in entry.rows]
    assert [(row["id"], row["v"] == chr(97 + row["id"]) * sizes[row["id"]]) for row in rows] == [(n, True) for n in range(6)]


def bomb(size: int, kind: int = 30) -> bytes:
    """A TRANSACTION_PAYLOAD of some kB with one event of so many bytes, nearly all of them 0."""
    zeros = (bytes(min(1 << 20, size - 19 - done)) for done in range(0, size - 19, 1 << 20))
    data = zstd.compress(chain([struct.pack("<IBIIIH", 1, kind, 1, size, 0, 0)], zeros))
    fields = _encode.tlv(2, b"\0") + _encode.tlv(3, _encode.packed(size)) + _encode.tlv(1, _encode.packed(len(data)))
    return payload_event(fields + b"\0" + data)


def peak_of(run: Callable[[], object]) -> int:
    tracemalloc.start()
    try:
        run()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_some_bytes_that_inflate_to_a_giant_event_are_refused_before_they_do() -> None:
    """33 kB had become 3 GB."""
    (form, *_) = FakeBinlog().events()
    event = bomb(1 << 30)
    assert len(event) < 40_000

    def refused() -> None:
        with pytest.raises(canal.errors.UnsupportedError, match="an event of 1073741824 bytes") as caught:
            decoded([form, event])
        assert "store_bytes" in caught.value.remedy

    assert peak_of(refused) < 16 << 20


def test_a_giant_event_of_a_compressed_one_takes_memory_of_its_own_size_once() -> None:
    event, size = bomb(48 << 20), 48 << 20

    assert peak_of(lambda: [len(one) for one in iter_payload(event, len(event))]) < size + (8 << 20)
    assert [len(one) for one in iter_payload(event, len(event))] == [size]


@pytest.mark.parametrize("compression", ["zstd", "zlib"])
@pytest.mark.parametrize("store_bytes", [2 << 20, 8 << 20])
def test_a_store_with_more_room_takes_larger_events_out_of_compressed_ones(
    compression: Any, store_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("canal.instance.wiring.MAX_INFLATED_BYTES", 1 << 20)
    fake = FakeBinlog(flavor="mysql" if compression == "zstd" else "mariadb", compression=compression)
    fake.table("shop", "t", "id INT, v LONGTEXT").insert({"id": 1, "v": "x" * (3 << 20)})
    config = canal.InstanceConfig(destination="test", source=fake, start="earliest", store_bytes=store_bytes)
    with canal.Instance(config) as instance:
        instance.subscribe()
        if store_bytes < 3 << 20:
            with pytest.raises(canal.errors.UnsupportedError, match="a compressed event"):
                while instance.get(100, timeout=60):
                    pass
        else:
            rows: list[Any] = []
            while not rows:
                rows += [row.after["v"] for entry in instance.get(100, timeout=60) for row in entry.rows]
            assert [len(one) for one in rows] == [3 << 20]


@pytest.mark.parametrize("kind", [165, 169])
def test_a_compressed_event_of_mariadb_is_inflated_within_the_limit_and_in_memory_of_its_size(kind: int) -> None:
    size = 40 << 20
    plain = zlib.compress(bytes(size))
    head = bytes(27) + bytes(5) if kind == 165 else bytes(27) + b"\1\1"
    at = 33 if kind == 165 else 29
    event = head.ljust(at, b"\0") + b"\x84" + size.to_bytes(4, "big") + plain

    def inflated(limit: int) -> bytes:
        return inflate_query(event, len(event), limit) if kind == 165 else inflate_rows(event, len(event), kind, 27, limit)

    assert inflated(size) == event[:at] + bytes(size)
    assert peak_of(lambda: len(inflated(size))) < size + (12 << 20)
    with pytest.raises(canal.errors.UnsupportedError, match=f"contains an event of {size} bytes"):
        inflated(size - 1)
    for cut in (9, len(plain) - 1000):
        event = event[:-cut]
        with pytest.raises(canal.DecodeError, match="does not decompress to"):
            inflated(size)


@flavors
@pytest.mark.parametrize("served", [False, True], ids=["in process", "served"])
def test_damage_on_the_way_is_read_again_and_told(flavor: str, served: bool) -> None:
    """T16: gone at the second reading, it was not in the log."""
    fake, orders = shop(flavor)
    for number in range(8):
        orders.insert(order(number))
    fake.corrupt_after(8)
    fake.end()
    alarms: list[str] = []

    def tell(destination: str, text: str) -> None:
        alarms.append(text)
        if len(alarms) < 3:
            fake.corrupt_after(7)

    with fake.serve(user="u", password="p") as server:
        source = canal.MySQLSource(host=server.host, port=server.port, user="u", password="p", ssl_mode="DISABLED")
        with started(fake, source=source if served else fake, alarm=tell) as instance:
            instance.subscribe()
            got: list[tuple[str, Any, Any]] = []
            while len(got) < 8:
                message = instance.get_without_ack(100, timeout=30)
                assert message
                got += rows_of(message.entries)

    assert got == [("INSERT", None, number) for number in range(8)]
    assert sum("corruption in transit or in the log, again in" in text for text in alarms) == 3
    assert not any("has stopped" in text for text in alarms)


@pytest.mark.parametrize("live", [True, False], ids=["live", "files"])
def test_a_damaged_log_stops_the_instance_and_says_where(live: bool, tmp_path: Path) -> None:
    """T16: a server sends the same damage again, and of a file there is no other reading."""
    fake, orders = shop()
    orders.insert(order(1))
    orders.insert(order(2))
    if live:
        events = fake.log.journals[0].events
        events[-1] = attrs.evolve(events[-1], data=patched(events[-1].data, 20, b"x")[:-4] + b"crc!")
    else:
        (path,) = fake.write(tmp_path)
        data = bytearray(path.read_bytes())
        data[-6] ^= 1
        path.write_bytes(data)
    alarms: list[str] = []
    source = fake if live else canal.LocalBinlogSource(tmp_path)
    with started(source, alarm=lambda _, text: alarms.append(text)) as instance:  # type: ignore[arg-type]
        instance.subscribe()
        got = instance.get_without_ack(100, timeout=30)
        with pytest.raises(canal.errors.ChecksumError, match=r"\[test\].*binlog.000001:\d+"):
            while more := instance.get_without_ack(100, timeout=30):
                got = more

    assert rows_of(got.entries) == [("INSERT", None, 1)]
    assert sum("again in" in text for text in alarms) == live
    assert sum("has stopped" in text for text in alarms) == 1
    assert ("and again on a second read" in alarms[-1]) == live


def test_rows_without_their_table_map_are_a_typed_error() -> None:
    fake, orders = shop()
    orders.insert(order(1))
    events = [event for event in fake.events() if event[4] != 19]

    with pytest.raises(canal.errors.MissingTableMapError, match="table id"):
        decoded(events)


def test_a_position_inside_a_transaction_is_an_error_with_a_remedy() -> None:
    fake, orders = shop()
    orders.insert(order(1))
    events = [event for event in fake.events() if event[4] not in (2, 33)]

    with pytest.raises(canal.DecodeError, match="start at the beginning"):
        decoded(events)
