# https://arrow.apache.org/docs/format/CDataInterface.html
from libc.stdint cimport int64_t

cdef extern from *:
    """
    #ifndef CANAL_ARROW_C
    #define CANAL_ARROW_C

    struct ArrowArray {
        int64_t length, null_count, offset, n_buffers, n_children;
        const void **buffers;
        struct ArrowArray **children, *dictionary;
        void (*release)(struct ArrowArray *);
        void *private_data;
    };

    typedef struct { const void *buffers[3]; PyObject *owners[3]; } canal_column;

    /* Whoever has an array calls these, on any thread, with the interpreter's lock or without. */
    static void canal_release_column(struct ArrowArray *array) {
        canal_column *own = (canal_column *)array->private_data;
        if (Py_IsInitialized()) {
            PyGILState_STATE state = PyGILState_Ensure();
            for (int i = 0; i < 3; i++) Py_XDECREF(own->owners[i]);
            PyGILState_Release(state);
        }
        free(own);
        array->release = NULL;
    }

    static void canal_release_struct(struct ArrowArray *array) {
        for (int64_t i = 0; i < array->n_children; i++) {
            struct ArrowArray *child = array->children[i];
            if (child->release != NULL) child->release(child);
        }
        free(array->private_data);
        array->release = NULL;
    }

    /* A struct array of so many columns, none of which is there yet. One block holds its parts. */
    static struct ArrowArray *canal_new_struct(int64_t rows, int64_t count) {
        struct ArrowArray *root = (struct ArrowArray *)calloc(1, sizeof *root);
        const size_t size = sizeof(void *) * (1 + (size_t)count) + sizeof *root * (size_t)count;
        char *block = root == NULL ? NULL : (char *)calloc(1, size);
        if (block == NULL) {
            free(root);
            return NULL;
        }
        root->length = rows;
        root->n_buffers = 1;
        root->buffers = (const void **)block;
        root->n_children = count;
        root->children = (struct ArrowArray **)(block + sizeof(void *));
        struct ArrowArray *columns = (struct ArrowArray *)(root->children + count);
        for (int64_t i = 0; i < count; i++) root->children[i] = &columns[i];
        root->private_data = block;
        root->release = canal_release_struct;
        return root;
    }

    static void canal_end_struct(struct ArrowArray *root) {
        if (root->release != NULL) root->release(root);
        free(root);
    }

    /* Bytearrays, of which nobody changes one any more, or None. */
    static int canal_fill(struct ArrowArray *root, int64_t i, int64_t nulls, PyObject *valid, PyObject *values, PyObject *data) {
        struct ArrowArray *array = root->children[i];
        canal_column *own = (canal_column *)calloc(1, sizeof *own);
        if (own == NULL) return -1;
        PyObject *given[3] = {valid, values, data};
        for (int k = 0; k < 3; k++) {
            if (given[k] == Py_None) continue;
            own->owners[k] = Py_NewRef(given[k]);
            own->buffers[k] = PyByteArray_AS_STRING(given[k]);
        }
        array->length = root->length;
        array->null_count = nulls;
        array->n_buffers = data == Py_None ? 2 : 3;
        array->buffers = own->buffers;
        array->private_data = own;
        array->release = canal_release_column;
        return 0;
    }
    #endif
    """
    struct ArrowArray:
        ArrowArray** children

    ArrowArray* new_struct "canal_new_struct"(int64_t rows, int64_t count)
    void end_struct "canal_end_struct"(ArrowArray* root)
    int fill "canal_fill"(ArrowArray* root, int64_t i, int64_t nulls, valid, values, data)

cdef inline size_t address(ArrowArray* array) noexcept:
    return <size_t>array

cdef inline size_t child(ArrowArray* root, Py_ssize_t i) noexcept:
    return <size_t>root.children[i]
