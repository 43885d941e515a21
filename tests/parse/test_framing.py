"""Framing of packets and files: the same events come out however the input is split."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from canal.errors import DecodeError, ServerError, StateError
from canal.parse.log.framing import MAX_PACKET, FileFramer, Framer, PacketFramer
from canal.testing.fake import FakeBinlog
from tests.support.packets import dump, packet, pieces
from tests.support.random_logs import decode

ERR_1236 = b"\xff\xd4\x04#HY000Could not find first log file name"


def file_event(body: bytes, kind: int = 2) -> bytes:
    """An event with a header that tells its length."""
    return bytes(4) + bytes((kind,)) + bytes(4) + (19 + len(body)).to_bytes(4, "little") + bytes(6) + body


def test_packets_give_the_events_without_their_status_bytes() -> None:
    events = [b"first", b"", b"x" * 300]

    assert PacketFramer().feed(dump(events)) == events


def test_events_are_copies_that_later_input_does_not_change() -> None:
    framer = PacketFramer(64)

    first = framer.feed(dump([b"a" * 40]))
    framer.feed(dump([b"b" * 40], sequence=2))

    assert first == [b"a" * 40]


def received(framer: Framer, data: bytes) -> Sequence[bytes]:
    """The events of what is put into the framer's room at once."""
    framer.room()[: len(data)] = data
    return framer.advance(len(data))


def test_events_of_a_read_are_a_sequence() -> None:
    events = [file_event(bytes(n)) for n in (5, 0, 300)]
    for found in (received(PacketFramer(), dump(events)), received(FileFramer(), b"".join(events))):
        assert isinstance(found, Sequence)
        assert len(found) == 3
        assert list(found) == events == [found[n] for n in range(3)] == [found[n - 3] for n in range(3)]
        assert [found[1:], found[:1], found[::-2], found[5:]] == [events[1:], events[:1], events[::-2], []]
        for number in (3, -4):
            with pytest.raises(IndexError):
                found[number]


def test_events_of_a_read_are_good_until_the_next_one() -> None:
    """Else whoever keeps them would see bytes of later ones."""
    framer = FileFramer()
    found = received(framer, file_event(b"first"))
    one = iter(found)
    framer.room()
    decoding = lambda: decode(FakeBinlog(), iter([found]))  # noqa: E731
    for ask in (lambda: list(found), lambda: found[0], lambda: found[:1], lambda: next(one), decoding):
        with pytest.raises(StateError, match="overwritten"):
            ask()


def test_sequence_numbers_wrap_after_255() -> None:
    events = [bytes((i & 0xFF,)) for i in range(600)]

    assert PacketFramer().feed(dump(events)) == events


@given(st.lists(st.binary(max_size=200), max_size=20), st.lists(st.integers(0, 10_000)), st.sampled_from((64, 300, 1 << 20)))
def test_any_split_of_packets_gives_the_same_events(bodies: list[bytes], cuts: list[int], buffer_bytes: int) -> None:
    events = [file_event(body) for body in bodies]
    framer = PacketFramer(buffer_bytes)

    found = [event for piece in pieces(dump(events), cuts) for event in framer.feed(piece)]

    assert found == events
    assert framer.pending == 0
    assert framer.error is None


@pytest.mark.parametrize("tail", [ERR_1236, b"\xfe\0\0\2\0", b"", b"\x07what"], ids=["err", "eof", "empty", "unknown"])
def test_byte_by_byte_equals_all_at_once(tail: bytes) -> None:
    data = dump([b"one", b"two"]) + packet(3, tail) + dump([b"never"], sequence=4)
    whole, slow = PacketFramer(), PacketFramer()

    events = [event for i in range(len(data)) for event in slow.feed(data[i : i + 1])]

    assert events == whole.feed(data) == [b"one", b"two"]
    assert (type(slow.error), str(slow.error), slow.ended) == (type(whole.error), str(whole.error), whole.ended)
    assert whole.ended is (tail[:1] == b"\xfe")


