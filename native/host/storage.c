/* Storages: reference-counted memory that tensors share. The count is atomic, because a plugin's containers
 * hand tensors from thread to thread. */
#include <stdlib.h>

#include "internal.h"

_Atomic int64_t live_tensors;
static _Atomic int64_t live_storages;
static _Atomic int64_t owned_bytes;

/* What AVX-512 code likes, and what PyTorch's CPU allocator gives. */
enum { CPU_ALIGNMENT = 64 };

static AOTITorchError storage_new(struct storage **out) {
    struct storage *storage = calloc(1, sizeof *storage);
    REQUIRE(storage != NULL, AOTI_MEMORY_ALLOCATION_FAILED, "no memory for a storage");
    atomic_init(&storage->references, 1);
    atomic_fetch_add_explicit(&live_storages, 1, memory_order_relaxed);
    *out = storage;
    return AOTI_OK;
}

static void storage_free(struct storage *storage) {
    atomic_fetch_sub_explicit(&live_storages, 1, memory_order_relaxed);
    free(storage);
}

AOTITorchError storage_new_owned(size_t nbytes, struct device device, struct storage **out) {
    if (device.type == DEVICE_CPU) {
        /* One block for the count and the data: half the allocator's work on the path of every run. */
        const size_t head = sizeof(struct storage) + CPU_ALIGNMENT;
        REQUIRE(nbytes <= PTRDIFF_MAX - head, AOTI_MEMORY_ALLOCATION_FAILED,
                "no memory for a tensor of %zu bytes: no process can have that", nbytes);
        struct storage *storage = malloc(head + nbytes);
        REQUIRE(storage != NULL, AOTI_MEMORY_ALLOCATION_FAILED, "no memory for a tensor of %zu bytes",
                nbytes);
        *storage = (struct storage){.nbytes = nbytes, .device = device, .kind = STORAGE_OWNED};
        atomic_init(&storage->references, 1);
        if (nbytes != 0) {
            uintptr_t data = (uintptr_t)(storage + 1);
            storage->data = (char *)storage + sizeof *storage + (-data & (CPU_ALIGNMENT - 1));
        }
        atomic_fetch_add_explicit(&live_storages, 1, memory_order_relaxed);
        atomic_fetch_add_explicit(&owned_bytes, (int64_t)nbytes, memory_order_relaxed);
        *out = storage;
        return AOTI_OK;
    }
    struct storage *storage;
    TRY(storage_new(&storage));
    storage->device = device;
    AOTITorchError code = AOTI_OK;
    if (nbytes != 0) {
        TRY_OR_DONE(device_allocate(device, nbytes, &storage->data, &storage->stream));
    }
    storage->nbytes = nbytes;
    storage->kind = STORAGE_OWNED;
    atomic_fetch_add_explicit(&owned_bytes, (int64_t)nbytes, memory_order_relaxed);
    *out = storage;
done:
    if (code != AOTI_OK) {
        storage_free(storage);
    }
    return code;
}

AOTITorchError storage_new_pinned(size_t nbytes, struct storage **out) {
    struct storage *storage;
    TRY(storage_new(&storage));
    storage->device = (struct device){DEVICE_CPU, -1};
    AOTITorchError code = AOTI_OK;
    if (nbytes != 0) {
        TRY_OR_DONE(device_allocate_pinned(nbytes, &storage->data));
    }
    storage->nbytes = nbytes;
    storage->kind = STORAGE_PINNED;
    atomic_fetch_add_explicit(&owned_bytes, (int64_t)nbytes, memory_order_relaxed);
    *out = storage;
done:
    if (code != AOTI_OK) {
        storage_free(storage);
    }
    return code;
}

AOTITorchError storage_new_borrowed(void *data, size_t nbytes, struct device device, struct storage **out) {
    struct storage *storage;
    TRY(storage_new(&storage));
    storage->data = nbytes == 0 ? NULL : data;
    storage->nbytes = nbytes;
    storage->device = device;
    storage->kind = STORAGE_BORROWED;
    *out = storage;
    return AOTI_OK;
}

void storage_retain(struct storage *storage) {
    atomic_fetch_add_explicit(&storage->references, 1, memory_order_relaxed);
}

void storage_release(struct storage *storage) {
    if (atomic_fetch_sub_explicit(&storage->references, 1, memory_order_acq_rel) != 1) {
        return;
    }
    if (storage->kind != STORAGE_BORROWED) {
        atomic_fetch_sub_explicit(&owned_bytes, (int64_t)storage->nbytes, memory_order_relaxed);
    }
    if (storage->deleter != NULL) {
        storage->deleter(storage->data, storage->deleter_context);
    } else if (storage->kind == STORAGE_PINNED && storage->data != NULL) {
        device_release_pinned(storage->data);
    } else if (storage->kind == STORAGE_OWNED && storage->device.type != DEVICE_CPU &&
               storage->data != NULL) {
        device_release(storage->device, storage->data, storage->stream);
    }
    storage_free(storage);
}

void aoti_shim_get_stats(struct aoti_shim_stats *stats) {
    if (stats != NULL) {
        stats->tensors = atomic_load(&live_tensors);
        stats->storages = atomic_load(&live_storages);
        stats->owned_bytes = atomic_load(&owned_bytes);
    }
}
