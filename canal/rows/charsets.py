"""The servers' character sets: the charset of a collation, and a Python codec that decodes it like the server.

An unknown collation is an error. The tables come from MySQL 9.7 and MariaDB 10.11; tests compare with their
``CONVERT(… USING utf8mb4)``.
"""

from __future__ import annotations

import codecs
import contextlib
import re
from functools import lru_cache
from typing import Callable

from canal.errors import UnsupportedError
from canal.schema import unsure_label

#: Collation ids of each charset in both servers. Common charsets have equal ids.
_COLLATIONS = {
    "armscii8": "32 64 1056 1088",
    "ascii": "11 65 1035 1089",
    "big5": "1 84 1025 1108",
    "binary": "63",
    "cp1250": "26 34 44 66 99 1050 1090",
    "cp1251": "14 23 50-52 1074-1075",
    "cp1256": "57 67 1081 1091",
    "cp1257": "29 58-59 1082-1083",
    "cp850": "4 80 1028 1104",
    "cp852": "40 81 1064 1105",
    "cp866": "36 68 1060 1092",
    "cp932": "95-96 1119-1120",
    "dec8": "3 69 1027 1093",
    "eucjpms": "97-98 1121-1122",
    "euckr": "19 85 1043 1109",
    "filename": "17",
    "gb18030": "248-250",
    "gb2312": "24 86 1048 1110",
    "gbk": "28 87 1052 1111",
    "geostd8": "92-93 1116-1117",
    "greek": "25 70 1049 1094",
    "hebrew": "16 71 1040 1095",
    "hp8": "6 72 1030 1096",
    "keybcs2": "37 73 1061 1097",
    "koi8r": "7 74 1031 1098",
    "koi8u": "22 75 1046 1099",
    "latin1": "5 8 15 31 47-49 94 1032 1071",
    "latin2": "2 9 21 27 77 1033 1101",
    "latin5": "30 78 1054 1102",
    "latin7": "20 41-42 79 1065 1103",
    "macce": "38 43 1062 1067",
    "macroman": "39 53 1063 1077",
    "sjis": "13 88 1037 1112",
    "swe7": "10 82 1034 1106",
    "tis620": "18 89 1042 1113",
    "ucs2": "35 90 128-151 159 640-642 1059 1114 1152 1174 2560-2727 2744-2759",
    "ujis": "12 91 1036 1115",
    "utf16": "54-55 101-124 672-674 1078-1079 1125 1147 2816-2983 3000-3015",
    "utf16le": "56 62 1080 1086",
    "utf32": "60-61 160-183 736-738 1084-1085 1184 1206 3072-3239 3256-3271",
    "utf8mb3": "33 76 83 192-215 223 576-579 1057 1107 1216 1238 2048-2215 2232-2247",
    "utf8mb4": ("45-46 224-247 255-271 273-275 277-294 296-298 300 303-323 608-611 1069-1070 1248 1270 2304-2471 2488-2503"),
}

#: Maximum bytes per character, if more than 1.
MAX_CHAR_BYTES = {
    "utf8mb4": 4,
    "utf8mb3": 3,
    "utf8": 3,
    "utf16": 4,
    "utf16le": 4,
    "utf32": 4,
    "ucs2": 2,
    "gbk": 2,
    "gb2312": 2,
    "gb18030": 4,
    "big5": 2,
    "sjis": 2,
    "cp932": 2,
    "ujis": 3,
    "eucjpms": 3,
    "euckr": 2,
    "filename": 5,
}


def is_charset(name: str) -> bool:
    """Return whether a server has this charset."""
    return name in _COLLATIONS


