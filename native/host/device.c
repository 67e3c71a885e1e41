/* Devices: memory, copies and streams go through a table of functions, filled at run time for what is not the
 * CPU. So the library has no link-time dependency on a GPU runtime. */
#include <string.h>

#include "internal.h"

static struct aoti_device_ops tables[DEVICE_TYPES];
static _Atomic bool registered[DEVICE_TYPES];

int32_t aoti_shim_register_device(int32_t device_type, const struct aoti_device_ops *ops) {
    REQUIRE(device_type > DEVICE_CPU && device_type < DEVICE_TYPES, AOTI_INVALID_ARGUMENT,
            "device type %d cannot be registered", (int)device_type);
    if (ops == NULL) {
        atomic_store(&registered[device_type], false);
        return AOTI_OK;
    }
    REQUIRE(ops->struct_size == sizeof *ops, AOTI_INVALID_ARGUMENT,
            "the table has %u bytes, this host expects %zu", (unsigned)ops->struct_size, sizeof *ops);
    REQUIRE(ops->get_device && ops->set_device && ops->allocate && ops->release && ops->copy && ops->fill &&
                ops->synchronize,
            AOTI_INVALID_ARGUMENT, "a required function of the table is null");
    atomic_store(&registered[device_type], false);
    tables[device_type] = *ops;
    atomic_store(&registered[device_type], true);
    return AOTI_OK;
}

int32_t aoti_shim_has_device(int32_t device_type) {
    return device_type == DEVICE_CPU ||
           (device_type > 0 && device_type < DEVICE_TYPES && atomic_load(&registered[device_type]));
}

static AOTITorchError table_of(int32_t type, const struct aoti_device_ops **ops) {
    if (type <= 0 || type >= DEVICE_TYPES || !atomic_load_explicit(&registered[type], memory_order_acquire)) {
        return FAIL(AOTI_NOT_SUPPORTED, "device type %d is not registered with this host%s", (int)type,
                    type == DEVICE_CUDA ? " (aoti_shim_load_cuda does it)" : "");
    }
    *ops = &tables[type];
    return AOTI_OK;
}

static AOTITorchError device_failed(const struct aoti_device_ops *ops, int error, const char *action,
                                    AOTITorchError code) {
    const char *text = ops->error_text != NULL ? ops->error_text(ops->context, error) : NULL;
    return FAIL(code, "%s failed with device error %d%s%s", action, error, text != NULL ? ": " : "",
                text != NULL ? text : "");
}

AOTITorchError device_get_current(int32_t type, int32_t *index) {
    const struct aoti_device_ops *ops = NULL;
    TRY(table_of(type, &ops));
    int error = ops->get_device(ops->context, index);
    if (error != 0) {
        TRY(device_failed(ops, error, "asking for the current device", AOTI_ACCESS_FAILED));
        return AOTI_OK;
    }
    REQUIRE(*index >= 0 && *index < DEVICE_INDEXES, AOTI_INTERNAL, "current device %d is out of range",
            (int)*index);
    return AOTI_OK;
}

AOTITorchError device_set_current(int32_t type, int32_t index) {
    const struct aoti_device_ops *ops = NULL;
    TRY(table_of(type, &ops));
    int error = ops->set_device(ops->context, index);
    return error == 0 ? AOTI_OK : device_failed(ops, error, "setting the device", AOTI_INVALID_ARGUMENT);
}

AOTITorchError device_resolve(int32_t type, int32_t index, struct device *device) {
    if (type == DEVICE_CPU) {
        *device = (struct device){DEVICE_CPU, -1};
        return AOTI_OK;
    }
    const struct aoti_device_ops *ops = NULL;
    TRY(table_of(type, &ops));
    if (index < -1 || index >= DEVICE_INDEXES) {
        return FAIL(AOTI_INVALID_ARGUMENT, "device index %d is outside -1 to %d", (int)index,
                    DEVICE_INDEXES - 1);
    }
    if (index == -1) {
        TRY(device_get_current(type, &index));
    }
    *device = (struct device){type, index};
    return AOTI_OK;
}

