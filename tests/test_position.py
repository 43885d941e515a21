"""Positions: order, text forms, canal's form."""

from __future__ import annotations

import contextlib
import itertools
import json
import pickle
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from canal.errors import ConfigError, CursorError
from canal.gtid import MariadbGtidSet, MysqlGtidSet
from canal.position import Position, PreparedXa, earliest, journal_key, position_of, resume_at

U1 = "3e11fa47-71ca-11e1-9e33-c80aa9429562"
U2 = "fd50e54f-e561-11f1-856b-02fc00000001"

gtid_texts = st.sampled_from(["", f"{U1}:1-5", f"{U1}:1-9:tag:1,{U2}:3", "0-1-5", "0-1-5,3-2-1"])
positions = st.builds(
    Position,
    journal=st.sampled_from(["", "mysql-bin.000001", "a.b.1000000"]) | st.text(st.characters(codec="utf-8")),
    offset=st.integers(0, 2**63 - 1),
    gtid=gtid_texts,
    row=st.integers(0, 2**40),
    timestamp=st.integers(0, 253_402_300_799_999),
    server_id=st.integers(0, 2**32 - 1),
    source=st.sampled_from(["", U1]),
    next_gtid=st.sampled_from(["", f"{U1}:6"]),
    incarnation=st.sampled_from(["", "1732297541-1", "0-4294967295"]),
    at_event=st.booleans(),
)

CANAL = """{"@type":"com.alibaba.otter.canal.protocol.position.LogPosition",
 "identity":{"slaveId":-1,"sourceAddress":{"address":"db.example","port":3306}},
 "postion":{"gtid":"","included":false,"journalName":"mysql-bin.000002","position":1234,"serverId":7,
 "timestamp":1600000000000,"later":[1]}}"""


# Order.


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("mysql-bin.000009", ("mysql-bin", 9)),
        ("a.b.000001", ("a.b", 1)),
        ("mysql-bin.1000000", ("mysql-bin", 1000000)),
        ("binlog", ("binlog", -1)),
        ("binlog.x1", ("binlog.x1", -1)),
        ("binlog.", ("binlog.", -1)),
        ("binlog.\u0661", ("binlog.\u0661", -1)),
        ("binlog." + "1" * 5000, ("binlog." + "1" * 5000, -1)),
        ("", ("", -1)),
    ],
)
def test_journal_key(name: str, key: tuple[str, int]) -> None:
    """T33"""
    assert journal_key(name) == key


ORDERED = [
    (Position("bin.000001", 900), Position("bin.000002", 4)),
    (Position("bin.999999", 900), Position("bin.1000000", 4)),
    (Position("bin.000001", 4), Position("bin.000001", 2**33)),
    (Position("bin.000001", 2**33), Position("bin.000001", 2**33 + 1)),
    (Position("bin.000001", 4, row=3), Position("bin.000001", 4, row=4)),
    (Position("bin.000001", 4, row=9), Position("bin.000001", 5)),
    (Position("bin.000001", 9, source=U1), Position("bin.000001", 10)),
    (Position(gtid=f"{U1}:1-5"), Position(gtid=f"{U1}:1-6")),
    (Position(gtid=f"{U1}:1-5"), Position(gtid=f"{U1}:1-5,{U2}:1")),
    (Position(gtid=f"{U1}:1-5"), Position(gtid=f"{U1}:1-5", row=1)),
    (Position(gtid="0-1-5"), Position(gtid="0-2-6,1-1-1")),
    # another source, or another base name: only the GTID sets count
    (Position("bin.000009", 4, f"{U1}:1-5", source=U1), Position("bin.000001", 4, f"{U1}:1-6", source=U2)),
    (Position("old.000009", 4, f"{U1}:1-5"), Position("new.000001", 4, f"{U1}:1-6")),
    # one source: the journals count
    (Position("bin.000001", 4, f"{U1}:1-5"), Position("bin.000001", 5, f"{U1}:1-5")),
]