#: Python's codec for a charset, if it has one.
_CODECS = {
    "ascii": "ascii",
    "utf8": "utf-8",
    "utf8mb3": "utf-8",
    "utf8mb4": "utf-8",
    "utf16": "utf-16-be",
    "utf16le": "utf-16-le",
    "utf32": "utf-32-be",
    "cp1250": "cp1250",
    "cp1251": "cp1251",
    "cp1257": "cp1257",
    "cp850": "cp850",
    "cp852": "cp852",
    "hp8": "hp-roman8",
    "koi8r": "koi8-r",
    "latin2": "iso8859-2",
    "latin5": "iso8859-9",
    "latin7": "iso8859-13",
    "macce": "mac-latin2",
    "macroman": "mac-roman",
    "euckr": "cp949",
    "gb2312": "gb2312",
    "gbk": "gbk",
}

# -- differences between Python and the servers ------------------------------------------------------------------------

#: Upper halves of single-byte charsets; U+FFFE if the server has no character.

_UPPER_HALVES = {
    "armscii8": (
        "\x80\x81\x82\x83\x84\x85\x86\x87\x88\x89\x8a\x8b\x8c\x8d\x8e\x8f\x90\x91\x92\x93\x94\x95\x96\x97\x98\x99\x9a\x9b\x9c\x9d\x9e\x9f\xa0❁§։)(»«—.՝,-՟…՜՛՞ԱաԲբԳգԴդԵեԶզԷէ"
        "ԸըԹթԺժԻիԼլԽխԾծԿկՀհՁձՂղՃճՄմՅյՆնՇշՈոՉչՊպՋջՌռՍսՎվՏտՐրՑցՒւՓփՔքՕօՖֆ’'"
    ),
    "cp1256": (
        "€پ‚ƒ„…†‡ˆ‰\ufffe‹Œچژ\ufffeگ‘’“”•–—\ufffe™\ufffe›œ\u200c\u200d\ufffe\xa0،¢£¤¥¦§¨©\ufffe«¬\xad®¯°±²³´µ¶·¸¹؛»¼½¾؟"
        "\ufffeءآأؤإئابةتثجحخدذرزسشصض×طظعغـفقكàلâمنهوçèéêëىيîïًٌٍَôُِ÷ّùْûü\u200e\u200f\ufffe"
    ),
    "cp866": (
        "АБВГДЕЖЗИЙКЛМНОПРСТУФХЦЧШЩЪЫЬЭЮЯабвгдежзийклмноп░▒▓│┤╡╢╖╕╣║╗╝╜╛┐"
        "└┴┬├─┼╞╟╚╔╩╦╠═╬╧╨╤╥╙╘╒╓╫╪┘┌█▄▌▐▀рстуфхцчшщъыьэюяЁёЄєЇїЎў°∙·√ⁿ²■\xa0"
    ),
    "dec8": (
        "\x80\x81\x82\x83\x84\x85\x86\x87\x88\x89\x8a\x8b\x8c\x8d\x8e\x8f\x90\x91\x92\x93\x94\x95\x96\x97\x98\x99\x9a\x9b\x9c\x9d\x9e\x9f\xa0¡¢£\ufffe¥\ufffe§¤©ª«\ufffe\ufffe\ufffe\ufffe°±²³\ufffeµ¶·\ufffe¹º»¼½\ufffe¿"
        "ÀÁÂÃÄÅÆÇÈÉÊËÌÍÎÏ\ufffeÑÒÓÔÕÖŒØÙÚÛÜŸ\ufffeßàáâãäåæçèéêëìíîï\ufffeñòóôõöœøùúûüÿ\ufffe\ufffe"
    ),
    "geostd8": (
        "€\ufffe‚\ufffe„…†‡\ufffe‰\ufffe‹\ufffe\ufffe\ufffe\ufffe\ufffe‘’“”•–—\ufffe\ufffe\ufffe›\ufffe\ufffe\ufffe\ufffe\xa0¡¢£¤¥¦§¨©ª«¬\xad®¯°±²³´µ¶·¸¹º»¼½¾¿"
        "აბგდევზჱთიკლმნჲოპჟრსტჳუფქღყშჩცძწჭხჴჯჰჵ\ufffe\ufffe\ufffe\ufffe\ufffe\ufffe\ufffe\ufffe\ufffe\ufffe\ufffe\ufffe\ufffe\ufffe\ufffe\ufffe\ufffe\ufffe\ufffe\ufffe\ufffe\ufffe\ufffe№\ufffe\ufffe"
    ),
    "greek": (
        "\x80\x81\x82\x83\x84\x85\x86\x87\x88\x89\x8a\x8b\x8c\x8d\x8e\x8f\x90\x91\x92\x93\x94\x95\x96\x97\x98\x99\x9a\x9b\x9c\x9d\x9e\x9f\xa0ʽʼ£\ufffe\ufffe¦§¨©\ufffe«¬\xad\ufffe―°±²³΄΅Ά·ΈΉΊ»Ό½ΎΏ"
        "ΐΑΒΓΔΕΖΗΘΙΚΛΜΝΞΟΠΡ\ufffeΣΤΥΦΧΨΩΪΫάέήίΰαβγδεζηθικλμνξοπρςστυφχψωϊϋόύώ\ufffe"
    ),
    "hebrew": (
        "\x80\x81\x82\x83\x84\x85\x86\x87\x88\x89\x8a\x8b\x8c\x8d\x8e\x8f\x90\x91\x92\x93\x94\x95\x96\x97\x98\x99\x9a\x9b\x9c\x9d\x9e\x9f\xa0\ufffe¢£¤¥¦§¨©×«¬\xad®‾°±²³´µ¶·¸¹÷»¼½¾\ufffe"
        "\ufffe\ufffe\ufffe\ufffe\ufffe\ufffe\ufffe\ufffe\ufffe\ufffe\ufffe\ufffe\ufffe\ufffe\ufffe\ufffe\ufffe\ufffe\ufffe\ufffe\ufffe\ufffe\ufffe\ufffe\ufffe\ufffe\ufffe\ufffe\ufffe\ufffe\ufffe‗אבגדהוזחטיךכלםמןנסעףפץצקרשת\ufffe\ufffe\u200e\u200f\ufffe"
    ),
    "keybcs2": (
        "ČüéďäĎŤčěĚĹÍľĺÄÁÉžŽôöÓůÚýÖÜŠĽÝŘťáíóúňŇŮÔšřŕŔ¼¡«»░▒▓│┤╡╢╖╕╣║╗╝╜╛┐"
        "└┴┬├─┼╞╟╚╔╩╦╠═╬╧╨╤╥╙╘╒╓╫╪┘┌█▄▌▐▀αßΓπΣσµτΦΘΩδ∞φε∩≡±≥≤⌠⌡÷≈°∙·√ⁿ²■\xa0"
    ),
    "koi8u": (
        "─│┌┐└┘├┤┬┴┼▀▄█▌▐░▒▓⌠■•√≈≤≥\xa0⌡°²·÷═║╒ёє╔ії╗╘╙╚╛ґ╝╞╟╠╡ЁЄ╣ІЇ╦╧╨╩╪Ґ╬©"
        "юабцдефгхийклмнопярстужвьызшэщчъЮАБЦДЕФГХИЙКЛМНОПЯРСТУЖВЬЫЗШЭЩЧЪ"
    ),
    "latin1": (
        "€\x81‚ƒ„…†‡ˆ‰Š‹Œ\x8dŽ\x8f\x90‘’“”•–—˜™š›œ\x9džŸ\xa0¡¢£¤¥¦§¨©ª«¬\xad®¯°±²³´µ¶·¸¹º»¼½¾¿"
        "ÀÁÂÃÄÅÆÇÈÉÊËÌÍÎÏÐÑÒÓÔÕÖ×ØÙÚÛÜÝÞßàáâãäåæçèéêëìíîïðñòóôõö÷øùúûüýþÿ"
    ),
    "swe7": (
        "\ufffe\ufffe\ufffe\ufffe\ufffe\ufffe\ufffe\ufffe\ufffe\ufffe\ufffe\ufffe\ufffe\ufffe\ufffe\ufffe\ufffe\ufffe\ufffe\ufffe\ufffe\ufffe\ufffe\ufffe\ufffe\ufffe\ufffe\ufffe\ufffe\ufffe\ufffe\ufffe\ufffe\ufffe\ufffe\ufffe\ufffe\ufffe\ufffe\ufffe\ufffe\ufffe\ufffe\ufffe\ufffe\ufffe\ufffe\ufffe\ufffe\ufffe\ufffe\ufffe\ufffe\ufffe\ufffe\ufffe\ufffe\ufffe\ufffe\ufffe\ufffe\ufffe\ufffe\ufffe"
        "\ufffe\ufffe\ufffe\ufffe\ufffe\ufffe\ufffe\ufffe\ufffe\ufffe\ufffe\ufffe\ufffe\ufffe\ufffe\ufffe\ufffe\ufffe\ufffe\ufffe\ufffe\ufffe\ufffe\ufffe\ufffe\ufffe\ufffe\ufffe\ufffe\ufffe\ufffe\ufffe\ufffe\ufffe\ufffe\ufffe\ufffe\ufffe\ufffe\ufffe\ufffe\ufffe\ufffe\ufffe\ufffe\ufffe\ufffe\ufffe\ufffe\ufffe\ufffe\ufffe\ufffe\ufffe\ufffe\ufffe\ufffe\ufffe\ufffe\ufffe\ufffe\ufffe\ufffe\ufffe"
    ),
    "tis620": (
        "\x80\x81\x82\x83\x84\x85\x86\x87\x88\x89\x8a\x8b\x8c\x8d\x8e\x8f\x90\x91\x92\x93\x94\x95\x96\x97\x98\x99\x9a\x9b\x9c\x9d\x9e\x9f\ufffeกขฃคฅฆงจฉชซฌญฎฏฐฑฒณดตถทธนบปผฝพฟ"
        "ภมยรฤลฦวศษสหฬอฮฯะัาำิีึืฺุู\ufffe\ufffe\ufffe\ufffe฿เแโใไๅๆ็่้๊๋์ํ๎๏๐๑๒๓๔๕๖๗๘๙๚๛\ufffe\ufffe\ufffe\ufffe"
    ),
}

