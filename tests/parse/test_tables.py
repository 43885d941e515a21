"""Table maps and schemas: full metadata, look-ups that must agree with the map, positional columns."""

from __future__ import annotations

import pickle
import re
from datetime import UTC
from typing import Any

import attrs
import pytest

import canal
from canal.binlog.server_facts import Release
from canal.filter import FieldFilter, TableFilter
from canal.parse.schema import sequences, table_map
from canal.parse.schema.misfit import misfit
from canal.parse.schema.raw_map import NEWEST, RawTableMap, parse_table_map
from canal.parse.schema.table_map import TableResolver
from canal.parse.schema.texts import tables_from_mapping
from canal.testing.fake import FakeBinlog
from tests.support.instances import instance_of

MARIADB = Release("mariadb", (10, 11, 4))
COLUMNS = (
    "id INT UNSIGNED PRIMARY KEY, price DECIMAL(10,2), note VARCHAR(20) CHARACTER SET latin1, body TEXT, raw BINARY(4), "
    "status ENUM('new','paid'), flags SET('a','b','c'), at DATETIME(3)"
)


def map_body(**options: Any) -> bytes:
    fake = FakeBinlog(**options)
    fake.table("shop", "orders", COLUMNS).insert({"id": 1})
    (event,) = [event for event in fake.events() if event[4] == 19]
    return event[25:-4]


def resolver(known: canal.TableSchema | None = None, **options: Any) -> tuple[TableResolver, list[str]]:
    asked: list[str] = []

    def find(raw: RawTableMap) -> canal.TableSchema | None:
        asked.append(raw.table)
        return known

    return TableResolver(find, TableFilter(), FieldFilter(), UTC, **options), asked


def schema(columns: str = COLUMNS) -> canal.TableSchema:
    (found,) = tables_from_mapping({"shop.orders": columns}).values()
    return found.schema


def test_full_metadata_needs_no_look_up() -> None:
    """T75: names are those of the position in the log."""
    resolve, asked = resolver()
    columns = resolve.resolve(map_body()).columns

    assert asked == []
    assert [c.name for c in columns] == ["id", "price", "note", "body", "raw", "status", "flags", "at"]
    assert [c.column_type for c in columns] == [
        "int unsigned",
        "decimal(10,2)",
        "varchar(20)",
        "text",
        "binary(4)",
        "enum('new','paid')",
        "set('a','b','c')",
        "datetime(3)",
    ]
    assert (columns[0].key, columns[2].charset, columns[4].charset) == (True, "latin1", "binary")
    assert columns[5].labels == ("new", "paid")


@pytest.mark.parametrize("options", [{"metadata": "MINIMAL"}, {"flavor": "mariadb", "metadata": "NO_LOG"}])
def test_a_looked_up_schema_that_agrees_gives_names_and_types(options: dict[str, Any]) -> None:
    resolve, asked = resolver(schema())
    columns = resolve.resolve(map_body(**options)).columns

    assert asked == ["orders"]
    assert (columns[0].name, columns[0].unsigned, columns[5].labels) == ("id", True, ("new", "paid"))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (", at DATETIME(3)", ""),
        ("price DECIMAL(10,2)", "price DECIMAL(12,2)"),
        ("price DECIMAL(10,2)", "price VARCHAR(10)"),
        ("VARCHAR(20)", "VARCHAR(30)"),
        ("body TEXT", "body MEDIUMTEXT"),
        ("price DECIMAL(10,2)", "price DECIMAL(10,2) NOT NULL"),
        ("SET('a','b','c')", "SET('a','b','c','d','e','f','g','h','i')"),
    ],
    ids=lambda text: text[-20:],
)
def test_a_schema_that_disagrees_is_told(old: str, new: str) -> None:
    """T75"""
    raw = parse_table_map(map_body(metadata="MINIMAL"))

    assert misfit(raw, schema()) == ""
    assert re.search("the log.* known", misfit(raw, schema(COLUMNS.replace(old, new))))


def test_a_sign_that_disagrees_is_told_where_the_map_has_it() -> None:
    """T53"""
    raw = parse_table_map(map_body(metadata="MINIMAL"))

    assert "unsigned" in misfit(raw, schema(COLUMNS.replace("INT UNSIGNED", "INT")))


def test_without_any_schema_columns_are_positional_and_text_of_unknown_charset_is_bytes() -> None:
    resolve, _ = resolver()
    columns = resolve.resolve(map_body(flavor="mariadb", metadata="NO_LOG")).columns

    assert [c.name for c in columns][:3] == ["@1", "@2", "@3"]
    assert columns[2].charset is None


