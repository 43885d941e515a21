"""GTID sets against a naive model, and against a live MySQL server."""

from __future__ import annotations

import contextlib
import copy
import pickle
import random
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from canal.errors import ConfigError, DecodeError, TruncatedError, UnsupportedError
from canal.gtid import MAX_NUMBER, MariadbGtidSet, MysqlGtidSet, parse_gtid_set

U1 = "3e11fa47-71ca-11e1-9e33-c80aa9429562"
U2 = "fd50e54f-e561-11f1-856b-02fc00000001"

# As written by MySQL 9.7.4 into PREVIOUS_GTIDS events.
UNTAGGED = bytes.fromhex("0100000000000000 fd50e54fe56111f1856b02fc00000001 0100000000000000 0100000000000000 0300000000000000")
TAGGED = bytes.fromhex(
    "0104000000000001"
    "3e11fa4771ca11e19e33c80aa9429562 40 61625f6363636363636363636363636363636363636363636363636363636363"
    "0100000000000000 4d00000000000000 4e00000000000000"
    "3e11fa4771ca11e19e33c80aa9429562 02 7a 0100000000000000 4d00000000000000 4e00000000000000"
    "fd50e54fe56111f1856b02fc00000001 00 0100000000000000 0100000000000000 0300000000000000"
    "fd50e54fe56111f1856b02fc00000001 0a 6d79746167 0100000000000000 0100000000000000 0200000000000000"
)

Model = dict[str, frozenset[int]]
SOURCES = [U1, U2, f"{U1}:a", f"{U1}:b_1", f"{U2}:_x"]

models = st.dictionaries(st.sampled_from(SOURCES), st.frozensets(st.integers(1, 24), min_size=1), max_size=len(SOURCES))


def made(model: Model) -> MysqlGtidSet:
    return MysqlGtidSet({source: [(number, number) for number in numbers] for source, numbers in model.items()})


def numbers_of(gtids: MysqlGtidSet) -> Model:
    return {
        source: frozenset(n for first, last in gtids.intervals(source) for n in range(first, last + 1))
        for source in gtids.sources
    }


def is_canonical(gtids: MysqlGtidSet) -> bool:
    return all(
        intervals and all(a[1] + 1 < b[0] for a, b in zip(intervals, intervals[1:], strict=False))
        for intervals in map(gtids.intervals, gtids.sources)
    )


# Text.


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("", ""),
        (" ,\n, ", ""),
        (f"{U1}:1-5", f"{U1}:1-5"),
        (f"{U1.upper()}:7:5-6:1-3 , \n{U1}:4", f"{U1}:1-7"),
        (f"{U1}:5-5", f"{U1}:5"),
        (f"{U1}: 1 - 5 \t:\v9\f", f"{U1}:1-5:9"),
        (f"{U1}:01-05", f"{U1}:1-5"),
        (f"{U2}:1,\n{U1}:2", f"{U1}:2,{U2}:1"),
        (f"{U1}:Tag_1:5:1-2:b:3:9", f"{U1}:b:3:9:tag_1:1-2:5"),
        (f"{U1}:a:1,{U1}:2:a:7", f"{U1}:2:a:1:7"),
        (f"{U1}:b:1:B:2:a:4", f"{U1}:a:4:b:1-2"),
        (f"{U1}:{'a' * 32}:1", f"{U1}:{'a' * 32}:1"),
        (f"{{{U1}}}:1", f"{U1}:1"),
        (f"{U1.replace('-', '')}:1", f"{U1}:1"),
        (f"{U1}:1-{MAX_NUMBER}", f"{U1}:1-{MAX_NUMBER}"),
    ],
)
def test_text_becomes_canonical(text: str, canonical: str) -> None:
    """T29"""
    assert str(MysqlGtidSet.parse(text)) == canonical
    assert str(MysqlGtidSet.parse(canonical)) == canonical


@pytest.mark.parametrize(
    "text",
    [
        U1,
        f"{U1}:",
        f"{U1}:a",
        f"{U1}:a:",
        f"{U1}:1:",
        f"{U1}:1:a",
        f"{U1}:a:b:1",
        f"{U1}:1::2",
        f"{U1}:1-",
        f"{U1}:0",
        f"{U1}:0-3",
        f"{U1}:5-3",
        f"{U1}:1-{MAX_NUMBER + 1}",
        f"{U1}:+1",
        f"{U1}:1_0",
        f"{U1}:\u0661",
        f"{U1}:1 1",
        f"{U1}:a b:1",
        f"{U1}:1a:2",
        f"{U1}:{'a' * 33}:1",
        "ffff:1",
        f"{U1[:20]} {U1[20:]}:1",
        "0-1-5",
        f"{U1}:{'9' * 30}",
        f"{U1}\u00a0:1",
        f"{U1[:-1]}g:1",
    ],
)
def test_bad_text_is_refused(text: str) -> None:
    with pytest.raises(ConfigError):
        MysqlGtidSet.parse(text)
    with pytest.raises(ValueError):
        MysqlGtidSet.parse(text)


