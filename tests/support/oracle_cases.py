"""The cases of the oracle test: column types, and SQL literals that are stored in a column of the type.

Never says what a value decodes to: the server does. To add a case, add a line; to add a type, add a family if none fits.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import attrs

CHARSETS = [
    "armscii8",
    "ascii",
    "big5",
    "cp1250",
    "cp1251",
    "cp1256",
    "cp1257",
    "cp850",
    "cp852",
    "cp866",
    "cp932",
    "dec8",
    "eucjpms",
    "euckr",
    "gb18030",
    "gb2312",
    "gbk",
    "geostd8",
    "greek",
    "hebrew",
    "hp8",
    "keybcs2",
    "koi8r",
    "koi8u",
    "latin1",
    "latin2",
    "latin5",
    "latin7",
    "macce",
    "macroman",
    "sjis",
    "swe7",
    "tis620",
    "ucs2",
    "ujis",
    "utf16",
    "utf16le",
    "utf32",
    "utf8mb3",
    "utf8mb4",
]


#: The release since which a kind of server has something; none of a kind that never had it.
Releases = Mapping[str, tuple[int, ...]]
EVERY: Final[Releases] = {"mysql": (5, 5), "mariadb": (10, 1)}
FRACTIONS: Final[Releases] = {"mysql": (5, 6, 4), "mariadb": (10, 1)}


@attrs.frozen
class Case:
    """A type, and what is stored in a column of it beside NULL. ``since`` says which servers have it: one release each."""

    type: str
    literals: tuple[str, ...]
    family: str
    since: Releases = EVERY


def case(family: str, type: str, *literals: str, **since: tuple[int, ...]) -> Case:
    return Case(type, literals, family, since) if since else Case(type, literals, family)


def _integers() -> list[Case]:
    cases = []
    for name, bits in (("TINYINT", 8), ("SMALLINT", 16), ("MEDIUMINT", 24), ("INT", 32), ("BIGINT", 64)):
        half = 1 << bits - 1
        cases += [  # T53
            case("number", name, "0", "1", "-1", str(half - 1), str(-half)),
            case("number", f"{name} UNSIGNED", "0", "1", str(half - 1), str(half), str(2 * half - 1)),
            case("number", f"{name}(5) ZEROFILL", "0", "42", str(2 * half - 1)),
        ]
    return cases


def _temporal() -> list[Case]:
    cases = [
        case(
            "date",
            "DATE",
            "'0000-00-00'",
            "'2026-00-15'",
            "'2026-07-00'",
            "'0000-01-01'",
            "'1000-01-01'",
            "'1582-10-10'",
            "'2024-02-29'",
            "'9999-12-31'",
        ),
        case("year", "YEAR", "0", "1901", "2155", "1970", "2000"),  # T63
    ]
    for digits in range(7):  # T57 to T62
        size, since = (f"({digits})", FRACTIONS) if digits else ("", EVERY)
        nines = "." + "9" * digits if digits else ""
        least = "." + "0" * (digits - 1) + "1" if digits else ""
        cases += [
            case(
                "time",
                f"TIME{size}",
                "0",
                "'838:59:59'",
                "'-838:59:59'",
                f"'-838:59:58{nines}'",
                f"'838:59:58{nines}'",
                f"'-00:00:00{least}'",
                f"'-00:00:00{nines}'",
                f"'-01:00:00{least}'",
                f"'-00:59:59{nines}'",
                "'-00:00:01'",
                f"'00:00:00{least}'",
                "'-100:00:00'",
                **since,
            ),
            case(
                "datetime",
                f"DATETIME{size}",
                "'0000-00-00 00:00:00'",
                f"'9999-12-31 23:59:59{nines}'",
                f"'2026-00-15 23:59:59{nines}'",
                "'2026-07-00 01:02:03'",
                "'0000-01-01 00:00:00'",
                f"'1000-01-01 00:00:00{least}'",
                f"'1969-12-31 23:59:59{nines}'",
                "'2024-02-29 12:00:00'",
                **since,
            ),
            case(
                "timestamp",
                f"TIMESTAMP{size} NULL DEFAULT NULL",
                "0",
                f"'1970-01-01 00:00:01{least}'",
                f"'2038-01-19 03:14:07{nines}'",
                f"'2026-03-29 01:30:00{nines}'",
                "'2026-10-25 02:30:00'",
                **since,
            ),
            case(
                "timestamp",
                f"TIMESTAMP{size} NULL DEFAULT NULL",
                f"'2106-02-07 06:28:15{nines}'",
                f"'2038-01-19 03:14:08{least}'",
                mariadb=(11, 5),
            ),
        ]
        if digits:
            first = f"'1970-01-01 00:00:00{least}'", f"'1970-01-01 00:00:00{nines}'"
            cases.append(case("timestamp", f"TIMESTAMP{size} NULL DEFAULT NULL", "0", *first, mariadb=FRACTIONS["mariadb"]))
    return cases


def _sizes() -> list[Case]:
    """Text and bytes: empty, short, and at the sizes at which the length takes another byte. T52, T64, T67."""
    texts = ("''", "'a'", "'tail  '")
    cases = [
        case("text", f"CHAR({size}) CHARACTER SET {charset}", *texts[: 2 + (size > 5)], f"REPEAT('é', {size})")
        for charset in ("latin1", "utf8mb4", "utf16")
        for size in (1, 63, 64, 100, 255)
    ]
    cases += [
        case("text", f"VARCHAR({size}) CHARACTER SET {charset}", *texts[: 2 + (size > 5)], f"REPEAT('é', {size})")
        for charset in ("latin1", "utf8mb3")
        for size in (1, 85, 86, 255, 256, 700)
    ]
    cases += [
        case("text", "CHAR(0)", "''"),
        case("text", "VARCHAR(0)", "''"),
        case("text", "TINYTEXT", "''", "REPEAT('a', 255)"),
        case("text", "TEXT", "''", "REPEAT('é', 32000)"),
        case("text", "MEDIUMTEXT", "''", "REPEAT('é', 33000)"),
        case("text", "LONGTEXT CHARACTER SET utf16", "''", "REPEAT('é', 33000)"),
        *(case("bytes", f"BINARY({n})", "''", "'a'", "X'6100'", f"REPEAT(X'ff', {n})") for n in (2, 16, 128, 255)),
        *(case("bytes", f"VARBINARY({n})", "''", "X'6100'", "X'00'", f"REPEAT(X'ff', {n})") for n in (2, 255, 256)),
        *(case("bytes", f"{name} CHARACTER SET binary", "''", "X'ff00'") for name in ("CHAR(5)", "VARCHAR(5)", "TEXT")),
        case("bytes", "TINYBLOB", "''", "REPEAT(X'ff', 255)"),
        case("bytes", "BLOB", "''", "REPEAT(X'00', 65535)"),
        case("bytes", "MEDIUMBLOB", "''", "REPEAT(X'ff', 65536)"),
        case("bytes", "LONGBLOB", "''", "REPEAT(X'00ff', 40000)"),
    ]
    return cases


def _labels(count: int, before: str = "") -> str:
    return before + ",".join(f"'m{n}'" for n in range(count))


_POINT = "POINT(1 2)"
CASES: list[Case] = [
    *_integers(),
    *_temporal(),
    *_sizes(),
    # T55
    case(
        "number", "DECIMAL(65,30)", f"{'9' * 35}.{'9' * 30}", f"-{'9' * 35}.{'9' * 30}", "-0.000000000000000000000000000001", "0"
    ),
    case("number", "DECIMAL(65,0)", "9" * 65, "-" + "9" * 65, "0", "-1"),
    case("number", "DECIMAL(1,1)", "0.9", "-0.9", "0", "-0.1"),
    case("number", "DECIMAL(30,30)", "-0." + "9" * 30, "0.000000001"),
    case("number", "DECIMAL(20,10) ZEROFILL", "1234567890.0987654321", "0.5"),
    case("number", "DECIMAL(10,0)", "9999999999", "-1"),
    # T56: -0.0, the smallest and the greatest, denormal ones
    case(
        "float",
        "FLOAT",
        "0.1",
        "-0e0",
        "3.40282346e38",
        "-3.40282346e38",
        "1.17549435e-38",
        "1e-45",
        "16777217",
        "-1.5",
        "1e-40",
        "0.3",
        "123456.789",
        "9999999",
        "1e7",
        "0.001",
        "0.0009",
    ),
    case("float", "FLOAT(7,3)", "0.1", "9999.999"),
    case("float", "FLOAT UNSIGNED", "0.1", "3.40282346e38"),
    case(
        "double",
        "DOUBLE",
        "0.1",
        "-0e0",
        "1.7976931348623157e308",
        "-1.7976931348623157e308",
        "2.2250738585072014e-308",
        "4.94e-324",
        "1e7",
        "0.001",
        "9999999.999",
        "1e22",
        "0.30000000000000004",
    ),
    case("double", "DOUBLE(15,5)", "0.1", "-9999999999.99999"),
    # T54
    *(case("bit", f"BIT({n})", "0", "1", f"b'{'1' * n}'", f"b'1{'0' * (n - 1)}'") for n in range(1, 65)),
    case("bit", "BIT", "0", "1"),
    # T50, T51: index 0, a member '', more members than a byte holds
    case("enum", "ENUM('a','é','b''c')", "'a'", "'é'", "'b''c'", "'no member'", "0"),
    case("enum", "ENUM('x','','y')", "''", "0", "'no member'", "'y'"),
    case("enum", f"ENUM({_labels(300)})", "'m0'", "'m254'", "'m255'", "'m299'", "0"),
    case("enum", "ENUM('größer','中') CHARACTER SET gbk", "'中'", "0"),
    case("enum", "ENUM('größer') CHARACTER SET latin1", "'größer'", "0"),
    case("enum", "ENUM('a','b') CHARACTER SET binary", "'b'", "0"),
    case("enum", "ENUM('größer') CHARACTER SET utf16", "'größer'", "0"),
    *(case("set", f"SET({_labels(n)})", "''", "1", f"1 << {n - 1}", str((1 << n) - 1)) for n in (1, 8, 9, 17, 32, 33, 64)),
    case("set", "SET('é','ü') CHARACTER SET latin1", "'é,ü'", "''", "'ü'"),
    # T68
    *(
        case("geometry", f"{kind.split('(')[0]}", f"ST_GeomFromText('{kind}')", f"ST_GeomFromText('{kind}', 4326)")
        for kind in (
            _POINT,
            "LINESTRING(1 2,3 4)",
            "POLYGON((0 0,1 0,1 1,0 0))",
            "MULTIPOINT(1 2,3 4)",
            "MULTILINESTRING((1 2,3 4))",
            "MULTIPOLYGON(((0 0,1 0,1 1,0 0)))",
            "GEOMETRYCOLLECTION(POINT(1 2),LINESTRING(1 2,3 4))",
        )
    ),
    case("geometry", "GEOMETRY", "ST_GeomFromText('GEOMETRYCOLLECTION EMPTY')", mysql=(8, 0), mariadb=(10, 1)),
    case("geometry", "GEOMETRY", f"ST_GeomFromText('{_POINT}', 3857)"),
    # T71: what the log does not tell from LONGTEXT and BINARY
    case("text", "JSON", "'{\"a\":  [1, 2.50,null]}'", "'[]'", "'\"é\"'", mariadb=(10, 2, 7)),
    case(
        "address",
        "INET6",
        "'::'",
        "'::1'",
        "'2001:db8::ff00:42:8329'",
        "'::ffff:1.2.3.4'",
        "'1:0:0:2::'",
        "'::1.2.3.4'",
        mariadb=(10, 5),
    ),
    case("address", "INET4", "'0.0.0.0'", "'192.168.0.1'", "'255.255.255.255'", "'1.0.0.0'", mariadb=(10, 10)),
    case(
        "address",
        "UUID",
        "'00000000-0000-0000-0000-000000000000'",
        "'123e4567-e89b-12d3-a456-426655440000'",
        "'ffffffff-ffff-ffff-ffff-ffffffffffff'",
        "'0190163d-8694-739b-aea5-966c26f8ad91'",
        "'6ccd780c-baba-1026-9564-0040f4311e00'",
        mariadb=(10, 7),
    ),
    case("bytes", "VECTOR(3) NOT NULL DEFAULT x'000000000000000000000000'", "VEC_FromText('[1,-2.5,1e30]')", mariadb=(11, 7)),
    case("bytes", "VECTOR(3)", "STRING_TO_VECTOR('[1,-2.5,1e30]')", mysql=(9, 0)),
    # T69: every kind of value that MySQL's own form of JSON has
    case(
        "json",
        "JSON",
        "'null'",
        "'true'",
        "'[]'",
        "'{}'",
        "'\"\"'",
        '\'{"": 1, "b": 2, "aa": 3}\'',
        "'[0, -1, 32767, 32768, 65536]'",
        "'[-32768, -32769, 2147483648, -2147483649, 9223372036854775807, 18446744073709551615]'",
        "'[1.0, 1e22, 1e-7, 0.1, 100.5, 1e15]'",
        "JSON_OBJECT('k', REPEAT('x', 70000), 'l', JSON_ARRAY(1, 70000))",
        "JSON_ARRAY('\\\\u0000\\\\u0001\\\\t/\\\\\\\\é\\\\u2028')",
        "JSON_ARRAY(CAST(1.50 AS DECIMAL(9,2)), CAST(-0.001 AS DECIMAL(30,30)), CAST(12345678901234567890 AS DECIMAL(65,0)))",
        "JSON_ARRAY(DATE'2026-07-15', DATE'0001-01-01')",
        "JSON_ARRAY(TIME'-838:59:59', TIME'100:00:00.5', TIME'00:00:00')",
        "JSON_ARRAY(TIMESTAMP'2026-07-15 01:02:03.000004', CAST('9999-12-31 23:59:59' AS DATETIME))",
        "JSON_ARRAY(_binary X'00ff', CAST(b'101' AS JSON), b'1')",
        "JSON_ARRAY(ST_GeomFromText('POINT(1 2)'))",
        "JSON_ARRAY(REPEAT(_binary X'ff', 300))",
        mysql=(5, 7, 8),
    ),
    case("json", "JSON", "JSON_ARRAY(CAST(2026 AS YEAR))", mysql=(8, 0, 22)),
]

#: Whole tables, whose columns the server fills too: the columns' text, what is inserted (columns, values), what is selected,
#: and since when. Without a KEY MySQL makes an invisible one. T74
TABLES: list[tuple[str, str, str, str, str, Releases]] = [
    (
        "computed",
        "id INT PRIMARY KEY, a INT, v INT AS (a + 1) VIRTUAL, s INT AS (a * 2) STORED, w VARCHAR(20) AS (CONCAT('x', a)) VIRTUAL, "
        "b TEXT",
        "id, a, b",
        "1, 5, 'y'",
        "id, a, v, s, w, b",
        {"mysql": (5, 7, 6), "mariadb": (10, 2, 1)},
    ),
    (
        "invisible",
        "id INT PRIMARY KEY, a INT, hidden INT INVISIBLE DEFAULT 7, b VARCHAR(5)",
        "id, a, b",
        "1, 2, 'x'",
        "id, a, hidden, b",
        {"mysql": (8, 0, 23), "mariadb": (10, 3, 3)},
    ),
    ("gipk", "a INT, b TEXT", "a, b", "1, 'x'", "my_row_id, a, b", {"mysql": (8, 0, 30)}),
    (
        "hidden_parts",
        "id INT PRIMARY KEY, a INT, b VARCHAR(20), INDEX ((a + 1)), INDEX ((UPPER(b)))",
        "id, a, b",
        "1, 1, 'x'",
        "id, a, b",
        {"mysql": (8, 0, 13)},
    ),
    ("hashed", "id INT PRIMARY KEY, a INT, b TEXT, UNIQUE (b)", "id, a, b", "1, 1, 'x'", "id, a, b", {"mariadb": (10, 4, 3)}),
    # The longest rows: 65535 bytes. T64
    (
        "longest",
        "a INT PRIMARY KEY, b VARCHAR(65529) CHARACTER SET latin1 NOT NULL",
        "a, b",
        "1, REPEAT('é', 65529)",
        "a, b",
        EVERY,
    ),
    (
        "long_utf8",
        "a INT PRIMARY KEY, b VARCHAR(16382) CHARACTER SET utf8mb4 NOT NULL",
        "a, b",
        "1, REPEAT('😀', 16382)",
        "a, b",
        EVERY,
    ),
    ("long_bytes", "a INT PRIMARY KEY, b VARBINARY(65529) NOT NULL", "a, b", "1, REPEAT(X'ff', 65529)", "a, b", EVERY),
    (
        "versioned",
        "id INT PRIMARY KEY, a INT, b TEXT) WITH SYSTEM VERSIONING -- ",
        "id, a, b",
        "1, 1, 'x'",
        "id, a, b, row_start, row_end",
        {"mariadb": (10, 3, 4)},
    ),
    (
        "period",
        "id INT PRIMARY KEY, a INT, s TIMESTAMP(6) GENERATED ALWAYS AS ROW START, e TIMESTAMP(6) GENERATED ALWAYS AS ROW END, "
        "PERIOD FOR SYSTEM_TIME(s, e)) WITH SYSTEM VERSIONING -- ",
        "id, a",
        "1, 1",
        "id, a, s, e",
        {"mariadb": (10, 3, 4)},
    ),
    (
        "half_versioned",
        "id INT PRIMARY KEY, a INT, b TEXT WITHOUT SYSTEM VERSIONING) WITH SYSTEM VERSIONING -- ",
        "id, a, b",
        "1, 1, 'x'",
        "id, a, b, row_start, row_end",
        {"mariadb": (10, 3, 4)},
    ),
]
