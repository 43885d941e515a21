# The compiled form of put.py: inline functions, so that put.py itself is never compiled.
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

from canal.rows.native cimport canal_powers, copy, put_decimal

cdef extern from "Python.h":
    char* PyOS_double_to_string(double value, char code, int precision, int flags, int* kind) except NULL
    void PyMem_Free(void* text)

cdef extern from *:
    """
    static const char canal_hex[] = "0123456789abcdef";
    static const char canal_base64[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    static const char canal_pairs[] =
        "00010203040506070809101112131415161718192021222324252627282930313233343536373839404142434445464748495051525354"
        "5556575859606162636465666768697071727374757677787980818283848586878889909192939495969798" "99";

    /* Whether one of eight bytes is below 0x20, a quote or a backslash; or above 0x7E, if the text is to be ASCII. */
    static inline int canal_is_special(uint64_t v, int ascii) {
        const uint64_t ones = 0x0101010101010101ULL, tops = 0x8080808080808080ULL;
        uint64_t quotes = v ^ ones * '"', slashes = v ^ ones * '\\\\', deletes = v ^ ones * 0x7F;
        uint64_t found = ((v - ones * 0x20) | (quotes - ones) | (slashes - ones)) & ~v;
        if (ascii) found |= v | ((deletes - ones) & ~deletes);
        return (found & tops) != 0;
    }

    static inline uint8_t *canal_put_unit(uint8_t *to, uint32_t unit) {
        *to++ = '\\\\'; *to++ = 'u';
        *to++ = canal_hex[unit >> 12]; *to++ = canal_hex[unit >> 8 & 15];
        *to++ = canal_hex[unit >> 4 & 15]; *to++ = canal_hex[unit & 15];
        return to;
    }

    static inline uint8_t *canal_put_string(uint8_t *to, const uint8_t *p, const uint8_t *end, int ascii) {
        uint64_t eight;
        uint32_t c;
        *to++ = '"';
        while (p < end) {
            if (end - p >= 8) {
                memcpy(&eight, p, 8);
                if (!canal_is_special(eight, ascii)) {
                    memcpy(to, &eight, 8);
                    to += 8; p += 8;
                    continue;
                }
            }
            c = *p;
            if (c >= 0x20 && c != '"' && c != '\\\\' && (c < 0x7F || !ascii)) { *to++ = (uint8_t)c; p++; continue; }
            if (c < 0x80) {
                p++;
                switch (c) {
                case '"': case '\\\\': *to++ = '\\\\'; *to++ = (uint8_t)c; break;
                case 8: *to++ = '\\\\'; *to++ = 'b'; break;
                case 9: *to++ = '\\\\'; *to++ = 't'; break;
                case 10: *to++ = '\\\\'; *to++ = 'n'; break;
                case 12: *to++ = '\\\\'; *to++ = 'f'; break;
                case 13: *to++ = '\\\\'; *to++ = 'r'; break;
                default: to = canal_put_unit(to, c);
                }
            } else if (c < 0xE0) {
                to = canal_put_unit(to, (c & 31) << 6 | (p[1] & 63)); p += 2;
            } else if (c < 0xF0) {
                to = canal_put_unit(to, (c & 15) << 12 | (p[1] & 63u) << 6 | (p[2] & 63u)); p += 3;
            } else {
                c = ((c & 7) << 18 | (p[1] & 63u) << 12 | (p[2] & 63u) << 6 | (p[3] & 63u)) - 0x10000;
                to = canal_put_unit(canal_put_unit(to, 0xD800 | c >> 10), 0xDC00 | (c & 0x3FF)); p += 4;
            }
        }
        *to++ = '"';
        return to;
    }

    static inline uint8_t *canal_put_base64(uint8_t *to, const uint8_t *p, Py_ssize_t size) {
        uint32_t three;
        for (; size >= 3; size -= 3, p += 3) {
            three = (uint32_t)p[0] << 16 | (uint32_t)p[1] << 8 | p[2];
            *to++ = canal_base64[three >> 18]; *to++ = canal_base64[three >> 12 & 63];
            *to++ = canal_base64[three >> 6 & 63]; *to++ = canal_base64[three & 63];
        }
        if (size) {
            three = (uint32_t)p[0] << 16 | (size > 1 ? (uint32_t)p[1] << 8 : 0);
            *to++ = canal_base64[three >> 18]; *to++ = canal_base64[three >> 12 & 63];
            *to++ = size > 1 ? canal_base64[three >> 6 & 63] : '='; *to++ = '=';
        }
        return to;
    }

    static inline uint8_t *canal_put_pair(uint8_t *to, int value) {
        memcpy(to, canal_pairs + 2 * value, 2);
        return to + 2;
    }
    """
    uint8_t* canal_put_string(uint8_t* to, const uint8_t* p, const uint8_t* end, bint ascii) nogil
    uint8_t* canal_put_base64(uint8_t* to, const uint8_t* p, Py_ssize_t size) nogil
    uint8_t* canal_put_pair(uint8_t* to, int value) nogil

