"""Remedies of errors, each followed as an operator would: after it, the same program goes on."""

from __future__ import annotations

import itertools
import re
from pathlib import Path
from typing import Any, Literal

import pytest

import canal
from canal import errors
from canal.parse.source.server_errors import MEANINGS
from canal.testing import FakeBinlog
from canal.testing.fake import FakeTable
from tests.support.instances import instance_of, rows_of

ROOT = Path(__file__).parents[1]


def purged(tmp_path: Path, flavor: Literal["mysql", "mariadb"]) -> tuple[FakeBinlog, FakeTable]:
    """A log of which the row 2 was purged, and a stored cursor between the rows 1 and 2; the row 3 is there."""
    clock = itertools.count(1_700_000_000)
    fake = FakeBinlog(flavor, clock=lambda: next(clock))
    table = fake.table("shop", "t", "id INT PRIMARY KEY")
    table.insert({"id": 1})
    with instance_of(fake, meta=canal.FileMeta(tmp_path)) as instance:
        instance.subscribe()
        message = instance.get_without_ack(10, timeout=10)
        assert rows_of(message) == [1]
        instance.ack(message)
    fake.rotate()
    table.insert({"id": 2})
    fake.purge(fake.rotate())
    table.insert({"id": 3})
    return fake, table


def read(instance: canal.Instance) -> list[int]:
    instance.subscribe()
    found: list[int] = []
    while message := instance.get(10, timeout=0.5):
        found += rows_of(message)
    return found


@pytest.mark.parametrize("flavor", ["mysql", "mariadb"])
def test_lost_cursor_remedy_is_on_lost_or_unsubscribe(tmp_path: Path, flavor: Literal["mysql", "mariadb"]) -> None:
    fake, table = purged(tmp_path, flavor)

    def configured(**options: Any) -> canal.Instance:
        return instance_of(fake, meta=canal.FileMeta(tmp_path), **options)

    for start in ("latest", "earliest"):  # which a stored cursor wins over
        with configured(start=start) as instance, pytest.raises(canal.PositionLostError) as caught:
            read(instance)
        assert all(one in str(caught.value) for one in ('on_lost="latest"', 'on_lost="earliest"', "unsubscribe()"))
        assert 'start from "' not in str(caught.value)

    with configured(on_lost="earliest") as instance:
        assert read(instance) == [3]
    with configured() as instance:
        table.insert({"id": 4})
        assert read(instance) == [4]


@pytest.mark.parametrize("flavor", ["mysql", "mariadb"])
def test_lost_cursor_remedy_latest_goes_on_at_the_end(tmp_path: Path, flavor: Literal["mysql", "mariadb"]) -> None:
    fake, table = purged(tmp_path, flavor)
    with instance_of(fake, meta=canal.FileMeta(tmp_path), on_lost="latest") as instance:
        assert read(instance) == []
        table.insert({"id": 4})
        assert read(instance) == [4]


def test_lost_cursor_remedy_unsubscribe_lets_start_decide(tmp_path: Path) -> None:
    fake, _ = purged(tmp_path, "mysql")
    with instance_of(fake, meta=canal.FileMeta(tmp_path)) as instance:
        with pytest.raises(canal.PositionLostError):
            read(instance)
        instance.unsubscribe()
    with instance_of(fake, meta=canal.FileMeta(tmp_path), start="earliest") as instance:
        assert read(instance) == [3]


@pytest.mark.parametrize(("on_lost", "expected"), [("earliest", [3]), ("latest", [])])
@pytest.mark.parametrize("flavor", ["mysql", "mariadb"])
def test_reset_log_remedy_is_on_lost(
    tmp_path: Path, flavor: Literal["mysql", "mariadb"], on_lost: Any, expected: list[int]
) -> None:
    fake, table = purged(tmp_path, flavor)
    fake.reset()
    table.insert({"id": 3})
    with fake.serve() as server:
        source = canal.MySQLSource(host=server.host, port=server.port)
        options: dict[str, Any] = {"source": source, "meta": canal.FileMeta(tmp_path)}
        with instance_of(fake, **options) as instance, pytest.raises(canal.PositionLostError) as caught:
            read(instance)
        assert f'on_lost="{on_lost}"' in caught.value.remedy

        with instance_of(fake, **options, on_lost=on_lost) as instance:
            assert read(instance) == expected


