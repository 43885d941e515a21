"""Masked columns: a planted secret is nowhere in what the library gives, writes or says."""

from __future__ import annotations

import hashlib
import hmac
import json
import logging
import pickle
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import prometheus_client
import pytest

import canal
from canal import Mask, formats
from canal.changes import Reader
from canal.formats.arrow import to_arrow
from canal.formats.canal_json import to_canal_json
from canal.metrics import register
from canal.testing.fake import FakeBinlog

SECRET = "hunter2secret"
KEYED = Mask.hmac(key="pepper")
MASKS = {
    r"shop\.users\d?": {
        "ID": KEYED,
        "email": KEYED,
        "phone": Mask.last(4),
        "note": Mask.drop(),
        "name": Mask.cut(3),
        "doc": KEYED,
        "kind": KEYED,
        "raw": KEYED,
    }
}
COLUMNS = (
    "id VARCHAR(40) PRIMARY KEY, email VARCHAR(80), phone VARCHAR(40), note TEXT, name VARCHAR(60), doc JSON, "
    f"kind ENUM('{SECRET}','b'), raw VARBINARY(40), n INT"
)
ROW = {
    "id": f"id-{SECRET}",
    "email": f"{SECRET}@x",
    "phone": f"{SECRET}1234",
    "note": SECRET,
    "name": f"Ann{SECRET}",
    "doc": {"k": SECRET},
    "kind": SECRET,
    "raw": SECRET.encode(),
    "n": 1,
}


def shop() -> FakeBinlog:
    fake = FakeBinlog()
    users, other = fake.table("shop", "users", COLUMNS), fake.table("shop", "other", "id INT PRIMARY KEY, v VARCHAR(9)")
    with fake.transaction():
        users.insert(ROW)
        users.update(ROW, {"email": f"new{SECRET}", "n": 2}, sql=f"UPDATE users SET email='{SECRET}'")
        other.insert({"id": 1, "v": "shown"}, sql=f"INSERT INTO other SELECT … WHERE email='{SECRET}'")
    fake.ddl(f"ALTER TABLE users ALTER email SET DEFAULT '{SECRET}'", schema="shop")
    fake.ddl(f"CREATE USER x IDENTIFIED BY '{SECRET}'", schema="shop")
    fake.ddl("ALTER TABLE other ADD w INT", schema="shop")
    users.delete({**ROW, "phone": None})
    fake.end()
    return fake


def config(fake: FakeBinlog, **options: Any) -> canal.InstanceConfig:
    return canal.InstanceConfig(destination="masked", source=fake, start="earliest", mask=MASKS, **options)


def entries_of(instance: canal.Instance) -> list[canal.Entry]:
    return [entry for message in instance.stream() for entry in message]


def held(folder: Path) -> list[Path]:
    """Files that hold the secret."""
    words = (SECRET.encode(), SECRET.encode().hex().encode())
    return [path for path in folder.rglob("*") if path.is_file() and any(word in path.read_bytes() for word in words)]


