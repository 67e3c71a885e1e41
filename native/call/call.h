/* The executor's call path, libaoti_call.so: an extension module in disguise.
 *
 * It does what a CPython extension would do, built-in functions and capsules included, but it includes no
 * Python.h, links to no libpython and has no PyInit function: one built library serves every Python 3, so the
 * wheel is one for all of them. Python's functions, like the host's, arrive as pointers. The price is that
 * aoti_executor.native repeats these structs with ctypes; layout.c says where their members lie, and the
 * executor compares before it uses any. Add a member in all three places.
 *
 * It exports no aoti_torch_* name, so it can live in a process beside any host. */
#ifndef AOTI_CALL_H
#define AOTI_CALL_H

#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#define EXPORT __attribute__((visibility("default")))

typedef void *tensor;

enum {
    CALL_OK = 0,
    CALL_CLOSED = 1,     /* the gate was closed: nothing ran */
    CALL_RUN_FAILED = 2, /* the container returned `code` */
    CALL_BAD_INPUT = 3,  /* the host returned `code` for input `index` */
    CALL_BAD_OUTPUT = 4, /* the host returned `code` for output `index` */
    CALL_NO_FIT = 5,     /* output `index` does not fit its destination */
    CALL_BUSY = 6,       /* this very call is in progress, or its memory is gone */
    CALL_INSIDE = 7,     /* this thread is inside the container already: it would wait for itself */
};

/* Readers are runs; the writer changes the active constants or closes. The lock prefers writers, so that a
 * stream of runs cannot keep an update waiting for ever.
 *
 * It is only ever held inside one function of this library: no handler of Python's runs meanwhile, and no
 * exception can leave it locked. */
struct gate {
    pthread_rwlock_t lock;
    atomic_int closed;
    atomic_int inside; /* threads that hold the lock or wait for it; a child of fork sees who is lost */
};

/* A gate that this thread holds, on the stack of the function that took it. */
struct held {
    struct gate *gate;
    struct held *outer;
};

struct host {
    int32_t (*create_from_blob)(void *, int64_t, const int64_t *, const int64_t *, int64_t, int32_t, int32_t,
                                int32_t, tensor *, int32_t, const uint8_t *, int64_t);
    int32_t (*new_handle)(tensor, tensor *); /* may be NULL */
    int32_t (*delete_tensor)(tensor);
    int32_t (*get_data_ptr)(tensor, void **);
    int32_t (*get_dim)(tensor, int64_t *);
    int32_t (*get_sizes)(tensor, int64_t **);
    int32_t (*get_strides)(tensor, int64_t **);
    int32_t (*get_dtype)(tensor, int32_t *);
    int32_t (*get_device_type)(tensor, int32_t *);
    int32_t (*get_device_index)(tensor, int32_t *);
};

#define MAX_DIMENSIONS 64

struct description {
    void *data;
    int64_t ndim;
    int32_t dtype;
    int32_t device_type;
    int32_t device_index;
    int32_t reserved;
    int64_t sizes[MAX_DIMENSIONS];
    int64_t strides[MAX_DIMENSIONS];
};

struct target { /* what every call of one container shares */
    const struct host *host;
    struct gate *gate;
    int32_t (*run)(void *, tensor *, size_t, tensor *, size_t, void *, void *);
    void *container;
    int (*omp_get_max_threads)(void); /* NULL if the plugin has no OpenMP code */
    void (*omp_set_num_threads)(int);
    int64_t max_threads; /* 0: no limit */
    const void *image;   /* where the plugin is mapped: results that lie in it are copied */
    size_t image_size;
    size_t num_inputs;
    size_t num_outputs;
};

struct layout {
    int64_t ndim;
    const int64_t *sizes;
    const int64_t *strides; /* elements */
    int64_t nbytes;         /* from the first to the last byte that the layout touches */
    int32_t dtype;
    int32_t itemsize;
    int32_t device_type;
    int32_t device_index;
};

enum { IN_PLUGIN = -2 }; /* memory of the plugin itself, which goes with it */

struct output {
    tensor handle;
    void *data;
    int32_t alias; /* the input whose memory it lies in, -1, or IN_PLUGIN */
    int32_t same;  /* the earlier output slot with the same handle, or -1 */
};

struct call {
    const struct target *target;
    const struct layout *inputs; /* num_inputs */
    void **data;                 /* num_inputs */
    tensor *handles;             /* num_inputs + num_outputs: scratch */
    struct output *outputs;      /* num_outputs; filled on success */
    void *stream;
    void *proxy;
    int32_t code;
    int32_t reserved;
    int64_t index;
};

struct bound {
    struct call call;
    tensor *templates;            /* num_inputs handles that each run copies; NULL entries are made anew */
    const struct layout *targets; /* num_outputs */
    void **destinations;          /* num_outputs; NULL: that output is dropped */
    atomic_int busy;
};

/* Runs; on success every slot of call->outputs is filled and its distinct handles belong to the caller. */
EXPORT int aoti_call_run(struct call *call);
/* Runs and copies each output to its destination; nothing is left to free. */
EXPORT int aoti_call_run_bound(struct bound *bound);

/* The C functions of Python that are needed (python.c). */
struct python {
    int (*ensure_gil)(void);
    void (*release_gil)(int);
    void (*decref)(void *);
    int (*is_finalizing)(void);
    int (*capsule_is_valid)(void *, const char *);
    void *(*capsule_get_pointer)(void *, const char *);
    void *(*capsule_get_context)(void *);
    void *(*capsule_new)(void *, const char *, void (*)(void *));
    int (*capsule_set_context)(void *, void *);
    void *(*save_thread)(void);
    void (*restore_thread)(void *);
    void *(*long_from_long)(long);
};
extern struct python python;

/* dlpack.h, as far as it is used. */
struct dl_device {
    int32_t type, id;
};
struct dl_tensor { /* DLTensor of dlpack.h */
    void *data;
    struct dl_device device;
    int32_t ndim;
    uint8_t code, bits;
    uint16_t lanes;
    int64_t *shape;
    int64_t *strides;
    uint64_t byte_offset;
};
struct dl_managed { /* DLManagedTensor */
    struct dl_tensor tensor;
    void *context;
    void (*deleter)(struct dl_managed *);
};
struct dl_versioned { /* DLManagedTensorVersioned */
    uint32_t major, minor;
    void *context;
    void (*deleter)(struct dl_versioned *);
    uint64_t flags;
    struct dl_tensor tensor;
};

#endif