cdef enum:
    OTHER
    INTEGER, QUOTED_INTEGER
    ASCII_TEXT, UTF8_TEXT
    DECIMAL_TEXT, DECIMAL_NUMBER, DECIMAL_BASE64
    MOMENT, DAY, EPOCH
    BASE64, REAL, LABELS
    AVRO_LONG, AVRO_TEXT, AVRO_BYTES, AVRO_DECIMAL, AVRO_MOMENT, AVRO_EPOCH, AVRO_REAL

cdef enum:
    TEXT, LITERAL, ORD, NUMBER, ZIGZAG, AFTER, BEFORE, CHANGED, KEY, KEY_BEFORE, PRESENT, LAST, BINARY

cdef enum:
    OPTIONAL = 128

cdef enum:
    DIGITS = 7
    MIDDLE_T = 8
    IN_UTC = 16
    WITH_ZONE = 32
    WITH_Z = 64

cdef enum:
    MICROS, MILLIS, NANOS, DAYS

cdef enum:
    QUOTED = 1
    LIKE_JAVA = 2

cdef inline Py_ssize_t unsigned(uint8_t* to, Py_ssize_t at, uint64_t value) noexcept nogil:
    cdef uint8_t digits[24]
    cdef Py_ssize_t first = 24
    while value >= 100:
        first -= 2
        canal_put_pair(digits + first, value % 100)
        value //= 100
    if value >= 10:
        first -= 2
        canal_put_pair(digits + first, value)
    else:
        first -= 1
        digits[first] = <uint8_t>(48 + value)
    memcpy(to + at, digits + first, 24 - first)
    return at + 24 - first

cdef inline Py_ssize_t integer(uint8_t* to, Py_ssize_t at, int64_t value) noexcept nogil:
    if value < 0:
        to[at] = 45
        return unsigned(to, at + 1, -<uint64_t>value)
    return unsigned(to, at, value)

cdef inline Py_ssize_t zigzag(uint8_t* to, Py_ssize_t at, int64_t value) noexcept nogil:
    cdef uint64_t left = <uint64_t>value << 1
    if value < 0:
        left = ~left
    while left > 127:
        to[at] = <uint8_t>(left & 127 | 128)
        left >>= 7
        at += 1
    to[at] = <uint8_t>left
    return at + 1

cdef inline Py_ssize_t ascii_string(uint8_t* to, Py_ssize_t at, const uint8_t* p, Py_ssize_t start, Py_ssize_t end) noexcept nogil:
    return canal_put_string(to + at, p + start, p + end, True) - to

cdef inline Py_ssize_t utf8_string(uint8_t* to, Py_ssize_t at, const uint8_t* p, Py_ssize_t start, Py_ssize_t end) noexcept nogil:
    return canal_put_string(to + at, p + start, p + end, False) - to

cdef inline Py_ssize_t base64(uint8_t* to, Py_ssize_t at, const uint8_t* p, Py_ssize_t start, Py_ssize_t end) noexcept nogil:
    return canal_put_base64(to + at, p + start, end - start) - to