#: The charset with a lower half other than ASCII.
_SWE7 = {
    0x40: "É",
    0x5B: "Ä",
    0x5C: "Ö",
    0x5D: "Å",
    0x5E: "Ü",
    0x60: "é",
    0x7B: "ä",
    0x7C: "ö",
    0x7D: "å",
    0x7E: "ü",
    0x7F: "\ufffe",
}

#: Multi-byte charsets: Python's codec and replacements for a few characters.
_NEARLY = {
    "sjis": ("shift_jis", {"＼": "\\"}),
    "ujis": ("euc_jp", {"＼": "\\"}),
    "eucjpms": ("euc_jp", {"〜": "～", "‖": "∥", "−": "－", "¢": "￠", "£": "￡", "¬": "￢", "¦": "￤"}),
    "gb18030": ("gb18030", {"\ue7c7": "ḿ", "ḿ": "\ue7c7"}),
    "big5": ("big5", {}),
    "cp932": ("cp932", {}),
}
#: Codes that Python decodes but the server lacks, and codes that are duplicates in Python.
_NONE = {
    "big5": ("╴￣ˍ／＼十卅", (b"\xa1\x5a", b"\xa1\xc3", b"\xa1\xc5", b"\xa1\xfe", b"\xa2\x40", b"\xa2\xcc", b"\xa2\xce")),
    "cp932": ("\x80\uf8f0\uf8f1\uf8f2\uf8f3", (b"\x80", b"\xa0", b"\xfd", b"\xfe", b"\xff")),
}
#: Characters that Python's codec lacks: runs from a byte sequence on.