def test_whole_types_come_from_the_schema_where_the_map_does_not_tell_them(caplog: pytest.LogCaptureFixture) -> None:
    fake = FakeBinlog(metadata="FULL")
    fake.table("shop", "orders", "flag TINYINT, n INT UNSIGNED, note VARCHAR(9)").insert({"flag": 1})
    (body,) = [event[25:-4] for event in fake.events() if event[4] == 19]
    plain = ["tinyint", "int unsigned", "varchar(9)"]
    known = schema("flag TINYINT(1), n INT(5) UNSIGNED ZEROFILL, note VARCHAR(9)")

    def types(known: canal.TableSchema | None, **options: Any) -> list[str]:
        return [column.column_type for column in resolver(known, **options)[0].resolve(body).columns]

    assert types(known) == plain
    assert types(known, whole_types=True) == ["tinyint(1)", "int(5) unsigned zerofill", "varchar(9)"]
    assert caplog.text == ""
    assert types(None, whole_types=True) == plain
    assert "the full types of shop.orders are unknown" in caplog.text
    # Of another time: what does not fit is not taken.
    assert types(schema("flag INT(1), n INT(5), note VARCHAR(9)"), whole_types=True) == plain


def map_of(table: str, columns: str, **options: Any) -> bytes:
    fake = FakeBinlog(**options)
    fake.table("shop", table, columns).insert({"id": 1})
    (body,) = [event[25:-4] for event in fake.events() if event[4] == 19]
    return body


@pytest.mark.parametrize("options", [{}, {"flavor": "mariadb"}, {"metadata": "MINIMAL"}])
def test_maps_that_differ_in_the_name_only_share_what_they_have(options: dict[str, Any]) -> None:
    release = MARIADB if options.get("flavor") else NEWEST
    shared, _ = resolver(schema(), whole_types=True)
    for table in ("orders_1", "a_longer_name", "orders_1"):
        for columns in (COLUMNS, COLUMNS.replace("'new'", "'old'")):
            body = map_of(table, columns, **options)
            alone, _ = resolver(schema(), whole_types=True)
            found, expected = shared.resolve(body, release), alone.resolve(body, release)
            assert (found.schema, found.columns) == (expected.schema, expected.columns)
    first, second = (shared.resolve(map_of(table, COLUMNS, **options), release) for table in ("x", "y"))
    assert (first.schema.table, second.schema.table) == ("x", "y")
    assert first.decoder is second.decoder


def test_what_maps_share_is_that_of_one_release() -> None:
    """A column of this name is that of a functional key, where the release logs them."""
    name, resolve = "0" * 32, resolver()[0]
    bodies = [map_of(table, f"id INT PRIMARY KEY, `{name}` INT") for table in ("a", "b")]
    for release, hidden in ((NEWEST, False), (Release("mysql", (8, 0, 13)), True), (NEWEST, False)):
        for body in bodies:
            assert name in [column.name for column in resolve.resolve(body, release).schema.columns] or hidden
            assert name not in [column.name for column in resolve.resolve(body, release).schema.columns] or not hidden


def test_what_maps_share_has_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_map, "_MOST_ALIKE", 1000)
    resolve, _ = resolver()
    for number in range(100):
        assert resolve.resolve(map_of("t", f"id INT PRIMARY KEY, c{number} INT")).columns[1].name == f"c{number}"
    assert len(resolve._alike) < 30


def old_temporal_map(**options: Any) -> bytes:
    """A map with a TIME of MariaDB's old format, made of the fake's new one."""
    fake = FakeBinlog(flavor="mariadb", **options)
    fake.table("shop", "orders", "id INT, t TIME(3)").insert({"id": 1})
    (event,) = [event for event in fake.events() if event[4] == 19]
    body = event[25:-4]
    assert b"\2\x03\x13\1\3" in body  # two columns, their types, a byte of metadata
    return body.replace(b"\2\x03\x13\1\3", b"\2\x03\x0b\0")


@pytest.mark.parametrize("metadata", ["FULL", "NO_LOG"])
def test_digits_of_old_temporal_types_of_mariadb_come_from_the_schema_or_are_refused(metadata: str) -> None:
    """T60: the log tells neither digits nor bytes of them, with FULL metadata neither."""
    body = old_temporal_map(metadata=metadata)
    known = schema("id INT, t TIME(3)")
    resolve, asked = resolver(known)

    assert [column.column_type for column in resolve.resolve(body, MARIADB).columns] == ["int", "time(3)"]
    assert asked == ["orders"]
    for nothing in (None, *((schema("id INT, x TIME(3)"), schema("id INT, t INT")) if metadata == "FULL" else ())):
        resolve, _ = resolver(nothing)
        with pytest.raises(
            canal.errors.UnsupportedError, match=r"column 2 of shop.orders, .*old temporal format \(type 11\)"
        ) as caught:
            resolve.resolve(body, MARIADB)
        assert "mysql56_temporal_format" in str(caught.value)
    resolve, _ = resolver()  # MySQL has them without fractions only
    assert resolve.resolve(body).columns[1].column_type == "time"


