"""Masked tables lose nothing: what no row tells is seen behind a mask, and the source's types decide, not the masked ones."""

from __future__ import annotations

from typing import Any

import pytest

import canal
from canal import Mask
from canal.changes import Reader
from canal.changes.alters import types_text
from canal.changes.latest import latest
from canal.errors import UnfitChangeError
from canal.rows.mask import Masks
from canal.server.configuration.toml_files import _one_mask
from canal.statement import Statement
from canal.testing.fake import FakeBinlog

MASKS = {r"shop\.users": {"email": Mask.hmac(key="pepper"), "n": Mask.hmac(key="pepper")}}
COLUMNS = "id INT PRIMARY KEY, email VARCHAR(100), n {}"


def entries_of(fake: FakeBinlog, masks: Any = None, **options: Any) -> list[canal.Entry]:
    fake.end()
    config = canal.InstanceConfig(
        destination="masked", source=fake, start="earliest", mask=MASKS if masks is None else masks, **options
    )
    with canal.Instance(config) as instance:
        instance.subscribe()
        return [entry for message in instance.stream() for entry in message]


def changes_of(entries: list[canal.Entry]) -> list[Any]:
    reader = Reader()
    return [change for entry in entries for change in reader.changes(entry)]


@pytest.mark.parametrize(
    "sql",
    [
        "ALTER TABLE users TRUNCATE PARTITION p0",
        "ALTER TABLE users DROP PARTITION p0",
        "ALTER TABLE users DROP COLUMN n",
        "ALTER TABLE users RENAME COLUMN n TO m",
        "ALTER TABLE users DROP PRIMARY KEY",
        "ALTER TABLE users CHANGE n m INT",
        "ALTER TABLE users MODIFY n INT AS (id) STORED",
        "DROP DATABASE shop",
    ],
)
def test_a_statement_that_no_row_tells_of_is_seen_behind_a_mask(sql: str) -> None:
    fake = FakeBinlog()
    users = fake.table("shop", "users", COLUMNS.format("INT"))
    users.insert({"id": 1, "email": "a", "n": 5})
    fake.ddl(sql, "shop")
    entries = entries_of(fake)
    assert (sql in repr([(entry.row_change.sql, entry.sql, entry.statement) for entry in entries])) is sql.startswith("DROP D")
    with pytest.raises(canal.UnloggedChangeError):
        changes_of(entries)


def test_a_statement_whose_text_was_lost_counts_as_a_loss() -> None:
    fake = FakeBinlog()
    fake.table("shop", "users", COLUMNS.format("INT")).insert({"id": 1, "email": "a", "n": 5})
    fake.ddl("ALTER TABLE users ADD c INT", "shop")
    entries = entries_of(fake)
    assert len(changes_of(entries)) == 1
    for entry in entries:
        if entry.statement is not None:
            entry.statement = Statement("ddl", "ALTER", entry.statement.tables, event_types=("ALTER",))
    with pytest.raises(canal.UnloggedChangeError, match="not understood"):
        changes_of(entries)


@pytest.mark.parametrize(
    ("old", "new"), [("INT", "TINYINT"), ("DECIMAL(10,2)", "DECIMAL(11,3)"), ("ENUM('secret','b')", "ENUM('b')")]
)
def test_a_masked_column_of_another_type_stops_a_reader(old: str, new: str) -> None:
    fake = FakeBinlog()
    value: Any = "b" if "ENUM" in old else 5
    fake.table("shop", "users", COLUMNS.format(old)).insert({"id": 1, "email": "a", "n": value})
    fake.ddl("ALTER TABLE users MODIFY n …", "shop")
    fake.table("shop", "users", COLUMNS.format(new)).insert({"id": 2, "email": "a", "n": value})
    entries = [entry for entry in entries_of(fake) if entry.rows]
    with pytest.raises(canal.UnloggedChangeError, match="n, which is masked, has another type") as caught:
        changes_of(entries)
    assert "secret" not in str(caught.value)
    first, second = (entry.table.schema.columns for entry in entries if entry.table is not None)
    assert types_text(first) != types_text(second)


def test_a_masked_column_of_a_wider_type_passes() -> None:
    fake = FakeBinlog()
    fake.table("shop", "users", COLUMNS.format("INT")).insert({"id": 1, "email": "a", "n": 5})
    fake.table("shop", "users", COLUMNS.format("BIGINT")).insert({"id": 2, "email": "a", "n": 5})
    assert len(changes_of(entries_of(fake))) == 2


def dropped_column(fake: FakeBinlog) -> None:
    """Two rows before the masked column is dropped and one behind, all in the same read."""
    users = fake.table("shop", "users", COLUMNS.format("INT"))
    users.insert({"id": 1, "email": "secret", "n": 5})
    users.insert({"id": 2, "email": "secret", "n": 5})
    fake.table("shop", "users", "id INT PRIMARY KEY, mail VARCHAR(100), n INT").insert({"id": 3, "mail": "secret", "n": 5})
    fake.table("shop", "orders", "id INT PRIMARY KEY").insert({"id": 4})
    fake.end()


