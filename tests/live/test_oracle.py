"""The server is the oracle: what is stored by SQL is decoded, and compared with what SELECT says of it.

Never knows a value itself: ``oracle_cases`` has literals, the server says what they are. Covers T50 to T69, T71 to T74, T86.
"""

from __future__ import annotations

import itertools
import json
import os
import re
from collections import defaultdict
from collections.abc import Sequence
from datetime import UTC, tzinfo
from decimal import Decimal
from typing import Any, Final
from zoneinfo import ZoneInfo

import attrs
import pytest

import canal
from canal.rows.charsets import charset_of
from canal.testing.servers import ThrowawayServer
from tests.support.fix_servers import Line
from tests.support.live import end_of_log, is_since, logs_generated, source
from tests.support.oracle_cases import CASES, CHARSETS, EVERY, FRACTIONS, TABLES, Case
from tests.support.oracle_tables import FAMILIES, Table, available, single, tables_of

pytestmark = pytest.mark.every_line

FULL_SIZE: Final = os.environ.get("CANAL_SOAK") == "full"
THOROUGH: Final = FULL_SIZE or os.environ.get("CANAL_TESTS") == "all" or "CANAL_TEST_LINES" in os.environ
#: Row image, checksum, compression, metadata: all pairs of two settings; every combination in the soak test.
SETTINGS: Final = [
    ("FULL", "CRC32", "ON", "FULL"),
    ("FULL", "NONE", "OFF", "MINIMAL"),
    ("MINIMAL", "CRC32", "OFF", "MINIMAL"),
    ("MINIMAL", "NONE", "ON", "FULL"),
    ("NOBLOB", "CRC32", "OFF", "FULL"),
    ("NOBLOB", "NONE", "ON", "MINIMAL"),
]
if FULL_SIZE:
    SETTINGS = list(itertools.product(("FULL", "MINIMAL", "NOBLOB"), ("CRC32", "NONE"), ("ON", "OFF"), ("FULL", "MINIMAL")))
#: The ability that a server must have for each, and its variable.
VARIABLES: Final = [
    ("row_image", "SESSION binlog_row_image"),
    ("checksum", "GLOBAL binlog_checksum"),
    ("compression", {"mariadb": "GLOBAL log_bin_compress", "mysql": "SESSION binlog_transaction_compression"}),
    ("full_metadata", "GLOBAL binlog_row_metadata"),
]

# -- the forms in which the server's value and ours are compared -------------------------------------------------------


#: JDBC codes as canal gives them; of an unsigned number the one that holds all of them (our departure: it does not change).
CODES: Final = {
    "tinyint": -6,
    "smallint": 5,
    "mediumint": 4,
    "int": 4,
    "bigint": -5,
    "decimal": 3,
    "float": 7,
    "double": 8,
    "bit": -7,
    "year": 12,
    "date": 91,
    "time": 92,
    "datetime": 93,
    "timestamp": 93,
    "char": 1,
    "varchar": 12,
    "tinytext": 2005,
    "text": 2005,
    "mediumtext": 2005,
    "longtext": 2005,
    "binary": 2004,
    "varbinary": 2004,
    "tinyblob": 2004,
    "blob": 2004,
    "mediumblob": 2004,
    "longblob": 2004,
    "enum": 4,
    "set": -7,
    "json": 12,
}
WIDER: Final = {"tinyint": 5, "smallint": 4, "mediumint": 4, "int": -5, "bigint": 3}


def code_of(case: Case, kind: str) -> int:
    if case.family == "bytes" and "CHARACTER SET binary" in case.type:
        return 2004
    if case.family == "geometry" or case.family == "bytes" and case.type.startswith("VECTOR"):
        return 2004
    if case.family == "address":
        return 1
    base = re.split(r"[ (]", case.type.lower())[0]
    if base == "json" and kind == "mariadb":
        return CODES["longtext"]
    if base in WIDER and ("UNSIGNED" in case.type or "ZEROFILL" in case.type):
        return WIDER[base]
    return CODES[base]


def without_zeros(text: str) -> str:
    """A ZEROFILL's number, as the log has it."""
    return format(Decimal(text), "f")


def is_java(text: str, value: float, narrow: bool) -> bool:
    """Whether a text is laid out as Java does it, and reads as the number."""
    read = single(float(text)) if narrow else float(text)
    small = value == 0 or 1e-3 <= abs(value) < 1e7
    return bool(re.fullmatch(r"-?\d+\.\d+" if small else r"-?\d\.\d+E-?\d+", text)) and repr(read) == repr(value)


