cimport cython
from canal.model.entry cimport Entry
from canal.model.table cimport TableMap
from canal.model.transaction cimport Transaction
from canal.formats cimport arrow_c
from canal.rows cimport native, wire
from canal.rows.decoder cimport Cursor, Image, RowDecoder

cdef int _OTHER_TEXT, _OBJECTS, _SKIP, _VARIABLE
cdef Py_ssize_t _NOWHERE, _BLOCK, _JOINED, _SMALL, _MAX_TEXT
cdef long long _EPOCH_DAYS, _DATETIME_ZERO, _MILLION
cdef dict _SIZES
cdef tuple _TEXTS

@cython.final
cdef class ColumnBuilder:
    cdef RowDecoder decoder
    cdef Py_ssize_t i, param, size, used, limit, longest
    cdef readonly Py_ssize_t rows, nulls
    cdef readonly str name
    cdef int kind
    cdef bint is_json, takes_bytes
    cdef readonly bint is_text
    cdef bytes extra, ends
    cdef readonly bytearray values, valid, data
    cdef readonly list objects, exact

    @cython.locals(kind=int)
    cdef int _kind(self, int kind, param, extra, direct) except -3
    @cython.locals(end=Py_ssize_t)
    cdef int _label_kind(self, labels) except -3
    cdef append(self, bytearray cells, Py_ssize_t first, Py_ssize_t stride, Py_ssize_t count, data)
    @cython.locals(c="const unsigned char*", p="const unsigned char*", to="unsigned char*", kind=int, size=Py_ssize_t,
                   extra=bytes, groups="const unsigned char*", group_count=Py_ssize_t, pos=Py_ssize_t, n=Py_ssize_t,
                   start=Py_ssize_t, end=Py_ssize_t, good=bint, value="long long", micros=int, day="long long",
                   month="long long", year="long long", second="long long")
    cdef _append_fixed(self, bytearray cells, Py_ssize_t first, Py_ssize_t stride, Py_ssize_t count, data)
    @cython.locals(c="const unsigned char*", p="const unsigned char*", to="unsigned char*", d="unsigned char*", kind=int,
                   table="const unsigned char*", ends="const unsigned char*", labels=Py_ssize_t, room=Py_ssize_t,
                   used=Py_ssize_t, n=Py_ssize_t, start=Py_ssize_t, end=Py_ssize_t, size=Py_ssize_t,
                   number=Py_ssize_t)
    cdef _append_texts(self, bytearray cells, Py_ssize_t first, Py_ssize_t stride, Py_ssize_t count, data)
    @cython.locals(c="const unsigned char*", p="const unsigned char*", decoder=RowDecoder, n=Py_ssize_t, start=Py_ssize_t,
                   raw=bytes)
    cdef _append_others(self, bytearray cells, Py_ssize_t first, Py_ssize_t stride, Py_ssize_t count, data)
    @cython.locals(n=Py_ssize_t)
    cdef extend(self, list values)
    @cython.locals(raw=bytes)
    cdef _put(self, Py_ssize_t row, value)
    cdef bint _takes(self, value) except -1
    @cython.locals(n=Py_ssize_t)
    cdef pad(self, Py_ssize_t count)
    cdef close(self)
    cpdef part(self)
    @cython.locals(p="const unsigned char*", decoder=RowDecoder, raw=bytes)
    cdef _odd(self, Py_ssize_t row, data, Py_ssize_t start, Py_ssize_t end)
    @cython.locals(valid="unsigned char*")
    cdef void _null(self, Py_ssize_t row) noexcept
    @cython.locals(rows=Py_ssize_t, size=Py_ssize_t)
    cdef _reserve(self, Py_ssize_t count)
    cdef _reserve_data(self, Py_ssize_t size)
    cdef _check_limit(self)

