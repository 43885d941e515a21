"""Masked columns of a real MySQL: partial documents, texts of statements beside rows, and statements in the place of rows."""

from __future__ import annotations

import pytest

import canal
from canal import Mask
from canal.formats.canal_json import to_canal_json
from canal.testing.servers import ThrowawayServer
from tests.support.live import end_of_log, source

SECRET = "hunter2secret"


@pytest.mark.parametrize("form", ["text", "objects"])
def test_a_secret_of_partial_documents_and_statements(mysql_server: ThrowawayServer, form: str) -> None:
    name, start = f"masks_{form}", end_of_log(mysql_server)
    with mysql_server.connect() as connection, connection.cursor() as cursor:
        for sql in (
            f"CREATE DATABASE {name}",
            f"CREATE TABLE {name}.users (id INT PRIMARY KEY, doc JSON, v VARCHAR(40))",
            "SET binlog_row_value_options = 'PARTIAL_JSON', binlog_rows_query_log_events = ON",
            f"""INSERT INTO {name}.users VALUES (1, '{{"a": "{SECRET}", "pad": "{"x" * 100}"}}', '{SECRET}')""",
            f"UPDATE {name}.users SET doc = JSON_SET(doc, '$.a', '{SECRET}2')",
            "SET binlog_row_image = MINIMAL",
            f"UPDATE {name}.users SET doc = JSON_SET(doc, '$.a', '{SECRET}3') WHERE id = 1",
            "SET binlog_format = STATEMENT",
            f"UPDATE {name}.users SET v = '{SECRET}4'",
            "SET binlog_format = ROW, binlog_row_image = FULL",
            f"CREATE TABLE {name}.last (id INT)",
        ):
            cursor.execute(sql)
            connection.commit()
    mask = {rf"{name}\.users": {"doc": Mask.hmac(key="k"), "v": Mask.last(2)}}
    config = canal.InstanceConfig(
        destination="masks",
        source=source(mysql_server),
        start=start,
        filter=rf"{name}\..*",
        mask=mask,
        json=form,  # type: ignore[arg-type]
    )
    found: list[object] = []
    updates = []
    with canal.Instance(config) as instance:
        instance.subscribe()
        while "last" not in repr(found):
            for entry in instance.get(1000, timeout=30.0):
                found += [entry.header.tables, entry.rows, entry.json_diffs(), entry.row_change.sql, entry.query]
                updates += [row.after for row in entry.rows if entry.event_type is canal.EventType.UPDATE]
                found += [batch.to_pylist() for batch in canal.Message(1, [entry]).to_arrow()]
                found += to_canal_json([entry])
    assert SECRET not in repr(found)
    assert "***" in repr(found)
    assert len(updates) == 2
    for after in updates:
        assert after is not None
        assert after["doc"] is canal.ABSENT
