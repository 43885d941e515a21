"""Random histories of a log and its readers: what comes is exactly the rest of the log, or something tells where it is not.

The model is in tests/programs/continuity.py, which also says how to see one history again.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pytest

from tests.programs.continuity import Counts, History, Reading, Setup, Step, draw, play, shrink


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """What is lost on purpose is not for the log."""
    with caplog.at_level(logging.CRITICAL + 1, "canal"):
        yield


def read(server: int = 0, **options: Any) -> Step:
    return ("read", Reading(server=server, **options))


def meanwhile(*steps: Step) -> Any:
    """Each when all there is was read."""
    return tuple((-1, step) for step in steps)


WRITE: Step = ("write", 0, 1, 1)
RESET: Step = ("reset", 0, False)


def test_histories_lose_nothing_in_silence(thorough: bool) -> None:
    counts = run(range(1, 2001 if thorough else 301))
    # Each kind of outcome is met, or the histories have lost their bite.
    assert min(counts.exact, counts.loud, counts.alarmed, counts.cautious, counts.repeated) > 0, counts


@pytest.mark.slow
@pytest.mark.nightly
def test_many_histories_lose_nothing_in_silence(full_size: bool) -> None:
    run(range(10_001, 210_001 if full_size else 11_001))


def run(seeds: range) -> Counts:
    counts = Counts()
    for seed in seeds:
        history = draw(seed)
        fault = play(history, counts)
        if fault is not None:
            shorter, same = shrink(history, fault)
            pytest.fail(f"seed {seed}: {same}\n{shorter}\n(python -m tests.programs.continuity --seed {seed} --histories 1)")
    return counts


# -- the shortest histories of faults that there were --------------------------------------------------------------------

SERVERS = [("mysql", True), ("mysql", False), ("mariadb", True)]
ON_LOST = ["fail", "earliest", "latest"]


@pytest.mark.parametrize("on_lost", ON_LOST)
@pytest.mark.parametrize(("flavor", "gtid"), SERVERS)
@pytest.mark.parametrize("form", ["direct", "wire", "files", "follow"])
def test_a_reset_while_away_and_then_more_than_before(form: str, flavor: str, gtid: bool, on_lost: str) -> None:
    check(Setup(form, flavor, gtid), ("write", 0, 2, 1), read(), RESET, ("write", 0, 5, 1), read(on_lost=on_lost))


@pytest.mark.parametrize("on_lost", ["earliest", "latest"])
@pytest.mark.parametrize(("flavor", "gtid"), SERVERS)
@pytest.mark.parametrize("form", ["direct", "wire", "files"])
def test_a_reset_while_two_clients_are_away(form: str, flavor: str, gtid: bool, on_lost: str) -> None:
    two = ((None, 0), (2, 0))
    check(
        Setup(form, flavor, gtid, clients=2),
        ("write", 0, 5, 1),
        read(batch=1, plans=two),
        RESET,
        ("write", 0, 2, 1),
        read(on_lost=on_lost, meanwhile=meanwhile(WRITE)),
        WRITE,
        read(),
    )


@pytest.mark.parametrize("on_lost", ON_LOST)
@pytest.mark.parametrize("count", [1, 8])
@pytest.mark.parametrize(("flavor", "gtid"), SERVERS)
@pytest.mark.parametrize("form", ["direct", "wire", "follow"])
def test_a_reset_while_it_is_read(form: str, flavor: str, gtid: bool, count: int, on_lost: str) -> None:
    more = ("write", 0, count, 1)
    for journals in ((), (("rotate", 0),)):
        begin = (("write", 0, 2, 1), *journals, WRITE)
        check(Setup(form, flavor, gtid), *begin, read(on_lost=on_lost, meanwhile=meanwhile(RESET, more)), read(on_lost=on_lost))
        slow = ((7, RESET), (0, ("rotate", 0)), (0, more))  # amidst a log that a ROTATE ends
        check(Setup(form, flavor, gtid), *begin, read(on_lost=on_lost, meanwhile=slow, chunk=1), read(on_lost=on_lost))
        behind = meanwhile(RESET, ("rotate", 0), more)
        check(Setup(form, flavor, gtid), *begin, read(on_lost=on_lost, meanwhile=behind), read(on_lost=on_lost))


@pytest.mark.parametrize("on_lost", ON_LOST)
@pytest.mark.parametrize("start", ["restart", "crash"])
@pytest.mark.parametrize(("flavor", "gtid"), SERVERS)
@pytest.mark.parametrize("form", ["direct", "wire"])
def test_a_reset_and_a_start_of_the_server_while_its_log_is_read(
    form: str, flavor: str, gtid: bool, start: str, on_lost: str
) -> None:
    """The old log ends without a word, and the new second one begins as one does behind a start."""
    anew = ((1, RESET), (0, WRITE), (0, (start, 0)), (0, WRITE))
    check(
        Setup(form, flavor, gtid, clients=2),
        ("write", 0, 9, 1),
        read(plans=((None, 0), (0, 0))),
        read(plans=((0, 0),), on_lost=on_lost, meanwhile=anew, chunk=3),
        WRITE,
        read(on_lost=on_lost),
    )


@pytest.mark.parametrize("form", ["direct", "wire"])
def test_a_log_begun_anew_within_a_second_does_not_list_what_came_before_it(form: str) -> None:
    anew = ((0, WRITE), (0, ("reset", 0, True)), (-1, ("rotate", 0)))
    check(Setup(form, "mariadb"), WRITE, ("rotate", 0), read(meanwhile=anew, chunk=3))


def test_a_file_that_is_gone_behind_a_reader_that_goes_on_at_the_latest() -> None:
    """The history was made from it, and is begun anew."""
    gone = ((-1, ("remove", 2)), (-1, WRITE), (4, ("restart", 0)), (1, ("cut tail", 3, 1)))
    check(
        Setup("follow", "mysql", gtid=False, has_index=True),
        read(meanwhile=meanwhile(("rotate", 0))),
        ("restart", 0),
        WRITE,
        ("rotate", 0),
        read(),
        ("restart", 0),
        read(on_lost="latest", meanwhile=gone),
    )


@pytest.mark.parametrize(("flavor", "gtid"), SERVERS)
@pytest.mark.parametrize("form", ["direct", "wire"])
def test_a_reset_within_a_second_behind_a_log_that_ends_with_a_stop(form: str, flavor: str, gtid: bool) -> None:
    """The new second log was begun by no start."""
    begin = (WRITE, ("restart", 0), ("write", 0, 3, 1), read(plans=((0, 0),)))
    check(Setup(form, flavor, gtid), *begin, read(meanwhile=((0, ("reset", 0, True)), (-1, ("rotate", 0))), chunk=1))


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("form", ["direct", "wire"])
def test_a_reset_that_only_one_of_two_clients_at_one_place_can_prove(form: str, count: int) -> None:
    """The other one's cursor does not say when its journal was begun, and the new log has an event's end there too."""
    gtids, aged = meanwhile(("gtids", 0, True), RESET), ("age", 0, "plain")
    check(
        Setup(form, "mysql", gtid=False, clients=2),
        read(meanwhile=gtids),
        read(meanwhile=((1, ("write", 0, count, 2)),)),
        aged,
        RESET,
        ("write", 0, count, 2),
        read(),
    )


@pytest.mark.parametrize("start", [(), (("restart", 0),)])
@pytest.mark.parametrize("flavor", ["mysql", "mariadb"])
@pytest.mark.parametrize("form", ["direct", "wire"])
def test_a_reset_in_the_first_log_of_a_dump_by_gtid_set(form: str, flavor: str, start: tuple[Step, ...]) -> None:
    """The dump goes over to the new second log, and leaves out the GTIDs that were done in the old one."""
    anew = ((1, RESET), *((0, step) for step in start), (4, ("rotate", 0)), (0, ("write", 0, 2, 1)))
    check(Setup(form, flavor), WRITE, read(start="latest", meanwhile=anew, chunk=1))


@pytest.mark.parametrize("form", ["direct", "wire"])
def test_gtids_switched_off_and_on_while_away(form: str) -> None:
    off, on = ("gtids", 0, False), ("gtids", 0, True)
    check(Setup(form, "mysql"), WRITE, read(), off, WRITE, on, WRITE, read(), WRITE, read())
    check(Setup(form, "mysql"), WRITE, read(plans=((0, 0),)), off, WRITE, on, WRITE, off, read(), on, WRITE, read())


@pytest.mark.parametrize("form", ["direct", "wire"])
def test_a_cursor_of_canal_s_does_not_compare_with_one_of_another_server(form: str) -> None:
    """It names no server; by numbers it would be ahead, and what is between would be lost."""
    other = ((1, ("write", 1, 2, 1)), (-1, ("ddl", 0)))
    check(
        Setup(form, "mariadb", servers=2, clients=2),
        read(meanwhile=((0, ("rotate", 1)),)),
        WRITE,
        read(batch=1, plans=((None, 0), (2, 0)), meanwhile=other),
        read(1),
        ("age", 1, "canal's BEGIN"),
        ("write", 1, 1, 1),
        read(1),
    )


@pytest.mark.parametrize("form", ["direct", "wire"])
def test_a_reset_without_gtids_and_a_cursor_of_an_earlier_version_with_some(form: str) -> None:
    """The server has not executed them, though the journal has an event's end where the cursor is."""
    off, on = ("gtids", 0, False), ("gtids", 0, True)
    check(Setup(form, "mysql"), ("write", 0, 1, 2), read(), off, RESET, ("write", 0, 1, 2), on, ("age", 0, "plain"), read())


