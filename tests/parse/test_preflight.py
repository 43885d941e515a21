"""What ``canal check`` says of settings, made by hand, of servers that cannot be had here."""

from __future__ import annotations

import pytest

from canal.parse.source.preflight import settings


@pytest.mark.parametrize(
    ("values", "level", "remedy"),
    [
        ({"binlog_storage_engine": "InnoDB"}, "error", "without binlog_storage_engine"),
        ({"binlog_storage_engine": ""}, "ok", ""),
        ({"binlog_row_event_fragment_threshold": "1024"}, "warning", "fragment_threshold=1073741824"),
        ({"binlog_row_event_fragment_threshold": "1073741824"}, "ok", ""),
    ],
)
def test_settings_of_mariadb_12_3_are_checked(values: dict[str, str], level: str, remedy: str) -> None:
    (found,) = settings(values)

    assert (found.what, found.level) == (next(iter(values)), level)
    assert remedy in found.remedy


@pytest.mark.parametrize(("mode", "level"), [("OFF", "warning"), ("ON", "ok")])
def test_settings_of_galera_node_report_gtid_mode(mode: str, level: str) -> None:
    (found,) = settings({"wsrep_on": "ON", "wsrep_gtid_mode": mode})

    assert (found.what, found.level) == ("wsrep_gtid_mode", level)
