# The compiled form of wire.py: inline functions, so that wire.py itself is never compiled.
from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcmp, memcpy

cdef extern from *:
    """
    #if !defined(__BYTE_ORDER__) || __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
    #error "big-endian machines run the interpreted build"
    #endif
    """
    uint16_t __builtin_bswap16(uint16_t) nogil
    uint32_t __builtin_bswap32(uint32_t) nogil

cdef inline uint64_t u16(const uint8_t* p, Py_ssize_t i) noexcept nogil:
    cdef uint16_t v
    memcpy(&v, p + i, 2)
    return v

cdef inline uint64_t u24(const uint8_t* p, Py_ssize_t i) noexcept nogil:
    return u16(p, i) | <uint64_t>p[i + 2] << 16

cdef inline uint64_t u32(const uint8_t* p, Py_ssize_t i) noexcept nogil:
    cdef uint32_t v
    memcpy(&v, p + i, 4)
    return v

cdef inline uint64_t u48(const uint8_t* p, Py_ssize_t i) noexcept nogil:
    return u32(p, i) | u16(p, i + 4) << 32

cdef inline uint64_t u64(const uint8_t* p, Py_ssize_t i) noexcept nogil:
    cdef uint64_t v
    memcpy(&v, p + i, 8)
    return v

cdef inline uint64_t be16(const uint8_t* p, Py_ssize_t i) noexcept nogil:
    cdef uint16_t v
    memcpy(&v, p + i, 2)
    return __builtin_bswap16(v)

cdef inline uint64_t be24(const uint8_t* p, Py_ssize_t i) noexcept nogil:
    return <uint64_t>p[i] << 16 | be16(p, i + 1)

cdef inline uint64_t be32(const uint8_t* p, Py_ssize_t i) noexcept nogil:
    cdef uint32_t v
    memcpy(&v, p + i, 4)
    return __builtin_bswap32(v)

cdef inline uint64_t be40(const uint8_t* p, Py_ssize_t i) noexcept nogil:
    return <uint64_t>p[i] << 32 | be32(p, i + 1)

cdef inline uint64_t be48(const uint8_t* p, Py_ssize_t i) noexcept nogil:
    return be16(p, i) << 32 | be32(p, i + 2)

cdef inline uint64_t be_any(const uint8_t* p, Py_ssize_t i, Py_ssize_t n) noexcept nogil:
    cdef uint64_t value = 0
    cdef Py_ssize_t end = i + n
    while i < end:
        value = value << 8 | p[i]
        i += 1
    return value

cdef inline bint same(const uint8_t* p, Py_ssize_t i, const uint8_t* q, Py_ssize_t j, Py_ssize_t n) noexcept nogil:
    return memcmp(p + i, q + j, n) == 0

cdef inline const uint8_t* part(const uint8_t* p, Py_ssize_t i, Py_ssize_t end) noexcept nogil:
    return p + i

cdef inline bytes piece(const uint8_t* p, Py_ssize_t i, Py_ssize_t end):
    return PyBytes_FromStringAndSize(<const char*>p + i, end - i)
