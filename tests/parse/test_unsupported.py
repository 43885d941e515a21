"""What this version does not decode stops the stream with an error that names it; what may be ignored is."""

from __future__ import annotations

import struct
import zlib
from typing import Any

import pytest

import canal
from canal.testing.fake import FakeBinlog
from tests.parse.test_parser import decoded, rows_of


def log_with(kind: int, body: bytes, *, flags: int = 0, **options: Any) -> list[bytes]:
    """A log with one more event, made by hand, before its last transaction."""
    fake = FakeBinlog(**options)
    fake.table("shop", "orders", "id INT").insert({"id": 1})
    events = fake.events()
    begin = next(number for number, event in enumerate(events) if event[4] in (33, 162))
    size = 19 + len(body) + 4
    event = struct.pack("<IBIIIH", 1_700_000_000, kind, 1, size, 0, flags) + body
    return [*events[:begin], event + struct.pack("<I", zlib.crc32(event)), *events[begin:]]


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        (12, "NEW_LOAD"), (20, "PRE_GA_WRITE_ROWS"), (99, "99"),
    ],  # fmt: skip
)
def test_an_event_that_is_not_decoded_is_named(kind: int, name: str) -> None:
    with pytest.raises(canal.UnsupportedError, match=name) as caught:
        decoded(log_with(kind, b"\0" * 30))

    assert "Nothing was skipped" in str(caught.value)
    assert caught.value.position


def test_an_unknown_event_that_says_it_may_be_ignored_is() -> None:
    assert rows_of(decoded(log_with(99, b"\0" * 30, flags=0x80))) == [("INSERT", None, 1)]


def test_an_incident_is_loud() -> None:
    with pytest.raises(canal.SourceError, match="INCIDENT"):
        decoded(log_with(26, b"\1\0"))


def test_a_statement_that_changes_rows_is_delivered_as_a_statement(caplog: pytest.LogCaptureFixture) -> None:
    fake = FakeBinlog()
    with fake.transaction() as transaction:
        transaction.query("UPDATE orders SET id = 2", "shop")
    _, entry, _ = decoded(fake.events())

    assert (entry.event_type.name, entry.row_change.sql, entry.row_change.is_ddl) == ("UPDATE", "UPDATE orders SET id = 2", False)
    assert "its rows are not in the log" in caplog.text


@pytest.mark.parametrize("version", ["5.0.96-log", "4.1.26"])
def test_old_formats_are_refused(version: str) -> None:
    (form, *rest) = FakeBinlog().events()
    old = form[:19] + struct.pack("<H", 3) + version.encode().ljust(50, b"\0") + form[71:]

    with pytest.raises(canal.UnsupportedError, match="format version 3"):
        decoded([old, *rest])
