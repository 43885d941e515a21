# The compiled form of native.py: inline functions, so that native.py itself is never compiled.
from cpython.datetime cimport PyDateTimeAPI, import_datetime
from cpython.datetime cimport date_new as _date_new, datetime_new as _datetime_new, timedelta_new as _timedelta_new
from cpython.object cimport PyObject
from cpython.ref cimport Py_INCREF
from cpython.tuple cimport PyTuple_New, PyTuple_SET_ITEM
from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset

from canal.rows.wire cimport be16, be24, be32, be_any, u16, u24, u32, u64

cdef extern from "Python.h":
    str PyUnicode_FromStringAndSize(const char* text, Py_ssize_t size)
    str PyUnicode_New(Py_ssize_t size, Py_UCS4 most)
    void* PyUnicode_DATA(object text)
    int PyByteArray_Resize(object buffer, Py_ssize_t size) except -1
    void PyObject_GC_UnTrack(void* tracked)

cdef extern from *:
    """
    static const uint32_t canal_powers[] = {
        1, 10, 100, 1000, 10000, 100000, 1000000, 10000000, 100000000, 1000000000
    };

    /* What CPython's _decimal makes, where canal_decimal_fits says so: coefficients below 10^18 are one word. */
    typedef struct {
        PyObject_HEAD
        Py_hash_t hash;
        uint8_t flags;  /* 1: negative; 16 and 32: libmpdec frees neither it nor its words */
        Py_ssize_t exponent, digits, length, room;
        uint64_t *words;
        uint64_t own[4];
    } canal_decimal;

    static PyTypeObject *canal_decimal_type;
    static PyObject *canal_decimal_make;

    /* number: Decimal("-12345.678"); without it decimals are made of their text. */
    static void canal_decimal_setup(PyObject *make, PyObject *number) {
        canal_decimal *d = (canal_decimal *)number;
        Py_XSETREF(canal_decimal_make, Py_NewRef(make));
        if (sizeof(void *) == 8 && Py_TYPE(number)->tp_basicsize == sizeof(canal_decimal) && d->flags == 49 && d->exponent == -3
                && d->digits == 8 && d->length == 1 && d->room == 4 && d->words == d->own && d->own[0] == 12345678)
            canal_decimal_type = Py_TYPE(number);
    }

    static PyObject *canal_decimal_new(int negative, uint64_t value, Py_ssize_t exponent) {
        canal_decimal *d = (canal_decimal *)canal_decimal_type->tp_alloc(canal_decimal_type, 0);
        uint64_t left = value;
        if (d == NULL) return NULL;
        d->hash = -1;
        d->flags = 48 | (negative != 0);
        d->exponent = exponent;
        for (d->digits = 0; left >= 10000; d->digits += 4) left /= 10000;
        d->digits += 1 + (left >= 10) + (left >= 100) + (left >= 1000);
        d->length = 1;
        d->room = 4;
        d->words = d->own;
        d->own[0] = value;
        return (PyObject *)d;
    }

    /* The text of UTF-8 that was checked, by the number of its characters and the highest byte that begins one. */
    static PyObject *canal_utf8(const uint8_t *p, Py_ssize_t size, Py_ssize_t characters, uint8_t highest) {
        const uint8_t *end = p + size;
        PyObject *text = PyUnicode_New(characters, highest < 0xC4 ? 0xFF : highest < 0xF0 ? 0xFFFF : 0x10FFFF);
        if (text == NULL) return NULL;
        if (highest < 0xC4) {
            Py_UCS1 *to = PyUnicode_1BYTE_DATA(text);
            for (; p < end; p++) *to++ = *p < 0x80 ? *p : (Py_UCS1)((*p & 3) << 6 | (p[1] & 63)), p += *p >= 0x80;
        } else if (highest < 0xF0) {
            Py_UCS2 *to = PyUnicode_2BYTE_DATA(text);
            while (p < end) {
                if (*p < 0x80) *to++ = *p++;
                else if (*p < 0xE0) *to++ = (Py_UCS2)((*p & 31) << 6 | (p[1] & 63)), p += 2;
                else *to++ = (Py_UCS2)((*p & 15) << 12 | (p[1] & 63) << 6 | (p[2] & 63)), p += 3;
            }
        } else {
            Py_UCS4 *to = PyUnicode_4BYTE_DATA(text);
            while (p < end) {
                if (*p < 0x80) *to++ = *p++;
                else if (*p < 0xE0) *to++ = (*p & 31u) << 6 | (p[1] & 63u), p += 2;
                else if (*p < 0xF0) *to++ = (*p & 15u) << 12 | (p[1] & 63u) << 6 | (p[2] & 63u), p += 3;
                else *to++ = (*p & 7u) << 18 | (p[1] & 63u) << 12 | (p[2] & 63u) << 6 | (p[3] & 63u), p += 4;
            }
        }
        return text;
    }
    """
    const uint32_t* canal_powers
    str canal_utf8(const uint8_t* p, Py_ssize_t size, Py_ssize_t characters, uint8_t highest)
    PyObject* canal_decimal_type
    PyObject* canal_decimal_make
    void canal_decimal_setup(object make, object number)
    object canal_decimal_new(bint negative, uint64_t value, Py_ssize_t exponent)

