"""The states and moves of a decoder: the tables hold all that decoders go through, and nothing else."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Iterator
from typing import Any

import pytest

import canal
from canal.binlog import event_layout as layout
from canal.binlog.event_types import FL_DDL, FORMAT_DESCRIPTION, GTID, MARIADB_GTID, QUERY, WRITE_ROWS_V1, XID
from canal.filter import FieldFilter, TableFilter
from canal.gtid import parse_gtid_set
from canal.parse.log.assembly import Assembly
from canal.parse.log.decoder import BinlogDecoder
from canal.parse.log.events import put
from canal.parse.log.states import MOVES, Move, TransactionState
from canal.parse.schema.classify import classify
from canal.parse.schema.table_map import TableResolver
from canal.position import PreparedXa
from canal.testing.fake import FakeBinlog
from tests.support.decoder_flags import TOGETHER, Flag, check
from tests.support.parsing import order, patched, shop

Seen = set[tuple[TransactionState, frozenset[Flag]]]


def new_decoder(**options: Any) -> BinlogDecoder:
    resolver = TableResolver(lambda raw: None, TableFilter(""), FieldFilter(), datetime.UTC)
    return BinlogDecoder(resolver.resolve, classify, resolver.wants, lambda *_: None, lambda entries: None, **options)


def end_of(event: bytes) -> int:
    return int.from_bytes(event[layout.END : layout.FLAGS], "little")


def walked(decoder: BinlogDecoder, events: Iterable[bytes]) -> Seen:
    """What a decoder goes through that is given one event at a time."""
    seen = {check(decoder)}
    for event in events:
        decoder.feed([event])
        seen.add(check(decoder))
    return seen


def read(events: list[bytes], flavor: str, row: int = 0, **limits: int) -> Iterator[Seen]:
    """What the decoder of a log goes through, and the one that reads what is prepared in it again."""

    def again(prepared: PreparedXa, offset: int) -> Iterator[bytes]:
        head = next(one for one in events if one[layout.TYPE] == FORMAT_DESCRIPTION)
        return iter([head, *(one for one in events if end_of(one) - len(one) >= prepared.offset)])

    decoder = new_decoder(read_again=again, **limits)
    start = canal.Position(journal="binlog.000001", offset=4, row=row)
    decoder.reset(start, flavor, "", parse_gtid_set("", flavor))  # type: ignore[arg-type]
    replay = decoder.replay(PreparedXa("", "", 0), lambda entries: None)
    found: list[PreparedXa] = []
    for event in events:
        yield walked(decoder, [event])
        found += decoder.assembly.prepared
    if found:
        rest = again(found[0], 0)
        yield walked(replay, iter(lambda: b"" if replay.xa.replayed else next(rest), b""))


def log_of(flavor: str, first: str = "") -> FakeBinlog:
    """A transaction of ten entries, or one of XA that commits in one phase; two that are prepared; a statement."""
    fake, orders = shop(flavor)
    for xa in (first, "kept", "dropped"):
        with fake.transaction(xa=xa, **{"end": "ONE PHASE"} if xa and xa == first else {}):
            for number in range(8):
                orders.insert(order(number))
        if xa == "dropped":
            fake.xa_rollback(xa)
        elif xa == "kept":
            fake.xa_commit(xa)
    fake.ddl("CREATE TABLE shop.other (id INT)")
    fake.end()
    return fake


def undecided(fake: FakeBinlog) -> list[bytes]:
    """The log with its first statement of MariaDB as the beginning of an ALTER."""
    events = fake.events()
    at = next(i for i, one in enumerate(events) if one[layout.TYPE] == MARIADB_GTID and one[layout.MARIADB_GTID_FLAGS] & FL_DDL)
    events[at] = patched(events[at], layout.MARIADB_GTID_REST, b"\x02")
    return events


def without_begin() -> list[bytes]:
    """Rows as MySQL 5.1 logs them of a table without transactions."""
    fake, orders = shop("mysql", version="5.1.73")
    for number in range(3):
        orders.insert(order(3 * number), order(3 * number + 1), order(3 * number + 2))
    fake.end()
    events, end = [], layout.FIRST
    for event in fake.events():
        if event[layout.TYPE] == WRITE_ROWS_V1:
            for is_last in (False, True):
                end += len(event)
                events.append(put(put(event, layout.END, end.to_bytes(4, "little")), layout.ROWS_FLAGS, bytes((is_last, 0))))
        elif event[layout.TYPE] not in (QUERY, XID):
            end += len(event)
            events.append(put(event, layout.END, end.to_bytes(4, "little")))
    return events


def torn() -> Iterator[Seen]:
    """Logs of a server that stopped between a GTID and its transaction, or of which events are missing."""
    altered, _ = shop("mariadb")
    for name in ("first", "second"):
        altered.ddl(f"CREATE TABLE shop.{name} (id INT)")
    altered.end()
    for flavor, kind, events in (("mysql", GTID, log_of("mysql", "one").events()), ("mariadb", MARIADB_GTID, undecided(altered))):
        head = next(one for one in events if one[layout.TYPE] == FORMAT_DESCRIPTION)
        gtids = [one for one in events if one[layout.TYPE] == kind]
        starts = [one for one in events if one[layout.TYPE] == QUERY and b"XA START" in one]
        for chosen in (gtids[:1], gtids[:2], [gtids[0], *starts[-2:]]):
            decoder = new_decoder()
            start = canal.Position(journal="binlog.000001", offset=4)
            decoder.reset(start, flavor, "", parse_gtid_set("", flavor))  # type: ignore[arg-type]
            yield walked(decoder, [head, *chosen, head])


def paths() -> Iterator[Seen]:
    for row in (0, 3):
        for limits in ({"piece_entries": 3}, {}):
            for flavor in ("mysql", "mariadb"):
                yield from read(log_of(flavor).events(), flavor, row, **limits)
            yield from read(log_of("mysql", "one").events(), "mysql", row, **limits)
            yield from read(without_begin(), "mysql", row, piece_bytes=1 if limits else 1 << 20)
    yield from read(undecided(log_of("mariadb")), "mariadb")
    yield from torn()


def test_the_table_is_what_decoders_go_through() -> None:
    seen: Seen = set().union(*paths())

    listed = {(state, flags) for state, rows in TOGETHER.items() for flags in rows}
    assert (seen - listed, listed - seen) == (set(), set())


@pytest.mark.skipif(canal.compiled, reason="compiled code does not look up its methods")
def test_the_moves_are_what_decoders_make(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = set()
    move = Assembly.move

    def noted(assembly: Assembly, number: int) -> int:
        before = assembly.state
        after = move(assembly, number)
        seen.add((TransactionState(before), Move(number), TransactionState(after)))
        return after

    monkeypatch.setattr(Assembly, "move", noted)
    for _ in paths():
        pass

    listed = {(before, move, after) for before, moves in MOVES.items() for move, after in moves.items()}
    assert (seen - listed, listed - seen) == (set(), set())


@pytest.mark.parametrize("state", TransactionState)
def test_a_move_that_a_state_does_not_have_is_refused_and_changes_nothing(state: TransactionState) -> None:
    ways: dict[TransactionState, tuple[Move, ...]] = {TransactionState.BETWEEN: ()}
    for _ in TransactionState:
        for before, way in list(ways.items()):
            ways = {after: (*way, move) for move, after in MOVES[before].items()} | ways
    assembly = Assembly(lambda entries: None, 1, 1)
    for move in ways[state]:
        assembly.move(move)
    assert assembly.state == state

    for move in set(Move) - MOVES[state].keys():
        with pytest.raises(canal.DecodeError, match=f"{move.name} in state {state.name}"):
            assembly.move(move)
        assert assembly.state == state
