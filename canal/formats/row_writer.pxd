cimport cython
from canal.formats cimport columnar, put
from canal.model.entry cimport Entry
from canal.rows cimport native, wire
from canal.rows.decoder cimport Cursor, Image, RowDecoder

cdef int _ABSENT, _NULL, _TEXT, _BYTES, _OTHER, _SKIP, _VARIABLE
cdef Py_ssize_t _NOWHERE, _MISSING, _ROOM, _KEPT, _LABELS_KEPT
cdef long long _DATETIME_ZERO, _MILLION, _DAY, _EPOCH_DAYS, _MOST_MICROS

@cython.final
cdef class Buffer:
    cdef bytearray data
    cdef Py_ssize_t used
    cdef int reserve(self, Py_ssize_t size) except -1
    @cython.locals(size=Py_ssize_t)
    cdef int add(self, bytes text) except -1
    cdef bytes take(self, Py_ssize_t start)
    cdef clear(self)

@cython.final
cdef class Side:
    cdef Buffer buffer
    cdef bytearray spans, flags

@cython.final
cdef class Program:
    cdef bytes steps
    cdef tuple arguments
    cdef Py_ssize_t count

@cython.final
cdef class Messages:
    cdef tuple same, moved, suffixes

@cython.final
cdef class RowWriter:
    cdef tuple names, styles, sources, keys, others, labels
    cdef readonly RowDecoder decoder
    cdef list makes, extras, pieces, marks, columns
    cdef bytes null, comma, zone, scales, ops, params, kinds, slots
    cdef Py_ssize_t members, count, width
    cdef bint nulls, is_whole, has_before, has_after, is_fixed
    cdef long long offset
    cdef public long long total
    cdef Side before, after
    cdef Buffer out
    cdef bytearray cells

    cdef _follow(self, RowDecoder decoder)
    cpdef load(self, before, after)
    @cython.locals(j=Py_ssize_t)
    cdef _load(self, Side side, values)
    @cython.locals(spans="unsigned char*", flags="unsigned char*")
    cdef void _span(self, Side side, Py_ssize_t j, Py_ssize_t start, int flag) noexcept
    @cython.locals(start=Py_ssize_t)
    cdef _make(self, Side side, Py_ssize_t j, value)
    @cython.locals(c="const unsigned char*", slots="const unsigned char*", j=Py_ssize_t, slot=Py_ssize_t, start=Py_ssize_t)
    cdef int _read(self, Side side, Image image, bytes data, Cursor at) except -1
    @cython.locals(p="const unsigned char*", c="unsigned char*", widths="const unsigned char*", slots="const unsigned char*",
                   plain=bint, nulls=Py_ssize_t, end=Py_ssize_t, pos=Py_ssize_t, slot=Py_ssize_t, i=Py_ssize_t, size=Py_ssize_t)
    cdef int _measure(self, Image image, bytes data, Cursor at) except -1
    @cython.locals(p="const unsigned char*", to="unsigned char*", buffer=Buffer, first=Py_ssize_t, op=int, kind=int, flag=int,
                   pos=Py_ssize_t, groups=bytes, ops="const unsigned char*", value=double)
    cdef int _piece(self, Side side, Py_ssize_t j, bytes data, Py_ssize_t start, Py_ssize_t end) except -1
    @cython.locals(p="const unsigned char*", to="unsigned char*", pos=Py_ssize_t, form=int, groups=bytes)
    cdef Py_ssize_t _avro(self, Side side, Py_ssize_t j, bytes data, Py_ssize_t start, Py_ssize_t end, int op, int kind) except -2
    @cython.locals(decoder=RowDecoder)
    cdef object _value(self, Py_ssize_t j, bytes data, Py_ssize_t start, Py_ssize_t end)
    @cython.locals(decoder=RowDecoder)
    cdef double _single(self, Py_ssize_t j, bytes data, Py_ssize_t start, Py_ssize_t end) except? -1
    @cython.locals(size=double)
    cdef Py_ssize_t _real(self, unsigned char* to, Py_ssize_t pos, double value, int form) except -2
    @cython.locals(p="const unsigned char*", number="unsigned long long", first=Py_ssize_t)
    cdef _label(self, Side side, Py_ssize_t j, bytes data, Py_ssize_t start, Py_ssize_t end)
    @cython.locals(second="long long", micros=int, year="long long", month="long long", day="long long", days="long long", value="long long",
                   era="long long", of_era="long long", of_year="long long", zone="const unsigned char*")
    cdef Py_ssize_t _temporal(self, unsigned char* to, Py_ssize_t pos, const unsigned char* p, Py_ssize_t start, Py_ssize_t end,
                              int op, int kind, int form) except -2
    @cython.locals(out=Buffer)
    cpdef lines(self, Entry entry, Messages messages, list literals)
    @cython.locals(found=list)
    cpdef messages(self, Entry entry, Messages messages, list literals)
    @cython.locals(out=Buffer)
    cpdef line(self, Messages messages, list literals, long long ord, long long first)
    @cython.locals(found=list)
    cpdef change(self, Messages messages, list literals, long long ord, long long first)
    @cython.locals(decoder=RowDecoder, data=bytes, at=Cursor, before=Image, after=Image, first="long long", skip="long long",
                   n="long long")
    cdef bint _entry(self, Entry entry, Messages messages, list literals, list found) except -1
    @cython.locals(out=Buffer, plan=tuple, moved=int, is_moved=bint, i=Py_ssize_t, to="unsigned char*")
    cdef bint _change(self, Messages messages, list literals, long long ord, long long first, list found) except -1
    @cython.locals(old="const unsigned char*", new="const unsigned char*", j=Py_ssize_t, lacking=bint)
    cdef bint _lacks(self) noexcept
    @cython.locals(old="const unsigned char*", new="const unsigned char*", j=Py_ssize_t)
    cdef int _moved(self) except -2
    @cython.locals(p="const unsigned char*", q="const unsigned char*", start=Py_ssize_t, other=Py_ssize_t, size=Py_ssize_t,
                   one="const unsigned char*", two="const unsigned char*")
    cdef bint _is_same(self, Py_ssize_t j) noexcept
    @cython.locals(out=Buffer, steps="const unsigned char*", i=Py_ssize_t, step=int)
    cdef bint _write(self, Program program, list literals, long long ord, long long first) except -1
    @cython.locals(out=Buffer, flags="const unsigned char*", new="const unsigned char*", some=bint, j=Py_ssize_t, flag=int)
    cdef int _members(self, Side side, int changed) except -1
    @cython.locals(out=Buffer, spans="const unsigned char*", start=Py_ssize_t, size=Py_ssize_t)
    cdef int _add(self, Side side, Py_ssize_t j, int flag) except -1
    @cython.locals(out=Buffer, side=Side, some=bint, i=Py_ssize_t, j=Py_ssize_t, flag=int, names=tuple, keys=tuple, is_whole=bint)
    cdef bint _key(self, bint is_after, tuple argument) except -1
    @cython.locals(out=Buffer, flags="const unsigned char*", lacking=bint, j=Py_ssize_t)
    cdef _present(self, argument)
    @cython.locals(old="const unsigned char*", new="const unsigned char*", j=Py_ssize_t, is_text=bint, has_before=bint, has_after=bint,
                   some=bint)
    cdef _binary(self, int images)

@cython.locals(value="long long")
cdef long long _number(const unsigned char* p, Py_ssize_t start, int kind) noexcept
