"""What proves that a stream goes on where it ended: the names, heads and ends of logs, one by one."""

from __future__ import annotations

import contextlib
import struct
from typing import Any

import attrs
import pytest

from canal import Position, PositionLostError
from canal.errors import LostReason
from canal.gtid import GtidSet, MariadbGtidSet, MysqlGtidSet
from canal.parse.log.continuity import Continuity, incarnation_of
from canal.parse.log.events import Format

UUID = "3e11fa47-71ca-11e1-9e33-c80aa9429562"
MARIADB = "10.11.6-MariaDB-log"
BEGUN = 1_700_000_000
START = Position("binlog.000007", 4711, f"{UUID}:1-100", server_id=1, source=UUID, incarnation=f"{BEGUN}-1")


def description(begun: int = BEGUN, server_id: int = 1) -> bytes:
    """The part of a FORMAT_DESCRIPTION that tells logs apart."""
    return struct.pack("<IBI", begun, 15, server_id) + bytes(10)


def form(created: int = 0, version: str = "8.0.45") -> Format:
    """What the rest of it says."""
    return Format(version, created, True, bytes(40), True)


def rotate(continuity: Continuity, journal: str = "binlog.000008", second: int = BEGUN + 10, **head: Any) -> None:
    """Go over to the next log, as servers do; ``head`` is what differs."""
    continuity.announce(journal, second)
    continuity.enter(journal, 5000)
    continuity.describe(description(head.get("begun", second)), form(head.get("created", 0), head.get("version", "8.0.45")))


def restart(continuity: Continuity, journal: str = "binlog.000008", created: int = BEGUN + 10) -> None:
    """Go over to a log that no ROTATE announced."""
    continuity.enter(journal, 5000)
    continuity.describe(description(BEGUN + 10), form(created))


def stream(start: Position = START, source: str = UUID, *, by_offset: bool = True) -> Continuity:
    """A stream that has begun at its start position."""
    continuity = Continuity(start, source, by_offset=by_offset)
    continuity.enter(start.journal, start.offset)
    continuity.describe(description(), form())
    return continuity


def files() -> Continuity:
    return stream(Position("binlog.000007", 4711, server_id=1, incarnation=f"{BEGUN}-1"), "")


def test_an_incarnation_is_begin_and_server() -> None:
    assert incarnation_of(description(BEGUN, 4294967295)) == f"{BEGUN}-4294967295"
    assert Position(incarnation=incarnation_of(description(0, 0))).begun == 0


@pytest.mark.parametrize(
    ("journal", "head", "is_lost"),
    [
        ("binlog.000007", description(), False),
        ("binlog.000007", description(BEGUN + 1), True),  # begun anew
        ("binlog.000007", description(BEGUN - 1), True),
        ("binlog.000007", description(server_id=2), True),
        ("binlog.000008", description(BEGUN + 1), False),  # by GTID set, where the log of the position was purged
        ("binlog.000006", description(BEGUN + 1), True),  # names went back
        ("other.000001", description(BEGUN + 1), False),  # the server's logs have got another name
    ],
)
@pytest.mark.parametrize("start", [START, Position("binlog.000007", 4711, incarnation=f"{BEGUN}-1")])
def test_a_stream_begins_in_the_log_that_its_position_is_of(start: Position, journal: str, head: bytes, is_lost: bool) -> None:
    continuity = Continuity(start, UUID, by_offset=True)
    continuity.enter(journal, 4)
    if not is_lost:
        assert continuity.describe(head, form()) == incarnation_of(head)
        return

    with pytest.raises(PositionLostError, match=r"binlog\.00000[67]") as caught:
        continuity.describe(head, form())

    assert caught.value.reason is LostReason.DIVERGED
    assert caught.value.behind is None


@pytest.mark.parametrize(("journal", "is_lost"), [("binlog.000001", True), ("binlog.000007", False), ("binlog.000008", False)])
def test_a_position_of_an_earlier_version_tells_a_log_by_its_number_only(journal: str, *, is_lost: bool) -> None:
    continuity = Continuity(Position("binlog.000007", 4711, source=UUID), UUID, by_offset=False)
    continuity.enter(journal, 4)
    with pytest.raises(PositionLostError) if is_lost else contextlib.nullcontext():
        continuity.describe(description(), form())