def same_document(ours: str, old: str) -> bool:
    """Whether two texts are one document, where a number may lack its .0 and text may hold line breaks."""
    return bool(json.loads(ours) == json.loads(old, strict=False))


# -- writing -----------------------------------------------------------------------------------------------------------


def digits_of(case: Case) -> int:
    found = re.match(r"(?:TIME|DATETIME|TIMESTAMP)\((\d)\)", case.type)
    return int(found[1]) if found else 0


Snapshot = dict[int, tuple[Any, ...]]


class Writer:
    """Fills, changes and empties a table, and keeps what the server holds in between."""

    def __init__(self, server: ThrowawayServer, database: str, line: Line) -> None:
        self.kind, self.line = server.kind, line
        self.connection = server.connect(database=database)
        self.cursor = self.connection.cursor()
        self.run("SET sql_mode='ALLOW_INVALID_DATES', time_zone='+00:00', innodb_strict_mode=OFF")

    def run(self, sql: str) -> None:
        if not self.line.can("prefixed_geometry"):
            sql = sql.replace("ST_GeomFromText", "GeomFromText")
        self.cursor.execute(sql)

    def settings(self, setting: Sequence[str]) -> None:
        for value, (ability, variable) in zip(setting, VARIABLES):
            if self.line.can(ability):
                self.run(f"SET {variable if isinstance(variable, str) else variable[self.kind]}={value}")

    def select(self, table: Table) -> Snapshot:
        self.run(f"SELECT id, {table.selects()} FROM {table.name}")
        return {row[0]: row[1:] for row in self.cursor.fetchall()}

    def write(self, table: Table) -> tuple[Snapshot, Snapshot]:
        columns = range(len(table.cases))
        types = ", ".join(f"c{number} {case.type}" for number, case in enumerate(table.cases))
        self.run(f"CREATE TABLE {table.name} (id INT PRIMARY KEY, {types}) CHARACTER SET utf8mb4")
        rows = (f"({row}, {', '.join(table.literal(i, row) for i in columns)})" for row in range(table.row_count))
        self.run(f"INSERT INTO {table.name} VALUES {', '.join(rows)}")
        inserted = self.select(table)
        for row in range(table.row_count):
            changes = ", ".join(f"c{i} = {table.literal(i, row + 1)}" for i in columns)
            self.run(f"UPDATE {table.name} SET {changes} WHERE id = {row}")
        updated = self.select(table)
        self.run(f"DELETE FROM {table.name}")
        return inserted, updated


# -- reading -----------------------------------------------------------------------------------------------------------


@attrs.frozen
class Change:
    """A row change in all our forms."""

    type: str
    before: Any
    after: Any
    columns: Any


def read_changes(
    server: ThrowawayServer, database: str, start: canal.Position, time_zone: tzinfo = UTC
) -> dict[str, list[Change]]:
    """All row changes from ``start`` on, by table, up to one of a table that is made for it."""
    with server.connect(database=database) as connection, connection.cursor() as cursor:
        cursor.execute("CREATE TABLE the_end (id INT PRIMARY KEY)")
        cursor.execute("INSERT INTO the_end VALUES (1)")
    config = canal.InstanceConfig(
        destination="oracle", source=source(server), start=start, filter=rf"{database}\..*", time_zone=time_zone
    )
    found: dict[str, list[Change]] = defaultdict(list)
    with canal.Instance(config) as instance:
        instance.subscribe()
        for message in instance.stream():
            check_arrow(message)
            for entry in message.entries:
                name = entry.header.table
                for row, data in zip(entry.rows, entry.row_change.row_datas if entry.rows else ()):
                    found[name].append(Change(entry.event_type.name, row.before, row.after, data))
            if "the_end" in found:
                return found
    raise AssertionError("the stream ended")


