/* The CUDA device table, filled from a libcudart that is opened at run time. */
#include <dlfcn.h>
#include <string.h>

#include "internal.h"

enum { CUDA_MEMCPY_HOST_TO_DEVICE = 1, CUDA_MEMCPY_DEVICE_TO_HOST = 2, CUDA_MEMCPY_DEVICE_TO_DEVICE = 3 };
enum { CUDA_ERROR_MEMORY_ALLOCATION = 2 };

/* cudaError_t is an enum, passed as int. */
static struct runtime {
    int (*get_device)(int *);
    int (*set_device)(int);
    int (*allocate)(void **, size_t);
    int (*release)(void *);
    int (*allocate_async)(void **, size_t, void *); /* since CUDA 11.2 */
    int (*release_async)(void *, void *);
    int (*copy_async)(void *, const void *, size_t, int, void *);
    int (*fill_async)(void *, int, size_t, void *);
    int (*synchronize)(void *);
    int (*allocate_host)(void **, size_t);
    int (*release_host)(void *);
    int (*clear_error)(void);
    const char *(*error_text)(int);
} cuda;

static int get_device(void *context, int32_t *index) {
    (void)context;
    int device = -1;
    int error = cuda.get_device(&device);
    *index = device;
    return error;
}

static int set_device(void *context, int32_t index) {
    (void)context;
    return cuda.set_device(index);
}

static int allocate(void *context, size_t bytes, void *stream, void **pointer) {
    (void)context;
    int error = cuda.allocate_async != NULL ? cuda.allocate_async(pointer, bytes, stream)
                                            : cuda.allocate(pointer, bytes);
    if (error != 0 && error != CUDA_ERROR_MEMORY_ALLOCATION && cuda.allocate_async != NULL) {
        /* Not every device has memory pools. */
        cuda.clear_error();
        error = cuda.allocate(pointer, bytes);
    }
    if (error != 0) {
        cuda.clear_error(); /* else the plugin's next cudaGetLastError would report it */
    }
    return error;
}

static int release(void *context, void *pointer, void *stream) {
    (void)context;
    int error = cuda.release_async != NULL ? cuda.release_async(pointer, stream) : cuda.release(pointer);
    if (error != 0 && cuda.release_async != NULL) {
        /* Not from a pool, or its stream is gone: the synchronous call takes both. */
        cuda.clear_error();
        error = cuda.release(pointer);
    }
    if (error != 0) {
        cuda.clear_error();
    }
    return error;
}

static int copy(void *context, void *to, const void *from, size_t bytes, int kind, void *stream) {
    static const int kinds[] = {
        [AOTI_COPY_HOST_TO_DEVICE] = CUDA_MEMCPY_HOST_TO_DEVICE,
        [AOTI_COPY_DEVICE_TO_HOST] = CUDA_MEMCPY_DEVICE_TO_HOST,
        [AOTI_COPY_ON_DEVICE] = CUDA_MEMCPY_DEVICE_TO_DEVICE,
    };
    (void)context;
    return cuda.copy_async(to, from, bytes, kinds[kind], stream);
}

static int fill(void *context, void *pointer, int byte, size_t bytes, void *stream) {
    (void)context;
    return cuda.fill_async(pointer, byte, bytes, stream);
}

static int synchronize(void *context, void *stream) {
    (void)context;
    return cuda.synchronize(stream);
}

static int allocate_pinned(void *context, size_t bytes, void **pointer) {
    (void)context;
    return cuda.allocate_host(pointer, bytes);
}

static int release_pinned(void *context, void *pointer) {
    (void)context;
    return cuda.release_host(pointer);
}

static const char *error_text(void *context, int error) {
    (void)context;
    return cuda.error_text(error);
}

int32_t aoti_shim_load_cuda(const char *libcudart_path) {
    /* GLOBAL: plugins call the CUDA runtime without naming it in DT_NEEDED. */
    void *library = dlopen(libcudart_path, RTLD_NOW | RTLD_GLOBAL);
    REQUIRE(library != NULL, AOTI_NOT_FOUND, "%s", dlerror());
    /* Filled apart: a library that turns out to lack something must not touch a table in use. */
    struct runtime found;
    const struct {
        const char *name;
        void *slot;
        bool optional;
    } functions[] = {
        {"cudaGetDevice", &found.get_device, false},
        {"cudaSetDevice", &found.set_device, false},
        {"cudaMalloc", &found.allocate, false},
        {"cudaFree", &found.release, false},
        {"cudaMallocAsync", &found.allocate_async, true},
        {"cudaFreeAsync", &found.release_async, true},
        {"cudaMemcpyAsync", &found.copy_async, false},
        {"cudaMemsetAsync", &found.fill_async, false},
        {"cudaStreamSynchronize", &found.synchronize, false},
        {"cudaMallocHost", &found.allocate_host, false},
        {"cudaFreeHost", &found.release_host, false},
        {"cudaGetLastError", &found.clear_error, false},
        {"cudaGetErrorString", &found.error_text, false},
    };
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
        void *symbol = dlsym(library, functions[i].name);
        if (symbol == NULL && !functions[i].optional) {
            dlclose(library);
            return FAIL(AOTI_NOT_FOUND, "%s has no %s",
                        libcudart_path != NULL ? libcudart_path : "the process", functions[i].name);
        }
        memcpy(functions[i].slot, &symbol, sizeof symbol);
    }
    if (found.allocate_async == NULL || found.release_async == NULL) {
        found.allocate_async = NULL;
        found.release_async = NULL;
    }
    cuda = found;
    const struct aoti_device_ops ops = {
        .struct_size = sizeof ops,
        .get_device = get_device,
        .set_device = set_device,
        .allocate = allocate,
        .release = release,
        .copy = copy,
        .fill = fill,
        .synchronize = synchronize,
        .error_text = error_text,
        .allocate_pinned = allocate_pinned,
        .release_pinned = release_pinned,
    };
    /* The library stays open: the table points into it. */
    TRY(aoti_shim_register_device(DEVICE_CUDA, &ops));
    return AOTI_OK;
}