def test_what_a_position_of_another_server_says_of_a_log_is_not_asked() -> None:
    for start in (Position("binlog.000007", 4711, source="another", incarnation="1-1"), Position(gtid=START.gtid, source=UUID)):
        continuity = Continuity(start, UUID, by_offset=False)
        continuity.enter("binlog.000001", 4)
        continuity.describe(description(), form())


@pytest.mark.parametrize("source", [UUID, ""])
def test_the_log_that_a_rotate_names_is_the_one_that_comes(source: str) -> None:
    continuity = stream(START, UUID) if source else files()
    rotate(continuity)
    continuity.announce("binlog.000009", BEGUN + 20)

    with pytest.raises(PositionLostError, match=r"ROTATE to binlog\.000009, but binlog\.000012 follows") as caught:
        continuity.enter("binlog.000012", 6000)

    assert caught.value.reason is LostReason.GAP
    assert caught.value.behind == Position("binlog.000012", 4, source=source)


def test_a_log_may_be_named_again_by_the_source_and_logs_may_get_another_name() -> None:
    for continuity in (stream(), files()):
        continuity.enter("binlog.000007", 4711)
        continuity.stop()
        restart(continuity, "other.000001")
        continuity.check()
        assert not continuity.warning


def test_a_rotate_to_the_log_itself_is_none_to_the_next_one() -> None:
    continuity = stream()
    continuity.announce("binlog.000008", BEGUN + 10)

    with pytest.raises(PositionLostError):
        continuity.enter("binlog.000007", 5000)


@pytest.mark.parametrize("source", [UUID, ""])
def test_a_log_that_was_begun_at_another_time_than_the_rotate_to_it_is_another_one(source: str) -> None:
    """A server whose log is reset while a reader is behind sends the old log to its end, and then the new second one."""
    continuity = stream(START, UUID) if source else files()

    with pytest.raises(PositionLostError, match=r"binlog\.000008 does not continue binlog\.000007") as caught:
        rotate(continuity, begun=BEGUN + 11)

    assert caught.value.reason is LostReason.DIVERGED
    assert caught.value.behind is None


@pytest.mark.parametrize(
    ("now", "listed", "is_lost"),
    [(f"{BEGUN}-1", "", False), (f"{BEGUN + 9}-1", "1-100", True), (None, "", True), (None, "1-100", False), ("", "1-101", True)],
)
def test_a_server_may_stop_between_a_rotate_and_the_log_that_it_names(now: str | None, listed: str, *, is_lost: bool) -> None:
    """Its disk was full: the next start begins the log."""
    continuity = Continuity(START, UUID, by_offset=True, ask=lambda journal: {"binlog.000007": now}[journal])
    continuity.enter(START.journal, START.offset)
    continuity.describe(description(), form())
    done = MysqlGtidSet.parse(f"{UUID}:1-100")
    with pytest.raises(PositionLostError) if is_lost else contextlib.nullcontext():
        rotate(continuity, begun=BEGUN + 60, created=BEGUN + 60)
        continuity.list(MysqlGtidSet.parse(f"{UUID}:{listed}" if listed else ""), done)
        if continuity.is_open:
            continuity.check()


@pytest.mark.parametrize("now", [f"{BEGUN}-1", f"{BEGUN + 9}-1", ""])
def test_mariadb_may_take_a_second_for_a_rotation_and_is_asked_for_the_former_log(now: str) -> None:
    incarnations = {"binlog.000007": f"{BEGUN}-1", "binlog.000008": now}
    continuity = Continuity(START, UUID, by_offset=True, ask=lambda journal: incarnations.pop(journal))
    continuity.enter(START.journal, START.offset)
    continuity.describe(description(), form())
    rotate(continuity, second=BEGUN, version=MARIADB)
    assert len(incarnations) == 2  # nothing was asked

    with contextlib.nullcontext() if now == f"{BEGUN}-1" else pytest.raises(PositionLostError):
        rotate(continuity, "binlog.000009", begun=BEGUN + 12, version=MARIADB)
        continuity.check()

    assert list(incarnations) == ["binlog.000007"]