def check_arrow(message: canal.Message) -> None:
    """Arrow holds each value as we have it, or says beside its columns why not."""
    images: dict[str, list[Any]] = defaultdict(list)
    for entry in message.entries:
        images[entry.header.table] += [image for row in entry.rows for image in (row.before, row.after) if image is not None]
    for batch in message.to_arrow():
        held = images[batch.schema.metadata[b"canal.table"].decode()]
        rows, held[: len(batch)] = held[: len(batch)], []
        absent, exact = (
            [dict(one or ()) if name == "_exact" else one or () for one in batch.column(name).to_pylist()]
            for name in ("_absent", "_exact")
        )
        for name in rows[0].as_dict():
            values = batch.column(name).to_pylist()
            for number, (value, row) in enumerate(zip(values, rows, strict=True)):
                good = is_in_arrow(row[name], value, name in absent[number], exact[number].get(name))
                assert good, (name, row[name], value, absent[number], exact[number])
    assert not any(images.values())


def is_in_arrow(ours: Any, value: Any, absent: bool, exact: str | None) -> bool:
    if ours is canal.ABSENT or isinstance(ours, canal.ZeroDate | canal.InvalidText):
        text = None if ours is canal.ABSENT else ours.hex() if isinstance(ours, bytes) else str(ours)
        return value is None and absent == (ours is canal.ABSENT) and exact == text
    if isinstance(ours, float) and value != ours:
        value, ours = single(value), single(ours)
    return bool(value == ours) and not absent and exact is None


class Judge:
    """Compares images with snapshots, and keeps what differs."""

    def __init__(self, table: Table, server: ThrowawayServer, setting: tuple[str, ...]) -> None:
        self.table = table
        self.kind = server.kind
        #: MySQL 5.7 prints 1 for the double 1.0, and up to 8.0.12 line breaks in base64 stay as they are: ours is the later text.
        self.old_json = server.kind == "mysql" and not is_since(server, mysql=(8, 0, 13))
        self.setting = setting
        self.values = 0
        self.wrong: list[str] = []

    def changes(self, changes: Sequence[Change], inserted: Snapshot, updated: Snapshot) -> None:
        expected = [kind for kind in ("INSERT", "UPDATE", "DELETE") for _ in range(len(inserted))]
        assert [change.type for change in changes] == expected, (self.table.name, self.setting)
        for change in changes:
            before = updated if change.type == "DELETE" else inserted
            id = (change.before if change.before is not None else change.after)["id"]
            if change.before is not None:
                self.image(change.before, change.columns.before_columns, before[id])
            if change.after is not None:
                self.image(change.after, change.columns.after_columns, (inserted if change.type == "INSERT" else updated)[id])
                self.absent(change, inserted[id], updated[id])

    def absent(self, change: Change, before: Sequence[Any], after: Sequence[Any]) -> None:
        """T72: what is left out was not changed."""
        for number in range(len(self.table.cases)):
            if change.after[f"c{number}"] is canal.ABSENT and before[2 * number] != after[2 * number]:
                self.wrong.append(f"{self.table.cases[number].type} is absent, but was changed")

    def image(self, row: Any, columns: Any, held: Sequence[Any]) -> None:
        by_name = {column.name: column for column in columns}
        for number, case in enumerate(self.table.cases):
            value = row[f"c{number}"]
            typed, text = held[2 * number], held[2 * number + 1]
            if value is canal.ABSENT:
                assert self.setting[0] != "FULL"
                assert f"c{number}" not in by_name
                continue
            self.values += 1
            if not self.is_typed(case, value, typed):
                self.wrong.append(f"{case.type}: {value!r}, the server has {typed!r} ({self.setting})")
            problem = self.canal_problem(case, by_name[f"c{number}"], value, text)
            if problem:
                self.wrong.append(f"{case.type}: {problem} ({self.setting})")

    def is_typed(self, case: Case, value: Any, typed: Any) -> bool:
        if value is None or typed is None:
            return value is None and typed is None
        if "ZEROFILL" in case.type:
            typed = without_zeros(typed)
        if case.family in ("float", "double"):
            typed = repr(single(typed) if case.family == "float" else typed)
        if case.family == "timestamp" and not isinstance(value, str):
            assert value.tzinfo is not None
        if case.family == "json" and self.old_json:
            return same_document(value, typed)
        return bool(FAMILIES[case.family].show(value, digits_of(case)) == typed)

    def canal_problem(self, case: Case, column: Any, value: Any, text: Any) -> str:
        if column.sql_type != code_of(case, self.kind):
            return f"JDBC code {column.sql_type}, not {code_of(case, self.kind)}"
        if column.is_null != (text is None):
            return "is_null is wrong"
        if text is None:
            return "" if column.value is None else "a NULL has a value"
        if case.family in ("bytes", "geometry"):
            text = bytes.fromhex(text).decode("latin-1")
        if "ZEROFILL" in case.type:
            text = without_zeros(text)
        if case.family in ("float", "double"):
            narrow = case.family == "float"
            good = is_java(column.value, single(text) if narrow else text, narrow)
        elif case.family == "json" and self.old_json:
            good = same_document(column.value, text)
        else:
            good = column.value == text
        return "" if good else f"canal's text is {column.value!r:.200}, should be {text!r:.200}"


