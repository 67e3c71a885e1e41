/* A CUDA runtime that isn't one: two devices whose memory is the process's own, so that everything above the
 * device table runs, and is checked, on a machine without a GPU. Device pointers are shifted: host code that
 * touches one crashes. */
#define _GNU_SOURCE
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define API __attribute__((visibility("default")))
#define DEVICE_BIT ((uintptr_t)1 << 60)

static _Thread_local int current;
API long live_allocations, copies, synchronisations;
API int fail_next; /* the error that the next call but the getters returns */
API void *last_stream;
API int last_device;

static int failing(void) {
    int error = fail_next;
    fail_next = 0;
    return error;
}
static void *real(const void *pointer) { return (void *)((uintptr_t)pointer & ~DEVICE_BIT); }
static int is_device(const void *pointer) { return ((uintptr_t)pointer & DEVICE_BIT) != 0; }

API int cudaGetDevice(int *device) {
    *device = current;
    return 0;
}
API int cudaSetDevice(int device) {
    if (device < 0 || device > 1) {
        return 101;
    }
    current = device;
    return 0;
}
API int cudaMalloc(void **pointer, size_t bytes) {
    int error = failing();
    if (error) {
        return error;
    }
    void *memory = malloc(bytes);
    if (memory == NULL) {
        return 2;
    }
    live_allocations++;
    last_device = current;
    *pointer = (void *)((uintptr_t)memory | DEVICE_BIT);
    return 0;
}
API int cudaFree(void *pointer) {
    if (!is_device(pointer)) {
        return 17;
    }
    live_allocations--;
    last_device = current;
    free(real(pointer));
    return 0;
}
#ifndef WITHOUT_POOLS
API int cudaMallocAsync(void **pointer, size_t bytes, void *stream) {
    last_stream = stream;
    return cudaMalloc(pointer, bytes);
}
API int cudaFreeAsync(void *pointer, void *stream) {
    if (stream == (void *)0xdead) {
        return 400; /* a stream that was destroyed */
    }
    last_stream = stream;
    return cudaFree(pointer);
}
#endif
API int cudaMemcpyAsync(void *to, const void *from, size_t bytes, int kind, void *stream) {
    int error = failing();
    if (error) {
        return error;
    }
    if (is_device(to) != (kind != 2) || is_device(from) != (kind != 1)) {
        return 21;
    }
    copies++;
    last_stream = stream;
    memmove(real(to), real(from), bytes);
    return 0;
}
API int cudaMemsetAsync(void *pointer, int byte, size_t bytes, void *stream) {
    if (!is_device(pointer)) {
        return 17;
    }
    last_stream = stream;
    memset(real(pointer), byte, bytes);
    return 0;
}
API int cudaStreamSynchronize(void *stream) {
    last_stream = stream;
    synchronisations++;
    return 0;
}
API int cudaMallocHost(void **pointer, size_t bytes) {
    *pointer = malloc(bytes);
    live_allocations++;
    return *pointer ? 0 : 2;
}
API int cudaFreeHost(void *pointer) {
    free(pointer);
    live_allocations--;
    return 0;
}
API int cudaGetLastError(void) { return 0; }
API const char *cudaGetErrorString(int error) { return error == 2 ? "out of memory" : "some trouble"; }