@pytest.mark.parametrize(("early", "late"), ORDERED)
def test_earlier_positions_precede(early: Position, late: Position) -> None:
    """T33"""
    assert early.precedes(late) is True
    assert late.precedes(early) is False
    assert early.precedes(early) is False


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (Position("bin.000001", 4, source=U1), Position("bin.000002", 4, source=U2)),
        (Position("old.000001", 4), Position("new.000002", 4)),
        (Position(gtid=f"{U1}:1-5"), Position(gtid=f"{U2}:1-5")),
        (Position(gtid=f"{U1}:1-5"), Position(gtid=f"{U1}:2-6")),
        (Position(gtid=f"{U1}:1-5"), Position(gtid="0-1-5")),
        (Position(gtid=f"{U1}:1-5"), Position("bin.000001", 4)),
        (Position(timestamp=1), Position(timestamp=2)),
        (Position(server_id=1, timestamp=1), Position(server_id=1, timestamp=2)),
    ],
)
def test_positions_that_cannot_be_compared(one: Position, other: Position) -> None:
    """T34"""
    assert one.precedes(other) is None
    assert other.precedes(one) is None


@given(positions, positions)
def test_order_is_antisymmetric(one: Position, other: Position) -> None:
    forward, back = one.precedes(other), other.precedes(one)
    assert (forward is None) == (back is None)
    assert not (forward and back)
    assert one.precedes(one) is False


@pytest.mark.parametrize(
    ("position", "concrete"),
    [(Position(), False), (Position(timestamp=5), False), (Position("bin.000001"), True), (Position(gtid=f"{U1}:1"), True)],
)
def test_is_concrete(position: Position, concrete: bool) -> None:
    assert position.is_concrete is concrete


# Values.


def test_gtid_becomes_canonical() -> None:
    assert Position(gtid=f"{U1.upper()}:2,\n{U1}:1").gtid == f"{U1}:1-2"
    assert Position(gtid=MysqlGtidSet.parse(f"{U1}:1")).gtid == f"{U1}:1"
    assert Position(gtid=MariadbGtidSet.parse("0-1-2")).gtid_set == MariadbGtidSet.parse("0-1-2")


@pytest.mark.parametrize(
    "fields",
    [
        {"offset": -1},
        {"row": -1},
        {"timestamp": 1.5},
        {"server_id": "1"},
        {"offset": True},
        {"gtid": "x"},
        {"offset": 1 << 63},
        {"row": 1 << 63},
        {"timestamp": 253_402_300_800_000},
        {"server_id": 1 << 63},
    ],
)
def test_impossible_fields_are_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        Position(**fields)


def test_positions_are_immutable_values() -> None:
    position = Position("bin.000001", 4)
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        position.offset = 5  # type: ignore[misc]
    assert pickle.loads(pickle.dumps(position)) == position
    assert len({position, Position("bin.000001", 4)}) == 1


@pytest.mark.parametrize(
    ("position", "text"),
    [
        (Position("bin.000001", 4), "bin.000001:4"),
        (Position("bin.000001", 4, row=7), "bin.000001:4 +7 rows"),
        (Position("bin.000001", 4, gtid="0-1-5"), "bin.000001:4 gtid 0-1-5"),
        (Position(timestamp=12), "time 12"),
        (Position(), "nowhere"),
    ],
)
def test_str_is_for_people(position: Position, text: str) -> None:
    assert str(position) == text


def test_str_stays_short() -> None:
    gtids = ",".join(f"{n:08x}{U1[8:]}:1-5" for n in range(50))
    assert len(str(Position("bin.000001", 4, gtid=gtids))) < 120


# Text.


@given(positions)
def test_text_round_trips(position: Position) -> None:
    text = position.to_text()
    assert Position.from_text(text) == position
    assert Position.from_document(position.to_document()) == position
    assert "\n" not in text
    assert text.isascii()


