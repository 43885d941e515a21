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
from tests.support.instances import instance_of, read_up_to, rows_of
from tests.support.waiting import until

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


def read(instance: canal.Instance, last: int | None = -1) -> list[int]:
    instance.subscribe()
    return read_up_to(instance, last)


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
        assert read(instance, 3) == [3]
    with configured() as instance:
        table.insert({"id": 4})
        assert read(instance, 4) == [4]


@pytest.mark.parametrize("flavor", ["mysql", "mariadb"])
def test_lost_cursor_remedy_latest_goes_on_at_the_end(tmp_path: Path, flavor: Literal["mysql", "mariadb"]) -> None:
    fake, table = purged(tmp_path, flavor)
    alarms: list[str] = []
    options: dict[str, Any] = {"on_lost": "latest", "alarm": lambda destination, text: alarms.append(text)}
    with instance_of(fake, meta=canal.FileMeta(tmp_path), **options) as instance:
        instance.subscribe()
        until(lambda: [text for text in alarms if "IS LOST" in text])
        assert read(instance, None) == []
        table.insert({"id": 4})
        assert read(instance, 4) == [4]


def test_lost_cursor_remedy_unsubscribe_lets_start_decide(tmp_path: Path) -> None:
    fake, _ = purged(tmp_path, "mysql")
    with instance_of(fake, meta=canal.FileMeta(tmp_path)) as instance:
        with pytest.raises(canal.PositionLostError):
            read(instance)
        instance.unsubscribe()
    with instance_of(fake, meta=canal.FileMeta(tmp_path), start="earliest") as instance:
        assert read(instance, 3) == [3]


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
            assert read(instance, *(expected or [None])) == expected


@pytest.mark.parametrize(("start", "expected"), [("earliest", [3]), ("latest", [])])
def test_lost_start_remedy_is_another_start(tmp_path: Path, start: str, expected: list[int]) -> None:
    fake, _ = purged(tmp_path, "mysql")
    lost = canal.Position(journal="binlog.000001", offset=4)
    with instance_of(fake, start=lost) as instance, pytest.raises(canal.PositionLostError) as caught:
        read(instance)
    assert f'start="{start}"' in caught.value.remedy
    assert "on_lost" not in caught.value.remedy

    with instance_of(fake, start=start) as instance:
        assert read(instance, *(expected or [None])) == expected


# -- which test follows which remedy --------------------------------------------------------------------------------------

