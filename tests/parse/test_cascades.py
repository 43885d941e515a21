"""T49: cascading foreign keys are found in the texts of CREATE TABLE and ALTER TABLE and told once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import canal
from canal.parse.schema.cascades import CascadeWatch, ForeignKey, keys_in
from canal.parse.schema.classify import classify
from canal.testing.fake import FakeBinlog

CHILD, PARENT = ("s", "child"), ("s", "parent")
DELETES = [ForeignKey(CHILD, PARENT, "CASCADE", "")]


@pytest.mark.parametrize(
    ("sql", "keys"),
    [
        ("CREATE TABLE child (a INT, FOREIGN KEY (a) REFERENCES parent (id) ON DELETE CASCADE)", DELETES),
        (
            "create table if not exists `s`.`child`(a int,constraint `x` foreign key k(a) "
            "references `parent`(id)on delete cascade)",
            DELETES,
        ),
        (
            "ALTER TABLE child ADD x INT, ADD CONSTRAINT FOREIGN KEY (a) REFERENCES s.parent (id) MATCH FULL ON DELETE CASCADE",
            DELETES,
        ),
        (
            "CREATE TABLE child (a INT, FOREIGN KEY (a) REFERENCES o.p (id) ON UPDATE SET NULL ON DELETE NO ACTION, b INT)",
            [ForeignKey(CHILD, ("o", "p"), "NO ACTION", "SET NULL")],
        ),
        (
            "CREATE TABLE o.child (a INT, FOREIGN KEY (a) REFERENCES p (id) ON UPDATE CASCADE)",
            [ForeignKey(("o", "child"), ("o", "p"), "", "CASCADE")],
        ),
        ("CREATE TABLE child (a INT, /*!50000 FOREIGN KEY (a) REFERENCES parent (id) ON DELETE CASCADE */)", DELETES),
        ("CREATE TABLE child (a INT, FOREIGN KEY (a) REFERENCES parent (id) ON DELETE RESTRICT ON UPDATE SET DEFAULT)", []),
        ("CREATE TABLE child (a INT COMMENT 'FOREIGN KEY (a) REFERENCES parent (id) ON DELETE CASCADE')", []),
        ("CREATE TABLE child (`references` INT, b INT)", []),
        ("CREATE TRIGGER t AFTER INSERT ON child FOR EACH ROW CREATE TABLE child (FOREIGN KEY (a) REFERENCES p (id))", []),
        ("CREATE TABLE child (a INT, FOREIGN KEY (a) REFERENCES", []),
        ("USE s; DROP TABLE x; CREATE TABLE child (FOREIGN KEY (a) REFERENCES parent (a) ON DELETE CASCADE);", DELETES),
    ],
)
def test_the_keys_of_a_text(sql: str, keys: list[ForeignKey]) -> None:
    assert keys_in(sql, "s") == keys


def test_mysql_passes_over_a_reference_in_a_column() -> None:
    sql = "CREATE TABLE child (a INT REFERENCES parent (id) ON DELETE CASCADE)"

    assert keys_in(sql, "s", flavor="mariadb") == DELETES
    assert keys_in(sql, "s", flavor="mysql") == []


def told(*statements: str, delivers: Callable[[str, str], bool] = lambda schema, table: True) -> list[str]:
    alarms: list[str] = []
    watch = CascadeWatch(delivers, alarms.append)
    for sql in statements:
        watch.follow(sql, classify(sql, "s"))
    return alarms


def test_each_key_is_told_once() -> None:
    create = "CREATE TABLE child (a INT, FOREIGN KEY (a) REFERENCES parent (id) ON DELETE CASCADE)"
    (alarm,) = told(create, "ALTER TABLE child ADD b INT", "DROP TABLE child", create)

    assert "s.child" in alarm
    assert "ON DELETE CASCADE from s.parent" in alarm


def test_a_key_moves_with_its_table() -> None:
    shadow = "CREATE TABLE _child_new (a INT, FOREIGN KEY (a) REFERENCES parent (id) ON DELETE CASCADE)"
    swap = "RENAME TABLE child TO _child_old, _child_new TO child"

    def delivers(schema: str, table: str) -> bool:
        return table == "child"

    assert told(shadow, delivers=delivers) == []
    assert len(told(shadow, swap, delivers=delivers)) == 1
    assert told(shadow, "DROP TABLE _child_new", swap, delivers=delivers) == []


def test_a_statement_may_spell_a_table_otherwise_than_the_server() -> None:
    """As with lower_case_table_names."""
    told: list[str] = []
    watch = CascadeWatch(lambda schema, table: True, told.append)
    watch.add(DELETES)
    watch.follow("RENAME TABLE S.CHILD TO s.kid", classify("RENAME TABLE S.CHILD TO s.kid", "s"))

    assert len(told) == 2
    assert "s.kid" in told[1]


def test_files_tell_keys_by_their_statements_and_by_schema(tmp_path: Path) -> None:
    fake = FakeBinlog(flavor="mariadb")
    fake.ddl("CREATE TABLE child (a INT, FOREIGN KEY (a) REFERENCES parent (id) ON DELETE CASCADE)", schema="s")
    fake.write(tmp_path)
    given = {"s.other": "a INT, FOREIGN KEY (a) REFERENCES parent (id) ON UPDATE SET NULL"}
    alarms: list[str] = []
    config = canal.InstanceConfig(
        destination="files",
        source=canal.LocalBinlogSource(tmp_path, schema=given),
        start="earliest",
        alarm=lambda destination, text: alarms.append(text),
    )
    with canal.Instance(config) as instance:
        instance.subscribe()
        assert [entry.event_type.name for message in instance.stream() for entry in message.entries] == ["CREATE"]

    assert ["s.other" in alarms[0], "s.child" in alarms[1]] == [True, True]
    assert len(alarms) == 2