def test_a_planted_secret_is_nowhere(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    (tmp_path / "out").mkdir()
    seen: list[Any] = []
    told: list[str] = []

    def keep(header: Any, before: Any, after: Any) -> bool:
        seen.append((before and before.as_dict(), after and after.as_dict()))
        return True

    made = config(
        shop(), meta=canal.FileMeta(tmp_path / "meta"), row_filter=keep, alarm=lambda name, text: told.append(str(text))
    )
    registry = prometheus_client.CollectorRegistry()
    with canal.Instance(made) as instance:
        instance.subscribe()
        register(instance, registry=registry)
        entries = entries_of(instance)
        for entry in entries:
            rows, tuples = entry.rows, entry.tuples()
            seen += [repr(entry), repr(entry.header), rows, tuples, entry.row_change.sql, entry.query, entry.json_diffs()]
            seen.append([(row.before_columns, row.after_columns) for row in entry.row_change.row_datas])
        seen += [batch.to_pylist() for batch in to_arrow(entries)]
        seen += to_canal_json(entries)
        changes = [change for entry in entries for change in Reader(is_log=True).changes(entry)]
        for name in formats.TEXTS:
            seen += [formats.encoder_of(name)(change) for change in changes]
        seen += [str(instance.status()), prometheus_client.generate_latest(registry).decode()]
    with canal.Instance(config(shop())) as instance:
        instance.subscribe()
        canal.pipe(instance, canal.targets.SQLiteTarget(tmp_path / "out" / "copy.db")).run()
    with canal.Instance(config(shop())) as instance:
        instance.subscribe()
        canal.pipe(instance, canal.targets.JSONLinesTarget(tmp_path / "out" / "lines")).run()

    text = repr(seen)
    assert KEYED.text(f"{SECRET}@x") in text  # what is searched is there
    assert "shown" in text
    assert "ALTER TABLE other ADD w INT" in text
    assert SECRET not in text
    assert SECRET.encode().hex() not in text
    assert SECRET not in caplog.text + repr(told)
    assert len(list(tmp_path.rglob("*"))) > 4
    assert held(tmp_path / "out") == []
    assert held(tmp_path / "meta") == []


def test_what_is_left_of_each_value() -> None:
    with canal.Instance(config(shop())) as instance:
        instance.subscribe()
        entries = [entry for entry in entries_of(instance) if entry.rows and entry.header.table == "users"]
        first, update, delete = entries
        after = first.rows[0].after
        assert after is not None
        expected = {
            "id": KEYED.text(f"id-{SECRET}"),
            "email": KEYED.text(f"{SECRET}@x"),
            "phone": "*" * len(SECRET) + "1234",
            "name": "Ann",
            "doc": KEYED.text(json.dumps({"k": SECRET})),
            "kind": KEYED.text(SECRET),
            "raw": KEYED.text(SECRET),
            "n": 1,
        }
        assert after.as_dict() == expected
        assert update.rows[0].before is not None
        assert update.rows[0].before.as_dict() == expected
        assert delete.rows[0].before is not None
        assert delete.rows[0].before["phone"] is None
        (batch,) = to_arrow([first])
        assert {name: batch.column(name)[0].as_py() for name in expected} == expected
        assert [column.sql_type for column in first.row_change.row_datas[0].after_columns[:2]] == [12, 12]
        for entry in entries:  # a decoder that goes elsewhere takes its masks with it
            assert entry.table is not None
            again = pickle.loads(pickle.dumps(entry.table.decoder))
            assert again.images(entry.data, entry.body, entry.body_end, entry.kind) == entry.tuples()
            plain = again.text_form.images(entry.data, entry.body, entry.body_end, entry.kind)
            assert SECRET not in repr(plain)


def test_json_objects_are_masked_too() -> None:
    with canal.Instance(config(shop(), json="objects")) as instance:
        instance.subscribe()
        entry = next(entry for entry in entries_of(instance) if entry.rows)
        assert entry.rows[0].after is not None
        assert entry.rows[0].after["doc"] == KEYED.text(json.dumps({"k": SECRET}))
        (batch,) = to_arrow([entry])
        assert SECRET not in repr(batch.to_pylist())


def test_a_column_that_is_renamed_stops_the_instance_before_a_row_of_it() -> None:
    fake = FakeBinlog()
    users = fake.table("shop", "users", COLUMNS)
    users.insert(ROW)
    renamed = fake.table("shop", "users", COLUMNS.replace("email", "mail"))
    renamed.insert({**{name: value for name, value in ROW.items() if name != "email"}, "mail": SECRET})
    with canal.Instance(config(fake)) as instance:
        instance.subscribe()
        with pytest.raises(canal.ConfigError, match=r"names 'email', which shop\.users does not have") as caught:
            for message in instance.stream():
                assert SECRET not in repr([entry.rows for entry in message])
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize(
    "sql",
    [
        "RENAME TABLE users TO people",
        "ALTER TABLE users RENAME TO people",
        "RENAME TABLE users TO users2, users2 TO people",
        "RENAME TABLE other TO spare, users TO other, spare TO users2",
        "RENAME TABLE users TO partly",
    ],
)
def test_a_masked_table_does_not_come_in_clear_under_another_name(sql: str) -> None:
    fake = FakeBinlog()
    fake.table("shop", "users", COLUMNS).insert(ROW)
    fake.ddl(sql, schema="shop")
    fake.table("shop", "people", COLUMNS).insert(ROW)
    fake.end()
    masks = {**MASKS, r"shop\.partly": {"email": KEYED}}
    for _ in range(2):  # it does not get over it
        given = canal.InstanceConfig(destination="masked", source=fake, start="earliest", mask=masks, meta=canal.MemoryMeta())
        with canal.Instance(given) as instance:
            instance.subscribe()
            entries = []
            with pytest.raises(canal.ConfigError, match=r"shop\.users, of which .* is masked, is renamed to shop\.") as caught:
                for message in instance.stream():
                    entries += message.entries
                    instance.ack(message.id)
        assert [entry.event_type.name for entry in entries if entry.rows] == ["INSERT"], "what lies before it comes"
        assert SECRET not in str(caught.value)


@pytest.mark.parametrize(
    ("sql", "options"),
    [
        ("RENAME TABLE users TO users2", {}),
        ("RENAME TABLE other TO people", {}),
        ("RENAME TABLE users TO people, people TO users", {}),
        ("RENAME TABLE users TO people", {"black_filter": r"shop\.people"}),
        ("RENAME /* gh-ost */ TABLE users TO _users_del, _users_gho TO users", {}),
    ],
)
def test_a_masked_table_may_be_renamed_where_nothing_comes_in_clear(sql: str, options: dict[str, Any]) -> None:
    fake = FakeBinlog()
    users = fake.table("shop", "users", COLUMNS)
    users.insert(ROW)
    fake.ddl(sql, schema="shop")
    fake.table("shop", "later", "id INT PRIMARY KEY").insert({"id": 1})
    fake.end()
    with canal.Instance(config(fake, **options)) as instance:
        instance.subscribe()

        assert [entry.header.table for entry in entries_of(instance) if entry.rows] == ["users", "later"]


def test_the_hash_is_hmac_sha256_of_the_text_and_of_bytes() -> None:
    def digest(raw: bytes) -> str:
        return hmac.new(b"pepper", raw, hashlib.sha256).hexdigest()

    assert KEYED.text("é") == digest("é".encode())
    assert KEYED.text(b"\xff") == digest(b"\xff")
    assert KEYED.text(5) == KEYED.text("5") == digest(b"5")
    assert KEYED.text(Decimal("1E+2")) == KEYED.text("100")
    noon = datetime(2026, 1, 1, 12, tzinfo=UTC)
    assert KEYED.text(noon) == KEYED.text(noon.astimezone(timezone(timedelta(hours=2)))) == KEYED.text("2026-01-01 12:00:00")
    assert "pepper" not in repr(KEYED) + repr(config(FakeBinlog()))


def test_a_short_value_is_masked_whole() -> None:
    assert (Mask.last(4).text("1234"), Mask.last(4).text("12345"), Mask.cut(2).text("ab")) == ("****", "*2345", "ab")


@pytest.mark.parametrize(
    "make",
    [
        lambda: Mask.hmac(env="CANAL_NO_SUCH_KEY"),
        lambda: Mask.hmac(key=""),
        lambda: Mask.last(0),
        lambda: Mask.cut(-1),
        lambda: config_of({"shop.users": {"email": "hmac"}}),
        lambda: config_of({"shop.users": Mask.drop()}),
    ],
)
def test_a_mistake_is_told(make: Any) -> None:
    with pytest.raises(canal.ConfigError):
        make()


def config_of(masks: Any) -> canal.InstanceConfig:
    return canal.InstanceConfig(destination="x", source=FakeBinlog(), mask=masks)


def test_the_key_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEY_OF_MASKS", "pepper")
    assert Mask.hmac(env="KEY_OF_MASKS") == KEYED