cdef enum:
    NULL
    I8, U8, I16, U16, I24, U24, I32, U32, I64, U64
    UTF8, ASCII, CODEC, BYTES, PADDED
    FLOAT, DOUBLE, DECIMAL, YEAR, DATE, DATETIME, TIMESTAMP, TIME
    ENUM, SET, NUMBER, BIT, JSON, UUID, INET6, INET4
    OLD_TIME, OLD_DATETIME, OLD_TIMESTAMP, HIRES_TIME, HIRES_DATETIME, HIRES_TIMESTAMP
    JSON_DIFFS, JSON_TEXT, COMPRESSED, MASKED

cdef inline setup():
    from canal.rows import native

    import_datetime()
    canal_decimal_setup(native.make_decimal, native.make_decimal("-12345.678"))

cdef inline tuple tuple_new(Py_ssize_t size, bint leaf):
    cdef tuple made = PyTuple_New(size)
    if leaf:
        PyObject_GC_UnTrack(<void*>made)  # as the collector itself does when it meets one of these
    return made

cdef inline void tuple_set(tuple values, Py_ssize_t slot, object value) noexcept:
    Py_INCREF(value)
    PyTuple_SET_ITEM(values, slot, value)

cdef inline tuple tuple_done(tuple values):
    return values

cdef inline object date_new(int year, int month, int day):
    return _date_new(year, month, day)

cdef inline object datetime_new(int year, int month, int day, int hour, int minute, int second, int micro, object zone):
    return _datetime_new(year, month, day, hour, minute, second, micro, zone)

cdef inline object timedelta_new(int seconds, int micros):
    return _timedelta_new(0, seconds, micros)

cdef inline double single(double value) noexcept nogil:
    return <float>value

cdef inline int64_t i32(const uint8_t* p, Py_ssize_t i) noexcept nogil:
    cdef int32_t v
    memcpy(&v, p + i, 4)
    return v

cdef inline int64_t i64(const uint8_t* p, Py_ssize_t i) noexcept nogil:
    cdef int64_t v
    memcpy(&v, p + i, 8)
    return v

cdef inline uint64_t le_any(const uint8_t* p, Py_ssize_t i, Py_ssize_t n) noexcept nogil:
    cdef uint64_t value = 0
    cdef Py_ssize_t at = i + n
    if n == 1:
        return p[i]
    if n == 2:
        return u16(p, i)
    while at > i:
        at -= 1
        value = value << 8 | p[at]
    return value

cdef inline double f32(const uint8_t* p, Py_ssize_t i) noexcept nogil:
    cdef float v
    memcpy(&v, p + i, 4)
    return v

cdef inline double f64(const uint8_t* p, Py_ssize_t i) noexcept nogil:
    cdef double v
    memcpy(&v, p + i, 8)
    return v

cdef inline double to_f32(double value) noexcept nogil:
    return <float>value

cdef inline bint is_ascii(const uint8_t* p, Py_ssize_t start, Py_ssize_t end) noexcept nogil:
    cdef uint64_t eight, seen = 0
    cdef uint32_t four
    cdef Py_ssize_t left = end - start
    if left >= 8:
        while end - start > 8:
            memcpy(&eight, p + start, 8)
            seen |= eight
            start += 8
        memcpy(&eight, p + end - 8, 8)
        seen |= eight
    elif left >= 4:
        memcpy(&four, p + start, 4)
        seen = four
        memcpy(&four, p + end - 4, 4)
        seen |= four
    else:
        while start < end:
            seen |= p[start]
            start += 1
    return not seen & <uint64_t>0x8080808080808080ULL