def settings_of(line: Line) -> dict[tuple[str, ...], tuple[str, ...]]:
    """Those settings of which the line has something that no other one has; of an older line one in `make test`."""
    chosen = SETTINGS if line.is_main or THOROUGH else SETTINGS[:1]
    return {tuple(value for value, (ability, _) in zip(one, VARIABLES) if line.can(ability)): one for one in chosen}


def check_all(server: ThrowawayServer, database: str, line: Line, cases: Sequence[Case]) -> int:
    start = end_of_log(server)
    writer = Writer(server, database, line)
    written = []
    with writer.connection:
        if server.kind == "mariadb" and line.can("compression"):
            writer.run("SET GLOBAL log_bin_compress_min_len=10")
        for number, setting in enumerate(settings_of(line).values()):
            writer.settings(setting)
            for table in tables_of(cases, f"s{number}"):
                written.append((table, setting, writer.write(table)))
        writer.settings(("FULL", "CRC32", "OFF", "FULL"))
    found = read_changes(server, database, start)
    wrong: list[str] = []
    values = 0
    for table, setting, (inserted, updated) in written:
        judge = Judge(table, server, setting)
        judge.changes(found[table.name], inserted, updated)
        wrong += judge.wrong
        values += judge.values
    assert wrong == [], "\n".join(sorted(set(wrong)))
    return values


@pytest.fixture
def module_database(module_server: ThrowawayServer, request: pytest.FixtureRequest) -> str:
    name = re.sub(r"\W", "_", request.node.originalname)
    module_server.query(f"CREATE DATABASE {name} CHARACTER SET utf8mb4")
    return name


@pytest.mark.every_line(always=True)
@pytest.mark.slow  # make soak: every combination of settings
@pytest.mark.any_setup
def test_every_type_at_its_limits(module_line: Line, module_server: ThrowawayServer, module_database: str) -> None:
    cases = [case for case in CASES if available(case.since, module_server)]

    values = check_all(module_server, module_database, module_line, cases)

    assert values > 4 * len(settings_of(module_line)) * len(cases)


# -- character sets ----------------------------------------------------------------------------------------------------

#: Charsets of two bytes and more, and what their characters begin with.
LEADS: Final = {
    "big5": (0xA1, 0xFA),
    "cp932": (0x81, 0xFD),
    "euckr": (0x81, 0xFF),
    "gb2312": (0xA1, 0xF8),
    "gbk": (0x81, 0xFF),
    "gb18030": (0x81, 0xFF),
    "sjis": (0x81, 0xFD),
    "ujis": (0x8E, 0xFF),
    "eucjpms": (0x8E, 0xFF),
}
WIDE: Final = {
    "utf8mb4": "utf-8",
    "utf8mb3": "utf-8",
    "utf16": "utf-16-be",
    "utf16le": "utf-16-le",
    "utf32": "utf-32-be",
    "ucs2": "utf-16-be",
}


def sequences(charset: str) -> list[bytes]:
    """Codes of a charset: all of a small one, else a sample that meets each first and each last byte."""
    if charset in WIDE:
        last = 0x10000 if charset in ("ucs2", "utf8mb3") else 0x110000
        codes = [*range(1, 0x250), *range(0x250, last, 7 if FULL_SIZE else 997), 0xD7FF, 0xE000, 0xFFFD, 0xFFFF, last - 1]
        return [chr(code).encode(WIDE[charset]) for code in codes if not 0xD800 <= code < 0xE000]
    found = [bytes([code]) for code in range(256)]
    if charset in LEADS:
        step = 1 if FULL_SIZE else 13
        pairs = [bytes((a, b)) for a in range(*LEADS[charset]) for b in range(0x30 + (0 if FULL_SIZE else a % step), 0xFF, step)]
        odd = [b"\xf9\xd6", b"\xf9\xfe", b"\xa1\x5a", b"\xa1\xc3", b"\xa1\xc5", b"\xa1\xfe", b"\xa2\x40", b"\xa2\xcc"]
        odd.append(b"\xa2\xce")
        found += [*pairs, *odd]
        if charset in ("ujis", "eucjpms"):
            found += [b"\x8f" + pair for pair in pairs if min(pair) > 0xA0]
        if charset == "gb18030":
            quads = itertools.product((0x81, 0x82, 0x84, 0x90, 0xE3), range(0x30, 0x3A), range(0x81, 0xFF, 9))
            found += [bytes((a, b, c, b)) for a, b, c in quads]
    return found


