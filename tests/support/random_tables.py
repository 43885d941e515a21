"""Random tables and changes of a MySQL or MariaDB server as SQL text, and one form for the values that clients return.

Everything follows from the seed: no server is asked, so a history is replayed by its seed alone.
"""

from __future__ import annotations

import json
import random
import re
import struct
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from datetime import time as clock
from decimal import Decimal
from typing import Any, Final

import attrs

Row = dict[str, Any]

_TEXTS: Final = (
    "",
    "a",
    "A",
    "a ",
    " a",
    "é",
    "e",
    "ß",
    "ss",
    "日本",
    "😀",
    "o'b\"r",
    "back\\slash",
    "tab\tnl\n",
    "%s",
    "NULL",
    "a:b",
    "0",
    "-0",
)
_DATES: Final = ("'1000-01-01'", "'9999-12-31'", "'1970-01-01'", "'2024-02-29'", "'2024-02-28'")
_MOMENTS: Final = ("'1000-01-01 00:00:00'", "'9999-12-31 23:59:59'", "'2024-01-01 00:00:01'", "'2024-01-01 00:00:02'")
_STAMPS: Final = ("'1970-01-01 00:00:01'", "'2038-01-19 03:14:07'", "'2024-10-27 00:30:00'", "'2024-10-27 01:30:00'")
_BYTES: Final = ("''", "X'61'", "X'6100'", "X'00'", "X'FFFE'", "X'41'", "X'6120'")


def _range(low: int, high: int) -> tuple[str, ...]:
    return tuple(map(str, (low, high, 0, 1, high - 1, 7)))


@attrs.frozen
class Kind:
    """A type of column, how a value is compared, and literals that collide often."""

    declared: str
    family: str
    literals: tuple[str, ...]
    is_key: bool = True
    only: str = ""
    """The flavor that has the type; "" for both."""


