/* The executor's call helper: one foreign call for one run of a plugin.
 *
 * Python prepares a call once; from then on a run is a single function call that makes the input handles,
 * runs the container, looks at what came back and cleans up whatever a failure left behind. Nothing here
 * links to a host or to Python: every function it uses arrives as a pointer, and it exports no
 * aoti_torch_* name, so it can live in a process beside any host.
 *
 * Ownership follows torch/csrc/inductor/aoti_runtime: Run steals the input handles (it sets the entries it
 * took to NULL), outputs belong to the caller, one handle may come back in several output slots, and a slot
 * for None is left as it was. */

#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* pthread_rwlockattr_setkind_np */
#endif
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))

typedef void *tensor;

enum {
  CALL_OK = 0,
  CALL_CLOSED = 1,      /* the gate was closed: nothing ran */
  CALL_RUN_FAILED = 2,  /* the container returned `code` */
  CALL_BAD_INPUT = 3,   /* the host returned `code` for input `index` */
  CALL_BAD_OUTPUT = 4,  /* the host returned `code` for output `index` */
  CALL_NO_FIT = 5,      /* output `index` does not fit its destination */
  CALL_BUSY = 6,        /* another thread is inside this very call */
};

/* Readers are runs; the writer changes the active constants or closes. The lock prefers writers, so that a
 * stream of runs cannot keep an update waiting for ever. */
