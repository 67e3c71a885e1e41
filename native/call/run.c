/* One foreign call for one run of a plugin.
 *
 * Python prepares a call once; from then on a run is a single function call that makes the input handles,
 * runs the container, looks at what came back and cleans up whatever a failure left behind.
 *
 * Ownership follows torch/csrc/inductor/aoti_runtime: Run steals the input handles (it sets the entries it
 * took to NULL), outputs belong to the caller, one handle may come back in several output slots, and a slot
 * for None is left as it was. */
#define _GNU_SOURCE /* pthread_rwlockattr_setkind_np */
#include <stdlib.h>
#include <string.h>

#include "call.h"

EXPORT int32_t aoti_call_version(void) { return 2; }

EXPORT struct gate *aoti_call_gate_new(void) {
    struct gate *gate = calloc(1, sizeof *gate);
    if (gate == NULL) {
        return NULL;
    }
    pthread_rwlockattr_t attributes;
    pthread_rwlockattr_init(&attributes);
#ifdef __GLIBC__
    pthread_rwlockattr_setkind_np(&attributes, PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP);
#endif
    int error = pthread_rwlock_init(&gate->lock, &attributes);
    pthread_rwlockattr_destroy(&attributes);
    if (error != 0) {
        free(gate);
        return NULL;
    }
    return gate;
}

/* Only for a gate that no thread can reach any more. */
EXPORT void aoti_call_gate_free(struct gate *gate) {
    pthread_rwlock_destroy(&gate->lock);
    free(gate);
}

/* How many threads are inside. In a child of fork they are lost, and never leave. */
EXPORT int aoti_call_gate_inside(struct gate *gate) { return atomic_load(&gate->inside); }

static _Thread_local struct held *innermost;

/* A plugin may call back into its caller, from which a lock that this thread holds must not be waited for. */
static int enter(struct gate *gate, struct held *held, int (*take)(pthread_rwlock_t *)) {
    for (const struct held *other = innermost; other != NULL; other = other->outer) {
        if (other->gate == gate) {
            return CALL_INSIDE;
        }
    }
    atomic_fetch_add(&gate->inside, 1);
    if (take(&gate->lock) != 0) {
        atomic_fetch_sub(&gate->inside, 1);
        return CALL_INSIDE;
    }
    held->gate = gate;
    held->outer = innermost;
    innermost = held;
    return CALL_OK;
}

static void leave(struct held *held) {
    innermost = held->outer;
    pthread_rwlock_unlock(&held->gate->lock);
    atomic_fetch_sub(&held->gate->inside, 1);
}

/* The functions below return CALL_OK, with the container's answer in `code`, or CALL_INSIDE. None but the
 * last is called for a closed container. */

/* Calls a function of pairs; for the active set, and with `swap`, alone. */
EXPORT int aoti_call_update(struct gate *gate, int32_t (*update)(void *, const void *, size_t, _Bool, _Bool),
                            void *container, const void *pairs, size_t count, int inactive,
                            int32_t (*swap)(void *), int32_t *code) {
    if (inactive && swap == NULL) {
        *code = update(container, pairs, count, 1, 0);
        return CALL_OK;
    }
    struct held held;
    int status = enter(gate, &held, pthread_rwlock_wrlock);
    if (status != CALL_OK) {
        return status;
    }
    *code = count != 0 ? update(container, pairs, count, inactive != 0, 0) : 0;
    if (*code == 0 && swap != NULL) {
        *code = swap(container);
    }
    leave(&held);
    return CALL_OK;
}

EXPORT int aoti_call_bind(struct gate *gate, int32_t (*bind)(void *, const uint8_t *), void *container,
                          const uint8_t *blob, int32_t *code) {
    struct held held;
    int status = enter(gate, &held, pthread_rwlock_wrlock);
    if (status == CALL_OK) {
        *code = bind(container, blob);
        leave(&held);
    }
    return status;
}

EXPORT int aoti_call_fold(struct gate *gate, int32_t (*fold)(void *, _Bool, void *, void *), void *container,
                          int inactive, int32_t *code) {
    struct held held;
    int status = enter(gate, &held, pthread_rwlock_wrlock);
    if (status == CALL_OK) {
        *code = fold(container, inactive != 0, NULL, NULL);
        leave(&held);
    }
    return status;
}

/* Copies tensors while nothing runs. `copies` starts with NULLs, and holds what was made whatever happens. */
EXPORT int aoti_call_clone(struct gate *gate, int32_t (*clone)(tensor, tensor *), const tensor *tensors,
                           tensor *copies, size_t count, int32_t *code) {
    struct held held;
    int status = enter(gate, &held, pthread_rwlock_wrlock);
    if (status == CALL_OK) {
        *code = 0;
        for (size_t i = 0; i < count && *code == 0; i++) {
            *code = clone(tensors[i], &copies[i]);
        }
        leave(&held);
    }
    return status;
}