KINDS: Final[Mapping[str, Kind]] = {
    "tinyint": Kind("TINYINT", "number", _range(-128, 127)),
    "smallint unsigned": Kind("SMALLINT UNSIGNED", "number", _range(0, 2**16 - 1)),
    "mediumint": Kind("MEDIUMINT", "number", _range(-(2**23), 2**23 - 1)),
    "int": Kind("INT", "number", _range(-(2**31), 2**31 - 1)),
    "int unsigned": Kind("INT UNSIGNED", "number", _range(0, 2**32 - 1)),
    "bigint": Kind("BIGINT", "number", (*_range(-(2**63), 2**63 - 1), str(2**53), str(2**53 + 1))),
    "bigint unsigned": Kind("BIGINT UNSIGNED", "number", (*_range(0, 2**64 - 1), str(2**63), str(2**63 + 1))),
    "decimal": Kind("DECIMAL(12,3)", "number", ("0", "-0.001", "999999999.999", "1.5", "1.500", "7")),
    "decimal whole": Kind(
        "DECIMAL(20,0)", "number", ("0", "99999999999999999999", "-99999999999999999999", "9007199254740993", "9007199254740992")
    ),
    "decimal wide": Kind(
        "DECIMAL(65,30)", "number", ("0", "1e-30", "-99999999999999999999999999999999999.999999999999999999999999999999", "1.5")
    ),
    "float": Kind("FLOAT", "float", ("0", "-0e0", "0.1", "16777217", "1234567.875", "3.4028e38", "-1.5", "1e-45")),
    "double": Kind("DOUBLE", "double", ("0", "-0e0", "0.1", "9007199254740993", "1.7976931348623157e308", "5e-324", "-2.5")),
    "bit": Kind("BIT(12)", "bit", _range(0, 2**12 - 1)),
    "bit wide": Kind("BIT(64)", "bit", _range(0, 2**64 - 1)),
    "year": Kind("YEAR", "number", ("1901", "2155", "2024", "2025")),
    "date": Kind("DATE", "date", _DATES),
    "datetime": Kind("DATETIME", "moment", _MOMENTS),
    "datetime(3)": Kind("DATETIME(3)", "moment", (*_MOMENTS, "'2024-01-01 00:00:01.001'", "'2024-01-01 00:00:01.999'")),
    "datetime(6)": Kind("DATETIME(6)", "moment", (*_MOMENTS, "'2024-01-01 00:00:01.000001'", "'2024-01-01 00:00:01.999999'")),
    "timestamp": Kind("TIMESTAMP NULL", "moment", _STAMPS),
    "timestamp(6)": Kind(
        "TIMESTAMP(6) NULL", "moment", (*_STAMPS, "'2024-01-01 00:00:01.000001'", "'2024-01-01 00:00:01.999999'")
    ),
    "time": Kind("TIME", "time", ("'838:59:59'", "'-838:59:59'", "'00:00:00'", "'-00:00:01'", "'13:14:15'")),
    "time(6)": Kind(
        "TIME(6)", "time", ("'00:00:00'", "'-00:00:00.000001'", "'13:14:15.000001'", "'13:14:15.999999'", "'100:00:00'")
    ),
    "char": Kind("CHAR(20)", "text", ()),
    "varchar": Kind("VARCHAR(20)", "text", ()),
    "text": Kind("TEXT", "text", (), is_key=False),
    "longtext": Kind("LONGTEXT", "text", (), is_key=False),
    "binary": Kind("BINARY(8)", "bytes", _BYTES),
    "varbinary": Kind("VARBINARY(16)", "bytes", _BYTES),
    "blob": Kind("BLOB", "bytes", (*_BYTES, "REPEAT(X'00FF', 500)"), is_key=False),
    "enum": Kind("ENUM('a','b','é','x y','Z') CHARACTER SET utf8mb4", "label", ("'a'", "'b'", "'é'", "'x y'", "'Z'")),
    "set": Kind("SET('a','b','c','d e') CHARACTER SET utf8mb4", "label", ("''", "'a'", "'a,c'", "'a,b,c,d e'")),
    "json": Kind(
        "JSON",
        "json",
        ("'{}'", "'[]'", "'null'", '\'{"b": 1, "a": [1.5, true, null, "é😀"]}\'', "'\"text\"'", "'123456789012345678'"),
        is_key=False,
    ),
    "geometry": Kind(
        "GEOMETRY", "bytes", ("ST_GeomFromText('POINT(1 2)')", "ST_GeomFromText('LINESTRING(0 0,1 1,2 2)')"), is_key=False
    ),
    "point": Kind("POINT", "bytes", ("ST_GeomFromText('POINT(1 2)')", "ST_GeomFromText('POINT(3 4)')"), is_key=False),
    "uuid": Kind(
        "UUID", "label", ("'123e4567-e89b-12d3-a456-426655440000'", "'00000000-0000-0000-0000-000000000001'"), only="mariadb"
    ),
    "inet6": Kind("INET6", "label", ("'::1'", "'2001:db8::ff00:42:8329'"), only="mariadb"),
}
#: Literals that some targets have no value for, by the name of what they lack.
ODD: Final[Mapping[str, Mapping[str, tuple[str, ...]]]] = {
    "zero dates": {"date": ("'0000-00-00'",), "moment": ("'0000-00-00 00:00:00'",)},
    "nul": {"text": ("X'610062'",)},
    "no label": {"label": ("''",)},
}
#: A class of collations each: without case and accents, by bytes, with and without padding, other charsets.
COLLATIONS: Final[Mapping[str, tuple[tuple[str, str], ...]]] = {
    "mysql": (
        ("utf8mb4", "utf8mb4_0900_ai_ci"),
        ("utf8mb4", "utf8mb4_bin"),
        ("utf8mb4", "utf8mb4_general_ci"),
        ("utf8mb4", "utf8mb4_0900_as_cs"),
        ("utf8mb4", "utf8mb4_0900_bin"),
        ("latin1", "latin1_swedish_ci"),
        ("utf8mb3", "utf8mb3_general_ci"),
        ("sjis", "sjis_japanese_ci"),
    ),
    "mariadb": (
        ("utf8mb4", "utf8mb4_general_ci"),
        ("utf8mb4", "utf8mb4_bin"),
        ("utf8mb4", "utf8mb4_nopad_bin"),
        ("utf8mb4", "utf8mb4_general_nopad_ci"),
        ("utf8mb4", "utf8mb4_unicode_ci"),
        ("latin1", "latin1_swedish_ci"),
        ("utf8mb3", "utf8mb3_general_ci"),
        ("sjis", "sjis_japanese_ci"),
    ),
}
_CODECS: Final = {"latin1": "cp1252", "sjis": "shift_jis"}