struct gate {
  pthread_rwlock_t lock;
  atomic_int closed;
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

struct output {
  tensor handle;
  void *data;
  int32_t alias; /* the input whose memory it lies in, or -1 */
  int32_t same;  /* the earlier output slot with the same handle, or -1 */
};

struct call {
  const struct target *target;
  const struct layout *inputs;  /* num_inputs */
  void **data;                  /* num_inputs */
  tensor *handles;              /* num_inputs + num_outputs: scratch */
  struct output *outputs;       /* num_outputs; filled on success */
  void *stream;
  void *proxy;
  int32_t code;
  int32_t reserved;
  int64_t index;
};

struct bound {
  struct call call;
  tensor *templates;             /* num_inputs handles that each run copies; NULL entries are made anew */
  const struct layout *targets;  /* num_outputs */
  void **destinations;           /* num_outputs; NULL: that output is dropped */
  atomic_int busy;
};

EXPORT int32_t aoti_call_version(void) { return 1; }

EXPORT struct gate *aoti_call_gate_new(void) {
  struct gate *gate = calloc(1, sizeof *gate);
  if (!gate) return NULL;
  pthread_rwlockattr_t attributes;
  pthread_rwlockattr_init(&attributes);
#ifdef __GLIBC__
  pthread_rwlockattr_setkind_np(&attributes, PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP);
#endif
  int error = pthread_rwlock_init(&gate->lock, &attributes);
  pthread_rwlockattr_destroy(&attributes);
  if (error) {
    free(gate);
    return NULL;
  }
  return gate;
}

EXPORT void aoti_call_gate_lock(struct gate *gate) { pthread_rwlock_wrlock(&gate->lock); }
EXPORT void aoti_call_gate_unlock(struct gate *gate) { pthread_rwlock_unlock(&gate->lock); }
/* Waits for the runs in progress; later ones return CALL_CLOSED. */
EXPORT void aoti_call_gate_close(struct gate *gate) {
  atomic_store(&gate->closed, 1);
  pthread_rwlock_wrlock(&gate->lock);
  pthread_rwlock_unlock(&gate->lock);
}
/* Only for a gate that no thread can reach any more. */
EXPORT void aoti_call_gate_free(struct gate *gate) {
  pthread_rwlock_destroy(&gate->lock);
  free(gate);
}

/* Delete each distinct handle of an output array once. */
static void delete_outputs(const struct host *host, tensor *handles, size_t count) {
  for (size_t i = 0; i < count; i++) {
    tensor handle = handles[i];
    if (!handle) continue;
    for (size_t j = i; j < count; j++)
      if (handles[j] == handle) handles[j] = NULL;
    host->delete_tensor(handle);
  }
}

/* Entries that a failed run did not take are still ours. */
static void delete_untaken(const struct host *host, tensor *inputs, size_t num_inputs, tensor *outputs,
                           size_t num_outputs) {
  for (size_t i = 0; i < num_inputs; i++) {
    tensor handle = inputs[i];
    if (!handle) continue;
    inputs[i] = NULL;
    /* A passed-through input may already stand in an output slot. */
    int shared = 0;
    for (size_t j = 0; j < num_outputs; j++) shared |= outputs[j] == handle;
    if (!shared) host->delete_tensor(handle);
  }
}

static int make_inputs(struct call *call, const tensor *templates) {
  const struct target *target = call->target;
  const struct host *host = target->host;
  for (size_t i = 0; i < target->num_inputs; i++) {
    const struct layout *in = &call->inputs[i];
    int32_t code;
    call->handles[i] = NULL;
    if (templates && templates[i])
      code = host->new_handle(templates[i], &call->handles[i]);
    else
      code = host->create_from_blob(call->data[i], in->ndim, in->sizes, in->strides, 0, in->dtype,
                                    in->device_type, in->device_index, &call->handles[i], 0, NULL, 0);
    if (code || !call->handles[i]) {
      call->code = code;
      call->index = (int64_t)i;
      delete_untaken(host, call->handles, i, NULL, 0);
      return CALL_BAD_INPUT;
    }
  }
  return CALL_OK;
}

/* The container's own lock lets runs overlap; ours keeps updates of the active constants out meanwhile. */
static int run_locked(struct call *call, const tensor *templates) {
  const struct target *target = call->target;
  tensor *outputs = call->handles + target->num_inputs;
  struct gate *gate = target->gate;

  if (atomic_load(&gate->closed)) return CALL_CLOSED;
  pthread_rwlock_rdlock(&gate->lock);
  if (atomic_load(&gate->closed)) {
    pthread_rwlock_unlock(&gate->lock);
    return CALL_CLOSED;
  }
  int status = make_inputs(call, templates);
  if (status == CALL_OK) {
    for (size_t i = 0; i < target->num_outputs; i++) outputs[i] = NULL;
    int before = 0;
    /* The number of threads is a property of the calling thread, so it is set where the run happens. */
    if (target->max_threads > 0 && target->omp_get_max_threads) {
      before = target->omp_get_max_threads();
      if (before > target->max_threads)
        target->omp_set_num_threads((int)target->max_threads);
      else
        before = 0;
    }
    call->code = target->run(target->container, call->handles, target->num_inputs, outputs,
                             target->num_outputs, call->stream, call->proxy);
    if (before) target->omp_set_num_threads(before);
    if (call->code) {
      delete_untaken(target->host, call->handles, target->num_inputs, outputs, target->num_outputs);
      delete_outputs(target->host, outputs, target->num_outputs);
      status = CALL_RUN_FAILED;
    }
  }
  pthread_rwlock_unlock(&gate->lock);
  return status;
}

static int32_t aliased_input(const struct call *call, const void *data) {
  uintptr_t at = (uintptr_t)data;
  for (size_t i = 0; i < call->target->num_inputs; i++) {
    uintptr_t start = (uintptr_t)call->data[i];
    if (at >= start && at - start < (uintptr_t)call->inputs[i].nbytes) return (int32_t)i;
  }
  return -1;
}

/* Run; on success every slot of call->outputs is filled and its distinct handles belong to the caller. */
EXPORT int aoti_call_run(struct call *call) {
  int status = run_locked(call, NULL);
  if (status != CALL_OK) return status;
  const struct target *target = call->target;
  tensor *outputs = call->handles + target->num_inputs;
  for (size_t i = 0; i < target->num_outputs; i++) {
    struct output *out = &call->outputs[i];
    out->handle = outputs[i];
    out->data = NULL;
    out->alias = -1;
    out->same = -1;
    if (!out->handle) continue;
    for (size_t j = 0; j < i && out->same < 0; j++)
      if (outputs[j] == out->handle) out->same = (int32_t)j;
    if (out->same >= 0) continue;
    call->code = target->host->get_data_ptr(out->handle, &out->data);
    if (call->code) {
      call->index = (int64_t)i;
      delete_outputs(target->host, outputs, target->num_outputs);
      return CALL_BAD_OUTPUT;
    }
    out->alias = aliased_input(call, out->data);
  }
  return CALL_OK;
}

/* Everything about a tensor in one call; 0, or the host's error code, or -1 for too many dimensions. */
EXPORT int aoti_call_describe(const struct host *host, tensor handle, struct description *to) {
  int64_t *sizes, *strides;
  int32_t code = host->get_dim(handle, &to->ndim);
  if (!code) code = host->get_dtype(handle, &to->dtype);
  if (!code) code = host->get_device_type(handle, &to->device_type);
  if (!code) code = host->get_device_index(handle, &to->device_index);
  if (!code) code = host->get_data_ptr(handle, &to->data);
  if (!code) code = host->get_sizes(handle, &sizes);
  if (!code) code = host->get_strides(handle, &strides);
  if (code) return code;
  if (to->ndim < 0 || to->ndim > MAX_DIMENSIONS) return -1;
  if (to->ndim) {
    memcpy(to->sizes, sizes, sizeof(int64_t) * (size_t)to->ndim);
    memcpy(to->strides, strides, sizeof(int64_t) * (size_t)to->ndim);
  }
  return 0;
}

static void copy_strided(char *to, const int64_t *to_strides, const char *from, const int64_t *from_strides,
                         const int64_t *sizes, int64_t ndim, int64_t itemsize) {
  if (ndim == 0) {
    memmove(to, from, (size_t)itemsize);
    return;
  }
  if (ndim == 1 && to_strides[0] == 1 && from_strides[0] == 1) {
    memmove(to, from, (size_t)(sizes[0] * itemsize));
    return;
  }
  for (int64_t i = 0; i < sizes[0]; i++)
    copy_strided(to + i * to_strides[0] * itemsize, to_strides + 1, from + i * from_strides[0] * itemsize,
                 from_strides + 1, sizes + 1, ndim - 1, itemsize);
}

/* Copy between host tensors of one shape, whatever their strides (elements). */
EXPORT void aoti_call_copy(void *to, const int64_t *to_strides, const void *from, const int64_t *from_strides,
                           const int64_t *sizes, int64_t ndim, int64_t itemsize) {
  for (int64_t i = 0; i < ndim; i++)
    if (sizes[i] == 0) return;
  copy_strided(to, to_strides, from, from_strides, sizes, ndim, itemsize);
}

static int64_t element_count(const struct layout *layout) {
  int64_t count = 1;
  for (int64_t i = 0; i < layout->ndim; i++) count *= layout->sizes[i];
  return count;
}

static int deliver(const struct host *host, tensor handle, const struct layout *want, void *to,
                   int32_t *code) {
  int64_t ndim, *sizes, *strides;
  int32_t dtype, device_type;
  void *data;
  if ((*code = host->get_dim(handle, &ndim)) || (*code = host->get_dtype(handle, &dtype)) ||
      (*code = host->get_sizes(handle, &sizes)) || (*code = host->get_strides(handle, &strides)) ||
      (*code = host->get_device_type(handle, &device_type)) || (*code = host->get_data_ptr(handle, &data)))
    return CALL_BAD_OUTPUT;
  if (ndim != want->ndim || dtype != want->dtype || device_type != 0 || want->device_type != 0)
    return CALL_NO_FIT;
  int dense = 1;
  for (int64_t i = 0; i < ndim; i++) {
    if (sizes[i] != want->sizes[i]) return CALL_NO_FIT;
    if (sizes[i] != 1 && strides[i] != want->strides[i]) dense = 0;
  }
  int64_t count = element_count(want);
  if (count == 0) return CALL_OK;
  if (dense && want->nbytes == count * want->itemsize)
    memmove(to, data, (size_t)want->nbytes);
  else
    copy_strided(to, want->strides, data, strides, sizes, ndim, want->itemsize);
  return CALL_OK;
}

/* Run and copy each output to its destination; nothing is left to free. */
EXPORT int aoti_call_run_bound(struct bound *bound) {
  int idle = 0;
  if (!atomic_compare_exchange_strong(&bound->busy, &idle, 1)) return CALL_BUSY;
  struct call *call = &bound->call;
  int status = run_locked(call, bound->templates);
  if (status == CALL_OK) {
    const struct target *target = call->target;
    tensor *outputs = call->handles + target->num_inputs;
    for (size_t i = 0; i < target->num_outputs && status == CALL_OK; i++) {
      if (!bound->destinations[i]) continue;
      status = CALL_NO_FIT;
      if (outputs[i])
        status = deliver(target->host, outputs[i], &bound->targets[i], bound->destinations[i], &call->code);
      if (status != CALL_OK) call->index = (int64_t)i;
    }
    delete_outputs(target->host, outputs, target->num_outputs);
  }
  atomic_store(&bound->busy, 0);
  return status;
}

/* ---- Python ------------------------------------------------------------------------------------------
 * Nothing links to Python: what is needed of it arrives as pointers. */

struct python {
  int (*ensure_gil)(void);
  void (*release_gil)(int);
  void (*decref)(void *);
  int (*is_finalizing)(void);
  int (*capsule_is_valid)(void *, const char *);
  void *(*capsule_get_pointer)(void *, const char *);
  void *(*save_thread)(void);
  void (*restore_thread)(void *);
  void *(*long_from_long)(long);
};
static struct python python;

EXPORT void aoti_call_set_python(const struct python *functions) { python = *functions; }

/* Methods for PyCFunction_New, whose `self` is a capsule over the prepared call: a foreign call through
 * ctypes costs several times what a small model's bookkeeping does. The GIL is released while they run. */
#define METHOD(name, type, function)                                                            \
  static void *name(void *self, void *unused) {                                                 \
    (void)unused;                                                                               \
    type *prepared = python.capsule_get_pointer(self, NULL);                                    \
    void *state = python.save_thread();                                                         \
    int status = function(prepared);                                                            \
    python.restore_thread(state);                                                               \
    return python.long_from_long(status);                                                       \
  }
METHOD(run_method, struct call, aoti_call_run)
METHOD(run_bound_method, struct bound, aoti_call_run_bound)

struct method_definition { /* PyMethodDef, part of Python's stable ABI */
  const char *name;
  void *(*function)(void *, void *);
  int flags;
  const char *documentation;
};
enum { NO_ARGUMENTS = 4 /* METH_NOARGS */ };
static struct method_definition methods[] = {
    {"run", run_method, NO_ARGUMENTS, NULL},
    {"run_bound", run_bound_method, NO_ARGUMENTS, NULL},
};
/* 0: `self` holds a struct call; 1: a struct bound. */
EXPORT void *aoti_call_method(int which) { return &methods[which != 0]; }

/* ---- DLPack export ----------------------------------------------------------------------------------
 * A capsule's deleter may be called by any thread, long after the Python code that made it, so it is C. It
 * leaves a finalizing interpreter alone. */

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

static void drop_owner(void *owner) {
  if (!owner || !python.decref || python.is_finalizing()) return;
  int state = python.ensure_gil();
  python.decref(owner);
  python.release_gil(state);
}

static void delete_managed(struct dl_managed *managed) {
  void *owner = managed->context;
  free(managed->tensor.shape);
  free(managed);
  drop_owner(owner);
}

static void delete_versioned(struct dl_versioned *managed) {
  void *owner = managed->context;
  free(managed->tensor.shape);
  free(managed);
  drop_owner(owner);
}

static int fill(struct dl_tensor *to, const struct dl_tensor *from) {
  *to = *from;
  to->shape = malloc(sizeof(int64_t) * 2 * (size_t)(from->ndim > 0 ? from->ndim : 1));
  if (!to->shape) return 0;
  to->strides = to->shape + (from->ndim > 0 ? from->ndim : 1);
  for (int32_t i = 0; i < from->ndim; i++) {
    to->shape[i] = from->shape[i];
    to->strides[i] = from->strides[i];
  }
  return 1;
}

/* `owner` is a new reference to a Python object that keeps the memory alive. NULL: out of memory. */
EXPORT void *aoti_call_dlpack_new(const struct dl_tensor *tensor_, void *owner, int versioned,
                                  uint64_t flags) {
  if (versioned) {
    struct dl_versioned *managed = calloc(1, sizeof *managed);
    if (!managed || !fill(&managed->tensor, tensor_)) {
      free(managed);
      return NULL;
    }
    managed->major = 1;
    managed->minor = 0;
    managed->flags = flags;
    managed->context = owner;
    managed->deleter = delete_versioned;
    return managed;
  }
  struct dl_managed *managed = calloc(1, sizeof *managed);
  if (!managed || !fill(&managed->tensor, tensor_)) {
    free(managed);
    return NULL;
  }
  managed->context = owner;
  managed->deleter = delete_managed;
  return managed;
}

/* PyCapsule destructor: a capsule that nobody consumed still owns its tensor. */
EXPORT void aoti_call_dlpack_capsule_destructor(void *capsule) {
  if (python.capsule_is_valid(capsule, "dltensor"))
    delete_managed(python.capsule_get_pointer(capsule, "dltensor"));
  else if (python.capsule_is_valid(capsule, "dltensor_versioned"))
    delete_versioned(python.capsule_get_pointer(capsule, "dltensor_versioned"));
}
