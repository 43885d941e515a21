"""What this version does not decode stops the stream with an error that names it; what may be ignored is."""

from __future__ import annotations

import struct
import zlib
from typing import Any

import pytest

import canal
from canal.testing.fake import FakeBinlog
from tests.support.parsing import chained, decoded, rows_of


def log_with(kind: int, body: bytes, *, flags: int = 0, **options: Any) -> list[bytes]:
    """A log with one more event, made by hand, before its last transaction."""
    fake = FakeBinlog(**options)
    fake.table("shop", "orders", "id INT").insert({"id": 1})
    events = fake.events()
    begin = next(number for number, event in enumerate(events) if event[4] in (33, 162))
    size = 19 + len(body) + 4
    event = struct.pack("<IBIIIH", 1_700_000_000, kind, 1, size, 0, flags) + body
    return chained([*events[:begin], event + struct.pack("<I", zlib.crc32(event)), *events[begin:]])


@pytest.mark.parametrize(("kind", "name"), [(12, "NEW_LOAD"), (20, "PRE_GA_WRITE_ROWS"), (99, "99")])
def test_an_event_that_is_not_decoded_is_named(kind: int, name: str) -> None:
    """T17"""
    with pytest.raises(canal.errors.UnsupportedError, match=name) as caught:
        decoded(log_with(kind, b"\0" * 30))

    assert "Nothing was skipped" in str(caught.value)
    assert caught.value.position


def test_an_unknown_event_that_says_it_may_be_ignored_is() -> None:
    """T17"""
    assert rows_of(decoded(log_with(99, b"\0" * 30, flags=0x80))) == [("INSERT", None, 1)]


@pytest.mark.parametrize("flags", [0, 0x80])
def test_a_piece_of_a_rows_event_is_refused_whatever_its_flags_say(flags: int) -> None:
    piece = struct.pack("<IIBQ", 1, 2, 1, 4000) + b"\0" * 40

    expected = r"PARTIAL_ROW_DATA event \(type 172\).*at binlog[.]000001:\d+"
    with pytest.raises(canal.errors.UnsupportedError, match=expected) as caught:
        decoded(log_with(172, piece, flags=flags, flavor="mariadb"), flavor="mariadb")

    assert "binlog_row_event_fragment_threshold" in str(caught.value)


def test_an_incident_is_loud() -> None:
    """T36"""
    with pytest.raises(canal.SourceError, match="INCIDENT"):
        decoded(log_with(26, b"\1\0"))


def test_a_statement_that_changes_rows_is_delivered_as_a_statement() -> None:
    fake = FakeBinlog()
    with fake.transaction() as transaction:
        transaction.query("UPDATE orders SET id = 2", "shop")
    _, entry, _ = decoded(fake.events())

    assert (entry.event_type.name, entry.row_change.sql, entry.row_change.is_ddl) == ("UPDATE", "UPDATE orders SET id = 2", False)


@pytest.mark.parametrize("version", ["5.0.96-log", "4.1.26"])
def test_old_formats_are_refused(version: str) -> None:
    (form, *rest) = FakeBinlog().events()
    old = form[:19] + struct.pack("<H", 3) + version.encode().ljust(50, b"\0") + form[71:]

    with pytest.raises(canal.errors.UnsupportedError, match="format version 3"):
        decoded([old, *rest])


def as_written_by(version: str, events: list[bytes], *, types: int | None = None) -> list[bytes]:
    """A log without checksums with another version in its head, and there no more than so many event types."""
    kept = []
    for event in events:
        if event[4] == 15:
            event = event[:21] + version.encode().ljust(50, b"\0") + event[71 : None if types is None else 76 + types]
            event = event[:9] + struct.pack("<I", len(event)) + event[13:]
        kept.append(event)
    return kept


@pytest.mark.parametrize(("version", "types"), [("5.1.17-beta", 22), ("5.0.96-log", 18), ("5.2.2-a_drop6p13", 22)])
def test_rows_of_before_the_first_release_of_5_1_are_refused(version: str, types: int) -> None:
    events = as_written_by(version, FakeBinlog(checksum=False, gtid=False).events(), types=types)

    with pytest.raises(canal.errors.UnsupportedError, match=f"written by version {version}"):
        decoded(events)


def bare_rows(version: str) -> list[bytes]:
    """Rows without BEGIN and COMMIT, as MySQL 5.1 wrote those of MyISAM tables."""
    fake = FakeBinlog(checksum=False, gtid=False)
    orders = fake.table("shop", "orders", "id INT")
    orders.insert({"id": 1})
    orders.delete({"id": 1})
    return [event for event in as_written_by(version, fake.events()) if event[4] not in (2, 16, 34, 35)]


def test_rows_of_5_1_outside_of_transactions_are_transactions() -> None:
    """T41"""
    entries = decoded(bare_rows("5.1.23-rc"))

    assert rows_of(entries) == [("INSERT", None, 1), ("DELETE", 1, None)]
    assert [entry.entry_type.name for entry in entries] == ["TRANSACTIONBEGIN", "ROWDATA", "TRANSACTIONEND"] * 2


def test_rows_outside_of_transactions_are_an_error_of_any_other_log() -> None:
    with pytest.raises(canal.DecodeError, match="outside a transaction") as caught:
        decoded(bare_rows("5.5.30"))
    head, *rest = bare_rows("5.1.23-rc")
    resent = head[:13] + bytes(4) + head[17:]  # read from the middle: they may be the rest of a transaction
    with pytest.raises(canal.DecodeError, match="outside a transaction"):
        decoded([resent, *rest])

    size, end = struct.unpack_from("<II", rest[1], 9)
    assert caught.value.position == f"binlog.000001:{end - size}"  # where the rows event begins