@pytest.mark.parametrize("on_lost", ON_LOST)
@pytest.mark.parametrize(("flavor", "gtid"), SERVERS)
@pytest.mark.parametrize("form", ["files", "follow"])
@pytest.mark.parametrize("has_index", [False, True])
def test_a_file_that_is_gone(form: str, flavor: str, gtid: bool, has_index: bool, on_lost: str) -> None:
    setup = Setup(form, flavor, gtid, has_index=has_index)
    three: tuple[Step, ...] = (WRITE, ("rotate", 0), WRITE, ("restart", 0), WRITE, ("rotate", 0), WRITE)
    lost = read(on_lost=on_lost)
    check(setup, *three, ("remove", 1), lost)  # in the middle
    check(setup, *three, ("remove", 2), lost)  # behind one that ends without a word of it
    check(setup, *three[:2], read(), *three[2:], ("remove", 1), lost)  # behind where reading stands
    check(setup, *three[:1], read(), ("rotate", 0), *three[2:], ("remove", 1), lost)  # behind the end of what was read
    check(setup, *three, read(on_lost=on_lost, chunk=1, meanwhile=((1, ("purge", 0, 1)),)))  # before it was come to


@pytest.mark.parametrize("on_lost", ON_LOST)
@pytest.mark.parametrize("end", ["rotate", "restart", "crash"])
@pytest.mark.parametrize(("flavor", "gtid"), SERVERS)
@pytest.mark.parametrize("form", ["files", "follow"])
def test_a_file_that_is_cut_between_two_events(form: str, flavor: str, gtid: bool, end: str, on_lost: str) -> None:
    begin = (("write", 0, 4, 1), (end, 0), ("write", 0, 2, 1))
    for events in range(1, 14):
        check(Setup(form, flavor, gtid), *begin, ("cut tail", 0, events), read(on_lost=on_lost))
        check(Setup(form, flavor, gtid), *begin, ("cut range", 0, events, 3), read(on_lost=on_lost))


