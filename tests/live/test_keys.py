"""Source equality of keys: those that a SELECT calls equal have one group, and others no exact value in common."""

from __future__ import annotations

import random
from itertools import combinations
from typing import Any

from canal.changes.keys import KeyRules
from canal.testing.servers import ThrowawayServer
from tests.support.live import Watch

#: Texts of which some collation calls two equal.
ALIKE = (
    "",
    " ",
    "`",
    "~",
    "y",
    "e",
    "k1",
    "K1",
    "k1 ",
    "k1  ",
    "\x01k1",
    "k2",
    "a",
    "a\t",
    "é",
    "É",
    "e\u0301",
    "ß",
    "ss",
    "SS",
    "æ",
    "ae",
    "ä",
    "å",
    "aa",
    "ö",
    "oe",
    "ø",
    "ü",
    "ue",
    "i",
    "j",
    "ı",
    "İ",
    "I",
    "u",
    "v",
    "w",
    "m",
    "n",
    "ch",
    "c",
    "ccs",
    "cscs",
    "ddz",
    "dzdz",
    "þ",
    "th",
    "ñ",
    "ł",
    "l",
    "đ",
    "1",
    "１",
    "²",
    "2",
    "①",
    "½",
    "12",
    "1⁄2",
    "か",
    "カ",
    "ｶ",
    "日",
    "中",
    "😀",
    "🍣",
    "\U0001d7cf",
    "\u200d",
    "ﬁ",
    "fi",
    "а",
    "А",
    "я",
    "ё",
    "е",
    "α",
    "Α",
    "ά",
    "ς",
    "σ",
)
LETTERS = "acdegijlnstuvwyz hH1`~m"
#: Collations in one run: a random choice, as some servers have 900.
CHOSEN = 60

TYPES: dict[str, tuple[Any, ...]] = {
    "TINYINT": (-1, 0, 1),
    "BIGINT UNSIGNED": (0, 1 << 63, (1 << 64) - 1, (1 << 53) + 1, 1 << 53),
    "YEAR": (0, 1999, 2000),
    "DECIMAL(20,3)": ("0", "-0", "1.5", "1.500", "9007199254740993", "9007199254740992"),
    "BIT(12)": (0, 1, 256, 2049),
    "FLOAT": ("0", "-0e0", "0.1", "0.10000001", "16777216", "16777217"),
    "DOUBLE": ("0", "-0e0", "0.1", "1e300", "-1e300"),
    "DATE": ("0000-00-00", "2026-00-00", "2026-01-01", "2026-02-31"),
    "TIME": ("-00:00:01", "00:00:01", "838:59:59"),
    "DATETIME": ("0000-00-00", "2026-10-25 02:30:00", "2026-10-25 00:30:00"),
    "BINARY(4)": (b"a", b"a\0", b"A", b"a ", b""),
    "TIMESTAMP NULL": ("0000-00-00", "2026-10-25 00:30:00", "2026-10-25 01:30:00"),
    "VARBINARY(4)": (b"a", b"a\0", b"A", b"a ", b""),
    "ENUM('a','','B')": ("a", "", "B", "b", "nothing"),
    "SET('a','b')": ("", "a", "b", "a,b", "b,a"),
}


def collations(server: ThrowawayServer) -> list[str]:
    """Return each collation with its character set, as a column definition has them."""
    table = "FROM information_schema.COLLATION_CHARACTER_SET_APPLICABILITY"
    names = [row[0] for row in server.query(f"SHOW COLUMNS {table}")]
    name = "FULL_COLLATION_NAME" if "FULL_COLLATION_NAME" in names else "COLLATION_NAME"
    found = server.query(f"SELECT CHARACTER_SET_NAME, {name} {table} ORDER BY {name}")
    return [f"CHARACTER SET {charset} COLLATE {collation}" for charset, collation in found if charset != "binary"]


def compare(server: ThrowawayServer, database: str, columns: dict[str, list[Any]]) -> int:
    """Store the values of each column definition, and compare the keys that the log has with what SELECT calls equal.

    Returns:
        How many pairs are equal.
    """
    names = {f"c{number}": definition for number, definition in enumerate(columns)}
    equal: dict[str, set[tuple[int, int]]] = {}
    stored: dict[int, tuple[Any, ...]] = {}
    with (
        Watch(server, rf"{database}\.t") as watch,
        server.connect(charset="utf8mb4", autocommit=True, database=database) as connection,
        connection.cursor() as cursor,
    ):
        cursor.execute("SET SESSION sql_mode = 'NO_ENGINE_SUBSTITUTION', time_zone = '+00:00'")
        definitions = ", ".join(f"{name} {definition}" for name, definition in names.items())
        cursor.execute(f"CREATE TABLE t (n INT PRIMARY KEY, {definitions}) ENGINE=MyISAM")
        for number in range(max(map(len, columns.values()))):
            row = [values[min(number, len(values) - 1)] for values in columns.values()]
            cursor.execute(f"INSERT INTO t VALUES ({', '.join(['%s'] * (len(row) + 1))})", (number, *row))
        for name in names:
            cursor.execute(f"SELECT a.n, b.n FROM t a JOIN t b ON a.{name} = b.{name} WHERE a.n < b.n")
            equal[name] = set(cursor.fetchall())
        for entry in watch.read():
            if entry.table is not None:
                shown = entry.table.columns
                stored |= {row.after["n"]: row.after.values() for row in entry.rows if row.after is not None}
    for number, column in enumerate(shown):
        if column.name in names:
            rules, keys = KeyRules.of(shown, (number,)), {n: (values[number],) for n, values in stored.items()}
            check(rules, keys, equal[column.name], names[column.name])
    assert len(stored) == max(map(len, columns.values()))
    return sum(map(len, equal.values()))


def check(rules: KeyRules, keys: dict[int, tuple[Any, ...]], equal: set[tuple[int, int]], definition: str) -> None:
    exact = {n: rules.exact(key) for n, key in keys.items()}
    groups = {n: rules.group(key) for n, key in keys.items()}
    for pair in combinations(sorted(keys), 2):
        one, other = pair
        where = definition, keys[one], keys[other]
        assert pair in equal or exact[one] != exact[other], where
        assert pair not in equal or None in (groups[one], groups[other]) or groups[one] == groups[other], where
        assert rules.same(keys[one], keys[other]) in (pair in equal, None), where


def test_keys_that_a_collation_calls_equal_have_one_group(server: ThrowawayServer, database: str) -> None:
    rng = random.Random()
    texts = [*ALIKE, *("".join(rng.choices(LETTERS, k=rng.randint(1, 4))) for _ in range(60))]
    named = collations(server)
    chosen = rng.sample(named, min(CHOSEN, len(named)))

    assert compare(server, database, {f"VARCHAR(8) {one}": texts for one in chosen}) > 0


def test_keys_of_each_type_are_compared_as_the_server_does(server: ThrowawayServer, database: str) -> None:
    assert compare(server, database, {column: list(values) for column, values in TYPES.items()}) > 0