def test_a_text_cut_anywhere_never_gains_transactions() -> None:
    text = f"{U1}:1-15:20-25:tag:7-10,{U2}:3"
    whole = MysqlGtidSet.parse(text)
    for end in range(len(text)):
        try:
            part = MysqlGtidSet.parse(text[:end])
        except ConfigError:
            continue
        assert part <= whole


@given(models, st.randoms(use_true_random=False))
def test_any_spelling_reads_the_same(model: Model, rng: random.Random) -> None:
    """T29"""
    pieces = [f"{source}:{number}" for source, numbers in model.items() for number in numbers]
    rng.shuffle(pieces)
    text = rng.choice([",", ",\n", " , ,"]).join(rng.choice([str.upper, str.lower])(piece) for piece in pieces)
    assert MysqlGtidSet.parse(text) == made(model)


# Algebra.


@given(models, models)
def test_operators_agree_with_sets_of_numbers(left: Model, right: Model) -> None:
    """T30"""
    a, b = made(left), made(right)
    names = left.keys() | right.keys()
    nothing: frozenset[int] = frozenset()

    def keep(result: Model) -> Model:
        return {name: numbers for name, numbers in result.items() if numbers}

    assert numbers_of(a | b) == keep({n: left.get(n, nothing) | right.get(n, nothing) for n in names})
    assert numbers_of(a - b) == keep({n: left.get(n, nothing) - right.get(n, nothing) for n in names})
    assert (a <= b) == all(left[n] <= right.get(n, nothing) for n in left)
    assert (a >= b) == all(right[n] <= left.get(n, nothing) for n in right)
    assert (a == b) == (keep(left) == keep(right))
    assert bool(a) == bool(keep(left))
    assert a.count() == sum(map(len, left.values()))
    assert all(map(is_canonical, (a, a | b, a - b)))
    assert (numbers_of(a), numbers_of(b)) == (left, right), "an operand was changed"


@given(models, st.sampled_from(SOURCES), st.integers(1, 24), st.integers(0, 4))
def test_add_and_contains(model: Model, source: str, first: int, more: int) -> None:
    before = made(model)
    after = before.add(source.upper(), first, first + more)
    expected = {**model, source: model.get(source, frozenset()) | frozenset(range(first, first + more + 1))}
    assert numbers_of(after) == expected
    assert is_canonical(after)
    assert numbers_of(before) == model
    for number in range(1, 30):
        assert before.contains(source, number) == (number in model.get(source, ()))


@given(models)
def test_text_wire_hash_and_copies_round_trip(model: Model) -> None:
    gtids = made(model)
    for again in (
        MysqlGtidSet.parse(str(gtids)),
        MysqlGtidSet.decode(gtids.encode()),
        pickle.loads(pickle.dumps(gtids)),
        copy.deepcopy(gtids),
    ):
        assert again == gtids
        assert hash(again) == hash(gtids)
        assert str(again) == str(gtids)


def test_adding_inside_an_interval_cuts_nothing() -> None:
    """canal's merge ends an interval where the added one ends."""
    gtids = MysqlGtidSet.parse(f"{U1}:1-25536412")
    assert gtids.add(U1, 20304074) is gtids
    assert gtids.add(U1, 1, 20304074) == gtids


def test_add_shares_the_other_sources() -> None:
    gtids = MysqlGtidSet.parse(f"{U1}:1-5,{U2}:1-9")
    assert gtids.add(U1, 6).intervals(U2) is gtids.intervals(U2)


@pytest.mark.parametrize("numbers", [(0, 0), (2, 1), (1, MAX_NUMBER + 1)])
def test_add_refuses_impossible_numbers(numbers: tuple[int, int]) -> None:
    with pytest.raises(ConfigError):
        MysqlGtidSet().add(U1, *numbers)


def test_a_number_is_not_all_numbers_up_to_it() -> None:
    """T30"""
    assert not MysqlGtidSet.parse(f"{U1}:1-5") <= MysqlGtidSet.parse(f"{U1}:5")
    assert MysqlGtidSet.parse(f"{U1}:a:1") != MysqlGtidSet.parse(f"{U1}:1")


