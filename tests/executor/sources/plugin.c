/* A plugin in C that misbehaves, or does what real models do, as macros say. It uses its host's tensors. */
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define API __attribute__((visibility("default")))
#define C(name) API int32_t AOTInductorModelContainer##name

#ifndef INPUTS
#define INPUTS 1
#endif
#ifndef OUTPUTS
#define OUTPUTS 1
#endif

extern int32_t aoti_torch_delete_tensor_object(void *);
extern int32_t aoti_torch_new_tensor_handle(void *, void **);
extern int32_t aoti_torch_clone(void *, void **);

static __thread const char *last_error = "";
static atomic_int inside, most_inside, runs, deleted;

API int most_at_once(void) { return most_inside; }
API int run_count(void) { return runs; }
API int deleted_count(void) { return deleted; }

C(CreateWithDevice)(void **container, size_t models, const char *device, const char *folder) {
#ifndef ANY_DEVICE
    if (strcmp(device, "cpu") != 0) {
        last_error = "Invalid device: no such thing";
        return 1;
    }
#endif
#ifdef CREATE_NULL
    *container = NULL;
#else
    *container = malloc(1);
#endif
    return 0;
}
static atomic_int deleted_while_running;
API int deleted_while_running_count(void) { return deleted_while_running; }

C(Delete)(void *container) {
    deleted_while_running += inside;
    free(container);
    deleted++;
#ifdef DELETE_TELLS
    (void)!write(1, "deleted\n", 8);
#endif
#ifdef DELETE_FAILS
    last_error = "it would not go";
    return 1;
#endif
    return 0;
}
C(GetNumInputs)(void *container, size_t *count) {
    *count = INPUTS;
    return 0;
}
C(GetNumOutputs)(void *container, size_t *count) {
    *count = OUTPUTS;
    return 0;
}
C(GetInputName)(void *container, size_t i, const char **name) {
    *name = i ? "more" : "first";
    return 0;
}
C(GetOutputName)(void *container, size_t i, const char **name) {
    *name = "result";
    return 0;
}
API int32_t AOTInductorGetLastError(const char **text) {
    *text = last_error;
    return 0;
}

#ifdef IN_SPEC
C(GetCallSpec)(void *container, const char **given, const char **result) {
    *given = IN_SPEC;
    *result = OUT_SPEC;
    return 0;
}
#endif

#ifdef PROXY
__attribute__((weak)) int32_t aoti_torch_proxy_executor_call_function(void *, int, int, int64_t *, int,
                                                                      void **);
API int32_t call_proxy(void) { return aoti_torch_proxy_executor_call_function(0, 0, 0, 0, 0, 0); }
#endif

C(Run)(void *container, void **in, size_t n, void **out, size_t m, void *stream, void *proxy) {
    int now = ++inside;
    runs++;
    if (now > most_inside) {
        most_inside = now;
    }
#ifdef SLEEPS
    usleep(SLEEPS);
#endif
    inside--;
    /* A real plugin throws out of C here, which ends the process. */
    if (n != INPUTS || m != OUTPUTS) {
        abort();
    }
#ifdef FAILS_BEFORE
    last_error = FAILS_BEFORE;
    return 7;
#endif
#ifdef FAILS_AFTER
    for (size_t i = 0; i < m; i++) {
        aoti_torch_clone(in[0], &out[i]);
    }
    for (size_t i = 0; i < n; i++) {
        aoti_torch_delete_tensor_object(in[i]), in[i] = NULL;
    }
    last_error = "failed after replacing outputs";
    return 8;
#endif
#ifdef FAILS_PASSING
    /* The input already stands in an output slot, and was not taken. */
    out[0] = in[0];
    last_error = "failed while passing an input on";
    return 10;
#endif
#ifdef FAILS_HALFWAY
    /* The first input was taken, the others were not. */
    aoti_torch_delete_tensor_object(in[0]);
    in[0] = NULL;
    last_error = "failed halfway";
    return 9;
#endif
    for (size_t i = 0; i < m; i++) {
#ifdef NONE_AT
        if (i == NONE_AT) {
            continue;
        }
#endif
#ifdef SAME
        out[i] = in[0];
#else
        if (i == 0 && n) {
            out[0] = in[0];
        } else if (n) {
            aoti_torch_new_tensor_handle(in[0], &out[i]);
        }
#endif
    }
    int kept = 0;
    for (size_t i = 0; i < m; i++) {
        kept |= n && out[i] == in[0];
    }
    for (size_t i = 0; i < n; i++) {
        if (i || !kept) {
            aoti_torch_delete_tensor_object(in[i]);
        }
        in[i] = NULL;
    }
    return 0;
}