@pytest.mark.parametrize(
    ("journal", "begun", "precedes"),
    [
        ("b.000005", "100-1", True),  # of the same log, further on
        ("b.000005", "160-1", True),  # that one was reset: the same name, begun later
        ("b.000005", "40-1", False),
        ("b.000005", "100-2", None),
        ("b.000006", "160-1", True),
        ("b.000006", "100-1", True),
        ("b.000004", "40-1", False),
        ("b.000004", "160-1", None),  # that log was reset, or the clock was set back
        ("b.000006", "40-1", None),
        ("b.000006", "", True),  # cursors of an earlier version tell by their numbers
        ("b.000004", "", False),
    ],
)
def test_positions_of_a_log_that_was_reset_are_not_compared_by_their_numbers(
    journal: str, begun: str, precedes: bool | None
) -> None:
    one = Position("b.000005", 4711, source=U1, incarnation="100-1")
    other = Position(journal, 4712, source=U1, incarnation=begun)

    assert one.precedes(other) is precedes
    assert other.precedes(one) is (None if precedes is None else not precedes)


@pytest.mark.parametrize("incarnation", ["1", "1-", "-1", "a-1", "1-1-1", 1, None])
def test_an_incarnation_is_a_time_and_a_server_id(incarnation: Any) -> None:
    with pytest.raises(ConfigError):
        Position("b.000005", 4, incarnation=incarnation)


def test_text_is_canonical() -> None:
    position = Position("bin.000001", 2**40, gtid=f"{U1}:1-5", source=U2)
    expected = f'{{"v":2,"journal":"bin.000001","offset":{2**40},"gtid":"{U1}:1-5","source":"{U2}"}}'
    assert position.to_text() == expected
    assert Position().to_text() == '{"v":2}'
    begun = Position("bin.000001", 9, incarnation="1732297541-1")
    assert begun.to_text() == '{"v":3,"journal":"bin.000001","offset":9,"incarnation":"1732297541-1"}'
    assert Position("bin.000001", 9, at_event=True).to_text() == '{"v":3,"journal":"bin.000001","offset":9,"at_event":true}'
    prepared = Position("bin.000001", 9, xa=[PreparedXa("X'61',X'',1", "bin.000001", 4)])
    assert prepared.to_text() == '{"v":2,"journal":"bin.000001","offset":9,"xa":[["X\'61\',X\'\',1","bin.000001",4]]}'
    assert Position.from_text(prepared.to_text()) == prepared
    assert Position.from_text('{"v":1,"journal":"bin.000001","offset":9}') == Position("bin.000001", 9)


@pytest.mark.parametrize(
    "text",
    [
        '{"v":6}',
        '{"v":5,"row":1,"next_gtid":5}',
        '{"v":4,"members":[]}',
        '{"v":4,"members":{"a":1}}',
        '{"v":4,"journal":"x","members":{"a":{"v":2}}}',
        '{"v":4,"members":{"a":{"v":4,"members":{"b":{"v":2}}}}}',
        "",
        "null",
        "[]",
        "{}",
        '{"v":true}',
        '{"v":"1"}',
        '{"v":1,"xb":[]}',
        '{"v":2,"xa":{}}',
        '{"v":2,"xa":[["X","binlog.1"]]}',
        '{"v":2,"xa":[["X","binlog.1","4"]]}',
        '{"v":1,"offset":"4"}',
        '{"v":1,"offset":-4}',
        '{"v":1,"offset":4.0}',
        '{"v":1,"journal":5}',
        '{"v":1,"gtid":"x"}',
        "\0\0",
        "[" * 99999,
    ],
)
def test_other_text_is_refused(text: str) -> None:
    with pytest.raises(CursorError) as caught:
        Position.from_text(text)
    assert caught.value.remedy


def test_members_of_members_are_refused_however_deep_they_go(monkeypatch: pytest.MonkeyPatch) -> None:
    """Deeper than Python calls, which JSON's own parser is not bound to from Python 3.12 on."""
    fields: dict[str, Any] = {"v": 2}
    for _ in range(5000):
        fields = {"v": 4, "members": {"a": fields}}
    monkeypatch.setattr("canal.position.json.loads", lambda text: fields)
    with pytest.raises(CursorError, match="has members of its own"):
        Position.from_text("")


# canal's form.