def test_sets_of_two_flavors_do_not_mix() -> None:
    with pytest.raises(TypeError):
        assert MysqlGtidSet() <= MariadbGtidSet()
    assert MysqlGtidSet() != MariadbGtidSet()


# Wire form.


def test_the_servers_bytes() -> None:
    assert str(MysqlGtidSet.decode(UNTAGGED)) == f"{U2}:1-2"
    assert str(MysqlGtidSet.decode(TAGGED)) == f"{U1}:ab_{'c' * 29}:77:z:77,{U2}:1-2:mytag:1"
    assert MysqlGtidSet.decode(UNTAGGED).encode() == UNTAGGED
    assert MysqlGtidSet.decode(TAGGED).encode() == TAGGED
    assert MysqlGtidSet().encode() == bytes(8)
    assert not MysqlGtidSet.decode(bytes(8))


@pytest.mark.parametrize("whole", [UNTAGGED, TAGGED])
def test_every_truncation_is_noticed(whole: bytes) -> None:
    for end in range(len(whole)):
        with pytest.raises(TruncatedError):
            MysqlGtidSet.decode(whole[:end])
    with pytest.raises(DecodeError):
        MysqlGtidSet.decode(whole + b"\0")


@pytest.mark.parametrize("whole", [UNTAGGED, TAGGED])
def test_damaged_bytes_give_a_set_or_a_decode_error(whole: bytes) -> None:
    for at in range(len(whole)):
        for value in (0, 1, 0x7F, 0xFF, whole[at] ^ 0x20):
            try:
                gtids = MysqlGtidSet.decode(whole[:at] + bytes((value,)) + whole[at + 1 :])
            except DecodeError:
                continue
            assert MysqlGtidSet.decode(gtids.encode()) == gtids


@given(st.binary(max_size=120))
def test_random_bytes_give_a_set_or_a_decode_error(data: bytes) -> None:
    with contextlib.suppress(DecodeError):
        MysqlGtidSet.decode(data)


def test_a_later_format_is_unsupported() -> None:
    with pytest.raises(UnsupportedError):
        MysqlGtidSet.decode(bytes.fromhex("0200000000000002"))


# MariaDB.


def test_mariadb_text() -> None:
    gtids = MariadbGtidSet.parse(" 1-22-333,\n0-1-18446744073709551615 ,")
    assert str(gtids) == "0-1-18446744073709551615,1-22-333"
    assert MariadbGtidSet.parse(str(gtids)) == gtids
    assert hash(MariadbGtidSet.parse(str(gtids))) == hash(gtids)
    assert pickle.loads(pickle.dumps(gtids)) == gtids
    assert not MariadbGtidSet.parse("")


@pytest.mark.parametrize("text", ["0-1", "0-1-", "0-1-2-3", "0-1-2,0-2-3", "4294967296-1-1", "a-b-c", f"{U1}:1"])
def test_bad_mariadb_text_is_refused(text: str) -> None:
    with pytest.raises(ConfigError):
        MariadbGtidSet.parse(text)


def test_mariadb_add_replaces_the_domain() -> None:
    """T31"""
    gtids = MariadbGtidSet.parse("0-1-100,1-1-7")
    assert str(gtids.add(0, 2, 101)) == "0-2-101,1-1-7"
    assert str(gtids.add(0, 2, 3)) == "0-2-3,1-1-7", "it may go back under a new server"
    assert str(gtids) == "0-1-100,1-1-7"
    assert gtids.contains(0, 9, 100)
    assert not gtids.contains(0, 1, 101)
    assert not gtids.contains(2, 1, 1)


def test_mariadb_operators() -> None:
    a, b = MariadbGtidSet.parse("0-1-5,1-1-9"), MariadbGtidSet.parse("0-2-7,2-1-1")
    assert (a <= b, b <= a) == (False, False)
    assert (a <= a | b, b <= a | b) == (True, True)
    assert str(a | b) == "0-2-7,1-1-9,2-1-1"
    assert str(a - b) == "1-1-9"
    assert str(b - a) == "0-2-7,2-1-1"
    assert not a - a


def test_mariadb_list_event() -> None:
    """Entries of one domain come in order; the last one counts."""
    entries = [(0, 1, 5), (0, 2, 9), (7, 1, 1)]
    data = struct.pack("<I", len(entries) | 0xA0000000) + b"".join(struct.pack("<IIQ", *entry) for entry in entries)
    assert str(MariadbGtidSet.decode(data)) == "0-2-9,7-1-1"
    for end in range(len(data)):
        with pytest.raises(TruncatedError):
            MariadbGtidSet.decode(data[:end])
    with pytest.raises(DecodeError):
        MariadbGtidSet.decode(data + b"\0")
    assert not MariadbGtidSet.decode(bytes(4) + bytes(6)), "the server pads an empty list"