@pytest.mark.parametrize(
    ("known", "expected"),
    [
        ("id INT, u UUID, s INET6, f INET4, b BINARY(16)", ["uuid", "inet6", "inet4", "binary(16)", "varbinary(16)"]),
        ("v INT, b UUID, id INT, F INET4", ["binary(16)", "binary(16)", "inet4", "uuid", "varbinary(16)"]),  # by name
        ("id INT, u INET4, s UUID, f INET6, b INT", ["binary(16)", "uuid", "binary(4)", "binary(16)", "varbinary(16)"]),
        (None, ["binary(16)", "binary(16)", "binary(4)", "binary(16)", "varbinary(16)"]),
        (canal.errors.SchemaError("changed since"), ["binary(16)", "binary(16)", "binary(4)", "binary(16)", "varbinary(16)"]),
    ],
)
def test_addresses_of_mariadb_come_from_the_schema_or_are_bytes(
    known: str | canal.errors.SchemaError | None, expected: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    """T71: the log has them as BINARY with FULL metadata too; what is not known is told once."""
    fake = FakeBinlog(flavor="mariadb", metadata="FULL")
    columns = "id INT, u BINARY(16), s BINARY(16), f BINARY(4), b BINARY(16), v VARBINARY(16)"
    fake.table("shop", "orders", columns).insert({"id": 1})
    (body,) = [event[25:-4] for event in fake.events() if event[4] == 19]

    def find(raw: RawTableMap) -> canal.TableSchema | None:
        if isinstance(known, canal.errors.SchemaError):
            raise known
        return schema(known) if known is not None else None

    resolve = TableResolver(find, TableFilter(), FieldFilter(), UTC)
    for _ in range(2):
        assert [column.column_type for column in resolve.resolve(body, MARIADB).columns[1:]] == expected

    missing = known is None or isinstance(known, canal.errors.SchemaError) or "b BINARY" not in known
    assert sum("UUID, INET6 or INET4" in one.message for one in caplog.records) == missing


def test_binary_columns_of_mysql_are_not_looked_up() -> None:
    resolve, asked = resolver()
    resolve.resolve(map_body(metadata="FULL"))

    assert asked == []


def test_old_temporal_types_of_a_table_that_is_not_wanted_are_not_measured() -> None:
    resolve = TableResolver(lambda raw: None, TableFilter("other\\..*"), FieldFilter(), UTC)

    assert resolve.resolve(old_temporal_map(metadata="FULL"), MARIADB).decoder is None


@pytest.mark.parametrize(("flavor", "shape"), [("mysql", "GEOMETRY"), ("mysql", "VECTOR(3)"), ("mariadb", "GEOMETRY")])
@pytest.mark.parametrize("metadata", ["FULL", "MINIMAL"])
def test_columns_that_one_server_counts_among_the_texts_leave_the_charsets_in_place(
    flavor: Any, shape: str, metadata: Any
) -> None:
    fake = FakeBinlog(flavor, metadata=metadata)
    charsets = ["latin1", "gbk", "utf8mb4", "ascii"]
    columns = ", ".join(f"g{n} {shape}, c{n} VARCHAR(9) CHARACTER SET {name}" for n, name in enumerate(charsets))
    fake.table("shop", "shapes", columns).insert({})
    (event,) = [event for event in fake.events() if event[4] == 19]

    resolve, _ = resolver()
    found = resolve.resolve(event[25:-4], Release(flavor, (11, 4))).columns
    assert [column.charset for column in found[1::2]] == charsets


def test_unknown_fields_of_the_optional_metadata_are_passed_over() -> None:
    """T21: of any length, before and behind those that are known."""
    bare, full = map_body(flavor="mariadb", metadata="NO_LOG"), map_body(flavor="mariadb")
    assert full.startswith(bare)
    known = full[len(bare) :]

    for unknown in (b"\x4d\0", b"\x0d\3abc", b"\xff\xfc\x2c\1" + bytes(300)):
        assert parse_table_map(bare + unknown + known + unknown) == parse_table_map(full)


def test_invisible_columns_are_columns_of_the_image() -> None:
    """T74"""
    fake = FakeBinlog()
    fake.table("shop", "orders", "a INT, b INT INVISIBLE, c INT").insert({"a": 1, "b": 2, "c": 3})
    (event,) = [event for event in fake.events() if event[4] == 19]
    resolve, _ = resolver()

    assert [(column.name, column.visible) for column in resolve.resolve(event[25:-4]).columns] == [
        ("a", True),
        ("b", False),
        ("c", True),
    ]


def test_every_truncation_of_a_table_map_is_a_typed_error_or_a_shorter_map() -> None:
    body = map_body()
    whole = parse_table_map(body)
    for end in range(len(body)):
        try:
            cut = parse_table_map(body[:end])
        except canal.DecodeError:
            continue
        assert attrs.evolve(cut, unsigned=None, charsets=None, names=None, labels=None, keys=None, visible=None) == (
            attrs.evolve(whole, unsigned=None, charsets=None, names=None, labels=None, keys=None, visible=None)
        ), "only whole fields of the optional metadata may be missing"


# -- what servers left out of the metadata ------------------------------------------------------------------------------

INT, TINY, YEAR_TYPE = 3, 1, 13
UNDECIDED = Release("mysql", (8, 0, 22))


def raw_map(types: list[int], signs: bytes | None = None, *fields: tuple[int, bytes], metas: bytes = b"") -> bytes:
    """The body of a table map of columns a, b, …, with names, signs and other optional fields."""
    count = len(types)
    names = b"".join(bytes((1, 97 + i)) for i in range(count))
    optional = [(4, names), *fields] + ([(1, signs)] if signs is not None else [])
    return b"".join(
        (
            b"\1\0\1d\0\1t\0",
            bytes([count]),
            bytes(types),
            bytes([len(metas)]),
            metas,
            b"\xff" * ((count + 7) // 8),
            *(bytes((kind, len(value))) + value for kind, value in optional),
        )
    )


@pytest.mark.parametrize(
    ("release", "types", "signs", "unsigned"),
    [
        (Release("mysql", (8, 0, 15)), [INT, YEAR_TYPE, INT, TINY, INT], b"\xe0", "acd"),
        (Release("mysql", (9, 7, 0)), [INT, YEAR_TYPE, INT, TINY, INT], b"\xf0", "acd"),
        (Release("mariadb", (10, 5, 23)), [INT, YEAR_TYPE, INT, TINY, INT], b"\xf0", "acd"),
        # The release does not decide; the length does, and a bit that is not set.
        (UNDECIDED, [YEAR_TYPE] + [INT] * 8, b"\xff", "bcdefghi"),
        (UNDECIDED, [YEAR_TYPE] + [INT] * 8, b"\xff\x80", "bcdefghi"),
        (UNDECIDED, [INT, YEAR_TYPE, INT], b"\x80", "a"),
        (UNDECIDED, [INT, YEAR_TYPE, INT], b"\xe0", "ac"),
        (UNDECIDED, [INT, INT, YEAR_TYPE], b"\xc0", "ab"),
        # A length that its release would not write says more than the release.
        (Release("mysql", (9, 7, 0)), [YEAR_TYPE] + [INT] * 8, b"\xfe", "bcdefgh"),
    ],
)
def test_years_have_a_sign_or_not_as_the_map_and_its_release_say(
    release: Release, types: list[int], signs: bytes, unsigned: str
) -> None:
    resolve, asked = resolver()
    found = resolve.resolve(raw_map(types, signs), release)

    assert "".join(column.name for column in found.columns if column.unsigned) == unsigned
    assert asked == []


@pytest.mark.parametrize("column_type", [f"varchar({'9' * 5000})", "decimal(a,b)", "varchar(²)"])
def test_a_length_that_is_no_number_is_refused_when_it_is_given(column_type: str) -> None:
    """Not with an untyped error when the first row comes."""
    with pytest.raises(canal.errors.ConfigError, match=r"cannot parse the definition of d\.t: .* is not a number"):
        tables_from_mapping({"d.t": f"a int, b {column_type}"})


def test_signs_that_fit_two_readings_are_those_of_the_schema_or_refused() -> None:
    body = raw_map([INT, YEAR_TYPE, INT], b"\xc0")
    known = schema("a int unsigned, b year, c int")
    other = schema("a int unsigned, b year, c int unsigned")

    for columns, unsigned in ((known, "a"), (other, "ac")):
        found = resolver(columns)[0].resolve(body, UNDECIDED)
        assert "".join(column.name for column in found.columns if column.unsigned) == unsigned
    with pytest.raises(canal.errors.UnsupportedError, match="'c', is unsigned.*schema= of the source"):
        resolver()[0].resolve(body, UNDECIDED)


def test_signs_of_no_length_that_fits_are_refused() -> None:
    with pytest.raises(canal.DecodeError, match="3 bytes of signs"):
        parse_table_map(raw_map([INT, YEAR_TYPE, INT], b"\0\0\0"))


@pytest.mark.parametrize(
    ("columns", "labels", "charset"),
    [
        ("a enum('x','ü') character set latin1", ("x", "ü"), "latin1"),
        (None, ("x", "\udcfc"), None),  # bytes, marked
        ("a enum('x','ü') character set latin1, b int", ("x", "ü"), "latin1"),  # by its name
        ("b enum('x','ü') character set latin1", ("x", "\udcfc"), None),
    ],
)
def test_labels_whose_charset_the_map_does_not_tell_are_of_that_of_the_schema(
    columns: str | None, labels: tuple[str, ...], charset: str | None
) -> None:
    """MySQL 8.0.12 tells the labels and not their charset."""
    body = raw_map([254], None, (6, b"\2\1x\1\xfc"), metas=b"\xf7\1")
    known = None if columns is None else schema(columns)
    (column,) = resolver(known)[0].resolve(body, Release("mysql", (8, 0, 12))).columns

    assert (column.labels, column.charset) == (labels, charset)


def test_columns_of_functional_keys_are_left_out_where_table_maps_have_them() -> None:
    """By their names, or by where the schema has them; without them the fields are counted and filtered."""
    hashed = b"\1a" + b"\x20" + b"e2586f3a475714f9959f74986e64ee13" + b"\1c"
    body = raw_map([INT, INT, INT], None, (4, hashed))
    found = resolver()[0].resolve(body, Release("mysql", (8, 0, 15)))
    assert [column.name for column in found.columns] == ["a", "c"]
    assert [column.name for column in found.schema.columns] == ["a", "c"]
    rows = bytes((3, 0b101, 0)) + (7).to_bytes(4, "little") + (8).to_bytes(4, "little")
    assert found.decoder.decode(rows, 0, len(rows), 0) == [(None, (7, 8))]
    whole = bytes((3, 0b111, 0)) + bytes(12)
    with pytest.raises(canal.errors.UnsupportedError, match="e2586f3a.*functional key"):
        found.decoder.walk(whole, 0, len(whole), 0)

    later = resolver()[0].resolve(body, Release("mysql", (8, 0, 18)))
    assert len(later.columns) == 3
    fields = FieldFilter("d.t:c")
    resolve = TableResolver(lambda raw: None, TableFilter(), fields, UTC)
    assert [column.name for column in resolve.resolve(body, Release("mysql", (8, 0, 15))).columns] == ["c"]


@pytest.mark.parametrize(("release", "trusted"), [(Release("mariadb", (10, 2, 11)), False), (MARIADB, True)])
def test_a_virtual_column_is_absent_where_the_log_holds_what_was_not_computed(release: Release, trusted: bool) -> None:
    body = raw_map([INT, INT])[:-6]  # without names
    known = schema("a int, v int as (a * 2) virtual, s int as (a + 1) stored")
    known = attrs.evolve(known, columns=known.columns[:2])
    found = resolver(known)[0].resolve(body, release)
    rows = bytes((2, 3, 0)) + bytes(4) + bytes(4)

    assert found.decoder.decode(rows, 0, len(rows), 0) == [(None, (0, 0 if trusted else canal.ABSENT))]
    assert pickle.loads(pickle.dumps(found.decoder)).decode(rows, 0, len(rows), 0) == found.decoder.decode(rows, 0, len(rows), 0)


@pytest.mark.parametrize("metadata", ["FULL", "MINIMAL"])
def test_a_table_with_the_columns_of_a_sequence_and_a_key_is_no_sequence(metadata: Any) -> None:
    fake = FakeBinlog("mariadb", metadata=metadata)
    columns = ", ".join(f"{one.name} {one.column_type} NOT NULL" for one in sequences.COLUMNS)
    tables = [
        fake.table("shop", "numbers", columns),
        fake.table("shop", "keyed", f"{columns}, PRIMARY KEY (start_value)"),
        fake.table("shop", "wider", f"{columns}, more INT NULL"),
    ]
    for table in tables:
        table.insert({one.name: 1 for one in sequences.COLUMNS})

    with instance_of(fake) as instance:
        instance.subscribe()
        found = [entry.header.table for entry in instance.get(100, timeout=10).entries if entry.rows]
    assert found == ["keyed", "wider"]
