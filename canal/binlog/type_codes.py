"""Column type numbers in table maps, named like the servers' MYSQL_TYPE_ constants.

setup.py generates a C enum from this file for compiled modules.
"""

from __future__ import annotations

DECIMAL = 0
"""From before MySQL 5.0."""
TINY = 1
SHORT = 2
LONG = 3
FLOAT = 4
DOUBLE = 5
NULL = 6
TIMESTAMP = 7
LONGLONG = 8
INT24 = 9
DATE = 10
TIME = 11
DATETIME = 12
YEAR = 13
NEWDATE = 14
VARCHAR = 15
BIT = 16
TIMESTAMP2 = 17
DATETIME2 = 18
TIME2 = 19
TYPED_ARRAY = 20
# MariaDB's COMPRESSED columns.
BLOB_COMPRESSED = 140
VARCHAR_COMPRESSED = 141
VECTOR = 242
INVALID = 243
BOOL = 244
JSON = 245
NEWDECIMAL = 246
ENUM = 247
SET = 248
TINY_BLOB = 249
MEDIUM_BLOB = 250
LONG_BLOB = 251
BLOB = 252
VAR_STRING = 253
STRING = 254
GEOMETRY = 255

INTEGERS = frozenset((TINY, SHORT, INT24, LONG, LONGLONG))
DECIMALS = frozenset((DECIMAL, NEWDECIMAL))
#: Types with a bit in the SIGNEDNESS field of a table map, in column order. Newer releases include YEAR.
NUMERIC = INTEGERS | DECIMALS | {FLOAT, DOUBLE}
BLOBS = frozenset((TINY_BLOB, MEDIUM_BLOB, LONG_BLOB, BLOB, BLOB_COMPRESSED))
TEXTS = frozenset((STRING, VAR_STRING, VARCHAR, VARCHAR_COMPRESSED)) | BLOBS
#: From before MySQL 5.6. MariaDB also writes them with fractions.
OLD_TEMPORAL = frozenset((TIMESTAMP, TIME, DATETIME))
TEMPORAL = frozenset((TIMESTAMP2, DATETIME2, TIME2))
#: All date and time types except YEAR.
MOMENTS = OLD_TEMPORAL | TEMPORAL | {DATE, NEWDATE}
#: The data type for each type code. ENUM and SET are logged as STRING too.
NAMES = {
    DECIMAL: "old DECIMAL",
    TINY: "TINYINT",
    SHORT: "SMALLINT",
    LONG: "INT",
    FLOAT: "FLOAT",
    DOUBLE: "DOUBLE",
    TIMESTAMP: "TIMESTAMP",
    LONGLONG: "BIGINT",
    INT24: "MEDIUMINT",
    DATE: "DATE",
    TIME: "TIME",
    DATETIME: "DATETIME",
    YEAR: "YEAR",
    NEWDATE: "DATE",
    VARCHAR: "VARCHAR",
    BIT: "BIT",
    TIMESTAMP2: "TIMESTAMP",
    DATETIME2: "DATETIME",
    TIME2: "TIME",
    TYPED_ARRAY: "TYPED_ARRAY",
    BLOB_COMPRESSED: "compressed BLOB",
    VARCHAR_COMPRESSED: "compressed VARCHAR",
    VECTOR: "VECTOR",
    INVALID: "INVALID",
    BOOL: "BOOL",
    JSON: "JSON",
    NEWDECIMAL: "DECIMAL",
    ENUM: "ENUM",
    SET: "SET",
    TINY_BLOB: "TINYBLOB",
    MEDIUM_BLOB: "MEDIUMBLOB",
    LONG_BLOB: "LONGBLOB",
    BLOB: "BLOB",
    VAR_STRING: "VARCHAR",
    STRING: "CHAR",
    GEOMETRY: "GEOMETRY",
}