/* Makes `device` current, and says which was before, so that `leave` can put it back. */
static AOTITorchError enter(struct device device, const struct aoti_device_ops **ops, int32_t *before) {
    TRY(table_of(device.type, ops));
    TRY(device_get_current(device.type, before));
    return *before == device.index ? AOTI_OK : device_set_current(device.type, device.index);
}

static void leave(const struct aoti_device_ops *ops, struct device device, int32_t before) {
    if (before != device.index) {
        ops->set_device(ops->context, before);
    }
}

AOTITorchError device_allocate(struct device device, size_t bytes, void **pointer, void **stream) {
    const struct aoti_device_ops *ops = NULL;
    int32_t before;
    TRY(enter(device, &ops, &before));
    *stream = stream_get(device.index);
    int error = ops->allocate(ops->context, bytes, *stream, pointer);
    leave(ops, device, before);
    if (error != 0) {
        return FAIL(AOTI_MEMORY_ALLOCATION_FAILED, "no device memory for %zu bytes (device error %d%s%s)",
                    bytes, error, ops->error_text != NULL ? ": " : "",
                    ops->error_text != NULL ? ops->error_text(ops->context, error) : "");
    }
    return AOTI_OK;
}

void device_release(struct device device, void *pointer, void *stream) {
    const struct aoti_device_ops *ops = NULL;
    int32_t before;
    if (enter(device, &ops, &before) == AOTI_OK) {
        ops->release(ops->context, pointer, stream);
        leave(ops, device, before);
    }
}

AOTITorchError device_allocate_pinned(size_t bytes, void **pointer) {
    const struct aoti_device_ops *ops = NULL;
    TRY(table_of(DEVICE_CUDA, &ops));
    REQUIRE(ops->allocate_pinned != NULL && ops->release_pinned != NULL, AOTI_NOT_SUPPORTED,
            "the device has no pinned memory");
    int error = ops->allocate_pinned(ops->context, bytes, pointer);
    return error == 0 ? AOTI_OK : device_failed(ops, error, "pinning memory", AOTI_MEMORY_ALLOCATION_FAILED);
}

void device_release_pinned(void *pointer) {
    const struct aoti_device_ops *ops = NULL;
    if (table_of(DEVICE_CUDA, &ops) == AOTI_OK) {
        ops->release_pinned(ops->context, pointer);
    }
}

AOTITorchError device_copy(struct device device, void *to, const void *from, size_t bytes, int kind) {
    const struct aoti_device_ops *ops = NULL;
    int32_t before;
    if (bytes == 0) {
        return AOTI_OK;
    }
    TRY(enter(device, &ops, &before));
    void *stream = stream_get(device.index);
    int error = ops->copy(ops->context, to, from, bytes, kind, stream);
    if (error == 0 && kind != AOTI_COPY_ON_DEVICE) {
        error = ops->synchronize(ops->context, stream);
    }
    leave(ops, device, before);
    return error == 0 ? AOTI_OK : device_failed(ops, error, "a copy", AOTI_ACCESS_FAILED);
}

AOTITorchError device_fill(struct device device, void *pointer, int byte, size_t bytes) {
    if (bytes == 0) {
        return AOTI_OK;
    }
    if (device.type == DEVICE_CPU) {
        memset(pointer, byte, bytes);
        return AOTI_OK;
    }
    const struct aoti_device_ops *ops = NULL;
    int32_t before;
    TRY(enter(device, &ops, &before));
    int error = ops->fill(ops->context, pointer, byte, bytes, stream_get(device.index));
    leave(ops, device, before);
    return error == 0 ? AOTI_OK : device_failed(ops, error, "a fill", AOTI_ACCESS_FAILED);
}

AOTITorchError device_synchronize(struct device device) {
    const struct aoti_device_ops *ops = NULL;
    int32_t before;
    if (device.type == DEVICE_CPU) {
        return AOTI_OK;
    }
    TRY(enter(device, &ops, &before));
    int error = ops->synchronize(ops->context, stream_get(device.index));
    leave(ops, device, before);
    return error == 0 ? AOTI_OK : device_failed(ops, error, "waiting for a stream", AOTI_ACCESS_FAILED);
}

int32_t aoti_shim_synchronize(int32_t device_type, int32_t device_index) {
    struct device device;
    TRY(device_resolve(device_type, device_index, &device));
    TRY(device_synchronize(device));
    return AOTI_OK;
}