@cython.final
cdef class Images:
    cdef readonly Py_ssize_t rows
    cdef Py_ssize_t width, block, filled
    cdef bytearray cells
    cdef readonly bytearray numbers
    cdef readonly tuple columns
    cdef readonly list absent

    cdef Py_ssize_t number(self, tuple absent) except -1
    @cython.locals(p="const unsigned char*", c="unsigned char*", widths="const unsigned char*", slots="const unsigned char*",
                   plain=bint, nulls=Py_ssize_t, end=Py_ssize_t, pos=Py_ssize_t, first=Py_ssize_t, slot=Py_ssize_t,
                   i=Py_ssize_t, size=Py_ssize_t)
    cdef int measure(self, Image image, Py_ssize_t number, bytes data, Cursor at, Py_ssize_t shift) except -1
    @cython.locals(c="unsigned char*", first=Py_ssize_t, slot=Py_ssize_t)
    cdef _clear(self)
    @cython.locals(count=Py_ssize_t, slot=Py_ssize_t, column=ColumnBuilder)
    cdef follow(self, Images other)
    @cython.locals(slot=Py_ssize_t, size=Py_ssize_t, column=ColumnBuilder)
    cdef flush(self, data, bint partial)
    @cython.locals(slot=Py_ssize_t, column=ColumnBuilder)
    cdef extend(self, list images)
    @cython.locals(slot=Py_ssize_t, column=ColumnBuilder)
    cdef close(self)

@cython.final
cdef class ChangeColumns:
    cdef RowDecoder decoder
    cdef readonly Images images, before
    cdef readonly bytearray op, order, entry
    cdef readonly list kept
    cdef int entries
    cdef bytearray joined
    cdef Py_ssize_t joined_size

    @cython.locals(table=TableMap, entry=Entry, before=Py_ssize_t, rows=Py_ssize_t)
    cpdef extend(self, entries)
    @cython.locals(decoder=RowDecoder, at=Cursor, before=Image, after=Image, new=Images, old=Images, paired=bint,
                   partial=bint, small=bint, shift=Py_ssize_t, size=Py_ssize_t, before_number=Py_ssize_t, after_number=Py_ssize_t, rows=Py_ssize_t)
    cdef Py_ssize_t _add(self, bytes data, Py_ssize_t pos, Py_ssize_t end, int kind, long long first) except -1
    cdef _decode(self, data, bint partial)
    cdef _flush(self)
    cdef _add_json(self, Images old, Images new, list rows)
    @cython.locals(before=Py_ssize_t, count=Py_ssize_t, ops="unsigned char*", orders="unsigned char*",
                   entries="unsigned char*", n=Py_ssize_t)
    cdef _tell(self, Py_ssize_t rows, Py_ssize_t images, int op, long long first)
    cpdef close(self)

@cython.locals(groups=dict, group=list, entry=Entry, table=TableMap)
cpdef list by_schema(entries)
@cython.locals(names=list, last=Transaction, name=bytes, entry=Entry)
cpdef list transaction_names(entries)
@cython.locals(p="const unsigned char*", count=Py_ssize_t, total=Py_ssize_t, n=Py_ssize_t, end=Py_ssize_t, text=bytes,
               width=Py_ssize_t, done=Py_ssize_t, more=Py_ssize_t, offsets=bytearray, data=bytearray, to="unsigned char*",
               d="unsigned char*", used=Py_ssize_t)
cpdef tuple repeated(list texts, numbers, int size)
@cython.locals(end=Py_ssize_t)
cdef Py_ssize_t _end_of_run(const unsigned char* p, Py_ssize_t n, Py_ssize_t count, int size) noexcept
@cython.locals(root="arrow_c.ArrowArray*", i=Py_ssize_t, nulls=Py_ssize_t)
cpdef hand_over(take, Py_ssize_t rows, list parts, kind)
cdef object short()
@cython.locals(to="unsigned char*", end=Py_ssize_t)
cdef _set_bits(bytearray bits, Py_ssize_t first, Py_ssize_t count)
cdef bint is_date(long long year, long long month, long long day) noexcept
@cython.locals(era="long long", of_era="long long", of_year="long long")
cdef long long days(long long year, long long month, long long day) noexcept
@cython.locals(size=Py_ssize_t, value="long long")
cdef int micros_of(const unsigned char* p, Py_ssize_t start, Py_ssize_t end) noexcept
@cython.locals(bits=int, packed="unsigned long long", half="unsigned long long", negative=bint, whole="unsigned long long",
               micros="unsigned long long", seconds="long long", value="long long")
cdef bint put_time(unsigned char* to, Py_ssize_t pos, const unsigned char* p, Py_ssize_t start, Py_ssize_t size) noexcept