cdef inline str ascii_text(const uint8_t* p, Py_ssize_t start, Py_ssize_t end):
    # One character at most is one of Python's own texts.
    if end - start < 2:
        return PyUnicode_FromStringAndSize(<const char*>p + start, end - start)
    text = PyUnicode_New(end - start, 127)
    memcpy(PyUnicode_DATA(text), p + start, end - start)
    return text

cdef inline str decimal_text(const uint8_t* p, Py_ssize_t start, const uint8_t* groups, Py_ssize_t count, Py_ssize_t scale):
    # 81 digits at most (65 in rows, 81 in JSON), as the callers check: sign, "0", digits and point fit.
    cdef char text[96]
    cdef char digits[96]
    cdef Py_ssize_t length = 0, at = 0, i, j, size, width, whole
    cdef uint64_t value, mask
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
            mask = (<uint64_t>1 << (8 * size)) - 1
            value = ~value & mask
        start += size
        j = length + width
        length = j
        while width > 0:
            j -= 1
            width -= 1
            digits[j] = <char>(48 + value % 10)
            value //= 10
        if value != 0:
            return None
    whole = length - scale
    if negative:
        text[at] = 45
        at += 1
    i = 0
    while i < whole and digits[i] == 48:
        i += 1
    if i == whole:
        text[at] = 48
        at += 1
    memcpy(text + at, digits + i, whole - i)
    at += whole - i
    if scale > 0:
        text[at] = 46
        at += 1
        memcpy(text + at, digits + whole, scale)
        at += scale
    return PyUnicode_FromStringAndSize(text, at)

cdef inline object decimal_new(const uint8_t* p, Py_ssize_t start, const uint8_t* groups, Py_ssize_t count, Py_ssize_t scale):
    cdef uint64_t value, coefficient = 0
    cdef Py_ssize_t i, at = start, size, width, digits = 0
    cdef bint negative = not p[start] & 0x80
    for i in range(count):
        digits += groups[2 * i + 1]
    if digits > 18 or not canal_decimal_type:
        text = decimal_text(p, start, groups, count, scale)
        return None if text is None else (<object>canal_decimal_make)(text)
    for i in range(count):
        size = groups[2 * i]
        width = groups[2 * i + 1]
        if size == 4:
            value = be32(p, at)
        elif size == 1:
            value = p[at]
        elif size == 2:
            value = be16(p, at)
        else:
            value = be24(p, at)
        if i == 0:
            value ^= <uint64_t>0x80 << (8 * (size - 1))
        if negative:
            value = ~value & ((<uint64_t>1 << (8 * size)) - 1)
        if value >= canal_powers[width]:
            return None
        coefficient = coefficient * canal_powers[width] + value
        at += size
    return canal_decimal_new(negative, coefficient, -scale)

cdef inline bint put_decimal(uint8_t* to, Py_ssize_t at, Py_ssize_t width, const uint8_t* p, Py_ssize_t start,
                             const uint8_t* groups, Py_ssize_t count) noexcept nogil:
    # Groups have nine digits at most, so all that is added and multiplied here fits into 62 bits; limbs are 32 bits each.
    cdef uint32_t limbs[8]
    cdef uint64_t value, carry
    cdef Py_ssize_t i, k, size, used = 0
    cdef bint negative = not p[start] & 0x80
    memset(limbs, 0, 32)
    for i in range(count):
        size = groups[2 * i]
        value = be_any(p, start, size)
        if i == 0:
            value ^= <uint64_t>0x80 << (8 * (size - 1))
        if negative:
            value = ~value & ((<uint64_t>1 << (8 * size)) - 1)
        if value >= canal_powers[groups[2 * i + 1]]:
            return False
        start += size
        carry = value
        for k in range(used):
            carry += <uint64_t>limbs[k] * canal_powers[groups[2 * i + 1]]
            limbs[k] = <uint32_t>carry
            carry >>= 32
        if carry:
            limbs[used] = <uint32_t>carry
            used += 1
    if negative:
        carry = 1
        for k in range(8):
            carry += <uint32_t>~limbs[k]
            limbs[k] = <uint32_t>carry
            carry >>= 32
    memcpy(to + at, limbs, width)
    return True

cdef inline int resize(bytearray buffer, Py_ssize_t size) except -1:
    return PyByteArray_Resize(buffer, size)

