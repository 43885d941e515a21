"""Servers that apply changes without logging them: an error or an alarm, and a finding of ``canal check``."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest

import canal
from canal.filter import TableFilter
from canal.parse.source import preflight
from canal.testing.servers import ThrowawayServer
from tests.support.fix_servers import Line, Pairing
from tests.support.live import Watch, source, wait_for_row
from tests.support.waiting import until

QUICK = canal.Heartbeat(interval=0.3, timeout=5.0, retries=2)


def off(line: Line) -> str:
    return f"--log-{'replica' if line.can('replica_words') else 'slave'}-updates=OFF"


@contextlib.contextmanager
def replicating(pairing: Pairing, *options: str) -> Iterator[tuple[ThrowawayServer, ThrowawayServer]]:
    """A source and a replica that runs with these options and has the database ``shop``."""
    if options == ("--log-slave-updates=OFF",) and pairing.line.name == "mysql-5.6":  # with GTIDs it does not start so
        pairing = Pairing(pairing.line, gtid=False)
    with pairing.server(server_id=1) as first, pairing.server(*options, server_id=2) as second:
        second.replicate(first, gtid=pairing.gtid)
        first.query("CREATE DATABASE shop")
        first.query("CREATE TABLE shop.t (id INT PRIMARY KEY)")
        wait_for_row(second, "SELECT COUNT(*) FROM information_schema.tables WHERE table_schema = 'shop'")
        yield first, second


def user_of(server: ThrowawayServer) -> canal.MySQLSource:
    """A login with the grants that docs/install.md lists, and no others."""
    server.query("CREATE USER reader@'%' IDENTIFIED BY 'reader'")
    server.query("GRANT SELECT, REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO reader@'%'")
    return source(server, user="reader", password="reader")


def levels(look_at: Any, *arguments: Any) -> dict[str, tuple[str, str]]:
    return {one.what: (one.level, f"{one.text} {one.remedy}") for one in preflight.look(look_at, *arguments)}


@pytest.mark.every_line
def test_start_on_replica_without_log_updates_raises(pairing: Pairing) -> None:
    with replicating(pairing, off(pairing.line)) as (_, second):
        reader = user_of(second)

        refused = pytest.raises(canal.errors.ServerError, match="updates=OFF, so replicated changes are not in the log")
        with refused as caught, Watch(second, r"shop\..*", source=reader):
            pass
        assert "ON in the server's configuration" in caught.value.remedy
        found = levels(reader)
        (name,) = [one for one in found if one.endswith("_updates")]
        assert found[name][0] == "error"
        assert caught.value.remedy in found[name][1]

        second.stop_replication()
        with Watch(second, r"shop\..*", source=reader) as watch:
            assert any("replication is stopped now" in alarm for alarm in watch.alarms)
        assert levels(reader)[name][0] == "warning"

        second.restart(*(option.replace("updates=OFF", "updates=ON") for option in second.options))  # as the remedy says
        with Watch(second, r"shop\..*", source=reader) as watch:
            assert watch.alarms == []


def test_switch_to_standby_without_log_updates_is_refused(pairing: Pairing) -> None:
    with (
        replicating(pairing, off(pairing.line)) as (first, second),
        Watch(first, r"shop\..*", standby=source(second), heartbeat=QUICK) as watch,
    ):
        until(lambda: any("cannot use the standby" in alarm for alarm in watch.alarms))
        first.query("INSERT INTO shop.t VALUES (1)")
        assert not watch.instance.switch()
        first.query("INSERT INTO shop.t VALUES (2)")
        assert [one.after["id"] for entry in watch.read() for one in entry.rows if one.after] == [1, 2]
        assert any("cannot switch to" in alarm and "replicated changes are not in the log" in alarm for alarm in watch.alarms)


@pytest.mark.every_line
@pytest.mark.parametrize("option", ["--binlog-ignore-db=shop", "--binlog-do-db=other"])
def test_databases_left_out_of_the_log_raise_an_alarm(line: Line, option: str) -> None:
    with line.server(option) as server:
        for database in ("shop", "other"):
            server.query(f"CREATE DATABASE {database}")
            server.query(f"CREATE TABLE {database}.t (id INT PRIMARY KEY)")
        name = option[2 : option.index("=")].replace("-", "_")

        with Watch(server, r"shop\..*") as watch:
            assert any(f"{name}=" in alarm and "for example shop.t" in alarm for alarm in watch.alarms), watch.alarms
        with Watch(server, r"other\..*") as watch:
            assert watch.alarms == []
        assert levels(source(server), TableFilter(r"shop\..*"))[name][0] == "warning"
        assert "shop.t" in levels(source(server), TableFilter(r"shop\..*"))[name][1]


def test_standby_with_databases_left_out_raises_an_alarm(pairing: Pairing) -> None:
    with (
        replicating(pairing, "--binlog-ignore-db=shop") as (first, second),
        Watch(first, r"shop\..*", standby=source(second), heartbeat=QUICK) as watch,
    ):
        until(lambda: any("the standby" in alarm and "binlog_ignore_db=shop" in alarm for alarm in watch.alarms))


@pytest.mark.parametrize("option", ["replicate-ignore-db=other", "replicate-wild-do-table=shop.%"])
def test_check_finds_what_a_replica_leaves_out(pairing: Pairing, option: str) -> None:
    name, value = option.replace("-", "_").split("=")
    with replicating(pairing, f"--{option}") as (first, second):
        level, text = levels(user_of(second))[name]

        assert level == "warning"
        assert value in text
        assert "missing after a failover" in text
        assert name not in levels(source(first))


@pytest.mark.every_line
def test_session_in_statement_format_raises_an_alarm(own_server: ThrowawayServer) -> None:
    own_server.query("CREATE DATABASE shop")
    own_server.query("CREATE TABLE shop.t (id INT PRIMARY KEY)")
    with Watch(own_server, r"shop\..*") as watch:
        watch.run("SET binlog_format = STATEMENT", "INSERT INTO shop.t VALUES (1)", "UPDATE shop.t SET id = 2")
        watch.read()
        (alarm,) = (one for one in watch.alarms if "statement-format" in one)
        assert alarm.startswith("statement-format change of shop.t at ")
        assert alarm.kind is canal.AlarmKind.MISSING  # type: ignore[attr-defined]


@pytest.mark.every_line
@pytest.mark.lines("mariadb")
def test_changes_marked_to_skip_replication_are_delivered(own_server: ThrowawayServer) -> None:
    own_server.query("CREATE DATABASE shop")
    own_server.query("CREATE TABLE shop.t (id INT PRIMARY KEY)")
    with Watch(own_server, r"shop\..*") as watch:
        marked = ("SET skip_replication = 1", "INSERT INTO shop.t VALUES (1)")
        watch.run(*marked, "SET skip_replication = 0", "INSERT INTO shop.t VALUES (2)")
        assert [one.after["id"] for entry in watch.read() for one in entry.rows if one.after] == [1, 2]