@pytest.mark.parametrize(
    ("now", "listed", "is_lost"),
    [
        (f"{BEGUN + 10}-1", "1-100", False),
        (f"{BEGUN + 99}-1", "1-100", True),
        ("", "1-100", False),
        ("", "", True),
        ("", "1-101", True),
    ],
)
def test_a_dump_by_gtid_set_has_no_times_of_creation(now: str, listed: str, *, is_lost: bool) -> None:
    """MySQL leaves them out of all logs where it leaves out the first transaction."""
    for by_offset in (False, True):
        continuity = Continuity(START, UUID, by_offset=by_offset, ask=lambda journal: {"binlog.000008": now}[journal])
        continuity.enter(START.journal, START.offset)
        continuity.describe(description(), form())
        rotate(continuity)
        with pytest.raises(PositionLostError) if is_lost or by_offset else contextlib.nullcontext():
            restart(continuity, "binlog.000009", created=0)
            done = MysqlGtidSet.parse(f"{UUID}:1-100")
            continuity.list(MysqlGtidSet.parse(f"{UUID}:{listed}" if listed else ""), done)
            continuity.check()


@pytest.mark.parametrize("has_stopped", [True, False])
@pytest.mark.parametrize(("now", "is_lost"), [(f"{BEGUN}-1", False), (f"{BEGUN + 9}-1", True), ("", False), (None, False)])
def test_a_log_that_was_reset_and_whose_server_was_started_then(now: str | None, *, is_lost: bool, has_stopped: bool) -> None:
    """The old log ends as one whose server has stopped or crashed, and the new second one begins with a start."""
    continuity = Continuity(START, UUID, by_offset=True, ask=lambda journal: {"binlog.000007": now}[journal])
    continuity.enter(START.journal, START.offset)
    continuity.describe(description(), form())
    if has_stopped:
        continuity.stop()
    with pytest.raises(PositionLostError) if is_lost else contextlib.nullcontext():
        restart(continuity)
        continuity.check()


@pytest.mark.parametrize("is_listed", [True, False])
def test_in_files_of_mariadb_the_list_decides(is_listed: bool) -> None:
    continuity = files()
    rotate(continuity, begun=BEGUN + 12, version=MARIADB)
    if is_listed:
        continuity.list(MariadbGtidSet.parse("0-1-105"), MariadbGtidSet.parse("0-1-105"))
        continuity.check()
        return

    with pytest.raises(PositionLostError):
        continuity.check()


def test_numbers_that_no_rotate_announced_are_proved_by_the_gtids_of_the_next_head() -> None:
    continuity = stream()
    continuity.stop()
    restart(continuity, "binlog.000009")  # 8 is the number of a stray file in the server's directory
    assert continuity.is_open
    continuity.list(MysqlGtidSet.parse(f"{UUID}:1-105"), MysqlGtidSet.parse(f"{UUID}:1-105"))
    assert not continuity.is_open


@pytest.mark.parametrize("listed", [None, ""])
def test_numbers_that_nothing_proves_are_a_gap(listed: str | None) -> None:
    continuity = stream()
    continuity.stop()
    restart(continuity, "binlog.000009")
    if listed is not None:
        continuity.list(MysqlGtidSet.parse(listed), MysqlGtidSet.parse(""))

    with pytest.raises(PositionLostError, match=r"binlog\.000009 follows binlog\.000007"):
        continuity.check()


@pytest.mark.parametrize(
    ("listed", "executed", "missing"),
    [
        (MysqlGtidSet.parse(f"{UUID}:1-105"), MysqlGtidSet.parse(f"{UUID}:1-102"), f"{UUID}:103-105"),
        (MysqlGtidSet.parse(f"{UUID}:1-105"), MysqlGtidSet.parse(f"{UUID}:1-105"), ""),
        # A group commit that is under way may not be listed yet (binlog_order_commits=OFF).
        (MysqlGtidSet.parse(f"{UUID}:1-105"), MysqlGtidSet.parse(f"{UUID}:1-106"), ""),
        (MariadbGtidSet.parse("0-1-105"), MariadbGtidSet.parse("0-1-102"), "0-1-105"),
        (MariadbGtidSet.parse("0-1-105,1-2-7"), MariadbGtidSet.parse("0-1-105"), "1-2-7"),
        (MariadbGtidSet.parse("0-2-105"), MariadbGtidSet.parse("0-1-105"), "0-2-105"),
        (MariadbGtidSet.parse("0-1-105"), MariadbGtidSet.parse("0-1-105,1-2-7"), ""),  # DELETE_DOMAIN_ID
    ],
)
def test_gtids_that_a_head_lists_must_have_been_read(listed: GtidSet, executed: GtidSet, missing: str) -> None:
    for continuity in (stream(), files()):
        rotate(continuity)
        if not missing:
            continuity.list(listed, executed)
            continue
        with pytest.raises(PositionLostError) as caught:
            continuity.list(listed, executed)
        assert missing in caught.value.message