@pytest.mark.parametrize(("flavor", "gtid"), SERVERS)
@pytest.mark.parametrize("form", ["direct", "wire"])
def test_a_switch_and_back(form: str, flavor: str, gtid: bool) -> None:
    """The journals of the two have the same names, and other transactions at the same offsets."""
    copy: Step = ("copy", 1, 100)
    check(
        Setup(form, flavor, gtid, servers=2),
        ("write", 0, 2, 1),
        ("rotate", 1),
        copy,
        ("rotate", 1),
        read(),
        ("write", 0, 4, 1),
        copy,
        read(1),
        WRITE,
        copy,
        read(1, plans=((0, 0),)),
        read(),
        WRITE,
        read(),
    )


@pytest.mark.parametrize("form", ["files", "follow"])
def test_an_index_whose_last_line_comes_twice(form: str) -> None:
    check(Setup(form, "mysql"), WRITE, ("rotate", 0), WRITE, ("index twice",), read(), WRITE, read())


@pytest.mark.parametrize("kind", ["canal's", "canal's BEGIN"])
@pytest.mark.parametrize(("flavor", "gtid"), SERVERS)
@pytest.mark.parametrize("form", ["direct", "wire", "files"])
def test_cursors_of_canals(form: str, flavor: str, gtid: bool, kind: str) -> None:
    """Each is where an event begins that is done."""
    begin = (("write", 0, 6, 2), read(plans=((None, 0), (0, 0))), ("age", 0, kind))
    check(Setup(form, flavor, gtid, clients=1), *begin, WRITE, read())
    check(Setup(form, flavor, gtid, clients=1), *begin, RESET, ("write", 0, 12, 2), read())