@pytest.mark.slow  # make soak: every code
def test_every_character_set(module_server: ThrowawayServer, module_database: str) -> None:
    """T65, T66: a code that is a character reads as the server converts it; of one that is none the bytes are kept."""
    start = end_of_log(module_server)
    held = {}
    with module_server.connect(database=module_database) as connection, connection.cursor() as cursor:
        cursor.execute("SET sql_mode=''")
        cursor.execute("SELECT CHARACTER_SET_NAME FROM information_schema.CHARACTER_SETS")
        known = {row[0].replace("utf8mb3", "utf8") for row in cursor.fetchall()}
        assert known - {"binary"} <= {charset.replace("utf8mb3", "utf8") for charset in CHARSETS}
        for charset in CHARSETS:
            if charset.replace("utf8mb3", "utf8") not in known:
                continue
            cursor.execute(f"CREATE TABLE {charset} (id INT PRIMARY KEY, c VARCHAR(8) CHARACTER SET {charset})")
            codes = sequences(charset)
            for at in range(0, len(codes), 5000):
                rows = (f"({at + n},X'{code.hex()}')" for n, code in enumerate(codes[at : at + 5000]))
                cursor.execute(f"INSERT IGNORE INTO {charset} VALUES {','.join(rows)}")
            cursor.execute(f"SELECT id, HEX(c), HEX(CONVERT(c USING utf8mb4)) FROM {charset}")
            held[charset] = {id: (raw, text) for id, raw, text in cursor.fetchall()}
    found = read_changes(module_server, module_database, start)

    wrong = []
    invalid = 0
    for charset, rows in held.items():
        assert len(found[charset]) == len(rows)
        for change in found[charset]:
            id, value = change.after
            raw, text = rows[id]
            # A code without a character is converted to a question mark, or to the replacement character.
            none = "?" in bytes.fromhex(text).decode() and b"?" not in bytes.fromhex(raw) or "EFBFBD" in text
            invalid += isinstance(value, canal.InvalidText)
            ours = f"invalid {value.hex().upper()}" if isinstance(value, bytes) else value.encode().hex().upper()
            if ours != (f"invalid {raw}" if none and charset not in WIDE else text):
                wrong.append(f"{charset} {raw}: {text}, we have {ours}")
    assert wrong == [], "\n".join(wrong)
    assert len(held) == len(known - {"binary"})
    assert invalid > 100


def test_every_collation_is_known(module_server: ThrowawayServer) -> None:
    """T65: a table map names charsets by the numbers of collations."""
    # From MariaDB 10.10 on a collation has a number with each charset that it goes with.
    source = "COLLATION_CHARACTER_SET_APPLICABILITY" if is_since(module_server, mariadb=(10, 10)) else "COLLATIONS"
    rows = module_server.query(f"SELECT ID, CHARACTER_SET_NAME FROM information_schema.{source} WHERE ID IS NOT NULL")

    assert len(rows) > 190
    assert {int(id): charset_of(int(id)) for id, _ in rows} == {int(id): re.sub("^utf8$", "utf8mb3", name) for id, name in rows}