@attrs.frozen
class Column:
    name: str
    kind: str
    declared: str
    literals: tuple[str, ...] = ()

    @property
    def family(self) -> str:
        return KINDS[self.kind].family

    @property
    def is_plain(self) -> bool:
        """Whether statements may write it."""
        return "GENERATED" not in self.declared


@attrs.define
class Table:
    name: str
    columns: list[Column]
    keys: tuple[str, ...]
    #: Of each row by its ``rid``: the literals that its key was last given.
    rows: dict[int, dict[str, str]] = attrs.field(factory=dict, repr=False)

    @property
    def definition(self) -> str:
        columns = ", ".join(f"`{one.name}` {one.declared}" for one in self.columns)
        keys = f", PRIMARY KEY ({', '.join(f'`{name}`' for name in self.keys)})" if self.keys else ""
        return f"CREATE TABLE `{self.name}` ({columns}{keys}, UNIQUE KEY rid (rid), UNIQUE KEY u (u))"


@attrs.frozen
class Phase:
    """Transactions, each some statements, and what becomes of the process that then follows them."""

    image: str
    transactions: tuple[tuple[str, ...], ...]
    life: str = "whole"
    at: int = 1
    """The commit at which something happens to the process."""
    batch_size: int = 10_000


@attrs.frozen
class History:
    seed: int
    flavor: str
    tables: tuple[Table, ...]
    phases: tuple[Phase, ...]
    rule: str = ""
    metadata: str = "FULL"
    odd: str = ""

    @property
    def columns(self) -> list[Column]:
        return [column for table in self.tables for column in table.columns]

    @property
    def keys(self) -> list[Column]:
        return [column for table in self.tables for column in table.columns if column.name in table.keys]

    def shown(self) -> str:
        """The history as statements."""
        lines = [f"-- seed {self.seed}, {self.flavor}, rule {self.rule or 'none'}, binlog_row_metadata {self.metadata}"]
        for phase in self.phases:
            lines.append(f"SET SESSION binlog_row_image = '{phase.image}';")
            for some in phase.transactions:
                lines += ["BEGIN;", *(f"{one[:300]};" for one in some), "COMMIT;"] if len(some) > 1 else [f"{some[0][:300]};"]
            lines.append(f"-- the pipe follows: {phase.life} at commit {phase.at}, batch_size {phase.batch_size}")
        return "\n".join(lines)


