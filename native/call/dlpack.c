/* DLPack export. A capsule's deleter may be called by any thread, long after the Python code that made it, so
 * it is C. It leaves a finalizing interpreter alone. */
#include <stdlib.h>

#include "call.h"

static void drop_owner(void *owner) {
    if (owner == NULL || python.decref == NULL || python.is_finalizing()) {
        return;
    }
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
    if (to->shape == NULL) {
        return 0;
    }
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
        if (managed == NULL || !fill(&managed->tensor, tensor_)) {
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
    if (managed == NULL || !fill(&managed->tensor, tensor_)) {
        free(managed);
        return NULL;
    }
    managed->context = owner;
    managed->deleter = delete_managed;
    return managed;
}

/* PyCapsule destructor: a capsule that nobody consumed still owns its tensor. */
EXPORT void aoti_call_dlpack_capsule_destructor(void *capsule) {
    if (python.capsule_is_valid(capsule, "dltensor")) {
        delete_managed(python.capsule_get_pointer(capsule, "dltensor"));
    } else if (python.capsule_is_valid(capsule, "dltensor_versioned")) {
        delete_versioned(python.capsule_get_pointer(capsule, "dltensor_versioned"));
    }
}