@pytest.mark.needs("inet6")
def test_addresses_are_what_they_were_at_their_place(module_server: ThrowawayServer, module_database: str) -> None:
    """T71: an INET6 that is BINARY later in the log is bytes for who comes too late to know, and text for who follows."""
    module_server.query("SET GLOBAL binlog_row_metadata=FULL")
    start = end_of_log(module_server)

    def run(table: str, *statements: str) -> None:
        for statement in statements:
            module_server.query(statement.format(f"{module_database}.{table}"))

    create = "CREATE TABLE {} (id INT PRIMARY KEY, a INET6)"
    insert = "INSERT INTO {} VALUES (1, '::1')"
    change = ("ALTER TABLE {} MODIFY a BINARY(16)", "INSERT INTO {} VALUES (2, '::2')")
    run("late", create, insert, *change)
    found = read_changes(module_server, module_database, start)["late"]
    assert [(row.after["a"], row.columns.after_columns[1].sql_type) for row in found] == [
        (bytes(15) + b"\1", 2004),
        (b"::2".ljust(16, b"\0"), 2004),
    ]

    config = canal.InstanceConfig(destination="positions", source=source(module_server), start="latest", filter=r".*\.follows")
    values = []
    with canal.Instance(config) as instance:
        instance.subscribe()
        run("follows", create, insert)
        for message in instance.stream():
            new = [
                (row.after["a"], entry.row_change.row_datas[0].after_columns[1].sql_type)
                for entry in message.entries
                for row in entry.rows
                if row.after is not None
            ]
            values += new
            if new and len(values) == 1:
                run("follows", *change)
            if len(values) == 2:
                break
    assert values == [("::1", 1), (b"::2".ljust(16, b"\0"), 2004)]


# -- tables ------------------------------------------------------------------------------------------------------------


def plain(value: Any) -> Any:
    """As PyMySQL gives it."""
    return value.replace(tzinfo=None) if getattr(value, "tzinfo", None) else value


@pytest.mark.parametrize("metadata", ["FULL", "MINIMAL"])
def test_columns_that_the_server_fills(module_line: Line, module_server: ThrowawayServer, metadata: str) -> None:
    """T74: generated, invisible, hidden and versioning columns; every one that can be selected is as SELECT gives it."""
    database = f"filled_{metadata}".lower()
    module_server.query(f"CREATE DATABASE {database}")
    set_metadata(module_line, module_server, metadata)
    start = end_of_log(module_server)
    held = {}
    with module_server.connect(database=database, autocommit=True) as connection, connection.cursor() as cursor:
        cursor.execute("SET time_zone='+00:00'")
        for (name, columns, into, values, names, since), image in itertools.product(TABLES, ("FULL", "MINIMAL", "NOBLOB")):
            if not available(since, module_server) or not (module_line.can("row_image") or image == "FULL"):
                continue
            table = f"{name}_{image}".lower()
            if module_line.can("row_image"):
                cursor.execute(f"SET SESSION binlog_row_image={image}")
            if module_line.can("gipk"):
                cursor.execute(f"SET sql_generate_invisible_primary_key={'OFF' if 'KEY' in columns else 'ON'}")
            cursor.execute(f"CREATE TABLE {table} ({columns})")
            select = f"SELECT {names} FROM {table}" + " FOR SYSTEM_TIME ALL" * ("VERSIONING" in columns)
            for statement in (f"INSERT INTO {table} ({into}) VALUES ({values})", f"UPDATE {table} SET a = a + 10"):
                cursor.execute(statement)
                cursor.execute(select)
                held.setdefault(table, set()).update(cursor.fetchall())
            cursor.execute(f"DELETE FROM {table}")
            cursor.execute(select)
            held[table].update(cursor.fetchall())
    found = read_changes(module_server, database, start)

    for table, rows in held.items():
        names = next(one[4] for one in TABLES if one[0] == table.rpartition("_")[0]).split(", ")
        images = [row for change in found[table] for row in (change.before, change.after) if row is not None]
        assert {change.type for change in found[table]} >= {"INSERT", "UPDATE"}
        for row in images:
            ours = [plain(row[name]) for name in names]
            fits = any(all(one in (canal.ABSENT, other) for one, other in zip(ours, held_row)) for held_row in rows)
            assert fits, (table, ours, rows)
        is_logged = is_since(module_server, mysql=(5, 7), mariadb=(10, 5)) and logs_generated(module_server)
        if table.endswith("_full") and (table != "computed_full" or is_logged):
            assert {tuple(plain(row[name]) for name in names) for row in images} >= rows, table


def set_metadata(line: Line, server: ThrowawayServer, metadata: str) -> None:
    if line.can("full_metadata"):
        server.query(f"SET GLOBAL binlog_row_metadata={metadata}")
    elif metadata == "FULL":
        pytest.skip("it writes no column names")