class Maker:
    """Makes a history.

    Args:
        avoids: kinds of columns that the target refuses as a column, or as a key with " key" behind it.
        lacks: what the target has no value for, of ``ODD``: drawn seldom, as it ends a run.
        lives, rules, images: what to draw from.
    """

    def __init__(
        self,
        seed: int,
        flavor: str,
        *,
        avoids: Sequence[str] = (),
        lacks: Sequence[str] = (),
        lives: Sequence[str] = ("whole",),
        rules: Sequence[str] = (),
        images: Sequence[str] = ("FULL", "MINIMAL", "NOBLOB"),
    ) -> None:
        self.draw = random.Random(f"{seed}/{flavor}")
        self.seed, self.flavor = seed, flavor
        self.avoids, self.lives, self.rules, self.images = avoids, lives, rules, images
        draw = self.draw
        names = [name for name in ODD if name not in lacks or draw.random() < 0.05]
        self.odd = draw.choice(names) if names and draw.random() < 0.3 else ""
        self.tables: list[Table] = []
        self.number = 0

    def history(self) -> History:
        draw = self.draw
        self.rule = rule = draw.choice(self.rules) if self.rules and draw.random() < 0.4 else ""
        self.image = draw.choice(self.images) if not rule.endswith("by row") else "FULL"
        first = self._table("t1", draw.choice((1, 1, 1, 2, 3)))
        more = [self._table("t2", draw.choice((1, 2)))] if rule != "merged" else [attrs.evolve(first, name="t2", rows={})]
        self.tables = [first, *more[: draw.choice((0, 1)) if rule != "merged" else 1]]
        phases = [self._phase(number == 0) for number in range(draw.choice((1, 2, 2, 3, 4)))]
        metadata = draw.choice(("FULL", "FULL", "MINIMAL"))
        if any(column.kind in ("enum", "set") or column.family == "text" for column in self._columns()):
            metadata = "FULL" if draw.random() < 0.7 else metadata
        return History(self.seed, self.flavor, tuple(self.tables), tuple(phases), rule, metadata, self.odd)

    def _columns(self) -> list[Column]:
        return [column for table in self.tables for column in table.columns]

    # -- tables -----------------------------------------------------------------------------------------------------------

    def _column(self, name: str, *, is_key: bool = False) -> Column:
        draw = self.draw
        kinds = [
            one
            for one, kind in KINDS.items()
            if kind.only in ("", self.flavor)
            and one not in self.avoids
            and (not is_key or (kind.is_key and f"{one} key" not in self.avoids))
        ]
        chosen = draw.choice(kinds)
        kind, declared = KINDS[chosen], KINDS[chosen].declared
        literals = kind.literals
        if kind.family == "text":
            charset, collation = draw.choice(COLLATIONS[self.flavor])
            declared += f" CHARACTER SET {charset} COLLATE {collation}"
            texts = [one for one in _TEXTS if _fits(one, charset)]
            literals = tuple(_quoted(one) for one in draw.sample(texts, min(len(texts), 6 if is_key else 12)))
            literals += ("REPEAT('long ', 500)",) if chosen in ("text", "longtext") else ()
        if not (is_key and self.odd == "no label") and not (kind.family == "text" and is_key):
            literals += ODD.get(self.odd, {}).get(kind.family, ()) if chosen not in ("uuid", "inet6") else ()
        if is_key:
            return Column(name, chosen, declared.replace(" NULL", "") + " NOT NULL", literals)
        return Column(name, chosen, declared + (" INVISIBLE" if draw.random() < 0.05 else ""), (*literals, "NULL"))

    def _table(self, name: str, keys: int) -> Table:
        draw = self.draw
        key = [self._column(f"k{number}", is_key=True) for number in range(keys)]
        own = [Column("rid", "int", "INT NOT NULL"), Column("u", "int", "INT NULL", tuple(map(str, range(1, 9))))]
        others = [self._column(f"c{number}") for number in range(draw.randint(1, 6))]
        if "generated" not in self.avoids and draw.random() < 0.15:
            way = draw.choice(("STORED", "VIRTUAL"))
            others.append(Column("g", "int", f"INT GENERATED ALWAYS AS (u + 1) {way}"))
        columns = [*key, *own, *others]
        if draw.random() < 0.3:
            draw.shuffle(columns)
        return Table(name, columns, tuple(one.name for one in key))

    # -- changes ----------------------------------------------------------------------------------------------------------

    def _phase(self, is_first: bool) -> Phase:
        draw = self.draw
        made: list[tuple[str, ...]] = [(table.definition,) for table in self.tables] if is_first else []
        for _ in range(draw.randint(2, 10)):
            if not is_first and draw.random() < 0.06:
                made.append((self._ddl(draw.choice(self.tables)),))
            statements = [one for _ in range(draw.choice((1, 1, 2, 3, 5))) for one in self._change(draw.choice(self.tables))]
            made.append(tuple(statements) if draw.random() > 0.04 else (*statements, "ROLLBACK"))
        return Phase(
            self.image if draw.random() < 0.8 else "FULL",
            tuple(made),
            draw.choice(self.lives) if draw.random() < 0.5 else "whole",
            draw.choice((1, 1, 2, 3, 5)),
            draw.choice((1, 3, 20, 500, 10_000)),
        )

    def _ddl(self, table: Table) -> str:
        draw = self.draw
        if draw.random() < 0.4 and self.rule != "to by row":  # such a TRUNCATE is refused
            table.rows.clear()
            return f"TRUNCATE TABLE `{table.name}`"
        column = self._column(f"a{self.number}")
        column = attrs.evolve(column, declared=column.declared.replace(" INVISIBLE", ""))
        place = draw.choice(("", " FIRST", f" AFTER `{table.columns[0].name}`"))
        table.columns = [*table.columns, column]
        return f"ALTER TABLE `{table.name}` ADD COLUMN `{column.name}` {column.declared}{place}"

    def _values(self, table: Table, **given: str) -> tuple[str, str]:
        """Names and literals of a new row."""
        self.number += 1
        key = {one.name: self.draw.choice(one.literals) for one in table.columns if one.name in table.keys} | given
        table.rows[self.number] = {name: key[name] for name in table.keys}
        values = {}
        for one in table.columns:
            if one.is_plain:
                own = (
                    str(self.number)
                    if one.name == "rid"
                    else self.draw.choice((*one.literals, "NULL") if one.name == "u" else one.literals)
                )
                values[one.name] = key.get(one.name, own)
        return ", ".join(f"`{name}`" for name in values), f"({', '.join(values.values())})"

    def _change(self, table: Table) -> Sequence[str]:
        draw, name = self.draw, f"`{table.name}`"
        ways = {
            "insert": 8,
            "some": 4,
            "many": 1,
            "update": 7,
            "key": 5,
            "swap": 3,
            "swap u": 3,
            "delete": 4,
            "again": 4,
            "replace": 2,
            "upsert": 2,
            "all": 2,
        }
        way = draw.choices(list(ways), list(ways.values()))[0]
        if way in ("insert", "some", "many") or not table.rows:
            names, rows = "", []
            for _ in range({"some": draw.randint(2, 8), "many": 260}.get(way, 1)):
                names, row = self._values(table)
                rows.append(row)
            return [f"INSERT IGNORE INTO {name} ({names}) VALUES {', '.join(rows)}"]
        if way == "replace":
            names, row = self._values(table)
            return [f"REPLACE INTO {name} ({names}) VALUES {row}"]
        rids = list(table.rows)[-400:]
        one, other = draw.choice(rids), draw.choice(rids)
        plain = [column for column in table.columns if column.is_plain and column.name not in (*table.keys, "rid")]
        column = draw.choice(plain)
        if way == "upsert":
            names, row = self._values(table)
            return [
                f"INSERT INTO {name} ({names}) VALUES {row} ON DUPLICATE KEY UPDATE"
                f" `{column.name}` = {draw.choice(column.literals)}"
            ]
        if way == "update":
            more = draw.sample(plain, min(len(plain), draw.choice((1, 1, 2))))
            sets = ", ".join(f"`{column.name}` = {draw.choice(column.literals)}" for column in more)
            return [f"UPDATE IGNORE {name} SET {sets} WHERE rid = {one}"]
        if way == "all":
            value, most = draw.choice(column.literals), draw.choice((3, 300))
            return [f"UPDATE IGNORE {name} SET `{column.name}` = {value} ORDER BY rid LIMIT {most}"]
        if way == "delete":
            some = sorted({one, *draw.sample(rids, min(len(rids), draw.choice((0, 1, 50))))})
            for rid in some:
                table.rows.pop(rid, None)
            return [f"DELETE FROM {name} WHERE rid IN ({', '.join(map(str, some))})"]
        if way == "swap u":
            first, second = draw.sample(range(1, 9), 2)
            return [
                f"UPDATE {name} SET u = 99 WHERE u = {first}",
                f"UPDATE {name} SET u = {first} WHERE u = {second}",
                f"UPDATE {name} SET u = {second} WHERE u = 99",
            ]
        return self._key_change(table, way, one, other)

    def _key_change(self, table: Table, way: str, one: int, other: int) -> Sequence[str]:
        draw, name = self.draw, f"`{table.name}`"
        drawn = {column.name: draw.choice(column.literals) for column in table.columns if column.name in table.keys}

        def moved(rid: int, key: Mapping[str, str]) -> str:
            table.rows[rid] = dict(key)
            return f"UPDATE {name} SET {', '.join(f'`{column}` = {value}' for column, value in key.items())} WHERE rid = {rid}"

        if way == "key":
            key = table.rows[one] | dict([draw.choice(list(drawn.items()))])
            return [moved(one, key)]
        if way == "again":
            key = table.rows.pop(one)
            names, row = self._values(table, **key)
            return [f"DELETE FROM {name} WHERE rid = {one}", f"INSERT IGNORE INTO {name} ({names}) VALUES {row}"]
        first, second = table.rows[one], table.rows[other]
        return [moved(one, drawn), moved(other, first), moved(one, second)]