_MORE = {
    "big5": {b"\xf9\xd6": "碁銹裏墻恒粧嫺"},
    "ujis": {},
    "eucjpms": {
        b"\x8f\xf3\xf3": "ⅰⅱⅲⅳⅴⅵⅶⅷⅸⅹⅠⅡ",
        b"\x8f\xf4\xa1": "ⅢⅣⅤⅥⅦⅧⅨⅩ\uff07\uff02㈱№℡炻仼僴凬匇匤\ufa0e咊坙\ufa0f\ufa10增寬峵嵓\ufa11德悅愠敎昻晥\ufa12\uf929栁\ufa13\ufa14橫櫢淸淲瀨\ufa15\ufa16甁皂皞\ufa17礰\ufa18\ufa19\ufa1a\ufa1b竧\ufa1c\ufa1d綠緖\ufa1e荢\ufa1f薰\ufa20\ufa21蠇\ufa22譿賴赶\ufa23\ufa24\ufa25郞\ufa26鄕\ufa27\ufa28閒\uf9dc\ufa29霻靍靑\ufa2a\ufa2b\ufa2c馞髙魲\ufa2d黑",
        b"\xad\xa1": "①②③④⑤⑥⑦⑧⑨⑩⑪⑫⑬⑭⑮⑯⑰⑱⑲⑳ⅠⅡⅢⅣⅤⅥⅦⅧⅨⅩ",
        b"\xad\xc0": "㍉㌔㌢㍍㌘㌧㌃㌶㍑㍗㌍㌦㌣㌫㍊㌻㎜㎝㎞㎎㎏㏄㎡",
        b"\xad\xdf": "㍻〝〟№㏍℡㊤㊥㊦㊧㊨㈱㈲㈹㍾㍽㍼≒≡∫∮∑√⊥∠∟⊿∵∩∪",
    },
}