@pytest.mark.parametrize("flavor", ["mysql", "mariadb"])
@pytest.mark.parametrize("form", ["direct", "wire"])
def test_a_reset_behind_which_the_cursors_journal_has_not_come_again(form: str, flavor: str) -> None:
    """The GTIDs are the same ones again, but no server's log goes back to an earlier number."""
    for age in ((), (("age", 0, "plain"),)):
        check(Setup(form, flavor), ("rotate", 0), WRITE, read(), *age, RESET, ("write", 0, 2, 1), read())


@pytest.mark.parametrize("form", ["direct", "wire", "files", "follow"])
def test_a_first_cursor_whose_stream_began_slowly(form: str) -> None:
    """The ROTATE comes alone in the first read: the FORMAT_DESCRIPTION, which tells one log from another, in the next one."""
    check(Setup(form, "mysql"), read(plans=((0, 0),), chunk=1), WRITE, RESET, WRITE, read())


def test_a_faster_client_at_another_server() -> None:
    """Its cursor has GTIDs that the present position lacks: neither includes the other."""
    check(
        Setup("direct", "mysql", servers=2, clients=2),
        ("write", 0, 5, 1),
        read(batch=2, plans=((None, 0), (2, 0))),
        ("write", 1, 1, 1),
        read(1),
    )


@pytest.mark.parametrize(("flavor", "gtid"), SERVERS[:2])
@pytest.mark.parametrize("form", ["direct", "wire", "files"])
def test_a_cursor_of_canals_ahead_of_another_client(form: str, flavor: str, gtid: bool) -> None:
    """It is where a BEGIN begins: the transaction is not done."""
    begin = (("write", 0, 6, 2), read(plans=((None, 0), (0, 0))))
    check(Setup(form, flavor, gtid, clients=2), *begin, ("age", 0, "canal's BEGIN"), WRITE, read())


def test_a_cursor_of_canals_beside_one_of_another_server() -> None:
    check(
        Setup("direct", "mysql", servers=2, clients=2),
        read(meanwhile=((4, ("crash", 1)),)),
        read(1, on_lost="earliest", meanwhile=((4, WRITE), (0, ("write", 1, 1, 1)))),
        read(plans=((None, 1), (4, 0))),
        ("age", 0, "canal's BEGIN"),
        read(),
    )


def test_faster_clients_at_another_server_without_gtids() -> None:
    check(
        Setup("direct", "mysql", servers=2, clients=2),
        ("gtids", 0, False),
        ("write", 0, 3, 1),
        ("write", 1, 1, 1),
        read(batch=1, plans=((3, 1), (6, 0))),
        read(1),
    )


def test_gtids_that_come_late_to_a_standby_are_no_gap() -> None:
    """It lacked the last transaction when reading went over to it, and got it later."""
    check(
        Setup("direct", "mysql", servers=2),
        WRITE,
        read(),
        read(1, meanwhile=meanwhile(("write", 1, 1, 1))),
        read(1, meanwhile=meanwhile(("copy", 1, 1))),
    )


def test_servers_that_took_turns_in_one_domain() -> None:
    """The standby lacks the last transaction, and begins again behind the last one of the same server."""
    check(Setup("wire", "mariadb", servers=2), ("write", 1, 1, 1), WRITE, ("write", 1, 1, 1), read(1), read())


@pytest.mark.parametrize("form", ["direct", "wire"])
def test_a_log_that_was_begun_anew_and_purged_with_the_same_gtids(form: str) -> None:
    """By GTID set all of it were done, for a cursor of an earlier version too."""
    for age in ((), (("age", 0, "plain"),)):
        anew = (("reset", 0, False), ("write", 0, 4, 1), ("rotate", 0), ("write", 0, 2, 1), ("rotate", 0), ("purge", 0, 2))
        check(Setup(form, "mysql"), ("write", 0, 5, 1), read(), *age, *anew, read())


