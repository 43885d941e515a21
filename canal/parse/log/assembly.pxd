cimport cython
from canal.binlog cimport event_layout as layout
from canal.model.entry cimport Entry, new_entry
from canal.model.transaction cimport Transaction, new_transaction
from canal.parse.log.gtid_run cimport GtidRun
from canal.parse.log.tape cimport Tape
from canal.rows cimport wire

cdef object _BEGIN, _END, _ROWDATA, _QUERY
cdef bytes _TABLE
cdef const unsigned char* _NEXT
cdef int _MOVES, _REFUSED, _BETWEEN, _XA, _RELEASED
cdef int _ANNOUNCE, _BEGUN, _RELEASE, _ENDED

@cython.final
cdef class Assembly:
    cdef object _deliver, _look_ahead, _continuity, _xa_mark
    cdef readonly long long piece_bytes
    cdef readonly Py_ssize_t piece_entries
    cdef str _source, _skip_gtid
    cdef readonly GtidRun run
    cdef readonly Tape tape
    cdef readonly Transaction txn
    cdef public long long pending_bytes
    cdef list _out
    cdef Py_ssize_t _open_at
    cdef long long _out_bytes, _skip_later, _skip_timestamp, _skip_server
    cdef unsigned long long _done_to
    cdef readonly dict savepoints
    cdef public tuple prepared
    cdef public list known
    cdef public bint leaves_out, is_doubtful, is_replay, may_undo
    cdef readonly int state
    cdef readonly list undone
    cdef public list taken_back
    cdef readonly long long undone_row
    cdef public long long part, ordinal, transaction_count, timestamp
    cdef readonly long long skip

    cpdef reset(self, object position, str source, object executed, Tape tape, object continuity)
    @cython.locals(state=int)
    cpdef int move(self, int move) except -1
    cpdef begin_group(self, long long start, object source, unsigned long long number)
    @cython.locals(txn=Transaction)
    cdef Transaction begin(self, const unsigned char* p, long long start, str journal, str incarnation)
    cdef _check_begin(self, Transaction txn)
    cdef bint _is_skipped(self, Transaction txn) except -1
    @cython.locals(txn=Transaction, entry=Entry)
    cdef Transaction open(self, const unsigned char* p, Py_ssize_t size, long long start, str journal, str incarnation)
    cpdef add(self, Entry entry)
    @cython.locals(entry=Entry)
    cdef _hand_piece(self)
    cdef _relieve(self)
    cpdef set_savepoint(self, str name)
    @cython.locals(txn=Transaction)
    cpdef undo(self, savepoint)
    cdef _begin_undone(self, object found)
    cpdef mark_undone(self, Entry entry, long long row)
    @cython.locals(entry=Entry, kept=list)
    cdef _leave_out_rows(self, long long ordinal, long long row)
    cpdef let_go(self)
    cpdef keep(self, list entries)
    @cython.locals(txn=Transaction, entry=Entry)
    cdef finish(self, const unsigned char* p, Py_ssize_t size, long long start, long long end)
    cpdef mark_xa(self, str what, str xid)
    @cython.locals(txn=Transaction)
    cpdef finish_with(self, Entry entry, long long end)
    cdef _check_skipped(self, Transaction txn)
    cdef _end(self, Transaction txn, Entry entry, long long end)
    cpdef drop(self)
    cdef _close(self)
    cdef _pass_on(self)
    @cython.locals(whole=Py_ssize_t, entries=list)
    cpdef flush(self)