#: Charsets with multi-byte ASCII, and their minimum bytes per character.
WIDE = {"ucs2": 2, "utf16": 2, "utf16le": 2, "utf32": 4}
#: Charsets with complete Unicode, encoded as in Python, and charsets without the 4-byte UTF-8 characters.
_UNICODE = {**{name: _CODECS[name] for name in ("utf8mb4", "utf16", "utf16le", "utf32")}, "gb18030": "gb18030"}
_SHORT_UNICODE = {"utf8": "utf-8", "utf8mb3": "utf-8", "ucs2": "utf-16-be"}
#: Characters that the servers write but then read differently or not at all.
_ONE_WAY = {"cp932": {"晡": b"\xfa\xd7"}, "big5": {"\ufffd": b"\xa2\xce"}, "tis620": {"\ufffd": b"\xff"}}


@lru_cache(maxsize=1)
def _by_id() -> dict[int, str]:
    found = {}
    for charset, text in _COLLATIONS.items():
        for part in text.split():
            first, _, last = part.partition("-")
            for number in range(int(first), int(last or first) + 1):
                found[number] = charset
    return found


@lru_cache(maxsize=512)
def charset_of(collation: int, flavor: str = "") -> str:
    """Return the charset of a collation.

    Raises:
        UnsupportedError: the collation is unknown.
    """
    charset = _by_id().get(collation)
    if charset is None:
        raise UnsupportedError(
            f"collation {collation} is unknown", remedy="A newer server has it: use a version of the library that knows it."
        )
    return charset


@lru_cache(maxsize=64)
def codec_of(charset: str | None) -> str | None:
    """Return the Python codec that decodes a charset like the server; None for bytes.

    Raises:
        UnsupportedError: the charset is unknown.
    """
    if charset is None or charset == "binary":
        return None
    name = charset.lower()
    if name in _CODECS:
        return _CODECS[name]
    if name in _UPPER_HALVES or name in _NEARLY or name in _OWN:
        return f"canal_{name}"
    raise UnsupportedError(f"character set {charset!r} is unknown")