def test_the_text_tells_the_flavor() -> None:
    assert parse_gtid_set(f"{U1}:1") == MysqlGtidSet.parse(f"{U1}:1")
    assert parse_gtid_set("\n0-1-5,1-1-1") == MariadbGtidSet.parse("0-1-5,1-1-1")
    assert parse_gtid_set("") == MysqlGtidSet()
    assert parse_gtid_set("", flavor="mariadb") == MariadbGtidSet()
    with pytest.raises(ConfigError):
        parse_gtid_set("0-1-5", flavor="mysql")
    with pytest.raises(ConfigError):
        parse_gtid_set("", flavor="oracle")


# A live server.


@pytest.mark.mysql
def test_algebra_agrees_with_the_server(mysql_server: Any) -> None:
    """T30"""
    rng = random.Random(20)
    with mysql_server.connect() as connection, connection.cursor() as cursor:
        cursor.execute("SELECT VERSION()")
        version = tuple(int(part) for part in cursor.fetchone()[0].split("-")[0].split("."))
        sources = SOURCES if version >= (8, 3) else [U1, U2]
        for _ in range(400):
            a, b = (_random_set(rng, sources) for _ in range(2))
            if rng.random() < 0.3:
                a = a - (a - b)
            cursor.execute(
                "SELECT GTID_SUBSET(%s, %s), GTID_SUBTRACT(%s, %s), GTID_SUBTRACT(%s, '')",
                (str(a), str(b), str(a), str(b), f"{a},{b}"),
            )
            subset, rest, union = cursor.fetchone()
            assert bool(subset) == (a <= b)
            assert rest.replace("\n", "") == str(a - b)
            assert union.replace("\n", "") == str(a | b)


def _random_set(rng: random.Random, sources: list[str]) -> MysqlGtidSet:
    gtids = MysqlGtidSet()
    for _ in range(rng.randrange(8)):
        first = rng.randrange(1, 30) if rng.random() < 0.9 else MAX_NUMBER - rng.randrange(5, 9)
        gtids = gtids.add(rng.choice(sources), first, first + rng.randrange(5))
    return gtids


@pytest.mark.mysql
@pytest.mark.parametrize("tag", ["", "canal_tag"])
def test_the_server_sends_what_the_encoded_set_lacks(mysql_server: Any, tag: str) -> None:
    with mysql_server.connect() as connection, connection.cursor() as cursor:
        connection.autocommit(True)
        cursor.execute("SELECT @@global.server_uuid")
        uuid = cursor.fetchone()[0]
        cursor.execute("CREATE DATABASE IF NOT EXISTS gtid_dump")
        cursor.execute("CREATE TABLE IF NOT EXISTS gtid_dump.t (a INT)")
        if tag:
            cursor.execute(f"SET gtid_next = 'AUTOMATIC:{tag}'")
        for number in range(4):
            cursor.execute("INSERT INTO gtid_dump.t VALUES (%s)", (number,))
        cursor.execute("SET gtid_next = 'AUTOMATIC'")
        cursor.execute("SELECT @@global.gtid_executed")
        done = MysqlGtidSet.parse(cursor.fetchone()[0])
        source = f"{uuid}:{tag}" if tag else uuid
        last = done.intervals(source)[-1][1]
        two = MysqlGtidSet().add(source, last - 2, last - 1)
        four = MysqlGtidSet().add(source, last - 3, last)
    assert _dumped(mysql_server, done, tag) == 0
    assert _dumped(mysql_server, done - two, tag) == 2
    assert _dumped(mysql_server, done - four, tag) == 4


def _dumped(server: Any, gtids: MysqlGtidSet, tag: str) -> int:
    """How many GTID events of the kind the server sends to someone who has these transactions."""
    connection = server.connect()
    try:
        with connection.cursor() as cursor:
            cursor.execute("SET @source_binlog_checksum = 'NONE', @master_binlog_checksum = 'NONE'")
        data = gtids.encode()
        flags = 0x01 | 0x04  # end at the end of the log; by GTID
        request = struct.pack("<HIIQI", flags, 4242, 0, 4, len(data)) + data
        connection._execute_command(0x1E, request)
        kinds = []
        while True:
            packet = connection._read_packet()
            if packet.is_eof_packet():
                break
            kinds.append(packet._data[1 + 4])
        return kinds.count(42 if tag else 33)
    finally:
        connection._force_close()
