"""Servers that say they are of a release and lack some of it, as Dolt does: what only helps is done without, the rest is told."""

from __future__ import annotations

from typing import Any

import pytest

import canal
from canal.testing import FakeBinlog, _serve
from canal.testing._serve import FakeServer

DUMP = 18


@pytest.fixture(autouse=True)
def partial(monkeypatch: pytest.MonkeyPatch) -> None:
    """No variable may be set that MySQL has had only for some time, and a dump is by GTID set only."""

    def unknown(session: Any, found: Any) -> None:
        raise _serve._Error(1193, f"Unknown system variable '{found['name']}'")

    command = _serve._ServedConnection._command

    def without_dump(session: Any, code: int, payload: bytes) -> bool:
        if code == DUMP:
            raise _serve._Error(1047, "command handling not implemented yet: 18", "08S01")
        return command(session, code, payload)

    pattern = _serve._pattern(r"SET .*(?P<name>net_write_timeout|show_gipk\w+).*")
    monkeypatch.setattr(_serve, "ANSWERS", [(pattern, unknown), *_serve.ANSWERS])
    monkeypatch.setattr(_serve._ServedConnection, "_command", without_dump)


def instance_of(server: FakeServer, **options: Any) -> canal.Instance:
    source = canal.MySQLSource(host=server.host, port=server.port)
    return canal.Instance(canal.InstanceConfig(destination="p", source=source, **options))


def test_settings_that_only_help_are_done_without() -> None:
    fake = FakeBinlog()
    table = fake.table("d", "t", "id INT PRIMARY KEY")
    table.insert({"id": 1})  # else there is no GTID to go by
    with fake.serve() as server, instance_of(server) as instance:
        instance.subscribe()
        table.insert({"id": 2})
        message = instance.get(10, timeout=10)
        assert [tuple(row.after) for entry in message.entries for row in entry.rows] == [(2,)]
        assert instance.parser._run.link.connection.table_columns("d", "t").columns[0].name == "id"


def test_a_schema_history_needs_a_dump_by_offset() -> None:
    fake = FakeBinlog(metadata="MINIMAL")
    table = fake.table("d", "t", "id INT PRIMARY KEY")
    with fake.serve() as server:
        start = fake.position
        table.insert({"id": 1})
        fake.ddl("ALTER TABLE t ADD b INT", schema="d")
        table = fake.table("d", "t", "id INT PRIMARY KEY, b INT")
        with instance_of(server, start=start) as instance, pytest.raises(canal.errors.ServerError) as caught:
            instance.subscribe()
            instance.get(10, timeout=30)
        assert caught.value.errno == 1047
        assert 'set binlog_row_metadata=FULL on it, and start from "latest" or a GTID set' in caught.value.remedy

        fake.metadata = "FULL"
        with instance_of(server, start="latest") as instance:
            instance.subscribe()
            table.insert({"id": 2, "b": 3})
            message = instance.get(10, timeout=10)
            assert [tuple(row.after) for entry in message.entries for row in entry.rows] == [(2, 3)]


def test_any_other_error_of_a_setting_lasts_until_its_remedy_is_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakeBinlog()
    fake.table("d", "t", "id INT PRIMARY KEY").insert({"id": 1})

    def denied(session: Any, found: Any) -> None:
        raise _serve._Error(1227, "Access denied; you need (at least one of) the SUPER privilege(s) for this operation", "42000")

    answers = _serve.ANSWERS
    monkeypatch.setattr(_serve, "ANSWERS", [(_serve._pattern(r"SET SESSION net_write_timeout.*"), denied), *answers])
    with fake.serve() as server:
        with pytest.raises(canal.AuthenticationError, match=r"GRANT SUPER ON \*\.\* TO 'root'@'%'"):
            canal.MySQLSource(host=server.host, port=server.port).connect()

        monkeypatch.setattr(_serve, "ANSWERS", answers)  # it is granted
        with instance_of(server, start="latest") as instance:
            instance.subscribe()