@pytest.mark.parametrize("length", [MAX_PACKET - 1, MAX_PACKET, MAX_PACKET + 1, 2 * MAX_PACKET, 2 * MAX_PACKET + 5])
def test_events_of_several_packets_are_joined(length: int) -> None:
    """T10"""
    # One byte of the first packet is the status byte, so a payload of exactly 2^24-1 ends with an empty packet.
    body = bytes(i * 7 & 0xFF for i in range(251)) * (length // 251 + 1)
    event = file_event(body[: length - 20])
    data = dump([b"before", event, b"after"])

    framer = PacketFramer()
    found = [event for at in range(0, len(data), 700_001) for event in framer.feed(data[at : at + 700_001])]

    assert found == [b"before", event, b"after"]
    assert len(framer.room()) <= 1 << 20  # the large buffer is given back


def test_an_error_packet_ends_the_stream_after_the_events_before_it() -> None:
    framer = PacketFramer()

    events = framer.feed(dump([b"one"]) + packet(2, ERR_1236))

    assert events == [b"one"]
    assert type(framer.error) is ServerError
    assert (framer.error.errno, framer.error.sqlstate) == (1236, "HY000")
    assert framer.error.message == "Could not find first log file name"


def test_an_error_packet_numbered_0_is_still_the_servers_error() -> None:
    framer = PacketFramer(sequence=9)

    framer.feed(packet(0, b"\xff\x1d\x04Server shutdown in progress"))

    assert isinstance(framer.error, ServerError)
    assert framer.error.errno == 1053


@pytest.mark.parametrize("sequence", [0, 1, 3, 255])
def test_packets_out_of_order_are_an_error(sequence: int) -> None:
    framer = PacketFramer()

    events = framer.feed(packet(1, b"\0one") + packet(sequence, b"\0two"))

    assert events == [b"one"]
    assert isinstance(framer.error, DecodeError)
    assert "instead of 2" in str(framer.error)


def test_an_event_beyond_the_limit_is_refused_from_its_header_alone() -> None:
    framer = PacketFramer(max_event_bytes=1000)

    framer.feed(packet(1, b"\0" + file_event(bytes(980))) + (1001).to_bytes(3, "little") + b"\x02")

    assert isinstance(framer.error, DecodeError)
    assert "larger than 1000" in str(framer.error)


@pytest.mark.parametrize("count", [-1, 65, 1 << 40])
def test_more_than_the_room_cannot_be_taken(count: int) -> None:
    with pytest.raises(ValueError, match="room"):
        PacketFramer(64).advance(count)


@pytest.mark.parametrize("length", [5000, 1 << 30])
def test_the_buffer_grows_with_what_comes_and_not_with_what_a_length_says(length: int) -> None:
    framer = FileFramer(4, 64)
    data = file_event(b"x" * 5000)
    data = data[:9] + (19 + length).to_bytes(4, "little") + data[13:]

    found, at = [], 0
    while at < len(data):
        room = framer.room()
        count = min(len(room), len(data) - at)
        assert 0 < len(room) <= max(64, 2 * at)
        room[:count] = data[at : at + count]
        found += framer.advance(count)
        at += count

    assert found == ([data] if length == 5000 else [])


@given(st.lists(st.binary(max_size=200), max_size=20), st.lists(st.integers(0, 10_000)), st.sampled_from((64, 1 << 20)))
def test_any_split_of_a_file_gives_the_same_events(bodies: list[bytes], cuts: list[int], buffer_bytes: int) -> None:
    events = [file_event(body) for body in bodies]
    framer = FileFramer(4, buffer_bytes)

    found = [event for piece in pieces(b"".join(events), cuts) for event in framer.feed(piece)]

    assert found == events
    assert (framer.pending, framer.offset) == (0, 4 + len(b"".join(events)))


def test_a_truncated_tail_stays_pending_at_its_offset() -> None:
    whole, cut = file_event(b"abc"), file_event(b"defghi")
    for length in range(1, len(cut)):
        framer = FileFramer(1 << 33)

        assert framer.feed(whole + cut[:length]) == [whole]
        assert (framer.pending, framer.offset) == (length, (1 << 33) + len(whole))
        assert framer.error is None


@pytest.mark.parametrize("length", [0, 18, 0xFFFFFFFF])
def test_an_impossible_event_length_is_an_error_with_its_offset(length: int) -> None:
    framer = FileFramer()

    events = framer.feed(file_event(b"fine") + bytes(9) + length.to_bytes(4, "little") + bytes(6))

    assert events == [file_event(b"fine")]
    assert isinstance(framer.error, DecodeError)
    assert "offset 27" in str(framer.error)


@pytest.mark.parametrize("fault", [b"\xff\x07", b"\xfe\0\0\2\0", b"\x07what"], ids=["error", "end", "unknown"])
def test_more_than_the_buffer_behind_a_fault_is_left_unread(fault: bytes) -> None:
    framer = PacketFramer(64)

    assert framer.feed(dump([b"one"]) + packet(2, fault) + bytes(10_000)) == [b"one"]


def damaged(data: bytes, at: int, mask: int) -> bytes:
    return data[:at] + bytes((data[at] ^ mask,)) + data[at + 1 :]


@pytest.mark.parametrize("size", [40, 300, 70_000])
@pytest.mark.parametrize("at", range(5))
def test_a_damaged_packet_header_is_noticed_before_more_than_the_next_event_has_come(size: int, at: int) -> None:
    """A length that is believed would let us wait for megabytes, and an idle server sends some bytes in a minute."""
    first, second, beat = (file_event(bytes((n,)) * length) for n, length in ((1, size), (2, size), (3, 20)))
    whole = dump([first, second, beat])
    for bit in range(8):
        framer = PacketFramer(64)

        given = framer.feed(damaged(dump([first]), at, 1 << bit) + dump([second, beat], sequence=2))

        wrong = framer.error is not None or any(event not in (first, second, beat) for event in given)
        assert wrong, f"bit {bit} of byte {at}: {given == [first, second, beat]} {len(whole)}"


@pytest.mark.parametrize("at", [0, 1, 2, 3])
def test_a_damaged_header_of_a_later_packet_of_an_event_is_noticed_at_once(at: int) -> None:
    """T10"""
    data = dump([file_event(bytes(MAX_PACKET + 5000))])
    for bit in range(8):
        framer = PacketFramer()

        assert framer.feed(damaged(data, 4 + MAX_PACKET + at, 1 << bit)[: 4 + MAX_PACKET + 10]) == []
        assert isinstance(framer.error, DecodeError)


def test_an_event_that_begins_like_an_error_packet_is_none() -> None:
    framer = PacketFramer()

    framer.feed(packet(1, b"\xff" + file_event(b"x" * 30)))

    assert isinstance(framer.error, DecodeError)
    assert "begins with 0xff" in str(framer.error)


def test_more_than_an_error_can_have_is_not_waited_for() -> None:
    framer = PacketFramer()

    framer.feed(packet(1, b"\xff" + bytes(70_000))[:1000])

    assert isinstance(framer.error, DecodeError)