@pytest.mark.parametrize("flavor", ["mysql", "mariadb"])
@pytest.mark.parametrize("form", ["files", "follow"])
def test_a_file_that_is_cut_behind_a_start_from_the_latest_change(form: str, flavor: str) -> None:
    begin = (WRITE, read(start="latest", plans=((0, 0),)), WRITE, ("crash", 0), WRITE)
    for events in range(1, 8):
        check(Setup(form, flavor), *begin, ("cut tail", 0, events), read())


@pytest.mark.parametrize("form", ["direct", "wire"])
def test_a_client_that_is_ahead_of_all_that_a_log_has_that_was_begun_anew(form: str) -> None:
    """The first client's log is purged, and its GTIDs are there again."""
    check(
        Setup(form, "mariadb", clients=2),
        ("write", 0, 2, 1),
        read(),
        WRITE,
        read(plans=((None, 0), (0, 0))),
        RESET,
        ("write", 0, 2, 1),
        ("rotate", 0),
        ("purge", 0, 1),
        read(),
    )


@pytest.mark.parametrize("plans", [((None, 0),), ((None, 0), (0, 0))])
@pytest.mark.parametrize("flavor", ["mysql", "mariadb"])
@pytest.mark.parametrize("form", ["direct", "wire"])
def test_a_log_that_was_begun_anew_and_purged_to_just_before_what_is_done(form: str, flavor: str, plans: Any) -> None:
    """The first GTID that is there is done, for one client at least."""
    check(
        Setup(form, flavor, clients=2),
        ("write", 0, 3, 1),
        read(),
        WRITE,
        read(plans=plans),
        RESET,
        ("write", 0, 3, 1),
        ("rotate", 0),
        ("purge", 0, 1),
        WRITE,
        read(),
    )


@pytest.mark.parametrize("on_lost", ON_LOST)
@pytest.mark.parametrize("form", ["direct", "wire"])
def test_logs_without_gtids_that_are_purged_while_away(form: str, on_lost: str) -> None:
    """gtid_mode is on again: by GTID set a server leaves out what it still has of them."""
    for keep in (2, 3):
        check(
            Setup(form, "mysql"),
            WRITE,
            read(),
            ("gtids", 0, False),
            ("write", 0, 2, 1),
            ("rotate", 0),
            WRITE,
            ("gtids", 0, True),
            WRITE,
            ("purge", 0, keep),
            read(on_lost=on_lost),
        )


@pytest.mark.parametrize("form", ["direct", "wire"])
def test_logs_that_are_purged_while_away_are_no_loss_where_all_is_done(form: str) -> None:
    for keep in (1, 2, 3):
        check(Setup(form, "mysql"), WRITE, ("rotate", 0), read(), ("rotate", 0), ("rotate", 0), WRITE, ("purge", 0, keep), read())


def _later_journal(form: str, gtid: bool) -> None:
    two = ((None, 0), (2, 0))
    check(
        Setup(form, "mysql", gtid, clients=2),
        ("rotate", 0),
        ("write", 0, 5, 1),
        read(batch=1, plans=two),
        RESET,
        ("write", 0, 2, 1),
        read(on_lost="earliest", meanwhile=meanwhile(WRITE)),
        WRITE,
        read(),
    )


@pytest.mark.parametrize("form", ["direct", "wire", "files"])
def test_a_reset_while_two_clients_are_in_a_later_journal(form: str) -> None:
    """Its number has not come again."""
    _later_journal(form, gtid=False)


@pytest.mark.parametrize("form", ["direct", "wire", "files"])
def test_a_reset_while_two_clients_are_in_a_later_journal_with_the_same_gtids(form: str) -> None:
    """The client that is ahead gets what is in the new log too."""
    _later_journal(form, gtid=True)


@pytest.mark.parametrize("on_lost", ["earliest", "latest"])
@pytest.mark.parametrize("form", ["files", "follow"])
def test_a_listed_file_that_is_gone_is_left_behind_once(form: str, on_lost: str) -> None:
    check(Setup(form, "mysql"), ("rotate", 0), WRITE, ("rotate", 0), read(), ("remove", 1), read(on_lost=on_lost))


def test_files_that_are_begun_anew_while_they_are_read_to_their_end() -> None:
    """The ROTATE names a file that has not been read, and is gone."""
    check(Setup("files", "mysql", gtid=False), ("rotate", 0), WRITE, read(meanwhile=((0, RESET),)))