@pytest.mark.parametrize("options", [{"mask": MASKS}, {"field_filter": "shop.orders:id/price"}], ids=["mask", "field_filter"])
def test_what_is_complete_before_a_wrong_configuration_is_delivered(options: dict[str, Any]) -> None:
    fake = FakeBinlog()
    dropped_column(fake)
    found: list[Any] = []
    config = canal.InstanceConfig(destination="masked", source=fake, start="earliest", **options)
    with canal.Instance(config) as instance:
        instance.subscribe()
        with pytest.raises(canal.ConfigError) as caught:
            for message in instance.stream():
                found += [row.after["id"] for entry in message for row in entry.rows if row.after is not None]
    assert found == ([1, 2] if "mask" in options else [1, 2, 3])
    assert caught.value.position is not None
    if "mask" in options:
        assert "if_present" in str(caught.value)


def test_a_mask_of_a_column_that_may_be_gone_masks_what_came_before() -> None:
    fake = FakeBinlog()
    dropped_column(fake)
    mask = Mask.hmac(key="pepper")
    masks = {r"shop\.users": {"email": mask.if_present(), "mail": mask.if_present(), "gone": Mask.drop().if_present()}}
    rows = [row for entry in entries_of(fake, masks) for row in entry.rows]
    assert len(rows) == 4
    assert "secret" not in repr(rows)
    assert repr(rows).count(mask.text("secret")) == 3


def test_a_file_says_that_a_masked_column_may_be_gone() -> None:
    assert _one_mask({"last": 4, "if_present": True}, "x") == Mask.last(4).if_present()
    assert _one_mask({"drop": True, "if_present": True}, "x") == Mask.drop().if_present()
    assert _one_mask({"last": 4, "if_present": False}, "x") == Mask.last(4)
    with pytest.raises(canal.ConfigError, match="true or false"):
        _one_mask({"last": 4, "if_present": "no"}, "x")


def test_a_large_column_that_is_masked_may_be_left_out_of_an_image() -> None:
    fake = FakeBinlog(row_image="NOBLOB")
    users = fake.table("shop", "users", "id INT PRIMARY KEY, email BLOB, n INT")
    users.insert({"id": 1, "email": b"secret", "n": 5})
    users.update({"id": 1, "email": b"secret", "n": 5}, {"n": 6})
    changes = changes_of(entries_of(fake, {r"shop\.users": {"email": Mask.hmac(key="pepper")}}))
    (state,) = latest(changes[1:], lambda table, keys: {(1,): (1, "masked", 5)})
    assert state.upserts == [(1, "masked", 6)]


def composed(sink: canal.sink.EntrySink | None, masks: Masks) -> canal.Instance:
    fake = FakeBinlog()
    users = fake.table("shop", "users", COLUMNS.format("INT"))
    users.insert({"id": 1, "email": "secret", "n": 5}, sql="INSERT INTO users VALUES (1, 'secret', 5)")
    fake.query("UPDATE users SET email = 'secret'", "shop")
    fake.end()
    parser = canal.parse.BinlogParser(fake, start="earliest", masks=masks)
    return canal.Instance.compose("composed", parser=canal.parse.GroupParser({"a": parser}), sink=sink)


def test_a_composed_instance_withholds_what_its_parser_masks() -> None:
    for sink in (None, canal.sink.EntrySink(masks=Masks(MASKS))):
        with composed(sink, Masks(MASKS)) as instance:
            instance.subscribe()
            entries = [entry for message in instance.stream() for entry in message]
        assert len(entries) > 2
        assert "secret" not in repr([(entry.rows, entry.query, entry.sql) for entry in entries])


def test_a_sink_without_the_masks_of_its_parser_is_refused() -> None:
    for masks in (None, Masks({"shop.users": {"email": Mask.drop()}})):
        with pytest.raises(canal.ConfigError, match="masks"):
            composed(canal.sink.EntrySink(masks=masks), Masks(MASKS))


def test_a_partial_document_that_is_masked_does_not_count_as_unchanged() -> None:
    fake = FakeBinlog()
    users = fake.table("shop", "users", "id INT PRIMARY KEY, email JSON, n INT")
    users.update({"id": 1, "email": {}, "n": 5}, {"email": {"a": 1}})
    (change,) = changes_of(entries_of(fake, {r"shop\.users": {"email": Mask.hmac(key="pepper")}}))
    assert change.after is not None
    change.after = change.table.row({**change.after.as_dict(), "email": canal.ABSENT})  # as the decoder gives it
    with pytest.raises(UnfitChangeError, match="which is masked, only a change"):
        latest([change], lambda table, keys: {(1,): (1, "masked", 5)})
