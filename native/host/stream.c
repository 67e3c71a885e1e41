/* Current devices and streams. The map of streams is per thread, as CUDA's current device is. NULL, the
 * default stream, is what a thread has until somebody sets another. */
#include <stdlib.h>

#include "internal.h"

static _Thread_local void *streams[DEVICE_INDEXES];

void *stream_get(int32_t index) { return streams[index]; }
void stream_set(int32_t index, void *stream) { streams[index] = stream; }

static AOTITorchError set_current_stream(int32_t device_index, void *stream) {
    struct device device;
    TRY(device_resolve(DEVICE_CUDA, device_index, &device));
    stream_set(device.index, stream);
    return AOTI_OK;
}

int32_t aoti_shim_set_current_stream(int32_t device_index, void *stream) {
    TRY(set_current_stream(device_index, stream));
    return AOTI_OK;
}

AOTITorchError torch_set_current_cuda_stream(void *stream, int32_t device_index) {
    TRY(set_current_stream(device_index, stream));
    return AOTI_OK;
}

AOTITorchError aoti_torch_get_current_cuda_stream(int32_t device_index, void **ret_stream) {
    struct device device;
    REQUIRE_OUT(ret_stream);
    TRY(device_resolve(DEVICE_CUDA, device_index, &device));
    *ret_stream = stream_get(device.index);
    return AOTI_OK;
}

/* --- guards: put the device, and the stream, back as they were ----------------------------------------- */

#define GUARD_MAGIC UINT64_C(0x44524155474f4954)

struct guard {
    uint64_t magic;
    struct device device; /* what the guard set */
    int32_t device_before;
    bool guards_stream;
    void *stream_before;
};

static AOTITorchError guard_new(int32_t index, struct guard **out) {
    struct device device;
    TRY(device_resolve(DEVICE_CUDA, index, &device));
    struct guard *guard = calloc(1, sizeof *guard);
    if (guard == NULL) {
        return FAIL(AOTI_MEMORY_ALLOCATION_FAILED, "no memory for a guard");
    }
    AOTITorchError code;
    TRY_OR_DONE(device_get_current(DEVICE_CUDA, &guard->device_before));
    if (guard->device_before != device.index) {
        TRY_OR_DONE(device_set_current(DEVICE_CUDA, device.index));
    }
    guard->magic = GUARD_MAGIC;
    guard->device = device;
    *out = guard;
done:
    if (code != AOTI_OK) {
        free(guard);
    }
    return code;
}

static AOTITorchError guard_check(const struct guard *guard) {
    if (guard == NULL || ((uintptr_t)guard & 7) != 0 || guard->magic != GUARD_MAGIC) {
        return FAIL(AOTI_INVALID_ARGUMENT, "'guard' is %s",
                    guard == NULL ? "a null handle" : "not a guard of this host");
    }
    return AOTI_OK;
}

static AOTITorchError guard_delete(struct guard *guard) {
    TRY(guard_check(guard));
    if (guard->guards_stream) {
        stream_set(guard->device.index, guard->stream_before);
    }
    /* Unconditional: the plugin may have changed the device since. */
    AOTITorchError code = device_set_current(DEVICE_CUDA, guard->device_before);
    guard->magic = 0;
    free(guard);
    return code;
}

static AOTITorchError guard_set_index(struct guard *guard, int32_t index) {
    TRY(guard_check(guard));
    struct device device;
    TRY(device_resolve(DEVICE_CUDA, index, &device));
    TRY(device_set_current(DEVICE_CUDA, device.index));
    guard->device = device;
    return AOTI_OK;
}

AOTITorchError aoti_torch_create_cuda_guard(int32_t device_index, CUDAGuardHandle *ret_guard) {
    REQUIRE_OUT(ret_guard);
    TRY(guard_new(device_index, (struct guard **)ret_guard));
    return AOTI_OK;
}

AOTITorchError aoti_torch_delete_cuda_guard(CUDAGuardHandle guard) {
    TRY(guard_delete((struct guard *)guard));
    return AOTI_OK;
}

AOTITorchError aoti_torch_cuda_guard_set_index(CUDAGuardHandle guard, int32_t device_index) {
    TRY(guard_set_index((struct guard *)guard, device_index));
    return AOTI_OK;
}

AOTITorchError aoti_torch_create_device_guard(int32_t device_index, DeviceGuardHandle *ret_guard) {
    REQUIRE_OUT(ret_guard);
    TRY(guard_new(device_index, (struct guard **)ret_guard));
    return AOTI_OK;
}

AOTITorchError aoti_torch_delete_device_guard(DeviceGuardHandle guard) {
    TRY(guard_delete((struct guard *)guard));
    return AOTI_OK;
}

AOTITorchError aoti_torch_device_guard_set_index(DeviceGuardHandle guard, int32_t device_index) {
    TRY(guard_set_index((struct guard *)guard, device_index));
    return AOTI_OK;
}

AOTITorchError aoti_torch_create_cuda_stream_guard(void *stream, int32_t device_index,
                                                   CUDAStreamGuardHandle *ret_guard) {
    REQUIRE_OUT(ret_guard);
    struct guard *guard;
    TRY(guard_new(device_index, &guard));
    guard->guards_stream = true;
    guard->stream_before = stream_get(guard->device.index);
    stream_set(guard->device.index, stream);
    *ret_guard = (CUDAStreamGuardHandle)guard;
    return AOTI_OK;
}

AOTITorchError aoti_torch_delete_cuda_stream_guard(CUDAStreamGuardHandle guard) {
    TRY(guard_delete((struct guard *)guard));
    return AOTI_OK;
}

AOTITorchError aoti_torch_get_current_device_index(int32_t *ret_device_index) {
    REQUIRE_OUT(ret_device_index);
    TRY(device_get_current(DEVICE_CUDA, ret_device_index));
    return AOTI_OK;
}

/* --- raw device memory --------------------------------------------------------------------------------- */

AOTITorchError aoti_torch_cuda_caching_allocator_raw_alloc(uint64_t nbytes, void **ret_ptr) {
    struct device device;
    void *stream;
    REQUIRE_OUT(ret_ptr);
    REQUIRE(nbytes <= PTRDIFF_MAX, AOTI_MEMORY_ALLOCATION_FAILED,
            "%llu bytes are more than a device can have", (unsigned long long)nbytes);
    TRY(device_resolve(DEVICE_CUDA, -1, &device));
    if (nbytes == 0) {
        *ret_ptr = NULL;
        return AOTI_OK;
    }
    TRY(device_allocate(device, (size_t)nbytes, ret_ptr, &stream));
    return AOTI_OK;
}

AOTITorchError aoti_torch_cuda_caching_allocator_raw_delete(void *ptr) {
    struct device device;
    TRY(device_resolve(DEVICE_CUDA, -1, &device));
    if (ptr != NULL) {
        device_release(device, ptr, stream_get(device.index));
    }
    return AOTI_OK;
}