/* Waits for the runs in progress and deletes the container; later runs return CALL_CLOSED. */
EXPORT int aoti_call_close(struct gate *gate, int32_t (*delete_container)(void *), void *container,
                           int32_t *code) {
    struct held held;
    int status = enter(gate, &held, pthread_rwlock_wrlock);
    if (status == CALL_OK) {
        *code = 0;
        if (!atomic_exchange(&gate->closed, 1)) {
            *code = delete_container(container);
        }
        leave(&held);
    }
    return status;
}

/* Delete each distinct handle of an output array once. */
static void delete_outputs(const struct host *host, tensor *handles, size_t count) {
    for (size_t i = 0; i < count; i++) {
        tensor handle = handles[i];
        if (handle == NULL) {
            continue;
        }
        for (size_t j = i; j < count; j++) {
            if (handles[j] == handle) {
                handles[j] = NULL;
            }
        }
        host->delete_tensor(handle);
    }
}

/* Entries that a failed run did not take are still ours. */
static void delete_untaken(const struct host *host, tensor *inputs, size_t num_inputs, tensor *outputs,
                           size_t num_outputs) {
    for (size_t i = 0; i < num_inputs; i++) {
        tensor handle = inputs[i];
        if (handle == NULL) {
            continue;
        }
        inputs[i] = NULL;
        /* A passed-through input may already stand in an output slot. */
        int shared = 0;
        for (size_t j = 0; j < num_outputs; j++) {
            shared |= outputs[j] == handle;
        }
        if (!shared) {
            host->delete_tensor(handle);
        }
    }
}