def test_the_set_of_a_position_that_no_transaction_ended_at_may_lack_what_was_being_committed() -> None:
    continuity = stream(attrs.evolve(START, server_id=0))
    rotate(continuity)
    listed, executed = MysqlGtidSet.parse(f"{UUID}:1-105"), MysqlGtidSet.parse(f"{UUID}:1-100:102-105")
    assert continuity.list(listed, executed) == listed
    rotate(continuity, "binlog.000009", BEGUN + 20)

    with pytest.raises(PositionLostError):
        continuity.list(MysqlGtidSet.parse(f"{UUID}:1-107"), listed)


DONE, DONE_BY_DOMAIN = MysqlGtidSet.parse(f"{UUID}:1-17"), MariadbGtidSet.parse("0-1-17")


def test_a_gtid_that_is_done_cannot_come_behind_an_offset_of_the_same_log() -> None:
    continuity = stream()
    continuity.follow(UUID, 18, DONE)
    with pytest.raises(PositionLostError) as caught:
        continuity.follow(UUID, 17, DONE)
    assert caught.value.reason is LostReason.DIVERGED


def test_what_was_done_at_another_server_is_left_out_when_it_comes_late() -> None:
    other = UUID.replace("3e", "4e")
    done = MysqlGtidSet.parse(f"{UUID}:1-17,{other}:1-3:5-9")
    assert [stream().follow(other, number, done) for number in (2, 4, 6, 10)] == [3, 0, 9, 0]


def test_mariadb_s_numbers_may_begin_again_in_one_log() -> None:
    continuity = stream()
    continuity.follow((0, 1), 1, DONE_BY_DOMAIN)
    assert not continuity.warning


@pytest.mark.parametrize(
    ("source", "number", "done", "is_told"),
    [
        (UUID, 17, DONE, True),
        (UUID, 18, DONE, False),
        ((0, 1), 17, DONE_BY_DOMAIN, True),
        ((0, 1), 18, DONE_BY_DOMAIN, False),
        ((0, 2), 3, DONE_BY_DOMAIN, False),  # after a failover numbers may go back
        ((1, 1), 1, DONE_BY_DOMAIN, False),
    ],
)
def test_a_gtid_that_the_source_was_to_leave_out_is_reported(
    source: str | tuple[int, int], number: int, done: GtidSet, is_told: bool
) -> None:
    continuity = stream(by_offset=False)
    continuity.follow(source, number, done)
    assert bool(continuity.warning) == is_told


def test_the_first_head_of_a_stream_may_list_what_the_source_leaves_out() -> None:
    continuity = stream(by_offset=False)
    continuity.list(MysqlGtidSet.parse(f"{UUID}:1-105"), MysqlGtidSet.parse(f"{UUID}:1-100"))


@pytest.mark.parametrize("source", [UUID, ""])
def test_a_log_that_ends_with_nothing_is_followed_by_one_of_a_server_that_started(source: str) -> None:
    continuity = stream(START, UUID) if source else files()

    with pytest.raises(PositionLostError, match=r"binlog\.000007 ends without a ROTATE") as caught:
        restart(continuity, created=0)

    assert caught.value.reason is (LostReason.DIVERGED if source else LostReason.GAP)


@pytest.mark.parametrize("has_stopped", [True, False])
@pytest.mark.parametrize("listed", [f"{UUID}:1-100", ""])
def test_a_file_may_be_cut_where_its_server_crashed_unless_gtids_tell_otherwise(has_stopped: bool, listed: str) -> None:
    continuity = files()
    if has_stopped:
        continuity.stop()
    restart(continuity)
    continuity.list(MysqlGtidSet.parse(listed), MysqlGtidSet.parse(listed))
    continuity.check()

    assert bool(continuity.warning) == (not has_stopped and not listed)


def test_a_later_list_proves_nothing_of_an_earlier_step() -> None:
    continuity = files()
    restart(continuity)
    rotate(continuity, "binlog.000009")
    continuity.list(DONE, DONE)
    assert continuity.warning
    continuity = stream()
    restart(continuity, "binlog.000009")
    with pytest.raises(PositionLostError):
        rotate(continuity, "binlog.000010")