def _fits(text: str, charset: str) -> bool:
    try:
        text.encode(_CODECS.get(charset, "utf-8"))
    except UnicodeEncodeError:
        return False
    return (charset != "utf8mb3" or max(text, default="") < "\U00010000") and (charset != "sjis" or "\\" not in text)


def _quoted(text: str) -> str:
    return f"_utf8mb4 X'{text.encode().hex()}'" if text else "''"


# -- values ----------------------------------------------------------------------------------------------------------------


def source_expression(column: Column) -> str:
    """What SELECT gives as a text or number that is exact."""
    name = f"`{column.name}`"
    return {
        "float": f"{name} * 1e0",
        "bit": f"{name} + 0",
        "date": f"CAST({name} AS CHAR)",
        "moment": f"CAST({name} AS CHAR)",
        "time": f"CAST({name} AS CHAR)",
        "text": f"HEX(CONVERT({name} USING utf8mb4))",
        "bytes": f"HEX({name})",
        "label": f"CAST({name} AS CHAR)",
        "json": f"CAST({name} AS CHAR)",
    }.get(column.family, name)


def source_value(column: Column, value: Any) -> Any:
    """The one form of a value of ``source_expression``."""
    if value is None:
        return None
    if column.family == "text":
        return bytes.fromhex(value).decode()
    if column.family == "bytes":
        return bytes.fromhex(value)
    return plain(column, value.decode() if isinstance(value, bytes) else value)