@lru_cache(maxsize=64)
def utf8_table(charset: str) -> bytes:
    """Return the UTF-8 of each byte in a single-byte charset: length, then bytes padded to 3. Length 0: no character.

    Empty for other charsets.
    """
    codec = codec_of(charset)
    if codec is None or charset.lower() in MAX_CHAR_BYTES:
        return b""
    table = b""
    for byte in range(256):
        try:
            text = bytes([byte]).decode(codec).encode()
        except UnicodeDecodeError:
            text = b""
        table += bytes([len(text)]) + text.ljust(3, b"\0")
    return table


def encoded(text: str, charset: str) -> bytes:
    """Encode text like the servers, with "?" for a missing character."""
    if text.isascii() and charset not in WIDE and charset != "swe7":
        return text.encode()
    if charset in _UNICODE:
        if charset in _NEARLY:  # two characters replace each other in both directions
            text = text.translate({ord(one): other for one, other in _NEARLY[charset][1].items()})
        return text.encode(_UNICODE[charset])
    if charset in _SHORT_UNICODE:
        return "".join(char if char <= "\uffff" else "?" for char in text).encode(_SHORT_UNICODE[charset])
    codes = _codes(charset)
    return b"".join([codes.get(char, b"?") for char in text])


@lru_cache(maxsize=8)
def _codes(charset: str) -> dict[str, bytes]:
    """Return the code of each character; for duplicates the code that servers write."""
    codec = codec_of(charset)
    assert codec is not None
    all_codes = [bytes([one]) for one in range(256)]
    if charset in MAX_CHAR_BYTES:
        leads = sorted(range(0x80, 0x100), key=lambda lead: charset == "cp932" and lead in (0xED, 0xEE))  # NEC's codes last
        all_codes += [bytes([lead, trail]) for lead in leads for trail in range(0x30, 0x100)]
    if MAX_CHAR_BYTES.get(charset) == 3:
        all_codes += [bytes([0x8F, lead, trail]) for lead in range(0xA1, 0xFF) for trail in range(0xA1, 0xFF)]
    found = dict(_ONE_WAY.get(charset, {}))
    for code in all_codes:
        with contextlib.suppress(UnicodeDecodeError):
            text = code.decode(codec)
            if len(text) == 1:
                found.setdefault(text, code)
    return found


def label_text(label: bytes, charset: str) -> str:
    """Decode a label of an ENUM or SET. For undecodable bytes see ``schema.is_sure``."""
    try:
        return label.decode(codec_of(charset) or "utf-8")
    except UnicodeDecodeError:
        return unsure_label(label)


def lenient_text(data: bytes, codec: str) -> str:
    """Decode names and statements, which must not stop the stream. Invalid bytes become surrogates."""
    try:
        return data.decode(codec)
    except UnicodeDecodeError:
        return data.decode("utf-8", "surrogateescape")


# -- codecs ------------------------------------------------------------------------------------------------------------

Decode = Callable[[bytes, str], tuple[str, int]]


def _find(name: str) -> codecs.CodecInfo | None:
    """Look up ``canal_…`` codecs for Python's codec registry."""
    prefix, _, charset = name.partition("_")
    if prefix != "canal":
        return None
    if charset in _OWN:
        decode: Decode = _OWN[charset]
    elif charset in _UPPER_HALVES:
        decode = _single_byte(charset)
    elif charset in _NEARLY:
        decode = _multi_byte(charset)
    else:
        return None
    return codecs.CodecInfo(_encode, decode, name=name)  # type: ignore[arg-type]


def _encode(text: str, errors: str = "strict") -> tuple[bytes, int]:
    raise UnsupportedError("this codec only decodes")


