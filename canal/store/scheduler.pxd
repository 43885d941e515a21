cdef extern from "sched.h" nogil:
    int sched_yield()

cdef inline int give_way() except -1:
    with nogil:
        sched_yield()
    return 0