def test_canals_cursor_is_read() -> None:
    assert Position.from_canal(json.loads(CANAL)) == Position(
        "mysql-bin.000002", 1234, timestamp=1600000000000, server_id=7, at_event=True
    )


@given(positions)
def test_canals_form_round_trips_but_for_what_it_cannot_hold(position: Position) -> None:
    """Where no event was read yet the server is the one that began the journal."""
    form = json.loads(json.dumps(position.to_canal("127.0.0.1", 3306)))
    server_id = position.server_id or int(position.incarnation.partition("-")[2] or 0)
    assert Position.from_canal(form) == attrs.evolve(
        position, row=0, source="", incarnation="", server_id=server_id, at_event=bool(position.journal)
    )
    assert form["identity"] == {"slaveId": -1, "sourceAddress": {"address": "127.0.0.1", "port": 3306}}
    assert form["postion"]["position"] == position.offset


def test_canals_nulls_and_unknown_server() -> None:
    position = {"journalName": None, "position": None, "gtid": None, "timestamp": 5, "serverId": -1}
    assert Position.from_canal({"postion": position}) == Position(timestamp=5)


@pytest.mark.parametrize(
    "value",
    [
        {},
        {"postion": None},
        {"postion": [1]},
        {"postion": {"position": "4"}},
        {"postion": {"position": -4}},
        {"postion": {"gtid": "x"}},
        {"postion": {"journalName": 4}},
        {"postion": {"timestamp": 10**30}},
        {"postion": {"position": 10**30}},
    ],
)
def test_damaged_canal_cursors_are_refused(value: dict[str, Any]) -> None:
    with pytest.raises(CursorError):
        Position.from_canal(value)


ONE, OTHER = "0a000001-71ca-11e1-9e33-c80aa9429562", "0b000002-71ca-11e1-9e33-c80aa9429562"


def test_clients_inside_of_one_transaction_in_two_logs_begin_with_all_of_it() -> None:
    """Its rows that the first one has say nothing of the other one, whose set has more but not this."""
    here = Position("binlog.000001", 687, f"{ONE}:1-6", row=3, source=OTHER)
    elsewhere = Position("binlog.000002", 2491, f"{ONE}:1-13", row=1, source=ONE)

    assert resume_at([here, elsewhere]) == resume_at([elsewhere, here]) == attrs.evolve(here, row=0)
    assert resume_at([here, attrs.evolve(here, row=4)]) == here


def test_positions_in_two_transactions_after_one_gtid_set_are_not_compared() -> None:
    here = Position("binlog.000001", 687, f"{ONE}:1-6", row=3, source=OTHER, next_gtid=f"{ONE}:7")

    assert here.precedes(attrs.evolve(here, source=ONE, row=4, next_gtid=f"{OTHER}:1")) is None
    assert here.precedes(attrs.evolve(here, source=ONE, row=4, next_gtid="")) is None
    assert here.precedes(attrs.evolve(here, source=ONE, row=4, next_gtid=f"{ONE}:7")) is True


def test_next_gtid_is_dropped_without_rows_and_needs_format_5() -> None:
    inside = Position("binlog.000001", 687, f"{ONE}:1-6", row=3, next_gtid=f"{ONE}:7")

    assert attrs.evolve(inside, row=0) == Position("binlog.000001", 687, f"{ONE}:1-6")
    assert inside.to_document()["v"] == 5


def test_of_two_servers_cursors_with_the_same_gtids_the_older_one_is_first() -> None:
    """While gtid_mode is off sets do not grow."""
    older = Position("binlog.000001", 2335, f"{ONE}:1-5", timestamp=1_700_000_000_000, source=OTHER)
    newer = Position("binlog.000003", 1000, f"{ONE}:1-5", timestamp=1_700_000_009_000, source=ONE)

    assert resume_at([older, newer]) == resume_at([newer, older]) == older


def test_a_cursor_without_a_begin_does_not_hide_that_others_are_of_two_logs() -> None:
    """It is taken for one of either."""
    plain = Position("binlog.000001", 5182, source=ONE)
    old, new = (attrs.evolve(plain, offset=at, incarnation=f"{begun}-1") for at, begun in ((5182, 1), (4917, 2)))

    found = []
    for cursors in itertools.permutations([plain, old, new]):
        with contextlib.suppress(CursorError):
            found.append(resume_at(cursors))
    assert 0 < len(found) < 6
    assert set(found) == {old}