@pytest.mark.parametrize("metadata", ["FULL", "MINIMAL"])
def test_tables_of_many_columns(module_line: Line, module_server: ThrowawayServer, metadata: str) -> None:
    """T73: where the count, the bitmaps and the NULL bits take another byte; the last is the most that the server allows."""
    database = f"wide_{metadata}"
    module_server.query(f"CREATE DATABASE {database}")
    set_metadata(module_line, module_server, metadata)
    most = 4096 if is_since(module_server, mysql=(8, 0)) else 2599
    innodb = 1017 if is_since(module_server, mysql=(5, 6, 9), mariadb=(10, 1)) else 1000
    counts = (1, 7, 8, 9, 63, 64, 65, 250, 251, 252, innodb, most)
    start = end_of_log(module_server)
    held = {}
    with module_server.connect(database=database) as connection, connection.cursor() as cursor:
        for count in counts:
            columns = ", ".join(f"c{n} {'TINYINT' if n % 3 else 'CHAR(1)'}" for n in range(count))
            engine = "MyISAM" if count > innodb else "InnoDB"
            cursor.execute(f"CREATE TABLE t{count} ({columns}) ENGINE={engine} CHARACTER SET latin1")
            for start_at in (0, 1, 2):
                values = ("NULL" if (n + start_at) % 5 == 0 else str((n + start_at) % 10) for n in range(count))
                cursor.execute(f"INSERT INTO t{count} VALUES ({', '.join(values)})")
            cursor.execute(f"SELECT * FROM t{count}")
            held[count] = cursor.fetchall()
    found = read_changes(module_server, database, start)

    for count in counts:
        assert [tuple(change.after) for change in found[f"t{count}"]] == list(held[count]), count


@pytest.mark.needs("fractional")
@pytest.mark.parametrize("zone", ["Europe/Berlin", "America/St_Johns", "Asia/Kathmandu"])
def test_timestamps_in_a_zone(module_server: ThrowawayServer, zone: str) -> None:
    """T62: the same instant in each zone, also in the hour that comes twice; 0 is no instant (T58)."""
    name = f"zone_{zone.partition('/')[2]}"
    module_server.query(f"CREATE DATABASE {name}")
    last = 2**32 - 1 if is_since(module_server, mariadb=(11, 5)) else 2**31 - 1
    seconds = [1, 86400, 1774746000, 1774746000 - 1, 1792890000, 1792893600, last]
    start = end_of_log(module_server)
    with module_server.connect(database=name) as connection, connection.cursor() as cursor:
        cursor.execute("SET sql_mode='', time_zone='-03:30'")
        cursor.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, t TIMESTAMP(3) NULL)")
        cursor.execute("INSERT INTO t VALUES (0, 0)")
        for second in seconds:
            cursor.execute(f"INSERT INTO t VALUES ({second}, FROM_UNIXTIME({second}.25))")
        cursor.execute("SELECT id, UNIX_TIMESTAMP(t) FROM t WHERE id > 0 ORDER BY id")
        held = cursor.fetchall()
    found = read_changes(module_server, name, start, ZoneInfo(zone))["t"]

    assert found[0].after["t"] == "0000-00-00 00:00:00.000"
    assert isinstance(found[0].after["t"], canal.ZeroDate)
    ours = sorted((change.after["id"], change.after["t"]) for change in found[1:])
    assert [(id, Decimal(str(moment.timestamp()))) for id, moment in ours] == [(id, moment.normalize()) for id, moment in held]
    assert all(moment.tzinfo == ZoneInfo(zone) for _, moment in ours)


OLD: Final = [case for case in CASES if case.family in ("time", "datetime", "timestamp") and case.since in (EVERY, FRACTIONS)]


@pytest.mark.lines("mariadb")  # MySQL makes no such columns since 5.6; those of 5.5 are in the first test
def test_old_temporal_formats(module_line: Line, module_server: ThrowawayServer, module_database: str) -> None:
    """T60: MariaDB's formats before mysql56_temporal_format, with fractions, beside a table of new ones."""
    set_metadata(module_line, module_server, "MINIMAL")
    start = end_of_log(module_server)
    writer = Writer(module_server, module_database, module_line)
    held = []
    with writer.connection:
        for format in ("OFF", "ON"):
            writer.run(f"SET GLOBAL mysql56_temporal_format={format}")
            table = Table(f"t_{format}".lower(), OLD)
            held.append((table, writer.write(table)))
    found = read_changes(module_server, module_database, start)

    for table, (inserted, updated) in held:
        judge = Judge(table, module_server, ("FULL",))
        judge.changes(found[table.name], inserted, updated)
        assert judge.wrong == [], "\n".join(sorted(set(judge.wrong)))
