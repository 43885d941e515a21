"""Character sets: the collations of both servers, and decoding as the servers do it."""

from __future__ import annotations

from typing import Any

import pytest

from canal.errors import UnsupportedError
from canal.rows.charsets import charset_of, codec_of
from canal.testing.servers import ThrowawayServer

SINGLE = [
    "armscii8",
    "ascii",
    "cp1250",
    "cp1251",
    "cp1256",
    "cp1257",
    "cp850",
    "cp852",
    "cp866",
    "dec8",
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
    "swe7",
    "tis620",
]
#: First bytes of two-byte characters.
DOUBLE = {
    "big5": range(0xA1, 0xFA),
    "cp932": [*range(0x81, 0xA0), *range(0xE0, 0xFD)],
    "euckr": range(0x81, 0xFE),
    "gb2312": range(0xA1, 0xF8),
    "gbk": range(0x81, 0xFF),
    "gb18030": range(0x81, 0xFF),
    "sjis": [*range(0x81, 0xA0), *range(0xE0, 0xFD)],
    "ujis": range(0xA1, 0xFF),
    "eucjpms": range(0xA1, 0xFF),
}
UNICODE = {"utf8mb4": "utf-8", "utf16": "utf-16-be", "utf16le": "utf-16-le", "utf32": "utf-32-be", "ucs2": "utf-16-be"}


def decoded(data: bytes, charset: str) -> str | None:
    try:
        return data.decode(codec_of(charset) or "")
    except UnicodeDecodeError:
        return None


@pytest.mark.parametrize(
    ("data", "charset", "text"),
    [
        (b"\x80\x81\xe9", "latin1", "€\x81é"),
        ("漢字".encode("gbk"), "gbk", "漢字"),
        (b"\xf9\xd6", "big5", "碁"),
        (b"\xa2\x41\xa2\x42\xc9\x4a\xa4\x51", "big5", "／＼\ufa0c十"),
        (b"\xb1\x81\x40", "cp932", "ｱ\u3000"),
        (b"\xad\xa1\xa1\xc1\xf5\xa1", "eucjpms", "①～\ue000"),
        (b"\x8f\xf5\xa1", "ujis", "\ue3ac"),
        (b"~\x8f\xa2\xb7", "eucjpms", "~～"),
        (b"\x81_", "sjis", "\\"),
        (b"\xa8\xbc", "gb18030", "ḿ"),
        (b"\xd8\x3d\xde\x42", "utf16", "\U0001f642"),
        (b"@[", "swe7", "ÉÄ"),
    ],
)
def test_text_is_decoded_as_the_server_does_it(data: bytes, charset: str, text: str) -> None:
    assert decoded(data, charset) == text


@pytest.mark.parametrize(
    ("data", "charset"),
    [
        (b"\xff", "utf8mb4"),
        (b"\xd8\x3d\xde\x42", "ucs2"),
        (b"abc", "ucs2"),
        (b"\xad", "eucjpms"),
        (b"\x8f\xf5", "ujis"),
        (b"a\xa1\x41\xa1\xfe", "big5"),
        (b"\xa2\x40", "big5"),
        (b"\xa2\xcc", "big5"),
        (b"\xb1\x81\x40\xa0", "cp932"),
        (b"\xff\xa1", "ujis"),
        (b"\xdb", "tis620"),
        (b"\x80", "ascii"),
        (b"\x8a", "cp1256"),
    ],
)
def test_bytes_that_are_no_text_are_refused(data: bytes, charset: str) -> None:
    assert decoded(data, charset) is None


def test_bytes_have_no_codec_and_unknown_names_are_errors() -> None:
    assert codec_of(None) is None
    assert codec_of("binary") is None
    with pytest.raises(UnsupportedError, match="klingon"):
        codec_of("klingon")
    with pytest.raises(UnsupportedError, match="60000"):
        charset_of(60000)