cdef inline void put16(uint8_t* to, Py_ssize_t at, int64_t value) noexcept nogil:
    cdef uint16_t v = <uint16_t>value
    memcpy(to + at, &v, 2)

cdef inline void put32(uint8_t* to, Py_ssize_t at, int64_t value) noexcept nogil:
    cdef uint32_t v = <uint32_t>value
    memcpy(to + at, &v, 4)

cdef inline void put64(uint8_t* to, Py_ssize_t at, uint64_t value) noexcept nogil:
    memcpy(to + at, &value, 8)

cdef inline void copy(uint8_t* to, Py_ssize_t at, const uint8_t* p, Py_ssize_t start, Py_ssize_t size) noexcept nogil:
    # Most are short: two words that may overlap, without a call.
    cdef uint64_t first, last
    cdef uint32_t head, tail
    if 8 <= size <= 16:
        memcpy(&first, p + start, 8)
        memcpy(&last, p + start + size - 8, 8)
        memcpy(to + at, &first, 8)
        memcpy(to + at + size - 8, &last, 8)
    elif 4 <= size < 8:
        memcpy(&head, p + start, 4)
        memcpy(&tail, p + start + size - 4, 4)
        memcpy(to + at, &head, 4)
        memcpy(to + at + size - 4, &tail, 4)
    else:
        memcpy(to + at, p + start, size)

cdef inline void zero(uint8_t* to, Py_ssize_t at, Py_ssize_t size) noexcept nogil:
    memset(to + at, 0, size)

cdef inline bint is_utf8(const uint8_t* p, Py_ssize_t i, Py_ssize_t end) noexcept nogil:
    cdef uint8_t highest = 0
    return is_ascii(p, i, end) or utf8_length(p, i, end, &highest) >= 0

cdef inline Py_ssize_t utf8_length(const uint8_t* p, Py_ssize_t i, Py_ssize_t end, uint8_t* highest) noexcept nogil:
    # How many characters there are, -1 where it is no UTF-8; highest becomes the greatest byte that begins one.
    cdef uint64_t eight
    cdef uint8_t first, second, most = 0
    cdef Py_ssize_t characters = end - i
    while i < end:
        first = p[i]
        if first < 0x80:
            if end - i >= 8:
                memcpy(&eight, p + i, 8)
                if not eight & <uint64_t>0x8080808080808080ULL:
                    i += 8
                    continue
            i += 1
            continue
        if first < 0xC2 or first > 0xF4 or i + 1 >= end:
            return -1
        if first > most:
            most = first
        second = p[i + 1]
        if first < 0xE0:
            if second & 0xC0 != 0x80:
                return -1
            i += 2
            characters -= 1
        elif first < 0xF0:
            if second & 0xC0 != 0x80 or i + 2 >= end or p[i + 2] & 0xC0 != 0x80:
                return -1
            if first == 0xE0 and second < 0xA0 or first == 0xED and second > 0x9F:
                return -1
            i += 3
            characters -= 2
        else:
            if second & 0xC0 != 0x80 or i + 3 >= end or p[i + 2] & 0xC0 != 0x80 or p[i + 3] & 0xC0 != 0x80:
                return -1
            if first == 0xF0 and second < 0x90 or first == 0xF4 and second > 0x8F:
                return -1
            i += 4
            characters -= 3
    highest[0] = most
    return characters

cdef inline str utf8_text(const uint8_t* p, Py_ssize_t start, Py_ssize_t end):
    cdef uint8_t highest = 0
    cdef Py_ssize_t characters = utf8_length(p, start, end, &highest)
    if characters < 0:
        return None
    # One character at most is one of Python's own texts, and what is ASCII is copied.
    if characters < 2 or highest == 0:
        return PyUnicode_FromStringAndSize(<const char*>p + start, end - start)
    return canal_utf8(p + start, end - start, characters, highest)

cdef inline Py_ssize_t put_utf8(uint8_t* to, Py_ssize_t at, const uint8_t* p, Py_ssize_t start, Py_ssize_t end,
                                const uint8_t* table) noexcept nogil:
    cdef Py_ssize_t first = at, size
    cdef const uint8_t* one
    while start < end:
        one = table + 4 * <Py_ssize_t>p[start]
        size = one[0]
        if size == 0:
            return -1
        memcpy(to + at, one + 1, 3)  # room is for three
        at += size
        start += 1
    return at - first