def _single_byte(charset: str) -> Decode:
    lower = "".join(_SWE7.get(number, chr(number)) if charset == "swe7" else chr(number) for number in range(128))
    table = lower + _UPPER_HALVES[charset]

    def decode(data: bytes, errors: str = "strict") -> tuple[str, int]:
        return codecs.charmap_decode(data, errors, table)

    return decode


def _multi_byte(charset: str) -> Decode:
    base, changes = _NEARLY[charset]
    translation = str.maketrans(changes)
    suspects, none = _NONE.get(charset, ("", ()))
    handler = f"canal_{charset}"
    codecs.register_error(handler, lambda error: _one_more(charset, error))

    def decode(data: bytes, errors: str = "strict") -> tuple[str, int]:
        # Characters that Python lacks must be translated separately. FULLWIDTH TILDE has two codes; Python reads this code as "~". 8F
        # always begins a character.
        whole = bytes(data).replace(b"\x8f\xa2\xb7", b"\xa1\xc1") if charset == "eucjpms" else bytes(data)
        text = whole.decode(base, handler)
        if suspects and not text.isascii() and any(one in text for one in suspects):
            _refuse(base, whole, none)
        return (text.translate(translation) if changes else text), len(data)

    return decode


def _refuse(base: str, data: bytes, none: tuple[bytes, ...]) -> None:
    """Raise UnicodeDecodeError if a code from ``none`` occurs at a character boundary."""
    at = 0
    while at < len(data):
        lead = data[at : at + 1]
        single = lead < b"\x80" or base == "cp932" and (b"\xa0" <= lead <= b"\xdf" or lead in none)
        code = lead if single else data[at : at + 2]
        if code in none:
            raise UnicodeDecodeError(base, data, at, at + len(code), "the server has no such character")
        at += len(code)


def _one_more(charset: str, error: UnicodeError) -> tuple[str, int]:
    """Return a character that only the server has, or raise the error again."""
    assert isinstance(error, UnicodeDecodeError)
    data, start = error.object, error.start
    for size in (3, 2) if data[start] == 0x8F else (2,):
        sequence = data[start : start + size]
        found = _lookup(charset, sequence) if len(sequence) == size else None
        if found is not None:
            return found, start + size
    raise error


def _lookup(charset: str, sequence: bytes) -> str | None:
    if charset in ("ujis", "eucjpms") and 0xF5 <= sequence[-2] <= 0xFE and 0xA1 <= sequence[-1] <= 0xFE:
        private = 0xE000 if len(sequence) == 2 else 0xE3AC
        return chr(private + (sequence[-2] - 0xF5) * 94 + sequence[-1] - 0xA1)
    for first, run in _MORE.get(charset, {}).items():
        index = sequence[-1] - first[-1]
        if first[:-1] == sequence[:-1] and 0 <= index < len(run):
            return run[index]
    return None


def _decode_ucs2(data: bytes, errors: str = "strict") -> tuple[str, int]:
    """Decode UCS-2. Unlike in UTF-16, surrogate pairs are invalid."""
    text = bytes(data).decode("utf-16-be", errors)
    if len(text) * 2 != len(data):
        raise UnicodeDecodeError("ucs2", bytes(data), 0, len(data), "surrogates")
    return text, len(data)


#: Letters, digits, or the number of another character.
_FILENAME = re.compile(rb"(?:[0-9A-Za-z_]|@[0-9a-f]{4})*")


def _decode_filename(data: bytes, errors: str = "strict") -> tuple[str, int]:
    """Decode file name encoding. Letters outside Latin are unsupported: servers use a table for them."""
    raw = bytes(data)
    end = _FILENAME.match(raw).end()  # type: ignore[union-attr]
    if end < len(raw):
        raise UnicodeDecodeError("filename", raw, end, end + 1, "a character that is not known here")
    return re.sub("@(....)", lambda found: chr(int(found[1], 16)), raw.decode("ascii")), len(data)


_OWN: dict[str, Decode] = {"ucs2": _decode_ucs2, "filename": _decode_filename}

codecs.register(_find)