@pytest.mark.parametrize(("start", "expected"), [("earliest", [3]), ("latest", [])])
def test_lost_start_remedy_is_another_start(tmp_path: Path, start: str, expected: list[int]) -> None:
    fake, _ = purged(tmp_path, "mysql")
    lost = canal.Position(journal="binlog.000001", offset=4)
    with instance_of(fake, start=lost) as instance, pytest.raises(canal.PositionLostError) as caught:
        read(instance)
    assert f'start="{start}"' in caught.value.remedy
    assert "on_lost" not in caught.value.remedy

    with instance_of(fake, start=start) as instance:
        assert read(instance) == expected


# -- which test follows which remedy --------------------------------------------------------------------------------------

LIVE = "tests/live/test_remedies.py::test_remedies_of_logins_and_settings_work_when_followed"
LOST = "tests/test_remedies.py::test_lost_cursor_remedy_is_on_lost_or_unsubscribe"
RESET = "tests/test_remedies.py::test_reset_log_remedy_is_on_lost"
#: The rows of ``MEANINGS`` with the test that follows the remedy of each. Those of a lost position share one instruction.
SERVER_ERRORS = {
    "privilege missing": LIVE, "account locked": LIVE, "password expired": LIVE, "refused": LIVE,
    "too many connections": LIVE, "offline mode": LIVE, "TLS demanded": LIVE, "unreachable": LIVE,
    "old password": "tests/live/test_logins.py::test_an_old_password_is_refused_until_the_remedy_is_followed",
    "log purged": LOST, "GTIDs purged": LOST, "log reset": RESET, "GTIDs not in the log": RESET,
    "GTIDs not in the log, by text": RESET, "beyond the end": RESET,
}  # fmt: skip
#: The remedies of docs/troubleshooting.md, by a part of the message.
TROUBLESHOOTING = {
    "writes its log in": LIVE, "connections at once to": LIVE, "does not log all changes": "tests/live/test_unlogged.py::"
    "test_start_on_replica_without_log_updates_raises", "has no log": LOST, "has purged transactions": LOST,
    "has lost what was read of its log": RESET, "has reset its log": RESET,
}  # fmt: skip
#: How many messages of the page have a remedy that no test follows yet; it only falls.
TROUBLESHOOTING_LEFT = 60
#: No test follows these yet. A remedy that is new belongs into the tables above, never here.
SERVER_ERRORS_LEFT = {
    "server id twice",
    "log removed", "no event there", "no event there, from the start", "no event there, by text", "event too large",
    "log not readable", "log damaged", "anonymous transaction, gtid_mode=ON", "GTID transaction, gtid_mode=OFF",
    "anonymous transaction", "no such dump", "no GTIDs", "no log", "no TLS", "our certificate", "the server's certificate",
    "old TLS", "TLS", "account blocked", "host blocked", "host unknown", "clear text", "password to a stranger", "TLS needed",
    "old password, by its packet", "plugin not loaded", "plugin not supported", "no password", "only SUPER may", "file wanted",
    "answer too large", "no server",
}  # fmt: skip


def test_every_remedy_of_a_server_error_is_followed_by_a_test() -> None:
    with_remedy = {row.name for row in MEANINGS if row.remedy}

    assert with_remedy == SERVER_ERRORS.keys() | SERVER_ERRORS_LEFT
    assert not SERVER_ERRORS.keys() & SERVER_ERRORS_LEFT


def test_every_remedy_of_the_troubleshooting_is_followed_by_a_test() -> None:
    page = (ROOT / "docs/troubleshooting.md").read_text("utf-8").partition("## At the start")[2]
    messages = re.findall(r"^\| `([^`]+)`", page, re.MULTILINE)
    followed = {part: [one for one in messages if part in one] for part in TROUBLESHOOTING}

    assert [part for part, found in followed.items() if len(found) != 1] == []
    left = sorted({*messages} - {one for found in followed.values() for one in found})
    assert len(left) <= TROUBLESHOOTING_LEFT, "a remedy is new: follow it in a test, and name the test in TROUBLESHOOTING"


def test_remedies_of_errors_are_followed_by_a_test() -> None:
    remedies = {name for name, value in vars(errors).items() if name.isupper() and isinstance(value, str)}

    assert remedies == {"GO_ON_AT_CURSOR", "GO_ON_AT_START"}, "this page follows these two"


@pytest.mark.parametrize("test", sorted({*SERVER_ERRORS.values(), *TROUBLESHOOTING.values()}))
def test_every_test_that_follows_a_remedy_exists(test: str) -> None:
    path, _, name = test.partition("::")

    assert f"def {name}(" in (ROOT / path).read_text("utf-8")
