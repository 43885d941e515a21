"""One ALTER TABLE at a time: its clauses, and the columns and keys that a table has behind it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from canal.parse.schema.alter import altered, copied, created
from canal.parse.schema.alteration import Alteration, read_alteration
from canal.parse.schema.definition import read_body
from canal.parse.schema.parts import Dialect, NotUnderstoodError, TableOptions
from canal.parse.schema.scanner import Scanner
from canal.parse.schema.table_state import TableVersion

MYSQL, MARIADB = Dialect("mysql", (8, 4, 0)), Dialect("mariadb", (10, 11, 2))
DIALECTS = pytest.mark.parametrize("dialect", [MYSQL, MARIADB])


def table(text: str, dialect: Dialect = MYSQL, charset: str = "utf8mb4") -> TableVersion:
    return created("d", "t", read_body(Scanner(f"{text})"), dialect), dialect, charset, TableOptions())


def clauses(text: str, dialect: Dialect = MYSQL) -> Alteration:
    return read_alteration(Scanner(text), dialect, "d")


def after(state: TableVersion, text: str, dialect: Dialect = MYSQL) -> TableVersion:
    return altered(state, clauses(text, dialect), dialect, "utf8mb4", "utf8mb4")


def names(state: TableVersion) -> str:
    return " ".join(column.name for column in state.shown)


def keys(state: TableVersion) -> list[str]:
    assert state.keys is not None
    return [f"{key.name}({','.join(name for name, _ in key.columns)})" for key in state.keys]


@DIALECTS
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("ADD d INT", "a b c d"),
        ("ADD d INT FIRST", "d a b c"),
        ("ADD COLUMN d INT AFTER a", "a d b c"),
        ("ADD (d INT, e INT)", "a b c d e"),
        ("ADD d INT FIRST, ADD e INT AFTER d", "d e a b c"),
        ("DROP b", "a c"),
        ("DROP COLUMN b, ADD b INT", "a c b"),
        ("MODIFY c BIGINT FIRST", "c a b"),
        ("CHANGE b x INT AFTER c", "a c x"),
        ("RENAME COLUMN b TO x", "a x c"),
        ("CHANGE a b INT, CHANGE b a INT", "b a c"),
        ("ENGINE=InnoDB, COMMENT='DROP b'", "a b c"),
        ("ALTER b SET DEFAULT 5", "a b c"),
        ("ADD KEY (b)", "a b c"),
        ("RENAME TO e.u", "a b c"),
        ("ORDER BY b, c", "a b c"),
    ],
)
def test_the_order_of_the_columns(dialect: Dialect, text: str, expected: str) -> None:
    assert names(after(table("a INT, b INT, c INT", dialect), text, dialect)) == expected


@DIALECTS
@pytest.mark.parametrize(
    "text",
    [
        "DROP x",
        "MODIFY x INT",
        "ADD d INT AFTER x",
        "ADD a INT",
        "DROP a, DROP b, DROP c",
        "ADD d WHATEVER",
        "ADD d INT,",
        "WHATEVER",
    ],
)
def test_what_the_server_would_refuse_or_nobody_understands_is_no_guess(dialect: Dialect, text: str) -> None:
    with pytest.raises(NotUnderstoodError):
        after(table("a INT, b INT, c INT", dialect), text, dialect)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("ADD PRIMARY KEY (a), ADD UNIQUE u (b)", ["PRIMARY(a)", "u(b)", "k(c)"]),
        ("ADD UNIQUE (b)", ["b(b)", "k(c)"]),
        ("DROP KEY k", []),
        ("DROP c", []),
        ("RENAME KEY k TO q", ["q(c)"]),
        ("CHANGE c x INT", ["k(x)"]),
        ("ADD KEY l (c, a), DROP INDEX k", ["l(c,a)"]),
        ("ALTER INDEX k INVISIBLE", ["k(c)"]),
    ],
)
def test_the_keys(text: str, expected: list[str]) -> None:
    assert keys(after(table("a INT NOT NULL, b INT NOT NULL, c INT, KEY k (c)"), text)) == expected


def test_a_primary_key_makes_its_columns_not_null_and_marks_them() -> None:
    state = after(table("a INT, b INT"), "ADD PRIMARY KEY (b)")
    assert [(column.name, column.nullable, column.key) for column in state.shown] == [("a", True, False), ("b", False, True)]
    assert not any(column.key for column in after(state, "DROP PRIMARY KEY").shown)


def test_a_conversion_takes_the_columns_with_it_and_a_default_does_not() -> None:
    state = table("a VARCHAR(9), b TEXT, c VARBINARY(9)", charset="latin1")
    assert [column.charset for column in after(state, "DEFAULT CHARSET utf8mb4").shown] == ["latin1", "latin1", None]
    assert after(state, "DEFAULT CHARSET utf8mb4").charset == "utf8mb4"
    converted = after(state, "CONVERT TO CHARACTER SET utf8mb4")
    assert [(column.charset, column.column_type) for column in converted.shown] == [
        ("utf8mb4", "varchar(9)"),
        ("utf8mb4", "mediumtext"),
        (None, "varbinary(9)"),
    ]


def test_clauses_that_change_no_column_are_told_from_those_that_make_the_table_anew() -> None:
    assert not clauses("ENABLE KEYS, ALGORITHM=INPLACE, LOCK=NONE").remakes
    assert clauses("FORCE").remakes
    assert clauses("RENAME TO e.u").rename == ("e", "u")
    assert clauses("RENAME u").rename == ("d", "u")
    assert clauses("ENGINE = MyISAM").engine == "myisam"


def test_a_table_made_like_another_one_has_its_columns_and_keys() -> None:
    state = table("a INT PRIMARY KEY, b TEXT, KEY k (b(9))")
    made = copied(state, "e", "u", MYSQL)
    assert (made.schema.name, made.schema.columns, made.keys) == ("e.u", state.schema.columns, state.keys)


_steps = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.integers(0, 9), st.one_of(st.none(), st.integers(0, 9))),
        st.tuples(st.just("drop"), st.integers(0, 9), st.none()),
        st.tuples(st.just("move"), st.integers(0, 9), st.one_of(st.none(), st.integers(0, 9))),
        st.tuples(st.just("rename"), st.integers(0, 9), st.integers(10, 19)),
    ),
    max_size=12,
)


@DIALECTS
@given(steps=_steps)
def test_any_row_of_alters_gives_the_columns_that_a_list_of_names_has(
    dialect: Dialect, steps: list[tuple[str, int, int | None]]
) -> None:
    state, expected = table("n0 INT", dialect), ["n0"]
    for verb, one, other in steps:
        mine, its = f"n{one}", f"n{other}"
        where = "FIRST" if other is None else f"AFTER {its}"
        text = {
            "add": f"ADD {mine} INT {where}",
            "drop": f"DROP {mine}",
            "move": f"MODIFY {mine} INT {where}",
            "rename": f"RENAME COLUMN {mine} TO {its}",
        }[verb]
        others = [name for name in expected if name != mine]
        fits = (mine in expected) is (verb != "add")
        if verb in ("add", "move"):
            fits = fits and (other is None or its in others)
        if verb == "drop":
            fits = fits and len(expected) > 1
        if verb == "rename":
            fits = fits and its not in expected
        if not fits:
            with pytest.raises(NotUnderstoodError):
                after(state, text, dialect)
            continue
        state = after(state, text, dialect)
        if verb == "rename":
            expected[expected.index(mine)] = its
        else:
            expected = others
            if verb != "drop":
                expected.insert(0 if other is None else others.index(its) + 1, mine)
        assert names(state) == " ".join(expected)