LIVE = "tests/live/test_remedies.py::test_remedies_of_logins_and_settings_work_when_followed"
LOST = "tests/test_remedies.py::test_lost_cursor_remedy_is_on_lost_or_unsubscribe"
RESET = "tests/test_remedies.py::test_reset_log_remedy_is_on_lost"
DUMPS = "tests/live/test_dump_remedies.py::test_"
LOGINS = "tests/live/test_logins.py::test_"
STRANGERS = "tests/parse/test_strangers.py::test_login_after_the_remedy_reads_every_row"
PARTIAL = "tests/parse/test_partial_servers.py::test_"
#: The rows of ``MEANINGS`` with the test that follows the remedy of each. Those of a lost position share one instruction.
SERVER_ERRORS = {
    "privilege missing": LIVE,
    "account locked": LIVE,
    "password expired": LIVE,
    "refused": LIVE,
    "account blocked": LIVE,
    "too many connections": LIVE,
    "offline mode": LIVE,
    "TLS demanded": LIVE,
    "unreachable": LIVE,
    "plugin not loaded": LIVE,
    "no password": LIVE,
    "host unknown": LIVE,
    "old TLS": LIVE,
    "clear text": "tests/parse/test_strangers.py::test_who_answers_learns_the_password_only_where_an_option_says_so",
    "host blocked": "tests/live/test_remedies.py::test_blocked_host_remedy_is_to_flush_hosts",
    "old password": LOGINS + "an_old_password_is_refused_until_the_remedy_is_followed",
    "no TLS": LOGINS + "a_server_without_tls_is_logged_in_to_unless_tls_is_asked_for",
    "our certificate": LOGINS + "a_certificate_that_the_other_side_does_not_trust_is_named",
    "the server's certificate": LOGINS + "a_certificate_that_the_other_side_does_not_trust_is_named",
    "password to a stranger": LOGINS + "a_server_that_nothing_proves_gets_a_password_only_where_an_option_says_so",
    "TLS needed": LOGINS + "a_password_without_tls_needs_an_rsa_key_of_the_server",
    "no server": STRANGERS,
    "answer too large": STRANGERS,
    "file wanted": STRANGERS,
    "TLS": STRANGERS,
    "plugin not supported": STRANGERS,
    "old password, by its packet": STRANGERS,
    "no such dump": PARTIAL + "a_schema_history_needs_a_dump_by_offset",
    "only SUPER may": PARTIAL + "any_other_error_of_a_setting_lasts_until_its_remedy_is_followed",
    "log purged": LOST,
    "GTIDs purged": LOST,
    "log reset": RESET,
    "GTIDs not in the log": RESET,
    "GTIDs not in the log, by text": RESET,
    "beyond the end": RESET,
    "server id twice": DUMPS + "server_id_twice_remedy_is_an_id_of_its_own",
    "log removed": DUMPS + "removed_log_remedy_is_to_put_it_back",
    "no event there": DUMPS + "no_event_there_remedy_is_the_begin_of_a_transaction",
    "no event there, from the start": DUMPS + "no_event_there_without_a_place_remedy_is_the_begin_of_a_transaction",
    "event too large": DUMPS + "large_event_remedy_is_max_allowed_packet",
    "log not readable": DUMPS + "unreadable_log_remedy_is_to_check_it_and_start_again",
    "log damaged": DUMPS + "damaged_log_remedy_is_to_seek_behind_it",
    "anonymous transaction, gtid_mode=ON": DUMPS + "transactions_without_gtids_remedy_is_a_permissive_mode",
    "GTID transaction, gtid_mode=OFF": DUMPS + "transactions_with_gtids_remedy_is_a_permissive_mode",
    "anonymous transaction": DUMPS + "transactions_without_gtids_behind_a_gtid_set_remedy_is_journal_and_offset",
    "no log": DUMPS + "server_without_id_remedy_is_a_server_id",
}
FAKE = "tests/instance/test_remedies.py::test_"
PLACE = FAKE + "place_that_cannot_be_read_remedy_is_to_seek_after_it"
#: The messages of docs/troubleshooting.md by a part of each, with the test that brings it about and follows the page.
TROUBLESHOOTING = {
    "no start position within": FAKE + "no_start_position_remedy_is_to_subscribe_again",
    "writes its log in": LIVE,
    "connections at once to": LIVE,
    "does not log all changes": "tests/live/test_unlogged.py::test_start_on_replica_without_log_updates_raises",
    "matches no table": FAKE + "filter_that_matches_nothing_remedy_is_what_it_suggests",
    "was stopped": FAKE + "loop_of_an_instance_that_was_stopped_goes_on_in_a_new_one",
    "hook ": FAKE + "hook_that_raises_is_left_out_or_mended",
    "has no log": LOST,
    "has purged transactions": LOST,
    "before offset": FAKE + "position_that_the_log_does_not_have_remedy_is_another_start",
    "the position is one of server": FAKE + "position_that_the_log_does_not_have_remedy_is_another_start",
    "no longer has the log that was read": RESET,
    "has reset its log": RESET,
    "XA transaction": "tests/parse/test_xa.py::test_purged_rows_are_left_behind_where_on_lost_says_so",
    "cannot be compared": FAKE + "cursors_of_two_servers_remedy_is_to_forget_one_client",
    "IS LOST": "tests/test_remedies.py::test_lost_cursor_remedy_latest_goes_on_at_the_end",
    "has CRC32": PLACE,
    "INCIDENT": PLACE,
    "is not supported": PLACE,
    "rolls back rows": FAKE + "rows_taken_back_after_delivery_remedy_is_to_seek_after_the_transaction",
    "are unknown for rows after": FAKE + "unknown_columns_remedy_is_to_seek_after_the_change",
    "SELECT on it is missing": "tests/live/test_refusals.py::test_columns_that_no_source_tells_remedy_is_grant_or_filter",
    "named @1": FAKE + "columns_of_files_without_names_remedy_is_schema",
    "by foreign key": "tests/live/test_cascades.py::test_mysql_logs_them",
    "gh-ost": "tests/parse/test_online_ddl.py::test_rows_of_a_log_that_nobody_explains",
    "the store keeps": "tests/instance/test_slow_clients.py::"
    "test_an_alarm_names_who_holds_the_store_back_and_is_over_when_he_goes_on",
    "times in a row": "tests/live/test_server_errors.py::test_a_dump_that_is_killed_again_and_again_is_told_once",
    "no standby to switch to": FAKE + "switch_without_a_standby_remedy_is_a_standby",
    "cannot write": "tests/meta/test_file_meta.py::test_a_write_that_fails_changes_nothing",
    "cannot be used": FAKE + "cursor_files_that_cannot_be_used_remedy_is_to_restore_or_delete_both",
    "although there is a .bak": FAKE + "cursor_files_that_cannot_be_used_remedy_is_to_restore_or_delete_both",
    "what is above it is not there": "tests/ha/test_ha_faults.py::test_a_chroot_that_is_not_there",
}


def test_every_remedy_of_a_server_error_is_followed_by_a_test() -> None:
    assert {row.name for row in MEANINGS if row.remedy} == SERVER_ERRORS.keys()


def test_every_remedy_of_the_troubleshooting_is_followed_by_a_test() -> None:
    page = (ROOT / "docs/troubleshooting.md").read_text("utf-8").partition("## At the start")[2]
    messages = re.findall(r"^\| `([^`]+)`", page, re.MULTILINE)
    tests = {one: [part for part in TROUBLESHOOTING if part in one] for one in messages}

    assert {one: found for one, found in tests.items() if len(found) != 1} == {}
    assert {part for found in tests.values() for part in found} == TROUBLESHOOTING.keys()


def test_remedies_of_errors_are_followed_by_a_test() -> None:
    remedies = {name for name, value in vars(errors).items() if name.isupper() and isinstance(value, str)}

    assert remedies == {"GO_ON_AFTER", "LOG_DAMAGED", "GO_ON_AT_CURSOR", "GO_ON_AT_START"}


@pytest.mark.parametrize("test", sorted({*SERVER_ERRORS.values(), *TROUBLESHOOTING.values()}))
def test_every_test_that_follows_a_remedy_exists(test: str) -> None:
    path, _, name = test.partition("::")

    assert f"def {name}(" in (ROOT / path).read_text("utf-8")