cdef inline Py_ssize_t moment(uint8_t* to, Py_ssize_t at, int year, int month, int day, int second, int micros, int form) noexcept nogil:
    cdef int digits = form & DIGITS
    cdef uint8_t fraction[6]
    cdef uint8_t* end = canal_put_pair(canal_put_pair(to + at, year // 100), year % 100)
    end[0] = 45
    end = canal_put_pair(end + 1, month)
    end[0] = 45
    end = canal_put_pair(end + 1, day)
    if second < 0:
        return end - to
    end[0] = 84 if form & MIDDLE_T else 32
    end = canal_put_pair(end + 1, second // 3600)
    end[0] = 58
    end = canal_put_pair(end + 1, second // 60 % 60)
    end[0] = 58
    end = canal_put_pair(end + 1, second % 60)
    if digits == 7:
        digits = 6 if micros else 0
    if digits:
        end[0] = 46
        canal_put_pair(canal_put_pair(canal_put_pair(fraction, micros // 10000), micros // 100 % 100), micros % 100)
        memcpy(end + 1, fraction, digits)
        end += 1 + digits
    return end - to

cdef inline Py_ssize_t real(uint8_t* to, Py_ssize_t at, double value) except -1:
    # A number of up to 15 digits, three of them behind the point, has no shorter text.
    cdef double scaled = value * 1000
    cdef int64_t whole
    cdef int rest
    cdef char* text
    cdef Py_ssize_t size = 0
    if 1 <= scaled < 1e15 or -1e15 < scaled <= -1:
        whole = <int64_t>scaled
        if whole / 1000.0 == value:
            if whole < 0:
                to[at] = 45
                at += 1
                whole = -whole
            at = unsigned(to, at, whole // 1000)
            rest = whole % 1000
            to[at] = 46
            to[at + 1] = <uint8_t>(48 + rest // 100)
            canal_put_pair(to + at + 2, rest % 100)
            if rest % 10:
                return at + 4
            return at + 3 if rest % 100 else at + 2
    text = PyOS_double_to_string(value, 114, 0, 2, NULL)
    while text[size]:
        size += 1
    memcpy(to + at, text, size)
    PyMem_Free(text)
    return at + size

cdef inline Py_ssize_t decimal(uint8_t* to, Py_ssize_t at, const uint8_t* p, Py_ssize_t start, const uint8_t* groups,
                               Py_ssize_t count, Py_ssize_t scale) noexcept nogil:
    # 65 digits at most.
    cdef uint8_t digits[96]
    cdef uint64_t value
    cdef Py_ssize_t i, j, size, width, length = 0, whole, first = 0
    cdef bint negative = not p[start] & 0x80
    for i in range(count):
        size = groups[2 * i]
        width = groups[2 * i + 1]
        value = 0
        for j in range(size):
            value = value << 8 | p[start + j]
        if i == 0:
            value ^= <uint64_t>0x80 << (8 * (size - 1))
        if negative:
            value = ~value & ((<uint64_t>1 << (8 * size)) - 1)
        if value >= canal_powers[width]:
            return -1
        start += size
        length += width
        j = length
        while width > 1:
            width -= 2
            j -= 2
            canal_put_pair(digits + j, value % 100)
            value //= 100
        if width:
            digits[j - 1] = <uint8_t>(48 + value)
    whole = length - scale
    if negative:
        to[at] = 45
        at += 1
    while first < whole and digits[first] == 48:
        first += 1
    if first == whole:
        to[at] = 48
        at += 1
    memcpy(to + at, digits + first, whole - first)
    at += whole - first
    if scale > 0:
        to[at] = 46
        memcpy(to + at + 1, digits + whole, scale)
        at += 1 + scale
    return at

cdef inline Py_ssize_t unscaled(uint8_t* to, Py_ssize_t at, const uint8_t* p, Py_ssize_t start, const uint8_t* groups,
                                Py_ssize_t count) noexcept nogil:
    cdef uint8_t little[32]
    cdef uint8_t sign
    cdef Py_ssize_t size = 32
    if not put_decimal(little, 0, 32, p, start, groups, count):
        return -1
    sign = little[31] >> 7
    while size > 1 and little[size - 1] == (0xFF if sign else 0) and little[size - 2] >> 7 == sign:
        size -= 1
    while size:
        size -= 1
        to[at] = little[size]
        at += 1
    return at