#ifdef CONSTANTS
/* Two float constants of four elements, "a.b" (internally a_b) and "c", and one that folding computes. */
typedef struct {
    const char *name;
    void *handle;
} Entry;
extern int32_t aoti_torch_create_tensor_from_blob_v2(void *, int64_t, const int64_t *, const int64_t *,
                                                     int64_t, int32_t, int32_t, int32_t, void **, int32_t,
                                                     const uint8_t *, int64_t);
extern int32_t aoti_torch_get_storage_size(void *, int64_t *);
extern int32_t aoti_torch_get_data_ptr(void *, void **);
static const char *names[] = {"a_b", "c", "folded"}, *fqns[] = {"a.b", "c", "folded"};
static float values[2][2][16];
static void *handles[2][2];
static int active;
static Entry entries[2];
static atomic_int folds, updates;

API int fold_count(void) { return folds; }
API int update_count(void) { return updates; }

C(GetNumConstants)(void *c, size_t *count) {
    *count = 3;
    return 0;
}
C(GetConstantName)(void *c, size_t i, const char **name) {
    *name = names[i];
    return 0;
}
C(GetConstantOriginalFQN)(void *c, size_t i, const char **name) {
    *name = fqns[i];
    return 0;
}
C(GetConstantDtype)(void *c, size_t i, int32_t *dtype) {
    *dtype = 6;
    return 0;
}
C(GetConstantDataSize)(void *c, size_t i, size_t *size) {
    *size = 64;
    return 0;
}
C(GetConstantType)(void *c, size_t i, int32_t *type) {
    *type = i == 2 ? 4 : 1;
    return 0;
}
C(GetConstantFromFolded)(void *c, size_t i, _Bool *folded) {
    *folded = i == 2;
    return 0;
}
#ifdef MANAGED_ONLY
/* As plugins of PyTorch 2.10 to 2.12: they keep the given tensors and can't list them. */
static void *managed[2];
API float managed_value(int i) {
    void *data;
    aoti_torch_get_data_ptr(managed[i], &data);
    return *(float *)data;
}
C(UpdateUserManagedConstantBufferPairs)(void *c, const Entry *pairs, size_t n, _Bool inactive, _Bool full) {
    for (size_t p = 0; p < n; p++) {
        for (int i = 0; i < 2; i++) {
            if (!strcmp(pairs[p].name, names[i])) {
                aoti_torch_new_tensor_handle(pairs[p].handle, &managed[i]);
            }
        }
    }
    return 0;
}
#else
C(ExtractConstantsMapEntries)(void *c, const Entry **array, size_t *count, _Bool inactive) {
    size_t n = 0;
    for (int i = 0; i < 2; i++) {
        if (handles[active ^ inactive][i]) {
            entries[n++] = (Entry){fqns[i], handles[active ^ inactive][i]};
        }
    }
    *array = entries;
    *count = n;
    return 0;
}
C(UpdateConstantBufferPairs)(void *c, const Entry *pairs, size_t n, _Bool inactive, _Bool full) {
    static const int64_t size[] = {4}, stride[] = {1};
    updates++;
    for (size_t p = 0; p < n; p++) {
        for (int i = 0; i < 2; i++) {
            if (strcmp(pairs[p].name, names[i])) {
                continue;
            }
            int64_t bytes;
            void *data;
            aoti_torch_get_storage_size(pairs[p].handle, &bytes);
            aoti_torch_get_data_ptr(pairs[p].handle, &data);
            if (bytes > 64) {
                abort(); /* a real plugin writes past its slot */
            }
            int set = active ^ inactive;
            memcpy(values[set][i], data, bytes);
            if (!handles[set][i]) {
                aoti_torch_create_tensor_from_blob_v2(values[set][i], 1, size, stride, 0, 6, 0, 0,
                                                      &handles[set][i], 0, NULL, 0);
            }
        }
    }
    return 0;
}
C(UpdateInactiveConstantBufferPairs)(void *c, const Entry *pairs, size_t n) { return 1; }
C(UpdateUserManagedConstantBufferPairs)(void *c, const Entry *p, size_t n, _Bool i, _Bool full) { return 1; }
#endif
C(SwapConstantBuffer)(void *c) {
    active ^= 1;
    return 0;
}
C(FreeInactiveConstantBuffer)(void *c) { return 0; }
C(RunConstantFolding)(void *c, _Bool inactive, void *stream, void *proxy) {
    folds++;
#ifdef FOLDING_FAILS
    last_error = "no folding today";
    return 1;
#endif
    return 0;
}
#endif