@pytest.mark.parametrize("source", [UUID, ""])
def test_a_stream_may_begin_behind_the_rotate_of_a_log(source: str) -> None:
    """But not behind the end of a transaction: there the ROTATE is yet to come."""
    start = Position("binlog.000007", 4711, source=source)
    continuity = stream(start, source)
    continuity.enter("binlog.000008", 4711)
    continuity.describe(description(BEGUN + 10), form())
    continuity = stream(attrs.evolve(start, server_id=1), source)
    continuity.enter("binlog.000008", 4711)
    with pytest.raises(PositionLostError, match="ends without a ROTATE"):
        continuity.describe(description(BEGUN + 10), form())


@pytest.mark.parametrize(("now", "is_lost"), [(f"{BEGUN}-1", False), (f"{BEGUN + 9}-1", True)])
def test_of_the_first_log_of_a_dump_by_gtid_set_the_server_is_asked(now: str, *, is_lost: bool) -> None:
    """Where its end does not come: the log that comes may be one of a log that was begun anew."""
    continuity = Continuity(START, UUID, by_offset=False, ask=lambda journal: {"binlog.000007": now}[journal])
    continuity.enter(START.journal, 4)
    continuity.describe(description(), form(version=MARIADB))
    with pytest.raises(PositionLostError) if is_lost else contextlib.nullcontext():
        continuity.enter("binlog.000008", 4)
        continuity.describe(description(BEGUN + 10), form(version=MARIADB))


CANALS = Position("binlog.000007", 4711, timestamp=BEGUN * 1000, server_id=7, at_event=True)


@pytest.mark.parametrize(
    ("event", "is_lost"),
    [
        (struct.pack("<IBI", BEGUN, 2, 7), False),
        (struct.pack("<IBI", BEGUN, 2, 8), True),
        (struct.pack("<IBI", BEGUN + 1, 16, 7), True),
    ],
)
def test_the_event_at_a_cursor_of_canal_is_the_one_that_it_tells(event: bytes, is_lost: bool) -> None:
    continuity = Continuity(CANALS, UUID, by_offset=True)
    continuity.meet([description()])
    assert continuity.expects_event
    if not is_lost:
        continuity.meet([description(), event + bytes(10)])
        continuity.meet([struct.pack("<IBI", BEGUN + 99, 16, 9)])
        return

    with pytest.raises(PositionLostError) as caught:
        continuity.meet([description(), event + bytes(10)])

    assert caught.value.reason is LostReason.OTHER_SERVER


def test_a_cursor_of_canal_names_an_event_that_is_there() -> None:
    for go_on in (lambda one: one.check(), lambda one: one.enter("binlog.000008", 4711)):
        continuity = Continuity(CANALS, UUID, by_offset=True)
        continuity.enter(CANALS.journal, CANALS.offset)
        assert not continuity.is_open  # as long as nothing has come at all
        continuity.describe(description(), form())
        assert continuity.is_open
        with pytest.raises(PositionLostError) as caught:
            go_on(continuity)
        assert caught.value.reason is LostReason.OTHER_SERVER


def test_a_cursor_of_canal_without_a_time_or_by_gtids_expects_no_event() -> None:
    assert not Continuity(Position("binlog.000007", 4, at_event=True), UUID, by_offset=True).expects_event
    assert not Continuity(CANALS, UUID, by_offset=False).expects_event


def test_a_head_of_mysql_may_lack_the_last_transaction() -> None:
    """Measured on 5.7: FLUSH LOGS beside commits without a two-phase commit; the head after that has it."""
    continuity = stream()
    rotate(continuity)
    done = MysqlGtidSet.parse(f"{UUID}:1-105")

    assert continuity.list(MysqlGtidSet.parse(f"{UUID}:1-104"), done) == done


def test_a_head_of_mariadb_lists_the_last_transaction_of_its_domain() -> None:
    """Else it is that of a log that was begun anew, though in the same second."""
    continuity = stream()
    rotate(continuity)
    done = MariadbGtidSet.parse("0-1-105,1-1-7")

    with pytest.raises(PositionLostError, match="last transaction"):
        continuity.list(MariadbGtidSet.parse("1-1-7"), done, (0, 1, 105))
    assert continuity.list(done, done, (0, 1, 105)) == done