def test_every_character_set_of_a_collation_has_a_codec() -> None:
    for collation in (8, 28, 33, 45, 63, 95, 97, 224, 255, 2048):
        charset = charset_of(collation)
        assert charset == "binary" or codec_of(charset)


def test_the_collations_are_those_of_the_server(server: ThrowawayServer) -> None:
    table = "COLLATION_CHARACTER_SET_APPLICABILITY" if "MariaDB" in server.version else "COLLATIONS"
    number = "ID"
    rows = server.query(f"SELECT {number}, CHARACTER_SET_NAME FROM information_schema.{table} WHERE {number} IS NOT NULL")

    assert len(rows) > 200
    for id, charset in rows:
        assert charset_of(int(id)) == {"utf8": "utf8mb3"}.get(charset, charset)


def server_says(server: ThrowawayServer, charset: str, sequences: list[bytes]) -> dict[bytes, str | None]:
    """CONVERT of each, in one query; None where the server has no such character."""
    found: dict[bytes, str | None] = {}
    with server.connect() as connection, connection.cursor() as cursor:
        for at in range(0, len(sequences), 2000):
            part = sequences[at : at + 2000]
            # An invalid literal is an error, so the bytes take the way through a conversion that gives NULL or less.
            selects: list[Any] = [f"HEX(CONVERT(CONVERT(x'{s.hex()}' USING {charset}) USING utf8mb4))" for s in part]
            cursor.execute("SELECT CONCAT_WS(',', " + ", ".join(f"IFNULL({one}, 'NULL')" for one in selects) + ")")
            answer = cursor.fetchone()
            assert answer is not None
            for sequence, text in zip(part, str(answer[0]).split(",")):
                value = None if text in ("NULL", "") else bytes.fromhex(text).decode("utf-8", "replace")
                bad = value is None or "\ufffd" in value or ("?" in value and b"?" not in sequence)
                found[sequence] = None if bad else value
    return found


@pytest.mark.parametrize("charset", SINGLE)
def test_every_byte_is_what_the_server_says(server: ThrowawayServer, charset: str) -> None:
    """T65"""
    for sequence, text in server_says(server, charset, [bytes([n]) for n in range(256)]).items():
        assert decoded(sequence, charset) == text, sequence.hex()


@pytest.mark.parametrize("charset", list(DOUBLE))
def test_two_byte_characters_are_what_the_server_says(server: ThrowawayServer, charset: str) -> None:
    """T65"""
    if charset == "gb18030" and "MariaDB" in server.version:
        pytest.skip("MariaDB has no gb18030")
    sequences = [bytes((lead, trail)) for lead in DOUBLE[charset] for trail in range(0x40, 0xFF, 3)]
    wrong = {
        sequence.hex(): (text, decoded(sequence, charset))
        for sequence, text in server_says(server, charset, sequences).items()
        if text is not None and len(text) == 1 and decoded(sequence, charset) != text
    }
    assert wrong == {}


@pytest.mark.parametrize("charset", list(UNICODE))
def test_unicode_is_what_the_server_says(server: ThrowawayServer, charset: str) -> None:
    """T65"""
    characters = [chr(n) for n in range(1, 0xD800, 97)] + ([] if charset == "ucs2" else ["\U0001f642", "\U0010ffff"])
    sequences = [character.encode(UNICODE[charset]) for character in characters]

    for sequence, text in server_says(server, charset, sequences).items():
        assert decoded(sequence, charset) == text


def test_the_charset_of_file_names_keeps_what_is_not_known_here() -> None:
    """Letters of other scripts have codes of two characters, of which the servers have a table."""
    codec = codec_of(charset_of(17))
    assert codec is not None

    assert b"a_1@0020@00e9".decode(codec) == "a_1 é"
    for raw in (b"@G0", b"a b", b"@00"):
        with pytest.raises(UnicodeDecodeError):
            raw.decode(codec)