static int make_inputs(struct call *call, const tensor *templates) {
    const struct target *target = call->target;
    const struct host *host = target->host;
    for (size_t i = 0; i < target->num_inputs; i++) {
        const struct layout *in = &call->inputs[i];
        int32_t code;
        call->handles[i] = NULL;
        if (templates != NULL && templates[i] != NULL) {
            code = host->new_handle(templates[i], &call->handles[i]);
        } else {
            code = host->create_from_blob(call->data[i], in->ndim, in->sizes, in->strides, 0, in->dtype,
                                          in->device_type, in->device_index, &call->handles[i], 0, NULL, 0);
        }
        if (code != 0 || call->handles[i] == NULL) {
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

    if (atomic_load(&gate->closed)) {
        return CALL_CLOSED;
    }
    struct held held;
    int status = enter(gate, &held, pthread_rwlock_rdlock);
    if (status != CALL_OK) {
        return status;
    }
    if (atomic_load(&gate->closed)) {
        leave(&held);
        return CALL_CLOSED;
    }
    status = make_inputs(call, templates);
    if (status == CALL_OK) {
        for (size_t i = 0; i < target->num_outputs; i++) {
            outputs[i] = NULL;
        }
        int before = 0;
        /* The number of threads is a property of the calling thread, so it is set where the run happens. */
        if (target->max_threads > 0 && target->omp_get_max_threads != NULL) {
            before = target->omp_get_max_threads();
            if (before > target->max_threads) {
                target->omp_set_num_threads((int)target->max_threads);
            } else {
                before = 0;
            }
        }
        call->code = target->run(target->container, call->handles, target->num_inputs, outputs,
                                 target->num_outputs, call->stream, call->proxy);
        if (before != 0) {
            target->omp_set_num_threads(before);
        }
        if (call->code != 0) {
            delete_untaken(target->host, call->handles, target->num_inputs, outputs, target->num_outputs);
            delete_outputs(target->host, outputs, target->num_outputs);
            status = CALL_RUN_FAILED;
        }
    }
    leave(&held);
    return status;
}

static int32_t aliased_input(const struct call *call, const void *data) {
    uintptr_t at = (uintptr_t)data, image = (uintptr_t)call->target->image;
    if (at >= image && at - image < call->target->image_size) {
        return IN_PLUGIN;
    }
    for (size_t i = 0; i < call->target->num_inputs; i++) {
        uintptr_t start = (uintptr_t)call->data[i];
        if (at >= start && at - start < (uintptr_t)call->inputs[i].nbytes) {
            return (int32_t)i;
        }
    }
    return -1;
}

int aoti_call_run(struct call *call) {
    int status = run_locked(call, NULL);
    if (status != CALL_OK) {
        return status;
    }
    const struct target *target = call->target;
    tensor *outputs = call->handles + target->num_inputs;
    for (size_t i = 0; i < target->num_outputs; i++) {
        struct output *out = &call->outputs[i];
        out->handle = outputs[i];
        out->data = NULL;
        out->alias = -1;
        out->same = -1;
        if (out->handle == NULL) {
            continue;
        }
        for (size_t j = 0; j < i && out->same < 0; j++) {
            if (outputs[j] == out->handle) {
                out->same = (int32_t)j;
            }
        }
        if (out->same >= 0) {
            continue;
        }
        call->code = target->host->get_data_ptr(out->handle, &out->data);
        if (call->code != 0) {
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
    int32_t code = 0;
    if ((code = host->get_dim(handle, &to->ndim)) != 0 || (code = host->get_dtype(handle, &to->dtype)) != 0 ||
        (code = host->get_device_type(handle, &to->device_type)) != 0 ||
        (code = host->get_device_index(handle, &to->device_index)) != 0 ||
        (code = host->get_data_ptr(handle, &to->data)) != 0 ||
        (code = host->get_sizes(handle, &sizes)) != 0 || (code = host->get_strides(handle, &strides)) != 0) {
        return code;
    }
    if (to->ndim < 0 || to->ndim > MAX_DIMENSIONS) {
        return -1;
    }
    if (to->ndim != 0) {
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
    for (int64_t i = 0; i < sizes[0]; i++) {
        copy_strided(to + i * to_strides[0] * itemsize, to_strides + 1, from + i * from_strides[0] * itemsize,
                     from_strides + 1, sizes + 1, ndim - 1, itemsize);
    }
}

/* Copy between host tensors of one shape, whatever their strides (elements). */
EXPORT void aoti_call_copy(void *to, const int64_t *to_strides, const void *from, const int64_t *from_strides,
                           const int64_t *sizes, int64_t ndim, int64_t itemsize) {
    for (int64_t i = 0; i < ndim; i++) {
        if (sizes[i] == 0) {
            return;
        }
    }
    copy_strided(to, to_strides, from, from_strides, sizes, ndim, itemsize);
}

static int64_t element_count(const struct layout *layout) {
    int64_t count = 1;
    for (int64_t i = 0; i < layout->ndim; i++) {
        count *= layout->sizes[i];
    }
    return count;
}

static int deliver(const struct host *host, tensor handle, const struct layout *want, void *to,
                   int32_t *code) {
    int64_t ndim, *sizes, *strides;
    int32_t dtype, device_type;
    void *data;
    if ((*code = host->get_dim(handle, &ndim)) != 0 || (*code = host->get_dtype(handle, &dtype)) != 0 ||
        (*code = host->get_sizes(handle, &sizes)) != 0 ||
        (*code = host->get_strides(handle, &strides)) != 0 ||
        (*code = host->get_device_type(handle, &device_type)) != 0 ||
        (*code = host->get_data_ptr(handle, &data)) != 0) {
        return CALL_BAD_OUTPUT;
    }
    if (ndim != want->ndim || dtype != want->dtype || device_type != 0 || want->device_type != 0) {
        return CALL_NO_FIT;
    }
    int dense = 1;
    for (int64_t i = 0; i < ndim; i++) {
        if (sizes[i] != want->sizes[i]) {
            return CALL_NO_FIT;
        }
        if (sizes[i] != 1 && strides[i] != want->strides[i]) {
            dense = 0;
        }
    }
    int64_t count = element_count(want);
    if (count == 0) {
        return CALL_OK;
    }
    if (dense && want->nbytes == count * want->itemsize) {
        memmove(to, data, (size_t)want->nbytes);
    } else {
        copy_strided(to, want->strides, data, strides, sizes, ndim, want->itemsize);
    }
    return CALL_OK;
}

int aoti_call_run_bound(struct bound *bound) {
    int idle = 0;
    if (!atomic_compare_exchange_strong(&bound->busy, &idle, 1)) {
        return CALL_BUSY;
    }
    struct call *call = &bound->call;
    int status = run_locked(call, bound->templates);
    if (status == CALL_OK) {
        const struct target *target = call->target;
        tensor *outputs = call->handles + target->num_inputs;
        for (size_t i = 0; i < target->num_outputs && status == CALL_OK; i++) {
            if (bound->destinations[i] == NULL) {
                continue;
            }
            status = CALL_NO_FIT;
            if (outputs[i] != NULL) {
                status = deliver(target->host, outputs[i], &bound->targets[i], bound->destinations[i],
                                 &call->code);
            }
            if (status != CALL_OK) {
                call->index = (int64_t)i;
            }
        }
        delete_outputs(target->host, outputs, target->num_outputs);
    }
    atomic_store(&bound->busy, 0);
    return status;
}