def test_a_cursor_without_a_begin_does_not_hide_that_others_do_not_compare() -> None:
    """A journal of a higher number that was begun earlier: the log was reset, or a clock was set back."""
    plain = Position("binlog.000003", 3009, row=3)
    old = attrs.evolve(plain, incarnation="1700000010-1")
    new = Position("binlog.000001", 1468, incarnation="1700000017-1")

    for cursors in itertools.permutations([plain, old, new]):
        with pytest.raises(CursorError):
            resume_at(cursors)


def test_equal_gtid_sets_with_other_transactions_behind_them_do_not_compare() -> None:
    """Of two servers, whose later transactions have no GTIDs: which of the cursors is the earlier one nobody knows."""
    here = Position("binlog.000003", 4, gtid=f"{U1}:1-4", source="a", tail="11" * 8 + "22" * 8, row=1)
    there = Position("binlog.000003", 4, gtid=f"{U1}:1-4", source="b", tail="22" * 8 + "33" * 8)

    assert here.precedes(there) is None
    assert there.precedes(here) is None
    assert there.precedes(attrs.evolve(here, tail="33" * 8 + "22" * 8)) is True


# Positions of several members.


def of(**offsets: int) -> Position:
    return Position(members={name: Position("b.1", offset, source="x") for name, offset in offsets.items()})


def test_a_position_of_members_precedes_one_where_a_member_does_and_none_is_behind() -> None:
    assert of(a=4, b=4).precedes(of(a=5, b=4)) is True
    assert of(a=5, b=4).precedes(of(a=4, b=4)) is False
    assert of(a=4, b=4).precedes(of(b=4, a=4)) is False
    assert of(a=4, b=5).precedes(of(a=5, b=4)) is None
    assert of(a=4).precedes(of(a=4, b=4)) is None
    assert of(a=4).precedes(Position("b.1", 4)) is None
    assert Position("b.1", 4).precedes(of(a=4)) is None


def test_the_earliest_of_positions_of_members_is_that_of_each_member() -> None:
    assert earliest([of(a=4, b=9), of(a=7, b=5)]) == resume_at([of(a=4, b=9), of(a=7, b=5)]) == of(a=4, b=5)
    with pytest.raises(CursorError, match="cannot be compared"):
        resume_at([of(a=4, b=9), of(a=7)])
    with pytest.raises(CursorError, match="cannot be compared"):
        resume_at([of(a=4), Position("b.1", 4)])


def test_the_text_of_members_comes_back_and_canal_reads_all_of_them_from_the_earliest_time() -> None:
    times = {"a": Position("b.1", 4, timestamp=9000), "b": Position("b.1", 4, incarnation="8-1")}
    position = Position(members=times)

    assert Position.from_text(position.to_text()) == position == Position(members=tuple(reversed(times.items())))
    document = json.loads(position.to_text())
    assert Position.from_document(document) == position
    assert position.to_document() == document  # reading it has left it as it is
    assert position.to_text().startswith('{"v":4,"members":{"a":{"v":2,')
    assert position.to_canal()["postion"]["timestamp"] == 8000


# Made by a decoder.


@given(positions.filter(lambda one: not one.at_event), st.sampled_from(["", "0123456789abcdef"]))
def test_a_position_that_a_decoder_makes_is_one_like_others(position: Position, tail: str) -> None:
    position = attrs.evolve(position, tail=tail, xa=(PreparedXa("X'31',X'',1", "binlog.000001", 4),))

    made = position_of(
        position.journal,
        position.offset,
        position.gtid,
        position.row,
        position.timestamp,
        position.server_id,
        position.source,
        position.xa,
        position.tail,
        position.incarnation,
        position.next_gtid,
    )

    assert made == position
    assert hash(made) == hash(position)
    assert pickle.loads(pickle.dumps(made)) == position