@pytest.mark.parametrize("on_lost", ["earliest", "latest"])
def test_an_offset_of_a_file_at_which_no_event_begins(on_lost: str) -> None:
    """A cursor of an earlier version, and a RESET: as of a server, that is a position that is lost."""
    check(
        Setup("files", "mariadb"),
        ("write", 0, 5, 1),
        read(),
        ("age", 0, "plain"),
        WRITE,
        RESET,
        ("write", 0, 6, 2),
        read(on_lost=on_lost),
    )


def test_an_offset_close_to_the_end_of_a_file() -> None:
    """Less than the head of an event stands behind it."""
    check(
        Setup("follow", "mysql"),
        WRITE,
        ("rotate", 0),
        read(start="latest"),
        RESET,
        ("crash", 0),
        ("age", 0, "plain"),
        ("rotate", 0),
        read(on_lost="earliest"),
    )


def test_a_warning_about_a_file_is_told_where_the_next_one_is_damaged() -> None:
    """The file was cut inside a transaction, and the error comes with the same bytes."""
    check(
        Setup("files", "mariadb", checksum=False),
        ("write", 0, 3, 3),
        ("crash", 0),
        ("write", 0, 2, 1),
        read(batch=1, plans=((2, 0),), meanwhile=((-1, ("restart", 0)), (-1, ("cut tail", 1, 7))), chunk=10),
        ("crash", 0),
        ("write", 0, 6, 4),
        ("cut range", 1, 6, 1),
        ("cut tail", 2, 12),
        read(on_lost="latest"),
    )


def test_an_offset_inside_the_last_event_of_a_file_that_is_written() -> None:
    """What stands behind it is no event of which the rest is to come."""
    check(
        Setup("follow", "mysql", checksum=False),
        ("write", 0, 2, 1),
        read(),
        ("write", 0, 7, 4),
        read(batch=1, plans=((5, 0),)),
        read(plans=((6, 1),)),
        RESET,
        ("age", 0, "plain"),
        ("write", 0, 2, 4),
        read(),
    )


@pytest.mark.parametrize("form", ["direct", "wire"])
@pytest.mark.parametrize("gtid", [True, False])
def test_a_reset_log_that_ends_where_reading_does(form: str, gtid: bool) -> None:
    """As many transactions of the same size: journal, offset and GTIDs are those of the log that was read."""
    two = ("write", 0, 2, 1)
    meanwhile = (-1, RESET), (-1, two), (0, RESET), (1, two)
    check(Setup(form, "mysql", gtid=gtid), WRITE, read(on_lost="earliest", meanwhile=meanwhile))


@pytest.mark.parametrize("form", ["direct", "wire"])
def test_a_cursor_of_an_earlier_version_whose_gtids_are_not_there_any_more(form: str) -> None:
    """Journal and offset are there again; the GTIDs tell that it is another log."""
    check(
        Setup(form, "mariadb"),
        ("write", 0, 2, 1),
        ("rotate", 0),
        WRITE,
        read(),
        ("age", 0, "plain"),
        WRITE,
        RESET,
        WRITE,
        ("rotate", 0),
        WRITE,
        read(),
    )


@pytest.mark.parametrize("on_lost", ["earliest", "latest"])
def test_a_cursor_inside_a_transaction_that_is_there_no_more(on_lost: str) -> None:
    """RESET, and a transaction of another time comes in its place: a lost position, of which ``on_lost`` decides."""
    check(
        Setup("direct", "mysql"),
        ("rotate", 0),
        ("write", 0, 2, 2),
        read(batch=1, plans=((3, 0),)),
        RESET,
        ("write", 0, 2, 1),
        read(on_lost=on_lost),
    )


@pytest.mark.parametrize("form", ["direct", "wire"])
def test_gtids_switched_off_while_the_log_is_read_by_them(form: str) -> None:
    """The server ends the dump at the first transaction without a GTID, and reading goes on by journal and offset."""
    check(Setup(form, "mysql"), WRITE, read(start="latest", meanwhile=((1, ("gtids", 0, False)), (0, WRITE))))


def check(setup: Setup, *steps: Step) -> None:
    fault = play(History(setup, steps))
    if fault is not None:
        raise fault
