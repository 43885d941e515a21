"""The labels of ENUM and SET without FULL metadata: those that the server has, whatever became of those in the statements."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pymysql
import pytest

import canal
from canal.rows.charsets import codec_of
from canal.testing.servers import ThrowawayServer
from tests.support.fix_servers import Line
from tests.support.live import Watch, end_of_log, is_since, source

WIDE = ("ucs2", "utf16", "utf16le", "utf32")
#: Charsets in which the labels are made. Each has characters that it lacks, and writes what it has otherwise than the next.
CHARSETS = (
    "latin1",
    "ascii",
    "cp1251",
    "swe7",
    "gbk",
    "big5",
    "sjis",
    "cp932",
    "ujis",
    "eucjpms",
    "euckr",
    "tis620",
    "utf8",
    "utf8mb4",
    "gb18030",
    "binary",
    *WIDE,
)
#: Two characters of NEC's and IBM's, one that has two codes, a backslash that is none, and trailing blanks.
LABELS = "'a','é','日 ','😀','ж','釤','≡','~x\\\\＼','ḿ'"
BYTES = "x'61',0xC3A9,b'1100010',0xE9"


#: Those of which each is converted to each other.
CONVERTED = ("latin1", "cp1251", "swe7", "gbk", "cp932", "utf8", "utf8mb4", "binary", "ucs2", "utf16le")


def made(server: ThrowawayServer) -> Iterator[tuple[str, ...]]:
    """Statements that make a table ``t`` each. Old servers spoil labels that two columns have in common."""
    for charset in CHARSETS:
        yield (f"CREATE TABLE t (e ENUM({LABELS}) CHARACTER SET {charset}, s SET('s'))",)
        yield ("CREATE TABLE t (e ENUM('e'))", f"ALTER TABLE t ADD s SET({LABELS}) CHARACTER SET {charset}")
        yield (f"CREATE TABLE t (e ENUM({BYTES}) CHARACTER SET {charset}, s SET('s'))",)
    for session in ("latin1", "cp932", "binary"):
        for charset in ("latin1", "utf8mb4", "binary"):
            table = f"CREATE TABLE t (e ENUM({LABELS}) CHARACTER SET {charset}, s SET('é'))"
            yield (f"SET character_set_connection = {session}", table)
            if session != "cp932":  # as which the text does not read
                yield (f"SET NAMES {session}", table)


def converted(server: ThrowawayServer) -> Iterator[tuple[str, ...]]:
    spoils = not is_since(server, mysql=(8, 0), mariadb=(10, 3))
    for old in CONVERTED:
        for new in CONVERTED:
            if old != new and not (spoils and {old, new} & {*WIDE}):
                yield (
                    f"CREATE TABLE t (e ENUM('a','é','b日','愠'), s SET('é','x'), v VARCHAR(3)) CHARACTER SET {old}",
                    f"ALTER TABLE t CONVERT TO CHARACTER SET {new}",
                )


def label(text: str, charset: str | None) -> str | bytes:
    """What the hexadecimal text of a label stands for."""
    raw = bytes.fromhex(text)
    try:
        return raw.decode(codec_of(charset) or "utf-8")
    except UnicodeDecodeError:
        return canal.InvalidText(raw, charset or "")


@pytest.mark.every_line
@pytest.mark.parametrize("statements_of", [made, converted])
def test_labels_are_what_became_of_them_on_the_server(
    own_server: ThrowawayServer, line: Line, statements_of: Callable[[ThrowawayServer], Iterator[tuple[str, ...]]]
) -> None:
    """A character that a charset lacks is "?" from the beginning, and CONVERT TO keeps the bytes, whatever they mean then."""
    if line.can("full_metadata"):
        own_server.query("SET GLOBAL binlog_row_metadata = MINIMAL")
    own_server.query("CREATE DATABASE d CHARACTER SET utf8mb4")
    expected: dict[str, list[tuple[str | bytes, ...]]] = {}
    texts = {}
    with (
        Watch(own_server, "d\\..*") as watch,
        own_server.connect(charset="utf8mb4", autocommit=True, database="d") as connection,
        connection.cursor() as cursor,
    ):
        cursor.execute("SET sql_mode = ''")
        for number, statements in enumerate(statements_of(own_server)):
            table = f"t{number}"
            try:
                for sql in statements:
                    cursor.execute(sql.replace("TABLE t ", f"TABLE {table} ").encode())
            except pymysql.MySQLError:  # it lacks the charset, or has two labels that are the same now
                continue
            finally:
                cursor.execute("SET NAMES utf8mb4")
            members = 1 + sum(sql.count(",") for sql in statements) // 2
            cursor.execute(f"INSERT INTO {table} (e, s) VALUES " + ",".join(f"({n + 1}, {1 << n})" for n in range(members)))
            cursor.execute(
                "SELECT character_set_name FROM information_schema.columns WHERE table_schema = 'd' AND table_name = %s"
                " AND column_name IN ('e', 's') ORDER BY column_name",
                (table,),
            )
            charsets = [charset for (charset,) in cursor.fetchall()]
            cursor.execute(f"SELECT HEX(e), HEX(s) FROM {table}")
            expected[table] = [tuple(map(label, row, charsets)) for row in cursor.fetchall()]
            texts[table] = statements
        found: dict[str, list[tuple[str | bytes, ...]]] = {name: [] for name in expected}
        for entry in watch.read():
            if entry.table is not None:
                at = [[column.name for column in entry.table.columns].index(name) for name in ("e", "s")]
                found[entry.table.schema.table] += [(row[at[0]], row[at[1]]) for _, row in entry.rows]

    wrong = [(texts[name], found[name], expected[name]) for name in expected if found[name] != expected[name]]
    assert not wrong, wrong[:3]
    assert len(expected) > 30


@pytest.mark.every_line
def test_empty_and_repeated_members_have_the_text_and_number_that_select_gives(server: ThrowawayServer, database: str) -> None:
    lists = [("", "a", "b"), ("a", "", "b"), ("", "", "a"), ("a", "b", "a"), ("a", "b", ""), ("", "a", "", "a")]
    expected = []
    start = end_of_log(server)
    with server.connect(charset="utf8mb4", autocommit=True, database=database) as connection, connection.cursor() as cursor:
        cursor.execute("SET sql_mode = ''")
        for number, members in enumerate(lists):
            labels = ",".join(f"'{member}'" for member in members)
            charset = ("utf8mb4", "latin1")[number % 2]
            cursor.execute(f"CREATE TABLE t{number} (e ENUM({labels}), s SET({labels})) CHARACTER SET {charset}")
            for bits in range(1 << len(members)):
                cursor.execute(f"INSERT INTO t{number} VALUES ({bits % (len(members) + 1)}, {bits})")
            cursor.execute(f"SELECT e, s, e + 0, s + 0 FROM t{number}")
            expected += [(e, s, str(int(n)), str(int(bits))) for e, s, n, bits in cursor.fetchall()]

    found: list[tuple[str | None, ...]] = []
    config = canal.InstanceConfig(destination="d", source=source(server), filter=rf"{database}\..*", start=start)
    with canal.Instance(config) as instance:
        instance.subscribe()
        while len(found) < len(expected):
            for entry in instance.get(timeout=60).entries:
                for row, texts in zip(entry.rows, entry.row_change.row_datas):
                    found.append((*row.after, *(column.value for column in texts.after_columns)))
    assert found == expected