def plain(column: Column, value: Any) -> Any:
    """The one form of a value, whichever a client of a database gives."""
    if value is None:
        return None
    if isinstance(value, memoryview):
        value = bytes(value)
    family = column.family
    if family == "bytes":
        return value if isinstance(value, bytes) else ("not bytes", value)
    if isinstance(value, bytes) and family != "bit":
        value = value.decode()
    if family == "number":
        return Decimal(str(value))
    if family in ("float", "double"):
        return struct.unpack("<f", struct.pack("<f", float(value)))[0] if family == "float" else float(value)
    if family == "bit":
        return int.from_bytes(value, "big") if isinstance(value, bytes) and not value.isdigit() else int(value)
    if family == "json":
        return json.dumps(json.loads(value) if isinstance(value, str) else value, sort_keys=True)
    if family in ("date", "moment", "time"):
        return _time(family, value)
    return value if isinstance(value, str) else str(value) if column.kind in ("uuid", "inet6") else ("no text", value)


def _time(family: str, value: Any) -> Any:
    if family == "time":
        if isinstance(value, timedelta):
            return value // timedelta(microseconds=1)
        if isinstance(value, clock):
            value = value.isoformat()
        if isinstance(value, str):
            found = re.fullmatch(r"(-?)(\d+):(\d+):(\d+)(?:\.(\d+))?", value)
            assert found is not None, value
            micros = (int(found[2]) * 3600 + int(found[3]) * 60 + int(found[4])) * 10**6 + int(
                (found[5] or "").ljust(6, "0") or 0
            )
            return -micros if found[1] else micros
        return value
    if family == "date":
        value = value.date() if isinstance(value, datetime) else value
        return value.isoformat() if isinstance(value, date) else value
    if isinstance(value, datetime):
        value = (value.astimezone(UTC).replace(tzinfo=None) if value.tzinfo is not None else value).isoformat(" ")
    value = re.sub(r"(\+00:00|\+00|Z)$", "", value.replace("T", " "))
    whole, _, fraction = value.partition(".")
    return f"{whole}.{fraction.rstrip('0')}".rstrip(".")
